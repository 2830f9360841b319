//! The modes of an attempt, and what its reads and writes have to take into account.

/// How an attempt makes sure that everything it has read still holds when it commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValidationMode {
    /// In quiet times the attempt keeps no list of its reads. If it writes, it conflicts as soon as the clock
    /// moves. If it only reads, it keeps a list while commits leave the clock as it is.
    Optimistic,
    /// The attempt keeps a list of its reads.
    Validated,
    /// The attempt keeps a list, even if it only reads. It owns a place from the first write to it, not from
    /// its commit.
    Eager,
}

/// Reasons for a transaction not to load a word without a check, as bits, so that a read tests all of them at
/// once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadHazards(pub(super) u8);

impl ReadHazards {
    pub(crate) const NONE: ReadHazards = ReadHazards(0);
    /// The transaction has met a conflict: it is going to be run again, whatever it does.
    pub(crate) const DOOMED: ReadHazards = ReadHazards(1);
    /// Other transactions were storing when it began, or have been since. It reads by ownership records; see
    /// `orec.rs`.
    pub(crate) const RECORDS: ReadHazards = ReadHazards(2);
    /// The transaction is going to change older objects.
    pub(crate) const WRITTEN: ReadHazards = ReadHazards(4);
    /// The transaction has allocated objects.
    pub(crate) const FRESH: ReadHazards = ReadHazards(8);
    /// The transaction keeps a list of its reads, so that its clock can advance, and its commit can validate.
    pub(crate) const NOTES: ReadHazards = ReadHazards(16);
    /// The heap runs without isolation.
    #[cfg(feature = "research")]
    pub(crate) const BARE: ReadHazards = ReadHazards(32);
    /// A nested transaction has its state ([`ActiveTx::lend`](super::active_tx::ActiveTx::lend)). Set
    /// together with [`DOOMED`](Self::DOOMED), which every read and write tests unless it is quiet.
    pub(super) const LENT: ReadHazards = ReadHazards(64);

    /// Whether there are no other hazards than these.
    #[inline(always)]
    pub(crate) fn is_at_most(self, these: &[ReadHazards]) -> bool {
        these.iter().fold(self.0, |left, hazard| left & !hazard.0) == 0
    }

    pub(super) const fn with(self, other: ReadHazards, is: bool) -> ReadHazards {
        if is { ReadHazards(self.0 | other.0) } else { self }
    }
}
