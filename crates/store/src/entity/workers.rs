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
