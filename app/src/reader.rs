//! What the reader of a page may do.
//!
//! A page leaves out what the server would refuse to its reader, and says which permission it takes. That protects nothing: every
//! command is checked by the server, whatever the page showed.

use std::future::Future;

use crate::calls;
use crate::failure::Answer;

/// The permission to propose, to import, and to add nodes.
pub const OPERATOR: &str = "operator";

/// What was asked for, and whether its reader has a permission.
pub async fn with_right<T>(
    asked: impl Future<Output = Answer<T>>,
    permission: &str,
) -> Answer<(T, bool)> {
    let (found, frame) = (asked.await?, calls::frame().await?);
    Ok((
        found,
        frame.is_some_and(|frame| frame.me.permissions.iter().any(|word| word == permission)),
    ))
}
