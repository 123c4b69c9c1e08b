//! The common elements of lists: sortable headers, the filter form, the choice of columns and
//! pagination.
//!
//! The state of a list is its address ([`ListAddress`]). Links contain only parameters that differ
//! from the default, so each list has one address. Forms are GET forms that keep the parameters
//! without a field, so everything works without JavaScript. An invalid value stays in the address
//! and is reported, so that the reader keeps the rest of the query. An unknown parameter is
//! reported as well, with a link to the same address without it.

use std::fmt;
use std::marker::PhantomData;

use api::listing::{Cursor, Order, Sort};
use api::{At, Problem};
use leptos::prelude::*;
use leptos_router::params::ParamsMap;

use crate::addresses;
use crate::clock::{field, parse_time};
use crate::components::notice::problem_in_page;
use crate::components::{Empty, Icon, QueryForm, TYPED, icon};
use crate::failure::Failure;

/// The parameter of the sort order.
pub const SORT: &str = "sort";
/// The parameter of the columns.
pub const COLUMNS: &str = "columns";

/// Parameters that any address may have: after a form was posted without JavaScript, they contain
/// its error ([`Refused`](crate::components::Refused)).
const FORM_PARAMS: [&str; 2] = ["__path", "__err"];
/// The maximum number of unknown parameters that an error names.
const MAX_NAMED: usize = 3;

/// A parameter of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ListParam {
    name: &'static str,
    value: String,
    role: Role,
}

/// The effect of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It filters the list. Contains the label before the value: `name contains`.
    Narrows(&'static str),
    /// It selects one of several lists.
    Which,
    /// It configures content next to the list and has a field in the form.
    Adjacent,
}

impl ListParam {
    fn label(&self) -> Option<&'static str> {
        match self.role {
            Role::Narrows(label) => Some(label),
            Role::Which | Role::Adjacent => None,
        }
    }
}

/// The parsed address of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListAddress<S> {
    path: String,
    filters: Vec<ListParam>,
    /// As in the address, valid or not.
    sort: String,
    columns: String,
    /// The name and value of the cursor parameter.
    place: (&'static str, String),
    /// The error about unknown parameters, if the address has any.
    unknown_parameter: Option<String>,
    sorts: PhantomData<S>,
}

impl<S: Sort> ListAddress<S> {
    /// Parses the order, the columns and the cursor of a query. `place` is the name of the cursor
    /// parameter.
    pub fn read(path: impl Into<String>, query: &ParamsMap, place: &'static str) -> Self {
        let word = |name: &str| query.get(name).unwrap_or_default();
        Self {
            path: path.into(),
            filters: Vec::new(),
            sort: word(SORT),
            columns: query.get_all(COLUMNS).unwrap_or_default().join(","),
            place: (place, word(place)),
            unknown_parameter: None,
            sorts: PhantomData,
        }
    }

    /// Adds a filter, unless `value` is empty. `label` is shown before the value.
    pub fn with_filter(self, name: &'static str, label: &'static str, value: &str) -> Self {
        self.having(name, value, Role::Narrows(label))
    }

    /// Adds a parameter that selects one of several lists. It is kept in links and is no filter.
    pub fn with_list(self, name: &'static str, value: &str) -> Self {
        self.having(name, value, Role::Which)
    }

    /// Adds a parameter for content next to the list. It is kept in links and is no filter.
    pub fn with_panel(self, name: &'static str, value: &str) -> Self {
        self.having(name, value, Role::Adjacent)
    }

    fn having(mut self, name: &'static str, value: &str, role: Role) -> Self {
        if !value.is_empty() {
            self.filters.push(ListParam { name, value: value.to_owned(), role });
        }
        self
    }

    /// Declares the further parameters that the page knows. Other parameters are
    /// [refused](Self::known).
    pub fn with_further_params(self, query: &ParamsMap, words: &[&str]) -> Self {
        let all: Vec<&str> = words.iter().copied().chain([SORT, COLUMNS, self.place.0]).collect();
        Self { unknown_parameter: unknown_parameter(query, &all), ..self }
    }

    /// Fails if the address has unknown parameters.
    pub fn known(&self) -> Result<(), Failure> {
        self.unknown_parameter.clone().map_or(Ok(()), |text| Err(refused(text)))
    }

