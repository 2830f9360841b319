//! Cursors: every move leads where it would in a `BTreeMap`, and changes on the way harm none.

use super::model::{awkward_keys, numbered};
use super::{Bench, Model, OrderedCursor, OrderedIndex, Record};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::ops::Bound;

/// Where a cursor is in a model.
#[derive(Debug, Clone, PartialEq)]
enum Place {
    BeforeFirst,
    At(Vec<u8>),
    AfterLast,
}

fn next(model: &Model, place: &Place) -> Place {
    let lower = match place {
        Place::BeforeFirst => Bound::Unbounded,
        Place::At(key) => Bound::Excluded(key.clone()),
        Place::AfterLast => return Place::AfterLast,
    };
    model.range((lower, Bound::Unbounded)).next().map_or(Place::AfterLast, |(key, _)| Place::At(key.clone()))
}

fn prev(model: &Model, place: &Place) -> Place {
    let upper = match place {
        Place::BeforeFirst => return Place::BeforeFirst,
        Place::At(key) => Bound::Excluded(key.clone()),
        Place::AfterLast => Bound::Unbounded,
    };
    let last = model.range((Bound::Unbounded, upper)).next_back();
    last.map_or(Place::BeforeFirst, |(key, _)| Place::At(key.clone()))
}

fn seek(model: &Model, key: &[u8]) -> Place {
    model.range(key.to_vec()..).next().map_or(Place::AfterLast, |(key, _)| Place::At(key.clone()))
}

fn seek_back(model: &Model, key: &[u8]) -> Place {
    let last = model.range(..=key.to_vec()).next_back();
    last.map_or(Place::BeforeFirst, |(key, _)| Place::At(key.clone()))
}

fn assert_at(cursor: &impl OrderedCursor, model: &Model, place: &Place) {
    let expected: Option<Record> =
        if let Place::At(key) = place { Some((key.clone(), model[key].clone())) } else { None };
    assert!(cursor.record() == expected, "{:?} instead of {place:?}", cursor.record().map(|(key, _)| key));
}

fn filled<I: OrderedIndex>(keys: &[Vec<u8>]) -> (Bench<I>, Model) {
    let (mut bench, mut model) = (Bench::<I>::new(), Model::new());
    let mut tx = bench.lane.begin();
    for (i, key) in keys.iter().enumerate() {
        bench.index.put(&mut tx, key, &i.to_le_bytes()).unwrap();
        model.insert(key.clone(), i.to_le_bytes().to_vec());
    }
    tx.commit().unwrap();
    (bench, model)
}

pub(crate) fn every_move_agrees_with_a_model<I: OrderedIndex>() {
    let awkward = awkward_keys();
    let ordered: Vec<Vec<u8>> = (0..2000).map(|i| numbered(2 * i)).collect();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(29);
    for keys in [&awkward[..], &ordered, &ordered[..1], &ordered[..28], &ordered[..29], &[]] {
        let (bench, model) = filled::<I>(keys);
        let mut cursor = bench.index.cursor();
        let mut place = Place::BeforeFirst;
        let mut leaning = 0.5;
        for step in 0..6000 {
            if step % 100 == 0 {
                leaning = [0.05, 0.5, 0.95][random.random_range(0..3)];
            }
            let mut probe = match keys {
                [] => vec![random.random()],
                keys => keys[random.random_range(0..keys.len())].clone(),
            };
            match random.random_range(0..3) {
                0 => probe.push(0),
                1 => _ = probe.pop(),
                _ => {}
            }
            let (moved, to) = match random.random_range(0..200) {
                0 => (cursor.seek_first(), next(&model, &Place::BeforeFirst)),
                1 => (cursor.seek_last(), prev(&model, &Place::AfterLast)),
                2..8 => (cursor.seek(&probe), seek(&model, &probe)),
                8..14 => (cursor.seek_back(&probe), seek_back(&model, &probe)),
                _ if random.random_bool(leaning) => (cursor.next(), next(&model, &place)),
                _ => (cursor.prev(), prev(&model, &place)),
            };
            place = to;
            assert_eq!(moved.unwrap(), matches!(place, Place::At(_)));
            assert_at(&cursor, &model, &place);
        }
    }
}

pub(crate) fn a_cursor_at_both_ends<I: OrderedIndex>() {
    for count in [1, 28, 29, 300] {
        let keys: Vec<Vec<u8>> = (0..count).map(numbered).collect();
        let (bench, _) = filled::<I>(&keys);
        let (first, last) = (keys.first(), keys.last());
        let at = |cursor: &_| OrderedCursor::record(cursor).map(|(key, _)| key);
        let mut cursor = bench.index.cursor();
        assert!(at(&cursor).is_none() && !cursor.prev().unwrap());
        assert!(cursor.next().unwrap() && at(&cursor).as_ref() == first);
        assert!(!cursor.prev().unwrap() && at(&cursor).is_none());
        assert!(!cursor.prev().unwrap());
        assert!(cursor.next().unwrap() && at(&cursor).as_ref() == first);
        assert!(cursor.seek_last().unwrap() && at(&cursor).as_ref() == last);
        assert!(!cursor.next().unwrap() && at(&cursor).is_none());
        assert!(!cursor.next().unwrap());
        assert!(cursor.prev().unwrap() && at(&cursor).as_ref() == last);
        assert!(!cursor.seek(b"z").unwrap() && cursor.prev().unwrap() && at(&cursor).as_ref() == last);
        assert!(!cursor.seek_back(b"").unwrap() && cursor.next().unwrap() && at(&cursor).as_ref() == first);
    }
}

