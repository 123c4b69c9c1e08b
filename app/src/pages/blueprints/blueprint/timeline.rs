//! The runs of a blueprint by node, on one time axis.
//!
//! Each row is a small SVG whose bars are positioned in percent. So the timeline fits every width
//! without a measurement in the browser, and the server renders it whole.

use api::At;
use api::rollout::{Timeline, TimelineNode, TimelineRun};
use engine::counting::{grouped, many};
use leptos::prelude::*;

use crate::addresses;
use crate::clock::{exact, span, use_clock};
use crate::components::badge::run_style;
use crate::components::rows;
use crate::pages::nodes::node::has_page;

/// The smallest width of a bar, in percent of the axis.
const MIN_WIDTH: f64 = 0.4;

/// The time axis.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Axis {
    from: At,
    to: At,
}

impl Axis {
    /// From the first run to the last end, or to now while a run is open.
    fn of(timeline: &Timeline, now: impl Fn() -> At) -> Option<Self> {
        let runs = || timeline.nodes.iter().flat_map(|node| &node.runs);
        let from = runs().map(|run| run.from).min()?;
        let is_open = runs().any(|run| run.to.is_none());
        let last = runs().filter_map(|run| run.to).max().unwrap_or(from);
        let to = if is_open { now().max(last) } else { last };
        Some(Self { from, to: to.max(At(from.0 + 1)) })
    }

    /// The left end and the width of a run, in percent.
    fn span(self, run: &TimelineRun) -> (f64, f64) {
        let length = (self.to.0 - self.from.0) as f64;
        let at = |at: At| ((at.0 - self.from.0) as f64 / length * 100.0).clamp(0.0, 100.0);
        let width = (at(run.to.unwrap_or(self.to)) - at(run.from)).max(MIN_WIDTH);
        (at(run.from).min(100.0 - width), width)
    }
}

#[component]
pub(super) fn TimelineSection(timeline: Memo<Timeline>) -> impl IntoView {
    let clock = use_clock();
    let axis = Memo::new(move |_| Axis::of(&timeline.read(), || clock.now()));
    let nodes = Memo::new(move |_| timeline.read().nodes.clone());
    let is_empty = Memo::new(move |_| nodes.read().is_empty());
    let text = Memo::new(move |_| shown(&timeline.read()));
    let ends = move || {
        axis.get().map(|Axis { from, to }| {
            view! {
                <p class="timeline-axis muted" aria-hidden="true">
                    <time>{exact(from)}</time>
                    <span>{span(from, to)}</span>
                </p>
            }
        })
    };
    let rest = move || match is_empty.get() {
        true => view! { <p class="padded muted">"No runs yet."</p> }.into_any(),
        false => view! {
            <div class="timeline">
                {ends}
                <ul>
                    {rows(nodes.into(), |node| node.fqdn.clone(), move |node| line(node, axis))}
                </ul>
            </div>
        }
        .into_any(),
    };
    view! {
        <section class="card" aria-label="Timeline">
            <header>
                <h2>"Timeline"</h2>
                <span class="muted grow">{text}</span>
                <a href=addresses::RUNS>"All runs"</a>
            </header>
            {rest}
        </section>
    }
    .into_any()
}

/// The parts that the timeline shows, and the parts that it leaves out.
fn shown(timeline: &Timeline) -> String {
    let nodes = i64::try_from(timeline.nodes.len()).unwrap_or(i64::MAX);
    let runs = timeline.nodes.iter().map(|node| node.runs.len()).sum::<usize>();
    let runs = i64::try_from(runs).unwrap_or(i64::MAX);
    if nodes >= timeline.all_nodes && runs >= timeline.all_runs {
        return format!("{} on {}", many(runs, "run"), many(nodes, "node"));
    }
    format!(
        "the newest and failed runs: {} of {} on {} of {}",
        grouped(runs),
        many(timeline.all_runs, "run"),
        grouped(nodes),
        many(timeline.all_nodes, "node"),
    )
}

fn line(node: Memo<TimelineNode>, axis: Memo<Option<Axis>>) -> impl IntoView {
    let fqdn = node.read_untracked().fqdn.clone();
    let label = match has_page(&fqdn) {
        true => view! {
            <a class="clip" href=addresses::runs_on(&fqdn) title=fqdn.clone()>{fqdn.clone()}</a>
        }
        .into_any(),
        false => view! { <span class="clip">{fqdn.clone()}</span> }.into_any(),
    };
    let bars = move || {
        let axis = axis.get()?;
        Some(node.read().runs.iter().map(|run| bar(run, axis)).collect_view())
    };
    let text = move || {
        let node = node.read();
        let newest = node.runs.last().map(|run| run_style(run.state).2).unwrap_or_default();
        format!("{}, the newest {newest}", many(node.runs.len(), "run"))
    };
    view! {
        <li>
            {label}
            <svg role="group" aria-label=text>{bars}</svg>
        </li>
    }
}

fn bar(run: &TimelineRun, axis: Axis) -> impl IntoView + use<> {
    let (left, width) = axis.span(run);
    let (color, _, word) = run_style(run.state);
    let to = run.to.unwrap_or(axis.to);
    let title = format!("{}: {word}, {} (run {})", run.role, span(run.from, to), run.id);
    // The list of runs is the way for keyboards: one stop for each bar would be hundreds. Inside of
    // `g`, leptos creates the link as an element of SVG and not of HTML.
    view! {
        <g>
            <a href=addresses::run(run.id) tabindex="-1" data-state=color aria-label=title.clone()>
                <rect x=format!("{left:.2}%") y="3" width=format!("{width:.2}%") height="14" rx="2">
                    <title>{title.clone()}</title>
                </rect>
            </a>
        </g>
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::runs::RunState;
    use engine::ids::{NodeId, RoleName, RunId};

    fn run(from: i64, to: Option<i64>) -> TimelineRun {
        TimelineRun {
            id: RunId(1),
            role: RoleName::parse("app").expect("a name"),
            state: RunState::Succeeded,
            from: At(from),
            to: to.map(At),
        }
    }

    fn timeline(runs: Vec<TimelineRun>, all_runs: i64) -> Timeline {
        let node = NodeId(uuid::Uuid::from_u128(1));
        let nodes = vec![TimelineNode { node, fqdn: "n1.demo".into(), runs }];
        Timeline { nodes, all_nodes: 1, all_runs }
    }

    #[test]
    fn bars_fill_the_axis() {
        let first = timeline(vec![run(1_000, Some(2_000)), run(2_000, None)], 2);
        let axis = Axis::of(&first, || At(5_000)).expect("runs");
        assert_eq!(axis, Axis { from: At(1_000), to: At(5_000) });
        assert_eq!(axis.span(&first.nodes[0].runs[0]), (0.0, 25.0));
        assert_eq!(axis.span(&first.nodes[0].runs[1]), (25.0, 75.0));
        let instant = run(5_000, Some(5_000));
        assert_eq!(
            axis.span(&instant),
            (99.6, MIN_WIDTH),
            "the bar is visible and within the axis"
        );
        assert_eq!(Axis::of(&Timeline::default(), || At(0)), None);
    }

    #[test]
    fn left_out_runs_are_counted() {
        assert_eq!(shown(&timeline(vec![run(1, None)], 1)), "1 run on 1 node");
        assert_eq!(
            shown(&timeline(vec![run(1, None)], 1_234)),
            "the newest and failed runs: 1 of 1234 runs on 1 of 1 node"
        );
    }
}
