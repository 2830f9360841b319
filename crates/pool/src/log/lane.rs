//! The part of a lane that its writer shares with other lanes: the place of the next record, and checkpoints.

use super::limbo::{LIMBO_BYTES_MAX, Limbo};
use super::record::{RECORDS_MIN, record_bytes};
use crate::Result;
use crate::alloc::Block;
use crate::layout::{Geometry, PmLane};
use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tembo_pmem::{LINE_BYTES, Region, offset_of};
use tembo_sync::{SpinMutex, SpinMutexGuard, hash_u64};

/// The shared part of a lane.
#[derive(Debug)]
pub(crate) struct LaneSlot {
    pub number: u32,
    pub in_use: AtomicBool,
    /// Commits up to this number have no live record. Other lanes load this word at each commit, so it shares
    /// no line with words that each commit changes.
    dead_to: CachePadded<AtomicU64>,
    state: CachePadded<SpinMutex<LaneState>>,
}

const KNOWN_LINES_SHIFT: u32 = 64 - 10;

#[derive(Debug)]
struct KnownLines(Box<[(u64, u64); 1 << (64 - KNOWN_LINES_SHIFT)]>);

impl Default for KnownLines {
    fn default() -> Self {
        KnownLines(Box::new([(u64::MAX, 0); 1 << (64 - KNOWN_LINES_SHIFT)]))
    }
}

/// Everything that a lane's lock guards.
#[derive(Debug, Default)]
pub(crate) struct LaneState {
    /// Sequence number of the last record.
    pub seq: u64,
    /// Commits since the pool was opened.
    pub commits: u64,
    pub tail: Tail,
    /// Home lines of this half's records. The next record that switches flushes them.
    pub home_lines: Vec<u64>,
    /// By hash: a line that was added to `home_lines`, and `switches` at that time.
    known_lines: KnownLines,
    /// How often the lane has switched halves or was checkpointed.
    switches: u64,
    pub limbo: Limbo,
    /// Pool space for payloads that do not fit into the halves, by [`RecordSlot::chain`]. Reserved, never
    /// published.
    pub chains: [Option<Block>; 4],
}

/// The end of a lane's last record. Changed by commits only.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tail {
    half: usize,
    /// Number of records in the half.
    records: usize,
    /// The end of the last record, from the start of the half.
    used_bytes: u64,
}

/// The place of a record in its lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordSlot {
    half: usize,
    /// The record's number in the half.
    record: usize,
    /// The record's place, in bytes from the start of the half.
    at: u64,
    /// Whether the lane switches halves for this record.
    pub switches: bool,
    bytes: u64,
}

/// Bytes that the first record of a half leaves free for the second. They suffice for the commit of a
/// removal, and in a long half also for freeing a part of a cleared structure: a removal never lacks lane
/// space in a full pool.
const fn second_bytes(half_bytes: u64) -> u64 {
    match half_bytes / LINE_BYTES {
        0..8 => LINE_BYTES,
        8..64 => 2 * LINE_BYTES,
        _ => 16 * LINE_BYTES,
    }
}
/// A record switches halves once this many home lines have gathered. A fence that waits for this many
/// write-backs costs little more than for one.
const HOME_LINES_MAX: usize = 64;
/// A list of more home lines than this is not searched for duplicates.
const SEARCHED_MAX: usize = 4 * HOME_LINES_MAX;

impl LaneState {
    /// The place of the next record, with `inline_bytes` of payload after its head.
    #[inline]
    pub(crate) fn next_slot(&self, geometry: &Geometry, inline_bytes: u64, chained: bool) -> RecordSlot {
        let bytes = record_bytes(inline_bytes);
        let wants_switch = chained
            || self.tail.used_bytes + bytes > geometry.half_bytes()
            || self.home_lines.len() >= HOME_LINES_MAX
            || self.limbo.bytes() >= LIMBO_BYTES_MAX;
        let Tail { half, records, used_bytes } = self.tail;
        if wants_switch && records >= RECORDS_MIN {
            return RecordSlot { half: half ^ 1, record: 0, at: 0, switches: true, bytes };
        }
        RecordSlot { half, record: records, at: used_bytes, switches: false, bytes }
    }

    /// Notes a record that is being written to its slot, and the home lines that it changes. The fence that
    /// follows under the same lock makes the record durable. Returns the new tail.
    #[inline(always)]
    pub(crate) fn note_record(&mut self, seq: u64, slot: RecordSlot, lines: &[u64]) -> Tail {
        self.seq = seq;
        self.commits += 1;
        let used_bytes = slot.at + slot.bytes;
        let tail = Tail { half: slot.half, records: slot.record + 1, used_bytes };
        self.tail = tail;
        if slot.switches {
            self.home_lines.clear();
            self.switches += 1;
        }
        let switches = self.switches;
        // A line that many transactions change is flushed once.
        for line in lines {
            let at = (hash_u64(*line) >> KNOWN_LINES_SHIFT) as usize;
            let known = &mut self.known_lines.0[at];
            if *known == (*line, switches) {
                continue;
            }
            let is_taken = known.1 == switches;
            *known = (*line, switches);
            // Another line with the same hash may have displaced this one. (A list that is too long to be
            // searched may have a line twice.)
            let may_repeat = is_taken && self.home_lines.len() <= SEARCHED_MAX;
            if !(may_repeat && self.home_lines.contains(line)) {
                self.home_lines.push(*line);
            }
        }
        tail
    }

