//! The state of a board and its commands.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use api::Problem;
use api::proposals::ProposalView;
use api::runs::{StateCounts, StepState};
use api::views::board::{
    Board, BoardGroup, BoardNoderole, BoardQuery, BoardRole, TrayFilter, TrayNode, TrayNodes,
};
use engine::Hash;
use engine::counting::many;
use engine::ids::{NodeId, NoderoleId, RoleName};
use engine::plan::drop_preview::DropPreview;
use engine::plan::{Edit, edit};
use leptos::prelude::*;
use leptos::task::spawn_local;

use super::drop_outcome::{self, DropOutcome, named};
use super::open_edit::OpenEdit;
use super::planner::{self, Planner, Unusable};
use super::server_functions;
use crate::components::{DialogHandle, Feed};
use crate::failure::ServerResult;
use crate::live::Event;
use crate::pages::proposals;
use crate::pages::proposals::{EditContext, Joining, Put, Step};

/// Completes when the chunk of the forms is loaded, or could not be loaded.
pub(super) type FormsLoaded = Pin<Box<dyn Future<Output = ()>>>;

/// How nodes were dragged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DragSource {
    Pointer,
    Keyboard,
    Menu,
}

/// The planner that computes the impact of a drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlannerState {
    /// The server, because this page does not have the data (yet).
    Server,
    /// This page.
    Here,
    /// This page, and the server's result for the last edit was equal.
    LocalVerified,
    /// The server, because its result for the last edit differed. This page no longer plans.
    Mismatch,
}

impl PlannerState {
    /// The word in CSS and tests.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Here => "here",
            Self::LocalVerified => "agreed",
            Self::Mismatch => "differs",
        }
    }
}

/// Nodes that are being moved to a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DraggedNodes {
    pub(super) nodes: Vec<NodeId>,
    pub(super) by: DragSource,
    /// Distinguishes the response for this drag from late responses.
    number: u32,
}

/// A board and the interaction with it.
#[derive(Clone, Copy)]
pub(super) struct BoardState {
    feed: Feed<Arc<Board>>,
    board: Memo<Arc<Board>>,
    proposal: Memo<Option<ProposalView>>,
    /// Whether there is an open proposal that the reader may edit.
    editable: Memo<bool>,
    /// The version after the last command, which may be newer than the board's.
    version: StoredValue<i32>,
    states: StoredValue<HashMap<NoderoleId, ArcRwSignal<StepState>>>,
    /// State changes since the last fetch began. The response may be older.
    latest_states: StoredValue<HashMap<NoderoleId, StepState>>,
    /// Nodes of the tray beyond the board's list that a search has found.
    found: RwSignal<Vec<TrayNode>>,
    selected: RwSignal<BTreeSet<NodeId>>,
    dragged: RwSignal<Option<DraggedNodes>>,
    drop_preview: RwSignal<Option<Arc<DropPreview>>>,
    over: RwSignal<Option<RoleName>>,
    /// The number of drags so far, which is the number of the current drag.
    drag_count: StoredValue<u32>,
    /// The role of a drop that happened before the response.
    dropped: StoredValue<Option<RoleName>>,
    /// Keys that were pressed before the response, oldest first.
    ahead: StoredValue<Vec<Key>>,
    /// The role of a partly valid drop that awaits confirmation.
    part: RwSignal<Option<RoleName>>,
    planner: StoredValue<Option<Planner>>,
    /// The predicted effects of the last command, and the version at which they apply.
    foretold: StoredValue<Option<(i32, Hash)>>,
    plans: RwSignal<PlannerState>,
    pub(super) joining: Joining,
    pub(super) act: RwSignal<Option<OpenEdit>>,
    load_forms: StoredValue<fn() -> FormsLoaded>,
    pub(super) dialogs: Dialogs,
    busy: RwSignal<bool>,
    /// Commands that wait for earlier ones, oldest first.
    queue: StoredValue<VecDeque<Command>>,
    problem: RwSignal<Option<Problem>>,
    announcement: RwSignal<String>,
}

/// A queued command.
#[derive(Clone)]
enum Command {
    Put(Put),
    Undo,
    Redo,
}

/// The context of a command.
struct CommandContext {
    /// The predicted effects.
    foretold: Option<Hash>,
    /// The signal that shows an error.
    problem: RwSignal<Option<Problem>>,
    /// Called on success.
    taken: Option<Callback<()>>,
}

/// Dialogs that commands open.
#[derive(Clone, Copy)]
pub(super) struct Dialogs {
    pub(super) part: DialogHandle,
    pub(super) bind: DialogHandle,
    pub(super) act: DialogHandle,
}

