//! The approvals that a target needs.

use std::collections::BTreeSet;

use engine::Hash;
use engine::counting::many;
use engine::gate::Risk;
use engine::ids::BlueprintNumber;
use serde_json::Value;
use store::runs::Approval;

use super::refusal::{Refusal, broken};
use crate::database::objects::Objects;

/// Checks that a target has the approvals that its policies require.
pub(super) async fn check_approval(
    objects: &Objects,
    target: BlueprintNumber,
    approval: Option<Approval>,
) -> Result<(), Refusal> {
    let approval = approval.ok_or_else(|| broken(format!("blueprint {target} does not exist")))?;
    match (approval.kind.as_str(), approval.needed) {
        ("genesis", _) => return Ok(()),
        ("change", Some(_)) => {}
        (kind, _) => {
            return Err(broken(format!("blueprint {target} ({kind}) changes no step")));
        }
    }
    let needed = required_approvals(objects, &approval).await?;
    if approval.approving < i64::from(needed) {
        return Err(broken(format!(
            "review {} of blueprint {target} has {} of {}",
            approval.review.unwrap_or_default(),
            approval.approving,
            many(i64::from(needed), "approval")
        )));
    }
    Ok(())
}

/// The approvals that the policies require for the review's risks. Fails if the review requires
/// less.
pub(super) async fn required_approvals(
    objects: &Objects,
    approval: &Approval,
) -> Result<u32, Refusal> {
    let risks = approval.risk.iter().flatten();
    let risks = risks.map(|risk| serde_json::from_value::<Risk>(Value::from(risk.as_str())));
    let risks = risks
        .collect::<Result<BTreeSet<_>, _>>()
        .map_err(|e| broken(format!("a risk is unknown: {e}")))?;
    let current = approval.policy.as_ref().ok_or_else(|| broken("a review has no policy"))?;
    let mut needed = approval.needed.unwrap_or_default().unsigned_abs().max(1);
    for hash in std::iter::once(current).chain(&approval.new_policy) {
        let hash = Hash::from_bytes(hash)
            .ok_or_else(|| broken("the hash of a policy must have 32 bytes"))?;
        needed = needed.max(objects.policy(hash).await?.approvals_for(&risks));
    }
    Ok(needed)
}
