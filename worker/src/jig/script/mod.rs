//! # The script jig: a role's scripts, on the node, through the node-side wrapper
//!
//! The contract with scripts. They run in the order of the role, as one step, in the node's root folder (`GANTRY_ROOT`), with
//! `GANTRY_NODE` (its fully qualified name), `GANTRY_ROLE`, `GANTRY_RUN`, `GANTRY_INPUT` (a file with the input, JSON),
//! `GANTRY_OUTPUT` (the file for a JSON object; nothing there means an empty one) and scalars of the input as
//! `GANTRY_DATA_<PATH>`. An exit code other than 0 is a failure whose reason is the last line on standard error that is not empty.
//! What a script leaves running in its session ends with the run; a service calls `setsid` and lives on.
//!
//! What has to be decided on the node (lock, token, ledger, which process belongs to whom) is in `wrapper.sh`; this module stages
//! it, feeds it, streams what comes out and asks how it ended. The worker's own time limit is a second one: the wrapper's holds
//! also when the worker is gone.
//!
//! Whatever the worker does, it may be killed and do it no more: then the scripts go on, and the next attempt's wrapper ends them
//! before it starts its own.

use std::collections::BTreeSet;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::Hash;
use futures::FutureExt;
use futures::future::BoxFuture;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Child;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::{Ended, Jig, Job, MAX_RESULT, Object, Scripts, Stop, StopReason};
use crate::log::{Lines, Log, Stream};

pub mod environment;
pub mod transport;

use transport::{CALL_WRAPPER, NO_WRAPPER, STAGE_WRAPPER, Transport, WRAPPER, wrapper_hash};

/// Seconds between asking a run's processes to end and making them.
const GRACE: u64 = 5;
/// How long one errand on a node (staging, asking) may take.
const ERRAND: Duration = Duration::from_secs(90);
/// How long the worker waits beyond a run's time limit, which the wrapper keeps, before it takes the wrapper for hanging.
const OVERTIME: Duration = Duration::from_secs(30);
/// How long a stream is read after its process ended: a service may hold it open for ever.
const LATE_OUTPUT: Duration = Duration::from_millis(300);

const REFUSED: i32 = 71;
const MISSING: i32 = 72;

/// Runs scripts.
pub struct ScriptJig {
    scripts: Arc<dyn Scripts>,
    /// Where what runs *for* a node (that need not be there) has its root.
    on_behalf: std::path::PathBuf,
    /// Nodes' roots where the wrapper is known to be.
    staged: Mutex<BTreeSet<std::path::PathBuf>>,
}

