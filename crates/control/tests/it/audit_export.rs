//! Offline verification of the audit export of a real history, and `gantry verify` on altered rows.

use api::audit::ChainQuery;
use api::people::{PasskeyRequest, Signature};
use authenticator::Authenticator;
use engine::audit::ChainDefect;
use engine::audit::export::{Check, End, Line, Totals, Verification, verify};
use engine::gate::{Policy, SignedRule, VerdictKind};
use passkeys::RelyingParty;
use serde_json::json;
use store::audit::Stage;

use crate::installation::Installation;

/// The lines of a whole export, as the server writes them.
async fn export(installation: &Installation) -> Vec<String> {
    loop {
        let sealed: i32 = sqlx::query_scalar("SELECT seal_audit(1000)")
            .fetch_one(installation.database.owner())
            .await
            .unwrap();
        if sealed == 0 {
            break;
        }
    }
    let (mut chain, header) =
        installation.control.audit_export(&installation.ada, ChainQuery::default()).await.unwrap();
    let (end, hash) = (header.end, header.hash);
    let mut lines = vec![Line::Header(header)];
    while chain.last < end {
        let (part, next) = installation.control.audit_links(chain).await.unwrap();
        lines.extend(part.into_iter().map(Line::Audit));
        chain = next;
    }
    let mut stage = Stage::default();
    while stage != Stage::Done {
        let (part, next) = installation.control.audit_rows(end, stage).await.unwrap();
        lines.extend(part);
        stage = next;
    }
    let mut totals = Totals::default();
    lines.iter().for_each(|line| totals.count(line));
    lines.push(Line::End(End { end, hash, totals }));
    lines.iter().map(|line| serde_json::to_string(line).unwrap()).collect()
}

fn check(lines: &[String]) -> Result<Verification, ChainDefect> {
    let mut check = Check::default().with_signatures(passkeys::verify);
    lines.iter().try_for_each(|line| check.line(line))?;
    check.finish()
}

/// Two reviewed changes, a rejected one, an open one, and a run with each outcome.
async fn history() -> Installation {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let edit = installation.bind("web", 2, "app").await;
    let rejected = installation.submit(&installation.ada, "web", vec![edit]).await;
    installation
        .control
        .give_verdict(&installation.bo, rejected, VerdictKind::RequestChanges, "not yet".into())
        .await
        .unwrap();
    installation.bound("edge", 3, "app").await;
    let claim = "INSERT INTO run (step_id, node_id, concurrency_group_id, generation, blueprint_number, epoch, content_hash, exclusive, lease_until) \
                 SELECT s.id, s.node_id, s.concurrency_group_id, s.generation, h.number, h.epoch, s.content_hash, true, now() \
                 FROM step s JOIN noderole r ON r.id = s.noderole_id CROSS JOIN head h WHERE r.role = 'app'";
    for sql in [
        "INSERT INTO worker (name, phase, lease_until) VALUES ('w', 'confirmed', now())",
        claim,
        "UPDATE run SET state = 'running', started_at = now(), worker_id = (SELECT id FROM worker)",
        "UPDATE run SET state = 'ended', ended_at = now(), outcome = 'succeeded' WHERE id = (SELECT min(id) FROM run)",
    ] {
        sqlx::query(sql).execute(installation.database.owner()).await.unwrap();
    }
    installation
}

#[tokio::test]
async fn real_history_is_valid_and_needs_every_line() {
    let installation = history().await;
    let lines = export(&installation).await;
    let proven = check(&lines).unwrap_or_else(|broken| panic!("{broken}"));
    let totals = &proven.totals;
    assert!(proven.whole);
    assert_eq!(
        (totals.blueprints, totals.reviews, totals.verdicts, totals.runs, totals.policies),
        (3, 3, 3, 2, 1)
    );
    for removed in 0..lines.len() {
        let rest: Vec<String> = lines
            .iter()
            .enumerate()
            .filter(|(n, _)| *n != removed)
            .map(|(_, line)| line.clone())
            .collect();
        let broken = check(&rest).expect_err(&lines[removed]);
        // Except for the frame, the error names the removed line itself, not just a wrong count at
        // the end.
        let line: Line = serde_json::from_str(&lines[removed]).unwrap();
        if matches!(line, Line::Row { .. } | Line::Object { .. }) {
            assert!(matches!(broken, ChainDefect::Proof { .. }), "{}: {broken}", lines[removed]);
            assert!(
                !broken.to_string().starts_with("the last line"),
                "{}: {broken}",
                lines[removed]
            );
        }
    }
}