impl BoardState {
    pub(super) fn new(
        first: Board,
        filter: Memo<BoardQuery>,
        load_forms: fn() -> FormsLoaded,
    ) -> Self {
        let name = first.name.to_string();
        let latest_states = StoredValue::new(HashMap::new());
        let feed = Feed::new(Arc::new(first), move || {
            latest_states.try_update_value(HashMap::clear);
            let name = name.clone();
            let query = filter.get_untracked();
            async move { server_functions::board(name, query).await.map(Arc::new) }
        });
        Effect::new(move |last: Option<BoardQuery>| {
            let now = filter.get();
            if last.is_some_and(|last| last != now) {
                feed.now();
            }
            now
        });
        let found = RwSignal::new(Vec::new());
        let dragged = RwSignal::new(None);
        let is_dragged = Memo::new(move |_| dragged.read().is_some());
        let board = Memo::new(move |last: Option<&Arc<Board>>| match last {
            // The board does not change under dragged nodes. It updates when they are dropped or
            // put back.
            Some(last) if is_dragged.get() => last.clone(),
            _ => with_found(feed.value().get(), &found.read()),
        });
        let proposal = Memo::new(move |_| board.read().proposal.clone());
        let joins = move || {
            proposal
                .read()
                .as_ref()
                .filter(|proposal| proposal.makes_author)
                .map(|proposal| proposal.id)
        };
        let context = Self {
            feed,
            board,
            proposal,
            joining: Joining::new(Signal::derive(joins)),
            editable: Memo::new(move |_| {
                board.with(|board| board.proposal.is_some() && board.may_propose.is_allowed())
            }),
            version: StoredValue::new(0),
            states: StoredValue::new(HashMap::new()),
            latest_states,
            found,
            selected: RwSignal::new(BTreeSet::new()),
            dragged,
            drop_preview: RwSignal::new(None),
            over: RwSignal::new(None),
            drag_count: StoredValue::new(0),
            dropped: StoredValue::new(None),
            ahead: StoredValue::new(Vec::new()),
            part: RwSignal::new(None),
            planner: StoredValue::new(None),
            foretold: StoredValue::new(None),
            plans: RwSignal::new(PlannerState::Server),
            act: RwSignal::new(None),
            load_forms: StoredValue::new(load_forms),
            dialogs: Dialogs {
                part: DialogHandle::new(),
                bind: DialogHandle::new(),
                act: DialogHandle::new(),
            },
            busy: RwSignal::new(false),
            queue: StoredValue::new(VecDeque::new()),
            problem: RwSignal::new(None),
            announcement: RwSignal::new(String::new()),
        };
        Effect::new(move |_| {
            let board = feed.value().get();
            context.update_states(&board);
            context.load_planner(&board);
            context.go_on();
        });
        Effect::new(move |_| {
            if feed.problem().read().is_some() {
                context.abandon_queue();
            }
        });
        context
    }

    pub(super) fn feed(self) -> Feed<Arc<Board>> {
        self.feed
    }
    pub(super) fn board(self) -> Memo<Arc<Board>> {
        self.board
    }
    pub(super) fn proposal(self) -> Memo<Option<ProposalView>> {
        self.proposal
    }
    pub(super) fn editable(self) -> Memo<bool> {
        self.editable
    }
    pub(super) fn problem(self) -> RwSignal<Option<Problem>> {
        self.problem
    }
    pub(super) fn announcement(self) -> RwSignal<String> {
        self.announcement
    }
    pub(super) fn selected(self) -> RwSignal<BTreeSet<NodeId>> {
        self.selected
    }
    pub(super) fn dragged(self) -> RwSignal<Option<DraggedNodes>> {
        self.dragged
    }
    pub(super) fn drop_preview(self) -> RwSignal<Option<Arc<DropPreview>>> {
        self.drop_preview
    }
    pub(super) fn over(self) -> RwSignal<Option<RoleName>> {
        self.over
    }
    pub(super) fn part(self) -> RwSignal<Option<RoleName>> {
        self.part
    }

    pub(super) fn plans(self) -> RwSignal<PlannerState> {
        self.plans
    }

    /// Announces a text to screen readers.
    pub(super) fn announce(self, text: impl Into<String>) {
        self.announcement.set(text.into());
    }

    // --- live updates ---

    /// A chip's state, updated by events and fetches.
    pub(super) fn state_of(self, noderole: &BoardNoderole) -> ArcRwSignal<StepState> {
        let mut found = None;
        self.states.update_value(|states| {
            let state =
                states.entry(noderole.noderole).or_insert_with(|| ArcRwSignal::new(noderole.state));
            found = Some(state.clone());
        });
        found.unwrap_or_else(|| ArcRwSignal::new(noderole.state))
    }

    /// The states of the deployment's own steps: from the chips where they exist, otherwise from
    /// the server's counts.
    pub(super) fn standing(self) -> StateCounts {
        let board = self.board.get();
        let mut counts = board.omitted;
        let own = noderoles(board.groups.iter().filter(|group| group.of_ancestor.is_none()));
        own.for_each(|noderole| self.count(&mut counts, noderole));
        counts
    }

