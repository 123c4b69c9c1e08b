//! The list of deployments, by default in the order of the tree.
//!
//! In this order, each deployment follows its parent, also across pages. So a page is a section of
//! the tree and is indented accordingly.

pub mod board;
mod field;
pub mod graph;
pub mod noderole;

use api::calls::List;
use api::deployments::{DeploymentPage, DeploymentSummary};
use api::deployments::{DeploymentSort, DeploymentState, DeploymentsQuery};
use api::listing::{Order, Sort};
use api::live::Topic;
use engine::ids::DeploymentId;
use leptos::prelude::*;
use leptos_meta::Title;

use crate::addresses;
use crate::codec::AsJson;
use crate::components::list::{ListAddress, SORT, columns_of};
use crate::components::list_page::{Field, ListOf, ListPage, RowContext};
use crate::components::{Counts, Empty, Feed, Icon, icon};
use crate::failure::ServerResult;
use crate::live::{NOW, use_live};
#[cfg(feature = "ssr")]
use crate::request::{answer, signed_in};
pub use field::DeploymentField;

/// The maximum number of indented levels. Deeper deployments show their level as a number.
const MAX_INDENT: u32 = 8;

columns_of!(Part {
    Deployment "deployment" "Deployment",
    Steps "steps" "Steps",
    Nodes "nodes" "Nodes",
    OpenChanges "open-changes" "Open changes",
    Changed "changed" "Last change",
});

/// The list, and the target of its links.
#[derive(Clone, Copy)]
pub(super) enum AllDeployments {
    /// The boards.
    Boards,
    /// The graphs.
    Graphs,
}

impl AllDeployments {
    /// Whether the list has the order of the tree.
    fn is_tree(listed: &ListAddress<DeploymentSort>) -> bool {
        !listed.is_filtered() && is_default(listed)
    }
}

fn is_default(listed: &ListAddress<DeploymentSort>) -> bool {
    listed.param(SORT).parse::<Order<DeploymentSort>>().is_ok_and(Order::is_default)
}

/// The link to the order of the tree, which no column header offers.
pub(super) fn tree_link(listed: Memo<ListAddress<DeploymentSort>>) -> impl IntoView {
    let to_tree = move || {
        let listed = listed.read();
        (!is_default(&listed)).then(|| listed.sorted(DeploymentSort::DEFAULT))
    };
    let link = move || {
        to_tree().map(|to| {
            view! {
                <a class="button small" href=to>{icon(Icon::Deployments)} "Show as a tree"</a>
            }
        })
    };
    view! { <div class="buttons">{link}</div> }
}

impl ListPage for AllDeployments {
    type Sort = DeploymentSort;
    type Part = Part;
    type Page = DeploymentPage;
    type Key = DeploymentId;

