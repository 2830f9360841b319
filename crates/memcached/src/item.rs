//! An item as the value of a map's record.
//!
//! # Media layout
//!
//! The map `memcached` has a record for each item, whose key is the item's, and one with the empty key, which
//! no item has: the state ([`State`]). All numbers are little-endian.
//!
//! ```text
//!  item   0        4          8        16     17
//!         | flags  | deadline | unique | marks | data ...
//!  state  0        8             16         24
//!         | form   | unique_end  | flush_at |
//! ```
//!
//! # Invariants
//!
//! * I1: an item's value has at least 17 bytes. `deadline` is a time in seconds since 1970, or 0 for none. An
//!   item whose deadline is not later than now is absent, whether it was removed or not.
//! * I2: `unique` numbers of items are below `unique_end`, but for those that a client chose (the flag `E`),
//!   and the server gives each once. A process that opens the map continues from `unique_end`, so the numbers
//!   rise over restarts.
//! * I3: an item is absent from `flush_at` on, if that is not 0, unless it was stored later; the map is
//!   emptied at that time, before anything is stored in it.
//!
//! # Commit point and recovery
//!
//! Those of a batch ([`tembo::Batch`]): items of a turn, the state, and what they replace change together, or
//! not at all. Nothing has to be recovered.

/// Bytes before the data.
pub(crate) const HEAD_BYTES: usize = 17;

/// The key of the state's record.
pub(crate) const STATE_KEY: &[u8] = b"";

/// The first word of the state.
const FORM: u64 = 1;
const STATE_BYTES: usize = 24;

/// Somebody was told that the item is to be replaced (the flag `W`).
pub(crate) const MARK_WON: u8 = 1;
/// The item was marked as stale.
pub(crate) const MARK_STALE: u8 = 2;
/// The key was given in base64, and is returned so.
pub(crate) const MARK_BINARY: u8 = 4;

/// The part of an item before its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ItemHead {
    /// The number that the client gave to the item.
    pub(crate) flags: u32,
    /// In seconds since 1970; 0: none.
    pub(crate) deadline: u32,
    /// The number of this change.
    pub(crate) unique: u64,
    pub(crate) marks: u8,
}

/// An item.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<'v> {
    pub(crate) head: ItemHead,
    pub(crate) data: &'v [u8],
}

impl ItemHead {
    pub(crate) fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..4].copy_from_slice(&self.flags.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.deadline.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.unique.to_le_bytes());
        bytes[16] = self.marks;
        bytes
    }

    /// Whether the item's time has come.
    pub(crate) fn is_over(&self, now: u32) -> bool {
        self.deadline != 0 && self.deadline <= now
    }
}

impl<'v> Item<'v> {
    /// `None` if the value is too short for an item.
    pub(crate) fn decode(value: &'v [u8]) -> Option<Item<'v>> {
        let (head, data) = value.split_at_checked(HEAD_BYTES)?;
        let half = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let unique = u64::from_le_bytes(head[8..16].try_into().expect("eight bytes"));
        Some(Item { head: ItemHead { flags: half(0), deadline: half(4), unique, marks: head[16] }, data })
    }
}

/// The record with the empty key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// Unique numbers below this may have been given.
    pub(crate) unique_end: u64,
    /// The time at which all items that were stored before it are to go; 0: never.
    pub(crate) flush_at: u64,
}

impl State {
    /// That of an empty map.
    pub(crate) const NEW: State = State { unique_end: 1, flush_at: 0 };

    pub(crate) fn encode(&self) -> [u8; STATE_BYTES] {
        let mut bytes = [0; STATE_BYTES];
        bytes[..8].copy_from_slice(&FORM.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.unique_end.to_le_bytes());
        bytes[16..].copy_from_slice(&self.flush_at.to_le_bytes());
        bytes
    }

    /// The fault, if this is no state.
    pub(crate) fn decode(value: &[u8]) -> Result<State, String> {
        let words: Vec<u64> = value.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        match (words.as_slice(), value.len()) {
            (&[FORM, unique_end, flush_at], STATE_BYTES) => Ok(State { unique_end, flush_at }),
            (&[form, ..], _) => Err(format!("its record with the empty key has form {form}, not {FORM}")),
            _ => Err(format!("its record with the empty key has {} bytes", value.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_read_as_written() {
        let head = ItemHead { flags: 7, deadline: u32::MAX, unique: 1 << 40, marks: MARK_STALE };
        let value = [&head.encode()[..], b"data"].concat();
        let item = Item::decode(&value).unwrap();
        assert_eq!((item.head, item.data), (head, &b"data"[..]));
        assert!(Item::decode(&value[..HEAD_BYTES - 1]).is_none());
        assert!(!ItemHead::default().is_over(u32::MAX));
        let due = ItemHead { deadline: 5, ..head };
        assert_eq!((due.is_over(4), due.is_over(5)), (false, true));
    }

    #[test]
    fn a_state_is_read_as_written_and_nothing_else_is() {
        let state = State { unique_end: 9, flush_at: 3 };
        assert_eq!(State::decode(&state.encode()), Ok(state));
        for other in [&b""[..], b"12345678", &[0; 24], &[1; 24], &[state.encode().as_slice(), b"x"].concat()]
        {
            assert!(State::decode(other).is_err(), "{other:?}");
        }
    }
}
