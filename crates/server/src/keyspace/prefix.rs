//! The keys of a database that begin alike.

use std::ops::ControlFlow;

use tembo::Counting;

use super::Keyspace;
use super::batch::writer;
use super::changes::note;
use super::entry::{Old, is_live};
use super::events::class;
use super::format::Stored;
use super::placement::Bounds;
use crate::fault::Answer;

/// Keys that one effect names.
const KEYS_TOLD: usize = 1024;

impl Keyspace<'_> {
    /// How many keys begin with `prefix`; those that have expired count until they are removed. O(log n), but
    /// in a database that does not count its keys, as old ones do not: there it is O(their number). In
    /// cluster mode O(log n) for each slot that has keys, unless the prefix has a hash tag.
    pub(crate) fn count_prefix(&mut self, database: usize, prefix: &[u8]) -> Answer<u64> {
        let Keyspace { pool, batch, databases, layout, .. } = self;
        let Some(maps) = databases[database].as_deref() else {
            return Ok(0);
        };
        let batch = writer(pool, batch)?;
        let mut keys = 0;
        for bounds in layout.ranges(batch, &maps.data, prefix)? {
            if maps.data.counting() == Counting::Records {
                keys += batch.count(&maps.data, bounds)?;
                continue;
            }
            batch.walk(&maps.data, bounds, |_, _| {
                keys += 1;
                ControlFlow::Continue(())
            })?;
        }
        Ok(keys)
    }

    /// Removes the keys that begin with `prefix`; returns how many had not expired.
    pub(crate) fn remove_prefix(&mut self, database: usize, prefix: &[u8]) -> Answer<u64> {
        let Keyspace { pool, batch, databases, layout, .. } = self;
        let Some(maps) = databases[database].as_deref() else {
            return Ok(0);
        };
        let ranges = layout.ranges(writer(pool, batch)?, &maps.data, prefix)?;
        let removed = self.remove_ranges(database, &ranges, |key| key.starts_with(prefix))?;
        self.pubsub.invalidate_prefix(prefix, removed.named.iter().map(|(key, _)| &**key));
        self.finish_removal(database, removed)
    }

    /// Removes the keys in ranges of places. `is_removed` selects the keys that may be removed. The caller
    /// notifies clients that track keys, and calls [`finish_removal`](Self::finish_removal).
    pub(super) fn remove_ranges(
        &mut self,
        database: usize,
        ranges: &[Bounds],
        is_removed: impl Fn(&[u8]) -> bool,
    ) -> Answer<Removed> {
        let found = self.find_ranges(database, ranges)?;
        let watched = self.watches.keys_of(database).into_iter().filter(|key| is_removed(key));
        for key in watched.collect::<Vec<_>>() {
            if self.find(database, &key)?.live.is_some() {
                self.watches.touch(database, &key);
            }
        }
        let Keyspace { pool, batch, databases, dirty, expiry, changes, layout, place, .. } = self;
        let Some(maps) = databases[database].as_deref_mut() else {
            return Ok(found);
        };
        let batch = writer(pool, batch)?;
        *dirty = true;
        for bounds in ranges {
            batch.remove_range(&maps.data, bounds.clone())?;
        }
        for (key, old) in &found.with_more {
            if let Some(deadline) = old.listed {
                maps.unlist(batch, expiry, deadline, layout.place(key, place))?;
            }
        }
        found.named.iter().for_each(|(key, _)| note(changes, database, layout.place(key, place)));
        Ok(found)
    }

    /// Gives up the elements of keys that were removed, and notifies of their removal; returns the number
    /// that had not expired.
    pub(super) fn finish_removal(&mut self, database: usize, mut removed: Removed) -> Answer<u64> {
        self.replication.effects.tell_only();
        for keys in removed.named.chunks(KEYS_TOLD) {
            let words: Vec<_> =
                [&b"UNLINK"[..]].into_iter().chain(keys.iter().map(|(key, _)| &key[..])).collect();
            self.replication.effects.tell(database, words);
        }
        for (_, old) in removed.with_more.drain(..) {
            self.doom(database, old)?;
        }
        for (key, is_live) in &removed.named {
            let (class, event) = if *is_live { (class::GENERIC, "del") } else { (class::EXPIRED, "expired") };
            self.notify(class, event, database, key);
        }
        Ok(removed.live)
    }

    /// Facts about the keys in ranges before they are removed.
    fn find_ranges(&mut self, database: usize, ranges: &[Bounds]) -> Answer<Removed> {
        let Keyspace { pool, batch, databases, now_ms, changes, pubsub, replication, layout, .. } = self;
        let mut found = Removed::default();
        let Some(maps) = databases[database].as_deref() else {
            return Ok(found);
        };
        let are_named = changes.is_some()
            || replication.effects.is_on
            || pubsub.tracking.is_broadcasting()
            || pubsub.notified & (class::GENERIC | class::EXPIRED) != 0;
        let (mut malformed, batch) = (None, writer(pool, batch)?);
        for bounds in ranges {
            batch.walk(&maps.data, bounds.clone(), |place, value| {
                let stored = match Stored::decode(value) {
                    Ok(stored) => stored,
                    Err(error) => {
                        malformed = Some(error);
                        return ControlFlow::Break(());
                    }
                };
                let (key, is_live) = (layout.key(place), is_live(stored.meta.deadline, *now_ms));
                found.live += u64::from(is_live);
                let old = Old::of(&stored);
                if old != Old::default() {
                    found.with_more.push((key.to_vec(), old));
                }
                if are_named {
                    found.named.push((key.to_vec(), is_live));
                }
                ControlFlow::Continue(())
            })?;
        }
        malformed.map_or(Ok(found), |error| Err(error.into()))
    }
}

/// Keys that are removed together.
#[derive(Default)]
pub(super) struct Removed {
    /// How many have not expired.
    live: u64,
    /// The keys with a deadline or a large collection. Their other records are removed, too.
    with_more: Vec<(Vec<u8>, Old)>,
    /// All of them, if a client or a replica is to be notified, and whether each is unexpired.
    named: Vec<(Vec<u8>, bool)>,
}
