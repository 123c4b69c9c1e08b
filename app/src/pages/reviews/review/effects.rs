//! The impact in detail: the complete lists for the summary at the top. Long lists are truncated.
//! The difference is complete.

use api::reviews::ReviewView;
use engine::blueprint::Impact;
use engine::blueprint::impact::{Counted, Loss, NoderoleRerun, Touched};
use engine::blueprint::projection::RerunCause;
use engine::blueprint::secret_uses::{SecretChange, SecretKind, SecretUseChange};
use engine::cluster::phantom;
use engine::counting::many;
use engine::ids::ReviewId;
use leptos::prelude::*;

use super::facts::{RetainedText, lost, on_changed_input};
use crate::addresses;
use crate::components::{Icon, icon};

#[component]
pub(super) fn Effects(review: RwSignal<ReviewView>) -> impl IntoView {
    let found = Memo::new(move |_| review.read().impact.clone());
    let id = review.read_untracked().review;
    move || sections(id, &found.read())
}

fn sections(id: ReviewId, found: &Impact) -> AnyView {
    let downstream = found.downstream.iter().map(|group| {
        let title = format!("Downstream in {}", group.deployment);
        let up = group.in_use.map(|up| format!("{up} active now. "));
        let note = format!("{}{}", up.unwrap_or_default(), on_changed_input(group.on_input));
        let lines =
            group.noderoles.first.iter().map(|touched| line(touched, true, None)).collect_view();
        section(
            "downstream",
            &title,
            note,
            &group.noderoles,
            id,
            &["Noderole", "Node", "Deployment"],
            lines.into_any(),
        )
    });
    let plain = ["Noderole", "Node", "Deployment"];
    let retained = RetainedText::of(found);
    view! {
        {some(&found.irreversible).then(|| section(
            "irreversible", "Can’t be undone", "the run loses data permanently".into(),
            &found.irreversible, id, &plain,
            found.irreversible.first.iter()
                .map(|touched| line(touched, false, None))
                .collect_view()
                .into_any(),
        ))}
        {secrets(found)}
        {some(&found.restarts).then(|| section(
            "restarts", "Runs again", "active noderoles are interrupted".into(), &found.restarts,
            id,
            &["Noderole", "Node", "Deployment", "Reason and state"],
            found.restarts.first.iter().map(restarted).collect_view().into_any(),
        ))}
        {some(&found.retained).then(|| section(
            "retained", retained.lead, retained.note.into(), &found.retained, id, &plain,
            found.retained.first.iter()
                .map(|touched| line(touched, true, None))
                .collect_view()
                .into_any(),
        ))}
        {some(&found.lost).then(|| section(
            "lost", "Removed", "no longer part of the desired state".into(), &found.lost, id,
            &["Object"],
            found.lost.first.iter().map(gone).collect_view().into_any(),
        ))}
        {some(&found.undone).then(|| section(
            "undone", "Runs remove", "on the node, before the noderole is gone, if it ever \
                ran".into(),
            &found.undone, id, &plain,
            found.undone.first.iter()
                .map(|touched| line(touched, false, None))
                .collect_view()
                .into_any(),
        ))}
        {some(&found.left_in_place).then(|| section(
            "left-in-place", "Stays on the node", "nothing runs on the node, because the role \
                has no action `remove`".into(),
            &found.left_in_place, id, &plain,
            found.left_in_place.first
                .iter()
                .map(|touched| line(touched, false, None))
                .collect_view()
                .into_any(),
        ))}
        {some(&found.starts).then(|| section(
            "starts", "Starts", "runs for the first time".into(), &found.starts, id, &plain,
            found.starts.first.iter()
                .map(|touched| line(touched, false, None))
                .collect_view()
                .into_any(),
        ))}
        {downstream.collect_view()}
        {nothing(found)}
    }
    .into_any()
}

fn some<T>(list: &Counted<T>) -> bool {
    list.count > 0
}

fn nothing(found: &Impact) -> Option<AnyView> {
    let quiet = !some(&found.irreversible)
        && !some(&found.restarts)
        && !some(&found.lost)
        && !some(&found.starts)
        && !some(&found.retained)
        && found.secrets.is_empty();
    (quiet && found.downstream.is_empty()).then(|| {
        view! {
            <p class="card padded muted">
                "Nothing runs and nothing is removed. The change only updates the documents of the \
                 target."
            </p>
        }
        .into_any()
    })
}

