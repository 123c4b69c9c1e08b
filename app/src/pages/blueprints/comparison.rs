//! The comparison of two blueprints: the differences, and the impact of a change from one to the
//! other.

use std::future::ready;

use api::Problem;
use api::blueprints::{BlueprintPage, Comparison, Side};
use engine::blueprint::Impact;
use engine::blueprint::difference::Mark;
use engine::counting::{either, many};
use engine::ids::{BlueprintNumber, DeploymentName};
use leptos::form::ActionForm;
use leptos::prelude::*;

use super::PageParams;
use super::server_functions::ProposeRestore;
use crate::addresses;
use crate::components::action::problem_of;
use crate::components::{
    EquivalentCommands, FormValues, Icon, ProblemNotice, icon, load_part, loading_text, warnings,
};
use crate::failure::ServerResult;
use crate::pages::reviews::review::{Changed, differs};

/// The same comparison in the API.
const REST: &str = "/api/v1/blueprints/compare";

/// The requested comparison, if the address names two blueprints.
#[component]
pub(super) fn ComparisonSection(
    compared: Resource<ServerResult<Option<Comparison>>>,
    /// The history below. An error of both is shown there, once.
    line: Resource<ServerResult<BlueprintPage>>,
    params: Memo<PageParams>,
) -> impl IntoView {
    let show = move |found| {
        ready(match found {
            Some(found) => view! { <Found found params/> }.into_any(),
            None => view! { <IncompleteComparison params/> }.into_any(),
        })
    };
    let show_error = move |problem: Problem| async move {
        if line.await.is_err_and(|other| other.0.detail == problem.detail) {
            return ().into_any();
        }
        view! { <ProblemNotice problem=Some(problem)/> }.into_any()
    };
    load_part(compared, loading_text, show, show_error)
}

/// Only one of the two is chosen: names the missing one.
#[component]
fn IncompleteComparison(params: Memo<PageParams>) -> impl IntoView {
    move || {
        let params = params.read();
        let missing = match (&params.from, &params.to) {
            (Some(from), None) => format!("From {from}: select the blueprint to compare it to."),
            (None, Some(to)) => format!("To {to}: select the blueprint to compare it from."),
            _ => return None,
        };
        Some(view! {
            <div class="notice" data-state="todo" role="status">
                {icon(Icon::Blueprint)} <p>{missing}</p>
            </div>
        })
    }
}

#[component]
fn Found(found: Comparison, params: Memo<PageParams>) -> impl IntoView {
    let heading = format!("From {} to {}", name(&found.from), name(&found.to));
    let same_root = found.from.root.is_some() && found.from.root == found.to.root;
    // In a single deployment, the differences elsewhere are reported below.
    let left = if found.deployment.is_some() { 0 } else { found.more };
    // The policy is not part of a blueprint.
    let same = same_root && found.difference.is_empty();
    let text = match same {
        true => "Both are the same blueprint.".to_owned(),
        false => format!("Differences: {}", Changed::of(&found.difference, left)),
    };
    let graphs = graphs(&found);
    let within = found.deployment.clone().map(|name| format!("in {name}"));
    let swapped = move || {
        params.read().pair().map(|(from, to)| params.read().with_comparison(to, from).address())
    };
    let rest = move |form: &'static str| {
        // The cursor of the history does not affect the comparison.
        let address = params.read().comparison().address();
        format!("{REST}?{}&format={form}", address.split_once('?').map_or("", |(_, query)| query))
    };
    let more = (found.more > 0).then(|| omitted_notice(&found, params));
    let restore = restorable(&found).map(|(name, target)| view! { <RestoreForm name target/> });
    view! {
        <section class="stack comparison" aria-label="Comparison">
            <div class="card">
                <header>
                    <h2>{heading}</h2>
                    <span class="muted">{within}</span>
                    <span class="grow"></span>
                    <a
                        class="button quiet small"
                        href=move || swapped().unwrap_or_default() data-noscroll
                    >
                        {icon(Icon::Rerun)} "Swap sides"
                    </a>
                    <a class="button quiet small" rel="external" href=move || rest("text")>
                        "As text"
                    </a>
                    <a class="button quiet small" rel="external" href=move || rest("json")>
                        "As JSON"
                    </a>
                </header>
                <div class="padded">
                    <p>
                        <b>{text}</b> " "
                        <span class="muted">{hash(&found.from)} {hash(&found.to)}</span>
                    </p>
                    {found.note.clone().map(|note| view! { <p>{note}</p> })}
                    {impact_counts(&found.impact)}
                    {graphs}
                </div>
                {restore}
            </div>
            {warnings::hidden_characters(&found.hidden_characters)}
            {(!same).then(|| differs(found.difference, found.names, found.contents, found.pins))}
            {more}
        </section>
    }
    .into_any()
}

