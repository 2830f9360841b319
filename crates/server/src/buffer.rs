//! A connection's input and output.
//!
//! A buffer is lent to a connection while it holds bytes and taken back when it is empty, so that idle clients cost
//! no buffers and busy ones share few, which stay in the processor's cache.

use std::io::{self, Read, Write};

/// Bytes that one read asks for, and the size of a lent input buffer.
pub(crate) const READ_BYTES: usize = 64 << 10;
/// Larger buffers are not kept when they are empty.
const KEPT_BYTES: usize = 64 << 10;
/// Most empty buffers that are kept, of each kind.
const KEPT_BUFFERS: usize = 64;
/// One write call is given no more than this, so that a large reply does not hold up a turn.
const WRITE_BYTES: usize = 1 << 20;

/// Empty buffers.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    /// Of [`READ_BYTES`], initialised.
    inputs: Vec<Vec<u8>>,
    outputs: Vec<Vec<u8>>,
}

/// Bytes received and not yet understood.
#[derive(Debug, Default)]
pub(crate) struct Input {
    /// Initialised throughout; the bytes that count are `start..end`.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

/// What one read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// So many bytes, and there may be more.
    More(usize),
    /// So many bytes, and for now no more.
    Drained(usize),
    /// The client will send no more.
    Closed,
}

impl Input {
    pub(crate) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(crate) fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        debug_assert!(self.start <= self.end);
    }

    /// Memory held.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Reads once from `source`. `needed` is how many bytes the request under way lacks.
    pub(crate) fn fill(
        &mut self,
        source: &mut impl Read,
        needed: usize,
        pool: &mut BufferPool,
    ) -> io::Result<Filled> {
        self.make_room(needed, pool);
        let room = &mut self.bytes[self.end..];
        let asked = room.len();
        loop {
            match source.read(room) {
                Ok(0) => return Ok(Filled::Closed),
                Ok(got) => {
                    self.end += got;
                    return Ok(if got == asked { Filled::More(got) } else { Filled::Drained(got) });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Filled::Drained(0)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes room for a read: for what is needed, but at most doubling, since `needed` is only a claim.
    fn make_room(&mut self, needed: usize, pool: &mut BufferPool) {
        if self.bytes.is_empty() {
            self.bytes = pool.inputs.pop().unwrap_or_else(|| vec![0; READ_BYTES]);
        }
        let unread = self.end - self.start;
        let wanted = (unread + needed).min(2 * self.bytes.len()).max(READ_BYTES);
        if wanted > self.bytes.len() {
            // Fresh zeroed memory costs nothing until it is used; growing in place would write it all first.
            let mut larger = vec![0; wanted];
            larger[..unread].copy_from_slice(self.unread());
            self.bytes = larger;
        } else if self.start > 0 && self.bytes.len() - self.end < needed.max(READ_BYTES / 2) {
            self.bytes.copy_within(self.start..self.end, 0);
        } else {
            return;
        }
        (self.start, self.end) = (0, unread);
    }

    /// Gives the buffer back if it holds nothing.
    pub(crate) fn release(&mut self, pool: &mut BufferPool) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            let bytes = std::mem::take(&mut self.bytes);
            if bytes.len() == READ_BYTES && pool.inputs.len() < KEPT_BUFFERS {
                pool.inputs.push(bytes);
            }
        }
    }
}

/// Replies that are not sent yet.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) bytes: Vec<u8>,
    sent: usize,
}

impl Output {
    pub(crate) fn unsent(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Memory held.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Takes a buffer if there is none.
    pub(crate) fn borrow(&mut self, pool: &mut BufferPool) {
        if self.bytes.capacity() == 0 {
            self.bytes = pool.outputs.pop().unwrap_or_default();
        }
    }

    /// Writes once to `sink` and returns how much it took; less than asked, or nothing, means that it is full.
    pub(crate) fn flush(&mut self, sink: &mut impl Write) -> io::Result<Flushed> {
        let unsent = &self.bytes[self.sent..];
        let unsent = &unsent[..unsent.len().min(WRITE_BYTES)];
        loop {
            match sink.write(unsent) {
                Ok(0) if !unsent.is_empty() => return Err(io::ErrorKind::WriteZero.into()),
                Ok(taken) => {
                    self.sent += taken;
                    return Ok(Flushed { bytes: taken, full: taken < unsent.len() });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Flushed { bytes: 0, full: true });
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Gives the buffer back if all of it was sent.
    pub(crate) fn release(&mut self, pool: &mut BufferPool) {
        if self.unsent() == 0 {
            self.sent = 0;
            let mut bytes = std::mem::take(&mut self.bytes);
            if (1..=KEPT_BYTES).contains(&bytes.capacity()) && pool.outputs.len() < KEPT_BUFFERS {
                bytes.clear();
                pool.outputs.push(bytes);
            }
        }
    }
}

/// What one write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flushed {
    pub(crate) bytes: usize,
    /// The sink takes no more for now.
    pub(crate) full: bool,
}
