//! The sixteen databases on top of the engine's maps, with expiry, as one batch after another.
//!
//! All commands between two commits work in one [`tembo::Batch`]: they see each other's writes and share one
//! fence. The event loop decides when to commit; nothing here does. The batch is opened by the first command
//! that needs it and holds the pool's writer until then.
//!
//! A key is *expired* once its deadline has come. It is then absent for every command, at once, although its
//! entry may still be there: the next write to the key replaces it, and [`Keyspace::expire_due`] removes it.
//!
//! Every change that a client can see goes through [`Keyspace::put`], [`Keyspace::remove`],
//! [`Keyspace::clear`] or [`Keyspace::touch`], which tell the clients that watch the key; all but
//! [`Keyspace::clear`] also those that track it. The first three are also where the elements of a
//! large [`collection`] are given up together with the value that has its id.
//!
//! In cluster mode a key lies in the maps behind its slot: [`placement`] turns keys into *places*, and back.
//!
//! Each database counts its keys with a deadline, so that a SET where no key has one looks nothing up. The
//! count is read from the map when it is first needed, follows every change of the map, and is forgotten
//! whenever changes are taken back.

pub(crate) mod backlog;
pub(crate) mod backlog_reader;
pub(crate) mod batch;
mod changes;
pub(crate) mod check;
pub(crate) mod check_report;
pub(crate) mod cluster;
pub(crate) mod collection;
pub(crate) mod cursor;
mod database;
pub(crate) mod entry;
pub(crate) mod events;
mod eviction;
mod expiry;
pub(crate) mod format;
pub(crate) mod history;
pub(crate) mod kept_states;
pub(crate) mod key_count;
pub(crate) mod moves;
mod old_records;
pub(crate) mod order;
pub(crate) mod placement;
pub(crate) mod point;
mod prefix;
mod random;
mod reclaiming;
pub(crate) mod replication;
pub(crate) mod retention;
mod scripts;
pub(crate) mod slots;
pub(crate) mod stream;
mod stream_file;
#[cfg(test)]
mod stream_file_tests;
pub(crate) mod swap;
#[cfg(test)]
mod tests;
pub(crate) mod tokens;
mod uses;
pub(crate) mod waiters;
mod walk;
mod watch;

use tembo::{Map, Pool, Savepoint};

use crate::eviction::access::Accesses;
use crate::eviction::candidate::entry_bytes;
use crate::fault::{Answer, Fault};
use crate::pubsub::PubSub;
use batch::{Batch, Batches, into_error, writer};
use changes::{Changes, note};
use collection::counts::Counts;
use collection::list::Chunk;
use collection::list_end::ListEnd;
use collection::parts::Parts;
use collection::registry::Registry;
use database::Database;
use entry::{Found, Old, is_live};
use events::class;
use format::{
    BACKLOG, CLUSTER, COLLECTIONS, CURSORS, DATABASES, ELEMENTS, KEY_BYTES_MAX, Kind, LISTS, Meta,
    OLD_RECORDS, ONCE, ORDERED, Order, Prefix, REPLICATION, SCRIPTS, Stored,
};
use kept_states::{Keeping, stored_kept};
use order::Places;
use placement::Layout;
use stream::Replication;
use uses::{note_put, touch};
use waiters::Waiters;
use watch::Watches;

/// The maps that all databases share.
const MAPS_OF_ALL: [&str; 11] = [
    ELEMENTS,
    ORDERED,
    LISTS,
    COLLECTIONS,
    CURSORS,
    ONCE,
    REPLICATION,
    BACKLOG,
    CLUSTER,
    OLD_RECORDS,
    SCRIPTS,
];

/// Most parts that a payload consists of.
const PAYLOAD_PARTS_MAX: usize = 4;

/// Counts for INFO.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyspaceStats {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) expired: u64,
    /// Commits that made something durable.
    pub(crate) commits: u64,
    pub(crate) failed_commits: u64,
    /// The last commit failed.
    pub(crate) last_commit_failed: bool,
}

