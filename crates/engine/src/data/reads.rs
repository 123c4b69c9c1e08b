//! The hash of the input that a step reads, which tells whether an applied step is stale.
//!
//! A step reads from its hard parents. A parent without a run (a milestone or a barrier) stands for
//! its own hard parents, so a step reads from the members of its barriers. From each of these
//! noderoles it reads:
//!
//! * The identity: noderole, node, name and addresses. So a new or removed member changes the hash.
//! * The data with the output. If the role declares what it reads
//!   ([`crate::catalog::Role::read_paths`]), only these paths of the merged input count.
//!
//! Invariants:
//!
//! * The hash depends on what the noderoles contain, never on their generation or runs. A parent
//!   that runs again with the same output changes nothing.
//! * Data of the step itself is not part of it. Changes of that are reviewed intent
//!   (`OnChange` in the catalog).
//! * The order of the noderoles does not matter.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use super::{Contribution, DataError, layers};
use crate::canonical::{self, Hash};
use crate::ids::{Fqdn, NoderoleId};

/// A noderole that a step reads from.
#[derive(Debug, Clone)]
pub struct ReadNoderole<'a> {
    pub noderole: NoderoleId,
    /// The name of its node.
    pub fqdn: &'a Fqdn,
    /// The addresses of its node.
    pub addresses: &'a [String],
    pub seen: Contribution<'a>,
}

#[derive(Serialize)]
struct Member<'a> {
    noderole: NoderoleId,
    fqdn: &'a Fqdn,
    addresses: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Value>,
}

#[derive(Serialize)]
struct Input<'a> {
    members: Vec<Member<'a>>,
    /// The values at the declared paths, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    values: Vec<(String, Option<&'a Value>)>,
}

/// The hash of the input that a step reads from these noderoles. `visible` is the merged input of
/// its run. `paths` are the declared paths, each as keys from the top.
///
/// # Errors
/// Those of [`layers`] if the data of a noderole is not an object.
pub fn input_hash(
    paths: Option<&BTreeSet<Vec<String>>>,
    from: &[ReadNoderole<'_>],
    visible: &Value,
) -> Result<Hash, DataError> {
    let mut members = Vec::with_capacity(from.len());
    for read in from {
        let Contribution { step, own, output, .. } = read.seen;
        let data = match paths {
            Some(_) => None,
            None => Some(layers(step, own, Some(output))?.value),
        };
        let ReadNoderole { noderole, fqdn, addresses, .. } = *read;
        members.push(Member { noderole, fqdn, addresses, data });
    }
    members.sort_by_key(|member| member.noderole);
    let values = paths.into_iter().flatten().map(|keys| {
        let pointer = pointer(keys);
        let value = visible.pointer(&pointer);
        (pointer, value)
    });
    canonical::hash(&Input { members, values: values.collect() })
        .map_err(|error| DataError::NotCanonical { reason: error.to_string() })
}

fn pointer(keys: &[String]) -> String {
    keys.iter().map(|key| format!("/{}", super::escaped(key))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::data::{OwnData, StepOutput};
    use crate::ids::{RunId, StepId};

    struct Parent {
        noderole: NoderoleId,
        fqdn: Fqdn,
        addresses: Vec<String>,
        user: Value,
        output: Value,
    }

    impl Parent {
        fn new(n: u128, user: Value) -> Self {
            Self {
                noderole: NoderoleId(uuid::Uuid::from_u128(n)),
                fqdn: Fqdn::parse(&format!("n{n}.example.com")).unwrap(),
                addresses: vec![format!("10.0.0.{n}")],
                user,
                output: Value::Null,
            }
        }

        fn read(&self) -> ReadNoderole<'_> {
            ReadNoderole {
                noderole: self.noderole,
                fqdn: &self.fqdn,
                addresses: &self.addresses,
                seen: Contribution {
                    step: StepId(self.noderole.0),
                    rank: 0,
                    own: OwnData { user: &self.user, ..OwnData::NONE },
                    output: StepOutput { value: &self.output, run: None },
                },
            }
        }
    }

    fn hash(parents: &[Parent]) -> Hash {
        let read: Vec<_> = parents.iter().map(Parent::read).collect();
        input_hash(None, &read, &Value::Null).unwrap()
    }

    #[test]
    fn members_data_output_and_addresses_change_the_hash() {
        let port = json!({"app": {"port": 1}});
        let usual = || vec![Parent::new(1, port.clone()), Parent::new(2, port.clone())];
        let base = hash(&usual());

        let mut reversed = usual();
        reversed.reverse();
        assert_eq!(hash(&reversed), base);

        let changes: [fn(&mut Vec<Parent>); 5] = [
            |parents| drop(parents.pop()),
            |parents| parents.push(Parent::new(3, Value::Null)),
            |parents| parents[0].user = json!({"app": {"port": 2}}),
            |parents| parents[0].output = json!({"app": {"pid": 7}}),
            |parents| parents[1].addresses = vec!["10.9.9.9".into()],
        ];
        for (n, change) in changes.iter().enumerate() {
            let mut parents = usual();
            change(&mut parents);
            assert_ne!(hash(&parents), base, "change {n} must change the hash");
        }
    }

    #[test]
    fn declared_paths_ignore_other_data() {
        let paths = BTreeSet::from([vec!["app".to_owned(), "port".to_owned()]]);
        let of = |output: Value, port: u32| {
            let mut parent = Parent::new(1, Value::Null);
            parent.output = output;
            let visible = json!({"app": {"port": port, "pid": port}});
            input_hash(Some(&paths), &[parent.read()], &visible).unwrap()
        };
        assert_eq!(of(json!({"app": {"pid": 7}}), 80), of(json!({"app": {"pid": 8}}), 80));
        assert_ne!(of(Value::Null, 80), of(Value::Null, 81));
    }

    #[test]
    fn same_output_of_another_run_keeps_the_hash() {
        let mut parent = Parent::new(1, Value::Null);
        parent.output = json!({"a": 1});
        let mut other = parent.read();
        other.seen.output.run = Some(RunId(9));
        other.seen.rank = 4;
        let of = |read: ReadNoderole<'_>| input_hash(None, &[read], &Value::Null).unwrap();
        assert_eq!(of(parent.read()), of(other));
    }
}
