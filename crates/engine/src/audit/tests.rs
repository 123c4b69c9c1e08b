//! Each test removes or alters one part of a small export. The verifier must name that part.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::export::{Check, End, FORMAT, Header, Line, Table, Totals, verify};
use super::*;
use crate::blueprint::{DocumentChange, change_hash, projection};
use crate::canonical::{Object, ObjectKind};
use crate::cluster::{NodeDoc, RootDoc};
use crate::ids::{ActionName, StepId};

const ADA: &str = "00000000-0000-0000-0000-00000000000a";
const BO: &str = "00000000-0000-0000-0000-00000000000b";
const DEPLOYMENT: &str = "00000000-0000-0000-0000-0000000000d0";
const NODE: &str = "00000000-0000-0000-0000-0000000000e0";
const SCRIPT: &str = "#!/bin/sh\n";

/// Builds an export. Entries are sealed in the order in which they are added.
#[derive(Clone, Default)]
struct Export {
    entries: Vec<Value>,
    rest: Vec<Line>,
}

impl Export {
    fn entry(&mut self, action: &str, subject: &str, detail: &Value) {
        let id = self.entries.len() + 1;
        self.entries
            .push(json!({"id": id, "action": action, "subject": subject, "detail": detail, "source": "database"}));
    }

    fn object(&mut self, kind: ObjectKind, value: &Value) -> Hash {
        let object = Object::of(kind, value).unwrap();
        let body = String::from_utf8(object.body).unwrap();
        self.rest.push(Line::Object { kind, hash: object.hash, body: Some(body), hex: None });
        object.hash
    }

    fn row(&mut self, table: Table, row: &Value) {
        let Value::Object(row) = row.clone() else { panic!("expected an object") };
        self.rest.push(Line::Row { table, row, documents: None });
    }

    fn lines(&self) -> Vec<String> {
        let mut chain = Chain::default();
        let mut lines = Vec::new();
        for content in &self.entries {
            let content = content.to_string();
            let hash = link(chain.hash, &content);
            let sealed = SealedEntry { seq: chain.last + 1, previous: chain.hash, hash, content };
            chain.add(&sealed).unwrap();
            lines.push(Line::Audit(sealed));
        }
        lines.extend(self.rest.iter().cloned());
        let mut totals = Totals::default();
        lines.iter().for_each(|line| totals.count(line));
        let header = Header { format: FORMAT, after: 0, end: chain.last, hash: chain.hash };
        lines.insert(0, Line::Header(header));
        lines.push(Line::End(End { end: chain.last, hash: chain.hash, totals }));
        lines.iter().map(|line| serde_json::to_string(line).unwrap()).collect()
    }

    fn verify(&self) -> Result<(), ChainDefect> {
        verify(self.lines().iter().map(String::as_str)).map(drop)
    }
}

fn bytea(hash: Hash) -> String {
    format!("\\x{hash}")
}

fn node_doc(role: Hash, port: u64) -> Value {
    json!({"id": NODE, "fqdn": "n1.x.example", "deployment": DEPLOYMENT, "phantom": false, "noderoles": {
        "app": {"deployment": DEPLOYMENT, "role": role, "data": {"port": port}, "reruns": 0, "rank": 0, "parents": []}}})
}

/// A history: genesis, a reviewed change of a node, and a run of it.
fn history() -> Export {
    history_with(0)
}

