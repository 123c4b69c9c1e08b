//! Reports from nodes, and the tokens that authenticate them.
//!
//! A token is random (256 bits), shown once, and stored as its SHA-256. Because it is stored on the
//! node, it permits only reports: start-up, shutdown, boot environment and facts of that node. A
//! token is neither a session nor a person. No other use case accepts it: [`NodeIdentity`] is a
//! separate type that only this module constructs. `store::nodes` defines the effect of a report; a
//! worker's health check overrides it.

use std::time::Duration;

use api::nodes::CreatedNodeToken;
use api::{Problem, limits};
use serde_json::{Value, json};
use store::nodes::{MAX_REPORTS, MAX_TOKENS, Report, ReportOutcome, Reporter};
use uuid::Uuid;

use crate::nodes::node::{NodeAtVersion, check_object, node_deployment, notify, require_version};
use crate::people::{Actor, ClientInfo, MAX_TOKEN_LENGTH, Permission, Token, hash_of};
use crate::problems::{from_store, no_node};
use crate::text::{self, at};
use crate::{Control, done};

const DAY: u64 = 24 * 3600;

/// An authenticated node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeIdentity(Reporter);

impl Control {
    /// Creates a token for a node's reports, valid for the given number of days.
    pub async fn create_node_token(
        &self,
        actor: &Actor,
        node: impl Into<NodeAtVersion>,
        name: String,
        days: u32,
    ) -> Result<CreatedNodeToken, Problem> {
        let NodeAtVersion { node, version } = node.into();
        actor.require_in_person()?;
        actor.require_any_somewhere(&[Permission::Operator, Permission::Admin])?;
        let name = text::plain(&name)?;
        if name.is_empty()
            || name.chars().count() > limits::NODE_TOKEN_NAME
            || name.contains(['\n', '\t'])
        {
            let max = limits::NODE_TOKEN_NAME;
            return Err(Problem::invalid(format!(
                "name: must be one line of 1 to {max} characters. Describe the purpose of the \
                 token."
            )));
        }
        if days == 0 || days > limits::NODE_TOKEN_DAYS {
            return Err(Problem::invalid(format!(
                "days: must be from 1 to {}.",
                limits::NODE_TOKEN_DAYS
            )));
        }
        let token = Token::random()?;
        let mut transaction = self.begin().await?;
        let actor = &actor.revalidate(&mut transaction).await?;
        let machine =
            store::nodes::lock_node_record(&mut transaction, node).await.map_err(from_store)?;
        let machine = machine.ok_or_else(no_node)?;
        let deployment = node_deployment(&mut transaction, node).await?;
        actor.require_any_in(&[Permission::Operator, Permission::Admin], deployment)?;
        require_version(version, machine.version, &machine.fqdn)?;
        let lifetime = Duration::from_secs(u64::from(days) * DAY);
        let inserted = store::nodes::insert_node_token(
            &mut transaction,
            node,
            &token.hash(),
            name,
            lifetime,
            actor.person,
        )
        .await
        .map_err(from_store)?;
        let Some((id, expires)) = inserted else {
            return Err(Problem::conflict(
                "too_many_tokens",
                format!(
                    "Node {} has {MAX_TOKENS} valid tokens, which is the maximum. Revoke one \
                     first.",
                    machine.fqdn
                ),
            ));
        };
        let detail = json!({"fqdn": machine.fqdn, "token": id, "name": name, "days": days});
        store::audit::append_audit(
            &mut transaction,
            Some(actor.person),
            "node.token",
            &node.to_string(),
            &detail,
        )
        .await
        .map_err(from_store)?;
        notify(&mut transaction, machine.fqdn).await?;
        done(transaction).await?;
        Ok(CreatedNodeToken { id, token: token.reveal().to_owned(), expires: at(expires) })
    }

