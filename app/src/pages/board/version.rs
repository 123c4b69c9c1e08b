//! Uses another version of a barclamp: what that comes to is shown before it is taken.

use api::console::{Foreseen, VersionChoice};
use engine::Hash;
use engine::plan::Edit;
use leptos::prelude::*;

use super::desk::Desk;
use crate::calls;
use crate::parts::{Dialog, DialogHandle, Icon, ProblemNotice, act, icon};

#[component]
pub(super) fn UseVersion(desk: Desk, handle: DialogHandle) -> impl IntoView {
    let chosen = RwSignal::new(None::<Hash>);
    let foreseen = RwSignal::new(None::<Foreseen>);
    let (busy, problem) = (RwSignal::new(false), RwSignal::new(None));
    let edit = move || {
        let hash = chosen.get_untracked()?;
        let board = desk.board().read_untracked();
        let choice = board.versions.iter().find(|choice| choice.hash == hash)?;
        let (deployment, barclamp) = (board.id, choice.barclamp.clone());
        Some((Edit::UseBarclamp { deployment, barclamp, version: hash }, choice.clone()))
    };
    let choose = move |hash: Hash| {
        chosen.set(Some(hash));
        foreseen.set(None);
        let proposal = desk.proposal().read_untracked().as_ref().map(|proposal| proposal.id);
        let Some(((edit, _), proposal)) = edit().zip(proposal) else { return };
        act(busy, problem, calls::foresee(proposal, vec![edit]), move |found| {
            // An answer about another choice comes too late.
            if chosen.get_untracked() == Some(hash) {
                foreseen.set(Some(found));
            }
        });
    };
    let ready = move || foreseen.read().as_ref().is_some_and(|found| found.refused.is_empty());
    let line = move |choice: VersionChoice| {
        let hash = choice.hash;
        let using =
            choice.using.then(|| view! { <span class="pill" data-state="active">{icon(Icon::Check)} "in use"</span> });
        let lacks = (!choice.lacks.is_empty()).then(|| {
            let lines = choice.lacks.iter().map(|line| view! { <li>{line.clone()}</li> }).collect_view();
            view! { <small>"Has no longer:"</small> <ul class="lacks">{lines}</ul> }
        });
        view! {
            <li>
                <label class="choice">
                    <input type="radio" name="version" value=hash.to_string() disabled=choice.using on:change=move |_| choose(hash)/>
                    <span>
                        <b>{choice.barclamp.to_string()}</b> " " {choice.version.clone()} " " <code>{hash.short()}</code> " " {using}
                        {lacks}
                    </span>
                </label>
            </li>
        }
    };
    let list = move || {
        let versions = desk.board().read().versions.clone();
        match versions.is_empty() {
            true => view! { <p class="muted">"The catalog is empty."</p> }.into_any(),
            false => view! { <ul class="choices">{versions.into_iter().map(line).collect_view()}</ul> }.into_any(),
        }
    };
    let consequence = move || {
        let found = foreseen.get()?;
        if !found.refused.is_empty() {
            let lines = found.refused.into_iter().map(|line| view! { <li>{line}</li> }).collect_view();
            return Some(view! { <div class="notice" data-state="error">{icon(Icon::Error)} <div><b>"It can’t be used here"</b> <ul>{lines}</ul></div></div> }.into_any());
        }
        let lines = found.lines.into_iter().map(|line| view! { <li>{line}</li> }).collect_view();
        Some(view! { <div class="notice" data-state="todo">{icon(Icon::Review)} <div><b>"With this the proposal comes to"</b> <ul>{lines}</ul></div></div> }.into_any())
    };
    view! {
        <Dialog
            id="use-version"
            title="Use a version".to_owned()
            handle=handle
            closed=Callback::new(move |()| {
                chosen.set(None);
                foreseen.set(None);
                problem.set(None);
            })
        >
            <form
                class="form"
                on:submit=move |event| {
                    event.prevent_default();
                    let Some((edit, choice)) = edit().filter(|_| untrack(ready)) else { return };
                    desk.edit(vec![edit], format!("{} {} is used by the proposal. Control Z takes it back.", choice.barclamp, choice.version));
                    handle.close();
                }
            >
                <div class="body">
                    <p class="muted">"What is bound here takes on the version’s contents, and what changed runs again. Importing a version alone changes nothing."</p>
                    {list}
                    <div role="status" aria-live="polite" aria-busy=move || busy.get().to_string()>{consequence}</div>
                    <ProblemNotice problem=problem/>
                </div>
                <div class="foot">
                    <button class="button primary" type="submit" disabled=move || !ready()>"Put into the proposal"</button>
                </div>
            </form>
        </Dialog>
    }
    .into_any()
}
