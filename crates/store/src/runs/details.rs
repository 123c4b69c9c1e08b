//! The data that a run needs to start: the run and its rows, its documents, its visible steps, and
//! its approvals.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::Hash;
use engine::data::ancestor_distances;
use engine::ids::{
    ActionName, BlueprintNumber, DeploymentId, NodeId, NoderoleId, ReviewId, RunId, StepId,
};
use sea_orm::{ColumnTrait, EntityTrait, JoinType, QueryFilter, QueryOrder, QuerySelect};
use serde_json::Value;
use sqlx::PgPool;
use time::OffsetDateTime;
use uuid::Uuid;

use super::results::runs_with_result;
use crate::StoreError;
use crate::connect::orm;
use crate::entity::{blueprint, join, run, signature_demand};
use crate::events::{append_events, run_events};
use crate::workers::WorkerId;

/// A claimed run with the blueprints that it refers to.
#[derive(Debug, Clone, PartialEq)]
pub struct RunFacts {
    pub run: RunId,
    pub step: StepId,
    pub action: ActionName,
    pub noderole: NoderoleId,
    pub role: String,
    pub instance: u32,
    /// The content hash of the role in the noderole's row.
    pub role_hash: Hash,
    /// The deployment in which the noderole is bound.
    pub deployment: DeploymentId,
    pub system_data: Value,
    /// The version of the step's input before anything of it was read.
    pub input_version: i32,
    /// The blueprint that last changed or re-ran the step.
    pub generation: BlueprintNumber,
    /// The blueprint in force when the run was claimed.
    pub target: BlueprintNumber,
    /// The root of `target`.
    pub target_root: Hash,
    /// The last reviewed blueprint up to `target`. Later ones are switches, which only turn
    /// execution off or on.
    pub reviewed: BlueprintNumber,
    /// The root of `reviewed`.
    pub reviewed_root: Hash,
    /// The root of `generation`.
    pub generation_root: Hash,
    /// The epoch when the run was claimed.
    pub epoch: i64,
    /// The current epoch.
    pub epoch_now: i64,
    /// The blueprint before `generation`, if the run removes its noderole. It is the last one that
    /// contains the noderole.
    pub before: Option<Before>,
    /// The content hash in the run's row, which the node's ledger compares.
    pub content: Hash,
    /// Whether no other exclusive run may use the node.
    pub exclusive: bool,
    pub node: NodeId,
    pub fqdn: String,
    /// Whether the node is a phantom.
    pub phantom: bool,
    /// The connection in the node's row, in the form of a document. `None` for a phantom.
    pub connection: Option<Value>,
    /// The name of the node's deployment.
    pub home: String,
    /// The node's facts.
    pub facts: Value,
    /// The hints in the node's row.
    pub hints: Value,
    /// The blueprint in force now.
    pub head: BlueprintNumber,
    /// The root of `head`, which is compared with the rows.
    pub head_root: Hash,
    /// Intent in the rows, and conditions that prevent a start.
    pub rows: RunRows,
}

/// The last blueprint with a noderole that a run removes.
#[derive(Debug, Clone, PartialEq)]
pub struct Before {
    pub root: Hash,
    /// The last reviewed blueprint with this root.
    pub reviewed: BlueprintNumber,
    /// The input of the noderole's last run, with its sources. `None` if no run got an input.
    pub input: Option<Value>,
}

