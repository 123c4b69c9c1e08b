//! Masks the secrets of one run in texts, values and streams.

use std::sync::Arc;

use engine::data::secret::{MASK, MIN_REDACTED_BYTES, conceal};
use serde_json::Value;

/// The secrets of one run, longest first. Each is listed in every form in which a program may print
/// it: plain, as JSON (with and without non-ASCII characters), as a key in a JSON pointer, and
/// quoted for a shell. Each line of a multi-line secret is listed too, because programs print lines
/// separately.
#[derive(Debug, Clone, Default)]
pub struct Secrets(Arc<[Box<str>]>);

/// Minimum length of a line that is masked separately. Shorter lines are too common.
const SHORTEST_LINE: usize = 8;

fn forms(text: &str) -> [Box<str>; 5] {
    let json = Value::String(text.to_owned()).to_string();
    let json = &json[1..json.len() - 1];
    let pointer = text.replace('~', "~0").replace('/', "~1");
    let shell = text.replace('\'', r"'\''");
    [text.into(), json.into(), ascii(json).into(), pointer.into(), shell.into()]
}

/// JSON with `\u` escapes for all non-ASCII characters, as many programs write it.
fn ascii(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for letter in json.chars() {
        if letter.is_ascii() {
            escaped.push(letter);
        } else {
            let mut units = [0; 2];
            letter
                .encode_utf16(&mut units)
                .iter()
                .for_each(|unit| escaped.push_str(&format!("\\u{unit:04x}")));
        }
    }
    escaped
}

impl Secrets {
    /// Collects the texts to mask. Skips texts under [`MIN_REDACTED_BYTES`] bytes.
    pub fn new(texts: impl IntoIterator<Item = String>) -> Self {
        let mut all: Vec<Box<str>> = Vec::new();
        for text in texts {
            let lines = text
                .lines()
                .map(str::trim)
                .filter(|line| line.len() >= SHORTEST_LINE && line.len() < text.len());
            let lines: Vec<Box<str>> = lines.flat_map(forms).collect();
            all.extend(lines);
            all.extend(forms(&text));
        }
        all.retain(|form| form.len() >= MIN_REDACTED_BYTES);
        all.sort_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
        all.dedup();
        Self(all.into())
    }

    /// Bytes of the longest text to mask.
    pub fn longest(&self) -> usize {
        self.0.first().map_or(0, |secret| secret.len())
    }

    pub fn mask(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(&**secret, MASK))
    }

    pub fn mask_value(&self, value: &Value) -> Value {
        if self.0.is_empty() {
            return value.clone();
        }
        let plain: Vec<&str> = self.0.iter().map(|secret| &**secret).collect();
        conceal(value, &plain)
    }

    /// Returns a mask for one stream of bytes.
    pub fn stream(&self) -> StreamMask {
        StreamMask { secrets: self.clone(), pending: Vec::new() }
    }
}

/// Masks a stream that arrives in chunks.
#[derive(Debug)]
pub struct StreamMask {
    secrets: Secrets,
    pending: Vec<u8>,
}

enum SecretMatch {
    Secret(usize),
    Partial,
    NoMatch,
}

impl StreamMask {
    /// Takes the next chunk and returns the bytes that can be shown.
    pub fn push(&mut self, chunk: &[u8]) -> Vec<u8> {
        if self.secrets.0.is_empty() {
            return chunk.to_vec();
        }
        let mut bytes = std::mem::take(&mut self.pending);
        bytes.extend_from_slice(chunk);
        let mut shown = Vec::with_capacity(bytes.len());
        let mut at = 0;
        while at < bytes.len() {
            match self.find_secret(&bytes[at..]) {
                SecretMatch::Secret(length) => {
                    shown.extend_from_slice(MASK.as_bytes());
                    at += length;
                }
                SecretMatch::Partial => {
                    self.pending = bytes.split_off(at);
                    break;
                }
                SecretMatch::NoMatch => {
                    shown.push(bytes[at]);
                    at += 1;
                }
            }
        }
        shown
    }

    /// Whether no bytes are withheld.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Ends the stream and returns the withheld bytes.
    pub fn finish(&mut self) -> Vec<u8> {
        let pending = std::mem::take(&mut self.pending);
        let mut shown = Vec::with_capacity(pending.len());
        let mut masked_to = 0;
        for at in 0..pending.len() {
            // The stream has ended, so only complete secrets matter. Overlapping secrets are masked
            // as one.
            if let Some(length) = self.longest(&pending[at..]) {
                if at >= masked_to {
                    shown.extend_from_slice(MASK.as_bytes());
                }
                masked_to = masked_to.max(at + length);
            }
            if at >= masked_to {
                shown.push(pending[at]);
            }
        }
        shown
    }

