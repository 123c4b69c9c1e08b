//! The live stream of events. It ends a command whose output no one reads.

use std::io::{BufRead as _, BufReader};
use std::os::fd::AsFd as _;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use api::live::Live;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::exit::{Failure, Outcome};
use crate::server::Server;

/// Reports events of the live stream. Without a stream, it reports at a fixed interval.
pub(crate) struct EventStream {
    items: Receiver<StreamItem>,
    listens: bool,
}

enum StreamItem {
    Event,
    /// The stream is interrupted.
    Disconnected,
    Connected,
    /// The reader of standard output closed the pipe.
    Unread,
}

/// Interval without a stream.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Events within this time are reported together.
const BATCH_WINDOW: Duration = Duration::from_millis(150);

impl EventStream {
    /// Subscribes to topics, or to all if none is given. The thread ends at the first message after
    /// this value is dropped.
    pub(crate) fn of(server: &Server, topics: &str) -> Self {
        Self::connected(server, topics).0
    }

    /// Like [`EventStream::of`], but also reports when the reader of standard output closes the
    /// pipe. For continuous output.
    pub(crate) fn subscribe_while_read(server: &Server, topics: &str) -> Self {
        let (news, sender) = Self::connected(server, topics);
        std::thread::spawn(move || {
            if wait_for_closed_pipe() {
                // The receiver is gone, so the command has ended.
                let _ = sender.send(StreamItem::Unread);
            }
        });
        news
    }

    fn connected(server: &Server, topics: &str) -> (Self, SyncSender<StreamItem>) {
        let (sender, items) = sync_channel(64);
        let (server, topics, listener_sender) = (server.clone(), topics.to_owned(), sender.clone());
        std::thread::spawn(move || {
            let mut after = String::new();
            // Ends once the receiver is gone.
            while listen(&server, &topics, &mut after, &listener_sender).is_some() {
                std::thread::sleep(POLL_INTERVAL);
            }
        });
        (Self { items, listens: false }, sender)
    }

    /// Returns after an event, or after `most` at the latest. Without a stream, it returns after
    /// [`POLL_INTERVAL`].
    pub(crate) fn wait(&mut self, most: Duration) -> Outcome {
        let most = if self.listens { most } else { most.min(POLL_INTERVAL) };
        match self.items.recv_timeout(most) {
            Ok(StreamItem::Event) => {}
            Ok(other) => return self.handle(&other),
            Err(RecvTimeoutError::Timeout) => return Ok(()),
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(most);
                return Ok(());
            }
        }
        std::thread::sleep(BATCH_WINDOW);
        loop {
            match self.items.try_recv() {
                Ok(StreamItem::Event) => {}
                Ok(other) => return self.handle(&other),
                Err(_) => return Ok(()),
            }
        }
    }

    fn handle(&mut self, item: &StreamItem) -> Outcome {
        match item {
            StreamItem::Unread => return Err(Failure::Unread),
            StreamItem::Disconnected => self.listens = false,
            StreamItem::Connected => self.listens = true,
            StreamItem::Event => {}
        }
        Ok(())
    }
}

/// Forwards the events of a stream until it breaks. Returns `None` once the receiver is gone.
fn listen(
    server: &Server,
    topics: &str,
    after: &mut String,
    sender: &SyncSender<StreamItem>,
) -> Option<()> {
    let query =
        crate::address::Query::default().with("topics", topics).with("after", after.as_str());
    let Ok(stream) = server.stream(&query.on("/watch"), "text/event-stream") else {
        return sender.send(StreamItem::Disconnected).ok();
    };
    sender.send(StreamItem::Connected).ok()?;
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { break };
        match line.split_once(':').map(|(field, value)| (field, value.trim_start())) {
            Some(("id", place)) => place.clone_into(after),
            Some(("data", data)) if serde_json::from_str::<Live>(data).is_ok() => {
                match sender.try_send(StreamItem::Event) {
                    Err(TrySendError::Disconnected(_)) => return None,
                    // A full channel already has an event that the receiver has not read.
                    Ok(()) | Err(TrySendError::Full(_)) => {}
                }
            }
            _ => {}
        }
    }
    sender.send(StreamItem::Disconnected).ok()
}

/// Waits until the reader of standard output closes the pipe. Returns false if that can't be
/// detected, for example for a file.
pub(crate) fn wait_for_closed_pipe() -> bool {
    let out = std::io::stdout();
    // No events are requested: POLLERR and POLLHUP are always reported.
    let mut polled = [PollFd::new(out.as_fd(), PollFlags::empty())];
    loop {
        match poll(&mut polled, PollTimeout::NONE) {
            Err(Errno::EINTR) => {}
            Err(_) => return false,
            Ok(_) => break,
        }
    }
    let closed = PollFlags::POLLERR | PollFlags::POLLHUP;
    polled.iter().filter_map(|one| one.revents()).any(|events| events.intersects(closed))
}
