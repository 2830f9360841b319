//! Collections against a model, through conversions, savepoints and reclaiming; and what changes cost.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

use super::position::Secret;
use super::*;
use crate::keyspace::check::check;
use crate::keyspace::check_report::CheckReport;
use crate::keyspace::format::COLLECTIONS;
use crate::random::Random;

type Model = BTreeMap<(usize, Vec<u8>), BTreeMap<Vec<u8>, Vec<u8>>>;

const DATABASES_USED: [usize; 2] = [0, 5];

fn with_pool(body: impl FnOnce(&tembo::Pool)) {
    let dir = tempfile::tempdir().unwrap();
    let pool = tembo::Options::new().create(true).open(dir.path().join("collections.pool")).unwrap();
    body(&pool);
    pool.check().unwrap();
}

fn open(pool: &tembo::Pool) -> Keyspace<'_> {
    let mut keys = Keyspace::open(pool).unwrap();
    for database in DATABASES_USED {
        if !keys.exists(database) {
            keys.create(database).unwrap();
        }
    }
    keys
}

fn all(keys: &mut Keyspace<'_>, database: usize, key: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    if let Some(collection) = keys.read_collection(database, key, Kind::Hash).unwrap() {
        keys.walk_elements(&collection, 0, |_, field, value| {
            assert!(found.insert(field.to_vec(), value.to_vec()).is_none(), "met twice");
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(collection.len(), found.len() as u64);
    }
    found
}

fn compare(keys: &mut Keyspace<'_>, model: &Model) {
    for database in DATABASES_USED {
        assert_eq!(
            keys.len(database).unwrap(),
            model.keys().filter(|(number, _)| *number == database).count() as u64
        );
    }
    for ((database, key), expected) in model {
        assert_eq!(&all(keys, *database, key), expected, "{}", key.escape_ascii());
    }
}

fn field(random: &mut Random) -> Vec<u8> {
    let len = [1, 2, 2, 30, 511, 512, 513, 700][random.below(8) as usize];
    let mut field = vec![b'f'; len];
    field[len - 1] = b'0' + random.below(10) as u8;
    field
}

/// Changes keys as commands do.
fn change(keys: &mut Keyspace<'_>, model: &mut Model, random: &mut Random) {
    let database = DATABASES_USED[random.below(2) as usize];
    let key = vec![b'a' + random.below(6) as u8];
    let other = vec![b'a' + random.below(6) as u8];
    match random.below(24) {
        0 => delete(keys, model, (database, key)),
        1 if random.below(6) == 0 => {
            keys.clear(database).unwrap();
            model.retain(|(number, _), _| *number != database);
        }
        2 if key != other => rename(keys, model, (database, key), other),
        3 => {
            let target = DATABASES_USED[random.below(2) as usize];
            copy(keys, model, (database, key), (target, other));
        }
        4 => {
            let deadline = (random.below(2) == 0).then_some(1 << 50);
            keys.set_deadline(database, &key, deadline).unwrap();
        }
        9 => change_database(keys, model, (database, key)),
        5..9 => remove_fields(keys, model, (database, key), random),
        _ => put_fields(keys, model, (database, key), random),
    }
}

/// A key as the model names it: with its database.
type Named = (usize, Vec<u8>);

fn delete(keys: &mut Keyspace<'_>, model: &mut Model, (database, key): Named) {
    let found = keys.find(database, &key).unwrap();
    let (present, old) = (found.present, found.old);
    if present {
        keys.remove(database, &key, old).unwrap();
    }
    model.remove(&(database, key));
}

fn rename(keys: &mut Keyspace<'_>, model: &mut Model, (database, key): Named, other: Vec<u8>) {
    let source = keys.find(database, &key).unwrap();
    let (Some(stored), old) = (source.live, source.old) else { return };
    let (meta, payload) = (stored.meta, stored.payload.to_vec());
    let replaced = keys.old(database, &other).unwrap();
    keys.put(database, &other, meta, replaced, &[&payload]).unwrap();
    keys.remove(database, &key, old.kept()).unwrap();
    let fields = model.remove(&(database, key)).unwrap();
    model.insert((database, other), fields);
}

fn copy(keys: &mut Keyspace<'_>, model: &mut Model, from: Named, to: Named) {
    if from == to || !model.contains_key(&from) {
        return;
    }
    let old = keys.old(to.0, &to.1).unwrap();
    keys.copy((from.0, &from.1), (to.0, &to.1), old).unwrap();
    let fields = model[&from].clone();
    model.insert(to, fields);
}

fn change_database(keys: &mut Keyspace<'_>, model: &mut Model, (database, key): Named) {
    let target = DATABASES_USED.into_iter().find(|target| *target != database).unwrap();
    let is_there = keys.change_database(database, target, &key).unwrap();
    let fields = model.remove(&(database, key.clone()));
    assert_eq!(is_there, fields.is_some());
    fields.map(|fields| model.insert((target, key), fields));
}

fn remove_fields(keys: &mut Keyspace<'_>, model: &mut Model, (database, key): Named, random: &mut Random) {
    let mut hash = keys.collection(database, &key, Kind::Hash).unwrap();
    let expected = model.entry((database, key.clone())).or_default();
    let fields: Vec<_> = expected.keys().cloned().collect();
    let share = 1 + random.below(4);
    for field in fields.iter().filter(|_| random.below(4) < share) {
        assert!(keys.remove_element(&mut hash, field).unwrap());
        expected.remove(field);
    }
    assert!(!keys.remove_element(&mut hash, b"absent").unwrap());
    keys.store(&key, hash).unwrap();
    if expected.is_empty() {
        model.remove(&(database, key));
    }
}

fn put_fields(keys: &mut Keyspace<'_>, model: &mut Model, (database, key): Named, random: &mut Random) {
    let mut hash = keys.collection(database, &key, Kind::Hash).unwrap();
    let expected = model.entry((database, key.clone())).or_default();
    for _ in 0..1 + random.below(4) {
        let (field, value) = (field(random), vec![b'v'; random.below(200) as usize]);
        let replaced = keys.put_element(&mut hash, &field, &value).unwrap();
        assert_eq!(expected.insert(field.clone(), value.clone()).is_some(), replaced);
        assert_eq!(keys.element(&hash, &field).unwrap(), Some(&value[..]));
    }
    keys.store(&key, hash).unwrap();
}

/// Removes all doomed elements.
fn reclaim_all(keys: &mut Keyspace<'_>) {
    keys.commit().unwrap();
    while keys.is_reclaiming() {
        keys.reclaim().unwrap();
    }
}

#[test]
fn hashes_of_all_sizes_are_those_of_a_model() {
    with_pool(|pool| {
        let (mut random, mut model) = (Random::seeded(3), Model::new());
        let mut keys = open(pool);
        for step in 0..4000 {
            match random.below(20) {
                0 => {
                    let is_command = random.below(2) == 0;
                    let begin = if is_command { keys.begin_command() } else { keys.savepoint() };
                    let mut undone = model.clone();
                    (0..random.below(5)).for_each(|_| change(&mut keys, &mut undone, &mut random));
                    keys.rollback_to(begin.unwrap());
                }
                1 => {
                    keys.commit().unwrap();
                    keys.reclaim().unwrap();
                }
                2..10 => change(&mut keys, &mut model, &mut random),
                _ => {
                    keys.begin_command().unwrap();
                    change(&mut keys, &mut model, &mut random);
                    keys.end_command();
                }
            }
            if step % 200 == 199 {
                compare(&mut keys, &model);
                keys.commit().unwrap();
                check(pool).unwrap();
            }
            if step % 1000 == 999 {
                drop(keys);
                keys = open(pool);
            }
        }
        assert!(check(pool).unwrap().collections.large > 2);
        reclaim_all(&mut keys);
        compare(&mut keys, &model);
        for database in DATABASES_USED {
            keys.clear(database).unwrap();
        }
        reclaim_all(&mut keys);
        drop(keys);
        assert_eq!(check(pool).unwrap().collections, Default::default());
        assert_eq!(pool.find_map("db.elements").unwrap().unwrap().len().unwrap(), 0, "nothing is leaked");
        assert!(pool.find_map("db.collections").unwrap().unwrap().len().unwrap() <= 2);
    });
}

/// A pool with a large hash "h" of 100 fields, and one "d" that was removed.
fn sample(pool: &tembo::Pool) -> CheckReport {
    let mut keys = open(pool);
    for key in [b"h", b"d"] {
        let mut hash = keys.collection(0, key, Kind::Hash).unwrap();
        for number in 0..100 {
            keys.put_element(&mut hash, format!("field:{number}").as_bytes(), b"value").unwrap();
        }
        keys.store(key, hash).unwrap();
    }
    let old = keys.old(0, b"d").unwrap();
    keys.remove(0, b"d", old).unwrap();
    keys.commit().unwrap();
    check(pool).unwrap()
}

#[test]
fn removed_collections_are_doomed_and_then_gone() {
    with_pool(|pool| {
        let report = sample(pool).collections;
        assert_eq!((report.large, report.elements, report.doomed, report.doomed_elements), (1, 100, 1, 100));
        reclaim_all(&mut open(pool));
        let report = check(pool).unwrap().collections;
        assert_eq!((report.large, report.elements, report.doomed, report.doomed_elements), (1, 100, 0, 0));
    });
}

#[test]
fn a_flushed_database_gives_its_collections_back_in_bounded_steps() {
    with_pool(|pool| {
        let mut keys = open(pool);
        for key in [b"h", b"i"] {
            let mut hash = keys.collection(0, key, Kind::Hash).unwrap();
            for number in 0..400 {
                keys.put_element(&mut hash, format!("field:{number}").as_bytes(), b"value").unwrap();
            }
            keys.store(key, hash).unwrap();
        }
        keys.clear(0).unwrap();
        keys.commit().unwrap();
        let left = |pool| check(pool).unwrap().collections.doomed_elements;
        let (mut before, mut steps) = (left(pool), 0);
        assert_eq!(before, 800);
        while keys.is_reclaiming() {
            keys.reclaim().unwrap();
            let after = left(pool);
            assert!(before - after <= 128, "{} elements in one step", before - after);
            (before, steps) = (after, steps + 1);
        }
        assert!(before == 0 && steps > 6, "{before} left after {steps} steps");
    });
}

#[test]
fn each_kind_of_damage_of_a_collection_is_named() {
    let damage = |body: &dyn Fn(&tembo::Map, &tembo::Map, &tembo::Map)| {
        let mut said = String::new();
        with_pool(|pool| {
            sample(pool);
            let map = |name: &str| pool.open_map(name).unwrap();
            body(&map("db0"), &map("db.elements"), &map("db.collections"));
            said = check(pool).unwrap_err().to_string();
        });
        said
    };
    let first = |map: &tembo::Map| map.first().unwrap().unwrap().key().to_vec();
    let says = |said: String, what: &str| assert!(said.contains(what), "{said}");
    says(
        damage(&|_, elements, _| _ = elements.remove(first(elements)).unwrap()),
        "99 elements, where its key",
    );
    says(damage(&|_, elements, _| _ = elements.put([&[0; 12], &b"x"[..]].concat(), "").unwrap()), "belongs");
    says(damage(&|_, elements, _| _ = elements.put("short", "").unwrap()), "malformed");
    says(
        damage(&|_, elements, _| {
            // As of a collection that nobody knows.
            let key = first(elements);
            elements.put([&99_u64.to_be_bytes(), &key[8..]].concat(), "").unwrap();
        }),
        "no key has id 99",
    );
    says(damage(&|data, _, _| _ = data.remove("h").unwrap()), "no key has it");
    says(
        damage(&|data, _, _| {
            let value = data.get("h").unwrap().unwrap().to_vec();
            data.put("twin", value).unwrap();
        }),
        "that of another key",
    );
    says(damage(&|_, _, list| assert!(list.remove_range("d".."e").unwrap() == 1)), "it is not doomed");
    says(damage(&|_, _, list| assert!(list.remove_range("o".."p").unwrap() == 1)), "home does not list it");
    says(damage(&|_, _, list| _ = list.put("n", 1_u64.to_le_bytes()).unwrap()), "the next id is 1");
    says(damage(&|_, _, list| _ = list.put("?", "").unwrap()), "malformed");
    says(damage(&|data, _, _| _ = data.put("p", b"\x01\x01a\x011\x01a\x012").unwrap()), "malformed");
    says(damage(&|data, _, _| _ = data.put("p", b"\x01").unwrap()), "malformed");
}

/// Each set is the last of its tree while it grows. With this secret of the pool, the last leaf of sets 1
/// and 5 holds few elements for its width: a draw that does not heed that takes one 180 and 269 times.
#[test]
fn random_elements_of_a_large_collection_are_all_drawn() {
    with_pool(|pool| {
        pool.open_map(COLLECTIONS).unwrap().put(registry::SECRET, [4; Secret::BYTES]).unwrap();
        let mut keys = open(pool);
        let mut random = Random::seeded(5);
        for name in 0..10 {
            let name = format!("{name}");
            let mut set = keys.collection(0, name.as_bytes(), Kind::Set).unwrap();
            for number in 0..500 {
                keys.put_element(&mut set, format!("{name}:{number}").as_bytes(), &[]).unwrap();
            }
            let mut drawn = BTreeMap::<_, u32>::new();
            for _ in 0..20_000 {
                *drawn.entry(keys.draw_element(&set, &mut random).unwrap().unwrap().0).or_default() += 1;
            }
            assert!(drawn.len() > 495, "{}", drawn.len());
            let often = drawn.values().max().unwrap();
            assert!(*often < 4 * 20_000 / 500, "one was drawn {often} times");
            keys.store(name.as_bytes(), set).unwrap();
            keys.commit().unwrap();
        }
        let set = keys.collection(0, b"7", Kind::Set).unwrap();
        for count in [0, 1, 100, 124, 125, 400, 500, 501] {
            let sample = keys.sample(&set, count, &mut random).unwrap();
            let different: HashSet<_> = sample.iter().collect();
            assert_eq!((sample.len() as u64, different.len()), (count.min(500), sample.len()));
        }
    });
}

/// The lines and words that one change writes, on average.
fn cost(keys: &mut Keyspace<'_>, count: u64, mut change: impl FnMut(&mut Keyspace<'_>, u64)) -> (u64, u64) {
    keys.commit().unwrap();
    let before = tembo::snapshot();
    for number in 0..count {
        change(keys, number);
        keys.commit().unwrap();
    }
    let counts = tembo::snapshot() - before;
    (counts.lines / count, counts.words / count)
}

