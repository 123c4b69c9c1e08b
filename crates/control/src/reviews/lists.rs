//! Lists of reviews and proposals, and the number of reviews that wait for a person.
//!
//! A list takes a fixed number of queries. Each row is evaluated by the engine's gate, as on the
//! review's own page. Facts that require a plan come last, from [`crate::reviews::impact`], and
//! only where they matter. A plan can block an open gate but never open a blocked one. So a review
//! that does not wait for the reader without a plan does not wait for them with it either.
//!
//! Every page has a badge with the number of reviews that wait for its reader. It is the most
//! frequent request. Therefore it waits for plans only for a moment, counts at most [`MAX_COUNT`],
//! and says when there may be more. It never counts too many.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::Problem;
use api::listing::{Limit, PAGE_SIZE};
use api::proposals::{ProposalPage, ProposalSort, ProposalSummary, ProposalsQuery};
use api::reviews::{
    ApprovalCount, MAX_TEXT_CHARS, ReviewCount, ReviewFilter, ReviewPage, ReviewStateFilter,
    ReviewsQuery,
};
use api::reviews::{ReviewSort, ReviewState, ReviewSummary};
use engine::gate::access::Access;
use engine::gate::contacts::ActionContacts;
use engine::gate::review_status::{ReviewAction, next_action};
use engine::gate::{Facts, Reviewer, Signing, evaluate};
use engine::ids::{DeploymentId, DeploymentName, PersonId, ReviewId};
use sqlx::PgConnection;
use store::proposals::{FindProposals, ProposalLine};
use store::reviews::{FactsRow, Find, Hit, LineRow, ReviewHits, ReviewOutcome, ReviewerRow};
use tokio::time::Instant;

use crate::current::CurrentState;
use crate::people::{Actor, Permission};
use crate::problems::from_store;
use crate::proposals::proposal::scope_view;
use crate::reviews::impact::PlanContext;
use crate::reviews::review::{commits, parse_risks, state_of};
use crate::reviews::signatures::require_no_token;
use crate::text::{self, at};
use crate::{Control, cursor};

/// The badge counts up to this number.
pub const MAX_COUNT: usize = 100;
/// Open submissions that one count or one page examines.
const MAX_EXAMINED: usize = 1_000;
/// How long the badge waits for plans.
const MOMENT: Duration = Duration::from_secs(1);

/// The reader of a list.
struct Reader<'a> {
    actor: &'a Actor,
    /// All people who gave a verdict, and the reader, with their current permissions.
    people: Vec<ReviewerRow>,
    /// The access of these people and of the authors.
    access: Access,
    /// Those of these people who have a confirmed passkey.
    able: BTreeSet<PersonId>,
    /// The deployments that each submission touches. Filled only if a person's permission depends
    /// on them.
    places: BTreeMap<ReviewId, BTreeSet<DeploymentId>>,
}

impl Reader<'_> {
    /// The facts that need no plan. They contain only the reader and the people with a verdict,
    /// because a list names no other people who could act.
    fn facts(&self, context: &PlanContext, row: &FactsRow) -> Facts {
        let reviewers: BTreeSet<PersonId> =
            row.verdicts.iter().map(|verdict| verdict.person).collect();
        let is_relevant = |person: &&ReviewerRow| {
            person.id == self.actor.person || reviewers.contains(&person.id)
        };
        let places = self.places(row.id);
        let covers = |p: &ReviewerRow| {
            !p.inside.is_empty() && !places.is_empty() && places.is_subset(&p.inside)
        };
        let reviewer = |p: &ReviewerRow| Reviewer {
            id: p.id,
            name: p.name.clone(),
            eligible: p.everywhere || covers(p),
        };
        let required = context.policy.approvals_for(&parse_risks(&row.risks));
        Facts {
            review: row.id,
            newest: row.newest,
            closed: None,
            unresolved: None,
            left_holds: row.left_holds.clone(),
            lint: Vec::new(),
            moved_base: row.moved_base.clone(),
            moved_documents: Vec::new(),
            moved_records: Vec::new(),
            same_epoch: row.epoch == context.present.head.epoch,
            policy: (row.policy, context.present.head.policy),
            approvals_needed: required.max(row.approvals.unsigned_abs()),
            authors: row.authors.clone(),
            verdicts: row.verdicts.clone(),
            people: self.people.iter().filter(is_relevant).map(reviewer).collect(),
            access: Access {
                cooling_hours: context.policy.cooling_hours,
                submitted: row.submitted,
                ..self.access.clone()
            },
            signing: row.signed.clone().map(|signed| Signing { signed, able: self.able.clone() }),
            open_threads: row.threads.clone(),
            helpers: ActionContacts::default(),
        }
    }

    fn places(&self, id: ReviewId) -> &BTreeSet<DeploymentId> {
        const NOWHERE: &BTreeSet<DeploymentId> = &BTreeSet::new();
        self.places.get(&id).unwrap_or(NOWHERE)
    }

    fn next_action(&self, facts: &Facts) -> Option<ReviewAction> {
        let commits = commits(self.actor, self.places(facts.review));
        let action = next_action(facts, &evaluate(facts), self.actor.person, commits);
        action.filter(|action| {
            *action != ReviewAction::Review || require_no_token(self.actor).is_ok()
        })
    }
}

