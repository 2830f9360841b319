//! A journal of lines. It gives fences their meaning on a disk, where pages are written back in any order.
//!
//! The memory of such a region is private: no store reaches the file by itself. A flush notes lines. A fence
//! appends the contents of the lines that its thread noted as one *record* to a ring in the file. The ring is
//! synchronised with the device by groups. Later the records are *written back*: their lines are written to
//! their places in the file, *home*, and their part of the ring is used again.
//!
//! # Media layout
//!
//! ```text
//!  off         +4096       +8192                                        +bytes
//!  | PmRingHead | PmRingHead | record | record | ... free ... | record | rec|
//!                                                             ^tail
//! ```
//!
//! The ring is a range of the file whose bytes were all written once, so that a synchronisation allocates
//! nothing. It begins with two copies of its head ([`PmRingHead`]), each in a sector of its own. The rest,
//! `capacity` bytes, has the records ([`PmRingRecord`]) one behind the other; one that reaches the end
//! continues at the beginning. The *position* of a record counts the bytes of all records before it in this
//! generation; its place is the position modulo the capacity. A record has its head, its runs (number of the
//! first line `<< 16 |` count of lines less 1) and the lines.
//!
//! The ring may be the first part of a longer range of the file that is its own. Then it *grows*, to twice
//! its capacity in a step, until the range has no room for a further one.
//!
//! A head has the *tail*: the position at which replay begins. Each opening for writing begins a new
//! *generation*: after recovery with the position 0 and a head; where it resumes the ring, with a record that
//! has nothing but the generation of those behind it. The checksums of records are seeded with the
//! generation; a head has that of the record at its tail.
//!
//! # Failure model
//!
//! The device has sectors of 512 bytes, each of which is written as a whole or not at all. Until a
//! synchronisation returns, any subset of the sectors that were written since the last one may be on the
//! device, each in any of its versions since then. A killed process loses nothing that it wrote.
//!
//! # Invariants
//!
//! * I1: *order*. Contents of lines are copied, and the record is written, under one lock. Of two records
//!   with the same line, the later one therefore has the later contents. A record is complete before the next
//!   one begins, so nothing that was acknowledged lies behind an incomplete one.
//! * I2: *lines are whole*. A copy of a line has the contents that the line had at one moment (`copy_line` in
//!   `region/journaled.rs`).
//! * I3: *home is behind*. A line is written home from a record only after that record is on the device, with
//!   all records before it. Home never has a line that a later replay could miss.
//! * I4: *tail*. A tail is written to a head only when every line of the records before it is on the device
//!   at home. Copies of the head are written in turn, the older one first, and the next only when the last is
//!   on the device. So one valid copy is always there.
//! * I5: *space*. The place of a record is written again only when a tail behind that record is on the
//!   device.
//! * I6: *generations*. A generation is on the device, in a head, before its first record is written, or it
//!   begins with a record of the generation before, in front of all of its own. A record of another
//!   generation has another checksum, and one of an older turn of the ring another position: a complete
//!   record behind a hole is never found again.
//! * I7: *growth of the region*. Space for a line is part of the file, and the file's length on the device,
//!   before a record has the line (`Region::grow`). Before space is given back to the file system, or the
//!   region is cut, everything is written home (`Journal::vacate`): an older record could fill it again.
//! * I8: *growth of the ring*. The capacity is doubled only while all records from the tail on have the same
//!   places in the ring of the new capacity (`Ring::keeps_places`). A head with the new length is on the
//!   device before a record lies behind the old one. So either head describes the same records.
//!
//! # Commit point
//!
//! In the domain `journaled` the end of the synchronisation that covers the record of a fence; in `relaxed`
//! the write of the record, as far as a killed process is concerned, and the end of the next synchronisation
//! for a power failure. That is a *prefix of the fences*: the file with its ring replayed is, byte for byte,
//! the memory as it was noted up to one of them.
//!
//! Proof. By I1 the records are the fences in their order (a fence with many lines has several records; the
//! model allows any part of a fence that has not returned). Replay applies the records from the durable tail
//! to the first one that is not complete. The records up to the last synchronisation are on the device, since
//! their places were not written again (I5), so replay gets at least there. Each line in a replayed record
//! has the contents of the last such record. Each other line is as it is at home. The last record that has it
//! is then before the tail, or behind the end of the replay. In the first case its contents are on the
//! device (I4), and nothing later was written there, as that would have been on the device first (I3) and be
//! replayed. In the second case it was never written home, by I3.
//!
//! # Recovery
//!
//! 1. The newest valid head is chosen, and the records from its tail on are read, up to the first that does
//!    not fit: position, length, generation and checksum.
//! 2. The head and these records are written again, and synchronised. The page cache may have records that
//!    the device has not (after a kill), or not any more (after a failed synchronisation); I3 needs them
//!    there.
//! 3. Their lines are written home, and synchronised.
//! 4. A head with a new generation is written, and synchronised.
//!
//! Cut in 1 or 2: the same records are found again, or fewer, if the process was killed before and the power
//! failed now; none of the missing ones was written home. Cut in 3: the same records are found, and the
//! same lines written. Cut in 4: one of the two heads counts; both describe the same contents. Opening for
//! reading only does step 1, and applies the lines in memory.
//!
//! The ring that a killed process of this boot left need not be recovered: it is resumed (`resume.rs`).
//!
//! # Concurrency
//!
//! | lock | guards | held during |
//! |---|---|---|
//! | `growth` | the part of the range that is prepared | a step of the ring's growth |
//! | `writer` | heads and home, one write-back at a time | a write-back |
//! | `state` | ring, end, durable, tail; the order of records (I1) | copying and writing a record |
//!
//! `state` is held during no synchronisation but that of a head when the ring grows.
//!
//! `growth` comes before `writer`, and that before `state`. One thread at a time, the first to need it,
//! synchronises the ring. The others wait for it and, if it began before their records, for the next one: a
//! group needs no timer. Only the part of the ring with newer records is synchronised. A write-back
//! synchronises the whole file, beside that: no commit waits for the pages that it wrote.
//!
//! A thread may put off waiting ([`Journal::put_off`]): its fences return once their records are written, and
//! it acknowledges nothing before [`durable`](Journal::durable) has come to the [`end`](Journal::end) that it
//! saw then. Records are in the order of fences, so a later fence never survives without an earlier one.
//!
//! # Back-pressure
//!
//! When half of the ring is used, it grows if it can; otherwise a write-back begins, and takes all records
//! that are there. From three quarters on, a fence is slowed, the more the fuller the ring is; a fence that
//! finds no room writes back itself.
//!
//! When there are more private pages than their limit, those that are at home are given back
//! (`private/mod.rs`), if need be after a write-back. Beyond the limit fences are slowed in the same way, the
//! most from a quarter above it on.
//!
//! # Source
//!
//! Redo logging with fuzzy checkpoints is textbook matter. D1: the log has physical lines at the level of
//! flush and fence, so that nothing above knows of it. D2: a checkpoint writes the contents of the log, not
//! of memory: no page is copied while it changes, and home is never ahead of the log (I3).

