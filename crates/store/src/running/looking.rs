//! Looking whether nodes are alive: who is due, and what came of it.
//!
//! Every worker looks; who is due is taken by one worker at a time, so that a node is looked at as often as is said and not as often as
//! there are workers. A worker that dies in between has only put the next look off. What is believed after a look is
//! [`engine::alive`]'s to say; turning a node is a transition like any other.
//!
//! To be alive is not to be joined. Nothing starts on a node before somebody has found out what runs there: a *survey*, which reads the
//! node's boot id and what is left of attempts, and ends those that no open run stands for. A node is surveyed when it is let in for the
//! first time, when it comes back, when its boot id is another one, and when it says itself that something happened. What the survey
//! finds is what counts: of a machine that was restarted nothing runs any more, so it dies and comes back in one look. What is believed
//! to run, of a machine that was not restarted, and does not, is found by the worker that follows it, or, without one, by the janitor.
//!
//! A look takes seconds, a survey a minute, and meanwhile things happen. So a look carries what it began with ([`AsOf`]). One by a way that
//! is not the node's any more says nothing about the node, and is not even kept. One that began before the machine reported something
//! confirms nothing, and counts only where it speaks against what is believed: whatever agrees with that would wipe out the report.
//! A machine that reports ever again still can't keep itself alive: that it is not reached always counts. And what a look decides is
//! decided once more under the lock of all, where it is carried out: another look may have come in between.

use std::time::Duration;

use api::limits::ADDRESSES;
use api::nodes::TriedAddress;
use engine::Hash;
use engine::alive::{Belief, restarted};
use engine::ids::{NodeId, RunId, StepId};
use serde_json::Value;
use sqlx::types::Json;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::event::{CHANNEL_TODO, append_events, node_event};
use super::locks::take_apply;
use super::transition::{ChangeError, Expected, Joined, turn_node};
use crate::StoreError;

/// Results that are kept of a node.
const KEPT: i64 = 50;

/// What a look began with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub struct AsOf {
    /// Raised whenever the node is reached otherwise.
    pub way_no: i32,
    /// Raised whenever the machine reports that it came up or goes down.
    pub word_no: i32,
}

/// A node that somebody should look at.
#[derive(Debug, Clone)]
pub struct DueNode {
    /// Which.
    pub id: NodeId,
    /// Its name.
    pub fqdn: String,
    /// The hash of its document. None: it is in no blueprint.
    pub doc: Option<Hash>,
    /// How its row says that it is reached, in the form of a document.
    pub connection: Value,
    /// Whether what runs there is known.
    pub confirmed: bool,
    /// Its boot id, as far as it is known.
    pub boot_id: String,
    /// What the look begins with; its result says so.
    pub as_of: AsOf,
}

impl DueNode {
    /// Whether somebody who is let in has to find out what runs there.
    pub fn wants_survey(&self, boot_id: &str) -> bool {
        !self.confirmed || restarted(&self.boot_id, boot_id)
    }
}

/// What came of a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looked {
    /// What it began with.
    pub as_of: AsOf,
    /// Each address that was tried, in this order; of a connection that was there already the one that it is made to.
    pub tried: Vec<TriedAddress>,
    /// Where it let us in; else the one address that was tried, and empty of several.
    pub address: String,
    /// The boot id of a node that let us in; else why it did not.
    pub came: Result<String, String>,
    /// What came of finding out what runs there; None: that was not asked for.
    pub survey: Option<Result<(), String>>,
    /// How long it took.
    pub took: Duration,
    /// Who looked.
    pub by: String,
}

impl Looked {
    /// What is kept of each address: no longer than anybody reads.
    fn tried(&self) -> Json<Vec<TriedAddress>> {
        let short = |text: &str, most| text.chars().take(most).collect();
        let kept = |tried: &TriedAddress| TriedAddress {
            address: short(&tried.address, 300),
            reached: tried.reached,
            said: short(&tried.said, 500),
        };
        Json(self.tried.iter().take(ADDRESSES).map(kept).collect())
    }

    fn said(&self) -> &str {
        let survey = || self.survey.as_ref().and_then(|survey| survey.as_ref().err());
        self.came.as_ref().err().or_else(survey).map(String::as_str).unwrap_or_default()
    }
}

