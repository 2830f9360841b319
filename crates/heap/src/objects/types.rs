//! The types of a heap: their records on media, and their numbers.

use crate::error::{Error, ErrorKind, OtherLayout, Result, SameName, corrupt};
use crate::layout::{MAX_TYPES, PmCondition, PmHeap, PmPointer, PmType};
use crate::objects::persist::Persist;
use crate::objects::persist::TargetFn;
use crate::objects::type_info::{Condition, Pointer, PointerKind, TypeInfo};
use std::collections::HashMap;
use std::sync::Arc;
use tembo_pmem::{Region, offset_of};
use tembo_pool::Tx;

/// Every type that a heap may have objects of, by number.
#[derive(Debug, Default)]
pub(crate) struct Types {
    /// `None` for a type that a migration has removed.
    stored: Vec<Option<Arc<TypeInfo>>>,
    by_hash: HashMap<u64, u16, foldhash::fast::FixedState>,
    /// A cache of numbers by some bits of the hash, for allocations.
    quick: Vec<(u64, u16)>,
}

const QUICK: usize = 256;

fn quick_slot(hash: u64) -> usize {
    (hash >> 32) as usize % QUICK
}

impl Types {
    fn insert(&mut self, number: u16, info: TypeInfo) {
        self.quick.resize(QUICK, (0, 0));
        self.quick[quick_slot(info.hash)] = (info.hash, number);
        self.by_hash.insert(info.hash, number);
        let at = usize::from(number);
        self.stored.resize(self.stored.len().max(at + 1), None);
        self.stored[at] = Some(Arc::new(info));
    }

    /// The number of the next type.
    fn free_number(&self) -> Result<u16> {
        let number = self.stored.iter().position(Option::is_none).unwrap_or(self.stored.len());
        u16::try_from(number).map_err(|_| ErrorKind::TooManyTypes { max: MAX_TYPES }.into())
    }

    /// The number of `T`.
    #[inline]
    pub(crate) fn number_of<T: Persist>(&self) -> Result<u16> {
        let hash = const { T::HASH };
        match self.quick.get(quick_slot(hash)) {
            Some((known, number)) if *known == hash => Ok(*number),
            _ => self.look_up(hash).ok_or_else(|| ErrorKind::UnknownType { name: T::name() }.into()),
        }
    }

    #[cold]
    pub(crate) fn look_up(&self, hash: u64) -> Option<u16> {
        self.by_hash.get(&hash).copied()
    }

