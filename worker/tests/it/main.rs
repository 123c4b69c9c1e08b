//! Workers on a real PostgreSQL.

mod cluster;
mod process;
mod running;
