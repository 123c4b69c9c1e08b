//! Detects characters that make a text look different from its content.
//!
//! A reviewer approves what they see. Invisible characters and characters that change the text
//! direction can hide a name or display `png.exe` as `exe.gnp`. Gantry therefore rejects them in
//! text that users write for others, and points them out where they are allowed (scripts).
//!
//! All layers use this module. Its own table replaces Unicode's property data, which is too large
//! for the browser. A test in `control`, which has the tables, checks that this one covers
//! `Default_Ignorable_Code_Point` and `Bidi_Control`.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

/// Inclusive ranges of characters that are invisible or change the text direction, in ascending
/// order. Also contains characters that most programs show as nothing: line separators other than
/// newlines, the Braille blank, and annotation marks.
const DECEPTIVE_RANGES: [(char, char); 18] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{2800}', '\u{2800}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

/// Whether a character is invisible or makes a text look different from its content. Newlines and
/// tabs do not count.
pub fn is_deceptive(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control() && !matches!(c, '\n' | '\r' | '\t');
    }
    let at = DECEPTIVE_RANGES.partition_point(|(_, last)| *last < c);
    c.is_control() || DECEPTIVE_RANGES.get(at).is_some_and(|(first, _)| *first <= c)
}

/// The first deceptive character.
pub fn deceptive_character(text: &str) -> Option<char> {
    text.chars().find(|c| is_deceptive(*c))
}

/// The text with a full stop, unless it ends like a sentence. The engine's errors have no final
/// full stop; the code that shows or embeds them adds it.
pub fn sentence(text: &str) -> String {
    if text.ends_with(['.', '!', '?']) { text.to_owned() } else { format!("{text}.") }
}

/// The text with a capital first letter.
pub fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().collect::<String>()).unwrap_or_default();
    format!("{first}{}", chars.as_str())
}

/// The code point, such as `U+202E`.
pub fn number(c: char) -> String {
    format!("U+{:04X}", u32::from(c))
}

/// The text for display: each deceptive character is replaced by its code point.
pub fn shown(text: &str) -> Cow<'_, str> {
    if deceptive_character(text).is_none() {
        return Cow::Borrowed(text);
    }
    let escape = |c: char| if is_deceptive(c) { format!("<{}>", number(c)) } else { c.to_string() };
    Cow::Owned(text.chars().map(escape).collect())
}

/// Advice for users about such a text.
pub const REVIEW_ADVICE: &str =
    "Before you approve it, read it with a tool that shows such characters, such as cat -A";

/// The number of deceptive characters in a file, with the position of the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeceptiveText {
    pub first: char,
    /// Line number, starting at 1.
    pub line: u32,
    /// Column in characters, starting at 1.
    pub column: u32,
    pub count: usize,
    /// The first lines that contain such a character.
    lines: Vec<u32>,
    more_lines: bool,
}

impl DeceptiveText {
    /// Searches a file. Returns `None` if it has no such character. If the file is not valid UTF-8,
    /// only the valid parts are checked.
    pub fn within(body: &[u8]) -> Option<Self> {
        const LINES_NAMED: usize = 5;
        if body.iter().all(|byte| byte.is_ascii() && !is_deceptive(char::from(*byte))) {
            return None;
        }
        let text = String::from_utf8_lossy(body);
        let found = text.split('\n').zip(1..).flat_map(|(line, number)| {
            line.chars()
                .zip(1..)
                .filter(|(c, _)| is_deceptive(*c))
                .map(move |(c, column)| (c, number, column))
        });
        let mut found = found.peekable();
        let (first, line, column) = found.peek().copied()?;
        let (mut count, mut lines) = (0, BTreeSet::new());
        for (_, line, _) in found {
            count += 1;
            if lines.len() <= LINES_NAMED {
                lines.insert(line);
            }
        }
        let more_lines = lines.len() > LINES_NAMED;
        let lines = lines.into_iter().take(LINES_NAMED).collect();
        Some(Self { first, line, column, count, lines, more_lines })
    }
}

/// Completes a sentence that starts with "the script has".
impl fmt::Display for DeceptiveText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the character {}, which is invisible or misleading", number(self.first))?;
        if self.count == 1 {
            return Ok(());
        }
        let named: Vec<String> = self.lines.iter().map(ToString::to_string).collect();
        let more = if self.more_lines { " and more" } else { "" };
        write!(f, ". It has {} such characters, in lines {}{more}", self.count, named.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_becomes_a_sentence() {
        let shown = |text| sentence(&capitalize(text));
        assert_eq!(shown("you wrote part of it"), "You wrote part of it.");
        assert_eq!(shown("Ask."), "Ask.");
    }

    #[test]
    fn sentence_ends_with_one_mark() {
        for (text, shown) in [
            ("Choose one", "Choose one."),
            ("Done.", "Done."),
            ("Did you mean \"a\"?", "Did you mean \"a\"?"),
        ] {
            assert_eq!(sentence(text), shown);
        }
    }

    #[test]
    fn deceptive_characters_are_located_and_counted() {
        let found = |text: &str| DeceptiveText::within(text.as_bytes());
        assert_eq!(found("#!/bin/sh\n\u{e4}\n"), None);
        let one = found("#!/bin/sh\n\u{e4}\u{202e}x\n").unwrap();
        assert_eq!((one.line, one.column, one.count), (2, 2, 1));
        assert!(
            one.to_string().ends_with("the character U+202E, which is invisible or misleading")
        );
        let many = found(&"\u{200b}\n".repeat(9)).unwrap().to_string();
        assert!(
            many.ends_with(". It has 9 such characters, in lines 1, 2, 3, 4, 5 and more"),
            "{many}"
        );
    }

    #[test]
    fn deceptive_ranges_are_ordered() {
        assert!(DECEPTIVE_RANGES.iter().all(|(first, last)| first <= last));
        assert!(DECEPTIVE_RANGES.windows(2).all(|pair| pair[0].1 < pair[1].0));
    }

    #[test]
    fn visible_text_is_unchanged() {
        for text in [
            "a\tb\r\n",
            "e\u{301}",
            "नमस्ते",
            "العربية",
            "😀",
            "한국",
            "a\u{a0}b",
            "→ ✓ –",
            "\u{fffd}",
        ] {
            assert_eq!(deceptive_character(text), None, "{text:?}");
            assert_eq!(shown(text), text);
        }
        for c in [
            '\0',
            '\u{1b}',
            '\u{7f}',
            '\u{85}',
            '\u{ad}',
            '\u{200b}',
            '\u{202e}',
            '\u{2069}',
            '\u{e0041}',
        ] {
            assert_eq!(deceptive_character(&format!("a{c}b")), Some(c));
        }
        assert_eq!(shown("lmy.\u{202e}a"), "lmy.<U+202E>a");
    }
}
