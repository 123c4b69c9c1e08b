//! Noderoles, their steps and the edges between steps.
//!
//! The entity has all columns. A model has those that pages read, and [`NoderoleIntent::columns`]
//! and [`step_columns`] those that commits write. The commit and `gantry verify` use these lists.
//! The privileges of the server follow from the trigger `guard_intent` in `guards/projection.sql`.

use engine::blueprint::projection::StepIntent;
use engine::catalog::{JoinAfter, JoinNeed, Needs, RunLocation};
use engine::cluster::{NoderoleDoc, NoderoleKey};
use engine::ids::NodeId;
use sea_orm::DerivePartialModel;
use serde_json::{Value, json};
use time::OffsetDateTime;
use uuid::Uuid;

use super::Columns;

pub mod noderole {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "noderole")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub id: Uuid,
        pub node_id: Uuid,
        pub role: String,
        pub instance: i32,
        pub deployment_id: Uuid,
        pub disposition: String,
        pub role_hash: Vec<u8>,
        #[sea_orm(column_type = "JsonBinary")]
        pub data: Json,
        #[sea_orm(column_type = "JsonBinary")]
        pub doc: Json,
        #[sea_orm(column_type = "JsonBinary")]
        pub system_data: Json,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod step {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "step")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub id: Uuid,
        pub noderole_id: Uuid,
        pub node_id: Uuid,
        pub action: String,
        pub concurrency_group_id: i64,
        pub rank: i32,
        pub priority: i32,
        pub jig: String,
        pub exclusive: bool,
        pub destructive: bool,
        pub immediate: bool,
        pub needs: String,
        pub run_location: String,
        pub generation: i64,
        pub content_hash: Vec<u8>,
        pub disruption_budget_ids: Vec<i64>,
        pub blocks_node: bool,
        pub retries: i32,
        pub backoff_s: i32,
        pub timeout_s: i32,
        pub check_s: Option<i32>,
        pub join_kind: String,
        pub join_n: Option<i32>,
        pub join_after: String,
        pub state: String,
        pub since: TimeDateTimeWithTimeZone,
        pub skipped: Option<String>,
        pub pending: i32,
        pub satisfied: i32,
        pub applied_generation: i64,
        pub failures: i32,
        pub not_before: TimeDateTimeWithTimeZone,
        pub node_up: bool,
        pub node_fits: bool,
        pub cause: Option<String>,
        pub cause_by: Option<String>,
        pub error: Option<String>,
        #[sea_orm(column_type = "JsonBinary")]
        pub output: Option<Json>,
        pub output_run: Option<i64>,
        #[sea_orm(column_type = "JsonBinary")]
        pub results: Option<Json>,
        pub input_hash: Option<Vec<u8>>,
        pub input_version: i32,
        pub input_checked: i32,
        pub stale: bool,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod role_check {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "role_check")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub step_id: Uuid,
        pub node_id: Uuid,
        pub due_at: TimeDateTimeWithTimeZone,
        pub worker_id: Option<Uuid>,
        pub leased_at: Option<TimeDateTimeWithTimeZone>,
        pub generation: i64,
        pub state: String,
        pub failures: i32,
        pub caused_rerun: bool,
        pub detail: String,
        pub duration_ms: i32,
        pub checked_at: Option<TimeDateTimeWithTimeZone>,
        pub changed_at: Option<TimeDateTimeWithTimeZone>,
        pub passes_until: TimeDateTimeWithTimeZone,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod edge {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "edge")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub child: Uuid,
        #[sea_orm(primary_key, auto_increment = false)]
        pub parent: Uuid,
        pub kind: String,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

/// A noderole, without its document.
#[derive(Debug, Clone, PartialEq, DerivePartialModel)]
#[sea_orm(entity = "noderole::Entity")]
pub struct NoderoleModel {
    /// Derived from node, role and instance.
    pub id: Uuid,
    pub node_id: Uuid,
    pub role: String,
    pub instance: i32,
    /// The deployment in which it is bound.
    pub deployment_id: Uuid,
    /// `in_service` or `gone`.
    pub disposition: String,
    /// The hash of the role's content.
    pub role_hash: Vec<u8>,
    /// Its own reviewed data.
    pub data: Value,
    /// Data that Gantry itself found.
    pub system_data: Value,
}

