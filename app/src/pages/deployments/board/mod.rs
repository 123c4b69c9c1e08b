//! The deployment board: the nodes of each role, and the starting point of changes.
//!
//! Rows are roles, cells contain node chips, and the tray contains nodes that could be bound. While
//! a proposal is open, the board stays live and also shows the additions of the proposal. There are
//! three ways to bind: drag and drop, *Bind to…* and the keyboard. Each selects nodes, shows the
//! impact in every row, and binds. All end in one command ([`board_state::BoardState::bind`]).

mod add_role;
mod address;
mod bind;
mod edit_dialog;
mod proposal_bar;
pub mod server_functions;

mod board_state;
mod cluster_edits;
mod deployment_edits;
mod drop_outcome;
mod grid;
mod hold;
mod menu;
mod move_nodes;
mod noderole_cell;
mod open_edit;
mod planner;
mod priority;
mod role;
mod role_noderoles;
mod step_states;
mod tray;
mod version;

use std::future::ready;

use api::deployments::NoderoleView;
use api::live::Topic;
use api::views::board::{Board, BoardQuery};
use engine::ids::{DeploymentName, NoderoleId};
use leptos::ev;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::{use_navigate, use_params_map, use_query_map};
use leptos_router::location::Url;
use leptos_router::params::ParamsMap;
use wasm_bindgen::JsCast;

use crate::addresses;
use crate::components::action::{on_success, problem_of};
use crate::components::{
    DialogHandle, EquivalentCommands, FormValues, Icon, ProblemNotice, icon, load, load_part,
    loading_text,
};
use crate::failure::ServerResult;
use crate::live::use_live;
use crate::pages::deployments::noderole;
use address::Address;
use board_state::BoardState;
pub(crate) use cluster_edits::RISKS;
use open_edit::OpenEdit;
use server_functions::Propose;

/// A deployment's board, by the name in the address.
#[component]
pub fn BoardPage() -> impl IntoView {
    let params = use_params_map();
    let name = Memo::new(move |_| params.read().get("name").unwrap_or_default());
    let filter = filter_in_address();
    let board = Resource::new(
        move || name.get(),
        move |name| server_functions::board(name, filter.get_untracked()),
    );
    let panel = panel_in_address();
    // Created here and not with the panel: see `Frame`.
    let noderole = Resource::new(move || panel.get(), load_panel);
    load(board, move |first| view! { <Loaded first filter panel noderole/> })
}

#[component]
fn Loaded(
    first: Board,
    filter: Memo<BoardQuery>,
    panel: Memo<Option<NoderoleId>>,
    noderole: Resource<PanelResult>,
) -> impl IntoView {
    let (id, cursor, name) = (first.id, first.cursor, first.name.clone());
    let board_state = BoardState::new(first, filter, edit_dialog::load_forms);
    provide_context(board_state);
    let query = use_query_map();
    let of = name.clone();
    provide_context(Memo::new(move |_| Address::of(&of, &query.read())));
    // The topic of nodes is needed because the tray also has nodes of other deployments, new nodes
    // and dead nodes.
    use_live().subscribe(
        vec![Topic::Deployment(id), Topic::Blueprints, Topic::Nodes],
        cursor,
        move |events| board_state.on_events(events),
    );

    let propose = ServerAction::<Propose>::new();
    on_success(propose, move |_| {
        board_state.feed().now();
        board_state
            .announce("Proposal opened. Drag nodes onto roles, or select nodes and press B.");
    });
    let dialogs = Dialogs { hold: DialogHandle::new(), priority: DialogHandle::new() };
    listen_to_keys(board_state);
    open_move_form(board_state);
    open_policy_form(board_state);
    let with_panel = move || panel.get().is_some();
    view! {
        <Title text=name.to_string()/>
        <Head board_state dialogs/>
        <hold::HoldNotice board_state/>
        <MoveHint board_state/>
        <NoScriptHint board_state/>
        <proposal_bar::ProposalBar board_state propose/>
        <div
            class="board"
            class:with-panel=with_panel
            data-planner=move || board_state.plans().get().label()
        >
            <grid::Grid board_state/>
            <tray::Tray board_state/>
            {move || panel.get().map(|id| view! { <SidePanel id board_state noderole/> })}
        </div>
        <bind::BindDialog board_state handle=board_state.dialogs.bind/>
        <bind::PartialBindDialog board_state/>
        <hold::HoldDialog board_state handle=dialogs.hold/>
        <priority::PriorityDialog board_state handle=dialogs.priority/>
        <edit_dialog::EditDialog board_state/>
        // Not above the rows: a message that appears there would shift them, and the user would
        // grab the wrong node.
        <div class="board-notices">
            <ProblemNotice problem=board_state.feed().problem() retry=board_state.feed().retry()/>
            <ProblemNotice problem=problem_of(propose)/>
            <ProblemNotice
                problem=board_state.problem()
                dismiss=Callback::new(move |()| board_state.problem().set(None))
            />
        </div>
        <div class="visually-hidden" role="status" aria-live="assertive">
            {move || board_state.announcement().get()}
        </div>
    }
    .into_any()
}

