//! Whether you can do something, or the reason why not.
//!
//! In JSON, it is an object: `{"allowed": true}`, or `{"allowed": false, "reason": "..."}`.

use serde::{Deserialize, Serialize};

/// Whether you can do something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(from = "AllowedJson", into = "AllowedJson")]
pub enum Allowed {
    /// You can do it.
    Yes,
    /// You can't do it.
    No {
        /// The reason why you can't.
        reason: String,
    },
}

impl Allowed {
    /// You can't do it, for this reason.
    pub fn no(reason: impl Into<String>) -> Self {
        Self::No { reason: reason.into() }
    }

    /// Whether you can do it.
    pub const fn is_allowed(&self) -> bool {
        matches!(self, Self::Yes)
    }

    /// The reason why you can't do it, or `None` if you can.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Yes => None,
            Self::No { reason } => Some(reason),
        }
    }
}

/// The error is the reason.
impl From<Result<(), String>> for Allowed {
    fn from(result: Result<(), String>) -> Self {
        match result {
            Ok(()) => Self::Yes,
            Err(reason) => Self::No { reason },
        }
    }
}

/// The JSON of [`Allowed`].
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct AllowedJson {
    /// Whether you can do it.
    allowed: bool,
    /// The reason why you can't.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl From<Allowed> for AllowedJson {
    fn from(allowed: Allowed) -> Self {
        match allowed {
            Allowed::Yes => Self { allowed: true, reason: None },
            Allowed::No { reason } => Self { allowed: false, reason: Some(reason) },
        }
    }
}

impl From<AllowedJson> for Allowed {
    fn from(AllowedJson { allowed, reason }: AllowedJson) -> Self {
        if allowed { Self::Yes } else { Self::No { reason: reason.unwrap_or_default() } }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Page {
        may_cancel: Allowed,
    }

    #[test]
    fn permission_is_an_object_with_the_reason() {
        for (may_cancel, expected) in [
            (Allowed::Yes, json!({"allowed": true})),
            (Allowed::no("It has ended."), json!({"allowed": false, "reason": "It has ended."})),
        ] {
            let page = Page { may_cancel };
            let sent = serde_json::to_value(&page).unwrap();
            assert_eq!(sent, json!({ "may_cancel": expected }));
            assert_eq!(serde_json::from_value::<Page>(sent).unwrap(), page);
        }
    }
}
