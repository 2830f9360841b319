//! The memory of the paper's trees, as a trait, so that the same code runs on the real machine and in the
//! model.
//!
//! Memory is words at aligned byte offsets. Everything that a tree reads or writes of its nodes, its log and
//! its keys goes through a [`Mem`], which is a type parameter, so that over a [`RealMem`] the accesses are
//! plain loads and stores. An access outside the memory or off a word's boundary is a bug of the tree, and
//! panics.

use crate::nvm::Site;
use tembo_pmem::{
    Access, Counts, Durability, LINE_BYTES, Region, RegionError, RegionOptions, WORD_BYTES, snapshot,
};

/// Memory that a tree lives in.
///
/// The methods take `&self`, since a tree's searches do; an implementation that keeps account uses cells.
pub trait Mem {
    /// How many bytes there are; offsets go from 0 to this.
    fn len_bytes(&self) -> u64;

    /// Loads the word at `off`, a multiple of 8.
    fn load_u64(&self, off: u64) -> u64;

    /// Stores the word at `off`, a multiple of 8. Durable after a flush of its line and a fence.
    fn store_u64(&self, off: u64, value: u64);

    /// Starts the write-back of each line of `bytes` bytes at `off`.
    fn flush(&self, off: u64, bytes: u64);

    /// Waits until what was flushed is durable. The paper's `mfence`; on the real machine an `sfence`.
    fn fence(&self);

    /// Asks for each line of `bytes` bytes at `off`, all at once, before they are read. Changes nothing.
    fn prefetch(&self, off: u64, bytes: u64);

    /// Says that the tree now computes for about `instructions` instructions, for models that count time. On
    /// the real machine the instructions themselves take it.
    #[inline(always)]
    fn compute(&self, instructions: u32) {
        let _ = instructions;
    }

    /// Says that the tree comes to a branch that depends on data, and where it goes, for models that count
    /// time.
    #[inline(always)]
    fn branch(&self, site: Site, taken: bool) {
        let _ = (site, taken);
    }

    /// The words stored, lines flushed and fences of this thread so far.
    fn counts(&self) -> Counts;

    /// Loads the byte at `off` by way of its word.
    #[inline(always)]
    fn load_u8(&self, off: u64) -> u8 {
        (self.load_u64(off & !(WORD_BYTES - 1)) >> (off % WORD_BYTES * 8)) as u8
    }
}

/// A region as memory: on the real machine in the `Emulated` domain, without flushes in `PageCache`, and in
/// the crash simulator.
#[derive(Debug)]
pub struct RealMem {
    region: Region,
}

impl RealMem {
    /// Uses a region that the caller made.
    pub fn new(region: Region) -> RealMem {
        RealMem { region }
    }

    /// `bytes` bytes of zeros in a nameless file on a memory file system (or among the temporary files, where
    /// there is none). [`Durability::Emulated`] flushes and fences as on NVM, [`Durability::PageCache`] does
    /// not. With `count`, [`counts`](Mem::counts) advances, which costs time; without, it stays.
    ///
    /// # Errors
    ///
    /// [`RegionError`] when there is no room, or no flush instruction.
    pub fn anonymous(bytes: u64, durability: Durability, count: bool) -> Result<RealMem, RegionError> {
        let shared = std::path::Path::new("/dev/shm");
        let folder = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
        let file = tempfile::tempfile_in(folder)
            .map_err(|source| RegionError::Io { what: "making a file for the benchmark", source })?;
        let options = RegionOptions { durability, max_bytes: Some(bytes), count, ..RegionOptions::default() };
        Region::allocate_new_file(&file, bytes, &options)?;
        Region::map_file(file, bytes, &options, Access::ReadWrite).map(RealMem::new)
    }

    /// The region.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Gives the region back.
    pub fn into_region(self) -> Region {
        self.region
    }
}

#[cold]
#[inline(never)]
fn bad_access(off: u64) -> ! {
    panic!("a tree accessed the word at {off:#x}, which is not there or not aligned");
}

impl Mem for RealMem {
    fn len_bytes(&self) -> u64 {
        self.region.len()
    }

    #[inline(always)]
    fn load_u64(&self, off: u64) -> u64 {
        match self.region.load_u64(off) {
            Ok(word) => word,
            Err(_) => bad_access(off),
        }
    }

    #[inline(always)]
    fn store_u64(&self, off: u64, value: u64) {
        if self.region.store_u64(off, value).is_err() {
            bad_access(off);
        }
    }

    #[inline(always)]
    fn flush(&self, off: u64, bytes: u64) {
        self.region.flush(off, bytes);
    }

    #[inline(always)]
    fn fence(&self) {
        self.region.fence().expect("memory that is not synchronised with a device has no failing fence");
    }

    #[inline(always)]
    fn prefetch(&self, off: u64, bytes: u64) {
        let mut at = off;
        while at < off + bytes {
            self.region.prefetch(at);
            at += LINE_BYTES;
        }
    }

    fn counts(&self) -> Counts {
        snapshot()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_bytes_and_counts_are_the_regions() {
        let mem = RealMem::new(Region::simulated(&[0; 4096], 4096, None).unwrap());
        let before = mem.counts();
        mem.store_u64(64, 0x1122_3344_5566_7788);
        mem.flush(60, 8);
        mem.fence();
        assert_eq!(mem.counts() - before, Counts { words: 1, lines: 2, fences: 1 });
        assert_eq!(mem.load_u64(64), 0x1122_3344_5566_7788);
        assert_eq!((mem.load_u8(64), mem.load_u8(71), mem.load_u8(72)), (0x88, 0x11, 0));
        assert_eq!(mem.len_bytes(), 4096);
    }

    #[test]
    fn anonymous_memory_is_zero_and_counts_when_asked() {
        for count in [false, true] {
            let mem = RealMem::anonymous(1 << 16, Durability::PageCache, count).unwrap();
            let before = mem.counts();
            assert_eq!(mem.load_u64((1 << 16) - 8), 0);
            mem.store_u64(8, 1);
            assert_eq!((mem.counts() - before).words, u64::from(count));
        }
    }

    #[test]
    #[should_panic(expected = "not there")]
    fn an_access_outside_is_a_panic() {
        RealMem::new(Region::simulated(&[0; 4096], 4096, None).unwrap()).load_u64(4096);
    }
}
