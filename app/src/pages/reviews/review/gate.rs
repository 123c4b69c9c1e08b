//! The gate as the reader sees it: every rule and every action. A disabled
//! action shows the reason and the people who can act.

use api::people::Signature;
use api::reviews::{ReviewState, ReviewView};
use api::{Problem, limits};
use engine::counting::many;
use engine::gate::{Rule, RuleResult, VerdictKind};
use engine::ids::ReviewId;
use engine::text::{capitalize, sentence};
use leptos::form::ActionForm;
use leptos::{html, prelude::*};

use super::server_functions::{Commit, GiveVerdict, sign_verdict, verdict_options};
use crate::clock::TimeText;
use crate::components::action::{act, on_success, problem_of};
use crate::components::{
    EquivalentCommands, Feed, FormValues, Icon, ProblemNotice, Refused, escape_textarea, icon,
};
use crate::failure::ServerResult;
use crate::pages::settings::passkeys::{PASSKEYS_ID, refused};
use crate::{addresses, passkey};

#[component]
pub(super) fn Gate(feed: Feed<ReviewView>) -> impl IntoView {
    let review = feed.value();
    // For a discarded review, the rules no longer matter.
    let rules = move || match review.read().state {
        ReviewState::Discarded => ().into_any(),
        _ => checks(&review.read().gate.rules).into_any(),
    };
    let gate_open = Memo::new(move |_| review.read().gate.is_open());
    let closed = Memo::new(move |_| is_closed(review.read().state));
    // Half-typed text survives the form, which disappears if another commit closes the review.
    let begun = RwSignal::new(String::new());
    // The button that was primary on load stays first, even when the commit becomes possible.
    // Nothing moves under a pointer that is about to click.
    let commit_first = gate_open.get_untracked();
    let acts = move || match closed.get() {
        true => view! { <Outcome review begun/> }.into_any(),
        false if commit_first => view! {
            <CommitForm feed/>
            <VerdictForm feed begun/>
        }
        .into_any(),
        false => view! {
            <VerdictForm feed begun/>
            <CommitForm feed/>
        }
        .into_any(),
    };
    let waits = move || {
        let line = |wait: &String| {
            view! {
                <p class="pending-reason" data-state="warn">
                    {icon(Icon::Paused)} <span>{wait.clone()}</span>
                </p>
            }
        };
        review.read().pending_reasons.iter().map(line).collect_view()
    };
    view! {
        <section class="card" aria-labelledby="gate-title">
            <header>
                <h2 id="gate-title">"Gate"</h2>
                <span class="grow"></span>
                {move || match (closed.get(), gate_open.get()) {
                    (true, _) => view! { <span class="pill flat">"closed"</span> }.into_any(),
                    (false, true) => view! {
                        <span class="pill" data-state="active">{icon(Icon::Check)} "open"</span>
                    }.into_any(),
                    (false, false) => view! {
                        <span class="pill" data-state="blocked">
                            {icon(Icon::Blocked)} "blocked"
                        </span>
                    }.into_any(),
                }}
            </header>
            {move || rules()}
            {move || waits()}
            {move || acts()}
        </section>
    }
    .into_any()
}

/// The rules: those that pass in a closed section, then what is open. The approvals are always
/// visible, since they name the people who can act.
fn checks(rules: &[RuleResult]) -> impl IntoView + use<> {
    let is_quiet = |rule: &&RuleResult| rule.passes && rule.rule != Rule::Approvals;
    let passed: Vec<RuleResult> = rules.iter().filter(is_quiet).cloned().collect();
    let open = rules.iter().filter(|rule| !is_quiet(rule)).cloned().map(rule).collect_view();
    let quiet = (!passed.is_empty()).then(|| {
        let text = format!("{} passed", many(passed.len(), "check"));
        view! {
            <details class="passed-checks">
                <summary><span class="ok">{icon(Icon::Check)}</span> {text}</summary>
                <ul class="checks">{passed.into_iter().map(rule).collect_view()}</ul>
            </details>
        }
    });
    view! { {quiet} <ul class="checks">{open}</ul> }
}