    /// The states of a role's steps, as [`Self::standing`].
    pub(super) fn role_standing(self, role: &BoardRole) -> StateCounts {
        let mut counts = role.omitted;
        role.noderoles.iter().for_each(|noderole| self.count(&mut counts, noderole));
        counts
    }

    fn count(self, counts: &mut StateCounts, noderole: &BoardNoderole) {
        let state = self.state_of(noderole).get();
        counts.count(state);
        if state == StepState::Active {
            counts.stale += i64::from(noderole.stale);
            counts.unchecked += i64::from(noderole.unchecked);
        }
    }

    fn update_states(self, board: &Board) {
        for noderole in noderoles(&board.groups) {
            let newer =
                self.latest_states.with_value(|states| states.get(&noderole.noderole).copied());
            set_if_changed(&self.state_of(noderole), newer.unwrap_or(noderole.state));
        }
    }

    /// Handles events.
    pub(super) fn on_events(self, events: &[Event]) {
        for event in events {
            match event {
                Event::Step { noderole, state } => self.on_step_event(*noderole, *state),
                Event::Run { .. } | Event::Review { .. } | Event::Worker { .. } => {}
                Event::Blueprint { .. }
                | Event::Catalog
                | Event::Proposal { .. }
                | Event::Node { .. }
                | Event::Hold { .. }
                | Event::Priority { .. } => self.feed.soon(),
                Event::Reset => self.feed.now(),
            }
        }
    }

    fn on_step_event(self, noderole: NoderoleId, state: StepState) {
        self.latest_states.update_value(|states| {
            states.insert(noderole, state);
        });
        // An event without a new state reports that the step became stale or unchecked, or no
        // longer is.
        let mut is_same = false;
        if let Some(signal) = self.states.with_value(|states| states.get(&noderole).cloned()) {
            is_same = signal.get_untracked() == state;
            set_if_changed(&signal, state);
        }
        // For noderoles without a chip in a cell, the board has only counts. (The list of a full
        // cell contains them, too.) A run can clear the marks of a chip.
        let is_plain =
            |shown: &BoardNoderole| shown.noderole == noderole && !shown.stale && !shown.unchecked;
        let is_shown = self.board.with_untracked(|board| noderoles(&board.groups).any(is_plain));
        // Fetches an error for its reason.
        if state == StepState::Error || is_same || !is_shown {
            self.feed.soon();
        }
    }

    /// `app on web-1`, for a noderole on the board.
    pub(super) fn noderole_title(self, id: NoderoleId) -> String {
        let board = self.board.read_untracked();
        let roles = board.groups.iter().flat_map(|group| &group.roles);
        let of = |role: &BoardRole| {
            let noderole = role.noderoles.iter().find(|noderole| noderole.noderole == id)?;
            Some(format!("{} on {}", role.role, noderole.short))
        };
        roles.filter_map(of).next().unwrap_or_else(|| "Noderole".into())
    }

    // --- selection ---

    /// The selected nodes, in the order of the tray.
    pub(super) fn selected_nodes(self) -> Vec<NodeId> {
        let selected = self.selected.read_untracked();
        let board = self.board.read_untracked();
        board.tray.iter().map(|node| node.node).filter(|node| selected.contains(node)).collect()
    }

    /// Short names of nodes. Many nodes are abbreviated to the first few.
    pub(super) fn names(self, nodes: &[NodeId]) -> String {
        let board = self.board.read_untracked();
        let names: Vec<&str> = board
            .tray
            .iter()
            .filter(|t| nodes.contains(&t.node))
            .map(|t| t.short.as_str())
            .collect();
        named(&names)
    }

    // --- search ---

    /// Searches the nodes that the board does not list, shortly after the filter was changed.
    /// Found nodes are added to the tray. The result is `None` if the filter is empty or the board
    /// lists all nodes.
    pub(super) fn search(self, filter: Memo<(String, TrayFilter)>) -> Signal<Option<Search>> {
        let search = RwSignal::new(None);
        let last_search = StoredValue::new((String::new(), TrayFilter::All));
        let is_needed = Memo::new(move |_| {
            let (text, show) = &*filter.read();
            let is_filtered = !text.trim().is_empty() || *show != TrayFilter::All;
            is_filtered && self.feed.value().read().tray_more > 0
        });
        Effect::new(move |last: Option<Option<TimeoutHandle>>| {
            if let Some(Some(waiting)) = last {
                waiting.clear();
            }
            self.feed.value().track();
            let (text, show) = filter.get();
            if !is_needed.get() {
                last_search.set_value(Default::default());
                search.set(None);
                return None;
            }
            if last_search.get_value() != (text.clone(), show) {
                last_search.set_value((text.clone(), show));
                search.set(Some(Search::Pending));
            }
            let name = self.feed.value().read_untracked().name.to_string();
            let request = move || {
                spawn_local(async move {
                    let answer = server_functions::tray_nodes(name, text.clone(), show).await;
                    if filter.try_get_untracked() == Some((text, show)) {
                        self.take_found(answer, search);
                    }
                });
            };
            set_timeout_with_handle(request, SEARCH_DELAY).ok()
        });
        search.into()
    }

