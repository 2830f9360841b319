//! Images of records: built by a commit in DRAM, and written to the lane as they are.

use super::lines::{StoredLine, StoredLines, first_run, run_mask};
use super::record::{
    COVER_MAX_BYTES, Change, Cover, HEAD_BYTES, HEAD_WORDS, LINE_WORDS, checksum, encode_seq, line_target,
    sum_covered,
};
use crate::Result;
use std::hint::select_unpredictable;
use tembo_pmem::{LINE_BYTES, Region};

/// The most words that the stores of one line add to an image: a target, eight words, and one more target for
/// each end of a record's line, among the words and just before them. (A test tries every case.)
const LINE_ENTRY_MAX: usize = 11;
/// The most words that are copied with a run but do not belong to it.
const COPIED_BEYOND: usize = LINE_WORDS - 1;
/// A longer image is not kept for the next record.
const IMAGE_KEPT: usize = 1 << 16;

/// Builds the image of a record. Reused between commits.
#[derive(Debug, Default)]
pub(crate) struct RecordImage {
    /// The head and the payload, little-endian as on media. The head is meaningless until the record is
    /// complete, and so are words from `len` on.
    words: Vec<u64>,
    len: usize,
    /// The position of the covers, if the record has covers.
    covers_at: Option<usize>,
    complete: bool,
}

impl RecordImage {
    #[inline]
    pub(crate) fn clear(&mut self) {
        if self.words.len() > IMAGE_KEPT {
            self.words = Vec::new();
        }
        self.len = HEAD_WORDS;
        self.make_room(0);
        self.covers_at = None;
        self.complete = false;
    }

    /// Makes room for this many more words.
    #[inline(always)]
    fn make_room(&mut self, words: usize) {
        if self.len + words > self.words.len() {
            self.grow(words);
        }
    }

    #[cold]
    fn grow(&mut self, words: usize) {
        self.words.resize((self.len + words).max(2 * self.words.len()), 0);
    }

    #[inline(always)]
    fn push(&mut self, word: u64) {
        self.make_room(1);
        self.words[self.len] = word.to_le();
        self.len += 1;
    }

    /// Adds an entry. All entries precede all covers.
    #[inline]
    pub(crate) fn entry(&mut self, off: u64, change: Change) {
        debug_assert!(self.covers_at.is_none() && off.is_multiple_of(8));
        let (kind, operand) = change.encode();
        self.push(off | kind);
        self.push(operand);
    }

    /// Adds the logged words and the words stored by line, after all other entries. Their total length is
    /// padded to a multiple of a `PmEntry`.
    #[inline]
    pub(crate) fn stores(&mut self, words: impl Iterator<Item = (u64, u64)>, lines: &StoredLines) {
        self.words(words);
        if !lines.is_empty() {
            self.make_room(lines.len() * LINE_ENTRY_MAX + COPIED_BEYOND);
            lines.iter().for_each(|line| self.line(line));
        }
        if !(self.len - HEAD_WORDS).is_multiple_of(2) {
            self.push(line_target(0, 0));
        }
    }

    /// Adds stores of words. Consecutive words of one line share an entry.
    #[inline]
    fn words(&mut self, words: impl Iterator<Item = (u64, u64)>) {
        let (mut line_off, mut mask, mut values) = (0, 0u8, [0; LINE_WORDS]);
        for (off, value) in words {
            let off_of_line = off & !(LINE_BYTES - 1);
            if off_of_line != line_off {
                self.words_of_line(line_off, mask, &values);
                (line_off, mask) = (off_of_line, 0);
            }
            let word = (off % LINE_BYTES / 8) as usize;
            mask |= 1 << word;
            values[word] = value;
        }
        self.words_of_line(line_off, mask, &values);
    }

    /// As [`line`](Self::line), for words that need not be consecutive.
    #[inline]
    fn words_of_line(&mut self, off: u64, mut mask: u8, values: &[u64; LINE_WORDS]) {
        self.make_room(LINE_ENTRY_MAX + COPIED_BEYOND);
        while mask != 0 {
            let room = LINE_WORDS - 1 - self.len % LINE_WORDS;
            let to: &mut [u64; 1 + LINE_WORDS] =
                self.words[self.len..].first_chunk_mut().expect("room for a line");
            let (mut part, mut count) = (0, 0);
            while mask != 0 && count < room {
                let word = mask.trailing_zeros() as usize;
                (mask, part) = (mask & (mask - 1), part | 1 << word);
                to[1 + count % LINE_WORDS] = values[word % LINE_WORDS].to_le();
                count += 1;
            }
            to[0] = line_target(off, part).to_le();
            self.len += 1 + count;
        }
    }

