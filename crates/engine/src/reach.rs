//! Addresses that workers must not connect to.
//!
//! Users who add node records choose addresses and ports, and workers then connect to them from
//! inside the operator's network. Gantry therefore rejects link-local addresses, cloud metadata
//! services, addresses that do not identify a single machine, and the database. It rejects loopback
//! and the addresses of Gantry's own hosts unless the operator allows them, as `gantry up` and the
//! testbed do.
//!
//! The server checks the addresses in records. Workers check again after resolving a name,
//! immediately before they connect to exactly that address. The module is pure: the caller passes
//! the addresses of the own host and of servers, and the database's address.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The settings of the address rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// Whether nodes may be on Gantry's own hosts, at loopback or one of their addresses.
    pub allow_local: bool,
    /// The addresses of the own host, and of the servers that the caller knows.
    pub own: BTreeSet<IpAddr>,
    /// The database, if it is reached over the network.
    pub database: Option<Database>,
}

/// The network address of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Database {
    /// Its name or address as in the connection string.
    pub host: String,
    /// The addresses that the name resolves to, as far as the caller knows.
    pub addresses: BTreeSet<IpAddr>,
    pub port: u16,
}

/// Why an address is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// 169.254.0.0/16 and fe80::/10.
    LinkLocal,
    /// The metadata service of a cloud.
    Metadata,
    /// An address that identifies no machine: 0.0.0.0/8 and ::.
    Unspecified,
    /// An address that identifies several machines.
    Multicast,
    /// Loopback, or an address of the own host or of a server.
    Local,
    /// The database's address and port.
    Database,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LinkLocal => {
                "workers do not connect to link-local addresses (169.254.0.0/16, fe80::/10)"
            }
            Self::Metadata => "workers do not connect to the metadata services of clouds",
            Self::Unspecified => "the address does not identify a machine",
            Self::Multicast => "workers do not connect to multicast and broadcast addresses",
            Self::Local => {
                "workers do not connect to loopback addresses and to Gantry's own hosts, unless \
                 GANTRY_ALLOW_LOOPBACK_NODES is set for servers and workers"
            }
            Self::Database => "Gantry's database is at this address and port",
        })
    }
}

/// Metadata services outside of the link-local range.
const METADATA: [IpAddr; 5] = [
    // Alibaba Cloud, Oracle Cloud, Azure.
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    // Amazon EC2 and Google Cloud.
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];
/// Names of metadata services in clouds.
const METADATA_NAMES: [&str; 6] = [
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "metadata.azure.internal",
    "instance-data",
    "instance-data.ec2.internal",
];

impl Policy {
    /// Checks an address before a worker connects to it.
    ///
    /// # Errors
    /// [`Refused`] with the reason.
    pub fn check(&self, address: IpAddr, port: u16) -> Result<(), Refused> {
        let address = embedded_ipv4(address);
        let is_local = address.is_loopback() || self.own.contains(&address);
        if address.is_unspecified() || matches!(address, IpAddr::V4(v4) if v4.octets()[0] == 0) {
            return Err(Refused::Unspecified);
        }
        if METADATA.contains(&address) {
            return Err(Refused::Metadata);
        }
        let link_local = match address {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        if link_local {
            return Err(Refused::LinkLocal);
        }
        if address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST) {
            return Err(Refused::Multicast);
        }
        if let Some(database) = self.database.as_ref().filter(|database| database.port == port) {
            let at = |of: &IpAddr| embedded_ipv4(*of) == address;
            let is_local_database =
                database.addresses.iter().any(|of| of.is_loopback() || self.own.contains(of));
            // A database on this host answers at each of the host's addresses.
            if database.addresses.iter().any(at) || (is_local && is_local_database) {
                return Err(Refused::Database);
            }
        }
        if is_local && !self.allow_local { Err(Refused::Local) } else { Ok(()) }
    }

    /// Checks a record's address, which can be a name or an IP address. Only workers resolve names,
    /// so they check the result with [`Policy::check`].
    ///
    /// # Errors
    /// [`Refused`] with the reason.
    pub fn check_record(&self, address: &str, port: u16) -> Result<(), Refused> {
        // The zone of a link-local address follows a percent sign.
        let host = address.split('%').next().unwrap_or_default();
        if let Ok(number) = host.parse::<IpAddr>() {
            return self.check(number, port);
        }
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        if METADATA_NAMES.contains(&name.as_str()) {
            return Err(Refused::Metadata);
        }
        let same = |database: &Database| {
            database.port == port && database.host.eq_ignore_ascii_case(&name)
        };
        if self.database.as_ref().is_some_and(same) {
            return Err(Refused::Database);
        }
        let is_local = name == "localhost" || name.ends_with(".localhost");
        if is_local && !self.allow_local { Err(Refused::Local) } else { Ok(()) }
    }
}

