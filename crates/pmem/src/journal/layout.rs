//! The media types of a journal, and its records as bytes.

use crate::{LINE_BYTES, media_struct, offset_of, size_of};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// The first eight bytes of a head.
pub(super) const MAGIC: [u8; 8] = *b"TEMBOJR\n";
/// The distance of the two copies of the head. Each has a page, and so a sector, for itself.
pub(super) const HEAD_STEP_BYTES: u64 = 4096;
/// Where the records begin.
pub(super) const RECORDS_AT: u64 = 2 * HEAD_STEP_BYTES;

media_struct! {
    /// One of the two copies of a ring's head; the valid one with the higher `change` counts.
    pub struct PmRingHead: 64 {
        /// The bytes `TEMBOJR\n`.
        0 => magic: [u8; 8],
        /// Counts the changes of the head. Even ones are in the first copy, odd ones in the second.
        8 => change: u64,
        /// The generation, which seeds the checksums of records.
        16 => generation: u64,
        /// The position at which replay begins.
        24 => tail: u64,
        /// Bytes of the ring, both heads included.
        32 => bytes: u64,
        /// Bytes up to which the ring may grow: the range in the file that is the ring's alone. 0: it does
        /// not grow.
        40 => most_bytes: u64,
        /// 1 if a synchronisation has failed in this generation, else 0.
        48 => failed: u64,
        /// XXH3-64 of the bytes before it, seeded with a number that the file keeps.
        56 => checksum: u64,
    }
}

media_struct! {
    /// The head of a record. Its runs follow (a word each: number of the first line << 16 | count of lines
    /// less 1), and then the lines. A record without runs has one word: the generation of those behind it.
    pub struct PmRingRecord: 24 {
        /// XXH3-64 of the rest of the record, seeded with the generation.
        0 => checksum: u64,
        /// The position of the record.
        8 => pos: u64,
        /// Bytes of the record.
        16 => bytes: u32,
        /// Count of its runs.
        20 => runs: u32,
    }
}

pub(super) const HEAD_BYTES: usize = size_of::<PmRingHead>();
pub(super) const RECORD_HEAD_BYTES: usize = size_of::<PmRingRecord>();
/// Bytes of a record that has a generation.
pub(super) const GENERATION_BYTES: u64 = RECORD_HEAD_BYTES as u64 + 8;
const SUMMED_AT: usize = offset_of!(PmRingRecord, pos);
/// The most lines of a run.
const RUN_LINES_MAX: u64 = 1 << 16;

/// Runs of lines: the number of the first, and how many.
pub(super) type Runs = Vec<(u64, u64)>;

/// A head, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) change: u64,
    pub(super) generation: u64,
    pub(super) tail: u64,
    pub(super) bytes: u64,
    pub(super) most_bytes: u64,
    pub(super) has_failed: bool,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn half_word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

