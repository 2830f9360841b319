//! Heaps: objects, collections and migrations against models, in full pools, with threads, through crashes.
//!
//! One executable has them all, since each links the library and compiles its generic code anew, which takes
//! longer than most of the tests. `in_memory` is apart for Miri, `types` for its lints, `kill` for the
//! processes that it ends. Tests run in the order of their names: `capacity` has the longest, which so runs
//! beside the crash tests, of which only one may run at a time.

mod basics;
mod capacity;
mod collections;
mod compaction;
mod counts;
mod crash;
mod crash_collections;
mod handles;
mod late_commit;
mod lines;
mod long_lists;
mod migrate;
mod model;
mod nesting;
mod reentry;
mod support;
mod threads;
