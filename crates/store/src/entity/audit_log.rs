//! The tables of the audit log.

pub mod audit {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "audit")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i64,
        pub at: TimeDateTimeWithTimeZone,
        pub actor: Option<Uuid>,
        pub action: String,
        pub subject: String,
        #[sea_orm(column_type = "JsonBinary")]
        pub detail: Json,
        pub source: String,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod audit_unsealed {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "audit_unsealed")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub audit_id: i64,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod seal {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "seal")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub seq: i64,
        pub audit_id: i64,
        pub prev_hash: Vec<u8>,
        pub hash: Vec<u8>,
        pub sealed_at: TimeDateTimeWithTimeZone,
    }

    impl ActiveModelBehavior for ActiveModel {}
}
