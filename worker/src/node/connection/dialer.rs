//! Connects to nodes, only at addresses that the rules allow.
//!
//! A name is resolved once. Every resulting address is checked, and the connection uses the checked
//! addresses, never the name again. A name server that changes its answer can't bypass the check.
//! The rules are in [`engine::reach`]. Servers report their addresses to the database.

use std::io;
use std::net::{IpAddr, SocketAddr};

use engine::reach::{Database, Policy, Refused, embedded_ipv4};
use sqlx::PgPool;
use store::server_addresses::{host_addresses, servers_among};
use tokio::net::{TcpStream, lookup_host};

/// Connects to the addresses that the rules allow.
#[derive(Debug, Clone, Default)]
pub struct Dialer {
    /// Whether nodes may be on this host, at a loopback address or one of the host's own addresses.
    pub allow_local: bool,
    /// Host and port of the database, if it is reached over the network.
    pub database: Option<(String, u16)>,
    /// The database with the addresses of servers.
    pub servers: Option<PgPool>,
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
        Self { allow_local, database, servers: Some(pool.clone()) }
    }

    /// Connects to an address of a node: a host name or an IP address.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn connect(&self, address: &str, port: u16) -> Result<TcpStream, ConnectError> {
        let mut policy = self.policy(port).await;
        policy.check_record(address, port).map_err(ConnectError::Refused)?;
        let resolved: Vec<SocketAddr> = lookup_host((address, port)).await?.collect();
        self.add_servers(&mut policy, &resolved).await?;
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
        Policy { allow_local: self.allow_local, own: host_addresses(), database }
    }

    /// Adds the candidates that are addresses of servers to the forbidden ones. There is no
    /// connection if the database does not answer.
    async fn add_servers(&self, policy: &mut Policy, candidates: &[SocketAddr]) -> io::Result<()> {
        let Some(pool) = self.servers.as_ref().filter(|_| !self.allow_local) else { return Ok(()) };
        let candidates: Vec<IpAddr> =
            candidates.iter().map(|candidate| embedded_ipv4(candidate.ip())).collect();
        let servers = servers_among(pool, &candidates).await.map_err(|error| {
            io::Error::other(format!("cannot read the addresses of the servers: {error}"))
        })?;
        policy.own.extend(servers);
        Ok(())
    }
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
    async fn host_name_with_refused_address_is_not_contacted() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let port = listener.local_addr().expect("an address").port();
        let (strict, open) = (Dialer::default(), Dialer { allow_local: true, ..Dialer::default() });
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
        let own = host_addresses().into_iter().find(|own| !own.is_loopback());
        if let Some(own) = own.filter(|own| matches!(own, IpAddr::V4(_))) {
            assert_eq!(tried(&strict, &own.to_string(), port).await, "Local");
        }
        let with_database =
            Dialer { database: Some(("localhost".to_owned(), port)), ..open.clone() };
        for address in ["127.0.0.1", "127.0.0.9", "localhost", "127.1"] {
            assert_eq!(tried(&with_database, address, port).await, "Database", "{address}");
        }
    }

    #[tokio::test]
    async fn address_of_other_server_is_not_contacted() {
        let database = testdb::TestDatabase::new().await;
        let server = "192.0.2.7".parse().expect("an address");
        store::server_addresses::report(database.server(), &[server].into())
            .await
            .expect("the server may report its address");
        let dialer = Dialer::for_pool(database.worker(), false);
        // Our rules treat the last two as names.
        for address in ["192.0.2.7", "::ffff:192.0.2.7", "0xc0000207", "3221225991"] {
            assert_eq!(tried(&dialer, address, 22).await, "Local", "{address}");
        }
        database.worker().close().await;
        match dialer.connect("192.0.2.8", 22).await {
            Err(ConnectError::Failed(error)) => assert!(error.to_string().contains("servers")),
            other => panic!("a connection needs the addresses of the servers: {other:?}"),
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
