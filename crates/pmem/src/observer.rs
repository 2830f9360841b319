//! The interface by which the crash simulator and models of memory observe a simulated region.

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

/// Receives every store, flush and fence of a simulated region, and loads if it wants them, in program order
/// for each thread.
pub trait Observer: Send + Sync {
    /// A store of at most 8 bytes that does not cross an aligned word, about to be performed.
    fn store(&self, thread: ThreadTag, off: u64, new: &[u8]);
    /// `thread` is about to load a word that its next [`store`](Self::store) changes, as one atomic step:
    /// until then no other thread may run.
    fn update(&self, thread: ThreadTag) {
        let _ = thread;
    }
    /// The write-back of line `line` (byte offset / 64) is about to be started.
    fn flush(&self, thread: ThreadTag, line: u64);
    /// `thread` waits for the write-backs that it started; called before it returns.
    fn fence(&self, thread: ThreadTag);
    /// Whether [`load`](Self::load) and [`prefetch`](Self::prefetch) are called; asked once, when the region
    /// is made.
    fn wants_loads(&self) -> bool {
        false
    }
    /// A load of `bytes` bytes, about to be performed, or performed just now.
    fn load(&self, thread: ThreadTag, off: u64, bytes: u64) {
        let _ = (thread, off, bytes);
    }
    /// Line `line` is prefetched. It may be outside the region.
    fn prefetch(&self, thread: ThreadTag, line: u64) {
        let _ = (thread, line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Region;
    use std::sync::{Arc, Mutex};

    /// Remembers loads and prefetches, if it wants them.
    struct Reader {
        wants_loads: bool,
        seen: Mutex<Vec<(&'static str, u64, u64)>>,
    }

    impl Observer for Reader {
        fn store(&self, _: ThreadTag, _: u64, _: &[u8]) {}
        fn flush(&self, _: ThreadTag, _: u64) {}
        fn fence(&self, _: ThreadTag) {}
        fn wants_loads(&self) -> bool {
            self.wants_loads
        }
        fn load(&self, _: ThreadTag, off: u64, bytes: u64) {
            self.seen.lock().unwrap().push(("load", off, bytes));
        }
        fn prefetch(&self, _: ThreadTag, line: u64) {
            self.seen.lock().unwrap().push(("prefetch", line, 0));
        }
    }

    #[test]
    fn loads_are_reported_to_an_observer_that_wants_them_and_checked_either_way() {
        for wants_loads in [false, true] {
            let reader = Arc::new(Reader { wants_loads, seen: Mutex::default() });
            let region = Region::simulated(&[1; 4096], 8192, Some(reader.clone())).unwrap();
            assert_eq!(region.load_u64(8).unwrap(), 0x0101_0101_0101_0101);
            assert!(region.load_u64(12).is_err() && region.load_u64(4096).is_err());
            region.grow(8192).unwrap();
            assert_eq!(region.load_u64(4096).unwrap(), 0);
            region.prefetch(130);
            region.prefetch_for_store(192);
            region.note_load(5, 70);
            let all =
                [("load", 8, 8), ("load", 4096, 8), ("prefetch", 2, 0), ("prefetch", 3, 0), ("load", 5, 70)];
            let expected = if wants_loads { &all[..] } else { &[] };
            assert_eq!(*reader.seen.lock().unwrap(), expected);
        }
    }

    /// Remembers which words were stored.
    #[derive(Default)]
    struct Words(Mutex<Vec<(u64, usize)>>);

    impl Observer for Words {
        fn store(&self, _: ThreadTag, off: u64, new: &[u8]) {
            self.0.lock().unwrap().push((off, new.len()));
        }
        fn flush(&self, _: ThreadTag, _: u64) {}
        fn fence(&self, _: ThreadTag) {}
    }

    #[test]
    fn words_that_may_arrive_in_any_order_are_reported_once_each_in_changing_orders() {
        let words = Arc::new(Words::default());
        let region = Region::simulated(&[0; 4096], 4096, Some(words.clone())).unwrap();
        let mut orders = std::collections::BTreeSet::new();
        let (mut firsts, mut lasts) = ([0; 8], [0; 8]);
        for _ in 0..200 {
            // SAFETY: no other thread has the region.
            unsafe { region.write_and_flush(64, &[7; 64]).unwrap() };
            let seen = std::mem::take(&mut *words.0.lock().unwrap());
            let places: Vec<usize> = seen.iter().map(|(off, _)| (off / 8 - 8) as usize).collect();
            firsts[places[0]] += 1;
            lasts[places[7]] += 1;
            let mut sorted = seen;
            sorted.sort_unstable();
            assert_eq!(sorted, (8..16).map(|word| (8 * word, 8)).collect::<Vec<_>>());
            orders.insert(places);
        }
        assert!(orders.len() > 150 && firsts.iter().chain(&lasts).all(|times| *times > 5), "{orders:?}");
        // SAFETY: as above.
        unsafe { region.write_and_flush(61, &[7; 70]).unwrap() };
        let mut seen = std::mem::take(&mut *words.0.lock().unwrap());
        seen.sort_unstable();
        let inner = (8..16).map(|word| (8 * word, 8));
        assert_eq!(seen, [(61, 3)].into_iter().chain(inner).chain([(128, 3)]).collect::<Vec<_>>());
    }

    /// Remembers which bytes were loaded.
    #[derive(Default)]
    struct Loads(Mutex<Vec<(u64, u64)>>);

    impl Observer for Loads {
        fn store(&self, _: ThreadTag, _: u64, _: &[u8]) {}
        fn flush(&self, _: ThreadTag, _: u64) {}
        fn fence(&self, _: ThreadTag) {}
        fn wants_loads(&self) -> bool {
            true
        }
        fn load(&self, _: ThreadTag, off: u64, bytes: u64) {
            self.0.lock().unwrap().push((off, bytes));
        }
    }

    #[test]
    fn what_is_stored_is_not_reported_as_loaded() {
        let loads = Arc::new(Loads::default());
        let region = Region::simulated(&[0; 4096], 4096, Some(loads.clone())).unwrap();
        region.store_words(64, &[1, 2, 3]).unwrap();
        region.store_u64(128, 4).unwrap();
        assert_eq!(*loads.0.lock().unwrap(), []);
        region.words(64, 3).unwrap();
        assert_eq!(*loads.0.lock().unwrap(), [(64, 24)]);
    }

    fn values(words: &[std::sync::atomic::AtomicU64]) -> Vec<u64> {
        words.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn several_words_are_loaded_and_stored_as_single_ones_are() {
        let words = Arc::new(Words::default());
        let region = Region::simulated(&[0; 4096], 4096, Some(words.clone())).unwrap();
        region.store_words(4096 - 24, &[1, 2, 3]).unwrap();
        assert_eq!(*words.0.lock().unwrap(), [(4072, 8), (4080, 8), (4088, 8)]);
        let loaded = region.words(4096 - 24, 3).unwrap();
        assert_eq!(values(loaded), [1, 2, 3]);
        assert_eq!(region.load_u64(4088).unwrap(), 3);
        for (off, count) in [(4096 - 16, 3), (4, 1), (8, u64::MAX), (u64::MAX - 7, 1)] {
            assert!(region.words(off, count).is_err(), "{count} words at {off}");
        }
        assert!(region.store_words(4096 - 16, &[4, 5, 6]).is_err() && region.store_words(4, &[7]).is_err());
        assert_eq!(values(loaded), [1, 2, 3]);
    }
}
