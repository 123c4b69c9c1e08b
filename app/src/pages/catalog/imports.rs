//! The import history: every import with added versions, removed parts and findings in its files.

use api::calls::List;
use api::catalog::{ImportPage, ImportReport, ImportSort, ImportedVersion, ImportsQuery};
use api::live::Topic;
use engine::counting::{either, many};
use leptos::prelude::*;
use leptos_meta::Title;

use crate::addresses;
use crate::clock::TimeText;
use crate::codec::AsJson;
use crate::components::list::{ListAddress, columns_of};
use crate::components::list_page::{Field, ListOf, ListPage, RowContext};
use crate::components::{Empty, Icon, icon};
use crate::failure::ServerResult;
use crate::pages::catalog::tabs;
#[cfg(feature = "ssr")]
use crate::request::{answer, signed_in};

/// The number of lines that are visible without expanding.
const FIRST: usize = 5;

columns_of!(Part {
    Imported "imported" "Imported",
    Versions "versions" "Versions",
    RemovedParts "removed_parts" "Removed parts",
    Findings "findings" "Findings",
});

#[derive(Clone, Copy)]
struct AllImports;

impl ListPage for AllImports {
    type Sort = ImportSort;
    type Part = Part;
    type Page = ImportPage;
    type Key = i64;

    const ID: &'static str = "import";
    const NAMES: (&'static str, &'static str) = ("import", "imports");
    const CURSOR_PARAM: &'static str = "before";
    const FIELDS: &'static [Field] = &[Field::text("barclamp", "Barclamp", "barclamp is")];
    const SORTS: &'static [(ImportSort, &'static str)] = &[(ImportSort::Imported, "imported")];
    const TOPICS: &'static [Topic] = &[Topic::Blueprints];
    const API_LIST: List = List::Imports;

    fn path(self) -> String {
        addresses::IMPORTS.to_owned()
    }

    async fn fetch(self, address: ListAddress<ImportSort>) -> ServerResult<ImportPage> {
        let (sort, before) = address.page_position()?;
        imports(ImportsQuery { barclamp: address.param("barclamp"), sort, limit: None, before })
            .await
    }

    fn sorted_by(column: Part) -> Option<(ImportSort, bool)> {
        (column == Part::Imported).then_some((ImportSort::Imported, true))
    }

    fn key(import: &ImportReport) -> i64 {
        import.id
    }

    fn none(self) -> AnyView {
        view! {
            <Empty icon=Icon::Catalog title="No imports yet">
                <p>
                    "An import adds barclamp versions to the catalog. It does not change any \
                     deployment."
                </p>
                <a class="button" href=addresses::CATALOG>"Open the catalog"</a>
            </Empty>
        }
        .into_any()
    }

    fn row(self, import: Memo<ImportReport>, with: RowContext<Self>) -> AnyView {
        // An import never changes.
        let ImportReport { at, by, report, .. } = import.get_untracked();
        let by = by.map_or_else(|| "shipped with Gantry".to_owned(), |by| format!("by {by}"));
        let versions = report.barclamps.into_iter().map(version).collect();
        let lines = |lines: Vec<String>| {
            lines.into_iter().map(|line| view! { <li>{line}</li> }.into_any()).collect()
        };
        let found = some(lines(report.findings), "none");
        let left_out = (report.omitted > 0).then(|| {
            view! {
                <small class="muted">
                    {
                        format!(
                            "{} {} not stored.",
                            many(report.omitted, "line"),
                            either(report.omitted, "was", "were")
                        )
                    }
                </small>
            }
        });
        view! {
            <tr>
                <td data-label="Imported">
                    <span><TimeText at/> <span class="muted">" " {by}</span></span>
                </td>
                {with.cell(Part::Versions, "", some(versions, "none"))}
                {with.cell(Part::RemovedParts, "", some(lines(report.removed_parts), "none"))}
                {with.cell(Part::Findings, "", view! { <div>{found} {left_out}</div> })}
            </tr>
        }
        .into_any()
    }
}

#[component]
pub fn Imports() -> impl IntoView {
    let list = ListOf::new(AllImports);
    view! {
        <Title text="Imports"/>
        <div class="head"><h1>"Imports"</h1></div>
        {tabs(addresses::IMPORTS)}
        {list.view()}
    }
    .into_any()
}

fn version(one: ImportedVersion) -> AnyView {
    let of = addresses::roles_of(&one.name);
    let (shape, word) =
        if one.new { (Icon::Plus, "new") } else { (Icon::Check, "already in the catalog") };
    view! {
        <li>
            <a href=of>{one.name.to_string()}</a> " " {one.version} " "
            <code title=one.hash.to_string()>{one.hash.short().to_string()}</code> " "
            <span class="muted nowrap">{icon(shape)} {word}</span>
        </li>
    }
    .into_any()
}

/// Lines, collapsed after the first few.
fn some(mut lines: Vec<AnyView>, none: &'static str) -> AnyView {
    if lines.is_empty() {
        return view! { <span class="muted">{none}</span> }.into_any();
    }
    let rest = lines.split_off(lines.len().min(FIRST));
    let more = (!rest.is_empty()).then(|| {
        let text = format!("{} more", rest.len());
        view! { <details><summary>{text}</summary><ul class="lines">{rest}</ul></details> }
    });
    view! { <div><ul class="lines">{lines}</ul> {more}</div> }.into_any()
}

/// A page of the import history.
#[server(
    name = ReadImports,
    prefix = "/call",
    endpoint = "imports",
    input = AsJson,
    output = AsJson
)]
pub async fn imports(query: ImportsQuery) -> ServerResult<ImportPage> {
    let (request, actor) = signed_in()?;
    answer(request.control.imports(&actor, &query).await).await
}
