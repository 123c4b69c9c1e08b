//! The impact of a change in plain words: one line for each question of a reviewer, with a link to
//! the complete list. The most severe lines come first. One line lists the effects that the change
//! does not have.

use std::borrow::Cow;
use std::collections::BTreeSet;

use api::reviews::ReviewView;
use engine::blueprint::Impact;
use engine::blueprint::impact::{Counted, Loss, NoderoleRerun, Touched};
use engine::catalog::OnInput;
use engine::cluster::phantom;
use engine::counting::{either, many};
use engine::ids::Fqdn;
use engine::lint::{Finding, Level};
use leptos::prelude::*;

use super::changes::Changed;
use crate::addresses;
use crate::components::{Icon, icon};

/// The maximum number of summary lines that are visible without expanding. Severe lines come first
/// and are always visible.
const VISIBLE_LINES: usize = 6;
/// The maximum number of names in one line. The rest is a count.
const MAX_NAMED: usize = 3;

/// The maximum number of lint warnings in the summary. The tab *Checks* has all.
const MAX_WARNINGS: usize = 3;

/// One effect of the change.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ImpactLine {
    state: &'static str,
    shape: Icon,
    lead: String,
    rest: String,
    /// The tab and its section, and the link's text with the count.
    link: (&'static str, String),
}

/// The reaction of downstream noderoles to a changed input.
pub(super) fn on_changed_input(policy: OnInput) -> &'static str {
    match policy {
        OnInput::Rerun => "They run again after the change, if it changes their input.",
        OnInput::Report => "If the change affects their input, they are reported and do not run.",
        OnInput::Ignore => "They do not run again. Their next run uses the new input.",
    }
}

#[component]
pub(super) fn Facts(review: RwSignal<ReviewView>) -> impl IntoView {
    let lines = Memo::new(move |_| {
        let review = review.read();
        if review.requested.is_empty() { review.summary.clone() } else { review.requested.clone() }
    });
    let line_of = |line: &String| view! { <li>{line.clone()}</li> };
    let visible = Memo::new(move |_| review.read().always_shown.max(VISIBLE_LINES));
    let first = move || lines.read().iter().take(visible.get()).map(line_of).collect_view();
    // The decision must stay visible: optional details must not push the tabs off the page.
    let rest = move || {
        let (lines, visible) = (lines.read(), visible.get());
        let more = lines.len().saturating_sub(visible);
        (more > 0).then(|| {
            let rest = lines.iter().skip(visible).map(line_of).collect_view();
            view! {
                <details class="more-lines">
                    <summary class="muted">"Show all: " {more} " more"</summary>
                    <ul class="summary" tabindex="0">{rest}</ul>
                </details>
            }
        })
    };
    let found = Memo::new(move |_| {
        let review = review.read();
        facts(&review.impact, &Changed::of(&review.difference, review.more))
    });
    let line = move |fact: ImpactLine| {
        let address =
            format!("{}?tab={}", addresses::review(review.read_untracked().review), fact.link.0);
        view! {
            <li data-state=fact.state>
                {icon(fact.shape)}
                <span><b>{fact.lead}</b> " " <bdi>{fact.rest}</bdi></span>
                <a href=address>{fact.link.1}</a>
            </li>
        }
    };
    let nothing = move || quiet(&review.read().impact);
    let when = move || match review.read().current {
        true => "Impact on the current state",
        false => "Impact at submission",
    };
    view! {
        <section class="card summary-card" aria-label="Impact summary">
            <ul class="summary">{move || first()}</ul>
            {move || rest()}
            {move || warnings(&review.read())}
            <h2 class="visually-hidden">{move || when()}</h2>
            <ul class="outcome">
                {move || found.get().into_iter().map(line).collect_view()}
                {move || nothing().map(|text| view! {
                    <li data-state="active">{icon(Icon::Check)} <span>{text}</span></li>
                })}
            </ul>
            {move || (!review.read().current).then(|| view! {
                <p class="padded muted">
                    "This is the impact at submission. Gantry did not record which of these \
                     noderoles were active."
                </p>
            })}
        </section>
    }
    .into_any()
}

/// The lint warnings, which do not block the gate. So the summary names them.
fn warnings(review: &ReviewView) -> impl IntoView + use<> {
    let open: Vec<_> =
        review.checks.iter().filter(|finding| finding.level == Level::Warning).collect();
    let more = open.len().saturating_sub(MAX_WARNINGS);
    let line = |finding: &&Finding| {
        view! {
            <li data-state="warn">
                {icon(Icon::Warn)}
                <span>
                    <b>{format!("{}:", finding.at)}</b> " " <bdi>{finding.problem.clone()} "."</bdi>
                </span>
            </li>
        }
    };
    let lines = open.iter().take(MAX_WARNINGS).map(line).collect_view();
    let checks = format!("{}?tab=checks", addresses::review(review.review));
    (!open.is_empty()).then(|| {
        view! {
            <ul class="outcome" aria-label="Lint warnings">
                {lines}
                <li data-state="warn">
                    <span></span>
                    <span>{(more > 0).then(|| format!("{more} more."))}</span>
                    <a href=checks>{many(open.len(), "lint warning")}</a>
                </li>
            </ul>
        }
    })
}

