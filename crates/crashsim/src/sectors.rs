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
//! A file that is extended has either length until the next synchronisation of the whole of it, whatever its
//! sectors have; in the new part any of them may still be zeros. Files never become shorter.
//!
//! [`SectorDisk`] remembers every write and synchronisation. [`PowerCuts`] goes through them and builds
//! images of the device as a power failure at that moment may leave it. A killed process leaves
//! [`contents`](SectorDisk::contents).

use crate::rng::Rng;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use tembo_pmem::journal::Medium;

/// The unit that is on the device as a whole or not at all.
pub const SECTOR_BYTES: usize = 512;

/// The contents of one.
pub type Sector = [u8; SECTOR_BYTES];

/// A step of a disk's history.
#[derive(Debug, Clone)]
pub enum DiskEvent {
    /// Bytes were written.
    Write {
        /// Where.
        off: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The file has this length from now on, with zeros in its new part.
    Extended(u64),
    /// Everything that was written to this range before is on the device; the length too, if the range has no
    /// end (`u64::MAX`).
    Synchronised(Range<u64>),
    /// A synchronisation has failed: the device has these sectors as they are here, and they count as
    /// written. Whether the page cache has dropped them.
    Failed(BTreeMap<usize, Sector>, bool),
    /// A remark of the test.
    Mark(u64),
}

/// The range of a synchronisation of all.
const WHOLE: Range<u64> = 0..u64::MAX;

/// A disk that remembers its history. Clones are the same disk.
#[derive(Clone)]
pub struct SectorDisk(Arc<Mutex<State>>);

struct State {
    contents: Vec<u8>,
    history: History,
    /// The versions of each sector since it was synchronised, the device's first.
    versions: BTreeMap<usize, Vec<Sector>>,
    /// The next synchronisation fails, with these chances, and drops the sectors or not.
    fails: Option<(Rng, bool)>,
    /// Nothing more is done after that.
    ends: bool,
    /// The power fails after so many operations.
    operations_left: Option<usize>,
}

/// The calls that a disk got.
#[derive(Debug, Clone)]
pub struct History {
    /// The contents before it.
    pub before: Vec<u8>,
    /// The events, in their order.
    pub events: Vec<DiskEvent>,
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
        SectorDisk(Arc::new(Mutex::new(State {
            contents,
            history,
            versions: BTreeMap::new(),
            fails: None,
            ends: false,
            operations_left: None,
        })))
    }

    /// Puts a remark into the history.
    pub fn mark(&self, mark: u64) {
        self.with(|state| state.history.events.push(DiskEvent::Mark(mark)));
    }

    /// Lets the power fail after so many further operations: all later ones fail and do nothing.
    pub fn cut_after(&self, operations: usize) {
        self.with(|state| state.operations_left = Some(operations));
    }

    /// Lets the next synchronisation fail. `seed` chooses the sectors that reach the device; `drops`: the
    /// page cache has those of the device from then on.
    pub fn fail_synchronisation(&self, seed: u64, drops: bool) {
        self.with(|state| state.fails = Some((Rng::new(seed), drops)));
    }

    /// Ends the process with that failure: all later operations fail and do nothing.
    pub fn end_with_failure(&self) {
        self.with(|state| state.ends = true);
    }

    /// From now on everything works again: another process has the disk.
    pub fn mend(&self) {
        self.with(|state| (state.fails, state.ends, state.operations_left) = (None, false, None));
    }

    /// The contents as the page cache has them.
    pub fn contents(&self) -> Vec<u8> {
        self.with(|state| state.contents.clone())
    }

    /// The history so far.
    pub fn history(&self) -> History {
        self.with(|state| state.history.clone())
    }

    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    /// The device has the contents of sectors without a version.
    fn note_first_versions(&mut self, range: Range<usize>) {
        for sector in range.start / SECTOR_BYTES..=(range.end - 1) / SECTOR_BYTES {
            let at = sector * SECTOR_BYTES;
            let version: Sector = self.contents[at..at + SECTOR_BYTES].try_into().expect("a sector");
            self.versions.entry(sector).or_insert_with(|| vec![version]);
        }
    }

    fn note_versions(&mut self, range: Range<usize>) {
        for sector in range.start / SECTOR_BYTES..=(range.end - 1) / SECTOR_BYTES {
            let at = sector * SECTOR_BYTES;
            let version: Sector = self.contents[at..at + SECTOR_BYTES].try_into().expect("a sector");
            self.versions.entry(sector).or_default().push(version);
        }
    }

