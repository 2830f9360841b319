//! Lanes: where records are written, and what keeps a stale one from doing harm.
//!
//! # Media layout
//!
//! A lane is a line (`PmLane`) and two *halves*. Records lie one after another in a half, each from the start of a
//! line; when the half is full, or enough home lines or freed bytes have gathered, the next record *switches* to the
//! start of the other half, unless this half has but one yet (L6). A record is its head (`PmRecord`), its entries (`PmEntry`: one change of one word each), its covers (a word
//! each: the place and length of new data that the record links) and a checksum of what those name. A payload too
//! long for a half, or for the rest of a half that has but one record, lies in pool space that is reserved in DRAM
//! only, so that it is free after a crash; such a record is the first or the second of its half, so that a lane needs
//! four blocks for them. Where no space is left, and the payload would fit into a new half, the half that has but one record gets
//! another first, which changes nothing, so that the next can switch. A record that frees something may take the space that the pool keeps (`alloc/mod.rs`).
//!
//! After the last record of a half there may be anything that earlier, longer ones left. Nothing of that is taken for a
//! record: heads are marked as no other line of a record can be (`HEAD_MARK`), and older heads have lower numbers.
//!
//! # Commit point
//!
//! New data, head, entries and covers are flushed together; one fence follows. The record is complete if both
//! checksums match, so the fence is the commit. Only then are the home words stored, hence other
//! threads see nothing that a crash could take back. The home lines of a half's records are flushed, each once, with the
//! record that switches to the other half, under its fence: until then the records stand for them. (Flushing them at
//! once cost as much as a second fence, and flushing them with every next record made the processor wait for lines that had
//! just been written back.)
//!
//! # Invariants
//!
//! A record is *live* from its commit until the second commit in the half that was switched to after it, or until the
//! lane's `retired` word or the pool's watermark passes it. Recovery replays live records only.
//!
//! * L1: the home words of a live record are changed by records only, never directly.
//! * L2: memory that a live record changes or covers is not handed out again. Freed blocks wait in the
//!   lane's limbo until the record that freed them is dead (and for readers). Then other lanes are settled that may have a live record for
//!   one of their lines: of a transaction that had begun, pinned, before the block was freed, and was committed after.
//! * L3: when a record changes a word, any other lane's live record for that word is older, and has been
//!   retired before this record's commit is over. So no replay puts an old value over a newer one.
//! * L4: a record never changes bytes that it covers itself: memory allocated in a transaction is written
//!   directly until the commit, the bitmap of a new slab and the tag of a line included.
//! * L5: a block allocated and freed in one transaction is not in its record at all; its reuse could
//!   otherwise invalidate that record while its home stores are not durable.
//! * L6: a record is written over only when it is dead, and recovery can tell. The first record of a half may be
//!   found complete although its fence, which makes the homes of the other half durable, was not reached. The second
//!   cannot be begun before. So a half has two records at least, the other half counts as long as there is but one,
//!   and is written over only after.
//!
//! L3 is kept by the *touch table* (`touch.rs`), once more than one lane is in use: it tells which commits of which lanes changed or covered
//! a line last, or freed it. Before a commit, lanes found there that may still have live records are *settled*: their home lines are made durable
//! and their records retired. After the commit, the lines are registered.
//!
//! # Recovery
//!
//! See `recover.rs`.
//!
//! # Concurrency
//!
//! A lane belongs to one writer at a time. Its state is behind a lock only because other lanes may settle it
//! (a spin lock, because that is released by a plain store); a settler holds no other lane's lock, so there is no deadlock. Structures lock the words that they change
//! until the commit has returned.
//!
//! # Source
//!
//! NV-heaps 3.3 (operation descriptors), wB+-Tree 3.1 (redo-only logging). D1: one fence instead of two per
//! record: the checksum covers the new data, and the home stores ride on the fence of the next switch. D2: records carry
//! Lamport sequence numbers, so that lanes share nothing to order themselves.

use crate::alloc::{Arena, Block};
use crate::layout::{Geometry, PmLane};
use crate::log::record::{RecordImage, record_bytes};
use crate::pool::{Pool, PoolInner};
use crate::tx::{KeptSpace, Tx, TxWork};
use crate::{Done, Error, Result};
use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tembo_pmem::{LINE_BYTES, offset_of};
use tembo_sync::{SpinMutex, SpinMutexGuard, hash_u64};

