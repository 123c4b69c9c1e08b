//! What is told of a run behind its standard output.
//!
//! A run and its result come over one channel: another one would cost a login on the node. The two are told apart by a *mark*, which is
//! made for this run and known to the wrapper alone: what stands between two marks is the result, and all that comes before is the
//! run's. A script that looked for the mark and printed it could only speak for itself, as it does by its output anyway.
//!
//! Bytes that may be the beginning of a mark are held until more is there, so none of a mark ever gets into a log; and they count as heard
//! only when they are passed on, so that whoever finds the way back to the run asks for them again.

use tokio::sync::watch;
use uuid::Uuid;

use super::{ANSWER, MAX_RESULT};

/// Stands before and behind a result.
pub(super) struct Mark(String);

impl Mark {
    /// One that nothing else has. Its first character is hardly ever printed, so hardly anything is ever held.
    pub(super) fn random() -> Self {
        Self(format!("\u{1e}gantry-{}\u{1e}", Uuid::new_v4().simple()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// What takes out of a stream what is not the run's.
pub(super) trait Behind {
    /// Passes on what is the run's.
    fn take(&mut self, bytes: &[u8], pass_on: impl FnMut(&[u8]));
}

/// A stream of which everything is the run's.
pub(super) struct Nothing;

impl Behind for Nothing {
    fn take(&mut self, bytes: &[u8], mut pass_on: impl FnMut(&[u8])) {
        pass_on(bytes);
    }
}

/// A stream with a result at its end.
pub(super) struct Told<'a> {
    mark: &'a [u8],
    /// What may be the beginning of the mark; once that was there, the result as far as it came.
    kept: Vec<u8>,
    begun: bool,
    arrived: watch::Sender<bool>,
}

impl<'a> Told<'a> {
    pub(super) fn behind(mark: &'a Mark) -> Self {
        Self {
            mark: mark.0.as_bytes(),
            kept: Vec::new(),
            begun: false,
            arrived: watch::Sender::new(false),
        }
    }

    /// Says when the whole result is there.
    pub(super) fn arrived(&self) -> watch::Receiver<bool> {
        self.arrived.subscribe()
    }

    /// Bytes that looked like the beginning of a mark. They were none, if nothing comes behind them.
    pub(super) fn held(&mut self) -> Vec<u8> {
        if self.begun { Vec::new() } else { std::mem::take(&mut self.kept) }
    }

    /// What was told, if all of it came.
    pub(super) fn result(self) -> Option<Vec<u8>> {
        self.arrived.borrow().then_some(self.kept)
    }

    fn find(&self, from: usize) -> Option<usize> {
        let found =
            self.kept[from..].windows(self.mark.len()).position(|window| window == self.mark);
        found.map(|at| from + at)
    }

    fn tell(&mut self, bytes: &[u8]) {
        // Longer than any result: the last bytes are enough to find its end, and its length says that it is too long.
        let most = MAX_RESULT + ANSWER;
        if *self.arrived.borrow() {
            return;
        }
        let from = self.kept.len().saturating_sub(self.mark.len());
        self.kept.extend_from_slice(bytes);
        if let Some(end) = self.find(from) {
            self.kept.truncate(end);
            self.arrived.send_replace(true);
        } else if self.kept.len() > most + self.mark.len() {
            self.kept.drain(most..self.kept.len() - self.mark.len());
        }
    }
}

impl Behind for Told<'_> {
    fn take(&mut self, bytes: &[u8], mut pass_on: impl FnMut(&[u8])) {
        if self.begun {
            return self.tell(bytes);
        }
        self.kept.extend_from_slice(bytes);
        let Some(at) = self.find(0) else {
            let longest = self.kept.len().min(self.mark.len() - 1);
            let held = (0..=longest)
                .rev()
                .find(|length| self.kept.ends_with(&self.mark[..*length]))
                .unwrap_or_default();
            let rest = self.kept.split_off(self.kept.len() - held);
            pass_on(&self.kept);
            self.kept = rest;
            return;
        };
        let behind = self.kept.split_off(at + self.mark.len());
        self.kept.truncate(at);
        pass_on(&self.kept);
        self.kept.clear();
        self.begun = true;
        self.tell(&behind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(all: &[u8], mark: &Mark, piece: usize) -> (Vec<u8>, Option<Vec<u8>>) {
        let (mut told, mut heard) = (Told::behind(mark), Vec::new());
        for bytes in all.chunks(piece) {
            told.take(bytes, |bytes| heard.extend_from_slice(bytes));
        }
        heard.extend(told.held());
        (heard, told.result())
    }

    #[test]
    fn a_result_is_told_from_what_the_run_printed_however_the_stream_is_cut() {
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
            assert_eq!(both(b"xABAB"), (b"xABAB".to_vec(), None), "no mark: {piece}");
            assert_eq!(both(b"xABAC{}ABA"), (b"x".to_vec(), None), "half a result: {piece}");
        }
    }

    #[test]
    fn a_result_that_is_too_long_is_not_kept_whole_and_still_ends() {
        let mark = Mark("ABAC".into());
        let mut all = b"ABAC".to_vec();
        all.extend(std::iter::repeat_n(b'x', 3 * MAX_RESULT));
        all.extend(b"ABAC");
        let (_, told) = taken(&all, &mark, 16 << 10);
        let told = told.expect("its end was found");
        assert!(told.len() > MAX_RESULT && told.len() < MAX_RESULT + 2 * ANSWER, "{}", told.len());
    }
}
