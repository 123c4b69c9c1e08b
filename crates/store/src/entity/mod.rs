//! SeaORM entities of the tables that pages list. They omit columns that only single statements
//! use, so that no list reads a log or a document by accident.

pub mod deployment;
pub mod node;
pub mod noderole;
pub mod run;
pub mod step;
pub mod worker;
