//! Calls for lists, with the filters of the page.

use engine::ids::{NoderoleId, RunId};

use super::Call;
use super::shell::encoded;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    Deployments,
    Nodes,
    /// Health checks of a node.
    HealthChecks,
    /// Results of a node's attempts.
    Results,
    /// Noderoles of a node.
    Noderoles,
    Runs,
    Reviews,
    Proposals,
    Blueprints,
    /// Pending steps.
    Pending,
    Barclamps,
    Roles,
    Imports,
    Workers,
    Audit,
    People,
}

impl List {
    pub const ALL: [Self; 16] = [
        Self::Deployments,
        Self::Nodes,
        Self::HealthChecks,
        Self::Results,
        Self::Noderoles,
        Self::Runs,
        Self::Reviews,
        Self::Proposals,
        Self::Blueprints,
        Self::Pending,
        Self::Barclamps,
        Self::Roles,
        Self::Imports,
        Self::Workers,
        Self::Audit,
        Self::People,
    ];

    /// The list's path and its query parameters, except the cursor. `{id}` is the owner of a list
    /// such as a node's results.
    pub fn endpoint(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Deployments => ("/deployments", &["filter", "state", "sort"]),
            Self::Nodes => ("/nodes", &["filter", "state", "deployment", "sort"]),
            Self::HealthChecks => ("/nodes/{id}/health-checks", &["reached", "filter", "sort"]),
            Self::Results => ("/nodes/{id}/results", &["outcome", "role", "sort"]),
            Self::Noderoles => ("/nodes/{id}/noderoles", &["state", "role", "sort"]),
            Self::Runs => (
                "/runs",
                &["state", "deployment", "node", "role", "worker", "since", "until", "sort"],
            ),
            Self::Reviews => {
                ("/reviews", &["involvement", "state", "deployment", "filter", "sort"])
            }
            Self::Proposals => ("/proposals", &["mine", "drafts", "deployment", "filter", "sort"]),
            Self::Blueprints => ("/blueprints", &["deployment", "sort"]),
            Self::Pending => ("/pending", &["deployment", "node", "reason", "sort"]),
            Self::Barclamps => ("/barclamps", &["filter", "sort"]),
            Self::Roles => ("/roles", &["filter", "barclamp", "sort"]),
            Self::Imports => ("/imports", &["barclamp", "sort"]),
            Self::Workers => ("/workers", &["alive", "draining", "phase", "filter", "sort"]),
            Self::Audit => {
                ("/audit", &["actor", "action", "subject", "source", "since", "until", "sort"])
            }
            Self::People => ("/people", &["filter", "kind", "disabled", "sort"]),
        }
    }

    /// The list's path. `owner` is the owner of a list such as a node's results.
    pub fn path(self, owner: &str) -> String {
        self.endpoint().0.replace(OWNER_PLACEHOLDER, &encoded(owner))
    }

    /// Arguments of `gantry` for this list.
    fn command(self) -> &'static [&'static str] {
        match self {
            Self::Deployments => &["deployment", "list"],
            Self::Nodes => &["node", "list"],
            Self::HealthChecks => &["node", "health-checks"],
            Self::Results => &["node", "results"],
            Self::Noderoles => &["node", "noderoles"],
            Self::Runs => &["run", "list"],
            Self::Reviews => &["review", "list"],
            Self::Proposals => &["proposal", "list"],
            Self::Blueprints => &["blueprint", "list"],
            Self::Pending => &["pending"],
            Self::Barclamps => &["barclamp", "list"],
            Self::Roles => &["role", "list"],
            Self::Imports => &["barclamp", "imports"],
            Self::Workers => &["workers"],
            Self::Audit => &["audit", "list"],
            Self::People => &["person", "list"],
        }
    }
}

/// Placeholder for the owner of a list.
const OWNER_PLACEHOLDER: &str = "{id}";

/// The first page of a list. `asked` returns the value of a filter; empty filters are left out.
pub fn list(list: List, value_of: impl Fn(&str) -> Option<String>) -> Call {
    page(list, None, value_of)
}

/// Like [`list`], for a list that belongs to the thing with this name or id.
pub fn list_of(list: List, name: &str, value_of: impl Fn(&str) -> Option<String>) -> Call {
    page(list, Some(name), value_of)
}

fn page(list: List, name: Option<&str>, value_of: impl Fn(&str) -> Option<String>) -> Call {
    let (_, words) = list.endpoint();
    let path = list.path(name.unwrap_or_default());
    let filters = words
        .iter()
        .filter_map(|word| Some((*word, value_of(word).filter(|value| !value.trim().is_empty())?)));
    let filters: Vec<(&str, String)> = filters.collect();
    let pairs: Vec<String> =
        filters.iter().map(|(word, value)| format!("{word}={}", encoded(value))).collect();
    let url = if pairs.is_empty() { path } else { format!("{path}?{}", pairs.join("&")) };
    let call = Call::get(url);
    let call = name
        .into_iter()
        .fold(call.command(list.command().iter().copied()), |call, name| call.argument(name));
    filters.iter().fold(call, |call, (word, value)| match *word {
        "mine" | "drafts" => call.switch(word, value == "true"),
        word => call.option(word, value),
    })
}

pub fn search(text: &str) -> Call {
    Call::get(format!("/search?q={}", encoded(text))).command(["search"]).last(text)
}

/// Values that a run of a noderole would see now, or its own values, filtered by text.
pub fn noderole_data(id: NoderoleId, filter: &str, own: bool) -> Call {
    let call = Call::get(data_path(format!("/noderoles/{id}/data"), filter, own))
        .command(["noderole", "data"]);
    call.argument(id.to_string()).option_if_set("filter", filter).switch("own", own)
}

/// Values in the input of a run, filtered by text.
pub fn run_data(id: RunId, filter: &str) -> Call {
    let call =
        Call::get(data_path(format!("/runs/{id}/data"), filter, false)).command(["run", "data"]);
    call.argument(id.to_string()).option_if_set("filter", filter)
}

fn data_path(path: String, filter: &str, own: bool) -> String {
    let filter = (!filter.is_empty()).then(|| format!("filter={}", encoded(filter)));
    let words: Vec<String> = filter.into_iter().chain(own.then(|| "own=true".to_owned())).collect();
    if words.is_empty() { path } else { format!("{path}?{}", words.join("&")) }
}
