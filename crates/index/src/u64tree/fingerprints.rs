//! Fingerprints: twelve bits for every slot of a leaf, in DRAM. A search loads only lines that probably hold
//! the key.
//!
//! With eight bits, three insertions of ten would meet another key with the same fingerprint, and load its
//! line to find that out; with twelve bits, two of a hundred do. The twelve bits are a byte and a nibble.
//!
//! Fingerprints are written under the leaf's lock and read at any time. A reader checks afterwards that the
//! leaf did not change, so it may see any mixture of old and new bytes, but not a new byte with an old
//! nibble.

use super::layout::{SLOTS, SLOTS_PER_LINE, WORDS_PER_LINE};
use super::node::simd::{NIBBLE_WORDS, Portable, Search, WORDS};
use std::sync::atomic::{AtomicU64, Ordering};
use tembo_pmem::prefetch_for_store;
use tembo_sync::hash_u64;

/// The byte of an unused slot.
const UNUSED: u8 = 0;
/// The number of slots, rounded up to whole words; the surplus is unused.
const PADDED_SLOTS: usize = 8 * WORDS;
/// A 1 in each byte; `SEVEN` has seven ones in each.
const LOW: u64 = 0x0101_0101_0101_0101;
const SEVEN: u64 = 0x7F7F_7F7F_7F7F_7F7F;
/// The bits of existing slots.
const ALL: u128 = (1 << SLOTS) - 1;

/// A key's fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint {
    /// The fingerprint's byte. An unused slot has another one.
    pub(super) byte: u8,
    /// The lower nibble is used for slots up to 63, the upper one for the others.
    pub(super) nibbles: u8,
}

/// The fingerprint of a key.
#[inline(always)]
pub(super) fn fingerprint(key: u64) -> Fingerprint {
    let hash = hash_u64(key);
    let byte = (hash >> 56) as u8;
    // `lines_of` hardly depends on the bits that the nibbles come from.
    Fingerprint { byte: byte + u8::from(byte == UNUSED), nibbles: (hash >> 40) as u8 }
}

const LINE_MASK: u64 = (1 << SLOTS_PER_LINE) - 1;
/// The number of lines that a division fills.
pub(super) const FIRST_LINES: u64 = 14;
const OTHER_LINES: u64 = (SLOTS / SLOTS_PER_LINE) as u64 - FIRST_LINES;

/// The lines that probably have a key's record: one of those that a division fills, and one of those that
/// insertions fill later. They are prefetched while the fingerprints are still being loaded.
#[inline(always)]
pub(super) fn lines_of(key: u64) -> [usize; 2] {
    // Divides all numbers into equal `parts`: the part in which a number lies, and its scaled position there.
    let part = |number: u64, parts: u64| {
        let product = u128::from(number) * u128::from(parts);
        ((product >> 64) as u64, product as u64)
    };
    // The byte of the fingerprint is last.
    let (first, rest) = part(hash_u64(key).rotate_left(8), FIRST_LINES);
    let (other, _) = part(rest, OTHER_LINES);
    [first as usize, (FIRST_LINES + other) as usize]
}

/// The likeliest of some slots, of which there is at least one, for the key with these lines: one in the
/// first line if there is any, else one in the other.
#[inline(always)]
pub(super) fn likely_slot(slots: u128, [first, other]: [usize; 2]) -> usize {
    const { assert!(FIRST_LINES * SLOTS_PER_LINE as u64 <= 64) };
    let select = |is, this: u64, that: u64| core::hint::select_unpredictable(is, this, that);
    let (low, high) = (slots as u64, (slots >> 64) as u64);
    let (first, other) = ((first * SLOTS_PER_LINE) as u64, (other * SLOTS_PER_LINE) as u64);
    let in_first = low >> first & LINE_MASK;
    let in_other = select(other < 64, low, high) >> (other % 64) & LINE_MASK;
    let (line, near) = (select(in_first != 0, first, other), select(in_first != 0, in_first, in_other));
    let any = u64::from(slots.trailing_zeros());
    select(near != 0, line + u64::from(near.trailing_zeros()), any) as usize
}

/// Assigns slots of a new leaf to the records that a division moves. A record is put into its own line among
/// the first lines if that has room, otherwise into any of the first lines with room. Other lines are used
/// only if these are full.
#[derive(Default)]
pub(super) struct NewPlaces {
    /// Slots in use of each line.
    used: [u8; SLOTS / SLOTS_PER_LINE],
    /// Lines before this one are full.
    line: usize,
}