#[tokio::test]
async fn export_is_consistent_during_later_changes() {
    let installation = history().await;
    let before = export(&installation).await;
    let (chain, header) =
        installation.control.audit_export(&installation.ada, ChainQuery::default()).await.unwrap();
    assert_eq!(chain.last, 0);
    // A run ends and a commit happens while the export is read.
    sqlx::query("UPDATE run SET state = 'ended', ended_at = now(), outcome = 'failed' WHERE state = 'running'")
        .execute(installation.database.owner())
        .await
        .unwrap();
    installation.bound("web", 4, "app").await;
    sqlx::query("SELECT seal_audit(10)").execute(installation.database.owner()).await.unwrap();
    let (mut rows, mut stage) = (Vec::new(), Stage::default());
    while stage != Stage::Done {
        let (part, next) = installation.control.audit_rows(header.end, stage).await.unwrap();
        rows.extend(part.iter().map(|line| serde_json::to_string(line).unwrap()));
        stage = next;
    }
    let rows_before: Vec<String> =
        before.iter().filter(|line| line.contains("\"type\":\"row\"")).cloned().collect();
    rows.retain(|line| line.contains("\"type\":\"row\""));
    assert_eq!(rows, rows_before);
    check(&export(&installation).await).unwrap_or_else(|broken| panic!("{broken}"));
}

#[tokio::test]
async fn altered_rows_are_reported() {
    for (table, sql, name) in [
        (
            "verdict",
            "UPDATE verdict SET person_id = (SELECT id FROM person WHERE name = 'cy') WHERE id = 1",
            "verdict 1",
        ),
        ("verdict", "DELETE FROM verdict WHERE id = 1", "verdict 1: it is missing"),
        ("blueprint", "UPDATE blueprint SET committed_by = NULL WHERE number = 2", "blueprint 2"),
        ("review", "UPDATE review SET risk = '{move}' WHERE id = 1", "review 1"),
        (
            "review_author",
            "UPDATE review_author SET person_id = (SELECT id FROM person WHERE name = 'cy') WHERE review_id = 1",
            "review 1",
        ),
        ("review_document", "DELETE FROM review_document WHERE review_id = 1", "review 1"),
        ("run", "UPDATE run SET outcome = 'failed' WHERE outcome = 'succeeded'", "run 1"),
        ("run", "UPDATE run SET blueprint_number = 1 WHERE id = 1", "run 1"),
        ("policy", "UPDATE policy SET created_at = created_at - interval '1 day'", "policy 1"),
    ] {
        let installation = history().await;
        for sql in [&format!("ALTER TABLE {table} DISABLE TRIGGER USER"), sql] {
            sqlx::query(sqlx::AssertSqlSafe(sql.to_owned()))
                .execute(installation.database.owner())
                .await
                .unwrap();
        }
        let broken = check(&export(&installation).await).expect_err(sql);
        assert!(
            broken.to_string().starts_with(&format!("Verification failed at {name}")),
            "{sql}: {broken}"
        );
        if table == "review_document" {
            // `verify` checks only the rows that result from a review's documents.
            continue;
        }
        let verified = installation.control.verify().await.unwrap();
        assert!(!verified.discrepancies.is_empty(), "gantry verify: {sql}");
    }
}

#[tokio::test]
async fn verify_reports_a_target_without_approval() {
    let installation = history().await;
    let honest = installation.control.verify().await.unwrap();
    assert_eq!(honest.discrepancies, []);
    for sql in
        ["ALTER TABLE verdict DISABLE TRIGGER USER", "DELETE FROM verdict WHERE review_id = 1"]
    {
        sqlx::query(sql).execute(installation.database.owner()).await.unwrap();
    }
    let found = installation.control.verify().await.unwrap().discrepancies;
    let approvals = found.iter().find(|one| one.row == "approvals of blueprint 2").unwrap();
    assert_eq!((&approvals.expected, &approvals.found), (&Some(json!(1)), &Some(json!(0))));
    assert!(found.iter().any(|one| one.row.starts_with("verdict 1")), "{found:?}");
}