/// What stands between a run and its node.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("{0}")]
    Transport(#[from] transport::TransportError),
    #[error("the node's shell can't be started: {0}")]
    Spawn(std::io::Error),
    #[error("the connection to the node broke: {0}")]
    Broken(std::io::Error),
    #[error("the node did not answer within {} seconds while {doing}", ERRAND.as_secs())]
    Silent { doing: &'static str },
    #[error("{doing} failed on the node (exit {code}): {said}")]
    Errand { doing: &'static str, code: String, said: String },
    #[error("{0}")]
    Script(String),
}

/// What a lost run left on its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// The ledger proves that it never started, and it never will.
    NeverStarted,
    /// It started; whatever still ran has been ended.
    Started,
    /// Later attempts have overwritten what could have told.
    Unknown,
}

impl ScriptJig {
    /// A jig that gets its scripts there and keeps roots of nodes that are none in that folder.
    pub fn new(scripts: Arc<dyn Scripts>, on_behalf: impl Into<std::path::PathBuf>) -> Self {
        Self { scripts, on_behalf: on_behalf.into(), staged: Mutex::default() }
    }

    fn transport(&self, job: &Job) -> Result<Transport, Trouble> {
        if job.on_node() {
            return Ok(Transport::read(&job.connection)?);
        }
        let root = self.on_behalf.join(job.node.to_string());
        Ok(Transport::Local { root })
    }

    async fn carry_out(&self, job: &Job, log: &Log, stop: &mut Stop) -> Result<Ended, Trouble> {
        let transport = self.transport(job)?;
        transport.prepare().await?;
        let node = Node { transport, job, staged: &self.staged };
        node.stage_wrapper().await?;
        // Twice, because what was staged may have been removed since; a third time would be a node that can't keep a file.
        for _ in 0..2 {
            let came = node.run(log, stop).await?;
            match came.code {
                Some(MISSING) => node.send_scripts(self.scripts.as_ref()).await?,
                Some(NO_WRAPPER) => node.stage_wrapper_again().await?,
                _ => return node.how_it_ended(came, log).await,
            }
        }
        let came = node.run(log, stop).await?;
        node.how_it_ended(came, log).await
    }

    /// Ends what a lost run may have left on its node, bars it from starting late, and says whether it ever started.
    ///
    /// # Errors
    /// When the node can't be asked: then nothing is known.
    pub async fn end_lost(
        &self,
        connection: &Value,
        step: engine::ids::StepId,
        epoch: i64,
        run: engine::ids::RunId,
    ) -> Result<Left, String> {
        let transport = Transport::read(connection).map_err(|e| e.to_string())?;
        let errands = Errands { transport: &transport, staged: &self.staged };
        let ended = async {
            transport.prepare().await?;
            errands.stage_wrapper().await?;
            errands.end(step, epoch, run).await
        };
        ended.await.map_err(|error: Trouble| error.to_string())
    }
}

impl Jig for ScriptJig {
    fn run<'a>(&'a self, job: &'a Job, log: &'a Log, mut stop: Stop) -> BoxFuture<'a, Ended> {
        async move {
            if job.role.scripts.is_empty() {
                return Ended::Returned(Object::new());
            }
            if let Some(why) = stop.reason() {
                return Ended::Stopped { why, started: Some(false) };
            }
            match self.carry_out(job, log, &mut stop).await {
                Ok(ended) => ended,
                Err(trouble) => Ended::failed(trouble.to_string()),
            }
        }
        .boxed()
    }
}

/// What came of one call of the wrapper's `run`.
struct Came {
    code: Option<i32>,
    status: String,
    last_error: String,
    stopped: Option<(StopReason, Option<bool>)>,
    out_of_time: bool,
}

/// Short commands on a node.
struct Errands<'a> {
    transport: &'a Transport,
    staged: &'a Mutex<BTreeSet<std::path::PathBuf>>,
}

impl Errands<'_> {
    fn wrapper_path(&self) -> String {
        let root = self.transport.root();
        root.join(".gantry/bin").join(wrapper_hash().to_string()).to_string_lossy().into_owned()
    }

    /// The words that call the wrapper.
    fn wrapper_words(&self, command: &[String]) -> Vec<String> {
        let mut words =
            vec![wrapper_hash().to_string(), self.wrapper_path(), self.transport.root().to_string_lossy().into_owned()];
        words.extend_from_slice(command);
        words
    }

    async fn stage_wrapper(&self) -> Result<(), Trouble> {
        let root = self.transport.root();
        let known = self.staged.lock().is_ok_and(|staged| staged.contains(root));
        if known {
            return Ok(());
        }
        self.stage_wrapper_again().await
    }

    async fn stage_wrapper_again(&self) -> Result<(), Trouble> {
        let words = [self.wrapper_path()];
        self.errand("staging the wrapper", STAGE_WRAPPER, &words, WRAPPER.as_bytes()).await?;
        if let Ok(mut staged) = self.staged.lock() {
            staged.insert(self.transport.root().to_owned());
        }
        Ok(())
    }

    /// Runs one short command and gives its standard output.
    async fn errand(
        &self,
        doing: &'static str,
        line: &str,
        words: &[String],
        input: &[u8],
    ) -> Result<Vec<u8>, Trouble> {
        let mut child = self.transport.shell(line, words).kill_on_drop(true).spawn().map_err(Trouble::Spawn)?;
        let mut stdin = child.stdin.take();
        let feed = async {
            if let Some(stdin) = &mut stdin {
                // A command that ends before it has read everything says why by its exit code.
                let _ = stdin.write_all(input).await;
            }
            drop(stdin);
        };
        let all = async { futures::join!(feed, child.wait_with_output()).1 };
        let output = timeout(ERRAND, all).await.map_err(|_| Trouble::Silent { doing })?.map_err(Trouble::Broken)?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        Err(Trouble::Errand { doing, code: described(&output.status), said: last_line(&output.stderr) })
    }

    async fn ask(&self, doing: &'static str, command: &[String], input: &[u8]) -> Result<Vec<u8>, Trouble> {
        let words = self.wrapper_words(command);
        self.errand(doing, CALL_WRAPPER, &words, input).await
    }

    async fn end(&self, step: engine::ids::StepId, epoch: i64, run: engine::ids::RunId) -> Result<Left, Trouble> {
        let command = ["end".to_owned(), step.to_string(), epoch.to_string(), run.to_string(), GRACE.to_string()];
        let said = self.ask("ending a run", &command, b"").await?;
        let said = String::from_utf8_lossy(&said);
        Ok(match word(&said, "started") {
            Some("no") => Left::NeverStarted,
            Some("yes") => Left::Started,
            _ => Left::Unknown,
        })
    }
}

