//! Media layout: every structure that a heap keeps on media, and the packing of its words.

use tembo_pmem::media_struct;
use tembo_pool::{TAG_BYTES, tag_off};

const _: () = assert!(TAG_BYTES == OBJECT_HEAD_BYTES);

/// The kind of the root that names a heap.
pub const ROOT_KIND: u32 = 0x4845_4150;
/// The name of that root.
pub(crate) const ROOT_NAME: &str = "heap";
/// The first word of a heap. Its last digit is the version of the layout.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"TMBHEAP3");
/// The first word while a migration converts objects to other layouts (`migrate`). Its last digit is the same
/// version.
pub(crate) const MAGIC_MIGRATING: u64 = u64::from_le_bytes(*b"TMBHEAM3");

media_struct! {
    /// The heap, found by the pool's root `heap`. A line per lane ([`PmDying`]) and the orphan slots follow
    /// in blocks of their own.
    pub(crate) struct PmHeap: 64 {
        /// The bytes `TMBHEAP3`; `TMBHEAM3` as long as a migration is not over.
        0 => magic: u64,
        /// How often the heap was opened for writing. A generational lock with another number is free.
        8 => generation: u64,
        /// The root object.
        16 => root: u64,
        /// The first type record, or 0.
        24 => types: u64,
        /// The heads of the lists of dying objects: a [`PmDying`] for each lane.
        32 => dying: u64,
        /// Number of these heads.
        40 => dying_count: u64,
        /// The first block of orphan slots, or 0.
        48 => orphans: u64,
        /// Zero.
        56 => reserved: u64,
    }
}

media_struct! {
    /// The head of a lane's list of dying objects: those that no pointer leads to any more, and whose
    /// pointers and memory are still to be released.
    pub(crate) struct PmDying: 64 {
        /// The object that died last, or 0. Linked by the first words of their heads.
        0 => first: u64,
        /// Zero.
        8 => reserved: [u8; 56],
    }
}

media_struct! {
    /// The head of an object. Its value follows; that of an array is a [`PmArray`] and the elements, which
    /// begin with a line if each takes whole lines. A value of 64 bytes has a line for itself, and the head
    /// is that line's tag: pointers to such an object lead to 8 bytes before the value, others to the head.
    pub(crate) struct PmObject: 16 {
        /// Type number (16 bits), flags (array 16, dying 17, shell 18, moved 19), and, of a dying object, the
        /// pointer to the next one, of a moved one that to its successor, divided by 8 (bits 20 to 63).
        0 => kind: u64,
        /// Strong pointers to it (low 32 bits), weak pointers (high 32 bits).
        8 => counts: u64,
    }
}

media_struct! {
    /// Between an array's head and its elements.
    pub(crate) struct PmArray: 8 {
        /// Number of elements (low 32 bits), and, while it is dying, how many of them have been released
        /// (high 32 bits). They begin 24 bytes after the object's start, or, if each takes whole lines, 64.
        0 => len: u64,
    }
}

media_struct! {
    /// A type whose objects are in the heap. Its pointers follow ([`PmPointer`], each with its
    /// [`PmCondition`]s), then its name and its description.
    pub(crate) struct PmType: 64 {
        /// The next type record, or 0.
        0 => next: u64,
        /// The type's number.
        8 => number: u64,
        /// Hash of its name.
        16 => name_hash: u64,
        /// Hash of its layout.
        24 => hash: u64,
        /// Bytes of a value.
        32 => value_bytes: u64,
        /// Number of pointers in it.
        40 => pointers: u64,
        /// Bytes of the name (low 32 bits) and the description (high 32 bits).
        48 => text_bytes: u64,
        /// Bytes of this record.
        56 => record_bytes: u64,
    }
}

media_struct! {
    /// A pointer of a type.
    pub(crate) struct PmPointer: 24 {
        /// Where it lies in a value.
        0 => off: u64,
        /// 0 strong, 1 weak, 2 to an array (low 32 bits); number of conditions (high 32 bits).
        8 => kind: u64,
        /// Hash of the name of the type that it leads to.
        16 => target: u64,
    }
}

media_struct! {
    /// A pointer counts if the tag at this place has this value.
    pub(crate) struct PmCondition: 16 {
        /// Where the tag lies (low 32 bits), and how many bytes it has (high 32 bits).
        0 => tag: u64,
        /// The value.
        8 => value: u64,
    }
}

media_struct! {
    /// A block of orphan slots: a word each, the offset of an object that only handles of the running process
    /// keep alive, or 0.
    pub(crate) struct PmOrphans: 512 {
        /// The next such block, or 0.
        0 => next: u64,
        /// The slots.
        8 => slots: [u64; 63],
    }
}

/// Bytes from an object to its value, if the head precedes the value.
pub(crate) const OBJECT_HEAD_BYTES: u64 = size_of::<PmObject>() as u64;
/// Bytes from an object to its value, if the head is a line's tag. Only the offsets of such objects are no
/// multiples of 16.
const TAGGED_HEAD_BYTES: u64 = 8;
/// Bytes from an array object to its first element. Elements of whole lines are line-aligned: their block is,
/// because its length is also a multiple of a line.
#[inline(always)]
pub(crate) const fn array_head_bytes(element_bytes: u64) -> u64 {
    match element_bytes != 0 && element_bytes.is_multiple_of(LINE) {
        true => LINE,
        false => OBJECT_HEAD_BYTES + size_of::<PmArray>() as u64,
    }
}
/// Bytes of a line.
pub(crate) const LINE: u64 = 64;
/// Slots in a block of orphan slots.
pub(crate) const ORPHAN_SLOTS: u64 = 63;

