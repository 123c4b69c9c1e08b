//! Logs of runs: reading in parts, and search.
//!
//! A log can be large and is never loaded completely: each request reads a bounded range. The
//! offsets of a part are exact, also for binary output. Invalid UTF-8 becomes a piece of its own
//! with its length in bytes; an incomplete character comes with the next part. A search reads at
//! most [`MAX_SEARCHED`] bytes forward and returns the position to continue from. So each request
//! has a bounded cost, and the client decides how far to search.

use api::Problem;
use api::limits::LOG_SEARCH;
use api::runs::{LogHit, LogPart, LogPiece, LogSearchResult};
use engine::ids::RunId;
use regex::bytes::{Regex, RegexBuilder};
use store::runs::LogPiece as Stored;
use time::OffsetDateTime;

use crate::Control;
use crate::people::{Actor, Permission};
use crate::problems::{from_store, no_run};
use crate::text::at;

/// Maximum size of one part of a log, in bytes (256 KiB).
pub const MAX_LOG_PART: usize = 256 * 1024;
/// Maximum number of log bytes that one request searches (8 MiB).
pub const MAX_SEARCHED: u64 = 8 << 20;
/// Maximum number of hits in one response.
pub const HITS: usize = 200;
/// Maximum number of pieces in one part. Bytes that are not text result in many small pieces.
const MAX_PIECES: usize = 4_000;
/// Bytes that one query of a search reads.
const BYTES_PER_QUERY: u64 = 1 << 20;
/// Stored pieces that one query reads. A worker's pieces have 8 to 64 KiB; pieces of lines that are
/// shown early are smaller.
const PIECES_PER_QUERY: u32 = 4_096;
/// A longer line is searched in parts.
const MAX_LINE: usize = 64 * 1024;
/// Displayed characters of a hit's line, and how many of them precede the hit.
const HIT_CONTEXT: (usize, usize) = (200, 60);

impl Control {
    /// A part of a run's log from an offset, at most [`MAX_LOG_PART`] bytes. A negative offset
    /// counts from the end.
    ///
    /// # Errors
    /// A missing permission, an unknown run, or an offset after the end of the log.
    pub async fn log(&self, actor: &Actor, id: RunId, offset: i64) -> Result<LogPart, Problem> {
        actor.require(Permission::Viewer)?;
        let row = store::runs::run(&self.store, id).await.map_err(from_store)?;
        let row = row.ok_or_else(|| no_run(id))?;
        let length = row.run.log_bytes;
        if offset > length {
            return Err(Problem::invalid(format!(
                "offset: {offset} is after the end of the log. The log of run {id} has {length} \
                 bytes{}. Use 0 to {length}, or a negative number to count from the end.",
                if row.run.ended_at.is_some() { "" } else { " so far" }
            )));
        }
        let from = if offset < 0 { length.saturating_add(offset).max(0) } else { offset };
        let until = from.saturating_add(MAX_LOG_PART as i64);
        let span = (from.unsigned_abs(), until.unsigned_abs());
        let read =
            store::runs::read_log_range(self.store.pool(), id, span.0, span.1, PIECES_PER_QUERY)
                .await
                .map_err(from_store)?;
        let ended = row.run.ended_at.is_some();
        let mut cut = PartDecoder::at(from, offset < 0);
        for piece in &read {
            if !cut.take(piece, until) {
                break;
            }
        }
        let (pieces, next) = cut.finish(ended, length);
        Ok(LogPart { pieces, next, complete: ended && next >= length })
    }

    /// Lines of a run's log that contain a text, from the start or from the cursor of the previous
    /// response.
    ///
    /// # Errors
    /// A missing permission, an unknown run, an empty or too long text, or an invalid cursor.
    pub async fn search_log(
        &self,
        actor: &Actor,
        id: RunId,
        text: &str,
        ignore_case: bool,
        after: &str,
    ) -> Result<LogSearchResult, Problem> {
        actor.require(Permission::Viewer)?;
        let pattern = search_pattern(text, ignore_case)?;
        let begin = SearchCursor::parse(after)?;
        let row = store::runs::run(&self.store, id).await.map_err(from_store)?;
        let length = row.ok_or_else(|| no_run(id))?.run.log_bytes;
        let end = length.unsigned_abs();
        let mut search = Search::new(pattern, begin);
        let mut read = begin.offset;
        let until = end.min(begin.offset.saturating_add(MAX_SEARCHED));
        while read < until && !search.is_full() {
            let span = until.min(read + BYTES_PER_QUERY);
            let pieces =
                store::runs::read_log_range(self.store.pool(), id, read, span, PIECES_PER_QUERY)
                    .await
                    .map_err(from_store)?;
            if pieces.is_empty() {
                break;
            }
            for piece in &pieces {
                let fresh = bytes_from(piece, read);
                read += fresh.len() as u64;
                search.push(fresh);
            }
        }
        let done = read >= end && !search.is_full();
        if done {
            search.finish();
        }
        let more = !done || search.is_full();
        let searched =
            if more { i64::try_from(search.place.offset).unwrap_or(i64::MAX) } else { length };
        Ok(LogSearchResult {
            next: search.place.to_string(),
            hits: search.hits,
            searched,
            length,
            more,
        })
    }
}

