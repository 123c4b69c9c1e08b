//! Removes each guard and checks that the property it protects is violated.

use stateright::{Checker, HasDiscoveries, Model};

use super::actions::{
    APPLIED_IS_DONE, DESTROYED_ONCE, LANE, NOTHING_WRONG, ONE_ON_EACH_NODE, ONE_OPEN,
};
use super::liveness::explore;
use super::state::{Guard, Protocol};

/// Removes guards and prints the violation with the shortest path to it.
fn falls(protocol: Protocol, without: &[Guard], property: &'static str) {
    let protocol = Protocol { without: without.to_vec(), ..protocol };
    let name = protocol.name;
    let checker =
        protocol.checker().finish_when(HasDiscoveries::AnyOf([property].into())).spawn_bfs().join();
    let way = checker.discovery(property);
    let Some(way) = way else {
        panic!(
            "{name} without {without:?}: {property:?} still holds in {} states",
            checker.unique_state_count()
        );
    };
    let actions: Vec<String> =
        way.into_actions().iter().map(|action| format!("{action:?}")).collect();
    println!("without {without:?}: {}", actions.join(", "));
}

fn gets_stuck(protocol: Protocol, without: &[Guard]) {
    let protocol = Protocol { without: without.to_vec(), ..protocol };
    assert!(
        explore(&protocol).stuck.is_some(),
        "{} without {without:?} still settles",
        protocol.name
    );
}

#[test]
fn without_the_steps_token_an_outdated_attempt_starts() {
    falls(super::losses_beside_others(), &[Guard::StepToken], NOTHING_WRONG);
}

#[test]
fn without_the_nodes_token_an_outdated_exclusive_attempt_starts() {
    falls(super::neighbours(), &[Guard::NodeToken], NOTHING_WRONG);
}

#[test]
fn without_ending_older_attempts_two_run_at_once() {
    falls(super::losses(), &[Guard::EndOlder], ONE_ON_EACH_NODE);
}

#[test]
fn without_the_bar_a_destructive_step_runs_twice() {
    falls(super::destructive(), &[Guard::Bar], DESTROYED_ONCE);
}

#[test]
fn without_the_ledgers_proof_a_destructive_step_runs_twice() {
    falls(super::destructive(), &[Guard::Proof], DESTROYED_ONCE);
}

#[test]
fn a_destructive_step_whose_retries_count_runs_twice() {
    falls(super::destructive_again(), &[Guard::Unrepeated], DESTROYED_ONCE);
}

#[test]
fn a_janitor_that_trusts_an_old_look_repeats_a_destructive_step() {
    falls(super::destructive(), &[Guard::StillQueued], DESTROYED_ONCE);
}

#[test]
fn without_the_ledgers_generation_a_node_goes_back() {
    falls(super::tampered(), &[Guard::LedgerGeneration], NOTHING_WRONG);
}

#[test]
fn without_the_check_of_the_approval_what_nobody_approved_runs() {
    falls(super::tampered(), &[Guard::Approval], NOTHING_WRONG);
}

#[test]
fn without_the_check_of_the_open_run_a_late_result_is_applied() {
    falls(super::losses(), &[Guard::OpenRun], ONE_OPEN);
}

#[test]
fn without_the_runs_generation_an_old_result_counts_for_a_new_one() {
    falls(super::commits(), &[Guard::RunGeneration], APPLIED_IS_DONE);
}

#[test]
fn without_the_look_at_the_lease_a_run_starts_in_a_pause() {
    falls(super::people(), &[Guard::MayStart], NOTHING_WRONG);
}

#[test]
fn without_the_claims_lock_a_lane_overflows() {
    falls(super::claimers(), &[Guard::ClaimLock], LANE);
}

#[test]
fn without_admission_by_node_two_exclusive_runs_are_open() {
    falls(super::neighbours(), &[Guard::Exclusive], ONE_OPEN);
}

#[test]
fn without_the_janitor_a_lost_run_is_stuck() {
    gets_stuck(super::losses(), &[Guard::Janitor]);
}

#[test]
fn without_an_end_of_leases_a_lost_run_is_stuck() {
    gets_stuck(super::losses(), &[Guard::LeaseEnds]);
}
