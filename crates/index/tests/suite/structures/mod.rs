//! The shared parts of both structures' tests: each test is written once, for whichever of them.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use tembo_index::{
    HashStructure, TreeStructure, VersionedHash, VersionedMap, VersionedSnapshot, VersionedStructure,
};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The seed of every table, so that its nodes are the same each time.
pub(crate) const SEED: u64 = 0x5EED;

/// A structure under test.
pub(crate) trait Structure: VersionedStructure + Send + Sync + std::fmt::Debug {
    const IS_ORDERED: bool;

    fn create(pool: &Pool, name: &str) -> VersionedMap<Self>;

    /// Whether a load of so many bytes at once is that of a node.
    fn is_node_load(bytes: u64) -> bool;
}

impl Structure for TreeStructure {
    const IS_ORDERED: bool = true;

    fn create(pool: &Pool, name: &str) -> VersionedMap<TreeStructure> {
        VersionedMap::create(pool, name).unwrap()
    }

    fn is_node_load(bytes: u64) -> bool {
        bytes == 960
    }
}

impl Structure for HashStructure {
    const IS_ORDERED: bool = false;

    fn create(pool: &Pool, name: &str) -> VersionedMap<HashStructure> {
        VersionedHash::create_with_seed(pool, name, SEED).unwrap()
    }

    /// Nodes with more than one word behind their heads, which are loaded word by word.
    fn is_node_load(bytes: u64) -> bool {
        bytes > 8
    }
}

/// Makes tests of functions that take a structure.
macro_rules! for_each_structure {
    ($($test:ident),+ $(,)?) => {
        mod tree {
            $(#[test] fn $test() { super::$test::<tembo_index::TreeStructure>() })+
        }
        mod hash {
            $(#[test] fn $test() { super::$test::<tembo_index::HashStructure>() })+
        }
    };
}
pub(crate) use for_each_structure;

pub(crate) fn new_pool(bytes: usize) -> Pool {
    let region = Region::simulated(&vec![0; bytes], 1 << 30, None).unwrap();
    Pool::create_in(region, &Geometry { zone_chunks: 1 << 12, ..Geometry::default() }).unwrap()
}

pub(crate) fn new_map<S: Structure>() -> VersionedMap<S> {
    S::create(&new_pool(8 << 20), "map")
}

pub(crate) fn image(pool: &Pool) -> Vec<u8> {
    let region = pool.region();
    let words = (0..region.len()).step_by(8).map(|off| region.load_u64(off).unwrap());
    words.flat_map(u64::to_ne_bytes).collect()
}

pub(crate) fn check<S: VersionedStructure>(map: &VersionedMap<S>) {
    let mut marks = map.pool().marks().unwrap();
    map.check(&mut marks).unwrap();
    marks.finish().unwrap();
}

pub(crate) fn contents<S: VersionedStructure>(snapshot: &VersionedSnapshot<S>) -> Model {
    let mut found = Model::new();
    for entry in snapshot.iter() {
        let entry = entry.unwrap();
        assert!(found.insert(entry.key().to_vec(), entry.value().to_vec()).is_none(), "a key twice");
    }
    found
}

/// Keys that all have one hash under [`SEED`]. XXH3 multiplies the words of a key of this length with each
/// other after it has combined them with its constants and the seed; the first becomes zero here, so that
/// the second does not matter.
pub(crate) fn equal_hash_key(i: u32) -> Vec<u8> {
    const FIRST_OF_SECRET: u64 = 0xBE4B_A423_396C_FEB8;
    let mut key = [0x77; 32];
    key[..8].copy_from_slice(&FIRST_OF_SECRET.wrapping_add(SEED).to_le_bytes());
    key[8..12].copy_from_slice(&i.to_be_bytes());
    key.to_vec()
}

/// Keys of which many share the first bits of their hashes under [`SEED`], up to more than 30.
pub(crate) fn near_hash_key(i: u32) -> Vec<u8> {
    static KEYS: OnceLock<Vec<[u8; 4]>> = OnceLock::new();
    let keys = KEYS.get_or_init(|| {
        let mut all: Vec<(u64, [u8; 4])> =
            (0..1_u32 << 17).map(|i| (xxh3_64_with_seed(&i.to_be_bytes(), SEED), i.to_be_bytes())).collect();
        all.sort_unstable();
        let pairs = all.windows(2).filter(|pair| pair[0].0 >> 42 == pair[1].0 >> 42);
        pairs.flat_map(|pair| [pair[0].1, pair[1].1]).collect()
    });
    keys[i as usize % keys.len()].to_vec()
}

#[test]
fn keys_collide_as_they_should() {
    let hash = |key: &[u8]| xxh3_64_with_seed(key, SEED);
    assert_ne!(equal_hash_key(1), equal_hash_key(2));
    assert!((0..100).all(|i| hash(&equal_hash_key(i)) == hash(&equal_hash_key(0))));
    assert!((0..100).all(|i| hash(&near_hash_key(2 * i)) >> 42 == hash(&near_hash_key(2 * i + 1)) >> 42));
}