    fn take_found(self, answer: ServerResult<TrayNodes>, search: RwSignal<Option<Search>>) {
        match answer {
            Ok(TrayNodes { nodes, more }) => {
                search.try_set(Some(Search::Done(nodes.len() + more)));
                self.found.try_update(|found| {
                    found.retain(|old| !nodes.iter().any(|new| new.node == old.node));
                    found.extend(nodes);
                });
            }
            Err(failure) => drop(self.problem.try_set(Some(failure.0))),
        }
    }

    // --- planning ---

    /// Fetches the data for planning the open proposal, and compares the predicted effects of the
    /// last command.
    fn load_planner(self, board: &Board) {
        let Some(proposal) = board.proposal.as_ref().filter(|_| board.may_propose.is_allowed())
        else {
            self.planner.set_value(None);
            self.plans.set(PlannerState::Server);
            return;
        };
        if self.plans.get_untracked() == PlannerState::Mismatch {
            return;
        }
        // Always fetch, since nodes may have been added without a new version.
        let last = self.planner.get_value();
        let (deployment, version) = (board.id, proposal.version);
        spawn_local(async move {
            let Ok(learning) = planner::learn(deployment, last).await else { return };
            let learned = learning.await;
            // The reader may have left the board.
            if self.planner.try_get_value().is_none() {
                return;
            }
            match learned {
                Some(Ok(planner)) => self.compare(planner, version),
                Some(Err(Unusable::EffectsDiffer)) => self.drop_planner(),
                Some(Err(Unusable::PlanningData)) => self.planner.set_value(None),
                None => {}
            }
        });
    }

    fn compare(self, planner: Planner, version: i32) {
        let foretold =
            self.foretold.get_value().filter(|(at, _)| planner.is_at(*at)).map(|(_, hash)| hash);
        match foretold {
            Some(hash) if hash != planner.effects() => return self.drop_planner(),
            Some(_) => self.plans.set(PlannerState::LocalVerified),
            None if self.plans.get_untracked() == PlannerState::Server => {
                self.plans.set(PlannerState::Here)
            }
            None => {}
        }
        if version >= self.version.get_value() {
            self.planner.set_value(Some(planner));
        }
    }

    fn drop_planner(self) {
        self.planner.set_value(None);
        self.plans.set(PlannerState::Mismatch);
    }

    fn current_planner(self) -> Option<Planner> {
        let (proposal, version) = self.open_proposal()?;
        self.planner.with_value(|planner| {
            planner.clone().filter(|planner| planner.is_of(proposal, version))
        })
    }

    /// Determines the valid roles for these nodes: locally if possible, otherwise on the server.
    pub(super) fn load_bind_options(
        self,
        nodes: Vec<NodeId>,
        then: impl FnOnce(ServerResult<DropPreview>) + 'static,
    ) {
        let deployment = self.board.read_untracked().id;
        match self.current_planner() {
            Some(planner) => then(Ok(planner.preview_drop(deployment, &nodes))),
            None => {
                spawn_local(
                    async move { then(server_functions::preview_drop(deployment, nodes).await) },
                )
            }
        }
    }

    // --- dragging ---

    /// Starts to drag nodes and determines the valid roles, once.
    pub(super) fn start_drag(self, nodes: Vec<NodeId>, by: DragSource) {
        if nodes.is_empty() {
            return;
        }
        self.drag_count.update_value(|drag_count| *drag_count += 1);
        let number = self.drag_count.get_value();
        let names = self.names(&nodes);
        self.dragged.set(Some(DraggedNodes { nodes: nodes.clone(), by, number }));
        self.drop_preview.set(None);
        self.dropped.set_value(None);
        self.ahead.set_value(Vec::new());
        if by == DragSource::Keyboard {
            self.announce(format!(
                "{names} picked up. Use the arrow keys to choose a role, Enter \
                to drop, Escape to cancel."
            ));
        }
        self.load_bind_options(nodes, move |answer| {
            let current = self
                .dragged
                .try_get_untracked()
                .flatten()
                .is_some_and(|dragged| dragged.number == number);
            if current {
                self.learn(answer);
            }
        });
    }

