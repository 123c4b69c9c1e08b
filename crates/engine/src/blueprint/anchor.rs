//! Anchors of comments: a stable name for one change within a difference.
//!
//! An anchor names its subject: a document, then a role or noderole, then the path of a value. It
//! never contains a position on a page or a hash. So a comment stays with its change when the plan
//! is made again. A reader sees whether that change still exists.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::difference::{Difference, Sides};
use crate::cluster::NoderoleKey;
use crate::data::Change;
use crate::ids::{BarclampName, DeploymentId, NodeId, RoleName};

/// The maximum length of an anchor, in bytes.
pub const MAX_ANCHOR_BYTES: usize = 2_000;

/// Subject of a comment. An empty text is the whole change. Others are `policy`, `deployment/ID`,
/// `deployment/ID/barclamp/NAME`, `deployment/ID/role/NAME`, `node/ID` and `node/ID/noderole/ROLE`.
/// A policy, role or noderole may be followed by `#` and the JSON pointer of a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("maxLength" = MAX_ANCHOR_BYTES)))]
#[serde(try_from = "String", into = "String")]
pub enum Anchor {
    /// The whole change.
    Whole,
    /// The approval policy, or one of its values.
    Policy(Option<String>),
    /// A deployment document.
    Deployment(DeploymentId),
    /// A barclamp of a deployment.
    Barclamp(DeploymentId, BarclampName),
    /// A role of a deployment, or one value of its data.
    Role(DeploymentId, RoleName, Option<String>),
    /// A node document.
    Node(NodeId),
    /// A noderole, or one value of its data.
    Noderole(NodeId, NoderoleKey, Option<String>),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "Invalid anchor {0:?}. Leave it out for the whole review, or use policy, deployment/ID, \
     deployment/ID/role/NAME, node/ID or node/ID/noderole/ROLE. For a value, append \
     #/path/of/a/value to the policy, a role or a noderole."
)]
pub struct NotAnAnchor(String);

impl Difference {
    /// Anchors of the documents that differ, in order.
    pub fn documents(&self) -> impl Iterator<Item = Anchor> {
        let deployments =
            self.deployments.iter().map(|deployment| Anchor::Deployment(deployment.id));
        deployments.chain(self.nodes.iter().map(|node| Anchor::Node(node.id)))
    }
}

impl fmt::Display for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = match self {
            Self::Whole => return Ok(()),
            Self::Policy(value) => {
                write!(f, "policy")?;
                value
            }
            Self::Deployment(id) => return write!(f, "deployment/{id}"),
            Self::Barclamp(id, name) => return write!(f, "deployment/{id}/barclamp/{name}"),
            Self::Node(id) => return write!(f, "node/{id}"),
            Self::Role(id, role, value) => {
                write!(f, "deployment/{id}/role/{role}")?;
                value
            }
            Self::Noderole(id, key, value) => {
                write!(f, "node/{id}/noderole/{key}")?;
                value
            }
        };
        value.as_ref().map_or(Ok(()), |pointer| write!(f, "#{pointer}"))
    }
}

impl FromStr for Anchor {
    type Err = NotAnAnchor;
    fn from_str(text: &str) -> Result<Self, NotAnAnchor> {
        if text.is_empty() {
            return Ok(Self::Whole);
        }
        let read = || {
            let (path, value) =
                text.split_once('#').map_or((text, None), |(path, value)| (path, Some(value)));
            let value = match value {
                Some(pointer) if pointer.is_empty() || pointer.starts_with('/') => {
                    Some(pointer.to_owned())
                }
                Some(_) => return None,
                None => None,
            };
            let parts: Vec<&str> = path.splitn(4, '/').collect();
            match (parts.as_slice(), value) {
                (["policy"], value) => Some(Self::Policy(value)),
                (["deployment", id], None) => Some(Self::Deployment(id.parse().ok()?)),
                (["deployment", id, "barclamp", name], None) => {
                    Some(Self::Barclamp(id.parse().ok()?, name.parse().ok()?))
                }
                (["deployment", id, "role", name], value) => {
                    Some(Self::Role(id.parse().ok()?, name.parse().ok()?, value))
                }
                (["node", id], None) => Some(Self::Node(id.parse().ok()?)),
                (["node", id, "noderole", key], value) => {
                    Some(Self::Noderole(id.parse().ok()?, key.parse().ok()?, value))
                }
                _ => None,
            }
        };
        let found = if text.len() <= MAX_ANCHOR_BYTES { read() } else { None };
        found.ok_or_else(|| NotAnAnchor(text.chars().take(80).collect()))
    }
}