mod disk_file;
mod growth;
mod home;
mod layout;
mod lengths;
mod medium;
mod notes;
mod pages;
mod reader;
mod replay;
mod resume;
mod ring;
mod worker;

pub use crate::error::JournalError;
pub(crate) use disk_file::DiskFile;
pub use layout::{PmRingHead, PmRingRecord};
pub use medium::Medium;
pub use replay::{Line, Records, Replayed, read_lines, recover};
pub(crate) use worker::Worker;

use crate::private::PrivatePages;
use crate::{LINE_BYTES, SyncError};
use layout::Runs;
use ring::Ring;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tembo_sync::nap;

/// The least length of a ring, heads included.
pub const RING_MIN_BYTES: u64 = 64 << 10;
/// A record has at most this part of the ring.
const PARTS_OF_RING: u64 = 8;
/// More bytes than this are never in one record.
const RECORD_MAX_BYTES: u64 = 1 << 20;
/// The longest that a fence is slowed, when the ring is all but full.
const SLOWED_MAX: Duration = Duration::from_millis(4);
/// Classes of synchronisations by their duration: up to 32 us, up to 64 us and so on, the last all others.
const DURATION_CLASSES: usize = 20;

/// The range of a journal in its file, and the number by which checksums of journals differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalPlace {
    /// The first byte of the ring; a multiple of 4 KiB.
    pub off: u64,
    /// Any number that the file keeps.
    pub seed: u64,
}

