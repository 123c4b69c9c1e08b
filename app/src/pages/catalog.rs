//! The catalog: every version of a barclamp that was imported, who uses it, and what it lacks that the one before had.

use api::console::{BarclampVersion, CatalogPage};
use api::listing::{BarclampSort, BarclampsWanted};
use api::live::Topic;
use leptos::form::ActionForm;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;
use leptos_router::params::ParamsMap;

use crate::calls::{self, ImportBarclamp};
use crate::clock::Moment;
use crate::failure::{Answer, Failure};
use crate::live::{NOW, use_live};
use crate::parts::act::{problem_of, when_done};
use crate::parts::list::{Listed, filters, head, hidden, pager, text_field};
use crate::parts::{
    Dialog, DialogHandle, Empty, Feed, Icon, ProblemNotice, Same, SameList, Typed, heed, icon, load, rows,
};
use crate::places;
use crate::reader::{OPERATOR, with_right};

/// Characters of a description before the rest waits for a click.
const LONG: usize = 240;

/// The ways between the parts of the catalog; `here` is the one that is open.
pub(crate) fn parts_of_it(here: &'static str) -> AnyView {
    let all = [
        (places::CATALOG, "Versions"),
        (places::ROLES, "Roles"),
        (places::ROLE_GRAPH, "How they hang together"),
        (places::IMPORTS, "Imports"),
    ];
    let link = |(place, word): (&'static str, &'static str)| {
        let is_here = (place == here).then_some("page");
        view! { <a class="button small" class:quiet=is_here.is_none() href=place aria-current=is_here>{word}</a> }
    };
    view! { <nav class="filters" aria-label="Parts of the catalog">{all.map(link).collect_view()}</nav> }.into_any()
}

/// What the list is asked for; part of the address.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Asked {
    filter: String,
    listed: Listed<BarclampSort>,
}

impl Asked {
    fn read(query: &ParamsMap) -> Self {
        let filter = query.get("filter").unwrap_or_default();
        let listed = Listed::read(places::CATALOG, query, "after").asked("filter", "name contains", &filter);
        Self { filter, listed }
    }

    fn wanted(&self) -> Result<BarclampsWanted, Failure> {
        let (filter, sort, after) = (self.filter.clone(), self.listed.order()?, self.listed.place());
        Ok(BarclampsWanted { filter, sort, after })
    }
}

const SORTS: &[(BarclampSort, &str)] =
    &[(BarclampSort::Name, "name"), (BarclampSort::Imported, "imported"), (BarclampSort::Roles, "roles")];

async fn fetch(asked: Asked) -> Answer<CatalogPage> {
    calls::catalog(asked.wanted()?).await
}

/// The page.
#[component]
pub fn Catalog() -> impl IntoView {
    let query = use_query_map();
    let asked = Memo::new(move |_| Asked::read(&query.read()));
    let listed = Memo::new(move |_| asked.read().listed.clone());
    let catalog = Resource::new(move || asked.get(), |asked| with_right(fetch(asked), OPERATOR));
    let filter = Signal::derive(move || asked.read().filter.clone());
    let dialog = DialogHandle::new();
    // What went wrong is said where the list would be.
    let import = move || {
        Suspend::new(async move {
            match catalog.await {
                Ok((_, may_import)) => importing(may_import, dialog),
                Err(_) => ().into_any(),
            }
        })
    };
    view! {
        <Title text="Catalog"/>
        <div class="head">
            <h1>"Catalog"</h1>
            <div class="buttons"><Transition>{import}</Transition></div>
        </div>
        {parts_of_it(places::CATALOG)}
        {filters(listed, SORTS, text_field("catalog-filter", "filter", "Name contains", filter))}
        {load(catalog, move |(first, may_import)| view! { <List first asked=asked.get_untracked() may_import dialog/> })}
        <SameList of=api::calls::List::Barclamps/>
    }
    .into_any()
}

/// The way to import, or what it takes.
fn importing(may_import: bool, dialog: DialogHandle) -> AnyView {
    if !may_import {
        return view! { <small class="muted">"Importing takes the permission " {OPERATOR} "; an admin can give it."</small> }
            .into_any();
    }
    view! {
        <button class="button" type="button" commandfor="import" command="show-modal" on:click=dialog.on_click()>
            {icon(Icon::Plus)}
            "Import a barclamp"
        </button>
    }
    .into_any()
}

