//! A role: its requirements, attributes and conflicts, how it runs, and where it is bound.

use api::catalog::{ResolvedName, RoleQuery, RoleUse, RoleVersion, RoleView};
use engine::Hash;
use engine::catalog::{Attrib, Script};
use engine::ids::{DeploymentName, RoleName};
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::{use_params_map, use_query_map};
use serde_json::Value;

use crate::addresses;
use crate::codec::AsJson;
use crate::components::json::DataView;
use crate::components::{EquivalentCommands, FormValues, Icon, icon, load_one};
use crate::failure::ServerResult;
use crate::pages::catalog::tabs;
#[cfg(feature = "ssr")]
use crate::request::{answer, signed_in};

#[component]
pub fn RolePage() -> impl IntoView {
    let (params, query) = (use_params_map(), use_query_map());
    let filter = Memo::new(move |_| {
        let name = params.read().get("name").unwrap_or_default();
        (name, RoleQuery { barclamp: query.read().get("barclamp").unwrap_or_default() })
    });
    let role = Resource::new(move || filter.get(), |(name, filter)| role(name, filter));
    load_one(role, (addresses::ROLES, "All roles"), |view| view! { <RoleContent view/> })
}

#[component]
fn RoleContent(view: RoleView) -> impl IntoView {
    let RoleView {
        role,
        hash,
        version,
        flags,
        requires,
        wants,
        required_by,
        also_defined_in,
        versions,
        bound,
    } = view;
    let name = role.name.clone();
    let same = (role.name.clone(), role.barclamp.clone());
    let contents: Vec<Hash> = role.scripts.iter().map(|script| script.hash).collect();
    let short = hash.short().to_string();
    let names = |names: Vec<RoleName>| (!names.is_empty()).then(|| links(names));
    let also_defined_in = also_defined_in.into_iter().map(|other| {
        let page = addresses::role_in(&name, &other);
        view! { <a href=page>{other.to_string()}</a> " " }
    });
    let also_defined_in = also_defined_in.collect_view();
    let text = |text: String| (!text.is_empty()).then(|| view! { <span>{text}</span> }.into_any());
    let run = serde_json::to_value(&role.run).unwrap_or_default();
    view! {
        <Title text=format!("Role {name}")/>
        <div class="head">
            <h1>{name.to_string()}</h1>
            <div class="buttons">
                <a class="button" href=addresses::role_graph(&name)>
                    {icon(Icon::Graph)} "Show dependencies"
                </a>
            </div>
        </div>
        // No tab is the current one.
        {tabs("")}
        <p>{role.description.clone()}</p>
        <div class="card role">
            <dl class="facts">
                <dt>"Barclamp"</dt>
                <dd>
                    <a href=addresses::roles_of(&role.barclamp)>{role.barclamp.to_string()}</a> " "
                    {version}
                </dd>
                <dt>"Content"</dt>
                <dd><code title=hash.to_string()>{short}</code></dd>
                <dt>"Jig"</dt>
                <dd>{role.jig.to_string()} " (" {role.jig_class.as_str().to_owned()} ")"</dd>
                {fact("Flags", text(flags.join(", ")))}
                {fact("Requires", resolved_names(requires))}
                {fact("Reads", resolved_names(wants))}
                {
                    fact(
                        "Provides",
                        text(
                            role.provides.iter()
                                .map(ToString::to_string).collect::<Vec<_>>()
                                .join(", ")
                        )
                    )
                }
                {fact("Conflicts with", names(role.conflicts.iter().cloned().collect()))}
                {fact("Precedes", names(role.preceeds.iter().cloned().collect()))}
                {fact("Required by", names(required_by))}
                {
                    fact(
                        "Also defined in",
                        (!also_defined_in.is_empty()).then(|| also_defined_in.into_any())
                    )
                }
            </dl>
        </div>
        {attributes(role.attribs)}
        {scripts(role.scripts)}
        {document("Execution", run)}
        {document("Initial data", role.template)}
        {uses(bound)}
        {history(versions)}
        <EquivalentCommands of=move |_: FormValues| {
            let shown = std::iter::once(api::calls::show_role(&same.0, same.1.as_str()));
            shown.chain(contents.iter().copied().map(api::calls::script)).collect::<Vec<_>>()
        }/>
    }
    .into_any()
}

/// A labelled value. Renders nothing without a value.
fn fact(word: &'static str, text: Option<AnyView>) -> AnyView {
    text.map(|text| view! { <dt>{word}</dt> <dd>{text}</dd> }).into_any()
}

fn links(names: Vec<RoleName>) -> AnyView {
    let link =
        |name: RoleName| view! { <li><a href=addresses::role(&name)>{name.to_string()}</a></li> };
    view! { <ul class="inline-list">{names.into_iter().map(link).collect_view()}</ul> }.into_any()
}

