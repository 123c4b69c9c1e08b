//! Nodes with several addresses, and the lifetime of sessions, on real SSH servers.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use api::nodes::TriedAddress;
use engine::cluster::Connection;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout};
use worker::Config;
use worker::node::connection::{Dialer, SshEndpoint};
use worker::node::session::process::Ending;
use worker::node::session::ssh::{SshError, SshSessions};
use worker::secrets::SecretFolder;

use crate::cluster::bind;
use crate::process::Running;
use crate::ssh::Bed;

/// The testbed uses loopback addresses.
const LOCAL: Dialer = Dialer { allow_local: true, database: None, servers: None };

/// An address that drops all packets.
struct DroppingAddress {
    address: Ipv4Addr,
    _full: Vec<TcpStream>,
    _socket: tokio::net::TcpListener,
}

impl DroppingAddress {
    /// The listener never accepts, and its backlog is full.
    async fn at(address: Ipv4Addr) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        let place = SocketAddr::from((address, testbed::PORT));
        socket.bind(place).expect("a free address");
        let socket = socket.listen(1).expect("a listener");
        let mut full = Vec::new();
        while let Ok(waits) = timeout(Duration::from_millis(500), TcpStream::connect(place)).await {
            full.push(waits.expect("the connection is queued"));
            assert!(full.len() < 100, "the listener's queue is not full after 100 connections");
        }
        Self { address, _full: full, _socket: socket }
    }
}

impl Bed {
    /// An address in the testbed's network.
    fn unused_address(&self, last: u8) -> Ipv4Addr {
        let [a, b, c, _] = self.testbed.nodes()[0].address.octets();
        Ipv4Addr::new(a, b, c, last)
    }

    fn real(&self, node: usize) -> Ipv4Addr {
        self.testbed.nodes()[node].address
    }

    fn endpoint(&self, node: usize, addresses: &[Ipv4Addr]) -> SshEndpoint {
        let mut connection = self.testbed.nodes()[node].connection();
        connection["addresses"] = json!(addresses);
        serde_json::from_value(connection).expect("a record")
    }

    fn sessions(&self) -> SshSessions {
        SshSessions::new(Arc::new(SecretFolder(Some(self.testbed.secrets()))), LOCAL)
    }

    async fn has_addresses(&mut self, node: usize, addresses: &[Ipv4Addr]) {
        // One address belongs to another node, which the trigger forbids.
        let sql = format!(
            "ALTER TABLE node DISABLE TRIGGER guard_node_machine; UPDATE node SET address = '{}'
                 WHERE id = '{}';
             ALTER TABLE node ENABLE TRIGGER guard_node_machine",
            json!(addresses),
            self.cluster.nodes[node].id
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
            .execute(self.cluster.db.owner())
            .await
            .expect("a change");
        if let Connection::Ssh(ssh) = &mut self.cluster.nodes[node].connection {
            ssh.addresses = addresses.iter().map(ToString::to_string).collect();
        }
    }

    /// The addresses tried by the first successful health check.
    async fn first_look(&self, node: usize) -> Vec<TriedAddress> {
        let mut on = self.cluster.server().acquire().await.expect("a connection");
        let checks = store::nodes::health_checks(
            &mut on,
            self.cluster.nodes[node].id,
            Default::default(),
            50,
        )
        .await
        .expect("the health checks");
        let check = checks
            .into_iter()
            .rev()
            .find(|check| check.reached)
            .expect("a successful health check");
        assert_eq!(check.address, self.real(node).to_string());
        check.attempts.0
    }
}

/// Accepts sessions and sends this text to each.
async fn serve_text(address: Ipv4Addr, port: u16, text: &'static str) {
    let listener = tokio::net::TcpListener::bind((address, port)).await.expect("a free address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(text.as_bytes()).await;
            // Read all data of the client before closing. Otherwise the reset would discard the
            // text.
            let _ = stream.shutdown().await;
            while stream.read(&mut [0; 256]).await.is_ok_and(|count| count > 0) {}
        }
    });
}

#[tokio::test]
async fn non_ssh_server_is_identified_in_error() {
    let bed = Bed::of(1).await;
    let sessions = bed.sessions();
    let cases = [
        (
            7001,
            "HTTP/1.1 400 Bad Request\r\n\r\n",
            "no SSH server listens at port 7001 (the answer was \"HTTP/1.1 400 Bad Request\")",
        ),
        (7002, "", "connections at port 7002, but closes them without data"),
        (7003, "SSH-2.0-x\r\n", "its SSH server closed the connection"),
    ];
    for (port, text, expected) in cases {
        serve_text(bed.unused_address(220), port, text).await;
        let endpoint = SshEndpoint { port, ..bed.endpoint(0, &[bed.unused_address(220)]) };
        let refused = sessions.reach(&endpoint).await.expect_err("a rejected login").to_string();
        assert!(refused.contains(expected), "{refused}");
    }
}

