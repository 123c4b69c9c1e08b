//! Commands given by forms.

use std::future::Future;

use api::Problem;
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use leptos::task::spawn_local;

use crate::failure::{Answer, Failure};

/// The problem that the last use of an action ended with, gone as soon as it is used again.
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

/// Calls `done` each time an action succeeded.
pub fn when_done<S>(action: ServerAction<S>, done: impl Fn(S::Output) + 'static)
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

/// What an action brought about last. It stays when the next use is refused: what is shown once stays readable until its reader leaves, or
/// makes the next.
pub fn last_of<S>(action: ServerAction<S>) -> RwSignal<Option<S::Output>>
where
    S: ServerFn<Error = Failure> + Clone + Send + Sync + 'static,
    S::Output: Clone + Send + Sync + 'static,
{
    let last = RwSignal::new(None);
    when_done(action, move |output| last.set(Some(output)));
    last
}

/// Gives a command and shows in `busy` and `problem` how it goes; `done` follows a success.
pub fn act<T: 'static>(
    busy: RwSignal<bool>,
    problem: RwSignal<Option<Problem>>,
    command: impl Future<Output = Answer<T>> + 'static,
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
