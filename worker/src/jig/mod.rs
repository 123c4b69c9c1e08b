//! Jigs execute steps.
//!
//! A jig gets a [`Job`] (action, node and all data resolved), a [`Log`] for output, and a [`Stop`]
//! that may fire at any moment. It returns how the job [`Ended`]. It knows neither the database nor
//! SSH: the caller decides what the result means for the step, and [`crate::node`] runs commands.
//!
//! A new jig is a variant of [`JigClass`], a file here and an arm in [`Jigs::of`].
//!
//! Invariants:
//! * If a jig is dropped or stopped, it leaves no process of the run on the node.
//! * A result is a JSON object. Anything else is a failure with a reason.
//! * Only [`Job::input`] contains secrets. The masks of [`crate::secrets`] cover logs and results
//!   before they leave the worker.

use std::sync::Arc;

use engine::catalog::JigClass;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::job::log::Log;
use crate::job::{Ended, Job, Stop};
use crate::node::Nodes;
use crate::node::wrapper::ScriptSource;

pub mod noop;
pub mod script;
pub mod test;

pub trait Jig: Send + Sync {
    /// Executes the job. Must not panic for any content of a script, a node or a document.
    fn run<'a>(&'a self, job: &'a Job, log: &'a Log, stop: Stop) -> BoxFuture<'a, Ended>;

    /// Continues an attempt that another worker started, or takes its result. The log begins where
    /// the other worker stopped.
    fn adopt<'a>(&'a self, _: &'a Job, _: &'a Log, _: Stop) -> BoxFuture<'a, Ended> {
        std::future::ready(Ended::Lost { started: None }).boxed()
    }

    /// Whether the jig enforces the timeout itself.
    fn enforces_timeout(&self) -> bool {
        false
    }
}

/// The jigs of this worker.
pub struct Jigs {
    script: script::ScriptJig,
}

impl Jigs {
    /// Creates the jigs. `scripts` supplies the content of scripts.
    pub fn new(scripts: Arc<dyn ScriptSource>, nodes: Arc<Nodes>) -> Self {
        Self { script: script::ScriptJig::new(scripts, nodes) }
    }

    /// The jig for this class, if this worker has it.
    pub fn of(&self, class: &JigClass) -> Option<&dyn Jig> {
        match class {
            JigClass::Script => Some(&self.script),
            JigClass::Noop => Some(&noop::Noop),
            JigClass::Test => Some(&test::Test),
            JigClass::Other(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::objects::Objects;
    use crate::node::connection::Dialer;
    use crate::secrets::SecretFolder;

    /// Workers tell the database that they serve all classes.
    #[tokio::test]
    async fn every_jig_class_has_a_jig() {
        let pool = sqlx::PgPool::connect_lazy("postgres://unused").expect("an address");
        let nodes = Nodes::new(Arc::new(SecretFolder(None)), Dialer::default(), "/nowhere");
        let jigs = Jigs::new(Arc::new(Objects::of(pool)), Arc::new(nodes));
        for class in JigClass::ALL {
            assert!(jigs.of(class).is_some(), "{class:?}");
        }
        assert!(jigs.of(&JigClass::Other("ansible".to_owned())).is_none());
    }
}
