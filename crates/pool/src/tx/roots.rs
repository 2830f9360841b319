//! Changes of the root directory by transactions.

use super::Tx;
use crate::feature::Feature;
use crate::file::roots;
use crate::layout::{DROPPED_BITS, DROPPED_OFF, JOURNAL_BITS, JOURNAL_OFF, seal};
use crate::{ErrorKind, Result};

impl Tx<'_> {
    /// Gives an object a name. If the name is in use, it changes to the new object.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::RootName`], [`ErrorKind::NoRoot`] if the directory is full.
    pub fn set_root(&mut self, name: &str, kind: u32, off: u64) -> Result<()> {
        roots::check_name(name)?;
        let geometry = *self.pool().geometry();
        let load = |off| self.load(off);
        let entry = roots::find(&geometry, name, &load)?;
        let Some(entry_off) = entry.or(roots::find_unused(&geometry, &load)?) else {
            return Err(ErrorKind::NoRoot { roots: geometry.root_count }.into());
        };
        let words = roots::words(entry_off, name, kind, off);
        words.into_iter().try_for_each(|(off, word)| self.store_anywhere(off, word))
    }

    /// Removes a name; the object itself is not freed. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`].
    pub fn remove_root(&mut self, name: &str) -> Result<bool> {
        let found = roots::find(self.pool().geometry(), name, &|off| self.load(off))?;
        let Some(entry_off) = found else { return Ok(false) };
        self.store_anywhere(roots::used_word(entry_off), 0)?;
        Ok(true)
    }

    /// The first of the objects that have no name any more and are still to be freed, or 0, as the
    /// transaction sees it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`].
    pub fn dropped(&self) -> Result<u64> {
        roots::dropped_of(self.load(DROPPED_OFF)?)
    }

    /// Makes an object the head of the list of nameless objects that are still to be freed; 0 empties the
    /// list. The caller links the object to the earlier head.
    ///
    /// # Panics
    ///
    /// If [`Feature::Dropped`] was not enabled.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if the offset is none.
    pub fn set_dropped(&mut self, off: u64) -> Result<()> {
        assert!(self.pool().has(Feature::Dropped), "the feature was not enabled");
        self.pool().region().check_word(off)?;
        self.store_anywhere(DROPPED_OFF, if off == 0 { 0 } else { seal(off, DROPPED_BITS) })
    }

    /// Stores the offset of the pool's journal.
    pub(crate) fn set_journal(&mut self, off: u64) -> Result<()> {
        self.store_anywhere(JOURNAL_OFF, seal(off, JOURNAL_BITS))
    }
}