impl Head {
    pub(super) fn encode(&self, seed: u64) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        let mut put = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        put(offset_of!(PmRingHead, change), self.change);
        put(offset_of!(PmRingHead, generation), self.generation);
        put(offset_of!(PmRingHead, tail), self.tail);
        put(offset_of!(PmRingHead, bytes), self.bytes);
        put(offset_of!(PmRingHead, most_bytes), self.most_bytes);
        put(offset_of!(PmRingHead, failed), self.has_failed.into());
        let at = offset_of!(PmRingHead, checksum);
        let sum = xxh3_64_with_seed(&bytes[..at], seed);
        bytes[at..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// `None` if this is no head.
    pub(super) fn decode(bytes: &[u8; HEAD_BYTES], seed: u64) -> Option<Head> {
        let at = offset_of!(PmRingHead, checksum);
        let is_valid = bytes.starts_with(&MAGIC) && word(bytes, at) == xxh3_64_with_seed(&bytes[..at], seed);
        is_valid.then(|| Head {
            change: word(bytes, offset_of!(PmRingHead, change)),
            generation: word(bytes, offset_of!(PmRingHead, generation)),
            tail: word(bytes, offset_of!(PmRingHead, tail)),
            bytes: word(bytes, offset_of!(PmRingHead, bytes)),
            most_bytes: word(bytes, offset_of!(PmRingHead, most_bytes)),
            has_failed: word(bytes, offset_of!(PmRingHead, failed)) != 0,
        })
    }
}

/// Sorts runs, and joins those that touch.
pub(super) fn merge(runs: &mut Runs) {
    runs.sort_unstable();
    runs.dedup_by(|next, kept| {
        let touches = next.0 <= kept.0 + kept.1;
        if touches {
            kept.1 = kept.1.max(next.0 + next.1 - kept.0);
        }
        touches
    });
}

/// Divides runs into those of records of at most `max_bytes` each.
pub(super) fn pieces(runs: &Runs, max_bytes: u64) -> impl Iterator<Item = Runs> {
    // A line costs at most a run of its own.
    let most_lines = (max_bytes - RECORD_HEAD_BYTES as u64) / (LINE_BYTES + 8);
    let mut left = runs.iter().copied();
    let mut current = left.next();
    std::iter::from_fn(move || {
        let (mut piece, mut room) = (Runs::new(), most_lines);
        while let Some((first, count)) = current.filter(|_| room > 0) {
            let taken = count.min(room).min(RUN_LINES_MAX);
            piece.push((first, taken));
            room -= taken;
            current = if taken < count { Some((first + taken, count - taken)) } else { left.next() };
        }
        (!piece.is_empty()).then_some(piece)
    })
}

/// Cuts runs in ascending order off at the line `lines`.
pub(super) fn clip(runs: &mut Runs, lines: u64) {
    while let Some((first, count)) = runs.pop_if(|(first, count)| *first + *count > lines) {
        if first < lines {
            runs.push((first, lines.min(first + count) - first));
        }
    }
}

/// Bytes of a record with these runs.
pub(super) fn record_bytes(runs: &Runs) -> u64 {
    let lines: u64 = runs.iter().map(|(_, count)| count).sum();
    (RECORD_HEAD_BYTES + 8 * runs.len()) as u64 + lines * LINE_BYTES
}

/// Makes the bytes of a record; `copy` gives the contents of a line.
pub(super) fn encode(
    record: &mut Vec<u8>,
    generation: u64,
    pos: u64,
    runs: &Runs,
    copy: &impl Fn(u64, &mut [u8]),
) {
    let bytes = record_bytes(runs);
    begin(record, pos, bytes, runs.len());
    for (first, count) in runs {
        record.extend_from_slice(&(first << 16 | (count - 1)).to_le_bytes());
    }
    let mut at = record.len();
    record.resize(bytes as usize, 0);
    for line in runs.iter().flat_map(|(first, count)| *first..first + count) {
        copy(line, &mut record[at..at + LINE_BYTES as usize]);
        at += LINE_BYTES as usize;
    }
    seal(record, generation);
}

/// Makes the bytes of a record behind which the generation is another one.
pub(super) fn encode_generation(record: &mut Vec<u8>, generation: u64, pos: u64, next: u64) {
    begin(record, pos, GENERATION_BYTES, 0);
    record.extend_from_slice(&next.to_le_bytes());
    seal(record, generation);
}

fn begin(record: &mut Vec<u8>, pos: u64, bytes: u64, runs: usize) {
    record.clear();
    record.extend_from_slice(&[0; 8]);
    record.extend_from_slice(&pos.to_le_bytes());
    record.extend_from_slice(&(bytes as u32).to_le_bytes());
    record.extend_from_slice(&(runs as u32).to_le_bytes());
}

fn seal(record: &mut [u8], generation: u64) {
    let sum = xxh3_64_with_seed(&record[SUMMED_AT..], generation);
    record[..8].copy_from_slice(&sum.to_le_bytes());
}

/// The length of the record that begins with these bytes, if they are the head of one at `pos` that is not
/// longer than `max_bytes`.
pub(super) fn length_at(head: &[u8], pos: u64, max_bytes: u64) -> Option<u64> {
    let bytes = u64::from(half_word(head, offset_of!(PmRingRecord, bytes)));
    let is_at = word(head, offset_of!(PmRingRecord, pos)) == pos;
    let fits = (RECORD_HEAD_BYTES as u64..=max_bytes).contains(&bytes) && bytes.is_multiple_of(8);
    (is_at && fits).then_some(bytes)
}

/// A run of lines from its word: the number of the first, and how many.
pub(super) fn run_of(word: u64) -> (u64, u64) {
    (word >> 16, (word & 0xFFFF) + 1)
}

/// The contents of a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// The length of the words of its runs, which its lines follow.
    Lines(usize),
    /// The generation of the records behind it.
    Generation(u64),
}

/// Whether a record was written as a whole, in this generation.
pub(super) fn is_whole(record: &[u8], generation: u64) -> bool {
    word(record, 0) == xxh3_64_with_seed(&record[SUMMED_AT..], generation)
}

