//! Maps with entries of all sizes, and of odd ones.

use super::{Leaf, LeafPrivateFields, text};
use crate::collections::{Place, Tested, objects, prove, turn};
use rand::Rng;
use std::collections::BTreeMap;
use tembo_heap::collections::{PHashMap, PString};
use tembo_heap::{Obj, PRc, Persist, Plain, ReadTx, Result, Tx};

/// Entries of all sizes: some lie in buckets, some are objects of their own, some have pointers.
#[derive(Default, Persist)]
#[repr(C)]
struct AllSizes {
    nothing: PHashMap<u64, ()>,
    small: PHashMap<u32, u8>,
    three: PHashMap<u64, u64>,
    two: PHashMap<u64, [u64; 2]>,
    apart: PHashMap<u64, [u64; 3]>,
    large: PHashMap<u64, [u8; 200]>,
    pointers: PHashMap<u64, PRc<Leaf>>,
    texts: PHashMap<PString, PString>,
}

/// An enum whose variants have fields.
#[derive(Debug, Clone, Copy, PartialEq, Persist, Plain)]
#[repr(u8)]
enum Kind {
    Nothing,
    Number { number: u32 },
    Letter { letter: char },
}

fn kind(key: u64) -> Kind {
    match key % 3 {
        0 => Kind::Nothing,
        1 => Kind::Number { number: key as u32 },
        _ => Kind::Letter { letter: 'x' },
    }
}

/// Entries whose sizes and alignments fit into words badly.
#[derive(Default, Persist)]
#[repr(C)]
struct OddSizes {
    wide: PHashMap<u128, ()>,
    wider: PHashMap<u128, u64>,
    two: PHashMap<u16, ()>,
    twelve: PHashMap<u16, [u8; 10]>,
    twenty: PHashMap<[u8; 4], [u8; 16]>,
    nine: PHashMap<[u8; 3], [u8; 6]>,
    kinds: PHashMap<u32, Kind>,
    one: PHashMap<(), u64>,
}

/// The keys of the maps that stand for a key.
fn odd_keys(key: u64) -> (u128, u16, [u8; 4], [u8; 3]) {
    (u128::from(key) << 64 | 5, key as u16, (key as u32).to_ne_bytes(), [key as u8, (key >> 8) as u8, 7])
}

/// Puts a key into all maps, or takes it out of all.
fn change_odd<'t>(
    tx: &mut Tx<'t, Tested>,
    root: Obj<'t, Tested, OddSizes>,
    key: u64,
    is_there: bool,
) -> Result<()> {
    let (wide, two, four, three) = odd_keys(key);
    if is_there {
        root.wide().insert(tx, &wide, ())?;
        root.wider().insert(tx, &wide, key)?;
        root.two().insert(tx, &two, ())?;
        root.twelve().insert(tx, &two, [key as u8; 10])?;
        root.twenty().insert(tx, &four, [key as u8; 16])?;
        root.nine().insert(tx, &three, [key as u8; 6])?;
        root.kinds().insert(tx, &(key as u32), kind(key))?;
        root.one().insert(tx, &(), key)?;
        return Ok(());
    }
    let removed = [
        root.wide().remove(tx, &wide)?,
        root.wider().remove(tx, &wide)?,
        root.two().remove(tx, &two)?,
        root.twelve().remove(tx, &two)?,
        root.twenty().remove(tx, &four)?,
        root.nine().remove(tx, &three)?,
        root.kinds().remove(tx, &(key as u32))?,
    ];
    assert_eq!(removed, [removed[0]; 7]);
    root.one().remove(tx, &())?;
    Ok(())
}

fn compare_odd<'t>(
    tx: &ReadTx<'t, Tested>,
    root: Obj<'t, Tested, OddSizes>,
    there: &BTreeMap<u64, ()>,
) -> Result<()> {
    for key in 0..2000_u64 {
        let (wide, two, four, three) = odd_keys(key);
        let is_there = there.contains_key(&key);
        assert_eq!(root.wide().value(tx, &wide)?.is_some(), is_there);
        assert_eq!(root.wider().value(tx, &wide)?, is_there.then_some(key));
        assert_eq!(root.two().value(tx, &two)?.is_some(), is_there);
        assert_eq!(root.twelve().value(tx, &two)?, is_there.then_some([key as u8; 10]));
        assert_eq!(root.twenty().value(tx, &four)?, is_there.then_some([key as u8; 16]));
        assert_eq!(root.nine().value(tx, &three)?, is_there.then_some([key as u8; 6]));
        assert_eq!(root.kinds().value(tx, &(key as u32))?, is_there.then(|| kind(key)));
    }
    let lens = [root.wide().len(tx)?, root.twelve().iter(tx)?.count(), root.nine().iter(tx)?.count()];
    assert_eq!(lens, [there.len(); 3]);
    assert!(root.one().len(tx)? < 2 && root.one().iter(tx)?.count() < 2);
    Ok(())
}

#[test]
fn maps_with_entries_of_odd_sizes_have_what_was_put_into_them() {
    let _turn = turn();
    let place = Place::new();
    let heap = place.open::<Tested, OddSizes>();
    let mut random = crate::collections::random("odd sizes");
    let mut there = BTreeMap::new();
    for round in 0..60 {
        let changes: Vec<(u64, bool)> =
            (0..80).map(|_| (random.random_range(0..2000), random.random_bool(0.75))).collect();
        heap.write(|tx, root| {
            changes.iter().try_for_each(|(key, is_there)| change_odd(tx, root, *key, *is_there))
        })
        .unwrap();
        for (key, is_there) in changes {
            if is_there {
                there.insert(key, ())
            } else {
                there.remove(&key)
            };
        }
        heap.read(|tx, root| compare_odd(tx, root, &there)).unwrap();
        if round % 20 == 0 {
            prove(&heap);
        }
    }
    prove(&heap);
}

