//! A list as a page: the form that narrows it, its columns, its table, the ways through its pages, and what stands where no row is.
//!
//! All that lists have in common is here once; a page says what is its own ([`ListPage`]), and has no more of its own than that. What holds
//! for every list:
//!
//! * The form stands outside of what is loaded. It stays, with what was typed and where the reader is in it, whatever the server says.
//! * What can't be had is said where the list would be, under the page's own title, with the ways out of what the address asks for.
//! * Who may not see the list at all is told that alone: no filter, no column and no command would change it. Whether that is so is known
//!   with the answer, behind the form, so it is style that takes those away (`style/table.css`).
//! * The table follows its list: an event moves cells, and rows that stay keep what is focused and what is open.
//! * What a page shows of commands is what its address asks for, in the words of the interface.
//!
//! A list is made in its page's component ([`ListOf::new`]) and shown where the page has its place for it ([`ListOf::view`]).

use std::future::Future;
use std::hash::Hash;

use api::Problem;
use api::calls::{Call, List, list as listing};
use api::listing::{Cursor, Paged, Sort};
use api::live::Topic;
use leptos::prelude::*;
use leptos_router::hooks::use_query_map;
use leptos_router::params::ParamsMap;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::Answer;
use crate::live::{NOW, use_live};
use crate::parts::list::{
    Column, Listed, Shown, choice_field, columns, example_field, filters, head, hidden,
    moment_field, pager, plain_head, trouble,
};
use crate::parts::{Feed, ProblemNotice, Same, Typed, load_or, rows};
use crate::reader::with_right;

/// Words of a choice, and what is shown for each.
pub type Choices = fn() -> Vec<(&'static str, &'static str)>;

/// How something is asked for.
#[derive(Debug, Clone, Copy)]
pub enum Input {
    /// By a text; an example of one, or nothing.
    Text(&'static str),
    /// By one of some words.
    Choice(Choices),
    /// By a day and time in UTC.
    Moment,
}

/// Something that a list can be asked for.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its word in the address.
    name: &'static str,
    label: &'static str,
    /// How it reads before its value: `name contains`.
    says: &'static str,
    input: Input,
}

impl Field {
    /// By a text.
    pub const fn text(name: &'static str, label: &'static str, says: &'static str) -> Self {
        Self { name, label, says, input: Input::Text("") }
    }

    /// By a text, with an example of one.
    pub const fn like(self, example: &'static str) -> Self {
        Self { input: Input::Text(example), ..self }
    }

    /// By one of some words.
    pub const fn choice(
        name: &'static str,
        label: &'static str,
        says: &'static str,
        of: Choices,
    ) -> Self {
        Self { name, label, says, input: Input::Choice(of) }
    }

    /// By a day and time in UTC.
    pub const fn moment(name: &'static str, label: &'static str, says: &'static str) -> Self {
        Self { name, label, says, input: Input::Moment }
    }

    fn view(self, list: &'static str, value: Signal<String>) -> AnyView {
        let id = format!("{list}-{}", self.name);
        match self.input {
            Input::Text(example) => example_field(id, self.name, self.label, example, value),
            Input::Choice(choices) => choice_field(id, self.name, self.label, value, choices()),
            Input::Moment => moment_field(id, self.name, self.label, value),
        }
    }
}

/// What a list is of.
pub type Row<P> = <<P as ListPage>::Page as Paged>::Row;

