//! Commands that forms submit.

use std::future::Future;

use api::Problem;
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use leptos::task::spawn_local;

use crate::failure::{Failure, ServerResult};

/// The error of the last use of an action. Cleared when the action is used again.
pub fn problem_of<S>(action: ServerAction<S>) -> Signal<Option<Problem>>
where
    S: ServerFn<Error = Failure> + Clone + Send + Sync + 'static,
    S::Output: Clone + Send + Sync + 'static,
{
    Signal::derive(move || match action.pending().get() {
        true => None,
        false => action.value().get().and_then(Result::err).map(|failure| failure.0),
    })
}

/// Calls `done` each time the action succeeds.
pub fn on_success<S>(action: ServerAction<S>, done: impl Fn(S::Output) + 'static)
where
    S: ServerFn<Error = Failure> + Clone + Send + Sync + 'static,
    S::Output: Clone + Send + Sync + 'static,
{
    Effect::new(move |_| {
        if let Some(Ok(output)) = action.value().get() {
            untrack(|| done(output));
        }
    });
}

/// The last result of an action. It remains if the next use fails. So a secret that is shown once
/// stays visible until the reader leaves or creates the next one.
pub fn last_of<S>(action: ServerAction<S>) -> RwSignal<Option<S::Output>>
where
    S: ServerFn<Error = Failure> + Clone + Send + Sync + 'static,
    S::Output: Clone + Send + Sync + 'static,
{
    let last = RwSignal::new(None);
    on_success(action, move |output| last.set(Some(output)));
    last
}

/// Runs a command and shows its progress in `busy` and `problem`. Calls `done` on success.
pub fn act<T: 'static>(
    busy: RwSignal<bool>,
    problem: RwSignal<Option<Problem>>,
    command: impl Future<Output = ServerResult<T>> + 'static,
    done: impl FnOnce(T) + 'static,
) {
    busy.set(true);
    problem.set(None);
    spawn_local(async move {
        let answer = command.await;
        busy.try_set(false);
        match answer {
            Ok(value) => done(value),
            Err(failure) => {
                problem.try_set(Some(failure.0));
            }
        }
    });
}
