//! Transactions nested in a batch: they are kept or taken back as one, whatever fails inside.
//!
//! The story: a command of the server had an undo point, and so had each of its writes. Now there is one, so
//! that a write that fails half-way, in the middle of dividing a leaf for example, leaves its part to it.
#![forbid(unsafe_code)]

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::rc::Rc;
use tembo::{Batch, Error, MAX_KEY_BYTES, Map, MapOptions, Options, Pool};

const POOL_BYTES: u64 = 8 << 20;

type Model = BTreeMap<Vec<u8>, Rc<[u8]>>;

fn new_pool(path: &std::path::Path) -> Pool {
    Options::new().create(true).initial_bytes(POOL_BYTES).max_bytes(POOL_BYTES).open(path).unwrap()
}

/// Two plain maps, and one that keeps versions.
fn open_maps(pool: &Pool) -> [Map; 3] {
    ["a", "b", "c"].map(|name| pool.open_map_with(name, MapOptions::new().versioned(name == "c")).unwrap())
}

fn key(rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    format!("key {:06}", rng.random_range(0..50_000)).into_bytes()
}

/// Puts ever smaller values, until there is no room for the smallest either.
fn fill(maps: &[Map; 3], models: &mut [Model; 3], rng: &mut Xoshiro256PlusPlus) {
    for bytes in [30_000, 3000, 300, 30] {
        for i in (0..3).cycle().take(20_000) {
            let (key, value) = (key(rng), vec![b'v'; bytes]);
            match maps[i].put(&key, &value) {
                Ok(_) => _ = models[i].insert(key, value.into()),
                Err(Error::Full { .. }) => break,
                Err(e) => panic!("{e}"),
            }
        }
    }
}

/// Makes one change of the batch and, if it succeeds, of the model.
fn change(
    batch: &mut Batch<'_>,
    map: &Map,
    model: &mut Model,
    longest: usize,
    rng: &mut Xoshiro256PlusPlus,
) -> Result<(), Error> {
    let key = key(rng);
    let value = vec![rng.random::<u8>(); rng.random_range(0..=longest)];
    match rng.random_range(0..32) {
        0..3 => {
            batch.remove(map, &key)?;
            model.remove(&key);
        }
        3..8 => {
            if batch.insert(map, &key, &value)? {
                model.insert(key, value.into());
            }
        }
        8..11 => {
            batch.modify(map, &key, |_| Some(&value))?;
            model.insert(key, value.into());
        }
        11..13 => {
            if let Some((first, _)) = batch.pop_first(map)? {
                model.remove(&first);
            }
        }
        14..16 => {
            let mut keys: Vec<_> = (0..rng.random_range(0..80)).map(|_| self::key(rng)).collect();
            keys.sort();
            batch.put_many(map, keys.iter().map(Vec::as_slice), |_, _| Some(&value))?;
            model.extend(keys.into_iter().map(|key| (key, Rc::from(&value[..]))));
        }
        13 => {
            batch.put(map, &[b'k'; MAX_KEY_BYTES as usize + 1], &value)?;
        }
        _ => {
            batch.put(map, &key, &value)?;
            model.insert(key, value.into());
        }
    }
    Ok(())
}

fn assert_seen(batch: &Batch<'_>, maps: &[Map; 3], models: &[Model; 3], rng: &mut Xoshiro256PlusPlus) {
    for (map, model) in maps.iter().zip(models) {
        assert_eq!(batch.len(map).unwrap(), model.len() as u64);
        let keys = model.keys().take(3).chain(model.keys().rev().take(3)).cloned();
        for key in keys.chain((0..5).map(|_| key(rng))) {
            assert_eq!(batch.get(map, &key).unwrap(), model.get(&key).map(|value| &value[..]));
        }
    }
}

