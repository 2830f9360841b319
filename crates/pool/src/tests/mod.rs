//! Tests of the pool as a whole.

mod counts;
mod crash;
mod features;
mod files;
mod lanes;
mod model;
mod review;
mod zero;

use crate::{Geometry, Options, Pool};
use tembo_pmem::Region;

/// A pool in simulated memory, without anyone watching.
fn tiny_pool(bytes: usize) -> Pool {
    let region = Region::simulated(&vec![0; bytes], bytes as u64, None).unwrap();
    Pool::create_in(region, &Geometry::tiny()).unwrap()
}

/// Options for a small pool file.
pub(crate) fn tiny_options() -> Options {
    Options { create: true, initial_bytes: 256 << 10, geometry: Some(Geometry::tiny()), ..Options::default() }
}

/// The whole contents of a pool, as a crash at this moment without any loss would leave them.
fn image_of(pool: &Pool) -> Vec<u8> {
    let region = pool.region();
    // SAFETY: the tests that use this write from one thread only.
    unsafe { region.bytes(0, region.len()).unwrap() }.to_vec()
}
