//! The model as the observer of a simulated region.

use super::{Cost, Model, WearSummary};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tembo_pmem::{LINE_BYTES, Observer, ThreadTag, WORD_BYTES};

/// Feeds a model with what happens to a simulated region. All threads count as one.
#[derive(Debug)]
pub struct Listener {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    model: Model,
    measuring: bool,
    /// Loads to be told later, and how many prefetches come before them.
    later: Vec<u64>,
    prefetches_left: u32,
}

impl State {
    /// Tells the model what was put off.
    fn catch_up(&mut self) {
        let offs = std::mem::take(&mut self.later);
        offs.iter().for_each(|off| self.model.ask(*off));
        offs.iter().for_each(|off| self.model.load(*off, WORD_BYTES));
    }
}

impl Listener {
    /// Listens to a region that begins with `image`. Accesses cost nothing until [`measure`](Self::measure).
    pub fn new(mut model: Model, image: &[u8]) -> Listener {
        for (index, word) in image.chunks(WORD_BYTES as usize).enumerate() {
            let mut bytes = [0; WORD_BYTES as usize];
            bytes[..word.len()].copy_from_slice(word);
            if bytes != [0; WORD_BYTES as usize] {
                model.poke(index as u64 * WORD_BYTES, u64::from_le_bytes(bytes));
            }
        }
        Listener {
            state: Mutex::new(State { model, measuring: false, later: Vec::new(), prefetches_left: 0 }),
        }
    }

    /// From now on accesses cost, and costs count from here.
    pub fn measure(&self) {
        let mut state = self.state();
        state.model.restart();
        state.measuring = true;
    }

    /// Stops measuring. Says what it has cost since [`measure`](Self::measure), dirty lines written back at
    /// last, and how the writes wore the lines.
    pub fn finish(&self) -> (Cost, WearSummary) {
        let mut state = self.state();
        state.catch_up();
        state.measuring = false;
        state.model.drain();
        (state.model.cost(), state.model.wear())
    }

    /// Tells the model what does not go through the region, such as accesses to DRAM; what was put off comes
    /// before.
    pub fn tell(&self, tell: impl FnOnce(&mut Model)) {
        self.measured(tell);
    }

    /// Puts loads of words at these offsets off, which do not depend on each other and do not go through the
    /// region either: they come after as many prefetches of the region's lines, or before whatever else is
    /// told first.
    pub fn load_after_prefetches(&self, prefetches: u32, offs: Vec<u64>) {
        let mut state = self.state();
        if state.measuring {
            (state.later, state.prefetches_left) = (offs, prefetches);
        }
    }

    /// Nanoseconds of so many cycles.
    pub fn ns(&self, cycles: u64) -> f64 {
        self.state().model.ns(cycles)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn measured(&self, tell: impl FnOnce(&mut Model)) {
        let mut state = self.state();
        if state.measuring {
            state.catch_up();
            tell(&mut state.model);
        }
    }
}

impl Observer for Listener {
    fn store(&self, _: ThreadTag, off: u64, new: &[u8]) {
        let mut state = self.state();
        state.catch_up();
        let word_off = off & !(WORD_BYTES - 1);
        let mut bytes = state.model.peek(word_off).to_le_bytes();
        let at = (off - word_off) as usize;
        bytes[at..at + new.len()].copy_from_slice(new);
        let value = u64::from_le_bytes(bytes);
        if state.measuring { state.model.store(word_off, value) } else { state.model.poke(word_off, value) }
    }

    fn flush(&self, _: ThreadTag, line: u64) {
        self.measured(|model| model.flush(line * LINE_BYTES, LINE_BYTES));
    }

    fn fence(&self, _: ThreadTag) {
        self.measured(Model::fence);
    }

    fn wants_loads(&self) -> bool {
        true
    }

    fn load(&self, _: ThreadTag, off: u64, bytes: u64) {
        self.measured(|model| model.load(off, bytes));
    }

    fn prefetch(&self, _: ThreadTag, line: u64) {
        // A prefetch of any address is allowed, and one of nothing loads nothing.
        if line >= u64::MAX / LINE_BYTES {
            return;
        }
        let mut state = self.state();
        if state.measuring {
            match state.prefetches_left.checked_sub(1) {
                Some(left) => state.prefetches_left = left,
                None => state.catch_up(),
            }
            state.model.prefetch(line * LINE_BYTES, LINE_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvm::Params;
    use std::sync::Arc;
    use tembo_pmem::Region;

    #[test]
    fn a_simulated_region_tells_the_model_every_access() {
        let mut image = vec![0; 4096];
        image[64] = 3;
        let model = Model::new(&Params::wbtree(), "pcm").unwrap();
        let listener = Arc::new(Listener::new(model, &image));
        let region = Region::simulated(&image, 4096, Some(listener.clone())).unwrap();
        region.store_u64(128, 1).unwrap();
        listener.measure();
        assert_eq!(region.load_u64(64).unwrap(), 3);
        region.store_u64(64, 1).unwrap();
        region.store_u64(128, 1).unwrap();
        region.prefetch(256);
        region.note_load(320, 64);
        region.flush(64, 128);
        region.fence().unwrap();
        let (cost, wear) = listener.finish();
        assert_eq!((cost.loads, cost.stores, cost.flushes, cost.fences), (9, 2, 2, 1));
        assert_eq!(cost.lines_read, 4);
        assert_eq!(
            (cost.lines_written, cost.words_modified, cost.bits_modified),
            (2, 1, 1),
            "3 to 1; 1 was there"
        );
        assert_eq!(wear.line_count, 1);
    }

    #[test]
    fn loads_that_are_put_off_come_after_the_prefetches_and_before_everything_else() {
        let mut model = Model::new(&Params::wbtree(), "pcm").unwrap();
        model.put_dram_at(4096);
        let listener = Arc::new(Listener::new(model, &[]));
        let region = Region::simulated(&[0; 4096], 4096, Some(listener.clone())).unwrap();
        let dram_lines = || listener.state().model.cost().dram_lines_read;
        listener.load_after_prefetches(0, vec![4096]);
        listener.measure();
        listener.load_after_prefetches(1, vec![4096]);
        region.prefetch(0);
        assert_eq!(dram_lines(), 0);
        region.prefetch(64);
        assert_eq!(dram_lines(), 1);
        listener.load_after_prefetches(1, vec![4160]);
        region.load_u64(0).unwrap();
        assert_eq!(dram_lines(), 2);
        listener.load_after_prefetches(1, vec![4224]);
        listener.tell(|model| model.load(4288, 8));
        assert_eq!(listener.finish().0.dram_lines_read, 4);
    }

    #[test]
    fn a_load_is_still_checked() {
        let listener = Arc::new(Listener::new(Model::new(&Params::wbtree(), "pcm").unwrap(), &[]));
        let region = Region::simulated(&[0; 4096], 8192, Some(listener)).unwrap();
        assert!(region.load_u64(4096).is_err());
        assert!(region.load_u64(12).is_err());
        region.grow(8192).unwrap();
        assert_eq!(region.load_u64(4096).unwrap(), 0);
    }
}
