//! Places for what stays open: live streams, downloads, and requests that wait for something to happen.
//!
//! There are so many of them in all, so that a server is not kept busy by those who wait, and so many for each person, so that one who takes all of
//! theirs (by a program that never closes anything, say) takes them from nobody else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use engine::ids::PersonId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// So many places, and so many of them for each person.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    all: Arc<Semaphore>,
    each: usize,
    /// Who has how many; who has none is not in it.
    taken: Arc<Mutex<HashMap<PersonId, usize>>>,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// All are taken.
    ForAll,
    /// This person has as many as one may have.
    ForOne,
}

/// A place that somebody has until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _one: OwnedSemaphorePermit,
    taken: Arc<Mutex<HashMap<PersonId, usize>>>,
    person: PersonId,
}

impl Places {
    pub(crate) fn new(all: usize, each: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), each, taken: Arc::default() }
    }

    /// How many nobody has.
    pub(crate) fn free(&self) -> usize {
        self.all.available_permits()
    }

    /// Takes one for somebody.
    pub(crate) fn take(&self, person: PersonId) -> Result<Place, Full> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let has = taken.get(&person).copied().unwrap_or_default();
        if has >= self.each {
            return Err(Full::ForOne);
        }
        let one = Arc::clone(&self.all).try_acquire_owned().map_err(|_| Full::ForAll)?;
        taken.insert(person, has + 1);
        Ok(Place { _one: one, taken: Arc::clone(&self.taken), person })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.get_mut(&self.person) {
            Some(has) if *has > 1 => *has -= 1,
            _ => {
                taken.remove(&self.person);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_person_leaves_places_for_others() {
        let places = Places::new(3, 2);
        let (ada, bo) = (PersonId(uuid::Uuid::from_u128(1)), PersonId(uuid::Uuid::from_u128(2)));
        let first = places.take(ada).expect("a place");
        let _second = places.take(ada).expect("a place");
        assert_eq!(places.take(ada).err(), Some(Full::ForOne));
        let others = places.take(bo).expect("a place");
        assert_eq!(places.take(bo).err(), Some(Full::ForAll));
        drop(first);
        assert!(places.take(ada).is_ok() && places.free() == 1, "and given back at once");
        drop(others);
        assert_eq!(
            (places.free(), places.taken.lock().expect("the table").len()),
            (2, 1),
            "nobody is kept for nothing"
        );
    }
}
