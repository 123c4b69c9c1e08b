//! JSON schemas of the types that implement `Serialize` by hand, for the server's OpenAPI document.
//! All other types derive `JsonSchema`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::Hash;
use crate::anneal::Cause;

impl JsonSchema for Hash {
    fn schema_name() -> Cow<'static, str> {
        "Hash".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "description": "The SHA-256 of an object's bytes.", "pattern": "^[0-9a-f]{64}$"})
    }
}

impl JsonSchema for Cause {
    fn schema_name() -> Cow<'static, str> {
        "Cause".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Why a step runs again. The text ends with ` again` if the cause \
                            occurred during an attempt.",
            "examples": ["drift", "drift again"],
        })
    }
}
