//! What a run needs to start: what it is about, the documents that say so, what it sees, and who approved it.

use engine::Hash;
use engine::data::distances;
use engine::ids::{DeploymentId, NodeId, NoderoleId, RunId, StepId, TargetNo};
use serde_json::Value;
use sqlx::PgPool;
use time::OffsetDateTime;
use uuid::Uuid;

use super::event::{append_events, run_events};
use super::worker::WorkerId;
use crate::StoreError;

/// A run as it was claimed, and where it points.
#[derive(Debug, Clone, PartialEq)]
pub struct RunFacts {
    /// The attempt.
    pub run: RunId,
    /// Of which step.
    pub step: StepId,
    /// Whose step that is.
    pub noderole: NoderoleId,
    /// The noderole's role, by name.
    pub role: String,
    /// Which of the role's instances on the node.
    pub instance: u32,
    /// The role's content, as the noderole's row has it.
    pub role_hash: Hash,
    /// Where the noderole is bound.
    pub deployment: DeploymentId,
    /// The noderole's system data.
    pub system_data: Value,
    /// The target that last changed or re-ran the step.
    pub generation: TargetNo,
    /// The target that was current when the run was claimed.
    pub target: TargetNo,
    /// That target's root.
    pub target_root: Hash,
    /// The generation's root.
    pub generation_root: Hash,
    /// The life of the database in which it was claimed.
    pub epoch: i64,
    /// The one that is now.
    pub epoch_now: i64,
    /// What the node's ledger compares, as the run's row has it.
    pub content: Hash,
    /// Whether it has the node for itself.
    pub exclusive: bool,
    /// Where, by id.
    pub node: NodeId,
    /// Where, by name.
    pub fqdn: String,
    /// Whether that stands for a deployment.
    pub phantom: bool,
    /// How to reach it: its record, with its transport.
    pub connection: Value,
    /// Where it belongs, by name.
    pub home: String,
    /// What is known of it.
    pub facts: Value,
    /// What people said of it when they added it.
    pub hints: Value,
}

#[derive(sqlx::FromRow)]
struct FactsRow {
    step_id: Uuid,
    noderole_id: Uuid,
    role: String,
    instance: i32,
    role_hash: Vec<u8>,
    deployment_id: Uuid,
    system_data: Value,
    generation: i64,
    target_number: i64,
    target_root: Vec<u8>,
    generation_root: Vec<u8>,
    epoch: i64,
    epoch_now: i64,
    content_hash: Vec<u8>,
    exclusive: bool,
    node_id: Uuid,
    fqdn: String,
    phantom: bool,
    connection: Value,
    home: String,
    facts: Value,
    hints: Value,
}

fn hash(run: RunId, bytes: &[u8]) -> Result<Hash, StoreError> {
    Hash::from_bytes(bytes).ok_or_else(|| StoreError::corrupt(format!("run {run}"), "a hash has 32 bytes"))
}

/// A run and where it points. None: there is no such run.
///
/// # Errors
/// What the database refused.
pub async fn run_facts(pool: &PgPool, run: RunId) -> Result<Option<RunFacts>, StoreError> {
    let row: Option<FactsRow> = sqlx::query_as(
        "SELECT r.step_id, s.noderole_id, nr.role, nr.instance, nr.role_hash, nr.deployment_id, nr.system_data,
           r.generation, r.target_number, t.root AS target_root, g.root AS generation_root, r.epoch,
           h.epoch AS epoch_now, r.content_hash, r.exclusive, r.node_id, n.fqdn, n.phantom,
           jsonb_build_object('transport', n.transport, 'addresses', n.address) || n.connection AS connection,
           d.name AS home, n.facts, coalesce(to_jsonb(n) -> 'hints', '{}') AS hints
         FROM run r JOIN step s ON s.id = r.step_id JOIN noderole nr ON nr.id = s.noderole_id
         JOIN node n ON n.id = r.node_id JOIN deployment d ON d.id = n.deployment_id JOIN target t ON t.number = r.target_number
         JOIN target g ON g.number = r.generation CROSS JOIN head h
         WHERE r.id = $1",
    )
    .bind(run.0)
    .fetch_optional(pool)
    .await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(RunFacts {
        run,
        step: StepId(row.step_id),
        noderole: NoderoleId(row.noderole_id),
        role: row.role,
        instance: row.instance.unsigned_abs(),
        role_hash: hash(run, &row.role_hash)?,
        deployment: DeploymentId(row.deployment_id),
        system_data: row.system_data,
        generation: TargetNo(row.generation),
        target: TargetNo(row.target_number),
        target_root: hash(run, &row.target_root)?,
        generation_root: hash(run, &row.generation_root)?,
        epoch: row.epoch,
        epoch_now: row.epoch_now,
        content: hash(run, &row.content_hash)?,
        exclusive: row.exclusive,
        node: NodeId(row.node_id),
        fqdn: row.fqdn,
        phantom: row.phantom,
        connection: row.connection,
        home: row.home,
        facts: row.facts,
        hints: row.hints,
    }))
}

