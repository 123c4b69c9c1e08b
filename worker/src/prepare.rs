//! Turns a leased run into a job: verifies its approval and collects its input.
//!
//! A worker changes machines, so it does not trust rows. It follows the run to two targets: the one
//! that made its generation, and the one that was in force when the run was claimed. The run
//! executes the root of the second. From each target it follows the chain to the review and its
//! verdicts. It reads the documents of the root by hash, down to the role's content and scripts. If
//! one link is invalid, the run fails with that link and touches nothing.
//!
//! Rows are compared with the documents of the target in force, in one snapshot. A row that differs
//! was edited by hand. The run is refused with the table, key and column. State that only rows have
//! (on hold, switch, maintenance, progress of parents) is checked again. A run that may not start
//! now ends unstarted.
//!
//! The run sees [`engine::data::visible`]. It is stored with the run: each value with its source,
//! secrets as references. References are resolved last, into the copy for the node, if the secret's
//! descriptor allows the deployment of this run. That deployment counts because the plain text goes
//! there, for every noderole whose data names the secret. References in [`engine::data::surroundings`]
//! are never resolved.
//!
//! A removal runs for a noderole that the target of its generation removed. The content and the data
//! of the noderole come from the target before, whose approval is verified too. The targets of the
//! generation and in force must lack the noderole. The run sees the stored input of the noderole's
//! last run, because the steps that supplied its values may be gone. Without one, it sees the
//! noderole's own data.
//!
//! A step has two content hashes here: the run's row has one, and the node's ledger compares one.
//! All attempts of one generation must have the same hash in the ledger. It therefore comes from
//! the root of the target that made this generation. The hash of the row may also come from the
//! root in force. Changed data that does not cause a re-run affects only that one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use engine::Hash;
use engine::anneal::{StepState, count};
use engine::blueprint::projection::content;
use engine::catalog::{JigClass, Join, Role};
use engine::cluster::{
    DeploymentDoc, DeploymentRoleDoc, EdgeKind, NodeDoc, NoderoleDoc, NoderoleKey, RootDoc,
};
use engine::counting::many;
use engine::data::secret::{SecretRef, reference};
use engine::data::surroundings::{self, AttemptResult, Carried, OwnNode};
use engine::data::{
    Contribution, DataError, Layered, OwnData, Sight, StepOutput, check_seen, visible,
};
use engine::gate::Risk;
use engine::ids::{
    ActionName, BlueprintNumber, DeploymentName, Fqdn, JigName, NodeId, NoderoleId, RoleName,
    RunId, StepId,
};
use futures::FutureExt;
use serde_json::{Value, json};
use sqlx::PgPool;
use store::StoreError;
use store::runs::{Approval, Given, KeptResult, RunFacts, Seen, SeenStep};
use store::workers::WorkerId;
use time::format_description::well_known::Rfc3339;

use crate::jig::Job;
use crate::node_record::{self, RecordError};
use crate::objects::{ObjectError, Objects};
use crate::secrets::{Purpose, SecretError, SecretSource, Secrets};
use crate::signatures::SignatureVerifier;
use crate::together::Batcher;

/// Why a run is not started.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The database query failed. A retry may help.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The run is finished, or another worker leases it.
    #[error("Run {0} is no longer leased by this worker.")]
    LeaseLost(RunId),
    /// A link of the chain from the run to its approval is invalid.
    #[error("Rejected, because the run does not match its approval: {0}")]
    Chain(String),
    /// A row differs from its document, so it was edited by hand.
    #[error(
        "Rejected, because a row differs from its document: {table}.{field} of {key} is {row}, but \
         blueprint {target} has {document}."
    )]
    Row {
        table: &'static str,
        /// The noderole and its node.
        key: String,
        field: &'static str,
        /// Value of the column.
        row: String,
        /// The target in force.
        target: BlueprintNumber,
        /// Value in the document.
        document: String,
    },
    /// The run may not start at this moment. Its step becomes pending again.
    #[error("The run cannot start now: {0}")]
    NotReady(&'static str),
    /// An object of the chain can't be used.
    #[error("Rejected: {0}")]
    Object(ObjectError),
    /// The input can't be computed.
    #[error("Cannot compute the input of the run: {0}")]
    Data(#[from] DataError),
    /// A secret can't be resolved.
    #[error("{0}")]
    Secret(String),
}

impl From<ObjectError> for Refusal {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Store(error) => Self::Store(error),
            other => Self::Object(other),
        }
    }
}

