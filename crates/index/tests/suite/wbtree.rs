//! The wB+-Tree takes the conformance suite.

use crate::conformance::{KeyBounds, OrderedCursor, OrderedIndex, Record};
use tembo_index::{Cursor, Entry, Error, Result, WbTree};
use tembo_pool::{Marks, Pin, Pool, Tx};

fn owned(entry: Result<Entry<'_>>) -> Result<Record> {
    entry.map(|e| (e.key().to_vec(), e.value().to_vec()))
}

impl OrderedIndex for WbTree {
    fn create(tx: &mut Tx<'_>, name: &str) -> Result<Self> {
        WbTree::create(tx, name)
    }

    fn open(pool: &Pool, name: &str) -> Result<Option<Self>> {
        WbTree::open(pool, name)
    }

    fn get(&self, pin: &Pin, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(WbTree::get(self, pin, key)?.map(<[u8]>::to_vec))
    }

    fn get_in(&self, tx: &Tx<'_>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(WbTree::get_in(self, tx, key)?.map(<[u8]>::to_vec))
    }

    fn put(&self, tx: &mut Tx<'_>, key: &[u8], value: &[u8]) -> Result<bool> {
        let (head, tail) = value.split_at(value.len() / 3);
        WbTree::put(self, tx, key, &[head, b"", tail])
    }

    fn remove(&self, tx: &mut Tx<'_>, key: &[u8]) -> Result<bool> {
        WbTree::remove(self, tx, key)
    }

    fn insert(&self, tx: &mut Tx<'_>, key: &[u8], value: &[u8]) -> Result<bool> {
        WbTree::insert(self, tx, key, value)
    }

    fn update(&self, tx: &mut Tx<'_>, key: &[u8], value: &[u8]) -> Result<bool> {
        WbTree::update(self, tx, key, value)
    }

    fn compare_and_swap(
        &self,
        tx: &mut Tx<'_>,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        WbTree::compare_and_swap(self, tx, key, expected, new)
    }

    fn modify(
        &self,
        tx: &mut Tx<'_>,
        key: &[u8],
        change: impl FnOnce(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<bool> {
        WbTree::modify(self, tx, key, change)
    }

    fn pop_first(&self, tx: &mut Tx<'_>) -> Result<Option<Record>> {
        WbTree::pop_first(self, tx)
    }

    fn pop_last(&self, tx: &mut Tx<'_>) -> Result<Option<Record>> {
        WbTree::pop_last(self, tx)
    }

    fn remove_range(&self, tx: &mut Tx<'_>, bounds: KeyBounds<'_>) -> Result<u64> {
        WbTree::remove_range::<&[u8]>(self, tx, bounds)
    }

    fn remove_range_in_groups<'l>(
        &self,
        bounds: KeyBounds<'_>,
        begin: impl FnMut() -> Tx<'l>,
    ) -> Result<u64> {
        WbTree::remove_range_in_groups::<&[u8]>(self, bounds, begin)
    }

    fn clear(&self, tx: &mut Tx<'_>) -> Result<()> {
        WbTree::clear(self, tx)
    }

    fn reclaim(&self, tx: &mut Tx<'_>, steps: usize) -> Result<bool> {
        WbTree::reclaim(self, tx, steps)
    }

    fn len(&self) -> Result<u64> {
        WbTree::len(self)
    }

    fn len_in(&self, tx: &Tx<'_>) -> Result<u64> {
        WbTree::len_in(self, tx)
    }

    fn walk(&self, bounds: KeyBounds<'_>) -> impl DoubleEndedIterator<Item = Result<Record>> {
        self.range::<&[u8]>(bounds).map(owned)
    }

    fn prefix(&self, prefix: &[u8]) -> impl DoubleEndedIterator<Item = Result<Record>> {
        WbTree::prefix(self, prefix).map(owned)
    }

    fn cursor(&self) -> impl OrderedCursor {
        WbTree::cursor(self)
    }

    fn check(&self, marks: &mut Marks) -> Result<()> {
        WbTree::check(self, marks)
    }
}

impl OrderedCursor for Cursor<'_> {
    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        Cursor::seek(self, key)
    }

    fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        Cursor::seek_back(self, key)
    }

    fn seek_first(&mut self) -> Result<bool> {
        Cursor::seek_first(self)
    }

    fn seek_last(&mut self) -> Result<bool> {
        Cursor::seek_last(self)
    }

    fn next(&mut self) -> Result<bool> {
        Cursor::next(self)
    }

    fn prev(&mut self) -> Result<bool> {
        Cursor::prev(self)
    }

    fn record(&self) -> Option<Record> {
        Some((self.key()?.to_vec(), self.value()?.to_vec()))
    }
}

crate::suite!(super::WbTree);

#[test]
fn a_value_in_parts_is_limited_as_a_whole() {
    let mut bench = crate::conformance::Bench::<WbTree>::within(4 << 20);
    let part = vec![0; 64 << 20];
    let mut tx = bench.lane.begin();
    let error = bench.index.put(&mut tx, b"key", &[&part[..]; 9]).unwrap_err();
    assert!(matches!(error, Error::ValueTooLong { bytes: 603_979_776, max_bytes: 536_870_912 }), "{error}");
    // As long as a value may be, but more than this pool may hold.
    let error = bench.index.put(&mut tx, b"key", &[&part[..]; 8]).unwrap_err();
    assert!(
        matches!(&error, Error::Pool(e) if matches!(e.kind(), tembo_pool::ErrorKind::TooLarge { .. })),
        "{error}"
    );
    tx.commit().unwrap();
    bench.compare(&crate::conformance::Model::new());
}