/// The bytes of an object. None: it is not there.
///
/// # Errors
/// What the database refused.
pub async fn object_body(pool: &PgPool, hash: Hash) -> Result<Option<Vec<u8>>, StoreError> {
    let body = sqlx::query_scalar("SELECT body FROM object WHERE hash = $1")
        .bind(hash.as_bytes().as_slice())
        .fetch_optional(pool)
        .await?;
    Ok(body)
}

/// Who let a target pass.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Approval {
    /// The target.
    pub number: i64,
    /// genesis, change or switch.
    pub kind: String,
    /// The submission of a change.
    pub submission: Option<i64>,
    /// Approvals that it needed.
    pub needed: Option<i32>,
    /// People, no authors, whose last verdict before the commit approved it.
    pub approving: i64,
    /// People, no authors, whose last verdict before the commit did not.
    pub objecting: i64,
}

/// The chain from a target to its verdicts. No verdict comes in once the proposal is committed, so all of them count, whatever the
/// clocks said when they came. None: there is no such target.
///
/// # Errors
/// What the database refused.
pub async fn approval(pool: &PgPool, target: TargetNo) -> Result<Option<Approval>, StoreError> {
    let approval = sqlx::query_as(
        "WITH last AS (
           SELECT DISTINCT ON (v.person_id) v.person_id, v.kind
           FROM target t JOIN verdict v ON v.submission_id = t.submission_id
           WHERE t.number = $1 AND v.person_id IS NOT NULL
             AND NOT EXISTS (SELECT FROM submission_author a
                             WHERE a.submission_id = v.submission_id AND a.person_id = v.person_id)
           ORDER BY v.person_id, v.id DESC)
         SELECT t.number, t.kind, t.submission_id AS submission, s.approvals_needed AS needed,
           (SELECT count(*) FROM last WHERE kind = 'approve') AS approving,
           (SELECT count(*) FROM last WHERE kind <> 'approve') AS objecting
         FROM target t LEFT JOIN submission s ON s.id = t.submission_id WHERE t.number = $1",
    )
    .bind(target.0)
    .fetch_optional(pool)
    .await?;
    Ok(approval)
}

/// What one step lets a run see.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenStep {
    /// The step.
    pub step: StepId,
    /// Its place in the graph.
    pub rank: u32,
    /// How many hard edges above the run's step, at least. None: it is on the same node, ACTIVE.
    pub distance: Option<u32>,
    /// Whether it is ACTIVE: only then has it a wall for others.
    pub active: bool,
    /// Whose it is.
    pub noderole: NoderoleId,
    /// Its role, by name.
    pub role: String,
    /// Which of the role's instances there.
    pub instance: u32,
    /// Its role, by content.
    pub role_hash: Hash,
    /// The document of the deployment that it is bound in.
    pub deployment_doc: Hash,
    /// System data.
    pub system_data: Value,
    /// Its own reviewed data.
    pub data: Value,
    /// What its last successful run added; null when it is not ACTIVE or has none.
    pub wall: Value,
    /// The run that left the wall.
    pub wall_run: Option<RunId>,
    /// Where it is.
    pub node: NodeId,
    /// Where, by name.
    pub fqdn: String,
    /// Whether that stands for a deployment.
    pub phantom: bool,
    /// Where that answers, as its record has it.
    pub addresses: Value,
}