fn facts(found: &Impact, changed: &Changed) -> Vec<ImpactLine> {
    let mut facts = Vec::new();
    if found.irreversible.count > 0 {
        facts.push(ImpactLine {
            state: "error",
            shape: Icon::Delete,
            lead: "Can’t be undone:".into(),
            rest: format!(
                "{} {}.",
                names(&found.irreversible, touched),
                either(
                    found.irreversible.count,
                    "loses data when it runs",
                    "lose data when they run"
                )
            ),
            link: ("effects#irreversible", list(found.irreversible.count)),
        });
    }
    facts.extend(secrets(found));
    facts.extend(restarts(found));
    if found.retained.count > 0 {
        let parts = RetainedText::of(found);
        facts.push(ImpactLine {
            state: "warn",
            shape: Icon::Paused,
            lead: format!("{}:", parts.lead),
            rest: format!("{}. {}", names(&found.retained, touched), parts.sentence),
            link: ("effects#retained", list(found.retained.count)),
        });
    }
    if found.lost.count > 0 {
        let up = match found.lost_in_use {
            Some(up) if up > 0 => format!(" {} active now.", is_up(up, "noderole")),
            _ => String::new(),
        };
        facts.push(ImpactLine {
            state: "error",
            shape: Icon::Cross,
            lead: "Removes:".into(),
            rest: format!("{}.{up}{}", names(&found.lost, lost), on_removed_nodes(found)),
            link: ("effects#lost", list(found.lost.count)),
        });
    }
    let downstream: usize = found.downstream.iter().map(|group| group.noderoles.count).sum();
    if downstream > 0 {
        let up = found.downstream.iter().map(|group| group.in_use).sum::<Option<usize>>();
        let up = up.map_or_else(String::new, |up| format!(", {up} active now"));
        let places: BTreeSet<String> =
            found.downstream.iter().map(|group| group.deployment.to_string()).collect();
        let places: Vec<String> = places.into_iter().collect();
        let policies: BTreeSet<OnInput> =
            found.downstream.iter().map(|group| group.on_input).collect();
        let policies: Vec<&str> = policies.into_iter().map(on_changed_input).collect();
        facts.push(ImpactLine {
            state: "warn",
            shape: Icon::Graph,
            lead: "Downstream:".into(),
            rest: format!(
                "{} in {}{up}. {}",
                many(downstream, "noderole"),
                first(&places, places.len()),
                policies.join(" "),
            ),
            link: ("graph", "Graph".into()),
        });
    }
    if found.starts.count > 0 {
        facts.push(ImpactLine {
            state: "proposed",
            shape: Icon::Plus,
            lead: format!("Starts {}:", many(found.starts.count, "noderole")),
            rest: format!("{}.", names(&found.starts, touched)),
            link: ("effects#starts", list(found.starts.count)),
        });
    }
    facts.push(reach(found, changed));
    facts
}

/// The text for steps that stay applied. If the actual state is unknown, some steps may be due to
/// run. These runs also take the new content and data.
pub(super) struct RetainedText {
    pub lead: &'static str,
    pub note: &'static str,
    sentence: &'static str,
}

impl RetainedText {
    pub fn of(found: &Impact) -> Self {
        match found.interrupted {
            Some(_) => Self {
                lead: "Does not run again",
                note: "new content or data applies at the next run, which this change does not \
                    start",
                sentence: "New content or data applies at the next run, which this change does not \
                    start.",
            },
            None => Self {
                lead: "Does not run again",
                note: "the next run applies the new content or data",
                sentence: "The next run applies the new content or data.",
            },
        }
    }
}

fn restarts(found: &Impact) -> Option<ImpactLine> {
    let all = found.restarts.count;
    let names = |only: Option<bool>, count: usize| {
        let fits = |restart: &&NoderoleRerun| only.is_none() || restart.in_use == only;
        let some: Vec<String> = found
            .restarts
            .first
            .iter()
            .filter(fits)
            .take(MAX_NAMED)
            .map(|restart| touched(&restart.touched))
            .collect();
        first(&some, count)
    };
    let (state, lead, rest) = match found.interrupted {
        _ if all == 0 => return None,
        None => (
            "todo",
            format!("Runs {} again:", many(all, "noderole")),
            format!("{}.", names(None, all)),
        ),
        Some(0) => (
            "todo",
            format!("Runs {} again:", many(all, "noderole")),
            format!("{}. None is active now.", names(None, all)),
        ),
        Some(up) => {
            let others = all - up;
            let others_text = match others {
                0 => String::new(),
                n => format!(" {} again.", also_runs(n)),
            };
            (
                "warn",
                format!(
                    "Restarts {} that {} active now:",
                    many(up, "noderole"),
                    either(up, "is", "are")
                ),
                format!("{}.{others_text}", names(Some(true), up)),
            )
        }
    };
    Some(ImpactLine {
        state,
        shape: Icon::Rerun,
        lead,
        rest,
        link: ("effects#restarts", list(all)),
    })
}

