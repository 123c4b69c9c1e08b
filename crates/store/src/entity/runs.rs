//! The tables of noderoles, steps and runs.

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
        pub place: String,
        pub generation: i64,
        pub content_hash: Vec<u8>,
        pub disruption_budget_ids: Vec<i64>,
        pub freezes_node: bool,
        pub retries: i32,
        pub backoff_s: i32,
        pub timeout_s: i32,
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

pub mod run {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "run")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i64,
        pub step_id: Uuid,
        pub node_id: Uuid,
        pub concurrency_group_id: i64,
        pub generation: i64,
        pub blueprint_number: i64,
        pub epoch: i64,
        pub content_hash: Vec<u8>,
        pub exclusive: bool,
        pub cause: Option<String>,
        pub cause_by: Option<String>,
        pub failures: i32,
        pub state: String,
        pub outcome: Option<String>,
        pub superseded: bool,
        pub worker_id: Option<Uuid>,
        pub queued_at: TimeDateTimeWithTimeZone,
        pub started_at: Option<TimeDateTimeWithTimeZone>,
        pub ended_at: Option<TimeDateTimeWithTimeZone>,
        #[sea_orm(column_type = "custom(\"xid8\")", select_as = "text", save_as = "xid8")]
        pub ended_xid: Option<String>,
        pub lease_until: TimeDateTimeWithTimeZone,
        pub cancel_requested: bool,
        #[sea_orm(column_type = "JsonBinary")]
        pub input: Option<Json>,
        #[sea_orm(column_type = "JsonBinary")]
        pub surroundings: Option<Json>,
        #[sea_orm(column_type = "JsonBinary")]
        pub result: Option<Json>,
        pub result_bytes: i32,
        pub error: Option<String>,
        pub log_bytes: i64,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod run_log {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "run_log")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub run_id: i64,
        #[sea_orm(primary_key, auto_increment = false)]
        pub at_offset: i64,
        pub at: TimeDateTimeWithTimeZone,
        pub body: Vec<u8>,
    }

    impl ActiveModelBehavior for ActiveModel {}
}
