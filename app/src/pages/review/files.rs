//! The text of a file that another version has otherwise: what runs is judged by what it says.

use api::console::{FILE_LINES, FileChange, FileLine, FileText, LineMark};
use engine::blueprint::difference::Mark;
use leptos::prelude::*;

use crate::parts::{Icon, icon};
use crate::places;

/// Lines of a difference that is shown unfolded.
const GLANCE: usize = 40;

/// A row of a table of changes.
pub(super) fn file_row(file: FileChange) -> AnyView {
    let (word, sign) = match file.mark {
        Mark::Added => ("added", "+"),
        Mark::Removed => ("removed", "−"),
        Mark::Changed => ("changed", "~"),
    };
    let whole = [("before", file.old), ("after", file.new)];
    let whole = whole.into_iter().filter_map(|(when, hash)| {
        let hash = hash?;
        Some(view! { " " <a href=places::script(hash) target="_blank" rel="noopener">{format!("whole, {when}")}</a> })
    });
    let whole = whole.collect_view();
    let body = match file.text {
        FileText::Lines { lines, cut } => text(&file.name, lines, cut),
        FileText::Binary { old, new } => {
            let sizes: Vec<String> = [old, new].into_iter().flatten().map(|bytes| format!("{bytes} bytes")).collect();
            view! { <span class="muted">"is no text: " {sizes.join(", then ")}</span> }.into_any()
        }
        FileText::Left => {
            view! { <span class="muted">"is not compared: there are too many files for a page"</span> }.into_any()
        }
    };
    view! {
        <tr class="value file" data-mark=word>
            <td class="sign"><span aria-hidden="true">{sign}</span><span class="unseen">{word}</span></td>
            <td colspan="2"><span class="muted">"file "</span><code>{file.name}</code> {whole} " " {body}</td>
            <td class="talks"></td>
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
                <span>"Not all of it is here: compared are its first " {FILE_LINES} " lines, and long lines are cut. Read the whole file."</span>
            </p>
        }
    });
    if lines.is_empty() {
        return rest.into_any();
    }
    let label = format!("Text of {name}");
    let open = lines.len() <= GLANCE;
    view! {
        {rest}
        <details open=open>
            <summary class="muted num">{added} {if added == 1 { " line added, " } else { " lines added, " }} {removed} " removed"</summary>
            <pre class="file-text" tabindex="0" role="region" aria-label=label>{lines.into_iter().map(line).collect_view()}</pre>
        </details>
    }
    .into_any()
}

fn line(line: FileLine) -> AnyView {
    let number = line.number.map(|number| number.to_string()).unwrap_or_default();
    let number = view! { <span class="at" aria-hidden="true">{number}</span> };
    match line.mark {
        LineMark::Kept => view! { <span class="line">{number} "  " {line.text} "\n"</span> }.into_any(),
        LineMark::Added => view! { <ins class="line">{number} "+ " {line.text} "\n"</ins> }.into_any(),
        LineMark::Removed => view! { <del class="line">{number} "− " {line.text} "\n"</del> }.into_any(),
        LineMark::Gap => view! { <span class="line gap">"…\n"</span> }.into_any(),
    }
}
