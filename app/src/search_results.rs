//! Search results and commands: the pages and commands that every reader has, and the hits that the
//! server finds by name.

use api::runs::RunState;
use api::search::{Hit, HitKind};
use engine::ids::{DeploymentId, DeploymentName};

use crate::addresses;
use crate::components::Icon;
use crate::components::badge::run_style;

/// The action of a choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChoiceAction {
    /// Opens a page.
    Go(String),
    /// Opens a proposal on a deployment, or joins the open one, and opens its board.
    Propose(DeploymentId, DeploymentName),
    /// Sets the color theme. `None`: the system's theme.
    SetTheme(Option<&'static str>),
    SignOut,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    pub name: String,
    /// A short description.
    pub about: String,
    pub icon: Icon,
    pub action: ChoiceAction,
}

/// The pages of the navigation, the most visited ones first.
pub const NAVIGATION: [(&str, Icon, &str); 12] = [
    (addresses::OVERVIEW, Icon::Overview, "Overview"),
    (addresses::DEPLOYMENTS, Icon::Deployments, "Deployments"),
    (addresses::NODES, Icon::Node, "Nodes"),
    (addresses::GRAPH, Icon::Graph, "Graph"),
    (addresses::REVIEWS, Icon::Review, "Reviews"),
    (addresses::RUNS, Icon::Run, "Runs"),
    (addresses::PENDING, Icon::Queued, "Pending"),
    (addresses::BLUEPRINTS, Icon::Blueprint, "Blueprints"),
    (addresses::CATALOG, Icon::Catalog, "Catalog"),
    (addresses::WORKERS, Icon::Worker, "Workers"),
    (addresses::AUDIT, Icon::Audit, "Audit"),
    (addresses::SETTINGS, Icon::Person, "Settings"),
];

/// The number of pages that a narrow screen shows without *More*.
pub const PRIMARY_COUNT: usize = 6;

/// Pages below those of the navigation, which search also finds.
const SUBPAGES: [(&str, Icon, &str); 7] = [
    (addresses::ROLES, Icon::Bind, "Roles"),
    (addresses::ROLE_GRAPH, Icon::Graph, "Dependencies of roles"),
    (addresses::IMPORTS, Icon::Catalog, "Imports"),
    (addresses::ACCOUNT, Icon::Person, "My account"),
    (addresses::PEOPLE, Icon::Person, "People"),
    (addresses::SERVICES, Icon::Person, "Service accounts"),
    (addresses::POLICY, Icon::Review, "Policy"),
];

/// The word that starts a request to change a deployment.
const PROPOSE_PREFIX: &str = "propose";

fn has(name: &str, text: &str) -> bool {
    name.to_lowercase().contains(&text.trim().to_lowercase())
}

/// Pages whose names contain the text. All of them if it is empty.
pub fn pages(text: &str) -> Vec<Choice> {
    let found = NAVIGATION.into_iter().chain(SUBPAGES).filter(|(_, _, word)| has(word, text));
    found
        .map(|(place, icon, word)| Choice {
            name: word.to_owned(),
            about: "page".to_owned(),
            icon,
            action: ChoiceAction::Go(place.to_owned()),
        })
        .collect()
}

/// Commands whose words contain the text. All of them if it is empty.
pub fn commands(text: &str) -> Vec<Choice> {
    let all = [
        (
            "Propose changes: choose a deployment",
            Icon::Proposed,
            ChoiceAction::Go(addresses::DEPLOYMENTS.to_owned()),
        ),
        ("Theme: light", Icon::Light, ChoiceAction::SetTheme(Some("light"))),
        ("Theme: dark", Icon::Dark, ChoiceAction::SetTheme(Some("dark"))),
        ("Theme: system", Icon::System, ChoiceAction::SetTheme(None)),
        ("Sign out", Icon::Leave, ChoiceAction::SignOut),
    ];
    let command = |(name, icon, action): (&str, Icon, ChoiceAction)| Choice {
        name: name.to_owned(),
        about: "command".to_owned(),
        icon,
        action,
    };
    all.into_iter().filter(|(name, ..)| has(name, text)).map(command).collect()
}

