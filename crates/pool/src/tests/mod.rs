//! Tests of the pool as a whole.

mod counts;
mod crash;
mod cut;
mod damage;
mod evacuation;
mod features;
mod files;
mod forged_records;
mod hole_crashes;
mod journal;
mod journal_crashes;
mod kept_space;
mod lane_crashes;
mod lanes;
mod limbo;
mod line_owners;
mod misuse;
mod model;
mod shared_bitmaps;
mod thread_crashes;
mod zero;

use crate::{Geometry, Options, Pool, Result};
use tembo_pmem::Region;

/// A pool in simulated memory, without an observer.
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

fn try_open(image: &[u8]) -> Result<Pool> {
    Pool::open_in(Region::simulated(image, image.len() as u64, None).unwrap())
}

fn open(image: &[u8]) -> Pool {
    try_open(image).unwrap()
}

fn word(image: &[u8], off: u64) -> u64 {
    u64::from_le_bytes(image[off as usize..][..8].try_into().unwrap())
}

fn set_word(image: &mut [u8], off: u64, value: u64) {
    image[off as usize..][..8].copy_from_slice(&value.to_le_bytes());
}
