//! The layout of buckets and entries.

use crate::Persist;
use crate::collections::MapKey;
use crate::error::Result;
use crate::layout::LINE;
use crate::objects::brand::Brand;
use crate::objects::persist::Describe;
use crate::objects::persist::LayoutHash;
use crate::objects::place::Ref;
use crate::objects::slots::PRc;
use crate::tx::ReadTx;
use crate::tx::bulk_read::{BulkWords, word_in};
use std::marker::PhantomData;
use std::mem::offset_of;
use std::sync::atomic::AtomicU64;

/// Words of a bucket's slots.
const SLOT_WORDS: usize = 6;
/// The most slots of a bucket, which is the number of its tags.
const SLOTS_MAX: usize = 6;
/// The size of the largest entries that lie in buckets. A larger entry is an object of its own, with a
/// pointer in the slot.
const INLINE_MAX: usize = 8 * SLOT_WORDS / 2;
/// Words of a bucket.
pub(crate) const BUCKET_WORDS: usize = (LINE / 8) as usize;

/// The bytes that are tags.
const TAG_BYTES: u64 = (1 << (8 * SLOTS_MAX)) - 1;
/// The bit of each tag for a used slot.
const PRESENT: u64 = 0x8080_8080_8080;
const LOW: u64 = 0x0101_0101_0101;

/// An entry.
#[derive(Debug, Persist)]
#[persist(crate = crate, name = "PHashMap::Entry")]
#[repr(C)]
pub(crate) struct Entry<K: Persist, V: Persist> {
    pub key: K,
    pub value: V,
}

/// A line of entries.
#[derive(Debug, Persist)]
#[persist(crate = crate, name = "PHashMap::Bucket")]
#[repr(C)]
pub(crate) struct Bucket<K: MapKey, V: Persist> {
    /// A byte for each slot: zero, or the highest bit and seven of the hash of its key.
    pub tags: u64,
    /// The next bucket, for entries without room.
    pub next: PRc<Bucket<K, V>>,
    pub slots: Slots<K, V>,
}

/// Entries, or pointers to entries.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Slots<K, V> {
    words: [u64; SLOT_WORDS],
    of: PhantomData<(K, V)>,
}

impl<K: MapKey, V: Persist> Slots<K, V> {
    /// Whether entries lie in the bucket.
    pub(crate) const ARE_INLINE: bool = size_of::<Entry<K, V>>() <= INLINE_MAX;
    /// The number of slots.
    pub(crate) const COUNT: usize = {
        let most = if Self::ARE_INLINE && size_of::<Entry<K, V>>() > 8 {
            8 * SLOT_WORDS / size_of::<Entry<K, V>>()
        } else {
            SLOTS_MAX
        };
        if most < SLOTS_MAX { most } else { SLOTS_MAX }
    };
    /// The distance between two slots.
    const STRIDE: usize = if Self::ARE_INLINE { size_of::<Entry<K, V>>() } else { 8 };
    /// The tag bits of existing slots.
    const TAGS: u64 = (1 << (8 * Self::COUNT)) - 1;
    /// Whether an entry can be moved by copying its slot's words. The slots are then whole words, and no
    /// program has places of pointers in them, so the pointers of free slots are null.
    pub(crate) const MOVE_AS_WORDS: bool =
        Self::STRIDE.is_multiple_of(8) && !(Self::ARE_INLINE && Entry::<K, V>::HAS_POINTERS);

    fn empty() -> Slots<K, V> {
        Slots { words: [0; SLOT_WORDS], of: PhantomData }
    }
}

// SAFETY: the only encoding is zero, which `out` is. `describe` has each slot where `Ref::slot` finds it, as
// an entry or as the pointer to one. The hash covers their number, and the types of entries.
unsafe impl<K: MapKey, V: Persist> Persist for Slots<K, V> {
    const NAME_HASH: u64 =
        LayoutHash::new("PHashMap::Slots").number(K::NAME_HASH).number(V::NAME_HASH).finish();
    const HASH: u64 = match Self::ARE_INLINE {
        true => {
            LayoutHash::new("PHashMap::Slots").number(Self::COUNT as u64).number(Entry::<K, V>::HASH).finish()
        }
        false => LayoutHash::new("PHashMap::Slots")
            .number(Self::COUNT as u64)
            .number(PRc::<Entry<K, V>>::HASH)
            .finish(),
    };
    const HAS_VARIANTS: bool = Self::ARE_INLINE && Entry::<K, V>::HAS_VARIANTS;
    const HAS_POINTERS: bool = !Self::ARE_INLINE || Entry::<K, V>::HAS_POINTERS;

