//! Quotes text for a POSIX shell and encodes text for a URL.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Quotes a text as one word of a shell. A word without special characters is returned unchanged.
/// Control characters are kept: within single quotes a line break has no special meaning.
///
/// `shell-words` does not quote braces, which bash expands, and `shlex` rejects NUL.
pub fn quoted(text: &str) -> String {
    let is_safe = |b: u8| b.is_ascii_alphanumeric() || b"-._/:@%+,=".contains(&b);
    if !text.is_empty() && text.bytes().all(is_safe) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Percent-encodes all but unreserved characters (RFC 3986). The result is also safe within double
/// quotes of a shell.
pub fn encoded(text: &str) -> String {
    const RESERVED: &AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(text, RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn plain_argument_is_not_quoted() {
        for plain in
            ["web", "n1.demo.gantry.internal", "--reason", "a/b:c@d", "00:25:90:aa:00:01", "10%"]
        {
            assert_eq!(quoted(plain), plain);
        }
        assert_eq!(quoted("because"), "because");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("the switch"), "'the switch'");
        assert_eq!(quoted("ada's"), r"'ada'\''s'");
    }

    #[test]
    fn shell_parses_quoted_text_unchanged() {
        let texts = [
            "",
            "a b",
            "ada's node",
            "'",
            "''",
            "\"$HOME\"",
            "`id`",
            "$(id)",
            "a\\b",
            "!x",
            "~",
            "*",
            "a;b",
            "a&&b",
            "#no",
            "ü — “x”",
            "two\nlines",
            "\t",
            "{a,b}",
            "{\"edits\":[{\"edit\":\"bind\"}]}",
            "-n",
        ];
        let line = texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(" ");
        let out = Command::new("sh")
            .arg("-c")
            .arg(format!("printf '%s\\0' {line}"))
            .output()
            .expect("a shell");
        let read = String::from_utf8(out.stdout).expect("text");
        let read: Vec<&str> = read.strip_suffix('\0').expect("an end").split('\0').collect();
        assert_eq!(read, texts);
    }

    #[test]
    fn url_encoding_escapes_shell_characters() {
        assert_eq!(encoded("a b/$HOME`\"\\é"), "a%20b%2F%24HOME%60%22%5C%C3%A9");
        assert_eq!(encoded("n1.web-2_x~"), "n1.web-2_x~");
    }
}