fn summary(tried: &[TriedAddress]) -> Vec<(String, bool)> {
    tried.iter().map(|tried| (tried.address.clone(), tried.reached)).collect()
}

async fn ends(sessions: &SshSessions, endpoint: &SshEndpoint) -> Result<Ending, SshError> {
    Ok(sessions.start(endpoint, "exit 0").await?.wait().await)
}

#[tokio::test]
async fn one_working_address_is_enough() {
    let mut bed = Bed::of(4).await;
    let mut swallow = Vec::new();
    for last in [201, 202, 203] {
        swallow.push(DroppingAddress::at(bed.unused_address(last)).await);
    }
    let (closed, other) = (bed.unused_address(210), bed.real(3));
    let swallowing: Vec<Ipv4Addr> = swallow.iter().map(|swallows| swallows.address).collect();
    bed.has_addresses(0, &[closed, bed.real(0)]).await;
    bed.has_addresses(1, &[other, bed.real(1)]).await;
    bed.has_addresses(2, &[swallowing[0], swallowing[1], swallowing[2], bed.real(2)]).await;
    bed.cluster
        .sql(
            "UPDATE node SET alive = false, alive_since = NULL, joined = 'none' WHERE \
        transport = 'ssh'",
        )
        .await;
    bed.cluster.add_script_role("writes", "#!/bin/sh\necho once >>ran\n", |_| ()).await;
    bed.cluster.commit(&[bind(0, "writes"), bind(1, "writes"), bind(2, "writes")]).await;
    let worker = Running::start(
        Config { health_check_interval: Duration::from_millis(200), ..bed.config() },
        bed.cluster.pool(),
    );
    for node in 0..3 {
        bed.cluster.reaches_within(node, "writes", "active", Duration::from_secs(60)).await;
        assert!(
            bed.cluster.nodes[node].root.join("ran").exists(),
            "the script must have run on the node"
        );
    }
    worker.stop().await;

    let tried = bed.first_look(0).await;
    let expected = [(closed.to_string(), false), (bed.real(0).to_string(), true)];
    assert_eq!(summary(&tried), expected);
    assert!(tried[0].error.contains("not reachable over SSH"), "{tried:?}");
    let tried = bed.first_look(1).await;
    assert_eq!(summary(&tried), [(other.to_string(), false), (bed.real(1).to_string(), true)]);
    assert!(tried[0].error.contains("not reachable over SSH"), "{tried:?}");
    let tried = bed.first_look(2).await;
    let mut expected: Vec<_> =
        swallowing.iter().map(|address| (address.to_string(), false)).collect();
    expected.push((bed.real(2).to_string(), true));
    assert_eq!(summary(&tried), expected);
    assert!(tried[..3].iter().all(|tried| !tried.error.is_empty()), "{tried:?}");
}