/// One job's node.
struct Node<'a> {
    transport: Transport,
    job: &'a Job,
    staged: &'a Mutex<BTreeSet<std::path::PathBuf>>,
}

impl Node<'_> {
    fn errands(&self) -> Errands<'_> {
        Errands { transport: &self.transport, staged: self.staged }
    }

    async fn stage_wrapper(&self) -> Result<(), Trouble> {
        self.errands().stage_wrapper().await
    }

    async fn stage_wrapper_again(&self) -> Result<(), Trouble> {
        self.errands().stage_wrapper_again().await
    }

    /// Sends the scripts that the node lacks.
    async fn send_scripts(&self, scripts: &dyn Scripts) -> Result<(), Trouble> {
        let mut command = vec!["lacks".to_owned()];
        let wanted: BTreeSet<String> = self.job.role.scripts.iter().map(|s| s.hash.to_string()).collect();
        command.extend(wanted);
        let lacking = self.errands().ask("asking for scripts", &command, b"").await?;
        for hash in String::from_utf8_lossy(&lacking).lines() {
            let hash: Hash =
                hash.parse().map_err(|_| Trouble::Script(format!("the node lacks {hash:?}, which is no script")))?;
            let bytes = scripts.script(hash).await.map_err(Trouble::Script)?;
            let command = ["put".to_owned(), hash.to_string()];
            self.errands().ask("sending a script", &command, &bytes).await?;
        }
        Ok(())
    }

    fn run_command(&self) -> Vec<String> {
        let job = self.job;
        let mut command = vec![
            "run".to_owned(),
            job.step.to_string(),
            job.epoch.to_string(),
            job.run.to_string(),
            job.generation.to_string(),
            job.content.to_string(),
            u8::from(job.exclusive).to_string(),
            job.timeout().as_secs().to_string(),
            GRACE.to_string(),
            job.fqdn.to_string(),
            job.role.name.to_string(),
        ];
        command.extend(job.role.scripts.iter().map(|s| format!("{}:{}", s.hash, s.name)));
        command
    }

    /// Starts the run and stays with it to its end.
    async fn run(&self, log: &Log, stop: &mut Stop) -> Result<Came, Trouble> {
        let words = self.errands().wrapper_words(&self.run_command());
        let mut child = self.transport.shell(CALL_WRAPPER, &words).spawn().map_err(Trouble::Spawn)?;
        let mut guard = Abandoned::of(&child);
        let feed = tokio::spawn(feed(child.stdin.take(), self.standard_input()));
        let (end, ended) = watch::channel(false);
        let out = tokio::spawn(read_out(child.stdout.take(), log.lines(Stream::Out), ended.clone()));
        let err = tokio::spawn(read_out(child.stderr.take(), log.lines(Stream::Err), ended));
        let (status, stopped, out_of_time) = self.stay_with(&mut child, stop).await?;
        guard.ended();
        feed.abort();
        let _ = end.send(true);
        let (_, last_error) = futures::join!(out, err);
        Ok(Came {
            code: status.code(),
            status: described(&status),
            last_error: last_error.unwrap_or_default(),
            stopped,
            out_of_time,
        })
    }

    fn standard_input(&self) -> Vec<u8> {
        let mut text = self.job.input.to_string();
        text.push('\n');
        text.push_str(&environment::as_shell(&environment::variables(&self.job.input)));
        // Without this line the wrapper starts nothing: a worker that is killed while it writes leaves half an input.
        text.push_str("# whole\n");
        text.into_bytes()
    }

    /// Waits for the wrapper; ends the run when told to, or when the wrapper hangs.
    async fn stay_with(
        &self,
        child: &mut Child,
        stop: &mut Stop,
    ) -> Result<(ExitStatus, Option<(StopReason, Option<bool>)>, bool), Trouble> {
        let limit = self.job.timeout() + Duration::from_secs(GRACE) + OVERTIME;
        let why = tokio::select! {
            status = child.wait() => return Ok((status.map_err(Trouble::Broken)?, None, false)),
            why = stop.called() => Some(why),
            () = tokio::time::sleep(limit) => None,
        };
        let job = self.job;
        let left = self.errands().end(job.step, job.epoch, job.run).await;
        let status = match timeout(Duration::from_secs(GRACE + 5), child.wait()).await {
            Ok(status) => status.map_err(Trouble::Broken)?,
            Err(_) => {
                if let Some(pid) = child.id() {
                    // The wrapper's own group: it leads one, and the scripts have left it.
                    let _ = killpg(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
                }
                child.wait().await.map_err(Trouble::Broken)?
            }
        };
        let started = match left {
            Ok(Left::NeverStarted) => Some(false),
            Ok(Left::Started) => Some(true),
            Ok(Left::Unknown) => None,
            Err(error) => {
                tracing::warn!(run = %job.run, %error, "a node could not be asked to end a run");
                None
            }
        };
        Ok((status, why.map(|why| (why, started)), why.is_none()))
    }

    async fn how_it_ended(&self, came: Came, log: &Log) -> Result<Ended, Trouble> {
        if let Some((why, started)) = came.stopped {
            // What it had to say is of no use any more, but must not stay on the node.
            let _ = self.take().await;
            return Ok(Ended::Stopped { why, started });
        }
        if came.out_of_time {
            return Ok(Ended::failed(format!(
                "the node's wrapper did not end within {} seconds after the time limit; it was killed",
                OVERTIME.as_secs()
            )));
        }
        match came.code {
            Some(0) => {}
            Some(REFUSED) => return Ok(Ended::Refused(super::shortened(came.last_error))),
            _ => {
                return Ok(Ended::failed(format!(
                    "the node's wrapper ended with {}: {}",
                    came.status, came.last_error
                )));
            }
        }
        let taken = self.take().await?;
        let (how, output) = split_line(&taken);
        Ok(self.judged(&String::from_utf8_lossy(how), output, &came.last_error, log))
    }

    async fn take(&self) -> Result<Vec<u8>, Trouble> {
        let command = ["take".to_owned(), self.job.run.to_string(), MAX_RESULT.to_string()];
        self.errands().ask("fetching the result", &command, b"").await
    }

    fn judged(&self, how: &str, output: &[u8], last_error: &str, log: &Log) -> Ended {
        let script = how.split_once("script=").map_or("", |(_, name)| name);
        match (word(how, "why"), word(how, "code")) {
            (Some("exit"), Some("0")) => match returned(output) {
                Ok(object) => Ended::Returned(object),
                Err(reason) => Ended::failed(log.secrets().mask(&reason)),
            },
            (Some("timeout"), _) => Ended::failed(format!(
                "{script} took longer than {} seconds, its time limit; it was ended",
                self.job.timeout().as_secs()
            )),
            (Some("exit"), Some(_)) if !last_error.is_empty() => Ended::failed(last_error),
            (Some("exit"), Some(code)) => {
                Ended::failed(format!("{script} ended with exit code {code} and wrote nothing to standard error"))
            }
            (Some("cancelled"), _) => Ended::failed(format!("{script} was ended on the node")),
            _ => Ended::failed(
                "the node does not know how the run ended: its folder .gantry/run was changed by something else",
            ),
        }
    }
}

