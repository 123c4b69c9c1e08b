//! Text for people: edits, changes, times.

use api::{At, Problem};
pub(crate) use engine::counting::{count, first_of, some_of};
pub(crate) use engine::text::{capitalize, sentence};
use engine::text::{deceptive_character, number};
use time::OffsetDateTime;

/// A timestamp for the API.
pub(crate) fn at(moment: OffsetDateTime) -> At {
    // Milliseconds since 1970 fit until the year 292,000,000.
    At(i64::try_from(moment.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX))
}

/// A validated filter text; `None` if it is empty.
pub(crate) fn filter_text(text: &str) -> Result<Option<&str>, Problem> {
    let text = plain(text)?.trim();
    if text.chars().count() > MAX_FILTER_LENGTH {
        return Err(Problem::invalid(format!(
            "The filter text is too long. Use at most {MAX_FILTER_LENGTH} characters."
        )));
    }
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// Maximum length of a filter text, in characters.
const MAX_FILTER_LENGTH: usize = 300;

/// Trims a text and refuses misleading characters: control characters, direction marks and
/// invisible characters. Line breaks and tabs are permitted. The database cannot store some of
/// these.
pub(crate) fn plain(text: &str) -> Result<&str, Problem> {
    match deceptive_character(text) {
        None => Ok(text.trim()),
        Some(c) => Err(Problem::invalid(format!(
            "The text has the character {}, which is invisible or misleading. Remove it.",
            number(c)
        ))),
    }
}

/// A quoted excerpt of the client's input.
pub(crate) fn quoted(text: &str) -> String {
    let short: String = text.chars().take(80).collect();
    format!("\"{}\"", engine::text::shown(&short))
}

/// `90 s`, `5 min`, `1 h`: the largest unit with a whole number.
pub(crate) fn duration_text(seconds: impl Into<i64>) -> String {
    match seconds.into() {
        whole if whole > 0 && whole % 3600 == 0 => format!("{} h", whole / 3600),
        whole if whole > 0 && whole % 60 == 0 => format!("{} min", whole / 60),
        seconds => format!("{seconds} s"),
    }
}

/// `One noderole waits`, `3 noderoles wait`.
pub(crate) fn waiting_noderoles(n: usize) -> String {
    if n == 1 { "One noderole waits".into() } else { format!("{n} noderoles wait") }
}

/// Names in natural order: `n2` before `n10`.
pub(crate) fn in_order(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut names: Vec<String> = names.into_iter().collect();
    names.sort_by_cached_key(|name| (pieces(name), name.clone()));
    names
}

/// The sort key: each text with the number after it, as the count of digits without leading zeros,
/// and these digits.
fn pieces(name: &str) -> Vec<(String, usize, String)> {
    let (mut pieces, mut rest) = (Vec::new(), name);
    while !rest.is_empty() {
        let (text, remainder) =
            rest.split_at(rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len()));
        let (digits, remainder) = remainder
            .split_at(remainder.find(|c: char| !c.is_ascii_digit()).unwrap_or(remainder.len()));
        let number = digits.trim_start_matches('0');
        pieces.push((text.to_owned(), number.len(), number.to_owned()));
        rest = remainder;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use icu_properties::props::{BidiControl, DefaultIgnorableCodePoint};
    use icu_properties::{CodePointSetData, CodePointSetDataBorrowed};

    use crate::text::*;

    #[test]
    fn misleading_texts_are_rejected() {
        for text in ["a\0b", "\u{202e}gnp.exe", "a\u{200b}b", "\u{1b}[31m"] {
            assert!(plain(text).is_err(), "{text:?}");
        }
        // Visible marks, and letters and signs of all scripts, are permitted.
        for text in ["e\u{301}", "नमस्ते", "العربية", "😀", "한국", "a\u{a0}b", "→ ✓ –"]
        {
            assert!(plain(text).is_ok(), "{text:?}");
        }
        assert_eq!(plain(" zwei\nZeilen, é 漢 ").ok(), Some("zwei\nZeilen, é 漢"));
    }

    /// Compares the engine's table with Unicode's properties for every character.
    #[test]
    fn misleading_characters_match_unicode_properties() {
        const UNSEEN: CodePointSetDataBorrowed<'static> =
            CodePointSetData::new::<DefaultIgnorableCodePoint>();
        const TURNS: CodePointSetDataBorrowed<'static> = CodePointSetData::new::<BidiControl>();
        // Most programs do not treat these two line separators as line breaks, and the blank
        // Braille pattern looks like a space.
        let is_deceptive_format =
            |c| matches!(c, '\u{2028}' | '\u{2029}' | '\u{2800}' | '\u{fff9}'..='\u{fffb}');
        for c in ('\0'..=char::MAX).filter(|c| !matches!(c, '\n' | '\r' | '\t')) {
            let expected =
                c.is_control() || UNSEEN.contains(c) || TURNS.contains(c) || is_deceptive_format(c);
            assert_eq!(engine::text::is_deceptive(c), expected, "{}", number(c));
        }
    }

    #[test]
    fn durations_use_the_largest_whole_unit() {
        let text = [
            (0, "0 s"),
            (45, "45 s"),
            (60, "1 min"),
            (90, "90 s"),
            (300, "5 min"),
            (3600, "1 h"),
            (5400, "90 min"),
        ];
        for (seconds, text) in text {
            assert_eq!(duration_text(seconds), text);
        }
    }

    #[test]
    fn names_sort_in_natural_order() {
        let ordered = |names: &[&str]| in_order(names.iter().map(|name| (*name).to_owned()));
        assert_eq!(ordered(&["n10", "n2", "m3", "n1", "n02"]), ["m3", "n1", "n02", "n2", "n10"]);
        assert_eq!(
            ordered(&["r2-n1", "r1-n12", "r1-n3", "r1", ""]),
            ["", "r1", "r1-n3", "r1-n12", "r2-n1"]
        );
        // Longer than any integer type.
        let (nines, more) = ("n99999999999999999999999", "n100000000000000000000000");
        assert_eq!(ordered(&[more, nines]), [nines, more]);
    }
}
