//! The catalog: every version of a barclamp that was imported, who uses it, and what it lacks that the one before had.

use api::console::{BarclampVersion, CatalogPage};
use api::live::Topic;
use engine::Hash;
use leptos::form::ActionForm;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;

use crate::calls::{self, ImportBarclamp};
use crate::clock::Moment;
use crate::live::{NOW, use_live};
use crate::parts::act::{problem_of, when_done};
use crate::parts::{
    Dialog, DialogHandle, Empty, Feed, Icon, ProblemNotice, Same, SameList, Typed, heed, icon, load, rows,
};
use crate::places;
use crate::reader::{OPERATOR, with_right};

/// Characters of a description before the rest waits for a click.
const LONG: usize = 240;

/// The page.
#[component]
pub fn Catalog() -> impl IntoView {
    let query = use_query_map();
    // What is no hash names no page: the first one is shown.
    let after = Memo::new(move |_| query.read().get("after").and_then(|hash| hash.parse::<Hash>().ok()));
    let catalog = Resource::new(move || after.get(), |after| with_right(calls::catalog(after), OPERATOR));
    view! {
        <Title text="Catalog"/>
        {load(catalog, move |(first, may_import)| view! { <List first after=after.get_untracked() may_import/> })}
        <SameList of=api::calls::List::Barclamps/>
    }
    .into_any()
}

#[component]
fn List(first: CatalogPage, after: Option<Hash>, may_import: bool) -> impl IntoView {
    let dialog = DialogHandle::new();
    let feed = Feed::new(first, move || calls::catalog(after));
    use_live().hear(vec![Topic::Targets], NOW, move |_| feed.soon());
    let list = Memo::new(move |_| feed.value().read().versions.clone());
    // A version that is imported meanwhile moves where the next page begins.
    let next = Memo::new(move |_| feed.value().read().next.clone());
    let pager = move || {
        let next = next.get().map(|next| format!("{}?after={next}", places::CATALOG));
        (after.is_some() || next.is_some()).then(|| {
            view! {
                <nav class="pager" aria-label="Pages of the list">
                    {after.map(|_| view! { <a class="button small" href=places::CATALOG>"First"</a> })}
                    <span class="grow"></span>
                    {next.map(|next| view! { <a class="button small" href=next>"Next" {icon(Icon::Right)}</a> })}
                </nav>
            }
        })
    };
    let is_empty = Memo::new(move |_| list.read().is_empty());
    let import = match may_import {
        true => view! {
            <button class="button" type="button" commandfor="import" command="show-modal" on:click=dialog.on_click()>
                {icon(Icon::Plus)}
                "Import a barclamp"
            </button>
        }
        .into_any(),
        false => {
            view! { <small class="muted">"Importing takes the permission " {OPERATOR} "; an admin can give it."</small> }
                .into_any()
        }
    };
    let table = move || match is_empty.get() {
        true => view! {
            <Empty icon=Icon::Catalog title="The catalog is empty">
                <p>"A barclamp is a file that says which roles there are and how each is run."</p>
            </Empty>
        }
        .into_any(),
        false => view! {
            <table class="table folds">
                <thead>
                    <tr>
                        <th scope="col">"Barclamp"</th>
                        <th scope="col">"Version"</th>
                        <th scope="col" class="number">"Roles"</th>
                        <th scope="col">"Used by"</th>
                        <th scope="col">"Has no longer"</th>
                        <th scope="col">"Imported"</th>
                    </tr>
                </thead>
                <tbody>{rows(list.into(), |version| version.hash.clone(), row)}</tbody>
            </table>
        }
        .into_any(),
    };
    view! {
        <div class="head">
            <h1>"Catalog"</h1>
            <div class="buttons">{import}</div>
        </div>
        <ProblemNotice problem=feed.problem()/>
        <div class="card">
            {table}
            {pager}
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
