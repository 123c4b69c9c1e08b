//! Verifies a real history: `gantry audit verify` on an export with one line removed or altered,
//! and `gantry verify` on a database without an approval.

use engine::Hash;
use serde_json::Value;

use crate::installation::{CommandOutput, Installation, Plan};

const BARCLAMP: &str = "
barclamp: {name: stack, version: '1', description: For tests}
jigs:
  - {name: script, class: script, description: Runs scripts}
roles:
  - {name: app, jig: script, timeout: 30s}
";
const SCRIPT: &str = "#!/bin/sh\ntrue\n";
const DECLARED: &str = "deployment: web\nbindings: {app: [n1]}\n";

/// A reviewed and committed change with its run.
async fn history() -> Installation {
    let barclamps = vec![
        ("stack/stack.yml", BARCLAMP.to_owned()),
        ("stack/scripts/app/10-run", SCRIPT.to_owned()),
    ];
    let mut installation = Installation::of(Plan {
        barclamps,
        roles: vec!["app"],
        environment: Vec::new(),
        password: None,
    })
    .await;
    installation.start_worker();
    let review = installation.submitted(DECLARED);
    assert_eq!(installation.committed(&review), "2");
    installation.reaches("app", "active", 1).await;
    installation.worker = None;
    installation
}

impl Installation {
    /// The lines of `gantry audit export`.
    async fn exported(&self) -> Vec<String> {
        let admin = self.admin().await;
        while sqlx::query_scalar::<_, i32>("SELECT seal_audit(1000)")
            .fetch_one(&admin)
            .await
            .unwrap()
            > 0
        {}
        admin.close().await;
        self.gantry(&["audit", "export"]).ok().lines().map(str::to_owned).collect()
    }

    fn verifies(&self, lines: &[String]) -> CommandOutput {
        self.run_with_input(&["audit", "verify", "-"], &(lines.join("\n") + "\n"))
    }
}

/// The last line that matches.
fn last(lines: &[String], fits: impl Fn(&Value) -> bool) -> usize {
    lines.iter().rposition(|line| fits(&serde_json::from_str(line).unwrap())).unwrap()
}

fn row(lines: &[String], table: &str) -> usize {
    last(lines, |line| line["table"] == table)
}

fn document(lines: &[String], kind: &str, text: &str) -> usize {
    last(lines, |line| {
        line["kind"] == kind && line["body"].as_str().is_some_and(|body| body.contains(text))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_export_line_is_reported() {
    let installation = history().await;
    let lines = installation.exported().await;
    let output = installation.verifies(&lines).ok();
    assert!(
        output.contains(
            "Blueprints with the approvals that their policies require: 2. Runs that match their \
             blueprints: 1.\n"
        ) && output.contains("1 policy and "),
        "{output}"
    );

    let entry = last(&lines, |line| line["type"] == "audit") - 3;
    let seq = serde_json::from_str::<Value>(&lines[entry]).unwrap()["seq"].as_u64().unwrap();
    let removed = [
        (entry, format!("Entry {}", seq + 1)),
        (row(&lines, "barclamp"), "barclamp stack 1: it is missing".to_owned()),
        (row(&lines, "policy"), "policy 1: it is missing".to_owned()),
        (row(&lines, "review"), "review 1: it is missing".to_owned()),
        (row(&lines, "verdict"), "verdict 1: it is missing".to_owned()),
        (row(&lines, "blueprint"), "blueprint 2: it is missing".to_owned()),
        (row(&lines, "run"), "run 1: it is missing".to_owned()),
        (0, "an export must begin with the header".to_owned()),
        (lines.len() - 1, "The export is cut off after entry".to_owned()),
    ];
    for (line, name) in removed {
        let mut rest = lines.clone();
        rest.remove(line);
        installation.verifies(&rest).no(1, &name);
    }

    let documents = [
        (document(&lines, "barclamp", "stack"), "barclamp stack 1"),
        (document(&lines, "role", "\"name\":\"app\""), "role app of barclamp stack 1"),
        (document(&lines, "script", SCRIPT), "script 10-run of role app of barclamp stack 1"),
        (document(&lines, "policy", ""), "policy 1"),
        (document(&lines, "root", ""), "the root of blueprint 2"),
        (document(&lines, "deployment", ""), "deployment "),
        (document(&lines, "node", ""), "node "),
    ];
    for (at, name) in documents {
        let mut line: Value = serde_json::from_str(&lines[at]).unwrap();
        let body = line["body"].as_str().unwrap().to_owned();
        let hash = Hash::of_bytes(body.as_bytes());
        let mut rest = lines.clone();
        rest.remove(at);
        let output = installation.verifies(&rest).no(1, &format!("its document {hash} is missing"));
        assert!(
            output.err.contains("Invalid export")
                && output.err.contains(&format!("Verification failed at {name}")),
            "{output:?}"
        );
        line["body"] = format!("{body} ").into();
        let mut altered = lines.clone();
        altered[at] = line.to_string();
        let output =
            installation.verifies(&altered).no(1, &format!("its document {hash} was altered"));
        assert!(
            output.err.contains("Invalid export")
                && output.err.contains(&format!("Verification failed at {name}")),
            "{output:?}"
        );
    }

    for (table, field) in [
        ("barclamp", "hash"),
        ("policy", "blueprint_number"),
        ("review", "risk"),
        ("verdict", "kind"),
        ("blueprint", "root"),
        ("run", "outcome"),
    ] {
        let at = row(&lines, table);
        let mut line: Value = serde_json::from_str(&lines[at]).unwrap();
        line["row"][field] = "altered".into();
        let mut altered = lines.clone();
        altered[at] = line.to_string();
        let output = installation.verifies(&altered).no(1, "it was altered: entry");
        assert!(
            output.err.contains("Invalid export")
                && output.err.contains(&format!("Verification failed at {table} ")),
            "{output:?}"
        );
    }
    let mut altered = lines.clone();
    altered[entry] = altered[entry].replace("\\\"", "\\\" ");
    installation.verifies(&altered).no(
        1,
        &format!(
            "Entry {seq} was altered: its text does not match its \
                                             link"
        ),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_names_a_target_without_its_approval() {
    let installation = history().await;
    installation.as_application(&["verify"]).ok();
    let admin = installation.admin().await;
    for sql in
        ["ALTER TABLE verdict DISABLE TRIGGER USER", "DELETE FROM verdict WHERE review_id = 1"]
    {
        sqlx::query(sql).execute(&admin).await.unwrap();
    }
    admin.close().await;
    let output = installation.as_application(&["verify"]);
    assert!(
        output.code == Some(1) && output.out.contains("approvals of blueprint 2"),
        "{output:?}"
    );
    installation.verifies(&installation.exported().await).no(1, "verdict 1: it is missing");
}
