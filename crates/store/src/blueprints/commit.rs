//! The commit: one transaction that inserts the next blueprint and projects its changes.
//!
//! The order matters. The `target` row comes first, because the guards allow changes of intent only
//! in a transaction that has inserted one. Deployments come before nodes, nodes before noderoles,
//! noderoles before steps, steps before edges. New steps are written as blocked by one parent. Then
//! the engine counts their parents and sets their states, together with the re-runs, in one change.
//! The head moves last.
//!
//! Removals come before additions, so that names are free. The rows of removed steps stay, because
//! runs reference them. Their state is *gone* until the same noderole is bound again, and they have
//! no edges. The commit adds the removal steps of noderoles that may have run. They stay ACTIVE
//! when they are done, until the noderole is bound again. A queued run of a removed step ends
//! unstarted. A running one continues to its end; its result is stored and not applied. On an
//! expunged node, its runs end at once, because nothing can run there.

use std::collections::{BTreeMap, BTreeSet};

use engine::Hash;
use engine::anneal::{Change, Committed, RerunReason};
use engine::blueprint::projection::{RerunCause, StepChange, StepIntent};
use engine::blueprint::{DocumentChange, Projection};
use engine::canonical::Object;
use engine::catalog::ConcurrencyGroupMode;
use engine::cluster::{Blueprint, Connection, EdgeKind, NoderoleDoc, Ssh};
use engine::ids::{
    BlueprintNumber, DeploymentId, NodeId, PersonId, PolicyNumber, ReviewId, StepId,
};
use sea_orm::sea_query::{Expr, OnConflict};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QuerySelect, QueryTrait as _, Set};
use serde_json::{Value, json};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Head, insert_policy};
use crate::StoreError;
use crate::connect::orm;
use crate::entity::{
    Columns, NoderoleIntent, blueprint, deployment, edge, head, node, noderole, proposal, review,
    step_columns,
};
use crate::events::{CHANNEL_TODO, notify};
use crate::runs::{commit_steps, end_removed_runs};

#[derive(Debug, Clone)]
pub struct NewBlueprint<'a> {
    /// Read under the lock.
    pub head: Head,
    /// The review to commit. `None`: genesis.
    pub review: Option<ReviewId>,
    /// The policy to put in force, whose object is stored. `None`: unchanged.
    pub policy: Option<Hash>,
    pub by: Option<PersonId>,
    /// The current desired state.
    pub old: &'a Blueprint,
    pub new: &'a Blueprint,
    /// The hash of the new root.
    pub root: Hash,
    /// The documents in which the blueprints differ.
    pub changes: &'a [DocumentChange],
    /// The deployments whose target history gets this entry.
    pub written: &'a BTreeSet<DeploymentId>,
    /// The effect on noderoles and steps.
    pub projection: &'a Projection,
}

/// Inserts the `target` row and projects the changes. The caller has taken the locks and stored the
/// objects.
///
/// # Errors
///
/// A guard rejects the commit, or the database fails. In both cases the transaction must be rolled
/// back.
pub async fn commit_change(
    on: &mut PgConnection,
    new: &NewBlueprint<'_>,
) -> Result<BlueprintNumber, StoreError> {
    let number = BlueprintNumber(new.head.number.0 + 1);
    insert_blueprint(on, number, new).await?;
    let policy = new.policy.map(|hash| (PolicyNumber(new.head.policy.0 + 1), hash));
    if let Some((number, hash)) = policy {
        insert_policy(on, number, hash, new.by).await?;
    }
    remove_documents(on, number, new).await?;
    let unblocked = drop_removal_steps(on, number, new).await?;
    remove_noderoles(on, number, new).await?;
    project_deployments(on, number, new).await?;
    append_deployment_history(on, number, new).await?;
    project_nodes(on, new).await?;
    project_noderoles(on, new).await?;
    let removals = removal_steps(on, new).await?;
    let existing = project_steps(on, number, new, &removals).await?;
    set_step_states(on, number, new, &removals, unblocked, &existing).await?;
    mark_changed_inputs(on, new).await?;
    project_jigs(on, new).await?;
    let mut moved =
        head::Entity::update_many().col_expr(head::Column::Number, Expr::value(number.0));
    if let Some((policy, _)) = policy {
        moved = moved.col_expr(head::Column::PolicyNumber, Expr::value(policy.0));
    }
    moved.exec(&orm(on)).await?;
    notify(on, CHANNEL_TODO, "").await?;
    Ok(number)
}

