//! The words that lists can be asked by, the orders that they come in, and the places at which their pages go on.
//!
//! What is left out or empty asks for nothing. Every list has a closed set of columns that it can be sorted by ([`Sort`]), and an order in
//! which it comes when none is asked for. A page names the place behind its last row ([`Cursor`]): the order and that row's keys. Rows that
//! come or go in between make nothing that is there twice or not at all, and a place in one order is none in another.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::At;
use crate::audit::{AuditEntry, AuditPage};
use crate::catalog::{ImportPage, ImportReport, RolePage, RoleSummary};
use crate::console::{
    BarclampVersion, CatalogPage, DeploymentPage, DeploymentSummary, NodePage, NodeSummary,
    ProposalSummary, ReviewSummary, RunPage, RunSummary,
};
use crate::nodes::{Carried, CarriedPage, LookPage, LookView};
use crate::people::{PersonPage, PersonView};
use crate::reviews::{ProposalPage, ReviewPage};
use crate::values::{ResultLine, ResultLines};
use crate::workers::{WorkerPage, WorkerView};

/// What a key of a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A text.
    Text,
    /// A whole number.
    Number,
}

/// What a list can be sorted by: a closed set for each list.
pub trait Sort: Copy + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// All of them.
    const EVERY: &'static [Self];
    /// The order when none is asked for.
    const USUAL: Order<Self>;

    /// The word in an address.
    fn as_str(self) -> &'static str;

    /// A row's keys when it is sorted by this, the one that no other row has last.
    fn keys(self) -> &'static [Kind];
}

/// By what a list is sorted, and which way: `name`, or `-name` from the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order<S> {
    /// By what.
    pub by: S,
    /// From the end, or from the newest.
    pub falling: bool,
}

impl<S: Sort> Order<S> {
    /// From the beginning.
    pub const fn rising(by: S) -> Self {
        Self { by, falling: false }
    }

    /// From the end.
    pub const fn falling(by: S) -> Self {
        Self { by, falling: true }
    }

    /// Whether it is the one in which the list comes by itself.
    pub fn is_usual(self) -> bool {
        self == S::USUAL
    }

    /// The words of all orders.
    pub fn words() -> impl Iterator<Item = String> {
        S::EVERY
            .iter()
            .flat_map(|by| [Self::rising(*by), Self::falling(*by)])
            .map(|order| order.to_string())
    }
}

impl<S: Sort> Default for Order<S> {
    fn default() -> Self {
        S::USUAL
    }
}

impl<S: Sort> fmt::Display for Order<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.falling { "-" } else { "" }, self.by.as_str())
    }
}

/// A word that no order of a list has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{said:?} is no order of this list. There are: {}", known.join(", "))]
pub struct NoOrder {
    said: String,
    known: Vec<String>,
}

impl<S: Sort> FromStr for Order<S> {
    type Err = NoOrder;

    fn from_str(text: &str) -> Result<Self, NoOrder> {
        if text.is_empty() {
            return Ok(S::USUAL);
        }
        let (falling, word) = text.strip_prefix('-').map_or((false, text), |word| (true, word));
        let by = S::EVERY.iter().copied().find(|by| by.as_str() == word);
        by.map(|by| Self { by, falling }).ok_or_else(|| NoOrder {
            said: text.chars().take(80).collect(),
            known: Self::words().collect(),
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
                f.write_str("an order")
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
        // A form whose choice was left alone sends nothing behind the name: that is the same as not to send the name.
        let words: Vec<String> = Self::words().chain([String::new()]).collect();
        schemars::json_schema!({ "type": "string", "enum": words, "default": S::USUAL.to_string() })
    }
}

/// A key of a row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A text.
    Text(String),
    /// A whole number.
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

/// Where a list goes on: behind a row, in one order. Whoever has it gives it back as it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Cursor(String);

/// A text that is no place in a list as it is sorted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{said:?} is no place in this list sorted by {order}: take what the page before said under next, with the same sort"
)]
pub struct NotAPlace {
    said: String,
    order: String,
}