/// Stands for no slot, but is a valid index into arrays of [`PADDED_SLOTS`].
pub(super) const NOWHERE: usize = SLOTS;
const _: () = assert!(NOWHERE < PADDED_SLOTS);

impl NewPlaces {
    /// A slot in a key's line, or [`NOWHERE`].
    #[inline(always)]
    pub(super) fn of(&mut self, key: u64) -> usize {
        let line = lines_of(key)[0];
        let used = self.used[line];
        let has_room = usize::from(used) < SLOTS_PER_LINE;
        self.used[line] = used + u8::from(has_room);
        core::hint::select_unpredictable(has_room, SLOTS_PER_LINE * line + usize::from(used), NOWHERE)
    }

    /// The first free slot. Called after every key has tried its own line, once for each record that is left.
    pub(super) fn any(&mut self) -> usize {
        while usize::from(self.used[self.line]) == SLOTS_PER_LINE {
            self.line += 1;
        }
        self.used[self.line] += 1;
        SLOTS_PER_LINE * self.line + usize::from(self.used[self.line]) - 1
    }
}

/// The fingerprints of a leaf under construction.
pub(super) struct NewFingerprints {
    bytes: [u8; PADDED_SLOTS],
    nibbles: [u8; PADDED_SLOTS / 2],
}

impl NewFingerprints {
    /// The fingerprints of a leaf without records.
    pub(super) fn new() -> NewFingerprints {
        NewFingerprints { bytes: [UNUSED; PADDED_SLOTS], nibbles: [0; PADDED_SLOTS / 2] }
    }

    /// Sets the fingerprint of a slot, once. That of [`NOWHERE`] may be set again and again.
    #[inline(always)]
    pub(super) fn set(&mut self, slot: usize, fingerprint: Fingerprint) {
        self.bytes[slot] = fingerprint.byte;
        self.nibbles[slot % 64] |= fingerprint.nibbles & 0xF << (4 * (slot / 64));
    }
}

/// The fingerprints of a leaf.
#[repr(C, align(64))]
pub(super) struct Fingerprints {
    /// A byte for each slot.
    words: [AtomicU64; WORDS],
    /// A byte for each slot `i` up to 63: its lower half is the nibble of slot `i`, its upper half that of
    /// slot `i + 64`. The nibbles of unused slots are meaningless.
    nibbles: [AtomicU64; NIBBLE_WORDS],
}

/// Bytes as words.
fn words_of<const LEN: usize>(bytes: &[u8]) -> [AtomicU64; LEN] {
    let (words, []) = bytes.as_chunks() else { unreachable!("whole words") };
    std::array::from_fn(|i| AtomicU64::new(u64::from_le_bytes(words[i])))
}

impl Fingerprints {
    pub(super) fn new(mut new: NewFingerprints) -> Fingerprints {
        new.bytes[NOWHERE] = UNUSED;
        Fingerprints { words: words_of(&new.bytes), nibbles: words_of(&new.nibbles) }
    }

    /// Prefetches the lines of the bytes for a store.
    #[inline(always)]
    pub(super) fn fetch_to_change(&self) {
        self.words.iter().step_by(WORDS_PER_LINE).for_each(prefetch_for_store);
    }

    /// Prefetches the line of the nibbles for a store.
    #[inline(always)]
    pub(super) fn fetch_to_set(&self) {
        prefetch_for_store(&self.nibbles[0]);
    }

    /// The slots with this fingerprint, a bit each.
    #[inline(always)]
    pub(super) fn matches_by<S: Search>(&self, search: S, fingerprint: Fingerprint) -> u128 {
        // ORDER: a byte is stored after its nibble, so the bytes are loaded first.
        let bytes = search.equal_bytes(&self.words, fingerprint.byte);
        bytes & search.equal_nibbles(&self.nibbles, fingerprint.nibbles)
    }

    /// The slots with the byte of this fingerprint. A caller that expects the key to be there loads its
    /// record anyway and does not need the nibbles.
    #[inline(always)]
    pub(super) fn candidates_by<S: Search>(&self, search: S, fingerprint: Fingerprint) -> u128 {
        search.equal_bytes(&self.words, fingerprint.byte)
    }

    /// The slots that are not in use.
    #[inline(always)]
    pub(super) fn unused_by<S: Search>(&self, search: S) -> u128 {
        search.equal_bytes(&self.words, UNUSED) & ALL
    }

