//! A small cluster in its own database. Every change takes the regular path: genesis, proposal,
//! review, verdict, commit. All guards are enabled, so the tests run what production would run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use authenticator::Authenticator;
use engine::Hash;
use engine::blueprint::projection::StepChange;
use engine::blueprint::{change_hash, changes, project};
use engine::canonical::{Object, ObjectKind};
use engine::catalog::{Catalog, Check, JigClass, Role};
use engine::cluster::{
    Blueprint, Connection, DeploymentDoc, DeploymentRoleDoc, EdgeDoc, EdgeKind, NodeDoc,
    NoderoleDoc, NoderoleKey, RootDoc,
};
use engine::gate::signature::{Nonce, Statement};
use engine::gate::{Policy, Risk, SignedRule, VerdictKind};
use engine::ids::{
    ActionName, BlueprintNumber, DeploymentId, DeploymentName, Fqdn, JigName, NodeId, NoderoleId,
    PasskeyId, PersonId, PolicyNumber, ReviewId, RoleName, RunId, StepId,
};
use engine::plan::base::written;
use passkeys::RelyingParty;
use serde_json::{Value, json};
use sqlx::{PgConnection, PgPool};
use store::blueprints::NewBlueprint;
use store::nodes::NewNode;
use store::people::passkeys::NewPasskey;
use store::reviews::NewReview;
use tempfile::TempDir;
use testdb::TestDatabase;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

#[derive(Debug, Clone)]
pub struct Node {
    pub id: NodeId,
    pub fqdn: Fqdn,
    pub root: PathBuf,
    pub connection: Connection,
}

/// A role instance to bind to a node.
#[derive(Debug, Clone)]
pub struct Bind {
    pub node: usize,
    pub role: &'static str,
    pub data: Value,
    pub parents: Vec<(usize, &'static str)>,
}

pub fn bind(node: usize, role: &'static str) -> Bind {
    Bind { node, role, data: json!({}), parents: Vec::new() }
}

impl Bind {
    pub fn data(mut self, data: Value) -> Self {
        self.data = data;
        self
    }

    pub fn after(mut self, node: usize, role: &'static str) -> Self {
        self.parents.push((node, role));
        self
    }
}

pub struct Cluster {
    pub db: TestDatabase,
    pub system: DeploymentId,
    pub nodes: Vec<Node>,
    pub catalog: Catalog,
    /// Jigs that the next commit disables. It enables all others.
    pub inactive_jigs: BTreeSet<JigName>,
    blueprint: Blueprint,
    roles: BTreeMap<String, (Hash, Arc<Role>)>,
    author: PersonId,
    reviewer: PersonId,
    /// Rejects the next changes and is disabled before they are committed, if set.
    pub former_reviewer: Option<PersonId>,
    /// Signs the next approvals, if set.
    pub signer: Option<Signer>,
    folder: TempDir,
}

/// A reviewer's passkey.
pub struct Signer {
    id: PasskeyId,
    authenticator: Authenticator,
    /// Whether the next signatures are forged.
    pub forges: bool,
    /// Whether the next change is shown and signed with the hash of other documents.
    pub shows_another: bool,
}

const ORIGIN: &str = "http://localhost:7780";

/// A role with default values.
pub fn role(name: &str, class: JigClass) -> Role {
    let value =
        json!({"name": name, "barclamp": "test", "jig": class.as_str(), "jig_class": class});
    serde_json::from_value(value).expect("a minimal role")
}

/// Writes version 1 of a secret and its descriptor into a worker's folder.
pub fn write_secret(folder: &Path, name: &str, text: &str, descriptor: &str) {
    let folder = folder.join(name);
    std::fs::create_dir_all(&folder).expect("a writable folder");
    std::fs::write(folder.join("1"), text).expect("a writable folder");
    std::fs::write(folder.join("secret.toml"), descriptor).expect("a writable folder");
}

/// The descriptor of a secret that the test deployment may use.
pub const FOR_SYSTEM: &str = "kind = \"data\"\ndeployments = [\"system\"]\n";

impl Cluster {
    /// A cluster of live local nodes without noderoles.
    pub async fn of(nodes: usize) -> Self {
        Self::under(Policy::default(), nodes).await
    }

