//! Lists against a model, through divisions, renumberings and conversions; and what changes cost.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::list::CHUNK_BYTES_MAX;
use super::*;
use crate::keyspace::check::check;
use crate::random::Random;

type Model = BTreeMap<Vec<u8>, Vec<Vec<u8>>>;

fn with_pool(body: impl FnOnce(&tembo::Pool)) {
    let dir = tempfile::tempdir().unwrap();
    let pool = tembo::Options::new().create(true).open(dir.path().join("lists.pool")).unwrap();
    body(&pool);
    pool.check().unwrap();
}

fn open(pool: &tembo::Pool) -> Keyspace<'_> {
    let mut keys = Keyspace::open(pool).unwrap();
    if !keys.exists(0) {
        keys.create(0).unwrap();
    }
    keys
}

fn all(keys: &mut Keyspace<'_>, key: &[u8], from: u64) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let list = keys.collection(0, key, Kind::List).unwrap();
    keys.walk_list(&list, from, |index, element| {
        assert_eq!(index, from + found.len() as u64);
        found.push(element.to_vec());
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(list.len().saturating_sub(from), found.len() as u64);
    found
}

fn compare(keys: &mut Keyspace<'_>, model: &Model) {
    assert_eq!(keys.len(0).unwrap(), model.len() as u64);
    for (key, expected) in model {
        assert_eq!(&all(keys, key, 0), expected, "{}", key.escape_ascii());
    }
}

fn element(random: &mut Random) -> Vec<u8> {
    let len = [1, 1, 3, 3, 60, 126, 127, 128, 300, 508, 510, 511, 512, 513, 2000][random.below(15) as usize];
    vec![b'0' + random.below(5) as u8; len]
}

/// Changes a list as commands do.
fn change(keys: &mut Keyspace<'_>, model: &mut Model, random: &mut Random) {
    let class = random.below(4);
    let (key, most) = (vec![b'a' + class as u8], [6, 60, 400, 1500][class as usize]);
    let mut list = keys.collection(0, &key, Kind::List).unwrap();
    let expected = model.entry(key.clone()).or_default();
    let len = expected.len() as u64;
    assert_eq!(list.len(), len);
    let left = random.below(2) == 0;
    let at = random.below(len.max(1));
    match random.below(16) {
        0..5 if len < most => {
            let new: Vec<_> = (0..1 + random.below(most / 4 + 1)).map(|_| element(random)).collect();
            keys.push(&mut list, left, new.iter().map(|new| &new[..])).unwrap();
            for new in new {
                expected.insert(if left { 0 } else { expected.len() }, new);
            }
        }
        5..7 => pop(keys, &mut list, expected, left, random.below(most / 8 + 2)),
        7..10 if len > 0 => {
            let (behind, new) = (random.below(2), element(random));
            keys.insert_at(&mut list, at, behind == 1, &new).unwrap();
            expected.insert((at + behind) as usize, new);
        }
        10..12 if len > 0 => {
            let new = element(random);
            keys.set_at(&mut list, at, &new).unwrap();
            expected[at as usize] = new;
        }
        12 => remove_some(keys, &mut list, expected, random),
        13 => trim(keys, &mut list, expected, random),
        14 if random.below(5) == 0 => {
            keys.trim(&mut list, 0..0).unwrap();
            expected.clear();
        }
        15 if len > 0 => {
            let old = keys.old(0, b"copy").unwrap();
            keys.copy((0, &key), (0, b"copy"), old).unwrap();
            let copied = expected.clone();
            model.insert(b"copy".to_vec(), copied);
        }
        _ => {
            assert_eq!(keys.element_at(&list, at).unwrap(), expected.get(at as usize).cloned());
            assert_eq!(all(keys, &key, at), expected[at as usize..]);
        }
    }
    let expected = &model[&key];
    assert_eq!(list.len(), expected.len() as u64);
    if expected.is_empty() {
        model.remove(&key);
    }
    keys.store(&key, list).unwrap();
}

fn pop(keys: &mut Keyspace<'_>, list: &mut Collection, expected: &mut Vec<Vec<u8>>, left: bool, wanted: u64) {
    let len = expected.len() as u64;
    let popped = keys.pop(list, left, wanted).unwrap();
    for element in &popped {
        let index = if left { 0 } else { expected.len() - 1 };
        assert_eq!(&expected.remove(index), element);
    }
    assert_eq!(popped.len() as u64, wanted.min(len));
}

fn remove_some(
    keys: &mut Keyspace<'_>,
    list: &mut Collection,
    expected: &mut Vec<Vec<u8>>,
    random: &mut Random,
) {
    let share = 1 + random.below(20);
    let indices: Vec<_> = (0..expected.len() as u64).filter(|_| random.below(share) == 0).collect();
    keys.remove_at(list, &indices).unwrap();
    indices.iter().rev().for_each(|index| _ = expected.remove(*index as usize));
}

/// Takes up to a quarter from each end.
fn trim(keys: &mut Keyspace<'_>, list: &mut Collection, expected: &mut Vec<Vec<u8>>, random: &mut Random) {
    let len = expected.len() as u64;
    let keep = random.below(len / 4 + 1)..len - random.below(len / 4 + 1).min(len);
    keys.trim(list, keep.clone()).unwrap();
    *expected = expected[keep.start as usize..keep.end.max(keep.start) as usize].to_vec();
}

#[test]
fn lists_of_all_sizes_are_those_of_a_model() {
    with_pool(|pool| {
        let (mut random, mut model) = (Random::seeded(7), Model::new());
        let mut keys = open(pool);
        for step in 0..3000 {
            match random.below(20) {
                0 => {
                    let savepoint = keys.savepoint().unwrap();
                    let mut undone = model.clone();
                    (0..random.below(5)).for_each(|_| change(&mut keys, &mut undone, &mut random));
                    keys.rollback_to(savepoint);
                }
                1 => {
                    keys.commit().unwrap();
                    keys.reclaim().unwrap();
                }
                _ => change(&mut keys, &mut model, &mut random),
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
        keys.clear(0).unwrap();
        keys.commit().unwrap();
        while keys.is_reclaiming() {
            keys.reclaim().unwrap();
        }
        drop(keys);
        assert_eq!(check(pool).unwrap().collections, Default::default());
        assert_eq!(pool.find_map("db.lists").unwrap().unwrap().len().unwrap(), 0, "nothing is leaked");
    });
}

/// Insertions at one place divide the same chunk again and again, until there is no place between two.
#[test]
fn places_never_run_out() {
    with_pool(|pool| {
        let mut keys = open(pool);
        let mut list = keys.collection(0, b"l", Kind::List).unwrap();
        let text = |number: u64| format!("{number:0200}").into_bytes();
        let mut expected: Vec<_> = (0..10).map(text).collect();
        keys.push(&mut list, false, expected.iter().map(|element| &element[..])).unwrap();
        for number in 10..3000 {
            keys.insert_at(&mut list, 4, number % 3 == 0, &text(number)).unwrap();
            expected.insert(4 + usize::from(number % 3 == 0), text(number));
        }
        keys.store(b"l", list).unwrap();
        assert_eq!(all(&mut keys, b"l", 0), expected);
        keys.commit().unwrap();
        check(pool).unwrap();
        drop(keys);
        // Lists at both ends of all places.
        let (map, data) = (pool.open_map("db.lists").unwrap(), pool.open_map("db0").unwrap());
        for (place, left) in [(0, true), (1, true), (u64::MAX, false), (u64::MAX - 1, false)] {
            map.remove_range::<Vec<u8>>(..).unwrap();
            let id = u64::from_le_bytes(data.get("l").unwrap().unwrap()[1..9].try_into().unwrap());
            let key = [id.to_be_bytes(), place.to_be_bytes()].concat();
            map.put(key, b"\x02\0\0\0\x01a\x01b").unwrap();
            data.put("l", [&[0x13][..], &id.to_le_bytes(), &2_u64.to_le_bytes()].concat()).unwrap();
            let mut expected = vec![b"a".to_vec(), b"b".to_vec()];
            let mut keys = open(pool);
            for number in 0..200 {
                let mut list = keys.collection(0, b"l", Kind::List).unwrap();
                keys.push(&mut list, left, [&text(number)[..]]).unwrap();
                expected.insert(if left { 0 } else { expected.len() }, text(number));
                keys.store(b"l", list).unwrap();
            }
            assert_eq!(all(&mut keys, b"l", 0), expected);
            keys.commit().unwrap();
            check(pool).unwrap();
        }
    });
}

#[test]
fn each_kind_of_damage_of_a_list_is_named() {
    let damage = |body: &dyn Fn(&tembo::Map, &tembo::Map)| {
        let mut said = String::new();
        with_pool(|pool| {
            let mut keys = open(pool);
            let mut list = keys.collection(0, b"l", Kind::List).unwrap();
            keys.push(&mut list, false, std::iter::repeat_n(&b"element"[..], 200)).unwrap();
            keys.store(b"l", list).unwrap();
            keys.commit().unwrap();
            drop(keys);
            check(pool).unwrap();
            body(&pool.open_map("db.lists").unwrap(), &pool.open_map("db0").unwrap());
            said = check(pool).unwrap_err().to_string();
            // No damage makes the server panic.
            let mut keys = open(pool);
            if let Ok(mut list) = keys.collection(0, b"l", Kind::List) {
                _ = keys.pop(&mut list, true, 3);
                _ = keys.element_at(&list, list.len() / 2);
                _ = keys.push(&mut list, false, [&b"x"[..]]);
            }
        });
        said
    };
    let first = |map: &tembo::Map| {
        let first = map.first().unwrap().unwrap();
        (first.key().to_vec(), first.value().to_vec())
    };
    let says = |said: String, what: &str| assert!(said.contains(what), "{said}");
    says(damage(&|lists, _| _ = lists.remove(first(lists).0).unwrap()), "elements, where its key counts 200");
    let with_value = |value: &[u8]| {
        damage(&|lists, _| {
            lists.put(first(lists).0, value).unwrap();
        })
    };
    says(with_value(b"\x02\0\0\0\x01a"), "1 elements, and it weighs 2");
    says(with_value(b"\0\0\0\0"), "malformed items");
    says(with_value(b"\x01\0\0\0\x05a"), "malformed items");
    let long = [&b"\x02\0\0\0\x01a\x80\x04"[..], &[b'x'; CHUNK_BYTES_MAX]].concat();
    says(with_value(&long), "too long, with 2 elements");
    says(damage(&|lists, _| _ = lists.put("short", [0_u8; 9]).unwrap()), "malformed");
    says(
        damage(&|lists, _| {
            lists
                .put([0_u8, 0, 0, 0, 0, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0, 0], b"\x01\0\0\0\x01a")
                .map(drop)
                .unwrap()
        }),
        "no key has id 99",
    );
    says(
        damage(&|_, data| {
            let mut value = data.get("l").unwrap().unwrap().to_vec();
            value[0] = 0x12;
            data.put("l", value).unwrap();
        }),
        "is that of a set",
    );
}

/// The lines and words that one change writes, on average.
fn cost(keys: &mut Keyspace<'_>, mut change: impl FnMut(&mut Keyspace<'_>, &mut Collection)) -> (u64, u64) {
    keys.commit().unwrap();
    let before = tembo::snapshot();
    for _ in 0..CHANGES {
        let mut list = keys.collection(0, b"l", Kind::List).unwrap();
        change(keys, &mut list);
        keys.store(b"l", list).unwrap();
        keys.commit().unwrap();
    }
    let counts = tembo::snapshot() - before;
    (counts.lines / CHANGES, counts.words / CHANGES)
}

const CHANGES: u64 = 512;

#[test]
fn changes_of_large_lists_cost_what_they_should() {
    let dir = tempfile::tempdir().unwrap();
    let options = tembo::Options::new().create(true).durability(tembo::Durability::Emulated).count(true);
    let pool = options.open(dir.path().join("costs.pool")).unwrap();
    let mut keys = open(&pool);
    let mut seen = Vec::new();
    for (bytes, elements) in [(8, 20_000), (100, 20_000), (1000, 5000)] {
        let text = vec![b'x'; bytes];
        let mut list = keys.replacement(0, b"l", Kind::List).unwrap();
        keys.push(&mut list, false, std::iter::repeat_n(&text[..], elements)).unwrap();
        keys.store(b"l", list).unwrap();
        let push = cost(&mut keys, |keys, list| keys.push(list, false, [&text[..]]).unwrap());
        let pop = cost(&mut keys, |keys, list| _ = keys.pop(list, true, 1).unwrap());
        let set = cost(&mut keys, |keys, list| keys.set_at(list, 7000 % list.len(), &text).unwrap());
        let insert =
            cost(&mut keys, |keys, list| keys.insert_at(list, list.len() / 2, false, &text).unwrap());
        println!("{bytes} bytes: push {push:?}, pop {pop:?}, set {set:?}, insert {insert:?}");
        seen.push((bytes, push, pop, set, insert));
    }
    assert_eq!(seen, GOLDEN, "(bytes, (lines, words) of a push, a pop, another value, an insertion)");
}

type Costs = (usize, (u64, u64), (u64, u64), (u64, u64), (u64, u64));
const GOLDEN: [Costs; 3] = [
    (8, (9, 73), (9, 69), (11, 83), (11, 89)),
    (100, (13, 98), (9, 66), (11, 83), (39, 343)),
    (1000, (40, 312), (4, 41), (19, 145), (339, 2873)),
];
