//! Files and standard input.

use std::io::Read as _;

use engine::data::written;
use serde_json::Value;

use crate::exit::{Failure, Outcome};

/// Maximum size of a file, in bytes.
const LARGEST: u64 = 1 << 20;

pub(crate) fn bytes(file: &str) -> Outcome<Vec<u8>> {
    let wrong = |error: std::io::Error| Failure::Usage(format!("Cannot read {file}: {error}."));
    let mut bytes = Vec::new();
    let read = match file {
        "-" => std::io::stdin().lock().take(LARGEST + 1).read_to_end(&mut bytes),
        path => std::fs::File::open(path)
            .and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes)),
    };
    read.map_err(wrong)?;
    match u64::try_from(bytes.len()).is_ok_and(|length| length <= LARGEST) {
        true => Ok(bytes),
        false => Err(Failure::Usage(format!(
            "File {file} has more than {LARGEST} bytes. Split it into several files."
        ))),
    }
}

/// Reads a text from a file or standard input.
pub(crate) fn text_of(file: &str) -> Outcome<String> {
    String::from_utf8(bytes(file)?).map_err(|_| {
        Failure::Usage(format!(
            "The content of {file} is \
        not UTF-8 text."
        ))
    })
}

/// Reads JSON from a file or standard input.
pub(crate) fn json_of(file: &str) -> Outcome<Value> {
    let text = text_of(file)?;
    let value = serde_json::from_str(&text)
        .map_err(|error| Failure::Usage(format!("Invalid JSON in {file}: {error}.")))?;
    // The request contains the parsed value. The server can't see what parsing lost, so check it
    // here.
    written::check(&text)
        .map_err(|error| Failure::Usage(format!("Invalid JSON in {file}: {error}")))?;
    Ok(value)
}
