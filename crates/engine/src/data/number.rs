//! Compares written numbers with their stored values.
//!
//! Data is stored as JSON with 64-bit floats. A text such as `1e-400` would be read as 0 without an
//! error, and a reviewer would approve another value. A written number must therefore be preserved:
//! the shortest text of the parsed float must denote the same decimal number. Scripts and nodes
//! return measured and computed values, so digits beyond the precision of a float may be rounded
//! there. Such a number must not change otherwise.

/// How well a 64-bit float preserves a written number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fidelity {
    /// The same number.
    Exact,
    /// A fraction that loses digits.
    Rounded,
    /// Another number: underflow, overflow or a different integer.
    Lost,
}

/// How well a decimal number in JSON or YAML is preserved. `None` if the text is not a decimal
/// number.
pub fn fidelity(written: &str) -> Option<Fidelity> {
    let number = Decimal::of(written)?;
    let read: f64 = written.parse().ok()?;
    let lost =
        !read.is_finite() || read.is_subnormal() || (read == 0.0) != number.digits.is_empty();
    Some(match Decimal::of(&stored(read)) {
        Some(read) if read == number => Fidelity::Exact,
        _ if lost || number.exponent >= 0 => Fidelity::Lost,
        _ => Fidelity::Rounded,
    })
}

/// The text of a stored float. If two shortest texts are equally near, RFC 8785 uses the even one
/// and the standard library the larger one. Only JSON's serializer therefore gives the text that
/// reviewers see.
fn stored(read: f64) -> String {
    serde_json::Value::from(read).to_string()
}

/// The absolute value of a decimal number: digits without leading or trailing zeros, and an
/// exponent.
#[derive(Debug, PartialEq, Eq)]
struct Decimal {
    digits: String,
    exponent: i64,
}

impl Decimal {
    fn of(text: &str) -> Option<Self> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let magnitude = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        let numeric =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !numeric(&all) || !numeric(magnitude) {
            return None;
        }
        let digits = all.trim_start_matches('0').trim_end_matches('0').to_owned();
        if digits.is_empty() {
            return Some(Self { digits, exponent: 0 });
        }
        // Beyond this limit the value is lost regardless of the exact exponent.
        let beyond = if exponent.starts_with('-') { i64::MIN / 4 } else { i64::MAX / 4 };
        let exponent = exponent.parse::<i64>().unwrap_or(beyond).clamp(i64::MIN / 4, i64::MAX / 4);
        let zeros = all.len() - all.trim_end_matches('0').len();
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX / 4);
        Some(Self { digits, exponent: exponent - count(fraction.len()) + count(zeros) })
    }
}

/// A number in a JSON text that would not be stored exactly.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the number {number} at {path} cannot be stored exactly: {advice} at line {line} column \
     {column}"
)]
pub struct InexactNumber {
    /// The number as written, shortened.
    pub number: String,
    /// A JSON pointer.
    pub path: String,
    /// Line number, starting at 1.
    pub line: usize,
    /// Position of its first byte in the line, starting at 1.
    pub column: usize,
    advice: String,
}

/// How to fix a number that cannot be stored exactly. Follows "can't be stored exactly: ".
pub(crate) fn advice(written: &str) -> String {
    match (written.parse::<f64>(), fidelity(written)) {
        (Ok(read), Some(Fidelity::Rounded)) => {
            format!("write {}, or write it as a string in quotes", stored(read))
        }
        _ => "write it as a string in quotes".to_owned(),
    }
}

/// Checks the numbers of a valid JSON text and rejects the first one that is preserved less well
/// than `least`.
///
/// # Errors
/// The number and its position.
pub fn check_numbers(text: &str, least: Fidelity) -> Result<(), InexactNumber> {
    let mut path: Vec<Step> = Vec::new();
    let mut rest = Cursor { bytes: text.as_bytes(), at: 0 };
    while let Some(byte) = rest.peek() {
        let from = rest.at;
        match byte {
            b'{' => path.push(Step::Key(String::new())),
            b'[' => path.push(Step::Item(0)),
            b'}' | b']' => drop(path.pop()),
            b',' => {
                if let Some(Step::Item(number)) = path.last_mut() {
                    *number += 1;
                }
            }
            b'"' => {
                rest.skip_string();
                // A string before a colon is a key. Other strings do not matter here.
                if rest.is_before_colon()
                    && let Some(Step::Key(key)) = path.last_mut()
                {
                    *key = serde_json::from_str(text.get(from..rest.at).unwrap_or_default())
                        .unwrap_or_default();
                }
                continue;
            }
            b'-' | b'0'..=b'9' => {
                rest.skip_number();
                let number = &text[from..rest.at];
                if fidelity(number).is_some_and(|found| found > least) {
                    return Err(inexact_number(text, from, number, &path));
                }
                continue;
            }
            _ => {}
        }
        rest.at += 1;
    }
    Ok(())
}

