//! Separates the wrapper's report from the run's standard output.
//!
//! Output and report share one channel, because a second channel costs another login on the node. A
//! random *mark* separates them. It is made for each run, and only the wrapper knows it. The report
//! is between two marks; everything before is the run's output. A script that finds the mark and
//! prints it can only forge its own result, which it controls anyway.
//!
//! Bytes that may begin a mark are withheld until more arrive, so no part of a mark gets into a
//! log. They count as received only when they are passed on. After a reconnect, the worker
//! therefore requests them again.

use tokio::sync::watch;
use uuid::Uuid;

use crate::job::MAX_RESULT;
use crate::node::session::MAX_COMMAND_OUTPUT;

/// Separator before and after a report.
pub(super) struct Mark(String);

impl Mark {
    /// Creates a unique mark. Its first character is rarely printed, so bytes are rarely withheld.
    pub(super) fn random() -> Self {
        Self(format!("\u{1e}gantry-{}\u{1e}", Uuid::new_v4().simple()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Filters out the part of a stream that is not the run's output.
pub(super) trait OutputFilter {
    /// Passes on the run's output.
    fn take(&mut self, bytes: &[u8], pass_on: impl FnMut(&[u8]));
}

/// A stream without a report.
pub(super) struct NoReport;

impl OutputFilter for NoReport {
    fn take(&mut self, bytes: &[u8], mut pass_on: impl FnMut(&[u8])) {
        pass_on(bytes);
    }
}

/// A stream with a report at its end.
pub(super) struct ReportFilter<'a> {
    mark: &'a [u8],
    /// Bytes that may begin the mark. After the first mark, the report so far.
    pending: Vec<u8>,
    begun: bool,
    arrived: watch::Sender<bool>,
}

impl<'a> ReportFilter<'a> {
    pub(super) fn new(mark: &'a Mark) -> Self {
        Self {
            mark: mark.0.as_bytes(),
            pending: Vec::new(),
            begun: false,
            arrived: watch::Sender::new(false),
        }
    }

    /// Signals when the whole report has arrived.
    pub(super) fn arrived(&self) -> watch::Receiver<bool> {
        self.arrived.subscribe()
    }

    /// Returns withheld bytes. At the end of the stream, they turn out not to be a mark.
    pub(super) fn withheld(&mut self) -> Vec<u8> {
        if self.begun { Vec::new() } else { std::mem::take(&mut self.pending) }
    }

    /// The report, if it is complete.
    pub(super) fn report(self) -> Option<Vec<u8>> {
        self.arrived.borrow().then_some(self.pending)
    }

    fn find(&self, from: usize) -> Option<usize> {
        let found =
            self.pending[from..].windows(self.mark.len()).position(|window| window == self.mark);
        found.map(|at| from + at)
    }

    fn append(&mut self, bytes: &[u8]) {
        // The report exceeds every valid result. The last bytes are enough to find its end, and its
        // length shows that it is too long.
        let max_bytes = MAX_RESULT + MAX_COMMAND_OUTPUT;
        if *self.arrived.borrow() {
            return;
        }
        let from = self.pending.len().saturating_sub(self.mark.len());
        self.pending.extend_from_slice(bytes);
        if let Some(end) = self.find(from) {
            self.pending.truncate(end);
            self.arrived.send_replace(true);
        } else if self.pending.len() > max_bytes + self.mark.len() {
            self.pending.drain(max_bytes..self.pending.len() - self.mark.len());
        }
    }
}

impl OutputFilter for ReportFilter<'_> {
    fn take(&mut self, bytes: &[u8], mut pass_on: impl FnMut(&[u8])) {
        if self.begun {
            return self.append(bytes);
        }
        self.pending.extend_from_slice(bytes);
        let Some(at) = self.find(0) else {
            let longest = self.pending.len().min(self.mark.len() - 1);
            let withheld = (0..=longest)
                .rev()
                .find(|length| self.pending.ends_with(&self.mark[..*length]))
                .unwrap_or_default();
            let rest = self.pending.split_off(self.pending.len() - withheld);
            pass_on(&self.pending);
            self.pending = rest;
            return;
        };
        let rest = self.pending.split_off(at + self.mark.len());
        self.pending.truncate(at);
        pass_on(&self.pending);
        self.pending.clear();
        self.begun = true;
        self.append(&rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(all: &[u8], mark: &Mark, piece: usize) -> (Vec<u8>, Option<Vec<u8>>) {
        let (mut filter, mut output) = (ReportFilter::new(mark), Vec::new());
        for bytes in all.chunks(piece) {
            filter.take(bytes, |bytes| output.extend_from_slice(bytes));
        }
        output.extend(filter.withheld());
        (output, filter.report())
    }

    #[test]
    fn result_is_separated_from_output_across_chunks() {
        let mark = Mark("ABAC".into());
        for piece in 1..20 {
            let both = |all: &[u8]| taken(all, &mark, piece);
            assert_eq!(
                both(b"xABABACcode=0\n{}ABAC"),
                (b"xAB".to_vec(), Some(b"code=0\n{}".to_vec())),
                "{piece}"
            );
            assert_eq!(both(b"ABACABAC"), (Vec::new(), Some(Vec::new())), "{piece}");
            assert_eq!(both(b"ABACABAABAC?"), (Vec::new(), Some(b"ABA".to_vec())), "{piece}");
            assert_eq!(both(b"xABAB"), (b"xABAB".to_vec(), None), "the text has no mark: {piece}");
            assert_eq!(
                both(b"xABAC{}ABA"),
                (b"x".to_vec(), None),
                "the result is incomplete: {piece}"
            );
        }
    }

    #[test]
    fn oversized_result_is_truncated_and_ends() {
        let mark = Mark("ABAC".into());
        let mut all = b"ABAC".to_vec();
        all.extend(std::iter::repeat_n(b'x', 3 * MAX_RESULT));
        all.extend(b"ABAC");
        let (_, report) = taken(&all, &mark, 16 << 10);
        let report = report.expect("a complete result");
        assert!(
            report.len() > MAX_RESULT && report.len() < MAX_RESULT + 2 * MAX_COMMAND_OUTPUT,
            "{}",
            report.len()
        );
    }
}
