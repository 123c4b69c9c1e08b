//! Checks of data that users entered.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::order::ancestors;
use super::{CheckFindings, LintContext};
use crate::blueprint::secret_uses::{SecretChange, secret_changes};
use crate::cluster::{Connection, NodeDoc, NoderoleKey};
use crate::data::schema::schema_errors;
use crate::data::secret::Descriptor;
use crate::data::{self, Change, ChangeKind, secret};
use crate::ids::{NodeId, NoderoleId};

/// The reviewed data of a noderole: the deployment's data for the role, with its own data on top.
fn reviewed(context: &LintContext<'_>, node: &NodeDoc, key: &NoderoleKey) -> Option<Value> {
    let noderole = node.noderoles.get(key)?;
    let shared = context
        .planned()
        .new
        .deployments
        .get(&noderole.deployment)
        .and_then(|d| d.doc.roles.get(&key.role));
    match shared {
        Some(shared) => data::merge(&shared.data, &noderole.data).ok(),
        None => Some(noderole.data.clone()),
    }
}

pub(super) fn schema_mismatch(context: &LintContext<'_>, findings: &mut CheckFindings) {
    for step in &context.planned().projection.steps {
        let Some(role) =
            context.role(step.role).filter(|role| role.attribs.iter().any(|a| a.schema.is_some()))
        else {
            continue;
        };
        let stored = context.planned().new.nodes.get(&step.node);
        let Some(value) = stored.and_then(|stored| reviewed(context, &stored.doc, &step.key))
        else {
            continue;
        };
        for attrib in &role.attribs {
            let Some(schema) = &attrib.schema else { continue };
            let path: String =
                attrib.map.iter().map(|key| format!("/{}", data::escaped(key))).collect();
            // A run can still add a missing value, but not one that a null removes.
            if is_removed_by_null(&value, &attrib.map)
                && schema.get("required").and_then(Value::as_bool) == Some(true)
            {
                let problem = format!("Value {path} is required, but a null removes it");
                let remedy =
                    format!("Remove the null, or set a value for attribute {}", attrib.name);
                findings.add_noderole(context, (step.node, &step.key), problem, remedy);
                continue;
            }
            let Some(value) = at(&value, &attrib.map) else { continue };
            for error in schema_errors(value, schema) {
                let problem = format!("Value {path}{} {}", error.path, error.problem);
                let remedy = format!("Change it to match the schema of attribute {}", attrib.name);
                findings.add_noderole(context, (step.node, &step.key), problem, remedy);
            }
        }
    }
}

fn is_removed_by_null(value: &Value, keys: &[String]) -> bool {
    let mut value = value;
    for key in keys {
        match value.get(key) {
            Some(Value::Null) => return true,
            Some(inner) => value = inner,
            None => return false,
        }
    }
    false
}

fn at<'v>(value: &'v Value, keys: &[String]) -> Option<&'v Value> {
    keys.iter().try_fold(value, |value, key| value.get(key))
}

/// A value that the change adds or changes.
struct WrittenValue<'a> {
    at: String,
    noderole: Option<NoderoleId>,
    path: &'a str,
    value: &'a Value,
}

/// Every added or changed value, read from the documents because the difference masks some.
fn written_values<'a>(context: &LintContext<'a>) -> Vec<WrittenValue<'a>> {
    let planned = context.subject.planned;
    let values =
        |changes: &'a [Change], data: &'a Value, at: String, noderole: Option<NoderoleId>| {
            let present = changes.iter().filter(|change| change.kind != ChangeKind::Removed);
            let values_present = present.filter_map(move |change| {
                Some((change.path.as_str(), data.pointer(&change.path)?))
            });
            values_present
                .map(move |(path, value)| WrittenValue { at: at.clone(), noderole, path, value })
                .collect::<Vec<_>>()
        };
    let mut all = Vec::new();
    for deployment in &planned.difference.deployments {
        let Some(stored) = planned.new.deployments.get(&deployment.id) else { continue };
        for role in &deployment.roles {
            let Some(doc) = stored.doc.roles.get(&role.role) else { continue };
            all.extend(values(
                &role.data,
                &doc.data,
                format!("{} in {}", role.role, deployment.name),
                None,
            ));
        }
    }
    for node in &planned.difference.nodes {
        let Some(stored) = planned.new.nodes.get(&node.id) else { continue };
        for noderole in &node.noderoles {
            let Some(doc) = stored.doc.noderoles.get(&noderole.noderole) else { continue };
            let place = context.location(node.id, &noderole.noderole);
            all.extend(values(&noderole.data, &doc.data, place, Some(noderole.id)));
        }
    }
    all
}

