//! How the pool was last used: whether it was closed, and if not, in which domain, boot and file it was open.
//!
//! The page cache keeps every store of a killed process. After a power failure or a crash of the system, each
//! page is as it was last written back: pages of different ages come together, and no record can repair that.
//! No program may read such a pool unknowingly. The same holds for a copy that was made while the pool was
//! open.
//!
//! # Media layout
//! `PmHeader::opening`, one word with a check, in a line of its own: bits 0 to 2 say how the pool was mapped
//! ([`Kind`]), bit 3 whether it is open. If it is, bits 4 to 15 are a hash of the file's inode, bits 16 to 23
//! one of its device, bits 24 to 47 one of the boot's id (`/proc/sys/kernel/random/boot_id`), never 0 unless
//! that cannot be read. A word that is 0 says nothing: versions before this one left it so.
//! # Invariants
//! - O1: the word says *open*, durably, before any other store of an opening for writing, except those of the
//!   feature bits.
//! - O2: all stores of an opening are durable before the word says *closed*.
//! - O3: all stores of earlier openings are on the device before the word says *open* in a domain that
//!   outlives boots.
//! # Commit point
//! The store of the word. It is aligned, so it cannot be torn. A value other than 0 whose check does not
//! match is damage.
//!
//! In a domain with a journal the word is written home each time, so that the file itself says *open*. The
//! state of such a pool is the file with its journal: a copy that is made meanwhile has neither.
//!
//! An opening of a closed pool waits for one synchronisation in such a domain, of the whole file (O3), and
//! goes on in the ring without records. The word is the first line of its first record (O1), and is shown at
//! home at once, for copies, before the device has either. A power failure leaves *closed* or *open* there,
//! and in both cases what the closing left, up to the moment at which the device has the record, with *open*.
//!
//! An opening that resumes the journal of a killed process finds *open* in its own kind, boot and file, at
//! home too, and stores nothing: O1 and O3 held for the word that it finds. It synchronises the whole file
//! before anything of it counts as durable (`tembo_pmem::journal`).
//! # Recovery
//! Cut before the store of *open* is durable: the pool is as it was, and has the old word. Cut before the
//! store of *closed* is durable: the word says *open* although the pool is intact. That costs a check and
//! loses nothing.
//! # Concurrency
//! Only the holder of the file's exclusive lock stores the word. Opening for reading only stores nothing.

use crate::ending::Ending;
use crate::layout::{PmHeader, seal, unseal};
use crate::{Error, ErrorKind, Result};
use rustix::fs::fstat;
use std::fs::File;
use std::path::{Path, PathBuf};
use tembo_pmem::{Domain, Region, SyncError, is_in_memory, offset_of};
use xxhash_rust::xxh3::xxh3_64;

pub(crate) const OPENING_OFF: u64 = offset_of!(PmHeader, opening) as u64;
/// Bits of the word's value; the others are its check.
const OPENING_BITS: u32 = 48;
const OPEN: u64 = 1 << 3;
const FILE_SHIFT: u32 = 4;
const FILE_BITS: u32 = 20;
/// The low bits of these are a hash of the inode, the others one of the device.
const INODE_BITS: u32 = 12;
const BOOT_SHIFT: u32 = FILE_SHIFT + FILE_BITS;
const BOOT_BITS: u32 = OPENING_BITS - BOOT_SHIFT;

/// How a file is mapped, as the word has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Persistent memory.
    Dax = 1,
    Synced = 2,
    /// The page cache of a disk.
    PageCache = 3,
    Emulated = 4,
    /// A file system in memory (tmpfs), whose files do not outlive the boot.
    Memory = 5,
    /// A disk, with a journal.
    Journal = 6,
}

impl Kind {
    const ALL: [Kind; 6] =
        [Kind::Dax, Kind::Synced, Kind::PageCache, Kind::Emulated, Kind::Memory, Kind::Journal];

    /// Whether durable stores in it outlive this boot.
    fn outlives_boots(self) -> bool {
        matches!(self, Kind::Dax | Kind::Synced | Kind::Journal)
    }
}

/// The circumstances of an opening: the file and the boot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Here {
    /// A hash of the boot's id; 0 if that cannot be read.
    boot: u64,
    file: u64,
    in_memory: bool,
}

