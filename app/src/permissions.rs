//! The permissions of a page's reader.
//!
//! A page hides commands that the server would refuse to its reader, and names the required
//! permission. This is a convenience, not protection: the server checks every command.

use std::future::Future;

use crate::failure::ServerResult;
use crate::frame::server_functions;

/// The permission to propose changes, import barclamps and add nodes.
pub const OPERATOR: &str = "operator";

/// Awaits a request, and returns whether its reader has a permission.
pub async fn with_permission<T>(
    request: impl Future<Output = ServerResult<T>>,
    permission: &str,
) -> ServerResult<(T, bool)> {
    let (found, frame) = (request.await?, server_functions::frame().await?);
    Ok((
        found,
        frame.is_some_and(|frame| frame.me.permissions.iter().any(|word| word == permission)),
    ))
}
