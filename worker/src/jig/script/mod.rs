//! The script jig: runs a role's scripts on the node via the node-side wrapper.
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
//! `wrapper.sh` makes all decisions that need the node (lock, token, ledger, process ownership).
//! This module stages and feeds it, streams its output and reads the result. The wrapper enforces
//! the timeout too, so the timeout also holds if the worker dies.
//!
//! The worker may be killed at any moment. Its scripts then continue, and the wrapper of the next
//! attempt ends them before it starts its own.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::nodes::TriedAddress;
use engine::Hash;
use engine::data::number::{Fidelity, check_numbers};
use engine::ids::{RunId, StepId};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Child;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::{Ended, Jig, Job, MAX_RESULT, Object, ScriptSource, Stop, StopReason};
use crate::log::{Lines, Log, Stream};
use crate::reach::Reachable;
use crate::secrets::{SecretSource, Secrets};

pub mod environment;
mod greeting;
pub mod process;
pub mod ssh;
mod told;
pub mod transport;

use process::{Ending, Process, Reader, Writer};
use ssh::{Connections, Reach};
use told::{Behind, Mark, Nothing, Told};
use transport::{CALL_WRAPPER, NO_WRAPPER, STAGE_WRAPPER, Transport, WRAPPER, wrapper_hash};

