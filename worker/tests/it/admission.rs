//! Compares the SQL functions of admission with the engine's model over random cluster states.
//!
//! Every step that a claim takes in a round must be admissible next to the earlier steps of that
//! round, in the state after the previous rounds. When a claim has taken all it can, the model must
//! admit no further step.
//!
//! The first pending reason of each step, and all reasons of each TODO step with their details,
//! must also be the same in both.

use std::collections::{BTreeMap, BTreeSet};

use engine::anneal::{
    AdmissionView, Attempt, BudgetId, BudgetView, Child, ClaimPlan, ConcurrencyGroupKey,
    ConcurrencyGroupLimit, DeploymentView, Limits, Link, NodeView, OpenRun, PendingReason, Reason,
    StepState, StepView, Timestamp, admit, awaited_steps, blocked_by_failure, pending_reason,
    unmet_rules,
};
use engine::catalog::{
    ConcurrencyGroup, ConcurrencyGroupMode, JigClass, JoinAfter, Needs, OnError, Role,
};
use engine::cluster::EdgeKind;
use engine::ids::{
    ConcurrencyGroupName, DeploymentId, DeploymentName, JigName, NodeId, NoderoleId, RunId, StepId,
};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Row};
use uuid::Uuid;

use crate::cluster::{Cluster, bind, role};
use crate::queue::confirmed;

/// Number of random cases.
const CASES: u64 = 200;
/// A disruption budget that does not exist.
const MISSING_BUDGET: i64 = 999_999;

/// A small random number generator (splitmix64). The same seed gives the same case on every
/// machine.
struct RandomNumbers(u64);

impl RandomNumbers {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }
}

fn concurrency_group(
    name: &str,
    max_running: u32,
    mode: ConcurrencyGroupMode,
) -> Option<ConcurrencyGroup> {
    Some(ConcurrencyGroup {
        name: ConcurrencyGroupName::parse(name).expect("a name"),
        max_running,
        mode,
    })
}

fn roles() -> Vec<(&'static str, Role)> {
    let with = |name: &'static str, class, change: &dyn Fn(&mut Role)| {
        let mut role = role(name, class);
        change(&mut role);
        (name, role)
    };
    vec![
        with("plain", JigClass::Noop, &|_| ()),
        with("shared", JigClass::Test, &|role| role.run.exclusive = false),
        with("two", JigClass::Noop, &|role| {
            role.run.concurrency_group = concurrency_group("two", 2, ConcurrencyGroupMode::Rolling)
        }),
        with("two-shared", JigClass::Noop, &|role| {
            role.run.exclusive = false;
            role.run.concurrency_group = concurrency_group("two", 2, ConcurrencyGroupMode::Rolling);
        }),
        with("chunk", JigClass::Noop, &|role| {
            role.run.exclusive = false;
            role.run.concurrency_group = concurrency_group("chunk", 2, ConcurrencyGroupMode::Chunk);
        }),
        with("any", JigClass::Test, &|role| role.run.needs = Needs::Any),
        with("dead", JigClass::Noop, &|role| role.run.needs = Needs::Dead),
        with("wipe", JigClass::Noop, &|role| role.flags.destructive = true),
        with("freezes", JigClass::Noop, &|role| role.run.on_error = OnError::Node),
    ]
}

async fn own(cluster: &Cluster, statement: String) {
    sqlx::raw_sql(AssertSqlSafe(statement))
        .execute(cluster.db.owner())
        .await
        .expect("the owner has the permission");
}

/// Roles whose noderoles also have a removal step.
const REMOVED: [&str; 3] = ["plain", "shared", "freezes"];

