//! The deployment board: the noderoles of a deployment, and the changes of the open proposal.
//!
//! The board combines the skeleton of the desired state, the effects of the open proposal and the
//! step states. It makes no decisions itself: the planner computes the effect of each drop.

mod role_noderoles;

use std::collections::{BTreeMap, BTreeSet};

use api::Problem;
use api::proposals::ProposalView;
use api::runs::{StateCounts, StepState};
use api::views::board::{
    Board, BoardGroup, BoardNoderole, BoardQuery, BoardRole, DestinationChoice, HoldView, JigView,
    MAX_NODEROLES_PER_CELL, RoleChoice, TrayNode,
};
use engine::Hash;
use engine::blueprint::projection::StepChange;
use engine::catalog::{ConcurrencyGroupMode, JigClass, Role, visible_barclamps};
use engine::cluster::NoderoleKey;
use engine::ids::{
    BarclampName, DeploymentId, DeploymentName, JigName, NodeId, NoderoleId, RoleName,
};
use engine::plan::Effects;
use engine::plan::drop_preview::required_reasons_of;
use engine::plan::effects::Bound;
use serde_json::{Value, json};
use sqlx::PgConnection;
use store::proposals::EditRow;

use crate::Control;
use crate::catalog::barclamps;
use crate::catalog::roles::attribs;
use crate::current::CurrentState;
use crate::people::{Actor, Permission};
use crate::problems::from_store;
use crate::proposals::change::{Planned, author_of, counting, plan_on_pool};
use crate::proposals::edit_text::Names;
use crate::proposals::proposal::{not_restored, proposal_view, runs_remove};
use crate::runs::step_counts;

/// Nodes that the tray lists; further nodes are only counted.
const MAX_TRAY_NODES: usize = 1_000;

/// Maximum length of an error on a chip, in characters.
const MAX_ERROR_LENGTH: usize = 200;

/// The input of a board.
struct BoardInput<'a> {
    present: &'a CurrentState,
    deployment: DeploymentId,
    planned: Option<&'a Planned>,
    alive: BTreeMap<NodeId, bool>,
    names: Names<'a>,
    drawn: PlanIndex<'a>,
    unfinished: Unfinished,
    edits: &'a [EditRow],
}

/// The maximum number of noderoles that are read to find those that are stale, unchecked or not
/// ACTIVE.
const MAX_UNFINISHED: i64 = 10_000;

/// Noderoles that are stale, unchecked or not ACTIVE, as far as the board needs them.
#[derive(Debug, Default)]
struct Unfinished {
    /// Failed noderoles. They come first in their cells.
    failed: BTreeSet<NoderoleId>,
    /// The noderoles that the board is limited to. `None`: all.
    only: Option<BTreeSet<NoderoleId>>,
}

impl Unfinished {
    async fn load(
        on: &mut PgConnection,
        deployment: DeploymentId,
        query: BoardQuery,
    ) -> Result<Self, Problem> {
        let found = match query.not_active {
            true => store::deployments::unfinished_noderoles(on, deployment, MAX_UNFINISHED).await,
            false => store::deployments::failed_noderoles(on, deployment, MAX_UNFINISHED).await,
        };
        let found = found.map_err(from_store)?;
        let failed = found.iter().filter(|(_, state)| state == "error").map(|(id, _)| *id);
        Ok(Self {
            failed: failed.collect(),
            only: query.not_active.then(|| found.iter().map(|(id, _)| *id).collect()),
        })
    }
}

/// A plan, indexed by noderole. A board has many rows and a plan many steps, so the plan is
/// searched only once.
#[derive(Default)]
struct PlanIndex<'a> {
    /// New noderoles, by deployment and role.
    bound: BTreeMap<(DeploymentId, &'a RoleName), Vec<&'a Bound>>,
    /// The role that requires each implicitly added noderole.
    brought: BTreeMap<NoderoleId, String>,
    /// Existing noderoles that the plan changes.
    touched: BTreeSet<NoderoleId>,
    /// Noderoles that the plan removes.
    going: BTreeSet<NoderoleId>,
    /// Those of them whose `remove` runs.
    undone: BTreeSet<NoderoleId>,
}

