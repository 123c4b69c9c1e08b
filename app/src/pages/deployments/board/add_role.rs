//! Adds a role to the deployment, so that nodes can be bound to it.

use api::views::board::RoleChoice;
use engine::ids::RoleName;
use engine::plan::{Edit, edit};
use leptos::prelude::*;

use super::board_state::BoardState;
use crate::components::{Icon, icon};
use crate::pages::proposals::EditCommands;
use crate::pages::proposals::preview::{Preview, PreviewImpact};

/// The maximum number of listed roles. Typing narrows the list.
const MAX_LISTED: usize = 100;

#[component]
pub(super) fn AddRole(board_state: BoardState, taken: Callback<()>) -> impl IntoView {
    let filter = RwSignal::new(String::new());
    let found = Memo::new(move |_| {
        let text = filter.get().to_lowercase();
        let board = board_state.board().read();
        fitting(&board.choices, &text)
    });
    let add = move |choice: &RoleChoice| {
        let deployment = board_state.board().read_untracked().id;
        let role = choice.role.clone();
        board_state.edit(
            vec![Edit::AddRole(edit::AddRole { deployment, role })],
            format!("The proposal adds role {}.", choice.role),
        );
        taken.run(());
    };
    // The role to preview: the one under the pointer or with the focus. Default: the first one.
    let aim = RwSignal::new(None::<RoleName>);
    let preview = Preview::new(
        board_state.pen().proposal,
        Signal::derive(move || {
            let (found, aim) = (found.read(), aim.get());
            let aimed =
                found.iter().find(|choice| Some(&choice.role) == aim.as_ref()).or(found.first());
            let deployment = board_state.board().read().id;
            aimed
                .map(|choice| {
                    Edit::AddRole(edit::AddRole { deployment, role: choice.role.clone() })
                })
                .into_iter()
                .collect()
        }),
    );
    let list = move || {
        let found = found.get();
        if found.is_empty() {
            return view! {
                <p class="muted">"No role matches. Roles on this board are not listed."</p>
            }
            .into_any();
        }
        let one = |choice: RoleChoice| {
            let (name, about) =
                (choice.role.to_string(), format!("{} · {}", choice.barclamp, choice.description));
            let role = StoredValue::new(choice.role.clone());
            let at = move || aim.set(Some(role.get_value()));
            view! {
                <li>
                    <button
                        class="choice-button"
                        type="button"
                        on:focus=move |_| at()
                        on:mouseenter=move |_| at()
                        on:click=move |_| add(&choice)
                    >
                        {icon(if choice.milestone { Icon::Milestone } else { Icon::Plus })}
                        <span><b>{name}</b><small>{about}</small></span>
                    </button>
                </li>
            }
        };
        view! { <ul class="choices">{found.into_iter().map(one).collect_view()}</ul> }.into_any()
    };
    view! {
            <form
                class="form"
                on:submit=move |event| {
                    event.prevent_default();
                    let first = found.read_untracked().first().cloned();
                    if let Some(first) = first {
                        add(&first);
                    }
                }
            >
                <div class="body">
                    <div class="field">
                        <label for="add-role-filter">"Role"</label>
                        <input
                            class="input"
                            id="add-role-filter"
                            placeholder="Name, barclamp or description"
                            autocomplete="off"
                            autofocus
                            prop:value=move || filter.get()
                            on:input=move |event| {
                                filter.set(event_target_value(&event));
                                aim.set(None);
                            }
                        />
                        <span class="hint">"Press Enter to add the first role."</span>
                    </div>
                    {move || list()}
                    <PreviewImpact of=preview/>
                    <EditCommands pen=board_state.pen() of=preview/>
                </div>
            </form>
    }
    .into_any()
}

/// Roles whose name, barclamp or description contains a text. Milestones come first, then roles
/// whose names start with the text.
fn fitting(choices: &[RoleChoice], text: &str) -> Vec<RoleChoice> {
    let fits = |choice: &&RoleChoice| {
        [choice.role.as_str(), choice.barclamp.as_str(), &choice.description]
            .iter()
            .any(|field| field.to_lowercase().contains(text))
    };
    let mut found: Vec<RoleChoice> = choices.iter().filter(fits).cloned().collect();
    found.sort_by_key(|choice| {
        (!choice.milestone, !choice.role.as_str().to_lowercase().starts_with(text))
    });
    found.truncate(MAX_LISTED);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::ids::{BarclampName, RoleName};

    #[test]
    fn milestones_come_first_then_prefix_matches() {
        let choice = |name: &str, milestone| RoleChoice {
            role: RoleName::parse(name).unwrap(),
            barclamp: BarclampName::parse("demo").unwrap(),
            description: "Says hello".into(),
            milestone,
        };
        let all = [
            choice("my-app", false),
            choice("app", false),
            choice("app-ready", true),
            choice("db", false),
        ];
        let names =
            |text: &str| fitting(&all, text).iter().map(|c| c.role.to_string()).collect::<Vec<_>>();
        assert_eq!(names("app"), ["app-ready", "app", "my-app"]);
        assert_eq!(names("hello").len(), 4);
        assert!(names("nothing").is_empty());
    }
}