    const ID: &'static str = "deployment";
    const NAMES: (&'static str, &'static str) = ("deployment", "deployments");
    const CURSOR_PARAM: &'static str = "after";
    const FIELDS: &'static [Field] = &[
        Field::text("filter", "Name contains", "name contains"),
        Field::choice("state", "State", "state is", || {
            vec![
                ("on_hold", "on hold"),
                ("proposed", "has a proposal"),
                ("review", "in review"),
                ("error", "with errors"),
                ("working", "working"),
                ("idle", "idle"),
            ]
        }),
    ];
    const NUMBERS: &'static [Part] = &[Part::Nodes, Part::Changed];
    const SORTS: &'static [(DeploymentSort, &'static str)] = &[
        (DeploymentSort::Tree, "tree"),
        (DeploymentSort::Name, "name"),
        (DeploymentSort::Errors, "errors"),
        (DeploymentSort::Nodes, "nodes"),
        (DeploymentSort::Blueprint, "last changed"),
    ];
    const API_LIST: List = List::Deployments;
    const STYLE: &'static str = "deployments";

    fn path(self) -> String {
        let path = match self {
            Self::Boards => addresses::DEPLOYMENTS,
            Self::Graphs => addresses::GRAPHS,
        };
        path.to_owned()
    }

    async fn fetch(self, listed: ListAddress<DeploymentSort>) -> ServerResult<DeploymentPage> {
        let state = listed.one_of("state", &DeploymentState::EVERY, DeploymentState::as_str)?;
        let (sort, after) = listed.page_position()?;
        deployments(DeploymentsQuery {
            filter: listed.param("filter"),
            state,
            sort,
            limit: None,
            after,
        })
        .await
    }

    fn sorted_by(column: Part) -> Option<(DeploymentSort, bool)> {
        match column {
            Part::Deployment => Some((DeploymentSort::Name, false)),
            Part::Steps => Some((DeploymentSort::Errors, true)),
            Part::Nodes => Some((DeploymentSort::Nodes, true)),
            Part::Changed => Some((DeploymentSort::Blueprint, true)),
            Part::OpenChanges => None,
        }
    }

    fn key(deployment: &DeploymentSummary) -> DeploymentId {
        deployment.id
    }

    /// One topic covers the runs of all deployments, however many there are.
    fn follow(self, feed: Feed<DeploymentPage>) {
        use_live().subscribe(
            vec![Topic::Runs, Topic::Blueprints, Topic::Reviews, Topic::Nodes],
            NOW,
            move |_| feed.eventually(),
        );
    }

    fn none(self) -> AnyView {
        view! {
            <Empty icon=Icon::Deployments title="No deployments yet">
                <p>"Gantry creates the first one, system, with the first blueprint."</p>
            </Empty>
        }
        .into_any()
    }

    fn row(self, deployment: Memo<DeploymentSummary>, with: RowContext<Self>) -> AnyView {
        let is_tree = with.listed.with_value(Self::is_tree);
        let board = move || addresses::deployment(&deployment.read().name);
        let page = move || match self {
            Self::Boards => board(),
            Self::Graphs => addresses::graph(&deployment.read().name),
        };
        let depth = move || if is_tree { deployment.read().depth } else { 0 };
        let in_progress = move || {
            let (proposal, review) = (deployment.read().proposal, deployment.read().review);
            let proposed = proposal.map(|_| {
                view! {
                    <a class="pill" data-state="proposed" href=board>
                        {icon(Icon::Proposed)} "PROPOSED"
                    </a>
                }
            });
            let submitted = review.map(|id| {
                view! {
                    <a class="pill" data-state="warn" href=addresses::review(id)>
                        {icon(Icon::Review)} "in review " {id.0}
                    </a>
                }
            });
            (proposed, submitted)
        };
        let changed = view! { "blueprint " {move || deployment.read().blueprint.0} };
        view! {
            <tr>
                <td class="name" data-depth=move || depth().min(MAX_INDENT).to_string()>
                    <span>
                        <a class="main" href=page>{move || deployment.read().name.to_string()}</a>
                        {move || deep(depth())}
                    </span>
                </td>
                {with.cell(Part::Steps, "", move || view! {
                    <Counts counts=deployment.read().steps/>
                })}
                {with.cell(Part::Nodes, "", move || deployment.read().nodes)}
                {with.cell(Part::OpenChanges, "", view! {
                    <span class="buttons">{in_progress}</span>
                })}
                {with.cell(Part::Changed, "muted", changed)}
            </tr>
        }
        .into_any()
    }
}

#[component]
pub fn Deployments() -> impl IntoView {
    let list = ListOf::new(AllDeployments::Boards);
    view! {
        <Title text="Deployments"/>
        <div class="head"><h1>"Deployments"</h1> {tree_link(list.listed())}</div>
        {list.view()}
    }
    .into_any()
}

/// The level of a deployment beyond the maximum indentation.
fn deep(depth: u32) -> Option<impl IntoView> {
    (depth > MAX_INDENT).then(|| view! { " " <small class="muted">"level " {depth}</small> })
}

#[server(
    name = ReadDeployments,
    prefix = "/call",
    endpoint = "deployments",
    input = AsJson,
    output = AsJson
)]
pub async fn deployments(query: DeploymentsQuery) -> ServerResult<DeploymentPage> {
    let (request, actor) = signed_in()?;
    answer(request.control.find_deployments(&actor, &query).await).await
}
