//! Connects to nodes, only at addresses that the rules allow.
//!
//! A name is resolved once. Every resulting address is checked, and the connection uses the checked
//! addresses, never the name again. A name server that changes its answer can't bypass the check.
//! The rules are in [`engine::reach`].

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};

use engine::reach::{Database, Policy, Refused};
use sqlx::PgPool;
use tokio::net::{TcpStream, lookup_host};

/// Connects to the addresses that the rules allow.
#[derive(Debug, Clone, Default)]
pub struct Dialer {
    /// Whether nodes may be on this host, at a loopback address or one of the host's own addresses.
    pub allow_local: bool,
    /// Host and port of the database, if it is reached over the network.
    pub database: Option<(String, u16)>,
}

/// Why there is no connection.
#[derive(Debug)]
pub enum ConnectError {
    /// The rules forbid it.
    Refused(Refused),
    Failed(io::Error),
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl Dialer {
    /// Forbids the database of this pool.
    pub fn for_pool(pool: &PgPool, allow_local: bool) -> Self {
        let options = pool.connect_options();
        // A folder with a socket is not an address that a node can have.
        let network = options.get_socket().is_none() && !options.get_host().starts_with('/');
        let database = network.then(|| (options.get_host().to_owned(), options.get_port()));
        Self { allow_local, database }
    }

    /// Connects to an address of a node: a host name or an IP address.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn connect(&self, address: &str, port: u16) -> Result<TcpStream, ConnectError> {
        let policy = self.policy(port).await;
        policy.check_record(address, port).map_err(ConnectError::Refused)?;
        let resolved: Vec<SocketAddr> = lookup_host((address, port)).await?.collect();
        let (mut allowed, mut refused) = (Vec::new(), None);
        for candidate in resolved {
            match policy.check(candidate.ip(), port) {
                Ok(()) => allowed.push(candidate),
                Err(reason) => refused = Some(reason),
            }
        }
        match refused.filter(|_| allowed.is_empty()) {
            Some(reason) => Err(ConnectError::Refused(reason)),
            None => Ok(TcpStream::connect(&*allowed).await?),
        }
    }

    /// The current rules. They are computed for each connection, because the host's addresses
    /// change.
    async fn policy(&self, port: u16) -> Policy {
        let database = match self.database.as_ref().filter(|(_, of)| *of == port) {
            Some((host, of)) => {
                let resolved = lookup_host((host.as_str(), *of)).await;
                let addresses = resolved
                    .map(|resolved| resolved.map(|candidate| candidate.ip()).collect())
                    .unwrap_or_default();
                Some(Database { host: host.clone(), addresses, port: *of })
            }
            None => None,
        };
        Policy { allow_local: self.allow_local, own: own_addresses(), database }
    }
}

/// The addresses of this host's interfaces.
pub fn own_addresses() -> BTreeSet<IpAddr> {
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let address = |of: nix::sys::socket::SockaddrStorage| {
        let ipv4 = of.as_sockaddr_in().map(|of| IpAddr::V4(of.ip()));
        ipv4.or_else(|| of.as_sockaddr_in6().map(|of| IpAddr::V6(of.ip())))
    };
    interfaces.filter_map(|interface| address(interface.address?)).collect()
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// The result of a connection attempt as one word.
    async fn tried(dialer: &Dialer, address: &str, port: u16) -> String {
        match dialer.connect(address, port).await {
            Ok(_) => "connected".to_owned(),
            Err(ConnectError::Refused(reason)) => format!("{reason:?}"),
            Err(ConnectError::Failed(_)) => "failed".to_owned(),
        }
    }

    #[tokio::test]
    async fn name_of_refused_address_is_not_connected() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let port = listener.local_addr().expect("an address").port();
        let (strict, open) = (Dialer::default(), Dialer { allow_local: true, database: None });
        // Our rules treat the last three as names. The system's resolver maps them to 127.0.0.1.
        for address in
            ["127.0.0.1", "::ffff:127.0.0.1", "localhost", "127.1", "0x7f000001", "2130706433"]
        {
            assert_eq!(tried(&strict, address, port).await, "Local", "{address}");
            assert_eq!(tried(&open, address, port).await, "connected", "{address}");
        }
        for address in ["169.254.169.254", "0xa9fea9fe", "2852039166"] {
            assert_eq!(tried(&open, address, port).await, "LinkLocal", "{address}");
        }
        let own = own_addresses().into_iter().find(|own| !own.is_loopback());
        if let Some(own) = own.filter(|own| matches!(own, IpAddr::V4(_))) {
            assert_eq!(tried(&strict, &own.to_string(), port).await, "Local");
        }
        let with_database =
            Dialer { allow_local: true, database: Some(("localhost".to_owned(), port)) };
        for address in ["127.0.0.1", "127.0.0.9", "localhost", "127.1"] {
            assert_eq!(tried(&with_database, address, port).await, "Database", "{address}");
        }
    }

    #[tokio::test]
    async fn database_socket_is_no_address() {
        let database = testdb::TestDatabase::new().await;
        let options = database.app().connect_options();
        let with_database = Dialer::for_pool(database.app(), false).database;
        assert_eq!(
            with_database.is_some(),
            options.get_socket().is_none() && !options.get_host().starts_with('/')
        );
    }
}
