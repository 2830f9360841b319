//! How the crash simulator listens to a simulated region.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// Names a thread in recorded traces; small and unique in the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadTag(pub u32);

static NEXT_TAG: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static TAG: Cell<Option<ThreadTag>> = const { Cell::new(None) };
}

impl ThreadTag {
    /// The calling thread's tag.
    pub fn current() -> ThreadTag {
        TAG.get().unwrap_or_else(|| {
            let tag = ThreadTag(NEXT_TAG.fetch_add(1, Ordering::Relaxed));
            TAG.set(Some(tag));
            tag
        })
    }
}

/// Receives every store, flush and fence of a simulated region, in program order per thread.
pub trait Observer: Send + Sync {
    /// A store of at most 8 bytes that does not cross an aligned word, about to be performed.
    fn store(&self, thread: ThreadTag, off: u64, new: &[u8]);
    /// `thread` is about to load a word to which its next [`store`](Self::store) goes, as one atomic step: until
    /// then no other thread may be let run.
    fn update(&self, thread: ThreadTag) {
        let _ = thread;
    }
    /// The write-back of line `line` (byte offset / 64) is about to be started.
    fn flush(&self, thread: ThreadTag, line: u64);
    /// `thread` waits for the write-backs that it started; called before it returns.
    fn fence(&self, thread: ThreadTag);
}
