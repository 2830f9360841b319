//! Fingerprints: a byte for every slot of a leaf, in DRAM, so that a search loads only lines that likely hold the key.
//!
//! Written under the leaf's lock and read by anyone at any time. A reader checks afterwards that the leaf did not
//! change, so that it may see any mixture of old and new bytes.

use super::layout::{SLOTS, SLOTS_PER_LINE, WORDS_PER_LINE};
use super::node::simd::{Portable, Search};
use std::sync::atomic::{AtomicU64, Ordering};
use tembo_pmem::prefetch_word_for_store;

/// The fingerprint of an unused slot.
pub(super) const UNUSED: u8 = 0;
pub(super) const WORDS: usize = 16;
/// With those that fill the last word, which are unused.
pub(super) const PADDED_SLOTS: usize = 8 * WORDS;
/// A one in each byte, and seven.
const LOW: u64 = 0x0101_0101_0101_0101;
const SEVEN: u64 = 0x7F7F_7F7F_7F7F_7F7F;
/// The bits of slots that there are.
const ALL: u128 = (1 << SLOTS) - 1;

/// The fingerprint of a key: never that of an unused slot.
#[inline(always)]
pub(super) fn fingerprint(key: u64) -> u8 {
    ((key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).max(1)
}

const LINE_MASK: u64 = (1 << SLOTS_PER_LINE) - 1;
/// Lines that a new leaf fills, and the others.
pub(super) const FIRST_LINES: u64 = 14;
const OTHER_LINES: u64 = (SLOTS / SLOTS_PER_LINE) as u64 - FIRST_LINES;

/// The lines in which a key's record likely is: one of those that a division fills, and one of those that insertions fill
/// afterwards. They are fetched while the fingerprints, which tell for sure, are still on their way.
#[inline(always)]
pub(super) fn lines_of(key: u64) -> [usize; 2] {
    let hash = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 24;
    let (first, other) = (hash & 0xFFFF, hash >> 16 & 0xFFFF);
    let first = (first * FIRST_LINES) >> 16;
    let other = FIRST_LINES + ((other * OTHER_LINES) >> 16);
    [first as usize, other as usize]
}

/// The likeliest of some slots, at least one, for the key whose lines these are: in the first of them if there is one, or else in the
/// other.
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

/// Gives out slots of a new leaf to the records that a division moves there: in their line among the first, as far as
/// that has room, and in no more lines unless these do not hold them all.
#[derive(Default)]
pub(super) struct NewPlaces {
    /// Slots in use of each line.
    used: [u8; SLOTS / SLOTS_PER_LINE],
    /// Lines before this one are full.
    line: usize,
}

/// No slot that there is, but in the bounds of arrays of [`PADDED_SLOTS`].
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

    /// The first slot that is left, after all keys had a chance for one of theirs. One for each record.
    pub(super) fn any(&mut self) -> usize {
        while usize::from(self.used[self.line]) == SLOTS_PER_LINE {
            self.line += 1;
        }
        self.used[self.line] += 1;
        SLOTS_PER_LINE * self.line + usize::from(self.used[self.line]) - 1
    }
}

#[repr(C, align(64))]
pub(super) struct Fingerprints {
    words: [AtomicU64; WORDS],
}

impl Fingerprints {
    pub(super) fn new(bytes: &[u8; PADDED_SLOTS]) -> Fingerprints {
        let (words, []) = bytes.as_chunks() else { unreachable!("whole words") };
        Fingerprints { words: std::array::from_fn(|i| AtomicU64::new(u64::from_le_bytes(words[i]))) }
    }

    /// Asks for both lines, to be stored to.
    #[inline(always)]
    pub(super) fn fetch_to_change(&self) {
        self.words.iter().step_by(WORDS_PER_LINE).for_each(prefetch_word_for_store);
    }

    /// The slots with this fingerprint, a bit each.
    #[inline(always)]
    pub(super) fn matches_by<S: Search>(&self, search: S, fingerprint: u8) -> u128 {
        search.equal_bytes(&self.words, fingerprint) & ALL
    }

