//! File descriptors end with the process. Twin: `text_lies_in_arrays`.
use std::fs::File;
use std::os::fd::OwnedFd;
use tembo_heap::Persist;

#[derive(Persist)]
#[repr(C)]
struct Journal {
    file: File,
    socket: OwnedFd,
    bytes: u64,
}

fn main() {}
