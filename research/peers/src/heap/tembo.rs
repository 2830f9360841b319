//! Tembo's heap.

use super::side::{HashTable, Side, bucket_of};
use crate::engines::Result;
use std::path::Path;
use std::sync::atomic::Ordering;
use tembo_heap::collections::{PHashMap, PMap};
use tembo_heap::{Error, Heap, Options, PArr, PRc, Persist, Plain, brand};
use tembo_pmem::Durability;
use tembo_pool::Pool;

/// An object of 64 bytes.
#[derive(Clone, Copy, Persist, Plain)]
#[repr(C)]
struct Line {
    words: [u64; 8],
}

/// An object of 64 bytes with a pointer in it.
#[derive(Persist)]
#[repr(C)]
struct Listed {
    words: [u64; 7],
    next: PRc<Listed>,
}

/// An entry of the hash table.
#[derive(Persist)]
#[repr(C)]
struct Entry {
    key: u64,
    value: u64,
    next: PRc<Entry>,
}

/// An object of 1 KiB with its head.
#[derive(Persist)]
#[repr(C)]
struct Large {
    next: PRc<Large>,
    words: [u64; 125],
}

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    lines: PArr<PRc<Line>>,
    elements: PArr<Line>,
    buckets: PArr<PRc<Entry>>,
    first: PRc<Listed>,
    large: PRc<Large>,
    map: PHashMap<u64, u64>,
    ordered: PMap<u64, u64>,
}

brand!(Measured);

/// An open heap.
pub(super) struct Tembo {
    heap: Heap<Measured, Root>,
    pool: Pool,
    buckets: u64,
}

type Tx<'a, 't> = &'a mut tembo_heap::Tx<'t, Measured>;

impl Tembo {
    /// Opens the heap, or makes it: with its tables if there are to be objects, and with all pages touched if
    /// it is to be prepared.
    pub(super) fn open(
        path: &Path,
        bytes: usize,
        objects: u64,
        buckets: u64,
        is_prepared: bool,
        counts: bool,
    ) -> Result<Tembo> {
        let options = Options::new().durability(Durability::Emulated).create(true);
        let options = options.initial_bytes(bytes as u64).count(counts);
        let is_new = !path.exists();
        let pool = Pool::open(path, &options)?;
        let heap = Heap::open_pool(pool.clone())?;
        let tembo = Tembo { heap, pool, buckets };
        if is_new && is_prepared {
            tembo.touch_pages()?;
        }
        if is_new && objects > 0 {
            tembo.make_tables(objects)?;
        }
        Ok(tembo)
    }

    fn touch_pages(&self) -> Result<()> {
        let region = self.pool.region();
        for page in (0..region.len()).step_by(4096) {
            // A store that changes nothing.
            region.words(page, 1)?[0].fetch_or(0, Ordering::Relaxed);
        }
        Ok(())
    }

    fn make_tables(&self, objects: u64) -> Result<()> {
        let count = usize::try_from(objects)?;
        self.heap.write(|tx, root| {
            let lines = tx.alloc_array(count, |_| PRc::null())?;
            tx.link_array(root.lines(), lines)
        })?;
        self.heap.write(|tx, root| {
            let elements = tx.alloc_array(count, |_| Line { words: [0; 8] })?;
            tx.link_array(root.elements(), elements)
        })?;
        let buckets = self.buckets as usize;
        self.heap.write(|tx, root| {
            let table = tx.alloc_array(buckets, |_| PRc::null())?;
            tx.link_array(root.buckets(), table)
        })?;
        for i in 0..count {
            self.heap.write(|tx, root| {
                let lines = tx.array(root.lines())?.expect("made above");
                let line = tx.alloc(Line { words: [0; 8] })?;
                tx.link(lines.at(i), line)
            })?;
        }
        Ok(())
    }

