//! The format of a store on media, and its description: `docs/format.md` is checked against this.

use crate::error::{Result, corrupt};
use crate::handle::Store;
use crate::layout::{
    PmHistory, PmKept, PmKeyspace, PmLast, PmStore, PmTable, PmValue, PmVector, PmVersion, STORE_FORMAT,
};
use tembo_pool::Pool;
use tembo_pool::format::section;

/// Whether this version of the library can read a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// It can.
    Known,
    /// The format is another.
    Other {
        /// The version that the store has.
        found: u64,
        /// The version that can be read.
        supported: u64,
    },
}

impl Store {
    /// The format of the store that a root of kind [`ROOT_KIND`](Self::ROOT_KIND) leads to.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if there is no store.
    pub fn format_at(pool: &Pool, off: u64) -> Result<Format> {
        format_of(pool.region().load_u64(off)?, off)
    }
}

/// The format that the first word of a store says.
pub(crate) fn format_of(word: u64, off: u64) -> Result<Format> {
    const VERSION_SHIFT: u32 = 56;
    if word == STORE_FORMAT {
        return Ok(Format::Known);
    }
    if (word ^ STORE_FORMAT) << (64 - VERSION_SHIFT) == 0 {
        return Ok(Format::Other { found: word >> VERSION_SHIFT, supported: STORE_FORMAT >> VERSION_SHIFT });
    }
    Err(corrupt("the head of a store", off, "the mark of a store", format!("{word:#x}")))
}

/// The tables of the store's media structs, in Markdown.
pub fn describe() -> String {
    let mut out = String::new();
    section::<PmStore>(&mut out);
    section::<PmKeyspace>(&mut out);
    section::<PmTable>(&mut out);
    section::<PmVersion>(&mut out);
    section::<PmVector>(&mut out);
    section::<PmValue>(&mut out);
    section::<PmKept>(&mut out);
    section::<PmLast>(&mut out);
    section::<PmHistory>(&mut out);
    out
}