/// Visits every leaf value with its JSON pointer. A reference to a secret is a leaf.
fn leaves<'v>(value: &'v Value, path: String, visit: &mut dyn FnMut(&str, &'v Value)) {
    match value {
        Value::Object(map) if !secret::is_reference(value) => {
            for (key, inner) in data::ordered(map) {
                leaves(inner, format!("{path}/{}", data::escaped(key)), visit);
            }
        }
        Value::Array(list) => {
            for (n, inner) in list.iter().enumerate() {
                leaves(inner, format!("{path}/{n}"), visit);
            }
        }
        _ => visit(&path, value),
    }
}

const SECRET_REMEDY: &str = "Store it as a secret and refer to it with {\"$secret\": \"name\", \
                            \"version\": 1}. Replace the secret itself too, because it was written \
                            in plain text";

fn report_values(
    context: &LintContext<'_>,
    findings: &mut CheckFindings,
    remedy: &str,
    check: impl Fn(&str, &Value) -> Option<&'static str>,
) {
    for written in written_values(context) {
        leaves(written.value, written.path.to_owned(), &mut |path, value| {
            if let Some(problem) = check(path, value) {
                findings.push(
                    written.at.clone(),
                    written.noderole,
                    format!("Value {path} {problem}"),
                    remedy.to_owned(),
                );
            }
        });
    }
}

pub(super) fn plain_secret(context: &LintContext<'_>, findings: &mut CheckFindings) {
    report_values(context, findings, SECRET_REMEDY, |_, value| secret_format(value.as_str()?));
}

/// The kind of secret, if the text has a format that only secrets have.
fn secret_format(text: &str) -> Option<&'static str> {
    let word = |prefix: &str, length: usize| {
        text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| {
            word.strip_prefix(prefix).is_some_and(|rest| {
                rest.len() == length && rest.chars().all(|c| c.is_ascii_alphanumeric())
            })
        })
    };
    if text.contains("-----BEGIN ") && text.contains("PRIVATE KEY-----") {
        return Some("contains a private key");
    }
    let token = word("AKIA", 16)
        || word("ghp_", 36)
        || word("glpat_", 20)
        || text.contains("AGE-SECRET-KEY-1");
    token.then_some("contains an access token")
}

pub(super) fn invalid_secret_reference(context: &LintContext<'_>, findings: &mut CheckFindings) {
    let remedy = r#"Write {"$secret": "name", "version": 1} with both keys and no others"#;
    report_values(context, findings, remedy, |_, value| {
        (secret::is_reference(value) && secret::reference(value).is_none())
            .then_some("is not a complete reference to a secret")
    });
    let remedy = "Use the name under which workers store it. Its parts are separated by slashes, \
                  and no part may be empty or start with a dot";
    report_values(context, findings, remedy, |_, value| {
        let secret = secret::reference(value)?;
        secret
            .parts()
            .is_none()
            .then_some("refers to a secret with an invalid name, which no worker can find")
    });
}

/// Reports on each secret that data starts to use with this change.
fn begun(
    context: &LintContext<'_>,
    findings: &mut CheckFindings,
    check: impl Fn(&SecretChange) -> Option<(String, String)>,
) {
    for change in secret_changes(context.planned()).iter().filter(|change| change.is_new_to_runs())
    {
        let role = change.role.as_ref().map(|role| format!("{role} in ")).unwrap_or_default();
        if let Some((problem, remedy)) = check(change) {
            findings.add(format!("{role}{}", change.deployment), problem, remedy);
        }
    }
}

/// A secret is a node key if workers report it as one or a node's connection uses it.
pub(super) fn node_key_as_data(context: &LintContext<'_>, findings: &mut CheckFindings) {
    let keys = OnceCell::new();
    let of_nodes = || -> BTreeSet<&str> {
        let docs = context.planned().new.nodes.values().map(|stored| &stored.doc);
        let ssh = docs.filter_map(|doc| {
            if let Some(Connection::Ssh(ssh)) = &doc.connection { Some(ssh) } else { None }
        });
        ssh.map(|ssh| ssh.key.name.as_str()).collect()
    };
    begun(context, findings, |SecretChange { secret, inherited, .. }| {
        let known_secret = context.subject.secrets.and_then(|known| known.get(&secret.name));
        let is_node_key = known_secret
            .is_some_and(|known| matches!(known.descriptor, Some(Descriptor::NodeKey {})));
        let is_key = !inherited
            && (is_node_key || keys.get_or_init(of_nodes).contains(secret.name.as_str()));
        let problem = format!(
            "The role uses secret {secret}, which is a node key. Workers connect with it, and runs \
             never receive it"
        );
        is_key
            .then(|| (problem, "Store the value that the role needs as another secret".to_owned()))
    });
}