/// The same, after an account of the reviewer was disabled and enabled.
fn history_with(void_to: i64) -> Export {
    let mut e = Export::default();
    for (id, permission) in [(ADA, "operator"), (BO, "reviewer")] {
        e.entry(
            "person.insert",
            id,
            &json!({"id": id, "kind": "human", "disabled": false, "permissions": ["viewer", permission],
                "verdicts_void_to": void_to}),
        );
    }
    let script = Hash::of_bytes(SCRIPT.as_bytes());
    e.rest.push(Line::Object {
        kind: ObjectKind::Script,
        hash: script,
        body: Some(SCRIPT.to_owned()),
        hex: None,
    });
    let role = e.object(
        ObjectKind::Role,
        &json!({"name": "app", "scripts": [{"name": "run", "hash": script}]}),
    );
    let barclamp = e.object(
        ObjectKind::Barclamp,
        &json!({"name": "house", "version": "1", "roles": {"app": role}}),
    );
    let policy = e.object(ObjectKind::Policy, &json!({"approvals": 1, "by_risk": {}}));
    let imported = json!({"name": "house", "version": "1", "hash": bytea(barclamp)});
    e.row(Table::Barclamp, &imported);
    let first = json!({"number": 1, "hash": bytea(policy), "blueprint_number": 1});
    e.row(Table::Policy, &first);

    let deployment = json!({"id": DEPLOYMENT, "name": "system", "parent": null, "phantom": NODE,
        "barclamps": {"house": barclamp},
        "roles": {"app": {"role": role, "data": {}}}});
    let (old, new) = (node_doc(role, 1), node_doc(role, 2));
    let hash_of = |value: &Value| crate::canonical::hash(value).unwrap();
    let change = DocumentChange::Node {
        id: NODE.parse().unwrap(),
        old: Some(hash_of(&old)),
        new: Some(hash_of(&new)),
    };
    let review = json!({"id": 1, "change_hash": bytea(change_hash(&[change]).unwrap()), "policy_number": 1,
        "approvals_needed": 1, "epoch": 1, "risk": ["rerun"], "authors": [ADA], "created_by": ADA,
        "created_at": "2026-01-02T00:00:00+00:00"});
    let Value::Object(row) = review.clone() else { panic!("expected an object") };
    e.rest.push(Line::Row { table: Table::Review, row, documents: Some(vec![change]) });
    let verdict = json!({"id": 1, "review_id": 1, "person_id": BO, "kind": "approve", "at": "2026-01-02T01:00:00.5+00:00"});
    e.row(Table::Verdict, &verdict);

    let root = |node: &Value| {
        let mut root = RootDoc::default();
        root.deployments.insert(DEPLOYMENT.parse().unwrap(), hash_of(&deployment));
        root.nodes.insert(NODE.parse().unwrap(), hash_of(node));
        serde_json::to_value(root).unwrap()
    };
    let root_1 = e.object(ObjectKind::Root, &root(&old));
    e.object(ObjectKind::Deployment, &deployment);
    e.object(ObjectKind::Node, &old);
    let genesis =
        json!({"number": 1, "kind": "genesis", "root": bytea(root_1), "enabled": true, "epoch": 1});
    e.row(Table::Blueprint, &genesis);
    let root_2 = e.object(ObjectKind::Root, &root(&new));
    e.object(ObjectKind::Node, &new);
    let blueprint = json!({"number": 2, "parent": 1, "kind": "change", "root": bytea(root_2), "review_id": 1, "enabled": true,
        "epoch": 1, "committed_by": ADA});
    e.row(Table::Blueprint, &blueprint);

    let doc: NodeDoc = serde_json::from_value(new).unwrap();
    let (key, noderole) = doc.noderoles.iter().next().unwrap();
    let roles: crate::cluster::DeploymentDoc = serde_json::from_value(deployment).unwrap();
    let run = json!({"id": 1, "step_id": StepId::run_of(key.id(doc.id)), "node_id": NODE, "generation": 2,
        "blueprint_number": 2, "epoch": 1,
        "content_hash": bytea(projection::content(noderole, roles.roles.get(&key.role), &ActionName::run()).unwrap())});
    let ended = merged(&run, &json!({"outcome": "succeeded"}));
    e.row(Table::Run, &ended);

    e.entry("barclamp.insert", "house 1", &imported);
    e.entry("blueprint.insert", "1", &genesis);
    e.entry("policy.insert", "1", &first);
    e.entry("review.insert", "1", &review);
    e.entry("verdict.insert", "1", &verdict);
    e.entry("blueprint.insert", "2", &blueprint);
    e.entry("run.start", "1", &run);
    e.entry("run.end", "1", &ended);
    e
}

