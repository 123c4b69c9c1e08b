//! A node's page, and the changes of a node that need no review.
//!
//! Descriptive data (description, network cards, serial number) is not part of the desired state
//! and is changed directly. Connection and hints are part of the node's document once a blueprint
//! contains the node. From then on, only a proposal changes them, and the commit updates the
//! record. Every field of a node in no blueprint can be changed directly.
//!
//! A client that changes a record states the version that it has seen. If the record has changed
//! since, the request is refused.

use api::JoinPhase;
use api::listing::{Cursor, Key, Limit, PAGE_SIZE};
use api::live::{Live, Topic};
use api::nodes::{
    FactSource, HealthCheckPage, HealthCheckView, HealthChecksQuery, Maintenance, NodeChange,
    NodeConnection, NodeConnectionChange, NodeFacts, NodeNoderole, NodeNoderolePage,
    NodeNoderolesQuery, NodeStatus, NodeToken, NodeView, ReportView, SshView,
};
use api::runs::StepState;
use api::{Problem, limits};
use engine::alive::Liveness;
use engine::cluster::connection::fingerprint;
use engine::cluster::{Connection, phantom};
use engine::data::{check_user_data, mask, secret};
use engine::ids::{DeploymentId, DeploymentName, Fqdn, NodeId, NoderoleId, PersonId, RoleName};
use serde_json::{Map, Value, json};
use sqlx::PgConnection;
use store::nodes::{
    FactRow, HealthCheckFilter, HealthCheckRow, MAX_NODE_NODEROLES, NodeNoderoleFilter,
    NodeNoderoleRow, NodeRecord, NodeTokenRow, ReportRow, node_tokens,
};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::current::CurrentState;
use crate::nodes::hardware::{check_macs, check_serial};
use crate::nodes::{address_policy, connection};
use crate::people::{Actor, Permission};
use crate::problems::{corrupt, from_store, no_node};
use crate::runs::list::to_run;
use crate::runs::operations::{checked, from_change};
use crate::text::{self, at};
use crate::{Control, cursor, done};

/// Health checks per page.
pub const MAX_HEALTH_CHECKS: usize = 20;
/// Runs and reports on a node's page.
const MAX_RUNS_AND_REPORTS: u64 = 20;

impl Control {
    /// A node with its runs, reports and noderoles, by name or id.
    pub async fn node(&self, actor: &Actor, name: &str) -> Result<NodeView, Problem> {
        actor.require(Permission::Viewer)?;
        // Read the cursor first, so the live stream reports all later events.
        let cursor = self.current_cursor().await?;
        let present = self.current_state().await?;
        let mut connection = self.connection().await?;
        let row = find_node(&mut connection, &present, name).await?;
        let id = NodeId(row.id);
        let is_phantom = phantom_named(&present, &id.to_string()).is_some();
        let looks = store::nodes::health_checks(
            &mut connection,
            id,
            HealthCheckFilter::default(),
            MAX_HEALTH_CHECKS as u64,
        )
        .await
        .map_err(from_store)?;
        let mut carried = store::nodes::noderoles_of_node(
            &mut connection,
            id,
            NodeNoderoleFilter::default(),
            MAX_NODE_NODEROLES + 1,
        )
        .await
        .map_err(from_store)?;
        let more_noderoles = carried.len() as u64 > MAX_NODE_NODEROLES;
        carried.truncate(usize::try_from(MAX_NODE_NODEROLES).unwrap_or(usize::MAX));
        let facts = store::nodes::facts(&mut connection, id).await.map_err(from_store)?;
        let reports = store::nodes::reports(&mut connection, id, MAX_RUNS_AND_REPORTS)
            .await
            .map_err(from_store)?;
        let tokens = node_tokens(&mut connection, id).await.map_err(from_store)?;
        drop(connection);
        let runs = store::runs::runs_of_node(&self.store, id, MAX_RUNS_AND_REPORTS)
            .await
            .map_err(from_store)?;
        let deployment = DeploymentId(row.deployment_id);
        let record = !present.blueprint.nodes.contains_key(&id);
        let may_change = match is_phantom {
            true => Err("A phantom node has no record to change.".to_owned()),
            false => {
                actor.require_in(Permission::Operator, deployment).map_err(|problem| problem.detail)
            }
        };
        Ok(NodeView {
            id,
            version: row.version,
            deployment: DeploymentName::parse(&present.name_of(deployment)).map_err(corrupt)?,
            deployment_id: deployment,
            record_only: record,
            status: node_status(&row),
            connection: connection_view(&row.transport, &row.address, &row.connection),
            added: at(row.created_at),
            health_checks: looks.into_iter().map(health_check_view).collect(),
            noderoles: carried
                .into_iter()
                .map(|row| noderole_view(&present, row))
                .collect::<Result<_, _>>()?,
            more_noderoles,
            runs: runs.iter().map(|row| to_run(&present, row)).collect::<Result<_, _>>()?,
            facts: facts.into_iter().map(facts_of).collect::<Result<_, _>>()?,
            reports: reports.into_iter().map(report).collect(),
            tokens: tokens.into_iter().map(token).collect(),
            may_change: may_change.into(),
            cursor,
            fqdn: row.fqdn,
            description: row.description,
            macs: row.macs,
            serial: row.serial,
            hints: row.hints,
            added_by: row.created_by,
        })
    }

