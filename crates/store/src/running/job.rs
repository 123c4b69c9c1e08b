//! What a run needs to start: what it is about, the documents that say so, what it sees, and who approved it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::Hash;
use engine::data::distances;
use engine::ids::{DeploymentId, NodeId, NoderoleId, RunId, StepId, SubmissionId, TargetNo};
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
    /// The last target up to that one that a review made: a switch turns execution off or on, and changes nothing else.
    pub reviewed: TargetNo,
    /// Its root.
    pub reviewed_root: Hash,
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
    /// How its row says that it is reached, in the form of a document. None: a phantom.
    pub connection: Option<Value>,
    /// Where it belongs, by name.
    pub home: String,
    /// What is known of it.
    pub facts: Value,
    /// The hints that its row has.
    pub hints: Value,
    /// The target in force.
    pub head: TargetNo,
    /// Its root: what rows are compared with.
    pub head_root: Hash,
    /// Intent as the rows have it, and what stands in the way of a start.
    pub rows: RunRows,
}

/// Rows around a run, of one moment with [`RunFacts::head_root`].
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct RunRows {
    /// `step.node_id`.
    pub step_node: Uuid,
    /// `step.state`.
    pub step_state: String,
    /// `step.jig`.
    pub jig: String,
    /// `step.destructive`.
    pub destructive: bool,
    /// `step.exclusive`.
    pub step_exclusive: bool,
    /// `step.instant`.
    pub instant: bool,
    /// `step.needs`.
    pub needs: String,
    /// `step.place`.
    pub place: String,
    /// `step.rank`.
    pub rank: i32,
    /// `step.timeout_s`.
    pub timeout_s: i32,
    /// `step.generation`.
    pub step_generation: i64,
    /// `step.applied_generation`.
    pub applied_generation: i64,
    /// `lane.name` of the run.
    pub lane: String,
    /// `lane.deployment_id` of the run.
    pub lane_deployment: Uuid,
    /// Whether the run's and the step's concurrency groups are one.
    pub same_lane: bool,
    /// `noderole.data`.
    pub data: Value,
    /// `node.deployment_id`.
    pub node_deployment: Uuid,
    /// `head.enabled`.
    pub enabled: bool,
    /// Whether its deployment, or one above it, is on hold.
    pub on_hold: bool,
    /// `node.available`; a phantom always is.
    pub available: bool,
    /// Whether the node is as the step needs it.
    pub fits: bool,
    /// `jig.active`.
    pub jig_active: bool,
    /// The parents that the rows name: `{parent: noderole, role, instance, node, fqdn, kind, state, instant, skipped}`.
    pub parents: Value,
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
    reviewed: i64,
    reviewed_root: Vec<u8>,
    generation_root: Vec<u8>,
    epoch: i64,
    epoch_now: i64,
    content_hash: Vec<u8>,
    exclusive: bool,
    node_id: Uuid,
    fqdn: String,
    phantom: bool,
    connection: Option<Value>,
    home: String,
    facts: Value,
    hints: Value,
    head: i64,
    head_root: Vec<u8>,
    #[sqlx(flatten)]
    rows: RunRows,
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
            reviewed: TargetNo(self.reviewed),
            reviewed_root: hash(run, &self.reviewed_root)?,
            generation_root: hash(run, &self.generation_root)?,
            epoch: self.epoch,
            epoch_now: self.epoch_now,
            content: hash(run, &self.content_hash)?,
            exclusive: self.exclusive,
            node: NodeId(self.node_id),
            fqdn: self.fqdn,
            phantom: self.phantom,
            connection: self.connection,
            home: self.home,
            facts: self.facts,
            hints: self.hints,
            head: TargetNo(self.head),
            head_root: hash(run, &self.head_root)?,
            rows: self.rows,
        })
    }
}

fn hash(run: RunId, bytes: &[u8]) -> Result<Hash, StoreError> {
    Hash::from_bytes(bytes)
        .ok_or_else(|| StoreError::corrupt(format!("run {run}"), "a hash has 32 bytes"))
}

