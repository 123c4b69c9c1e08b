//! Lists of reviews and of proposals, and how many reviews wait for somebody.
//!
//! A list is read by a fixed number of statements, and the engine's gate is asked about each row as the review's own page asks it. What
//! only a plan tells is [weighed](crate::weighing) last, and only where it makes a difference: it can shut a gate that is open, never open
//! one, so what is not somebody's turn without it is not their turn with it.
//!
//! Every page has a badge with the number of reviews that wait for its reader. That is asked for more often than anything else, so it
//! waits for plans only for a moment, counts to [`COUNTED`], and says when there may be more. It never says too many.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::Problem;
use api::console::{PAGE_SIZE, ProposalSummary, ReviewState, ReviewSummary};
use api::listing::Cursor;
use api::reviews::{
    Fate, LONGEST_TEXT, ProposalPage, ProposalsWanted, ReviewPage, ReviewsWanted, Waiting, Whose,
};
use engine::gate::access::Access;
use engine::gate::standing::{Turn, turn};
use engine::gate::who::Helpers;
use engine::gate::{Facts, Reviewer, Signing, evaluate};
use engine::ids::{DeploymentId, DeploymentName, PersonId, SubmissionId};
use sqlx::PgConnection;
use store::intent::{self, Became, FactsRow, Find, FindProposals, Found, Hit, JudgeRow, LineRow};
use tokio::time::Instant;

use crate::people::{Actor, Permission};
use crate::present::Present;
use crate::problems::from_store;
use crate::proposals::scope_view;
use crate::reviewing::{commits, no_token, risks_by_word, state_of};
use crate::weighing::Ground;
use crate::words::{self, at};
use crate::{Control, paging};

/// So many are counted; more are said to be more.
pub const COUNTED: usize = 100;
/// Open submissions that are looked at for one count or one page.
const LOOKED: usize = 1_000;
/// How long a badge waits for plans.
const MOMENT: Duration = Duration::from_secs(1);

/// Whoever looks at a list.
struct Reader<'a> {
    actor: &'a Actor,
    /// Everybody who gave a verdict, and the reader, as they are now.
    people: Vec<JudgeRow>,
    /// Who gave them access.
    access: Access,
    /// Those of them with a confirmed passkey.
    able: BTreeSet<PersonId>,
    /// What each submission touches, if that makes a difference for one of them.
    places: BTreeMap<SubmissionId, BTreeSet<DeploymentId>>,
}

impl Reader<'_> {
    /// The facts without what only a plan tells. Of people only those are in it who matter to where it stands: a list does not say who
    /// else could act.
    fn facts(&self, ground: &Ground, row: &FactsRow) -> Facts {
        let judges: BTreeSet<PersonId> =
            row.verdicts.iter().map(|verdict| verdict.person).collect();
        let matters =
            |person: &&JudgeRow| person.id == self.actor.person || judges.contains(&person.id);
        let places = self.places(row.id);
        let covers = |p: &JudgeRow| {
            !p.inside.is_empty() && !places.is_empty() && places.is_subset(&p.inside)
        };
        let reviewer = |p: &JudgeRow| Reviewer {
            id: p.id,
            name: p.name.clone(),
            eligible: p.everywhere || covers(p),
        };
        let asked = ground.policy.approvals_for(&risks_by_word(&row.risks));
        Facts {
            submission: row.id,
            newest: row.newest,
            unresolved: None,
            lint: Vec::new(),
            moved_base: row.moved_base.clone(),
            moved_documents: Vec::new(),
            moved_records: Vec::new(),
            same_epoch: row.epoch == ground.present.head.epoch,
            policy: (row.policy, ground.present.head.policy),
            approvals_needed: asked.max(row.approvals.unsigned_abs()),
            authors: row.authors.clone(),
            verdicts: row.verdicts.clone(),
            people: self.people.iter().filter(matters).map(reviewer).collect(),
            access: Access {
                cooling_hours: ground.policy.cooling_hours,
                submitted: row.submitted,
                ..self.access.clone()
            },
            signing: row.signed.clone().map(|signed| Signing { signed, able: self.able.clone() }),
            open_threads: row.threads.clone(),
            helpers: Helpers::default(),
        }
    }

    fn places(&self, id: SubmissionId) -> &BTreeSet<DeploymentId> {
        const NOWHERE: &BTreeSet<DeploymentId> = &BTreeSet::new();
        self.places.get(&id).unwrap_or(NOWHERE)
    }

    fn turn(&self, facts: &Facts) -> Option<Turn> {
        let commits = commits(self.actor, self.places(facts.submission));
        let turn = turn(facts, &evaluate(facts), self.actor.person, commits);
        turn.filter(|turn| *turn != Turn::Judge || no_token(self.actor).is_ok())
    }
}

