//! The indexes: operations against models, crashes at every step, threads beside each other, histories,
//! costs, and their protocols under a model checker.
//!
//! One executable has them all, since each links the library and compiles its generic code anew, which takes
//! longer than most of the tests.

mod concurrent;
mod concurrent_crash;
mod conformance;
mod counting;
mod counts;
mod crash;
mod crashes;
mod dropped;
mod groups;
mod linearizable;
mod protocol;
mod runs;
mod snapshot_scan;
mod stopped_groups;
mod structures;
mod u64tree;
mod u64tree_compaction;
mod u64tree_crash;
mod versioned;
mod versioned_compaction;
mod versioned_concurrent;
mod versioned_counts;
mod versioned_crash;
mod versioned_damage;
mod versioned_groups;
mod versioned_parts;
mod versioned_stamps;
mod wbtree;
