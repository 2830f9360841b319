//! Records: how they are laid out in half a lane, and when one counts.

use crate::layout::{DROPPED_OFF, Geometry, MAX_SEQ, PmEntry, PmRecord};
use crate::log::lane::RECORDS_MIN;
use crate::log::lines::{StoredLine, StoredLines, first_run, run_mask};
use crate::tx::COVERED_MAX_SYNCED_BYTES;
use crate::{Error, Result};
use std::hint::select_unpredictable;
use tembo_pmem::{LINE_BYTES, Region, offset_of, size_of};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// What a record does to a word of the pool. Each can be repeated. No kind is [`HEAD_MARK`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Store(u64),
    SetBits(u64),
    ClearBits(u64),
    /// The larger of the old and this value stays. For zone frontiers, which several lanes may advance.
    Max(u64),
}

impl Change {
    fn encode(self) -> (u64, u64) {
        match self {
            Change::Store(v) => (0, v),
            Change::SetBits(v) => (1, v),
            Change::ClearBits(v) => (2, v),
            Change::Max(v) => (3, v),
        }
    }

    fn decode(kind: u64, operand: u64) -> Option<Change> {
        match kind {
            0 => Some(Change::Store(operand)),
            1 => Some(Change::SetBits(operand)),
            2 => Some(Change::ClearBits(operand)),
            3 => Some(Change::Max(operand)),
            _ => None,
        }
    }

    /// Does it to the word's home. `alone`: no other lane is in use.
    #[inline]
    pub(crate) fn apply(self, region: &Region, off: u64, alone: bool) -> Result<()> {
        match self {
            Change::Store(v) => region.store_u64(off, v)?,
            Change::SetBits(v) => region.change_bits(off, v, true, alone)?,
            Change::ClearBits(v) => region.change_bits(off, v, false, alone)?,
            Change::Max(v) => _ = region.raise_u64(off, v)?,
        }
        Ok(())
    }
}

/// The kind of an entry that stores words of a line.
const LINE_KIND: u64 = 4;
/// Where such an entry says which words.
const LINE_MASK_SHIFT: u32 = 56;

fn line_target(off: u64, mask: u8) -> u64 {
    off | LINE_KIND | u64::from(mask) << LINE_MASK_SHIFT
}

/// Bytes that a record vouches for: it is valid only if they arrived too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cover {
    pub off: u64,
    pub bytes: u64,
}

/// Covers are at most this long, so that offset and length share a word; and multiples of a word.
pub(crate) const COVER_MAX_BYTES: u64 = 0xFFF8;

/// The low bits of a head's first word. The lines of a payload begin with the target of an entry, which has a kind of
/// change there, or with a cover or the covers' sum, which have 0. What is left of earlier records may follow the last
/// one of a half, and users choose the words that they store: they cannot choose that a line looks like a head.
const HEAD_MARK: u64 = 7;
const MARK_BITS: u32 = 3;

fn encode_seq(seq: u64) -> u64 {
    seq << MARK_BITS | HEAD_MARK
}

/// The sequence number in the first word of a line, if that may be the one of a head.
fn decode_seq(word: u64) -> Option<u64> {
    let seq = word >> MARK_BITS;
    (word & HEAD_MARK == HEAD_MARK && seq > 0 && seq < MAX_SEQ).then_some(seq)
}

const HEAD_BYTES: usize = size_of::<PmRecord>();

const HEAD_WORDS: usize = HEAD_BYTES / 8;
const LINE_WORDS: usize = LINE_BYTES as usize / 8;

/// Words that one line of stores adds to an image, at most: its words behind a target, and a target more where a line of the record ends
/// among them, and where one ends just before them. (A test goes through all of them.)
const LINE_ENTRY_MAX: usize = 11;
/// Words that are copied with a run and do not belong to it.
const COPIED_BEYOND: usize = LINE_WORDS - 1;
/// A longer image is not kept for the next record.
const IMAGE_KEPT: usize = 1 << 16;

