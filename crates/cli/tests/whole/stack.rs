//! A small site on five SSH nodes, through the changes and failures of daily use: a leader with two
//! followers, two counters with a check, a balancer that reads the members of the counters, and a
//! milestone above all. The barrier of the counters joins them. The site must answer after each
//! change, through the members that it should have.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use testbed::{KEY, PORT, Testbed};

use crate::installation::{Installation, Plan};

/// Timeout for any condition on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The roles with a process on their nodes.
const SERVICES: [&str; 4] = ["leader", "follower", "counter", "balancer"];

const BARCLAMP: &str = "
barclamp: {name: stack, version: '1', description: A site for tests}
jigs:
  - {name: script, class: script, description: Runs scripts}
  - {name: noop, class: noop, description: Runs nothing}
roles:
  - name: leader
    jig: script
    actions: [run, remove]
    timeout: 30s
    template: {leader: {port: 7101}}
  - name: follower
    jig: script
    actions: [run, remove]
    timeout: 30s
    flags: [cluster]
    requires: [leader]
    template: {follower: {port: 7102}}
  - name: counter
    jig: script
    actions: [run, remove]
    timeout: 30s
    flags: [cluster]
    requires: [leader]
    check: {script: alive, interval: 5s, timeout: 5s, failures: 2}
    template: {counter: {port: 7103}}
  - name: balancer
    jig: script
    actions: [run, remove]
    timeout: 30s
    requires: [counter]
    template: {balancer: {port: 7104}}
  - name: site-ready
    jig: noop
    flags: [milestone]
    requires: [balancer, follower]
";

