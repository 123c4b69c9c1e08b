//! Single open proposals: their scope, and the possible edits of a proposal on a node.

use crate::proposals::change::node_name;
use std::collections::{BTreeMap, BTreeSet};

use api::Problem;
use api::problem::{DEPLOYMENT_PROPOSAL, Finding};
use api::proposals::{ClashView, EditView, NotRestored, ProposalView, ScopeNode, ScopeView};
use api::views::node_proposal::{NodeChoice, NodeProposal, NodeRole, ProposedNoderole};
use engine::blueprint::projection::StepChange;
use engine::catalog::{JigClass, visible_barclamps};
use engine::cluster::NoderoleKey;
use engine::data::{OwnData, layers, mask};
use engine::ids::{
    ActionName, DeploymentId, DeploymentName, NodeId, NoderoleId, ProposalId, RoleName, StepId,
};
use engine::plan::clash::{AuthoredEdit, PriorState};
use engine::plan::{Clash, SideEffects, clashes};
use serde_json::{Value, json};
use sqlx::PgConnection;
use store::proposals::{EditRow, NotRestoredRow, ProposalRow};

use crate::Control;
use crate::catalog::roles::attribs;
use crate::current::CurrentState;
use crate::people::{Actor, Permission};
use crate::problems::{from_store, no_proposal};
use crate::proposals::change::{
    Planned, author_of, counting, has_other_authors, makes_author, place_of, plan_on_pool,
};
use crate::proposals::edit_text::Names;
use crate::text::at;