/// The bytes of a stored piece from the log offset `from` on.
fn bytes_from(piece: &Stored, from: u64) -> &[u8] {
    let seen = from.saturating_sub(piece.at_offset.unsigned_abs());
    piece.body.get(usize::try_from(seen).unwrap_or(usize::MAX)..).unwrap_or_default()
}

/// Decodes bytes to text.
struct PartDecoder {
    pieces: Vec<LogPiece>,
    next: i64,
    /// The start of a character that continues in the next stored piece.
    open: Vec<u8>,
    open_at: OffsetDateTime,
    /// Whether the first bytes may be the rest of a character that starts before the offset.
    midway: bool,
}

impl PartDecoder {
    fn at(from: i64, midway: bool) -> Self {
        Self {
            pieces: Vec::new(),
            next: from,
            open: Vec::new(),
            open_at: OffsetDateTime::UNIX_EPOCH,
            midway: midway && from > 0,
        }
    }

    /// Decodes a stored piece; false once the part is full.
    fn take(&mut self, piece: &Stored, until: i64) -> bool {
        let position = self.next + self.open.len() as i64;
        let body = bytes_from(piece, position.unsigned_abs());
        let limit = usize::try_from(until - position).unwrap_or(0);
        let body = &body[..body.len().min(limit)];
        if body.is_empty() || self.pieces.len() >= MAX_PIECES {
            return false;
        }
        let started = if self.open.is_empty() { piece.at } else { self.open_at };
        let mut bytes = std::mem::take(&mut self.open);
        bytes.extend_from_slice(body);
        let mut bytes = bytes.as_slice();
        if std::mem::take(&mut self.midway) {
            let rest = bytes.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
            self.next += rest as i64;
            bytes = &bytes[rest..];
        }
        let whole = bytes.len() - incomplete_bytes(bytes);
        for chunk in bytes[..whole].utf8_chunks() {
            self.push(chunk.valid(), chunk.valid().len(), started);
            self.push("\u{fffd}", chunk.invalid().len(), started);
        }
        self.open = bytes[whole..].to_vec();
        self.open_at = piece.at;
        true
    }

    fn push(&mut self, text: &str, bytes: usize, when: OffsetDateTime) {
        if bytes == 0 || self.pieces.len() >= MAX_PIECES {
            // This piece and all that follow come with the next part.
            return;
        }
        let bytes = bytes as i64;
        let is_invalid = text.len() as i64 != bytes || text == "\u{fffd}";
        match self.pieces.last_mut() {
            Some(last)
                if is_invalid
                    && last.text == "\u{fffd}"
                    && last.offset + last.bytes == self.next =>
            {
                last.bytes += bytes;
            }
            _ => self.pieces.push(LogPiece {
                offset: self.next,
                bytes,
                at: at(when),
                text: text.to_owned(),
            }),
        }
        self.next += bytes;
    }

    fn finish(mut self, ended: bool, length: i64) -> (Vec<LogPiece>, i64) {
        let open = self.open.len();
        if open > 0 && ended && self.next + open as i64 >= length {
            let when = self.open_at;
            self.push("\u{fffd}", open, when);
        }
        (self.pieces, self.next)
    }
}

/// The number of trailing bytes that belong to an incomplete character.
fn incomplete_bytes(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(3)..];
    let Some(lead) = tail.iter().rposition(|byte| byte & 0xc0 != 0x80) else { return 0 };
    let expected = match tail[lead] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return 0,
    };
    let has = tail.len() - lead;
    if has < expected
        && std::str::from_utf8(&tail[lead..]).is_err_and(|error| error.error_len().is_none())
    {
        has
    } else {
        0
    }
}

fn search_pattern(text: &str, ignore_case: bool) -> Result<Regex, Problem> {
    let length = text.chars().count();
    if length == 0 || length > LOG_SEARCH {
        return Err(Problem::invalid(format!(
            "Invalid `text`: it must have 1 to {LOG_SEARCH} characters."
        )));
    }
    if text.contains('\n') {
        return Err(Problem::invalid(
            "`text`: must not have a line break, because logs are searched line by line.",
        ));
    }
    RegexBuilder::new(&regex::escape(text)).case_insensitive(ignore_case).build().map_err(|error| {
        tracing::error!(%error, "cannot build a pattern from a search text");
        Problem::internal()
    })
}

