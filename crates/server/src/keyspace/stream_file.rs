//! The kept bytes of the stream in a file beside the pool, where the pool has a journal.
//!
//! A journal would write each byte twice, and its ring would be full sooner. Here it is written once.
//!
//! # Media layout
//!
//! The file `POOL.backlog`, in blocks of 64 KiB. The first has the head, in one sector:
//!
//! ```text
//!   "TemboBkl" | stamp 8 | length of boot 1 | boot 64 | sum 4
//! ```
//!
//! Each other block has a part of the stream, `PART` bytes; the last one, as many as there are:
//!
//! ```text
//!   number 8 | sum of all before 4 | slot of the block before 4 | bytes
//! ```
//!
//! A *slot* is the place of a block in the file, 1 and so on. A block takes any slot that is free, and the
//! file grows if none is. The [`Extent`] is the rest of the description, and lies in the pool, with the
//! position: from where on blocks are counted (their number 0), the first byte that is kept, the slot of the
//! last block, and the sum of all bytes since the count began. That is a CRC-32 which begins with a random
//! number, so it tells this stream from others, and a block from one of an earlier use of its slot. The stamp
//! is a random number of the last opening. All numbers are little-endian.
//!
//! # Invariants
//!
//! * F1: bytes are written before the commit that names them; so a killed process loses none of them.
//! * F2: a slot is used again only after the commit that gave up its block.
//! * F3: whichever thread synchronises records of the journal synchronises the file before. So a failure of
//!   power usually leaves the bytes up to the offset that it leaves in the pool. It need not: the system may
//!   write the journal first.
//! * F4: after a failed synchronisation no opening trusts the file without checking all sums.
//!
//! # Commit point
//!
//! The commit of the batch, which has the extent. A batch that is taken back leaves bytes behind the extent,
//! and they are written over.
//!
//! # Recovery
//!
//! The blocks are found from the last one back. If the stamps of file and pool agree and it is the same boot
//! of the system, no block can be missing but by a copy of one of the two files; the sums of the first and
//! the last block are checked. Otherwise those of all are. Blocks before one that does not fit are dropped;
//! if the last one does not, all are, and replicas that lack the bytes take a whole copy. Data never depend
//! on this file. It may be deleted while no server runs.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::format::Malformed;
use crate::random::Random;

pub(super) const BLOCK: u64 = 64 << 10;
const LEAD: u64 = 16;
/// Bytes of the stream in a block.
const PART: u64 = BLOCK - LEAD;
const MAGIC: &[u8; 8] = b"TemboBkl";
const BOOT_BYTES_MAX: usize = 64;
const HEAD_BYTES: usize = 8 + 8 + 1 + BOOT_BYTES_MAX + 4;
/// Bytes in an encoded extent.
const EXTENT_BYTES: usize = 40;
/// Free slots at the end of the file, beyond which it is cut.
const SPARE_SLOTS: u32 = 64;
/// Blocks that a commit gives up at most, beyond as many as it adds.
const TRIMMED_MAX: usize = 64;

/// The part of a file's description that lies in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Where in the stream the block of number 0 begins.
    base: u64,
    /// The first byte that is kept.
    pub(super) first: u64,
    /// From here on, commands change nothing.
    pub(super) harmless: u64,
    stamp: u64,
    /// The slot of the last block; 0 if there is none.
    slot: u32,
    /// The sum of all bytes since `base`.
    sum: u32,
}

impl Extent {
    pub(super) fn encode(&self) -> [u8; EXTENT_BYTES] {
        let mut bytes = [0; EXTENT_BYTES];
        let numbers = [self.base, self.first, self.harmless, self.stamp];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes[32..36].copy_from_slice(&self.slot.to_le_bytes());
        bytes[36..].copy_from_slice(&self.sum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8], end: u64) -> Result<Extent, Malformed> {
        let bytes: &[u8; EXTENT_BYTES] = bytes.try_into().map_err(|_| Malformed)?;
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let short = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let extent = Extent {
            base: number(0),
            first: number(8),
            harmless: number(16),
            stamp: number(24),
            slot: short(32),
            sum: short(36),
        };
        let is_sound = extent.base <= extent.first
            && extent.first.max(extent.harmless) <= end
            && (extent.slot > 0) == (extent.base < end);
        is_sound.then_some(extent).ok_or(Malformed)
    }
}

/// The operations of a file. The simulator of failures has another one.
pub(super) trait Medium: Send + Sync {
    fn len(&self) -> io::Result<u64>;
    fn read(&self, off: u64, into: &mut [u8]) -> io::Result<()>;
    fn write(&self, off: u64, bytes: &[u8]) -> io::Result<()>;
    fn cut(&self, len: u64) -> io::Result<()>;
    fn synchronise(&self) -> io::Result<()>;
}

