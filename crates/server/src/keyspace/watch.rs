//! The keys that clients watch, and the clients whose watched keys have changed.
//!
//! A watch lasts until a command changes its key, or its client gives it up. A change takes the watch off the
//! list and remembers the client as one whose next EXEC does nothing. So a change costs one step for each
//! watch of its key, and one comparison if nothing is watched.
//!
//! Expiry is no change here. The client's session keeps the earliest deadline of the watched keys that were
//! live: one of them has expired exactly when that deadline has come. A key that had expired before is absent
//! before and after its removal.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use foldhash::fast::RandomState;

use super::format::DATABASES;

#[derive(Clone, Copy, Debug)]
struct Watcher {
    client: u64,
    /// Whether the key existed when the watch began.
    live: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Watches {
    keys: Box<[HashMap<Rc<[u8]>, Vec<Watcher>, RandomState>; DATABASES]>,
    /// The number of watched keys in all databases.
    count: usize,
    /// The clients that watched a key which was changed.
    changed: HashSet<u64, RandomState>,
}

impl Watches {
    /// How many keys are watched, in all databases.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The keys of a database that are watched.
    pub(super) fn keys_of(&self, database: usize) -> Vec<Rc<[u8]>> {
        self.keys[database].keys().cloned().collect()
    }

    /// Begins to watch a key for a client; returns the key, shared, or `None` if the client watches it
    /// already.
    pub(crate) fn watch(&mut self, client: u64, database: usize, key: &[u8], live: bool) -> Option<Rc<[u8]>> {
        let keys = &mut self.keys[database];
        let watcher = Watcher { client, live };
        if let Some((shared, watchers)) =
            keys.get_key_value(key).map(|(key, watchers)| (key.clone(), watchers))
        {
            if watchers.iter().any(|watcher| watcher.client == client) {
                return None;
            }
            keys.entry(shared.clone()).or_default().push(watcher);
            return Some(shared);
        }
        let shared: Rc<[u8]> = key.into();
        keys.insert(shared.clone(), vec![watcher]);
        self.count += 1;
        Some(shared)
    }

    /// Ends a client's watches, which are of these keys.
    pub(crate) fn unwatch(&mut self, client: u64, watched: impl IntoIterator<Item = (usize, Rc<[u8]>)>) {
        for (database, key) in watched {
            if let Some(watchers) = self.keys[database].get_mut(&key) {
                watchers.retain(|watcher| watcher.client != client);
                if watchers.is_empty() {
                    self.keys[database].remove(&key);
                    self.count -= 1;
                }
            }
        }
        self.changed.remove(&client);
    }

    /// Whether a key that the client watches was changed.
    pub(crate) fn has_changed(&self, client: u64) -> bool {
        self.changed.contains(&client)
    }

    /// Notes that a key is changed.
    #[inline(always)]
    pub(super) fn touch(&mut self, database: usize, key: &[u8]) {
        if self.count > 0 {
            self.touch_watched(database, key);
        }
    }

    #[cold]
    fn touch_watched(&mut self, database: usize, key: &[u8]) {
        if let Some(watchers) = self.keys[database].remove(key) {
            self.count -= 1;
            self.changed.extend(watchers.iter().map(|watcher| watcher.client));
        }
    }

    /// Notes that all keys of a database are removed, which changes the existing ones.
    pub(super) fn touch_all(&mut self, database: usize) {
        let Watches { keys, count, changed } = self;
        keys[database].retain(|_, watchers| {
            let (seen, unseen): (Vec<_>, Vec<Watcher>) = watchers.drain(..).partition(|watcher| watcher.live);
            changed.extend(seen.iter().map(|watcher| watcher.client));
            *watchers = unseen;
            *count -= usize::from(watchers.is_empty());
            !watchers.is_empty()
        });
    }

    /// Counts every key as changed: what its watchers have seen of it may have been undone.
    pub(crate) fn touch_everything(&mut self) {
        for keys in self.keys.iter_mut() {
            let watchers = keys.drain().flat_map(|(_, watchers)| watchers);
            self.changed.extend(watchers.map(|watcher| watcher.client));
        }
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_by_those_who_watch_the_key() {
        let mut watches = Watches::default();
        watches.touch(0, b"a");
        let held = watches.watch(1, 0, b"a", true).unwrap();
        assert!(watches.watch(1, 0, b"a", true).is_none(), "it is watched already");
        let shared = watches.watch(2, 0, b"a", false).unwrap();
        assert!(Rc::ptr_eq(&held, &shared));
        watches.watch(3, 1, b"a", true).unwrap();
        watches.touch(0, b"b");
        assert!((1..=3).all(|client| !watches.has_changed(client)));
        watches.touch(0, b"a");
        assert_eq!([1, 2, 3].map(|client| watches.has_changed(client)), [true, true, false]);
        watches.unwatch(1, [(0, held)]);
        assert!(!watches.has_changed(1) && watches.has_changed(2));
        watches.unwatch(2, [(0, shared)]);
        assert_eq!(watches.count, 1);
    }

    #[test]
    fn clearing_a_database_changes_the_keys_that_were_there() {
        let mut watches = Watches::default();
        watches.watch(1, 0, b"there", true);
        watches.watch(2, 0, b"there", false);
        let absent = watches.watch(2, 0, b"absent", false).unwrap();
        watches.watch(3, 1, b"there", true);
        watches.touch_all(0);
        assert_eq!([1, 2, 3].map(|client| watches.has_changed(client)), [true, false, false]);
        watches.unwatch(2, [(0, absent), (0, b"there"[..].into())]);
        assert_eq!(watches.count, 1);
        watches.touch_everything();
        assert!(watches.has_changed(3));
        assert_eq!(watches.count, 0);
    }
}
