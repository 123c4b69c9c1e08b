//! Filters, sort orders and cursors of lists.
//!
//! An absent or empty filter matches everything. Every list has a closed set of sort columns
//! ([`Sort`]) and a default order. A [`Cursor`] contains the order and the keys of the last row of
//! a page. So rows that appear or disappear between two requests never duplicate or hide other
//! rows. A cursor is valid for its own order only.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Type of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    Text,
    Number,
}

/// The sort columns of a list.
pub trait Sort: Copy + PartialEq + fmt::Debug + Send + Sync + 'static {
    const EVERY: &'static [Self];
    /// The default order.
    const DEFAULT: Order<Self>;

    /// The name in a query.
    fn as_str(self) -> &'static str;

    /// Types of a row's keys in this order. The last key is unique within the list.
    fn keys(self) -> &'static [KeyKind];
}

/// A sort order: `name` ascending, `-name` descending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order<S> {
    pub by: S,
    /// Whether the order is descending.
    pub descending: bool,
}

impl<S: Sort> Order<S> {
    pub const fn ascending(by: S) -> Self {
        Self { by, descending: false }
    }

    pub const fn descending(by: S) -> Self {
        Self { by, descending: true }
    }

    /// Whether this is the list's default order.
    pub fn is_default(self) -> bool {
        self == S::DEFAULT
    }

    /// The names of all orders.
    pub fn names() -> impl Iterator<Item = String> {
        S::EVERY
            .iter()
            .flat_map(|by| [Self::ascending(*by), Self::descending(*by)])
            .map(|order| order.to_string())
    }
}

impl<S: Sort> Default for Order<S> {
    fn default() -> Self {
        S::DEFAULT
    }
}

impl<S: Sort> fmt::Display for Order<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.descending { "-" } else { "" }, self.by.as_str())
    }
}

/// An unknown sort order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown sort order {given:?}. Valid orders: {}", known.join(", "))]
pub struct UnknownOrder {
    given: String,
    known: Vec<String>,
}

impl<S: Sort> FromStr for Order<S> {
    type Err = UnknownOrder;

    fn from_str(text: &str) -> Result<Self, UnknownOrder> {
        if text.is_empty() {
            return Ok(S::DEFAULT);
        }
        let (descending, word) = text.strip_prefix('-').map_or((false, text), |word| (true, word));
        let by = S::EVERY.iter().copied().find(|by| by.as_str() == word);
        by.map(|by| Self { by, descending }).ok_or_else(|| UnknownOrder {
            given: text.chars().take(80).collect(),
            known: Self::names().collect(),
        })
    }
}

impl<S: Sort> Serialize for Order<S> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, S: Sort> Deserialize<'de> for Order<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Word<S>(PhantomData<S>);
        impl<S: Sort> Visitor<'_> for Word<S> {
            type Value = Order<S>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sort order")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Order<S>, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Word(PhantomData))
    }
}

#[cfg(feature = "schema")]
impl<S: Sort> schemars::JsonSchema for Order<S> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Order".into()
    }

    fn schema_id() -> std::borrow::Cow<'static, str> {
        format!("Order<{}>", std::any::type_name::<S>()).into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        // An HTML form sends an empty value for an unchanged choice, which means the default.
        let words: Vec<String> = Self::names().chain([String::new()]).collect();
        // Names for generated clients, which can't derive them from `-name` and an empty value.
        let name = |word: &String| match word.strip_prefix('-') {
            Some(word) => format!("{word}_descending"),
            None if word.is_empty() => "default".to_owned(),
            None => word.clone(),
        };
        let names: Vec<String> = words.iter().map(name).collect();
        schemars::json_schema!({
            "type": "string", "enum": words, "default": S::DEFAULT.to_string(),
            "x-enum-varnames": names,
        })
    }
}

/// A key of a row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Text(String),
    Number(i64),
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for Key {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => number.fmt(f),
        }
    }
}

/// A position in a list, for one sort order. Treat it as opaque: pass the `next` value of a page
/// unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Cursor(String);

/// An invalid cursor for this list and order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "Invalid cursor {given:?} for the sort order {order}. Use the `next` value of the previous \
     page with the same sort order"
)]
pub struct InvalidCursor {
    given: String,
    order: String,
}

