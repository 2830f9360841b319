//! Only layouts that no compiler may change are written down. Twin: `enums_tell_their_variants`.
use tembo_heap::{Persist, Plain};

#[derive(Clone, Copy, Persist, Plain)]
struct NoRepr {
    a: u8,
    b: u32,
}

#[derive(Persist)]
#[repr(C, packed)]
struct Packed {
    a: u8,
    b: u32,
}

#[derive(Persist)]
#[repr(transparent)]
struct Transparent(u32);

#[derive(Persist)]
enum NoTag {
    A,
    B(u32),
}

#[derive(Persist)]
#[repr(C, u32)]
enum BothReprs {
    A,
    B(u32),
}

#[derive(Persist)]
#[repr(isize)]
enum WidthOfTheMachine {
    A,
    B(u32),
}

#[derive(Persist)]
#[repr(C)]
union Union {
    a: u8,
    b: u32,
}

#[derive(Persist)]
enum Nothing {}

#[derive(Persist)]
#[persist(rename = "Other")]
#[repr(C)]
struct UnknownOption;

fn main() {}
