//! The jig classes: the worker's programs that run steps.
//!
//! This list is the only one. The importer, its suggestions and the worker's registry of jigs use
//! it. A new jig is one line here, one file in `worker/src/jig` and one arm in `Jigs::of`.

use serde::{Deserialize, Serialize};

macro_rules! jig_classes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A worker's program that runs steps. Files of other systems can name a class that no
        /// worker has. Such a file imports with a finding, and no step that needs the class is
        /// claimed.
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum JigClass {
            $($(#[$doc])* $variant,)*
            /// A class that this worker does not have.
            Other(String),
        }

        impl JigClass {
            /// All classes that workers have.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The class as files and the database spell it.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Other(name) => name,
                }
            }
        }
    };
}

jig_classes! {
    /// Runs scripts on the node through the node-side wrapper.
    Script = "script",
    /// A real run that does nothing.
    Noop = "noop",
    /// A run that its data controls: it can fail, take time or return data.
    Test = "test",
}

impl JigClass {
    /// The names of all classes that workers have.
    pub fn names<'a>() -> impl Iterator<Item = &'a str> {
        Self::ALL.iter().map(Self::as_str)
    }

    /// The class with this name, if workers have it. Jigs with these names need no declaration.
    pub fn built_in(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|class| class.as_str() == name).cloned()
    }

    /// The class with this name. An unknown name becomes [`JigClass::Other`].
    pub fn named(name: &str) -> Self {
        Self::built_in(name).unwrap_or_else(|| Self::Other(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::JigClass;

    #[test]
    fn built_in_classes_have_one_spelling() {
        for class in JigClass::ALL {
            assert_eq!(JigClass::built_in(class.as_str()).as_ref(), Some(class));
            assert_eq!(serde_json::to_value(class).expect("JSON"), class.as_str());
        }
        assert_eq!(JigClass::built_in("ansible"), None);
        assert_eq!(JigClass::named("ansible"), JigClass::Other("ansible".to_owned()));
    }
}
