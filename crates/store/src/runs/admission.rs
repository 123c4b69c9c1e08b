//! The reasons why TODO steps may not start, as input for the engine's admission.

use std::collections::{BTreeMap, BTreeSet};

use engine::anneal::{
    AdmissionView, BudgetId, BudgetView, DeploymentView, LaneKey, LaneView, Moment, NodeView,
    OpenRun, StepState, StepView,
};
use engine::catalog::{ConcurrencyGroupMode, Needs, OnError};
use engine::ids::{ConcurrencyGroupName, DeploymentId, DeploymentName, JigName, NodeId, StepId};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::StoreError;

/// The maximum number of open runs and steps to read.
const LOOKED_AT: i64 = 10_000;

/// The admission view of one step: everything that could block it. `None`: there is no such step.
pub async fn admission_view(
    connection: &mut PgConnection,
    step: StepId,
) -> Result<Option<AdmissionView>, StoreError> {
    let view = admission_view_for_steps(connection, &[step]).await?;
    Ok(Some(view).filter(|view| view.steps.contains_key(&step)))
}

/// The admission view of a few steps. It takes as many statements as the view of one.
pub async fn admission_view_for_steps(
    connection: &mut PgConnection,
    wanted: &[StepId],
) -> Result<AdmissionView, StoreError> {
    let ids: Vec<Uuid> = wanted.iter().map(|step| step.0).collect();
    let ids = ids.as_slice();
    let (now, enabled, capacity): (i64, bool, i64) = sqlx::query_as(
        "SELECT (extract(epoch FROM now()) * 1000000)::int8, h.enabled, (SELECT coalesce(sum(capacity), 0)::int8 FROM worker \
         WHERE phase = 'confirmed' AND lease_until > now()) FROM head h",
    )
    .fetch_one(&mut *connection)
    .await?;
    let steps = steps(connection, ids).await?;
    let mut view = AdmissionView {
        now: Moment(now),
        enabled,
        capacity: u32::try_from(capacity).unwrap_or(u32::MAX),
        deployments: deployments(connection).await?,
        lanes: lanes(connection, ids).await?,
        budgets: budgets(connection, ids).await?,
        nodes: nodes(connection, steps.values().map(|s| s.node)).await?,
        jigs: BTreeMap::new(),
        unsupported_jigs: BTreeSet::new(),
        steps,
        open: open(connection).await?,
    };
    let jigs: Vec<(String, bool, bool)> = sqlx::query_as(
        "SELECT DISTINCT j.name, j.active, EXISTS (SELECT FROM worker w WHERE w.phase = 'confirmed' AND w.lease_until > now() \
           AND j.class = ANY (w.jigs)) FROM step s JOIN jig j ON j.name = s.jig WHERE s.id = ANY($1)",
    )
    .bind(ids)
    .fetch_all(connection)
    .await?;
    for (name, active, served) in jigs {
        let name = name_of(&name, JigName::parse)?;
        if !served {
            view.unsupported_jigs.insert(name.clone());
        }
        view.jigs.insert(name, active);
    }
    Ok(view)
}

fn name_of<T, E: std::fmt::Display>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<T, StoreError> {
    parse(text).map_err(|error| StoreError::corrupt(text, error))
}

#[derive(sqlx::FromRow)]
struct StepRow {
    id: Uuid,
    node_id: Uuid,
    deployment_id: Uuid,
    lane: String,
    jig: String,
    state: String,
    pending: i32,
    priority: i32,
    since: i64,
    rank: i32,
    not_before: i64,
    failures: i32,
    needs: String,
    exclusive: bool,
    freezes_node: bool,
    disruption_budget_ids: Vec<i64>,
    rests: bool,
}

/// The steps, the steps that freeze their nodes, and the unhealthy steps in their disruption
/// budgets. A priority is the sum of the step's and its deployment's.
async fn steps(
    connection: &mut PgConnection,
    wanted: &[Uuid],
) -> Result<BTreeMap<StepId, StepView>, StoreError> {
    let rows: Vec<StepRow> = sqlx::query_as(
        "WITH own AS (SELECT node_id, disruption_budget_ids FROM step WHERE id = ANY($1)), wanted AS ( \
           SELECT unnest($1::uuid[]) AS id \
           UNION SELECT f.id FROM own JOIN step f ON f.node_id = own.node_id AND f.state = 'error' AND f.freezes_node \
           UNION SELECT b.id FROM own JOIN step b ON b.disruption_budget_ids && own.disruption_budget_ids AND b.disruption_budget_ids <> '{}' \
             AND (b.state IN ('transition', 'error') OR b.failures > 0 OR NOT b.node_up)) \
         SELECT s.id, s.node_id, l.deployment_id, l.name AS lane, s.jig, s.state, s.pending, s.priority + d.priority AS priority, \
           (extract(epoch FROM s.since) * 1000000)::int8 AS since, s.rank, \
           CASE WHEN isfinite(s.not_before) THEN (extract(epoch FROM s.not_before) * 1000000)::int8 ELSE 0 END AS not_before, \
           s.failures, s.needs, s.exclusive, s.freezes_node, s.disruption_budget_ids, \
           (s.immediate OR s.skipped IS NOT NULL \
             OR (s.applied_generation = s.generation AND (s.destructive OR s.cause IS NULL))) AS rests \
         FROM wanted w JOIN step s ON s.id = w.id JOIN concurrency_group l ON l.id = s.concurrency_group_id JOIN deployment d ON d.id = l.deployment_id WHERE s.state <> 'gone' LIMIT $2",
    )
    .bind(wanted)
    .bind(LOOKED_AT)
    .fetch_all(connection)
    .await?;
    rows.into_iter().map(|row| Ok((StepId(row.id), view(row)?))).collect()
}

