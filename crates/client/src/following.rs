//! `wait`, `converge` and `logs`: following what takes long, until it is so, can't become so, or the time is over.
//!
//! Invariants:
//! * nothing that was not there counts as reached: who waits for what is not there is told so, with another number than success;
//! * a log is continued by its bytes, so what is printed has no gap and nothing twice, however often the line is lost.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueEnum};
use engine::counting::many;
use engine::ids::{RunId, SubmissionId};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use api::console::{
    DeploymentSummary, LogFound, LogPart, ReviewState, RunState, RunView, StateCounts,
};
use api::overview::{DeploymentWay, TargetView, Way};
use api::waiting::WaitingPage;

use crate::address::{Query, part};
use crate::exit::{Failure, Outcome};
use crate::lists::Client;
use crate::names;
use crate::overseeing::waiting_page;
use crate::paper::{note, plain, steps};
use crate::server::{News, Server, understood};
use crate::terminal::Filter;
use crate::when::duration;

/// At the latest so often is looked again, whatever the stream tells.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How many times as long as an answer took nothing is asked again, whatever happens meanwhile.
const RESTS: u32 = 10;
/// And for how long at most.
const RESTS_MOST: Duration = Duration::from_secs(30);
/// How long a server may be away before following ends.
const AWAY: Duration = Duration::from_secs(120);
/// How long it may take to tell what is waited for, once the time is over.
const REASONS: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(crate) struct Wait {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Until reality is what a target says
    Target {
        /// The target's number
        #[arg(value_parser = names::target)]
        number: i64,
        #[command(flatten)]
        most: Most,
        /// For what
        #[arg(long = "for", value_name = "WHAT", value_enum, default_value_t = Converged::Converged)]
        _wanted: Converged,
    },
    /// Until a run has ended; well, or it is not so
    Run {
        /// The run's number
        id: RunId,
        #[command(flatten)]
        most: Most,
    },
    /// Until a review may be committed, or is
    Review {
        /// The review's number
        id: SubmissionId,
        /// For what
        #[arg(long = "for", value_name = "WHAT", value_enum, default_value_t = ReviewWish::Open)]
        wanted: ReviewWish,
        #[command(flatten)]
        most: Most,
    },
    /// Until reality is what a deployment says
    Deployment {
        /// The deployment's name
        name: String,
        #[command(flatten)]
        most: Most,
        /// For what
        #[arg(long = "for", value_name = "WHAT", value_enum, default_value_t = Converged::Converged)]
        _wanted: Converged,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Converged {
    /// Every step has applied what is meant
    Converged,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReviewWish {
    /// Its gate is open
    Open,
    /// It is a target
    Committed,
}

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Most {
    /// How long to wait: 90s, 30m, 2h; 0 without end
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Converge {
    /// Deployments
    #[arg(value_name = "DEPLOYMENT", required_unless_present_any = ["all", "target"])]
    deployments: Vec<String>,
    /// All of them
    #[arg(long, conflicts_with_all = ["deployments", "target"])]
    all: bool,
    /// What a target asked for, instead
    #[arg(long, value_name = "N", conflicts_with = "deployments", value_parser = names::target)]
    target: Option<i64>,
    #[command(flatten)]
    most: Most,
}

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// The run
    run: RunId,
    /// Go on until the run has ended
    #[arg(short, long)]
    follow: bool,
    /// From this byte on; -N: from N bytes before its end
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    since_byte: i64,
    /// Only the lines that have this, each with its number; 4 where none has
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["follow", "since_byte"])]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    find: Option<String>,
    /// In small letters and capitals alike
    #[arg(long, requires = "find")]
    any_case: bool,
    /// Keep control sequences, such as colours: a terminal obeys them
    #[arg(long, conflicts_with = "find")]
    raw: bool,
}

/// How a bar looks where steps are counted.
const COUNTED: &str = "{bar:30} {pos}/{len} {elapsed} {wide_msg}";
/// And where there is nothing to count, or not yet.
const UNCOUNTED: &str = "{elapsed} {wide_msg}";

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// A clock and a bar, while something is followed. The bar is on a terminal only, and on standard error.
struct Watch {
    /// The server; nobody is waited for there beyond the end.
    server: Server,
    end: Option<Instant>,
    most: Duration,
    bar: ProgressBar,
    news: News,
    /// Whether the server ever answered.
    reached: bool,
    away_since: Option<Instant>,
    /// Not before then it is asked again: what takes the server long is asked less often.
    rests_until: Option<Instant>,
    /// Why nobody knows how it is, while that is so.
    unknown: Option<Failure>,
}

impl Watch {
    fn new(client: &Client, most: Most, topics: &str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(style(UNCOUNTED));
        bar.enable_steady_tick(Duration::from_millis(250));
        let end =
            (!most.timeout.is_zero()).then(|| Instant::now().checked_add(most.timeout)).flatten();
        let (server, news) = (client.server.until(end), News::of(&client.server, topics));
        Self {
            server,
            end,
            most: most.timeout,
            bar,
            news,
            reached: false,
            away_since: None,
            rests_until: None,
            unknown: None,
        }
    }

    fn shows(&self, counts: &StateCounts) {
        let all = counts.blocked + counts.todo + counts.transition + counts.active + counts.error;
        // How far nothing is of nothing is not said.
        self.bar.set_style(style(if all > 0 { COUNTED } else { UNCOUNTED }));
        self.bar.set_length(all.unsigned_abs());
        self.bar.set_position(counts.active.unsigned_abs());
        self.bar.set_message(steps(&serde_json::to_value(counts).unwrap_or_default()));
    }

    /// Asks; None while the server is away, for a while, and once the time is over.
    ///
    /// A question that is cut short by the end of the time says nothing about a server that answered before: what is known of it stays.
    fn ask<T>(&mut self, ask: impl FnOnce(&Server) -> Outcome<T>) -> Outcome<Option<T>> {
        let asked = Instant::now();
        let answered = ask(&self.server);
        self.rests_until = Instant::now().checked_add((asked.elapsed() * RESTS).min(RESTS_MOST));
        let failure = match answered {
            Ok(answer) => {
                (self.reached, self.away_since, self.unknown) = (true, None, None);
                return Ok(Some(answer));
            }
            Err(failure) => failure,
        };
        if failure.passes() && self.reached && self.over() && asked.elapsed() < LOOK_AGAIN {
            return Ok(None);
        }
        let since = *self.away_since.get_or_insert_with(Instant::now);
        // Whoever was never reached is not there; whoever was may come back.
        let may_come_back = self.over() || (self.reached && since.elapsed() <= AWAY);
        if !(failure.passes() && may_come_back) {
            return Err(failure);
        }
        self.bar.set_message(plain(&failure.to_string()));
        self.unknown = Some(failure);
        Ok(None)
    }

    fn over(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// Until something happens; or the time is over.
    fn next(&mut self) -> Outcome {
        if self.over() {
            self.bar.finish_and_clear();
            let seconds = self.most.as_secs();
            return Err(Failure::TimedOut(match self.unknown.take() {
                Some(why) => {
                    format!(
                        "Nobody could say how it is after {seconds} seconds; --timeout waits longer.\n{why}"
                    )
                }
                None => format!("It is not so after {seconds} seconds; --timeout waits longer."),
            }));
        }
        let left = self.end.map_or(LOOK_AGAIN, |end| end.saturating_duration_since(Instant::now()));
        self.news.wait(left.min(LOOK_AGAIN))?;
        let rest = self
            .rests_until
            .map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
        std::thread::sleep(
            rest.min(self.end.map_or(rest, |end| end.saturating_duration_since(Instant::now()))),
        );
        Ok(())
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

pub(crate) fn wait(client: &Client, wait: &Wait) -> Outcome {
    match &wait.what {
        What::Target { number, most, .. } => target(client, *number, *most),
        What::Run { id, most } => run(client, *id, *most),
        What::Review { id, wanted, most } => review(client, *id, *wanted, *most),
        What::Deployment { name, most, .. } => {
            deployments(client, std::slice::from_ref(name), false, *most)
        }
    }
}

pub(crate) fn converge(client: &Client, converge: &Converge) -> Outcome {
    match converge.target {
        Some(number) => target(client, number, converge.most),
        None => deployments(client, &converge.deployments, converge.all, converge.most),
    }
}

fn target(client: &Client, number: i64, most: Most) -> Outcome {
    let paper = client.paper;
    let mut watch = Watch::new(client, most, "");
    let mut deployment = None;
    loop {
        let value = watch.ask(|server| server.get(&format!("/targets/{number}")))?;
        if let Some(value) = value {
            let view: TargetView = understood(&value, "no target")?;
            watch.shows(&view.steps);
            deployment = view.target.deployment;
            let nothing = view.steps == StateCounts::default();
            match view.way {
                Way::Converged if nothing => {
                    watch.end();
                    let why = format!(
                        "target {number} has no step of its own: it asked for none, or later targets asked for all of them anew"
                    );
                    return Err(Failure::Nothing(why));
                }
                Way::Converged => {
                    watch.end();
                    return paper.either(
                        &value,
                        &format!(
                            "Reality is what target {number} says: {}.",
                            many(view.applied, "step")
                        ),
                    );
                }
                Way::Stuck => {
                    watch.end();
                    paper.either(&value, &stuck(deployment.as_deref(), client)?)?;
                    return Err(Failure::NotSo(format!(
                        "Target {number} is stuck: what is left waits for somebody."
                    )));
                }
                Way::UnderWay => {}
            }
        }
        watch.next().map_err(|failure| with_reasons(failure, deployment.as_deref(), client))?;
    }
}

/// What keeps steps from going on, in a deployment or anywhere.
fn stuck(deployment: Option<&str>, client: &Client) -> Outcome<String> {
    let query = Query::default().with("deployment", deployment.unwrap_or_default());
    let server = client.server.until(Instant::now().checked_add(REASONS));
    let page: WaitingPage = server.read(&query.behind("/waiting"))?;
    Ok(waiting_page(&page, client.paper).trim_end().to_owned())
}

/// When the time is over it helps to know what it was waited for.
fn with_reasons(failure: Failure, deployment: Option<&str>, client: &Client) -> Failure {
    match (failure, stuck(deployment, client)) {
        (Failure::TimedOut(text), Ok(reasons)) if !reasons.is_empty() => {
            Failure::TimedOut(format!("{text}\n{reasons}"))
        }
        (failure, _) => failure,
    }
}

fn run(client: &Client, id: RunId, most: Most) -> Outcome {
    let paper = client.paper;
    let mut watch = Watch::new(client, most, &format!("run:{id}"));
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
                paper.either(
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
    understood(value, "no run")
}

fn word(state: RunState) -> &'static str {
    match state {
        RunState::Queued => "is queued",
        RunState::Running => "runs",
        RunState::Succeeded => "succeeded",
        RunState::Failed => "failed",
        RunState::Lost => "was lost with its worker",
        RunState::Cancelled => "was cancelled",
        RunState::Unstarted => "was handed back before it started",
    }
}

/// How a run's end counts.
fn ended(view: &RunView) -> Outcome {
    if view.run.state == RunState::Succeeded {
        return Ok(());
    }
    let why =
        view.run.error.as_deref().map(|error| format!(": {}", plain(error))).unwrap_or_default();
    Err(Failure::NotSo(format!("Run {} {}{why}", view.run.id, word(view.run.state))))
}

fn review(client: &Client, id: SubmissionId, wanted: ReviewWish, most: Most) -> Outcome {
    let paper = client.paper;
    let mut watch = Watch::new(client, most, &format!("submission:{id},reviews,targets"));
    loop {
        if let Some(value) = watch.ask(|server| server.get(&format!("/submissions/{id}")))? {
            let state: ReviewState = understood(&value["state"], "no review")?;
            let shown = crate::paper::said(&value["state"]);
            watch.bar.set_message(shown.clone());
            match reached(state, wanted) {
                Some(true) => {
                    watch.end();
                    return paper.either(&value, &format!("Review {id} is {shown}."));
                }
                Some(false) => {
                    watch.end();
                    return Err(Failure::NotSo(format!(
                        "Review {id} is {shown}: it won't be. gantry review show {id}"
                    )));
                }
                None => {}
            }
        }
        watch.next()?;
    }
}

/// Whether a review is what is waited for; None: it may become that.
fn reached(state: ReviewState, wanted: ReviewWish) -> Option<bool> {
    match (state, wanted) {
        (ReviewState::Committed, _) | (ReviewState::Open, ReviewWish::Open) => Some(true),
        (ReviewState::Replaced | ReviewState::SentBack | ReviewState::Discarded, _) => Some(false),
        _ => None,
    }
}

/// Whether a deployment has a step at all.
fn is_empty(counts: &StateCounts) -> bool {
    *counts == StateCounts::default()
}

/// How far those are of which the list does not tell it by itself: one whose steps are all active has nothing that could be stuck. What is
/// stuck is the server's to say, by one rule for targets and deployments.
fn ways(server: &Server, these: &[DeploymentSummary]) -> Outcome<Vec<DeploymentWay>> {
    let way = |one: &DeploymentSummary| match one.steps.active {
        active if (StateCounts { active, ..StateCounts::default() }) == one.steps => {
            Ok(DeploymentWay {
                deployment: one.name.clone(),
                way: Way::Converged,
                steps: one.steps,
            })
        }
        _ => server.read(&format!("/deployments/{}/way", part(one.name.as_str()))),
    };
    these.iter().map(way).collect()
}

/// Those that were named, all of them; else the first that is not there or has nothing to converge.
fn chosen(
    all: Vec<DeploymentSummary>,
    names: &[String],
    every: bool,
) -> Outcome<Vec<DeploymentSummary>> {
    if every {
        let some: Vec<DeploymentSummary> =
            all.into_iter().filter(|one| !is_empty(&one.steps)).collect();
        return match some.is_empty() {
            true => Err(Failure::Nothing(
                "no deployment has a noderole: there is nothing that could converge".into(),
            )),
            false => Ok(some),
        };
    }
    let known: BTreeMap<&str, &DeploymentSummary> =
        all.iter().map(|one| (one.name.as_str(), one)).collect();
    let one = |name: &String| match known.get(name.as_str()) {
        None => {
            let near = names::near(name, known.keys().copied());
            Err(Failure::Nothing(format!(
                "there is no deployment {name}{near}\n`gantry deployment list` has them."
            )))
        }
        Some(found) if is_empty(&found.steps) => Err(Failure::Nothing(format!(
            "{name} has no noderole: there is nothing that could converge. Was the change committed? gantry review list --deployment {name}"
        ))),
        Some(found) => Ok((*found).clone()),
    };
    let found: Vec<DeploymentSummary> = names.iter().map(one).collect::<Outcome<_>>()?;
    match found.is_empty() {
        true => Err(Failure::Nothing("no deployment is named".into())),
        false => Ok(found),
    }
}

fn deployments(client: &Client, names: &[String], every: bool, most: Most) -> Outcome {
    let mut watch = Watch::new(client, most, "");
    loop {
        let all = watch.ask(|server| names::deployments(server, names, every))?;
        let ways = match all {
            None => None,
            Some(all) => {
                let these = chosen(all, names, every).inspect_err(|_| watch.end())?;
                watch.ask(|server| ways(server, &these))?
            }
        };
        if let Some(ways) = ways {
            let mut counts = StateCounts::default();
            for one in &ways {
                add(&mut counts, &one.steps);
            }
            watch.shows(&counts);
            if ways.iter().all(|one| one.way != Way::UnderWay) {
                watch.end();
                return settled(client, &ways);
            }
        }
        let one = if let [name] = names { Some(name.as_str()) } else { None };
        watch.next().map_err(|failure| with_reasons(failure, one, client))?;
    }
}

fn add(all: &mut StateCounts, more: &StateCounts) {
    all.blocked += more.blocked;
    all.todo += more.todo;
    all.transition += more.transition;
    all.active += more.active;
    all.error += more.error;
}

/// Nothing more happens by itself: what came of it.
fn settled(client: &Client, these: &[DeploymentWay]) -> Outcome {
    let paper = client.paper;
    let with = |way: Way| these.iter().filter(move |one| one.way == way);
    let stuck_in: Vec<&str> = with(Way::Stuck).map(|one| one.deployment.as_str()).collect();
    if paper.json {
        let told = |one: &DeploymentWay| json!({"deployment": one.deployment, "steps": one.steps, "converged": one.way == Way::Converged});
        paper.json(&Value::Array(these.iter().map(told).collect()))?;
    } else {
        for one in with(Way::Converged) {
            paper.line(&format!(
                "{}: reality matches, {}.",
                one.deployment,
                many(one.steps.active, "step")
            ))?;
        }
        for name in &stuck_in {
            paper.line(&format!("{name}: stuck."))?;
            paper.line(&stuck(Some(name), client)?)?;
        }
    }
    match stuck_in.as_slice() {
        [] => Ok(()),
        names => Err(Failure::NotSo(format!(
            "{} can't go on by itself: what is left waits for somebody. gantry waiting says for whom; after a failed run: gantry noderole retry, or \
             change it.",
            names.join(", ")
        ))),
    }
}

/// The lines of a log that have a text, page by page.
fn find(client: &Client, run: RunId, text: &str, any_case: bool) -> Outcome {
    let Client { server, paper } = client;
    let mut query = Query::default().with("text", text).with("any_case", any_case);
    let mut found = 0;
    loop {
        let page: LogFound =
            server.read(&query.behind(&format!("/runs/{}/log/search", part(&run.to_string()))))?;
        for hit in &page.hits {
            found += 1;
            match paper.json {
                true => paper.json_line(&json!(hit))?,
                false => paper.line(&format!("{}: {}", hit.line, plain(&hit.text)))?,
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
    Err(Failure::Nothing(format!("no line of run {run} has {text:?}{so_far}")))
}

pub(crate) fn logs(client: &Client, logs: &Logs) -> Outcome {
    if let Some(text) = &logs.find {
        return find(client, logs.run, text, logs.any_case);
    }
    let Client { server, paper } = client;
    let mut news = logs.follow.then(|| News::while_read(server, &format!("run:{}", logs.run)));
    // Of the whole log: a sequence may begin in one piece and end in the next.
    let mut filter = Filter::default();
    let (mut offset, mut reached, mut away) = (logs.since_byte, false, None::<Instant>);
    loop {
        let query = Query::default().with("offset", Some(offset));
        let log: LogPart = match server
            .read(&query.behind(&format!("/runs/{}/log", part(&logs.run.to_string()))))
        {
            Ok(log) => log,
            Err(why) if why.passes() && news.is_some() && reached => {
                let since = *away.get_or_insert_with(|| {
                    note("The line is lost; going on from the same byte once the server answers.");
                    Instant::now()
                });
                if since.elapsed() > AWAY {
                    return Err(Failure::Unreachable(format!(
                        "{why}\nGo on from where it stopped: --since-byte {offset}"
                    )));
                }
                std::thread::sleep(Duration::from_secs(2));
                continue;
            }
            Err(failure) => return Err(failure),
        };
        (reached, away) = (true, None);
        for piece in &log.pieces {
            match (paper.json, logs.raw) {
                (true, _) => paper.json_line(&serde_json::to_value(piece).unwrap_or_default())?,
                (false, true) => paper.raw(&piece.text)?,
                (false, false) => paper.raw(&filter.text(&piece.text))?,
            }
        }
        let grew = log.next > offset;
        offset = log.next;
        match &mut news {
            _ if log.complete => {
                return ended(&run_view(&server.get(&format!("/runs/{}", logs.run))?)?);
            }
            _ if grew => {}
            None => return Ok(()),
            Some(news) => news.wait(LOOK_AGAIN)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;
    use crate::paper::Paper;

    fn counts(blocked: i64, todo: i64, transition: i64, active: i64, error: i64) -> StateCounts {
        StateCounts { blocked, todo, transition, active, error }
    }

    fn deployment(name: &str, steps: StateCounts) -> DeploymentSummary {
        serde_json::from_value(
            json!({"id": uuid::Uuid::nil(), "name": name, "depth": 1, "nodes": 0, "steps": steps, "proposal": null,
            "submission": null, "target": 1}),
        )
        .unwrap()
    }

    #[test]
    fn a_selection_of_nothing_ends_with_4() {
        let all = || {
            vec![
                deployment("web", counts(0, 0, 0, 1, 0)),
                deployment("edge", counts(0, 0, 0, 0, 0)),
            ]
        };
        let names =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let code = |named: &[&str], every| {
            chosen(all(), &names(named), every)
                .map_err(|failure| failure.code())
                .map(|all| all.len())
        };
        assert_eq!(code(&["web"], false), Ok(1));
        assert_eq!(code(&[], true), Ok(1), "what has nothing is left out of all");
        assert_eq!(
            (code(&["wob"], false), code(&["web", "edge"], false), code(&[], false)),
            (Err(4), Err(4), Err(4))
        );
        assert_eq!(chosen(Vec::new(), &[], true).map_err(|failure| failure.code()).err(), Some(4));
    }

    #[test]
    fn a_review_is_waited_for_until_it_can_not_be_any_more() {
        assert_eq!(reached(ReviewState::Waiting, ReviewWish::Open), None);
        assert_eq!(reached(ReviewState::Open, ReviewWish::Open), Some(true));
        assert_eq!(reached(ReviewState::Open, ReviewWish::Committed), None);
        assert_eq!(reached(ReviewState::Committed, ReviewWish::Committed), Some(true));
        assert_eq!(reached(ReviewState::Discarded, ReviewWish::Open), Some(false));
    }

    #[test]
    fn a_question_cut_short_by_the_end_leaves_what_is_known() {
        let address = Address::parse("http://127.0.0.1:1", false).unwrap();
        let client = Client { server: Server::new(address, None), paper: Paper::new(false) };
        let silent =
            || -> Outcome { Err(Failure::Unreachable("it says nothing for too long".into())) };
        let ended = |answers: bool| {
            let mut watch = Watch::new(&client, Most { timeout: Duration::from_millis(50) }, "");
            if answers {
                assert!(watch.ask(|_| Ok(())).unwrap().is_some());
            }
            std::thread::sleep(Duration::from_millis(60));
            assert!(watch.ask(|_| silent()).unwrap().is_none());
            watch.next().unwrap_err().to_string()
        };
        assert!(ended(true).starts_with("It is not so after"), "{}", ended(true));
        assert!(ended(false).starts_with("Nobody could say how it is"), "{}", ended(false));
    }
}
