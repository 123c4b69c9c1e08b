//! Progress of a process that a command follows: a bar, a time limit and the event stream.

use std::time::{Duration, Instant};

use crate::events::EventStream;
use crate::exit::{Failure, Outcome};
use crate::output::{plain, steps};
use crate::server::Server;
use crate::time::duration;
use api::runs::StateCounts;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Maximum time between requests, even without an event.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Pause after a request, as a multiple of its duration. It limits the load on a slow server.
const PAUSE_FACTOR: u32 = 10;

/// Maximum pause after a request.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// How long a server may be unreachable before the command fails.
pub(crate) const MAX_DISCONNECTED: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct TimeoutOption {
    /// Time limit, for example 90s, 30m or 2h; 0 for none
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    timeout: Duration,
}

/// Progress bar for counted steps.
const PROGRESS_TEMPLATE: &str = "{bar:30} {pos}/{len} {elapsed} {wide_msg}";

/// Progress line if there is nothing to count.
const SPINNER_TEMPLATE: &str = "{elapsed} {wide_msg}";

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Time limit, progress bar and event stream of a followed process. The bar is on standard error,
/// and only on a terminal.
pub(crate) struct Watcher {
    /// The server, with requests limited to `end`.
    server: Server,
    end: Option<Instant>,
    most: Duration,
    pub(crate) bar: ProgressBar,
    news: EventStream,
    /// Whether the server has answered at least once.
    reached: bool,
    disconnected_since: Option<Instant>,
    /// Earliest time of the next request. A slow server gets fewer requests.
    paused_until: Option<Instant>,
    /// The error of the last request, until one succeeds.
    unknown: Option<Failure>,
}

impl Watcher {
    pub(crate) fn new(server: &Server, most: TimeoutOption, topics: &str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(style(SPINNER_TEMPLATE));
        bar.enable_steady_tick(Duration::from_millis(250));
        let end =
            (!most.timeout.is_zero()).then(|| Instant::now().checked_add(most.timeout)).flatten();
        let (server, news) = (server.until(end), EventStream::of(server, topics));
        Self {
            server,
            end,
            most: most.timeout,
            bar,
            news,
            reached: false,
            disconnected_since: None,
            paused_until: None,
            unknown: None,
        }
    }

    pub(crate) fn shows(&self, counts: &StateCounts) {
        let all = counts.blocked + counts.todo + counts.transition + counts.active + counts.error;
        // Zero of zero steps is not shown.
        self.bar.set_style(style(if all > 0 { PROGRESS_TEMPLATE } else { SPINNER_TEMPLATE }));
        self.bar.set_length(all.unsigned_abs());
        self.bar.set_position(counts.active.unsigned_abs());
        self.bar.set_message(steps(&serde_json::to_value(counts).unwrap_or_default()));
    }

    /// Sends a request. Returns `None` while the server is temporarily unreachable, and at the time
    /// limit.
    ///
    /// A request that the time limit cuts short is ignored if the server answered before. The known
    /// state stays.
    pub(crate) fn ask<T>(&mut self, ask: impl FnOnce(&Server) -> Outcome<T>) -> Outcome<Option<T>> {
        let started = Instant::now();
        let result = ask(&self.server);
        self.paused_until =
            Instant::now().checked_add((started.elapsed() * PAUSE_FACTOR).min(MAX_PAUSE));
        let failure = match result {
            Ok(response) => {
                (self.reached, self.disconnected_since, self.unknown) = (true, None, None);
                return Ok(Some(response));
            }
            Err(failure) => failure,
        };
        if failure.passes() && self.reached && self.over() && started.elapsed() < POLL_INTERVAL {
            return Ok(None);
        }
        let since = *self.disconnected_since.get_or_insert_with(Instant::now);
        // A server that never answered does not exist. One that did may return.
        let may_recover = self.over() || (self.reached && since.elapsed() <= MAX_DISCONNECTED);
        if !(failure.passes() && may_recover) {
            return Err(failure);
        }
        self.bar.set_message(plain(&failure.to_string()));
        self.unknown = Some(failure);
        Ok(None)
    }

    fn over(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// Waits for an event. Fails at the time limit.
    pub(crate) fn next(&mut self) -> Outcome {
        if self.over() {
            self.bar.finish_and_clear();
            let seconds = self.most.as_secs();
            return Err(Failure::TimedOut(match self.unknown.take() {
                Some(reason) => {
                    format!(
                        "The state is unknown after {seconds} seconds. To wait longer, use \
                         --timeout.\n{reason}"
                    )
                }
                None => format!(
                    "The condition is not met after {seconds} seconds. To wait longer, \
                    use --timeout."
                ),
            }));
        }
        let remaining =
            self.end.map_or(POLL_INTERVAL, |end| end.saturating_duration_since(Instant::now()));
        self.news.wait(remaining.min(POLL_INTERVAL))?;
        let pause = self
            .paused_until
            .map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
        std::thread::sleep(
            pause.min(self.end.map_or(pause, |end| end.saturating_duration_since(Instant::now()))),
        );
        Ok(())
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use crate::address::Address;

    use super::*;

    #[test]
    fn request_cut_short_keeps_known_state() {
        let address = Address::parse("http://127.0.0.1:1", false).unwrap();
        let server = Server::new(address, None);
        let silent = || -> Outcome { Err(Failure::Unreachable("timeout".into())) };
        let ended = |answers: bool| {
            let mut watch =
                Watcher::new(&server, TimeoutOption { timeout: Duration::from_millis(50) }, "");
            if answers {
                assert!(watch.ask(|_| Ok(())).unwrap().is_some());
            }
            std::thread::sleep(Duration::from_millis(60));
            assert!(watch.ask(|_| silent()).unwrap().is_none());
            watch.next().unwrap_err().to_string()
        };
        assert!(ended(true).starts_with("The condition is not met after"), "{}", ended(true));
        assert!(ended(false).starts_with("The state is unknown after"), "{}", ended(false));
    }
}
