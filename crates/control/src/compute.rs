//! Runs CPU-bound work outside of the threads that answer requests.
//!
//! Planning ten thousand nodes takes one core for a second, and a client that disconnects does not
//! stop it. Therefore a process has one permit per core. Up to [`WAITING`] more tasks wait for a
//! permit, for at most [`MAX_WAIT`]; further requests get 503. The work owns its permit, not the
//! client that requested it.
//!
//! Viewer is enough to request such work, because a board with an open proposal is planned for each
//! request. So each person has a share: all permits but one, and a quarter of all tasks that run or
//! wait. A person beyond the share waits on their own semaphore, so they never fill the common
//! queue. Replanning after a commit or a sweep counts for no person: it plans one proposal after
//! the other.
//!
//! Invariants:
//! * **A task that waits for a permit has neither a row lock nor a connection.** The tasks
//!   outnumber the connections, and all workers need the row locks of a commit. So a use case
//!   reads, returns the connection, computes, and then takes a connection again. If it writes, its
//!   transaction begins after that and rechecks everything that may have changed. Functions that
//!   compute take a [`ComputeLimit`] instead of a connection.
//! * Work never acquires a permit itself. It would wait for tasks that wait for it.
//!
//! Work that runs once at a time for the whole process needs no permit:
//! * the skeleton and the newest blueprint ([`crate::current`]),
//! * impact calculation ([`crate::reviews::impact`]),
//! * password hashes.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use api::Problem;
use engine::ids::PersonId;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// Tasks that may wait for a permit, in addition to the running tasks.
pub(crate) const WAITING: usize = 128;
/// Maximum time to wait for a permit.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(20);
/// One person may have one in this many of the tasks that run or wait.
const SHARE_DIVISOR: usize = 4;

/// Limits for CPU-bound work, for the documentation and the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// Tasks that may wait, in addition to the running tasks.
    pub waiting: usize,
    /// Maximum waiting time.
    pub patience: Duration,
    /// One person may have one in this many of the tasks that run or wait.
    pub shares: usize,
    /// Reviews of one person that may be queued for impact calculation, the running one included.
    pub reviews_per_person: usize,
}

impl Shares {
    /// The limits in force.
    pub const NOW: Self = Self {
        waiting: WAITING,
        patience: MAX_WAIT,
        shares: SHARE_DIVISOR,
        reviews_per_person: (1 + WAITING) / SHARE_DIVISOR,
    };
}

/// The permits of this process. All `Control`s share them, because they share its cores.
pub(crate) static PERMITS: LazyLock<Arc<Permits>> = LazyLock::new(|| {
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    Arc::new(Permits::new(cores.max(2), WAITING, MAX_WAIT))
});

/// How CPU-bound work is limited, and the person that it counts for.
#[derive(Debug, Clone)]
pub(crate) enum ComputeLimit {
    /// Takes one of these permits. `None`: the work counts for no person.
    In(Arc<Permits>, Option<PersonId>),
    /// Takes no permit: the caller runs this work once at a time.
    Unlimited,
}

impl ComputeLimit {
    /// Runs `work` on a blocking thread once a permit is free. The caller must not have a
    /// connection.
    pub async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        match self {
            Self::In(permits, who) => permits.acquire(*who).await?.work(work).await,
            Self::Unlimited => on_blocking_thread(work).await,
        }
    }
}

/// Runs `work` on a blocking thread without a permit, for work that has its own limit.
pub(crate) async fn on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "a task on a blocking thread failed");
        Problem::internal()
    })
}

/// A concurrency limit with a fair share per person.
#[derive(Debug)]
pub(crate) struct Permits {
    free: Arc<Semaphore>,
    /// Slots for tasks that run or wait.
    asking: Arc<Semaphore>,
    patience: Duration,
    /// Permits that one person may have at once.
    each: usize,
    /// Tasks of one person that may run or wait.
    max_tasks_per_person: usize,
    /// Shares of the people who have a task that runs or waits. Others have no entry.
    shares: Arc<Mutex<HashMap<PersonId, Share>>>,
}

/// The tasks of one person.
#[derive(Debug)]
struct Share {
    free: Arc<Semaphore>,
    asking: usize,
}

/// One task of a person; dropping it removes it from the person's share.
#[derive(Debug)]
struct ShareTask {
    free: Arc<Semaphore>,
    shares: Arc<Mutex<HashMap<PersonId, Share>>>,
    person: PersonId,
}

impl Drop for ShareTask {
    fn drop(&mut self) {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        match shares.get_mut(&self.person) {
            Some(share) if share.asking > 1 => share.asking -= 1,
            _ => {
                shares.remove(&self.person);
            }
        }
    }
}

/// A permit; dropping it releases the permit.
#[derive(Debug)]
pub(crate) struct Permit {
    _one: OwnedSemaphorePermit,
    _own_running: Option<OwnedSemaphorePermit>,
    _share: Option<ShareTask>,
    _task: OwnedSemaphorePermit,
}

impl Permit {
    /// Runs `work` on a blocking thread. The permit stays taken until the work ends, even if the
    /// client disconnects.
    pub async fn work<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let permit = self;
        on_blocking_thread(move || {
            let done = work();
            drop(permit);
            done
        })
        .await
    }
}

impl Permits {
    pub(crate) fn new(concurrency: usize, waiting: usize, patience: Duration) -> Self {
        let asking = concurrency + waiting;
        Self {
            free: Arc::new(Semaphore::new(concurrency)),
            asking: Arc::new(Semaphore::new(asking)),
            patience,
            each: concurrency.saturating_sub(1).max(1),
            max_tasks_per_person: (asking / SHARE_DIVISOR).max(1),
            shares: Arc::default(),
        }
    }

