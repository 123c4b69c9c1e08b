//! The wrapper's report: how the scripts of an attempt ended, and the file `GANTRY_OUTPUT`.

/// Why the scripts of an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The last script exited with this code.
    Exited(String),
    TimedOut,
    /// The attempt was ended on the node.
    Canceled,
    /// Another program changed the files of the wrapper.
    Unknown,
}

/// The report on an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub cause: Cause,
    /// Name of the last script that ran.
    pub script: String,
    /// Content of the file `GANTRY_OUTPUT`. `None` if it is no longer a file.
    pub output: Option<Vec<u8>>,
}

impl Report {
    /// Parses the wrapper's answer: a line of `name=value`, then the output.
    pub(super) fn parse(answer: &[u8]) -> Self {
        let (line, output) = split_line(answer);
        let line = String::from_utf8_lossy(line);
        let cause = match (value_of(&line, "why"), value_of(&line, "code")) {
            (Some("exit"), Some(code)) => Cause::Exited(code.to_owned()),
            (Some("timeout"), _) => Cause::TimedOut,
            (Some("canceled"), _) => Cause::Canceled,
            _ => Cause::Unknown,
        };
        let is_file = value_of(&line, "output") != Some("no-file");
        Self {
            cause,
            // The name may contain spaces, so it is last.
            script: line.split_once("script=").map_or("", |(_, name)| name).to_owned(),
            output: is_file.then(|| output.to_vec()),
        }
    }
}

fn split_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, b""),
    }
}

/// The value of `name=value` in a list of words.
pub(super) fn value_of<'a>(words: &'a str, name: &str) -> Option<&'a str> {
    words.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_has_cause_script_and_output() {
        let report = |answer: &[u8]| {
            let Report { cause, script, output } = Report::parse(answer);
            (cause, script, output)
        };
        assert_eq!(
            report(b"code=0 why=exit script=10 up.sh\n{\"a\": 1}\n"),
            (Cause::Exited("0".into()), "10 up.sh".into(), Some(b"{\"a\": 1}\n".to_vec()))
        );
        assert_eq!(
            report(b"output=no-file code=0 why=exit script=up.sh"),
            (Cause::Exited("0".into()), "up.sh".into(), None)
        );
        assert_eq!(
            report(b"code=143 why=timeout script=up.sh\n"),
            (Cause::TimedOut, "up.sh".into(), Some(Vec::new()))
        );
        assert_eq!(report(b"code= why=unknown script=").0, Cause::Unknown);
        assert_eq!(report(b"").0, Cause::Unknown);
    }
}
