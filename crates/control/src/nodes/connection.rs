//! The connection to a node: conversion from requests to records and documents.
//!
//! The rules are in [`engine::cluster::connection`]; this module turns their errors into problems.
//! A record never contains a secret: it names a key, and workers have the key as a file.

use std::collections::BTreeSet;

use api::Problem;
use api::nodes::SshRequest;
use engine::cluster::connection::canonical_address;
use engine::cluster::{Connection, ConnectionError, Ssh};
use engine::data::secret::SecretRef;
use serde_json::{Value, json};

use crate::text;

pub(crate) fn refused(error: ConnectionError) -> Problem {
    Problem::invalid(text::sentence(&error.to_string()))
}

/// The requested SSH connection.
pub(crate) fn by_ssh(request: &SshRequest, root: &str) -> Result<Connection, Problem> {
    let ssh = Ssh {
        addresses: request.addresses.clone(),
        port: request.port,
        user: request.user.clone(),
        key: SecretRef { name: request.key.clone(), version: request.key_version },
        host_key: request.host_key.clone(),
        root: root.to_owned(),
    };
    Connection::Ssh(ssh).checked().map_err(refused)
}

/// A connection as the columns `connection` and `address` of a record.
pub(crate) fn columns(connection: &Connection) -> (Value, Vec<String>) {
    let column = match connection {
        Connection::Local { root } => json!({"root": root}),
        Connection::Ssh(Ssh { addresses: _, port, user, key, host_key, root }) => {
            json!({"root": root, "port": port, "user": user, "host_key": host_key, "key": key})
        }
    };
    (column, connection.addresses().to_vec())
}

/// The connection of a record. `None` if the record is incomplete; then no worker can reach the
/// node either. Old records may contain an address twice; the result contains it once.
pub(crate) fn of_record(
    transport: &str,
    address: &Value,
    connection: &Value,
) -> Option<Connection> {
    let mut tagged = connection.clone();
    let fields = tagged.as_object_mut()?;
    fields.insert("transport".into(), transport.into());
    fields.insert("addresses".into(), address.clone());
    match serde_json::from_value(tagged).ok()? {
        Connection::Ssh(ssh) => {
            Some(Connection::Ssh(Ssh { addresses: distinct(ssh.addresses), ..ssh }))
        }
        local => Some(local),
    }
}

/// Removes duplicate addresses and keeps the order.
fn distinct(addresses: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    addresses.into_iter().filter(|address| seen.insert(canonical_address(address))).collect()
}

#[cfg(test)]
mod tests {
    use crate::nodes::connection::*;

    fn ssh_request() -> SshRequest {
        let host_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGm0cXYYv8m2bBqQ1x9m4cYcYfXxQy0v0aT6k1yJ3b1Q root@n1";
        SshRequest {
            addresses: vec!["n1.example.com".into(), "10.0.0.1".into(), "fe80::1%eth0".into()],
            port: 22,
            user: "root".into(),
            key: "deploy/ssh".into(),
            key_version: 1,
            host_key: host_key.into(),
        }
    }

    #[test]
    fn valid_connection_is_accepted_without_key_comment() {
        let (made, addresses) = columns(&by_ssh(&ssh_request(), "").unwrap());
        assert_eq!(addresses, ssh_request().addresses);
        assert_eq!((&made["root"], &made["port"]), (&json!("/"), &json!(22)));
        assert_eq!(made["key"], json!({"$secret": "deploy/ssh", "version": 1}));
        assert!(made["host_key"].as_str().unwrap().ends_with("3b1Q"));
    }

    #[test]
    fn addresses_are_canonicalized() {
        for (written, one) in [
            ("N1.Example.com", "n1.example.com"),
            ("10.0.0.1", "10.0.0.1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("FE80:0:0:0:0:0:0:1%Eth0", "fe80::1%Eth0"),
        ] {
            assert_eq!(canonical_address(written), one);
        }
        let twice = vec!["fe80::1".to_owned(), "n1".to_owned(), "FE80:0::1".to_owned()];
        assert_eq!(distinct(twice.clone()), ["fe80::1", "n1"]);
        let refused = by_ssh(&SshRequest { addresses: twice, ..ssh_request() }, "").unwrap_err();
        assert!(refused.detail.starts_with("addresses: fe80::1 is listed twice"), "{refused:?}");
    }

    #[test]
    fn errors_name_their_field() {
        let cases: [(SshRequest, &str, &str); 13] = [
            (SshRequest { addresses: vec!["127.1".into()], ..ssh_request() }, "", "addresses"),
            (SshRequest { addresses: vec!["0x7f000001".into()], ..ssh_request() }, "", "addresses"),
            (SshRequest { addresses: vec!["2130706433".into()], ..ssh_request() }, "", "addresses"),
            (
                SshRequest { addresses: vec!["10.0.0.300.".into()], ..ssh_request() },
                "",
                "addresses",
            ),
            (SshRequest { addresses: Vec::new(), ..ssh_request() }, "", "addresses"),
            (
                SshRequest { addresses: vec!["-oProxyCommand=x".into()], ..ssh_request() },
                "",
                "addresses",
            ),
            (SshRequest { addresses: vec!["a b".into()], ..ssh_request() }, "", "addresses"),
            (SshRequest { port: 0, ..ssh_request() }, "", "port"),
            (SshRequest { user: "a b".into(), ..ssh_request() }, "", "user"),
            (SshRequest { key: "../etc/passwd".into(), ..ssh_request() }, "", "key"),
            (SshRequest { key_version: 0, ..ssh_request() }, "", "key"),
            (
                SshRequest {
                    host_key: "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQ".into(),
                    ..ssh_request()
                },
                "",
                "host_key",
            ),
            (ssh_request(), "srv/n1", "root"),
        ];
        for (request, root, field) in cases {
            let refused = by_ssh(&request, root).unwrap_err();
            assert!(
                refused.status == 400 && refused.detail.starts_with(&format!("{field}: ")),
                "{refused:?}"
            );
        }
    }
}
