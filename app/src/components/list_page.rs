//! A list as a page: filter form, columns, table, pagination and empty states.
//!
//! This module has everything that lists share. A page implements [`ListPage`] with its
//! differences. All lists follow these rules:
//!
//! * The form is outside of the loaded part. It keeps its input and focus, even after an error.
//! * An error is shown instead of the list, below the page's title, with links that correct the
//!   address.
//! * A reader without the permission sees only this message, without filters, columns and commands.
//!   The permission is known only with the response, after the form was rendered, so CSS hides the
//!   form (`style/table.css`).
//! * The table follows its list: an event updates cells, and remaining rows keep the focus and open
//!   sections.
//! * The shown commands match the address, with the parameters of the API.
//!
//! Create a list in its page's component ([`ListOf::new`]), and place it in the page
//! ([`ListOf::view`]).

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

use crate::components::list::{
    Column, ListAddress, VisibleColumns, choice_field, columns, example_field, filters, head,
    header, hidden, list_error, pager, time_field,
};
use crate::components::{
    EquivalentCommands, Feed, FormValues, ProblemNotice, load_with_error, rows,
};
use crate::failure::ServerResult;
use crate::live::{NOW, use_live};
use crate::permissions::with_permission;

/// The values of an enumerated field, each with its label.
pub type ChoicesFn = fn() -> Vec<(&'static str, &'static str)>;

/// The control of a field.
#[derive(Debug, Clone, Copy)]
pub enum Input {
    /// A text, with a placeholder or an empty string.
    Text(&'static str),
    Choice(ChoicesFn),
    /// A date and time in UTC.
    Time,
}

/// A field of the filter form.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// The parameter's name in the address.
    name: &'static str,
    label: &'static str,
    /// The label before the value: `name contains`.
    filter_label: &'static str,
    input: Input,
}

impl Field {
    pub const fn text(name: &'static str, label: &'static str, filter_label: &'static str) -> Self {
        Self { name, label, filter_label, input: Input::Text("") }
    }

    /// Adds a placeholder to a text field.
    pub const fn like(self, example: &'static str) -> Self {
        Self { input: Input::Text(example), ..self }
    }

    pub const fn choice(
        name: &'static str,
        label: &'static str,
        filter_label: &'static str,
        of: ChoicesFn,
    ) -> Self {
        Self { name, label, filter_label, input: Input::Choice(of) }
    }

    /// A date and time in UTC.
    pub const fn time(name: &'static str, label: &'static str, filter_label: &'static str) -> Self {
        Self { name, label, filter_label, input: Input::Time }
    }

    fn view(self, list: &'static str, value: Signal<String>) -> AnyView {
        let id = format!("{list}-{}", self.name);
        match self.input {
            Input::Text(example) => example_field(id, self.name, self.label, example, value),
            Input::Choice(choices) => choice_field(id, self.name, self.label, value, choices()),
            Input::Time => time_field(id, self.name, self.label, value),
        }
    }
}

pub type Row<P> = <<P as ListPage>::Page as Paged>::Row;

