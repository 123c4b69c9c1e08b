//! Adds many nodes at once from a text with one node per line.
//!
//! ```text
//! # rack 1
//! web-7.rack1.example.com  ssh=10.0.3.7 ssh=10.0.4.7 key=deploy/ssh host_key="ssh-ed25519 AAAA..."
//! web-8.rack1.example.com  root=/srv/nodes/web-8
//! mac=00:25:90:aa:00:01 domain=rack1.example.com root=/srv/nodes/web-9
//! ```
//!
//! A line has a name and fields, or only fields if the name can be derived from them. Blanks
//! separate them; values with spaces are in double quotes. `#` starts a comment. The fields are the
//! options of `gantry node add`. Each record follows the rules for a single node
//! ([`crate::nodes::records`]).
//!
//! Invariants:
//! * All or none: one transaction adds all records.
//! * A refusal lists all errors that one pass can find, by line. Errors in the text itself come
//!   first, then conflicts with existing nodes. A savepoint per line keeps one conflict from hiding
//!   the next.
//! * Parsing stops at the limits [`INVENTORY`] and [`INVENTORY_BYTES`]. A refusal lists at most
//!   [`INVENTORY_ERRORS`] lines, because a redirect may have to carry it in a URL.

use std::collections::BTreeMap;
use std::str::FromStr;

use api::Problem;
use api::limits::{INVENTORY, INVENTORY_BYTES, INVENTORY_ERRORS};
use api::nodes::{AddedNode, AddedNodes, INVENTORY_FIELDS};
use api::nodes::{NodeRequest, SshRequest};
use api::problem::Finding;
use engine::ids::{DeploymentId, NodeId, PersonId};
use sqlx::{Acquire as _, PgConnection};

use crate::nodes::records::ValidatedRecord;
use crate::people::{Actor, Permission};
use crate::problems::from_store;
use crate::text::{plain, quoted};
use crate::{Control, done};

/// Record fields whose name in a line differs.
const FIELD_NAMES: [(&str, &str); 2] = [("macs: ", "mac: "), ("addresses: ", "ssh: ")];
/// Fields that a line may repeat.
const REPEATABLE: [&str; 2] = ["mac", "ssh"];
/// The fields of an SSH connection.
const SSH_FIELDS: [&str; 6] = ["ssh", "port", "user", "key", "key_version", "host_key"];

impl Control {
    /// Adds the nodes in a text, all or none, with the rules of [`Self::add_node`].
    pub async fn add_nodes(&self, actor: &Actor, text: &str) -> Result<AddedNodes, Problem> {
        actor.require(Permission::Operator)?;
        let fits = self.fits(read(text)?)?;
        self.added.count_text(actor.person, fits.iter().map(|(_, fit)| fit.addresses()).sum())?;
        let system = self.current_state().await?.system()?;
        let by = Some(actor.person);
        let mut transaction = self.begin().await?;
        actor.revalidate(&mut transaction).await?.require(Permission::Operator)?;
        store::nodes::lock_node_inserts(&mut transaction).await.map_err(from_store)?;
        let (mut added, mut faults) = (Vec::with_capacity(fits.len()), Vec::new());
        for (number, fit) in &fits {
            match insert_in_savepoint(&mut transaction, fit, system, by).await? {
                Ok(node) => added.push((node, fit)),
                Err(problem) => faults.push(line_finding(*number, problem.detail)),
            }
        }
        if !faults.is_empty() {
            return Err(refused(
                |detail| Problem::conflict("nodes_refused", detail),
                faults,
                fits.len(),
            ));
        }
        for (node, fit) in &added {
            fit.note(&mut transaction, *node, by).await?;
        }
        done(transaction).await?;
        let named = |(node, fit): (NodeId, &ValidatedRecord)| AddedNode {
            node,
            fqdn: fit.fqdn.to_string(),
        };
        Ok(AddedNodes { nodes: added.into_iter().map(named).collect() })
    }

    /// The requested records with their line numbers, checked without a comparison with existing
    /// nodes.
    fn fits(&self, lines: Vec<Line>) -> Result<Vec<(usize, ValidatedRecord)>, Problem> {
        let count = lines.len();
        let (mut fits, mut faults) = (Vec::with_capacity(count), Vec::new());
        let mut first_lines: BTreeMap<String, usize> = BTreeMap::new();
        for Line { number, request } in lines {
            let fit = match request.and_then(|request| {
                self.fit(&request).map_err(|problem| with_line_field(problem.detail))
            }) {
                Ok(fit) => fit,
                Err(detail) => {
                    faults.push(line_finding(number, detail));
                    continue;
                }
            };
            match first_lines.get(fit.fqdn.as_str()) {
                Some(first) => {
                    let detail = format!(
                        "Node {} is already in line {first}. Remove one of the two lines.",
                        fit.fqdn
                    );
                    faults.push(line_finding(number, detail));
                }
                None => {
                    first_lines.insert(fit.fqdn.to_string(), number);
                    fits.push((number, fit));
                }
            }
        }
        if faults.is_empty() { Ok(fits) } else { Err(refused(Problem::invalid, faults, count)) }
    }
}

