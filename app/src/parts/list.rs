//! What lists have in common: heads that sort, a form that filters, columns that are chosen, and the ways from page to page.
//!
//! A list's whole state is its address ([`Listed`]). Links carry on what differs from what goes without saying and nothing else, so one list
//! has one address; forms are GET forms that carry on what they don't ask for, so all of it works without scripts. What an address asks for
//! and there is not is kept as it is, and said: nobody loses the rest of what they asked for. A word that a list does not know is said like
//! that, too, and the way out is the same address without it.

use std::fmt;
use std::marker::PhantomData;

use api::listing::{Cursor, Order, Sort};
use api::{At, Problem};
use leptos::prelude::*;
use leptos_router::params::ParamsMap;

use crate::clock::{field, moment_of};
use crate::failure::Failure;
use crate::parts::notice::problem_in_page;
use crate::parts::{Ask, Empty, Icon, TYPED, icon};
use crate::places;

/// The word of an order.
pub const SORT: &str = "sort";
/// The word of the columns.
pub const COLUMNS: &str = "columns";

/// Words that any address may have: a form that was posted without scripts comes back with what went wrong in them
/// ([`Refused`](crate::parts::Refused)).
const OF_FORMS: [&str; 2] = ["__path", "__err"];
/// Unknown words that are named at once; of an address with more, these come first.
const NAMED: usize = 3;

/// Something that a list is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Asked {
    name: &'static str,
    value: String,
    role: Role,
}

/// What something that a list is asked for does to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It hides a part of it. How it reads before its value: `name contains`.
    Narrows(&'static str),
    /// It says which list this is.
    Which,
    /// It is about what stands beside the list, and a field of the form asks for it.
    Beside,
}

impl Asked {
    fn label(&self) -> Option<&'static str> {
        match self.role {
            Role::Narrows(label) => Some(label),
            Role::Which | Role::Beside => None,
        }
    }
}

/// A list as its address asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed<S> {
    path: String,
    filters: Vec<Asked>,
    /// As it was written, whether or not there is such an order.
    sort: String,
    columns: String,
    /// The word of the place, and the place.
    place: (&'static str, String),
    /// What is wrong with its words, if the address has some that the list does not know.
    strange: Option<String>,
    sorts: PhantomData<S>,
}

impl<S: Sort> Listed<S> {
    /// The list at a path, with its order, its columns and its place out of the query; `place` is the word of that.
    pub fn read(path: impl Into<String>, query: &ParamsMap, place: &'static str) -> Self {
        let word = |name: &str| query.get(name).unwrap_or_default();
        Self {
            path: path.into(),
            filters: Vec::new(),
            sort: word(SORT),
            columns: query.get_all(COLUMNS).unwrap_or_default().join(","),
            place: (place, word(place)),
            strange: None,
            sorts: PhantomData,
        }
    }

    /// Asked for this, too; nothing, if it is empty. `label` is how it reads before its value.
    pub fn asked(self, name: &'static str, label: &'static str, value: &str) -> Self {
        self.having(name, value, Role::Narrows(label))
    }

    /// Which of several lists this is: it is carried on, and hides nothing.
    pub fn kept(self, name: &'static str, value: &str) -> Self {
        self.having(name, value, Role::Which)
    }

    /// What the same form asks for beside the list: it is carried on, and hides nothing.
    pub fn beside(self, name: &'static str, value: &str) -> Self {
        self.having(name, value, Role::Beside)
    }

    fn having(mut self, name: &'static str, value: &str, role: Role) -> Self {
        if !value.is_empty() {
            self.filters.push(Asked { name, value: value.to_owned(), role });
        }
        self
    }

    /// The same list, whose page knows these words beside those that every list has. Others that its address has are [refused](Self::known).
    pub fn knowing(self, query: &ParamsMap, words: &[&str]) -> Self {
        let all: Vec<&str> = words.iter().copied().chain([SORT, COLUMNS, self.place.0]).collect();
        Self { strange: strange(query, &all), ..self }
    }

