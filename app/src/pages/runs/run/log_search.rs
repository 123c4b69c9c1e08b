//! Search in a whole log, on the server, since the page has only a part of it.
//!
//! Each request searches a bounded span and returns where to continue. So a response is fast for
//! any length, and further typing cancels the search. Lines that arrive later are searched when the
//! reader moves beyond the last hit.

use std::time::Duration;

use api::Problem;
use api::runs::LogHit;
use engine::counting::many;
use engine::ids::RunId;
use leptos::prelude::*;
use leptos::task::spawn_local;

use super::server_functions;

/// The delay after the last keystroke before the search starts.
const DEBOUNCE: Duration = Duration::from_millis(250);
/// The number of hits to collect automatically. The reader can continue the search.
const MAX_HITS: usize = 1_000;

/// A search and its hits so far.
#[derive(Clone, Copy)]
pub(super) struct Search {
    run: RunId,
    pub(super) text: RwSignal<String>,
    pub(super) ignore_case: RwSignal<bool>,
    hits: RwSignal<Vec<LogHit>>,
    current: RwSignal<Option<usize>>,
    searched: RwSignal<(i64, i64)>,
    more: RwSignal<bool>,
    next: StoredValue<String>,
    /// The number of the current search. Responses for another search are dropped.
    number: StoredValue<u64>,
    busy: RwSignal<bool>,
    pub(super) problem: RwSignal<Option<Problem>>,
}

impl Search {
    pub(super) fn of(run: RunId) -> Self {
        Self {
            run,
            text: RwSignal::new(String::new()),
            ignore_case: RwSignal::new(true),
            hits: RwSignal::new(Vec::new()),
            current: RwSignal::new(None),
            searched: RwSignal::new((0, 0)),
            more: RwSignal::new(false),
            next: StoredValue::new(String::new()),
            number: StoredValue::new(0),
            busy: RwSignal::new(false),
            problem: RwSignal::new(None),
        }
    }

    /// Starts a new search after a pause in typing.
    pub(super) fn begin(self) {
        let Some(number) = self.number.try_update_value(|number| {
            *number += 1;
            *number
        }) else {
            return;
        };
        self.hits.set(Vec::new());
        self.current.set(None);
        self.more.set(false);
        self.busy.set(false);
        self.problem.set(None);
        self.next.set_value(String::new());
        set_timeout(
            move || {
                if self.number.try_get_value() == Some(number) {
                    self.go_on(None);
                }
            },
            DEBOUNCE,
        );
    }

    /// Continues the search. Then calls `on_hit` with the next hit, if there is one.
    fn go_on(self, on_hit: Option<Callback<LogHit>>) {
        let text = self.text.get_untracked();
        if text.is_empty() || self.busy.get_untracked() {
            return;
        }
        self.busy.set(true);
        let (number, ignore_case) = (self.number.get_value(), self.ignore_case.get_untracked());
        let after = self.next.get_value();
        spawn_local(async move {
            let answer = server_functions::search_log(self.run, text, ignore_case, after).await;
            if self.number.try_get_value() != Some(number) {
                return;
            }
            self.busy.set(false);
            match answer {
                Ok(found) => {
                    let before = self.hits.read_untracked().len();
                    let last = self.hits.read_untracked().last().map_or(-1, |hit| hit.offset);
                    self.hits.update(|hits| {
                        hits.extend(found.hits.into_iter().filter(|hit| hit.offset > last))
                    });
                    self.searched.set((found.searched, found.length));
                    self.more.set(found.more);
                    self.next.set_value(found.next);
                    let new = self.hits.read_untracked().len() > before;
                    if found.more && self.hits.read_untracked().len() < MAX_HITS {
                        self.go_on(on_hit.filter(|_| !new));
                    }
                    if let Some(on_hit) = on_hit.filter(|_| new) {
                        self.go_to(before, on_hit);
                    }
                }
                Err(failure) => self.problem.set(Some(failure.0)),
            }
        });
    }

    fn go_to(self, at: usize, on_hit: Callback<LogHit>) {
        if let Some(hit) = self.hits.with_untracked(|hits| hits.get(at).cloned()) {
            self.current.set(Some(at));
            on_hit.run(hit);
        }
    }

    /// Moves to the next or the previous hit. After the last one, the search continues.
    pub(super) fn step(self, forward: bool, on_hit: Callback<LogHit>) {
        let count = self.hits.read_untracked().len();
        let Some(last) = count.checked_sub(1) else { return };
        let to = match (self.current.get_untracked(), forward) {
            (None, true) => 0,
            (None, false) => last,
            (Some(at), true) if at == last => {
                self.go_on(Some(on_hit));
                return;
            }
            (Some(at), true) => at + 1,
            (Some(at), false) => at.checked_sub(1).unwrap_or(last),
        };
        self.go_to(to, on_hit);
    }

    pub(super) fn is_empty(self) -> bool {
        self.hits.read().is_empty()
    }

    /// The offset of the current hit.
    pub(super) fn current(self) -> Option<i64> {
        let at = self.current.get()?;
        self.hits.with(|hits| hits.get(at).map(|hit| hit.offset))
    }

    /// The status text of the search.
    pub(super) fn status(self) -> String {
        if self.text.read().is_empty() {
            return String::new();
        }
        let hits = self.hits.read();
        let (searched, length) = self.searched.get();
        let so_far = match (self.busy.get(), self.more.get()) {
            (true, _) if length > 0 => {
                format!(", {} % searched", searched.saturating_mul(100) / length.max(1))
            }
            (false, true) => " so far".to_owned(),
            _ => String::new(),
        };
        match (self.current.get().and_then(|at| Some((at, hits.get(at)?))), hits.len()) {
            (Some((at, hit)), n) => format!("{} of {n}{so_far}, line {}", at + 1, hit.line),
            (None, 0) if self.busy.get() => format!("searching{so_far}"),
            (None, 0) => format!("no matches{so_far}"),
            (None, n) => format!("{}{so_far}", many(n, "line")),
        }
    }
}
