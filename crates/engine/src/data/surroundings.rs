//! What a run is given beside its attributes.
//!
//! Attributes are one merged document: of a key that many others set, a run sees one value. So what is of many is handed over apart from
//! it, in a document of its own, whose keys can shadow no setting:
//!
//! * `node`: its own node, with what is known of it;
//! * `results`: what attempts returned that are kept for its node ([`super::kept`]), also those that failed, newest first;
//! * `nodes`: the nodes that carry what the run waits for (its ancestors by hard edges), nearest first, each with its addresses and, of
//!   each such noderole there, its data and wall;
//! * `left_out`: how much of all that there was no room for.
//!
//! It is bounded ([`RESULTS`], [`NODES`], [`BYTES_OF_NODES`], [`BYTES_OF_RESULTS`], [`BYTES_OF_FACTS`]), and what is left out is counted,
//! never silent: a configuration that is written for nine of ten peers is worse than none. Names and addresses go before data.
//!
//! Secrets are references in it, and stay so: a run that needs one has it in its attributes.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Contribution, DataError, layers};
use crate::ids::{DeploymentName, Fqdn, NodeId, RoleName, RunId, StepId, TargetNo};

/// Most results.
pub const RESULTS: usize = 100;
/// Most bytes of results, as JSON.
pub const BYTES_OF_RESULTS: usize = 128 << 10;
/// Most nodes.
pub const NODES: usize = 1_000;
/// Most bytes of the data of all nodes, as JSON.
pub const BYTES_OF_NODES: usize = 128 << 10;
/// Most bytes of a node's facts and hints, each, as JSON.
pub const BYTES_OF_FACTS: usize = 64 << 10;

/// The document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Surroundings {
    /// Where the run is.
    pub node: OwnNode,
    /// What attempts on that node returned; newest first.
    pub results: Vec<Returned>,
    /// Who carries what the run waits for; nearest first, then by name.
    pub nodes: Vec<Peer>,
    /// What there was no room for.
    pub left_out: LeftOut,
}

/// A run's own node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OwnNode {
    /// Which.
    pub id: NodeId,
    /// Its name.
    pub name: Fqdn,
    /// Where it belongs.
    pub deployment: DeploymentName,
    /// Whether it stands for a deployment.
    pub phantom: bool,
    /// Where it answers, in the order in which that is tried.
    pub addresses: Vec<String>,
    /// What is known of it.
    pub facts: Value,
    /// What people said of it when they added it.
    pub hints: Value,
}

/// What an attempt returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Returned {
    /// The attempt.
    pub run: RunId,
    /// The role of its noderole.
    pub role: RoleName,
    /// Which of the role's instances on the node.
    pub instance: u32,
    /// Its step.
    pub step: StepId,
    /// What was done.
    pub action: String,
    /// How it ended: `succeeded`, `failed`, `cancelled`, `late`.
    pub outcome: String,
    /// The target that it carried out.
    pub generation: TargetNo,
    /// When it ended, RFC 3339.
    pub at: String,
    /// What it returned; secrets are masked.
    pub result: Value,
}

/// A node that carries what a run waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Peer {
    /// Which.
    pub id: NodeId,
    /// Its name.
    pub name: Fqdn,
    /// Whether it stands for a deployment.
    pub phantom: bool,
    /// Where it answers.
    pub addresses: Vec<String>,
    /// What it carries of that; nearest first.
    pub roles: Vec<PeerRole>,
}

/// A noderole that a run waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PeerRole {
    /// Its role.
    pub role: RoleName,
    /// Which of the role's instances on its node.
    pub instance: u32,
    /// How many edges above the run it is, at least.
    pub distance: u32,
    /// Whether it is ACTIVE; only then is its wall among its data.
    pub active: bool,
    /// Its own data and its wall; absent where there was no room for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

/// How much there was no room for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeftOut {
    /// Results that are kept and not here.
    pub results: usize,
    /// Nodes that are not here.
    pub nodes: usize,
    /// Noderoles that are here without their data.
    pub data: usize,
    /// Whether the facts are too many.
    pub facts: bool,
    /// Whether the hints are too many.
    pub hints: bool,
}

/// An ancestor of a run's step, with where it is.
#[derive(Debug, Clone)]
pub struct Carried<'a> {
    /// Its node.
    pub node: NodeId,
    /// That node's name.
    pub name: Fqdn,
    /// Whether that stands for a deployment.
    pub phantom: bool,
    /// Where that answers.
    pub addresses: Vec<String>,
    /// Its role.
    pub role: RoleName,
    /// Which of the role's instances there.
    pub instance: u32,
    /// How many hard edges above the run's step, at least.
    pub distance: u32,
    /// Whether it is ACTIVE.
    pub active: bool,
    /// Its data.
    pub seen: Contribution<'a>,
}

