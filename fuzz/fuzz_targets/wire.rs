//! Any bytes as requests, as replies and as numbers. The properties, and the reading of the input's first
//! bytes, are those of the wire crate's own tests.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/wire/tests/wire/properties.rs"]
mod properties;

fuzz_target!(|data: &[u8]| {
    properties::requests(data);
    properties::replies(data);
    properties::numbers(data.get(8..).unwrap_or_default());
});