impl TryFrom<String> for Anchor {
    type Error = NotAnAnchor;
    fn try_from(text: String) -> Result<Self, NotAnAnchor> {
        text.parse()
    }
}

impl From<Anchor> for String {
    fn from(anchor: Anchor) -> String {
        anchor.to_string()
    }
}

impl Anchor {
    /// Whether a difference contains the subject of the comment.
    pub fn exists_in(&self, difference: &Difference) -> bool {
        let deployment = |id: &DeploymentId| difference.deployments.iter().find(|d| d.id == *id);
        let node = |id: &NodeId| difference.nodes.iter().find(|n| n.id == *id);
        match self {
            Self::Whole => true,
            Self::Policy(value) => difference.policy.as_ref().is_some_and(|Sides { old, new }| {
                value.as_ref().is_none_or(|value| {
                    old.changes(new).iter().any(|change| change.pointer() == *value)
                })
            }),
            Self::Deployment(id) => deployment(id).is_some(),
            Self::Barclamp(id, name) => {
                deployment(id).is_some_and(|d| d.barclamps.iter().any(|b| b.barclamp == *name))
            }
            Self::Role(id, name, value) => {
                let role = deployment(id).and_then(|d| d.roles.iter().find(|r| r.role == *name));
                role.is_some_and(|role| has(&role.data, value.as_deref()))
            }
            Self::Node(id) => node(id).is_some(),
            Self::Noderole(id, key, value) => {
                let noderole =
                    node(id).and_then(|n| n.noderoles.iter().find(|r| r.noderole == *key));
                noderole.is_some_and(|noderole| has(&noderole.data, value.as_deref()))
            }
        }
    }

    /// The JSON pointer of the value, if the subject is a value.
    pub fn value(&self) -> Option<&str> {
        match self {
            Self::Policy(value) | Self::Role(_, _, value) | Self::Noderole(_, _, value) => {
                value.as_deref()
            }
            _ => None,
        }
    }
}

fn has(data: &[Change], value: Option<&str>) -> bool {
    value.is_none_or(|pointer| data.iter().any(|change| change.path == pointer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn anchor_round_trips_as_text_and_json() {
        let (deployment, node) = (DeploymentId(Uuid::from_u128(1)), NodeId(Uuid::from_u128(2)));
        let (role, second) =
            (RoleName::parse("app").unwrap(), "app/1".parse::<NoderoleKey>().unwrap());
        for anchor in [
            Anchor::Whole,
            Anchor::Policy(None),
            Anchor::Policy(Some("/by_risk/removal".into())),
            Anchor::Deployment(deployment),
            Anchor::Barclamp(deployment, BarclampName::parse("demo").unwrap()),
            Anchor::Role(deployment, role.clone(), None),
            Anchor::Role(deployment, role, Some("/a~1b/c#d".into())),
            Anchor::Node(node),
            Anchor::Noderole(node, second.clone(), None),
            Anchor::Noderole(node, second, Some(String::new())),
        ] {
            assert_eq!(anchor.to_string().parse(), Ok(anchor.clone()));
            assert_eq!(
                serde_json::from_value::<Anchor>(serde_json::to_value(&anchor).unwrap()).unwrap(),
                anchor
            );
        }
    }

    #[test]
    fn invalid_anchor_is_rejected() {
        let id = Uuid::from_u128(1);
        let long = format!("node/{id}/noderole/app#/{}", "x".repeat(MAX_ANCHOR_BYTES));
        for text in [
            "x".to_owned(),
            "policy/approvals".into(),
            "deployment/1".into(),
            format!("deployment/{id}#/a"),
            format!("deployment/{id}/role/"),
            format!("node/{id}/role/app"),
            format!("node/{id}/noderole/app#a"),
            long,
        ] {
            assert!(text.parse::<Anchor>().is_err(), "{text}");
        }
    }
}