/// Seconds between SIGTERM and SIGKILL to the processes of a run.
const KILL_GRACE_SECONDS: u64 = 5;
/// Maximum bytes of scripts that are sent with a run without asking which ones the node has.
const MAX_INLINE_SCRIPTS: usize = 256 << 10;
/// Maximum scripts that a worker remembers for each node.
const MAX_KNOWN_SCRIPTS: usize = 10_000;
/// Timeout of a short command on a node, such as staging or a query.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(90);
/// Maximum bytes of a command's output, and of its error output.
const MAX_COMMAND_OUTPUT: usize = 64 << 10;
/// Maximum bytes of the list of attempts. About 10,000 attempts fit.
const MAX_SURVEY_OUTPUT: usize = 1 << 20;
/// Time that a connected node has to return its boot id.
const BOOT_ID_TIMEOUT: Duration = Duration::from_secs(25);
/// Prints the id of the machine's current boot, if the system has one.
const BOOT_ID: &str = "cat /proc/sys/kernel/random/boot_id 2>/dev/null || echo unknown";
/// Time after a run's timeout at which the worker considers the wrapper hung. The wrapper enforces
/// the timeout itself.
const WRAPPER_OVERTIME: Duration = Duration::from_secs(30);
/// Time to read a stream after its process ended. A service may hold it open indefinitely.
const LATE_OUTPUT_TIME: Duration = Duration::from_millis(300);
/// Delays between attempts to reconnect to a run. The last one repeats.
const RECONNECT_DELAYS: [Duration; 5] = [
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

const EXIT_REFUSED: i32 = 71;
const EXIT_MISSING_SCRIPT: i32 = 72;
const EXIT_NOT_STARTED: i32 = 76;
const EXIT_ORPHANED: i32 = 77;

/// Runs scripts.
pub struct ScriptJig {
    scripts: Arc<dyn ScriptSource>,
    /// Root folder for runs that execute for a node but not on it.
    worker_root: std::path::PathBuf,
    ways: Arc<NodeSessions>,
}

/// Connections to nodes, and what is staged there.
struct NodeSessions {
    connections: Connections,
    /// Nodes that have the wrapper.
    staged: Mutex<BTreeSet<String>>,
    /// Scripts that are known to be on each node: those found when the wrapper was staged, and
    /// those that ran since.
    scripts: Mutex<BTreeMap<String, BTreeSet<Hash>>>,
}

/// Why a run failed before its scripts could finish.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("{0}")]
    Transport(#[from] transport::TransportError),
    #[error("The connection to the node broke before the run started.")]
    NeverStarted,
    #[error("The node did not answer within {} seconds while {action}.", COMMAND_TIMEOUT.as_secs())]
    Timeout { action: &'static str },
    #[error(
        "The node printed more than {} bytes to its {} while {action}, more than any valid answer. \
         Check the output of its login shell and of commands that its SSH server forces.", .much.most, .much.stream
    )]
    TooMuchOutput { action: &'static str, much: OutputLimitExceeded },
    #[error("Error on the node while {action} ({how}): {said}")]
    CommandFailed { action: &'static str, how: Ending, said: String },
    #[error("{0}")]
    Script(String),
}

/// The result of a health check.
#[derive(Debug, Clone)]
pub struct Look {
    pub tried: Vec<TriedAddress>,
    /// Addresses whose result reveals whether something listens there.
    pub revealing: Vec<String>,
    /// The node's boot id, or the reason why the node was not reached.
    pub came: Result<String, String>,
}

/// The remains of a lost run on its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// The ledger proves that the run never started. It can't start later either.
    NeverStarted,
    /// The run started. Its remaining processes have been ended.
    Started,
    /// Later attempts have overwritten the ledger entry.
    Unknown,
}

impl ScriptJig {
    /// Creates a jig. `worker_root` is the root folder for runs that execute on the worker for a
    /// node.
    pub fn new(
        scripts: Arc<dyn ScriptSource>,
        secrets: Arc<dyn SecretSource>,
        worker_root: impl Into<std::path::PathBuf>,
        reachable: Reachable,
    ) -> Self {
        let connections = Connections::new(secrets, reachable);
        let ways =
            NodeSessions { connections, staged: Mutex::default(), scripts: Mutex::default() };
        Self { scripts, worker_root: worker_root.into(), ways: Arc::new(ways) }
    }

    fn transport(&self, job: &Job) -> Result<Transport, Trouble> {
        if job.on_node() {
            return Ok(Transport::read(&job.connection)?);
        }
        let root = self.worker_root.join(job.node.to_string());
        Ok(Transport::Local { root })
    }

    fn commands(&self, transport: Transport) -> NodeCommands {
        NodeCommands { transport: Arc::new(transport), ways: Arc::clone(&self.ways) }
    }

    async fn carry_out(&self, job: &Job, log: &Log, stop: &mut Stop) -> Result<Ended, Trouble> {
        let transport = self.transport(job)?;
        transport.prepare().await?;
        let node = Node { commands: self.commands(transport), job };
        node.commands.stage_wrapper().await?;
        let mut along = node.inline_scripts(self.scripts.as_ref()).await?;
        // Twice, because staged files may have been removed since. If the second attempt fails too,
        // the node can't store files.
        for _ in 0..2 {
            let came = node.run(&along, log, stop).await?;
            match came.ended.as_ref().ok().and_then(Ending::code) {
                Some(EXIT_MISSING_SCRIPT) => {
                    along.clear();
                    node.send_scripts(self.scripts.as_ref()).await?;
                }
                Some(NO_WRAPPER) => node.commands.restage_wrapper().await?,
                _ => return node.to_outcome(came, log).await,
            }
        }
        let came = node.run(&along, log, stop).await?;
        node.to_outcome(came, log).await
    }

    /// Checks whether the node accepts a connection. A node without an address is a folder of this
    /// machine and always passes.
    pub async fn look(&self, connection: &Value) -> Look {
        let transport = match Transport::read(connection) {
            Ok(transport) => transport,
            Err(error) => {
                return Look {
                    tried: Vec::new(),
                    revealing: Vec::new(),
                    came: Err(error.to_string()),
                };
            }
        };
        let commands = self.commands(transport);
        let Transport::Ssh { reach, .. } = &*commands.transport else {
            return Look { tried: Vec::new(), revealing: Vec::new(), came: Ok(String::new()) };
        };
        let (connections, begun) = (&self.ways.connections, Instant::now());
        let came = match connections.reach(reach).await {
            Ok(_) => commands.boot_id(reach).await,
            Err(error) => Err(error.to_string()),
        };
        Look {
            tried: connections.tried(reach, begun).await,
            revealing: connections.revealing(reach, begun).await,
            came,
        }
    }

    /// Lists the attempts that run on a node, each with its step. Attempts that ended, or that a
    /// reboot ended, are not included.
    ///
    /// # Errors
    /// If the node can't be queried. The text is for users.
    pub async fn survey(&self, connection: &Value) -> Result<Vec<(RunId, StepId)>, String> {
        let transport = Transport::read(connection).map_err(|e| e.to_string())?;
        let commands = self.commands(transport);
        let query = async {
            // A reboot may have mounted another disk, so the wrapper is staged again.
            let root = commands.transport.root().to_string_lossy().into_owned();
            commands
                .stage_wrapper_and_call("listing its runs", &[root, "attempts".to_owned()])
                .await
        };
        let said = query.await.map_err(|error: Trouble| error.to_string())?;
        Ok(said.lines().filter_map(running).collect())
    }

    /// Ends the remains of a lost run on its node, prevents it from starting late, and returns
    /// whether it ever started.
    ///
    /// # Errors
    /// If the node can't be queried. The state is then unknown.
    pub async fn end_lost_run(
        &self,
        connection: &Value,
        step: StepId,
        epoch: i64,
        run: RunId,
    ) -> Result<Left, String> {
        let transport = Transport::read(connection).map_err(|e| e.to_string())?;
        let commands = self.commands(transport);
        let ended = async {
            commands.transport.prepare().await?;
            commands.stage_wrapper().await?;
            commands.end(step, epoch, run).await
        };
        ended.await.map_err(|error: Trouble| error.to_string())
    }
}

/// Parses a line of the wrapper's list of attempts. Returns `None` if the attempt does not run.
fn running(line: &str) -> Option<(RunId, StepId)> {
    let mut words = line.split(' ');
    // Older wrappers print the attempt number without the epoch.
    let (run, step) =
        (words.next()?.rsplit('.').next()?.parse().ok()?, words.next()?.parse().ok()?);
    (words.next() == Some("runs")).then_some((RunId(run), step))
}

impl Jig for ScriptJig {
    fn keeps_time(&self) -> bool {
        true
    }

    fn run<'a>(&'a self, job: &'a Job, log: &'a Log, mut stop: Stop) -> BoxFuture<'a, Ended> {
        async move {
            if job.scripts().next().is_none() {
                return Ended::Returned(Object::new());
            }
            if let Some(why) = stop.reason() {
                return Ended::stopped(why, Some(false));
            }
            match self.carry_out(job, log, &mut stop).await {
                Ok(ended) => ended,
                Err(trouble) => Ended::failed(trouble.to_string()),
            }
        }
        .boxed()
    }
}

