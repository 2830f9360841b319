//! The cursors of SCAN: short names for the keys at which scans stopped.
//!
//! Redis's cursor is a position in a hash table and fits into 64 bits. A position between ordered keys is a
//! key and does not; so the server remembers it and the client gets a number for it:
//!
//! ```text
//!   cursor = nonce (46 bits) slot (16 bits)        never 0, which begins and ends a scan
//! ```
//!
//! Each scan under way has a slot, which holds its last two positions: the client may repeat its last call.
//! The slot of a scan that has come to its end is the next to be used. When slots or memory run out the scan
//! that was idle for longest is forgotten, and all are when the server stops. A forgotten cursor is refused,
//! so that no client takes half a scan for a whole one.

use std::collections::VecDeque;

use crate::random::Random;

/// Scans that can be under way.
const SLOTS_MAX: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 16;
const NONCE_BITS: u32 = 46;
/// Bytes of keys that are remembered.
const KEY_BYTES_MAX: usize = 64 << 20;

#[derive(Debug, Default)]
struct Position {
    cursor: u64,
    key: Box<[u8]>,
}

#[derive(Debug, Default)]
struct Slot {
    current: Position,
    previous: Position,
    /// When it was used, in ticks of the table.
    used: u64,
    /// Its scan has come to the end, which the client may yet ask for again.
    ended: bool,
}

impl Slot {
    fn key_bytes(&self) -> usize {
        self.current.key.len() + self.previous.key.len()
    }
}

/// The scans under way.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    slots: Vec<Slot>,
    /// Slots that were vacant, or whose scans had ended, when they were put here.
    spare: VecDeque<usize>,
    key_bytes: usize,
    ticks: u64,
}

impl Cursors {
    /// The key behind which the scan that got this cursor goes on.
    pub(crate) fn position(&self, cursor: u64) -> Option<&[u8]> {
        let slot = self.slots.get(slot_of(cursor))?;
        let mut positions = [&slot.current, &slot.previous].into_iter();
        let position = positions.find(|position| position.cursor == cursor && cursor != 0)?;
        Some(&position.key)
    }

    /// Remembers that a scan stopped at `key`, having come from `cursor` (0: from the beginning), which is
    /// known, and names the new position.
    pub(crate) fn advance(&mut self, cursor: u64, key: &[u8], random: &mut Random) -> u64 {
        self.ticks += 1;
        let index = if cursor == 0 { self.vacate() } else { slot_of(cursor) };
        let next = named(index, random);
        let slot = &mut self.slots[index];
        self.key_bytes -= slot.key_bytes();
        let key = Position { cursor: next, key: key.into() };
        let before = std::mem::replace(&mut slot.current, key);
        if before.cursor == cursor {
            slot.previous = before;
        }
        (slot.used, slot.ended) = (self.ticks, false);
        self.key_bytes += slot.key_bytes();
        self.forget_some();
        next
    }

    /// Notes that the scan that got this cursor has come to its end.
    pub(crate) fn end(&mut self, cursor: u64) {
        let index = slot_of(cursor);
        if self.position(cursor).is_some() && !std::mem::replace(&mut self.slots[index].ended, true) {
            self.spare.push_back(index);
        }
    }

    /// An empty slot.
    fn vacate(&mut self) -> usize {
        while let Some(index) = self.spare.pop_front() {
            if self.slots[index].used == 0 || self.slots[index].ended {
                self.key_bytes -= self.slots[index].key_bytes();
                self.slots[index] = Slot::default();
                return index;
            }
        }
        if self.slots.len() < SLOTS_MAX {
            self.slots.push(Slot::default());
            return self.slots.len() - 1;
        }
        // There is one, and it is put first among the spare ones.
        self.forget_oldest();
        self.spare.pop_front().unwrap_or(0)
    }

    /// Forgets scans until the others fit. The one used last stays.
    fn forget_some(&mut self) {
        while self.key_bytes > KEY_BYTES_MAX && self.forget_oldest().is_some() {}
    }

