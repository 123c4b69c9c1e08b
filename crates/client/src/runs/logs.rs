//! Logs of runs.
//!
//! Invariant: a log continues by byte offset, so the output has no gaps and no duplicates, however
//! often the connection breaks.

use std::time::{Duration, Instant};

use api::runs::{LogPart, LogSearchResult};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use engine::ids::RunId;
use serde_json::json;

use crate::address::Query;
use crate::client::Client;
use crate::events::EventStream;
use crate::exit::{Failure, Outcome};
use crate::output::progress::{MAX_DISCONNECTED, POLL_INTERVAL};
use crate::output::terminal::ControlFilter;
use crate::output::{note, plain};
use crate::runs::{ended, run_view};

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// Number of the run
    run: RunId,
    /// Continue until the run ends
    #[arg(short, long)]
    follow: bool,
    /// Start at this byte; -N starts N bytes before the end
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    since_byte: i64,
    /// Only lines that contain this text, with line numbers; exits 4 if there are none
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["follow", "since_byte"])]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    find: Option<String>,
    /// Ignore case
    #[arg(long, requires = "find")]
    ignore_case: bool,
    /// Keep control sequences, such as colors; the terminal interprets them
    #[arg(long, conflicts_with = "find")]
    raw: bool,
}

/// Prints the lines of a log that contain a text, page by page.
fn find(client: &Client, run: RunId, text: &str, ignore_case: bool) -> Outcome {
    let Client { server, output } = client;
    let path = api::calls::search_log(run, text).url();
    let mut query = Query::default().with("ignore_case", ignore_case);
    let mut found = 0;
    loop {
        let page: LogSearchResult = server.read(&query.on(&path))?;
        for hit in &page.hits {
            found += 1;
            match output.is_document() {
                true => output.document_line(&json!(hit))?,
                false => output.line(&format!("{}: {}", hit.line, plain(&hit.text)))?,
            }
        }
        if !page.more {
            break;
        }
        query = query.with("after", page.next);
    }
    if found > 0 {
        return Ok(());
    }
    let is_ended = run_view(&server.show(&api::calls::show_run(run))?)?.run.ended.is_some();
    let so_far = if is_ended { "" } else { " so far" };
    Err(Failure::Nothing(format!("No line of run {run} contains {text:?}{so_far}.")))
}

pub(crate) fn logs(client: &Client, logs: &Logs) -> Outcome {
    if let Some(text) = &logs.find {
        return find(client, logs.run, text, logs.ignore_case);
    }
    let Client { server, output } = client;
    let mut news = logs
        .follow
        .then(|| EventStream::subscribe_while_read(server, &format!("run:{}", logs.run)));
    // One filter for the whole log, because a sequence can span several pieces.
    let mut filter = ControlFilter::default();
    let (mut offset, mut reached, mut away) = (logs.since_byte, false, None::<Instant>);
    loop {
        let query = Query::default().with("offset", Some(offset));
        let log: LogPart = match server.read(&query.on(&api::calls::run_log(logs.run).url())) {
            Ok(log) => log,
            Err(error) if error.passes() && news.is_some() && reached => {
                let since = *away.get_or_insert_with(|| {
                    note(
                        "The connection is lost. The log continues at the same byte when the \
                        server answers again.",
                    );
                    Instant::now()
                });
                if since.elapsed() > MAX_DISCONNECTED {
                    return Err(Failure::Unreachable(format!(
                        "{error}\nTo continue at the same byte, use --since-byte {offset}"
                    )));
                }
                std::thread::sleep(Duration::from_secs(2));
                continue;
            }
            Err(failure) => return Err(failure),
        };
        (reached, away) = (true, None);
        for piece in &log.pieces {
            match (output.is_document(), logs.raw) {
                (true, _) => {
                    output.document_line(&serde_json::to_value(piece).unwrap_or_default())?
                }
                (false, true) => output.raw(&piece.text)?,
                (false, false) => output.raw(&filter.text(&piece.text))?,
            }
        }
        let has_grown = log.next > offset;
        offset = log.next;
        match &mut news {
            _ if log.complete => {
                return ended(&run_view(&server.show(&api::calls::show_run(logs.run))?)?);
            }
            _ if has_grown => {}
            None => return Ok(()),
            Some(news) => news.wait(POLL_INTERVAL)?,
        }
    }
}