    fn find_secret(&self, rest: &[u8]) -> SecretMatch {
        // A shorter secret that is complete must not reveal the start of a longer one that may
        // follow.
        let may_follow =
            |secret: &str| secret.len() > rest.len() && secret.as_bytes().starts_with(rest);
        if self.secrets.0.iter().any(|secret| may_follow(secret)) {
            return SecretMatch::Partial;
        }
        self.longest(rest).map_or(SecretMatch::NoMatch, SecretMatch::Secret)
    }

    /// Length of the longest secret at the start of `rest`.
    fn longest(&self, rest: &[u8]) -> Option<usize> {
        self.secrets
            .0
            .iter()
            .find(|secret| rest.starts_with(secret.as_bytes()))
            .map(|secret| secret.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn through(secrets: &Secrets, chunks: &[&str]) -> String {
        let mut mask = secrets.stream();
        let mut out: Vec<u8> = Vec::new();
        for chunk in chunks {
            out.extend(mask.push(chunk.as_bytes()));
        }
        out.extend(mask.finish());
        String::from_utf8(out).expect("ASCII text stays ASCII")
    }

    #[test]
    fn secret_split_between_chunks_is_masked() {
        let secrets = Secrets::new(["hunter22".to_owned()]);
        for cut in 0.."a hunter22 b".len() {
            let (left, right) = "a hunter22 b".split_at(cut);
            assert_eq!(through(&secrets, &[left, right]), format!("a {MASK} b"));
        }
    }

    #[test]
    fn secret_is_masked_in_every_encoding() {
        let secrets = Secrets::new([
            "p/ä's\"word".to_owned(),
            "-----BEGIN-----\nline-one-of-it\nab\n-----END-----\n".to_owned(),
        ]);
        for form in [
            "p/ä's\"word",
            "p/ä's\\\"word",
            "p/\\u00e4's\\\"word",
            "p~1ä's\"word",
            r#"p/ä'\''s"word"#,
        ] {
            let masked = secrets.mask(&format!("<{form}>"));
            assert_eq!(masked, format!("<{MASK}>"), "{form}");
        }
        assert_eq!(
            through(&secrets, &["  line-one", "-of-it\n  ab\n"]),
            format!("  {MASK}\n  ab\n")
        );
    }

    #[test]
    fn prefix_of_a_secret_is_shown() {
        let secrets = Secrets::new(["hunter22".to_owned()]);
        assert_eq!(through(&secrets, &["hunt", "ing"]), "hunting");
        assert_eq!(through(&secrets, &["a hunt"]), "a hunt");
    }

    #[test]
    fn nested_secrets_are_masked_as_one() {
        let secrets = Secrets::new(["abcd".to_owned(), "abcdefg".to_owned()]);
        assert_eq!(through(&secrets, &["abcd", "efg."]), format!("{MASK}."));
        assert_eq!(through(&secrets, &["abcdx"]), format!("{MASK}x"));
    }

    #[test]
    fn secret_split_within_a_character_is_masked() {
        let secrets = Secrets::new([
            "abcd".to_owned(),
            "abcdé".to_owned(),
            "bcdxyzuvwé".to_owned(),
            "xyz!".to_owned(),
        ]);
        let ends = |text: &[u8]| {
            let mut mask = secrets.stream();
            let mut out = mask.push(text);
            out.extend(mask.finish());
            out
        };
        assert_eq!(ends(b"abcd\xc3"), [MASK.as_bytes(), b"\xc3"].concat());
        assert_eq!(ends(b"abcd"), MASK.as_bytes());
        assert_eq!(
            ends(b"bcdxyzuvw\xc3"),
            b"bcdxyzuvw\xc3",
            "text that only begins like a secret is not masked"
        );
        let overlapping =
            Secrets::new(["abcdef".to_owned(), "defghi".to_owned(), "abcdefghijk".to_owned()]);
        let mut mask = overlapping.stream();
        assert!(mask.push(b"abcdefghij").is_empty());
        assert_eq!(mask.finish(), [MASK.as_bytes(), b"j"].concat());
    }

    #[test]
    fn results_are_masked_including_json_text() {
        let secrets = Secrets::new(["p\"word".to_owned()]);
        let value = json!({"k": ["x p\"word y"], "text": "{\"p\":\"p\\\"word\"}", "n": 3});
        let masked = secrets.mask_value(&value);
        assert_eq!(masked["k"][0], format!("x {MASK} y"));
        assert_eq!(masked["text"], format!("{{\"p\":\"{MASK}\"}}"));
        assert_eq!(masked["n"], 3);
    }
}