impl Here {
    /// Looks at the file and the system.
    pub(crate) fn of(file: &File, path: &Path) -> Result<Here> {
        let failed = |e| Error::io("looking at", path, e);
        let found = fstat(file).map_err(failed)?;
        let hash = |number: u64, bits: u32| xxh3_64(&number.to_le_bytes()) & ((1 << bits) - 1);
        Ok(Here {
            boot: std::fs::read("/proc/sys/kernel/random/boot_id").map_or(0, |id| boot_hash(&id)),
            file: hash(found.st_ino, INODE_BITS) | hash(found.st_dev, FILE_BITS - INODE_BITS) << INODE_BITS,
            in_memory: is_in_memory(file).map_err(failed)?,
        })
    }

    /// How the pool's last use ended, given its word and the present circumstances.
    pub(crate) fn judge(&self, word: u64) -> Result<Ending> {
        if word == 0 {
            return Ok(Ending::Unknown);
        }
        let damaged =
            || ErrorKind::HeaderDamaged { what: format!("the word of its last opening is {word:#x}") };
        let said = unseal(word, OPENING_BITS).ok_or_else(damaged)?;
        let kind = Kind::ALL.into_iter().find(|kind| *kind as u64 == said & 7).ok_or_else(damaged)?;
        if said & OPEN == 0 {
            return Ok(Ending::Closed);
        }
        let (boot, file) = (said >> BOOT_SHIFT, said >> FILE_SHIFT & ((1 << FILE_BITS) - 1));
        // An unknown boot counts as another one.
        let is_this_boot = boot != 0 && boot == self.boot;
        // A device may have another number in another boot.
        let compared = if is_this_boot { (1 << FILE_BITS) - 1 } else { (1 << INODE_BITS) - 1 };
        Ok(match (is_this_boot, (file ^ self.file) & compared == 0) {
            (true, true) => Ending::Killed,
            (true, false) => Ending::Copy,
            (false, false) if kind.outlives_boots() => Ending::Copy,
            (false, _) if kind.outlives_boots() => Ending::Killed,
            // A pool that lay in a file system in memory in another boot can only be a copy.
            (false, _) if kind == Kind::Memory => Ending::Copy,
            (false, _) => Ending::OtherBoot,
        })
    }

    /// Whether the word is that of a pool which is, or was until a kill, open in this boot, with a journal in
    /// this very file.
    pub(crate) fn is_left_with_journal(&self, word: u64) -> bool {
        self.boot != 0 && word == self.open_word(Kind::Journal)
    }

    /// The word of a pool that is open under these circumstances.
    fn open_word(&self, kind: Kind) -> u64 {
        seal(kind as u64 | OPEN | self.file << FILE_SHIFT | self.boot << BOOT_SHIFT, OPENING_BITS)
    }
}

/// The low bits of a boot id's hash; never 0.
fn boot_hash(id: &[u8]) -> u64 {
    (xxh3_64(id.trim_ascii()) & ((1 << BOOT_BITS) - 1)).max(1)
}

/// The file that an opening for writing finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// A new one.
    New,
    /// One whose pages may be in the page cache only.
    Left,
    /// One that was closed, and that the opening of its journal has synchronised.
    Synchronised,
}

/// An opening for writing, which is to be marked as closed.
#[derive(Debug)]
pub(crate) struct Opening {
    kind: Kind,
}

impl Opening {
    /// Stores that the pool is open, durably, unless the file is new: that is synchronised as a whole after
    /// this.
    pub(crate) fn mark_open(region: &Region, here: Here, found: Found) -> Result<Opening> {
        let kind = match region.domain() {
            Domain::Dax | Domain::DaxCpuCache => Kind::Dax,
            Domain::Synced => Kind::Synced,
            Domain::Journaled | Domain::Relaxed => Kind::Journal,
            _ if here.in_memory => Kind::Memory,
            Domain::Emulated => Kind::Emulated,
            Domain::PageCache | Domain::Simulated => Kind::PageCache,
        };
        let opening = Opening { kind };
        if kind.outlives_boots() && found == Found::Left {
            // PERSIST(O3): an opening in the page cache that was not closed, or a copy of the file, may have
            // left pages that are on no device.
            synchronise(region)?;
        }
        region.store_u64(OPENING_OFF, here.open_word(kind))?;
        match found {
            Found::Synchronised => {
                // PERSIST(O1): in the first record, and so before anything else of this opening.
                region.persist(OPENING_OFF, 8)?;
                region.show_at_home(OPENING_OFF)?;
            }
            Found::New if kind != Kind::Dax => {}
            Found::New | Found::Left => opening.persist_word(region)?,
        }
        Ok(opening)
    }

