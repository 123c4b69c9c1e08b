//! The data that a run sees: its own, that of visible noderoles, and its surroundings.

use std::sync::Arc;

use engine::Hash;
use engine::catalog::{Attrib, Role};
use engine::cluster::{NodeDoc, NoderoleDoc, NoderoleKey, RootDoc};
use engine::data::surroundings::{self, AttemptResult, OwnNode, VisibleAncestor};
use engine::data::{
    Contribution, DataError, Layered, OwnData, ReadNoderole, RunSources, StepOutput, visible,
};
use engine::ids::{BlueprintNumber, DeploymentName, Fqdn, NodeId, RoleName, RunId, StepId};
use serde_json::Value;
use store::StoreError;
use store::runs::{RunFacts, StoredResult, VisibleStep, VisibleStepData};
use time::format_description::well_known::Rfc3339;

use super::Preparer;
use super::chain::Desired;
use super::rows::{Differs, canonical};
use crate::node::connection::record;
use crate::run::refusal::{Refusal, named};

/// A visible step with its documents.
pub(super) struct VisibleNoderole {
    distance: Option<u32>,
    /// Whether the run's step reads from it.
    is_read: bool,
    step: Arc<VisibleStepData>,
    role: Arc<Role>,
    documents: Documents,
}

/// The documents of a noderole under one target.
pub(super) struct Documents {
    pub(super) node: Arc<NodeDoc>,
    pub(super) noderole: NoderoleDoc,
    /// The deployment's data for the role.
    pub(super) deployment: Value,
}

impl VisibleNoderole {
    fn contribution(&self) -> Contribution<'_> {
        Contribution {
            step: self.step.step,
            rank: self.documents.noderole.rank,
            own: OwnData {
                template: &self.role.template,
                profiles: &[],
                deployment_role: &self.documents.deployment,
                system: &self.step.system_data,
                user: &self.documents.noderole.data,
            },
            output: StepOutput { value: &self.step.output, run: self.step.output_run },
        }
    }

    /// The attributes of its role.
    pub(super) fn attribs(&self) -> &[Attrib] {
        &self.role.attribs
    }

    /// Returns `None` if the run's step does not read from it.
    pub(super) fn read(&self) -> Option<Result<ReadNoderole<'_>, Refusal>> {
        let node = &self.documents.node;
        self.is_read.then(|| {
            Ok(ReadNoderole {
                noderole: self.step.noderole,
                fqdn: &node.fqdn,
                addresses: record::addresses(node)?,
                seen: self.contribution(),
            })
        })
    }

    /// Returns `None` if the step's deployment is not an ancestor.
    fn carried(&self) -> Option<Result<VisibleAncestor<'_>, Refusal>> {
        let distance = self.distance?;
        let node = &self.documents.node;
        Some(record::addresses(node).map_err(Refusal::from).map(|addresses| VisibleAncestor {
            node: node.id,
            name: node.fqdn.clone(),
            phantom: node.phantom,
            addresses: addresses.to_vec(),
            role: self.role.name.clone(),
            instance: self.step.instance,
            distance,
            active: self.step.active,
            seen: self.contribution(),
        }))
    }
}

impl Preparer {
    /// Returns the visible steps and their nodes with the documents of the target with the root
    /// `own`. A step that is newer than that target gets the documents in force. A row that differs
    /// from its document is refused.
    pub(super) async fn below(
        &self,
        own: Hash,
        (number, head): (BlueprintNumber, Hash),
        seen: Vec<VisibleStep>,
    ) -> Result<Vec<VisibleNoderole>, Refusal> {
        let mut below = Vec::with_capacity(seen.len());
        let (own, head) = (self.objects.root(own).await?, self.objects.root(head).await?);
        for VisibleStep { distance, is_read, step } in seen {
            let key =
                NoderoleKey { role: named(RoleName::parse(&step.role))?, instance: step.instance };
            let row_check = Differs { key: format!("{key} on {}", step.fqdn), target: number };
            // The id is a function of the node and the key, in every target.
            row_check.expect_equal("step", "noderole_id", step.noderole, key.id(step.node))?;
            if step.head == number
                && let Some(Documents { node, noderole, .. }) =
                    self.documents(&head, step.node, &key).await?
            {
                row_check.expect_equal(
                    "noderole",
                    "data",
                    canonical(&step.data)?,
                    canonical(&noderole.data)?,
                )?;
                row_check.expect_equal("noderole", "role_hash", step.role_hash, noderole.role)?;
                row_check.expect_equal(
                    "noderole",
                    "deployment_id",
                    step.deployment.0,
                    noderole.deployment.0,
                )?;
                row_check.expect_equal("step", "rank", step.rank, noderole.rank)?;
                row_check.expect_equal("step", "skipped", step.skipped, false)?;
                record::check_visible(&node, &step.fqdn, step.phantom, &step.addresses())?;
            }
            let documents = match self.documents(&own, step.node, &key).await? {
                Some(found) => Some(found),
                None => self.documents(&head, step.node, &key).await?,
            };
            let Some(documents) = documents else { continue };
            let role = self.objects.role(documents.noderole.role).await?;
            below.push(VisibleNoderole { distance, is_read, step, role, documents });
        }
        Ok(below)
    }

