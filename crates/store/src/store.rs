//! The store: opening, reading, changing, and what it keeps.

use crate::active::Active;
use crate::commit_queue::{Commits, Lead};
use crate::dropped;
use crate::error::{Error, Result, corrupt};
use crate::format::{Format, format_of};
use crate::garbage::Left;
use crate::handle::{Store, StoreInner, last_number, word};
use crate::history::History;
use crate::keyspace::{Keyspace, check_name};
use crate::layout::{ROOT_KIND, STORE_BYTES, STORE_FORMAT, ValueWord, WRITERS_MAX, field};
use crate::log::LogSlot;
use crate::read_write_sets::Change;
use crate::retention::{Retention, steady_unix_ns, unix_ns};
use crate::retry::retry;
use crate::snapshot::{Kept, Snapshot};
use crate::space::Space;
use crate::transaction::{Transaction, check_lengths};
use crate::versions::read_value;
use crate::writer_lane::take_lane;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::SystemTime;
use tembo_index::WbTree;
use tembo_pool::{Feature, KeptSpace, Pool};

/// A version of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyVersion {
    /// The number of the commit that wrote it, and of the first snapshot that has it.
    pub number: u64,
    /// The value; `None` if the key was deleted.
    pub value: Option<Vec<u8>>,
}

impl Store {
    /// The kind of a store's root in the pool's directory.
    pub const ROOT_KIND: u32 = ROOT_KIND;

    /// Opens the store of this name in a pool, or makes it. Takes the same time for a store of any size, and
    /// a little for each kept snapshot.
    ///
    /// In a pool that was opened for reading only, everything that was committed can be read, and whatever
    /// would change the store fails with `tembo_pool::ErrorKind::ReadOnly`.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] if it is open in this process, [`Error::FormatVersion`], and [`Error::Pool`] if the
    /// name belongs to something else, the pool has no lane left, or is damaged.
    pub fn open(pool: &Pool, name: &str) -> Result<Store> {
        let mut lane = take_lane(pool)?;
        let _names = dropped::names();
        let off = match pool.root(name)? {
            Some(root) if root.kind == ROOT_KIND => root.off,
            Some(root) => {
                let (expected, found) = (ROOT_KIND, root.kind);
                return Err(Error::Pool(
                    tembo_pool::ErrorKind::RootKind { name: root.name, expected, found }.into(),
                ));
            }
            None => {
                let lane =
                    lane.as_mut().ok_or_else(|| tembo_pool::Error::from(tembo_pool::ErrorKind::ReadOnly))?;
                pool.enable(Feature::Stores)?;
                let mut tx = lane.begin();
                let (names, kept) = (WbTree::create_unnamed(&mut tx)?, WbTree::create_unnamed(&mut tx)?);
                let off = tx.alloc(STORE_BYTES)?;
                let zeros = [0; (STORE_BYTES as usize - 40) / 8];
                tx.write_fresh_words(off, &[STORE_FORMAT, 0, 0, names.head(), kept.head()], &zeros)?;
                tx.set_root(name, ROOT_KIND, off)?;
                tx.commit()?;
                off
            }
        };
        let region = pool.region();
        match format_of(region.load_u64(off)?, off)? {
            Format::Known => {}
            Format::Other { found, supported } => return Err(Error::FormatVersion { found, supported }),
        }
        let guard = pool.claim(off)?.ok_or_else(|| Error::InUse { name: name.to_owned() })?;
        let names = WbTree::open_unnamed(pool, region.load_u64(off + field!(PmStore.keyspaces))?)?;
        let kept = WbTree::open_unnamed(pool, region.load_u64(off + field!(PmStore.kept))?)?;
        let numbers = read_kept(&kept)?.into_iter().map(|kept| kept.number);
        let last = last_number(region, off)?;
        let active = Arc::new(Active::new(last, WRITERS_MAX as usize, numbers));
        let inner = StoreInner {
            pool: pool.clone(),
            off,
            name: name.to_owned(),
            active,
            commits: Commits::new(lane, Left::by_earlier(region, off, last)?),
            names,
            kept,
            history: History { log: LogSlot::open(pool, off)?, ..History::default() },
            open: Mutex::default(),
            _guard: guard,
        };
        Ok(Store { inner: Arc::new(inner) })
    }

    /// The pool that the store lies in.
    pub fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    /// Adds a lane for commits; threads that often find none free do this by themselves. Returns whether the
    /// pool had one to spare. For tests.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] after the pool's device failed.
    #[doc(hidden)]
    pub fn add_lane(&self) -> Result<bool> {
        self.inner.commits.add_lane()
    }