impl Control {
    async fn reader<'a>(
        &self,
        on: &mut PgConnection,
        actor: &'a Actor,
        rows: &[FactsRow],
    ) -> Result<Reader<'a>, Problem> {
        let judges = rows.iter().flat_map(|row| &row.verdicts).map(|verdict| verdict.person);
        let people: BTreeSet<PersonId> = judges.chain([actor.person]).collect();
        let people: Vec<PersonId> = people.into_iter().collect();
        let access = store::access::access_of(on, &people).await.map_err(from_store)?;
        let able = store::passkeys::able(on, &people).await.map_err(from_store)?;
        let people = intent::judges(on, &people).await.map_err(from_store)?;
        let asks_where =
            !actor.is_everywhere() || people.iter().any(|person| !person.inside.is_empty());
        let ids: Vec<SubmissionId> =
            if asks_where { rows.iter().map(|row| row.id).collect() } else { Vec::new() };
        let places = match ids.is_empty() {
            true => BTreeMap::new(),
            false => intent::touched_each(on, &ids).await.map_err(from_store)?,
        };
        Ok(Reader { actor, people, access, able, places })
    }

    /// How many submissions this person could judge or commit now. The caller has no connection.
    pub(crate) async fn waiting_for(
        &self,
        actor: &Actor,
        present: &Present,
    ) -> Result<Waiting, Problem> {
        let mut connection = self.connection().await?;
        let mut rows =
            intent::open_facts(&mut connection, LOOKED as i64 + 1).await.map_err(from_store)?;
        if rows.is_empty() {
            return Ok(Waiting::default());
        }
        let beyond = rows.len() > LOOKED;
        rows.truncate(LOOKED);
        let ground = self.ground(&mut connection, present).await?;
        let reader = self.reader(&mut connection, actor, &rows).await?;
        drop(connection);
        let facts = rows.iter().map(|row| reader.facts(&ground, row));
        let mut turns: Vec<Facts> = facts.filter(|facts| reader.turn(facts).is_some()).collect();
        let (end, mut asked) = (Instant::now() + MOMENT, Vec::new());
        loop {
            let (mut count, mut unknown) = (0, Vec::new());
            for facts in &mut turns {
                match self.said_before(&ground, facts.submission) {
                    None => unknown.push(facts.submission),
                    Some(said) => {
                        said.tell(facts);
                        count += usize::from(reader.turn(facts).is_some());
                    }
                }
            }
            if count > COUNTED {
                return Ok(Waiting { count: COUNTED, more: true });
            }
            if unknown.is_empty() || Instant::now() >= end {
                return Ok(Waiting { count, more: beyond || !unknown.is_empty() });
            }
            unknown.truncate(COUNTED + 1 - count);
            // What can't be weighed now is logged, and asked again by the next page.
            if unknown == asked {
                return Ok(Waiting { count, more: true });
            }
            self.weigh_all(&ground, &unknown, end).await;
            asked = unknown;
        }
    }

    /// A page of the list of reviews.
    pub async fn reviews(
        &self,
        actor: &Actor,
        wanted: &ReviewsWanted,
    ) -> Result<ReviewPage, Problem> {
        actor.require(Permission::Viewer)?;
        let text = words::plain(&wanted.text)?;
        if text.chars().count() > LONGEST_TEXT {
            return Err(Problem::invalid(format!("Search for at most {LONGEST_TEXT} characters.")));
        }
        let behind = paging::behind(wanted.sort, wanted.before.as_ref())?;
        let present = self.present().await?;
        let deployment = Some(wanted.deployment.trim()).filter(|name| !name.is_empty());
        let find = Find {
            became: match (wanted.whose, wanted.fate) {
                (Whose::ForMe, _) | (_, Fate::Open) => Became::Open,
                (_, Fate::Committed) => Became::Target,
                (_, Fate::Discarded) => Became::Discarded,
                (_, Fate::Any) => Became::Anything,
            },
            author: (wanted.whose == Whose::Mine).then_some(actor.person),
            deployment: deployment.map(|name| present.named(name)).transpose()?,
            text: Some(text).filter(|text| !text.is_empty()),
            order: wanted.sort,
            behind: behind.as_deref(),
        };
        let mut connection = self.connection().await?;
        let most = if wanted.whose == Whose::ForMe { LOOKED } else { PAGE_SIZE };
        let Found { hits, next } =
            intent::find_submissions(&mut connection, &find, most).await.map_err(from_store)?;
        let ids: Vec<SubmissionId> = hits.iter().map(|hit| SubmissionId(hit.id)).collect();
        let rows = intent::facts_of(&mut connection, &ids).await.map_err(from_store)?;
        let ground = self.ground(&mut connection, &present).await?;
        let reader = self.reader(&mut connection, actor, &rows).await?;
        drop(connection);
        let rows: BTreeMap<SubmissionId, FactsRow> =
            rows.into_iter().map(|row| (row.id, row)).collect();
        let (mut stands, mut next, mut last) = (Vec::new(), next, None::<&Hit>);
        for (hit, row) in
            hits.iter().filter_map(|hit| Some((hit, rows.get(&SubmissionId(hit.id))?)))
        {
            let mut facts = reader.facts(&ground, row);
            if wanted.whose == Whose::ForMe && reader.turn(&facts).is_none() {
                continue;
            }
            if row.newest && row.target.is_none() && facts.moved_base.is_empty() {
                self.said(Some(actor.person), &ground, row.id).await?.tell(&mut facts);
            }
            if wanted.whose == Whose::ForMe && reader.turn(&facts).is_none() {
                continue;
            }
            if stands.len() == PAGE_SIZE {
                next = last.cloned();
                break;
            }
            let gate = evaluate(&facts);
            stands.push((
                row.id,
                state_of(row.target.is_some(), row.discarded, &gate),
                (gate.approvals, gate.needed),
            ));
            last = Some(hit);
        }
        let ids: Vec<SubmissionId> = stands.iter().map(|(id, ..)| *id).collect();
        let mut connection = self.connection().await?;
        let lines = intent::lines_of(&mut connection, &ids).await.map_err(from_store)?;
        let mut lines: BTreeMap<SubmissionId, LineRow> =
            lines.into_iter().map(|line| (line.id, line)).collect();
        let stood = stands
            .into_iter()
            .filter_map(|(id, state, approvals)| Some((lines.remove(&id)?, state, approvals)));
        let reviews = stood
            .map(|(line, state, approvals)| summary(line, state, approvals))
            .collect::<Result<_, _>>()?;
        let next = next.map(|hit: Hit| Cursor::behind(wanted.sort, &hit.keys(wanted.sort.by)));
        Ok(ReviewPage { reviews, next })
    }

    /// A page of the list of open proposals.
    pub async fn proposals(
        &self,
        actor: &Actor,
        wanted: &ProposalsWanted,
    ) -> Result<ProposalPage, Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.present().await?;
        let deployment = Some(wanted.deployment.trim()).filter(|name| !name.is_empty());
        let find = FindProposals {
            by: wanted.mine.then_some(actor.person),
            drafts: wanted.drafts,
            deployment: deployment.map(|name| present.named(name)).transpose()?,
            text: words::asked(&wanted.text)?.map(str::to_owned),
            order: wanted.sort,
            behind: paging::behind(wanted.sort, wanted.before.as_ref())?,
        };
        let mut connection = self.connection().await?;
        let mut rows = intent::find_proposals(&mut connection, &find).await.map_err(from_store)?;
        let more = rows.len() > PAGE_SIZE;
        rows.truncate(PAGE_SIZE);
        let summary = |row: intent::ProposalLine| {
            Ok(ProposalSummary {
                id: row.proposal.id,
                scope: scope_view(&present, &row.proposal)?,
                version: row.proposal.version,
                authors: row.authors,
                edits: row.edits,
                submission: row.submission,
            })
        };
        let next = rows
            .last()
            .filter(|_| more)
            .map(|row| Cursor::behind(wanted.sort, &row.keys(wanted.sort.by)));
        Ok(ProposalPage {
            proposals: rows.into_iter().map(summary).collect::<Result<_, Problem>>()?,
            next,
        })
    }
}

fn summary(
    line: LineRow,
    state: ReviewState,
    approvals: (u32, u32),
) -> Result<ReviewSummary, Problem> {
    let replaced = state == ReviewState::Replaced;
    Ok(ReviewSummary {
        submission: line.id,
        title: line.title,
        deployment: DeploymentName::parse(&line.deployment).map_err(|_| Problem::internal())?,
        node: line.node.map(|(_, fqdn)| fqdn),
        authors: line.authors,
        at: at(line.at),
        summary: line.summary,
        state: if replaced && line.sent_back { ReviewState::SentBack } else { state },
        approvals,
    })
}
