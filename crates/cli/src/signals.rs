//! When to stop: Ctrl-C, a polite kill, or the end of whoever started this process.

use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};

/// Resolves at the first SIGINT or SIGTERM.
pub async fn stopped() {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        tracing::error!("signals can't be heard; stop this process with SIGKILL");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// Resolves when standard input ends: a parent holds its other end, also when that parent is killed.
pub async fn orphaned() {
    let mut input = tokio::io::stdin();
    let mut buffer = [0u8; 64];
    while let Ok(1..) = input.read(&mut buffer).await {}
}
