//! The model: accesses in, costs out.

use super::branch::{Predictor, Site};
use super::cache::{Found, Hierarchy};
use super::media::{self, Change, Timing, Wear, WearSummary};
use super::params::{Medium, Params, ParamsError};
use super::words::Words;
use foldhash::fast::FixedState;
use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use tembo_pmem::{LINE_BYTES, WORD_BYTES};

/// Bits of a line.
const LINE_BITS: u64 = LINE_BYTES * 8;

/// A line of DRAM is written as a whole, whatever changed.
const SOME_CHANGE: Change = Change { words: 1, bits: 1 };

/// The cost of accesses.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cost {
    /// Time.
    pub cycles: u64,
    /// The part spent waiting for lines that were loaded.
    pub load_stall_cycles: u64,
    /// The part spent waiting in fences.
    pub fence_stall_cycles: u64,
    /// The part spent waiting for a place in the write queue.
    pub queue_stall_cycles: u64,
    /// Words loaded.
    pub loads: u64,
    /// Words stored; the paper's Nw.
    pub stores: u64,
    /// Lines flushed, dirty or not; the paper's Nclf.
    pub flushes: u64,
    /// Fences; the paper's Nmf.
    pub fences: u64,
    /// Branches that went the other way than foreseen.
    pub mispredictions: u64,
    /// Pages that the TLB did not know.
    pub tlb_misses: u64,
    /// Lines read from media.
    pub lines_read: u64,
    /// Dirty lines written back, by flushes and by evictions.
    pub lines_written: u64,
    /// The part written by evictions.
    pub evictions_written: u64,
    /// Words that the write-backs changed on media.
    pub words_modified: u64,
    /// Bits that the write-backs changed on media: the paper's wear.
    pub bits_modified: u64,
    /// Lines read from DRAM. Nothing else here counts accesses to DRAM, but the times, loads and
    /// mispredictions.
    pub dram_lines_read: u64,
    /// Dirty lines written back to DRAM.
    pub dram_lines_written: u64,
    /// Energy of reading lines, in picojoules; 0 when the memory's is not known.
    pub read_pj: f64,
    /// Energy of changing bits, in picojoules; 0 when the memory's is not known.
    pub write_pj: f64,
}

/// A processor and a memory, told every access in program order.
#[derive(Debug)]
pub struct Model {
    params: Params,
    medium: Medium,
    latencies: Vec<u64>,
    caches: Hierarchy,
    /// Pages that the TLB knows, the latest last.
    tlb: VecDeque<u64>,
    memory: Timing,
    dram: Timing,
    /// The first line that is DRAM.
    dram_line: u64,
    /// The words that programs see.
    words: Words,
    /// The contents on media of the lines stored to since their last write-back.
    on_media: HashMap<u64, [u64; 8], FixedState>,
    /// Lines being filled, and when they arrive.
    fills: Vec<(u64, u64)>,
    now: u64,
    /// When everything flushed so far is durable, and everything stored is in the cache.
    settled: u64,
    /// The cycles of the loads since the last branch, one after another, that nothing has waited for: all of
    /// them hit the nearest cache.
    unwaited: u64,
    predictor: Predictor,
    /// Instructions not yet charged as whole cycles.
    instructions: f64,
    cost: Cost,
    begun: u64,
    wear: Wear,
}

impl Model {
    /// An empty memory of the parameters' medium of that name, with cold caches.
    ///
    /// # Errors
    ///
    /// [`ParamsError::Medium`] when the parameters have no such medium.
    pub fn new(params: &Params, medium: &str) -> Result<Model, ParamsError> {
        let medium = params.medium(medium)?.clone();
        Ok(Model {
            latencies: params.cache.iter().map(|level| level.latency_cycles).collect(),
            caches: Hierarchy::new(&params.cache),
            tlb: VecDeque::with_capacity(params.tlb.entries),
            memory: Timing::new(&params.controller, &medium, params.core.clock_ghz),
            dram: Timing::new(&params.controller, &params.dram, params.core.clock_ghz),
            dram_line: u64::MAX,
            params: params.clone(),
            medium,
            words: Words::default(),
            on_media: HashMap::default(),
            fills: Vec::new(),
            now: 0,
            settled: 0,
            unwaited: 0,
            predictor: Predictor::new(),
            instructions: 0.0,
            cost: Cost::default(),
            begun: 0,
            wear: Wear::default(),
        })
    }