/// Whether no decision is possible any more.
pub(super) fn is_closed(state: ReviewState) -> bool {
    matches!(
        state,
        ReviewState::Committed
            | ReviewState::Discarded
            | ReviewState::Replaced
            | ReviewState::SentBack
    )
}

fn rule(state: RuleResult) -> impl IntoView {
    // Missing approvals are pending. All other violated rules require an action.
    let (class, shape, word) = match (state.passes, state.rule) {
        (true, _) => ("ok", Icon::Check, "passed: "),
        (false, Rule::Approvals) => ("wait", Icon::Todo, "pending: "),
        (false, _) => ("no", Icon::Cross, "failed: "),
    };
    let (text, who) = split_rule_text(&state.text);
    view! {
        <li data-rule=class>
            <span class=class>{icon(shape)}</span>
            <span>
                <span class="visually-hidden">{word}</span> {text}
                {who.map(|who| view! { <small class="muted">{who}</small> })}
            </span>
        </li>
    }
    .into_any()
}

/// Splits a rule's text into the statement and the people who can act.
fn split_rule_text(text: &str) -> (String, Option<String>) {
    let parts = [". Can act: ", ". Can decide again: ", ". Can give the "];
    let at = parts.iter().filter_map(|part| text.find(part)).min();
    match at {
        Some(at) => (format!("{}.", &text[..at]), Some(text[at + 2..].to_owned())),
        None => (text.to_owned(), None),
    }
}

/// The outcome of a closed review.
#[component]
fn Outcome(review: RwSignal<ReviewView>, begun: RwSignal<String>) -> impl IntoView {
    let message = move || {
        let review = review.read();
        let board = addresses::deployment(&review.deployment);
        let newer = review.replaced_by.as_ref().and_then(|became| became.after);
        match (review.state, review.blueprint) {
            (ReviewState::Committed, Some(target)) => view! {
                <p>"Committed as blueprint " <b>{target.0}</b> "."</p>
                <a class="button primary wide" href=addresses::blueprint(target)>
                    {icon(Icon::Run)} "Watch progress"
                </a>
            }
            .into_any(),
            (ReviewState::Replaced, _) => match newer {
                Some(newer) => view! {
                    <p>
                        "Gantry planned this change again on the current target. Verdicts on this \
                         review no longer count."
                    </p>
                    <a class="button primary wide" href=addresses::review(newer)>
                        "Open review " {newer.0}
                    </a>
                }
                .into_any(),
                None => view! {
                    <p>
                        "The proposal has a newer version, so verdicts on this review no longer \
                         count. The board shows the newest version."
                    </p>
                    <a class="button wide" href=board>"Open the board"</a>
                }
                .into_any(),
            },
            (ReviewState::SentBack, _) => view! {
                <p>
                    "The base changed, and the same edits no longer make the same change. The \
                     review went back to its authors."
                </p>
                <a class="button wide" href=board>"Open the board"</a>
            }
            .into_any(),
            _ => view! { <p>"The proposal was discarded."</p> }.into_any(),
        }
    };
    let text = begun.get_untracked();
    let unsent_text = (!text.is_empty()).then(|| {
        view! {
            <div class="field">
                <label for="begun">"Your unsent text"</label>
                <textarea class="area" id="begun" readonly>{escape_textarea(text)}</textarea>
            </div>
        }
    });
    view! { <div class="padded actions">{move || message()} {unsent_text}</div> }.into_any()
}