/// The history, then a reviewed removal of the noderole and a run of its removal step. The run has
/// the content that `content` makes of the approved one.
fn history_with_removal(content: impl Fn(Hash) -> Hash) -> Export {
    let mut e = history();
    let body = |line: &Line| match line {
        Line::Object { body: Some(body), .. } => serde_json::from_str::<Value>(body).unwrap(),
        _ => panic!("expected an object"),
    };
    let [node, root, deployment] = [ObjectKind::Node, ObjectKind::Root, ObjectKind::Deployment]
        .map(|kind| body(&e.rest[last_of(&e, object_of(kind))]));
    let empty = merged(&node, &json!({"noderoles": {}}));
    let hash_of = |value: &Value| crate::canonical::hash(value).unwrap();
    let change = DocumentChange::Node {
        id: NODE.parse().unwrap(),
        old: Some(hash_of(&node)),
        new: Some(hash_of(&empty)),
    };
    let review = json!({"id": 2, "change_hash": bytea(change_hash(&[change]).unwrap()), "policy_number": 1,
        "approvals_needed": 1, "epoch": 1, "risk": ["removal"], "authors": [ADA], "created_by": ADA,
        "created_at": "2026-01-03T00:00:00+00:00"});
    let verdict = json!({"id": 2, "review_id": 2, "person_id": BO, "kind": "approve", "at": "2026-01-03T01:00:00+00:00"});
    let line = |table, row: &Value, documents| {
        let Value::Object(row) = row.clone() else { panic!("expected an object") };
        Line::Row { table, row, documents }
    };
    // Reviews come before the targets.
    let at = last_of(&e, row_of(Table::Verdict)) + 1;
    e.rest.insert(at, line(Table::Verdict, &verdict, None));
    e.rest.insert(at, line(Table::Review, &review, Some(vec![change])));

    let mut root: RootDoc = serde_json::from_value(root).unwrap();
    root.nodes.insert(NODE.parse().unwrap(), hash_of(&empty));
    let root = e.object(ObjectKind::Root, &serde_json::to_value(root).unwrap());
    e.object(ObjectKind::Node, &empty);
    let target = json!({"number": 3, "parent": 2, "kind": "change", "root": bytea(root), "review_id": 2, "enabled": true,
        "epoch": 1, "committed_by": ADA});
    e.row(Table::Blueprint, &target);
    let doc: NodeDoc = serde_json::from_value(node).unwrap();
    let deployment: crate::cluster::DeploymentDoc = serde_json::from_value(deployment).unwrap();
    let (key, noderole) = doc.noderoles.iter().next().unwrap();
    let action = ActionName::remove();
    let approved = projection::content(noderole, deployment.roles.get(&key.role), &action).unwrap();
    let run = json!({"id": 2, "step_id": StepId::of(key.id(doc.id), &action), "node_id": NODE, "generation": 3,
        "blueprint_number": 3, "epoch": 1, "content_hash": bytea(content(approved))});
    let ended = merged(&run, &json!({"outcome": "succeeded"}));
    e.row(Table::Run, &ended);
    e.entry("review.insert", "2", &review);
    e.entry("verdict.insert", "2", &verdict);
    e.entry("blueprint.insert", "3", &target);
    e.entry("run.start", "2", &run);
    e.entry("run.end", "2", &ended);
    e
}

#[test]
fn approved_removal_is_verified_with_its_content() {
    history_with_removal(|approved| approved).verify().unwrap();
    let other = history_with_removal(|_| Hash::of_bytes(b"other"));
    assert_named(&other, "run 2: it ran other content than blueprint 3 removes");
}

fn merged(value: &Value, other: &Value) -> Value {
    let mut value = value.clone();
    value.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
    value
}

fn row_of(table: Table) -> impl Fn(&Line) -> bool {
    move |line| matches!(line, Line::Row { table: found, .. } if *found == table)
}

fn last_of(e: &Export, is_match: impl Fn(&Line) -> bool) -> usize {
    e.rest.iter().rposition(is_match).unwrap()
}

fn object_of(kind: ObjectKind) -> impl Fn(&Line) -> bool {
    move |line| matches!(line, Line::Object { kind: found, .. } if *found == kind)
}

