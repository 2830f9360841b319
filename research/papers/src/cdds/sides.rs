//! The trees that are compared, behind one trait: words to words, as the paper's tree has them; ours take
//! them as byte strings.

use super::{Order, PaperCdds};
use crate::mem::RealMem;
use tembo_goals::Error;
use tembo_index::{VersionedTree, WbTree};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Lane, Pool};

/// Changes of a batch.
pub const BATCH: usize = 32;

/// A tree under comparison. A key is a number; its bytes are big-endian.
pub trait Side {
    /// Puts keys, each durable when this returns.
    ///
    /// # Errors
    ///
    /// When there is no room.
    fn put(&mut self, entries: &[(u64, u64)]) -> Result<(), Error>;

    /// Deletes keys that are there.
    ///
    /// # Errors
    ///
    /// When one is not there.
    fn delete(&mut self, keys: &[u64]) -> Result<(), Error>;

    /// The value of a key.
    ///
    /// # Errors
    ///
    /// When the tree is damaged.
    fn get(&self, key: u64) -> Result<Option<u64>, Error>;
}

/// Which trees there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SideKind {
    /// As in the paper, entries in order.
    PaperSorted,
    /// As in the paper, entries in no order.
    PaperUnsorted,
    /// Tembo's CDDS tree, a version for each change.
    Tembo,
    /// The same, [`BATCH`] changes a version.
    TemboBatches,
    /// The wB+-Tree of byte strings, which has no versions.
    WbTree,
}

impl SideKind {
    /// All of them, in the order of tables.
    pub const ALL: [SideKind; 5] = [
        SideKind::PaperSorted,
        SideKind::PaperUnsorted,
        SideKind::Tembo,
        SideKind::TemboBatches,
        SideKind::WbTree,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            SideKind::PaperSorted => "paper, sorted",
            SideKind::PaperUnsorted => "paper, unsorted",
            SideKind::Tembo => "tembo",
            SideKind::TemboBatches => "tembo, batches of 32",
            SideKind::WbTree => "tembo's wB+-Tree",
        }
    }

    /// An empty tree in a region of zeros.
    ///
    /// # Errors
    ///
    /// When the region is too small.
    pub fn create(self, region: Region) -> Result<Box<dyn Side>, Error> {
        let pool =
            |region| Pool::create_in(region, &Geometry { zone_chunks: 1 << 12, ..Geometry::default() });
        Ok(match self {
            SideKind::PaperSorted => Box::new(PaperCdds::create(RealMem::new(region), Order::Sorted)?),
            SideKind::PaperUnsorted => Box::new(PaperCdds::create(RealMem::new(region), Order::Unsorted)?),
            SideKind::Tembo => {
                Box::new(Tembo { tree: VersionedTree::create(&pool(region)?, "side")?, each: 1 })
            }
            SideKind::TemboBatches => {
                Box::new(Tembo { tree: VersionedTree::create(&pool(region)?, "side")?, each: BATCH })
            }
            SideKind::WbTree => {
                let pool = pool(region)?;
                let mut lane = pool.lane()?;
                let mut tx = lane.begin();
                let map = WbTree::create(&mut tx, "side")?;
                tx.commit()?;
                Box::new(Strings { map, lane })
            }
        })
    }

    /// Bytes of a region that has room for so many keys.
    pub fn room(keys: usize) -> u64 {
        (keys as u64 * 400 + (32 << 20)).next_multiple_of(1 << 20)
    }
}

impl Side for PaperCdds<RealMem> {
    fn put(&mut self, entries: &[(u64, u64)]) -> Result<(), Error> {
        entries.iter().try_for_each(|(key, value)| PaperCdds::put(self, *key, *value).map(drop))?;
        Ok(())
    }

    fn delete(&mut self, keys: &[u64]) -> Result<(), Error> {
        keys.iter().try_for_each(|key| was_there(PaperCdds::remove(self, *key)?))
    }

    fn get(&self, key: u64) -> Result<Option<u64>, Error> {
        Ok(PaperCdds::get(self, key))
    }
}

fn was_there(found: bool) -> Result<(), Error> {
    if found { Ok(()) } else { Err("a key that is to be deleted is not there".into()) }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

/// The CDDS tree, `each` changes a version.
struct Tembo {
    tree: VersionedTree,
    each: usize,
}

impl Side for Tembo {
    fn put(&mut self, entries: &[(u64, u64)]) -> Result<(), Error> {
        if self.each == 1 {
            entries.iter().try_for_each(|(key, value)| {
                self.tree.put(&key.to_be_bytes(), &value.to_le_bytes()).map(drop)
            })?;
            return Ok(());
        }
        for group in entries.chunks(self.each) {
            self.tree.batch(|batch| {
                group.iter().try_for_each(|(key, value)| {
                    batch.put(&key.to_be_bytes(), &value.to_le_bytes()).map(drop)
                })
            })?;
        }
        Ok(())
    }

    fn delete(&mut self, keys: &[u64]) -> Result<(), Error> {
        if self.each == 1 {
            return keys.iter().try_for_each(|key| was_there(self.tree.remove(&key.to_be_bytes())?));
        }
        for group in keys.chunks(self.each) {
            let all = self.tree.batch(|batch| {
                group.iter().try_fold(true, |all, key| Ok(batch.remove(&key.to_be_bytes())? && all))
            })?;
            was_there(all)?;
        }
        Ok(())
    }

    fn get(&self, key: u64) -> Result<Option<u64>, Error> {
        Ok(self.tree.reader().get(&key.to_be_bytes())?.map(|value| word(&value)))
    }
}

/// The wB+-Tree of byte strings, a commit for each change.
struct Strings {
    map: WbTree,
    lane: Lane,
}

impl Side for Strings {
    fn put(&mut self, entries: &[(u64, u64)]) -> Result<(), Error> {
        for (key, value) in entries {
            let mut tx = self.lane.begin();
            self.map.put(&mut tx, &key.to_be_bytes(), &[&value.to_le_bytes()])?;
            tx.commit()?;
        }
        Ok(())
    }

    fn delete(&mut self, keys: &[u64]) -> Result<(), Error> {
        for key in keys {
            let mut tx = self.lane.begin();
            was_there(self.map.remove(&mut tx, &key.to_be_bytes())?)?;
            tx.commit()?;
        }
        Ok(())
    }

    fn get(&self, key: u64) -> Result<Option<u64>, Error> {
        Ok(self.map.get_pinned(&key.to_be_bytes())?.map(|value| word(&value)))
    }
}
