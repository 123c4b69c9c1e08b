//! The effect of a change of a deployment role's data or template on its noderoles: their effective
//! value before and after the change, and the number of noderoles that override it.
//!
//! Only the data of the role's template, of the deployment role and of the noderoles counts. Data
//! that Gantry derives at run time is not included.

use std::collections::BTreeMap;

use api::Problem;
use api::blueprints::{EffectiveValue, RoleValueChange};
use api::values::{MAX_VALUE_CHARS, MAX_VALUES};
use engine::blueprint::Difference;
use engine::blueprint::difference::{Mark, RoleDifference};
use engine::catalog::Catalog;
use engine::cluster::Blueprint;
use engine::data::{Change, Layered, OwnData, decides, diff, layers, secret};
use engine::ids::{DeploymentId, NodeId, RoleName, StepId};

use crate::problems::corrupt;
use crate::runs::list::layer_name;

/// The roles of a difference that exist on both sides and whose data or content differs.
pub(crate) fn changed_roles(
    difference: &Difference,
) -> impl Iterator<Item = (DeploymentId, &RoleDifference)> {
    let roles = difference
        .deployments
        .iter()
        .flat_map(|deployment| deployment.roles.iter().map(|role| (deployment.id, role)));
    roles.filter(|(_, role)| role.mark == Mark::Changed && (role.content || !role.data.is_empty()))
}

/// The first changed values of deployment roles, and the number of the others. `was` and `is` have
/// the documents that the review changes, `present` has all others.
pub(crate) fn role_values(
    difference: &Difference,
    (was, is): (&Blueprint, &Blueprint),
    present: &Blueprint,
    catalog: &Catalog,
) -> Result<(Vec<RoleValueChange>, usize), Problem> {
    let (mut all, mut values) = (0, Vec::new());
    for (deployment, role) in changed_roles(difference) {
        let left = MAX_VALUES - values.len();
        if left == 0 && !role.content {
            all += role.data.len();
            continue;
        }
        let side = |side: &Blueprint| of_role(side, deployment, &role.role, catalog);
        let (before, after) = (side(was)?, side(is)?);
        let changes = changes(role, before.as_ref(), after.as_ref())?;
        all += changes.len();
        values.extend(changes.iter().take(left).map(|change| RoleValueChange {
            deployment,
            role: role.role.clone(),
            path: change.path.clone(),
            before: effective(before.as_ref(), change),
            after: effective(after.as_ref(), change),
            noderoles: 0,
            overridden: 0,
        }));
    }
    count(&mut values, (was, is), present);
    let more = all - values.len();
    Ok((values, more))
}

/// The changes of the role's data, then those that its template makes to the effective values.
fn changes(
    role: &RoleDifference,
    before: Option<&Layered>,
    after: Option<&Layered>,
) -> Result<Vec<Change>, Problem> {
    let mut changes = role.data.clone();
    let (true, Some(before), Some(after)) = (role.content, before, after) else {
        return Ok(changes);
    };
    let of_template = diff(&before.value, &after.value).map_err(corrupt)?;
    // A change of a value also covers the values in it.
    let covers = |outer: &str, inner: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let is_new = |change: &Change| {
        !role.data.iter().any(|of_data| {
            covers(&of_data.path, &change.path) || covers(&change.path, &of_data.path)
        })
    };
    changes.extend(of_template.into_iter().filter(is_new));
    Ok(changes)
}

/// The merged data of the template and of the deployment role.
fn of_role(
    side: &Blueprint,
    deployment: DeploymentId,
    role: &RoleName,
    catalog: &Catalog,
) -> Result<Option<Layered>, Problem> {
    let found = side.deployments.get(&deployment).and_then(|found| found.doc.roles.get(role));
    let Some(found) = found else { return Ok(None) };
    let role = catalog.role(found.role).map_err(corrupt)?;
    let data = OwnData { template: &role.template, deployment_role: &found.data, ..OwnData::NONE };
    let step = StepId(uuid::Uuid::nil());
    layers(step, data, None).map(Some).map_err(corrupt)
}

/// The value at the path of a change. Like the difference, it omits a plain value that a secret
/// replaces, or the reverse.
fn effective(layered: Option<&Layered>, change: &Change) -> Option<EffectiveValue> {
    let layered = layered?;
    let found = layered.value.pointer(&change.path)?;
    let value = match change.secret && !secret::contains_reference(found) {
        true => "a plain value".to_owned(),
        false => secret::named(found).to_string().chars().take(MAX_VALUE_CHARS).collect(),
    };
    let layer = layered.sources.get(&change.path).map(|source| &source.layer);
    let source = match layer {
        Some(layer) => layer_name(&serde_json::to_value(layer).unwrap_or_default()),
        None => "several layers".to_owned(),
    };
    Some(EffectiveValue { value, source })
}

/// Counts the noderoles of the roles, and those that override each value.
fn count(values: &mut [RoleValueChange], (was, is): (&Blueprint, &Blueprint), present: &Blueprint) {
    let mut by_role: BTreeMap<DeploymentId, BTreeMap<RoleName, Vec<usize>>> = BTreeMap::new();
    for (at, value) in values.iter().enumerate() {
        let of_deployment = by_role.entry(value.deployment).or_default();
        of_deployment.entry(value.role.clone()).or_default().push(at);
    }
    let unchanged = |id: &NodeId| !was.nodes.contains_key(id) && !is.nodes.contains_key(id);
    let others = present.nodes.iter().filter(|(id, _)| unchanged(id)).map(|(_, node)| node);
    for (key, noderole) in others.chain(is.nodes.values()).flat_map(|node| &node.doc.noderoles) {
        let places = by_role.get(&noderole.deployment).and_then(|of| of.get(&key.role));
        for at in places.into_iter().flatten() {
            let value = &mut values[*at];
            value.noderoles += 1;
            value.overridden += usize::from(decides(&noderole.data, &value.path));
        }
    }
}