    fn learn(self, answer: ServerResult<DropPreview>) {
        match answer {
            Ok(preview) => {
                self.drop_preview.set(Some(Arc::new(preview)));
                match self.dropped.try_update_value(Option::take).flatten() {
                    Some(role) => self.drop_delayed(&role),
                    None if self.is_dragged_by(DragSource::Keyboard) => self.apply_queued_keys(),
                    None => {}
                }
            }
            Err(failure) => {
                self.problem.set(Some(failure.0));
                self.cancel();
            }
        }
    }

    pub(super) fn is_dragged_by(self, by: DragSource) -> bool {
        self.dragged.read_untracked().as_ref().is_some_and(|dragged| dragged.by == by)
    }

    /// The impact of a drop on a role. `None` while nothing is dragged or the response is pending.
    pub(super) fn drop_outcome(self, role: &RoleName) -> Option<DropOutcome> {
        self.drop_preview.read().as_ref().map(|preview| DropOutcome::of(preview, role))
    }

    fn drop_outcome_untracked(self, role: &RoleName) -> Option<DropOutcome> {
        self.drop_preview.read_untracked().as_ref().map(|preview| DropOutcome::of(preview, role))
    }

    /// Puts the dragged nodes back.
    pub(super) fn cancel(self) {
        if self.is_dragged_by(DragSource::Keyboard) {
            self.announce("Canceled. Nothing was changed.");
        }
        self.end_drag();
    }

    fn end_drag(self) {
        self.dragged.set(None);
        self.drop_preview.set(None);
        self.over.set(None);
        self.dropped.set_value(None);
        self.ahead.set_value(Vec::new());
    }

    /// Drops the dragged nodes on a role: binds them, asks for confirmation if only some are valid,
    /// or shows why none is.
    pub(super) fn drop_on(self, role: &RoleName) {
        let Some(preview) = self.drop_preview.get_untracked() else {
            self.dropped.set_value(Some(role.clone()));
            return;
        };
        match DropOutcome::of(&preview, role) {
            DropOutcome::Allowed { .. } => {
                self.bind(role.clone(), drop_outcome::legal(&preview, role))
            }
            DropOutcome::Partial { .. } => {
                self.part.set(Some(role.clone()));
                self.dialogs.part.open();
            }
            refused => self.announce(refused.announcement(role)),
        }
    }

    /// Handles a drop from before the response. A refusal is shown as a message, since the user no
    /// longer looks at the row.
    fn drop_delayed(self, role: &RoleName) {
        self.drop_on(role);
        let refused = self.drop_outcome_untracked(role).filter(|outcome| !outcome.takes());
        if let Some(refused) = refused.filter(|_| self.is_dragged_by(DragSource::Pointer)) {
            self.problem.set(Some(Problem::conflict("not_bound", refused.announcement(role))));
            self.end_drag();
        }
    }

    /// Binds nodes to a role. Every way to bind ends here.
    pub(super) fn bind(self, role: RoleName, nodes: Vec<NodeId>) {
        let deployment = self.board.read_untracked().id;
        let names = self.names(&nodes);
        let bind = |node| Edit::Bind(edit::Bind { deployment, node, role: role.clone() });
        let edits: Vec<Edit> = nodes.into_iter().map(bind).collect();
        self.edit(edits, format!("The proposal binds {names} to {role}. {UNDO_HINT}"));
        self.selected.set(BTreeSet::new());
        self.end_drag();
    }

    /// Binds the valid nodes among the dragged ones.
    pub(super) fn bind_allowed(self, role: RoleName) {
        let nodes = self
            .drop_preview
            .read_untracked()
            .as_ref()
            .map(|preview| drop_outcome::legal(preview, &role))
            .unwrap_or_default();
        if !nodes.is_empty() {
            self.bind(role, nodes);
        }
    }

    /// Cancels the drag when the pointer is released or the focus leaves. Does nothing while a drop
    /// awaits the response or the user's confirmation.
    pub(super) fn cancel_drag(self, by: DragSource) {
        if self.is_dragged_by(by)
            && self.part.read_untracked().is_none()
            && self.dropped.with_value(Option::is_none)
        {
            self.cancel();
        }
    }

    /// Whether a drop awaits the response.
    fn is_drop_pending(self) -> bool {
        self.dropped.with_value(Option::is_some)
            || self.ahead.with_value(|ahead| ahead.contains(&Key::Drop))
    }

    /// Handles a key while nodes are dragged by keyboard. Keys that arrive before the response are
    /// queued.
    pub(super) fn press(self, key: Key) {
        if self.drop_preview.read_untracked().is_none() {
            return self.ahead.update_value(|ahead| {
                let is_over = ahead.len() == MAX_QUEUED_KEYS || ahead.last() == Some(&Key::Drop);
                ahead.extend((!is_over).then_some(key));
            });
        }
        match key {
            Key::Direction(walk) => self.walk(walk),
            Key::Drop => {
                if let Some(role) = self.over.get_untracked() {
                    self.drop_on(&role);
                }
            }
        }
    }

