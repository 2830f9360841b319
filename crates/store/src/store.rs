//! The store: opening, and what all its users share.

use crate::active::Active;
use crate::commit::Commits;
use crate::error::{Error, Result, corrupt};
use crate::keyspace::{Keyspace, check_name};
use crate::layout::{PmKept, PmStore, ROOT_KIND, STORE_FORMAT, field};
use crate::snapshot::{Kept, Snapshot};
use crate::transaction::Transaction;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tembo_index::WbTree;
use tembo_pool::{Claim, Pool};

/// How often, and how long, [`Store::transact`] tries.
const ATTEMPTS_MAX: u32 = 1000;
const BACK_OFF_MAX: Duration = Duration::from_millis(5);

/// A versioned, transactional store in a pool. Cheap to clone; all clones are one store. Free to be used by any number of threads.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<StoreInner>,
}

pub(crate) struct StoreInner {
    pub(crate) pool: Pool,
    pub(crate) off: u64,
    pub(crate) name: String,
    pub(crate) active: Active,
    pub(crate) commits: Commits,
    pub(crate) names: WbTree,
    pub(crate) kept: WbTree,
    open: Mutex<HashMap<String, Keyspace>>,
    _claim: Claim,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

impl Store {
    /// The kind of a store's root in the pool's directory.
    pub const ROOT_KIND: u32 = ROOT_KIND;

    /// Opens the store of this name in a pool, or makes it. Takes the same time for a store of any size, and a little for each kept snapshot.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] if it is open in this process, [`Error::FormatVersion`], and [`Error::Pool`] if the name
    /// belongs to something else, the pool has no lane left, or is damaged.
    pub fn open(pool: &Pool, name: &str) -> Result<Store> {
        let mut lane = pool.lane()?;
        let off = match pool.root(name)? {
            Some(root) if root.kind == ROOT_KIND => root.off,
            Some(root) => {
                let (expected, found) = (ROOT_KIND, root.kind);
                return Err(tembo_pool::Error::RootKind { name: root.name, expected, found }.into());
            }
            None => {
                let mut tx = lane.begin();
                let (names, kept) = (WbTree::create_unnamed(&mut tx)?, WbTree::create_unnamed(&mut tx)?);
                let off = tx.alloc(size_of::<PmStore>() as u64)?;
                tx.write_fresh_words(off, &[STORE_FORMAT, 0, 0, names.head(), kept.head()], &[0; 3])?;
                tx.set_root(name, ROOT_KIND, off)?;
                tx.commit()?;
                off
            }
        };
        let region = pool.region();
        check_format(region.load_u64(off)?, off)?;
        let claim = pool.claim(off)?.ok_or_else(|| Error::InUse { name: name.to_owned() })?;
        let names = WbTree::open_unnamed(pool, region.load_u64(off + field!(PmStore.keyspaces))?)?;
        let kept = WbTree::open_unnamed(pool, region.load_u64(off + field!(PmStore.kept))?)?;
        let numbers = read_kept(&kept)?.into_iter().map(|kept| kept.number);
        let active = Active::new(region.load_u64(off + field!(PmStore.current))?, numbers);
        let inner = StoreInner {
            pool: pool.clone(),
            off,
            name: name.to_owned(),
            active,
            commits: Commits::new(lane),
            names,
            kept,
            open: Mutex::default(),
            _claim: claim,
        };
        Ok(Store { inner: Arc::new(inner) })
    }

    /// The pool that the store lies in.
    pub fn pool(&self) -> &Pool {
        &self.inner.pool
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
        check_name("keyspace", name)?;
        if let Some(keyspace) = self.find_keyspace(name)? {
            return Ok(keyspace);
        }
        let inner = &self.inner;
        let mut leader = inner.commits.lead();
        if inner.names.get_pinned(name.as_bytes())?.is_none() {
            let mut tx = leader.lane.begin();
            let id_off = inner.off + field!(PmStore.last_keyspace);
            let id = tx.load(id_off)? + 1;
            tx.store(id_off, id)?;
            let off = Keyspace::create(&mut tx, id)?;
            inner.names.put(&mut tx, name.as_bytes(), &[&off.to_ne_bytes()])?;
            tx.commit()?;
        }
        drop(leader);
        self.find_keyspace(name)?.ok_or_else(|| corrupt("the keyspaces", inner.off, "the one that was made", "none"))
    }