/// Rows around a run, read in one snapshot with [`RunFacts::head_root`].
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct RunRows {
    pub step_node: Uuid,
    pub step_state: String,
    /// `step.jig`.
    pub jig: String,
    /// `step.destructive`.
    pub destructive: bool,
    pub step_exclusive: bool,
    /// `step.immediate`.
    pub immediate: bool,
    /// `step.needs`.
    pub needs: String,
    /// `step.run_location`.
    pub run_location: String,
    /// `step.rank`.
    pub rank: i32,
    /// `step.timeout_s`, in seconds.
    pub timeout_s: i32,
    pub step_generation: i64,
    /// `step.applied_generation`.
    pub applied_generation: i64,
    /// The name of the run's concurrency group.
    pub concurrency_group: String,
    /// The deployment of the run's concurrency group.
    pub group_deployment: Uuid,
    /// Whether run and step have the same concurrency group.
    pub same_group: bool,
    /// `noderole.data`.
    pub data: Value,
    pub node_deployment: Uuid,
    /// `head.enabled`.
    pub enabled: bool,
    /// Whether the noderole's deployment or an ancestor is on hold.
    pub on_hold: bool,
    /// `node.available`. Always true for a phantom.
    pub available: bool,
    /// Whether the node is in the state that the step needs.
    pub fits: bool,
    pub jig_active: bool,
    /// The parents in the rows: `{parent: noderole, role, instance, node, fqdn, kind, state,
    /// immediate, skipped}`.
    pub parents: Value,
}

#[derive(sqlx::FromRow)]
struct FactsRow {
    id: i64,
    step_id: Uuid,
    action: String,
    noderole_id: Uuid,
    role: String,
    instance: i32,
    role_hash: Vec<u8>,
    deployment_id: Uuid,
    system_data: Value,
    input_version: i32,
    generation: i64,
    blueprint_number: i64,
    target_root: Vec<u8>,
    reviewed: i64,
    reviewed_root: Vec<u8>,
    generation_root: Vec<u8>,
    before_root: Option<Vec<u8>>,
    before_reviewed: Option<i64>,
    before_input: Option<Value>,
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
    fn into_details(self) -> Result<RunFacts, StoreError> {
        let run = RunId(self.id);
        let before = match self.before_root.as_deref().zip(self.before_reviewed) {
            None => None,
            Some((root, reviewed)) => Some(Before {
                root: hash(run, root)?,
                reviewed: BlueprintNumber(reviewed),
                input: self.before_input,
            }),
        };
        let action = ActionName::parse(&self.action)
            .map_err(|error| StoreError::corrupt(format!("run {run}"), error))?;
        Ok(RunFacts {
            run,
            step: StepId(self.step_id),
            action,
            before,
            noderole: NoderoleId(self.noderole_id),
            role: self.role,
            instance: self.instance.unsigned_abs(),
            role_hash: hash(run, &self.role_hash)?,
            deployment: DeploymentId(self.deployment_id),
            system_data: self.system_data,
            input_version: self.input_version,
            generation: BlueprintNumber(self.generation),
            target: BlueprintNumber(self.blueprint_number),
            target_root: hash(run, &self.target_root)?,
            reviewed: BlueprintNumber(self.reviewed),
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
            head: BlueprintNumber(self.head),
            head_root: hash(run, &self.head_root)?,
            rows: self.rows,
        })
    }
}

fn hash(run: RunId, bytes: &[u8]) -> Result<Hash, StoreError> {
    Hash::from_bytes(bytes)
        .ok_or_else(|| StoreError::corrupt(format!("run {run}"), "a hash must have 32 bytes"))
}

/// These runs with their rows. Unknown runs are missing in the result.
pub async fn run_details(
    pool: &PgPool,
    runs: &[RunId],
) -> Result<BTreeMap<RunId, RunFacts>, StoreError> {
    let rows: Vec<FactsRow> = sqlx::query_as(include_str!("statements/run_details.sql"))
        .bind(runs.iter().map(|run| run.0).collect::<Vec<_>>())
        .fetch_all(pool)
        .await?;
    rows.into_iter().map(|row| Ok((RunId(row.id), row.into_details()?))).collect()
}