    /// Acquires a permit for a person, or for no person (`None`). The caller must not have a
    /// connection.
    pub(crate) async fn acquire(&self, who: Option<PersonId>) -> Result<Permit, Problem> {
        let asking = who.map(|person| self.request_permit(person)).transpose()?;
        let any = Arc::clone(&self.asking).try_acquire_owned().map_err(|_| busy())?;
        let permits = async {
            // The person's own permit comes first, so a person beyond their share does not block
            // the common queue.
            let own_running = match &asking {
                Some(asking) => Some(Arc::clone(&asking.free).acquire_owned().await?),
                None => None,
            };
            Ok::<_, AcquireError>((own_running, Arc::clone(&self.free).acquire_owned().await?))
        };
        let (own_running, one) = tokio::time::timeout(self.patience, permits)
            .await
            .map_err(|_| busy())?
            .map_err(|_| busy())?;
        Ok(Permit { _one: one, _own_running: own_running, _share: asking, _task: any })
    }

    fn request_permit(&self, person: PersonId) -> Result<ShareTask, Problem> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let count = shares.get(&person).map_or(0, |share| share.asking);
        if count >= self.max_tasks_per_person {
            return Err(person_busy());
        }
        let new = || Share { free: Arc::new(Semaphore::new(self.each)), asking: 0 };
        let share = shares.entry(person).or_insert_with(new);
        share.asking += 1;
        Ok(ShareTask { free: Arc::clone(&share.free), shares: Arc::clone(&self.shares), person })
    }
}

fn busy() -> Problem {
    Problem::unavailable("The server is busy with other requests. Try again in a few seconds.")
}

fn person_busy() -> Problem {
    Problem::unavailable("The server is busy with your other requests. Try again in a few seconds.")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use crate::compute::*;

    fn person(n: u128) -> Option<PersonId> {
        Some(PersonId(uuid::Uuid::from_u128(n)))
    }

    async fn work<T: Send + 'static>(
        permits: &Permits,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        permits.acquire(None).await?.work(work).await
    }

    #[tokio::test]
    async fn permit_is_taken_until_work_ends() {
        let permits = Arc::new(Permits::new(1, 1, Duration::from_millis(50)));
        let (end, ended) = mpsc::channel::<()>();
        let first = tokio::spawn({
            let permits = Arc::clone(&permits);
            async move { work(&permits, move || ended.recv().is_ok()).await }
        });
        while permits.free.available_permits() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let (second, third) = tokio::join!(work(&permits, || 2), work(&permits, || 3));
        for refused in [second, third] {
            let problem = refused.expect_err("no free permit");
            assert_eq!((problem.status, problem.again_after.is_some()), (503, true), "{problem:?}");
        }
        // The client of the first task is gone, but the task continues.
        first.abort();
        assert!(first.await.is_err_and(|error| error.is_cancelled()));
        assert_eq!(permits.free.available_permits(), 0);
        end.send(()).expect("the semaphore is open");
        let done = Permits {
            patience: Duration::from_secs(30),
            ..Arc::into_inner(permits).expect("the only reference")
        };
        assert_eq!(work(&done, || 4).await, Ok(4));
    }

    #[tokio::test]
    async fn panicking_work_releases_its_permit() {
        let permits = Permits::new(1, 0, Duration::from_secs(30));
        let wrong: Result<(), Problem> = work(&permits, || panic!("panic of the test")).await;
        assert_eq!(wrong.map_err(|problem| problem.status), Err(500));
        assert_eq!(work(&permits, || 1).await, Ok(1));
    }

    #[tokio::test]
    async fn one_person_cannot_take_all_permits() {
        let (ada, bo) = (person(1), person(2));
        // The limits of a machine with two cores: one person may have four tasks that run or wait.
        let permits = Arc::new(Permits::new(2, 14, Duration::from_secs(30)));
        let first = permits.acquire(ada).await.expect("a permit");
        let mut waiting = Vec::new();
        for _ in 0..3 {
            let permits = Arc::clone(&permits);
            waiting.push(tokio::spawn(async move { permits.acquire(ada).await.map(drop) }));
        }
        while permits.asking.available_permits() > 12 {
            tokio::task::yield_now().await;
        }
        let refused = permits.acquire(ada).await.map(drop).expect_err("a request beyond the share");
        assert_eq!((refused.status, refused.again_after.is_some()), (503, true), "{refused:?}");
        assert_eq!(
            permits.free.available_permits(),
            1,
            "requests of one person wait only for that person's permits"
        );
        let others = tokio::time::timeout(Duration::from_secs(5), permits.acquire(bo))
            .await
            .expect("a permit without a delay");
        drop(others.expect("a permit"));
        drop(first);
        for one in waiting {
            assert_eq!(one.await.expect("the task ends"), Ok(()));
        }
        assert!(
            permits.shares.lock().expect("an unpoisoned lock").is_empty(),
            "unused shares are removed"
        );
        assert_eq!((permits.free.available_permits(), permits.asking.available_permits()), (2, 16));
    }

    #[tokio::test]
    async fn canceled_wait_releases_everything() {
        let permits = Permits::new(1, 7, Duration::from_millis(20));
        let permit = permits.acquire(person(1)).await.expect("a permit");
        let refused =
            permits.acquire(person(1)).await.map(drop).expect_err("a wait that is too long");
        assert_eq!(refused.status, 503);
        drop(permit);
        assert!(permits.shares.lock().expect("an unpoisoned lock").is_empty());
        assert_eq!((permits.free.available_permits(), permits.asking.available_permits()), (1, 8));
    }
}