    /// Like `of`, with a policy that requires signed approvals and a confirmed passkey of the
    /// reviewer.
    pub async fn signed(nodes: usize) -> Self {
        let policy = Policy { signed: [SignedRule::default()].into(), ..Policy::default() };
        let mut cluster = Self::under(policy, nodes).await;
        let (site, authenticator) =
            (RelyingParty::of(ORIGIN).expect("a site"), Authenticator::new());
        let (options, state) =
            passkeys::registration(&site, cluster.reviewer, "bo", &[]).expect("options");
        let made = passkeys::register(&site, &state, &authenticator.create(ORIGIN, &options))
            .expect("a passkey");
        let new = NewPasskey {
            person: cluster.reviewer,
            name: "key".into(),
            rp_id: site.rp_id,
            origin: site.origin,
            credential_id: made.credential_id,
            credential: made.credential,
            counter: made.counter,
        };
        let mut connection = cluster.db.owner().acquire().await.expect("a connection");
        let id = store::people::passkeys::insert(&mut connection, &new)
            .await
            .expect("a row")
            .expect("a new passkey");
        store::people::passkeys::confirm_as_owner(&mut connection, id).await.expect("a row");
        cluster.signer = Some(Signer { id, authenticator, forges: false, shows_another: false });
        cluster
    }

    async fn under(policy: Policy, nodes: usize) -> Self {
        let db = TestDatabase::new().await;
        // The owner writes as both users: these tests are about workers, not sessions.
        let mut transaction = db.owner().begin().await.expect("a transaction");
        let people = [Uuid::new_v4(), Uuid::new_v4()];
        sqlx::query(
            "INSERT INTO person (id, name, permissions) VALUES ($1, 'ada', '{operator}'), ($2, \
             'bo', '{reviewer}')",
        )
        .bind(people[0])
        .bind(people[1])
        .execute(&mut *transaction)
        .await
        .expect("people");
        sqlx::query(
            "INSERT INTO jig (name, class) VALUES ('script', 'script'), ('noop', 'noop'), \
            ('test', 'test')",
        )
        .execute(&mut *transaction)
        .await
        .expect("jigs");
        let (system, phantom) = (DeploymentId(Uuid::new_v4()), NodeId(Uuid::new_v4()));
        let mut blueprint = Blueprint::default();
        let fqdn = Fqdn::parse(&format!("d-{}.phantom.gantry.internal", system.0.simple()))
            .expect("a name");
        let node = NodeDoc {
            id: phantom,
            fqdn,
            deployment: system,
            phantom: true,
            connection: None,
            hints: serde_json::Map::new(),
            noderoles: BTreeMap::new(),
        };
        let name = DeploymentName::parse("system").expect("a name");
        let (barclamps, roles) = (BTreeMap::new(), BTreeMap::new());
        let deployment = DeploymentDoc {
            id: system,
            name,
            parent: None,
            phantom,
            barclamps,
            roles,
            inactive_jigs: BTreeSet::new(),
        };
        let policy = Object::of(ObjectKind::Policy, &policy).expect("a policy");
        let objects = [
            blueprint.insert_node(node).expect("a document"),
            blueprint.insert_deployment(deployment).expect("a document"),
            blueprint.root_object().expect("a document"),
            policy.clone(),
        ];
        let old = Blueprint::default();
        let changes = changes(&RootDoc::default(), &blueprint.root());
        let projection =
            project(&old, &blueprint, &changes, &Catalog::default()).expect("a projection");
        let head = store::blueprints::lock_for_commit(&mut transaction).await.expect("the head");
        store::catalog::ensure_objects(&mut transaction, &objects).await.expect("objects");
        let new = NewBlueprint {
            head,
            review: None,
            policy: None,
            by: None,
            old: &old,
            new: &blueprint,
            root: objects[2].hash,
            changes: &changes,
            written: &BTreeSet::from([system]),
            projection: &projection,
        };
        store::blueprints::commit_genesis(&mut transaction, &new, &policy).await.expect("genesis");
        transaction.commit().await.expect("genesis");
        let folder = tempfile::tempdir().expect("a folder");
        let (author, reviewer) = (PersonId(people[0]), PersonId(people[1]));
        let mut cluster = Self {
            db,
            system,
            nodes: Vec::new(),
            catalog: Catalog::default(),
            inactive_jigs: BTreeSet::new(),
            blueprint,
            roles: BTreeMap::new(),
            author,
            reviewer,
            former_reviewer: None,
            signer: None,
            folder,
        };
        for _ in 0..nodes {
            cluster.add_node().await;
        }
        cluster
    }

