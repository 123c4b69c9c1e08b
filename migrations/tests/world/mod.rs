//! A small cluster, written with plain SQL as the application role, so that tests see the guards
//! without Gantry's code.
//!
//! `system` has the children `web` and `storage`. Node `n1` is in `web` and `n2` in `storage`, each
//! with one noderole. ada and eve may edit, bo and cy may review.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;

use migrations::Refusal;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sqlx::{AssertSqlSafe, Executor as _, PgConnection, Postgres, Transaction};
use testdb::TestDatabase;
use uuid::Uuid;

pub type Hash = Vec<u8>;
pub type Tx<'c> = Transaction<'c, Postgres>;

/// The documents of a root.
#[derive(Debug, Clone, Default)]
pub struct Root {
    pub deployments: BTreeMap<Uuid, Hash>,
    pub nodes: BTreeMap<Uuid, Hash>,
}

impl Root {
    fn body(&self) -> Vec<u8> {
        let map = |of: &BTreeMap<Uuid, Hash>| -> BTreeMap<String, String> {
            of.iter().map(|(id, hash)| (id.to_string(), hex(hash))).collect()
        };
        json!({"deployments": map(&self.deployments), "nodes": map(&self.nodes)})
            .to_string()
            .into_bytes()
    }
}

#[derive(Debug)]
pub struct World {
    pub db: TestDatabase,
    pub system: Uuid,
    pub web: Uuid,
    pub storage: Uuid,
    pub n1: Uuid,
    pub n2: Uuid,
    pub ada: Uuid,
    pub eve: Uuid,
    pub bo: Uuid,
    pub cy: Uuid,
    pub robot: Uuid,
    pub role: Hash,
}