/// What one list has of its own.
pub trait ListPage: Copy + Send + Sync + 'static {
    /// What it can be sorted by.
    type Sort: Sort;
    /// Its columns.
    type Part: Column;
    /// A page of it.
    type Page: Paged<Row: Clone + PartialEq + Send + Sync>
        + Clone
        + PartialEq
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static;
    /// What tells its rows apart.
    type Key: Clone + Eq + Hash + Send + Sync + 'static;

    /// What begins the ids of its form's fields.
    const ID: &'static str;
    /// One of it, and many.
    const NAMES: (&'static str, &'static str);
    /// The word of the place in its address.
    const PLACE: &'static str;
    /// What it can be asked for.
    const FIELDS: &'static [Field];
    /// Words of its page's address that are none of the form's: which list it is, or what stands beside it.
    const WORDS: &'static [&'static str] = &[];
    /// Columns of numbers: they stand at the right, below their heads.
    const NUMBERS: &'static [Self::Part] = &[];
    /// Its orders as the form names them.
    const SORTS: &'static [(Self::Sort, &'static str)];
    /// What tells that it changed.
    const TOPICS: &'static [Topic] = &[];
    /// The same as a command.
    const SAME: List;
    /// The permission for what its page has of commands, which the page is asked to show only then.
    const RIGHT: Option<&'static str> = None;
    /// The head of the rows' commands, for who has that.
    const COMMANDS: Option<&'static str> = None;
    /// What the table is called by style, beside what all are.
    const STYLE: &'static str = "";

    /// Its path.
    fn path(self) -> String;

    /// A page of it.
    fn fetch(
        self,
        listed: Listed<Self::Sort>,
    ) -> impl Future<Output = Answer<Self::Page>> + Send + 'static;

    /// What a column's head sorts by, and whether its first press sorts from the end.
    fn sorted_by(column: Self::Part) -> Option<(Self::Sort, bool)>;

    /// What tells a row from the others.
    fn key(row: &Row<Self>) -> Self::Key;

    /// A row.
    fn row(self, row: Memo<Row<Self>>, with: With<Self>) -> AnyView;

    /// What stands there when there are none at all.
    fn none(self) -> AnyView;

    /// What it is asked for, out of its address.
    fn read(self, query: &ParamsMap) -> Listed<Self::Sort> {
        let listed = Listed::read(self.path(), query, Self::PLACE);
        asked(listed, Self::FIELDS, |name| query.get(name).unwrap_or_default())
    }

    /// The same list from its beginning, asked for this by a word of it, too.
    fn asking(self, listed: &Listed<Self::Sort>, name: &str, value: &str) -> Listed<Self::Sort> {
        let said = |word: &str| if word == name { value.to_owned() } else { listed.word(word) };
        asked(listed.bare(), Self::FIELDS, said)
    }

    /// What stands there instead of rows. A list that has several kinds of nothing says which it is.
    fn nothing(self, listed: &Listed<Self::Sort>, _next: Option<&Cursor>) -> AnyView {
        let (one, many) = Self::NAMES;
        hidden(listed, one, many).unwrap_or_else(|| self.none())
    }

    /// What is said above the table.
    fn caption(_page: &Self::Page) -> Option<String> {
        None
    }

    /// What a word of the interface says for the list as it is asked for.
    fn word(self, listed: &Listed<Self::Sort>, word: &str) -> Option<String> {
        Some(listed.word(word))
    }

    /// The same as a command.
    fn same(self, listed: &Listed<Self::Sort>) -> Call {
        listing(Self::SAME, |word| self.word(listed, word))
    }

    /// Follows what happens to it.
    fn follow(self, feed: Feed<Self::Page>) {
        if !Self::TOPICS.is_empty() {
            use_live().hear(Self::TOPICS.to_vec(), NOW, move |_| feed.soon());
        }
    }

    /// What stands below the list, once it is there; `again` fetches it once more.
    fn below(self, _with: With<Self>, _again: Callback<()>) -> AnyView {
        ().into_any()
    }
}

/// A list that is asked for what is said by the words of these fields.
pub fn asked<S: Sort>(
    listed: Listed<S>,
    fields: &[Field],
    said: impl Fn(&str) -> String,
) -> Listed<S> {
    fields
        .iter()
        .fold(listed, |listed, field| listed.asked(field.name, field.says, &said(field.name)))
}

/// What rows are shown with.
pub struct With<P: ListPage> {
    shown: Shown<P::Part>,
    /// Whether the reader has the list's [right](ListPage::RIGHT).
    pub may: bool,
    /// What the list is asked for.
    pub listed: StoredValue<Listed<P::Sort>>,
}

impl<P: ListPage> Clone for With<P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: ListPage> Copy for With<P> {}

impl<P: ListPage> With<P> {
    /// The cell of a column, if that is shown. On a narrow screen the column's head stands before it.
    pub fn cell(
        self,
        column: P::Part,
        class: &'static str,
        content: impl IntoView + 'static,
    ) -> Option<AnyView> {
        let class = [number::<P>(column).unwrap_or_default(), class].join(" ").trim().to_owned();
        self.shown.has(column).then(|| cell(column.label(), class, content.into_any()))
    }
}

/// How a column of numbers is marked, its head and its cells alike.
fn number<P: ListPage>(column: P::Part) -> Option<&'static str> {
    P::NUMBERS.contains(&column).then_some("number")
}

fn cell(label: &'static str, class: String, content: AnyView) -> AnyView {
    let class = (!class.is_empty()).then_some(class);
    view! { <td data-label=label class=class>{content}</td> }.into_any()
}

/// A list in its page.
pub struct ListOf<P: ListPage> {
    of: P,
    listed: Memo<Listed<P::Sort>>,
    loaded: Resource<Answer<(P::Page, bool)>>,
}

impl<P: ListPage> Clone for ListOf<P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: ListPage> Copy for ListOf<P> {}