/// The state of a journal, in figures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JournalStats {
    /// How old a record may become before it is on the device, if fences do not wait for that.
    pub interval: Option<Duration>,
    /// Bytes that the ring has room for. It grows.
    pub ring_bytes: u64,
    /// Bytes of records that are not written back yet.
    pub used_bytes: u64,
    /// Bytes of records that are not on the device yet.
    pub behind_bytes: u64,
    /// The age of the oldest of these.
    pub behind: Duration,
    /// Bytes of records that were written since the opening.
    pub written_bytes: u64,
    /// Synchronisations since the opening.
    pub synchronisations: u64,
    /// Their time together.
    pub total: Duration,
    /// The longest of them.
    pub longest: Duration,
    /// Their number by duration: up to 32 us, up to 64 us and so on; the last are all others.
    pub durations: [u64; DURATION_CLASSES],
    /// How often a fence was slowed, because the ring was filling.
    pub slowed: u64,
    /// How often a fence waited for space in the ring.
    pub stalls: u64,
    /// Write-backs since the opening.
    pub write_backs: u64,
    /// Bytes of pages of which this process has a copy of its own.
    pub private_bytes: u64,
    /// Bytes beyond which such pages are given back.
    pub private_bytes_max: u64,
    /// Bytes of pages that were given back since the opening.
    pub given_back_bytes: u64,
}

impl JournalStats {
    /// The duration in microseconds that this part of the synchronisations did not exceed, rounded up to a
    /// class; 0 without any.
    pub fn duration_us(&self, part: f64) -> u64 {
        let wanted = part * self.durations.iter().sum::<u64>() as f64;
        let mut below = 0;
        let class = self.durations.iter().position(|count| {
            below += count;
            below > 0 && below as f64 >= wanted
        });
        class.map_or(0, |class| 32 << class)
    }

    fn note_duration(&mut self, duration: Duration) {
        let class = (duration.as_micros().div_ceil(32)).next_power_of_two().ilog2() as usize;
        self.durations[class.min(DURATION_CLASSES - 1)] += 1;
        self.synchronisations += 1;
        self.total += duration;
        self.longest = self.longest.max(duration);
    }
}

/// Called before a synchronisation, or after one that was asked for.
type Hook = Box<dyn Fn() + Send + Sync>;

/// The journal of an open region.
pub struct Journal {
    medium: Box<dyn Medium>,
    /// The pages of the region that are private.
    pages: OnceLock<Arc<PrivatePages>>,
    /// How old a record may become before it is on the device; `None`: a fence waits for it.
    interval: Option<Duration>,
    /// Tells this journal's notes from those of others.
    identity: Arc<()>,
    state: Mutex<State>,
    /// A synchronisation ended.
    synchronised: Condvar,
    /// A synchronisation is wanted, or the threads have to stop.
    work: Condvar,
    /// More than half of the ring is used, or too many pages are private, or the threads have to stop.
    filling: Condvar,
    writer: Mutex<home::Writer>,
    growth: Mutex<growth::Growth>,
    wake: Mutex<Option<Hook>>,
    before: Mutex<Option<Hook>>,
}

struct State {
    ring: Ring,
    /// The generation of the next record.
    generation: u64,
    /// The generation that a record has to begin before that.
    next_generation: Option<u64>,
    /// The records with which the ring was resumed, until they are on the device for certain.
    found: Option<Records>,
    /// Where the next record begins.
    end: u64,
    /// Records before this position are on the device.
    durable: u64,
    /// Records before this position are at home, and their space is free.
    tail: u64,
    /// When the oldest record was written that no synchronisation covers yet.
    oldest: Option<Instant>,
    /// When the oldest record was written that the synchronisation under way is to cover.
    oldest_under_way: Option<Instant>,
    /// The usual duration of a synchronisation: a moving average.
    typical: Duration,
    is_synchronising: bool,
    /// Somebody wants records before this position to be on the device, and does not wait for it.
    wanted: u64,
    /// Notes of threads that are ending, by the thread's id: a thread records its own notes only.
    orphans: BTreeMap<i32, Runs>,
    record: Vec<u8>,
    failure: Option<String>,
    has_worker: bool,
    /// Private pages are being given back.
    is_relieved: bool,
    has_to_stop: bool,
    stats: JournalStats,
}

