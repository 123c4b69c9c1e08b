//! The documents that effects write.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::cluster::{
    Blueprint, BlueprintError, Connection, ConnectionError, DeploymentDoc, NodeDoc, NoderoleDoc,
};
use crate::ids::{DeploymentId, Fqdn, NodeId};

/// The effects do not fit the blueprint to write them into.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MaterializeError {
    /// The effects name a deployment that neither they nor the blueprint have.
    #[error("The plan names deployment {0}, which the blueprint does not have. Plan again")]
    NoDeployment(DeploymentId),
    /// The effects name a node that is neither in the blueprint nor among the records.
    #[error("The plan names node {0}, which does not exist. Plan again")]
    NoNode(NodeId),
    /// The effects name a noderole that the node does not have.
    #[error("The plan names noderole {noderole} of node {node}, which does not exist. Plan again")]
    NoNoderole { node: NodeId, noderole: String },
    /// The effects name a role that the deployment does not have.
    #[error(
        "The plan sets data of role {role}, which deployment {deployment} does not have. Plan \
         again"
    )]
    NoRole { deployment: DeploymentId, role: String },
    /// The effects change a connection field that does not exist for the transport.
    #[error("The connection of node {node} cannot be set: {error}")]
    Connection { node: Fqdn, error: ConnectionError },
    /// The blueprint has no root deployment, which stores the jig switches.
    #[error(
        "The blueprint has no root deployment, so jigs cannot be turned on or off. Restore it \
         from a backup"
    )]
    NoRoot,
    /// A document cannot be written as canonical JSON.
    #[error(transparent)]
    Blueprint(#[from] BlueprintError),
}

/// The record of a node without a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndocumentedNode {
    pub fqdn: Fqdn,
    pub deployment: DeploymentId,
    /// `None`: the record has no valid connection, so no run starts there.
    pub connection: Option<Connection>,
    pub hints: Map<String, Value>,
}

impl From<(Fqdn, DeploymentId)> for UndocumentedNode {
    fn from((fqdn, deployment): (Fqdn, DeploymentId)) -> Self {
        Self { fqdn, deployment, connection: None, hints: Map::new() }
    }
}

/// Looks up the record of a node without a document.
pub type NodeRecordLookup<'a> = &'a dyn Fn(NodeId) -> Option<UndocumentedNode>;

/// The documents of a new blueprint that differ from those of the old one.
pub(super) struct Writing<'a> {
    old: &'a Blueprint,
    records: NodeRecordLookup<'a>,
    pub deployments: BTreeMap<DeploymentId, DeploymentDoc>,
    pub nodes: BTreeMap<NodeId, NodeDoc>,
}

impl<'a> Writing<'a> {
    pub fn new(old: &'a Blueprint, records: NodeRecordLookup<'a>) -> Self {
        Self { old, records, deployments: BTreeMap::new(), nodes: BTreeMap::new() }
    }

    pub fn deployment(&mut self, id: DeploymentId) -> Result<&mut DeploymentDoc, MaterializeError> {
        if !self.deployments.contains_key(&id) {
            let stored = self.old.deployments.get(&id).ok_or(MaterializeError::NoDeployment(id))?;
            self.deployments.insert(id, (*stored.doc).clone());
        }
        self.deployments.get_mut(&id).ok_or(MaterializeError::NoDeployment(id))
    }

    pub fn node(&mut self, id: NodeId) -> Result<&mut NodeDoc, MaterializeError> {
        if !self.nodes.contains_key(&id) {
            let doc = match self.old.nodes.get(&id) {
                Some(stored) => (*stored.doc).clone(),
                None => {
                    let UndocumentedNode { fqdn, deployment, connection, hints } =
                        (self.records)(id).ok_or(MaterializeError::NoNode(id))?;
                    NodeDoc {
                        id,
                        fqdn,
                        deployment,
                        phantom: false,
                        connection,
                        hints,
                        noderoles: BTreeMap::new(),
                    }
                }
            };
            self.nodes.insert(id, doc);
        }
        self.nodes.get_mut(&id).ok_or(MaterializeError::NoNode(id))
    }

    /// The root deployment, which stores what concerns all deployments.
    pub fn root(&mut self) -> Result<&mut DeploymentDoc, MaterializeError> {
        let root = self.old.deployments.values().find(|d| d.doc.parent.is_none());
        self.deployment(root.ok_or(MaterializeError::NoRoot)?.doc.id)
    }

    pub fn noderole(
        &mut self,
        node: NodeId,
        key: &crate::cluster::NoderoleKey,
    ) -> Result<&mut NoderoleDoc, MaterializeError> {
        let missing = MaterializeError::NoNoderole { node, noderole: key.to_string() };
        self.node(node)?.noderoles.get_mut(key).ok_or(missing)
    }
}