/// Builds the image of a record. Reused between commits.
#[derive(Debug, Default)]
pub(crate) struct RecordImage {
    /// The head, not to be looked at until the record is complete, and the payload; as they lie on media, little-endian. What follows
    /// means nothing.
    words: Vec<u64>,
    len: usize,
    /// Where the covers begin, if there are any.
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

    /// Has room for so many words more.
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

    /// Adds an entry; all entries come before all covers.
    #[inline]
    pub(crate) fn entry(&mut self, off: u64, change: Change) {
        debug_assert!(self.covers_at.is_none() && off.is_multiple_of(8));
        let (kind, operand) = change.encode();
        self.push(off | kind);
        self.push(operand);
    }

    /// Adds stores of words, and of words by line, after all other entries; which are a whole number of `PmEntry`s long then.
    #[inline]
    pub(crate) fn stores(&mut self, words: impl Iterator<Item = (u64, u64)>, lines: &StoredLines) {
        self.words(words);
        if !lines.is_empty() {
            self.make_room(lines.len() * LINE_ENTRY_MAX + COPIED_BEYOND);
            self.lines(lines.as_slice());
        }
        if !(self.len - HEAD_WORDS).is_multiple_of(2) {
            self.push(line_target(0, 0));
        }
    }

    /// Adds stores of words. Those of one line that follow each other share an entry.
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

    /// As [`line`](Self::line), of words that may lie apart from each other.
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

    #[inline(always)]
    fn lines(&mut self, lines: &[StoredLine]) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if wide::is_here() {
            // SAFETY: the processor has what it needs.
            return unsafe { wide::lines(self, lines) };
        }
        lines.iter().for_each(|line| self.line(line));
    }

    /// Adds stores of some words of a line. No word of the line that anybody else chose comes to lie at the start of a
    /// line of the record (`HEAD_MARK`): where the record's line ends, the rest follows behind a target of its own.
    #[inline(always)]
    fn line(&mut self, line: &StoredLine) {
        debug_assert!(self.covers_at.is_none() && line.off.is_multiple_of(LINE_BYTES));
        let (first, count) = first_run(line.mask);
        let room = self.room_in_line();
        if line.mask != run_mask(first, count) || count > room + LINE_WORDS - 1 {
            return self.any_words(line);
        }
        // Whether the record's line ends among the words no processor could foresee: so there is no branch, but a second part that may count
        // for nothing.
        let before = count.min(room);
        let mask = line.mask & run_mask(0, first + before);
        let to = &mut self.words[self.len..][..LINE_ENTRY_MAX + COPIED_BEYOND];
        part(to, line, first, mask);
        part(&mut to[1 + before..], line, first + before, line.mask & !mask);
        self.len += 1 + before + select_unpredictable(before < count, 1 + count - before, 0);
    }

    /// As [`line`](Self::line), of any words.
    #[inline(never)]
    fn any_words(&mut self, line: &StoredLine) {
        self.words_of_line(line.off, line.mask, line.from(0));
    }

    /// Words that fit behind a target into the rest of the record's line.
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

    /// Bytes that the payload has, or will have when it is complete.
    #[inline]
    pub(crate) fn payload_bytes(&self) -> u64 {
        let sum = if self.covers_at.is_some() && !self.complete { 1 } else { 0 };
        8 * (self.len - HEAD_WORDS + sum) as u64
    }

    /// The head and the payload of a complete record.
    pub(crate) fn parts(&self) -> (&[u8], &[u8]) {
        self.whole().split_at(HEAD_BYTES)
    }

    /// The head with the payload behind it, of a complete record.
    #[inline]
    pub(crate) fn whole(&self) -> &[u8] {
        debug_assert!(self.complete);
        bytemuck::cast_slice(&self.words[..self.len])
    }

    /// Completes the record: sums what the covers name, and fills in the head.
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

/// Writes the store of some words of a line, which follow each other from the first on.
#[inline(always)]
fn part(to: &mut [u64], line: &StoredLine, first: usize, mask: u8) {
    let to: &mut [u64; 1 + LINE_WORDS] = to.first_chunk_mut().expect("room for a line");
    to[0] = line_target(line.off, mask).to_le();
    to[1..].copy_from_slice(&line.from(first).map(u64::to_le));
}

