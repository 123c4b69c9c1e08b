//! Checks of roles: test whether applied steps still hold, and record the results.
//!
//! A check runs for seconds, so many run concurrently, and none waits for another. The database
//! leases at most one check per node at a time, and decides what a result means
//! ([`store::runs::record_check`]).
//!
//! Only an exit code other than 0 and a timeout are failures. If a check cannot run, because its
//! node is not reached or its approval is invalid, it has no result. It is repeated, and the
//! deployment is not converged meanwhile.

use std::sync::Arc;
use std::time::Duration;

use background::{Failure, Outcome, Task, TaskResult};
use store::runs::{CheckEffect, CheckResult, DueCheck, MAX_CHECK_DETAIL};
use store::workers::WorkerId;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::database::objects::Objects;
use crate::jig::script::environment;
use crate::job::{CheckJob, shorten};
use crate::node::Nodes;
use crate::node::wrapper::{CheckEnd, MAX_CHECK_OUTPUT};
use crate::run::prepare::PreparedCheck;
use crate::run::runner::Runner;
use crate::secrets::Secrets;

/// Maximum concurrent checks.
const MAX_CONCURRENT: usize = 32;

/// Starts the checks of roles that are due. They continue during the next runs of the task.
pub struct CheckRoles {
    checker: Arc<Checker>,
    checks: JoinSet<()>,
    period: Duration,
}

struct Checker {
    worker: WorkerId,
    runner: Arc<Runner>,
    objects: Arc<Objects>,
    nodes: Arc<Nodes>,
}

impl CheckRoles {
    /// `sweep` limits the interval at which it looks for checks.
    pub fn new(
        worker: WorkerId,
        runner: Arc<Runner>,
        (objects, nodes): (Arc<Objects>, Arc<Nodes>),
        sweep: Duration,
    ) -> Self {
        let checker = Checker { worker, runner, objects, nodes };
        let period = sweep.min(Duration::from_secs(1));
        Self { checker: Arc::new(checker), checks: JoinSet::new(), period }
    }
}

impl Task for CheckRoles {
    fn name(&self) -> &'static str {
        "check-roles"
    }

    fn purpose(&self) -> &'static str {
        "Starts the checks of roles that are due."
    }

    fn period(&self) -> Duration {
        self.period
    }

    async fn run(&mut self) -> TaskResult {
        while self.checks.try_join_next().is_some() {}
        let free_slots =
            u32::try_from(MAX_CONCURRENT.saturating_sub(self.checks.len())).unwrap_or_default();
        if free_slots == 0 {
            return Ok(Outcome::from(format!("{MAX_CONCURRENT} checks are in progress.")));
        }
        let pool = &self.checker.runner.preparer.pool;
        let due = store::runs::lease_checks(pool, self.checker.worker, free_slots).await;
        let due =
            due.map_err(|error| Failure::logged("Cannot lease the checks of roles", error))?;
        let started = due.len() as u64;
        for due in due {
            self.checks.spawn(Arc::clone(&self.checker).check(due));
        }
        Ok(Outcome::counted(started, "Started", "check", "checks", "No check is due."))
    }
}

impl Checker {
    async fn check(self: Arc<Self>, due: DueCheck) {
        let (step, node, role) = (due.step, due.fqdn.as_str(), due.role.as_str());
        let pool = &self.runner.preparer.pool;
        let stored = match self.result(&due).await {
            Ok(Some(result)) => store::runs::record_check(pool, self.worker, &result).await,
            Ok(None) => {
                let returned = store::runs::return_check(pool, self.worker, &due).await;
                returned.map(|()| CheckEffect::Outdated)
            }
            Err(error) => {
                tracing::warn!(%step, node, role, error, "a check of a role could not run");
                let returned = store::runs::return_check(pool, self.worker, &due).await;
                returned.map(|()| CheckEffect::Outdated)
            }
        };
        match stored {
            Ok(CheckEffect::Recorded | CheckEffect::Outdated) => {}
            Ok(effect) => {
                tracing::info!(%step, node, role, ?effect, "a check of a role changed its step")
            }
            Err(error) => {
                tracing::warn!(%step, node, role, %error, "cannot store the result of a check, \
                    repeating the check")
            }
        }
    }

    /// Runs a check. `None` if the role has none any more.
    async fn result(&self, due: &DueCheck) -> Result<Option<CheckResult>, String> {
        let prepared = self.runner.preparer.prepare_check(due).await;
        let Some(PreparedCheck { job, secrets }) = prepared.map_err(|error| error.to_string())?
        else {
            return Ok(None);
        };
        let begun = Instant::now();
        let environment = environment::to_shell(&environment::variables(&job.input));
        let end = self
            .nodes
            .check_role(&job, self.objects.as_ref(), &environment)
            .await
            .map_err(|error| secrets.mask(&error.to_string()))?;
        let output = shown(&end.output, &secrets);
        Ok(Some(CheckResult {
            step: due.step,
            leased_at: due.leased_at,
            policy: job.policy,
            reason: failure(&end, &job, &output),
            detail: last_chars(&output, MAX_CHECK_DETAIL),
            took: begun.elapsed(),
        }))
    }
}

/// Why a check failed, in one line. `None` if it passed.
fn failure(end: &CheckEnd, job: &CheckJob, output: &str) -> Option<String> {
    let name = &job.script.name;
    if end.timed_out {
        let seconds = job.policy.timeout;
        return Some(format!("{name} took longer than {seconds} seconds, its time limit."));
    }
    if end.code == "0" {
        return None;
    }
    let last = output.lines().rev().map(str::trim).find(|line| !line.is_empty());
    Some(match last {
        Some(line) => shorten(line.to_owned()),
        None => format!("{name} ended with exit code {} and printed nothing.", end.code),
    })
}

/// The output of a check, with secrets masked. If the node dropped its beginning, the rest may
/// begin within a secret, so as much as the longest secret is dropped too.
fn shown(output: &[u8], secrets: &Secrets) -> String {
    let masked = secrets.mask(&String::from_utf8_lossy(output)).replace('\0', "\u{fffd}");
    if output.len() < MAX_CHECK_OUTPUT {
        return masked.trim().to_owned();
    }
    let from = (secrets.longest()..masked.len()).find(|at| masked.is_char_boundary(*at));
    from.map(|at| masked[at..].trim().to_owned()).unwrap_or_default()
}

fn last_chars(text: &str, most: usize) -> String {
    let skipped = text.chars().count().saturating_sub(most);
    text.chars().skip(skipped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_cut_in_secret_is_masked() {
        let secrets = Secrets::new(["hunter22-and-more".to_owned()]);
        assert_eq!(
            shown(b"a hunter22-and-more b\n", &secrets),
            format!("a {} b", engine::data::secret::MASK)
        );
        let mut cut = b"22-and-more ".to_vec();
        cut.resize(MAX_CHECK_OUTPUT, b'x');
        let shown = shown(&cut, &secrets);
        assert!(!shown.contains("more") && shown.ends_with("xxx"), "{}", &shown[..40]);
    }

    #[test]
    fn detail_is_the_end_of_the_output() {
        assert_eq!(last_chars("añb", 2), "ñb");
        assert_eq!(last_chars("ab", 5), "ab");
    }
}