    /// Handles the response: moves to the first valid row, then applies the queued keys.
    fn apply_queued_keys(self) {
        let ahead = self.ahead.try_update_value(std::mem::take).unwrap_or_default();
        for key in [Key::Direction(Direction::First)].into_iter().chain(ahead) {
            self.press(key);
        }
    }

    /// Moves between rows with dragged nodes.
    fn walk(self, walk: Direction) {
        let Some(preview) = self.drop_preview.get_untracked() else { return };
        let board = self.board.read_untracked();
        let shown = board.groups.iter().flat_map(|group| &group.roles).filter(|role| role.bindable);
        let rows: Vec<RoleName> = shown.map(|role| role.role.clone()).collect();
        let now = self
            .over
            .read_untracked()
            .as_ref()
            .and_then(|over| rows.iter().position(|row| row == over));
        let Some(to) = walk.from(now, &rows, |row| DropOutcome::of(&preview, row).takes()) else {
            self.announce("These nodes cannot be bound to any role here.");
            return;
        };
        let outcome = DropOutcome::of(&preview, &rows[to]);
        self.over.set(Some(rows[to].clone()));
        self.announce(outcome.announcement(&rows[to]));
        scroll_to(&rows[to]);
    }

    // --- commands ---

    fn open_proposal(self) -> Option<(engine::ids::ProposalId, i32)> {
        let board = self.feed.value().get_untracked();
        let proposal = board.proposal.as_ref()?;
        Some((proposal.id, proposal.version.max(self.version.get_value())))
    }

    /// Opens the dialog with a form, once its chunk is loaded, so that the focus moves into it. A
    /// form that fails to load shows the error itself.
    pub(super) fn ask(self, act: OpenEdit) {
        spawn_local(async move {
            (self.load_forms.get_value())().await;
            self.act.try_set(Some(act));
            self.dialogs.act.open();
        });
    }

    /// The interface for forms that add edits to the open proposal.
    pub(super) fn pen(self) -> EditContext {
        let open =
            move || self.proposal.read().as_ref().map(|proposal| (proposal.id, proposal.version));
        EditContext {
            proposal: Signal::derive(open),
            board: Signal::derive(move || Some(self.board.read().name.clone())),
            busy: self.busy.into(),
            put: Callback::new(move |put: Put| self.put(put)),
        }
    }

    pub(super) fn edit(self, edits: Vec<Edit>, done: String) {
        self.put(Put { edits, done, problem: self.problem, taken: None });
    }

    fn put(self, put: Put) {
        self.give(Command::Put(put));
    }

    /// Undoes the last edit, or asks for confirmation. A drop that awaits the response is newer
    /// than all edits, so it is canceled instead.
    pub(super) fn undo(self) {
        if self.is_drop_pending() {
            self.end_drag();
            return self.announce("Canceled. Nothing was changed.");
        }
        self.step(Step::Undo);
    }

    /// Redoes the last undone edit, or asks for confirmation.
    pub(super) fn redo(self) {
        self.step(Step::Redo);
    }

    fn step(self, step: Step) {
        if !self.editable.get_untracked() {
            return;
        }
        let is_there = self.newest(|proposal| match step {
            Step::Undo => proposal.undo.is_some(),
            Step::Redo => proposal.redo.is_some(),
        });
        // No confirmation if there is nothing to undo or redo.
        let is_nothing =
            is_there == Some(false) && !self.busy.get_untracked() && self.has_caught_up();
        if is_nothing || self.joining.may(step) {
            self.undo_or_redo_now(step);
        }
    }

    /// Undoes or redoes without confirmation.
    pub(super) fn undo_or_redo_now(self, step: Step) {
        self.give(match step {
            Step::Undo => Command::Undo,
            Step::Redo => Command::Redo,
        });
    }

    /// Executes a command, or queues it after earlier ones, since users are faster than the server.
    fn give(self, next: Command) {
        if !self.editable.get_untracked() && !matches!(next, Command::Put(_)) {
            return;
        }
        if self.busy.get_untracked() && matches!(next, Command::Put(_)) {
            self.announce("An earlier edit is still being saved. This edit is next.");
        }
        self.queue.update_value(|queue| queue.push_back(next));
        self.go_on();
        if self.waits_for_board() && self.feed.problem().with_untracked(Option::is_some) {
            // A failed fetch may not be retried automatically.
            self.feed.now();
        }
    }

