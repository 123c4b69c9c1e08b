//! The state of a board and its commands.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use api::Problem;
use api::console::{
    Board, BoardGroup, BoardRole, Chip, Lift, ProposalView, StateCounts, StepState,
};
use engine::Hash;
use engine::counting::many;
use engine::ids::{NodeId, NoderoleId, RoleName};
use engine::plan::Edit;
use leptos::prelude::*;
use leptos::task::spawn_local;

use super::act::{self, Act};
use super::lifting::{self, Verdict, named};
use super::planner::{self, Planner, Unusable};
use crate::calls;
use crate::failure::Answer;
use crate::live::Event;
use crate::pages::edits::{Joining, Pen, Put, Step};
use crate::parts::{DialogHandle, Feed};

/// How nodes were lifted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Pointer,
    Keyboard,
    Menu,
}

/// Who works out what a drop would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plans {
    /// The server: this page has not got what it takes, or not yet.
    Elsewhere,
    /// This page.
    Here,
    /// This page, and the server came to the same the last time.
    HereAsThere,
    /// The server: the two came to different things, so this page is not to be believed.
    Differently,
}

impl Plans {
    /// The word for styles and tests.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Elsewhere => "server",
            Self::Here => "here",
            Self::HereAsThere => "agreed",
            Self::Differently => "differs",
        }
    }
}

/// Nodes on their way to a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lifted {
    pub(super) nodes: Vec<NodeId>,
    pub(super) by: By,
    /// Tells an answer that comes late from the one that is waited for.
    number: u32,
}

/// A board and what is being done at it.
#[derive(Clone, Copy)]
pub(super) struct Desk {
    feed: Feed<Arc<Board>>,
    board: Memo<Arc<Board>>,
    proposal: Memo<Option<ProposalView>>,
    /// Whether a proposal is open that the reader may edit.
    editable: Memo<bool>,
    /// The version that the last command led to, which may be newer than the board's.
    version: StoredValue<i32>,
    states: StoredValue<HashMap<NoderoleId, ArcRwSignal<StepState>>>,
    /// Steps that moved since the last fetch began: its answer may be older.
    heard: StoredValue<HashMap<NoderoleId, StepState>>,
    selected: RwSignal<BTreeSet<NodeId>>,
    lifted: RwSignal<Option<Lifted>>,
    lift: RwSignal<Option<Arc<Lift>>>,
    over: RwSignal<Option<RoleName>>,
    /// How often something was lifted: what is lifted now has the last number.
    lifts: StoredValue<u32>,
    /// Dropped before it was known what is allowed.
    dropped: StoredValue<Option<RoleName>>,
    /// Keys that were pressed before it was known, oldest first.
    ahead: StoredValue<Vec<Key>>,
    /// A drop of which only a part is possible: the role that is asked about.
    part: RwSignal<Option<RoleName>>,
    planner: StoredValue<Option<Planner>>,
    /// What the last command was said to come to, and at which version.
    foretold: StoredValue<Option<(i32, Hash)>>,
    plans: RwSignal<Plans>,
    pub(super) joining: Joining,
    pub(super) act: RwSignal<Option<Act>>,
    pub(super) dialogs: Dialogs,
    busy: RwSignal<bool>,
    /// What was asked for while a command was under way, oldest first.
    queue: StoredValue<VecDeque<Next>>,
    problem: RwSignal<Option<Problem>>,
    said: RwSignal<String>,
}

/// A command that waits for the one before it.
#[derive(Clone)]
enum Next {
    Put(Put),
    Undo,
    Redo,
}

/// What belongs to a command beside what it does.
struct Way {
    /// What it is said to come to.
    foretold: Option<Hash>,
    /// Where a refusal is shown.
    problem: RwSignal<Option<Problem>>,
    /// Called when it was done.
    taken: Option<Callback<()>>,
}

/// Dialogs that commands open.
#[derive(Clone, Copy)]
pub(super) struct Dialogs {
    pub(super) part: DialogHandle,
    pub(super) bind: DialogHandle,
    pub(super) act: DialogHandle,
}

