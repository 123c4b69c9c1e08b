//! Moves nodes between deployments: from here to a child, or from anywhere to here. Other moves are
//! impossible, because the proposal's review would not cover them.

use std::collections::BTreeMap;
use std::time::Duration;

use api::Problem;
use api::nodes::NodeSummary;
use api::nodes::NodesQuery;
use api::views::board::DestinationChoice;
use engine::ids::NodeId;
use engine::plan::{Edit, edit};
use leptos::prelude::*;
use leptos::task::spawn_local;

use super::board_state::{BoardState, nodes};
use super::drop_outcome::named;
use super::open_edit::NodeInDeployment;
use crate::components::{ProblemNotice, rows};
use crate::pages::deployments::DeploymentField;
use crate::pages::nodes;
use crate::pages::proposals::{EditForm, SubmitButton};

/// The delay after the last keystroke before the server is queried.
const SETTLE: Duration = Duration::from_millis(200);

impl NodeInDeployment {
    fn is_in(&self, choice: &DestinationChoice) -> bool {
        self.deployment.as_ref() == Some(&choice.name)
    }
}

/// Moves nodes to this deployment or to one of its children.
#[component]
pub(super) fn Move(
    board_state: BoardState,
    nodes: Vec<NodeInDeployment>,
    taken: Callback<()>,
) -> impl IntoView {
    let to = RwSignal::new(String::new());
    let places = Memo::new(move |_| board_state.board().read().destinations.clone());
    let moving = StoredValue::new(nodes.clone());
    let coming = move |choice: &DestinationChoice| {
        moving.with_value(|nodes| {
            nodes
                .iter()
                .filter(|node| !node.is_in(choice))
                .map(|n| n.named.clone())
                .collect::<Vec<_>>()
        })
    };
    let chosen_place = move || {
        let to = to.read();
        places.read().iter().find(|choice| choice.name.as_str() == to.trim()).cloned()
    };
    let edit_form = EditForm::new(board_state.pen(), move || {
        let Some(choice) = chosen_place() else { return Vec::new() };
        coming(&choice)
            .into_iter()
            .map(|node| Edit::MoveNode(edit::MoveNode { node: node.node, deployment: choice.id }))
            .collect()
    });
    let offers = Memo::new(move |_| {
        let offer = |choice: &DestinationChoice| {
            (choice.name.to_string(), choice.proposed.then_some("created by this proposal"))
        };
        places.read().iter().map(offer).collect::<Vec<_>>()
    });
    let about = move || match chosen_place() {
        Some(choice) if coming(&choice).is_empty() => "Already in this deployment.",
        None if !to.read().trim().is_empty() => {
            "No deployment with this name exists here or below."
        }
        _ => "This deployment or one below it. For other deployments, use Move on the page Nodes.",
    };
    let names: Vec<&str> = nodes.iter().map(|node| node.named.short.as_str()).collect();
    let names = (names.len() > 1).then(|| named(&names));
    let fields = view! {
        {names.map(|names| view! { <p>{names}</p> })}
        <div class="field">
            <label for="move-to-deployment">"New deployment"</label>
            <DeploymentField
                id="move-to-deployment"
                value=to
                typed=Callback::new(move |text| to.set(text))
                among=offers
            />
            <span class="hint" role="status">{about}</span>
        </div>
    };
    let button = view! { <SubmitButton of=edit_form/> };
    let done = move || {
        let choice = untrack(chosen_place)?;
        Some(format!(
            "The proposal moves {} to {}.",
            super::board_state::nodes(coming(&choice).len()),
            choice.name
        ))
    };
    edit_form.view(taken, done, fields.into_any(), button.into_any())
}