pub(crate) struct Keyspace<'p> {
    pool: &'p Pool,
    batch: Batches<'p>,
    databases: [Option<Box<Database>>; DATABASES],
    /// How keys lie in their maps.
    layout: Layout,
    /// The map of old records, once a point in time has needed it.
    old_records: Option<Map>,
    /// The map of the topology, in a cluster.
    cluster_map: Option<Map>,
    /// The place of a key while it is used.
    place: Vec<u8>,
    /// The maps that the databases have.
    places: Places,
    /// Replaced states that are kept.
    pub(crate) keeping: Keeping,
    /// The maps of large collections; they are created with the first database.
    collections: Option<Registry>,
    /// The numbers of members of sorted sets.
    counts: Counts,
    /// The time that commands act at, in milliseconds since the Unix epoch; set by the event loop.
    pub(crate) now_ms: u64,
    /// Something was written since the last commit.
    dirty: bool,
    /// Cleared maps, or ids of large collections, may still hold space.
    reclaiming: bool,
    pub(crate) parts: Parts,
    /// The end of a list that the batch gets later.
    end: Option<Box<ListEnd>>,
    /// The chunk at which a list was changed last, and its id, for [`Keyspace::keep_end`].
    last_chunk: Option<(u64, Chunk)>,
    /// Holds a key of "dbN.expires" while it is used.
    expiry: Vec<u8>,
    /// The keys that the batch changes, if they are noted.
    changes: Option<Box<Changes>>,
    pub(crate) watches: Watches,
    pub(crate) waiters: Waiters,
    pub(crate) pubsub: PubSub,
    pub(crate) replication: Replication,
    pub(crate) stats: KeyspaceStats,
    /// The uses of keys, if a policy of eviction needs them.
    pub(crate) accesses: Option<Box<Accesses>>,
    /// Bytes that new keys have taken, less those of evicted ones, about, since the memory was last measured.
    pub(crate) new_bytes: i64,
}

impl<'p> Keyspace<'p> {
    /// Opens the databases that the pool has. A new state whose arrival was cut off is dropped.
    pub(crate) fn open(pool: &'p Pool) -> Result<Self, tembo::Error> {
        let mut keys = Self::open_in_order(pool, None)?;
        match keys.give_up_arrival().and_then(|()| keys.empty_old_records()) {
            Err(Fault::Engine(error)) => Err(error),
            // A damaged record does not matter here; the check names it.
            Err(_) | Ok(()) => Ok(keys),
        }
    }

    /// Opens the databases, with the maps that an order gives them, or with their own.
    fn open_in_order(pool: &'p Pool, order: Option<Order>) -> Result<Self, tembo::Error> {
        let mut databases = [const { None }; DATABASES];
        // A database that this version cannot read must not count as empty.
        let is_ours = |name: &String| {
            let of_databases = [Layout::Plain, Layout::Slots]
                .into_iter()
                .flat_map(|layout| (0..DATABASES).map(move |number| layout.map_names(number)));
            MAPS_OF_ALL.contains(&name.as_str())
                || of_databases.into_iter().any(|(data, expires)| [data, expires].contains(name))
        };
        if let Some(unknown) = pool.unknown()?.into_iter().find(|unknown| is_ours(&unknown.name)) {
            return Err(tembo::Error::Unknown(Box::new(unknown)));
        }
        let (names, collections, layout) = (pool.map_names()?, Registry::find(pool)?, Layout::of(pool)?);
        let own = || collections.as_ref().map_or(Ok(Order::default()), Registry::committed_order);
        let order = order.map_or_else(own, Ok)?;
        let mut keeping = Keeping::of(stored_kept(pool)?);
        let kept = keeping.states.bits();
        for (database, number) in order.iter() {
            if names.contains(&layout.map_names(number).0) {
                let maps = Some(Box::new(Database::open(pool, layout, number)?));
                match kept >> number & 1 {
                    1 => keeping.maps[number] = maps,
                    _ => databases[database] = maps,
                }
            }
        }
        Ok(Keyspace {
            pool,
            batch: Batches::default(),
            old_records: None,
            databases,
            layout,
            cluster_map: pool.find_map(CLUSTER)?,
            place: Vec::new(),
            places: Places::new(order),
            keeping,
            collections,
            counts: Counts::default(),
            now_ms: 0,
            dirty: false,
            reclaiming: true,
            parts: Parts::default(),
            end: None,
            last_chunk: None,
            expiry: Vec::new(),
            changes: None,
            watches: Watches::default(),
            waiters: Waiters::default(),
            pubsub: PubSub::default(),
            replication: Replication::find(pool)?,
            stats: KeyspaceStats::default(),
            accesses: None,
            new_bytes: 0,
        })
    }

