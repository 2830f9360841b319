//! How keys lie in the maps of a database: as they are, or in a cluster behind their slots.
//!
//! In cluster mode a map's key is a *place*: the slot of the user's key in two bytes, big-endian, and the
//! key. Thus a slot is a range of the map. All that the maps of a database and the list of deadlines have is
//! places, and so are the positions of scans; everything else has the user's keys. This file turns one into
//! the other.

use std::ops::{Bound, ControlFlow, RangeInclusive};

use tembo::{Counting, Map, Pool};

use super::batch::Batch;
use super::format::{CLUSTER, DATABASES, KEY_BYTES_MAX, LISTS, ORDERED};
use crate::cluster::slot::{SLOTS, slot_of, slot_of_prefix};
use crate::fault::{Answer, KEY_TOO_LONG};

/// The bytes of a slot in front of a key.
const SLOT_BYTES: usize = 2;

/// The bounds of a range of places.
pub(super) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// How keys lie in the maps of a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Keys are stored as they are.
    #[default]
    Plain,
    /// Keys are stored behind their slots.
    Slots,
}

fn place_in(slot: u16, key: &[u8]) -> Vec<u8> {
    [&slot.to_be_bytes(), key].concat()
}

/// The place of a key in cluster mode.
pub(crate) fn place_of(key: &[u8]) -> Vec<u8> {
    place_in(slot_of(key), key)
}

/// The range of the places with this beginning.
fn beginning_with(place: Vec<u8>) -> Bounds {
    let end = end_of(&place);
    (Bound::Included(place), end)
}

impl Layout {
    /// The layout of a pool: that of a cluster's node if the pool has that map.
    pub(crate) fn of(pool: &Pool) -> Result<Self, tembo::Error> {
        Ok(if pool.find_map(CLUSTER)?.is_some() { Layout::Slots } else { Layout::Plain })
    }

    /// The names of the two maps of a number.
    pub(crate) fn map_names(self, number: usize) -> (String, String) {
        let name = match self {
            Layout::Plain => "db",
            Layout::Slots => "slots",
        };
        (format!("{name}{number}"), format!("{name}{number}.expires"))
    }

    /// How many databases clients may use.
    pub(crate) fn databases(self) -> usize {
        match self {
            Layout::Plain => DATABASES,
            Layout::Slots => 1,
        }
    }

    /// The place of a key, in `room` if it takes some.
    #[inline(always)]
    pub(crate) fn place<'k>(self, key: &'k [u8], room: &'k mut Vec<u8>) -> &'k [u8] {
        match self {
            Layout::Plain => key,
            Layout::Slots => {
                room.clear();
                room.extend_from_slice(&slot_of(key).to_be_bytes());
                room.extend_from_slice(key);
                room
            }
        }
    }

    /// As [`place`](Self::place).
    ///
    /// # Errors
    /// The key is too long for a map.
    #[inline(always)]
    pub(super) fn place_within<'k>(self, key: &'k [u8], room: &'k mut Vec<u8>) -> Answer<&'k [u8]> {
        let place = self.place(key, room);
        if place.len() > KEY_BYTES_MAX { Err(KEY_TOO_LONG) } else { Ok(place) }
    }

    /// The key at a place.
    #[inline(always)]
    pub(crate) fn key(self, place: &[u8]) -> &[u8] {
        match self {
            Layout::Plain => place,
            Layout::Slots => place.get(SLOT_BYTES..).unwrap_or_default(),
        }
    }

    /// Whether a key lies where it belongs.
    pub(crate) fn is_sound(self, place: &[u8]) -> bool {
        match (self, place.split_first_chunk()) {
            (Layout::Plain, _) => true,
            (Layout::Slots, Some((slot, key))) => u16::from_be_bytes(*slot) == slot_of(key),
            (Layout::Slots, None) => false,
        }
    }

    /// The beginning of the places of all keys with this beginning, if they have one in common.
    pub(super) fn common_place(self, prefix: &[u8]) -> Option<Vec<u8>> {
        match self {
            Layout::Slots if !prefix.is_empty() => slot_of_prefix(prefix).map(|slot| place_in(slot, prefix)),
            _ => Some(prefix.to_vec()),
        }
    }

