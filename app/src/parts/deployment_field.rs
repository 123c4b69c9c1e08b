//! A field for a deployment's name.
//!
//! There may be more deployments than anybody chooses from, so it is a text: whatever there is can be named, with scripts and without. The
//! browser offers names beside it, some at a time: those that the page came with, and, where scripts run, those that have in them what is
//! typed. Offers are a convenience: a name that is not among them is as good, and what there is not is refused by whoever gets it. Where the
//! page knows all that may be named, it offers of these alone, and asks nobody.

use std::time::Duration;

use api::console::DeploymentSummary;
use api::listing::DeploymentsWanted;
use engine::ids::MAX_NAME;
use leptos::prelude::*;
use leptos::task::spawn_local;

use crate::calls;

/// How long typing rests before the server is asked.
const REST: Duration = Duration::from_millis(120);

/// Names that are offered at once of those that the page knows; more of a name finds the others.
const OFFERED: usize = 50;

/// A name that may be chosen, and what is said of it.
pub type Offer = (String, Option<&'static str>);

/// The field, without a label.
#[component]
pub fn DeploymentField(
    id: &'static str,
    /// What stands in it.
    #[prop(into)]
    value: Signal<String>,
    /// Told what is typed.
    #[prop(optional)]
    typed: Option<Callback<String>>,
    /// What is offered before anything is typed.
    #[prop(default = Vec::new())]
    first: Vec<DeploymentSummary>,
    /// All that may be named.
    #[prop(optional)]
    among: Option<Memo<Vec<Offer>>>,
) -> impl IntoView {
    let offered = RwSignal::new(first);
    let fetch = offering(offered);
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

/// The offers with a text in their names; some of them.
fn fitting(among: &[Offer], text: &str) -> Vec<Offer> {
    let wanted = text.trim();
    among.iter().filter(|(name, _)| name.contains(wanted)).take(OFFERED).cloned().collect()
}

/// Asks for names with a text in them once nothing more is typed; an answer that comes after the next question is dropped.
fn offering(offered: RwSignal<Vec<DeploymentSummary>>) -> impl Fn(String) + Copy {
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
                let wanted = DeploymentsWanted {
                    filter: text.trim().to_owned(),
                    ..DeploymentsWanted::default()
                };
                if let Some(page) = calls::deployments(wanted).await.ok().filter(|_| is_last()) {
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
    fn what_the_page_knows_is_offered_by_any_part_of_its_name_and_never_all_of_it() {
        let among: Vec<Offer> = (0..200).map(|n| (format!("web-{n}"), None)).collect();
        assert_eq!(fitting(&among, "").len(), OFFERED);
        assert_eq!(fitting(&among, " web-199 "), [("web-199".to_owned(), None)]);
        assert!(fitting(&among, "db").is_empty());
    }
}
