//! Removes each guard and checks that the property it protects is violated.

use stateright::{Checker, HasDiscoveries, Model};

use super::actions::{
    APPLIED_IS_DONE, CONCURRENCY_GROUP, DESTROYED_ONCE, NOTHING_WRONG, ONE_ON_EACH_NODE, ONE_OPEN,
};
use super::liveness::explore;
use super::state::{Guard, Protocol};

/// Removes guards and prints the violation with the shortest path to it.
fn falls(protocol: Protocol, without: &[Guard], property: &'static str) {
    let protocol = Protocol { without: without.to_vec(), ..protocol };
    let name = protocol.name;
    let checker =
        protocol.checker().finish_when(HasDiscoveries::AnyOf([property].into())).spawn_bfs().join();
    let path = checker.discovery(property);
    let Some(path) = path else {
        panic!(
            "{name} without {without:?}: {property:?} still holds in {} states",
            checker.unique_state_count()
        );
    };
    let actions: Vec<String> =
        path.into_actions().iter().map(|action| format!("{action:?}")).collect();
    println!("without {without:?}: {}", actions.join(", "));
}

fn gets_stuck(protocol: Protocol, without: &[Guard]) {
    let protocol = Protocol { without: without.to_vec(), ..protocol };
    assert!(
        explore(&protocol).stuck.is_some(),
        "{} still settles without {without:?}",
        protocol.name
    );
}

#[test]
fn missing_step_token_starts_outdated_attempt() {
    falls(super::losses_among_others(), &[Guard::StepToken], NOTHING_WRONG);
}

#[test]
fn missing_node_token_starts_outdated_exclusive_attempt() {
    falls(super::neighbors(), &[Guard::NodeToken], NOTHING_WRONG);
}

#[test]
fn missing_end_of_older_attempts_overlaps_runs() {
    falls(super::losses(), &[Guard::EndOlder], ONE_ON_EACH_NODE);
}

#[test]
fn missing_bar_repeats_destructive_step() {
    falls(super::destructive(), &[Guard::Bar], DESTROYED_ONCE);
}

#[test]
fn missing_ledger_proof_repeats_destructive_step() {
    falls(super::destructive(), &[Guard::Proof], DESTROYED_ONCE);
}

#[test]
fn counted_retries_repeat_destructive_step() {
    falls(super::destructive_again(), &[Guard::Unrepeated], DESTROYED_ONCE);
}

#[test]
fn stale_reaper_view_repeats_destructive_step() {
    falls(super::destructive(), &[Guard::StillQueued], DESTROYED_ONCE);
}

#[test]
fn missing_ledger_generation_allows_older_generation() {
    falls(super::tampered(), &[Guard::LedgerGeneration], NOTHING_WRONG);
}

#[test]
fn missing_approval_check_runs_unapproved_target() {
    falls(super::tampered(), &[Guard::Approval], NOTHING_WRONG);
}

#[test]
fn missing_open_run_check_applies_late_result() {
    falls(super::losses(), &[Guard::OpenRun], ONE_OPEN);
}

#[test]
fn missing_run_generation_misapplies_old_result() {
    falls(super::commits(), &[Guard::RunGeneration], APPLIED_IS_DONE);
}

#[test]
fn missing_lease_check_starts_run_during_pause() {
    falls(super::people(), &[Guard::MayStart], NOTHING_WRONG);
}

#[test]
fn missing_claim_lock_exceeds_concurrency_limit() {
    falls(super::claimers(), &[Guard::ClaimLock], CONCURRENCY_GROUP);
}

#[test]
fn missing_node_admission_opens_two_exclusive_runs() {
    falls(super::neighbors(), &[Guard::Exclusive], ONE_OPEN);
}

#[test]
fn missing_reaper_leaves_lost_run_stuck() {
    gets_stuck(super::losses(), &[Guard::Reaper]);
}

#[test]
fn missing_lease_end_leaves_lost_run_stuck() {
    gets_stuck(super::losses(), &[Guard::LeaseEnds]);
}
