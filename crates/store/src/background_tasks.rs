//! The status of background tasks, as their processes report it.
//!
//! The rows of a process are listed while their lease is valid. A process deletes its rows when it
//! stops, and the expired rows of others with each report. So the table never has more rows than
//! living processes have tasks, plus those of recent crashes.

use std::time::Duration;

use sea_orm::sea_query::{Expr, ExprTrait as _};
use sea_orm::{ColumnTrait, DerivePartialModel, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::StoreError;
use crate::connect::orm;
use crate::entity::background_task;

/// Maximum length of an outcome or error, in characters. The rest is cut off.
const MAX_TEXT: usize = 500;

/// The process that reports.
#[derive(Debug, Clone)]
pub struct ProcessRow {
    pub id: Uuid,
    /// `server` or `worker`.
    pub kind: &'static str,
    pub name: String,
}

/// The status of a task, with times relative to now.
#[derive(Debug, Clone)]
pub struct TaskReport<'t> {
    pub task: &'t str,
    pub purpose: &'t str,
    pub period: Duration,
    pub started_ago: Option<Duration>,
    /// The end of the last run that ended, its duration and its result.
    pub ended_ago: Option<Duration>,
    pub took: Option<Duration>,
    pub outcome: Option<&'t str>,
    pub error: Option<&'t str>,
    /// Failures since the last success.
    pub failures: u32,
    /// `None`: a run is in progress.
    pub due_in: Option<Duration>,
}

/// A task of a process.
#[derive(Debug, Clone, PartialEq, Eq, DerivePartialModel)]
#[sea_orm(entity = "background_task::Entity")]
pub struct BackgroundTaskRow {
    pub process_id: Uuid,
    pub process_kind: String,
    pub process: String,
    pub task: String,
    pub purpose: String,
    pub period_ms: i64,
    /// Start of the current or last run.
    pub started_at: Option<OffsetDateTime>,
    pub ended_at: Option<OffsetDateTime>,
    pub duration_ms: Option<i64>,
    pub outcome: Option<String>,
    pub error: Option<String>,
    pub failures: i32,
    /// Without a value, a run is in progress.
    pub due_at: Option<OffsetDateTime>,
}

/// Stores these tasks of a process, and deletes expired rows of others.
pub async fn report(
    pool: &PgPool,
    process: &ProcessRow,
    tasks: &[TaskReport<'_>],
    lease: Duration,
) -> Result<(), StoreError> {
    fn column<'t, T>(tasks: &'t [TaskReport<'t>], of: impl Fn(&TaskReport<'t>) -> T) -> Vec<T> {
        tasks.iter().map(of).collect()
    }
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    let text =
        |text: Option<&str>| text.map(|text| text.chars().take(MAX_TEXT).collect::<String>());
    sqlx::query(include_str!("statements/report_tasks.sql"))
        .bind(process.id)
        .bind(process.kind)
        .bind(&process.name)
        .bind(lease.as_secs_f64())
        .bind(column(tasks, |task| task.task.to_owned()))
        .bind(column(tasks, |task| task.purpose.to_owned()))
        .bind(column(tasks, |task| millis(task.period)))
        .bind(column(tasks, |task| seconds(task.started_ago)))
        .bind(column(tasks, |task| seconds(task.ended_ago)))
        .bind(column(tasks, |task| task.took.map(millis)))
        .bind(column(tasks, |task| text(task.outcome)))
        .bind(column(tasks, |task| text(task.error)))
        .bind(column(tasks, |task| i32::try_from(task.failures).unwrap_or(i32::MAX)))
        .bind(column(tasks, |task| seconds(task.due_in)))
        .execute(pool)
        .await?;
    Ok(())
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Deletes the tasks of a process that stops.
pub async fn delete_process(pool: &PgPool, process: Uuid) -> Result<(), StoreError> {
    let mut connection = pool.acquire().await?;
    background_task::Entity::delete_many()
        .filter(background_task::Column::ProcessId.eq(process))
        .exec(&orm(&mut connection))
        .await?;
    Ok(())
}

/// The tasks of all processes: first those that fail, then by name.
pub async fn background_tasks(
    connection: &mut PgConnection,
    limit: u64,
) -> Result<Vec<BackgroundTaskRow>, StoreError> {
    let rows = background_task::Entity::find()
        .filter(background_task::Column::LeaseUntil.into_expr().gt(Expr::current_timestamp()))
        .order_by_desc(background_task::Column::Failures.into_expr().gt(0))
        .order_by_asc(background_task::Column::Task)
        .order_by_asc(background_task::Column::Process)
        .order_by_asc(background_task::Column::ProcessId)
        .limit(limit)
        .into_partial_model()
        .all(&orm(connection))
        .await?;
    Ok(rows)
}