/// A writer's context in a pool: at most one transaction at a time is begun on it.
///
/// Dropping it makes the lane available to others. Committed changes stay as durable as they are.
pub struct Lane {
    pub(crate) pool: Pool,
    pub(crate) number: u32,
    pub(crate) arena: Arena,
    pub(crate) work: TxWork,
    pub(crate) image: RecordImage,
    /// As in the lane's state.
    pub(crate) tail: Tail,
    /// What its transaction may use of the space that is kept ([`Tx::use_kept_space`]).
    pub(crate) kept_space: KeptSpace,
    /// Its commits write no records ([`Tx::leave_log_out`]).
    pub(crate) leaves_log_out: bool,
}

impl Lane {
    pub(crate) fn new(pool: Pool, number: u32) -> Lane {
        let tail = pool.inner.lanes[number as usize].lock().tail;
        let (arena, work, image) = (Arena::default(), TxWork::default(), RecordImage::default());
        Lane { pool, number, arena, work, image, tail, kept_space: KeptSpace::None, leaves_log_out: false }
    }

    /// Lets the blocks that the last commit freed wait for the readers of this moment: for structures that lead readers to
    /// blocks by what they keep in memory, which they can change only after the commit.
    ///
    /// The caller holds a pin from before the commit until this returns, so that nothing of it is used again meanwhile.
    pub fn unlinked_only_now(&mut self) {
        let inner = &self.pool.inner;
        let mut state = inner.lanes[self.number as usize].lock();
        let (commit, epoch) = (state.commits, inner.epochs.retire(false));
        state
            .limbo
            .iter_mut()
            .rev()
            .take_while(|limbo| limbo.commit == commit)
            .for_each(|limbo| limbo.epoch = epoch);
    }

    /// Looks up the block at `off`, which the lane's next transaction is going to free, while the block's own lines are on their way. What is not
    /// so does no harm.
    pub fn expect_free(&self, off: u64) {
        let inner = &self.pool.inner;
        inner.alloc.expect_free(&inner.region, off);
    }

    /// Begins a transaction.
    pub fn begin(&mut self) -> Tx<'_> {
        Tx::new(LaneHold::Borrowed(self))
    }

    /// As [`begin`](Self::begin), for whoever keeps the lane in its transactions: one follows the other by
    /// [`commit_and_begin`](Tx::commit_and_begin) or [`roll_back`](Tx::roll_back).
    pub fn into_tx(self) -> Tx<'static> {
        Tx::new(LaneHold::Owned(Box::new(self)))
    }

    /// The pool that the lane belongs to.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}

/// How a transaction holds its lane.
pub(crate) enum LaneHold<'l> {
    Borrowed(&'l mut Lane),
    Owned(Box<Lane>),
    Locked(MutexGuard<'l, Lane>),
    /// With lanes that nobody may write with meanwhile. In a box, since every transaction moves what holds its lane.
    WithOthers(Box<(MutexGuard<'l, Lane>, Vec<MutexGuard<'l, Lane>>)>),
}

impl Deref for LaneHold<'_> {
    type Target = Lane;
    #[inline(always)]
    fn deref(&self) -> &Lane {
        match self {
            LaneHold::Borrowed(lane) => lane,
            LaneHold::Owned(lane) => lane,
            LaneHold::Locked(lane) => lane,
            LaneHold::WithOthers(lanes) => &lanes.0,
        }
    }
}

impl DerefMut for LaneHold<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Lane {
        match self {
            LaneHold::Borrowed(lane) => lane,
            LaneHold::Owned(lane) => lane,
            LaneHold::Locked(lane) => lane,
            LaneHold::WithOthers(lanes) => &mut lanes.0,
        }
    }
}

/// A lane that threads take turns to write with.
#[derive(Debug)]
pub struct Writer {
    lane: Mutex<Lane>,
}

impl Writer {
    /// Makes a lane shared.
    pub fn new(lane: Lane) -> Writer {
        Writer { lane: Mutex::new(lane) }
    }