impl From<RecordError> for Refusal {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Object(error) => error.into(),
            other => broken(other.to_string()),
        }
    }
}

fn broken(problem: impl Into<String>) -> Refusal {
    Refusal::Chain(problem.into())
}

/// Facts about a run and its visible data, as the database has them.
pub struct Gathered {
    facts: Arc<RunFacts>,
    seen: Vec<Seen>,
    approvals: Approvals,
    /// The newest results stored for its node, and the number of all results.
    results: (Vec<KeptResult>, usize),
}

/// The approvals of the targets that a run executes.
#[derive(Clone)]
struct Approvals {
    /// The target that made its generation.
    generation: Option<Approval>,
    /// The target whose root it executes.
    reviewed: Option<Approval>,
    /// For a removal: the last reviewed target with the noderole.
    before: Option<Approval>,
}

/// The input of a run, to be stored with it.
#[derive(Clone)]
struct StoredInput {
    facts: Arc<RunFacts>,
    input: Arc<Value>,
    surroundings: Arc<Value>,
}

/// Prepares runs.
pub struct Preparing {
    pub pool: PgPool,
    objects: Arc<Objects>,
    signed: SignatureVerifier,
    secrets: Arc<dyn SecretSource>,
    gather: Batcher<RunId, Option<Gathered>>,
    keep: Batcher<StoredInput, bool>,
}

async fn gather(pool: &PgPool, runs: &[RunId]) -> Result<Vec<Option<Gathered>>, StoreError> {
    let mut facts = store::runs::run_details(pool, runs).await?;
    let of: Vec<(StepId, NodeId)> = facts
        .values()
        .filter(|facts| facts.before.is_none())
        .map(|facts| (facts.step, facts.node))
        .collect();
    let nodes = facts.values().map(|facts| facts.node).collect();
    let mut seen = store::runs::visible_steps(pool, &of).await?;
    let before = facts.values().filter_map(|facts| Some(facts.before.as_ref()?.reviewed));
    let blueprints =
        facts.values().flat_map(|facts| [facts.generation, facts.reviewed]).chain(before).collect();
    let approvals = store::runs::approvals(pool, &blueprints).await?;
    let limit = i64::try_from(surroundings::MAX_RESULTS).unwrap_or(i64::MAX);
    let results = store::runs::stored_results(pool, &nodes, limit).await?;
    let gathered = runs.iter().map(|run| {
        let facts = Arc::new(facts.remove(run)?);
        Some(Gathered {
            seen: seen.remove(&facts.step).unwrap_or_default(),
            approvals: Approvals {
                generation: approvals.get(&facts.generation).cloned(),
                reviewed: approvals.get(&facts.reviewed).cloned(),
                before: facts
                    .before
                    .as_ref()
                    .and_then(|before| approvals.get(&before.reviewed).cloned()),
            },
            results: results.get(&facts.node).cloned().unwrap_or_default(),
            facts,
        })
    });
    Ok(gathered.collect())
}

async fn keep(
    pool: &PgPool,
    worker: WorkerId,
    told: &[StoredInput],
) -> Result<Vec<bool>, StoreError> {
    let given = told.iter().map(|told| Given {
        facts: &told.facts,
        input: &told.input,
        surroundings: &told.surroundings,
    });
    let kept = store::runs::record_inputs(pool, worker, &given.collect::<Vec<_>>()).await?;
    Ok(told.iter().map(|told| kept.contains(&told.facts.run)).collect())
}

/// A job and its secrets.
pub struct PreparedRun {
    pub job: Job,
    /// Texts to mask in everything that leaves the run.
    pub secrets: Secrets,
    /// Secrets in the data of other noderoles that the run may not use, each with the reason. They
    /// remain references in its input.
    pub withheld: Vec<String>,
}