    /// Nothing, where the page knows every word of the address.
    pub fn known(&self) -> Result<(), Failure> {
        self.strange.clone().map_or(Ok(()), |said| Err(refused(said)))
    }

    /// Nothing, where the list has every column that the address asks for.
    pub fn has_columns<C: Column>(&self) -> Result<(), Failure> {
        self.columns
            .split(',')
            .try_for_each(|word| one_of(COLUMNS, word, C::EVERY, C::as_str).map(|_| ()))
    }

    /// The same list with nothing beside it.
    pub fn without_beside(mut self) -> Self {
        self.filters.retain(|asked| asked.role != Role::Beside);
        self
    }

    /// What it is asked for by a word of its address, as it was written; empty: nothing.
    pub fn word(&self, name: &str) -> String {
        if name == SORT {
            return self.sort.clone();
        }
        let asked = self.filters.iter().find(|asked| asked.name == name);
        asked.map(|asked| asked.value.clone()).unwrap_or_default()
    }

    /// The one of a closed set that a word of its address names, as [`one_of`] reads it.
    pub fn one_of<T: Copy>(
        &self,
        name: &str,
        every: &[T],
        as_str: impl Fn(T) -> &'static str,
    ) -> Result<Option<T>, Failure> {
        one_of(name, &self.word(name), every, as_str)
    }

    /// The moment that a word of its address says in UTC, as people write one; None: it says none. `label` is what its field is called.
    pub fn moment(&self, name: &str, label: &str) -> Result<Option<At>, Failure> {
        let text = self.word(name);
        if text.trim().is_empty() {
            return Ok(None);
        }
        let shown: String = text.chars().take(40).collect();
        let said = || {
            format!(
                "{label}: {shown:?} is no moment. Write a day, or day and time in UTC: 2026-11-22T08:15."
            )
        };
        moment_of(&text).map(Some).ok_or_else(|| refused(said()))
    }

    /// Sorted and shown as it is, from its beginning, and asked for nothing.
    pub fn bare(&self) -> Self {
        Self { filters: Vec::new(), place: (self.place.0, String::new()), ..self.clone() }
    }

    /// Sorted like this; an order that there is not is refused with those that there are.
    pub fn order(&self) -> Result<Order<S>, Failure> {
        self.sort.parse().map_err(|error| refused(format!("sort: {error}.")))
    }

    /// Where it goes on; None: from its beginning.
    pub fn place(&self) -> Option<Cursor> {
        Some(&self.place.1).filter(|place| !place.is_empty()).cloned().map(Cursor::from)
    }

    /// Its order and where it goes on in that. A place of another order is refused here, before anybody is asked, in words for people.
    pub fn stretch(&self) -> Result<(Order<S>, Option<Cursor>), Failure> {
        let (order, place) = (self.order()?, self.place());
        let fits = place.as_ref().is_none_or(|place| place.keys(order).is_ok());
        match fits {
            true => Ok((order, place)),
            false => Err(refused(format!(
                "{}: this address goes on behind a row that the list, sorted like this, can’t have. Begin at its beginning.",
                self.place.0
            ))),
        }
    }

    /// Whether something hides a part of it.
    pub fn is_narrow(&self) -> bool {
        self.filters.iter().any(|asked| asked.label().is_some())
    }

    /// What the form carries on without asking for it.
    fn kept_words(&self) -> Vec<(&'static str, String)> {
        let kept = self.filters.iter().filter(|asked| asked.role == Role::Which);
        let kept = kept.map(|asked| (asked.name, asked.value.clone()));
        let columns =
            Some((COLUMNS, self.columns.clone())).filter(|(_, columns)| !columns.is_empty());
        kept.chain(columns).collect()
    }

