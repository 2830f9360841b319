//! Images of a disk, all along its history.

use super::cache::Cache;
use super::{DiskEvent, History};
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

    /// A number below `bound`, from the same seed.
    pub fn chance(&mut self, bound: usize) -> usize {
        self.rng.below(bound)
    }
}