    /// The id of a node, by name or id. An id is not looked up; a later use fails if it is unknown.
    pub async fn node_named(&self, actor: &Actor, name: &str) -> Result<NodeId, Problem> {
        if let Ok(id) = name.parse() {
            return Ok(id);
        }
        actor.require(Permission::Viewer)?;
        let mut connection = self.connection().await?;
        Ok(NodeId(find_machine(&mut connection, name).await?.id))
    }

    /// A page of a node's last health checks.
    pub async fn node_health_checks(
        &self,
        actor: &Actor,
        name: &str,
        query: &HealthChecksQuery,
    ) -> Result<HealthCheckPage, Problem> {
        actor.require(Permission::Viewer)?;
        let filter = HealthCheckFilter {
            reached: query.reached,
            text: text::filter_text(&query.filter)?,
            ascending: !query.sort.descending,
            after: health_check_cursor(query)?,
        };
        let present = self.current_state().await?;
        let mut connection = self.connection().await?;
        let node = NodeId(find_node(&mut connection, &present, name).await?.id);
        let size = Limit::rows(query.limit, MAX_HEALTH_CHECKS);
        let mut looks = store::nodes::health_checks(&mut connection, node, filter, size as u64 + 1)
            .await
            .map_err(from_store)?;
        let more = looks.len() > size;
        looks.truncate(size);
        let next = looks
            .last()
            .filter(|_| more)
            .map(|last| Cursor::after_row(query.sort, &[health_check_key(last.at)]));
        Ok(HealthCheckPage {
            health_checks: looks.into_iter().map(health_check_view).collect(),
            next,
        })
    }

    /// A page of a node's noderoles.
    pub async fn node_noderoles(
        &self,
        actor: &Actor,
        name: &str,
        query: &NodeNoderolesQuery,
    ) -> Result<NodeNoderolePage, Problem> {
        actor.require(Permission::Viewer)?;
        let filter = NodeNoderoleFilter {
            state: query.state.map(StepState::as_str),
            role: text::filter_text(&query.role)?,
            descending: query.sort.descending,
            after: noderole_cursor(query)?,
        };
        let present = self.current_state().await?;
        let mut connection = self.connection().await?;
        let node = NodeId(find_node(&mut connection, &present, name).await?.id);
        let size = Limit::rows(query.limit, PAGE_SIZE);
        let mut rows =
            store::nodes::noderoles_of_node(&mut connection, node, filter, size as u64 + 1)
                .await
                .map_err(from_store)?;
        drop(connection);
        let more = rows.len() > size;
        rows.truncate(size);
        let next = rows
            .last()
            .filter(|_| more)
            .map(|last| Cursor::after_row(query.sort, &noderole_keys(last)));
        let noderoles =
            rows.into_iter().map(|row| noderole_view(&present, row)).collect::<Result<_, _>>()?;
        Ok(NodeNoderolePage { noderoles, next })
    }