/// Nodes that nobody has looked at for so long, the longest first; they count as looked at from now on.
///
/// # Errors
/// What the database refused.
pub async fn due_nodes(
    pool: &PgPool,
    every: Duration,
    limit: u32,
) -> Result<Vec<DueNode>, StoreError> {
    type Row = (Uuid, String, Option<Vec<u8>>, Option<Value>, bool, String, i32, i32);
    let rows: Vec<Row> = sqlx::query_as(
        "UPDATE node n SET looked_at = now()
         FROM (SELECT id FROM node
               WHERE transport = 'ssh' AND removed_in IS NULL
                 AND (looked_at IS NULL OR looked_at < now() - make_interval(secs => $1))
               ORDER BY looked_at NULLS FIRST LIMIT $2 FOR UPDATE SKIP LOCKED) due
         WHERE n.id = due.id
         RETURNING n.id, n.fqdn, n.doc, node_connection(n.transport, n.address, n.connection),
           n.alive AND n.joined = 'confirmed', coalesce(n.boot_id, ''), n.way_no, n.word_no",
    )
    .bind(every.as_secs_f64())
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    let due = |(id, fqdn, doc, connection, confirmed, boot_id, way_no, word_no)| {
        let doc: Option<Vec<u8>> = doc;
        let hash = |doc: Vec<u8>| {
            Hash::from_bytes(&doc).ok_or_else(|| StoreError::corrupt("node", "a hash has 32 bytes"))
        };
        Ok(DueNode {
            id: NodeId(id),
            fqdn,
            doc: doc.map(hash).transpose()?,
            connection: Option::unwrap_or_default(connection),
            confirmed,
            boot_id,
            as_of: AsOf { way_no, word_no },
        })
    };
    rows.into_iter().map(due).collect()
}

/// The addresses of a node that let a worker in as the node is reached now.
///
/// # Errors
/// What the database refused.
pub async fn reached_addresses(
    pool: &PgPool,
    node: NodeId,
    way_no: i32,
) -> Result<Vec<String>, StoreError> {
    let sql =
        "SELECT DISTINCT address FROM node_look WHERE node_id = $1 AND reached AND way_no = $2";
    Ok(sqlx::query_scalar(sql).bind(node.0).bind(way_no).fetch_all(pool).await?)
}

/// What was believed of a node before a look.
#[derive(sqlx::FromRow)]
struct Before {
    fqdn: String,
    alive: bool,
    known: bool,
    look_against: i32,
    confirmed: bool,
    boot_id: String,
    /// Whether somebody found out what runs there after this look began.
    outdated: bool,
    #[sqlx(flatten)]
    as_of: AsOf,
}

impl Before {
    /// What is believed after a look, if it counts.
    fn after(&self, looked: &Looked) -> Belief {
        let belief = Belief {
            alive: self.alive,
            known: self.known,
            against: self.look_against.unsigned_abs(),
        };
        let heard_since = self.as_of.word_no != looked.as_of.word_no;
        match heard_since && looked.came.is_ok() == self.alive {
            true => belief,
            false => belief.after(looked.came.is_ok()),
        }
    }

    /// As what the node has to be found again for a change to be carried out.
    fn expected(&self, against: i32) -> Expected<'_> {
        Expected { way_no: self.as_of.way_no, against, boot_id: &self.boot_id }
    }
}

/// Keeps what came of a look, and turns the node if that is enough; says whether anything changed.
///
/// # Errors
/// What the database refused; a node that is gone is none.
pub async fn record_look(
    pool: &PgPool,
    node: NodeId,
    looked: &Looked,
) -> Result<bool, ChangeError> {
    let mut transaction = pool.begin().await?;
    let before: Option<Before> = sqlx::query_as(
        "SELECT fqdn, alive, alive_since IS NOT NULL AS known, look_against, joined = 'confirmed' AS confirmed,
           coalesce(boot_id, '') AS boot_id, way_no, word_no,
           coalesce(joined_at > now() - make_interval(secs => $2), false) AS outdated
         FROM node WHERE id = $1 AND removed_in IS NULL FOR UPDATE",
    )
    .bind(node.0)
    .bind(looked.took.as_secs_f64())
    .fetch_optional(&mut *transaction)
    .await?;
    let Some(before) = before else { return Ok(false) };
    if before.as_of.way_no != looked.as_of.way_no {
        // Whoever was to look the new way may have found this look under way.
        sqlx::query("UPDATE node SET looked_at = NULL WHERE id = $1")
            .bind(node.0)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        return Ok(false);
    }
    let belief = before.after(looked);
    let turns = belief.alive != before.alive;
    // Whoever dies before the node has turned leaves enough against it for the next look to turn it.
    let against = if turns {
        before.look_against + 1
    } else {
        i32::try_from(belief.against).unwrap_or(i32::MAX)
    };
    keep(&mut transaction, node, against, looked, &before.fqdn).await?;
    transaction.commit().await?;
    carry_out(pool, node, &before, looked, turns.then_some(against)).await
}

/// Does what follows from a look that is kept; `turns`: what speaks against what was believed, and is enough.
async fn carry_out(
    pool: &PgPool,
    node: NodeId,
    before: &Before,
    looked: &Looked,
    turns: Option<i32>,
) -> Result<bool, ChangeError> {
    let expected = turns.map(|against| before.expected(against));
    let Ok(boot_id) = &looked.came else {
        let Some(expected) = expected else { return Ok(false) };
        return turn_node(pool, node, false, None, Some(expected)).await;
    };
    let confirmed = (looked.survey == Some(Ok(()))).then_some(looked.as_of.word_no);
    let joined = Joined { boot_id, confirmed };
    if let Some(expected) = expected {
        return turn_node(pool, node, true, Some(joined), Some(expected)).await;
    }
    if !before.alive || before.outdated {
        return Ok(false);
    }
    if restarted(&before.boot_id, boot_id) {
        let against = i32::try_from(before.after(looked).against).unwrap_or(i32::MAX);
        if !turn_node(pool, node, false, None, Some(before.expected(against))).await? {
            return Ok(false);
        }
        return turn_node(pool, node, true, Some(joined), Some(before.expected(0))).await;
    }
    match joined.confirmed.is_some() && !before.confirmed {
        true => join_node(pool, node, boot_id, looked.as_of).await,
        false => Ok(false),
    }
}