impl Control {
    async fn reader<'a>(
        &self,
        on: &mut PgConnection,
        actor: &'a Actor,
        rows: &[FactsRow],
    ) -> Result<Reader<'a>, Problem> {
        let reviewers = rows.iter().flat_map(|row| &row.verdicts).map(|verdict| verdict.person);
        let people: BTreeSet<PersonId> = reviewers.chain([actor.person]).collect();
        let people: Vec<PersonId> = people.into_iter().collect();
        let authors = rows.iter().flat_map(|row| row.authors.iter().copied());
        let with_authors: BTreeSet<PersonId> = people.iter().copied().chain(authors).collect();
        let with_authors: Vec<PersonId> = with_authors.into_iter().collect();
        let access =
            store::people::access::load_access(on, &with_authors).await.map_err(from_store)?;
        let able = store::people::passkeys::able(on, &people).await.map_err(from_store)?;
        let people = store::reviews::review_rights(on, &people).await.map_err(from_store)?;
        let needs_deployments =
            !actor.is_unrestricted() || people.iter().any(|person| !person.inside.is_empty());
        let ids: Vec<ReviewId> =
            if needs_deployments { rows.iter().map(|row| row.id).collect() } else { Vec::new() };
        let places = match ids.is_empty() {
            true => BTreeMap::new(),
            false => store::reviews::affected_deployments_by_review(on, &ids)
                .await
                .map_err(from_store)?,
        };
        Ok(Reader { actor, people, access, able, places })
    }

    /// The number of submissions that this person can review or commit now. The caller must not
    /// have a connection.
    pub(crate) async fn waiting_for(
        &self,
        actor: &Actor,
        present: &CurrentState,
    ) -> Result<ReviewCount, Problem> {
        let mut connection = self.connection().await?;
        let mut rows = store::reviews::open_review_facts(&mut connection, MAX_EXAMINED as i64 + 1)
            .await
            .map_err(from_store)?;
        if rows.is_empty() {
            return Ok(ReviewCount::default());
        }
        let has_more = rows.len() > MAX_EXAMINED;
        rows.truncate(MAX_EXAMINED);
        let context = self.plan_context(&mut connection, present).await?;
        let reader = self.reader(&mut connection, actor, &rows).await?;
        drop(connection);
        let facts = rows.iter().map(|row| reader.facts(&context, row));
        let mut actionable: Vec<Facts> =
            facts.filter(|facts| reader.next_action(facts).is_some()).collect();
        let (end, mut requested) = (Instant::now() + MOMENT, Vec::new());
        loop {
            let (mut count, mut unknown) = (0, Vec::new());
            for facts in &mut actionable {
                match self.cached_plan_facts(&context, facts.review) {
                    None => unknown.push(facts.review),
                    Some(text) => {
                        text.add_to(facts);
                        count += usize::from(reader.next_action(facts).is_some());
                    }
                }
            }
            if count > MAX_COUNT {
                return Ok(ReviewCount { count: MAX_COUNT, more: true });
            }
            if unknown.is_empty() || Instant::now() >= end {
                return Ok(ReviewCount { count, more: has_more || !unknown.is_empty() });
            }
            unknown.truncate(MAX_COUNT + 1 - count);
            // An impact calculation that fails is logged; the next page requests it again.
            if unknown == requested {
                return Ok(ReviewCount { count, more: true });
            }
            self.plan_reviews(&context, &unknown, end).await;
            requested = unknown;
        }
    }

    /// A page of the list of reviews.
    pub async fn reviews(
        &self,
        actor: &Actor,
        query: &ReviewsQuery,
    ) -> Result<ReviewPage, Problem> {
        actor.require(Permission::Viewer)?;
        let text = text::plain(&query.filter)?;
        if text.chars().count() > MAX_TEXT_CHARS {
            return Err(Problem::invalid(format!(
                "The search text is too long. Use at most {MAX_TEXT_CHARS} characters."
            )));
        }
        let sort = match query.sort.by {
            ReviewSort::Submitted => Hit::BY_ID,
            ReviewSort::Title => Hit::BY_TITLE,
        };
        let mut page = cursor::stored(query.sort, query.before.as_ref(), query.limit, sort)?;
        let size = Limit::rows(query.limit, PAGE_SIZE);
        page.limit =
            if query.involvement == ReviewFilter::ForMe { MAX_EXAMINED } else { size } as u64;
        let present = self.current_state().await?;
        let deployment = Some(query.deployment.trim()).filter(|name| !name.is_empty());
        let find = Find {
            outcome: match (query.involvement, query.state) {
                (ReviewFilter::ForMe, _) | (_, ReviewStateFilter::Open) => ReviewOutcome::Open,
                (_, ReviewStateFilter::Committed) => ReviewOutcome::Target,
                (_, ReviewStateFilter::Discarded) => ReviewOutcome::Discarded,
                (_, ReviewStateFilter::Any) => ReviewOutcome::Anything,
            },
            author: (query.involvement == ReviewFilter::Mine).then_some(actor.person),
            deployment: deployment.map(|name| present.named(name)).transpose()?,
            text: Some(text).filter(|text| !text.is_empty()),
        };
        let mut connection = self.connection().await?;
        let ReviewHits { hits, next } = store::reviews::find_reviews(&mut connection, &find, &page)
            .await
            .map_err(from_store)?;
        let ids: Vec<ReviewId> = hits.iter().map(|hit| ReviewId(hit.id)).collect();
        let rows = store::reviews::facts_of(&mut connection, &ids).await.map_err(from_store)?;
        let context = self.plan_context(&mut connection, &present).await?;
        let reader = self.reader(&mut connection, actor, &rows).await?;
        drop(connection);
        let rows: BTreeMap<ReviewId, FactsRow> =
            rows.into_iter().map(|row| (row.id, row)).collect();
        let (mut visible, mut next, mut last) = (Vec::new(), next, None::<&Hit>);
        for (hit, row) in hits.iter().filter_map(|hit| Some((hit, rows.get(&ReviewId(hit.id))?))) {
            let mut facts = reader.facts(&context, row);
            if query.involvement == ReviewFilter::ForMe && reader.next_action(&facts).is_none() {
                continue;
            }
            if row.newest && row.target.is_none() && facts.moved_base.is_empty() {
                self.list_facts(Some(actor.person), &context, row.id).await?.add_to(&mut facts);
            }
            if query.involvement == ReviewFilter::ForMe && reader.next_action(&facts).is_none() {
                continue;
            }
            if visible.len() == size {
                next = last.cloned();
                break;
            }
            let gate = evaluate(&facts);
            visible.push((
                row.id,
                state_of(row.target.is_some(), row.discarded, &gate),
                ApprovalCount { valid: gate.approvals, required: gate.needed },
            ));
            last = Some(hit);
        }
        let ids: Vec<ReviewId> = visible.iter().map(|(id, ..)| *id).collect();
        let mut connection = self.connection().await?;
        let lines = store::reviews::lines_of(&mut connection, &ids).await.map_err(from_store)?;
        let mut lines: BTreeMap<ReviewId, LineRow> =
            lines.into_iter().map(|line| (line.id, line)).collect();
        let shown = visible
            .into_iter()
            .filter_map(|(id, state, approvals)| Some((lines.remove(&id)?, state, approvals)));
        let reviews = shown
            .map(|(line, state, approvals)| summary(line, state, approvals))
            .collect::<Result<_, _>>()?;
        let next = next.map(|hit| cursor::after(query.sort, &page, &hit));
        Ok(ReviewPage { reviews, next })
    }

    /// A page of the list of open proposals.
    pub async fn proposals(
        &self,
        actor: &Actor,
        query: &ProposalsQuery,
    ) -> Result<ProposalPage, Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.current_state().await?;
        let deployment = Some(query.deployment.trim()).filter(|name| !name.is_empty());
        let sort = match query.sort.by {
            ProposalSort::Created => ProposalLine::BY_ID,
            ProposalSort::Deployment => ProposalLine::BY_DEPLOYMENT,
        };
        let page = cursor::stored(query.sort, query.before.as_ref(), query.limit, sort)?;
        let find = FindProposals {
            by: query.mine.then_some(actor.person),
            drafts: query.drafts,
            deployment: deployment.map(|name| present.named(name)).transpose()?,
            text: text::filter_text(&query.filter)?.map(str::to_owned),
        };
        let mut connection = self.connection().await?;
        let mut rows = store::proposals::find_proposals(&mut connection, &find, &page)
            .await
            .map_err(from_store)?;
        let next = cursor::cut(&mut rows, query.sort, &page);
        let summary = |row: ProposalLine| {
            Ok(ProposalSummary {
                id: row.proposal.id,
                scope: scope_view(&present, &row.proposal)?,
                version: row.proposal.version,
                authors: row.authors,
                edits: row.edits,
                review: row.review,
            })
        };
        Ok(ProposalPage {
            proposals: rows.into_iter().map(summary).collect::<Result<_, Problem>>()?,
            next,
        })
    }
}

fn summary(
    line: LineRow,
    state: ReviewState,
    approvals: ApprovalCount,
) -> Result<ReviewSummary, Problem> {
    let replaced = state == ReviewState::Replaced;
    let (node, fqdn) = line.node.unzip();
    Ok(ReviewSummary {
        review: line.id,
        title: line.title,
        deployment: DeploymentName::parse(&line.deployment).map_err(|_| Problem::internal())?,
        deployment_id: line.deployment_id,
        node,
        fqdn,
        authors: line.authors,
        at: at(line.at),
        summary: line.summary,
        state: if replaced && line.sent_back { ReviewState::SentBack } else { state },
        approvals,
    })
}
