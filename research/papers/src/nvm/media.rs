//! The memory behind the caches: how long its ranks, banks and bus are busy, and what each line has endured.

use super::params::{Controller, Durable, Medium};
use foldhash::fast::FixedState;
use std::collections::HashMap;

/// The changes of a write-back on media.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) words: u64,
    pub(super) bits: u64,
}

/// The difference of two contents of a line.
pub(super) fn change(old: &[u64; 8], new: &[u64; 8]) -> Change {
    let differing = || old.iter().zip(new).map(|(old, new)| old ^ new).filter(|difference| *difference != 0);
    Change {
        words: differing().count() as u64,
        bits: differing().map(|difference| u64::from(difference.count_ones())).sum(),
    }
}

/// Ranks, banks and the bus, each busy until some cycle.
#[derive(Debug)]
pub(super) struct Timing {
    read_cycles: u64,
    write_line_cycles: u64,
    write_word_cycles: u64,
    transfer_cycles: u64,
    waits_for: Durable,
    queue_entries: usize,
    bus_free: u64,
    /// When each rank can begin its next write.
    rank_free: Vec<u64>,
    /// When each bank can begin anything.
    bank_free: Vec<u64>,
    /// When the write-backs in the queue are done.
    queue: Vec<u64>,
}

impl Timing {
    pub(super) fn new(controller: &Controller, medium: &Medium, clock_ghz: f64) -> Timing {
        Timing {
            read_cycles: medium.read.cycles(clock_ghz),
            write_line_cycles: medium.write_line.cycles(clock_ghz),
            write_word_cycles: medium.write_word.cycles(clock_ghz),
            transfer_cycles: controller.transfer_cycles,
            waits_for: controller.fence_waits_for,
            queue_entries: controller.write_queue_entries,
            bus_free: 0,
            rank_free: vec![0; controller.ranks as usize],
            bank_free: vec![0; (controller.ranks * controller.banks_per_rank) as usize],
            queue: Vec::new(),
        }
    }

    /// The rank of a line, and its bank among all.
    fn place(&self, line: u64) -> (usize, usize) {
        ((line % self.rank_free.len() as u64) as usize, (line % self.bank_free.len() as u64) as usize)
    }

    /// Reads a line asked for at `at`; when it has arrived. The bank is busy meanwhile, the bus while it
    /// transfers.
    pub(super) fn read(&mut self, line: u64, at: u64) -> u64 {
        let (_, bank) = self.place(line);
        let begin = at.max(self.bank_free[bank]).max(self.bus_free);
        self.bus_free = begin + self.transfer_cycles;
        self.bank_free[bank] = begin + self.read_cycles;
        begin + self.read_cycles
    }

    /// Takes a write-back that is ready at `at`. Says when the controller had room for it, and when it is
    /// durable.
    pub(super) fn write(&mut self, line: u64, at: u64, change: Change) -> (u64, u64) {
        let mut accepted = at;
        self.queue.retain(|done| *done > at);
        if self.queue.len() >= self.queue_entries {
            accepted = self.queue.iter().copied().min().unwrap_or(at);
            self.queue.retain(|done| *done > accepted);
        }
        let begin = accepted.max(self.bus_free);
        self.bus_free = begin + self.transfer_cycles;
        let arrived = begin + self.transfer_cycles;
        if change.words == 0 {
            return (accepted, arrived);
        }
        let (rank, bank) = self.place(line);
        let begin = arrived.max(self.rank_free[rank]).max(self.bank_free[bank]);
        let done = begin + self.write_line_cycles + change.words * self.write_word_cycles;
        self.rank_free[rank] = done;
        self.bank_free[bank] = done;
        self.queue.push(done);
        (accepted, if self.waits_for == Durable::Media { done } else { arrived })
    }
}

/// How often each line was written.
#[derive(Debug, Default)]
pub(super) struct Wear {
    writes: HashMap<u64, u64, FixedState>,
}

/// The distribution of writes over the lines that were written at all.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WearSummary {
    /// Lines written at least once.
    pub line_count: u64,
    /// Writes of the line written most.
    pub max: u64,
    /// Mean writes of a written line.
    pub mean: f64,
    /// Half of the written lines have at most this many.
    pub p50: u64,
    /// 99 of 100 written lines have at most this many.
    pub p99: u64,
    /// 999 of 1000 written lines have at most this many.
    pub p999: u64,
    /// Standard deviation over mean: 0 when all written lines are worn alike.
    pub variation: f64,
}