/// The id keeps its elements, and only the lists of the two databases change.
#[test]
fn a_hash_moves_to_another_database_at_a_cost_that_does_not_grow() {
    let dir = tempfile::tempdir().unwrap();
    let options = tembo::Options::new().create(true).durability(tembo::Durability::Emulated).count(true);
    let pool = options.open(dir.path().join("moves.pool")).unwrap();
    let mut keys = open(&pool);
    let costs = [100, 10_000].map(|fields| {
        let mut hash = keys.collection(0, b"h", Kind::Hash).unwrap();
        for number in 0..fields {
            keys.put_element(&mut hash, format!("field:{number}").as_bytes(), b"value").unwrap();
        }
        keys.store(b"h", hash).unwrap();
        cost(&mut keys, 64, |keys, number| {
            let (from, to) = if number % 2 == 0 { (0, 5) } else { (5, 0) };
            assert!(keys.change_database(from, to, b"h").unwrap());
        })
    });
    assert!(costs[1].0 <= costs[0].0 + 2 && costs[0].0 < 40, "(lines, words): {costs:?}");
    drop(keys);
    assert_eq!(check(&pool).unwrap().collections.elements, 10_000);
}

/// The costs of giving a field of a hash of so many fields another value, and of adding a field and removing
/// it again.
fn costs_of(keys: &mut Keyspace<'_>, fields: u64) -> (bool, [(u64, u64); 2]) {
    let key = format!("h:{fields}");
    let key = key.as_bytes();
    let mut hash = keys.collection(0, key, Kind::Hash).unwrap();
    for number in 0..fields {
        keys.put_element(&mut hash, format!("f{number:05}").as_bytes(), b"12345678").unwrap();
    }
    let large = matches!(hash.body, CollectionBody::Large { .. });
    keys.store(key, hash).unwrap();
    let replace = cost(keys, 256, |keys, number| {
        let mut hash = keys.collection(0, key, Kind::Hash).unwrap();
        keys.put_element(&mut hash, b"f00000", format!("{number:08}").as_bytes()).unwrap();
        keys.store(key, hash).unwrap();
    });
    let add = cost(keys, 256, |keys, number| {
        let mut hash = keys.collection(0, key, Kind::Hash).unwrap();
        let field = format!("g{:05}", number / 2);
        if number % 2 == 0 {
            keys.put_element(&mut hash, field.as_bytes(), b"12345678").unwrap();
        } else {
            keys.remove_element(&mut hash, field.as_bytes()).unwrap();
        }
        keys.store(key, hash).unwrap();
    });
    (large, [replace, add])
}