impl Control {
    /// An open proposal, on a deployment or on a node.
    pub async fn proposal(
        &self,
        actor: &Actor,
        id: ProposalId,
    ) -> Result<(ScopeView, ProposalView), Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.current_state().await?;
        let mut connection = self.connection().await?;
        let (row, edits) = opened(&mut connection, id).await?;
        drop(connection);
        let planned = plan_on_pool(&self.compute_for(actor), &present, counting(&edits)).await?;
        let mut connection = self.connection().await?;
        Ok((
            scope_view(&present, &row)?,
            self.load_proposal_view(actor, &mut connection, &present, &row, &edits, &planned)
                .await?,
        ))
    }

    /// An open proposal on a node.
    pub async fn node_proposal(
        &self,
        actor: &Actor,
        id: ProposalId,
    ) -> Result<NodeProposal, Problem> {
        actor.require(Permission::Viewer)?;
        // Read the cursor first, so the live stream reports all later events.
        let cursor = self.current_cursor().await?;
        let present = self.current_state().await?;
        let mut connection = self.connection().await?;
        let (row, edits) = opened(&mut connection, id).await?;
        let Some(node) = row.node else {
            let name = present.name_of(row.deployment);
            let mut problem = Problem::conflict(
                DEPLOYMENT_PROPOSAL,
                format!(
                    "Proposal {id} belongs to deployment {name}. Open the board of that deployment."
                ),
            );
            problem.errors = vec![Finding { at: "deployment".into(), detail: name }];
            return Err(problem);
        };
        drop(connection);
        let planned = plan_on_pool(&self.compute_for(actor), &present, counting(&edits)).await?;
        let mut connection = self.connection().await?;
        Ok(NodeProposal {
            scope: scope_view(&present, &row)?,
            proposal: self
                .load_proposal_view(actor, &mut connection, &present, &row, &edits, &planned)
                .await?,
            noderoles: node_roles(&present, node, &planned)?,
            choices: choices(&present, node, &planned)?,
            may_edit: actor
                .require_in(Permission::Operator, place_of(&present, &row))
                .map_err(|problem| problem.detail)
                .into(),
            cursor,
        })
    }

    /// A noderole with the edits of an open proposal applied.
    pub async fn proposed_noderole(
        &self,
        actor: &Actor,
        proposal: ProposalId,
        node: NodeId,
        noderole: &NoderoleKey,
    ) -> Result<ProposedNoderole, Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.current_state().await?;
        let mut connection = self.connection().await?;
        let (row, edits) = opened(&mut connection, proposal).await?;
        drop(connection);
        let effects =
            plan_on_pool(&self.compute_for(actor), &present, counting(&edits)).await?.effects;
        let bound =
            effects.bound.iter().find(|bound| bound.node == node && bound.noderole == *noderole);
        let known = present.blueprint.noderole(node, noderole).map(|(_, known)| known);
        let new = bound.map(|bound| (bound.role, bound.deployment));
        let (content, deployment) =
            new.or(known.map(|known| (known.role, known.deployment))).ok_or_else(|| {
                Problem::not_found(format!(
                    "Node {} no longer has the noderole {noderole}.",
                    node_name(&present, node)
                ))
            })?;
        let role = present.catalog.role(content).map_err(|error| {
            tracing::error!(%error, "a pinned role is not in the catalog");
            Problem::internal()
        })?;
        let set =
            effects.noderole_data.iter().find(|set| set.node == node && set.noderole == *noderole);
        let data = set
            .map(|set| &set.data)
            .or(known.map(|known| &known.data))
            .cloned()
            .unwrap_or_else(|| json!({}));
        let data_by = set.and_then(|set| author_of(&edits, set.cause.edit()));
        let set = effects
            .role_data
            .iter()
            .rfind(|set| set.deployment == deployment && set.role == noderole.role);
        let of_role = present
            .blueprint
            .deployments
            .get(&deployment)
            .and_then(|d| d.doc.roles.get(&noderole.role));
        let of_role =
            set.map(|set| &set.data).or(of_role.map(|role| &role.data)).unwrap_or(&Value::Null);
        let below = OwnData { template: &role.template, deployment_role: of_role, ..OwnData::NONE };
        let below = layers(StepId::run_of(noderole.id(node)), below, None);
        Ok(ProposedNoderole {
            version: row.version,
            data,
            data_by,
            defaults: below.map(|layered| mask(&layered.value)).unwrap_or_else(|_| json!({})),
            attribs: attribs(role),
            proposed: bound.is_some(),
            rerun: effects
                .reruns
                .iter()
                .any(|rerun| rerun.node == node && rerun.noderole == *noderole),
        })
    }

    async fn load_proposal_view(
        &self,
        actor: &Actor,
        on: &mut PgConnection,
        present: &CurrentState,
        row: &ProposalRow,
        edits: &[EditRow],
        planned: &Planned,
    ) -> Result<ProposalView, Problem> {
        let names = Names::of(present, edits.iter().map(|e| &e.edit.edit)).at(row.deployment);
        let review =
            store::reviews::review_of_version(on, row.id, row.version).await.map_err(from_store)?;
        let sent_back = self.sent_back(on, row.id, row.version).await?;
        let not_restored = not_restored(on, row.id).await?;
        Ok(ProposalView {
            review,
            sent_back,
            not_restored,
            ..proposal_view(actor, present, &names, row, edits, planned)
        })
    }
}

async fn opened(
    on: &mut PgConnection,
    id: ProposalId,
) -> Result<(ProposalRow, Vec<EditRow>), Problem> {
    let row = store::proposals::proposal(on, id).await.map_err(from_store)?;
    let row = row.ok_or_else(|| no_proposal(id))?;
    if row.state != "open" {
        return Err(Problem::conflict(
            "closed",
            format!("Proposal {id} is {}. Open a new proposal.", row.state),
        ));
    }
    let edits = store::proposals::edits(on, id).await.map_err(from_store)?;
    Ok((row, edits))
}

fn named(present: &CurrentState, id: DeploymentId) -> Result<DeploymentName, Problem> {
    present.skeleton.deployments.get(&id).map(|d| d.name.clone()).ok_or_else(Problem::internal)
}

