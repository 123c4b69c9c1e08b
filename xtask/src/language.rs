//! The language check: counts stilted phrases in documentation, comments, strings and test names.
//!
//! Each area has an allowance in `language.toml`. A phrase above the allowance fails the check, and
//! so does an allowance above the number found. So the numbers can only shrink. A phrase is a
//! symptom: rewrite the sentence, do not just replace the word.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use anyhow::{Context as _, bail};
use regex::Regex;

use crate::command::Step;
use crate::tree::Tree;

/// Phrases to avoid, and the advice for each. The patterns apply to the text of one paragraph,
/// comment or string.
const PHRASES: [(&str, &str); 11] = [
    (r"(?i)\b(?:whoever|whatever|whichever|wherever|whomever)\b", "name the person or thing"),
    (r"(?i)\b(?:nobody|somebody|anybody|everybody)\b", "use `no one`, `someone` or a noun"),
    (
        r"(?i)\b(?:anew|amid|lest|for ever|shall|thereof|whereupon|beside|nought|hither)\b",
        "archaic",
    ),
    (
        r"\bthat (?:there (?:is|are)|(?:is|are) there)\b|\bis none\b",
        "use `exists` or `there is no`",
    ),
    (r"\bbehind (?:it|this|that|them|what|the|its|their)\b", "use `after`"),
    (r"\bby (?:REST|curl|SSH|a token|a page|a one-time link)\b", "use `via`, `over` or `with`"),
    (r"(?:^|[.;:|] )Of (?:[abd-z]|c[a-np-z])\w*", "do not open a sentence with `Of`"),
    (r"\b(?:of|for|by|with|from|than|is|are|like) what\b", "use a noun"),
    (r"[,;|(.] ?[Ee]lse [a-z]", "use `otherwise` or a sentence of its own"),
    (r"\b(?:goes on|went on|comes? along|comes? to its end|lies in)\b", "use the plain verb"),
    (r"\b(?:is|are|was|were) (?:told|said|meant|wanted|asked)\b", "use `reported` or `required`"),
];

/// The kinds of text that have an allowance each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Area {
    Docs,
    Comments,
    Strings,
    Tests,
}

impl Area {
    const ALL: [Self; 4] = [Self::Docs, Self::Comments, Self::Strings, Self::Tests];

    const fn name(self) -> &'static str {
        match self {
            Self::Docs => "docs",
            Self::Comments => "comments",
            Self::Strings => "strings",
            Self::Tests => "tests",
        }
    }
}

/// A piece of text and the line on which it starts.
#[derive(Debug, PartialEq, Eq)]
struct Text {
    area: Area,
    line: usize,
    text: String,
}

/// Compares the phrases of all tracked files with the allowances.
///
/// # Errors
/// If an area has more or fewer phrases than its allowance. The message lists them.
pub(crate) fn check(tree: &Tree) -> anyhow::Result<()> {
    let listed = Step::new(tree, "git").args(["ls-files", "*.md", "*.rs", "*.mjs"]).output()?;
    let mut found: BTreeMap<Area, Vec<String>> = BTreeMap::new();
    for name in listed.lines().filter(|name| *name != "xtask/src/language.rs") {
        let Ok(content) = fs::read_to_string(tree.path(name)) else { continue };
        for text in texts(Path::new(name), &content) {
            for (phrase, advice) in phrases(&text.text) {
                let at = format!("{name}:{}: \"{}\": {advice}", text.line, phrase.trim());
                found.entry(text.area).or_default().push(at);
            }
        }
    }
    compare(&found, &allowances(tree)?)
}

fn allowances(tree: &Tree) -> anyhow::Result<BTreeMap<String, usize>> {
    let content = fs::read_to_string(tree.path("xtask/language.toml"))?;
    toml::from_str(&content).context("xtask/language.toml")
}

fn compare(
    found: &BTreeMap<Area, Vec<String>>,
    allowed: &BTreeMap<String, usize>,
) -> anyhow::Result<()> {
    let mut report = String::new();
    for area in Area::ALL {
        let locations = found.get(&area).map_or(&[][..], Vec::as_slice);
        let allowance = allowed.get(area.name()).copied().unwrap_or_default();
        if locations.len() > allowance {
            writeln!(report, "{} ({}, allowed {allowance}):", area.name(), locations.len())?;
            writeln!(report, "  {}", locations.join("\n  "))?;
        }
        if locations.len() < allowance {
            writeln!(report, "{}: set the allowance to {}.", area.name(), locations.len())?;
        }
    }
    if !report.is_empty() {
        bail!("the language check failed (xtask/language.toml has the allowances):\n{report}");
    }
    Ok(())
}

fn phrases(text: &str) -> impl Iterator<Item = (&str, &'static str)> {
    static COMPILED: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        PHRASES
            .map(|(pattern, advice)| (Regex::new(pattern).expect("a valid pattern"), advice))
            .into()
    });
    COMPILED.iter().flat_map(move |(pattern, advice)| {
        pattern.find_iter(text).map(move |hit| (hit.as_str(), *advice))
    })
}

fn texts(name: &Path, content: &str) -> Vec<Text> {
    match name.extension().and_then(|extension| extension.to_str()) {
        Some("md") => markdown_paragraphs(content),
        Some("mjs") => titles(content),
        _ => rust_texts(content, name.components().any(|part| part.as_os_str() == "tests")),
    }
}

