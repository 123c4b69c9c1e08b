//! Review discussion: threads on single changes, and the differences since the person last viewed
//! the proposal.
//!
//! Threads belong to the proposal. They refer to changes by stable names, so they follow a change
//! from one review to the next. The module [`engine::gate::discussion`] decides who may write and
//! resolve.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::live::{Live, Topic};
use api::reviews::{ChangesSinceView, CommentView, Discussion, ThreadResolution, ThreadView};
use api::{Problem, limits};
use engine::blueprint::difference::Sides;
use engine::blueprint::{Anchor, Difference, DocumentChange, changes};
use engine::cluster::RootDoc;
use engine::cluster::document::parse;
use engine::gate::discussion::{DiscussionAccess, DiscussionDenied, may_resolve, may_write};
use engine::gate::{Policy, may_review};
use engine::ids::{CommentId, NodeId, ReviewId};
use serde_json::json;
use sqlx::PgConnection;
use store::reviews::{CommentRow, MAX_COMMENTS, NewComment, ReviewRow};

use crate::catalog::version_difference;
use crate::current::{CurrentState, load_deployments};
use crate::people::{Actor, Permission};
use crate::problems::{from_store, no_review};
use crate::reviews::review::{Case, changed, load_pins, policies, shown};
use crate::reviews::signatures::require_no_token;
use crate::text::{self, at};
use crate::{Control, done};