    /// The store's name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Opens the keyspace of this name, or makes it, by a commit of its own.
    ///
    /// # Errors
    ///
    /// [`Error::Name`], and [`Error::Pool`] if the pool is full, damaged, or its device is.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        self.keyspace_with(name, Retention::None)
    }

    /// As [`keyspace`](Self::keyspace); a new one retains versions as given.
    ///
    /// # Errors
    ///
    /// As for [`keyspace`](Self::keyspace).
    pub fn keyspace_with(&self, name: &str, retention: Retention) -> Result<Keyspace> {
        check_name("keyspace", name)?;
        if let Some(keyspace) = self.find_keyspace(name)? {
            return Ok(keyspace);
        }
        self.check_writable()?;
        let inner = &self.inner;
        let mut lead = inner.commits.lead();
        if inner.names.get_pinned(name.as_bytes())?.is_none() {
            let tx = &mut lead.tx;
            let id_off = inner.off + field!(PmStore.last_keyspace);
            let last_id = tx.load(id_off)?;
            let expected = "a number that others can follow";
            let id = last_id.checked_add(1).ok_or_else(|| {
                corrupt("the id of the last keyspace", id_off, expected, format!("{last_id:#x}"))
            })?;
            tx.store(id_off, id)?;
            let off = Keyspace::create(tx, id, retention, inner.active.current_alone())?;
            inner.names.put(tx, name.as_bytes(), &[&off.to_ne_bytes()])?;
            tx.commit_and_begin()?;
            if let Retention::For(time) = retention {
                lead.left.get().walks.note_window(time);
            }
        }
        drop(lead);
        self.find_keyspace(name)?
            .ok_or_else(|| corrupt("the keyspaces", inner.off, "the one that was made", "none"))
    }

    /// The keyspace of this name, if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the store is damaged.
    pub fn find_keyspace(&self, name: &str) -> Result<Option<Keyspace>> {
        self.inner.find(name)
    }

    /// Drops a keyspace: its keys are gone at once, from all snapshots, and its space comes back step by
    /// step, with later commits or [`collect`](Self::collect). Returns whether there was one. Whoever holds
    /// its handle gets [`Error::KeyspaceDropped`].
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the pool is damaged, or its device is.
    pub fn drop_keyspace(&self, name: &str) -> Result<bool> {
        self.check_writable()?;
        let inner = &self.inner;
        let Some(keyspace) = self.find_keyspace(name)? else { return Ok(false) };
        let mut lead = inner.commits.lead();
        if keyspace.inner.check_there().is_err() {
            return Ok(false);
        }
        let tx = &mut lead.tx;
        tx.use_kept_space(KeptSpace::All);
        inner.names.remove(tx, name.as_bytes())?;
        let first_off = inner.off + field!(PmStore.dropped);
        let first = tx.load(first_off)?;
        tx.store(keyspace.inner.head + field!(PmKeyspace.next_dropped), first)?;
        tx.store(first_off, keyspace.inner.head)?;
        // Before the commit, so that nobody reads what may be freed after it.
        keyspace.inner.note_dropped(true);
        let outcome = tx.commit_and_begin();
        keyspace.inner.note_dropped(outcome.is_ok());
        outcome?;
        inner.open.lock().remove(name);
        lead.left.get().has_dropped = true;
        inner.history.accounts.note_dropped(keyspace.inner.id);
        inner.history.watches.wake();
        Ok(true)
    }

    /// Chooses which versions a keyspace retains from now on. Versions that it does not retain any more are
    /// collected step by step.
    ///
    /// # Errors
    ///
    /// [`Error::OtherStore`], [`Error::KeyspaceDropped`], and [`Error::Pool`] if the pool is damaged, or its
    /// device is.
    pub fn set_retention(&self, keyspace: &Keyspace, retention: Retention) -> Result<()> {
        self.check_writable()?;
        let inner = &self.inner;
        keyspace.check_store(inner)?;
        let mut lead = inner.commits.lead();
        keyspace.inner.check_there()?;
        let from = self.inner.active.current_alone();
        keyspace.inner.set_retention(&mut lead.tx, retention, from)?;
        lead.tx.commit_and_begin()?;
        keyspace.inner.note_retention(retention, from);
        inner.note_budget(retention);
        lead.left.get().walks.begin(from);
        Ok(())
    }

    /// The names of all keyspaces, in their order.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the store is damaged.
    pub fn keyspaces(&self) -> Result<Vec<String>> {
        self.inner.keyspace_names()
    }

    /// Begins a transaction at the snapshot that is current at its first operation. Costs nothing by itself.
    pub fn begin(&self) -> Transaction {
        Transaction::new(&self.inner, None)
    }

    /// Gives a key a value, by a transaction of its own; returns the number of the commit. Two threads that
    /// do so at once do not conflict: the one that is committed last wins.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::put`] and [`Transaction::commit`], but for conflicts.
    pub fn put(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<u64> {
        self.change(keyspace, key.as_ref(), Some(value.as_ref()))
    }

    /// Takes the value off a key, by a transaction of its own; returns the number of the commit.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn delete(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<u64> {
        self.change(keyspace, key.as_ref(), None)
    }

    /// Commits one change, which needs no snapshot: it conflicts with nobody.
    #[inline]
    fn change(&self, keyspace: &Keyspace, key: &[u8], value: Option<&[u8]>) -> Result<u64> {
        keyspace.check_store(&self.inner)?;
        check_lengths(key, value)?;
        self.check_writable()?;
        self.inner.commits.commit_change(&self.inner, Change { keyspace, key, value })
    }

    /// The value of a key in a snapshot that is current at some moment of the call. So gets are linearizable,
    /// together with commits and with snapshots that are taken: a get sees every commit that was acknowledged
    /// before it began, and nobody who begins after it has returned sees less. Two gets are of two snapshots:
    /// [`snapshot`](Self::snapshot) reads several keys of one. Registers nothing, and never waits.
    ///
    /// # Errors
    ///
    /// As for [`Snapshot::get`].
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        /// How often a reader tries without a registration.
        const TRIES: usize = 3;
        keyspace.check_store(&self.inner)?;
        let key = key.as_ref();
        for _ in 0..TRIES {
            let current = self.inner.active.current();
            let pin = self.inner.pool.pin_briefly();
            // After the pin: what is freed from here on stays readable.
            keyspace.inner.check_there()?;
            let Some(table) = keyspace.inner.table(&pin, key)? else { return Ok(None) };
            let region = self.inner.pool.region();
            let found = table.find(region, current)?;
            if found.is_sure {
                return match found.version {
                    Some(version) => read_value(region, version.value, table.off),
                    None => Ok(None),
                };
            }
        }
        // The key is being written again and again.
        self.snapshot().value(keyspace, key)
    }

    /// Begins a serializable transaction: its commit is refused, as a conflict, if any key that it has read,
    /// or any key in a range that it has walked over, was written after its snapshot, by whatever
    /// transaction. Costs memory for each key and range that it reads, and the commit looks at each again,
    /// under the lock of commits.
    ///
    /// Serializable transactions behave, among each other, as if they had run one after the other in the
    /// order of their numbers. Other transactions have snapshot isolation only: two of these may still read
    /// what the other writes.
    pub fn begin_serializable(&self) -> Transaction {
        Transaction::serializable(&self.inner)
    }

    /// Begins a transaction at an older snapshot. It may write, and conflicts with everything that was
    /// committed since.
    ///
    /// # Errors
    ///
    /// [`Error::OtherStore`] if the snapshot is one of another store.
    pub fn begin_at(&self, snapshot: &Snapshot) -> Result<Transaction> {
        if !Arc::ptr_eq(&snapshot.store, &self.inner) {
            return Err(Error::OtherStore { name: snapshot.store.name.clone() });
        }
        Ok(Transaction::new(&self.inner, Some(snapshot.clone())))
    }

    /// Runs `body` in a transaction and commits it; runs it again as long as it conflicts, after a pause that
    /// grows from attempt to attempt. Returns the value of `body` and the number of the commit.
    ///
    /// # Errors
    ///
    /// The error that `body` returns, and as for [`Transaction::commit`]; [`Error::Contended`] in place of a
    /// conflict.
    pub fn transact<T>(&self, mut body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<(T, u64)> {
        retry(|| {
            let mut tx = self.begin();
            let value = body(&mut tx)?;
            Ok((value, tx.commit()))
        })
    }

    /// The current snapshot. Never waits.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::current(&self.inner)
    }

    /// The store after the commit with this number, or after the last one before it. It can be read in full
    /// if it is current, kept, or open elsewhere; else in keyspaces that [retain](Retention) it.
    ///
    /// # Errors
    ///
    /// [`Error::SnapshotGone`] if the number is higher than the current one.
    pub fn at(&self, number: u64) -> Result<Snapshot> {
        // Nothing is collected meanwhile.
        let _lead = self.inner.commits.hold();
        let active = &self.inner.active;
        let current = active.current_alone();
        if number > current {
            return Err(Error::SnapshotGone { number, current });
        }
        if active.has_whole(number) {
            return Ok(Snapshot::of(&self.inner, number));
        }
        Ok(Snapshot::retained(&self.inner, number))
    }

    /// The store as it was at a time; for a time in the future, as it is now. The number of a commit is its
    /// time, so this is as [`at`](Self::at).
    ///
    /// # Errors
    ///
    /// None at present.
    pub fn at_time(&self, time: SystemTime) -> Result<Snapshot> {
        let number = unix_ns(time);
        let current = self.snapshot();
        if number >= current.number() { Ok(current) } else { self.at(number) }
    }

    /// The snapshot that is kept under this name.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchSnapshot`], and [`Error::Pool`] if the store is damaged.
    pub fn at_name(&self, name: &str) -> Result<Snapshot> {
        let _lead = self.inner.commits.hold();
        match self.inner.kept.get_pinned(&name_key(name))? {
            Some(value) => Ok(Snapshot::of(&self.inner, word(&value)?)),
            None => Err(Error::NoSuchSnapshot { name: name.to_owned() }),
        }
    }

    /// Keeps a snapshot in the pool under a name, so that it can be read until it is
    /// [deleted](Self::delete_kept). It has to be the current one, one that somebody has open since it was,
    /// one that is kept, or one that all keyspaces [retain](Retention). A keyspace retains no snapshot that
    /// is older than itself, or than its retention.
    ///
    /// # Errors
    ///
    /// [`Error::SnapshotGone`], [`Error::SnapshotExists`], [`Error::Name`], and [`Error::Pool`] if the pool
    /// is full, damaged, or its device is.
    pub fn keep(&self, number: u64, name: &str) -> Result<()> {
        check_name("snapshot", name)?;
        if self.keep_under(number, &name_key(name))? {
            return Ok(());
        }
        Err(Error::SnapshotExists { name: name.to_owned() })
    }

    /// Keeps a snapshot by its number alone; returns whether that is new.
    ///
    /// # Errors
    ///
    /// As for [`keep`](Self::keep).
    pub fn keep_number(&self, number: u64) -> Result<bool> {
        self.keep_under(number, &number_key(number))
    }

    fn keep_under(&self, number: u64, key: &[u8]) -> Result<bool> {
        self.check_writable()?;
        let inner = &self.inner;
        let mut lead = inner.commits.lead();
        let current = inner.active.current_alone();
        if !inner.active.has_whole(number) && !inner.all_retain(number)? {
            return Err(Error::SnapshotGone { number, current });
        }
        if inner.kept.get_pinned(key)?.is_some() {
            return Ok(false);
        }
        inner.kept.put(&mut lead.tx, key, &[&number.to_ne_bytes()])?;
        lead.tx.commit_and_begin()?;
        // Nothing was collected meanwhile.
        inner.active.keep(number);
        inner.history.accounts.note_kept(&inner.active, number);
        Ok(true)
    }

    /// The versions of a key that are still there, from the newest to the oldest. Which they are depends on
    /// the snapshots that are kept or open: without any, the newest, and now and then the one before it.
    ///
    /// # Errors
    ///
    /// As for [`Snapshot::get`].
    pub fn versions(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Vec<KeyVersion>> {
        keyspace.check_store(&self.inner)?;
        let pool = &self.inner.pool;
        // Slots of versions that nobody has registered may be reused at any time.
        let _lead = self.inner.commits.hold();
        let pin = pool.pin_briefly();
        keyspace.inner.check_there()?;
        let Some(table) = keyspace.inner.table(&pin, key.as_ref())? else { return Ok(Vec::new()) };
        let mut all = Vec::new();
        for version in table.versions(pool.region())? {
            if version.value != ValueWord::Collected {
                let value = read_value(pool.region(), version.value, table.off)?;
                all.push(KeyVersion { number: version.number, value });
            }
        }
        all.reverse();
        Ok(all)
    }

    /// Deletes a kept snapshot. Its readers can go on; its space comes back step by step, with later
    /// commits or [`collect`](Self::collect).
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchSnapshot`], and [`Error::Pool`] if the pool is damaged, or its device is.
    pub fn delete_kept(&self, name: &str) -> Result<()> {
        if self.delete_under(&name_key(name))? {
            return Ok(());
        }
        Err(Error::NoSuchSnapshot { name: name.to_owned() })
    }

    /// As [`delete_kept`](Self::delete_kept), for a snapshot that is kept by its number alone; returns
    /// whether there was one.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the pool is damaged, or its device is.
    pub fn delete_number(&self, number: u64) -> Result<bool> {
        self.delete_under(&number_key(number))
    }

    fn delete_under(&self, key: &[u8]) -> Result<bool> {
        self.check_writable()?;
        let inner = &self.inner;
        let mut lead = inner.commits.lead();
        let Some(number) = inner.kept.get_pinned(key)?.map(|value| word(&value)).transpose()? else {
            return Ok(false);
        };
        lead.tx.use_kept_space(KeptSpace::All);
        inner.kept.remove(&mut lead.tx, key)?;
        lead.tx.commit_and_begin()?;
        inner.active.forget(number);
        inner.history.accounts.renew(&inner.active);
        lead.left.get().walks.begin(inner.active.current_alone());
        Ok(true)
    }

    /// The kept snapshots, in the order of their names.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the store is damaged.
    pub fn kept(&self) -> Result<Vec<Kept>> {
        read_kept(&self.inner.kept)
    }

    /// The space that the store takes. Reads a few words in memory.
    ///
    /// The first call has the store count, which [`collect`](Self::collect), a
    /// [collector](Self::collector) and [`count_space`](Self::count_space) do step by step;
    /// [`Space::is_counted`] says whether that is finished. From then on every commit keeps the numbers
    /// right, which costs it a look at each value that it replaces. A kept snapshot that is deleted is taken
    /// off once another count has been made.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the store is damaged.
    pub fn space(&self) -> Result<Space> {
        self.ask_for_space();
        let inner = &self.inner;
        Ok(Space { log_bytes: inner.history.log.bytes(&inner.pool)?, ..inner.history.accounts.space(None) })
    }

    /// The space that a keyspace takes; see [`space`](Self::space).
    ///
    /// # Errors
    ///
    /// [`Error::OtherStore`], [`Error::KeyspaceDropped`].
    pub fn space_of(&self, keyspace: &Keyspace) -> Result<Space> {
        keyspace.check_store(&self.inner)?;
        self.ask_for_space();
        Ok(self.inner.history.accounts.space(Some(keyspace.inner.id)))
    }

    /// Goes on counting, in up to `tables` keys; returns whether more are left.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the store is damaged.
    pub fn count_space(&self, tables: usize) -> Result<bool> {
        self.ask_for_space();
        let _lead = self.inner.commits.hold();
        self.inner.count_on(tables)
    }

    fn ask_for_space(&self) {
        if !self.inner.history.accounts.is_on() {
            let _lead = self.inner.commits.hold();
            self.inner.history.accounts.begin(&self.inner.active);
        }
    }

    /// Collects what nobody needs any more: versions, in up to `tables` keys, past entries of the log, and
    /// keyspaces and stores that were dropped. Goes on with [counting](Self::space), and looks after the
    /// [limits](Self::set_limits). Returns whether there is more to do. Commits collect versions and dropped
    /// keyspaces by themselves, in small steps; a [collector](Self::collector) calls this.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the pool is damaged, or its device is.
    pub fn collect(&self, tables: usize) -> Result<bool> {
        self.check_writable()?;
        self.inner.collect(tables)
    }
}

fn name_key(name: &str) -> Vec<u8> {
    [&[1], name.as_bytes()].concat()
}

fn number_key(number: u64) -> Vec<u8> {
    [&[0][..], &number.to_be_bytes()].concat()
}

fn read_kept(tree: &WbTree) -> Result<Vec<Kept>> {
    let mut all = Vec::new();
    let mut walk = tree.iter();
    while let Some((key, value)) = walk.advance()? {
        let number = word(value)?;
        let name = key.strip_prefix(&[1]).map(|name| String::from_utf8_lossy(name).into_owned());
        all.push(Kept { number, name });
    }
    Ok(all)
}

impl StoreInner {
    /// As [`Store::collect`].
    pub(crate) fn collect(self: &Arc<StoreInner>, tables: usize) -> Result<bool> {
        let mut lead = self.commits.lead();
        self.active.current_alone();
        let Lead { tx, left, .. } = &mut lead;
        let mut more = left.get().collect(tx, self, tables)?;
        more |= lead.trim_log(self, 0)?;
        more |= self.count_on(tables)?;
        more |= lead.relieve_or_fail(self)?;
        more |= dropped::reclaim(&self.pool, &mut lead.tx, tables)?;
        Ok(more)
    }

    /// Whether all keyspaces still have all versions of a snapshot that has been. The caller keeps all lanes
    /// from committing, so that nothing is collected before the snapshot is kept.
    fn all_retain(self: &Arc<StoreInner>, number: u64) -> Result<bool> {
        let now = steady_unix_ns();
        let mut keyspaces = self.all_keyspaces()?.into_iter();
        Ok(number <= self.active.current() && keyspaces.all(|keyspace| keyspace.inner.retains(number, now)))
    }
}
