//! The base of a review: a commit in *system* voids only reviews that rest on what it changed.

use std::collections::BTreeSet;

use api::reviews::{ReviewState, ReviewStateFilter};
use engine::blueprint::DocumentChange;
use engine::cluster::{Blueprint, ConnectionChange, NoderoleKey, Skeleton};
use engine::gate::Policy;
use engine::ids::{BarclampName, DeploymentId, DeploymentName, JigName, NodeId, ReviewId};
use engine::plan::reads::{Change, Reads};
use engine::plan::{Edit, edit};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::arbitrary_blueprints::Line;
use crate::installation::{Installation, role};

impl Installation {
    /// *system* uses another version of a barclamp.
    async fn version(&self, name: &str, version: u16) -> Edit {
        let roles = match name {
            "net" => format!(
                "  - {{name: time, jig: noop}}\n  \
                 - {{name: dns, jig: noop, requires: [time], template: {{dns: {{port: {version}}}}}}}\n  \
                 - {{name: site, jig: noop, requires: [dns]}}\n"
            ),
            _ => format!(
                "  - {{name: clock, jig: noop, template: {{clock: {{skew: {version}}}}}}}\n"
            ),
        };
        let text = format!("barclamp: {{name: {name}, version: '{version}'}}\nroles:\n{roles}");
        let files = [(format!("{name}/{name}.yml"), text.into_bytes())].into();
        let imported = self.control.import_barclamps(Some(&self.ada), &files).await.unwrap();
        Edit::UseBarclamp(edit::UseBarclamp {
            deployment: self.id("system").await,
            barclamp: BarclampName::parse(name).unwrap(),
            version: imported.barclamps[0].2,
        })
    }

    async fn system_data(&self, name: &str, data: Value) -> Edit {
        let deployment = self.id("system").await;
        Edit::SetRoleData(edit::SetRoleData { deployment, role: role(name), data })
    }

    /// Another folder for a node.
    async fn folder(&self, n: usize) -> Edit {
        let connection =
            ConnectionChange { root: Some(format!("/srv/{n}")), ..ConnectionChange::default() };
        Edit::SetConnection(edit::SetConnection { node: self.node(n).await, connection })
    }

    /// *system* has the noderoles `dns` and `clock`. An approved review adds a noderole to *web*
    /// that waits for `dns`.
    async fn with_approved_site() -> (Self, ReviewId) {
        let installation = Self::new().await;
        let edits = vec![
            installation.version("net", 1).await,
            installation.version("watch", 1).await,
            installation.bind("system", 4, "dns").await,
            installation.bind("system", 3, "clock").await,
        ];
        installation.moved_by("system", edits).await;
        let edit = installation.bind("web", 1, "site").await;
        let review = installation.submit(&installation.ada, "web", vec![edit]).await;
        installation.approve(&installation.bo, review).await;
        (installation, review)
    }
}

/// The reads of a review by the model, and by the database.
async fn reads(installation: &Installation, review: ReviewId) -> (Reads, Value) {
    let line = Line::of(installation).await;
    let mut on = installation.database.app().acquire().await.unwrap();
    let documents = store::reviews::documents(&mut on, review).await.unwrap();
    let (mut old, mut new) = (Blueprint::default(), Blueprint::default());
    for change in &documents {
        let (DocumentChange::Deployment { old: was, new: is, .. }
        | DocumentChange::Node { old: was, new: is, .. }) = change;
        for (side, hash) in [(&mut old, was), (&mut new, is)] {
            let Some(hash) = hash else { continue };
            let body =
                store::catalog::bodies(&mut on, &[*hash]).await.unwrap().remove(hash).unwrap();
            match change {
                DocumentChange::Deployment { .. } => side.load_deployment(*hash, &body),
                DocumentChange::Node { .. } => side.load_node(*hash, &body),
            }
            .unwrap();
        }
    }
    let skeleton = Skeleton::of(&line.blueprint, [], &line.catalog).unwrap();
    let change = Change { old: &old, new: &new, documents: &documents };
    let model = Reads::of(change, false, &skeleton, &line.catalog).unwrap();
    let sql = "SELECT review_reads($1)";
    (model, sqlx::query_scalar(sql).bind(review.0).fetch_one(&mut *on).await.unwrap())
}