/// What a script wrote as its result.
///
/// # Errors
/// When it is no JSON object; with its first bytes.
fn returned(output: &[u8]) -> Result<Object, String> {
    if output.len() > MAX_RESULT {
        return Err(format!("the output is larger than {MAX_RESULT} bytes"));
    }
    if output.trim_ascii().is_empty() {
        return Ok(Object::new());
    }
    let begin = || {
        let text = String::from_utf8_lossy(&output[..output.len().min(120)]);
        text.trim().to_owned()
    };
    match serde_json::from_slice(output) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(format!("the output is JSON, but no object; it begins with: {}", begin())),
        Err(error) => Err(format!("the output is no JSON object ({error}); it begins with: {}", begin())),
    }
}

/// A wrapper that nobody waits for any more is asked to end its run.
struct Abandoned(Option<Pid>);

impl Abandoned {
    fn of(child: &Child) -> Self {
        Self(child.id().map(|pid| Pid::from_raw(pid.cast_signed())))
    }

    fn ended(&mut self) {
        self.0 = None;
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            let _ = kill(pid, Signal::SIGTERM);
        }
    }
}

async fn feed(stdin: Option<tokio::process::ChildStdin>, text: Vec<u8>) {
    if let Some(mut stdin) = stdin {
        // A wrapper that refuses does not read it.
        let _ = stdin.write_all(&text).await;
    }
}