    /// Reads the documents of a noderole under a root.
    pub(super) async fn documents(
        &self,
        root: &RootDoc,
        node: NodeId,
        key: &NoderoleKey,
    ) -> Result<Option<Documents>, Refusal> {
        let Some(node) = root.nodes.get(&node) else { return Ok(None) };
        let node = self.objects.node(*node).await?;
        let Some(noderole) = node.noderoles.get(key).cloned() else { return Ok(None) };
        let Some(deployment) = root.deployments.get(&noderole.deployment) else { return Ok(None) };
        let deployment = self.objects.deployment(*deployment).await?;
        let deployment =
            deployment.roles.get(&key.role).map_or(Value::Null, |role| role.data.clone());
        Ok(Some(Documents { node, noderole, deployment }))
    }
}

/// Builds the data that a run gets next to its attributes.
pub(super) fn run_context(
    facts: &RunFacts,
    doc: &NodeDoc,
    (results, total): (Vec<StoredResult>, usize),
    below: &[VisibleNoderole],
) -> Result<Value, Refusal> {
    let omitted = total.saturating_sub(results.len());
    let node = OwnNode {
        id: facts.node,
        name: named(Fqdn::parse(&facts.fqdn))?,
        deployment: named(DeploymentName::parse(&facts.home))?,
        phantom: facts.phantom,
        addresses: doc
            .connection
            .as_ref()
            .map(|connection| connection.addresses().to_vec())
            .unwrap_or_default(),
        facts: facts.facts.clone(),
        hints: Value::Object(doc.hints.clone()),
    };
    let results = results.into_iter().map(returned).collect::<Result<Vec<_>, _>>()?;
    let carried =
        below.iter().filter_map(VisibleNoderole::carried).collect::<Result<Vec<_>, _>>()?;
    let context = surroundings::surroundings(node, results, omitted, &carried)?;
    serde_json::to_value(context)
        .map_err(|error| Refusal::Data(DataError::NotCanonical { reason: error.to_string() }))
}

/// The own data of a run's noderole.
pub(super) fn own_data<'a>(
    facts: &'a RunFacts,
    desired: &'a Desired,
    role: &'a Role,
) -> OwnData<'a> {
    OwnData {
        template: &role.template,
        profiles: &[],
        deployment_role: desired.role.as_ref().map_or(&Value::Null, |role| &role.data),
        system: &facts.system_data,
        user: &desired.noderole.data,
    }
}

/// The data that a run of this step sees.
pub(super) fn see(
    step: StepId,
    own: OwnData<'_>,
    below: &[VisibleNoderole],
) -> Result<Layered, DataError> {
    visible(&RunSources {
        on_node: below
            .iter()
            .filter(|seen| seen.distance.is_none())
            .map(VisibleNoderole::contribution)
            .collect(),
        ancestors: below
            .iter()
            .filter_map(|seen| Some((seen.distance?, seen.contribution())))
            .collect(),
        step,
        own,
    })
}

/// The step that values of the run's own noderole name as their source.
pub(super) fn own_step(facts: &RunFacts) -> StepId {
    StepId::run_of(facts.noderole)
}

/// The input that an earlier run got, with references to secrets.
pub(super) fn stored_input(input: &Value) -> Result<Layered, Refusal> {
    let sources = serde_json::from_value(input["sources"].clone())
        .map_err(|e| Refusal::Store(StoreError::corrupt("run.input", e)))?;
    Ok(Layered { value: input["data"].clone(), sources })
}

fn returned(stored: StoredResult) -> Result<AttemptResult, Refusal> {
    Ok(AttemptResult {
        run: RunId(stored.run),
        role: named(RoleName::parse(&stored.role))?,
        instance: stored.instance.unsigned_abs(),
        step: StepId(stored.step),
        action: stored.action,
        outcome: stored.outcome,
        generation: BlueprintNumber(stored.generation),
        at: stored.at.format(&Rfc3339).unwrap_or_default(),
        result: stored.result,
    })
}