#[component]
fn CommitForm(feed: Feed<ReviewView>) -> impl IntoView {
    let review = feed.value();
    let commit = ServerAction::<Commit>::new();
    on_success(commit, move |_| feed.now());
    let refusal = Memo::new(move |_| review.read().may_commit.reason().map(str::to_owned));
    let to_type = Memo::new(move |_| review.read().type_to_commit.clone());
    let off = move || refusal.read().is_some() || commit.pending().get();
    view! {
        <ActionForm action=commit attr:class="padded actions">
            <input type="hidden" name="review" value=move || review.read().review.0.to_string()/>
            {move || {
                to_type
                    .get()
                    .filter(|_| refusal.read().is_none())
                    .map(|name| {
                        view! {
                            <div class="field">
                                <label for="commit-name">
                                    "This cannot be undone. Type " <b>{name.clone()}</b>
                                    " to commit"
                                </label>
                                <input
                                    class="input"
                                    id="commit-name"
                                    name="name" required
                                    autocomplete="off"
                                    spellcheck="false"
                                    pattern=escape_regex(&name)
                                    title=format!("Type exactly: {name}")
                                />
                            </div>
                        }
                    })
            }}
            <label class="choice">
                <input type="checkbox" name="cancel" value="true" disabled=off/>
                <span>
                    <b>"Cancel running steps that this change replaces"</b> " "
                    <small>"Otherwise they finish. Their results are discarded either way."</small>
                </span>
            </label>
            <button
                class="button primary wide"
                type="submit"
                disabled=off
                aria-describedby="no-commit-reason"
            >
                "Commit"
            </button>
            <small class="muted" id="no-commit-reason">{move || refusal.get()}</small>
            <ProblemNotice problem=problem_of(commit)/>
            <EquivalentCommands of=move |typed: FormValues| {
                let name = to_type.get().map(|name| typed.or("name", &name));
                vec![
                    api::calls::commit(
                        review.read().review,
                        name.as_deref(),
                        typed.is_checked("cancel")
                    )
                ]
            }/>
        </ActionForm>
    }
    .into_any()
}

/// Escapes a text as a regular expression that matches only this text.
fn escape_regex(text: &str) -> String {
    text.replace('.', "\\.")
}

