//! The handle of a tree: creating and opening it.

use super::garbage::Garbage;
use super::layout::{
    FORMAT, HEADER_BYTES, LEAF_KIND, NODE_BYTES, ROOT_KIND, last_present_off, last_value_off, root_off,
};
use super::node::simd::Best;
use super::node::{Exchanged, Link, Word};
use crate::error::{Error, Result, corrupt};
use crate::map_kind::{MapFormat, MapKind};
use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use tembo_pmem::Region;
use tembo_pool::{Lane, OpenGuard, Pool, Tx};
use tembo_sync::Bias;

/// An ordered map from 8-byte keys to 8-byte values in a pool, for any number of threads. Cheap to clone;
/// all clones are one map.
///
/// Every change is durable when the call returns, and costs one line and one fence (except for divisions of
/// nodes, about one in 80 insertions). It is a transaction of its own. For changes that belong together, and
/// for keys and values of other sizes, there is [`WbTree`](crate::WbTree). Lookups never wait.
///
/// # Threads
///
/// Until a second thread changes something, the first has the locks to itself, which saves a tenth to a fifth
/// of the time of a change. From then on threads share the locks as long as the handle and its clones live. A
/// program that fills a map with one thread and then writes with another can reopen it in between, if that
/// matters.
///
/// The map has one of the pool's lanes as long as it is open.
///
/// A change takes effect between its call and its return, and is visible to every thread that learns of it
/// from the thread that made it. Threads that exchange no message need a fence: if two threads each change
/// one key and then look up the other's, both may find the old value, as with atomics that are not
/// sequentially consistent.
///
/// A [`scan`](Self::scan) reads its records as of one moment; [`range`](Self::range), [`first`](Self::first),
/// [`last`](Self::last) and [`count`](Self::count) use scans. A scan starts again if writers change its
/// records meanwhile. After some tries it makes writers wait, and waits itself for those in the middle of a
/// change.
///
/// Keys are ordered as integers. Byte strings of 8 bytes keep their order if they are converted by
/// `u64::from_be_bytes`.
///
/// ```
/// # fn main() -> Result<(), tembo_index::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("example.pool");
/// use tembo_index::U64Tree;
/// use tembo_pool::{Options, Pool};
///
/// let mut options = Options::new();
/// options.create = true;
/// let pool = Pool::open(&path, &options)?;
/// let squares = U64Tree::create(&pool, "squares")?;
/// std::thread::scope(|scope| {
///     for start in [0, 1] {
///         let squares = &squares;
///         scope.spawn(move || (start..100).step_by(2).try_for_each(|i| squares.put(i, i * i).map(drop)));
///     }
/// });
/// assert_eq!(squares.get(12)?, Some(144));
/// assert_eq!(squares.remove(12)?, Some(144));
/// assert_eq!(squares.range(10..).next().transpose()?, Some((10, 100)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct U64Tree {
    pub(super) tree: Arc<Tree>,
}

/// The state that the clones of a handle share.
pub(super) struct Tree {
    pub(super) pool: Pool,
    pub(super) claim: OpenGuard,
    pub(super) header: u64,
    pub(super) best: Best,
    /// The bias of the leaf locks.
    pub(super) bias: Bias,
    pub(super) root: Word,
    /// The durable value of the largest key.
    pub(super) last: Exchanged<Option<u64>>,
    /// Held while the largest key's record is changed.
    pub(super) last_lock: CachePadded<Mutex<()>>,
    /// The lock of structure changes.
    pub(super) structure: CachePadded<RwLock<()>>,
    /// The lane of divisions and joins; `None` in a pool that is open for reading only.
    pub(super) lane: CachePadded<Mutex<Option<Lane>>>,
    pub(super) garbage: CachePadded<Garbage>,
}