    /// Waits for its turn and begins a transaction; the turn ends with the transaction.
    pub fn begin(&self) -> Tx<'_> {
        Tx::new(LaneHold::Locked(self.lane.lock()))
    }

    /// Begins a transaction if nobody has the turn.
    #[inline]
    pub fn try_begin(&self) -> Option<Tx<'_>> {
        Some(Tx::new(LaneHold::Locked(self.lane.try_lock()?)))
    }

    /// As [`begin`](Self::begin), and keeps the turns of `others` too, which are asked for when this writer's has come: as
    /// long as the transaction lasts, nobody begins one with any of them. All who do so name the writers in one order.
    pub fn begin_before<'l, I: Iterator<Item = &'l Writer>>(&'l self, others: impl FnOnce() -> I) -> Tx<'l> {
        let lane = self.lane.lock();
        let others: Vec<_> = others().map(|other| other.lane.lock()).collect();
        if others.is_empty() {
            return Tx::new(LaneHold::Locked(lane));
        }
        Tx::new(LaneHold::WithOthers(Box::new((lane, others))))
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if self.pool.was_left_behind() {
            return;
        }
        self.pool.inner.alloc.put_arena(&mut self.arena);
        self.pool.inner.alloc.put_pending(&mut self.arena);
        self.pool.inner.lanes[self.number as usize].in_use.store(false, Ordering::Release);
    }
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane").field("number", &self.number).finish_non_exhaustive()
    }
}

/// The part of a lane that other lanes may look at.
#[derive(Debug)]
pub(crate) struct LaneSlot {
    pub number: u32,
    pub in_use: AtomicBool,
    /// Commits up to this one have no live record. Others look at this with each commit, so that it does not lie beside what changes with each.
    settled: CachePadded<AtomicU64>,
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

/// What a lane's lock guards.
#[derive(Debug, Default)]
pub(crate) struct LaneState {
    /// Sequence number of the last record.
    pub seq: u64,
    /// Commits since the pool was opened.
    pub commits: u64,
    pub tail: Tail,
    /// Lines of home words of this half's records, which are flushed with the next that switches.
    pub home_lines: Vec<u64>,
    /// Lines that were added to these, by hash, and the number of switches by then.
    known_lines: KnownLines,
    /// How often the lane has switched halves, or was settled.
    switches: u64,
    /// Freed blocks that a live record or a reader may still look at.
    limbo: VecDeque<Limbo>,
    limbo_bytes: u64,
    /// What was retired before this epoch has no readers, as it was when that was last asked for.
    safe_before: u64,
    /// What readers kept in limbo then, if they kept the first.
    left_blocks: usize,
    left_bytes: u64,
    /// Pool space for payloads that do not fit into the halves, by [`Place::chain`]. Reserved, never published.
    pub chains: [Option<Block>; 4],
}

/// Where a lane's last record is. Changed by commits only.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tail {
    half: usize,
    /// Records that the half has.
    records: usize,
    /// Where in it the next may follow.
    used_bytes: u64,
}

/// Where a record goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    half: usize,
    /// Its number in the half.
    record: usize,
    /// From the start of the half.
    at: u64,
    /// Whether the lane switches halves for it.
    pub switches: bool,
    bytes: u64,
}

/// Records that a half has at least (L6).
pub(crate) const RECORDS_MIN: usize = 2;
/// What the first record of a half leaves for the second, by the length of the half: room for one that removes a record,
/// and, where there is much, that also frees a part of what was cleared before. So whoever removes something finds room for
/// that in a full pool too, whatever was committed before.
const fn second_bytes(half_bytes: u64) -> u64 {
    match half_bytes / LINE_BYTES {
        0..8 => LINE_BYTES,
        8..64 => 2 * LINE_BYTES,
        _ => 16 * LINE_BYTES,
    }
}
/// A record switches halves once this many home lines have gathered: one fence waits for about as many write-backs at
/// little more than the cost of one.
const HOME_LINES_MAX: usize = 64;
/// More home lines than this are not searched for one.
const SEARCHED_MAX: usize = 4 * HOME_LINES_MAX;
/// As [`HOME_LINES_MAX`], for bytes of freed blocks: large ones are to be had again soon.
const LIMBO_BYTES_MAX: u64 = 1 << 20;

impl LaneState {
    /// Where the next record goes, of which `inline_bytes` of payload lie with the head.
    #[inline]
    pub(crate) fn place(&self, geometry: &Geometry, inline_bytes: u64, chained: bool) -> Place {
        let bytes = record_bytes(inline_bytes);
        let wants_switch = chained
            || self.tail.used_bytes + bytes > geometry.half_bytes()
            || self.home_lines.len() >= HOME_LINES_MAX
            || self.limbo_bytes >= LIMBO_BYTES_MAX;
        let Tail { half, records, used_bytes } = self.tail;
        if wants_switch && records >= RECORDS_MIN {
            return Place { half: half ^ 1, record: 0, at: 0, switches: true, bytes };
        }
        Place { half, record: records, at: used_bytes, switches: false, bytes }
    }

