//! Unified diffs of the scripts that a comparison changes.

use api::blueprints::Comparison;
use api::catalog::{ContentChange, FileChange, FileLine, FileText, LineMark};
use engine::blueprint::difference::Mark;

use crate::output::plain;

/// The text of all changed scripts. Empty without changed scripts.
pub(crate) fn scripts(whole: &Comparison) -> String {
    let diffs = whole.contents.iter().flat_map(|content| {
        let role = role(whole, content);
        content.files.iter().map(move |file| unified(&role, file))
    });
    diffs.collect()
}

/// The role with these contents.
fn role(whole: &Comparison, content: &ContentChange) -> String {
    let roles = whole.difference.deployments.iter().flat_map(|deployment| &deployment.roles);
    let roles = roles.map(|role| (&role.role, role.contents));
    let noderoles = whole.difference.nodes.iter().flat_map(|node| &node.noderoles);
    let noderoles = noderoles.map(|noderole| (&noderole.noderole.role, noderole.contents));
    let pinned = whole.pins.iter().flat_map(|pin| &pin.roles);
    let pinned = pinned.map(|role| (&role.role, Some(role.contents)));
    let mut all = roles.chain(noderoles).chain(pinned);
    let found = all.find(|(_, sides)| {
        sides.is_some_and(|sides| (sides.old, sides.new) == (Some(content.old), Some(content.new)))
    });
    found.map_or_else(String::new, |(role, _)| format!("{role}/"))
}

fn unified(role: &str, file: &FileChange) -> String {
    let FileText::Lines { lines, cut } = &file.text else { return String::new() };
    let name = plain(&format!("{role}{}", file.name));
    let side = |side: &str, is_absent: bool| match is_absent {
        true => "/dev/null".to_owned(),
        false => format!("{side}/{name}"),
    };
    let (old, new) = (side("a", file.mark == Mark::Added), side("b", file.mark == Mark::Removed));
    let rest = if *cut { "The rest of the script was not compared.\n" } else { "" };
    format!("\n--- {old}\n+++ {new}\n{}{rest}", hunks(lines))
}

fn hunks(lines: &[FileLine]) -> String {
    let (mut text, mut added, mut removed) = (String::new(), 0, 0);
    let is_gap = |line: &FileLine| line.mark == LineMark::Gap;
    for hunk in lines.split(is_gap) {
        let Some(first) = hunk.first() else { continue };
        let number = first.number.map_or(1, i64::from);
        let (old, new) = match first.mark {
            LineMark::Removed => (number, number + added - removed),
            _ => (number + removed - added, number),
        };
        let of = |mark| hunk.iter().map(|line| i64::from(line.mark == mark)).sum::<i64>();
        let (new_lines, old_lines) = (of(LineMark::Added), of(LineMark::Removed));
        let same = of(LineMark::Unchanged);
        let range = |start: i64, count: i64| match count {
            0 => format!("{},0", start - 1),
            count => format!("{start},{count}"),
        };
        let (old, new) = (range(old, same + old_lines), range(new, same + new_lines));
        text += &format!("@@ -{old} +{new} @@\n");
        for line in hunk {
            let sign = match line.mark {
                LineMark::Added => '+',
                LineMark::Removed => '-',
                LineMark::Unchanged | LineMark::Gap => ' ',
            };
            text += &format!("{sign}{}\n", line.text);
        }
        added += new_lines;
        removed += old_lines;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(mark: LineMark, number: u32, text: &str) -> FileLine {
        FileLine { mark, number: Some(number), text: text.to_owned() }
    }

    #[test]
    fn changed_lines_are_in_hunks() {
        let lines = [
            line(LineMark::Unchanged, 1, "a"),
            line(LineMark::Removed, 2, "b"),
            line(LineMark::Added, 2, "c"),
            line(LineMark::Added, 3, "d"),
            FileLine { mark: LineMark::Gap, number: None, text: String::new() },
            line(LineMark::Removed, 20, "x"),
            line(LineMark::Unchanged, 21, "y"),
        ];
        assert_eq!(hunks(&lines), "@@ -1,2 +1,3 @@\n a\n-b\n+c\n+d\n@@ -20,2 +21,1 @@\n-x\n y\n");
        assert_eq!(hunks(&[line(LineMark::Added, 1, "a")]), "@@ -0,0 +1,1 @@\n+a\n");
    }
}
