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
use sqlx::PgConnection;
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
            version: imported.barclamps[0].hash,
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

/// The documents of a review, before and after.
struct Documents {
    old: Blueprint,
    new: Blueprint,
    changes: Vec<DocumentChange>,
}

impl Documents {
    async fn of(on: &mut PgConnection, review: ReviewId) -> Self {
        let changes = store::reviews::documents(on, review).await.unwrap();
        let (mut old, mut new) = (Blueprint::default(), Blueprint::default());
        for change in &changes {
            let (DocumentChange::Deployment { old: was, new: is, .. }
            | DocumentChange::Node { old: was, new: is, .. }) = change;
            for (side, hash) in [(&mut old, was), (&mut new, is)] {
                let Some(hash) = hash else { continue };
                let body =
                    store::catalog::bodies(on, &[*hash]).await.unwrap().remove(hash).unwrap();
                match change {
                    DocumentChange::Deployment { .. } => side.load_deployment(*hash, &body),
                    DocumentChange::Node { .. } => side.load_node(*hash, &body),
                }
                .unwrap();
            }
        }
        Self { old, new, changes }
    }

    fn change(&self) -> Change<'_> {
        Change { old: &self.old, new: &self.new, documents: &self.changes }
    }
}

/// The reads of a review by the model, and by the database.
async fn reads(installation: &Installation, review: ReviewId) -> (Reads, Value) {
    let line = Line::of(installation).await;
    let mut on = installation.database.app().acquire().await.unwrap();
    let documents = Documents::of(&mut on, review).await;
    let skeleton = Skeleton::of(&line.blueprint, [], &line.catalog).unwrap();
    let model = Reads::of(documents.change(), false, &skeleton, &line.catalog).unwrap();
    let sql = "SELECT review_reads($1)";
    (model, sqlx::query_scalar(sql).bind(review.0).fetch_one(&mut *on).await.unwrap())
}

#[track_caller]
fn assert_equal_reads(model: &Reads, database: &Value) {
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
        assert_equal_reads(&model, &database);
        installation.commit(&installation.ada, review).await.unwrap();
    }
}

/// Random numbers from a seed (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % limit as u64).unwrap()
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

const DEPLOYMENTS: [&str; 3] = ["system", "web", "edge"];

impl Installation {
    /// An arbitrary version of one of two barclamps. Their roles refer to each other and to those
    /// of the third one, by name and by attribute.
    async fn arbitrary_version(&self, dice: &mut Dice, number: usize) -> Edit {
        let list = |dice: &mut Dice, names: &[&str]| {
            let some: Vec<&str> = names.iter().copied().filter(|_| dice.below(3) == 0).collect();
            some.join(", ")
        };
        let name = dice.one(&["net", "watch"]);
        let roles = match name {
            "net" => format!(
                "  - {{name: time, jig: noop, attribs: [{{name: rack, map: rack}}], provides: [{}]}}\n  \
                 - {{name: dns, jig: noop, requires: [time], template: {{port: {number}}}}}\n  \
                 - {{name: site, jig: {}, requires: [dns], wants-attribs: [{}]}}\n",
                list(dice, &["pulse"]),
                dice.one(&["noop", "test"]),
                list(dice, &["rack"]),
            ),
            _ => format!(
                "  - {{name: clock, jig: noop, preceeds: [{}], template: {{skew: {}}}}}\n  \
                 - {{name: bell, jig: noop, provides: [{}], attribs: [{}]}}\n",
                list(dice, &["site", "app", "dns"]),
                dice.below(2),
                list(dice, &["chime", "gong"]),
                list(dice, &["{name: shelf, map: shelf}"]),
            ),
        };
        let text = format!("barclamp: {{name: {name}, version: '{number}'}}\nroles:\n{roles}");
        let files = [(format!("{name}/{name}.yml"), text.into_bytes())].into();
        let imported = self.control.import_barclamps(Some(&self.ada), &files).await.unwrap();
        Edit::UseBarclamp(edit::UseBarclamp {
            deployment: self.id("system").await,
            barclamp: BarclampName::parse(name).unwrap(),
            version: imported.barclamps[0].hash,
        })
    }

    async fn arbitrary_edit(&self, dice: &mut Dice, at: &str, number: usize) -> Edit {
        let roles = ["time", "dns", "site", "clock", "bell", "app", "runtime", "door", "still"];
        let (name, n) = (dice.one(&roles), 1 + dice.below(4));
        let deployment = self.id(at).await;
        match dice.below(9) {
            0 => self.arbitrary_version(dice, number).await,
            1 | 2 => self.bind(at, n, name).await,
            3 => Edit::Unbind(edit::Unbind {
                node: self.node(n).await,
                noderole: NoderoleKey::first(role(name)),
                with_dependents: true,
            }),
            4 | 5 => Edit::SetRoleData(edit::SetRoleData {
                deployment,
                role: role(name),
                data: json!({"n": number}),
            }),
            6 => Edit::AddRole(edit::AddRole { deployment, role: role(name) }),
            7 => self.folder(n).await,
            _ => Edit::ActivateJig(edit::ActivateJig {
                jig: JigName::parse("test").unwrap(),
                active: dice.below(2) == 0,
            }),
        }
    }

    /// Submits an edit. `None` if it is refused.
    async fn submitted_if_possible(&self, at: &str, edit: Edit) -> Option<ReviewId> {
        let id = self.control.propose(&self.ada, self.id(at).await).await.unwrap();
        let version = self.board(at).await.proposal.unwrap().version;
        let version = self.control.edit(&self.ada, id, version, vec![edit]).await.ok()?;
        let review = self.control.submit(&self.ada, id, version, "any".into()).await;
        if review.is_err() {
            self.control.discard(&self.ada, id, version).await.unwrap();
        }
        review.ok()
    }
}

