//! Runs the check of a role on its node. A check is no attempt: it has no token and no ledger
//! entry.
//!
//! The wrapper enforces the timeout and ends all processes of the check, also if the connection
//! breaks.

use std::time::Duration;

use super::commands::Wrapper;
use super::error::AttemptError;
use super::report::value_of;
use super::scripts::ScriptSource;
use super::{CALL_WRAPPER, EXIT_MISSING_SCRIPT, EXIT_NO_WRAPPER, KILL_GRACE_SECONDS};
use crate::job::CheckJob;
use crate::node::session::SessionError;

/// Maximum bytes of the output of a check. The wrapper drops the beginning.
pub const MAX_CHECK_OUTPUT: usize = 64 << 10;
/// Time after the timeout of a check at which the worker considers the wrapper hung.
const OVERTIME: Duration = Duration::from_secs(30);

/// How a check ended on its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckEnd {
    /// The exit code of the script. Empty after a timeout.
    pub code: String,
    pub timed_out: bool,
    /// The end of its output.
    pub output: Vec<u8>,
}

impl Wrapper {
    /// Runs the check with these lines of a POSIX shell as its environment.
    ///
    /// # Errors
    /// If the node can't be used. The check then has no result.
    pub(crate) async fn check(
        &self,
        job: &CheckJob,
        source: &dyn ScriptSource,
        environment: &str,
    ) -> Result<CheckEnd, AttemptError> {
        self.stage().await?;
        let mut sent = None;
        // The node may lack the script and the wrapper.
        for _ in 0..2 {
            match self.check_once(job, sent.as_deref(), environment).await {
                Err(AttemptError::Session(SessionError::CommandFailed { how, .. }))
                    if how.code() == Some(EXIT_MISSING_SCRIPT) =>
                {
                    let script = source.script(job.script.hash).await;
                    sent = Some(script.map_err(AttemptError::Script)?);
                }
                Err(AttemptError::Session(SessionError::CommandFailed { how, .. }))
                    if how.code() == Some(EXIT_NO_WRAPPER) =>
                {
                    self.restage().await?
                }
                other => return other,
            }
        }
        self.check_once(job, sent.as_deref(), environment).await
    }

    async fn check_once(
        &self,
        job: &CheckJob,
        sent: Option<&[u8]>,
        environment: &str,
    ) -> Result<CheckEnd, AttemptError> {
        let script = match sent {
            Some(bytes) => format!("{}+{}:{}", job.script.hash, bytes.len(), job.script.name),
            None => format!("{}:{}", job.script.hash, job.script.name),
        };
        let mut input = sent.unwrap_or_default().to_vec();
        // One line each. `serde_json` writes no newlines.
        input.extend(format!("{}\n{}\n", job.input, job.surroundings).into_bytes());
        input.extend_from_slice(environment.as_bytes());
        let command = [
            "check".to_owned(),
            job.policy.timeout.to_string(),
            KILL_GRACE_SECONDS.to_string(),
            job.fqdn.to_string(),
            job.role.to_string(),
            input.len().to_string(),
            MAX_CHECK_OUTPUT.to_string(),
            script,
        ];
        let time = job.timeout() + Duration::from_secs(KILL_GRACE_SECONDS) + OVERTIME;
        let (action, args) = ("checking a role", self.args(&command));
        let answer = self
            .session
            .execute_within(time, action, CALL_WRAPPER, &args, &input, 2 * MAX_CHECK_OUTPUT)
            .await?;
        let end = answer.iter().position(|byte| *byte == b'\n').unwrap_or(answer.len());
        let report = String::from_utf8_lossy(&answer[..end]).into_owned();
        Ok(CheckEnd {
            code: value_of(&report, "code").unwrap_or_default().to_owned(),
            timed_out: value_of(&report, "why") == Some("timeout"),
            output: answer.get(end + 1..).unwrap_or_default().to_vec(),
        })
    }
}