    /// Fails if the address names unknown columns.
    pub fn check_columns<C: Column>(&self) -> Result<(), Failure> {
        self.columns
            .split(',')
            .try_for_each(|word| one_of(COLUMNS, word, C::EVERY, C::as_str).map(|_| ()))
    }

    /// Removes the parameters for content next to the list.
    pub fn without_adjacent(mut self) -> Self {
        self.filters.retain(|param| param.role != Role::Adjacent);
        self
    }

    /// The value of a parameter as written. Empty: not set.
    pub fn param(&self, name: &str) -> String {
        if name == SORT {
            return self.sort.clone();
        }
        let param = self.filters.iter().find(|param| param.name == name);
        param.map(|param| param.value.clone()).unwrap_or_default()
    }

    /// The value of an enumerated parameter. See the function [`one_of`].
    pub fn one_of<T: Copy>(
        &self,
        name: &str,
        every: &[T],
        as_str: impl Fn(T) -> &'static str,
    ) -> Result<Option<T>, Failure> {
        one_of(name, &self.param(name), every, as_str)
    }

    /// The UTC time of a parameter. `None`: not set. `label` is the label of its field.
    pub fn time(&self, name: &str, label: &str) -> Result<Option<At>, Failure> {
        let text = self.param(name);
        if text.trim().is_empty() {
            return Ok(None);
        }
        let shown: String = text.chars().take(40).collect();
        let message = || {
            format!(
                "Invalid value for {label}: {shown:?} is not a date. Use a UTC date or time, such \
                 as 2026-11-22 or 2026-11-22T08:15."
            )
        };
        parse_time(&text).map(Some).ok_or_else(|| refused(message()))
    }

    /// The first page without filters, with the same order and columns.
    pub fn without_filters(&self) -> Self {
        Self { filters: Vec::new(), place: (self.place.0, String::new()), ..self.clone() }
    }

    /// The sort order. An unknown order is an error that lists the known ones.
    pub fn order(&self) -> Result<Order<S>, Failure> {
        self.sort.parse().map_err(|error| refused(format!("Invalid value for sort: {error}.")))
    }

    /// The cursor. `None`: the first page.
    pub fn cursor(&self) -> Option<Cursor> {
        Some(&self.place.1).filter(|place| !place.is_empty()).cloned().map(Cursor::from)
    }

    /// The order and the cursor. A cursor of another order is refused here, with a readable error
    /// and without a request.
    pub fn page_position(&self) -> Result<(Order<S>, Option<Cursor>), Failure> {
        let (order, place) = (self.order()?, self.cursor());
        let fits = place.as_ref().is_none_or(|place| place.keys(order).is_ok());
        match fits {
            true => Ok((order, place)),
            false => Err(refused(format!(
                "Invalid cursor in {}: it belongs to another sort order. Open the first page.",
                self.place.0
            ))),
        }
    }

    /// Whether the list has a filter.
    pub fn is_filtered(&self) -> bool {
        self.filters.iter().any(|param| param.label().is_some())
    }

    /// The parameters that the filter form keeps without a field.
    fn hidden_params(&self) -> Vec<(&'static str, String)> {
        let params = self.filters.iter().filter(|param| param.role == Role::Which);
        let params = params.map(|param| (param.name, param.value.clone()));
        let columns =
            Some((COLUMNS, self.columns.clone())).filter(|(_, columns)| !columns.is_empty());
        params.chain(columns).collect()
    }

