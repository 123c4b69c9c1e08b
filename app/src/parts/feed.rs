//! What a page shows and how it is fetched again.
//!
//! A page is loaded once as a whole; after that its value changes under it, so that a row that is focused, a chip that is lifted or a
//! text half typed stays where it is. At most one request is under way; what arrives while one is makes exactly one more.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use api::Problem;
use leptos::prelude::*;
use leptos::task::spawn_local;

use crate::failure::Answer;

/// Hints that come this close together cost one request.
const GATHER: Duration = Duration::from_millis(200);
/// The same for lists, where many hints concern little of what is shown.
const GATHER_MORE: Duration = Duration::from_secs(1);
/// After a request that did not reach the server.
const LATER: Duration = Duration::from_secs(5);

type Fetch<T> = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Answer<T>>>> + Send + Sync>;

/// A value and its source.
pub struct Feed<T: Send + Sync + 'static> {
    value: RwSignal<T>,
    problem: RwSignal<Option<Problem>>,
    fetch: StoredValue<Fetch<T>>,
    under_way: StoredValue<Way>,
}

#[derive(Clone, Copy, Default)]
struct Way {
    gathering: bool,
    fetching: bool,
    again: bool,
}

impl<T: Send + Sync + 'static> Clone for Feed<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Send + Sync + 'static> Copy for Feed<T> {}

impl<T: Send + Sync + 'static> Feed<T> {
    /// A value that is there, and how to get the next one.
    pub fn new<F, R>(first: T, fetch: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Answer<T>> + 'static,
    {
        Self {
            value: RwSignal::new(first),
            problem: RwSignal::new(None),
            fetch: StoredValue::new(Arc::new(move || Box::pin(fetch()))),
            under_way: StoredValue::new(Way::default()),
        }
    }

    /// The value.
    pub fn value(self) -> RwSignal<T> {
        self.value
    }

    /// Why the last fetch failed, if it did. The value is then the one before.
    pub fn problem(self) -> RwSignal<Option<Problem>> {
        self.problem
    }

    /// Fetches after a moment in which further hints are gathered.
    pub fn soon(self) {
        self.after(GATHER);
    }

    /// The same for what need not be shown at once.
    pub fn eventually(self) {
        self.after(GATHER_MORE);
    }

    fn after(self, wait: Duration) {
        let waits =
            self.under_way.try_update_value(|way| std::mem::replace(&mut way.gathering, true));
        if waits == Some(false) {
            set_timeout(
                move || {
                    if self.under_way.try_update_value(|way| way.gathering = false).is_some() {
                        self.now();
                    }
                },
                wait,
            );
        }
    }

    /// Fetches at once, or as soon as the request that is under way has ended.
    pub fn now(self) {
        let begin = self.under_way.try_update_value(|way| {
            way.again |= way.fetching;
            !std::mem::replace(&mut way.fetching, true)
        });
        let Some(fetch) = self.fetch.try_get_value() else { return };
        if begin == Some(true) {
            spawn_local(async move {
                let answer = fetch().await;
                self.take(answer);
            });
        }
    }

    fn take(self, answer: Answer<T>) {
        match answer {
            Ok(value) => {
                self.value.try_set(value);
                if self.problem.try_get_untracked().flatten().is_some() {
                    self.problem.try_set(None);
                }
            }
            Err(failure) => {
                // Unlike a refusal, this may pass by itself.
                if failure.0.status >= 500 {
                    self.after(LATER);
                }
                self.problem.try_set(Some(failure.0));
            }
        }
        let again = self.under_way.try_update_value(|way| {
            way.fetching = false;
            std::mem::take(&mut way.again)
        });
        if again == Some(true) {
            self.now();
        }
    }
}