async fn insert_blueprint(
    on: &mut PgConnection,
    number: BlueprintNumber,
    new: &NewBlueprint<'_>,
) -> Result<(), StoreError> {
    let (kind, parent) = match new.review {
        Some(_) => ("change", Some(new.head.number.0)),
        None => ("genesis", None),
    };
    let row = blueprint::ActiveModel {
        number: Set(number.0),
        parent: Set(parent),
        kind: Set(kind.to_owned()),
        root: Set(new.root.as_bytes().to_vec()),
        review_id: Set(new.review.map(|review| review.0)),
        enabled: Set(new.head.enabled),
        epoch: Set(new.head.epoch),
        committed_by: Set(new.by.map(|person| person.0)),
        ..Default::default()
    };
    blueprint::Entity::insert(row).exec_without_returning(&orm(on)).await?;
    Ok(())
}

/// Turns execution on or off by a `target` row with its parent's root.
pub async fn insert_switch(
    on: &mut PgConnection,
    head: &Head,
    enabled: bool,
    reason: &str,
    by: PersonId,
) -> Result<BlueprintNumber, StoreError> {
    let number = BlueprintNumber(head.number.0 + 1);
    let root =
        head.root.ok_or_else(|| StoreError::corrupt("head", "the first target does not exist"))?;
    let row = blueprint::ActiveModel {
        number: Set(number.0),
        parent: Set(Some(head.number.0)),
        kind: Set("switch".to_owned()),
        root: Set(root.as_bytes().to_vec()),
        enabled: Set(enabled),
        epoch: Set(head.epoch),
        reason: Set(Some(reason.to_owned())),
        committed_by: Set(Some(by.0)),
        ..Default::default()
    };
    blueprint::Entity::insert(row).exec_without_returning(&orm(on)).await?;
    head::Entity::update_many()
        .col_expr(head::Column::Number, Expr::value(number.0))
        .col_expr(head::Column::Enabled, Expr::value(enabled))
        .exec(&orm(on))
        .await?;
    notify(on, CHANNEL_TODO, "").await?;
    Ok(number)
}

/// Closes the proposal of a review that this transaction commits.
pub async fn close_committed_proposal(
    on: &mut PgConnection,
    review: ReviewId,
) -> Result<(), StoreError> {
    let of_review = review::Entity::find_by_id(review.0)
        .select_only()
        .column(review::Column::ProposalId)
        .into_query();
    proposal::Entity::update_many()
        .col_expr(proposal::Column::State, Expr::value("committed"))
        .col_expr(proposal::Column::ClosedAt, Expr::current_timestamp())
        .col_expr(proposal::Column::UpdatedAt, Expr::current_timestamp())
        .filter(proposal::Column::Id.in_subquery(of_review))
        .exec(&orm(on))
        .await?;
    Ok(())
}

/// Marks deployments and nodes without a document as removed.
async fn remove_documents(
    on: &mut PgConnection,
    number: BlueprintNumber,
    new: &NewBlueprint<'_>,
) -> Result<(), StoreError> {
    let (mut deployments, mut nodes) = (Vec::new(), Vec::new());
    for change in new.changes {
        match change {
            DocumentChange::Deployment { id, new: None, .. } => deployments.push(id.0),
            DocumentChange::Node { id, new: None, .. } => nodes.push(*id),
            _ => {}
        }
    }
    if !deployments.is_empty() {
        deployment::Entity::update_many()
            .col_expr(deployment::Column::RemovedIn, Expr::value(number.0))
            .col_expr(deployment::Column::HeadNo, Expr::value(number.0))
            .col_expr(deployment::Column::OnHoldBy, Expr::cust("NULL"))
            .col_expr(deployment::Column::OnHoldSince, Expr::cust("NULL"))
            .col_expr(deployment::Column::OnHoldReason, Expr::cust("NULL"))
            .filter(deployment::Column::Id.eq_any(deployments))
            .exec(&orm(on))
            .await?;
    }
    if nodes.is_empty() {
        return Ok(());
    }
    end_removed_runs(on, &[], &nodes).await?;
    node::Entity::update_many()
        .col_expr(node::Column::RemovedIn, Expr::value(number.0))
        .filter(node::Column::Id.eq_any(nodes.iter().map(|node| node.0)))
        .exec(&orm(on))
        .await?;
    Ok(())
}

