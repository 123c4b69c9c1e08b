//! The first steps: how far somebody who proposes has come on the way from a board to a step that was tried again.
//!
//! Nothing is kept of it. What is told is what happened, so nobody ticks off what they did not do, and what was done elsewhere counts too. What
//! a demo begins with is in somebody's name and nobody's doing: it does not count, and neither does what Gantry retries by itself.

use api::Problem;
use api::overview::FirstSteps;
use engine::ids::{DeploymentId, DeploymentName, SubmissionId};
use store::{intent, reading};

use crate::Control;
use crate::people::{Actor, Permission, PersonKind};
use crate::present::Present;
use crate::problems::from_store;
use crate::showing::{corrupt, tree};

impl Control {
    /// How far the actor has come; None: they are no person, or propose nowhere. The caller has no connection.
    pub(crate) async fn first_steps(
        &self,
        actor: &Actor,
        present: &Present,
    ) -> Result<Option<FirstSteps>, Problem> {
        if actor.kind != PersonKind::Human || !actor.may_somewhere(Permission::Operator) {
            return Ok(None);
        }
        let mut connection = self.connection().await?;
        let row = reading::first_steps(&mut connection, actor.person).await.map_err(from_store)?;
        let deployment = match &row.deployment {
            Some(name) => Some(DeploymentName::parse(name).map_err(corrupt)?),
            None => {
                let drafts = intent::drafts(&mut connection).await.map_err(from_store)?;
                beginning(actor, present, |id| drafts.contains_key(id))
            }
        };
        Ok(Some(FirstSteps {
            edited: row.edited,
            submitted: row.submission.is_some(),
            judged: row.judged,
            committed: row.committed,
            ran: row.ran,
            retried: row.retried,
            deployment,
            submission: row.submission.map(SubmissionId),
        }))
    }
}

/// Where somebody may begin: the first deployment below *system* that they may change and that nobody is changing.
fn beginning(
    actor: &Actor,
    present: &Present,
    is_proposed: impl Fn(&DeploymentId) -> bool,
) -> Option<DeploymentName> {
    let may = |id| actor.may_in(Permission::Operator, id) && !is_proposed(&id);
    let found = tree(present).into_iter().find(|placed| placed.depth > 0 && may(placed.id))?;
    present.skeleton.deployments.get(&found.id).map(|deployment| deployment.name.clone())
}
