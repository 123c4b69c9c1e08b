//! Lists in the order that was asked for, from the place that was asked for.
//!
//! A row's keys are compared as one, all in one direction, so an index serves an order and its reverse.

use api::listing::Key;
use sea_orm::sea_query::{Expr, SimpleExpr};

/// The rows behind the one with these keys, by columns in the order of the keys.
pub(super) fn behind(columns: &[&str], falling: bool, keys: &[Key]) -> SimpleExpr {
    let places: Vec<String> = (1..=keys.len()).map(|n| format!("${n}")).collect();
    let sign = if falling { "<" } else { ">" };
    let text = format!("({}) {sign} ({})", columns.join(", "), places.join(", "));
    let values: Vec<sea_orm::Value> = keys.iter().map(value).collect();
    Expr::cust_with_values(text, values)
}

fn value(key: &Key) -> sea_orm::Value {
    match key {
        Key::Text(text) => text.clone().into(),
        Key::Number(number) => (*number).into(),
    }
}

/// Which way a column goes.
pub(super) fn way(falling: bool) -> sea_orm::Order {
    if falling { sea_orm::Order::Desc } else { sea_orm::Order::Asc }
}
