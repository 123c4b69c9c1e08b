//! Blueprints compared: what differs, what follows from it, and what lint says of it.

#![expect(clippy::unwrap_used, reason = "what a test can’t go on without, it fails without")]

mod consequences;
mod difference;
mod lint;
mod opened;
mod secret_uses;
mod world;
