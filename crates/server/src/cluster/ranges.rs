//! Sets of slots, as ranges.

use std::fmt;
use std::ops::RangeInclusive;

use super::slot::SLOTS;
use super::topology::{Error, parse_range, shown_range};

/// Slots, in ascending ranges that do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Ranges(Vec<RangeInclusive<u16>>);

impl Ranges {
    /// The slots of ranges in any order, however often each is named.
    pub(crate) fn new(ranges: impl IntoIterator<Item = RangeInclusive<u16>>) -> Self {
        let mut named = vec![false; SLOTS.into()];
        for range in ranges {
            named[usize::from(*range.start())..=usize::from(*range.end())].fill(true);
        }
        Ranges::of((0..SLOTS).filter(|&slot| named[usize::from(slot)]))
    }

    /// Slots that are in order.
    fn of(slots: impl Iterator<Item = u16>) -> Self {
        let slots: Vec<u16> = slots.collect();
        let runs = slots.chunk_by(|one, next| one + 1 == *next);
        Ranges(runs.map(|run| run[0]..=run[run.len() - 1]).collect())
    }

    /// Keeps the slots for which something holds.
    pub(crate) fn retain(&mut self, stays: impl Fn(u16) -> bool) {
        *self = Ranges::of(self.slots().filter(|&slot| stays(slot)));
    }

    /// Reads ranges, as a topology has them, between commas.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        // At most the number of slots, since the text may come from any client.
        if text.split(',').take(usize::from(SLOTS) + 1).count() > SLOTS.into() {
            return Err(Error::Slots("too many ranges".to_owned()));
        }
        let ranges: Result<Vec<_>, _> = text.split(',').map(parse_range).collect();
        ranges.map(Ranges::new)
    }

    pub(crate) fn as_slice(&self) -> &[RangeInclusive<u16>] {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether these are all slots.
    pub(crate) fn is_everything(&self) -> bool {
        self.0 == [0..=SLOTS - 1]
    }

    /// The slots, in order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter().cloned().flatten()
    }

    pub(crate) fn contains(&self, slot: u16) -> bool {
        let at = self.0.partition_point(|range| *range.end() < slot);
        self.0.get(at).is_some_and(|range| range.contains(&slot))
    }

    /// Whether any slot is in both sets of ranges.
    pub(crate) fn touches(&self, other: &Ranges) -> bool {
        self.0
            .iter()
            .any(|one| other.0.iter().any(|two| one.start() <= two.end() && two.start() <= one.end()))
    }

    /// Adds slots.
    pub(crate) fn add(&mut self, other: &Ranges) {
        *self = Ranges::new(self.0.drain(..).chain(other.0.iter().cloned()));
    }

    /// Takes slots away.
    pub(crate) fn subtract(&mut self, other: &Ranges) {
        if self.touches(other) {
            self.retain(|slot| !other.contains(slot));
        }
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(shown_range).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_sets() {
        let mut set = Ranges::new([7..=9, 3..=3, 10..=12, 8..=8]);
        assert_eq!(set.to_string(), "3,7-12");
        assert_eq!(Ranges::parse("7-12,3").as_ref(), Ok(&set));
        assert!(set.contains(3) && set.contains(12) && !set.contains(4) && !set.contains(13));
        let other = Ranges::new([12..=20]);
        assert!(set.touches(&other) && !set.touches(&Ranges::new([4..=6])));
        set.subtract(&other);
        assert_eq!(set.to_string(), "3,7-11");
        set.add(&other);
        assert_eq!(set.to_string(), "3,7-20");
        assert_eq!(set.slots().count(), 15);
        assert!(Ranges::new([0..=16_383]).is_everything() && Ranges::default().is_empty());
        assert!(Ranges::parse("").is_err() && Ranges::parse("9-7").is_err());
        assert!(Ranges::parse(&["1"; 16_384].join(",")).is_ok());
        assert!(Ranges::parse(&["1"; 16_385].join(",")).is_err());
    }
}
