//! Planning: from a person's edits to an exact change.
//!
//! ```text
//! edits, skeleton, catalog --resolve--> Effects --materialise(blueprint)--> Blueprint
//! ```
//!
//! [`resolve`](resolve::resolve) decides everything there is to decide: what comes along, where it goes, what it waits for and why.
//! Its answer, the [`Effects`](effects::Effects), is what people review in words and what server and browser compare by hash.
//! [`materialise`](materialise::materialise) only writes down: it turns effects into the documents of a new blueprint. Nothing is
//! left to choose at run time.
//!
//! Invariants:
//! * An edit either takes effect as a whole or is refused with a reason and leaves nothing behind.
//! * The order of edits is the order of their numbers; the same edits on the same skeleton give the same effects, to the byte.
//! * An edit never changes what another deployment's sibling means (its base): see [`base`].

mod adopt;
pub mod base;
pub mod bind;
pub mod clash;
mod draft;
pub mod edit;
pub mod effects;
pub mod ground;
pub mod lift;
pub mod materialise;
pub mod refusal;
mod remove;
pub mod report;
pub mod resolve;
pub mod restore;
mod sight;

pub use base::Scope;
pub use bind::Rules;
pub use clash::{Along, Clash, clashes};
pub use edit::{Edit, MAX_LEVELS, MAX_LISTED, MAX_REASON, NumberedEdit};
pub use effects::{Effects, Refusal};
pub use ground::{Ground, Grounded};
pub use lift::lift;
pub use materialise::{Bare, materialise};
pub use refusal::EditError;
pub use report::{Report, report};
pub use resolve::{resolve, resolve_by, resolve_with};
pub use restore::restore;
pub use sight::twice;
