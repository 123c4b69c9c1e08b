//! Follows a run to the targets that it executes, and verifies their approvals.

use std::sync::Arc;

use engine::Hash;
use engine::blueprint::projection::content;
use engine::cluster::{DeploymentDoc, DeploymentRoleDoc, NodeDoc, NoderoleDoc, NoderoleKey};
use engine::ids::{ActionName, DeploymentName, RoleName};
use store::runs::RunFacts;

use super::{Approvals, Preparer};
use crate::run::approvals::check_approval;
use crate::run::refusal::{Refusal, broken};

/// The documents of one noderole under one root.
#[derive(Clone)]
pub(super) struct Desired {
    pub(super) node: Arc<NodeDoc>,
    pub(super) noderole: NoderoleDoc,
    pub(super) role: Option<DeploymentRoleDoc>,
    /// The deployment of the binding.
    pub(super) deployment: DeploymentName,
}

impl Desired {
    fn content(&self, action: &ActionName) -> Result<Hash, Refusal> {
        content(&self.noderole, self.role.as_ref(), action).map_err(|e| broken(e.to_string()))
    }
}

/// A run whose approvals are verified.
pub(super) struct Verified {
    /// The documents that the run executes.
    pub(super) now: Desired,
    /// The content hash for the node's ledger.
    pub(super) ledger: Hash,
}

impl Preparer {
    /// Follows the run to its targets, and verifies their approvals and documents.
    pub(super) async fn check_chain(
        &self,
        facts: &RunFacts,
        approvals: Approvals,
    ) -> Result<Verified, Refusal> {
        if facts.epoch != facts.epoch_now {
            return Err(broken(format!(
                "the run was claimed in epoch {}, and the database has been restored since (epoch \
                 {})",
                facts.epoch, facts.epoch_now
            )));
        }
        if facts.generation > facts.target {
            return Err(broken(format!(
                "the generation {} of the run is newer than its blueprint {}",
                facts.generation, facts.target
            )));
        }
        // The run reads documents of its own target and of the target in force.
        self.signatures.check(facts.epoch_now, facts.target.max(facts.head)).await?;
        check_approval(&self.objects, facts.generation, approvals.generation).await?;
        check_approval(&self.objects, facts.reviewed, approvals.reviewed).await?;
        if facts.target_root != facts.reviewed_root {
            return Err(broken(format!(
                "blueprint {} differs from blueprint {}, although it only switched execution",
                facts.target, facts.reviewed
            )));
        }
        let key = noderole_key(facts)?;
        if let Some(before) = &facts.before {
            check_approval(&self.objects, before.reviewed, approvals.before).await?;
            return self.check_removal(facts, before.root, &key).await;
        }
        if !facts.action.is_run() {
            return Err(broken(format!("the action {} belongs to no target", facts.action)));
        }
        let now = self.desired(facts, facts.target_root, &key).await?;
        if now.noderole.role != facts.role_hash {
            return Err(broken(format!(
                "blueprint {} has {} as the content of {key}, but the row of the noderole has {}",
                facts.target, now.noderole.role, facts.role_hash
            )));
        }
        let at_generation = self.desired(facts, facts.generation_root, &key).await?;
        let ledger = at_generation.content(&facts.action)?;
        if facts.content != ledger && facts.content != now.content(&facts.action)? {
            return Err(broken(format!(
                "its content {} belongs neither to generation {} nor to blueprint {}",
                facts.content, facts.generation, facts.target
            )));
        }
        Ok(Verified { now, ledger })
    }

    /// Checks that approved targets remove the noderole of a run, with this content.
    async fn check_removal(
        &self,
        facts: &RunFacts,
        before: Hash,
        key: &NoderoleKey,
    ) -> Result<Verified, Refusal> {
        for (target, root) in [
            (facts.generation, facts.generation_root),
            (facts.target, facts.target_root),
            (facts.head, facts.head_root),
        ] {
            let root = self.objects.root(root).await?;
            let node = root.nodes.get(&facts.node).ok_or_else(|| {
                broken(format!("the root of blueprint {target} has no document of the run's node"))
            })?;
            if self.objects.node(*node).await?.noderoles.contains_key(key) {
                return Err(broken(format!("blueprint {target} does not remove {key}")));
            }
        }
        let desired = self.desired(facts, before, key).await?;
        if desired.noderole.role != facts.role_hash {
            return Err(broken(format!(
                "the removed {key} has the content {}, but the row of the noderole has {}",
                desired.noderole.role, facts.role_hash
            )));
        }
        let ledger = desired.content(&facts.action)?;
        if facts.content != ledger {
            return Err(broken(format!(
                "its content {} does not belong to the {key} that blueprint {} removes",
                facts.content, facts.generation
            )));
        }
        // The node may have another connection by now.
        let root = self.objects.root(facts.target_root).await?;
        let node = match root.nodes.get(&facts.node) {
            Some(hash) => self.objects.node(*hash).await?,
            None => Arc::clone(&desired.node),
        };
        Ok(Verified { now: Desired { node, ..desired }, ledger })
    }

    /// Reads the documents of the run's noderole under a root.
    async fn desired(
        &self,
        facts: &RunFacts,
        root: Hash,
        key: &NoderoleKey,
    ) -> Result<Desired, Refusal> {
        let root = self.objects.root(root).await?;
        let lacks =
            |part: &str| broken(format!("the root of blueprint {} has no {part}", facts.target));
        let node =
            root.nodes.get(&facts.node).ok_or_else(|| lacks("document of the run's node"))?;
        let node = self.objects.node(*node).await?;
        if node.id != facts.node
            || node.fqdn.as_str() != facts.fqdn
            || node.phantom != facts.phantom
        {
            return Err(broken(format!(
                "the document of node {} belongs to node {}",
                facts.fqdn, node.fqdn
            )));
        }
        let noderole =
            node.noderoles.get(key).ok_or_else(|| lacks(&format!("{key} on {}", facts.fqdn)))?;
        if noderole.deployment != facts.deployment {
            return Err(broken(format!("{key} on {} is bound in another deployment", facts.fqdn)));
        }
        let deployment = root
            .deployments
            .get(&noderole.deployment)
            .ok_or_else(|| lacks("document of its deployment"))?;
        let deployment = self.objects.deployment(*deployment).await?;
        let (noderole, role) = (noderole.clone(), deployment.roles.get(&key.role).cloned());
        Ok(Desired { node, noderole, role, deployment: deployment.name.clone() })
    }

    /// Reads the document of *system* in force. Jigs serve all deployments, and only this document
    /// says which are disabled.
    pub(super) async fn system(&self, facts: &RunFacts) -> Result<Arc<DeploymentDoc>, Refusal> {
        let root = self.objects.root(facts.head_root).await?;
        // Starts with the run's own deployment, because its document is cached.
        let own = root.deployments.get(&facts.deployment);
        let mut next = own.or_else(|| root.deployments.values().next());
        for _ in 0..root.deployments.len() {
            let Some(hash) = next else { break };
            let deployment = self.objects.deployment(*hash).await?;
            let Some(parent) = deployment.parent else { return Ok(deployment) };
            next = root.deployments.get(&parent);
        }
        Err(broken(format!("the root of blueprint {} has no document of system", facts.head)))
    }
}

pub(super) fn noderole_key(facts: &RunFacts) -> Result<NoderoleKey, Refusal> {
    let role = RoleName::parse(&facts.role).map_err(|e| broken(e.to_string()))?;
    Ok(NoderoleKey { role, instance: facts.instance })
}