/// Adds what no commit of this cluster adds: a deployment below `system` with half of the
/// concurrency groups, and removal steps next to the `run` steps of the same noderoles.
async fn extend(cluster: &Cluster) {
    let mut sql = String::from(
        "ALTER TABLE deployment DISABLE TRIGGER USER; ALTER TABLE noderole DISABLE TRIGGER USER;
         ALTER TABLE concurrency_group DISABLE TRIGGER USER;
         INSERT INTO deployment (id, parent, name, phantom, doc, head_no)
           SELECT gen_random_uuid(), id, 'web', phantom, doc, head_no FROM deployment;
         UPDATE concurrency_group SET deployment_id = (SELECT id FROM deployment WHERE name =
         'web') WHERE id % 2 = 0;",
    );
    for at in 0..cluster.nodes.len() {
        for role in REMOVED {
            let (run, removal) = (cluster.step(at, role), cluster.removal(at, role));
            sql += &format!(
                "UPDATE noderole SET disposition = 'expunged' WHERE id = (SELECT noderole_id FROM
                     step WHERE id = '{run}');
                 INSERT INTO step (id, noderole_id, node_id, action, concurrency_group_id, rank,
                 jig, exclusive, needs, generation,
                   content_hash, blocks_node, state, pending)
                 SELECT '{removal}', noderole_id, node_id, 'remove', concurrency_group_id, rank,
                 jig, exclusive, needs, generation,
                   content_hash, blocks_node, 'blocked', 1 FROM step WHERE id = '{run}';"
            );
        }
    }
    sql += "CREATE TABLE first_edge AS TABLE edge;
            SET CONSTRAINTS ALL IMMEDIATE;
            ALTER TABLE deployment ENABLE TRIGGER USER; ALTER TABLE noderole ENABLE TRIGGER USER;
            ALTER TABLE concurrency_group ENABLE TRIGGER USER;";
    own(cluster, sql).await;
}

/// The steps of a node with their roles.
fn steps_on(cluster: &Cluster, node: usize) -> Vec<(StepId, Role)> {
    let mut steps = Vec::new();
    for (name, role) in roles() {
        if REMOVED.contains(&name) {
            steps.push((cluster.removal(node, name), role.clone()));
        }
        steps.push((cluster.step(node, name), role));
    }
    steps
}

