//! The root directory: names by which the objects of a pool are found.
//!
//! An entry is eight words, all changed by one record. The length of the name is stored last and cleared
//! first, so that a reader that sees it sees the rest.
//!
//! Objects that lost their names but still have blocks form a list, of which the header has the first. How one leads to the next, and
//! how its blocks are freed, is known to who puts it there.

use crate::file::features::Feature;
use crate::layout::{DROPPED_BITS, DROPPED_OFF, PmRoot, ROOT_NAME_BYTES, seal, unseal};
use crate::pool::Pool;
use crate::tx::Tx;
use crate::{Error, Result};
use tembo_pmem::{offset_of, size_of};

/// A named object of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Its name, 1 to 40 bytes.
    pub name: String,
    /// What kind of object it is, chosen by its owner.
    pub kind: u32,
    /// The object's offset.
    pub off: u64,
}

const NAME_OFF: u64 = offset_of!(PmRoot, name) as u64;
const NAME_BYTES_OFF: u64 = offset_of!(PmRoot, name_bytes) as u64;
const KIND_OFF: u64 = offset_of!(PmRoot, kind) as u64;
const OFF_OFF: u64 = offset_of!(PmRoot, off) as u64;

impl Pool {
    fn entry_off(&self, entry: u32) -> u64 {
        self.geometry().roots_off() + u64::from(entry) * size_of::<PmRoot>() as u64
    }

    fn read_root(&self, entry: u32, load: &dyn Fn(u64) -> Result<u64>) -> Result<Option<Root>> {
        let off = self.entry_off(entry);
        let name_bytes = load(off + NAME_BYTES_OFF)?;
        if name_bytes == 0 {
            return Ok(None);
        }
        if name_bytes > ROOT_NAME_BYTES as u64 {
            return Err(Error::corrupt(
                "a root's name",
                off,
                format!("1 to {ROOT_NAME_BYTES} bytes"),
                name_bytes,
            ));
        }
        let mut name = Vec::with_capacity(ROOT_NAME_BYTES);
        for word in 0..ROOT_NAME_BYTES as u64 / 8 {
            name.extend_from_slice(&load(off + NAME_OFF + 8 * word)?.to_le_bytes());
        }
        name.truncate(name_bytes as usize);
        let name = String::from_utf8(name)
            .map_err(|e| Error::corrupt("a root's name", off, "UTF-8", e.as_bytes().escape_ascii()))?;
        let kind = load(off + KIND_OFF)?;
        let kind = u32::try_from(kind).map_err(|_| Error::corrupt("a root's kind", off, "32 bits", kind))?;
        Ok(Some(Root { name, kind, off: load(off + OFF_OFF)? }))
    }

    /// Every root, in no particular order.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`].
    pub fn roots(&self) -> Result<Vec<Root>> {
        let load = |off| Ok(self.region().load_u64(off)?);
        let entries = 0..self.geometry().root_count;
        entries.filter_map(|entry| self.read_root(entry, &load).transpose()).collect()
    }

    /// The root of this name, if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`].
    pub fn root(&self, name: &str) -> Result<Option<Root>> {
        Ok(self.roots()?.into_iter().find(|root| root.name == name))
    }

    /// The first of the objects that have no name any more and are still to be freed, or 0.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`].
    pub fn dropped(&self) -> Result<u64> {
        dropped_of(self.region().load_u64(DROPPED_OFF)?)
    }
}

fn dropped_of(word: u64) -> Result<u64> {
    match word {
        0 => Ok(0),
        word => unseal(word, DROPPED_BITS).ok_or_else(|| {
            Error::corrupt("the list of what is being freed", DROPPED_OFF, "an offset", format!("{word:#x}"))
        }),
    }
}

impl Tx<'_> {
    /// Gives an object a name, or a name another object.
    ///
    /// # Errors
    ///
    /// [`Error::RootName`], [`Error::NoRoot`] if the directory is full.
    pub fn set_root(&mut self, name: &str, kind: u32, off: u64) -> Result<()> {
        if name.is_empty() || name.len() > ROOT_NAME_BYTES {
            return Err(Error::RootName { name: name.to_owned(), max_bytes: ROOT_NAME_BYTES });
        }
        let entry = self.find_entry(name)?;
        let Some(entry) = entry.or(self.find_free_entry()?) else {
            return Err(Error::NoRoot { roots: self.pool().geometry().root_count });
        };
        let at = self.pool().entry_off(entry);
        let mut padded = [0; ROOT_NAME_BYTES];
        padded[..name.len()].copy_from_slice(name.as_bytes());
        for (i, word) in padded.chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            self.store_anywhere(at + NAME_OFF + 8 * i as u64, word)?;
        }
        self.store_anywhere(at + KIND_OFF, u64::from(kind))?;
        self.store_anywhere(at + OFF_OFF, off)?;
        self.store_anywhere(at + NAME_BYTES_OFF, name.len() as u64)
    }

    /// Removes a name; the object itself is not freed. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`].
    pub fn remove_root(&mut self, name: &str) -> Result<bool> {
        let Some(entry) = self.find_entry(name)? else { return Ok(false) };
        let at = self.pool().entry_off(entry);
        self.store_anywhere(at + NAME_BYTES_OFF, 0)?;
        Ok(true)
    }

    /// As [`Pool::dropped`], as the transaction sees it.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`].
    pub fn dropped(&self) -> Result<u64> {
        dropped_of(self.load(DROPPED_OFF)?)
    }

    /// Makes an object, or none if `off` is 0, the first of those that have no name any more and are still to be freed.
    /// Who calls this sees to it that the object leads to the one that was first before.
    ///
    /// # Panics
    ///
    /// If [`Feature::Dropped`] was not [enabled](Pool::enable).
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the offset is none.
    pub fn set_dropped(&mut self, off: u64) -> Result<()> {
        assert!(self.pool().has(Feature::Dropped), "the feature was not enabled");
        self.pool().region().check_word(off)?;
        self.store_anywhere(DROPPED_OFF, if off == 0 { 0 } else { seal(off, DROPPED_BITS) })
    }

    fn find_entry(&self, name: &str) -> Result<Option<u32>> {
        let load = |off| self.load(off);
        for entry in 0..self.pool().geometry().root_count {
            if self.pool().read_root(entry, &load)?.is_some_and(|root| root.name == name) {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    fn find_free_entry(&self) -> Result<Option<u32>> {
        for entry in 0..self.pool().geometry().root_count {
            if self.load(self.pool().entry_off(entry) + NAME_BYTES_OFF)? == 0 {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }
}