/// Keeps the result; who shows the node is told when it says something else than the last one.
async fn keep(
    transaction: &mut PgConnection,
    node: NodeId,
    against: i32,
    looked: &Looked,
    fqdn: &str,
) -> Result<(), StoreError> {
    let news: bool = sqlx::query_scalar(
        "WITH counted AS (UPDATE node SET look_against = $2, last_seen_at = CASE WHEN $3 THEN now() ELSE last_seen_at END,
                boot_id = coalesce(boot_id, $9) WHERE id = $1),
              last AS (SELECT reached, address, said, tried FROM node_look WHERE node_id = $1 ORDER BY at DESC LIMIT 1),
              old AS (DELETE FROM node_look l WHERE node_id = $1 AND at <= (
                SELECT at FROM node_look WHERE node_id = $1 ORDER BY at DESC OFFSET $4 LIMIT 1)
                -- The last time that each address let a worker in stays: what is shown of the address depends on it.
                AND NOT (l.reached AND l.way_no = (SELECT way_no FROM node WHERE id = $1) AND NOT EXISTS (
                  SELECT FROM node_look later WHERE later.node_id = $1 AND later.reached AND later.way_no = l.way_no
                    AND later.address = l.address AND later.at > l.at))),
              kept AS (
                INSERT INTO node_look (node_id, reached, address, said, took_ms, by, tried)
                VALUES ($1, $3, left($5, 300), left($6, 2000), $7, $8, $10) RETURNING reached, address, said, tried)
         SELECT NOT EXISTS (SELECT FROM last JOIN kept USING (reached, address, said, tried))",
    )
    .bind(node.0)
    .bind(against)
    .bind(looked.came.is_ok())
    .bind(KEPT - 1)
    .bind(&looked.address)
    .bind(looked.said())
    .bind(i32::try_from(looked.took.as_millis()).unwrap_or(i32::MAX))
    .bind(&looked.by)
    .bind(looked.came.as_deref().ok())
    .bind(looked.tried())
    .fetch_one(&mut *transaction)
    .await?;
    match news {
        true => append_events(transaction, &[node_event(fqdn)], &[]).await,
        false => Ok(()),
    }
}

/// Says of a node that is alive that what runs there is known again, unless something happened since; whether that is news.
async fn join_node(
    pool: &PgPool,
    node: NodeId,
    boot_id: &str,
    as_of: AsOf,
) -> Result<bool, ChangeError> {
    let mut transaction = pool.begin().await?;
    take_apply(&mut transaction).await?;
    let fqdn: Option<String> = sqlx::query_scalar(
        "UPDATE node SET joined = 'confirmed', joined_at = now(), boot_id = $2
         WHERE id = $1 AND alive AND joined <> 'confirmed' AND removed_in IS NULL AND way_no = $3 AND word_no = $4
         RETURNING fqdn",
    )
    .bind(node.0)
    .bind(boot_id)
    .bind(as_of.way_no)
    .bind(as_of.word_no)
    .fetch_optional(&mut *transaction)
    .await?;
    let Some(fqdn) = fqdn else { return Ok(false) };
    append_events(&mut transaction, &[node_event(&fqdn)], &[CHANNEL_TODO]).await?;
    transaction.commit().await?;
    Ok(true)
}

/// Of attempts that are left on a node, at most 10,000, those that no open run stands for, each with the epoch to end it by.
///
/// # Errors
/// What the database refused.
pub async fn stray_runs(
    pool: &PgPool,
    node: NodeId,
    found: &[(RunId, StepId)],
) -> Result<Vec<(RunId, StepId, i64)>, StoreError> {
    let found = &found[..found.len().min(10_000)];
    let rows: Vec<(i64, Uuid, i64)> = sqlx::query_as(
        "SELECT f.run, f.step, coalesce(r.epoch, h.epoch)
         FROM unnest($2::bigint[], $3::uuid[]) AS f (run, step) CROSS JOIN head h
         LEFT JOIN run r ON r.id = f.run AND r.node_id = $1 AND r.step_id = f.step
         WHERE r.id IS NULL OR r.ended_at IS NOT NULL",
    )
    .bind(node.0)
    .bind(found.iter().map(|(run, _)| run.0).collect::<Vec<_>>())
    .bind(found.iter().map(|(_, step)| step.0).collect::<Vec<_>>())
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|(run, step, epoch)| (RunId(run), StepId(step), epoch)).collect())
}