impl Control {
    /// The discussion of a review's proposal, as seen from this review.
    pub async fn discussion(&self, actor: &Actor, id: ReviewId) -> Result<Discussion, Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.current_state().await?;
        let mut connection = self.connection().await?;
        let case = self.case(&mut connection, &present, id, false).await?;
        drop(connection);
        let difference =
            changed(self, &self.compute_for(actor), &case.row, &case.documents).await?;
        let mut connection = self.connection().await?;
        let rows = store::reviews::comments(&mut connection, case.row.proposal)
            .await
            .map_err(from_store)?;
        let (discussion_access, open) =
            (discussion_access(actor, &case), case.proposal.state == "open");
        let mut answers: BTreeMap<CommentId, Vec<CommentView>> = BTreeMap::new();
        for row in &rows {
            answers.entry(row.thread.unwrap_or(row.id)).or_default().push(comment(row));
        }
        let thread = |row: &CommentRow| {
            let anchor = row.anchor.parse().unwrap_or(Anchor::Whole);
            ThreadView {
                id: row.id,
                review: row.review,
                subject: anchor_text(&present, &anchor),
                current: anchor.exists_in(&difference),
                anchor,
                comments: answers.remove(&row.id).unwrap_or_default(),
                resolved: row
                    .resolved
                    .as_ref()
                    .map(|(by, moment)| ThreadResolution { by: by.clone(), at: at(*moment) }),
                may_resolve: may_resolve(discussion_access, row.person, open)
                    .map_err(|no| no.to_string())
                    .into(),
            }
        };
        let threads: Vec<ThreadView> =
            rows.iter().filter(|row| row.thread.is_none()).map(thread).collect();
        Ok(Discussion {
            review: id,
            open: threads.iter().filter(|t| t.resolved.is_none()).count(),
            threads,
            may_write: may_write(discussion_access, open).map_err(|no| no.to_string()).into(),
        })
    }

    /// Opens a thread on a change of a review.
    pub async fn open_thread(
        &self,
        actor: &Actor,
        id: ReviewId,
        anchor: Anchor,
        body: String,
    ) -> Result<CommentId, Problem> {
        let body = text(&body)?;
        // The changes of a review are immutable, so this check does not need the lock.
        let stands = self.contains_change(actor, id, &anchor).await?;
        let present = self.current_state().await?;
        let mut transaction = self.begin().await?;
        let (actor, case) =
            self.lock_review_to_discuss(&mut transaction, &present, actor, id).await?;
        may_write(discussion_access(&actor, &case), case.proposal.state == "open")
            .map_err(refused)?;
        if !stands {
            return Err(Problem::invalid(format!(
                "Review {id} has no change {anchor}. Omit the anchor to comment on the whole \
                 review."
            )));
        }
        let new = NewComment {
            review: id,
            thread: None,
            anchor: &anchor.to_string(),
            person: actor.person,
            body,
        };
        let thread = self.insert_comment(&mut transaction, &case, &new, "thread.open").await?;
        done(transaction).await?;
        Ok(thread)
    }

    /// Replies in a thread.
    pub async fn reply(
        &self,
        actor: &Actor,
        thread: CommentId,
        body: String,
    ) -> Result<CommentId, Problem> {
        let body = text(&body)?;
        let present = self.current_state().await?;
        let mut transaction = self.begin().await?;
        let (row, actor, case) =
            self.lock_thread_to_discuss(&mut transaction, &present, actor, thread).await?;
        may_write(discussion_access(&actor, &case), case.proposal.state == "open")
            .map_err(refused)?;
        let new = NewComment {
            review: row.review,
            thread: Some(thread),
            anchor: "",
            person: actor.person,
            body,
        };
        let id = self.insert_comment(&mut transaction, &case, &new, "thread.reply").await?;
        done(transaction).await?;
        Ok(id)
    }

    /// Resolves or reopens a thread.
    pub async fn resolve_thread(
        &self,
        actor: &Actor,
        thread: CommentId,
        resolved: bool,
    ) -> Result<(), Problem> {
        let present = self.current_state().await?;
        let mut transaction = self.begin().await?;
        let (row, actor, case) =
            self.lock_thread_to_discuss(&mut transaction, &present, actor, thread).await?;
        let (discussion_access, open) =
            (discussion_access(&actor, &case), case.proposal.state == "open");
        let (allowed, action) = if resolved {
            (may_resolve(discussion_access, row.person, open), "thread.resolve")
        } else {
            (may_write(discussion_access, open), "thread.reopen")
        };
        allowed.map_err(refused)?;
        let compute = resolved.then_some(actor.person);
        if !store::reviews::set_resolved(&mut transaction, thread, compute)
            .await
            .map_err(from_store)?
        {
            return Ok(());
        }
        let detail = json!({"review": row.review, "proposal": case.row.proposal});
        store::audit::append_audit(
            &mut transaction,
            Some(actor.person),
            action,
            &thread.to_string(),
            &detail,
        )
        .await
        .map_err(from_store)?;
        notify(&mut transaction, &case).await?;
        done(transaction).await
    }

    async fn insert_comment(
        &self,
        on: &mut PgConnection,
        case: &Case,
        new: &NewComment<'_>,
        action: &str,
    ) -> Result<CommentId, Problem> {
        let text = store::reviews::comments(on, case.row.proposal).await.map_err(from_store)?.len();
        if text >= usize::try_from(MAX_COMMENTS).unwrap_or(usize::MAX) {
            return Err(Problem::conflict(
                "too_many_comments",
                format!(
                    "This discussion already has {MAX_COMMENTS} comments, which is the maximum. \
                     Discard the proposal and open a new one."
                ),
            ));
        }
        let id = store::reviews::append_comment(on, new).await.map_err(from_store)?;
        let detail = json!({"review": new.review, "thread": new.thread, "anchor": new.anchor});
        store::audit::append_audit(on, Some(new.person), action, &id.to_string(), &detail)
            .await
            .map_err(from_store)?;
        notify(on, case).await?;
        Ok(id)
    }

    /// Whether the review contains the change that `anchor` names.
    async fn contains_change(
        &self,
        actor: &Actor,
        id: ReviewId,
        anchor: &Anchor,
    ) -> Result<bool, Problem> {
        if *anchor == Anchor::Whole {
            return Ok(true);
        }
        let mut connection = self.connection().await?;
        let row = find_review(&mut connection, id).await?;
        let documents = store::reviews::documents(&mut connection, id).await.map_err(from_store)?;
        drop(connection);
        Ok(anchor.exists_in(&changed(self, &self.compute_for(actor), &row, &documents).await?))
    }

    /// Locks the proposal and loads its review and the current permissions of the actor. `present`
    /// is read earlier, so that its computation does not block the proposal. The permission to
    /// write does not depend on it.
    async fn lock_review_to_discuss(
        &self,
        on: &mut PgConnection,
        present: &CurrentState,
        actor: &Actor,
        id: ReviewId,
    ) -> Result<(Actor, Case), Problem> {
        let row = store::reviews::find_review(on, id).await.map_err(from_store)?;
        let row = row.ok_or_else(|| no_review(id))?;
        store::proposals::lock_proposal(on, row.proposal).await.map_err(from_store)?;
        let actor = actor.revalidate(on).await?;
        let case = self.case(on, present, id, false).await?;
        Ok((actor, case))
    }

    async fn lock_thread_to_discuss(
        &self,
        on: &mut PgConnection,
        present: &CurrentState,
        actor: &Actor,
        thread: CommentId,
    ) -> Result<(CommentRow, Actor, Case), Problem> {
        let found = store::reviews::thread(on, thread).await.map_err(from_store)?;
        let (row, _) = found.ok_or_else(|| {
            Problem::not_found(format!(
                "Thread {thread} does not exist. Open the review to see its threads."
            ))
        })?;
        let (actor, case) = self.lock_review_to_discuss(on, present, actor, row.review).await?;
        Ok((row, actor, case))
    }

    /// The difference between this review and the one that the person viewed before.
    pub async fn changes_since_view(
        &self,
        actor: &Actor,
        id: ReviewId,
    ) -> Result<ChangesSinceView, Problem> {
        actor.require(Permission::Viewer)?;
        let mut connection = self.connection().await?;
        let row = find_review(&mut connection, id).await?;
        let viewed = store::reviews::viewed_reviews(&mut connection, actor.person, row.proposal)
            .await
            .map_err(from_store)?;
        let before =
            viewed.and_then(
                |viewed| if viewed.review < id { Some(viewed.review) } else { viewed.before },
            );
        let Some(before) = before.filter(|before| *before < id) else {
            return Ok(ChangesSinceView {
                review: id,
                before: None,
                same_effect: false,
                difference: Difference::default(),
                noderoles: BTreeMap::new(),
                contents: Vec::new(),
                pins: Vec::new(),
                more: 0,
                next: None,
            });
        };
        let old = find_review(&mut connection, before).await?;
        let changed = between(&mut connection, &old, &row).await?;
        let policy = policy_between(&mut connection, &old, &row).await?;
        drop(connection);
        let (present, compute) = (self.current_state().await?, self.compute_for(actor));
        let difference = Difference { policy, ..shown(self, &compute, &changed).await? };
        let mut connection = self.connection().await?;
        // The ancestors' deployments, as each of the two reviews would leave them.
        let old_deployments = load_deployments(&mut connection, old.root, &present.blueprint)
            .await
            .map_err(from_store)?;
        let new_deployments = load_deployments(&mut connection, row.root, &present.blueprint)
            .await
            .map_err(from_store)?;
        drop(connection);
        let others = (Arc::new(old_deployments), Arc::new(new_deployments));
        let (difference, pins) =
            load_pins(self, &compute, difference, &changed, others, &present).await?;
        let contents =
            version_difference::changes(self, &compute, &difference, &pins, &present.catalog)
                .await?;
        Ok(ChangesSinceView {
            review: id,
            before: Some(before),
            same_effect: old.effects == row.effects && difference.policy.is_none(),
            noderoles: present.parents([&difference]),
            difference,
            contents,
            pins,
            more: 0,
            next: None,
        })
    }

    /// Records that the person viewed a review.
    pub async fn record_view(&self, actor: &Actor, id: ReviewId) -> Result<(), Problem> {
        actor.require(Permission::Viewer)?;
        actor.require_in_person()?;
        let mut transaction = self.begin().await?;
        let row = find_review(&mut transaction, id).await?;
        actor.revalidate(&mut transaction).await?.require(Permission::Viewer)?;
        store::reviews::ensure_viewed(&mut transaction, actor.person, row.proposal, id)
            .await
            .map_err(from_store)?;
        done(transaction).await
    }
}