/// The approvals of a blueprint.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Approval {
    /// The number of the blueprint.
    pub number: i64,
    /// genesis, change or switch.
    pub kind: String,
    /// The review of a change.
    pub review: Option<i64>,
    /// The number of approvals that it needed.
    pub needed: Option<i32>,
    pub risk: Option<Vec<String>>,
    /// The hash of the policy in force when the review was submitted.
    pub policy: Option<Vec<u8>>,
    /// The hash of the policy that it introduced.
    pub new_policy: Option<Vec<u8>>,
    /// The number of non-authors whose last verdict before the commit approved.
    pub approving: i64,
}

/// A blueprint whose approvals must be signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedBlueprint {
    pub number: BlueprintNumber,
    pub review: ReviewId,
    /// The approving verdicts that count if they are signed.
    pub approving: BTreeSet<i64>,
}

/// The blueprints after one and up to another whose approvals must be signed, in order.
pub async fn signed_blueprints(
    pool: &PgPool,
    after: BlueprintNumber,
    up_to: BlueprintNumber,
    most: i64,
) -> Result<Vec<SignedBlueprint>, StoreError> {
    let mut connection = pool.acquire().await?;
    let of_review = join(blueprint::Column::ReviewId, signature_demand::Column::ReviewId);
    let demanded: Vec<(i64, i64)> = blueprint::Entity::find()
        .join(JoinType::InnerJoin, of_review)
        .filter(blueprint::Column::Number.gt(after.0))
        .filter(blueprint::Column::Number.lte(up_to.0))
        .order_by_asc(blueprint::Column::Number)
        .limit(most.unsigned_abs())
        .select_only()
        .columns([blueprint::Column::Number, blueprint::Column::ReviewId])
        .into_tuple()
        .all(&orm(&mut connection))
        .await?;
    if demanded.is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!(
        "WITH {LAST_VERDICTS} SELECT number, id FROM last WHERE kind = 'approve' AND NOT barred"
    );
    let numbers: Vec<i64> = demanded.iter().map(|(number, _)| *number).collect();
    let verdicts: Vec<(i64, i64)> =
        sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(numbers).fetch_all(&mut *connection).await?;
    let mut approving: BTreeMap<i64, BTreeSet<i64>> = BTreeMap::new();
    for (number, verdict) in verdicts {
        approving.entry(number).or_default().insert(verdict);
    }
    let target = |(number, review)| SignedBlueprint {
        number: BlueprintNumber(number),
        review: ReviewId(review),
        approving: approving.remove(&number).unwrap_or_default(),
    };
    Ok(demanded.into_iter().map(target).collect())
}

/// Each non-author's last verdict on the reviews of the targets $1. It needs no time limit, because
/// verdicts are impossible after the commit.
const LAST_VERDICTS: &str = include_str!("statements/last_verdicts.sql");

/// The chains from blueprints to their approvals. Verdicts are impossible after the commit, so all
/// approvals count, except those that new access bars. Later events cannot void an approval: a
/// confirmation can only add one, and disabling an account voids verdicts on open reviews only.
/// Unknown blueprints are missing in the result.
///
/// Objections are not counted. The commit ignores those of people who could no longer review, and
/// workers cannot read permissions. The trigger of the commit refuses all others, and no role but
/// the owner can bypass it. Counting them would add no protection: they are not signed, so a client
/// that acts for an objector can replace the objection by an unsigned approval.
pub async fn approvals(
    pool: &PgPool,
    blueprints: &BTreeSet<BlueprintNumber>,
) -> Result<BTreeMap<BlueprintNumber, Approval>, StoreError> {
    let sql = format!(
        "WITH {LAST_VERDICTS}
         SELECT t.number, t.kind, t.review_id AS review, s.approvals_needed AS needed, s.risk, y.hash AS policy,
           s.new_policy_hash AS new_policy,
           (SELECT count(*) FROM last WHERE last.number = t.number AND last.kind = 'approve' AND NOT last.barred) AS approving
         FROM blueprint t LEFT JOIN review s ON s.id = t.review_id LEFT JOIN policy y ON y.number = s.policy_number
         WHERE t.number = ANY($1)"
    );
    let rows: Vec<Approval> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
        .bind(blueprints.iter().map(|target| target.0).collect::<Vec<_>>())
        .fetch_all(pool)
        .await?;
    Ok(rows.into_iter().map(|approval| (BlueprintNumber(approval.number), approval)).collect())
}

