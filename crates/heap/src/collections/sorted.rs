//! Keys in slots, and their order.
//!
//! An entry stays in its slot when others are inserted and removed: only bytes of the [`Order`] move, which
//! lie in one line. An insertion therefore changes two lines, however many entries there are.

use crate::error::{Error, Result, corrupt};
use crate::objects::brand::Brand;
use crate::objects::place::Ref;
use crate::tx::bulk_read::{value_in, word_in as word};
use crate::tx::{ReadTx, Tx};
use crate::{Persist, Plain};
use std::cmp::Ordering;
use std::hint::select_unpredictable;
use std::sync::atomic::AtomicU64;

/// Slots of a node.
pub(crate) const SLOTS: usize = 31;
/// Words of an [`Order`].
const ORDER_WORDS: usize = 4;

/// The order of a node's slots, a byte each. The first byte is the number of slots in use; their numbers
/// follow in the order of their keys, and then the numbers of the free slots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Persist, Plain)]
#[persist(crate = crate, name = "PMap::Order")]
#[repr(C)]
pub(crate) struct Order {
    words: [u64; ORDER_WORDS],
}

impl Order {
    /// The first `count` slots in their order.
    pub(crate) fn of_first(count: usize) -> Order {
        let mut bytes = std::array::from_fn(|i| (i as u8).saturating_sub(1));
        bytes[0] = count as u8;
        Order::of_bytes(bytes)
    }

    #[inline(always)]
    fn of_bytes(bytes: [u8; SLOTS + 1]) -> Order {
        Order {
            words: std::array::from_fn(|i| u64::from_le_bytes(std::array::from_fn(|j| bytes[8 * i + j]))),
        }
    }

    #[inline(always)]
    fn bytes(&self) -> [u8; SLOTS + 1] {
        let mut bytes = [0; SLOTS + 1];
        for (out, word) in bytes.chunks_exact_mut(8).zip(self.words) {
            out.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Whether all bytes are valid.
    #[inline(always)]
    fn is_sane(&self) -> bool {
        const ONES: u64 = 0x0101_0101_0101_0101;
        const TOO_MUCH: u64 = !(SLOTS as u64 * ONES);
        // `SLOTS` is all ones in binary. The count, and each slot number plus one, are at most that, so a
        // higher bit is damage.
        let [first, rest @ ..] = self.words;
        let bits = first | (first.wrapping_add(ONES - 1));
        rest.iter().fold(bits, |bits, word| bits | word | word.wrapping_add(ONES)) & TOO_MUCH == 0
    }

    /// Number of entries.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        (self.words[0] & 0xFF) as usize
    }

    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.len() == SLOTS
    }

    /// The slot of the entry `at`; a free slot if `at` is not below the number of entries.
    #[inline(always)]
    pub(crate) fn slot(&self, at: usize) -> usize {
        let at = at + 1;
        (self.words[at / 8 % ORDER_WORDS] >> (at % 8 * 8) & 0xFF) as usize
    }

    /// The child before the entry `at`: the first one, or the one of the entry before.
    #[inline(always)]
    pub(crate) fn child(&self, at: usize) -> usize {
        if at == 0 { 0 } else { self.slot(at - 1) + 1 }
    }

    /// Makes room for an entry `at`, unless all slots are in use. Returns its slot.
    #[inline]
    pub(crate) fn insert(&mut self, at: usize) -> usize {
        let mut bytes = self.bytes();
        let len = self.len();
        let slot = bytes[len + 1];
        bytes.copy_within(at + 1..len + 1, at + 2);
        bytes[at + 1] = slot;
        bytes[0] += 1;
        *self = Order::of_bytes(bytes);
        usize::from(slot)
    }

    /// Removes the entry `at`. Returns the slot that it had.
    pub(crate) fn remove(&mut self, at: usize) -> usize {
        let mut bytes = self.bytes();
        let len = self.len();
        let slot = bytes[at + 1];
        bytes.copy_within(at + 2..len + 1, at + 1);
        bytes[len] = slot;
        bytes[0] -= 1;
        *self = Order::of_bytes(bytes);
        usize::from(slot)
    }

