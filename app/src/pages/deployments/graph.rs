//! The graph of the cluster, the graph of a deployment, and the list of the deployments' graphs.

use api::live::Topic;
use api::views::graph::{GraphOptions, GraphView};
#[cfg(feature = "ssr")]
use control::MissingVertex;
use engine::ids::DeploymentName;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::{use_params_map, use_query_map};

use super::{AllDeployments, tree_link};
use crate::addresses;
use crate::codec::AsJson;
use crate::components::list_page::ListOf;
use crate::components::{EquivalentCommands, Feed, FormValues, Icon, icon, load, load_one};
use crate::failure::ServerResult;
use crate::graph::Graph;
use crate::graph::address::Address;
use crate::live::use_live;
#[cfg(feature = "ssr")]
use crate::request::{answer, signed_in};

/// The graph of all deployments.
#[component]
pub fn ClusterGraphPage() -> impl IntoView {
    let query = use_query_map();
    let address = Memo::new(move |_| Address::of(addresses::GRAPH.to_owned(), None, &query.read()));
    let target = Memo::new(move |_| address.read().options.blueprint);
    let graph = Resource::new(
        move || target.get(),
        move |_| cluster_graph(address.get_untracked().options),
    );
    load(graph, move |first| view! { <Loaded first address/> })
}

/// All deployments, with links to their graphs.
#[component]
pub fn Graphs() -> impl IntoView {
    let list = ListOf::new(AllDeployments::Graphs);
    view! {
        <Title text="Graphs"/>
        <div class="head"><h1>"Graphs"</h1> {tree_link(list.listed())}</div>
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
    let target = Memo::new(move |_| address.read().options.blueprint);
    let graph = Resource::new(
        move || (name.get(), target.get()),
        move |(name, _)| {
            let request = address.get_untracked().options;
            graph(name, request)
        },
    );
    load_one(
        graph,
        (addresses::GRAPHS, "All graphs"),
        move |first| view! { <Loaded first address/> },
    )
}

#[component]
fn Loaded(first: GraphView, address: Memo<Address>) -> impl IntoView {
    let (name, id, cursor, then) =
        (first.deployment.clone(), first.deployment_id, first.cursor, first.blueprint);
    let of = name.as_ref().map_or("the cluster", DeploymentName::as_str);
    let heading = match then {
        Some(target) => format!("Graph of {of} at blueprint {target}"),
        None => format!("Graph of {of}"),
    };
    let fetched = name.clone();
    let feed = Feed::new(first, move || {
        let (fetched, request) = (fetched.clone(), address.get_untracked().options);
        async move {
            match fetched {
                Some(name) => graph(name.to_string(), request).await,
                None => cluster_graph(request).await,
            }
        }
    });
    // An old target never changes.
    if then.is_none() {
        // One topic covers the runs of all deployments, however many there are.
        let steps = id.map_or(Topic::Runs, Topic::Deployment);
        use_live().subscribe(vec![steps, Topic::Blueprints], cursor, move |_| feed.eventually());
    }
    let links = match (&name, then) {
        (None, _) => view! {
            <a class="button small" href=addresses::GRAPHS>
                {icon(Icon::Deployments)} "By deployment"
            </a>
        }
        .into_any(),
        (Some(name), Some(_)) => view! {
            <a class="button small" href=format!("{}?deployment={name}", addresses::BLUEPRINTS)>
                {icon(Icon::Blueprint)} "Blueprints"
            </a>
        }
        .into_any(),
        (Some(name), None) => view! {
            <a class="button small" href=addresses::deployment(name)>
                {icon(Icon::Deployments)} "Board"
            </a>
        }
        .into_any(),
    };
    view! {
        <Title text=heading.clone()/>
        <div class="head">
            <div>
                <div class="muted">"dependencies between steps"</div>
                <h1>{heading}</h1>
            </div>
            <div class="buttons">{links}</div>
        </div>
        <Graph feed address/>
        <EquivalentCommands of=move |_: FormValues| {
            let request = &address.read().options;
            vec![match &name {
                Some(name) => api::calls::graph(name, request),
                None => api::calls::cluster_graph(request),
            }]
        }/>
    }
    .into_any()
}

#[server(
    name = ReadClusterGraph,
    prefix = "/call",
    endpoint = "cluster-graph",
    input = AsJson,
    output = AsJson
)]
pub async fn cluster_graph(options: GraphOptions) -> ServerResult<GraphView> {
    let (request, actor) = signed_in()?;
    answer(request.control.cluster_graph(&actor, &options, MissingVertex::Note).await).await
}

#[server(name = ReadGraph, prefix = "/call", endpoint = "graph", input = AsJson, output = AsJson)]
pub async fn graph(deployment: String, options: GraphOptions) -> ServerResult<GraphView> {
    let (request, actor) = signed_in()?;
    answer(request.control.graph(&actor, &deployment, &options, MissingVertex::Note).await).await
}