/// A step that a run sees. Many runs see the same steps, so they share its data.
#[derive(Debug, Clone, PartialEq)]
pub struct VisibleStep {
    /// The minimum number of hard edges between it and the run's step. `None`: an ACTIVE step on
    /// the same node.
    pub distance: Option<u32>,
    /// Whether the run's step reads from it: a hard parent, or one behind parents without a run.
    pub is_read: bool,
    pub step: Arc<VisibleStepData>,
}

/// The data of a step that runs can see.
#[derive(Debug, PartialEq)]
pub struct VisibleStepData {
    pub step: StepId,
    pub rank: u32,
    /// Whether it has no run: a milestone or a barrier.
    pub immediate: bool,
    /// Whether it is ACTIVE. Only ACTIVE steps have an output.
    pub active: bool,
    /// Whether the row is marked as skipped. Documents do not contain that.
    pub skipped: bool,
    pub noderole: NoderoleId,
    pub role: String,
    pub instance: u32,
    /// The hash of the role.
    pub role_hash: Hash,
    /// The deployment in which the noderole is bound.
    pub deployment: DeploymentId,
    pub system_data: Value,
    /// The noderole's own reviewed data.
    pub data: Value,
    /// The output of its last successful run. Null if it has none or is not ACTIVE.
    pub output: Value,
    /// The run that produced the output.
    pub output_run: Option<RunId>,
    pub node: NodeId,
    pub fqdn: String,
    /// Whether the node is a phantom.
    pub phantom: bool,
    /// The addresses in the node's record.
    pub addresses: Value,
    /// The blueprint in force when this was read.
    pub head: BlueprintNumber,
}

impl VisibleStepData {
    pub fn addresses(&self) -> Vec<String> {
        addresses(&self.addresses)
    }
}