/// The deployment and node of a proposal. For a proposal on a node it is the node's current
/// deployment, because that defines the roles it may bind. The original deployment may have been
/// removed since; then its last name is shown.
pub(crate) fn scope_view(present: &CurrentState, row: &ProposalRow) -> Result<ScopeView, Problem> {
    let found = row.node.and_then(|id| present.skeleton.nodes.get(&id));
    let deployment_id = found.map_or(row.deployment, |node| node.deployment);
    let deployment = match present.skeleton.deployments.get(&deployment_id) {
        Some(known) => known.name.clone(),
        None => DeploymentName::parse(&row.deployment_name).map_err(|_| Problem::internal())?,
    };
    let fqdn = |id: NodeId| found.map_or_else(|| id.to_string(), |node| node.fqdn.to_string());
    let node = row.node.map(|id| ScopeNode { id, fqdn: fqdn(id) });
    Ok(ScopeView { deployment, deployment_id, node })
}

fn node_roles(
    present: &CurrentState,
    node: NodeId,
    planned: &Planned,
) -> Result<Vec<NodeRole>, Problem> {
    let Some(found) = present.skeleton.nodes.get(&node) else { return Ok(Vec::new()) };
    let goes: BTreeSet<NoderoleId> = planned.projection.removed.iter().copied().collect();
    let mut all = Vec::new();
    for (key, noderole) in found.noderoles.iter().filter(|(key, _)| !goes.contains(&key.id(node))) {
        let deployment = named(present, noderole.deployment)?;
        all.push(NodeRole {
            noderole: key.clone(),
            deployment,
            proposed: false,
            runs_remove: runs_remove(present, node, key),
        });
    }
    for bound in planned.effects.bound.iter().filter(|bound| bound.node == node) {
        let deployment = named(present, bound.deployment)?;
        all.push(NodeRole {
            noderole: bound.noderole.clone(),
            deployment,
            proposed: true,
            runs_remove: false,
        });
    }
    Ok(all)
}

/// Roles that can be bound to the node by hand: visible in its deployment or an ancestor, and not
/// bound yet. Services are excluded, because they run on phantom nodes.
fn choices(
    present: &CurrentState,
    node: NodeId,
    planned: &Planned,
) -> Result<Vec<NodeChoice>, Problem> {
    let Some(found) = present.skeleton.nodes.get(&node) else { return Ok(Vec::new()) };
    let carried: BTreeSet<NoderoleKey> =
        node_roles(present, node, planned)?.into_iter().map(|r| r.noderole).collect();
    let chain = present.skeleton.chain(found.deployment);
    let mut choices = Vec::new();
    for (depth, id) in chain.iter().enumerate() {
        let mut roles: BTreeSet<RoleName> = BTreeSet::new();
        let visible =
            chain.iter().skip(depth).filter_map(|id| present.skeleton.deployments.get(id));
        for pin in visible_barclamps(visible.map(|deployment| &deployment.barclamps)) {
            let Ok(barclamp) = present.catalog.barclamp(pin.version) else { continue };
            let bindable = |content| {
                present.catalog.role(content).is_ok_and(|role| {
                    let needs_other_node = role.flags.is_abstract || role.flags.service;
                    !needs_other_node && !matches!(role.jig_class, JigClass::Other(_))
                })
            };
            roles.extend(
                barclamp
                    .roles
                    .iter()
                    .filter(|(_, content)| bindable(**content))
                    .map(|(name, _)| name.clone()),
            );
        }
        let name = named(present, *id)?;
        let unbound =
            roles.into_iter().filter(|role| !carried.contains(&NoderoleKey::first(role.clone())));
        choices.extend(unbound.map(|role| NodeChoice {
            deployment: *id,
            name: name.clone(),
            role,
        }));
    }
    Ok(choices)
}

