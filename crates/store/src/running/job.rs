//! What a run needs to start: what it is about, the documents that say so, what it sees, and who approved it.

use std::collections::{BTreeMap, BTreeSet};

use engine::Hash;
use engine::ids::{DeploymentId, NodeId, NoderoleId, RunId, StepId, TargetNo};
use serde_json::Value;
use sqlx::PgPool;
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
}

#[derive(sqlx::FromRow)]
struct FactsRow {
    id: i64,
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
}

impl FactsRow {
    fn into_facts(self) -> Result<RunFacts, StoreError> {
        let run = RunId(self.id);
        Ok(RunFacts {
            run,
            step: StepId(self.step_id),
            noderole: NoderoleId(self.noderole_id),
            role: self.role,
            instance: self.instance.unsigned_abs(),
            role_hash: hash(run, &self.role_hash)?,
            deployment: DeploymentId(self.deployment_id),
            system_data: self.system_data,
            generation: TargetNo(self.generation),
            target: TargetNo(self.target_number),
            target_root: hash(run, &self.target_root)?,
            generation_root: hash(run, &self.generation_root)?,
            epoch: self.epoch,
            epoch_now: self.epoch_now,
            content: hash(run, &self.content_hash)?,
            exclusive: self.exclusive,
            node: NodeId(self.node_id),
            fqdn: self.fqdn,
            phantom: self.phantom,
            connection: self.connection,
        })
    }
}

fn hash(run: RunId, bytes: &[u8]) -> Result<Hash, StoreError> {
    Hash::from_bytes(bytes).ok_or_else(|| StoreError::corrupt(format!("run {run}"), "a hash has 32 bytes"))
}

/// Runs and where they point. Those that are missing are not there.
///
/// # Errors
/// What the database refused.
pub async fn run_facts(pool: &PgPool, runs: &[RunId]) -> Result<BTreeMap<RunId, RunFacts>, StoreError> {
    let rows: Vec<FactsRow> = sqlx::query_as(
        "SELECT r.id, r.step_id, s.noderole_id, nr.role, nr.instance, nr.role_hash, nr.deployment_id, nr.system_data,
           r.generation, r.target_number, t.root AS target_root, g.root AS generation_root, r.epoch,
           h.epoch AS epoch_now, r.content_hash, r.exclusive, r.node_id, n.fqdn, n.phantom,
           jsonb_build_object('transport', n.transport, 'addresses', n.address) || n.connection AS connection
         FROM run r JOIN step s ON s.id = r.step_id JOIN noderole nr ON nr.id = s.noderole_id
         JOIN node n ON n.id = r.node_id JOIN target t ON t.number = r.target_number
         JOIN target g ON g.number = r.generation CROSS JOIN head h
         WHERE r.id = ANY($1)",
    )
    .bind(runs.iter().map(|run| run.0).collect::<Vec<_>>())
    .fetch_all(pool)
    .await?;
    rows.into_iter().map(|row| Ok((RunId(row.id), row.into_facts()?))).collect()
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

/// The chains from targets to their verdicts. No verdict comes in once the proposal is committed, so all of them count, whatever the
/// clocks said when they came. A target that is missing is not there.
///
/// # Errors
/// What the database refused.
pub async fn approvals(
    pool: &PgPool,
    targets: &BTreeSet<TargetNo>,
) -> Result<BTreeMap<TargetNo, Approval>, StoreError> {
    let rows: Vec<Approval> = sqlx::query_as(
        "WITH last AS (
           SELECT DISTINCT ON (t.number, v.person_id) t.number, v.person_id, v.kind
           FROM target t JOIN verdict v ON v.submission_id = t.submission_id
           WHERE t.number = ANY($1) AND v.person_id IS NOT NULL
             AND NOT EXISTS (SELECT FROM submission_author a
                             WHERE a.submission_id = v.submission_id AND a.person_id = v.person_id)
           ORDER BY t.number, v.person_id, v.id DESC)
         SELECT t.number, t.kind, t.submission_id AS submission, s.approvals_needed AS needed,
           (SELECT count(*) FROM last WHERE last.number = t.number AND last.kind = 'approve') AS approving,
           (SELECT count(*) FROM last WHERE last.number = t.number AND last.kind <> 'approve') AS objecting
         FROM target t LEFT JOIN submission s ON s.id = t.submission_id WHERE t.number = ANY($1)",
    )
    .bind(targets.iter().map(|target| target.0).collect::<Vec<_>>())
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|approval| (TargetNo(approval.number), approval)).collect())
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
    /// Its role, by name.
    pub role: String,
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
}

#[derive(sqlx::FromRow)]
struct SeenRow {
    of_step: Uuid,
    id: Uuid,
    rank: i32,
    distance: Option<i32>,
    active: bool,
    role: String,
    role_hash: Vec<u8>,
    doc: Vec<u8>,
    system_data: Value,
    data: Value,
    wall: Option<Value>,
}

