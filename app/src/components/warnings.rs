//! Warnings for reviewers about risks that are hard to see: scripts with hidden characters, the
//! parts that a restore leaves out, and authors who overrule each other.

use api::catalog::{HiddenCharacters, HiddenCharactersScript, TextPosition};
use api::proposals::{ClashView, NotRestored};
use engine::text::REVIEW_ADVICE;
use leptos::prelude::*;

use super::icon::{Icon, icon};
use crate::addresses;

/// The number of lines that are visible without expanding.
const GLANCE: usize = 8;

/// The scripts with hidden characters that this change starts to use. Nothing if there are none.
pub fn hidden_characters(found: &HiddenCharacters) -> AnyView {
    if found.is_empty() {
        return ().into_any();
    }
    let title = match found.scripts.len() + found.more {
        1 => {
            "A newly used script has hidden characters, so it does not run as displayed".to_owned()
        }
        n => format!(
            "{n} newly used scripts have hidden characters, so they do not run as displayed"
        ),
    };
    let advice = "Gantry displays such characters as codes, such as <U+202E>. ";
    notice(title, scripts(found), view! { <p>{advice} {REVIEW_ADVICE} "."</p> }.into_any())
}

/// As [`hidden_characters`], collapsed, for a version in a list.
pub fn hidden_characters_in_version(found: &HiddenCharacters) -> AnyView {
    if found.is_empty() {
        return ().into_any();
    }
    let text = match found.scripts.len() + found.more {
        1 => "1 script has hidden characters, so it does not run as displayed".to_owned(),
        n => format!("{n} scripts have hidden characters, so they do not run as displayed"),
    };
    view! {
        <details class="warning-list">
            <summary><span class="pill" data-state="warn">{icon(Icon::Warn)} {text}</span></summary>
            <ul tabindex="0" aria-label="Scripts">{scripts(found)}</ul>
        </details>
    }
    .into_any()
}

/// The parts that a restoring proposal leaves out.
pub fn not_restored(found: NotRestored) -> AnyView {
    let NotRestored { blueprint: target, missing, more } = found;
    let title = match missing.len() + more {
        1 => format!("1 part of blueprint {target} is left out, because it cannot be restored"),
        n => {
            format!("{n} parts of blueprint {target} are left out, because they cannot be restored")
        }
    };
    let lines: Vec<AnyView> =
        missing.into_iter().map(|line| view! { <li>{line}</li> }.into_any()).collect();
    notice(title, with_more(lines, more), ().into_any())
}

/// Edits of one author that overrule another's: both edits and their subject. The later edit
/// applies.
pub fn clashes(found: &[ClashView]) -> AnyView {
    if found.is_empty() {
        return ().into_any();
    }
    let count = found.len();
    let title = match count {
        1 => "Edits of two authors clash".to_owned(),
        n => format!("Edits of different authors clash {n} times"),
    };
    let line = |conflict: &ClashView| {
        let ClashView { earlier, earlier_by, later, later_by, subject, .. } = conflict.clone();
        view! {
            <li>
                <b>{subject}</b> ": edit " {later} " by " <b>{later_by}</b> " overrides edit "
                {earlier} " by " <b>{earlier_by}</b>
                ". The later edit applies."
            </li>
        }
        .into_any()
    };
    let lines = found.iter().take(GLANCE).map(line).collect();
    let more = count.saturating_sub(GLANCE);
    notice(title, with_more(lines, more), ().into_any())
}

fn scripts(found: &HiddenCharacters) -> Vec<AnyView> {
    let line = |script: &HiddenCharactersScript| {
        let HiddenCharactersScript { barclamp, role, file, hash, at, description } = script.clone();
        let TextPosition { line, column } = at;
        let (owner, place) = (format!("{role} of {barclamp}, "), format!("{file}:{line}:{column}"));
        view! {
            <li>
                {owner}
                <a href=addresses::script(hash) target="_blank" rel="noopener">
                    <code>{place}</code>
                </a>
                ": " {description}
            </li>
        }
        .into_any()
    };
    with_more(found.scripts.iter().map(line).collect(), found.more)
}

fn with_more(mut lines: Vec<AnyView>, more: usize) -> Vec<AnyView> {
    if more > 0 {
        lines.push(view! { <li>{format!("and {more} more")}</li> }.into_any());
    }
    lines
}

fn notice(title: String, lines: Vec<AnyView>, advice: AnyView) -> AnyView {
    let open = lines.len() <= GLANCE;
    view! {
        <div class="notice warning-list" data-state="warn" role="status">
            {icon(Icon::Warn)}
            <div>
                <details open=open>
                    <summary><b>{title}</b></summary>
                    <ul tabindex="0" aria-label="Details">{lines}</ul>
                </details>
                {advice}
            </div>
        </div>
    }
    .into_any()
}
