//! The fields of a form that is used more than once.
//!
//! The input remains while the server refuses the form. On success the fields are rebuilt empty, to
//! avoid an accidental second submission of the same input. Without JavaScript, the browser reloads
//! the page, and the input comes back only after a refusal ([`Refused`]).

use std::sync::Arc;

use leptos::prelude::*;
use leptos::server_fn::ServerFn;

use super::action::on_success;
use super::refused_form::Refused;
use crate::failure::Failure;

/// Builds the fields of an action's form: first with the input of a refused submission, then empty
/// after each success.
pub fn reset_on_success<S>(
    action: ServerAction<S>,
    fields: impl Fn(Refused) -> AnyView + Send + Sync + 'static,
) -> AnyView
where
    S: ServerFn<Error = Failure> + Clone + Send + Sync + 'static,
    S::Output: Clone + Send + Sync + 'static,
{
    let uses = RwSignal::new(0_u32);
    on_success(action, move |_| uses.update(|uses| *uses = uses.wrapping_add(1)));
    fields_per_use(uses, Refused::of(action), Arc::new(fields))
}

fn fields_per_use(
    uses: RwSignal<u32>,
    first: Refused,
    fields: Arc<dyn Fn(Refused) -> AnyView + Send + Sync>,
) -> AnyView {
    let one = move |used: u32| fields(if used == 0 { first.clone() } else { Refused::nothing() });
    view! { <For each=move || [uses.get()] key=|used| *used children=one/> }.into_any()
}
