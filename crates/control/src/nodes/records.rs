//! Node records. A new record is no part of the desired state. The node stays in *system* until a
//! reviewed change binds a role to it.

use std::path::{Component, Path, PathBuf};

use api::Problem;
use api::live::{Live, Topic};
use api::nodes::{NodeChange, NodeConnectionChange};
use api::nodes::{NodePage, NodeRequest, NodeSummary};
use api::nodes::{NodeSort, NodeState, NodesQuery};
use engine::cluster::{Hardware, derive_node_name, phantom};
use engine::ids::{DeploymentId, DeploymentName, Fqdn, NodeId, PersonId};
use engine::text::deceptive_character;
use serde_json::{Value, json};
use sqlx::PgConnection;
use store::nodes::{NewNode, NodeFilter, NodeRecord, NodeRow};
use uuid::Uuid;

use crate::current::CurrentState;
use crate::nodes::address_policy;
use crate::nodes::connection;
use crate::nodes::hardware::{check_macs, check_serial};
use crate::nodes::node::{in_blueprint_problem, notify, version_conflict, write_node};
use crate::people::{Actor, Permission};
use crate::problems::{from_store, no_node};
use crate::runs::step_counts;
use crate::{Control, cursor, done, text};

/// The domain of nodes with derived names.
const DEFAULT_DOMAIN: &str = "nodes.gantry.internal";

impl Control {
    /// A page of nodes.
    pub async fn find_nodes(&self, actor: &Actor, query: &NodesQuery) -> Result<NodePage, Problem> {
        actor.require(Permission::Viewer)?;
        let name: String =
            text::plain(&query.filter)?.to_ascii_lowercase().chars().take(253).collect();
        let sort = match query.sort.by {
            NodeSort::Name => NodeRow::BY_NAME,
            NodeSort::State => NodeRow::BY_STATE,
            NodeSort::Deployment => NodeRow::BY_DEPLOYMENT,
        };
        let page = cursor::stored(query.sort, query.after.as_ref(), query.limit, sort)?;
        // In every sort order, the last key is the node's name.
        if let Some(store::Key::Text(name)) = page.after.as_ref().and_then(|keys| keys.last())
            && Fqdn::parse(name).is_err()
        {
            return Err(cursor::invalid_cursor(query.sort, query.after.as_ref()));
        }
        let deployment = text::filter_text(&query.deployment)?;
        let deployment = match deployment {
            None => None,
            Some(name) => Some(self.current_state().await?.named(name)?),
        };
        let filter = NodeFilter {
            name: &name,
            alive: match query.state {
                Some(NodeState::Alive) => Some(true),
                Some(NodeState::Dead) => Some(false),
                _ => None,
            },
            available: (query.state == Some(NodeState::Maintenance)).then_some(false),
            documented: (query.state == Some(NodeState::RecordOnly)).then_some(false),
            deployment,
        };
        let mut rows = store::nodes::nodes(&self.store, filter, &page).await.map_err(from_store)?;
        let next = cursor::cut(&mut rows, query.sort, &page);
        let ids: Vec<NodeId> = rows.iter().map(|r| NodeId(r.node.id)).collect();
        let mut connection = self.connection().await?;
        let counts =
            store::nodes::node_step_counts(&mut connection, &ids).await.map_err(from_store)?;
        let unreached = store::nodes::unreached(&mut connection, &ids).await.map_err(from_store)?;
        drop(connection);
        let present = self.current_state().await?;
        let summary = |row: NodeRow| {
            let id = NodeId(row.node.id);
            let steps = counts.iter().find(|(node, _)| *node == id).map(|(_, counts)| *counts);
            let deployment =
                DeploymentName::parse(&row.deployment).map_err(|_| Problem::internal())?;
            Ok(NodeSummary {
                id,
                fqdn: row.node.fqdn,
                deployment,
                deployment_id: DeploymentId(row.node.deployment_id),
                alive: row.node.alive,
                available: row.node.available,
                transport: row.node.transport,
                error: unreached
                    .iter()
                    .find(|(node, _)| *node == id)
                    .map(|(_, message)| message.clone()),
                steps: step_counts(steps.unwrap_or_default()),
                record_only: !present.blueprint.nodes.contains_key(&id),
            })
        };
        let nodes = rows.into_iter().map(summary).collect::<Result<Vec<_>, Problem>>()?;
        Ok(NodePage { nodes, next })
    }

