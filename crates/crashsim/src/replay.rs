//! The durable and the visible contents at a place of a trace, and the images between them.
//!
//! Per line, the stores that are not yet durable form a queue in the order in which they became visible.
//! A flush marks the end of the queue for the thread that flushes; a fence makes everything durable up to
//! the marks of the thread that fences, and of no other. A crash shows, of every line independently, any
//! prefix of its queue on top of what is durable.

use crate::rng::combine;
use crate::trace::Event;
use std::collections::{BTreeMap, HashMap, VecDeque};
use tembo_pmem::{LINE_BYTES, WORD_BYTES};

/// A store that is visible and not yet durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pending {
    /// Its index in the trace.
    pub(crate) event: usize,
    pub(crate) thread: u32,
    pub(crate) off: u64,
    bytes: u8,
    old: [u8; 8],
    new: [u8; 8],
}

impl Pending {
    pub(crate) fn old_bytes(&self) -> &[u8] {
        &self.old[..self.bytes as usize]
    }

    pub(crate) fn new_bytes(&self) -> &[u8] {
        &self.new[..self.bytes as usize]
    }
}

/// The queue of one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PendingLine {
    pub(crate) line: u64,
    pub(crate) stores: Vec<Pending>,
    /// The prefix lengths at which the line's contents differ from those of the length before.
    pub(crate) stops: Vec<usize>,
}

/// Bytes, with a hash that follows every change at a cost independent of their number.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    bytes: Vec<u8>,
    hash: u64,
}

impl Image {
    fn new(bytes: &[u8], hash: u64, capacity_bytes: u64) -> Image {
        let mut bytes = bytes.to_vec();
        bytes.resize(round_up(capacity_bytes as usize), 0);
        Image { bytes, hash }
    }

    /// The first `len` bytes.
    pub(crate) fn bytes(&self, len: u64) -> &[u8] {
        &self.bytes[..len as usize]
    }

    /// All bytes, with zeros at the end where the region is shorter.
    pub(crate) fn all(&self) -> &[u8] {
        &self.bytes
    }

    /// The hash of the image that the replay began with, changed by every word that differs from it.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    fn grow(&mut self, len: u64) {
        if len as usize > self.bytes.len() {
            self.bytes.resize(round_up(len as usize), 0);
        }
    }

    fn put(&mut self, off: u64, data: &[u8]) {
        let word_idx = off / WORD_BYTES;
        let word_at = (word_idx * WORD_BYTES) as usize;
        self.hash ^= combine(word_idx, self.word(word_at));
        self.bytes[off as usize..off as usize + data.len()].copy_from_slice(data);
        self.hash ^= combine(word_idx, self.word(word_at));
    }

    fn word(&self, at: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes[at..at + 8]);
        u64::from_le_bytes(word)
    }
}

fn round_up(len: usize) -> usize {
    len.next_multiple_of(WORD_BYTES as usize)
}

#[derive(Default)]
struct Queue {
    stores: VecDeque<Pending>,
    /// Per thread, the event index of its last flush of this line.
    flushed: Vec<(u32, usize)>,
}

impl Queue {
    /// The event index of the last flush by `thread`, or by anybody.
    fn last_flush(&self, thread: Option<u32>) -> Option<usize> {
        let mine = self.flushed.iter().filter(|(t, _)| thread.is_none_or(|wanted| wanted == *t));
        mine.map(|(_, event)| *event).max()
    }
}

/// The outcome of a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Stores that this thread had not flushed yet.
    Dirty,
    /// Nothing that was not durable.
    Clean,
    /// Only stores that this thread has flushed already and not fenced.
    Again,
}

/// The state of memory while a trace is gone through.
pub(crate) struct Replay {
    durable: Image,
    volatile: Image,
    queues: BTreeMap<u64, Queue>,
    /// Per thread, the lines that it flushed since its last fence, with the event index of the flush.
    unfenced: HashMap<u32, Vec<(u64, usize)>>,
}

impl Replay {
    /// Starts from an image that is wholly durable and whose hash is `hash`.
    pub(crate) fn new(image: &[u8], hash: u64, capacity_bytes: u64) -> Replay {
        let durable = Image::new(image, hash, capacity_bytes);
        Replay { volatile: durable.clone(), durable, queues: BTreeMap::new(), unfenced: HashMap::new() }
    }