impl Journal {
    /// Writes an empty ring of `bytes` bytes, all of them. It may [grow](Self::grow_ring) to `most_bytes`,
    /// which are its own already.
    ///
    /// # Errors
    ///
    /// Failures of the medium.
    ///
    /// # Panics
    ///
    /// If the place or a length is not aligned to 4 KiB, or the ring too short, or longer than its range.
    pub fn format(
        medium: &dyn Medium,
        place: JournalPlace,
        bytes: u64,
        most_bytes: u64,
    ) -> std::io::Result<()> {
        Ring::format(medium, place, bytes, most_bytes)
    }

    /// Replays the journal into the file, and begins a new generation. With an `interval`, a fence does not
    /// wait for the device.
    ///
    /// # Errors
    ///
    /// Failures of the medium, and damage.
    pub fn open(
        medium: Box<dyn Medium>,
        place: JournalPlace,
        interval: Option<Duration>,
    ) -> Result<Journal, JournalError> {
        replay::recover(&*medium, place)?;
        let (ring, head) = Ring::read(&*medium, place)?;
        medium.prepare_range(place.off, ring.most_bytes);
        Ok(Journal::over(medium, interval, head.change, State::new(ring)))
    }

    fn over(medium: Box<dyn Medium>, interval: Option<Duration>, change: u64, state: State) -> Journal {
        Journal {
            medium,
            pages: OnceLock::new(),
            interval,
            identity: Arc::default(),
            state: Mutex::new(state),
            synchronised: Condvar::new(),
            work: Condvar::new(),
            filling: Condvar::new(),
            writer: Mutex::new(home::Writer::new(change)),
            growth: Mutex::default(),
            wake: Mutex::default(),
            before: Mutex::default(),
        }
    }

    /// How old a record may become before it is on the device, if fences do not wait for that.
    pub fn interval(&self) -> Option<Duration> {
        self.interval
    }

    /// Waits until everything that was recorded before the call is on the device.
    ///
    /// # Errors
    ///
    /// [`SyncError`] when the device fails.
    pub fn make_durable(&self) -> Result<(), SyncError> {
        let end = self.lock().end;
        self.wait_until_durable(end)
    }

    /// Lets fences of this thread return once their records are written, or lets them wait again. Without
    /// [`want`](Self::want) nothing makes them durable.
    pub fn put_off(&self, puts_off: bool) {
        notes::put_off(&self.identity, puts_off);
    }

    /// The position behind all records.
    pub fn end(&self) -> u64 {
        self.lock().end
    }

    /// The position before which all records are on the device.
    ///
    /// # Errors
    ///
    /// [`SyncError`] when the device has failed.
    pub fn durable(&self) -> Result<u64, SyncError> {
        let state = self.lock();
        state.check().map(|()| state.durable)
    }

    /// How long a synchronisation of the ring usually takes, by the last few.
    pub fn typical_synchronisation(&self) -> Duration {
        self.lock().typical
    }

    /// Asks for the records before a position to be made durable, and does not wait.
    pub fn want(&self, pos: u64) {
        let mut state = self.lock();
        if state.wanted < pos {
            state.wanted = pos;
            self.work.notify_all();
        }
    }

    /// Sets the function that is called after each synchronisation that was [asked for](Self::want), and
    /// after a failure. It must not use the journal.
    pub fn set_wake(&self, wake: Option<Box<dyn Fn() + Send + Sync>>) {
        *self.wake.lock().unwrap_or_else(PoisonError::into_inner) = wake;
    }

    /// Sets the function that is called before each synchronisation of records, by the thread that makes it.
    /// It synchronises a file that records tell of. It must not use the journal.
    pub fn set_before(&self, before: Option<Box<dyn Fn() + Send + Sync>>) {
        *self.before.lock().unwrap_or_else(PoisonError::into_inner) = before;
    }