/// The documents of one noderole under one root.
#[derive(Clone)]
struct Meant {
    node: Arc<NodeDoc>,
    noderole: NoderoleDoc,
    role: Option<DeploymentRoleDoc>,
    /// The deployment of the binding.
    deployment: DeploymentName,
}

impl Meant {
    fn content(&self, action: &ActionName) -> Result<Hash, Refusal> {
        content(&self.noderole, self.role.as_ref(), action).map_err(|e| broken(e.to_string()))
    }
}

impl Preparing {
    pub fn new(
        pool: PgPool,
        worker: WorkerId,
        objects: Arc<Objects>,
        secrets: Arc<dyn SecretSource>,
    ) -> Self {
        let (is_scheduled, with_data_folder) = (pool.clone(), pool.clone());
        let gather = Batcher::new(move |runs: Vec<RunId>| {
            let pool = is_scheduled.clone();
            async move { gather(&pool, &runs).await }.boxed()
        });
        let keep = Batcher::new(move |told: Vec<StoredInput>| {
            let pool = with_data_folder.clone();
            async move { keep(&pool, worker, &told).await }.boxed()
        });
        let signed = SignatureVerifier::of(pool.clone(), Arc::clone(&objects));
        Self { pool, objects, signed, secrets, gather, keep }
    }

