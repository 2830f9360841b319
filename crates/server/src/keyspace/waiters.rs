//! The clients that wait for keys, by key and in order of arrival.
//!
//! A write to a key for which a client waits makes the key *ready*. [`crate::waiting`] then lets the clients
//! try again. A write costs one comparison if no client waits.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;
use std::time::Instant;

use foldhash::fast::RandomState;

use super::format::DATABASES;
use crate::client_ref::ClientRef;

/// Clients by their numbers, which grow with their arrival.
type Queue = BTreeMap<u64, ClientRef>;

#[derive(Debug, Default)]
pub(crate) struct Waiters {
    keys: Box<[HashMap<Rc<[u8]>, Queue, RandomState>; DATABASES]>,
    deadlines: BTreeMap<(Instant, u64), ClientRef>,
    /// How many clients wait.
    count: usize,
    next: u64,
    /// Keys that were written, each once.
    ready: VecDeque<(usize, Rc<[u8]>)>,
    /// A commit failed, so that any key may have a value again. All are tried, but not at once.
    pub(crate) try_all: bool,
}

impl Waiters {
    /// How many clients wait.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The keys of a database that clients wait for, in the order in which the first of them came.
    pub(super) fn keys_of(&self, database: usize) -> Vec<Rc<[u8]>> {
        let mut keys: Vec<_> =
            self.keys[database].iter().map(|(key, queue)| (queue.keys().next(), key)).collect();
        keys.sort_unstable();
        keys.into_iter().map(|(_, key)| key.clone()).collect()
    }

    /// The number of the next client.
    pub(crate) fn draw(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Lets a client wait for these keys of a database.
    pub(crate) fn add(
        &mut self,
        (number, client): (u64, ClientRef),
        (database, keys): (usize, &[Rc<[u8]>]),
        deadline: Option<Instant>,
    ) {
        for key in keys {
            self.keys[database].entry(key.clone()).or_default().insert(number, client);
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, number), client);
        }
        self.count += 1;
    }

    /// Ends the wait of a client. The keys and the deadline are those with which it began.
    pub(crate) fn remove(
        &mut self,
        number: u64,
        (database, keys): (usize, &[Rc<[u8]>]),
        deadline: Option<Instant>,
    ) {
        let mut was_there = false;
        for key in keys {
            if let Some(queue) = self.keys[database].get_mut(key) {
                was_there |= queue.remove(&number).is_some();
                if queue.is_empty() {
                    self.keys[database].remove(key);
                }
            }
        }
        if let Some(deadline) = deadline {
            self.deadlines.remove(&(deadline, number));
        }
        self.count -= usize::from(was_there);
    }

    /// Notes that a key has another value.
    #[inline(always)]
    pub(super) fn touch(&mut self, database: usize, key: &[u8]) {
        if self.count > 0 {
            self.touch_awaited(database, key);
        }
    }

    #[cold]
    fn touch_awaited(&mut self, database: usize, key: &[u8]) {
        if let Some((key, _)) = self.keys[database].get_key_value(key) {
            let is_ready = self.ready.iter().any(|ready| ready.0 == database && ready.1 == *key);
            if !is_ready {
                self.ready.push_back((database, key.clone()));
            }
        }
    }

    /// Makes all keys ready that someone waits for.
    pub(crate) fn touch_all(&mut self) {
        self.try_all = false;
        for database in 0..DATABASES {
            self.ready.extend(self.keys_of(database).into_iter().map(|key| (database, key)));
        }
    }

    /// Whether a key is ready.
    #[inline(always)]
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The key that was ready first, and the clients that wait for it, in order.
    pub(crate) fn take_ready(&mut self) -> Option<(usize, Rc<[u8]>, Vec<ClientRef>)> {
        let (database, key) = self.ready.pop_front()?;
        let clients = self.keys[database].get(&key).map(|queue| queue.values().copied().collect());
        Some((database, key, clients.unwrap_or_default()))
    }

    /// The first deadline.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadlines.keys().next().map(|(deadline, _)| *deadline)
    }

    /// A client whose deadline has come.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<ClientRef> {
        let entry = self.deadlines.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(entry.remove())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn clients_wait_in_order_of_arrival_until_they_are_removed() {
        let (mut waiters, now) = (Waiters::default(), Instant::now());
        let keys: Vec<Rc<[u8]>> = vec![b"a"[..].into(), b"b"[..].into(), b"a"[..].into()];
        let client = |id| ClientRef { slot: 0, id };
        let due = |ms| Some(now + Duration::from_millis(ms));
        waiters.touch(0, b"a");
        assert!(!waiters.has_ready());
        for (id, ms) in [(7, 9), (5, 3)] {
            let number = waiters.draw();
            waiters.add((number, client(id)), (0, &keys), due(ms));
        }
        (0..2).for_each(|_| waiters.touch(0, b"a"));
        waiters.touch(1, b"b");
        let (database, key, clients) = waiters.take_ready().unwrap();
        assert_eq!((database, &key[..], clients), (0, &b"a"[..], vec![client(7), client(5)]));
        assert!(!waiters.has_ready());
        assert_eq!(waiters.deadline(), due(3));
        assert_eq!(waiters.take_due(now + Duration::from_millis(5)), Some(client(5)));
        waiters.remove(2, (0, &keys), due(3));
        waiters.remove(2, (0, &keys), due(3));
        assert_eq!(waiters.len(), 1);
        waiters.touch_all();
        assert_eq!(waiters.take_ready().unwrap().2, [client(7)]);
        waiters.remove(1, (0, &keys), due(9));
        assert!(waiters.len() == 0 && waiters.keys[0].is_empty() && waiters.deadlines.is_empty());
    }
}
