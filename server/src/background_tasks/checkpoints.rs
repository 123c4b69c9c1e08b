//! Signs checkpoints of the audit chain and stores them outside of the database.
//!
//! Each round signs the end of the chain if it has grown. It appends the checkpoint to a file or
//! posts it to a URL. A failed round is retried with the next one, and the server continues.
//! Several servers may write to the same file, because each appends whole lines.
//!
//! The first round after a start reads the last checkpoint back from the file or the URL. The chain
//! may have been changed while no server ran. If the file or URL can't be read, the round fails.
//! Otherwise an attacker who blocks one request could get a changed chain signed. A URL that only
//! stores checkpoints answers 404, 405 or 501; the server then logs a warning and continues.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use background::{Failure, Outcome, Task, TaskResult};
use control::Control;
use control::audit::checkpoints::SigningKey;
use engine::audit::checkpoint::Checkpoint;
use tokio::task::spawn_blocking;
use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig};

/// Timeout of the URL.
const ANSWER: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 10 });
/// Maximum size of the answer to a GET.
const MAX_RESPONSE_BYTES: u64 = 1 << 20;
/// Maximum length of a line in the file.
const MAX_LINE_BYTES: i64 = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// A file with one checkpoint per line.
    File(PathBuf),
    /// A URL that receives each checkpoint as a POST. A GET returns the newest one, if the URL
    /// supports that.
    Url(String),
}

impl FromStr for Destination {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once("://") {
            Some(("http" | "https", rest)) if !rest.is_empty() => Ok(Self::Url(text.to_owned())),
            Some(_) => Err("the URL must begin with https:// or http://".to_owned()),
            None if text.is_empty() => Err("the value is empty: use a file or a URL".to_owned()),
            None => Ok(Self::File(text.into())),
        }
    }
}

/// Settings for checkpoints.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    /// The private key.
    pub key: Arc<SigningKey>,
    pub to: Destination,
    pub every: Duration,
}

/// Writes a checkpoint if the chain has grown.
pub(crate) struct WriteCheckpoint {
    control: Arc<Control>,
    settings: Checkpoints,
    /// The last written checkpoint. `None`: it must be read back first.
    last: Option<Checkpoint>,
}

impl WriteCheckpoint {
    pub(crate) fn new(control: Arc<Control>, settings: Checkpoints) -> Self {
        Self { control, settings, last: None }
    }
}

impl Task for WriteCheckpoint {
    fn name(&self) -> &'static str {
        "write-audit-checkpoint"
    }

    fn purpose(&self) -> &'static str {
        "Signs the end of the audit chain and stores it outside of the database."
    }

    fn period(&self) -> Duration {
        self.settings.every.max(Duration::from_millis(10))
    }

    async fn run(&mut self) -> TaskResult {
        let Checkpoints { key, to, .. } = &self.settings;
        match round(&self.control, key, to, &mut self.last).await {
            Ok(true) => Ok(Outcome::from("Wrote a checkpoint.")),
            Ok(false) => Ok(Outcome::from("The audit chain has not grown.")),
            Err(error) => Err(Failure::new("Cannot write an audit checkpoint", error)),
        }
    }
}

/// Returns whether a checkpoint was written.
async fn round(
    control: &Control,
    key: &SigningKey,
    to: &Destination,
    last: &mut Option<Checkpoint>,
) -> Result<bool, String> {
    let known = match last.take() {
        None => {
            let to = to.clone();
            blocking(move || last_of(&to)).await?
        }
        known => known,
    };
    let next = control.checkpoint(key, known.as_ref()).await;
    *last = known;
    let Some(next) = next.map_err(|problem| problem.detail)? else { return Ok(false) };
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
    Ok(true)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    spawn_blocking(work).await.map_err(|error| error.to_string())?
}

/// The last written checkpoint. `None` before the first one, or the URL does not return it.
fn last_of(to: &Destination) -> Result<Option<Checkpoint>, String> {
    match to {
        Destination::File(path) => read_last_from_file(path),
        Destination::Url(url) => fetch_last(url),
    }
}