/// Puts a key into all maps, or takes it out of all.
fn change_all<'t>(
    tx: &mut Tx<'t, Tested>,
    root: Obj<'t, Tested, AllSizes>,
    key: u64,
    is_there: bool,
) -> Result<()> {
    if is_there {
        root.nothing().insert(tx, &key, ())?;
        root.small().insert(tx, &(key as u32), key as u8)?;
        root.three().insert(tx, &key, !key)?;
        root.two().insert(tx, &key, [key, !key])?;
        root.apart().insert(tx, &key, [key; 3])?;
        root.large().insert(tx, &key, [key as u8; 200])?;
        let place = root.pointers().insert(tx, &key, PRc::null())?;
        let leaf = tx.alloc(Leaf { value: key })?;
        tx.link(place, leaf)?;
        return root.texts().insert(tx, &text(key), PString::default())?.set(tx, &text(!key));
    }
    assert!(root.nothing().remove(tx, &key)? && root.small().remove(tx, &(key as u32))?);
    assert!(root.three().remove(tx, &key)? && root.two().remove(tx, &key)?);
    assert!(root.apart().remove(tx, &key)? && root.large().remove(tx, &key)?);
    assert!(root.pointers().remove(tx, &key)? && root.texts().remove(tx, &text(key))?);
    Ok(())
}

fn compare_all<'t>(
    tx: &ReadTx<'t, Tested>,
    root: Obj<'t, Tested, AllSizes>,
    there: &BTreeMap<u64, ()>,
) -> Result<()> {
    for key in 0..1500 {
        let of = |value| there.contains_key(&key).then_some(value);
        assert_eq!(root.nothing().value(tx, &key)?, there.get(&key).copied());
        assert_eq!(root.small().value(tx, &(key as u32))?.map(u64::from), of(key & 0xFF));
        assert_eq!(root.three().value(tx, &key)?, of(!key));
        assert_eq!(root.two().value(tx, &key)?.map(|[low, high]| low ^ high), of(u64::MAX));
        assert_eq!(root.apart().value(tx, &key)?.map(|values| values[2]), of(key));
        assert_eq!(root.large().value(tx, &key)?.map(|values| u64::from(values[199])), of(key & 0xFF));
        let leaf = root.pointers().get(tx, &key)?.map(|place| tx.load(place)).transpose()?.flatten();
        assert_eq!(leaf.map(|leaf| tx.get(leaf.value())).transpose()?, of(key));
        let found = root.texts().get(tx, &text(key))?.map(|place| place.get(tx)).transpose()?;
        assert_eq!(found, there.contains_key(&key).then(|| text(!key)));
    }
    let keys = |keys: Vec<u64>| {
        let found: std::collections::BTreeSet<u64> = keys.into_iter().collect();
        assert!(found.iter().eq(there.keys()));
    };
    keys(root.nothing().iter(tx)?.map(|entry| entry.map(|entry| entry.0)).collect::<Result<_>>()?);
    keys(root.two().iter(tx)?.map(|entry| entry.map(|entry| entry.0)).collect::<Result<_>>()?);
    keys(root.large().iter(tx)?.map(|entry| entry.map(|entry| entry.0)).collect::<Result<_>>()?);
    assert_eq!(root.apart().iter(tx)?.count(), there.len());
    assert_eq!(root.texts().len(tx)?, there.len());
    Ok(())
}

fn clear_all<'t>(tx: &mut Tx<'t, Tested>, root: Obj<'t, Tested, AllSizes>) -> Result<()> {
    root.nothing().clear(tx)?;
    root.small().clear(tx)?;
    root.three().clear(tx)?;
    root.two().clear(tx)?;
    root.apart().clear(tx)?;
    root.large().clear(tx)?;
    root.pointers().clear(tx)?;
    root.texts().clear(tx)
}

#[test]
fn maps_with_entries_of_all_sizes_have_what_was_put_into_them() {
    let _turn = turn();
    let place = Place::new();
    let mut heap = place.open::<Tested, AllSizes>();
    let before = objects(&heap);
    let mut random = crate::collections::random("sizes");
    let mut there = BTreeMap::new();
    for round in 0..60 {
        let changes: Vec<(u64, bool)> = (0..60)
            .map(|_| {
                let key = random.random_range(0..1500);
                let is_there = !there.contains_key(&key) || random.random_bool(0.3);
                if is_there {
                    there.insert(key, ())
                } else {
                    there.remove(&key)
                };
                (key, is_there)
            })
            .collect();
        heap.write(|tx, root| {
            changes.iter().try_for_each(|(key, is_there)| change_all(tx, root, *key, *is_there))
        })
        .unwrap();
        heap.read(|tx, root| compare_all(tx, root, &there)).unwrap();
        if round % 20 == 0 {
            prove(&heap);
            drop(heap);
            heap = place.open();
        }
    }
    assert!(there.len() > 500);
    heap.write(|tx, root| there.keys().try_for_each(|key| change_all(tx, root, *key, false))).unwrap();
    prove(&heap);
    heap.write(clear_all).unwrap();
    prove(&heap);
    assert_eq!(objects(&heap), before);
}
