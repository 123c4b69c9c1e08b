//! The tables of people, their credentials and their requests.

pub mod person {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "person")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub id: Uuid,
        pub name: String,
        pub display: String,
        pub kind: String,
        pub disabled: bool,
        pub permissions: Vec<String>,
        pub grants_version: i32,
        pub verdicts_void_to: i64,
        pub created_at: TimeDateTimeWithTimeZone,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod account {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "account")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub person_id: Uuid,
        pub password_hash: String,
        pub changed_at: TimeDateTimeWithTimeZone,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod scoped_grant {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "scoped_grant")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub person_id: Uuid,
        #[sea_orm(primary_key, auto_increment = false)]
        pub permission: String,
        #[sea_orm(primary_key, auto_increment = false)]
        pub deployment_id: Uuid,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod session {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "session")]
    pub struct Model {
        pub id: Uuid,
        #[sea_orm(primary_key, auto_increment = false)]
        pub token_hash: Vec<u8>,
        pub person_id: Uuid,
        pub created_at: TimeDateTimeWithTimeZone,
        pub last_seen_at: TimeDateTimeWithTimeZone,
        pub idle_expires_at: TimeDateTimeWithTimeZone,
        pub expires_at: TimeDateTimeWithTimeZone,
        pub fresh_at: TimeDateTimeWithTimeZone,
        pub by_link: bool,
        pub link_by: Option<Uuid>,
        #[sea_orm(column_type = "JsonBinary")]
        pub ceremony: Option<Json>,
        pub factor_at: Option<TimeDateTimeWithTimeZone>,
        pub user_agent: String,
        pub address: String,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod token {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "token")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub id: Uuid,
        pub kind: String,
        pub hash: Vec<u8>,
        pub name: String,
        pub person_id: Option<Uuid>,
        pub node_id: Option<Uuid>,
        pub scopes: Vec<String>,
        pub deployment_id: Option<Uuid>,
        pub created_by: Option<Uuid>,
        pub created_at: TimeDateTimeWithTimeZone,
        pub expires_at: TimeDateTimeWithTimeZone,
        pub used_at: Option<TimeDateTimeWithTimeZone>,
        pub last_used_at: Option<TimeDateTimeWithTimeZone>,
        pub revoked_at: Option<TimeDateTimeWithTimeZone>,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod acting {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "acting")]
    pub struct Model {
        #[sea_orm(
            primary_key,
            auto_increment = false,
            column_type = "custom(\"xid8\")",
            select_as = "text",
            save_as = "xid8"
        )]
        pub xid: String,
        pub person_id: Uuid,
        pub token_id: Option<Uuid>,
        pub session_id: Option<Uuid>,
        pub admin: bool,
        pub pending: bool,
        pub needs_password: bool,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod access_change {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "access_change")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i64,
        pub person_id: Uuid,
        pub kind: String,
        pub permission: Option<String>,
        pub deployment_id: Option<Uuid>,
        pub by: Option<Uuid>,
        pub at: TimeDateTimeWithTimeZone,
        pub confirmed_by: Option<Uuid>,
        pub confirmed_at: Option<TimeDateTimeWithTimeZone>,
        pub dismissed_at: Option<TimeDateTimeWithTimeZone>,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod passkey {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "passkey")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub id: Uuid,
        pub person_id: Uuid,
        pub name: String,
        pub rp_id: String,
        pub origin: String,
        pub credential_id: Vec<u8>,
        #[sea_orm(column_type = "JsonBinary")]
        pub credential: Json,
        pub created_at: TimeDateTimeWithTimeZone,
        pub counter: i64,
        pub last_used_at: Option<TimeDateTimeWithTimeZone>,
        pub revoked_at: Option<TimeDateTimeWithTimeZone>,
        pub revoked_by: Option<Uuid>,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod passkey_confirmation {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "passkey_confirmation")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub passkey_id: Uuid,
        pub by_passkey: Option<Uuid>,
        pub nonce: Option<Vec<u8>>,
        pub client_data: Option<Vec<u8>>,
        pub authenticator_data: Option<Vec<u8>>,
        pub signature: Option<Vec<u8>>,
        pub at: TimeDateTimeWithTimeZone,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod totp {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "totp")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub person_id: Uuid,
        pub secret: Vec<u8>,
        pub session_id: Option<Uuid>,
        pub created_at: TimeDateTimeWithTimeZone,
        pub confirmed_at: Option<TimeDateTimeWithTimeZone>,
        pub last_step: i64,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod visit {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "visit")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub person_id: Uuid,
        pub at: TimeDateTimeWithTimeZone,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

pub mod idempotency {
    use super::super::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "idempotency")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub person_id: Uuid,
        #[sea_orm(primary_key, auto_increment = false)]
        pub key: String,
        pub request: Vec<u8>,
        pub claim: Uuid,
        pub claimed_at: TimeDateTimeWithTimeZone,
        pub claimed_until: TimeDateTimeWithTimeZone,
        pub status: Option<i16>,
        #[sea_orm(column_type = "JsonBinary")]
        pub headers: Option<Json>,
        pub body: Option<Vec<u8>>,
        pub withheld: Option<String>,
    }

    impl ActiveModelBehavior for ActiveModel {}
}