    /// Like `of`, with the nodes of a testbed, reached over SSH.
    pub async fn over(testbed: &testbed::Testbed) -> Self {
        let mut cluster = Self::of(0).await;
        for node in testbed.nodes() {
            cluster.insert_node(node.root.clone(), "ssh", node.connection()).await;
        }
        cluster
    }

    /// Adds a reviewer for `former_reviewer`.
    pub async fn add_former_reviewer(&mut self) {
        let sql =
            "INSERT INTO person (name, permissions) VALUES ('zoe', '{reviewer}') RETURNING id";
        let id = sqlx::query_scalar(sql).fetch_one(self.db.owner()).await.expect("a person");
        self.former_reviewer = Some(PersonId(id));
    }

    async fn add_node(&mut self) {
        let number = self.nodes.len();
        let root = self.folder.path().join(format!("n{number}"));
        self.insert_node(root.clone(), "local", json!({"root": root})).await;
    }

    /// Adds a node with this connection.
    pub async fn insert_node(&mut self, root: PathBuf, transport: &'static str, connection: Value) {
        let number = self.nodes.len();
        let mut tagged = connection.clone();
        tagged["transport"] = transport.into();
        let reviewed: Connection = serde_json::from_value(tagged).expect("a connection");
        let node = Node {
            id: NodeId(Uuid::new_v4()),
            fqdn: Fqdn::parse(&format!("n{number}.test.gantry")).expect("a name"),
            root,
            connection: reviewed.clone(),
        };
        let record = NewNode {
            id: node.id,
            fqdn: node.fqdn.clone(),
            deployment: self.system,
            transport,
            connection,
            addresses: reviewed.addresses().to_vec(),
            by: None,
        };
        let mut connection = self.server().acquire().await.expect("a connection");
        assert!(store::nodes::insert_node(&mut connection, &record).await.expect("a node"));
        drop(connection);
        // As if a health check had confirmed the node.
        sqlx::query(
            "UPDATE node SET alive = true, alive_since = now(), joined = 'confirmed' WHERE id = $1",
        )
        .bind(node.id.0)
        .execute(self.db.owner())
        .await
        .expect("the owner has the permission");
        self.nodes.push(node);
    }

    /// Connections with the workers' database role.
    pub fn pool(&self) -> &PgPool {
        self.db.worker()
    }

    /// Connections with the server's database role.
    pub fn server(&self) -> &PgPool {
        self.db.server()
    }

    /// A temporary folder of this test.
    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// Adds a role to the catalog.
    pub async fn add_role(&mut self, role: Role) {
        let object = Object::of(ObjectKind::Role, &role).expect("a role");
        let mut connection = self.server().acquire().await.expect("a connection");
        store::catalog::ensure_objects(&mut connection, std::slice::from_ref(&object))
            .await
            .expect("objects");
        let role = Arc::new(role);
        self.catalog.add_role(object.hash, role.clone());
        self.roles.insert(role.name.to_string(), (object.hash, role));
    }