    /// The state in figures.
    pub fn stats(&self) -> JournalStats {
        let pages = |of: fn(&PrivatePages) -> u64| self.pages.get().map_or(0, |pages| of(pages));
        let state = self.lock();
        JournalStats {
            private_bytes: pages(|pages| pages.count() * pages.page_bytes()),
            private_bytes_max: pages(|pages| pages.limit() * pages.page_bytes()),
            given_back_bytes: pages(PrivatePages::given_back_bytes),
            interval: self.interval,
            ring_bytes: state.ring.capacity,
            used_bytes: state.end - state.tail,
            behind_bytes: state.end - state.durable,
            behind: state.age(),
            ..state.stats
        }
    }

    /// Notes lines, which the next fence of this thread records.
    #[inline]
    pub(crate) fn note(&self, first_line: u64, lines: u64) {
        if !notes::note(&self.identity, first_line, lines) {
            self.lock().orphans.entry(notes::thread_id()).or_default().push((first_line, lines));
        }
    }

    /// Records the lines that this thread noted, as `copy` finds them, and waits as the domain demands.
    /// `lines` is the region's length: lines beyond it, noted before a cut, are dropped.
    pub(crate) fn fence(
        &self,
        lines: impl Fn() -> u64,
        copy: impl Fn(u64, &mut [u8]),
    ) -> Result<(), SyncError> {
        let (mut noted, puts_off) = match notes::take(&self.identity) {
            Some(taken) => taken,
            None => (self.lock().orphans.remove(&notes::thread_id()).unwrap_or_default(), false),
        };
        if noted.is_empty() {
            return self.lock().check();
        }
        layout::merge(&mut noted);
        let end = self.append(&noted, lines, copy)?;
        notes::give_back(&self.identity, noted);
        match self.interval {
            None if puts_off => Ok(()),
            // A synchronisation lags: commits wait, so that a failure loses at most the interval.
            Some(interval) if self.lock().age() < interval => Ok(()),
            _ => self.wait_until_durable(end),
        }
    }

    /// Appends records with the lines. Returns the position behind them.
    fn append(
        &self,
        noted: &Runs,
        lines: impl Fn() -> u64,
        copy: impl Fn(u64, &mut [u8]),
    ) -> Result<u64, SyncError> {
        let mut state = self.begin_generation(self.lock())?;
        let max_bytes = (state.ring.capacity / PARTS_OF_RING).min(RECORD_MAX_BYTES);
        for mut runs in layout::pieces(noted, max_bytes) {
            state = self.wait_for_space(state, layout::record_bytes(&runs))?;
            // Under the lock: the thread that made the region shorter writes all earlier records home.
            layout::clip(&mut runs, lines());
            if runs.is_empty() {
                continue;
            }
            let bytes = layout::record_bytes(&runs);
            let mut record = std::mem::take(&mut state.record);
            let (pos, ring) = (state.end, state.ring);
            if let Some(pages) = self.pages.get() {
                pages.note_recorded(&runs, pos + bytes);
            }
            layout::encode(&mut record, state.generation, pos, &runs, &copy);
            let written = ring.append(&*self.medium, pos, &record);
            state.record = record;
            if let Err(e) = written {
                return Err(self.fail(&mut state, &e));
            }
            let (used, half) = (state.end - state.tail, ring.capacity / 2);
            if used <= half && used + bytes > half {
                self.filling.notify_one();
            }
            state.end += bytes;
            state.stats.written_bytes += bytes;
            state.oldest.get_or_insert_with(Instant::now);
        }
        let end = state.end;
        if !state.is_relieved && self.has_too_many_pages() {
            state.is_relieved = true;
            self.filling.notify_one();
        }
        // Without a thread that writes back, time brings no space.
        let excess = self.pages.get().map_or(0.0, |pages| pages.excess()).max(state.excess());
        let slowed = if state.has_worker { SLOWED_MAX.mul_f64(excess) } else { Duration::ZERO };
        state.stats.slowed += u64::from(!slowed.is_zero());
        drop(state);
        if !slowed.is_zero() {
            nap(slowed);
        }
        Ok(end)
    }

