//! The tables of deployments and their limits.

pub mod deployment {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "deployment")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub id: Uuid,
        pub parent: Option<Uuid>,
        pub name: String,
        pub system: bool,
        pub phantom: Uuid,
        pub doc: Vec<u8>,
        pub head_no: i64,
        pub removed_in: Option<i64>,
        pub on_hold_by: Option<Uuid>,
        pub on_hold_since: Option<TimeDateTimeWithTimeZone>,
        pub on_hold_reason: Option<String>,
        pub priority: i32,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod blueprint_deployment {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "blueprint_deployment")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub deployment_id: Uuid,
        #[sea_orm(primary_key, auto_increment = false)]
        pub blueprint_number: i64,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod concurrency_group {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "concurrency_group")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i64,
        pub deployment_id: Uuid,
        pub name: String,
        pub max_running: Option<i32>,
        pub mode: String,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod disruption_budget {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "disruption_budget")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i64,
        pub deployment_id: Uuid,
        pub name: String,
        pub max_down: i32,
    }

    impl ActiveModelBehavior for ActiveModel {}
}