    /// Removes all entries from `len` on.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.words[0] = self.words[0] & !0xFF | len as u64;
    }
}

/// A node's order and the slots after it.
#[derive(Debug)]
pub struct Sorted<'t, B: Brand, K: Persist> {
    /// The offset of the order; the first key is 32 bytes further.
    pub(crate) order: Ref<'t, B, Order>,
    /// The distance between two keys.
    pub(crate) entry_bytes: usize,
    /// The distance from the order to the children, if any: a word for their kind, and one for each.
    pub(crate) children_off: Option<usize>,
    pub(crate) keys: std::marker::PhantomData<fn() -> K>,
}

impl<B: Brand, K: Persist> Copy for Sorted<'_, B, K> {}
impl<B: Brand, K: Persist> Clone for Sorted<'_, B, K> {
    fn clone(&self) -> Self {
        *self
    }
}

/// The result of a search in a node.
#[derive(Debug, Clone, Copy, Default)]
pub struct Found {
    pub(crate) order: Order,
    /// The entry with the key, or the entry before which the key belongs.
    pub(crate) at: usize,
    /// 1 if the key exists, else 0. It is a whole word, so that copying all fields does not wait for a
    /// partial store.
    is_there: u64,
    /// The offset of the child before it, 0 in a leaf, and the kind of the children.
    pub(crate) child: u64,
    pub(crate) children_kind: u64,
}

impl Found {
    /// Whether the entry has the key.
    #[inline(always)]
    pub(crate) fn is_there(&self) -> bool {
        self.is_there != 0
    }
}

/// The value of [`Found::at`] for a damaged node.
const NO_NODE: usize = usize::MAX;

impl<'t, B: Brand, K: Persist> Sorted<'t, B, K> {
    /// Words from the order to the last slot or child.
    #[inline(always)]
    fn words(self) -> usize {
        match self.children_off {
            Some(off) => off / 8 + 1 + SLOTS + 1,
            None => ORDER_WORDS + (SLOTS * self.entry_bytes).div_ceil(8),
        }
    }

    #[inline(always)]
    fn key_off(self, slot: usize) -> usize {
        8 * ORDER_WORDS + slot * self.entry_bytes
    }