impl Desk {
    pub(super) fn new(first: Board) -> Self {
        let name = first.name.to_string();
        let heard = StoredValue::new(HashMap::new());
        let feed = Feed::new(Arc::new(first), move || {
            heard.try_update_value(HashMap::clear);
            let name = name.clone();
            async move { calls::board(name).await.map(Arc::new) }
        });
        let lifted = RwSignal::new(None);
        let is_lifted = Memo::new(move |_| lifted.read().is_some());
        let board = Memo::new(move |last: Option<&Arc<Board>>| match last {
            // Nothing moves under a lifted node: the board catches up when it is put down.
            Some(last) if is_lifted.get() => last.clone(),
            _ => feed.value().get(),
        });
        let proposal = Memo::new(move |_| board.read().proposal.clone());
        let joins = move || {
            proposal
                .read()
                .as_ref()
                .filter(|proposal| proposal.would_join)
                .map(|proposal| proposal.id)
        };
        let desk = Self {
            feed,
            board,
            proposal,
            joining: Joining::new(Signal::derive(joins)),
            editable: Memo::new(move |_| {
                board.with(|board| board.proposal.is_some() && board.may_propose.is_ok())
            }),
            version: StoredValue::new(0),
            states: StoredValue::new(HashMap::new()),
            heard,
            selected: RwSignal::new(BTreeSet::new()),
            lifted,
            lift: RwSignal::new(None),
            over: RwSignal::new(None),
            lifts: StoredValue::new(0),
            dropped: StoredValue::new(None),
            ahead: StoredValue::new(Vec::new()),
            part: RwSignal::new(None),
            planner: StoredValue::new(None),
            foretold: StoredValue::new(None),
            plans: RwSignal::new(Plans::Elsewhere),
            act: RwSignal::new(None),
            dialogs: Dialogs {
                part: DialogHandle::new(),
                bind: DialogHandle::new(),
                act: DialogHandle::new(),
            },
            busy: RwSignal::new(false),
            queue: StoredValue::new(VecDeque::new()),
            problem: RwSignal::new(None),
            said: RwSignal::new(String::new()),
        };
        Effect::new(move |_| {
            let board = feed.value().get();
            desk.settle_states(&board);
            desk.learn_to_plan(&board);
            desk.go_on();
        });
        Effect::new(move |_| {
            if feed.problem().read().is_some() {
                desk.wait_no_longer();
            }
        });
        desk
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
    pub(super) fn said(self) -> RwSignal<String> {
        self.said
    }
    pub(super) fn selected(self) -> RwSignal<BTreeSet<NodeId>> {
        self.selected
    }
    pub(super) fn lifted(self) -> RwSignal<Option<Lifted>> {
        self.lifted
    }
    pub(super) fn lift(self) -> RwSignal<Option<Arc<Lift>>> {
        self.lift
    }
    pub(super) fn over(self) -> RwSignal<Option<RoleName>> {
        self.over
    }
    pub(super) fn part(self) -> RwSignal<Option<RoleName>> {
        self.part
    }

    /// Who works out what a drop would do.
    pub(super) fn plans(self) -> RwSignal<Plans> {
        self.plans
    }

    /// Says something to those who hear the page.
    pub(super) fn say(self, text: impl Into<String>) {
        self.said.set(text.into());
    }

    // --- live -----------------------------------------------------------------------------------------------------

    /// A chip's state: moved by events, and by what is fetched.
    pub(super) fn state_of(self, chip: &Chip) -> ArcRwSignal<StepState> {
        let mut found = None;
        self.states.update_value(|states| {
            let state = states.entry(chip.noderole).or_insert_with(|| ArcRwSignal::new(chip.state));
            found = Some(state.clone());
        });
        found.unwrap_or_else(|| ArcRwSignal::new(chip.state))
    }

    /// How the deployment's own steps stand: those that have chips as these say, the others as they were counted.
    pub(super) fn standing(self) -> StateCounts {
        let board = self.board.get();
        let mut counts = board.beyond;
        for chip in chips(board.groups.iter().filter(|group| group.of_ancestor.is_none())) {
            counts.count(self.state_of(chip).get());
        }
        counts
    }

    fn settle_states(self, board: &Board) {
        for chip in chips(&board.groups) {
            let newer = self.heard.with_value(|heard| heard.get(&chip.noderole).copied());
            set_if_other(&self.state_of(chip), newer.unwrap_or(chip.state));
        }
    }

    /// Takes note of what happened.
    pub(super) fn hear(self, events: &[Event]) {
        for event in events {
            match event {
                Event::Step { noderole, state } => self.hear_step(*noderole, *state),
                Event::Run { .. } | Event::Submission { .. } => {}
                Event::Target { .. }
                | Event::Catalog
                | Event::Proposal { .. }
                | Event::Node { .. }
                | Event::Hold { .. }
                | Event::Priority { .. } => self.feed.soon(),
                Event::Reset => self.feed.now(),
            }
        }
    }

    fn hear_step(self, noderole: NoderoleId, state: StepState) {
        self.heard.update_value(|heard| {
            heard.insert(noderole, state);
        });
        if let Some(signal) = self.states.with_value(|states| states.get(&noderole).cloned()) {
            set_if_other(&signal, state);
        }
        // Of those without a chip in a cell, the board has only how many there are. (The list of a full cell shows them, too.)
        let has_chip = self
            .board
            .with_untracked(|board| chips(&board.groups).any(|chip| chip.noderole == noderole));
        // An error is fetched for its reason.
        if state == StepState::Error || !has_chip {
            self.feed.soon();
        }
    }

    /// `app on web-1`, for a noderole that the board shows.
    pub(super) fn title_of(self, id: NoderoleId) -> String {
        let board = self.board.read_untracked();
        let roles = board.groups.iter().flat_map(|group| &group.roles);
        let of = |role: &BoardRole| {
            let chip = role.chips.iter().find(|chip| chip.noderole == id)?;
            Some(format!("{} on {}", role.role, chip.short))
        };
        roles.filter_map(of).next().unwrap_or_else(|| "Noderole".into())
    }

    // --- selection ------------------------------------------------------------------------------------------------

    /// The selected nodes, in the order of the tray.
    pub(super) fn selected_nodes(self) -> Vec<NodeId> {
        let selected = self.selected.read_untracked();
        let board = self.board.read_untracked();
        board.tray.iter().map(|node| node.node).filter(|node| selected.contains(node)).collect()
    }

    /// Short names of nodes, the first few of many.
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

    // --- planning ---------------------------------------------------------------------------------------------------

    /// Gets what planning on the open proposal takes, and compares what the last command was said to come to.
    fn learn_to_plan(self, board: &Board) {
        let Some(proposal) = board.proposal.as_ref().filter(|_| board.may_propose.is_ok()) else {
            self.planner.set_value(None);
            self.plans.set(Plans::Elsewhere);
            return;
        };
        if self.plans.get_untracked() == Plans::Differently {
            return;
        }
        // Nodes may have been added, too.
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
                Some(Err(Unusable::Differs)) => self.plan_no_more(),
                Some(Err(Unusable::Ground)) => self.planner.set_value(None),
                None => {}
            }
        });
    }

    fn compare(self, planner: Planner, version: i32) {
        let foretold =
            self.foretold.get_value().filter(|(at, _)| planner.is_at(*at)).map(|(_, hash)| hash);
        match foretold {
            Some(hash) if hash != planner.effects() => return self.plan_no_more(),
            Some(_) => self.plans.set(Plans::HereAsThere),
            None if self.plans.get_untracked() == Plans::Elsewhere => self.plans.set(Plans::Here),
            None => {}
        }
        if version >= self.version.get_value() {
            self.planner.set_value(Some(planner));
        }
    }

    fn plan_no_more(self) {
        self.planner.set_value(None);
        self.plans.set(Plans::Differently);
    }

    fn planner_now(self) -> Option<Planner> {
        let (proposal, version) = self.open_proposal()?;
        self.planner.with_value(|planner| {
            planner.clone().filter(|planner| planner.is_of(proposal, version))
        })
    }

    /// What lifting these nodes allows: worked out here, or asked of the server while this page can't.
    pub(super) fn ask_lift(self, nodes: Vec<NodeId>, then: impl FnOnce(Answer<Lift>) + 'static) {
        let deployment = self.board.read_untracked().id;
        match self.planner_now() {
            Some(planner) => then(Ok(planner.lift(deployment, &nodes))),
            None => spawn_local(async move { then(calls::lift(deployment, nodes).await) }),
        }
    }

    // --- lifting --------------------------------------------------------------------------------------------------

    /// Lifts nodes and asks, once, what that allows.
    pub(super) fn pick_up(self, nodes: Vec<NodeId>, by: By) {
        if nodes.is_empty() {
            return;
        }
        self.lifts.update_value(|lifts| *lifts += 1);
        let number = self.lifts.get_value();
        let names = self.names(&nodes);
        self.lifted.set(Some(Lifted { nodes: nodes.clone(), by, number }));
        self.lift.set(None);
        self.dropped.set_value(None);
        self.ahead.set_value(Vec::new());
        if by == By::Keyboard {
            self.say(format!("{names} lifted. Arrows choose a role, Enter drops, Escape cancels."));
        }
        self.ask_lift(nodes, move |answer| {
            let current = self
                .lifted
                .try_get_untracked()
                .flatten()
                .is_some_and(|lifted| lifted.number == number);
            if current {
                self.learn(answer);
            }
        });
    }

    fn learn(self, answer: Answer<Lift>) {
        match answer {
            Ok(lift) => {
                self.lift.set(Some(Arc::new(lift)));
                match self.dropped.try_update_value(Option::take).flatten() {
                    Some(role) => self.drop_late(&role),
                    None if self.is_lifted_by(By::Keyboard) => self.walk_on(),
                    None => {}
                }
            }
            Err(failure) => {
                self.problem.set(Some(failure.0));
                self.cancel();
            }
        }
    }

    /// Whether nodes are lifted in this way.
    pub(super) fn is_lifted_by(self, by: By) -> bool {
        self.lifted.read_untracked().as_ref().is_some_and(|lifted| lifted.by == by)
    }

    /// What dropping on a role would do; None while nothing is lifted or the server has not answered.
    pub(super) fn verdict(self, role: &RoleName) -> Option<Verdict> {
        self.lift.read().as_ref().map(|lift| Verdict::of(lift, role))
    }

    fn verdict_now(self, role: &RoleName) -> Option<Verdict> {
        self.lift.read_untracked().as_ref().map(|lift| Verdict::of(lift, role))
    }

    /// Puts the lifted nodes back where they were.
    pub(super) fn cancel(self) {
        if self.is_lifted_by(By::Keyboard) {
            self.say("Put back. Nothing was changed.");
        }
        self.put_down();
    }

    fn put_down(self) {
        self.lifted.set(None);
        self.lift.set(None);
        self.over.set(None);
        self.dropped.set_value(None);
        self.ahead.set_value(Vec::new());
    }

    /// Drops the lifted nodes on a role: binds them, asks when only some can be, says why not when none can.
    pub(super) fn drop_on(self, role: &RoleName) {
        let Some(lift) = self.lift.get_untracked() else {
            self.dropped.set_value(Some(role.clone()));
            return;
        };
        match Verdict::of(&lift, role) {
            Verdict::Legal { .. } => self.bind(role.clone(), lifting::legal(&lift, role)),
            Verdict::Mixed { .. } => {
                self.part.set(Some(role.clone()));
                self.dialogs.part.open();
            }
            refused => self.say(refused.announced(role)),
        }
    }

    /// The same for who let go before it was known whether that is possible: they no longer look at the row that refuses.
    fn drop_late(self, role: &RoleName) {
        self.drop_on(role);
        let refused = self.verdict_now(role).filter(|verdict| !verdict.takes());
        if let Some(refused) = refused.filter(|_| self.is_lifted_by(By::Pointer)) {
            self.problem.set(Some(Problem::conflict("not_bound", refused.announced(role))));
            self.put_down();
        }
    }

    /// The one command under every way to bind.
    pub(super) fn bind(self, role: RoleName, nodes: Vec<NodeId>) {
        let deployment = self.board.read_untracked().id;
        let names = self.names(&nodes);
        let bind = |node| Edit::Bind { deployment, node, role: role.clone() };
        let edits: Vec<Edit> = nodes.into_iter().map(bind).collect();
        let back = taken_back(edits.len());
        self.edit(edits, format!("{names} bound to {role} in the proposal. {back}"));
        self.selected.set(BTreeSet::new());
        self.put_down();
    }

    /// Binds those of the lifted nodes that can be.
    pub(super) fn bind_legal(self, role: RoleName) {
        let nodes = self
            .lift
            .read_untracked()
            .as_ref()
            .map(|lift| lifting::legal(lift, &role))
            .unwrap_or_default();
        if !nodes.is_empty() {
            self.bind(role, nodes);
        }
    }

    /// The pointer let go, or the keyboard's focus went elsewhere. A drop of the pointer that waits for an answer, or any that waits for the
    /// reader's, stays.
    pub(super) fn let_go(self, by: By) {
        if self.is_lifted_by(by)
            && self.part.read_untracked().is_none()
            && self.dropped.with_value(Option::is_none)
        {
            self.cancel();
        }
    }

    /// Whether something was dropped before it was known whether it can be.
    fn waits_to_be_judged(self) -> bool {
        self.dropped.with_value(Option::is_some)
            || self.ahead.with_value(|ahead| ahead.contains(&Key::Drop))
    }

    /// Does what a key asks for with nodes that the keyboard lifted. A hand is faster than the answer: what comes before it is done after it.
    pub(super) fn press(self, key: Key) {
        if self.lift.read_untracked().is_none() {
            return self.ahead.update_value(|ahead| {
                let is_over = ahead.len() == AHEAD || ahead.last() == Some(&Key::Drop);
                ahead.extend((!is_over).then_some(key));
            });
        }
        match key {
            Key::Walk(walk) => self.walk(walk),
            Key::Drop => {
                if let Some(role) = self.over.get_untracked() {
                    self.drop_on(&role);
                }
            }
        }
    }

    /// The answer is there: to the first row that takes the nodes, and on as the keys say that were pressed meanwhile.
    fn walk_on(self) {
        let ahead = self.ahead.try_update_value(std::mem::take).unwrap_or_default();
        for key in [Key::Walk(Walk::First)].into_iter().chain(ahead) {
            self.press(key);
        }
    }

    /// Goes from row to row with lifted nodes.
    fn walk(self, walk: Walk) {
        let Some(lift) = self.lift.get_untracked() else { return };
        let board = self.board.read_untracked();
        let shown = board.groups.iter().flat_map(|group| &group.roles).filter(|role| role.bindable);
        let rows: Vec<RoleName> = shown.map(|role| role.role.clone()).collect();
        let now = self
            .over
            .read_untracked()
            .as_ref()
            .and_then(|over| rows.iter().position(|row| row == over));
        let Some(to) = walk.from(now, &rows, |row| Verdict::of(&lift, row).takes()) else {
            self.say("No role here can take these nodes.");
            return;
        };
        let verdict = Verdict::of(&lift, &rows[to]);
        self.over.set(Some(rows[to].clone()));
        self.say(verdict.announced(&rows[to]));
        super::grid::scroll_to(&rows[to]);
    }

    // --- commands -------------------------------------------------------------------------------------------------

    fn open_proposal(self) -> Option<(engine::ids::ProposalId, i32)> {
        let board = self.feed.value().get_untracked();
        let proposal = board.proposal.as_ref()?;
        Some((proposal.id, proposal.version.max(self.version.get_value())))
    }

    /// Opens the dialog for what can be said by form, once that is there: the focus goes into it. A form that can't be loaded says so itself.
    pub(super) fn ask(self, act: Act) {
        spawn_local(async move {
            drop(act::board_forms::load().await);
            self.act.try_set(Some(act));
            self.dialogs.act.open();
        });
    }

    /// What forms need to put their edits into the open proposal.
    pub(super) fn pen(self) -> Pen {
        let open =
            move || self.proposal.read().as_ref().map(|proposal| (proposal.id, proposal.version));
        Pen {
            proposal: Signal::derive(open),
            board: Signal::derive(move || Some(self.board.read().name.clone())),
            busy: self.busy.into(),
            put: Callback::new(move |put: Put| self.put(put)),
        }
    }

    /// Appends edits to the open proposal.
    pub(super) fn edit(self, edits: Vec<Edit>, done: String) {
        self.put(Put { edits, done, problem: self.problem, taken: None });
    }

    fn put(self, put: Put) {
        self.give(Next::Put(put));
    }

    /// Takes the last edit back, or asks first. A drop that waits to be judged comes after all edits: it is that which is taken back.
    pub(super) fn undo(self) {
        if self.waits_to_be_judged() {
            self.put_down();
            return self.say("Put back. Nothing was changed.");
        }
        self.step(Step::Undo);
    }

    /// Brings the last undone edit back, or asks first.
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
        // Nobody is asked about nothing.
        let is_nothing =
            is_there == Some(false) && !self.busy.get_untracked() && self.has_caught_up();
        if is_nothing || self.joining.may(step) {
            self.step_now(step);
        }
    }

    /// The same without asking.
    pub(super) fn step_now(self, step: Step) {
        self.give(match step {
            Step::Undo => Next::Undo,
            Step::Redo => Next::Redo,
        });
    }

    /// Gives a command, or keeps it until those before it are done: a hand is faster than the way to the server.
    fn give(self, next: Next) {
        if !self.editable.get_untracked() && !matches!(next, Next::Put(_)) {
            return;
        }
        if self.busy.get_untracked() && matches!(next, Next::Put(_)) {
            self.say("The proposal is still being written: this comes next.");
        }
        self.queue.update_value(|queue| queue.push_back(next));
        self.go_on();
        if self.waits_for_board() && self.feed.problem().with_untracked(Option::is_some) {
            // The fetch that failed may not be tried again by itself.
            self.feed.now();
        }
    }

    /// Gives the command that waits longest, unless one is under way. What undo takes back is known once the board has the last edit.
    fn go_on(self) {
        if self.busy.get_untracked() {
            return;
        }
        let has_caught_up = self.has_caught_up();
        let ready = |next: &Next| has_caught_up || matches!(next, Next::Put(_));
        match self.queue.try_update_value(|queue| queue.pop_front_if(|next| ready(next))).flatten()
        {
            Some(Next::Put(put)) => self.put_now(put),
            Some(Next::Undo) => self.undo_now(),
            Some(Next::Redo) => self.redo_now(),
            None => {}
        }
    }

    /// Whether the board has what the last command did.
    fn has_caught_up(self) -> bool {
        self.newest(|proposal| proposal.version >= self.version.get_value()).unwrap_or(true)
    }

    /// Whether commands wait for nothing but the board.
    fn waits_for_board(self) -> bool {
        !self.busy.get_untracked()
            && !self.has_caught_up()
            && self.queue.with_value(|queue| !queue.is_empty())
    }

    /// The board can't be fetched: what waits for it would stay unseen, and be done at a moment that nobody expects.
    fn wait_no_longer(self) {
        if !self.waits_for_board() {
            return;
        }
        let waited = many(self.queue.with_value(VecDeque::len), "command");
        let detail = format!(
            "The board could not be fetched, so what undo or redo would do is not known. What waited for it ({waited}) was not done: do \
             that again when the board is there."
        );
        self.problem.set(Some(Problem::conflict("not_done", detail)));
        self.send_back(
            "It waited for the board, which could not be fetched, and was not done: do it again.",
        );
    }

    /// Looks at the open proposal as it was fetched last, whatever is lifted.
    fn newest<T>(self, look: impl FnOnce(&ProposalView) -> T) -> Option<T> {
        self.feed.value().with_untracked(|board| board.proposal.as_ref().map(look))
    }

    fn put_now(self, put: Put) {
        let Some((proposal, version)) = self.open_proposal() else {
            let problem = Problem::conflict(
                "no_proposal",
                "There is no open proposal here: it was discarded or committed meanwhile, or never opened. Propose changes, then do that again.",
            );
            put.problem.try_set(Some(problem));
            return self.go_on();
        };
        let foretold = self.planner_now().and_then(|planner| planner.effects_with(&put.edits));
        let Put { edits, done, problem, taken } = put;
        self.command(calls::edit(proposal, version, edits), done, Way { foretold, problem, taken });
    }

    fn undo_now(self) {
        let what = self.newest(|proposal| proposal.undo.clone()).flatten();
        let Some(((proposal, version), what)) = self.open_proposal().zip(what) else {
            return self.go_on();
        };
        self.command(
            calls::undo(proposal, version),
            format!("Taken back: {what}."),
            self.plainly(),
        );
    }

    fn redo_now(self) {
        let what = self.newest(|proposal| proposal.redo.clone()).flatten();
        let Some(((proposal, version), what)) = self.open_proposal().zip(what) else {
            return self.go_on();
        };
        self.command(
            calls::redo(proposal, version),
            format!("Brought back: {what}."),
            self.plainly(),
        );
    }

    /// Tells those whose command waited for what failed: on what came out instead it may mean something else.
    fn send_back(self, why: &str) {
        let waiting = self.queue.try_update_value(std::mem::take).unwrap_or_default();
        let puts = waiting.into_iter().filter_map(|next| match next {
            Next::Put(put) => Some(put),
            Next::Undo | Next::Redo => None,
        });
        for put in puts.filter(|put| put.problem != self.problem) {
            put.problem.try_set(Some(Problem::conflict("not_done", why)));
        }
    }

    /// Nothing is foretold, and the board shows a refusal.
    fn plainly(self) -> Way {
        Way { foretold: None, problem: self.problem, taken: None }
    }

    fn command(self, command: impl Future<Output = Answer<i32>> + 'static, done: String, way: Way) {
        let Way { foretold, problem, taken } = way;
        self.busy.set(true);
        problem.try_set(None);
        // Whoever gives one wants to be an author: what comes after it needs no question.
        self.joining.agree();
        spawn_local(async move {
            let answer = command.await;
            self.busy.try_set(false);
            match answer {
                Ok(version) => {
                    self.version.try_set_value(version);
                    self.foretold.try_set_value(foretold.map(|hash| (version, hash)));
                    self.said.try_set(done);
                    // Whoever asked may be gone by now.
                    taken.and_then(|taken| taken.try_run(()));
                }
                Err(failure) => {
                    self.joining.take_back();
                    let waited = self.queue.try_with_value(VecDeque::len).unwrap_or_default();
                    problem.try_set(Some(with_those_after(failure.0, waited)));
                    self.send_back(AFTER_REFUSAL);
                }
            }
            self.go_on();
            // After a refusal too: mostly somebody else was faster, and what they did is worth seeing.
            self.feed.now();
        });
    }
}

