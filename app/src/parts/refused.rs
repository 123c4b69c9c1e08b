//! A form that was posted without scripts and refused.
//!
//! The browser lands on its page anew, with the problem in the address: an action has that from its beginning. What was typed is in the
//! address, too, as far as the server brings it back (`typed.NAME`, never a secret). So the page opens the dialog or the fold that the form
//! is in, says why it was refused, and fills it in again. As soon as the address is another, the form is as it always was.

use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use leptos_router::hooks::use_query_map;
use leptos_router::params::ParamsMap;

use super::act::problem_of;
use crate::failure::Failure;

/// What begins a word of an address that says what was typed in a field.
pub const TYPED: &str = "typed.";

/// What the address brings back of a form; nothing, where it was not refused.
#[derive(Debug, Clone)]
pub struct Refused(Option<ParamsMap>);

impl Refused {
    /// Of the form of an action, as its page begins.
    pub fn of<S>(action: ServerAction<S>) -> Self
    where
        S: ServerFn<Error = Failure> + Clone + Send + Sync + 'static,
        S::Output: Clone + Send + Sync + 'static,
    {
        let query = use_query_map().get_untracked();
        let is_refused =
            query.get_str("__err").is_some() && problem_of(action).get_untracked().is_some();
        Self(is_refused.then_some(query))
    }

    /// Nothing: of a form that is as it always was.
    pub(super) const fn nothing() -> Self {
        Self(None)
    }

    /// Whether the page is here again because the form was refused.
    pub fn is_here(&self) -> bool {
        self.0.is_some()
    }

    /// What was typed in a field.
    pub fn typed(&self, field: &str) -> Option<String> {
        self.0.as_ref()?.get(&format!("{TYPED}{field}"))
    }

    /// The same, or what stands there otherwise.
    pub fn typed_or(&self, field: &str, usual: impl Into<String>) -> String {
        self.typed(field).unwrap_or_else(|| usual.into())
    }
}
