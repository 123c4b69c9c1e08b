//! Integration tests of the use cases on a real PostgreSQL.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod abuse;
mod access;
mod arbitrary_blueprints;
mod audit_export;
mod bad_input;
mod base;
mod blueprints;
mod catalog;
mod change;
mod compute;
mod credentials;
mod deployment_moves;
mod discussion;
mod gate;
mod gate_view;
mod graphs;
mod health_checks;
mod hidden_changes;
mod installation;
mod lint;
mod listing;
mod node_proposals;
mod node_records;
mod nodes;
mod people;
mod pool;
mod progress;
mod races;
mod removal;
mod replan;
mod restore;
mod revoked_access;
mod rollout;
mod second_factor;
mod secrets;
mod signatures;
mod system_deployment;
mod undo;
mod viewed_changes;