#[tokio::test]
async fn failed_check_reveals_only_accepting_addresses() {
    let mut bed = Bed::of(1).await;
    let (closed, banner) = (bed.unused_address(210), bed.unused_address(211));
    serve_text(banner, testbed::PORT, "220 an FTP server\r\n").await;
    bed.has_addresses(0, &[closed, banner]).await;
    bed.cluster
        .sql(
            "UPDATE node SET alive = false, alive_since = NULL, joined = 'none' WHERE \
        transport = 'ssh'",
        )
        .await;
    let worker = Running::start(
        Config { health_check_interval: Duration::from_millis(200), ..bed.config() },
        bed.cluster.pool(),
    );
    let until = async |bed: &Bed, condition: &'static str| {
        let deadline = Instant::now() + Duration::from_secs(30);
        while bed.cluster.count(condition).await == 0 {
            assert!(Instant::now() < deadline, "the condition did not become true: {condition}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let concealed = "health_check WHERE NOT reached AND duration_ms = 0 AND detail LIKE '%not \
        reachable over SSH%'";
    until(&bed, concealed).await;
    let revealing = "health_check WHERE NOT reached AND (detail || attempts) ~ 'refused|FTP|port'";
    assert_eq!(bed.cluster.count(revealing).await, 0);

    bed.has_addresses(0, &[bed.real(0)]).await;
    until(&bed, "health_check WHERE reached").await;
    bed.testbed.node(0).stop();
    until(&bed, "health_check WHERE NOT reached AND detail LIKE '%refused%' AND duration_ms >= 0")
        .await;
    // A new connection has no recorded addresses.
    bed.cluster
        .sql("UPDATE node SET connection_no = connection_no + 1 WHERE transport = 'ssh'")
        .await;
    bed.cluster.sql("DELETE FROM health_check WHERE NOT reached").await;
    until(
        &bed,
        "health_check WHERE NOT reached AND connection_no = (SELECT max(connection_no) FROM node)",
    )
    .await;
    let latest = "health_check l WHERE NOT reached AND detail LIKE '%refused%' AND connection_no = \
        (SELECT max(connection_no) FROM node)";
    assert_eq!(bed.cluster.count(latest).await, 0);
    worker.stop().await;
}

#[tokio::test]
async fn unreachable_node_reports_each_address() {
    let bed = Bed::of(2).await;
    let (closed, other) = (bed.unused_address(210), bed.real(1));
    let silent = DroppingAddress::at(bed.unused_address(201)).await;
    let endpoint = bed.endpoint(0, &[closed, silent.address, other]);
    let (sessions, begun) = (bed.sessions(), Instant::now());
    let text = sessions.reach(&endpoint).await.expect_err("an unreachable address").to_string();
    for part in [
        "refused",
        "no answer within",
        "Unexpected host key of",
        &closed.to_string(),
        &silent.address.to_string(),
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let tried = sessions.tried(&endpoint, begun).await;
    assert_eq!(
        tried.iter().filter(|tried| !tried.reached && !tried.error.is_empty()).count(),
        3,
        "{tried:?}"
    );
    // A single address returns its specific error.
    let only = sessions.reach(&bed.endpoint(0, &[other])).await.expect_err("another machine");
    assert!(matches!(only, SshError::HostKeyMismatch { .. }), "{only}");
}

#[tokio::test]
async fn last_good_address_is_first_and_silent_last() {
    let mut bed = Bed::of(1).await;
    let closed = bed.unused_address(210);
    let (endpoint, real) = (bed.endpoint(0, &[closed, bed.real(0)]), bed.real(0).to_string());
    let (sessions, begun) = (bed.sessions(), Instant::now());
    sessions.reach(&endpoint).await.expect("the server accepts the login");
    let tried = sessions.tried(&endpoint, begun).await;
    assert_eq!(summary(&tried), [(closed.to_string(), false), (real.clone(), true)]);
    // With an open connection, only its address is reported.
    let tried = sessions.tried(&endpoint, Instant::now()).await;
    assert_eq!(summary(&tried), [(real.clone(), true)]);

    bed.testbed.node(0).stop();
    bed.testbed.node(0).restart().expect("the server restarts");
    let begun = Instant::now();
    ends(&sessions, &endpoint).await.expect("the server accepts the login again");
    assert_eq!(summary(&sessions.tried(&endpoint, begun).await), [(real.clone(), true)]);

    let begun = Instant::now();
    sessions.give_up(&endpoint, "it did not answer").await;
    let gave_up = sessions.tried(&endpoint, begun).await;
    assert!(!gave_up[0].reached && gave_up[0].error.contains("did not answer"), "{gave_up:?}");
    let (endpoint, begun) = (endpoint, Instant::now());
    sessions.reach(&endpoint).await.expect("the server accepts the login");
    let tried = sessions.tried(&endpoint, begun).await;
    assert_eq!(
        summary(&tried),
        [(closed.to_string(), false), (real, true)],
        "the address that did not answer must be tried after the others"
    );
}

#[tokio::test]
async fn removed_key_ends_access() {
    let bed = Bed::of(1).await;
    let endpoint = bed.endpoint(0, &[bed.real(0)]);
    let sessions = bed.sessions();
    ends(&sessions, &endpoint).await.expect("the server accepts the login");
    let (key, aside) =
        (bed.testbed.secrets().join("testbed/1"), bed.testbed.secrets().join("aside"));
    fs::rename(&key, &aside).expect("the test owns it");
    let refused = ends(&sessions, &endpoint).await.expect_err("the worker has no key");
    assert!(matches!(refused, SshError::Key(_)), "{refused}");
    fs::rename(&aside, &key).expect("the test owns it");
    ends(&sessions, &endpoint).await.expect("the worker has the key again");
}

#[tokio::test]
async fn connection_expires_at_its_maximum_age() {
    let bed = Bed::of(1).await;
    let endpoint = bed.endpoint(0, &[bed.real(0)]);
    let (lasting, short) = (bed.sessions(), bed.sessions().with_max_age(Duration::ZERO));
    for sessions in [&lasting, &short] {
        ends(sessions, &endpoint).await.expect("the server accepts the login");
    }
    let mut in_progress =
        short.start(&endpoint, "read word; exit 7").await.expect("the server accepts the login");
    fs::write(bed.testbed.secrets().join("testbed/1.pub"), "").expect("the test owns it");
    let refused = ends(&short, &endpoint).await.expect_err("the server no longer knows the key");
    assert!(matches!(refused, SshError::AuthenticationFailed { .. }), "{refused}");
    ends(&lasting, &endpoint).await.expect("the session is still open");
    // The command on the old connection continues.
    drop(in_progress.stdin.take());
    assert_eq!(in_progress.wait().await, Ending::Code(7));
}