/// The steps that runs of these steps, on these nodes, see: the ACTIVE ones on the node and its ancestors by hard edges. One that is
/// both comes twice. A step that sees nothing is missing in the answer.
///
/// # Errors
/// What the database refused.
pub async fn seen_steps(pool: &PgPool, of: &[(StepId, NodeId)]) -> Result<BTreeMap<StepId, Vec<SeenStep>>, StoreError> {
    // OFFSET 0: as in `world`, edges are read by their keys however many the database thinks there are.
    let rows: Vec<SeenRow> = sqlx::query_as(
        "WITH RECURSIVE asked AS MATERIALIZED (SELECT * FROM unnest($1::uuid[], $2::uuid[]) AS a (step, node)),
         above (of_step, id, distance) AS (
           SELECT a.step, e.parent, 1
           FROM asked a CROSS JOIN LATERAL (SELECT parent FROM edge WHERE child = a.step AND kind = 'hard' OFFSET 0) e
           UNION
           SELECT a.of_step, e.parent, a.distance + 1
           FROM above a CROSS JOIN LATERAL (SELECT parent FROM edge WHERE child = a.id AND kind = 'hard' OFFSET 0) e),
         seen AS (
           SELECT of_step, id, min(distance) AS distance FROM above GROUP BY of_step, id
           UNION ALL
           SELECT a.step, s.id, NULL
           FROM asked a CROSS JOIN LATERAL (
             SELECT id FROM step WHERE node_id = a.node AND state = 'active' AND id <> a.step OFFSET 0) s)
         SELECT seen.of_step, s.id, s.rank, seen.distance, s.state = 'active' AS active, n.role, n.role_hash, d.doc,
           n.system_data, n.data, CASE WHEN s.state = 'active' THEN s.wall END AS wall
         FROM seen JOIN step s ON s.id = seen.id JOIN noderole n ON n.id = s.noderole_id
         JOIN deployment d ON d.id = n.deployment_id
         WHERE s.skipped IS NULL",
    )
    .bind(of.iter().map(|(step, _)| step.0).collect::<Vec<_>>())
    .bind(of.iter().map(|(_, node)| node.0).collect::<Vec<_>>())
    .fetch_all(pool)
    .await?;
    let mut seen: BTreeMap<StepId, Vec<SeenStep>> = BTreeMap::new();
    for row in rows {
        seen.entry(StepId(row.of_step)).or_default().push(row.into_step()?);
    }
    Ok(seen)
}

impl SeenRow {
    fn into_step(self) -> Result<SeenStep, StoreError> {
        let wrong = || StoreError::corrupt(format!("step {}", self.id), "it has a hash that has no 32 bytes");
        Ok(SeenStep {
            step: StepId(self.id),
            rank: self.rank.unsigned_abs(),
            distance: self.distance.map(i32::unsigned_abs),
            active: self.active,
            role_hash: Hash::from_bytes(&self.role_hash).ok_or_else(wrong)?,
            deployment_doc: Hash::from_bytes(&self.doc).ok_or_else(wrong)?,
            role: self.role,
            system_data: self.system_data,
            data: self.data,
            wall: self.wall.unwrap_or(Value::Null),
        })
    }
}

/// Keeps what runs are told, secrets as references, and says that they run. Gives those that are still this worker's.
///
/// # Errors
/// What the database refused.
pub async fn record_inputs(
    pool: &PgPool,
    worker: WorkerId,
    inputs: &[(&RunFacts, &Value)],
) -> Result<BTreeSet<RunId>, StoreError> {
    let mut transaction = pool.begin().await?;
    let kept: Vec<i64> = sqlx::query_scalar(
        "WITH told AS MATERIALIZED (SELECT * FROM unnest($2::bigint[], $3::jsonb[]) AS t (id, input)),
         locked AS (SELECT id FROM run WHERE id = ANY($2) AND worker_id = $1 AND state = 'running' ORDER BY id FOR UPDATE)
         UPDATE run r SET input = told.input FROM locked JOIN told ON told.id = locked.id WHERE r.id = locked.id RETURNING r.id",
    )
    .bind(worker.0)
    .bind(inputs.iter().map(|(facts, _)| facts.run.0).collect::<Vec<_>>())
    .bind(inputs.iter().map(|(_, input)| *input).collect::<Vec<_>>())
    .fetch_all(&mut *transaction)
    .await?;
    let kept: BTreeSet<RunId> = kept.into_iter().map(RunId).collect();
    let running = inputs.iter().map(|(facts, _)| facts).filter(|facts| kept.contains(&facts.run));
    let events: Vec<_> =
        running.flat_map(|facts| run_events(facts.run.0, facts.noderole.0, facts.deployment.0, "running", 0)).collect();
    append_events(&mut transaction, &events, &[]).await?;
    transaction.commit().await?;
    Ok(kept)
}
