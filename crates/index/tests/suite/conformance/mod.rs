//! One suite for every ordered index: what any of them must do, judged by a `BTreeMap`.
//!
//! An index takes part by implementing [`OrderedIndex`] and naming itself to [`suite!`](crate::suite).

pub(crate) mod cursors;
pub(crate) mod model;
pub(crate) mod ranges;
pub(crate) mod readers;
pub(crate) mod scans;
pub(crate) mod space;

use std::collections::BTreeMap;
use std::ops::Bound;
use tembo_index::Result;
use tembo_pmem::Region;
use tembo_pool::{Geometry, Lane, Marks, Pin, Pool, Tx};

/// The interface of an index for the suite.
pub(crate) trait OrderedIndex: Sized + Clone + Send + Sync + 'static {
    fn create(tx: &mut Tx<'_>, name: &str) -> Result<Self>;
    fn open(pool: &Pool, name: &str) -> Result<Option<Self>>;
    fn get(&self, pin: &Pin, key: &[u8]) -> Result<Option<Vec<u8>>>;
    fn get_in(&self, tx: &Tx<'_>, key: &[u8]) -> Result<Option<Vec<u8>>>;
    fn put(&self, tx: &mut Tx<'_>, key: &[u8], value: &[u8]) -> Result<bool>;
    fn remove(&self, tx: &mut Tx<'_>, key: &[u8]) -> Result<bool>;
    fn insert(&self, tx: &mut Tx<'_>, key: &[u8], value: &[u8]) -> Result<bool>;
    fn update(&self, tx: &mut Tx<'_>, key: &[u8], value: &[u8]) -> Result<bool>;
    fn compare_and_swap(
        &self,
        tx: &mut Tx<'_>,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool>;
    fn modify(
        &self,
        tx: &mut Tx<'_>,
        key: &[u8],
        change: impl FnOnce(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<bool>;
    fn pop_first(&self, tx: &mut Tx<'_>) -> Result<Option<Record>>;
    fn pop_last(&self, tx: &mut Tx<'_>) -> Result<Option<Record>>;
    fn remove_range(&self, tx: &mut Tx<'_>, bounds: KeyBounds<'_>) -> Result<u64>;
    fn remove_range_in_groups<'l>(&self, bounds: KeyBounds<'_>, begin: impl FnMut() -> Tx<'l>)
    -> Result<u64>;
    fn clear(&self, tx: &mut Tx<'_>) -> Result<()>;
    fn reclaim(&self, tx: &mut Tx<'_>, steps: usize) -> Result<bool>;
    fn len(&self) -> Result<u64>;
    fn len_in(&self, tx: &Tx<'_>) -> Result<u64>;
    fn walk(&self, bounds: KeyBounds<'_>) -> impl DoubleEndedIterator<Item = Result<Record>>;
    fn prefix(&self, prefix: &[u8]) -> impl DoubleEndedIterator<Item = Result<Record>>;
    fn cursor(&self) -> impl OrderedCursor;
    fn check(&self, marks: &mut Marks) -> Result<()>;
}

/// The interface of a cursor for the suite: moves return whether it is at a record.
pub(crate) trait OrderedCursor {
    fn seek(&mut self, key: &[u8]) -> Result<bool>;
    fn seek_back(&mut self, key: &[u8]) -> Result<bool>;
    fn seek_first(&mut self) -> Result<bool>;
    fn seek_last(&mut self) -> Result<bool>;
    fn next(&mut self) -> Result<bool>;
    fn prev(&mut self) -> Result<bool>;
    fn record(&self) -> Option<Record>;
}

/// A key and its value.
pub(crate) type Record = (Vec<u8>, Vec<u8>);
/// Both bounds of a walk.
pub(crate) type KeyBounds<'k> = (Bound<&'k [u8]>, Bound<&'k [u8]>);
/// The model that an index is compared with.
pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Every key.
pub(crate) const ALL: KeyBounds<'static> = (Bound::Unbounded, Bound::Unbounded);

/// A pool in anonymous memory that may grow to `max_bytes`.
pub(crate) fn new_pool(max_bytes: u64) -> Pool {
    let region = Region::simulated(&vec![0; 1 << 20], max_bytes, None).unwrap();
    Pool::create_in(region, &Geometry { zone_chunks: 1 << 10, lane_count: 8, ..Geometry::default() }).unwrap()
}

/// A pool, the lane of its writer, and an index in it.
pub(crate) struct Bench<I> {
    pub(crate) pool: Pool,
    pub(crate) lane: Lane,
    pub(crate) index: I,
}

impl<I: OrderedIndex> Bench<I> {
    pub(crate) fn new() -> Self {
        Bench::within(1 << 30)
    }

    pub(crate) fn within(max_bytes: u64) -> Self {
        let pool = new_pool(max_bytes);
        let mut lane = pool.lane().unwrap();
        let mut tx = lane.begin();
        let index = I::create(&mut tx, "index").unwrap();
        tx.commit().unwrap();
        Bench { pool, lane, index }
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> bool {
        let mut tx = self.lane.begin();
        let replaced = self.index.put(&mut tx, key, value).unwrap();
        tx.commit().unwrap();
        replaced
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        let mut tx = self.lane.begin();
        let removed = self.index.remove(&mut tx, key).unwrap();
        tx.commit().unwrap();
        removed
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.index.get(&self.pool.pin(), key).unwrap()
    }

    /// Everything in order, walked upwards.
    pub(crate) fn contents(&self) -> Vec<Record> {
        self.index.walk(ALL).map(Result::unwrap).collect()
    }

    /// Requires a whole index in a pool without leaks.
    pub(crate) fn check(&self) {
        let mut marks = self.pool.marks().unwrap();
        self.index.check(&mut marks).unwrap();
        marks.finish().unwrap();
    }

    /// Requires the index to be whole and to hold exactly what the model holds, by every way of asking.
    pub(crate) fn compare(&self, model: &Model) {
        self.check();
        assert_eq!(self.index.len().unwrap(), model.len() as u64);
        let expected: Vec<Record> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        assert!(self.contents() == expected, "the walk upwards differs");
        let mut down: Vec<Record> = self.index.walk(ALL).rev().map(Result::unwrap).collect();
        down.reverse();
        assert!(down == expected, "the walk downwards differs");
        for (key, value) in model {
            assert_eq!(self.get(key).as_ref(), Some(value), "{:?}", key.escape_ascii().to_string());
        }
    }
}

/// Instantiates the suite for an index.
#[macro_export]
macro_rules! suite {
    ($index:ty) => {
        $crate::suite!(@ $index, model: random_operations_agree_with_a_model, awkward_keys_are_kept_apart,
            sequences_in_every_order, everything_can_be_removed_in_every_order, long_and_short_values,
            limits_are_refused, a_batch_is_all_or_nothing, a_rolled_back_part_leaves_no_trace,
            one_batch_may_fill_and_empty_the_index, conditions_are_told_apart,
            a_change_that_panics_changes_nothing, two_indexes_share_a_batch, contents_survive_reopening);
        $crate::suite!(@ $index, scans: every_pair_of_bounds, prefixes, both_ends_meet, a_walk_goes_on_where_nodes_were_joined,
            walks_of_an_empty_index, first_and_last_of_changing_contents);
        $crate::suite!(@ $index, cursors: every_move_agrees_with_a_model, a_cursor_at_both_ends, a_cursor_on_an_empty_index,
            a_cursor_goes_on_where_the_index_changed, a_cursor_steps_over_nothing_that_stays);
        $crate::suite!(@ $index, ranges: every_pair_of_bounds_is_removed, groups_remove_what_one_transaction_does,
            a_range_in_a_batch_is_all_or_nothing, removing_ranges_gives_everything_back, ranges_go_in_a_full_pool);
        $crate::suite!(@ $index, space: clearing_is_cheap_and_gives_everything_back,
            a_cleared_index_is_used_on_at_once, clearing_again_before_the_first_is_done,
            a_full_pool_refuses_puts_and_goes_on, a_refused_change_of_structure_is_taken_back, churn_does_not_use_up_space);
        $crate::suite!(@ $index, readers: readers_always_find_what_stays, walks_always_meet_what_stays,
            a_pinned_value_outlives_its_removal, nothing_is_visible_before_the_commit);
    };
    (@ $index:ty, $module:ident: $($test:ident),+ $(,)?) => {
        mod $module {
            $( #[test] fn $test() { $crate::conformance::$module::$test::<$index>(); } )+
        }
    };
}