/// The same as [`RecordImage::line`] in a fourth of the instructions, where the processor has what it takes (AVX-512).
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod wide {
    use super::{COPIED_BEYOND, LINE_ENTRY_MAX, LINE_WORDS, RecordImage, line_target};
    use crate::log::lines::StoredLine;
    use core::arch::x86_64::{
        __m512i, _mm512_loadu_si512, _mm512_maskz_compress_epi64, _mm512_storeu_si512, _pdep_u32,
    };
    use std::hint::select_unpredictable;

    #[inline(always)]
    pub(super) fn is_here() -> bool {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt")
    }

    /// Adds stores of some words of each line.
    #[target_feature(enable = "avx512f,bmi2,popcnt")]
    pub(super) fn lines(image: &mut RecordImage, lines: &[StoredLine]) {
        for line in lines {
            let room = image.room_in_line();
            let before = _pdep_u32(0xFF >> (LINE_WORDS - room), u32::from(line.mask)) as u8;
            let behind = line.mask ^ before;
            if behind == 0xFF {
                image.any_words(line);
                continue;
            }
            // SAFETY: loads eight words.
            let words = unsafe { _mm512_loadu_si512(line.from(0).as_ptr().cast()) };
            let to = &mut image.words[image.len..][..LINE_ENTRY_MAX + COPIED_BEYOND];
            part(to, line.off, before, words);
            let first = before.count_ones() as usize;
            // May count for nothing: see `RecordImage::line`.
            part(&mut to[1 + first..], line.off, behind, words);
            let second = 1 + behind.count_ones() as usize;
            image.len += 1 + first + select_unpredictable(behind != 0, second, 0);
        }
    }

    /// Writes the store of some words of a line.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn part(to: &mut [u64], off: u64, mask: u8, words: __m512i) {
        let to: &mut [u64; 1 + LINE_WORDS] = to.first_chunk_mut().expect("room for a line");
        to[0] = line_target(off, mask);
        // SAFETY: stores eight words.
        unsafe { _mm512_storeu_si512(to[1..].as_mut_ptr().cast(), _mm512_maskz_compress_epi64(mask, words)) };
    }
}

/// Sums a record's fixed words and its payload.
fn checksum(seed: u64, seq: u64, counts: u64, chain: u64, payload: &[u8]) -> u64 {
    let mut fixed = [0; 24];
    fixed[..8].copy_from_slice(&seq.to_le_bytes());
    fixed[8..16].copy_from_slice(&counts.to_le_bytes());
    fixed[16..].copy_from_slice(&chain.to_le_bytes());
    xxh3_64_with_seed(payload, xxh3_64_with_seed(&fixed, seed))
}

/// Sums the bytes that covers name. The low bits are left out (`HEAD_MARK`).
fn sum_covered(region: &Region, seed: u64, covers: &[u8]) -> Result<u64> {
    let (mut sum, mut covered) = (seed, 0);
    for word in covers.chunks_exact(8) {
        let word = u64_at(word, 0);
        covered += word & COVER_MAX_BYTES;
        if covered > COVERED_MAX_SYNCED_BYTES {
            return Err(Error::corrupt("a record's covers", word >> 16, "8 MiB at most", "more"));
        }
        // SAFETY: covered memory was allocated by the transaction that commits, which is the caller, or is
        // looked at by recovery, before any other thread has the pool.
        let bytes = unsafe { region.bytes(word >> 16, word & COVER_MAX_BYTES)? };
        sum = xxh3_64_with_seed(bytes, sum);
    }
    Ok(sum & !HEAD_MARK)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Bytes that a record takes in half a lane, given those of the payload that lie with it.
pub(crate) fn record_bytes(inline_bytes: u64) -> u64 {
    (size_of::<PmRecord>() as u64 + inline_bytes).next_multiple_of(LINE_BYTES)
}

/// A record whose head and payload arrived in full.
#[derive(Debug)]
pub(crate) struct FoundRecord<'r> {
    pub seq: u64,
    off: u64,
    entries: &'r [u8],
    /// With their sum; empty if there are none.
    covers: &'r [u8],
}

