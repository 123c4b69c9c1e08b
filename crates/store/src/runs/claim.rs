//! The claim: starts TODO steps, with one statement for all of them.

use std::time::Duration;

use engine::anneal::Limits;
use engine::ids::RunId;
use sqlx::PgPool;
use uuid::Uuid;

use crate::StoreError;
use crate::events::{CHANNEL_RUN, append_events, run_events, step_event};
use crate::locks::{lock_apply_shared, try_claim};

/// The time that a run stays queued before the reaper resets its step.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(60);

/// The result of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// The queued runs.
    pub runs: Vec<RunId>,
    /// Another transaction was claiming, so this one stopped. The other one got the same
    /// notification.
    pub busy: bool,
}

#[derive(sqlx::FromRow)]
struct Started {
    room: i32,
    run: i64,
    noderole: Uuid,
    deployment: Uuid,
}

/// Queues runs for all steps that may start now, in rounds until there are none.
///
/// # Errors
///
/// The database fails. The runs of earlier rounds stay queued.
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
    /// Whether another round may find steps: this round found some and left room.
    more: bool,
}

/// `None`: another transaction is claiming.
async fn claim_round(pool: &PgPool, limits: Limits) -> Result<Option<Round>, StoreError> {
    let mut transaction = pool.begin().await?;
    if !try_claim(&mut transaction).await? {
        return Ok(None);
    }
    lock_apply_shared(&mut transaction).await?;
    let started: Vec<Started> = sqlx::query_as(include_str!("statements/claim.sql"))
        .bind(i64::from(limits.running))
        .bind(i64::from(limits.batch))
        .bind(QUEUE_TIMEOUT.as_secs_f64())
        .fetch_all(&mut *transaction)
        .await?;
    let mut events = Vec::with_capacity(started.len() * 2);
    for row in &started {
        events.push(step_event(row.deployment, row.noderole, "transition"));
        events.extend(run_events(row.run, row.noderole, row.deployment, "queued", 0));
    }
    let channels: &[&str] = if started.is_empty() { &[] } else { &[CHANNEL_RUN] };
    append_events(&mut transaction, &events, channels).await?;
    transaction.commit().await?;
    let room = started.first().map_or(0, |row| usize::try_from(row.room).unwrap_or_default());
    let more = started.len() < room;
    Ok(Some(Round { runs: started.into_iter().map(|row| RunId(row.run)).collect(), more }))
}
