//! The model as memory for the trees of this crate.

use super::{Cost, Model, Site, WearSummary};
use crate::mem::Mem;
use std::cell::{Cell, RefCell};
use tembo_pmem::Counts;

/// Memory whose accesses cost what the model says.
#[derive(Debug)]
pub struct ModelMem {
    model: RefCell<Model>,
    bytes: u64,
    /// Whether accesses cost anything.
    measuring: Cell<bool>,
}

impl ModelMem {
    /// `bytes` bytes of the model's memory. Accesses cost nothing until [`measure`](Self::measure).
    pub fn new(model: Model, bytes: u64) -> ModelMem {
        ModelMem { model: RefCell::new(model), bytes, measuring: Cell::new(false) }
    }

    /// From now on accesses cost, and costs count from here; what was stored before is on media, and the
    /// caches are cold unless something was measured before.
    pub fn measure(&self) {
        self.model.borrow_mut().restart();
        self.measuring.set(true);
    }

    /// Stops measuring. Says what it has cost since [`measure`](Self::measure), dirty lines written back at
    /// last, and how the writes wore the lines.
    pub fn finish(&self) -> (Cost, WearSummary) {
        self.measuring.set(false);
        let mut model = self.model.borrow_mut();
        model.drain();
        (model.cost(), model.wear())
    }

    /// Nanoseconds of so many cycles.
    pub fn ns(&self, cycles: u64) -> f64 {
        self.model.borrow().ns(cycles)
    }

    fn check(&self, off: u64) {
        assert!(
            off.is_multiple_of(8) && off + 8 <= self.bytes,
            "no word at {off:#x} of {:#x} bytes",
            self.bytes
        );
    }
}

impl Mem for ModelMem {
    fn len_bytes(&self) -> u64 {
        self.bytes
    }

    fn load_u64(&self, off: u64) -> u64 {
        self.check(off);
        let mut model = self.model.borrow_mut();
        if self.measuring.get() {
            model.load(off, 8);
        }
        model.peek(off)
    }

    fn store_u64(&self, off: u64, value: u64) {
        self.check(off);
        let mut model = self.model.borrow_mut();
        if self.measuring.get() { model.store(off, value) } else { model.poke(off, value) }
    }

    fn flush(&self, off: u64, bytes: u64) {
        if self.measuring.get() {
            self.model.borrow_mut().flush(off, bytes);
        }
    }

    fn fence(&self) {
        if self.measuring.get() {
            self.model.borrow_mut().fence();
        }
    }

    fn prefetch(&self, off: u64, bytes: u64) {
        if self.measuring.get() {
            self.model.borrow_mut().prefetch(off, bytes);
        }
    }

    fn compute(&self, instructions: u32) {
        if self.measuring.get() {
            self.model.borrow_mut().compute(instructions);
        }
    }

    fn branch(&self, site: Site, taken: bool) {
        if self.measuring.get() {
            self.model.borrow_mut().branch(site, taken);
        }
    }

    fn counts(&self) -> Counts {
        let cost = self.model.borrow().cost();
        Counts { words: cost.stores, lines: cost.flushes, fences: cost.fences }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvm::Params;

    #[test]
    fn only_what_is_measured_costs() {
        let mem = ModelMem::new(Model::new(&Params::wbtree(), "pcm").unwrap(), 4096);
        mem.store_u64(64, 5);
        mem.flush(64, 8);
        mem.fence();
        mem.measure();
        assert_eq!(mem.load_u64(64), 5);
        mem.store_u64(64, 4);
        mem.store_u64(128, 1);
        mem.flush(64, 8);
        mem.fence();
        assert_eq!(mem.counts(), Counts { words: 2, lines: 1, fences: 1 });
        let (cost, wear) = mem.finish();
        mem.store_u64(64, 7);
        assert_eq!((cost.loads, cost.lines_read, cost.lines_written, cost.bits_modified), (1, 2, 2, 2));
        assert_eq!((wear.line_count, wear.max, cost.evictions_written), (2, 1, 1));
    }

    #[test]
    #[should_panic(expected = "no word at")]
    fn an_access_outside_is_a_panic() {
        ModelMem::new(Model::new(&Params::wbtree(), "pcm").unwrap(), 64).load_u64(64);
    }
}
