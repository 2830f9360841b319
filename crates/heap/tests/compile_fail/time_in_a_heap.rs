//! A moment of a clock that starts with the machine means nothing later, and no width of the machine does.
//! Twin: `small_values_may_be_absent`.
use std::num::NonZero;
use std::time::{Duration, Instant, SystemTime};
use tembo_heap::Persist;

#[derive(Persist)]
#[repr(C)]
struct Visit {
    took: Duration,
    began: Instant,
    ended: SystemTime,
    pages: NonZero<usize>,
}

fn main() {}