fn texts<T: ToString>(values: &BTreeSet<T>) -> BTreeSet<String> {
    values.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn database_reads_equal_the_model() {
    let (installation, site) = Installation::with_approved_site().await;
    installation.commit(&installation.ada, site).await.unwrap();
    installation.bound("web", 2, "app").await;
    for edit in [
        installation.bind("web", 2, "site").await,
        Edit::SetRoleData(edit::SetRoleData {
            deployment: installation.id("web").await,
            role: role("site"),
            data: json!({"a": 1}),
        }),
        Edit::Unbind(edit::Unbind {
            node: installation.node(1).await,
            noderole: NoderoleKey::first(role("site")),
            with_dependents: true,
        }),
        jig("script"),
    ] {
        let review = installation.submit(&installation.ada, "web", vec![edit]).await;
        installation.approve(&installation.bo, review).await;
        let (model, database) = reads(&installation, review).await;
        let of = |field: &str| -> BTreeSet<String> {
            serde_json::from_value(database[field].clone()).unwrap()
        };
        assert_eq!(database["wide"], json!(model.wide));
        assert_eq!(of("noderoles"), texts(&model.noderoles));
        assert_eq!(of("nodes"), texts(&model.nodes));
        assert_eq!(of("own"), texts(&model.own));
        assert_eq!(of("names"), texts(&model.names));
        assert_eq!(of("wants"), texts(&model.wants));
        assert_eq!(of("barclamps"), texts(&model.barclamps));
        assert_eq!(of("jigs"), texts(&model.jigs));
        installation.commit(&installation.ada, review).await.unwrap();
    }
}

fn jig(name: &str) -> Edit {
    Edit::ActivateJig(edit::ActivateJig { jig: JigName::parse(name).unwrap(), active: false })
}

#[tokio::test]
async fn review_survives_unrelated_commits_in_system() {
    let (installation, review) = Installation::with_approved_site().await;
    let sibling = Edit::CreateDeployment(edit::CreateDeployment {
        id: DeploymentId(Uuid::new_v4()),
        phantom: NodeId(Uuid::new_v4()),
        name: DeploymentName::parse("shop").unwrap(),
        parent: installation.id("system").await,
    });
    let edits = [
        jig("script"),
        installation.version("watch", 2).await,
        sibling,
        installation.system_data("clock", json!({"skew": 9})).await,
        installation.bind("system", 3, "door").await,
        installation.folder(3).await,
    ];
    for edit in edits {
        let what = format!("{edit:?}");
        installation.moved_by("system", vec![edit]).await;
        let is = installation.control.review(&installation.bo, review).await.unwrap();
        assert_eq!((is.state, is.replaced_by), (ReviewState::Open, None), "{what}");
        let listed = installation.listed(&installation.bo, ReviewStateFilter::Open).await;
        let listed = listed.iter().find(|listed| listed.review == review).unwrap();
        assert_eq!(listed.state, ReviewState::Open, "{what}");
        let board = installation.board("web").await.proposal.unwrap();
        assert_eq!(board.review, Some(review), "{what}");
        let proposal = (board.id, board.version);
        let again =
            installation.control.submit(&installation.ada, proposal.0, proposal.1, "again".into());
        assert_eq!(again.await.unwrap_err().code, "submitted_already", "{what}");
    }
    installation.commit(&installation.ada, review).await.unwrap();
}

#[tokio::test]
async fn commit_of_read_parts_voids_review() {
    for case in 0..7 {
        let (installation, review) = Installation::with_approved_site().await;
        let edit = match case {
            0 => installation.system_data("dns", json!({"port": 5})).await,
            1 => installation.system_data("time", json!({"zone": "UTC"})).await,
            2 => installation.version("net", 2).await,
            3 => installation.folder(4).await,
            4 => installation.bind("system", 3, "dns").await,
            5 => jig("noop"),
            _ => Edit::Unbind(edit::Unbind {
                node: installation.node(4).await,
                noderole: NoderoleKey::first(role("dns")),
                with_dependents: false,
            }),
        };
        let what = format!("{edit:?}");
        let target = installation.moved_by("system", vec![edit]).await;
        let is = installation.control.review(&installation.bo, review).await.unwrap();
        let became = is.replaced_by.unwrap_or_else(|| panic!("{what}: {:?}", is.state));
        assert_eq!(became.moved, [format!("system (blueprint {target})")], "{what}");
        let refused = installation.commit(&installation.ada, review).await.unwrap_err();
        assert_eq!(refused.code, "not_newest", "{what}");
        // Only the last three change the plan.
        assert_eq!(became.after.is_some(), case < 4, "{what}");
        if let Some(after) = became.after {
            let refused = installation.commit(&installation.ada, after).await.unwrap_err();
            assert_eq!(refused.code, "not_approved", "{what}");
        }
    }
}

#[tokio::test]
async fn review_is_void_after_policy_change() {
    let (installation, review) = Installation::with_approved_site().await;
    let policy = Policy { approvals: 2, ..Policy::default() };
    let edit = Edit::SetPolicy(edit::SetPolicy { policy });
    let other = installation.submitted_beside("system", vec![edit]).await;
    installation.approve(&installation.ada, other).await;
    installation.commit(&installation.cy, other).await.unwrap();
    let refused = installation.commit(&installation.ada, review).await.unwrap_err();
    assert_eq!(refused.code, "policy_moved");
}
