//! The items of a board beyond those that it lists: all noderoles of a role, and all nodes of the
//! tray.

use api::Problem;
use api::listing::Limit;
use api::views::board::{
    MAX_FOUND_NODES, MAX_NODES_WITH_ROLE, RoleNoderoles, RoleNoderolesQuery, TrayFilter, TrayNodes,
};
use engine::ids::{DeploymentId, RoleName};
use store::proposals::EditRow;

use crate::current::CurrentState;
use crate::deployments::board::{BoardInput, load_states};
use crate::people::{Actor, Permission};
use crate::problems::from_store;
use crate::proposals::change::{Planned, counting, plan_on_pool};
use crate::proposals::edit_text::Names;
use crate::{Control, text};

impl Control {
    /// All chips of a role on a deployment's board, without the board's limit. The role belongs to
    /// the deployment, or to the ancestor that `of_ancestor` names.
    pub async fn role_noderoles(
        &self,
        actor: &Actor,
        deployment: &str,
        of_ancestor: Option<&str>,
        role: &RoleName,
    ) -> Result<RoleNoderoles, Problem> {
        let of_ancestor = of_ancestor.map(str::to_owned);
        let query = RoleNoderolesQuery { of_ancestor, ..RoleNoderolesQuery::of(role.clone()) };
        self.find_role_noderoles(actor, deployment, &query).await
    }

    /// Like [`Self::role_noderoles`], for one node or from the noderole `after` on. If there are
    /// more than the limit, the last noderole of a page is the cursor of the next page. The node is
    /// found via the index on its name; its noderoles come from memory, without a query.
    ///
    /// # Errors
    /// `moved` (409) if the noderole `after` no longer has the role, because then the position in
    /// the list is unknown. Not found if the node does not exist.
    pub async fn find_role_noderoles(
        &self,
        actor: &Actor,
        deployment: &str,
        query: &RoleNoderolesQuery,
    ) -> Result<RoleNoderoles, Problem> {
        actor.require(Permission::Viewer)?;
        let RoleNoderolesQuery { role, of_ancestor, node, after, target, limit } = query;
        let node = match text::filter_text(node)? {
            Some(name) => Some(self.node_named(actor, name).await?),
            None => None,
        };
        let present = self.current_state().await?;
        let connection = self.connection().await?;
        let id = present.named(deployment)?;
        let of = of_ancestor.as_deref().map(|name| present.named(name)).transpose()?;
        if of.is_some_and(|of| {
            !present.skeleton.chain(id).into_iter().skip(1).any(|above| above == of)
        }) {
            return Err(Problem::not_found(
                "The other deployment is not an ancestor of this one. Use an ancestor.",
            ));
        }
        drop(connection);
        let (rows, planned) = match target {
            true => (None, None),
            false => self.draft(actor, &present, id).await?,
        };
        let mut connection = self.connection().await?;
        let alive = store::nodes::node_liveness(&mut connection).await.map_err(from_store)?;
        let names = Names::of(&present, rows.iter().flatten().map(|row| &row.edit.edit));
        let board = BoardInput::of(&present, id, planned.as_ref(), alive, names);
        let mut shown = board.placed_noderoles(of.unwrap_or(id), role, of.is_some());
        shown.retain(|noderole| node.is_none_or(|node| noderole.node == node));
        if let Some(after) = after {
            let place = shown.iter().position(|noderole| noderole.key.id(noderole.node) == *after).ok_or_else(|| {
                Problem::conflict(
                    "moved",
                    "The list changed, so the previous page has no next page. Start again at the \
                     first page.",
                )
            })?;
            shown.drain(..=place);
        }
        let (mut chips, more) =
            board.first_noderoles(shown, Limit::rows(*limit, MAX_NODES_WITH_ROLE));
        load_states(&mut connection, chips.iter_mut().collect()).await?;
        Ok(RoleNoderoles { noderoles: chips, more })
    }

    /// The nodes of a board's tray that match, including those that the board does not list.
    pub async fn find_tray_nodes(
        &self,
        actor: &Actor,
        deployment: &str,
        text: &str,
        show: TrayFilter,
    ) -> Result<TrayNodes, Problem> {
        actor.require(Permission::Viewer)?;
        let text = text::filter_text(text)?.unwrap_or_default();
        let present = self.current_state().await?;
        let id = present.named(deployment)?;
        let (rows, planned) = self.draft(actor, &present, id).await?;
        let mut connection = self.connection().await?;
        let alive = store::nodes::node_liveness(&mut connection).await.map_err(from_store)?;
        let names = Names::of(&present, rows.iter().flatten().map(|row| &row.edit.edit)).at(id);
        let mut nodes =
            BoardInput::of(&present, id, planned.as_ref(), alive, names).tray_nodes()?;
        nodes.retain(|node| show.fits(node, text));
        nodes.sort_by(|a, b| a.fqdn.cmp(&b.fqdn));
        let more = nodes.len().saturating_sub(MAX_FOUND_NODES);
        nodes.truncate(MAX_FOUND_NODES);
        Ok(TrayNodes { nodes, more })
    }

    /// The edits of a deployment's open proposal, and their plan.
    async fn draft(
        &self,
        actor: &Actor,
        present: &CurrentState,
        id: DeploymentId,
    ) -> Result<(Option<Vec<EditRow>>, Option<Planned>), Problem> {
        let mut connection = self.connection().await?;
        let open =
            store::proposals::open_proposal(&mut connection, id).await.map_err(from_store)?;
        let Some(open) = open else { return Ok((None, None)) };
        let rows = store::proposals::edits(&mut connection, open.id).await.map_err(from_store)?;
        drop(connection);
        let planned = plan_on_pool(&self.compute_for(actor), present, counting(&rows)).await?;
        Ok((Some(rows), Some(planned)))
    }
}
