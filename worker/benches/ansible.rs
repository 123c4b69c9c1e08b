//! Ten tasks on each of ten nodes over SSH, compared with `ansible-playbook` with as many forks, on
//! the same servers.
//!
//! The nodes are a testbed's SSH servers on this machine. A task is a script of three lines that
//! appends to a file and returns a number. The ten tasks of a node run in sequence, and ten nodes
//! run concurrently. Ansible gets the same as ten tasks, once with `raw` (needs no Python on the
//! node) and once with `shell` (the usual choice). It uses its fastest settings: ControlPersist,
//! pipelining, no fact gathering.
//!
//! `cargo bench -p worker --bench ansible`. Without Python (`scripts/ansible`), the comparison is
//! skipped with a message.

#[path = "../tests/it/cluster.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "the benchmark uses a part of the tests' cluster"
)]
mod cluster;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use cluster::{Bind, Cluster, bind};
use testbed::{KEY, PORT, Testbed};

const NODES: usize = 10;
const TASKS: usize = 10;

fn main() {
    // `cargo test --benches` also runs this. There is nothing to measure then.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let testbed =
        Testbed::start(folder.path(), &folder.path().join("secrets"), NODES).expect("a testbed");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(ours(&testbed));
    match programs() {
        Ok(programs) => ["raw", "shell"]
            .into_iter()
            .for_each(|module| theirs(&testbed, &programs, folder.path(), module)),
        Err(reason) => println!("ansible is left out: {reason}"),
    }
}

fn report(who: &str, took: Duration) {
    let tasks = NODES * TASKS;
    let a_second = tasks as f64 / took.as_secs_f64();
    println!(
        "{who}: {tasks} tasks on {NODES} nodes, {NODES} at once: {:.2} s, {a_second:.1} tasks/s",
        took.as_secs_f64()
    );
}

async fn ours(testbed: &Testbed) {
    let mut cluster = Cluster::over(testbed).await;
    let names: Vec<&'static str> =
        (0..TASKS).map(|n| &*Box::leak(format!("t{n}").into_boxed_str())).collect();
    for name in &names {
        let script = format!(
            "#!/bin/sh\necho {name} >>done\necho '{{\"{name}\": 1}}' >\"$GANTRY_OUTPUT\"\n"
        );
        cluster.add_script_role(name, &script, |_| {}).await;
    }
    let mut binds: Vec<Bind> = Vec::new();
    for node in 0..NODES {
        for (n, name) in names.iter().enumerate() {
            let bind = bind(node, name);
            binds.push(if n > 0 { bind.after(node, names[n - 1]) } else { bind });
        }
    }
    cluster.commit(&binds).await;
    let at_once = u32::try_from(NODES).expect("a small number");
    let config = worker::Config {
        max_running: at_once,
        capacity: at_once,
        secrets: Some(testbed.secrets()),
        ..worker::Config::in_folder(cluster.folder())
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let pool = cluster.pool().clone();
    let begun = Instant::now();
    let running = tokio::spawn(worker::run(config, pool, async {
        let _ = stopped.await;
    }));
    while cluster.count("step WHERE state <> 'active'").await > 0 {
        assert_eq!(cluster.count("step WHERE state = 'error'").await, 0);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    report("gantry", begun.elapsed());
    let _ = stop.send(());
    let _ = running.await;
}

fn programs() -> Result<PathBuf, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/ansible");
    let output = Command::new(script).output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

fn theirs(testbed: &Testbed, programs: &Path, folder: &Path, module: &str) {
    let key = testbed.secrets().join(KEY).join("1");
    let (mut inventory, mut known) = (String::from("[all]\n"), String::new());
    for node in testbed.nodes() {
        let (name, address, root) = (&node.name, node.address, node.root.display());
        let _ = writeln!(
            inventory,
            "{name} ansible_host={address} ansible_port={PORT} ansible_user={} root={root}",
            node.user
        );
        let _ = writeln!(known, "[{address}]:{PORT} {}", node.host_key);
    }
    let mut book = String::from("- hosts: all\n  gather_facts: false\n  tasks:\n");
    for n in 0..TASKS {
        let command = format!("echo t{n} >>{{{{ root }}}}/done-{module} && echo '{{\"t{n}\": 1}}'");
        // JSON is valid YAML.
        let _ = writeln!(book, "    - name: t{n}\n      {module}: {}", serde_json::json!(command));
    }
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).expect("a written file");
        path
    };
    let (inventory, book) = (write("inventory", &inventory), write("book.yml", &book));
    let known = write("known_hosts", &known);
    let args = format!(
        "-o ControlMaster=auto -o ControlPersist=60s -o UserKnownHostsFile={} -o \
         StrictHostKeyChecking=yes",
        known.display()
    );
    let begun = Instant::now();
    let output = Command::new(programs.join("ansible-playbook"))
        .args(["--forks", &NODES.to_string(), "--private-key"])
        .arg(&key)
        .arg("-i")
        .args([&inventory, &book])
        .envs([("ANSIBLE_PIPELINING", "1"), ("ANSIBLE_SSH_ARGS", &args), ("ANSIBLE_NOCOLOR", "1")])
        .env("ANSIBLE_PYTHON_INTERPRETER", "/usr/bin/python3")
        .env("ANSIBLE_SSH_CONTROL_PATH_DIR", "/tmp/.gantry-bench")
        .output()
        .expect("ansible-playbook");
    let took = begun.elapsed();
    match output.status.success() {
        true => report(&format!("ansible-playbook ({module})"), took),
        false => println!(
            "ansible-playbook ({module}): {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}
