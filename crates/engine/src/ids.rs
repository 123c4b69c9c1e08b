//! Typed names and ids, so that a node id can never be passed as a deployment id.
//!
//! Three kinds exist:
//!
//! * Names are written by users. They are short, ASCII, and validated once on construction.
//! * Minted ids (nodes, deployments, people) are random and belong to the edit that creates the
//!   thing. They are never derived from a name. A deployment that is recreated under its old name
//!   is thus a new one, and approvals of the first do not apply.
//! * Derived ids (noderoles, steps) are hashes of the identified thing, so every planner computes
//!   the same ones.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// Maximum length of the name of a role, barclamp, jig, deployment or action, in bytes.
pub const MAX_NAME: usize = 96;
/// Maximum length of a fully qualified domain name in bytes (RFC 1035).
pub const MAX_FQDN: usize = 253;
/// The name that output shows for actions of Gantry itself. No person can have it. The database has
/// a copy of the name and rejects it too (`guard_name`).
pub const SYSTEM_ACTOR: &str = "gantry";

/// The name of an actor for display. Without a name, the actor is Gantry itself ([`SYSTEM_ACTOR`]).
pub fn actor_name(name: Option<&str>) -> &str {
    name.unwrap_or("Gantry")
}

/// Whether a text reads as an id. Paths accept the name or the id of a person or a deployment and
/// look for the name first, so new ones can't have such a name. The database rejects it too
/// (`person_name_is_no_id`, `deployment_name_is_no_id`).
pub fn looks_like_id(text: &str) -> bool {
    Uuid::parse_str(text).is_ok()
}

/// Why a text is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("The {kind} name must not be empty")]
    Empty { kind: &'static str },
    /// Longer than [`MAX_NAME`] or [`MAX_FQDN`] bytes.
    #[error("The {kind} name has {length} bytes, and the limit is {limit}")]
    TooLong { kind: &'static str, length: usize, limit: usize },
    /// A character that names cannot contain.
    #[error(
        "The {kind} name {name:?} contains {found:?}. Use letters, digits, '-', '_' and '.', and \
         start with a letter or digit"
    )]
    Character {
        kind: &'static str,
        /// The given text, shortened.
        name: String,
        /// The first invalid character.
        found: char,
    },
    /// A character that names can contain but not start with.
    #[error("The {kind} name {name:?} starts with {found:?}. Start it with a letter or digit")]
    Start {
        kind: &'static str,
        /// The given text, shortened.
        name: String,
        /// The first character.
        found: char,
    },
    /// The text is not a fully qualified domain name.
    #[error(
        "The name {name:?} is not a fully qualified domain name: {reason}. Use a name such as \
         web-1.rack1.example.com"
    )]
    Fqdn {
        /// The given text, shortened.
        name: String,
        reason: String,
    },
}

fn shorten(text: &str) -> String {
    text.chars().take(64).collect()
}

fn check_name(kind: &'static str, text: &str) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty { kind });
    }
    if text.len() > MAX_NAME {
        return Err(NameError::TooLong { kind, length: text.len(), limit: MAX_NAME });
    }
    let mark = |c: char| matches!(c, '-' | '_' | '.');
    if let Some(found) = text.chars().next().filter(|c| mark(*c)) {
        return Err(NameError::Start { kind, name: shorten(text), found });
    }
    match text.chars().find(|c| !c.is_ascii_alphanumeric() && !mark(*c)) {
        Some(found) => Err(NameError::Character { kind, name: shorten(text), found }),
        None => Ok(()),
    }
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident = $kind:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[cfg_attr(feature = "schema", schemars(extend("pattern" = "^[A-Za-z0-9][A-Za-z0-9._-]*$", "maxLength" = MAX_NAME)))]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// Parses and validates a name.
            pub fn parse(text: &str) -> Result<Self, NameError> {
                check_name($kind, text)?;
                Ok(Self(text.into()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::parse(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0.to_string()
            }
        }
    )*};
}

names! {
    /// A role of a barclamp, unique within the barclamps that a deployment sees.
    RoleName = "role";
    /// A barclamp: a versioned set of roles.
    BarclampName = "barclamp";
    /// A jig: the method to run a step.
    JigName = "jig";
    /// A deployment.
    DeploymentName = "deployment";
    /// The action of a step on its noderole. OpenCrowbar roles have the single action `run`.
    ActionName = "action";
    /// An attribute that a role owns or wants.
    AttribName = "attribute";
    /// A concurrency group: steps that share a limit on how many run at once.
    ConcurrencyGroupName = "concurrency group";
}

