//! Keyspaces: named sets of keys, which transactions change together.

use crate::active::Active;
use crate::error::{Error, Result, corrupt};
use crate::layout::{KEYSPACE_FORMAT, MAX_NAME_BYTES, PmKeyspace, field};
use crate::retention::{Retention, window_start};
use crate::versions::Table;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tembo_index::WbTree;
use tembo_pool::{BriefPin, Pool, Tx};

/// A keyspace of a store: keys, in the order of their bytes, with their versions. Cheap to clone, and free to
/// be used by any thread.
///
/// Keys have 0 to 65,536 bytes, values 0 to 512 MiB.
#[derive(Clone)]
pub struct Keyspace {
    pub(crate) inner: Arc<KeyspaceInner>,
}

pub(crate) struct KeyspaceInner {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) index: WbTree,
    pub(crate) head: u64,
    /// The registry of snapshots that its store has and no other: it tells stores apart. None, for who only
    /// walks over a keyspace.
    pub(crate) store: Weak<Active>,
    is_dropped: AtomicBool,
    /// As `PmKeyspace` has them. Changed under the lock of commits.
    retention: AtomicU64,
    retained_from: AtomicU64,
    cut: AtomicU64,
}

impl std::fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyspace").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

impl Keyspace {
    /// Which versions it retains.
    pub fn retention(&self) -> Retention {
        self.inner.retention()
    }

    /// Its id, which no other keyspace of the store has or had.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Makes an empty keyspace; the caller notes its offset.
    pub(crate) fn create(tx: &mut Tx<'_>, id: u64, retention: Retention, from: u64) -> Result<u64> {
        let index = WbTree::create_unnamed(tx)?;
        let off = tx.alloc(size_of::<PmKeyspace>() as u64)?;
        tx.write_fresh_words(
            off,
            &[KEYSPACE_FORMAT, id, index.head(), 0],
            &[retention.encode(), from, 0, 0],
        )?;
        Ok(off)
    }

    /// The keyspace whose head lies at `off`.
    pub(crate) fn open(pool: &Pool, store: Weak<Active>, name: &str, off: u64) -> Result<Keyspace> {
        let region = pool.region();
        let format = region.load_u64(off)?;
        if format != KEYSPACE_FORMAT {
            return Err(corrupt(
                "the head of a keyspace",
                off,
                "the mark of a keyspace",
                format!("{format:#x}"),
            ));
        }
        let id = region.load_u64(off + field!(PmKeyspace.id))?;
        let index = WbTree::open_unnamed(pool, region.load_u64(off + field!(PmKeyspace.index))?)?;
        let word = region.load_u64(off + field!(PmKeyspace.retention))?;
        if Retention::decode(word).is_none() {
            return Err(corrupt(
                "the retention of a keyspace",
                off,
                "one that is known",
                format!("{word:#x}"),
            ));
        }
        let inner = KeyspaceInner {
            id,
            name: name.to_owned(),
            index,
            head: off,
            store,
            is_dropped: AtomicBool::new(false),
            retention: word.into(),
            retained_from: region.load_u64(off + field!(PmKeyspace.retained_from))?.into(),
            cut: region.load_u64(off + field!(PmKeyspace.cut))?.into(),
        };
        Ok(Keyspace { inner: Arc::new(inner) })
    }
}

impl KeyspaceInner {
    /// Refuses a keyspace that was dropped.
    #[inline]
    pub(crate) fn check_there(&self) -> Result<()> {
        if self.is_dropped.load(Ordering::Acquire) {
            return Err(Error::KeyspaceDropped { name: self.name.clone() });
        }
        Ok(())
    }

    pub(crate) fn retention(&self) -> Retention {
        Retention::decode(self.retention.load(Ordering::Relaxed)).unwrap_or_default()
    }

    /// Chooses what is retained from snapshot `from` on.
    pub(crate) fn set_retention(&self, tx: &mut Tx<'_>, retention: Retention, from: u64) -> Result<()> {
        tx.store(self.head + field!(PmKeyspace.retention), retention.encode())?;
        Ok(tx.store(self.head + field!(PmKeyspace.retained_from), from)?)
    }

    pub(crate) fn note_retention(&self, retention: Retention, from: u64) {
        self.retained_from.store(from, Ordering::Relaxed);
        self.retention.store(retention.encode(), Ordering::Release);
    }

    /// Versions that one with a lower number follows are not retained.
    pub(crate) fn cut(&self) -> u64 {
        self.cut.load(Ordering::Relaxed)
    }

    pub(crate) fn set_cut(&self, tx: &mut Tx<'_>, cut: u64) -> Result<()> {
        Ok(tx.store(self.head + field!(PmKeyspace.cut), cut)?)
    }

    /// Notes a cut that is durable. Before anything is collected by it.
    pub(crate) fn note_cut(&self, cut: u64) {
        self.cut.store(cut, Ordering::Release);
    }

    /// Whether all versions are there that a snapshot had, when it was opened at a moment.
    pub(crate) fn retains(&self, number: u64, at_unix_ns: u64) -> bool {
        let retention = self.retention();
        number >= self.retained_from.load(Ordering::Relaxed)
            && number >= self.cut.load(Ordering::Acquire)
            && match retention {
                Retention::Within(_) | Retention::All => true,
                Retention::For(time) => number >= window_start(time, at_unix_ns),
                Retention::Versions(_) | Retention::None => false,
            }
    }

    pub(crate) fn note_dropped(&self, is_dropped: bool) {
        self.is_dropped.store(is_dropped, Ordering::Release);
    }

    /// The version table of a key as the transaction sees it.
    #[inline]
    pub(crate) fn table_in(&self, tx: &Tx<'_>, key: &[u8]) -> Result<Option<Table>> {
        self.index.place_in(tx, key)?.map(Table::at).transpose()
    }

    /// The version table of a key; it stays readable as long as the pin lives.
    #[inline]
    pub(crate) fn table(&self, pin: &BriefPin<'_>, key: &[u8]) -> Result<Option<Table>> {
        self.index.place(pin, key)?.map(Table::at).transpose()
    }
}

/// Refuses names that are empty or too long.
pub(crate) fn check_name(what: &'static str, name: &str) -> Result<()> {
    if (1..=MAX_NAME_BYTES).contains(&name.len()) {
        return Ok(());
    }
    Err(Error::Name { what, bytes: name.len(), max_bytes: MAX_NAME_BYTES })
}