    /// Allocates `bytes` bytes in objects of 1 KiB, 16 in each transaction.
    pub(super) fn fill(&mut self, bytes: u64) -> Result<()> {
        for _ in 0..bytes / (16 * 1024) {
            self.heap.write(|tx, root| {
                for _ in 0..16 {
                    let object = tx.alloc(Large { next: PRc::null(), words: [0; 125] })?;
                    let first = tx.load(root.large())?;
                    tx.link(object.next(), first)?;
                    tx.link(root.large(), object)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Inserts a key into the ordered map.
    #[inline]
    pub(super) fn tree_insert(&mut self, key: u64, value: u64) -> Result<()> {
        Ok(self.heap.write(|tx, root| root.ordered().insert(tx, &key, value).map(drop))?)
    }

    /// The value of a key in the ordered map.
    #[inline]
    pub(super) fn tree_lookup(&mut self, key: u64) -> Result<Option<u64>> {
        Ok(self.heap.read(|tx, root| root.ordered().value(tx, &key))?)
    }

    pub(super) fn settings(&self) -> String {
        let region = self.pool.region();
        let instruction = region.flush_instruction().map_or("none".to_owned(), |i| i.to_string());
        format!(
            "durability {}: lines flushed with {instruction}, lines of the log written past the caches: {}; other options by default",
            region.domain(),
            region.streams_single_lines(),
        )
    }
}

#[inline(always)]
fn entry_slot<'t>(
    tx: &tembo_heap::ReadTx<'t, Measured>,
    root: tembo_heap::Obj<'t, Measured, Root>,
    bucket: u64,
) -> std::result::Result<tembo_heap::Ref<'t, Measured, PRc<Entry>>, Error> {
    Ok(tx.array(root.buckets())?.expect("made when the heap was").at(bucket as usize))
}

impl HashTable for Tembo {
    const NAME: &'static str = "Tembo";

    #[inline]
    fn insert(&mut self, key: u64, value: u64) -> Result<()> {
        let bucket = bucket_of(key, self.buckets);
        let is_new = self.heap.write(|tx, root| {
            let slot = entry_slot(tx, root, bucket)?;
            let first = tx.load(slot)?;
            let mut next = first;
            while let Some(entry) = next {
                if tx.get(entry.key())? == key {
                    return Ok(false);
                }
                next = tx.load(entry.next())?;
            }
            let entry = tx.alloc(Entry { key, value, next: PRc::null() })?;
            tx.link(entry.next(), first)?;
            tx.link(slot, entry)?;
            Ok(true)
        })?;
        if is_new { Ok(()) } else { Err("the key is there".into()) }
    }

    #[inline]
    fn update(&mut self, key: u64, value: u64) -> Result<()> {
        let bucket = bucket_of(key, self.buckets);
        let found = self.heap.write(|tx, root| {
            let mut next = tx.load(entry_slot(tx, root, bucket)?)?;
            while let Some(entry) = next {
                if tx.get(entry.key())? == key {
                    tx.set(entry.value(), value)?;
                    return Ok(true);
                }
                next = tx.load(entry.next())?;
            }
            Ok(false)
        })?;
        if found { Ok(()) } else { Err("no such key".into()) }
    }

    #[inline]
    fn remove(&mut self, key: u64) -> Result<()> {
        let bucket = bucket_of(key, self.buckets);
        let found = self.heap.write(|tx, root| {
            let mut slot = entry_slot(tx, root, bucket)?;
            while let Some(entry) = tx.load(slot)? {
                if tx.get(entry.key())? == key {
                    let next = tx.load(entry.next())?;
                    tx.link(slot, next)?;
                    return Ok(true);
                }
                slot = entry.next();
            }
            Ok(false)
        })?;
        if found { Ok(()) } else { Err("no such key".into()) }
    }

    #[inline]
    fn lookup(&mut self, key: u64) -> Result<Option<u64>> {
        let bucket = bucket_of(key, self.buckets);
        Ok(self.heap.read(|tx, root| {
            let mut next = tx.load(entry_slot(tx, root, bucket)?)?;
            while let Some(entry) = next {
                if tx.get(entry.key())? == key {
                    return tx.get(entry.value()).map(Some);
                }
                next = tx.load(entry.next())?;
            }
            Ok(None)
        })?)
    }
}

impl Side for Tembo {
    #[inline]
    fn empty(&mut self) -> Result<()> {
        Ok(self.heap.write(|_, _| Ok(()))?)
    }

    #[inline]
    fn write(&mut self, indexes: &[u32], word: u64) -> Result<()> {
        Ok(self.heap.write(|tx, root| {
            let lines = tx.array(root.lines())?.expect("made when the heap was");
            for index in indexes {
                let line = tx.load(lines.at(*index as usize))?.expect("made when the heap was");
                tx.set(*line, Line { words: [word; 8] })?;
            }
            Ok(())
        })?)
    }

    #[inline]
    fn write_element(&mut self, index: u32, word: u64) -> Result<()> {
        Ok(self.heap.write(|tx, root| {
            let elements = tx.array(root.elements())?.expect("made when the heap was");
            tx.set(elements.at(index as usize), Line { words: [word; 8] })
        })?)
    }

    fn read(&mut self, index: u32) -> Result<u64> {
        Ok(self.heap.read(|tx, root| {
            let lines = tx.array(root.lines())?.expect("made when the heap was");
            let line = tx.load(lines.at(index as usize))?.expect("made when the heap was");
            Ok(tx.get(*line)?.words[7])
        })?)
    }

    #[inline]
    fn push(&mut self, word: u64) -> Result<()> {
        Ok(self.heap.write(|tx: Tx<'_, '_>, root| {
            let listed = tx.alloc(Listed { words: [word; 7], next: PRc::null() })?;
            let first = tx.load(root.first())?;
            tx.link(listed.next(), first)?;
            tx.link(root.first(), listed)
        })?)
    }

    #[inline]
    fn replace(&mut self, index: u32, word: u64) -> Result<()> {
        Ok(self.heap.write(|tx, root| {
            let lines = tx.array(root.lines())?.expect("made when the heap was");
            let line = tx.alloc(Line { words: [word; 8] })?;
            tx.link(lines.at(index as usize), line)
        })?)
    }

    #[inline]
    fn map_insert(&mut self, key: u64, value: u64) -> Result<()> {
        Ok(self.heap.write(|tx, root| root.map().insert(tx, &key, value).map(drop))?)
    }

    #[inline]
    fn map_update(&mut self, key: u64, value: u64) -> Result<()> {
        Ok(self.heap.write(|tx, root| root.map().replace(tx, &key, value).map(drop))?)
    }

    #[inline]
    fn map_remove(&mut self, key: u64) -> Result<()> {
        let found = self.heap.write(|tx, root| root.map().remove(tx, &key))?;
        if found { Ok(()) } else { Err("no such key".into()) }
    }

    #[inline]
    fn map_lookup(&mut self, key: u64) -> Result<Option<u64>> {
        Ok(self.heap.read(|tx, root| root.map().value(tx, &key))?)
    }
}
