//! Reasons to stop: SIGINT, SIGTERM, a closed terminal, or the end of the parent process.
//!
//! SIGHUP has two meanings. A terminal sends it when it closes: then the process stops in order. A
//! service manager or a person sends it to reload the configuration: then it is ignored. Nothing is
//! reloaded, because the programs of an installation share settings, and a process that follows
//! only some of them would be harder to understand than a restart. A restart loses no run.

use std::future::{Future, poll_fn};
use std::task::Poll;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Resolves at the first SIGINT or SIGTERM, or when the terminal of this process closes. Signals
/// count from the call, not from the first poll.
pub fn stopped() -> impl Future<Output = ()> + Send + 'static {
    let had_terminal = has_terminal();
    let hangup = (!ignores_hangup()).then(|| signal(SignalKind::hangup())).transpose();
    let signals = [SignalKind::interrupt(), SignalKind::terminate()]
        .map(signal)
        .into_iter()
        .collect::<Result<Vec<_>, _>>();
    async move {
        let (Ok(mut signals), Ok(mut hangup)) = (signals, hangup) else {
            tracing::error!("cannot handle signals, stop this process with SIGKILL");
            return std::future::pending().await;
        };
        poll_fn(|context| {
            while let Some(hangup) = &mut hangup
                && hangup.poll_recv(context).is_ready()
            {
                if had_terminal && !has_terminal() {
                    tracing::info!("the terminal was closed");
                    return Poll::Ready(());
                }
                tracing::info!("SIGHUP is ignored: restart the process to apply other settings");
            }
            match signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }
}

/// Whether this process has a terminal. A closed one cannot be opened.
fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
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
        let (sender, reported) = watch::channel(false);
        let stopped = stopped();
        tokio::spawn(async move {
            stopped.await;
            let _ = sender.send(true);
        });
        Self(reported)
    }

    pub fn is_stopping(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for the stop request.
    pub async fn stop_requested(&mut self) {
        if self.0.wait_for(|reported| *reported).await.is_err() {
            // The sender is gone, so no request can arrive.
            std::future::pending().await
        }
    }
}

/// Resolves when standard input ends. The parent has the other end of the pipe, which also closes
/// if the parent is killed.
pub async fn orphaned() {
    let (sender, reported) = tokio::sync::oneshot::channel();
    // A plain thread, because the read blocks and must not delay the process's exit.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = sender.send(());
    });
    let _ = reported.await;
}
