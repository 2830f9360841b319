//! Copies of heaps in other pools, with shared objects: every pointer of the copy leads to the copy of its
//! target. The types are from the heap's own description.
//!
//! # Order
//!
//! 1. Check the heap, so that each pointer leads to an object of its type.
//! 2. Walk from the root along strong pointers, number the objects, and count the pointers to each.
//! 3. Make each object in the other pool, with null pointers.
//! 4. Store the pointers, and weak ones to objects that were reached. Then give the heap its name.
//!
//! Objects that are dead, that only handles kept alive, or that lie in a circle to which nothing leads, are
//! not reached. The memory grows with the number of objects.

use crate::check::{check_beside_unknown, find, is_migrating};
use crate::error::{ErrorKind, Result, corrupt};
use crate::layout::{
    Counts, Kind, LINE, MAGIC, OBJECT_HEAD_BYTES, PmHeap, PmType, ROOT_KIND, ROOT_NAME, array_head_bytes,
    is_tagged, kind_off, tagged_object, value_off,
};
use crate::objects::type_info::{PointerKind, TypeInfo};
use crate::objects::types::{Types, for_each_pointer};
use std::collections::HashMap;
use tembo_pmem::{Region, offset_of};
use tembo_pool::{Pool, Tx};

/// Objects that one record makes, and words after which there are fewer.
const GROUP_OBJECTS: usize = 64;
const GROUP_WORDS: usize = 128 << 10;

/// The numbers of objects, by their offsets.
type Numbers = HashMap<u64, usize, foldhash::fast::FixedState>;

/// Copies the heap of a pool into another one, which has none. `note` gets the number of copied objects. No
/// thread may write to the heap meanwhile.
///
/// # Errors
///
/// [`ErrorKind::NotAHeap`], [`ErrorKind::Migrating`], corruption, and those of commits. After an error, the
/// space of the unfinished copy is lost in the other pool.
pub fn copy(from: &Pool, to: &Pool, mut note: impl FnMut(u64)) -> Result<()> {
    if to.root(ROOT_NAME)?.is_some() {
        return Err(ErrorKind::InUse.into());
    }
    let mut marks = from.marks()?;
    check_beside_unknown(from, &mut marks)?;
    drop(marks);
    let source = Source::open(from)?;
    let reached = source.reach()?;
    let mut lane = to.lane()?;
    let mut tx = lane.begin();
    let mut copies = Vec::with_capacity(reached.objects.len());
    let (mut words, mut noted) = (0, 0);
    for (number, object) in reached.objects.iter().enumerate() {
        let image = source.image(*object)?;
        words += image.words.len();
        copies.push(image.make(&mut tx, reached.counts[number])?);
        if copies.len().is_multiple_of(GROUP_OBJECTS) || words >= GROUP_WORDS {
            tx.commit_and_begin()?;
            note((copies.len() - noted) as u64);
            (words, noted) = (0, copies.len());
        }
    }
    tx.commit_and_begin()?;
    note((copies.len() - noted) as u64);
    for (number, object) in reached.objects.iter().enumerate() {
        for ObjectPointer { at, target, .. } in source.image(*object)?.leads {
            if let Some(target) = reached.numbers.get(&target) {
                tx.store(words_off(copies[number], at), copies[*target])?;
            }
        }
        if (number + 1).is_multiple_of(GROUP_OBJECTS) {
            tx.commit_and_begin()?;
        }
    }
    source.copy_head(to, &mut tx, copies[0])?;
    Ok(tx.commit()?)
}

