//! The use cases on a real PostgreSQL.

mod bad_input;
mod change;
mod gate;
mod house;