/// Drops the removal steps of noderoles that are bound again and of nodes that leave. Returns the
/// removal steps that waited for them, with the steps that they still wait for.
async fn drop_removal_steps(
    on: &mut PgConnection,
    number: BlueprintNumber,
    new: &NewBlueprint<'_>,
) -> Result<Vec<Committed>, StoreError> {
    let bound: Vec<Uuid> = new.projection.steps.iter().map(|step| step.noderole.0).collect();
    let left: Vec<Uuid> = new
        .changes
        .iter()
        .filter_map(|change| match change {
            DocumentChange::Node { id, new: None, .. } => Some(id.0),
            _ => None,
        })
        .collect();
    let dropped: Vec<Uuid> = sqlx::query_scalar(
        "SELECT id FROM step WHERE action <> 'run' AND state <> 'gone' \
           AND (noderole_id = ANY($1) OR node_id = ANY($2)) ORDER BY rank, id FOR UPDATE",
    )
    .bind(bound)
    .bind(left)
    .fetch_all(&mut *on)
    .await?;
    if dropped.is_empty() {
        return Ok(Vec::new());
    }
    let steps: Vec<StepId> = dropped.iter().map(|id| StepId(*id)).collect();
    end_removed_runs(on, &steps, &[]).await?;
    sqlx::query(REMOVE_STEPS).bind(&dropped).bind(number.0).execute(&mut *on).await?;
    let waiting: Vec<Uuid> = sqlx::query_scalar(
        "WITH cut AS (DELETE FROM edge WHERE child = ANY($1) OR parent = ANY($1) RETURNING child) \
         SELECT DISTINCT child FROM cut WHERE child <> ALL($1)",
    )
    .bind(&dropped)
    .fetch_all(&mut *on)
    .await?;
    let rest: Vec<(Uuid, Uuid)> = edge::Entity::find()
        .filter(edge::Column::Child.eq_any(waiting.iter().copied()))
        .select_only()
        .columns([edge::Column::Child, edge::Column::Parent])
        .into_tuple()
        .all(&orm(on))
        .await?;
    let unblocked = waiting.into_iter().map(|step| Committed {
        step: StepId(step),
        rerun: None,
        parents: Some(
            rest.iter()
                .filter(|(child, _)| *child == step)
                .map(|(_, parent)| (StepId(*parent), EdgeKind::Hard))
                .collect(),
        ),
    });
    Ok(unblocked.collect())
}

/// The removal steps of noderoles that may have run. Each waits for those of its children, and for
/// unfinished ones of former children that earlier commits removed.
async fn removal_steps(
    on: &mut PgConnection,
    new: &NewBlueprint<'_>,
) -> Result<Vec<StepIntent>, StoreError> {
    let removals = &new.projection.removals;
    if removals.is_empty() {
        return Ok(Vec::new());
    }
    let noderoles: Vec<Uuid> = removals.iter().map(|step| step.noderole.0).collect();
    let ran: Vec<Uuid> =
        sqlx::query_scalar("SELECT id FROM unnest($1::uuid[]) AS n (id) WHERE may_have_run(id)")
            .bind(&noderoles)
            .fetch_all(&mut *on)
            .await?;
    let ran: BTreeSet<Uuid> = ran.into_iter().collect();
    let earlier: Vec<(Uuid, Uuid, i32)> =
        sqlx::query_as("SELECT parent, step, rank FROM unfinished_removals_below($1)")
            .bind(ran.iter().copied().collect::<Vec<_>>())
            .fetch_all(on)
            .await?;
    let mut ranks: BTreeMap<StepId, u32> =
        earlier.iter().map(|(_, step, rank)| (StepId(*step), rank.unsigned_abs())).collect();
    let mut steps = Vec::new();
    // Children come first. Ranks rise along edges, also from the removals of earlier commits.
    for step in removals.iter().filter(|step| ran.contains(&step.noderole.0)) {
        let own = step.parents.iter().map(|(parent, _)| *parent);
        let of_earlier = earlier.iter().filter(|(parent, ..)| *parent == step.noderole.0);
        let parents: BTreeSet<StepId> = own
            .chain(of_earlier.map(|(_, child, _)| StepId(*child)))
            .filter(|parent| ranks.contains_key(parent))
            .collect();
        let lowest = parents.iter().filter_map(|parent| ranks.get(parent)).max();
        let rank = lowest.map_or(0, |rank| rank + 1).max(step.rank);
        ranks.insert(step.id, rank);
        let parents = parents.into_iter().map(|parent| (parent, EdgeKind::Hard)).collect();
        steps.push(StepIntent { rank, parents, ..step.clone() });
    }
    Ok(steps)
}

