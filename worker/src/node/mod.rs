//! Access to nodes.
//!
//! * [`connection`]: how to reach a node, as its reviewed document says.
//! * [`session`]: one local or SSH session, which runs commands.
//! * [`wrapper`]: the script on the node that runs attempts, with its lock, tokens and ledger.
//! * [`health`]: whether a node accepts a connection.
//! * [`boot`]: services of nodes that are folders of this machine.
//!
//! Jigs use [`Nodes::attempt`]. They know neither SSH nor the wrapper's protocol.

use std::path::PathBuf;
use std::sync::Arc;

use engine::ids::{RunId, StepId};
use serde_json::Value;

pub mod boot;
pub mod connection;
pub mod health;
pub mod session;
pub mod wrapper;

use self::connection::{Dialer, Transport};
use self::session::Session;
use self::session::ssh::SshSessions;
use self::wrapper::{Attempt, AttemptError, CheckEnd, LostRun, ScriptSource, Staged, Wrapper};
use crate::job::{CheckJob, Job};
use crate::secrets::SecretSource;

/// The nodes that this worker reaches, with its sessions.
pub struct Nodes {
    ssh: Arc<SshSessions>,
    staged: Arc<Staged>,
    /// Root folder for runs that execute on this worker for a node.
    worker_root: PathBuf,
}

impl Nodes {
    /// Opens no session. `worker_root` is the root folder for runs that execute on the worker for a
    /// node.
    pub fn new(
        secrets: Arc<dyn SecretSource>,
        dialer: Dialer,
        worker_root: impl Into<PathBuf>,
    ) -> Self {
        let ssh = Arc::new(SshSessions::new(secrets, dialer));
        Self { ssh, staged: Arc::default(), worker_root: worker_root.into() }
    }

    /// Prepares an attempt at a step: on its node, or on this worker for the node.
    ///
    /// # Errors
    /// If the job's connection is invalid.
    pub fn attempt<'a>(&self, job: &'a Job) -> Result<Attempt<'a>, AttemptError> {
        let transport = match job.on_node() {
            true => Transport::read(&job.connection)?,
            false => Transport::Local { root: self.worker_root.join(job.node.to_string()) },
        };
        Ok(Attempt::new(self.wrapper(transport), job))
    }

    /// Runs the check of a role: on its node, or on this worker for the node. `environment` has
    /// lines of a POSIX shell.
    ///
    /// # Errors
    /// If the node can't be used. The check then has no result.
    pub async fn check_role(
        &self,
        job: &CheckJob,
        scripts: &dyn ScriptSource,
        environment: &str,
    ) -> Result<CheckEnd, AttemptError> {
        let transport = match job.on_node {
            true => Transport::read(&job.connection)?,
            false => Transport::Local { root: self.worker_root.join(job.node.to_string()) },
        };
        self.wrapper(transport).check(job, scripts, environment).await
    }

    /// Lists the attempts that run on a node, each with its step. Attempts that ended, or that a
    /// reboot ended, are not included.
    ///
    /// # Errors
    /// If the node can't be queried. The text is for users.
    pub async fn running_attempts(
        &self,
        connection: &Value,
    ) -> Result<Vec<(RunId, StepId)>, String> {
        let transport = Transport::read(connection).map_err(|error| error.to_string())?;
        self.wrapper(transport).running_attempts().await.map_err(|error| error.to_string())
    }

    /// Ends the remains of a lost run on its node, prevents it from starting late, and returns
    /// whether it ever started.
    ///
    /// # Errors
    /// If the node can't be queried. The state is then unknown. The text is for users.
    pub async fn end_lost_run(
        &self,
        connection: &Value,
        step: StepId,
        epoch: i64,
        run: RunId,
    ) -> Result<LostRun, String> {
        let transport = Transport::read(connection).map_err(|error| error.to_string())?;
        let wrapper = self.wrapper(transport);
        let ended = async {
            wrapper.stage().await?;
            wrapper.end(step, epoch, run).await
        };
        ended.await.map_err(|error: AttemptError| error.to_string())
    }

    fn session(&self, transport: Transport) -> Session {
        Session { transport: Arc::new(transport), ssh: Arc::clone(&self.ssh) }
    }

    fn wrapper(&self, transport: Transport) -> Wrapper {
        Wrapper::new(self.session(transport), Arc::clone(&self.staged))
    }
}