#[component]
fn VerdictForm(feed: Feed<ReviewView>, begun: RwSignal<String>) -> impl IntoView {
    let review = feed.value();
    let give_verdict = ServerAction::<GiveVerdict>::new();
    let reason = Refused::of(give_verdict).value_or("reason", begun.get_untracked());
    on_success(give_verdict, move |()| {
        begun.set(String::new());
        feed.now();
    });
    let refusal = Memo::new(move |_| review.read().may_review.reason().map(str::to_owned));
    let (busy, problem) = (RwSignal::new(false), RwSignal::new(None::<Problem>));
    let off = move || refusal.read().is_some() || give_verdict.pending().get() || busy.get();
    let needed = Memo::new(move |_| review.read().signature_needed);
    let may_sign = Memo::new(move |_| review.read().may_sign);
    let area = NodeRef::<html::Textarea>::new();
    let sign = move |_| {
        let reason = area.get_untracked().map(|area| area.value()).unwrap_or_default();
        let id = review.read_untracked().review;
        act(busy, problem, approved(id, reason), move |()| {
            begun.set(String::new());
            if let Some(area) = area.try_get_untracked().flatten() {
                area.set_value("");
            }
            feed.now();
        });
    };
    let mine = Memo::new(move |_| {
        review.read().verdicts.iter().find(|verdict| verdict.counts && verdict.own).cloned()
    });
    let is_next = move || !off() && mine.read().is_none();
    let text = move || {
        mine.get().map(|verdict| {
            let text = match verdict.kind {
                VerdictKind::Approve => "You approved this ",
                VerdictKind::RequestChanges => "You requested changes ",
                VerdictKind::Reject => "You rejected this ",
            };
            view! { <p>{text} <TimeText at=verdict.at/> ". Your newest verdict counts."</p> }
        })
    };
    view! {
        <ActionForm action=give_verdict attr:class="padded actions">
            <input type="hidden" name="review" value=move || review.read().review.0.to_string()/>
            <div class="field">
                <label for="verdict-reason">"Your verdict"</label>
                <textarea
                    class="area"
                    id="verdict-reason"
                    name="reason"
                    node_ref=area required
                    maxlength=limits::VERDICT_REASON
                    disabled=off
                    placeholder="Reason (optional for an approval)"
                    on:input=move |event| begun.set(event_target_value(&event))
                >
                    {escape_textarea(reason)}
                </textarea>
            </div>
            {move || text()}
            {move || {
                let approve = move || view! {
                    <button
                        class="button wide"
                        class:primary=move || is_next() && !needed.get()
                        type="submit"
                        name="kind"
                        value="approve" formnovalidate
                        disabled=move || off() || needed.get()
                        aria-describedby="no-review-reason"
                    >
                        {icon(Icon::Check)}
                        "Approve"
                    </button>
                };
                let signed = move || view! {
                    <button
                        class="button wide needs-scripts"
                        class:primary=move || is_next() && needed.get()
                        class:quiet=move || !needed.get()
                        type="button"
                        disabled=off
                        aria-describedby="no-review-reason"
                        on:click=sign
                    >
                        {icon(Icon::Check)}
                        "Approve and sign"
                    </button>
                };
                match (needed.get(), may_sign.get()) {
                    (false, false) => approve().into_any(),
                    (false, true) => view! { {approve()} {signed()} }.into_any(),
                    (true, true) => view! {
                        {signed()}
                        <p class="no-scripts muted">
                            "Approvals of this change must be signed with a passkey, which \
                             requires JavaScript."
                        </p>
                    }
                    .into_any(),
                    (true, false) => view! {
                        {approve()}
                        {refusal.read().is_none().then(|| view! {
                            <p class="muted">
                                "Approvals of this change must be signed, and you have no \
                                 confirmed passkey. Register one in "
                                <a href=format!("{}#{PASSKEYS_ID}", addresses::ACCOUNT)>
                                    "My account"
                                </a>
                                "."
                            </p>
                        })}
                    }
                    .into_any(),
                }
            }}
            <div class="buttons even">
                <button
                    class="button"
                    type="submit"
                    name="kind"
                    value="request_changes"
                    disabled=off
                >
                    "Request changes"
                </button>
                <button class="button danger" type="submit" name="kind" value="reject" disabled=off>
                    "Reject"
                </button>
            </div>
            <small class="muted" id="no-review-reason">
                {move || refusal.get().map(|cause| sentence(&capitalize(&cause)))}
            </small>
            <ProblemNotice problem=problem_of(give_verdict)/>
            <ProblemNotice problem=problem/>
            <EquivalentCommands of=move |typed: FormValues| {
                let (id, reason) = (review.read().review, typed.get("reason"));
                let cause = typed.or("reason", "WHY");
                vec![
                    api::calls::verdict(id, VerdictKind::Approve, &reason),
                    api::calls::verdict(id, VerdictKind::RequestChanges, &cause),
                    api::calls::verdict(id, VerdictKind::Reject, &cause),
                ]
            }/>
        </ActionForm>
    }
    .into_any()
}

/// Approves with a signature by the reader's passkey.
async fn approved(id: ReviewId, reason: String) -> ServerResult<()> {
    let request = verdict_options(id, VerdictKind::Approve).await?;
    let answer = passkey::get(request.options).await.map_err(refused)?;
    let signature = Signature { nonce: request.nonce, answer };
    sign_verdict(id, VerdictKind::Approve, reason, signature).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_text_splits_off_who_can_act() {
        assert_eq!(
            split_rule_text("1 of 2 approvals. 1 more needed. Can act: bo"),
            ("1 of 2 approvals. 1 more needed.".into(), Some("Can act: bo".into()))
        );
        assert_eq!(split_rule_text("No objections"), ("No objections".into(), None));
    }

    #[test]
    fn typed_name_must_match_exactly() {
        assert_eq!(escape_regex("web.v2-a"), "web\\.v2-a");
    }
}
