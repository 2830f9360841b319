//! The bits of the header's `incompatible` and `features`, and the groups that they form
//! (`file/features.rs`).

/// A part of the format that is not in every pool. A build that does not know it must notice it, and not pass
/// over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Feature {
    /// The header leads to objects that have no name any more and are freed step by step
    /// ([`Tx::set_dropped`](crate::Tx::set_dropped)).
    Dropped,
    /// The header says how the pool was last opened (`PmHeader::opening`). Earlier builds take that word for
    /// damage.
    Opening,
    /// The header leads to a journal, which has the newest state of some lines of a pool that was not closed.
    Journal,
    /// There are transactional stores among the roots.
    Stores,
    /// There may be blocks of fine size classes (`alloc/classes.rs`).
    FineClasses,
    /// There may be blocks of wide size classes, between two chunks of 16 KiB and four.
    WideClasses,
}

/// Every feature that this build knows.
const KNOWN: [Feature; 6] = [
    Feature::Dropped,
    Feature::Opening,
    Feature::Journal,
    Feature::Stores,
    Feature::FineClasses,
    Feature::WideClasses,
];
/// The groups of bits.
pub(crate) const OF_ROOTS: u64 = 0xFF << 16;
pub(crate) const OF_CLASSES: u64 = 0xFF << 24;

impl Feature {
    /// Its bit in the header.
    pub(crate) const fn bit(self) -> u64 {
        match self {
            Feature::Dropped => 1 << 0,
            Feature::Opening => 1 << 1,
            Feature::Journal => 1 << 2,
            Feature::Stores => 1 << 16,
            Feature::FineClasses => 1 << 24,
            Feature::WideClasses => 1 << 25,
        }
    }
}

/// The bits that this build does not know.
pub(crate) fn unknown(features: u64) -> u64 {
    KNOWN.iter().fold(features, |left, feature| left & !feature.bit())
}

/// Whether there are size classes that this build does not know.
pub(crate) fn has_unknown_classes(features: u64) -> bool {
    unknown(features) & OF_CLASSES != 0
}

/// The meaning of bits, in words.
pub(crate) fn in_words(bits: u64) -> &'static str {
    match (bits & OF_ROOTS != 0, bits & OF_CLASSES != 0, bits & !(OF_ROOTS | OF_CLASSES) != 0) {
        (_, _, true) => "structures",
        (_, true, _) => "size classes of blocks",
        _ => "kinds of maps or heaps",
    }
}