    /// Performs a store.
    pub(crate) fn store(&mut self, event: usize, thread: u32, off: u64, new: &[u8]) {
        let end = off + new.len() as u64;
        self.durable.grow(end);
        self.volatile.grow(end);
        let mut pending = Pending { event, thread, off, bytes: new.len() as u8, old: [0; 8], new: [0; 8] };
        pending.old[..new.len()].copy_from_slice(&self.volatile.bytes[off as usize..end as usize]);
        pending.new[..new.len()].copy_from_slice(new);
        self.volatile.put(off, new);
        self.queues.entry(off / LINE_BYTES).or_default().stores.push_back(pending);
    }

    /// Performs a flush.
    pub(crate) fn flush(&mut self, event: usize, thread: u32, line: u64) -> Flushed {
        self.unfenced.entry(thread).or_default().push((line, event));
        let Some(queue) = self.queues.get_mut(&line) else { return Flushed::Clean };
        let newest = queue.stores.back().map_or(0, |s| s.event);
        let again = queue.last_flush(Some(thread)).is_some_and(|before| before > newest);
        match queue.flushed.iter_mut().find(|(t, _)| *t == thread) {
            Some(mine) => mine.1 = event,
            None => queue.flushed.push((thread, event)),
        }
        if again { Flushed::Again } else { Flushed::Dirty }
    }

    /// Performs a fence; returns how many flushes it waited for.
    pub(crate) fn fence(&mut self, thread: u32) -> usize {
        let marks = self.unfenced.remove(&thread).unwrap_or_default();
        for &(line, flushed_at) in &marks {
            let Some(queue) = self.queues.get_mut(&line) else { continue };
            while queue.stores.front().is_some_and(|s| s.event < flushed_at) {
                if let Some(store) = queue.stores.pop_front() {
                    self.durable.put(store.off, store.new_bytes());
                }
            }
            if queue.stores.is_empty() {
                self.queues.remove(&line);
            }
        }
        marks.len()
    }

    /// Performs the event with index `event`; a mark changes nothing.
    pub(crate) fn step(&mut self, event: usize, what: &Event) {
        match *what {
            Event::Store { thread, off, bytes, ref new } => {
                self.store(event, thread, off, &new[..bytes as usize]);
            }
            Event::Flush { thread, line } => {
                self.flush(event, thread, line);
            }
            Event::Fence { thread } => {
                self.fence(thread);
            }
            Event::Mark { .. } => {}
        }
    }

    /// The lines of which a crash may show more than one version, in order of their offsets.
    pub(crate) fn pending(&self) -> Vec<PendingLine> {
        let lines = self.queues.iter().map(|(line, queue)| {
            let stores: Vec<Pending> = queue.stores.iter().copied().collect();
            let changes = stores.iter().enumerate().filter(|(_, s)| s.old != s.new).map(|(i, _)| i + 1);
            let stops = std::iter::once(0).chain(changes).collect();
            PendingLine { line: *line, stores, stops }
        });
        lines.filter(|l| l.stops.len() > 1).collect()
    }

    /// The stores that are not durable, with whether a flush of theirs was started.
    pub(crate) fn not_durable(&self) -> impl Iterator<Item = (&Pending, bool)> {
        self.queues.values().flat_map(|queue| {
            let last_flush = queue.last_flush(None);
            queue.stores.iter().map(move |s| (s, last_flush.is_some_and(|event| event > s.event)))
        })
    }

    /// Changes the durable image from one choice of prefix lengths to another.
    ///
    /// The caller goes back to zeros before it performs the next event.
    pub(crate) fn choose(&mut self, lines: &[PendingLine], from: &[usize], to: &[usize]) {
        for ((line, &from), &to) in lines.iter().zip(from).zip(to) {
            for store in line.stores.get(from..to).unwrap_or_default() {
                self.durable.put(store.off, store.new_bytes());
            }
            for store in line.stores.get(to..from).unwrap_or_default().iter().rev() {
                self.durable.put(store.off, store.old_bytes());
            }
        }
    }

