//! Compares the rows of a run with the documents in force, and checks whether the run may start.

use std::collections::BTreeSet;
use std::fmt;

use engine::anneal::{StepState, count};
use engine::catalog::{Join, Role};
use engine::cluster::{DeploymentDoc, EdgeKind, NoderoleKey, RootDoc};
use engine::ids::{BlueprintNumber, JigName, NodeId, NoderoleId, RoleName};
use serde_json::{Value, json};
use store::StoreError;
use store::runs::RunFacts;

use super::Preparer;
use super::chain::{Desired, noderole_key};
use crate::run::refusal::{Refusal, broken, named};

impl Preparer {
    /// Checks the rows of the run's noderole against the documents in force when they were read. A
    /// noderole that is no longer in the blueprint passes: its run executes, but its result is not
    /// applied.
    pub(super) async fn check_rows(
        &self,
        facts: &RunFacts,
        desired: &Desired,
    ) -> Result<(), Refusal> {
        let root = self.objects.root(facts.head_root).await?;
        let Some(node) = root.nodes.get(&facts.node) else { return Ok(()) };
        let node = self.objects.node(*node).await?;
        let key = noderole_key(facts)?;
        let is_run = facts.action.is_run();
        let in_force = if is_run { node.noderoles.get(&key) } else { Some(&desired.noderole) };
        let Some(noderole) = in_force else { return Ok(()) };
        let role = self.objects.role(noderole.role).await?;
        let rows = &facts.rows;
        let row_check = Differs { key: format!("{key} on {}", facts.fqdn), target: facts.head };
        row_check.expect_equal(
            "noderole",
            "data",
            canonical(&rows.data)?,
            canonical(&noderole.data)?,
        )?;
        row_check.expect_equal("node", "deployment_id", rows.node_deployment, node.deployment.0)?;
        row_check.expect_equal("step", "node_id", rows.step_node, node.id.0)?;
        let destructive = role.flags.destructive && is_run;
        row_check.expect_equal("step", "destructive", rows.destructive, destructive)?;
        row_check.expect_equal("step", "jig", rows.jig.as_str(), role.jig.as_str())?;
        let exclusive = role.run.exclusive && !node.phantom;
        row_check.expect_equal("step", "exclusive", rows.step_exclusive, exclusive)?;
        row_check.expect_equal(
            "step",
            "immediate",
            rows.immediate,
            role.is_immediate() && is_run,
        )?;
        row_check.expect_equal("step", "needs", json!(rows.needs), json!(role.run.needs))?;
        row_check.expect_equal(
            "step",
            "run_location",
            json!(rows.run_location),
            json!(role.run.location),
        )?;
        let timeout = role.run.timeout.clamp(1, i32::MAX.unsigned_abs());
        row_check.expect_equal("step", "timeout_s", rows.timeout_s.unsigned_abs(), timeout)?;
        let (concurrency_group, _, _) = role.concurrency_group();
        row_check.expect_equal(
            "concurrency_group",
            "name",
            rows.concurrency_group.as_str(),
            concurrency_group.as_str(),
        )?;
        row_check.expect_equal(
            "concurrency_group",
            "deployment_id",
            rows.group_deployment,
            noderole.deployment.0,
        )?;
        // A run keeps the values that its step had at the claim.
        if facts.head_root == facts.target_root {
            row_check.expect_equal("run", "exclusive", facts.exclusive, exclusive)?;
            row_check.expect_equal("run", "concurrency_group_id", rows.same_group, true)?;
        }
        // Documents contain neither the order of removals nor their ranks.
        if !is_run {
            return Ok(());
        }
        row_check.expect_equal("step", "rank", rows.rank.unsigned_abs(), noderole.rank)?;
        let parents = |of: &[(NoderoleId, EdgeKind)]| {
            of.iter().map(|(id, kind)| (*id, *kind)).collect::<BTreeSet<_>>()
        };
        let actual: Vec<_> =
            self::parents(facts)?.into_iter().map(|parent| (parent.parent, parent.kind)).collect();
        let meant: Vec<_> = noderole.parents.iter().map(|edge| (edge.parent, edge.kind)).collect();
        row_check.expect_equal(
            "edge",
            "parent",
            json!(parents(&actual)),
            json!(parents(&meant)),
        )?;
        self.check_parents(facts, &root).await
    }

