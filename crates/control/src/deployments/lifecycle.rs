//! Creation and removal of deployments. Both are edits of a proposal.

use api::Problem;
use api::deployments::{DeploymentRequest, ProposedDeployment};
use engine::ids::{DeploymentId, NodeId, ProposalId};
use engine::plan::{Edit, Scope, edit};
use uuid::Uuid;

use crate::Control;
use crate::people::{Actor, Permission};
use crate::problems::{from_store, no_proposal};
use crate::proposals::change::NewEdits;

impl Control {
    /// Adds the creation of a deployment to the open proposal on its parent, or opens one.
    pub async fn propose_deployment(
        &self,
        actor: &Actor,
        request: &DeploymentRequest,
    ) -> Result<ProposedDeployment, Problem> {
        actor.require_somewhere(Permission::Operator)?;
        let present = self.current_state().await?;
        let parent = match &request.parent {
            Some(name) => present.named(name.as_str())?,
            None => present.system()?,
        };
        let id = DeploymentId(Uuid::new_v4());
        let edit = Edit::CreateDeployment(edit::CreateDeployment {
            id,
            phantom: NodeId(Uuid::new_v4()),
            name: request.name.clone(),
            parent,
        });
        let (proposal, version) = self.propose_edit(actor, parent, edit).await?;
        Ok(ProposedDeployment { id, proposal, version })
    }

    /// Adds the removal of an empty deployment to its open proposal, or opens one.
    pub async fn propose_removal(
        &self,
        actor: &Actor,
        name: &str,
    ) -> Result<ProposedDeployment, Problem> {
        actor.require_somewhere(Permission::Operator)?;
        let id = self.current_state().await?.named(name)?;
        let edit = Edit::RemoveDeployment(edit::RemoveDeployment { deployment: id });
        let (proposal, version) = self.propose_edit(actor, id, edit).await?;
        Ok(ProposedDeployment { id, proposal, version })
    }

    async fn propose_edit(
        &self,
        actor: &Actor,
        deployment: DeploymentId,
        edit: Edit,
    ) -> Result<(ProposalId, i32), Problem> {
        actor.require_in(Permission::Operator, deployment)?;
        let present = self.current_state().await?;
        let mut connection = self.connection().await?;
        let open = store::proposals::open_proposal(&mut connection, deployment).await;
        let rows = match open.map_err(from_store)? {
            Some(open) => {
                store::proposals::edits(&mut connection, open.id).await.map_err(from_store)?
            }
            None => Vec::new(),
        };
        drop(connection);
        // A refused edit must not leave an empty proposal.
        let new = NewEdits::as_given(vec![edit.clone()]);
        let scope = Scope::Deployment(deployment);
        self.check_edits(&self.compute_for(actor), &present, scope, &rows, &new).await?;
        let proposal = self.propose(actor, deployment).await?;
        let mut connection = self.connection().await?;
        let row =
            store::proposals::proposal(&mut connection, proposal).await.map_err(from_store)?;
        drop(connection);
        let version = row.ok_or_else(|| no_proposal(proposal))?.version;
        Ok((proposal, self.edit(actor, proposal, version, vec![edit]).await?))
    }
}
