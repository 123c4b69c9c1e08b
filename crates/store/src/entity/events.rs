//! The tables of the journal.

pub mod event {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "event")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i64,
        #[sea_orm(column_type = "custom(\"xid8\")", select_as = "text", save_as = "xid8")]
        pub xid: String,
        pub at: TimeDateTimeWithTimeZone,
        pub topic: String,
        pub subject: String,
        pub kind: String,
        #[sea_orm(column_type = "JsonBinary")]
        pub body: Json,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod event_cutoff {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "event_cutoff")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub singleton: bool,
        #[sea_orm(column_type = "custom(\"xid8\")", select_as = "text", save_as = "xid8")]
        pub xid: String,
        pub id: i64,
    }

    impl ActiveModelBehavior for ActiveModel {}
}
