//! The queue: leases queued runs for this worker as slots become free.

pub mod backend;
pub mod leases;