    fn name() -> String {
        format!("PHashMap::Slots<{}, {}>", K::name(), V::name())
    }

    fn describe(layout: &mut Describe) {
        match Self::ARE_INLINE {
            true => layout.array::<Entry<K, V>>(Self::COUNT),
            false => layout.array::<PRc<Entry<K, V>>>(Self::COUNT),
        }
    }

    fn encode(&self, _: &mut [u8]) {}
}

impl<K: MapKey, V: Persist> Bucket<K, V> {
    const IS_A_LINE: () = assert!(size_of::<Self>() as u64 == LINE && Slots::<K, V>::COUNT >= 2);

    /// An empty bucket.
    pub(crate) fn empty() -> Bucket<K, V> {
        const { Self::IS_A_LINE }
        Bucket { tags: 0, next: PRc::null(), slots: Slots::empty() }
    }

    /// The words of a slot among those of its bucket, where slots move as words.
    pub(crate) fn words_of(slot: usize) -> std::ops::Range<usize> {
        let first = offset_of!(Self, slots) / 8;
        let words = Slots::<K, V>::STRIDE / 8;
        first + slot * words..first + (slot + 1) * words
    }
}

/// Whether entries lie in buckets, or are objects.
pub(crate) const fn lie_in_buckets<K: MapKey, V: Persist>() -> bool {
    Slots::<K, V>::ARE_INLINE
}

/// The tag of a key.
#[inline(always)]
pub(crate) fn tag_of(hash: u64) -> u64 {
    hash >> 48 & 0xFF | 0x80
}

/// The slots with this tag, by the highest bit of each byte; perhaps other used ones too.
#[inline(always)]
fn candidates(tags: u64, tag: u64) -> u64 {
    let other = (tags & TAG_BYTES) ^ (tag * LOW);
    other.wrapping_sub(LOW) & !other & PRESENT
}

/// The number of the first of some slots.
#[inline(always)]
pub(crate) fn first_slot(slots: u64) -> usize {
    slots.trailing_zeros() as usize / 8
}

/// The used slots, by the highest bit of each byte.
#[inline(always)]
pub(crate) fn present<K: MapKey, V: Persist>(tags: u64) -> u64 {
    tags & PRESENT & Slots::<K, V>::TAGS
}

/// The free slots, by the highest bit of each byte.
#[inline(always)]
pub(crate) fn absent<K: MapKey, V: Persist>(tags: u64) -> u64 {
    !tags & PRESENT & Slots::<K, V>::TAGS
}

/// The tags with the one of a slot replaced.
#[inline(always)]
pub(crate) fn with_tag(tags: u64, slot: usize, tag: u64) -> u64 {
    tags & !(0xFF << (8 * slot)) | tag << (8 * slot)
}

/// The result of a search for a key in a bucket.
pub(crate) enum Seen<R> {
    /// The key is in this slot; the second field is the evaluated value.
    In(usize, R),
    /// The key may be in these slots. If not, it may be in the next bucket.
    Maybe(u64, u64),
}

