//! Runs one attempt with the wrapper and follows it to its end.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::Hash;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::commands::{LostRun, Wrapper};
use super::deadline::{Abandoned, Deadline, EndOnDrop, StopCause, complete_ending};
use super::error::AttemptError;
use super::filter::{Mark, NoReport, ReportFilter};
use super::report::Report;
use super::scripts::{Script, ScriptSource};
use super::streams::{Received, feed_and_confirm, is_over, read_output};
use super::{
    CALL_WRAPPER, EXIT_MISSING_SCRIPT, EXIT_NO_WRAPPER, EXIT_NOT_STARTED, EXIT_ORPHANED,
    EXIT_REFUSED, KILL_GRACE_SECONDS,
};
use crate::job::log::{Lines, Log};
use crate::job::{Job, MAX_RESULT, Stop, StopReason};
use crate::node::connection::Transport;
use crate::node::session::MAX_COMMAND_OUTPUT;
use crate::node::session::process::{Ending, Process};

/// Time after a run's timeout at which the worker considers the wrapper hung. The wrapper enforces
/// the timeout itself.
const WRAPPER_OVERTIME: Duration = Duration::from_secs(30);
/// Delays between attempts to reconnect to a run. The last one repeats.
const RECONNECT_DELAYS: [Duration; 5] = [
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// How an attempt ended on its node.
pub enum AttemptEnd {
    /// The scripts ended, and the wrapper reports how.
    Reported {
        report: Report,
        /// Last line on standard error.
        last_error: String,
    },
    /// The node refused the attempt before it started, because it is outdated or contradicts the
    /// ledger. The text is for users.
    Refused(String),
    /// The wrapper failed. The text is for users.
    Failed(String),
    /// The node has no such attempt any more.
    Missing {
        /// Whether the attempt ever started; `None` if unknown.
        started: Option<bool>,
    },
    /// The worker stops, and the attempt continues on its node.
    LeftOnNode,
    Stopped {
        reason: StopReason,
        /// Whether the attempt ever started; `None` if unknown.
        started: Option<bool>,
        /// Content of the file `GANTRY_OUTPUT` so far.
        output: Vec<u8>,
    },
}

/// An attempt at a step on a node.
pub struct Attempt<'a> {
    wrapper: Wrapper,
    job: &'a Job,
}

/// The result of following an attempt.
struct Followed {
    /// How the attempt ended on its node, or why the worker gave up.
    ended: Result<Ending, Abandoned>,
    last_error: String,
    /// The wrapper's report, if it arrived over the same channel.
    report: Option<Vec<u8>>,
}

impl Followed {
    fn abandoned(gave_up: Abandoned) -> Self {
        Self { ended: Err(gave_up), last_error: String::new(), report: None }
    }
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(wrapper: Wrapper, job: &'a Job) -> Self {
        Self { wrapper, job }
    }

    /// Runs the scripts of the job with these lines of a POSIX shell as their environment.
    ///
    /// # Errors
    /// If the node can't be used.
    pub async fn run(
        &self,
        scripts: &dyn ScriptSource,
        environment: &str,
        log: &Log,
        stop: &mut Stop,
    ) -> Result<AttemptEnd, AttemptError> {
        self.wrapper.stage().await?;
        let mut inline = self.wrapper.inline_scripts(self.job, scripts).await?;
        // Twice, because staged files may have been removed since. If the second attempt fails too,
        // the node can't store files.
        for _ in 0..2 {
            let followed = self.run_once(&inline, environment, log, stop).await?;
            match followed.ended.as_ref().ok().and_then(Ending::code) {
                Some(EXIT_MISSING_SCRIPT) => {
                    inline.clear();
                    self.wrapper.send_scripts(self.job, scripts).await?;
                }
                Some(EXIT_NO_WRAPPER) => self.wrapper.restage().await?,
                _ => return self.to_end(followed).await,
            }
        }
        let followed = self.run_once(&inline, environment, log, stop).await?;
        self.to_end(followed).await
    }

