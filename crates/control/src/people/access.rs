//! Access that an admin gave: its history on the person's page, the confirmation by a second admin,
//! and notices of resets.
//!
//! The database records the changes. It also decides which admin may confirm a change
//! (`confirm_access`).

use api::Problem;
use api::people::{AccessChangeView, AccessLimitView, AccessNotice, PersonDetails};
use engine::ids::PersonId;
use serde_json::json;
use sqlx::PgConnection;
use store::audit::append_audit;
use store::people::access::AccessChangeRow;

use super::{Actor, People, failed, passkeys};
use crate::text::at;

impl People {
    /// A person with the changes of their access, and the admins on whose changes their approvals
    /// do not count.
    ///
    /// # Errors
    /// If the person does not exist, or the actor is neither an admin nor that person.
    pub async fn details(&self, actor: &Actor, id: PersonId) -> Result<PersonDetails, Problem> {
        let person = self.one(actor, id).await?;
        let mut connection = self.store.pool().acquire().await.map_err(failed)?;
        let access_changes = store::people::access::listed(&mut connection, id)
            .await
            .map_err(failed)?
            .into_iter()
            .map(view)
            .collect();
        let limits = store::people::access::limits(&mut connection, id).await.map_err(failed)?;
        let approvals_limited = limits
            .into_iter()
            .map(|(admin, until)| AccessLimitView { admin, until: at(until) })
            .collect();
        let passkeys = passkeys::views(&mut connection, id).await?;
        Ok(PersonDetails { person, access_changes, approvals_limited, passkeys })
    }

    /// Confirms a person's access as a second admin: their approvals count at once.
    ///
    /// # Errors
    /// If the actor is not an admin, is that person, or gave the access. Also if the actor's own
    /// access comes from the admin who gave it.
    pub async fn confirm(&self, actor: &Actor, id: PersonId) -> Result<PersonDetails, Problem> {
        actor.require_in_person()?;
        let (mut transaction, actor, row) = self.begin_change(actor, id.into()).await?;
        if actor.person == id {
            return Err(Problem::conflict(
                "own_account",
                "You cannot confirm your own access. Ask another admin.",
            ));
        }
        let confirmed = store::people::access::confirm(&mut transaction, id, actor.person)
            .await
            .map_err(failed)?;
        if confirmed > 0 {
            let detail = json!({"name": row.name, "changes": confirmed});
            append_audit(
                &mut transaction,
                Some(actor.person),
                "person.confirm",
                &id.to_string(),
                &detail,
            )
            .await
            .map_err(failed)?;
        }
        transaction.commit().await.map_err(failed)?;
        self.details(&actor, id).await
    }

    pub(super) async fn own_notices(&self, actor: &Actor) -> Result<Vec<AccessNotice>, Problem> {
        let mut connection = self.store.pool().acquire().await.map_err(failed)?;
        notices(&mut connection, actor.person).await
    }

    /// Dismisses the actor's notices of resets.
    ///
    /// # Errors
    /// If the actor uses a token.
    pub async fn dismiss_notices(&self, actor: &Actor) -> Result<(), Problem> {
        actor.require_in_person()?;
        let mut transaction = self.store.pool().begin().await.map_err(failed)?;
        let actor = actor.revalidate(&mut transaction).await?;
        let dismissed =
            store::people::access::dismiss(&mut transaction, actor.person).await.map_err(failed)?;
        if dismissed > 0 {
            let detail = json!({"notices": dismissed});
            append_audit(
                &mut transaction,
                Some(actor.person),
                "person.notices",
                &actor.person.to_string(),
                &detail,
            )
            .await
            .map_err(failed)?;
        }
        transaction.commit().await.map_err(failed)
    }
}

/// The resets of a person's sign-in by others, until the person dismisses them.
pub(crate) async fn notices(
    on: &mut PgConnection,
    person: PersonId,
) -> Result<Vec<AccessNotice>, Problem> {
    let rows = store::people::access::notices(on, person).await.map_err(failed)?;
    Ok(rows.into_iter().map(|(by, reset_at)| AccessNotice { by, at: at(reset_at) }).collect())
}

fn view(row: AccessChangeRow) -> AccessChangeView {
    AccessChangeView {
        kind: row.kind,
        permission: row.permission,
        deployment: row.deployment,
        by: row.by,
        at: at(row.at),
        confirmed_by: row.confirmed_by,
        confirmed_at: row.confirmed_at.map(at),
    }
}
