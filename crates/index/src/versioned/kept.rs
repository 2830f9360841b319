//! Snapshots with names, which survive the closing of the pool.

use super::create::{CddsMap, Version};
use super::layout::{KEPT_BYTES, MAX_NAME_BYTES, RootWord, at};
use super::node::kept_name;
use super::snapshot::CddsSnapshot;
use super::structure::CddsStructure;
use crate::error::{Error, Result, corrupt};
use tembo_pmem::Region;

/// A named snapshot, as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CddsKept {
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

/// Reads the list of named snapshots, the last one that was made first.
pub(super) fn load(region: &Region, header: u64, newest: u64) -> Result<Vec<KeptSnapshot>> {
    let count = region.load_u64(header + at!(PmCddsHead.kept_count))?;
    let mut off = region.load_u64(header + at!(PmCddsHead.kept))?;
    let mut all = Vec::new();
    while off != 0 {
        if all.len() as u64 == count {
            return Err(corrupt("the kept snapshots of a map", header, format!("{count}"), "more"));
        }
        let word = |field| region.load_u64(off.saturating_add(field));
        let name_bytes = word(at!(PmCddsKept.name_bytes))?;
        let number = word(at!(PmCddsKept.version))?;
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
        let root = RootWord(word(at!(PmCddsKept.root))?);
        let version = Version { number, root, length: word(at!(PmCddsKept.length))? };
        all.push(KeptSnapshot { name: name.to_owned(), version, off });
        off = word(at!(PmCddsKept.next))?;
    }
    if all.len() as u64 != count {
        return Err(corrupt("the kept snapshots of a map", header, count, all.len()));
    }
    Ok(all)
}

/// As users see the list: in the order in which they were made.
pub(super) fn listed(kept: &[KeptSnapshot]) -> Vec<CddsKept> {
    let listed = |kept: &KeptSnapshot| CddsKept {
        name: kept.name.clone(),
        version: kept.version.number,
        length: kept.version.length,
    };
    kept.iter().rev().map(listed).collect()
}

impl<S: CddsStructure> CddsMap<S> {
    /// Gives a snapshot a name, under which it is there again when the pool is opened the next time, until
    /// [`drop_kept`](Self::drop_kept). One fence; what the version shares with others takes no room.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] if the name is taken, [`Error::SnapshotName`] if it is not 1 to 255 bytes long, [`Error::Pool`].
    ///
    /// # Panics
    ///
    /// If the snapshot is of another map.
    pub fn keep(&self, snapshot: &CddsSnapshot<S>, name: &str) -> Result<()> {
        assert!(snapshot.is_of(self), "a snapshot of another map");
        if name.is_empty() || name.len() as u64 > MAX_NAME_BYTES {
            return Err(Error::SnapshotName { name: name.to_owned(), max_bytes: MAX_NAME_BYTES });
        }
        let shared = &*self.shared;
        let mut writing = self.lock_writer()?;
        let mut kept = shared.kept.lock();
        if kept.iter().any(|kept| kept.name == name) {
            return Err(Error::Exists { name: name.to_owned() });
        }
        let Some(lane) = &mut writing.lane else { return Err(tembo_pool::Error::ReadOnly.into()) };
        let version = snapshot.top();
        let next = kept.first().map_or(0, |kept| kept.off);
        let words = [next, version.number, version.root.0, version.length, name.len() as u64];
        let mut image: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        image.extend_from_slice(name.as_bytes());
        let mut tx = lane.begin();
        let off = tx.alloc(KEPT_BYTES + name.len() as u64)?;
        tx.write_fresh(off, &image)?;
        // From now on media alone has to tell of this version.
        shared.owed_to(version.number).store(&mut tx)?;
        // PERSIST(I5): the record that stores this word covers the block.
        tx.store(shared.header + at!(PmCddsHead.kept), off)?;
        tx.store(shared.header + at!(PmCddsHead.kept_count), kept.len() as u64 + 1)?;
        tx.commit()?;
        kept.insert(0, KeptSnapshot { name: name.to_owned(), version, off });
        Ok(())
    }

    /// The named snapshots, in the order in which they were made.
    pub fn kept(&self) -> Vec<CddsKept> {
        self.shared.pool.assert_process();
        listed(&self.shared.kept.lock())
    }

    /// The snapshot of this name, if there is one.
    pub fn kept_snapshot(&self, name: &str) -> Option<CddsSnapshot<S>> {
        self.shared.pool.assert_process();
        let kept = self.shared.kept.lock();
        let found = kept.iter().find(|kept| kept.name == name)?;
        // Under the lock of the kept ones, so that it does not go before it is held.
        Some(CddsSnapshot::hold(&self.shared, found.version))
    }

    /// Gives up a named snapshot; returns whether there was one. Its version stays as long as others hold it; what it alone needs
    /// comes free by [`collect`](Self::collect). One fence.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`].
    pub fn drop_kept(&self, name: &str) -> Result<bool> {
        let shared = &*self.shared;
        let mut writing = self.lock_writer()?;
        let mut kept = shared.kept.lock();
        let Some(idx) = kept.iter().position(|kept| kept.name == name) else { return Ok(false) };
        let Some(lane) = &mut writing.lane else { return Err(tembo_pool::Error::ReadOnly.into()) };
        let next = kept.get(idx + 1).map_or(0, |next| next.off);
        let link = match idx.checked_sub(1) {
            None => shared.header + at!(PmCddsHead.kept),
            Some(before) => kept[before].off + at!(PmCddsKept.next),
        };
        let mut tx = lane.begin();
        tx.store(link, next)?;
        tx.store(shared.header + at!(PmCddsHead.kept_count), kept.len() as u64 - 1)?;
        tx.free(kept[idx].off)?;
        tx.commit()?;
        kept.remove(idx);
        Ok(true)
    }
}