/// The columns of a review and its parts. Tests change one field at a time.
#[derive(Debug, Clone)]
pub struct NewReview {
    pub proposal: i64,
    pub version: i32,
    pub policy: i64,
    pub epoch: i64,
    pub needed: i32,
    pub risk: Vec<String>,
    pub authors: Vec<Uuid>,
    pub base: Vec<(Uuid, i64)>,
    pub documents: Vec<(&'static str, Uuid, Option<Hash>, Option<Hash>)>,
    pub new_policy: Option<Hash>,
    pub root: Hash,
    pub by: Uuid,
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The SQLSTATE of the error.
pub fn state<T: std::fmt::Debug>(refused: Result<T, sqlx::Error>) -> String {
    let error = refused.expect_err("an error of the database");
    let state = error.as_database_error().and_then(|e| e.code()).map(|code| code.into_owned());
    state.unwrap_or_else(|| panic!("expected an error of the database: {error}"))
}

#[track_caller]
pub fn assert_refused<T: std::fmt::Debug>(
    case: &str,
    refused: Result<T, sqlx::Error>,
    by: Refusal,
) {
    let error = match refused {
        Ok(value) => panic!("{case}: expected an error, got {value:?}"),
        Err(error) => error,
    };
    assert_eq!(Refusal::of(&error), Some(by), "{case}: {error}");
}

pub async fn put(tx: &mut PgConnection, kind: &str, body: Vec<u8>) -> Hash {
    sqlx::query(
        "INSERT INTO object (hash, kind, body) VALUES (sha256($2), $1, $2) ON CONFLICT DO NOTHING",
    )
    .bind(kind)
    .bind(&body)
    .execute(&mut *tx)
    .await
    .unwrap();
    sqlx::query_scalar("SELECT sha256($1)").bind(&body).fetch_one(tx).await.unwrap()
}

pub async fn put_json(tx: &mut PgConnection, kind: &str, body: Value) -> Hash {
    put(tx, kind, body.to_string().into_bytes()).await
}

async fn person(tx: &mut PgConnection, name: &str, kind: &str, permissions: &[&str]) -> Uuid {
    sqlx::query_scalar(
        "INSERT INTO person (name, kind, permissions) VALUES ($1, $2, $3) RETURNING id",
    )
    .bind(name)
    .bind(kind)
    .bind(permissions.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>())
    .fetch_one(tx)
    .await
    .unwrap()
}

pub fn deployment_doc(
    id: Uuid,
    name: &str,
    parent: Option<Uuid>,
    phantom: Uuid,
    note: &str,
) -> Value {
    json!({"id": id, "name": name, "parent": parent, "phantom": phantom, "note": note})
}

/// The only role: `app`, with the jig `script`.
pub fn role_doc() -> Value {
    json!({"name": "app", "jig": "script", "jig_class": "script"})
}

/// Fills in the defaults of noderoles: the role `app`, no data, no parents. Nodes have the
/// connection of the rows that this world inserts.
pub fn node_doc(id: Uuid, fqdn: &str, deployment: Uuid, mut noderoles: Value) -> Value {
    let role = hex(&Sha256::digest(role_doc().to_string()));
    for noderole in noderoles.as_object_mut().into_iter().flat_map(|all| all.values_mut()) {
        let mut whole = json!({"deployment": deployment, "role": role, "data": {}, "rank": 0, "reruns": 0, "parents": []});
        for (key, value) in noderole.as_object().into_iter().flatten() {
            whole[key] = value.clone();
        }
        *noderole = whole;
    }
    let phantom = fqdn.starts_with("phantom.");
    let mut doc = json!({"id": id, "fqdn": fqdn, "deployment": deployment, "phantom": phantom, "noderoles": noderoles});
    if !phantom {
        doc["connection"] = json!({"transport": "local", "root": null});
    }
    doc
}

impl World {
    pub async fn new() -> Self {
        let db = TestDatabase::new().await;
        let mut tx = db.owner().begin().await.unwrap();
        let ada = person(&mut tx, "ada", "human", &["viewer", "operator", "reviewer"]).await;
        let eve = person(&mut tx, "eve", "human", &["viewer", "operator"]).await;
        let bo = person(&mut tx, "bo", "human", &["viewer", "reviewer"]).await;
        let cy = person(&mut tx, "cy", "human", &["viewer", "reviewer"]).await;
        let robot = person(&mut tx, "robot", "service", &["viewer", "reviewer"]).await;
        tx.commit().await.unwrap();
        let mut tx = db.app().begin().await.unwrap();
        let role = put_json(&mut tx, "role", role_doc()).await;
        let [system, web, storage, n1, n2] = [(); 5].map(|()| Uuid::new_v4());
        let world = Self { db, system, web, storage, n1, n2, ada, eve, bo, cy, robot, role };
        world.genesis(&mut tx).await;
        tx.commit().await.unwrap();
        world
    }

    async fn genesis(&self, tx: &mut Tx<'_>) {
        let policy =
            put_json(tx, "policy", json!({"approvals": 1, "by_risk": {"destructive": 2}})).await;
        let trees = [
            (self.system, "system", None),
            (self.web, "web", Some(self.system)),
            (self.storage, "storage", Some(self.system)),
        ];
        let mut root = Root::default();
        let mut phantoms = Vec::new();
        for (id, name, parent) in trees {
            let phantom = Uuid::new_v4();
            let doc =
                put_json(tx, "deployment", deployment_doc(id, name, parent, phantom, "")).await;
            let phantom_doc = put_json(
                tx,
                "node",
                node_doc(phantom, &format!("phantom.{name}.gantry"), id, json!({})),
            )
            .await;
            root.deployments.insert(id, doc);
            root.nodes.insert(phantom, phantom_doc);
            phantoms.push(phantom);
        }
        for (id, fqdn, deployment) in
            [(self.n1, "n1.x.example", self.web), (self.n2, "n2.x.example", self.storage)]
        {
            let doc = node_doc(
                id,
                fqdn,
                deployment,
                json!({"app": {"deployment": deployment, "data": {}}}),
            );
            root.nodes.insert(id, put_json(tx, "node", doc).await);
        }
        let root_hash = put(tx, "root", root.body()).await;
        sqlx::query("INSERT INTO blueprint (number, kind, root, enabled, epoch) VALUES (1, 'genesis', $1, true, 1)")
            .bind(&root_hash)
            .execute(&mut **tx)
            .await
            .unwrap();
        sqlx::query("INSERT INTO policy (number, hash) VALUES (1, $1)")
            .bind(&policy)
            .execute(&mut **tx)
            .await
            .unwrap();
        tx.execute("UPDATE head SET number = 1, policy_number = 1").await.unwrap();
        for ((id, name, parent), phantom) in trees.into_iter().zip(phantoms) {
            sqlx::query(
                "INSERT INTO deployment (id, parent, name, system, phantom, doc, head_no) VALUES ($1, $2, $3, $4, $5, $6, 1)",
            )
            .bind(id)
            .bind(parent)
            .bind(name)
            .bind(parent.is_none())
            .bind(phantom)
            .bind(&root.deployments[&id])
            .execute(&mut **tx)
            .await
            .unwrap();
            sqlx::query(
                "INSERT INTO node (id, fqdn, deployment_id, phantom, doc, transport)
                 VALUES ($1, $2, $3, true, $4, 'none')",
            )
            .bind(phantom)
            .bind(format!("phantom.{name}.gantry"))
            .bind(id)
            .bind(&root.nodes[&phantom])
            .execute(&mut **tx)
            .await
            .unwrap();
        }
        tx.execute("INSERT INTO blueprint_deployment SELECT id, head_no FROM deployment")
            .await
            .unwrap();
        tx.execute("INSERT INTO jig (name, class) VALUES ('script', 'script')").await.unwrap();
        for (id, fqdn, deployment) in
            [(self.n1, "n1.x.example", self.web), (self.n2, "n2.x.example", self.storage)]
        {
            sqlx::query("INSERT INTO node (id, fqdn, deployment_id, doc, transport) VALUES ($1, $2, $3, $4, 'local')")
                .bind(id)
                .bind(fqdn)
                .bind(deployment)
                .bind(&root.nodes[&id])
                .execute(&mut **tx)
                .await
                .unwrap();
            self.insert_step(tx, id, deployment, "app", 1).await;
        }
    }

    /// Inserts a noderole with its concurrency group and its step, and returns the step.
    pub async fn insert_step(
        &self,
        tx: &mut PgConnection,
        node: Uuid,
        deployment: Uuid,
        role: &str,
        target: i64,
    ) -> Uuid {
        let concurrency_group: i64 = sqlx::query_scalar(
            "INSERT INTO concurrency_group (deployment_id, name) VALUES ($1, $2)
             ON CONFLICT (deployment_id, name) DO UPDATE SET mode = excluded.mode RETURNING id",
        )
        .bind(deployment)
        .bind(role)
        .fetch_one(&mut *tx)
        .await
        .unwrap();
        let (noderole, step) = (Uuid::new_v4(), Uuid::new_v4());
        sqlx::query(
            "INSERT INTO noderole (id, node_id, role, deployment_id, role_hash, doc)
             VALUES ($1, $2, $3, $4, $5, '{\"rank\": 0, \"reruns\": 0}')",
        )
        .bind(noderole)
        .bind(node)
        .bind(role)
        .bind(deployment)
        .bind(&self.role)
        .execute(&mut *tx)
        .await
        .unwrap();
        sqlx::query(
            "INSERT INTO step (id, noderole_id, node_id, concurrency_group_id, rank, jig, generation, content_hash, state)
             VALUES ($1, $2, $3, $4, 0, 'script', $5, $6, 'todo')",
        )
        .bind(step)
        .bind(noderole)
        .bind(node)
        .bind(concurrency_group)
        .bind(target)
        .bind(&self.role)
        .execute(tx)
        .await
        .unwrap();
        step
    }

    pub async fn root(&self) -> Root {
        let sql = "SELECT kind, id, hash FROM root_documents((SELECT root FROM blueprint ORDER BY number DESC LIMIT 1))";
        let rows: Vec<(String, Uuid, Hash)> =
            sqlx::query_as(sql).fetch_all(self.db.app()).await.unwrap();
        let mut root = Root::default();
        for (kind, id, hash) in rows {
            match kind.as_str() {
                "deployment" => root.deployments.insert(id, hash),
                _ => root.nodes.insert(id, hash),
            };
        }
        root
    }

    pub async fn head(&self) -> i64 {
        sqlx::query_scalar("SELECT number FROM head").fetch_one(self.db.app()).await.unwrap()
    }

    pub async fn head_no(&self, deployment: Uuid) -> i64 {
        let sql = "SELECT head_no FROM deployment WHERE id = $1";
        sqlx::query_scalar(sql).bind(deployment).fetch_one(self.db.app()).await.unwrap()
    }

    pub async fn put(&self, kind: &str, body: Value) -> Hash {
        put_json(&mut self.db.app().acquire().await.unwrap(), kind, body).await
    }

    pub async fn put_root(&self, root: &Root) -> Hash {
        put(&mut self.db.app().acquire().await.unwrap(), "root", root.body()).await
    }

    pub async fn put_bytes(&self, kind: &str, body: Vec<u8>) -> Hash {
        put(&mut self.db.app().acquire().await.unwrap(), kind, body).await
    }

    pub async fn root_body(&self, root: &Hash) -> String {
        let sql = "SELECT convert_from(body, 'UTF8') FROM object WHERE hash = $1";
        sqlx::query_scalar(sql).bind(root).fetch_one(self.db.app()).await.unwrap()
    }

    /// Grants the server's role every table privilege, so that only the guards can reject a
    /// statement.
    pub async fn grant_all(&self) {
        self.owner("GRANT ALL ON ALL TABLES IN SCHEMA public TO gantry_server").await.unwrap();
    }

    /// Executes one statement as the worker's role.
    pub async fn worker(&self, sql: &str) -> Result<u64, sqlx::Error> {
        Ok(self.db.worker().execute(AssertSqlSafe(sql)).await?.rows_affected())
    }

    /// Executes one statement as the server's role.
    pub async fn app(&self, sql: &str) -> Result<u64, sqlx::Error> {
        Ok(self.db.app().execute(AssertSqlSafe(sql)).await?.rows_affected())
    }

    /// Executes one statement as the owner.
    pub async fn owner(&self, sql: &str) -> Result<u64, sqlx::Error> {
        Ok(self.db.owner().execute(AssertSqlSafe(sql)).await?.rows_affected())
    }

    /// Acts for a person in this transaction, with a session that the owner inserts.
    pub async fn act(&self, tx: &mut Tx<'_>, person: Uuid) {
        self.session(person).await;
        sqlx::query("SELECT act_as($1)").bind(person.to_string()).execute(&mut **tx).await.unwrap();
    }

    /// Inserts a session of a person. Its cookie is the person's id.
    pub async fn session(&self, person: Uuid) {
        let sql = "INSERT INTO session (token_hash, person_id, idle_expires_at, expires_at)
                   VALUES (sha256(convert_to($1::text, 'UTF8')), $1, now() + interval '1 hour', now() + interval '1 day')
                   ON CONFLICT DO NOTHING";
        sqlx::query(sql).bind(person).execute(self.db.owner()).await.unwrap();
    }

    /// Begins a transaction of the application role that acts for a person.
    pub async fn begin_as(&self, person: Uuid) -> Tx<'static> {
        let mut tx = self.db.app().begin().await.unwrap();
        self.act(&mut tx, person).await;
        tx
    }

    /// Executes one statement as the application role, acting for a person.
    pub async fn app_as(&self, person: Uuid, sql: &str) -> Result<u64, sqlx::Error> {
        let mut tx = self.begin_as(person).await;
        let done = tx.execute(AssertSqlSafe(sql)).await?.rows_affected();
        tx.commit().await?;
        Ok(done)
    }

    /// An open proposal for a deployment, with one edit.
    pub async fn propose(&self, deployment: Uuid, author: Uuid) -> i64 {
        let sql = "INSERT INTO proposal (deployment_id, created_by) VALUES ($1, $2) RETURNING id";
        let mut tx = self.begin_as(author).await;
        let id: i64 = sqlx::query_scalar(sql)
            .bind(deployment)
            .bind(author)
            .fetch_one(&mut *tx)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        self.edit(id, author).await.unwrap();
        id
    }

    /// Adds an edit and returns the new version of the proposal.
    pub async fn edit(&self, proposal: i64, author: Uuid) -> Result<i32, sqlx::Error> {
        let mut tx = self.begin_as(author).await;
        sqlx::query(
            "INSERT INTO edit (proposal_id, seq, actor, body)
             SELECT $1, count(*) + 1, $2, '{\"edit\": \"any\"}' FROM edit WHERE proposal_id = $1",
        )
        .bind(proposal)
        .bind(author)
        .execute(&mut *tx)
        .await?;
        let version = sqlx::query_scalar(
            "UPDATE proposal SET version = version + 1 WHERE id = $1 RETURNING version",
        )
        .bind(proposal)
        .fetch_one(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(version)
    }

    /// A valid review that changes only the document of the deployment's node.
    pub async fn plan(&self, deployment: Uuid, author: Uuid) -> NewReview {
        let proposal = self.propose(deployment, author).await;
        self.plan_for(proposal, deployment, author).await
    }

    pub async fn plan_for(&self, proposal: i64, deployment: Uuid, author: Uuid) -> NewReview {
        let (node, fqdn) = if deployment == self.web {
            (self.n1, "n1.x.example")
        } else {
            (self.n2, "n2.x.example")
        };
        let data = json!({"app": {"deployment": deployment, "data": {"port": Uuid::new_v4()}}});
        let new = self.put("node", node_doc(node, fqdn, deployment, data)).await;
        let mut root = self.root().await;
        let old = root.nodes.insert(node, new.clone());
        let version: i32 = sqlx::query_scalar("SELECT version FROM proposal WHERE id = $1")
            .bind(proposal)
            .fetch_one(self.db.app())
            .await
            .unwrap();
        let epoch: i64 =
            sqlx::query_scalar("SELECT epoch FROM head").fetch_one(self.db.app()).await.unwrap();
        NewReview {
            proposal,
            version,
            policy: 1,
            epoch,
            needed: 1,
            // The data of the noderole changes.
            risk: vec!["rerun".into()],
            authors: vec![author],
            base: vec![
                (self.system, self.head_no(self.system).await),
                (deployment, self.head_no(deployment).await),
            ],
            documents: vec![("node", node, old, Some(new))],
            new_policy: None,
            root: self.put_root(&root).await,
            by: author,
        }
    }

    pub async fn submit(&self, s: &NewReview) -> Result<i64, sqlx::Error> {
        let mut tx = self.begin_as(s.by).await;
        let id = self.insert_review(&mut tx, s).await?;
        tx.commit().await?;
        Ok(id)
    }

    /// Inserts a review with all its parts, in a transaction that acts for its submitter.
    pub async fn insert_review(&self, tx: &mut Tx<'_>, s: &NewReview) -> Result<i64, sqlx::Error> {
        let id: i64 = sqlx::query_scalar(
            "INSERT INTO review (proposal_id, version, change_hash, effects_hash, policy_number, approvals_needed,
                                     epoch, root_hash, risk, created_by, new_policy_hash)
             VALUES ($1, $2, $3, $3, $4, $5, $6, $3, $7, $8, $9) RETURNING id",
        )
        .bind(s.proposal)
        .bind(s.version)
        .bind(&s.root)
        .bind(s.policy)
        .bind(s.needed)
        .bind(s.epoch)
        .bind(&s.risk)
        .bind(s.by)
        .bind(&s.new_policy)
        .fetch_one(&mut **tx)
        .await?;
        for (deployment, head_no) in &s.base {
            let sql = "INSERT INTO review_base VALUES ($1, $2, $3)";
            sqlx::query(sql).bind(id).bind(deployment).bind(head_no).execute(&mut **tx).await?;
        }
        for author in &s.authors {
            let sql = "INSERT INTO review_author VALUES ($1, $2)";
            sqlx::query(sql).bind(id).bind(author).execute(&mut **tx).await?;
        }
        for (kind, document, old, new) in &s.documents {
            let sql = "INSERT INTO review_document VALUES ($1, $2, $3, $4, $5)";
            sqlx::query(sql)
                .bind(id)
                .bind(kind)
                .bind(document)
                .bind(old)
                .bind(new)
                .execute(&mut **tx)
                .await?;
        }
        Ok(id)
    }

    pub async fn verdict(&self, review: i64, person: Uuid, kind: &str) -> Result<u64, sqlx::Error> {
        let sql = "INSERT INTO verdict (review_id, person_id, kind) VALUES ($1, $2, $3)";
        let mut tx = self.begin_as(person).await;
        let done = sqlx::query(sql).bind(review).bind(person).bind(kind).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(done.rows_affected())
    }

    /// The root that a commit would write now: the current one with the review's documents
    /// replaced.
    pub async fn root_with(&self, s: &NewReview) -> Hash {
        let mut root = self.root().await;
        for (kind, id, _, new) in &s.documents {
            let map = if *kind == "node" { &mut root.nodes } else { &mut root.deployments };
            match new {
                Some(hash) => map.insert(*id, hash.clone()),
                None => map.remove(id),
            };
        }
        self.put_root(&root).await
    }

    pub async fn insert_blueprint(
        &self,
        tx: &mut Tx<'_>,
        review: i64,
        root: &Hash,
    ) -> Result<i64, sqlx::Error> {
        self.act(tx, self.ada).await;
        sqlx::query_scalar(
            "INSERT INTO blueprint (number, parent, kind, root, review_id, enabled, epoch, committed_by)
             SELECT number + 1, number, 'change', $1, $2, enabled, epoch, $3 FROM head RETURNING number",
        )
        .bind(root)
        .bind(review)
        .bind(self.ada)
        .fetch_one(&mut **tx)
        .await
    }

    /// Writes all rows of a commit.
    pub async fn commit(&self, s: &NewReview, review: i64) -> Result<i64, sqlx::Error> {
        let root = self.root_with(s).await;
        self.commit_root(s, review, &root).await
    }

    pub async fn commit_root(
        &self,
        s: &NewReview,
        review: i64,
        root: &Hash,
    ) -> Result<i64, sqlx::Error> {
        let mut tx = self.db.app().begin().await?;
        let number = self.insert_blueprint(&mut tx, review, root).await?;
        self.project(&mut tx, s, number).await?;
        tx.commit().await?;
        Ok(number)
    }

    pub async fn project(
        &self,
        tx: &mut Tx<'_>,
        s: &NewReview,
        number: i64,
    ) -> Result<(), sqlx::Error> {
        for (kind, id, _, new) in &s.documents {
            let (field, column) = match *kind {
                "node" => ("deployment", "deployment_id"),
                _ => ("parent", "parent"),
            };
            let place = format!(
                "(SELECT (convert_from(o.body, 'UTF8')::jsonb ->> '{field}')::uuid FROM object o WHERE o.hash = $2)"
            );
            let sql = format!(
                "UPDATE {kind} SET doc = $2, {column} = coalesce({place}, {column}) WHERE id = $1"
            );
            sqlx::query(AssertSqlSafe(sql)).bind(id).bind(new).execute(&mut **tx).await?;
            if *kind == "node" {
                let sql = "UPDATE noderole r SET data = k.value -> 'data' FROM object o
                           CROSS JOIN LATERAL jsonb_each(convert_from(o.body, 'UTF8')::jsonb -> 'noderoles') k
                           WHERE o.hash = $2 AND r.node_id = $1 AND r.role = k.key AND r.instance = 0";
                sqlx::query(sql).bind(id).bind(new).execute(&mut **tx).await?;
                let sql = "UPDATE step s SET generation = $2 FROM noderole r
                           WHERE r.id = s.noderole_id AND r.instance = 0 AND s.state <> 'gone' AND s.node_id = $1";
                sqlx::query(sql).bind(id).bind(number).execute(&mut **tx).await?;
            }
        }
        let made = "(SELECT review_id FROM blueprint WHERE number = $1)";
        for sql in [
            format!(
                "UPDATE deployment SET head_no = $1 WHERE id IN (SELECT w.deployment_id FROM written_by({made}) w)"
            ),
            format!("INSERT INTO blueprint_deployment SELECT w.deployment_id, $1 FROM written_by({made}) w"),
            format!(
                "UPDATE step s SET generation = $1 FROM noderole r JOIN changed_role_data({made}) t
                   ON t.deployment_id = r.deployment_id AND t.role = r.role WHERE r.id = s.noderole_id"
            ),
        ] {
            sqlx::query(AssertSqlSafe(sql)).bind(number).execute(&mut **tx).await?;
        }
        sqlx::query("UPDATE head SET number = $1").bind(number).execute(&mut **tx).await?;
        let sql = "UPDATE proposal SET state = 'committed', closed_at = now() WHERE id = $1";
        sqlx::query(sql).bind(s.proposal).execute(&mut **tx).await?;
        Ok(())
    }

    /// Waits until a statement is blocked by a lock.
    pub async fn has_lock_waiter(&self) {
        let sql = "SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid)
                   WHERE NOT l.granted AND a.datname = current_database())";
        for _ in 0..1000 {
            if sqlx::query_scalar(sql).fetch_one(self.db.owner()).await.unwrap() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("no session waits for a lock");
    }

    /// A valid change of a deployment by ada, approved by bo and committed.
    pub async fn change(&self, deployment: Uuid) -> i64 {
        let planned = self.plan(deployment, self.ada).await;
        let review = self.submit(&planned).await.unwrap();
        self.verdict(review, self.bo, "approve").await.unwrap();
        self.commit(&planned, review).await.unwrap()
    }

    pub async fn switch(&self, enabled: bool) -> Result<(), sqlx::Error> {
        let mut tx = self.begin_as(self.ada).await;
        sqlx::query(
            "INSERT INTO blueprint (number, parent, kind, root, enabled, epoch, committed_by)
             SELECT t.number + 1, t.number, 'switch', t.root, $1, h.epoch, $2
             FROM head h JOIN blueprint t ON t.number = h.number",
        )
        .bind(enabled)
        .bind(self.ada)
        .execute(&mut *tx)
        .await?;
        sqlx::query("UPDATE head SET number = number + 1, enabled = $1")
            .bind(enabled)
            .execute(&mut *tx)
            .await?;
        tx.commit().await
    }
}
