//! Pauses between attempts while the database is unavailable.

use std::time::Duration;

/// Each pause is twice as long as the previous one, up to a maximum.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// Waits before the next attempt.
    pub(crate) async fn pause(&mut self) {
        tokio::time::sleep(self.advance()).await;
    }

    fn advance(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause
    }

    /// Starts with the first pause again, after a success.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(300));
        let pauses = [(); 4].map(|()| backoff.advance().as_millis());
        assert_eq!(pauses, [100, 200, 300, 300]);
        backoff.reset();
        assert_eq!(backoff.advance().as_millis(), 100);
    }
}
