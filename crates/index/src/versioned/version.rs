//! Versions, and loading the newest one from the head.

use super::layout::{FIRST_VERSION, MAX_VERSION, RootWord, at};
use crate::error::{Error, Result, corrupt};
use tembo_pmem::Region;

/// A version: its number, its root, and how many keys it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Version {
    pub(crate) number: u64,
    pub(crate) root: RootWord,
    pub(crate) length: u64,
}

/// Refuses a head whose first word is not the `expected` one: it belongs to something else, or has another
/// format version.
pub(super) fn check_format(region: &Region, header: u64, expected: u64) -> Result<()> {
    let [expected, found] = [expected, region.load_u64(header)?].map(u64::to_ne_bytes);
    let (of_structure, versions) = (expected[..6] == found[..6], [expected[6], found[6]]);
    if expected == found {
        return Ok(());
    }
    if of_structure && found[7] == 0 {
        let [supported, found] = versions.map(u64::from);
        return Err(Error::FormatVersion { found, supported });
    }
    Err(corrupt("the head of a versioned map", header, expected.escape_ascii(), found.escape_ascii()))
}

/// The newest version, from the head.
///
/// Always inlined. A call would store words that its caller then loads two at a time; such a load waits for
/// all earlier stores, and hence for the fence of the version before.
#[inline(always)]
pub(super) fn load_version(region: &Region, header: u64) -> Result<Version> {
    let word = |field| region.load_u64(header.saturating_add(field));
    let number = word(at!(PmVersionedHead.version))?;
    if !(FIRST_VERSION..MAX_VERSION).contains(&number) {
        return Err(no_version(header, number));
    }
    let root = RootWord(word(at!(PmVersionedHead.root))?);
    Ok(Version { number, root, length: word(at!(PmVersionedHead.length))? })
}

#[cold]
fn no_version(header: u64, number: u64) -> Error {
    let expected = format!("{FIRST_VERSION} to {MAX_VERSION}");
    corrupt("the version of a map", header, expected, number)
}
