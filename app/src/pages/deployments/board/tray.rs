//! The tray: nodes that could be bound. They can be selected, and dragged with the pointer or the
//! keyboard.

use api::views::board::{MAX_FOUND_NODES, TrayFilter, TrayNode};
use engine::ids::NodeId;
use leptos::ev::{DragEvent, KeyboardEvent, MouseEvent};
use leptos::html;
use leptos::prelude::*;
use leptos_router::NavigateOptions;
use leptos_router::hooks::use_navigate;
use std::time::Duration;
use wasm_bindgen::JsCast;

use super::address::{Address, TRAY_FILTERS, filter_param, parse_filter};
use super::bind;
use super::board_state::{BoardState, Direction, DragSource, Key, Search, nodes};
use super::open_edit::{NodeInDeployment, OpenEdit, Subject, node_summary};
use crate::components::{Icon, icon, rows};
use crate::pages::proposals::Named;

#[component]
pub(super) fn Tray(board_state: BoardState) -> impl IntoView {
    let page_address = expect_context::<Memo<Address>>();
    let filter = RwSignal::new(page_address.read_untracked().nodes.clone());
    // The filter also changes through the address: back, forward or a link.
    Effect::new(move |last: Option<String>| {
        let now = page_address.read().nodes.clone();
        if last.is_some_and(|last| last != now) {
            filter.set(now.clone());
        }
        now
    });
    let all = Memo::new(move |_| board_state.board().read().tray.clone());
    let fitting = Memo::new(move |_| {
        let (text, show) = (filter.get(), page_address.read().show);
        let all = all.read();
        all.iter().filter(|node| show.fits(node, &text)).cloned().collect::<Vec<_>>()
    });
    let search = board_state.search(Memo::new(move |_| (filter.get(), page_address.read().show)));
    // If the board does not list all nodes, the server knows how many match.
    let matching = move || match search.get() {
        Some(Search::Done(count)) => count.max(fitting.read().len()),
        _ => fitting.read().len(),
    };
    let shown =
        Memo::new(move |_| fitting.read().iter().take(MAX_TRAY_NODES).cloned().collect::<Vec<_>>());
    let navigate = use_navigate();
    let narrow = StoredValue::new(move |show: TrayFilter| {
        let link =
            page_address.read_untracked().narrowed(filter.read_untracked().trim(), show).link();
        navigate(&link, NavigateOptions { replace: true, scroll: false, ..Default::default() });
    });
    let open = board_state.editable();
    let more = Memo::new(move |_| board_state.board().read().tray_more);
    let is_filtered =
        move || !filter.read().trim().is_empty() || page_address.read().show != TrayFilter::All;
    let hidden = move || {
        let unlisted = if is_filtered() { 0 } else { more.get() };
        (matching() + unlisted).saturating_sub(shown.read().len())
    };
    let floor = TrayState {
        shown,
        focus: RwSignal::new(None),
        anchor: StoredValue::new(None),
        drag_image: NodeRef::new(),
    };
    let help = move || {
        match (open.get(), board_state.proposal().read().is_some()) {
        (true, _) => view! {
            <p class="help needs-scripts">
                "Drag nodes onto a role, or select nodes and \
                 press " <b>"Bind to…"</b> " " <kbd>"B"</kbd> ". Keyboard: " <kbd>"Space"</kbd>
                " picks up, arrow keys choose, " <kbd>"Enter"</kbd> " drops, " <kbd>"Esc"</kbd> " cancels. "
                <kbd>"Shift F10"</kbd> " or a right click opens the menu of a node."
            </p>
        }
        .into_any(),
        (false, true) => view! {
            <p class="help">"Nodes of this deployment and those above it."</p>
        }.into_any(),
        (false, false) => view! {
            <p class="help">
                "Nodes of this deployment and those above it. Propose changes to bind them to \
                 roles."
            </p>
        }.into_any(),
    }
    };
    let count = move || {
        let all = all.read().len() + more.get();
        match is_filtered() {
            true => format!("{} of {all}", matching()),
            false => all.to_string(),
        }
    };
    let none = move || {
        let text = match (all.read().is_empty(), shown.read().is_empty()) {
            (true, _) => "No nodes yet. Add a node on the page Nodes.",
            (false, true) if search.get() == Some(Search::Pending) => "Searching",
            (false, true) => "No node matches. Filter by name or deployment.",
            _ => return None,
        };
        Some(view! { <p class="help">{text}</p> })
    };
    view! {
        <section class="card tray" aria-labelledby="tray-title">
            <header>
                <h2 id="tray-title">"Nodes"</h2>
                <span class="muted" role="status">{move || count()}</span>
            </header>
            <div>
                <form
                    class="tools"
                    role="search"
                    aria-label="Nodes"
                    method="get"
                    on:submit=move |event| {
                        event.prevent_default();
                        narrow.with_value(|narrow| narrow(page_address.read_untracked().show));
                    }
                >
                    <label class="visually-hidden" for="tray-filter">
                        "Filter nodes by name or deployment"
                    </label>
                    <input
                        class="input"
                        id="tray-filter"
                        name="nodes"
                        placeholder="Filter nodes"
                        autocomplete="off"
                        value=page_address.read_untracked().nodes.clone()
                        prop:value=move || filter.get()
                        on:input=move |event| filter.set(event_target_value(&event))
                        on:change=move |_| narrow.with_value(
                            |narrow| narrow(page_address.read_untracked().show)
                        )
                    />
                    <label class="visually-hidden" for="tray-show">"Nodes to show"</label>
                    <select
                        class="select"
                        id="tray-show"
                        name="show"
                        on:change=move |event| narrow.with_value(
                            |narrow| narrow(parse_filter(&event_target_value(&event)))
                        )
                    >
                        {TRAY_FILTERS.map(|(show, words)| view! {
                            <option
                                value=filter_param(show)
                                selected=move || page_address.read().show == show
                            >
                                {words}
                            </option>
                        }).collect_view()}
                    </select>
                </form>
                <div class="chips" role="group" aria-labelledby="tray-title">
                    {
                        rows(
                            shown.into(),
                            |node| node.node,
                            move |node| tray_node(board_state, floor, node, open)
                        )
                    }
                </div>
                {move || (hidden() > 0).then(|| view! {
                    <p class="help">{hidden} " more. Filter by name to see them."</p>
                })}
                {move || none()}
                {move || help()}
                <SelectionBar board_state/>
            </div>
            <div class="chip ghost" node_ref=floor.drag_image aria-hidden="true"></div>
        </section>
    }
    .into_any()
}

