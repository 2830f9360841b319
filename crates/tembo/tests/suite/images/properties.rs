//! Properties that hold for any image of a pool: it is opened or refused, and no operation on it panics or
//! runs without end. Both the fuzzing target `open_image` (in `fuzz/`) and an ordinary test drive these
//! functions.

use tembo::{FixedMap, Geometry, Map, Pool};
use tembo_pmem::Region;

/// Names of the maps of the valid image.
const MAPS: [&str; 3] = ["short", "long", "cleared"];
/// The name of its map of 8-byte keys.
const FIXED: &str = "fixed";
/// Bytes of a mutation in the input.
const MUTATION_BYTES: usize = 13;

/// The contents of a small pool with maps of several levels, large values, and records that are live.
pub(crate) fn valid_image() -> Vec<u8> {
    let bytes = 768 << 10;
    let region = Region::simulated(&vec![0; bytes], bytes as u64, None).unwrap();
    let raw = tembo_pool::Pool::create_in(region, &Geometry::tiny()).unwrap();
    let pool = Pool::from_pool(raw.clone());
    let maps = MAPS.map(|name| pool.open_map(name).unwrap());
    let mut batch = pool.batch().unwrap();
    for i in 0..500u32 {
        let mixed = i.wrapping_mul(2_654_435_761).to_be_bytes();
        batch.put(&maps[0], &mixed, &mixed).unwrap();
        if i < 200 {
            let key = [&[b'k'; 30][..], &mixed[..1], &[0; 30], &mixed].concat();
            batch.put(&maps[1], &key, &vec![i as u8; 1 << (i % 9)]).unwrap();
            batch.put(&maps[2], &key, b"").unwrap();
        }
    }
    batch.put(&maps[1], b"large", &[7; 40_000]).unwrap();
    batch.commit().unwrap();
    maps[2].clear().unwrap();
    maps[2].put("after", "the clearing").unwrap();
    maps[0].remove(0u32.to_be_bytes()).unwrap();
    let fixed = pool.open_fixed_map(FIXED).unwrap();
    for key in 0..700u64 {
        fixed.put(key.wrapping_mul(0x9e37_79b9_7f4a_7c15), key).unwrap();
    }
    fixed.put(u64::MAX, 1).unwrap();
    let image: Vec<u8> = (0..raw.region().len() / 8)
        .flat_map(|word| raw.region().load_u64(8 * word).unwrap().to_le_bytes())
        .collect();
    image
}

/// Changes the image as `data` says: each few bytes are a kind of change, a place and a value.
pub(crate) fn mutate(image: &mut Vec<u8>, data: &[u8]) {
    for change in data.chunks_exact(MUTATION_BYTES) {
        let words = (image.len() / 8) as u64;
        if words < 16 {
            return;
        }
        let place = u64::from(u32::from_le_bytes(change[1..5].try_into().unwrap()));
        let value = u64::from_le_bytes(change[5..].try_into().unwrap());
        // Half of the changes are to the first part, where the pool's own structures are.
        let word = if change[0] & 1 == 0 { place % words } else { place % words.min(2048) } as usize;
        let at = 8 * word;
        let old = u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
        let new = match change[0] >> 1 & 7 {
            0 => value,
            1 => old ^ 1 << (value % 64),
            2 => (value % (image.len() as u64)) & !15,
            3 => old.wrapping_add(value % 4096).wrapping_sub(2048),
            4 => 0,
            5 => old & !0xFFFF | value & 0xFFFF,
            6 => {
                // A line of another place, such as a whole node's first.
                let (from, to) = ((value % (words / 8)) as usize * 64, at & !63);
                image.copy_within(from..from + 64, to);
                continue;
            }
            _ if value % 16 == 0 => {
                image.truncate((at & !63).max(4096));
                continue;
            }
            _ => u64::MAX - value % 1024,
        };
        image[at..at + 8].copy_from_slice(&new.to_le_bytes());
    }
}