    /// Adds stores of some words of a line. No word that a user chose may begin a line of the record
    /// (`HEAD_MARK`). Where the record's line ends among the words, the rest follows a second target.
    #[inline(always)]
    fn line(&mut self, line: &StoredLine) {
        debug_assert!(self.covers_at.is_none() && line.off.is_multiple_of(LINE_BYTES));
        let (first, count) = first_run(line.mask);
        let room = self.room_in_line();
        if line.mask != run_mask(first, count) || count > room + LINE_WORDS - 1 {
            return self.any_words(line);
        }
        // A processor cannot predict whether the record's line ends among the words. The code therefore has
        // no branch: it always writes a second part, and counts it only if it is needed.
        let before = count.min(room);
        let mask = line.mask & run_mask(0, first + before);
        let to = &mut self.words[self.len..][..LINE_ENTRY_MAX + COPIED_BEYOND];
        part(to, line, first, mask);
        part(&mut to[1 + before..], line, first + before, line.mask & !mask);
        self.len += 1 + before + select_unpredictable(before < count, 1 + count - before, 0);
    }

    /// As [`line`](Self::line), for any words.
    #[inline(never)]
    fn any_words(&mut self, line: &StoredLine) {
        self.words_of_line(line.off, line.mask, line.from(0));
    }

    /// Words that fit after a target into the rest of the record's line.
    #[inline(always)]
    fn room_in_line(&self) -> usize {
        LINE_WORDS - 1 - self.len % LINE_WORDS
    }

    #[inline]
    pub(crate) fn cover(&mut self, cover: Cover) {
        debug_assert!(cover.bytes <= COVER_MAX_BYTES && (cover.off | cover.bytes).is_multiple_of(8));
        debug_assert!(!self.complete);
        self.covers_at.get_or_insert(self.len);
        self.push(cover.off << 16 | cover.bytes);
    }

    /// Bytes that the payload of the complete record will have.
    #[inline]
    pub(crate) fn payload_bytes(&self) -> u64 {
        let sum = if self.covers_at.is_some() && !self.complete { 1 } else { 0 };
        8 * (self.len - HEAD_WORDS + sum) as u64
    }

    /// The head and the payload of a complete record.
    pub(crate) fn parts(&self) -> (&[u8], &[u8]) {
        self.whole().split_at(HEAD_BYTES)
    }

    /// The head and the payload after it, of a complete record.
    #[inline]
    pub(crate) fn whole(&self) -> &[u8] {
        debug_assert!(self.complete);
        bytemuck::cast_slice(&self.words[..self.len])
    }

    /// Completes the record: sums the covered data and fills in the head.
    #[inline]
    pub(crate) fn complete(&mut self, region: &Region, seed: u64, seq: u64, chain: u64) -> Result<()> {
        let covers_at = self.covers_at.unwrap_or(self.len);
        let covers = self.len - covers_at;
        let counts = ((covers_at - HEAD_WORDS) / 2) as u64 | (covers as u64) << 32;
        if covers > 0 {
            let sum = sum_covered(region, seed, bytemuck::cast_slice(&self.words[covers_at..self.len]))?;
            self.push(sum);
        }
        let payload = bytemuck::cast_slice(&self.words[HEAD_WORDS..self.len]);
        let sum = checksum(seed, seq, counts, chain, payload);
        let head = [encode_seq(seq), sum, counts, chain].map(u64::to_le);
        self.words[..HEAD_WORDS].copy_from_slice(&head);
        self.complete = true;
        Ok(())
    }
}

/// Writes the store of consecutive words of a line, from word `first` on.
#[inline(always)]
fn part(to: &mut [u64], line: &StoredLine, first: usize, mask: u8) {
    let to: &mut [u64; 1 + LINE_WORDS] = to.first_chunk_mut().expect("room for a line");
    to[0] = line_target(line.off, mask).to_le();
    to[1..].copy_from_slice(&line.from(first).map(u64::to_le));
}

#[cfg(test)]
mod tests {
    use super::super::record::{FoundRecord, LINE_KIND, u64_at};
    use super::*;

    fn image_of(lines: &StoredLines, entries: u64, old: usize) -> RecordImage {
        let mut image = RecordImage::default();
        image.clear();
        // The buffer holds remains of an earlier record.
        (0..old).for_each(|_| image.push(u64::MAX));
        image.clear();
        (0..entries).for_each(|i| image.entry(64 * i, Change::Store(i)));
        image.stores(std::iter::empty(), lines);
        image
    }