    /// Checks those rows of the parents that decide whether a parent is passed without a run.
    /// Whether a parent is applied is progress, which no document has.
    async fn check_parents(&self, facts: &RunFacts, head: &RootDoc) -> Result<(), Refusal> {
        for parent in parents(facts)? {
            let key = NoderoleKey {
                role: named(RoleName::parse(&parent.role))?,
                instance: parent.instance,
            };
            let row_check =
                Differs { key: format!("{key} on {}", parent.fqdn), target: facts.head };
            row_check.expect_equal("step", "noderole_id", parent.parent, key.id(parent.node))?;
            row_check.expect_equal("step", "skipped", parent.skipped, false)?;
            let Some(node) = head.nodes.get(&parent.node) else { continue };
            let node = self.objects.node(*node).await?;
            let Some(noderole) = node.noderoles.get(&key) else { continue };
            let role = self.objects.role(noderole.role).await?;
            row_check.expect_equal("step", "immediate", parent.immediate, role.is_immediate())?;
        }
        Ok(())
    }
}

/// Builds the refusal for a row that differs from its document.
pub(super) struct Differs {
    pub(super) key: String,
    pub(super) target: BlueprintNumber,
}

impl Differs {
    pub(super) fn expect_equal<T: PartialEq + fmt::Display>(
        &self,
        table: &'static str,
        field: &'static str,
        row: T,
        document: T,
    ) -> Result<(), Refusal> {
        if row == document {
            return Ok(());
        }
        let short = |value: &T| value.to_string().chars().take(200).collect();
        let (row, document) = (short(&row), short(&document));
        Err(Refusal::Row {
            table,
            key: self.key.clone(),
            field,
            row,
            target: self.target,
            document,
        })
    }
}

/// Canonical form for comparison: the database stores `300.0` where a document has `300`.
pub(super) fn canonical(value: &Value) -> Result<String, Refusal> {
    let bytes = engine::canonical::bytes(value).map_err(|error| broken(error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| broken(error.to_string()))
}

/// A parent according to the rows.
#[derive(serde::Deserialize)]
struct ParentRow {
    parent: NoderoleId,
    role: String,
    instance: u32,
    node: NodeId,
    fqdn: String,
    kind: EdgeKind,
    state: String,
    immediate: bool,
    skipped: bool,
}

fn parents(facts: &RunFacts) -> Result<Vec<ParentRow>, Refusal> {
    serde_json::from_value(facts.rows.parents.clone())
        .map_err(|e| Refusal::Store(StoreError::corrupt("edge", e)))
}

/// Checks the row of the step's jig against the document of *system*.
pub(super) fn check_jig(facts: &RunFacts, system: &DeploymentDoc) -> Result<(), Refusal> {
    let jig = named(JigName::parse(&facts.rows.jig))?;
    let is_active = !system.inactive_jigs.contains(&jig);
    let row_check = Differs { key: jig.to_string(), target: facts.head };
    row_check.expect_equal("jig", "active", facts.rows.jig_active, is_active)
}

/// Checks conditions that may have changed since the claim, and conditions that should have
/// prevented the claim. `system` is the document in force.
pub(super) fn check_start(
    facts: &RunFacts,
    role: &Role,
    system: &DeploymentDoc,
) -> Result<(), Refusal> {
    let rows = &facts.rows;
    let is_applied = rows.applied_generation == rows.step_generation
        && rows.step_generation == facts.generation.0;
    if is_applied && (role.flags.destructive || !facts.action.is_run()) {
        return Err(broken(format!(
            "its step was already applied at generation {} and must not run twice",
            facts.generation
        )));
    }
    let now = [
        (rows.enabled, "execution is off"),
        (!rows.on_hold, "its deployment is on hold"),
        (rows.available, "its node is in maintenance"),
        (rows.fits, "its node is not in the state that the action needs"),
        (!system.inactive_jigs.contains(&role.jig), "its jig is disabled"),
    ];
    if let Some((_, reason)) = now.into_iter().find(|(is_met, _)| !is_met) {
        return Err(Refusal::NotReady(reason));
    }
    let states = parents(facts)?.into_iter().map(|parent| {
        let state = parent
            .state
            .parse::<StepState>()
            .map_err(|e| Refusal::Store(StoreError::corrupt("step", e)))?;
        Ok((parent.kind, state, parent.skipped))
    });
    let states = states.collect::<Result<Vec<_>, Refusal>>()?;
    let join = if facts.action.is_run() { role.run.join } else { Join::default() };
    match count(join, states).pending {
        0 => Ok(()),
        _ => Err(Refusal::NotReady("a parent of its step is not done")),
    }
}