    /// Adds a role with one script, modified by `change`.
    pub async fn add_script_role(
        &mut self,
        name: &str,
        script: &str,
        change: impl FnOnce(&mut Role),
    ) {
        let object = Object::of_bytes(ObjectKind::Script, script.as_bytes().to_vec());
        let mut connection = self.server().acquire().await.expect("a connection");
        store::catalog::ensure_objects(&mut connection, std::slice::from_ref(&object))
            .await
            .expect("objects");
        drop(connection);
        let mut role = role(name, JigClass::Script);
        role.scripts = vec![engine::catalog::Script {
            name: format!("{name}.sh"),
            hash: object.hash,
            action: ActionName::run(),
        }];
        change(&mut role);
        self.add_role(role).await;
    }

    /// A role of the catalog.
    pub fn role(&self, name: &str) -> Role {
        Role::clone(&self.roles[name].1)
    }

    /// Adds a role with a script for `run` and one for its check.
    pub async fn add_checked_role(&mut self, name: &str, run: &str, check: &str, policy: Check) {
        let object = Object::of_bytes(ObjectKind::Script, check.as_bytes().to_vec());
        let mut connection = self.server().acquire().await.expect("a connection");
        store::catalog::ensure_objects(&mut connection, std::slice::from_ref(&object))
            .await
            .expect("objects");
        drop(connection);
        self.add_script_role(name, run, |role| {
            role.run.check = Some(policy);
            role.scripts.push(engine::catalog::Script {
                name: "check/it.sh".to_owned(),
                hash: object.hash,
                action: ActionName::check(),
            });
        })
        .await;
    }

    /// Adds a role with a script for `run` and one for `remove`.
    pub async fn add_removable_role(&mut self, name: &str, run: &str, remove: &str) {
        let object = Object::of_bytes(ObjectKind::Script, remove.as_bytes().to_vec());
        let mut connection = self.server().acquire().await.expect("a connection");
        store::catalog::ensure_objects(&mut connection, std::slice::from_ref(&object))
            .await
            .expect("objects");
        drop(connection);
        self.add_script_role(name, run, |role| {
            role.actions.insert(ActionName::remove());
            role.scripts.push(engine::catalog::Script {
                name: "remove/it.sh".to_owned(),
                hash: object.hash,
                action: ActionName::remove(),
            });
        })
        .await;
    }

    /// Commits noderoles with a review. Binding an existing noderole changes its data.
    pub async fn commit(&mut self, binds: &[Bind]) -> BlueprintNumber {
        let mut new = self.blueprint.clone();
        let mut objects = Vec::new();
        let mut nodes: BTreeMap<usize, NodeDoc> = BTreeMap::new();
        let mut deployment = DeploymentDoc::clone(&new.deployments[&self.system].doc);
        for bind in binds {
            let at = &self.nodes[bind.node];
            nodes.entry(bind.node).or_insert_with(|| match new.nodes.get(&at.id) {
                Some(stored) => NodeDoc::clone(&stored.doc),
                None => NodeDoc {
                    id: at.id,
                    fqdn: at.fqdn.clone(),
                    deployment: self.system,
                    phantom: false,
                    connection: Some(at.connection.clone()),
                    hints: serde_json::Map::new(),
                    noderoles: BTreeMap::new(),
                },
            });
            let (hash, role) = &self.roles[bind.role];
            deployment
                .roles
                .entry(role.name.clone())
                .or_insert(DeploymentRoleDoc { role: *hash, data: json!({}) });
            let rank = bind
                .parents
                .iter()
                .map(|(node, role)| self.rank(&nodes, *node, role) + 1)
                .max()
                .unwrap_or(0);
            let parents = bind.parents.iter();
            let parents = parents
                .map(|(n, r)| EdgeDoc { parent: self.noderole(*n, r), kind: EdgeKind::Hard });
            let noderole = NoderoleDoc {
                deployment: self.system,
                role: *hash,
                data: bind.data.clone(),
                reruns: 0,
                rank,
                parents: parents.collect(),
            };
            let key = NoderoleKey::first(role.name.clone());
            if let Some(doc) = nodes.get_mut(&bind.node) {
                doc.noderoles.insert(key, noderole);
            }
        }
        deployment.inactive_jigs.clone_from(&self.inactive_jigs);
        objects.push(new.insert_deployment(deployment).expect("a document"));
        for (_, doc) in nodes {
            objects.push(new.insert_node(doc).expect("a document"));
        }
        let root = new.root_object().expect("a document");
        objects.push(root.clone());
        self.commit_blueprint(new, &objects, root.hash).await
    }