    /// Changes a node's record, if it still has the given version. Returns the new version.
    pub async fn change_node(
        &self,
        actor: &Actor,
        node: NodeId,
        version: i32,
        change: NodeChange,
    ) -> Result<i32, Problem> {
        actor.require_somewhere(Permission::Operator)?;
        let mut transaction = self.begin().await?;
        // A change of the connection must block claims. Other changes need only the row lock.
        if change.connection.is_some() {
            store::blueprints::lock_for_commit(&mut transaction).await.map_err(from_store)?;
        }
        let actor = actor.revalidate(&mut transaction).await?;
        let row =
            store::nodes::lock_node_record(&mut transaction, node).await.map_err(from_store)?;
        let Some(before) = row else {
            drop(transaction);
            return Err(self.no_record(node).await);
        };
        let place = node_deployment(&mut transaction, node).await?;
        actor.require_in(Permission::Operator, place)?;
        require_version(Some(version), before.version, &before.fqdn)?;
        let after = self.changed(&before, &change)?;
        if after == before {
            return Ok(before.version);
        }
        if before.in_blueprint
            && (is_connection_changed(&before, &after) || after.hints != before.hints)
        {
            return Err(in_blueprint_problem(&before.fqdn, &change));
        }
        self.added.of_record(actor.person, count_new_addresses(&before, &after))?;
        let by = (Some(actor.person), None);
        let version = write_node(&mut transaction, node, &before, &after, by).await?;
        done(transaction).await?;
        // Reviews that would give the node its first document depend on its record.
        if is_connection_changed(&before, &after) || after.hints != before.hints {
            self.replan_after_change().await;
        }
        Ok(version)
    }

    /// The record with the change applied, validated as for a new node.
    fn changed(&self, before: &NodeRecord, change: &NodeChange) -> Result<NodeRecord, Problem> {
        let mut after = before.clone();
        if let Some(description) = &change.description {
            let description = text::plain(description)?;
            if description.chars().count() > limits::DESCRIPTION {
                let most = limits::DESCRIPTION;
                return Err(Problem::invalid(format!(
                    "description: must have at most {most} characters."
                )));
            }
            after.description = description.to_owned();
        }
        if let Some(macs) = &change.macs {
            after.macs = check_macs(macs)?;
        }
        if let Some(serial) = &change.serial {
            after.serial = check_serial(serial)?;
        }
        if let Some(hints) = &change.hints {
            check_object("hints", hints, limits::HINTS)?;
            after.hints = hints.clone();
        }
        if let Some(requested) = &change.connection {
            (after.address, after.connection) = self.changed_connection(before, requested)?;
        }
        Ok(after)
    }

    fn changed_connection(
        &self,
        before: &NodeRecord,
        request: &NodeConnectionChange,
    ) -> Result<(Value, Value), Problem> {
        let now = connection::of_record(&before.transport, &before.address, &before.connection);
        let changes_address = request.addresses.is_some() || request.port.is_some();
        let request = request.apply(now.as_ref()).map_err(connection::refused)?;
        if request.transport() != before.transport {
            return Err(Problem::invalid(format!(
                "Node {} has the transport {}, which cannot change. Add a separate node with the \
                 transport {}.",
                before.fqdn,
                before.transport,
                request.transport()
            )));
        }
        let (connection, addresses) = connection::columns(&request);
        match request {
            Connection::Local { root } => Ok((before.address.clone(), self.in_folder(&root)?)),
            Connection::Ssh(ssh) => {
                if changes_address {
                    address_policy::check(&self.reach, &addresses, ssh.port)?;
                }
                Ok((json!(addresses), connection))
            }
        }
    }

