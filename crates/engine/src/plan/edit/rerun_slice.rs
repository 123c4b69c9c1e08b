use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{EditKind, EditNames, Written};
use crate::cluster::EdgeKind;
use crate::counting::some_of;
use crate::ids::{DeploymentId, NoderoleId, RoleName};
use crate::plan::conflicts::Conflicts;
use crate::plan::draft::Draft;
use crate::plan::effects;
use crate::plan::effects::EffectCause;
use crate::plan::refusal::EditError;

/// Runs all noderoles of some roles in a deployment again, and all noderoles there that wait
/// for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(deny_unknown_fields)]
pub struct RerunSlice {
    /// The deployment.
    pub deployment: DeploymentId,
    /// The roles to start from.
    pub roles: BTreeSet<RoleName>,
    /// The reason, at most 1,000 characters. Shown in the review and with each run.
    pub reason: String,
}

impl EditKind for RerunSlice {
    fn reason(&self) -> Option<&str> {
        Some(&self.reason)
    }

    // Includes all descendants over hard edges in the deployment, and barriers. A barrier that
    // stayed ACTIVE would let its children start before its members are done.
    fn apply(&self, draft: &mut Draft<'_>, seq: u32) -> Result<(), EditError> {
        let Self { deployment, roles, reason } = self;
        let deployment = *deployment;
        let name = draft.deployment(deployment)?.name.to_string();
        if reason.trim().is_empty() {
            return Err(EditError::NoReasonForSlice(name));
        }
        if roles.is_empty() {
            return Err(EditError::NoRoles);
        }
        let of_role = |role: &RoleName| {
            let candidates: Vec<NoderoleId> = draft.candidates(deployment, role).collect();
            let named =
                |id: &NoderoleId| draft.noderole(*id).is_some_and(|(_, key, _)| key.role == *role);
            candidates.into_iter().filter(named).collect::<Vec<_>>()
        };
        let mut open: Vec<(NoderoleId, EffectCause)> = roles
            .iter()
            .flat_map(of_role)
            .map(|id| (id, EffectCause::Requested { edit: seq }))
            .collect();
        if open.is_empty() {
            let roles = roles.iter().map(ToString::to_string).collect();
            return Err(EditError::NothingToRerun { deployment: name, roles });
        }
        let mut seen: BTreeSet<NoderoleId> = open.iter().map(|(id, _)| *id).collect();
        let mut slice = Vec::new();
        while let Some((id, cause)) = open.pop() {
            let Some((node, key, noderole)) = draft.noderole(id) else { continue };
            let by = key.role.clone();
            slice.push((
                noderole.rank,
                effects::Rerun {
                    node,
                    noderole: key.clone(),
                    reason: reason.trim().to_owned(),
                    cause,
                },
            ));
            for (child, kind) in draft.children(id) {
                let is_local =
                    draft.noderole(child).is_some_and(|(_, _, n)| n.deployment == deployment);
                if kind == EdgeKind::Hard && is_local && seen.insert(child) {
                    open.push((
                        child,
                        EffectCause::Required { edit: seq, by: by.clone(), implicit: false },
                    ));
                }
            }
        }
        slice.sort_by(|(rank, a), (other, b)| {
            (rank, a.node, &a.noderole).cmp(&(other, b.node, &b.noderole))
        });
        for (_, rerun) in slice {
            draft.set.reruns.set((rerun.node, rerun.noderole.clone()), rerun);
        }
        Ok(())
    }

    fn record(&self, _: &mut Conflicts<'_>) {
        // It only adds re-runs, and another edit may name the same noderoles.
    }

    fn written(&self) -> Written<'_> {
        Written::Deployment(self.deployment)
    }

    fn text(&self, names: &dyn EditNames) -> String {
        let roles: Vec<String> = self.roles.iter().map(ToString::to_string).collect();
        format!(
            "run {} in {} again, with its dependents there",
            some_of(&roles),
            names.deployment(self.deployment)
        )
    }
}
