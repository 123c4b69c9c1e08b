//! Starts and stops the services of nodes that are folders of this machine.
//!
//! A machine starts its services at boot and stops them at halt. A node that is only a folder has
//! no init system. The process that starts the whole process tree therefore boots its local nodes,
//! and halts them at the end. The node's own scripts follow this convention:
//!
//! * `etc/boot.d/NN-name` starts a service unless it already runs. Scripts run in the order of
//!   their names.
//! * `run/name.pid` has one line, `PID START`: the leader of the service's own process group and
//!   its start time (field 22 of `/proc/PID/stat`, in clock ticks since boot). Process ids are
//!   reused. If the start time differs, the process belongs to another program and is not touched.
//!   A file without a start time is ignored.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::ids::Fqdn;
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use super::connection::Transport;
use super::session::last_line;
use super::session::process::LATE_OUTPUT_TIME;

/// Timeout of one script in `boot.d`.
const BOOT_TIMEOUT: Duration = Duration::from_secs(60);
/// Time that services have to end before they are killed.
const HALT_TIMEOUT: Duration = Duration::from_secs(5);

/// A node that is a folder of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalNode {
    pub fqdn: Fqdn,
    pub root: PathBuf,
}

impl LocalNode {
    /// Returns the node if its connection is a folder of this machine, `None` otherwise.
    pub fn of(fqdn: Fqdn, connection: &serde_json::Value) -> Option<Self> {
        match Transport::read(connection) {
            Ok(Transport::Local { root }) => Some(Self { fqdn, root }),
            Ok(Transport::Ssh { .. }) | Err(_) => None,
        }
    }
}

/// A script or service of a node that failed to start or stop.
#[derive(Debug, thiserror::Error)]
#[error("{}: {service}: {reason}", node.fqdn)]
pub struct ServiceError {
    pub node: LocalNode,
    /// The script or the service.
    pub service: String,
    pub reason: String,
}

/// Starts the services of these nodes. A failing node does not stop the others from starting.
pub async fn boot(nodes: &[LocalNode]) -> Vec<ServiceError> {
    let all = nodes.iter().map(|node| async move {
        let mut errors = Vec::new();
        for script in scripts(&node.root.join("etc/boot.d")).await {
            if let Err(reason) = run(node, &script).await {
                let service = script.file_name().unwrap_or_default().to_string_lossy().into_owned();
                errors.push(ServiceError { node: node.clone(), service, reason });
            }
        }
        errors
    });
    futures::future::join_all(all).await.into_iter().flatten().collect()
}

/// Stops the services of these nodes. Kills those that still run after five seconds.
pub async fn halt(nodes: &[LocalNode]) -> Vec<ServiceError> {
    let mut running = Vec::new();
    for node in nodes {
        for service in services(&node.root.join("run")).await {
            running.push((node, service));
        }
    }
    let mut errors = Vec::new();
    for (node, service) in &running {
        if let Err(error) = service.signal(Signal::SIGTERM) {
            let service = service.name.clone();
            errors.push(ServiceError { node: (*node).clone(), service, reason: error.to_string() });
        }
    }
    let deadline = Instant::now() + HALT_TIMEOUT;
    while running.iter().any(|(_, service)| service.is_alive()) && Instant::now() < deadline {
        sleep(Duration::from_millis(50)).await;
    }
    for (_, service) in running.iter().filter(|(_, service)| service.is_alive()) {
        let _ = service.signal(Signal::SIGKILL);
    }
    errors
}