    /// Adds a node: a folder on the worker's machine, or a machine with an SSH connection. Without
    /// a name, the name is derived from the MAC addresses or the serial number. So the same machine
    /// cannot be added twice.
    pub async fn add_node(&self, actor: &Actor, request: NodeRequest) -> Result<NodeId, Problem> {
        actor.require(Permission::Operator)?;
        self.insert_new_node(Some(actor), &request).await
    }

    /// Like [`Self::add_node`], for a process with direct access to the machine and the database. A
    /// testbed registers its nodes with it at each start. If the node exists with another
    /// connection, the connection is changed by the usual rules. Returns whether it was changed.
    ///
    /// # Errors
    /// As [`Self::add_node`], except that an existing node is no error. Also if the connection
    /// would change while a run is open.
    pub async fn ensure_node(&self, request: NodeRequest) -> Result<bool, Problem> {
        match self.insert_new_node(None, &request).await {
            Err(problem) if problem.code == "node_exists" => self.ensure_connection(&request).await,
            made => made.map(|_| false),
        }
    }

    async fn ensure_connection(&self, request: &NodeRequest) -> Result<bool, Problem> {
        let (fqdn, _) = name_of(request)?;
        let (transport, connection, addresses) = self.parse_connection(request)?;
        let mut transaction = self.begin().await?;
        store::blueprints::lock_for_commit(&mut transaction).await.map_err(from_store)?;
        let removed =
            || Problem::conflict("state", format!("Node {fqdn} was just removed. Try again."));
        let known = store::nodes::node_detail_by_name(&mut transaction, fqdn.as_str())
            .await
            .map_err(from_store)?;
        let node = NodeId(known.ok_or_else(removed)?.id);
        let before = store::nodes::lock_node_record(&mut transaction, node)
            .await
            .map_err(from_store)?
            .ok_or_else(removed)?;
        if before.transport != transport {
            return Err(Problem::conflict(
                "node_exists",
                format!(
                    "Node {fqdn} already exists with the transport {}, not {transport}. Remove its \
                     record, or use another name.",
                    before.transport
                ),
            ));
        }
        let after = NodeRecord { address: json!(addresses), connection, ..before.clone() };
        if after == before {
            return Ok(false);
        }
        if before.in_blueprint {
            let recorded = connection::of_record(transport, &after.address, &after.connection);
            let change = NodeChange {
                connection: recorded.as_ref().map(NodeConnectionChange::from),
                ..NodeChange::default()
            };
            return Err(in_blueprint_problem(&before.fqdn, &change));
        }
        let reason = "changed on the machine itself";
        write_node(&mut transaction, node, &before, &after, (None, Some(reason))).await?;
        done(transaction).await?;
        Ok(true)
    }

    /// Transport, connection and addresses.
    fn parse_connection(
        &self,
        request: &NodeRequest,
    ) -> Result<(&'static str, Value, Vec<String>), Problem> {
        Ok(match &request.ssh {
            Some(ssh) => {
                let (connection, addresses) =
                    connection::columns(&connection::by_ssh(ssh, &request.root)?);
                address_policy::check(&self.reach, &addresses, ssh.port)?;
                ("ssh", connection, addresses)
            }
            None => ("local", self.in_folder(&request.root)?, Vec::new()),
        })
    }

    /// Validates a requested record.
    pub(crate) fn fit(&self, request: &NodeRequest) -> Result<ValidatedRecord, Problem> {
        let (fqdn, is_derived) = name_of(request)?;
        let (macs, serial) = (check_macs(&request.macs)?, check_serial(&request.serial)?);
        if phantom::is_reserved(&fqdn) {
            return Err(Problem::invalid(
                "Names below phantom.gantry.internal are reserved for phantom nodes. Choose \
                 another name.",
            ));
        }
        let (transport, connection, addresses) = self.parse_connection(request)?;
        Ok(ValidatedRecord { fqdn, is_derived, macs, serial, transport, connection, addresses })
    }

    async fn insert_new_node(
        &self,
        actor: Option<&Actor>,
        request: &NodeRequest,
    ) -> Result<NodeId, Problem> {
        let fit = self.fit(request)?;
        let by = actor.map(|actor| actor.person);
        if let Some(person) = by {
            self.added.of_record(person, fit.addresses.len())?;
        }
        let system = self.current_state().await?.system()?;
        let mut transaction = self.begin().await?;
        if let Some(actor) = actor {
            actor.revalidate(&mut transaction).await?.require(Permission::Operator)?;
        }
        store::nodes::lock_node_inserts(&mut transaction).await.map_err(from_store)?;
        let node = fit.insert(&mut transaction, system, by).await?;
        fit.note(&mut transaction, node, by).await?;
        done(transaction).await?;
        Ok(node)
    }