/// Runs and where they point. Those that are missing are not there.
///
/// # Errors
/// What the database refused.
pub async fn run_facts(
    pool: &PgPool,
    runs: &[RunId],
) -> Result<BTreeMap<RunId, RunFacts>, StoreError> {
    let rows: Vec<FactsRow> = sqlx::query_as(
        "SELECT r.id, r.step_id, s.noderole_id, nr.role, nr.instance, nr.role_hash, nr.deployment_id, nr.system_data,
           r.generation, r.target_number, t.root AS target_root, m.number AS reviewed, m.root AS reviewed_root,
           g.root AS generation_root, r.epoch,
           h.epoch AS epoch_now, r.content_hash, r.exclusive, r.node_id, n.fqdn, n.phantom,
           node_connection(n.transport, n.address, n.connection) AS connection,
           d.name AS home, n.facts, n.hints, h.number AS head, ht.root AS head_root,
           s.node_id AS step_node, s.state AS step_state, s.jig, s.destructive, s.exclusive AS step_exclusive, s.instant, s.needs,
           s.place, s.rank, s.timeout_s, s.generation AS step_generation, s.applied_generation, l.name AS lane,
           l.deployment_id AS lane_deployment, r.lane_id = s.lane_id AS same_lane, nr.data, n.deployment_id AS node_deployment, h.enabled,
           on_hold(nr.deployment_id) AS on_hold, n.phantom OR n.available AS available,
           node_fits(s.needs, n.phantom, n.removed_in, n.available, n.alive, n.joined) AS fits, j.active AS jig_active,
           coalesce((SELECT jsonb_agg(jsonb_build_object('parent', p.noderole_id, 'role', pr.role, 'instance', pr.instance,
               'node', p.node_id, 'fqdn', pn.fqdn, 'kind', e.kind, 'state', p.state, 'instant', p.instant,
               'skipped', p.skipped IS NOT NULL))
             FROM edge e JOIN step p ON p.id = e.parent JOIN noderole pr ON pr.id = p.noderole_id JOIN node pn ON pn.id = p.node_id
             WHERE e.child = s.id), '[]') AS parents
         FROM run r JOIN step s ON s.id = r.step_id JOIN noderole nr ON nr.id = s.noderole_id
         JOIN node n ON n.id = r.node_id JOIN deployment d ON d.id = n.deployment_id JOIN target t ON t.number = r.target_number
         JOIN target g ON g.number = r.generation JOIN lane l ON l.id = r.lane_id JOIN jig j ON j.name = s.jig
         CROSS JOIN head h JOIN target ht ON ht.number = h.number
         CROSS JOIN LATERAL (SELECT number, root FROM target WHERE number <= r.target_number AND kind <> 'switch'
                             ORDER BY number DESC LIMIT 1) m
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
    /// Its risks.
    pub risk: Option<Vec<String>>,
    /// The policy under which it was made, by content.
    pub policy: Option<Vec<u8>>,
    /// The one that it brings into force, by content.
    pub new_policy: Option<Vec<u8>>,
    /// People, no authors, whose last verdict before the commit approved it.
    pub approving: i64,
    /// People, no authors, whose last verdict before the commit did not.
    pub objecting: i64,
}

/// A target whose approvals must be signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedTarget {
    /// The target.
    pub number: TargetNo,
    /// Its submission.
    pub submission: SubmissionId,
    /// The verdicts that approve it and count, if they are signed.
    pub approving: BTreeSet<i64>,
}

/// The targets after one and up to another whose approvals must be signed, in order.
///
/// # Errors
/// What the database refused.
pub async fn signed_targets(
    pool: &PgPool,
    after: TargetNo,
    to: TargetNo,
    most: i64,
) -> Result<Vec<SignedTarget>, StoreError> {
    let demanded: Vec<(i64, i64)> = sqlx::query_as(
        "SELECT t.number, t.submission_id FROM target t JOIN signature_demand g ON g.submission_id = t.submission_id \
         WHERE t.number > $1 AND t.number <= $2 ORDER BY t.number LIMIT $3",
    )
    .bind(after.0)
    .bind(to.0)
    .bind(most)
    .fetch_all(pool)
    .await?;
    if demanded.is_empty() {
        return Ok(Vec::new());
    }
    let sql =
        format!("WITH {LAST} SELECT number, id FROM last WHERE kind = 'approve' AND NOT barred");
    let numbers: Vec<i64> = demanded.iter().map(|(number, _)| *number).collect();
    let verdicts: Vec<(i64, i64)> =
        sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(numbers).fetch_all(pool).await?;
    let mut approving: BTreeMap<i64, BTreeSet<i64>> = BTreeMap::new();
    for (number, verdict) in verdicts {
        approving.entry(number).or_default().insert(verdict);
    }
    let target = |(number, submission)| SignedTarget {
        number: TargetNo(number),
        submission: SubmissionId(submission),
        approving: approving.remove(&number).unwrap_or_default(),
    };
    Ok(demanded.into_iter().map(target).collect())
}