/// The result of following a run.
struct Came {
    /// How the run ended on its node, or why the worker gave up.
    ended: Result<Ending, GaveUp>,
    last_error: String,
    /// The wrapper's report on the run, if it arrived over the same channel.
    told: Option<Vec<u8>>,
}

/// Why a run was not followed to its end, and whether it ever started on the node, if known.
struct GaveUp {
    why: Why,
    started: Option<bool>,
}

#[derive(Debug, Clone, Copy)]
enum Why {
    Told(StopReason),
    TimedOut,
}

/// The result of a run whose report has arrived completely. The run has ended, so a later failure
/// of its connection does not matter.
fn complete_ending(come: Result<Ending, GaveUp>) -> Result<Ending, GaveUp> {
    match come {
        Ok(Ending::Disconnected(_) | Ending::Killed(_))
        | Err(GaveUp { why: Why::TimedOut, .. }) => Ok(Ending::Code(0)),
        come => come,
    }
}

/// Limits how long a run is followed.
struct Patience<'a> {
    stop: &'a mut Stop,
    until: Instant,
}

impl Patience<'_> {
    /// Waits until the run is stopped or the time is over.
    async fn over(&mut self) -> Why {
        tokio::select! {
            why = self.stop.called() => Why::Told(why),
            () = sleep_until(self.until) => Why::TimedOut,
        }
    }
}

/// The parts of a run's streams that have been received.
struct Heard {
    out: Lines,
    err: Lines,
}

/// A script's content with its hash.
type Script = (Hash, Vec<u8>);

/// Short commands on a node.
#[derive(Clone)]
struct NodeCommands {
    transport: Arc<Transport>,
    ways: Arc<NodeSessions>,
}

impl NodeCommands {
    fn wrapper_path(&self) -> String {
        let root = self.transport.root();
        root.join(".gantry/bin").join(wrapper_hash().to_string()).to_string_lossy().into_owned()
    }

    /// The arguments that call the wrapper.
    fn wrapper_args(&self, command: &[String]) -> Vec<String> {
        let mut words = vec![
            wrapper_hash().to_string(),
            self.wrapper_path(),
            self.transport.root().to_string_lossy().into_owned(),
        ];
        words.extend_from_slice(command);
        words
    }

    async fn stage_wrapper(&self) -> Result<(), Trouble> {
        let place = self.transport.place();
        let known = self.ways.staged.lock().is_ok_and(|staged| staged.contains(&place));
        if known {
            return Ok(());
        }
        self.restage_wrapper().await
    }

    async fn restage_wrapper(&self) -> Result<(), Trouble> {
        self.stage_wrapper_and_call("staging the wrapper", &[]).await.map(drop)
    }

    /// Stages the wrapper and calls it with these arguments, if any. It is a single command,
    /// because each command costs a login on the node.
    async fn stage_wrapper_and_call(
        &self,
        action: &'static str,
        args: &[String],
    ) -> Result<String, Trouble> {
        let mut words = vec![self.wrapper_path()];
        words.extend_from_slice(args);
        let said = self
            .execute_with_limit(
                action,
                STAGE_WRAPPER,
                &words,
                WRAPPER.as_bytes(),
                MAX_SURVEY_OUTPUT,
            )
            .await?;
        let said = String::from_utf8_lossy(&said).into_owned();
        if let Ok(mut scripts) = self.ways.scripts.lock() {
            scripts.insert(
                self.transport.place(),
                said.lines().filter_map(|name| name.parse().ok()).collect(),
            );
        }
        if let Ok(mut staged) = self.ways.staged.lock() {
            staged.insert(self.transport.place());
        }
        Ok(said)
    }

    async fn start(&self, line: &str, words: &[String]) -> Result<Process, Trouble> {
        Ok(self.transport.start(&self.ways.connections, line, words).await?)
    }

