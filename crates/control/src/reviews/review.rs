//! Reviews: the changes of a submission, the state of its gate, and verdicts. A submission is the
//! immutable version of a proposal that people review.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::blueprints::RoleValueChange;
use api::catalog::PinChange;
use api::live::{Live, Topic};
use api::people::Signature;
use api::proposals::Replanned;
use api::reviews::{ReviewState, ReviewView, VerdictView};
use api::{Problem, limits};
use engine::blueprint::difference;
use engine::blueprint::difference::Sides;
use engine::blueprint::{Difference, DocumentChange};
use engine::cluster::Blueprint;
use engine::gate::access::Access;
use engine::gate::contacts::{ActionContacts, check_can_review_or_explain};
use engine::gate::review_status::ReviewStatus;
use engine::gate::{
    ClosedReview, Facts, GateResult, Policy, Reviewer, Risk, Verdict, VerdictError, VerdictKind,
    evaluate, may_review, requires_name,
};
use engine::ids::{BlueprintNumber, DeploymentId, DeploymentName, PersonId, ReviewId};
use serde_json::json;
use sqlx::PgConnection;
use store::proposals::ProposalRow;
use store::reviews::{PersonRow, ReviewRow, VerdictRow};
use time::OffsetDateTime;

use crate::catalog::version_difference;
use crate::compute::ComputeLimit;
use crate::current::{CurrentState, load_deployments};
use crate::{Control, done};

use crate::people::{Actor, Permission, in_deployments};
use crate::problems::{from_store, no_review};
use crate::reviews::role_values;
use crate::reviews::signatures::{ReviewSignatures, Signed, require_no_token, sign};
use crate::reviews::summary::Summary;
use crate::text::{self, at};

/// A submission with all facts that the gate evaluates.
pub(crate) struct Case {
    pub row: ReviewRow,
    pub proposal: ProposalRow,
    pub authors: Vec<PersonRow>,
    pub verdicts: Vec<VerdictRow>,
    pub documents: Vec<DocumentChange>,
    /// Signed verdicts, each with the name of the passkey.
    pub signed: Signed,
    pub facts: Facts,
}

impl Control {
    /// Loads a submission and its facts. In a commit, `lock` prevents changes of the people
    /// involved.
    pub(crate) async fn case(
        &self,
        on: &mut PgConnection,
        present: &CurrentState,
        id: ReviewId,
        lock: bool,
    ) -> Result<Case, Problem> {
        let row = store::reviews::find_review(on, id).await.map_err(from_store)?;
        let row = row.ok_or_else(|| no_review(id))?;
        let proposal = store::proposals::proposal(on, row.proposal)
            .await
            .map_err(from_store)?
            .ok_or_else(Problem::internal)?;
        let authors = store::reviews::authors(on, id).await.map_err(from_store)?;
        let verdicts = store::reviews::verdicts(on, id).await.map_err(from_store)?;
        let documents = store::reviews::documents(on, id).await.map_err(from_store)?;
        // Also load people who gave a verdict but can no longer review. The review has to say that
        // their verdicts do not count.
        let voters: BTreeSet<PersonId> = verdicts.iter().map(|v| v.person).collect();
        let voters: Vec<PersonId> = voters.into_iter().collect();
        let mut people = store::reviews::eligible_reviewers(on, id).await.map_err(from_store)?;
        people.retain(|person| !voters.contains(&person.id));
        people.extend(store::reviews::people(on, &voters, id, lock).await.map_err(from_store)?);
        people.sort_by(|a, b| a.name.cmp(&b.name));
        let policy = self.policy(on, present).await?;
        let ids: Vec<PersonId> = people.iter().map(|person| person.id).collect();
        let with_authors: Vec<PersonId> =
            ids.iter().copied().chain(authors.iter().map(|author| author.id)).collect();
        let access =
            store::people::access::load_access(on, &with_authors).await.map_err(from_store)?;
        let risks = review_risks(&row);
        let ReviewSignatures { signed, signing } = self.signatures(on, id, &verdicts, &ids).await?;
        let newest = proposal.state == "open" && proposal.version == row.version;
        let closed = if newest { None } else { closed(on, &row, &proposal.state).await? };
        let facts = Facts {
            review: id,
            newest,
            closed,
            unresolved: None,
            left_holds: store::reviews::left_holds(on, id).await.map_err(from_store)?,
            // Requires a plan: see [`crate::reviews::impact`].
            lint: Vec::new(),
            moved_base: store::reviews::moved_base(on, id).await.map_err(from_store)?,
            moved_documents: moved_documents(present, &documents),
            moved_records: store::reviews::moved_records(on, id).await.map_err(from_store)?,
            same_epoch: row.epoch == present.head.epoch,
            policy: (row.policy, present.head.policy),
            approvals_needed: policy.approvals_for(&risks).max(row.approvals.unsigned_abs()),
            authors: authors.iter().map(|a| a.id).collect(),
            verdicts: verdicts.iter().map(to_verdict).collect(),
            people: people
                .iter()
                .map(|p| Reviewer { id: p.id, name: p.name.clone(), eligible: p.reviewer })
                .collect(),
            access: Access {
                cooling_hours: policy.cooling_hours,
                submitted: micros(row.at),
                ..access
            },
            signing,
            open_threads: store::reviews::open_threads(on, row.proposal)
                .await
                .map_err(from_store)?,
            helpers: helpers(on, id, &authors).await?,
        };
        Ok(Case { row, proposal, authors, verdicts, documents, signed, facts })
    }