    /// Synchronises a range, or fails to.
    fn synchronise(&mut self, range: Range<u64>) -> io::Result<()> {
        self.operate()?;
        let end = range.end.div_ceil(SECTOR_BYTES as u64) as usize;
        let first = range.start as usize / SECTOR_BYTES;
        let sectors: Vec<usize> = self.versions.range(first..end).map(|(sector, _)| *sector).collect();
        let versions: Vec<_> =
            sectors.iter().filter_map(|sector| Some((*sector, self.versions.remove(sector)?))).collect();
        let Some((mut rng, drops)) = self.fails.take() else {
            self.history.events.push(DiskEvent::Synchronised(range));
            return Ok(());
        };
        let mut chosen = BTreeMap::new();
        for (sector, versions) in versions {
            chosen.insert(sector, versions[rng.below(versions.len())]);
        }
        if drops {
            chosen.iter().for_each(|(sector, version)| put(&mut self.contents, *sector, version));
        }
        self.history.events.push(DiskEvent::Failed(chosen, drops));
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
}

fn put(contents: &mut [u8], sector: usize, version: &Sector) {
    contents[sector * SECTOR_BYTES..][..SECTOR_BYTES].copy_from_slice(version);
}

fn outside() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "outside the disk")
}

fn range(contents: &[u8], off: u64, bytes: usize) -> io::Result<Range<usize>> {
    let start = usize::try_from(off).map_err(|_| outside())?;
    let end = start.checked_add(bytes).filter(|end| *end <= contents.len()).ok_or_else(outside)?;
    Ok(start..end)
}

impl Medium for SectorDisk {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.with(|state| state.contents.len() as u64))
    }

    fn read(&self, off: u64, into: &mut [u8]) -> io::Result<()> {
        self.with(|state| {
            state.operate()?;
            into.copy_from_slice(&state.contents[range(&state.contents, off, into.len())?]);
            Ok(())
        })
    }

    fn write(&self, off: u64, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.with(|state| {
            state.operate()?;
            let range = range(&state.contents, off, bytes.len())?;
            state.note_first_versions(range.clone());
            state.contents[range.clone()].copy_from_slice(bytes);
            state.note_versions(range);
            state.history.events.push(DiskEvent::Write { off, bytes: bytes.to_vec() });
            Ok(())
        })
    }

    fn extend(&self, bytes: u64) -> io::Result<()> {
        self.with(|state| {
            state.operate()?;
            let is_longer =
                bytes as usize >= state.contents.len() && bytes.is_multiple_of(SECTOR_BYTES as u64);
            assert!(is_longer, "a disk grows by whole sectors");
            state.contents.resize(bytes as usize, 0);
            state.history.events.push(DiskEvent::Extended(bytes));
            Ok(())
        })
    }

    fn synchronise(&self) -> io::Result<()> {
        self.with(|state| state.synchronise(WHOLE))
    }

    fn synchronise_range(&self, off: u64, bytes: u64) -> io::Result<()> {
        self.with(|state| state.synchronise(off..off + bytes))
    }
}

impl History {
    /// The history without the synchronisations before which a byte in this range was written last: those
    /// for the sake of that range.
    pub fn without_synchronisations_of(&self, range: Range<u64>) -> History {
        let mut last_write = None;
        let mut events = self.events.clone();
        events.retain(|event| match event {
            DiskEvent::Write { off, .. } => {
                last_write = Some(*off);
                true
            }
            DiskEvent::Synchronised(of) => {
                let of_that = *of != WHOLE && range.contains(&of.start);
                !of_that && !last_write.is_some_and(|off| range.contains(&off))
            }
            DiskEvent::Mark(_) | DiskEvent::Extended(_) | DiskEvent::Failed(..) => true,
        });
        History { before: self.before.clone(), events }
    }

    /// The history without the synchronisation that follows each extension: the one that makes the length
    /// durable.
    pub fn without_durable_lengths(&self) -> History {
        let mut is_new = false;
        let mut events = self.events.clone();
        events.retain(|event| match event {
            DiskEvent::Extended(_) => {
                is_new = true;
                true
            }
            DiskEvent::Synchronised(of) if *of == WHOLE => !std::mem::take(&mut is_new),
            _ => true,
        });
        History { before: self.before.clone(), events }
    }

    /// The history with every remark one synchronisation earlier: before it, and not after.
    pub fn with_early_marks(&self) -> History {
        let mut events: Vec<DiskEvent> = Vec::new();
        for event in &self.events {
            let at = match event {
                DiskEvent::Mark(_) => {
                    events.iter().rposition(|event| matches!(event, DiskEvent::Synchronised(_)))
                }
                _ => None,
            };
            events.insert(at.unwrap_or(events.len()), event.clone());
        }
        History { before: self.before.clone(), events }
    }
}