/// The secrets that the change starts to use.
fn secrets(found: &Impact) -> Option<ImpactLine> {
    let used = found.secrets.iter().filter(|secret| secret.is_new_to_runs());
    let used: Vec<String> = used.map(ToString::to_string).collect();
    (!used.is_empty()).then(|| ImpactLine {
        state: "warn",
        shape: Icon::Data,
        lead: "Secrets:".into(),
        rest: format!("{}.", first(&used, used.len())),
        link: ("effects#secrets", list(found.secrets.len())),
    })
}

fn also_runs(n: usize) -> String {
    if n == 1 {
        "1 inactive noderole also runs".into()
    } else {
        format!("{n} inactive noderoles also run")
    }
}

/// The actions that a removal runs on the nodes.
fn on_removed_nodes(found: &Impact) -> String {
    match (found.undone.count, found.left_in_place.count) {
        (0, 0) => String::new(),
        (0, _) => " Nothing is run on the node.".to_owned(),
        (undone, 0) => format!(" Runs remove for {} first.", many(undone, "noderole")),
        (undone, left) => format!(
            " Runs remove for {} first. For {} others, nothing is run on the node.",
            many(undone, "noderole"),
            left
        ),
    }
}

/// The scope of the change.
fn reach(found: &Impact, changed: &Changed) -> ImpactLine {
    let waves = found.wave_count();
    let lead = format!("Changes {changed}");
    let on = many(found.nodes, "node");
    let later: usize = found.follow_ups().map(|group| group.noderoles.count).sum();
    let later_text = || match later {
        1 => "1 noderole runs again, if its input changes.".to_owned(),
        n => format!("{n} noderoles run again, if their input changes."),
    };
    let rest = match (changed.is_on_nodes && found.nodes > 0, waves, later) {
        (true, 0, 0) => format!("on {on}. Nothing runs."),
        (true, 0, _) => format!("on {on}. {}", later_text()),
        (true, waves, _) => format!("on {on}, in {}.", many(waves, "wave")),
        (false, 0, 0) => "and runs nothing.".to_owned(),
        (false, 0, _) => format!("and runs nothing itself. {}", later_text()),
        (false, waves, _) => format!("and runs on {on}, in {}.", many(waves, "wave")),
    };
    let link = match waves + later {
        0 => ("changes", "Changes".into()),
        _ => ("waves", "Waves".into()),
    };
    ImpactLine { state: "", shape: Icon::Node, lead, rest, link }
}

/// The effects that the change does not have. `None`: it has all of them.
fn quiet(found: &Impact) -> Option<String> {
    let all = [
        (found.restarts.count == 0 && found.follow_ups().next().is_none(), "restarts nothing"),
        (found.lost.count == 0, "removes nothing"),
        (found.irreversible.count == 0, "destroys no data"),
    ];
    let mut not: Vec<&str> =
        all.into_iter().filter(|(quiet, _)| *quiet).map(|(_, text)| text).collect();
    let last = not.pop()?;
    Some(match not.is_empty() {
        true => format!("The change {last}."),
        false => format!("The change {} and {last}.", not.join(", ")),
    })
}

pub(super) fn touched(touched: &Touched) -> String {
    touched.to_string()
}

/// A loss in words.
pub(super) fn lost(loss: &Loss) -> String {
    match loss {
        Loss::Deployment { name } => format!("deployment {name}"),
        Loss::Node { fqdn, noderoles } => {
            format!("node {} ({})", node(fqdn), many(*noderoles, "noderole"))
        }
        Loss::Noderole { noderole, fqdn } => format!("{noderole} on {}", node(fqdn)),
        Loss::Role { role, deployment } => format!("role {role} in {deployment}"),
        Loss::Barclamp { barclamp, deployment } => format!("barclamp {barclamp} in {deployment}"),
        Loss::Content { part, barclamp, deployment } => {
            format!("{part} ({barclamp} in {deployment})")
        }
        Loss::Data { of, paths } => format!("{} of {of}", first(paths, paths.len())),
    }
}

fn node(fqdn: &Fqdn) -> Cow<'_, str> {
    phantom::short_name(fqdn, |_| None)
}