    /// Continues the attempt after its worker was lost: reads on where the log ends, and takes the
    /// report. Starts nothing.
    ///
    /// # Errors
    /// If the node can't be used.
    pub async fn adopt(&self, log: &Log, stop: &mut Stop) -> Result<AttemptEnd, AttemptError> {
        let mut deadline = self.deadline(stop);
        if let Err(gave_up) = self.stage_with_retry(&mut deadline).await {
            return self.to_end(Followed::abandoned(gave_up)).await;
        }
        // Twice, because the staged wrapper may have been removed since.
        for _ in 0..2 {
            let received = Received::of(log);
            let mark = Mark::random();
            let process = match self.reconnect(&received, &mark, &mut deadline).await {
                Ok(process) => process,
                Err(gave_up) => return self.to_end(Followed::abandoned(gave_up)).await,
            };
            let followed =
                self.follow_to_end(process, Vec::new(), mark, received, &mut deadline).await;
            match followed.ended.as_ref().ok().and_then(Ending::code) {
                Some(EXIT_NO_WRAPPER) => self.wrapper.restage().await?,
                Some(EXIT_NOT_STARTED | EXIT_ORPHANED | EXIT_REFUSED) => {
                    return Ok(AttemptEnd::Missing { started: self.end().await?.started() });
                }
                _ => return self.to_end(followed).await,
            }
        }
        Err(AttemptError::NeverStarted)
    }

