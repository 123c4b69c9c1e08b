//! Edits of a role as a whole: its data in this deployment, and another run.

use std::collections::BTreeSet;

use api::runs::StepState;
use api::views::board::{BoardNoderole, BoardRole};
use engine::cluster::NoderoleKey;
use engine::ids::{NodeId, RoleName};
use engine::plan::{Edit, edit};
use leptos::prelude::*;
use leptos::task::spawn_local;

use super::board_state::{BoardState, nodes};
use super::server_functions;
use crate::components::draft::Draft;
use crate::components::json::DataEditor;
use crate::pages::proposals::{EditForm, Reason, SubmitButton};
use crate::validation::Purpose;

#[component]
pub(super) fn RoleData(
    board_state: BoardState,
    role: BoardRole,
    taken: Callback<()>,
) -> impl IntoView {
    let draft = Draft::new(
        &role.data,
        Purpose { attribs: role.attribs.clone(), below: role.defaults.clone(), is_last: false },
    );
    let name = role.role;
    let of = name.clone();
    draft.follow(Signal::derive(move || {
        let board = board_state.board().read();
        // Only the board's own roles have data here.
        let own = board.groups.iter().filter(|group| group.of_ancestor.is_none());
        let role = own.flat_map(|group| &group.roles).find(|role| role.role == of)?;
        Some((role.data.clone(), role.data_by.clone()))
    }));
    let done = format!("The proposal changes the data of {name}.");
    let edit_form = EditForm::new(board_state.pen(), move || {
        let deployment = board_state.board().read().id;
        draft
            .changed()
            .map(|data| {
                Edit::SetRoleData(edit::SetRoleData { deployment, role: name.clone(), data })
            })
            .into_iter()
            .collect()
    });
    let fields = view! {
        <p class="muted">
            "Replaces the data of the role in this deployment. It overrides the role's template. \
             Data of single noderoles overrides it."
        </p>
        <DataEditor draft name="role-data"/>
    };
    let button = view! { <SubmitButton of=edit_form/> };
    let done = move || Some(done.clone());
    edit_form.view(taken, done, fields.into_any(), button.into_any())
}

/// Runs the role again: on its nodes, or as a slice with its dependents.
#[component]
pub(super) fn RerunRole(
    board_state: BoardState,
    role: BoardRole,
    taken: Callback<()>,
) -> impl IntoView {
    let (reason, with_dependents) = (RwSignal::new(String::new()), RwSignal::new(false));
    let selected = RwSignal::new(BTreeSet::<RoleName>::new());
    let (bound, more) = role_nodes(board_state, &role);
    let name = StoredValue::new(role.role);
    let edits = move || {
        let reason = reason.get().trim().to_owned();
        if reason.is_empty() {
            return Vec::new();
        }
        let role = name.get_value();
        if with_dependents.get() {
            let deployment = board_state.board().read().id;
            let roles = selected.get().into_iter().chain([role]).collect();
            return vec![Edit::RerunSlice(edit::RerunSlice { deployment, roles, reason })];
        }
        let again = |node| {
            Edit::Rerun(edit::Rerun {
                node,
                noderole: NoderoleKey::first(role.clone()),
                reason: reason.clone(),
            })
        };
        bound.get().into_iter().map(again).collect()
    };
    let edit_form = EditForm::new(board_state.pen(), edits);
    let about = move || {
        let rest = match more.get() {
            0 => String::new(),
            n => format!(
                " It does not run on {n} more. Include the dependents to run the role on all nodes."
            ),
        };
        format!("Runs on {} after the commit.{rest}", nodes(bound.read().len()))
    };
    let done = move || match with_dependents.get_untracked() {
        true => format!("The proposal runs {} and its dependents again.", name.get_value()),
        false => {
            format!(
                "The proposal runs {} again on {}.",
                name.get_value(),
                nodes(bound.read_untracked().len())
            )
        }
    };
    let fields = view! {
        <p>{move || about()}</p>
        <Reason id="again-reason" reason hint="Shown in the review and with each run."/>
        <label class="choice">
            <input
                type="checkbox"
                prop:checked=move || with_dependents.get()
                on:change=move |event| with_dependents.set(event_target_checked(&event))
            />
            <span>
                <b>"Include the dependents in this deployment"</b> " "
                <small>"On every node, in dependency order."</small>
            </span>
        </label>
        {move || with_dependents.get().then(|| view! {
            <FurtherRoles board_state name=name.get_value() selected/>
        })}
    };
    let button = view! { <SubmitButton of=edit_form/> };
    let done = move || Some(done());
    edit_form.view(taken, done, fields.into_any(), button.into_any())
}

/// Further roles with which the slice starts.
#[component]
fn FurtherRoles(
    board_state: BoardState,
    name: RoleName,
    selected: RwSignal<BTreeSet<RoleName>>,
) -> impl IntoView {
    let board = board_state.board().read_untracked();
    let own = board
        .groups
        .iter()
        .filter(|group| group.of_ancestor.is_none())
        .flat_map(|group| &group.roles);
    let others: Vec<RoleName> =
        own.filter(|role| role.role != name && is_bound(role)).map(|r| r.role.clone()).collect();
    drop(board);
    let line = move |role: RoleName| {
        let (of, set) = (StoredValue::new(role.clone()), role.clone());
        view! {
            <li>
                <label class="choice">
                    <input
                        type="checkbox"
                        prop:checked=move || of.with_value(|role| selected.read().contains(role))
                        on:change=move |event| {
                            let on = event_target_checked(&event);
                            selected.update(|selected| {
                                if on {
                                    selected.insert(set.clone())
                                } else { selected.remove(&set) };
                            });
                        }
                    />
                    <span>{role.to_string()}</span>
                </label>
            </li>
        }
    };
    (!others.is_empty()).then(|| {
        view! {
            <fieldset class="field">
                <legend>"Also start with these roles"</legend>
                <ul class="choices">{others.into_iter().map(line).collect_view()}</ul>
            </fieldset>
        }
    })
}

/// Whether a node already has the role. A role that is only proposed runs anyway.
pub(super) fn is_bound(role: &BoardRole) -> bool {
    role.more > 0 || role.noderoles.iter().any(|noderole| noderole.state != StepState::Proposed)
}

fn bound_nodes(noderoles: &[BoardNoderole]) -> Vec<NodeId> {
    noderoles
        .iter()
        .filter(|noderole| noderole.state != StepState::Proposed && !noderole.removed)
        .map(|noderole| noderole.node)
        .collect()
}

/// The nodes with a role, and the number of further ones: those in its cell, and those that do not
/// fit there.
fn role_nodes(
    board_state: BoardState,
    role: &BoardRole,
) -> (RwSignal<Vec<NodeId>>, RwSignal<usize>) {
    let (bound, more) = (RwSignal::new(bound_nodes(&role.noderoles)), RwSignal::new(role.more));
    if role.more > 0 {
        let (deployment, role) =
            (board_state.board().read_untracked().name.to_string(), role.role.clone());
        spawn_local(async move {
            if let Ok(all) = server_functions::role_noderoles(deployment, None, role).await {
                bound.try_set(bound_nodes(&all.noderoles));
                more.try_set(all.more);
            }
        });
    }
    (bound, more)
}
