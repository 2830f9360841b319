//! Damaged CDDS trees: every operation ends with an error or an answer, whatever the words of the image are.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tembo_index::{CddsTree, Error};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};

const BYTES: usize = 384 << 10;

fn image() -> Vec<u8> {
    let region = Region::simulated(&vec![0; BYTES], 1 << 22, None).unwrap();
    let pool = Pool::create_in(region, &Geometry::tiny()).unwrap();
    let tree = CddsTree::create(&pool, "tree").unwrap();
    let put = |i: u64| {
        tree.put(format!("key{:04}", i * 7 % 300).as_bytes(), &vec![i as u8; i as usize % 40]).unwrap();
    };
    (0..300).for_each(put);
    tree.keep(&tree.snapshot(), "first").unwrap();
    (0..150).for_each(put);
    tree.keep(&tree.snapshot(), "second").unwrap();
    (0..80).for_each(|i| _ = tree.remove(format!("key{i:04}").as_bytes()).unwrap());
    drop(tree);
    let region = pool.region();
    let words = (0..region.len()).step_by(8).map(|off| region.load_u64(off).unwrap());
    words.flat_map(u64::to_ne_bytes).collect()
}

/// Does everything; returns how many operations failed.
fn use_tree(image: &[u8]) -> Result<usize, Error> {
    let pool = Pool::open_in(Region::simulated(image, 1 << 22, None).unwrap())?;
    let Some(tree) = CddsTree::open(&pool, "tree")? else { return Ok(0) };
    let mut failures = 0;
    let mut note = |outcome: Result<(), Error>| failures += usize::from(outcome.is_err());
    note(pool.marks().map_err(Error::from).and_then(|mut marks| {
        tree.check(&mut marks)?;
        Ok(marks.finish().map(drop)?)
    }));
    let versions: Vec<u64> = tree.kept().iter().map(|kept| kept.version).chain([tree.version()]).collect();
    for version in &versions {
        let snapshot = match tree.snapshot_at(*version) {
            Ok(snapshot) => snapshot,
            Err(e) => {
                note(Err(e));
                continue;
            }
        };
        // A range of leaves ends somewhere even if its nodes are shared in wrong ways.
        note(snapshot.iter().take(5000).try_for_each(|entry| entry.map(drop)));
        note(snapshot.iter().rev().take(5000).try_for_each(|entry| entry.map(drop)));
        (0..20).for_each(|i| note(snapshot.get(format!("key{:04}", i * 15).as_bytes()).map(drop)));
        note(tree.diff(versions[0], *version).map(drop));
    }
    (0..40).for_each(|i| note(tree.put(format!("key{:04}", i * 7).as_bytes(), &[9; 30]).map(drop)));
    (0..40).for_each(|i| note(tree.remove(format!("key{:04}", i * 6).as_bytes()).map(drop)));
    note(tree.rollback_to(versions[0]).map(drop));
    note(tree.drop_kept("first").map(drop));
    note(tree.collect(300).map(drop));
    note(tree.batch(|batch| (0..200).try_for_each(|i: u64| batch.put(&i.to_be_bytes(), b"v").map(drop))));
    Ok(failures)
}

#[test]
fn a_damaged_tree_gives_errors_and_nothing_worse() {
    let image = image();
    assert_eq!(use_tree(&image).unwrap(), 0);
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
        match use_tree(&damaged) {
            Ok(failures) => failing += usize::from(failures > 0),
            Err(_) => refused += 1,
        }
    }
    println!("{rounds} damaged images: {refused} refused, {failing} with errors");
    assert!(failing > rounds as usize / 2);
}
