//! Permits for long-lived requests: live streams, downloads, and requests that wait for an event.
//!
//! They are limited in total, to bound the load, and per person. A person who uses all of theirs,
//! for example with a client that never closes streams, takes none from others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use engine::ids::PersonId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A number of permits with a limit per person.
#[derive(Debug, Clone)]
pub(crate) struct Permits {
    all: Arc<Semaphore>,
    each: usize,
    /// Permits per person. People without permits are not in the map.
    taken: Arc<Mutex<HashMap<PersonId, usize>>>,
}

/// Why there is no permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// All permits are taken.
    Server,
    /// This person has the maximum number of permits.
    ForOne,
}

/// A permit. It is returned on drop.
#[derive(Debug)]
pub(crate) struct Permit {
    _one: OwnedSemaphorePermit,
    taken: Arc<Mutex<HashMap<PersonId, usize>>>,
    person: PersonId,
}

impl Permits {
    pub(crate) fn new(all: usize, each: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), each, taken: Arc::default() }
    }

    /// Number of free permits.
    pub(crate) fn free(&self) -> usize {
        self.all.available_permits()
    }

    /// Takes a permit for a person.
    pub(crate) fn take(&self, person: PersonId) -> Result<Permit, Full> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let has = taken.get(&person).copied().unwrap_or_default();
        if has >= self.each {
            return Err(Full::ForOne);
        }
        let one = Arc::clone(&self.all).try_acquire_owned().map_err(|_| Full::Server)?;
        taken.insert(person, has + 1);
        Ok(Permit { _one: one, taken: Arc::clone(&self.taken), person })
    }
}

impl Drop for Permit {
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
    use crate::http::permits::*;

    #[test]
    fn one_person_leaves_permits_for_others() {
        let permits = Permits::new(3, 2);
        let (ada, bo) = (PersonId(uuid::Uuid::from_u128(1)), PersonId(uuid::Uuid::from_u128(2)));
        let first = permits.take(ada).expect("a permit");
        let _second = permits.take(ada).expect("a permit");
        assert_eq!(permits.take(ada).err(), Some(Full::ForOne));
        let others = permits.take(bo).expect("a permit");
        assert_eq!(permits.take(bo).err(), Some(Full::Server));
        drop(first);
        assert!(permits.take(ada).is_ok() && permits.free() == 1, "the permit is released at once");
        drop(others);
        assert_eq!(
            (permits.free(), permits.taken.lock().expect("an unpoisoned lock").len()),
            (2, 1),
            "people without permits are removed"
        );
    }
}