fn section<T>(
    anchor: &'static str,
    title: &str,
    note: String,
    list: &Counted<T>,
    id: ReviewId,
    columns: &[&'static str],
    lines: AnyView,
) -> AnyView {
    let more = list.more();
    let title = title.to_owned();
    let columns =
        columns.iter().map(|column| view! { <th scope="col">{*column}</th> }).collect_view();
    view! {
        <section class="card" id=anchor aria-label=title.clone()>
            <header>
                <h2>{title.clone()}</h2> <span class="pill flat num">{list.count}</span>
                <span class="muted">{note}</span>
            </header>
            <div class="table-scroll">
                <table class="table responsive effects">
                    <thead><tr>{columns}</tr></thead>
                    <tbody>{lines}</tbody>
                </table>
            </div>
            {(more > 0).then(|| view! {
                <p class="pager">
                    "and " {more} " more. "
                    <a href=format!("/api/v1/reviews/{id}/difference") rel="external">
                        "Show the full difference as JSON"
                    </a>
                </p>
            })}
        </section>
    }
    .into_any()
}

/// Each secret that the change uses, replaces or drops. Never truncated: a reviewer approves every
/// one.
fn secrets(found: &Impact) -> Option<AnyView> {
    if found.secrets.is_empty() {
        return None;
    }
    let lines = found.secrets.iter().map(secret_line).collect_view();
    let view = view! {
        <section class="card" id="secrets" aria-label="Secrets">
            <header>
                <h2>"Secrets"</h2>
                <span class="pill flat num">{found.secrets.len()}</span>
                <span class="muted">
                    "Runs receive secrets in plain text if the workers allow it in that deployment."
                </span>
            </header>
            <div class="table-scroll">
                <table class="table responsive effects">
                    <thead>
                        <tr>
                            <th scope="col">"Secret"</th>
                            <th scope="col">"Version"</th>
                            <th scope="col">"Change"</th>
                            <th scope="col">"Role"</th>
                            <th scope="col">"Deployment"</th>
                            <th scope="col">"Nodes"</th>
                        </tr>
                    </thead>
                    <tbody>{lines}</tbody>
                </table>
            </div>
        </section>
    };
    Some(view.into_any())
}

fn secret_line(change: &SecretChange) -> AnyView {
    let (color, word) = match change.change {
        SecretUseChange::Added => ("warn", "added"),
        SecretUseChange::Replaced => ("warn", "replaced"),
        SecretUseChange::Removed => ("", "removed"),
    };
    let was = change.was.as_ref().map(|was| match was.name == change.secret.name {
        true => format!("was version {}", was.version),
        false => format!("was {was}"),
    });
    let kind = (change.kind == SecretKind::NodeKey).then_some("node key");
    let inherited = change.inherited.then_some("from the data of other noderoles");
    let deployment = change.deployment.to_string();
    let called = |fqdn| phantom::long_name(fqdn, |_| Some(deployment.clone())).into_owned();
    let mut nodes: Vec<String> = change.nodes.first.iter().map(called).collect();
    if change.nodes.more() > 0 {
        nodes.push(format!("{} more", change.nodes.more()));
    }
    let nodes = if nodes.is_empty() { "not bound yet".to_owned() } else { nodes.join(", ") };
    view! {
        <tr>
            <td data-label="Secret">
                <b><bdi>{change.secret.name.clone()}</bdi></b> " " <span class="muted">{kind}</span>
            </td>
            <td data-label="Version">
                {change.secret.version} " " <span class="muted">{was}</span>
            </td>
            <td data-label="Change"><span class="pill" data-state=color>{word}</span></td>
            <td data-label="Role">
                {change.role.as_ref().map(ToString::to_string)} " "
                <span class="muted">{inherited}</span>
            </td>
            <td data-label="Deployment" class="muted">{deployment.clone()}</td>
            <td data-label="Nodes">{nodes}</td>
        </tr>
    }
    .into_any()
}

/// A noderole. An existing one links to its page.
fn line(touched: &Touched, exists: bool, last: Option<AnyView>) -> AnyView {
    let name = touched.noderole.to_string();
    let node = phantom::long_name(&touched.fqdn, |_| Some(touched.deployment.to_string()));
    let named = match exists {
        true => {
            view! { <a class="main" href=addresses::noderole(touched.id)>{name}</a> }.into_any()
        }
        false => view! { <b>{name}</b> }.into_any(),
    };
    view! {
        <tr>
            <td data-label="Noderole">{named}</td>
            <td data-label="Node">{node.into_owned()}</td>
            <td data-label="Deployment" class="muted">{touched.deployment.to_string()}</td>
            {last.map(|last| view! { <td data-label="Reason and state">{last}</td> })}
        </tr>
    }
    .into_any()
}

fn restarted(restart: &NoderoleRerun) -> AnyView {
    let cause = match restart.cause {
        RerunCause::Requested => "rerun requested",
        RerunCause::RoleChanged => "role content changed",
        RerunCause::DataChanged => "data changed",
    };
    let reason = restart
        .reason
        .as_ref()
        .map_or_else(|| cause.to_owned(), |reason| format!("{cause}: {reason}"));
    let up = restart.in_use.map(|up| match up {
        true => {
            view! { <span class="pill" data-state="warn">{icon(Icon::Rerun)} "active now"</span> }
                .into_any()
        }
        false => view! { <span class="pill flat">"not active"</span> }.into_any(),
    });
    let last = view! { <span class="line">{up} <bdi>{reason}</bdi></span> }.into_any();
    line(&restart.touched, true, Some(last))
}

fn gone(loss: &Loss) -> AnyView {
    let paths = match loss {
        Loss::Data { paths, .. } if paths.len() > 3 => Some(view! {
            <details>
                <summary class="muted">{many(paths.len(), "value")}</summary>
                <p>{paths.join(", ")}</p>
            </details>
        }),
        _ => None,
    };
    view! { <tr><td data-label="Object">{lost(loss)} {paths}</td></tr> }.into_any()
}