/// What half a lane holds.
#[derive(Debug, Default)]
pub(crate) struct Half<'r> {
    /// In the order in which they were written.
    pub records: Vec<FoundRecord<'r>>,
    /// The number of a record after them that did not arrive in full, or 0.
    pub next_seq: u64,
}

impl Half<'_> {
    pub(crate) fn last_seq(&self) -> Option<u64> {
        self.records.last().map(|last| last.seq)
    }

    /// The highest number seen, of a record that did not arrive in full too.
    pub(crate) fn highest_seq(&self) -> u64 {
        self.next_seq.max(self.last_seq().unwrap_or(0))
    }
}

/// Reads half a lane, as far as there are records.
///
/// # Errors
///
/// [`Error::Corrupt`] if the half begins with something else than a head. Further on there may be anything: what is left
/// of longer records from before.
pub(crate) fn read_half<'r>(
    region: &'r Region,
    geometry: &Geometry,
    seed: u64,
    (lane, half): (u32, usize),
) -> Result<Half<'r>> {
    let start = geometry.half_off(lane, half);
    let first = region.load_u64(start + offset_of!(PmRecord, seq) as u64)?;
    if first != 0 && decode_seq(first).is_none() {
        let expected = format!("a number below {MAX_SEQ}, marked");
        return Err(Error::corrupt("a record's sequence number", start, expected, format!("{first:#x}")));
    }
    let mut found = Half::default();
    let mut at = 0;
    while at + size_of::<PmRecord>() as u64 <= geometry.half_bytes() {
        let off = start + at;
        let seq = decode_seq(region.load_u64(off + offset_of!(PmRecord, seq) as u64)?);
        let Some(seq) = seq.filter(|seq| Some(*seq) > found.last_seq()) else { break };
        let place = (off, geometry.half_bytes() - at, found.records.len() < RECORDS_MIN);
        let Some((record, inline_bytes)) = read_record(region, geometry, (seed, seq), place)? else {
            found.next_seq = seq;
            break;
        };
        at += record_bytes(inline_bytes);
        found.records.push(record);
    }
    Ok(found)
}

/// Reads the record at `off`, if there is one, of at most `room` bytes; and how many bytes of its payload lie with
/// its head.
fn read_record<'r>(
    region: &'r Region,
    geometry: &Geometry,
    (seed, seq): (u64, u64),
    (off, room, may_be_chained): (u64, u64, bool),
) -> Result<Option<(FoundRecord<'r>, u64)>> {
    let word = |at: usize| region.load_u64(off + at as u64);
    let counts = word(offset_of!(PmRecord, counts))?;
    let chain = word(offset_of!(PmRecord, chain))?;
    let (entry_bytes, covers) = (16 * (counts & 0xFFFF_FFFF), counts >> 32);
    let payload_bytes = entry_bytes + if covers > 0 { 8 * covers + 8 } else { 0 };
    let head_bytes = size_of::<PmRecord>() as u64;
    let (payload_off, inline_bytes) = if chain != 0 { (chain, 0) } else { (off + head_bytes, payload_bytes) };
    let is_impossible = chain != 0 && !may_be_chained || payload_bytes > geometry.zone_bytes();
    if is_impossible || head_bytes + inline_bytes > room {
        return Ok(None);
    }
    // SAFETY: recovery runs before any other thread has the pool, and reads every record before it changes anything;
    // what it changes then are homes and not records, which `changes` makes sure of.
    let Ok(payload) = (unsafe { region.bytes(payload_off, payload_bytes) }) else { return Ok(None) };
    if checksum(seed, seq, counts, chain, payload) != word(offset_of!(PmRecord, checksum))? {
        return Ok(None);
    }
    let (entries, covers) = payload.split_at(entry_bytes as usize);
    Ok(Some((FoundRecord { seq, off, entries, covers }, inline_bytes)))
}