    /// Runs one short command and returns its standard output.
    async fn execute(
        &self,
        action: &'static str,
        line: &str,
        words: &[String],
        input: &[u8],
    ) -> Result<Vec<u8>, Trouble> {
        self.execute_with_limit(action, line, words, input, MAX_COMMAND_OUTPUT).await
    }

    /// Like `execute`, with another limit for the output.
    async fn execute_with_limit(
        &self,
        action: &'static str,
        line: &str,
        words: &[String],
        input: &[u8],
        most: usize,
    ) -> Result<Vec<u8>, Trouble> {
        let all = async {
            let mut process = self.start(line, words).await?;
            let (stdin, stdout, stderr) =
                (process.stdin.take(), process.stdout.take(), process.stderr.take());
            let feeding = async {
                feed(stdin, input).await;
                Ok(())
            };
            let reading = (
                whole(stdout, "standard output", most),
                whole(stderr, "standard error", MAX_COMMAND_OUTPUT),
            );
            match futures::try_join!(feeding, reading.0, reading.1) {
                Ok(((), stdout, stderr)) => Ok((process.wait().await, stdout, stderr)),
                Err(much) => {
                    process.kill().await;
                    Err(Trouble::TooMuchOutput { action, much })
                }
            }
        };
        let (how, stdout, stderr) =
            timeout(COMMAND_TIMEOUT, all).await.map_err(|_| Trouble::Timeout { action })??;
        match how {
            Ending::Code(0) => Ok(stdout),
            how => Err(Trouble::CommandFailed { action, how, said: last_line(&stderr) }),
        }
    }

    /// Reads the id of the machine's current boot.
    async fn boot_id(&self, reach: &Reach) -> Result<String, String> {
        match timeout(BOOT_ID_TIMEOUT, self.execute("reading its boot id", BOOT_ID, &[], b"")).await
        {
            Ok(Ok(said)) => Ok(String::from_utf8_lossy(&said).trim().chars().take(100).collect()),
            Ok(Err(trouble)) => Err(trouble.to_string()),
            Err(_) => {
                let why = format!("no answer within {} seconds", BOOT_ID_TIMEOUT.as_secs());
                self.ways.connections.give_up(reach, &why).await;
                Err(why)
            }
        }
    }

    async fn ask(
        &self,
        action: &'static str,
        command: &[String],
        input: &[u8],
    ) -> Result<Vec<u8>, Trouble> {
        let words = self.wrapper_args(command);
        self.execute(action, CALL_WRAPPER, &words, input).await
    }

    async fn end(&self, step: StepId, epoch: i64, run: RunId) -> Result<Left, Trouble> {
        let command = [
            "end".to_owned(),
            step.to_string(),
            epoch.to_string(),
            run.to_string(),
            KILL_GRACE_SECONDS.to_string(),
        ];
        let said = self.ask("ending a run", &command, b"").await?;
        let said = String::from_utf8_lossy(&said);
        Ok(match word(&said, "started") {
            Some("no") => Left::NeverStarted,
            Some("yes") => Left::Started,
            _ => Left::Unknown,
        })
    }
}

/// The node of one job.
struct Node<'a> {
    commands: NodeCommands,
    job: &'a Job,
}