/// Opens the image, if that is possible, and does everything with it.
pub(crate) fn exercise(image: &[u8]) {
    let region = Region::simulated(image, 2 * image.len() as u64 + 4096, None).unwrap();
    let Ok(pool) = tembo_pool::Pool::open_in(region) else { return };
    let pool = Pool::from_pool(pool);
    let sound = pool.check().is_ok();
    let _ = pool.stats();
    let names = pool.map_names().unwrap_or_default();
    for name in &names {
        let Ok(Some(map)) = pool.find_map(name) else { continue };
        let keys = walk(&map, image.len());
        write(&pool, &map, &keys);
        let _ = walk(&map, image.len());
    }
    for name in MAPS {
        if let Ok(map) = pool.open_map(name) {
            write(&pool, &map, &[]);
            let _ = map.clear();
        }
    }
    for name in pool.fixed_map_names().unwrap_or_default() {
        if let Ok(Some(map)) = pool.find_fixed_map(&name) {
            use_fixed(&map, image.len());
        }
    }
    let _ = pool.open_fixed_map(FIXED).map(|map| use_fixed(&map, image.len()));
    let _ = pool.trim();
    let checked = pool.check();
    assert!(!sound || checked.is_ok(), "a sound pool was damaged by using it: {}", checked.unwrap_err());
}

/// Reads a map forwards, backwards and by key; returns some of its keys.
fn walk(map: &Map, image_bytes: usize) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    // A record has at least a word and is met once.
    let most = image_bytes / 4;
    let entries = map.iter().take_while(Result::is_ok).flatten();
    for (i, entry) in entries.enumerate() {
        assert!(i <= most, "a walk without end");
        let sum = entry.value().iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        if keys.len() < 64 || sum == 0 && keys.len() < 128 {
            keys.push(entry.key().to_vec());
        }
    }
    let backwards = map.iter().rev().take_while(Result::is_ok).count();
    assert!(backwards <= most, "a walk without end");
    let _ = (map.first(), map.last(), map.len());
    for key in &keys {
        let _ = map.get(key);
    }
    let _ = map.prefix("k").take_while(Result::is_ok).count();
    keys
}

fn write(pool: &Pool, map: &Map, keys: &[Vec<u8>]) {
    for (i, key) in keys.iter().enumerate() {
        let _ = match i % 3 {
            0 => map.remove(key).map(drop),
            1 => map.put(key, vec![1; i * 50]).map(drop),
            _ => map.put([&key[..], b"!"].concat(), b"new").map(drop),
        };
    }
    let Ok(mut batch) = pool.batch() else { return };
    for i in 0..40u32 {
        let key = i.wrapping_mul(0x0101_8765).to_be_bytes();
        let before = batch.savepoint();
        let done = batch.put(map, &key, &[i as u8; 100]).is_ok() && batch.remove(map, &key).is_ok();
        if !done || i % 5 == 0 {
            batch.rollback_to(before);
        }
    }
    let _ = batch.reclaim(map, 20);
    let _ = batch.commit();
}

/// Reads a map of 8-byte keys in every way, and changes it.
fn use_fixed(map: &FixedMap, image_bytes: usize) {
    let most = image_bytes / 16 + 1;
    let mut keys = Vec::new();
    for (i, record) in map.iter().take_while(Result::is_ok).flatten().enumerate() {
        assert!(i <= most, "a walk without end");
        keys.push(record.0);
    }
    assert!(map.iter().rev().take_while(Result::is_ok).count() <= most, "a walk without end");
    let _ = (map.first(), map.last(), map.count());
    for (i, key) in keys.iter().take(200).enumerate() {
        let _ = match i % 4 {
            0 => map.remove(*key).map(drop),
            1 => map.update(*key, 1).map(drop),
            2 => map.put(key.wrapping_add(1), 2).map(drop),
            _ => map.get(*key).map(drop),
        };
    }
    for i in 0..300 {
        let _ = map.insert(i, i);
    }
    let _ = map.remove_range(..1 << 62);
}
