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
mod draft;
pub mod drop_preview;
pub mod edit;
pub mod effects;
pub mod ground;
pub mod materialize;
pub mod order;
pub mod reads;
pub mod refusal;
mod remove;
pub mod resolve;
pub mod restore;
mod visible_catalog;

pub use base::Scope;
pub use bind::Rules;
pub use clash::{Clash, SideEffects, clashes};
pub use drop_preview::preview_drop;
pub use edit::{Edit, EditNames, MAX_LEVELS, MAX_LISTED, MAX_REASON, NumberedEdit};
pub use effects::{Effects, Refusal};
pub use ground::{Ground, Grounded};
pub use materialize::{UndocumentedNode, materialize};
pub use order::order;
pub use refusal::EditError;
pub use resolve::{resolve, resolve_with, resolve_with_rules};
pub use restore::restore;
pub use visible_catalog::twice;