    /// Commits the removal of these noderoles with a review.
    pub async fn unbind(&mut self, noderoles: &[(usize, &str)]) -> BlueprintNumber {
        let mut new = self.blueprint.clone();
        let mut objects = Vec::new();
        for (node, role) in noderoles {
            let mut doc = NodeDoc::clone(&new.nodes[&self.nodes[*node].id].doc);
            doc.noderoles.remove(&NoderoleKey::first(RoleName::parse(role).expect("a name")));
            objects.push(new.insert_node(doc).expect("a document"));
        }
        let root = new.root_object().expect("a document");
        objects.push(root.clone());
        self.commit_blueprint(new, &objects, root.hash).await
    }

    fn rank(&self, drafts: &BTreeMap<usize, NodeDoc>, node: usize, role: &str) -> u32 {
        let key = NoderoleKey::first(RoleName::parse(role).expect("a name"));
        let stored = self.blueprint.nodes.get(&self.nodes[node].id).map(|stored| &*stored.doc);
        let found = drafts.get(&node).or(stored).and_then(|doc| doc.noderoles.get(&key));
        found.expect("parents are bound before their children").rank
    }

    async fn commit_blueprint(
        &mut self,
        new: Blueprint,
        objects: &[Object],
        root: Hash,
    ) -> BlueprintNumber {
        let changes = changes(&self.blueprint.root(), &new.root());
        let written = written(&self.blueprint, &new, &changes);
        let projection =
            project(&self.blueprint, &new, &changes, &self.catalog).expect("a projection");
        let mut transaction = self.db.owner().begin().await.expect("a transaction");
        let head = store::blueprints::lock_for_commit(&mut transaction).await.expect("the head");
        store::catalog::ensure_objects(&mut transaction, objects).await.expect("objects");
        let (proposal, _) =
            store::proposals::ensure_proposal(&mut transaction, self.system, self.author)
                .await
                .expect("a proposal");
        let version = store::proposals::increment_version(&mut transaction, proposal, 0)
            .await
            .expect("a version");
        let (base,): (i64,) = sqlx::query_as("SELECT head_no FROM deployment WHERE id = $1")
            .bind(self.system.0)
            .fetch_one(&mut *transaction)
            .await
            .expect("the base");
        let destructive =
            projection.steps.iter().any(|s| s.destructive && s.change != StepChange::Keep);
        let review = NewReview {
            proposal,
            version: version.expect("an open proposal"),
            title: "test".to_owned(),
            change: match self.signer {
                Some(Signer { shows_another: true, .. }) => Hash::of_bytes(b"other documents"),
                _ => change_hash(&changes).expect("a hash"),
            },
            effects: Hash::of_bytes(b"effects"),
            policy: PolicyNumber(1),
            new_policy: None,
            approvals: 1,
            epoch: head.epoch,
            root,
            summary: json!({}),
            // Declaring a risk that does not exist is harmless.
            risks: destructive
                .then_some(Risk::Destructive)
                .into_iter()
                .chain([Risk::Rerun, Risk::Secret, Risk::Halt, Risk::Removal])
                .collect(),
            by: self.author,
            base: BTreeMap::from([(self.system, BlueprintNumber(base))]),
            authors: BTreeSet::from([self.author]),
            documents: changes.clone(),
        };
        let review =
            store::reviews::insert_review(&mut transaction, &review).await.expect("a review");
        transaction.commit().await.expect("a review");
        let mut transaction = self.db.owner().begin().await.expect("a transaction");
        let head = store::blueprints::lock_for_commit(&mut transaction).await.expect("the head");
        let verdict = store::reviews::insert_verdict(
            &mut transaction,
            review,
            self.reviewer,
            VerdictKind::Approve,
            "",
        )
        .await;
        self.sign(&mut transaction, review, verdict.expect("a verdict")).await;
        if let Some(former) = self.former_reviewer {
            let reject = VerdictKind::Reject;
            store::reviews::insert_verdict(&mut transaction, review, former, reject, "no")
                .await
                .expect("a verdict");
            sqlx::query("UPDATE person SET disabled = true WHERE id = $1")
                .bind(former.0)
                .execute(&mut *transaction)
                .await
                .expect("the owner has the permission");
        }
        let target = NewBlueprint {
            head,
            review: Some(review),
            policy: None,
            by: Some(self.author),
            old: &self.blueprint,
            new: &new,
            root,
            changes: &changes,
            written: &written,
            projection: &projection,
        };
        let number =
            store::blueprints::commit_change(&mut transaction, &target).await.expect("a target");
        store::blueprints::close_committed_proposal(&mut transaction, review)
            .await
            .expect("the proposal");
        transaction.commit().await.expect("a commit");
        self.blueprint = new;
        number
    }

