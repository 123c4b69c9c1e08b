//! Steps whose input from other noderoles may have changed.
//!
//! A finished run with another output, and a commit, raise `input_version` of the steps that read
//! from it. While that differs from `input_checked`, the step is not converged. A worker compares
//! the hash of the present input with the hash that the applied run read ([`settle_input`]).
//!
//! Invariants:
//! * A step is compared while it is ACTIVE and all its parents are. The worker also waits for all
//!   other ancestors, because the step may read from any of them. Before that, its input is not
//!   complete. A step that runs anyway reads its input then.
//! * The version is read before the input. A change in between raises the version, so the step is
//!   compared again.
//! * A step that is compared or runs passes the change on to its children, because a declared path
//!   can name a value of any ancestor. So every descendant is compared once, and most comparisons
//!   find the same input. Milestones and barriers read nothing, so they only pass the change on.

use std::collections::BTreeSet;

use engine::Hash;
use engine::anneal::{Change, Event, Refused, RerunReason};
use engine::ids::{BlueprintNumber, NodeId, NoderoleId, StepId};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QuerySelect};
use serde_json::Value;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::change_error::ChangeError;
use super::world::{decide, write};
use crate::StoreError;
use crate::connect::orm;
use crate::entity::step;
use crate::events::{CHANNEL_TODO, append_events, step_event};
use crate::locks::lock_apply_shared;

/// A step whose input may have changed.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangedInput {
    pub step: StepId,
    pub noderole: NoderoleId,
    pub node: NodeId,
    pub role: String,
    pub instance: u32,
    /// Whether it has no run: a milestone or a barrier.
    pub immediate: bool,
    pub system_data: Value,
    /// The version of the input to compare.
    pub version: i32,
    /// The hash of the input of the applied run. `None`: not known.
    pub applied: Option<Hash>,
    /// The blueprint in force, and its root.
    pub head: BlueprintNumber,
    pub head_root: Hash,
}

#[derive(sqlx::FromRow)]
struct ChangedInputRow {
    id: Uuid,
    noderole_id: Uuid,
    node_id: Uuid,
    role: String,
    instance: i32,
    immediate: bool,
    system_data: Value,
    input_version: i32,
    input_hash: Option<Vec<u8>>,
    head: i64,
    head_root: Vec<u8>,
}

impl TryFrom<ChangedInputRow> for ChangedInput {
    type Error = StoreError;

    fn try_from(row: ChangedInputRow) -> Result<Self, StoreError> {
        let hash = |bytes: &[u8]| {
            Hash::from_bytes(bytes).ok_or_else(|| {
                StoreError::corrupt(format!("step {}", row.id), "a hash must have 32 bytes")
            })
        };
        Ok(Self {
            applied: row.input_hash.as_deref().map(hash).transpose()?,
            head_root: hash(&row.head_root)?,
            step: StepId(row.id),
            noderole: NoderoleId(row.noderole_id),
            node: NodeId(row.node_id),
            role: row.role,
            instance: row.instance.unsigned_abs(),
            immediate: row.immediate,
            system_data: row.system_data,
            version: row.input_version,
            head: BlueprintNumber(row.head),
        })
    }
}

/// The first steps, parents before children, whose input may have changed and can be compared.
/// Steps in `except` are left out.
pub async fn changed_inputs(
    pool: &PgPool,
    except: impl IntoIterator<Item = StepId>,
    limit: i64,
) -> Result<Vec<ChangedInput>, StoreError> {
    let rows: Vec<ChangedInputRow> = sqlx::query_as(include_str!("statements/changed_inputs.sql"))
        .bind(limit)
        .bind(except.into_iter().map(|step| step.0).collect::<Vec<_>>())
        .fetch_all(pool)
        .await?;
    rows.into_iter().map(TryInto::try_into).collect()
}