impl<'a> PlanIndex<'a> {
    fn of(planned: &'a Planned) -> Self {
        let mut bound: BTreeMap<_, Vec<&Bound>> = BTreeMap::new();
        for new in &planned.effects.bound {
            bound.entry((new.deployment, &new.noderole.role)).or_default().push(new);
        }
        let touched = planned.projection.steps.iter().filter(|step| step.change != StepChange::New);
        Self {
            bound,
            brought: required_reasons_of(&planned.effects),
            touched: touched.map(|step| step.noderole).collect(),
            going: planned.projection.removed.iter().copied().collect(),
            undone: planned.projection.removals.iter().map(|step| step.noderole).collect(),
        }
    }
}

/// A noderole on the board.
struct PlacedNoderole {
    node: NodeId,
    fqdn: String,
    key: NoderoleKey,
    proposed: Option<Option<String>>,
}

impl PlacedNoderole {
    fn id(&self) -> NoderoleId {
        self.key.id(self.node)
    }
}

impl Control {
    /// The board of a deployment, by the deployment's name.
    pub async fn board(
        &self,
        actor: &Actor,
        deployment: &str,
        query: BoardQuery,
    ) -> Result<Board, Problem> {
        actor.require(Permission::Viewer)?;
        // Read the cursor first, so the live stream reports all later events.
        let cursor = self.current_cursor().await?;
        let present = self.current_state().await?;
        let mut connection = self.connection().await?;
        let id = present.named(deployment)?;
        let open = match query.target {
            true => None,
            false => {
                store::proposals::open_proposal(&mut connection, id).await.map_err(from_store)?
            }
        };
        let rows = match &open {
            Some(open) => {
                store::proposals::edits(&mut connection, open.id).await.map_err(from_store)?
            }
            None => Vec::new(),
        };
        let review = match &open {
            Some(open) => store::reviews::review_of_version(&mut connection, open.id, open.version)
                .await
                .map_err(from_store)?,
            None => None,
        };
        let sent_back = match &open {
            Some(open) => self.sent_back(&mut connection, open.id, open.version).await?,
            None => None,
        };
        let not_restored = match &open {
            Some(open) => not_restored(&mut connection, open.id).await?,
            None => None,
        };
        drop(connection);
        let planned = match &open {
            Some(_) => {
                Some(plan_on_pool(&self.compute_for(actor), &present, counting(&rows)).await?)
            }
            None => None,
        };
        let mut connection = self.connection().await?;
        let alive = store::nodes::node_liveness(&mut connection).await.map_err(from_store)?;
        let names = Names::of(&present, rows.iter().map(|e| &e.edit.edit)).at(id);
        let unfinished = Unfinished::load(&mut connection, id, query).await?;
        let input = BoardInput {
            unfinished,
            edits: &rows,
            ..BoardInput::of(&present, id, planned.as_ref(), alive, names)
        };
        let mut groups = input.groups()?;
        let chips = groups
            .iter_mut()
            .flat_map(|group| &mut group.roles)
            .flat_map(|role| &mut role.noderoles);
        load_states(&mut connection, chips.collect()).await?;
        let beyond = count_omitted(&mut connection, &present, id, &mut groups).await?;
        let row = present.row(id).ok_or_else(Problem::internal)?;
        let found = present.skeleton.deployments.get(&id).ok_or_else(Problem::internal)?;
        let (tray, tray_more) = input.tray()?;
        let above = present
            .skeleton
            .chain(id)
            .into_iter()
            .skip(1)
            .filter_map(|d| present.skeleton.deployments.get(&d));
        let above: Vec<DeploymentName> = above.map(|d| d.name.clone()).collect();
        let proposal = open.as_ref().zip(planned.as_ref()).map(|(open, planned)| ProposalView {
            review,
            sent_back,
            not_restored,
            ..proposal_view(actor, &present, &input.names, open, &rows, planned)
        });
        Ok(Board {
            id,
            name: found.name.clone(),
            ancestors: above.into_iter().rev().collect(),
            system: found.parent.is_none(),
            on_hold_by: row.hold.as_ref().map(|(by, _)| by.clone()),
            hold: nearest_hold(&present, id)?,
            priority: row.priority,
            blueprint: row.head_no,
            proposal,
            groups,
            omitted: beyond,
            tray,
            tray_more,
            choices: input.choices()?,
            versions: match &planned {
                Some(planned) => barclamps::choices(&present, id, Some(&planned.effects))?,
                None => Vec::new(),
            },
            own_versions: match input.planned {
                Some(planned) => barclamps::own_versions(&present, id, &planned.effects)?,
                None => Vec::new(),
            },
            destinations: input.places()?,
            jigs: match &planned {
                Some(planned) => jigs(&present, Some(&planned.effects))?,
                None => Vec::new(),
            },
            policy: match &planned {
                Some(Planned { effects: Effects { policy: Some(set), .. }, .. }) => {
                    Some(set.policy.clone())
                }
                Some(_) => Some(self.policy(&mut connection, &present).await?),
                None => None,
            },
            may_propose: actor
                .require_in(Permission::Operator, id)
                .map_err(|problem| problem.detail)
                .into(),
            cursor,
        })
    }