    /// The opening that resumes a journal, of a pool that is already marked as open.
    pub(crate) fn resumed() -> Opening {
        Opening { kind: Kind::Journal }
    }

    /// Marks the pool as closed, after synchronising everything.
    pub(crate) fn mark_closed(&self, region: &Region) -> Result<()> {
        if matches!(self.kind, Kind::PageCache | Kind::Emulated | Kind::Journal) {
            // PERSIST(O2): all pages are on the device before the word says *closed*. In the other domains
            // each fence has done that, or there is no device.
            synchronise(region)?;
        }
        region.store_u64(OPENING_OFF, seal(self.kind as u64, OPENING_BITS))?;
        Ok(self.persist_word(region)?)
    }

    fn persist_word(&self, region: &Region) -> Result<(), SyncError> {
        // PERSIST(O1): *open* is durable in the domain before anything else is stored, and *closed* after
        // everything else (O2).
        region.persist(OPENING_OFF, 8)?;
        match self.kind {
            // A fence does not reach the device in these domains, but the word has to survive a power
            // failure.
            Kind::PageCache | Kind::Emulated => region.synchronise_pages(OPENING_OFF, 8),
            // Until its record is written back, the word of the file itself would be the old one: a copy of
            // the open file would look closed.
            Kind::Journal => region.synchronise_pages(OPENING_OFF, 8),
            Kind::Dax | Kind::Synced | Kind::Memory => Ok(()),
        }
    }
}

/// Writes the whole file back to its device.
fn synchronise(region: &Region) -> Result<(), SyncError> {
    #[cfg(test)]
    tests::note_synchronisation(region);
    region.synchronise_file()
}

/// How a pool was opened.
#[derive(Debug)]
pub(crate) struct Opened {
    pub read_only: bool,
    pub path: Option<PathBuf>,
    /// How its last use had ended.
    pub ending: Ending,
    /// The number of lines of which the journal had newer contents at the opening, if the pool has a journal.
    pub journal_lines: Option<u64>,
    /// The circumstances of an opening for writing that is not marked yet; it must be marked before anything
    /// else is stored.
    pub to_mark: Option<(Here, Found)>,
    /// The opening of a file that is marked as open.
    pub opening: Option<Opening>,
}

impl Default for Opened {
    fn default() -> Opened {
        Opened {
            read_only: false,
            path: None,
            ending: Ending::Unknown,
            journal_lines: None,
            to_mark: None,
            opening: None,
        }
    }
}

