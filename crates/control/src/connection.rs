//! How a machine is reached: what people write, checked before anybody tries.
//!
//! A slip in a record shows minutes later and somewhere else, as a node that is not reached. So whatever can be known to be wrong is
//! refused here. Nothing secret is ever part of a record: a key is named, and workers have it as a file.

use std::collections::BTreeSet;
use std::net::IpAddr;

use api::Problem;
use api::console::SshWish;
use api::limits::ADDRESSES;
use engine::data::secret::SecretRef;
use serde_json::{Value, json};

use crate::words;

/// Kinds of host keys that are understood. RSA is none of them: see the worker's SSH.
const KEYS: [&str; 4] = ["ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"];

/// What a worker needs to reach a machine by SSH: how, and where. Addresses come in one spelling, so that they can be compared.
pub(crate) fn by_ssh(wish: &SshWish, root: &str) -> Result<(Value, Vec<String>), Problem> {
    if wish.addresses.is_empty() || wish.addresses.len() > ADDRESSES {
        return Err(Problem::invalid(format!(
            "addresses: give 1 to {ADDRESSES} names or numbers, tried in that order."
        )));
    }
    if let Some(other) = wish.addresses.iter().find(|address| !is_address(address)) {
        return Err(Problem::invalid(format!("addresses: {other:?} is neither a host's name nor an IP address.")));
    }
    let addresses: Vec<String> = wish.addresses.iter().map(|address| one_spelling(address)).collect();
    let twice = addresses.iter().enumerate().find(|(place, address)| addresses[..*place].contains(address));
    if let Some((_, twice)) = twice {
        return Err(Problem::invalid(format!(
            "addresses: {twice} stands there twice: an address is tried once, so name it once."
        )));
    }
    if wish.port == 0 {
        return Err(Problem::invalid("port: 0 is no port that anybody listens on; SSH's own is 22."));
    }
    if !is_user(&wish.user) {
        return Err(Problem::invalid(format!("user: {:?} is no account's name.", words::plain(&wish.user)?)));
    }
    let key = SecretRef { name: wish.key.clone(), version: wish.key_version };
    if key.parts().is_none() || key.version < 1 || wish.key.len() > 200 {
        return Err(Problem::invalid(
            "key: name the secret that has the private key, as its file is called below the workers' folder of secrets, and in key_version \
             its version, from 1 on.",
        ));
    }
    let root = match root.trim() {
        "" => "/",
        root => root,
    };
    if !root.starts_with('/')
        || root.len() > 4096
        || root.split('/').any(|part| part == "..")
        || words::plain(root)? != root
    {
        return Err(Problem::invalid(
            "root: give an absolute path without '..', or leave it out: then it is the whole machine.",
        ));
    }
    let connection = json!({
        "root": root, "port": wish.port, "user": wish.user, "host_key": host_key(&wish.host_key)?,
        "key": {"$secret": key.name, "version": key.version},
    });
    Ok((connection, addresses))
}

/// An address as all write it: a number in its shortest form, a name in small letters. What stands behind `%` is an interface's name, and
/// stays.
fn one_spelling(address: &str) -> String {
    let (host, zone) = address.split_at(address.find('%').unwrap_or(address.len()));
    let host = host.parse::<IpAddr>().map_or_else(|_| host.to_ascii_lowercase(), |ip| ip.to_canonical().to_string());
    host + zone
}

/// Each address once, in their order.
pub(crate) fn distinct(addresses: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    addresses.into_iter().filter(|address| seen.insert(one_spelling(address))).collect()
}

fn is_address(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '%' | '_');
    let host = text.split('%').next().unwrap_or_default();
    // Resolvers read `127.1` and `0x7f000001` as numbers, people read them as names.
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    let is_number = match hex {
        Some(digits) => digits.chars().all(|c| c.is_ascii_hexdigit()),
        None => !last.is_empty() && last.chars().all(|c| c.is_ascii_digit()),
    };
    !text.is_empty()
        && text.len() <= 253
        && !text.starts_with('-')
        && text.chars().all(plain)
        && (!is_number || host.parse::<IpAddr>().is_ok())
}