    fn all_params<'a>(
        &'a self,
        with_filters: bool,
        sort: &'a str,
        place: &'a str,
    ) -> Vec<(&'a str, &'a str)> {
        let is_kept = |param: &&ListParam| with_filters || param.label().is_none();
        let filters =
            self.filters.iter().filter(is_kept).map(|param| (param.name, param.value.as_str()));
        let is_default = sort.parse::<Order<S>>().is_ok_and(Order::is_default);
        let sort = if is_default { "" } else { sort };
        let rest = [(SORT, sort), (COLUMNS, self.columns.as_str()), (self.place.0, place)];
        filters.chain(rest).filter(|(_, value)| !value.is_empty()).collect()
    }

    fn with(&self, with_filters: bool, sort: &str, place: &str) -> String {
        let text = |(name, value): (&str, &str)| format!("{name}={}", addresses::encoded(value));
        let words: Vec<String> =
            self.all_params(with_filters, sort, place).into_iter().map(text).collect();
        match words.is_empty() {
            true => self.path.clone(),
            false => format!("{}?{}", self.path, words.join("&")),
        }
    }

    pub fn address(&self) -> String {
        self.with(true, &self.sort, &self.place.1)
    }

    /// The address of the page after a cursor.
    pub fn at(&self, place: &Cursor) -> String {
        self.with(true, &self.sort, place.as_str())
    }

    /// The address of the first page.
    pub fn first(&self) -> String {
        self.with(true, &self.sort, "")
    }

    /// The address without filters, with the same order and columns.
    pub fn all(&self) -> String {
        self.with(false, &self.sort, "")
    }

    /// The address without any parameters: the fallback for every invalid address.
    pub fn base_address(&self) -> &str {
        &self.path
    }

    /// The address of the first page in another order.
    pub fn sorted(&self, order: Order<S>) -> String {
        self.with(true, &order.to_string(), "")
    }

    /// The filters in words: `name contains “db”, state is “dead”`.
    pub fn narrowed(&self) -> String {
        let text =
            |param: &ListParam| param.label().map(|label| format!("{label} “{}”", param.value));
        self.filters.iter().filter_map(text).collect::<Vec<_>>().join(", ")
    }
}

/// An error about an invalid parameter.
pub fn refused(detail: String) -> Failure {
    let problem = Problem::invalid(detail);
    #[cfg(feature = "ssr")]
    crate::respond::status(problem.status);
    Failure(problem)
}

/// An error about parameters that are not in `known`, if the query has any.
pub fn unknown_parameter(query: &ParamsMap, known: &[&str]) -> Option<String> {
    let is_known = |word: &str| {
        known.contains(&word) || FORM_PARAMS.contains(&word) || word.starts_with(TYPED)
    };
    let mut odd: Vec<&str> =
        query.into_iter().map(|(word, _)| &**word).filter(|word| !is_known(word)).collect();
    odd.dedup();
    let quoted = |word: &&str| format!("{:?}", word.chars().take(80).collect::<String>());
    let named = odd.iter().take(MAX_NAMED).map(quoted).collect::<Vec<_>>().join(", ");
    (!odd.is_empty())
        .then(|| format!("Unknown parameter {named}. Use one of: {}.", known.join(", ")))
}

/// Parses an enumerated parameter. `None`: empty. An unknown value is an error that lists the known
/// ones.
pub fn one_of<T: Copy>(
    name: &str,
    word: &str,
    every: &[T],
    as_str: impl Fn(T) -> &'static str,
) -> Result<Option<T>, Failure> {
    let found = every.iter().copied().find(|each| as_str(*each) == word);
    if found.is_some() || word.is_empty() {
        return Ok(found);
    }
    let shown: String = word.chars().take(80).collect();
    let known: Vec<&str> = every.iter().map(|each| as_str(*each)).collect();
    Err(refused(format!("Invalid value for {name}: {shown:?}. Use one of: {}.", known.join(", "))))
}

/// A column that readers can hide.
pub trait Column: Copy + PartialEq + Send + Sync + 'static {
    /// All columns, from left to right. The first one identifies the row and is always shown.
    const EVERY: &'static [Self];
    /// The word in an address.
    fn as_str(self) -> &'static str;
    /// The header.
    fn label(self) -> &'static str;
}

/// Defines the columns of a list, from left to right, each with its word in an address and its
/// header.
macro_rules! columns_of {
    ($name:ident { $($variant:ident $word:literal $label:literal),+ $(,)? }) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name {
            $($variant),+
        }

        impl $crate::components::list::Column for $name {
            const EVERY: &'static [Self] = &[$(Self::$variant),+];

            fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }

            fn label(self) -> &'static str {
                match self {
                    $(Self::$variant => $label),+
                }
            }
        }
    };
}

pub(crate) use columns_of;

/// The set of visible columns.
pub struct VisibleColumns<C> {
    /// One bit per column. `None`: all.
    some: Option<u32>,
    columns: PhantomData<C>,
}

impl<C> Clone for VisibleColumns<C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C> Copy for VisibleColumns<C> {}

impl<C> fmt::Debug for VisibleColumns<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shown({:?})", self.some)
    }
}