    pub(crate) fn in_folder(&self, root: &str) -> Result<Value, Problem> {
        let root = root.trim();
        if root.is_empty() {
            return Err(Problem::invalid(
                "The node has no connection: neither a root folder nor SSH. Set `root` to the \
                 folder of a local node, or `ssh` to the connection of a machine.",
            ));
        }
        check_root(root)?;
        let root = plain_path(root);
        if let Some(data) = &self.data {
            check_no_overlap(&root, data)?;
        }
        Ok(json!({"root": root}))
    }

    /// Deletes the record of a node that never had a noderole. No document changes, so no review is
    /// needed. A node that a target contains is removed by proposal. With `version`, deletes only
    /// that version of the record.
    pub async fn delete_node(
        &self,
        actor: &Actor,
        node: NodeId,
        version: Option<i32>,
    ) -> Result<(), Problem> {
        actor.require(Permission::Operator)?;
        let mut transaction = self.begin().await?;
        actor.revalidate(&mut transaction).await?.require(Permission::Operator)?;
        let Some(fqdn) = store::nodes::remove_node_record(&mut transaction, node, version)
            .await
            .map_err(from_store)?
        else {
            drop(transaction);
            return Err(self.delete_refusal(node).await?);
        };
        store::audit::append_audit(
            &mut transaction,
            Some(actor.person),
            "node.remove",
            &node.to_string(),
            &json!({"fqdn": fqdn}),
        )
        .await
        .map_err(from_store)?;
        // Proposals on this node alone have lost their subject.
        for closed in store::proposals::discard_proposals_on(&mut transaction, &[], &[node], None)
            .await
            .map_err(from_store)?
        {
            let detail = json!({"removed_node": fqdn});
            store::audit::append_audit(
                &mut transaction,
                Some(actor.person),
                "proposal.discard",
                &closed.id.to_string(),
                &detail,
            )
            .await
            .map_err(from_store)?;
            let event = Live::Proposal { proposal: closed.id, version: closed.version };
            store::events::append_event_to_topics(
                &mut transaction,
                &[Topic::Proposal(closed.id), Topic::Reviews],
                &event,
            )
            .await
            .map_err(from_store)?;
        }
        store::events::append_event_to_topics(
            &mut transaction,
            &[Topic::Nodes],
            &Live::Node { fqdn },
        )
        .await
        .map_err(from_store)?;
        done(transaction).await
    }

    async fn delete_refusal(&self, node: NodeId) -> Result<Problem, Problem> {
        let present = self.current_state().await?;
        let Some(known) = present.skeleton.nodes.get(&node).filter(|known| !known.phantom) else {
            return Ok(without_record(&present, node));
        };
        if !present.blueprint.nodes.contains_key(&node) {
            return Ok(version_conflict(known.fqdn.as_str()));
        }
        Ok(Problem::conflict(
            "node_in_desired_state",
            format!(
                "Node {fqdn} is in a blueprint, so it can only be expunged with a reviewed change: \
                 gantry node expunge {fqdn}",
                fqdn = known.fqdn
            ),
        ))
    }

    /// The problem of a node that has no record.
    pub(crate) async fn no_record(&self, node: NodeId) -> Problem {
        match self.current_state().await {
            Ok(present) => without_record(&present, node),
            Err(problem) => problem,
        }
    }
}

/// A phantom node has no record, and a node that was removed has none any more.
fn without_record(present: &CurrentState, node: NodeId) -> Problem {
    let Some(phantom) = present.skeleton.nodes.get(&node).filter(|known| known.phantom) else {
        return no_node();
    };
    let deployment = present.name_of(phantom.deployment);
    Problem::conflict(
        "phantom",
        format!(
            "{} is a phantom node without a machine, so it has no record that can be changed. It \
             is removed together with the deployment {deployment}.",
            phantom::command_name_of(&deployment)
        ),
    )
}