    /// The contents that are on media for certain (or, between two calls of [`choose`](Self::choose), are
    /// assumed to be).
    pub(crate) fn durable(&self) -> &Image {
        &self.durable
    }

    /// The contents that a reader sees while the program runs.
    pub(crate) fn volatile(&self) -> &Image {
        &self.volatile
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 256;

    fn replay() -> Replay {
        Replay::new(&[0; SIZE as usize], 0, SIZE)
    }

    fn durable_word(replay: &Replay, off: usize) -> u64 {
        replay.durable().word(off)
    }

    #[test]
    fn a_fence_covers_its_own_threads_flushes_and_only_stores_before_them() {
        let mut replay = replay();
        replay.store(0, 0, 8, &5_u64.to_le_bytes());
        replay.store(1, 1, 16, &6_u64.to_le_bytes());
        assert_eq!(replay.flush(2, 0, 0), Flushed::Dirty);
        replay.store(3, 0, 24, &7_u64.to_le_bytes());
        assert_eq!(replay.fence(1), 0);
        assert_eq!(durable_word(&replay, 8), 0, "the fence of thread 1 covers nothing");
        assert_eq!(replay.fence(0), 1);
        let words = [8, 16, 24].map(|off| durable_word(&replay, off));
        assert_eq!(words, [5, 6, 0], "thread 1's store precedes the flush, the last store does not");
        assert_eq!(replay.pending()[0].stops, [0, 1]);
    }

    #[test]
    fn a_flush_from_before_the_line_was_durable_does_not_cover_later_stores() {
        let mut replay = replay();
        replay.store(0, 0, 0, &1_u64.to_le_bytes());
        replay.flush(1, 0, 0);
        replay.flush(2, 1, 0);
        replay.fence(0);
        replay.store(4, 0, 0, &2_u64.to_le_bytes());
        replay.fence(1);
        assert_eq!(durable_word(&replay, 0), 1);
    }

    #[test]
    fn vain_flushes_are_told_apart() {
        let mut replay = replay();
        assert_eq!(replay.flush(0, 0, 1), Flushed::Clean);
        replay.store(1, 0, 64, &[1]);
        assert_eq!(replay.flush(2, 0, 1), Flushed::Dirty);
        assert_eq!(replay.flush(3, 0, 1), Flushed::Again);
        assert_eq!(replay.flush(4, 1, 1), Flushed::Dirty, "another thread's fence needs its own flush");
        replay.fence(0);
        assert_eq!(replay.flush(6, 0, 1), Flushed::Clean);
    }

    #[test]
    fn a_choice_shows_prefixes_and_is_taken_back_without_a_trace() {
        let mut replay = replay();
        replay.store(0, 0, 0, &[1, 2]);
        replay.store(1, 0, 1, &[3]);
        replay.store(2, 0, 128, &[9]);
        let lines = replay.pending();
        let before = (replay.durable().hash(), replay.durable().all().to_vec());
        replay.choose(&lines, &[0, 0], &[1, 1]);
        assert_eq!((replay.durable().bytes(2), replay.durable().bytes(129)[128]), (&[1, 2][..], 9));
        let one = replay.durable().hash();
        replay.choose(&lines, &[1, 1], &[2, 0]);
        assert_eq!((replay.durable().bytes(2), replay.durable().bytes(129)[128]), (&[1, 3][..], 0));
        assert_ne!(one, replay.durable().hash());
        replay.choose(&lines, &[2, 0], &[0, 0]);
        assert_eq!(before, (replay.durable().hash(), replay.durable().all().to_vec()));
    }

    #[test]
    fn equal_images_have_equal_hashes_however_they_came_about() {
        let (mut a, mut b) = (replay(), replay());
        a.store(0, 0, 0, &[1]);
        a.store(1, 0, 0, &[2]);
        b.store(0, 0, 0, &[2]);
        for replay in [&mut a, &mut b] {
            replay.flush(2, 0, 0);
            replay.fence(0);
        }
        assert_eq!(a.durable().hash(), b.durable().hash());
        assert_eq!(a.volatile().hash(), a.durable().hash());
    }
}
