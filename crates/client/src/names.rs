//! Resolves the names that people type to ids and full names.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use engine::cluster::{NoderoleKey, phantom};
use engine::ids::{
    BlueprintNumber, DeploymentName, Fqdn, NodeId, NoderoleId, NumberError, PersonId,
};
use engine::suggestion::nearest;
use serde_json::Value;
use uuid::Uuid;

use api::calls::{self, List};
use api::deployments::{DeploymentDeclaration, DeploymentPage, DeploymentSummary};
use api::nodes::{NodePage, NodeSummary};

use crate::address::Query;
use crate::exit::{Failure, Outcome};
use crate::output::value_text;
use crate::server::{Server, parse_answer};

/// Up to this many names are resolved with one request each. For more, a list with many items per
/// page is cheaper.
const MAX_SINGLE_LOOKUPS: usize = 8;

/// A suggestion such as ` (did you mean web?)` for the most similar name, or an empty text.
pub(crate) fn near<'n>(input: &str, known: impl IntoIterator<Item = &'n str>) -> String {
    nearest(input, known.into_iter())
        .map(|name| format!(" (did you mean {name}?)"))
        .unwrap_or_default()
}

/// Parses a blueprint number.
pub(crate) fn blueprint(text: &str) -> Result<i64, NumberError> {
    text.parse::<BlueprintNumber>().map(|number| number.0)
}

/// Parses a number that is at least one.
pub(crate) fn from_one<N: FromStr + PartialOrd + From<u8>>(text: &str) -> Result<N, String> {
    let number = text.parse::<N>().ok().filter(|number| *number >= N::from(1_u8));
    number.ok_or_else(|| "must be a whole number of at least 1".to_owned())
}

/// Parses the name or id of a deployment, which the server then looks up.
pub(crate) fn deployment_path(name: &str) -> Outcome<DeploymentName> {
    DeploymentName::parse(name).map_err(|error| {
        Failure::Nothing(format!(
            "Deployment {name:?} does not exist: {error}.\nList all deployments with `gantry \
             deployment list`."
        ))
    })
}

pub(crate) fn deployment(server: &Server, name: &str) -> Outcome<DeploymentSummary> {
    named(name, |query| server.read(&query.on(&List::Deployments.path(""))))
}

/// The deployments with these names, or all. Fails if one does not exist. Many names are resolved
/// via the list, with one request per page instead of one per name.
pub(crate) fn deployments(
    server: &Server,
    names: &[String],
    all_deployments: bool,
) -> Outcome<Vec<DeploymentSummary>> {
    if !all_deployments && names.len() <= MAX_SINGLE_LOOKUPS {
        return names.iter().map(|name| deployment(server, name)).collect();
    }
    let mut all = Vec::new();
    pages(
        Query::default(),
        |query| server.read(&query.on(&List::Deployments.path(""))),
        |page| {
            all.extend(page);
            true
        },
    )?;
    Ok(all)
}

fn named(
    name: &str,
    ask: impl Fn(&Query) -> Outcome<DeploymentPage>,
) -> Outcome<DeploymentSummary> {
    let mut found = None;
    pages(Query::default().with("filter", name), &ask, |page| {
        found = page.into_iter().find(|lookup| lookup.name.as_str() == name);
        found.is_none()
    })?;
    if let Some(found) = found {
        return Ok(found);
    }
    let mut all = Vec::new();
    pages(Query::default(), ask, |page| {
        all.extend(page);
        true
    })?;
    let near = near(name, all.iter().map(|lookup| lookup.name.as_str()));
    Err(Failure::Nothing(format!(
        "Deployment {name:?} does not exist{near}.\nList all deployments with `gantry deployment \
         list`."
    )))
}

/// Reads pages of deployments until `see` returns false.
fn pages(
    mut query: Query,
    ask: impl Fn(&Query) -> Outcome<DeploymentPage>,
    mut see: impl FnMut(Vec<DeploymentSummary>) -> bool,
) -> Outcome {
    loop {
        let DeploymentPage { deployments, next } = ask(&query)?;
        let wants_more = see(deployments);
        match next.filter(|_| wants_more) {
            Some(next) => query = query.with("after", next.to_string()),
            None => return Ok(()),
        }
    }
}

/// The node of a name, or an error text without a position, for the caller to add it.
pub(crate) type NodeLookup = Result<NodeSummary, String>;

/// Finds a node by full name, unique first label, id, or `phantom:DEPLOYMENT`.
pub(crate) fn node(server: &Server, name: &str) -> Outcome<NodeSummary> {
    find_node(server, name)?.map_err(Failure::Nothing)
}