/// Sets steps to *gone*.
const REMOVE_STEPS: &str = "UPDATE step SET state = 'gone', pending = 0, satisfied = 0, failures = 0, cause = NULL, error = NULL, \
    skipped = NULL, disruption_budget_ids = '{}', stale = false, generation = $2, since = now() WHERE id = ANY($1)";

/// Marks noderoles as removed that the new blueprint does not contain.
async fn remove_noderoles(
    on: &mut PgConnection,
    number: BlueprintNumber,
    new: &NewBlueprint<'_>,
) -> Result<(), StoreError> {
    let removed: Vec<Uuid> = new.projection.removed.iter().map(|id| id.0).collect();
    if removed.is_empty() {
        return Ok(());
    }
    let gone: Vec<Uuid> = sqlx::query_scalar(
        "SELECT id FROM step WHERE noderole_id = ANY($1) AND action = 'run' ORDER BY rank, id FOR UPDATE",
    )
    .bind(&removed)
    .fetch_all(&mut *on)
    .await?;
    let children: Vec<Uuid> = sqlx::query_scalar(
        "SELECT DISTINCT child FROM edge WHERE parent = ANY($1) AND child <> ALL($1)",
    )
    .bind(&gone)
    .fetch_all(&mut *on)
    .await?;
    let rewired: BTreeSet<Uuid> =
        new.projection.steps.iter().filter(|s| rewired(new, s)).map(|s| s.id.0).collect();
    if let Some(step) = children.iter().find(|id| !rewired.contains(id)) {
        return Err(StoreError::corrupt(
            format!("step {step}"),
            "the change keeps the step, but removes one of its parents",
        ));
    }
    let removed_steps: Vec<StepId> = gone.iter().map(|id| StepId(*id)).collect();
    end_removed_runs(on, &removed_steps, &[]).await?;
    for end in [edge::Column::Child, edge::Column::Parent] {
        let ids = gone.iter().copied();
        edge::Entity::delete_many().filter(end.eq_any(ids)).exec(&orm(on)).await?;
    }
    sqlx::query(REMOVE_STEPS).bind(&gone).bind(number.0).execute(&mut *on).await?;
    noderole::Entity::update_many()
        .col_expr(noderole::Column::Disposition, Expr::value("gone"))
        .filter(noderole::Column::Id.eq_any(removed))
        .exec(&orm(on))
        .await?;
    Ok(())
}

async fn project_deployments(
    on: &mut PgConnection,
    number: BlueprintNumber,
    new: &NewBlueprint<'_>,
) -> Result<(), StoreError> {
    for id in parents_first(new) {
        let Some(stored) = new.new.deployments.get(&id) else { continue };
        let doc = &stored.doc;
        let row = deployment::ActiveModel {
            id: Set(id.0),
            parent: Set(doc.parent.map(|parent| parent.0)),
            name: Set(doc.name.to_string()),
            system: Set(doc.parent.is_none()),
            phantom: Set(doc.phantom.0),
            doc: Set(stored.hash.as_bytes().to_vec()),
            head_no: Set(number.0),
            ..Default::default()
        };
        let update = OnConflict::column(deployment::Column::Id)
            .update_columns([
                deployment::Column::Parent,
                deployment::Column::Name,
                deployment::Column::Doc,
                deployment::Column::HeadNo,
            ])
            .to_owned();
        let query = deployment::Entity::insert(row).on_conflict(update);
        query.exec_without_returning(&orm(on)).await?;
    }
    Ok(())
}