    fn words<'a>(
        &'a self,
        with_filters: bool,
        sort: &'a str,
        place: &'a str,
    ) -> Vec<(&'a str, &'a str)> {
        let carried = |asked: &&Asked| with_filters || asked.label().is_none();
        let filters =
            self.filters.iter().filter(carried).map(|asked| (asked.name, asked.value.as_str()));
        let usual = sort.parse::<Order<S>>().is_ok_and(Order::is_usual);
        let sort = if usual { "" } else { sort };
        let rest = [(SORT, sort), (COLUMNS, self.columns.as_str()), (self.place.0, place)];
        filters.chain(rest).filter(|(_, value)| !value.is_empty()).collect()
    }

    fn with(&self, with_filters: bool, sort: &str, place: &str) -> String {
        let said = |(name, value): (&str, &str)| format!("{name}={}", places::encoded(value));
        let words: Vec<String> =
            self.words(with_filters, sort, place).into_iter().map(said).collect();
        match words.is_empty() {
            true => self.path.clone(),
            false => format!("{}?{}", self.path, words.join("&")),
        }
    }

    /// Its address.
    pub fn address(&self) -> String {
        self.with(true, &self.sort, &self.place.1)
    }

    /// The address of the page behind a place.
    pub fn at(&self, place: &Cursor) -> String {
        self.with(true, &self.sort, place.as_str())
    }

    /// The address of its beginning.
    pub fn first(&self) -> String {
        self.with(true, &self.sort, "")
    }

    /// The address of the list with nothing hidden, sorted and shown as it is.
    pub fn all(&self) -> String {
        self.with(false, &self.sort, "")
    }

    /// The address of the list as it comes by itself: the way out of whatever an address says wrongly.
    pub fn whole(&self) -> &str {
        &self.path
    }

    /// The address of the same from its beginning in another order.
    pub fn sorted(&self, order: Order<S>) -> String {
        self.with(true, &order.to_string(), "")
    }

    /// What hides a part of it: `name contains “db”, state is “dead”`.
    pub fn narrowed(&self) -> String {
        let said = |asked: &Asked| asked.label().map(|label| format!("{label} “{}”", asked.value));
        self.filters.iter().filter_map(said).collect::<Vec<_>>().join(", ")
    }
}

/// What was asked for is not there to be asked for.
pub fn refused(detail: String) -> Failure {
    let problem = Problem::invalid(detail);
    #[cfg(feature = "ssr")]
    crate::respond::status(problem.status);
    Failure(problem)
}

/// What is wrong with the words of an address, of which a page knows these; None: it knows them all.
pub fn strange(query: &ParamsMap, known: &[&str]) -> Option<String> {
    let is_known =
        |word: &str| known.contains(&word) || OF_FORMS.contains(&word) || word.starts_with(TYPED);
    let mut odd: Vec<&str> =
        query.into_iter().map(|(word, _)| &**word).filter(|word| !is_known(word)).collect();
    odd.dedup();
    let quoted = |word: &&str| format!("{:?}", word.chars().take(80).collect::<String>());
    let named = odd.iter().take(NAMED).map(quoted).collect::<Vec<_>>().join(", ");
    (!odd.is_empty()).then(|| {
        format!(
            "{named}: this address says what nobody reads here. It can say: {}.",
            known.join(", ")
        )
    })
}

/// The one of a closed set that a word names; None: the word is empty. Another word is refused with those that there are.
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
    Err(refused(format!("{name}: there is no {shown:?} here. There are: {}.", known.join(", "))))
}

/// A column of a list that readers can leave out.
pub trait Column: Copy + PartialEq + Send + Sync + 'static {
    /// All of them, from left to right; the first names its row and is always there.
    const EVERY: &'static [Self];
    /// The word in an address.
    fn as_str(self) -> &'static str;
    /// Its head.
    fn label(self) -> &'static str;
}

