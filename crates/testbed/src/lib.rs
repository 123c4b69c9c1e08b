//! Test nodes: real SSH servers on this machine.
//!
//! A testbed has N nodes. Each is an `sshd` with its own loopback address, host key and root
//! folder. All accept one key. Protocol, pinned keys, shell and folders are the same as on real
//! machines; only the operating system is shared.
//!
//! The folder of a testbed has its complete state, so that the next start finds the remains of a
//! killed one. It has `n1` and so on for the nodes, with `root` in each. The private key is
//! `testbed/1` in the workers' folder of secrets. A server survives when its starter is killed. Its
//! process id is in `sshd.pid`, and the next start stops it first.
//!
//! Each testbed uses its own network in 127.0.0.0/8, derived from its folder's name, so several can
//! run in parallel.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File, Permissions};
use std::hash::{Hash, Hasher};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde_json::{Value, json};

/// The port of all nodes. Only their addresses differ.
pub const PORT: u16 = 2222;
/// Maximum number of nodes in a testbed.
pub const MAX_NODES: usize = 200;
/// Name of the secret with the accepted key. Its version is 1, and workers may use it only for
/// connections to nodes.
pub const KEY: &str = "testbed";

const READY_TIMEOUT: Duration = Duration::from_secs(20);

/// Running nodes. Dropping them stops the servers.
pub struct Testbed {
    folder: PathBuf,
    secrets: PathBuf,
    nodes: Vec<Node>,
}

pub struct Node {
    /// `n1`, `n2`, and so on.
    pub name: String,
    pub address: Ipv4Addr,
    pub root: PathBuf,
    /// The host key as `ssh-keyscan` prints it after the host.
    pub host_key: String,
    /// The user to connect as.
    pub user: String,
    folder: PathBuf,
    server: Option<Child>,
}

impl Testbed {
    /// Starts N nodes in a folder. Creates the folder, or reuses the roots and keys of an earlier
    /// start. Writes the accepted key into the workers' folder of secrets.
    ///
    /// # Errors
    /// If a program is missing (with the command to install it), or a node does not start (with its
    /// output).
    pub fn start(folder: &Path, secrets: &Path, count: usize) -> Result<Self> {
        ensure!(
            (1..=MAX_NODES).contains(&count),
            "A testbed has 1 to {MAX_NODES} nodes, not {count}. Choose a valid number."
        );
        let programs = Programs::find()?;
        for folder in [folder, &secrets.join(KEY)] {
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        let (folder, secrets) = (folder.canonicalize()?, secrets.canonicalize()?);
        programs.ensure_key(&secrets.join(KEY).join("1"))?;
        fs::write(secrets.join(KEY).join("secret.toml"), "kind = \"node_key\"\n")?;
        let mut testbed = Self { nodes: Vec::with_capacity(count), folder, secrets };
        for number in 1..=count {
            let node = testbed.prepare(&programs, number)?;
            testbed.nodes.push(node);
        }
        for node in &mut testbed.nodes {
            node.start(&programs)?;
        }
        testbed.nodes.iter_mut().try_for_each(Node::wait)?;
        Ok(testbed)
    }

    fn prepare(&self, programs: &Programs, number: usize) -> Result<Node> {
        let name = format!("n{number}");
        let folder = self.folder.join(&name);
        let root = folder.join("root");
        fs::create_dir_all(&root).with_context(|| root.display().to_string())?;
        let key = folder.join("host_key");
        programs.ensure_key(&key)?;
        let host_key = public_key(&key)?;
        let address = address(&self.folder, number);
        let config = format!(
            "ListenAddress {address}:{PORT}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile \
             none\nUsePAM no\nStrictModes no\n\
             PermitRootLogin prohibit-password\nPasswordAuthentication \
             no\nKbdInteractiveAuthentication no\nUseDNS no\n\
             MaxStartups 200\nLogLevel VERBOSE\n",
            key.display(),
            self.secrets.join(KEY).join("1.pub").display(),
        );
        fs::write(folder.join("sshd_config"), config)?;
        Ok(Node { name, address, root, host_key, user: user()?, folder, server: None })
    }

    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// A node, to stop and restart it.
    pub fn node(&mut self, number: usize) -> &mut Node {
        &mut self.nodes[number]
    }

    /// The folder of secrets for a worker (`GANTRY_SECRETS`).
    pub fn secrets(&self) -> PathBuf {
        self.secrets.clone()
    }
}

impl Node {
    /// The connection that a worker uses.
    pub fn connection(&self) -> Value {
        json!({
            "transport": "ssh", "root": self.root, "addresses": [
                self.address.to_string()
            ], "port": PORT, "user": self.user,
            "key": {"$secret": KEY, "version": 1}, "host_key": self.host_key,
        })
    }

