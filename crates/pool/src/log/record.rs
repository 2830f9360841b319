//! Records: their layout in half a lane, and when a record is complete.

use crate::layout::{DROPPED_OFF, Geometry, JOURNAL_OFF, MAX_SEQ, PmEntry, PmRecord};
use crate::{Error, Result};
use tembo_pmem::{LINE_BYTES, Region, offset_of, size_of};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A record's change of one word of the pool. Every change is idempotent. No kind is [`HEAD_MARK`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Store(u64),
    SetBits(u64),
    ClearBits(u64),
    /// The larger of the old value and this one stays. For zone frontiers, which several lanes may advance.
    Max(u64),
}

impl Change {
    #[inline(always)]
    pub(super) fn encode(self) -> (u64, u64) {
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

    /// Makes the change at the word's home.
    #[inline]
    pub(crate) fn apply(self, region: &Region, off: u64, is_only_lane: bool) -> Result<()> {
        match self {
            Change::Store(v) => region.store_u64(off, v)?,
            Change::SetBits(v) => region.change_bits(off, v, true, is_only_lane)?,
            Change::ClearBits(v) => region.change_bits(off, v, false, is_only_lane)?,
            Change::Max(v) => _ = region.raise_u64(off, v)?,
        }
        Ok(())
    }
}

/// The kind of an entry that stores words of a line.
pub(super) const LINE_KIND: u64 = 4;
/// The place of such an entry's word mask in its target.
const LINE_MASK_SHIFT: u32 = 56;

#[inline(always)]
pub(super) fn line_target(off: u64, mask: u8) -> u64 {
    off | LINE_KIND | u64::from(mask) << LINE_MASK_SHIFT
}

/// New data that a record vouches for: the record is complete only if these bytes arrived too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cover {
    pub off: u64,
    pub bytes: u64,
}

/// The least number of records that a half gets before the lane may switch (L6).
pub(crate) const RECORDS_MIN: usize = 2;

/// The most new data that a record covers if a fence synchronises with a device: such a fence takes as long
/// as summing megabytes.
pub(crate) const COVERED_MAX_SYNCED_BYTES: u64 = 8 << 20;

/// The longest cover: offset and length share a word. A multiple of 8.
pub(crate) const COVER_MAX_BYTES: u64 = 0xFFF8;

/// The low bits of a head's first word. No other line of a record has this mark: it begins with an entry's
/// target, whose low bits are a kind of change, or with a cover or the covers' sum, whose low bits are 0.
/// This matters because remains of earlier records may follow the last record of a half, and users choose the
/// words that records store.
const HEAD_MARK: u64 = 7;
const MARK_BITS: u32 = 3;

#[inline(always)]
pub(super) fn encode_seq(seq: u64) -> u64 {
    seq << MARK_BITS | HEAD_MARK
}

/// The sequence number in the first word of a line, if the line may be a head.
fn decode_seq(word: u64) -> Option<u64> {
    let seq = word >> MARK_BITS;
    (word & HEAD_MARK == HEAD_MARK && seq > 0 && seq < MAX_SEQ).then_some(seq)
}

pub(super) const HEAD_BYTES: usize = size_of::<PmRecord>();

pub(super) const HEAD_WORDS: usize = HEAD_BYTES / 8;
pub(super) const LINE_WORDS: usize = LINE_BYTES as usize / 8;

/// The checksum of a record's fixed words and its payload.
#[inline]
pub(super) fn checksum(seed: u64, seq: u64, counts: u64, chain: u64, payload: &[u8]) -> u64 {
    let mut fixed = [0; 24];
    fixed[..8].copy_from_slice(&seq.to_le_bytes());
    fixed[8..16].copy_from_slice(&counts.to_le_bytes());
    fixed[16..].copy_from_slice(&chain.to_le_bytes());
    xxh3_64_with_seed(payload, xxh3_64_with_seed(&fixed, seed))
}

