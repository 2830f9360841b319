//! The file under a journal.

use std::fs::File;
use std::io;
use std::sync::Arc;

use rustix::io::retry_on_intr;

/// The file under a journal, as far as the journal uses it. The simulator of power failures is another one.
pub trait Medium: Send + Sync {
    /// Its length.
    ///
    /// # Errors
    ///
    /// Failures of the system.
    fn bytes(&self) -> io::Result<u64>;

    /// Reads all of `into`.
    ///
    /// # Errors
    ///
    /// Failures of the system, and an end before that.
    fn read(&self, off: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes all of `bytes`, which a killed process does not lose.
    ///
    /// # Errors
    ///
    /// Failures of the system.
    fn write(&self, off: u64, bytes: &[u8]) -> io::Result<()>;

    /// As [`write`](Self::write), of bytes behind those of the last such call. `room` bytes from `off` on are
    /// of a part of the file that was written before, and will get the next ones.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    fn append(&self, off: u64, bytes: &[u8], _room: u64) -> io::Result<()> {
        self.write(off, bytes)
    }

    /// Waits until everything that was written before the call is on the device.
    ///
    /// # Errors
    ///
    /// Failures of the device. After one, it is unknown which bytes were written.
    fn synchronise(&self) -> io::Result<()>;

    /// Waits until the device has all earlier writes to a range. Writes to other ranges may be missing.
    ///
    /// # Errors
    ///
    /// As for [`synchronise`](Self::synchronise).
    fn synchronise_range(&self, off: u64, bytes: u64) -> io::Result<()>;

    /// Says that a range will be [synchronised](Self::synchronise_range) by itself. Nothing else is needed
    /// for that.
    fn prepare_range(&self, _off: u64, _bytes: u64) {}

    /// Makes the file longer, with zeros in its new part. Only a medium without a file of its region needs
    /// this, [`cut`](Self::cut) and [`punch`](Self::punch): others change with the region.
    ///
    /// # Errors
    ///
    /// Failures of the system.
    fn extend(&self, bytes: u64) -> io::Result<()> {
        Err(io::Error::other(format!("a medium that does not grow, to {bytes} bytes")))
    }

    /// Makes the file shorter.
    ///
    /// # Errors
    ///
    /// Failures of the system.
    fn cut(&self, bytes: u64) -> io::Result<()> {
        Err(io::Error::other(format!("a medium that is not cut, to {bytes} bytes")))
    }

    /// Gives the space of a range back, which reads as zero afterwards.
    ///
    /// # Errors
    ///
    /// Failures of the system.
    fn punch(&self, off: u64, bytes: u64) -> io::Result<()> {
        Err(io::Error::other(format!("a medium without holes, of {bytes} bytes at {off}")))
    }
}

/// Reads, writes and synchronisations are system calls without the C library, whose functions of these names
/// are points at which a thread of a C program can be cancelled.
impl Medium for File {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read(&self, off: u64, into: &mut [u8]) -> io::Result<()> {
        let (mut rest, mut at) = (into, off);
        while !rest.is_empty() {
            let count = retry_on_intr(|| rustix::io::pread(self, &mut *rest, at))?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            (rest, at) = (&mut rest[count..], at + count as u64);
        }
        Ok(())
    }

    fn write(&self, off: u64, bytes: &[u8]) -> io::Result<()> {
        let (mut rest, mut at) = (bytes, off);
        while !rest.is_empty() {
            let written = retry_on_intr(|| rustix::io::pwrite(self, rest, at))?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            (rest, at) = (&rest[written..], at + written as u64);
        }
        Ok(())
    }

    fn synchronise(&self) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::fdatasync(self))?)
    }

    fn synchronise_range(&self, _: u64, _: u64) -> io::Result<()> {
        self.synchronise()
    }
}

impl<M: Medium> Medium for Arc<M> {
    fn bytes(&self) -> io::Result<u64> {
        (**self).bytes()
    }

    fn read(&self, off: u64, into: &mut [u8]) -> io::Result<()> {
        (**self).read(off, into)
    }

    fn write(&self, off: u64, bytes: &[u8]) -> io::Result<()> {
        (**self).write(off, bytes)
    }

    fn synchronise(&self) -> io::Result<()> {
        (**self).synchronise()
    }

    fn synchronise_range(&self, off: u64, bytes: u64) -> io::Result<()> {
        (**self).synchronise_range(off, bytes)
    }

    fn prepare_range(&self, off: u64, bytes: u64) {
        (**self).prepare_range(off, bytes);
    }
}