/// The search text for the server: without a leading "propose".
pub fn search_text(text: &str) -> &str {
    let mut rest = text.trim();
    for word in [PROPOSE_PREFIX, "changes", "on"] {
        let begins = rest.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
        match rest.get(word.len()..) {
            Some(remainder) if begins && (remainder.is_empty() || remainder.starts_with(' ')) => {
                rest = remainder.trim()
            }
            // A text that does not start with "propose" is the search text.
            _ if word == PROPOSE_PREFIX => return rest,
            _ => {}
        }
    }
    rest
}

/// The choices for a hit: its page and, for a deployment, a new proposal.
pub fn offers(hit: &Hit) -> Vec<Choice> {
    let choice = |name: String, about: String, icon: Icon, action: ChoiceAction| Choice {
        name,
        about,
        icon,
        action,
    };
    match hit {
        Hit::Deployment { id, name } => vec![
            choice(
                name.to_string(),
                "deployment".into(),
                Icon::Deployments,
                ChoiceAction::Go(addresses::deployment(name)),
            ),
            choice(
                format!("Propose changes on {name}"),
                "command".into(),
                Icon::Proposed,
                ChoiceAction::Propose(*id, name.clone()),
            ),
        ],
        Hit::Node { fqdn, deployment, .. } => {
            vec![choice(
                fqdn.clone(),
                format!("node in {deployment}"),
                Icon::Node,
                ChoiceAction::Go(addresses::node(fqdn)),
            )]
        }
        Hit::Role { role, barclamp } => {
            let about = format!("role of {barclamp}");
            vec![choice(
                role.to_string(),
                about,
                Icon::Bind,
                ChoiceAction::Go(addresses::role_in(role, barclamp)),
            )]
        }
        Hit::Run { id, role, fqdn, state } => {
            vec![choice(
                format!("Run {id}: {role} on {fqdn}"),
                run_state_name(*state),
                Icon::Run,
                ChoiceAction::Go(addresses::run(*id)),
            )]
        }
        Hit::Review { id, title, deployment } => {
            vec![choice(
                title.clone(),
                format!("review {id} on {deployment}"),
                Icon::Review,
                ChoiceAction::Go(addresses::review(*id)),
            )]
        }
        Hit::Person { name, service, .. } => {
            let about = if *service { "service account" } else { "person" };
            vec![choice(
                name.clone(),
                about.into(),
                Icon::Person,
                ChoiceAction::Go(addresses::person(name)),
            )]
        }
    }
}

fn run_state_name(state: RunState) -> String {
    format!("run, {}", run_style(state).2)
}

/// The heading above hits of a kind.
pub fn heading(kind: HitKind) -> &'static str {
    match kind {
        HitKind::Deployment => "Deployments",
        HitKind::Node => "Nodes",
        HitKind::Role => "Roles",
        HitKind::Run => "Runs",
        HitKind::Review => "Reviews",
        HitKind::Person => "People and service accounts",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_commands_match_substrings() {
        let names = |choices: Vec<Choice>| {
            choices.into_iter().map(|choice| choice.name).collect::<Vec<_>>()
        };
        assert_eq!(names(pages("NOD")), ["Nodes"]);
        assert_eq!(pages("").len(), NAVIGATION.len() + SUBPAGES.len());
        assert_eq!(names(pages("polic")), ["Policy"]);
        assert_eq!(names(pages("roles")), ["Roles", "Dependencies of roles"]);
        assert_eq!(names(commands("dark")), ["Theme: dark"]);
        assert!(pages("zzz").is_empty() && commands("zzz").is_empty());
    }

    #[test]
    fn propose_prefix_is_stripped_from_search() {
        for (text, expected) in [
            ("web", "web"),
            (" n1 ", "n1"),
            ("propose", ""),
            ("Propose web", "web"),
            ("propose changes", ""),
            ("propose changes on web", "web"),
            ("proposer", "proposer"),
        ] {
            assert_eq!(search_text(text), expected, "{text}");
        }
    }
}