/// Adds the blueprint to the target history of each deployment that it writes.
async fn append_deployment_history(
    on: &mut PgConnection,
    number: BlueprintNumber,
    new: &NewBlueprint<'_>,
) -> Result<(), StoreError> {
    let written: Vec<Uuid> = new.written.iter().map(|id| id.0).collect();
    sqlx::query(
        "INSERT INTO blueprint_deployment (deployment_id, blueprint_number) SELECT id, $2 FROM unnest($1::uuid[]) AS new (id)",
    )
    .bind(written)
    .bind(number.0)
    .execute(on)
    .await?;
    Ok(())
}

/// The written deployments, parents before children.
fn parents_first(new: &NewBlueprint<'_>) -> Vec<DeploymentId> {
    let depth = |id: DeploymentId| {
        let mut depth = 0;
        let mut next = new.new.deployments.get(&id).and_then(|d| d.doc.parent);
        while let Some(parent) = next.filter(|_| depth <= new.new.deployments.len()) {
            depth += 1;
            next = new.new.deployments.get(&parent).and_then(|d| d.doc.parent);
        }
        depth
    };
    let mut written: Vec<DeploymentId> = new.written.iter().copied().collect();
    written.sort_by_key(|id| (depth(*id), *id));
    written
}

fn changed_nodes<'a>(new: &'a NewBlueprint<'_>) -> impl Iterator<Item = NodeId> + 'a {
    new.changes.iter().filter_map(|change| match change {
        DocumentChange::Node { id, .. } => Some(*id),
        DocumentChange::Deployment { .. } => None,
    })
}

async fn project_nodes(on: &mut PgConnection, new: &NewBlueprint<'_>) -> Result<(), StoreError> {
    let docs: Vec<_> = changed_nodes(new).filter_map(|id| new.new.nodes.get(&id)).collect();
    let (phantoms, machines): (Vec<_>, Vec<_>) =
        docs.into_iter().partition(|stored| stored.doc.phantom);
    for stored in phantoms {
        let row = node::ActiveModel {
            id: Set(stored.doc.id.0),
            fqdn: Set(stored.doc.fqdn.to_string()),
            deployment_id: Set(stored.doc.deployment.0),
            phantom: Set(true),
            doc: Set(Some(stored.hash.as_bytes().to_vec())),
            transport: Set("none".to_owned()),
            ..Default::default()
        };
        let update = OnConflict::column(node::Column::Id)
            .update_columns([node::Column::Fqdn, node::Column::DeploymentId, node::Column::Doc])
            .to_owned();
        let query = node::Entity::insert(row).on_conflict(update);
        query.exec_without_returning(&orm(on)).await?;
    }
    let ids: Vec<Uuid> = machines.iter().map(|n| n.doc.id.0).collect();
    let names: Vec<&str> = machines.iter().map(|n| n.doc.fqdn.as_str()).collect();
    let places: Vec<Uuid> = machines.iter().map(|n| n.doc.deployment.0).collect();
    let hashes: Vec<&[u8]> = machines.iter().map(|n| n.hash.as_bytes().as_slice()).collect();
    let connections: Vec<Option<Value>> =
        machines.iter().map(|n| n.doc.connection.as_ref().map(row_of)).collect();
    let hints: Vec<Value> = machines.iter().map(|n| Value::Object(n.doc.hints.clone())).collect();
    // A first document only repeats the record; a guard rejects it if the record has changed since.
    // From then on, the record follows the document. After a connection change, no run starts until
    // a health check succeeds and reports the running processes.
    let result = sqlx::query(include_str!("statements/project_nodes.sql"))
        .bind(&ids)
        .bind(names)
        .bind(places)
        .bind(hashes)
        .bind(connections)
        .bind(hints)
        .execute(on)
        .await?;
    if result.rows_affected() != ids.len() as u64 {
        return Err(StoreError::corrupt("node", "a node of the plan was deleted"));
    }
    Ok(())
}

/// A connection as the columns of a node's row.
fn row_of(connection: &Connection) -> Value {
    match connection {
        Connection::Local { root } => {
            json!({"transport": "local", "address": [], "connection": {"root": root}})
        }
        Connection::Ssh(Ssh { addresses, port, user, key, host_key, root }) => json!({
            "transport": "ssh", "address": addresses,
            "connection": {"root": root, "port": port, "user": user, "host_key": host_key, "key": key},
        }),
    }
}

