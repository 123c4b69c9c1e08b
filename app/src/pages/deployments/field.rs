//! A field for a deployment's name.
//!
//! There may be too many deployments for a select list, so this is a text field with suggestions.
//! It accepts any name, with and without JavaScript, and the server rejects unknown ones. The
//! suggestions are the names that the page was loaded with. With JavaScript, they are also names
//! that contain the text. If the page knows all valid names (`among`), it suggests only these and
//! does not query the server.

use std::time::Duration;

use api::deployments::DeploymentSummary;
use api::deployments::DeploymentsQuery;
use engine::ids::MAX_NAME;
use leptos::prelude::*;
use leptos::task::spawn_local;

use super::deployments;

/// The delay after the last keystroke before the server is queried.
const REST: Duration = Duration::from_millis(120);

/// The maximum number of suggestions from `among`. Typing more of the name finds the others.
const MAX_SUGGESTIONS: usize = 50;

/// A valid name, with an optional note.
pub type Offer = (String, Option<&'static str>);

/// The field, without a label.
#[component]
pub fn DeploymentField(
    id: &'static str,
    #[prop(into)] value: Signal<String>,
    /// Called with each new text.
    #[prop(optional)]
    typed: Option<Callback<String>>,
    /// The suggestions before anything is typed.
    #[prop(default = Vec::new())]
    first: Vec<DeploymentSummary>,
    /// All valid names.
    #[prop(optional)]
    among: Option<Memo<Vec<Offer>>>,
    /// Receives the suggestions, for a form that needs more than the name.
    #[prop(optional)]
    suggested: Option<RwSignal<Vec<DeploymentSummary>>>,
) -> impl IntoView {
    let offered = suggested.unwrap_or_else(|| RwSignal::new(first));
    let fetch = suggester(offered);
    let ask = move |text: String| {
        if among.is_none() {
            fetch(text);
        }
    };
    let list = format!("{id}-offered");
    let type_in = move |text: String| {
        if let Some(typed) = typed {
            typed.run(text.clone());
        }
        ask(text);
    };
    let offers = move || match among {
        Some(among) => fitting(&among.read(), &value.read()),
        None => offered.read().iter().map(found).collect(),
    };
    let option = |(name, about): Offer| view! { <option value=name>{about}</option> };
    view! {
        <input
            class="input"
            id=id
            name="deployment"
            list=list.clone()
            autocomplete="off"
            spellcheck="false"
            maxlength=MAX_NAME.to_string()
            value=move || value.get()
            prop:value=move || value.get()
            on:focus=move |event| ask(event_target_value(&event))
            on:input=move |event| type_in(event_target_value(&event))
        />
        <datalist id=list>{move || offers().into_iter().map(option).collect_view()}</datalist>
    }
    .into_any()
}

fn found(deployment: &DeploymentSummary) -> Offer {
    (deployment.name.to_string(), deployment.proposal.map(|_| "has an open proposal"))
}

/// At most `MAX_SUGGESTIONS` suggestions whose names contain a text.
fn fitting(among: &[Offer], text: &str) -> Vec<Offer> {
    let query = text.trim();
    among.iter().filter(|(name, _)| name.contains(query)).take(MAX_SUGGESTIONS).cloned().collect()
}

/// Queries names that contain the text after a pause in typing. A response to an outdated query is
/// dropped.
fn suggester(offered: RwSignal<Vec<DeploymentSummary>>) -> impl Fn(String) + Copy {
    let turn = StoredValue::new(0_u32);
    move |text: String| {
        let Some(mine) = turn.try_update_value(|turn| {
            *turn = turn.wrapping_add(1);
            *turn
        }) else {
            return;
        };
        let is_last = move || turn.try_get_value() == Some(mine);
        let ask = move || {
            if !is_last() {
                return;
            }
            spawn_local(async move {
                let query = DeploymentsQuery {
                    filter: text.trim().to_owned(),
                    ..DeploymentsQuery::default()
                };
                if let Some(page) = deployments(query).await.ok().filter(|_| is_last()) {
                    offered.try_set(page.deployments);
                }
            });
        };
        set_timeout(ask, REST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions_match_substrings_and_are_limited() {
        let among: Vec<Offer> = (0..200).map(|n| (format!("web-{n}"), None)).collect();
        assert_eq!(fitting(&among, "").len(), MAX_SUGGESTIONS);
        assert_eq!(fitting(&among, " web-199 "), [("web-199".to_owned(), None)]);
        assert!(fitting(&among, "db").is_empty());
    }
}
