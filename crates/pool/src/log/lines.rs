//! Words that a transaction stores by line. The lines are in the order in which they were first stored to.

use crate::Result;
use tembo_pmem::{LINE_BYTES, Region};
use tembo_sync::hash_u64;

/// Words of a line.
const WORDS: usize = 8;
/// Unused words after those of a line, so that eight can be copied from any word on: that costs less than
/// copying only the stored words.
const MARGIN: usize = WORDS - 1;

/// The words of one line that are stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredLine {
    /// The line's offset.
    pub off: u64,
    /// Bit i: word i is stored.
    pub mask: u8,
    /// Whether its words become visible from the first to the last.
    in_order: bool,
    /// The values of the stored words, before a margin.
    words: [u64; WORDS + MARGIN],
}

impl StoredLine {
    fn new(off: u64) -> StoredLine {
        StoredLine { off, mask: 0, in_order: false, words: [0; WORDS + MARGIN] }
    }

    /// The eight words from word `first` on, below 8. Words that are not stored are meaningless.
    #[inline(always)]
    pub(crate) fn from(&self, first: usize) -> &[u64; WORDS] {
        self.words[first % WORDS..].first_chunk().expect("eight words")
    }

    #[inline(always)]
    fn set_all(&mut self, words: &[u64; WORDS]) {
        self.words[..WORDS].copy_from_slice(words);
    }
}

/// The first word in a mask, and the length of the run that begins there.
#[inline(always)]
pub(crate) fn first_run(mask: u8) -> (usize, usize) {
    let first = mask.trailing_zeros() as usize & 7;
    (first, (mask >> first).trailing_ones() as usize)
}

#[inline(always)]
pub(crate) fn run_mask(first: usize, count: usize) -> u8 {
    (((1_u32 << count) - 1) << first) as u8
}

/// The lines of a transaction. Emptying them for the next transaction takes no time.
pub(crate) struct StoredLines {
    /// The lines of this transaction, followed by leftovers of earlier ones, so that a new line need not be
    /// zeroed.
    lines: Vec<StoredLine>,
    count: usize,
    /// How many of the lines are in the table. The few others are searched one by one; most transactions have
    /// only such lines.
    indexed: usize,
    /// A hash table with linear probing: generation and number of a line. At most half of its entries are of
    /// the present generation.
    table: Vec<(u32, u32)>,
    /// The present generation. Entries of other generations count as empty.
    generation: u32,
    /// A bit for each line, by hash. A clear bit means that the line is absent.
    filter: u64,
}

/// Up to this many lines are not in the table.
const UNINDEXED_MAX: usize = 8;
const TABLE_MIN: usize = 256;
/// A larger table is not kept for the next transaction.
const TABLE_KEPT: usize = 1 << 12;

impl std::fmt::Debug for StoredLines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().map(|line| (line.off, line.mask))).finish()
    }
}

impl Default for StoredLines {
    fn default() -> Self {
        StoredLines {
            lines: Vec::new(),
            count: 0,
            indexed: 0,
            table: vec![(0, 0); TABLE_MIN],
            generation: 1,
            filter: 0,
        }
    }
}

#[inline(always)]
fn filter_bit(off: u64) -> u64 {
    1 << (hash_u64(off) >> 58)
}

impl StoredLines {
    /// The number of the line at `off`.
    fn find(&self, off: u64) -> Option<usize> {
        let few = self.lines[self.indexed..self.count].iter().position(|line| line.off == off);
        few.map(|at| self.indexed + at).or_else(|| self.find_in_table(off).ok())
    }

    /// The number of the line at `off`, or the slot of the table where it belongs.
    #[inline(always)]
    fn find_in_table(&self, off: u64) -> Result<usize, usize> {
        let mask = self.table.len() - 1;
        let mut slot = (hash_u64(off) >> 32) as usize & mask;
        loop {
            match self.table[slot] {
                (generation, _) if generation != self.generation => return Err(slot),
                (_, at) if self.lines[at as usize].off == off => return Ok(at as usize),
                _ => slot = (slot + 1) & mask,
            }
        }
    }

    /// The words to be stored in the line at `off`, if any.
    #[inline]
    pub(crate) fn at(&self, off: u64) -> Option<&StoredLine> {
        if self.filter & filter_bit(off) == 0 {
            return None;
        }
        Some(&self.lines[self.find(off)?])
    }

    /// The word at `off`, if it is going to be stored.
    #[inline]
    pub(crate) fn get(&self, off: u64) -> Option<u64> {
        let line = self.at(off & !(LINE_BYTES - 1))?;
        let word = (off % LINE_BYTES / 8) as usize;
        (line.mask >> word & 1 != 0).then(|| line.words[word])
    }