fn view(row: StepRow) -> Result<StepView, StoreError> {
    let state: StepState = name_of(&row.state, str::parse)?;
    let needs = match row.needs.as_str() {
        "dead" => Needs::Dead,
        "any" => Needs::Any,
        _ => Needs::Alive,
    };
    Ok(StepView {
        node: NodeId(row.node_id),
        lane: LaneKey {
            deployment: DeploymentId(row.deployment_id),
            name: name_of(&row.lane, ConcurrencyGroupName::parse)?,
        },
        jig: name_of(&row.jig, JigName::parse)?,
        state,
        pending: row.pending.unsigned_abs(),
        priority: row.priority,
        ready_since: Moment(row.since),
        rank: row.rank.unsigned_abs(),
        not_before: Moment(row.not_before),
        failures: row.failures.unsigned_abs(),
        needs,
        exclusive: row.exclusive,
        on_error: if row.freezes_node { OnError::Node } else { OnError::default() },
        budgets: row.disruption_budget_ids.into_iter().map(BudgetId).collect(),
        rests: row.rests,
    })
}

async fn deployments(
    connection: &mut PgConnection,
) -> Result<BTreeMap<DeploymentId, DeploymentView>, StoreError> {
    let rows: Vec<(Uuid, Option<Uuid>, String, Option<String>)> = sqlx::query_as(
        "SELECT d.id, d.parent, d.name, p.name FROM deployment d LEFT JOIN person p ON p.id = d.held_by \
         WHERE d.removed_in IS NULL",
    )
    .fetch_all(connection)
    .await?;
    let row = |(id, parent, name, held_by): (Uuid, Option<Uuid>, String, Option<String>)| {
        let view = DeploymentView {
            name: name_of(&name, DeploymentName::parse)?,
            parent: parent.map(DeploymentId),
            held_by,
        };
        Ok((DeploymentId(id), view))
    };
    rows.into_iter().map(row).collect()
}

async fn lanes(
    connection: &mut PgConnection,
    wanted: &[Uuid],
) -> Result<BTreeMap<LaneKey, LaneView>, StoreError> {
    let rows: Vec<(Uuid, String, Option<i32>, String)> = sqlx::query_as(
        "SELECT DISTINCT l.deployment_id, l.name, l.max_running, l.mode FROM step s JOIN concurrency_group l ON l.id = s.concurrency_group_id WHERE s.id = ANY($1)",
    )
    .bind(wanted)
    .fetch_all(connection)
    .await?;
    let row = |(deployment, name, max, mode): (Uuid, String, Option<i32>, String)| {
        let key = LaneKey {
            deployment: DeploymentId(deployment),
            name: name_of(&name, ConcurrencyGroupName::parse)?,
        };
        let mode = if mode == "chunk" {
            ConcurrencyGroupMode::Chunk
        } else {
            ConcurrencyGroupMode::Rolling
        };
        Ok((key, LaneView { max_running: max.map(i32::unsigned_abs), mode }))
    };
    rows.into_iter().map(row).collect()
}

async fn budgets(
    connection: &mut PgConnection,
    wanted: &[Uuid],
) -> Result<BTreeMap<BudgetId, BudgetView>, StoreError> {
    let rows: Vec<(i64, String, i32)> = sqlx::query_as(
        "SELECT DISTINCT b.id, b.name, b.max_down FROM step s JOIN disruption_budget b ON b.id = ANY (s.disruption_budget_ids) WHERE s.id = ANY($1)",
    )
    .bind(wanted)
    .fetch_all(connection)
    .await?;
    let row = |(id, name, max_down): (i64, String, i32)| {
        (BudgetId(id), BudgetView { name, max_down: max_down.unsigned_abs() })
    };
    Ok(rows.into_iter().map(row).collect())
}

async fn nodes(
    connection: &mut PgConnection,
    nodes: impl Iterator<Item = NodeId>,
) -> Result<BTreeMap<NodeId, NodeView>, StoreError> {
    let ids: BTreeSet<Uuid> = nodes.map(|node| node.0).collect();
    let rows: Vec<(Uuid, String, bool, bool, bool, String)> = sqlx::query_as(
        "SELECT id, split_part(fqdn, '.', 1), phantom, alive, available AND removed_in IS NULL, joined FROM node WHERE id = ANY($1)",
    )
    .bind(ids.into_iter().collect::<Vec<_>>())
    .fetch_all(connection)
    .await?;
    let row = |(id, name, phantom, alive, available, joined): (
        Uuid,
        String,
        bool,
        bool,
        bool,
        String,
    )| {
        (NodeId(id), NodeView { name, phantom, alive, available, confirmed: joined == "confirmed" })
    };
    Ok(rows.into_iter().map(row).collect())
}

async fn open(connection: &mut PgConnection) -> Result<Vec<OpenRun>, StoreError> {
    let rows: Vec<(Uuid, Uuid, Uuid, String, bool)> = sqlx::query_as(
        "SELECT r.step_id, r.node_id, l.deployment_id, l.name, r.exclusive FROM run r JOIN concurrency_group l ON l.id = r.concurrency_group_id \
         WHERE r.ended_at IS NULL LIMIT $1",
    )
    .bind(LOOKED_AT)
    .fetch_all(connection)
    .await?;
    let row = |(step, node, deployment, lane, exclusive): (Uuid, Uuid, Uuid, String, bool)| {
        let lane = LaneKey {
            deployment: DeploymentId(deployment),
            name: name_of(&lane, ConcurrencyGroupName::parse)?,
        };
        Ok(OpenRun { step: StepId(step), node: NodeId(node), lane, exclusive })
    };
    rows.into_iter().map(row).collect()
}