impl Wear {
    pub(super) fn note(&mut self, line: u64) {
        *self.writes.entry(line).or_default() += 1;
    }

    pub(super) fn summary(&self) -> WearSummary {
        let mut writes: Vec<u64> = self.writes.values().copied().collect();
        writes.sort_unstable();
        let Some(max) = writes.last().copied() else { return WearSummary::default() };
        let count = writes.len() as f64;
        let mean = writes.iter().sum::<u64>() as f64 / count;
        let variance = writes.iter().map(|w| (*w as f64 - mean).powi(2)).sum::<f64>() / count;
        let quantile = |q: f64| writes[((count * q).ceil() as usize).clamp(1, writes.len()) - 1];
        WearSummary {
            line_count: writes.len() as u64,
            max,
            mean,
            p50: quantile(0.5),
            p99: quantile(0.99),
            p999: quantile(0.999),
            variation: variance.sqrt() / mean,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvm::params::Params;

    const ONE_WORD: Change = Change { words: 1, bits: 1 };
    const TWO_WORDS: Change = Change { words: 2, bits: 9 };

    fn pcm() -> Timing {
        let params = Params::wbtree();
        Timing::new(&params.controller, params.medium("pcm").unwrap(), params.core.clock_ghz)
    }

    #[test]
    fn changes_are_counted_in_words_and_bits() {
        let old = [0, 1, 2, 3, 4, 5, 6, u64::MAX];
        let new = [0, 1, 3, 3, 4, 5, 6, 0];
        assert_eq!(change(&old, &new), Change { words: 2, bits: 65 });
        assert_eq!(change(&old, &old), Change { words: 0, bits: 0 });
    }

    #[test]
    fn reads_of_different_banks_overlap_and_of_one_bank_queue() {
        let mut memory = pcm();
        assert_eq!(memory.read(0, 1000), 1230);
        assert_eq!(memory.read(1, 1000), 1245, "the bus is free 15 cycles later");
        assert_eq!(memory.read(32, 1000), 1460, "the same bank as line 0");
    }

    #[test]
    fn writes_take_450_cycles_for_each_word_and_queue_in_their_rank() {
        let mut memory = pcm();
        assert_eq!(memory.write(0, 0, TWO_WORDS), (0, 15 + 900));
        assert_eq!(memory.write(1, 0, ONE_WORD), (0, 30 + 450), "another rank");
        assert_eq!(memory.write(4, 0, ONE_WORD), (0, 915 + 450), "rank 0, another bank");
        assert_eq!(memory.write(8, 0, Change { words: 0, bits: 0 }), (0, 60), "nothing differs");
        assert_eq!(memory.read(0, 100), 915 + 230, "the bank is being written");
        assert_eq!(memory.read(8, 2000), 2230);
    }

    #[test]
    fn the_33rd_write_back_waits_for_a_place_in_the_queue() {
        let mut memory = pcm();
        let accepted: Vec<u64> = (0..33).map(|line| memory.write(line, 0, ONE_WORD).0).collect();
        assert!(accepted[..32].iter().all(|at| *at == 0));
        assert_eq!(accepted[32], 15 + 450, "when the first is done");
    }

    #[test]
    fn a_durable_queue_needs_no_waiting_for_media() {
        let mut params = Params::wbtree();
        params.controller.fence_waits_for = Durable::Queue;
        let mut memory =
            Timing::new(&params.controller, params.medium("pcm").unwrap(), params.core.clock_ghz);
        assert_eq!(memory.write(0, 100, TWO_WORDS), (100, 115));
    }

    #[test]
    fn wear_is_summed_up_over_written_lines() {
        let mut wear = Wear::default();
        assert_eq!(wear.summary(), WearSummary::default());
        for line in [5, 5, 5, 9] {
            wear.note(line);
        }
        let summary = wear.summary();
        assert_eq!((summary.line_count, summary.max, summary.p50, summary.p99), (2, 3, 1, 3));
        assert_eq!((summary.mean, summary.variation), (2.0, 0.5));
    }
}
