//! Sorted sets against a model, the damage that the check names, and what ZADD costs.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::ordered::{Cut, Score};
use super::*;
use crate::keyspace::check::check;
use crate::random::Random;

type Model = BTreeMap<Vec<u8>, Score>;

fn with_pool(options: tembo::Options, body: impl FnOnce(&tembo::Pool)) {
    let dir = tempfile::tempdir().unwrap();
    let pool = options.create(true).open(dir.path().join("sorted.pool")).unwrap();
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

fn put(keys: &mut Keyspace<'_>, key: &[u8], member: &[u8], score: Score) -> bool {
    let mut sorted = keys.collection(0, key, Kind::SortedSet).unwrap();
    let replaced = keys.put_element(&mut sorted, member, &score.to_bytes()).unwrap();
    keys.store(key, sorted).unwrap();
    replaced
}

fn remove(keys: &mut Keyspace<'_>, key: &[u8], member: &[u8]) -> bool {
    let mut sorted = keys.collection(0, key, Kind::SortedSet).unwrap();
    let removed = keys.remove_element(&mut sorted, member).unwrap();
    keys.store(key, sorted).unwrap();
    removed
}

/// Long members differ within their first 512 bytes or have scores of their own, so that their order is that
/// of all members.
fn draw(random: &mut Random) -> (Vec<u8>, Score) {
    let number = random.below(400);
    let len = [4, 4, 4, 40, 512, 513, 700][random.below(7) as usize];
    let mut member = format!("{number:04}").into_bytes();
    member.resize(len, b'x');
    let score = [0.0, 1.0, -1.0, 2.5, f64::INFINITY][random.below(5) as usize];
    let score = if len > 512 { random.below(1 << 40) as f64 + len as f64 / 1000.0 } else { score };
    (member, Score::new(score))
}

/// Compares ranks and walks in both directions with the model.
fn compare(keys: &mut Keyspace<'_>, key: &[u8], model: &Model, random: &mut Random) {
    let sorted = keys.collection(0, key, Kind::SortedSet).unwrap();
    assert_eq!(sorted.len(), model.len() as u64);
    let mut expected: Vec<_> = model.iter().map(|(member, score)| (*score, member.clone())).collect();
    expected.sort();
    for downwards in [false, true] {
        let from = random.below(expected.len() as u64 + 1);
        let mut found = Vec::new();
        keys.walk_ranks(&sorted, from, downwards, |member, score| {
            found.push((score, member.to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
        let from = from as usize;
        let end = expected.len().min(from + 1);
        let mut wanted = if downwards { expected[..end].to_vec() } else { expected[from..].to_vec() };
        if downwards {
            wanted.reverse();
        }
        assert_eq!(found, wanted, "from {from}, downwards {downwards}");
    }
    for _ in 0..20 {
        let (member, score) = draw(random);
        let behind = random.below(2) == 0;
        let rank = keys.rank(&sorted, Cut::Score { score, behind }).unwrap();
        let before = |its: &Score| if behind { *its <= score } else { *its < score };
        assert_eq!(rank, expected.iter().filter(|(its, _)| before(its)).count() as u64);
        if member.len() > 512 {
            continue;
        }
        let rank = keys.rank(&sorted, Cut::Member { score, member: &member, behind }).unwrap();
        let place = (score, member);
        let before = |its: &(Score, Vec<u8>)| if behind { *its <= place } else { *its < place };
        assert_eq!(rank, expected.iter().filter(|its| before(its)).count() as u64);
    }
}

#[test]
fn sorted_sets_of_all_sizes_are_those_of_a_model() {
    with_pool(tembo::Options::new(), |pool| {
        let mut random = Random::seeded(11);
        let mut keys = open(pool);
        let mut models = [Model::new(), Model::new()];
        for step in 0..6000 {
            let which = random.below(2) as usize;
            let (key, model) = ([b'a' + which as u8], &mut models[which]);
            // One stays small, as it is removed as often as it grows.
            let shrinks = random.below(100) < if which == 0 { 30 } else { 60 };
            match shrinks.then(|| model.keys().nth(random.below(model.len().max(1) as u64) as usize)) {
                Some(Some(member)) => {
                    let member = member.clone();
                    assert!(remove(&mut keys, &key, &member));
                    model.remove(&member);
                }
                _ => {
                    let (member, score) = draw(&mut random);
                    let replaced = put(&mut keys, &key, &member, score);
                    assert_eq!(model.insert(member, score).is_some(), replaced);
                }
            }
            if step % 50 == 0 {
                compare(&mut keys, &key, &models[which], &mut random);
            }
            if step % 500 == 499 {
                keys.commit().unwrap();
                check(pool).unwrap();
            }
            if step % 2000 == 1999 {
                drop(keys);
                keys = open(pool);
            }
        }
        assert!(models[0].len() > 200, "{}", models[0].len());
        let old = keys.old(0, b"copy").unwrap();
        keys.copy((0, b"a"), (0, b"copy"), old).unwrap();
        compare(&mut keys, b"copy", &models[0], &mut random);
        keys.commit().unwrap();
        assert!(check(pool).unwrap().collections.large >= 2);
        keys.clear(0).unwrap();
        keys.commit().unwrap();
        while keys.is_reclaiming() {
            keys.reclaim().unwrap();
            check(pool).unwrap();
        }
        drop(keys);
        for name in ["db.elements", "db.ordered"] {
            assert_eq!(pool.find_map(name).unwrap().unwrap().len().unwrap(), 0, "{name}: nothing is leaked");
        }
    });
}

/// A pool with a large sorted set "z", a packed one "p" and a large hash "h".
fn sample(pool: &tembo::Pool) {
    let mut keys = open(pool);
    for number in 0..100 {
        put(&mut keys, b"z", format!("member:{number}").as_bytes(), Score::new(f64::from(number)));
    }
    put(&mut keys, b"p", b"a", Score::new(1.0));
    put(&mut keys, b"p", b"b", Score::new(2.0));
    let mut hash = keys.collection(0, b"h", Kind::Hash).unwrap();
    for number in 0..100 {
        keys.put_element(&mut hash, format!("field:{number}").as_bytes(), b"12345678").unwrap();
    }
    keys.store(b"h", hash).unwrap();
    keys.commit().unwrap();
    check(pool).unwrap();
}

/// The error of a check after a change of the sample: of the keys, the elements, or the members in order.
fn damaged(body: impl Fn(&tembo::Map, &tembo::Map, &tembo::Map)) -> String {
    let mut said = String::new();
    with_pool(tembo::Options::new(), |pool| {
        sample(pool);
        let map = |name: &str| pool.find_map(name).unwrap().unwrap();
        body(&map("db0"), &map("db.elements"), &map("db.ordered"));
        said = check(pool).unwrap_err().to_string();
    });
    said
}

fn first(map: &tembo::Map) -> Vec<u8> {
    map.first().unwrap().unwrap().key().to_vec()
}

#[track_caller]
fn says(said: String, what: &str) {
    assert!(said.contains(what), "{said}");
}

#[test]
fn members_and_elements_that_differ_are_named() {
    says(
        damaged(|_, _, ordered| _ = ordered.remove(first(ordered)).unwrap()),
        "99 members in order, of 100 elements",
    );
    says(
        damaged(|_, elements, _| {
            let other = Score::new(0.5).to_bytes();
            _ = elements.put(first(elements), other).unwrap();
        }),
        "no element has this member with this score",
    );
    says(
        damaged(|_, _, ordered| {
            let mut key = first(ordered);
            key.push(b'x');
            ordered.put(key, "").unwrap();
        }),
        "no element has this member with this score",
    );
    let with_id = |id: u64, key: &[u8]| [&id.to_be_bytes(), &key[8..]].concat();
    says(
        damaged(|_, _, ordered| _ = ordered.put(with_id(99, &first(ordered)), "").unwrap()),
        "no key has id 99",
    );
    says(
        damaged(|data, _, ordered| {
            let value = data.get("h").unwrap().unwrap().to_vec();
            let id = u64::from_le_bytes(value[1..9].try_into().unwrap());
            ordered.put(with_id(id, &first(ordered)), "").unwrap();
        }),
        "its collection is no sorted set",
    );
}

/// Makes "z" of the sample what an earlier version wrote: a value that counts, and scores of 8 bytes.
fn make_old(data: &tembo::Map, elements: &tembo::Map, count: u64) {
    let value = data.get("z").unwrap().unwrap().to_vec();
    assert_eq!((value[0] & 0x1F, value.len()), (0x15, 9), "a type of its own, and the id");
    data.put("z", [&[0x14 | value[0] & 0xE0], &value[1..], &count.to_le_bytes()].concat()).unwrap();
    let id: Vec<u8> = value[1..].iter().rev().copied().collect();
    let records: Vec<_> = elements.prefix(id).collect();
    for record in records {
        let record = record.unwrap();
        let score = Score::read(record.value()).unwrap();
        assert!(record.value().len() < 8, "a short score");
        elements.put(record.key(), score.to_bytes()).unwrap();
    }
}

#[test]
fn a_sorted_set_of_an_earlier_version_counts_until_it_changes() {
    with_pool(tembo::Options::new(), |pool| {
        sample(pool);
        let map = |name: &str| pool.find_map(name).unwrap().unwrap();
        let (data, elements) = (map("db0"), map("db.elements"));
        let value = || data.get("z").unwrap().unwrap().to_vec();
        make_old(&data, &elements, 99);
        assert!(check(pool).unwrap_err().to_string().contains("100 elements, where its key counts 99"));
        data.put("z", [&value()[..9], &100_u64.to_le_bytes()].concat()).unwrap();
        check(pool).unwrap();
        let mut keys = open(pool);
        let len = |keys: &mut Keyspace<'_>| keys.collection(0, b"z", Kind::SortedSet).unwrap().len();
        let old = value();
        assert_eq!(len(&mut keys), 100);
        keys.set_deadline(0, b"z", Some(u64::MAX)).unwrap();
        keys.commit().unwrap();
        assert_eq!((value().len(), &value()[9..]), (25, &old[1..]), "only the deadline is another");
        assert!(put(&mut keys, b"z", b"member:7", Score::new(0.1)), "another score");
        keys.commit().unwrap();
        assert_eq!((value()[0] & 0x1F, value().len()), (0x15, 17));
        check(pool).unwrap();
        let changed = value();
        assert!(!put(&mut keys, b"z", b"new", Score::new(1.0)));
        assert!(remove(&mut keys, b"z", b"member:7"));
        assert!(remove(&mut keys, b"z", b"member:8"));
        keys.commit().unwrap();
        assert_eq!((len(&mut keys), value()), (99, changed), "members come and go, and the value stays");
        drop(keys);
        check(pool).unwrap();
        let mut keys = open(pool);
        assert_eq!(len(&mut keys), 99);
        for number in (0..100).filter(|number| ![7, 8].contains(number)) {
            assert!(remove(&mut keys, b"z", format!("member:{number}").as_bytes()));
        }
        assert!(remove(&mut keys, b"z", b"new"));
        keys.commit().unwrap();
        assert_eq!(data.get("z").unwrap().as_deref(), None, "the last member takes its key with it");
        drop(keys);
        check(pool).unwrap();
    });
}

#[test]
fn members_that_are_taken_back_do_not_count() {
    with_pool(tembo::Options::new(), |pool| {
        sample(pool);
        let mut keys = open(pool);
        let len = |keys: &mut Keyspace<'_>| keys.collection(0, b"z", Kind::SortedSet).unwrap().len();
        assert_eq!(len(&mut keys), 100);
        let begin = keys.begin_command().unwrap();
        put(&mut keys, b"z", b"taken back", Score::new(0.5));
        assert_eq!(len(&mut keys), 101);
        keys.undo_command(begin);
        assert_eq!(len(&mut keys), 100);
        put(&mut keys, b"z", b"given up", Score::new(0.5));
        keys.abandon_batch();
        assert_eq!(len(&mut keys), 100);
        put(&mut keys, b"z", b"kept", Score::new(0.5));
        keys.commit().unwrap();
        assert_eq!(len(&mut keys), 101);
        let sorted = keys.collection(0, b"z", Kind::SortedSet).unwrap();
        let CollectionBody::Large { id, .. } = sorted.body else { panic!("it is not large") };
        assert_eq!(keys.count_committed(id).unwrap(), 101);
    });
}

#[test]
fn malformed_members_are_named() {
    says(damaged(|_, _, ordered| _ = ordered.put("short", "").unwrap()), "malformed");
    says(damaged(|_, _, ordered| _ = ordered.put(first(ordered), "rest").unwrap()), "malformed");
    says(
        damaged(|_, _, ordered| {
            let nan = [&first(ordered)[..8], &[0xFF; 8], b"x"].concat();
            ordered.put(nan, "").unwrap();
        }),
        "malformed",
    );
    says(
        damaged(|data, _, _| {
            let mut value = data.get("p").unwrap().unwrap().to_vec();
            // The members change their places.
            let half = (value.len() - 1) / 2;
            value[1..].rotate_left(half);
            data.put("p", value).unwrap();
        }),
        "malformed",
    );
}

/// The lines and words that an addition to a large collection of 20,000 members, and its removal, write.
fn costs(pool: &tembo::Pool, kind: Kind) -> [(u64, u64); 2] {
    let mut keys = open(pool);
    let value = |number: u64| value_of(kind, (number * 7919 % 20_011) as f64);
    let key = kind.name().as_bytes();
    for number in 0..20_000 {
        let mut collection = keys.collection(0, key, kind).unwrap();
        keys.put_element(&mut collection, format!("m{number:07}").as_bytes(), &value(number)).unwrap();
        keys.store(key, collection).unwrap();
        if number % 100 == 0 {
            keys.commit().unwrap();
        }
    }
    keys.commit().unwrap();
    [true, false].map(|adds| {
        let before = tembo::snapshot();
        for number in 0..512 {
            let mut collection = keys.collection(0, key, kind).unwrap();
            let member = format!("n{number:07}");
            match adds {
                true => {
                    _ = keys.put_element(&mut collection, member.as_bytes(), &value(number * 37)).unwrap();
                }
                false => assert!(keys.remove_element(&mut collection, member.as_bytes()).unwrap()),
            }
            keys.store(key, collection).unwrap();
            keys.commit().unwrap();
        }
        let counts = tembo::snapshot() - before;
        (counts.lines * 10 / 512, counts.words * 10 / 512)
    })
}

/// The value of an element of a set or a sorted set.
fn value_of(kind: Kind, score: f64) -> Vec<u8> {
    if kind == Kind::Set { Vec::new() } else { Score::new(score).to_bytes().to_vec() }
}

/// Lines of 256 additions, in a commit each, to a collection of 4,000 members.
fn lines_of_additions(keys: &mut Keyspace<'_>, kind: Kind, (key_bytes, member_bytes): (usize, usize)) -> u64 {
    let mut random = Random::seeded(member_bytes as u64);
    let key = vec![kind.name().as_bytes()[0]; key_bytes];
    let mut add = |keys: &mut Keyspace<'_>, number: u64| {
        let mut collection = keys.collection(0, &key, kind).unwrap();
        let member = format!("{number:0member_bytes$}");
        let value = value_of(kind, random.below(1 << 20) as f64);
        keys.put_element(&mut collection, member.as_bytes(), &value).unwrap();
        keys.store(&key, collection).unwrap();
    };
    for number in 0..4000 {
        add(keys, number);
        if number % 100 == 99 {
            keys.commit().unwrap();
        }
    }
    let before = tembo::snapshot();
    for number in 4000..4256 {
        add(keys, number);
        keys.commit().unwrap();
    }
    (tembo::snapshot() - before).lines
}

/// The cost of two records depends on whether their blocks are of one size, hence neighbours: this is the
/// average over keys and members of all lengths, with random scores.
#[test]
fn additions_to_sorted_sets_cost_what_they_should_whatever_the_lengths() {
    let options = tembo::Options::new().durability(tembo::Durability::Emulated).count(true);
    with_pool(options, |pool| {
        pool.open_map("db.collections").unwrap().put("s", [7; 16]).unwrap();
        let mut keys = open(pool);
        let lengths = (0..16).map(|number| (4 + 5 * number % 16, 6 + number));
        let [set, sorted] = [Kind::Set, Kind::SortedSet].map(|kind| {
            lengths.clone().map(|lengths| lines_of_additions(&mut keys, kind, lengths)).sum::<u64>()
        });
        let (set, sorted) = (set * 10 / 4096, sorted * 10 / 4096);
        assert_eq!((set, sorted), (104, 156), "tenths of lines of an addition");
    });
}

/// In tenths. ZADD is to write at most 1.5 times the lines of SADD. The names here suit SADD: the records of
/// its member and of its key are neighbours.
#[test]
fn an_addition_to_a_large_sorted_set_costs_what_it_should() {
    let options = tembo::Options::new().durability(tembo::Durability::Emulated).count(true);
    with_pool(options, |pool| {
        pool.open_map("db.collections").unwrap().put("s", [7; 16]).unwrap();
        let (set, sorted) = (costs(pool, Kind::Set), costs(pool, Kind::SortedSet));
        println!("set {set:?}, sorted set {sorted:?}: tenths of (lines, words) of adding, of removing");
        assert_eq!((set, sorted), GOLDEN, "tenths of (lines, words) of adding, of removing");
    });
}

type Costs = [(u64, u64); 2];
const GOLDEN: (Costs, Costs) = ([(88, 477), (53, 294)], [(146, 618), (61, 262)]);

/// Lines in tenths of one commit: the key's record written again, an insertion, an insertion into a tree that
/// counts, and these together. A second insertion alone is more than half of a commit of an insertion and a
/// record: two trees write 1.7 times as much, whatever counting costs.
#[test]
fn a_second_tree_costs_more_than_half_of_an_addition_to_the_first() {
    let options = tembo::Options::new().durability(tembo::Durability::Emulated).count(true);
    with_pool(options, |pool| {
        let counting = tembo::MapOptions::new().counting(tembo::Counting::Records);
        let maps = [pool.open_map("plain").unwrap(), pool.open_map_with("counting", counting).unwrap()];
        let record = pool.open_map("record").unwrap();
        let key = |number: u64| {
            let place = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
            [&[7; 8][..], &place, format!("m{number:07}").as_bytes()].concat()
        };
        for number in 0..20_000 {
            maps.iter().for_each(|map| _ = map.put(key(number), [1; 8]).unwrap());
        }
        let mut fresh = 20_000;
        let mut lines_of = |plain: u64, counting: u64, records: u64| {
            let before = tembo::snapshot();
            for number in 0..512 {
                let mut batch = pool.batch().unwrap();
                for (map, count) in maps.iter().zip([plain, counting]) {
                    for _ in 0..count {
                        fresh += 1;
                        batch.put(map, &key(fresh), &[1; 8]).unwrap();
                    }
                }
                (0..records).for_each(|_| _ = batch.put(&record, b"key", &[number as u8; 24]).unwrap());
                batch.commit().unwrap();
            }
            (tembo::snapshot() - before).lines * 10 / 512
        };
        let found = [(0, 0, 1), (1, 0, 0), (0, 1, 0), (1, 0, 1), (1, 1, 1), (2, 0, 1)];
        let found = found.map(|(plain, counting, records)| lines_of(plain, counting, records));
        assert_eq!(found, [36, 61, 85, 81, 137, 133]);
    });
}