    pub async fn review(&self, actor: &Actor, id: ReviewId) -> Result<ReviewView, Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.current_state().await?;
        let mut connection = self.connection().await?;
        let mut case = self.case(&mut connection, &present, id, false).await?;
        let context = self.plan_context(&mut connection, &present).await?;
        drop(connection);
        let planned_review = self.plan_review(actor, &context, &mut case).await?;
        let compute = self.compute_for(actor);
        let mut difference = changed(self, &compute, &case.row, &case.documents).await?;
        difference.unchanged = unchanged(&present, &case.documents);
        // A committed change is part of the present. Its ancestors may have changed since, so load
        // them as of the commit.
        let others = match case.row.target {
            Some(target) => {
                self.load_deployments_at(&present, BlueprintNumber(target.0 - 1)).await?
            }
            None => Arc::clone(&present.blueprint),
        };
        let (difference, pins) = load_pins(
            self,
            &compute,
            difference,
            &case.documents,
            (Arc::clone(&others), others),
            &present,
        )
        .await?;
        let contents =
            version_difference::changes(self, &compute, &difference, &pins, &present.catalog)
                .await?;
        let hidden_characters = self
            .cache
            .hidden_character_scans
            .begun(self, &compute, &difference, &pins, &present.catalog)
            .await?;
        let (role_values, more_role_values) =
            self.role_values(&compute, &present, &difference, &case.documents).await?;
        let (came_from, became) = self.replanned(&compute, id).await?;
        let mut connection = self.connection().await?;
        let base = store::reviews::base(&mut connection, id).await.map_err(from_store)?;
        let may_sign = store::people::passkeys::able(&mut connection, &[actor.person])
            .await
            .map_err(from_store)?;
        let mut summary: Summary =
            serde_json::from_value(case.row.summary.clone()).unwrap_or_default();
        let gate = evaluate(&facts_at_commit(&case));
        let impact = match planned_review.as_ref().and_then(|planned_review| {
            planned_review.planned.as_ref().map(|planned| (planned_review, planned))
        }) {
            Some((planned_review, planned)) => Some(
                self.current_impact(&mut connection, &present, planned, &planned_review.concerned)
                    .await?,
            ),
            None => None,
        };
        let fresh = impact.is_some();
        let effect_changes = came_from.as_ref().map(|replan| &replan.effect_changes);
        let differences = effect_changes
            .into_iter()
            .flat_map(|effect_changes| [&effect_changes.before, &effect_changes.after])
            .chain([&difference]);
        // Only the summary has the noderoles that were removed since.
        let mut noderoles = std::mem::take(&mut summary.noderoles);
        noderoles.extend(present.parents(differences));
        let waits = self.pending_after_commit(&present, &case, planned_review.as_deref());
        let parent = match case.row.target {
            Some(target) => BlueprintNumber(target.0 - 1),
            None => base.values().max().copied().unwrap_or(BlueprintNumber(0)),
        };
        Ok(ReviewView {
            review: id,
            proposal: case.row.proposal,
            version: case.row.version,
            title: case.row.title.clone(),
            deployment: deployment_name(&case, &summary)?,
            deployment_id: case.proposal.deployment,
            node: case.proposal.node,
            fqdn: node_name(&present, &case),
            state: if sent_back(&became) { ReviewState::SentBack } else { state(&case, &gate) },
            change_hash: case.row.change.to_string(),
            effects_hash: case.row.effects.to_string(),
            parent,
            blueprint: case.row.target,
            at: at(case.row.at),
            authors: case.authors.iter().map(|a| a.name.clone()).collect(),
            // If the number is unknown, any line may be severe.
            always_shown: summary.severe_count.unwrap_or(summary.lines.len()),
            requested: summary.requested,
            summary: summary.lines,
            risks: review_risks(&case.row).into_iter().collect(),
            contents,
            pins,
            role_values,
            more_role_values,
            hidden_characters,
            noderoles,
            difference,
            more: 0,
            next: None,
            required_by: summary.brought,
            deployments: summary.deployments,
            not_restored: summary.not_restored,
            clashes: summary.clashes,
            waves: summary.waves,
            impact: impact.unwrap_or(summary.impact),
            checks: planned_review
                .filter(|_| fresh)
                .map_or(summary.findings, |planned_review| planned_review.findings.clone()),
            current: fresh,
            pending_reasons: waits,
            verdicts: verdict_views(&case, actor.person),
            signature_needed: case.facts.signing.is_some(),
            may_sign: actor.token.is_none() && !may_sign.is_empty(),
            may_review: require_no_token(actor)
                .and_then(|()| check_can_review_or_explain(&case.facts, actor.person))
                .into(),
            may_commit: {
                let places = places(&mut connection, actor, id).await?;
                may_commit(actor, &present, &places, &case, &gate).into()
            },
            gate,
            type_to_commit: match requires_name(&review_risks(&case.row)) {
                true => Some(confirmation_name(&present, &case)?),
                false => None,
            },
            replaces: came_from,
            replaced_by: became,
        })
    }

    /// The effective values of deployment roles whose data or template the review changes.
    async fn role_values(
        &self,
        compute: &ComputeLimit,
        present: &CurrentState,
        difference: &Difference,
        documents: &[DocumentChange],
    ) -> Result<(Vec<RoleValueChange>, usize), Problem> {
        if role_values::changed_roles(difference).next().is_none() {
            return Ok((Vec::new(), 0));
        }
        let mut connection = self.connection().await?;
        let (was, is) = sides(&mut connection, documents).await?;
        drop(connection);
        let (blueprint, catalog) = (Arc::clone(&present.blueprint), Arc::clone(&present.catalog));
        let difference = difference.clone();
        compute
            .work(move || role_values::role_values(&difference, (&was, &is), &blueprint, &catalog))
            .await?
    }

    /// Gives an unsigned verdict.
    pub async fn give_verdict(
        &self,
        actor: &Actor,
        id: ReviewId,
        kind: VerdictKind,
        reason: String,
    ) -> Result<(), Problem> {
        self.add_signed_verdict(actor, id, kind, reason, None).await
    }

    /// Gives a verdict, signed with a passkey if there is a signature (see
    /// [`Control::verdict_options`]).
    pub async fn add_signed_verdict(
        &self,
        actor: &Actor,
        id: ReviewId,
        kind: VerdictKind,
        reason: String,
        signature: Option<Signature>,
    ) -> Result<(), Problem> {
        let result = self.insert_verdict(actor, id, (kind, reason), signature).await;
        if let Err(no) = &result
            && matches!(no.status, 401 | 403 | 409)
        {
            self.audit_refusal(actor, "review.verdict.refused", id, &no.code).await?;
        }
        result
    }

    async fn insert_verdict(
        &self,
        actor: &Actor,
        id: ReviewId,
        (kind, reason): (VerdictKind, String),
        signature: Option<Signature>,
    ) -> Result<(), Problem> {
        actor.require(Permission::Viewer)?;
        require_no_token(actor)
            .map_err(|no| Problem { code: "not_a_reviewer".into(), ..Problem::forbidden(no) })?;
        let reason = text::plain(&reason)?;
        if kind != VerdictKind::Approve && reason.is_empty() {
            return Err(Problem::invalid(
                "Enter a reason, so that the author knows what to change.",
            ));
        }
        if reason.chars().count() > limits::VERDICT_REASON {
            return Err(Problem::invalid(format!(
                "The reason is too long. Use at most {} characters.",
                limits::VERDICT_REASON
            )));
        }
        // Read before the lock, because this can take long. It determines how far the base has
        // moved, which no verdict depends on. Authors, version and reviewers are read under the
        // lock.
        let present = self.current_state().await?;
        let mut transaction = self.begin().await?;
        let row = store::reviews::find_review(&mut transaction, id).await.map_err(from_store)?;
        let row = row.ok_or_else(|| no_review(id))?;
        // Commits, edits and submissions take the same lock, so each is entirely before or after
        // the verdict.
        store::proposals::lock_proposal(&mut transaction, row.proposal)
            .await
            .map_err(from_store)?;
        let actor = &actor.revalidate(&mut transaction).await?;
        let case = self.case(&mut transaction, &present, id, false).await?;
        if let Err(no) = may_review(&case.facts, actor.person) {
            let message = check_can_review_or_explain(&case.facts, actor.person)
                .err()
                .unwrap_or_else(|| no.to_string());
            return Err(match no {
                VerdictError::Author => {
                    Problem { code: "author".into(), ..Problem::forbidden(message) }
                }
                VerdictError::NotAReviewer => Problem {
                    code: "not_a_reviewer".into(),
                    ..Problem::permission_missing(message)
                },
                VerdictError::NotNewest => Problem::conflict("not_newest", message),
            });
        }
        // Repeating a verdict has no effect, so a request that is sent twice gives one verdict.
        let last = case.verdicts.iter().rfind(|v| v.person == actor.person);
        let counts = kind != VerdictKind::Approve || case.facts.counts(actor.person);
        let is_repeated = last.is_some_and(|v| v.kind == kind && v.reason == reason && !v.void);
        if is_repeated && counts && signature.is_none() {
            return Ok(());
        }
        let verdict =
            store::reviews::insert_verdict(&mut transaction, id, actor.person, kind, reason)
                .await
                .map_err(from_store)?;
        let mut detail = json!({"verdict": kind, "change": case.row.change});
        if let Some(signature) = &signature {
            let passkey = sign(&mut transaction, actor, (id, verdict, kind), signature).await?;
            detail["passkey"] = json!(passkey);
        }
        store::audit::append_audit(
            &mut transaction,
            Some(actor.person),
            "review.verdict",
            &id.to_string(),
            &detail,
        )
        .await
        .map_err(from_store)?;
        notify_review(&mut transaction, id).await?;
        done(transaction).await
    }

    /// The deployments of a target.
    async fn load_deployments_at(
        &self,
        present: &CurrentState,
        target: BlueprintNumber,
    ) -> Result<Arc<Blueprint>, Problem> {
        let mut connection = self.connection().await?;
        let root =
            store::blueprints::blueprint_root(&mut connection, target).await.map_err(from_store)?;
        let root = root.ok_or_else(Problem::internal)?;
        load_deployments(&mut connection, root, &present.blueprint)
            .await
            .map(Arc::new)
            .map_err(from_store)
    }

    /// Audits a refused action on a review, once if it is repeated. It has a transaction of its
    /// own, because the refused one was rolled back.
    pub(crate) async fn audit_refusal(
        &self,
        actor: &Actor,
        action: &str,
        id: ReviewId,
        no: &str,
    ) -> Result<(), Problem> {
        let mut connection = self.connection().await?;
        store::reviews::append_refusal(&mut connection, actor.person, action, id, no)
            .await
            .map_err(from_store)
    }
}

