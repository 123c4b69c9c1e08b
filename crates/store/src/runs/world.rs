//! Loads and locks the steps that a change needs, and writes the engine's outcome.
//!
//! The steps that a change needs depend on states, and states can change until their rows are
//! locked. So this module locks the steps known to be needed and calls the engine. If the engine
//! lacks steps, it releases the locks (with a savepoint) and locks more. One statement takes all
//! locks of a round in the order (rank, id), so two changes cannot deadlock.

use std::collections::{BTreeMap, BTreeSet};

use engine::anneal::{
    Cause, Change, Child, Missing, Outcome, Progress, Step, StepState, Stop, World, apply,
    apply_each,
};
use engine::catalog::{Join, JoinAfter, JoinNeed, Needs};
use engine::cluster::EdgeKind;
use engine::ids::{BlueprintNumber, NodeId, StepId};
use sea_orm::{ColumnTrait, Condition, EntityTrait, QueryFilter, QuerySelect};
use sqlx::{Acquire, PgConnection};
use uuid::Uuid;

use super::change_error::ChangeError;
use crate::StoreError;
use crate::connect::orm;
use crate::entity::step;
use crate::events::{Event, step_event};

/// The state of a step whose noderole was removed. The engine never sees such a step, because it
/// has no edges.
pub(crate) const REMOVED_STATE: &str = "gone";

/// Planning never creates a longer chain.
const MAX_ROUNDS: usize = 100_000;

#[derive(sqlx::FromRow)]
struct StepRow {
    id: Uuid,
    node_id: Uuid,
    rank: i32,
    destructive: bool,
    immediate: bool,
    skipped: bool,
    needs: String,
    retries: i32,
    backoff_s: i32,
    join_kind: String,
    join_n: Option<i32>,
    join_after: String,
    state: String,
    pending: i32,
    satisfied: i32,
    generation: i64,
    applied_generation: i64,
    failures: i32,
    cause: Option<String>,
    error: Option<String>,
    node_up: bool,
}

impl StepRow {
    fn into_step(self) -> Result<Step, StoreError> {
        let row = || format!("step {}", self.id);
        let state: StepState = self.state.parse().map_err(|e| StoreError::corrupt(row(), e))?;
        let cause = self.cause.as_deref().map(str::parse::<Cause>).transpose();
        let need = match (self.join_kind.as_str(), self.join_n) {
            ("all", _) => JoinNeed::All,
            ("any", _) => JoinNeed::Any,
            (_, Some(n)) => JoinNeed::AtLeast(n.unsigned_abs()),
            _ => return Err(StoreError::corrupt(row(), "the join has no number")),
        };
        let after = if self.join_after == "end" { JoinAfter::End } else { JoinAfter::Success };
        let needs = match self.needs.as_str() {
            "dead" => Needs::Dead,
            "any" => Needs::Any,
            _ => Needs::Alive,
        };
        Ok(Step {
            id: StepId(self.id),
            node: NodeId(self.node_id),
            rank: self.rank.unsigned_abs(),
            join: Join { need, after },
            destructive: self.destructive,
            immediate: self.immediate,
            skipped: self.skipped,
            needs,
            retries: self.retries.unsigned_abs(),
            backoff: self.backoff_s.unsigned_abs(),
            progress: Progress {
                state,
                pending: self.pending.unsigned_abs(),
                satisfied: self.satisfied.unsigned_abs(),
                generation: BlueprintNumber(self.generation),
                applied: (self.applied_generation > 0)
                    .then_some(BlueprintNumber(self.applied_generation)),
                failures: self.failures.unsigned_abs(),
                cause: cause.map_err(|e| StoreError::corrupt(row(), e))?,
                error: self.error,
                node_up: self.node_up,
            },
        })
    }
}

/// Lets the engine decide a change. Everything that it touches is locked until the transaction
/// ends.
pub(crate) async fn decide(
    transaction: &mut PgConnection,
    change: &Change,
    ahead: &[StepId],
) -> Result<Outcome, ChangeError> {
    decided(transaction, ahead, |graph| apply(graph, change)).await
}