fn is_user(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '@' | '\\');
    !text.is_empty() && text.len() <= 64 && !text.starts_with('-') && text.chars().all(plain)
}

/// The kind and the key; a comment behind them is left out.
fn host_key(text: &str) -> Result<String, Problem> {
    let mut words = text.split_whitespace();
    let kind = words.next().filter(|kind| KEYS.contains(kind));
    let plain =
        |key: &&str| key.len() >= 60 && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '='));
    match (kind, words.next().filter(plain)) {
        (Some(kind), Some(key)) if text.len() <= 2_000 => Ok(format!("{kind} {key}")),
        _ => Err(Problem::invalid(format!(
            "host_key: give the machine's public key as ssh-keyscan prints it behind the name (ssh-keyscan -t ed25519 HOST): its kind, one \
             of {}, and the key. It is the only one that workers take there.",
            KEYS.join(", ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish() -> SshWish {
        let host_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGm0cXYYv8m2bBqQ1x9m4cYcYfXxQy0v0aT6k1yJ3b1Q root@n1";
        SshWish {
            addresses: vec!["n1.example.com".into(), "10.0.0.1".into(), "fe80::1%eth0".into()],
            port: 22,
            user: "root".into(),
            key: "deploy/ssh".into(),
            key_version: 1,
            host_key: host_key.into(),
        }
    }

    #[test]
    fn what_is_right_is_taken_without_its_comment() {
        let (made, addresses) = by_ssh(&wish(), "").unwrap();
        assert_eq!(addresses, wish().addresses);
        assert_eq!((&made["root"], &made["port"]), (&json!("/"), &json!(22)));
        assert_eq!(made["key"], json!({"$secret": "deploy/ssh", "version": 1}));
        assert!(made["host_key"].as_str().unwrap().ends_with("3b1Q"));
    }

    #[test]
    fn an_address_has_one_spelling() {
        for (written, one) in [
            ("N1.Example.com", "n1.example.com"),
            ("10.0.0.1", "10.0.0.1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("FE80:0:0:0:0:0:0:1%Eth0", "fe80::1%Eth0"),
        ] {
            assert_eq!(one_spelling(written), one);
        }
        let twice = vec!["fe80::1".to_owned(), "n1".to_owned(), "FE80:0::1".to_owned()];
        assert_eq!(distinct(twice.clone()), ["fe80::1", "n1"]);
        let refused = by_ssh(&SshWish { addresses: twice, ..wish() }, "").unwrap_err();
        assert!(refused.detail.starts_with("addresses: fe80::1 stands there twice"), "{refused:?}");
    }

    #[test]
    fn slips_are_named_with_their_field() {
        let cases: [(SshWish, &str, &str); 13] = [
            (SshWish { addresses: vec!["127.1".into()], ..wish() }, "", "addresses"),
            (SshWish { addresses: vec!["0x7f000001".into()], ..wish() }, "", "addresses"),
            (SshWish { addresses: vec!["2130706433".into()], ..wish() }, "", "addresses"),
            (SshWish { addresses: vec!["10.0.0.300.".into()], ..wish() }, "", "addresses"),
            (SshWish { addresses: Vec::new(), ..wish() }, "", "addresses"),
            (SshWish { addresses: vec!["-oProxyCommand=x".into()], ..wish() }, "", "addresses"),
            (SshWish { addresses: vec!["a b".into()], ..wish() }, "", "addresses"),
            (SshWish { port: 0, ..wish() }, "", "port"),
            (SshWish { user: "a b".into(), ..wish() }, "", "user"),
            (SshWish { key: "../etc/passwd".into(), ..wish() }, "", "key"),
            (SshWish { key_version: 0, ..wish() }, "", "key"),
            (SshWish { host_key: "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQ".into(), ..wish() }, "", "host_key"),
            (wish(), "srv/n1", "root"),
        ];
        for (wish, root, field) in cases {
            let refused = by_ssh(&wish, root).unwrap_err();
            assert!(refused.status == 400 && refused.detail.starts_with(&format!("{field}: ")), "{refused:?}");
        }
    }
}
