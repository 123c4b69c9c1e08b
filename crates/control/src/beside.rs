//! Work that takes processor time, beside the threads that answer requests.
//!
//! # Theory
//!
//! Planning ten thousand nodes takes a core for a second, and whoever stops waiting for it does not stop it. So without a bound, a person
//! who reloads a page often enough has all cores plan what nobody reads. A process has as many places for such work as cores; [`WAITING`]
//! more may wait for one, [`PATIENCE`] long, and whoever comes then is told to come back. A place belongs to the work and not to whoever
//! asked for it.
//!
//! Looking takes no more than the permission to look, and a board with a proposal is planned each time that somebody looks. So each person
//! has a share: all places but one at once, and a quarter of those that ask. Whoever asks for more waits for themselves: among those that
//! wait for a place of all there are never more of one person than they may have at once, so others come in between. What
//! rests on a commit and is planned anew has no share: nobody asked for it, and each commit or sweep does that one after the other.
//!
//! **Who needs the processor waits for a place and holds neither a row's lock nor a connection.** There are more who wait than connections,
//! and a commit waits for rows under locks that all workers need. So a use case reads what it needs, gives the connection back, computes, and
//! takes a connection again; where it writes, its transaction begins after that, and looks again at what may have moved. Nothing that
//! computes is handed a connection: it is handed [`Beside`], and takes connections for as long as it reads.
//!
//! Some work is done once at a time for all and has a turn of its own, so that it waits for no place: the skeleton and the newest blueprint
//! ([`crate::present`]), weighing ([`crate::weighing`]), passwords.
//!
//! Work never asks for a place itself: it would wait for those that wait for it.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use api::Problem;
use engine::ids::PersonId;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// Those that wait for a place, beside those that have one.
pub(crate) const WAITING: usize = 128;
/// How long they wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// One of so many that ask may be the same person.
const SHARES: usize = 4;

/// How work that takes processor time is bounded, for who tells people of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// What waits, beside what is under way.
    pub waiting: usize,
    /// How long it waits.
    pub patience: Duration,
    /// One of so many that have a place or wait is for one person.
    pub shares: usize,
    /// Reviews that wait to be worked out for one person, with the one that is.
    pub reviews_each: usize,
}

impl Shares {
    /// As it is.
    pub const NOW: Self = Self {
        waiting: WAITING,
        patience: PATIENCE,
        shares: SHARES,
        reviews_each: (1 + WAITING) / SHARES,
    };
}

/// The places of this process: they are its cores', whoever asks.
pub(crate) static PLACES: LazyLock<Arc<Places>> = LazyLock::new(|| {
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    Arc::new(Places::new(cores.max(2), WAITING, PATIENCE))
});

/// Where what takes processor time is done, and for whom.
#[derive(Debug, Clone)]
pub(crate) enum Beside {
    /// In one of these places, for this person; None: for nobody.
    In(Arc<Places>, Option<PersonId>),
    /// In none: what its caller does once at a time.
    Unplaced,
}

impl Beside {
    /// Does it on a thread of its own, when there is a place. The caller holds no connection.
    pub async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        match self {
            Self::In(places, who) => places.place(*who).await?.work(work).await,
            Self::Unplaced => unplaced(work).await,
        }
    }
}

/// Does it on a thread of its own, without a place: for what has a bound of its own.
pub(crate) async fn unplaced<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "work on a thread of its own did not end well");
        Problem::internal()
    })
}

/// So much work at once, and so much of that for one person.
#[derive(Debug)]
pub(crate) struct Places {
    free: Arc<Semaphore>,
    /// Left for those that ask, whether they wait or have a place.
    asking: Arc<Semaphore>,
    patience: Duration,
    /// What one person has at once.
    each: usize,
    /// What asks for one person, at most.
    each_asking: usize,
    /// Who asks for something; who does not is not in it.
    shares: Arc<Mutex<HashMap<PersonId, Share>>>,
}

/// What one person asks for.
#[derive(Debug)]
struct Share {
    free: Arc<Semaphore>,
    asking: usize,
}

/// One thing that somebody asks for, until this is dropped.
#[derive(Debug)]
struct Asking {
    free: Arc<Semaphore>,
    shares: Arc<Mutex<HashMap<PersonId, Share>>>,
    person: PersonId,
}

impl Drop for Asking {
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

/// A place that is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _one: OwnedSemaphorePermit,
    _own: Option<OwnedSemaphorePermit>,
    _asking: Option<Asking>,
    _any: OwnedSemaphorePermit,
}

impl Place {
    /// Does it on a thread of its own. The place is taken for as long as the work goes on, also when nobody waits for it any more.
    pub async fn work<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let place = self;
        unplaced(move || {
            let done = work();
            drop(place);
            done
        })
        .await
    }
}

impl Places {
    pub(crate) fn new(at_once: usize, waiting: usize, patience: Duration) -> Self {
        let asking = at_once + waiting;
        Self {
            free: Arc::new(Semaphore::new(at_once)),
            asking: Arc::new(Semaphore::new(asking)),
            patience,
            each: at_once.saturating_sub(1).max(1),
            each_asking: (asking / SHARES).max(1),
            shares: Arc::default(),
        }
    }

