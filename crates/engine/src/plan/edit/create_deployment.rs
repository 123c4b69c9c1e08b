use serde::{Deserialize, Serialize};

use super::{EditKind, EditNames, MAX_LEVELS, Written};
use crate::ids::{DeploymentId, DeploymentName, NodeId, looks_like_id};
use crate::plan::conflicts::{ClashSubject, Conflicts, PRESENT};
use crate::plan::draft::Draft;
use crate::plan::effects::{EffectCause, NewDeployment};
use crate::plan::refusal::EditError;
use crate::plan::resolve::phantom_fqdn;

/// Creates a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(deny_unknown_fields)]
pub struct CreateDeployment {
    /// Id of the new deployment, a random UUID chosen by the client.
    pub id: DeploymentId,
    /// Id of the new deployment's phantom node, a random UUID chosen by the client.
    pub phantom: NodeId,
    /// The deployment's name, unique in the cluster.
    pub name: DeploymentName,
    /// The parent deployment.
    pub parent: DeploymentId,
}

impl EditKind for CreateDeployment {
    fn check(&self) -> Result<(), EditError> {
        // Several clients that forget to mint an id would otherwise all use this one.
        if self.id.0.is_nil() || self.phantom.0.is_nil() {
            return Err(EditError::NilId(self.name.to_string()));
        }
        if self.id.0 == self.phantom.0 {
            return Err(EditError::OneIdForTwo(self.name.to_string()));
        }
        if looks_like_id(self.name.as_str()) {
            return Err(EditError::NameLikeId(self.name.to_string()));
        }
        Ok(())
    }

    fn apply(&self, draft: &mut Draft<'_>, seq: u32) -> Result<(), EditError> {
        let Self { id, phantom, name, parent } = self;
        let (id, phantom, parent) = (*id, *phantom, *parent);
        draft.deployment(parent)?;
        if draft.chain(parent).len() >= MAX_LEVELS {
            return Err(EditError::TreeTooDeep {
                name: name.to_string(),
                parent: draft.deployment_name(parent),
            });
        }
        // Names that differ only in case are too easy to confuse.
        if let Some((_, result)) = draft
            .deployments()
            .find(|(_, result)| result.name.as_str().eq_ignore_ascii_case(name.as_str()))
        {
            return Err(EditError::DeploymentExists(result.name.to_string()));
        }
        // Histories, links and records name things by id only. A reused id would mix up approvals
        // and runs, even if the two things never exist at once.
        if draft.had_deployment(id) || draft.had_node(NodeId(id.0)) {
            return Err(EditError::DeploymentIdUsed(id));
        }
        // A machine's id would silently turn that machine into a phantom node.
        if draft.had_node(phantom) || draft.had_deployment(DeploymentId(phantom.0)) {
            return Err(EditError::PhantomTaken(phantom));
        }
        draft.insert_deployment(NewDeployment {
            id,
            phantom,
            phantom_fqdn: phantom_fqdn(id),
            name: name.clone(),
            parent,
            cause: EffectCause::Requested { edit: seq },
        });
        Ok(())
    }

    fn record(&self, conflicts: &mut Conflicts<'_>) {
        conflicts.record(ClashSubject::Deployment { deployment: self.id }, PRESENT);
    }

    fn written(&self) -> Written<'_> {
        Written::Deployment(self.parent)
    }

    fn text(&self, names: &dyn EditNames) -> String {
        format!("create {} below {}", self.name, names.deployment(self.parent))
    }
}
