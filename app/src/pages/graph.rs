//! The graph of a deployment, and the list of all graphs.

use api::live::Topic;
use api::views::graph::{GraphOptions, GraphView};
#[cfg(feature = "ssr")]
use control::Lost;
use engine::ids::DeploymentName;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::{use_params_map, use_query_map};

use super::deployments::{AllDeployments, tree_link};
use crate::addresses;
use crate::codec::AsJson;
use crate::components::list_page::ListOf;
use crate::components::{EquivalentCommands, Feed, FormValues, Icon, icon, load_one};
use crate::failure::ServerResult;
use crate::graph::Graph;
use crate::graph::address::Address;
use crate::live::use_live;
#[cfg(feature = "ssr")]
use crate::request::{answer, signed_in};

/// All deployments, with links to their graphs.
#[component]
pub fn Graphs() -> impl IntoView {
    let list = ListOf::new(AllDeployments::Graphs);
    view! {
        <Title text="Graph"/>
        <div class="head"><h1>"Graph"</h1> {tree_link(list.listed())}</div>
        {list.view()}
    }
    .into_any()
}

/// A deployment's graph, by the name in the address.
#[component]
pub fn GraphPage() -> impl IntoView {
    let params = use_params_map();
    let query = use_query_map();
    let name = Memo::new(move |_| params.read().get("name").unwrap_or_default());
    let address =
        Memo::new(move |_| Address::of(addresses::graph_of(&name.get()), None, &query.read()));
    // The page loads once per deployment and target. Other options of the same graph are fetched in
    // place.
    let target = Memo::new(move |_| address.read().wish.blueprint);
    let graph = Resource::new(
        move || (name.get(), target.get()),
        move |(name, _)| {
            let wish = address.get_untracked().wish;
            graph(name, wish)
        },
    );
    load_one(
        graph,
        (addresses::GRAPH, "All graphs"),
        move |first| view! { <Loaded first address/> },
    )
}

#[component]
fn Loaded(first: GraphView, address: Memo<Address>) -> impl IntoView {
    let (name, id, cursor, then) =
        (first.deployment.clone(), first.deployment_id, first.cursor, first.blueprint);
    let heading = match then {
        Some(target) => format!("Graph of {name} at blueprint {target}"),
        None => format!("Graph of {name}"),
    };
    let fetched: DeploymentName = name.clone();
    let feed = Feed::new(first, move || graph(fetched.to_string(), address.get_untracked().wish));
    // An old target never changes.
    if then.is_none() {
        use_live().hear(vec![Topic::Deployment(id), Topic::Blueprints], cursor, move |_| {
            feed.eventually()
        });
    }
    view! {
        <Title text=heading.clone()/>
        <div class="head">
            <div>
                <div class="muted">"dependencies between steps"</div>
                <h1>{heading}</h1>
            </div>
            <div class="buttons">
                {match then {
                    Some(_) => view! { <a class="button small" href=format!("{}?deployment={name}", addresses::BLUEPRINTS)>{icon(Icon::Blueprint)} "Blueprints"</a> }.into_any(),
                    None => view! { <a class="button small" href=addresses::deployment(&name)>{icon(Icon::Deployments)} "Board"</a> }.into_any(),
                }}
            </div>
        </div>
        <Graph feed address/>
        <EquivalentCommands of=move |_: FormValues| vec![api::calls::graph(&name, &address.read().wish)]/>
    }
    .into_any()
}

#[server(name = ReadGraph, prefix = "/call", endpoint = "graph", input = AsJson, output = AsJson)]
pub async fn graph(deployment: String, wish: GraphOptions) -> ServerResult<GraphView> {
    let (request, actor) = signed_in()?;
    answer(request.control.graph(&actor, &deployment, &wish, Lost::Note).await).await
}