/// Goes through a history, and builds images of the device.
pub struct PowerCuts<'h> {
    events: std::slice::Iter<'h, DiskEvent>,
    contents: Vec<u8>,
    device: Vec<u8>,
    /// Lengths that the file on the device may have, the last of them that of `contents`.
    lengths: Vec<usize>,
    /// The versions of each changed sector since the last synchronisation, oldest first.
    versions: BTreeMap<usize, Vec<Sector>>,
    rng: Rng,
}

impl<'h> PowerCuts<'h> {
    /// The beginning of a history; `seed` chooses the images.
    pub fn new(history: &'h History, seed: u64) -> PowerCuts<'h> {
        PowerCuts {
            events: history.events.iter(),
            contents: history.before.clone(),
            device: history.before.clone(),
            lengths: vec![history.before.len()],
            versions: BTreeMap::new(),
            rng: Rng::new(seed),
        }
    }

    /// Goes on by one event, which is returned; `None` at the end.
    pub fn step(&mut self) -> Option<&'h DiskEvent> {
        let event = self.events.next()?;
        match event {
            DiskEvent::Write { off, bytes } => {
                let (start, end) = (*off as usize, *off as usize + bytes.len());
                self.contents[start..end].copy_from_slice(bytes);
                for sector in start / SECTOR_BYTES..=(end - 1) / SECTOR_BYTES {
                    let at = sector * SECTOR_BYTES;
                    let version = self.contents[at..at + SECTOR_BYTES].try_into().expect("a sector");
                    self.versions.entry(sector).or_default().push(version);
                }
            }
            DiskEvent::Extended(bytes) => {
                self.contents.resize(*bytes as usize, 0);
                self.device.resize(*bytes as usize, 0);
                self.lengths.push(*bytes as usize);
            }
            DiskEvent::Synchronised(range) => self.synchronise(range),
            DiskEvent::Failed(sectors, drops) => {
                for (sector, version) in sectors {
                    self.versions.remove(sector);
                    put(&mut self.device, *sector, version);
                    if *drops {
                        put(&mut self.contents, *sector, version);
                    }
                }
            }
            DiskEvent::Mark(_) => {}
        }
        Some(event)
    }

    fn synchronise(&mut self, range: &Range<u64>) {
        if *range == WHOLE {
            self.lengths = vec![self.contents.len()];
        }
        let first = range.start as usize / SECTOR_BYTES;
        let end = range.end.div_ceil(SECTOR_BYTES as u64) as usize;
        let sectors: Vec<usize> = self.versions.range(first..end).map(|(sector, _)| *sector).collect();
        for sector in sectors {
            self.versions.remove(&sector);
            let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
            self.device[range.clone()].copy_from_slice(&self.contents[range]);
        }
    }

    /// One of the images that a power failure at this moment may leave.
    pub fn image(&mut self) -> Vec<u8> {
        /// In so many of 8 cases a changed sector has an old version: never to always.
        const OLD: [usize; 5] = [0, 1, 4, 7, 8];
        let mut image = self.device.clone();
        let old = OLD[self.rng.below(OLD.len())];
        for (sector, versions) in &self.versions {
            if self.rng.below(8) >= old {
                // Mostly the last one.
                let any = self.rng.below(2 * versions.len());
                let version = &versions[any.min(versions.len() - 1)];
                image[sector * SECTOR_BYTES..][..SECTOR_BYTES].copy_from_slice(version);
            }
        }
        image.truncate(self.lengths[self.rng.below(self.lengths.len())]);
        image
    }

    /// The image that a kill at this moment leaves.
    pub fn killed_image(&self) -> Vec<u8> {
        self.contents.clone()
    }

