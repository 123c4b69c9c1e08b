//! The tables of nodes, their facts, health checks and reports.

pub mod node {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "node")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub id: Uuid,
        pub fqdn: String,
        pub deployment_id: Uuid,
        pub phantom: bool,
        pub doc: Option<Vec<u8>>,
        pub removed_in: Option<i64>,
        pub transport: String,
        #[sea_orm(column_type = "JsonBinary")]
        pub address: Json,
        #[sea_orm(column_type = "JsonBinary")]
        pub connection: Json,
        pub connection_no: i32,
        pub root: Option<String>,
        #[sea_orm(column_type = "JsonBinary")]
        pub hints: Json,
        pub macs: Vec<String>,
        pub serial: String,
        pub description: String,
        pub version: i32,
        pub created_by: Option<Uuid>,
        pub created_at: TimeDateTimeWithTimeZone,
        pub alive: bool,
        pub alive_since: Option<TimeDateTimeWithTimeZone>,
        pub last_seen_at: Option<TimeDateTimeWithTimeZone>,
        pub health_checked_at: Option<TimeDateTimeWithTimeZone>,
        pub contradicting_checks: i32,
        pub boot_id: Option<String>,
        pub bootenv: Option<String>,
        pub report_no: i32,
        pub joined: String,
        pub joined_at: Option<TimeDateTimeWithTimeZone>,
        pub available: bool,
        pub unavailable_by: Option<Uuid>,
        pub unavailable_at: Option<TimeDateTimeWithTimeZone>,
        pub unavailable_reason: Option<String>,
        #[sea_orm(column_type = "JsonBinary")]
        pub facts: Json,
        pub facts_at: Option<TimeDateTimeWithTimeZone>,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod node_fact {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "node_fact")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub node_id: Uuid,
        #[sea_orm(primary_key, auto_increment = false)]
        pub source: String,
        #[sea_orm(column_type = "JsonBinary")]
        pub facts: Json,
        pub at: TimeDateTimeWithTimeZone,
        pub run_id: Option<i64>,
        pub token_id: Option<Uuid>,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod health_check {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "health_check")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub node_id: Uuid,
        #[sea_orm(primary_key, auto_increment = false)]
        pub at: TimeDateTimeWithTimeZone,
        pub reached: bool,
        pub address: String,
        #[sea_orm(column_type = "JsonBinary")]
        pub attempts: Json,
        pub detail: String,
        pub duration_ms: i32,
        pub by: String,
        pub connection_no: i32,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod node_report {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "node_report")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i64,
        pub node_id: Uuid,
        pub at: TimeDateTimeWithTimeZone,
        pub kind: String,
        pub detail: String,
        pub token_id: Uuid,
        pub address: String,
    }

    impl ActiveModelBehavior for ActiveModel {}
}