impl ActionName {
    /// The only action of a role that declares none.
    pub fn run() -> Self {
        Self("run".into())
    }

    /// The action that undoes `run` on the node, after its noderole is unbound.
    pub fn remove() -> Self {
        Self("remove".into())
    }

    /// The script that tests whether `run` still holds. It is no action of a step.
    pub fn check() -> Self {
        Self("check".into())
    }

    /// Whether this is `run`.
    pub fn is_run(&self) -> bool {
        self.as_str() == "run"
    }
}

impl RoleName {
    /// The name of the barrier for all noderoles of this role in a deployment.
    pub fn barrier(&self) -> Self {
        const SUFFIX: &str = ".all";
        if self.0.len() + SUFFIX.len() <= MAX_NAME {
            return Self(format!("{}{SUFFIX}", self.0).into());
        }
        // Names are ASCII, so every byte is a character boundary. The digest distinguishes names
        // that differ only after the cut.
        let id = derived("barrier", &[self.0.as_bytes()]).simple();
        Self(format!("{}-{id}{SUFFIX}", &self.0[..MAX_NAME - SUFFIX.len() - 33]).into())
    }
}

impl ConcurrencyGroupName {
    /// The concurrency group of a role that declares none.
    pub fn of_role(role: &RoleName) -> Self {
        Self(role.0.clone())
    }
}

/// A node's fully qualified domain name, in lower case, with at least three labels. The minimum is
/// OpenCrowbar's rule: a cluster's names are always in a domain of their own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("maxLength" = MAX_FQDN)))]
#[serde(try_from = "String", into = "String")]
pub struct Fqdn(std::sync::Arc<str>);

impl Fqdn {
    /// Parses and validates a name. Upper case becomes lower case, because DNS ignores case.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty { kind: "node" });
        }
        if text.len() > MAX_FQDN {
            return Err(NameError::TooLong { kind: "node", length: text.len(), limit: MAX_FQDN });
        }
        let folded = text.to_ascii_lowercase();
        let wrong = |reason: String| Err(NameError::Fqdn { name: shorten(text), reason });
        let labels: Vec<&str> = folded.split('.').collect();
        if labels.len() < 3 {
            return wrong(format!("it has only {} of at least 3 labels", labels.len()));
        }
        for label in labels {
            if label.is_empty() {
                return wrong("it has an empty label".into());
            }
            if label.len() > 63 {
                return wrong(format!("label {:?} is longer than 63 bytes", shorten(label)));
            }
            if let Some(c) = label.chars().find(|c| !(c.is_ascii_alphanumeric() || *c == '-')) {
                return wrong(format!("label {:?} contains {c:?}", shorten(label)));
            }
            if label.starts_with('-') || label.ends_with('-') {
                return wrong(format!("label {label:?} starts or ends with a hyphen"));
            }
        }
        Ok(Self(folded.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first label, for output where the domain is known.
    pub fn short(&self) -> &str {
        self.0.split('.').next().unwrap_or(&self.0)
    }
}

impl fmt::Display for Fqdn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Fqdn {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::parse(text)
    }
}

impl TryFrom<String> for Fqdn {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        Self::parse(&text)
    }
}

impl From<Fqdn> for String {
    fn from(name: Fqdn) -> String {
        name.0.to_string()
    }
}

macro_rules! uuids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Uuid::parse_str(text).map(Self).map_err(|_| IdError)
            }
        }
    )*};
}

uuids! {
    /// A node. Minted by the edit or request that creates it.
    NodeId;
    /// A deployment. Minted by the edit that creates it.
    DeploymentId;
    /// A noderole. The id is derived from the node, the role and the instance.
    NoderoleId;
    /// A step. The id is derived from the noderole and the action.
    StepId;
    /// A person or a service account.
    PersonId;
    /// A person's passkey.
    PasskeyId;
}