/// What is told to those whose command waited for one that was refused.
const AFTER_REFUSAL: &str = "It waited for a command that was refused, and was not done: look at what is there now, and do it again.";

/// What was refused, and how many commands that waited for it were not given.
fn with_those_after(problem: Problem, waited: usize) -> Problem {
    match waited {
        0 => problem,
        n => {
            let after = many(n, "command");
            let detail = format!(
                "{} What came after it ({after}) was not done either: do that again.",
                problem.detail
            );
            Problem { detail, ..problem }
        }
    }
}

/// The chips of some rows.
fn chips<'b>(groups: impl IntoIterator<Item = &'b BoardGroup>) -> impl Iterator<Item = &'b Chip> {
    groups.into_iter().flat_map(|group| &group.roles).flat_map(|role| &role.chips)
}

fn set_if_other(signal: &ArcRwSignal<StepState>, state: StepState) {
    if signal.get_untracked() != state {
        signal.set(state);
    }
}

/// Keys that are remembered while it is not known yet what they meet: more than a hand presses in the seconds that an answer may take.
const AHEAD: usize = 64;

/// What a key asks for while the keyboard has nodes lifted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Walk(Walk),
    /// Drops on the row that the walk came to.
    Drop,
}

/// Steps of a walk over the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Walk {
    /// The first row that takes something.
    First,
    Up,
    Down,
    Top,
    Bottom,
    /// The next row that begins with a letter.
    Letter(char),
}