/// The hint for browsers without JavaScript.
#[component]
fn NoScriptHint(board_state: BoardState) -> impl IntoView {
    let about = move || {
        let proposal = board_state
            .proposal()
            .read()
            .as_ref()
            .map(|proposal| proposal.id)
            .filter(|_| board_state.editable().get());
        match proposal {
            Some(id) => view! {
                <p>
                    "Without JavaScript you can read the board, and undo, redo, discard or submit \
                     the proposal. Other edits need JavaScript or the API: \
                     " <code>"POST /api/v1/proposals/" {id.0} "/edits"</code> "."
                </p>
            }
            .into_any(),
            None => view! {
                <p>"Without JavaScript the board is read-only and does not update."</p>
            }
            .into_any(),
        }
    };
    view! {
        <div class="no-scripts">
            <div class="notice refused" data-state="todo">
                {icon(Icon::Warn)} <div><b>"JavaScript is disabled"</b> {move || about()}</div>
            </div>
        </div>
    }
    .into_any()
}

#[derive(Clone, Copy)]
struct Dialogs {
    hold: DialogHandle,
    priority: DialogHandle,
}

/// The name of the node that the address moves here.
fn sent() -> Option<String> {
    use_query_map().read().get("bring").filter(|name| !name.is_empty())
}

/// Opens the policy form if the address asks for it.
fn open_policy_form(board_state: BoardState) {
    let query = use_query_map();
    let is_requested = Memo::new(move |_| query.read().get("ask").as_deref() == Some("policy"));
    let is_open = board_state.editable();
    Effect::new(move |_| {
        if is_requested.get() && is_open.get() {
            board_state.ask(OpenEdit::Policy);
        }
    });
}

/// Opens the move form for the node in the address, once there is an open proposal.
fn open_move_form(board_state: BoardState) {
    let sent = Memo::new(move |_| sent());
    let is_open = board_state.editable();
    Effect::new(move |_| {
        if let Some(name) = sent.get().filter(|_| is_open.get()) {
            board_state.ask(OpenEdit::MoveHere(name));
        }
    });
}

/// The next step that is necessary to move the node in the address.
#[component]
fn MoveHint(board_state: BoardState) -> impl IntoView {
    let sent = Memo::new(move |_| sent());
    move || {
        let name = sent.get().filter(|_| board_state.proposal().read().is_none())?;
        Some(view! {
            <div class="notice refused" data-state="todo" role="status">
                {icon(Icon::Bind)}
                <p>
                    <b>{name}</b>
                    " is selected for a move to this deployment. Propose changes to continue."
                </p>
            </div>
        })
    }
}

/// The filter of the rows. It is in the address, so that links and the back button work.
fn filter_in_address() -> Memo<BoardQuery> {
    let query = use_query_map();
    Memo::new(move |_| BoardQuery {
        not_active: address::is_not_active(&query.read()),
        ..BoardQuery::default()
    })
}

/// The noderole of the open panel. It is in the address, so that links and the back button work.
fn panel_in_address() -> Memo<Option<NoderoleId>> {
    let query = use_query_map();
    Memo::new(move |_| parse_panel(&query.read()))
}

