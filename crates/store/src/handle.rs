//! Handles of an open store, and what all of them share.

use crate::active::Active;
use crate::commit_queue::Commits;
use crate::error::{Error, Result, corrupt};
use crate::history::History;
use crate::keyspace::Keyspace;
use crate::layout::{NUMBER_MAX, PmLast, WRITERS_MAX, field};
use crate::retention::Retention;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use tembo_index::WbTree;
use tembo_pmem::Region;
use tembo_pool::{OpenGuard, Pool};

/// A versioned, transactional store in a pool. Cheap to clone; all clones are one store, which any number of
/// threads may use.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<StoreInner>,
}

pub(crate) struct StoreInner {
    pub(crate) pool: Pool,
    pub(crate) off: u64,
    pub(crate) name: String,
    pub(crate) active: Arc<Active>,
    pub(crate) commits: Commits,
    pub(crate) names: WbTree,
    pub(crate) kept: WbTree,
    pub(crate) history: History,
    pub(crate) open: Mutex<HashMap<String, Keyspace>>,
    pub(crate) _guard: OpenGuard,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

/// A handle of a store that does not keep it open: for whoever lists the stores that others use.
#[derive(Clone)]
pub struct WeakStore(Weak<StoreInner>);

impl Store {
    /// A handle that does not keep the store open.
    pub fn downgrade(&self) -> WeakStore {
        WeakStore(Arc::downgrade(&self.inner))
    }
}

impl WeakStore {
    /// The store, if somebody has it open. A snapshot, a transaction and an iterator keep it open, too.
    pub fn upgrade(&self) -> Option<Store> {
        self.0.upgrade().map(|inner| Store { inner })
    }
}

impl std::fmt::Debug for WeakStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WeakStore").field("is_open", &(self.0.strong_count() > 0)).finish()
    }
}

impl StoreInner {
    /// Where a lane notes its last commit.
    #[inline]
    pub(crate) fn last_off(&self, lane: usize) -> u64 {
        debug_assert!((lane as u64) < WRITERS_MAX);
        last_off(self.off, lane as u64)
    }

    /// The keyspaces that are open.
    pub(crate) fn open_keyspaces(&self) -> Vec<Keyspace> {
        self.open.lock().values().cloned().collect()
    }

    /// The keyspace of this name, if there is one.
    pub(crate) fn find(self: &Arc<StoreInner>, name: &str) -> Result<Option<Keyspace>> {
        let mut open = self.open.lock();
        if let Some(keyspace) = open.get(name) {
            return Ok(Some(keyspace.clone()));
        }
        let Some(off) = self.names.get_pinned(name.as_bytes())?.map(|off| word(&off)).transpose()? else {
            return Ok(None);
        };
        let keyspace = Keyspace::open(&self.pool, Arc::downgrade(&self.active), name, off)?;
        self.note_budget(keyspace.retention());
        open.insert(name.to_owned(), keyspace.clone());
        Ok(Some(keyspace))
    }

    /// Has commits look after the budget of a keyspace, if it has one.
    pub(crate) fn note_budget(&self, retention: Retention) {
        if matches!(retention, Retention::Within(_)) {
            self.history.limits.watch_over();
        }
    }

    /// The names of all keyspaces, in their order.
    pub(crate) fn keyspace_names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let mut walk = self.names.iter();
        while let Some((name, _)) = walk.advance()? {
            names.push(String::from_utf8_lossy(name).into_owned());
        }
        Ok(names)
    }

    /// Goes on with the count of the space, if there is one, in up to `tables` tables; returns whether there
    /// are more. The caller keeps all lanes from committing.
    pub(crate) fn count_on(self: &Arc<StoreInner>, tables: usize) -> Result<bool> {
        self.history.accounts.go_on(self.pool.region(), || self.all_keyspaces(), tables)
    }

    /// The keyspaces that are there, in the order of their names.
    pub(crate) fn all_keyspaces(self: &Arc<StoreInner>) -> Result<Vec<Keyspace>> {
        let mut all = Vec::new();
        let mut walk = self.names.iter();
        while let Some((name, value)) = walk.advance()? {
            let name = String::from_utf8_lossy(name);
            all.push(Keyspace::open(&self.pool, Arc::downgrade(&self.active), &name, word(value)?)?);
        }
        Ok(all)
    }
}

impl Keyspace {
    /// Refuses a keyspace of another store, and one that was dropped.
    #[inline]
    pub(crate) fn check_store(&self, store: &Arc<StoreInner>) -> Result<()> {
        if !std::ptr::eq(self.inner.store.as_ptr(), Arc::as_ptr(&store.active)) {
            return Err(Error::OtherStore { name: self.inner.name.clone() });
        }
        self.inner.check_there()
    }
}

/// The number of the last commit: the highest that a lane has noted.
pub(crate) fn last_number(region: &Region, off: u64) -> Result<u64> {
    (0..WRITERS_MAX).try_fold(0, |last, lane| {
        let number_off = last_off(off, lane);
        let number = region.load_u64(number_off)?;
        if number > NUMBER_MAX {
            let what = "the number of a lane's last commit";
            return Err(corrupt(
                what,
                number_off,
                format!("at most {NUMBER_MAX:#x}"),
                format!("{number:#x}"),
            ));
        }
        Ok(last.max(number))
    })
}

/// Where a lane notes its last commit.
fn last_off(store: u64, lane: u64) -> u64 {
    store + field!(PmStore.last) + lane * size_of::<PmLast>() as u64
}

/// The word that a value of eight bytes is: a keyspace's offset, a snapshot's number.
pub(crate) fn word(value: &[u8]) -> Result<u64> {
    let bytes = <[u8; 8]>::try_from(value);
    bytes
        .map(u64::from_ne_bytes)
        .map_err(|_| corrupt("a keyspace or a kept snapshot", 0, "8 bytes", value.len()))
}
