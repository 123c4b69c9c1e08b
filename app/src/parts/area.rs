//! Text within a field of several lines.
//!
//! The server writes what is in a `<textarea>` as it is, since its markup means nothing there; but its end tag does, so a text with
//! `</textarea>` in it would go on as a part of the page. Whatever was written by somebody goes in by this.

/// A text as the content of a `<textarea>`.
pub fn in_area(text: impl Into<String>) -> String {
    let text = text.into();
    #[cfg(feature = "ssr")]
    return text.replace('&', "&amp;").replace('<', "&lt;");
    // A browser makes a text of it, which needs no escape.
    #[cfg(not(feature = "ssr"))]
    text
}