/// The maximum number of displayed nodes. The filter finds the others.
const MAX_TRAY_NODES: usize = MAX_FOUND_NODES;

/// State that the chips of the tray share.
#[derive(Clone, Copy)]
struct TrayState {
    shown: Memo<Vec<TrayNode>>,
    /// The chip in the tab order. Arrow keys move to the others.
    focus: RwSignal<Option<NodeId>>,
    /// The start of a range selection.
    anchor: StoredValue<Option<NodeId>>,
    drag_image: NodeRef<html::Div>,
}

#[component]
fn SelectionBar(board_state: BoardState) -> impl IntoView {
    move || {
        let count = board_state.selected().read().len();
        (count > 0).then(|| {
            view! {
                <div class="foot buttons">
                    <button
                        class="button primary small"
                        type="button"
                        on:click=move |_| bind::open(board_state, board_state.selected_nodes())
                    >
                        {icon(Icon::Bind)}
                        "Bind "
                        {nodes(count)}
                        " to…"
                    </button>
                    <button
                        class="button small"
                        type="button"
                        aria-haspopup="dialog"
                        on:click=move |_| board_state.ask(OpenEdit::Move(selected(board_state)))
                    >
                        {icon(Icon::Deployments)}
                        "Move…"
                    </button>
                    {(count == 1).then(|| view! {
                        <button
                            class="button small"
                            type="button"
                            aria-haspopup="dialog"
                            on:click=move |_| open_menu_of_selected(board_state)
                        >
                            {icon(Icon::Down)}
                            "More…"
                        </button>
                    })}
                    <button
                        class="button quiet small"
                        type="button"
                        on:click=move |_| board_state.selected().update(|selected| selected.clear())
                    >
                        "Clear selection"
                    </button>
                </div>
            }
        })
    }
}