    /// The same, for who has no hurry.
    pub(super) fn matches(&self, fingerprint: u8) -> u128 {
        self.matches_by(Portable, fingerprint)
    }

    /// The slots that are not in use.
    #[inline(always)]
    pub(super) fn unused_by<S: Search>(&self, search: S) -> u128 {
        self.matches_by(search, UNUSED)
    }

    /// The same, for who has no hurry.
    pub(super) fn unused(&self) -> u128 {
        self.unused_by(Portable)
    }

    /// The slots in use.
    #[inline]
    pub(super) fn used(&self) -> u128 {
        !self.matches(UNUSED) & ALL
    }

    /// Whether every slot is in use.
    pub(super) fn is_full(&self) -> bool {
        self.matches(UNUSED) == 0
    }

    /// Sets a slot's fingerprint; the caller has the leaf's lock.
    #[inline(always)]
    pub(super) fn set(&self, slot: usize, fingerprint: u8) {
        let (word, shift) = (&self.words[slot / 8], 8 * (slot % 8));
        let old = word.load(Ordering::Relaxed);
        // ORDER: release, so that who sees the fingerprint sees the record.
        word.store(old & !(0xFF << shift) | u64::from(fingerprint) << shift, Ordering::Release);
    }

    /// Marks slots as unused; the caller has the leaf's lock.
    pub(super) fn clear_all(&self, slots: u128) {
        for (i, word) in self.words.iter().enumerate() {
            let slots = (slots >> (8 * i)) as u8;
            if slots != 0 {
                // Bit i alone in byte i, then the high bit of each byte that is not zero, then ones in that byte.
                let spread = u64::from(slots).wrapping_mul(LOW) & 0x8040_2010_0804_0201;
                let high = spread.wrapping_add(SEVEN) | spread;
                let mask = (high >> 7 & LOW) * 0xFF;
                // ORDER: release, as in `set`.
                word.store(word.load(Ordering::Relaxed) & !mask, Ordering::Release);
            }
        }
    }

    /// Marks a slot as unused; the caller has the leaf's lock.
    #[inline(always)]
    pub(super) fn clear(&self, slot: usize) {
        self.set(slot, UNUSED);
    }
}

/// The numbers of the bits that are set.
pub(super) fn bits(mut mask: u128) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (bit < 128).then_some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same for every slot.
    fn all(fingerprint: u8) -> [u8; PADDED_SLOTS] {
        std::array::from_fn(|slot| if slot < SLOTS { fingerprint } else { UNUSED })
    }

    #[test]
    fn slots_are_found_by_their_fingerprints() {
        let mut bytes = [UNUSED; PADDED_SLOTS];
        for (i, byte) in bytes[..SLOTS].iter_mut().enumerate() {
            *byte = (i * 37 % 7) as u8;
        }
        let fingerprints = Fingerprints::new(&bytes);
        fingerprints.set(5, 0x80);
        fingerprints.clear(6);
        (bytes[5], bytes[6]) = (0x80, 0);
        for wanted in [0, 1, 2, 6, 0x80, 0xFF] {
            let expected = (0..SLOTS).filter(|i| bytes[*i] == wanted).fold(0, |mask, i| mask | 1u128 << i);
            assert_eq!(fingerprints.matches(wanted), expected, "{wanted}");
        }
        assert!(!fingerprints.is_full() && Fingerprints::new(&all(1)).is_full());
        assert_eq!(fingerprints.used().count_ones() as usize, bytes.iter().filter(|b| **b != 0).count());
        assert_eq!(bits(1 << 123 | 5).collect::<Vec<_>>(), [0, 2, 123]);
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
            let fingerprints = Fingerprints::new(&all(0xA5));
            fingerprints.clear_all(slots);
            assert_eq!((fingerprints.used(), fingerprints.matches(0xA5)), (ALL & !slots, ALL & !slots));
        }
    }

    #[test]
    fn no_key_has_the_fingerprint_of_an_unused_slot() {
        assert!((0..100_000u64).all(|key| fingerprint(key) != UNUSED));
    }
}