/// The properties of one list.
pub trait ListPage: Copy + Send + Sync + 'static {
    type Sort: Sort;
    type Part: Column;
    type Page: Paged<Row: Clone + PartialEq + Send + Sync>
        + Clone
        + PartialEq
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static;
    /// The identity of a row.
    type Key: Clone + Eq + Hash + Send + Sync + 'static;

    /// The prefix of the ids of the form's fields.
    const ID: &'static str;
    /// The noun in singular and plural.
    const NAMES: (&'static str, &'static str);
    /// The name of the cursor parameter.
    const CURSOR_PARAM: &'static str;
    const FIELDS: &'static [Field];
    /// Further parameters of the page's address: the choice of the list, or content next to it.
    const EXTRA_PARAMS: &'static [&'static str] = &[];
    /// Columns of numbers, which are right-aligned.
    const NUMBERS: &'static [Self::Part] = &[];
    /// The sort orders with their labels in the form.
    const SORTS: &'static [(Self::Sort, &'static str)];
    /// The topics of events that change the list.
    const TOPICS: &'static [Topic] = &[];
    /// The list in the API, for the equivalent commands.
    const API_LIST: List;
    /// The permission for the page's commands, which are hidden without it.
    const RIGHT: Option<&'static str> = None;
    /// The header of the column with the rows' commands, which requires the permission.
    const COMMANDS: Option<&'static str> = None;
    /// An additional CSS class of the table.
    const STYLE: &'static str = "";

    fn path(self) -> String;

    fn fetch(
        self,
        listed: ListAddress<Self::Sort>,
    ) -> impl Future<Output = ServerResult<Self::Page>> + Send + 'static;

    /// The order of a sortable column, and whether the first click sorts in descending order.
    fn sorted_by(column: Self::Part) -> Option<(Self::Sort, bool)>;

    fn key(row: &Row<Self>) -> Self::Key;

    fn row(self, row: Memo<Row<Self>>, context: RowContext<Self>) -> AnyView;

    /// The empty state if the list has no rows at all.
    fn none(self) -> AnyView;

    /// Parses the address.
    fn read(self, query: &ParamsMap) -> ListAddress<Self::Sort> {
        let listed = ListAddress::read(self.path(), query, Self::CURSOR_PARAM);
        with_fields(listed, Self::FIELDS, |name| query.get(name).unwrap_or_default())
    }

    /// The first page of the same list, with one more filter.
    fn filtered_address(
        self,
        listed: &ListAddress<Self::Sort>,
        name: &str,
        value: &str,
    ) -> ListAddress<Self::Sort> {
        let text = |word: &str| if word == name { value.to_owned() } else { listed.param(word) };
        with_fields(listed.without_filters(), Self::FIELDS, text)
    }

    /// The message instead of rows. A list with several empty states overrides it.
    fn nothing(self, listed: &ListAddress<Self::Sort>, _next: Option<&Cursor>) -> AnyView {
        let (one, many) = Self::NAMES;
        hidden(listed, one, many).unwrap_or_else(|| self.none())
    }

    /// A text above the table.
    fn caption(_page: &Self::Page) -> Option<String> {
        None
    }

    /// The value of an API parameter for this address.
    fn api_param(self, listed: &ListAddress<Self::Sort>, word: &str) -> Option<String> {
        Some(listed.param(word))
    }

    /// The equivalent API call.
    fn api_call(self, listed: &ListAddress<Self::Sort>) -> Call {
        listing(Self::API_LIST, |word| self.api_param(listed, word))
    }

    /// Fetches again when an event changes the list.
    fn follow(self, feed: Feed<Self::Page>) {
        if !Self::TOPICS.is_empty() {
            use_live().subscribe(Self::TOPICS.to_vec(), NOW, move |_| feed.soon());
        }
    }

    /// Content below the loaded list. `refetch` fetches the list again.
    fn below(self, _with: RowContext<Self>, _refetch: Callback<()>) -> AnyView {
        ().into_any()
    }
}

/// Adds the values of these fields to a list's address.
pub fn with_fields<S: Sort>(
    listed: ListAddress<S>,
    fields: &[Field],
    text: impl Fn(&str) -> String,
) -> ListAddress<S> {
    fields.iter().fold(listed, |listed, field| {
        listed.with_filter(field.name, field.filter_label, &text(field.name))
    })
}

/// The context of a row.
pub struct RowContext<P: ListPage> {
    shown: VisibleColumns<P::Part>,
    /// Whether the reader has the list's [permission](ListPage::RIGHT).
    pub may: bool,
    pub listed: StoredValue<ListAddress<P::Sort>>,
}

impl<P: ListPage> Clone for RowContext<P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: ListPage> Copy for RowContext<P> {}

impl<P: ListPage> RowContext<P> {
    /// The cell of a column, if the column is visible. On a narrow screen it shows the header, too.
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

/// The class of a numeric column, for its header and cells.
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
    listed: Memo<ListAddress<P::Sort>>,
    loaded: Resource<ServerResult<(P::Page, bool)>>,
}

impl<P: ListPage> Clone for ListOf<P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: ListPage> Copy for ListOf<P> {}