/// An open proposal, as this person sees it. The caller fills in `review`, `sent_back` and
/// `not_restored`.
pub(crate) fn proposal_view(
    actor: &Actor,
    present: &CurrentState,
    names: &Names<'_>,
    open: &ProposalRow,
    rows: &[EditRow],
    planned: &Planned,
) -> ProposalView {
    let text = |row: &EditRow| names.edit(&row.edit.edit);
    let last = rows.iter().rev().find(|r| !r.undone);
    let first_undone =
        rows.iter().find(|r| r.undone && !r.dropped && r.edit.seq > last.map_or(0, |l| l.edit.seq));
    let request_text = |of: &EditRow| {
        let edits =
            rows.iter().filter(|row| row.request_seq == of.request_seq && row.undone == of.undone);
        names.request_text(&edits.map(|row| &row.edit.edit).collect::<Vec<_>>())
    };
    let names_of_authors =
        rows.iter().flat_map(|r| r.toggled_by_names.iter().chain([&r.actor_name]));
    let authors: BTreeSet<&str> = names_of_authors.map(String::as_str).collect();
    let reruns = planned
        .projection
        .steps
        .iter()
        .filter(|s| matches!(s.change, StepChange::Rerun(_)))
        .count();
    let view = |row: &EditRow| EditView {
        seq: row.edit.seq,
        text: text(row),
        actor: row.actor_name.clone(),
        at: at(row.at),
        undone: row.undone,
        touched_by: row.toggled_by_names.clone(),
    };
    ProposalView {
        id: open.id,
        version: open.version,
        title: open.title.clone(),
        authors: authors.into_iter().map(str::to_owned).collect(),
        makes_author: makes_author(actor, rows),
        has_other_authors: has_other_authors(actor, open, rows),
        edits: rows.iter().map(view).collect(),
        undo: last.map(request_text),
        redo: first_undone.map(request_text),
        added: planned.effects.bound.len(),
        removed: planned.projection.removed.len(),
        reruns,
        refused: planned.effects.refused.clone(),
        clashes: clash_views(present, names, rows, planned),
        review: None,
        sent_back: None,
        not_restored: None,
    }
}

/// The current desired state and the side effects of edits, for the description of conflicting
/// edits.
struct ProposalContext<'a>(&'a CurrentState, &'a Planned);

impl PriorState for ProposalContext<'_> {
    fn side_effects(&self, edit: u32) -> Option<&SideEffects> {
        self.1.side_effects.get(&edit)
    }

    fn role_data(&self, deployment: DeploymentId, role: &RoleName) -> Option<Value> {
        Some(self.0.blueprint.deployments.get(&deployment)?.doc.roles.get(role)?.data.clone())
    }

    fn noderole_data(&self, node: NodeId, noderole: &NoderoleKey) -> Option<Value> {
        Some(self.0.blueprint.noderole(node, noderole)?.1.data.clone())
    }
}

pub(crate) fn clash_views(
    present: &CurrentState,
    names: &Names<'_>,
    rows: &[EditRow],
    planned: &Planned,
) -> Vec<ClashView> {
    let counting = rows.iter().filter(|row| !row.undone);
    let authored: Vec<AuthoredEdit<'_>> =
        counting.map(|row| AuthoredEdit { edit: &row.edit, by: row.actor }).collect();
    let people: BTreeMap<u32, &str> =
        rows.iter().map(|row| (row.edit.seq, row.actor_name.as_str())).collect();
    let by = |seq: u32| people.get(&seq).copied().unwrap_or_default().to_owned();
    let view = |clash: Clash| ClashView {
        earlier: clash.earlier,
        earlier_by: by(clash.earlier),
        later: clash.later,
        later_by: by(clash.later),
        subject: clash.setting.text(names),
        setting: json!(clash.setting),
    };
    clashes(&authored, &ProposalContext(present, planned)).into_iter().map(view).collect()
}

/// The parts of the restored state that a proposal leaves out, if any.
pub(crate) async fn not_restored(
    on: &mut PgConnection,
    proposal: ProposalId,
) -> Result<Option<NotRestored>, Problem> {
    let found = store::proposals::not_restored(on, proposal).await.map_err(from_store)?;
    Ok(found.map(|NotRestoredRow { target, missing, more }| NotRestored {
        blueprint: target,
        missing,
        more,
    }))
}

/// Whether the removal of a noderole runs `remove`. False for a noderole that only a draft has.
pub(crate) fn runs_remove(present: &CurrentState, node: NodeId, key: &NoderoleKey) -> bool {
    let found = present.skeleton.nodes.get(&node).and_then(|node| node.noderoles.get(key));
    let role = found.and_then(|noderole| present.catalog.role(noderole.role).ok());
    role.is_some_and(|role| role.has(&ActionName::remove()))
}