/// `None` if the file is missing or empty.
fn read_last_from_file(path: &Path) -> Result<Option<Checkpoint>, String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let mut file = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let length = i64::try_from(file.metadata().map_err(failed)?.len()).unwrap_or(i64::MAX);
    file.seek(SeekFrom::End(-length.min(MAX_LINE_BYTES))).map_err(failed)?;
    let mut end = Vec::new();
    file.read_to_end(&mut end).map_err(failed)?;
    last_line(&end).map_err(|error| {
        format!("the last line of {} is not a checkpoint: {error}", path.display())
    })
}

/// `None` if nothing was posted yet, or if the URL only stores checkpoints.
fn fetch_last(url: &str) -> Result<Option<Checkpoint>, String> {
    let failed = |reason: &str| {
        format!(
            "cannot read the last checkpoint from the URL of audit_checkpoints: {reason}. The URL \
             must answer GET with the last checkpoint, or with 404 or 405 if it only stores \
             checkpoints"
        )
    };
    let answer = match agent().get(url).call() {
        Err(ureq::Error::StatusCode(status @ (404 | 405 | 501))) => {
            tracing::warn!(
                "The URL of audit_checkpoints does not return the last checkpoint (status \
                 {status}). The server cannot detect whether the audit was cut or recomputed \
                 before this start. Use a URL that answers GET with the last checkpoint. You can \
                 also verify an export against the checkpoints: gantry audit verify EXPORT \
                 --checkpoints FILE --key PUBLIC."
            );
            return Ok(None);
        }
        answer => answer.map_err(|error| failed(&error_without_url(&error)))?,
    };
    let body = answer.into_body().into_with_config().limit(MAX_RESPONSE_BYTES).read_to_vec();
    let body = body.map_err(|error| failed(&error_without_url(&error)))?;
    // The parser's error would quote parts of the answer.
    last_line(&body).map_err(|_| failed("the last line of the response is not a checkpoint"))
}

fn last_line(text: &[u8]) -> Result<Option<Checkpoint>, serde_json::Error> {
    let text = String::from_utf8_lossy(text);
    text.lines().rfind(|line| !line.trim().is_empty()).map(serde_json::from_str).transpose()
}

fn append(path: &Path, line: &str) -> Result<(), String> {
    let write = || {
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(format!("{line}\n").as_bytes())?;
        file.sync_data()
    };
    write().map_err(|error: std::io::Error| format!("cannot write {}: {error}", path.display()))
}

fn post(url: &str, line: &str) -> Result<(), String> {
    let sent = agent().post(url).header("content-type", "application/json").send(line);
    sent.map(drop).map_err(|error| {
        format!("the POST of the checkpoint failed: {}", error_without_url(&error))
    })
}

fn agent() -> Agent {
    let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
    Agent::config_builder().tls_config(tls).timeout_global(Some(ANSWER)).build().into()
}