    async fn sign(&self, on: &mut PgConnection, review: ReviewId, verdict: i64) {
        let Some(Signer { id, authenticator, forges, .. }) = &self.signer else { return };
        let reviewed =
            store::reviews::reviewed(on, review).await.expect("a row").expect("a review");
        let nonce = Nonce(*Uuid::new_v4().as_bytes());
        let statement = Statement::Verdict {
            reviewed,
            verdict: VerdictKind::Approve,
            person: self.reviewer,
            nonce,
        };
        let challenge = match forges {
            true => Hash::of_bytes(b"another statement"),
            false => statement.challenge().expect("a challenge"),
        };
        let options = passkeys::request(&RelyingParty::of(ORIGIN).expect("a site"), challenge, &[]);
        let (_, assertion) =
            passkeys::assertion(&authenticator.get(ORIGIN, &options)).expect("an assertion");
        store::reviews::insert_signature(on, verdict, *id, nonce, &assertion)
            .await
            .expect("a signature");
    }

    pub fn noderole(&self, node: usize, role: &str) -> NoderoleId {
        NoderoleKey::first(RoleName::parse(role).expect("a name")).id(self.nodes[node].id)
    }

    pub fn step(&self, node: usize, role: &str) -> StepId {
        StepId::run_of(self.noderole(node, role))
    }

    /// The removal step of a noderole.
    pub fn removal(&self, node: usize, role: &str) -> StepId {
        StepId::of(self.noderole(node, role), &ActionName::remove())
    }

    /// The state and the error of a removal step. `None` without such a step.
    pub async fn removal_state(&self, node: usize, role: &str) -> Option<(String, Option<String>)> {
        sqlx::query_as("SELECT state, error FROM step WHERE id = $1")
            .bind(self.removal(node, role).0)
            .fetch_optional(self.pool())
            .await
            .expect("the step")
    }

