//! Texts that read as another than they are.
//!
//! A reviewer approves what they see. Characters that are drawn as nothing, or that turn the direction of what follows, let a text be
//! seen that is not there: `nothing` may hide a name, `exe.gnp` may be `png.exe`. So what people write to be read by others has none of
//! them, and where they may stand (scripts) they are pointed at.
//!
//! The rule has its home here, for every layer. It is a table and not Unicode's own data, because the engine runs in the browser and the
//! tables of all properties would weigh more than what uses them; that it is Unicode's (`Default_Ignorable_Code_Point` and
//! `Bidi_Control`) is a test of `control`, which has those tables at hand.

use std::borrow::Cow;

/// Drawn as nothing, or turning the direction; with what most programs draw as nothing beside that: separators of lines that are no line
/// ends to them, the blank of Braille, the marks of annotations. In order.
const DECEIVING: [(char, char); 18] = [
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

/// Whether a character can't be seen or makes a text read as another. Ends of lines and tabs do neither.
pub fn deceives(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control() && !matches!(c, '\n' | '\r' | '\t');
    }
    let at = DECEIVING.partition_point(|(_, last)| *last < c);
    c.is_control() || DECEIVING.get(at).is_some_and(|(first, _)| *first <= c)
}

/// The first character of a text that [deceives].
pub fn deceiving(text: &str) -> Option<char> {
    text.chars().find(|c| deceives(*c))
}

/// Its number, as people look it up.
pub fn number(c: char) -> String {
    format!("U+{:04X}", u32::from(c))
}

/// The text as it may be shown: what [deceives] stands there as its number.
pub fn shown(text: &str) -> Cow<'_, str> {
    if deceiving(text).is_none() {
        return Cow::Borrowed(text);
    }
    let seen = |c: char| if deceives(c) { format!("<{}>", number(c)) } else { c.to_string() };
    Cow::Owned(text.chars().map(seen).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order() {
        assert!(DECEIVING.iter().all(|(first, last)| first <= last));
        assert!(DECEIVING.windows(2).all(|pair| pair[0].1 < pair[1].0));
    }

    #[test]
    fn what_can_be_seen_stays() {
        for text in ["a\tb\r\n", "e\u{301}", "नमस्ते", "العربية", "😀", "한국", "a\u{a0}b", "→ ✓ –", "\u{fffd}"]
        {
            assert_eq!(deceiving(text), None, "{text:?}");
            assert_eq!(shown(text), text);
        }
        for c in ['\0', '\u{1b}', '\u{7f}', '\u{85}', '\u{ad}', '\u{200b}', '\u{202e}', '\u{2069}', '\u{e0041}'] {
            assert_eq!(deceiving(&format!("a{c}b")), Some(c));
        }
        assert_eq!(shown("lmy.\u{202e}a"), "lmy.<U+202E>a");
    }
}