impl NotAPlace {
    /// Of a place in this order.
    pub fn new<S: Sort>(place: Option<&Cursor>, order: Order<S>) -> Self {
        let said = place.map(Cursor::as_str).unwrap_or_default();
        Self { said: said.chars().take(80).collect(), order: order.to_string() }
    }
}

/// Stands between keys. In a key a `~` is written `~0`.
const BETWEEN: &str = "~-";

impl Cursor {
    /// Behind the row with these keys.
    pub fn behind<S: Sort>(order: Order<S>, keys: &[Key]) -> Self {
        let keys: Vec<String> = keys.iter().map(|key| key.to_string().replace('~', "~0")).collect();
        match (order.is_usual(), keys.as_slice()) {
            // Nothing is said that goes without saying, so the commonest places read as what they are.
            (true, [only]) => Self(only.clone()),
            _ => Self(format!("{order}{BETWEEN}{}", keys.join(BETWEEN))),
        }
    }

    /// The keys of the row, if this is a place in that order.
    pub fn keys<S: Sort>(&self, order: Order<S>) -> Result<Vec<Key>, NotAPlace> {
        let kinds = order.by.keys();
        let said = self.0.strip_prefix(&format!("{order}{BETWEEN}"));
        let bare = said.is_none();
        let said = said.or_else(|| Some(&*self.0).filter(|_| order.is_usual() && kinds.len() == 1));
        let parts: Vec<&str> = said.map(|said| said.split(BETWEEN).collect()).unwrap_or_default();
        let key = |(part, kind): (&&str, &Kind)| match kind {
            Kind::Text => Some(Key::Text(part.replace("~0", "~"))),
            // A number that stands alone is a row's own, and no row has one below 0.
            Kind::Number => {
                part.parse().ok().filter(|number: &i64| !bare || *number >= 0).map(Key::Number)
            }
        };
        let keys: Option<Vec<Key>> = parts.iter().zip(kinds).map(key).collect();
        keys.filter(|_| parts.len() == kinds.len()).ok_or_else(|| NotAPlace::new(Some(self), order))
    }

    /// The text in an address.
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

/// A page of a list.
pub trait Paged {
    /// What the list is of.
    type Row;

    /// The rows of this page.
    fn rows(&self) -> &[Self::Row];

    /// Where the next one begins; None: there is none.
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

paged! {
    DeploymentPage: deployments of DeploymentSummary,
    NodePage: nodes of NodeSummary,
    CarriedPage: noderoles of Carried,
    LookPage: looks of LookView,
    ResultLines: results of ResultLine,
    RunPage: runs of RunSummary,
    CatalogPage: versions of BarclampVersion,
    RolePage: roles of RoleSummary,
    ImportPage: imports of ImportReport,
    PersonPage: people of PersonView,
    WorkerPage: workers of WorkerView,
    AuditPage: entries of AuditEntry,
    ReviewPage: reviews of ReviewSummary,
    ProposalPage: proposals of ProposalSummary,
}

macro_rules! sort {
    ($(#[$about:meta])* $name:ident, $usual:expr, { $($(#[$each:meta])* $variant:ident $word:literal [$($kind:ident),+]),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$each])* $variant),+
        }

        impl Sort for $name {
            const EVERY: &'static [Self] = &[$(Self::$variant),+];
            const USUAL: Order<Self> = $usual;

            fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }

            fn keys(self) -> &'static [Kind] {
                match self {
                    $(Self::$variant => &[$(Kind::$kind),+]),+
                }
            }
        }
    };
}

pub(crate) use sort;

sort! {
    /// What nodes are sorted by.
    NodeSort, Order::rising(Self::Name), {
        /// Their names.
        Name "name" [Text],
        /// How they are: what is dead, then what is out of service, then the others.
        State "state" [Number, Text],
        /// The names of their deployments.
        Deployment "deployment" [Text, Text],
    }
}