async fn decided(
    transaction: &mut PgConnection,
    ahead: &[StepId],
    engine: impl Fn(&World) -> Result<Outcome, Stop>,
) -> Result<Outcome, ChangeError> {
    let mut lock_set = LockSet::ahead(transaction, ahead).await?;
    for _ in 0..MAX_ROUNDS {
        let mut round = transaction.begin().await.map_err(StoreError::from)?;
        let graph = lock_set.lock(&mut round).await?;
        match engine(&graph) {
            Ok(outcome) => {
                round.commit().await.map_err(StoreError::from)?;
                return Ok(outcome);
            }
            Err(Stop::Missing(missing)) => {
                round.rollback().await.map_err(StoreError::from)?;
                lock_set.add(transaction, missing).await?;
            }
            Err(Stop::Refused(refused)) => return Err(refused.into()),
            Err(Stop::InvariantViolation(violation)) => {
                return Err(StoreError::corrupt("step", violation).into());
            }
        }
    }
    Err(StoreError::corrupt("edge", "a change spreads beyond the maximum depth of the graph")
        .into())
}

/// Does the same for several changes, one after the other, with one round of locks for all of them.
/// Changes that do not fit are skipped.
pub(crate) async fn decide_each(
    transaction: &mut PgConnection,
    changes: &[Change],
    ahead: &[StepId],
) -> Result<Outcome, ChangeError> {
    decided(transaction, ahead, |graph| apply_each(graph, changes).map(|(outcome, _)| outcome))
        .await
}

/// The steps that a change of their node affects. An ACTIVE removal step is not one of them: the
/// removed software stays removed when the node dies or starts again.
async fn steps_on_node(
    connection: &mut PgConnection,
    node: NodeId,
) -> Result<Vec<Uuid>, StoreError> {
    let is_affected = Condition::any()
        .add(step::Column::Action.eq("run"))
        .add(step::Column::State.ne(StepState::Active.as_str()));
    let query = step::Entity::find()
        .filter(step::Column::NodeId.eq(node.0))
        .filter(step::Column::State.ne(REMOVED_STATE))
        .filter(is_affected)
        .select_only()
        .column(step::Column::Id);
    Ok(query.into_tuple().all(&orm(connection)).await?)
}

/// The locks of a round. Edges are read once: only a commit changes them, and APPLY excludes
/// commits.
#[derive(Default)]
struct LockSet {
    steps: BTreeSet<Uuid>,
    children: BTreeMap<StepId, Vec<Child>>,
    nodes: BTreeMap<NodeId, Vec<StepId>>,
}

impl LockSet {
    /// These steps, their children, and all steps reached through immediate steps.
    async fn ahead(connection: &mut PgConnection, steps: &[StepId]) -> Result<Self, StoreError> {
        let mut lock_set = Self::default();
        let ids: Vec<Uuid> = steps.iter().map(|step| step.0).collect();
        let edges = sqlx::query_as(include_str!("statements/lock_ahead.sql"))
            .bind(&ids)
            .fetch_all(connection)
            .await?;
        lock_set.add_edges(edges);
        Ok(lock_set)
    }

    /// Adds parents, each with one child, or without a child if it has none.
    fn add_edges(&mut self, edges: Vec<(Uuid, Option<Uuid>, Option<String>)>) {
        for (parent, child, kind) in edges {
            self.steps.insert(parent);
            let children = self.children.entry(StepId(parent)).or_default();
            if let Some(child) = child {
                let kind = match kind.as_deref() {
                    Some("soft") => EdgeKind::Soft,
                    Some("order_only") => EdgeKind::OrderOnly,
                    _ => EdgeKind::Hard,
                };
                self.steps.insert(child);
                children.push(Child { step: StepId(child), kind });
            }
        }
    }

