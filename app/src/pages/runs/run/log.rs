//! The live log of a run.
//!
//! Bytes are fetched by offset, and the live stream reports only the length. So a failed connection
//! neither loses nor duplicates data, and a fast log does not cost an event per line.
//!
//! The page shows one span of the log, which grows at both ends. It starts as the end of the log
//! and follows new lines. A search hit elsewhere opens the span around the hit. That span does not
//! follow until the reader returns to the end.

use std::time::Duration;

use api::Problem;
use api::limits::LOG_SEARCH;
use api::runs::{LogHit, LogPart, RunState};
use engine::counting::many;
use engine::ids::RunId;
use leptos::html;
use leptos::prelude::*;
use leptos::task::spawn_local;

use super::log_search::Search;
use super::log_text::{BLOCK_LINES, Line, LineSplitter, earlier};
use super::{TAIL_BYTES, server_functions};
use crate::addresses;
use crate::clock::{exact, time_of_day};
use crate::components::{Icon, ProblemNotice, icon};
use crate::failure::ServerResult;
use crate::live::{Status, use_live};

/// The number of bytes to fetch when the reader scrolls back.
const EARLIER_BYTES: i64 = 128 * 1024;
/// The number of bytes to show before a search hit.
const HIT_CONTEXT_BYTES: i64 = 32 * 1024;
/// The polling interval while the live stream is disconnected.
const POLL_INTERVAL: Duration = Duration::from_secs(3);

/// The displayed log.
#[derive(Clone, Copy)]
pub(super) struct Log {
    run: RunId,
    blocks: RwSignal<Vec<Block>>,
    cutter: StoredValue<LineSplitter>,
    begun: RwSignal<Option<Line>>,
    next: RwSignal<i64>,
    first: RwSignal<i64>,
    complete: RwSignal<bool>,
    /// Whether the span reaches the end of the log and follows it.
    attached: RwSignal<bool>,
    /// The number of the current span. Responses for another span are dropped.
    span: StoredValue<u64>,
    fetch_state: StoredValue<(bool, bool)>,
    problem: RwSignal<Option<Problem>>,
}

/// Lines that are rendered together.
#[derive(Clone)]
struct Block {
    /// The span and the offset of the first line.
    key: (u64, i64),
    lines: ArcRwSignal<Vec<Line>>,
}

impl Block {
    fn of(span: u64, lines: &[Line]) -> Option<Self> {
        Some(Self { key: (span, lines.first()?.offset), lines: ArcRwSignal::new(lines.to_vec()) })
    }
}

impl Log {
    pub(super) fn new(run: RunId, part: &LogPart) -> Self {
        let first = part.pieces.first().map_or(part.next, |piece| piece.offset);
        let log = Self {
            run,
            blocks: RwSignal::new(Vec::new()),
            cutter: StoredValue::new(LineSplitter::default()),
            begun: RwSignal::new(None),
            next: RwSignal::new(first),
            first: RwSignal::new(first),
            complete: RwSignal::new(false),
            attached: RwSignal::new(true),
            span: StoredValue::new(0),
            fetch_state: StoredValue::new((false, false)),
            problem: RwSignal::new(None),
        };
        log.take(part);
        log
    }

    fn take(self, part: &LogPart) {
        let mut lines = Vec::new();
        self.cutter.update_value(|cutter| {
            lines = cutter.take(part);
            self.begun.set(cutter.begun());
        });
        self.append(&lines);
        self.next.set(part.next.max(self.next.get_untracked()));
        if part.complete {
            self.complete.set(true);
        }
    }

    fn append(self, lines: &[Line]) {
        let mut rest = lines;
        if let Some(last) = self.blocks.read_untracked().last() {
            let room =
                BLOCK_LINES.saturating_sub(last.lines.read_untracked().len()).min(rest.len());
            if room > 0 {
                last.lines.update(|lines| lines.extend_from_slice(&rest[..room]));
                rest = &rest[room..];
            }
        }
        if !rest.is_empty() {
            let span = self.span.get_value();
            let new = rest.chunks(BLOCK_LINES).filter_map(|lines| Block::of(span, lines));
            self.blocks.update(|blocks| blocks.extend(new));
        }
    }

    /// Handles an event with the log's length and the run's state.
    pub(super) fn on_event(self, bytes: i64, state: RunState) {
        let ended = !matches!(state, RunState::Queued | RunState::Running);
        if bytes > self.next.get_untracked() || (ended && !self.complete.get_untracked()) {
            self.pull();
        }
    }

