//! Stamps that the newest version has not stored yet for the version before it.
//!
//! A stamp tells a comparison of two versions that something changed after the earlier one. It is needed only
//! if that version is held. Once W has begun, only version W - 1 can still gain its first reader; storing
//! stamps for that case alone would add words to every change. W therefore defers them: it lists them in
//! memory when it becomes the newest version. The writer of W + 1 knows whether W - 1 gained a reader,
//! because no reader can begin to hold it later (the order of stores in `readers.rs`). That writer stores the
//! stamps, or drops them if no reader needs them. Until then, a comparison of W - 1 with W also reads the
//! list.
//!
//! Media alone suffices for versions with names: naming W - 1 stores the stamps that W deferred for it.

use crate::error::Result;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use tembo_pool::Tx;

/// The stamps that a version has deferred.
#[derive(Debug, Clone, Default)]
pub struct DeferredStamps {
    /// The version, which is also the value of each stamp.
    version: u64,
    /// The offsets of the stamps' words, in ascending order.
    words: Vec<u64>,
}

impl DeferredStamps {
    /// The value of the word at `off`, if it is one of these stamps.
    #[inline]
    pub(crate) fn word(&self, off: u64) -> Option<u64> {
        self.words.binary_search(&off).is_ok().then_some(self.version)
    }

    /// Stores the words as part of a transaction.
    pub(crate) fn store(&self, tx: &mut Tx<'_>) -> Result<()> {
        self.words.iter().try_for_each(|off| Ok(tx.lines().store_words(*off, &[self.version])?))
    }
}

/// Lists of up to this many words need no lock.
const FEW: usize = 16;
/// Stands for a version: the list is being changed.
const CHANGING: u64 = 0;

/// The deferred stamps of the newest version. Set by the writer alone; read by holders of two versions.
#[derive(Debug, Default)]
pub(super) struct NewestDeferredStamps {
    version: AtomicU64,
    count: AtomicUsize,
    few: [AtomicU64; FEW],
    /// A list of more than [`FEW`] words.
    many: Mutex<Vec<u64>>,
}

impl NewestDeferredStamps {
    /// Sets the list. A thread that sees `version` as the newest afterwards finds these words.
    #[inline]
    pub(super) fn set(&self, version: u64, words: &[u64]) {
        // ORDER: release, pairs with the loads in `of`: a thread that no longer finds the old list sees its
        // stamps stored instead.
        self.version.store(CHANGING, Ordering::Release);
        // ORDER: precedes all words; pairs with the fence in `of`.
        fence(Ordering::Release);
        self.count.store(words.len(), Ordering::Relaxed);
        if words.len() <= FEW {
            self.few.iter().zip(words).for_each(|(to, word)| to.store(*word, Ordering::Relaxed));
        } else {
            self.set_many(words);
        }
        // ORDER: release, follows all words; pairs with the load in `of`.
        self.version.store(version, Ordering::Release);
    }

    #[cold]
    fn set_many(&self, words: &[u64]) {
        words.clone_into(&mut self.many.lock());
    }

    /// The stamps that this version deferred. Empty if a later version has become the newest or is about to:
    /// it has stored the stamps that a reader may need.
    pub(super) fn of(&self, version: u64) -> DeferredStamps {
        debug_assert!(version != CHANGING);
        // ORDER: acquire, pairs with both releases in `set`.
        if self.version.load(Ordering::Acquire) != version {
            return DeferredStamps::default();
        }
        let count = self.count.load(Ordering::Relaxed);
        let mut words: Vec<u64> = match self.few.get(..count) {
            Some(few) => few.iter().map(|word| word.load(Ordering::Relaxed)).collect(),
            None => self.many.lock().clone(),
        };
        // ORDER: a thread that has read a word of a later list sees a different version below.
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

    /// A reader gets the whole list of one version, or none.
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