impl<C: Column> VisibleColumns<C> {
    /// The columns that an address selects. Ignores unknown columns, and shows all columns if none
    /// is left.
    pub fn of<S>(listed: &ListAddress<S>) -> Self {
        let is_asked = |column: &C| listed.columns.split(',').any(|word| word == column.as_str());
        let bit = |place: usize| 1_u32 << place.min(31);
        let some = C::EVERY
            .iter()
            .enumerate()
            .filter(|(_, column)| is_asked(column))
            .map(|(place, _)| bit(place));
        let some = some.fold(0, |all, bit| all | bit);
        Self { some: (some != 0).then_some(some | 1), columns: PhantomData }
    }

    pub fn has(self, column: C) -> bool {
        let place = C::EVERY.iter().position(|each| *each == column).unwrap_or_default();
        self.some.is_none_or(|some| some & (1 << place.min(31)) != 0)
    }
}

/// The header of a sortable column. If `descending`, the first click sorts in descending order.
pub fn head<S: Sort>(
    listed: &ListAddress<S>,
    by: S,
    label: &'static str,
    descending: bool,
    class: Option<&'static str>,
) -> AnyView {
    let order = listed.order().unwrap_or_default();
    let is_here = order.by == by;
    let to = Order { by, descending: if is_here { !order.descending } else { descending } };
    let (sorted, arrow) = match (is_here, order.descending) {
        (false, _) => (None, None),
        (true, false) => (Some("ascending"), Some(Icon::Up)),
        (true, true) => (Some("descending"), Some(Icon::Down)),
    };
    let title = if is_here {
        "Reverse the order".to_owned()
    } else {
        format!("Sort by {}", label.to_lowercase())
    };
    view! {
        <th scope="col" aria-sort=sorted class=class>
            <a class="sort" href=listed.sorted(to) title=title>{label} {arrow.map(icon)}</a>
        </th>
    }
    .into_any()
}

/// The header of a column that cannot be sorted.
pub fn header(label: &'static str, class: Option<&'static str>) -> AnyView {
    view! { <th scope="col" class=class>{label}</th> }.into_any()
}

/// The filter form: it contains `fields` and the sort order, and keeps the columns and the choice
/// of the list. It stays in the page while the list changes, so the focus remains after Enter.
pub fn filters<S: Sort>(
    listed: Memo<ListAddress<S>>,
    sorts: &'static [(S, &'static str)],
    fields: impl IntoView + 'static,
) -> AnyView {
    let one = |by: S, label: &'static str, descending: bool| {
        let order = Order { by, descending };
        let value = if order.is_default() { String::new() } else { order.to_string() };
        (value, order.to_string(), format!("{label}{}", if descending { " ↓" } else { " ↑" }))
    };
    let orders = sorts
        .iter()
        .flat_map(|(by, label)| [one(*by, label, false), one(*by, label, true)])
        .collect();
    let now =
        Memo::new(move |_| listed.read().sort.parse::<Order<S>>().unwrap_or_default().to_string());
    let hidden_params = Memo::new(move |_| listed.read().hidden_params());
    let clear = Memo::new(move |_| {
        let listed = listed.read();
        let is_odd = listed.sort.parse::<Order<S>>().is_err();
        (listed.is_filtered() || is_odd)
            .then(|| if is_odd { listed.base_address().to_owned() } else { listed.all() })
    });
    form(listed.read_untracked().path.clone(), fields.into_any(), orders, now, hidden_params, clear)
}