    /// Puts a node in maintenance or ends the maintenance. Step states stay, and running steps
    /// finish.
    pub async fn set_maintenance(
        &self,
        actor: &Actor,
        node: impl Into<NodeAtVersion>,
        maintenance: bool,
        reason: String,
    ) -> Result<(), Problem> {
        let NodeAtVersion { node, version } = node.into();
        actor.require_somewhere(Permission::Operator)?;
        let reason = checked(&reason)?;
        let mut transaction = self.begin().await?;
        store::blueprints::lock_for_commit(&mut transaction).await.map_err(from_store)?;
        let actor = actor.revalidate(&mut transaction).await?;
        // Descriptive data changes without the commit lock, so only the lock of the record keeps
        // its version stable.
        let record =
            store::nodes::lock_node_record(&mut transaction, node).await.map_err(from_store)?;
        if record.is_none() {
            drop(transaction);
            return Err(self.no_record(node).await);
        }
        let row = store::nodes::node_detail(&mut transaction, node)
            .await
            .map_err(from_store)?
            .ok_or_else(no_node)?;
        actor.require_in(Permission::Operator, DeploymentId(row.deployment_id))?;
        require_version(version, row.version, &row.fqdn)?;
        let by = maintenance.then_some((actor.person, reason));
        let news = store::runs::set_node_maintenance(&mut transaction, node, by)
            .await
            .map_err(from_change)?;
        if !news.ok_or_else(no_node)? {
            let reason =
                row.unavailable_reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            let by = row.unavailable_by.map(|by| format!(" by {by}")).unwrap_or_default();
            let detail = match maintenance {
                false => format!("Node {} is not in maintenance.", row.fqdn),
                true => format!("Node {} is already in maintenance{by}{reason}", row.fqdn),
            };
            return Err(Problem::conflict("state", detail));
        }
        let action = if maintenance { "node.start_maintenance" } else { "node.end_maintenance" };
        let detail = json!({"fqdn": row.fqdn, "reason": reason});
        store::audit::append_audit(
            &mut transaction,
            Some(actor.person),
            action,
            &node.to_string(),
            &detail,
        )
        .await
        .map_err(from_store)?;
        notify(&mut transaction, row.fqdn).await?;
        done(transaction).await
    }
}

/// A node to act on, and the version of its record that the client has seen, if stated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeAtVersion {
    pub node: NodeId,
    /// Act only if the record still has this version.
    pub version: Option<i32>,
}

impl From<NodeId> for NodeAtVersion {
    fn from(node: NodeId) -> Self {
        Self { node, version: None }
    }
}

/// The problem for a change based on an outdated version of the record.
pub(crate) fn version_conflict(fqdn: &str) -> Problem {
    Problem::new(
        412,
        "changed_meanwhile",
        "Changed in the meantime",
        format!("Node {fqdn} was changed after you loaded it. Reload it, then try again."),
    )
}

/// Returns an error if the record has another version than the one that the client has seen.
pub(crate) fn require_version(seen: Option<i32>, version: i32, fqdn: &str) -> Result<(), Problem> {
    match seen {
        Some(seen) if seen != version => Err(version_conflict(fqdn)),
        _ => Ok(()),
    }
}

/// Writes a changed record with its audit entry, and returns the new version. The caller has
/// checked the permission and has the record's lock. A new connection is refused while a run is
/// open on the node.
pub(crate) async fn write_node(
    on: &mut PgConnection,
    node: NodeId,
    before: &NodeRecord,
    after: &NodeRecord,
    (by, reason): (Option<PersonId>, Option<&str>),
) -> Result<i32, Problem> {
    let changes_connection = is_connection_changed(before, after);
    if changes_connection && before.busy {
        return Err(Problem::conflict(
            "busy",
            format!(
                "The connection of node {} cannot change while a run is open on it. Put the node \
                 in maintenance, wait for the run or cancel it, then try again.",
                before.fqdn
            ),
        ));
    }
    let mut detail = difference(before, after);
    if let Some(reason) = reason {
        detail.insert("reason".into(), reason.into());
    }
    detail.insert("fqdn".into(), before.fqdn.clone().into());
    let version = store::nodes::update_node_record(on, node, after, changes_connection)
        .await
        .map_err(from_store)?;
    store::audit::append_audit(on, by, "node.change", &node.to_string(), &detail.into())
        .await
        .map_err(from_store)?;
    notify(on, before.fqdn.clone()).await?;
    Ok(version)
}