/// A UUID (version 8, custom content) from the first half of a SHA-256 over length-prefixed parts.
/// The prefixes keep different parts with the same concatenation apart.
fn derived(domain: &str, parts: &[&[u8]]) -> Uuid {
    let mut hash = Sha256::new();
    for part in std::iter::once(&domain.as_bytes()).chain(parts) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    let mut half = [0u8; 16];
    half.copy_from_slice(&digest[..16]);
    uuid::Builder::from_custom_bytes(half).into_uuid()
}

impl NoderoleId {
    /// The id of a role's instance on a node. It must never change, because documents contain it.
    pub fn of(node: NodeId, role: &RoleName, instance: u32) -> Self {
        Self(derived(
            "noderole",
            &[node.0.as_bytes(), role.as_str().as_bytes(), &instance.to_be_bytes()],
        ))
    }
}

impl StepId {
    /// The id of one action of a noderole.
    pub fn of(noderole: NoderoleId, action: &ActionName) -> Self {
        Self(derived("step", &[noderole.0.as_bytes(), action.as_str().as_bytes()]))
    }

    /// The id of a noderole's action `run`.
    pub fn run_of(noderole: NoderoleId) -> Self {
        Self::of(noderole, &ActionName::run())
    }
}

/// The text is not a valid id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("The id must be a UUID, such as 6f1c2d3e-0a1b-4c5d-8e9f-001122334455")]
pub struct IdError;

/// Why a text is not a valid number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("The {kind} must be a number, such as 7")]
pub struct NumberError {
    pub kind: &'static str,
}

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident = $kind:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = NumberError;
            fn from_str(text: &str) -> Result<Self, NumberError> {
                text.parse().map(Self).map_err(|_| NumberError { kind: $kind })
            }
        }
    )*};
}

numbers! {
    /// The number of a blueprint in the global history. A step's generation is such a number
    /// too.
    BlueprintNumber = "blueprint";
    /// A proposal.
    ProposalId = "proposal";
    /// A review: a submitted proposal.
    ReviewId = "review";
    /// A run: one attempt at a step. Also its fencing token.
    RunId = "run";
    /// A version of the approval policy.
    PolicyNumber = "policy";
    /// A comment. The id of a thread is the id of its first comment.
    CommentId = "comment";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_number_error_names_its_kind() {
        assert_eq!("7".parse(), Ok(RunId(7)));
        for wrong in ["null", "", "7x", "99999999999999999999"] {
            let refused = wrong.parse::<ReviewId>().unwrap_err();
            assert_eq!(refused.to_string(), "The review must be a number, such as 7", "{wrong:?}");
        }
    }

    #[test]
    fn invalid_id_error_names_the_form() {
        let refused = "n1".parse::<NodeId>().unwrap_err().to_string();
        assert!(refused.starts_with("The id must be a UUID, such as"), "{refused}");
    }

    #[test]
    fn derived_ids_depend_on_every_part() {
        let (n, m) = (NodeId(Uuid::from_u128(1)), NodeId(Uuid::from_u128(2)));
        let (a, b) = (RoleName::parse("a").unwrap(), RoleName::parse("b").unwrap());
        let base = NoderoleId::of(n, &a, 0);
        assert_eq!(base, NoderoleId::of(n, &a, 0));
        for other in [NoderoleId::of(m, &a, 0), NoderoleId::of(n, &b, 0), NoderoleId::of(n, &a, 1)]
        {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn invalid_fqdn_error_names_problem() {
        for (text, part) in [
            ("web", "1 of at least 3 labels"),
            ("web.example", "2 of at least 3 labels"),
            ("web..example.com", "empty"),
            ("we b.example.com", "' '"),
            ("-web.example.com", "hyphen"),
            ("", "empty"),
        ] {
            let error = Fqdn::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!(Fqdn::parse("Web-1.Example.COM").unwrap().as_str(), "web-1.example.com");
    }

    #[test]
    fn names_reject_unsafe_characters() {
        for text in ["", "-x", "a b", "a/b", "é", "<b>", &"x".repeat(97)] {
            assert!(RoleName::parse(text).is_err(), "{text}");
        }
        assert!(RoleName::parse("rebar-api_service.v2").is_ok());
        let error = |text: &str| RoleName::parse(text).unwrap_err().to_string();
        assert_eq!(
            error("../x"),
            "The role name \"../x\" starts with '.'. Start it with a letter or digit"
        );
        assert!(error("a/../x").contains("contains '/'"));
    }
}