/// Paragraphs of Markdown without code.
fn markdown_paragraphs(content: &str) -> Vec<Text> {
    let mut texts: Vec<Text> = Vec::new();
    let (mut fenced, mut open) = (false, false);
    for (number, line) in (1..).zip(content.lines()) {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced || line.trim().is_empty() || line.starts_with('#') || line.starts_with("    ") {
            open = false;
            continue;
        }
        let line = without_code(line);
        match texts.last_mut() {
            Some(text) if open => text.text = format!("{} {}", text.text, line.trim()),
            _ => texts.push(Text { area: Area::Docs, line: number, text: line.trim().to_owned() }),
        }
        open = true;
    }
    texts
}

fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("X")
}

/// Titles of browser tests.
fn titles(content: &str) -> Vec<Text> {
    static TITLE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r#"\btest\(\s*["'`]([^"'`]*)"#).expect("a valid pattern"));
    let line = |at| 1 + content[..at].matches('\n').count();
    TITLE
        .captures_iter(content)
        .filter_map(|found| found.get(1))
        .map(|title| Text {
            area: Area::Tests,
            line: line(title.start()),
            text: title.as_str().to_owned(),
        })
        .collect()
}

/// Comments, strings and names of tests of a Rust file. Strings of test code are not for users.
fn rust_texts(content: &str, in_tests: bool) -> Vec<Text> {
    static TEST: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"#\[(?:tokio::)?test[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:async )?fn (\w+)")
            .expect("a valid pattern")
    });
    static LITERAL: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r#"(?s)"((?:[^"\\]|\\.)*)""#).expect("a valid pattern"));
    let line = |at: usize| 1 + content[..at].matches('\n').count();
    let mut texts = comments(content);
    texts.extend(TEST.captures_iter(content).filter_map(|found| found.get(1)).map(|name| Text {
        area: Area::Tests,
        line: line(name.start()),
        text: name.as_str().replace('_', " "),
    }));
    if in_tests {
        return texts;
    }
    let production_code =
        content.find("\n#[cfg(test)]\nmod ").map_or(content, |end| &content[..end]);
    // Comments become blanks, so that their quotes open no string.
    let code: String = production_code
        .split_inclusive('\n')
        .map(|line| match line.trim_start().starts_with("//") {
            true => format!("{}\n", " ".repeat(line.len() - 1)),
            false => line.to_owned(),
        })
        .collect();
    texts.extend(LITERAL.captures_iter(&code).filter_map(|found| found.get(1)).map(|literal| {
        let text = literal.as_str().split("\\\n").map(str::trim_start).collect();
        Text { area: Area::Strings, line: line(literal.start()), text }
    }));
    texts
}

/// Blocks of `//` comments without code.
fn comments(content: &str) -> Vec<Text> {
    let mut texts: Vec<Text> = Vec::new();
    let mut open = false;
    for (number, line) in (1..).zip(content.lines()) {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            open = false;
            continue;
        };
        let comment = without_code(comment.trim_start_matches(['/', '!']).trim());
        match texts.last_mut() {
            Some(text) if open => text.text = format!("{} {comment}", text.text),
            _ => texts.push(Text { area: Area::Comments, line: number, text: comment }),
        }
        open = true;
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(name: &str, content: &str) -> Vec<(&'static str, usize, String)> {
        texts(Path::new(name), content)
            .iter()
            .flat_map(|text| {
                phrases(&text.text)
                    .map(|(phrase, _)| (text.area.name(), text.line, phrase.trim().to_owned()))
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    #[test]
    fn phrases_are_found_in_each_kind_of_text() {
        let markdown = "# Whoever\n\nA page for\nwhoever reads. `whoever` is code.\n";
        assert_eq!(hits("a.md", markdown), [("docs", 3, "whoever".to_owned())]);
        let code = "// Planned anew.\nfn f() {\n    g(\"Of nodes, none\");\n}\n";
        let expected = [("comments", 1, "anew".to_owned()), ("strings", 3, "Of nodes".to_owned())];
        assert_eq!(hits("a.rs", code), expected);
        let test = "#[test]\nfn nobody_is_told() {\n    f(\"whoever\");\n}\n";
        assert_eq!(hits("tests/a.rs", test)[0], ("tests", 2, "nobody".to_owned()));
        assert_eq!(hits("tests/a.rs", test).len(), 2, "strings in tests must be ignored");
        let browser = "test(\"a page, else nothing\", async () => {});";
        assert_eq!(hits("a.mjs", browser), [("tests", 1, ", else n".to_owned())]);
    }

    #[test]
    fn allowance_must_equal_the_number_found() {
        let found = BTreeMap::from([(Area::Docs, vec!["a.md:1: x".to_owned()])]);
        let allow = |number| BTreeMap::from([("docs".to_owned(), number)]);
        compare(&found, &allow(1)).expect("an equal number");
        let more = compare(&found, &allow(0)).expect_err("too many").to_string();
        assert!(more.contains("a.md:1: x"), "{more}");
        let fewer =
            compare(&found, &allow(2)).expect_err("fewer findings than allowed").to_string();
        assert!(fewer.contains("set the allowance to 1"), "{fewer}");
    }
}