/// Changes both a row and the entry that records it, like an attacker with the whole chain.
fn forged(table: Table, field: &str, value: Value) -> Export {
    let mut e = history();
    let at = last_of(&e, row_of(table));
    if let Line::Row { row, .. } = &mut e.rest[at] {
        row.insert(field.to_owned(), value.clone());
    }
    let action = format!("{}.", table.as_str());
    let last = e
        .entries
        .iter()
        .rposition(|entry| entry["action"].as_str().unwrap().starts_with(&action))
        .unwrap();
    e.entries[last]["detail"][field] = value;
    e
}

#[track_caller]
fn assert_named(e: &Export, name: &str) {
    match e.verify() {
        Err(ChainDefect::Proof { subject, reason })
            if format!("{subject}: {reason}").contains(name) => {}
        other => panic!("the error does not name {name}: {other:?}"),
    }
}

#[test]
fn unaltered_history_is_verified() {
    let lines = history().lines();
    let proven = verify(lines.iter().map(String::as_str)).unwrap();
    assert!(proven.whole);
    let totals = &proven.totals;
    assert_eq!(
        (totals.blueprints, totals.verdicts, totals.runs, totals.policies, totals.reviews),
        (2, 1, 1, 1, 1)
    );
}

/// Each kind of document, with the name that the verifier reports.
const DOCUMENTS: [(&str, ObjectKind); 7] = [
    ("barclamp house 1: its document", ObjectKind::Barclamp),
    ("role app of barclamp house 1: its document", ObjectKind::Role),
    ("script run of role app of barclamp house 1: its document", ObjectKind::Script),
    ("policy 1: its document", ObjectKind::Policy),
    ("the root of blueprint 2: its document", ObjectKind::Root),
    (
        "deployment 00000000-0000-0000-0000-0000000000d0 of blueprint 1: its document",
        ObjectKind::Deployment,
    ),
    ("node 00000000-0000-0000-0000-0000000000e0 of blueprint 2: its document", ObjectKind::Node),
];

#[test]
fn removed_rows_are_named() {
    for (name, table) in [
        ("barclamp house 1: it is missing", Table::Barclamp),
        ("policy 1: it is missing", Table::Policy),
        ("review 1: it is missing", Table::Review),
        ("verdict 1: it is missing", Table::Verdict),
        ("blueprint 2: it is missing", Table::Blueprint),
        ("run 1: it is missing", Table::Run),
    ] {
        let mut e = history();
        let at = last_of(&e, row_of(table));
        e.rest.remove(at);
        assert_named(&e, name);
    }
}

#[test]
fn removed_documents_are_named() {
    for (name, kind) in DOCUMENTS {
        let mut e = history();
        let at = last_of(&e, object_of(kind));
        e.rest.remove(at);
        let Err(ChainDefect::Proof { subject, reason }) = e.verify() else { panic!("{name}") };
        let text = format!("{subject}: {reason}");
        assert!(text.starts_with(name) && text.ends_with("is missing"), "{text}");
    }
}

#[test]
fn altered_documents_are_named() {
    for (name, kind) in DOCUMENTS {
        let mut e = history();
        let at = last_of(&e, object_of(kind));
        let Line::Object { body: Some(body), .. } = &mut e.rest[at] else {
            panic!("expected an object")
        };
        body.push(' ');
        let Err(ChainDefect::Proof { subject, reason }) = e.verify() else { panic!("{name}") };
        let text = format!("{subject}: {reason}");
        assert!(
            text.starts_with(name) && text.ends_with("was altered: its bytes have another hash"),
            "{text}"
        );
    }
    // A document that no line names.
    let mut e = history();
    let hash = Hash::of_bytes(b"another script");
    let unused =
        Line::Object { kind: ObjectKind::Script, hash, body: Some(SCRIPT.to_owned()), hex: None };
    e.rest.insert(0, unused);
    assert_named(&e, &format!("a script that no line names: its document {hash} was altered"));
}