impl Medium for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read(&self, off: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(into, off)
    }

    fn write(&self, off: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, off)
    }

    fn cut(&self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }

    fn synchronise(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// The file as the thread sees it that synchronises the journal.
pub(super) struct Synchronised {
    medium: Box<dyn Medium>,
    /// Bytes were written since the last synchronisation.
    is_dirty: AtomicBool,
    /// A synchronisation failed: pages may look written that are not.
    has_failed: AtomicBool,
}

impl Synchronised {
    /// Makes the bytes durable that were written before the call (F3).
    pub(super) fn synchronise(&self) {
        if self.is_dirty.swap(false, Ordering::AcqRel) && self.medium.synchronise().is_err() {
            // PERSIST(F4): the stamp is another one from now on. If this write fails, too, only the next
            // append helps, which drops all blocks.
            let _ = write_head(&*self.medium, 0, &[]);
            self.has_failed.store(true, Ordering::Release);
        }
    }
}

/// A change of the list of slots.
#[derive(Clone, Copy)]
enum Step {
    Added(u32),
    GivenUp(u32),
}

/// The open file.
pub(super) struct StreamFile {
    shared: Arc<Synchronised>,
    /// The slots of the blocks from the first byte on.
    slots: VecDeque<u32>,
    free: BTreeSet<u32>,
    /// Slots of the file, the head's included.
    file_slots: u32,
    /// The steps of the batch.
    steps: Vec<Step>,
    now: (Extent, u64),
    committed: (Extent, u64),
    buffer: Vec<u8>,
}

/// The name of the file of a pool.
pub(crate) fn path_beside(pool: &Path) -> PathBuf {
    let mut name = pool.as_os_str().to_owned();
    name.push(".backlog");
    PathBuf::from(name)
}

fn sum_of(before: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(before);
    hasher.update(bytes);
    hasher.finalize()
}

/// The head of a file: its stamp, and the boot in which it was opened.
fn read_head(medium: &dyn Medium) -> io::Result<Option<(u64, Vec<u8>)>> {
    let mut head = [0; HEAD_BYTES];
    if medium.len()? < HEAD_BYTES as u64 {
        let mut start = [0; MAGIC.len()];
        let is_empty = medium.len()? == 0;
        let is_ours = is_empty || medium.read(0, &mut start).is_ok() && start == *MAGIC;
        return if is_ours { Ok(None) } else { Err(foreign()) };
    }
    medium.read(0, &mut head)?;
    if head == [0; HEAD_BYTES] {
        // A failure of power left the file's length, and not its head.
        return Ok(None);
    }
    if head[..8] != *MAGIC {
        return Err(foreign());
    }
    let (bytes, sum) = head.split_at(HEAD_BYTES - 4);
    let len = usize::from(head[16]).min(BOOT_BYTES_MAX);
    let stamp = u64::from_le_bytes(std::array::from_fn(|i| head[8 + i]));
    Ok((sum_of(0, bytes).to_le_bytes() == *sum).then(|| (stamp, head[17..17 + len].to_vec())))
}

fn foreign() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the file is not a backlog; move it away")
}

fn write_head(medium: &dyn Medium, stamp: u64, boot: &[u8]) -> io::Result<()> {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(MAGIC);
    head[8..16].copy_from_slice(&stamp.to_le_bytes());
    let boot = &boot[..boot.len().min(BOOT_BYTES_MAX)];
    head[16] = boot.len() as u8;
    head[17..17 + boot.len()].copy_from_slice(boot);
    let sum = sum_of(0, &head[..HEAD_BYTES - 4]);
    head[HEAD_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
    medium.write(0, &head)
}

/// The number of a block, the sum before it, and the slot of the block before.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Lead {
    number: u64,
    sum: u32,
    slot_before: u32,
}

impl Lead {
    fn encode(self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.number.to_le_bytes());
        into.extend_from_slice(&self.sum.to_le_bytes());
        into.extend_from_slice(&self.slot_before.to_le_bytes());
    }

    fn read(medium: &dyn Medium, slot: u32) -> Option<Lead> {
        let mut bytes = [0; LEAD as usize];
        medium.read(u64::from(slot) * BLOCK, &mut bytes).ok()?;
        let short = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let number = u64::from_le_bytes(std::array::from_fn(|i| bytes[i]));
        Some(Lead { number, sum: short(8), slot_before: short(12) })
    }
}

/// The blocks of an extent that fit: their slots, and the first byte that they have.
struct Found {
    slots: VecDeque<u32>,
    first: u64,
}

