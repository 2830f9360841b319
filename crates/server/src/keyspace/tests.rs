//! The count of keys with a deadline is the length of the map that lists them, whatever happens to a batch.

use super::*;
use crate::random::Random;

const MAPS: [usize; 2] = [0, 7];

/// A keyspace on a pool of its own.
fn with_keyspace(options: tembo::Options, body: impl FnOnce(&mut Keyspace<'_>)) {
    let dir = tempfile::tempdir().unwrap();
    let pool = options.create(true).open(dir.path().join("counts.pool")).unwrap();
    let mut keys = Keyspace::open(&pool).unwrap();
    MAPS.into_iter().for_each(|database| keys.create(database).unwrap());
    body(&mut keys);
    // The commit of the rest may fail, in a full pool.
    let _ = keys.commit();
    drop(keys);
    pool.check().unwrap();
    check::check(&pool).unwrap();
}

/// Asserts that the counts are the lengths of the maps.
fn assert_counts(keys: &mut Keyspace<'_>, step: usize) {
    for database in MAPS {
        let count = keys.expires_len(database).unwrap();
        let maps = keys.databases[database].as_deref().unwrap();
        let length = keys.batch.as_ref().unwrap().len(&maps.expires).unwrap();
        assert_eq!(count, length, "database {database} after step {step}");
    }
}

/// Writes or removes one key, as a command would.
fn change(keys: &mut Keyspace<'_>, random: &mut Random, value: &[u8]) -> Answer {
    let database = MAPS[random.below(2) as usize];
    let key = [b'a' + random.below(20) as u8];
    let old = keys.old(database, &key)?;
    let deadline = [None, Some(keys.now_ms + 1 + random.below(50))][random.below(2) as usize];
    match random.below(4) {
        0 if keys.find(database, &key)?.present => keys.remove(database, &key, old),
        1 => keys.set_deadline(database, &key, deadline),
        _ => keys.put(database, &key, Meta { deadline, ..Meta::default() }, old, &[value]),
    }
}

#[test]
fn random_commands_keep_the_counts_right() {
    with_keyspace(tembo::Options::new(), |keys| {
        let mut random = Random::seeded(7);
        keys.now_ms = 1000;
        for step in 0..20_000 {
            match random.below(100) {
                0 => keys.clear(MAPS[random.below(2) as usize]).unwrap(),
                1..10 => keys.commit().unwrap(),
                10..15 => {
                    keys.commit().unwrap();
                    keys.now_ms += random.below(30);
                    keys.expire_due(1 + random.below(5) as usize).unwrap();
                }
                15..25 => {
                    // The changes are undone as those of a command that fails, or of a transaction that is
                    // run again.
                    let savepoint = keys.savepoint().unwrap();
                    for _ in 0..random.below(4) {
                        change(keys, &mut random, b"value").unwrap();
                    }
                    if random.below(8) == 0 {
                        keys.clear(MAPS[0]).unwrap();
                    }
                    keys.rollback_to(savepoint);
                }
                _ => change(keys, &mut random, b"value").unwrap(),
            }
            // Asking for a count makes it known, so the counts are compared after some steps only.
            if random.below(3) == 0 {
                assert_counts(keys, step);
            }
        }
    });
}

#[test]
fn commands_that_fail_in_a_full_pool_keep_the_counts_right() {
    let options = tembo::Options::new().initial_bytes(12 << 20).max_bytes(12 << 20);
    with_keyspace(options, |keys| {
        let mut random = Random::seeded(9);
        keys.now_ms = 1000;
        let value = vec![b'v'; 1_000_000];
        let mut failures = 0;
        for step in 0..2000 {
            let begin = keys.begin_command().unwrap();
            let length = [10, 500_000, 1_000_000][random.below(3) as usize];
            match change(keys, &mut random, &value[..length]) {
                Ok(()) => keys.end_command(),
                Err(_) => {
                    keys.rollback_to(begin);
                    failures += 1;
                }
            }
            if random.below(10) == 0 && keys.commit().is_err() {
                failures += 1;
            }
            assert_counts(keys, step);
        }
        assert!(failures > 100, "{failures} failures");
    });
}

/// Databases that change places, at any moment of a batch, have the keys that they should have; also when
/// that is undone, and after the pool is opened again.
#[test]
fn databases_that_change_places_keep_their_keys() {
    use std::collections::BTreeMap;
    type Model = [BTreeMap<Vec<u8>, Vec<u8>>; DATABASES];
    let dir = tempfile::tempdir().unwrap();
    let pool = tembo::Options::new().create(true).open(dir.path().join("swaps.pool")).unwrap();
    let mut random = Random::seeded(11);
    let mut model = Model::default();
    for round in 0..30 {
        let mut keys = Keyspace::open(&pool).unwrap();
        if round == 0 {
            keys.swap(0, 1).unwrap();
        }
        for step in 0..300 {
            let (a, b) = (random.below(4) as usize, random.below(4) as usize);
            let begin = keys.begin_command().unwrap();
            let before = model.clone();
            for _ in 0..1 + random.below(3) {
                let key = vec![b'a' + random.below(6) as u8];
                if random.below(3) == 0 && keys.exists(a) && keys.exists(b) {
                    keys.swap(a, b).unwrap();
                    model.swap(a, b);
                } else if keys.exists(a) {
                    let old = keys.old(a, &key).unwrap();
                    let value = format!("{round} {step}").into_bytes();
                    keys.put(a, &key, Meta::default(), old, &[&value]).unwrap();
                    model[a].insert(key, value);
                }
            }
            if random.below(4) == 0 {
                keys.rollback_to(begin);
                model = before;
            } else {
                keys.end_command();
            }
            if random.below(5) == 0 {
                keys.commit().unwrap();
                if !keys.exists(a) {
                    keys.create(a).unwrap();
                }
            }
            for (database, its) in model.iter().enumerate().take(4) {
                for key in (b'a'..=b'f').map(|letter| vec![letter]) {
                    let found = keys.find(database, &key).unwrap().live.map(|stored| stored.payload.to_vec());
                    assert_eq!(
                        found.as_ref(),
                        its.get(&key),
                        "round {round}, step {step}, {database} {key:?}"
                    );
                }
            }
        }
        keys.commit().unwrap();
        drop(keys);
        let report = check::check(&pool).unwrap();
        for database in &report.databases {
            assert_eq!(database.keys, model[database.number].len() as u64);
        }
    }
}