    /// The keyspace of this name, if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the store is damaged.
    pub fn find_keyspace(&self, name: &str) -> Result<Option<Keyspace>> {
        let inner = &self.inner;
        let mut open = inner.open.lock();
        if let Some(keyspace) = open.get(name) {
            return Ok(Some(keyspace.clone()));
        }
        let Some(off) = inner.names.get_pinned(name.as_bytes())?.map(|off| offset(&off)).transpose()? else {
            return Ok(None);
        };
        let keyspace = Keyspace::open(&inner.pool, Arc::downgrade(inner), name, off)?;
        open.insert(name.to_owned(), keyspace.clone());
        Ok(Some(keyspace))
    }

    /// The names of all keyspaces, in their order.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the store is damaged.
    pub fn keyspaces(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let mut walk = self.inner.names.iter();
        while let Some((name, _)) = walk.advance()? {
            names.push(String::from_utf8_lossy(name).into_owned());
        }
        Ok(names)
    }

    /// Begins a transaction at the snapshot that is current at its first operation. Costs nothing by itself.
    pub fn begin(&self) -> Transaction {
        Transaction::new(&self.inner, None)
    }

    /// Begins a transaction at an older snapshot. It may write, and conflicts with everything that was committed since.
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

    /// Runs `body` in a transaction and commits it; runs it again as long as it conflicts, after a pause that grows from attempt to attempt.
    /// Returns the value of `body` and the number of the commit.
    ///
    /// # Errors
    ///
    /// What `body` returns, and as for [`Transaction::commit`]; [`Error::Contended`] in place of a conflict.
    pub fn transact<T>(&self, mut body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<(T, u64)> {
        let start = Instant::now();
        for attempt in 1.. {
            let mut tx = self.begin();
            let value = body(&mut tx)?;
            match tx.commit() {
                Ok(number) => return Ok((value, number)),
                Err(e) if e.is_conflict() && attempt < ATTEMPTS_MAX => pause(attempt),
                Err(e) if e.is_conflict() => {
                    return Err(Error::Contended { attempts: attempt, within: start.elapsed(), last: Box::new(e) });
                }
                Err(e) => return Err(e),
            }
        }
        unreachable!("the last attempt returns")
    }

    /// The current snapshot. Never waits.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::current(&self.inner)
    }

    /// The snapshot of this number, if it is the current one or kept.
    ///
    /// # Errors
    ///
    /// [`Error::SnapshotGone`].
    pub fn at(&self, number: u64) -> Result<Snapshot> {
        let current = self.snapshot();
        if current.number() == number {
            return Ok(current);
        }
        // Under the lock of commits nothing is collected.
        let _leader = self.inner.commits.lead();
        if !self.inner.active.is_kept(number) {
            return Err(Error::SnapshotGone { number, current: current.number() });
        }
        Ok(Snapshot::of(&self.inner, number))
    }

    /// The snapshot that is kept under this name.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchSnapshot`], and [`Error::Pool`] if the store is damaged.
    pub fn at_name(&self, name: &str) -> Result<Snapshot> {
        let _leader = self.inner.commits.lead();
        match self.inner.kept.get_pinned(&name_key(name))? {
            Some(value) => Ok(Snapshot::of(&self.inner, decode_kept(&value)?.0)),
            None => Err(Error::NoSuchSnapshot { name: name.to_owned() }),
        }
    }

    /// Keeps a snapshot in the pool under a name, so that it can be read until it is [deleted](Self::delete_kept). It has to be the current one,
    /// one that somebody has open, or one that is kept.
    ///
    /// # Errors
    ///
    /// [`Error::SnapshotGone`], [`Error::SnapshotExists`], [`Error::Name`], and [`Error::Pool`] if the pool is full, damaged, or its device is.
    pub fn keep(&self, number: u64, name: &str) -> Result<()> {
        check_name("snapshot", name)?;
        let inner = &self.inner;
        let mut leader = inner.commits.lead();
        if !inner.active.needed().is_among(number) {
            return Err(Error::SnapshotGone { number, current: inner.active.current() });
        }
        if inner.kept.get_pinned(&name_key(name))?.is_some() {
            return Err(Error::SnapshotExists { name: name.to_owned() });
        }
        let mut tx = leader.lane.begin();
        let time = if number == inner.active.current() { tx.load(inner.off + field!(PmStore.time_unix_ns))? } else { 0 };
        inner.kept.put(&mut tx, &name_key(name), &[&number.to_ne_bytes(), &time.to_ne_bytes()])?;
        // Before the commit, so that a crash of this process alone can lose it, and nothing else.
        inner.active.keep(number);
        tx.commit().inspect_err(|_| inner.active.forget(number))?;
        Ok(())
    }

