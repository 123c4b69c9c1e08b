//! Text in a `<textarea>`.
//!
//! The server renders the content of a `<textarea>` without escaping, because tags mean nothing
//! there. The exception is its end tag: the rest of a text with `</textarea>` would become part of
//! the page. So all text from users must pass through this function.

/// Escapes a text for a `<textarea>`.
pub fn escape_textarea(text: impl Into<String>) -> String {
    let text = text.into();
    #[cfg(feature = "ssr")]
    return text.replace('&', "&amp;").replace('<', "&lt;");
    // The browser creates a text node, which needs no escaping.
    #[cfg(not(feature = "ssr"))]
    text
}