pub(crate) async fn notify_review(on: &mut PgConnection, id: ReviewId) -> Result<(), Problem> {
    let topics = [Topic::Reviews, Topic::Review(id)];
    store::events::append_event_to_topics(on, &topics, &Live::Review { review: id })
        .await
        .map_err(from_store)
}

/// The deployments that a submission touches. Only loaded for people with permissions in single
/// deployments.
pub(crate) async fn places(
    on: &mut PgConnection,
    actor: &Actor,
    id: ReviewId,
) -> Result<BTreeSet<DeploymentId>, Problem> {
    if actor.is_unrestricted() {
        return Ok(BTreeSet::new());
    }
    store::reviews::touched(on, id).await.map_err(from_store)
}

/// Whether the actor may commit a change that touches these deployments.
pub(crate) fn commits(actor: &Actor, places: &BTreeSet<DeploymentId>) -> bool {
    [Permission::Operator, Permission::Reviewer]
        .into_iter()
        .any(|permission| actor.has_permission_in_all(permission, places))
}

/// Whether the actor may commit a change that touches these deployments now; if not, the reason.
pub(crate) fn may_commit(
    actor: &Actor,
    present: &CurrentState,
    places: &BTreeSet<DeploymentId>,
    case: &Case,
    gate: &GateResult,
) -> Result<(), String> {
    if let Some(target) = case.row.target {
        return Err(format!("This review is already committed, as blueprint {target}."));
    }
    if !commits(actor, places) {
        let has_some = [Permission::Operator, Permission::Reviewer]
            .into_iter()
            .any(|p| actor.has_permission_somewhere(p));
        let scope = match has_some {
            true => in_deployments(places.iter().map(|id| present.name_of(*id)).collect()),
            false => String::new(),
        };
        return Err(format!(
            "You cannot commit this review without the permission operator or reviewer{scope}. {}",
            case.facts.helpers.commit_hint()
        ));
    }
    match gate.closed_by() {
        Some(rule) => Err(rule.text.clone()),
        None => Ok(()),
    }
}

