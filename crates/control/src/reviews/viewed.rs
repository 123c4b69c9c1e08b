//! Tracks which changes of a review each person has viewed. [`engine::blueprint::viewed`] defines
//! what a mark refers to.

use std::collections::{BTreeMap, BTreeSet};

use api::Problem;
use api::reviews::ViewedChanges;
use engine::Hash;
use engine::blueprint::Anchor;
use engine::blueprint::viewed::contents;
use engine::ids::{ProposalId, ReviewId};
use sqlx::PgConnection;
use store::reviews::MAX_VIEWED;

use crate::people::{Actor, Permission};
use crate::problems::{from_store, no_review};
use crate::reviews::review::changed;
use crate::{Control, done};

impl Control {
    /// The changes of a review that this person has viewed.
    pub async fn viewed_changes(
        &self,
        actor: &Actor,
        id: ReviewId,
    ) -> Result<ViewedChanges, Problem> {
        actor.require(Permission::Viewer)?;
        let changes = changes(self, actor, id).await?;
        let mut connection = self.connection().await?;
        opened(&mut connection, actor, &changes).await
    }

    /// Marks the changes of these documents in a review as viewed. Idempotent.
    pub async fn mark_viewed(
        &self,
        actor: &Actor,
        id: ReviewId,
        anchors: Vec<Anchor>,
    ) -> Result<ViewedChanges, Problem> {
        actor.require(Permission::Viewer)?;
        // Only a person can view a change, so tokens are refused.
        actor.require_in_person()?;
        let anchors: BTreeSet<Anchor> = anchors.into_iter().collect();
        if anchors.len() > MAX_VIEWED {
            return Err(Problem::invalid(format!(
                "Mark at most {MAX_VIEWED} changes as viewed per request."
            )));
        }
        // The changes of a review are immutable, so the transaction need not read them again.
        let changes = changes(self, actor, id).await?;
        let mark = |anchor: Anchor| match changes.contents.get(&anchor) {
            Some(content) => Ok((anchor, *content)),
            None => Err(Problem::invalid(format!(
                "Review {id} does not change {anchor}. Use policy, deployment/ID or node/ID."
            ))),
        };
        let marks: Vec<(Anchor, Hash)> = anchors.into_iter().map(mark).collect::<Result<_, _>>()?;
        let mut transaction = self.begin().await?;
        actor.revalidate(&mut transaction).await?.require(Permission::Viewer)?;
        store::reviews::ensure_changes_viewed(
            &mut transaction,
            actor.person,
            changes.proposal,
            &marks,
        )
        .await
        .map_err(from_store)?;
        let opened = opened(&mut transaction, actor, &changes).await?;
        done(transaction).await?;
        Ok(opened)
    }
}

/// The documents that a review changes, each with the hash of its change.
struct ReviewChanges {
    proposal: ProposalId,
    contents: BTreeMap<Anchor, Hash>,
}

async fn opened(
    on: &mut PgConnection,
    actor: &Actor,
    changes: &ReviewChanges,
) -> Result<ViewedChanges, Problem> {
    let marks =
        store::reviews::opened(on, actor.person, changes.proposal).await.map_err(from_store)?;
    let mut viewed = ViewedChanges { all: changes.contents.len(), ..ViewedChanges::default() };
    for (anchor, content) in marks {
        match changes.contents.get(&anchor) {
            Some(current) if *current == content => viewed.viewed.insert(anchor),
            Some(_) => viewed.outdated.insert(anchor),
            None => false,
        };
    }
    Ok(viewed)
}

async fn changes(control: &Control, actor: &Actor, id: ReviewId) -> Result<ReviewChanges, Problem> {
    let mut connection = control.connection().await?;
    let row = store::reviews::find_review(&mut connection, id).await.map_err(from_store)?;
    let row = row.ok_or_else(|| no_review(id))?;
    let documents = store::reviews::documents(&mut connection, id).await.map_err(from_store)?;
    drop(connection);
    let compute = control.compute_for(actor);
    let difference = changed(control, &compute, &row, &documents).await?;
    let contents = compute.work(move || contents(&difference)).await?.map_err(|error| {
        tracing::error!(%error, "cannot write a change as JSON");
        Problem::internal()
    })?;
    Ok(ReviewChanges { proposal: row.proposal, contents })
}