    /// Revokes a node's token. The revocation takes effect on the next request.
    pub async fn revoke_node_token(
        &self,
        actor: &Actor,
        node: impl Into<NodeAtVersion>,
        token: Uuid,
    ) -> Result<(), Problem> {
        let NodeAtVersion { node, version } = node.into();
        actor.require_any_somewhere(&[Permission::Operator, Permission::Admin])?;
        let mut transaction = self.begin().await?;
        let actor = &actor.revalidate(&mut transaction).await?;
        let machine =
            store::nodes::lock_node_record(&mut transaction, node).await.map_err(from_store)?;
        let machine = machine.ok_or_else(no_node)?;
        let deployment = node_deployment(&mut transaction, node).await?;
        actor.require_any_in(&[Permission::Operator, Permission::Admin], deployment)?;
        require_version(version, machine.version, &machine.fqdn)?;
        let name = store::nodes::revoke_node_token(&mut transaction, node, token)
            .await
            .map_err(from_store)?;
        let name = name.ok_or_else(|| {
            Problem::not_found(format!(
                "Node {} has no such token, or the token is already revoked.",
                machine.fqdn
            ))
        })?;
        let detail = json!({"fqdn": machine.fqdn, "token": token, "name": name});
        store::audit::append_audit(
            &mut transaction,
            Some(actor.person),
            "node.token.revoke",
            &node.to_string(),
            &detail,
        )
        .await
        .map_err(from_store)?;
        notify(&mut transaction, machine.fqdn).await?;
        done(transaction).await
    }

    /// Authenticates a node by its token.
    ///
    /// # Errors
    /// 401 if the token is unknown, revoked or expired.
    pub async fn authenticate_node(
        &self,
        token: &str,
        visitor: &ClientInfo,
    ) -> Result<NodeIdentity, Problem> {
        let unknown = || {
            Problem::new(
                401,
                "no_node_token",
                "Invalid token",
                "Send a valid token of the node: Authorization: Bearer TOKEN. An operator can \
                 create one on the node's page.",
            )
        };
        if token.is_empty() || token.len() > MAX_TOKEN_LENGTH {
            return Err(unknown());
        }
        let mut connection = self.connection().await?;
        let row = store::nodes::authenticate_node(&mut connection, &hash_of(token))
            .await
            .map_err(from_store)?;
        let (node, token) = row.ok_or_else(unknown)?;
        let address = visitor.address.map(|address| address.to_string()).unwrap_or_default();
        Ok(NodeIdentity(Reporter { node, token, address }))
    }

    /// Reports that the node has started, with its boot id.
    pub async fn report_startup(
        &self,
        identity: &NodeIdentity,
        boot_id: String,
    ) -> Result<(), Problem> {
        self.append_report(identity, Report::Startup(printable_value("boot_id", &boot_id)?)).await
    }

    /// Reports that the node shuts down.
    pub async fn report_shutdown(&self, identity: &NodeIdentity) -> Result<(), Problem> {
        self.append_report(identity, Report::Shutdown).await
    }

    /// Reports the boot environment that the node started.
    pub async fn report_bootenv(
        &self,
        identity: &NodeIdentity,
        bootenv: String,
    ) -> Result<(), Problem> {
        self.append_report(identity, Report::Bootenv(printable_value("bootenv", &bootenv)?)).await
    }

    /// Replaces the facts that the node reported before.
    pub async fn report_facts(&self, identity: &NodeIdentity, facts: Value) -> Result<(), Problem> {
        self.append_report(
            identity,
            Report::Facts(check_object("facts", &facts, limits::FACTS)?.clone()),
        )
        .await
    }

    async fn append_report(
        &self,
        NodeIdentity(by): &NodeIdentity,
        report: Report,
    ) -> Result<(), Problem> {
        let mut transaction = self.begin().await?;
        match store::nodes::append_report(&mut transaction, by, &report)
            .await
            .map_err(from_store)?
        {
            ReportOutcome::Stored => done(transaction).await,
            ReportOutcome::NodeRemoved => Err(Problem::not_found(
                "The node of this token was removed. Add the node again and create a new token.",
            )),
            ReportOutcome::TooMany => Err(Problem::new(
                429,
                "too_many_reports",
                "Too many reports",
                format!(
                    "A node can send at most {MAX_REPORTS} reports per minute. Try again in a \
                     minute."
                ),
            )
            .again_after(Duration::from_secs(60))),
        }
    }
}

/// Validates a short value of printable ASCII characters.
fn printable_value(field: &str, text: &str) -> Result<String, Problem> {
    let text = text.trim();
    let plain = |c: char| c.is_ascii_graphic() || c == ' ';
    match !text.is_empty() && text.len() <= limits::BOOT_NAME && text.chars().all(plain) {
        true => Ok(text.to_owned()),
        false => Err(Problem::invalid(format!(
            "{field}: must be one line of 1 to {} printable ASCII characters.",
            limits::BOOT_NAME
        ))),
    }
}
