//! The task handler: prepares a leased run, executes it with its jig and reports the result.

use std::sync::Arc;
use std::time::Duration;

use apalis_core::error::BoxDynError;
use apalis_core::task::data::Data;
use engine::data::{DataError, check_result, output, secret};
use engine::ids::RunId;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use sqlx::PgPool;
use store::runs::{Adopted, LogPosition, RunEnd, append_log};
use store::workers::WorkerId;

use super::prepare::{PreparedRun, Preparer};
use super::refusal::Refusal;
use crate::database::backoff::Backoff;
use crate::jig::{Jig, Jigs};
use crate::job::log::{Chunk, Log, LogStore, Stream};
use crate::job::{Ended, Job, Object, Stop, StopReason, shorten};
use crate::queue::backend::Report;
use crate::queue::leases::LeasedRun;
use crate::secrets::Secrets;

pub struct Runner {
    pub preparer: Preparer,
    pub jigs: Jigs,
}

/// Maximum time that the end of a run waits for its log. The log should be complete first, but a
/// run never waits for the database.
const LOG_WAIT: Duration = Duration::from_secs(5);

/// Maximum time to retry preparing a run while the database is unavailable.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(30);

/// Time for a jig that enforces the timeout itself to end the run.
const ENDING: Duration = Duration::from_secs(engine::anneal::OVERDUE_GRACE as u64 / 2);

/// The reason of a run whose worker was lost, and that no other worker could continue.
const WORKER_LOST: &str = "The worker was lost during the run";

/// The handler.
///
/// # Errors
/// Never. apalis requires the `Result`.
pub async fn execute(leased: LeasedRun, runner: Data<Arc<Runner>>) -> Result<Report, BoxDynError> {
    Ok(runner.execute(leased).await)
}

impl Runner {
    async fn execute(&self, LeasedRun { run, stop, adopted }: LeasedRun) -> Report {
        let prepared = match self.prepare(run, adopted.as_ref()).await {
            Ok(prepared) => prepared,
            Err(Refusal::LeaseLost(_)) => return None,
            // It may run on its node. Its lease expires, so a worker tries again.
            Err(Refusal::Store(error)) if error.is_transient() && adopted.is_some() => {
                tracing::warn!(%run, %error, "cannot adopt a run now");
                return None;
            }
            Err(Refusal::OtherInput) => {
                let reason = format!("{WORKER_LOST}, and its input has changed since.");
                return Some(RunEnd::Lost { reason });
            }
            Err(Refusal::Store(error)) if error.is_transient() => {
                tracing::warn!(%run, %error, "cannot prepare a run, returning it to the queue");
                return Some(RunEnd::Unstarted);
            }
            Err(Refusal::NotReady(reason)) => {
                tracing::info!(%run, reason, "a run cannot start now, so its step is pending \
                    again");
                return Some(RunEnd::Unstarted);
            }
            // A retry can't fix an unreadable row. Back in the queue, the run would loop without
            // any report.
            Err(refusal) => return Some(self.refused(run, &refusal).await),
        };
        let sink = Arc::new(DatabaseLog {
            pool: self.preparer.pool.clone(),
            run,
            worker: self.preparer.worker,
        });
        let from = adopted.as_ref().map(|adopted| adopted.log).unwrap_or_default();
        let (log, writer) = Log::into_store(sink, prepared.secrets.clone(), from);
        if adopted.is_some() {
            log.line(
                Stream::Gantry,
                "[gantry: the worker was lost, another one continues the run]",
            );
        }
        for denial in &prepared.withheld {
            let line = format!(
                "[gantry: a secret in the data of another noderole is not resolved: {denial}]"
            );
            log.line(Stream::Gantry, &line);
        }
        let outcome = self.start(&prepared.job, &log, stop, adopted.is_some()).await;
        let end = run_end(outcome, &prepared.job, &prepared.secrets);
        if let Some(RunEnd::Failed { reason, .. }) = &end {
            log.line(Stream::Gantry, &format!("[gantry: failed: {reason}]"));
        }
        drop(log);
        let _ = tokio::time::timeout(LOG_WAIT, writer).await;
        end
    }

    async fn prepare(&self, run: RunId, adopted: Option<&Adopted>) -> Result<PreparedRun, Refusal> {
        let begun = tokio::time::Instant::now();
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));
        loop {
            match self.preparer.prepare(run, adopted).await {
                Err(Refusal::Store(error))
                    if error.is_transient() && begun.elapsed() < PREPARE_TIMEOUT =>
                {
                    tracing::warn!(%run, %error, "cannot prepare a run, retrying");
                    backoff.pause().await;
                }
                prepared => return prepared,
            }
        }
    }

    async fn refused(&self, run: RunId, refusal: &Refusal) -> RunEnd {
        let reason = refusal.to_string();
        tracing::warn!(%run, %reason, "a run was rejected");
        let text = format!("[gantry: {reason}]\n").into_bytes();
        let preparer = &self.preparer;
        let (worker, at) = (Some(preparer.worker), LogPosition::default());
        let appended = append_log(&preparer.pool, run, worker, at, Duration::ZERO, &text).await;
        if let Err(error) = appended {
            tracing::warn!(%run, %error, "cannot log a rejection");
        }
        RunEnd::failed(reason)
    }

    async fn start(&self, job: &Job, log: &Log, stop: Stop, adopted: bool) -> Ended {
        match self.jigs.of(&job.role.jig_class) {
            Some(jig) => run_with_timeout(jig, job, log, stop, adopted).await,
            None => Ended::failed(format!(
                "This worker has no jig of class {:?}.",
                job.role.jig_class.as_str()
            )),
        }
    }
}