    /// All jigs of the barclamps in use.
    pub async fn jigs(&self, actor: &Actor) -> Result<Vec<JigView>, Problem> {
        actor.require(Permission::Viewer)?;
        jigs(&self.current_state().await?, None)
    }
}

/// Sets the step states of chips. A deployment can have very many steps, so the query selects the
/// steps of the shown chips by id. A noderole without a step does not run and stays `Blocked`.
async fn load_states(
    on: &mut PgConnection,
    mut chips: Vec<&mut BoardNoderole>,
) -> Result<(), Problem> {
    chips.retain(|chip| chip.state != StepState::Proposed);
    let ids: Vec<NoderoleId> = chips.iter().map(|chip| chip.noderole).collect();
    let steps = store::deployments::steps_by_noderole(on, &ids).await.map_err(from_store)?;
    let steps: BTreeMap<NoderoleId, _> =
        steps.into_iter().map(|row| (NoderoleId(row.noderole_id), row)).collect();
    for chip in chips {
        let Some(step) = steps.get(&chip.noderole) else { continue };
        chip.state = StepState::from_name(&step.state).unwrap_or(StepState::Blocked);
        (chip.stale, chip.unchecked) = (step.stale, step.unchecked);
        chip.error =
            step.error.as_deref().map(|error| error.chars().take(MAX_ERROR_LENGTH).collect());
    }
    Ok(())
}

/// Counts, by role and state, the steps that have no chip. Returns those of the deployment's own
/// noderoles together. The query counts the hidden steps directly instead of subtracting the chips
/// from a total. So no step counts twice if it changes between two queries.
async fn count_omitted(
    on: &mut PgConnection,
    present: &CurrentState,
    id: DeploymentId,
    groups: &mut [BoardGroup],
) -> Result<StateCounts, Problem> {
    let shown: Vec<NoderoleId> = groups
        .iter()
        .flat_map(|group| &group.roles)
        .flat_map(|role| &role.noderoles)
        .map(|chip| chip.noderole)
        .collect();
    let rows = store::runs::role_step_counts_except(on, id, &shown).await.map_err(from_store)?;
    let mut own = StateCounts::default();
    for row in rows {
        let (of, counts) = (DeploymentId(row.deployment), step_counts(row.steps));
        if of == id {
            own = add_counts(own, counts);
        }
        let of = present.skeleton.deployments.get(&of).map(|found| &found.name);
        let is_of = |group: &&mut BoardGroup| match &group.of_ancestor {
            Some(ancestor) => Some(ancestor) == of && row.deployment != id.0,
            None => row.deployment == id.0,
        };
        let mut roles = groups.iter_mut().filter(is_of).flat_map(|group| &mut group.roles);
        if let Some(role) = roles.find(|role| role.role.as_str() == row.role) {
            role.omitted = counts;
        }
    }
    // The listed noderoles have a state, but no mark for stale and unchecked.
    let whole = store::runs::deployment_step_counts(on, id).await.map_err(from_store)?;
    let StateCounts { stale, unchecked, .. } = step_counts(whole);
    Ok(StateCounts { stale, unchecked, ..own })
}

fn add_counts(a: StateCounts, b: StateCounts) -> StateCounts {
    StateCounts {
        blocked: a.blocked + b.blocked,
        todo: a.todo + b.todo,
        transition: a.transition + b.transition,
        active: a.active + b.active,
        error: a.error + b.error,
        stale: a.stale + b.stale,
        unchecked: a.unchecked + b.unchecked,
    }
}

