//! Reasons to stop: SIGINT, SIGTERM, SIGHUP, or the end of the parent process.

use std::future::{Future, poll_fn};
use std::task::Poll;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Resolves at the first SIGINT, SIGTERM or SIGHUP (which a terminal sends when it closes). Signals
/// count from the call, not from the first poll.
pub fn stopped() -> impl Future<Output = ()> + Send + 'static {
    let ignores_hangup = ignores_hangup();
    let signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
        .into_iter()
        .filter(|kind| *kind != SignalKind::hangup() || !ignores_hangup)
        .map(signal)
        .collect::<Result<Vec<_>, _>>();
    async move {
        let Ok(mut signals) = signals else {
            tracing::error!("cannot handle signals, stop this process with SIGKILL");
            return std::future::pending().await;
        };
        poll_fn(|context| {
            match signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }
}

/// Whether this process was started with SIGHUP ignored, as `nohup` does.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // The lowest bit is signal 1, SIGHUP.
    ignored
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_none_or(|mask| mask & 1 == 1)
}

/// The stop request, for code that runs one step after the other. It can be checked between steps
/// and awaited within one.
#[derive(Debug, Clone)]
pub struct StopRequest(watch::Receiver<bool>);

impl StopRequest {
    /// Requests a stop at the signals of [`stopped`], starting now.
    pub fn on_signals() -> Self {
        let (sender, told) = watch::channel(false);
        let stopped = stopped();
        tokio::spawn(async move {
            stopped.await;
            let _ = sender.send(true);
        });
        Self(told)
    }

    pub fn is_stopping(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for the stop request.
    pub async fn stop_requested(&mut self) {
        if self.0.wait_for(|told| *told).await.is_err() {
            // The sender is gone, so no request can arrive.
            std::future::pending().await
        }
    }
}

/// Resolves when standard input ends. The parent has the other end of the pipe, which also closes
/// if the parent is killed.
pub async fn orphaned() {
    let (sender, told) = tokio::sync::oneshot::channel();
    // A plain thread, because the read blocks and must not delay the process's exit.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = sender.send(());
    });
    let _ = told.await;
}