/// The URL, or the one that it redirects to, may contain a secret. So an error omits it.
fn error_without_url(error: &ureq::Error) -> String {
    match error {
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => {
            "the URL, or the one that it redirects to, is not valid".to_owned()
        }
        ureq::Error::Protocol(_) => "the response is not valid HTTP".to_owned(),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::net::TcpListener;
    use std::sync::mpsc;

    use background::{Driver, Metrics};
    use control::audit::checkpoints::VerifyingKey;
    use store::Store;
    use tempfile::TempDir;
    use testdb::TestDatabase;
    use tokio_util::sync::CancellationToken;

    use crate::background_tasks::checkpoints::*;

    /// Part of each URL. No error may contain it.
    const SECRET: &str = "canary-4718";

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

        /// Adds one sealed entry.
        async fn grow(&self) {
            for sql in ["INSERT INTO audit (action) VALUES ('test')", "SELECT seal_audit(10)"] {
                sqlx::query(sql).execute(self.db.app()).await.unwrap();
            }
        }

        fn start(&self, to: Destination) -> Driver {
            let key = SigningKey::read(&self.pem).unwrap();
            let checkpoints =
                Checkpoints { key: Arc::new(key), to, every: Duration::from_millis(20) };
            let mut driver = Driver::new(Metrics::default(), CancellationToken::new());
            driver.add(WriteCheckpoint::new(Arc::clone(&self.control), checkpoints));
            driver
        }

        fn file(&self) -> PathBuf {
            self.folder.path().join("checkpoints.jsonl")
        }

        /// Waits until the file has this number of checkpoints and returns them.
        async fn written(&self, count: usize) -> Vec<Checkpoint> {
            for _ in 0..500 {
                let text = std::fs::read_to_string(self.file()).unwrap_or_default();
                if text.lines().count() >= count && text.ends_with('\n') {
                    return text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            panic!("found fewer than {count} checkpoints");
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
        assert_eq!(world.written(1).await.len(), 1, "a chain that did not grow gets no checkpoint");
        first.stop().await;
        world.grow().await;
        // A restarted server continues after the last line.
        let second = world.start(file);
        let checkpoints = world.written(2).await;
        let sealed: Vec<(i64, Vec<u8>)> = sqlx::query_as("SELECT seq, hash FROM seal ORDER BY seq")
            .fetch_all(world.db.app())
            .await
            .unwrap();
        for checkpoint in &checkpoints {
            assert!(world.public.signed(checkpoint));
            let link = &checkpoint.link;
            assert!(
                sealed
                    .iter()
                    .any(|(seq, hash)| seq.unsigned_abs() == link.seq
                        && hash == link.hash.as_bytes())
            );
        }
        assert!(checkpoints[0].link.seq < checkpoints[1].link.seq);
        second.stop().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn recomputed_chain_is_not_signed() {
        let world = World::new().await;
        world.grow().await;
        let key = SigningKey::read(&world.pem).unwrap();
        let last = world.control.checkpoint(&key, None).await.unwrap().unwrap();
        for sql in ["ALTER TABLE seal DISABLE TRIGGER USER", REHASH_LAST_SEAL] {
            sqlx::query(sql).execute(world.db.owner()).await.unwrap();
        }
        world.grow().await;
        let refused = world.control.checkpoint(&key, Some(&last)).await.unwrap_err();
        assert_eq!(refused.code, "audit_changed");
    }

    /// A URL that answers each GET with this text (`None`: never) and each POST with the next
    /// status. Also returns a channel with the posted values.
    fn url(
        get: Option<String>,
        posts: &'static [&'static str],
    ) -> (String, mpsc::Receiver<Checkpoint>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!(
            "http://{SECRET}@{}/checkpoints?token={SECRET}",
            listener.local_addr().unwrap()
        );
        let (send, received) = mpsc::channel();
        std::thread::spawn(move || {
            let (mut statuses, mut silent) = (posts.iter(), Vec::new());
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut line, mut length, mut is_post) = (String::new(), 0, false);
                while reader.read_line(&mut line).unwrap() > 2 {
                    is_post |= line.starts_with("POST ");
                    if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                    line.clear();
                }
                let answer = match (is_post, &get) {
                    (true, _) => {
                        let mut body = vec![0; length];
                        reader.read_exact(&mut body).unwrap();
                        // The test may have ended.
                        let _ = send.send(serde_json::from_slice(&body).unwrap());
                        format!("HTTP/1.1 {}\r\n\r\n", statuses.next().unwrap_or(&"204 No Content"))
                    }
                    (false, Some(answer)) => answer.clone(),
                    (false, None) => {
                        silent.push(stream);
                        continue;
                    }
                };
                let answer = answer.replacen("\r\n\r\n", "\r\nconnection: close\r\n\r\n", 1);
                // The client may have closed the connection.
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        (url, received)
    }

    fn ok(body: &str) -> Option<String> {
        Some(format!("HTTP/1.1 200 OK\r\n\r\n{body}"))
    }

    fn line(checkpoint: &Checkpoint) -> String {
        serde_json::to_string(checkpoint).unwrap() + "\n"
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn failed_post_is_retried() {
        let world = World::new().await;
        world.grow().await;
        let (url, received) = url(ok(""), &["503 Service Unavailable"]);
        let driver = world.start(Destination::Url(url));
        let posted = spawn_blocking(move || {
            let take = || received.recv_timeout(Duration::from_secs(10)).unwrap();
            [take(), take()]
        });
        let [first, second] = posted.await.unwrap();
        driver.stop().await;
        assert!(world.public.signed(&first) && world.public.signed(&second));
        assert_eq!(first.link.hash, second.link.hash, "the retry must send the same checkpoint");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn url_is_read_before_the_first_checkpoint() {
        let world = World::new().await;
        world.grow().await;
        let key = SigningKey::read(&world.pem).unwrap();
        let last = world.control.checkpoint(&key, None).await.unwrap().unwrap();
        let (url, received) = url(ok(&line(&last)), &[]);
        let to = Destination::Url(url);
        let mut known = None;
        round(&world.control, &key, &to, &mut known).await.unwrap();
        assert_eq!(known, Some(last.clone()));
        assert!(received.try_recv().is_err(), "a chain that did not grow gets no checkpoint");
        world.grow().await;
        round(&world.control, &key, &to, &mut known).await.unwrap();
        let posted = received.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(posted.link.seq > last.link.seq);
    }

    /// A change by the database's owner, after which the audit contradicts a checkpoint.
    const DELETE_LAST_SEAL: &str = "DELETE FROM seal WHERE seq = (SELECT max(seq) FROM seal)";
    const REHASH_LAST_SEAL: &str =
        "UPDATE seal SET hash = sha256(hash) WHERE seq = (SELECT max(seq) FROM seal)";

    #[tokio::test(flavor = "multi_thread")]
    async fn checkpoint_that_disagrees_stops_signing() {
        let stranger = SigningKey::generate().unwrap();
        for (own, change, reason) in [
            (true, DELETE_LAST_SEAL, "is missing: the chain had it"),
            (true, REHASH_LAST_SEAL, "the chain was computed again"),
            (false, "SELECT 1", "The last checkpoint has no valid signature by audit_key"),
        ] {
            let world = World::new().await;
            world.grow().await;
            world.grow().await;
            let key = SigningKey::read(&world.pem).unwrap();
            let signing = SigningKey::read(if own { &world.pem } else { &stranger }).unwrap();
            let last = world.control.checkpoint(&signing, None).await.unwrap().unwrap();
            for sql in ["ALTER TABLE seal DISABLE TRIGGER USER", change] {
                sqlx::query(sqlx::AssertSqlSafe(sql)).execute(world.db.owner()).await.unwrap();
            }
            std::fs::write(world.file(), line(&last)).unwrap();
            let (url, received) = url(ok(&line(&last)), &[]);
            for to in [Destination::File(world.file()), Destination::Url(url)] {
                let failed = round(&world.control, &key, &to, &mut None).await.unwrap_err();
                assert!(
                    failed.contains(reason)
                        && failed.contains("set audit_checkpoints to a new file or URL"),
                    "{failed}"
                );
                assert!(!failed.contains(SECRET), "{failed}");
            }
            assert!(received.try_recv().is_err(), "no checkpoint is posted");
            assert_eq!(std::fs::read_to_string(world.file()).unwrap(), line(&last));
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn checkpoint_needs_a_url_that_stores() {
        let world = World::new().await;
        world.grow().await;
        let key = SigningKey::read(&world.pem).unwrap();
        let large = usize::try_from(MAX_RESPONSE_BYTES).unwrap() + 1;
        for status in ["404 Not Found", "405 Method Not Allowed"] {
            let (url, received) = url(Some(format!("HTTP/1.1 {status}\r\n\r\n")), &[]);
            round(&world.control, &key, &Destination::Url(url), &mut None).await.unwrap();
            assert!(
                world.public.signed(&received.recv_timeout(Duration::from_secs(10)).unwrap()),
                "{status}"
            );
        }
        for (get, reason) in [
            (Some("HTTP/1.1 503 Service Unavailable\r\n\r\n".to_owned()), "http status: 503"),
            (
                Some("HTTP/1.1 302 Found\r\nlocation: canary-4718://host/\r\n\r\n".to_owned()),
                "is not valid",
            ),
            (ok("<html>canary-4718</html>"), "the last line of the response is not a checkpoint"),
            (ok(&"x".repeat(large)), "larger than"),
            (None, "timeout"),
        ] {
            let (url, received) = url(get, &[]);
            let failed =
                round(&world.control, &key, &Destination::Url(url), &mut None).await.unwrap_err();
            assert!(failed.contains(reason) && !failed.contains(SECRET), "{reason}: {failed}");
            assert!(received.try_recv().is_err(), "{reason}: no checkpoint is signed");
        }
    }

    #[test]
    fn destination_is_a_file_or_a_url() {
        let read = |text: &str| text.parse::<Destination>();
        assert_eq!(read("/var/x.jsonl"), Ok(Destination::File("/var/x.jsonl".into())));
        assert_eq!(
            read("https://log.example/a"),
            Ok(Destination::Url("https://log.example/a".into()))
        );
        for wrong in ["", "ftp://log.example/a", "https://"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