fn noderole_doc<'a>(blueprint: &'a Blueprint, step: &StepIntent) -> Option<&'a NoderoleDoc> {
    blueprint.noderole(step.node, &step.key).map(|(_, noderole)| noderole)
}

async fn project_noderoles(
    on: &mut PgConnection,
    new: &NewBlueprint<'_>,
) -> Result<(), StoreError> {
    let noderoles: Vec<NoderoleIntent<'_>> = new
        .projection
        .steps
        .iter()
        .filter_map(|s| {
            Some(NoderoleIntent { node: s.node, key: &s.key, doc: noderole_doc(new.new, s)? })
        })
        .collect();
    let columns = NoderoleIntent::columns(&noderoles);
    let (names, values, rows) = (columns.names(""), columns.names("d."), columns.rows());
    let updates = columns.assignments("excluded");
    let text = format!(
        "INSERT INTO noderole ({names}) SELECT {values} FROM {rows} \
         ON CONFLICT (id) DO UPDATE SET {updates}, disposition = 'in_service'"
    );
    columns.execute(on, text).await
}

/// No barclamp declares Gantry's own jigs. The import of a barclamp adds the jigs that it declares.
async fn ensure_jigs(on: &mut PgConnection, steps: &[StepIntent]) -> Result<(), StoreError> {
    let jigs: BTreeSet<_> = steps.iter().map(|s| (s.jig.as_str(), s.jig_class.as_str())).collect();
    sqlx::query(
        "INSERT INTO jig (name, class) SELECT * FROM unnest($1::text[], $2::text[]) ON CONFLICT (name) DO NOTHING",
    )
    .bind(jigs.iter().map(|(name, _)| *name).collect::<Vec<_>>())
    .bind(jigs.iter().map(|(_, class)| *class).collect::<Vec<_>>())
    .execute(on)
    .await?;
    Ok(())
}

/// Jigs serve all deployments, so the document of the root deployment lists the inactive ones.
async fn project_jigs(on: &mut PgConnection, new: &NewBlueprint<'_>) -> Result<(), StoreError> {
    sqlx::query("UPDATE jig SET active = NOT active WHERE active = (name = ANY($1))")
        .bind(inactive_jigs(new.new))
        .execute(on)
        .await?;
    Ok(())
}

pub(crate) fn inactive_jigs(blueprint: &Blueprint) -> Vec<String> {
    let root = blueprint.deployments.values().find(|d| d.doc.parent.is_none());
    root.into_iter().flat_map(|d| &d.doc.inactive_jigs).map(ToString::to_string).collect()
}

async fn project_concurrency_groups(
    on: &mut PgConnection,
    steps: &[StepIntent],
) -> Result<(), StoreError> {
    let groups: BTreeSet<_> =
        steps.iter().map(|s| (s.deployment, s.concurrency_group.clone())).collect();
    sqlx::query(
        "INSERT INTO concurrency_group (deployment_id, name, max_running, mode) \
         SELECT * FROM unnest($1::uuid[], $2::text[], $3::int[], $4::text[]) ON CONFLICT (deployment_id, name) \
         DO UPDATE SET max_running = excluded.max_running, mode = excluded.mode \
         WHERE (concurrency_group.max_running, concurrency_group.mode) IS DISTINCT FROM (excluded.max_running, excluded.mode)",
    )
    .bind(groups.iter().map(|(d, _)| d.0).collect::<Vec<_>>())
    .bind(groups.iter().map(|(_, l)| l.name.as_str()).collect::<Vec<_>>())
    .bind(groups.iter().map(|(_, l)| l.max_running.map(u32::cast_signed)).collect::<Vec<_>>())
    .bind(groups.iter().map(|(_, l)| concurrency_mode_name(l.mode)).collect::<Vec<_>>())
    .execute(on)
    .await?;
    Ok(())
}