/// Fills a pool and goes on in it, with nested transactions of up to six changes; returns how many of them
/// failed after a change that succeeded, for want of space.
fn run(seed: u64) -> usize {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let mut pool = new_pool(&path);
    let mut maps = open_maps(&pool);
    let mut models: [Model; 3] = Default::default();
    fill(&maps, &mut models, &mut rng);
    let mut failed_later = 0;
    for round in 0..120 {
        let before = models.clone();
        let mut batch = pool.batch().unwrap();
        for _ in 0..rng.random_range(1..20) {
            let then = models.clone();
            let begin = batch.begin_nested();
            let longest = [30, 300, 3000, 60_000][rng.random_range(0..4)];
            let changes = rng.random_range(1..7);
            let failed = (0..changes).find_map(|done| {
                let i = rng.random_range(0..3);
                let outcome = change(&mut batch, &maps[i], &mut models[i], longest, &mut rng);
                outcome.err().map(|error| (done, error))
            });
            match failed {
                Some((done, error)) => {
                    assert!(matches!(error, Error::Full { .. } | Error::KeyTooLong { .. }), "{error}");
                    failed_later += usize::from(done > 0 && matches!(error, Error::Full { .. }));
                    models = then;
                    if rng.random_bool(0.5) {
                        batch.rollback_to(begin);
                    }
                }
                None if rng.random_bool(0.1) => {
                    batch.rollback_to(begin);
                    models = then;
                }
                None => batch.end_nested(),
            }
            assert_seen(&batch, &maps, &models, &mut rng);
            // A change outside of a nested transaction that fails leaves those before it.
            _ = change(&mut batch, &maps[0], &mut models[0], longest, &mut rng);
        }
        match batch.commit() {
            Ok(()) => {}
            Err(Error::Full { .. }) => models = before,
            Err(e) => panic!("{e}"),
        }
        if round % 20 == 19 {
            assert_eq!(pool.check().unwrap().maps.len(), 2);
            for (map, model) in maps.iter().zip(&models) {
                let entries = map.iter().map(|entry| entry.map(|e| (e.key().to_vec(), e.value().into())));
                assert!(entries.map(Result::unwrap).eq(model.clone()), "the maps are the models");
            }
            drop((maps, pool));
            pool = Options::new().open(&path).unwrap();
            maps = open_maps(&pool);
        }
    }
    failed_later
}

#[test]
fn a_nested_transaction_that_fails_leaves_nothing_in_a_full_pool() {
    for seed in 0..6 {
        println!("seed {seed}");
        let failed_later = run(seed);
        assert!(failed_later > 20, "{failed_later} failed after a change that succeeded");
    }
}

#[test]
fn a_map_of_another_pool_takes_a_nested_transaction_back() {
    let dir = tempfile::tempdir().unwrap();
    let (pool, other) = (new_pool(&dir.path().join("a.pool")), new_pool(&dir.path().join("b.pool")));
    let (maps, foreign) = (open_maps(&pool), other.open_map("a").unwrap());
    let mut batch = pool.batch().unwrap();
    batch.put(&maps[0], b"before", b"").unwrap();
    batch.begin_nested();
    batch.put(&maps[0], b"kept", b"").unwrap();
    batch.begin_nested();
    batch.put(&maps[0], b"gone", b"").unwrap();
    batch.put(&maps[2], b"gone", b"").unwrap();
    assert!(matches!(batch.put(&foreign, b"k", b""), Err(Error::ForeignMap)));
    // The failure has ended the nested transaction, so that this one fails alone.
    batch.put(&maps[2], b"after", b"").unwrap();
    assert!(matches!(batch.remove(&foreign, b"k"), Err(Error::ForeignMap)));
    batch.commit().unwrap();
    let keys = |map: &Map| map.iter().map(|entry| entry.unwrap().key().to_vec()).collect::<Vec<_>>();
    assert_eq!(keys(&maps[0]), [&b"before"[..], b"kept"]);
    assert_eq!(keys(&maps[2]), [b"after"]);
    pool.check().unwrap();
}

/// Outside of a nested transaction the call takes back what it did itself, and no more.
#[test]
fn many_keys_of_which_one_fails_leave_the_batch_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let pool = new_pool(&dir.path().join("a.pool"));
    for map in &open_maps(&pool)[1..] {
        let mut batch = pool.batch().unwrap();
        batch.put(map, b"before", b"1").unwrap();
        let long = vec![b'k'; MAX_KEY_BYTES as usize + 1];
        let outcome = batch.put_many(map, [&b"a"[..], b"before", &long], |_, _| Some(b"2"));
        assert!(matches!(outcome, Err(Error::KeyTooLong { .. })), "{outcome:?}");
        let mut seen = Vec::new();
        batch
            .put_many(map, [&b"a"[..], b"before"], |number, old| {
                seen.push((number, old.map(<[u8]>::to_vec)));
                (number == 0).then_some(b"3")
            })
            .unwrap();
        assert_eq!(seen, [(0, None), (1, Some(b"1".to_vec()))]);
        batch.commit().unwrap();
        let all: Vec<_> = map.iter().map(|entry| entry.unwrap().key().to_vec()).collect();
        assert_eq!(all, [b"a".to_vec(), b"before".to_vec()]);
    }
}