sort! {
    /// What runs are sorted by.
    RunSort, Order::falling(Self::Queued), {
        /// When they were queued.
        Queued "queued" [Number],
        /// The words of their states.
        State "state" [Text, Number],
        /// How long they took; what has not ended took no time yet.
        Took "took" [Number, Number],
    }
}

sort! {
    /// What reviews are sorted by.
    ReviewSort, Order::falling(Self::Submitted), {
        /// When they were submitted.
        Submitted "submitted" [Number],
        /// Their titles.
        Title "title" [Text, Number],
    }
}

sort! {
    /// What open proposals are sorted by.
    ProposalSort, Order::falling(Self::Opened), {
        /// When they were opened.
        Opened "opened" [Number],
        /// The names of their deployments.
        Deployment "deployment" [Text, Number],
    }
}

sort! {
    /// What deployments are sorted by.
    DeploymentSort, Order::rising(Self::Tree), {
        /// Where they stand in their tree, from *system* down: the names on the way there.
        Tree "tree" [Text],
        /// Their names.
        Name "name" [Text],
        /// How many nodes they have.
        Nodes "nodes" [Number, Text],
        /// How many of their steps failed.
        Errors "errors" [Number, Text],
        /// The target that changed them last.
        Target "target" [Number, Text],
    }
}

sort! {
    /// What targets are sorted by.
    TargetSort, Order::falling(Self::Number), {
        /// Their numbers, which are their order in time.
        Number "number" [Number],
    }
}

sort! {
    /// What versions of barclamps are sorted by. A place is the content of its version: what is imported stays.
    BarclampSort, Order::rising(Self::Name), {
        /// The names of their barclamps; of each the newest first.
        Name "name" [Text],
        /// When they were imported.
        Imported "imported" [Text],
        /// How many roles they have.
        Roles "roles" [Text],
    }
}

sort! {
    /// What people are sorted by.
    PersonSort, Order::rising(Self::Name), {
        /// Their names.
        Name "name" [Text],
    }
}

sort! {
    /// What workers are sorted by.
    WorkerSort, Order::falling(Self::Started), {
        /// When they started.
        Started "started" [Number, Text],
        /// When they were heard.
        Heard "heard" [Number, Text],
        /// Their names.
        Name "name" [Text],
    }
}

sort! {
    /// What entries of the audit are sorted by.
    AuditSort, Order::falling(Self::At), {
        /// When it was done.
        At "at" [Number],
    }
}

/// Which runs a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RunsWanted {
    /// `queued`, `running`, `succeeded`, `failed`, `lost`, `cancelled` or `unstarted`; empty: in any state.
    pub state: String,
    /// Of what is bound in this deployment, by its name; empty: in any.
    pub deployment: String,
    /// On this node, by its name or its id; empty: on any.
    pub node: String,
    /// Of this role; empty: of any.
    pub role: String,
    /// That this worker carries out, or did, by its name or its id; empty: any, and none yet.
    pub worker: String,
    /// Queued from this moment on, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<At>,
    /// Queued before this moment, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<At>,
    /// In this order.
    pub sort: Order<RunSort>,
    /// Where the page before said that the next one begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Cursor>,
}

/// How a node is, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It is reached.
    Alive,
    /// It is not.
    Dead,
    /// Somebody took it out of service.
    Unavailable,
    /// No target speaks of it.
    Record,
}

impl NodeState {
    /// All of them.
    pub const EVERY: [Self; 4] = [Self::Alive, Self::Dead, Self::Unavailable, Self::Record];

    /// The word in an address.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Dead => "dead",
            Self::Unavailable => "unavailable",
            Self::Record => "record",
        }
    }
}

/// Which nodes a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct NodesWanted {
    /// With this in the name; empty: with any.
    pub filter: String,
    /// In this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<NodeState>,
    /// That belong to this deployment, by its name; empty: to any.
    pub deployment: String,
    /// In this order.
    pub sort: Order<NodeSort>,
    /// Where the page before said that the next one begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Cursor>,
}