    /// The chain blocks of the other half.
    fn idle_chains(&mut self) -> &mut [Option<Block>] {
        let first = (self.tail.half ^ 1) * RECORDS_MIN;
        &mut self.chains[first..first + RECORDS_MIN]
    }

    pub(super) fn has_idle_chains(&mut self) -> bool {
        self.idle_chains().iter().any(Option::is_some)
    }

    pub(super) fn take_idle_chains(&mut self) -> Vec<Option<Block>> {
        self.idle_chains().iter_mut().map(Option::take).collect()
    }

    /// The most likely offset of the next record.
    pub(crate) fn next_off(&self, geometry: &Geometry, lane: u32) -> u64 {
        self.next_slot(geometry, 0, false).off(geometry, lane)
    }
}

impl Tail {
    /// Whether a payload has to be chained. It is if a half could not hold it and a second record, or if this
    /// half has no room for it and still has too few records to be left (L6).
    #[inline]
    pub(crate) fn must_chain(&self, geometry: &Geometry, payload_bytes: u64) -> bool {
        if self.records == 0 || self.records >= RECORDS_MIN {
            return Tail::must_chain_in_new_half(geometry, payload_bytes);
        }
        self.used_bytes + record_bytes(payload_bytes) > geometry.half_bytes()
    }

    /// Whether the first record of a half with this payload has to be chained.
    pub(crate) fn must_chain_in_new_half(geometry: &Geometry, payload_bytes: u64) -> bool {
        let half_bytes = geometry.half_bytes();
        second_bytes(half_bytes) + record_bytes(payload_bytes) > half_bytes
    }
}

impl RecordSlot {
    /// Whether the commit of this record kills the records from before the lane's last switch.
    pub(crate) fn ends_switch(&self) -> bool {
        self.record + 1 == RECORDS_MIN
    }

    /// The number of the lane's chain block that the record may use.
    pub(crate) fn chain(&self) -> usize {
        self.half * RECORDS_MIN + self.record
    }

    pub(crate) fn off(&self, geometry: &Geometry, lane: u32) -> u64 {
        geometry.half_off(lane, self.half) + self.at
    }
}

impl LaneSlot {
    pub(crate) fn new(number: u32, seq: u64) -> LaneSlot {
        let state = LaneState { seq, ..LaneState::default() };
        LaneSlot {
            number,
            in_use: AtomicBool::new(false),
            dead_to: CachePadded::new(AtomicU64::new(0)),
            state: CachePadded::new(SpinMutex::new(state)),
        }
    }

    /// Locks the lane's state.
    #[inline]
    pub(crate) fn lock(&self) -> SpinMutexGuard<'_, LaneState> {
        self.state.lock()
    }

    /// Commits up to this one have no live record.
    #[inline(always)]
    pub(crate) fn dead_to(&self) -> u64 {
        self.dead_to.load(Ordering::Acquire)
    }

    /// Whether the record of a commit may still be live.
    pub(crate) fn may_be_live(&self, commit: u64) -> bool {
        commit > self.dead_to()
    }

    /// Notes, under the lane's lock, that commit number `commits` was the second in its half: all records
    /// before that half are dead.
    pub(crate) fn note_switched(&self, commits: u64) {
        let dead_to = self.dead_to.load(Ordering::Relaxed).max(commits.saturating_sub(RECORDS_MIN as u64));
        self.dead_to.store(dead_to, Ordering::Release);
    }

    /// Makes the lane's home stores durable and retires its records. Returns its sequence number.
    ///
    /// PERSIST(L3): the home lines are fenced before `retired` is stored, or a crash between them would lose
    /// a committed record.
    pub(crate) fn checkpoint(&self, region: &Region, geometry: &Geometry) -> Result<u64> {
        let mut state = self.lock();
        if state.commits == self.dead_to.load(Ordering::Acquire) {
            return Ok(state.seq);
        }
        for line in &state.home_lines {
            region.flush(line * LINE_BYTES, 1);
        }
        // PERSIST(L3): the home words are durable before their records are declared dead.
        region.fence()?;
        let retired_off = geometry.lane_off(self.number) + offset_of!(PmLane, retired) as u64;
        region.store_u64(retired_off, state.seq)?;
        // PERSIST(L3): the records are dead on media before the calling lane commits a newer one.
        region.persist(retired_off, 8)?;
        self.note_all_dead(&mut state);
        Ok(state.seq)
    }

    /// Notes, under the lane's lock, that all of its records are dead on media.
    pub(super) fn note_all_dead(&self, state: &mut LaneState) {
        state.home_lines.clear();
        state.switches += 1;
        self.dead_to.store(state.commits, Ordering::Release);
    }
}

/// The lanes of a pool, and the media that their records change.
#[derive(Clone, Copy)]
pub(crate) struct Lanes<'l> {
    pub slots: &'l [LaneSlot],
    pub region: &'l Region,
    pub geometry: &'l Geometry,
}

impl Lanes<'_> {
    /// Checkpoints a lane ([`LaneSlot::checkpoint`]).
    pub(crate) fn checkpoint(self, slot: &LaneSlot) -> Result<u64> {
        slot.checkpoint(self.region, self.geometry)
    }
}