/// The nearest hold: the deployment's own, or that of the nearest ancestor.
fn nearest_hold(present: &CurrentState, id: DeploymentId) -> Result<Option<HoldView>, Problem> {
    let rows = present.skeleton.chain(id).into_iter().filter_map(|id| present.row(id));
    let Some((row, (by, reason))) = rows.filter_map(|row| Some((row, row.hold.clone()?))).next()
    else {
        return Ok(None);
    };
    let deployment = DeploymentName::parse(&row.name).map_err(|_| Problem::internal())?;
    Ok(Some(HoldView { deployment, by, reason }))
}

impl<'a> BoardInput<'a> {
    fn of(
        present: &'a CurrentState,
        deployment: DeploymentId,
        planned: Option<&'a Planned>,
        alive: impl IntoIterator<Item = (NodeId, bool)>,
        names: Names<'a>,
    ) -> Self {
        let drawn = planned.map(PlanIndex::of).unwrap_or_default();
        Self {
            present,
            deployment,
            planned,
            alive: alive.into_iter().collect(),
            names,
            drawn,
            unfinished: Unfinished::default(),
            edits: &[],
        }
    }

    fn role(&self, content: Hash) -> Result<&Role, Problem> {
        role_content(self.present, content)
    }

    /// Roles that can be bound in this deployment, with their content; `true` if the draft adds the
    /// role. Roles that the draft removes stay in the list until the commit.
    fn roles(&self) -> BTreeMap<RoleName, (Hash, bool)> {
        let known = self.present.skeleton.deployments.get(&self.deployment);
        let known = known
            .into_iter()
            .flat_map(|d| d.roles.iter().map(|(name, hash)| (name.clone(), (*hash, false))));
        let new = self.planned.into_iter().flat_map(|p| &p.effects.roles);
        let new = new
            .filter(|r| r.deployment == self.deployment)
            .map(|r| (r.role.clone(), (r.content, true)));
        known.chain(new).collect()
    }

    fn groups(&self) -> Result<Vec<BoardGroup>, Problem> {
        let mut own: BTreeMap<BarclampName, Vec<BoardRole>> = BTreeMap::new();
        for (name, (content, proposed)) in self.roles() {
            let role = self.role(content)?;
            let chips = self.first_noderoles(
                self.placed_noderoles(self.deployment, &name, false),
                MAX_NODEROLES_PER_CELL,
            );
            let (data, data_by) = self.role_data(&name);
            let row = BoardRole { data_by, ..self.row(role, proposed, true, data, chips) };
            own.entry(role.barclamp.clone()).or_default().push(row);
        }
        let mut groups: Vec<BoardGroup> = own
            .into_iter()
            .map(|(barclamp, mut roles)| {
                order(&mut roles);
                BoardGroup { barclamp, of_ancestor: None, roles }
            })
            .collect();
        for ancestor in self.present.skeleton.chain(self.deployment).into_iter().skip(1) {
            groups.extend(self.ancestors(ancestor)?);
        }
        Ok(groups)
    }

    /// Noderoles that belong to an ancestor and are on nodes of this deployment.
    fn ancestors(&self, ancestor: DeploymentId) -> Result<Vec<BoardGroup>, Problem> {
        let Some(found) = self.present.skeleton.deployments.get(&ancestor) else {
            return Ok(Vec::new());
        };
        let mut groups: BTreeMap<BarclampName, Vec<BoardRole>> = BTreeMap::new();
        for (name, content) in &found.roles {
            let shown = self.placed_noderoles(ancestor, name, true);
            if shown.is_empty() {
                continue;
            }
            let role = self.role(*content)?;
            let row = self.row(
                role,
                false,
                false,
                json!({}),
                self.first_noderoles(shown, MAX_NODEROLES_PER_CELL),
            );
            groups.entry(role.barclamp.clone()).or_default().push(row);
        }
        let group = |(barclamp, mut roles): (BarclampName, Vec<BoardRole>)| {
            order(&mut roles);
            BoardGroup { barclamp, of_ancestor: Some(found.name.clone()), roles }
        };
        Ok(groups.into_iter().map(group).collect())
    }

