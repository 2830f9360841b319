//! A file in the page cache, and what its device may have of it.

use super::{DiskEvent, SECTOR_BYTES, Sector, WHOLE};
use crate::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

const ZEROS: Sector = [0; SECTOR_BYTES];

pub(super) struct Cache {
    /// The file as processes see it.
    pub(super) contents: Vec<u8>,
    /// The device's contents. A sector without versions is there as the device has it; a sector with versions
    /// is there as the device had it at the last synchronisation. As long as the longest of the lengths.
    device: Vec<u8>,
    /// Lengths that the file may have on the device, the last of them that of `contents`.
    lengths: Vec<usize>,
    /// The versions of each changed sector since the last synchronisation, oldest first.
    versions: BTreeMap<usize, Vec<Sector>>,
    /// Sectors whose last change is the file system's: the synchronisation of a range leaves them open.
    holes: BTreeSet<usize>,
}

fn sectors_of(range: &Range<u64>) -> Range<usize> {
    range.start as usize / SECTOR_BYTES..range.end.div_ceil(SECTOR_BYTES as u64) as usize
}

fn put(contents: &mut [u8], sector: usize, version: &Sector) {
    // A sector that was cut off has no place.
    if let Some(place) = contents.get_mut(sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES) {
        place.copy_from_slice(version);
    }
}

impl Cache {
    pub(super) fn new(contents: Vec<u8>) -> Cache {
        Cache {
            device: contents.clone(),
            lengths: vec![contents.len()],
            contents,
            versions: BTreeMap::new(),
            holes: BTreeSet::new(),
        }
    }

    /// Does what an event says.
    pub(super) fn change(&mut self, event: &DiskEvent) {
        match event {
            DiskEvent::Write { off, bytes } => self.write(*off as usize, bytes),
            DiskEvent::Extended(bytes) => {
                // A part that was cut off has had zeros as its last version since then.
                self.contents.resize(*bytes as usize, 0);
                self.device.resize(self.device.len().max(*bytes as usize), 0);
                self.lengths.push(*bytes as usize);
            }
            DiskEvent::Cut(bytes) => {
                self.clear(*bytes..self.device.len() as u64);
                self.contents.truncate(*bytes as usize);
                self.lengths.push(*bytes as usize);
            }
            DiskEvent::Punched(range) => self.clear(range.clone()),
            DiskEvent::Synchronised(range) => self.synchronise(range),
            DiskEvent::Failed(sectors, drops) => {
                for (sector, version) in sectors {
                    self.versions.remove(sector);
                    self.holes.remove(sector);
                    put(&mut self.device, *sector, version);
                    if *drops {
                        put(&mut self.contents, *sector, version);
                    }
                }
            }
            DiskEvent::Mark(_) => {}
        }
    }

    /// A history in which a rule is broken may write behind the end.
    fn write(&mut self, start: usize, bytes: &[u8]) {
        let end = self.contents.len().min(start + bytes.len());
        if start >= end {
            return;
        }
        self.contents[start..end].copy_from_slice(&bytes[..end - start]);
        for sector in start / SECTOR_BYTES..=(end - 1) / SECTOR_BYTES {
            let at = sector * SECTOR_BYTES;
            let version = self.contents[at..at + SECTOR_BYTES].try_into().expect("a sector");
            self.versions.entry(sector).or_default().push(version);
            self.holes.remove(&sector);
        }
    }

    /// Whole sectors are zeros from now on.
    fn clear(&mut self, range: Range<u64>) {
        for sector in sectors_of(&range) {
            put(&mut self.contents, sector, &ZEROS);
            self.versions.entry(sector).or_default().push(ZEROS);
            self.holes.insert(sector);
        }
    }

    fn synchronise(&mut self, range: &Range<u64>) {
        if *range == WHOLE {
            self.lengths = vec![self.contents.len()];
            self.device.truncate(self.contents.len());
            self.holes.clear();
        }
        for sector in self.open_sectors(range) {
            self.versions.remove(&sector);
            let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
            if let Some(contents) = self.contents.get(range.clone()) {
                self.device[range].copy_from_slice(contents);
            }
        }
    }

    /// The changed sectors that a synchronisation of this range is for.
    fn open_sectors(&self, range: &Range<u64>) -> Vec<usize> {
        let of_files = |sector: &usize| *range == WHOLE || !self.holes.contains(sector);
        self.versions.range(sectors_of(range)).map(|(sector, _)| *sector).filter(of_files).collect()
    }

    /// Any version of each changed sector of a range, the device's included.
    pub(super) fn any_versions(&self, range: &Range<u64>, rng: &mut Rng) -> BTreeMap<usize, Sector> {
        let mut chosen = BTreeMap::new();
        for sector in self.open_sectors(range) {
            let versions = &self.versions[&sector];
            let at = sector * SECTOR_BYTES;
            let version = match rng.below(versions.len() + 1) {
                0 => self.device[at..at + SECTOR_BYTES].try_into().expect("a sector"),
                number => versions[number - 1],
            };
            chosen.insert(sector, version);
        }
        chosen
    }

    /// One of the images that a power failure at this moment may leave.
    pub(super) fn image(&self, rng: &mut Rng) -> Vec<u8> {
        /// In this many of 8 cases a changed sector has an old version: never to always.
        const OLD: [usize; 5] = [0, 1, 4, 7, 8];
        let mut image = self.device.clone();
        let old = OLD[rng.below(OLD.len())];
        for (sector, versions) in &self.versions {
            if rng.below(8) >= old {
                // Mostly the last version is chosen.
                let any = rng.below(2 * versions.len());
                put(&mut image, *sector, &versions[any.min(versions.len() - 1)]);
            }
        }
        image.truncate(self.lengths[rng.below(self.lengths.len())]);
        image
    }
}
