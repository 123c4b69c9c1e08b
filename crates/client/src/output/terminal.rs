//! Removes control sequences from text for terminals and pipes.
//!
//! Logs, titles and errors come from machines and other people. A terminal executes control
//! sequences in them: it clears the screen, changes its title or types answers. So all output
//! passes [`ControlFilter`]. It removes control sequences (ECMA-48: CSI, OSC, DCS and others), even
//! if pieces split them. It also removes all control characters except line feed and tab. Invisible
//! characters are escaped. The output contains no ESC, so the rest of a broken sequence is plain
//! text.

use engine::text::{is_deceptive, number};

/// Start of bold text.
pub(crate) const BOLD: &str = "\x1b[1m";
pub(crate) const RED: &str = "\x1b[31m";
pub(crate) const GREEN: &str = "\x1b[32m";
pub(crate) const YELLOW: &str = "\x1b[33m";
pub(crate) const CYAN: &str = "\x1b[36m";
/// End of a style.
pub(crate) const PLAIN: &str = "\x1b[0m";

/// The only sequences that this client prints.
const STYLES: [&str; 6] = [BOLD, RED, GREEN, YELLOW, CYAN, PLAIN];

/// Removes control sequences from a text in pieces.
#[derive(Debug, Default)]
pub(crate) struct ControlFilter {
    state: State,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// In a control sequence, before its final byte.
    Sequence,
    /// In a control string, such as a title.
    String,
    /// After ESC in a control string.
    StringEscape,
}

impl ControlFilter {
    /// Filters the next piece.
    pub(crate) fn text(&mut self, piece: &str) -> String {
        let mut text = String::with_capacity(piece.len());
        piece.chars().for_each(|c| self.take(c, &mut text));
        text
    }

    fn take(&mut self, c: char, text: &mut String) {
        self.state = match (self.state, c) {
            // A line feed ends every sequence, so an unfinished one hides at most one line.
            (_, '\n') => {
                text.push('\n');
                State::Text
            }
            // CAN and SUB cancel a sequence.
            (_, '\u{18}' | '\u{1a}') => State::Text,
            (State::StringEscape, '\\') => State::Text,
            (State::String | State::StringEscape, '\u{1b}') => State::StringEscape,
            (State::String, '\u{07}' | '\u{9c}') => State::Text,
            (State::String, _) => State::String,
            (_, '\u{1b}') => State::Escape,
            (_, '\u{9b}') => State::Sequence,
            (_, '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}') => State::String,
            (State::Escape | State::StringEscape, '[') => State::Sequence,
            (State::Escape | State::StringEscape, ']' | 'P' | 'X' | '^' | '_') => State::String,
            // Intermediate bytes between ESC and the final byte.
            (State::Escape | State::StringEscape, ' '..='/') => State::Escape,
            (State::Escape | State::StringEscape, '0'..='~') => State::Text,
            (State::Sequence, ' '..='?') => State::Sequence,
            (State::Sequence, '@'..='~') => State::Text,
            (state @ (State::Sequence | State::Escape), c) if c.is_ascii_control() => state,
            _ => {
                push(c, text);
                State::Text
            }
        };
    }
}

fn push(c: char, text: &mut String) {
    match c {
        '\t' => text.push('\t'),
        c if c.is_control() => {}
        c if is_deceptive(c) => *text += &format!("<{}>", number(c)),
        c => text.push(c),
    }
}

/// A whole text without control sequences.
pub(crate) fn without_styles(text: &str) -> String {
    ControlFilter::default().text(text)
}

/// A whole text without control sequences, except for styles.
pub(crate) fn printable(text: &str) -> String {
    let mut filter = ControlFilter::default();
    let (mut printable, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((at, style)) =
        STYLES.iter().filter_map(|style| Some((rest.find(style)?, *style))).min()
    {
        printable += &filter.text(&rest[..at]);
        printable += style;
        rest = &rest[at + style.len()..];
        filter = ControlFilter::default();
    }
    printable + &filter.text(rest)
}

/// JSON with control and invisible characters escaped. Its value is unchanged.
pub(crate) fn json(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => escaped.push(c),
            // Such characters occur only within strings: the rest of JSON is ASCII.
            c if is_deceptive(c) => c
                .encode_utf16(&mut [0; 2])
                .iter()
                .for_each(|unit| escaped += &format!("\\u{unit:04x}")),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: [(&str, &str); 16] = [
        ("\x1b[31mred\x1b[0m\nhalf", "red\nhalf"),
        ("a\x07b\x08\r\nc\td\x7f", "ab\nc\td"),
        ("\n\nx\n", "\n\nx\n"),
        ("\x1b[2J\x1b[H\x1b[3Jgone", "gone"),
        ("\x1b]0;title\x07x\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\", "xlink"),
        ("\x1bP1;2|17/ab\x1b\\y\x1b_apc\x1b\\\x1b^pm\x1b\\\x1bXsos\x1b\\z", "yz"),
        ("\u{9b}31mred\u{9d}0;t\u{9c}x\u{90}q\u{9c}\u{85}\u{84}", "redx"),
        ("\x1b(0lqk\x1b(B\x1b#8\x1bcend\x1b=", "lqkend"),
        ("\x1b[?25l\x1b[38;2;1;2;3mx\x1b[6n", "x"),
        ("\x1b]0;no end\nnext", "\nnext"),
        ("\x1b[1;\nnext", "\nnext"),
        ("\x1b]0;a\x1b[2Jb", "b"),
        ("\x1b\x1b[2Jx", "x"),
        ("\x1b[1\x18visible\x1b]x\x1avisible", "visiblevisible"),
        ("a\u{202e}b\u{200b}", "a<U+202E>b<U+200B>"),
        (
            "\u{e4} \u{6f22} \u{1f600}\x1b\u{e4}\x1b[\u{6f22}",
            "\u{e4} \u{6f22} \u{1f600}\u{e4}\u{6f22}",
        ),
    ];

    #[test]
    fn split_control_sequence_is_removed() {
        for (hostile, expected) in HOSTILE {
            assert_eq!(ControlFilter::default().text(hostile), expected, "{hostile:?}");
            let ends: Vec<usize> = hostile.char_indices().map(|(at, _)| at).collect();
            for cut in ends {
                let mut filter = ControlFilter::default();
                let (first, second) = hostile.split_at(cut);
                assert_eq!(
                    filter.text(first) + &filter.text(second),
                    expected,
                    "{first:?} {second:?}"
                );
            }
            let mut filter = ControlFilter::default();
            let each: String = hostile.chars().map(|c| filter.text(&c.to_string())).collect();
            assert_eq!(each, expected, "{hostile:?}");
        }
    }

    #[test]
    fn printed_text_keeps_only_styles() {
        let text = "\x1b[1mNAME\x1b[0m\nn1\x1b[2J \x1b]0;x\x1b[0my";
        assert_eq!(printable(text), "\x1b[1mNAME\x1b[0m\nn1 \x1b[0my");
        assert_eq!(without_styles("\x1b[1mNAME\x1b[0m \x1b[31mred\x1b[2J"), "NAME red");
        assert_eq!(printable("plain\n"), "plain\n");
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        let value =
            serde_json::json!({"a\u{9b}": "\u{1b}[2J\u{85}\u{202e}\u{e0041}\u{7f} \u{e4}\n"});
        let escaped = json(&value.to_string());
        assert!(escaped.chars().all(|c| !is_deceptive(c)), "{escaped:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), value);
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json(&pretty)).unwrap(), value);
    }
}
