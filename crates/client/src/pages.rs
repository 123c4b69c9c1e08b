//! What is much by itself, for people: the overview, a noderole, a run. A few lines each, and where to look for the rest.
//!
//! A program gets what the server says. An answer that this program does not know (of a newer server) is outlined, so nobody is left with
//! less than there is.

use std::borrow::Borrow;

use serde::Deserialize as _;
use serde_json::Value;

use api::console::{DataLayer, NoderoleRef, NoderoleView, RunState, RunSummary, RunView, TargetSummary};
use api::overview::Overview;
use api::waiting::WaitingPage;

use crate::overseeing::waiting_page;
use crate::paper::{Paper, Table, facts, moment_of, outline, plain, steps};

/// As many of a list are told as are read at a glance.
const FIRST: usize = 10;

pub(crate) fn overview(answer: &Value, paper: Paper) -> String {
    let Ok(told) = Overview::deserialize(answer) else { return outline(answer) };
    let starts = if told.enabled { "steps start" } else { "no step starts: execution is off" };
    let mut text = format!("{}, {starts}\n", paper.heading(&format!("Target {}", told.target)));
    let queued = told.queue.oldest.map(|at| format!(" since {}", moment_of(at.0))).unwrap_or_default();
    text += &facts([
        (
            "deployments",
            counted(
                told.deployments.all,
                [(told.deployments.held, "held"), (told.deployments.proposed, "with an open proposal")],
            ),
        ),
        ("nodes", counted(told.nodes.all, [(told.nodes.dead, "dead"), (told.nodes.unavailable, "out of service")])),
        ("steps", steps(&answer["steps"])),
        ("runs", format!("{} running, {} queued{queued}", told.queue.running, told.queue.queued)),
        ("workers", format!("{} alive, {} runs at once", told.workers.alive, told.workers.capacity)),
        ("reviews", format!("{} open, {} for you", told.open_reviews, told.reviews)),
    ]);
    if !told.commits.is_empty() {
        text += &format!("\n{}\n{}", paper.heading("Last commits"), commits(&told.commits).text(paper));
    }
    if !told.stuck.is_empty() {
        text += &format!("\n{}", waiting_page(&WaitingPage { groups: told.stuck, next: None }, paper));
    }
    text
}

/// `30, 2 dead, 1 out of service`; what there is none of is not said.
fn counted<const N: usize>(all: i64, some: [(i64, &str); N]) -> String {
    let some = some.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!(", {count} {what}"));
    format!("{all}{}", some.collect::<String>())
}

fn commits(targets: &[TargetSummary]) -> Table {
    let mut table = Table::new(["TARGET", "DEPLOYMENT", "TITLE", "BY", "AT"]);
    for target in targets {
        let by = target.by.clone().unwrap_or_else(|| "gantry".to_owned());
        let deployment = target.deployment.clone().unwrap_or_default();
        table.row([target.number.to_string(), deployment, target.title.clone(), by, moment_of(target.at.0)]);
    }
    table
}

pub(crate) fn noderole(answer: &Value, paper: Paper) -> String {
    let Ok(told) = NoderoleView::deserialize(answer) else { return outline(answer) };
    let applied = told.applied.map_or_else(|| "none yet".to_owned(), |target| target.to_string());
    let mut text = format!(
        "{} {}, since {}\n",
        paper.heading(&format!("{} on {}:", told.role, plain(&told.fqdn))),
        told.state.word(),
        moment_of(told.since.0)
    );
    text += &facts([
        ("deployment", told.deployment.to_string()),
        ("role", told.description.clone()),
        ("why", told.why.join(" ")),
        ("error", told.error.clone().unwrap_or_default()),
        ("asked by target", told.generation.to_string()),
        ("applied target", applied),
        ("waits for", steps_of(&told.parents)),
        ("wait for it", steps_of(&told.children)),
        ("retry", leave(&told.may_retry)),
        ("id", told.id.to_string()),
    ]);
    let layers: Vec<&DataLayer> =
        told.layers.iter().filter(|layer| layer.value.as_object().is_none_or(|data| !data.is_empty())).collect();
    if !layers.is_empty() {
        let mut table = Table::new(["DATA OF", "SAYS"]);
        for layer in layers {
            table.row([layer.source.clone(), layer.value.to_string()]);
        }
        text += &format!("\n{}", table.text(paper));
    }
    if !told.runs.is_empty() {
        text += &format!("\n{}", attempts(&told.runs).text(paper));
    }
    text + &format!("Every value and where it comes from: gantry noderole data {}\n", told.id)
}

