//! What imports brought: every import, with what came, what went with it, and what was found in its files.

use api::catalog::{BroughtVersion, ImportPage, ImportReport, ImportSort, ImportsWanted};
use api::live::Topic;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;
use leptos_router::params::ParamsMap;

use crate::calls;
use crate::clock::Moment;
use crate::failure::{Answer, Failure};
use crate::live::{NOW, use_live};
use crate::pages::catalog::parts_of_it;
use crate::parts::list::{Listed, filters, head, hidden, pager, plain_head, text_field};
use crate::parts::{Empty, Feed, Icon, ProblemNotice, icon, load, rows};
use crate::places;

/// Lines that are shown before the rest waits for a click.
const FIRST: usize = 5;

/// What the list is asked for; part of the address.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Asked {
    barclamp: String,
    listed: Listed<ImportSort>,
}

impl Asked {
    fn read(query: &ParamsMap) -> Self {
        let barclamp = query.get("barclamp").unwrap_or_default();
        let listed = Listed::read(places::IMPORTS, query, "before").asked("barclamp", "barclamp is", &barclamp);
        Self { barclamp, listed }
    }

    fn wanted(&self) -> Result<ImportsWanted, Failure> {
        let (barclamp, sort, before) = (self.barclamp.clone(), self.listed.order()?, self.listed.place());
        Ok(ImportsWanted { barclamp, sort, before })
    }
}

async fn fetch(asked: Asked) -> Answer<ImportPage> {
    calls::imports(asked.wanted()?).await
}

/// The list of imports.
#[component]
pub fn Imports() -> impl IntoView {
    let query = use_query_map();
    let asked = Memo::new(move |_| Asked::read(&query.read()));
    let listed = Memo::new(move |_| asked.read().listed.clone());
    let imports = Resource::new(move || asked.get(), fetch);
    let barclamp = Signal::derive(move || asked.read().barclamp.clone());
    view! {
        <Title text="Imports"/>
        <div class="head"><h1>"Imports"</h1></div>
        {parts_of_it(places::IMPORTS)}
        {filters(listed, &[(ImportSort::Imported, "imported")], text_field("import-barclamp", "barclamp", "Barclamp", barclamp))}
        {load(imports, move |first| view! { <List first asked=asked.get_untracked()/> })}
    }
    .into_any()
}

#[component]
fn List(first: ImportPage, asked: Asked) -> impl IntoView {
    let listed = asked.listed.clone();
    let feed = Feed::new(first, move || fetch(asked.clone()));
    use_live().hear(vec![Topic::Targets], NOW, move |_| feed.soon());
    let list = Memo::new(move |_| feed.value().read().imports.clone());
    let next = Memo::new(move |_| feed.value().read().next.clone());
    let is_empty = Memo::new(move |_| list.read().is_empty());
    let of = StoredValue::new(listed);
    let table = move || match is_empty.get() {
        true => of.with_value(|listed| hidden(listed, "import", "imports")).unwrap_or_else(|| {
            view! {
                <Empty icon=Icon::Catalog title="Nothing was imported yet">
                    <p>"An import adds versions of barclamps to the catalog, and changes nothing that runs."</p>
                    <a class="button" href=places::CATALOG>"Catalog"</a>
                </Empty>
            }
            .into_any()
        }),
        false => view! {
            <table class="table folds">
                <thead>
                    <tr>
                        {of.with_value(|listed| head(listed, ImportSort::Imported, "Imported", true))}
                        {plain_head("BroughtVersion")}
                        {plain_head("Has no longer")}
                        {plain_head("Found in it")}
                    </tr>
                </thead>
                <tbody>{rows(list.into(), |import| import.id, row)}</tbody>
            </table>
        }
        .into_any(),
    };
    view! {
        <ProblemNotice problem=feed.problem()/>
        <div class="card">{table} {move || of.with_value(|listed| pager(listed, next.get().as_ref()))}</div>
    }
    .into_any()
}

fn row(import: Memo<ImportReport>) -> impl IntoView {
    // What was imported stays as it is.
    let ImportReport { at, by, report, .. } = import.get_untracked();
    let by = by.unwrap_or_else(|| "shipped".into());
    let brought = report.barclamps.into_iter().map(version).collect();
    let lines = |lines: Vec<String>| lines.into_iter().map(|line| view! { <li>{line}</li> }.into_any()).collect();
    let found = match report.findings {
        None => view! { <span class="muted">"was not kept then"</span> }.into_any(),
        Some(found) => some(lines(found), "nothing"),
    };
    let left_out = (report.left_out > 0).then(|| format!("{} lines more were not kept.", report.left_out));
    view! {
        <tr>
            <td data-label="Imported"><span><Moment at/> <span class="muted">" by " {by}</span></span></td>
            <td data-label="BroughtVersion">{some(brought, "nothing")}</td>
            <td data-label="Has no longer">{some(lines(report.disappeared), "nothing is gone")}</td>
            <td data-label="Found in it"><div>{found} {left_out.map(|said| view! { <small class="muted">{said}</small> })}</div></td>
        </tr>
    }
    .into_any()
}

fn version(one: BroughtVersion) -> AnyView {
    let of = places::roles_of(&one.name);
    let (shape, word) = if one.new { (Icon::Plus, "new") } else { (Icon::Check, "was there") };
    view! {
        <li>
            <a href=of>{one.name.to_string()}</a> " " {one.version} " "
            <code title=one.hash.to_string()>{one.hash.short().to_string()}</code> " "
            <span class="muted nowrap">{icon(shape)} {word}</span>
        </li>
    }
    .into_any()
}

/// Lines, the rest of many on demand.
fn some(mut lines: Vec<AnyView>, none: &'static str) -> AnyView {
    if lines.is_empty() {
        return view! { <span class="muted">{none}</span> }.into_any();
    }
    let rest = lines.split_off(lines.len().min(FIRST));
    let more = (!rest.is_empty()).then(|| {
        let said = format!("{} more", rest.len());
        view! { <details><summary>{said}</summary><ul class="lacks">{rest}</ul></details> }
    });
    view! { <div><ul class="lacks">{lines}</ul> {more}</div> }.into_any()
}