impl Node<'_> {
    /// Returns the scripts to send with the run, because this worker does not know whether the node
    /// has them. Asking first would cost more. Returns none if they are too long.
    async fn inline_scripts(&self, scripts: &dyn ScriptSource) -> Result<Vec<Script>, Trouble> {
        let place = self.commands.transport.place();
        let known =
            self.commands.ways.scripts.lock().ok().and_then(|known| known.get(&place).cloned());
        let mut there = known.unwrap_or_default();
        let (mut along, mut length) = (Vec::new(), 0);
        for script in self.job.scripts() {
            if !there.insert(script.hash) {
                continue;
            }
            let bytes = scripts.script(script.hash).await.map_err(Trouble::Script)?;
            length += bytes.len();
            if length > MAX_INLINE_SCRIPTS {
                return Ok(Vec::new());
            }
            along.push((script.hash, bytes));
        }
        Ok(along)
    }

    /// Records that the node has the scripts of a started run.
    fn remember_scripts(&self) {
        if let Ok(mut known) = self.commands.ways.scripts.lock() {
            let node_scripts = known.entry(self.commands.transport.place()).or_default();
            if node_scripts.len() > MAX_KNOWN_SCRIPTS {
                node_scripts.clear();
            }
            node_scripts.extend(self.job.scripts().map(|script| script.hash));
        }
    }

    fn forget_scripts(&self) {
        if let Ok(mut known) = self.commands.ways.scripts.lock() {
            known.remove(&self.commands.transport.place());
        }
    }

    /// Sends the scripts that the node lacks.
    async fn send_scripts(&self, scripts: &dyn ScriptSource) -> Result<(), Trouble> {
        self.forget_scripts();
        let mut command = vec!["lacks".to_owned()];
        let hashes: BTreeSet<String> = self.job.scripts().map(|s| s.hash.to_string()).collect();
        command.extend(hashes);
        let missing = self.commands.ask("checking its scripts", &command, b"").await?;
        for hash in String::from_utf8_lossy(&missing).lines() {
            let hash: Hash = hash.parse().map_err(|_| {
                Trouble::Script(format!(
                    "The node requested {hash:?}, which is not a script of the \
                    run."
                ))
            })?;
            let bytes = scripts.script(hash).await.map_err(Trouble::Script)?;
            let command = ["put".to_owned(), hash.to_string()];
            self.commands.ask("sending a script", &command, &bytes).await?;
        }
        Ok(())
    }

    fn run_command(&self, size: usize, mark: &Mark, along: &[Script]) -> Vec<String> {
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
            KILL_GRACE_SECONDS.to_string(),
            job.fqdn.to_string(),
            job.role.name.to_string(),
            size.to_string(),
            mark.as_str().to_owned(),
            MAX_RESULT.to_string(),
        ];
        let mut sent: BTreeMap<Hash, usize> =
            along.iter().map(|(hash, bytes)| (*hash, bytes.len())).collect();
        command.extend(job.scripts().map(|script| match sent.remove(&script.hash) {
            Some(bytes) => format!("{}+{bytes}:{}", script.hash, script.name),
            None => format!("{}:{}", script.hash, script.name),
        }));
        command
    }

    /// Starts the run and follows it to its end. Reconnects if the connection breaks.
    async fn run(&self, along: &[Script], log: &Log, stop: &mut Stop) -> Result<Came, Trouble> {
        let until = Instant::now()
            + self.job.timeout()
            + Duration::from_secs(KILL_GRACE_SECONDS)
            + WRAPPER_OVERTIME;
        let mut patience = Patience { stop, until };
        let mut heard = Heard { out: log.lines(Stream::Stdout), err: log.lines(Stream::Err) };
        let (mark, mut input) = (Mark::random(), self.run_input(along));
        let words = self.commands.wrapper_args(&self.run_command(input.len(), &mark, along));
        let mut process = self.commands.start(CALL_WRAPPER, &words).await?;
        let mut end_on_drop = Abandoned::of(self);
        let mut told = None;
        let ended = loop {
            let (come, result) = self
                .follow(
                    &mut process,
                    (std::mem::take(&mut input), &mark),
                    &mut heard,
                    &mut patience,
                )
                .await;
            told = told.or(result);
            let come = if told.is_some() { complete_ending(come) } else { come };
            let lost = match &come {
                Ok(lost @ (Ending::Disconnected(_) | Ending::Killed(_))) => lost,
                _ => break come,
            };
            tracing::warn!(run = %self.job.run, why = %lost, "the connection to a run broke, \
                reconnecting");
            match self.reconnect(&heard, &mark, &mut patience).await {
                Ok(found) => process = found,
                Err(failure) => break Err(failure),
            }
        };
        end_on_drop.ended();
        let [_, last_error] = [heard.out, heard.err].map(Lines::finish);
        match ended {
            Ok(Ending::Code(EXIT_NOT_STARTED)) => {
                // Part of the input may still be in transit. It must not start a run later.
                self.commands.end(self.job.step, self.job.epoch, self.job.run).await?;
                Err(Trouble::NeverStarted)
            }
            Ok(Ending::Code(EXIT_ORPHANED)) => {
                self.commands.end(self.job.step, self.job.epoch, self.job.run).await?;
                Ok(Came { ended, last_error, told })
            }
            _ => {
                if matches!(ended, Ok(Ending::Code(0))) {
                    self.remember_scripts();
                }
                Ok(Came { ended, last_error, told })
            }
        }
    }

    /// Reads the output until the process ends or the time is over. Also reads the wrapper's
    /// report, if it arrives.
    async fn follow(
        &self,
        process: &mut Process,
        (input, mark): (Vec<u8>, &Mark),
        heard: &mut Heard,
        patience: &mut Patience<'_>,
    ) -> (Result<Ending, GaveUp>, Option<Vec<u8>>) {
        let (stdin, stdout, stderr) =
            (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let (end_sender, over) = watch::channel(false);
        let mut told = Told::behind(mark);
        let arrived = told.arrived();
        let waiting = async {
            let ended = tokio::select! {
                ending = process.wait() => Ok(ending),
                why = patience.over() => Err(self.give_up(why, Some(process)).await),
            };
            let _ = end_sender.send(true);
            ended
        };
        // Input that is still being written when the process has ended has no reader.
        let feed_end = over.clone();
        let feeding = async {
            tokio::select! {
                () = feed_and_confirm(stdin, &input, arrived) => {}
                () = is_over(feed_end) => {}
            }
        };
        let mut nothing = Nothing;
        let reading = futures::future::join(
            read_output(stdout, &mut heard.out, over.clone(), &mut told),
            read_output(stderr, &mut heard.err, over, &mut nothing),
        );
        let (ended, (), _) = futures::join!(waiting, feeding, reading);
        if matches!(ended, Ok(Ending::Code(_))) {
            heard.out.push(&told.held());
        }
        (ended, told.result())
    }

    /// Reconnects to the run, from the last received byte on.
    async fn reconnect(
        &self,
        heard: &Heard,
        mark: &Mark,
        patience: &mut Patience<'_>,
    ) -> Result<Process, GaveUp> {
        let mut command = vec!["follow".to_owned(), self.token()];
        command.extend([&heard.out, &heard.err].map(|lines| lines.taken().to_string()));
        command.extend([mark.as_str().to_owned(), MAX_RESULT.to_string()]);
        let words = self.commands.wrapper_args(&command);
        let mut pauses = RECONNECT_DELAYS.into_iter();
        let mut pause = RECONNECT_DELAYS[0];
        loop {
            pause = pauses.next().unwrap_or(pause);
            let found = async {
                tokio::time::sleep(pause).await;
                self.commands.start(CALL_WRAPPER, &words).await
            };
            tokio::select! {
                found = found => match found {
                    Ok(process) => return Ok(process),
                    Err(error) => tracing::debug!(run = %self.job.run, %error, "the connection to \
                        a run is still broken"),
                },
                why = patience.over() => return Err(self.give_up(why, None).await),
            }
        }
    }

    /// Ends the run on its node, and waits briefly for its last output.
    async fn give_up(&self, why: Why, process: Option<&mut Process>) -> GaveUp {
        let job = self.job;
        let started = match self.commands.end(job.step, job.epoch, job.run).await {
            Ok(Left::NeverStarted) => Some(false),
            Ok(Left::Started) => Some(true),
            Ok(Left::Unknown) => None,
            Err(error) => {
                tracing::warn!(run = %job.run, %error, "cannot end a run on its node");
                None
            }
        };
        if let Some(process) = process
            && timeout(Duration::from_secs(KILL_GRACE_SECONDS + 5), process.wait()).await.is_err()
        {
            process.kill().await;
        }
        GaveUp { why, started }
    }

    fn run_input(&self, along: &[Script]) -> Vec<u8> {
        let mut all: Vec<u8> = along.iter().flat_map(|(_, bytes)| bytes).copied().collect();
        // One line each. `serde_json` writes no newlines.
        all.extend(format!("{}\n{}\n", self.job.input, self.job.surroundings).into_bytes());
        all.extend(environment::to_shell(&environment::variables(&self.job.input)).into_bytes());
        all
    }

    async fn to_outcome(&self, came: Came, log: &Log) -> Result<Ended, Trouble> {
        let ending = match came.ended {
            Ok(ending) => ending,
            Err(GaveUp { why: Why::Told(why), started }) => {
                // Read the report even if the result is not needed, because reading removes it from
                // the node.
                let taken = match came.told {
                    Some(told) => told,
                    None => self.take().await.unwrap_or_default(),
                };
                return Ok(Ended::Stopped {
                    why,
                    started,
                    found: found(split_line(&taken).1, log),
                });
            }
            Err(GaveUp { why: Why::TimedOut, .. }) => {
                return Ok(Ended::failed(format!(
                    "The wrapper did not end within {} seconds after the time limit and was killed.",
                    WRAPPER_OVERTIME.as_secs()
                )));
            }
        };
        match ending {
            Ending::Code(0) => {}
            Ending::Code(EXIT_REFUSED) => return Ok(Ended::Refused(came.last_error)),
            Ending::Code(EXIT_ORPHANED) => return Ok(Ended::failed(came.last_error)),
            ending => {
                return Ok(Ended::failed(format!(
                    "The wrapper ended with {ending}: {}",
                    came.last_error
                )));
            }
        }
        let taken = match came.told {
            Some(told) => told,
            None => self.take().await?,
        };
        let (how, output) = split_line(&taken);
        Ok(self.judged(&String::from_utf8_lossy(how), output, &came.last_error, log))
    }

    async fn take(&self) -> Result<Vec<u8>, Trouble> {
        let words =
            self.commands.wrapper_args(&["take".to_owned(), self.token(), MAX_RESULT.to_string()]);
        self.commands
            .execute_with_limit(
                "fetching the result",
                CALL_WRAPPER,
                &words,
                b"",
                MAX_RESULT + MAX_COMMAND_OUTPUT,
            )
            .await
    }

    /// The wrapper's name for this attempt.
    fn token(&self) -> String {
        format!("{}.{}", self.job.epoch, self.job.run)
    }

    fn judged(&self, how: &str, output: &[u8], last_error: &str, log: &Log) -> Ended {
        let script = how.split_once("script=").map_or("", |(_, name)| name);
        let reason = match (word(how, "why"), word(how, "code")) {
            (Some("exit"), Some("0")) if word(how, "output") == Some("no-file") => {
                return Ended::failed(format!(
                    "{script} replaced the file $GANTRY_OUTPUT by something that is not a file, so \
                     its result is lost. A script must write JSON into that file."
                ));
            }
            (Some("exit"), Some("0")) => {
                return match returned(output, log.secrets()) {
                    Ok(object) => Ended::Returned(object),
                    Err(reason) => Ended::failed(reason),
                };
            }
            (Some("timeout"), _) => format!(
                "{script} took longer than {} seconds, its time limit, and was ended.",
                self.job.timeout().as_secs()
            ),
            (Some("exit"), Some(_)) if !last_error.is_empty() => last_error.to_owned(),
            (Some("exit"), Some(code)) => {
                format!("{script} ended with exit code {code} and wrote nothing to standard error.")
            }
            (Some("cancelled"), _) => format!("{script} was ended on the node."),
            _ => {
                return Ended::failed(
                    "The result of the run is unknown, because another program changed the folder \
                     .gantry/run of the node.",
                );
            }
        };
        Ended::Failed { reason, found: found(output, log) }
    }
}

