//! Records: how one is laid out in a lane's slot, and when it is valid.

use crate::layout::{Geometry, MAX_SEQ, PmEntry, PmRecord};
use crate::tx::COVERED_MAX_SYNCED_BYTES;
use crate::{Error, Result};
use tembo_pmem::{Region, offset_of, size_of};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// What a record does to a word of the pool. Each can be repeated.
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

/// Bytes that a record vouches for: it is valid only if they arrived too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cover {
    pub off: u64,
    pub bytes: u64,
}

/// Covers are at most this long, so that offset and length share a word.
pub(crate) const COVER_MAX_BYTES: u64 = u16::MAX as u64;

/// Builds the image of a record. Reused between commits.
#[derive(Debug, Default)]
pub(crate) struct RecordImage {
    payload: Vec<u8>,
    /// Where the covers begin, if there are any.
    covers_at: Option<usize>,
}

impl RecordImage {
    pub(crate) fn clear(&mut self) {
        self.payload.clear();
        self.covers_at = None;
    }

    /// Adds an entry; all entries come before all covers.
    #[inline]
    pub(crate) fn entry(&mut self, off: u64, change: Change) {
        debug_assert!(self.covers_at.is_none() && off.is_multiple_of(8));
        let (kind, operand) = change.encode();
        self.payload.extend_from_slice(&(off | kind).to_le_bytes());
        self.payload.extend_from_slice(&operand.to_le_bytes());
    }

    #[inline]
    pub(crate) fn cover(&mut self, cover: Cover) {
        debug_assert!(cover.bytes <= COVER_MAX_BYTES);
        self.covers_at.get_or_insert(self.payload.len());
        self.payload.extend_from_slice(&(cover.off << 16 | cover.bytes).to_le_bytes());
    }

    /// Bytes of the payload.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The words of the record's head, with the checksum over everything that has to arrive.
    pub(crate) fn head(&self, region: &Region, seed: u64, seq: u64, chain: u64) -> Result<[u64; 4]> {
        let (entries, covers) = self.payload.split_at(self.covers_at.unwrap_or(self.payload.len()));
        let counts = (entries.len() / size_of::<PmEntry>()) as u64 | ((covers.len() / 8) as u64) << 32;
        let sum = checksum(region, seed, seq, counts, chain, &self.payload, covers)?;
        Ok([seq, sum, counts, chain])
    }
}

/// Sums a record's fixed words, its payload, and the bytes that its covers name.
fn checksum(
    region: &Region,
    seed: u64,
    seq: u64,
    counts: u64,
    chain: u64,
    payload: &[u8],
    covers: &[u8],
) -> Result<u64> {
    let mut fixed = [0; 24];
    fixed[..8].copy_from_slice(&seq.to_le_bytes());
    fixed[8..16].copy_from_slice(&counts.to_le_bytes());
    fixed[16..].copy_from_slice(&chain.to_le_bytes());
    let mut sum = xxh3_64_with_seed(&fixed, seed);
    sum = xxh3_64_with_seed(payload, sum);
    let mut covered = 0;
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
    Ok(sum)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// A record as recovery found it in a slot.
#[derive(Debug)]
pub(crate) struct FoundRecord {
    pub lane: u32,
    pub seq: u64,
    pub changes: Vec<(u64, Change)>,
}

/// What a slot holds.
#[derive(Debug)]
pub(crate) enum SlotState {
    /// Nothing, or a record that did not arrive in full; with the sequence number it claims.
    Invalid {
        seq: u64,
    },
    Valid(FoundRecord),
}

/// Reads a slot. A record is valid if its checksum matches everything it covers.
///
/// # Errors
///
/// [`Error::Corrupt`] if a record with a matching checksum, or a sequence number, makes no sense.
pub(crate) fn read_slot(
    region: &Region,
    geometry: &Geometry,
    seed: u64,
    lane: u32,
    slot: usize,
) -> Result<SlotState> {
    let off = geometry.slot_off(lane, slot);
    let seq = region.load_u64(off + offset_of!(PmRecord, seq) as u64)?;
    if seq >= MAX_SEQ {
        return Err(Error::corrupt("a record's sequence number", off, format!("less than {MAX_SEQ}"), seq));
    }
    let stored_sum = region.load_u64(off + offset_of!(PmRecord, checksum) as u64)?;
    let counts = region.load_u64(off + offset_of!(PmRecord, counts) as u64)?;
    let chain = region.load_u64(off + offset_of!(PmRecord, chain) as u64)?;
    let (entries, covers) = (counts & 0xFFFF_FFFF, counts >> 32);
    let payload_bytes = 16 * entries + 8 * covers;
    let payload_off = if chain != 0 { chain } else { off + size_of::<PmRecord>() as u64 };
    let invalid = Ok(SlotState::Invalid { seq });
    if payload_bytes > geometry.zone_bytes() {
        return invalid;
    }
    if seq == 0 || (chain == 0 && payload_bytes > geometry.slot_bytes() - size_of::<PmRecord>() as u64) {
        return invalid;
    }
    // SAFETY: recovery runs before any other thread has the pool.
    let Ok(payload) = (unsafe { region.bytes(payload_off, payload_bytes) }) else { return invalid };
    let (entry_bytes, cover_bytes) = payload.split_at(16 * entries as usize);
    match checksum(region, seed, seq, counts, chain, payload, cover_bytes) {
        Ok(sum) if sum == stored_sum => {}
        _ => return invalid,
    }
    let mut changes = Vec::with_capacity(entries as usize);
    for entry in entry_bytes.chunks_exact(size_of::<PmEntry>()) {
        let (target, operand) = (u64_at(entry, 0), u64_at(entry, 8));
        let change = Change::decode(target & 7, operand).ok_or_else(|| {
            Error::corrupt("a record's entry", off, "a kind of change from 0 to 3", target & 7)
        })?;
        let target = target & !7;
        let is_root = target >= geometry.roots_off() && target < geometry.lanes_off();
        if !is_root && target < geometry.zones_off() {
            return Err(Error::corrupt("a record's target", off, "a word that records may change", target));
        }
        // An error if it leads nowhere.
        region.load_u64(target)?;
        changes.push((target, change));
    }
    Ok(SlotState::Valid(FoundRecord { lane, seq, changes }))
}