    /// The same, a word at a time, for callers off the hot path.
    pub(super) fn unused(&self) -> u128 {
        self.unused_by(Portable)
    }

    /// The slots in use.
    #[inline]
    pub(super) fn used(&self) -> u128 {
        !self.unused() & ALL
    }

    /// Whether every slot is in use.
    pub(super) fn is_full(&self) -> bool {
        self.unused() == 0
    }

    /// Sets a slot's fingerprint; the caller has the leaf's lock.
    #[inline(always)]
    pub(super) fn set(&self, slot: usize, fingerprint: Fingerprint) {
        let (word, mask) = (&self.nibbles[slot % 64 / 8], 0xF << (8 * (slot % 8) + 4 * (slot / 64)));
        let old = word.load(Ordering::Relaxed);
        word.store(old & !mask | (LOW * u64::from(fingerprint.nibbles)) & mask, Ordering::Relaxed);
        self.set_byte(slot, fingerprint.byte);
    }

    #[inline(always)]
    fn set_byte(&self, slot: usize, byte: u8) {
        let (word, shift) = (&self.words[slot / 8], 8 * (slot % 8));
        let old = word.load(Ordering::Relaxed);
        // ORDER: release, so that a reader of the byte sees the nibble and the record.
        word.store(old & !(0xFF << shift) | u64::from(byte) << shift, Ordering::Release);
    }

    /// Marks slots as unused; the caller has the leaf's lock.
    pub(super) fn clear_all(&self, slots: u128) {
        for (i, word) in self.words.iter().enumerate() {
            let slots = (slots >> (8 * i)) as u8;
            if slots != 0 {
                // Byte i first gets bit i alone, then its high bit if it is not zero, then ones in all its
                // bits.
                let spread = u64::from(slots).wrapping_mul(LOW) & 0x8040_2010_0804_0201;
                let high = spread.wrapping_add(SEVEN) | spread;
                let mask = (high >> 7 & LOW) * 0xFF;
                // ORDER: release, as in `set_byte`.
                word.store(word.load(Ordering::Relaxed) & !mask, Ordering::Release);
            }
        }
    }

    /// Marks a slot as unused; the caller has the leaf's lock.
    #[inline(always)]
    pub(super) fn clear(&self, slot: usize) {
        self.set_byte(slot, UNUSED);
    }
}