/// A requested record, validated as far as possible without a comparison with existing nodes.
#[derive(Debug)]
pub(crate) struct ValidatedRecord {
    pub(crate) fqdn: Fqdn,
    /// Whether the name was derived from the machine's data.
    is_derived: bool,
    macs: Vec<String>,
    serial: String,
    transport: &'static str,
    connection: Value,
    addresses: Vec<String>,
}

impl ValidatedRecord {
    pub(crate) fn addresses(&self) -> usize {
        self.addresses.len()
    }

    /// Inserts the record. The caller has a lock that blocks other additions
    /// ([`store::nodes::lock_node_inserts`]).
    pub(crate) async fn insert(
        &self,
        on: &mut PgConnection,
        system: DeploymentId,
        by: Option<PersonId>,
    ) -> Result<NodeId, Problem> {
        let new = NewNode {
            id: NodeId(Uuid::new_v4()),
            fqdn: self.fqdn.clone(),
            deployment: system,
            transport: self.transport,
            connection: self.connection.clone(),
            addresses: self.addresses.clone(),
            by,
        };
        if !store::nodes::insert_node(on, &new).await.map_err(from_store)? {
            let source = match self.is_derived {
                true => {
                    "The name is derived from the MAC address or serial number, so this is \
                     probably the same machine. Look for it in the list of nodes, or enter a name"
                }
                false => "Names are unique. Choose another name, or look for the node in the list",
            };
            return Err(Problem::conflict(
                "node_exists",
                format!("Node {} already exists. {source}.", new.fqdn),
            ));
        }
        store::nodes::set_hardware(on, new.id, &self.macs, &self.serial)
            .await
            .map_err(from_store)?;
        Ok(new.id)
    }

    /// Writes the audit entry and notifies open node lists.
    pub(crate) async fn note(
        &self,
        on: &mut PgConnection,
        node: NodeId,
        by: Option<PersonId>,
    ) -> Result<(), Problem> {
        let detail = json!({"fqdn": self.fqdn, "transport": self.transport, "addresses": self.addresses, "port": self.connection["port"],
            "macs": self.macs, "serial": self.serial});
        store::audit::append_audit(on, by, "node.add", &node.to_string(), &detail)
            .await
            .map_err(from_store)?;
        notify(on, self.fqdn.to_string()).await
    }
}

/// The name of a new node, and whether it was derived.
fn name_of(request: &NodeRequest) -> Result<(Fqdn, bool), Problem> {
    let invalid =
        |error: &dyn std::fmt::Display| Problem::invalid(text::sentence(&error.to_string()));
    text::plain(&request.domain)?;
    let (macs, serial) = (check_macs(&request.macs)?, check_serial(&request.serial)?);
    if !request.fqdn.trim().is_empty() {
        return Ok((Fqdn::parse(request.fqdn.trim()).map_err(|error| invalid(&error))?, false));
    }
    let macs: Vec<&str> = macs.iter().map(String::as_str).collect();
    let hardware =
        Hardware { macs: &macs, serial: Some(serial.as_str()).filter(|serial| !serial.is_empty()) };
    let domain =
        Some(request.domain.trim()).filter(|domain| !domain.is_empty()).unwrap_or(DEFAULT_DOMAIN);
    Ok((derive_node_name(&hardware, domain).map_err(|error| invalid(&error))?, true))
}

/// Scripts write below the root folder, so it must be a deliberate choice.
fn check_root(root: &str) -> Result<(), Problem> {
    let path = Path::new(root);
    let plain = path.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
    // A folder with a misleading name would be confused with another; a line break garbles tables
    // and logs.
    if deceptive_character(root).is_some() || root.contains(['\n', '\r', '\t']) {
        return Err(Problem::invalid(
            "The root folder has a line break, a tab or an invisible character. Use a folder name \
             without it.",
        ));
    }
    if !path.is_absolute() || !plain || path.components().count() < 3 || root.len() > 4096 {
        return Err(Problem::invalid(format!(
            "Invalid root folder {:?}. Use an absolute path at least two folders deep, without \
             '..', such as /srv/nodes/web-1.",
            root.chars().take(200).collect::<String>()
        )));
    }
    Ok(())
}

/// A path without double or trailing slashes, so that folders can be compared.
fn plain_path(root: &str) -> String {
    let folders = root.split('/').filter(|folder| !folder.is_empty());
    folders.flat_map(|folder| ["/", folder]).collect()
}