fn parse_panel(query: &ParamsMap) -> Option<NoderoleId> {
    query.get("noderole").and_then(|id| id.parse().ok())
}

/// Whether an address opens the panel.
pub(crate) fn has_panel(address: &Url) -> bool {
    parse_panel(address.search_params()).is_some()
}

type PanelResult = ServerResult<Option<NoderoleView>>;

async fn load_panel(id: Option<NoderoleId>) -> PanelResult {
    match id {
        Some(id) => noderole::noderole(id).await.map(Some),
        None => Ok(None),
    }
}

#[component]
fn Head(board_state: BoardState, dialogs: Dialogs) -> impl IntoView {
    let board = board_state.board();
    let above = move || {
        let names = board.read().ancestors.clone();
        let link = |name: DeploymentName| {
            view! {
                <a href=addresses::deployment(&name)>{name.to_string()}</a> " / "
            }
        };
        names.into_iter().map(link).collect_view()
    };
    let state =
        move || {
            match board_state.proposal().read().is_some() {
        true => view! {
            <span class="pill" data-state="proposed">{icon(Icon::Proposed)} "PROPOSED"</span>
        }.into_any(),
        // Not the style of a step's state: the states of the steps are shown next to it.
        false => view! {
            <span class="pill flat">{icon(Icon::Blueprint)} "COMMITTED"</span>
        }.into_any(),
    }
        };
    let hold_badge = move || {
        let is_held = board.read().hold.is_some();
        is_held.then(
            || view! { <span class="pill" data-state="warn">{icon(Icon::Paused)} "ON HOLD"</span> },
        )
    };
    let act = move || {
        if board_state.editable().get() {
            return view! {
                <button
                    class="button needs-scripts"
                    type="button"
                    aria-haspopup="dialog"
                    on:click=move |_| board_state.ask(OpenEdit::AddRole)
                >
                    {icon(Icon::Plus)}
                    "Add role"
                </button>
                <button
                    class="button quiet needs-scripts"
                    type="button"
                    aria-haspopup="dialog"
                    on:click=move |_| board_state.ask(OpenEdit::More)
                >
                    {icon(Icon::Down)}
                    "More…"
                </button>
            }
            .into_any();
        }
        match (&board.read().proposal, board.read().may_propose.reason()) {
            (Some(_), Some(reason)) => view! {
                <small class="muted">
                    "You cannot edit this proposal: " {reason.to_owned()}
                </small>
            }
            .into_any(),
            _ => ().into_any(),
        }
    };
    let propose = move || vec![api::calls::propose(&board.read().name)];
    view! {
        <div class="head">
            <div>
                <div class="muted">
                    {move || above()} {move || board.read().name.to_string()}
                    " · last changed by blueprint " {move || board.read().blueprint.0}
                </div>
                <h1>
                    {move || board.read().name.to_string()} {move || state()} {move || hold_badge()}
                    <priority::PriorityNotice board_state/>
                </h1>
            </div>
            <div class="buttons">
                // First, so that the other buttons keep their position when a proposal opens.
                {move || act()}
                <a class="button quiet" href=move || addresses::pending_in(&board.read().name)>
                    {icon(Icon::Queued)} "Pending"
                </a>
                {move || board.read().may_propose.is_allowed().then(|| view! {
                    <hold::HoldButton board_state handle=dialogs.hold/>
                    <priority::PriorityButton handle=dialogs.priority/>
                })}
            </div>
            // On a line of its own, so that it does not wrap when a proposal adds buttons.
            <step_states::StepStates board_state/>
        </div>
        <EquivalentCommands of=move |_: FormValues| match board_state.editable().get() {
            // Without steps, the command to open the proposal keeps the place.
            true => Some(proposal_bar::steps(board_state))
                .filter(|steps| !steps.is_empty())
                .unwrap_or_else(propose),
            false => propose(),
        }/>
    }
    .into_any()
}

