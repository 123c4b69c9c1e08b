//! A planned change, and lists of its parts that may be truncated.

use serde::{Deserialize, Serialize};

use super::difference::Difference;
use super::projection::Projection;
use crate::catalog::Catalog;
use crate::cluster::Blueprint;
use crate::plan::Effects;

/// The maximum number of items in a list. Further items are only counted.
pub const MAX_LIST_ITEMS: usize = 200;
/// The maximum number of nodes of a role in a wave, and of roles that it waits for. Further ones
/// are only counted.
pub const NAMED: usize = 24;

/// A planned change.
#[derive(Debug, Clone, Copy)]
pub struct Planned<'a> {
    /// The current desired state.
    pub old: &'a Blueprint,
    /// The desired state after the change.
    pub new: &'a Blueprint,
    /// The differences between the two.
    pub difference: &'a Difference,
    /// The effect on steps.
    pub projection: &'a Projection,
    /// The effects of the edits. Empty when two targets are compared.
    pub effects: &'a Effects,
    /// Every object that the blueprints pin.
    pub catalog: &'a Catalog,
}

/// List that may be truncated. The difference contains every item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Counted{T}"))]
pub struct Counted<T> {
    /// Number of all items.
    pub count: usize,
    /// The first items, at most 200.
    pub first: Vec<T>,
}

impl<T> Default for Counted<T> {
    fn default() -> Self {
        Self { count: 0, first: Vec::new() }
    }
}

impl<T> From<Vec<T>> for Counted<T> {
    fn from(all: Vec<T>) -> Self {
        Self::up_to(MAX_LIST_ITEMS, all)
    }
}

impl<T> Counted<T> {
    pub(super) fn up_to(most: usize, mut all: Vec<T>) -> Self {
        let count = all.len();
        all.truncate(most);
        Self { count, first: all }
    }

    /// Whether the list has no items.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The number of items that are left out.
    pub fn more(&self) -> usize {
        self.count - self.first.len()
    }
}
