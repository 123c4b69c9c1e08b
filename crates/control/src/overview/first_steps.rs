//! The first steps: a new user's progress from the board to a retried step.
//!
//! The progress is derived from the history and not stored. So it includes actions in any client,
//! and no one can tick it off by hand. The demo's initial proposal and automatic retries do not
//! count.

use api::Problem;
use api::overview::FirstSteps;
use engine::ids::{DeploymentId, DeploymentName, ReviewId};

use crate::Control;
use crate::current::CurrentState;
use crate::deployments::list::tree;
use crate::people::{Actor, Permission, PersonKind};
use crate::problems::{corrupt, from_store};

impl Control {
    /// The progress of the actor. `None` if the actor is not a human or may propose nowhere. The
    /// caller must not have a connection.
    pub(crate) async fn first_steps(
        &self,
        actor: &Actor,
        present: &CurrentState,
    ) -> Result<Option<FirstSteps>, Problem> {
        if actor.kind != PersonKind::Human || !actor.has_permission_somewhere(Permission::Operator)
        {
            return Ok(None);
        }
        let mut connection = self.connection().await?;
        let row =
            store::people::first_steps(&mut connection, actor.person).await.map_err(from_store)?;
        let deployment = match &row.deployment {
            Some(name) => Some(DeploymentName::parse(name).map_err(corrupt)?),
            None => {
                let drafts = store::proposals::drafts(&mut connection).await.map_err(from_store)?;
                beginning(actor, present, |id| drafts.contains_key(id))
            }
        };
        Ok(Some(FirstSteps {
            edited: row.edited,
            submitted: row.review.is_some(),
            reviewed: row.reviewed,
            committed: row.committed,
            run_ended: row.ran,
            retried: row.retried,
            deployment,
            review: row.review.map(ReviewId),
        }))
    }
}

/// The suggested deployment to start with: the first one below *system* without an open proposal
/// that the actor may change.
fn beginning(
    actor: &Actor,
    present: &CurrentState,
    is_proposed: impl Fn(&DeploymentId) -> bool,
) -> Option<DeploymentName> {
    let may = |id| actor.has_permission_in(Permission::Operator, id) && !is_proposed(&id);
    let found = tree(present).into_iter().find(|placed| placed.depth > 0 && may(placed.id))?;
    present.skeleton.deployments.get(&found.id).map(|deployment| deployment.name.clone())
}