#[component]
fn List(first: CatalogPage, asked: Asked, may_import: bool, dialog: DialogHandle) -> impl IntoView {
    let listed = asked.listed.clone();
    let feed = Feed::new(first, move || fetch(asked.clone()));
    use_live().hear(vec![Topic::Targets], NOW, move |_| feed.soon());
    let list = Memo::new(move |_| feed.value().read().versions.clone());
    // A version that is imported meanwhile moves where the next page begins.
    let next = Memo::new(move |_| feed.value().read().next.clone());
    let of = StoredValue::new(listed);
    let is_empty = Memo::new(move |_| list.read().is_empty());
    let table = move || match is_empty.get() {
        true => of.with_value(|listed| hidden(listed, "barclamp", "barclamps")).unwrap_or_else(|| {
            view! {
                <Empty icon=Icon::Catalog title="The catalog is empty">
                    <p>"A barclamp is a file that says which roles there are and how each is run."</p>
                </Empty>
            }
            .into_any()
        }),
        false => view! {
            <table class="table folds">
                <thead>
                    <tr>
                        {of.with_value(|listed| head(listed, BarclampSort::Name, "Barclamp", false))}
                        <th scope="col">"Version"</th>
                        {of.with_value(|listed| head(listed, BarclampSort::Roles, "Roles", true))}
                        <th scope="col">"Used by"</th>
                        <th scope="col">"Has no longer"</th>
                        {of.with_value(|listed| head(listed, BarclampSort::Imported, "Imported", true))}
                    </tr>
                </thead>
                <tbody>{rows(list.into(), |version| version.hash.clone(), row)}</tbody>
            </table>
        }
        .into_any(),
    };
    view! {
        <ProblemNotice problem=feed.problem()/>
        <div class="card">
            {table}
            {move || of.with_value(|listed| pager(listed, next.get().as_ref()))}
        </div>
        {may_import.then(|| view! { <ImportDialog handle=dialog imported=Callback::new(move |()| feed.now())/> })}
    }
    .into_any()
}

fn row(version: Memo<BarclampVersion>) -> impl IntoView {
    let short = move || version.read().hash.chars().take(8).collect::<String>();
    let used = move || {
        let names = version.read().used_by.clone();
        let links =
            names.into_iter().map(|name| view! { <a href=places::deployment(&name)>{name.to_string()}</a> " " });
        links.collect_view()
    };
    let lacks = move || {
        let version = version.read();
        let Some(before) = &version.before else {
            return view! { <span class="muted">"the first one"</span> }.into_any();
        };
        if version.disappeared.is_empty() {
            return view! { <span class="muted">"nothing that " {before.clone()} " had"</span> }.into_any();
        }
        let lines = version.disappeared.iter().map(|line| view! { <li>{line.clone()}</li> }).collect_view();
        view! { <div><span class="muted">"what " {before.clone()} " had:"</span> <ul class="lacks">{lines}</ul></div> }
            .into_any()
    };
    let by = move || version.read().by.clone().unwrap_or_else(|| "shipped".into());
    view! {
        <tr>
            <td><div><b>{move || version.read().barclamp.to_string()}</b> {move || about(&version.read().description)}</div></td>
            <td data-label="Version"><span>{move || version.read().version.clone()} " " <code title=move || version.read().hash.clone()>{short}</code></span> {move || heed::deceiving_in_version(&version.read().deceiving)}</td>
            <td data-label="Roles" class="number">{move || version.read().roles}</td>
            <td data-label="Used by"><span>{used}</span></td>
            <td data-label="Has no longer">{lacks}</td>
            <td data-label="Imported" class="muted"><span>{by} ", " {move || view! { <Moment at=version.read().imported/> }}</span></td>
        </tr>
    }
    .into_any()
}

/// A description; of a long one its beginning, and the whole on demand.
fn about(text: &str) -> AnyView {
    if text.chars().count() <= LONG {
        return view! { <div class="muted">{text.to_owned()}</div> }.into_any();
    }
    let mut first: String = text.chars().take(LONG).collect();
    // Not in the middle of a word, where there are words.
    if let Some(end) = first.rfind(char::is_whitespace).filter(|end| *end > LONG / 2) {
        first.truncate(end);
    }
    view! {
        <details class="muted about">
            <summary><span class="first">{first} "…"</span> <span class="all">"Less"</span></summary>
            <p>{text.to_owned()}</p>
        </details>
    }
    .into_any()
}

#[component]
fn ImportDialog(handle: DialogHandle, imported: Callback<()>) -> impl IntoView {
    let import = ServerAction::<ImportBarclamp>::new();
    when_done(import, move |_| imported.run(()));
    let result = move || {
        let lines = import.value().get()?.ok()?;
        let lines = lines.into_iter().map(|line| view! { <li>{line}</li> }).collect_view();
        Some(
            view! { <div class="notice" data-state="active" role="status">{icon(Icon::Check)} <div><b>"Imported"</b> <ul>{lines}</ul></div></div> },
        )
    };
    view! {
        <Dialog id="import" title="Import a barclamp".to_owned() handle=handle wide=true>
            <ActionForm action=import attr:class="form">
                <div class="body">
                    <p class="muted">
                        "It adds to the catalog and changes nothing that runs: using a version is an edit of a proposal. A barclamp with scripts is a \
                         folder: import that by the API."
                    </p>
                    <div class="field">
                        <label for="import-path">"File name"</label>
                        <input class="input mono" id="import-path" name="path" required autocomplete="off" spellcheck="false" value="barclamp.yml"/>
                    </div>
                    <div class="field">
                        <label for="import-text">"Content"</label>
                        <textarea class="area code" id="import-text" name="text" required spellcheck="false"></textarea>
                    </div>
                    {result}
                    <ProblemNotice problem=problem_of(import)/>
                    <Same of=move |_: Typed| vec![api::calls::import()]/>
                </div>
                <div class="foot">
                    <button class="button primary" type="submit" disabled=move || import.pending().get()>"Import"</button>
                </div>
            </ActionForm>
        </Dialog>
    }
    .into_any()
}
