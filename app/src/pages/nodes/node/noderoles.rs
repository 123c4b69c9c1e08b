//! All noderoles of a node. The node's page shows the first ones.

use api::calls::{Call, List, list_of};
use api::live::Topic;
use api::nodes::{NodeNoderole, NodeNoderolePage, NodeNoderoleSort, NodeNoderolesQuery};
use api::runs::StepState;
use engine::ids::NoderoleId;
use leptos::prelude::*;

use super::server_functions;
use super::stored::{self, NodeParam};
use crate::addresses;
use crate::clock::TimeText;
use crate::components::list::{ListAddress, columns_of};
use crate::components::list_page::{Field, ListOf, ListPage, RowContext};
use crate::components::{Empty, Icon, StatePill};
use crate::failure::ServerResult;

columns_of!(Part {
    Role "role" "Role",
    Deployment "deployment" "Deployment",
    State "state" "State",
    Since "since" "Since",
});

/// States of existing steps. Proposed ones are shown on the board.
const STATES: [StepState; 5] = [
    StepState::Blocked,
    StepState::Todo,
    StepState::Transition,
    StepState::Active,
    StepState::Error,
];

#[derive(Clone, Copy)]
struct NodeNoderoles(NodeParam);

impl ListPage for NodeNoderoles {
    type Sort = NodeNoderoleSort;
    type Part = Part;
    type Page = NodeNoderolePage;
    type Key = NoderoleId;

    const ID: &'static str = "noderole";
    const NAMES: (&'static str, &'static str) = ("noderole", "noderoles");
    const CURSOR_PARAM: &'static str = "after";
    const FIELDS: &'static [Field] = &[
        Field::choice("state", "State", "state is", || {
            STATES.map(|state| (state.as_str(), state.label())).to_vec()
        }),
        Field::text("role", "Role", "role is"),
    ];
    const SORTS: &'static [(NodeNoderoleSort, &'static str)] = &[(NodeNoderoleSort::Rank, "order")];
    // A step's state changes with its runs and with the target.
    const TOPICS: &'static [Topic] = &[Topic::Runs, Topic::Blueprints, Topic::Nodes];
    const API_LIST: List = List::Noderoles;

    fn path(self) -> String {
        addresses::node_noderoles(&self.0.name())
    }

    async fn fetch(self, address: ListAddress<NodeNoderoleSort>) -> ServerResult<NodeNoderolePage> {
        let name = self.0.name_untracked();
        let state = address.one_of("state", &STATES, StepState::as_str)?;
        let (sort, after) = address.page_position()?;
        server_functions::node_noderoles(
            name,
            NodeNoderolesQuery { state, role: address.param("role"), sort, limit: None, after },
        )
        .await
    }

    fn sorted_by(_: Part) -> Option<(NodeNoderoleSort, bool)> {
        None
    }

    fn key(carried: &NodeNoderole) -> NoderoleId {
        carried.id
    }

    fn api_call(self, address: &ListAddress<NodeNoderoleSort>) -> Call {
        list_of(Self::API_LIST, &self.0.name_untracked(), |word| self.api_param(address, word))
    }

    fn none(self) -> AnyView {
        view! {
            <Empty icon=Icon::Node title="No noderoles yet">
                <p>"Bind roles to the node on the board of a deployment."</p>
            </Empty>
        }
        .into_any()
    }

    fn row(self, carried: Memo<NodeNoderole>, with: RowContext<Self>) -> AnyView {
        let role = move || {
            let carried = carried.read();
            view! {
                <a class="main" href=addresses::noderole(carried.id)>{carried.role.to_string()}</a>
            }
        };
        let deployment = move || {
            let name = carried.read().deployment.clone();
            view! { <a href=addresses::deployment(&name)>{name.to_string()}</a> }
        };
        let state = view! {
            <div>
                <StatePill state=Signal::derive(move || carried.read().state)/>
                {move || carried.read().error.clone().map(|error| view! {
                    <div class="error-text">{error}</div>
                })}
            </div>
        };
        view! {
            <tr>
                <td data-label="Role">{role}</td>
                {with.cell(Part::Deployment, "", deployment)}
                {with.cell(Part::State, "", state)}
                {with.cell(Part::Since, "muted", move || view! {
                    <TimeText at=carried.read().since/>
                })}
            </tr>
        }
        .into_any()
    }
}

#[component]
pub fn NoderolesPage() -> impl IntoView {
    let node = NodeParam::read();
    let list = ListOf::new(NodeNoderoles(node));
    let title = |name: &str| format!("Noderoles of {name}");
    stored::page(
        node,
        title,
        "All roles that are bound to the node, in the order in which they run.",
        list.view(),
    )
}