async fn find_review(on: &mut PgConnection, id: ReviewId) -> Result<ReviewRow, Problem> {
    let row = store::reviews::find_review(on, id).await.map_err(from_store)?;
    row.ok_or_else(|| no_review(id))
}

/// The differences between the results of two reviews, in all documents that either of them
/// changes.
async fn between(
    on: &mut PgConnection,
    old: &ReviewRow,
    new: &ReviewRow,
) -> Result<Vec<DocumentChange>, Problem> {
    let mut touched = store::reviews::documents(on, old.id).await.map_err(from_store)?;
    touched.extend(store::reviews::documents(on, new.id).await.map_err(from_store)?);
    let bodies = store::catalog::bodies(on, &[old.root, new.root]).await.map_err(from_store)?;
    let root = |hash| {
        let body = bodies.get(&hash).ok_or_else(Problem::internal)?;
        parse::<RootDoc>("root", hash, body).map_err(|error| {
            tracing::error!(%error, "cannot read the root of a review");
            Problem::internal()
        })
    };
    let touched: BTreeSet<Anchor> = touched.iter().map(document).collect();
    let mut changed = changes(&root(old.root)?, &root(new.root)?);
    changed.retain(|change| touched.contains(&document(change)));
    Ok(changed)
}

/// The policies that the two reviews would leave in force, if they differ.
async fn policy_between(
    on: &mut PgConnection,
    old: &ReviewRow,
    new: &ReviewRow,
) -> Result<Option<Sides<Policy>>, Problem> {
    let (old_policy, new_policy) =
        (resulting_policy(on, old).await?, resulting_policy(on, new).await?);
    Ok(Sides::differing(old_policy.as_ref(), new_policy.as_ref()))
}

