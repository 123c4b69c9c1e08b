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
#[derive(Debug, Clone)]
pub struct Checkpoints {
    /// The private key.
    pub key: Arc<SigningKey>,
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

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::net::TcpListener;
    use std::sync::mpsc;

    use control::checkpoints::VerifyingKey;
    use store::Store;
    use tempfile::TempDir;
    use testdb::TestDatabase;

    use super::*;

    struct World {
        db: TestDatabase,
        control: Arc<Control>,
        public: VerifyingKey,
        pem: String,
        folder: TempDir,
    }

    impl World {
        async fn new() -> Self {
            let db = TestDatabase::new().await;
            let control = Arc::new(Control::new(Store::over(db.app().clone())));
            let pem = SigningKey::generate().unwrap();
            let public = VerifyingKey::read(&SigningKey::read(&pem).unwrap().public()).unwrap();
            Self { db, control, public, pem, folder: tempfile::tempdir().unwrap() }
        }

        /// One more sealed entry.
        async fn grow(&self) {
            for sql in ["INSERT INTO audit (action) VALUES ('test')", "SELECT seal_audit(10)"] {
                sqlx::query(sql).execute(self.db.app()).await.unwrap();
            }
        }

        fn start(&self, to: Destination) -> CancellationToken {
            let stopping = CancellationToken::new();
            let key = SigningKey::read(&self.pem).unwrap();
            let checkpoints = Checkpoints { key: Arc::new(key), to, every: Duration::from_millis(20) };
            let metrics = Metrics::default();
            tokio::spawn(until_stopped(Arc::clone(&self.control), metrics, checkpoints, stopping.clone()));
            stopping
        }

        fn file(&self) -> PathBuf {
            self.folder.path().join("checkpoints.jsonl")
        }

        /// The checkpoints in the file, once there are so many.
        async fn written(&self, wanted: usize) -> Vec<Checkpoint> {
            for _ in 0..500 {
                let text = std::fs::read_to_string(self.file()).unwrap_or_default();
                if text.lines().count() >= wanted && text.ends_with('\n') {
                    return text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            panic!("there are no {wanted} checkpoints");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn file_gets_a_checkpoint_when_the_chain_grows() {
        let world = World::new().await;
        let file = Destination::File(world.file());
        let first = world.start(file.clone());
        tokio::time::sleep(Duration::from_millis(60)).await;
        assert!(!world.file().exists(), "nothing is sealed yet");
        world.grow().await;
        world.written(1).await;
        tokio::time::sleep(Duration::from_millis(60)).await;
        assert_eq!(world.written(1).await.len(), 1, "the chain did not grow");
        first.cancel();
        world.grow().await;
        // A restarted server goes on after the last line.
        let second = world.start(file);
        let checkpoints = world.written(2).await;
        let sealed: Vec<(i64, Vec<u8>)> =
            sqlx::query_as("SELECT seq, hash FROM seal ORDER BY seq").fetch_all(world.db.app()).await.unwrap();
        for checkpoint in &checkpoints {
            assert!(world.public.signed(checkpoint));
            let link = &checkpoint.link;
            assert!(sealed.iter().any(|(seq, hash)| seq.unsigned_abs() == link.seq && hash == link.hash.as_bytes()));
        }
        assert!(checkpoints[0].link.seq < checkpoints[1].link.seq);
        second.cancel();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn recomputed_chain_is_not_signed() {
        let world = World::new().await;
        world.grow().await;
        let key = SigningKey::read(&world.pem).unwrap();
        let last = world.control.checkpoint(&key, None).await.unwrap().unwrap();
        for sql in [
            "ALTER TABLE seal DISABLE TRIGGER USER",
            "UPDATE seal SET hash = sha256(hash) WHERE seq = (SELECT max(seq) FROM seal)",
        ] {
            sqlx::query(sql).execute(world.db.owner()).await.unwrap();
        }
        world.grow().await;
        let refused = world.control.checkpoint(&key, Some(&last)).await.unwrap_err();
        assert_eq!(refused.code, "audit_changed");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn failed_post_is_retried() {
        let world = World::new().await;
        world.grow().await;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/checkpoints", listener.local_addr().unwrap());
        let (send, received) = mpsc::channel();
        std::thread::spawn(move || {
            for (n, stream) in listener.incoming().enumerate() {
                let mut stream = stream.unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut line, mut length) = (String::new(), 0);
                while reader.read_line(&mut line).unwrap() > 2 {
                    if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                    line.clear();
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                let status = if n == 0 { "503 Service Unavailable" } else { "204 No Content" };
                write!(stream, "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").unwrap();
                if send.send(body).is_err() {
                    return;
                }
            }
        });
        let stopping = world.start(Destination::Url(url));
        let posted = spawn_blocking(move || {
            let take = || received.recv_timeout(Duration::from_secs(10)).unwrap();
            [take(), take()]
        });
        let [first, second] = posted.await.unwrap();
        stopping.cancel();
        let read = |body: &[u8]| serde_json::from_slice::<Checkpoint>(body).unwrap();
        assert!(world.public.signed(&read(&first)) && world.public.signed(&read(&second)));
        assert_eq!(read(&first).link.hash, read(&second).link.hash, "the same end is sent again");
    }

    #[test]
    fn destination_is_a_file_or_a_url() {
        let read = |text: &str| text.parse::<Destination>();
        assert_eq!(read("/var/x.jsonl"), Ok(Destination::File("/var/x.jsonl".into())));
        assert_eq!(read("https://log.example/a"), Ok(Destination::Url("https://log.example/a".into())));
        for wrong in ["", "ftp://log.example/a", "https://"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
