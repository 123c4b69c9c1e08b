//! Things by their names: what people write, and what the server knows them by.

use engine::cluster::NoderoleKey;
use engine::ids::{NodeId, NoderoleId};
use serde_json::Value;

use api::console::{DeploymentSummary, NodePage, NodeSummary};

use crate::address::{Query, part};
use crate::exit::{Failure, Outcome};
use crate::server::Server;

/// How far a name may be from what was written to be meant.
const NEAR: usize = 3;

/// `; is web or wob meant?` of those that are near; nothing where none is.
pub(crate) fn near<'n>(wrong: &str, known: impl IntoIterator<Item = &'n str>) -> String {
    let mut found: Vec<(usize, &str)> = known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&wrong.to_lowercase(), &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= NEAR.min(name.len().max(wrong.len()) / 2))
        .collect();
    found.sort_unstable();
    found.dedup();
    let names: Vec<&str> = found.into_iter().take(3).map(|(_, name)| name).collect();
    if names.is_empty() { String::new() } else { format!("; is {} meant?", names.join(" or ")) }
}

/// A deployment by its name.
pub(crate) fn deployment(server: &Server, name: &str) -> Outcome<DeploymentSummary> {
    let all: Vec<DeploymentSummary> = server.read("/deployments")?;
    let near = near(name, all.iter().map(|one| one.name.as_str()));
    let found = all.into_iter().find(|one| one.name.as_str() == name);
    found.ok_or_else(|| {
        Failure::Nothing(format!("there is no deployment {name}{near}\n`gantry deployment list` has them."))
    })
}

/// A node by its whole name, by the first label of it where only one has that, or by its id.
pub(crate) fn node(server: &Server, name: &str) -> Outcome<NodeSummary> {
    find_node(server, name)?.map_err(Failure::Nothing)
}

/// The same; what is wrong with the name is for whoever asks to place.
pub(crate) fn find_node(server: &Server, name: &str) -> Outcome<Result<NodeSummary, String>> {
    if name.parse::<NodeId>().is_ok() {
        let view: api::nodes::NodeView = server.read(&format!("/nodes/{}", part(name)))?;
        return find_node(server, &view.fqdn);
    }
    let mut like: Vec<NodeSummary> = Vec::new();
    let mut query = Query::default().with("filter", name);
    loop {
        let page: NodePage = server.read(&query.behind("/nodes"))?;
        // A whole name decides; first labels only once all are known.
        if let Some(found) = page.nodes.iter().find(|node| node.fqdn == name) {
            return Ok(Ok(found.clone()));
        }
        like.extend(page.nodes);
        match page.next {
            Some(next) => query = query.with("after", next.to_string()),
            None => break,
        }
    }
    let short = |node: &&NodeSummary| node.fqdn.split('.').next() == Some(name);
    let short: Vec<&NodeSummary> = like.iter().filter(short).collect();
    Ok(match short.as_slice() {
        [one] => Ok((*one).clone()),
        [] => Err(format!("there is no node {name}{}", near_nodes(server, name, &like)?)),
        [first, second, ..] => Err(format!("{name} could be {} or {}: write the whole name", first.fqdn, second.fqdn)),
    })
}

/// Names beside a wrong one: those that have it within, else those that begin like it.
fn near_nodes(server: &Server, name: &str, like: &[NodeSummary]) -> Outcome<String> {
    if !like.is_empty() {
        let names: Vec<&str> = like.iter().take(3).map(|node| node.fqdn.as_str()).collect();
        return Ok(format!("; is {} meant?", names.join(" or ")));
    }
    let label = name.split('.').next().unwrap_or(name);
    let begin: String = label.chars().take(label.chars().count().div_ceil(2)).collect();
    let page: NodePage = server.read(&Query::default().with("filter", begin).behind("/nodes"))?;
    let labels =
        page.nodes.iter().flat_map(|node| [node.fqdn.as_str(), node.fqdn.split('.').next().unwrap_or_default()]);
    Ok(near(name, labels))
}

/// A noderole: its id, or `NODE/ROLE` (`n1/app`, `n1/app/1`).
pub(crate) fn noderole(server: &Server, text: &str) -> Outcome<NoderoleId> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let form = || Failure::Usage(format!("{text} names no noderole: write NODE/ROLE, such as n1/app, or its id"));
    let (node, key) = text.split_once('/').ok_or_else(form)?;
    let key: NoderoleKey = key.parse().map_err(|_| form())?;
    Ok(key.id(self::node(server, node)?.id))
}

/// Somebody by their name, or by their id.
pub(crate) fn person(server: &Server, name: &str) -> Outcome<String> {
    if name.parse::<uuid::Uuid>().is_ok() {
        return Ok(name.to_owned());
    }
    let mut query = Query::default().with("filter", name);
    let mut others = Vec::new();
    loop {
        let page = server.get(&query.behind("/people"))?;
        let people = page["people"].as_array().cloned().unwrap_or_default();
        if let Some(found) = people.iter().find(|person| person["name"] == name) {
            return Ok(found["id"].as_str().unwrap_or_default().to_owned());
        }
        others.extend(people.iter().filter_map(|person| person["name"].as_str()).map(str::to_owned));
        match &page["next"] {
            Value::String(next) => query = query.with("after", next.as_str()),
            _ => break,
        }
    }
    let near = near(name, others.iter().map(String::as_str));
    Err(Failure::Nothing(format!("there is nobody called {name}{near}\n`gantry person list` has everybody.")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_name_is_told_with_those_near_it() {
        assert_eq!(near("proxi", ["app", "proxy", "runtime"]), "; is proxy meant?");
        assert_eq!(near("wob", ["web", "wobs", "database"]), "; is web or wobs meant?");
        assert_eq!(near("zzzzzz", ["web"]), "");
        assert_eq!(near("x", ["y"]), "", "one letter is near to every other one");
    }
}