/// The panel next to the board. It takes the focus when it opens. Closing returns the focus to the
/// chip.
#[component]
fn SidePanel(
    id: NoderoleId,
    board_state: BoardState,
    noderole: Resource<PanelResult>,
) -> impl IntoView {
    let page_address = expect_context::<Memo<Address>>();
    let close = move || page_address.read().panel(None).link();
    let heading = NodeRef::<leptos::html::H2>::new();
    let title = board_state.noderole_title(id);
    Effect::new(move |_| {
        if let Some(heading) = heading.get() {
            let _ = heading.focus();
        }
    });
    on_cleanup(move || focus_noderole(id));
    let edited = Callback::new(move |()| board_state.feed().now());
    let details = move |found: Option<NoderoleView>| async move {
        match found {
            Some(first) if first.id == id => noderole::noderole_panel::shown(first, edited).await,
            _ => ().into_any(),
        }
    };
    let problem = |problem| {
        ready(view! { <div class="padded"><ProblemNotice problem=Some(problem)/></div> }.into_any())
    };
    view! {
        <aside class="card panel" aria-labelledby="panel-title">
            <header>
                <h2 id="panel-title" class="grow" tabindex="-1" node_ref=heading>{title}</h2>
                <a
                    class="button quiet small only-icon"
                    href=addresses::noderole(id)
                    aria-label="Open as a page"
                    title="Open as a page"
                >
                    {icon(Icon::Wide)}
                </a>
                <a
                    class="button quiet small only-icon"
                    href=close data-noscroll data-close-panel
                    aria-label="Close"
                    title="Close (Esc)"
                >
                    {icon(Icon::Cross)}
                </a>
            </header>
            {load_part(noderole, loading_text, details, problem)}
        </aside>
    }
    .into_any()
}

fn focus_noderole(id: NoderoleId) {
    #[cfg(not(feature = "ssr"))]
    if let Ok(Some(element)) = document().query_selector(&format!("[data-noderole='{id}']")) {
        let _ = element.unchecked_into::<web_sys::HtmlElement>().focus();
    }
    #[cfg(feature = "ssr")]
    let _ = id;
}

/// Keyboard shortcuts of the board: undo, redo, bind the selection, open a node's menu, close the
/// panel.
fn listen_to_keys(board_state: BoardState) {
    let navigate = use_navigate();
    let page_address = expect_context::<Memo<Address>>();
    Effect::new(move |_| {
        let navigate = navigate.clone();
        let handle = window_event_listener(ev::keydown, move |event| {
            let has_panel = page_address.read_untracked().noderole.is_some();
            // Escape closes the panel from its fields, too.
            let is_typing = is_in_field(&event) && !(has_panel && is_in_panel(&event));
            if event.default_prevented() || is_typing || is_dialog_open() {
                return;
            }
            let command = event.ctrl_key() || event.meta_key();
            match event.key().as_str() {
                "z" if command && !event.shift_key() => board_state.undo(),
                "Z" | "z" | "y" if command => board_state.redo(),
                "b" | "B" if !command && !board_state.selected().read_untracked().is_empty() => {
                    bind::open(board_state, board_state.selected_nodes());
                }
                "Delete" if menu::unbind_focused(board_state, &event) => {}
                "ContextMenu" if menu::open_for_focused(board_state, &event) => {}
                "F10" if event.shift_key() && menu::open_for_focused(board_state, &event) => {}
                "Escape" if has_panel => {
                    navigate(
                        &page_address.read_untracked().panel(None).link(),
                        leptos_router::NavigateOptions { scroll: false, ..Default::default() },
                    );
                }
                _ => return,
            }
            event.prevent_default();
        });
        on_cleanup(move || handle.remove());
    });
}

/// Whether Escape was pressed in the panel.
fn is_in_panel(event: &ev::KeyboardEvent) -> bool {
    let target = event.target().and_then(|target| target.dyn_into::<web_sys::Element>().ok());
    let panel = target.and_then(|element| element.closest(".panel").ok().flatten());
    event.key() == "Escape" && panel.is_some()
}

fn is_in_field(event: &ev::KeyboardEvent) -> bool {
    let target = event.target().and_then(|target| target.dyn_into::<web_sys::Element>().ok());
    target.is_some_and(|element| {
        matches!(element.tag_name().as_str(), "INPUT" | "TEXTAREA" | "SELECT")
    })
}

fn is_dialog_open() -> bool {
    matches!(document().query_selector("dialog[open]"), Ok(Some(_)))
}