/// The columns of a list, from left to right, each with its word in an address and its head.
macro_rules! columns_of {
    ($name:ident { $($variant:ident $word:literal $label:literal),+ $(,)? }) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name {
            $($variant),+
        }

        impl $crate::parts::list::Column for $name {
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

/// Which columns are shown.
pub struct Shown<C> {
    /// One bit for each; None: all.
    some: Option<u32>,
    columns: PhantomData<C>,
}

impl<C> Clone for Shown<C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C> Copy for Shown<C> {}

impl<C> fmt::Debug for Shown<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shown({:?})", self.some)
    }
}

impl<C: Column> Shown<C> {
    /// Those that an address asks for. Columns that there are not are none; when nothing is left, all are shown.
    pub fn of<S>(listed: &Listed<S>) -> Self {
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

    /// Whether it is shown.
    pub fn has(self, column: C) -> bool {
        let place = C::EVERY.iter().position(|each| *each == column).unwrap_or_default();
        self.some.is_none_or(|some| some & (1 << place.min(31)) != 0)
    }
}

/// The head of a column that the list can be sorted by. `falling` is the way in which the first press sorts.
pub fn head<S: Sort>(
    listed: &Listed<S>,
    by: S,
    label: &'static str,
    falling: bool,
    class: Option<&'static str>,
) -> AnyView {
    let order = listed.order().unwrap_or_default();
    let is_here = order.by == by;
    let to = Order { by, falling: if is_here { !order.falling } else { falling } };
    let (sorted, arrow) = match (is_here, order.falling) {
        (false, _) => (None, None),
        (true, false) => (Some("ascending"), Some(Icon::Up)),
        (true, true) => (Some("descending"), Some(Icon::Down)),
    };
    let title = if is_here {
        "Turn the order round".to_owned()
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

/// The head of a column that the list can't be sorted by.
pub fn plain_head(label: &'static str, class: Option<&'static str>) -> AnyView {
    view! { <th scope="col" class=class>{label}</th> }.into_any()
}

/// The form that filters a list: it asks for `fields` and for the order, and keeps the columns and which list it is. It stays where it is
/// while the list changes under it, so whoever pressed Enter in it is still in it.
pub fn filters<S: Sort>(
    listed: Memo<Listed<S>>,
    sorts: &'static [(S, &'static str)],
    fields: impl IntoView + 'static,
) -> AnyView {
    let one = |by: S, label: &'static str, falling: bool| {
        let order = Order { by, falling };
        let value = if order.is_usual() { String::new() } else { order.to_string() };
        (value, order.to_string(), format!("{label}{}", if falling { " ↓" } else { " ↑" }))
    };
    let orders = sorts
        .iter()
        .flat_map(|(by, label)| [one(*by, label, false), one(*by, label, true)])
        .collect();
    let now =
        Memo::new(move |_| listed.read().sort.parse::<Order<S>>().unwrap_or_default().to_string());
    let kept = Memo::new(move |_| listed.read().kept_words());
    let clear = Memo::new(move |_| {
        let listed = listed.read();
        let is_odd = listed.sort.parse::<Order<S>>().is_err();
        (listed.is_narrow() || is_odd)
            .then(|| if is_odd { listed.whole().to_owned() } else { listed.all() })
    });
    form(listed.read_untracked().path.clone(), fields.into_any(), orders, now, kept, clear)
}

