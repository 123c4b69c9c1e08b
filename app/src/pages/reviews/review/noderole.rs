//! The scripts and the effective values of a noderole in a review, loaded when its section is
//! opened. Each value has its source, before and after the change.

use api::reviews::{ReviewedNoderole, ReviewedScript, ReviewedValue};
use engine::cluster::NoderoleKey;
use engine::counting::many;
use engine::ids::{NodeId, ReviewId};
use leptos::prelude::*;
use wasm_bindgen::JsCast;

use super::server_functions::reviewed_noderole;
use crate::addresses;
use crate::components::{Feed, ProblemNotice};

/// The closed section in the row of a noderole.
pub(super) fn section(review: ReviewId, node: NodeId, key: NoderoleKey) -> AnyView {
    let place = addresses::reviewed_noderole(review, node, &key);
    let feed = Feed::new(None::<ReviewedNoderole>, move || {
        let key = key.clone();
        async move { reviewed_noderole(review, node, key).await.map(Some) }
    });
    let (found, problem) = (feed.value(), feed.problem());
    let load = move |event: leptos::ev::Event| {
        let section = event.target().and_then(|it| it.dyn_into::<web_sys::Element>().ok());
        if found.read_untracked().is_some() || !section.is_some_and(|it| it.has_attribute("open")) {
            return;
        }
        feed.now();
    };
    let body = move || {
        found.get().map(|first| {
            view! {
                <Transition fallback=|| view! { <p class="muted" role="status">"Loading"</p> }>
                    {
                        let first = first.clone();
                        move || Suspend::new(super::reviewed_noderole::shown(first.clone()))
                    }
                </Transition>
            }
        })
    };
    view! {
        <details class="runs-with needs-scripts" on:toggle=load>
            <summary class="muted">"Values and scripts"</summary>
            <ProblemNotice problem retry=feed.retry()/>
            {body}
        </details>
        <a class="no-scripts" href=place rel="external">"Values and scripts as JSON"</a>
    }
    .into_any()
}

/// The content of an opened section.
pub(crate) fn opened(first: ReviewedNoderole) -> AnyView {
    let left_out = first.all - first.values.len();
    let ReviewedNoderole { values, check, scripts, more_scripts, .. } = first;
    let table = match values.is_empty() {
        true => view! { <p class="muted">"No values."</p> }.into_any(),
        false => view! {
            <table class="table responsive">
                <thead>
                    <tr>
                        <th scope="col">"Path"</th> <th scope="col">"Value"</th>
                        <th scope="col">"Source"</th>
                    </tr>
                </thead>
                <tbody>{values.into_iter().map(value_row).collect_view()}</tbody>
            </table>
        }
        .into_any(),
    };
    let none = scripts
        .is_empty()
        .then(|| view! { <p class="muted">"No scripts: nothing runs on the node."</p> });
    view! {
        <h4>"Effective values"</h4>
        {table}
        {(left_out > 0).then(|| view! {
            <p class="muted">{many(left_out, "more value")} " not shown."</p>
        })}
        {check.map(|check| view! { <p>"Check: " {check}</p> })}
        <h4>"Scripts"</h4>
        {none}
        {scripts.into_iter().map(script).collect_view()}
        {(more_scripts > 0).then(|| view! {
            <p class="muted">{many(more_scripts, "more script")} " not shown."</p>
        })}
    }
    .into_any()
}

fn value_row(value: ReviewedValue) -> impl IntoView {
    let ReviewedValue { path, before, after, changed, source } = value;
    let shown = match changed {
        false => view! { <code>{after.or(before)}</code> }.into_any(),
        true => view! {
            {before.map(|old| view! {
                <del><span class="visually-hidden">"before: "</span> {old}</del> " "
            })}
            {after.map(|new| view! {
                <ins><span class="visually-hidden">"after: "</span> {new}</ins>
            })}
        }
        .into_any(),
    };
    view! {
        <tr>
            <td data-label="Path"><code>{path}</code></td>
            <td data-label="Value">{shown}</td>
            <td data-label="Source" class="muted">{source}</td>
        </tr>
    }
}

fn script(script: ReviewedScript) -> impl IntoView {
    let ReviewedScript { name, action, hash, text } = script;
    let label = format!("Text of {name}");
    let whole = view! {
        <a class="full-file" href=addresses::script(hash) target="_blank" rel="noopener">
            "Full file"
        </a>
    };
    let action = (!action.is_run()).then(|| format!(" ({action})"));
    let text = match text {
        Some(text) => {
            view! { <pre class="file-text" tabindex="0" role="group" aria-label=label>{text}</pre> }
                .into_any()
        }
        None => {
            view! { <p class="muted">"Binary, or too long for this page. Open the full file."</p> }
                .into_any()
        }
    };
    view! { <div class="script"><p><code>{name}</code> {action} " " {whole}</p> {text}</div> }
}