    /// Prepares a leased run.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn prepare(&self, run: RunId) -> Result<PreparedRun, Refusal> {
        let Gathered { facts, seen, approvals, results } =
            self.gather.ask(run).await?.ok_or(Refusal::LeaseLost(run))?;
        let meant = self.check_chain(&facts, approvals).await?;
        let connection = node_record::connection(&meant.now.node, facts.connection.as_ref())?;
        node_record::check_hints(&meant.now.node, &facts.hints)?;
        let system = self.system(&facts).await?;
        check_jig(&facts, &system)?;
        self.check_rows(&facts, &meant.now).await?;
        let role = self.objects.role(meant.now.noderole.role).await?;
        check_start(&facts, &role, &system)?;
        if role.name.as_str() != facts.role {
            return Err(broken(format!(
                "role {} is stored as the content of {}",
                role.name, facts.role
            )));
        }
        if !role.has(&facts.action) {
            return Err(broken(format!("role {} has no action {}", role.name, facts.action)));
        }
        let below = self.below(&facts, seen).await?;
        let last = facts.before.as_ref().and_then(|before| before.input.as_ref());
        let layered = match last {
            Some(input) => stored_input(input)?,
            None => see(&facts, &meant.now, &role, &below)?,
        };
        check_seen(&layered.value)?;
        let surroundings = Arc::new(run_context(&facts, &meant.now.node, results, &below)?);
        let input = Arc::new(json!({ "data": layered.value, "sources": layered.sources }));
        let told = StoredInput {
            facts: Arc::clone(&facts),
            input,
            surroundings: Arc::clone(&surroundings),
        };
        if !self.keep.ask(told).await? {
            return Err(Refusal::LeaseLost(run));
        }
        let Resolved { input, secrets, withheld } =
            self.resolve(&facts, &meant.now.deployment, layered).await?;
        let job = Job {
            run,
            step: facts.step,
            action: facts.action.clone(),
            epoch: facts.epoch,
            generation: facts.generation,
            content: meant.ledger,
            node: facts.node,
            fqdn: Fqdn::parse(&facts.fqdn).map_err(|e| broken(e.to_string()))?,
            connection,
            phantom: facts.phantom,
            role,
            exclusive: facts.exclusive,
            input,
            surroundings: Arc::unwrap_or_clone(surroundings),
        };
        Ok(PreparedRun { job, secrets, withheld })
    }

    async fn check_chain(
        &self,
        facts: &RunFacts,
        approvals: Approvals,
    ) -> Result<Checked, Refusal> {
        if facts.epoch != facts.epoch_now {
            return Err(broken(format!(
                "the run was claimed in epoch {}, and the database has been restored since (epoch \
                 {})",
                facts.epoch, facts.epoch_now
            )));
        }
        if facts.generation > facts.target {
            return Err(broken(format!(
                "the generation {} of the run is newer than its blueprint {}",
                facts.generation, facts.target
            )));
        }
        // The run reads documents of its own target and of the target in force.
        self.signed.check(facts.epoch_now, facts.target.max(facts.head)).await?;
        self.check_approval(facts.generation, approvals.generation).await?;
        self.check_approval(facts.reviewed, approvals.reviewed).await?;
        if facts.target_root != facts.reviewed_root {
            return Err(broken(format!(
                "blueprint {} differs from blueprint {}, although it only switched execution",
                facts.target, facts.reviewed
            )));
        }
        let key = noderole_key(facts)?;
        if let Some(before) = &facts.before {
            self.check_approval(before.reviewed, approvals.before).await?;
            return self.check_removal(facts, before.root, &key).await;
        }
        if !facts.action.is_run() {
            return Err(broken(format!("the action {} belongs to no target", facts.action)));
        }
        let now = self.meant(facts, facts.target_root, &key).await?;
        if now.noderole.role != facts.role_hash {
            return Err(broken(format!(
                "blueprint {} has {} as the content of {key}, but the row of the noderole has {}",
                facts.target, now.noderole.role, facts.role_hash
            )));
        }
        let at_generation = self.meant(facts, facts.generation_root, &key).await?;
        let ledger = at_generation.content(&facts.action)?;
        if facts.content != ledger && facts.content != now.content(&facts.action)? {
            return Err(broken(format!(
                "its content {} belongs neither to generation {} nor to blueprint {}",
                facts.content, facts.generation, facts.target
            )));
        }
        Ok(Checked { now, ledger })
    }

    /// Checks that approved targets remove the noderole of a run, with this content.
    async fn check_removal(
        &self,
        facts: &RunFacts,
        before: Hash,
        key: &NoderoleKey,
    ) -> Result<Checked, Refusal> {
        for (target, root) in [
            (facts.generation, facts.generation_root),
            (facts.target, facts.target_root),
            (facts.head, facts.head_root),
        ] {
            let root = self.objects.root(root).await?;
            let node = root.nodes.get(&facts.node).ok_or_else(|| {
                broken(format!("the root of blueprint {target} has no document of the run's node"))
            })?;
            if self.objects.node(*node).await?.noderoles.contains_key(key) {
                return Err(broken(format!("blueprint {target} does not remove {key}")));
            }
        }
        let meant = self.meant(facts, before, key).await?;
        if meant.noderole.role != facts.role_hash {
            return Err(broken(format!(
                "the removed {key} has the content {}, but the row of the noderole has {}",
                meant.noderole.role, facts.role_hash
            )));
        }
        let ledger = meant.content(&facts.action)?;
        if facts.content != ledger {
            return Err(broken(format!(
                "its content {} does not belong to the {key} that blueprint {} removes",
                facts.content, facts.generation
            )));
        }
        // The node may have another connection by now.
        let root = self.objects.root(facts.target_root).await?;
        let node = match root.nodes.get(&facts.node) {
            Some(hash) => self.objects.node(*hash).await?,
            None => Arc::clone(&meant.node),
        };
        Ok(Checked { now: Meant { node, ..meant }, ledger })
    }

    /// Reads the documents of the run's noderole under a root.
    async fn meant(
        &self,
        facts: &RunFacts,
        root: Hash,
        key: &NoderoleKey,
    ) -> Result<Meant, Refusal> {
        let root = self.objects.root(root).await?;
        let lacks =
            |what: &str| broken(format!("the root of blueprint {} has no {what}", facts.target));
        let node =
            root.nodes.get(&facts.node).ok_or_else(|| lacks("document of the run's node"))?;
        let node = self.objects.node(*node).await?;
        if node.id != facts.node
            || node.fqdn.as_str() != facts.fqdn
            || node.phantom != facts.phantom
        {
            return Err(broken(format!(
                "the document of node {} belongs to node {}",
                facts.fqdn, node.fqdn
            )));
        }
        let noderole =
            node.noderoles.get(key).ok_or_else(|| lacks(&format!("{key} on {}", facts.fqdn)))?;
        if noderole.deployment != facts.deployment {
            return Err(broken(format!("{key} on {} is bound in another deployment", facts.fqdn)));
        }
        let deployment = root
            .deployments
            .get(&noderole.deployment)
            .ok_or_else(|| lacks("document of its deployment"))?;
        let deployment = self.objects.deployment(*deployment).await?;
        let (noderole, role) = (noderole.clone(), deployment.roles.get(&key.role).cloned());
        Ok(Meant { node, noderole, role, deployment: deployment.name.clone() })
    }

    /// Reads the document of *system* in force. Jigs serve all deployments, and only this document
    /// says which are disabled.
    async fn system(&self, facts: &RunFacts) -> Result<Arc<DeploymentDoc>, Refusal> {
        let root = self.objects.root(facts.head_root).await?;
        // Starts with the run's own deployment, because its document is cached.
        let own = root.deployments.get(&facts.deployment);
        let mut next = own.or_else(|| root.deployments.values().next());
        for _ in 0..root.deployments.len() {
            let Some(hash) = next else { break };
            let deployment = self.objects.deployment(*hash).await?;
            let Some(parent) = deployment.parent else { return Ok(deployment) };
            next = root.deployments.get(&parent);
        }
        Err(broken(format!("the root of blueprint {} has no document of system", facts.head)))
    }

    /// Checks the rows of the run's noderole against the documents in force when they were read. A
    /// noderole that is no longer in the blueprint passes: its run executes, but its result is not
    /// applied.
    async fn check_rows(&self, facts: &RunFacts, meant: &Meant) -> Result<(), Refusal> {
        let root = self.objects.root(facts.head_root).await?;
        let Some(node) = root.nodes.get(&facts.node) else { return Ok(()) };
        let node = self.objects.node(*node).await?;
        let key = noderole_key(facts)?;
        let is_run = facts.action.is_run();
        let in_force = if is_run { node.noderoles.get(&key) } else { Some(&meant.noderole) };
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
            is_immediate(&role) && is_run,
        )?;
        row_check.expect_equal("step", "needs", json!(rows.needs), json!(role.run.needs))?;
        row_check.expect_equal("step", "place", json!(rows.place), json!(role.run.place))?;
        let timeout = role.run.timeout.clamp(1, i32::MAX.unsigned_abs());
        row_check.expect_equal("step", "timeout_s", rows.timeout_s.unsigned_abs(), timeout)?;
        let (lane, _, _) = role.concurrency_group();
        row_check.expect_equal("concurrency_group", "name", rows.lane.as_str(), lane.as_str())?;
        row_check.expect_equal(
            "concurrency_group",
            "deployment_id",
            rows.lane_deployment,
            noderole.deployment.0,
        )?;
        // A run keeps the values that its step had at the claim.
        if facts.head_root == facts.target_root {
            row_check.expect_equal("run", "exclusive", facts.exclusive, exclusive)?;
            row_check.expect_equal("run", "concurrency_group_id", rows.same_lane, true)?;
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
            row_check.expect_equal("step", "immediate", parent.immediate, is_immediate(&role))?;
        }
        Ok(())
    }

    async fn check_approval(
        &self,
        target: BlueprintNumber,
        approval: Option<Approval>,
    ) -> Result<(), Refusal> {
        let approval =
            approval.ok_or_else(|| broken(format!("blueprint {target} does not exist")))?;
        match (approval.kind.as_str(), approval.needed) {
            ("genesis", _) => return Ok(()),
            ("change", Some(_)) => {}
            (kind, _) => {
                return Err(broken(format!("blueprint {target} ({kind}) changes no step")));
            }
        }
        let needed = required_approvals(&self.objects, &approval).await?;
        if approval.objecting > 0 || approval.approving < i64::from(needed) {
            return Err(broken(format!(
                "review {} of blueprint {target} has {} of {}, and {}",
                approval.review.unwrap_or_default(),
                approval.approving,
                many(i64::from(needed), "approval"),
                many(approval.objecting, "objection")
            )));
        }
        Ok(())
    }

    /// Returns the visible steps and their nodes with the documents of the run's target. A step
    /// that is newer than that target gets the documents in force. A row without a document is
    /// refused.
    async fn below(
        &self,
        facts: &RunFacts,
        seen: Vec<Seen>,
    ) -> Result<Vec<VisibleNoderole>, Refusal> {
        let mut below = Vec::with_capacity(seen.len());
        let (own, head) = (
            self.objects.root(facts.target_root).await?,
            self.objects.root(facts.head_root).await?,
        );
        for Seen { distance, step } in seen {
            let key =
                NoderoleKey { role: named(RoleName::parse(&step.role))?, instance: step.instance };
            let row_check = Differs { key: format!("{key} on {}", step.fqdn), target: facts.head };
            // The id is a function of the node and the key, in every target.
            row_check.expect_equal("step", "noderole_id", step.noderole, key.id(step.node))?;
            if step.head == facts.head
                && let Some(Documents { node, noderole, .. }) =
                    self.documents(&head, step.node, &key).await?
            {
                row_check.expect_equal(
                    "noderole",
                    "data",
                    canonical(&step.data)?,
                    canonical(&noderole.data)?,
                )?;
                row_check.expect_equal("noderole", "role_hash", step.role_hash, noderole.role)?;
                row_check.expect_equal(
                    "noderole",
                    "deployment_id",
                    step.deployment.0,
                    noderole.deployment.0,
                )?;
                row_check.expect_equal("step", "rank", step.rank, noderole.rank)?;
                row_check.expect_equal("step", "skipped", step.skipped, false)?;
                node_record::check_seen(&node, &step.fqdn, step.phantom, &step.addresses())?;
            }
            let documents = match self.documents(&own, step.node, &key).await? {
                Some(found) => Some(found),
                None => self.documents(&head, step.node, &key).await?,
            };
            let Some(documents) = documents else { continue };
            let role = self.objects.role(documents.noderole.role).await?;
            below.push(VisibleNoderole { distance, step, role, documents });
        }
        Ok(below)
    }

    /// Reads the documents of a noderole under a root.
    async fn documents(
        &self,
        root: &RootDoc,
        node: NodeId,
        key: &NoderoleKey,
    ) -> Result<Option<Documents>, Refusal> {
        let Some(node) = root.nodes.get(&node) else { return Ok(None) };
        let node = self.objects.node(*node).await?;
        let Some(noderole) = node.noderoles.get(key).cloned() else { return Ok(None) };
        let Some(deployment) = root.deployments.get(&noderole.deployment) else { return Ok(None) };
        let deployment = self.objects.deployment(*deployment).await?;
        let deployment =
            deployment.roles.get(&key.role).map_or(Value::Null, |role| role.data.clone());
        Ok(Some(Documents { node, noderole, deployment }))
    }

    /// Resolves secrets. If the run's own data names a secret that it may not use, the run is
    /// refused. In the data of other noderoles, such a reference stays unresolved: their data must
    /// not be able to stop this run.
    async fn resolve(
        &self,
        facts: &RunFacts,
        deployment: &DeploymentName,
        layered: Layered,
    ) -> Result<Resolved, Refusal> {
        let mut wanted: BTreeMap<SecretRef, bool> = BTreeMap::new();
        for (secret, source) in layered.references() {
            *wanted.entry(secret).or_default() |= source.step == own_step(facts);
        }
        let (mut resolved, mut withheld) = (BTreeMap::new(), Vec::new());
        for (secret, is_own) in wanted {
            match self.secrets.resolve(&secret, Purpose::Data(deployment)).await {
                Ok(text) => drop(resolved.insert(secret, text)),
                Err(SecretError::Denied(why)) if !is_own => withheld.push(why),
                Err(error) => return Err(Refusal::Secret(error.to_string())),
            }
        }
        let mut input = layered.value;
        insert_secrets(&mut input, &resolved);
        Ok(Resolved { input, secrets: Secrets::new(resolved.into_values()), withheld })
    }
}