    /// The ranges of the keys with this beginning.
    pub(super) fn ranges(self, batch: &Batch<'_>, map: &Map, prefix: &[u8]) -> Answer<Vec<Bounds>> {
        if let Some(place) = self.common_place(prefix) {
            return Ok(vec![beginning_with(place)]);
        }
        let (mut ranges, mut from) = (Vec::new(), 0);
        while let Some(slot) = next_slot(batch, map, from)? {
            ranges.push(beginning_with(place_in(slot, prefix)));
            from = slot + 1;
        }
        Ok(ranges)
    }
}

/// The first slot from `from` on that has keys.
fn next_slot(batch: &Batch<'_>, map: &Map, from: u16) -> Answer<Option<u16>> {
    let mut found = None;
    let bounds = (Bound::Included(from.to_be_bytes().to_vec()), Bound::Unbounded);
    batch.walk(map, bounds, |place, _| {
        found = place.first_chunk().map(|slot| u16::from_be_bytes(*slot));
        ControlFlow::Break(())
    })?;
    // Bytes that are no slot are damage, which the check names.
    Ok(found.filter(|&slot| (from..SLOTS).contains(&slot)))
}

/// The range of the places of slots.
pub(super) fn range_of_slots(slots: &RangeInclusive<u16>) -> Bounds {
    let begin = slots.start().to_be_bytes().to_vec();
    (Bound::Included(begin), Bound::Excluded((slots.end() + 1).to_be_bytes().to_vec()))
}

/// The place at which the keys with this beginning continue, if the key at `place` does not have it; `None`
/// if it does.
pub(super) fn seek(place: &[u8], prefix: &[u8]) -> Option<Vec<u8>> {
    let (slot, key) = place.split_first_chunk()?;
    let slot = u16::from_be_bytes(*slot);
    match key {
        key if key.starts_with(prefix) => None,
        key if key < prefix => Some(place_in(slot, prefix)),
        // No slot has the largest number that fits into two bytes, so such a place is damaged, and the search
        // goes on directly behind it.
        _ => Some(slot.checked_add(1).map_or_else(|| [place, &[0]].concat(), |slot| place_in(slot, prefix))),
    }
}

/// The end of the range of keys that begin with `prefix`: the smallest key that is greater than all of them.
pub(super) fn end_of(prefix: &[u8]) -> Bound<Vec<u8>> {
    let Some(last) = prefix.iter().rposition(|&byte| byte != u8::MAX) else {
        return Bound::Unbounded;
    };
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Bound::Excluded(end)
}

/// The sums that a map of this name keeps if this server creates it.
pub fn counting_of(name: &str) -> Counting {
    match name {
        ORDERED => Counting::Records,
        LISTS => Counting::Weights,
        name if [Layout::Plain, Layout::Slots]
            .into_iter()
            .any(|layout| (0..DATABASES).any(|number| layout.map_names(number).0 == name)) =>
        {
            Counting::Records
        }
        _ => Counting::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_the_slot_and_the_key() {
        let mut room = b"left over".to_vec();
        assert_eq!(Layout::Slots.place(b"foo", &mut room), [&[47, 150][..], b"foo"].concat());
        assert_eq!(Layout::Slots.key(&[47, 150, b'f']), b"f");
        assert!(Layout::Slots.is_sound(&place_in(12_182, b"foo")));
        assert!(!Layout::Slots.is_sound(&place_in(12_183, b"foo")) && !Layout::Slots.is_sound(b"f"));
        assert_eq!(Layout::Plain.place(b"foo", &mut room), b"foo");
    }

    #[test]
    fn a_walk_goes_on_at_the_next_place_that_may_begin_so() {
        let place = |slot, key: &[u8]| place_in(slot, key);
        assert_eq!(seek(&place(5, b"user:1"), b"user:"), None);
        assert_eq!(seek(&place(5, b"abc"), b"user:"), Some(place(5, b"user:")));
        assert_eq!(seek(&place(5, b"zoo"), b"user:"), Some(place(6, b"user:")));
        assert_eq!(seek(b"x", b"user:"), None);
    }

    #[test]
    fn the_end_of_a_range_is_behind_all_that_begin_so() {
        for (prefix, end) in
            [(&b"a"[..], Some(&b"b"[..])), (b"a\xff", Some(b"b")), (b"\xff\xff", None), (b"", None)]
        {
            let expected = end.map_or(Bound::Unbounded, |end| Bound::Excluded(end.to_vec()));
            assert_eq!(end_of(prefix), expected, "{prefix:?}");
        }
    }
}