    /// Notes that the record with this number is written at its place, durable with the fence that follows under the same lock, with the lines
    /// that it changes. Returns where that is.
    #[inline(always)]
    pub(crate) fn note_record(&mut self, seq: u64, place: Place, lines: &[u64]) -> Tail {
        self.seq = seq;
        self.commits += 1;
        let used_bytes = place.at + place.bytes;
        let tail = Tail { half: place.half, records: place.record + 1, used_bytes };
        self.tail = tail;
        if place.switches {
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
            // Where there was another of this half, that may have taken this one's place. (Among very many a line may be there twice.)
            let may_repeat = is_taken && self.home_lines.len() <= SEARCHED_MAX;
            if !(may_repeat && self.home_lines.contains(line)) {
                self.home_lines.push(*line);
            }
        }
        tail
    }

    /// Where the next record will be, most likely.
    pub(crate) fn next_off(&self, geometry: &Geometry, lane: u32) -> u64 {
        let place = self.place(geometry, 0, false);
        place.off(geometry, lane)
    }
}

impl Tail {
    /// Whether a payload has to be chained: since a half could not hold it and one more record, or since this half has
    /// no room and does not have its least number of records.
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

impl Place {
    /// Whether the records before the lane's last switch die with this one's commit.
    pub(crate) fn ends_switch(&self) -> bool {
        self.record + 1 == RECORDS_MIN
    }

    /// Which of the lane's chain blocks the record may use.
    pub(crate) fn chain(&self) -> usize {
        self.half * RECORDS_MIN + self.record
    }