    /// Stops the server and cuts its connections, like a broken network. Processes on the node
    /// continue.
    pub fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            kill_with_children(server.id());
            let _ = server.wait();
            let _ = fs::remove_file(self.pid_file());
        }
    }

    fn pid_file(&self) -> PathBuf {
        self.folder.join("sshd.pid")
    }

    fn config(&self) -> PathBuf {
        self.folder.join("sshd_config")
    }

    /// Stops a server of an earlier start, unless its process id belongs to another process by now.
    fn stop_leftover(&self) -> Result<()> {
        let Ok(text) = fs::read_to_string(self.pid_file()) else { return Ok(()) };
        let leftover = text.trim().parse().ok().filter(|pid| self.is_server(*pid));
        if let Some(pid) = leftover {
            kill_with_children(pid);
            let started = Instant::now();
            while self.is_server(pid) {
                ensure!(
                    started.elapsed() < READY_TIMEOUT,
                    "The old SSH server of {} (process {pid}) does not stop. Kill it, then try \
                     again.",
                    self.name
                );
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(fs::remove_file(self.pid_file())?)
    }

    /// Whether a process is this node's server. No other process has the node's file in its
    /// arguments.
    fn is_server(&self, pid: u32) -> bool {
        let called = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        // A server overwrites its arguments with its status, separated by spaces.
        let words: Vec<&[u8]> = called.split(|byte| matches!(byte, 0 | b' ')).collect();
        let config = self.config();
        let config: Vec<&[u8]> =
            config.as_os_str().as_bytes().split(|byte| *byte == b' ').collect();
        words.iter().any(|word| word.ends_with(b"sshd"))
            && words.windows(config.len()).any(|words| words == config)
    }

    /// Restarts the server.
    ///
    /// # Errors
    /// If it does not start.
    pub fn restart(&mut self) -> Result<()> {
        self.start(&Programs::find()?)?;
        self.wait()
    }

    /// Creates another host key, as on a reinstalled machine. It takes effect at the next start.
    ///
    /// # Errors
    /// If the key can't be created.
    pub fn replace_host_key(&mut self) -> Result<()> {
        fs::remove_file(self.folder.join("host_key"))?;
        Programs::find()?.ensure_key(&self.folder.join("host_key"))
    }

    fn start(&mut self, programs: &Programs) -> Result<()> {
        self.stop_leftover()?;
        let log = File::create(self.folder.join("sshd.log"))?;
        let mut command = Command::new(&programs.sshd);
        command.arg("-D").arg("-e").arg("-f").arg(self.config());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
        let server = command.spawn().with_context(|| programs.sshd.display().to_string())?;
        let id = server.id();
        self.server = Some(server);
        Ok(fs::write(self.pid_file(), id.to_string())?)
    }

    fn wait(&mut self) -> Result<()> {
        let started = Instant::now();
        let address = SocketAddr::from((self.address, PORT));
        loop {
            let exit_status = self.server.as_mut().map(Child::try_wait).transpose()?.flatten();
            let text = fs::read_to_string(self.folder.join("sshd.log"))?;
            // Another server may answer at this address.
            let is_listening = exit_status.is_none()
                && text.contains(&format!("Server listening on {}", self.address));
            if is_listening && TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
            {
                return Ok(());
            }
            if exit_status.is_some() || started.elapsed() > READY_TIMEOUT {
                bail!(
                    "The SSH server of {} on {address} does not start: {}",
                    self.name,
                    text.trim()
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The programs that a testbed needs.
struct Programs {
    sshd: PathBuf,
    keygen: PathBuf,
}

impl Programs {
    fn find() -> Result<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        // These are often missing in the PATH of a regular user.
        let sbin_folders = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
        Self::among(&std::env::split_paths(&path).chain(sbin_folders).collect::<Vec<_>>())
    }

    fn among(folders: &[PathBuf]) -> Result<Self> {
        let missing = |name: &str, package: &str| {
            format!(
                "The program {name} is missing. Install it, on Debian with `apt-get install \
                 {package}`."
            )
        };
        // The server requires its absolute path.
        let sshd = found(folders, "sshd").with_context(|| missing("sshd", "openssh-server"))?;
        let keygen = found(folders, "ssh-keygen")
            .with_context(|| missing("ssh-keygen", "openssh-client"))?;
        // The directory for the server's privilege separation. The package's own service creates it
        // at start.
        if geteuid().is_root() {
            fs::create_dir_all("/run/sshd").context("/run/sshd")?;
        }
        Ok(Self { sshd, keygen })
    }

    fn ensure_key(&self, path: &Path) -> Result<()> {
        if path.exists() {
            return Ok(());
        }
        let mut command = Command::new(&self.keygen);
        command.args(["-q", "-t", "ed25519", "-N", "", "-C", "gantry testbed", "-f"]).arg(path);
        let output = command.stdin(Stdio::null()).output().context("ssh-keygen")?;
        ensure!(
            output.status.success(),
            "ssh-keygen: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(fs::set_permissions(path, Permissions::from_mode(0o600))?)
    }
}

/// Kills a server and its connections. Each connection has its own process, in its own session.
fn kill_with_children(server: u32) {
    let connections = children(server);
    for pid in std::iter::once(server).chain(connections) {
        let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
    }
}

fn children(parent: u32) -> Vec<u32> {
    let pids = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_child = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The process name is in parentheses and may itself contain spaces and parentheses.
        let fields = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' ').collect::<Vec<_>>());
        fields.and_then(|fields| fields.get(1)?.parse().ok()) == Some(parent)
    };
    pids.filter(is_child).collect()
}

fn found(folders: &[PathBuf], name: &str) -> Option<PathBuf> {
    folders.iter().map(|folder| folder.join(name)).find(|path| path.is_absolute() && path.is_file())
}

fn public_key(key: &Path) -> Result<String> {
    let text = fs::read_to_string(key.with_extension("pub"))?;
    let words: Vec<&str> = text.split_whitespace().take(2).collect();
    Ok(words.join(" "))
}

fn user() -> Result<String> {
    let user = nix::unistd::User::from_uid(geteuid())?;
    Ok(user
        .context(
            "The current account has no name. Start the testbed with an account in /etc/passwd.",
        )?
        .name)
}

/// The address 127.0.0.1 itself is not used.
fn address(folder: &Path, number: usize) -> Ipv4Addr {
    let mut hasher = DefaultHasher::new();
    folder.hash(&mut hasher);
    let [first, second, ..] = hasher.finish().to_be_bytes();
    Ipv4Addr::new(127, first | 1, second, u8::try_from(number).unwrap_or(u8::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn testbeds_and_nodes_have_distinct_addresses() {
        let of = |folder: &str, number| address(Path::new(folder), number);
        assert_ne!(of("/a", 1), of("/a", 2));
        assert_ne!(of("/a", 1), of("/b", 1));
        assert!(!of("/a", 1).octets().starts_with(&[127, 0]));
    }

    fn folder(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("gantry-testbed-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder.canonicalize().unwrap()
    }

    /// Processes with this folder in their arguments.
    fn processes_with_argument(folder: &Path) -> Vec<u32> {
        let all = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let called = |pid: &u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).contains(folder.to_str().unwrap())
        };
        all.filter(called).collect()
    }

    /// The servers of a testbed, once there are this many. A connection check starts a short-lived
    /// process, which would be counted too.
    fn servers(folder: &Path, count: usize) -> Vec<u32> {
        let started = Instant::now();
        loop {
            let all = processes_with_argument(folder);
            if all.len() == count {
                return all;
            }
            assert!(started.elapsed() < READY_TIMEOUT, "found {all:?}, expected {count}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn start(folder: &Path) -> Result<Testbed> {
        Testbed::start(folder, &folder.join("secrets"), 2)
    }

    const FOLDER: &str = "GANTRY_TEST_TESTBED_FOLDER";

    #[test]
    #[ignore = "helper process of another test"]
    fn testbed_process() {
        let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
        let testbed = start(&folder).unwrap();
        fs::write(folder.join("ready"), "").unwrap();
        loop {
            std::thread::park();
            assert_eq!(testbed.nodes().len(), 2);
        }
    }

    #[test]
    fn killed_testbed_is_taken_over() {
        let folder = folder("killed");
        let mut first = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::testbed_process", "--ignored"])
            .env(FOLDER, &folder)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        while !folder.join("ready").exists() {
            assert_eq!(first.try_wait().unwrap(), None, "the process ended too early");
            std::thread::sleep(Duration::from_millis(20));
        }
        first.kill().unwrap();
        first.wait().unwrap();
        let leftover = servers(&folder, 2);

        let testbed = start(&folder).unwrap();
        let now = servers(&folder, 2);
        assert!(now.iter().all(|pid| !leftover.contains(pid)), "{leftover:?} {now:?}");
        drop(testbed);
        servers(&folder, 0);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn reused_process_id_is_left_alone() {
        let folder = folder("number");
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        fs::create_dir_all(folder.join("n1")).unwrap();
        fs::write(folder.join("n1/sshd.pid"), other.id().to_string()).unwrap();
        drop(start(&folder).unwrap());
        assert_eq!(other.try_wait().unwrap(), None);
        other.kill().unwrap();
        other.wait().unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn foreign_server_at_address_is_detected() {
        let folder = folder("else");
        let other = std::net::TcpListener::bind((address(&folder, 2), PORT)).unwrap();
        let refused = start(&folder).map(drop).unwrap_err().to_string();
        assert!(refused.contains("n2") && refused.contains("does not start"), "{refused}");
        drop(other);
        servers(&folder, 0);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn missing_program_names_its_package() {
        let text =
            |folders: &[PathBuf]| Programs::among(folders).map(|_| ()).unwrap_err().to_string();
        assert!(
            text(&[]).contains("sshd is missing")
                && text(&[]).contains("apt-get install openssh-server")
        );
        let folder = folder("programs");
        fs::write(folder.join("sshd"), "").unwrap();
        let text = text(std::slice::from_ref(&folder));
        assert!(
            text.contains("ssh-keygen is missing")
                && text.contains("apt-get install openssh-client"),
            "{text}"
        );
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    #[ignore = "helper process of another test"]
    fn programs_process() {
        if let Err(missing) = Programs::find() {
            println!("missing: {missing}");
        }
    }

    #[test]
    fn empty_path_reports_missing_programs() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::programs_process", "--ignored", "--nocapture"])
            .env("PATH", "")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("missing: ") && text.contains("apt-get install openssh-"), "{text}");
    }
}