/// Returns the steps that are not ACTIVE.
///
/// # Errors
///
/// The database fails.
pub async fn steps_not_active(
    pool: &PgPool,
    steps: impl IntoIterator<Item = StepId>,
) -> Result<BTreeSet<StepId>, StoreError> {
    let mut connection = pool.acquire().await?;
    let ids: Vec<Uuid> = step::Entity::find()
        .select_only()
        .column(step::Column::Id)
        .filter(step::Column::Id.eq_any(steps.into_iter().map(|step| step.0)))
        .filter(step::Column::State.ne("active"))
        .into_tuple()
        .all(&orm(&mut connection))
        .await?;
    Ok(ids.into_iter().map(StepId).collect())
}

/// Marks the children of these steps. A step with a version is marked as compared.
pub async fn pass_on_changed_inputs(
    pool: &PgPool,
    steps: &[(StepId, Option<i32>)],
) -> Result<(), StoreError> {
    let mut transaction = pool.begin().await?;
    lock_apply_shared(&mut transaction).await?;
    sqlx::query(include_str!("statements/pass_on_changed_inputs.sql"))
        .bind(steps.iter().map(|(step, _)| step.0).collect::<Vec<_>>())
        .bind(steps.iter().map(|(_, version)| *version).collect::<Vec<_>>())
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(())
}

/// The input of a step, compared with the one of its applied run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComparedInput {
    pub step: StepId,
    /// The version that was compared.
    pub version: i32,
    pub finding: InputFinding,
}

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputFinding {
    /// The input is the one of the applied run.
    Same,
    /// No hash was stored for the applied run. This is the hash of the present input.
    Unknown(Hash),
    /// It differs, and the role ignores that.
    Ignored,
    /// It differs, and the role reports that.
    Reported,
    /// It differs, and the step runs again.
    Rerun,
}

/// Stores the result of a comparison. Returns whether the step runs again.
///
/// # Errors
///
/// The database fails. Nothing has changed.
pub async fn settle_input(pool: &PgPool, compared: ComparedInput) -> Result<bool, StoreError> {
    let ComparedInput { step, version, finding } = compared;
    let mut transaction = pool.begin().await?;
    lock_apply_shared(&mut transaction).await?;
    let row: Option<(i64, Uuid, Uuid)> =
        sqlx::query_as(include_str!("statements/lock_compared_input.sql"))
            .bind(step.0)
            .bind(version)
            .fetch_optional(&mut *transaction)
            .await?;
    let Some((generation, noderole, deployment)) = row else { return Ok(false) };
    let reruns = match finding {
        InputFinding::Rerun => rerun(&mut transaction, step, BlueprintNumber(generation)).await?,
        _ => false,
    };
    let stale = !reruns && matches!(finding, InputFinding::Reported | InputFinding::Rerun);
    let hash = match finding {
        InputFinding::Unknown(hash) => Some(hash.as_bytes().to_vec()),
        _ => None,
    };
    let turned: bool = sqlx::query_scalar(include_str!("statements/settle_input.sql"))
        .bind(step.0)
        .bind(version)
        .bind(hash)
        .bind(stale)
        .fetch_one(&mut *transaction)
        .await?;
    if turned && !reruns {
        let event = step_event(deployment, noderole, "active");
        append_events(&mut transaction, &[event], &[]).await?;
    }
    transaction.commit().await?;
    Ok(reruns)
}

/// Runs a step again at its generation. A destructive step never does: it stays applied.
async fn rerun(
    transaction: &mut PgConnection,
    step: StepId,
    generation: BlueprintNumber,
) -> Result<bool, StoreError> {
    let event = Event::Rerun { generation, reason: RerunReason::Data };
    let outcome = match decide(transaction, &Change::Step { step, event }, &[step]).await {
        Ok(outcome) => outcome,
        Err(ChangeError::Refused(Refused::AlreadyApplied { .. } | Refused::Unrequested { .. })) => {
            return Ok(false);
        }
        Err(ChangeError::Store(error)) => return Err(error),
        Err(other) => return Err(StoreError::corrupt("step", other)),
    };
    let events = write(transaction, &outcome).await?;
    append_events(transaction, &events, &[CHANNEL_TODO]).await?;
    Ok(true)
}