#[test]
fn altered_rows_are_named() {
    for (table, field, value) in [
        (Table::Verdict, "kind", json!("reject")),
        (Table::Run, "outcome", json!("failed")),
        (Table::Run, "step_id", json!(NODE)),
        (Table::Blueprint, "committed_by", json!(BO)),
        (Table::Policy, "blueprint_number", json!(2)),
        (Table::Review, "authors", json!([])),
    ] {
        let mut e = history();
        let at = last_of(&e, row_of(table));
        let Line::Row { row, .. } = &mut e.rest[at] else { panic!("expected a row") };
        row.insert(field.to_owned(), value);
        assert_named(&e, "it was altered: entry");
    }
    let mut e = history();
    let at = last_of(&e, row_of(Table::Review));
    let Line::Row { documents: Some(documents), .. } = &mut e.rest[at] else {
        panic!("expected a review")
    };
    documents.clear();
    assert_named(&e, "review 1: its documents were altered");
}

#[test]
fn forged_history_is_rejected() {
    let cases = [
        (forged(Table::Verdict, "person_id", json!(ADA)), "0 of the 1 approvals"),
        (forged(Table::Verdict, "kind", json!("request_changes")), "objected to review 1"),
        (forged(Table::Review, "approvals_needed", json!(2)), "1 of the 2 approvals"),
        (forged(Table::Review, "epoch", json!(2)), "before a backup was restored"),
        (forged(Table::Review, "signed", json!(true)), "0 of the 1 signed approvals"),
        (forged(Table::Review, "policy_number", json!(2)), "policy 2"),
        (forged(Table::Review, "authors", json!([ADA, BO])), "0 of the 1 approvals"),
        (
            forged(Table::Run, "content_hash", json!(bytea(Hash::of_bytes(b"x")))),
            "run 1: it ran other content",
        ),
        (forged(Table::Run, "step_id", json!(NODE)), "run 1: no document of blueprint 2"),
        (forged(Table::Run, "blueprint_number", json!(3)), "blueprint 3"),
        (forged(Table::Run, "generation", json!(3)), "run 1: its generation 3"),
        (
            forged(Table::Blueprint, "root", json!(bytea(Hash::of_bytes(b"x")))),
            "the root of blueprint 2: its document",
        ),
        (forged(Table::Blueprint, "kind", json!("switch")), "blueprint 2: a switch"),
    ];
    for (e, name) in cases {
        assert_named(&e, name);
    }
}

#[test]
fn disabled_reviewer_approval_is_not_counted() {
    let mut e = history();
    let disabled =
        json!({"id": BO, "kind": "human", "disabled": true, "permissions": ["viewer", "reviewer"]});
    let before = e
        .entries
        .iter()
        .position(|entry| entry["action"] == "blueprint.insert" && entry["subject"] == "2")
        .unwrap();
    e.entries.insert(
        before,
        json!({"action": "person.update", "subject": BO, "detail": disabled, "source": "database"}),
    );
    assert_named(&e, "0 of the 1 approvals");
}

#[test]
fn row_without_entry_is_named() {
    let mut e = history();
    let run = e.entries.len() - 2;
    e.entries.truncate(run);
    assert_named(&e, "run 1: the audit has no entry");
}

#[test]
fn any_removed_line_is_detected() {
    let lines = history().lines();
    for removed in 0..lines.len() {
        let rest =
            lines.iter().enumerate().filter(|(n, _)| *n != removed).map(|(_, line)| line.as_str());
        assert!(verify(rest).is_err(), "{}", lines[removed]);
    }
}

#[test]
fn expected_link_detects_truncated_or_recomputed_chain() {
    let e = history();
    let lines = e.lines();
    let proven = verify(lines.iter().map(String::as_str)).unwrap();
    let check = |seq, hash, lines: &[String]| {
        let mut check = Check::expecting([(seq, hash)]);
        lines.iter().try_for_each(|line| check.line(line)).and_then(|()| check.finish().map(drop))
    };
    let (last, hash) = (proven.chain.last, proven.chain.hash);
    assert_eq!(check(last, hash, &lines), Ok(()));
    let other = Hash::of_bytes(b"another chain");
    assert_eq!(
        check(last, other, &lines),
        Err(ChainDefect::Recomputed { seq: last, expected: other, found: hash })
    );
    // An attacker who cuts the chain also rewrites the header and the end.
    let mut cut = e.clone();
    cut.entries.truncate(2);
    cut.rest.clear();
    assert_eq!(cut.verify(), Ok(()), "the shortened chain is valid in itself");
    assert_eq!(
        check(last, hash, &cut.lines()),
        Err(ChainDefect::MissingTail { from: 3, to: last })
    );
}

