//! A connection's input and output.
//!
//! A buffer is lent to a connection while it holds bytes and taken back when it is empty, so that idle
//! clients cost no buffers and busy ones share few, which stay in the processor's cache.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::rc::Rc;

use crate::chunk::{Chunk, OWNED_BYTES_MIN};

/// Bytes that one read asks for, and the size of a lent input buffer.
pub(crate) const READ_BYTES: usize = 64 << 10;
/// The least room that a read has.
const READ_BYTES_MIN: usize = READ_BYTES / 4;
/// The largest buffer that is kept when it is empty.
const KEPT_BYTES: usize = 1 << 20;
/// The most bytes of empty buffers of each kind; after a while only [`KEPT_BYTES`] are kept.
const KEPT_BYTES_TOTAL: usize = 8 << 20;
/// One write call is given no more than this, so that a large reply does not hold up a turn.
const WRITE_BYTES: usize = 1 << 20;
/// The most parts that one write call is given.
const WRITE_SLICES: usize = 16;

/// Messages of this length are not copied for each of their receivers.
const SHARED_BYTES_MIN: usize = 16 << 10;

/// Empty buffers.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    /// Initialised throughout, of at least [`READ_BYTES`].
    inputs: Shelf,
    outputs: Shelf,
}

impl BufferPool {
    /// Gives memory back that was not needed lately, a little at a time.
    pub(crate) fn shrink(&mut self) {
        self.inputs.shrink();
        self.outputs.shrink();
    }
}

/// Empty buffers of one kind. The one that was used last is used next.
#[derive(Debug, Default)]
struct Shelf {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Shelf {
    /// A buffer of at least this much capacity.
    fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let index = self.buffers.iter().rposition(|buffer| buffer.capacity() >= bytes)?;
        let buffer = self.buffers.remove(index);
        self.bytes -= buffer.capacity();
        Some(buffer)
    }

    /// Drops the buffer that was longest not used, unless few are kept.
    fn shrink(&mut self) {
        if self.bytes > KEPT_BYTES {
            self.bytes -= self.buffers.remove(0).capacity();
        }
    }

    fn put(&mut self, buffer: Vec<u8>) {
        let bytes = buffer.capacity();
        if (1..=KEPT_BYTES).contains(&bytes) && self.bytes + bytes <= KEPT_BYTES_TOTAL {
            self.bytes += bytes;
            self.buffers.push(buffer);
        }
    }
}

/// Bytes received and not yet understood.
#[derive(Debug, Default)]
pub(crate) struct Input {
    /// Initialised throughout; the bytes that count are `start..end`.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

/// The outcome of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// The bytes read; there may be more.
    More(usize),
    /// The bytes read; there are no more for now.
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
        let asked = needed.max(READ_BYTES).min(self.bytes.len() - self.end);
        let room = &mut self.bytes[self.end..self.end + asked];
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

    /// Makes room for a read of `needed` bytes. The buffer at most doubles, because `needed` is only the
    /// client's claim, and grows by half at least, because many small reads may follow.
    fn make_room(&mut self, needed: usize, pool: &mut BufferPool) {
        if self.bytes.is_empty() {
            self.bytes = pool.inputs.take(READ_BYTES).unwrap_or_else(|| vec![0; READ_BYTES]);
        }
        let (unread, len) = (self.end - self.start, self.bytes.len());
        let wanted = unread + needed.max(READ_BYTES_MIN);
        if wanted > len {
            let wanted = wanted.clamp(len + len / 2, 2 * len);
            // Fresh zeroed memory costs nothing until it is used; growing in place would write it all first.
            let mut larger = pool.inputs.take(wanted).unwrap_or_else(|| vec![0; wanted]);
            larger[..unread].copy_from_slice(self.unread());
            pool.inputs.put(std::mem::replace(&mut self.bytes, larger));
        } else if len > KEPT_BYTES && wanted <= len / 4 {
            // A large request is over, and the bytes after it are few.
            let bytes = wanted.max(READ_BYTES);
            let mut smaller = pool.inputs.take(bytes).unwrap_or_else(|| vec![0; bytes]);
            smaller[..unread].copy_from_slice(self.unread());
            self.bytes = smaller;
        } else if self.start > 0 && len - self.end < needed.max(READ_BYTES_MIN) {
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
            pool.inputs.put(std::mem::take(&mut self.bytes));
        }
    }
}

