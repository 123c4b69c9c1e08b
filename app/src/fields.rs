//! Values of form fields. On the server only.

use std::str::FromStr;

use api::Problem;

/// Splits a field with several values.
pub(crate) fn several(text: &str) -> Vec<String> {
    let is_separator = |c: char| c.is_whitespace() || matches!(c, ',' | ';');
    text.split(is_separator).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

pub(crate) fn number<T: FromStr>(field: &str, text: &str) -> Result<T, Problem> {
    let text = text.trim();
    text.parse().map_err(|_| {
        Problem::invalid(format!(
            "Invalid value for {field}: {text:?} is not a whole number or is \
            out of range. Enter another number."
        ))
    })
}