/// Runs a jig within the role's timeout. A jig that enforces the timeout itself (on the node, where
/// it can end its processes) gets extra time to report. After that it is dropped, which leaves
/// nothing running.
async fn run_with_timeout(jig: &dyn Jig, job: &Job, log: &Log, stop: Stop, adopted: bool) -> Ended {
    let limit = job.timeout() + if jig.enforces_timeout() { ENDING } else { Duration::ZERO };
    let running = match adopted {
        true => jig.adopt(job, log, stop),
        false => jig.run(job, log, stop),
    };
    match tokio::time::timeout(limit, running).await {
        Ok(outcome) => outcome,
        Err(_) => Ended::failed(format!(
            "The run took longer than {} seconds, the time limit of its role.",
            job.timeout().as_secs()
        )),
    }
}

/// Converts a jig's result to the end of the run.
fn run_end(outcome: Ended, job: &Job, secrets: &Secrets) -> Report {
    Some(match outcome {
        Ended::Returned(result) => succeeded(result, job, secrets),
        Ended::Failed { reason, found } => failed(&reason, found, secrets),
        Ended::Refused(reason) => failed(&reason, Object::new(), secrets),
        Ended::Lost { started: Some(false) } => RunEnd::Unstarted,
        Ended::Lost { .. } => RunEnd::Lost { reason: format!("{WORKER_LOST}.") },
        Ended::LeftOnNode => return None,
        Ended::Stopped { reason: StopReason::LeaseLost, .. } => return None,
        Ended::Stopped { reason: StopReason::Canceled, found, .. } => {
            RunEnd::Canceled { found: without_secrets(found, secrets).unwrap_or_default() }
        }
        Ended::Stopped { reason: StopReason::WorkerShutdown, started: Some(false), .. } => {
            RunEnd::Unstarted
        }
        Ended::Stopped { reason: StopReason::WorkerShutdown, .. } => {
            RunEnd::Lost { reason: "The worker stopped before the run ended.".to_owned() }
        }
    })
}

fn failed(reason: &str, found: Object, secrets: &Secrets) -> RunEnd {
    match without_secrets(found, secrets) {
        Ok(found) => RunEnd::Failed { reason: shown(reason, secrets), found },
        Err(error) => RunEnd::failed(shown(
            &format!("{reason} (its partial result is not stored: {error})"),
            secrets,
        )),
    }
}

/// A reason for display. It is masked before it is cut, because no mask finds half a secret.
fn shown(reason: &str, secrets: &Secrets) -> String {
    // PostgreSQL text can't contain NUL.
    shorten(secrets.mask(reason).replace('\0', "\u{fffd}"))
}

/// The returned data without secrets and without references to secrets. Otherwise the next reader
/// would get the secrets that they name.
fn without_references(returned: &Value, secrets: &Secrets) -> Value {
    secret::mask(&secrets.mask_value(returned))
}

/// The part of an attempt's result that is stored: everything but secrets.
fn without_secrets(found: Object, secrets: &Secrets) -> Result<Object, DataError> {
    let masked = without_references(&Value::Object(found), secrets);
    check_result(&masked)?;
    match masked {
        Value::Object(masked) => Ok(masked),
        _ => Ok(Object::new()),
    }
}

/// Computes the output against the input with secrets, so that a secret in the result is not a
/// change. Then masks the output.
fn succeeded(result: Object, job: &Job, secrets: &Secrets) -> RunEnd {
    let result = Value::Object(result);
    let output = match output(&job.input, &result) {
        Ok(output) => without_references(&output, secrets),
        Err(error) => {
            return RunEnd::failed(shown(&format!("Cannot store the result: {error}"), secrets));
        }
    };
    match without_references(&result, secrets) {
        Value::Object(result) => match facts_error(&result, job) {
            Some(reason) => RunEnd::failed(shown(&reason, secrets)),
            None => RunEnd::Succeeded { result, output },
        },
        _ => RunEnd::failed("The result is not a JSON object."),
    }
}

/// Why the facts that a role found can't be stored.
fn facts_error(result: &Object, job: &Job) -> Option<String> {
    let facts = result.get("facts").filter(|_| job.role.flags.facts)?;
    if !facts.is_object() {
        return Some(
            "The facts are not a JSON object. Return {\"facts\": {\"key\": \"value\"}}.".to_owned(),
        );
    }
    let bytes = serde_json::to_vec(facts).map_or(usize::MAX, |bytes| bytes.len());
    let max_bytes = api::limits::FACTS;
    (bytes > max_bytes).then(|| {
        format!(
            "The facts have {bytes} bytes, but a node can have at most {max_bytes}. Return fewer \
             facts."
        )
    })
}

/// Stores logs of runs in the database.
struct DatabaseLog {
    pool: PgPool,
    run: RunId,
    worker: WorkerId,
}

impl LogStore for DatabaseLog {
    fn append<'a>(
        &'a self,
        at: LogPosition,
        chunk: &'a Chunk,
    ) -> BoxFuture<'a, Result<(), String>> {
        async move {
            let (worker, age) = (Some(self.worker), chunk.at.elapsed());
            let appended = append_log(&self.pool, self.run, worker, at, age, &chunk.text).await;
            appended.map_err(|error| error.to_string())
        }
        .boxed()
    }
}