    /// From `off` on, a multiple of 64, memory is DRAM: behind the same caches, and neither worn nor durable.
    /// Its contents are not kept; it is stored to by [`store_dram`](Self::store_dram).
    pub fn put_dram_at(&mut self, off: u64) {
        self.dram_line = off / LINE_BYTES;
    }

    /// The parameters.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The memory behind the caches.
    pub fn medium(&self) -> &Medium {
        &self.medium
    }

    /// The word at `off`, a multiple of 8, at no cost.
    pub fn peek(&self, off: u64) -> u64 {
        self.words.get(off / WORD_BYTES)
    }

    /// Sets the word at `off`, a multiple of 8, on media and for programs, at no cost: for what is there
    /// before anything is measured.
    pub fn poke(&mut self, off: u64, value: u64) {
        self.words.set(off / WORD_BYTES, value);
        if self.on_media.is_empty() {
            return;
        }
        if let Some(words) = self.on_media.get_mut(&(off / LINE_BYTES)) {
            words[(off % LINE_BYTES / WORD_BYTES) as usize] = value;
        }
    }

    /// The core reads `bytes` bytes at `off`. If they are in the nearest cache, only what depends on them
    /// waits for them: a branch that was not foreseen, or what is farther away, whose address they may give.
    /// For lines that are farther away the core waits.
    pub fn load(&mut self, off: u64, bytes: u64) {
        for line in lines(off, bytes) {
            let words = words_in(line, off, bytes);
            self.cost.loads += words;
            let pipelined = self.params.core.pipelined_load_cycles;
            self.translate(line);
            if self.caches.has_nearest(line) && self.arrival(line) <= self.now {
                self.bring(line);
                self.now += words * pipelined;
                self.unwaited += self.latencies[0].saturating_sub(pipelined);
                continue;
            }
            self.wait_for_loads();
            let begun = self.now;
            let ready = self.bring(line);
            self.now = self.now.max(ready);
            self.cost.load_stall_cycles += self.now - begun;
            self.now += (words - 1) * pipelined;
        }
    }

    /// The core comes to a branch that depends on what was loaded since the last one. If it was foreseen, the
    /// core has gone on already, and never waits for those loads.
    pub fn branch(&mut self, site: Site, taken: bool) {
        if self.predictor.foresees(site, taken) {
            self.unwaited = 0;
            return;
        }
        self.cost.mispredictions += 1;
        self.wait_for_loads();
        self.now += self.params.core.mispredict_cycles;
    }

    /// The core asks for the lines of `bytes` bytes at `off` and goes on.
    pub fn prefetch(&mut self, off: u64, bytes: u64) {
        self.wait_for_loads();
        for line in lines(off, bytes) {
            self.now += self.params.core.prefetch_cycles;
            self.translate(line);
            self.bring(line);
        }
    }

    /// The core finds out that it will load the word at `off`, before it comes to loads that do not depend on
    /// it: the line is fetched from now on.
    pub fn ask(&mut self, off: u64) {
        let line = off / LINE_BYTES;
        if !self.caches.has_nearest(line) {
            self.wait_for_loads();
            self.translate(line);
            self.bring(line);
        }
    }

    /// The core stores the word at `off`, a multiple of 8. It does not wait for the line to arrive.
    pub fn store(&mut self, off: u64, value: u64) {
        let line = off / LINE_BYTES;
        self.cost.stores += 1;
        self.now += self.params.core.store_cycles;
        self.translate(line);
        let ready = self.bring(line);
        self.settled = self.settled.max(ready);
        self.caches.set_dirty(line);
        if let std::collections::hash_map::Entry::Vacant(entry) = self.on_media.entry(line) {
            entry.insert(self.words.line(line));
        }
        self.words.set(off / WORD_BYTES, value);
    }