/// Inserts one record of several. A refused record is rolled back, so that the next one can be
/// checked.
async fn insert_in_savepoint(
    on: &mut PgConnection,
    fit: &ValidatedRecord,
    system: DeploymentId,
    by: Option<PersonId>,
) -> Result<Result<NodeId, Problem>, Problem> {
    let failed = |error: sqlx::Error| from_store(error.into());
    let mut one = on.begin().await.map_err(failed)?;
    match fit.insert(&mut one, system, by).await {
        Ok(node) => {
            one.commit().await.map_err(failed)?;
            Ok(Ok(node))
        }
        Err(problem) if problem.status == 409 => {
            one.rollback().await.map_err(failed)?;
            Ok(Err(problem))
        }
        Err(problem) => Err(problem),
    }
}

/// Renames the field in an error to its name in a line.
fn with_line_field(detail: String) -> String {
    let renamed = FIELD_NAMES
        .iter()
        .find_map(|(field, word)| Some(format!("{word}{}", detail.strip_prefix(field)?)));
    renamed.unwrap_or(detail)
}

fn line_finding(number: usize, detail: String) -> Finding {
    Finding { at: format!("line {number}"), detail }
}

/// The refusal of a text with `nodes` nodes.
fn refused(problem: impl FnOnce(String) -> Problem, faults: Vec<Finding>, nodes: usize) -> Problem {
    let wrong = match faults.len() {
        1 => "one line".to_owned(),
        count => format!("{count} lines"),
    };
    let named = if faults.len() > INVENTORY_ERRORS {
        format!(" The first {INVENTORY_ERRORS} of them are listed.")
    } else {
        String::new()
    };
    let detail = format!(
        "No node was added, because {wrong} of {nodes} cannot be used. Correct the errors, then \
         send the whole text again.{named}"
    );
    Problem { errors: faults.into_iter().take(INVENTORY_ERRORS).collect(), ..problem(detail) }
}

/// A line with a node.
#[derive(Debug)]
struct Line {
    /// The line number in the text, from 1.
    number: usize,
    /// The parsed node, or the syntax error.
    request: Result<NodeRequest, String>,
}

fn read(text: &str) -> Result<Vec<Line>, Problem> {
    if text.len() > INVENTORY_BYTES {
        return Err(Problem::invalid(format!(
            "text: must have at most {} KiB. Send it in several parts.",
            INVENTORY_BYTES / 1024
        )));
    }
    // Some editors put a byte order mark at the start of a file.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().enumerate().filter_map(|(at, line)| line_of(at + 1, line));
    let lines: Vec<Line> = lines.take(INVENTORY + 1).collect();
    match lines.len() {
        0 => Err(Problem::invalid(
            "text: it has no nodes. Write one node per line, with its name first: \
             web-7.rack1.example.com root=/srv/nodes/web-7",
        )),
        count if count > INVENTORY => Err(Problem::invalid(format!(
            "text: it has more than {INVENTORY} nodes, which is the maximum. Send it in several \
             parts."
        ))),
        _ => Ok(lines),
    }
}

/// Parses a line. `None` if it is blank or a comment.
fn line_of(number: usize, line: &str) -> Option<Line> {
    let request = match arguments_of(line) {
        Ok(words) if words.is_empty() => return None,
        Ok(words) => parse_node(&words),
        Err(finding) => Err(finding),
    };
    Some(Line { number, request })
}