/// `proxy on n1 ACTIVE, app on n2 ERROR and 3 more`.
fn steps_of(all: &[impl Borrow<NoderoleRef>]) -> String {
    let one = |step: &NoderoleRef| format!("{} on {} {}", step.role, step.fqdn, step.state.word());
    let first: Vec<String> = all.iter().take(FIRST).map(|step| one(step.borrow())).collect();
    let more = all.len().saturating_sub(FIRST);
    first.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

fn leave(may: &Result<(), String>) -> String {
    match may {
        Ok(()) => "possible".to_owned(),
        Err(why) => format!("not now: {why}"),
    }
}

pub(crate) fn run(answer: &Value, paper: Paper) -> String {
    let Ok(told) = RunView::deserialize(answer) else { return outline(answer) };
    let run = &told.run;
    let mut text = format!(
        "{} {} of {} on {}\n",
        paper.heading(&format!("Run {}:", run.id)),
        word(run.state),
        run.role,
        plain(&run.fqdn)
    );
    let at = |at: Option<api::At>| at.map(|at| moment_of(at.0)).unwrap_or_default();
    text += &facts([
        ("error", run.error.clone().unwrap_or_default()),
        ("deployment", run.deployment.to_string()),
        ("target", run.target.to_string()),
        ("review", told.submission.map(|id| id.to_string()).unwrap_or_default()),
        ("because", run.cause.clone().unwrap_or_default()),
        ("worker", run.worker.clone().unwrap_or_default()),
        ("queued", moment_of(run.queued.0)),
        ("started", at(run.started)),
        ("ended", at(run.ended)),
        ("result", result(&told)),
        ("cancel", leave(&told.may_cancel)),
        ("noderole", run.noderole.to_string()),
    ]);
    if told.attempts.len() > 1 {
        text += &format!("\n{}", attempts(&told.attempts).text(paper));
    }
    let id = run.id;
    text + &format!("What it was told: gantry run data {id}\nIts log of {} bytes: gantry logs {id}\n", told.log_bytes)
}

fn result(told: &RunView) -> String {
    match &told.result {
        Some(result) => result.to_string(),
        None if told.result_gone => "not kept any more".to_owned(),
        None => String::new(),
    }
}

/// A run's state, as lists and filters write it.
fn word(state: RunState) -> &'static str {
    match state {
        RunState::Queued => "queued",
        RunState::Running => "running",
        RunState::Succeeded => "succeeded",
        RunState::Failed => "failed",
        RunState::Lost => "lost",
        RunState::Cancelled => "cancelled",
        RunState::Unstarted => "unstarted",
    }
}

fn attempts(runs: &[RunSummary]) -> Table {
    let mut table = Table::new(["RUN", "STATE", "TARGET", "QUEUED", "ENDED", "ERROR"]);
    for run in runs.iter().take(FIRST) {
        table.row([
            run.id.to_string(),
            word(run.state).to_owned(),
            run.target.to_string(),
            moment_of(run.queued.0),
            run.ended.map(|at| moment_of(at.0)).unwrap_or_default(),
            run.error.clone().unwrap_or_default(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn summary(id: i64, state: &str) -> Value {
        json!({"id": id, "noderole": uuid::Uuid::nil(), "role": "app", "fqdn": "n1.demo", "deployment": "web", "state": state, "cause": null,
            "target": 3, "worker": "w1", "queued": 1_790_000_000_000_i64, "started": null, "ended": null, "error": "it\nbroke"})
    }

    #[test]
    fn a_run_is_told_in_aligned_lines() {
        let view = json!({"run": summary(7, "failed"), "input": {"secret": "x"}, "provenance": [], "values": 0, "result": {"a": 1},
            "result_gone": false, "wall": null, "attempts": [summary(7, "failed"), summary(6, "lost")], "submission": null,
            "may_cancel": {"Err": "it has ended"}, "log_bytes": 12, "cursor": 1});
        let text = run(&view, Paper::new(false));
        for line in [
            "Run 7: failed of app on n1.demo\n",
            "  error       it broke\n",
            "  deployment  web\n",
            "  result      {\"a\":1}\n",
            "  cancel      not now: it has ended\n",
            "\n6    lost    3 ",
            "gantry logs 7\n",
        ] {
            assert!(text.contains(line), "{line:?}: {text}");
        }
        assert!(!text.contains("started") && !text.contains("secret"), "{text}");
        assert_eq!(run(&json!({"of": "another"}), Paper::new(false)), "of: another\n", "nothing is lost");
    }

    #[test]
    fn an_overview_counts_and_says_what_waits() {
        let view = json!({"target": 3, "enabled": false, "deployments": {"all": 2, "held": 1, "proposed": 0},
            "nodes": {"all": 30, "dead": 2, "unavailable": 0},
            "steps": {"blocked": 0, "todo": 0, "transition": 0, "active": 5, "error": 1}, "stuck": [],
            "reviews": {"count": 1, "more": true}, "open_reviews": 2, "commits": [], "queue": {"queued": 0, "running": 4, "oldest": null},
            "workers": {"alive": 1, "capacity": 8}, "hours": [], "first_steps": null});
        let text = overview(&view, Paper::new(false));
        for line in [
            "Target 3, no step starts: execution is off\n",
            "  deployments  2, 1 held\n",
            "  nodes        30, 2 dead\n",
            "  steps        1 ERROR, 5 ACTIVE\n",
            "  runs         4 running, 0 queued\n",
            "  reviews      2 open, 1+ for you\n",
        ] {
            assert!(text.contains(line), "{line:?}: {text}");
        }
    }
}
