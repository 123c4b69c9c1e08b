//! The wrapper in isolation, as on a node: files on disk, waiting, and the lock.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use engine::Hash;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;
use worker::node::wrapper::{STAGE_WRAPPER, WRAPPER};

use crate::scripts::{appears, dies, is_alive, start_time};

/// The minimum tools of a node.
const TOOLS: [&str; 20] = [
    "sh",
    "mkdir",
    "rmdir",
    "cat",
    "sed",
    "cut",
    "tr",
    "ps",
    "grep",
    "rm",
    "mv",
    "sync",
    "sleep",
    "head",
    "tail",
    "sha256sum",
    "chmod",
    "setsid",
    "wc",
    "date",
];

/// A text of the input that must not remain on the disk.
const SECRET: &str = "hunter22";
const INPUT: &str = "{\"password\": \"hunter22\"}\n{}\nexport GANTRY_DATA_PASSWORD='hunter22'\n";

const SLEEPS: &str = "#!/bin/sh\necho $$ >leader\nexec sleep 300\n";

/// A folder that is a node, and the wrapper next to it.
struct Node {
    folder: TempDir,
    tools: Option<PathBuf>,
}

impl Node {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("wrapper"), WRAPPER).expect("a writable folder");
        fs::create_dir(folder.path().join("node")).expect("a writable folder");
        Self { folder, tools: None }
    }

    fn without_flock() -> Self {
        let node = Self::new();
        let tools = node.folder.path().join("bin");
        fs::create_dir(&tools).expect("a writable folder");
        for tool in TOOLS {
            let found = ["/usr/bin", "/bin"].map(|place| Path::new(place).join(tool));
            let found = found
                .iter()
                .find(|path| path.exists())
                .unwrap_or_else(|| panic!("{tool} is not installed"));
            std::os::unix::fs::symlink(found, tools.join(tool)).expect("a writable folder");
        }
        Self { tools: Some(tools), ..node }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("node")
    }

    fn stored_file(&self, name: &str) -> PathBuf {
        self.root().join(".gantry").join(name)
    }

    /// Calls the wrapper with a limit of this many 512-byte blocks per file, to simulate a full
    /// disk.
    fn command<W: AsRef<OsStr>>(&self, words: &[W], blocks: Option<u32>) -> Command {
        let limit =
            blocks.map_or(String::new(), |blocks| format!("trap '' XFSZ; ulimit -f {blocks}; "));
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(format!("{limit}exec sh \"$@\"")).arg("sh");
        command.arg(self.folder.path().join("wrapper")).arg(self.root()).args(words);
        if let Some(tools) = &self.tools {
            command.env_clear().env("PATH", tools);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start<W: AsRef<OsStr>>(&self, words: &[W], input: &str) -> Child {
        let mut child = self.command(words, None).spawn().expect("a shell");
        // A command that does not read its input may end before the write.
        let _ = child.stdin.as_mut().expect("a pipe").write_all(input.as_bytes());
        child
    }

    fn call<W: AsRef<OsStr>>(&self, words: &[W], input: &str) -> Output {
        ended(self.start(words, input))
    }

    fn call_on_a_full_disk<W: AsRef<OsStr>>(
        &self,
        blocks: u32,
        words: &[W],
        input: &str,
    ) -> Output {
        let mut child = self.command(words, Some(blocks)).spawn().expect("a shell");
        let _ = child.stdin.as_mut().expect("a pipe").write_all(input.as_bytes());
        ended(child)
    }

    /// Stores a script and returns the arguments that run it.
    fn words(&self, script: &str, step: &str, epoch: i64, attempt: i64) -> Vec<String> {
        let hash = Hash::of_bytes(script.as_bytes()).to_string();
        assert!(self.call(&["put", &hash], script).status.success());
        let numbers = [epoch, attempt].map(|number| number.to_string());
        let size = INPUT.len().to_string();
        let words = [
            "run",
            step,
            &numbers[0],
            &numbers[1],
            "1",
            "c",
            "1",
            "60",
            "1",
            "n.a.b",
            "role",
            &size,
            "-",
            "100",
        ];
        words.map(str::to_owned).into_iter().chain([format!("{hash}:it.sh")]).collect()
    }

    /// The files that contain the secret.
    fn betraying(&self) -> Vec<PathBuf> {
        files(&self.root().join(".gantry"))
            .into_iter()
            .filter(|file| fs::read_to_string(file).is_ok_and(|text| text.contains(SECRET)))
            .collect()
    }

    fn runs(&self) -> Vec<String> {
        names(&self.stored_file("run"))
    }
}

/// The same arguments with the size of another input.
fn with_size(words: &[String], input: &str) -> Vec<String> {
    let mut words = words.to_vec();
    words[11] = input.len().to_string();
    words
}

fn ended(mut child: Child) -> Output {
    drop(child.stdin.take());
    child.wait_with_output().expect("the task ends")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn output_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn number(text: &str) -> Pid {
    Pid::from_raw(text.trim().parse().expect("a number"))
}

/// Waits until the condition is true.
async fn comes(description: &str, so: impl Fn() -> bool) {
    for _ in 0..1_500 {
        if so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the condition did not become true: {description}");
}

#[test]
fn unused_input_is_deleted() {
    let node = Node::new();
    let words = node.words("#!/bin/sh\necho x >>ran\n", "s", 1, 1);
    let nothing_stays = |ran: &Output, message: &str| {
        assert_eq!(ran.status.code(), Some(74), "{ran:?}");
        let error = String::from_utf8_lossy(&ran.stderr);
        assert!(error.contains(message), "{error}");
        assert_eq!((node.betraying(), node.runs()), (vec![], vec![]), "{message}");
        assert_eq!(names(&node.stored_file("incoming")), Vec::<String>::new(), "{message}");
    };
    let half = &INPUT[..INPUT.len() - 1];
    nothing_stays(&node.call(&words, half), "the input is incomplete");
    let long = format!("{}{}{INPUT}", "x".repeat(40_000), SECRET);
    nothing_stays(
        &node.call_on_a_full_disk(8, &with_size(&words, &long), &long),
        "is the disk full?",
    );
    // The input fits, but not the reserve for the run's end.
    nothing_stays(&node.call_on_a_full_disk(12, &words, INPUT), "is the disk full?");
    assert!(!node.root().join("ran").exists());
    assert!(node.call(&words, INPUT).status.success(), "unused input must not count as an attempt");
}

#[test]
fn partial_script_is_deleted() {
    let node = Node::new();
    let script = format!("#!/bin/sh\n# {}\n", "x".repeat(40_000));
    let put = ["put".to_owned(), Hash::of_bytes(script.as_bytes()).to_string()];
    assert_eq!(node.call_on_a_full_disk(8, &put, &script).status.code(), Some(74));
    assert_eq!(node.call(&put, &script[..100]).status.code(), Some(74));
    assert_eq!(names(&node.stored_file("scripts")), Vec::<String>::new());

    let path = node.folder.path().join("staged/wrapper");
    let mut stage = Command::new("/bin/sh");
    stage
        .arg("-c")
        .arg("trap '' XFSZ; ulimit -f 4; exec sh -c \"$@\"")
        .args(["sh", STAGE_WRAPPER, "gantry"])
        .arg(&path);
    let mut stage = stage.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a shell");
    let _ = stage.stdin.as_mut().expect("a pipe").write_all(WRAPPER.as_bytes());
    assert!(!ended(stage).status.success());
    assert_eq!(names(path.parent().expect("a folder")), Vec::<String>::new());
}

/// Simulates a power failure: no process can clean up.
async fn dies_at_once(node: &Node, words: &[String]) {
    let mut following = node.start(words, INPUT);
    drop(following.stdin.take());
    let leader = appears(&node.root().join("leader")).await;
    let of = |name: &str| {
        let folder = node.stored_file("run").join(node.runs().remove(0));
        let text = fs::read_to_string(folder.join(name)).expect("a written file");
        text.split(' ').nth(1).expect("a number").to_owned()
    };
    let (supervisor, group) = (of("supervisor"), of("process"));
    kill(number(&supervisor), Signal::SIGKILL).expect("the test owns it");
    killpg(number(&group), Signal::SIGKILL).expect("the test owns it");
    following.kill().expect("the test owns it");
    following.wait().expect("the test owns it");
    for pid in [leader, supervisor] {
        dies(&pid).await;
    }
    fs::remove_file(node.root().join("leader")).expect("it exists");
}

#[tokio::test]
async fn crashed_attempt_leaves_no_input() {
    let node = Node::new();
    dies_at_once(&node, &node.words(SLEEPS, "s", 1, 1)).await;
    assert!(!node.betraying().is_empty(), "a crashed attempt cannot delete its own input");
    assert_eq!(
        output_text(&node.call(&["end", "s", "1", "1", "1"], "")),
        "started=yes state=started\n"
    );
    assert_eq!(
        (node.betraying(), node.runs()),
        (vec![], vec![]),
        "ending an attempt must delete its input"
    );

    dies_at_once(&node, &node.words(SLEEPS, "s", 1, 2)).await;
    assert_eq!(output_text(&node.call(&["attempts"], "")), "1.2 s gone\n");
    assert_eq!(node.betraying(), Vec::<PathBuf>::new(), "finding an attempt must delete its input");
    assert_eq!(
        node.call(&["follow", "1.2", "0", "0", "-", "100"], "").status.code(),
        Some(77),
        "a lost attempt must have another exit code than an unknown one"
    );

    // The machine went down before the supervisor file was written.
    let folder = node.stored_file("run").join("1.3");
    fs::create_dir(&folder).expect("a writable folder");
    for (name, text) in [("of", "other 0\n"), ("boot", "before\n"), ("input.json", INPUT)] {
        fs::write(folder.join(name), text).expect("a writable folder");
    }
    let left = output_text(&node.call(&["attempts"], ""));
    assert!(left.contains("1.3 other gone\n"), "{left}");
    assert_eq!(node.betraying(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn partial_input_does_not_block_others() {
    for node in [Node::new(), Node::without_flock()] {
        // Longer than any buffer, so that part of it reaches the disk.
        let input = format!("{INPUT}#{}\n", "x".repeat(40_000));
        let (half, sleeps) = (&input[..input.len() - 1], |attempt| {
            with_size(&node.words(SLEEPS, "s", 1, attempt), &input)
        });
        let mut silent = node.start(&sleeps(1), half);
        comes("half of the input has arrived", || !node.betraying().is_empty()).await;
        let other = node.call(&["end", "other", "1", "1", "1"], "");
        assert!(other.status.success(), "{other:?}");
        assert!(
            !node.betraying().is_empty(),
            "the input of an attempt that may still start must stay"
        );

        let newer = node.call(&node.words("#!/bin/sh\necho x >>ran\n", "s", 1, 2), INPUT);
        assert!(newer.status.success(), "{newer:?}");
        assert_eq!(
            node.betraying(),
            Vec::<PathBuf>::new(),
            "an outdated attempt must leave no input"
        );
        silent
            .stdin
            .as_mut()
            .expect("a pipe")
            .write_all(b"\n")
            .expect("the wrapper reads its input");
        let late = ended(silent);
        assert_eq!(late.status.code(), Some(71), "{late:?}");
        assert!(!node.root().join("leader").exists());

        let mut killed = node.start(&sleeps(3), half);
        comes("half of the input has arrived", || !node.betraying().is_empty()).await;
        killed.kill().expect("the test owns it");
        killed.wait().expect("the test owns it");
        assert_eq!(output_text(&node.call(&["attempts"], "")), "1.2 s ended\n");
        assert_eq!(
            node.betraying(),
            Vec::<PathBuf>::new(),
            "finding an attempt must delete its input"
        );

        let ended_meanwhile = node.start(&sleeps(4), half);
        comes("half of the input has arrived", || !node.betraying().is_empty()).await;
        assert_eq!(
            output_text(&node.call(&["end", "s", "1", "4", "1"], "")),
            "started=no state=succeeded\n"
        );
        assert_eq!(node.betraying(), Vec::<PathBuf>::new());
        assert_eq!(ended(ended_meanwhile).status.code(), Some(71));
    }
}

/// If the connection breaks after the run has ended, the worker asks again until it confirms the
/// result.
#[test]
fn result_stays_until_its_receipt_is_confirmed() {
    for node in [Node::new(), Node::without_flock()] {
        arrives(&node);
    }
}

fn arrives(node: &Node) {
    let script = "#!/bin/sh\nprintf out\necho '{\"a\": 1}' >\"$GANTRY_OUTPUT\"\n";
    let hash = Hash::of_bytes(script.as_bytes()).to_string();
    let input = format!("{script}{INPUT}");
    let (size, along) = (input.len().to_string(), format!("{hash}+{}:it.sh", script.len()));
    let run = |attempt: &str| {
        [
            "run", "s", "1", attempt, "1", "c", "1", "60", "1", "n.a.b", "role", &size, "MARK",
            "100", &along,
        ]
        .map(str::to_owned)
    };
    let reported = "MARKcode=0 why=exit script=it.sh\n{\"a\": 1}\nMARK";
    assert_eq!(
        output_text(&node.call(&run("1"), &input)),
        format!("out{reported}"),
        "the wrapper must run the script that follows the input"
    );
    assert_eq!(node.runs(), ["1.1"], "the attempt must stay until its result is acknowledged");
    assert_eq!(output_text(&node.call(&["follow", "1.1", "3", "0", "MARK", "100"], "")), reported);
    assert_eq!(
        output_text(&node.call(&["follow", "1.1", "3", "0", "MARK", "100"], "taken\n")),
        reported
    );
    assert_eq!(node.runs(), Vec::<String>::new());
    assert_eq!(
        output_text(&node.call(&run("2"), &format!("{input}taken\n"))),
        format!("out{reported}")
    );
    assert_eq!((node.runs(), node.betraying()), (vec![], vec![]));
}

#[test]
fn non_regular_output_file_is_reported() {
    let node = Node::new();
    for (attempt, makes) in
        ["rm -f F; mkdir F", "rm -f F; mkfifo F", "rm -f F; ln -s /nowhere F"].iter().enumerate()
    {
        let script = format!("#!/bin/sh\n{}\n", makes.replace('F', "\"$GANTRY_OUTPUT\""));
        let attempt = i64::try_from(attempt).expect("a small number") + 1;
        assert!(
            node.call(&node.words(&script, &format!("s{attempt}"), 1, attempt), INPUT)
                .status
                .success()
        );
        let taken = output_text(&node.call(&["take", &format!("1.{attempt}"), "100"], ""));
        assert_eq!(taken, "output=no-file code=0 why=exit script=it.sh\n", "{makes}");
        assert_eq!(node.runs(), Vec::<String>::new());
    }
}

/// A process in its own session, with the files of an older wrapper, whose folder name is the
/// attempt number alone.
struct Earlier {
    child: Child,
}

impl Earlier {
    fn of(node: &Node, attempt: i64, step: &str) -> Self {
        let child = Command::new("setsid").args(["sleep", "300"]).spawn().expect("a process");
        let start = start_time(child.id());
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot");
        let folder = node.stored_file("run").join(attempt.to_string());
        fs::create_dir_all(&folder).expect("a writable folder");
        let process = format!("{} {} {start}\n", boot.trim(), child.id());
        for (name, text) in
            [("of", format!("{step} 1\n")), ("process", process), ("input.json", INPUT.to_owned())]
        {
            fs::write(folder.join(name), text).expect("a writable folder");
        }
        Self { child }
    }

    fn started(self, node: &Node, attempt: i64, step: &str) -> Self {
        let ledger = node.stored_file("ledger");
        fs::create_dir_all(&ledger).expect("a writable folder");
        let text = format!(
            "epoch=1\nattempt={attempt}\nstarted={attempt}\ngeneration=1\ncontent=c\nstate=started\n"
        );
        fs::write(ledger.join(step), text).expect("a writable folder");
        self
    }

    fn runs(&self) -> bool {
        is_alive(&self.child.id().to_string())
    }
}

impl Drop for Earlier {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn attempt_of_older_wrapper_can_be_ended() {
    let node = Node::new();
    let earlier = Earlier::of(&node, 5, "s").started(&node, 5, "s");
    assert_eq!(output_text(&node.call(&["attempts"], "")), "5 s runs\n");
    assert_eq!(
        output_text(&node.call(&["end", "s", "1", "4", "1"], "")),
        "started=unknown state=started\n"
    );
    assert!(earlier.runs(), "the older attempt must be running");
    assert_eq!(
        output_text(&node.call(&["end", "s", "1", "5", "1"], "")),
        "started=yes state=started\n"
    );
    assert!(!earlier.runs());
    assert_eq!((node.betraying(), node.runs()), (vec![], vec![]));

    let earlier = Earlier::of(&node, 6, "s").started(&node, 6, "s");
    let half = node.stored_file("run").join("7");
    fs::create_dir(&half).expect("a writable folder");
    fs::write(half.join("stdin"), INPUT).expect("a writable folder");
    let newer = node.call(&node.words("#!/bin/sh\necho x >>ran\n", "s", 2, 6), INPUT);
    assert!(newer.status.success(), "{newer:?}");
    assert!(!earlier.runs());
    assert_eq!(node.betraying(), Vec::<PathBuf>::new());
    assert_eq!(node.runs(), ["2.6"]);
}

/// Replaces a tool that each lock holder calls. It detects two concurrent holders, and some callers
/// die.
fn watches_the_lock(node: &Node) {
    let tool = node.tools.as_ref().expect("a node with its own tools").join("sync");
    fs::remove_file(&tool).expect("a link");
    let script = "#!/bin/sh\nmkdir \"${0%/*}/inside\" 2>/dev/null || echo \"$1\" \
        >>\"${0%/*}/twice\"\nsleep 0.02\n\
                  rmdir \"${0%/*}/inside\"\ncase $1 in *dies*) kill -9 $PPID ;; esac\n";
    fs::write(&tool, script).expect("a writable folder");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&tool, mode).expect("a writable folder");
}

#[test]
fn lock_without_flock_has_one_holder() {
    let node = Node::without_flock();
    watches_the_lock(&node);
    let step = |number: usize| {
        format!("{}{number}", if number.is_multiple_of(3) { "dies" } else { "lives" })
    };
    let all: Vec<_> =
        (0..24).map(|number| node.start(&["end", &step(number), "1", "1", "1"], "")).collect();
    for (number, child) in all.into_iter().enumerate() {
        let output = ended(child);
        let fine = output_text(&output) == "started=no state=none\n";
        assert_eq!(fine, !number.is_multiple_of(3), "{number}: {output:?}");
    }
    let twice = fs::read_to_string(node.folder.path().join("bin/twice")).unwrap_or_default();
    assert_eq!(twice, "", "two attempts held the lock at once");
}

#[test]
fn abandoned_lock_can_be_acquired() {
    let node = Node::without_flock();
    let is_had = |name: &str| {
        let output = node.call(&["end", name, "1", "1", "1"], "");
        assert!(output.status.success(), "{output:?}");
        assert_eq!(names(&node.stored_file("holder")), ["free"], "the lock must be released");
    };
    // The remains of an older wrapper that died while it took the lock.
    fs::create_dir_all(node.stored_file("lock.d")).expect("a writable folder");
    is_had("a");
    // The creator died before the lock was complete.
    fs::remove_file(node.stored_file("holder/free")).expect("it exists");
    is_had("b");
    fs::remove_file(node.stored_file("holder/free")).expect("it exists");
    fs::create_dir(node.stored_file("holder/holder.1")).expect("a writable folder");
    is_had("c");
    // The process id of the dead holder was reused.
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot");
    let other = format!("holder/{}.{}.1", boot.trim(), std::process::id());
    fs::rename(node.stored_file("holder/free"), node.stored_file(&other)).expect("it exists");
    is_had("d");
}

/// Without `flock`, the wrapper uses its own lock.
#[test]
fn node_without_flock_works() {
    let node = Node::without_flock();
    let root = node.root();
    let call = |words: &[&str], input: &str| node.call(words, input);
    let script = "#!/bin/sh\nsleep 300 &\necho $! >child\necho out\nsleep 300\n";
    let hash = Hash::of_bytes(script.as_bytes()).to_string();
    assert!(call(&["put", &hash], script).status.success());
    let named = format!("{hash}:long.sh");
    let run =
        ["run", "s", "1", "1", "1", "c", "1", "1", "2", "n.a.b", "role", "10", "-", "100", &named];
    let broken = call(&run, "{}\nA=");
    assert!(
        !broken.status.success() && !root.join("child").exists(),
        "truncated input must start nothing: {broken:?}"
    );
    let ran = call(&run, "{}\n{}\nA=1\n");
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "out\n");
    let how = String::from_utf8_lossy(&call(&["take", "1.1", "100"], "").stdout).into_owned();
    assert!(how.contains("why=timeout"), "{how}");
    let child = fs::read_to_string(root.join("child")).expect("the script ran");
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.trim())).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z"), "{stat}");
    let again = call(&run, "{}\n{}\nA=1\n");
    assert_eq!(again.status.code(), Some(71));
    assert_eq!(names(&node.stored_file("holder")), ["free"]);
}