    /// Waits until the removal step has this state. Panics with its state otherwise.
    pub async fn removal_reaches(&self, node: usize, role: &str, expected: &str) {
        for _ in 0..1_500 {
            if self.removal_state(node, role).await.is_some_and(|(state, _)| state == expected) {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
        let found = self.removal_state(node, role).await;
        panic!("the removal of {role} on n{node} is {found:?}, expected {expected}");
    }

    pub async fn state(&self, node: usize, role: &str) -> String {
        sqlx::query_scalar("SELECT state FROM step WHERE id = $1")
            .bind(self.step(node, role).0)
            .fetch_one(self.pool())
            .await
            .expect("the step")
    }

    pub async fn error(&self, node: usize, role: &str) -> Option<String> {
        sqlx::query_scalar("SELECT error FROM step WHERE id = $1")
            .bind(self.step(node, role).0)
            .fetch_one(self.pool())
            .await
            .expect("the step")
    }

    pub async fn output(&self, node: usize, role: &str) -> Option<Value> {
        sqlx::query_scalar("SELECT output FROM step WHERE id = $1")
            .bind(self.step(node, role).0)
            .fetch_one(self.pool())
            .await
            .expect("the step")
    }

    /// Waits until the step has this state. Panics with its state otherwise.
    pub async fn reaches(&self, node: usize, role: &str, expected: &str) {
        self.reaches_within(node, role, expected, Duration::from_secs(30)).await;
    }

    pub async fn reaches_within(&self, node: usize, role: &str, expected: &str, limit: Duration) {
        let deadline = Instant::now() + limit;
        loop {
            let state = self.state(node, role).await;
            if state == expected {
                return;
            }
            if Instant::now() > deadline {
                let error = self.error(node, role).await;
                let runs = self.runs(node, role).await;
                let activity = self.activity().await;
                panic!(
                    "{role} on n{node} is {state}, expected {expected}: {error:?}; runs \
                     {runs:?}\n{activity}"
                );
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// State of the database and the workers, for the messages of failing tests.
    async fn activity(&self) -> String {
        let lines: Vec<String> = sqlx::query_scalar(
            "SELECT concat_ws(' | ', pid, state, wait_event_type, wait_event, now() - state_change,
                 left(query, 100))
             FROM pg_stat_activity WHERE datname = current_database()
             UNION ALL
             SELECT concat_ws(' | ', name, phase, capacity, lease_until - now(), reason) FROM
             worker",
        )
        .fetch_all(self.db.owner())
        .await
        .expect("the activity");
        lines.join("\n")
    }

    /// A step's runs, oldest first.
    pub async fn runs(&self, node: usize, role: &str) -> Vec<RunRow> {
        sqlx::query_as(
            "SELECT id, state, outcome, error, result, input FROM run WHERE step_id = \
            $1 ORDER BY id",
        )
        .bind(self.step(node, role).0)
        .fetch_all(self.pool())
        .await
        .expect("runs")
    }

    /// Waits until the step's newest run has started, and returns it.
    pub async fn running(&self, node: usize, role: &str) -> RunId {
        for _ in 0..1_000 {
            if let Some(run) = self.runs(node, role).await.last()
                && run.state == "running"
            {
                return RunId(run.id);
            }
            sleep(Duration::from_millis(20)).await;
        }
        panic!("{role} on n{node} does not run: {:?}", self.runs(node, role).await);
    }

    pub async fn log(&self, run: RunId) -> String {
        let pieces = store::runs::read_log_range(
            self.server(),
            run,
            0,
            2 * worker::job::log::MAX_LOG,
            1_000,
        )
        .await
        .expect("a log");
        pieces.iter().map(|piece| String::from_utf8_lossy(&piece.body).into_owned()).collect()
    }

    /// Counts rows that match a condition.
    pub async fn count(&self, from: &'static str) -> i64 {
        let query = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {from}"));
        sqlx::query_scalar(query).fetch_one(self.db.owner()).await.expect("a count")
    }

    /// Executes SQL as the owner, whom the guards of progress let pass.
    pub async fn sql(&self, statement: &'static str) {
        sqlx::raw_sql(statement).execute(self.db.owner()).await.expect("the statement");
    }
}

#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct RunRow {
    pub id: i64,
    pub state: String,
    pub outcome: Option<String>,
    pub error: Option<String>,
    pub result: Option<Value>,
    pub input: Option<Value>,
}