/// The data of a run with resolved secrets.
struct Resolved {
    input: Value,
    secrets: Secrets,
    withheld: Vec<String>,
}

/// A visible step with its documents.
struct VisibleNoderole {
    distance: Option<u32>,
    step: Arc<SeenStep>,
    role: Arc<Role>,
    documents: Documents,
}

/// The documents of a visible step under one target.
struct Documents {
    node: Arc<NodeDoc>,
    noderole: NoderoleDoc,
    /// The deployment's data for the role.
    deployment: Value,
}

impl VisibleNoderole {
    fn contribution(&self) -> Contribution<'_> {
        Contribution {
            step: self.step.step,
            rank: self.documents.noderole.rank,
            own: OwnData {
                template: &self.role.template,
                profiles: &[],
                deployment_role: &self.documents.deployment,
                system: &self.step.system_data,
                user: &self.documents.noderole.data,
            },
            output: StepOutput { value: &self.step.output, run: self.step.output_run },
        }
    }

    /// Returns `None` if the step's deployment is not an ancestor.
    fn carried(&self) -> Option<Result<Carried<'_>, Refusal>> {
        let distance = self.distance?;
        let node = &self.documents.node;
        Some(node_record::addresses(node).map_err(Refusal::from).map(|addresses| Carried {
            node: node.id,
            name: node.fqdn.clone(),
            phantom: node.phantom,
            addresses: addresses.to_vec(),
            role: self.role.name.clone(),
            instance: self.step.instance,
            distance,
            active: self.step.active,
            seen: self.contribution(),
        }))
    }
}