    /// Noderoles of a role, the draft's included: those that failed first, then in the order of
    /// their nodes' names.
    fn placed_noderoles(
        &self,
        deployment: DeploymentId,
        role: &RoleName,
        only_own_nodes: bool,
    ) -> Vec<PlacedNoderole> {
        let skeleton = &self.present.skeleton;
        let is_here = |node: NodeId| {
            !only_own_nodes
                || skeleton.nodes.get(&node).is_some_and(|n| n.deployment == self.deployment)
        };
        let known = skeleton
            .candidates(deployment, role)
            .filter(|a| a.key.role == *role && is_here(a.node));
        let known = known.map(|a| PlacedNoderole {
            node: a.node,
            fqdn: a.fqdn.to_string(),
            key: a.key.clone(),
            proposed: None,
        });
        let new = self.drawn.bound.get(&(deployment, role)).into_iter().flatten();
        let new = new.filter(|b| is_here(b.node)).map(|b| PlacedNoderole {
            node: b.node,
            fqdn: skeleton.nodes.get(&b.node).map(|n| n.fqdn.to_string()).unwrap_or_default(),
            key: b.noderole.clone(),
            proposed: Some(self.drawn.brought.get(&b.id).cloned()),
        });
        let mut all: Vec<PlacedNoderole> = known.chain(new).collect();
        if let Some(only) = &self.unfinished.only {
            // Additions of the draft are not ACTIVE either.
            all.retain(|noderole| noderole.proposed.is_some() || only.contains(&noderole.id()));
        }
        let is_fine = |noderole: &PlacedNoderole| !self.unfinished.failed.contains(&noderole.id());
        all.sort_by(|a, b| (is_fine(a), &a.fqdn, &a.key).cmp(&(is_fine(b), &b.fqdn, &b.key)));
        all
    }

    /// Chips for the noderoles that fit into `limit`, and the number of remaining noderoles. Once
    /// the shown chips are known, [`load_states`] sets their step states.
    fn first_noderoles(
        &self,
        shown: Vec<PlacedNoderole>,
        limit: usize,
    ) -> (Vec<BoardNoderole>, usize) {
        let more = shown.len().saturating_sub(limit);
        let chip = |shown: PlacedNoderole| {
            let id = shown.key.id(shown.node);
            let removed = self.drawn.going.contains(&id);
            let short = self.names.node(shown.node);
            let machine =
                self.present.skeleton.nodes.get(&shown.node).is_some_and(|node| !node.phantom);
            BoardNoderole {
                noderole: id,
                node: shown.node,
                fqdn: if machine { shown.fqdn } else { short.clone() },
                short,
                state: if shown.proposed.is_some() {
                    StepState::Proposed
                } else {
                    StepState::Blocked
                },
                required_by: shown.proposed.flatten(),
                changed: self.drawn.touched.contains(&id),
                removed,
                // Nothing runs on an expunged node, not even the `remove` of a role that has it.
                runs_remove: match removed {
                    true => self.drawn.undone.contains(&id),
                    false => runs_remove(self.present, shown.node, &shown.key),
                },
                stale: false,
                unchecked: false,
                alive: self.alive.get(&shown.node).copied().unwrap_or(false),
                error: None,
            }
        };
        (shown.into_iter().take(limit).map(chip).collect(), more)
    }

    /// The data of a role, and the author of the edit in the draft that sets it.
    fn role_data(&self, role: &RoleName) -> (Value, Option<String>) {
        let mut drafts = self.planned.into_iter().flat_map(|p| &p.effects.role_data);
        let draft = drafts.rfind(|d| d.deployment == self.deployment && d.role == *role);
        let by = draft.and_then(|draft| author_of(self.edits, draft.cause.edit()));
        let known = self
            .present
            .blueprint
            .deployments
            .get(&self.deployment)
            .and_then(|d| d.doc.roles.get(role));
        let data = draft.map(|d| &d.data).or(known.map(|k| &k.data)).cloned();
        (data.unwrap_or_else(|| json!({})), by)
    }

    fn row(
        &self,
        role: &Role,
        proposed: bool,
        own: bool,
        data: Value,
        (chips, more): (Vec<BoardNoderole>, usize),
    ) -> BoardRole {
        BoardRole {
            role: role.name.clone(),
            description: role.description.clone(),
            traits: traits(role),
            bindable: own
                && !role.flags.is_abstract
                && !matches!(role.jig_class, JigClass::Other(_)),
            proposed,
            data,
            data_by: None,
            defaults: engine::data::mask(&role.template),
            attribs: attribs(role),
            noderoles: chips,
            more,
            omitted: StateCounts::default(),
        }
    }