    /// The core stores a word of DRAM at `off`.
    pub fn store_dram(&mut self, off: u64) {
        let line = off / LINE_BYTES;
        self.now += self.params.core.store_cycles;
        self.translate(line);
        self.bring(line);
        self.caches.set_dirty(line);
    }

    /// The core starts the write-back of the lines of `bytes` bytes at `off`.
    pub fn flush(&mut self, off: u64, bytes: u64) {
        for line in lines(off, bytes) {
            self.cost.flushes += 1;
            self.now += self.params.core.flush_cycles;
            self.translate(line);
            if !self.caches.flush(line, self.params.controller.flush_evicts) {
                continue;
            }
            let begin = self.now.max(self.arrival(line)) + self.farthest_latency();
            let durable = self.write_back(line, begin);
            self.settled = self.settled.max(durable);
        }
    }

    /// The core waits until its stores are in the caches and its flushes are durable.
    pub fn fence(&mut self) {
        self.cost.fences += 1;
        self.wait_for_loads();
        self.now += self.params.core.fence_cycles;
        self.cost.fence_stall_cycles += self.settled.saturating_sub(self.now);
        self.now = self.now.max(self.settled);
    }

    /// The core executes other instructions.
    pub fn compute(&mut self, instructions: u32) {
        self.instructions += f64::from(instructions);
        let cycles = (self.instructions / self.params.core.instructions_per_cycle).floor();
        self.instructions -= cycles * self.params.core.instructions_per_cycle;
        self.now += cycles as u64;
    }

    /// Writes all dirty lines back, so that their words, bits and wear are counted; takes no time. What was
    /// stored but neither flushed nor evicted has cost the memory nothing yet.
    pub fn drain(&mut self) {
        let mut dirty: Vec<u64> = self.on_media.keys().copied().collect();
        dirty.sort_unstable();
        for line in dirty {
            if self.caches.flush(line, false) {
                self.cost.evictions_written += 1;
                self.count_write_back(line);
            }
        }
    }

    /// The cost since the beginning or the last [`restart`](Self::restart).
    pub fn cost(&self) -> Cost {
        let pj = |per_bit: Option<f64>, bits: u64| per_bit.unwrap_or(0.0) * bits as f64;
        Cost {
            cycles: self.now - self.begun,
            read_pj: pj(self.medium.read_pj_per_bit, self.cost.lines_read * LINE_BITS),
            write_pj: pj(self.medium.write_pj_per_bit, self.cost.bits_modified),
            ..self.cost
        }
    }

    /// How the writes since then are distributed over lines.
    pub fn wear(&self) -> WearSummary {
        self.wear.summary()
    }

    /// Nanoseconds of so many cycles.
    pub fn ns(&self, cycles: u64) -> f64 {
        cycles as f64 / self.params.core.clock_ghz
    }

    /// Begins to count anew; caches and memory stay as they are.
    pub fn restart(&mut self) {
        self.cost = Cost::default();
        self.wear = Wear::default();
        self.begun = self.now;
    }

    /// Waits for the loads that nothing has waited for.
    fn wait_for_loads(&mut self) {
        self.now += std::mem::take(&mut self.unwaited);
    }

    /// When a line arrives that was asked for; 0 if it is not on its way.
    fn arrival(&self, line: u64) -> u64 {
        self.fills.iter().find(|(filling, _)| *filling == line).map_or(0, |(_, ready)| *ready)
    }

    fn farthest_latency(&self) -> u64 {
        self.latencies.last().copied().unwrap_or(0)
    }

    /// Looks the line's page up.
    fn translate(&mut self, line: u64) {
        let page = line * LINE_BYTES / self.params.tlb.page_bytes;
        if self.tlb.back() == Some(&page) {
            return;
        }
        match self.tlb.iter().rposition(|known| *known == page) {
            Some(at) => _ = self.tlb.remove(at),
            None => {
                self.cost.tlb_misses += 1;
                self.now += self.params.tlb.walk_cycles;
                if self.tlb.len() == self.params.tlb.entries {
                    self.tlb.pop_front();
                }
            }
        }
        self.tlb.push_back(page);
    }