/// Everyone's last verdict on the submissions of the targets $1, of people who are no authors. It needs no place in the session's time: no
/// verdict comes in once the proposal is committed.
const LAST: &str = "last AS (
           SELECT DISTINCT ON (t.number, v.person_id) t.number, v.id, v.person_id, v.kind,
             v.kind = 'approve' AND approval_barred(v.person_id, v.submission_id, v.at) AS barred
           FROM target t JOIN verdict v ON v.submission_id = t.submission_id
           WHERE t.number = ANY($1) AND v.person_id IS NOT NULL
             AND EXISTS (SELECT FROM person p WHERE p.id = v.person_id AND p.kind = 'human')
             AND NOT EXISTS (SELECT FROM submission_author a
                             WHERE a.submission_id = v.submission_id AND a.person_id = v.person_id)
             AND NOT EXISTS (SELECT FROM submission m LEFT JOIN edit e ON e.proposal_id = m.proposal_id
                             WHERE m.id = v.submission_id AND (m.created_by = v.person_id
                               OR e.actor = v.person_id AND NOT e.undone OR v.person_id = ANY (e.touched_by)))
           ORDER BY t.number, v.person_id, v.id DESC)";

/// The chains from targets to their verdicts. No verdict comes in once the proposal is committed, so all of them count, but for
/// approvals by people whose access an author had given. What happens later takes nothing away: a confirmation can only add an approval,
/// and disabling an account voids verdicts on open reviews alone. A target that is missing is not there.
///
/// # Errors
/// What the database refused.
pub async fn approvals(
    pool: &PgPool,
    targets: &BTreeSet<TargetNo>,
) -> Result<BTreeMap<TargetNo, Approval>, StoreError> {
    let sql = format!(
        "WITH {LAST}
         SELECT t.number, t.kind, t.submission_id AS submission, s.approvals_needed AS needed, s.risk, y.hash AS policy,
           s.new_policy_hash AS new_policy,
           (SELECT count(*) FROM last WHERE last.number = t.number AND last.kind = 'approve' AND NOT last.barred) AS approving,
           (SELECT count(*) FROM last WHERE last.number = t.number AND last.kind <> 'approve') AS objecting
         FROM target t LEFT JOIN submission s ON s.id = t.submission_id LEFT JOIN policy y ON y.number = s.policy_number
         WHERE t.number = ANY($1)"
    );
    let rows: Vec<Approval> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
        .bind(targets.iter().map(|target| target.0).collect::<Vec<_>>())
        .fetch_all(pool)
        .await?;
    Ok(rows.into_iter().map(|approval| (TargetNo(approval.number), approval)).collect())
}

/// A step that a run sees. Many runs see the same ones, so its data is there once.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// How many hard edges above the run's step, at least. None: it is on the same node, ACTIVE.
    pub distance: Option<u32>,
    /// The step.
    pub step: Arc<SeenStep>,
}

/// What one step lets a run see.
#[derive(Debug, PartialEq)]
pub struct SeenStep {
    /// The step.
    pub step: StepId,
    /// Its place in the graph.
    pub rank: u32,
    /// Whether it is ACTIVE: only then has it a wall for others.
    pub active: bool,
    /// Whether its row says that it is left out, which no document says.
    pub skipped: bool,
    /// Whose it is.
    pub noderole: NoderoleId,
    /// Its role, by name.
    pub role: String,
    /// Which of the role's instances there.
    pub instance: u32,
    /// Its role, by content.
    pub role_hash: Hash,
    /// The deployment that it is bound in.
    pub deployment: DeploymentId,
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
    /// The target in force when this was read.
    pub head: TargetNo,
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
    skipped: bool,
    noderole_id: Uuid,
    role: String,
    instance: i32,
    role_hash: Vec<u8>,
    deployment_id: Uuid,
    system_data: Value,
    data: Value,
    wall: Option<Value>,
    wall_run: Option<i64>,
    node_id: Uuid,
    fqdn: String,
    phantom: bool,
    addresses: Value,
    head: i64,
}

impl SeenRow {
    fn into_seen(self) -> Result<SeenStep, StoreError> {
        let hash = |bytes: &[u8]| {
            Hash::from_bytes(bytes).ok_or_else(|| {
                StoreError::corrupt(format!("step {}", self.id), "a hash has 32 bytes")
            })
        };
        Ok(SeenStep {
            step: StepId(self.id),
            rank: self.rank.unsigned_abs(),
            active: self.active,
            skipped: self.skipped,
            noderole: NoderoleId(self.noderole_id),
            role_hash: hash(&self.role_hash)?,
            deployment: DeploymentId(self.deployment_id),
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
            head: TargetNo(self.head),
        })
    }
}