    /// Deletes a kept snapshot. Whoever reads it goes on; its space comes back step by step.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchSnapshot`], and [`Error::Pool`] if the pool is damaged, or its device is.
    pub fn delete_kept(&self, name: &str) -> Result<()> {
        let inner = &self.inner;
        let mut leader = inner.commits.lead();
        let Some(number) = inner.kept.get_pinned(&name_key(name))?.map(|value| decode_kept(&value)).transpose()? else {
            return Err(Error::NoSuchSnapshot { name: name.to_owned() });
        };
        let mut tx = leader.lane.begin();
        inner.kept.remove(&mut tx, &name_key(name))?;
        tx.commit()?;
        inner.active.forget(number.0);
        leader.walk_anew();
        Ok(())
    }

    /// The kept snapshots, by their names.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the store is damaged.
    pub fn kept(&self) -> Result<Vec<Kept>> {
        read_kept(&self.inner.kept)
    }

    /// Collects versions that nobody needs any more, in up to `tables` keys; returns whether more are waiting. Commits do this by themselves.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the pool is damaged, or its device is.
    pub fn collect(&self, tables: usize) -> Result<bool> {
        self.inner.commits.lead().collect(&self.inner, tables)
    }
}

fn check_format(word: u64, off: u64) -> Result<()> {
    const VERSION: u64 = 0xFF << 56;
    if word == STORE_FORMAT {
        return Ok(());
    }
    if (word ^ STORE_FORMAT) & !VERSION == 0 {
        return Err(Error::FormatVersion { found: word >> 56, supported: STORE_FORMAT >> 56 });
    }
    Err(corrupt("the head of a store", off, "the mark of a store", format!("{word:#x}")))
}

fn name_key(name: &str) -> Vec<u8> {
    [&[1], name.as_bytes()].concat()
}

/// The offset that a value of eight bytes is.
fn offset(value: &[u8]) -> Result<u64> {
    let bytes = <[u8; 8]>::try_from(value);
    bytes.map(u64::from_ne_bytes).map_err(|_| corrupt("a keyspace's entry", 0, "8 bytes", value.len()))
}

/// Number and time of a kept snapshot.
fn decode_kept(value: &[u8]) -> Result<(u64, u64)> {
    const { assert!(size_of::<PmKept>() == 16) };
    match <[u8; 16]>::try_from(value) {
        Ok(bytes) => {
            let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
            Ok((word(0), word(8)))
        }
        Err(_) => Err(corrupt("a kept snapshot", 0, "16 bytes", value.len())),
    }
}

fn read_kept(tree: &WbTree) -> Result<Vec<Kept>> {
    let mut all = Vec::new();
    let mut walk = tree.iter();
    while let Some((key, value)) = walk.advance()? {
        let (number, time_unix_ns) = decode_kept(value)?;
        let name = key.strip_prefix(&[1]).map(|name| String::from_utf8_lossy(name).into_owned());
        all.push(Kept { number, name, time_unix_ns });
    }
    Ok(all)
}

/// Waits before the next attempt: not at all at first, then up to 5 ms.
fn pause(attempt: u32) {
    if attempt < 4 {
        return std::thread::yield_now();
    }
    // Threads that conflicted with each other do not wait for the same time.
    let spread = tembo_sync::thread_number() as u32 % 7 + 1;
    let time = Duration::from_micros(u64::from(spread) << attempt.min(12));
    std::thread::sleep(time.min(BACK_OFF_MAX));
}

impl StoreInner {
    /// The keyspaces that are there, by their heads.
    pub(crate) fn all_keyspaces(self: &Arc<StoreInner>) -> Result<Vec<(u64, Keyspace)>> {
        let mut all = Vec::new();
        let mut walk = self.names.iter();
        while let Some((name, value)) = walk.advance()? {
            let off = offset(value)?;
            let name = String::from_utf8_lossy(name);
            all.push((off, Keyspace::open(&self.pool, Arc::downgrade(self), &name, off)?));
        }
        Ok(all)
    }
}
