//! A log as lines. Its pieces may end anywhere. Each line has the time of its first byte.

use std::sync::Arc;

use api::At;
use api::runs::{LogPart, LogPiece};

/// Lines that are rendered together. Scrolling then shows and hides blocks, not lines.
pub(super) const BLOCK_LINES: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// The offset of its first byte in the log.
    pub(super) offset: i64,
    /// The time of its first byte.
    pub(super) at: At,
    /// The displayed text.
    pub(super) text: Arc<str>,
}

/// Splits pieces into lines. The last line may be incomplete.
#[derive(Debug, Clone, Default)]
pub(super) struct LineSplitter {
    /// The offset of the next byte. `None`: no data yet.
    next: Option<i64>,
    begun: Option<(i64, At, String)>,
}

impl LineSplitter {
    /// Adds a part and returns the lines that it completes.
    pub(super) fn take(&mut self, part: &LogPart) -> Vec<Line> {
        let mut ended = Vec::new();
        for piece in &part.pieces {
            self.add_piece(piece, &mut ended);
        }
        if part.complete {
            ended.extend(self.begun.take().map(finished));
        }
        ended
    }

    fn add_piece(&mut self, piece: &LogPiece, ended: &mut Vec<Line>) {
        let Some(fresh) = unseen(piece, self.next) else { return };
        let end = piece.offset + piece.bytes;
        let mut offset = piece.offset + (piece.text.len() - fresh.len()) as i64;
        for part in fresh.split_inclusive('\n') {
            let (_, _, text) = self.begun.get_or_insert_with(|| (offset, piece.at, String::new()));
            text.push_str(part);
            offset += part.len() as i64;
            if part.ends_with('\n') {
                ended.extend(self.begun.take().map(finished));
            }
        }
        // Not the length of the text, in which a replacement character represents an invalid byte.
        self.next = Some(end);
    }

    /// The incomplete last line.
    pub(super) fn begun(&self) -> Option<Line> {
        self.begun.clone().map(finished)
    }
}

/// The part of a piece after the bytes that were already taken. So data that was fetched twice
/// appears once.
fn unseen(piece: &LogPiece, next: Option<i64>) -> Option<&str> {
    let seen = usize::try_from(next.map_or(0, |next| next - piece.offset)).unwrap_or(0);
    if piece.offset + piece.bytes <= next.unwrap_or(0) {
        return None;
    }
    piece.text.get(seen..).filter(|fresh| !fresh.is_empty())
}

fn finished((offset, at, text): (i64, At, String)) -> Line {
    Line { offset, at, text: shown(&text).into() }
}

/// The lines of an earlier part, up to the offset of the first displayed line.
pub(super) fn earlier(part: &LogPart, until: i64) -> Vec<Line> {
    let mut before = LogPart { pieces: Vec::new(), next: until, complete: true };
    for piece in part.pieces.iter().filter(|piece| piece.offset < until) {
        let room = usize::try_from(until - piece.offset).unwrap_or(0);
        let text = piece.text.get(..room.min(piece.text.len())).unwrap_or(&piece.text);
        let bytes = piece.bytes.min(until - piece.offset);
        before.pieces.push(LogPiece { text: text.to_owned(), bytes, ..piece.clone() });
    }
    LineSplitter::default().take(&before)
}

/// A line as a terminal displays it: without line end and colors, and only the text after the last
/// carriage return.
fn shown(line: &str) -> String {
    let line = line.trim_end_matches(['\n', '\r']);
    let line = line.rsplit('\r').next().unwrap_or(line);
    let mut out = String::with_capacity(line.len());
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            skip_escape(&mut chars);
        } else if c == '\t' || !c.is_control() {
            out.push(c);
        }
    }
    out
}

/// Skips a control sequence (ECMA-48): `ESC [`, parameters, a final byte. Or `ESC` and one
/// character.
fn skip_escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    if chars.next_if_eq(&'[').is_none() {
        chars.next();
        return;
    }
    for c in chars.by_ref() {
        if ('\u{40}'..='\u{7e}').contains(&c) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(pieces: &[(i64, &str)], complete: bool) -> LogPart {
        let pieces: Vec<_> = pieces
            .iter()
            .map(|(offset, text)| LogPiece {
                offset: *offset,
                bytes: text.len() as i64,
                at: At(*offset),
                text: (*text).into(),
            })
            .collect();
        let next = pieces.last().map_or(0, |last| last.offset + last.text.len() as i64);
        LogPart { pieces, next, complete }
    }

    fn texts(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(|line| &*line.text).collect()
    }

    #[test]
    fn pieces_are_joined_into_lines() {
        let mut cutter = LineSplitter::default();
        assert_eq!(texts(&cutter.take(&part(&[(0, "one\ntw")], false))), ["one"]);
        assert_eq!(cutter.begun().unwrap().text.as_ref(), "tw");
        let lines = cutter.take(&part(&[(6, "o\n"), (8, "\nthree")], true));
        assert_eq!(texts(&lines), ["two", "", "three"]);
        assert_eq!(
            (lines[0].offset, lines[0].at),
            (4, At(0)),
            "a line has the time of its first byte"
        );
        assert_eq!(lines[2].offset, 9);
        assert!(cutter.begun().is_none());
    }

    #[test]
    fn invalid_bytes_keep_line_offsets() {
        let mut cutter = LineSplitter::default();
        let mut odd = part(&[(0, "a\nb"), (3, "\u{fffd}"), (4, "c\nd\n")], false);
        odd.pieces[1].bytes = 1;
        let lines = cutter.take(&odd);
        assert_eq!(texts(&lines), ["a", "b\u{fffd}c", "d"]);
        assert_eq!(lines[2].offset, 6);
        assert_eq!(
            texts(&cutter.take(&part(&[(8, "e\n")], false))),
            ["e"],
            "the next piece is complete"
        );
    }

    #[test]
    fn duplicate_data_is_shown_once() {
        let mut cutter = LineSplitter::default();
        cutter.take(&part(&[(10, "a\nb\n")], false));
        assert!(cutter.take(&part(&[(10, "a\nb\n")], false)).is_empty());
        assert_eq!(texts(&cutter.take(&part(&[(12, "b\nc\n")], false))), ["c"]);
    }

    #[test]
    fn earlier_part_ends_at_first_displayed_line() {
        let all = part(&[(0, "one\ntwo\n"), (8, "three\nfour\n")], false);
        assert_eq!(texts(&earlier(&all, 14)), ["one", "two", "three"]);
        assert!(earlier(&all, 0).is_empty());
    }

    #[test]
    fn colors_and_overwritten_text_are_removed() {
        assert_eq!(shown("\u{1b}[1;31mred\u{1b}[0m and\tplain\r\n"), "red and\tplain");
        assert_eq!(shown("10%\r50%\r100%\n"), "100%");
        assert_eq!(shown("\u{1b}"), "");
        assert_eq!(shown("bell\u{7}"), "bell");
    }
}
