//! Compares blueprints: the difference, its impact, and the findings of lint.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod difference;
mod impact;
mod lint;
mod removal;
mod secret_uses;
mod viewed;
mod world;