/// The hard edges above steps: (child, parent). Ways are not walked, only edges, however many ways lead over them.
async fn edges_above(pool: &PgPool, steps: &[Uuid]) -> Result<Vec<(StepId, StepId)>, StoreError> {
    // OFFSET 0: as in `world`, edges are read by their keys however many the database thinks there are.
    let edges: Vec<(Uuid, Uuid)> = sqlx::query_as(
        "WITH RECURSIVE above (id) AS (
           SELECT * FROM unnest($1::uuid[])
           UNION
           SELECT e.parent FROM above a
           CROSS JOIN LATERAL (SELECT parent FROM edge WHERE child = a.id AND kind = 'hard' OFFSET 0) e)
         SELECT a.id, e.parent FROM above a
         CROSS JOIN LATERAL (SELECT parent FROM edge WHERE child = a.id AND kind = 'hard' OFFSET 0) e",
    )
    .bind(steps)
    .fetch_all(pool)
    .await?;
    Ok(edges.into_iter().map(|(child, parent)| (StepId(child), StepId(parent))).collect())
}

/// The steps that runs of these steps, on these nodes, see: the ACTIVE ones on the node and its ancestors by hard edges. One that is
/// both comes twice.
///
/// # Errors
/// What the database refused.
pub async fn seen_steps(
    pool: &PgPool,
    of: &[(StepId, NodeId)],
) -> Result<BTreeMap<StepId, Vec<Seen>>, StoreError> {
    let steps: Vec<Uuid> = of.iter().map(|(step, _)| step.0).collect();
    let edges = edges_above(pool, &steps).await?;
    let parents: BTreeSet<Uuid> = edges.iter().map(|(_, parent)| parent.0).collect();
    let nodes: BTreeSet<Uuid> = of.iter().map(|(_, node)| node.0).collect();
    let rows = seen_rows(pool, parents.into_iter().collect(), nodes.into_iter().collect()).await?;
    let rows = rows
        .into_iter()
        .map(|row| Ok((row.id, Arc::new(row.into_seen()?))))
        .collect::<Result<BTreeMap<_, _>, StoreError>>()?;
    let mut beside: BTreeMap<NodeId, Vec<&Arc<SeenStep>>> = BTreeMap::new();
    for step in rows.values().filter(|step| step.active) {
        beside.entry(step.node).or_default().push(step);
    }
    let seen = of.iter().map(|(step, node)| {
        let above = distances(*step, &edges).into_iter();
        let ancestors = above.filter_map(|(ancestor, distance)| {
            Some(Seen { distance: Some(distance), step: Arc::clone(rows.get(&ancestor.0)?) })
        });
        let beside = beside.get(node).into_iter().flatten().filter(|other| other.step != *step);
        (
            *step,
            ancestors
                .chain(beside.map(|other| Seen { distance: None, step: Arc::clone(other) }))
                .collect(),
        )
    });
    Ok(seen.collect())
}

/// These steps, and all that are ACTIVE on these nodes.
async fn seen_rows(
    pool: &PgPool,
    steps: Vec<Uuid>,
    nodes: Vec<Uuid>,
) -> Result<Vec<SeenRow>, StoreError> {
    let rows = sqlx::query_as(
        "WITH seen AS MATERIALIZED (
           SELECT * FROM unnest($1::uuid[]) AS s (id)
           UNION
           SELECT s.id FROM unnest($2::uuid[]) AS o (id)
           CROSS JOIN LATERAL (SELECT id FROM step WHERE node_id = o.id AND state = 'active' OFFSET 0) s)
         SELECT s.id, s.rank, s.state = 'active' AS active,
           s.skipped IS NOT NULL AS skipped, s.noderole_id, n.role, n.instance, n.role_hash, n.deployment_id,
           n.system_data, n.data, CASE WHEN s.state = 'active' THEN s.wall END AS wall, s.wall_run,
           s.node_id, o.fqdn, o.phantom,
           CASE WHEN o.address <> '[]' THEN o.address ELSE coalesce(o.connection -> 'addresses', '[]') END AS addresses,
           (SELECT number FROM head) AS head
         FROM seen JOIN step s ON s.id = seen.id JOIN noderole n ON n.id = s.noderole_id
         JOIN node o ON o.id = s.node_id",
    )
    .bind(steps)
    .bind(nodes)
    .fetch_all(pool)
    .await?;
    Ok(rows)
}

