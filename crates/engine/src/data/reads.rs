//! The hash of the input that a step reads, which tells whether an applied step is stale.
//!
//! A step reads from its hard parents. A parent without a run (a milestone or a barrier) stands for
//! its own hard parents, so a step reads from the members of its barriers. From each of these
//! noderoles it reads:
//!
//! * The identity: noderole, node, name and addresses. So a new or removed member changes the hash.
//! * The data with the output. If the role declares what it reads, only the declared paths count,
//!   in the merged input of the run.
//!
//! Invariants:
//!
//! * The hash depends on what the noderoles contain, never on their generation or runs. A parent
//!   that runs again with the same output changes nothing.
//! * Data of the step itself is not part of it. Changes of that are reviewed intent
//!   ([`crate::catalog::OnChange`]).
//! * The order of the noderoles does not matter.

use serde::Serialize;
use serde_json::Value;

use super::{Contribution, DataError, layers};
use crate::canonical::{self, Hash};
use crate::catalog::{Attrib, Role};
use crate::ids::{Fqdn, NoderoleId};

/// A noderole that a step reads from.
#[derive(Debug, Clone)]
pub struct ReadNoderole<'a> {
    pub noderole: NoderoleId,
    /// The name of its node.
    pub fqdn: &'a Fqdn,
    /// The addresses of its node.
    pub addresses: &'a [String],
    /// The attributes of its role.
    pub attribs: &'a [Attrib],
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

/// The hash of the input that a step of this role reads. `visible` is the merged input of its run.
///
/// # Errors
/// Those of [`layers`] if the data of a noderole is not an object.
pub fn input_hash(
    role: &Role,
    from: &[ReadNoderole<'_>],
    visible: &Value,
) -> Result<Hash, DataError> {
    let declares = !role.run.reads.is_empty() || !role.wants.is_empty();
    let mut members = Vec::with_capacity(from.len());
    for read in from {
        let Contribution { step, own, output, .. } = read.seen;
        let data = match declares {
            true => None,
            false => Some(layers(step, own, Some(output))?.value),
        };
        let ReadNoderole { noderole, fqdn, addresses, .. } = *read;
        members.push(Member { noderole, fqdn, addresses, data });
    }
    members.sort_by_key(|member| member.noderole);
    let values = paths(role, from).into_iter().map(|pointer| {
        let value = visible.pointer(&pointer);
        (pointer, value)
    });
    canonical::hash(&Input { members, values: values.collect() })
        .map_err(|error| DataError::NotCanonical { reason: error.to_string() })
}

/// The declared paths and those of the wanted attributes as JSON pointers, each once.
fn paths(role: &Role, from: &[ReadNoderole<'_>]) -> Vec<String> {
    let wanted = from
        .iter()
        .flat_map(|read| read.attribs)
        .filter(|attrib| role.wants.contains(&attrib.name))
        .map(|attrib| &attrib.map);
    let mut pointers: Vec<String> = role.run.reads.iter().chain(wanted).map(pointer).collect();
    pointers.sort();
    pointers.dedup();
    pointers
}

fn pointer(keys: &Vec<String>) -> String {
    keys.iter().map(|key| format!("/{}", super::escaped(key))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::data::{OwnData, StepOutput};
    use crate::ids::{AttribName, StepId};

    struct Member {
        noderole: NoderoleId,
        fqdn: Fqdn,
        addresses: Vec<String>,
        attribs: Vec<Attrib>,
        user: Value,
        output: Value,
    }

    impl Member {
        fn new(n: u128, user: Value) -> Self {
            Self {
                noderole: NoderoleId(uuid::Uuid::from_u128(n)),
                fqdn: Fqdn::parse(&format!("n{n}.example.com")).unwrap(),
                addresses: vec![format!("10.0.0.{n}")],
                attribs: Vec::new(),
                user,
                output: Value::Null,
            }
        }

        fn read(&self) -> ReadNoderole<'_> {
            ReadNoderole {
                noderole: self.noderole,
                fqdn: &self.fqdn,
                addresses: &self.addresses,
                attribs: &self.attribs,
                seen: Contribution {
                    step: StepId(self.noderole.0),
                    rank: 0,
                    own: OwnData { user: &self.user, ..OwnData::NONE },
                    output: StepOutput { value: &self.output, run: None },
                },
            }
        }
    }

    fn role() -> Role {
        let role = json!({"name": "proxy", "barclamp": "stack", "jig": "script",
            "jig_class": "script"});
        serde_json::from_value(role).unwrap()
    }

    fn hash(role: &Role, members: &[Member], visible: Value) -> Hash {
        let read: Vec<_> = members.iter().map(Member::read).collect();
        input_hash(role, &read, &visible).unwrap()
    }

    #[test]
    fn members_data_output_and_addresses_change_the_hash() {
        let (role, port) = (role(), json!({"app": {"port": 1}}));
        let usual = || vec![Member::new(1, port.clone()), Member::new(2, port.clone())];
        let of = |members: &[Member]| hash(&role, members, Value::Null);
        let base = of(&usual());

        let mut reversed = usual();
        reversed.reverse();
        assert_eq!(of(&reversed), base);

        let changes: [fn(&mut Vec<Member>); 5] = [
            |members| drop(members.pop()),
            |members| members.push(Member::new(3, Value::Null)),
            |members| members[0].user = json!({"app": {"port": 2}}),
            |members| members[0].output = json!({"app": {"pid": 7}}),
            |members| members[1].addresses = vec!["10.9.9.9".into()],
        ];
        for (n, change) in changes.iter().enumerate() {
            let mut members = usual();
            change(&mut members);
            assert_ne!(of(&members), base, "change {n}");
        }
    }

    #[test]
    fn declared_paths_ignore_other_data() {
        let mut role = role();
        role.run.reads = vec![vec!["app".into(), "port".into()]];
        let of = |output: Value, port: u32| {
            let mut member = Member::new(1, Value::Null);
            member.output = output;
            hash(&role, &[member], json!({"app": {"port": port, "pid": port}}))
        };
        assert_eq!(of(json!({"app": {"pid": 7}}), 80), of(json!({"app": {"pid": 8}}), 80));
        assert_ne!(of(Value::Null, 80), of(Value::Null, 81));
    }

    #[test]
    fn wanted_attributes_are_read_at_their_map() {
        let mut role = role();
        let name = AttribName::parse("app-port").unwrap();
        role.wants = vec![name.clone()];
        let of = |visible: Value| {
            let mut member = Member::new(1, Value::Null);
            member.attribs = vec![Attrib {
                name: name.clone(),
                map: vec!["app".into(), "port".into()],
                description: String::new(),
                default: None,
                schema: None,
            }];
            hash(&role, &[member], visible)
        };
        assert_eq!(of(json!({"app": {"port": 1}, "x": 1})), of(json!({"app": {"port": 1}})));
        assert_ne!(of(json!({"app": {"port": 2}})), of(json!({"app": {"port": 1}})));
    }

    #[test]
    fn same_output_of_another_run_keeps_the_hash() {
        let role = role();
        let mut member = Member::new(1, Value::Null);
        member.output = json!({"a": 1});
        let mut other = member.read();
        other.seen.output.run = Some(crate::ids::RunId(9));
        other.seen.rank = 4;
        let of = |read: ReadNoderole<'_>| input_hash(&role, &[read], &Value::Null).unwrap();
        assert_eq!(of(member.read()), of(other));
    }
}