/// The number of addresses that a change adds. With another port, each address counts as new.
fn count_new_addresses(before: &NodeRecord, after: &NodeRecord) -> usize {
    let listed = |row: &NodeRecord| row.address.as_array().cloned().unwrap_or_default();
    let (was, new) = (listed(before), listed(after));
    let same_port = before.connection["port"] == after.connection["port"];
    new.iter().filter(|address| !(same_port && was.contains(address))).count()
}

fn is_connection_changed(before: &NodeRecord, after: &NodeRecord) -> bool {
    (&after.address, &after.connection) != (&before.address, &before.connection)
}

/// Notifies open pages of the node and of the node list.
pub(crate) async fn notify(on: &mut PgConnection, fqdn: String) -> Result<(), Problem> {
    store::events::append_event_to_topics(on, &[Topic::Nodes], &Live::Node { fqdn })
        .await
        .map_err(from_store)
}

/// Validates an object from a client: small, and without a reference to a secret, because every
/// viewer sees it.
pub(crate) fn check_object<'v>(
    field: &str,
    value: &'v Value,
    most: usize,
) -> Result<&'v Map<String, Value>, Problem> {
    let object = value.as_object().ok_or_else(|| {
        Problem::invalid(format!("{field}: must be a JSON object, such as {{\"key\": \"value\"}}."))
    })?;
    if serde_json::to_vec(value).map_or(usize::MAX, |bytes| bytes.len()) > most {
        return Err(Problem::invalid(format!(
            "{field}: must have at most {} KiB as JSON.",
            most / 1024
        )));
    }
    check_user_data(value)
        .map_err(|error| Problem::invalid(text::sentence(&format!("{field}: {error}"))))?;
    if secret::contains_reference(value) {
        return Err(Problem::invalid(format!(
            "{field}: must not have a reference to a secret ($secret), because every viewer can \
             read this field."
        )));
    }
    Ok(object)
}

/// The refusal of a direct change to a node in a blueprint: its connection and hints change by
/// proposal.
pub(crate) fn in_blueprint_problem(fqdn: &str, change: &NodeChange) -> Problem {
    let command = api::calls::propose_change(fqdn, change);
    Problem::conflict(
        "in_blueprint",
        format!(
            "Node {fqdn} is in a blueprint, so its connection and hints change only after a \
             review. Propose the change: {command}"
        ),
    )
}

/// The current deployment of a node, for the permission check. The caller has the lock of the
/// record or of commits, so the node cannot move.
pub(crate) async fn node_deployment(
    on: &mut PgConnection,
    node: NodeId,
) -> Result<DeploymentId, Problem> {
    let row = store::nodes::node_detail(on, node).await.map_err(from_store)?;
    let row = row.ok_or_else(no_node)?;
    Ok(DeploymentId(row.deployment_id))
}

/// The row of a machine or a phantom.
async fn find_node(
    on: &mut PgConnection,
    present: &CurrentState,
    name: &str,
) -> Result<store::nodes::NodeDetailRow, Problem> {
    let phantom = match phantom_named(present, name.trim()) {
        Some(id) => store::nodes::any_node_detail(on, id).await.map_err(from_store)?,
        None => None,
    };
    match phantom {
        Some(row) => Ok(row),
        None => find_machine(on, name).await,
    }
}

/// The phantom node of this name or id: `phantom:web`, or the name that is derived from the id of
/// its deployment.
fn phantom_named(present: &CurrentState, name: &str) -> Option<NodeId> {
    let deployments = &present.skeleton.deployments;
    let is_named = |id: &DeploymentId, found: &str, phantom: NodeId| {
        phantom.to_string() == name
            || phantom::deployment_of(name) == Some(found)
            || phantom::fqdn(*id).as_str() == name
    };
    let found = deployments.iter().find(|(id, d)| is_named(id, d.name.as_str(), d.phantom));
    found.map(|(_, deployment)| deployment.phantom)
}