/// Creates a random state of nodes, steps, runs, jigs, holds and disruption budgets.
async fn shake(cluster: &Cluster, dice: &mut RandomNumbers) {
    let mut sql = String::from(
        "UPDATE run SET state = 'ended', outcome = 'lost', ended_at = now() WHERE ended_at IS NULL;
         DELETE FROM disruption_budget;",
    );
    for node in &cluster.nodes {
        let joined = if dice.chance(92) { "confirmed" } else { "welcomed" };
        let (alive, available) = (dice.chance(85), dice.chance(90));
        sql += &format!(
            "UPDATE node SET alive = {alive}, available = {available}, joined = '{joined}' WHERE \
             id = '{}';",
            node.id
        );
    }
    let active = dice.chance(80);
    sql += "ALTER TABLE jig DISABLE TRIGGER guard_intent;";
    sql += &format!("UPDATE jig SET active = {active} WHERE name = 'test';");
    sql += "SET CONSTRAINTS ALL IMMEDIATE; ALTER TABLE jig ENABLE TRIGGER guard_intent;";
    let jigs = if dice.chance(90) { "'{noop,test,script}'" } else { "'{test}'" };
    sql += &format!(
        "UPDATE worker SET lease_until = now() + interval '1 hour';
         UPDATE worker SET jigs = {jigs} WHERE drain_since IS NULL;"
    );
    let enabled = dice.chance(95);
    sql += &format!("UPDATE head SET enabled = {enabled};");
    for deployment in ["web", "system"] {
        let priority = dice.roll(3);
        let on_hold = if dice.chance(5) {
            "(SELECT id FROM person LIMIT 1), on_hold_since = now()"
        } else {
            "NULL, on_hold_since = NULL"
        };
        sql += &format!(
            "UPDATE deployment SET priority = {priority}, on_hold_by = {on_hold} WHERE name = \
             '{deployment}';"
        );
    }
    sql += "UPDATE edge e SET parent = f.parent FROM first_edge f WHERE f.child = e.child;";
    sql += "UPDATE edge SET kind = (ARRAY['hard', 'soft', 'order_only'])[1 + \
        abs(hashtext(child::text || now()::text)) % 3];";
    let budgets = dice.roll(3);
    for budget in 0..budgets {
        sql += &format!(
            "INSERT INTO disruption_budget (deployment_id, name, max_down) VALUES ('{}', \
             'b{budget}', {});",
            cluster.system,
            1 + dice.roll(3)
        );
    }
    for at in 0..cluster.nodes.len() {
        let mut taken = false;
        for (step, role) in steps_on(cluster, at) {
            let may_run = !(role.run.exclusive && taken);
            let state = match dice.roll(100) {
                0..70 => "todo",
                70..78 => "blocked",
                78..86 => "active",
                86..88 => "error",
                _ if may_run => "transition",
                _ => "todo",
            };
            let applied = state == "active" || (dice.chance(10) && !role.flags.destructive);
            let cause = if applied && dice.chance(70) { "'drift'" } else { "NULL" };
            let mut drawn: Vec<String> = (0..budgets)
                .filter(|_| dice.chance(40))
                .map(|b| format!("(SELECT id FROM disruption_budget WHERE name = 'b{b}')"))
                .collect();
            if dice.chance(1) {
                drawn.push(MISSING_BUDGET.to_string());
            }
            sql += &format!(
                "UPDATE step SET state = '{state}', pending = {}, applied_generation = {}, cause =
                     {cause}, failures = {},
                   priority = {}, since = now() - interval '{} s', not_before = now() + interval '{} s',
                   disruption_budget_ids = ARRAY[{}]::bigint[], join_after = '{}', node_up =
                   (SELECT alive FROM node WHERE id = step.node_id)
                 WHERE id = '{step}';",
                u8::from(state == "blocked"),
                if applied { "generation" } else { "0" },
                u8::from(dice.chance(12)),
                dice.roll(3),
                dice.roll(4),
                if dice.chance(10) { 60 } else { -60 },
                drawn.join(", "),
                if dice.chance(80) { "success" } else { "end" },
            );
            if state == "transition" {
                taken |= role.run.exclusive;
                let (leased, overdue) = (dice.chance(50), dice.chance(30));
                let draining = dice.chance(30);
                sql += &format!(
                    "INSERT INTO run (step_id, node_id, concurrency_group_id, generation,
                         content_hash, blueprint_number, epoch, exclusive,
                       state, worker_id, started_at, lease_until)
                     SELECT id, node_id, concurrency_group_id, generation, content_hash, 1, 1,
                     exclusive,
                       CASE WHEN {leased} THEN 'running' ELSE 'queued' END, CASE WHEN {leased} THEN
                       w.id END,
                       CASE WHEN {leased} THEN now() END, now() + CASE WHEN {overdue} THEN -interval
                       '1 h' ELSE interval '1 h' END
                     FROM step, (SELECT id FROM worker WHERE (drain_since IS NOT NULL) =
                     {draining}) w (id) WHERE step.id = '{step}';"
                )
                .replace("SELECT id, node_id", "SELECT step.id, node_id");
            }
        }
    }
    // Nodes that are down and only wait, which is rare otherwise.
    if budgets > 0 && dice.chance(50) {
        let waits = cluster.nodes[dice.roll(5) as usize].id;
        sql += &format!(
            "UPDATE step SET failures = 0;
             UPDATE run SET state = 'ended', outcome = 'lost', ended_at = now() WHERE ended_at IS
             NULL;
             UPDATE node SET alive = true; UPDATE step SET node_up = true;
             UPDATE step SET state = 'todo', pending = 0 WHERE state IN ('transition', 'error');
             UPDATE step SET state = 'blocked', pending = 1, failures = 1
               WHERE node_id = '{waits}' AND disruption_budget_ids <> '{{}}' AND state <> 'active';
             UPDATE edge e SET parent = (SELECT id FROM step WHERE node_id <> '{waits}' AND state =
             'todo'
                 AND disruption_budget_ids <> '{{}}' ORDER BY rank, id LIMIT 1)
               WHERE child IN (SELECT id FROM step WHERE node_id = '{waits}')
                 AND EXISTS (SELECT FROM step WHERE node_id <> '{waits}' AND state = 'todo' AND
                 disruption_budget_ids <> '{{}}');
             UPDATE disruption_budget SET max_down = 1;"
        );
    }
    // In half of the cases, no count is wrong.
    if dice.chance(50) {
        sql += "UPDATE step s SET state = 'blocked', pending = 1
            WHERE state = 'todo' AND NOT join_holds(s.id, s.join_kind, s.join_n, s.join_after);";
    }
    own(cluster, sql).await;
}

