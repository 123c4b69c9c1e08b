//! The tables of runs and their logs.

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
        pub input_hash: Option<Vec<u8>>,
        pub input_version: Option<i32>,
        #[sea_orm(column_type = "JsonBinary")]
        pub result: Option<Json>,
        pub result_bytes: i32,
        pub error: Option<String>,
        pub log_bytes: i64,
        pub out_bytes: i64,
        pub err_bytes: i64,
        pub adoptions: i32,
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