    /// Stores words from `off` on, a multiple of 8.
    #[inline(never)]
    pub(crate) fn set(&mut self, mut off: u64, mut words: &[u64]) {
        while !words.is_empty() {
            let first = (off % LINE_BYTES / 8) as usize;
            let (of_line, rest) = words.split_at(words.len().min(WORDS - first));
            self.set_some(off & !(LINE_BYTES - 1), first, of_line);
            off += 8 * of_line.len() as u64;
            words = rest;
        }
    }

    /// Stores the word at `off`, a multiple of 8.
    #[inline(always)]
    pub(crate) fn set_word(&mut self, off: u64, word: u64) {
        let at = (off % LINE_BYTES / 8) as usize;
        let line = self.line(off & !(LINE_BYTES - 1));
        line.mask |= 1 << at;
        line.words[at] = word;
    }

    /// Stores the words of the line at `off` that are in the mask. They become visible in order.
    #[inline]
    pub(crate) fn set_line(&mut self, off: u64, mask: u8, words: &[u64; WORDS]) {
        let line = self.line(off);
        if line.mask & !mask == 0 {
            line.set_all(words);
        } else {
            let to = &mut line.words;
            let chosen = words.iter().enumerate().filter(|(i, _)| mask >> i & 1 != 0);
            chosen.for_each(|(i, word)| to[i] = *word);
        }
        line.mask |= mask;
        line.in_order = true;
    }

    /// Stores all words of the line at `off`.
    #[inline(always)]
    pub(crate) fn set_whole_line(&mut self, off: u64, words: &[u64; WORDS]) {
        let line = self.line(off);
        line.mask = u8::MAX;
        line.set_all(words);
    }

    /// Stores words that all lie in one line.
    #[inline]
    fn set_some(&mut self, off: u64, first: usize, words: &[u64]) {
        let line = self.line(off);
        line.mask |= run_mask(first, words.len());
        let to = &mut line.words[first..WORDS];
        to.iter_mut().zip(words).for_each(|(to, word)| *to = *word);
    }

    #[inline(always)]
    fn line(&mut self, off: u64) -> &mut StoredLine {
        if self.filter & filter_bit(off) == 0 { self.add(off) } else { self.line_that_may_be_there(off) }
    }

    #[inline(never)]
    fn line_that_may_be_there(&mut self, off: u64) -> &mut StoredLine {
        match self.find(off) {
            Some(at) => &mut self.lines[at],
            None => self.add(off),
        }
    }

    /// Adds the line at `off`.
    #[inline(always)]
    fn add(&mut self, off: u64) -> &mut StoredLine {
        if self.count >= self.lines.len() || self.count - self.indexed == UNINDEXED_MAX {
            self.make_room();
        }
        let line = &mut self.lines[self.count];
        self.count += 1;
        self.filter |= filter_bit(off);
        // Its words are meaningless until they are stored.
        (line.off, line.mask, line.in_order) = (off, 0, false);
        line
    }