async fn find_machine(
    on: &mut PgConnection,
    name: &str,
) -> Result<store::nodes::NodeDetailRow, Problem> {
    let found = match name.parse::<NodeId>() {
        Ok(id) => store::nodes::node_detail(on, id).await,
        Err(_) => match Fqdn::parse(name.trim()) {
            Ok(fqdn) => store::nodes::node_detail_by_name(on, fqdn.as_str()).await,
            Err(_) => Ok(None),
        },
    };
    found.map_err(from_store)?.ok_or_else(|| {
        let shown: String = engine::text::shown(name).chars().take(253).collect();
        Problem::not_found(format!("Node {shown} does not exist. See the list of nodes."))
    })
}

fn node_status(row: &store::nodes::NodeDetailRow) -> NodeStatus {
    let known = row.alive_since.is_some();
    let liveness = Liveness {
        alive: row.alive,
        known,
        contradicting: row.contradicting_checks.unsigned_abs(),
    };
    NodeStatus {
        alive: row.alive,
        alive_since: row.alive_since.map(at),
        last_seen: row.last_seen_at.map(at),
        contradicting: liveness.contradicting,
        threshold: liveness.threshold(),
        maintenance: (!row.available).then(|| Maintenance {
            by: row.unavailable_by.clone(),
            since: row.unavailable_at.map(at),
            reason: row.unavailable_reason.clone().unwrap_or_default(),
        }),
        joined: JoinPhase::from_name(&row.joined).unwrap_or(JoinPhase::None),
        joined_since: row.joined_at.map(at),
        boot_id: row.boot_id.clone().filter(|id| !id.is_empty()),
        bootenv: row.bootenv.clone(),
    }
}

/// The connection of a record, as far as it can be parsed. Missing fields are empty; then workers
/// cannot connect either.
fn connection_view(transport: &str, address: &Value, connection: &Value) -> NodeConnection {
    let text =
        |key: &str| connection.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let ssh = || {
        let key = connection.get("key").and_then(secret::reference);
        let host_key = text("host_key");
        SshView {
            addresses: address
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            port: connection
                .get("port")
                .and_then(Value::as_u64)
                .and_then(|port| port.try_into().ok())
                .unwrap_or(22),
            user: text("user"),
            key: key.as_ref().map(|key| key.name.clone()).unwrap_or_default(),
            key_version: key.map_or(1, |key| key.version),
            fingerprint: fingerprint(&host_key).unwrap_or_default(),
            host_key,
        }
    };
    NodeConnection {
        transport: transport.to_owned(),
        root: text("root"),
        ssh: (transport == "ssh").then(ssh),
    }
}

/// The changed fields for the audit, with old and new values.
pub(crate) fn difference(before: &NodeRecord, after: &NodeRecord) -> Map<String, Value> {
    let pairs = [
        ("description", json!(before.description), json!(after.description)),
        ("macs", json!(before.macs), json!(after.macs)),
        ("serial", json!(before.serial), json!(after.serial)),
        ("hints", before.hints.clone(), after.hints.clone()),
        ("addresses", before.address.clone(), after.address.clone()),
        ("connection", before.connection.clone(), after.connection.clone()),
    ];
    let changed = pairs.into_iter().filter(|(_, was, new)| was != new);
    changed.map(|(field, was, new)| (field.to_owned(), json!({"was": was, "is": new}))).collect()
}

/// The cursor of a health check: its time in microseconds since 1970, the precision of the
/// database.
fn health_check_key(at: OffsetDateTime) -> Key {
    Key::from(i64::try_from(at.unix_timestamp_nanos() / 1_000).unwrap_or(i64::MAX))
}