    pub(crate) fn off(&self, geometry: &Geometry, lane: u32) -> u64 {
        geometry.half_off(lane, self.half) + self.at
    }
}

#[derive(Debug)]
struct Limbo {
    commit: u64,
    epoch: u64,
    block: Block,
}

/// So many blocks leave limbo at once, if that is no less than an eighth of it, and twice what the commit frees: who waits for it shall not wait for many.
const LEAVING_MAX: usize = 64;

/// Which blocks in limbo have readers is asked for when it has so many, besides those that readers kept there the last time: that costs a
/// barrier of all threads, which interrupts those that run, whether readers have let go of anything or not.
const LIMBO_BATCH_MAX: usize = 1024;
/// So many are enough where they are more than a thousandth of the pool.
const LIMBO_BATCH_MIN: usize = 64;

impl LaneSlot {
    pub(crate) fn new(number: u32, seq: u64) -> LaneSlot {
        let state = LaneState { seq, ..LaneState::default() };
        LaneSlot {
            number,
            in_use: AtomicBool::new(false),
            settled: CachePadded::new(AtomicU64::new(0)),
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
    pub(crate) fn settled(&self) -> u64 {
        self.settled.load(Ordering::Acquire)
    }

    /// Whether the record of a commit may still be live.
    pub(crate) fn may_be_live(&self, commit: u64) -> bool {
        commit > self.settled()
    }

    /// Notes, under the lane's lock, that commit number `commits` was the second in its half: all records before the
    /// first are dead.
    pub(crate) fn note_switched(&self, commits: u64) {
        let settled = self.settled.load(Ordering::Relaxed).max(commits.saturating_sub(RECORDS_MIN as u64));
        self.settled.store(settled, Ordering::Release);
    }

    /// Makes the lane's home stores durable and retires its records. Returns its sequence number.
    ///
    /// PERSIST(L3): the home lines are fenced before `retired` is stored, or a crash between them would lose a
    /// committed record.
    pub(crate) fn settle(&self, pool: &PoolInner) -> Result<u64> {
        let mut state = self.lock();
        if state.commits == self.settled.load(Ordering::Acquire) {
            return Ok(state.seq);
        }
        for line in &state.home_lines {
            pool.region.flush(line * LINE_BYTES, 1);
        }
        // PERSIST(L3): the home words are durable before their record is declared dead.
        pool.region.fence()?;
        let retired_off = pool.geometry.lane_off(self.number) + offset_of!(PmLane, retired) as u64;
        pool.region.store_u64(retired_off, state.seq)?;
        // PERSIST(L3): the record is dead on media before the lane that settles commits a newer one.
        pool.region.persist(retired_off, 8)?;
        state.home_lines.clear();
        state.switches += 1;
        self.settled.store(state.commits, Ordering::Release);
        Ok(state.seq)
    }

    /// Puts the blocks that the last commit freed aside. What may be [released](Self::release), once the lane's lock is, is in their place.
    #[inline(always)]
    pub(crate) fn retire(
        &self,
        pool: &PoolInner,
        state: &mut LaneState,
        blocks: &mut Vec<Block>,
        alone: bool,
    ) {
        let (commit, epoch, freed) = (state.commits, pool.epochs.retire(alone), blocks.len());
        while let Some(block) = blocks.pop() {
            state.limbo_bytes += block.bytes;
            state.limbo.push_back(Limbo { commit, epoch, block });
        }
        let is_safe = state.limbo.front().is_some_and(|next| next.epoch < state.safe_before);
        let is_much = state.limbo_bytes >= state.left_bytes + (pool.region.len() >> 10);
        let batch = if is_safe {
            LEAVING_MAX
        } else if is_much {
            LIMBO_BATCH_MIN
        } else {
            LIMBO_BATCH_MAX
        };
        let are_many = state.limbo.len() >= state.left_blocks + batch
            || state.limbo_bytes >= (state.left_bytes + LIMBO_BYTES_MAX / 4).max(LIMBO_BYTES_MAX);
        if are_many && state.limbo.front().is_some_and(|next| !self.may_be_live(next.commit)) {
            let most = LEAVING_MAX.max(2 * freed).max(state.limbo.len() / 8);
            self.leave_limbo(pool, state, blocks, most);
        }
    }

    /// Takes blocks out of limbo that no reader, and no record of this lane, can look at any more, so many at most.
    #[inline(never)]
    fn leave_limbo(&self, pool: &PoolInner, state: &mut LaneState, blocks: &mut Vec<Block>, count: usize) {
        let LaneState { limbo, limbo_bytes, safe_before, .. } = &mut *state;
        let Some(first) = limbo.front().filter(|next| !self.may_be_live(next.commit)) else { return };
        let asks = first.epoch >= *safe_before;
        if asks {
            *safe_before = pool.epochs.safe_before();
        }
        let leaving = std::iter::from_fn(|| {
            let next = limbo.front()?;
            if next.epoch >= *safe_before || self.may_be_live(next.commit) {
                return None;
            }
            *limbo_bytes -= next.block.bytes;
            limbo.pop_front().map(|limbo| limbo.block)
        });
        blocks.extend(leaving.take(count));
        let waits_for_readers =
            asks && state.limbo.front().is_some_and(|next| next.epoch >= state.safe_before);
        (state.left_blocks, state.left_bytes) =
            if waits_for_readers { (state.limbo.len(), state.limbo_bytes) } else { (0, 0) };
    }

    /// Makes blocks available that have left limbo. If that fails, they are lost until the pool is opened again.
    ///
    /// Another lane may have stored to a block, in a transaction that had begun when this lane freed it, and was committed after that. It is over,
    /// since it was pinned; its record is in the touch table, and dead after this (L2). No lane's lock is held, as others' are taken.
    pub(crate) fn release(&self, pool: &PoolInner, blocks: &mut Vec<Block>, arena: Option<&Arena>) -> Done {
        blocks.iter().for_each(|block| pool.alloc.expect_release(block));
        let settled = blocks
            .iter()
            .flat_map(Block::spans)
            .try_for_each(|(off, bytes)| pool.touches.settle_others_in(pool, self.number, off, bytes));
        match settled {
            Ok(()) => pool.alloc.release(blocks.drain(..), arena),
            Err(_) => blocks.clear(),
        }
        settled
    }

    /// Settles the lane and releases what its limbo holds: for when space runs out.
    pub(crate) fn reclaim(&self, pool: &PoolInner) -> Result<()> {
        self.settle(pool)?;
        let mut blocks = Vec::new();
        let mut state = self.lock();
        // What readers had when it was last asked for they may have let go.
        state.safe_before = 0;
        self.leave_limbo(pool, &mut state, &mut blocks, usize::MAX);
        drop(state);
        Ok(self.release(pool, &mut blocks, None)?)
    }

    pub(crate) fn limbo_bytes(&self) -> u64 {
        self.lock().limbo_bytes
    }
}

impl PoolInner {
    /// Takes a lane that nobody uses: the lowest, so that a single writer always has the same.
    pub(crate) fn take_lane(&self) -> Result<u32> {
        for lane in self.lanes.iter() {
            if lane.in_use.swap(true, Ordering::AcqRel) {
                continue;
            }
            if lane.number > 0
                && let Err(e) = self.touches.turn_on(self, lane.number)
            {
                lane.in_use.store(false, Ordering::Release);
                return Err(e);
            }
            return Ok(lane.number);
        }
        Err(Error::NoLane { lanes: self.geometry.lane_count })
    }
}