/// Finds the blocks of an extent from the last one back, up to one that does not fit.
fn find_blocks(medium: &dyn Medium, extent: &Extent, end: u64, is_trusted: bool) -> Found {
    let mut found = Found { slots: VecDeque::new(), first: end };
    // The position may be one of another history.
    if extent.base.max(extent.first) >= end {
        return found;
    }
    let (mut number, mut slot) = ((end - 1 - extent.base) / PART, extent.slot);
    let first_number = (extent.first - extent.base) / PART;
    let (mut sum_behind, mut bytes) = (extent.sum, vec![0; PART as usize]);
    while let Some(lead) = Lead::read(medium, slot).filter(|lead| lead.number == number && slot > 0) {
        let begin = extent.base + number * PART;
        let is_checked = !is_trusted || number == first_number || found.slots.is_empty();
        if is_checked {
            let bytes = &mut bytes[..PART.min(end - begin) as usize];
            let read = medium.read(u64::from(slot) * BLOCK + LEAD, bytes);
            if read.is_err() || sum_of(lead.sum, bytes) != sum_behind {
                break;
            }
        }
        found.slots.push_front(slot);
        found.first = begin.max(extent.first);
        if number == first_number {
            break;
        }
        (number, slot, sum_behind) = (number - 1, lead.slot_before, lead.sum);
    }
    found
}

/// How many bytes of an extent the file has, for a check.
pub(super) fn kept_bytes(pool: &Path, extent: &Extent, end: u64) -> io::Result<u64> {
    let file = File::open(path_beside(pool))?;
    read_head(&file)?;
    Ok(end - find_blocks(&file, extent, end, false).first)
}

impl StreamFile {
    /// Opens the file of a pool, or makes it. `extent` is the pool's, if it has one.
    pub(super) fn open(pool: &Path, extent: Option<Extent>, end: u64, boot: &[u8]) -> io::Result<StreamFile> {
        let path = path_beside(pool);
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        StreamFile::over(Box::new(file.map_err(named)?), extent, end, boot).map_err(named)
    }

    pub(super) fn over(
        medium: Box<dyn Medium>,
        extent: Option<Extent>,
        end: u64,
        boot: &[u8],
    ) -> io::Result<StreamFile> {
        let head = read_head(&*medium)?;
        let file_slots = u32::try_from(medium.len()?.div_ceil(BLOCK)).unwrap_or(u32::MAX).max(1);
        let mut random = Random::new();
        let stamp = random.next();
        let mut found = Found { slots: VecDeque::new(), first: end };
        if let Some(extent) = &extent {
            let is_trusted = head.is_some_and(|(stamp, written_in)| {
                stamp == extent.stamp && written_in == boot && !boot.is_empty()
            });
            found = find_blocks(&*medium, extent, end, is_trusted);
            if is_trusted && found.first > extent.first {
                found = find_blocks(&*medium, extent, end, false);
            }
        }
        write_head(&*medium, stamp, boot)?;
        let extent = match extent {
            Some(extent) if !found.slots.is_empty() => Extent { first: found.first, stamp, ..extent },
            _ => fresh(end, stamp, random.next() as u32),
        };
        let mut free: BTreeSet<u32> = (1..file_slots).collect();
        found.slots.iter().for_each(|slot| _ = free.remove(slot));
        let shared =
            Synchronised { medium, is_dirty: AtomicBool::new(true), has_failed: AtomicBool::new(false) };
        let mut file = StreamFile {
            shared: Arc::new(shared),
            slots: found.slots,
            free,
            file_slots,
            steps: Vec::new(),
            now: (extent, end),
            committed: (extent, end),
            buffer: Vec::new(),
        };
        file.cut_spare();
        Ok(file)
    }

    pub(super) fn shared(&self) -> Arc<Synchronised> {
        self.shared.clone()
    }

    /// The extent as the batch has it.
    pub(super) fn extent(&self) -> Extent {
        self.now.0
    }

    /// From here on committed commands change nothing.
    pub(super) fn harmless_from(&self) -> u64 {
        self.committed.0.harmless
    }

    /// Adds the bytes up to an offset of the stream. The first `harmful` of them may change something.
    pub(super) fn append(&mut self, end: u64, bytes: &[u8], harmful: usize) -> io::Result<()> {
        if self.shared.has_failed.swap(false, Ordering::AcqRel) {
            return Err(io::Error::other("the device does not write the file"));
        }
        let start = end - bytes.len() as u64;
        if self.now.1 != start {
            self.clear(start);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let (extent, at) = self.now;
            let within = (at - extent.base) % PART;
            let (part, others) = rest.split_at(rest.len().min((PART - within) as usize));
            self.buffer.clear();
            let mut slot = extent.slot;
            let off = if within == 0 {
                let number = (at - extent.base) / PART;
                Lead { number, sum: extent.sum, slot_before: slot }.encode(&mut self.buffer);
                slot = self.take_slot()?;
                u64::from(slot) * BLOCK
            } else {
                u64::from(slot) * BLOCK + LEAD + within
            };
            self.buffer.extend_from_slice(part);
            self.shared.medium.write(off, &self.buffer)?;
            let extent = Extent { slot, sum: sum_of(extent.sum, part), ..extent };
            self.now = (extent, at + part.len() as u64);
            rest = others;
        }
        // ORDER: release, after the bytes were written.
        self.shared.is_dirty.store(true, Ordering::Release);
        if harmful > 0 {
            self.now.0.harmless = start + harmful as u64;
        }
        Ok(())
    }

