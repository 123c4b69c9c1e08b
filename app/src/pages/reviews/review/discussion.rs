//! The discussion of a review: threads on parts of the change, and all verdicts. An open thread
//! blocks the commit.

use api::limits;
use api::reviews::{Discussion, ReviewView, ThreadResolution, ThreadView, VerdictView};
use engine::blueprint::Anchor;
use engine::gate::VerdictKind;
use leptos::form::ActionForm;
use leptos::prelude::*;

use super::server_functions::{OpenThread, Reply, ResolveThread};
use crate::addresses;
use crate::clock::TimeText;
use crate::components::action::{on_success, problem_of};
use crate::components::{EquivalentCommands, Feed, FormValues, Icon, ProblemNotice, icon, rows};

/// Threads and verdicts. `about` is the change for a new thread.
pub(crate) fn discussion(
    review: Feed<ReviewView>,
    discussion: Feed<Discussion>,
    about: Memo<Option<Anchor>>,
) -> impl IntoView {
    let threads = Memo::new(move |_| discussion.value().read().threads.clone());
    let none = move || {
        let none = threads.read().is_empty();
        none.then(|| {
            view! {
                <p class="padded muted">
                    "No threads yet. An open thread blocks the commit until the person who opened \
                     it, or another reviewer, resolves it."
                </p>
            }
        })
    };
    let verdicts = Memo::new(move |_| review.value().read().verdicts.clone());
    view! {
        <ProblemNotice problem=discussion.problem() retry=discussion.retry()/>
        <section class="card" aria-label="Threads">
            <header>
                <h2>"Threads"</h2>
                <span class="muted">{move || discussion.value().read().open} " open"</span>
            </header>
            {move || none()}
            <ul class="threads">
                {rows(threads.into(), |thread| thread.id, move |thread| view! {
                    <Thread thread review discussion/>
                })}
            </ul>
            <NewThread review discussion about/>
        </section>
        <Verdicts verdicts/>
    }
    .into_any()
}

#[component]
fn Thread(
    thread: Memo<ThreadView>,
    review: Feed<ReviewView>,
    discussion: Feed<Discussion>,
) -> impl IntoView {
    let first = thread.read_untracked();
    let (id, review_id) = (first.id, first.review);
    drop(first);
    let resolve = ServerAction::<ResolveThread>::new();
    on_success(resolve, move |()| {
        discussion.now();
        review.now();
    });
    let reply = ServerAction::<Reply>::new();
    let text = RwSignal::new(String::new());
    on_success(reply, move |_| {
        text.set(String::new());
        discussion.now();
    });
    let is_open = Memo::new(move |_| thread.read().resolved.is_none());
    let may_write = Memo::new(move |_| discussion.value().read().may_write.is_allowed());
    let state = move || match thread.read().resolved.clone() {
        None => view! { <span class="pill" data-state="warn">{icon(Icon::Todo)} "open"</span> }
            .into_any(),
        Some(ThreadResolution { by, at }) => view! {
            <span class="pill" data-state="active">{icon(Icon::Check)} "resolved"</span>
            <span class="muted">"by " {by} ", " <TimeText at/></span>
        }
        .into_any(),
    };
    let gone = move || {
        (!thread.read().current)
            .then(|| view! { <span class="pill flat">"change not in this version"</span> })
    };
    let earlier =
        move || {
            let now = discussion.value().read().review;
            (review_id != now).then(|| view! {
            <span class="muted">
                "opened on " <a href=addresses::review(review_id)>"review " {review_id.0}</a>
            </span>
        })
        };
    let comments = move || {
        let line = |comment: api::reviews::CommentView| {
            view! {
                <li>
                    <span class="line">
                        <b>{comment.person}</b> <span class="muted"><TimeText at=comment.at/></span>
                    </span>
                    <p class="comment-text"><bdi>{comment.body}</bdi></p>
                </li>
            }
        };
        thread.read().comments.iter().cloned().map(line).collect_view()
    };
    let refusal = Memo::new(move |_| {
        thread.read().may_resolve.reason().map(str::to_owned).filter(|_| is_open.get())
    });
    let reason_id = format!("no-resolve-reason-{id}");
    let field = format!("reply-{id}");
    let label = field.clone();
    let described = reason_id.clone();
    let forms = move || {
        if !may_write.get() {
            return ().into_any();
        }
        let (field, label) = (field.clone(), label.clone());
        let (reason_id, described) = (reason_id.clone(), described.clone());
        let word = move || if is_open.get() { "Resolve" } else { "Reopen" };
        view! {
            <div class="thread-actions">
                {is_open.get().then(|| view! {
                    <ActionForm action=reply attr:class="reply">
                        <input type="hidden" name="thread" value=id.to_string()/>
                        <label class="visually-hidden" for=label>"Reply"</label>
                        <textarea
                            class="area small"
                            id=field
                            name="body"
                            required
                            maxlength=limits::COMMENT
                            placeholder="Reply"
                            prop:value=move || text.get()
                            on:input=move |event| text.set(event_target_value(&event))
                        ></textarea>
                        <button
                            class="button small"
                            type="submit"
                            disabled=move || reply.pending().get()
                        >
                            "Reply"
                        </button>
                    </ActionForm>
                })}
                <ActionForm action=resolve>
                    <input type="hidden" name="thread" value=id.to_string()/>
                    <input type="hidden" name="resolved" value=move || is_open.get().to_string()/>
                    <button
                        class="button small"
                        type="submit"
                        disabled=move || refusal.read().is_some() || resolve.pending().get()
                        aria-describedby=described
                    >
                        {move || word()}
                    </button>
                    <small class="muted" id=reason_id>{move || refusal.get()}</small>
                </ActionForm>
                <ProblemNotice problem=problem_of(reply)/>
                <ProblemNotice problem=problem_of(resolve)/>
                <EquivalentCommands of=move |_: FormValues| {
                    let message = Some(text.get().trim().to_owned())
                        .filter(|message| !message.is_empty())
                        .unwrap_or_else(|| "TEXT".into());
                    let reply = is_open.get().then(|| api::calls::reply(id, &message));
                    reply.into_iter().chain(
                        [api::calls::resolve(id, is_open.get())]
                    ).collect::<Vec<_>>()
                }/>
            </div>
        }
        .into_any()
    };
    view! {
        <li class="thread" class:open=is_open id=format!("thread-{id}") data-thread=id.to_string()>
            <div class="line">
                <b><bdi>{move || thread.read().subject.clone()}</bdi></b>
                {move || state()}
                {move || gone()}
                {move || earlier()}
            </div>
            <ul class="comments">{move || comments()}</ul>
            {move || forms()}
        </li>
    }
    .into_any()
}