    /// The nodes that the tray lists, and the number of further nodes.
    fn tray(&self) -> Result<(Vec<TrayNode>, usize), Problem> {
        let mut tray = self.tray_nodes()?;
        // If the tray is too small, nodes without noderoles take precedence: most people look for
        // these.
        tray.sort_by(|a, b| (a.noderoles > 0, &a.fqdn).cmp(&(b.noderoles > 0, &b.fqdn)));
        let more = tray.len().saturating_sub(MAX_TRAY_NODES);
        tray.truncate(MAX_TRAY_NODES);
        // The tray is sorted by name only, so that binding a node does not move it.
        tray.sort_by(|a, b| a.fqdn.cmp(&b.fqdn));
        Ok((tray, more))
    }

    /// Nodes that can be bound in this deployment: its own nodes and those of its ancestors, with
    /// the draft's moves applied.
    fn tray_nodes(&self) -> Result<Vec<TrayNode>, Problem> {
        let chain = self.present.skeleton.chain(self.deployment);
        let moved: BTreeMap<NodeId, DeploymentId> = self
            .planned
            .into_iter()
            .flat_map(|p| &p.effects.moved)
            .map(|m| (m.node, m.to))
            .collect();
        let mut added_counts: BTreeMap<NodeId, usize> = BTreeMap::new();
        for bound in self.planned.into_iter().flat_map(|p| &p.effects.bound) {
            *added_counts.entry(bound.node).or_default() += 1;
        }
        let mut removed_counts: BTreeMap<NodeId, usize> = BTreeMap::new();
        for gone in self.planned.into_iter().flat_map(|p| &p.effects.unbound) {
            *removed_counts.entry(gone.node).or_default() += 1;
        }
        let expunged: BTreeSet<NodeId> = self
            .planned
            .into_iter()
            .flat_map(|p| &p.effects.expunged)
            .map(|gone| gone.node)
            .collect();
        let mut tray = Vec::new();
        for (id, node) in &self.present.skeleton.nodes {
            let deployment = moved.get(id).copied().unwrap_or(node.deployment);
            if node.phantom || expunged.contains(id) || !chain.contains(&deployment) {
                continue;
            }
            tray.push(TrayNode {
                node: *id,
                fqdn: node.fqdn.to_string(),
                short: node.fqdn.short().to_owned(),
                deployment: DeploymentName::parse(&self.names.deployment(deployment))
                    .map_err(|_| Problem::internal())?,
                alive: self.alive.get(id).copied().unwrap_or(false),
                noderoles: (node.noderoles.len() + added_counts.get(id).copied().unwrap_or(0))
                    .saturating_sub(removed_counts.get(id).copied().unwrap_or(0)),
            });
        }
        Ok(tray)
    }

    /// This deployment and its descendants, with the draft applied.
    fn places(&self) -> Result<Vec<DestinationChoice>, Problem> {
        let Some(planned) = self.planned else { return Ok(Vec::new()) };
        let skeleton = &self.present.skeleton;
        let gone: BTreeSet<DeploymentId> =
            planned.effects.removed_deployments.iter().map(|gone| gone.id).collect();
        let is_here = |id: &DeploymentId| {
            !gone.contains(id) && skeleton.chain(*id).contains(&self.deployment)
        };
        let known = skeleton.deployments.iter().filter(|(id, _)| is_here(id));
        let known = known.map(|(id, found)| DestinationChoice {
            id: *id,
            name: found.name.clone(),
            proposed: false,
        });
        // A proposal creates deployments only below its own deployment.
        let new = planned.effects.deployments.iter();
        let new =
            new.map(|new| DestinationChoice { id: new.id, name: new.name.clone(), proposed: true });
        let mut places: Vec<DestinationChoice> = known.chain(new).collect();
        places.sort_by(|a, b| {
            (a.id != self.deployment, &a.name).cmp(&(b.id != self.deployment, &b.name))
        });
        Ok(places)
    }