fn names<T>(list: &Counted<T>, name: impl Fn(&T) -> String) -> String {
    let some: Vec<String> = list.first.iter().take(MAX_NAMED).map(name).collect();
    first(&some, list.count)
}

/// `a`, `a and b`, `a, b, c and 4 more`.
fn first(names: &[String], count: usize) -> String {
    let shown = &names[..names.len().min(MAX_NAMED)];
    match (shown, count.saturating_sub(shown.len())) {
        ([all @ .., last], 0) if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        (shown, 0) => shown.concat(),
        (shown, more) => format!("{} and {more} more", shown.join(", ")),
    }
}

fn is_up(n: usize, noun: &str) -> String {
    format!("{} {}", many(n, noun), either(n, "is", "are"))
}

fn list(n: usize) -> String {
    if n == 1 { "Show".into() } else { format!("Show all {n}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::blueprint::impact::Downstream;
    use engine::blueprint::projection::RerunCause;
    use engine::cluster::NoderoleKey;
    use engine::ids::{DeploymentName, NodeId, RoleName};

    fn at(n: u128) -> Touched {
        let (key, node) =
            (NoderoleKey::first(RoleName::parse("app").unwrap()), NodeId(uuid::Uuid::from_u128(n)));
        Touched {
            id: key.id(node),
            noderole: key,
            fqdn: Fqdn::parse(&format!("n{n}.example.com")).unwrap(),
            deployment: DeploymentName::parse("web").unwrap(),
        }
    }

    fn restart(n: u128, in_use: Option<bool>) -> NoderoleRerun {
        NoderoleRerun { touched: at(n), cause: RerunCause::Requested, reason: None, in_use }
    }

    fn lines(found: &Impact) -> Vec<String> {
        let changed = Changed { parts: vec!["2 noderoles".into()], is_on_nodes: true };
        facts(found, &changed).iter().map(|fact| format!("{} {}", fact.lead, fact.rest)).collect()
    }

    #[test]
    fn active_steps_restart_and_others_run_again() {
        let of = |ups: &[Option<bool>]| Impact {
            nodes: 3,
            restarts: ups.iter().zip(1..).map(|(up, n)| restart(n, *up)).collect::<Vec<_>>().into(),
            interrupted: ups[0].map(|_| ups.iter().filter(|up| **up == Some(true)).count()),
            ..Impact::default()
        };
        let (up, down) = (Some(true), Some(false));
        assert_eq!(
            lines(&of(&[up, up]))[0],
            "Restarts 2 noderoles that are active now: app on n1 and app on n2."
        );
        assert_eq!(
            lines(&of(&[up, down]))[0],
            "Restarts 1 noderole that is active now: app on n1. 1 inactive noderole also runs \
             again."
        );
        assert_eq!(lines(&of(&[down]))[0], "Runs 1 noderole again: app on n1. None is active now.");
        assert_eq!(
            lines(&of(&[None, None]))[0],
            "Runs 2 noderoles again: app on n1 and app on n2."
        );
    }

    #[test]
    fn unknown_actual_state_is_not_called_applied() {
        let of =
            |interrupted| Impact { retained: vec![at(1)].into(), interrupted, ..Impact::default() };
        assert_eq!(
            lines(&of(Some(0)))[0],
            "Does not run again: app on n1. New content or data applies at the next run, which \
             this change does not start."
        );
        assert_eq!(
            lines(&of(None))[0],
            "Does not run again: app on n1. The next run applies the new content or data."
        );
    }

    #[test]
    fn long_lists_end_with_a_count() {
        let all: Vec<Touched> = (1..=1_000).map(at).collect();
        let found = Impact {
            nodes: 1_000,
            starts: all.clone().into(),
            irreversible: all.into(),
            downstream: vec![Downstream {
                on_input: OnInput::Rerun,
                deployment: DeploymentName::parse("web").unwrap(),
                noderoles: Counted { count: 20_000, first: vec![at(1)] },
                in_use: Some(7),
            }],
            ..Impact::default()
        };
        assert_eq!(
            lines(&found),
            [
                "Can’t be undone: app on n1, app on n2, app on n3 and 997 more lose data when they \
                 run.",
                "Downstream: 20000 noderoles in web, 7 active now. They run again after the \
                 change, if it changes their input.",
                "Starts 1000 noderoles: app on n1, app on n2, app on n3 and 997 more.",
                "Changes 2 noderoles on 1000 nodes. 20000 noderoles run again, if their input \
                 changes.",
            ]
        );
        assert_eq!(quiet(&found).as_deref(), Some("The change removes nothing."));
        assert_eq!(
            quiet(&Impact::default()).as_deref(),
            Some("The change restarts nothing, removes nothing and destroys no data.")
        );
    }
}