/// Scripts that run with Gantry's data folder as root would control all of Gantry: its database and
/// its sign-in secrets. Only `nodes` below the data folder is permitted; the demo's nodes are
/// there.
fn check_no_overlap(root: &str, data: &Path) -> Result<(), Problem> {
    let (root, data) = (resolved(Path::new(root)), resolved(data));
    let nodes = data.join("nodes");
    let is_node_folder = root.starts_with(&nodes) && root != nodes;
    let is_separate = !root.starts_with(&data) && !data.starts_with(&root);
    if is_separate || is_node_folder {
        return Ok(());
    }
    Err(Problem::invalid(format!(
        "The root folder {root:?} overlaps with Gantry's own data folder {data:?}, and scripts \
         would write there. Use another folder, or one below {nodes:?}."
    )))
}

/// Resolves the symbolic links in the existing part of a path.
fn resolved(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        if let Ok(real) = ancestor.canonicalize() {
            return path
                .strip_prefix(ancestor)
                .map_or_else(|_| real.clone(), |rest| real.join(rest));
        }
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use crate::nodes::records::*;

    #[test]
    fn name_is_given_or_derived() {
        let request = |fqdn: &str, mac: &str, serial: &str| NodeRequest {
            macs: vec![mac.into()],
            serial: serial.into(),
            ..NodeRequest::named(fqdn, "/srv/n")
        };
        let name = |request: &NodeRequest| {
            name_of(request).map(|(name, derived)| (name.to_string(), derived))
        };
        let of = |text: &str, derived| Ok((text.to_owned(), derived));
        assert_eq!(
            name(&request(" n1.a.example ", "00:25:90:aa:00:01", "")),
            of("n1.a.example", false)
        );
        assert_eq!(
            name(&request("", "00:25:90:AA:00:01", "")),
            of("d00-25-90-aa-00-01.nodes.gantry.internal", true)
        );
        assert_eq!(name(&request(" ", "", "CN-0F8S7")), of("scn0f8s7.nodes.gantry.internal", true));
        let near = NodeRequest { domain: "lab.example.com".into(), ..request("", "", "CN-0F8S7") };
        assert_eq!(name(&near), of("scn0f8s7.lab.example.com", true));
        for bad in [
            request("", "", ""),
            request("", "nonsense", "none"),
            request("x", "00:25:90:aa:00:01", ""),
            request("", "", &"a".repeat(300)),
        ] {
            assert_eq!(name(&bad).unwrap_err().status, 400, "{bad:?}");
        }
    }

    #[test]
    fn unsafe_root_folders_are_rejected() {
        for bad in ["", "/", "/etc", "srv/node", "/srv/../etc/x", "/srv/./..", "/a/\0b"] {
            assert!(check_root(bad).is_err(), "{bad:?}");
        }
        for hidden in [
            "/srv/nodes/web\n-1",
            "/srv/nodes/web\r",
            "/srv/nodes/\u{202e}1-bew",
            "/srv/nodes/we\u{200b}b",
            "/srv/nodes/a\0",
        ] {
            assert!(
                check_root(hidden)
                    .is_err_and(|refused| refused.detail.contains("invisible character")),
                "{hidden:?}"
            );
        }
        assert!(check_root("/srv/nodes/web-1").is_ok());
        assert_eq!(plain_path("/srv//nodes/web-1/"), "/srv/nodes/web-1");
    }

    #[test]
    fn data_folder_is_rejected_as_root() {
        let data = Path::new("/var/nowhere/gantry");
        for bad in [
            "/var/nowhere/gantry",
            "/var/nowhere",
            "/var/nowhere/gantry/postgres",
            "/var/nowhere/gantry/nodes",
        ] {
            let problem = check_no_overlap(bad, data).unwrap_err();
            assert!(
                problem.detail.contains("overlaps with Gantry's own data folder")
                    && problem.detail.contains("/var/nowhere/gantry/nodes"),
                "{bad}"
            );
        }
        for good in ["/var/nowhere/gantry/nodes/web-9", "/var/nowhere/gantry-2", "/srv/nodes/web-1"]
        {
            assert_eq!(check_no_overlap(good, data), Ok(()), "{good}");
        }
        let folder = std::env::temp_dir().join(format!("gantry-roots-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("data")).unwrap();
        std::os::unix::fs::symlink(folder.join("data"), folder.join("link")).unwrap();
        let through = folder.join("link/postgres");
        let refused = check_no_overlap(through.to_str().unwrap(), &folder.join("data"));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(refused.is_err(), "links are followed");
    }
}