    async fn stage_with_retry(&self, deadline: &mut Deadline<'_>) -> Result<(), Abandoned> {
        let mut pauses = RECONNECT_DELAYS.into_iter();
        let mut pause = RECONNECT_DELAYS[0];
        while let Err(error) = self.wrapper.stage().await {
            tracing::debug!(run = %self.job.run, %error, "the node of an adopted run is not \
                reached");
            pause = pauses.next().unwrap_or(pause);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                cause = deadline.over() => return Err(self.give_up(cause, None).await),
            }
        }
        Ok(())
    }

    fn deadline<'s>(&self, stop: &'s mut Stop) -> Deadline<'s> {
        let until = Instant::now()
            + self.job.timeout()
            + Duration::from_secs(KILL_GRACE_SECONDS)
            + WRAPPER_OVERTIME;
        Deadline { stop, until }
    }

    fn command(&self, input_size: usize, mark: &Mark, inline: &[Script]) -> Vec<String> {
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
            input_size.to_string(),
            mark.as_str().to_owned(),
            MAX_RESULT.to_string(),
        ];
        let mut sent: BTreeMap<Hash, usize> =
            inline.iter().map(|(hash, bytes)| (*hash, bytes.len())).collect();
        command.extend(job.scripts().map(|script| match sent.remove(&script.hash) {
            Some(bytes) => format!("{}+{bytes}:{}", script.hash, script.name),
            None => format!("{}:{}", script.hash, script.name),
        }));
        command
    }

    fn input(&self, inline: &[Script], environment: &str) -> Vec<u8> {
        let mut input: Vec<u8> = inline.iter().flat_map(|(_, bytes)| bytes).copied().collect();
        // One line each. `serde_json` writes no newlines.
        input.extend(format!("{}\n{}\n", self.job.input, self.job.surroundings).into_bytes());
        input.extend_from_slice(environment.as_bytes());
        input
    }

    /// Starts the attempt and follows it to its end.
    async fn run_once(
        &self,
        inline: &[Script],
        environment: &str,
        log: &Log,
        stop: &mut Stop,
    ) -> Result<Followed, AttemptError> {
        let mut deadline = self.deadline(stop);
        let (mark, input) = (Mark::random(), self.input(inline, environment));
        let args = self.wrapper.args(&self.command(input.len(), &mark, inline));
        let process = self.wrapper.session.start(CALL_WRAPPER, &args).await?;
        let received = Received::of(log);
        let followed = self.follow_to_end(process, input, mark, received, &mut deadline).await;
        match followed.ended.as_ref().ok().and_then(Ending::code) {
            Some(EXIT_NOT_STARTED) => {
                // Part of the input may still be in transit. It must not start a run later.
                self.end().await?;
                return Err(AttemptError::NeverStarted);
            }
            Some(EXIT_ORPHANED) => drop(self.end().await?),
            Some(0) => self.wrapper.remember_scripts(self.job),
            _ => {}
        }
        Ok(followed)
    }

    /// Follows the attempt to its end. Reconnects if the connection breaks.
    async fn follow_to_end(
        &self,
        mut process: Process,
        mut input: Vec<u8>,
        mark: Mark,
        mut received: Received,
        deadline: &mut Deadline<'_>,
    ) -> Followed {
        let mut end_on_drop = EndOnDrop::new(&self.wrapper, self.job);
        let mut report = None;
        let ended = loop {
            let input = (std::mem::take(&mut input), &mark);
            let (ended, new_report) =
                self.follow(&mut process, input, &mut received, deadline).await;
            report = report.or(new_report);
            let ended = if report.is_some() { complete_ending(ended) } else { ended };
            let lost = match &ended {
                Ok(lost @ (Ending::Disconnected(_) | Ending::Killed(_))) => lost,
                _ => break ended,
            };
            tracing::warn!(run = %self.job.run, reason = %lost, "the connection to a run broke, \
                reconnecting");
            match self.reconnect(&received, &mark, deadline).await {
                Ok(found) => process = found,
                Err(failure) => break Err(failure),
            }
        };
        end_on_drop.disarm();
        let [_, last_error] = [received.out, received.err].map(Lines::finish);
        Followed { ended, last_error, report }
    }

    /// Reads the output until the process ends or the time is over. Also reads the wrapper's
    /// report, if it arrives.
    async fn follow(
        &self,
        process: &mut Process,
        (input, mark): (Vec<u8>, &Mark),
        received: &mut Received,
        deadline: &mut Deadline<'_>,
    ) -> (Result<Ending, Abandoned>, Option<Vec<u8>>) {
        let (stdin, stdout, stderr) =
            (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let (end_sender, over) = watch::channel(false);
        let mut filter = ReportFilter::new(mark);
        let arrived = filter.arrived();
        let waiting = async {
            let ended = tokio::select! {
                ending = process.wait() => Ok(ending),
                cause = deadline.over() => Err(self.give_up(cause, Some(process)).await),
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
        let mut no_report = NoReport;
        let reading = futures::future::join(
            read_output(stdout, &mut received.out, over.clone(), &mut filter),
            read_output(stderr, &mut received.err, over, &mut no_report),
        );
        let (ended, (), _) = futures::join!(waiting, feeding, reading);
        if matches!(ended, Ok(Ending::Code(_))) {
            received.out.push(&filter.withheld());
        }
        (ended, filter.report())
    }

    /// Reconnects to the attempt, from the last received byte on.
    async fn reconnect(
        &self,
        received: &Received,
        mark: &Mark,
        deadline: &mut Deadline<'_>,
    ) -> Result<Process, Abandoned> {
        let mut command = vec!["follow".to_owned(), self.token()];
        command.extend([&received.out, &received.err].map(|lines| lines.taken().to_string()));
        command.extend([mark.as_str().to_owned(), MAX_RESULT.to_string()]);
        let args = self.wrapper.args(&command);
        let mut pauses = RECONNECT_DELAYS.into_iter();
        let mut pause = RECONNECT_DELAYS[0];
        loop {
            pause = pauses.next().unwrap_or(pause);
            let started = async {
                tokio::time::sleep(pause).await;
                self.wrapper.session.start(CALL_WRAPPER, &args).await
            };
            tokio::select! {
                started = started => match started {
                    Ok(process) => return Ok(process),
                    Err(error) => tracing::debug!(run = %self.job.run, %error, "the connection to \
                        a run is still broken"),
                },
                cause = deadline.over() => return Err(self.give_up(cause, None).await),
            }
        }
    }

    async fn end(&self) -> Result<LostRun, AttemptError> {
        self.wrapper.end(self.job.step, self.job.epoch, self.job.run).await
    }

    /// Ends the attempt on its node, and waits briefly for its last output.
    async fn give_up(&self, cause: StopCause, process: Option<&mut Process>) -> Abandoned {
        // The next worker adopts the attempt.
        if matches!(cause, StopCause::Stopped(StopReason::WorkerShutdown)) && self.survives_worker()
        {
            if let Some(process) = process {
                process.kill().await;
            }
            return Abandoned { cause, started: Some(true) };
        }
        let started = match self.end().await {
            Ok(lost) => lost.started(),
            Err(error) => {
                tracing::warn!(run = %self.job.run, %error, "cannot end a run on its node");
                None
            }
        };
        if let Some(process) = process
            && timeout(Duration::from_secs(KILL_GRACE_SECONDS + 5), process.wait()).await.is_err()
        {
            process.kill().await;
        }
        Abandoned { cause, started }
    }

    /// Whether the attempt continues on its node when this worker stops. A worker that stops leaves
    /// nothing running on its own machine.
    fn survives_worker(&self) -> bool {
        matches!(*self.wrapper.session.transport, Transport::Ssh { .. })
    }

    async fn to_end(&self, followed: Followed) -> Result<AttemptEnd, AttemptError> {
        let Followed { ended, last_error, report } = followed;
        let ending = match ended {
            Ok(ending) => ending,
            Err(Abandoned { cause: StopCause::Stopped(StopReason::WorkerShutdown), .. })
                if self.survives_worker() =>
            {
                return Ok(AttemptEnd::LeftOnNode);
            }
            Err(Abandoned { cause: StopCause::Stopped(reason), started }) => {
                // Fetch the report even if the result is not needed, because that removes it from
                // the node.
                let answer = match report {
                    Some(report) => report,
                    None => self.fetch_report().await.unwrap_or_default(),
                };
                let output = Report::parse(&answer).output.unwrap_or_default();
                return Ok(AttemptEnd::Stopped { reason, started, output });
            }
            Err(Abandoned { cause: StopCause::TimedOut, .. }) => {
                return Ok(AttemptEnd::Failed(format!(
                    "The wrapper did not end within {} seconds after the time limit and was \
                     killed.",
                    WRAPPER_OVERTIME.as_secs()
                )));
            }
        };
        match ending {
            Ending::Code(0) => {}
            Ending::Code(EXIT_REFUSED) => return Ok(AttemptEnd::Refused(last_error)),
            Ending::Code(EXIT_ORPHANED) => return Ok(AttemptEnd::Failed(last_error)),
            ending => {
                return Ok(AttemptEnd::Failed(format!(
                    "The wrapper ended with {ending}: {last_error}"
                )));
            }
        }
        let answer = match report {
            Some(report) => report,
            None => self.fetch_report().await?,
        };
        Ok(AttemptEnd::Reported { report: Report::parse(&answer), last_error })
    }

    async fn fetch_report(&self) -> Result<Vec<u8>, AttemptError> {
        let command = ["take".to_owned(), self.token(), MAX_RESULT.to_string()];
        let (args, limit) = (self.wrapper.args(&command), MAX_RESULT + MAX_COMMAND_OUTPUT);
        let session = &self.wrapper.session;
        Ok(session
            .execute_with_limit("fetching the result", CALL_WRAPPER, &args, b"", limit)
            .await?)
    }

    /// The wrapper's name for this attempt.
    fn token(&self) -> String {
        format!("{}.{}", self.job.epoch, self.job.run)
    }
}
