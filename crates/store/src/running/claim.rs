//! Claim: which TODO steps start, as one statement over all of them.

use std::time::Duration;

use engine::anneal::Limits;
use engine::ids::RunId;
use sqlx::PgPool;
use uuid::Uuid;

use super::event::{CHANNEL_RUN, append_events, run_events, step_event};
use super::locks::{share_apply, try_claim};
use crate::StoreError;

/// How long a queued run may wait for a worker before the janitor puts its step back.
const QUEUED: Duration = Duration::from_secs(60);

/// What a claim did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// The runs that it queued.
    pub runs: Vec<RunId>,
    /// Somebody else was claiming, so this one left; whoever it was heard the same notification.
    pub busy: bool,
}

#[derive(sqlx::FromRow)]
struct Started {
    room: i32,
    run: i64,
    noderole: Uuid,
    deployment: Uuid,
}

/// Queues runs for all steps that may start now, round by round until there is none.
///
/// # Errors
/// What the database refused; rounds before that stand.
pub async fn claim_runs(pool: &PgPool, limits: Limits) -> Result<Claimed, StoreError> {
    let mut claimed = Claimed { runs: Vec::new(), busy: false };
    loop {
        let Some(round) = claim_round(pool, limits).await? else {
            claimed.busy = true;
            return Ok(claimed);
        };
        claimed.runs.extend(round.runs);
        if !round.more {
            return Ok(claimed);
        }
    }
}

struct Round {
    runs: Vec<RunId>,
    /// Whether another round may find something: this one did, and left room.
    more: bool,
}

/// None: somebody else is claiming.
async fn claim_round(pool: &PgPool, limits: Limits) -> Result<Option<Round>, StoreError> {
    let mut transaction = pool.begin().await?;
    if !try_claim(&mut transaction).await? {
        return Ok(None);
    }
    share_apply(&mut transaction).await?;
    let started: Vec<Started> = sqlx::query_as(include_str!("claim.sql"))
        .bind(i64::from(limits.running))
        .bind(i64::from(limits.batch))
        .bind(QUEUED.as_secs_f64())
        .fetch_all(&mut *transaction)
        .await?;
    let mut events = Vec::with_capacity(started.len() * 2);
    for row in &started {
        events.push(step_event(row.deployment, row.noderole, "transition"));
        events.extend(run_events(row.run, row.noderole, row.deployment, "queued", 0));
    }
    let queued: &[&str] = if started.is_empty() { &[] } else { &[CHANNEL_RUN] };
    append_events(&mut transaction, &events, queued).await?;
    transaction.commit().await?;
    let room = started.first().map_or(0, |row| usize::try_from(row.room).unwrap_or_default());
    let more = started.len() < room;
    Ok(Some(Round { runs: started.into_iter().map(|row| RunId(row.run)).collect(), more }))
}