/// Moves nodes here from any deployment.
#[component]
pub(super) fn MoveHere(
    board_state: BoardState,
    fqdn: String,
    taken: Callback<()>,
) -> impl IntoView {
    let filter = RwSignal::new(fqdn.clone());
    let found = RwSignal::new(None::<(Vec<NodeSummary>, bool)>);
    let chosen = RwSignal::new(BTreeMap::<NodeId, NodeSummary>::new());
    let problem = RwSignal::new(None::<Problem>);
    search_nodes(filter, found, problem);
    // A node that the address names is selected at once.
    Effect::new(move |_| {
        let found = found.read();
        let preselected = found.iter().flat_map(|(nodes, _)| nodes).find(|node| node.fqdn == fqdn);
        if let Some(preselected) = preselected.filter(|_| untrack(|| chosen.read().is_empty())) {
            let deployment = board_state.board().read_untracked().name.clone();
            if preselected.deployment != deployment {
                chosen.update(|chosen| drop(chosen.insert(preselected.id, preselected.clone())));
            }
        }
    });
    let edit_form = EditForm::new(board_state.pen(), move || {
        let deployment = board_state.board().read_untracked().id;
        chosen
            .read()
            .keys()
            .map(|node| Edit::MoveNode(edit::MoveNode { node: *node, deployment }))
            .collect()
    });
    // Selected nodes stay visible when the filter changes.
    let list = Memo::new(move |_| {
        let chosen = chosen.get();
        let other = found
            .read()
            .iter()
            .flat_map(|(nodes, _)| nodes)
            .filter(|n| !chosen.contains_key(&n.id))
            .cloned()
            .collect::<Vec<_>>();
        chosen.into_values().chain(other).collect::<Vec<_>>()
    });
    let line = move |node: Memo<NodeSummary>| node_row(board_state, chosen, node);
    let none = move || {
        let found = found.read();
        let (nodes, more) = found.as_ref()?;
        match (nodes.is_empty(), *more) {
            (true, _) => Some("No node matches."),
            (false, true) => Some("More nodes match. Type a part of the name."),
            (false, false) => None,
        }
    };
    let fields = view! {
        <div class="field">
            <label for="move-nodes-filter">"Name contains"</label>
            <input
                class="input"
                id="move-nodes-filter"
                autofocus
                autocomplete="off"
                spellcheck="false"
                prop:value=move || filter.get()
                on:input=move |event| filter.set(event_target_value(&event))
            />
        </div>
        <ul class="choices" aria-label="Nodes">{rows(list.into(), |node| node.id, line)}</ul>
        <p class="muted" role="status">{move || none()}</p>
        <ProblemNotice problem/>
    };
    let button = view! { <SubmitButton of=edit_form/> };
    let done = move || {
        let count = chosen.read_untracked().len();
        Some(format!("The proposal moves {} here.", nodes(count)))
    };
    edit_form.view(taken, done, fields.into_any(), button.into_any())
}

fn node_row(
    board_state: BoardState,
    chosen: RwSignal<BTreeMap<NodeId, NodeSummary>>,
    node: Memo<NodeSummary>,
) -> impl IntoView {
    let id = node.read_untracked().id;
    let is_here = move || node.read().deployment == board_state.board().read().name;
    let about = move || match is_here() {
        true => "already here".to_owned(),
        false => format!("in {}", node.read().deployment),
    };
    view! {
        <li>
            <label class="choice">
                <input
                    type="checkbox"
                    disabled=is_here
                    prop:checked=move || chosen.read().contains_key(&id)
                    on:change=move |event| {
                        let on = event_target_checked(&event);
                        chosen.update(|chosen| {
                            if on {
                                chosen.insert(id, node.get_untracked())
                            } else { chosen.remove(&id) };
                        });
                    }
                />
                <span>
                    <b>{move || node.read().fqdn.clone()}</b> " " <small>{move || about()}</small>
                </span>
            </label>
        </li>
    }
    .into_any()
}

/// Searches nodes by name, after a pause in typing.
fn search_nodes(
    filter: RwSignal<String>,
    found: RwSignal<Option<(Vec<NodeSummary>, bool)>>,
    problem: RwSignal<Option<Problem>>,
) {
    let ask = move |text: String| {
        spawn_local(async move {
            let preselected =
                NodesQuery { filter: text.trim().to_owned(), ..NodesQuery::default() };
            let answer = nodes::server_functions::nodes(preselected).await;
            // The response to an outdated query.
            if filter.try_get_untracked().as_ref() != Some(&text) {
                return;
            }
            match answer {
                Ok(page) => {
                    problem.try_set(None);
                    found.try_set(Some((page.nodes, page.next.is_some())));
                }
                Err(failure) => drop(problem.try_set(Some(failure.0))),
            }
        });
    };
    Effect::new(move |waiting: Option<Option<TimeoutHandle>>| {
        let text = filter.get();
        match waiting {
            Some(waiting) => {
                waiting.inspect(TimeoutHandle::clear);
                set_timeout_with_handle(move || ask(text), SETTLE).ok()
            }
            None => {
                ask(text);
                None
            }
        }
    });
}
