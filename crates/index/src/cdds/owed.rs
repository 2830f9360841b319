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
    /// `words` are in order.
    pub(super) fn set(&mut self, version: u64, words: &[u64]) {
        debug_assert!(words.is_sorted());
        self.version = version;
        self.words.clear();
        self.words.extend_from_slice(words);
    }

    /// What the word at `off` would be, if it is one of these.
    #[inline]
    pub(crate) fn word(&self, off: u64) -> Option<u64> {
        self.words.binary_search(&off).is_ok().then_some(self.version)
    }

    /// Stores the words as part of a transaction.
    pub(crate) fn store(&self, tx: &mut Tx<'_>) -> Result<()> {
        self.words.iter().try_for_each(|off| Ok(tx.store_words(*off, &[self.version])?))
    }

    /// The version that they are owed to, unless there are none.
    fn creditor(&self) -> Option<u64> {
        self.words.first()?;
        self.version.checked_sub(1)
    }
}

impl Shared {
    /// What a version that is held misses of what the one after it changed. Whoever compares the two asks when both are held, and
    /// the later one is there.
    pub(super) fn owed_to(&self, version: u64) -> Owed {
        let owed = self.owed.lock();
        if owed.creditor() == Some(version) { owed.clone() } else { Owed::default() }
    }

    /// What the next version has to store, since some of these versions is owed it.
    pub(super) fn due(&self, retained: &Retained) -> Owed {
        if retained.held().is_empty() {
            return Owed::default();
        }
        let owed = self.owed.lock();
        let is_due = owed.creditor().is_some_and(|version| retained.held().binary_search(&version).is_ok());
        if is_due { owed.clone() } else { Owed::default() }
    }
}
