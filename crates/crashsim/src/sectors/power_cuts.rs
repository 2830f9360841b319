//! Images of a disk, all along its history.

use super::cache::Cache;
use super::{DiskEvent, History, SectorDisk};
use crate::rng::Rng;

/// Goes through a history, and builds images of the device.
pub struct PowerCuts<'h> {
    events: std::slice::Iter<'h, DiskEvent>,
    cache: Cache,
    rng: Rng,
}

impl<'h> PowerCuts<'h> {
    /// The beginning of a history; `seed` chooses the images.
    pub fn new(history: &'h History, seed: u64) -> PowerCuts<'h> {
        PowerCuts {
            events: history.events.iter(),
            cache: Cache::new(history.before.clone()),
            rng: Rng::new(seed),
        }
    }

    /// Goes on by one event, which is returned; `None` at the end.
    pub fn step(&mut self) -> Option<&'h DiskEvent> {
        let event = self.events.next()?;
        self.cache.change(event);
        Some(event)
    }

    /// One of the images that a power failure at this moment may leave.
    pub fn image(&mut self) -> Vec<u8> {
        self.cache.image(&mut self.rng)
    }

    /// The image that a kill at this moment leaves.
    pub fn killed_image(&self) -> Vec<u8> {
        self.cache.contents.clone()
    }

    /// Recovers an image on a disk of its own, and lets the power fail after some of the recovery's writes.
    /// Returns an image that the disk may then have, or none if the recovery ended before the failure.
    pub fn cut_recovery(
        &mut self,
        image: &[u8],
        recovers: impl FnOnce(&SectorDisk) -> bool,
    ) -> Option<Vec<u8>> {
        let disk = SectorDisk::new(image.to_vec());
        disk.cut_after(self.chance(60));
        if recovers(&disk) {
            return None;
        }
        let history = disk.history();
        let mut again = PowerCuts::new(&history, self.chance(1 << 30) as u64);
        while again.step().is_some() {}
        Some(again.image())
    }

    /// A number below `bound`, from the same seed.
    pub fn chance(&mut self, bound: usize) -> usize {
        self.rng.below(bound)
    }
}
