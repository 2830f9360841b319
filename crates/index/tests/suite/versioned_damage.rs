//! Damaged CDDS structures: every operation ends with an error or an answer, whatever the words of the
//! image are.

use crate::structures::{Structure, equal_hash_key, for_each_structure, image};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tembo_index::{Error, VersionedMap, VersionedSnapshot};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};

for_each_structure!(a_damaged_map_gives_errors_and_nothing_worse);

const BYTES: usize = 384 << 10;

fn undamaged<S: Structure>() -> Vec<u8> {
    let region = Region::simulated(&vec![0; BYTES], 1 << 22, None).unwrap();
    let pool = Pool::create_in(region, &Geometry::tiny()).unwrap();
    let map = S::create(&pool, "map");
    let put = |i: u64| {
        map.put(format!("key{:04}", i * 7 % 300).as_bytes(), &vec![i as u8; i as usize % 40]).unwrap();
    };
    (0..300).for_each(put);
    (0..10).for_each(|i| _ = map.put(&equal_hash_key(i), b"equal").unwrap());
    map.keep(&map.snapshot(), "first").unwrap();
    (0..150).for_each(put);
    map.keep(&map.snapshot(), "second").unwrap();
    (0..80).for_each(|i| _ = map.remove(format!("key{i:04}").as_bytes()).unwrap());
    drop(map);
    image(&pool)
}

/// Does everything; returns how many operations failed.
fn use_map<S: Structure>(image: &[u8]) -> Result<usize, Error> {
    let pool = Pool::open_in(Region::simulated(image, 1 << 22, None).unwrap())?;
    let Some(map) = VersionedMap::<S>::open(&pool, "map")? else { return Ok(0) };
    let mut failures = 0;
    let mut note = |outcome: Result<(), Error>| failures += usize::from(outcome.is_err());
    note(pool.marks().map_err(Error::from).and_then(|mut marks| {
        map.check(&mut marks)?;
        Ok(marks.finish().map(drop)?)
    }));
    let versions: Vec<u64> = map.kept().iter().map(|kept| kept.version).chain([map.version()]).collect();
    for version in &versions {
        let snapshot = match map.snapshot_at(*version) {
            Ok(snapshot) => snapshot,
            Err(e) => {
                note(Err(e));
                continue;
            }
        };
        // A range of leaves ends somewhere even if its nodes are shared in wrong ways.
        note(snapshot.iter().take(5000).try_for_each(|entry| entry.map(drop)));
        if let Some(tree) = (&snapshot as &dyn std::any::Any).downcast_ref::<VersionedSnapshot>() {
            note(tree.iter().rev().take(5000).try_for_each(|entry| entry.map(drop)));
        }
        (0..20).for_each(|i| note(snapshot.get(format!("key{:04}", i * 15).as_bytes()).map(drop)));
        note(map.diff(versions[0], *version).map(drop));
    }
    (0..40).for_each(|i| note(map.put(format!("key{:04}", i * 7).as_bytes(), &[9; 30]).map(drop)));
    (0..10).for_each(|i| note(map.put(&equal_hash_key(i), &[i as u8; 9]).map(drop)));
    (0..10).for_each(|i| note(map.remove(&equal_hash_key(i)).map(drop)));
    (0..40).for_each(|i| note(map.remove(format!("key{:04}", i * 6).as_bytes()).map(drop)));
    note(map.rollback_to(versions[0]).map(drop));
    note(map.drop_kept("first").map(drop));
    note(map.collect(300).map(drop));
    note(map.batch(|batch| (0..200).try_for_each(|i: u64| batch.put(&i.to_be_bytes(), b"v").map(drop))));
    Ok(failures)
}

fn a_damaged_map_gives_errors_and_nothing_worse<S: Structure>() {
    let image = undamaged::<S>();
    assert_eq!(use_map::<S>(&image).unwrap(), 0);
    let rounds = std::env::var("TEMBO_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(400);
    // The pool's own structures are for its own tests.
    let first = 32 << 10;
    let (mut refused, mut failing) = (0, 0);
    for seed in 0..rounds {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut damaged = image.clone();
        let used: Vec<usize> =
            (first..damaged.len()).step_by(8).filter(|off| image[*off..off + 8] != [0; 8]).collect();
        for _ in 0..rng.random_range(1..20) {
            let off = used[rng.random_range(0..used.len())];
            let old = u64::from_ne_bytes(*damaged[off..].first_chunk().unwrap());
            let other = used[rng.random_range(0..used.len())];
            let new = match rng.random_range(0..6) {
                0 => old ^ 1 << rng.random_range(0..64),
                1 => u64::MAX - rng.random_range(0..3),
                2 => u64::from_ne_bytes(*image[other..].first_chunk().unwrap()),
                3 => rng.random_range(0..200),
                4 => rng.random_range(0..image.len() as u64) & !15,
                _ => rng.random(),
            };
            damaged[off..off + 8].copy_from_slice(&new.to_ne_bytes());
        }
        println!("seed {seed}");
        match use_map::<S>(&damaged) {
            Ok(failures) => failing += usize::from(failures > 0),
            Err(_) => refused += 1,
        }
    }
    println!("{rounds} damaged images: {refused} refused, {failing} with errors");
    assert!(failing > rounds as usize / 2);
}
