//! Comparisons of blueprints.
//!
//! Each view of the change between two blueprints starts from the hashes of their roots. So it
//! costs only the differences:
//!
//! * [`changes`]: the documents that differ, by hash. A submission lists them, and its commit may
//!   change nothing else. Applied to the old root they give exactly the new one ([`apply`]).
//! * [`Difference`](difference::Difference): the same for people, down to single values; [`text`]
//!   formats it.
//! * [`Impact`](impact::Impact): the impact, for the people who decide.
//! * [`SecretChange`](secret_uses::SecretChange): the secrets that the change uses, by name and
//!   version.
//! * [`Projection`](projection::Projection): the same for the annealer: steps that are added, run
//!   again or move in the order.

pub mod anchor;
pub mod difference;
pub mod effect_difference;
pub mod impact;
mod planned;
pub mod projection;
pub mod secret_uses;
pub mod text;
pub mod viewed;

pub use crate::cluster::change::{
    DocumentChange, RootMismatch, apply, change_hash, changes, compare,
};
pub use anchor::{Anchor, NotAnAnchor};
pub use difference::{Difference, difference};
pub use effect_difference::EffectDifference;
pub use impact::{Impact, impact};
pub use projection::{Projection, project};
pub use secret_uses::{SecretChange, secret_changes};