/// The form itself. `orders` contains the parameter's value, the order's name and the label of each
/// option.
fn form(
    path: String,
    fields: AnyView,
    orders: Vec<(String, String, String)>,
    now: Memo<String>,
    hidden_params: Memo<Vec<(&'static str, String)>>,
    clear: Memo<Option<String>>,
) -> AnyView {
    let option = |(value, word, label): (String, String, String)| {
        let is_it = Memo::new(move |_| *now.read() == word);
        view! {
            <option value=value selected=move || is_it.get() prop:selected=move || is_it.get()>
                {label}
            </option>
        }
    };
    let options = orders.into_iter().map(option).collect_view();
    let hidden = |(name, value): (&'static str, String)| {
        view! {
            <input type="hidden" name=name value=value/>
        }
    };
    let hidden_params = move || hidden_params.get().into_iter().map(hidden).collect_view();
    let clear = move || {
        let all = clear.get();
        all.map(
            |all| view! { <a class="button quiet" href=all>{icon(Icon::Cross)} "Clear filter"</a> },
        )
    };
    view! {
        <QueryForm place=path>
            {fields}
            <div class="field sorting">
                <label for="list-sort">"Sort by"</label>
                <select class="select" id="list-sort" name=SORT>{options}</select>
            </div>
            {hidden_params}
            <button class="button" type="submit">{icon(Icon::Search)} "Filter"</button>
            {clear}
        </QueryForm>
    }
    .into_any()
}

/// A text field of the form.
pub fn text_field(
    id: impl Into<String>,
    name: &'static str,
    label: &'static str,
    value: Signal<String>,
) -> AnyView {
    example_field(id, name, label, "", value)
}

/// A text field with a placeholder. An empty one is left out.
pub fn example_field(
    id: impl Into<String>,
    name: &'static str,
    label: &'static str,
    example: &'static str,
    value: Signal<String>,
) -> AnyView {
    let id = id.into();
    let example = (!example.is_empty()).then_some(example);
    view! {
        <div class="field">
            <label for=id.clone()>{label}</label>
            <input
                class="input"
                id=id
                name=name
                autocomplete="off"
                maxlength="200"
                placeholder=example
                value=move || value.get()
                prop:value=move || value.get()
            />
        </div>
    }
    .into_any()
}

/// A field for a date and time in UTC. A browser clears a `datetime-local` field that it cannot
/// parse, and submitting the form would drop the filter. So a date without a time is completed, and
/// an invalid time is shown in a text field.
pub fn time_field(
    id: impl Into<String>,
    name: &'static str,
    label: &'static str,
    value: Signal<String>,
) -> AnyView {
    let id = id.into();
    let shown = move || value.with(|text| time_input(text));
    view! {
        <div class="field">
            <label for=id.clone()>{label}</label>
            <input
                class="input"
                id=id
                name=name
                type=move || shown().0
                value=move || shown().1
                prop:value=move || shown().1
            />
        </div>
    }
    .into_any()
}

/// The type and the value of the field for a time.
fn time_input(text: &str) -> (&'static str, String) {
    match (text.trim().is_empty(), parse_time(text)) {
        (true, _) => ("datetime-local", String::new()),
        (false, Some(at)) => ("datetime-local", field(at)),
        (false, None) => ("text", text.to_owned()),
    }
}

/// A select field of the form. The first option means no value: `any`, or the choice without a
/// value.
pub fn choice_field(
    id: impl Into<String>,
    name: &'static str,
    label: &'static str,
    value: Signal<String>,
    choices: impl IntoIterator<Item = (&'static str, &'static str)>,
) -> AnyView {
    let id = id.into();
    let mut choices: Vec<(&'static str, &'static str)> = choices.into_iter().collect();
    if choices.iter().all(|(word, _)| !word.is_empty()) {
        choices.insert(0, ("", "any"));
    }
    let known: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
    let option = |(word, text): (&'static str, &'static str)| {
        let is_it = Memo::new(move |_| *value.read() == word);
        view! {
            <option value=word selected=move || is_it.get() prop:selected=move || is_it.get()>
                {text}
            </option>
        }
    };
    let options = choices.into_iter().map(option).collect_view();
    // An unknown value stays selected until the reader changes it.
    let odd =
        move || {
            let word = value.get();
            let is_odd = !word.is_empty() && !known.contains(&word.as_str());
            is_odd.then(|| view! {
            <option value=word.clone() selected=true prop:selected=true>{word.clone()}</option>
        })
        };
    view! {
        <div class="field">
            <label for=id.clone()>{label}</label>
            <select class="select" id=id name=name>
                {options}
                {odd}
            </select>
        </div>
    }
    .into_any()
}

/// The form that chooses the columns of a list. It keeps all other parameters except the cursor.
pub fn columns<S: Sort, C: Column>(listed: Memo<ListAddress<S>>) -> AnyView {
    let shown = Memo::new(move |_| VisibleColumns::<C>::of(&listed.read()).some);
    let hidden_inputs = move || {
        let listed = listed.read();
        let keep = |(name, value): (&str, &str)| {
            let (name, value) = (name.to_owned(), value.to_owned());
            (name != COLUMNS).then(|| view! { <input type="hidden" name=name value=value/> })
        };
        listed.all_params(true, &listed.sort, "").into_iter().map(keep).collect_view()
    };
    let first = C::EVERY
        .first()
        .map(|column| view! { <input type="hidden" name=COLUMNS value=column.as_str()/> });
    let choice = |column: &C| {
        let column = *column;
        let is_shown = Memo::new(move |_| {
            VisibleColumns::<C> { some: shown.get(), columns: PhantomData }.has(column)
        });
        view! {
            <label class="choice">
                <input
                    type="checkbox"
                    name=COLUMNS
                    value=column.as_str()
                    checked=move || is_shown.get()
                    prop:checked=move || is_shown.get()
                />
                <span>{column.label()}</span>
            </label>
        }
    };
    let choices = C::EVERY.iter().skip(1).map(choice).collect_view();
    let path = listed.read_untracked().path.clone();
    view! {
        <details class="more choose">
            <summary>{icon(Icon::Right)} "Columns"</summary>
            <QueryForm place=path class="fields" role="form">
                {hidden_inputs}
                {first}
                <fieldset class="choices">
                    <legend class="visually-hidden">"Columns"</legend>
                    {choices}
                </fieldset>
                <button class="button small" type="submit">"Show columns"</button>
            </QueryForm>
        </details>
    }
    .into_any()
}

/// Links to the first page and the next page. `next` is the cursor of the next page.
pub fn pager<S: Sort>(listed: &ListAddress<S>, next: Option<&Cursor>) -> AnyView {
    let is_default = listed.sort.parse::<Order<S>>().unwrap_or_default().is_default();
    let words =
        if S::DEFAULT.descending && is_default { ("Newest", "Older") } else { ("First", "Next") };
    page_links(listed.cursor().map(|_| listed.first()), next.map(|next| listed.at(next)), words)
}

/// Links to the first page and the next page, with their labels.
pub fn page_links(
    first: Option<String>,
    next: Option<String>,
    (to_first, to_next): (&'static str, &'static str),
) -> AnyView {
    if first.is_none() && next.is_none() {
        return ().into_any();
    }
    view! {
        <nav class="pager" aria-label="Pages of the list">
            {first.map(|first| view! {
                <a class="button small" href=first>{icon(Icon::Up)} {to_first}</a>
            })}
            <span class="grow"></span>
            {next.map(|next| view! {
                <a class="button small" href=next>{to_next} {icon(Icon::Right)}</a>
            })}
        </nav>
    }
    .into_any()
}

/// The message instead of rows if the list may have rows elsewhere: after the last page or outside
/// of the filter. `None`: the list is empty.
pub fn hidden<S: Sort>(
    listed: &ListAddress<S>,
    one: &'static str,
    many: &'static str,
) -> Option<AnyView> {
    if listed.cursor().is_some() {
        return Some(past_end(listed.first(), many));
    }
    listed.is_filtered().then(|| no_match(listed.narrowed(), listed.all(), one, many))
}

fn no_match(filter: String, all: String, one: &'static str, many: &'static str) -> AnyView {
    view! {
        <Empty icon=Icon::Search title=format!("No {one} matches")>
            <p>"Filter: " <bdi>{filter}</bdi> "."</p>
            <a class="button" href=all>"Show all " {many}</a>
        </Empty>
    }
    .into_any()
}

fn past_end(first: String, many: &'static str) -> AnyView {
    view! {
        <Empty icon=Icon::Search title=format!("No more {many}")>
            <p>"This is the end of the list."</p>
            <a class="button" href=first>"Open the first page"</a>
        </Empty>
    }
    .into_any()
}

/// The message instead of a list that cannot be loaded: the error, and links that correct the
/// address.
pub fn list_error<S: Sort>(
    listed: &ListAddress<S>,
    many: &'static str,
    problem: Problem,
) -> AnyView {
    let (is_unknown, address) = (listed.unknown_parameter.is_some(), listed.address());
    // After a 403, no other address of the same list would work.
    let is_refused = problem.status == 403;
    let first = listed.cursor().filter(|_| !is_refused).map(|_| listed.first());
    let whole = (!is_refused && (is_unknown || address != listed.base_address()))
        .then(|| listed.base_address().to_owned());
    let without = (is_unknown && address != listed.base_address()).then_some(address);
    let page_links = view! {
        {without.map(|without| view! {
            <a class="button" href=without>"Remove the invalid parameters"</a>
        })}
        {first.map(|first| view! { <a class="button" href=first>"Open the first page"</a> })}
        {whole.map(|whole| view! { <a class="button" href=whole>"Show all " {many}</a> })}
    };
    problem_in_page(problem, page_links.into_any())
}

#[cfg(test)]
mod tests {
    use api::nodes::NodeSort;

    use super::*;

    #[derive(Clone, Copy, PartialEq)]
    enum Part {
        Name,
        State,
        Steps,
    }

    impl Column for Part {
        const EVERY: &'static [Self] = &[Self::Name, Self::State, Self::Steps];
        fn as_str(self) -> &'static str {
            match self {
                Self::Name => "name",
                Self::State => "state",
                Self::Steps => "steps",
            }
        }
        fn label(self) -> &'static str {
            self.as_str()
        }
    }

    fn listed(words: &[(&str, &str)]) -> ListAddress<NodeSort> {
        let mut query = ParamsMap::new();
        for (name, value) in words {
            query.insert((*name).to_owned(), (*value).to_owned());
        }
        let filter = query.get("filter").unwrap_or_default();
        ListAddress::read("/nodes", &query, "after").with_filter("filter", "name contains", &filter)
    }

    #[test]
    fn links_have_only_non_default_parameters() {
        assert_eq!(listed(&[("filter", ""), ("sort", "name"), ("after", "")]).address(), "/nodes");
        let all = listed(&[
            ("filter", "a&b"),
            ("sort", "-state"),
            ("columns", "name"),
            ("columns", "steps"),
            ("after", "x"),
        ]);
        assert_eq!(all.address(), "/nodes?filter=a%26b&sort=-state&columns=name%2Csteps&after=x");
        assert_eq!(all.first(), "/nodes?filter=a%26b&sort=-state&columns=name%2Csteps");
        assert_eq!(all.all(), "/nodes?sort=-state&columns=name%2Csteps");
        assert_eq!(all.sorted(NodeSort::DEFAULT), "/nodes?filter=a%26b&columns=name%2Csteps");
        assert_eq!(all.narrowed(), "name contains “a&b”");
    }

    #[test]
    fn unknown_sort_order_is_reported() {
        let odd = listed(&[("sort", "color")]);
        assert!(
            odd.order().unwrap_err().0.detail.contains("name, -name, state"),
            "{:?}",
            odd.order()
        );
        assert_eq!(odd.address(), "/nodes?sort=color");
        let none = one_of("state", "purple", &["alive", "dead"], |word| word).unwrap_err();
        assert_eq!(none.0.detail, "Invalid value for state: \"purple\". Use one of: alive, dead.");
        assert_eq!(one_of("state", "", &["alive"], |word| word).unwrap(), None);
    }

    #[test]
    fn unknown_parameter_is_reported_and_dropped() {
        let mut query = ParamsMap::new();
        for (name, value) in
            [("filter", "db"), ("x", "1"), ("__err", "e30="), ("x", "2"), ("sort", "name")]
        {
            query.insert(name.to_owned(), value.to_owned());
        }
        let odd = listed(&[("filter", "db")]).with_further_params(&query, &["filter"]);
        let error = odd.known().unwrap_err().0.detail;
        assert_eq!(error, "Unknown parameter \"x\". Use one of: filter, sort, columns, after.");
        assert_eq!(odd.address(), "/nodes?filter=db");
        assert!(listed(&[]).with_further_params(&query, &["filter", "x"]).known().is_ok());
    }

    #[test]
    fn unknown_columns_are_reported() {
        assert!(listed(&[("columns", "name,steps")]).check_columns::<Part>().is_ok());
        assert!(listed(&[]).check_columns::<Part>().is_ok());
        let odd = listed(&[("columns", "name,nothing")]).check_columns::<Part>().unwrap_err();
        assert_eq!(
            odd.0.detail,
            "Invalid value for columns: \"nothing\". Use one of: name, state, steps."
        );
    }

    #[test]
    fn first_column_is_always_shown() {
        let has = |words: &[(&str, &str)]| {
            let shown = VisibleColumns::<Part>::of(&listed(words));
            [Part::Name, Part::State, Part::Steps].map(|part| shown.has(part))
        };
        assert_eq!(has(&[]), [true; 3]);
        assert_eq!(has(&[("columns", "steps")]), [true, false, true]);
        assert_eq!(has(&[("columns", "name"), ("columns", "state,steps")]), [true; 3]);
        assert_eq!(has(&[("columns", "name")]), [true, false, false]);
        assert_eq!(has(&[("columns", "nothing")]), [true; 3]);
    }
}
