//! Checkpoints of the audit, signed and stored outside of the database, for as long as the server runs.
//!
//! A round signs the end of the chain if it grew, and appends the checkpoint to a file or posts it to a URL. A round that fails is
//! tried again with the next one; the server serves on. Several servers may write to the same file: each appends whole lines.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use control::Control;
use control::checkpoints::SigningKey;
use engine::audit::checkpoint::Checkpoint;
use tokio::task::spawn_blocking;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig};

use crate::metrics::Metrics;

/// How long a POST may take.
const POST: Duration = Duration::from_secs(10);
/// A line of the file is shorter than this.
const LINE: i64 = 4096;

/// Where checkpoints go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// Appended to this file, a line each.
    File(PathBuf),
    /// Posted to this URL, one each.
    Url(String),
}

impl FromStr for Destination {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once("://") {
            Some(("http" | "https", rest)) if !rest.is_empty() => Ok(Self::Url(text.to_owned())),
            Some(_) => Err("the URL must begin with https:// or http://".to_owned()),
            None if text.is_empty() => Err("give a file or a URL".to_owned()),
            None => Ok(Self::File(text.into())),
        }
    }
}

/// What is signed with, where to, and how often.
#[derive(Debug)]
pub struct Checkpoints {
    /// The private key.
    pub key: SigningKey,
    /// Where checkpoints go.
    pub to: Destination,
    /// How often.
    pub every: Duration,
}

/// Writes checkpoints until told to stop.
pub(crate) async fn until_stopped(
    control: Arc<Control>,
    metrics: Metrics,
    checkpoints: Checkpoints,
    stopping: CancellationToken,
) {
    let Checkpoints { key, to, every } = checkpoints;
    let mut ticks = tokio::time::interval(every.max(Duration::from_millis(10)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let writing = async {
        let mut last = None;
        loop {
            ticks.tick().await;
            let written = round(&control, &key, &to, &mut last).await;
            metrics.swept("checkpoint", written.is_ok());
            if let Err(error) = written {
                tracing::error!("no checkpoint of the audit was written: {error}");
            }
        }
    };
    tokio::select! {
        () = stopping.cancelled() => {}
        () = writing => {}
    }
}

async fn round(
    control: &Control,
    key: &SigningKey,
    to: &Destination,
    last: &mut Option<Checkpoint>,
) -> Result<(), String> {
    if let (Destination::File(path), None) = (to, &last) {
        let path = path.clone();
        *last = blocking(move || last_of(&path)).await?;
    }
    let next = control.checkpoint(key, last.as_ref()).await.map_err(|problem| problem.to_string())?;
    let Some(next) = next else { return Ok(()) };
    let line = serde_json::to_string(&next).map_err(|error| error.to_string())?;
    match to {
        Destination::File(path) => {
            let path = path.clone();
            blocking(move || append(&path, &line)).await?;
        }
        Destination::Url(url) => {
            let url = url.clone();
            blocking(move || post(&url, &line)).await?;
        }
    }
    *last = Some(next);
    Ok(())
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, String> {
    spawn_blocking(work).await.map_err(|error| error.to_string())?
}

/// The last checkpoint of a file; None: there is no file yet, or it is empty.
fn last_of(path: &Path) -> Result<Option<Checkpoint>, String> {
    let failed = |error: std::io::Error| format!("{} can't be read: {error}", path.display());
    let mut file = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let length = i64::try_from(file.metadata().map_err(failed)?.len()).unwrap_or(i64::MAX);
    file.seek(SeekFrom::End(-length.min(LINE))).map_err(failed)?;
    let mut end = Vec::new();
    file.read_to_end(&mut end).map_err(failed)?;
    let end = String::from_utf8_lossy(&end);
    let Some(line) = end.lines().rfind(|line| !line.trim().is_empty()) else { return Ok(None) };
    let read = serde_json::from_str(line);
    read.map(Some).map_err(|error| format!("the last line of {} is no checkpoint: {error}", path.display()))
}

fn append(path: &Path, line: &str) -> Result<(), String> {
    let write = || {
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(format!("{line}\n").as_bytes())?;
        file.sync_data()
    };
    write().map_err(|error: std::io::Error| format!("{} can't be written: {error}", path.display()))
}

/// The URL may have a secret in it, so a failure does not repeat it.
fn post(url: &str, line: &str) -> Result<(), String> {
    let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
    let agent: Agent = Agent::config_builder().tls_config(tls).timeout_global(Some(POST)).build().into();
    let sent = agent.post(url).header("content-type", "application/json").send(line);
    sent.map(drop).map_err(|error| format!("the POST of the checkpoint failed: {error}"))
}