/// The addresses in a node's record.
pub fn addresses(record: &Value) -> Vec<String> {
    record.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[derive(sqlx::FromRow)]
struct StepDataRow {
    id: Uuid,
    rank: i32,
    immediate: bool,
    active: bool,
    skipped: bool,
    noderole_id: Uuid,
    role: String,
    instance: i32,
    role_hash: Vec<u8>,
    deployment_id: Uuid,
    system_data: Value,
    data: Value,
    output: Option<Value>,
    output_run: Option<i64>,
    node_id: Uuid,
    fqdn: String,
    phantom: bool,
    addresses: Value,
    head: i64,
}

impl StepDataRow {
    fn into_step_data(self) -> Result<VisibleStepData, StoreError> {
        let hash = |bytes: &[u8]| {
            Hash::from_bytes(bytes).ok_or_else(|| {
                StoreError::corrupt(format!("step {}", self.id), "a hash must have 32 bytes")
            })
        };
        Ok(VisibleStepData {
            step: StepId(self.id),
            rank: self.rank.unsigned_abs(),
            immediate: self.immediate,
            active: self.active,
            skipped: self.skipped,
            noderole: NoderoleId(self.noderole_id),
            role_hash: hash(&self.role_hash)?,
            deployment: DeploymentId(self.deployment_id),
            role: self.role,
            instance: self.instance.unsigned_abs(),
            system_data: self.system_data,
            data: self.data,
            output: self.output.unwrap_or(Value::Null),
            output_run: self.output_run.map(RunId),
            node: NodeId(self.node_id),
            fqdn: self.fqdn,
            phantom: self.phantom,
            addresses: self.addresses,
            head: BlueprintNumber(self.head),
        })
    }
}

/// The hard edges above steps, as (child, parent). Each edge is visited once, however many paths
/// lead over it.
async fn ancestor_edges(
    pool: &PgPool,
    steps: &[Uuid],
) -> Result<Vec<(StepId, StepId)>, StoreError> {
    let edges: Vec<(Uuid, Uuid)> = sqlx::query_as(include_str!("statements/ancestor_edges.sql"))
        .bind(steps)
        .fetch_all(pool)
        .await?;
    Ok(edges.into_iter().map(|(child, parent)| (StepId(child), StepId(parent))).collect())
}

/// The steps that these steps' runs see: the ACTIVE steps on the node, and the ancestors by hard
/// edges. A step that is both appears twice.
pub async fn visible_steps(
    pool: &PgPool,
    run_steps: &[(StepId, NodeId)],
) -> Result<BTreeMap<StepId, Vec<VisibleStep>>, StoreError> {
    let steps: Vec<Uuid> = run_steps.iter().map(|(step, _)| step.0).collect();
    let edges = ancestor_edges(pool, &steps).await?;
    let parents: BTreeSet<Uuid> = edges.iter().map(|(_, parent)| parent.0).collect();
    let nodes: BTreeSet<Uuid> = run_steps.iter().map(|(_, node)| node.0).collect();
    let rows =
        step_data_rows(pool, parents.into_iter().collect(), nodes.into_iter().collect()).await?;
    let rows = rows
        .into_iter()
        .map(|row| Ok((row.id, Arc::new(row.into_step_data()?))))
        .collect::<Result<BTreeMap<_, _>, StoreError>>()?;
    let mut parents_of: BTreeMap<StepId, Vec<StepId>> = BTreeMap::new();
    for (child, parent) in &edges {
        parents_of.entry(*child).or_default().push(*parent);
    }
    let mut on_node: BTreeMap<NodeId, Vec<&Arc<VisibleStepData>>> = BTreeMap::new();
    for step in rows.values().filter(|step| step.active) {
        on_node.entry(step.node).or_default().push(step);
    }
    let rows = &rows;
    let visible = run_steps.iter().map(|(step, node)| {
        let read = read_steps(*step, &parents_of, rows);
        let by_distance = ancestor_distances(*step, &edges).into_iter();
        let ancestors = by_distance.filter_map(move |(ancestor, distance)| {
            let step = Arc::clone(rows.get(&ancestor.0)?);
            Some(VisibleStep { distance: Some(distance), is_read: read.contains(&ancestor), step })
        });
        let on_node = on_node.get(node).into_iter().flatten().filter(|other| other.step != *step);
        (
            *step,
            ancestors
                .chain(on_node.map(|other| VisibleStep {
                    distance: None,
                    is_read: false,
                    step: Arc::clone(other),
                }))
                .collect(),
        )
    });
    Ok(visible.collect())
}

/// The hard parents of a step. Parents without a run are replaced by their own hard parents.
fn read_steps(
    step: StepId,
    parents: &BTreeMap<StepId, Vec<StepId>>,
    rows: &BTreeMap<Uuid, Arc<VisibleStepData>>,
) -> BTreeSet<StepId> {
    let is_immediate = |id: &StepId| rows.get(&id.0).is_some_and(|row| row.immediate);
    let (mut found, mut open) = (BTreeSet::new(), vec![step]);
    while let Some(next) = open.pop() {
        for parent in parents.get(&next).into_iter().flatten() {
            if found.insert(*parent) && is_immediate(parent) {
                open.push(*parent);
            }
        }
    }
    found
}

/// These steps, and all ACTIVE steps on these nodes.
async fn step_data_rows(
    pool: &PgPool,
    steps: Vec<Uuid>,
    nodes: Vec<Uuid>,
) -> Result<Vec<StepDataRow>, StoreError> {
    let rows = sqlx::query_as(include_str!("statements/step_data_rows.sql"))
        .bind(steps)
        .bind(nodes)
        .fetch_all(pool)
        .await?;
    Ok(rows)
}

/// A stored result of a node.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct StoredResult {
    pub node: Uuid,
    pub run: i64,
    pub step: Uuid,
    pub role: String,
    pub instance: i32,
    pub action: String,
    pub outcome: String,
    /// The generation of the step that it executed.
    pub generation: i64,
    /// When it ended.
    pub at: OffsetDateTime,
    pub result: Value,
}

