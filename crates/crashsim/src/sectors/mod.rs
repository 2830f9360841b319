//! A disk whose power fails, for code that writes to a file with a [journal](tembo_pmem::journal).
//!
//! # Failure model
//!
//! The file is an array of sectors of 512 bytes. A write changes sectors in the page cache. Until the next
//! synchronisation each changed sector may be on the device in any of the versions that it has had since the
//! last one, that one included, whatever the other sectors have. A synchronisation puts all of them there, or
//! those of a range. A sector is never torn.
//!
//! A synchronisation may fail. Then the device has any version of each sector that it was for, and the page
//! cache takes all of them for written: the next synchronisation leaves them out. It may also drop them, and
//! read the device's.
//!
//! Changes of the file's metadata come early or late too, in any order. They are there for certain
//! after a synchronisation of the whole file; that of a range says nothing about it.
//!
//! * *Length*. A file that was extended or cut has any of the lengths since then, whatever its sectors have.
//!   In a new part any sector may still be zeros. In a part that was cut off, and is there or comes again,
//!   each sector has zeros or any older version.
//! * *Holes*. Each sector of a range whose space was given back has zeros or any older version, until it is
//!   written again and synchronised.
//!
//! Names are no part of this: no pool is renamed that is open for writing. A file gets its name when all of
//! it is on the device; `crates/cli/src/unfinished.rs` has the proof for pools that are rewritten or restored
//! and for backups, and `crates/pool/src/file/create.rs` does the same with a new pool.
//!
//! [`SectorDisk`] remembers every change and synchronisation. [`PowerCuts`] goes through them and builds
//! images of the device as a power failure at that moment may leave it. A killed process leaves
//! [`contents`](SectorDisk::contents).

mod cache;
mod history;
mod power_cuts;
#[cfg(test)]
mod tests;

pub use history::{DiskEvent, History};
pub use power_cuts::PowerCuts;

use crate::rng::Rng;
use cache::Cache;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use tembo_pmem::journal::Medium;

/// The unit that is on the device as a whole or not at all.
pub const SECTOR_BYTES: usize = 512;

/// The contents of one sector.
pub type Sector = [u8; SECTOR_BYTES];

/// The range of a synchronisation of all.
const WHOLE: Range<u64> = 0..u64::MAX;

/// A disk that remembers its history. Clones are the same disk.
#[derive(Clone)]
pub struct SectorDisk(Arc<Mutex<State>>);

struct State {
    cache: Cache,
    history: History,
    /// The next synchronisation fails, with these chances, and drops the sectors or not.
    fails: Option<(Rng, bool)>,
    /// Nothing more is done after that.
    ends: bool,
    /// The power fails after this many operations.
    operations_left: Option<usize>,
}

impl SectorDisk {
    /// A disk with these contents, all of them on the device.
    ///
    /// # Panics
    ///
    /// If they are not whole sectors.
    pub fn new(contents: Vec<u8>) -> SectorDisk {
        assert!(contents.len().is_multiple_of(SECTOR_BYTES), "a disk has whole sectors");
        let history = History { before: contents.clone(), events: Vec::new() };
        let cache = Cache::new(contents);
        SectorDisk(Arc::new(Mutex::new(State {
            cache,
            history,
            fails: None,
            ends: false,
            operations_left: None,
        })))
    }

    /// Puts a remark into the history.
    pub fn mark(&self, mark: u64) {
        self.with(|state| state.history.events.push(DiskEvent::Mark(mark)));
    }

    /// Lets the power fail after this many further operations: all later ones fail and do nothing.
    pub fn cut_after(&self, operations: usize) {
        self.with(|state| state.operations_left = Some(operations));
    }

    /// Lets the next synchronisation fail. `seed` chooses the sectors that reach the device. With `drops` the
    /// page cache has the device's sectors from then on.
    pub fn fail_synchronisation(&self, seed: u64, drops: bool) {
        self.with(|state| state.fails = Some((Rng::new(seed), drops)));
    }

