//! Binding by menu: *Bind to…* for a selection, `+` for a role, and the confirmation if only some
//! of the nodes can be bound.

use std::collections::BTreeSet;
use std::time::Duration;

use api::calls::Call;
use api::views::board::{TrayFilter, TrayNode};
use engine::counting::many;
use engine::ids::{NodeId, RoleName};
use engine::plan::drop_preview::{DropPreview, RoleDropPreview};
use leptos::prelude::*;

use super::board_state::{BoardState, DragSource, Search, nodes};
use super::drop_outcome::{DropOutcome, legal, truncation_note};
use crate::components::{Dialog, DialogHandle, EquivalentCommands, FormValues, Icon, icon};
use crate::failure::ServerResult;

pub(super) fn open(board_state: BoardState, nodes: Vec<NodeId>) {
    if board_state.editable().get_untracked() && !nodes.is_empty() {
        board_state.start_drag(nodes, DragSource::Menu);
        board_state.dialogs.bind.open();
    }
}

/// Cancels the drag that a menu started, if the menu closes without a choice.
pub(super) fn cancel_menu_drag(board_state: BoardState) {
    if board_state.is_dragged_by(DragSource::Menu) {
        board_state.cancel();
    }
}

/// The binding of the valid nodes among the dragged ones, as equivalent commands.
fn bind_calls(board_state: BoardState, role: &RoleName) -> Vec<Call> {
    let (board, proposal, preview) =
        (board_state.board().get(), board_state.proposal().get(), board_state.drop_preview().get());
    let (Some(proposal), Some(preview)) = (proposal, preview) else { return Vec::new() };
    let named = |id: &NodeId| {
        board.tray.iter().find(|node| node.node == *id).map(|node| (*id, node.fqdn.clone()))
    };
    let nodes: Vec<_> = legal(&preview, role).iter().filter_map(named).collect();
    match nodes.is_empty() {
        true => Vec::new(),
        false => vec![api::calls::bind(
            (proposal.id, proposal.version),
            (board.id, &board.name),
            role,
            &nodes,
        )],
    }
}

#[component]
pub(super) fn BindDialog(board_state: BoardState, handle: DialogHandle) -> impl IntoView {
    let chosen = RwSignal::new(None::<RoleName>);
    let filter = RwSignal::new(String::new());
    let count =
        move || board_state.dragged().read().as_ref().map_or(0, |dragged| dragged.nodes.len());
    let title = Signal::derive(move || format!("Bind {} to a role", nodes(count())));
    let outcome = move || chosen.read().as_ref().and_then(|role| board_state.drop_outcome(role));
    let roles = move || {
        let Some(preview) = board_state.drop_preview().get() else {
            return view! { <p class="muted" role="status">"Checking roles"</p> }.into_any();
        };
        let query = filter.get().to_lowercase();
        let fits = |role: &&RoleDropPreview| role.role.as_str().contains(&query);
        let choices: Vec<_> = preview
            .roles
            .iter()
            .filter(fits)
            .map(|role| choice(chosen, &role.role, &DropOutcome::of(&preview, &role.role)))
            .collect();
        if choices.is_empty() {
            return view! {
                <p class="muted">"No role on this board matches. Add the role first."</p>
            }
            .into_any();
        }
        view! { <div class="choices" role="radiogroup" aria-label="Roles">{choices}</div> }
            .into_any()
    };
    let label = move || match outcome() {
        Some(DropOutcome::Partial { message: text, .. }) => {
            format!("Bind {} nodes", text.split(" can").next().unwrap_or_default())
        }
        _ => format!("Bind {}", nodes(count())),
    };
    view! {
        <Dialog
            id="bind-to"
            title=title
            handle=handle
            closed=Callback::new(move |()| {
                cancel_menu_drag(board_state);
                chosen.set(None);
                filter.set(String::new());
            })
        >
            <form
                class="form"
                on:submit=move |event| {
                    event.prevent_default();
                    if let Some(role) = chosen.get_untracked() {
                        board_state.bind_allowed(role);
                        handle.close();
                    }
                }
            >
                <div class="body">
                    <p class="muted">
                        {
                            move || board_state.dragged()
                                .read()
                                .as_ref()
                                .map(|dragged| board_state.names(&dragged.nodes))
                        }
                    </p>
                    <div class="field">
                        <label for="bind-filter">"Role"</label>
                        <input
                            class="input"
                            id="bind-filter"
                            autofocus
                            placeholder="Filter"
                            autocomplete="off"
                            prop:value=move || filter.get()
                            on:input=move |event| filter.set(event_target_value(&event))
                        />
                    </div>
                    {move || roles()}
                    <EquivalentCommands
                        of=move |_: FormValues| {
                            chosen.get()
                                .map(|role| bind_calls(board_state, &role))
                                .unwrap_or_default()
                        }
                    />
                </div>
                <div class="foot">
                    <button
                        class="button primary"
                        type="submit"
                        disabled=move || !outcome().is_some_and(|outcome| outcome.takes())
                    >
                        {move || label()}
                    </button>
                </div>
            </form>
        </Dialog>
    }
    .into_any()
}