/// Parses the result of a run that did not succeed. An unreadable result is logged and is not
/// another failure.
fn found(output: &[u8], log: &Log) -> Object {
    returned(output, log.secrets()).unwrap_or_else(|why| {
        log.line(Stream::Gantry, &format!("[gantry: the partial result is not stored: {why}]"));
        Object::new()
    })
}

/// Parses the result of a script.
///
/// # Errors
/// If it is not a JSON object. The error quotes its beginning, with secrets masked.
fn returned(output: &[u8], secrets: &Secrets) -> Result<Object, String> {
    if output.len() > MAX_RESULT {
        return Err(format!("The output is larger than {MAX_RESULT} bytes."));
    }
    if output.trim_ascii().is_empty() {
        return Ok(Object::new());
    }
    let begin = || {
        // Masked before it is cut, because no mask finds half a secret.
        let text = secrets.mask(String::from_utf8_lossy(output).trim());
        text.chars().take(120).collect::<String>()
    };
    match serde_json::from_slice(output) {
        Ok(Value::Object(object)) => {
            // Limits on size and numbers apply to stored results. A number that would be rounded is
            // an error of the script.
            let text = String::from_utf8_lossy(output);
            match check_numbers(&text, Fidelity::Rounded) {
                Ok(()) => Ok(object),
                Err(error) => Err(secrets.mask(&format!("Invalid output: {error}"))),
            }
        }
        Ok(_) => Err(format!("The output is JSON, but not an object. It begins with: {}", begin())),
        Err(error) => {
            Err(format!("The output is not a JSON object ({error}). It begins with: {}", begin()))
        }
    }
}

