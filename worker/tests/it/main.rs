//! Tests of workers with a real PostgreSQL.

mod addresses;
mod admission;
mod adoption;
mod checks;
mod cluster;
mod data;
mod hosts;
mod joining;
mod node_records;
mod process;
mod promises;
mod queue;
mod removal;
mod running;
mod scripts;
mod signatures;
mod ssh;
mod stale;
mod waiting;
mod wrapper;
mod wrapper_node;