/// Splits a line into words and drops the comment.
fn arguments_of(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let (mut word, mut is_quoted) = (None::<String>, false);
    for c in line.chars() {
        match c {
            '#' if word.is_none() => break,
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            blank if blank.is_whitespace() && !is_quoted => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    if is_quoted {
        return Err(
            "A closing quotation mark is missing. Put double quotes around values with spaces: \
             host_key=\"ssh-ed25519 AAAA...\""
                .into(),
        );
    }
    words.extend(word);
    Ok(words)
}

fn parse_node(line: &[String]) -> Result<NodeRequest, String> {
    for word in line {
        plain(word).map_err(|problem| problem.detail)?;
    }
    let (fqdn, fields) = match line.split_first() {
        Some((first, rest)) if !first.contains('=') => (first.clone(), rest),
        _ => (String::new(), line),
    };
    let text = LineFields::of(fields)?;
    Ok(NodeRequest {
        fqdn,
        macs: text.all("mac"),
        serial: text.one("serial").unwrap_or_default(),
        domain: text.one("domain").unwrap_or_default(),
        root: text.one("root").unwrap_or_default(),
        ssh: parse_ssh(&text)?,
    })
}

fn parse_ssh(text: &LineFields) -> Result<Option<SshRequest>, String> {
    // Any SSH field makes this an SSH node. If the address is missing, the check of the connection
    // reports it.
    if !SSH_FIELDS.iter().any(|field| text.0.contains_key(field)) {
        return Ok(None);
    }
    let usual = SshRequest::usual();
    Ok(Some(SshRequest {
        addresses: text.all("ssh"),
        port: text.number("port")?.unwrap_or(usual.port),
        user: text.one("user").unwrap_or(usual.user),
        key: text.one("key").unwrap_or(usual.key),
        key_version: text.number("key_version")?.unwrap_or(usual.key_version),
        host_key: text.one("host_key").unwrap_or(usual.host_key),
    }))
}

/// The fields of a line. An empty value counts as absent.
struct LineFields(BTreeMap<&'static str, Vec<String>>);

impl LineFields {
    fn of(fields: &[String]) -> Result<Self, String> {
        let mut text: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
        for word in fields {
            let Some((field, value)) = word.split_once('=') else {
                return Err(format!(
                    "Invalid field {}. After the name, write each field as field=value, with \
                     double quotes around values with spaces.",
                    quoted(word)
                ));
            };
            let Some(field) = INVENTORY_FIELDS.into_iter().find(|known| *known == field) else {
                return Err(format!(
                    "Unknown field {}. A line can have {}.",
                    quoted(field),
                    INVENTORY_FIELDS.join(", ")
                ));
            };
            if value.is_empty() {
                continue;
            }
            let values = text.entry(field).or_default();
            if !values.is_empty() && !REPEATABLE.contains(&field) {
                return Err(format!(
                    "{field}: can be given only once. Only {} can be repeated.",
                    REPEATABLE.join(" and ")
                ));
            }
            values.push(value.to_owned());
        }
        Ok(Self(text))
    }

    fn all(&self, field: &str) -> Vec<String> {
        self.0.get(field).cloned().unwrap_or_default()
    }

    fn one(&self, field: &str) -> Option<String> {
        self.0.get(field)?.first().cloned()
    }

    fn number<T: FromStr>(&self, field: &str) -> Result<Option<T>, String> {
        let wrong = |text: &str| format!("{field}: {} is not a valid number.", quoted(text));
        self.one(field).map(|text| text.parse().map_err(|_| wrong(&text))).transpose()
    }
}

#[cfg(test)]
mod tests {
    use crate::nodes::node_list::*;

    /// Parses a single line.
    fn request_of(line: &str) -> Result<NodeRequest, String> {
        line_of(1, line).expect("a node").request
    }

    #[test]
    fn line_name_is_optional() {
        let named = |name: &str, root: &str| NodeRequest::named(name, root);
        assert_eq!(request_of("n1.a.example"), Ok(named("n1.a.example", "")));
        assert_eq!(
            request_of("\tn1.a.example  root=/srv/n1 # by the door"),
            Ok(named("n1.a.example", "/srv/n1"))
        );
        assert_eq!(
            request_of("n1.a.example \"root=/srv/my nodes/1\""),
            Ok(named("n1.a.example", "/srv/my nodes/1"))
        );
        assert_eq!(
            request_of("n1.a.example root=\"/srv/my nodes/#1\" serial="),
            Ok(named("n1.a.example", "/srv/my nodes/#1"))
        );
        let derived = request_of(
            "mac=00:25:90:aa:00:01 mac=00:25:90:aa:00:02 serial=CN-0F8S7 domain=a.example",
        )
        .unwrap();
        assert_eq!(
            (derived.fqdn.as_str(), derived.serial.as_str(), derived.domain.as_str()),
            ("", "CN-0F8S7", "a.example")
        );
        assert_eq!((derived.macs.len(), derived.ssh), (2, None));
    }

    #[test]
    fn ssh_fields_match_single_node_options() {
        let key =
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";
        let usual = SshRequest {
            addresses: vec!["10.0.3.7".into(), "n1.mgmt.a.example".into()],
            key: "deploy/ssh".into(),
            host_key: key.into(),
            ..SshRequest::usual()
        };
        let line = format!(
            "n1.a.example ssh=10.0.3.7 ssh=n1.mgmt.a.example key=deploy/ssh host_key=\"{key}\""
        );
        assert_eq!(request_of(&line).unwrap().ssh, Some(usual.clone()));
        let other = SshRequest { port: 2222, user: "gantry".into(), key_version: 3, ..usual };
        assert_eq!(
            request_of(&format!("{line} port=2222 user=gantry key_version=3")).unwrap().ssh,
            Some(other)
        );
        // An incomplete connection is still parsed as one. The check of connections reports the
        // missing fields.
        assert_eq!(request_of("n1.a.example user=root").unwrap().ssh, Some(SshRequest::usual()));
    }

    #[test]
    fn syntax_errors_are_explained() {
        for (line, part) in [
            ("n1.a.example n2.a.example", "Invalid field \"n2.a.example\""),
            ("n1.a.example rot=/srv/n1", "Unknown field \"rot\". A line can have mac, serial"),
            ("n1.a.example root=/srv/n1 root=/srv/n2", "root: can be given only once"),
            ("n1.a.example ssh=10.0.0.1 port=soon", "port: \"soon\" is not a valid number"),
            ("n1.a.example ssh=10.0.0.1 port=70000", "port: \"70000\" is not a valid number"),
            ("n1.a.example host_key=\"ssh-ed25519 AAAA", "A closing quotation mark is missing."),
            ("n1.a.example root=/srv/n\u{200b}1", "U+200B"),
            ("n1.a.example serial=\u{0}", "U+0000"),
        ] {
            let fault = request_of(line).unwrap_err();
            assert!(fault.contains(part), "{line}: {fault}");
        }
    }

    #[test]
    fn record_errors_use_field_names_of_the_line() {
        let mac = crate::nodes::hardware::check_macs(&["zz".to_owned()]).unwrap_err().detail;
        assert!(
            with_line_field(mac.clone()).starts_with("mac: \"zz\" is not a valid MAC address"),
            "{mac}"
        );
        let request = SshRequest { addresses: vec!["a b".into()], ..SshRequest::usual() };
        let address = crate::nodes::connection::by_ssh(&request, "").unwrap_err().detail;
        assert!(
            with_line_field(address.clone()).starts_with("ssh: \"a b\" is neither"),
            "{address}"
        );
        assert_eq!(with_line_field("key: name one".into()), "key: name one");
    }

    #[test]
    fn blank_lines_count_in_line_numbers() {
        let text = "\u{feff}# rack 1\r\n\r\nn1.a.example root=/srv/n1\r\n  # no more\r\nn2.a.example root=/srv/n2";
        let numbers: Vec<usize> = read(text).unwrap().iter().map(|line| line.number).collect();
        assert_eq!(numbers, [3, 5]);
        for nothing in ["", " \n\t\n", "# n1.a.example"] {
            assert!(read(nothing).unwrap_err().detail.contains("it has no nodes"), "{nothing:?}");
        }
    }

    #[test]
    fn oversized_text_is_rejected() {
        let many = |count: usize| "n.a.example\n".repeat(count);
        assert_eq!(read(&many(INVENTORY)).unwrap().len(), INVENTORY);
        let refused = read(&many(INVENTORY + 1)).unwrap_err();
        assert_eq!(
            (refused.status, refused.detail.contains("more than 500 nodes")),
            (400, true),
            "{refused:?}"
        );
        assert!(
            read(&"#".repeat(INVENTORY_BYTES)).unwrap_err().detail.contains("no node"),
            "the longest allowed text is read"
        );
        assert!(
            read(&"#".repeat(INVENTORY_BYTES + 1)).unwrap_err().detail.contains("at most 256 KiB")
        );
    }

    #[test]
    fn refusal_lists_bounded_lines_and_total_count() {
        let faults =
            |count: usize| (1..=count).map(|n| line_finding(n, "no".into())).collect::<Vec<_>>();
        let one = refused(Problem::invalid, faults(1), 12);
        assert!(
            one.detail.starts_with("No node was added, because one line of 12 cannot be used"),
            "{one:?}"
        );
        assert_eq!(
            (one.errors[0].at.as_str(), one.detail.contains("The first")),
            ("line 1", false)
        );
        let many = refused(Problem::invalid, faults(INVENTORY_ERRORS + 1), 500);
        assert!(
            many.detail.starts_with("No node was added, because 21 lines of 500 cannot be used")
                && many.detail.ends_with("The first 20 of them are listed.")
        );
        assert_eq!(many.errors.len(), INVENTORY_ERRORS);
    }
}
