//! The catalog: every imported version of a barclamp, its users, and the parts that it removed
//! since the previous version.

pub mod imports;
pub mod role;
pub mod role_graph;
pub mod roles;

use api::calls::List;
use api::catalog::{BarclampSort, BarclampsQuery};
use api::catalog::{BarclampVersion, CatalogPage};
use api::live::Topic;
use leptos::form::ActionForm;
use leptos::prelude::*;
use leptos_meta::Title;

use crate::addresses;
use crate::clock::TimeText;
use crate::codec::AsJson;
use crate::components::action::{on_success, problem_of};
use crate::components::list::{ListAddress, columns_of};
use crate::components::list_page::{Field, ListOf, ListPage, RowContext};
use crate::components::{
    Dialog, DialogHandle, Empty, EquivalentCommands, FormValues, Icon, ProblemNotice, Refused,
    escape_textarea, icon, warnings,
};
use crate::failure::ServerResult;
use crate::permissions::OPERATOR;
#[cfg(feature = "ssr")]
use crate::request::{answer, signed_in};

/// Longer descriptions, in characters, are collapsed.
const LONG_DESCRIPTION: usize = 240;

/// The tabs of the catalog. `here` is the current one.
pub(crate) fn tabs(current: &'static str) -> AnyView {
    let all = [
        (addresses::CATALOG, "Versions"),
        (addresses::ROLES, "Roles"),
        (addresses::ROLE_GRAPH, "Dependencies"),
        (addresses::IMPORTS, "Imports"),
    ];
    let link = |(place, word): (&'static str, &'static str)| {
        let is_current = (place == current).then_some("page");
        view! {
            <a class="button small" class:quiet=is_current.is_none() href=place aria-current=is_current>
                {word}
            </a>
        }
    };
    view! {
        <nav class="filters" aria-label="Sections of the catalog">
            {all.map(link).collect_view()}
        </nav>
    }
    .into_any()
}

columns_of!(Part {
    Barclamp "barclamp" "Barclamp",
    Version "version" "Version",
    Roles "roles" "Roles",
    UsedBy "used_by" "Used by",
    RemovedParts "removed_parts" "Removed parts",
    Imported "imported" "Imported",
});

/// The list, and the import for readers with the permission.
#[derive(Clone, Copy)]
struct Versions {
    import: DialogHandle,
}

impl ListPage for Versions {
    type Sort = BarclampSort;
    type Part = Part;
    type Page = CatalogPage;
    type Key = String;

    const ID: &'static str = "catalog";
    const NAMES: (&'static str, &'static str) = ("barclamp", "barclamps");
    const CURSOR_PARAM: &'static str = "after";
    const FIELDS: &'static [Field] = &[Field::text("filter", "Name contains", "name contains")];
    const NUMBERS: &'static [Part] = &[Part::Roles];
    const SORTS: &'static [(BarclampSort, &'static str)] = &[
        (BarclampSort::Name, "name"),
        (BarclampSort::Imported, "imported"),
        (BarclampSort::Roles, "roles"),
    ];
    const TOPICS: &'static [Topic] = &[Topic::Blueprints];
    const API_LIST: List = List::Barclamps;
    const RIGHT: Option<&'static str> = Some(OPERATOR);

    fn path(self) -> String {
        addresses::CATALOG.to_owned()
    }

    async fn fetch(self, address: ListAddress<BarclampSort>) -> ServerResult<CatalogPage> {
        let (sort, after) = address.page_position()?;
        catalog(BarclampsQuery { filter: address.param("filter"), sort, limit: None, after }).await
    }

    fn sorted_by(column: Part) -> Option<(BarclampSort, bool)> {
        match column {
            Part::Barclamp => Some((BarclampSort::Name, false)),
            Part::Roles => Some((BarclampSort::Roles, true)),
            Part::Imported => Some((BarclampSort::Imported, true)),
            Part::Version | Part::UsedBy | Part::RemovedParts => None,
        }
    }

    fn key(version: &BarclampVersion) -> String {
        version.hash.clone()
    }

    fn none(self) -> AnyView {
        view! {
            <Empty icon=Icon::Catalog title="No barclamps yet">
                <p>"A barclamp is a package of roles with their scripts. Import the first one."</p>
            </Empty>
        }
        .into_any()
    }

    fn row(self, version: Memo<BarclampVersion>, with: RowContext<Self>) -> AnyView {
        let short = move || version.read().hash.chars().take(8).collect::<String>();
        let used = move || {
            let names = version.read().used_by.clone();
            let links = names.into_iter().map(
                |name| view! { <a href=addresses::deployment(&name)>{name.to_string()}</a> " " },
            );
            links.collect_view()
        };
        let by = move || version.read().by.clone().unwrap_or_else(|| "shipped with Gantry".into());
        let which = view! {
            <span>
                {move || version.read().version.clone()} " "
                <code title=move || version.read().hash.clone()>{short}</code>
            </span>
            " "
            {move || warnings::hidden_characters_in_version(&version.read().hidden_characters)}
        };
        let imported = view! {
            <span>{by} ", " {move || view! { <TimeText at=version.read().imported/> }}</span>
        };
        view! {
            <tr>
                <td>
                    <div>
                        <b>{move || version.read().barclamp.to_string()}</b>
                        {move || about(&version.read().description)}
                    </div>
                </td>
                {with.cell(Part::Version, "", which)}
                {with.cell(Part::Roles, "", move || version.read().roles)}
                {with.cell(Part::UsedBy, "", view! { <span>{used}</span> })}
                {with.cell(Part::RemovedParts, "", move || lacks(&version.read()))}
                {with.cell(Part::Imported, "muted", imported)}
            </tr>
        }
        .into_any()
    }

    fn below(self, with: RowContext<Self>, again: Callback<()>) -> AnyView {
        with.may.then(|| view! { <ImportDialog handle=self.import imported=again/> }).into_any()
    }
}