/// Writes the intent columns. Returns the steps that existed before. A removal step uses the jig
/// and the concurrency group of the noderole's `run`.
async fn project_steps(
    on: &mut PgConnection,
    number: BlueprintNumber,
    new: &NewBlueprint<'_>,
    removals: &[StepIntent],
) -> Result<BTreeSet<Uuid>, StoreError> {
    ensure_jigs(on, &new.projection.steps).await?;
    project_concurrency_groups(on, &new.projection.steps).await?;
    let steps: Vec<&StepIntent> = new.projection.steps.iter().chain(removals).collect();
    let rows: Vec<(Uuid, bool)> = sqlx::query_as(
        "SELECT id, state = 'gone' FROM step WHERE id = ANY($1) ORDER BY rank, id FOR UPDATE",
    )
    .bind(steps.iter().map(|s| s.id.0).collect::<Vec<_>>())
    .fetch_all(&mut *on)
    .await?;
    let of =
        |is_gone: bool| rows.iter().filter(move |(_, gone)| *gone == is_gone).map(|(id, _)| *id);
    let (known, gone): (BTreeSet<Uuid>, BTreeSet<Uuid>) = (of(false).collect(), of(true).collect());
    let (old, others): (Vec<&StepIntent>, Vec<&StepIntent>) =
        steps.iter().copied().partition(|s| known.contains(&s.id.0));
    let (restored, created): (Vec<&StepIntent>, Vec<&StepIntent>) =
        others.into_iter().partition(|s| gone.contains(&s.id.0));
    write_steps(on, number, &created, insert_steps).await?;
    write_steps(on, number, &restored, restore_steps).await?;
    write_steps(on, number, &old, update_steps).await?;
    project_edges(on, new, &steps, &known).await?;
    Ok(known)
}

/// The concurrency group and the node of each row.
const JOINS: &str = "JOIN concurrency_group l ON l.deployment_id = d.deployment_id AND l.name = d.concurrency_group \
    JOIN node n ON n.id = d.node_id";

/// New steps are blocked until the same transaction sets their states.
fn insert_steps(columns: &Columns<'_, &StepIntent>) -> String {
    let (names, values, rows) = (columns.names(""), columns.names("d."), columns.rows());
    format!(
        "INSERT INTO step ({names}, concurrency_group_id, generation, state, pending, node_up) \
         SELECT {values}, l.id, d.number, 'blocked', 1, n.phantom OR n.alive FROM {rows} {JOINS}"
    )
}

/// A restored step starts from scratch. An attempt from before its removal may still run. Then the
/// step stays in TRANSITION until that attempt ends, like any step that changes during a run.
fn restore_steps(columns: &Columns<'_, &StepIntent>) -> String {
    let (assignments, rows) = (columns.assignments("d"), columns.rows());
    format!(
        "UPDATE step s SET {assignments}, concurrency_group_id = l.id, generation = d.number, applied_generation = 0, \
         pending = 1, not_before = '-infinity', since = now(), node_up = n.phantom OR n.alive, state = CASE WHEN EXISTS ( \
           SELECT FROM run r WHERE r.step_id = s.id AND r.ended_at IS NULL) THEN 'transition' ELSE 'blocked' END \
         FROM {rows} {JOINS} WHERE s.id = d.id"
    )
}

/// The generation rises only for re-runs. The result of an attempt that still runs is then not
/// applied.
fn update_steps(columns: &Columns<'_, &StepIntent>) -> String {
    let (assignments, rows) = (columns.assignments("d"), columns.rows());
    format!(
        "UPDATE step s SET {assignments}, concurrency_group_id = l.id, \
         generation = CASE WHEN d.again THEN d.number ELSE s.generation END FROM {rows} {JOINS} WHERE s.id = d.id"
    )
}

async fn write_steps(
    on: &mut PgConnection,
    number: BlueprintNumber,
    steps: &[&StepIntent],
    statement: fn(&Columns<'_, &StepIntent>) -> String,
) -> Result<(), StoreError> {
    if steps.is_empty() {
        return Ok(());
    }
    let columns = step_columns(steps)
        .value("number", |_| number.0)
        .value("again", |s| s.change != StepChange::Keep);
    let text = statement(&columns);
    columns.execute(on, text).await
}

pub(crate) fn concurrency_mode_name(mode: ConcurrencyGroupMode) -> &'static str {
    if mode == ConcurrencyGroupMode::Chunk { "chunk" } else { "rolling" }
}

