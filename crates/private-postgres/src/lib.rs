//! private-postgres