fn choice(chosen: RwSignal<Option<RoleName>>, role: &RoleName, outcome: &DropOutcome) -> AnyView {
    let role = StoredValue::new(role.clone());
    view! {
        <label class="choice">
            <input
                type="radio"
                name="bind-role"
                value=role.get_value().to_string()
                disabled=!outcome.takes()
                prop:checked=move || chosen.read().as_ref() == Some(&role.get_value())
                on:change=move |_| chosen.set(Some(role.get_value()))
            />
            <span><b>{role.get_value().to_string()}</b><small>{outcome.text(true)}</small></span>
        </label>
    }
    .into_any()
}

/// Asks whether to bind only the valid nodes.
#[component]
pub(super) fn PartialBindDialog(board_state: BoardState) -> impl IntoView {
    let handle = board_state.dialogs.part;
    let found = move || {
        let role = board_state.part().get()?;
        board_state
            .drop_preview()
            .read()
            .as_ref()?
            .roles
            .iter()
            .find(|found| found.role == role)
            .cloned()
    };
    let title = Signal::derive(move || {
        let text = |found: RoleDropPreview| {
            format!(
                "Bind {} of {} nodes to {}?",
                found.legal.len(),
                found.legal.len() + found.illegal.len() + found.unknown.len(),
                found.role
            )
        };
        found().map(text).unwrap_or_default()
    });
    let reasons =
        move || {
            let found = found();
            let unknown = found.as_ref().and_then(truncation_note);
            let all = found.map(|found| found.illegal).unwrap_or_default();
            let refused = all
            .into_iter()
            .map(|node| view! {
                <li>{icon(Icon::Error)} <span><b>{node.short}</b> ": " {node.reason}</span></li>
            })
            .collect_view();
            let unknown =
                unknown.map(|text| view! { <li>{icon(Icon::Error)} <span>{text}</span></li> });
            (refused, unknown)
        };
    view! {
        <Dialog
            id="bind-part"
            title=title
            handle=handle
            closed=Callback::new(move |()| {
                board_state.part().set(None);
                if board_state.dragged().read_untracked().is_some() {
                    board_state.cancel();
                }
            })
        >
            <div class="body">
                <p>"These nodes cannot be bound:"</p>
                <ul class="reasons">{move || reasons()}</ul>
                <EquivalentCommands
                    of=move |_: FormValues| {
                        board_state.part()
                            .get()
                            .map(|role| bind_calls(board_state, &role))
                            .unwrap_or_default()
                    }
                />
            </div>
            <div class="foot">
                <button class="button" type="button" on:click=move |_| handle.close()>
                    "Cancel"
                </button>
                <button
                    class="button primary"
                    type="button"
                    on:click=move |_| {
                        if let Some(role) = board_state.part().get_untracked() {
                            board_state.bind_allowed(role);
                        }
                        handle.close();
                    }
                >
                    {
                        move || format!(
                            "Bind valid nodes ({})",
                            found().map_or(0, |found| found.legal.len())
                        )
                    }
                </button>
            </div>
        </Dialog>
    }
    .into_any()
}

