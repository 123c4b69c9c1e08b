//! The script jig: runs a role's scripts on the node.
//!
//! Contract with scripts: they run in the role's order, as one step, in the node's root folder.
//! Their environment has these variables:
//! * `GANTRY_ROOT`: the root folder.
//! * `GANTRY_NODE`: the node's fully qualified name.
//! * `GANTRY_ROLE`, `GANTRY_RUN`.
//! * `GANTRY_INPUT`: a JSON file with the input.
//! * `GANTRY_SURROUNDINGS`: a JSON file with the node, stored results and peers.
//! * `GANTRY_OUTPUT`: the path for the resulting JSON object. No file means an empty object.
//! * `GANTRY_DATA_<PATH>`: scalars of the input.
//!
//! A non-zero exit code is a failure. Its reason is the last non-empty line on standard error.
//! Processes that a script leaves in its session end with the run. A service calls `setsid` to
//! survive.
//!
//! The wrapper on the node ([`crate::node::wrapper`]) runs the scripts and enforces the timeout.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::Jig;
use crate::job::log::Log;
use crate::job::{Ended, Job, Object, Stop};
use crate::node::Nodes;
use crate::node::wrapper::{AttemptError, ScriptSource};

pub mod environment;
mod result;

/// Runs scripts.
pub struct ScriptJig {
    scripts: Arc<dyn ScriptSource>,
    nodes: Arc<Nodes>,
}

impl ScriptJig {
    pub fn new(scripts: Arc<dyn ScriptSource>, nodes: Arc<Nodes>) -> Self {
        Self { scripts, nodes }
    }

    async fn execute(&self, job: &Job, log: &Log, stop: &mut Stop) -> Result<Ended, AttemptError> {
        let attempt = self.nodes.attempt(job)?;
        let environment = environment::to_shell(&environment::variables(&job.input));
        let end = attempt.run(self.scripts.as_ref(), &environment, log, stop).await?;
        Ok(result::ended(end, job, log))
    }
}

impl Jig for ScriptJig {
    fn enforces_timeout(&self) -> bool {
        true
    }

    fn run<'a>(&'a self, job: &'a Job, log: &'a Log, mut stop: Stop) -> BoxFuture<'a, Ended> {
        async move {
            if job.scripts().next().is_none() {
                return Ended::Returned(Object::new());
            }
            if let Some(reason) = stop.reason() {
                return Ended::stopped(reason, Some(false));
            }
            match self.execute(job, log, &mut stop).await {
                Ok(ended) => ended,
                Err(error) => Ended::failed(error.to_string()),
            }
        }
        .boxed()
    }

    fn adopt<'a>(&'a self, job: &'a Job, log: &'a Log, mut stop: Stop) -> BoxFuture<'a, Ended> {
        async move {
            let adopted = async { self.nodes.attempt(job)?.adopt(log, &mut stop).await };
            match adopted.await {
                Ok(end) => result::adopted(end, job, log),
                Err(error) => Ended::failed(error.to_string()),
            }
        }
        .boxed()
    }
}
