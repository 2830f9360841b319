//! The length and the holes of the file where the region has none of its own: in the simulator of power
//! failures. The same steps as for a file in `grow.rs` and `shrink.rs` of the crate, in the same order.

use super::Journal;
use std::io;

impl Journal {
    /// Whether the file ends with its region, and can be cut with it: the ring lies in front of that.
    pub(crate) fn ends_with_region(&self, bytes: u64) -> bool {
        self.lock().ring.range_end_off() <= bytes
    }

    /// The file's length.
    pub(crate) fn file_bytes(&self) -> io::Result<u64> {
        self.medium.bytes()
    }

    /// Makes the file longer than the region, which has `old` bytes. Its length is on the device then (I7).
    pub(crate) fn extend(&self, old: u64, bytes: u64) -> io::Result<()> {
        // The remainder of a cut, or of growth, after a crash must read as zero.
        if self.ends_with_region(old) && self.medium.bytes()? > old {
            self.medium.cut(old)?;
        }
        self.medium.extend(bytes)?;
        self.medium.synchronise()
    }

    /// Makes the file shorter.
    pub(crate) fn cut(&self, bytes: u64) -> io::Result<()> {
        self.medium.cut(bytes)
    }

    /// Gives the space of a range back. The region shows zeros there. Returns whether it did.
    pub(crate) fn punch(&self, off: u64, bytes: u64) -> bool {
        let punched = self.medium.punch(off, bytes).is_ok();
        if let Some(pages) = self.pages.get().filter(|_| punched) {
            pages.show_hole(off, bytes);
        }
        punched
    }
}