    /// The stores of a line have room and are read back, for every mask and every place in a record's line,
    /// whatever the buffer held before.
    #[test]
    fn every_line_is_read_back() {
        let region = Region::simulated(&[0; 4096], 4096, None).unwrap();
        for entries in 0..4 {
            for mask in 1..=255_u8 {
                let mut lines = StoredLines::default();
                (0..8)
                    .filter(|word| mask >> word & 1 != 0)
                    .for_each(|word| lines.set(1024 + 8 * word, &[word + 7]));
                let mut image = image_of(&lines, entries, 0);
                let words = image.len - HEAD_WORDS - 2 * entries as usize;
                assert!(words <= LINE_ENTRY_MAX + 1, "{words} words for {mask:#b} after {entries} entries");
                image.complete(&region, 1, 2, 0).unwrap();
                let mut other = image_of(&lines, entries, 100);
                other.complete(&region, 1, 2, 0).unwrap();
                assert_eq!(image.whole(), other.whole());

                let record = FoundRecord { seq: 2, off: 0, entries: image.parts().1, covers: &[] };
                let mut changes = Vec::new();
                let mut at = 16 * entries as usize;
                while at < record.entries.len() {
                    let target = u64_at(record.entries, at);
                    assert_eq!(target & 7, LINE_KIND);
                    at = record.line_changes(target, at + 8, &mut changes).unwrap();
                }
                let expected = (0..8).filter(|word| mask >> word & 1 != 0);
                let expected: Vec<_> =
                    expected.map(|word| (1024 + 8 * word, Change::Store(word + 7))).collect();
                assert_eq!(changes, expected, "{mask:#b} after {entries} entries");
                // No word that a user chose begins a line of the record.
                let starts = image.words[..image.len].iter().step_by(LINE_WORDS).skip(1);
                assert!(
                    starts.copied().all(|word| u64::from_le(word) & 7 == LINE_KIND || entries > 2),
                    "{mask:#b}"
                );
            }
        }
    }

    /// An image whose next word is word `place` of a line, with room for two lines of stores and no more.
    fn image_at(place: usize) -> RecordImage {
        let mut image = RecordImage::default();
        image.clear();
        image.len = LINE_WORDS + place;
        image.words = vec![0; image.len + 2 * LINE_ENTRY_MAX + COPIED_BEYOND];
        image
    }

    /// Stores every choice of a line's words, at every place in a record's line, and a second line after it.
    /// Checks that the image has room, that it can be read back, and that no word of a user begins a line.
    #[test]
    fn any_words_of_a_line_are_read_back_from_any_place() {
        let mut longest = 0;
        for place in 0..LINE_WORDS {
            for mask in 1..=255_u8 {
                let mut lines = StoredLines::default();
                let chosen = [(1024, mask), (4096, !mask | 1)];
                for (off, mask) in chosen {
                    lines.set_line(off, mask, &std::array::from_fn(|word| off << 8 | word as u64));
                }
                let mut image = image_at(place);
                let room = image.words.len();
                for line in lines.iter() {
                    let len = image.len;
                    image.line(line);
                    longest = longest.max(image.len - len);
                }
                assert_eq!(image.words.len(), room, "{mask:#b} at {place}");
                let words = &image.words[LINE_WORDS + place..image.len];
                let starts = words.iter().skip((LINE_WORDS - place) % LINE_WORDS).step_by(LINE_WORDS);
                assert!(
                    starts.copied().all(|word| u64::from_le(word) & 7 == LINE_KIND),
                    "{mask:#b} at {place}"
                );

                let entries = bytemuck::cast_slice(words);
                let record = FoundRecord { seq: 2, off: 0, entries, covers: &[] };
                let (mut found, mut at) = (Vec::new(), 0);
                while at < entries.len() {
                    at = record.line_changes(u64_at(entries, at), at + 8, &mut found).unwrap();
                }
                let expected = chosen.into_iter().flat_map(|(off, mask)| {
                    let words = (0..8).filter(move |word| mask >> word & 1 != 0);
                    words.map(move |word| (off + 8 * word, Change::Store(off << 8 | word)))
                });
                assert_eq!(found, expected.collect::<Vec<_>>(), "{mask:#b} at {place}");
            }
        }
        assert_eq!(longest, LINE_ENTRY_MAX);
    }

    #[test]
    fn a_long_image_is_not_kept() {
        let mut lines = StoredLines::default();
        (0..10_000).for_each(|line| lines.set(64 * line, &[0; 8]));
        let mut image = image_of(&lines, 0, 0);
        assert!(image.words.len() > IMAGE_KEPT);
        image.clear();
        assert!(image.words.len() < IMAGE_KEPT);
    }
}