    /// Brings the line into the nearest cache; when it is there.
    fn bring(&mut self, line: u64) -> u64 {
        let (found, evicted) = self.caches.access(line);
        if let Found::Level(level) = found {
            return self.arrival(line).max(self.now + self.latencies[level]);
        }
        self.wait_for_a_fill();
        let asked = self.now + self.farthest_latency();
        let ready = if line < self.dram_line {
            self.cost.lines_read += 1;
            self.memory.read(line, asked)
        } else {
            self.cost.dram_lines_read += 1;
            self.dram.read(line, asked)
        };
        self.fills.push((line, ready));
        match evicted {
            Some(dirty) if dirty >= self.dram_line => {
                self.cost.dram_lines_written += 1;
                self.dram.write(dirty, ready, SOME_CHANGE);
            }
            Some(dirty) => {
                self.cost.evictions_written += 1;
                self.write_back(dirty, ready);
            }
            None => {}
        }
        ready
    }

    /// Forgets the fills that have arrived, and waits for one if there are too many.
    fn wait_for_a_fill(&mut self) {
        let now = self.now;
        self.fills.retain(|(_, ready)| *ready > now);
        if self.fills.len() >= self.params.core.outstanding_fills {
            let first = self.fills.iter().map(|(_, ready)| *ready).min().unwrap_or(now);
            self.cost.load_stall_cycles += first - now;
            self.now = first;
            self.fills.retain(|(_, ready)| *ready > first);
        }
    }

    /// Queues a write-back that is ready at `at`; when it is durable.
    fn write_back(&mut self, line: u64, at: u64) -> u64 {
        let change = self.count_write_back(line);
        let (accepted, durable) = self.memory.write(line, at, change);
        // The core is stopped for as long as the queue takes nothing more.
        self.cost.queue_stall_cycles += accepted - at;
        self.now += accepted - at;
        durable
    }

    fn count_write_back(&mut self, line: u64) -> Change {
        let new = self.words.line(line);
        let old = self.on_media.remove(&line).unwrap_or(new);
        let change = media::change(&old, &new);
        self.cost.lines_written += 1;
        self.cost.words_modified += change.words;
        self.cost.bits_modified += change.bits;
        if change.words > 0 {
            self.wear.note(line);
        }
        change
    }
}

/// The numbers of the lines of a range.
fn lines(off: u64, bytes: u64) -> RangeInclusive<u64> {
    if bytes == 0 {
        return RangeInclusive::new(1, 0);
    }
    off / LINE_BYTES..=(off + bytes - 1) / LINE_BYTES
}