/// Whether the parents of an existing step must be recounted: its parents changed, or its role and
/// therefore possibly its join.
fn rewired(new: &NewBlueprint<'_>, step: &StepIntent) -> bool {
    let waits = |blueprint| {
        noderole_doc(blueprint, step).map(|n: &NoderoleDoc| (n.role, n.parents.clone()))
    };
    waits(new.old) != waits(new.new)
}

async fn project_edges(
    on: &mut PgConnection,
    new: &NewBlueprint<'_>,
    steps: &[&StepIntent],
    known: &BTreeSet<Uuid>,
) -> Result<(), StoreError> {
    let changed: Vec<Uuid> = steps
        .iter()
        .filter(|s| known.contains(&s.id.0) && rewired(new, s))
        .map(|s| s.id.0)
        .collect();
    if !changed.is_empty() {
        let ids = changed.iter().copied();
        edge::Entity::delete_many().filter(edge::Column::Child.eq_any(ids)).exec(&orm(on)).await?;
    }
    let written = steps.iter().filter(|s| !known.contains(&s.id.0) || changed.contains(&s.id.0));
    let edges: Vec<(Uuid, Uuid, &str)> = written
        .flat_map(|s| s.parents.iter().map(move |(parent, kind)| (s.id.0, parent.0, kind.as_str())))
        .collect();
    sqlx::query("INSERT INTO edge (child, parent, kind) SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[])")
        .bind(edges.iter().map(|e| e.0).collect::<Vec<_>>())
        .bind(edges.iter().map(|e| e.1).collect::<Vec<_>>())
        .bind(edges.iter().map(|e| e.2).collect::<Vec<_>>())
        .execute(on)
        .await?;
    Ok(())
}

/// Lets the engine set the states of new steps and reset those that run again.
async fn set_step_states(
    on: &mut PgConnection,
    number: BlueprintNumber,
    new: &NewBlueprint<'_>,
    removals: &[StepIntent],
    unblocked: Vec<Committed>,
    known: &BTreeSet<Uuid>,
) -> Result<(), StoreError> {
    let reason_of = |cause: RerunCause| match cause {
        RerunCause::Requested => RerunReason::Slice,
        RerunCause::RoleChanged | RerunCause::DataChanged => RerunReason::Changed,
    };
    let committed = new.projection.steps.iter().chain(removals).filter_map(|step| {
        let is_new = !known.contains(&step.id.0);
        let rerun = match step.change {
            StepChange::Rerun(cause) => Some((number, reason_of(cause))),
            StepChange::New | StepChange::Keep => None,
        };
        let parents = (is_new || rewired(new, step)).then(|| step.parents.clone());
        (rerun.is_some() || parents.is_some()).then_some(Committed {
            step: step.id,
            rerun,
            parents,
        })
    });
    let committed: Vec<Committed> = committed.chain(unblocked).collect();
    if committed.is_empty() {
        return Ok(());
    }
    commit_steps(on, &Change::Commit(committed)).await
}

/// Marks the input of steps that may have changed: of steps with other parents, and of the children
/// of changed steps and of steps on changed nodes. The worker compares them.
async fn mark_changed_inputs(
    on: &mut PgConnection,
    new: &NewBlueprint<'_>,
) -> Result<(), StoreError> {
    let steps = &new.projection.steps;
    let rewired: Vec<Uuid> = steps.iter().filter(|s| rewired(new, s)).map(|s| s.id.0).collect();
    sqlx::query(include_str!("statements/mark_changed_inputs.sql"))
        .bind(steps.iter().map(|s| s.id.0).collect::<Vec<_>>())
        .bind(changed_nodes(new).map(|id| id.0).collect::<Vec<_>>())
        .bind(rewired)
        .execute(on)
        .await?;
    Ok(())
}

/// Inserts the first blueprint with its policy.
///
/// # Errors
///
/// See [`commit_change`].
pub async fn commit_genesis(
    on: &mut PgConnection,
    new: &NewBlueprint<'_>,
    policy: &Object,
) -> Result<BlueprintNumber, StoreError> {
    commit_change(on, &NewBlueprint { policy: Some(policy.hash), review: None, ..new.clone() })
        .await
}