const ORIGIN: &str = "http://localhost:7780";

/// A change that was approved with a confirmed passkey, as the policy requires.
async fn signed_history() -> Installation {
    let installation =
        Installation::under(Policy { signed: [SignedRule::default()].into(), ..Policy::default() })
            .await;
    let (site, authenticator) = (RelyingParty::of(ORIGIN).unwrap(), Authenticator::new());
    let begun = installation.people.passkey_options(&installation.bo, &site).await.unwrap();
    let body =
        PasskeyRequest { name: "key".into(), answer: authenticator.create(ORIGIN, &begun.options) };
    let made = installation.people.register_passkey(&installation.bo, &site, &body).await.unwrap();
    installation
        .people
        .confirm_passkey_as_owner(installation.bo.person, &made.fingerprint)
        .await
        .unwrap();
    let edit = installation.bind("web", 1, "app").await;
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    let request = installation
        .control
        .verdict_options(&installation.bo, &site, id, VerdictKind::Approve)
        .await
        .unwrap();
    let answer = authenticator.get(ORIGIN, &request.options);
    let signature = Signature { nonce: request.nonce, answer };
    installation
        .control
        .add_signed_verdict(
            &installation.bo,
            id,
            VerdictKind::Approve,
            String::new(),
            Some(signature),
        )
        .await
        .unwrap();
    installation.commit(&installation.ada, id).await.unwrap();
    installation
}

#[tokio::test]
async fn signed_history_is_valid_and_needs_every_line() {
    let installation = signed_history().await;
    let lines = export(&installation).await;
    let proven = check(&lines).unwrap_or_else(|broken| panic!("{broken}"));
    let totals = &proven.totals;
    assert_eq!(
        (totals.passkeys, totals.passkey_confirmations, totals.verdict_signatures),
        (1, 1, 1)
    );
    let unverified = verify(lines.iter().map(String::as_str)).unwrap_err();
    assert!(unverified.to_string().contains("cannot verify signatures"), "{unverified}");
    for removed in (0..lines.len()).filter(|n| lines[*n].contains("\"type\":\"row\"")) {
        let rest: Vec<String> = lines
            .iter()
            .enumerate()
            .filter(|(n, _)| *n != removed)
            .map(|(_, line)| line.clone())
            .collect();
        let broken = check(&rest).expect_err(&lines[removed]).to_string();
        assert!(!broken.starts_with("Verification failed at the last line"), "{broken}");
        if lines[removed].contains("verdict_signature") {
            assert!(
                broken.starts_with("Verification failed at verdict_signature 1: it is missing"),
                "{broken}"
            );
        }
    }
    assert_eq!(installation.control.verify().await.unwrap().discrepancies, []);
}

#[tokio::test]
async fn altered_signature_is_reported() {
    for (table, sql, name) in [
        (
            "verdict_signature",
            "UPDATE verdict_signature SET nonce = substr(sha256(''), 1, 16)",
            "verdict_signature 1",
        ),
        ("verdict_signature", "DELETE FROM verdict_signature", "verdict_signature 1"),
        ("passkey_confirmation", "DELETE FROM passkey_confirmation", "passkey_confirmation "),
        ("passkey", "UPDATE passkey SET origin = 'https://elsewhere.example'", "passkey "),
    ] {
        let installation = signed_history().await;
        for sql in [&format!("ALTER TABLE {table} DISABLE TRIGGER USER"), sql] {
            sqlx::query(sqlx::AssertSqlSafe(sql.to_owned()))
                .execute(installation.database.owner())
                .await
                .unwrap();
        }
        let broken = check(&export(&installation).await).expect_err(sql);
        assert!(
            broken.to_string().starts_with(&format!("Verification failed at {name}")),
            "{sql}: {broken}"
        );
        assert!(
            !installation.control.verify().await.unwrap().discrepancies.is_empty(),
            "gantry verify: {sql}"
        );
    }
}
