//! Workers on a real PostgreSQL.

mod cluster;
mod process;
mod queue;
mod running;
mod scripts;