/// For tests: the word as it would be after `boots` other boots, or in another file.
#[cfg(test)]
pub(crate) fn moved(word: u64, boots: u64, files: u64) -> u64 {
    let said = unseal(word, OPENING_BITS).expect("a word of this version");
    seal(said ^ files << FILE_SHIFT ^ boots << BOOT_SHIFT, OPENING_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;
    use crate::tests::tiny_options;
    use std::cell::RefCell;
    use tembo_pmem::Durability;

    thread_local! {
        /// The word of the opening at each synchronisation of a whole file by this thread.
        static SYNCHRONISED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn note_synchronisation(region: &Region) {
        SYNCHRONISED.with_borrow_mut(|words| words.push(region.load_u64(OPENING_OFF).unwrap()));
    }

    /// O3 and O2: the file is synchronised before the word changes.
    #[test]
    fn a_file_is_synchronised_before_its_word_promises_more() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.pool");
        let word_of =
            |image: &[u8]| u64::from_le_bytes(image[OPENING_OFF as usize..][..8].try_into().unwrap());
        let image = || std::fs::read(&path).unwrap();
        let options = |durability| tiny_options().durability(durability);
        let pool = Pool::open(&path, &options(Durability::PageCache)).unwrap();
        let killed = image();
        drop(pool);
        let closed = image();
        let mut before_the_word = closed.clone();
        before_the_word[OPENING_OFF as usize..][..8].fill(0);
        let cases = [
            (Durability::Synced, &killed, 1),
            (Durability::Synced, &before_the_word, 1),
            (Durability::Synced, &closed, 1),
            (Durability::PageCache, &killed, 0),
            (Durability::Emulated, &killed, 0),
        ];
        for (durability, last, expected) in cases {
            std::fs::write(&path, last).unwrap();
            SYNCHRONISED.take();
            let pool = Pool::open(&path, &options(durability)).unwrap();
            // The old word is still there: its promise holds until the file is synchronised.
            assert_eq!(SYNCHRONISED.take(), vec![word_of(last); expected], "{durability:?}");
            let open = word_of(&image());
            let is_in_memory = unseal(open, OPENING_BITS).unwrap() & 7 == Kind::Memory as u64;
            drop(pool);
            let at_closing = usize::from(durability != Durability::Synced && !is_in_memory);
            assert_eq!(SYNCHRONISED.take(), vec![open; at_closing], "{durability:?} closed");
        }
    }

    const HERE: Here = Here { boot: 7, file: 9, in_memory: false };

    #[test]
    fn what_the_word_says_depends_on_kind_boot_and_file() {
        let endings = |kind| {
            let word = HERE.open_word(kind);
            [(0, 0), (1, 0), (0, 1), (1, 1)].map(|(b, f)| HERE.judge(moved(word, b, f)).unwrap())
        };
        use Ending::{Copy, Killed, OtherBoot};
        assert_eq!(endings(Kind::PageCache), [Killed, OtherBoot, Copy, OtherBoot]);
        assert_eq!(endings(Kind::Emulated), [Killed, OtherBoot, Copy, OtherBoot]);
        assert_eq!(endings(Kind::Memory), [Killed, Copy, Copy, Copy]);
        assert_eq!(endings(Kind::Synced), [Killed, Killed, Copy, Copy]);
        assert_eq!(endings(Kind::Dax), [Killed, Killed, Copy, Copy]);
        assert_eq!(endings(Kind::Journal), [Killed, Killed, Copy, Copy]);
        // The device has another number in another boot.
        let moved_device =
            |boots| HERE.judge(moved(HERE.open_word(Kind::Synced), boots, 1 << INODE_BITS)).unwrap();
        assert_eq!([0, 1].map(moved_device), [Copy, Killed]);
        for kind in Kind::ALL {
            let closed = seal(kind as u64, OPENING_BITS);
            assert_eq!(HERE.judge(closed).unwrap(), Ending::Closed, "{kind:?} is closed anywhere");
        }
        assert_eq!(HERE.judge(0).unwrap(), Ending::Unknown);
    }

    #[test]
    fn a_boot_that_cannot_be_told_is_another_one() {
        let nowhere = Here { boot: 0, ..HERE };
        let word = nowhere.open_word(Kind::PageCache);
        assert_eq!(nowhere.judge(word).unwrap(), Ending::OtherBoot);
        assert_eq!(HERE.judge(word).unwrap(), Ending::OtherBoot);
        assert_eq!(nowhere.judge(HERE.open_word(Kind::PageCache)).unwrap(), Ending::OtherBoot);
    }

    #[test]
    fn a_word_with_any_flipped_bit_is_damage() {
        let word = HERE.open_word(Kind::PageCache);
        for bit in 0..64 {
            assert!(
                matches!(HERE.judge(word ^ 1 << bit), Err(e) if matches!(e.kind(), ErrorKind::HeaderDamaged { .. })),
                "bit {bit}"
            );
        }
        assert!(
            matches!(HERE.judge(seal(7, OPENING_BITS)), Err(e) if matches!(e.kind(), ErrorKind::HeaderDamaged { .. })),
            "no kind"
        );
    }

    #[test]
    fn the_boot_of_this_machine_is_known() {
        let file = tempfile::tempfile().unwrap();
        let here = Here::of(&file, Path::new("a")).unwrap();
        assert_ne!(here.boot, 0);
        assert_eq!(boot_hash(b"some id\n"), boot_hash(b"some id"));
    }
}
