//! The store: transactions and their isolation, history, backups, limits, costs, damage, and crashes.
//!
//! One executable has them all, since each links the library and compiles its generic code anew, which takes
//! longer than most of the tests. `kill` is apart, which needs processes of its own, and `model`, which
//! replaces modules of the library.

mod api;
mod backup;
mod bad_input;
mod compaction;
mod concurrent_crash;
mod counts;
mod crash;
mod crash_restore;
mod deleting;
mod hermitage;
mod history;
mod history_crash;
mod isolation;
mod lanes;
mod leftovers;
mod limits;
mod recorded;
mod remote;
mod retention;
mod threads_crash;
mod tuples;