/// The people who can help with a review. If any author is an operator, no other operators are
/// listed: by submitting, they would become authors and could not approve.
async fn helpers(
    on: &mut PgConnection,
    id: ReviewId,
    authors: &[PersonRow],
) -> Result<ActionContacts, Problem> {
    let mut helpers = ActionContacts::default();
    for (name, permissions) in store::reviews::able(on, id).await.map_err(from_store)? {
        let has =
            |permission: Permission| permissions.iter().any(|word| word == permission.as_str());
        if has(Permission::Operator) || has(Permission::Reviewer) {
            helpers.committers.push(name.clone());
        }
        if has(Permission::Operator) {
            helpers.operators.push(name.clone());
        }
        if has(Permission::Admin) {
            helpers.administrators.push(name);
        }
    }
    let is_author = |name: &String| authors.iter().any(|author| author.name == *name);
    if helpers.operators.iter().any(is_author) {
        helpers.operators.retain(is_author);
    }
    Ok(helpers)
}

pub(crate) fn review_risks(row: &ReviewRow) -> BTreeSet<Risk> {
    parse_risks(&row.risks)
}

pub(crate) fn parse_risks(words: &[String]) -> BTreeSet<Risk> {
    Risk::ALL.into_iter().filter(|risk| words.iter().any(|word| word == risk.as_str())).collect()
}

