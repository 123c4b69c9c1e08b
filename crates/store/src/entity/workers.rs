//! The tables of workers and of the database.

pub mod worker {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "worker")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub id: Uuid,
        pub name: String,
        pub phase: String,
        pub capacity: i32,
        pub jigs: Vec<String>,
        pub host: String,
        pub pid: Option<i32>,
        pub version: String,
        pub reason: Option<String>,
        pub lease_until: TimeDateTimeWithTimeZone,
        pub started_at: TimeDateTimeWithTimeZone,
        pub last_heartbeat_at: TimeDateTimeWithTimeZone,
        #[sea_orm(column_type = "JsonBinary")]
        pub secrets: Json,
        pub drain_by: Option<Uuid>,
        pub drain_since: Option<TimeDateTimeWithTimeZone>,
        pub drain_reason: Option<String>,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod background_task {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "background_task")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub process_id: Uuid,
        pub process_kind: String,
        pub process: String,
        #[sea_orm(primary_key, auto_increment = false)]
        pub task: String,
        pub purpose: String,
        pub period_ms: i64,
        pub started_at: Option<TimeDateTimeWithTimeZone>,
        pub ended_at: Option<TimeDateTimeWithTimeZone>,
        pub duration_ms: Option<i64>,
        pub outcome: Option<String>,
        pub error: Option<String>,
        pub failures: i32,
        pub due_at: Option<TimeDateTimeWithTimeZone>,
        pub lease_until: TimeDateTimeWithTimeZone,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod server_address {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "server_address")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub address: String,
        pub seen_at: TimeDateTimeWithTimeZone,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod database_role {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "database_role")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub purpose: String,
        #[sea_orm(column_type = "custom(\"name\")")]
        pub name: String,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod guard_version {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "guard_version")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub singleton: bool,
        pub hash: Vec<u8>,
        pub applied_at: TimeDateTimeWithTimeZone,
    }

    impl ActiveModelBehavior for ActiveModel {}
}
