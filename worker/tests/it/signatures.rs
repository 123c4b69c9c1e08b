//! Policies that require signed approvals: the worker refuses forged targets that the database
//! accepted.

use crate::cluster::{Cluster, bind};
use crate::process::{Running, quick};

impl Cluster {
    fn forge(&mut self, forges: bool) {
        self.signer.as_mut().expect("a signed cluster").forges = forges;
    }

    async fn refuses(&self, node: usize, reason: &str) {
        self.reaches(node, "right", "error").await;
        let error = self.error(node, "right").await.expect("a reason");
        assert!(error.contains(reason), "{error}");
        assert!(!self.nodes[node].root.join("ran").exists());
    }
}

#[tokio::test]
async fn forged_signature_stops_its_target_and_later_ones() {
    let mut cluster = Cluster::signed(3).await;
    cluster.add_script_role("right", "#!/bin/sh\necho x >ran\n", |_| ()).await;
    cluster.commit(&[bind(0, "right")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "right", "active").await;
    // The database counts the signature but can't verify it.
    cluster.forge(true);
    let forged = cluster.commit(&[bind(1, "right")]).await;
    cluster.refuses(1, &format!("Blueprint {forged} (review ")).await;
    cluster.refuses(1, "it has 0 of 1 signed approval").await;
    // An honest change contains the documents of the forged one.
    cluster.forge(false);
    cluster.commit(&[bind(2, "right")]).await;
    cluster.refuses(2, &format!("Blueprint {forged} (review ")).await;
    worker.stop().await;
}

/// The commit ignores this objection, so the worker does, too.
#[tokio::test]
async fn objection_of_former_reviewer_stops_no_run() {
    for mut cluster in [Cluster::of(2).await, Cluster::signed(2).await] {
        cluster.add_script_role("right", "#!/bin/sh\necho x >ran\n", |_| ()).await;
        cluster.add_former_reviewer().await;
        cluster.commit(&[bind(0, "right")]).await;
        cluster.former_reviewer = None;
        cluster.commit(&[bind(1, "right")]).await;
        let worker = Running::start(quick(&cluster.folder()), cluster.pool());
        for node in [0, 1] {
            cluster.reaches(node, "right", "active").await;
        }
        worker.stop().await;
    }
}

#[tokio::test]
async fn documents_differing_from_signed_change_are_refused() {
    let mut cluster = Cluster::signed(1).await;
    cluster.add_script_role("right", "#!/bin/sh\necho x >ran\n", |_| ()).await;
    cluster.signer.as_mut().expect("a signed cluster").shows_another = true;
    cluster.commit(&[bind(0, "right")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.refuses(0, "differs from the signed change").await;
    worker.stop().await;
}

#[tokio::test]
async fn signature_of_revoked_passkey_still_runs() {
    let mut cluster = Cluster::signed(1).await;
    cluster.add_script_role("right", "#!/bin/sh\necho x >ran\n", |_| ()).await;
    cluster.commit(&[bind(0, "right")]).await;
    sqlx::query("UPDATE passkey SET revoked_at = now()")
        .execute(cluster.db.owner())
        .await
        .expect("the owner has the permission");
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "right", "active").await;
    worker.stop().await;
}

#[tokio::test]
async fn signature_with_unconfirmed_passkey_is_refused() {
    let mut cluster = Cluster::signed(1).await;
    cluster.add_script_role("right", "#!/bin/sh\necho x >ran\n", |_| ()).await;
    cluster.commit(&[bind(0, "right")]).await;
    for statement in [
        "ALTER TABLE passkey_confirmation DISABLE TRIGGER guard_append_only",
        "DELETE FROM passkey_confirmation",
    ] {
        sqlx::raw_sql(statement)
            .execute(cluster.db.owner())
            .await
            .expect("the owner has the permission");
    }
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.refuses(0, "is not confirmed").await;
    worker.stop().await;
}
