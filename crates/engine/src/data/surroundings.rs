//! The input of a run in addition to its attributes.
//!
//! Attributes are one merged document, so a run sees only one value of a key that many noderoles
//! set. Data about many nodes and runs is therefore in a separate document, whose keys cannot hide
//! a setting:
//!
//! * `node`: its own node, with facts and hints.
//! * `results`: the stored results of attempts on its node ([`super::kept`]), including failed
//!   ones, newest first.
//! * `nodes`: the nodes of the run's ancestors (over hard edges), nearest first. Each has its
//!   addresses and, for each such noderole, data and output.
//! * `omitted`: how much did not fit.
//!
//! The document is bounded ([`MAX_RESULTS`], [`NODES`], [`MAX_NODE_DATA_BYTES`],
//! [`MAX_RESULTS_BYTES`], [`MAX_FACTS_BYTES`]). Omissions are counted and never silent, because a
//! configuration for nine of ten peers is worse than none. Names and addresses take precedence over
//! data.
//!
//! Secrets remain references in this document. A run that needs one has it in its attributes.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Contribution, DataError, layers};
use crate::ids::{BlueprintNumber, DeploymentName, Fqdn, NodeId, RoleName, RunId, StepId};

/// Maximum number of results.
pub const MAX_RESULTS: usize = 100;
/// Maximum size of the results as JSON, in bytes.
pub const MAX_RESULTS_BYTES: usize = 128 << 10;
/// Maximum number of nodes.
pub const NODES: usize = 1_000;
/// Maximum size of the data of all nodes as JSON, in bytes.
pub const MAX_NODE_DATA_BYTES: usize = 128 << 10;
/// Maximum size of a node's facts and of its hints as JSON, in bytes each.
pub const MAX_FACTS_BYTES: usize = 64 << 10;

/// The input of a run in addition to its attributes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunContext {
    /// The run's own node.
    pub node: OwnNode,
    /// Results of attempts on that node, newest first.
    pub results: Vec<AttemptResult>,
    /// Nodes with noderoles that the run waits for, nearest first, then by name.
    pub nodes: Vec<Peer>,
    /// How much did not fit into the document.
    pub omitted: Omitted,
}

/// A run's own node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OwnNode {
    /// The node's id.
    pub id: NodeId,
    /// The node's name.
    pub name: Fqdn,
    /// The deployment that the node belongs to.
    pub deployment: DeploymentName,
    /// Whether this is a deployment's phantom node.
    pub phantom: bool,
    /// The node's addresses, in the order in which workers try them.
    pub addresses: Vec<String>,
    /// The facts that runs returned about the node.
    pub facts: Value,
    /// The hints that users entered for the node.
    pub hints: Value,
}

/// The result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttemptResult {
    /// The run.
    pub run: RunId,
    /// The role of its noderole.
    pub role: RoleName,
    /// The instance of the role on the node.
    pub instance: u32,
    /// The step.
    pub step: StepId,
    /// The action of the step.
    pub action: String,
    /// The outcome of the attempt: `succeeded`, `failed`, `canceled` or `late`.
    pub outcome: String,
    /// The generation of the step that the attempt ran.
    pub generation: BlueprintNumber,
    /// When the attempt ended, in RFC 3339 format.
    pub at: String,
    /// The returned data. Secrets are masked.
    pub result: Value,
}

/// A node with noderoles that a run waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Peer {
    /// The node's id.
    pub id: NodeId,
    /// The node's name.
    pub name: Fqdn,
    /// Whether this is a deployment's phantom node.
    pub phantom: bool,
    /// The node's addresses.
    pub addresses: Vec<String>,
    /// The noderoles on this node that the run waits for, nearest first.
    pub roles: Vec<PeerRole>,
}

/// A noderole that a run waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PeerRole {
    /// The role.
    pub role: RoleName,
    /// The instance of the role on its node.
    pub instance: u32,
    /// Minimum number of edges between this noderole and the run's.
    pub distance: u32,
    /// Whether the noderole is ACTIVE. Only then does its data include its output.
    pub active: bool,
    /// The noderole's own data and output; omitted if it did not fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