    /// Adds the steps and edges that a change lacked.
    async fn add(
        &mut self,
        connection: &mut PgConnection,
        missing: Missing,
    ) -> Result<(), StoreError> {
        self.steps.extend(missing.steps.iter().map(|step| step.0));
        let of: Vec<Uuid> = missing.children_of.iter().map(|step| step.0).collect();
        if !of.is_empty() {
            let edges = sqlx::query_as(
                "SELECT p.id, e.child, e.kind FROM unnest($1::uuid[]) AS p (id) LEFT JOIN edge e ON e.parent = p.id",
            )
            .bind(of)
            .fetch_all(&mut *connection)
            .await?;
            self.add_edges(edges);
        }
        for node in missing.by_node {
            let steps = steps_on_node(connection, node).await?;
            self.steps.extend(&steps);
            self.nodes.insert(node, steps.into_iter().map(StepId).collect());
        }
        Ok(())
    }

    async fn lock(&self, connection: &mut PgConnection) -> Result<World, ChangeError> {
        let mut graph = World {
            steps: BTreeMap::new(),
            children: self.children.clone(),
            on_node: self.nodes.clone(),
        };
        let ids: Vec<Uuid> = self.steps.iter().copied().collect();
        let rows: Vec<StepRow> = sqlx::query_as(
            "SELECT id, node_id, rank, destructive, immediate, skipped IS NOT NULL AS skipped, needs, retries, backoff_s,
               join_kind, join_n, join_after, state, pending, satisfied, generation, applied_generation, failures,
               cause, error, node_up
             FROM step WHERE id = ANY($1) ORDER BY rank, id FOR UPDATE",
        )
        .bind(ids)
        .fetch_all(connection)
        .await?;
        for row in rows {
            if row.state == REMOVED_STATE {
                return Err(ChangeError::NoderoleRemoved(StepId(row.id)));
            }
            let step = row.into_step()?;
            graph.steps.insert(step.id, step);
        }
        Ok(graph)
    }
}

#[derive(sqlx::FromRow)]
struct Moved {
    noderole_id: Uuid,
    deployment_id: Uuid,
    state: String,
    moved: bool,
}

/// Writes the deltas of an outcome and returns the events about them.
pub(crate) async fn write(
    transaction: &mut PgConnection,
    outcome: &Outcome,
) -> Result<Vec<Event>, StoreError> {
    let deltas = &outcome.deltas;
    if deltas.is_empty() {
        return Ok(Vec::new());
    }
    fn column<'d, T>(outcome: &'d Outcome, of: impl Fn(&'d engine::anneal::Delta) -> T) -> Vec<T> {
        outcome.deltas.iter().map(of).collect()
    }
    let rows: Vec<Moved> = sqlx::query_as(include_str!("statements/write_steps.sql"))
        .bind(column(outcome, |d| d.step.0))
        .bind(column(outcome, |d| d.was.as_str()))
        .bind(column(outcome, |d| d.now.state.as_str()))
        .bind(column(outcome, |d| d.now.pending.cast_signed()))
        .bind(column(outcome, |d| d.now.satisfied.cast_signed()))
        .bind(column(outcome, |d| d.now.applied.map_or(0, |applied| applied.0)))
        .bind(column(outcome, |d| d.now.failures.cast_signed()))
        .bind(column(outcome, |d| d.now.cause.map(|cause| cause.to_string())))
        .bind(column(outcome, |d| d.now.error.as_deref()))
        .bind(column(outcome, |d| d.now.node_up))
        .bind(column(outcome, |d| d.not_before.map(|wait| wait.as_secs_f64())))
        .fetch_all(transaction)
        .await?;
    let moved: BTreeMap<Uuid, Event> = rows
        .into_iter()
        .filter(|row| row.moved)
        .map(|row| (row.noderole_id, step_event(row.deployment_id, row.noderole_id, &row.state)))
        .collect();
    Ok(moved.into_values().collect())
}
