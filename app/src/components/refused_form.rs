//! A form that was posted without JavaScript and refused.
//!
//! The browser reloads the page with the error in the address, where the action finds it. The
//! server also adds the input to the address as `typed.NAME`, except secrets. So the page opens the
//! form's dialog or section, shows the error and fills in the form again. Once the address changes,
//! the form is back in its initial state.

use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use leptos_router::hooks::use_query_map;
use leptos_router::params::ParamsMap;

use super::action::problem_of;
use crate::failure::Failure;

/// The prefix of the parameters that contain the input.
pub const TYPED: &str = "typed.";

/// The input of a refused form. `None`: the form was not refused.
#[derive(Debug, Clone)]
pub struct Refused(Option<ParamsMap>);

impl Refused {
    /// The input of an action's form, when its page loads.
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

    /// A form in its initial state.
    pub(super) const fn nothing() -> Self {
        Self(None)
    }

    /// Whether the page was reloaded because the form was refused.
    pub fn is_here(&self) -> bool {
        self.0.is_some()
    }

    /// The input of a field.
    pub fn typed(&self, field: &str) -> Option<String> {
        self.0.as_ref()?.get(&format!("{TYPED}{field}"))
    }

    /// The input of a field, or its default.
    pub fn value_or(&self, field: &str, default: impl Into<String>) -> String {
        self.typed(field).unwrap_or_else(|| default.into())
    }
}
