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
//! there, for every noderole whose data names the secret. References in
//! [`engine::data::surroundings`] are never resolved.
//!
//! A removal runs for a noderole that the target of its generation removed. The content and the
//! data of the noderole come from the target before, whose approval is verified too. The targets of
//! the generation and in force must lack the noderole. The run sees the stored input of the
//! noderole's last run, because the steps that supplied its values may be gone. Without one, it
//! sees the noderole's own data.
//!
//! A run that another worker started and this one adopts passes the same checks of its approval and
//! rows, but not those of its start. It must still see the input that it was started with.
//! Otherwise its output would be compared with data that its scripts never saw.
//!
//! A step has two content hashes here: the run's row has one, and the node's ledger compares one.
//! All attempts of one generation must have the same hash in the ledger. It therefore comes from
//! the root of the target that made this generation. The hash of the row may also come from the
//! root in force. Changed data that does not cause a re-run affects only that one.

use std::sync::Arc;

use engine::Hash;
use engine::data::check_visible;
use engine::data::surroundings;
use engine::ids::{Fqdn, NodeId, RunId, StepId};
use futures::FutureExt;
use serde_json::{Value, json};
use sqlx::PgPool;
use store::StoreError;
use store::runs::{Adopted, Approval, NewInput, RunFacts, StoredResult, VisibleStep};
use store::workers::WorkerId;

mod chain;
mod check;
mod input;
mod resolve;
mod rows;
mod visible;

pub use self::check::PreparedCheck;
pub use self::input::CurrentInput;

use self::chain::Verified;
use self::resolve::Resolved;
use self::rows::{canonical, check_jig, check_start};
use self::visible::{own_data, own_step, run_context, see, stored_input};
use super::refusal::{Refusal, broken};
use super::signatures::SignatureVerifier;
use crate::database::batching::Batcher;
use crate::database::objects::Objects;
use crate::job::Job;
use crate::node::connection::record;
use crate::secrets::{SecretSource, Secrets};

/// A job and its secrets.
pub struct PreparedRun {
    pub job: Job,
    /// Texts to mask in everything that leaves the run.
    pub secrets: Secrets,
    /// Secrets in the data of other noderoles that the run may not use, each with the reason. They
    /// remain references in its input.
    pub withheld: Vec<String>,
}

/// Facts about a run and its visible data, as the database has them.
pub struct Gathered {
    facts: Arc<RunFacts>,
    seen: Vec<VisibleStep>,
    approvals: Approvals,
    /// The newest results stored for its node, and the number of all results.
    results: (Vec<StoredResult>, usize),
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
    input_hash: Option<Hash>,
}

/// Prepares runs.
pub struct Preparer {
    pub pool: PgPool,
    pub worker: WorkerId,
    objects: Arc<Objects>,
    signatures: SignatureVerifier,
    secrets: Arc<dyn SecretSource>,
    gather: Batcher<RunId, Option<Gathered>>,
    store_inputs: Batcher<StoredInput, bool>,
}

impl Preparer {
    pub fn new(
        pool: PgPool,
        worker: WorkerId,
        objects: Arc<Objects>,
        secrets: Arc<dyn SecretSource>,
    ) -> Self {
        let (gather_pool, store_pool) = (pool.clone(), pool.clone());
        let gather = Batcher::new(move |runs: Vec<RunId>| {
            let pool = gather_pool.clone();
            async move { gather(&pool, &runs).await }.boxed()
        });
        let store_inputs = Batcher::new(move |inputs: Vec<StoredInput>| {
            let pool = store_pool.clone();
            async move { store_inputs(&pool, worker, &inputs).await }.boxed()
        });
        let signatures = SignatureVerifier::of(pool.clone(), Arc::clone(&objects));
        Self { pool, worker, objects, signatures, secrets, gather, store_inputs }
    }

    /// Prepares a leased run.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn prepare(
        &self,
        run: RunId,
        adopted: Option<&Adopted>,
    ) -> Result<PreparedRun, Refusal> {
        let Gathered { facts, seen, approvals, results } =
            self.gather.execute(run).await?.ok_or(Refusal::LeaseLost(run))?;
        let Verified { now: desired, ledger } = self.check_chain(&facts, approvals).await?;
        let connection = record::connection(&desired.node, facts.connection.as_ref())?;
        record::check_hints(&desired.node, &facts.hints)?;
        let system = self.system(&facts).await?;
        check_jig(&facts, &system)?;
        self.check_rows(&facts, &desired).await?;
        let role = self.objects.role(desired.noderole.role).await?;
        if adopted.is_none() {
            check_start(&facts, &role, &system)?;
        }
        if role.name.as_str() != facts.role {
            return Err(broken(format!(
                "role {} is stored as the content of {}",
                role.name, facts.role
            )));
        }
        if !role.has(&facts.action) {
            return Err(broken(format!("role {} has no action {}", role.name, facts.action)));
        }
        let below = self.below(facts.target_root, (facts.head, facts.head_root), seen).await?;
        let last = facts.before.as_ref().and_then(|before| before.input.as_ref());
        let layered = match last {
            Some(input) => stored_input(input)?,
            None => see(own_step(&facts), own_data(&facts, &desired, &role), &below)?,
        };
        check_visible(&layered.value)?;
        let input_hash = match last {
            Some(_) => None,
            None => Some(input::hash_input(&role, &below, &layered.value)?),
        };
        let surroundings = Arc::new(run_context(&facts, &desired.node, results, &below)?);
        let input = Arc::new(json!({ "data": layered.value, "sources": layered.sources }));
        if let Some(adopted) = adopted
            && canonical(&adopted.input)? != canonical(&input)?
        {
            return Err(Refusal::OtherInput);
        }
        let stored = StoredInput {
            facts: Arc::clone(&facts),
            input,
            surroundings: Arc::clone(&surroundings),
            input_hash,
        };
        if adopted.is_none() && !self.store_inputs.execute(stored).await? {
            return Err(Refusal::LeaseLost(run));
        }
        let Resolved { input, secrets, withheld } =
            self.resolve(own_step(&facts), &desired.deployment, layered).await?;
        let job = Job {
            run,
            step: facts.step,
            action: facts.action.clone(),
            epoch: facts.epoch,
            generation: facts.generation,
            content: ledger,
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

async fn store_inputs(
    pool: &PgPool,
    worker: WorkerId,
    inputs: &[StoredInput],
) -> Result<Vec<bool>, StoreError> {
    let given = inputs.iter().map(|stored| NewInput {
        facts: &stored.facts,
        input: &stored.input,
        surroundings: &stored.surroundings,
        input_hash: stored.input_hash,
    });
    let runs = store::runs::record_inputs(pool, worker, &given.collect::<Vec<_>>()).await?;
    Ok(inputs.iter().map(|stored| runs.contains(&stored.facts.run)).collect())
}