    /// Fetches new bytes.
    pub(super) fn pull(self) {
        if self.attached.get_untracked() {
            self.fetch_queued();
        }
    }

    fn fetch_queued(self) {
        let begin = self.fetch_state.try_update_value(|(is_fetching, again)| {
            *again |= *is_fetching;
            !std::mem::replace(is_fetching, true)
        });
        if begin != Some(true) {
            return;
        }
        let (from, span) = (self.next.get_untracked(), self.span.get_value());
        spawn_local(async move {
            let answer = server_functions::log(self.run, from).await;
            let Some(now) = self.span.try_get_value() else { return };
            let mut again = false;
            self.fetch_state.try_update_value(|state| again = std::mem::take(state).1);
            match answer {
                // The response for an earlier span.
                Ok(_) if now != span => self.pull(),
                Ok(part) => {
                    let grew = part.next > from;
                    self.problem.set(None);
                    self.take(&part);
                    if !grew || part.complete {
                        self.attached.set(true);
                    }
                    if again || (grew && !part.complete) {
                        self.pull();
                    }
                }
                Err(failure) => self.problem.set(Some(failure.0)),
            }
        });
    }

    /// Shows another span: from an offset, or the end for a negative one.
    fn go(self, offset: i64, shown: impl FnOnce() + 'static) {
        let span = self.span.try_update_value(|span| {
            *span += 1;
            *span
        });
        spawn_local(async move {
            let answer = server_functions::log(self.run, offset).await;
            if self.span.try_get_value() != span {
                return;
            }
            match answer {
                Ok(part) => {
                    let first = part.pieces.first().map_or(part.next, |piece| piece.offset);
                    self.problem.set(None);
                    self.cutter.set_value(LineSplitter::default());
                    self.begun.set(None);
                    self.blocks.set(Vec::new());
                    self.first.set(first);
                    self.next.set(first);
                    self.complete.set(false);
                    self.attached.set(offset < 0 || part.complete);
                    self.take(&part);
                    shown();
                    self.pull();
                }
                Err(failure) => self.problem.set(Some(failure.0)),
            }
        });
    }

    fn shows(self, offset: i64) -> bool {
        let blocks = self.blocks.read_untracked();
        blocks
            .iter()
            .any(|block| block.lines.read_untracked().iter().any(|line| line.offset == offset))
    }

    /// Fetches the bytes between two offsets in as many requests as necessary.
    async fn fetch(self, from: i64, until: i64) -> ServerResult<LogPart> {
        let mut whole = server_functions::log(self.run, from).await?;
        while whole.next < until {
            let more = server_functions::log(self.run, whole.next).await?;
            if more.next <= whole.next {
                break;
            }
            whole.next = more.next;
            whole.pieces.extend(more.pieces);
        }
        Ok(whole)
    }

    fn fetch_earlier(self, view: NodeRef<html::Div>) {
        let (until, span) = (self.first.get_untracked(), self.span.get_value());
        let from = (until - EARLIER_BYTES).max(0);
        spawn_local(async move {
            let answer = self.fetch(from, until).await;
            let Some(now) = self.span.try_get_value() else { return };
            match answer {
                Ok(part) if now == span && self.first.get_untracked() == until => {
                    let lines = earlier(&part, until);
                    let height = view.get_untracked().map(|view| view.scroll_height());
                    self.first.set(
                        part.pieces.first().map_or(0, |piece| piece.offset.min(until)).min(from),
                    );
                    self.blocks.update(|blocks| {
                        blocks.splice(
                            0..0,
                            lines.chunks(BLOCK_LINES).filter_map(|lines| Block::of(span, lines)),
                        );
                    });
                    keep_scroll(view, height);
                }
                Ok(_) => {}
                Err(failure) => self.problem.set(Some(failure.0)),
            }
        });
    }
}

/// Whether a line contains a text.
fn has(line: &str, pattern: &str, ignore_case: bool) -> bool {
    !pattern.is_empty()
        && if ignore_case {
            line.to_lowercase().contains(&pattern.to_lowercase())
        } else {
            line.contains(pattern)
        }
}

/// Keeps the scroll position when lines are added at the top.
fn keep_scroll(view: NodeRef<html::Div>, before: Option<i32>) {
    request_animation_frame(move || {
        if let Some((view, before)) = view.get_untracked().zip(before) {
            view.set_scroll_top(view.scroll_top() + view.scroll_height() - before);
        }
    });
}