/// Whether an object of this type is a line with a tag.
#[inline(always)]
pub(crate) const fn has_line<T>() -> bool {
    size_of::<T>() as u64 == LINE
}

/// Bytes from the offset that pointers to an object hold to its value of this type.
#[inline(always)]
pub(crate) const fn head_bytes<T>() -> u64 {
    if has_line::<T>() { TAGGED_HEAD_BYTES } else { OBJECT_HEAD_BYTES }
}

/// Whether an object is a line with a tag.
#[inline(always)]
pub(crate) const fn is_tagged(object: u64) -> bool {
    object & TAGGED_HEAD_BYTES != 0
}

/// The object that is the line at an offset.
pub(crate) const fn tagged_object(line_off: u64) -> u64 {
    line_off.wrapping_sub(TAGGED_HEAD_BYTES)
}

/// The block of an object.
#[inline(always)]
pub(crate) const fn block_of(object: u64) -> u64 {
    if is_tagged(object) { object.wrapping_add(TAGGED_HEAD_BYTES) } else { object }
}

/// The value of an object that is no array.
#[inline(always)]
pub(crate) const fn value_off(object: u64) -> u64 {
    object.wrapping_add(if is_tagged(object) { TAGGED_HEAD_BYTES } else { OBJECT_HEAD_BYTES })
}

/// The offset of the first word of an object's head.
#[inline(always)]
pub(crate) const fn kind_off(object: u64) -> u64 {
    if is_tagged(object) { tag_off(block_of(object)) } else { object }
}

/// The offset of an object's counts.
#[inline(always)]
pub(crate) const fn counts_off(object: u64) -> u64 {
    kind_off(object).wrapping_add(8)
}

/// The first word of an object: its type and state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind(pub u64);

const TYPE_BITS: u64 = 0xFFFF;
const ARRAY: u64 = 1 << 16;
const DYING: u64 = 1 << 17;
const SHELL: u64 = 1 << 18;
const MOVED: u64 = 1 << 19;
const NEXT_SHIFT: u32 = 20;
const NEXT_UNIT: u32 = 3;

/// Types that a heap can have.
pub(crate) const MAX_TYPES: u64 = TYPE_BITS + 1;

impl Kind {
    pub(crate) fn new(type_number: u16, is_array: bool) -> Kind {
        Kind(u64::from(type_number) | if is_array { ARRAY } else { 0 })
    }

    pub(crate) fn type_number(self) -> u16 {
        (self.0 & TYPE_BITS) as u16
    }

    pub(crate) fn is_array(self) -> bool {
        self.0 & ARRAY != 0
    }

    /// Whether the object is in a list of those whose pointers and memory are to be released.
    pub(crate) fn is_dying(self) -> bool {
        self.0 & DYING != 0
    }

    /// Whether only its head is left, for the weak pointers that lead to it.
    pub(crate) fn is_shell(self) -> bool {
        self.0 & SHELL != 0
    }

    /// The next object of the list of dying ones, or 0.
    pub(crate) fn next_dying(self) -> u64 {
        (self.0 >> NEXT_SHIFT) << NEXT_UNIT
    }

    /// The word in the list, before `next`.
    pub(crate) fn dying(self, next: u64) -> Kind {
        debug_assert!(next.is_multiple_of(1 << NEXT_UNIT));
        Kind(self.0 & (TYPE_BITS | ARRAY) | DYING | (next >> NEXT_UNIT) << NEXT_SHIFT)
    }

    pub(crate) fn shell(self) -> Kind {
        Kind(self.0 & (TYPE_BITS | ARRAY) | SHELL)
    }

    /// The object's successor, if a migration has made one.
    pub(crate) fn successor(self) -> Option<u64> {
        (self.0 & MOVED != 0).then_some((self.0 >> NEXT_SHIFT) << NEXT_UNIT)
    }

    /// The word of an object that a migration has replaced by `successor`.
    pub(crate) fn moved(self, successor: u64) -> Kind {
        debug_assert!(successor.is_multiple_of(1 << NEXT_UNIT));
        Kind(self.0 & (TYPE_BITS | ARRAY) | MOVED | (successor >> NEXT_UNIT) << NEXT_SHIFT)
    }

    /// The word with another type.
    pub(crate) fn with_type(self, type_number: u16) -> Kind {
        Kind(self.0 & !TYPE_BITS | u64::from(type_number))
    }

    /// Whether no unknown bit is set.
    pub(crate) fn is_sane(self) -> bool {
        let states = (self.0 & (DYING | SHELL | MOVED)).count_ones();
        states <= 1 && (self.0 & (DYING | MOVED) != 0 || self.0 >> NEXT_SHIFT == 0)
    }
}

/// The counts of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub strong: u32,
    pub weak: u32,
}

impl Counts {
    pub(crate) fn decode(word: u64) -> Counts {
        Counts { strong: word as u32, weak: (word >> 32) as u32 }
    }

    pub(crate) fn encode(self) -> u64 {
        u64::from(self.strong) | u64::from(self.weak) << 32
    }

    /// The counts after these changes; `None` on overflow.
    pub(crate) fn changed(self, strong: i64, weak: i64) -> Option<Counts> {
        let strong = u32::try_from(i64::from(self.strong) + strong).ok()?;
        let weak = u32::try_from(i64::from(self.weak) + weak).ok()?;
        Some(Counts { strong, weak })
    }
}
