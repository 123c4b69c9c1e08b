//! Uses another version of a barclamp.

use api::console::VersionChoice;
use engine::Hash;
use engine::plan::Edit;
use leptos::prelude::*;

use super::desk::Desk;
use crate::pages::edits::{Outcome, PutIn, Wish};
use crate::parts::{Icon, icon};

#[component]
pub(super) fn UseVersion(desk: Desk, taken: Callback<()>) -> impl IntoView {
    let chosen = RwSignal::new(None::<Hash>);
    let choice = move || {
        let hash = chosen.get()?;
        desk.board().read().versions.iter().find(|choice| choice.hash == hash).cloned()
    };
    let wish = Wish::new(desk.pen(), move || {
        let deployment = desk.board().read().id;
        let using =
            |choice: VersionChoice| Edit::UseBarclamp { deployment, barclamp: choice.barclamp, version: choice.hash };
        choice().map(using).into_iter().collect()
    });
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
                    <input type="radio" name="version" value=hash.to_string() disabled=choice.using on:change=move |_| chosen.set(Some(hash))/>
                    <span>
                        <b>{choice.barclamp.to_string()}</b> " " {choice.version.clone()} " " <code>{hash.short()}</code> " " {using}
                        {lacks}
                    </span>
                </label>
            </li>
        }
    };
    let versions = Memo::new(move |_| desk.board().read().versions.clone());
    let list = move || match versions.read().is_empty() {
        true => view! { <p class="muted">"The catalog is empty."</p> }.into_any(),
        false => view! { <ul class="choices">{versions.get().into_iter().map(line).collect_view()}</ul> }.into_any(),
    };
    view! {
        <form
            class="form"
            on:submit=move |event| {
                event.prevent_default();
                let Some(choice) = untrack(choice) else { return };
                wish.put(format!("{} {} is used by the proposal. Control Z takes it back.", choice.barclamp, choice.version), taken);
            }
        >
            <div class="body">
                <p class="muted">"What is bound here takes on the version’s contents, and what changed runs again. Importing a version alone changes nothing."</p>
                {list}
                <Outcome of=wish/>
            </div>
            <div class="foot"><PutIn of=wish/></div>
        </form>
    }
    .into_any()
}