impl U64Tree {
    /// Makes an empty tree and names it in the pool's root directory; one transaction, durable on return.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] if the name is taken; [`Error::Pool`] when the pool is full, has no room for
    /// another root or no lane left, or the name is not 1 to 40 bytes long.
    pub fn create(pool: &Pool, name: &str) -> Result<U64Tree> {
        let mut lane = pool.lane()?;
        if pool.root(name)?.is_some() {
            return Err(Error::Exists { name: name.to_owned() });
        }
        let mut tx = lane.begin();
        let header = tx.alloc_zeroed(HEADER_BYTES)?;
        let leaf = tx.alloc_zeroed(NODE_BYTES)?;
        write_words(&mut tx, header, &[FORMAT, leaf])?;
        // I5: no record covers a leaf, not even this one.
        pool.region().store_u64(leaf, LEAF_KIND)?;
        pool.region().flush(leaf, 8);
        // PERSIST(I5): the leaf is durable before the record that links it.
        pool.region().fence().map_err(tembo_pool::Error::from)?;
        tx.set_root(name, ROOT_KIND, header)?;
        tx.commit()?;
        U64Tree::start(pool, header, Some(lane))
    }

    /// The kind of the tree's root in the pool's root directory.
    pub const ROOT_KIND: u32 = ROOT_KIND;

    /// The tree of this name, if there is one. Takes the same time for a tree of any size. A tree is opened
    /// once at a time: clone the handle to share it.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] if it is open already; [`Error::Pool`] if the name belongs to something else, the
    /// header is damaged, or no lane is left.
    pub fn open(pool: &Pool, name: &str) -> Result<Option<U64Tree>> {
        let Some(root) = pool.root(name)? else { return Ok(None) };
        if root.kind != ROOT_KIND {
            let (expected, found) = (ROOT_KIND, root.kind);
            return Err(tembo_pool::ErrorKind::RootKind { name: root.name, expected, found }.into());
        }
        let lane = if pool.is_read_only() { None } else { Some(pool.lane()?) };
        U64Tree::start(pool, root.off, lane).map(Some)
    }

    /// The names of all such trees in a pool.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] when the pool's root directory is damaged.
    pub fn names(pool: &Pool) -> Result<Vec<String>> {
        let trees = pool.roots()?.into_iter().filter(|root| root.kind == ROOT_KIND);
        Ok(trees.map(|root| root.name).collect())
    }

    fn start(pool: &Pool, header: u64, lane: Option<Lane>) -> Result<U64Tree> {
        let region = pool.region();
        if let MapFormat::Other { found, supported, .. } = MapKind::Fixed.format_at(pool, header)? {
            return Err(Error::FormatVersion { found, supported });
        }
        let Some(claim) = pool.claim(header)? else { return Err(Error::InUse) };
        let root = region.load_u64(root_off(header))?;
        if root == 0 || root & 63 != 0 {
            return Err(corrupt("the root of a tree", root_off(header), "the offset of a node", root));
        }
        let tree = Tree {
            pool: pool.clone(),
            claim,
            header,
            best: Best::find(pool.region()),
            bias: Bias::default(),
            root: Word::new(Link::cold(root)),
            last: Exchanged::new(Some(load_last(region, header)?)),
            last_lock: CachePadded::new(Mutex::new(())),
            structure: CachePadded::new(RwLock::new(())),
            lane: CachePadded::new(Mutex::new(lane)),
            garbage: CachePadded::default(),
        };
        Ok(U64Tree { tree: Arc::new(tree) })
    }

    /// The pool that the tree lies in.
    pub fn pool(&self) -> &Pool {
        &self.tree.pool
    }
}

impl std::fmt::Debug for U64Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("U64Tree").field("header", &self.tree.header).finish_non_exhaustive()
    }
}

/// The record of the largest key, on media.
pub(super) fn load_last(region: &Region, header: u64) -> Result<Option<u64>> {
    match region.load_u64(last_present_off(header))? {
        0 => Ok(None),
        1 => Ok(Some(region.load_u64(last_value_off(header))?)),
        found => Err(corrupt("a tree's last record", last_present_off(header), "0 or 1", found)),
    }
}

/// Writes words to the start of a block of the transaction.
pub(super) fn write_words(tx: &mut Tx<'_>, off: u64, words: &[u64]) -> Result<()> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    Ok(tx.write_fresh(off, &bytes)?)
}

impl Tree {
    #[inline(always)]
    pub(super) fn region(&self) -> &Region {
        self.pool.region()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        Link::drop_tree(&mut self.root);
    }
}