/// How long an unfinished line waits before it is shown.
const PROMPT: Duration = Duration::from_millis(500);

/// Reads a stream into the log until it ends, or until its process has ended and it has been silent for a moment; gives its last
/// line that is not empty.
async fn read_out<R: AsyncRead + Unpin>(from: Option<R>, mut lines: Lines, mut ended: watch::Receiver<bool>) -> String {
    let Some(mut from) = from else {
        return lines.finish();
    };
    let mut buffer = vec![0; 16 << 10];
    let mut deadline = None;
    loop {
        let wait = match deadline {
            Some(deadline) => Instant::now().max(deadline) - Instant::now(),
            None => PROMPT,
        };
        tokio::select! {
            biased;
            read = from.read(&mut buffer) => match read {
                Ok(0) | Err(_) => return lines.finish(),
                Ok(length) => lines.push(&buffer[..length]),
            },
            Ok(()) = ended.changed() => deadline = Some(Instant::now() + LATE_OUTPUT),
            () = tokio::time::sleep(wait) => match deadline {
                Some(_) => return lines.finish(),
                None => lines.show_open(),
            },
        }
    }
}

/// How a process ended and the last line of its standard error. A service that holds the stream open is not waited for.
///
/// # Errors
/// When it can't be waited for.
pub(crate) async fn last_words(mut child: Child) -> std::io::Result<(ExitStatus, String)> {
    let said = Arc::new(Mutex::new(Vec::new()));
    let read = tokio::spawn({
        let (said, stderr) = (said.clone(), child.stderr.take());
        async move {
            let Some(mut stderr) = stderr else { return };
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stderr.read(&mut buffer).await {
                if let Ok(mut said) = said.lock() {
                    said.extend_from_slice(&buffer[..length]);
                }
            }
        }
    });
    let abort = read.abort_handle();
    let status = child.wait().await?;
    let _ = timeout(LATE_OUTPUT, read).await;
    abort.abort();
    let said = said.lock().map(|said| last_line(&said)).unwrap_or_default();
    Ok((status, said))
}

fn split_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, b""),
    }
}

/// The value of `name=value` among words.
fn word<'a>(words: &'a str, name: &str) -> Option<&'a str> {
    words.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.unwrap_or("it said nothing").trim().to_owned()
}

fn described(status: &ExitStatus) -> String {
    status.code().map_or_else(|| status.to_string(), |code| format!("exit code {code}"))
}