impl<'t, B: Brand, K: MapKey, V: Persist> Ref<'t, B, Bucket<K, V>> {
    /// The entry of a slot in the bucket.
    #[inline(always)]
    pub(crate) fn inline_entry(self, slot: usize) -> Ref<'t, B, Entry<K, V>> {
        debug_assert!(Slots::<K, V>::ARE_INLINE && slot < Slots::<K, V>::COUNT);
        self.part((offset_of!(Bucket<K, V>, slots) + slot * size_of::<Entry<K, V>>()) as u64)
    }

    /// The pointer to the entry of a slot.
    #[inline(always)]
    pub(crate) fn lead(self, slot: usize) -> Ref<'t, B, PRc<Entry<K, V>>> {
        debug_assert!(!Slots::<K, V>::ARE_INLINE && slot < Slots::<K, V>::COUNT);
        self.part((offset_of!(Bucket<K, V>, slots) + slot * 8) as u64)
    }

    /// The entry of a slot that has one.
    #[inline(always)]
    pub(crate) fn entry(self, tx: &ReadTx<'t, B>, slot: usize) -> Result<Ref<'t, B, Entry<K, V>>> {
        if Slots::<K, V>::ARE_INLINE {
            return Ok(self.inline_entry(slot));
        }
        match tx.load(self.lead(slot))? {
            Some(entry) => Ok(*entry),
            None => Err(self.damage()),
        }
    }

    #[cold]
    pub(crate) fn damage(self) -> crate::Error {
        crate::error::corrupt("a hash map's bucket", self.off, "as many entries as tags", "fewer")
    }

    /// Searches a key in the bucket, and evaluates the words at its value.
    #[inline(always)]
    pub(crate) fn look_for<R>(
        self,
        tx: &ReadTx<'t, B>,
        tag: u64,
        key: &K::Query,
        look: impl Fn(&[AtomicU64], usize) -> R,
    ) -> Result<Seen<R>> {
        tx.bulk_read(self.key, self.off, BUCKET_WORDS, |words| look_for::<K, V, R>(words, tag, key, &look))
    }
}

/// Searches a key in the words of a bucket.
#[inline(always)]
pub(crate) fn look_for<K: MapKey, V: Persist, R>(
    words: &[AtomicU64],
    tag: u64,
    key: &K::Query,
    look: impl Fn(&[AtomicU64], usize) -> R,
) -> Seen<R> {
    let word = |at| word_in(words, at).unwrap_or_default();
    let mut left = candidates(word(0), tag) & Slots::<K, V>::TAGS;
    let mut maybe = 0;
    while left != 0 {
        let slot = first_slot(left);
        let bit = left & left.wrapping_neg();
        left ^= bit;
        if !Slots::<K, V>::ARE_INLINE {
            maybe |= bit;
            continue;
        }
        let entry = offset_of!(Bucket<K, V>, slots) + slot * size_of::<Entry<K, V>>();
        match K::is_in(BulkWords(words), entry + offset_of!(Entry<K, V>, key), key) {
            Some(true) => return Seen::In(slot, look(words, entry + offset_of!(Entry<K, V>, value))),
            Some(false) => {}
            None => maybe |= bit,
        }
    }
    Seen::Maybe(maybe, word(offset_of!(Bucket<K, V>, next) / 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_have_all_slots_with_the_tag_and_none_without_an_entry() {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        for _ in 0..100_000 {
            let bytes: [u8; 8] = std::array::from_fn(|_| match next() % 4 {
                0 => 0,
                1 => 0x81,
                _ => 0x80 | next() as u8,
            });
            let tag = tag_of(next() << 40);
            let found = candidates(u64::from_le_bytes(bytes), tag);
            for (slot, byte) in bytes[..SLOTS_MAX].iter().enumerate() {
                let is_found = found >> (8 * slot + 7) & 1 == 1;
                assert!(is_found || u64::from(*byte) != tag, "{bytes:x?} {tag:x}");
                assert!(!is_found || *byte != 0, "{bytes:x?} {tag:x}");
            }
            assert_eq!(found & !PRESENT, 0);
        }
    }

    #[test]
    fn small_entries_lie_in_the_bucket_and_large_ones_elsewhere() {
        assert_eq!((Slots::<u64, u64>::ARE_INLINE, Slots::<u64, u64>::COUNT), (true, 3));
        assert_eq!((Slots::<u64, ()>::ARE_INLINE, Slots::<u64, ()>::COUNT), (true, 6));
        assert_eq!((Slots::<u8, ()>::ARE_INLINE, Slots::<u8, ()>::COUNT), (true, 6));
        assert_eq!((Slots::<u32, u64>::ARE_INLINE, Slots::<u32, u64>::COUNT), (true, 3));
        assert_eq!((Slots::<u64, [u64; 2]>::ARE_INLINE, Slots::<u64, [u64; 2]>::COUNT), (true, 2));
        assert_eq!((Slots::<u64, [u64; 3]>::ARE_INLINE, Slots::<u64, [u64; 3]>::COUNT), (false, 6));
        assert_eq!(size_of::<Bucket<u64, [u8; 4096]>>(), 64);
    }
}
