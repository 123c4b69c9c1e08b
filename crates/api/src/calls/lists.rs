//! Lists, as they are filtered on a page.

use engine::ids::{NoderoleId, RunId};

use super::Call;
use super::shell::encoded;

/// A list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// Deployments.
    Deployments,
    /// Nodes.
    Nodes,
    /// What came of looks at a node.
    Looks,
    /// What attempts returned that is kept for a node.
    Results,
    /// What a node carries.
    Noderoles,
    /// Runs.
    Runs,
    /// Reviews.
    Reviews,
    /// Open proposals.
    Proposals,
    /// Targets.
    Blueprints,
    /// What waits.
    Waiting,
    /// The catalog.
    Barclamps,
    /// Roles of the catalog.
    Roles,
    /// What imports brought.
    Imports,
    /// Workers.
    Workers,
    /// Who did what.
    Audit,
    /// People and service accounts.
    People,
}

impl List {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::Deployments,
        Self::Nodes,
        Self::Looks,
        Self::Results,
        Self::Noderoles,
        Self::Runs,
        Self::Reviews,
        Self::Proposals,
        Self::Blueprints,
        Self::Waiting,
        Self::Barclamps,
        Self::Roles,
        Self::Imports,
        Self::Workers,
        Self::Audit,
        Self::People,
    ];

    /// Where the interface has it, and by which words it can be asked; the place within it is none of them. Where one
    /// thing has the list, `{id}` stands for that.
    pub fn asked_by(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Deployments => ("/deployments", &["filter", "state", "sort"]),
            Self::Nodes => ("/nodes", &["filter", "state", "deployment", "sort"]),
            Self::Looks => ("/nodes/{id}/looks", &["reached", "text", "sort"]),
            Self::Results => ("/nodes/{id}/results", &["outcome", "role", "sort"]),
            Self::Noderoles => ("/nodes/{id}/noderoles", &["state", "role", "sort"]),
            Self::Runs => (
                "/runs",
                &["state", "deployment", "node", "role", "worker", "since", "until", "sort"],
            ),
            Self::Reviews => ("/submissions", &["whose", "fate", "deployment", "text", "sort"]),
            Self::Proposals => ("/proposals", &["mine", "drafts", "deployment", "text", "sort"]),
            Self::Blueprints => ("/targets", &["deployment", "sort"]),
            Self::Waiting => ("/waiting", &["deployment", "node", "reason", "sort"]),
            Self::Barclamps => ("/barclamps", &["filter", "sort"]),
            Self::Roles => ("/roles", &["filter", "barclamp", "sort"]),
            Self::Imports => ("/imports", &["barclamp", "sort"]),
            Self::Workers => ("/workers", &["alive", "phase", "name", "sort"]),
            Self::Audit => {
                ("/audit", &["who", "action", "subject", "source", "since", "until", "sort"])
            }
            Self::People => ("/people", &["filter", "kind", "disabled", "sort"]),
        }
    }

    /// What lists them on the command line.
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::Deployments => &["deployment", "list"],
            Self::Nodes => &["node", "list"],
            Self::Looks => &["node", "looks"],
            Self::Results => &["node", "results"],
            Self::Noderoles => &["node", "noderoles"],
            Self::Runs => &["run", "list"],
            Self::Reviews => &["review", "list"],
            Self::Proposals => &["proposal", "list"],
            Self::Blueprints => &["target", "list"],
            Self::Waiting => &["waiting"],
            Self::Barclamps => &["barclamp", "list"],
            Self::Roles => &["role", "list"],
            Self::Imports => &["barclamp", "imports"],
            Self::Workers => &["workers"],
            Self::Audit => &["audit", "list"],
            Self::People => &["person", "list"],
        }
    }
}

/// Stands for what has a list, where not all of Gantry has it.
const WHOSE: &str = "{id}";

/// A list's first page, filtered: `asked` says what for, by word. Words that say nothing are left out.
pub fn list(list: List, asked: impl Fn(&str) -> Option<String>) -> Call {
    page(list, None, asked)
}

/// The same of a list that one thing has, by that one's name or id.
pub fn list_of(list: List, name: &str, asked: impl Fn(&str) -> Option<String>) -> Call {
    page(list, Some(name), asked)
}

fn page(list: List, name: Option<&str>, asked: impl Fn(&str) -> Option<String>) -> Call {
    let (path, words) = list.asked_by();
    let path = path.replace(WHOSE, &encoded(name.unwrap_or_default()));
    let given = words
        .iter()
        .filter_map(|word| Some((*word, asked(word).filter(|value| !value.trim().is_empty())?)));
    let given: Vec<(&str, String)> = given.collect();
    let pairs: Vec<String> =
        given.iter().map(|(word, value)| format!("{word}={}", encoded(value))).collect();
    let address = if pairs.is_empty() { path } else { format!("{path}?{}", pairs.join("&")) };
    let call = Call::get(address);
    // The command line says moments as people write them, and addresses count milliseconds.
    if given.iter().any(|(word, _)| matches!(*word, "since" | "until")) {
        return call;
    }
    let call = name
        .into_iter()
        .fold(call.words(list.words().iter().copied()), |call, name| call.word(name));
    given.iter().fold(call, |call, (word, value)| match *word {
        "mine" | "drafts" => call.switch(word, value == "true"),
        word => call.option(word, value),
    })
}

/// What is called so.
pub fn search(text: &str) -> Call {
    Call::get(format!("/search?q={}", encoded(text))).words(["search"]).last(text)
}

/// What a run of a noderole would see now, or what it says itself; those values that have a text in them.
pub fn noderole_data(id: NoderoleId, find: &str, own: bool) -> Call {
    let call =
        Call::get(data_of(format!("/noderoles/{id}/data"), find, own)).words(["noderole", "data"]);
    call.word(id.to_string()).option_of("find", find).switch("own", own)
}

/// What a run was told; those values that have a text in them.
pub fn run_data(id: RunId, find: &str) -> Call {
    let call = Call::get(data_of(format!("/runs/{id}/data"), find, false)).words(["run", "data"]);
    call.word(id.to_string()).option_of("find", find)
}

fn data_of(path: String, find: &str, own: bool) -> String {
    let find = (!find.is_empty()).then(|| format!("find={}", encoded(find)));
    let words: Vec<String> = find.into_iter().chain(own.then(|| "own=true".to_owned())).collect();
    if words.is_empty() { path } else { format!("{path}?{}", words.join("&")) }
}