/// At the threshold a change of a packed hash costs not quite twice the lines of adding a field to a large
/// one, or of removing it.
#[test]
fn changes_of_packed_and_of_large_hashes_cost_what_they_should() {
    let dir = tempfile::tempdir().unwrap();
    let options = tembo::Options::new().create(true).durability(tembo::Durability::Emulated).count(true);
    let pool = options.open(dir.path().join("costs.pool")).unwrap();
    // Positions that are the same in each run.
    pool.open_map("db.collections").unwrap().put("s", [7; 16]).unwrap();
    let mut keys = open(&pool);
    let mut seen = Vec::new();
    for fields in [1, 8, 16, 24, 30, 40, 400] {
        let (large, [replace, add]) = costs_of(&mut keys, fields);
        println!("{fields} fields, large {large}: another value {replace:?}, a field more or less {add:?}");
        seen.push((fields, large, replace, add));
    }
    assert_eq!(seen, GOLDEN, "(fields, large, (lines, words) of another value, of a field more or less)");
}

/// The costs of one change of a hash of fields of 6 bytes with values of 8 bytes.
type Costs = (u64, bool, (u64, u64), (u64, u64));
const GOLDEN: [Costs; 7] = [
    (1, false, (3, 19), (3, 20)),
    (8, false, (5, 33), (5, 34)),
    (16, false, (7, 49), (7, 50)),
    (24, false, (9, 65), (9, 66)),
    (30, false, (10, 77), (10, 78)),
    (40, true, (3, 20), (5, 35)),
    (400, true, (3, 20), (6, 35)),
];