/// How much did not fit into the document.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Omitted {
    /// Number of stored results that are omitted.
    pub results: usize,
    /// Number of nodes that are omitted.
    pub nodes: usize,
    /// Number of noderoles whose data is omitted.
    pub data: usize,
    /// Whether the facts are omitted because they are too large.
    pub facts: bool,
    /// Whether the hints are omitted because they are too large.
    pub hints: bool,
}

/// An ancestor of a run's step, with its node.
#[derive(Debug, Clone)]
pub struct VisibleAncestor<'a> {
    pub node: NodeId,
    pub name: Fqdn,
    /// Whether the node is a phantom.
    pub phantom: bool,
    /// The node's addresses.
    pub addresses: Vec<String>,
    pub role: RoleName,
    pub instance: u32,
    /// Minimum number of hard edges between it and the run's step.
    pub distance: u32,
    pub active: bool,
    pub seen: Contribution<'a>,
}

/// Builds the document. `results` can be in any order. `more` is the number of results that were
/// not even read.
///
/// # Errors
/// Those of [`layers`] if an ancestor's data is not an object.
pub fn surroundings(
    node: OwnNode,
    results: Vec<AttemptResult>,
    more: usize,
    carried: &[VisibleAncestor<'_>],
) -> Result<RunContext, DataError> {
    let mut left_out = Omitted::default();
    let mut node = node;
    left_out.facts = truncate_document(&mut node.facts);
    left_out.hints = truncate_document(&mut node.hints);
    let results = bounded(results, &mut left_out.results);
    left_out.results += more;
    let nodes = peers(carried, &mut left_out)?;
    Ok(RunContext { node, results, nodes, omitted: left_out })
}

fn size(value: &Value) -> usize {
    value.to_string().len()
}

/// Removes a document that is too large. Returns whether it was.
fn truncate_document(value: &mut Value) -> bool {
    let is_large = size(value) > MAX_FACTS_BYTES;
    if is_large {
        *value = Value::Null;
    }
    is_large
}

/// Puts the newest result of each step first, so that many attempts of one step do not displace
/// others.
fn bounded(mut results: Vec<AttemptResult>, left_out: &mut usize) -> Vec<AttemptResult> {
    results.sort_by_key(|result| std::cmp::Reverse(result.run));
    let mut seen: BTreeMap<StepId, usize> = BTreeMap::new();
    let mut newest_per_step_first: Vec<(usize, AttemptResult)> = results
        .into_iter()
        .map(|result| {
            let nth = seen.entry(result.step).or_default();
            *nth += 1;
            (*nth, result)
        })
        .collect();
    newest_per_step_first.sort_by_key(|(nth, result)| (*nth, std::cmp::Reverse(result.run)));
    let (all, mut bytes) = (newest_per_step_first.len(), 0);
    let mut newest: Vec<AttemptResult> = newest_per_step_first
        .into_iter()
        .map(|(_, result)| result)
        .take(MAX_RESULTS)
        .take_while(|result| {
            bytes += size(&result.result);
            bytes <= MAX_RESULTS_BYTES
        })
        .collect();
    *left_out = all - newest.len();
    newest.sort_by_key(|result| std::cmp::Reverse(result.run));
    newest
}

fn peers(carried: &[VisibleAncestor<'_>], left_out: &mut Omitted) -> Result<Vec<Peer>, DataError> {
    let mut nearest_first: Vec<&VisibleAncestor<'_>> = carried.iter().collect();
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
        let data = layers(one.seen.step, one.seen.own, Some(one.seen.output))?.value;
        bytes += size(&data);
        let data = Some(data).filter(|_| bytes <= MAX_NODE_DATA_BYTES);
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
    use super::super::{OwnData, StepOutput};
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

    fn returned(run: i64, step: u128, result: Value) -> AttemptResult {
        AttemptResult {
            run: RunId(run),
            role: RoleName::parse("disk").unwrap(),
            instance: 0,
            step: StepId(Uuid::from_u128(step)),
            action: "run".into(),
            outcome: "failed".into(),
            generation: BlueprintNumber(1),
            at: "2024-01-01T00:00:00Z".into(),
            result,
        }
    }

    fn carried<'a>(
        node: u128,
        role: &str,
        distance: u32,
        data: &'a Value,
        output: &'a Value,
    ) -> VisibleAncestor<'a> {
        let own = OwnData { user: data, ..OwnData::NONE };
        let step = StepId(Uuid::from_u128(node * 100 + u128::from(distance)));
        VisibleAncestor {
            node: NodeId(Uuid::from_u128(node)),
            name: Fqdn::parse(&format!("n{node}.rack.example")).unwrap(),
            phantom: false,
            addresses: vec![format!("10.0.0.{node}")],
            role: RoleName::parse(role).unwrap(),
            instance: 0,
            distance,
            active: true,
            seen: Contribution {
                step,
                rank: 0,
                own,
                output: StepOutput { value: output, run: None },
            },
        }
    }

    #[test]
    fn peer_nodes_are_ordered_nearest_first() {
        let (one, two) =
            (json!({"port": 1}), json!({"port": 2, "p": {"$secret": "s", "version": 1}}));
        let output = json!({"pid": 7, "port": 9});
        let none = Value::Null;
        let all = [
            carried(3, "store", 2, &one, &none),
            carried(2, "app", 1, &two, &output),
            carried(3, "app", 1, &one, &output),
        ];
        let made = surroundings(own(), vec![], 0, &all).unwrap();
        let listed: Vec<_> = made
            .nodes
            .iter()
            .map(|n| (n.name.as_str(), n.roles.len(), n.addresses[0].as_str()))
            .collect();
        assert_eq!(
            listed,
            [("n2.rack.example", 1, "10.0.0.2"), ("n3.rack.example", 2, "10.0.0.3")]
        );
        // An output adds values but does not override a user's; a secret remains a reference.
        let data = made.nodes[0].roles[0].data.clone().unwrap();
        assert_eq!(data, json!({"port": 2, "pid": 7, "p": {"$secret": "s", "version": 1}}));
        assert_eq!(made.omitted, Omitted::default());
        assert_eq!(
            made.nodes[1].roles.iter().map(|r| r.role.as_str()).collect::<Vec<_>>(),
            ["app", "store"]
        );
    }

    #[test]
    fn omissions_are_counted_and_addresses_precede_data() {
        let large = json!({"blob": "x".repeat(MAX_NODE_DATA_BYTES / 2)});
        let none = Value::Null;
        let all: Vec<VisibleAncestor<'_>> =
            (2..6).map(|n| carried(n, "app", 1, &large, &none)).collect();
        let made = surroundings(own(), vec![], 3, &all).unwrap();
        assert_eq!(made.nodes.len(), 4);
        assert_eq!(made.nodes.iter().filter(|n| n.roles[0].data.is_some()).count(), 1);
        assert_eq!(made.omitted, Omitted { data: 3, results: 3, ..Omitted::default() });

        let many: Vec<VisibleAncestor<'_>> =
            (0..NODES as u128 + 5).map(|n| carried(n + 2, "app", 1, &none, &none)).collect();
        let made = surroundings(own(), vec![], 0, &many).unwrap();
        assert_eq!((made.nodes.len(), made.omitted.nodes), (NODES, 5));

        let facts = json!("x".repeat(MAX_FACTS_BYTES));
        let made = surroundings(OwnNode { facts, ..own() }, vec![], 0, &[]).unwrap();
        assert_eq!(
            (made.node.facts, made.omitted.facts, made.omitted.hints),
            (Value::Null, true, false)
        );
    }

    #[test]
    fn retried_step_does_not_displace_other_results() {
        let noisy =
            (10..10 + 2 * MAX_RESULTS as i64).map(|run| returned(run, 1, json!({"n": run})));
        let quiet = returned(2, 2, json!({"volume": "v"}));
        let made = surroundings(own(), noisy.chain([quiet.clone()]).collect(), 0, &[]).unwrap();
        assert_eq!(made.results.len(), MAX_RESULTS);
        assert_eq!(made.omitted.results, MAX_RESULTS + 1);
        assert_eq!(
            made.results.last(),
            Some(&quiet),
            "results are sorted newest first, so the unchanged result is last"
        );
        assert!(made.results.is_sorted_by_key(|result| std::cmp::Reverse(result.run)));
        let large = json!("x".repeat(MAX_RESULTS_BYTES));
        let made = surroundings(own(), vec![returned(1, 1, large)], 0, &[]).unwrap();
        assert_eq!((made.results.len(), made.omitted.results), (0, 1));
    }
}
