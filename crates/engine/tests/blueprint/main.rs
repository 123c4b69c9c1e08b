//! Compares blueprints: the difference, its impact, and the findings of lint.

#![expect(clippy::unwrap_used, reason = "what a test can’t go on without, it fails without")]

mod consequences;
mod difference;
mod lint;
mod opened;
mod removal;
mod secret_uses;
mod world;