impl SeenStep {
    /// Where its node answers.
    pub fn addresses(&self) -> Vec<String> {
        addresses(&self.addresses)
    }
}

/// A node's addresses, as its record has them.
pub fn addresses(record: &Value) -> Vec<String> {
    record.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[derive(sqlx::FromRow)]
struct SeenRow {
    id: Uuid,
    rank: i32,
    active: bool,
    noderole_id: Uuid,
    role: String,
    instance: i32,
    role_hash: Vec<u8>,
    doc: Vec<u8>,
    system_data: Value,
    data: Value,
    wall: Option<Value>,
    wall_run: Option<i64>,
    node_id: Uuid,
    fqdn: String,
    phantom: bool,
    addresses: Value,
}

impl SeenRow {
    fn into_seen(self, distance: Option<u32>) -> Result<SeenStep, StoreError> {
        let hash = |bytes: &[u8]| {
            Hash::from_bytes(bytes)
                .ok_or_else(|| StoreError::corrupt(format!("step {}", self.id), "a hash has 32 bytes"))
        };
        Ok(SeenStep {
            step: StepId(self.id),
            rank: self.rank.unsigned_abs(),
            distance,
            active: self.active,
            noderole: NoderoleId(self.noderole_id),
            role_hash: hash(&self.role_hash)?,
            deployment_doc: hash(&self.doc)?,
            role: self.role,
            instance: self.instance.unsigned_abs(),
            system_data: self.system_data,
            data: self.data,
            wall: self.wall.unwrap_or(Value::Null),
            wall_run: self.wall_run.map(RunId),
            node: NodeId(self.node_id),
            fqdn: self.fqdn,
            phantom: self.phantom,
            addresses: self.addresses,
        })
    }
}

/// The hard edges above a step: (child, parent). Ways are not walked, only edges, however many ways lead over them.
async fn edges_above(pool: &PgPool, step: StepId) -> Result<Vec<(StepId, StepId)>, StoreError> {
    let edges: Vec<(Uuid, Uuid)> = sqlx::query_as(
        "WITH RECURSIVE above (id) AS (
           SELECT $1::uuid UNION SELECT e.parent FROM above a JOIN edge e ON e.child = a.id AND e.kind = 'hard')
         SELECT e.child, e.parent FROM above a JOIN edge e ON e.child = a.id AND e.kind = 'hard'",
    )
    .bind(step.0)
    .fetch_all(pool)
    .await?;
    Ok(edges.into_iter().map(|(child, parent)| (StepId(child), StepId(parent))).collect())
}

/// The steps that a run of this step sees: the ACTIVE ones on its node and its ancestors by hard edges. One that is both comes
/// twice.
///
/// # Errors
/// What the database refused.
pub async fn seen_steps(pool: &PgPool, step: StepId, node: NodeId) -> Result<Vec<SeenStep>, StoreError> {
    let above = distances(step, &edges_above(pool, step).await?);
    let ids: Vec<Uuid> = above.keys().map(|step| step.0).collect();
    let ancestors = seen_rows(pool, "s.id = ANY($1)", (&ids, None)).await?;
    let beside =
        seen_rows(pool, "s.node_id = $2 AND s.state = 'active' AND s.id <> ALL($1)", (&[step.0], Some(node))).await?;
    let ancestors = ancestors.into_iter().map(|row| {
        let distance = above.get(&StepId(row.id)).copied();
        row.into_seen(distance)
    });
    ancestors.chain(beside.into_iter().map(|row| row.into_seen(None))).collect()
}