/// Ends a run on its node when it is dropped.
struct Abandoned(Option<(NodeCommands, StepId, i64, RunId)>);

impl Abandoned {
    fn of(node: &Node<'_>) -> Self {
        Self(Some((node.commands.clone(), node.job.step, node.job.epoch, node.job.run)))
    }

    fn ended(&mut self) {
        self.0 = None;
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        // Without a runtime, the process is exiting. The janitor then ends the lost run.
        if let Some((commands, step, epoch, run)) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move {
                if let Err(error) = commands.end(step, epoch, run).await {
                    tracing::warn!(%run, %error, "cannot end an abandoned run on its node");
                }
            });
        }
    }
}

/// Sends the input to a run. Once the whole report has arrived, confirms it, so that the node
/// deletes it.
async fn feed_and_confirm(stdin: Option<Writer>, text: &[u8], mut arrived: watch::Receiver<bool>) {
    let Some(mut stdin) = stdin else { return };
    // If a command ends before it has read all input, its exit code has the reason.
    let _ = stdin.write_all(text).await;
    let _ = stdin.flush().await;
    if arrived.wait_for(|arrived| *arrived).await.is_ok() {
        let _ = stdin.write_all(b"taken\n").await;
    }
    let _ = stdin.shutdown().await;
}

async fn feed(stdin: Option<Writer>, text: &[u8]) {
    if let Some(mut stdin) = stdin {
        // If a command ends before it has read all input, its exit code has the reason.
        let _ = stdin.write_all(text).await;
        let _ = stdin.shutdown().await;
    }
}

/// A stream exceeded the limit of its command.
#[derive(Debug, PartialEq, Eq)]
struct OutputLimitExceeded {
    stream: &'static str,
    most: usize,
}

