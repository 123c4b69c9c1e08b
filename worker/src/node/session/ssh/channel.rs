//! Runs a command in a channel of an SSH session.

use std::sync::Arc;

use russh::client;
use russh::{Channel, ChannelMsg};
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::SharedSession;
use crate::node::session::process::{Ending, Process};

/// Bytes of a stream to buffer for its reader.
const BUFFER_SIZE: usize = 64 << 10;

/// Starts a command in a channel of its own.
pub(super) async fn open_channel(
    connection: &SharedSession,
    command: &str,
) -> Result<Process, russh::Error> {
    let channel = connection.handle.channel_open_session().await?;
    channel.exec(true, command).await?;
    Ok(process_on(channel, Arc::clone(connection)))
}

/// Creates a process from a channel. Two tasks copy its streams, and end when the process is
/// dropped.
fn process_on(channel: Channel<client::Msg>, connection: SharedSession) -> Process {
    let (mut from, sender) = channel.split();
    let sender = Arc::new(sender);
    let (stdin, mut typed) = duplex(BUFFER_SIZE);
    let (mut out, stdout) = duplex(BUFFER_SIZE);
    let (mut err, stderr) = duplex(BUFFER_SIZE);
    let (end_sender, ending) = watch::channel(None);
    let closed = CancellationToken::new();

    let writing = (Arc::clone(&sender), closed.clone());
    tokio::spawn(async move {
        let (sender, closed) = writing;
        let mut into = sender.make_writer();
        let copied = tokio::select! {
            copied = tokio::io::copy(&mut typed, &mut into) => copied,
            () = closed.cancelled() => return,
        };
        if copied.is_ok() {
            let _ = into.flush().await;
            let _ = sender.eof().await;
        }
    });
    let until = closed.clone();
    tokio::spawn(async move {
        let copying = async {
            while let Some(message) = from.wait().await {
                match message {
                    ChannelMsg::Data { data } => pass(&mut out, &data).await,
                    ChannelMsg::ExtendedData { data, ext: 1 } => pass(&mut err, &data).await,
                    ChannelMsg::ExitStatus { exit_status } => {
                        end_sender.send_replace(Some(Ending::Code(exit_status.cast_signed())));
                    }
                    ChannelMsg::ExitSignal { signal_name, .. } => {
                        end_sender
                            .send_replace(Some(Ending::Killed(format!("signal {signal_name:?}"))));
                    }
                    // The server refused to run the command and gave no reason.
                    ChannelMsg::Failure => {
                        end_sender.send_replace(Some(Ending::Disconnected(
                            "the node's SSH server does not run commands".to_owned(),
                        )));
                    }
                    _ => {}
                }
            }
        };
        tokio::select! {
            () = copying => {}
            () = until.cancelled() => {}
        }
        end_sender.send_if_modified(|ending| {
            let is_unset = ending.is_none();
            ending.get_or_insert_with(|| {
                Ending::Disconnected("the channel was closed before the command ended".to_owned())
            });
            is_unset
        });
        let _ = sender.close().await;
        drop(connection);
    });
    Process::remote(
        [Box::new(stdout), Box::new(stderr)],
        Box::new(stdin),
        ending,
        closed.drop_guard(),
    )
}

/// Copies data to a reader. The reader may be gone, but the other stream still needs service.
async fn pass(into: &mut DuplexStream, data: &[u8]) {
    let _ = into.write_all(data).await;
}
