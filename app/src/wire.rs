//! JSON between the pages and the server.
//!
//! As the library's own, but for one thing: it is read from text and not from bytes, as what the server rendered into the page is. So
//! the browser's module has one reader for each type and not two, a tenth of its size.

use leptos::server_fn::codec::Post;
use leptos::server_fn::{Bytes, ContentType, Decodes, Encodes, Format, FormatType};
use serde::Serialize;
use serde::de::{DeserializeOwned, Error as _};

/// JSON that is read as text.
pub struct JsonText;

/// A POST with JSON, there or back.
pub type AsJson = Post<JsonText>;

impl ContentType for JsonText {
    const CONTENT_TYPE: &'static str = "application/json";
}

impl FormatType for JsonText {
    const FORMAT_TYPE: Format = Format::Text;
}

impl<T: Serialize> Encodes<T> for JsonText {
    type Error = serde_json::Error;

    fn encode(value: &T) -> Result<Bytes, Self::Error> {
        serde_json::to_vec(value).map(Bytes::from)
    }
}

impl<T: DeserializeOwned> Decodes<T> for JsonText {
    type Error = serde_json::Error;

    fn decode(bytes: Bytes) -> Result<T, Self::Error> {
        let text = std::str::from_utf8(&bytes).map_err(serde_json::Error::custom)?;
        // What people wrote means one thing only. The browser's reader is spared: what comes there was written by a program.
        #[cfg(feature = "ssr")]
        engine::data::written::check(text)?;
        serde_json::from_str(text)
    }
}
