//! The operations of both heaps.

use crate::engines::Result;

/// A hash table. Every change is a transaction of its own, durable when the call returns.
pub(super) trait HashTable {
    const NAME: &'static str;

    /// Inserts into the hash table a key that is not there.
    fn insert(&mut self, key: u64, value: u64) -> Result<()>;

    /// Changes the value of a key that is there.
    fn update(&mut self, key: u64, value: u64) -> Result<()>;

    /// Removes a key that is there.
    fn remove(&mut self, key: u64) -> Result<()>;

    /// The value of a key.
    fn lookup(&mut self, key: u64) -> Result<Option<u64>>;
}

/// An open heap, with a hash table in it; changes are as durable as those of the table.
pub(super) trait Side: HashTable {
    /// A transaction that changes nothing.
    fn empty(&mut self) -> Result<()>;

    /// Writes the 8 words of each of these objects, to which a table leads.
    fn write(&mut self, indexes: &[u32], word: u64) -> Result<()>;

    /// Writes the 8 words of an element of an array.
    fn write_element(&mut self, index: u32, word: u64) -> Result<()>;

    /// The last word of an object.
    fn read(&mut self, index: u32) -> Result<u64>;

    /// Allocates an object of 64 bytes and links it in front of a list.
    fn push(&mut self, word: u64) -> Result<()>;

    /// Allocates an object of 64 bytes and links it where another was, which is freed.
    fn replace(&mut self, index: u32, word: u64) -> Result<()>;

    /// As [`insert`](Self::insert), in the table that knows how many entries it has.
    fn map_insert(&mut self, key: u64, value: u64) -> Result<()>;

    /// As [`update`](Self::update), there.
    fn map_update(&mut self, key: u64, value: u64) -> Result<()>;

    /// As [`remove`](Self::remove), there.
    fn map_remove(&mut self, key: u64) -> Result<()>;

    /// As [`lookup`](Self::lookup), there.
    fn map_lookup(&mut self, key: u64) -> Result<Option<u64>>;
}

/// The bucket of a key in a table of `buckets` of them, a power of two.
#[inline]
pub(super) fn bucket_of(key: u64, buckets: u64) -> u64 {
    // Keys are random words, so that any bits would do.
    (key ^ key >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - buckets.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::super::native::{Floor, Pmemobj};
    use super::super::tembo::Tembo;
    use super::*;

    const OBJECTS: u64 = 64;
    const BUCKETS: u64 = 8;
    const BYTES: usize = 64 << 20;

    /// Many keys to a bucket, so that chains are walked and cut in the middle.
    fn is_a_table<T: HashTable>(table: &mut T) {
        for (key, value) in (0..50).map(|key| (key, key * 3)) {
            table.insert(key, value).unwrap();
        }
        assert!(table.insert(7, 1).is_err(), "{}", T::NAME);
        for key in (0..50).step_by(3) {
            table.remove(key).unwrap();
            assert!(table.remove(key).is_err(), "{}", T::NAME);
        }
        for key in (1..50).step_by(3) {
            table.update(key, key + 1000).unwrap();
        }
        assert!(table.update(0, 1).is_err(), "{}", T::NAME);
        for key in 0..50 {
            let expected = [None, Some(key + 1000), Some(key * 3)][key as usize % 3];
            assert_eq!(table.lookup(key).unwrap(), expected, "{}, key {key}", T::NAME);
        }
        (0..50).filter(|key| key % 3 != 0).try_for_each(|key| table.remove(key)).unwrap();
    }

    fn has_a_table_that_counts<S: Side>(side: &mut S) {
        for key in 0..50 {
            side.map_insert(key, key).unwrap();
            side.map_update(key, !key).unwrap();
            assert_eq!(side.map_lookup(key).unwrap(), Some(!key), "{}", S::NAME);
        }
        (0..50).try_for_each(|key| side.map_remove(key)).unwrap();
        assert_eq!(side.map_lookup(7).unwrap(), None, "{}", S::NAME);
    }

    fn has_objects<S: Side>(side: &mut S) {
        side.empty().unwrap();
        side.write(&[3, 5, 63], 17).unwrap();
        side.write_element(5, 1).unwrap();
        side.push(99).unwrap();
        assert_eq!([3, 4, 5, 63].map(|i| side.read(i).unwrap()), [17, 0, 17, 17], "{}", S::NAME);
        side.replace(5, 21).unwrap();
        assert_eq!([3, 4, 5, 63].map(|i| side.read(i).unwrap()), [17, 0, 21, 17], "{}", S::NAME);
    }

    #[test]
    fn both_heaps_do_what_is_measured_and_have_it_when_they_are_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (folder.path().join("tembo"), folder.path().join("pmemobj"));
        {
            let mut tembo = Tembo::open(&ours, BYTES, OBJECTS, BUCKETS, true, false).unwrap();
            let mut pmemobj = Pmemobj::open(&theirs, BYTES, OBJECTS, BUCKETS, true).unwrap();
            is_a_table(&mut tembo);
            is_a_table(&mut pmemobj);
            has_a_table_that_counts(&mut tembo);
            has_a_table_that_counts(&mut pmemobj);
            has_objects(&mut tembo);
            has_objects(&mut pmemobj);
        }
        let mut tembo = Tembo::open(&ours, BYTES, OBJECTS, BUCKETS, false, false).unwrap();
        let mut pmemobj = Pmemobj::open(&theirs, BYTES, OBJECTS, BUCKETS, false).unwrap();
        assert_eq!([3, 4, 5].map(|i| tembo.read(i).unwrap()), [17, 0, 21]);
        assert_eq!([3, 4, 5].map(|i| pmemobj.read(i).unwrap()), [17, 0, 21]);
    }

    #[test]
    fn the_floor_writes_what_the_heaps_write() {
        let folder = tempfile::tempdir().unwrap();
        let mut floor = Floor::open(&folder.path().join("floor"), BYTES, OBJECTS, BUCKETS).unwrap();
        is_a_table(&mut floor);
        // More records than the log holds at a time.
        for word in 0..4000 {
            floor.write(&[3, 5, 63], word).unwrap();
            floor.push(word).unwrap();
        }
        assert_eq!([3, 4, 5, 63].map(|i| floor.read(i).unwrap()), [3999, 0, 3999, 3999]);
    }
}