#[component]
fn NewThread(
    review: Feed<ReviewView>,
    discussion: Feed<Discussion>,
    about: Memo<Option<Anchor>>,
) -> impl IntoView {
    let open = ServerAction::<OpenThread>::new();
    let text = RwSignal::new(String::new());
    on_success(open, move |_| {
        text.set(String::new());
        discussion.now();
        review.now();
    });
    let refusal =
        Memo::new(move |_| discussion.value().read().may_write.reason().map(str::to_owned));
    let review_id = move || discussion.value().read().review;
    let anchor = move || about.get().unwrap_or(Anchor::Whole);
    let subject = move || match about.get() {
        Some(anchor) => super::changes::words(&review.value().read(), &anchor),
        None => "the whole change".to_owned(),
    };
    let whole = move || {
        about.read().is_some().then(|| {
            let link = format!("{}?tab=discussion", addresses::review(review_id()));
            view! {
                <a class="button quiet small" href=link data-noscroll>
                    "Comment on the whole change"
                </a>
            }
        })
    };
    view! {
        <ActionForm action=open attr:class="padded actions new-thread">
            <input type="hidden" name="review" value=move || review_id().to_string()/>
            <input type="hidden" name="anchor" value=move || anchor().to_string()/>
            <div class="field">
                <label for="new-thread">"Open a thread on " <bdi>{move || subject()}</bdi></label>
                <textarea
                    class="area"
                    id="new-thread"
                    name="body"
                    required
                    maxlength=limits::COMMENT
                    disabled=move || refusal.read().is_some()
                    prop:value=move || text.get()
                    on:input=move |event| text.set(event_target_value(&event))
                ></textarea>
                <span class="hint">
                    "The change can't be committed until the thread is resolved."
                </span>
            </div>
            <div class="buttons">
                <button
                    class="button"
                    type="submit"
                    disabled=move || refusal.read().is_some() || open.pending().get()
                    aria-describedby="no-thread-reason"
                >
                    "Open thread"
                </button>
                {move || whole()}
            </div>
            <small class="muted" id="no-thread-reason">{move || refusal.get()}</small>
            <ProblemNotice problem=problem_of(open)/>
            <EquivalentCommands of=move |typed: FormValues| {
                let about = about.get().map(|anchor| anchor.to_string()).unwrap_or_default();
                vec![api::calls::comment(review_id(), &about, &typed.or("body", "TEXT"))]
            }/>
        </ActionForm>
    }
    .into_any()
}

#[component]
fn Verdicts(verdicts: Memo<Vec<VerdictView>>) -> impl IntoView {
    let line = |verdict: VerdictView| {
        let (color, shape, word) = match verdict.kind {
            VerdictKind::Approve => ("active", Icon::Check, "approved"),
            VerdictKind::RequestChanges => ("warn", Icon::Undo, "requested changes"),
            VerdictKind::Reject => ("error", Icon::Cross, "rejected"),
        };
        view! {
            <li>
                <span class="line">
                    <b>{verdict.person}</b>
                    <span class="pill" data-state=color>{icon(shape)} {word}</span>
                    {verdict.signed.clone().map(|name| view! {
                        <span class="pill flat">"signed with " {name}</span>
                    })}
                    {(!verdict.counts).then(|| view! {
                        <span class="pill flat">"does not count"</span>
                    })}
                    <span class="muted"><TimeText at=verdict.at/></span>
                </span>
                {(!verdict.reason.is_empty()).then(|| view! { <p><bdi>{verdict.reason}</bdi></p> })}
            </li>
        }
    };
    view! {
        <section class="card" aria-label="Verdicts">
            <header><h2>"Verdicts"</h2></header>
            {move || verdicts.read().is_empty().then(|| view! {
                <p class="padded muted">"No verdicts yet."</p>
            })}
            <ul class="verdicts">{move || verdicts.get().into_iter().map(line).collect_view()}</ul>
        </section>
    }
    .into_any()
}