/// The time after which a page of health checks continues.
fn health_check_cursor(query: &HealthChecksQuery) -> Result<Option<OffsetDateTime>, Problem> {
    let Some(keys) = cursor::decode(query.sort, query.before.as_ref())? else { return Ok(None) };
    let moment = match keys.as_slice() {
        [Key::Number(micros)] => {
            OffsetDateTime::from_unix_timestamp_nanos(i128::from(*micros) * 1_000).ok()
        }
        _ => None,
    };
    // PostgreSQL has no timestamp before 4714 BC.
    let moment = moment.filter(|moment| moment.year() >= 1);
    moment.map(Some).ok_or_else(|| cursor::invalid_cursor(query.sort, query.before.as_ref()))
}

/// The sort key of a noderole on its node, in run order.
fn noderole_keys(row: &NodeNoderoleRow) -> [Key; 2] {
    [Key::from(i64::from(row.rank)), Key::from(row.step_id.to_string().as_str())]
}

/// The rank and step after which a page of noderoles continues.
fn noderole_cursor(query: &NodeNoderolesQuery) -> Result<Option<(i32, Uuid)>, Problem> {
    let Some(keys) = cursor::decode(query.sort, query.after.as_ref())? else { return Ok(None) };
    let place = match keys.as_slice() {
        [Key::Number(rank), Key::Text(step)] => i32::try_from(*rank).ok().zip(step.parse().ok()),
        _ => None,
    };
    place.map(Some).ok_or_else(|| cursor::invalid_cursor(query.sort, query.after.as_ref()))
}

fn health_check_view(row: HealthCheckRow) -> HealthCheckView {
    HealthCheckView {
        tried: row.attempts.0,
        at: at(row.at),
        reached: row.reached,
        address: row.address,
        message: row.detail,
        duration_ms: row.duration_ms.unsigned_abs(),
        by: row.by,
    }
}

fn noderole_view(present: &CurrentState, row: NodeNoderoleRow) -> Result<NodeNoderole, Problem> {
    let deployment = DeploymentId(row.deployment_id);
    Ok(NodeNoderole {
        id: NoderoleId(row.noderole_id),
        role: RoleName::parse(&row.role).map_err(corrupt)?,
        deployment: DeploymentName::parse(&present.name_of(deployment)).map_err(corrupt)?,
        deployment_id: deployment,
        state: StepState::from_name(&row.state).unwrap_or(StepState::Blocked),
        since: at(row.since),
        error: row.error,
    })
}

fn facts_of(row: FactRow) -> Result<NodeFacts, Problem> {
    let role = row.source.strip_prefix("role ").map(RoleName::parse).transpose();
    let role = role.map_err(corrupt)?;
    let source = if role.is_some() { FactSource::Role } else { FactSource::Node };
    Ok(NodeFacts { source, role, facts: mask(&row.facts), at: at(row.at), run: row.run })
}

fn report(row: ReportRow) -> ReportView {
    ReportView {
        at: at(row.at),
        kind: row.kind,
        value: row.detail,
        token: row.token,
        address: row.address,
    }
}

fn token(row: NodeTokenRow) -> NodeToken {
    NodeToken {
        id: row.id,
        name: row.name,
        by: row.by,
        created: at(row.created_at),
        expires: at(row.expires_at),
        used: row.last_used_at.map(at),
        revoked: row.revoked_at.map(at),
        valid: row.holds,
    }
}

#[cfg(test)]
mod tests {
    use crate::nodes::node::*;

    #[test]
    fn visible_objects_cannot_reference_secrets() {
        let good = json!({"rack": 7, "wants": ["raid"]});
        assert!(check_object("hints", &good, 100).is_ok());
        for bad in [
            json!([1]),
            json!({"key": {"$secret": "deploy/ssh", "version": 1}}),
            json!({"deep": [{"key": {"$secret": "x", "version": 1}}]}),
            json!({"long": "x".repeat(100)}),
            json!({"hidden": "a\u{202e}b"}),
            json!({"nothing": "\0"}),
        ] {
            let refused = check_object("hints", &bad, 100).unwrap_err();
            assert!(refused.status == 400 && refused.detail.starts_with("hints: "), "{refused:?}");
        }
    }
}
