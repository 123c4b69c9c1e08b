//! Changes the versions of barclamps, or returns to those of the parent deployment.
//!
//! Each barclamp has one version in a deployment, so the form has one choice per barclamp. Several
//! barclamps can change in one step, because two barclamps that exchange a role cannot change one
//! after the other.

use std::collections::BTreeMap;

use api::views::board::{OwnVersion, VersionChoice};
use engine::ids::{BarclampName, DeploymentId};
use engine::plan::{Edit, edit};
use leptos::prelude::*;

use super::board_state::{BoardState, UNDO_HINT};
use crate::components::{Icon, icon};
use crate::pages::proposals::{EditForm, SubmitButton};

/// The chosen version of a barclamp.
#[derive(Clone)]
enum Choice {
    Select(VersionChoice),
    Inherit(OwnVersion),
}

impl Choice {
    fn barclamp(&self) -> &BarclampName {
        match self {
            Self::Select(VersionChoice { barclamp, .. })
            | Self::Inherit(OwnVersion { barclamp, .. }) => barclamp,
        }
    }

    fn edit(self, deployment: DeploymentId) -> Edit {
        match self {
            Self::Select(choice) => Edit::UseBarclamp(edit::UseBarclamp {
                deployment,
                barclamp: choice.barclamp,
                version: choice.hash,
            }),
            Self::Inherit(own) => {
                Edit::InheritBarclamp(edit::InheritBarclamp { deployment, barclamp: own.barclamp })
            }
        }
    }

    fn is_in_use(&self) -> bool {
        matches!(self, Self::Select(choice) if choice.in_use)
    }

    /// The value of the radio button, unique within the barclamp.
    fn value(&self) -> String {
        match self {
            Self::Select(choice) => choice.hash.to_string(),
            Self::Inherit(_) => "above".into(),
        }
    }

    fn done(&self) -> String {
        match self {
            Self::Select(choice) => {
                format!("The proposal uses barclamp {} {}.", choice.barclamp, choice.version)
            }
            Self::Inherit(own) => {
                format!(
                    "The proposal inherits barclamp {} from the deployment above.",
                    own.barclamp
                )
            }
        }
    }

    fn lacks(&self) -> Vec<String> {
        match self {
            Self::Select(choice) => choice.missing.clone(),
            Self::Inherit(own) => {
                own.inherited.as_ref().map(|above| above.missing.clone()).unwrap_or_default()
            }
        }
    }

    fn name(&self) -> AnyView {
        match self {
            Self::Select(choice) => {
                let using = choice.in_use.then(|| {
                    view! {
                        <span class="pill" data-state="active">{icon(Icon::Check)} "in use"</span>
                    }
                });
                view! {
                    <b>{choice.barclamp.to_string()}</b> " " {choice.version.clone()} " "
                    <code>{choice.hash.short()}</code> " " {using}
                }
                .into_any()
            }
            Self::Inherit(own) => {
                let barclamp = own.barclamp.to_string();
                match &own.inherited {
                    Some(above) => {
                        let (from, version) = (above.from.to_string(), above.version.clone());
                        view! {
                            <b>{barclamp}</b> " inherited from " {from} ": " {version} " "
                            <code>{above.hash.short()}</code>
                        }
                        .into_any()
                    }
                    None => {
                        view! { <b>{barclamp}</b> " removed, because no deployment above uses it" }
                            .into_any()
                    }
                }
            }
        }
    }
}

#[component]
pub(super) fn ChangeVersions(board_state: BoardState, taken: Callback<()>) -> impl IntoView {
    let chosen = RwSignal::new(BTreeMap::<BarclampName, Choice>::new());
    let edit_form = EditForm::new(board_state.pen(), move || {
        let deployment = board_state.board().read().id;
        chosen.get().into_values().map(|choice| choice.edit(deployment)).collect()
    });
    let line = move |choice: Choice| {
        let (name, lacks) = (choice.name(), choice.lacks());
        let lacks = (!lacks.is_empty()).then(|| {
            let lines = lacks.into_iter().map(|line| view! { <li>{line}</li> }).collect_view();
            view! { <small>"Missing in this version:"</small> <ul class="missing">{lines}</ul> }
        });
        let (group, value, using) =
            (format!("version of {}", choice.barclamp()), choice.value(), choice.is_in_use());
        // When the board changes, the list is rendered again and the choices remain.
        let checked = chosen.with_untracked(|chosen| match chosen.get(choice.barclamp()) {
            Some(known) => known.value() == value,
            None => using,
        });
        let choose = move |_| {
            chosen.update(|chosen| {
                let barclamp = choice.barclamp().clone();
                match using {
                    true => chosen.remove(&barclamp),
                    false => chosen.insert(barclamp, choice.clone()),
                };
            });
        };
        view! {
            <li>
                <label class="choice">
                    <input type="radio" name=group value=value checked=checked on:change=choose/>
                    <span>{name} {lacks}</span>
                </label>
            </li>
        }
    };
    let choices = Memo::new(move |_| {
        let board = board_state.board().read();
        (board.own_versions.clone(), board.versions.clone())
    });
    let list = move || {
        let (own, versions) = choices.get();
        if versions.is_empty() && own.is_empty() {
            return view! { <p class="muted">"No barclamps yet. Import one first."</p> }.into_any();
        }
        let mut all: Vec<Choice> = own
            .into_iter()
            .map(Choice::Inherit)
            .chain(versions.into_iter().map(Choice::Select))
            .collect();
        // Grouped by barclamp, the parent's version first. Other versions keep their order.
        all.sort_by(|a, b| a.barclamp().cmp(b.barclamp()));
        view! { <ul class="choices">{all.into_iter().map(line).collect_view()}</ul> }.into_any()
    };
    let fields = view! {
        <p class="muted">
            "Bound roles switch to the selected version, and changed steps run again."
        </p>
        {move || list()}
    };
    let button = view! { <SubmitButton of=edit_form/> };
    let done = move || {
        let done: Vec<String> = chosen.get_untracked().values().map(Choice::done).collect();
        (!done.is_empty()).then(|| format!("{} {UNDO_HINT}", done.join(" ")))
    };
    edit_form.view(taken, done, fields.into_any(), button.into_any())
}