/// The reader's settings.
#[derive(Clone, Copy)]
struct LogViewState {
    follow: RwSignal<bool>,
    wrap: RwSignal<bool>,
    search: Search,
    view: NodeRef<html::Div>,
}

#[component]
pub(super) fn LogView(log: Log, is_open: Memo<bool>) -> impl IntoView {
    let view_state = LogViewState {
        follow: RwSignal::new(is_open.get_untracked()),
        wrap: RwSignal::new(true),
        search: Search::of(log.run),
        view: NodeRef::new(),
    };
    follow_end(log, view_state);
    poll_while_not_live(log, is_open);
    let blocks = move || log.blocks.get();
    let block = move |block: Block| {
        let lines = block.lines;
        view! {
            <div class="block">
                <For
                    each=move || lines.get()
                    key=|line| line.offset
                    children=move |line| line_view(line, view_state)
                />
            </div>
        }
    };
    let is_empty = move || log.blocks.read().is_empty() && log.begun.read().is_none();
    let front = move || {
        (log.first.get() > 0).then(|| {
            view! {
                <p class="note">
                    {bytes(log.first.get())} " of earlier output. "
                    <button
                        class="button small needs-scripts"
                        type="button"
                        on:click=move |_| log.fetch_earlier(view_state.view)
                    >
                        "Show earlier lines"
                    </button>
                </p>
            }
        })
    };
    let later = move || {
        (!log.attached.get()).then(|| {
            view! {
                <p class="note">
                    <button
                        class="button small needs-scripts"
                        type="button"
                        on:click=move |_| log.fetch_queued()
                    >
                        "Show later lines"
                    </button>
                    " "
                    <button
                        class="button small needs-scripts"
                        type="button"
                        on:click=move |_| show_end(log, view_state)
                    >
                        "Go to the end"
                    </button>
                </p>
            }
        })
    };
    let end = move || match (is_empty(), is_open.get()) {
        (true, true) => view! { <p class="note">"No output yet."</p> }.into_any(),
        (true, false) => view! { <p class="note">"The run wrote no output."</p> }.into_any(),
        (false, _) => log.begun.get().map(|line| line_view(line, view_state)).into_any(),
    };
    view! {
        <section class="card" aria-labelledby="log-title">
            <header>
                <h2 id="log-title">"Log"</h2>
                <span class="muted">{move || bytes(log.next.get())}</span>
            </header>
            <div>
                <Tools log view_state/>
                <ProblemNotice problem=log.problem/>
                <ProblemNotice problem=view_state.search.problem/>
                <div
                    class="log"
                    class:wraps=move || view_state.wrap.get()
                    role="log"
                    aria-live="off"
                    tabindex="0"
                    aria-labelledby="log-title"
                    node_ref=view_state.view
                    on:scroll=move |_| track_scroll(log, view_state)
                >
                    {front}
                    <For each=blocks key=|block| block.key children=block/>
                    {end}
                    {later}
                </div>
            </div>
        </section>
    }
    .into_any()
}

fn line_view(line: Line, view_state: LogViewState) -> impl IntoView {
    let (offset, text) = (line.offset, line.text.clone());
    view! {
        <div
            class="line"
            class:match=move || has(
                &text,
                &view_state.search.text.read(),
                view_state.search.ignore_case.get()
            )
            class:current=move || view_state.search.current() == Some(offset)
            data-offset=offset.to_string()
        >
            <time title=exact(line.at)>{time_of_day(line.at)}</time>
            <span>{line.text.to_string()}</span>
        </div>
    }
    .into_any()
}

