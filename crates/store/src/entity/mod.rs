//! SeaORM entities, one for each table. A test compares them with the schema. The entity of a table
//! that only one module reads may be in that module.
//!
//! A query on an entity reads all columns. Lists select the columns that they show, so that none
//! reads a log or a document by accident.

mod audit_log;
mod blueprints;
mod catalog;
mod columns;
mod deployments;
mod events;
mod noderoles;
mod nodes;
mod people;
mod proposals;
mod reviews;
mod runs;
mod workers;

pub use audit_log::{audit, audit_unsealed, seal};
pub use blueprints::{blueprint, head, policy, projected};
pub use catalog::{barclamp, import_report, jig, object};
pub(crate) use columns::Columns;
pub use deployments::{blueprint_deployment, concurrency_group, deployment, disruption_budget};
pub use events::{event, event_cutoff};
pub(crate) use noderoles::{NoderoleIntent, step_columns};
pub use noderoles::{NoderoleModel, StepModel, edge, noderole, role_check, step};
pub use nodes::{health_check, node, node_fact, node_report};
pub use people::{
    access_change, account, acting, idempotency, passkey, passkey_confirmation, person,
    scoped_grant, session, token, totp, visit,
};
pub use proposals::{edit, not_restored, proposal};
pub use reviews::{
    comment, replan, review, review_author, review_base, review_document, review_view,
    signature_demand, verdict, verdict_signature, viewed_change,
};
pub use runs::{run, run_log};
pub use workers::{background_task, database_role, guard_version, server_address, worker};

use sea_orm::sea_query::{Expr, ExprTrait as _};
use sea_orm::{EntityTrait, RelationDef, Value};

/// The contents of an entity's module.
pub(crate) mod prelude {
    pub use sea_orm::entity::prelude::*;

    pub use super::Relation;
}

/// Queries name their joins ([`join`]), so no entity lists its relations.
#[derive(Clone, Copy, Debug, sea_orm::EnumIter)]
pub enum Relation {}

impl sea_orm::RelationTrait for Relation {
    fn def(&self) -> RelationDef {
        match *self {}
    }
}

/// A join of two tables on these columns.
pub fn join<A: sea_orm::ColumnTrait, B: sea_orm::ColumnTrait>(from: A, to: B) -> RelationDef
where
    A::EntityName: EntityTrait<Column = A>,
    B::EntityName: EntityTrait<Column = B>,
{
    A::EntityName::belongs_to(B::EntityName::default()).from(from).to(to).into()
}

/// A comparison with a literal. PostgreSQL uses a partial index only if the statement has the
/// values of its condition as literals, not as parameters.
pub fn equals_literal<C: sea_orm::ColumnTrait>(column: C, value: impl Into<Value>) -> Expr {
    column.into_expr().eq(Expr::Constant(value.into()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use sea_orm::sea_query::ColumnType;
    use sea_orm::{
        ColumnTrait, DbBackend, IdenStatic as _, Iterable, QueryFilter as _, QueryTrait as _,
    };
    use testdb::TestDatabase;

    use super::*;

    /// Table, column, type and whether it may be NULL.
    type Column = (String, String, String, bool);

    fn type_name(column_type: &ColumnType) -> String {
        let name = match column_type {
            ColumnType::String(_) | ColumnType::Text => "text",
            ColumnType::SmallInteger => "int2",
            ColumnType::Integer => "int4",
            ColumnType::BigInteger => "int8",
            ColumnType::Boolean => "bool",
            ColumnType::Uuid => "uuid",
            ColumnType::JsonBinary => "jsonb",
            ColumnType::TimestampWithTimeZone => "timestamptz",
            ColumnType::VarBinary(_) | ColumnType::Blob => "bytea",
            ColumnType::Custom(name) => return name.to_string(),
            ColumnType::Array(element) => return format!("_{}", type_name(element)),
            other => return format!("{other:?}"),
        };
        name.to_owned()
    }

    fn columns<E: EntityTrait>() -> Vec<Column> {
        let column = |column: E::Column| {
            let definition = column.def();
            let table = E::default().table_name().to_owned();
            let type_name = type_name(definition.get_column_type());
            (table, column.as_str().to_owned(), type_name, definition.is_null())
        };
        E::Column::iter().map(column).collect()
    }

    macro_rules! columns_of {
        ($($entity:ident)+) => {
            [$(columns::<$entity::Entity>()),+].concat().into_iter().collect()
        };
    }

    #[test]
    fn literal_comparison_has_no_parameter() {
        let query = audit::Entity::find();
        let query = query.filter(equals_literal(audit::Column::Source, "application"));
        let sql = query.build(DbBackend::Postgres).sql;
        assert!(sql.ends_with(r#"WHERE "audit"."source" = 'application'"#), "{sql}");
    }

    #[tokio::test]
    async fn entities_match_the_schema() {
        let entities: BTreeSet<Column> = columns_of![
            access_change account acting audit audit_unsealed background_task barclamp blueprint
            blueprint_deployment comment concurrency_group database_role deployment
            disruption_budget edge edit event event_cutoff guard_version head health_check
            idempotency import_report jig not_restored node node_fact node_report noderole object
            passkey passkey_confirmation person policy projected proposal replan review
            review_author review_base review_document review_view role_check run run_log scoped_grant seal
            server_address session signature_demand step token totp verdict verdict_signature
            viewed_change visit worker
        ];
        let db = TestDatabase::new().await;
        let schema: Vec<Column> = sqlx::query_as(
            "SELECT c.table_name::text, c.column_name::text, c.udt_name::text, c.is_nullable = 'YES' \
             FROM information_schema.columns c JOIN pg_class t ON t.relname = c.table_name \
             AND t.relnamespace = 'public'::regnamespace AND NOT t.relispartition AND t.relkind IN ('r', 'p') \
             WHERE c.table_schema = 'public' AND c.table_name <> 'seaql_migrations'",
        )
        .fetch_all(db.owner())
        .await
        .unwrap();
        let schema: BTreeSet<Column> = schema.into_iter().collect();
        let missing: Vec<_> = schema.difference(&entities).collect();
        let wrong: Vec<_> = entities.difference(&schema).collect();
        assert!(
            missing.is_empty() && wrong.is_empty(),
            "only in the schema: {missing:?}, only in the entities: {wrong:?}"
        );
    }
}