/// The IPv4 address embedded in an IPv6 address: mapped, compatible, NAT64 or 6to4. Returns any
/// other address unchanged.
pub fn embedded_ipv4(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let four = |at: usize| {
        let [a, b, c, d] = [0, 1, 2, 3].map(|n| v6.octets()[at + n]);
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    };
    match v6.segments() {
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => four(12),
        // `::` and `::1` are IPv6 addresses and embed no IPv4 address.
        [0, 0, 0, 0, 0, 0, high, low] if (high, low) != (0, 0) && (high, low) != (0, 1) => four(12),
        [0x2002, ..] => four(2),
        _ => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn policy(allow_local: bool) -> Policy {
        let database = Database {
            host: "db.example.com".into(),
            addresses: [ip("10.0.0.5")].into(),
            port: 5432,
        };
        Policy {
            allow_local,
            own: [ip("10.0.0.9"), ip("2001:db8::9")].into(),
            database: Some(database),
        }
    }

    #[test]
    fn forbidden_address_is_refused() {
        for allow_local in [false, true] {
            let policy = policy(allow_local);
            for (address, reason) in [
                ("169.254.169.254", Refused::LinkLocal),
                ("169.254.0.1", Refused::LinkLocal),
                ("fe80::1", Refused::LinkLocal),
                ("febf::1", Refused::LinkLocal),
                ("::ffff:169.254.169.254", Refused::LinkLocal),
                ("64:ff9b::169.254.169.254", Refused::LinkLocal),
                ("2002:a9fe:a9fe::1", Refused::LinkLocal),
                ("::169.254.169.254", Refused::LinkLocal),
                ("fd00:ec2::254", Refused::Metadata),
                ("fd20:ce::254", Refused::Metadata),
                ("100.100.100.200", Refused::Metadata),
                ("0.0.0.0", Refused::Unspecified),
                ("0.1.2.3", Refused::Unspecified),
                ("::", Refused::Unspecified),
                ("::ffff:0.0.0.0", Refused::Unspecified),
                ("224.0.0.1", Refused::Multicast),
                ("255.255.255.255", Refused::Multicast),
                ("ff02::1", Refused::Multicast),
            ] {
                assert_eq!(policy.check(ip(address), 22), Err(reason), "{address}");
                assert_eq!(policy.check_record(address, 22), Err(reason), "{address}");
            }
            assert_eq!(policy.check_record("fe80::1%eth0", 22), Err(Refused::LinkLocal));
            for name in ["metadata.google.internal", "Metadata.Google.Internal.", "metadata"] {
                assert_eq!(policy.check_record(name, 22), Err(Refused::Metadata), "{name}");
            }
            for good in
                ["10.0.3.7", "192.168.0.1", "172.16.0.1", "fd00::7", "2001:db8::1", "8.8.8.8"]
            {
                assert_eq!(
                    (policy.check(ip(good), 22), policy.check_record(good, 22)),
                    (Ok(()), Ok(())),
                    "{good}"
                );
            }
            assert_eq!(policy.check_record("web-7.mgmt.example.com", 22), Ok(()));
        }
    }

    #[test]
    fn local_address_is_refused_unless_allowed() {
        for local in [
            "127.0.0.1",
            "127.8.9.1",
            "::1",
            "::ffff:127.0.0.1",
            "10.0.0.9",
            "2001:db8::9",
            "::ffff:10.0.0.9",
        ] {
            assert_eq!(policy(false).check(ip(local), 22), Err(Refused::Local), "{local}");
            assert_eq!(policy(true).check(ip(local), 22), Ok(()), "{local}");
        }
        for name in ["localhost", "LOCALHOST.", "db.localhost"] {
            assert_eq!(policy(false).check_record(name, 22), Err(Refused::Local), "{name}");
            assert_eq!(policy(true).check_record(name, 22), Ok(()), "{name}");
        }
    }

    #[test]
    fn database_address_and_port_are_refused() {
        let mut policy = policy(true);
        assert_eq!(policy.check(ip("10.0.0.5"), 5432), Err(Refused::Database));
        assert_eq!(policy.check(ip("::ffff:10.0.0.5"), 5432), Err(Refused::Database));
        assert_eq!(policy.check_record("DB.example.com", 5432), Err(Refused::Database));
        assert_eq!(
            (policy.check(ip("10.0.0.5"), 22), policy.check_record("db.example.com", 22)),
            (Ok(()), Ok(()))
        );
        policy.database.as_mut().unwrap().addresses = [ip("127.0.0.1")].into();
        for local in ["127.0.0.1", "127.0.0.2", "::1", "10.0.0.9"] {
            assert_eq!(policy.check(ip(local), 5432), Err(Refused::Database), "{local}");
        }
        assert_eq!(policy.check(ip("127.0.0.1"), 22), Ok(()));
    }
}