/// What of a deployment is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DeploymentState {
    /// No runs start in it.
    Held,
    /// It has an open proposal.
    Proposed,
    /// That was submitted.
    Review,
    /// A step of it failed.
    Error,
    /// Steps of it are to be carried out, or are.
    Working,
    /// Nothing of that.
    Idle,
}

impl DeploymentState {
    /// All of them.
    pub const EVERY: [Self; 6] =
        [Self::Held, Self::Proposed, Self::Review, Self::Error, Self::Working, Self::Idle];

    /// The word in an address.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Proposed => "proposed",
            Self::Review => "review",
            Self::Error => "error",
            Self::Working => "working",
            Self::Idle => "idle",
        }
    }
}

/// Which deployments a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct DeploymentsWanted {
    /// With this in the name; empty: with any.
    pub filter: String,
    /// Of which this is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<DeploymentState>,
    /// In this order.
    pub sort: Order<DeploymentSort>,
    /// Where the page before said that the next one begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Cursor>,
}

/// Which targets a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct TargetsWanted {
    /// That changed this deployment, by its name; empty: all.
    pub deployment: String,
    /// In this order.
    pub sort: Order<TargetSort>,
    /// Where the page before said that the next one begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Cursor>,
}

/// Which barclamps a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct BarclampsWanted {
    /// With this in the name; empty: with any.
    pub filter: String,
    /// In this order.
    pub sort: Order<BarclampSort>,
    /// Where the page before said that the next one begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Cursor>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_wire() {
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

    fn every_order<S: Sort>() -> Vec<Order<S>> {
        let all: Vec<Order<S>> = Order::<S>::words().map(|word| word.parse().unwrap()).collect();
        assert_eq!(all.len(), 2 * S::EVERY.len());
        all
    }

    #[test]
    fn an_order_is_its_word_and_others_are_refused_with_those_that_there_are() {
        for order in every_order::<NodeSort>() {
            assert_eq!(serde_json::to_value(order).unwrap(), order.to_string());
            assert_eq!(
                serde_json::from_value::<Order<NodeSort>>(order.to_string().into()).unwrap(),
                order
            );
        }
        assert_eq!("".parse::<Order<RunSort>>().unwrap(), RunSort::USUAL);
        let error = "colour".parse::<Order<RunSort>>().unwrap_err().to_string();
        assert_eq!(
            error,
            "\"colour\" is no order of this list. There are: queued, -queued, state, -state, took, -took"
        );
        assert!("--name".parse::<Order<NodeSort>>().is_err());
    }

    #[test]
    fn a_place_holds_its_keys_whatever_is_in_them() {
        for text in ["", "web", "a~b", "~-", "~0~-~0", "é/&=%", "-title~-1"] {
            for order in [Order::rising(ReviewSort::Title), Order::falling(ReviewSort::Title)] {
                let keys = [Key::from(text), Key::from(-7)];
                assert_eq!(
                    Cursor::behind(order, &keys).keys(order).unwrap(),
                    keys,
                    "{text:?} by {order}"
                );
            }
        }
        let usual = RunSort::USUAL;
        assert_eq!(Cursor::behind(usual, &[Key::from(12)]).as_str(), "12");
        assert_eq!(Cursor::from("12".to_owned()).keys(usual).unwrap(), [Key::Number(12)]);
    }

    #[test]
    fn a_place_in_one_order_is_none_in_another() {
        let keys = |order: Order<RunSort>| -> Vec<Key> {
            let one = |kind: &Kind| if *kind == Kind::Text { Key::from("1") } else { Key::from(1) };
            order.by.keys().iter().map(one).collect()
        };
        for from in every_order::<RunSort>() {
            let place = Cursor::behind(from, &keys(from));
            for to in every_order::<RunSort>() {
                assert_eq!(place.keys(to).is_ok(), from == to, "{place} by {to}");
            }
        }
        for junk in ["", "x", "-5", "-queued", "-queued~-", "-queued~-1~-2", "-queued~-1.5"] {
            assert!(Cursor::from(junk.to_owned()).keys(RunSort::USUAL).is_err(), "{junk:?}");
        }
    }
}
