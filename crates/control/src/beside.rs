//! Work that takes processor time, beside the threads that answer requests.
//!
//! # Theory
//!
//! Planning ten thousand nodes takes a core for a second, and whoever stops waiting for it does not stop it. So without a bound, a person
//! who reloads a page often enough has all cores plan what nobody reads. A process has as many places for such work as cores; [`WAITING`]
//! more may wait for one, [`PATIENCE`] long, and whoever comes then is told to come back. A place belongs to the work and not to whoever
//! asked for it.
//!
//! Work never asks for a place itself: it would wait for those that wait for it.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use api::Problem;
use tokio::sync::Semaphore;

/// Those that wait for a place, beside those that have one.
pub const WAITING: usize = 128;
/// How long they wait.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The places of this process: they are its cores', whoever asks.
pub(crate) static PLACES: LazyLock<Places> = LazyLock::new(|| {
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    Places::new(cores.max(2), WAITING, PATIENCE)
});

/// So much work at once.
#[derive(Debug)]
pub(crate) struct Places {
    free: Arc<Semaphore>,
    waiting: Semaphore,
    patience: Duration,
}

impl Places {
    fn new(at_once: usize, waiting: usize, patience: Duration) -> Self {
        Self { free: Arc::new(Semaphore::new(at_once)), waiting: Semaphore::new(at_once + waiting), patience }
    }

    /// Does it on a thread of its own, when there is a place.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let _waits = self.waiting.try_acquire().map_err(|_| busy())?;
        let place = tokio::time::timeout(self.patience, Arc::clone(&self.free).acquire_owned());
        let place = place.await.map_err(|_| busy())?.map_err(|_| busy())?;
        // The place is taken for as long as the work goes on, also when nobody waits for it any more.
        let working = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(place);
            done
        });
        working.await.map_err(|error| {
            tracing::error!(%error, "work on a thread of its own did not end well");
            Problem::internal()
        })
    }
}

fn busy() -> Problem {
    Problem::unavailable("This server computes as much as it can at this moment. Try again in a few seconds.")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_place_is_taken_until_the_work_ends_and_whoever_comes_beyond_is_sent_away() {
        let places = Arc::new(Places::new(1, 1, Duration::from_millis(50)));
        let (end, ended) = mpsc::channel::<()>();
        let first = tokio::spawn({
            let places = Arc::clone(&places);
            async move { places.work(move || ended.recv().is_ok()).await }
        });
        while places.free.available_permits() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let (second, third) = tokio::join!(places.work(|| 2), places.work(|| 3));
        for refused in [second, third] {
            let problem = refused.expect_err("there is no place");
            assert_eq!((problem.status, problem.again_after.is_some()), (503, true), "{problem:?}");
        }
        // Nobody waits for the first any more, and it goes on.
        first.abort();
        assert!(first.await.is_err_and(|error| error.is_cancelled()));
        assert_eq!(places.free.available_permits(), 0);
        end.send(()).expect("it still listens");
        let done = Places { patience: Duration::from_secs(30), ..Arc::into_inner(places).expect("the only one") };
        assert_eq!(done.work(|| 4).await, Ok(4));
    }

    #[tokio::test]
    async fn what_goes_wrong_gives_its_place_back() {
        let places = Places::new(1, 0, Duration::from_secs(30));
        let wrong: Result<(), Problem> = places.work(|| panic!("on purpose")).await;
        assert_eq!(wrong.map_err(|problem| problem.status), Err(500));
        assert_eq!(places.work(|| 1).await, Ok(1));
    }
}
