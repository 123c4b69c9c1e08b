//! Secrets that a run was given must not come back out of it.
//!
//! Whatever leaves a run (log, result, reason) passes a mask that knows the secrets of this run, and only these. A secret may be cut
//! in two by the border between two chunks of a stream; so the mask keeps back the end of a chunk as long as a secret could begin
//! there. What is kept back is shorter than the longest secret.

use std::path::PathBuf;
use std::sync::Arc;

use engine::data::secret::{MASK, SHORTEST_CONCEALED, SecretRef, conceal};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;

/// Where the plain text of a secret comes from.
pub trait SecretSource: Send + Sync {
    /// The plain text; or why there is none, for people, without any of it.
    fn resolve<'a>(&'a self, secret: &'a SecretRef) -> BoxFuture<'a, Result<String, String>>;
}

/// Secrets as files of a folder: `<name>/<version>`, the name's slashes being folders.
///
/// The folder is the worker's own and readable by it alone; a version that is not there can't be used, so taking a file away revokes
/// that version for every run that starts from then on.
#[derive(Debug, Clone)]
pub struct SecretFolder(pub Option<PathBuf>);

impl SecretSource for SecretFolder {
    fn resolve<'a>(&'a self, secret: &'a SecretRef) -> BoxFuture<'a, Result<String, String>> {
        async move {
            let wanted = format!("secret {} version {}", secret.name, secret.version);
            let folder = self.0.as_ref().ok_or_else(|| {
                format!("{wanted} is needed, and this worker has no folder of secrets: set GANTRY_SECRETS")
            })?;
            let parts = secret.parts().ok_or_else(|| format!("{wanted} has a name that is no path"))?;
            let mut path = folder.clone();
            path.extend(parts);
            path.push(secret.version.to_string());
            let text = tokio::fs::read_to_string(&path).await;
            let text = text.map_err(|error| format!("{wanted} can't be read from {}: {error}", path.display()))?;
            Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
        }
        .boxed()
    }
}

/// The secrets of one run, longest first; each in every form in which it comes back by itself: as it is, as JSON writes it (with and
/// without letters beyond ASCII), as a JSON pointer writes a key, as a shell quotes it, and of a text of several lines each line, since
/// programs print those one by one.
#[derive(Debug, Clone, Default)]
pub struct Secrets(Arc<[Box<str>]>);

/// Shorter lines of a secret are too common to be hidden wherever they stand.
const SHORTEST_LINE: usize = 8;

fn forms(text: &str) -> [Box<str>; 5] {
    let json = Value::String(text.to_owned()).to_string();
    let json = &json[1..json.len() - 1];
    let pointer = text.replace('~', "~0").replace('/', "~1");
    let shell = text.replace('\'', r"'\''");
    [text.into(), json.into(), ascii(json).into(), pointer.into(), shell.into()]
}

/// JSON in which everything beyond ASCII is written by number, as many programs do.
fn ascii(json: &str) -> String {
    let mut written = String::with_capacity(json.len());
    for letter in json.chars() {
        if letter.is_ascii() {
            written.push(letter);
        } else {
            let mut units = [0; 2];
            letter.encode_utf16(&mut units).iter().for_each(|unit| written.push_str(&format!("\\u{unit:04x}")));
        }
    }
    written
}

impl Secrets {
    /// Collects the texts to hide; texts under [`SHORTEST_CONCEALED`] bytes are passed over.
    pub fn new(texts: impl IntoIterator<Item = String>) -> Self {
        let mut all: Vec<Box<str>> = Vec::new();
        for text in texts {
            let lines =
                text.lines().map(str::trim).filter(|line| line.len() >= SHORTEST_LINE && line.len() < text.len());
            let lines: Vec<Box<str>> = lines.flat_map(forms).collect();
            all.extend(lines);
            all.extend(forms(&text));
        }
        all.retain(|form| form.len() >= SHORTEST_CONCEALED);
        all.sort_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
        all.dedup();
        Self(all.into())
    }

    /// A text without the secrets.
    pub fn mask(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(&**secret, MASK))
    }

    /// A document without the secrets.
    pub fn mask_value(&self, value: &Value) -> Value {
        if self.0.is_empty() {
            return value.clone();
        }
        let plain: Vec<&str> = self.0.iter().map(|secret| &**secret).collect();
        conceal(value, &plain)
    }

    /// A mask for one stream of bytes.
    pub fn stream(&self) -> StreamMask {
        StreamMask { secrets: self.clone(), held: Vec::new() }
    }
}

/// Masks a stream that comes in chunks.
#[derive(Debug)]
pub struct StreamMask {
    secrets: Secrets,
    held: Vec<u8>,
}

enum Here {
    Secret(usize),
    Maybe,
    Plain,
}

impl StreamMask {
    /// Takes the next chunk; gives what can be shown.
    pub fn push(&mut self, chunk: &[u8]) -> Vec<u8> {
        if self.secrets.0.is_empty() {
            return chunk.to_vec();
        }
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(chunk);
        let mut shown = Vec::with_capacity(bytes.len());
        let mut at = 0;
        while at < bytes.len() {
            match self.look(&bytes[at..]) {
                Here::Secret(length) => {
                    shown.extend_from_slice(MASK.as_bytes());
                    at += length;
                }
                Here::Maybe => {
                    self.held = bytes.split_off(at);
                    break;
                }
                Here::Plain => {
                    shown.push(bytes[at]);
                    at += 1;
                }
            }
        }
        shown
    }

