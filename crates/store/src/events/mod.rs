//! Events: the journal that clients follow, and notifications for servers and workers.

mod append;
mod journal;

pub use append::{CHANNEL_CANCEL, CHANNEL_EVENT, CHANNEL_LOG, CHANNEL_RUN, CHANNEL_TODO};
pub(crate) use append::{Event, append_events, node_event, notify, run_events, step_event};
pub use journal::{
    Batch, Entry, InvalidPosition, Position, Resume, append_event, append_event_to_topics, cursor,
    lengths, read, resume,
};
