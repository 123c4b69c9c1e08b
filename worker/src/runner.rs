//! The handler of a task: prepares a leased run, lets its jig carry it out, and says what came of it.

use std::sync::Arc;
use std::time::Duration;

use apalis_core::error::BoxDynError;
use apalis_core::task::data::Data;
use engine::data::{DataError, check_returned, secret, wall};
use engine::ids::RunId;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use sqlx::PgPool;
use store::running::{RunEnd, append_log};

use crate::backend::LeasedRun;
use crate::jig::{Ended, Jig, Jigs, Job, Object, Scripts, Stop, StopReason, shortened};
use crate::log::{Chunk, Log, LogStore, Stream};
use crate::objects::Objects;
use crate::prepare::{Preparing, Refusal};
use crate::secrets::Secrets;

/// What came of a run. None: it is not ours any more, and there is nothing to say.
pub type Report = Option<RunEnd>;

/// Everything that carrying out runs needs.
pub struct Runner {
    /// Makes runs ready.
    pub preparing: Preparing,
    /// Carries them out.
    pub jigs: Jigs,
}

/// How long the end of a run waits for its log: what is written first reads better, but a run never waits for a database.
const LOG_WAIT: Duration = Duration::from_secs(5);

/// How long preparing is tried while the database is away.
const PREPARE: Duration = Duration::from_secs(30);

/// How long a jig that keeps time by itself may take to end what it ends.
const ENDING: Duration = Duration::from_secs(engine::anneal::ENDING as u64 / 2);

/// The handler.
///
/// # Errors
/// Never: whatever happens is an answer. (The type is apalis's.)
pub async fn carry_out(
    leased: LeasedRun,
    runner: Data<Arc<Runner>>,
) -> Result<Report, BoxDynError> {
    Ok(runner.carry_out(leased).await)
}

impl Runner {
    async fn carry_out(&self, LeasedRun { run, stop }: LeasedRun) -> Report {
        let prepared = match self.prepare(run).await {
            Ok(prepared) => prepared,
            Err(Refusal::NotOurs(_)) => return None,
            Err(Refusal::Store(error)) if error.may_pass() => {
                tracing::warn!(%run, %error, "a run could not be prepared; it goes back to the queue");
                return Some(RunEnd::Unstarted);
            }
            Err(Refusal::NotNow(reason)) => {
                tracing::info!(%run, reason, "a run may not start now; its step waits again");
                return Some(RunEnd::Unstarted);
            }
            // A row that can't be read stays so: going back to the queue would come round for ever, and nobody would be told.
            Err(refusal) => return Some(self.refused(run, &refusal).await),
        };
        let sink = Arc::new(ToDatabase { pool: self.preparing.pool.clone(), run });
        let (log, writer) = Log::into_store(sink, prepared.secrets.clone());
        for why in &prepared.withheld {
            let line = format!(
                "[gantry: a secret in the data of another noderole is not resolved: {why}]"
            );
            log.line(Stream::Gantry, &line);
        }
        let ended = self.start(&prepared.job, &log, stop).await;
        let end = run_end(ended, &prepared.job, &prepared.secrets);
        if let Some(RunEnd::Failed { reason, .. }) = &end {
            log.line(Stream::Gantry, &format!("[gantry: failed: {reason}]"));
        }
        drop(log);
        let _ = tokio::time::timeout(LOG_WAIT, writer).await;
        end
    }