    /// Takes a place for somebody; None: for nobody in particular. The caller holds no connection.
    pub(crate) async fn place(&self, who: Option<PersonId>) -> Result<Place, Problem> {
        let asking = who.map(|person| self.ask(person)).transpose()?;
        let any = Arc::clone(&self.asking).try_acquire_owned().map_err(|_| busy())?;
        let turn = async {
            // Behind one's own first: whoever has their share does not stand in the way of others.
            let own = match &asking {
                Some(asking) => Some(Arc::clone(&asking.free).acquire_owned().await?),
                None => None,
            };
            Ok::<_, AcquireError>((own, Arc::clone(&self.free).acquire_owned().await?))
        };
        let (own, one) = tokio::time::timeout(self.patience, turn)
            .await
            .map_err(|_| busy())?
            .map_err(|_| busy())?;
        Ok(Place { _one: one, _own: own, _asking: asking, _any: any })
    }

    fn ask(&self, person: PersonId) -> Result<Asking, Problem> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let has = shares.get(&person).map_or(0, |share| share.asking);
        if has >= self.each_asking {
            return Err(busy_with_theirs());
        }
        let new = || Share { free: Arc::new(Semaphore::new(self.each)), asking: 0 };
        let share = shares.entry(person).or_insert_with(new);
        share.asking += 1;
        Ok(Asking { free: Arc::clone(&share.free), shares: Arc::clone(&self.shares), person })
    }
}

fn busy() -> Problem {
    Problem::unavailable(
        "This server computes as much as it can at this moment. Try again in a few seconds.",
    )
}

fn busy_with_theirs() -> Problem {
    Problem::unavailable(
        "This server computes for you as much as it does for one person at this moment. Try again in a few seconds.",
    )
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn person(n: u128) -> Option<PersonId> {
        Some(PersonId(uuid::Uuid::from_u128(n)))
    }

    async fn work<T: Send + 'static>(
        places: &Places,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        places.place(None).await?.work(work).await
    }

    #[tokio::test]
    async fn a_place_is_taken_until_the_work_ends_and_whoever_comes_beyond_is_sent_away() {
        let places = Arc::new(Places::new(1, 1, Duration::from_millis(50)));
        let (end, ended) = mpsc::channel::<()>();
        let first = tokio::spawn({
            let places = Arc::clone(&places);
            async move { work(&places, move || ended.recv().is_ok()).await }
        });
        while places.free.available_permits() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let (second, third) = tokio::join!(work(&places, || 2), work(&places, || 3));
        for refused in [second, third] {
            let problem = refused.expect_err("there is no place");
            assert_eq!((problem.status, problem.again_after.is_some()), (503, true), "{problem:?}");
        }
        // Nobody waits for the first any more, and it goes on.
        first.abort();
        assert!(first.await.is_err_and(|error| error.is_cancelled()));
        assert_eq!(places.free.available_permits(), 0);
        end.send(()).expect("it still listens");
        let done = Places {
            patience: Duration::from_secs(30),
            ..Arc::into_inner(places).expect("the only one")
        };
        assert_eq!(work(&done, || 4).await, Ok(4));
    }

    #[tokio::test]
    async fn what_goes_wrong_gives_its_place_back() {
        let places = Places::new(1, 0, Duration::from_secs(30));
        let wrong: Result<(), Problem> = work(&places, || panic!("on purpose")).await;
        assert_eq!(wrong.map_err(|problem| problem.status), Err(500));
        assert_eq!(work(&places, || 1).await, Ok(1));
    }

    #[tokio::test]
    async fn one_person_leaves_a_place_and_a_turn_for_others() {
        let (ada, bo) = (person(1), person(2));
        // As on a machine of two cores, where one person asks for four things at most.
        let places = Arc::new(Places::new(2, 14, Duration::from_secs(30)));
        let first = places.place(ada).await.expect("a place");
        let mut waiting = Vec::new();
        for _ in 0..3 {
            let places = Arc::clone(&places);
            waiting.push(tokio::spawn(async move { places.place(ada).await.map(drop) }));
        }
        while places.asking.available_permits() > 12 {
            tokio::task::yield_now().await;
        }
        let refused = places.place(ada).await.map(drop).expect_err("more than a share");
        assert_eq!((refused.status, refused.again_after.is_some()), (503, true), "{refused:?}");
        assert_eq!(
            places.free.available_permits(),
            1,
            "hers wait for her own, not for the place of others"
        );
        let others =
            tokio::time::timeout(Duration::from_secs(5), places.place(bo)).await.expect("at once");
        drop(others.expect("a place"));
        drop(first);
        for one in waiting {
            assert_eq!(one.await.expect("it ends"), Ok(()));
        }
        assert!(places.shares.lock().expect("the table").is_empty(), "nobody is kept for nothing");
        assert_eq!((places.free.available_permits(), places.asking.available_permits()), (2, 16));
    }

    #[tokio::test]
    async fn whoever_gives_up_waiting_leaves_nothing_taken() {
        let places = Places::new(1, 7, Duration::from_millis(20));
        let held = places.place(person(1)).await.expect("a place");
        let refused = places.place(person(1)).await.map(drop).expect_err("it takes too long");
        assert_eq!(refused.status, 503);
        drop(held);
        assert!(places.shares.lock().expect("the table").is_empty());
        assert_eq!((places.free.available_permits(), places.asking.available_permits()), (1, 8));
    }
}
