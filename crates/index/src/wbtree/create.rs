//! The handle of a tree: creating and opening it, and the words of its header.

use super::layout::{COUNTING_FORMAT, FORMAT, MAP_BYTES, ROOT_KIND, TreeWord, field, put_word};
use super::node::{Pending, View};
use super::sums::Counting;
use crate::error::{Error, Result};
use crate::map_kind::{MapFormat, MapKind};
use crate::record::{write_record, write_record_of_words};
use tembo_pmem::Region;
use tembo_pool::{Pin, Pool, Tx};

/// An ordered map from byte strings to byte strings in a pool. Cheap to clone; all clones are one map.
///
/// Keys have 0 to 65,536 bytes, values 0 to 512 MiB. Two threads must not change the same tree at once
/// through separate transactions; through [`Writers`](crate::Writers), many may write
/// ([`concurrent`](Self::concurrent)). Any number of threads may read at any time.
///
/// ```
/// # fn main() -> Result<(), tembo_index::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("example.pool");
/// use tembo_index::WbTree;
/// use tembo_pool::{Options, Pool};
///
/// let mut options = Options::new();
/// options.create = true;
/// let pool = Pool::open(&path, &options)?;
/// let mut lane = pool.lane()?;
///
/// let mut tx = lane.begin();
/// let planets = WbTree::create(&mut tx, "planets")?;
/// planets.put(&mut tx, b"mars", &[b"red"])?;
/// planets.put(&mut tx, b"earth", &[b"bl", b"ue"])?;
/// tx.commit()?; // durable, and visible, from here on
///
/// let pin = pool.pin();
/// assert_eq!(planets.get(&pin, b"earth")?, Some(b"blue".as_slice()));
/// assert_eq!(planets.last()?.unwrap().key(), b"mars");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct WbTree {
    pool: Pool,
    header: u64,
    pub(crate) counting: Counting,
    /// Whether records may begin at any multiple of 8: not those of an unnamed tree, whose owner changes
    /// words of their values.
    packs_records: bool,
}

impl WbTree {
    /// Makes an empty tree and names it in the pool's root directory. If a tree has that name already, its
    /// blocks leak: check with [`open`](Self::open) first.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) when the pool is full, has no room for another root, or the name
    /// is not 1 to 40 bytes long. The transaction is then unchanged.
    pub fn create(tx: &mut Tx<'_>, name: &str) -> Result<WbTree> {
        WbTree::create_with(tx, name, Counting::Nothing)
    }

    pub(crate) fn create_with(tx: &mut Tx<'_>, name: &str, counting: Counting) -> Result<WbTree> {
        let before = tx.savepoint();
        let outcome = WbTree::write_header(tx, counting).and_then(|header| {
            tx.set_root(name, ROOT_KIND, header)?;
            Ok(WbTree { pool: tx.pool().clone(), header, counting, packs_records: true })
        });
        if outcome.is_err() {
            tx.rollback_to(before);
        }
        outcome
    }

    pub(crate) fn write_header(tx: &mut Tx<'_>, counting: Counting) -> Result<u64> {
        let mut image = [0; MAP_BYTES as usize];
        let format = if counting == Counting::Nothing { FORMAT } else { COUNTING_FORMAT };
        put_word(&mut image, field!(PmMap.format), format);
        put_word(&mut image, field!(PmMap.counting), counting.encode());
        let header = tx.alloc(MAP_BYTES)?;
        tx.write_fresh(header, &image)?;
        Ok(header)
    }

    /// The kind of its root in the pool's root directory.
    pub const ROOT_KIND: u32 = ROOT_KIND;

    /// The tree of this name, if there is one. Takes the same time for a tree of any size.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if the name belongs to something else, or the header is damaged.
    pub fn open(pool: &Pool, name: &str) -> Result<Option<WbTree>> {
        let Some(root) = pool.root(name)? else { return Ok(None) };
        if root.kind != ROOT_KIND {
            let (expected, found) = (ROOT_KIND, root.kind);
            return Err(tembo_pool::ErrorKind::RootKind { name: root.name, expected, found }.into());
        }
        if let MapFormat::Other { found, supported, .. } = MapKind::Plain.format_at(pool, root.off)? {
            return Err(Error::FormatVersion { found, supported });
        }
        Ok(Some(WbTree { packs_records: true, ..WbTree::at(pool, root.off)? }))
    }

    /// The tree whose head lies at `header`.
    pub(crate) fn at(pool: &Pool, header: u64) -> Result<WbTree> {
        let counting = Counting::of_head(pool, header)?;
        Ok(WbTree { pool: pool.clone(), header, counting, packs_records: false })
    }

    /// The names of all trees in a pool.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) when the pool's root directory is damaged.
    pub fn names(pool: &Pool) -> Result<Vec<String>> {
        let trees = pool.roots()?.into_iter().filter(|root| root.kind == ROOT_KIND);
        Ok(trees.map(|root| root.name).collect())
    }

    /// The pool that the tree lies in.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    #[inline(always)]
    pub(crate) fn region(&self) -> &Region {
        self.pool.region()
    }

    /// Writes a record of the tree into a fresh block.
    #[inline]
    pub(crate) fn write_record(
        &self,
        tx: &mut Tx<'_>,
        key: &[u8],
        value: &[&[u8]],
        value_bytes: u64,
    ) -> Result<u64> {
        let write = if self.packs_records { write_record_of_words } else { write_record };
        write(tx, key, value, value_bytes)
    }

    /// The tree as the transaction's writer sees it.
    #[inline(always)]
    pub(crate) fn pending<'t>(&self, tx: &'t Tx<'_>) -> Pending<'_, 't> {
        Pending { region: self.region(), words: tx.view() }
    }

    #[inline(always)]
    pub(crate) fn assert_pins(&self, pin: &Pin) {
        assert!(std::ptr::eq(pin.region(), self.region()), "a pin of another pool");
    }

    #[inline(always)]
    pub(crate) fn assert_writes(&self, tx: &Tx<'_>) {
        assert!(std::ptr::eq(tx.pool().region(), self.region()), "a transaction on another pool");
    }

    pub(crate) fn header_off(&self) -> u64 {
        self.header
    }

    #[inline(always)]
    pub(crate) fn root_off(&self) -> u64 {
        self.header + field!(PmMap.root)
    }

    pub(crate) fn doomed_off(&self) -> u64 {
        self.header + field!(PmMap.doomed)
    }

    /// The tree's root word.
    #[inline(always)]
    pub(crate) fn root<'m>(&self, view: impl View<'m>) -> Result<TreeWord> {
        Ok(TreeWord(view.load(self.root_off())?))
    }

    pub(crate) fn store_root(&self, tx: &mut Tx<'_>, tree: TreeWord) -> Result<()> {
        Ok(tx.store(self.root_off(), tree.0)?)
    }
}