    async fn prepare(&self, run: RunId) -> Result<crate::prepare::Prepared, Refusal> {
        let begun = tokio::time::Instant::now();
        let mut pause = Duration::from_millis(100);
        loop {
            match self.preparing.prepare(run).await {
                Err(Refusal::Store(error)) if error.may_pass() && begun.elapsed() < PREPARE => {
                    tracing::warn!(%run, %error, "a run could not be prepared; trying again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(2));
                }
                prepared => return prepared,
            }
        }
    }

    async fn refused(&self, run: RunId, refusal: &Refusal) -> RunEnd {
        let reason = refusal.to_string();
        tracing::warn!(%run, %reason, "a run was refused");
        let text = format!("[gantry: {reason}]\n").into_bytes();
        if let Err(error) = append_log(&self.preparing.pool, run, 0, Duration::ZERO, &text).await {
            tracing::warn!(%run, %error, "the refusal could not be logged");
        }
        RunEnd::failed(reason)
    }

    async fn start(&self, job: &Job, log: &Log, stop: Stop) -> Ended {
        match self.jigs.of(&job.role.jig_class) {
            Some(jig) => in_time(jig, job, log, stop).await,
            None => Ended::failed(format!(
                "this worker has no jig of class {:?}",
                job.role.jig_class.as_str()
            )),
        }
    }
}

/// Lets a jig work for as long as the role allows. One that keeps time by itself (on the node, where it can end what it started) has a
/// while more to say so; after that it is dropped, which leaves nothing running.
async fn in_time(jig: &dyn Jig, job: &Job, log: &Log, stop: Stop) -> Ended {
    let allowed = job.timeout() + if jig.keeps_time() { ENDING } else { Duration::ZERO };
    match tokio::time::timeout(allowed, jig.run(job, log, stop)).await {
        Ok(ended) => ended,
        Err(_) => Ended::failed(format!(
            "it took longer than {} seconds, which is its role's limit",
            job.timeout().as_secs()
        )),
    }
}

/// What a jig's answer means for the run.
fn run_end(ended: Ended, job: &Job, secrets: &Secrets) -> Report {
    Some(match ended {
        Ended::Returned(result) => succeeded(result, job, secrets),
        Ended::Failed { reason, found } => failed(&reason, found, secrets),
        Ended::Refused(reason) => failed(&reason, Object::new(), secrets),
        Ended::Stopped { why: StopReason::NotOurs, .. } => return None,
        Ended::Stopped { why: StopReason::Cancelled, found, .. } => {
            RunEnd::Cancelled { found: kept(found, secrets).unwrap_or_default() }
        }
        Ended::Stopped { why: StopReason::WorkerEnds, started: Some(false), .. } => {
            RunEnd::Unstarted
        }
        Ended::Stopped { why: StopReason::WorkerEnds, .. } => {
            RunEnd::Lost { reason: "its worker ended before it did".to_owned() }
        }
    })
}

fn failed(reason: &str, found: Object, secrets: &Secrets) -> RunEnd {
    match kept(found, secrets) {
        Ok(found) => RunEnd::Failed { reason: shown(reason, secrets), found },
        Err(why) => RunEnd::failed(shown(
            &format!("{reason} (and what it returned is not kept: {why})"),
            secrets,
        )),
    }
}

/// A reason that people may read. Masked before it is cut, for half a secret is one that no mask finds.
fn shown(reason: &str, secrets: &Secrets) -> String {
    // What a node writes may have a character in it that the database has no place for.
    shortened(secrets.mask(reason).replace('\0', "\u{fffd}"))
}

/// What a node returned, without secrets and without references to any: whoever sees it next would be given what they name.
fn bare(returned: &Value, secrets: &Secrets) -> Value {
    secret::mask(&secrets.mask_value(returned))
}

/// What is kept of what an attempt returned: all of it but secrets.
fn kept(found: Object, secrets: &Secrets) -> Result<Object, DataError> {
    let masked = bare(&Value::Object(found), secrets);
    check_returned(&masked)?;
    match masked {
        Value::Object(masked) => Ok(masked),
        _ => Ok(Object::new()),
    }
}

/// The wall is taken against what the run was really given, so that a secret that only comes back is no news; then it is masked.
fn succeeded(result: Object, job: &Job, secrets: &Secrets) -> RunEnd {
    let result = Value::Object(result);
    let wall = match wall(&job.input, &result) {
        Ok(wall) => bare(&wall, secrets),
        Err(error) => {
            return RunEnd::failed(shown(&format!("its result can't be kept: {error}"), secrets));
        }
    };
    match bare(&result, secrets) {
        Value::Object(result) => match not_kept(&result, job) {
            Some(reason) => RunEnd::failed(shown(&reason, secrets)),
            None => RunEnd::Succeeded { result, wall },
        },
        _ => RunEnd::failed("its result is no object"),
    }
}

/// Why what a role found out about its node can't be kept as facts.
fn not_kept(result: &Object, job: &Job) -> Option<String> {
    let facts = result.get("facts").filter(|_| job.role.flags.facts)?;
    if !facts.is_object() {
        return Some(
            "its facts are no JSON object: return {\"facts\": {\"key\": \"value\"}}".to_owned(),
        );
    }
    let bytes = serde_json::to_vec(facts).map_or(usize::MAX, |bytes| bytes.len());
    let most = api::limits::FACTS;
    (bytes > most).then(|| {
        format!(
            "its facts have {bytes} bytes, and a node's may have {most}: let the role return less"
        )
    })
}

/// Logs of runs in the database.
struct ToDatabase {
    pool: PgPool,
    run: RunId,
}

impl LogStore for ToDatabase {
    fn append<'a>(&'a self, offset: u64, chunk: &'a Chunk) -> BoxFuture<'a, Result<(), String>> {
        async move {
            let appended =
                append_log(&self.pool, self.run, offset, chunk.at.elapsed(), &chunk.text).await;
            appended.map_err(|error| error.to_string())
        }
        .boxed()
    }
}

/// Scripts are objects.
impl Scripts for Objects {
    fn script(&self, hash: engine::Hash) -> BoxFuture<'_, Result<Vec<u8>, String>> {
        async move { self.bytes("script", hash).await.map_err(|error| error.to_string()) }.boxed()
    }
}