/// The form itself; orders are what is sent, the order, and what is shown.
fn form(
    path: String,
    fields: AnyView,
    orders: Vec<(String, String, String)>,
    now: Memo<String>,
    kept: Memo<Vec<(&'static str, String)>>,
    clear: Memo<Option<String>>,
) -> AnyView {
    let option = |(value, word, label): (String, String, String)| {
        let is_it = Memo::new(move |_| *now.read() == word);
        view! { <option value=value selected=move || is_it.get() prop:selected=move || is_it.get()>{label}</option> }
    };
    let options = orders.into_iter().map(option).collect_view();
    let hidden = |(name, value): (&'static str, String)| view! { <input type="hidden" name=name value=value/> };
    let kept = move || kept.get().into_iter().map(hidden).collect_view();
    let clear = move || {
        let all = clear.get();
        all.map(|all| view! { <a class="button quiet" href=all>{icon(Icon::Cross)} "Clear"</a> })
    };
    view! {
        <Ask place=path>
            {fields}
            <div class="field sorting">
                <label for="list-sort">"Sorted by"</label>
                <select class="select" id="list-sort" name=SORT>{options}</select>
            </div>
            {kept}
            <button class="button" type="submit">{icon(Icon::Search)} "Filter"</button>
            {clear}
        </Ask>
    }
    .into_any()
}

/// A field of the form for a text.
pub fn text_field(
    id: impl Into<String>,
    name: &'static str,
    label: &'static str,
    value: Signal<String>,
) -> AnyView {
    example_field(id, name, label, "", value)
}

/// The same with an example of such a text; an empty one is none.
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
            <input class="input" id=id name=name autocomplete="off" maxlength="200" placeholder=example value=move || value.get() prop:value=move || value.get()/>
        </div>
    }
    .into_any()
}

/// A field of the form for a day and time in UTC. A browser empties such a field of what it can't read as both, and the form would ask for
/// more than the address did: a day alone is filled up, and what is no moment stays as it is, in a field for text.
pub fn moment_field(
    id: impl Into<String>,
    name: &'static str,
    label: &'static str,
    value: Signal<String>,
) -> AnyView {
    let id = id.into();
    let shown = move || value.with(|text| in_field(text));
    view! {
        <div class="field">
            <label for=id.clone()>{label}</label>
            <input class="input" id=id name=name type=move || shown().0 value=move || shown().1 prop:value=move || shown().1/>
        </div>
    }
    .into_any()
}

/// The kind of field that a moment's text stands in, and how.
fn in_field(text: &str) -> (&'static str, String) {
    match (text.trim().is_empty(), moment_of(text)) {
        (true, _) => ("datetime-local", String::new()),
        (false, Some(at)) => ("datetime-local", field(at)),
        (false, None) => ("text", text.to_owned()),
    }
}

/// A field of the form for one of some words; the first choice is none of them.
pub fn choice_field(
    id: impl Into<String>,
    name: &'static str,
    label: &'static str,
    value: Signal<String>,
    choices: impl IntoIterator<Item = (&'static str, &'static str)>,
) -> AnyView {
    let id = id.into();
    let choices: Vec<(&'static str, &'static str)> = choices.into_iter().collect();
    let known: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
    let option = |(word, said): (&'static str, &'static str)| {
        let is_it = Memo::new(move |_| *value.read() == word);
        view! { <option value=word selected=move || is_it.get() prop:selected=move || is_it.get()>{said}</option> }
    };
    let options = choices.into_iter().map(option).collect_view();
    // A word that there is not stays in the form until somebody takes it out.
    let odd = move || {
        let word = value.get();
        let is_odd = !word.is_empty() && !known.contains(&word.as_str());
        is_odd.then(|| view! { <option value=word.clone() selected=true prop:selected=true>{word.clone()}</option> })
    };
    view! {
        <div class="field">
            <label for=id.clone()>{label}</label>
            <select class="select" id=id name=name>
                <option value="">"any"</option>
                {options}
                {odd}
            </select>
        </div>
    }
    .into_any()
}