/// Links to the deployment's graph at each of the two targets that contains it.
fn graphs(found: &Comparison) -> impl IntoView + use<> {
    let name = found.deployment.clone()?;
    // Two deployments with this name are one on each side.
    let mut called = found.difference.deployments.iter().filter(|one| one.name == name);
    let mark = called.next().map(|one| one.mark).filter(|_| called.next().is_none());
    let sides = [(&found.from, Mark::Added), (&found.to, Mark::Removed)];
    let present = sides.into_iter().filter(|(_, lacks)| mark != Some(*lacks));
    let links = present.filter_map(|(side, _)| side.blueprint).map(|target| {
        let address = format!("{}?blueprint={target}", addresses::graph(&name));
        view! {
            <a class="button quiet small" href=address>
                {icon(Icon::Graph)} {format!("Graph at blueprint {target}")}
            </a>
        }
    });
    Some(view! { <div class="buttons">{links.collect_view()}</div> })
}

/// The deployment and the target that it can be restored to. Requires a comparison in one
/// deployment, from a newer target.
fn restorable(found: &Comparison) -> Option<(DeploymentName, BlueprintNumber)> {
    let (name, target) = (found.deployment.clone()?, found.to.blueprint?);
    let newer = found.from.blueprint.is_some_and(|from| from > target);
    // A deployment that only one side has cannot be restored. The policy and jigs that are off are
    // also among the differences, but do not belong to the deployment.
    let own = found.difference.deployments.iter().any(|one| one.name == name)
        || !found.difference.nodes.is_empty();
    (newer && found.note.is_none() && own).then_some((name, target))
}

/// Opens a proposal that restores the deployment. The differences below are its impact if *from* is
/// the newest target.
#[component]
fn RestoreForm(name: DeploymentName, target: BlueprintNumber) -> impl IntoView {
    let restore = ServerAction::<ProposeRestore>::new();
    let text = format!("Restore {name} as of blueprint {target}");
    let (which, of) = (name.to_string(), name.to_string());
    view! {
        <ActionForm action=restore attr:class="padded restore">
            <input type="hidden" name="deployment" value=which/>
            <input type="hidden" name="target" value=target.to_string()/>
            <p>
                "Restoring opens a proposal, which another person must approve. It restores the \
                 roles, bindings, data and barclamp versions of "
                {of}
                ". Nodes that joined later stay without a role. Restore the deployments below it \
                 one by one."
            </p>
            <label class="choice">
                <input type="checkbox" name="partial" value="true"/>
                <span>
                    "Skip parts that cannot be restored"
                    <small>"Otherwise Gantry lists these parts and opens no proposal."</small>
                </span>
            </label>
            <ProblemNotice problem=problem_of(restore)/>
            <EquivalentCommands
                of=move |typed: FormValues| vec![
                    api::calls::restore(&name, target, typed.is_checked("partial"))
                ]
            />
            <div class="buttons">
                <button
                    class="button primary"
                    type="submit"
                    disabled=move || restore.pending().get()
                >
                    {icon(Icon::Undo)} {text}
                </button>
            </div>
        </ActionForm>
    }
    .into_any()
}

/// The number of differences that are not shown, because only one deployment is compared or because
/// there are too many.
fn omitted_notice(found: &Comparison, params: Memo<PageParams>) -> AnyView {
    let n = found.more;
    match &found.deployment {
        Some(_) => {
            let all = move || PageParams { deployment: None, ..params.get() }.address();
            view! {
                <p class="muted">
                    "Outside this deployment, " {many(n, "document")}
                    {either(n, " differs. ", " differ. ")} <a href=all>"Compare everything"</a>
                </p>
            }
            .into_any()
        }
        None => view! {
            <p class="muted">
                {n}
                " more documents differ, which is too many for one page. Open the comparison as \
                 text or JSON."
            </p>
        }
        .into_any(),
    }
}

fn name(side: &Side) -> String {
    match (side.blueprint, &side.root) {
        (Some(target), _) => format!("blueprint {target}"),
        (None, Some(root)) => format!("blueprint {}", root.get(..8).unwrap_or(root)),
        (None, None) => "an unknown blueprint".into(),
    }
}

fn hash(side: &Side) -> impl IntoView + use<> {
    side.root.clone().map(|root| {
        let short: String = root.chars().take(8).collect();
        view! { <code title=root>{short}</code> " " }
    })
}

/// `3 start, 1 runs again`. Empty without impact.
fn impact_counts(consequences: &Impact) -> impl IntoView + use<> {
    let all = [
        ("proposed", Icon::Plus, consequences.starts.count, "to start"),
        ("todo", Icon::Rerun, consequences.restarts.count, "to run again"),
        ("error", Icon::Delete, consequences.lost.count, "removed"),
        ("warn", Icon::Warn, consequences.irreversible.count, "irreversible"),
    ];
    let pills = all.into_iter().filter(|(_, _, n, _)| *n > 0).map(|(color, shape, n, word)| {
        view! { <span class="pill" data-state=color>{icon(shape)} {n} " " {word}</span> " " }
    });
    let pills: Vec<_> = pills.collect();
    (!pills.is_empty()).then(|| view! { <p>{pills}</p> })
}