/// The checksum of the bytes that covers name, its low bits cleared (`HEAD_MARK`).
pub(super) fn sum_covered(region: &Region, seed: u64, covers: &[u8]) -> Result<u64> {
    let (mut sum, mut covered) = (seed, 0);
    for word in covers.chunks_exact(8) {
        let word = u64_at(word, 0);
        covered += word & COVER_MAX_BYTES;
        if covered > COVERED_MAX_SYNCED_BYTES {
            return Err(Error::corrupt("a record's covers", word >> 16, "8 MiB at most", "more"));
        }
        // SAFETY: the caller is the transaction that allocated the covered memory, or recovery, which runs
        // before any other thread has the pool.
        let bytes = unsafe { region.bytes(word >> 16, word & COVER_MAX_BYTES)? };
        sum = xxh3_64_with_seed(bytes, sum);
    }
    Ok(sum & !HEAD_MARK)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Bytes that a record takes in half a lane, if `inline_bytes` of its payload lie there.
pub(crate) fn record_bytes(inline_bytes: u64) -> u64 {
    (size_of::<PmRecord>() as u64 + inline_bytes).next_multiple_of(LINE_BYTES)
}

/// A record whose head and payload arrived in full.
#[derive(Debug)]
pub(crate) struct FoundRecord<'r> {
    pub seq: u64,
    pub(super) off: u64,
    pub(super) entries: &'r [u8],
    /// The covers and their sum; empty if there are no covers.
    pub(super) covers: &'r [u8],
}

/// The contents of half a lane.
#[derive(Debug, Default)]
pub(crate) struct Half<'r> {
    /// In the order in which they were written.
    pub records: Vec<FoundRecord<'r>>,
    /// The number of an incomplete record after them, or 0.
    pub next_seq: u64,
}

impl Half<'_> {
    pub(crate) fn last_seq(&self) -> Option<u64> {
        self.records.last().map(|last| last.seq)
    }

    /// The highest number seen, that of an incomplete record included.
    pub(crate) fn highest_seq(&self) -> u64 {
        self.next_seq.max(self.last_seq().unwrap_or(0))
    }
}

/// Reads the records of half a lane.
///
/// # Errors
///
/// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the half begins with something else than a head.
/// Further on there may be anything: remains of earlier, longer records.
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

/// Reads the record at `off`, if there is one of at most `room` bytes. Returns also how many bytes of its
/// payload follow its head.
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
    // SAFETY: recovery runs before any other thread has the pool. It reads every record before it changes
    // anything, and then changes homes only, which `changes` ensures.
    let Ok(payload) = (unsafe { region.bytes(payload_off, payload_bytes) }) else { return Ok(None) };
    if checksum(seed, seq, counts, chain, payload) != word(offset_of!(PmRecord, checksum))? {
        return Ok(None);
    }
    let (entries, covers) = payload.split_at(entry_bytes as usize);
    Ok(Some((FoundRecord { seq, off, entries, covers }, inline_bytes)))
}

impl FoundRecord<'_> {
    /// Whether all data that the record covers arrived.
    pub(crate) fn covers_match(&self, region: &Region, seed: u64) -> bool {
        let Some((covers, sum)) = self.covers.split_at_checked(self.covers.len().saturating_sub(8)) else {
            return false;
        };
        sum.is_empty() || sum_covered(region, seed, covers).is_ok_and(|found| found == u64_at(sum, 0))
    }

    pub(crate) fn entry_bytes(&self) -> u64 {
        self.entries.len() as u64
    }

    /// The record's changes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if one is impossible.
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
            let is_of_header = matches!(target, DROPPED_OFF | JOURNAL_OFF);
            if !is_root && !is_of_header && target < geometry.zones_off() {
                let expected = "a word that records may change";
                return Err(Error::corrupt("a record's target", self.off, expected, target));
            }
            // Fails if the target lies outside of the pool.
            region.load_u64(target)?;
        }
        Ok(changes)
    }

    /// Adds the stores of an entry for words of a line; its first value is at `at`. Returns the place of the
    /// next entry.
    pub(super) fn line_changes(
        &self,
        target: u64,
        mut at: usize,
        changes: &mut Vec<(u64, Change)>,
    ) -> Result<usize> {
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
