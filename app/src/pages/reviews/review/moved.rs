//! The effect of a changed base on this review: it was replanned with the same or another effect,
//! or sent back to its authors.

use api::proposals::Replanned;
use api::reviews::ReviewView;
use engine::blueprint::Difference;
use engine::ids::ReviewId;
use leptos::prelude::*;

use super::changes;
use crate::addresses;
use crate::components::{Icon, icon};

/// Notices at the top of the review. Empty if its base never changed.
#[component]
pub(super) fn Moved(review: RwSignal<ReviewView>) -> impl IntoView {
    let came = Memo::new(move |_| review.read().replaces.clone());
    let became = Memo::new(move |_| review.read().replaced_by.clone());
    view! {
        {move || became.get().map(|became| gone(&became))}
        {move || came.get().map(|came| reset_on_success(review, came))}
    }
    .into_any()
}

fn link(id: ReviewId) -> impl IntoView {
    view! { <a href=addresses::review(id)>"review " {id.0}</a> }
}

/// The notice on the old review, with a link to the new one.
fn gone(replanned: &Replanned) -> AnyView {
    match replanned.after {
        Some(after) => {
            let text = if replanned.same_effect {
                "with the same effect"
            } else {
                "with a different effect"
            };
            view! {
                <div class="notice" data-state="warn" role="status">
                    {icon(Icon::Rerun)}
                    <div>
                        <b>"The base changed: planned again as " {link(after)} ", " {text}</b>
                        <p>
                            "Changed since: " {replanned.moved.join(", ")}
                            ". Verdicts on this review do not count there."
                        </p>
                    </div>
                </div>
            }
            .into_any()
        }
        None => view! {
            <div class="notice refused" data-state="warn" role="status">
                {icon(Icon::Warn)}
                <div>
                    <b>"The base changed: this review went back to its authors"</b>
                    {reasons(replanned)}
                </div>
            </div>
        }
        .into_any(),
    }
}

/// The reason for sending the review back, and the people who can submit it again.
pub(crate) fn reasons(replanned: &Replanned) -> AnyView {
    let line = |finding: &api::problem::Finding| {
        view! { <li><b>{finding.at.clone()}</b> ": " {finding.detail.clone()}</li> }
    };
    view! {
        <p>
            "Changed since: " {replanned.moved.join(", ")}
            ". An author checks the change, edits it if necessary, and submits it again."
        </p>
        <ul>{replanned.refused.iter().map(line).collect_view()}</ul>
    }
    .into_any()
}

/// The notice on the new review: whether its effect is the same.
fn reset_on_success(review: RwSignal<ReviewView>, replanned: Replanned) -> AnyView {
    let dropped = (!replanned.voided_verdicts.is_empty()).then(|| {
        format!(" Verdicts that do not count here: {}.", replanned.voided_verdicts.join(", "))
    });
    let change =
        if replanned.same_effect { "the effect is the same" } else { "the effect is different" };
    let effect_changes = replanned.effect_changes;
    let differs = !effect_changes.is_empty();
    let risks = (!replanned.same_effect && !differs)
        .then_some(" The same values change, but the risks are different. See the risks above.");
    view! {
        <div
            class="notice"
            data-state=if replanned.same_effect { "todo" } else { "warn" }
            role="status"
        >
            {icon(Icon::Rerun)}
            <div>
                <b>"The base changed: " {change}</b>
                <p>
                    "Planned again from " {link(replanned.before)} ". Changed since: "
                    {replanned.moved.join(", ")} "." {risks} {dropped}
                </p>
            </div>
        </div>
        {differs.then(|| view! {
            <details class="card shift" open>
                <summary>
                    "Differences from " {format!("review {}", replanned.before.0)}
                    {icon(Icon::Right)}
                </summary>
                {side(review, "Previous change", effect_changes.before)}
                {side(review, "Current change", effect_changes.after)}
            </details>
        })}
    }
    .into_any()
}

fn side(review: RwSignal<ReviewView>, title: &'static str, difference: Difference) -> AnyView {
    if difference.is_empty() {
        return view! {
            <section class="padded"><h3>{title}</h3> <p class="muted">"None."</p></section>
        }
        .into_any();
    }
    view! {
        <section class="padded" aria-label=title>
            <h3>{title}</h3> <changes::Changes review difference comment_links=None/>
        </section>
    }
    .into_any()
}