/// A result that is kept for a node.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct KeptResult {
    /// The node.
    pub node: Uuid,
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

/// The results that are kept for each of these nodes: the newest `limit`, and how many there are in all. A node that is missing has
/// none.
///
/// # Errors
/// What the database refused.
pub async fn kept_results(
    pool: &PgPool,
    nodes: &BTreeSet<NodeId>,
    limit: i64,
) -> Result<BTreeMap<NodeId, (Vec<KeptResult>, usize)>, StoreError> {
    let counts: Vec<(Uuid, i64)> = sqlx::query_as(
        "SELECT node_id, count(*) FROM run WHERE node_id = ANY($1) AND result IS NOT NULL AND result_bytes > 0 GROUP BY node_id",
    )
    .bind(nodes.iter().map(|node| node.0).collect::<Vec<_>>())
    .fetch_all(pool)
    .await?;
    if counts.is_empty() {
        return Ok(BTreeMap::new());
    }
    let rows: Vec<KeptResult> = sqlx::query_as(
        "SELECT o.id AS node, r.id AS run, r.step_id AS step, nr.role, nr.instance, s.action, r.outcome, r.generation,
           r.ended_at AS at, r.result
         FROM unnest($1::uuid[]) AS o (id)
         CROSS JOIN LATERAL (
           SELECT id, row_number() OVER (PARTITION BY step_id ORDER BY id DESC) AS nth FROM run
           WHERE node_id = o.id AND result IS NOT NULL AND result_bytes > 0 ORDER BY 2, 1 DESC LIMIT $2) kept
         JOIN run r ON r.id = kept.id JOIN step s ON s.id = r.step_id JOIN noderole nr ON nr.id = s.noderole_id
         WHERE r.ended_at IS NOT NULL AND r.result IS NOT NULL ORDER BY r.id DESC",
    )
    .bind(counts.iter().map(|(node, _)| *node).collect::<Vec<_>>())
    .bind(limit)
    .fetch_all(pool)
    .await?;
    let mut kept: BTreeMap<NodeId, (Vec<KeptResult>, usize)> = counts
        .into_iter()
        .map(|(node, all)| (NodeId(node), (Vec::new(), usize::try_from(all).unwrap_or(0))))
        .collect();
    for row in rows {
        kept.entry(NodeId(row.node)).or_default().0.push(row);
    }
    Ok(kept)
}

/// What a run is told: its input, and what it is given beside that.
#[derive(Debug)]
pub struct Given<'r> {
    /// The run.
    pub facts: &'r RunFacts,
    /// Its input with the sources, secrets as references.
    pub input: &'r Value,
    /// What surrounds it, secrets as references.
    pub surroundings: &'r Value,
}

/// Keeps what runs are told and what they are given beside that, and says that they run. Gives those that are still this worker's.
///
/// # Errors
/// What the database refused.
pub async fn record_inputs(
    pool: &PgPool,
    worker: WorkerId,
    given: &[Given<'_>],
) -> Result<BTreeSet<RunId>, StoreError> {
    let mut transaction = pool.begin().await?;
    let kept: Vec<i64> = sqlx::query_scalar(
        "WITH told AS MATERIALIZED (
           SELECT * FROM unnest($2::bigint[], $3::jsonb[], $4::jsonb[]) AS t (id, input, surroundings)),
         locked AS (SELECT id FROM run WHERE id = ANY($2) AND worker_id = $1 AND state = 'running' ORDER BY id FOR UPDATE)
         UPDATE run r SET input = told.input, surroundings = told.surroundings
         FROM locked JOIN told ON told.id = locked.id WHERE r.id = locked.id RETURNING r.id",
    )
    .bind(worker.0)
    .bind(given.iter().map(|given| given.facts.run.0).collect::<Vec<_>>())
    .bind(given.iter().map(|given| given.input).collect::<Vec<_>>())
    .bind(given.iter().map(|given| given.surroundings).collect::<Vec<_>>())
    .fetch_all(&mut *transaction)
    .await?;
    let kept: BTreeSet<RunId> = kept.into_iter().map(RunId).collect();
    let running = given.iter().map(|given| given.facts).filter(|facts| kept.contains(&facts.run));
    let events: Vec<_> = running
        .flat_map(|facts| {
            run_events(facts.run.0, facts.noderole.0, facts.deployment.0, "running", 0)
        })
        .collect();
    append_events(&mut transaction, &events, &[]).await?;
    transaction.commit().await?;
    Ok(kept)
}