/// The cursor of a search: a log offset, and the number of lines that end before it. Its text form
/// is `offset.lines`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct SearchCursor {
    offset: u64,
    lines: u64,
}

impl SearchCursor {
    fn parse(text: &str) -> Result<Self, Problem> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let parts = text.split_once('.').and_then(|(offset, lines)| {
            let place = Self { offset: offset.parse().ok()?, lines: lines.parse().ok()? };
            (place.offset <= i64::MAX as u64 && place.lines <= place.offset).then_some(place)
        });
        parts.ok_or_else(|| {
            Problem::invalid("`after`: must be the `next` value of the previous page, or empty.")
        })
    }
}

impl std::fmt::Display for SearchCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.offset, self.lines)
    }
}

/// The state of a search.
struct Search {
    pattern: Regex,
    /// The position of the first byte of `rest`.
    place: SearchCursor,
    rest: Vec<u8>,
    hits: Vec<LogHit>,
}

impl Search {
    fn new(pattern: Regex, place: SearchCursor) -> Self {
        Self { pattern, place, rest: Vec::new(), hits: Vec::new() }
    }

    fn is_full(&self) -> bool {
        self.hits.len() >= HITS
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.is_full() {
            return;
        }
        self.rest.extend_from_slice(bytes);
        match self.rest.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => self.search(end + 1),
            // A hit may cross the cut. The longest text has four bytes per character.
            None if self.rest.len() > MAX_LINE => self.search(self.rest.len() - 4 * LOG_SEARCH),
            None => {}
        }
    }

    /// Searches the last line, which may have no line end. It can still grow, so the next request
    /// starts with it.
    fn finish(&mut self) {
        let place = self.place;
        self.search(self.rest.len());
        if !self.is_full() {
            self.place = place;
        }
    }

    /// Searches the lines up to `end`, which follows a line end, except within a very long line.
    fn search(&mut self, end: usize) {
        let mut from = 0;
        let mut lines = self.place.lines;
        let mut counted = 0;
        while let Some(found) =
            self.pattern.find_at(&self.rest, from).filter(|found| found.start() < end)
        {
            let begin = self.rest[..found.start()]
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |at| at + 1);
            let line_end = self.rest[found.start()..].iter().position(|byte| *byte == b'\n');
            let over = line_end.map_or(self.rest.len(), |at| found.start() + at);
            lines += newlines(&self.rest[counted..begin]);
            counted = begin;
            self.hits.push(LogHit {
                offset: i64::try_from(self.place.offset + begin as u64).unwrap_or(i64::MAX),
                line: i64::try_from(lines + 1).unwrap_or(i64::MAX),
                text: excerpt(&self.rest[begin..over], found.start() - begin),
            });
            from = (over + 1).min(self.rest.len());
            if self.is_full() || from >= end {
                break;
            }
        }
        let end = if self.is_full() { from.min(self.rest.len()) } else { end };
        self.place.lines += newlines(&self.rest[..end]);
        self.place.offset += end as u64;
        self.rest.drain(..end);
    }
}

fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// An excerpt of a line around a hit, for display.
fn excerpt(line: &[u8], hit: usize) -> String {
    let near = line.get(hit.saturating_sub(HIT_CONTEXT.1 * 4)..).unwrap_or_default();
    let near = &near[..near.len().min(HIT_CONTEXT.0 * 8)];
    let before =
        String::from_utf8_lossy(&near[..hit.min(HIT_CONTEXT.1 * 4).min(near.len())]).into_owned();
    let skip = before.chars().count().saturating_sub(HIT_CONTEXT.1);
    let text = String::from_utf8_lossy(near);
    text.chars().skip(skip).filter(|c| !c.is_control() || *c == '\t').take(HIT_CONTEXT.0).collect()
}

#[cfg(test)]
mod tests {
    use crate::runs::logs::*;

    fn stored(at_offset: i64, body: &[u8]) -> Stored {
        Stored { at_offset, at: OffsetDateTime::UNIX_EPOCH, body: body.to_vec() }
    }