/// The selected nodes and their deployments.
fn selected(board_state: BoardState) -> Vec<NodeInDeployment> {
    let (selected, board) =
        (board_state.selected().read_untracked(), board_state.board().read_untracked());
    let chosen = board.tray.iter().filter(|node| selected.contains(&node.node));
    let placed = chosen.map(|node| NodeInDeployment {
        named: Named { node: node.node, short: node.short.clone() },
        deployment: Some(node.deployment.clone()),
    });
    placed.collect()
}

fn open_menu_of_selected(board_state: BoardState) {
    let subject = board_state
        .selected_nodes()
        .first()
        .and_then(|node| Subject::in_tray(&board_state.board().read_untracked(), *node));
    if let Some(subject) = subject {
        board_state.ask(OpenEdit::Menu(subject));
    }
}

fn open_menu(board_state: BoardState, id: NodeId) {
    let subject = Subject::in_tray(&board_state.board().read_untracked(), id);
    if let Some(subject) = subject {
        board_state.ask(OpenEdit::Menu(subject));
    }
}

fn tray_node(
    board_state: BoardState,
    floor: TrayState,
    node: Memo<TrayNode>,
    open: Memo<bool>,
) -> impl IntoView {
    let id = node.read_untracked().node;
    let face = move || {
        let node = node.get();
        view! {
            {icon(if node.alive { Icon::Node } else { Icon::Dead })}
            <span class="clip">{node.short}</span>
            {(!node.alive).then(|| view! { <span class="visually-hidden">" is dead"</span> })}
        }
    };
    let is_dragged = move || {
        board_state.dragged().read().as_ref().is_some_and(|dragged| dragged.nodes.contains(&id))
    };
    let reachable = move || match floor
        .focus
        .get()
        .filter(|focus| floor.shown.read().iter().any(|n| n.node == *focus))
    {
        Some(focus) => focus == id,
        None => floor.shown.read().first().is_some_and(|first| first.node == id),
    };
    move || {
        match open.get() {
            false => view! {
                <button
                    class="chip"
                    type="button"
                    aria-haspopup="dialog"
                    data-node=id.to_string()
                    title=move || node_summary(&node.read())
                    on:click=move |_| open_menu(board_state, id)
                >
                    {move || face()}
                </button>
            }
            .into_any(),
            true => view! {
                <button
                    class="chip"
                    class:dragged=is_dragged
                    type="button"
                    draggable="true"
                    data-tray=id.to_string()
                    tabindex=move || if reachable() { "0" } else { "-1" }
                    title=move || node_summary(&node.read())
                    aria-pressed=move || if board_state
                        .selected()
                        .read()
                        .contains(&id) { "true" } else { "false" }
                    on:click=move |event| click(board_state, floor, id, &event)
                    on:contextmenu=move |event| {
                        event.prevent_default();
                        open_menu(board_state, id);
                    }
                    on:focus=move |_| floor.focus.set(Some(id))
                    on:blur=move |_| board_state.cancel_drag(DragSource::Keyboard)
                    on:keydown=move |event| key(board_state, floor, id, &event)
                    on:keyup=move |event| {
                        // Some browsers fire a click when Space is released.
                        if event.key() == " " {
                            event.prevent_default();
                        }
                    }
                    on:dragstart=move |event| on_drag_start(board_state, floor, id, &event)
                    on:dragend=move |_| board_state.cancel_drag(DragSource::Pointer)
                >
                    {move || face()}
                </button>
            }
            .into_any(),
        }
    }
}

/// The nodes that a chip drags: the selection if the chip is part of it, otherwise only the chip's
/// node.
fn dragged_nodes(board_state: BoardState, id: NodeId) -> Vec<NodeId> {
    let selected = board_state.selected_nodes();
    if selected.contains(&id) { selected } else { vec![id] }
}