pub(super) fn unusable_secret(context: &LintContext<'_>, findings: &mut CheckFindings) {
    let Some(known) = context.subject.secrets else { return };
    begun(context, findings, |SecretChange { secret, deployment, inherited, .. }| {
        let file = format!("{}/secret.toml", secret.name);
        let Some(known) = known.get(&secret.name) else {
            return Some((
                format!("The role uses secret {secret}, which no worker has"),
                format!("Store it on every worker, together with {file}"),
            ));
        };
        match &known.descriptor {
            None => {
                let problem = format!(
                    "The role uses secret {secret}, but workers have no valid {file} for it, or \
                     different ones"
                );
                Some((
                    problem,
                    format!(
                        "Write {file} on every worker: kind = \"data\", deployments = [\"{deployment}\"]"
                    ),
                ))
            }
            Some(Descriptor::Data { .. })
                if known.descriptor.as_ref().is_some_and(|d| !d.allows(deployment.as_str())) =>
            {
                let (word, then) = match inherited {
                    true => ("The role would receive", "its runs receive only the reference"),
                    false => ("The role uses", "its runs will fail"),
                };
                let problem = format!(
                    "{word} secret {secret}, which deployment {deployment} may not use: {then}"
                );
                Some((
                    problem,
                    format!(
                        "Add \"{deployment}\" to deployments in {file} on every worker, or use another secret"
                    ),
                ))
            }
            Some(_) if !known.versions.contains(&secret.version) => {
                let problem = format!(
                    "The role uses secret {secret}, but no worker has this version among its \
                     newest ones"
                );
                Some((
                    problem,
                    format!(
                        "Store this version on every worker as {}/{}",
                        secret.name, secret.version
                    ),
                ))
            }
            Some(_) => None,
        }
    });
}

pub(super) fn suspected_secret(context: &LintContext<'_>, findings: &mut CheckFindings) {
    report_values(context, findings, SECRET_REMEDY, |path, value| {
        let text =
            value.as_str().filter(|text| !text.is_empty() && secret_format(text).is_none())?;
        // A path or URL of a secret reveals nothing about the secret.
        let elsewhere = text.starts_with('/') || text.contains("://");
        (!elsewhere && has_secret_name(path))
            .then_some("has a name like a secret, but its value is plain text")
    });
}

fn has_secret_name(path: &str) -> bool {
    // List entries are named after the list.
    let named = path.rsplit('/').find(|part| part.parse::<usize>().is_err()).unwrap_or_default();
    let name: String =
        named.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let ends = [
        "password",
        "passwd",
        "passphrase",
        "secret",
        "token",
        "apikey",
        "privatekey",
        "secretkey",
        "accesskey",
    ];
    ends.iter().any(|end| name.ends_with(end))
}

pub(super) fn shared_key(context: &LintContext<'_>, findings: &mut CheckFindings) {
    let mut touched: BTreeMap<NodeId, BTreeSet<&NoderoleKey>> = BTreeMap::new();
    for step in &context.planned().projection.steps {
        touched.entry(step.node).or_default().insert(&step.key);
    }
    for (id, touched) in touched {
        let Some(node) = context.planned().new.nodes.get(&id).map(|stored| &*stored.doc) else {
            continue;
        };
        let mut setters: BTreeMap<String, Vec<(&NoderoleKey, Value)>> = BTreeMap::new();
        for key in node.noderoles.keys() {
            let Some(value) = reviewed(context, node, key) else { continue };
            leaves(&value, String::new(), &mut |path, value| {
                if !path.is_empty() && !path.rsplit('/').any(|part| part.parse::<usize>().is_ok()) {
                    setters.entry(path.to_owned()).or_default().push((key, value.clone()));
                }
            });
        }
        let mut above = BTreeMap::new();
        for (path, setters) in setters {
            for (n, (first, one)) in setters.iter().enumerate() {
                for (second, other) in setters.iter().skip(n + 1) {
                    let new = touched.contains(first) || touched.contains(second);
                    if one != other && new && !related(&mut above, node, first, second) {
                        let problem = format!(
                            "Noderoles {first} and {second} both set {path}, but neither runs \
                             after the other"
                        );
                        findings.add(
                            context.fqdn(node.id),
                            problem,
                            "Set it in only one of them, or let one require the other",
                        );
                    }
                }
            }
        }
    }
}

/// Whether one of two noderoles of a node is an ancestor of the other. `above` caches the
/// ancestors, since many keys can concern the same pair.
fn related<'n>(
    above: &mut BTreeMap<&'n NoderoleKey, BTreeSet<&'n NoderoleKey>>,
    node: &'n NodeDoc,
    a: &'n NoderoleKey,
    b: &'n NoderoleKey,
) -> bool {
    let mut after = |later, earlier| {
        above.entry(later).or_insert_with(|| ancestors(node, later)).contains(earlier)
    };
    after(a, b) || after(b, a)
}
