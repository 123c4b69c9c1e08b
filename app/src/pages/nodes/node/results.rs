//! The stored results of attempts on a node. The list shows only the beginning of each result,
//! since 50 complete results may be large. The page of the run shows all of it.

use api::calls::{Call, List, list_of};
use api::live::Topic;
use api::values::{ResultLine, ResultOutcome, ResultPage, ResultSort, ResultsQuery};
use engine::counting::many;
use engine::ids::RunId;
use leptos::prelude::*;

use super::server_functions;
use super::stored::{self, NodeParam};
use crate::addresses;
use crate::clock::TimeText;
use crate::components::list::{ListAddress, columns_of};
use crate::components::list_page::{Field, ListOf, ListPage, RowContext};
use crate::components::{Empty, Icon};
use crate::failure::ServerResult;

columns_of!(Part {
    Run "run" "Run",
    Noderole "noderole" "Noderole",
    Outcome "outcome" "Outcome",
    Result "result" "Result",
    Blueprint "blueprint" "Blueprint",
    Time "time" "When",
});

#[derive(Clone, Copy)]
struct ResultsOn(NodeParam);

impl ListPage for ResultsOn {
    type Sort = ResultSort;
    type Part = Part;
    type Page = ResultPage;
    type Key = RunId;

    const ID: &'static str = "result";
    const NAMES: (&'static str, &'static str) = ("result", "results");
    const CURSOR_PARAM: &'static str = "before";
    const FIELDS: &'static [Field] = &[
        Field::choice("outcome", "Outcome", "outcome is", || {
            ResultOutcome::EVERY.map(|outcome| (outcome.as_str(), outcome.as_str())).to_vec()
        }),
        Field::text("role", "Role", "role is"),
    ];
    const NUMBERS: &'static [Part] = &[Part::Blueprint];
    const SORTS: &'static [(ResultSort, &'static str)] = &[(ResultSort::Run, "run")];
    const TOPICS: &'static [Topic] = &[Topic::Runs];
    const API_LIST: List = List::Results;

    fn path(self) -> String {
        addresses::node_results(&self.0.name())
    }

    async fn fetch(self, address: ListAddress<ResultSort>) -> ServerResult<ResultPage> {
        let name = self.0.name_untracked();
        let outcome = address.one_of("outcome", &ResultOutcome::EVERY, ResultOutcome::as_str)?;
        let (sort, before) = address.page_position()?;
        server_functions::node_results(
            name,
            ResultsQuery { outcome, role: address.param("role"), sort, limit: None, before },
        )
        .await
    }

    fn sorted_by(column: Part) -> Option<(ResultSort, bool)> {
        (column == Part::Run).then_some((ResultSort::Run, true))
    }

    fn key(line: &ResultLine) -> RunId {
        line.run
    }

    fn caption(page: &ResultPage) -> Option<String> {
        Some(format!("{} stored in total", page.all))
    }

    fn api_call(self, address: &ListAddress<ResultSort>) -> Call {
        list_of(Self::API_LIST, &self.0.name_untracked(), |word| self.api_param(address, word))
    }

    fn none(self) -> AnyView {
        view! {
            <Empty icon=Icon::Data title="No results yet">
                <p>
                    "This list shows the results that runs on this node return, with any outcome."
                </p>
            </Empty>
        }
        .into_any()
    }

    fn row(self, line: Memo<ResultLine>, with: RowContext<Self>) -> AnyView {
        // A result never changes.
        let line = line.get_untracked();
        let rest =
            line.result.ends_with('…').then(|| format!("{} in total", many(line.bytes, "byte")));
        let of = view! {
            <span>
                <a href=addresses::noderole(line.noderole)><b>{line.role}</b></a> ": " {line.action}
            </span>
        };
        let result = view! {
            <span>
                <code>{line.result}</code>
                {rest.map(|rest| view! { " " <small class="muted">{rest}</small> })}
            </span>
        };
        view! {
            <tr>
                <td data-label="Run" class="tight">
                    <a class="main" href=addresses::run(line.run)>{line.run.0}</a>
                </td>
                {with.cell(Part::Noderole, "", of)}
                {with.cell(Part::Outcome, "", line.outcome)}
                {with.cell(Part::Result, "", result)}
                {with.cell(Part::Blueprint, "", line.blueprint.0)}
                {with.cell(Part::Time, "muted", view! { <TimeText at=line.at/> })}
            </tr>
        }
        .into_any()
    }
}

#[component]
pub fn ResultsPage() -> impl IntoView {
    let node_param = NodeParam::read();
    let list = ListOf::new(ResultsOn(node_param));
    let title = |name: &str| format!("Results on {name}");
    let about = "Results that runs on this node returned, for use by later attempts. Gantry stores \
                 the newest ten per step.";
    stored::page(node_param, title, about, list.view())
}