fn click(board_state: BoardState, floor: TrayState, id: NodeId, event: &MouseEvent) {
    let anchor = floor.anchor.get_value().filter(|_| event.shift_key());
    floor.anchor.set_value(Some(id));
    if let Some(anchor) = anchor {
        let shown = floor.shown.read_untracked();
        let at = |node: NodeId| shown.iter().position(|n| n.node == node);
        if let (Some(a), Some(b)) = (at(anchor), at(id)) {
            let range = shown[a.min(b)..=a.max(b)].iter().map(|n| n.node);
            board_state.selected().update(|selected| selected.extend(range));
        }
        return;
    }
    board_state.selected().update(|selected| {
        if !selected.remove(&id) {
            selected.insert(id);
        }
    });
}

fn key(board_state: BoardState, floor: TrayState, id: NodeId, event: &KeyboardEvent) {
    let key = event.key();
    if event.ctrl_key() || event.meta_key() || event.alt_key() {
        return;
    }
    let handled = match board_state.is_dragged_by(DragSource::Keyboard) {
        true => on_drag_key(board_state, &key),
        false => on_idle_key(board_state, floor, id, &key),
    };
    if handled {
        event.prevent_default();
        event.stop_propagation();
    }
}

fn on_drag_key(board_state: BoardState, key: &str) -> bool {
    match key {
        "ArrowDown" | "ArrowRight" => board_state.press(Key::Direction(Direction::Down)),
        "ArrowUp" | "ArrowLeft" => board_state.press(Key::Direction(Direction::Up)),
        "Home" => board_state.press(Key::Direction(Direction::Top)),
        "End" => board_state.press(Key::Direction(Direction::Bottom)),
        "Enter" | " " => board_state.press(Key::Drop),
        "Escape" => board_state.cancel(),
        "Tab" => {
            board_state.cancel();
            return false;
        }
        _ => match single(key) {
            Some(letter) => board_state.press(Key::Direction(Direction::Letter(letter))),
            None => return false,
        },
    }
    true
}

fn single(key: &str) -> Option<char> {
    let mut chars = key.chars();
    chars.next().filter(|c| chars.next().is_none() && c.is_alphanumeric())
}

fn on_idle_key(board_state: BoardState, floor: TrayState, id: NodeId, key: &str) -> bool {
    match key {
        " " => board_state.start_drag(dragged_nodes(board_state, id), DragSource::Keyboard),
        "ArrowDown" | "ArrowRight" => floor.focus_by(id, 1),
        "ArrowUp" | "ArrowLeft" => floor.focus_by(id, -1),
        _ => return false,
    }
    true
}

impl TrayState {
    fn focus_by(self, id: NodeId, step: isize) {
        let shown = self.shown.read_untracked();
        let next = shown
            .iter()
            .position(|node| node.node == id)
            .and_then(|at| at.checked_add_signed(step));
        let Some(next) = next.and_then(|at| shown.get(at)) else { return };
        if let Ok(Some(element)) =
            document().query_selector(&format!("[data-tray='{}']", next.node))
        {
            let _ = element.unchecked_into::<web_sys::HtmlElement>().focus();
        }
    }
}

fn on_drag_start(board_state: BoardState, floor: TrayState, id: NodeId, event: &DragEvent) {
    let dragged = dragged_nodes(board_state, id);
    let names = board_state.names(&dragged);
    if let Some(transfer) = event.data_transfer() {
        // Some browsers do not start a drag without data.
        let _ = transfer.set_data("text/plain", &names);
        transfer.set_effect_allowed("copy");
        if let Some(drag_image) = floor.drag_image.get_untracked() {
            drag_image.set_text_content(Some(&names));
            transfer.set_drag_image(&drag_image, 12, 14);
        }
    }
    // Deferred, because some browsers end a drag if the page changes in `dragstart`.
    set_timeout(move || board_state.start_drag(dragged, DragSource::Pointer), Duration::ZERO);
}
