//! Liveness on the whole graph of states: no state is stuck.
//!
//! stateright's own `eventually` examines paths that end, and treats a cycle like a join of paths.
//! With leases that end and are renewed, it would miss loops that never settle. This module checks
//! instead that every reachable state, after any faults, has a path of progress actions to a
//! settled state. In a finite graph, the system thus settles after the last fault if every action
//! that stays possible is eventually taken.

use std::collections::HashMap;

use stateright::Model;

use super::state::{Protocol, State};

/// The result of the exploration.
pub struct Graph {
    pub states: usize,
    /// The path to a state from which no path leads to a settled one.
    pub stuck: Option<String>,
    pub settled: usize,
    pub late: usize,
    pub refused: usize,
}

/// Explores all states.
pub fn explore(protocol: &Protocol) -> Graph {
    let mut numbers: HashMap<State, usize> = HashMap::new();
    let mut states: Vec<State> = Vec::new();
    let mut from = Vec::new();
    let mut before: Vec<Vec<usize>> = Vec::new();
    for state in protocol.init_states() {
        numbers.insert(state.clone(), states.len());
        states.push(state);
        from.push(None);
        before.push(Vec::new());
    }
    let mut next = 0;
    let mut actions = Vec::new();
    while next < states.len() {
        let state = states[next].clone();
        actions.clear();
        protocol.actions(&state, &mut actions);
        for action in &actions {
            let Some(after) = protocol.next_state(&state, *action) else { continue };
            let number = *numbers.entry(after).or_insert_with_key(|after| {
                states.push(after.clone());
                from.push(Some((next, *action)));
                before.push(Vec::new());
                states.len() - 1
            });
            if action.is_progress() {
                before[number].push(next);
            }
        }
        next += 1;
    }
    let mut leads: Vec<bool> = states.iter().map(|state| protocol.settled(state)).collect();
    let settled = leads.iter().filter(|settled| **settled).count();
    let mut open: Vec<usize> = (0..states.len()).filter(|number| leads[*number]).collect();
    while let Some(number) = open.pop() {
        for earlier in &before[number] {
            if !std::mem::replace(&mut leads[*earlier], true) {
                open.push(*earlier);
            }
        }
    }
    let stuck = leads.iter().position(|leads| !leads).map(|number| {
        let mut path = Vec::new();
        let mut at = number;
        while let Some((earlier, action)) = from[at] {
            path.push(format!("{action:?}"));
            at = earlier;
        }
        path.reverse();
        format!("{}\n{:#?}", path.join("\n"), states[number])
    });
    let count =
        |predicate: fn(&State) -> bool| states.iter().filter(|state| predicate(state)).count();
    Graph {
        states: states.len(),
        stuck,
        settled,
        late: count(|state| state.truth.late),
        refused: count(|state| state.truth.refused),
    }
}
