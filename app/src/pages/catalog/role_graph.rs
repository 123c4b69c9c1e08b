//! The dependencies between the roles of the catalog, as a picture and as an equivalent table.
//!
//! The picture is rendered as one text, on the server and in the browser, so it needs no
//! JavaScript. Its boxes link to their roles.

use std::fmt::Write as _;

use api::catalog::{MAX_GRAPH_ROLES, RoleEdgeReason, RoleGraph, RoleGraphQuery};
use engine::counting::many;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;

use crate::addresses;
use crate::codec::AsJson;
use crate::components::list::text_field;
use crate::components::{Empty, EquivalentCommands, FormValues, Icon, QueryForm, icon, load_one};
use crate::failure::ServerResult;
use crate::graph::layout::{Dimensions, lay_out};
use crate::graph::{arrow, curve};
use crate::pages::catalog::tabs;
#[cfg(feature = "ssr")]
use crate::request::{answer, signed_in};

const MEASURES: Dimensions =
    Dimensions { width: 188.0, height: 48.0, layer_gap: 64.0, between: 14.0, margin: 16.0 };
/// Maximum number of characters of a name in a box.
const MAX_NAME_CHARS: usize = 24;

fn address(query: &RoleGraphQuery) -> String {
    let words = [("barclamp", &query.barclamp), ("role", &query.role)];
    let lines = words.into_iter().filter(|(_, value)| !value.is_empty());
    let lines: Vec<String> =
        lines.map(|(name, value)| format!("{name}={}", addresses::encoded(value))).collect();
    match lines.is_empty() {
        true => addresses::ROLE_GRAPH.into(),
        false => format!("{}?{}", addresses::ROLE_GRAPH, lines.join("&")),
    }
}

#[component]
pub fn RoleGraphPage() -> impl IntoView {
    let query = use_query_map();
    let parsed_query = Memo::new(move |_| {
        let query = query.read();
        let word = |name: &str| query.get(name).unwrap_or_default();
        RoleGraphQuery { barclamp: word("barclamp"), role: word("role") }
    });
    let graph = Resource::new(move || parsed_query.get(), role_graph);
    let is_part =
        move || parsed_query.with(|parsed_query| *parsed_query != RoleGraphQuery::default());
    view! {
        <Title text="Dependencies of roles"/>
        <div class="head"><h1>"Dependencies of roles"</h1></div>
        {tabs(addresses::ROLE_GRAPH)}
        <QueryForm place=addresses::ROLE_GRAPH>
            {
                text_field(
                    "graph-barclamp",
                    "barclamp",
                    "Barclamp",
                    Signal::derive(move || parsed_query.read().barclamp.clone())
                )
            }
            {
                text_field(
                    "graph-role",
                    "role",
                    "Connected to role",
                    Signal::derive(move || parsed_query.read().role.clone())
                )
            }
            <button class="button" type="submit">{icon(Icon::Search)} "Show"</button>
            {move || is_part().then(|| view! {
                <a class="button quiet" href=addresses::ROLE_GRAPH>{icon(Icon::Cross)} "Clear"</a>
            })}
        </QueryForm>
        {load_one(graph, (addresses::ROLES, "All roles"), move |graph| view! {
            <Drawn graph query=parsed_query.get_untracked()/>
        })}
        <EquivalentCommands of=move |_: FormValues| {
            let parsed_query = parsed_query.read();
            vec![api::calls::role_graph(&parsed_query.barclamp, &parsed_query.role)]
        }/>
    }
    .into_any()
}

#[component]
fn Drawn(graph: RoleGraph, query: RoleGraphQuery) -> impl IntoView {
    if graph.count > MAX_GRAPH_ROLES {
        return view! {
            <div class="card">
                <Empty
                    icon=Icon::Graph
                    title=format!("{} roles are too many for one graph", graph.count)
                >
                    <p>
                        {format!("The graph shows at most {MAX_GRAPH_ROLES} roles. Filter by a \
                            barclamp, or by a connected role.")}
                    </p>
                    <a class="button" href=addresses::ROLES>"Show all roles"</a>
                </Empty>
            </div>
        }
        .into_any();
    }
    if graph.roles.is_empty() {
        let title =
            if query == RoleGraphQuery::default() { "No roles yet" } else { "No matching roles" };
        return view! {
            <div class="card">
                <Empty icon=Icon::Graph title=title>
                    <p>"Roles are defined in barclamps."</p>
                    <a class="button" href=addresses::CATALOG>"Open catalog"</a>
                </Empty>
            </div>
        }
        .into_any();
    }
    let text = format!(
        "{}, {}. Roles that run first are on the left.",
        many(graph.roles.len(), "role"),
        many(graph.edges.len(), "edge")
    );
    let picture = svg(&graph, &query.role);
    view! {
        <p class="muted">
            {text} " " <a href=format!("{}#ties", address(&query))>"Show as a table"</a>
        </p>
        <div
            class="card role-map"
            role="group"
            aria-label="Roles and their dependencies"
            tabindex="0"
            inner_html=picture
        ></div>
        <ul class="role-legend muted">
            <li><i class="requires"></i> "requires"</li>
            <li><i class="reads"></i> "reads an attribute of"</li>
            <li><i class="precedes"></i> "is preceded by"</li>
        </ul>
        <h2 id="ties">"Dependencies"</h2>
        <div class="card">{table(&graph)}</div>
    }
    .into_any()
}

fn class(tie: RoleEdgeReason) -> &'static str {
    match tie {
        RoleEdgeReason::Requires => "requires",
        RoleEdgeReason::Reads => "reads",
        RoleEdgeReason::Preceeds => "precedes",
    }
}

