//! `wait`, `converge` and `logs`: follow a process until it succeeds, can't succeed or times out.
//!
//! Invariants:
//! * A missing thing never counts as success; it has its own exit code.
//! * Logs continue by byte offset, so the output has no gaps and no duplicates, however often the
//!   connection breaks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use api::deployments::DeploymentSummary;
use api::overview::{BlueprintView, DeploymentProgress, Progress};
use api::pending::PendingPage;
use api::reviews::ReviewState;
use api::runs::{LogFound, LogPart, RunState, RunView, StateCounts};
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueEnum};
use engine::counting::many;
use engine::ids::{ReviewId, RunId};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use crate::address::{Query, part};
use crate::exit::{Failure, Outcome};
use crate::lists::Client;
use crate::names;
use crate::output::{note, plain, steps};
use crate::pages::pending_text;
use crate::server::{EventStream, Server, parse_answer};
use crate::terminal::ControlFilter;
use crate::when::duration;

/// Maximum time between requests, even without an event.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Pause after a request, as a multiple of its duration. It limits the load on a slow server.
const PAUSE_FACTOR: u32 = 10;
/// Maximum pause after a request.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// How long a server may be unreachable before the command fails.
const MAX_DISCONNECTED: Duration = Duration::from_secs(120);
/// Time limit for fetching the pending reasons after a timeout.
const REASONS_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(crate) struct Wait {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Wait until the steps of a blueprint are applied
    Blueprint {
        /// Number of the blueprint
        #[arg(value_parser = names::target)]
        number: i64,
        #[command(flatten)]
        most: TimeoutOption,
        /// Condition to wait for
        #[arg(long = "for", value_name = "WHAT", value_enum, default_value_t = Converged::Converged)]
        _condition: Converged,
    },
    /// Wait until a run ends; exits 1 if it did not succeed
    Run {
        /// Number of the run
        id: RunId,
        #[command(flatten)]
        most: TimeoutOption,
    },
    /// Wait until a review can be committed, or is committed
    Review {
        /// Number of the review
        id: ReviewId,
        /// Condition to wait for
        #[arg(long = "for", value_name = "WHAT", value_enum, default_value_t = ReviewCondition::Open)]
        wanted: ReviewCondition,
        #[command(flatten)]
        most: TimeoutOption,
    },
    /// Wait until all steps of a deployment are applied
    Deployment {
        /// Name of the deployment
        name: String,
        #[command(flatten)]
        most: TimeoutOption,
        /// Condition to wait for
        #[arg(long = "for", value_name = "WHAT", value_enum, default_value_t = Converged::Converged)]
        _condition: Converged,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Converged {
    /// All steps are applied
    Converged,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReviewCondition {
    /// The gate is open
    Open,
    /// The review is committed
    Committed,
}

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct TimeoutOption {
    /// Time limit, for example 90s, 30m or 2h; 0 for none
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Converge {
    /// Names of deployments
    #[arg(value_name = "DEPLOYMENT", required_unless_present_any = ["all", "blueprint"])]
    deployments: Vec<String>,
    /// All deployments
    #[arg(long, conflicts_with_all = ["deployments", "blueprint"])]
    all: bool,
    /// The steps of this blueprint instead of deployments
    #[arg(long, value_name = "N", conflicts_with = "deployments", value_parser = names::target)]
    blueprint: Option<i64>,
    #[command(flatten)]
    most: TimeoutOption,
}

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// Number of the run
    run: RunId,
    /// Continue until the run ends
    #[arg(short, long)]
    follow: bool,
    /// Start at this byte; -N starts N bytes before the end
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    since_byte: i64,
    /// Only lines that contain this text, with line numbers; exits 4 if there are none
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["follow", "since_byte"])]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    find: Option<String>,
    /// Ignore case
    #[arg(long, requires = "find")]
    any_case: bool,
    /// Keep control sequences, such as colors; the terminal interprets them
    #[arg(long, conflicts_with = "find")]
    raw: bool,
}

/// Progress bar for counted steps.
const PROGRESS_TEMPLATE: &str = "{bar:30} {pos}/{len} {elapsed} {wide_msg}";
/// Progress line if there is nothing to count.
const SPINNER_TEMPLATE: &str = "{elapsed} {wide_msg}";

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Time limit, progress bar and event stream of a followed process. The bar is on standard error,
/// and only on a terminal.
struct Watcher {
    /// The server, with requests limited to `end`.
    server: Server,
    end: Option<Instant>,
    most: Duration,
    bar: ProgressBar,
    news: EventStream,
    /// Whether the server has answered at least once.
    reached: bool,
    disconnected_since: Option<Instant>,
    /// Earliest time of the next request. A slow server gets fewer requests.
    paused_until: Option<Instant>,
    /// The error of the last request, until one succeeds.
    unknown: Option<Failure>,
}

impl Watcher {
    fn new(client: &Client, most: TimeoutOption, topics: &str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(style(SPINNER_TEMPLATE));
        bar.enable_steady_tick(Duration::from_millis(250));
        let end =
            (!most.timeout.is_zero()).then(|| Instant::now().checked_add(most.timeout)).flatten();
        let (server, news) = (client.server.until(end), EventStream::of(&client.server, topics));
        Self {
            server,
            end,
            most: most.timeout,
            bar,
            news,
            reached: false,
            disconnected_since: None,
            paused_until: None,
            unknown: None,
        }
    }

    fn shows(&self, counts: &StateCounts) {
        let all = counts.blocked + counts.todo + counts.transition + counts.active + counts.error;
        // Zero of zero steps is not shown.
        self.bar.set_style(style(if all > 0 { PROGRESS_TEMPLATE } else { SPINNER_TEMPLATE }));
        self.bar.set_length(all.unsigned_abs());
        self.bar.set_position(counts.active.unsigned_abs());
        self.bar.set_message(steps(&serde_json::to_value(counts).unwrap_or_default()));
    }

    /// Sends a request. Returns `None` while the server is temporarily unreachable, and at the time
    /// limit.
    ///
    /// A request that the time limit cuts short is ignored if the server answered before. The known
    /// state stays.
    fn ask<T>(&mut self, ask: impl FnOnce(&Server) -> Outcome<T>) -> Outcome<Option<T>> {
        let started = Instant::now();
        let result = ask(&self.server);
        self.paused_until =
            Instant::now().checked_add((started.elapsed() * PAUSE_FACTOR).min(MAX_PAUSE));
        let failure = match result {
            Ok(response) => {
                (self.reached, self.disconnected_since, self.unknown) = (true, None, None);
                return Ok(Some(response));
            }
            Err(failure) => failure,
        };
        if failure.passes() && self.reached && self.over() && started.elapsed() < POLL_INTERVAL {
            return Ok(None);
        }
        let since = *self.disconnected_since.get_or_insert_with(Instant::now);
        // A server that never answered does not exist. One that did may return.
        let may_recover = self.over() || (self.reached && since.elapsed() <= MAX_DISCONNECTED);
        if !(failure.passes() && may_recover) {
            return Err(failure);
        }
        self.bar.set_message(plain(&failure.to_string()));
        self.unknown = Some(failure);
        Ok(None)
    }

    fn over(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// Waits for an event. Fails at the time limit.
    fn next(&mut self) -> Outcome {
        if self.over() {
            self.bar.finish_and_clear();
            let seconds = self.most.as_secs();
            return Err(Failure::TimedOut(match self.unknown.take() {
                Some(why) => {
                    format!(
                        "The state is unknown after {seconds} seconds. To wait longer, use \
                         --timeout.\n{why}"
                    )
                }
                None => format!(
                    "The condition is not met after {seconds} seconds. To wait longer, \
                    use --timeout."
                ),
            }));
        }
        let remaining =
            self.end.map_or(POLL_INTERVAL, |end| end.saturating_duration_since(Instant::now()));
        self.news.wait(remaining.min(POLL_INTERVAL))?;
        let pause = self
            .paused_until
            .map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
        std::thread::sleep(
            pause.min(self.end.map_or(pause, |end| end.saturating_duration_since(Instant::now()))),
        );
        Ok(())
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

pub(crate) fn wait(client: &Client, wait: &Wait) -> Outcome {
    match &wait.what {
        What::Blueprint { number, most, .. } => target(client, *number, *most),
        What::Run { id, most } => run(client, *id, *most),
        What::Review { id, wanted, most } => review(client, *id, *wanted, *most),
        What::Deployment { name, most, .. } => {
            deployments(client, std::slice::from_ref(name), false, *most)
        }
    }
}

pub(crate) fn converge(client: &Client, converge: &Converge) -> Outcome {
    match converge.blueprint {
        Some(number) => target(client, number, converge.most),
        None => deployments(client, &converge.deployments, converge.all, converge.most),
    }
}

fn target(client: &Client, number: i64, most: TimeoutOption) -> Outcome {
    let output = client.output;
    let mut watch = Watcher::new(client, most, "");
    let mut deployment = None;
    loop {
        let value = watch.ask(|server| server.get(&format!("/blueprints/{number}")))?;
        if let Some(value) = value {
            let view: BlueprintView = parse_answer(&value, "expected a blueprint")?;
            watch.shows(&view.steps);
            deployment = view.blueprint.deployment;
            let has_no_steps = view.steps == StateCounts::default();
            match view.progress {
                Progress::Converged if has_no_steps => {
                    watch.end();
                    let why = format!(
                        "Blueprint {number} has no steps of its own. It changed none, or later \
                         blueprints run all of them again."
                    );
                    return Err(Failure::Nothing(why));
                }
                Progress::Converged => {
                    watch.end();
                    return output.either(
                        &value,
                        &format!(
                            "Blueprint {number} is converged: {}.",
                            many(view.applied, "step")
                        ),
                    );
                }
                Progress::Stuck => {
                    watch.end();
                    output.either(&value, &stuck(deployment.as_deref(), client)?)?;
                    return Err(Failure::Negative(format!(
                        "Blueprint {number} is stuck: all remaining steps need a person."
                    )));
                }
                Progress::InProgress => {}
            }
        }
        watch
            .next()
            .map_err(|failure| add_pending_reasons(failure, deployment.as_deref(), client))?;
    }
}

/// Reasons of pending steps, in a deployment or in all.
fn stuck(deployment: Option<&str>, client: &Client) -> Outcome<String> {
    let query = Query::default().with("deployment", deployment.unwrap_or_default());
    let server = client.server.until(Instant::now().checked_add(REASONS_TIMEOUT));
    let page: PendingPage = server.read(&query.behind("/pending"))?;
    Ok(pending_text(&page, client.output).trim_end().to_owned())
}

/// Adds the pending reasons to a timeout error.
fn add_pending_reasons(failure: Failure, deployment: Option<&str>, client: &Client) -> Failure {
    match (failure, stuck(deployment, client)) {
        (Failure::TimedOut(text), Ok(reasons)) if !reasons.is_empty() => {
            Failure::TimedOut(format!("{text}\n{reasons}"))
        }
        (failure, _) => failure,
    }
}

fn run(client: &Client, id: RunId, most: TimeoutOption) -> Outcome {
    let output = client.output;
    let mut watch = Watcher::new(client, most, &format!("run:{id}"));
    loop {
        if let Some(value) = watch.ask(|server| server.get(&format!("/runs/{id}")))? {
            let view = run_view(&value)?;
            watch.bar.set_message(format!(
                "{} on {}: {}",
                view.run.role,
                plain(&view.run.fqdn),
                word(view.run.state)
            ));
            if view.run.ended.is_some() {
                watch.end();
                output.either(
                    &value,
                    &format!(
                        "Run {id} of {} on {} {}.",
                        view.run.role,
                        plain(&view.run.fqdn),
                        word(view.run.state)
                    ),
                )?;
                return ended(&view);
            }
        }
        watch.next()?;
    }
}

fn run_view(value: &Value) -> Outcome<RunView> {
    parse_answer(value, "expected a run")
}

fn word(state: RunState) -> &'static str {
    match state {
        RunState::Queued => "is queued",
        RunState::Running => "is running",
        RunState::Succeeded => "succeeded",
        RunState::Failed => "failed",
        RunState::Lost => "was lost with its worker",
        RunState::Cancelled => "was cancelled",
        RunState::Unstarted => "was returned to the queue before it started",
    }
}

/// The result of a run as an exit code.
fn ended(view: &RunView) -> Outcome {
    if view.run.state == RunState::Succeeded {
        return Ok(());
    }
    let why =
        view.run.error.as_deref().map(|error| format!(": {}", plain(error))).unwrap_or_default();
    Err(Failure::Negative(format!("Run {} {}{why}", view.run.id, word(view.run.state))))
}

fn review(client: &Client, id: ReviewId, wanted: ReviewCondition, most: TimeoutOption) -> Outcome {
    let output = client.output;
    let mut watch = Watcher::new(client, most, &format!("review:{id},reviews,blueprints"));
    loop {
        if let Some(value) = watch.ask(|server| server.get(&format!("/reviews/{id}")))? {
            let state: ReviewState = parse_answer(&value["state"], "expected a review")?;
            let state_text = crate::output::said(&value["state"]);
            watch.bar.set_message(state_text.clone());
            match reached(state, wanted) {
                Some(true) => {
                    watch.end();
                    return output.either(&value, &format!("Review {id} is {state_text}."));
                }
                Some(false) => {
                    watch.end();
                    return Err(Failure::Negative(format!(
                        "Review {id} is {state_text}, so the condition can't be met. Details: gantry \
                         review show {id}"
                    )));
                }
                None => {}
            }
        }
        watch.next()?;
    }
}

/// Whether a review meets the condition, or `None` if it still can.
fn reached(state: ReviewState, wanted: ReviewCondition) -> Option<bool> {
    match (state, wanted) {
        (ReviewState::Committed, _) | (ReviewState::Open, ReviewCondition::Open) => Some(true),
        (ReviewState::Replaced | ReviewState::SentBack | ReviewState::Discarded, _) => Some(false),
        _ => None,
    }
}

/// Whether a deployment has no steps.
fn is_empty(counts: &StateCounts) -> bool {
    *counts == StateCounts::default()
}

/// Progress of the deployments whose counts do not show it: if all steps are active, none can be
/// stuck. The server decides what is stuck, by one rule for blueprints and deployments.
fn ways(server: &Server, these: &[DeploymentSummary]) -> Outcome<Vec<DeploymentProgress>> {
    let way = |one: &DeploymentSummary| match one.steps.active {
        active if (StateCounts { active, ..StateCounts::default() }) == one.steps => {
            Ok(DeploymentProgress {
                deployment: one.name.clone(),
                progress: Progress::Converged,
                steps: one.steps,
            })
        }
        _ => server.read(&format!("/deployments/{}/progress", part(one.name.as_str()))),
    };
    these.iter().map(way).collect()
}

/// The named deployments, or all. Fails at the first that does not exist or has no steps.
fn chosen(
    all: Vec<DeploymentSummary>,
    names: &[String],
    all_deployments: bool,
) -> Outcome<Vec<DeploymentSummary>> {
    if all_deployments {
        let with_steps: Vec<DeploymentSummary> =
            all.into_iter().filter(|one| !is_empty(&one.steps)).collect();
        return match with_steps.is_empty() {
            true => Err(Failure::Nothing(
                "No deployment has noderoles, so there is nothing to wait for.".into(),
            )),
            false => Ok(with_steps),
        };
    }
    let known: BTreeMap<&str, &DeploymentSummary> =
        all.iter().map(|one| (one.name.as_str(), one)).collect();
    let one = |name: &String| match known.get(name.as_str()) {
        None => {
            let near = names::near(name, known.keys().copied());
            Err(Failure::Nothing(format!(
                "Deployment {name} does not exist{near}.\nList all deployments with `gantry \
                 deployment list`."
            )))
        }
        Some(found) if is_empty(&found.steps) => Err(Failure::Nothing(format!(
            "Deployment {name} has no noderoles, so there is nothing to wait for. Check that its \
             change was committed: gantry review list --deployment {name}"
        ))),
        Some(found) => Ok((*found).clone()),
    };
    let found: Vec<DeploymentSummary> = names.iter().map(one).collect::<Outcome<_>>()?;
    match found.is_empty() {
        true => Err(Failure::Nothing("Name at least one deployment.".into())),
        false => Ok(found),
    }
}

fn deployments(
    client: &Client,
    names: &[String],
    all_deployments: bool,
    most: TimeoutOption,
) -> Outcome {
    let mut watch = Watcher::new(client, most, "");
    loop {
        let all = watch.ask(|server| names::deployments(server, names, all_deployments))?;
        let ways = match all {
            None => None,
            Some(all) => {
                let these = chosen(all, names, all_deployments).inspect_err(|_| watch.end())?;
                watch.ask(|server| ways(server, &these))?
            }
        };
        if let Some(ways) = ways {
            let mut counts = StateCounts::default();
            for one in &ways {
                add(&mut counts, &one.steps);
            }
            watch.shows(&counts);
            if ways.iter().all(|one| one.progress != Progress::InProgress) {
                watch.end();
                return settled(client, &ways);
            }
        }
        let one = if let [name] = names { Some(name.as_str()) } else { None };
        watch.next().map_err(|failure| add_pending_reasons(failure, one, client))?;
    }
}

fn add(all: &mut StateCounts, more: &StateCounts) {
    all.blocked += more.blocked;
    all.todo += more.todo;
    all.transition += more.transition;
    all.active += more.active;
    all.error += more.error;
}

/// The result once nothing more happens without human action.
fn settled(client: &Client, these: &[DeploymentProgress]) -> Outcome {
    let output = client.output;
    let with = |way: Progress| these.iter().filter(move |one| one.progress == way);
    let stuck_names: Vec<&str> = with(Progress::Stuck).map(|one| one.deployment.as_str()).collect();
    if output.json {
        let to_json = |one: &DeploymentProgress| json!({"deployment": one.deployment, "steps": one.steps, "converged": one.progress == Progress::Converged});
        output.json(&Value::Array(these.iter().map(to_json).collect()))?;
    } else {
        for one in with(Progress::Converged) {
            output.line(&format!(
                "Deployment {} is converged: {}.",
                one.deployment,
                many(one.steps.active, "step")
            ))?;
        }
        for name in &stuck_names {
            output.line(&format!("Deployment {name} is stuck."))?;
            output.line(&stuck(Some(name), client)?)?;
        }
    }
    match stuck_names.as_slice() {
        [] => Ok(()),
        names => Err(Failure::Negative(format!(
            "Stuck: {}. All remaining steps need a person: see `gantry pending`. After a failed \
             run, use `gantry noderole retry`, or change the step.",
            names.join(", ")
        ))),
    }
}

/// Prints the lines of a log that contain a text, page by page.
fn find(client: &Client, run: RunId, text: &str, any_case: bool) -> Outcome {
    let Client { server, output } = client;
    let mut query = Query::default().with("text", text).with("any_case", any_case);
    let mut found = 0;
    loop {
        let page: LogFound =
            server.read(&query.behind(&format!("/runs/{}/log/search", part(&run.to_string()))))?;
        for hit in &page.hits {
            found += 1;
            match output.json {
                true => output.json_line(&json!(hit))?,
                false => output.line(&format!("{}: {}", hit.line, plain(&hit.text)))?,
            }
        }
        if !page.more {
            break;
        }
        query = query.with("after", page.next);
    }
    if found > 0 {
        return Ok(());
    }
    let is_ended = run_view(&server.get(&format!("/runs/{run}"))?)?.run.ended.is_some();
    let so_far = if is_ended { "" } else { " so far" };
    Err(Failure::Nothing(format!("No line of run {run} contains {text:?}{so_far}.")))
}

pub(crate) fn logs(client: &Client, logs: &Logs) -> Outcome {
    if let Some(text) = &logs.find {
        return find(client, logs.run, text, logs.any_case);
    }
    let Client { server, output } = client;
    let mut news = logs
        .follow
        .then(|| EventStream::subscribe_while_read(server, &format!("run:{}", logs.run)));
    // One filter for the whole log, because a sequence can span several pieces.
    let mut filter = ControlFilter::default();
    let (mut offset, mut reached, mut away) = (logs.since_byte, false, None::<Instant>);
    loop {
        let query = Query::default().with("offset", Some(offset));
        let log: LogPart = match server
            .read(&query.behind(&format!("/runs/{}/log", part(&logs.run.to_string()))))
        {
            Ok(log) => log,
            Err(why) if why.passes() && news.is_some() && reached => {
                let since = *away.get_or_insert_with(|| {
                    note(
                        "The connection is lost. The log continues at the same byte when the \
                        server answers again.",
                    );
                    Instant::now()
                });
                if since.elapsed() > MAX_DISCONNECTED {
                    return Err(Failure::Unreachable(format!(
                        "{why}\nTo continue at the same byte, use --since-byte {offset}"
                    )));
                }
                std::thread::sleep(Duration::from_secs(2));
                continue;
            }
            Err(failure) => return Err(failure),
        };
        (reached, away) = (true, None);
        for piece in &log.pieces {
            match (output.json, logs.raw) {
                (true, _) => output.json_line(&serde_json::to_value(piece).unwrap_or_default())?,
                (false, true) => output.raw(&piece.text)?,
                (false, false) => output.raw(&filter.text(&piece.text))?,
            }
        }
        let has_grown = log.next > offset;
        offset = log.next;
        match &mut news {
            _ if log.complete => {
                return ended(&run_view(&server.get(&format!("/runs/{}", logs.run))?)?);
            }
            _ if has_grown => {}
            None => return Ok(()),
            Some(news) => news.wait(POLL_INTERVAL)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;
    use crate::output::Paper;

    fn counts(blocked: i64, todo: i64, transition: i64, active: i64, error: i64) -> StateCounts {
        StateCounts { blocked, todo, transition, active, error }
    }

    fn deployment(name: &str, steps: StateCounts) -> DeploymentSummary {
        serde_json::from_value(
            json!({"id": uuid::Uuid::nil(), "name": name, "depth": 1, "nodes": 0, "steps": steps, "proposal": null,
            "review": null, "blueprint": 1}),
        )
        .unwrap()
    }

    #[test]
    fn empty_selection_exits_with_4() {
        let all = || {
            vec![
                deployment("web", counts(0, 0, 0, 1, 0)),
                deployment("edge", counts(0, 0, 0, 0, 0)),
            ]
        };
        let names =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let code = |named: &[&str], all_deployments| {
            chosen(all(), &names(named), all_deployments)
                .map_err(|failure| failure.code())
                .map(|all| all.len())
        };
        assert_eq!(code(&["web"], false), Ok(1));
        assert_eq!(code(&[], true), Ok(1), "deployments without steps are left out");
        assert_eq!(
            (code(&["wob"], false), code(&["web", "edge"], false), code(&[], false)),
            (Err(4), Err(4), Err(4))
        );
        assert_eq!(chosen(Vec::new(), &[], true).map_err(|failure| failure.code()).err(), Some(4));
    }

    #[test]
    fn waiting_ends_when_review_is_closed() {
        assert_eq!(reached(ReviewState::Waiting, ReviewCondition::Open), None);
        assert_eq!(reached(ReviewState::Open, ReviewCondition::Open), Some(true));
        assert_eq!(reached(ReviewState::Open, ReviewCondition::Committed), None);
        assert_eq!(reached(ReviewState::Committed, ReviewCondition::Committed), Some(true));
        assert_eq!(reached(ReviewState::Discarded, ReviewCondition::Open), Some(false));
    }

    #[test]
    fn request_cut_short_keeps_known_state() {
        let address = Address::parse("http://127.0.0.1:1", false).unwrap();
        let client = Client { server: Server::new(address, None), output: Paper::new(false) };
        let silent = || -> Outcome { Err(Failure::Unreachable("timeout".into())) };
        let ended = |answers: bool| {
            let mut watch =
                Watcher::new(&client, TimeoutOption { timeout: Duration::from_millis(50) }, "");
            if answers {
                assert!(watch.ask(|_| Ok(())).unwrap().is_some());
            }
            std::thread::sleep(Duration::from_millis(60));
            assert!(watch.ask(|_| silent()).unwrap().is_none());
            watch.next().unwrap_err().to_string()
        };
        assert!(ended(true).starts_with("The condition is not met after"), "{}", ended(true));
        assert!(ended(false).starts_with("The state is unknown after"), "{}", ended(false));
    }
}