fn parsed<T: serde::de::DeserializeOwned>(row: &PgRow, column: &str) -> T {
    let word: String = row.get(column);
    serde_json::from_value(word.into()).expect("a known value")
}

async fn all(on: &mut PgConnection, query: &'static str) -> Vec<PgRow> {
    sqlx::query(query).fetch_all(on).await.expect("rows")
}

/// Builds the engine's view of the database.
async fn view(on: &mut PgConnection, capacity: u32) -> AdmissionView {
    let uuid = |row: &PgRow, column: &str| row.get::<Uuid, _>(column);
    let concurrency_group_of = |row: &PgRow| ConcurrencyGroupKey {
        deployment: DeploymentId(uuid(row, "deployment_id")),
        name: ConcurrencyGroupName::parse(row.get("concurrency_group")).expect("a name"),
    };
    let deployments = all(
        on,
        "SELECT d.id, d.name, d.parent, p.name AS held FROM deployment d LEFT JOIN person p ON \
         p.id = d.on_hold_by",
    )
    .await;
    let concurrency_groups = all(
        on,
        "SELECT deployment_id, name AS concurrency_group, max_running, mode FROM concurrency_group",
    )
    .await;
    let budgets = all(on, "SELECT id, name, max_down FROM disruption_budget").await;
    let nodes = all(
        on,
        "SELECT id, split_part(fqdn, '.', 1) AS name, phantom, alive, available, joined FROM node",
    )
    .await;
    let jigs = all(
        on,
        "SELECT name, active, EXISTS (SELECT FROM worker WHERE class = ANY (jigs) AND drain_since \
         IS NULL) AS served FROM jig",
    )
    .await;
    let draining: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM run r JOIN worker w ON w.id = r.worker_id
         WHERE r.ended_at IS NULL AND w.drain_since IS NOT NULL",
    )
    .fetch_one(&mut *on)
    .await
    .expect("a number");
    let enabled =
        sqlx::query_scalar("SELECT enabled FROM head").fetch_one(&mut *on).await.expect("the head");
    let steps = all(
        on,
        "SELECT s.*, l.deployment_id, l.name AS concurrency_group, (extract(epoch FROM
            since) * 1000000)::bigint AS since_us,
           (extract(epoch FROM greatest(not_before, 'epoch')) * 1000000)::bigint AS not_before_us,
           s.priority + d.priority AS effective, s.immediate OR skipped IS NOT NULL
             OR (applied_generation = generation AND (destructive OR cause IS NULL)) AS
             needs_no_run,
           join_holds(s.id, s.join_kind, s.join_n, s.join_after) AS is_joined
         FROM step s JOIN concurrency_group l ON l.id = s.concurrency_group_id JOIN deployment d ON
         d.id = l.deployment_id",
    )
    .await;
    let edges = all(on, "SELECT child, parent FROM edge").await;
    let mut parents: BTreeMap<StepId, Vec<StepId>> = BTreeMap::new();
    for row in &edges {
        parents.entry(StepId(uuid(row, "child"))).or_default().push(StepId(uuid(row, "parent")));
    }
    let open = all(
        on,
        "SELECT r.step_id, s.noderole_id, r.node_id, r.exclusive, l.deployment_id, l.name AS
             concurrency_group
         FROM run r JOIN step s ON s.id = r.step_id JOIN concurrency_group l ON l.id =
         r.concurrency_group_id
         WHERE r.ended_at IS NULL ORDER BY r.id",
    )
    .await;
    let now: i64 = sqlx::query_scalar("SELECT (extract(epoch FROM now()) * 1000000)::bigint")
        .fetch_one(on)
        .await
        .expect("the time");
    let mut view = AdmissionView {
        now: Timestamp(now),
        enabled,
        capacity,
        draining: u32::try_from(draining).expect("a small number"),
        deployments: deployments
            .iter()
            .map(|row| {
                let view = DeploymentView {
                    name: DeploymentName::parse(row.get("name")).expect("a name"),
                    parent: row.get::<Option<Uuid>, _>("parent").map(DeploymentId),
                    on_hold_by: row.get("held"),
                };
                (DeploymentId(uuid(row, "id")), view)
            })
            .collect(),
        concurrency_groups: concurrency_groups
            .iter()
            .map(|row| {
                let max_running = row.get::<Option<i32>, _>("max_running").map(i32::unsigned_abs);
                (
                    concurrency_group_of(row),
                    ConcurrencyGroupLimit { max_running, mode: parsed(row, "mode") },
                )
            })
            .collect(),
        budgets: budgets
            .iter()
            .map(|row| {
                let max_down = row.get::<i32, _>("max_down").unsigned_abs();
                (BudgetId(row.get("id")), BudgetView { name: row.get("name"), max_down })
            })
            .collect(),
        nodes: nodes
            .iter()
            .map(|row| {
                let view = NodeView {
                    name: row.get("name"),
                    phantom: row.get("phantom"),
                    alive: row.get("alive"),
                    available: row.get("available"),
                    confirmed: row.get::<String, _>("joined") == "confirmed",
                };
                (NodeId(uuid(row, "id")), view)
            })
            .collect(),
        jigs: jigs
            .iter()
            .map(|row| (JigName::parse(row.get("name")).expect("a name"), row.get("active")))
            .collect::<BTreeMap<_, _>>(),
        unsupported_jigs: jigs
            .iter()
            .filter(|row| !row.get::<bool, _>("served"))
            .map(|row| JigName::parse(row.get("name")).expect("a name"))
            .collect(),
        steps: steps
            .iter()
            .map(|row| {
                let view = StepView {
                    noderole: NoderoleId(uuid(row, "noderole_id")),
                    node: NodeId(uuid(row, "node_id")),
                    concurrency_group: concurrency_group_of(row),
                    jig: JigName::parse(row.get("jig")).expect("a name"),
                    state: parsed(row, "state"),
                    pending: row.get::<i32, _>("pending").unsigned_abs(),
                    priority: row.get("effective"),
                    ready_since: Timestamp(row.get("since_us")),
                    rank: row.get::<i32, _>("rank").unsigned_abs(),
                    not_before: Timestamp(row.get("not_before_us")),
                    failures: row.get::<i32, _>("failures").unsigned_abs(),
                    needs: parsed(row, "needs"),
                    exclusive: row.get("exclusive"),
                    on_error: if row.get("blocks_node") {
                        OnError::Node
                    } else {
                        OnError::Descendants
                    },
                    budgets: row
                        .get::<Vec<i64>, _>("disruption_budget_ids")
                        .into_iter()
                        .map(BudgetId)
                        .collect::<BTreeSet<_>>(),
                    needs_no_run: row.get("needs_no_run"),
                    is_joined: row.get("is_joined"),
                };
                (StepId(uuid(row, "id")), view)
            })
            .collect(),
        open: open
            .iter()
            .map(|row| OpenRun {
                step: StepId(uuid(row, "step_id")),
                noderole: NoderoleId(uuid(row, "noderole_id")),
                node: NodeId(uuid(row, "node_id")),
                concurrency_group: concurrency_group_of(row),
                exclusive: row.get("exclusive"),
            })
            .collect(),
        awaited: BTreeMap::new(),
    };
    view.awaited = awaited_steps(&view.steps, &parents);
    view
}

