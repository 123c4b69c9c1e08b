//! Planning: from a person's edits to an exact change.
//!
//! ```text
//! edits, skeleton, catalog --resolve--> Effects --materialize(blueprint)--> Blueprint
//! ```
//!
//! [`resolve`](resolve::resolve) makes every decision: additional noderoles, their nodes, their
//! parents, and the reasons. Reviewers read the resulting [`Effects`](effects::Effects) as text,
//! and server and browser compare them by hash. [`materialize`](materialize::materialize) only
//! converts effects to the documents of a new blueprint. Nothing is left to choose at run time.
//!
//! Invariants:
//!
//! * An edit either takes effect as a whole or is refused with a reason and no effect.
//! * Edits apply in the order of their numbers. The same edits on the same skeleton give the same
//!   effects, byte for byte.
//! * A plan reads and changes nothing outside of its base: see [`base`].

mod adopt;
pub mod base;
pub mod bind;
pub mod clash;
mod conflicts;
mod draft;
pub mod drop_preview;
mod duplicate_roles;
pub mod edit;
pub mod effects;
mod limits;
pub mod materialize;
mod names;
pub mod order;
pub mod planning_data;
pub mod reads;
pub mod refusal;
mod remove;
pub mod resolve;
pub mod restore;
mod restore_goals;
mod rules;
pub(crate) mod set_values;
mod side_effects;
mod visible_catalog;
mod writing;

pub use base::Scope;
pub use clash::{Clash, clashes};
pub use drop_preview::preview_drop;
pub use duplicate_roles::duplicate_role;
pub use edit::{Edit, EditNames, MAX_LEVELS, MAX_LISTED, MAX_REASON, NumberedEdit};
pub use effects::{Effects, Refusal};
pub use materialize::{UndocumentedNode, materialize};
pub use order::order;
pub use planning_data::{PlanningContext, PlanningData};
pub use refusal::EditError;
pub use resolve::{resolve, resolve_with, resolve_with_rules};
pub use restore::restore;
pub use rules::Rules;
pub use side_effects::SideEffects;
