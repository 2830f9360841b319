//! Pools and what is in them, through the interface of the crate that programs use.
//!
//! One executable has them all, since each links every crate and compiles generic code anew, which takes
//! longer than most of the tests. `fork`, `kill` and `space` are apart: they need processes of their own.

mod compaction;
mod compaction_kinds;
mod dropping;
mod exact_fits;
mod fixed;
mod format;
mod full;
mod hash;
mod heap;
mod images;
mod map;
mod nested;
mod shrinking;
mod stores;
mod ten_days;
mod tutorial;
mod unknown;
mod versions;
mod waiting;