fn table(graph: &RoleGraph) -> AnyView {
    let row = |place: usize| {
        let near = |up: bool| {
            let ends = graph
                .edges
                .iter()
                .filter(move |edge| if up { edge.to == place } else { edge.from == place });
            let one = |edge: &api::catalog::RoleEdge| {
                let other = &graph.roles[if up { edge.from } else { edge.to }];
                let word = match edge.reason {
                    RoleEdgeReason::Requires => "",
                    RoleEdgeReason::Reads => " (reads)",
                    RoleEdgeReason::Preceeds => " (precedes)",
                };
                view! {
                    <li>
                        <a href=addresses::role_in(&other.name, &other.barclamp)>
                            {other.name.to_string()}
                        </a>
                        {word}
                    </li>
                }
            };
            view! { <ul class="inline-list">{ends.map(one).collect_view()}</ul> }
        };
        let role = &graph.roles[place];
        view! {
            <tr>
                <td>
                    <a class="main" href=addresses::role_in(&role.name, &role.barclamp)>
                        {role.name.to_string()}
                    </a>
                </td>
                <td data-label="Barclamp">{role.barclamp.to_string()}</td>
                <td data-label="After">{near(true)}</td>
                <td data-label="Before">{near(false)}</td>
            </tr>
        }
    };
    let rows = (0..graph.roles.len()).map(row).collect_view();
    view! {
        <table class="table responsive">
            <thead>
                <tr>
                    <th scope="col">"Role"</th>
                    <th scope="col">"Barclamp"</th>
                    <th scope="col">"Comes after"</th>
                    <th scope="col">"Comes before"</th>
                </tr>
            </thead>
            <tbody>{rows}</tbody>
        </table>
    }
    .into_any()
}

/// Escapes a text for XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn short(text: &str) -> String {
    match text.chars().count() > MAX_NAME_CHARS {
        true => text.chars().take(MAX_NAME_CHARS - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// The picture. `at` is the role in its center.
fn svg(graph: &RoleGraph, center: &str) -> String {
    let ends: Vec<(usize, usize)> = graph.edges.iter().map(|edge| (edge.from, edge.to)).collect();
    let layout = lay_out(graph.roles.len(), &ends, MEASURES);
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} \
         {1}\">",
        layout.width, layout.height
    );
    for (edge, path) in graph.edges.iter().zip(&layout.paths).filter(|(_, path)| !path.is_empty()) {
        let (line, tip) = (curve(path), arrow(path));
        let _ = write!(
            out,
            "<path class=\"dependency {}\" d=\"{line}\"/><path class=\"tip\" d=\"{tip}\"/>",
            class(edge.reason)
        );
    }
    for (role, (x, y)) in graph.roles.iter().zip(&layout.places) {
        let current = if role.name.as_str() == center { " aria-current=\"true\"" } else { "" };
        let _ = write!(
            out,
            "<a href=\"{href}\"{current}><title>{title}</title><rect x=\"{x}\" y=\"{y}\" \
             width=\"{width}\" height=\"{height}\" rx=\"6\"/>\
             <text class=\"name\" x=\"{tx}\" y=\"{ty}\">{name}</text><text class=\"of\" x=\"{tx}\" y=\"{by}\">{of}</text></a>",
            href = escaped(&addresses::role_in(&role.name, &role.barclamp)),
            title = escaped(&format!("{} of {}", role.name, role.barclamp)),
            width = MEASURES.width,
            height = MEASURES.height,
            tx = x + 12.0,
            ty = y + 20.0,
            by = y + 37.0,
            name = escaped(&short(role.name.as_str())),
            of = escaped(&short(&match role.flags.first() {
                Some(flag) => format!("{}, {flag}", role.barclamp),
                None => role.barclamp.to_string(),
            })),
        );
    }
    out.push_str("</svg>");
    out
}

/// The graph of dependencies between roles.
#[server(
    name = ReadRoleGraph,
    prefix = "/call",
    endpoint = "role-graph",
    input = AsJson,
    output = AsJson
)]
pub async fn role_graph(query: RoleGraphQuery) -> ServerResult<RoleGraph> {
    let (request, actor) = signed_in()?;
    answer(request.control.role_graph(&actor, &query).await).await
}

#[cfg(test)]
mod tests {
    use api::catalog::{RoleEdge, RoleVertex};
    use engine::ids::{BarclampName, RoleName};

    use super::*;

    #[test]
    fn roles_are_boxes_and_dependencies_are_lines() {
        let vertex = |name: &str| RoleVertex {
            name: RoleName::parse(name).unwrap(),
            barclamp: BarclampName::parse("demo").unwrap(),
            flags: vec![],
        };
        let roles = vec![vertex("base"), vertex("runtime"), vertex("app")];
        let edge = |from, to, reason| RoleEdge { from, to, reason };
        let edges = vec![edge(0, 1, RoleEdgeReason::Requires), edge(1, 2, RoleEdgeReason::Reads)];
        let svg = svg(&RoleGraph { roles, edges, count: 3 }, "app");
        assert_eq!(
            (svg.matches("<rect").count(), svg.matches("class=\"dependency").count()),
            (3, 2)
        );
        assert!(
            svg.contains("href=\"/catalog/roles/app?barclamp=demo\" aria-current=\"true\""),
            "{svg}"
        );
        assert_eq!(escaped("<a&\""), "&lt;a&amp;&quot;");
        assert_eq!(short(&"é".repeat(30)).chars().count(), MAX_NAME_CHARS);
    }
}
