//! Rows as SeaORM sees them: the tables that pages list. Columns that only statements of [`crate::running`] and
//! [`crate::intent`] use are left out, so nothing reads a log or a document by accident.

pub mod deployment;
pub mod node;
pub mod noderole;
pub mod run;
pub mod step;
pub mod worker;