impl<P: ListPage> ListOf<P> {
    /// Creates the list that the address selects.
    pub fn new(of: P) -> Self {
        let query = use_query_map();
        let listed = Memo::new(move |_| {
            let query = query.read();
            let words: Vec<&str> = P::FIELDS
                .iter()
                .map(|field| field.name)
                .chain(P::EXTRA_PARAMS.iter().copied())
                .collect();
            of.read(&query).with_further_params(&query, &words)
        });
        let fetch = move |listed: ListAddress<P::Sort>| async move {
            listed.known()?;
            listed.check_columns::<P::Part>()?;
            match P::RIGHT {
                Some(right) => with_permission(of.fetch(listed), right).await,
                None => Ok((of.fetch(listed).await?, false)),
            }
        };
        let loaded = Resource::new(move || listed.get(), fetch);
        Self { of, listed, loaded }
    }

    pub fn listed(self) -> Memo<ListAddress<P::Sort>> {
        self.listed
    }

    /// Content next to the page's title, which depends on the reader's permission. Errors are shown
    /// in place of the list.
    pub fn with_side_content(
        self,
        show: impl Fn(bool) -> AnyView + Copy + Send + Sync + 'static,
    ) -> AnyView {
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

    /// The form, the choice of columns, the list and the equivalent commands.
    pub fn view(self) -> AnyView {
        let Self { of, listed, loaded } = self;
        let field = |field: &'static Field| {
            let value = Signal::derive(move || listed.read().param(field.name));
            field.view(P::ID, value)
        };
        let fields = P::FIELDS.iter().map(field).collect_view();
        let show =
            move |(first, may): (P::Page, bool)| table(of, first, may, listed.get_untracked());
        let show_error =
            move |problem: Problem| list_error(&listed.read_untracked(), P::NAMES.1, problem);
        let same = move |_: FormValues| vec![of.api_call(&listed.read())];
        view! {
            {filters(listed, P::SORTS, fields)}
            {columns::<_, P::Part>(listed)}
            {load_with_error(loaded, show, show_error)}
            <EquivalentCommands of=same/>
        }
        .into_any()
    }
}

fn table<P: ListPage>(of: P, first: P::Page, may: bool, listed: ListAddress<P::Sort>) -> AnyView {
    let context = RowContext {
        shown: VisibleColumns::of(&listed),
        may,
        listed: StoredValue::new(listed.clone()),
    };
    let feed = Feed::new(first, move || of.fetch(listed.clone()));
    of.follow(feed);
    let page = feed.value();
    let list = Memo::new(move |_| page.read().rows().to_vec());
    let next = Memo::new(move |_| page.read().next().cloned());
    let is_empty = Memo::new(move |_| list.read().is_empty());
    let caption = Memo::new(move |_| P::caption(&page.read()));
    let shown = move || match is_empty.get() {
        true => context.listed.with_value(|listed| of.nothing(listed, next.read().as_ref())),
        false => {
            let heads = context.listed.with_value(|listed| heads::<P>(listed, context));
            let body = rows(list.into(), P::key, move |row| of.row(row, context));
            framed(P::STYLE, caption, heads, body.into_any())
        }
    };
    // The message instead of rows already links to the first page.
    let pager = move || {
        let next = next.get();
        (!is_empty.get() || next.is_some())
            .then(|| context.listed.with_value(|listed| pager(listed, next.as_ref())))
    };
    view! {
        <ProblemNotice problem=feed.problem() retry=feed.retry()/>
        <div class="card">{shown} {pager}</div>
        {of.below(context, Callback::new(move |()| feed.now()))}
    }
    .into_any()
}

fn framed(
    table_class: &'static str,
    caption: Memo<Option<String>>,
    heads: AnyView,
    body: AnyView,
) -> AnyView {
    let class = format!("table responsive {table_class}");
    let caption =
        move || caption.get().map(|text| view! { <caption class="count">{text}</caption> });
    view! {
        <table class=class.trim_end().to_owned()>
            {caption}
            <thead><tr>{heads}</tr></thead>
            <tbody>{body}</tbody>
        </table>
    }
    .into_any()
}

fn heads<P: ListPage>(listed: &ListAddress<P::Sort>, context: RowContext<P>) -> AnyView {
    let one = |column: &P::Part| match P::sorted_by(*column) {
        Some((by, descending)) => {
            head(listed, by, column.label(), descending, number::<P>(*column))
        }
        None => header(column.label(), number::<P>(*column)),
    };
    let all =
        P::Part::EVERY.iter().filter(|column| context.shown.has(**column)).map(one).collect_view();
    let commands = P::COMMANDS.filter(|_| context.may).map(|label| header(label, None));
    view! { {all} {commands} }.into_any()
}