/// Replies that are not sent yet.
///
/// ```text
///   queue: chunk, chunk, ...     of rounds before, as far as the client has not taken them
///   bytes                        of this round; the executor appends to it
/// ```
///
/// A client that takes its replies has no queue. The queue's memory is proportional to its contents: each
/// chunk is returned to the system as soon as it is sent.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) bytes: Vec<u8>,
    queue: VecDeque<Chunk>,
    /// The bytes that are sent of the first chunk or, without chunks, of `bytes`.
    sent: usize,
    /// Bytes in the queue, sent ones of its first chunk included.
    queued: usize,
    /// Memory of the queue's chunks.
    queue_capacity: usize,
}

impl Output {
    pub(crate) fn unsent(&self) -> usize {
        self.queued + self.bytes.len() - self.sent
    }

    /// Memory held.
    pub(crate) fn capacity(&self) -> usize {
        self.queue_capacity + self.bytes.capacity()
    }

    /// Memory of the queue, and how many chunks it has.
    pub(crate) fn queue_size(&self) -> (usize, usize) {
        (self.queue_capacity, self.queue.len())
    }

    /// Takes a buffer if there is none.
    pub(crate) fn borrow(&mut self, pool: &mut BufferPool) {
        if self.bytes.capacity() == 0 {
            self.bytes = pool.outputs.take(0).unwrap_or_default();
        }
    }

    /// Writes once to `sink`, at most `bytes_max` bytes, and returns how much it took; less than asked, or
    /// nothing, means that it is full.
    pub(crate) fn flush(&mut self, sink: &mut impl Write, bytes_max: usize) -> io::Result<Flushed> {
        let bytes_max = bytes_max.min(WRITE_BYTES);
        let flushed = if self.queue.is_empty() {
            let unsent = &self.bytes[self.sent..];
            let unsent = &unsent[..unsent.len().min(bytes_max)];
            write_once(unsent.len(), || sink.write(unsent))?
        } else {
            self.flush_queue(sink, bytes_max)?
        };
        self.take_off(flushed.bytes);
        Ok(flushed)
    }

    fn flush_queue(&self, sink: &mut impl Write, bytes_max: usize) -> io::Result<Flushed> {
        let mut slices = [IoSlice::new(&[]); WRITE_SLICES];
        let (mut count, mut asked, mut skip) = (0, 0, self.sent);
        for part in self.queue.iter().map(Chunk::bytes).chain([&self.bytes[..]]) {
            let unsent = &part[skip..];
            let unsent = &unsent[..unsent.len().min(bytes_max - asked)];
            slices[count] = IoSlice::new(unsent);
            (count, asked, skip) = (count + 1, asked + unsent.len(), 0);
            if count == WRITE_SLICES || asked == bytes_max {
                break;
            }
        }
        write_once(asked, || sink.write_vectored(&slices[..count]))
    }

    /// Counts `taken` bytes as sent, and gives the chunks back that are.
    fn take_off(&mut self, taken: usize) {
        self.sent += taken;
        while let Some(chunk) = self.queue.front()
            && self.sent >= chunk.bytes().len()
        {
            self.sent -= chunk.bytes().len();
            self.queued -= chunk.bytes().len();
            self.queue_capacity -= chunk.capacity();
            self.queue.pop_front();
        }
    }

    /// Ends a round: moves unsent bytes into the queue, and gives the buffer back.
    pub(crate) fn release(&mut self, pool: &mut BufferPool) {
        let sent = if self.queue.is_empty() { std::mem::take(&mut self.sent) } else { 0 };
        if sent < self.bytes.len() {
            self.enqueue(sent);
        } else if self.queue.is_empty() && self.queue.capacity() > 0 {
            self.queue = VecDeque::new();
        }
        self.bytes.clear();
        pool.outputs.put(std::mem::take(&mut self.bytes));
    }

    /// Appends bytes that others get too. Long ones are not copied. No reply may be marked.
    pub(crate) fn append(&mut self, shared: &Rc<[u8]>) {
        if shared.len() < SHARED_BYTES_MIN {
            return self.bytes.extend_from_slice(shared);
        }
        let sent = if self.queue.is_empty() { std::mem::take(&mut self.sent) } else { 0 };
        if sent < self.bytes.len() {
            self.enqueue(sent);
        }
        self.bytes.clear();
        self.push(Chunk::Shared(shared.clone()));
    }

