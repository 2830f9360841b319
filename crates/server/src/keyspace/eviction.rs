//! Keys that may be evicted, and their eviction.

use std::ops::{Bound, ControlFlow};

use super::Keyspace;
use super::events::class;
use super::format::{Stored, decode_expiry};
use super::random::draw;
use crate::eviction::candidate::{Candidate, entry_bytes};
use crate::fault::Answer;
use crate::random::Random;
use crate::tracking::NOBODY;

impl Keyspace<'_> {
    /// How many keys of a database may go: all, or those that have a deadline.
    pub(crate) fn evictable(&self, database: usize, is_volatile: bool) -> Answer<u64> {
        let maps = self.databases[database].as_deref();
        let map = maps.map(|maps| if is_volatile { &maps.expires } else { &maps.data });
        Ok(map.map_or(Ok(0), tembo::Map::len)?)
    }

    /// Gives the keys that may go, with their places in the order of the walk, to `visit`, until it breaks.
    pub(crate) fn visit_evictable(
        &self,
        database: usize,
        is_volatile: bool,
        begin: Bound<&[u8]>,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Answer {
        let Some(maps) = self.databases[database].as_deref() else {
            return Ok(());
        };
        let map = if is_volatile { &maps.expires } else { &maps.data };
        for entry in map.range::<&[u8]>((begin, Bound::Unbounded)) {
            let entry = entry?;
            let place = if is_volatile { decode_expiry(entry.key())?.1 } else { entry.key() };
            if visit(entry.key(), self.layout.key(place)).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// A place at random in the order of such a walk.
    pub(crate) fn draw_place(
        &self,
        database: usize,
        is_volatile: bool,
        random: &mut Random,
    ) -> Answer<Option<Vec<u8>>> {
        let Some(maps) = self.databases[database].as_deref() else {
            return Ok(None);
        };
        let map = if is_volatile { &maps.expires } else { &maps.data };
        Ok(draw(map, random)?.map(|(key, _)| key))
    }

    /// The bytes of a key's value, if the key is there and may go.
    pub(crate) fn evictable_bytes(
        &self,
        database: usize,
        key: &[u8],
        is_volatile: bool,
    ) -> Answer<Option<usize>> {
        let (maps, mut room) = (self.databases[database].as_deref(), Vec::new());
        let place = self.layout.place(key, &mut room);
        let entry = maps.and_then(|maps| maps.data.range(place..).next()).transpose()?;
        let Some(entry) = entry.filter(|entry| entry.key() == place) else {
            return Ok(None);
        };
        let may_go = !is_volatile || Stored::decode(entry.value())?.meta.deadline.is_some();
        Ok(may_go.then(|| entry.value().len()))
    }

    /// How little a key is worth by its uses: the larger, the sooner it is evicted. `None` if the policy
    /// ignores uses.
    pub(crate) fn use_rank(&self, database: usize, key: &[u8]) -> Option<u64> {
        self.accesses.as_ref().map(|accesses| accesses.rank(database, key))
    }

    /// Fits the table of uses to the number of keys.
    pub(crate) fn fit_accesses(&mut self) {
        if let Some(accesses) = &mut self.accesses {
            let maps = self.databases.iter().flatten();
            accesses.fit(maps.map(|maps| maps.data.len().unwrap_or(0)).sum());
        }
    }

    /// Removes keys because the memory for them is exhausted; returns the number of keys that existed. Each
    /// removal is sent to replicas.
    ///
    /// # Errors
    /// Those of the storage. After an error nothing was removed.
    pub(crate) fn evict(&mut self, victims: &[Candidate]) -> Answer<usize> {
        if victims.is_empty() {
            return Ok(0);
        }
        let (savepoint, mark) = (self.begin_command()?, self.pubsub.mark());
        let told = self.replication.effects.begin_command();
        self.pubsub.tracking.current = NOBODY;
        let removed = victims.iter().try_fold(0, |count, victim| {
            let was_there = self.evict_one(victim.database, &victim.key)?;
            Ok(count + usize::from(was_there))
        });
        match removed {
            Ok(_) => {
                self.end_command();
                self.replication.close_unit();
            }
            Err(_) => {
                self.rollback_to(savepoint);
                self.replication.effects.take_back(told);
                self.pubsub.drop_since(mark);
            }
        }
        removed
    }

    fn evict_one(&mut self, database: usize, key: &[u8]) -> Answer<bool> {
        let found = self.find(database, key)?;
        if !found.present {
            return Ok(false);
        }
        let (old, is_live) = (found.old, found.live.is_some());
        let bytes = found.live.map_or(0, |stored| stored.payload.len());
        self.remove(database, key, old)?;
        self.new_bytes -= entry_bytes(key, bytes);
        if is_live {
            self.notify(class::EVICTED, "evicted", database, key);
        }
        let effects = &mut self.replication.effects;
        if effects.is_on {
            effects.add(database, [&b"DEL"[..], key]);
        }
        Ok(true)
    }
}
