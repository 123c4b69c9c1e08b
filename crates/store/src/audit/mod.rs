//! The audit log, its hash chain and its export.

mod append;
mod entries;
mod export;

pub(crate) use append::add_token;
pub use append::{append_audit, run_with_token};
pub use entries::{
    AuditActor, AuditFilter, AuditRow, audit, entry_exists, epoch, last_seal, seal_at, sealed,
    unsealed,
};
pub use export::{Stage, export_part};
