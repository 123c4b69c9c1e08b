//! When to stop: Ctrl-C, a polite kill, a closed terminal, or the end of whoever started this process.

use std::future::{Future, poll_fn};
use std::task::Poll;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Resolves at the first SIGINT or SIGTERM, or at SIGHUP, which a terminal sends when it closes. Heard from the call on, not only from the
/// first look.
pub fn stopped() -> impl Future<Output = ()> + Send + 'static {
    let ignores_hangup = ignores_hangup();
    let heard = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
        .into_iter()
        .filter(|kind| *kind != SignalKind::hangup() || !ignores_hangup)
        .map(signal)
        .collect::<Result<Vec<_>, _>>();
    async move {
        let Ok(mut heard) = heard else {
            tracing::error!("signals can't be heard; stop this process with SIGKILL");
            return std::future::pending().await;
        };
        poll_fn(|context| {
            match heard.iter_mut().any(|signal| signal.poll_recv(context).is_ready()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }
}

/// Whether this process was started to ignore SIGHUP, as `nohup` does.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // The lowest bit is signal 1.
    ignored
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_none_or(|mask| mask & 1 == 1)
}

/// Whether to stop, for those who do one thing after the other: it can be asked between them and waited for within one.
#[derive(Debug, Clone)]
pub struct Stopping(watch::Receiver<bool>);

impl Stopping {
    /// As [`stopped`], from now on.
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