/// Groups a claim's steps by round. Each round is a transaction with its own timestamp.
async fn rounds_of(cluster: &Cluster, runs: &[RunId]) -> Vec<Vec<StepId>> {
    let ids: Vec<i64> = runs.iter().map(|run| run.0).collect();
    let rounds: Vec<Vec<Uuid>> = sqlx::query_scalar(
        "SELECT array_agg(step_id ORDER BY id) FROM run WHERE id = ANY($1) GROUP BY queued_at \
         ORDER BY min(id)",
    )
    .bind(ids)
    .fetch_all(cluster.pool())
    .await
    .expect("the runs");
    rounds.into_iter().map(|round| round.into_iter().map(StepId).collect()).collect()
}

/// The same state with these steps running.
fn running(mut view: AdmissionView, round: &[StepId]) -> AdmissionView {
    for id in round {
        let step = view.steps.get_mut(id).expect("a step of the view");
        step.state = StepState::Transition;
        let StepView { noderole, node, concurrency_group, exclusive, .. } = step.clone();
        view.open.push(OpenRun { step: *id, noderole, node, concurrency_group, exclusive });
    }
    view
}

/// The engine's first pending reason for every step.
async fn waits(
    on: &mut PgConnection,
    view: &AdmissionView,
    limits: Limits,
) -> BTreeMap<StepId, PendingReason> {
    let edges: Vec<(Uuid, Uuid, String)> = sqlx::query_as("SELECT parent, child, kind FROM edge")
        .fetch_all(&mut *on)
        .await
        .expect("rows");
    let mut children: BTreeMap<StepId, Vec<Child>> = BTreeMap::new();
    for (parent, child, kind) in edges {
        let kind: EdgeKind = serde_json::from_value(kind.into()).expect("a known value");
        children.entry(StepId(parent)).or_default().push(Child { step: StepId(child), kind });
    }
    let ends: Vec<(Uuid, bool)> = sqlx::query_as("SELECT id, join_after = 'end' FROM step")
        .fetch_all(&mut *on)
        .await
        .expect("rows");
    let link = |(id, end): (Uuid, bool)| {
        let after = if end { JoinAfter::End } else { JoinAfter::Success };
        (StepId(id), Link { state: view.steps[&StepId(id)].state, after, skipped: false })
    };
    let stopped = blocked_by_failure(&ends.into_iter().map(link).collect(), &children);
    let runs: Vec<(Uuid, bool, bool)> = sqlx::query_as(
        "SELECT step_id, state = 'queued', lease_until < now() FROM run WHERE ended_at IS NULL",
    )
    .fetch_all(on)
    .await
    .expect("rows");
    let attempt = |(id, queued, overdue)| {
        (id, if queued { Attempt::Queued } else { Attempt::Running { overdue } })
    };
    let runs: BTreeMap<Uuid, Attempt> = runs.into_iter().map(attempt).collect();
    let wait = |id: &StepId| {
        Some((
            *id,
            pending_reason(view, limits, *id, runs.get(&id.0).copied(), stopped.contains(id))?,
        ))
    };
    view.steps.keys().filter_map(wait).collect()
}