/// The run of every role: writes the program and its arguments, and starts it again. A service
/// answers with its name and address, followed by the answer of one of its upstreams.
const RUN: &str = r#"#!/usr/bin/perl
use strict; use warnings; use JSON::PP;
my %upstream = (follower => 'leader', counter => 'leader', balancer => 'counter');
my $role = $ENV{GANTRY_ROLE};
my $port = $ENV{"GANTRY_DATA_\U$role\E_PORT"};
open my $file, '<', $ENV{GANTRY_SURROUNDINGS} or die $!;
my $around = decode_json(do { local $/; <$file> });
my @upstreams;
for my $node (@{$around->{nodes}}) {
    for my $other (grep { $_->{role} eq ($upstream{$role} // '') } @{$node->{roles}}) {
        push @upstreams, "$node->{addresses}[0]:$other->{data}{$other->{role}}{port}";
    }
}
mkdir 'etc'; mkdir 'run';
open my $program, '>', "serve.$$" or die $!;
print $program do { local $/; <DATA> };
close $program;
rename "serve.$$", 'serve' or die $!;
if (open my $old, '<', "run/$role.pid") { kill 'KILL', <$old>; }
my $address = $around->{node}{addresses}[0];
system("setsid perl serve $role $address $port @upstreams </dev/null >>run/$role.log 2>&1 &");
for (1..100) {
    last if -e "run/$role.port" and `cat run/$role.port` eq $port and -e "run/$role.pid" and kill 0, `cat run/$role.pid`;
    select undef, undef, undef, 0.1;
}
print "$role listens at $address:$port for @upstreams\n";
__DATA__
use strict; use warnings; use IO::Socket::INET;
my ($name, $address, $port, @upstreams) = @ARGV;
my $listener;
for (1..50) {
    $listener = IO::Socket::INET->new(LocalAddr => $address, LocalPort => $port, Listen => 20, ReuseAddr => 1) and last;
    select undef, undef, undef, 0.1;
}
die "cannot listen: $!" unless $listener;
sub put { open my $file, '>', "run/$name.$_[0]" or die $!; print $file $_[1]; close $file; }
put(port => $port);
put(address => "$address:$port");
put(pid => $$);
sub ask {
    my $socket = IO::Socket::INET->new(PeerAddr => $_[0], Timeout => 2) or return;
    print $socket "GET / HTTP/1.0\r\n\r\n";
    my $answer = do { local $/; <$socket> } // '';
    return $answer =~ m{^HTTP/1.0 200.*?\r\n\r\n(.*)}s ? $1 : undef;
}
while (1) {
    my $client = $listener->accept or next;
    while (defined(my $line = <$client>)) { last if $line =~ /^\r?\n/; }
    my $answer = @upstreams ? undef : '';
    for (1..@upstreams) {
        push @upstreams, shift @upstreams;
        $answer = ask($upstreams[-1]);
        last if defined $answer;
    }
    print $client defined $answer
        ? "HTTP/1.0 200 OK\r\n\r\n$name\@$address:$port $answer"
        : "HTTP/1.0 503 Service Unavailable\r\n\r\n";
    close $client;
}
"#;

const REMOVE: &str = r#"#!/bin/sh
set -eu
kill -9 "$(cat "run/$GANTRY_ROLE.pid")"
rm -f "run/$GANTRY_ROLE".*
"#;

/// The check of the counters.
const ALIVE: &str = r#"#!/usr/bin/perl
use strict; use warnings; use IO::Socket::INET;
open my $file, '<', 'run/counter.address' or die "no address: $!\n";
my $address = <$file>;
my $socket = IO::Socket::INET->new(PeerAddr => $address, Timeout => 2) or die "$address refuses connections\n";
print $socket "GET / HTTP/1.0\r\n\r\n";
<$socket> =~ /^HTTP\/1.0 200/ or die "$address does not answer\n";
"#;

/// The nodes of the followers.
const FOLLOWERS: [usize; 2] = [1, 4];

struct Site {
    installation: Installation,
    testbed: Testbed,
    leader_port: u16,
}

impl Site {
    async fn new() -> Self {
        let mut barclamps = vec![("stack.yml", BARCLAMP.to_owned())];
        for role in SERVICES {
            barclamps.push((
                Box::leak(format!("scripts/{role}/10-run").into_boxed_str()),
                RUN.to_owned(),
            ));
            let remove = format!("scripts/{role}/remove/10-stop").into_boxed_str();
            barclamps.push((Box::leak(remove), REMOVE.to_owned()));
        }
        barclamps.push(("scripts/counter/alive", ALIVE.to_owned()));
        let mut installation = Installation::of(Plan {
            barclamps,
            roles: SERVICES.into_iter().chain(["site-ready"]).collect(),
            environment: vec![("GANTRY_ALLOW_LOOPBACK_NODES", "true".to_owned())],
            password: None,
        })
        .await;
        let folder = installation.folder.path().join("testbed");
        let testbed = Testbed::start(&folder, &installation.secrets(), 5).unwrap();
        let line = |node: &testbed::Node| {
            format!(
                "{}.stack.example.com ssh={} port={PORT} user={} key={KEY} host_key=\"{}\" \
                 root={}\n",
                node.name,
                node.address,
                node.user,
                node.host_key,
                node.root.display()
            )
        };
        let lines: String = testbed.nodes().iter().map(line).collect();
        installation.run_with_input(&["node", "add", "--file", "-"], &lines).ok();
        installation.start_worker();
        let reported = "SELECT count(*) FROM server_address";
        let addresses = store::server_addresses::host_addresses().len() as i64;
        installation.counts(reported, addresses).await;
        Self { installation, testbed, leader_port: 7101 }
    }

    /// Applies a file, has it reviewed, commits it and waits until every step is applied. Returns
    /// the number of the blueprint.
    fn change(&self, document: &str) -> String {
        let review = self.installation.submitted(document);
        self.commit(&review)
    }

    /// Approves and commits a review, and waits until every step is applied.
    fn commit(&self, review: &str) -> String {
        self.installation.gantry(&["review", "approve", review, "--context", "bo"]).ok();
        // The name confirms that a change removes something.
        let commit = ["review", "commit", review, "--name", "web", "--json"];
        let blueprint = self.installation.gantry(&commit).json()["blueprint"].to_string();
        self.converges();
        blueprint
    }

    fn converges(&self) {
        self.installation.gantry(&["converge", "web", "--timeout", "4m"]).ok();
    }

    fn address(&self, node: usize) -> Ipv4Addr {
        self.testbed.nodes()[node - 1].address
    }

    /// The answer of a service.
    fn answer(&self, node: usize, port: u16) -> Option<String> {
        let service = SocketAddr::from((self.address(node), port));
        let mut stream = TcpStream::connect_timeout(&service, Duration::from_secs(5)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer.strip_prefix("HTTP/1.0 200 OK\r\n\r\n")?.trim().to_owned())
    }

    /// Waits until the site answers through counters on exactly these nodes, each with this port.
    /// Then the followers also answer with the leader's answer, and the milestone is reached.
    #[track_caller]
    fn answers_through(&self, nodes: &[usize], port: u16) {
        self.counters_answer(nodes, port);
        let leader = format!("leader@{}:{}", self.address(1), self.leader_port);
        for node in FOLLOWERS {
            let expected = format!("follower@{}:7102 {leader}", self.address(node));
            assert_eq!(self.answer(node, 7102), Some(expected));
        }
        let milestone =
            ["node", "noderoles", "n5.stack.example.com", "--role", "site-ready", "--json"];
        let found = self.installation.gantry(&milestone).json();
        assert_eq!(found["noderoles"][0]["state"], "active", "{found}");
    }

    #[track_caller]
    fn counters_answer(&self, nodes: &[usize], port: u16) {
        let expected: BTreeSet<String> = nodes
            .iter()
            .map(|node| {
                let (balancer, counter) = (self.address(5), self.address(*node));
                let leader = format!("leader@{}:{}", self.address(1), self.leader_port);
                format!("balancer@{balancer}:7104 counter@{counter}:{port} {leader}")
            })
            .collect();
        let begun = Instant::now();
        loop {
            let answers: Vec<Option<String>> =
                (0..2 * nodes.len() + 2).map(|_| self.answer(5, 7104)).collect();
            let found: BTreeSet<String> = answers.iter().flatten().cloned().collect();
            if found == expected && answers.iter().all(Option::is_some) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "expected {expected:?}, found {answers:?}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Waits until a node is alive, or dead.
    #[track_caller]
    fn node_is(&self, node: usize, state: &str) {
        let begun = Instant::now();
        let name = format!("n{node}.stack.example.com");
        loop {
            let found = self.installation.gantry(&["node", "show", &name, "--json"]).json();
            if found["status"]["alive"] == (state == "alive") {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{name} did not become {state}: {found}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// The process of a service on a node.
    fn process(&self, node: usize, role: &str) -> Option<Pid> {
        let file = self.testbed.nodes()[node - 1].root.join(format!("run/{role}.pid"));
        let pid = Pid::from_raw(std::fs::read_to_string(file).ok()?.trim().parse().ok()?);
        kill(pid, None).is_ok().then_some(pid)
    }

    /// The site with counters on these nodes, each with this port.
    fn document(&self, counters: &[usize], port: u16) -> String {
        let list = |nodes: &[usize]| {
            nodes.iter().map(|n| format!("n{n}.stack.example.com")).collect::<Vec<_>>().join(", ")
        };
        format!(
            "deployment: web\nprune: true\nbindings:\n  leader: [{}]\n  follower: [{}]\n  \
             counter: [{}]\n  balancer: [{}]\n  site-ready: [{}]\ndata:\n  \
             leader: {{leader: {{port: {}}}}}\n  counter: {{counter: {{port: {port}}}}}\n",
            list(&[1]),
            list(&FOLLOWERS),
            list(counters),
            list(&[5]),
            list(&[5]),
            self.leader_port,
        )
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for node in 1..=5 {
            for role in SERVICES {
                if let Some(pid) = self.process(node, role) {
                    let _ = kill(pid, Signal::SIGKILL);
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn site_answers_after_each_change_and_failure() {
    let mut site = Site::new().await;
    let first = site.change(&site.document(&[2, 3], 7103));
    site.answers_through(&[2, 3], 7103);

    // A change of the counters reaches the balancer, which was not edited.
    site.change(&site.document(&[2, 3], 7203));
    site.answers_through(&[2, 3], 7203);

    site.change(&site.document(&[2, 3, 4], 7203));
    site.answers_through(&[2, 3, 4], 7203);

    site.change(&site.document(&[3, 4], 7203));
    site.answers_through(&[3, 4], 7203);
    assert_eq!(site.process(2, "counter"), None, "`remove` stopped the service");

    // The followers and the counters read the port of the leader.
    site.leader_port = 7201;
    site.change(&site.document(&[3, 4], 7203));
    site.answers_through(&[3, 4], 7203);

    let restored = site
        .installation
        .gantry(&["deployment", "restore", "web", "--blueprint", &first, "--json"])
        .json();
    let proposal = restored["proposal"].to_string();
    let submitted = ["proposal", "submit", &proposal, "--title", "As before", "--json"];
    let review: Value = site.installation.gantry(&submitted).json();
    site.leader_port = 7101;
    site.commit(&review["review"].to_string());
    site.answers_through(&[2, 3], 7103);

    // A service is killed. Its check notices, and the step runs again.
    let killed = site.process(3, "counter").unwrap();
    kill(killed, Signal::SIGKILL).unwrap();
    site.counters_answer(&[2], 7103);
    let begun = Instant::now();
    while site.process(3, "counter").is_none_or(|pid| pid == killed) {
        assert!(begun.elapsed() < PATIENCE, "the service was not started again");
        std::thread::sleep(Duration::from_millis(200));
    }
    site.converges();
    site.answers_through(&[2, 3], 7103);

    // The network of a node fails. Its service continues, and nothing runs again.
    let before = site.process(3, "counter");
    site.testbed.node(2).stop();
    site.node_is(3, "dead");
    site.answers_through(&[2, 3], 7103);
    site.testbed.node(2).restart().unwrap();
    site.node_is(3, "alive");
    site.converges();
    site.answers_through(&[2, 3], 7103);
    assert_eq!(site.process(3, "counter"), before);
}
