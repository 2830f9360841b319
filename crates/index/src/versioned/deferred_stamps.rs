//! Stamps that the newest version has not stored yet for the version before it.
//!
//! A stamp matters only to a comparison of two versions: it has to tell that something changed after the
//! earlier one, if that is held. Once W has begun, only version W - 1 can still gain its first reader. To
//! store stamps for that case alone would add words to every change. So W defers them: it lists them in
//! memory when it becomes the newest version. The writer of W + 1 knows whether W - 1 gained a reader,
//! because no reader can begin to hold it later (the order of stores in `readers.rs`). It stores the stamps
//! then, or drops them if nobody needs them. Until that is decided, a comparison of W - 1 with W also reads
//! the list.
//!
//! Media alone suffices for versions with names: naming W - 1 stores the stamps that W deferred for it.

use crate::error::Result;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use tembo_pool::Tx;

/// Words that a version has not stored.
#[derive(Debug, Clone, Default)]
pub struct DeferredStamps {
    /// The version; what it stores in the words, too.
    version: u64,
    /// The words' offsets, in order.
    words: Vec<u64>,
}

impl DeferredStamps {
    /// The value of the word at `off`, if it is one of these.
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

/// The deferred stamps of the newest version. Set by the writer alone; read by holders of two versions.
#[derive(Debug, Default)]
pub(super) struct NewestDeferredStamps {
    version: AtomicU64,
    count: AtomicUsize,
    few: [AtomicU64; FEW],
    /// If they are more.
    many: Mutex<Vec<u64>>,
}

impl NewestDeferredStamps {
    /// A thread that then finds the version newest finds these words.
    #[inline]
    pub(super) fn set(&self, version: u64, words: &[u64]) {
        // ORDER: release, with the loads in `of`: a thread that finds nothing deferred any more sees the
        // words stored instead.
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

    /// The stamps that this version deferred. Empty if a later version has taken its place, or is about to:
    /// that one has stored them if anybody needs them.
    pub(super) fn of(&self, version: u64) -> DeferredStamps {
        debug_assert!(version != CHANGING);
        // ORDER: acquire, with both releases in `set`.
        if self.version.load(Ordering::Acquire) != version {
            return DeferredStamps::default();
        }
        let count = self.count.load(Ordering::Relaxed);
        let mut words: Vec<u64> = match self.few.get(..count) {
            Some(few) => few.iter().map(|word| word.load(Ordering::Relaxed)).collect(),
            None => self.many.lock().clone(),
        };
        // ORDER: a thread that read a word of a later list finds now that the version is another.
        fence(Ordering::Acquire);
        // ORDER: acquire, as for the first load.
        if self.version.load(Ordering::Acquire) != version {
            return DeferredStamps::default();
        }
        words.sort_unstable();
        DeferredStamps { version, words }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_words_and_many_are_owed_by_the_version_that_was_set_last() {
        let deferred = NewestDeferredStamps::default();
        for (version, count) in [(7, 0), (8, 3), (9, FEW), (10, FEW + 1), (11, 100), (12, 2)] {
            let words: Vec<u64> = (0..count as u64).rev().map(|word| 8 * word).collect();
            deferred.set(version, &words);
            let found = deferred.of(version);
            assert!(
                (0..2 * count as u64)
                    .all(|word| { found.word(8 * word) == (word < count as u64).then_some(version) })
            );
            assert!(deferred.of(version - 1).words.is_empty() && deferred.of(version + 1).words.is_empty());
        }
    }

    /// A list belongs to one version as a whole, or the reader gets none.
    #[test]
    fn lists_that_are_read_while_they_change_are_never_mixed() {
        let deferred = NewestDeferredStamps::default();
        let versions = if cfg!(miri) { 50 } else { 100_000 };
        let words_of = |version: u64| vec![version; 1 + version as usize % (FEW + 2)];
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=versions).for_each(|version| deferred.set(version, &words_of(version))));
            loop {
                let version = deferred.version.load(Ordering::Acquire);
                if version == CHANGING {
                    continue;
                }
                let found = deferred.of(version);
                assert!(found.words.is_empty() || found.words == words_of(version));
                if version == versions {
                    break;
                }
            }
        });
    }
}
