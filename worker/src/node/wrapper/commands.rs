//! Short commands of the wrapper: stage it, list and end attempts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use engine::Hash;
use engine::ids::{RunId, StepId};

use super::error::AttemptError;
use super::report::value_of;
use super::{CALL_WRAPPER, KILL_GRACE_SECONDS, STAGE_WRAPPER, WRAPPER, wrapper_hash};
use crate::node::session::Session;

/// Maximum bytes of the list of attempts. About 10,000 attempts fit.
const MAX_LIST_OUTPUT: usize = 1 << 20;

/// The remains of a lost run on its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostRun {
    /// The ledger proves that the run never started. It can't start later either.
    NeverStarted,
    /// The run started. Its remaining processes have been ended.
    Started,
    /// Later attempts have overwritten the ledger entry.
    Unknown,
}

impl LostRun {
    /// Whether the run ever started; `None` if unknown.
    pub fn started(self) -> Option<bool> {
        match self {
            Self::NeverStarted => Some(false),
            Self::Started => Some(true),
            Self::Unknown => None,
        }
    }
}

/// The files of this worker on nodes. Nodes are identified by
/// [`Transport::root_key`](crate::node::connection::Transport::root_key).
#[derive(Default)]
pub(crate) struct Staged {
    /// Nodes that have the wrapper.
    wrapper: Mutex<BTreeSet<String>>,
    /// Scripts that are known to be on each node: those found when the wrapper was staged, and
    /// those that ran since.
    pub(super) scripts: Mutex<BTreeMap<String, BTreeSet<Hash>>>,
}

/// The wrapper on one node.
#[derive(Clone)]
pub(crate) struct Wrapper {
    pub(super) session: Session,
    pub(super) staged: Arc<Staged>,
}

impl Wrapper {
    pub(crate) fn new(session: Session, staged: Arc<Staged>) -> Self {
        Self { session, staged }
    }

    pub(super) fn root_key(&self) -> String {
        self.session.transport.root_key()
    }

    fn path(&self) -> String {
        let root = self.session.transport.root();
        root.join(".gantry/bin").join(wrapper_hash().to_string()).to_string_lossy().into_owned()
    }

    fn root(&self) -> String {
        self.session.transport.root().to_string_lossy().into_owned()
    }

    /// The arguments of `CALL_WRAPPER`.
    pub(super) fn args(&self, command: &[String]) -> Vec<String> {
        let mut args = vec![wrapper_hash().to_string(), self.path(), self.root()];
        args.extend_from_slice(command);
        args
    }

    /// Ensures that the node has the wrapper.
    pub(crate) async fn stage(&self) -> Result<(), AttemptError> {
        self.session.prepare().await?;
        let known =
            self.staged.wrapper.lock().is_ok_and(|staged| staged.contains(&self.root_key()));
        if known { Ok(()) } else { self.restage().await }
    }

    pub(super) async fn restage(&self) -> Result<(), AttemptError> {
        self.stage_and_call("staging the wrapper", &[]).await.map(drop)
    }

    /// Stages the wrapper and calls it with these arguments, if any. It is a single command,
    /// because each command costs a login on the node.
    async fn stage_and_call(
        &self,
        action: &'static str,
        args: &[String],
    ) -> Result<String, AttemptError> {
        let mut words = vec![self.path()];
        words.extend_from_slice(args);
        let wrapper = WRAPPER.as_bytes();
        let listed = self
            .session
            .execute_with_limit(action, STAGE_WRAPPER, &words, wrapper, MAX_LIST_OUTPUT)
            .await?;
        let listed = String::from_utf8_lossy(&listed).into_owned();
        if let Ok(mut scripts) = self.staged.scripts.lock() {
            let found = listed.lines().filter_map(|name| name.parse().ok()).collect();
            scripts.insert(self.root_key(), found);
        }
        if let Ok(mut staged) = self.staged.wrapper.lock() {
            staged.insert(self.root_key());
        }
        Ok(listed)
    }

    pub(super) async fn call(
        &self,
        action: &'static str,
        command: &[String],
        input: &[u8],
    ) -> Result<Vec<u8>, AttemptError> {
        Ok(self.session.execute(action, CALL_WRAPPER, &self.args(command), input).await?)
    }

    /// Lists the attempts that run on the node. A reboot may have mounted another disk, so the
    /// wrapper is staged again.
    pub(crate) async fn running_attempts(&self) -> Result<Vec<(RunId, StepId)>, AttemptError> {
        let args = [self.root(), "attempts".to_owned()];
        let listed = self.stage_and_call("listing its runs", &args).await?;
        Ok(listed.lines().filter_map(running_attempt).collect())
    }

    /// Ends an attempt and prevents it from starting later.
    pub(crate) async fn end(
        &self,
        step: StepId,
        epoch: i64,
        run: RunId,
    ) -> Result<LostRun, AttemptError> {
        let command = [
            "end".to_owned(),
            step.to_string(),
            epoch.to_string(),
            run.to_string(),
            KILL_GRACE_SECONDS.to_string(),
        ];
        let answer = self.call("ending a run", &command, b"").await?;
        Ok(match value_of(&String::from_utf8_lossy(&answer), "started") {
            Some("no") => LostRun::NeverStarted,
            Some("yes") => LostRun::Started,
            _ => LostRun::Unknown,
        })
    }
}

/// Parses a line of the wrapper's list of attempts. Returns `None` if the attempt does not run.
fn running_attempt(line: &str) -> Option<(RunId, StepId)> {
    let mut words = line.split(' ');
    // Older wrappers print the attempt number without the epoch.
    let (run, step) =
        (words.next()?.rsplit('.').next()?.parse().ok()?, words.next()?.parse().ok()?);
    (words.next() == Some("runs")).then_some((RunId(run), step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survey_lists_running_attempts_only() {
        let step = StepId(uuid::Uuid::from_u128(7));
        assert_eq!(running_attempt(&format!("2.15 {step} runs")), Some((RunId(15), step)));
        assert_eq!(
            running_attempt(&format!("15 {step} runs")),
            Some((RunId(15), step)),
            "a survey in the format of an older wrapper is read"
        );
        assert_eq!(running_attempt(&format!("2.15 {step} gone")), None);
        assert_eq!(running_attempt("2.x y runs"), None);
    }
}
