//! Enumerations of the OpenAPI document for fields that are text in Rust.
//!
//! Most enumerations are Rust enums. A field is text if its values come from the database, or if
//! the server rejects other values itself with a better message. The document still lists the
//! values, so that generated clients have a type for them.

macro_rules! enumerations {
    ($($(#[doc = $about:literal])+ $name:ident: [$($value:literal),+ $(,)?],)+) => {
        $(
            $(#[doc = $about])+
            pub(crate) struct $name;

            impl schemars::JsonSchema for $name {
                fn schema_name() -> std::borrow::Cow<'static, str> {
                    stringify!($name).into()
                }

                fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                    let about = [$($about),+].map(str::trim).join(" ");
                    schemars::json_schema!({
                        "type": "string", "enum": [$($value),+], "description": about
                    })
                }
            }
        )+
    };
}

enumerations! {
    /// A permission of an account.
    Permission: ["viewer", "operator", "reviewer", "admin"],
    /// A permission of a token.
    TokenScope: ["viewer", "operator", "admin"],
    /// How a person got access.
    AccessChangeKind: [
        "created", "granted", "enabled", "link", "reset", "factor_removed", "token",
    ],
    /// How a worker connects to a node.
    Transport: ["local", "ssh"],
    /// Kind of a report by a node.
    ReportKind: ["startup", "shutdown", "bootenv", "facts"],
}
