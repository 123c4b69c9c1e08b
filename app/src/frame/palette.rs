//! The command palette (Ctrl-K or Cmd-K): search and commands on every page.
//!
//! Without JavaScript it is a link to the search page. With JavaScript it opens a dialog with a
//! combobox. Pages and commands are listed at once, and the server's hits follow. The focus stays
//! in the field, and `aria-activedescendant` names the active option. This attribute is always
//! present (empty: no option) and comes from one memo, so that it is updated on every change.

use std::time::Duration;

use api::Problem;
use api::search::{MAX_QUERY_CHARS, SearchResults};
use leptos::ev;
use leptos::prelude::*;
use leptos::task::spawn_local;
use leptos_router::hooks::use_navigate;

use super::{server_functions, theme};
use crate::addresses;
use crate::components::{Dialog, DialogHandle, Icon, ProblemNotice, icon};
use crate::pages::deployments::board;
use crate::pages::search;
use crate::search_results::{Choice, ChoiceAction, commands, offers, pages, search_text};

/// The delay after the last keystroke before the server is queried.
const REST: Duration = Duration::from_millis(120);
/// The id of the list, for `aria-controls`.
const LIST_ID: &str = "palette-list";

fn option_id(n: usize) -> String {
    format!("palette-{n}")
}

/// The options and the active one.
#[derive(Clone, Copy)]
struct Offer {
    text: RwSignal<String>,
    /// The last hits from the server, with the text that they belong to.
    found: RwSignal<(String, SearchResults)>,
    is_open: RwSignal<bool>,
    at: RwSignal<usize>,
    choices: Memo<Vec<Choice>>,
    /// The index of the active option, clamped to the list.
    place: Memo<usize>,
    /// The id of the active option, or an empty string.
    active: Memo<String>,
}

impl Offer {
    fn new() -> Self {
        let (text, found) = (RwSignal::new(String::new()), RwSignal::new(Default::default()));
        let (is_open, at) = (RwSignal::new(false), RwSignal::new(0_usize));
        let choices = Memo::new(move |_| match is_open.get() {
            true => offered(&text.read(), &found.read()),
            false => Vec::new(),
        });
        let place = Memo::new(move |_| at.get().min(choices.read().len().saturating_sub(1)));
        let active = Memo::new(move |_| match choices.read().is_empty() {
            true => String::new(),
            false => option_id(place.get()),
        });
        Self { text, found, is_open, at, choices, place, active }
    }

    /// Moves the active option up or down, and wraps around at the ends.
    fn step(self, down: bool) {
        let (n, len) = (self.place.get_untracked(), self.choices.read_untracked().len());
        if len > 0 {
            self.at.set(if down { (n + 1) % len } else { (n + len - 1) % len });
        }
    }

    fn to_end(self, last: bool) {
        let len = self.choices.read_untracked().len();
        self.at.set(if last { len.saturating_sub(1) } else { 0 });
    }

    fn chosen(self) -> Option<Choice> {
        self.choices.read_untracked().get(self.place.get_untracked()).cloned()
    }

    fn type_in(self, text: String) {
        self.text.set(text);
        self.at.set(0);
    }
}

/// Pages and commands that match a text, followed by the server's hits. Hits for an earlier text
/// are filtered by the current one.
fn offered(text: &str, (of, found): &(String, SearchResults)) -> Vec<Choice> {
    let search = search_text(text);
    let small = search.to_lowercase();
    let fits = |choice: &Choice| of == search || choice.name.to_lowercase().contains(&small);
    let hits =
        found.hits.iter().flat_map(offers).filter(|choice| !search.is_empty() && fits(choice));
    // If the text starts with "propose", the proposals come first.
    let is_wish = search != text.trim();
    let (wished, other): (Vec<Choice>, Vec<Choice>) =
        hits.partition(|choice| is_wish && matches!(choice.action, ChoiceAction::Propose(..)));
    wished.into_iter().chain(pages(text)).chain(commands(text)).chain(other).collect()
}