/// Names that a role refers to, each with the resolved name if it differs.
fn resolved_names<N: std::fmt::Display + 'static>(all: Vec<ResolvedName<N>>) -> Option<AnyView> {
    if all.is_empty() {
        return None;
    }
    let one = |one: ResolvedName<N>| {
        let text = one.name.to_string();
        match one.by.as_slice() {
            [] => view! { <li>{text} " " <span class="muted">"(not in the catalog)"</span></li> }
                .into_any(),
            [only] if only.as_str() == text => {
                view! { <li><a href=addresses::role(only)>{text}</a></li> }.into_any()
            }
            by => {
                let by = by
                    .iter()
                    .map(|name| view! { <a href=addresses::role(name)>{name.to_string()}</a> " " });
                let by = by.collect_view();
                view! { <li>{text} " " <span class="muted">"provided by "</span> {by}</li> }
                    .into_any()
            }
        }
    };
    Some(
        view! { <ul class="inline-list">{all.into_iter().map(one).collect_view()}</ul> }.into_any(),
    )
}

fn attributes(all: Vec<Attrib>) -> Option<AnyView> {
    if all.is_empty() {
        return None;
    }
    let shown =
        |value: Option<Value>| value.map(|value| view! { <code>{value.to_string()}</code> });
    let row = |attrib: Attrib| {
        view! {
            <tr>
                <td>
                    <div>
                        <b>{attrib.name.to_string()}</b>
                        <div class="muted">{attrib.description}</div>
                    </div>
                </td>
                <td data-label="Path"><code>{attrib.map.join("/")}</code></td>
                <td data-label="Default">{shown(attrib.default)}</td>
                <td data-label="Schema">{shown(attrib.schema)}</td>
            </tr>
        }
    };
    let rows = all.into_iter().map(row).collect_view();
    Some(
        view! {
            <h2>"Attributes"</h2>
            <div class="card">
                <table class="table responsive">
                    <thead>
                        <tr>
                            <th scope="col">"Attribute"</th>
                            <th scope="col">"Path"</th>
                            <th scope="col">"Default"</th>
                            <th scope="col">"Schema"</th>
                        </tr>
                    </thead>
                    <tbody>{rows}</tbody>
                </table>
            </div>
        }
        .into_any(),
    )
}

fn scripts(all: Vec<Script>) -> Option<AnyView> {
    let link = |script: Script| {
        view! {
            <li>
                <a href=addresses::script(script.hash) rel="external"><code>{script.name}</code></a>
            </li>
        }
    };
    (!all.is_empty()).then(|| {
        view! {
            <h2>"Scripts"</h2>
            <div class="card role">
                <ul class="inline-list">{all.into_iter().map(link).collect_view()}</ul>
            </div>
        }
        .into_any()
    })
}

fn document(title: &'static str, value: Value) -> Option<AnyView> {
    let is_empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
    (!is_empty).then(|| {
        view! { <h2>{title}</h2> <div class="card role"><DataView value/></div> }.into_any()
    })
}

fn uses(all: Vec<RoleUse>) -> AnyView {
    if all.is_empty() {
        return view! {
            <h2>"Deployments"</h2>
            <p class="muted">
                "No deployment uses this role yet. Add it on the board of a deployment."
            </p>
        }
        .into_any();
    }
    let row = |one: RoleUse| {
        view! {
            <tr>
                <td>
                    <a href=addresses::deployment(&one.deployment)>{one.deployment.to_string()}</a>
                </td>
                <td data-label="Noderoles" class="number">{one.noderoles}</td>
            </tr>
        }
    };
    let rows = all.into_iter().map(row).collect_view();
    view! {
        <h2>"Deployments"</h2>
        <div class="card">
            <table class="table responsive">
                <thead>
                    <tr>
                        <th scope="col">"Deployment"</th>
                        <th scope="col" class="number">"Noderoles"</th>
                    </tr>
                </thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
    }
    .into_any()
}

fn history(all: Vec<RoleVersion>) -> AnyView {
    let row = |one: RoleVersion| {
        let link = |name: DeploymentName| {
            view! {
                <a href=addresses::deployment(&name)>{name.to_string()}</a> " "
            }
        };
        let used = one.used_by.into_iter().map(link).collect_view();
        let same = if one.same { "same as in the newest version" } else { "different" };
        view! {
            <tr>
                <td>{one.version}</td>
                <td data-label="Role">{same}</td>
                <td data-label="Used by"><span>{used}</span></td>
            </tr>
        }
    };
    let rows = all.into_iter().map(row).collect_view();
    view! {
        <h2>"Versions"</h2>
        <div class="card">
            <table class="table responsive">
                <thead>
                    <tr>
                        <th scope="col">"Version"</th> <th scope="col">"Role"</th>
                        <th scope="col">"Used by"</th>
                    </tr>
                </thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
    }
    .into_any()
}

#[server(name = ReadRole, prefix = "/call", endpoint = "role", input = AsJson, output = AsJson)]
pub async fn role(name: String, query: RoleQuery) -> ServerResult<RoleView> {
    let (request, actor) = signed_in()?;
    answer(request.control.role(&actor, &name, &query).await).await
}