    /// Executes the next command, unless one is running. Undo and redo wait until the board
    /// contains the last edit, because only then is their effect known.
    fn go_on(self) {
        if self.busy.get_untracked() {
            return;
        }
        let has_caught_up = self.has_caught_up();
        let ready = |next: &Command| has_caught_up || matches!(next, Command::Put(_));
        match self.queue.try_update_value(|queue| queue.pop_front_if(|next| ready(next))).flatten()
        {
            Some(Command::Put(put)) => self.append_now(put),
            Some(Command::Undo) => self.undo_now(),
            Some(Command::Redo) => self.redo_now(),
            None => {}
        }
    }

    /// Whether the board contains the last command's result.
    fn has_caught_up(self) -> bool {
        self.newest(|proposal| proposal.version >= self.version.get_value()).unwrap_or(true)
    }

    /// Whether the queue waits only for the board.
    fn waits_for_board(self) -> bool {
        !self.busy.get_untracked()
            && !self.has_caught_up()
            && self.queue.with_value(|queue| !queue.is_empty())
    }

    /// Drops the queued commands if the board cannot be fetched. Otherwise they would stay
    /// invisible and run at an unexpected time.
    fn abandon_queue(self) {
        if !self.waits_for_board() {
            return;
        }
        let waited = many(self.queue.with_value(VecDeque::len), "command");
        let detail = format!(
            "Undo and redo failed: the board could not be loaded. Pending commands were not \
             executed ({waited}). Repeat them when the board is loaded."
        );
        self.problem.set(Some(Problem::conflict("not_done", detail)));
        self.reject_queued("The edit was not saved: the board could not be loaded. Try again.");
    }

    /// Reads the open proposal of the last fetch, even while nodes are dragged.
    fn newest<T>(self, read: impl FnOnce(&ProposalView) -> T) -> Option<T> {
        self.feed.value().with_untracked(|board| board.proposal.as_ref().map(read))
    }

    fn append_now(self, put: Put) {
        let Some((proposal, version)) = self.open_proposal() else {
            let problem = Problem::conflict(
                "no_proposal",
                "The edit was not saved: this deployment has no open proposal. Propose changes, \
                 then repeat the edit.",
            );
            put.problem.try_set(Some(problem));
            return self.go_on();
        };
        let foretold = self.current_planner().and_then(|planner| planner.effects_with(&put.edits));
        let Put { edits, done, problem, taken } = put;
        self.command(
            proposals::server_functions::edit(proposal, version, edits),
            done,
            CommandContext { foretold, problem, taken },
        );
    }

    fn undo_now(self) {
        let edit = self.newest(|proposal| proposal.undo.clone()).flatten();
        let Some(((proposal, version), edit)) = self.open_proposal().zip(edit) else {
            return self.go_on();
        };
        self.command(
            proposals::server_functions::undo(proposal, version),
            format!("Undone: {edit}."),
            self.default_context(),
        );
    }

    fn redo_now(self) {
        let edit = self.newest(|proposal| proposal.redo.clone()).flatten();
        let Some(((proposal, version), edit)) = self.open_proposal().zip(edit) else {
            return self.go_on();
        };
        self.command(
            proposals::server_functions::redo(proposal, version),
            format!("Redone: {edit}."),
            self.default_context(),
        );
    }

    /// Drops the queued commands and reports this to their forms. After a failure they could have a
    /// different meaning.
    fn reject_queued(self, reason: &str) {
        let waiting = self.queue.try_update_value(std::mem::take).unwrap_or_default();
        let puts = waiting.into_iter().filter_map(|next| match next {
            Command::Put(put) => Some(put),
            Command::Undo | Command::Redo => None,
        });
        for put in puts.filter(|put| put.problem != self.problem) {
            put.problem.try_set(Some(Problem::conflict("not_done", reason)));
        }
    }

    /// No prediction, and the board shows errors.
    fn default_context(self) -> CommandContext {
        CommandContext { foretold: None, problem: self.problem, taken: None }
    }

    fn command(
        self,
        command: impl Future<Output = ServerResult<i32>> + 'static,
        done: String,
        context: CommandContext,
    ) {
        let CommandContext { foretold, problem, taken } = context;
        self.busy.set(true);
        problem.try_set(None);
        // A command makes the reader an author, so later commands need no confirmation.
        self.joining.agree();
        spawn_local(async move {
            let answer = command.await;
            self.busy.try_set(false);
            match answer {
                Ok(version) => {
                    self.version.try_set_value(version);
                    self.foretold.try_set_value(foretold.map(|hash| (version, hash)));
                    self.announcement.try_set(done);
                    // The form may be gone by now.
                    taken.and_then(|taken| taken.try_run(()));
                }
                Err(failure) => {
                    self.joining.withdraw_consent();
                    let waited = self.queue.try_with_value(VecDeque::len).unwrap_or_default();
                    problem.try_set(Some(with_dropped_count(failure.0, waited)));
                    self.reject_queued(AFTER_REFUSAL);
                }
            }
            self.go_on();
            // After a refusal too: usually someone else was faster, and their change is worth
            // seeing.
            self.feed.now();
        });
    }
}