    /// Lays `bytes` from `sent` on into the queue.
    #[cold]
    fn enqueue(&mut self, sent: usize) {
        let mut bytes = std::mem::take(&mut self.bytes);
        if bytes.len() - sent >= OWNED_BYTES_MIN {
            if self.queue.is_empty() {
                self.sent = sent;
            }
            bytes.shrink_to_fit();
            return self.push(Chunk::Owned(bytes));
        }
        let mut unsent = &bytes[sent..];
        if let Some(last) = self.queue.back_mut() {
            let rest = last.fill(unsent);
            self.queued += unsent.len() - rest.len();
            unsent = rest;
        }
        while !unsent.is_empty() {
            // As much as the queue has already, so that a client with few replies gets little.
            let mut chunk = Chunk::new(unsent.len().max(self.queued));
            unsent = chunk.fill(unsent);
            self.push(chunk);
        }
        self.bytes = bytes;
    }

    fn push(&mut self, chunk: Chunk) {
        self.queued += chunk.bytes().len();
        self.queue_capacity += chunk.capacity();
        self.queue.push_back(chunk);
    }
}

/// Calls `write` with this number of bytes until no signal interrupts it.
fn write_once(asked: usize, mut write: impl FnMut() -> io::Result<usize>) -> io::Result<Flushed> {
    loop {
        match write() {
            Ok(0) if asked > 0 => return Err(io::ErrorKind::WriteZero.into()),
            Ok(taken) => return Ok(Flushed { bytes: taken, full: taken < asked }),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Flushed { bytes: 0, full: true });
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The outcome of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flushed {
    pub(crate) bytes: usize,
    /// The sink takes no more for now.
    pub(crate) full: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its bytes in pieces of a size, then would block.
    struct Source<'a> {
        bytes: &'a [u8],
        piece: usize,
    }

    impl Read for Source<'_> {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            if self.bytes.is_empty() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let len = room.len().min(self.piece).min(self.bytes.len());
            let (piece, rest) = self.bytes.split_at(len);
            room[..len].copy_from_slice(piece);
            self.bytes = rest;
            Ok(len)
        }
    }

    #[test]
    fn a_request_larger_than_a_buffer_is_gathered() {
        let bytes: Vec<u8> = (0..1_000_000u32).map(|at| (at % 251) as u8).collect();
        let (mut input, mut pool) = (Input::default(), BufferPool::default());
        let mut source = Source { bytes: &bytes, piece: usize::MAX };
        while input.unread().len() < bytes.len() {
            let needed = bytes.len() - input.unread().len();
            assert_ne!(input.fill(&mut source, needed, &mut pool).unwrap(), Filled::Drained(0));
            assert!(input.capacity() <= 2 * input.unread().len() + READ_BYTES, "memory follows what arrived");
        }
        assert_eq!(input.unread(), bytes);
        assert_eq!(input.fill(&mut source, 1, &mut pool).unwrap(), Filled::Drained(0));
        input.consume(bytes.len());
        input.release(&mut pool);
        assert_eq!(input.capacity(), 0);
        assert!(pool.inputs.bytes <= KEPT_BYTES_TOTAL);
        assert_eq!(pool.inputs.bytes, pool.inputs.buffers.iter().map(Vec::capacity).sum::<usize>());
    }

    #[test]
    fn a_request_of_many_small_parts_is_not_copied_for_each() {
        let bytes = vec![7; 4_000_000];
        let (mut input, mut pool) = (Input::default(), BufferPool::default());
        let mut source = Source { bytes: &bytes, piece: 1000 };
        let mut capacities = Vec::new();
        while input.unread().len() < bytes.len() {
            input.fill(&mut source, 1, &mut pool).unwrap();
            capacities.push(input.capacity());
        }
        capacities.dedup();
        assert!(capacities.len() <= 12, "{capacities:?}");
    }

    #[test]
    fn consumed_bytes_make_room() {
        let bytes: Vec<u8> = (0..READ_BYTES as u32 * 5).map(|at| (at % 251) as u8).collect();
        let (mut input, mut pool) = (Input::default(), BufferPool::default());
        let mut source = Source { bytes: &bytes, piece: READ_BYTES / 3 };
        let mut seen = Vec::new();
        while seen.len() < bytes.len() {
            input.fill(&mut source, 1, &mut pool).unwrap();
            // A part of a request stays behind, as long as there is more to come.
            let stays = if source.bytes.is_empty() { 0 } else { 100 };
            let taken = input.unread().len() - stays;
            seen.extend_from_slice(&input.unread()[..taken]);
            input.consume(taken);
            assert_eq!(input.capacity(), READ_BYTES);
        }
        assert_eq!(seen, bytes);
    }

    #[test]
    fn the_buffer_of_a_large_request_is_not_kept_for_small_ones() {
        let bytes = vec![7; 8_000_000];
        let (mut input, mut pool) = (Input::default(), BufferPool::default());
        let mut source = Source { bytes: &bytes, piece: usize::MAX };
        while input.unread().len() < bytes.len() {
            input.fill(&mut source, bytes.len() - input.unread().len(), &mut pool).unwrap();
        }
        // The beginning of the next request is there already, so the buffer is never empty.
        input.consume(bytes.len() - 10);
        assert!(input.capacity() >= bytes.len());
        input.fill(&mut Source { bytes: b"more", piece: usize::MAX }, 1, &mut pool).unwrap();
        assert_eq!(input.unread(), [&[7; 10][..], b"more"].concat());
        assert!(input.capacity() <= KEPT_BYTES, "{}", input.capacity());
    }

    /// Takes this many bytes at each call.
    struct Sink(Vec<u8>, usize);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let len = bytes.len().min(self.1);
            self.0.extend_from_slice(&bytes[..len]);
            Ok(len)
        }

        fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            self.write(&all)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn output_goes_in_pieces_and_the_buffer_is_given_back() {
        let (mut output, mut pool) = (Output::default(), BufferPool::default());
        output.borrow(&mut pool);
        output.bytes.extend_from_slice(b"0123456789");
        let mut sink = Sink(Vec::new(), 4);
        assert_eq!(output.flush(&mut sink, usize::MAX).unwrap(), Flushed { bytes: 4, full: true });
        output.release(&mut pool);
        assert_eq!(output.unsent(), 6, "what is not sent stays");
        output.flush(&mut sink, usize::MAX).unwrap();
        assert_eq!(output.flush(&mut sink, usize::MAX).unwrap(), Flushed { bytes: 2, full: false });
        assert_eq!(sink.0, b"0123456789");
        output.release(&mut pool);
        assert_eq!((output.unsent(), output.capacity(), output.queue_size()), (0, 0, (0, 0)));
        assert!(!pool.outputs.buffers.is_empty());
    }

    #[test]
    fn output_that_waits_keeps_its_order_and_its_memory_follows_it() {
        let (mut output, mut pool) = (Output::default(), BufferPool::default());
        let (mut expected, mut sink) = (Vec::new(), Sink(Vec::new(), 0));
        let mut next = 0_u32;
        for round in 0..2000 {
            output.borrow(&mut pool);
            // Rounds of small replies, and now and then of many.
            let count = if round % 50 == 0 { 20_000 } else { 7 };
            for _ in 0..count {
                let reply = next.wrapping_mul(2_654_435_761).to_le_bytes();
                output.bytes.extend_from_slice(&reply);
                expected.extend_from_slice(&reply);
                next += 1;
            }
            // A reader that takes a little, then nothing, then much.
            sink.1 = [0, 1001, 0, 3 << 20][(round / 500) % 4];
            while sink.1 > 0 && output.unsent() > 0 && !output.flush(&mut sink, usize::MAX).unwrap().full {}
            output.release(&mut pool);
            assert_eq!(output.bytes.capacity(), 0, "the buffer is lent for a round");
            assert_eq!(output.unsent(), expected.len() - sink.0.len(), "round {round}");
            let (held, unsent) = (output.capacity(), output.unsent());
            // The first chunk may be sent in part, and the last has room.
            assert!(held <= unsent + (2 << 20), "{held} bytes for {unsent}");
            assert!(!sink.0.is_empty() || held <= 2 * unsent + (16 << 10), "{held} bytes for {unsent}");
        }
        assert!(sink.0 == expected);
        output.borrow(&mut pool);
        output.bytes.resize(OWNED_BYTES_MIN + 10, 7);
        sink.1 = 4;
        output.flush(&mut sink, usize::MAX).unwrap();
        output.release(&mut pool);
        assert_eq!((output.unsent(), output.queue_size().1), (OWNED_BYTES_MIN + 6, 1));
        sink.1 = usize::MAX;
        while output.unsent() > 0 {
            output.flush(&mut sink, usize::MAX).unwrap();
        }
        output.release(&mut pool);
        assert_eq!((output.unsent(), output.capacity(), output.queue.capacity()), (0, 0, 0));
        assert_eq!(pool.outputs.bytes, pool.outputs.buffers.iter().map(Vec::capacity).sum::<usize>());
        assert!(pool.outputs.bytes <= KEPT_BYTES_TOTAL);
        (0..10_000).for_each(|_| pool.shrink());
        assert!(pool.outputs.bytes <= KEPT_BYTES);
        assert_eq!(pool.outputs.bytes, pool.outputs.buffers.iter().map(Vec::capacity).sum::<usize>());
    }
}