/// The documents of the change that have changed since it was planned.
pub(crate) fn moved_documents(present: &CurrentState, documents: &[DocumentChange]) -> Vec<String> {
    let moved = documents.iter().filter(|change| match change {
        DocumentChange::Deployment { id, old, .. } => {
            present.blueprint.deployments.get(id).map(|d| d.hash) != *old
        }
        DocumentChange::Node { id, old, .. } => {
            present.blueprint.nodes.get(id).map(|n| n.hash) != *old
        }
    });
    moved.map(|change| named(present, change)).collect()
}

/// The name of a document's deployment or node.
pub(crate) fn named(present: &CurrentState, change: &DocumentChange) -> String {
    match change {
        DocumentChange::Deployment { id, .. } => present.name_of(*id),
        DocumentChange::Node { id, .. } => present
            .skeleton
            .nodes
            .get(id)
            .map_or_else(|| id.to_string(), |node| node.fqdn.to_string()),
    }
}

fn micros(at: OffsetDateTime) -> i64 {
    i64::try_from(at.unix_timestamp_nanos() / 1_000).unwrap_or_default()
}

fn to_verdict(row: &VerdictRow) -> Verdict {
    Verdict { person: row.person, kind: row.kind, at: micros(row.at), void: row.void }
}

/// How a review ended, if its own commit, a newer review or a discard ended it.
async fn closed(
    on: &mut PgConnection,
    row: &ReviewRow,
    proposal_state: &str,
) -> Result<Option<ClosedReview>, Problem> {
    if let Some(target) = row.target {
        return Ok(Some(ClosedReview::Committed(target)));
    }
    let newest = store::reviews::newest_of_proposal(on, row.proposal).await.map_err(from_store)?;
    Ok(match newest.filter(|newest| *newest > row.id) {
        Some(newest) => Some(ClosedReview::Replaced(newest)),
        None if proposal_state == "discarded" => Some(ClosedReview::Discarded),
        None => None,
    })
}

/// The facts as of the commit, if the review is committed: its own target moved its base.
fn facts_at_commit(case: &Case) -> Facts {
    let facts = case.facts.clone();
    if case.row.target.is_none() {
        return facts;
    }
    Facts {
        newest: true,
        closed: None,
        left_holds: Vec::new(),
        moved_base: Vec::new(),
        moved_documents: Vec::new(),
        moved_records: Vec::new(),
        same_epoch: true,
        policy: (facts.policy.0, facts.policy.0),
        ..facts
    }
}