    /// Roles that the proposal makes available in the deployment and that the deployment does not
    /// have yet.
    fn choices(&self) -> Result<Vec<RoleChoice>, Problem> {
        let mut available = self.roles();
        let gone = self.planned.into_iter().flat_map(|planned| &planned.effects.removed_roles);
        for role in gone.filter(|gone| gone.deployment == self.deployment) {
            // The draft may have added the role again.
            if available.get(&role.role).is_some_and(|(_, proposed)| !proposed) {
                available.remove(&role.role);
            }
        }
        let skeleton = &self.present.skeleton;
        let own =
            |id| barclamps::own(self.present, id, self.planned.map(|planned| &planned.effects));
        let chain: Vec<_> = skeleton.chain(self.deployment).into_iter().map(own).collect();
        let (mut named, mut choices) = (BTreeSet::new(), BTreeMap::new());
        // Nearest deployment first, the same order as in binding.
        for pin in visible_barclamps(&chain) {
            let Ok(barclamp) = self.present.catalog.barclamp(pin.version) else { continue };
            for (name, content) in barclamp.roles.iter().filter(|(name, _)| named.insert(*name)) {
                let role = self.role(*content)?;
                let bindable =
                    !role.flags.is_abstract && !matches!(role.jig_class, JigClass::Other(_));
                if available.contains_key(name) || !bindable {
                    continue;
                }
                let choice = RoleChoice {
                    role: name.clone(),
                    barclamp: barclamp.name.clone(),
                    description: role.description.clone(),
                    milestone: role.flags.milestone,
                };
                choices.insert(name, choice);
            }
        }
        let mut choices: Vec<RoleChoice> = choices.into_values().collect();
        choices.sort_by(|a, b| (!a.milestone, &a.role).cmp(&(!b.milestone, &b.role)));
        Ok(choices)
    }
}

/// Milestones first, then roles that people bind, then implicit roles; each group by name.
fn order(roles: &mut [BoardRole]) {
    let is = |role: &BoardRole, word: &str| role.traits.iter().any(|t| t == word);
    roles.sort_by(|a, b| {
        (!is(a, "milestone"), is(a, "implicit"), &a.role).cmp(&(
            !is(b, "milestone"),
            is(b, "implicit"),
            &b.role,
        ))
    });
}

fn traits(role: &Role) -> Vec<String> {
    let mut traits = Vec::new();
    let flags = &role.flags;
    for (set, word) in [
        (flags.milestone, "milestone"),
        (flags.implicit, "implicit"),
        (flags.cluster, "cluster"),
        (flags.service, "service"),
        (flags.is_abstract, "abstract"),
    ] {
        if set {
            traits.push(word.to_owned());
        }
    }
    traits.push(role.jig.to_string());
    if role.lacks_scripts() {
        traits.push("no scripts".into());
    }
    match role.concurrency_group() {
        (_, Some(1), _) => traits.push("one at a time".into()),
        (_, Some(n), ConcurrencyGroupMode::Rolling) => traits.push(format!("{n} at a time")),
        (_, Some(n), ConcurrencyGroupMode::Chunk) => traits.push(format!("in groups of {n}")),
        _ => {}
    }
    if flags.destructive {
        traits.push("destructive".into());
    }
    traits
}

fn role_content(present: &CurrentState, content: Hash) -> Result<&Role, Problem> {
    present.catalog.role(content).map(|role| &**role).map_err(|error| {
        tracing::error!(%error, "a pinned role is not in the catalog");
        Problem::internal()
    })
}

/// All jigs of the barclamps in use, with the draft's switches applied.
fn jigs(present: &CurrentState, draft: Option<&Effects>) -> Result<Vec<JigView>, Problem> {
    let deployments = || present.skeleton.deployments.values();
    let pins = deployments().flat_map(|deployment| deployment.barclamps.values()).copied();
    let drafted = draft.into_iter().flat_map(|effects| &effects.barclamps).map(|pin| pin.version);
    let pins: BTreeSet<Hash> = pins.chain(drafted).collect();
    let mut jigs: BTreeMap<JigName, usize> = BTreeMap::new();
    for barclamp in pins.into_iter().filter_map(|pin| present.catalog.barclamp(pin).ok()) {
        for jig in barclamp.jigs.keys() {
            jigs.entry(jig.clone()).or_default();
        }
        for content in barclamp.roles.values() {
            *jigs.entry(role_content(present, *content)?.jig.clone()).or_default() += 1;
        }
    }
    let mut off: BTreeSet<JigName> =
        deployments().flat_map(|deployment| deployment.inactive_jigs.iter().cloned()).collect();
    for switch in draft.into_iter().flat_map(|effects| &effects.jigs) {
        match switch.active {
            true => off.remove(&switch.jig),
            false => off.insert(switch.jig.clone()),
        };
    }
    for jig in &off {
        jigs.entry(jig.clone()).or_default();
    }
    let view = |(jig, roles)| JigView { active: !off.contains(&jig), jig, roles };
    Ok(jigs.into_iter().map(view).collect())
}