/// Selects nodes for one role: the dialog behind `+`.
#[component]
pub(super) fn SelectNodes(
    board_state: BoardState,
    role: RoleName,
    taken: Callback<()>,
) -> impl IntoView {
    let tray = Memo::new(move |_| board_state.board().read().tray.clone());
    let role = StoredValue::new(role);
    let possible = RwSignal::new(None::<RoleDropPreview>);
    let chosen = RwSignal::new(BTreeSet::<NodeId>::new());
    let filter = RwSignal::new(String::new());
    let search = board_state.search(Memo::new(move |_| (filter.get(), TrayFilter::All)));
    load_candidates(board_state, role.get_value(), tray, possible);
    preview_selection(board_state, chosen);

    let drop_outcome = move || role.with_value(|role| board_state.drop_outcome(role));
    let fitting = Memo::new(move |_| {
        let (query, mut all) = (filter.get(), tray.get());
        all.retain(|node| TrayFilter::All.fits(node, &query));
        all
    });
    let list = move || {
        let (all, known) = (fitting.get(), possible.get());
        all.into_iter().map(move |node| node_choice(node, known.as_ref(), chosen)).collect_view()
    };
    // Nodes that are not in the list above.
    let unlisted = move || {
        let more = board_state.board().read().tray_more;
        match search.get() {
            Some(Search::Pending) => Some("Searching".to_owned()),
            // A search returns only the first nodes that match.
            Some(Search::Done(matching)) => {
                let further = matching.saturating_sub(fitting.read().len());
                (further > 0).then(|| {
                    format!("{further} more nodes match. Enter more of the name to see them.")
                })
            }
            None if more > 0 => Some(format!("{more} more nodes. Filter by name to see them.")),
            _ => None,
        }
    };
    let outcome = move || match (chosen.read().is_empty(), drop_outcome()) {
        (true, _) => String::new(),
        (false, None) => "Checking the impact".to_owned(),
        (false, Some(outcome)) => outcome.text(true),
    };
    let ready =
        move || !chosen.read().is_empty() && drop_outcome().is_some_and(|outcome| outcome.takes());
    view! {
        <form
            class="form"
            on:submit=move |event| {
                event.prevent_default();
                board_state.bind_allowed(role.get_value());
                taken.run(());
            }
        >
            <div class="body">
                <div class="field">
                    <label for="nodes-for-filter">"Nodes"</label>
                    <input
                        class="input"
                        id="nodes-for-filter"
                            autofocus
                        placeholder="Filter"
                        autocomplete="off"
                        prop:value=move || filter.get()
                        on:input=move |event| filter.set(event_target_value(&event))
                    />
                </div>
                <div class="choices" role="group" aria-label="Nodes">{move || list()}</div>
                {move || unlisted().map(|text| view! { <p class="help">{text}</p> })}
                <p role="status">{move || outcome()}</p>
                <EquivalentCommands
                    of=move |_: FormValues| {
                        role.with_value(|role| bind_calls(board_state, role))
                    }
                />
            </div>
            <div class="foot">
                <button class="button primary" type="submit" disabled=move || !ready()>
                    {move || format!("Bind {}", nodes(chosen.read().len()))}
                </button>
            </div>
        </form>
    }
    .into_any()
}

fn node_choice(
    node: TrayNode,
    possible: Option<&RoleDropPreview>,
    chosen: RwSignal<BTreeSet<NodeId>>,
) -> AnyView {
    let id = node.node;
    let refusal = possible
        .and_then(|role| role.illegal.iter().find(|illegal| illegal.node == id))
        .map(|n| n.reason.clone());
    let about = refusal
        .clone()
        .unwrap_or_else(|| format!("in {}, {}", node.deployment, many(node.noderoles, "noderole")));
    view! {
        <label class="choice">
            <input
                type="checkbox"
                value=node.short.clone()
                disabled=refusal.is_some()
                prop:checked=move || chosen.read().contains(&id)
                on:change=move |event| {
                    let on = event_target_checked(&event);
                    chosen.update(|chosen| {
                        if on { chosen.insert(id) } else { chosen.remove(&id) };
                    });
                }
            />
            <span><b>{node.short}</b><small>{about}</small></span>
        </label>
    }
    .into_any()
}

/// Requests the nodes that can be bound to the role, and the reasons against the others.
fn load_candidates(
    board_state: BoardState,
    role: RoleName,
    tray: Memo<Vec<TrayNode>>,
    possible: RwSignal<Option<RoleDropPreview>>,
) {
    let nodes = Memo::new(move |_| tray.read().iter().map(|n| n.node).collect::<Vec<_>>());
    Effect::new(move |_| {
        let (all, role) = (nodes.get(), role.clone());
        if all.is_empty() {
            return;
        }
        let take = move |answer: ServerResult<DropPreview>| match answer {
            Ok(preview) => {
                possible.try_set(preview.roles.into_iter().find(|found| found.role == role));
            }
            Err(failure) => {
                board_state.problem().try_set(Some(failure.0));
            }
        };
        untrack(|| board_state.load_bind_options(all, take));
    });
}

/// Starts to drag the selected nodes after a short delay, to preview the binding.
fn preview_selection(board_state: BoardState, chosen: RwSignal<BTreeSet<NodeId>>) {
    Effect::new(move |last: Option<Option<TimeoutHandle>>| {
        if let Some(Some(waiting)) = last {
            waiting.clear();
        }
        let nodes: Vec<NodeId> = chosen.get().into_iter().collect();
        if nodes.is_empty() {
            untrack(|| cancel_menu_drag(board_state));
            return None;
        }
        set_timeout_with_handle(
            move || board_state.start_drag(nodes, DragSource::Menu),
            Duration::from_millis(150),
        )
        .ok()
    });
}
