//! When to stop: Ctrl-C, a polite kill, or the end of whoever started this process.

use std::future::Future;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Resolves at the first SIGINT or SIGTERM. Heard from the call on, not only from the first look.
pub fn stopped() -> impl Future<Output = ()> + Send + 'static {
    let heard = signal(SignalKind::interrupt()).and_then(|first| Ok((first, signal(SignalKind::terminate())?)));
    async move {
        let Ok((mut interrupt, mut terminate)) = heard else {
            tracing::error!("signals can't be heard; stop this process with SIGKILL");
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}

/// Whether to stop, for those who do one thing after the other: it can be asked between them and waited for within one.
#[derive(Debug, Clone)]
pub struct Stopping(watch::Receiver<bool>);

impl Stopping {
    /// At the first SIGINT or SIGTERM from now on.
    pub fn at_signals() -> Self {
        let (tell, told) = watch::channel(false);
        let stopped = stopped();
        tokio::spawn(async move {
            stopped.await;
            let _ = tell.send(true);
        });
        Self(told)
    }

    /// Whether it is time.
    pub fn is_told(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is time.
    pub async fn told(&mut self) {
        if self.0.wait_for(|told| *told).await.is_err() {
            // Nobody is left who could tell.
            std::future::pending().await
        }
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
