//! Rows that a commit writes, by column.
//!
//! Each column is declared once, with its value. The statements of the commit and the comparison of
//! `gantry verify` take the list of columns from here.

use std::fmt::Display;

use sea_orm::ColumnTrait;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArguments, PgHasArrayType};
use sqlx::{Arguments as _, AssertSqlSafe, Encode, PgConnection, Postgres, Type, TypeInfo as _};

use crate::StoreError;

pub(crate) struct Columns<'r, R> {
    rows: &'r [R],
    /// The columns that identify a row. Only an INSERT writes them.
    identity: Vec<&'static str>,
    intent: Vec<&'static str>,
    /// Every name with its array type, in the order of the arguments.
    arrays: Vec<(&'static str, String)>,
    arguments: Result<PgArguments, BoxDynError>,
}

impl<'r, R> Columns<'r, R> {
    pub(crate) fn of(rows: &'r [R]) -> Self {
        let (identity, intent, arrays) = (Vec::new(), Vec::new(), Vec::new());
        Self { rows, identity, intent, arrays, arguments: Ok(PgArguments::default()) }
    }

    /// Adds a column that identifies a row.
    pub(crate) fn identity<T>(mut self, column: impl ColumnTrait, of: impl Fn(&'r R) -> T) -> Self
    where
        T: for<'e> Encode<'e, Postgres> + Type<Postgres> + PgHasArrayType,
    {
        self.identity.push(column.as_str());
        self.value(column.as_str(), of)
    }

    /// Adds a column that every commit of the row writes.
    pub(crate) fn intent<T>(mut self, column: impl ColumnTrait, of: impl Fn(&'r R) -> T) -> Self
    where
        T: for<'e> Encode<'e, Postgres> + Type<Postgres> + PgHasArrayType,
    {
        self.intent.push(column.as_str());
        self.value(column.as_str(), of)
    }

    /// Adds a value that a statement needs and that is no column of the table.
    pub(crate) fn value<T>(mut self, name: &'static str, of: impl Fn(&'r R) -> T) -> Self
    where
        T: for<'e> Encode<'e, Postgres> + Type<Postgres> + PgHasArrayType,
    {
        let values: Vec<T> = self.rows.iter().map(of).collect();
        self.arrays.push((name, <Vec<T> as Type<Postgres>>::type_info().name().to_owned()));
        self.arguments = self.arguments.and_then(|mut arguments| {
            arguments.add(values)?;
            Ok(arguments)
        });
        self
    }

    /// The columns of the table, separated by commas, each after the prefix.
    pub(crate) fn names(&self, prefix: &str) -> String {
        list(self.identity.iter().chain(&self.intent).map(|name| format!("{prefix}{name}")))
    }

    /// The assignments of an UPDATE.
    pub(crate) fn assignments(&self, from: &str) -> String {
        list(self.intent.iter().map(|name| format!("{name} = {from}.{name}")))
    }

    /// The rows as a table with the alias `d`.
    pub(crate) fn rows(&self) -> String {
        let numbered = self.arrays.iter().zip(1..);
        let arrays = list(numbered.map(|((_, array), n)| format!("${n}::{array}")));
        format!("unnest({arrays}) AS d ({})", list(self.arrays.iter().map(|(name, _)| name)))
    }

    /// Runs a statement that consists of these lists and constants.
    pub(crate) async fn execute(
        self,
        on: &mut PgConnection,
        statement: String,
    ) -> Result<(), StoreError> {
        sqlx::query_with(AssertSqlSafe(statement), self.arguments()?).execute(on).await?;
        Ok(())
    }

    /// The values, for a statement with [`Self::rows`].
    pub(crate) fn arguments(self) -> Result<PgArguments, StoreError> {
        Ok(self.arguments.map_err(sqlx::Error::Encode)?)
    }
}

fn list(items: impl Iterator<Item = impl Display>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}
