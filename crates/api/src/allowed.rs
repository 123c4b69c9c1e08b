//! The JSON of a field that says whether you can do something, or why not.
//!
//! In Rust, such a field is a `Result` whose error is the reason. In JSON, it is an object:
//! `{"allowed": true}`, or `{"allowed": false, "reason": "..."}`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Whether you can do something.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Allowed {
    /// Whether you can do it.
    allowed: bool,
    /// The reason why you can't.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

pub(crate) fn serialize<S: Serializer>(
    allowed: &Result<(), String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    Allowed { allowed: allowed.is_ok(), reason: allowed.clone().err() }.serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Result<(), String>, D::Error> {
    let Allowed { allowed, reason } = Allowed::deserialize(deserializer)?;
    Ok(if allowed { Ok(()) } else { Err(reason.unwrap_or_default()) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Page {
        #[serde(with = "crate::allowed")]
        may_cancel: Result<(), String>,
    }

    #[test]
    fn permission_is_an_object_with_the_reason() {
        for (may_cancel, expected) in [
            (Ok(()), json!({"allowed": true})),
            (Err("It has ended.".to_owned()), json!({"allowed": false, "reason": "It has ended."})),
        ] {
            let page = Page { may_cancel };
            let sent = serde_json::to_value(&page).unwrap();
            assert_eq!(sent, json!({ "may_cancel": expected }));
            assert_eq!(serde_json::from_value::<Page>(sent).unwrap(), page);
        }
    }
}