/// Whether the heaps of two pools are the same but for the places of objects: types, values, lengths of
/// arrays, and which pointers lead to the same object. Objects to which nothing leads do not count.
///
/// # Errors
///
/// As for [`check_beside_unknown`].
pub fn are_same(one: &Pool, other: &Pool) -> Result<bool> {
    for pool in [one, other] {
        let mut marks = pool.marks()?;
        check_beside_unknown(pool, &mut marks)?;
    }
    let (a, b) = (Source::open(one)?, Source::open(other)?);
    let (ours, theirs) = (a.reach()?, b.reach()?);
    // Walks of equal heaps come to their objects in the same order.
    if ours.objects.len() != theirs.objects.len() || ours.counts != theirs.counts {
        return Ok(false);
    }
    if a.generation()? != b.generation()? || !a.types.iter().eq(b.types.iter()) {
        return Ok(false);
    }
    let number = |reached: &Reached, lead: &ObjectPointer| {
        (lead.at, lead.kind, reached.numbers.get(&lead.target).copied())
    };
    for (ours_off, theirs_off) in ours.objects.iter().zip(&theirs.objects) {
        let (image, copy) = (a.image(*ours_off)?, b.image(*theirs_off)?);
        // A weak pointer to a dead object is as good as a null one.
        let leads = image.leads.iter().map(|lead| number(&ours, lead)).filter(|(.., to)| to.is_some());
        let copied = copy.leads.iter().map(|lead| number(&theirs, lead)).filter(|(.., to)| to.is_some());
        if image.kind != copy.kind || image.words != copy.words || !leads.eq(copied) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Where the word with this number of an object's image lies.
fn words_off(object: u64, at: usize) -> u64 {
    value_off(object) + 8 * at as u64
}

/// A heap that is read.
struct Source<'s> {
    region: &'s Region,
    types: Types,
    off: u64,
}

/// The objects that strong pointers lead to from the root, which is the first.
struct Reached {
    objects: Vec<u64>,
    numbers: Numbers,
    /// The pointers to each.
    counts: Vec<Counts>,
}

/// A pointer of an object that is not null.
#[derive(Debug, Clone, Copy)]
struct ObjectPointer {
    /// The number of its word.
    at: usize,
    kind: PointerKind,
    target: u64,
}

/// An object: all after its head, with pointers that are null.
struct Image {
    kind: Kind,
    is_tagged: bool,
    words: Vec<u64>,
    leads: Vec<ObjectPointer>,
}

impl Image {
    /// Makes the object in another pool.
    fn make(&self, tx: &mut Tx<'_>, counts: Counts) -> Result<u64> {
        let head = [self.kind.0, counts.encode()];
        if self.is_tagged {
            let line_off = tx.alloc_tagged(head)?;
            tx.write_fresh_words(line_off, &[], &self.words)?;
            return Ok(tagged_object(line_off));
        }
        let object = tx.alloc(OBJECT_HEAD_BYTES + 8 * self.words.len() as u64)?;
        tx.write_fresh_words(object, &head, &self.words)?;
        Ok(object)
    }
}

impl<'s> Source<'s> {
    fn open(pool: &'s Pool) -> Result<Source<'s>> {
        let region = pool.region();
        let none = || ErrorKind::NotAHeap { found: "it has no root `heap` of the kind of heaps".into() };
        let off = find(pool)?.ok_or_else(none)?;
        if is_migrating(region, off)? {
            return Err(ErrorKind::Migrating.into());
        }
        Ok(Source { region, types: Types::read(region, off, |_, _| Ok(()))?, off })
    }

    fn field(&self, off: usize) -> Result<u64> {
        Ok(self.region.load_u64(self.off + off as u64)?)
    }

    fn generation(&self) -> Result<u64> {
        self.field(offset_of!(PmHeap, generation))
    }

    /// Walks over all objects, and counts the pointers to each.
    fn reach(&self) -> Result<Reached> {
        let root = self.field(offset_of!(PmHeap, root))?;
        let (mut objects, mut numbers) = (vec![root], Numbers::default());
        let mut strong = vec![1];
        numbers.insert(root, 0);
        let (mut next, mut weak) = (0, Vec::new());
        while let Some(object) = objects.get(next).copied() {
            next += 1;
            for ObjectPointer { kind, target, .. } in self.image(object)?.leads {
                if kind == PointerKind::Weak {
                    weak.push(target);
                    continue;
                }
                let number = *numbers.entry(target).or_insert(objects.len());
                if number == objects.len() {
                    objects.push(target);
                    strong.push(0);
                }
                strong[number] += 1;
            }
        }
        let mut counts: Vec<Counts> = strong.into_iter().map(|strong| Counts { strong, weak: 0 }).collect();
        for number in weak.into_iter().filter_map(|target| numbers.get(&target)) {
            counts[*number].weak += 1;
        }
        Ok(Reached { objects, numbers, counts })
    }

    fn image(&self, object: u64) -> Result<Image> {
        let stored = Kind(self.region.load_u64(kind_off(object))?);
        let kind = Kind::new(stored.type_number(), stored.is_array());
        let info = self.types.get(kind.type_number());
        let info =
            info.ok_or_else(|| corrupt("the type of an object", object, "a type of the heap", "none"))?;
        let first = value_off(object);
        let (values, count) = match kind.is_array() {
            false => (0, 1),
            true => {
                let len = self.region.load_u64(first)? & 0xFFFF_FFFF;
                (array_head_bytes(info.bytes) - OBJECT_HEAD_BYTES, len)
            }
        };
        let bytes = values + count * info.bytes;
        let words = (0..bytes.div_ceil(8)).map(|at| self.region.load_u64(first + 8 * at));
        let mut words = words.collect::<Result<Vec<u64>, _>>()?;
        let mut leads = Vec::new();
        for value in (0..count).map(|i| values + i * info.bytes).filter(|_| !info.pointers.is_empty()) {
            leads_of(info, &words, value, &mut leads)?;
        }
        leads.iter().for_each(|lead| words[lead.at] = 0);
        Ok(Image { kind, is_tagged: is_tagged(object), words, leads })
    }

    /// Makes the head of the copy, its type records, and its name.
    fn copy_head(&self, to: &Pool, tx: &mut Tx<'_>, root: u64) -> Result<()> {
        let lanes = u64::from(to.geometry().lane_count);
        let off = tx.alloc(size_of::<PmHeap>() as u64)?;
        let dying = tx.alloc_zeroed(lanes * LINE)?;
        // PERSIST(I3): zeros that are not part of the commit are durable before it.
        to.region().fence().map_err(tembo_pool::Error::from)?;
        let mut first = 0;
        let mut record = self.field(offset_of!(PmHeap, types))?;
        while record != 0 {
            let bytes = self.region.load_u64(record + offset_of!(PmType, record_bytes) as u64)?;
            let words = (0..bytes / 8).map(|at| self.region.load_u64(record + 8 * at));
            let mut words = words.collect::<Result<Vec<u64>, _>>()?;
            record = std::mem::replace(&mut words[offset_of!(PmType, next) / 8], first);
            first = tx.alloc(bytes)?;
            tx.write_fresh_words(first, &[], &words)?;
        }
        let head = [MAGIC, self.generation()?, root, first, dying, lanes, 0, 0];
        tx.write_fresh_words(off, &[], &head)?;
        Ok(tx.set_root(ROOT_NAME, ROOT_KIND, off)?)
    }
}

/// The pointers of the value at these bytes of an image that are not null.
fn leads_of(info: &TypeInfo, words: &[u64], value: u64, leads: &mut Vec<ObjectPointer>) -> Result<()> {
    let word = |off| Ok(words.get(((value + off) / 8) as usize).copied().unwrap_or(0));
    for_each_pointer(info, &word, |off, pointer| {
        let at = ((value + off) / 8) as usize;
        let target = words.get(at).copied().unwrap_or(0);
        leads.extend((target != 0).then_some(ObjectPointer { at, kind: pointer.kind, target }));
        Ok(())
    })
}
