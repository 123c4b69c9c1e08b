//! The results of a node's health checks, which workers repeat periodically. The node's page shows
//! the first ones.

use api::At;
use api::calls::{Call, List, list_of};
use api::nodes::{HealthCheckPage, HealthCheckSort, HealthCheckView, HealthChecksQuery};
use leptos::prelude::*;

use super::stored::{self, NodeParam};
use super::{check_details, health_check_result, server_functions};
use crate::addresses;
use crate::clock::TimeText;
use crate::components::list::{ListAddress, columns_of};
use crate::components::list_page::{Field, ListOf, ListPage, RowContext};
use crate::components::poll_while_visible::poll_while_visible;
use crate::components::{Empty, Feed, Icon};
use crate::failure::ServerResult;

columns_of!(Part {
    Time "time" "When",
    Result "result" "Result",
    Address "address" "Address and error",
    Duration "duration" "Duration",
    Worker "worker" "Worker",
});

#[derive(Clone, Copy)]
struct NodeHealthChecks(NodeParam);

impl ListPage for NodeHealthChecks {
    type Sort = HealthCheckSort;
    type Part = Part;
    type Page = HealthCheckPage;
    // Two workers may check in the same millisecond.
    type Key = (At, String);

    const ID: &'static str = "health-check";
    const NAMES: (&'static str, &'static str) = ("health check", "health checks");
    const CURSOR_PARAM: &'static str = "before";
    const FIELDS: &'static [Field] = &[
        Field::choice("reached", "Result", "reached is", || {
            vec![("true", "reached"), ("false", "not reached")]
        }),
        Field::text("filter", "Address or error", "address or error contains"),
    ];
    const NUMBERS: &'static [Part] = &[Part::Duration];
    const SORTS: &'static [(HealthCheckSort, &'static str)] = &[(HealthCheckSort::At, "when")];
    const API_LIST: List = List::HealthChecks;

    fn path(self) -> String {
        addresses::node_health_checks(&self.0.name())
    }

    async fn fetch(self, address: ListAddress<HealthCheckSort>) -> ServerResult<HealthCheckPage> {
        let name = self.0.name_untracked();
        let reached = address
            .one_of("reached", &[true, false], |reached| if reached { "true" } else { "false" })?;
        let (sort, before) = address.page_position()?;
        server_functions::node_health_checks(
            name,
            HealthChecksQuery {
                reached,
                filter: address.param("filter"),
                sort,
                limit: None,
                before,
            },
        )
        .await
    }

    fn sorted_by(column: Part) -> Option<(HealthCheckSort, bool)> {
        (column == Part::Time).then_some((HealthCheckSort::At, true))
    }

    fn key(check: &HealthCheckView) -> (At, String) {
        (check.at, check.by.clone())
    }

    fn api_call(self, address: &ListAddress<HealthCheckSort>) -> Call {
        list_of(Self::API_LIST, &self.0.name_untracked(), |word| self.api_param(address, word))
    }

    fn follow(self, feed: Feed<HealthCheckPage>) {
        poll_while_visible(feed);
    }

    fn none(self) -> AnyView {
        view! {
            <Empty icon=Icon::Search title="No health checks yet">
                <p>"Workers check each SSH node every ten seconds."</p>
            </Empty>
        }
        .into_any()
    }

    fn row(self, check: Memo<HealthCheckView>, with: RowContext<Self>) -> AnyView {
        // A result never changes.
        let check = check.get_untracked();
        view! {
            <tr>
                <td data-label="When"><TimeText at=check.at/></td>
                {with.cell(Part::Result, "", health_check_result(check.reached))}
                {with.cell(Part::Address, "", view! { <div>{check_details(&check)}</div> })}
                {with.cell(Part::Duration, "", format!("{} ms", check.duration_ms))}
                {with.cell(Part::Worker, "muted", check.by)}
            </tr>
        }
        .into_any()
    }
}

#[component]
pub fn HealthChecksPage() -> impl IntoView {
    let node = NodeParam::read();
    let list = ListOf::new(NodeHealthChecks(node));
    let title = |name: &str| format!("Health checks of {name}");
    stored::page(
        node,
        title,
        "Workers check the node every ten seconds. Gantry stores the last 50 health checks.",
        list.view(),
    )
}
