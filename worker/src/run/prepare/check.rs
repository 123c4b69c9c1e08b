//! Turns a leased check into a job: verifies its approval and collects its input.
//!
//! A check runs a script on a machine, so it follows the same chain as a run: the target that made
//! the generation of the step and the target in force must be approved. The role, its script and
//! the node's connection come from the documents of the target in force, by hash.
//!
//! The script sees the data that the last successful run saw, because that run made the state that
//! it checks. If the step never ran, it sees none.

use std::collections::BTreeSet;

use engine::cluster::NoderoleKey;
use engine::data::Layered;
use engine::ids::{Fqdn, RoleName, StepId};
use serde_json::{Value, json};
use store::runs::DueCheck;

use super::Preparer;
use super::resolve::Resolved;
use super::visible::stored_input;
use crate::job::CheckJob;
use crate::node::connection::record;
use crate::run::approvals::check_approval;
use crate::run::refusal::{Refusal, broken, named};
use crate::secrets::Secrets;

/// A check and its secrets.
pub struct PreparedCheck {
    pub job: CheckJob,
    /// Texts to mask in its output.
    pub secrets: Secrets,
}

impl Preparer {
    /// Prepares a leased check. `None` if the target in force has no such check.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn prepare_check(&self, due: &DueCheck) -> Result<Option<PreparedCheck>, Refusal> {
        self.signatures.check(due.epoch, due.head).await?;
        let targets = BTreeSet::from([due.generation, due.reviewed]);
        let mut approvals = store::runs::approvals(&self.pool, &targets).await?;
        for target in targets {
            check_approval(&self.objects, target, approvals.remove(&target)).await?;
        }
        let key = NoderoleKey { role: named(RoleName::parse(&due.role))?, instance: due.instance };
        let root = self.objects.root(due.head_root).await?;
        let Some(documents) = self.documents(&root, due.node, &key).await? else {
            return Ok(None);
        };
        let (node, noderole) = (documents.node, documents.noderole);
        if noderole.role != due.role_hash || noderole.deployment != due.deployment {
            return Err(broken(format!(
                "the row of {key} on {} differs from blueprint {}",
                due.fqdn, due.head
            )));
        }
        let role = self.objects.role(noderole.role).await?;
        let Some((policy, script)) = role.check() else { return Ok(None) };
        let deployment = root.deployments.get(&noderole.deployment).ok_or_else(|| {
            broken(format!("the root of blueprint {} lacks a deployment", due.head))
        })?;
        let deployment = self.objects.deployment(*deployment).await?;
        let layered = match &due.input {
            Some(input) => stored_input(input)?,
            None => Layered { value: json!({}), sources: Default::default() },
        };
        let own = StepId::run_of(due.noderole);
        let Resolved { input, secrets, .. } = self.resolve(own, &deployment.name, layered).await?;
        let job = CheckJob {
            policy: *policy,
            script: script.clone(),
            role: role.name.clone(),
            node: due.node,
            fqdn: named(Fqdn::parse(&due.fqdn))?,
            connection: record::connection(&node, due.connection.as_ref())?,
            on_node: role.run.location == engine::catalog::RunLocation::Node && !node.phantom,
            input,
            surroundings: due.surroundings.clone().unwrap_or(Value::Null),
        };
        Ok(Some(PreparedCheck { job, secrets }))
    }
}