/// Finds several nodes. Many names are resolved via the list of nodes, with one request per page
/// instead of one per name.
pub(crate) fn find_nodes<'n>(
    server: &Server,
    names: &BTreeSet<&'n str>,
) -> Outcome<BTreeMap<&'n str, NodeLookup>> {
    let mut found = match names.len() > MAX_SINGLE_LOOKUPS {
        true => listed(names, |query| server.read(&query.on(&List::Nodes.path(""))))?,
        false => BTreeMap::new(),
    };
    for name in names {
        if !found.contains_key(name) {
            found.insert(name, find_node(server, name)?);
        }
    }
    Ok(found)
}

/// Resolves names via the list: full names on any page, first labels once all pages are read. It
/// reads at most as many pages as there are names, because one request per name costs no more.
fn listed<'n>(
    names: &BTreeSet<&'n str>,
    ask: impl Fn(&Query) -> Outcome<NodePage>,
) -> Outcome<BTreeMap<&'n str, NodeLookup>> {
    let is_listed =
        |name: &&str| name.parse::<NodeId>().is_err() && phantom::deployment_of(name).is_none();
    let names: BTreeSet<&str> = names.iter().copied().filter(is_listed).collect();
    let mut query = Query::default().with("filter", common_prefix(&names));
    let (mut found, mut all) = (BTreeMap::new(), Vec::new());
    for _ in &names {
        let page = ask(&query)?;
        for node in page.nodes {
            if let Some(name) = names.get(node.fqdn.as_str()) {
                found.insert(*name, Ok(node.clone()));
            }
            all.push(node);
        }
        let next = match page.next {
            _ if found.len() == names.len() => return Ok(found),
            Some(next) => next,
            None => {
                found.extend(find_by_label(
                    names.iter().copied().filter(|name| !found.contains_key(name)).collect(),
                    &all,
                ));
                return Ok(found);
            }
        };
        query = query.with("after", next.to_string());
    }
    Ok(found)
}

/// Resolves first labels, given all nodes that can match.
fn find_by_label<'n>(names: Vec<&'n str>, all: &[NodeSummary]) -> BTreeMap<&'n str, NodeLookup> {
    let mut labels: BTreeMap<&str, Vec<&NodeSummary>> = BTreeMap::new();
    for node in all {
        labels.entry(label(&node.fqdn)).or_default().push(node);
    }
    let known = || all.iter().flat_map(|node| [node.fqdn.as_str(), label(&node.fqdn)]);
    let none = |name: &str| missing_node(name, &near(name, known()));
    let lookup = |name: &'n str| {
        (name, only(name, labels.get(name).map(Vec::as_slice).unwrap_or_default(), none))
    };
    names.into_iter().map(lookup).collect()
}

/// The only node with this first label. `none` is the error text for no match.
fn only(name: &str, matching: &[&NodeSummary], none: impl FnOnce(&str) -> String) -> NodeLookup {
    match matching {
        [lookup] => Ok((*lookup).clone()),
        [] => Err(none(name)),
        [first, second, ..] => Err(format!(
            "Node name {name} is ambiguous: it matches {} and {}. Use the full name.",
            first.fqdn, second.fqdn
        )),
    }
}

fn label(fqdn: &str) -> &str {
    fqdn.split('.').next().unwrap_or(fqdn)
}

