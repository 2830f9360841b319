//! Any bytes as a file of Redis, behind a valid beginning too, and as a payload. The properties are those of
//! the rdb crate's own tests.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/rdb/tests/suite/properties.rs"]
mod properties;

fuzz_target!(|data: &[u8]| {
    properties::payloads(data);
    for file in [data, &[b"REDIS0012", data].concat()] {
        properties::files(file);
        properties::rewritten(file);
    }
});