/// The number of existing documents that the change does not touch.
fn unchanged(present: &CurrentState, documents: &[DocumentChange]) -> usize {
    let all = present.blueprint.deployments.len() + present.blueprint.nodes.len();
    let touched = documents.iter().filter(|change| match change {
        DocumentChange::Deployment { id, .. } => present.blueprint.deployments.contains_key(id),
        DocumentChange::Node { id, .. } => present.blueprint.nodes.contains_key(id),
    });
    all - touched.count()
}

/// The policies before and after, if the submission sets one.
pub(crate) async fn policies(
    on: &mut PgConnection,
    row: &ReviewRow,
) -> Result<Option<Sides<Policy>>, Problem> {
    let Some(hash) = row.new_policy else { return Ok(None) };
    let old = store::blueprints::policy(on, row.policy).await.map_err(from_store)?;
    let bodies = store::catalog::bodies(on, &[hash]).await.map_err(from_store)?;
    let new = bodies.get(&hash).ok_or_else(Problem::internal)?;
    let new: Policy = serde_json::from_slice(new).map_err(|error| {
        tracing::error!(%error, "cannot read the policy of a review");
        Problem::internal()
    })?;
    Ok(Sides::differing(old.as_ref(), Some(&new)))
}

/// The changes of a submission relative to its own base: documents and policy.
pub(crate) async fn changed(
    control: &Control,
    compute: &ComputeLimit,
    row: &ReviewRow,
    documents: &[DocumentChange],
) -> Result<Difference, Problem> {
    let mut connection = control.connection().await?;
    let policy = policies(&mut connection, row).await?;
    drop(connection);
    Ok(Difference { policy, ..shown(control, compute, documents).await? })
}

/// The difference as submitted, computed from the documents themselves.
pub(crate) async fn shown(
    control: &Control,
    compute: &ComputeLimit,
    documents: &[DocumentChange],
) -> Result<Difference, Problem> {
    let mut connection = control.connection().await?;
    let (was, is) = sides(&mut connection, documents).await?;
    drop(connection);
    let documents = documents.to_vec();
    compute.work(move || difference_of(&was, &is, &documents)).await?
}

/// The difference between the two sides of a change.
pub(crate) fn difference_of(
    was: &Blueprint,
    is: &Blueprint,
    documents: &[DocumentChange],
) -> Result<Difference, Problem> {
    difference(was, is, documents)
        .map_err(|error| Problem::conflict("data", text::sentence(&error.to_string())))
}

/// The documents that a change touches, before and after.
pub(crate) async fn sides(
    on: &mut PgConnection,
    documents: &[DocumentChange],
) -> Result<(Blueprint, Blueprint), Problem> {
    let hashes: Vec<_> = documents
        .iter()
        .flat_map(|change| match change {
            DocumentChange::Deployment { old, new, .. } | DocumentChange::Node { old, new, .. } => {
                [*old, *new]
            }
        })
        .flatten()
        .collect();
    let bodies = store::catalog::bodies(on, &hashes).await.map_err(from_store)?;
    let (mut was, mut is) = (Blueprint::default(), Blueprint::default());
    for change in documents {
        let sides = match change {
            DocumentChange::Deployment { old, new, .. } => {
                [(&mut was, *old, true), (&mut is, *new, true)]
            }
            DocumentChange::Node { old, new, .. } => {
                [(&mut was, *old, false), (&mut is, *new, false)]
            }
        };
        for (blueprint, hash, deployment) in sides {
            let Some(hash) = hash else { continue };
            let body = bodies.get(&hash).ok_or_else(Problem::internal)?;
            let loaded = match deployment {
                true => blueprint.load_deployment(hash, body),
                false => blueprint.load_node(hash, body),
            };
            loaded.map_err(|error| {
                tracing::error!(%error, "cannot read a document of a review");
                Problem::internal()
            })?;
        }
    }
    Ok((was, is))
}