/// Reads a stream to its end, up to a limit. The other end may print indefinitely.
async fn whole(
    from: Option<Reader>,
    stream: &'static str,
    most: usize,
) -> Result<Vec<u8>, OutputLimitExceeded> {
    let mut read = Vec::new();
    if let Some(from) = from {
        // After a read error, the bytes read so far are the result.
        let _ = from.take(most as u64 + 1).read_to_end(&mut read).await;
    }
    if read.len() > most { Err(OutputLimitExceeded { stream, most }) } else { Ok(read) }
}

async fn is_over(mut over: watch::Receiver<bool>) {
    let _ = over.wait_for(|over| *over).await;
}

/// Time after which an unfinished line is shown.
const UNFINISHED_LINE_DELAY: Duration = Duration::from_millis(500);

/// Reads a stream into the log until it ends, or until its process has ended and no more output
/// arrives for a moment.
async fn read_output(
    from: Option<Reader>,
    lines: &mut Lines,
    mut over: watch::Receiver<bool>,
    behind: &mut impl Behind,
) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; 16 << 10];
    let mut deadline = None;
    loop {
        let wait = match deadline {
            Some(deadline) => Instant::now().max(deadline) - Instant::now(),
            None => UNFINISHED_LINE_DELAY,
        };
        tokio::select! {
            biased;
            read = from.read(&mut buffer) => match read {
                Ok(0) | Err(_) => return,
                Ok(length) => behind.take(&buffer[..length], |bytes| lines.push(bytes)),
            },
            Ok(()) = over.changed() => deadline = Some(Instant::now() + LATE_OUTPUT_TIME),
            () = tokio::time::sleep(wait) => match deadline {
                Some(_) => return,
                None => lines.flush_unfinished(),
            },
        }
    }
}

/// Returns the exit status of a process and the last line of its standard error. Does not wait for
/// a service that holds the stream open.
///
/// # Errors
/// If waiting for the process fails.
pub(crate) async fn wait_with_last_line(mut child: Child) -> std::io::Result<(ExitStatus, String)> {
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
    let _ = timeout(LATE_OUTPUT_TIME, read).await;
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

/// The value of `name=value` in a list of words.
fn word<'a>(words: &'a str, name: &str) -> Option<&'a str> {
    words.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.unwrap_or("no output").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_number_that_would_change_is_rejected() {
        let none = Secrets::default();
        assert!(returned(b"{\"load\": [0.33333333333333333333, 1e300, 3]}", &none).is_ok());
        for lost in ["1e-400", "9007199254740993", "123456789012345678901234"] {
            let error = returned(format!("{{\"a\": [{lost}]}}").as_bytes(), &none).unwrap_err();
            assert!(
                error.starts_with(&format!(
                    "Invalid output: the number {lost} at /a/0 cannot be stored"
                )),
                "{error}"
            );
        }
    }

    #[tokio::test]
    async fn stream_beyond_its_limit_is_rejected() {
        let read =
            async |text: &'static [u8]| whole(Some(Box::new(text)), "standard output", 4).await;
        assert_eq!(read(b"four").await.as_deref(), Ok(&b"four"[..]));
        assert_eq!(
            read(b"four.").await,
            Err(OutputLimitExceeded { stream: "standard output", most: 4 })
        );
        let endless =
            whole(Some(Box::new(tokio::io::repeat(b'x'))), "standard error", MAX_COMMAND_OUTPUT)
                .await;
        assert_eq!(
            endless,
            Err(OutputLimitExceeded { stream: "standard error", most: MAX_COMMAND_OUTPUT })
        );
    }

    #[test]
    fn broken_connection_after_result_fails_no_run() {
        let too_long = || Err(GaveUp { why: Why::TimedOut, started: None });
        for come in [
            Ok(Ending::Disconnected("reset".into())),
            Ok(Ending::Killed("signal 9".into())),
            too_long(),
        ] {
            assert!(matches!(complete_ending(come), Ok(Ending::Code(0))));
        }
        assert!(matches!(
            complete_ending(Ok(Ending::Code(EXIT_REFUSED))),
            Ok(Ending::Code(EXIT_REFUSED))
        ));
        let told = Err(GaveUp { why: Why::Told(StopReason::Cancelled), started: Some(true) });
        assert!(
            matches!(
                complete_ending(told),
                Err(GaveUp { why: Why::Told(StopReason::Cancelled), .. })
            ),
            "a cancel stays one"
        );
    }

    #[test]
    fn survey_lists_running_attempts_only() {
        let step = StepId(uuid::Uuid::from_u128(7));
        assert_eq!(running(&format!("2.15 {step} runs")), Some((RunId(15), step)));
        assert_eq!(
            running(&format!("15 {step} runs")),
            Some((RunId(15), step)),
            "from a wrapper before this one"
        );
        assert_eq!(running(&format!("2.15 {step} gone")), None);
        assert_eq!(running("2.x y runs"), None);
    }
}
