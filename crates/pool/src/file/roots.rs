//! The root directory: names by which the objects of a pool are found.
//!
//! An entry is eight words, all changed by one record. The length of the name is stored last and cleared
//! first, so a reader that sees a length also sees the rest.
//!
//! Objects that have lost their names but still have blocks form a list; the header leads to the first. The
//! structure that an object belongs to knows where its link to the next lies, and how its blocks are freed.

use crate::layout::{DROPPED_BITS, DROPPED_OFF, Geometry, PmRoot, ROOT_NAME_BYTES, unseal};
use crate::{Error, ErrorKind, Result};
use tembo_pmem::{offset_of, size_of};

/// A named object of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Its name, 1 to 40 bytes.
    pub name: String,
    /// The kind of object, chosen by its owner.
    pub kind: u32,
    /// The object's offset.
    pub off: u64,
}

const NAME_OFF: u64 = offset_of!(PmRoot, name) as u64;
const NAME_BYTES_OFF: u64 = offset_of!(PmRoot, name_bytes) as u64;
const KIND_OFF: u64 = offset_of!(PmRoot, kind) as u64;
const OFF_OFF: u64 = offset_of!(PmRoot, off) as u64;

/// How the words of the directory are loaded: from media, or as a transaction sees them.
pub(crate) type Load<'l> = &'l dyn Fn(u64) -> Result<u64>;

fn entry_off(geometry: &Geometry, entry: u32) -> u64 {
    geometry.roots_off() + u64::from(entry) * size_of::<PmRoot>() as u64
}

fn read(geometry: &Geometry, entry: u32, load: Load<'_>) -> Result<Option<Root>> {
    let off = entry_off(geometry, entry);
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
pub(crate) fn all(geometry: &Geometry, load: Load<'_>) -> Result<Vec<Root>> {
    (0..geometry.root_count).filter_map(|entry| read(geometry, entry, load).transpose()).collect()
}

/// The offset of the entry with this name.
pub(crate) fn find(geometry: &Geometry, name: &str, load: Load<'_>) -> Result<Option<u64>> {
    for entry in 0..geometry.root_count {
        if read(geometry, entry, load)?.is_some_and(|root| root.name == name) {
            return Ok(Some(entry_off(geometry, entry)));
        }
    }
    Ok(None)
}

/// The offset of an unused entry.
pub(crate) fn find_unused(geometry: &Geometry, load: Load<'_>) -> Result<Option<u64>> {
    for entry in 0..geometry.root_count {
        if load(entry_off(geometry, entry) + NAME_BYTES_OFF)? == 0 {
            return Ok(Some(entry_off(geometry, entry)));
        }
    }
    Ok(None)
}

/// Refuses a name that is empty or too long.
///
/// # Errors
///
/// [`ErrorKind::RootName`].
pub(crate) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > ROOT_NAME_BYTES {
        return Err(ErrorKind::RootName { name: name.to_owned(), max_bytes: ROOT_NAME_BYTES }.into());
    }
    Ok(())
}

/// Offsets and values of an entry's words, in the order in which they must be stored. The name was
/// [checked](check_name).
pub(crate) fn words(entry_off: u64, name: &str, kind: u32, off: u64) -> Vec<(u64, u64)> {
    let mut padded = [0; ROOT_NAME_BYTES];
    padded[..name.len()].copy_from_slice(name.as_bytes());
    let name_words = padded.chunks_exact(8).enumerate().map(|(i, word)| {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        (entry_off + NAME_OFF + 8 * i as u64, word)
    });
    let others = [
        (entry_off + KIND_OFF, u64::from(kind)),
        (entry_off + OFF_OFF, off),
        (entry_off + NAME_BYTES_OFF, name.len() as u64),
    ];
    name_words.chain(others).collect()
}

/// The offset of the word whose clearing makes the entry at `entry_off` unused.
pub(crate) fn used_word(entry_off: u64) -> u64 {
    entry_off + NAME_BYTES_OFF
}

/// Decodes the header's `dropped` word: the offset of the first object without a name.
pub(crate) fn dropped_of(word: u64) -> Result<u64> {
    match word {
        0 => Ok(0),
        word => unseal(word, DROPPED_BITS).ok_or_else(|| {
            Error::corrupt("the list of what is being freed", DROPPED_OFF, "an offset", format!("{word:#x}"))
        }),
    }
}