    fn take_slot(&mut self) -> io::Result<u32> {
        let slot = match self.free.pop_first() {
            Some(slot) => slot,
            None => {
                let slot = self.file_slots;
                self.file_slots = slot.checked_add(1).ok_or(io::ErrorKind::FileTooLarge)?;
                slot
            }
        };
        self.slots.push_back(slot);
        self.steps.push(Step::Added(slot));
        Ok(slot)
    }

    /// Gives the oldest blocks up that end at `floor` or before, but never the last one. Returns the first
    /// byte that is kept.
    pub(super) fn trim(&mut self, floor: u64, added_bytes: usize) -> u64 {
        let most = TRIMMED_MAX + added_bytes / PART as usize;
        for _ in 0..most {
            let (extent, _) = &mut self.now;
            let block_end = extent.base + ((extent.first - extent.base) / PART + 1) * PART;
            if self.slots.len() <= 1 || block_end > floor {
                break;
            }
            extent.first = block_end;
            self.give_up_first();
        }
        self.now.0.first
    }

    fn give_up_first(&mut self) {
        if let Some(slot) = self.slots.pop_front() {
            self.steps.push(Step::GivenUp(slot));
        }
    }

    /// Drops all bytes. The next ones are those behind an offset.
    pub(super) fn clear(&mut self, offset: u64) {
        while !self.slots.is_empty() {
            self.give_up_first();
        }
        // A stream's sum goes on from that of the one before, and so differs from it, and from any other.
        let seed = sum_of(self.now.0.sum, &offset.to_le_bytes());
        self.now = (fresh(offset, self.now.0.stamp, seed), offset);
    }

    /// Notes the end of a commit.
    pub(super) fn note_end(&mut self, is_committed: bool) {
        if is_committed {
            // PERSIST(F2): only now.
            let given_up = self.steps.drain(..).filter_map(|step| match step {
                Step::GivenUp(slot) => Some(slot),
                Step::Added(_) => None,
            });
            self.free.extend(given_up);
            self.committed = self.now;
            return self.cut_spare();
        }
        while let Some(step) = self.steps.pop() {
            match step {
                Step::Added(slot) => {
                    self.slots.pop_back();
                    self.free.insert(slot);
                }
                Step::GivenUp(slot) => self.slots.push_front(slot),
            }
        }
        self.now = self.committed;
    }

    /// Cuts the file if the end of it is free and long.
    fn cut_spare(&mut self) {
        if self.free.len() < 2 * SPARE_SLOTS as usize + self.slots.len() {
            return;
        }
        let used = self.slots.iter().max().map_or(1, |slot| slot + 1);
        let wanted = used + SPARE_SLOTS;
        if wanted < self.file_slots && self.shared.medium.cut(u64::from(wanted) * BLOCK).is_ok() {
            self.free.split_off(&wanted);
            self.file_slots = wanted;
        }
    }

    /// Appends committed bytes from an offset on to `out`, up to `most`; returns the offset behind them.
    pub(super) fn read(&self, from: u64, most: usize, out: &mut Vec<u8>) -> io::Result<u64> {
        debug_assert!(self.steps.is_empty(), "the list of slots is that of the last commit");
        let (extent, end) = self.committed;
        let (mut at, end) = (from, end.min(from.saturating_add(most as u64)));
        let first_number = (extent.first - extent.base) / PART;
        while at < end && at >= extent.first {
            let (number, within) = ((at - extent.base) / PART, (at - extent.base) % PART);
            let Some(slot) = self.slots.get((number - first_number) as usize) else { break };
            let count = (PART - within).min(end - at) as usize;
            let start = out.len();
            out.resize(start + count, 0);
            self.shared.medium.read(u64::from(*slot) * BLOCK + LEAD + within, &mut out[start..])?;
            at += count as u64;
        }
        Ok(at)
    }
}

/// The extent of no bytes, whose sum begins with the seed.
fn fresh(offset: u64, stamp: u64, seed: u32) -> Extent {
    Extent { base: offset, first: offset, harmless: offset, stamp, slot: 0, sum: seed }
}