/// How many words of a line a range touches.
fn words_in(line: u64, off: u64, bytes: u64) -> u64 {
    let first = off.max(line * LINE_BYTES) / WORD_BYTES;
    let last = (off + bytes - 1).min(line * LINE_BYTES + LINE_BYTES - 1) / WORD_BYTES;
    last - first + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvm::Durable;

    fn pcm() -> Model {
        Model::new(&Params::wbtree(), "pcm").unwrap()
    }

    fn with(change: impl FnOnce(&mut Params)) -> Model {
        let mut params = Params::wbtree();
        change(&mut params);
        Model::new(&params, "pcm").unwrap()
    }

    #[test]
    fn a_load_costs_a_walk_and_a_line_once_then_almost_nothing() {
        let mut model = pcm();
        model.load(0, 8);
        // The walk, the way past the last cache, the memory.
        assert_eq!(model.cost().cycles, 39 + 39 + 230);
        model.load(8, 16);
        assert_eq!(model.cost().cycles, 308 + 2, "the same line, pipelined");
        model.load(64, 8);
        model.load(0, 8);
        assert_eq!(
            model.cost().cycles,
            310 + 3 + 269 + 1,
            "another line of the page, whose address may be in what was loaded, and back in the nearest cache"
        );
        assert_eq!((model.cost().loads, model.cost().lines_read, model.cost().tlb_misses), (5, 2, 1));
    }

    #[test]
    fn only_what_depends_on_a_load_from_the_nearest_cache_waits_for_it() {
        let cycles_of = |act: &dyn Fn(&mut Model)| {
            let mut model = pcm();
            model.load(0, 8);
            model.load(64, 8);
            // From now on it is foreseen that this branch is taken.
            (0..20).for_each(|_| model.branch(Site::Above, true));
            model.restart();
            act(&mut model);
            model.cost().cycles
        };
        let loads = |model: &mut Model| [0, 64].into_iter().for_each(|off| model.load(off, 8));
        assert_eq!(cycles_of(&loads), 2, "a cycle each");
        let foreseen = |model: &mut Model| {
            loads(model);
            model.branch(Site::Above, true);
            model.fence();
        };
        assert_eq!(cycles_of(&foreseen), 2 + 10, "nothing waits");
        let not_foreseen = |model: &mut Model| {
            loads(model);
            model.branch(Site::Above, false);
            model.fence();
        };
        assert_eq!(cycles_of(&not_foreseen), 2 * 4 + 12 + 10, "the second load may depend on the first");
        let farther = |model: &mut Model| {
            loads(model);
            model.load(128, 8);
        };
        assert_eq!(cycles_of(&farther), 2 * 4 + 39 + 230, "its address may depend on them");
    }

    #[test]
    fn a_line_pushed_out_of_the_nearest_cache_is_in_the_next() {
        let mut model = pcm();
        // Nine lines of the same set of 8.
        for page in 0..9 {
            model.load(page * 4096, 8);
        }
        let before = model.cost();
        model.load(0, 8);
        assert_eq!(model.cost().cycles - before.cycles, 11);
        assert_eq!(model.cost().lines_read, 9);
    }

    #[test]
    fn prefetched_lines_arrive_together() {
        let mut model = pcm();
        model.prefetch(0, 128);
        assert_eq!(model.cost().cycles, 1 + 39 + 1, "the core does not wait");
        model.load(0, 8);
        assert_eq!(model.cost().cycles, 1 + 39 + 39 + 230);
        model.load(64, 8);
        assert_eq!(model.cost().cycles, 309 + 15, "the second line had the bus after the first");
    }

    #[test]
    fn loads_that_do_not_depend_on_each_other_overlap() {
        let mut model = pcm();
        [0, 64].into_iter().for_each(|off| model.ask(off));
        [0, 64].into_iter().for_each(|off| model.load(off, 8));
        assert_eq!(model.cost().cycles, 39 + 39 + 230 + 15);
    }

    #[test]
    fn more_fills_than_the_core_has_places_for_wait() {
        let mut model = with(|params| params.core.outstanding_fills = 2);
        model.prefetch(0, 192);
        assert_eq!(model.cost().cycles, 309, "the third waits for the first");
    }

    #[test]
    fn dram_is_faster_and_is_not_worn() {
        let mut model = with(|params| {
            for cache in &mut params.cache {
                (cache.bytes, cache.ways) = (64, 1);
            }
        });
        model.put_dram_at(4096);
        model.load(4096, 8);
        assert_eq!(model.cost().cycles, 39 + 39 + 75);
        model.store_dram(4104);
        // Another line takes its place, and it is written back.
        model.load(4160, 8);
        model.drain();
        let cost = model.cost();
        assert_eq!((cost.dram_lines_read, cost.dram_lines_written), (2, 1));
        assert_eq!(
            (cost.lines_read, cost.lines_written, cost.read_pj, model.wear().line_count),
            (0, 0, 0.0, 0)
        );
        model.load(0, 8);
        assert_eq!(model.cost().lines_read, 1);
    }

    #[test]
    fn a_fence_waits_for_each_changed_word() {
        let persisted = |words: u64| {
            let mut model = pcm();
            (0..words).for_each(|word| model.store(word * 8, 1));
            model.flush(0, 64);
            model.fence();
            model.cost()
        };
        // The line arrives at 309 (walk, last cache, memory, after a store), leaves for the bus, changes a
        // word.
        let one = persisted(1);
        assert_eq!(one.cycles, 309 + 39 + 15 + 450);
        assert_eq!(one.fence_stall_cycles, one.cycles - (1 + 39 + 2 + 10));
        assert_eq!(persisted(3).cycles, one.cycles + 2 * 450);
        assert_eq!((one.stores, one.flushes, one.fences, one.words_modified), (1, 1, 1, 1));
    }

    #[test]
    fn flushes_before_one_fence_overlap_in_different_ranks() {
        let mut model = pcm();
        for line in [0, 1] {
            model.poke(line * 64, 0);
            model.load(line * 64, 8);
        }
        model.restart();
        for line in [0, 1] {
            model.store(line * 64, 1);
            model.flush(line * 64, 8);
        }
        model.fence();
        // The first is flushed at 3, is past the last cache at 42 and has the bus until 57; then the second
        // has it.
        assert_eq!(model.cost().cycles, 3 + 39 + 15 + 15 + 450);
    }

    #[test]
    fn a_queue_that_survives_makes_fences_cheap() {
        let mut model = with(|params| params.controller.fence_waits_for = Durable::Queue);
        model.store(0, 1);
        model.flush(0, 8);
        model.fence();
        assert_eq!(model.cost().cycles, 309 + 39 + 15);
    }

    #[test]
    fn a_flush_evicts_or_not() {
        for (evicts, lines_read) in [(true, 2), (false, 1)] {
            let mut model = with(|params| params.controller.flush_evicts = evicts);
            model.store(0, 1);
            model.flush(0, 8);
            model.fence();
            model.load(0, 8);
            assert_eq!(model.cost().lines_read, lines_read, "{evicts}");
        }
    }

    #[test]
    fn storing_what_is_there_changes_no_bit_and_wears_nothing() {
        let mut model = pcm();
        model.poke(0, 0xFF);
        model.store(0, 0);
        model.store(0, 0xFF);
        model.flush(0, 8);
        let cost = model.cost();
        assert_eq!((cost.lines_written, cost.words_modified, cost.bits_modified), (1, 0, 0));
        assert_eq!(model.wear().line_count, 0);
        model.store(0, 0xF0);
        model.flush(0, 8);
        assert_eq!((model.cost().words_modified, model.cost().bits_modified), (1, 4));
        assert_eq!((model.cost().write_pj, model.cost().read_pj), (4.0 * 16.0, 2.0 * 512.0 * 2.0));
        assert_eq!(model.wear().max, 1);
    }

    #[test]
    fn a_dirty_line_reaches_media_when_it_must_leave() {
        let one_line = |params: &mut Params| {
            for cache in &mut params.cache {
                (cache.bytes, cache.ways) = (64, 1);
            }
        };
        let mut model = with(one_line);
        model.store(0, 7);
        model.load(64, 8);
        let cost = model.cost();
        assert_eq!((cost.evictions_written, cost.lines_written, cost.bits_modified), (1, 1, 3));
        model.flush(0, 8);
        assert_eq!(model.cost().lines_written, 1, "it is not dirty any more");
    }

    #[test]
    fn what_is_still_dirty_is_counted_at_last_and_takes_no_time() {
        let mut model = pcm();
        model.store(0, 1);
        model.store(64, 1);
        let cycles = model.cost().cycles;
        model.drain();
        model.drain();
        let cost = model.cost();
        assert_eq!((cost.cycles, cost.lines_written, cost.words_modified), (cycles, 2, 2));
    }

    #[test]
    fn computing_takes_the_instructions_per_cycle() {
        let mut model = pcm();
        (0..3).for_each(|_| model.compute(3));
        assert_eq!(model.cost().cycles, 4, "9 instructions at 2 a cycle, half a cycle still to come");
        model.compute(1);
        assert_eq!(model.cost().cycles, 5);
    }

    #[test]
    fn counting_begins_anew_with_warm_caches() {
        let mut model = pcm();
        model.store(0, 1);
        model.restart();
        model.load(0, 8);
        let cost = model.cost();
        assert_eq!((cost.stores, cost.loads, cost.lines_read), (0, 1, 0));
        assert_eq!(cost.cycles, 309 - 40, "the line was on its way");
    }
}