#[component]
pub fn Catalog() -> impl IntoView {
    let dialog = DialogHandle::new();
    let list = ListOf::new(Versions { import: dialog });
    view! {
        <Title text="Catalog"/>
        <div class="head">
            <h1>"Catalog"</h1>
            <div class="buttons">
                {list.with_side_content(move |may_import| import_button(may_import, dialog))}
            </div>
        </div>
        {tabs(addresses::CATALOG)}
        {list.view()}
    }
    .into_any()
}

/// The import button, or the required permission.
fn import_button(may_import: bool, dialog: DialogHandle) -> AnyView {
    if !may_import {
        return view! {
            <small class="muted">
                "To import a barclamp, you need the permission " {OPERATOR}
                ". An admin can grant it."
            </small>
        }
        .into_any();
    }
    view! {
        <button
            class="button"
            type="button"
            commandfor="import"
            command="show-modal"
            on:click=dialog.on_click()
        >
            {icon(Icon::Plus)}
            "Import a barclamp"
        </button>
    }
    .into_any()
}

/// The parts of the previous version that this version lacks.
fn lacks(version: &BarclampVersion) -> AnyView {
    let Some(before) = &version.previous else {
        return view! { <span class="muted">"first version"</span> }.into_any();
    };
    if version.removed_parts.is_empty() {
        return view! { <span class="muted">"nothing since " {before.clone()}</span> }.into_any();
    }
    let lines =
        version.removed_parts.iter().map(|line| view! { <li>{line.clone()}</li> }).collect_view();
    view! {
        <div>
            <span class="muted">"since " {before.clone()} ":"</span>
            <ul class="missing">{lines}</ul>
        </div>
    }
    .into_any()
}

/// A description. A long one is collapsed to its beginning.
fn about(text: &str) -> AnyView {
    if text.chars().count() <= LONG_DESCRIPTION {
        return view! { <div class="muted">{text.to_owned()}</div> }.into_any();
    }
    let mut first: String = text.chars().take(LONG_DESCRIPTION).collect();
    // Cut between words, if there are any.
    if let Some(end) = first.rfind(char::is_whitespace).filter(|end| *end > LONG_DESCRIPTION / 2) {
        first.truncate(end);
    }
    view! {
        <details class="muted about">
            <summary>
                {icon(Icon::Right)} <span class="first">{first} "…"</span>
                <span class="all">"Show less"</span>
            </summary>
            <p>{text.to_owned()}</p>
        </details>
    }
    .into_any()
}

#[component]
fn ImportDialog(handle: DialogHandle, imported: Callback<()>) -> impl IntoView {
    let import = ServerAction::<ImportBarclamp>::new();
    let refused = Refused::of(import);
    on_success(import, move |_| imported.run(()));
    let result = move || {
        let lines = import.value().get()?.ok()?;
        let lines = lines.into_iter().map(|line| view! { <li>{line}</li> }).collect_view();
        Some(view! {
            <div class="notice" data-state="active" role="status">
                {icon(Icon::Check)} <div><b>"Imported"</b> <ul>{lines}</ul></div>
            </div>
        })
    };
    view! {
        <Dialog
            id="import"
            title="Import a barclamp".to_owned()
            handle=handle
            wide=true
            refused=refused.is_here()
        >
            <ActionForm action=import attr:class="form">
                <div class="body">
                    <p class="muted">
                        "The import adds to the catalog and changes no deployment. To use a \
                         version, add it to a proposal. A barclamp with scripts is a \
                         folder, which you import with the CLI or API."
                    </p>
                    <div class="field">
                        <label for="import-path">"File name"</label>
                        <input
                            class="input mono"
                            id="import-path"
                            name="path" required
                            autocomplete="off"
                            spellcheck="false"
                            value=refused.value_or("path", "barclamp.yml")
                        />
                    </div>
                    <div class="field">
                        <label for="import-text">"Content"</label>
                        <textarea
                            class="area code"
                            id="import-text"
                            name="text" required
                            spellcheck="false"
                        >
                            {escape_textarea(refused.value_or("text", ""))}
                        </textarea>
                    </div>
                    {result}
                    <ProblemNotice problem=problem_of(import)/>
                    <EquivalentCommands of=move |_: FormValues| vec![api::calls::import()]/>
                </div>
                <div class="foot">
                    <button
                        class="button primary"
                        type="submit"
                        disabled=move || import.pending().get()
                    >
                        "Import"
                    </button>
                </div>
            </ActionForm>
        </Dialog>
    }
    .into_any()
}

#[server(
    name = ReadCatalog,
    prefix = "/call",
    endpoint = "catalog",
    input = AsJson,
    output = AsJson
)]
pub async fn catalog(query: BarclampsQuery) -> ServerResult<CatalogPage> {
    let (request, actor) = signed_in()?;
    answer(request.control.find_barclamps(&actor, &query).await).await
}

#[server(name = ImportBarclamp, prefix = "/call", endpoint = "import", output = AsJson)]
pub async fn import(path: String, text: String) -> ServerResult<Vec<String>> {
    let (request, actor) = signed_in()?;
    let files = [(path, text.into_bytes())].into();
    let imported = request.control.import_barclamps(Some(&actor), &files).await;
    Ok(answer(imported).await?.lines())
}
