//! The page in which each thread of the process is storing.

use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};
use tembo_sync::{back_off, heavy_fence};

/// The name of any page: of a store to several.
pub(super) const ANY: u64 = u64::MAX;
/// A thread that stays in a page for this long keeps it.
const PATIENCE: Duration = Duration::from_millis(1);

/// The words of all threads that ever stored. Never freed; those of threads that have ended are used again.
static ALL: AtomicPtr<Entry> = AtomicPtr::new(null_mut());

#[repr(align(128))]
struct Entry {
    /// The page, or 0.
    page: AtomicU64,
    is_taken: AtomicBool,
    /// The entry that was added before this one. Not changed once this one is in the list.
    next: AtomicPtr<Entry>,
}

/// The word of one thread.
pub(super) struct Slot {
    entry: &'static Entry,
    /// The thread is ending, and keeps no word.
    is_brief: bool,
}

thread_local! {
    static MINE: Cell<Option<&'static Entry>> = const { Cell::new(None) };
    static AT_END: AtEnd = const { AtEnd };
}

struct AtEnd;

impl Drop for AtEnd {
    fn drop(&mut self) {
        if let Some(entry) = MINE.take() {
            entry.is_taken.store(false, Ordering::Release);
        }
    }
}

impl Slot {
    #[inline]
    pub(super) fn of_this_thread() -> Slot {
        match MINE.get() {
            Some(entry) => Slot { entry, is_brief: false },
            None => Slot::take(),
        }
    }

    #[cold]
    fn take() -> Slot {
        let entry = take_entry();
        let is_brief = AT_END.try_with(|_| ()).is_err();
        if !is_brief {
            MINE.set(Some(entry));
        }
        Slot { entry, is_brief }
    }

    #[inline]
    pub(super) fn enter(&self, page: u64) {
        self.entry.page.store(page, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn leave(&self) {
        // ORDER: release, after the stores to the page.
        self.entry.page.store(0, Ordering::Release);
    }
}

impl Drop for Slot {
    #[inline]
    fn drop(&mut self) {
        if self.is_brief {
            self.entry.is_taken.store(false, Ordering::Release);
        }
    }
}

fn entries() -> impl Iterator<Item = &'static Entry> {
    let mut at = ALL.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: entries are never freed.
        let entry: &'static Entry = unsafe { at.as_ref() }?;
        at = entry.next.load(Ordering::Relaxed);
        Some(entry)
    })
}

fn take_entry() -> &'static Entry {
    if let Some(entry) = entries().find(|entry| !entry.is_taken.swap(true, Ordering::Acquire)) {
        return entry;
    }
    let new: &'static Entry = Box::leak(Box::new(Entry {
        page: AtomicU64::new(0),
        is_taken: AtomicBool::new(true),
        next: AtomicPtr::new(null_mut()),
    }));
    let mut next = ALL.load(Ordering::Relaxed);
    loop {
        new.next.store(next, Ordering::Relaxed);
        // ORDER: release, for threads that reach the entry through the list. Sequentially consistent, so that
        // a thread that does not find it has stored its pages before this thread looks for them.
        let place = std::ptr::from_ref(new).cast_mut();
        match ALL.compare_exchange(next, place, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => {
                fence(Ordering::SeqCst);
                return new;
            }
            Err(found) => next = found,
        }
    }
}

/// Waits until no thread is in one of these pages. Returns those in which threads stay.
pub(super) fn wait_until_left(pages: &[u64]) -> Vec<u64> {
    let (mut occupied, begun) = (Vec::new(), Instant::now());
    for entry in entries() {
        let mut round = 0;
        loop {
            // ORDER: acquire, with the release of a thread that leaves.
            let page = entry.page.load(Ordering::Acquire);
            if page == 0 || (page != ANY && !pages.contains(&page)) {
                break;
            }
            if begun.elapsed() > PATIENCE {
                occupied.push(page);
                break;
            }
            back_off(round);
            round += 1;
        }
    }
    occupied
}

/// A full fence on all threads, or on this one where the others execute their own.
pub(super) fn fence_on_all_threads(has_heavy_fence: bool) {
    fence(Ordering::SeqCst);
    if has_heavy_fence {
        heavy_fence();
    }
}