async fn resulting_policy(
    on: &mut PgConnection,
    row: &ReviewRow,
) -> Result<Option<Policy>, Problem> {
    match policies(on, row).await? {
        Some(sides) => Ok(Some(sides.new)),
        None => store::blueprints::policy(on, row.policy).await.map_err(from_store),
    }
}

fn document(change: &DocumentChange) -> Anchor {
    match change {
        DocumentChange::Deployment { id, .. } => Anchor::Deployment(*id),
        DocumentChange::Node { id, .. } => Anchor::Node(*id),
    }
}

fn discussion_access(actor: &Actor, case: &Case) -> DiscussionAccess {
    DiscussionAccess {
        person: actor.person,
        writes: [Permission::Operator, Permission::Reviewer]
            .iter()
            .any(|p| actor.has_permission_in(*p, case.proposal.deployment)),
        // The same people may resolve threads of a replaced review, so only their identity matters
        // here. Hence `newest: true`.
        reviews: require_no_token(actor).is_ok()
            && may_review(
                &engine::gate::Facts { newest: true, ..case.facts.clone() },
                actor.person,
            )
            .is_ok(),
    }
}

fn refused(no: DiscussionDenied) -> Problem {
    match no {
        DiscussionDenied::Viewer => Problem::permission_missing(no.to_string()),
        DiscussionDenied::NotYours => {
            Problem { code: "not_yours".into(), ..Problem::forbidden(no.to_string()) }
        }
        DiscussionDenied::Closed => Problem::conflict("closed", text::sentence(&no.to_string())),
    }
}

fn text(body: &str) -> Result<&str, Problem> {
    let body = text::plain(body)?;
    match body.chars().count() {
        0 => Err(Problem::invalid("The comment is empty. Enter a text.")),
        n if n > limits::COMMENT => Err(Problem::invalid(format!(
            "The comment is too long. Use at most {} characters.",
            limits::COMMENT
        ))),
        _ => Ok(body),
    }
}

fn comment(row: &CommentRow) -> CommentView {
    CommentView { id: row.id, person: row.name.clone(), body: row.body.clone(), at: at(row.at) }
}

fn anchor_text(present: &CurrentState, anchor: &Anchor) -> String {
    let node = |id: &NodeId| present.short_name(*id).unwrap_or_else(|| id.to_string());
    let subject = match anchor {
        Anchor::Whole => "the whole change".to_owned(),
        Anchor::Policy(_) => "the policy".to_owned(),
        Anchor::Deployment(id) => format!("deployment {}", present.name_of(*id)),
        Anchor::Barclamp(id, barclamp) => format!("{barclamp} in {}", present.name_of(*id)),
        Anchor::Role(id, role, _) => format!("{role} in {}", present.name_of(*id)),
        Anchor::Node(id) => format!("node {}", node(id)),
        Anchor::Noderole(id, key, _) => format!("{key} on {}", node(id)),
    };
    match anchor.value() {
        Some(path) if !path.is_empty() => format!("{subject}, {path}"),
        _ => subject,
    }
}

async fn notify(on: &mut PgConnection, case: &Case) -> Result<(), Problem> {
    let newest = store::reviews::review_of_version(on, case.row.proposal, case.proposal.version)
        .await
        .map_err(from_store)?;
    let newest = newest.unwrap_or(case.row.id);
    let topics = [
        Topic::Reviews,
        Topic::Review(case.row.id),
        Topic::Review(newest),
        Topic::Proposal(case.row.proposal),
    ];
    let topics: BTreeSet<Topic> = topics.into();
    let topics: Vec<Topic> = topics.into_iter().collect();
    store::events::append_event_to_topics(on, &topics, &Live::Review { review: newest })
        .await
        .map_err(from_store)
}