impl FoundRecord<'_> {
    /// Whether everything arrived that the record covers.
    pub(crate) fn covers_match(&self, region: &Region, seed: u64) -> bool {
        let Some((covers, sum)) = self.covers.split_at_checked(self.covers.len().saturating_sub(8)) else {
            return false;
        };
        sum.is_empty() || sum_covered(region, seed, covers).is_ok_and(|found| found == u64_at(sum, 0))
    }

    pub(crate) fn entry_bytes(&self) -> u64 {
        self.entries.len() as u64
    }

    /// What the record changes.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if that makes no sense.
    pub(crate) fn changes(&self, region: &Region, geometry: &Geometry) -> Result<Vec<(u64, Change)>> {
        let mut changes = Vec::with_capacity(self.entries.len() / size_of::<PmEntry>());
        let mut at = 0;
        while at < self.entries.len() {
            let target = u64_at(self.entries, at);
            at += 8;
            if target & 7 == LINE_KIND {
                at = self.line_changes(target, at, &mut changes)?;
                continue;
            }
            let operand = if at < self.entries.len() { u64_at(self.entries, at) } else { 0 };
            at += 8;
            let change = Change::decode(target & 7, operand).ok_or_else(|| {
                Error::corrupt("a record's entry", self.off, "a kind of change from 0 to 4", target & 7)
            })?;
            changes.push((target & !7, change));
        }
        for (target, _) in &changes {
            let target = *target;
            let is_root = target >= geometry.roots_off() && target < geometry.lanes_off();
            if !is_root && target != DROPPED_OFF && target < geometry.zones_off() {
                let expected = "a word that records may change";
                return Err(Error::corrupt("a record's target", self.off, expected, target));
            }
            // An error if it leads nowhere.
            region.load_u64(target)?;
        }
        Ok(changes)
    }

    /// Adds the stores of an entry for words of a line, of which the first is at `at`. Returns where the next entry begins.
    fn line_changes(&self, target: u64, mut at: usize, changes: &mut Vec<(u64, Change)>) -> Result<usize> {
        let mask = (target >> LINE_MASK_SHIFT) as u8;
        let line = target & !LINE_KIND & ((1 << LINE_MASK_SHIFT) - 1);
        for word in (0..8).filter(|word| mask >> word & 1 != 0) {
            if at >= self.entries.len() {
                return Err(Error::corrupt(
                    "a record's entry",
                    self.off,
                    "as many words as it says",
                    "fewer",
                ));
            }
            changes.push((line + 8 * word, Change::Store(u64_at(self.entries, at))));
            at += 8;
        }
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image_of(lines: &StoredLines, entries: u64, old: usize) -> RecordImage {
        let mut image = RecordImage::default();
        image.clear();
        // What an earlier record leaves in the buffer.
        (0..old).for_each(|_| image.push(u64::MAX));
        image.clear();
        (0..entries).for_each(|i| image.entry(64 * i, Change::Store(i)));
        image.stores(std::iter::empty(), lines);
        image
    }

    /// Every line by itself at every place of a record's line: it has room, is read back as it was, and what lay in the buffer before does not
    /// matter.
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
                // No word that somebody chose begins a line of the record.
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

    /// Any words of a line, at any place of a record's line, with another line behind: all processors make the same of them, which has
    /// room, is read back, and has none of the words at the start of a line.
    #[test]
    fn lines_are_the_same_with_all_instructions() {
        let mut longest = 0;
        for place in 0..LINE_WORDS {
            for mask in 1..=255_u8 {
                let mut lines = StoredLines::default();
                let chosen = [(1024, mask), (4096, !mask | 1)];
                for (off, mask) in chosen {
                    lines.set_line(off, mask, &std::array::from_fn(|word| off << 8 | word as u64));
                }
                let (mut all, mut each) = (image_at(place), image_at(place));
                all.lines(lines.as_slice());
                for line in lines.iter() {
                    let len = each.len;
                    each.line(line);
                    longest = longest.max(each.len - len);
                }
                assert_eq!((all.len, each.words.len()), (each.len, all.words.len()), "{mask:#b} at {place}");
                let words = &all.words[LINE_WORDS + place..all.len];
                assert_eq!(words, &each.words[LINE_WORDS + place..each.len], "{mask:#b} at {place}");
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
