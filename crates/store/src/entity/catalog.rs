//! The tables of objects, barclamps and jigs.

pub mod barclamp {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "barclamp")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub name: String,
        #[sea_orm(primary_key, auto_increment = false)]
        pub version: String,
        pub hash: Vec<u8>,
        pub imported_by: Option<Uuid>,
        pub imported_at: TimeDateTimeWithTimeZone,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod import_report {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "import_report")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i64,
        pub at: TimeDateTimeWithTimeZone,
        pub by: Option<Uuid>,
        #[sea_orm(column_type = "JsonBinary")]
        pub report: Json,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod jig {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "jig")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub name: String,
        pub class: String,
        pub description: String,
        pub client_role: Option<String>,
        pub active: bool,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod object {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "object")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub hash: Vec<u8>,
        pub kind: String,
        pub body: Vec<u8>,
        pub created_at: TimeDateTimeWithTimeZone,
    }

    impl ActiveModelBehavior for ActiveModel {}
}