    #[inline]
    pub(crate) fn get(&self, number: u16) -> Option<&TypeInfo> {
        self.stored.get(usize::from(number))?.as_deref()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &TypeInfo> {
        self.stored.iter().flatten().map(|info| &**info)
    }

    /// Reads the type records of a heap. Calls `reach` with the offset and length of each.
    pub(crate) fn read(
        region: &Region,
        heap_off: u64,
        mut reach: impl FnMut(u64, u64) -> Result<()>,
    ) -> Result<Types> {
        let mut types = Types::default();
        let mut off = region.load_u64(heap_off + offset_of!(PmHeap, types) as u64)?;
        let mut records = Vec::new();
        while off != 0 {
            if records.len() as u64 == MAX_TYPES {
                return Err(corrupt("the list of types", off, "an end", "more types than there can be"));
            }
            let (number, bytes, info) = read_record(region, off)?;
            reach(off, bytes)?;
            records.push((number, off, info));
            off = region.load_u64(off)?;
        }
        records.sort_by_key(|(number, ..)| *number);
        for (number, off, info) in records {
            let free = u16::try_from(number).ok().filter(|number| types.get(*number).is_none());
            let Some(number) = free else {
                return Err(corrupt("a type's number", off, format!("one below {MAX_TYPES}, once"), number));
            };
            if types.look_up(info.hash).is_some() {
                return Err(corrupt("a type", off, "a layout of its own", "another type's"));
            }
            types.insert(number, info);
        }
        Ok(types)
    }

    /// Refuses two types with one name, unless `is_left` knows one of them: an interrupted migration has left
    /// it.
    pub(crate) fn expect_alone(&self, is_left: impl Fn(u64) -> bool) -> Result<()> {
        let mut by_name = HashMap::new();
        for info in self.iter().filter(|info| !is_left(info.hash)) {
            if let Some(other) = by_name.insert(info.name_hash, info) {
                return Err(layout_error(other, info));
            }
        }
        Ok(())
    }

    /// Adds the types that are reachable by pointers from `roots`, unless the heap has them already. Refuses
    /// a type that the heap has with another layout, unless `is_left` knows that layout's hash.
    pub(crate) fn add_reachable(
        &mut self,
        tx: &mut Tx<'_>,
        heap_off: u64,
        roots: Vec<TargetFn>,
        is_left: impl Fn(u64) -> bool,
    ) -> Result<()> {
        let found = reachable(roots)?;
        for info in &found {
            if let Some(other) = self.iter().find(|other| other.name_hash == info.name_hash)
                && !is_left(other.hash)
                && other.hash != info.hash
            {
                return Err(layout_error(other, info));
            }
        }
        for info in found {
            if self.look_up(info.hash).is_some() {
                continue;
            }
            let number = self.free_number()?;
            let first_off = heap_off + offset_of!(PmHeap, types) as u64;
            let next = tx.load(first_off)?;
            let image = record_image(&info, u64::from(number), next);
            let off = tx.alloc(image.len() as u64)?;
            tx.write_fresh(off, &image)?;
            tx.store(first_off, off)?;
            self.insert(number, info);
        }
        Ok(())
    }
}

/// These types, and every type that is reachable from them by pointers.
fn reachable(roots: Vec<TargetFn>) -> Result<Vec<TypeInfo>> {
    let mut seen = HashMap::new();
    let mut found: Vec<TypeInfo> = Vec::new();
    let mut next = roots;
    while let Some(TargetFn(describe)) = next.pop() {
        let (info, targets) = describe();
        match seen.insert(info.name_hash, info.hash) {
            Some(known) if known == info.hash => {}
            Some(_) => {
                let other = found.into_iter().find(|other| other.name_hash == info.name_hash);
                let one = other.map(|other| other.text).unwrap_or_default();
                return Err(ErrorKind::SameName(SameName { name: info.name, one, other: info.text }).into());
            }
            None => {
                next.extend(targets);
                found.push(info);
            }
        }
    }
    Ok(found)
}

fn record_image(info: &TypeInfo, number: u64, next: u64) -> Vec<u8> {
    let text_bytes = (info.name.len() + info.text.len()) as u64;
    let conditions: usize = info.pointers.iter().map(|p| p.conditions.len()).sum();
    let body = size_of::<PmType>()
        + info.pointers.len() * size_of::<PmPointer>()
        + conditions * size_of::<PmCondition>();
    let record_bytes = (body as u64 + text_bytes).next_multiple_of(8);
    let text_word = info.name.len() as u64 | (info.text.len() as u64) << 32;
    let mut words = vec![
        next,
        number,
        info.name_hash,
        info.hash,
        info.bytes,
        info.pointers.len() as u64,
        text_word,
        record_bytes,
    ];
    for pointer in &info.pointers {
        let kind = match pointer.kind {
            PointerKind::Strong => 0,
            PointerKind::Weak => 1,
            PointerKind::Array => 2,
        };
        words.extend([
            u64::from(pointer.off),
            kind | (pointer.conditions.len() as u64) << 32,
            pointer.target,
        ]);
        for condition in &pointer.conditions {
            words.extend([
                u64::from(condition.tag_off) | u64::from(condition.tag_bytes) << 32,
                condition.value,
            ]);
        }
    }
    let mut image: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    image.extend_from_slice(info.name.as_bytes());
    image.extend_from_slice(info.text.as_bytes());
    image.resize(record_bytes as usize, 0);
    image
}

/// The longest record that is accepted.
const RECORD_BYTES_MAX: u64 = 16 << 20;

/// The longest value that is accepted. Up to this length, no array's size overflows.
const VALUE_BYTES_MAX: u64 = 1 << 31;

/// The condition with these words, if its tag lies in the value.
fn condition_of(tag: u64, value: u64, value_bytes: u64) -> Option<Condition> {
    let condition = Condition { tag_off: tag as u32, tag_bytes: (tag >> 32) as u8, value };
    let is_in_value = matches!(condition.tag_bytes, 1 | 2 | 4 | 8)
        && u64::from(condition.tag_off).is_multiple_of(u64::from(condition.tag_bytes))
        && u64::from(condition.tag_off) + u64::from(condition.tag_bytes) <= value_bytes;
    is_in_value.then_some(condition)
}

fn read_record(region: &Region, off: u64) -> Result<(u64, u64, TypeInfo)> {
    let at = |field: usize| region.load_u64(off + field as u64);
    let record_bytes = at(offset_of!(PmType, record_bytes))?;
    let refuse = |found: String| Err(corrupt("a type record", off, "a description of a type", found));
    if record_bytes > RECORD_BYTES_MAX || !record_bytes.is_multiple_of(8) {
        return refuse(format!("{record_bytes} bytes"));
    }
    let words =
        (0..record_bytes / 8).map(|i| region.load_u64(off + 8 * i)).collect::<Result<Vec<u64>, _>>()?;
    let mut rest = words.iter().copied().skip(size_of::<PmType>() / 8);
    let mut take = || rest.next().ok_or_else(|| corrupt("a type record", off, "all of it", "its end"));
    let value_bytes = at(offset_of!(PmType, value_bytes))?;
    if value_bytes > VALUE_BYTES_MAX {
        return refuse(format!("values of {value_bytes} bytes"));
    }
    let count = at(offset_of!(PmType, pointers))?;
    let mut used_words = size_of::<PmType>() as u64 / 8;
    let mut pointers = Vec::new();
    for _ in 0..count {
        let (place, kind, target) = (take()?, take()?, take()?);
        let conditions = (0..kind >> 32)
            .map(|_| {
                let (tag, value) = (take()?, take()?);
                condition_of(tag, value, value_bytes)
                    .ok_or_else(|| corrupt("a type record", off, "a tag in the value", tag))
            })
            .collect::<Result<Vec<_>>>()?;
        used_words += 3 + 2 * conditions.len() as u64;
        let kind = match kind as u32 {
            0 => PointerKind::Strong,
            1 => PointerKind::Weak,
            2 => PointerKind::Array,
            other => return refuse(format!("a pointer of kind {other}")),
        };
        if place % 8 != 0 || place.checked_add(8).is_none_or(|end| end > value_bytes) {
            return refuse(format!("a pointer at {place} in a value of {value_bytes} bytes"));
        }
        pointers.push(Pointer { off: place as u32, kind, target, conditions });
    }
    let text_word = at(offset_of!(PmType, text_bytes))?;
    let (name_bytes, text_bytes) = (text_word & 0xFFFF_FFFF, text_word >> 32);
    let start = (used_words * 8) as usize;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let text = |from: usize, len: u64| {
        let text = bytes.get(from..from + len as usize).and_then(|b| std::str::from_utf8(b).ok());
        text.map(str::to_owned).ok_or_else(|| corrupt("a type's name", off, "UTF-8", "something else"))
    };
    let info = TypeInfo {
        name: text(start, name_bytes)?,
        name_hash: at(offset_of!(PmType, name_hash))?,
        hash: at(offset_of!(PmType, hash))?,
        bytes: value_bytes,
        pointers,
        text: text(start + name_bytes as usize, text_bytes)?,
    };
    Ok((at(offset_of!(PmType, number))?, record_bytes, info))
}

/// The error for a type that the heap has with another layout.
#[cold]
pub(crate) fn layout_error(stored: &TypeInfo, ours: &TypeInfo) -> Error {
    ErrorKind::Layout(OtherLayout {
        name: ours.name.clone(),
        difference: ours.difference(stored),
        stored: stored.text.clone(),
        ours: ours.text.clone(),
    })
    .into()
}

/// Calls `found` for each pointer of a value that counts, with its offset from the value's start. `word`
/// loads a word of the value.
pub(crate) fn for_each_pointer(
    info: &TypeInfo,
    word: &dyn Fn(u64) -> Result<u64>,
    mut found: impl FnMut(u64, &Pointer) -> Result<()>,
) -> Result<()> {
    for pointer in &info.pointers {
        let mut counts = true;
        for Condition { tag_off, tag_bytes, value } in &pointer.conditions {
            let tag_off = u64::from(*tag_off);
            let at = (tag_off % 8) as usize;
            let bytes = word(tag_off & !7)?.to_ne_bytes();
            let tag = bytes.get(at..at + usize::from(*tag_bytes)).map_or(0, number_of_bytes);
            counts &= tag == *value;
        }
        if counts {
            found(u64::from(pointer.off), pointer)?;
        }
    }
    Ok(())
}

/// These bytes as a number, in this machine's byte order.
pub(crate) fn number_of_bytes(bytes: &[u8]) -> u64 {
    match *bytes {
        [a] => u64::from(a),
        [a, b] => u64::from(u16::from_ne_bytes([a, b])),
        [a, b, c, d] => u64::from(u32::from_ne_bytes([a, b, c, d])),
        _ => bytes.try_into().map_or(0, u64::from_ne_bytes),
    }
}