/// The contents of a record that is whole; `None` if they make no sense.
pub(super) fn decode(record: &[u8]) -> Option<Contents> {
    let runs = half_word(record, offset_of!(PmRingRecord, runs)) as usize;
    let (words, contents) = record[RECORD_HEAD_BYTES..].split_at_checked(runs.checked_mul(8)?)?;
    if runs == 0 {
        return (contents.len() == 8).then(|| Contents::Generation(word(contents, 0)));
    }
    let lines: u64 = words.chunks_exact(8).map(|run| run_of(word(run, 0)).1).sum();
    (lines * LINE_BYTES == contents.len() as u64).then_some(Contents::Lines(words.len()))
}

/// The generation after another one: any other number.
pub(super) fn next_generation(last: u64) -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    // Not counted on by one, so that no user's value can contain the remains of a record to come.
    let chance = RandomState::new().hash_one(last);
    last.wrapping_add(xxh3_64(&chance.to_le_bytes()) | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_joined_and_divided() {
        let mut runs = vec![(9, 2), (1, 3), (4, 1), (2, 1), (20, 5)];
        merge(&mut runs);
        assert_eq!(runs, [(1, 4), (9, 2), (20, 5)]);
        let max_bytes = RECORD_HEAD_BYTES as u64 + 3 * 72;
        let divided: Vec<Runs> = pieces(&runs, max_bytes).collect();
        assert_eq!(divided, [vec![(1, 3)], vec![(4, 1), (9, 2)], vec![(20, 3)], vec![(23, 2)]]);
        assert!(divided.iter().all(|piece| record_bytes(piece) <= max_bytes));
    }

    #[test]
    fn a_record_is_read_as_written_and_with_any_flipped_bit_not_at_all() {
        let runs = vec![(3, 2), (70, 1)];
        let mut record = Vec::new();
        encode(&mut record, 77, 4096, &runs, &|line, content| content.fill(line as u8));
        assert_eq!(length_at(&record, 4096, 1000), Some(record.len() as u64));
        assert_eq!((length_at(&record, 4104, 1000), length_at(&record, 4096, 100)), (None, None));
        assert!(is_whole(&record, 77));
        assert_eq!(decode(&record), Some(Contents::Lines(16)));
        let (words, contents) = record[RECORD_HEAD_BYTES..].split_at(16);
        let read: Vec<_> = words.chunks_exact(8).map(|run| run_of(word(run, 0))).collect();
        assert_eq!(read, runs);
        assert_eq!(contents, [[3; 64], [4; 64], [70; 64]].concat());
        // A ghost of another generation.
        assert!(!is_whole(&record, 78));
        for bit in 0..8 * record.len() {
            let mut torn = record.clone();
            torn[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_whole(&torn, 77), "bit {bit}");
        }
    }

    #[test]
    fn a_record_whose_runs_and_lines_do_not_agree_is_none() {
        let mut record = Vec::new();
        encode(&mut record, 5, 0, &vec![(3, 2)], &|_, content| content.fill(1));
        assert!(decode(&record).is_some());
        for (at, value) in [(20, 0_u32), (20, 2), (20, u32::MAX), (24, 0), (24, 5)] {
            let mut other = record.clone();
            other[at..at + 4].copy_from_slice(&value.to_le_bytes());
            assert_eq!(decode(&other), None, "{value} at {at}");
        }
    }

    #[test]
    fn a_record_of_a_generation_is_read_as_written() {
        let mut record = Vec::new();
        encode_generation(&mut record, 7, 320, 9);
        assert_eq!(length_at(&record, 320, 1000), Some(GENERATION_BYTES));
        assert!(is_whole(&record, 7) && !is_whole(&record, 9));
        assert_eq!(decode(&record), Some(Contents::Generation(9)));
    }

    #[test]
    fn a_head_is_read_as_written_and_with_any_flipped_bit_not_at_all() {
        let head = Head { change: 3, generation: 4, tail: 5, bytes: 6, most_bytes: 7, has_failed: true };
        let bytes = head.encode(9);
        assert_eq!((Head::decode(&bytes, 9), Head::decode(&bytes, 8)), (Some(head), None));
        for bit in 0..8 * HEAD_BYTES {
            let mut other = bytes;
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Head::decode(&other, 9), None, "bit {bit}");
        }
    }

    #[test]
    fn the_next_generation_is_another_one() {
        assert!((0..1000).all(|last| next_generation(last) != last));
    }
}