    pub(crate) fn pool(&self) -> &'p Pool {
        self.pool
    }

    /// Whether `database` has its maps.
    pub(crate) fn exists(&self, database: usize) -> bool {
        self.databases[database].is_some() && self.collections.is_some()
    }

    /// Whether a commit would make something durable.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty || self.replication.has_bytes()
    }

    /// Whether anything was written since the last call, which is set aside.
    pub(crate) fn set_dirty_aside(&mut self) {
        self.replication.effects.was_dirty = std::mem::take(&mut self.dirty);
    }

    /// Restores the mark of unsaved writes that was set aside; returns whether something was written
    /// meanwhile.
    pub(crate) fn note_dirty_again(&mut self) -> bool {
        let was_dirty = std::mem::take(&mut self.replication.effects.was_dirty);
        let is_dirty = self.dirty;
        self.dirty |= was_dirty;
        is_dirty
    }

    pub(crate) fn has_batch(&self) -> bool {
        self.batch.is_some()
    }

    /// How large the pending batch has become, in words to be stored.
    pub(crate) fn pending_words(&self) -> usize {
        self.batch.as_ref().map_or(0, |batch| batch.pending_words())
    }

    /// Makes all writes since the last commit durable, with one fence, or none of them.
    pub(crate) fn commit(&mut self) -> Result<(), tembo::Error> {
        let stored = self.store_end();
        if self.replication.has_bytes() {
            writer(self.pool, &mut self.batch).map_err(into_error)?;
            self.dirty = true;
        }
        let dirty = std::mem::take(&mut self.dirty);
        let noted = if dirty { self.replication.write(self.batch.as_mut()) } else { Ok(()) };
        let Some(batch) = self.batch.take() else {
            return Ok(());
        };
        debug_assert!(
            counts_are_right(&self.databases, &batch),
            "a count of deadlines is not its map's length"
        );
        let result = stored.and(noted).and_then(|()| batch.commit());
        if dirty {
            self.replication.note_end(result.is_ok());
        }
        match &result {
            Ok(()) => self.places.note_committed(),
            Err(_) => self.forget_state(),
        }
        self.stats.last_commit_failed = result.is_err();
        match result {
            Ok(()) if dirty => self.stats.commits += 1,
            Ok(()) => {}
            Err(_) => self.stats.failed_commits += 1,
        }
        result
    }

    pub(crate) fn savepoint(&mut self) -> Answer<Savepoint> {
        Ok(writer(self.pool, &mut self.batch)?.savepoint())
    }

    /// Begins a command that writes: from here to [`end_command`](Self::end_command) there is one undo point,
    /// which is returned. A write that fails takes back the whole command.
    #[inline(always)]
    pub(crate) fn begin_command(&mut self) -> Answer<Savepoint> {
        self.parts.begin(!self.dirty);
        Ok(writer(self.pool, &mut self.batch)?.begin_nested())
    }

    /// Keeps the writes of a command.
    #[inline(always)]
    pub(crate) fn end_command(&mut self) {
        if let Some(batch) = self.batch.as_mut() {
            batch.end_nested();
        }
    }

    /// Undoes the writes of a command that began at `begin`. Parts of a collection that it has committed are
    /// reclaimed instead. The command ends.
    pub(crate) fn undo_command(&mut self, begin: Savepoint) {
        let begin = self.parts.undo_point(begin);
        self.rollback_to(begin);
    }

    /// Undoes the writes since `savepoint`, in this batch. A command ends.
    pub(crate) fn rollback_to(&mut self, savepoint: Savepoint) {
        if let Some(batch) = self.batch.as_mut() {
            batch.rollback_to(savepoint);
            self.forget_state();
        }
    }

    /// Forgets state that depends on changes of the maps, after some changes were taken back.
    #[cold]
    fn forget_state(&mut self) {
        self.end = None;
        self.counts.clear();
        self.restore_places();
        self.databases.iter_mut().flatten().for_each(|maps| maps.expires_len = None);
    }

    /// A hint that `keys` are needed soon.
    pub(crate) fn prefetch<'k>(&mut self, database: usize, keys: impl IntoIterator<Item = &'k [u8]>) {
        let Keyspace { pool, batch, databases, layout, accesses, .. } = self;
        let keys = keys.into_iter().inspect(|key| {
            if let Some(accesses) = accesses {
                accesses.prefetch(database, key);
            }
        });
        let (Some(maps), Ok(batch)) = (databases[database].as_deref(), writer(pool, batch)) else { return };
        match layout {
            Layout::Plain => batch.prefetch(&maps.data, keys),
            Layout::Slots => {
                let places: Vec<_> = keys.map(placement::place_of).collect();
                batch.prefetch(&maps.data, places.iter().map(|place| &place[..]));
            }
        }
    }

    /// Looks `key` up for a command that reads, and counts a hit or a miss.
    pub(crate) fn read(&mut self, database: usize, key: &[u8]) -> Answer<Option<Stored<'_>>> {
        let Keyspace {
            pool,
            batch,
            databases,
            now_ms,
            stats,
            pubsub,
            dirty,
            replication,
            accesses,
            layout,
            place,
            ..
        } = self;
        let found = find(pool, batch, databases[database].as_deref(), *now_ms, layout.place(key, place))?;
        match found.live {
            Some(_) => {
                stats.hits += 1;
                touch(accesses, database, key);
            }
            None => {
                stats.misses += 1;
                let depends = *dirty || replication.effects.was_dirty;
                events::notify(pubsub, depends, class::MISS, "keymiss", database, key);
            }
        }
        Ok(found.live)
    }

    /// As [`read`](Self::read), for a command on strings.
    #[inline(always)]
    pub(crate) fn read_string(&mut self, database: usize, key: &[u8]) -> Answer<Option<Stored<'_>>> {
        self.read(database, key)?.map(Stored::string).transpose()
    }

    /// Looks `key` up.
    pub(crate) fn find(&mut self, database: usize, key: &[u8]) -> Answer<Found<'_>> {
        let Keyspace { pool, batch, databases, now_ms, accesses, layout, place, .. } = self;
        let found = find(pool, batch, databases[database].as_deref(), *now_ms, layout.place(key, place))?;
        if found.live.is_some() {
            touch(accesses, database, key);
        }
        Ok(found)
    }

    /// The other data that are removed with the value of `key`. Takes no look-up if the database has no
    /// deadlines and no large collections.
    pub(crate) fn old(&mut self, database: usize, key: &[u8]) -> Answer<Old> {
        if self.expires_len(database)? == 0 && !self.has_elements()? {
            return Ok(Old::default());
        }
        Ok(self.find(database, key)?.old)
    }

    /// Whether there are elements of large collections.
    fn has_elements(&mut self) -> Answer<bool> {
        let Keyspace { pool, batch, collections, .. } = self;
        match collections {
            Some(maps) => {
                let batch = writer(pool, batch)?;
                Ok(batch.len(&maps.elements)? > 0 || batch.len(&maps.lists)? > 0)
            }
            None => Ok(false),
        }
    }

    /// Puts `payload`, in parts, under `key`, in place of `old`.
    pub(crate) fn put(
        &mut self,
        database: usize,
        key: &[u8],
        meta: Meta,
        old: Old,
        payload: &[&[u8]],
    ) -> Answer {
        let Keyspace {
            pool,
            batch,
            databases,
            now_ms,
            dirty,
            expiry,
            changes,
            watches,
            waiters,
            pubsub,
            replication,
            accesses,
            new_bytes,
            layout,
            place,
            ..
        } = self;
        let place = layout.place_within(key, place)?;
        let maps = databases[database].as_deref_mut().ok_or(Fault::MissingDatabase(database))?;
        let batch = writer(pool, batch)?;
        *dirty = true;
        watches.touch(database, key);
        pubsub.invalidate(key);
        waiters.touch(database, key);
        note(changes, database, place);
        let (listed, prefix) = (old.listed, Prefix::encode(meta));
        let mut parts = [&[][..]; PAYLOAD_PARTS_MAX + 1];
        parts[0] = prefix.as_bytes();
        parts[1..=payload.len()].copy_from_slice(payload);
        let had_expired = !is_live(listed, *now_ms);
        if had_expired {
            events::notify(pubsub, true, class::EXPIRED, "expired", database, key);
            replication.effects.note_expired(database, key);
        }
        let is_new = !batch.put_parts(&maps.data, place, &parts[..=payload.len()])?;
        let bytes = payload.iter().map(|part| part.len()).sum();
        *new_bytes += i64::from(is_new) * entry_bytes(key, bytes);
        note_put(accesses, (database, key), is_new || had_expired);
        if is_new || had_expired {
            events::notify(pubsub, true, class::NEW, "new", database, key);
        }
        if listed != meta.deadline {
            if let Some(deadline) = listed {
                maps.unlist(batch, expiry, deadline, place)?;
            }
            if let Some(deadline) = meta.deadline {
                maps.list(batch, expiry, deadline, place)?;
            }
        }
        self.doom(database, old)
    }

    /// Gives up the elements of a large collection whose value is replaced or removed. Constant time: they
    /// are removed by [`Keyspace::reclaim`].
    #[inline(always)]
    fn doom(&mut self, database: usize, old: Old) -> Answer {
        match old.id {
            Some(id) => self.doom_id(database, id),
            None => Ok(()),
        }
    }

    #[cold]
    fn doom_id(&mut self, database: usize, id: u64) -> Answer {
        let Keyspace { pool, batch, collections, reclaiming, places, .. } = self;
        *reclaiming = true;
        match collections {
            Some(maps) => maps.doom(writer(pool, batch)?, places.now.maps(database), id),
            None => Err(Fault::Malformed),
        }
    }

    /// Notifies clients that watch or track `key` of a change, though its own value did not change.
    fn touch(&mut self, database: usize, key: &[u8]) {
        self.dirty = true;
        self.watches.touch(database, key);
        self.pubsub.invalidate(key);
    }

    /// Gives `key`, if it is live, another deadline or none. Writes the value anew: a deadline is part of it.
    pub(crate) fn set_deadline(&mut self, database: usize, key: &[u8], deadline: Option<u64>) -> Answer {
        let Some(stored) = self.find(database, key)?.live else {
            return Ok(());
        };
        let (meta, old, payload) = (stored.meta, Old::of(&stored), stored.payload.to_vec());
        self.put(database, key, Meta { deadline, ..meta }, old.kept(), &[&payload])
    }

    /// Removes `key`, which is present, and `old` with it.
    pub(crate) fn remove(&mut self, database: usize, key: &[u8], old: Old) -> Answer {
        let listed = old.listed;
        let Keyspace {
            pool,
            batch,
            databases,
            now_ms,
            dirty,
            expiry,
            changes,
            watches,
            pubsub,
            layout,
            place,
            ..
        } = self;
        let Some(maps) = databases[database].as_deref_mut() else {
            return Ok(());
        };
        let (batch, place) = (writer(pool, batch)?, layout.place(key, place));
        *dirty = true;
        if is_live(listed, *now_ms) {
            watches.touch(database, key);
        } else {
            events::notify(pubsub, true, class::EXPIRED, "expired", database, key);
        }
        pubsub.invalidate(key);
        note(changes, database, place);
        batch.remove(&maps.data, place)?;
        if let Some(deadline) = listed {
            maps.unlist(batch, expiry, deadline, place)?;
        }
        self.doom(database, old)
    }

    /// Removes all keys of `database`, in constant time. The caller notifies clients that track keys.
    /// [`Keyspace::reclaim`] frees the space.
    pub(crate) fn clear(&mut self, database: usize) -> Answer {
        let number = self.places.now.maps(database);
        let Keyspace { pool, batch, databases, collections, dirty, reclaiming, changes, watches, .. } = self;
        let Some(maps) = databases[database].as_deref_mut() else {
            return Ok(());
        };
        let batch = writer(pool, batch)?;
        (*dirty, *reclaiming) = (true, true);
        watches.touch_all(database);
        if let Some(changes) = changes {
            changes.note_cleared(database);
        }
        batch.clear(&maps.data)?;
        batch.clear(&maps.expires)?;
        maps.expires_len = Some(0);
        collections.as_ref().map_or(Ok(()), |collections| collections.doom_all(batch, number))
    }

    /// The number of keys in `database`; those that have expired count until they are removed.
    pub(crate) fn len(&mut self, database: usize) -> Answer<u64> {
        let Keyspace { pool, batch, databases, .. } = self;
        match databases[database].as_deref() {
            Some(maps) => Ok(writer(pool, batch)?.len(&maps.data)?),
            None => Ok(0),
        }
    }

    /// The number of keys in `database` that have a deadline.
    pub(crate) fn expires_len(&mut self, database: usize) -> Answer<u64> {
        let Keyspace { pool, batch, databases, .. } = self;
        match databases[database].as_deref_mut() {
            Some(maps) => maps.expires_len(writer(pool, batch)?),
            None => Ok(0),
        }
    }

    /// Tells of a change of a key, once the batch is committed.
    #[inline(always)]
    pub(crate) fn notify(&mut self, class: u32, event: &str, database: usize, key: &[u8]) {
        let depends = self.dirty || self.replication.effects.was_dirty;
        events::notify(&mut self.pubsub, depends, class, event, database, key);
    }

    /// The type of a value that a walk has come to, if commands see it.
    fn live_kind(&self, stored: &Stored<'_>) -> Option<Kind> {
        is_live(stored.meta.deadline, self.now_ms).then_some(stored.meta.kind)
    }
}

/// Whether each count of deadlines that is kept is the length of its map. A map that cannot be read has none.
fn counts_are_right(databases: &[Option<Box<Database>>], batch: &Batch<'_>) -> bool {
    databases.iter().flatten().all(|maps| {
        maps.expires_len.is_none_or(|count| batch.len(&maps.expires).map_or(true, |len| len == count))
    })
}

fn find<'b, 'p>(
    pool: &'p Pool,
    batch: &'b mut Batches<'p>,
    maps: Option<&'b Database>,
    now_ms: u64,
    place: &[u8],
) -> Answer<Found<'b>> {
    let Some(maps) = maps.filter(|_| place.len() <= KEY_BYTES_MAX) else {
        return Ok(Found::default());
    };
    let Some(value) = writer(pool, batch)?.get(&maps.data, place)? else {
        return Ok(Found::default());
    };
    let stored = Stored::decode(value)?;
    let old = Old::of(&stored);
    Ok(Found { live: is_live(old.listed, now_ms).then_some(stored), old, present: true })
}