    /// Makes room for one more line, in the list and in the part of it that the table lacks.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self) {
        if self.count == self.lines.len() {
            self.lines.push(StoredLine::new(0));
        }
        if self.count - self.indexed == UNINDEXED_MAX {
            self.index_all();
        }
    }

    fn index_all(&mut self) {
        if self.count * 2 > self.table.len() {
            self.table = vec![(0, 0); self.table.len() * 4];
            self.generation = 1;
            self.indexed = 0;
        }
        for at in self.indexed..self.count {
            if let Err(slot) = self.find_in_table(self.lines[at].off) {
                self.table[slot] = (self.generation, at as u32);
            }
        }
        self.indexed = self.count;
    }

    #[inline(always)]
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, StoredLine> {
        self.lines[..self.count].iter()
    }

    /// Stores the words at their places.
    #[inline(always)]
    pub(crate) fn apply(&self, region: &Region) -> Result<()> {
        let stores = region.line_stores();
        for line in self.iter() {
            if line.in_order {
                region.store_line(line.off, line.mask, line.from(0))?;
            } else {
                stores.store_in_any_order(line.off, line.mask, line.from(0))?;
            }
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.count = 0;
        self.filter = 0;
        if self.indexed > 0 {
            self.forget_table();
        }
    }

    #[inline(never)]
    fn forget_table(&mut self) {
        self.indexed = 0;
        self.generation = self.generation.wrapping_add(1);
        if self.generation == 0 || self.table.len() > TABLE_KEPT {
            self.begin_again();
        }
    }

    /// Starts the generations anew, and frees the memory of a large transaction.
    #[cold]
    fn begin_again(&mut self) {
        *self = StoredLines::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_gathered_by_line() {
        let mut lines = StoredLines::default();
        lines.set(64 * 7 + 48, &[1, 2, 3, 4]);
        lines.set(64 * 7, &[5]);
        lines.set(64 * 8 + 8, &[6]);
        let found: Vec<_> = lines.iter().map(|line| (line.off, line.mask)).collect();
        assert_eq!(found, [(64 * 7, 0b1100_0001), (64 * 8, 0b0000_0011)]);
        let get = |word: u64| lines.get(64 * 7 + 8 * word);
        assert_eq!([0, 6, 7, 8, 9].map(get), [Some(5), Some(1), Some(2), Some(3), Some(6)]);
        assert_eq!([1, 5, 10, 100].map(get), [None; 4]);
    }

    #[test]
    fn eight_words_leave_their_neighbours_alone() {
        for first in 0..8 {
            let mut lines = StoredLines::default();
            lines.set(64 * 7, &[100, 101, 102, 103, 104, 105, 106, 107]);
            lines.set(64 * 8, &[108, 109, 110, 111, 112, 113, 114, 115]);
            lines.set(64 * 7 + 8 * first, &[0, 1, 2, 3, 4, 5, 6, 7]);
            for word in 0..16_u64 {
                let inside = word.checked_sub(first).filter(|at| *at < 8);
                assert_eq!(
                    lines.get(64 * 7 + 8 * word),
                    Some(inside.unwrap_or(100 + word)),
                    "{first} {word}"
                );
            }
        }
    }

    #[test]
    fn chosen_words_of_a_line_leave_the_others_alone() {
        let mut lines = StoredLines::default();
        lines.set_line(64 * 7, 0b0000_0110, &[0, 1, 2, 3, 4, 5, 6, 7]);
        lines.set_line(64 * 7, 0b0001_0100, &[10, 11, 12, 13, 14, 15, 16, 17]);
        lines.set_line(64 * 7, 0b1111_0110, &[20, 21, 22, 23, 24, 25, 26, 27]);
        let found: Vec<_> = (0..8).map(|word| lines.get(64 * 7 + 8 * word)).collect();
        let stored = [None, Some(21), Some(22), None, Some(24), Some(25), Some(26), Some(27)];
        assert_eq!(found, stored);
        lines.set_line(64 * 7, 0b0000_0010, &[30, 31, 32, 33, 34, 35, 36, 37]);
        assert_eq!((lines.get(64 * 7 + 8), lines.get(64 * 7 + 16)), (Some(31), Some(22)));
        assert_eq!(lines.iter().map(|line| line.mask).collect::<Vec<_>>(), [0b1111_0110]);
    }

    #[test]
    fn a_generation_that_comes_again_finds_nothing_of_the_first() {
        let mut lines = StoredLines::default();
        let many = 2 * UNINDEXED_MAX as u64;
        let set = |lines: &mut StoredLines, from: u64| {
            (from..from + many).for_each(|line| lines.set(64 * line, &[line]));
        };
        set(&mut lines, 0);
        assert!(lines.indexed > 0, "the table is used");
        lines.clear();
        lines.generation = u32::MAX;
        set(&mut lines, 100);
        lines.clear();
        assert_eq!((lines.generation, lines.get(0), lines.get(64 * 100)), (1, None, None));
        set(&mut lines, 200);
        for line in 0..many {
            let found = [line, 100 + line, 200 + line].map(|line| lines.get(64 * line));
            assert_eq!(found, [None, None, Some(200 + line)]);
        }
    }

    /// The lines share a bit of the filter; some are in the table, some are not.
    #[test]
    fn lines_that_are_stored_to_again_stay_one() {
        for count in 1..100 {
            let mut lines = StoredLines::default();
            (0..count).for_each(|line| lines.set(64 * line, &[line]));
            (0..count).rev().for_each(|line| lines.set(64 * line + 8, &[1000 + line]));
            assert_eq!(lines.len() as u64, count);
            for line in 0..count {
                let found = (lines.get(64 * line), lines.get(64 * line + 8), lines.get(64 * line + 16));
                assert_eq!(found, (Some(line), Some(1000 + line), None));
            }
        }
    }

    #[test]
    fn many_lines_are_found_and_forgotten() {
        let mut lines = StoredLines::default();
        (0..1000).for_each(|line| lines.set(line * 128, &[line]));
        (0..1000).for_each(|line| assert_eq!(lines.get(line * 128), Some(line)));
        assert_eq!(lines.len(), 1000);
        lines.clear();
        (0..1000).for_each(|line| assert_eq!(lines.get(line * 128), None));
        lines.set(64, &[1]);
        assert_eq!((lines.len(), lines.get(64)), (1, Some(1)));
    }
}