/// The newest `limit` results of each node, and their total number. Nodes without results are
/// missing.
pub async fn stored_results(
    pool: &PgPool,
    nodes: &BTreeSet<NodeId>,
    limit: i64,
) -> Result<BTreeMap<NodeId, (Vec<StoredResult>, usize)>, StoreError> {
    let mut connection = pool.acquire().await?;
    let counts: Vec<(Uuid, i64)> = runs_with_result()
        .filter(run::Column::NodeId.eq_any(nodes.iter().map(|node| node.0)))
        .group_by(run::Column::NodeId)
        .select_only()
        .column(run::Column::NodeId)
        .expr(run::Column::Id.count())
        .into_tuple()
        .all(&orm(&mut connection))
        .await?;
    if counts.is_empty() {
        return Ok(BTreeMap::new());
    }
    let rows: Vec<StoredResult> = sqlx::query_as(include_str!("statements/stored_results.sql"))
        .bind(counts.iter().map(|(node, _)| *node).collect::<Vec<_>>())
        .bind(limit)
        .fetch_all(&mut *connection)
        .await?;
    let mut results: BTreeMap<NodeId, (Vec<StoredResult>, usize)> = counts
        .into_iter()
        .map(|(node, total)| (NodeId(node), (Vec::new(), usize::try_from(total).unwrap_or(0))))
        .collect();
    for row in rows {
        results.entry(NodeId(row.node)).or_default().0.push(row);
    }
    Ok(results)
}

/// The input of a run and its surroundings.
#[derive(Debug)]
pub struct NewInput<'r> {
    pub facts: &'r RunFacts,
    /// The input with its sources, with secrets as references.
    pub input: &'r Value,
    /// Further data for the run, with secrets as references.
    pub surroundings: &'r Value,
    /// The hash of the input from other noderoles ([`engine::data::input_hash`]).
    /// `None` for a removal, which reads the input of an earlier run.
    pub input_hash: Option<Hash>,
}

/// Stores the inputs and surroundings of runs and journals that they run. Returns the runs that
/// this worker still has leased.
pub async fn record_inputs(
    pool: &PgPool,
    worker: WorkerId,
    inputs: &[NewInput<'_>],
) -> Result<BTreeSet<RunId>, StoreError> {
    let mut transaction = pool.begin().await?;
    let recorded: Vec<i64> = sqlx::query_scalar(include_str!("statements/record_inputs.sql"))
        .bind(worker.0)
        .bind(inputs.iter().map(|inputs| inputs.facts.run.0).collect::<Vec<_>>())
        .bind(inputs.iter().map(|inputs| inputs.input).collect::<Vec<_>>())
        .bind(inputs.iter().map(|inputs| inputs.surroundings).collect::<Vec<_>>())
        .bind(
            inputs
                .iter()
                .map(|i| i.input_hash.map(|hash| hash.as_bytes().to_vec()))
                .collect::<Vec<_>>(),
        )
        .bind(inputs.iter().map(|inputs| inputs.facts.input_version).collect::<Vec<_>>())
        .fetch_all(&mut *transaction)
        .await?;
    let recorded: BTreeSet<RunId> = recorded.into_iter().map(RunId).collect();
    let running =
        inputs.iter().map(|inputs| inputs.facts).filter(|facts| recorded.contains(&facts.run));
    let events: Vec<_> = running
        .flat_map(|facts| {
            run_events(facts.run.0, facts.noderole.0, facts.deployment.0, "running", 0)
        })
        .collect();
    append_events(&mut transaction, &events, &[]).await?;
    transaction.commit().await?;
    Ok(recorded)
}