    /// Ends the stream; gives what was kept back.
    pub fn finish(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        let mut shown = Vec::with_capacity(held.len());
        let mut hidden_to = 0;
        for at in 0..held.len() {
            // Nothing more comes, so only what is whole is a secret. Those that overlap are hidden as one.
            if let Some(length) = self.longest(&held[at..]) {
                if at >= hidden_to {
                    shown.extend_from_slice(MASK.as_bytes());
                }
                hidden_to = hidden_to.max(at + length);
            }
            if at >= hidden_to {
                shown.push(held[at]);
            }
        }
        shown
    }

    fn look(&self, rest: &[u8]) -> Here {
        // A longer secret that may still come must not be given away by a shorter one that is already there.
        let may_come = |secret: &str| secret.len() > rest.len() && secret.as_bytes().starts_with(rest);
        if self.secrets.0.iter().any(|secret| may_come(secret)) {
            return Here::Maybe;
        }
        self.longest(rest).map_or(Here::Plain, Here::Secret)
    }

    /// The length of the longest secret that this begins with.
    fn longest(&self, rest: &[u8]) -> Option<usize> {
        self.secrets.0.iter().find(|secret| rest.starts_with(secret.as_bytes())).map(|secret| secret.len())
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
        String::from_utf8(out).expect("ASCII in, ASCII out")
    }

    #[test]
    fn a_secret_cut_in_two_is_still_hidden() {
        let secrets = Secrets::new(["hunter22".to_owned()]);
        for cut in 0.."a hunter22 b".len() {
            let (left, right) = "a hunter22 b".split_at(cut);
            assert_eq!(through(&secrets, &[left, right]), format!("a {MASK} b"));
        }
    }

    #[test]
    fn a_secret_is_found_in_every_form_in_which_it_comes_back_by_itself() {
        let secrets =
            Secrets::new(["p/ä's\"word".to_owned(), "-----BEGIN-----\nline-one-of-it\nab\n-----END-----\n".to_owned()]);
        for form in ["p/ä's\"word", "p/ä's\\\"word", "p/\\u00e4's\\\"word", "p~1ä's\"word", r#"p/ä'\''s"word"#] {
            let masked = secrets.mask(&format!("<{form}>"));
            assert_eq!(masked, format!("<{MASK}>"), "{form}");
        }
        assert_eq!(through(&secrets, &["  line-one", "-of-it\n  ab\n"]), format!("  {MASK}\n  ab\n"));
    }

    #[test]
    fn what_only_begins_like_a_secret_is_shown() {
        let secrets = Secrets::new(["hunter22".to_owned()]);
        assert_eq!(through(&secrets, &["hunt", "ing"]), "hunting");
        assert_eq!(through(&secrets, &["a hunt"]), "a hunt");
    }

    #[test]
    fn a_secret_within_a_secret_hides_as_a_whole() {
        let secrets = Secrets::new(["abcd".to_owned(), "abcdefg".to_owned()]);
        assert_eq!(through(&secrets, &["abcd", "efg."]), format!("{MASK}."));
        assert_eq!(through(&secrets, &["abcdx"]), format!("{MASK}x"));
    }

    #[test]
    fn what_is_cut_within_a_letter_is_masked_all_the_same() {
        let secrets = Secrets::new(["abcd".to_owned(), "abcdé".to_owned(), "bcdxyzuvwé".to_owned(), "xyz!".to_owned()]);
        let ends = |text: &[u8]| {
            let mut mask = secrets.stream();
            let mut out = mask.push(text);
            out.extend(mask.finish());
            out
        };
        assert_eq!(ends(b"abcd\xc3"), [MASK.as_bytes(), b"\xc3"].concat());
        assert_eq!(ends(b"abcd"), MASK.as_bytes());
        assert_eq!(ends(b"bcdxyzuvw\xc3"), b"bcdxyzuvw\xc3", "what only begins like one");
        let overlapping = Secrets::new(["abcdef".to_owned(), "defghi".to_owned(), "abcdefghijk".to_owned()]);
        let mut mask = overlapping.stream();
        assert!(mask.push(b"abcdefghij").is_empty());
        assert_eq!(mask.finish(), [MASK.as_bytes(), b"j"].concat());
    }

    #[test]
    fn results_lose_them_too_also_as_json_text() {
        let secrets = Secrets::new(["p\"word".to_owned()]);
        let value = json!({"k": ["x p\"word y"], "text": "{\"p\":\"p\\\"word\"}", "n": 3});
        let masked = secrets.mask_value(&value);
        assert_eq!(masked["k"][0], format!("x {MASK} y"));
        assert_eq!(masked["text"], format!("{{\"p\":\"{MASK}\"}}"));
        assert_eq!(masked["n"], 3);
    }
}
