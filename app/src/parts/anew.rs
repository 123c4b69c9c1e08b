//! The fields of a form that is used more than once.
//!
//! What was typed stays while a form is refused. Once it did its work its fields are made anew, empty, as in a page that has just come, so
//! that nobody sends the same again for something else. Without scripts the page comes anew by itself, and what was typed comes back with a
//! refusal alone ([`Refused`]).

use std::sync::Arc;

use leptos::prelude::*;
use leptos::server_fn::ServerFn;

use super::act::when_done;
use super::refused::Refused;
use crate::failure::Failure;

/// The fields of the form of an action, first with what a refusal brought back, and anew each time it succeeded.
pub fn anew<S>(
    action: ServerAction<S>,
    fields: impl Fn(Refused) -> AnyView + Send + Sync + 'static,
) -> AnyView
where
    S: ServerFn<Error = Failure> + Clone + Send + Sync + 'static,
    S::Output: Clone + Send + Sync + 'static,
{
    let uses = RwSignal::new(0_u32);
    when_done(action, move |_| uses.update(|uses| *uses = uses.wrapping_add(1)));
    by_use(uses, Refused::of(action), Arc::new(fields))
}

fn by_use(
    uses: RwSignal<u32>,
    first: Refused,
    fields: Arc<dyn Fn(Refused) -> AnyView + Send + Sync>,
) -> AnyView {
    let one = move |used: u32| fields(if used == 0 { first.clone() } else { Refused::nothing() });
    view! { <For each=move || [uses.get()] key=|used| *used children=one/> }.into_any()
}