/// The button and the dialog.
#[component]
pub(super) fn Palette() -> impl IntoView {
    let offer = Offer::new();
    let dialog = DialogHandle::new();
    let problem = RwSignal::new(None::<Problem>);
    let busy = RwSignal::new(false);
    let open = move || {
        offer.is_open.set(true);
        dialog.open();
    };
    listen(move || {
        // Another open dialog has priority.
        if !matches!(document().query_selector("dialog[open]"), Ok(Some(_))) {
            open();
        }
    });
    search_when_typed(offer, problem, busy);
    let closed = Callback::new(move |()| {
        offer.is_open.set(false);
        offer.type_in(String::new());
        problem.set(None);
    });
    let run = runner(dialog, problem);
    let press = {
        let run = run.clone();
        move |event: ev::KeyboardEvent| {
            if event.is_composing() {
                return;
            }
            match event.key().as_str() {
                "ArrowDown" => offer.step(true),
                "ArrowUp" => offer.step(false),
                "Home" => offer.to_end(false),
                "End" => offer.to_end(true),
                "Enter" => {
                    if let Some(choice) = offer.chosen() {
                        run(choice.action);
                    }
                }
                _ => return,
            }
            event.prevent_default();
            scroll_to_active(offer.active.get_untracked());
        }
    };
    let come_in = move |event: ev::MouseEvent| {
        if event.ctrl_key() || event.meta_key() || event.shift_key() {
            return;
        }
        event.prevent_default();
        open();
    };
    view! {
        <a
            class="button quiet small finder"
            href=addresses::SEARCH
            aria-haspopup="dialog"
            aria-keyshortcuts="Control+K Meta+K"
            on:click=come_in
        >
            {icon(Icon::Search)}
            <span class="caption">"Search"</span>
            <kbd class="needs-scripts" aria-hidden="true">"Ctrl K"</kbd>
        </a>
        <Dialog id="palette" title="Search and commands".to_owned() handle=dialog closed=closed>
            <div class="body palette">
                <Field offer press/>
                <ProblemNotice problem=problem/>
                <Options offer run/>
                <p class="muted" role="status">{move || result_count(offer, busy.get())}</p>
            </div>
        </Dialog>
    }
    .into_any()
}

#[component]
fn Field(offer: Offer, press: impl Fn(ev::KeyboardEvent) + 'static) -> impl IntoView {
    let expanded = move || if offer.choices.read().is_empty() { "false" } else { "true" };
    view! {
        <input
            class="input"
            id="palette-text"
            type="text"
            role="combobox"
            autofocus
            autocomplete="off"
            spellcheck="false"
            maxlength=MAX_QUERY_CHARS.to_string()
            placeholder="Node, role, review, page or command"
            aria-label="Search and commands"
            aria-autocomplete="list"
            aria-controls=LIST_ID
            aria-expanded=expanded
            aria-activedescendant=move || offer.active.get()
            prop:value=move || offer.text.get()
            on:input=move |event| offer.type_in(event_target_value(&event))
            on:keydown=press
        />
    }
    .into_any()
}

#[component]
fn Options(
    offer: Offer,
    run: impl Fn(ChoiceAction) + Clone + Send + Sync + 'static,
) -> impl IntoView {
    let options = move || {
        let all = offer.choices.get().into_iter().enumerate();
        let one = |(n, Choice { name, about, icon: shape, action })| {
            let run = run.clone();
            let selected = move || if offer.place.get() == n { "true" } else { "false" };
            view! {
                <li
                    id=option_id(n)
                    role="option"
                    aria-selected=selected
                    on:click=move |_| run(action.clone())
                >
                    {icon(shape)}
                    <bdi class="clip grow">{name}</bdi>
                    <small class="muted">{about}</small>
                </li>
            }
        };
        all.map(one).collect_view()
    };
    view! { <ul id=LIST_ID role="listbox" aria-label="Results">{options}</ul> }.into_any()
}

/// The number of options, for screen readers.
fn result_count(offer: Offer, busy: bool) -> String {
    let n = offer.choices.read().len();
    match (n, busy) {
        (0, true) => "Searching".to_owned(),
        (0, false) if offer.is_open.get() => "No results. Try another name.".to_owned(),
        (0, false) => String::new(),
        (1, _) => "1 result. Press Enter to select it.".to_owned(),
        (n, _) => format!("{n} results. Use the arrow keys and Enter to select one."),
    }
}

/// Executes a choice.
fn runner(
    dialog: DialogHandle,
    problem: RwSignal<Option<Problem>>,
) -> impl Fn(ChoiceAction) + Clone + Send + Sync + 'static {
    let navigate = StoredValue::new(use_navigate());
    let colors = theme::chosen();
    let go = move |place: &str| {
        dialog.close();
        if let Some(navigate) = navigate.try_get_value() {
            navigate(place, Default::default());
        }
    };
    move |action: ChoiceAction| match action {
        ChoiceAction::Go(place) => go(&place),
        ChoiceAction::SetTheme(theme) => {
            theme::choose(colors, theme);
            dialog.close();
        }
        ChoiceAction::Propose(id, name) => spawn_local(async move {
            match board::server_functions::propose(id).await {
                Ok(_) => go(&addresses::deployment(&name)),
                Err(failure) => drop(problem.try_set(Some(failure.0))),
            }
        }),
        ChoiceAction::SignOut => spawn_local(async move {
            match server_functions::sign_out().await {
                Ok(()) => drop(window().location().set_href(addresses::SIGN_IN)),
                Err(failure) => drop(problem.try_set(Some(failure.0))),
            }
        }),
    }
}

