//! The value of a page, and when to fetch it again.
//!
//! A page loads once as a whole. Afterwards its value changes in place, so that the focus, dragged
//! nodes and half-typed text survive. At most one request is in flight. Hints during a request
//! cause exactly one further request. A failed request is retried (`retry`).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use api::Problem;
use leptos::prelude::*;
use leptos::task::spawn_local;

use super::retry::Retry;
use crate::failure::ServerResult;

/// Hints within this time share one request.
const GATHER: Duration = Duration::from_millis(200);
/// As [`GATHER`], for lists, where many hints affect few of the visible rows.
const LIST_DEBOUNCE: Duration = Duration::from_secs(1);

type Fetch<T> = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = ServerResult<T>>>> + Send + Sync>;

/// A value and its source.
pub struct Feed<T: Send + Sync + 'static> {
    value: RwSignal<T>,
    problem: RwSignal<Option<Problem>>,
    fetch: StoredValue<Fetch<T>>,
    fetch_state: StoredValue<FetchState>,
    retry: Retry,
}

#[derive(Clone, Copy, Default)]
struct FetchState {
    is_scheduled: bool,
    is_fetching: bool,
    again: bool,
}

impl<T: Send + Sync + 'static> Clone for Feed<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Send + Sync + 'static> Copy for Feed<T> {}

impl<T: Send + Sync + 'static> Feed<T> {
    /// Starts with a loaded value. `fetch` returns the next one.
    pub fn new<F, R>(first: T, fetch: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = ServerResult<T>> + 'static,
    {
        Self {
            value: RwSignal::new(first),
            problem: RwSignal::new(None),
            fetch: StoredValue::new(Arc::new(move || Box::pin(fetch()))),
            fetch_state: StoredValue::new(FetchState::default()),
            retry: Retry::new(),
        }
    }

    pub fn value(self) -> RwSignal<T> {
        self.value
    }

    /// The error of the last fetch, if it failed. The value is then outdated.
    pub fn problem(self) -> RwSignal<Option<Problem>> {
        self.problem
    }

    /// The retry after an error.
    pub fn retry(self) -> Retry {
        self.retry
    }

    /// Fetches after a short delay that collects further hints.
    pub fn soon(self) {
        self.after(GATHER);
    }

    /// As [`soon`](Self::soon), with a longer delay.
    pub fn eventually(self) {
        self.after(LIST_DEBOUNCE);
    }

    fn after(self, wait: Duration) {
        let waits = self
            .fetch_state
            .try_update_value(|state| std::mem::replace(&mut state.is_scheduled, true));
        if waits == Some(false) {
            set_timeout(
                move || {
                    if self
                        .fetch_state
                        .try_update_value(|state| state.is_scheduled = false)
                        .is_some()
                    {
                        self.now();
                    }
                },
                wait,
            );
        }
    }

    /// Fetches at once, or as soon as the current request ends.
    pub fn now(self) {
        let begin = self.fetch_state.try_update_value(|state| {
            state.again |= state.is_fetching;
            !std::mem::replace(&mut state.is_fetching, true)
        });
        let Some(fetch) = self.fetch.try_get_value() else { return };
        if begin == Some(true) {
            spawn_local(async move {
                let answer = fetch().await;
                self.take(answer);
            });
        }
    }

    fn take(self, answer: ServerResult<T>) {
        match answer {
            Ok(value) => {
                self.value.try_set(value);
                self.retry.succeeded();
                if self.problem.try_get_untracked().flatten().is_some() {
                    self.problem.try_set(None);
                }
            }
            Err(failure) => {
                self.retry.failed(&failure.0, move || self.now());
                self.problem.try_set(Some(failure.0));
            }
        }
        let again = self.fetch_state.try_update_value(|state| {
            state.is_fetching = false;
            std::mem::take(&mut state.again)
        });
        if again == Some(true) {
            self.now();
        }
    }
}