    fn forget_oldest(&mut self) -> Option<usize> {
        let in_use = self.slots.iter().enumerate().filter(|(_, slot)| slot.used != 0);
        let (index, _) =
            in_use.filter(|(_, slot)| slot.used != self.ticks).min_by_key(|(_, slot)| slot.used)?;
        self.key_bytes -= self.slots[index].key_bytes();
        self.slots[index] = Slot::default();
        self.spare.push_front(index);
        Some(index)
    }
}

fn slot_of(cursor: u64) -> usize {
    (cursor % SLOTS_MAX as u64) as usize
}

fn named(slot: usize, random: &mut Random) -> u64 {
    // The top bit of the nonce keeps it from being zero.
    let nonce = random.next() >> (64 - NONCE_BITS) | 1 << (NONCE_BITS - 1);
    nonce << SLOT_BITS | slot as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_is_followed_and_its_last_step_can_be_repeated() {
        let (mut cursors, mut random) = (Cursors::default(), Random::new());
        let first = cursors.advance(0, b"a", &mut random);
        let second = cursors.advance(first, b"b", &mut random);
        assert_eq!(cursors.position(first), Some(&b"a"[..]));
        assert_eq!(cursors.position(second), Some(&b"b"[..]));
        let again = cursors.advance(first, b"c", &mut random);
        assert_eq!(cursors.position(again), Some(&b"c"[..]));
        assert_eq!(cursors.position(first), Some(&b"a"[..]));
        assert_eq!(cursors.position(second), None);
        assert_eq!(cursors.slots.len(), 1);
    }

    #[test]
    fn unknown_cursors_are_refused() {
        let (mut cursors, mut random) = (Cursors::default(), Random::new());
        assert_eq!(cursors.position(17), None);
        let cursor = cursors.advance(0, b"a", &mut random);
        assert!(cursor < 1 << 62 && cursor != 0);
        assert_eq!(cursors.position(cursor ^ 1 << 20), None);
        assert_eq!(cursors.position(0), None, "0 is no position");
    }

    #[test]
    fn the_scan_idle_for_longest_is_forgotten() {
        let (mut cursors, mut random) = (Cursors::default(), Random::new());
        let names: Vec<_> = (0..SLOTS_MAX).map(|_| cursors.advance(0, b"key", &mut random)).collect();
        let busy = cursors.advance(names[0], b"further", &mut random);
        let new = cursors.advance(0, b"new", &mut random);
        assert_eq!(cursors.position(names[1]), None);
        for cursor in [busy, new, names[2], names[SLOTS_MAX - 1]] {
            assert!(cursors.position(cursor).is_some());
        }
    }

    #[test]
    fn the_slot_of_a_scan_that_ended_is_used_again() {
        let (mut cursors, mut random) = (Cursors::default(), Random::new());
        for _ in 0..100 {
            let first = cursors.advance(0, b"a", &mut random);
            let second = cursors.advance(first, b"b", &mut random);
            cursors.end(second);
            cursors.end(second);
            assert_eq!(cursors.position(second), Some(&b"b"[..]), "the last step can be repeated");
        }
        assert_eq!((cursors.slots.len(), cursors.spare.len()), (1, 1));
        // One that goes on after its end is not taken away.
        let first = cursors.advance(0, b"a", &mut random);
        cursors.end(first);
        let again = cursors.advance(first, b"b", &mut random);
        cursors.advance(0, b"c", &mut random);
        assert_eq!(cursors.position(again), Some(&b"b"[..]));
        assert_eq!(cursors.key_bytes, cursors.slots.iter().map(Slot::key_bytes).sum::<usize>());
    }

    #[test]
    fn long_keys_cannot_take_much_memory() {
        let (mut cursors, mut random) = (Cursors::default(), Random::new());
        for _ in 0..1000 {
            let cursor = cursors.advance(0, &[7; 65528], &mut random);
            assert!(cursors.position(cursor).is_some());
            assert!(cursors.key_bytes <= KEY_BYTES_MAX);
        }
        assert_eq!(cursors.key_bytes, cursors.slots.iter().map(Slot::key_bytes).sum::<usize>());
    }
}
