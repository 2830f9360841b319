//! The versions of a key that must stay.

use crate::active::Asked;
use crate::error::Result;
use crate::keyspace::KeyspaceInner;
use crate::retention::{Retention, steady, window_start};
use crate::space::Account;
use crate::versions::{Version, Words};

/// Which versions of a key are to stay: those that snapshots need, and those that its keyspace retains at
/// this moment.
#[derive(Clone, Copy)]
pub(crate) struct Keep<'n> {
    needed: &'n Asked<'n>,
    versions: usize,
    /// Versions that were followed by one with a number from here on.
    followed_from: u64,
    /// Versions that were followed by one with a lower number are not retained.
    cut: u64,
    /// Where it is noted what goes.
    account: Option<Account<'n>>,
}

impl<'n> Keep<'n> {
    pub(crate) fn new(
        needed: &'n Asked<'n>,
        keyspace: &KeyspaceInner,
        now_unix_ns: u64,
        account: Option<Account<'n>>,
    ) -> Keep<'n> {
        let (versions, followed_from) = match keyspace.retention() {
            Retention::None => (1, u64::MAX),
            Retention::Versions(count) => ((count as usize).max(1), u64::MAX),
            Retention::For(time) => (1, window_start(time, steady(now_unix_ns))),
            Retention::Within(_) | Retention::All => (1, 0),
        };
        Keep { needed, versions, followed_from, cut: keyspace.cut(), account }
    }

    /// Whether a version stays, which another with the number `next` follows. `newer` of its key are newer.
    pub(crate) fn has(&self, newer: usize, number: u64, next: u64) -> bool {
        let is_retained = next >= self.cut && (newer < self.versions || next >= self.followed_from);
        is_retained || self.needed.has(number, next)
    }

    /// Whether a tombstone that no version precedes can go: every snapshot that can be read is younger.
    pub(crate) fn is_past(&self, tombstone: u64) -> bool {
        let is_outside = tombstone < self.followed_from || tombstone < self.cut;
        tombstone <= self.needed.needed().first() && is_outside
    }

    /// Notes that a version is collected, which one with the number `next` follows.
    pub(crate) fn note_collected(&self, words: &impl Words, version: Version, next: u64) -> Result<()> {
        self.account.map_or(Ok(()), |account| account.collect(words, version, next))
    }

    /// Notes that a table is removed with its tombstone.
    pub(crate) fn note_removed(&self, words: &impl Words, key: &[u8], last: Version) -> Result<()> {
        self.account.map_or(Ok(()), |account| account.remove(words, key, last))
    }
}