impl Walk {
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

/// How what was put in is taken back, of which each step takes one edit.
pub(super) fn taken_back(edits: usize) -> &'static str {
    match edits {
        1 => "Control Z takes it back.",
        _ => "Control Z takes them back one by one.",
    }
}

/// `3 nodes`, for buttons.
pub(super) fn nodes(n: usize) -> String {
    many(n, "node")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_back_step_by_step_is_said_to_be() {
        assert_eq!(taken_back(1), "Control Z takes it back.");
        assert_eq!(taken_back(2), "Control Z takes them back one by one.");
    }

    #[test]
    fn a_walk_stays_on_the_board() {
        let rows: Vec<RoleName> =
            ["app", "db", "dns"].iter().map(|name| RoleName::parse(name).unwrap()).collect();
        let walk = |walk: Walk, now| walk.from(now, &rows, |row| row.as_str() == "db");
        assert_eq!(walk(Walk::First, None), Some(1));
        assert_eq!(walk(Walk::Up, Some(0)), Some(0));
        assert_eq!(walk(Walk::Down, Some(2)), Some(2));
        assert_eq!(walk(Walk::Letter('D'), Some(1)), Some(2));
        assert_eq!(walk(Walk::Letter('d'), Some(2)), Some(1));
        assert_eq!(walk(Walk::Letter('x'), Some(2)), Some(2));
        assert_eq!(Walk::Down.from(None, &[], |_| true), None);
        assert_eq!(Walk::First.from(None, &rows, |_| false), None);
    }
}
