//! Collections in heaps with a word that is wrong: whatever is done there ends, with an error or without, and
//! never by a panic.

use super::{Tested, turn};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::mpsc;
use std::time::Duration;
use tembo_heap::collections::{MapKey, PHashMap, PMap, PString, PVec};
use tembo_heap::{Brand, Heap, NamedBrand, Persist, ReadTx, Ref, Result, Tx};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};

/// A number, of which very many have the same hash, so that maps have buckets behind buckets.
#[derive(Persist)]
#[repr(C)]
struct Crowded {
    number: u64,
}

impl MapKey for Crowded {
    type Query = u64;
    type Owned = u64;

    fn hash(query: &u64) -> u64 {
        <u64 as MapKey>::hash(&(query % 2))
    }

    fn hash_at<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, Self>) -> Result<u64> {
        Ok(Self::hash(&tx.get(place.number())?))
    }

    fn is<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, Self>, query: &u64) -> Result<bool> {
        Ok(tx.get(place.number())? == *query)
    }

    fn new(query: &u64) -> Crowded {
        Crowded { number: *query }
    }

    fn complete<'t, B: Brand>(_: &mut Tx<'t, B>, _: Ref<'t, B, Self>, _: &u64) -> Result<()> {
        Ok(())
    }

    fn get<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, Self>) -> Result<u64> {
        tx.get(place.number())
    }
}

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    words: PHashMap<u64, u64>,
    crowded: PHashMap<Crowded, u64>,
    large: PHashMap<u64, [u8; 40]>,
    ordered: PMap<u64, u64>,
    texts: PMap<PString, u64>,
    list: PVec<PString>,
}

const BYTES: u64 = 1 << 20;

fn open<B: NamedBrand>(image: &[u8]) -> Result<Heap<B, Root>> {
    let region = Region::simulated(image, 2 * BYTES, None).unwrap();
    Heap::open_pool(Pool::open_in(region)?)
}

fn insert<B: Brand>(heap: &Heap<B, Root>, key: u64) -> Result<()> {
    heap.write(|tx, root| {
        root.words().insert(tx, &key, !key)?;
        root.crowded().insert(tx, &key, !key)?;
        root.large().insert(tx, &key, [key as u8; 40])?;
        root.ordered().insert(tx, &key, !key)?;
        root.texts().insert(tx, &text(key), key)?;
        let last = root.list().push(tx, PString::default())?;
        last.set(tx, &text(key))
    })
}

/// Some are short, some not.
fn text(key: u64) -> String {
    format!("{key:03}{}", "-".repeat((key % 37) as usize))
}

/// Looks into all of them, and changes them. An error is as good as an answer.
fn use_all<B: Brand>(heap: &Heap<B, Root>) {
    for key in 0..KEYS + 2 {
        let _ = heap.read(|tx, root| root.words().value(tx, &key));
        let _ = heap.read(|tx, root| root.crowded().value(tx, &key));
        let _ = heap.read(|tx, root| Ok(root.large().get(tx, &key)?.is_some()));
        let _ = heap.read(|tx, root| root.ordered().value(tx, &key));
        let _ = heap.read(|tx, root| root.texts().value(tx, &text(key)));
        let _ = heap.read(|tx, root| match root.list().get(tx, key as usize)? {
            Some(place) => place.get(tx).map(Some),
            None => Ok(None),
        });
    }
    let _ = heap.read(|tx, root| root.words().iter(tx)?.map(|entry| entry.map(|_| 1)).sum::<Result<u64>>());
    let _ = heap.read(|tx, root| root.crowded().iter(tx)?.map(|entry| entry.map(|_| 1)).sum::<Result<u64>>());
    let _ = heap.read(|tx, root| Ok((root.words().len(tx)?, root.large().is_empty(tx)?)));
    let _ = heap.read(|tx, root| root.ordered().iter(tx)?.map(|entry| entry.map(|_| 1)).sum::<Result<u64>>());
    let _ =
        heap.read(|tx, root| root.texts().iter(tx)?.rev().map(|entry| entry.map(|_| 1)).sum::<Result<u64>>());
    let _ = heap
        .read(|tx, root| root.list().iter(tx)?.map(|place| place.len(tx).map(|_| 1)).sum::<Result<u64>>());
    for key in (0..KEYS).step_by(5) {
        let _ = heap.write(|tx, root| root.words().remove(tx, &key));
        let _ = heap.write(|tx, root| root.crowded().remove(tx, &key));
        let _ = heap.write(|tx, root| root.large().take(tx, &key));
        let _ = heap.write(|tx, root| root.ordered().remove(tx, &key));
        let _ = heap.write(|tx, root| root.texts().take(tx, &text(key)));
        let _ = heap.write(|tx, root| root.list().pop(tx));
    }
    // They grow.
    for key in KEYS..2 * KEYS {
        let _ = insert(heap, key);
    }
    let _ = heap.write(|tx, root| root.crowded().clear(tx));
    let _ = heap.write(|tx, root| root.texts().clear(tx));
    let _ = heap.write(|tx, root| root.list().truncate(tx, 3));
}

