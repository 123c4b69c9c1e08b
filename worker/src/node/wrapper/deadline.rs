//! The time limit of an attempt, and the end of an attempt that the worker gives up.

use tokio::time::{Instant, sleep_until};

use super::commands::Wrapper;
use crate::job::{Job, Stop, StopReason};
use crate::node::session::process::Ending;

/// Why an attempt was not followed to its end, and whether it ever started on the node, if known.
pub(super) struct Abandoned {
    pub(super) cause: StopCause,
    pub(super) started: Option<bool>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum StopCause {
    Stopped(StopReason),
    TimedOut,
}

/// The result of an attempt whose report has arrived completely. The attempt has ended, so a later
/// failure of its connection does not matter.
pub(super) fn complete_ending(ended: Result<Ending, Abandoned>) -> Result<Ending, Abandoned> {
    match ended {
        Ok(Ending::Disconnected(_) | Ending::Killed(_))
        | Err(Abandoned { cause: StopCause::TimedOut, .. }) => Ok(Ending::Code(0)),
        ended => ended,
    }
}

/// Limits how long an attempt is followed.
pub(super) struct Deadline<'a> {
    pub(super) stop: &'a mut Stop,
    pub(super) until: Instant,
}

impl Deadline<'_> {
    /// Waits until the run is stopped or the time is over.
    pub(super) async fn over(&mut self) -> StopCause {
        tokio::select! {
            reason = self.stop.requested() => StopCause::Stopped(reason),
            () = sleep_until(self.until) => StopCause::TimedOut,
        }
    }
}

/// Ends an attempt on its node when it is dropped.
pub(super) struct EndOnDrop<'a>(Option<(&'a Wrapper, &'a Job)>);

impl<'a> EndOnDrop<'a> {
    pub(super) fn new(wrapper: &'a Wrapper, job: &'a Job) -> Self {
        Self(Some((wrapper, job)))
    }

    /// The attempt has ended.
    pub(super) fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        // Without a runtime, the process is exiting. The reaper then ends the lost run.
        if let Some((wrapper, job)) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (wrapper, step, epoch, run) = (wrapper.clone(), job.step, job.epoch, job.run);
            runtime.spawn(async move {
                if let Err(error) = wrapper.end(step, epoch, run).await {
                    tracing::warn!(%run, %error, "cannot end an abandoned run on its node");
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::wrapper::EXIT_REFUSED;

    #[test]
    fn broken_connection_after_result_fails_no_run() {
        let too_long = || Err(Abandoned { cause: StopCause::TimedOut, started: None });
        for ended in [
            Ok(Ending::Disconnected("reset".into())),
            Ok(Ending::Killed("signal 9".into())),
            too_long(),
        ] {
            assert!(matches!(complete_ending(ended), Ok(Ending::Code(0))));
        }
        assert!(matches!(
            complete_ending(Ok(Ending::Code(EXIT_REFUSED))),
            Ok(Ending::Code(EXIT_REFUSED))
        ));
        let stopped =
            Err(Abandoned { cause: StopCause::Stopped(StopReason::Canceled), started: Some(true) });
        assert!(
            matches!(
                complete_ending(stopped),
                Err(Abandoned { cause: StopCause::Stopped(StopReason::Canceled), .. })
            ),
            "a canceled run stays canceled"
        );
    }
}