fn inexact_number(text: &str, from: usize, number: &str, path: &[Step]) -> InexactNumber {
    let before = &text[..from];
    let pointer: String = path.iter().map(|step| format!("/{}", step.escaped())).collect();
    InexactNumber {
        number: number.chars().take(64).collect(),
        path: if pointer.is_empty() { "/".to_owned() } else { pointer },
        line: before.matches('\n').count() + 1,
        column: from - before.rfind('\n').map_or(0, |end| end + 1) + 1,
        advice: advice(number),
    }
}

/// The position of a value in its parent.
enum Step {
    Key(String),
    Item(usize),
}

impl Step {
    fn escaped(&self) -> String {
        match self {
            Self::Key(key) => super::escaped(key),
            Self::Item(number) => number.to_string(),
        }
    }
}

struct Cursor<'t> {
    bytes: &'t [u8],
    at: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_while(&mut self, accepts: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&accepts) {
            self.at += 1;
        }
    }

    fn skip_string(&mut self) {
        self.at += 1;
        while let Some(byte) = self.peek() {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                break;
            }
        }
        self.at = self.at.min(self.bytes.len());
    }

    fn skip_number(&mut self) {
        self.skip_while(|byte| {
            byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E')
        });
    }

    fn is_before_colon(&self) -> bool {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        rest.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':')
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn round_trip_number_is_exact() {
        for exact in [
            "0",
            "-0.0",
            "0e999999999999999999999",
            "1",
            "-17",
            "1.50",
            "0.1",
            "100e-2",
            "1e23",
            "1E+23",
            "5e-324",
            ".5",
            "5.",
            "+1",
            "9007199254740991",
            "0.30000000000000004",
            "1.7976931348623157e308",
        ] {
            assert_eq!(fidelity(exact), Some(Fidelity::Exact), "{exact}");
        }
        // The float between them is 629249297997094.25.
        assert_eq!(fidelity("629249297997094.2"), Some(Fidelity::Exact));
        for rounded in [
            "0.10000000000000001",
            "1.0000000000000000000001",
            "3.14159265358979323846",
            "629249297997094.3",
        ] {
            assert_eq!(fidelity(rounded), Some(Fidelity::Rounded), "{rounded}");
        }
        for lost in [
            "1e-400",
            "-1e-400",
            "0.00001e-400",
            "3e-324",
            "1e-99999999999999999999",
            "1e400",
            "1e99999999999999999999",
            "9007199254740993",
            "123456789012345678901234",
            "12345678901234567890.0",
        ] {
            assert_eq!(fidelity(lost), Some(Fidelity::Lost), "{lost}");
        }
        for none in ["", ".", "-", "e5", "1e", "0x10", ".inf", "NaN", "1_000", "\u{ff11}"] {
            assert_eq!(fidelity(none), None, "{none}");
        }
    }

    #[test]
    fn inexact_number_is_reported_with_position() {
        let text = "{\"a\": [1, {\"x/y\": \"1e-400 \\\" [\",\n  \"b\" : 1e-400}]}";
        let error = check_numbers(text, Fidelity::Exact).unwrap_err();
        assert_eq!((error.path.as_str(), error.line, error.column), ("/a/1/b", 2, 9), "{error}");
        assert!(error.to_string().starts_with(
            "the number 1e-400 at /a/1/b cannot be stored exactly: write it as a string"
        ));
        let error = check_numbers("[[], [0.10000000000000001]]", Fidelity::Exact).unwrap_err();
        assert_eq!(error.path, "/1/0");
        assert!(error.to_string().contains("write 0.1, or"), "{error}");
        check_numbers("[[], [0.10000000000000001]]", Fidelity::Rounded).unwrap();
        assert!(check_numbers("9007199254740993", Fidelity::Rounded).is_err());
        for broken in ["\"a", "{\"\\\u{e4}\":1", "{\"", "[1,", "\"\\", "-", "]", ""] {
            check_numbers(broken, Fidelity::Exact).unwrap();
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

        #[test]
        fn serialized_floats_are_exact(number in proptest::num::f64::NORMAL | proptest::num::f64::ZERO, whole in -(1_i64 << 53)..(1_i64 << 53)) {
            let text = serde_json::json!([number, whole]).to_string();
            prop_assert_eq!(check_numbers(&text, Fidelity::Exact), Ok(()));
            prop_assert_eq!(fidelity(&stored(number)), Some(Fidelity::Exact));
        }
    }
}
