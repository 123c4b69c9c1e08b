//! The tables of reviews, verdicts and comments.

pub mod review {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "review")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i64,
        pub proposal_id: i64,
        pub version: i32,
        pub title: String,
        pub change_hash: Vec<u8>,
        pub effects_hash: Vec<u8>,
        pub policy_number: i64,
        pub new_policy_hash: Option<Vec<u8>>,
        pub approvals_needed: i32,
        pub epoch: i64,
        pub root_hash: Vec<u8>,
        #[sea_orm(column_type = "JsonBinary")]
        pub summary: Json,
        pub risk: Vec<String>,
        pub created_by: Uuid,
        pub created_at: TimeDateTimeWithTimeZone,
        #[sea_orm(column_type = "custom(\"xid8\")", select_as = "text", save_as = "xid8")]
        pub xid: String,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod review_base {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "review_base")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub review_id: i64,
        #[sea_orm(primary_key, auto_increment = false)]
        pub deployment_id: Uuid,
        pub head_no: i64,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod review_author {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "review_author")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub review_id: i64,
        #[sea_orm(primary_key, auto_increment = false)]
        pub person_id: Uuid,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod review_document {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "review_document")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub review_id: i64,
        #[sea_orm(primary_key, auto_increment = false)]
        pub kind: String,
        #[sea_orm(primary_key, auto_increment = false)]
        pub id: Uuid,
        pub old_hash: Option<Vec<u8>>,
        pub new_hash: Option<Vec<u8>>,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod signature_demand {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "signature_demand")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub review_id: i64,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod verdict {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "verdict")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i64,
        pub review_id: i64,
        pub person_id: Option<Uuid>,
        pub policy_number: Option<i64>,
        pub kind: String,
        pub reason: String,
        pub at: TimeDateTimeWithTimeZone,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod verdict_signature {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "verdict_signature")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub verdict_id: i64,
        pub passkey_id: Uuid,
        pub nonce: Vec<u8>,
        pub client_data: Vec<u8>,
        pub authenticator_data: Vec<u8>,
        pub signature: Vec<u8>,
        pub message: Vec<u8>,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod comment {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "comment")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i64,
        pub review_id: i64,
        pub thread_id: Option<i64>,
        pub anchor: String,
        pub person_id: Uuid,
        pub body: String,
        pub at: TimeDateTimeWithTimeZone,
        pub resolved_by: Option<Uuid>,
        pub resolved_at: Option<TimeDateTimeWithTimeZone>,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod review_view {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "review_view")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub person_id: Uuid,
        #[sea_orm(primary_key, auto_increment = false)]
        pub proposal_id: i64,
        pub review_id: i64,
        pub before_id: Option<i64>,
        pub at: TimeDateTimeWithTimeZone,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod viewed_change {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "viewed_change")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub person_id: Uuid,
        #[sea_orm(primary_key, auto_increment = false)]
        pub proposal_id: i64,
        #[sea_orm(primary_key, auto_increment = false)]
        pub kind: String,
        #[sea_orm(primary_key, auto_increment = false)]
        pub document_id: Uuid,
        pub content: Vec<u8>,
        pub at: TimeDateTimeWithTimeZone,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod replan {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "replan")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub before_id: i64,
        pub proposal_id: i64,
        pub after_id: Option<i64>,
        pub version: i32,
        pub blueprint_number: i64,
        pub moved: Vec<String>,
        #[sea_orm(column_type = "JsonBinary")]
        pub refused: Json,
        pub at: TimeDateTimeWithTimeZone,
    }

    impl ActiveModelBehavior for ActiveModel {}
}
