//! A filtered list of all nodes with a role, for roles with more nodes than fit in a cell.

use api::views::board::{BoardNoderole, BoardRole, RoleNoderoles};
use engine::ids::DeploymentName;
use leptos::prelude::*;

use super::board_state::BoardState;
use super::noderole_cell::noderole_view;
use super::open_edit::{BoardRoleRef, OpenEdit};
use super::server_functions;
use crate::addresses;
use crate::components::{Feed, ProblemNotice, rows};

/// The count after a cell's chips. Without JavaScript it links to the table of the graph, which has
/// the same list.
pub(super) fn more(
    board_state: BoardState,
    role: &BoardRole,
    of_ancestor: Option<DeploymentName>,
) -> impl IntoView + use<> {
    let role_ref = BoardRoleRef { role: role.role.clone(), of_ancestor };
    let place = addresses::graph(&board_state.board().read_untracked().name);
    let place = format!("{place}?roles={}&as=table", addresses::encoded(role.role.as_str()));
    let more = role.more;
    view! {
        <a
            class="chip more"
            href=place
            aria-label=format!("+{more} more with {}, show all", role.role)
            on:click=move |event| {
                event.prevent_default();
                event.stop_propagation();
                board_state.ask(OpenEdit::NodesWithRole(role_ref.clone()));
            }
        >
            "+"
            {more}
            " more"
        </a>
    }
}

#[component]
pub(super) fn NodesWithRole(
    board_state: BoardState,
    role_ref: BoardRoleRef,
    taken: Callback<()>,
) -> impl IntoView {
    let role = StoredValue::new(role_ref.role.clone());
    let filter = RwSignal::new(String::new());
    let deployment = board_state.board().read_untracked().name.to_string();
    // Fetches again whenever the board changes, since the list may have changed too.
    let feed = Feed::new(None::<RoleNoderoles>, move || {
        let (deployment, role_ref) = (deployment.clone(), role_ref.clone());
        async move {
            let of = role_ref.of_ancestor.map(|name| name.to_string());
            server_functions::role_noderoles(deployment, of, role_ref.role).await.map(Some)
        }
    });
    let found = feed.value();
    Effect::new(move |_| {
        board_state.board().track();
        feed.now();
    });
    let shown = Memo::new(move |_| {
        let query = filter.read().trim().to_lowercase();
        let noderoles =
            found.read().as_ref().map(|found| found.noderoles.clone()).unwrap_or_default();
        noderoles
            .into_iter()
            .filter(|noderole| noderole.fqdn.contains(&query))
            .collect::<Vec<BoardNoderole>>()
    });
    let text = move || match &*found.read() {
        None => "Searching".to_owned(),
        Some(found) if found.more > 0 => {
            format!(
                "The first {} of {}, by name.",
                found.noderoles.len(),
                found.noderoles.len() + found.more
            )
        }
        Some(found) => format!("{} of {}", shown.read().len(), found.noderoles.len()),
    };
    view! {
        <div class="body">
            <div class="field">
                <label for="all-of-filter">"Filter by name"</label>
                <input
                    class="input"
                    id="all-of-filter"
                    autofocus
                    autocomplete="off"
                    prop:value=move || filter.get()
                    on:input=move |event| filter.set(event_target_value(&event))
                />
            </div>
            <ProblemNotice problem=feed.problem() retry=feed.retry()/>
            <p class="muted" role="status">{move || text()}</p>
            // A chip opens its panel, which this dialog would cover.
            <ul class="chips tall" on:click=move |_| taken.run(())>
                {
                    rows(
                        shown.into(),
                        |noderole| noderole.noderole,
                        move |noderole| noderole_view(board_state, role, noderole)
                    )
                }
            </ul>
        </div>
    }
    .into_any()
}