    /// A number below `bound`, from the same seed.
    pub fn chance(&mut self, bound: usize) -> usize {
        self.rng.below(bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn any_versions_of_sectors_come_together_and_a_synchronised_one_stays() {
        let disk = SectorDisk::new(vec![0; 4 * SECTOR_BYTES]);
        disk.write(0, &[1; SECTOR_BYTES]).unwrap();
        disk.synchronise().unwrap();
        disk.write(0, &[2]).unwrap();
        disk.write(SECTOR_BYTES as u64 - 1, &[3; 2]).unwrap();
        let history = disk.history();
        let mut cuts = PowerCuts::new(&history, 1);
        while cuts.step().is_some() {}
        let seen: BTreeSet<[u8; 3]> = (0..400)
            .map(|_| cuts.image())
            .map(|image| [image[0], image[SECTOR_BYTES - 1], image[SECTOR_BYTES]])
            .collect();
        let firsts = [(1, 1), (2, 1), (2, 3)];
        let all = firsts.iter().flat_map(|(a, b)| [0, 3].map(|c| [*a, *b, c])).collect();
        assert_eq!(seen, all);
    }

    #[test]
    fn a_synchronised_range_stays_and_the_sectors_beside_it_are_as_open_as_before() {
        let disk = SectorDisk::new(vec![0; 3 * SECTOR_BYTES]);
        disk.write(0, &[1; 3 * SECTOR_BYTES]).unwrap();
        disk.synchronise_range(SECTOR_BYTES as u64 + 10, 5).unwrap();
        let history = disk.history();
        let mut cuts = PowerCuts::new(&history, 1);
        while cuts.step().is_some() {}
        let seen: BTreeSet<[u8; 3]> =
            (0..200).map(|_| cuts.image()).map(|image| [0, 1, 2].map(|i| image[i * SECTOR_BYTES])).collect();
        assert_eq!(seen, [[0, 1, 0], [0, 1, 1], [1, 1, 0], [1, 1, 1]].into());
    }

    #[test]
    fn an_extended_file_has_either_length_until_all_of_it_is_synchronised() {
        let disk = SectorDisk::new(vec![1; SECTOR_BYTES]);
        disk.extend(2 * SECTOR_BYTES as u64).unwrap();
        disk.write(SECTOR_BYTES as u64, &[2]).unwrap();
        disk.synchronise_range(SECTOR_BYTES as u64, 1).unwrap();
        let lengths = |history: &History| -> BTreeSet<usize> {
            let mut cuts = PowerCuts::new(history, 1);
            while cuts.step().is_some() {}
            (0..100).map(|_| cuts.image().len()).collect()
        };
        assert_eq!(lengths(&disk.history()), [SECTOR_BYTES, 2 * SECTOR_BYTES].into());
        disk.synchronise().unwrap();
        assert_eq!(lengths(&disk.history()), [2 * SECTOR_BYTES].into());
        assert_eq!(lengths(&disk.history().without_durable_lengths()).len(), 2);
    }

    /// Later synchronisations leave out what the device missed, unless it is written again.
    #[test]
    fn after_a_failed_synchronisation_the_device_may_lack_what_the_page_cache_has() {
        let bytes = SECTOR_BYTES as u64;
        for drops in [false, true] {
            let mut seen = BTreeSet::new();
            for seed in 0..40 {
                let disk = SectorDisk::new(vec![0; 2 * SECTOR_BYTES]);
                disk.write(0, &[1; 2 * SECTOR_BYTES]).unwrap();
                disk.fail_synchronisation(seed, drops);
                assert!(disk.synchronise().is_err());
                disk.synchronise().unwrap();
                let (history, contents) = (disk.history(), disk.contents());
                let mut cuts = PowerCuts::new(&history, 1);
                while cuts.step().is_some() {}
                let image = cuts.image();
                assert!(if drops { contents == image } else { contents == [1; 2 * SECTOR_BYTES] });
                assert_eq!(cuts.killed_image(), contents);
                seen.insert((image[0], image[SECTOR_BYTES]));
                disk.write(bytes, &[2; SECTOR_BYTES]).unwrap();
                disk.synchronise().unwrap();
                let history = disk.history();
                let mut cuts = PowerCuts::new(&history, 1);
                while cuts.step().is_some() {}
                assert_eq!(cuts.image()[SECTOR_BYTES], 2);
            }
            assert_eq!(seen, [(0, 0), (0, 1), (1, 0), (1, 1)].into());
        }
    }

    #[test]
    fn after_the_cut_nothing_is_done() {
        let disk = SectorDisk::new(vec![0; SECTOR_BYTES]);
        disk.cut_after(1);
        disk.write(0, &[1]).unwrap();
        assert!(disk.write(0, &[2]).is_err() && disk.synchronise().is_err());
        assert_eq!((disk.contents()[0], disk.history().events.len()), (1, 1));
        assert!(disk.read(511, &mut [0; 2]).is_err());
    }

    #[test]
    fn synchronisations_are_left_out_by_what_they_are_for() {
        let disk = SectorDisk::new(vec![0; 4 * SECTOR_BYTES]);
        for off in [0, 512, 1024] {
            disk.write(off, &[1]).unwrap();
            disk.synchronise().unwrap();
            disk.mark(off);
        }
        let is_sync = |event: &&DiskEvent| matches!(event, DiskEvent::Synchronised(_));
        let left = disk.history().without_synchronisations_of(512..1024);
        assert_eq!(left.events.iter().filter(is_sync).count(), 2);
        let early = disk.history().with_early_marks();
        assert!(matches!(
            early.events[..3],
            [DiskEvent::Write { .. }, DiskEvent::Mark(0), DiskEvent::Synchronised(_)]
        ));
    }
}