/// The form that chooses the columns of a list; it keeps everything else but the place.
pub fn columns<S: Sort, C: Column>(listed: Memo<Listed<S>>) -> AnyView {
    let shown = Memo::new(move |_| Shown::<C>::of(&listed.read()).some);
    let kept = move || {
        let listed = listed.read();
        let keep = |(name, value): (&str, &str)| {
            let (name, value) = (name.to_owned(), value.to_owned());
            (name != COLUMNS).then(|| view! { <input type="hidden" name=name value=value/> })
        };
        listed.words(true, &listed.sort, "").into_iter().map(keep).collect_view()
    };
    let first = C::EVERY
        .first()
        .map(|column| view! { <input type="hidden" name=COLUMNS value=column.as_str()/> });
    let choice = |column: &C| {
        let column = *column;
        let is_shown =
            Memo::new(move |_| Shown::<C> { some: shown.get(), columns: PhantomData }.has(column));
        view! {
            <label class="choice">
                <input type="checkbox" name=COLUMNS value=column.as_str() checked=move || is_shown.get() prop:checked=move || is_shown.get()/>
                <span>{column.label()}</span>
            </label>
        }
    };
    let choices = C::EVERY.iter().skip(1).map(choice).collect_view();
    let path = listed.read_untracked().path.clone();
    view! {
        <details class="more choose">
            <summary>{icon(Icon::Right)} "Columns"</summary>
            <Ask place=path class="fields" role="form">
                {kept}
                {first}
                <fieldset class="choices">
                    <legend class="unseen">"Columns"</legend>
                    {choices}
                </fieldset>
                <button class="button small" type="submit">"Show these"</button>
            </Ask>
        </details>
    }
    .into_any()
}

/// The ways to the beginning of a list and on; `next` is where the next page begins.
pub fn pager<S: Sort>(listed: &Listed<S>, next: Option<&Cursor>) -> AnyView {
    let is_usual = listed.sort.parse::<Order<S>>().unwrap_or_default().is_usual();
    let words = if S::USUAL.falling && is_usual { ("Newest", "Older") } else { ("First", "Next") };
    ways(listed.place().map(|_| listed.first()), next.map(|next| listed.at(next)), words)
}

/// The ways from page to page of whatever has pages, and what they are called.
pub fn ways(
    first: Option<String>,
    next: Option<String>,
    (to_first, to_next): (&'static str, &'static str),
) -> AnyView {
    if first.is_none() && next.is_none() {
        return ().into_any();
    }
    view! {
        <nav class="pager" aria-label="Pages of the list">
            {first.map(|first| view! { <a class="button small" href=first>{icon(Icon::Up)} {to_first}</a> })}
            <span class="grow"></span>
            {next.map(|next| view! { <a class="button small" href=next>{to_next} {icon(Icon::Right)}</a> })}
        </nav>
    }
    .into_any()
}

/// What stands where no row is although the list may have some: it is at its end, or narrow. None: neither, so there are none at all.
pub fn hidden<S: Sort>(
    listed: &Listed<S>,
    one: &'static str,
    many: &'static str,
) -> Option<AnyView> {
    if listed.place().is_some() {
        return Some(nothing_behind(listed.first(), many));
    }
    listed.is_narrow().then(|| none_fits(listed.narrowed(), listed.all(), one, many))
}

fn none_fits(why: String, all: String, one: &'static str, many: &'static str) -> AnyView {
    view! {
        <Empty icon=Icon::Search title=format!("No {one} fits")>
            <p>"Asked for: " <bdi>{why}</bdi> "."</p>
            <a class="button" href=all>"All " {many}</a>
        </Empty>
    }
    .into_any()
}

fn nothing_behind(first: String, many: &'static str) -> AnyView {
    view! {
        <Empty icon=Icon::Search title=format!("There are no more {many}")>
            <p>"This is the end of the list."</p>
            <a class="button" href=first>"To its beginning"</a>
        </Empty>
    }
    .into_any()
}

