//! A word for each page of a region, in memory that grows with the pages that were stored to.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages of the first part; each further one has as many as all before it.
const FIRST: u64 = 1024;
const PARTS: usize = 44;

pub(super) struct Table {
    parts: [OnceLock<Box<[AtomicU64]>>; PARTS],
    /// Pages of all parts up to the last existing one.
    end: AtomicU64,
}

impl Default for Table {
    fn default() -> Table {
        Table { parts: [const { OnceLock::new() }; PARTS], end: AtomicU64::new(0) }
    }
}

/// The part of a page, its place there, and the part's length.
fn find(page: u64) -> (usize, u64, u64) {
    if page < FIRST {
        return (0, page, FIRST);
    }
    let start = 1 << page.ilog2();
    ((page / FIRST).ilog2() as usize + 1, page - start, start)
}

impl Table {
    /// The word of a page; 0 at first.
    #[inline]
    pub(super) fn word(&self, page: u64) -> &AtomicU64 {
        let (part, at, length) = find(page);
        let words = match self.parts[part].get() {
            Some(words) => words,
            None => self.add(part, length),
        };
        &words[at as usize]
    }

    #[cold]
    fn add(&self, part: usize, length: u64) -> &[AtomicU64] {
        let words = self.parts[part].get_or_init(|| (0..length).map(|_| AtomicU64::new(0)).collect());
        self.end.fetch_max(if part == 0 { FIRST } else { 2 * length }, Ordering::Relaxed);
        words
    }

    /// All pages whose words are not 0 are before this one.
    pub(super) fn end(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_has_a_word_of_its_own() {
        let table = Table::default();
        assert_eq!(table.end(), 0);
        let pages = [0, 1, 1023, 1024, 1025, 2047, 2048, 4095, 4096, 70_000];
        for page in pages {
            table.word(page).store(page + 7, Ordering::Relaxed);
            assert!(table.end() > page);
        }
        assert!(pages.iter().all(|page| table.word(*page).load(Ordering::Relaxed) == page + 7));
        let set = (0..131_072).filter(|page| table.word(*page).load(Ordering::Relaxed) != 0).count();
        assert_eq!(set, pages.len());
        assert_eq!(find((1 << 40) - 1).0, 30);
    }
}