pub(crate) fn a_cursor_on_an_empty_index<I: OrderedIndex>() {
    let mut bench = Bench::<I>::new();
    let index = bench.index.clone();
    let mut cursor = index.cursor();
    for round in 0..2 {
        assert!(!cursor.next().unwrap() && !cursor.prev().unwrap());
        assert!(!cursor.seek(b"").unwrap() && !cursor.seek_back(b"x").unwrap());
        assert!(!cursor.seek_first().unwrap() && !cursor.seek_last().unwrap());
        assert_eq!(cursor.record(), None);
        // The empty key, with an empty value, is a record like others, and one that is removed stays
        // readable.
        bench.put(b"", b"");
        assert!(cursor.seek(b"").unwrap(), "round {round}");
        assert!(bench.remove(b""));
        assert_eq!(cursor.record(), Some((vec![], vec![])));
    }
}

pub(crate) fn a_cursor_goes_on_where_the_index_changed<I: OrderedIndex>() {
    let keys: Vec<Vec<u8>> = (0..400).map(numbered).collect();
    for (at, up) in (0..400).step_by(7).flat_map(|at| [(at, true), (at, false)]) {
        let (mut bench, _) = filled::<I>(&keys);
        let index = bench.index.clone();
        let mut cursor = index.cursor();
        assert!(cursor.seek(&keys[at]).unwrap());
        // Nodes are joined around the cursor, its own record goes, and others take the space.
        let mut tx = bench.lane.begin();
        for key in keys.iter().enumerate().filter(|(i, _)| i % 9 != 0).map(|(_, key)| key) {
            index.remove(&mut tx, key).unwrap();
        }
        tx.commit().unwrap();
        (0..300).for_each(|i| _ = bench.put(&[b"a", &numbered(i)[..]].concat(), b"12345678"));
        assert_eq!(cursor.record(), Some((keys[at].clone(), at.to_le_bytes().to_vec())));
        let mut met = vec![keys[at].clone()];
        while if up { cursor.next() } else { cursor.prev() }.unwrap() {
            met.push(cursor.record().unwrap().0);
        }
        let in_order = |two: &[Vec<u8>]| if up { two[0] < two[1] } else { two[0] > two[1] };
        assert!(met.windows(2).all(in_order), "a key twice, or out of order, from {at}");
        let staying =
            keys.iter().step_by(9).filter(|key| if up { **key > keys[at] } else { **key < keys[at] });
        assert!({ staying }.all(|key| met.contains(key)), "a key that stays was missed from {at}");
    }
}

/// Random moves, and changes between them: a step never goes back, and never over a record that stays.
pub(crate) fn a_cursor_steps_over_nothing_that_stays<I: OrderedIndex>() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(31);
    let staying: Vec<Vec<u8>> = (0..600).step_by(3).map(numbered).collect();
    let (mut bench, model) = filled::<I>(&staying);
    let index = bench.index.clone();
    let mut cursor = index.cursor();
    let mut place = Place::BeforeFirst;
    for _ in 0..20_000 {
        let other = random.random_range(0..200) * 3 + random.random_range(1..3);
        match random.random_range(0..8) {
            0..2 => _ = bench.put(&numbered(other), b"comes and goes"),
            2..4 => _ = bench.remove(&numbered(other)),
            _ => {}
        }
        if random.random_range(0..50) == 0 {
            let from = numbered(random.random_range(0..600));
            cursor.seek(&from).unwrap();
            let stays = seek(&model, &from);
            let found = cursor.record().map(|(key, _)| key);
            assert!(found.as_ref().is_none_or(|found| *found >= from));
            assert!(matches!((&found, stays), (None, Place::AfterLast) | (Some(_), _)));
            place = found.map_or(Place::AfterLast, Place::At);
            continue;
        }
        let up = random.random_bool(0.5);
        let nearest = if up { next(&model, &place) } else { prev(&model, &place) };
        if up { cursor.next() } else { cursor.prev() }.unwrap();
        match (cursor.record().map(|(key, _)| key), nearest) {
            (Some(found), nearest) => {
                let goes_on = match &place {
                    Place::At(old) => {
                        if up {
                            *old < found
                        } else {
                            found < *old
                        }
                    }
                    _ => true,
                };
                let passes = match &nearest {
                    Place::At(stays) => {
                        if up {
                            found > *stays
                        } else {
                            found < *stays
                        }
                    }
                    _ => false,
                };
                assert!(goes_on && !passes, "from {place:?} to {found:?} over {nearest:?}");
                place = Place::At(found);
            }
            (None, nearest) => {
                assert!(!matches!(nearest, Place::At(_)), "from {place:?} over {nearest:?}");
                place = nearest;
            }
        }
    }
}
