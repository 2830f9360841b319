//! Opening a pool in a domain that needs a journal, and giving it one.
//!
//! The journal is a block of the pool, an extent, to which a word of the header leads. It is made while the
//! pool is open in the page cache, before the first such opening, and stays. Its ring begins with a part of
//! the block, and the rest of the block has no space in the file system before the ring grows into it. The
//! file's lock is held from the one opening to the next: no other process can open the pool between them.

use crate::feature::Feature;
use crate::file::header::{self, Header, seed_of};
use crate::file::options::Options;
use crate::inner::Pool;
use crate::layout::{JOURNAL_BITS, JOURNAL_OFF, PAGE_BYTES, unseal};
use crate::{Ending, ErrorKind, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use tembo_pmem::journal::{Journal, JournalPlace, JournalStats, RING_MIN_BYTES};
use tembo_pmem::{Domain, Durability, Region, is_in_memory};

/// Bytes up to which a journal grows, where the pool's maximum allows that.
const USUAL_BYTES: u64 = 256 << 20;
/// Bytes of the journal at first.
const FIRST_BYTES: u64 = 4 << 20;
/// The journal takes at most this part of the pool's maximum.
const PART_OF_MAXIMUM: u64 = 8;

impl Pool {
    /// As [`open`](Pool::open), in a domain with a journal.
    pub(crate) fn open_journaled(path: &Path, options: &Options) -> Result<Pool> {
        if !options.create_new && has_journal(path) {
            let file = header::open_file(path, false)?;
            return Pool::open_locked(file, path, &existing(options), None);
        }
        let pool = Pool::open_simply(path, &without_journal(options))?;
        pool.add_journal_and_open(path, options)
    }

    /// As [`open`](Pool::open), but the medium decides about the journal: a pool on a disk has one, if there
    /// is room.
    pub(crate) fn open_by_medium(path: &Path, options: &Options) -> Result<Pool> {
        if !options.create_new && has_journal(path) {
            let file = header::open_file(path, false)?;
            if is_on_disk(&file) {
                return Pool::open_locked(file, path, &on_disk(&existing(options)), None);
            }
        }
        Pool::open_simply(path, options)?.with_journal_on_disk(path, options)
    }

    /// Opens a pool again, with a journal, if it has none yet, lies on a disk, and has room for a journal.
    pub(crate) fn with_journal_on_disk(self, path: &Path, options: &Options) -> Result<Pool> {
        let is_in_page_cache = self.region().domain() == Domain::PageCache;
        if !is_in_page_cache || !self.region().file().is_some_and(is_on_disk) {
            return Ok(self);
        }
        // Looking for space that was used would take time with the pool's size, at each opening.
        if !self.has_room_for_journal(options).unwrap_or(false) {
            return Ok(self);
        }
        match self.add_journal(options) {
            Err(e) if e.is_full() || matches!(e.kind(), ErrorKind::Options { .. }) => Ok(self),
            Err(e) => Err(e),
            Ok(()) => self.add_journal_and_open(path, &on_disk(options)),
        }
    }

    /// As [`create_in_file`](Pool::create_in_file), in a domain with a journal.
    pub(crate) fn create_journaled_in_file(file: &File, path: &Path, options: &Options) -> Result<Pool> {
        let pool = Pool::create_in_file(file, path, &without_journal(options))?;
        pool.add_journal_and_open(path, options)
    }

    /// Makes a journal in a pool, closes the pool, and opens it with the journal.
    fn add_journal_and_open(self, path: &Path, options: &Options) -> Result<Pool> {
        let ending: Ending = self.last_ending();
        self.add_journal(options)?;
        let failed = |e| crate::Error::io("opening", path, e);
        let file = self.region().keep_lock().map_err(failed)?;
        drop(self);
        let file = match file {
            Some(file) => file,
            None => header::open_file(path, false)?,
        };
        Pool::open_locked(file, path, &existing(options), Some(ending))
    }

    /// Allocates and formats a journal, unless there is one.
    pub(crate) fn add_journal(&self, options: &Options) -> Result<()> {
        if self.journal_off()?.is_some() {
            return Ok(());
        }
        let most_bytes = self.journal_bytes(options)?;
        // A length that the caller chose is allocated from the beginning.
        let bytes = if options.journal_bytes.is_some() { most_bytes } else { most_bytes.min(FIRST_BYTES) };
        let mut lane = self.lane()?;
        let mut tx = lane.begin();
        let off = tx.alloc(most_bytes)?;
        if !off.is_multiple_of(PAGE_BYTES) {
            let what = format!("a journal of {most_bytes} bytes is too small for this pool");
            return Err(ErrorKind::Options { what }.into());
        }
        self.region().format_journal(JournalPlace { off, seed: seed_of(self.uuid()) }, bytes, most_bytes)?;
        self.enable(Feature::Journal)?;
        tx.set_journal(off)?;
        tx.commit()
    }

    /// The length up to which the journal may grow.
    fn journal_bytes(&self, options: &Options) -> Result<u64> {
        let usual = options.max_bytes.map_or(USUAL_BYTES, |most| USUAL_BYTES.min(most / PART_OF_MAXIMUM));
        let bytes = options.journal_bytes.unwrap_or(usual.max(RING_MIN_BYTES));
        if bytes < RING_MIN_BYTES || bytes > self.max_block_bytes() {
            let (least, most) = (RING_MIN_BYTES, self.max_block_bytes());
            let what = format!("a journal of this pool has {least} to {most} bytes, not {bytes}");
            return Err(ErrorKind::Options { what }.into());
        }
        Ok(bytes.next_multiple_of(PAGE_BYTES).min(self.max_block_bytes() & !(PAGE_BYTES - 1)))
    }

    /// Where the journal lies, if there is one.
    pub(crate) fn journal_off(&self) -> Result<Option<u64>> {
        match self.region().load_u64(JOURNAL_OFF)? {
            0 => Ok(None),
            word => unseal(word, JOURNAL_BITS).map(Some).ok_or_else(|| {
                let what = format!("the place of its journal is {word:#x}");
                ErrorKind::HeaderDamaged { what }.into()
            }),
        }
    }

    /// Writes the journal's records home, if the pool has a journal, so that a later write-back under a lock
    /// is short.
    pub(crate) fn write_journal_home(&self) -> Result<()> {
        /// Records that others wait for.
        const LEFT_BYTES: u64 = 1 << 20;
        let Some(journal) = self.journal() else { return Ok(()) };
        for _ in 0..3 {
            journal.write_all_back()?;
            if journal.stats().used_bytes < LEFT_BYTES {
                break;
            }
        }
        Ok(())
    }

    /// Whether the pool can have a journal. The space that was never used and the space by which the pool may
    /// grow count.
    fn has_room_for_journal(&self, options: &Options) -> Result<bool> {
        let stats = self.stats();
        let room = stats.max_bytes.saturating_sub(stats.pool_bytes) + stats.unused_bytes;
        Ok(self.journal_off()?.is_some() || room >= self.journal_bytes(options)?)
    }

    /// The number of lines of which the journal had newer contents than the rest of the file when the pool
    /// was opened, each as often as it was recorded if it was opened for writing; `None` if it had no
    /// journal.
    pub fn journal_lines(&self) -> Option<u64> {
        self.inner.opened.journal_lines
    }

    /// The journal, if the pool is open in a domain that has one.
    pub fn journal(&self) -> Option<&Journal> {
        self.region().journal()
    }

    /// The state of the journal, if the pool is open in a domain that has one.
    pub fn journal_stats(&self) -> Option<JournalStats> {
        self.region().journal_stats()
    }
}

/// Whether the file is a pool with a journal. An unreadable file is opened in the usual way, which reports
/// the reason.
fn has_journal(path: &Path) -> bool {
    let Ok(file) = header::open_file(path, false) else { return false };
    let mut page = vec![0; PAGE_BYTES as usize];
    let Ok(length) = file.metadata().map(|found| found.len()) else { return false };
    file.read_exact_at(&mut page, 0).is_ok()
        && Header::parse(&page, length).is_ok_and(|header| header.journal.is_some())
}

/// Whether a file lies on a disk: neither in memory, nor in persistent memory.
fn is_on_disk(file: &File) -> bool {
    !is_in_memory(file).unwrap_or(true) && !Region::is_dax(file)
}

/// The durability of a pool on a disk.
fn on_disk(options: &Options) -> Options {
    options.clone().durability(Durability::ON_DISK)
}

/// For the opening that makes the journal.
fn without_journal(options: &Options) -> Options {
    let mut options = options.clone();
    options.region.durability = Durability::PageCache;
    (options.region.prefault, options.region.huge_pages) = (false, false);
    options
}

/// For the opening after that.
fn existing(options: &Options) -> Options {
    Options { create: false, create_new: false, ..options.clone() }
}
