//! The tables of blueprints, policies and the head.

pub mod policy {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "policy")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub number: i64,
        pub hash: Vec<u8>,
        pub blueprint_number: i64,
        pub created_by: Option<Uuid>,
        pub created_at: TimeDateTimeWithTimeZone,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod blueprint {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "blueprint")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub number: i64,
        pub parent: Option<i64>,
        pub kind: String,
        pub root: Vec<u8>,
        pub review_id: Option<i64>,
        pub enabled: bool,
        pub epoch: i64,
        pub reason: Option<String>,
        pub committed_by: Option<Uuid>,
        pub committed_at: TimeDateTimeWithTimeZone,
        #[sea_orm(column_type = "custom(\"xid8\")", select_as = "text", save_as = "xid8")]
        pub xid: String,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod head {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "head")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub singleton: bool,
        pub number: i64,
        pub enabled: bool,
        pub policy_number: i64,
        pub epoch: i64,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod projected {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "projected")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub blueprint_number: i64,
        #[sea_orm(column_type = "custom(\"xid8\")", select_as = "text", save_as = "xid8")]
        pub xid: String,
    }

    impl ActiveModelBehavior for ActiveModel {}
}