/// Builds the refusal for a row that differs from its document.
struct Differs {
    key: String,
    target: BlueprintNumber,
}

impl Differs {
    fn expect_equal<T: PartialEq + fmt::Display>(
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
fn canonical(value: &Value) -> Result<String, Refusal> {
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

/// Whether the role has only immediate steps.
fn is_immediate(role: &Role) -> bool {
    role.flags.milestone && role.jig_class == JigClass::Noop
}

/// Checks the row of the step's jig against the document of *system*.
fn check_jig(facts: &RunFacts, system: &DeploymentDoc) -> Result<(), Refusal> {
    let jig = named(JigName::parse(&facts.rows.jig))?;
    let is_active = !system.inactive_jigs.contains(&jig);
    let row_check = Differs { key: jig.to_string(), target: facts.head };
    row_check.expect_equal("jig", "active", facts.rows.jig_active, is_active)
}

/// Checks conditions that may have changed since the claim, and conditions that should have
/// prevented the claim. `system` is the document in force.
fn check_start(facts: &RunFacts, role: &Role, system: &DeploymentDoc) -> Result<(), Refusal> {
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
    if let Some((_, why)) = now.into_iter().find(|(is_met, _)| !is_met) {
        return Err(Refusal::NotReady(why));
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

/// Builds the data that a run gets next to its attributes.
fn run_context(
    facts: &RunFacts,
    doc: &NodeDoc,
    (results, total): (Vec<KeptResult>, usize),
    below: &[VisibleNoderole],
) -> Result<Value, Refusal> {
    let omitted = total.saturating_sub(results.len());
    let node = OwnNode {
        id: facts.node,
        name: named(Fqdn::parse(&facts.fqdn))?,
        deployment: named(DeploymentName::parse(&facts.home))?,
        phantom: facts.phantom,
        addresses: doc
            .connection
            .as_ref()
            .map(|connection| connection.addresses().to_vec())
            .unwrap_or_default(),
        facts: facts.facts.clone(),
        hints: Value::Object(doc.hints.clone()),
    };
    let results = results.into_iter().map(returned).collect::<Result<Vec<_>, _>>()?;
    let carried =
        below.iter().filter_map(VisibleNoderole::carried).collect::<Result<Vec<_>, _>>()?;
    let context = surroundings::surroundings(node, results, omitted, &carried)?;
    serde_json::to_value(context)
        .map_err(|error| Refusal::Data(DataError::NotCanonical { reason: error.to_string() }))
}

fn see(
    facts: &RunFacts,
    meant: &Meant,
    role: &Role,
    below: &[VisibleNoderole],
) -> Result<Layered, DataError> {
    visible(&Sight {
        on_node: below
            .iter()
            .filter(|seen| seen.distance.is_none())
            .map(VisibleNoderole::contribution)
            .collect(),
        ancestors: below
            .iter()
            .filter_map(|seen| Some((seen.distance?, seen.contribution())))
            .collect(),
        step: own_step(facts),
        own: OwnData {
            template: &role.template,
            profiles: &[],
            deployment_role: meant.role.as_ref().map_or(&Value::Null, |role| &role.data),
            system: &facts.system_data,
            user: &meant.noderole.data,
        },
    })
}

/// The step that values of the run's own noderole name as their source.
fn own_step(facts: &RunFacts) -> StepId {
    StepId::of(facts.noderole, &ActionName::run())
}

fn noderole_key(facts: &RunFacts) -> Result<NoderoleKey, Refusal> {
    let role = RoleName::parse(&facts.role).map_err(|e| broken(e.to_string()))?;
    Ok(NoderoleKey { role, instance: facts.instance })
}

/// The input that an earlier run got, with references to secrets.
fn stored_input(input: &Value) -> Result<Layered, Refusal> {
    let sources = serde_json::from_value(input["sources"].clone())
        .map_err(|e| Refusal::Store(StoreError::corrupt("run.input", e)))?;
    Ok(Layered { value: input["data"].clone(), sources })
}

/// Parses a name from a row.
fn named<T, E: fmt::Display>(name: Result<T, E>) -> Result<T, Refusal> {
    name.map_err(|error| Refusal::Store(StoreError::corrupt("a name", error)))
}

fn returned(kept: KeptResult) -> Result<AttemptResult, Refusal> {
    Ok(AttemptResult {
        run: RunId(kept.run),
        role: named(RoleName::parse(&kept.role))?,
        instance: kept.instance.unsigned_abs(),
        step: StepId(kept.step),
        action: kept.action,
        outcome: kept.outcome,
        generation: BlueprintNumber(kept.generation),
        at: kept.at.format(&Rfc3339).unwrap_or_default(),
        result: kept.result,
    })
}

/// The approvals that the policies require for the review's risks. Fails if the review requires
/// less.
pub(crate) async fn required_approvals(
    objects: &Objects,
    approval: &Approval,
) -> Result<u32, Refusal> {
    let risks = approval.risk.iter().flatten();
    let risks = risks.map(|risk| serde_json::from_value::<Risk>(Value::from(risk.as_str())));
    let risks = risks
        .collect::<Result<BTreeSet<_>, _>>()
        .map_err(|e| broken(format!("a risk is unknown: {e}")))?;
    let current = approval.policy.as_ref().ok_or_else(|| broken("a review has no policy"))?;
    let mut needed = approval.needed.unwrap_or_default().unsigned_abs().max(1);
    for hash in std::iter::once(current).chain(&approval.new_policy) {
        let hash = Hash::from_bytes(hash)
            .ok_or_else(|| broken("the hash of a policy must have 32 bytes"))?;
        needed = needed.max(objects.policy(hash).await?.approvals_for(&risks));
    }
    Ok(needed)
}

struct Checked {
    now: Meant,
    ledger: Hash,
}

fn insert_secrets(value: &mut Value, resolved: &BTreeMap<SecretRef, String>) {
    if let Some(text) = reference(value).and_then(|secret| resolved.get(&secret)) {
        *value = Value::String(text.clone());
        return;
    }
    match value {
        Value::Object(entries) => {
            entries.values_mut().for_each(|value| insert_secrets(value, resolved))
        }
        Value::Array(items) => items.iter_mut().for_each(|value| insert_secrets(value, resolved)),
        _ => {}
    }
}
