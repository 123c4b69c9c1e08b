//! Many hosts at once, the files sent to them, and how processes of a run end there.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use engine::Hash;
use engine::anneal::RerunReason;
use engine::ids::{RunId, StepId};
use serde_json::json;
use testbed::Testbed;
use uuid::Uuid;
use worker::Config;
use worker::node::Nodes;
use worker::node::connection::Dialer;
use worker::secrets::SecretFolder;

use crate::cluster::bind;
use crate::process::Running;
use crate::scripts::{appears, dies, is_alive};
use crate::ssh::Bed;

/// Ends only if it runs on all hosts at once.
const MEETS: &str = "#!/bin/sh
echo here >\"$GANTRY_DATA_MEET_AT/$GANTRY_NODE\"
until [ \"$(ls \"$GANTRY_DATA_MEET_AT\" | wc -l)\" -ge \"$GANTRY_DATA_MEET_MANY\" ]; do sleep 0.1; done
echo \"{\\\"met\\\": \\\"$GANTRY_NODE\\\"}\" >\"$GANTRY_OUTPUT\"
";

#[tokio::test]
async fn twelve_hosts_run_concurrently() {
    const HOSTS: usize = 12;
    let mut bed = Bed::of(HOSTS).await;
    bed.cluster.add_script_role("meets", MEETS, |_| ()).await;
    let place = tempfile::tempdir().expect("a folder");
    let data = json!({"meet": {"at": place.path(), "many": HOSTS}});
    let binds: Vec<_> = (0..HOSTS).map(|node| bind(node, "meets").data(data.clone())).collect();
    bed.cluster.commit(&binds).await;
    let many = u32::try_from(HOSTS).expect("a small number");
    // Long leases, because twelve concurrent handshakes take a while on a busy machine.
    let config = Config {
        capacity: many,
        max_running: many,
        lease: Duration::from_secs(60),
        ..bed.config()
    };
    let worker = Running::start(config, bed.cluster.pool());
    for node in 0..HOSTS {
        bed.cluster.reaches_within(node, "meets", "active", Duration::from_secs(120)).await;
        let name = bed.cluster.nodes[node].fqdn.to_string();
        assert_eq!(
            bed.cluster.output(node, "meets").await,
            Some(json!({"met": name})),
            "each node must have its own output"
        );
        assert_eq!(bed.cluster.runs(node, "meets").await.len(), 1);
    }
    worker.stop().await;
}

/// Makes a host record each command that it executes.
fn overheard(bed: &mut Bed, node: usize) {
    let commands = bed.testbed.nodes()[node].root.with_file_name("commands");
    let script = format!(
        "#!/bin/sh\nprintf '%s\\n' \"$SSH_ORIGINAL_COMMAND\" >>'{}'\nexec sh -c \
         \"$SSH_ORIGINAL_COMMAND\"\n",
        commands.display()
    );
    forced(&mut bed.testbed, node, &script);
}

/// Makes a host run this script for every command.
fn forced(testbed: &mut Testbed, node: usize, script: &str) {
    let folder = testbed.nodes()[node].root.parent().expect("a file in a folder").to_owned();
    let listener = folder.join("listen");
    fs::write(&listener, script).expect("a writable folder");
    let config = folder.join("sshd_config");
    let text = fs::read_to_string(&config).expect("a configuration");
    fs::write(&config, format!("{text}ForceCommand sh {}\n", listener.display()))
        .expect("the test owns it");
    testbed.node(node).stop();
    testbed.node(node).restart().expect("the server restarts");
}

/// A host that prints indefinitely for every command, as a looping login shell may.
#[tokio::test]
async fn endless_output_of_a_host_is_cut() {
    let folder = tempfile::tempdir().expect("a folder");
    let secrets = folder.path().join("secrets");
    let mut testbed = Testbed::start(folder.path(), &secrets, 1).expect("a testbed");
    let floods = folder.path().join("floods");
    let script = format!(
        "#!/bin/sh\ncase $SSH_ORIGINAL_COMMAND in\n*boot_id*) to=1 ;;\n*\\'attempts\\'*) to=1 \
         ;;\n*\\'end\\'*) to=2 ;;\n\
         *) exec sh -c \"$SSH_ORIGINAL_COMMAND\" ;;\nesac\necho $$ >'{}'\nwhile echo for ever >&$to; do :; done\n",
        floods.display()
    );
    forced(&mut testbed, 0, &script);
    let connection = testbed.nodes()[0].connection();
    let nodes = Nodes::new(
        Arc::new(SecretFolder(Some(testbed.secrets()))),
        Dialer { allow_local: true, database: None, servers: None },
        folder.path().join("on-behalf"),
    );
    let ends = async |action: &str, reason: String| {
        assert!(
            reason.contains("The node printed more than ") && reason.contains(action),
            "{reason}"
        );
        dies(&fs::read_to_string(&floods).expect("a log of commands")).await;
        fs::remove_file(&floods).expect("it exists");
    };
    let looked = nodes.check(&connection).await.boot_id;
    ends(
        "65536 bytes to its standard output while reading its boot id",
        looked.expect_err("no answer"),
    )
    .await;
    let surveyed = nodes.running_attempts(&connection).await;
    ends("bytes to its standard output while listing its runs", surveyed.expect_err("no answer"))
        .await;
    let ended = nodes.end_lost_run(&connection, StepId(Uuid::from_u128(1)), 1, RunId(1)).await;
    ends("65536 bytes to its standard error while ending a run", ended.expect_err("no answer"))
        .await;
}

#[tokio::test]
async fn script_is_sent_to_a_host_once() {
    let mut bed = Bed::of(2).await;
    (0..2).for_each(|node| overheard(&mut bed, node));
    let (one, other) = ("#!/bin/sh\necho one >>ran\n", "#!/bin/sh\necho other >>ran\n");
    for (role, script) in [("first", one), ("second", one), ("third", other)] {
        bed.cluster.add_script_role(role, script, |_| ()).await;
    }
    let sent = |bed: &Bed, node: usize, script: &str| {
        let root = &bed.testbed.nodes()[node].root;
        let commands =
            fs::read_to_string(root.with_file_name("commands")).expect("a log of commands");
        let hash = Hash::of_bytes(script.as_bytes());
        // Sent separately, or with a run.
        let forms = [format!("'put' '{hash}'"), format!("'{hash}+{}:", script.len())];
        forms.iter().map(|form| commands.matches(form.as_str()).count()).sum::<usize>()
    };
    let worker = bed.worker();
    for node in 0..2 {
        let first = bind(node, "first");
        let second = bind(node, "second").after(node, "first");
        bed.cluster.commit(&[first, second, bind(node, "third").after(node, "second")]).await;
        bed.cluster.reaches(node, "third", "active").await;
        assert_eq!(
            (sent(&bed, node, one), sent(&bed, node, other)),
            (1, 1),
            "a script that two roles share must be sent once"
        );
    }
    worker.stop().await;
    // Another worker does not know which scripts the host has, but the host does.
    let worker = bed.worker();
    for role in ["first", "second", "third"] {
        let step = bed.cluster.step(0, role);
        store::runs::rerun_step(bed.cluster.pool(), step, RerunReason::Drift)
            .await
            .expect("a re-run");
        bed.cluster.reaches(0, role, "active").await;
    }
    assert_eq!((sent(&bed, 0, one), sent(&bed, 0, other)), (1, 1));
    // A script that does not match its hash is sent again.
    let file = bed.cluster.nodes[0]
        .root
        .join(".gantry/scripts")
        .join(Hash::of_bytes(one.as_bytes()).to_string());
    fs::write(file, "#!/bin/sh\necho wrong >>ran\n").expect("the file exists");
    let step = bed.cluster.step(0, "first");
    store::runs::rerun_step(bed.cluster.pool(), step, RerunReason::Drift).await.expect("a re-run");
    bed.cluster.reaches(0, "first", "active").await;
    assert_eq!((sent(&bed, 0, one), sent(&bed, 0, other)), (2, 1));
    worker.stop().await;
    assert!(
        !fs::read_to_string(bed.cluster.nodes[0].root.join("ran"))
            .expect("the script ran")
            .contains("wrong")
    );
}

/// A child, a grandchild in its own process group, and an orphan of a shell. All ignore SIGTERM. A
/// service has left the run's session.
const FAMILY: &str = r#"#!/bin/sh
trap '' TERM HUP INT
sh -c 'echo $$ >child; set -m; sh -c "echo \$\$ >grandchild; exec sleep 300" & wait' &
(sh -c 'echo $$ >orphan; exec sleep 300' &)
setsid sh -c 'echo $$ >service; exec sleep 300' >/dev/null 2>&1 </dev/null &
for name in child grandchild orphan service; do
    until [ -s "$name" ]; do sleep 0.02; done
done
echo $$ >leader
while :; do sleep 1; done
"#;

async fn family_ends(root: &Path) {
    for name in ["leader", "child", "grandchild", "orphan"] {
        dies(&fs::read_to_string(root.join(name)).expect("the process was started")).await;
    }
    let service = fs::read_to_string(root.join("service")).expect("the process was started");
    assert!(is_alive(&service), "a process that called setsid must outlive its run");
    let pid = nix::unistd::Pid::from_raw(service.trim().parse().expect("a number"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("the test owns it");
    assert_eq!(
        fs::read_dir(root.join(".gantry/run")).expect("a folder").count(),
        0,
        "no file of the run is left on the node"
    );
}

#[tokio::test]
async fn canceled_run_ends_with_all_descendants() {
    let mut bed = Bed::of(1).await;
    bed.cluster.add_script_role("family", FAMILY, |_| ()).await;
    bed.cluster.commit(&[bind(0, "family")]).await;
    let worker = bed.worker();
    let root = bed.cluster.nodes[0].root.clone();
    appears(&root.join("leader")).await;
    let run = bed.cluster.running(0, "family").await;
    store::runs::cancel_run(bed.cluster.db.owner(), run, "ada").await.expect("a canceled run");
    bed.cluster.reaches_within(0, "family", "error", Duration::from_secs(60)).await;
    assert_eq!(bed.cluster.error(0, "family").await.as_deref(), Some("canceled by ada"));
    family_ends(&root).await;
    worker.stop().await;
}

#[tokio::test]
async fn timed_out_run_ends_with_all_descendants() {
    let mut bed = Bed::of(1).await;
    bed.cluster.add_script_role("family", FAMILY, |role| role.run.timeout = 3).await;
    bed.cluster.commit(&[bind(0, "family")]).await;
    let worker = bed.worker();
    bed.cluster.reaches_within(0, "family", "error", Duration::from_secs(60)).await;
    let error = bed.cluster.error(0, "family").await.expect("a reason");
    assert!(error.contains("longer than 3 seconds"), "{error}");
    let root = bed.cluster.nodes[0].root.clone();
    appears(&root.join("leader")).await;
    family_ends(&root).await;
    worker.stop().await;
}

/// Only the host can enforce the timeout, because the worker is gone.
#[tokio::test]
async fn timeout_applies_without_a_worker() {
    let mut bed = Bed::of(1).await;
    let script = "#!/bin/sh\necho $$ >leader\nsleep 300\n";
    bed.cluster.add_script_role("long", script, |role| role.run.timeout = 4).await;
    bed.cluster.commit(&[bind(0, "long")]).await;
    let mut worker = crate::process::spawn_with(
        bed.cluster.db.worker_url(),
        &bed.cluster.folder(),
        &bed.testbed.secrets(),
    );
    let leader = appears(&bed.cluster.nodes[0].root.join("leader")).await;
    worker.kill();
    dies(&leader).await;
}
