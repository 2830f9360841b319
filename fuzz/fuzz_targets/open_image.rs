//! Any image as a pool: changes of a valid one, or bytes of any kind. The properties are those of the store's
//! own tests.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

#[path = "../../crates/tembo/tests/suite/images/properties.rs"]
mod properties;

static VALID: LazyLock<Vec<u8>> = LazyLock::new(properties::valid_image);

fuzz_target!(|data: &[u8]| {
    let Some((kind, rest)) = data.split_first() else { return };
    if *kind == 0 {
        properties::exercise(rest);
        return;
    }
    let mut image = VALID.clone();
    properties::mutate(&mut image, rest);
    properties::exercise(&image);
});