    /// Reads a log in parts of this many bytes. Returns its text and checks that the offsets have
    /// no gap.
    fn read(log: &[u8], stored_in: usize, part: i64) -> String {
        let rows: Vec<Stored> = log
            .chunks(stored_in)
            .enumerate()
            .map(|(n, body)| stored((n * stored_in) as i64, body))
            .collect();
        let (mut text, mut next) = (String::new(), 0);
        while next < log.len() as i64 {
            let mut cut = PartDecoder::at(next, false);
            for row in rows.iter().filter(|row| row.at_offset + row.body.len() as i64 > next) {
                if !cut.take(row, next + part) {
                    break;
                }
            }
            let (pieces, end) = cut.finish(true, log.len() as i64);
            assert!(end > next, "no step continues at {next}");
            for piece in pieces {
                assert_eq!(piece.offset, next);
                assert!(piece.bytes == piece.text.len() as i64 || piece.text == "\u{fffd}");
                next += piece.bytes;
                text.push_str(&piece.text);
            }
            assert_eq!(next, end);
        }
        text
    }

    #[test]
    fn parts_are_contiguous_at_every_size() {
        let text = "größer 世界 🚀\nnext\n".repeat(5);
        for stored_in in 1..30 {
            for part in 4..20 {
                assert_eq!(read(text.as_bytes(), stored_in, part), text, "{stored_in} {part}");
            }
        }
    }

    #[test]
    fn invalid_utf8_keeps_its_offsets() {
        let log = b"a\xff\xfeb\xe4\xb8\n\xf0\x9f";
        for stored_in in 1..10 {
            let text = read(log, stored_in, 100);
            assert_eq!(text, "a\u{fffd}b\u{fffd}\n\u{fffd}", "{stored_in}");
        }
    }

    #[test]
    fn tail_starts_with_a_complete_character() {
        let log = "世界\n".as_bytes();
        let mut cut = PartDecoder::at(1, true);
        assert!(cut.take(&stored(0, log), 100));
        let (pieces, next) = cut.finish(true, log.len() as i64);
        assert_eq!((pieces[0].offset, pieces[0].text.as_str(), next), (3, "界\n", 7));
    }

    fn find(log: &[u8], text: &str, ignore_case: bool, piece: usize) -> Vec<(i64, i64, String)> {
        let mut search = Search::new(
            search_pattern(text, ignore_case).expect("a text"),
            SearchCursor::default(),
        );
        log.chunks(piece).for_each(|bytes| search.push(bytes));
        search.finish();
        search.hits.into_iter().map(|hit| (hit.offset, hit.line, hit.text)).collect()
    }

    #[test]
    fn search_finds_lines_across_piece_boundaries() {
        let log = "one\nTwo two\nthree\n\nÄrger und ärger\ntwo at the end".as_bytes();
        for piece in [1, 2, 3, 5, 7, 100] {
            assert_eq!(
                find(log, "two", false, piece),
                [(4, 2, "Two two".into()), (37, 6, "two at the end".into())]
            );
            assert_eq!(find(log, "ÄRGER", true, piece), [(19, 5, "Ärger und ärger".into())]);
            assert!(find(log, "ÄRGER", false, piece).is_empty());
            assert!(find(log, "o.e", true, piece).is_empty(), "the query is text, not a pattern");
        }
    }

    #[test]
    fn full_search_continues_after_its_last_hit() {
        let log = "x\n-\n".repeat(HITS + 3).into_bytes();
        let mut search =
            Search::new(search_pattern("x", false).expect("a text"), SearchCursor::default());
        search.push(&log);
        assert_eq!(
            (search.hits.len(), search.hits.last().map(|hit| hit.line)),
            (HITS, Some(HITS as i64 * 2 - 1))
        );
        let place = SearchCursor::parse(&search.place.to_string()).expect("a valid cursor");
        let mut rest = Search::new(search_pattern("x", false).expect("a text"), place);
        rest.push(&log[place.offset as usize..]);
        let lines: Vec<i64> = rest.hits.iter().map(|hit| hit.line).collect();
        assert_eq!(lines, [401, 403, 405]);
    }

    #[test]
    fn long_line_is_searched_in_parts() {
        let mut log = vec![b'a'; MAX_LINE * 3];
        let middle = MAX_LINE + 5;
        log[middle..middle + 4].copy_from_slice(b"here");
        let hits = find(&log, "here", false, 1000);
        assert_eq!(hits.len(), 1);
        assert!(
            hits[0].2.contains("here") && hits[0].2.chars().count() <= HIT_CONTEXT.0,
            "{hits:?}"
        );
    }

    #[test]
    fn invalid_cursors_and_texts_are_rejected() {
        for wrong in ["x", "1", "1.x", "-1.0", "1.2", "99999999999999999999.0"] {
            assert_eq!(
                SearchCursor::parse(wrong).map_err(|problem| problem.status),
                Err(400),
                "{wrong}"
            );
        }
        for wrong in ["", "a\nb", &"x".repeat(LOG_SEARCH + 1)] {
            assert_eq!(
                search_pattern(wrong, true).map_err(|problem| problem.status).err(),
                Some(400)
            );
        }
    }
}