impl InvalidCursor {
    pub fn new<S: Sort>(cursor: Option<&Cursor>, order: Order<S>) -> Self {
        let text = cursor.map(Cursor::as_str).unwrap_or_default();
        Self { given: text.chars().take(80).collect(), order: order.to_string() }
    }
}

/// Separates keys. A `~` within a key is written `~0`, so no key contains the separator.
const SEPARATOR: &str = "~-";

impl Cursor {
    /// The cursor after the row with these keys.
    pub fn after_row<S: Sort>(order: Order<S>, keys: &[Key]) -> Self {
        let keys: Vec<String> = keys.iter().map(|key| key.to_string().replace('~', "~0")).collect();
        match (order.is_default(), keys.as_slice()) {
            // Short form for the default order with one key: the key itself.
            (true, [single]) => Self(single.clone()),
            _ => Self(format!("{order}{SEPARATOR}{}", keys.join(SEPARATOR))),
        }
    }

    /// The keys of the row, if the cursor is valid for this order.
    pub fn keys<S: Sort>(&self, order: Order<S>) -> Result<Vec<Key>, InvalidCursor> {
        let kinds = order.by.keys();
        let text = self.0.strip_prefix(&format!("{order}{SEPARATOR}"));
        let is_short = text.is_none();
        let text =
            text.or_else(|| Some(&*self.0).filter(|_| order.is_default() && kinds.len() == 1));
        let parts: Vec<&str> = text.map(|text| text.split(SEPARATOR).collect()).unwrap_or_default();
        let key = |(part, kind): (&&str, &KeyKind)| match kind {
            KeyKind::Text => Some(Key::Text(part.replace("~0", "~"))),
            // In the short form the number is a row's own number, which is never negative.
            KeyKind::Number => {
                part.parse().ok().filter(|number: &i64| !is_short || *number >= 0).map(Key::Number)
            }
        };
        let keys: Option<Vec<Key>> = parts.iter().zip(kinds).map(key).collect();
        keys.filter(|_| parts.len() == kinds.len())
            .ok_or_else(|| InvalidCursor::new(Some(self), order))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Cursor {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub trait Paged {
    type Row;

    fn rows(&self) -> &[Self::Row];

    /// Cursor of the next page, or `None` on the last page.
    fn next(&self) -> Option<&Cursor>;
}

macro_rules! paged {
    ($($page:ty: $rows:ident of $row:ty),+ $(,)?) => {
        $(impl Paged for $page {
            type Row = $row;

            fn rows(&self) -> &[$row] {
                &self.$rows
            }

            fn next(&self) -> Option<&Cursor> {
                self.next.as_ref()
            }
        })+
    };
}

macro_rules! sort {
    (
        $(#[$about:meta])* $name:ident,
        $usual:expr,
        { $($(#[$each:meta])* $variant:ident $word:literal [$($kind:ident),+]),+ $(,)? }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$each])* $variant),+
        }

        impl Sort for $name {
            const EVERY: &'static [Self] = &[$(Self::$variant),+];
            const DEFAULT: Order<Self> = $usual;

            fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }

            fn keys(self) -> &'static [KeyKind] {
                match self {
                    $(Self::$variant => &[$(KeyKind::$kind),+]),+
                }
            }
        }
    };
}

pub(crate) use {paged, sort};

/// Default number of rows on a page of a list.
pub const PAGE_SIZE: usize = 50;
/// Maximum number of rows that a client can request with `limit`.
pub const MAX_LIMIT: usize = 200;

/// Maximum number of rows on a page: 1 to [`MAX_LIMIT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limit(u16);

/// A number of rows out of range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the limit must be a whole number from 1 to {MAX_LIMIT}, not {0}")]
pub struct InvalidLimit(String);

impl Limit {
    /// Number of rows on a page: the limit, or the list's default.
    pub fn rows(limit: Option<Self>, default: usize) -> usize {
        limit.map_or(default, |limit| limit.0.into())
    }
}

impl FromStr for Limit {
    type Err = InvalidLimit;

    fn from_str(text: &str) -> Result<Self, InvalidLimit> {
        let is_valid = |number: &u16| (1..=MAX_LIMIT).contains(&usize::from(*number));
        let number = text.parse().ok().filter(is_valid);
        number.map(Self).ok_or_else(|| InvalidLimit(text.chars().take(20).collect()))
    }
}

impl Serialize for Limit {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        serializer.serialize_u16(self.0)
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Rows;
        impl Visitor<'_> for Rows {
            type Value = Limit;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number from 1 to {MAX_LIMIT}")
            }

            // In a query, every value is a text.
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Limit, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, rows: u64) -> Result<Limit, E> {
                self.visit_str(&rows.to_string())
            }
        }
        deserializer.deserialize_any(Rows)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Limit {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Limit".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "integer", "minimum": 1, "maximum": MAX_LIMIT,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deployments::DeploymentState;
    use crate::nodes::{NodeSort, NodeState};
    use crate::reviews::ReviewSort;
    use crate::runs::RunSort;

    #[test]
    fn state_names_match_wire_format() {
        for state in NodeState::EVERY {
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
        for state in DeploymentState::EVERY {
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
        for outcome in crate::values::ResultOutcome::EVERY {
            assert_eq!(serde_json::to_value(outcome).unwrap(), outcome.as_str());
        }
    }

    #[test]
    fn limit_is_a_number_from_1_to_200() {
        for (text, rows) in [("1", 1), ("200", 200)] {
            assert_eq!(Limit::rows(text.parse().ok(), PAGE_SIZE), rows);
            assert_eq!(Limit::rows(serde_json::from_str(text).ok(), PAGE_SIZE), rows);
        }
        for text in ["0", "201", "-1", "1.5", "ten", "", "99999999999999999999"] {
            let error = text.parse::<Limit>().unwrap_err().to_string();
            assert!(error.contains("from 1 to 200"), "{error}");
        }
        assert_eq!(Limit::rows(None, PAGE_SIZE), PAGE_SIZE);
    }

    fn every_order<S: Sort>() -> Vec<Order<S>> {
        let all: Vec<Order<S>> = Order::<S>::names().map(|word| word.parse().unwrap()).collect();
        assert_eq!(all.len(), 2 * S::EVERY.len());
        all
    }

    #[test]
    fn unknown_sort_order_error_lists_valid_orders() {
        for order in every_order::<NodeSort>() {
            assert_eq!(serde_json::to_value(order).unwrap(), order.to_string());
            assert_eq!(
                serde_json::from_value::<Order<NodeSort>>(order.to_string().into()).unwrap(),
                order
            );
        }
        assert_eq!("".parse::<Order<RunSort>>().unwrap(), RunSort::DEFAULT);
        let error = "color".parse::<Order<RunSort>>().unwrap_err().to_string();
        assert_eq!(
            error,
            "unknown sort order \"color\". Valid orders: queued, -queued, state, -state, duration, \
             -duration"
        );
        assert!("--name".parse::<Order<NodeSort>>().is_err());
    }

    #[test]
    fn cursor_preserves_any_keys() {
        for text in ["", "web", "a~b", "~-", "~0~-~0", "é/&=%", "-title~-1"] {
            for order in [Order::ascending(ReviewSort::Title), Order::descending(ReviewSort::Title)]
            {
                let keys = [Key::from(text), Key::from(-7)];
                assert_eq!(
                    Cursor::after_row(order, &keys).keys(order).unwrap(),
                    keys,
                    "keys changed: {text:?} in order {order}"
                );
            }
        }
        let default = RunSort::DEFAULT;
        assert_eq!(Cursor::after_row(default, &[Key::from(12)]).as_str(), "12");
        assert_eq!(Cursor::from("12".to_owned()).keys(default).unwrap(), [Key::Number(12)]);
    }

    #[test]
    fn cursor_of_another_order_is_invalid() {
        let keys = |order: Order<RunSort>| -> Vec<Key> {
            let one =
                |kind: &KeyKind| if *kind == KeyKind::Text { Key::from("1") } else { Key::from(1) };
            order.by.keys().iter().map(one).collect()
        };
        for from in every_order::<RunSort>() {
            let cursor = Cursor::after_row(from, &keys(from));
            for to in every_order::<RunSort>() {
                assert_eq!(cursor.keys(to).is_ok(), from == to, "{cursor} in order {to}");
            }
        }
        for junk in ["", "x", "-5", "-queued", "-queued~-", "-queued~-1~-2", "-queued~-1.5"] {
            assert!(Cursor::from(junk.to_owned()).keys(RunSort::DEFAULT).is_err(), "{junk:?}");
        }
    }
}