    /// Ends the process when the synchronisation fails: all later operations fail and do nothing.
    pub fn end_with_failure(&self) {
        self.with(|state| state.ends = true);
    }

    /// From now on everything works again: another process has the disk.
    pub fn mend(&self) {
        self.with(|state| (state.fails, state.ends, state.operations_left) = (None, false, None));
    }

    /// The contents as the page cache has them.
    pub fn contents(&self) -> Vec<u8> {
        self.with(|state| state.cache.contents.clone())
    }

    /// The history so far.
    pub fn history(&self) -> History {
        self.with(|state| state.history.clone())
    }

    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Does what the event says, and remembers it.
    fn change(&self, event: DiskEvent) -> io::Result<()> {
        self.with(|state| {
            state.operate()?;
            state.cache.change(&event);
            state.history.events.push(event);
            Ok(())
        })
    }
}

impl State {
    /// Synchronises a range, or fails to.
    fn synchronise(&mut self, range: Range<u64>) -> io::Result<()> {
        self.operate()?;
        let event = match self.fails.take() {
            None => DiskEvent::Synchronised(range),
            Some((mut rng, drops)) => DiskEvent::Failed(self.cache.any_versions(&range, &mut rng), drops),
        };
        let has_failed = matches!(event, DiskEvent::Failed(..));
        self.cache.change(&event);
        self.history.events.push(event);
        if !has_failed {
            return Ok(());
        }
        if self.ends {
            self.operations_left = Some(0);
        }
        Err(io::Error::other("the device failed"))
    }

    fn operate(&mut self) -> io::Result<()> {
        match &mut self.operations_left {
            None => Ok(()),
            Some(0) => Err(io::Error::other("the power failed")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }

    fn range(&self, off: u64, bytes: usize) -> io::Result<Range<usize>> {
        let outside = || io::Error::new(io::ErrorKind::UnexpectedEof, "outside the disk");
        let start = usize::try_from(off).map_err(|_| outside())?;
        let end = start.checked_add(bytes).filter(|end| *end <= self.cache.contents.len());
        end.map(|end| start..end).ok_or_else(outside)
    }
}

fn is_whole_sectors(bytes: u64) -> bool {
    bytes.is_multiple_of(SECTOR_BYTES as u64)
}

impl Medium for SectorDisk {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.with(|state| state.cache.contents.len() as u64))
    }

    fn read(&self, off: u64, into: &mut [u8]) -> io::Result<()> {
        self.with(|state| {
            state.operate()?;
            into.copy_from_slice(&state.cache.contents[state.range(off, into.len())?]);
            Ok(())
        })
    }

    fn write(&self, off: u64, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.with(|state| state.range(off, bytes.len()).map(drop))?;
        self.change(DiskEvent::Write { off, bytes: bytes.to_vec() })
    }

    fn synchronise(&self) -> io::Result<()> {
        self.with(|state| state.synchronise(WHOLE))
    }

    fn synchronise_range(&self, off: u64, bytes: u64) -> io::Result<()> {
        self.with(|state| state.synchronise(off..off + bytes))
    }

    fn extend(&self, bytes: u64) -> io::Result<()> {
        assert!(bytes >= self.bytes()? && is_whole_sectors(bytes), "a disk grows by whole sectors");
        self.change(DiskEvent::Extended(bytes))
    }

    fn cut(&self, bytes: u64) -> io::Result<()> {
        assert!(bytes <= self.bytes()? && is_whole_sectors(bytes), "a disk is cut by whole sectors");
        self.change(DiskEvent::Cut(bytes))
    }

    fn punch(&self, off: u64, bytes: u64) -> io::Result<()> {
        assert!(is_whole_sectors(off) && is_whole_sectors(bytes), "a hole has whole sectors");
        self.with(|state| state.range(off, bytes as usize).map(drop))?;
        self.change(DiskEvent::Punched(off..off + bytes))
    }
}