/// The difference with its pins, each with the effective version before and after. `others` are the
/// blueprints that contain the deployments outside of the change, for both sides.
pub(crate) async fn load_pins(
    control: &Control,
    compute: &ComputeLimit,
    difference: Difference,
    documents: &[DocumentChange],
    others: (Arc<Blueprint>, Arc<Blueprint>),
    present: &CurrentState,
) -> Result<(Difference, Vec<PinChange>), Problem> {
    if difference.deployments.iter().all(|deployment| deployment.barclamps.is_empty()) {
        return Ok((difference, Vec::new()));
    }
    let is_deployment =
        |change: &&DocumentChange| matches!(change, DocumentChange::Deployment { .. });
    let documents: Vec<DocumentChange> = documents.iter().filter(is_deployment).cloned().collect();
    let mut connection = control.connection().await?;
    let (was, is) = sides(&mut connection, &documents).await?;
    drop(connection);
    let catalog = Arc::clone(&present.catalog);
    compute
        .work(move || {
            let old = version_difference::Side { touched: &was, others: &others.0 };
            let new = version_difference::Side { touched: &is, others: &others.1 };
            let pins = version_difference::pins(&difference, old, new, &catalog);
            (difference, pins)
        })
        .await
}

fn deployment_name(case: &Case, summary: &Summary) -> Result<DeploymentName, Problem> {
    // The name at the time of the submission. The deployment may already have been removed then, if
    // the proposal's node moved elsewhere.
    if let Some(name) = summary.deployments.get(&case.proposal.deployment) {
        return Ok(name.clone());
    }
    DeploymentName::parse(&case.proposal.deployment_name).map_err(|_| Problem::internal())
}

/// The name to type for a destructive commit: that of the proposal's node or deployment.
pub(crate) fn confirmation_name(present: &CurrentState, case: &Case) -> Result<String, Problem> {
    let summary: Summary = serde_json::from_value(case.row.summary.clone()).unwrap_or_default();
    match node_name(present, case) {
        Some(node) => Ok(node),
        None => Ok(deployment_name(case, &summary)?.to_string()),
    }
}

/// The name of the proposal's node, or its id if the node was removed.
fn node_name(present: &CurrentState, case: &Case) -> Option<String> {
    let node = case.proposal.node?;
    Some(
        present
            .skeleton
            .nodes
            .get(&node)
            .map_or_else(|| node.to_string(), |node| node.fqdn.to_string()),
    )
}

fn state(case: &Case, gate: &GateResult) -> ReviewState {
    state_of(case.row.target.is_some(), case.proposal.state == "discarded", gate)
}

/// The state of a submission: the state of its gate, unless it is committed or discarded.
pub(crate) fn state_of(committed: bool, discarded: bool, gate: &GateResult) -> ReviewState {
    if committed {
        return ReviewState::Committed;
    }
    if discarded {
        return ReviewState::Discarded;
    }
    match ReviewStatus::of(gate) {
        ReviewStatus::Replaced => ReviewState::Replaced,
        ReviewStatus::Stale => ReviewState::Stale,
        ReviewStatus::ChangesRequested => ReviewState::ChangesRequested,
        ReviewStatus::Invalid => ReviewState::Invalid,
        ReviewStatus::Unreviewed => ReviewState::Waiting,
        ReviewStatus::ThreadsOpen => ReviewState::ThreadsOpen,
        ReviewStatus::Open => ReviewState::Open,
    }
}

/// Whether the base moved and the edits could not be planned again.
fn sent_back(became: &Option<Replanned>) -> bool {
    became.as_ref().is_some_and(|became| became.after.is_none())
}

fn verdict_views(case: &Case, reader: PersonId) -> Vec<VerdictView> {
    let valid = case.verdicts.iter().enumerate().filter(|(_, verdict)| !verdict.void);
    let last: BTreeMap<PersonId, usize> = valid.map(|(n, v)| (v.person, n)).collect();
    let counts = |n: usize, verdict: &VerdictRow| {
        last.get(&verdict.person) == Some(&n)
            && !case.facts.authors.contains(&verdict.person)
            && case.facts.people.iter().any(|p| p.id == verdict.person && p.eligible)
            && (verdict.kind != VerdictKind::Approve || case.facts.counts(verdict.person))
    };
    let view = |(n, verdict): (usize, &VerdictRow)| VerdictView {
        person: verdict.name.clone(),
        kind: verdict.kind,
        reason: verdict.reason.clone(),
        at: at(verdict.at),
        counts: counts(n, verdict),
        own: verdict.person == reader,
        signed: case.signed.get(&verdict.id).cloned(),
    };
    case.verdicts.iter().enumerate().rev().map(view).collect()
}
