//! The text of a changed file, so that reviewers can judge the code that runs.

use api::catalog::{FileChange, FileLine, FileText, LineMark, MAX_FILE_LINES};
use engine::blueprint::difference::Mark;
use engine::counting::{either, many};
use leptos::prelude::*;

use super::viewed;
use crate::addresses;
use crate::components::{Icon, icon};

/// The maximum number of lines of a difference that is expanded initially.
const GLANCE: usize = 40;
/// The size of the box in a wide window: lines, and characters per line.
const BOX_SIZE: (usize, usize) = (24, 100);

/// A row of a table of changes.
pub(super) fn file_row(file: FileChange) -> AnyView {
    let (word, sign) = match file.mark {
        Mark::Added => ("added", "+"),
        Mark::Removed => ("removed", "−"),
        Mark::Changed => ("changed", "~"),
    };
    let whole = [("Full file before", file.old), ("Full file after", file.new)];
    let whole = whole.into_iter().filter_map(|(which, hash)| {
        Some(view! {
            <a class="full-file" href=addresses::script(hash?) target="_blank" rel="noopener">
                {which}
            </a>
        })
    });
    let whole = whole.collect_view();
    let body = match file.text {
        FileText::Lines { lines, cut } => text(&file.name, lines, cut),
        FileText::Binary { old, new } => {
            let sizes: Vec<String> =
                [old, new].into_iter().flatten().map(|bytes| many(bytes, "byte")).collect();
            view! { <span class="muted">"binary file: " {sizes.join(", then ")}</span> }.into_any()
        }
        FileText::NotCompared => {
            view! { <span class="muted">"not compared: too many files for one page"</span> }
                .into_any()
        }
    };
    view! {
        <tr class="value file" data-mark=word>
            <td class="sign">
                <span aria-hidden="true">{sign}</span> <span class="visually-hidden">{word}</span>
            </td>
            <td colspan="2">
                <span class="muted">"file "</span> <code>{file.name}</code> {whole} " " {body}
            </td>
            <td class="thread-cell"></td>
        </tr>
    }
    .into_any()
}

fn text(name: &str, lines: Vec<FileLine>, cut: bool) -> AnyView {
    let count = |mark: LineMark| lines.iter().filter(|line| line.mark == mark).count();
    let (added, removed) = (count(LineMark::Added), count(LineMark::Removed));
    let rest = cut.then(|| {
        view! {
            <p class="file-cut">
                {icon(Icon::Warn)}
                <span>
                    "This comparison is incomplete: it covers the first " {MAX_FILE_LINES}
                    " lines, and long lines are cut. Open the full file to read the rest."
                </span>
            </p>
        }
    });
    if lines.is_empty() {
        return rest.into_any();
    }
    let high: usize =
        lines.iter().map(|line| line.text.chars().count().div_ceil(BOX_SIZE.1).max(1)).sum();
    let scrolls = (high > BOX_SIZE.0).then(|| {
        view! {
            <p class="muted">
                "This box has " <b class="num">{lines.len()}</b>
                {either(lines.len(), " line", " lines")} ". Scroll to its end."
            </p>
        }
    });
    let label = format!("Text of {name}");
    let open = lines.len() <= GLANCE;
    view! {
        {rest}
        <details open=open>
            <summary class="muted num">
                {added} {either(added, " line added, ", " lines added, ")} {removed} " removed"
            </summary>
            <pre class="file-text" tabindex="0" role="group" aria-label=label>
                {lines.into_iter().map(line).collect_view()} {viewed::end()}
            </pre>
            {scrolls}
        </details>
    }
    .into_any()
}

fn line(line: FileLine) -> AnyView {
    let number = line.number.map(|number| number.to_string()).unwrap_or_default();
    let number = view! { <span class="at" aria-hidden="true">{number}</span> };
    match line.mark {
        LineMark::Unchanged => {
            view! { <span class="line">{number} "  " {line.text} "\n"</span> }.into_any()
        }
        LineMark::Added => {
            view! { <ins class="line">{number} "+ " {line.text} "\n"</ins> }.into_any()
        }
        LineMark::Removed => {
            view! { <del class="line">{number} "− " {line.text} "\n"</del> }.into_any()
        }
        LineMark::Gap => view! { <span class="line gap">"…\n"</span> }.into_any(),
    }
}