/// What stands where the list would be when it can't be had: why, and the ways out of what the address asks for.
pub fn trouble<S: Sort>(listed: &Listed<S>, many: &'static str, problem: Problem) -> AnyView {
    let (is_strange, here) = (listed.strange.is_some(), listed.address());
    // No other address of the same list is answered to who may not see it.
    let is_refused = problem.status == 403;
    let first = listed.place().filter(|_| !is_refused).map(|_| listed.first());
    let whole =
        (!is_refused && (is_strange || here != listed.whole())).then(|| listed.whole().to_owned());
    let without = (is_strange && here != listed.whole()).then_some(here);
    let ways = view! {
        {without.map(|without| view! { <a class="button" href=without>"Without that"</a> })}
        {first.map(|first| view! { <a class="button" href=first>"From its beginning"</a> })}
        {whole.map(|whole| view! { <a class="button" href=whole>"All " {many}</a> })}
    };
    problem_in_page(problem, ways.into_any())
}

#[cfg(test)]
mod tests {
    use api::listing::NodeSort;

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

    fn listed(words: &[(&str, &str)]) -> Listed<NodeSort> {
        let mut query = ParamsMap::new();
        for (name, value) in words {
            query.insert((*name).to_owned(), (*value).to_owned());
        }
        let filter = query.get("filter").unwrap_or_default();
        Listed::read("/nodes", &query, "after").asked("filter", "name contains", &filter)
    }

    #[test]
    fn links_carry_what_differs_and_nothing_else() {
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
        assert_eq!(all.sorted(NodeSort::USUAL), "/nodes?filter=a%26b&columns=name%2Csteps");
        assert_eq!(all.narrowed(), "name contains “a&b”");
    }

    #[test]
    fn an_order_that_there_is_not_is_said_and_kept() {
        let odd = listed(&[("sort", "colour")]);
        assert!(
            odd.order().unwrap_err().0.detail.contains("name, -name, state"),
            "{:?}",
            odd.order()
        );
        assert_eq!(odd.address(), "/nodes?sort=colour");
        let none = one_of("state", "purple", &["alive", "dead"], |word| word).unwrap_err();
        assert_eq!(none.0.detail, "state: there is no \"purple\" here. There are: alive, dead.");
        assert_eq!(one_of("state", "", &["alive"], |word| word).unwrap(), None);
    }

    #[test]
    fn a_word_that_the_list_does_not_know_is_said_and_left_out_of_its_address() {
        let mut query = ParamsMap::new();
        for (name, value) in
            [("filter", "db"), ("x", "1"), ("__err", "e30="), ("x", "2"), ("sort", "name")]
        {
            query.insert(name.to_owned(), value.to_owned());
        }
        let odd = listed(&[("filter", "db")]).knowing(&query, &["filter"]);
        let said = odd.known().unwrap_err().0.detail;
        assert_eq!(
            said,
            "\"x\": this address says what nobody reads here. It can say: filter, sort, columns, after."
        );
        assert_eq!(odd.address(), "/nodes?filter=db");
        assert!(listed(&[]).knowing(&query, &["filter", "x"]).known().is_ok());
    }

    #[test]
    fn columns_that_there_are_not_are_said() {
        assert!(listed(&[("columns", "name,steps")]).has_columns::<Part>().is_ok());
        assert!(listed(&[]).has_columns::<Part>().is_ok());
        let odd = listed(&[("columns", "name,nothing")]).has_columns::<Part>().unwrap_err();
        assert_eq!(
            odd.0.detail,
            "columns: there is no \"nothing\" here. There are: name, state, steps."
        );
    }

    #[test]
    fn the_first_column_is_always_there() {
        let has = |words: &[(&str, &str)]| {
            let shown = Shown::<Part>::of(&listed(words));
            [Part::Name, Part::State, Part::Steps].map(|part| shown.has(part))
        };
        assert_eq!(has(&[]), [true; 3]);
        assert_eq!(has(&[("columns", "steps")]), [true, false, true]);
        assert_eq!(has(&[("columns", "name"), ("columns", "state,steps")]), [true; 3]);
        assert_eq!(has(&[("columns", "name")]), [true, false, false]);
        assert_eq!(has(&[("columns", "nothing")]), [true; 3]);
    }
}
