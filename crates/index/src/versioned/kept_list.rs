//! The list of named snapshots.

use super::layout::{MAX_NAME_BYTES, RootWord, at};
use super::node::kept_name;
use super::version::Version;
use crate::error::{Result, corrupt};
use tembo_pmem::Region;

/// A named snapshot, for lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptVersion {
    /// Its name.
    pub name: String,
    /// The version that it holds.
    pub version: u64,
    /// How many keys that version has.
    pub length: u64,
}

/// A named snapshot.
#[derive(Debug, Clone)]
pub(super) struct KeptSnapshot {
    pub(super) name: String,
    pub(super) version: Version,
    pub(super) off: u64,
}

/// Reads the list of named snapshots, the newest first.
pub(super) fn load(region: &Region, header: u64, newest: u64) -> Result<Vec<KeptSnapshot>> {
    let count = region.load_u64(header + at!(PmVersionedHead.kept_count))?;
    let mut off = region.load_u64(header + at!(PmVersionedHead.kept))?;
    let mut all = Vec::new();
    while off != 0 {
        if all.len() as u64 == count {
            return Err(corrupt("the kept snapshots of a map", header, format!("{count}"), "more"));
        }
        let word = |field| region.load_u64(off.saturating_add(field));
        let name_bytes = word(at!(PmVersionedKept.name_bytes))?;
        let number = word(at!(PmVersionedKept.version))?;
        if !(1..=MAX_NAME_BYTES).contains(&name_bytes) || number > newest || number == 0 {
            let expected = format!("a name of 1 to {MAX_NAME_BYTES} bytes, and a version up to {newest}");
            return Err(corrupt(
                "a kept snapshot",
                off,
                expected,
                format!("{name_bytes} bytes, version {number}"),
            ));
        }
        let name = kept_name(region, off, name_bytes)?;
        let name = std::str::from_utf8(name)
            .map_err(|_| corrupt("the name of a kept snapshot", off, "UTF-8", name.escape_ascii()))?;
        let root = RootWord(word(at!(PmVersionedKept.root))?);
        let version = Version { number, root, length: word(at!(PmVersionedKept.length))? };
        all.push(KeptSnapshot { name: name.to_owned(), version, off });
        off = word(at!(PmVersionedKept.next))?;
    }
    if all.len() as u64 != count {
        return Err(corrupt("the kept snapshots of a map", header, count, all.len()));
    }
    Ok(all)
}

/// The list for users, in the order in which the snapshots were made.
pub(super) fn listed(kept: &[KeptSnapshot]) -> Vec<KeptVersion> {
    let listed = |kept: &KeptSnapshot| KeptVersion {
        name: kept.name.clone(),
        version: kept.version.number,
        length: kept.version.length,
    };
    kept.iter().rev().map(listed).collect()
}