/// Puts the document together. `results` in any order; `more` is how many of them were not even read.
///
/// # Errors
/// Those of [`layers`], when an ancestor's data is no object.
pub fn surroundings(
    node: OwnNode,
    results: Vec<Returned>,
    more: usize,
    carried: &[Carried<'_>],
) -> Result<Surroundings, DataError> {
    let mut left_out = LeftOut::default();
    let mut node = node;
    left_out.facts = cut(&mut node.facts);
    left_out.hints = cut(&mut node.hints);
    let results = bounded(results, &mut left_out.results);
    left_out.results += more;
    let nodes = peers(carried, &mut left_out)?;
    Ok(Surroundings { node, results, nodes, left_out })
}

fn size(value: &Value) -> usize {
    value.to_string().len()
}

/// Takes a document away that is too large; whether it was.
fn cut(value: &mut Value) -> bool {
    let is_large = size(value) > BYTES_OF_FACTS;
    if is_large {
        *value = Value::Null;
    }
    is_large
}

/// The newest of each step go first, so that one that is tried again and again takes no other's place.
fn bounded(mut results: Vec<Returned>, left_out: &mut usize) -> Vec<Returned> {
    results.sort_by_key(|result| std::cmp::Reverse(result.run));
    let mut seen: BTreeMap<StepId, usize> = BTreeMap::new();
    let mut by_turn: Vec<(usize, Returned)> = results
        .into_iter()
        .map(|result| {
            let nth = seen.entry(result.step).or_default();
            *nth += 1;
            (*nth, result)
        })
        .collect();
    by_turn.sort_by_key(|(nth, result)| (*nth, std::cmp::Reverse(result.run)));
    let (all, mut bytes) = (by_turn.len(), 0);
    let mut kept: Vec<Returned> = by_turn
        .into_iter()
        .map(|(_, result)| result)
        .take(RESULTS)
        .take_while(|result| {
            bytes += size(&result.result);
            bytes <= BYTES_OF_RESULTS
        })
        .collect();
    *left_out = all - kept.len();
    kept.sort_by_key(|result| std::cmp::Reverse(result.run));
    kept
}

fn peers(carried: &[Carried<'_>], left_out: &mut LeftOut) -> Result<Vec<Peer>, DataError> {
    let mut nearest_first: Vec<&Carried<'_>> = carried.iter().collect();
    nearest_first.sort_by(|a, b| {
        (a.distance, &a.name, &a.role, a.instance).cmp(&(b.distance, &b.name, &b.role, b.instance))
    });
    let all: BTreeSet<NodeId> = carried.iter().map(|one| one.node).collect();
    let (mut peers, mut places): (Vec<Peer>, BTreeMap<NodeId, usize>) =
        (Vec::new(), BTreeMap::new());
    let mut bytes = 0;
    for one in nearest_first {
        let at = match places.get(&one.node) {
            Some(at) => *at,
            None if peers.len() >= NODES => continue,
            None => {
                let (name, addresses) = (one.name.clone(), one.addresses.clone());
                peers.push(Peer {
                    id: one.node,
                    name,
                    phantom: one.phantom,
                    addresses,
                    roles: Vec::new(),
                });
                places.insert(one.node, peers.len() - 1);
                peers.len() - 1
            }
        };
        let data = layers(one.seen.step, one.seen.own, Some(one.seen.wall))?.value;
        bytes += size(&data);
        let data = Some(data).filter(|_| bytes <= BYTES_OF_NODES);
        left_out.data += usize::from(data.is_none());
        let role = PeerRole {
            role: one.role.clone(),
            instance: one.instance,
            distance: one.distance,
            active: one.active,
            data,
        };
        if let Some(peer) = peers.get_mut(at) {
            peer.roles.push(role);
        }
    }
    left_out.nodes = all.len() - peers.len();
    Ok(peers)
}

#[cfg(test)]
mod tests {
    use super::super::{OwnData, Wall};
    use super::*;
    use serde_json::json;
    use uuid::Uuid;

    fn own() -> OwnNode {
        OwnNode {
            id: NodeId(Uuid::from_u128(1)),
            name: Fqdn::parse("n1.rack.example").unwrap(),
            deployment: DeploymentName::parse("web").unwrap(),
            phantom: false,
            addresses: vec!["10.0.0.1".into()],
            facts: json!({"cpus": 4}),
            hints: json!({}),
        }
    }

    fn returned(run: i64, step: u128, result: Value) -> Returned {
        Returned {
            run: RunId(run),
            role: RoleName::parse("disk").unwrap(),
            instance: 0,
            step: StepId(Uuid::from_u128(step)),
            action: "run".into(),
            outcome: "failed".into(),
            generation: TargetNo(1),
            at: "2024-01-01T00:00:00Z".into(),
            result,
        }
    }

    fn carried<'a>(
        node: u128,
        role: &str,
        distance: u32,
        data: &'a Value,
        wall: &'a Value,
    ) -> Carried<'a> {
        let own = OwnData { user: data, ..OwnData::NONE };
        let step = StepId(Uuid::from_u128(node * 100 + u128::from(distance)));
        Carried {
            node: NodeId(Uuid::from_u128(node)),
            name: Fqdn::parse(&format!("n{node}.rack.example")).unwrap(),
            phantom: false,
            addresses: vec![format!("10.0.0.{node}")],
            role: RoleName::parse(role).unwrap(),
            instance: 0,
            distance,
            active: true,
            seen: Contribution { step, rank: 0, own, wall: Wall { value: wall, run: None } },
        }
    }

    #[test]
    fn nodes_come_nearest_first_each_with_what_it_says() {
        let (one, two) =
            (json!({"port": 1}), json!({"port": 2, "p": {"$secret": "s", "version": 1}}));
        let wall = json!({"pid": 7, "port": 9});
        let none = Value::Null;
        let all = [
            carried(3, "store", 2, &one, &none),
            carried(2, "app", 1, &two, &wall),
            carried(3, "app", 1, &one, &wall),
        ];
        let made = surroundings(own(), vec![], 0, &all).unwrap();
        let told: Vec<_> = made
            .nodes
            .iter()
            .map(|n| (n.name.as_str(), n.roles.len(), n.addresses[0].as_str()))
            .collect();
        assert_eq!(told, [("n2.rack.example", 1, "10.0.0.2"), ("n3.rack.example", 2, "10.0.0.3")]);
        // A wall adds, and does not beat what a person said; a secret stays a reference.
        let data = made.nodes[0].roles[0].data.clone().unwrap();
        assert_eq!(data, json!({"port": 2, "pid": 7, "p": {"$secret": "s", "version": 1}}));
        assert_eq!(made.left_out, LeftOut::default());
        assert_eq!(
            made.nodes[1].roles.iter().map(|r| r.role.as_str()).collect::<Vec<_>>(),
            ["app", "store"]
        );
    }

    #[test]
    fn what_there_is_no_room_for_is_counted_and_addresses_go_before_data() {
        let large = json!({"blob": "x".repeat(BYTES_OF_NODES / 2)});
        let none = Value::Null;
        let all: Vec<Carried<'_>> = (2..6).map(|n| carried(n, "app", 1, &large, &none)).collect();
        let made = surroundings(own(), vec![], 3, &all).unwrap();
        assert_eq!(made.nodes.len(), 4);
        assert_eq!(made.nodes.iter().filter(|n| n.roles[0].data.is_some()).count(), 1);
        assert_eq!(made.left_out, LeftOut { data: 3, results: 3, ..LeftOut::default() });

        let many: Vec<Carried<'_>> =
            (0..NODES as u128 + 5).map(|n| carried(n + 2, "app", 1, &none, &none)).collect();
        let made = surroundings(own(), vec![], 0, &many).unwrap();
        assert_eq!((made.nodes.len(), made.left_out.nodes), (NODES, 5));

        let facts = json!("x".repeat(BYTES_OF_FACTS));
        let made = surroundings(OwnNode { facts, ..own() }, vec![], 0, &[]).unwrap();
        assert_eq!(
            (made.node.facts, made.left_out.facts, made.left_out.hints),
            (Value::Null, true, false)
        );
    }

    #[test]
    fn no_step_takes_anothers_place_among_the_results() {
        let noisy = (10..10 + 2 * RESULTS as i64).map(|run| returned(run, 1, json!({"n": run})));
        let quiet = returned(2, 2, json!({"volume": "v"}));
        let made = surroundings(own(), noisy.chain([quiet.clone()]).collect(), 0, &[]).unwrap();
        assert_eq!(made.results.len(), RESULTS);
        assert_eq!(made.left_out.results, RESULTS + 1);
        assert_eq!(
            made.results.last(),
            Some(&quiet),
            "newest first, and the quiet one is the oldest"
        );
        assert!(made.results.is_sorted_by_key(|result| std::cmp::Reverse(result.run)));
        let large = json!("x".repeat(BYTES_OF_RESULTS));
        let made = surroundings(own(), vec![returned(1, 1, large)], 0, &[]).unwrap();
        assert_eq!((made.results.len(), made.left_out.results), (0, 1));
    }
}