async fn seen_rows(
    pool: &PgPool,
    which: &'static str,
    (ids, node): (&[Uuid], Option<NodeId>),
) -> Result<Vec<SeenRow>, StoreError> {
    let query = sqlx::AssertSqlSafe(format!(
        "SELECT s.id, s.rank, s.state = 'active' AS active, s.noderole_id, n.role, n.instance, n.role_hash, d.doc,
           n.system_data, n.data, CASE WHEN s.state = 'active' THEN s.wall END AS wall, s.wall_run,
           s.node_id, o.fqdn, o.phantom,
           CASE WHEN o.address <> '[]' THEN o.address ELSE coalesce(o.connection -> 'addresses', '[]') END AS addresses
         FROM step s JOIN noderole n ON n.id = s.noderole_id JOIN deployment d ON d.id = n.deployment_id
         JOIN node o ON o.id = s.node_id
         WHERE {which} AND s.skipped IS NULL AND ($2::uuid IS NULL OR s.node_id = $2)"
    ));
    Ok(sqlx::query_as(query).bind(ids).bind(node.map(|node| node.0)).fetch_all(pool).await?)
}

/// A result that is kept for a node.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct KeptResult {
    /// The attempt.
    pub run: i64,
    /// Of which step.
    pub step: Uuid,
    /// The role.
    pub role: String,
    /// Which of the role's instances on the node.
    pub instance: i32,
    /// What was done.
    pub action: String,
    /// How it ended.
    pub outcome: String,
    /// The target that it carried out.
    pub generation: i64,
    /// When it ended.
    pub at: OffsetDateTime,
    /// What it returned.
    pub result: Value,
}

/// The results that are kept for a node: the newest `limit`, and how many there are in all.
///
/// # Errors
/// What the database refused.
pub async fn kept_results(pool: &PgPool, node: NodeId, limit: i64) -> Result<(Vec<KeptResult>, usize), StoreError> {
    let all: i64 =
        sqlx::query_scalar("SELECT count(*) FROM run WHERE node_id = $1 AND result IS NOT NULL AND result_bytes > 0")
            .bind(node.0)
            .fetch_one(pool)
            .await?;
    if all == 0 {
        return Ok((Vec::new(), 0));
    }
    let rows = sqlx::query_as(
        "SELECT r.id AS run, r.step_id AS step, nr.role, nr.instance, s.action, r.outcome, r.generation, r.ended_at AS at, r.result
         FROM (SELECT id, row_number() OVER (PARTITION BY step_id ORDER BY id DESC) AS nth FROM run
               WHERE node_id = $1 AND result IS NOT NULL AND result_bytes > 0 ORDER BY 2, 1 DESC LIMIT $2) kept
         JOIN run r ON r.id = kept.id JOIN step s ON s.id = r.step_id JOIN noderole nr ON nr.id = s.noderole_id
         WHERE r.ended_at IS NOT NULL AND r.result IS NOT NULL ORDER BY r.id DESC",
    )
    .bind(node.0)
    .bind(limit)
    .fetch_all(pool)
    .await?;
    Ok((rows, usize::try_from(all).unwrap_or(0)))
}

/// Keeps what a run is told and what it is given beside that, secrets as references, and says that it runs. False: the run is no longer
/// this worker's.
///
/// # Errors
/// What the database refused.
pub async fn record_input(
    pool: &PgPool,
    run: &RunFacts,
    worker: WorkerId,
    input: &Value,
    surroundings: &Value,
) -> Result<bool, StoreError> {
    let mut transaction = pool.begin().await?;
    let kept = sqlx::query(
        "UPDATE run SET input = $3, surroundings = $4 WHERE id = $1 AND worker_id = $2 AND state = 'running'",
    )
    .bind(run.run.0)
    .bind(worker.0)
    .bind(input)
    .bind(surroundings)
    .execute(&mut *transaction)
    .await?;
    if kept.rows_affected() == 1 {
        let events = run_events(run.run.0, run.noderole.0, run.deployment.0, "running", 0);
        append_events(&mut transaction, &events, &[]).await?;
    }
    transaction.commit().await?;
    Ok(kept.rows_affected() == 1)
}