    /// Waits until the ring has room for so many bytes, and helps.
    fn wait_for_space<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        bytes: u64,
    ) -> Result<MutexGuard<'s, State>, SyncError> {
        state.check()?;
        while state.end + bytes - state.tail > state.ring.capacity {
            state.stats.stalls += 1;
            drop(state);
            self.write_some_back()?;
            state = self.lock();
            state.check()?;
        }
        Ok(state)
    }

    /// Waits until the records before `pos` are on the device; synchronises if no other thread does.
    fn wait_until_durable(&self, pos: u64) -> Result<(), SyncError> {
        let mut state = self.lock();
        loop {
            state.check()?;
            if state.durable >= pos && state.found.is_none() {
                return Ok(());
            }
            state = self.wait_or_synchronise(state);
        }
    }

    /// Waits for the synchronisation of the ring that is under way; if there is none, does one.
    fn wait_or_synchronise<'s>(&'s self, mut state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        if state.is_synchronising {
            return self.synchronised.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let (start, end, ring, begun) = (state.durable, state.end, state.ring, Instant::now());
        let found = state.found;
        state.is_synchronising = true;
        state.oldest_under_way = state.oldest.take();
        drop(state);
        if let Some(before) = &*self.before.lock().unwrap_or_else(PoisonError::into_inner) {
            before();
        }
        let outcome = match found {
            None => ring.synchronise(&*self.medium, start, end),
            // PERSIST(I3): a synchronisation may have failed, and the page cache may take records for written
            // that the device has not. The file may also have been copied without any synchronisation.
            Some(found) => replay::rewrite(&*self.medium, &ring, start, found.end)
                .and_then(|()| self.medium.synchronise()),
        };
        let mut state = self.lock();
        state.is_synchronising = false;
        state.oldest_under_way = None;
        match outcome {
            Ok(()) => {
                (state.durable, state.found) = (end, None);
                let duration = begun.elapsed();
                state.stats.note_duration(duration);
                state.typical = (7 * state.typical + duration) / 8;
            }
            Err(e) => _ = self.fail(&mut state, &e),
        }
        self.synchronised.notify_all();
        state
    }

    /// Refuses everything from now on, and notes that for the next process.
    fn fail(&self, state: &mut State, error: &dyn std::fmt::Display) -> SyncError {
        let is_first = state.failure.is_none();
        let error = state.fail(error);
        if is_first {
            state.ring.note_failure(&*self.medium);
        }
        error
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn new(ring: Ring) -> State {
        State {
            ring,
            generation: ring.generation,
            next_generation: None,
            found: None,
            end: 0,
            durable: 0,
            tail: 0,
            oldest: None,
            oldest_under_way: None,
            typical: Duration::ZERO,
            is_synchronising: false,
            wanted: 0,
            orphans: BTreeMap::new(),
            record: Vec::new(),
            failure: None,
            has_worker: false,
            is_relieved: false,
            has_to_stop: false,
            stats: JournalStats::default(),
        }
    }

    /// How far more than three quarters of the ring are used: 1 if all of it is.
    fn excess(&self) -> f64 {
        let quarter = self.ring.capacity / 4;
        let over = (self.end - self.tail).saturating_sub(3 * quarter);
        over as f64 / quarter as f64
    }

    /// How long the oldest record waits for the device.
    fn age(&self) -> Duration {
        self.oldest_under_way.or(self.oldest).map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// After a failure no promise can be kept: the kernel may have dropped the pages that it could not write.
    fn check(&self) -> Result<(), SyncError> {
        match &self.failure {
            None => Ok(()),
            Some(message) => Err(SyncError { message: message.clone() }),
        }
    }

    fn fail(&mut self, error: &dyn std::fmt::Display) -> SyncError {
        let message = self.failure.get_or_insert_with(|| error.to_string()).clone();
        SyncError { message }
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal")
            .field("ring", &self.lock().ring)
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}

const _: () = assert!(RING_MIN_BYTES / PARTS_OF_RING >= 16 * LINE_BYTES);
