//! The parts of a noderole in a review that take effect: its effective values before and after
//! the change, each with its source, and the text of its scripts.

use api::Problem;
use api::reviews::{
    MAX_REVIEWED_SCRIPTS, ReviewedNoderole, ReviewedScript, ReviewedValue, SCRIPT_TEXT_BYTES,
};
use api::values::MAX_VALUES;
use engine::catalog::Role;
use engine::cluster::{Blueprint, NoderoleKey};
use engine::data::{Layered, OwnData, layers};
use engine::ids::{NodeId, ReviewId, StepId};
use serde_json::Value;

use crate::Control;
use crate::current::CurrentState;
use crate::people::{Actor, Permission};
use crate::problems::{corrupt, from_store};
use crate::reviews::review::sides;
use crate::runs::list::{layer_name, value_text};

impl Control {
    /// A noderole of a review. Documents that the review does not change come from the target in
    /// force. Data that Gantry derives at run time is not included.
    pub async fn reviewed_noderole(
        &self,
        actor: &Actor,
        review: ReviewId,
        node: NodeId,
        noderole: &NoderoleKey,
    ) -> Result<ReviewedNoderole, Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.current_state().await?;
        let mut connection = self.connection().await?;
        let case = self.case(&mut connection, &present, review, false).await?;
        let (was, is) = sides(&mut connection, &case.documents).await?;
        let before = Side { own: &was, other: &is, present: &present }.of(node, noderole)?;
        let after = Side { own: &is, other: &was, present: &present }.of(node, noderole)?;
        let role = after.as_ref().or(before.as_ref()).map(|(role, _)| *role).ok_or_else(|| {
            Problem::not_found(format!(
                "Review {review} has no noderole {noderole} on this node. Open the review."
            ))
        })?;
        let (values, all) =
            values(before.as_ref().map(|(_, data)| data), after.as_ref().map(|(_, data)| data));
        let runs = role.scripts.iter().take(MAX_REVIEWED_SCRIPTS);
        let hashes: Vec<_> = runs.clone().map(|script| script.hash).collect();
        let bodies = store::catalog::bodies(&mut connection, &hashes).await.map_err(from_store)?;
        let scripts = runs.map(|script| ReviewedScript {
            name: script.name.clone(),
            action: script.action.clone(),
            hash: script.hash,
            text: bodies.get(&script.hash).and_then(|body| text(body)),
        });
        Ok(ReviewedNoderole {
            role: role.name.clone(),
            values,
            all,
            check: role.check().map(|(check, _)| check.to_string()),
            scripts: scripts.collect(),
            more_scripts: role.scripts.len().saturating_sub(MAX_REVIEWED_SCRIPTS),
        })
    }
}

/// One side of a review: its own documents, and those of the target in force for documents that
/// the review does not change.
struct Side<'a> {
    own: &'a Blueprint,
    other: &'a Blueprint,
    present: &'a CurrentState,
}

impl<'a> Side<'a> {
    /// The role and the merged data of a noderole. `None`: it does not exist on this side.
    fn of(
        &self,
        node: NodeId,
        noderole: &NoderoleKey,
    ) -> Result<Option<(&'a Role, Layered)>, Problem> {
        let (own, other) = (self.own, self.other);
        let is_changed = own.nodes.contains_key(&node) || other.nodes.contains_key(&node);
        let blueprint = if is_changed { own } else { &*self.present.blueprint };
        let Some((_, document)) = blueprint.noderole(node, noderole) else { return Ok(None) };
        let deployment = document.deployment;
        let is_changed = own.deployments.contains_key(&deployment)
            || other.deployments.contains_key(&deployment);
        let blueprint = if is_changed { own } else { &*self.present.blueprint };
        let of_role = blueprint
            .deployments
            .get(&deployment)
            .and_then(|found| found.doc.roles.get(&noderole.role));
        let role = self.present.catalog.role(document.role).map_err(corrupt)?;
        let data = OwnData {
            template: &role.template,
            deployment_role: of_role.map_or(&Value::Null, |role| &role.data),
            user: &document.data,
            ..OwnData::NONE
        };
        let step = StepId::run_of(noderole.id(node));
        Ok(Some((role, layers(step, data, None).map_err(corrupt)?)))
    }
}

/// The values of both sides, changed ones first, and their number.
fn values(before: Option<&Layered>, after: Option<&Layered>) -> (Vec<ReviewedValue>, usize) {
    let sides = [after, before].into_iter().flatten();
    let paths: std::collections::BTreeSet<&String> =
        sides.flat_map(|side| side.sources.keys()).collect();
    let value = |side: Option<&Layered>, path: &String| {
        side.filter(|side| side.sources.contains_key(path))
            .map(|side| value_text(&side.value, path))
    };
    let source = |path: &String| {
        let found = [after, before].into_iter().flatten().find_map(|side| side.sources.get(path));
        let layer = found.map(|source| serde_json::to_value(&source.layer).unwrap_or_default());
        layer_name(&layer.unwrap_or_default())
    };
    // Masked texts are equal for different secrets, so values are compared themselves.
    let differs = |path: &String| {
        let of = |side: Option<&Layered>| side.and_then(|side| side.value.pointer(path)).cloned();
        of(before) != of(after)
    };
    let mut values: Vec<ReviewedValue> = paths
        .iter()
        .map(|path| ReviewedValue {
            path: (*path).clone(),
            before: value(before, path),
            after: value(after, path),
            changed: differs(path),
            source: source(path),
        })
        .collect();
    let all = values.len();
    values.sort_by_key(|value| !value.changed);
    values.truncate(MAX_VALUES);
    (values, all)
}

/// The text of a script, unless it is binary or too long.
fn text(body: &[u8]) -> Option<String> {
    std::str::from_utf8(body).ok().filter(|text| text.len() <= SCRIPT_TEXT_BYTES).map(str::to_owned)
}
