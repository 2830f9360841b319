//! What the newest version owes to the one before it: words that a walk over both relies on, and that were not stored.
//!
//! Some words of a structure matter only to who compares two versions, the tree's stamps above all: they have to say that something
//! changed after a version if that version is held, and nobody asks about one that is not. When version W is begun, W - 1 is the only one
//! that may come to be held although nobody holds it. Storing words for that alone would make every change dearer, so that W owes
//! them: they are listed in memory when W becomes the newest. The writer of W + 1 finds whether W - 1 was held meanwhile, since the order
//! of stores in `readers.rs` says that nobody can begin to hold it later, and stores them then; otherwise nobody needs them. Until that
//! is decided, who compares W - 1 with W looks at the list.
//!
//! What is on media is in order at each moment for the versions that have names: naming W - 1 stores what W owes to it.

use super::create::Shared;
use super::readers::Retained;
use crate::error::Result;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use tembo_pool::Tx;

/// Words that a version did not store.
#[derive(Debug, Clone, Default)]
pub struct Owed {
    /// The version; what it stores in the words, too.
    version: u64,
    /// The words' offsets, in order.
    words: Vec<u64>,
}

impl Owed {
    /// What the word at `off` would be, if it is one of these.
    #[inline]
    pub(crate) fn word(&self, off: u64) -> Option<u64> {
        self.words.binary_search(&off).is_ok().then_some(self.version)
    }

    /// Stores the words as part of a transaction.
    pub(crate) fn store(&self, tx: &mut Tx<'_>) -> Result<()> {
        self.words.iter().try_for_each(|off| Ok(tx.store_line_words(*off, &[self.version])?))
    }
}

/// Words of a list that is not behind a lock.
const FEW: usize = 16;
/// A version that is not there: the list is being changed.
const CHANGING: u64 = 0;

/// What the newest version owes to the one before it. Set by the writer alone, and asked for by whoever holds two versions.
#[derive(Debug, Default)]
pub(super) struct OwedByNewest {
    version: AtomicU64,
    count: AtomicUsize,
    few: [AtomicU64; FEW],
    /// If they are more.
    many: Mutex<Vec<u64>>,
}

impl OwedByNewest {
    /// Whoever finds the version newest afterwards finds these words.
    #[inline]
    pub(super) fn set(&self, version: u64, words: &[u64]) {
        // ORDER: release, with the loads in `of`: who is told that nothing is owed any more sees what was stored in place of that.
        self.version.store(CHANGING, Ordering::Release);
        // ORDER: before any of the words, with the fence in `of`.
        fence(Ordering::Release);
        self.count.store(words.len(), Ordering::Relaxed);
        if words.len() <= FEW {
            self.few.iter().zip(words).for_each(|(to, word)| to.store(*word, Ordering::Relaxed));
        } else {
            self.set_many(words);
        }
        // ORDER: release, with the load in `of`: after all of the words.
        self.version.store(version, Ordering::Release);
    }

    #[cold]
    fn set_many(&self, words: &[u64]) {
        words.clone_into(&mut self.many.lock());
    }

    /// What this version owes, unless a later one has taken its place or is about to, which has stored it then if anybody needs it.
    fn of(&self, version: u64) -> Owed {
        debug_assert!(version != CHANGING);
        // ORDER: acquire, with both releases in `set`.
        if self.version.load(Ordering::Acquire) != version {
            return Owed::default();
        }
        let count = self.count.load(Ordering::Relaxed);
        let mut words: Vec<u64> = match self.few.get(..count) {
            Some(few) => few.iter().map(|word| word.load(Ordering::Relaxed)).collect(),
            None => self.many.lock().clone(),
        };
        // ORDER: whoever met a word of a later list finds now that the version is not this one any more.
        fence(Ordering::Acquire);
        // ORDER: acquire, as for the first load.
        if self.version.load(Ordering::Acquire) != version {
            return Owed::default();
        }
        words.sort_unstable();
        Owed { version, words }
    }
}

impl Shared {
    /// What a version that is held misses of what the one after it changed. Whoever compares the two asks when both are held, and
    /// the later one is there.
    pub(super) fn owed_to(&self, version: u64) -> Owed {
        self.owed.of(version + 1)
    }

    /// What the next version has to store, since some of these versions is owed it.
    pub(super) fn due(&self, retained: &Retained) -> Owed {
        let newest = self.current();
        match retained.held() {
            [] => Owed::default(),
            held if held.binary_search(&(newest - 1)).is_err() => Owed::default(),
            _ => self.owed.of(newest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_words_and_many_are_owed_by_the_version_that_was_set_last() {
        let owed = OwedByNewest::default();
        for (version, count) in [(7, 0), (8, 3), (9, FEW), (10, FEW + 1), (11, 100), (12, 2)] {
            let words: Vec<u64> = (0..count as u64).rev().map(|word| 8 * word).collect();
            owed.set(version, &words);
            let found = owed.of(version);
            assert!(
                (0..2 * count as u64)
                    .all(|word| { found.word(8 * word) == (word < count as u64).then_some(version) })
            );
            assert!(owed.of(version - 1).words.is_empty() && owed.of(version + 1).words.is_empty());
        }
    }

    /// A list belongs to one version as a whole, or the reader gets none.
    #[test]
    fn lists_that_are_read_while_they_change_are_never_mixed() {
        let owed = OwedByNewest::default();
        let versions = if cfg!(miri) { 50 } else { 100_000 };
        let words_of = |version: u64| vec![version; 1 + version as usize % (FEW + 2)];
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=versions).for_each(|version| owed.set(version, &words_of(version))));
            loop {
                let version = owed.version.load(Ordering::Acquire);
                if version == CHANGING {
                    continue;
                }
                let found = owed.of(version);
                assert!(found.words.is_empty() || found.words == words_of(version));
                if version == versions {
                    break;
                }
            }
        });
    }
}