/// The numbers of the bits that are set.
pub(super) fn bits(mask: u128) -> impl Iterator<Item = usize> {
    let of_half = |(first, mut half): (usize, u64)| {
        std::iter::from_fn(move || {
            let bit = half.trailing_zeros() as usize;
            half &= half.wrapping_sub(1);
            (bit < 64).then_some(first + bit)
        })
    };
    [(0, mask as u64), (64, (mask >> 64) as u64)].into_iter().flat_map(of_half)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Fingerprint = Fingerprint { byte: 0xA5, nibbles: 0xC7 };

    /// A leaf with the same fingerprint in every slot.
    fn all(fingerprint: Fingerprint) -> Fingerprints {
        let mut new = NewFingerprints::new();
        (0..SLOTS).for_each(|slot| new.set(slot, fingerprint));
        new.set(NOWHERE, SOME);
        Fingerprints::new(new)
    }

    #[test]
    fn slots_are_found_by_their_fingerprints() {
        let some = |byte: usize, nibble: usize| Fingerprint {
            byte: byte as u8,
            nibbles: (nibble | (nibble ^ 5) << 4) as u8,
        };
        let mut known: Vec<Option<Fingerprint>> =
            (0..SLOTS).map(|i| (i % 5 != 3).then(|| some(1 + i * 37 % 7, i * 11 % 16))).collect();
        let mut new = NewFingerprints::new();
        known.iter().enumerate().for_each(|(i, known)| known.iter().for_each(|known| new.set(i, *known)));
        let fingerprints = Fingerprints::new(new);
        // Slots of both halves; one had another key with the same byte or nibble before.
        for slot in [5, 69, 3, 123] {
            fingerprints.set(slot, some(0x80, slot % 3));
            known[slot] = Some(some(0x80, slot % 3));
        }
        for slot in [6, 70] {
            fingerprints.clear(slot);
            known[slot] = None;
        }
        let mut found = 0;
        for wanted in [1, 2, 7, 0x80, 0xFF].into_iter().flat_map(|byte| (0..16).map(move |i| some(byte, i))) {
            let expected =
                (0..SLOTS).filter(|i| known[*i] == Some(wanted)).fold(0, |mask, i| mask | 1u128 << i);
            assert_eq!(fingerprints.matches_by(Portable, wanted), expected, "{wanted:?}");
            found += expected.count_ones();
        }
        assert!(found > 30, "{found}");
        assert!(!fingerprints.is_full() && all(SOME).is_full());
        assert_eq!(fingerprints.used().count_ones() as usize, known.iter().flatten().count());
        assert_eq!(bits(1 << 123 | 5).collect::<Vec<_>>(), [0, 2, 123]);
    }

    /// The lines that a key's lookup reads do not correlate with the key's byte or nibble.
    #[test]
    fn few_keys_of_the_same_lines_have_the_same_fingerprint() {
        let keys = || (0..400_000_u64).filter(|key| lines_of(*key) == lines_of(0));
        for half in [0xF, 0xF0] {
            let mut counts = std::collections::BTreeMap::new();
            keys().for_each(|key| {
                let Fingerprint { byte, nibbles } = fingerprint(key);
                *counts.entry((byte, nibbles & half)).or_insert(0) += 1;
            });
            assert!(
                keys().count() > 1000 && counts.values().all(|count| *count < 10),
                "{half}: {:?}",
                counts.values().max()
            );
        }
    }

    #[test]
    fn the_likely_slot_is_in_the_lines_of_the_key_if_one_is() {
        for key in 0..2000_u64 {
            let lines = lines_of(key);
            let [first, other] = lines.map(|line| SLOTS_PER_LINE * line);
            let anywhere = key.wrapping_mul(77) as usize % SLOTS;
            for slots in 1..8_u32 {
                let chosen = [(first + 3, 1), (other + 2, 2), (anywhere, 4)].into_iter();
                let chosen: Vec<usize> =
                    chosen.filter(|(_, bit)| slots & bit != 0).map(|(slot, _)| slot).collect();
                let mask = chosen.iter().fold(0_u128, |mask, slot| mask | 1 << slot);
                let near = [first, other]
                    .into_iter()
                    .find_map(|line| (line..line + SLOTS_PER_LINE).find(|slot| mask >> slot & 1 != 0));
                let expected = near.unwrap_or(mask.trailing_zeros() as usize);
                assert_eq!(likely_slot(mask, lines), expected, "{key} {slots}");
            }
        }
    }

    #[test]
    fn keys_are_placed_in_different_slots_of_few_lines_mostly_their_own() {
        for count in 0..=SLOTS {
            let keys: Vec<u64> = (0..count).map(|i| (i * i * 77) as u64).collect();
            let mut places = NewPlaces::default();
            let own: Vec<Option<usize>> =
                keys.iter().map(|key| Some(places.of(*key)).filter(|slot| *slot != NOWHERE)).collect();
            let slots: Vec<usize> = own.iter().map(|own| own.unwrap_or_else(|| places.any())).collect();
            let different: std::collections::BTreeSet<usize> = slots.iter().copied().collect();
            assert_eq!(different.len(), count);
            assert!(
                different.last().is_none_or(|last| *last < 4 * count.div_ceil(4).max(FIRST_LINES as usize))
            );
            let in_own =
                |(key, slot): (&u64, &Option<usize>)| slot.is_none_or(|slot| slot / 4 == lines_of(*key)[0]);
            assert!(keys.iter().zip(&own).all(in_own));
            if count == 41 {
                let own = own.iter().flatten().count();
                assert!(own > 27, "{own} of 41 in their lines");
            }
        }
        assert!((0..10_000).flat_map(lines_of).all(|line| line < SLOTS / 4));
    }

    #[test]
    fn clearing_slots_clears_those_and_no_others() {
        for slots in [0, ALL, 1, 1 << 123, 0x0123_4567_89AB_CDEF_0246_8ACE_1357_9BDF & ALL] {
            let fingerprints = all(SOME);
            fingerprints.clear_all(slots);
            assert_eq!(
                (fingerprints.used(), fingerprints.matches_by(Portable, SOME)),
                (ALL & !slots, ALL & !slots)
            );
        }
    }

    #[test]
    fn no_key_has_the_fingerprint_of_an_unused_slot() {
        assert!((0..100_000u64).all(|key| fingerprint(key).byte != UNUSED));
    }
}
