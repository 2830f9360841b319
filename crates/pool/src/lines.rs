//! Words that a transaction stores, gathered by line, in the order in which the lines were first stored to.

use crate::Result;
use tembo_pmem::{LINE_BYTES, Region};

/// Words of one line that are stored together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredLine {
    /// Of the line.
    pub off: u64,
    /// Bit i: word i is stored.
    pub mask: u8,
    /// The values; and what lets eight words be copied from any of them on, which costs less than copying as many as there are.
    pub words: [u64; 15],
}

impl StoredLine {
    fn new(off: u64) -> StoredLine {
        StoredLine { off, mask: 0, words: [0; 15] }
    }

    /// Stores the words at their places.
    #[inline]
    pub(crate) fn apply(&self, region: &Region) -> Result<()> {
        Ok(region.store_line(self.off, self.mask, self.words.first_chunk().expect("eight words"))?)
    }

    /// The eight words from word `first` on, below 8, of which those that are not stored mean nothing.
    #[inline(always)]
    pub(crate) fn from(&self, first: usize) -> &[u64; 8] {
        self.words[first & 7..].first_chunk().expect("eight words")
    }
}

/// The first word of those in a mask, and how many follow each other from there.
#[inline(always)]
pub(crate) fn first_run(mask: u8) -> (usize, usize) {
    let first = mask.trailing_zeros() as usize & 7;
    (first, (mask >> first).trailing_ones() as usize)
}

#[inline(always)]
pub(crate) fn run_mask(first: usize, count: usize) -> u8 {
    (((1_u32 << count) - 1) << first) as u8
}

/// The lines of a transaction. Emptied once for every transaction, in time with what is there.
#[derive(Debug)]
pub(crate) struct StoredLines {
    lines: Vec<StoredLine>,
    /// Number of the line plus one, or 0, by hash and linear probing. At most half of them are used.
    table: Vec<u32>,
}

const TABLE_MIN: usize = 64;

impl Default for StoredLines {
    fn default() -> Self {
        StoredLines { lines: Vec::new(), table: vec![0; TABLE_MIN] }
    }
}

impl StoredLines {
    /// The number of the line at `off`, or the place in the table where it belongs.
    #[inline(always)]
    fn find(&self, off: u64) -> Result<usize, usize> {
        let mask = self.table.len() - 1;
        let mut slot = (off.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & mask;
        loop {
            match self.table[slot] as usize {
                0 => return Err(slot),
                at if self.lines[at - 1].off == off => return Ok(at - 1),
                _ => slot = (slot + 1) & mask,
            }
        }
    }

    /// What is going to be stored in the line at `off`, if anything.
    #[inline]
    pub(crate) fn at(&self, off: u64) -> Option<&StoredLine> {
        if self.lines.is_empty() {
            return None;
        }
        Some(&self.lines[self.find(off).ok()?])
    }

    /// The word at `off`, if it is going to be stored.
    #[inline]
    pub(crate) fn get(&self, off: u64) -> Option<u64> {
        let line = self.at(off & !(LINE_BYTES - 1))?;
        let word = (off % LINE_BYTES / 8) as usize;
        (line.mask >> word & 1 != 0).then(|| line.words[word])
    }

    /// Stores words from `off` on, a multiple of 8.
    #[inline]
    pub(crate) fn set(&mut self, mut off: u64, mut words: &[u64]) {
        while !words.is_empty() {
            let first = (off % LINE_BYTES / 8) as usize;
            let (part, rest) = words.split_at(words.len().min(8 - first));
            let line = self.line(off & !(LINE_BYTES - 1));
            line.mask |= run_mask(first, part.len());
            for (to, word) in line.words[first..].iter_mut().zip(part) {
                *to = *word;
            }
            off += 8 * part.len() as u64;
            words = rest;
        }
    }

    #[inline(always)]
    fn line(&mut self, off: u64) -> &mut StoredLine {
        let at = match self.find(off) {
            Ok(at) => at,
            Err(slot) => {
                self.lines.push(StoredLine::new(off));
                self.table[slot] = self.lines.len() as u32;
                if self.lines.len() * 2 > self.table.len() {
                    self.grow();
                }
                self.lines.len() - 1
            }
        };
        &mut self.lines[at]
    }

    #[cold]
    fn grow(&mut self) {
        self.table = vec![0; self.table.len() * 4];
        for at in 0..self.lines.len() {
            if let Err(slot) = self.find(self.lines[at].off) {
                self.table[slot] = at as u32 + 1;
            }
        }
    }

    #[inline]
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, StoredLine> {
        self.lines.iter()
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        match <&mut [u32; TABLE_MIN]>::try_from(&mut self.table[..]) {
            Ok(table) => *table = [0; TABLE_MIN],
            Err(_) => self.table = vec![0; TABLE_MIN],
        }
        self.lines.clear();
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