impl<P: ListPage> ListOf<P> {
    /// The list that the address asks for.
    pub fn new(of: P) -> Self {
        let query = use_query_map();
        let listed = Memo::new(move |_| {
            let query = query.read();
            let words: Vec<&str> =
                P::FIELDS.iter().map(|field| field.name).chain(P::WORDS.iter().copied()).collect();
            of.read(&query).knowing(&query, &words)
        });
        let fetch = move |listed: Listed<P::Sort>| async move {
            listed.known()?;
            listed.has_columns::<P::Part>()?;
            match P::RIGHT {
                Some(right) => with_right(of.fetch(listed), right).await,
                None => Ok((of.fetch(listed).await?, false)),
            }
        };
        let loaded = Resource::new(move || listed.get(), fetch);
        Self { of, listed, loaded }
    }

    /// What it is asked for.
    pub fn listed(self) -> Memo<Listed<P::Sort>> {
        self.listed
    }

    /// What stands beside the page's title, by whether the reader has the list's right. What went wrong is said where the list would be.
    pub fn beside(self, show: impl Fn(bool) -> AnyView + Copy + Send + Sync + 'static) -> AnyView {
        let loaded = self.loaded;
        let show = move || {
            Suspend::new(async move {
                match loaded.await {
                    Ok((_, may)) => show(may),
                    Err(_) => ().into_any(),
                }
            })
        };
        view! { <Transition>{show}</Transition> }.into_any()
    }

    /// The form, the columns, the list, and the same as a command.
    pub fn view(self) -> AnyView {
        let Self { of, listed, loaded } = self;
        let field = |field: &'static Field| {
            let value = Signal::derive(move || listed.read().word(field.name));
            field.view(P::ID, value)
        };
        let fields = P::FIELDS.iter().map(field).collect_view();
        let show =
            move |(first, may): (P::Page, bool)| table(of, first, may, listed.get_untracked());
        let say = move |problem: Problem| trouble(&listed.read_untracked(), P::NAMES.1, problem);
        let same = move |_: Typed| vec![of.same(&listed.read())];
        view! {
            {filters(listed, P::SORTS, fields)}
            {columns::<_, P::Part>(listed)}
            {load_or(loaded, show, say)}
            <Same of=same/>
        }
        .into_any()
    }
}

fn table<P: ListPage>(of: P, first: P::Page, may: bool, listed: Listed<P::Sort>) -> AnyView {
    let with = With { shown: Shown::of(&listed), may, listed: StoredValue::new(listed.clone()) };
    let feed = Feed::new(first, move || of.fetch(listed.clone()));
    of.follow(feed);
    let page = feed.value();
    let list = Memo::new(move |_| page.read().rows().to_vec());
    let next = Memo::new(move |_| page.read().next().cloned());
    let is_empty = Memo::new(move |_| list.read().is_empty());
    let caption = Memo::new(move |_| P::caption(&page.read()));
    let shown = move || match is_empty.get() {
        true => with.listed.with_value(|listed| of.nothing(listed, next.read().as_ref())),
        false => {
            let heads = with.listed.with_value(|listed| heads::<P>(listed, with));
            let body = rows(list.into(), P::key, move |row| of.row(row, with));
            framed(P::STYLE, caption, heads, body.into_any())
        }
    };
    // What stands instead of rows leads back to the beginning itself.
    let pager = move || {
        let next = next.get();
        (!is_empty.get() || next.is_some())
            .then(|| with.listed.with_value(|listed| pager(listed, next.as_ref())))
    };
    view! {
        <ProblemNotice problem=feed.problem()/>
        <div class="card">{shown} {pager}</div>
        {of.below(with, Callback::new(move |()| feed.now()))}
    }
    .into_any()
}

fn framed(
    style: &'static str,
    caption: Memo<Option<String>>,
    heads: AnyView,
    body: AnyView,
) -> AnyView {
    let class = format!("table folds {style}");
    let caption =
        move || caption.get().map(|said| view! { <caption class="count">{said}</caption> });
    view! {
        <table class=class.trim_end().to_owned()>
            {caption}
            <thead><tr>{heads}</tr></thead>
            <tbody>{body}</tbody>
        </table>
    }
    .into_any()
}

fn heads<P: ListPage>(listed: &Listed<P::Sort>, with: With<P>) -> AnyView {
    let one = |column: &P::Part| match P::sorted_by(*column) {
        Some((by, falling)) => head(listed, by, column.label(), falling, number::<P>(*column)),
        None => plain_head(column.label(), number::<P>(*column)),
    };
    let all =
        P::Part::EVERY.iter().filter(|column| with.shown.has(**column)).map(one).collect_view();
    let commands = P::COMMANDS.filter(|_| with.may).map(|label| plain_head(label, None));
    view! { {all} {commands} }.into_any()
}