/// The message to forms whose command was queued after a refused one.
const AFTER_REFUSAL: &str = "The edit was not saved: an earlier command was rejected. Check the \
    current state, then try again.";

/// Adds the number of dropped commands to the error.
fn with_dropped_count(problem: Problem, waited: usize) -> Problem {
    match waited {
        0 => problem,
        n => {
            let after = many(n, "command");
            let detail = format!(
                "{} Later commands were not executed either ({after}). Repeat them.",
                problem.detail
            );
            Problem { detail, ..problem }
        }
    }
}

fn scroll_to(role: &RoleName) {
    let selector = format!("[data-bindable][data-role='{role}']");
    let Ok(Some(row)) = document().query_selector(&selector) else { return };
    let options = web_sys::ScrollIntoViewOptions::new();
    options.set_block(web_sys::ScrollLogicalPosition::Nearest);
    row.scroll_into_view_with_scroll_into_view_options(&options);
}

fn noderoles<'b>(
    groups: impl IntoIterator<Item = &'b BoardGroup>,
) -> impl Iterator<Item = &'b BoardNoderole> {
    groups.into_iter().flat_map(|group| &group.roles).flat_map(|role| &role.noderoles)
}

/// A board whose tray also has these nodes.
fn with_found(mut board: Arc<Board>, found: &[TrayNode]) -> Arc<Board> {
    let listed: HashSet<NodeId> = board.tray.iter().map(|node| node.node).collect();
    let new: Vec<_> = found.iter().filter(|node| !listed.contains(&node.node)).cloned().collect();
    if board.tray_more > 0 && !new.is_empty() {
        let board = Arc::make_mut(&mut board);
        board.tray_more = board.tray_more.saturating_sub(new.len());
        board.tray.extend(new);
        board.tray.sort_by(|a, b| a.fqdn.cmp(&b.fqdn));
    }
    board
}

/// A search for nodes that the board does not list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Search {
    Pending,
    /// The number of nodes that match.
    Done(usize),
}

/// The delay of a search after the last key.
const SEARCH_DELAY: Duration = Duration::from_millis(200);

fn set_if_changed(signal: &ArcRwSignal<StepState>, state: StepState) {
    if signal.get_untracked() != state {
        signal.set(state);
    }
}

/// The maximum number of queued keys. More than a person presses while a response is pending.
const MAX_QUEUED_KEYS: usize = 64;

/// A key while nodes are dragged by keyboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Direction(Direction),
    /// Drops on the current row.
    Drop,
}

/// Moves between rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// The first valid row.
    First,
    Up,
    Down,
    Top,
    Bottom,
    /// The next row that starts with a letter.
    Letter(char),
}

impl Direction {
    fn from(
        self,
        now: Option<usize>,
        rows: &[RoleName],
        takes: impl Fn(&RoleName) -> bool,
    ) -> Option<usize> {
        let last = rows.len().checked_sub(1)?;
        Some(match self {
            Self::First => rows.iter().position(takes)?,
            Self::Up => now.map_or(last, |at| at.saturating_sub(1)),
            Self::Down => now.map_or(0, |at| (at + 1).min(last)),
            Self::Top => 0,
            Self::Bottom => last,
            Self::Letter(letter) => {
                let begins = |row: &RoleName| {
                    row.as_str().chars().next().is_some_and(|c| c.eq_ignore_ascii_case(&letter))
                };
                let start = now.map_or(0, |at| at + 1);
                (start..rows.len()).chain(0..start).find(|at| begins(&rows[*at])).or(now)?
            }
        })
    }
}

/// A hint on how to undo the edits of a drop or form, which are one step.
pub(super) const UNDO_HINT: &str = "Press Ctrl Z to undo it.";

/// `3 nodes`, for buttons.
pub(super) fn nodes(n: usize) -> String {
    many(n, "node")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyboard_walk_stays_on_board() {
        let rows: Vec<RoleName> =
            ["app", "db", "dns"].iter().map(|name| RoleName::parse(name).unwrap()).collect();
        let walk = |walk: Direction, now| walk.from(now, &rows, |row| row.as_str() == "db");
        assert_eq!(walk(Direction::First, None), Some(1));
        assert_eq!(walk(Direction::Up, Some(0)), Some(0));
        assert_eq!(walk(Direction::Down, Some(2)), Some(2));
        assert_eq!(walk(Direction::Letter('D'), Some(1)), Some(2));
        assert_eq!(walk(Direction::Letter('d'), Some(2)), Some(1));
        assert_eq!(walk(Direction::Letter('x'), Some(2)), Some(2));
        assert_eq!(Direction::Down.from(None, &[], |_| true), None);
        assert_eq!(Direction::First.from(None, &rows, |_| false), None);
    }
}