/// A step.
#[derive(Debug, Clone, PartialEq, DerivePartialModel)]
#[sea_orm(entity = "step::Entity")]
pub struct StepModel {
    /// Derived from noderole and action.
    pub id: Uuid,
    pub noderole_id: Uuid,
    pub node_id: Uuid,
    pub action: String,
    /// Whether its input changed since its last run and it does not run again by itself.
    pub stale: bool,
    /// The longest path from a root.
    pub rank: i32,
    /// Whether it runs once per generation.
    pub destructive: bool,
    /// The blueprint that last changed or re-ran it.
    pub generation: i64,
    pub state: String,
    /// The reason why it is skipped.
    pub skipped: Option<String>,
    /// The number of parents that its join waits for.
    pub pending: i32,
    /// The generation whose result is applied. 0: none.
    pub applied_generation: i64,
    /// Failures since its last success.
    pub failures: i32,
    /// The cause of a due re-run.
    pub cause: Option<String>,
    /// The person who requested the re-run.
    pub cause_by: Option<String>,
    /// The maximum number of retries.
    pub retries: i32,
    /// Seconds before the first retry.
    pub backoff_s: i32,
    /// The time limit of a run in seconds.
    pub timeout_s: i32,
    /// Higher first.
    pub priority: i32,
    /// Whether its ERROR blocks its whole node.
    pub blocks_node: bool,
    /// The reason of an ERROR.
    pub error: Option<String>,
    /// The output of its last successful run.
    pub output: Option<Value>,
    /// The run that produced the output.
    pub output_run: Option<i64>,
    /// The last change of its state.
    pub since: OffsetDateTime,
}

/// A noderole of a document.
pub(crate) struct NoderoleIntent<'d> {
    pub node: NodeId,
    pub key: &'d NoderoleKey,
    pub doc: &'d NoderoleDoc,
}

impl NoderoleIntent<'_> {
    /// The columns that a commit writes.
    pub(crate) fn columns<'r>(noderoles: &'r [Self]) -> Columns<'r, Self> {
        use noderole::Column::{Data, DeploymentId, Doc, Id, Instance, NodeId, Role, RoleHash};
        Columns::of(noderoles)
            .identity(Id, |n| n.key.id(n.node).0)
            .identity(NodeId, |n| n.node.0)
            .identity(Role, |n| n.key.role.as_str())
            .identity(Instance, |n| n.key.instance.cast_signed())
            .intent(DeploymentId, |n| n.doc.deployment.0)
            .intent(RoleHash, |n| n.doc.role.as_bytes().as_slice())
            .intent(Data, |n| n.doc.data.clone())
            .intent(Doc, |n| json!({"rank": n.doc.rank, "reruns": n.doc.reruns}))
    }
}

/// The columns that a commit writes. The values `deployment_id` and `concurrency_group` identify
/// the row of the concurrency group.
pub(crate) fn step_columns<'r>(steps: &'r [&'r StepIntent]) -> Columns<'r, &'r StepIntent> {
    use step::Column as C;
    let at_most_max = |n: u32| n.min(i32::MAX as u32).cast_signed();
    Columns::of(steps)
        .value("deployment_id", |s| s.deployment.0)
        .value("concurrency_group", |s| s.concurrency_group.name.as_str())
        .identity(C::Id, |s| s.id.0)
        .identity(C::NoderoleId, |s| s.noderole.0)
        .identity(C::NodeId, |s| s.node.0)
        .identity(C::Action, |s| s.action.as_str())
        .intent(C::Rank, |s| s.rank.cast_signed())
        .intent(C::Priority, |s| s.run.priority)
        .intent(C::Jig, |s| s.jig.as_str())
        .intent(C::Exclusive, |s| s.run.exclusive)
        .intent(C::Destructive, |s| s.destructive)
        .intent(C::Immediate, |s| s.immediate)
        .intent(C::Needs, |s| needs(s.needs()))
        .intent(C::RunLocation, |s| location_name(s.location()))
        .intent(C::ContentHash, |s| s.content.as_bytes().as_slice())
        .intent(C::BlocksNode, |s| s.blocks_node())
        .intent(C::Retries, |s| at_most_max(s.run.retries))
        .intent(C::BackoffS, |s| at_most_max(s.run.backoff))
        .intent(C::TimeoutS, |s| at_most_max(s.run.timeout.max(1)))
        .intent(C::CheckS, |s| s.check_interval().map(at_most_max))
        .intent(C::JoinKind, |s| join_kind(s.join().need).0)
        .intent(C::JoinN, |s| join_kind(s.join().need).1)
        .intent(C::JoinAfter, |s| join_after(s.join().after))
}

fn join_after(after: JoinAfter) -> &'static str {
    if after == JoinAfter::End { "end" } else { "success" }
}

fn needs(needs: Needs) -> &'static str {
    match needs {
        Needs::Alive => "alive",
        Needs::Any => "any",
        Needs::Dead => "dead",
    }
}

fn location_name(location: RunLocation) -> &'static str {
    match location {
        RunLocation::Node => "node",
        RunLocation::Worker => "worker",
    }
}

fn join_kind(need: JoinNeed) -> (&'static str, Option<i32>) {
    match need {
        JoinNeed::All => ("all", None),
        JoinNeed::Any => ("any", None),
        JoinNeed::AtLeast(n) => ("at_least", Some(n.max(1).cast_signed())),
    }
}
