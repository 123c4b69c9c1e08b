use serde::{Deserialize, Serialize};

use super::{EditKind, EditNames, Written};
use crate::counting::{count, many};
use crate::gate::{COOLING_HOURS, Policy};
use crate::ids::DeploymentId;
use crate::plan::conflicts::{ClashSubject, Conflicts};
use crate::plan::draft::Draft;
use crate::plan::effects::{EffectCause, NewPolicy};
use crate::plan::refusal::EditError;
use crate::plan::set_values::{SetValue, ValueOwner};
use crate::plan::writing::{MaterializeError, Writing};

/// Replaces the approval policy. The change must pass under both policies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(deny_unknown_fields)]
pub struct SetPolicy {
    /// The complete new policy.
    pub policy: Policy,
}

impl EditKind for SetPolicy {
    fn apply(&self, draft: &mut Draft<'_>, seq: u32) -> Result<(), EditError> {
        let cause = EffectCause::Requested { edit: seq };
        self.policy.check()?;
        draft.set.policy = Some(NewPolicy { policy: self.policy.clone(), cause });
        Ok(())
    }

    fn record(&self, conflicts: &mut Conflicts<'_>) {
        let policy = serde_json::to_string(&self.policy).unwrap_or_default();
        conflicts.record(ClashSubject::Policy, &policy);
    }

    fn written(&self) -> Written<'_> {
        // It concerns all deployments, and voids every review.
        Written::Any
    }

    fn text(&self, names: &dyn EditNames) -> String {
        let policy = &self.policy;
        let by_risk = policy.by_risk.iter().map(|(risk, n)| format!(", {n} for {}", risk.change()));
        let by_risk: String = by_risk.collect();
        let cooling = match policy.cooling_hours {
            COOLING_HOURS => String::new(),
            hours => format!(", with a cooling period of {}", count(hours as usize, "hour")),
        };
        let demands = sign_in_demands(policy, |id| names.deployment(id));
        let demands: String = demands.iter().map(|demand| format!(", {demand}")).collect();
        format!(
            "require {} for changes in every deployment{by_risk}{cooling}{demands}",
            count(policy.approvals as usize, "approval")
        )
    }
}

/// A policy's requirements for signatures and sign-in, as text.
pub fn sign_in_demands(policy: &Policy, name: impl Fn(DeploymentId) -> String) -> Vec<String> {
    let signed: Vec<String> = policy.signed.iter().map(|rule| rule.text(&name)).collect();
    let signed = (!signed.is_empty())
        .then(|| format!("approvals signed with a passkey for {}", signed.join(", ")));
    let factor = policy.second_factor.then(|| "a second factor at sign-in for everyone".to_owned());
    signed.into_iter().chain(factor).collect()
}

impl SetValue for NewPolicy {
    fn cause(&self) -> &EffectCause {
        &self.cause
    }

    fn has_effect(&self, _: &Draft<'_>) -> bool {
        true
    }

    fn write(&self, _: &mut Writing<'_>) -> Result<(), MaterializeError> {
        // The review stores it, not the blueprint.
        Ok(())
    }

    fn report(&self, _: &dyn EditNames) -> Option<(String, ValueOwner)> {
        let approvals = many(self.policy.approvals as usize, "approval");
        Some((format!("Later changes need {approvals}"), ValueOwner::Policy))
    }
}
