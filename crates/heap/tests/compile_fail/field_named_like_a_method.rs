//! Accessors have the names of fields, and places have methods of their own. Twin:
//! `accessors_are_named_like_their_fields`.
use tembo_heap::Persist;

#[derive(Persist)]
#[repr(C)]
struct Flow {
    from: u64,
    into: u64,
    clone: bool,
    r#eq: u8,
    hash: u64,
}

fn main() {}
