//! Model check of claim, lease, finish, reaper and the node's wrapper.
//!
//! Tests on the real system try some orders of events; this one tries all of them in small worlds.
//! Workers, claims, the reaper, nodes, people and faults each perform one action at a time in
//! every possible order. The properties must hold after each action. The tool is stateright, an
//! explicit-state model checker for Rust. The model calls [`engine::anneal`] for state transitions
//! and admission, so it does not duplicate those rules.
//!
//! The model does duplicate, action by action, the rules in SQL and shell: `store::runs` (claim,
//! lease, finish, reaper), `worker` (runner, backend, heartbeat, annealer) and
//! `worker/src/node/wrapper/wrapper.sh`. docs/model-check.md lists what is omitted and what was
//! found.
//!
//! A check that finds nothing may be ineffective. Therefore each guard of the protocol is removed
//! once, and the check must then find the violation ([`mutations`]).

mod actions;
mod database;
mod liveness;
mod mutations;
mod node;
mod state;

use stateright::{Checker, Model};

use liveness::explore;
use state::{Faults, Protocol, StepSpec};

const DOCUMENT: &str = include_str!("../../../../docs/model-check.md");

const PLAIN: StepSpec =
    StepSpec { node: 0, parent: None, destructive: false, exclusive: true, retries: 1 };
const DESTRUCTIVE: StepSpec = StepSpec { destructive: true, retries: 0, ..PLAIN };
/// Its role sets a retry, which has no effect on a destructive step.
const DESTRUCTIVE_AGAIN: StepSpec = StepSpec { retries: 1, ..DESTRUCTIVE };

fn protocol(name: &'static str, steps: Vec<StepSpec>, faults: Faults) -> Protocol {
    let nodes = steps.iter().map(|step| step.node + 1).max().unwrap_or(0);
    Protocol {
        name,
        steps,
        nodes,
        workers: 2,
        concurrency_group: None,
        faults,
        without: Vec::new(),
    }
}

/// The worlds, with the faults that may occur in each.
fn losses() -> Protocol {
    protocol(
        "one step, two workers, losses",
        vec![PLAIN],
        Faults { stalls: 2, crashes: 1, cuts: 1, ..Faults::default() },
    )
}

fn losses_among_others() -> Protocol {
    let step = StepSpec { exclusive: false, ..PLAIN };
    protocol(
        "one step that shares its node, losses",
        vec![step],
        Faults { stalls: 2, cuts: 1, ..Faults::default() },
    )
}

fn neighbors() -> Protocol {
    let faults = Faults { stalls: 1, crashes: 1, ..Faults::default() };
    protocol("two exclusive steps of one node", vec![PLAIN, PLAIN], faults)
}

fn destructive() -> Protocol {
    let faults = Faults { stalls: 2, crashes: 1, cuts: 1, retries: 1, ..Faults::default() };
    protocol("a destructive step", vec![DESTRUCTIVE], faults)
}

fn destructive_on_a_bad_node() -> Protocol {
    let faults = Faults { stalls: 1, failures: 1, deaths: 1, reboots: 1, ..Faults::default() };
    protocol("a destructive step on a node that dies", vec![DESTRUCTIVE], faults)
}

fn destructive_again() -> Protocol {
    let faults =
        Faults { stalls: 1, cuts: 2, failures: 1, reboots: 1, retries: 1, ..Faults::default() };
    protocol("a destructive step with a retry", vec![DESTRUCTIVE_AGAIN], faults)
}

fn commits() -> Protocol {
    let faults = Faults { stalls: 1, commits: 2, ..Faults::default() };
    protocol("commits over a running step", vec![PLAIN], faults)
}

fn chain() -> Protocol {
    let child = StepSpec { parent: Some(0), ..PLAIN };
    let faults = Faults { stalls: 1, commits: 1, failures: 1, ..Faults::default() };
    protocol("a step and its child", vec![PLAIN, child], faults)
}

fn people() -> Protocol {
    let faults =
        Faults { cancels: 1, pauses: 1, retries: 1, stalls: 1, cuts: 1, ..Faults::default() };
    protocol("cancel, pause, resume, retry", vec![PLAIN], faults)
}

fn bad_node() -> Protocol {
    let faults = Faults { deaths: 1, reboots: 1, stalls: 1, ..Faults::default() };
    protocol("a node that dies, or is only considered dead", vec![PLAIN], faults)
}

fn claimers() -> Protocol {
    let steps = vec![PLAIN, StepSpec { node: 1, ..PLAIN }];
    let faults = Faults { stalls: 1, ..Faults::default() };
    Protocol { concurrency_group: Some(1), ..protocol("two nodes, a group of one", steps, faults) }
}

fn tampered() -> Protocol {
    let faults = Faults { commits: 1, unapproved: 1, backwards: 1, stalls: 1, ..Faults::default() };
    protocol("rows written past the guards", vec![PLAIN], faults)
}

/// Checks all states of a world.
fn check(protocol: Protocol) {
    let name = protocol.name;
    let checker = protocol.clone().checker().spawn_bfs().join();
    checker.assert_properties();
    let graph = explore(&protocol);
    println!("{name}: {} states, {} settled", graph.states, graph.settled);
    let reported = format!("| {name} | {} |", graph.states);
    assert!(
        DOCUMENT.contains(&reported),
        "docs/model-check.md is outdated: it must contain {reported}"
    );
    assert_eq!(
        checker.unique_state_count(),
        graph.states,
        "both explorations must count the same states"
    );
    if let Some(stuck) = graph.stuck {
        panic!("{name}: no path leads to a settled state after\n{stuck}");
    }
    assert!(
        graph.settled > 0 && graph.late + graph.refused > 0,
        "{name}: the model must have settled states and late or refused changes"
    );
}

#[test]
fn single_step_with_losses_is_safe() {
    check(losses());
}

#[test]
fn shared_node_step_is_safe() {
    check(losses_among_others());
}

#[test]
fn two_exclusive_steps_are_safe() {
    check(neighbors());
}

#[test]
fn destructive_step_is_safe() {
    check(destructive());
}

#[test]
fn destructive_step_on_unreliable_node_is_safe() {
    check(destructive_on_a_bad_node());
}

#[test]
fn destructive_step_with_retry_is_safe() {
    check(destructive_again());
}

#[test]
fn commit_over_running_step_is_safe() {
    check(commits());
}

#[test]
fn step_with_child_is_safe() {
    check(chain());
}

#[test]
fn user_actions_are_safe() {
    check(people());
}

#[test]
fn dying_node_is_safe() {
    check(bad_node());
}

#[test]
fn concurrency_limit_of_one_is_safe() {
    check(claimers());
}

#[test]
fn tampered_rows_are_safe() {
    check(tampered());
}