    fn key(self, slot: usize) -> Ref<'t, B, K> {
        self.order.part(self.key_off(slot) as u64)
    }

    #[cold]
    pub(crate) fn damage(self) -> Error {
        corrupt("a map's node", self.order.off, format!("up to {SLOTS} keys in order"), "something else")
    }

    /// The order, checked.
    #[inline]
    pub(crate) fn order(self, tx: &ReadTx<'t, B>) -> Result<Order> {
        let order = tx.get(self.order)?;
        if order.is_sane() { Ok(order) } else { Err(self.damage()) }
    }

    /// Writes the words of the order that have changed.
    #[inline]
    pub(crate) fn set_order(self, tx: &mut Tx<'t, B>, old: &Order, new: &Order) -> Result<()> {
        tx.own_place(self.order)?;
        let differs = |i: &usize| old.words[*i] != new.words[*i];
        let (Some(first), Some(last)) = ((0..ORDER_WORDS).find(differs), (0..ORDER_WORDS).rfind(differs))
        else {
            return Ok(());
        };
        tx.write_words(self.order.key, self.order.off + 8 * first as u64, &new.words[first..=last])
    }

    /// Looks for a key by comparisons, each a read of its own.
    pub(crate) fn find_by(
        self,
        tx: &ReadTx<'t, B>,
        compare: impl Fn(Ref<'t, B, K>) -> Result<Ordering>,
    ) -> Result<Found> {
        let order = self.order(tx)?;
        let (mut low, mut high, mut is_there) = (0, order.len(), false);
        while low < high {
            let middle = (low + high) / 2;
            match compare(self.key(order.slot(middle)))? {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => (low, high, is_there) = (middle, middle, true),
                Ordering::Greater => high = middle,
            }
        }
        let is_there = u64::from(is_there);
        let mut found = Found { order, at: low, is_there, child: 0, children_kind: 0 };
        if let Some(off) = self.children_off {
            let kind: Ref<'t, B, u64> = self.order.part(off as u64);
            found.children_kind = tx.get(kind)?;
            found.child = tx.get(kind.part(8 + 8 * order.child(low) as u64))?;
        }
        Ok(found)
    }

    /// Searches a key in one bulk read.
    #[inline(always)]
    pub(crate) fn find_plain(self, tx: &ReadTx<'t, B>, key: &K) -> Result<Found>
    where
        K: Plain + Ord,
    {
        let found = tx.bulk_read(
            self.order.key,
            self.order.off,
            self.words(),
            #[inline(always)]
            |words| self.find_in(words, key),
        )?;
        if found.at == NO_NODE { Err(self.damage()) } else { Ok(found) }
    }

    /// Compares the key in a slot with another one; `None` if the words are no valid node.
    #[inline(always)]
    fn compare_in(self, words: &[AtomicU64], slot: usize, key: &K) -> Option<Ordering>
    where
        K: Plain + Ord,
    {
        Some(value_in::<K>(words, self.key_off(slot))?.cmp(key))
    }

    /// The result of a search in these words.
    #[inline(always)]
    fn find_in(self, words: &[AtomicU64], key: &K) -> Found
    where
        K: Plain + Ord,
    {
        let mut found = Found { order: Order { words: [0; ORDER_WORDS] }, at: NO_NODE, ..Found::default() };
        for (i, out) in found.order.words.iter_mut().enumerate() {
            let Some(word) = word(words, i) else { return found };
            *out = word;
        }
        if !found.order.is_sane() {
            return found;
        }
        let bytes = found.order.bytes();
        let (mut at, mut size) = (0, found.order.len());
        if size > 0 {
            // The answer is in `at..at + size`, or after it; no branch depends on the keys.
            while size > 1 {
                let half = size / 2;
                let slot = bytes[(at + half + 1) % bytes.len()];
                let Some(order) = self.compare_in(words, slot.into(), key) else { return found };
                at = select_unpredictable(order == Ordering::Greater, at, at + half);
                size -= half;
            }
            let slot = bytes[(at + 1) % bytes.len()];
            let Some(last) = self.compare_in(words, slot.into(), key) else { return found };
            found.is_there = u64::from(last == Ordering::Equal);
            at += usize::from(last == Ordering::Less);
        }
        if let Some(off) = self.children_off {
            let before = if at == 0 { 0 } else { usize::from(bytes[at % bytes.len()]) + 1 };
            let (Some(kind), Some(child)) = (word(words, off / 8), word(words, off / 8 + 1 + before)) else {
                return found;
            };
            (found.children_kind, found.child) = (kind, child);
        }
        found.at = at;
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_as_a_list_of_slots() {
        let mut order = Order::of_first(0);
        let mut model: Vec<usize> = Vec::new();
        let mut random = 1_u64;
        for _ in 0..10_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = (random >> 33) as usize;
            if !order.is_full() && (model.is_empty() || random >> 63 == 0) {
                let at = number % (model.len() + 1);
                let slot = order.insert(at);
                assert!(slot < SLOTS && !model.contains(&slot));
                model.insert(at, slot);
            } else {
                let at = number % model.len();
                assert_eq!(order.remove(at), model.remove(at));
            }
            assert!(order.is_sane());
            assert_eq!((0..order.len()).map(|at| order.slot(at)).collect::<Vec<_>>(), model);
        }
    }

    #[test]
    fn an_order_with_a_number_that_no_slot_has_is_not_sane() {
        for byte in 0..=SLOTS {
            for number in 0..=255 {
                let mut bytes = Order::of_first(7).bytes();
                bytes[byte] = number;
                let most = if byte == 0 { SLOTS } else { SLOTS - 1 };
                assert_eq!(
                    Order::of_bytes(bytes).is_sane(),
                    usize::from(number) <= most,
                    "{number} at {byte}"
                );
            }
        }
    }
}