/// The longest common prefix.
fn common_prefix(names: &BTreeSet<&str>) -> String {
    // In a sorted set, the first and the last name differ most.
    let (Some(first), Some(last)) = (names.first(), names.last()) else { return String::new() };
    first.chars().zip(last.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
}

fn find_node(server: &Server, name: &str) -> Outcome<NodeLookup> {
    if name.parse::<NodeId>().is_ok() {
        let view: api::nodes::NodeView = server.read(&calls::show_node(name).url())?;
        return find_node(server, &view.fqdn);
    }
    if let Some(of) = phantom::deployment_of(name) {
        return match deployment(server, of) {
            Ok(found) => phantom_node(server, &found).map(Ok),
            Err(Failure::Nothing(message)) => Ok(Err(message)),
            Err(failure) => Err(failure),
        };
    }
    if let Some(of) = Fqdn::parse(name).ok().and_then(|fqdn| phantom::represented_deployment(&fqdn))
    {
        let found = deployments(server, &[], true)?.into_iter().find(|found| found.id == of);
        return match found {
            Some(found) => phantom_node(server, &found).map(Ok),
            None => Ok(Err(missing_node(name, ""))),
        };
    }
    let mut candidates: Vec<NodeSummary> = Vec::new();
    let mut query = Query::default().with("filter", name);
    loop {
        let page: NodePage = server.read(&query.on(&List::Nodes.path("")))?;
        // A full name is unambiguous at once; a first label only once all nodes are read.
        if let Some(found) = page.nodes.iter().find(|node| node.fqdn == name) {
            return Ok(Ok(found.clone()));
        }
        candidates.extend(page.nodes);
        match page.next {
            Some(next) => query = query.with("after", next.to_string()),
            None => break,
        }
    }
    let matching: Vec<&NodeSummary> =
        candidates.iter().filter(|node| label(&node.fqdn) == name).collect();
    let near =
        if matching.is_empty() { suggest_nodes(server, name, &candidates)? } else { String::new() };
    Ok(only(name, &matching, |name| missing_node(name, &near)))
}

/// `near` is a suggestion, or empty.
fn missing_node(name: &str, near: &str) -> String {
    format!("Node {name:?} does not exist{near}.\nList all nodes with `gantry node list`.")
}

/// The phantom node of a deployment. The list of nodes does not have it.
fn phantom_node(server: &Server, of: &DeploymentSummary) -> Outcome<NodeSummary> {
    let declared: DeploymentDeclaration = server.read(&calls::export(&of.name).url())?;
    Ok(NodeSummary {
        id: declared.phantom,
        fqdn: phantom::fqdn(of.id).to_string(),
        deployment: of.name.clone(),
        deployment_id: of.id,
        alive: true,
        available: true,
        transport: String::new(),
        error: None,
        steps: of.steps,
        record_only: false,
    })
}

/// A suggestion for an unknown name: names that contain it, or the most similar of those with the
/// same start.
fn suggest_nodes(server: &Server, name: &str, candidates: &[NodeSummary]) -> Outcome<String> {
    if !candidates.is_empty() {
        let names: Vec<&str> = candidates.iter().take(3).map(|node| node.fqdn.as_str()).collect();
        return Ok(format!(" (did you mean {}?)", names.join(" or ")));
    }
    let label = label(name);
    let prefix: String = label.chars().take(label.chars().count().div_ceil(2)).collect();
    let page: NodePage =
        server.read(&Query::default().with("filter", prefix).on(&List::Nodes.path("")))?;
    let labels = page.nodes.iter().flat_map(|node| [node.fqdn.as_str(), self::label(&node.fqdn)]);
    Ok(near(name, labels))
}

/// Finds a noderole by id or `NODE/ROLE` (`n1/app`, `n1/app/1`).
pub(crate) fn noderole(server: &Server, text: &str) -> Outcome<NoderoleId> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let (node, key) = noderole_on_node(server, text)?;
    Ok(key.id(node))
}

/// Parses `NODE/ROLE` (`n1/app`, `n1/app/1`). The noderole need not exist.
pub(crate) fn noderole_on_node(server: &Server, text: &str) -> Outcome<(NodeId, NoderoleKey)> {
    let form =
        || Failure::Usage(format!("Invalid noderole {text}. Write NODE/ROLE, for example n1/app."));
    let (node, key) = text.split_once('/').ok_or_else(form)?;
    let key: NoderoleKey = key.parse().map_err(|_| form())?;
    Ok((self::node(server, node)?.id, key))
}

/// Finds a person by name or id.
pub(crate) fn person(server: &Server, name: &str) -> Outcome<PersonId> {
    let Lookup { found, near } = look_up(
        server,
        (&List::People.path(""), "people", "after"),
        Query::default().with("filter", name),
        name,
    )?;
    let none = || {
        Failure::Nothing(format!(
            "Person {name:?} does not exist{near}.\nList all people with `gantry person list`."
        ))
    };
    Ok(PersonId(found.ok_or_else(none)?))
}

/// Finds a worker by name or id.
pub(crate) fn worker(server: &Server, name: &str) -> Outcome<Uuid> {
    let Lookup { found, near } = look_up(
        server,
        (&List::Workers.path(""), "workers", "before"),
        Query::default().with("filter", name),
        name,
    )?;
    let none = || {
        Failure::Nothing(format!(
            "Worker {name:?} does not exist{near}.\nList all workers with `gantry workers`."
        ))
    };
    found.ok_or_else(none)
}

/// The id of a name, or a suggestion for an unknown name.
struct Lookup {
    found: Option<Uuid>,
    near: String,
}

