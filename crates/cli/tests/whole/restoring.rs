//! Backup and restore with the commands in `docs/operating.md`, which the test reads from there.

use std::path::{Path, PathBuf};
use std::process::Command;

use control::people::People;
use tokio::time::Duration;

use crate::installation::{Installation, Plan};

const BARCLAMP: &str = "
barclamp: {name: stack, version: '1', description: For tests}
jigs:
  - {name: script, class: script, description: Runs scripts}
roles:
  - {name: app, jig: script, timeout: 30s}
";
/// Each run appends a line on the node, which a restore does not undo.
const SCRIPT: &str = "#!/bin/sh\necho ran >>runs\n";

const ONE: &str = "deployment: web\nbindings: {app: [n1]}\n";
const TWO: &str = "deployment: web\nbindings: {app: [n1, n2]}\n";

/// The first command block of a chapter in docs/operating.md.
fn commands(heading: &str) -> String {
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operating.md");
    let book = std::fs::read_to_string(book).unwrap();
    let chapter = book
        .split_once(&format!("\n### {heading}\n"))
        .unwrap_or_else(|| panic!("the book has no section {heading}"))
        .1;
    let commands = chapter.split_once("```sh\n").unwrap().1.split_once("```").unwrap().0;
    commands.to_owned()
}

/// The folder of PostgreSQL's programs. PATH may have only `psql`, so search like the private
/// cluster does.
fn programs() -> PathBuf {
    if let Some(folder) = std::env::var_os("GANTRY_PG_BIN") {
        return folder.into();
    }
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let majors = installed.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    majors
        .max()
        .map_or_else(PathBuf::new, |newest| format!("/usr/lib/postgresql/{newest}/bin").into())
}

impl Installation {
    /// Runs an operator's commands as a superuser of PostgreSQL.
    fn types(&self, commands: &str) {
        let folder = self.folder.path().join("backup");
        std::fs::create_dir_all(&folder).unwrap();
        let mut path = vec![programs()];
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        path.retain(|folder| !folder.as_os_str().is_empty());
        let mut shell = Command::new("sh");
        shell
            .args(["-euxc", commands])
            .current_dir(folder)
            .env("PATH", std::env::join_paths(path).unwrap());
        shell
            .env("PGHOST", self.postgres.socket_dir())
            .env("PGUSER", "postgres")
            .env("GANTRY_OWNER_URL", self.owner());
        for variable in ["PGPORT", "PGDATABASE", "PGPASSWORD", "PGSERVICE", "PGOPTIONS"] {
            shell.env_remove(variable);
        }
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{commands}\n{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Creates a one-time link for bo.
    async fn link(&self) -> String {
        let owner = self.owner_store();
        let people = People::over(owner.clone());
        let bo = people.actor_by_name("bo").await.unwrap().person;
        let link = people.create_sign_in_link(None, bo, Duration::from_secs(3600)).await.unwrap();
        owner.pool().close().await;
        format!("{}/sign-in#token={}\n", self.address, link.reveal())
    }

    fn runs_on(&self, node: usize) -> usize {
        std::fs::read_to_string(self.root(node).join("runs")).map_or(0, |runs| runs.lines().count())
    }

    /// The highest attempt number.
    async fn newest_run(&self) -> i64 {
        let admin = self.admin().await;
        let newest = sqlx::query_scalar("SELECT max(id) FROM run").fetch_one(&admin).await.unwrap();
        admin.close().await;
        newest
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restore_keeps_backup_and_voids_later_changes() {
    let barclamps = vec![
        ("stack/stack.yml", BARCLAMP.to_owned()),
        ("stack/scripts/app/10-run", SCRIPT.to_owned()),
    ];
    let plan = Plan { barclamps, roles: vec!["app"], environment: Vec::new(), password: None };
    let mut installation = Installation::of(plan).await;
    installation.start_worker();
    let review = installation.submitted(ONE);
    assert_eq!(installation.committed(&review), "2");
    installation.reaches("app", "active", 1).await;
    let old = installation.submitted(TWO);
    installation.gantry(&["review", "approve", &old, "--context", "bo"]).ok();
    let (spent, unspent) = (installation.link().await, installation.link().await);
    let can_sign_in = |installation: &Installation, link: &str| {
        let text = installation.run_with_input(
            &["context", "add", "again", "--replace", "--server", &installation.address],
            link,
        );
        // Signing in makes that context the default, so switch back.
        installation.gantry(&["context", "use", "ada"]).ok();
        text
    };
    can_sign_in(&installation, &spent).ok();

    installation.types(&commands("Back up"));

    // Events after the backup: a commit, its effect on a machine, and a used link.
    assert_eq!(installation.gantry(&["review", "commit", &old, "--json"]).json()["blueprint"], 3);
    installation.reaches("app", "active", 2).await;
    assert_eq!((installation.runs_on(1), installation.runs_on(2)), (1, 1));
    can_sign_in(&installation, &unspent).ok();
    let before = installation.newest_run().await;
    installation.worker = None;
    installation.server = None;

    installation.types(&commands("Restore"));
    let text = installation.as_owner(&["migrate", "--restored"]).ok();
    assert!(text.contains("The database is now in epoch 2. Submit open changes again."), "{text}");
    let text = installation.as_application(&["verify"]).ok();
    assert!(
        text.starts_with("Blueprint 2: all rows of ") && text.contains("match its documents"),
        "{text}"
    );
    installation.start_server();

    // An approval from before the restore is void, and nothing remains of the events after the
    // backup.
    installation.gantry(&["review", "commit", &old, "--json"]).no(5, "other_epoch");
    assert_eq!(installation.gantry(&["blueprint", "list", "--json"]).json()["head"], 2);
    // A link used before the backup stays used. A link used after it becomes valid again, as the
    // chapter warns.
    let refused = can_sign_in(&installation, &spent);
    assert_ne!(refused.code, Some(0), "{refused:?}");
    can_sign_in(&installation, &unspent).ok();

    let proposal =
        installation.gantry(&["proposal", "list", "--json"]).json()["proposals"][0]["id"]
            .to_string();
    let submit = ["proposal", "submit", &proposal, "--title", "Again", "--json"];
    let again = installation.gantry(&submit).json()["review"].to_string();
    assert_ne!(again, old);
    installation.gantry(&["review", "commit", &again]).no(5, "approval");
    assert_eq!(
        installation.committed(&again),
        "3",
        "the restored database assigns this number again"
    );
    installation.start_worker();
    installation.reaches("app", "active", 2).await;
    // The node has seen this attempt number in the previous epoch. The attempt starts, because its
    // epoch is newer.
    assert!(
        installation.newest_run().await <= before,
        "the restored database assigns the numbers of runs again"
    );
    assert_eq!((installation.runs_on(1), installation.runs_on(2)), (1, 2));
}
