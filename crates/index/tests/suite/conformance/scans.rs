//! Walks: every range, from both ends, gives what a `BTreeMap` gives.

use super::model::awkward_keys;
use super::{ALL, Bench, Model, OrderedIndex, Record};
use std::ops::Bound;
use tembo_index::Result;

fn filled<I: OrderedIndex>(keys: &[Vec<u8>]) -> (Bench<I>, Model) {
    let mut bench = Bench::new();
    let mut model = Model::new();
    for (i, key) in keys.iter().enumerate() {
        bench.put(key, &i.to_le_bytes());
        model.insert(key.clone(), i.to_le_bytes().to_vec());
    }
    (bench, model)
}

fn collect(walk: impl Iterator<Item = Result<Record>>) -> Vec<Record> {
    walk.map(Result::unwrap).collect()
}

/// `BTreeMap::range` panics where the bounds exclude each other.
fn expected(model: &Model, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Vec<Record> {
    let above = |key: &[u8]| match lower {
        Bound::Included(bound) => key >= bound,
        Bound::Excluded(bound) => key > bound,
        Bound::Unbounded => true,
    };
    let below = |key: &[u8]| match upper {
        Bound::Included(bound) => key <= bound,
        Bound::Excluded(bound) => key < bound,
        Bound::Unbounded => true,
    };
    model.iter().filter(|(k, _)| above(k) && below(k)).map(|(k, v)| (k.clone(), v.clone())).collect()
}

pub(crate) fn every_pair_of_bounds<I: OrderedIndex>() {
    let keys: Vec<Vec<u8>> = awkward_keys().into_iter().filter(|key| key.len() < 100).collect();
    let (bench, model) = filled::<I>(&keys);
    let mut probes: Vec<Vec<u8>> = keys.iter().step_by(23).cloned().collect();
    probes.extend([b"a\0\0\0\0".to_vec(), vec![0xFF; 3], b"aaaaaaaay".to_vec(), vec![0x60]]);
    for low in &probes {
        for high in &probes {
            let bounds = |key| [Bound::Included(key), Bound::Excluded(key), Bound::Unbounded];
            for lower in bounds(low.as_slice()) {
                for upper in bounds(high.as_slice()) {
                    let wanted = expected(&model, lower, upper);
                    assert!(collect(bench.index.walk((lower, upper))) == wanted, "{lower:?} {upper:?}");
                    let mut down = collect(bench.index.walk((lower, upper)).rev());
                    down.reverse();
                    assert!(down == wanted, "downwards, {lower:?} {upper:?}");
                }
            }
        }
    }
}

pub(crate) fn prefixes<I: OrderedIndex>() {
    let mut keys = awkward_keys();
    keys.extend([
        vec![0xFF],
        vec![0xFF, 0],
        vec![0xFF, 0xFF, 0xFF],
        vec![0xFE, 0xFF, 0xFF],
        vec![0xFE, 0xFF],
    ]);
    let (bench, model) = filled::<I>(&keys);
    for prefix in [
        &b""[..],
        b"a",
        b"a\0",
        b"aaaaaaaa",
        b"aaaaaaaaa",
        b"b",
        &[0xFF],
        &[0xFF, 0xFF],
        &[0xFE, 0xFF],
        b"zz",
    ] {
        let wanted: Vec<Record> = model
            .iter()
            .filter(|(k, _)| k.starts_with(prefix))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        assert!(collect(bench.index.prefix(prefix)) == wanted, "{prefix:?}");
        let mut down = collect(bench.index.prefix(prefix).rev());
        down.reverse();
        assert!(down == wanted, "downwards, {prefix:?}");
    }
}

pub(crate) fn both_ends_meet<I: OrderedIndex>() {
    for count in [1u32, 2, 3, 27, 28, 29, 60, 500] {
        let keys: Vec<Vec<u8>> = (0..count).map(|i| format!("{i:05}").into_bytes()).collect();
        let (bench, model) = filled::<I>(&keys);
        for pattern in [0b01u32, 0b10, 0b1011, 0b0111_0101_1100, 0xF0F0] {
            let mut walk = bench.index.walk(ALL);
            let (mut front, mut back) = (Vec::new(), Vec::new());
            for step in 0.. {
                let up = pattern >> (step % 16) & 1 == 1;
                match if up { walk.next() } else { walk.next_back() } {
                    Some(record) => {
                        if up {
                            front.push(record.unwrap())
                        } else {
                            back.push(record.unwrap())
                        }
                    }
                    None => break,
                }
            }
            assert!(walk.next().is_none() && walk.next_back().is_none());
            back.reverse();
            front.extend(back);
            let wanted: Vec<Record> = model.clone().into_iter().collect();
            assert!(front == wanted, "{count} records, pattern {pattern:b}");
        }
    }
}

pub(crate) fn a_walk_goes_on_where_nodes_were_joined<I: OrderedIndex>() {
    let keys: Vec<Vec<u8>> = (0..120u32).map(|i| format!("{i:05}").into_bytes()).collect();
    for (steps, up) in (0..120).flat_map(|steps| [(steps, true), (steps, false)]) {
        let (mut bench, _) = filled::<I>(&keys);
        let mut walk = bench.index.walk(ALL);
        let mut step = || if up { walk.next() } else { walk.next_back() };
        let mut met: Vec<Vec<u8>> = (0..steps).map(|_| step().unwrap().unwrap().0).collect();
        let mut tx = bench.lane.begin();
        for key in keys.iter().enumerate().filter(|(i, _)| i % 9 != 0).map(|(_, key)| key) {
            bench.index.remove(&mut tx, key).unwrap();
        }
        tx.commit().unwrap();
        met.extend(std::iter::from_fn(step).map(|record| record.unwrap().0));
        let in_order = |two: &[Vec<u8>]| if up { two[0] < two[1] } else { two[0] > two[1] };
        assert!(met.windows(2).all(in_order), "a key twice, or out of order, after {steps} steps");
        for staying in keys.iter().step_by(9) {
            assert!(met.contains(staying), "a key that stays was missed after {steps} steps");
        }
    }
}

pub(crate) fn walks_of_an_empty_index<I: OrderedIndex>() {
    let mut bench = Bench::<I>::new();
    let nothing = |bench: &Bench<I>| {
        assert_eq!(collect(bench.index.walk(ALL)), []);
        assert_eq!(collect(bench.index.walk(ALL).rev()), []);
        assert_eq!(collect(bench.index.walk((Bound::Included(b"a"), Bound::Unbounded))), []);
        assert_eq!(collect(bench.index.prefix(b"")), []);
        assert_eq!(bench.get(b""), None);
        assert_eq!(bench.index.len().unwrap(), 0);
    };
    nothing(&bench);
    assert!(!bench.remove(b""));
    bench.put(b"", b"");
    bench.remove(b"");
    nothing(&bench);
    bench.check();
}

pub(crate) fn first_and_last_of_changing_contents<I: OrderedIndex>() {
    let mut bench = Bench::<I>::new();
    let mut model = Model::new();
    for i in 0..600u32 {
        let key = (i.wrapping_mul(2_654_435_761)).to_be_bytes();
        bench.put(&key, b"");
        model.insert(key.to_vec(), vec![]);
        if i % 3 == 2 {
            let gone = if i % 2 == 0 { model.pop_first() } else { model.pop_last() }.unwrap().0;
            assert!(bench.remove(&gone));
        }
        let first = bench.index.walk(ALL).next().map(|r| r.unwrap().0);
        let last = bench.index.walk(ALL).next_back().map(|r| r.unwrap().0);
        assert_eq!(first.as_ref(), model.first_key_value().map(|(k, _)| k));
        assert_eq!(last.as_ref(), model.last_key_value().map(|(k, _)| k));
    }
}
