//! Sends the scripts of an attempt to its node.
//!
//! Scripts that this worker does not know to be on the node travel with the attempt. Asking the
//! node first would cost another login. Only if they are too long, or the node lacks a script after
//! all, the worker asks and sends them separately.

use std::collections::BTreeSet;

use engine::Hash;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::commands::Wrapper;
use super::error::AttemptError;
use crate::database::objects::Objects;
use crate::job::Job;

/// Maximum bytes of scripts that are sent with a run without asking which ones the node has.
const MAX_INLINE_SCRIPTS: usize = 256 << 10;
/// Maximum scripts that a worker remembers for each node.
const MAX_KNOWN_SCRIPTS: usize = 10_000;

/// Source of script content.
pub trait ScriptSource: Send + Sync {
    /// Returns the script with this hash.
    fn script(&self, hash: Hash) -> BoxFuture<'_, Result<Vec<u8>, String>>;
}

/// Scripts are objects.
impl ScriptSource for Objects {
    fn script(&self, hash: Hash) -> BoxFuture<'_, Result<Vec<u8>, String>> {
        async move { self.bytes("script", hash).await.map_err(|error| error.to_string()) }.boxed()
    }
}

/// A script's content with its hash.
pub(super) type Script = (Hash, Vec<u8>);

impl Wrapper {
    /// Returns the scripts to send with the run, because this worker does not know whether the node
    /// has them. Returns none if they are too long.
    pub(super) async fn inline_scripts(
        &self,
        job: &Job,
        source: &dyn ScriptSource,
    ) -> Result<Vec<Script>, AttemptError> {
        let known =
            self.staged.scripts.lock().ok().and_then(|known| known.get(&self.root_key()).cloned());
        let mut known = known.unwrap_or_default();
        let (mut inline, mut length) = (Vec::new(), 0);
        for script in job.scripts() {
            if !known.insert(script.hash) {
                continue;
            }
            let bytes = source.script(script.hash).await.map_err(AttemptError::Script)?;
            length += bytes.len();
            if length > MAX_INLINE_SCRIPTS {
                return Ok(Vec::new());
            }
            inline.push((script.hash, bytes));
        }
        Ok(inline)
    }

    /// Records that the node has the scripts of a started run.
    pub(super) fn remember_scripts(&self, job: &Job) {
        if let Ok(mut known) = self.staged.scripts.lock() {
            let node_scripts = known.entry(self.root_key()).or_default();
            if node_scripts.len() > MAX_KNOWN_SCRIPTS {
                node_scripts.clear();
            }
            node_scripts.extend(job.scripts().map(|script| script.hash));
        }
    }

    fn forget_scripts(&self) {
        if let Ok(mut known) = self.staged.scripts.lock() {
            known.remove(&self.root_key());
        }
    }

    /// Sends the scripts that the node lacks.
    pub(super) async fn send_scripts(
        &self,
        job: &Job,
        source: &dyn ScriptSource,
    ) -> Result<(), AttemptError> {
        self.forget_scripts();
        let mut command = vec!["lacks".to_owned()];
        let hashes: BTreeSet<String> = job.scripts().map(|s| s.hash.to_string()).collect();
        command.extend(hashes);
        let missing = self.call("checking its scripts", &command, b"").await?;
        for hash in String::from_utf8_lossy(&missing).lines() {
            let hash: Hash = hash.parse().map_err(|_| {
                AttemptError::Script(format!(
                    "The node requested {hash:?}, which is not a script of the run."
                ))
            })?;
            let bytes = source.script(hash).await.map_err(AttemptError::Script)?;
            let command = ["put".to_owned(), hash.to_string()];
            self.call("sending a script", &command, &bytes).await?;
        }
        Ok(())
    }
}
