//! When to stop: Ctrl-C, a polite kill, or the end of whoever started this process.

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
    let (tell, told) = tokio::sync::oneshot::channel();
    // A thread of its own: it blocks until the end, and the process must not wait for it when it stops for another reason.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = tell.send(());
    });
    let _ = told.await;
}
