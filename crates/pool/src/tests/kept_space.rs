//! Transactions that free something in a pool that is full.

use super::tiny_options;
use crate::{KeptSpace, Pool};

/// Blocks of many sizes, one after the other: each size needed a slab of its own for every block, so that a
/// group of removals found no room for its few small nodes.
#[test]
fn a_slab_of_the_kept_space_serves_all_blocks_of_a_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let options = crate::Options { max_bytes: Some(16 << 20), geometry: None, ..tiny_options() };
    let pool = Pool::open(dir.path().join("full.pool"), &options).unwrap();
    let mut lane = pool.lane().unwrap();
    for bytes in [100_000, 10_000, 1000] {
        loop {
            let mut tx = lane.begin();
            match tx.alloc(bytes).and_then(|_| tx.commit()) {
                Ok(_) => {}
                Err(e) if e.is_full() => break,
                Err(e) => panic!("{e}"),
            }
        }
    }
    let mut tx = lane.begin();
    let refused = (0..100_000).find_map(|_| tx.alloc(64).err()).unwrap();
    assert!(refused.is_full());
    drop(tx);
    let mut tx = lane.begin();
    tx.use_kept_space(KeptSpace::Half);
    for block in 0..200 {
        tx.alloc([64, 96, 160, 224, 288][block % 5]).unwrap_or_else(|e| panic!("block {block}: {e}"));
    }
    tx.commit().unwrap();
}