/// The statement's first pending reason for every step.
async fn sql_reasons(on: &mut PgConnection, limits: Limits) -> BTreeMap<StepId, PendingReason> {
    let filter = store::runs::PendingFilter::default();
    let reported =
        store::runs::pending_steps(on, limits, &filter, 1_000).await.expect("the pending steps");
    reported
        .rows
        .iter()
        .map(|row| (StepId(row.step), row.reason.parse().expect("a known value")))
        .collect()
}

/// The engine's reasons for every TODO step that may not start.
fn reasons(view: &AdmissionView, limits: Limits) -> BTreeMap<StepId, Vec<Reason>> {
    let todo = view.steps.iter().filter(|(_, step)| step.state == StepState::Todo);
    let reasons = todo.map(|(id, _)| {
        let mut reasons = unmet_rules(view, limits, *id);
        reasons.sort_by_key(Reason::pending_reason);
        (*id, reasons)
    });
    reasons.filter(|(_, reasons)| !reasons.is_empty()).collect()
}

#[tokio::test]
async fn claim_and_pending_reasons_match_the_engine() {
    let mut cluster = Cluster::of(5).await;
    let mut binds = Vec::new();
    let mut above = None;
    // Only every second role has a parent. With more parents, few random states would let a step
    // start.
    for (at, (name, role)) in roles().into_iter().enumerate() {
        cluster.add_role(role).await;
        above = above.filter(|_| at % 2 == 1);
        binds.extend((0..5).map(|node| match above {
            Some(above) => bind(node, name).after(node, above),
            None => bind(node, name),
        }));
        above = Some(name);
    }
    cluster.commit(&binds).await;
    let open = ["step", "disruption_budget", "edge"]
        .map(|table| format!("ALTER TABLE {table} DISABLE TRIGGER guard_intent;"));
    own(&cluster, open.concat()).await;
    own(&cluster, "ALTER TABLE head DISABLE TRIGGER guard_head".to_owned()).await;
    extend(&cluster).await;
    confirmed(&cluster, 0).await;
    let draining = confirmed(&cluster, 5).await;
    own(
        &cluster,
        format!(
            "UPDATE worker SET drain_by = (SELECT id FROM person LIMIT 1), drain_since = now(),
                 drain_reason = 'an upgrade'
             WHERE id = '{draining}'"
        ),
    )
    .await;
    let mut seen = BTreeSet::new();
    let (mut claimed_at_all, mut claims_of_several_rounds, mut claims_of_awaited) = (0, 0, 0);
    for seed in 0..CASES {
        let mut dice = RandomNumbers(seed);
        shake(&cluster, &mut dice).await;
        let capacity = if dice.chance(5) {
            0
        } else {
            u32::try_from(1 + dice.roll(14)).expect("a small number")
        };
        own(&cluster, format!("UPDATE worker SET capacity = {capacity} WHERE drain_since IS NULL"))
            .await;
        let limits = Limits {
            running: u32::try_from(1 + dice.roll(14)).expect("a small number"),
            batch: u32::try_from(1 + dice.roll(6)).expect("a small number"),
        };
        // One transaction, so that all have the same time.
        let mut on = cluster.server().begin().await.expect("a transaction");
        let before = view(&mut on, capacity).await;
        let pending_steps = sql_reasons(&mut on, limits).await;
        assert_eq!(
            pending_steps,
            waits(&mut on, &before, limits).await,
            "seed {seed}: pending counts of SQL (left) and the engine (right) differ"
        );
        let all_steps: Vec<StepId> = before.steps.keys().copied().collect();
        let found = store::runs::admission_reasons(&mut on, limits, &all_steps).await;
        assert_eq!(
            found.expect("reasons"),
            reasons(&before, limits),
            "seed {seed}: pending reasons of SQL (left) and the engine (right) differ"
        );
        drop(on);
        seen.extend(pending_steps.values().copied());
        let expected = admit(&before, limits);
        let claimed = store::runs::claim_runs(cluster.pool(), limits).await.expect("a claim");
        let rounds = rounds_of(&cluster, &claimed.runs).await;
        claimed_at_all += claimed.runs.len();
        claims_of_several_rounds += usize::from(rounds.len() > 1);
        assert_eq!(
            rounds.is_empty(),
            expected.is_empty(),
            "seed {seed}: got the rounds {rounds:?}, expected {expected:?}"
        );

        // Within a round, the first step of a chunk does not block the others. For the next round,
        // the chunk is in progress.
        let mut now = before;
        for round in rounds {
            assert!(
                round.len() <= limits.batch as usize,
                "seed {seed}: a round has {} steps",
                round.len()
            );
            let not_awaited = AdmissionView { awaited: BTreeMap::new(), ..now.clone() };
            let needs_exception =
                |step: &StepId| !unmet_rules(&not_awaited, limits, *step).is_empty();
            claims_of_awaited += usize::from(round.iter().any(needs_exception));
            let mut taken = ClaimPlan::new(&now, limits);
            for step in &round {
                let reasons = taken.take(*step);
                assert!(
                    reasons.is_ok(),
                    "seed {seed}: {step} was claimed, although {:?}",
                    reasons.err()
                );
            }
            now = running(now, &round);
        }
        let mut on = cluster.server().acquire().await.expect("a connection");
        let left = admit(&view(&mut on, capacity).await, limits);
        assert_eq!(left, [], "seed {seed}: these steps could also have been claimed");
    }
    assert!(claimed_at_all > 100, "only {claimed_at_all} steps were claimed in all cases");
    assert!(
        claims_of_several_rounds >= 5,
        "only {claims_of_several_rounds} claims had several rounds"
    );
    assert!(claims_of_awaited > 0, "only {claims_of_awaited} awaited steps were claimed");
    let unseen: Vec<_> = PendingReason::ALL.iter().filter(|wait| !seen.contains(wait)).collect();
    assert_eq!(unseen, Vec::<&PendingReason>::new(), "no case has these pending reasons");
}