#[test]
fn partial_export_proves_only_its_chain() {
    let lines = history().lines();
    let sealed: Vec<&String> =
        lines.iter().filter(|line| line.contains("\"type\":\"audit\"")).collect();
    let Ok(Line::Audit(before)) = serde_json::from_str(sealed[1]) else {
        panic!("expected an audit entry")
    };
    let Ok(Line::Audit(last)) = serde_json::from_str(sealed[sealed.len() - 1]) else {
        panic!("expected an audit entry")
    };
    let totals = Totals { entries: sealed.len() as u64 - 2, ..Totals::default() };
    let header = Line::Header(Header { format: FORMAT, after: 2, end: last.seq, hash: last.hash });
    let end = Line::End(End { end: last.seq, hash: last.hash, totals });
    let text = |line: &Line| serde_json::to_string(line).unwrap();
    let part: Vec<String> = [text(&header)]
        .into_iter()
        .chain(sealed[2..].iter().map(|line| (*line).clone()))
        .chain([text(&end)])
        .collect();
    let proven = verify(part.iter().map(String::as_str)).unwrap();
    assert!(!proven.whole && proven.chain.from == before.hash);
    assert!(verify(part[..part.len() - 1].iter().map(String::as_str)).is_err());
}

proptest! {
    #[test]
    fn altered_byte_is_detected(line in any::<prop::sample::Index>(), at in any::<prop::sample::Index>()) {
        let mut lines = history().lines();
        let line = line.index(lines.len());
        let mut bytes = lines[line].clone().into_bytes();
        let at = at.index(bytes.len());
        // Changes a letter or digit. The only other text is the names of fields that nothing reads.
        prop_assume!(bytes[at].is_ascii_hexdigit());
        bytes[at] = if bytes[at] == b'1' { b'2' } else { b'1' };
        lines[line] = String::from_utf8(bytes).unwrap();
        prop_assert!(verify(lines.iter().map(String::as_str)).is_err(), "{}", lines[line]);
    }
}

#[test]
fn approval_from_before_disabling_does_not_count() {
    let error = history_with(1).verify().unwrap_err().to_string();
    assert!(error.contains("0 of the 1 approvals"), "{error}");
}

const CY: &str = "00000000-0000-0000-0000-00000000000c";

#[test]
fn approval_with_new_access_does_not_count() {
    // Person, giver, kind, time. The review was submitted at the beginning of January 2nd.
    let (recent, old) = ("2026-01-01T20:00:00+00:00", "2025-12-31T00:30:00+00:00");
    for (changes, counts) in [
        (vec![(BO, ADA, "link", recent)], false),
        (vec![(BO, ADA, "link", old)], true),
        (vec![(BO, BO, "link", recent)], true),
        (vec![(BO, CY, "link", recent)], true),
        // One admin made the author and the reviewer.
        (vec![(ADA, CY, "created", recent), (BO, CY, "created", recent)], false),
        (vec![(ADA, CY, "created", old), (BO, CY, "created", recent)], true),
        // The reviewer made the author, or has a link for them.
        (vec![(ADA, BO, "created", recent)], false),
        (vec![(ADA, BO, "link", recent)], false),
        (vec![(ADA, BO, "link", old)], true),
        // Another admin made the reviewer after the submission.
        (vec![(BO, CY, "granted", "2026-01-02T00:30:00+00:00")], false),
        (vec![(BO, CY, "granted", "2026-01-02T01:30:00+00:00")], true),
    ] {
        let mut e = history();
        for (id, (person, by, kind, at)) in changes.iter().enumerate() {
            let change = json!({"id": id, "person_id": person, "kind": kind, "by": by, "at": at});
            e.entry("access_change.insert", &id.to_string(), &change);
        }
        match e.verify() {
            Ok(()) => assert!(counts, "{changes:?}"),
            Err(error) => {
                let error = error.to_string();
                assert!(!counts && error.contains("an author was new"), "{changes:?}: {error}");
            }
        }
    }
}