/// Queries the server after a pause in typing. A response to an outdated query is dropped.
fn search_when_typed(offer: Offer, problem: RwSignal<Option<Problem>>, busy: RwSignal<bool>) {
    let turn = StoredValue::new(0_u32);
    Effect::new(move |_| {
        let text = search_text(&offer.text.read()).to_owned();
        let Some(mine) = turn.try_update_value(|turn| {
            *turn = turn.wrapping_add(1);
            *turn
        }) else {
            return;
        };
        if text.is_empty() {
            busy.set(false);
            return;
        }
        busy.set(true);
        let ask = move || {
            if turn.try_get_value() != Some(mine) {
                return;
            }
            spawn_local(async move {
                let answer = search::search(text.clone()).await;
                if turn.try_get_value() != Some(mine) {
                    return;
                }
                busy.try_set(false);
                match answer {
                    Ok(found) => {
                        problem.try_set(None);
                        offer.found.try_set((text, found));
                    }
                    Err(failure) => drop(problem.try_set(Some(failure.0))),
                }
            });
        };
        set_timeout(ask, REST);
    });
}

/// Opens the palette on its keyboard shortcut.
fn listen(open: impl Fn() + Copy + 'static) {
    Effect::new(move |_| {
        let handle = window_event_listener(ev::keydown, move |event| {
            let command =
                (event.ctrl_key() || event.meta_key()) && !event.shift_key() && !event.alt_key();
            if command && event.key().eq_ignore_ascii_case("k") {
                event.prevent_default();
                open();
            }
        });
        on_cleanup(move || handle.remove());
    });
}

/// Scrolls the active option into view.
fn scroll_to_active(id: String) {
    request_animation_frame(move || {
        let Some(option) = document().get_element_by_id(&id) else { return };
        let options = web_sys::ScrollIntoViewOptions::new();
        options.set_block(web_sys::ScrollLogicalPosition::Nearest);
        option.scroll_into_view_with_scroll_into_view_options(&options);
    });
}

#[cfg(all(test, feature = "ssr"))]
mod tests {
    use super::*;
    use api::search::Hit;
    use engine::ids::{DeploymentId, DeploymentName, NodeId};

    fn deployment(name: &str) -> DeploymentName {
        DeploymentName::parse(name).expect("valid name")
    }

    fn some() -> SearchResults {
        let web = Hit::Deployment { id: DeploymentId(Default::default()), name: deployment("web") };
        let n1 = Hit::Node {
            id: NodeId(Default::default()),
            fqdn: "web-1.example.com".into(),
            deployment: deployment("web"),
        };
        SearchResults { hits: vec![web, n1], more: Vec::new() }
    }

    fn names(text: &str, found: &(String, SearchResults)) -> Vec<String> {
        offered(text, found).into_iter().map(|choice| choice.name).collect()
    }

    #[test]
    fn local_options_precede_server_hits() {
        let found = ("web".to_owned(), some());
        assert_eq!(names("web", &found), ["web", "Propose changes on web", "web-1.example.com"]);
        assert_eq!(names("propose web", &found)[0], "Propose changes on web");
        assert_eq!(
            names("nod", &found),
            ["Nodes"],
            "hits for another text are dropped if they do not match"
        );
        assert_eq!(names("web-1", &found), ["web-1.example.com"]);
    }

    #[test]
    fn active_option_is_always_set() {
        let owner = Owner::new();
        owner.set();
        let offer = Offer::new();
        assert_eq!(
            (offer.active.get_untracked(), offer.chosen()),
            (String::new(), None),
            "a closed palette has no active option"
        );
        offer.is_open.set(true);
        assert_eq!(offer.active.get_untracked(), "palette-0");
        offer.step(true);
        offer.step(true);
        assert_eq!(offer.active.get_untracked(), "palette-2");
        offer.type_in("nodes".into());
        assert_eq!(offer.active.get_untracked(), "palette-0");
        assert_eq!(
            offer.chosen().map(|choice| choice.action),
            Some(ChoiceAction::Go("/nodes".into()))
        );
        offer.step(false);
        assert_eq!(
            offer.active.get_untracked(),
            "palette-0",
            "a list with one option wraps around"
        );
        offer.type_in("nothing like that".into());
        assert_eq!(offer.active.get_untracked(), "");
        offer.found.set(("nothing like that".into(), some()));
        assert_eq!(offer.active.get_untracked(), "palette-0", "late hits are selectable");
        offer.to_end(true);
        assert_eq!(offer.active.get_untracked(), "palette-2");
        let field = view! { <Field offer press=|_| {}/> }.to_html();
        assert!(field.contains("aria-activedescendant=\"palette-2\""), "{field}");
        let options = view! { <Options offer run=|_| {}/> }.to_html();
        let chosen = options
            .split("<li")
            .find(|option| option.contains("aria-selected=\"true\""))
            .expect("an option is selected");
        assert!(chosen.contains("id=\"palette-2\""), "{options}");
        offer.is_open.set(false);
        let field = view! { <Field offer press=|_| {}/> }.to_html();
        assert!(
            field.contains("aria-activedescendant=\"\"")
                || field.contains("aria-activedescendant "),
            "{field}"
        );
    }
}
