//! JSON between the pages and the server.
//!
//! Like the codec of the library, but it parses text instead of bytes. The data that the server
//! embeds in a page is text as well. So the browser's module needs one deserializer per type and
//! not two, which saves a tenth of its size.

use leptos::server_fn::codec::Post;
use leptos::server_fn::{Bytes, ContentType, Decodes, Encodes, Format, FormatType};
use serde::Serialize;
use serde::de::{DeserializeOwned, Error as _};

pub struct JsonText;

/// A POST with JSON in both directions.
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
        // Rejects ambiguous JSON, such as duplicate keys. The browser skips this check, because its
        // input was serialized by the server.
        #[cfg(feature = "ssr")]
        engine::data::written::check(text)?;
        serde_json::from_str(text)
    }
}
