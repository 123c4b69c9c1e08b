//! Everything that carries a role: what a cell's count opens.

use api::Problem;
use api::console::{CARRIERS, Carriers};
use engine::ids::{NoderoleId, RoleName};
use store::{intent, reading};

use super::{Scene, tell_states};
use crate::Control;
use crate::people::{Actor, Permission};
use crate::problems::from_store;
use crate::proposing::{counting, plan_aside};
use crate::words::Names;

impl Control {
    /// What a deployment's board would show of a role if cells had room for all: the role of the deployment itself, or the one of
    /// an ancestor, by name.
    pub async fn carriers(
        &self,
        actor: &Actor,
        deployment: &str,
        of_ancestor: Option<&str>,
        role: &RoleName,
    ) -> Result<Carriers, Problem> {
        self.carriers_behind(actor, deployment, of_ancestor, role, None).await
    }

    /// The same behind one of them: where there are more than [`CARRIERS`], the last of a page leads to the next one.
    ///
    /// # Errors
    /// `moved` (409) when that one does not carry the role any more: nobody could say what comes behind it.
    pub async fn carriers_behind(
        &self,
        actor: &Actor,
        deployment: &str,
        of_ancestor: Option<&str>,
        role: &RoleName,
        after: Option<NoderoleId>,
    ) -> Result<Carriers, Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.present().await?;
        let mut connection = self.connection().await?;
        let id = present.named(deployment)?;
        let of = of_ancestor.map(|name| present.named(name)).transpose()?;
        if of.is_some_and(|of| !present.skeleton.chain(id).into_iter().skip(1).any(|above| above == of)) {
            return Err(Problem::not_found("That deployment is not above this one."));
        }
        let rows = match intent::open_proposal(&mut connection, id).await.map_err(from_store)? {
            Some(open) => Some(intent::edits(&mut connection, open.id).await.map_err(from_store)?),
            None => None,
        };
        drop(connection);
        let planned = match &rows {
            Some(rows) => Some(plan_aside(&self.beside(actor), &present, counting(rows)).await?),
            None => None,
        };
        let mut connection = self.connection().await?;
        let alive = reading::alive_nodes(&mut connection).await.map_err(from_store)?;
        let names = Names::of(&present, rows.iter().flatten().map(|row| &row.edit.edit));
        let scene = Scene::of(&present, id, planned.as_ref(), alive, names);
        let mut shown = scene.shown(of.unwrap_or(id), role, of.is_some());
        if let Some(after) = after {
            let place = shown.iter().position(|one| one.key.id(one.node) == after).ok_or_else(|| {
                Problem::conflict(
                    "moved",
                    "What the page before ended with is there no more: read it from its beginning.",
                )
            })?;
            shown.drain(..=place);
        }
        let (mut chips, more) = scene.chips(shown, CARRIERS);
        tell_states(&mut connection, chips.iter_mut().collect()).await?;
        Ok(Carriers { chips, more })
    }
}