fn words_of(pool: &Pool) -> Vec<u64> {
    let region = pool.region();
    (0..region.len()).step_by(8).map(|off| region.load_u64(off).unwrap()).collect()
}

const KEYS: u64 = 60;

/// Tries `cases` of them.
fn damage(seed: u64, cases: usize) {
    let region = Region::simulated(&vec![0; BYTES as usize], 2 * BYTES, None).unwrap();
    let pool = Pool::create_in(region, &Geometry::small()).unwrap();
    let heap: Heap<Tested, Root> = Heap::open_pool(pool.clone()).unwrap();
    let before = words_of(&pool);
    (0..KEYS).for_each(|key| insert(&heap, key).unwrap());
    let after = words_of(&pool);
    drop((heap, pool));
    let image: Vec<u8> = after.iter().flat_map(|word| word.to_le_bytes()).collect();
    // Words of the collections, and of the pool's log and bitmaps: whatever they have changed.
    let changed: Vec<usize> =
        (0..after.len()).filter(|at| before.get(*at).is_none_or(|before| *before != after[*at])).collect();
    let is_pointer = |at: &usize| (4096..BYTES).contains(&after[*at]) && after[*at].is_multiple_of(8);
    let pointers: Vec<usize> = changed.iter().copied().filter(is_pointer).collect();
    assert!(changed.len() > 300 && pointers.len() > 20, "{} {}", changed.len(), pointers.len());
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut opened = 0;
    for _ in 0..cases {
        let words = if rng.random() { &changed } else { &pointers };
        let at = words[rng.random_range(0..words.len())];
        let old = after[at];
        let new = match rng.random_range(0..10) {
            0 => 0,
            1 => u64::MAX,
            2 => old ^ 1 << rng.random_range(0..64),
            3 => old.wrapping_add(8),
            4 => old.wrapping_sub(64),
            _ => after[pointers[rng.random_range(0..pointers.len())]],
        };
        println!("{new:#x} at {:#x}, which was {old:#x}", 8 * at);
        let mut damaged = image.clone();
        damaged[8 * at..][..8].copy_from_slice(&new.to_le_bytes());
        if let Ok(heap) = open::<Tested>(&damaged) {
            opened += 1;
            use_all(&heap);
            let _ = heap.collect();
        }
    }
    assert!(opened > cases / 2, "{opened} of {cases} could be opened");
}

#[test]
fn collections_with_a_word_that_is_wrong_neither_panic_nor_hang() {
    let _turn = turn();
    let cases = std::env::var("DAMAGES")
        .map_or(if cfg!(debug_assertions) { 300 } else { 1500 }, |n| n.parse().unwrap());
    let seed = std::env::var("SEED").map_or(1, |seed| seed.parse().unwrap());
    let (done, is_done) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        damage(seed, cases);
        done.send(()).unwrap();
    });
    match is_done.recv_timeout(Duration::from_secs(60 + cases as u64 / 10)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs: SEED={seed}"),
        _ => thread.join().unwrap(),
    }
}