/// Arbitrary reviews and commits: the database decides like the model whether a commit changes what
/// a review reads.
#[tokio::test]
async fn database_and_model_agree_on_changed_reads() {
    let seed = std::env::var("GANTRY_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| Uuid::new_v4().as_u64_pair().0);
    println!("GANTRY_SEED={seed}");
    let mut dice = Dice(seed);
    let installation = Installation::new().await;
    let edits = vec![
        installation.version("net", 1).await,
        installation.version("watch", 1).await,
        installation.bind("system", 4, "dns").await,
        installation.bind("system", 3, "clock").await,
    ];
    let mut reviews = vec![installation.submitted_in_other_proposal("system", edits).await];
    let (model, database) = reads(&installation, reviews[0]).await;
    assert_equal_reads(&model, &database);
    let mut all = vec![(reviews[0], model, database)];
    installation.commit(&installation.cy, reviews[0]).await.unwrap();
    for number in 2..60 {
        let at = dice.one(&DEPLOYMENTS);
        let edit = installation.arbitrary_edit(&mut dice, at, number).await;
        let Some(review) = installation.submitted_if_possible(at, edit).await else { continue };
        installation.approve(&installation.bo, review).await;
        // Later, a commit may have removed a noderole that the review waits for. The database then
        // still reads its role. The review is void by that commit.
        let (model, database) = reads(&installation, review).await;
        assert_equal_reads(&model, &database);
        // A lint error prevents some of the commits.
        let _ = installation.commit(&installation.cy, review).await;
        let open =
            "UPDATE proposal SET state = 'discarded', closed_at = now() WHERE state = 'open'";
        sqlx::query(open).execute(installation.database.owner()).await.unwrap();
        reviews.push(review);
        all.push((review, model, database));
    }

    let line = Line::of(&installation).await;
    let mut on = installation.database.app().acquire().await.unwrap();
    let mut commits = Vec::new();
    for review in reviews {
        commits.push((review, Documents::of(&mut on, review).await));
    }
    let (mut changed, mut unchanged) = (0, 0);
    let sql = "SELECT changes_reads(b.review_id, d.id, $1) FROM blueprint b, deployment d
               WHERE b.review_id = $2 AND d.name = $3";
    for (review, model, database) in all.iter().filter(|(_, model, _)| !model.wide) {
        for (commit, documents) in &commits {
            for name in DEPLOYMENTS {
                let query = sqlx::query_scalar::<_, bool>(sql).bind(database).bind(commit.0);
                let Some(by_database) = query.bind(name).fetch_optional(&mut *on).await.unwrap()
                else {
                    continue;
                };
                let ancestor = installation.id(name).await;
                let by_model =
                    model.changed_by(documents.change(), ancestor, &line.catalog).unwrap();
                assert_eq!(
                    by_database, by_model,
                    "seed {seed}: review {review}, commit {commit} in {name}"
                );
                *if by_model { &mut changed } else { &mut unchanged } += 1;
            }
        }
    }
    assert!(changed >= 20 && unchanged >= 20, "seed {seed}: {changed} and {unchanged}");
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
        let edit_text = format!("{edit:?}");
        installation.moved_by("system", vec![edit]).await;
        let is = installation.control.review(&installation.bo, review).await.unwrap();
        assert_eq!((is.state, is.replaced_by), (ReviewState::Open, None), "{edit_text}");
        let listed = installation.listed(&installation.bo, ReviewStateFilter::Open).await;
        let listed = listed.iter().find(|listed| listed.review == review).unwrap();
        assert_eq!(listed.state, ReviewState::Open, "{edit_text}");
        let board = installation.board("web").await.proposal.unwrap();
        assert_eq!(board.review, Some(review), "{edit_text}");
        let proposal = (board.id, board.version);
        let again =
            installation.control.submit(&installation.ada, proposal.0, proposal.1, "again".into());
        assert_eq!(again.await.unwrap_err().code, "submitted_already", "{edit_text}");
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
        let edit_text = format!("{edit:?}");
        let target = installation.moved_by("system", vec![edit]).await;
        let is = installation.control.review(&installation.bo, review).await.unwrap();
        let became = is.replaced_by.unwrap_or_else(|| panic!("{edit_text}: {:?}", is.state));
        assert_eq!(became.moved, [format!("system (blueprint {target})")], "{edit_text}");
        let refused = installation.commit(&installation.ada, review).await.unwrap_err();
        assert_eq!(refused.code, "not_newest", "{edit_text}");
        // Only the last three change the plan.
        assert_eq!(became.after.is_some(), case < 4, "{edit_text}");
        if let Some(after) = became.after {
            let refused = installation.commit(&installation.ada, after).await.unwrap_err();
            assert_eq!(refused.code, "not_approved", "{edit_text}");
        }
    }
}

#[tokio::test]
async fn review_is_void_after_policy_change() {
    let (installation, review) = Installation::with_approved_site().await;
    let policy = Policy { approvals: 2, ..Policy::default() };
    let edit = Edit::SetPolicy(edit::SetPolicy { policy });
    let other = installation.submitted_in_other_proposal("system", vec![edit]).await;
    installation.approve(&installation.ada, other).await;
    installation.commit(&installation.cy, other).await.unwrap();
    let refused = installation.commit(&installation.ada, review).await.unwrap_err();
    assert_eq!(refused.code, "policy_moved");
}