/// Looks up a name in a list, given its path, its field with items and its cursor parameter.
fn look_up(
    server: &Server,
    (path, items, cursor_parameter): (&str, &str, &'static str),
    mut query: Query,
    name: &str,
) -> Outcome<Lookup> {
    if let Ok(id) = name.parse() {
        return Ok(Lookup { found: Some(id), near: String::new() });
    }
    let mut others = Vec::new();
    loop {
        let page = server.get(&query.on(path))?;
        let all = page[items].as_array().map(Vec::as_slice).unwrap_or_default();
        if let Some(found) = all.iter().find(|lookup| lookup["name"] == name) {
            let id = parse_answer(&found["id"], "expected an id")?;
            return Ok(Lookup { found: Some(id), near: String::new() });
        }
        others.extend(all.iter().filter_map(|lookup| lookup["name"].as_str()).map(str::to_owned));
        match &page["next"] {
            Value::Null => break,
            next => query = query.with(cursor_parameter, value_text(next)),
        }
    }
    Ok(Lookup { found: None, near: near(name, others.iter().map(String::as_str)) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_name_suggests_most_similar() {
        assert_eq!(near("proxi", ["app", "proxy", "runtime"]), " (did you mean proxy?)");
        assert_eq!(near("wob", ["web", "wobs", "database"]), " (did you mean web?)");
        assert_eq!(near("zzzzzz", ["web"]), "");
        assert_eq!(near("x", ["y"]), "", "names of one letter are never suggested");
    }

    fn summary(fqdn: &str) -> NodeSummary {
        let node = json!({"id": Uuid::nil(), "fqdn": fqdn, "deployment": "web",
            "deployment_id": Uuid::nil(), "alive": true, "available": true, "transport": "local",
            "steps": {"blocked": 0, "todo": 0, "transition": 0, "active": 0, "error": 0}});
        serde_json::from_value(node).unwrap()
    }

    /// Resolves names in a list of these nodes, and returns the requests too. The second number is
    /// the page size.
    fn resolved<'n>(
        names: &[&'n str],
        nodes: &[&str],
        on_page: usize,
    ) -> (BTreeMap<&'n str, NodeLookup>, Vec<String>) {
        let requests = std::cell::RefCell::new(Vec::new());
        let ask = |query: &Query| {
            let behind = requests.borrow().len() * on_page;
            requests.borrow_mut().push(query.on(""));
            let page = nodes.iter().skip(behind).take(on_page).map(|fqdn| summary(fqdn)).collect();
            let next = (behind + on_page < nodes.len())
                .then(|| api::listing::Cursor::from("x".to_owned()));
            Ok(NodePage { nodes: page, next })
        };
        let found = listed(&names.iter().copied().collect(), ask).unwrap();
        (found, requests.into_inner())
    }

    #[test]
    fn many_names_need_one_request_per_page() {
        let nodes = ["n1.demo", "n2.demo", "n2.edge", "n3.demo"];
        let (found, requests) = resolved(&["n1", "n2", "n2.edge", "n3.demo", "n4"], &nodes, 2);
        assert_eq!(requests, ["?filter=n", "?filter=n&after=x"]);
        let lines: BTreeMap<&str, Result<String, String>> =
            found.into_iter().map(|(name, found)| (name, found.map(|node| node.fqdn))).collect();
        let no = |text: &str| Err(text.to_owned());
        assert_eq!(lines["n1"], Ok("n1.demo".to_owned()));
        assert_eq!(
            lines["n2"],
            no("Node name n2 is ambiguous: it matches n2.demo and n2.edge. Use \
            the full name.")
        );
        assert_eq!(
            (&lines["n2.edge"], &lines["n3.demo"]),
            (&Ok("n2.edge".into()), &Ok("n3.demo".into()))
        );
        assert_eq!(
            lines["n4"],
            no("Node \"n4\" does not exist.\nList all nodes with `gantry node list`.")
        );
    }

    #[test]
    fn long_list_is_read_partially() {
        let nodes: Vec<String> = (0..100).map(|n| format!("n{n:02}.demo")).collect();
        let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
        let (found, requests) = resolved(&["n01.demo", "n02", "n99.demo"], &nodes, 1);
        assert_eq!(
            (found.into_keys().collect::<Vec<_>>(), requests.len()),
            (vec!["n01.demo"], 3),
            "names that are not on the first page are requested separately"
        );
        let (found, requests) = resolved(&["n01.demo", "n00.demo"], &nodes, 2);
        assert_eq!(
            (found.len(), requests.len()),
            (2, 1),
            "no more names are requested than were found"
        );
        let id = Uuid::nil().to_string();
        assert_eq!(
            resolved(&[&id, "n00", "n01"], &nodes, 100).1,
            ["?filter=n0"],
            "ids are not resolved as names"
        );
    }
}