/// Executable files, sorted by name.
async fn scripts(folder: &Path) -> Vec<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let mut found = Vec::new();
    let Ok(mut entries) = tokio::fs::read_dir(folder).await else { return found };
    while let Ok(Some(entry)) = entries.next_entry().await {
        let is_executable = entry
            .metadata()
            .await
            .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
        if is_executable && !entry.file_name().to_string_lossy().starts_with('.') {
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

async fn run(node: &LocalNode, script: &Path) -> Result<(), String> {
    let mut command = Command::new(script);
    command.env_clear().env("GANTRY_ROOT", &node.root).env("GANTRY_NODE", node.fqdn.as_str());
    for name in ["PATH", "HOME", "LANG", "TZ"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.current_dir(&node.root).process_group(0).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| format!("cannot start it: {error}"))?;
    let result = timeout(BOOT_TIMEOUT, wait_with_last_line(child)).await;
    let (status, message) = result
        .map_err(|_| format!("it took longer than {} seconds", BOOT_TIMEOUT.as_secs()))?
        .map_err(|e| e.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("{status}: {message}")) }
}

/// Returns the exit status of a process and the last line of its standard error. Does not wait for
/// a service that holds the stream open.
///
/// # Errors
/// If waiting for the process fails.
async fn wait_with_last_line(mut child: Child) -> std::io::Result<(ExitStatus, String)> {
    let output = Arc::new(Mutex::new(Vec::new()));
    let read = tokio::spawn({
        let (output, stderr) = (output.clone(), child.stderr.take());
        async move {
            let Some(mut stderr) = stderr else { return };
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stderr.read(&mut buffer).await {
                if let Ok(mut output) = output.lock() {
                    output.extend_from_slice(&buffer[..length]);
                }
            }
        }
    });
    let abort = read.abort_handle();
    let status = child.wait().await?;
    let _ = timeout(LATE_OUTPUT_TIME, read).await;
    abort.abort();
    let output = output.lock().map(|output| last_line(&output)).unwrap_or_default();
    Ok((status, output))
}

/// A service, read from its `.pid` file.
#[derive(Debug)]
struct Service {
    name: String,
    pid: i32,
    start: u64,
}

impl Service {
    /// Whether the process is still the one that wrote the file. A zombie counts as dead.
    fn is_alive(&self) -> bool {
        matches!(
            process(self.pid),
            Some((state, start)) if start == self.start && state != 'Z' && state != 'X'
        )
    }

    fn signal(&self, signal: Signal) -> Result<(), Errno> {
        if !self.is_alive() {
            return Ok(());
        }
        match killpg(Pid::from_raw(self.pid), signal) {
            Err(Errno::ESRCH) => Ok(()),
            done => done,
        }
    }
}

/// State and start time of a process.
fn process(pid: i32) -> Option<(char, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The process name is in parentheses and may itself contain spaces and parentheses.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

async fn services(folder: &Path) -> Vec<Service> {
    let mut found = Vec::new();
    let Ok(mut entries) = tokio::fs::read_dir(folder).await else { return found };
    while let Ok(Some(entry)) = entries.next_entry().await {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "pid") {
            continue;
        }
        let Ok(text) = tokio::fs::read_to_string(&path).await else { continue };
        let mut words = text.split_whitespace();
        let pid = words.next().and_then(|word| word.parse().ok()).filter(|pid| *pid > 1);
        if let (Some(pid), Some(start)) = (pid, words.next().and_then(|word| word.parse().ok())) {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            found.push(Service { name, pid, start });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(folder: &Path) -> LocalNode {
        for sub in ["etc/boot.d", "run"] {
            std::fs::create_dir_all(folder.join(sub)).expect("a writable folder");
        }
        LocalNode { fqdn: Fqdn::parse("n1.demo.test").expect("a name"), root: folder.to_owned() }
    }

    fn script(node: &LocalNode, name: &str, text: &str) {
        let path = node.root.join("etc/boot.d").join(name);
        // A separate process writes the script. If the test wrote it, a parallel test could fork
        // and inherit the descriptor that is open for writing. The script would then fail to start
        // ("text file busy").
        let written = std::process::Command::new("sh")
            .args(["-c", r#"printf %s "$2" >"$1" && chmod 755 "$1""#, "sh"])
            .args([path.as_os_str(), text.as_ref()])
            .status();
        assert!(written.expect("a shell").success(), "the script must be written");
    }

    const SERVICE: &str = r#"#!/bin/sh
cd "$GANTRY_ROOT" && setsid sh -c '
  echo "$$ $(sed "s/.*) //" /proc/$$/stat | cut -d" " -f20)" >run/svc.pid
  while :; do sleep 0.1; done' >/dev/null 2>&1 &
while [ ! -s "$GANTRY_ROOT/run/svc.pid" ]; do sleep 0.02; done
"#;

    #[tokio::test]
    async fn services_boot_and_halt_with_failures_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let node = node(folder.path());
        script(&node, "10-svc", SERVICE);
        script(&node, "20-bad", "#!/bin/sh\necho no such disk >&2\nexit 3\n");
        let errors = boot(std::slice::from_ref(&node)).await;
        assert_eq!(errors.len(), 1);
        let error = errors[0].to_string();
        assert!(
            error.contains("n1.demo.test")
                && error.contains("20-bad")
                && error.contains("no such disk"),
            "{error}"
        );

        let running = services(&node.root.join("run")).await;
        assert!(running.len() == 1 && running[0].is_alive());
        assert!(halt(std::slice::from_ref(&node)).await.is_empty());
        assert!(!running[0].is_alive());
    }

    #[tokio::test]
    async fn reused_process_id_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let node = node(folder.path());
        let mut other =
            Command::new("sleep").arg("30").process_group(0).spawn().expect("sleep is there");
        let pid = other.id().expect("a running process");
        let file = node.root.join("run/svc.pid");
        std::fs::write(&file, format!("{pid} 1\n")).expect("a writable folder");
        assert!(halt(std::slice::from_ref(&node)).await.is_empty());
        std::fs::write(&file, format!("{pid}\n")).expect("a writable folder");
        assert!(halt(std::slice::from_ref(&node)).await.is_empty());
        assert!(
            other.try_wait().expect("the test owns it").is_none(),
            "a foreign process was ended"
        );
        other.kill().await.expect("the test owns it");
    }
}