#[component]
fn Tools(log: Log, view_state: LogViewState) -> impl IntoView {
    let search = view_state.search;
    let none = move || search.is_empty();
    let show = Callback::new(move |hit: LogHit| {
        view_state.follow.set(false);
        if log.shows(hit.offset) {
            scroll_to_line(hit.offset);
        } else {
            log.go((hit.offset - HIT_CONTEXT_BYTES).max(0), move || {
                request_animation_frame(move || scroll_to_line(hit.offset))
            });
        }
    });
    let go = move |forward: bool| search.step(forward, show);
    Effect::new(move |before: Option<()>| {
        search.text.track();
        search.ignore_case.track();
        if before.is_some() {
            search.begin();
        }
    });
    view! {
        <div class="log-tools">
            <label class="visually-hidden" for="log-search">"Search the log"</label>
            <input
                class="input needs-scripts"
                id="log-search"
                type="search"
                placeholder="Search"
                autocomplete="off"
                maxlength=LOG_SEARCH.to_string()
                on:input=move |event| search.text.set(event_target_value(&event))
                on:keydown=move |event| {
                    if event.key() == "Enter" {
                        event.prevent_default();
                        go(!event.shift_key());
                    }
                }
            />
            <button
                class="button quiet small only-icon needs-scripts"
                type="button"
                aria-label="Previous match"
                disabled=none
                on:click=move |_| go(false)
            >
                {icon(Icon::Up)}
            </button>
            <button
                class="button quiet small only-icon needs-scripts"
                type="button"
                aria-label="Next match"
                disabled=none
                on:click=move |_| go(true)
            >
                {icon(Icon::Down)}
            </button>
            <Toggle
                on=search.ignore_case
                shape=Icon::Search
                word="Ignore case"
                hint="A and a match each other"
            />
            <span class="muted" role="status">{move || search.status()}</span>
            <span class="grow"></span>
            <Toggle on=view_state.follow shape=Icon::End word="Follow" hint="Scroll to new lines"/>
            <Toggle on=view_state.wrap shape=Icon::Wrap word="Wrap" hint="Wrap long lines"/>
            <a
                class="button small"
                href=addresses::log_file(log.run)
                download=format!("run-{}.log", log.run)
                rel="external"
            >
                {icon(Icon::Download)} "Download"
            </a>
        </div>
    }
    .into_any()
}

#[component]
fn Toggle(
    on: RwSignal<bool>,
    shape: Icon,
    word: &'static str,
    hint: &'static str,
) -> impl IntoView {
    view! {
        <button
            class="button small needs-scripts"
            type="button"
            title=hint
            aria-pressed=move || if on.get() { "true" } else { "false" }
            on:click=move |_| on.update(|on| *on = !*on)
        >
            {icon(shape)}
            {word}
        </button>
    }
    .into_any()
}

fn scroll_to_line(offset: i64) {
    let Ok(Some(line)) = document().query_selector(&format!(".log [data-offset='{offset}']"))
    else {
        return;
    };
    let options = web_sys::ScrollIntoViewOptions::new();
    options.set_block(web_sys::ScrollLogicalPosition::Center);
    line.scroll_into_view_with_scroll_into_view_options(&options);
}

fn show_end(log: Log, view_state: LogViewState) {
    log.go(-TAIL_BYTES, move || view_state.follow.set(true));
}

/// Scrolls to the end on new lines while the reader is at the end.
fn follow_end(log: Log, view_state: LogViewState) {
    Effect::new(move |_| {
        let _ = (log.next.get(), log.blocks.read().len());
        if !view_state.follow.get() {
            return;
        }
        if !log.attached.get_untracked() {
            log.go(-TAIL_BYTES, || ());
            return;
        }
        request_animation_frame(move || {
            if let Some(view) = view_state.view.try_get_untracked().flatten() {
                view.set_scroll_top(view.scroll_height());
            }
        });
    });
}

/// Stops following when the reader scrolls up, and follows again at the end.
fn track_scroll(log: Log, view_state: LogViewState) {
    let Some(view) = view_state.view.get_untracked() else { return };
    let at_end = view.scroll_height() - view.scroll_top() - view.client_height() < 24;
    let at_end = at_end && log.attached.get_untracked();
    if view_state.follow.get_untracked() != at_end {
        view_state.follow.set(at_end);
    }
}

fn poll_while_not_live(log: Log, is_open: Memo<bool>) {
    let live = use_live();
    Effect::new(move |_| {
        if !is_open.get() || live.status() == Status::Live {
            return;
        }
        let poll = set_interval_with_handle(move || log.pull(), POLL_INTERVAL);
        on_cleanup(move || {
            if let Ok(poll) = poll {
                poll.clear();
            }
        });
    });
}

/// `512 bytes`, `12 KiB`, `3.4 MiB`.
fn bytes(n: i64) -> String {
    match n {
        ..1024 => many(n, "byte"),
        1024..1_048_576 => format!("{} KiB", n / 1024),
        _ => format!("{}.{} MiB", n / 1_048_576, n % 1_048_576 * 10 / 1_048_576),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_formatted_with_units() {
        assert_eq!(
            [bytes(0), bytes(1023), bytes(2048), bytes(3_565_158)],
            ["0 bytes", "1023 bytes", "2 KiB", "3.3 MiB"]
        );
    }
}
