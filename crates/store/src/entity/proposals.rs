//! The tables of proposals and edits.

pub mod proposal {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "proposal")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i64,
        pub deployment_id: Uuid,
        pub node_id: Option<Uuid>,
        pub kind: String,
        pub title: String,
        pub state: String,
        pub version: i32,
        pub created_by: Uuid,
        pub created_at: TimeDateTimeWithTimeZone,
        pub updated_at: TimeDateTimeWithTimeZone,
        pub closed_at: Option<TimeDateTimeWithTimeZone>,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod edit {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "edit")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub proposal_id: i64,
        #[sea_orm(primary_key, auto_increment = false)]
        pub seq: i32,
        pub actor: Uuid,
        pub at: TimeDateTimeWithTimeZone,
        #[sea_orm(column_type = "JsonBinary")]
        pub body: Json,
        pub undone: bool,
        pub dropped: bool,
        pub touched_by: Vec<Uuid>,
        pub request_seq: Option<i32>,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod not_restored {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "not_restored")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub proposal_id: i64,
        #[sea_orm(primary_key, auto_increment = false)]
        pub first_edit: i32,
        pub last_edit: i32,
        pub blueprint_number: i64,
        pub missing: Vec<String>,
        pub more: i32,
    }

    impl ActiveModelBehavior for ActiveModel {}
}
