//! The catalog: objects by hash, imported barclamps and jigs. Rows never change.

mod imports;
mod objects;

pub use imports::{
    BarclampRow, ImportOutcome, ImportRow, MAX_BARCLAMPS, append_import_report, barclamps,
    import_barclamp, import_reports, jigs, lock_imports,
};
pub use objects::{ScriptHead, bodies, catalog_objects, ensure_objects, object_body, script_heads};
