//! testdb
