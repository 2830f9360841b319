//! Values of all kinds in heaps, and keys.

use crate::{File, bytes_of, with_heap};
use std::num::NonZero;
use std::time::Duration;
use tembo_heap::collections::{MapKey, PHashMap, PMap, PVec};
use tembo_heap::{Brand, Heap, PArr, Persist, Plain, ReadTx, Ref, Result, Scoped, Tx};

#[derive(Default, Persist)]
#[repr(C)]
pub(crate) struct City {
    name: PArr<u8>,
    zip: [u8; 5],
}

#[test]
fn text_lies_in_arrays() {
    with_heap::<City>(|heap| {
        let name = "Nairobi".to_owned();
        heap.write(|tx, city| {
            let letters = tx.alloc_array(name.len(), |i| name.as_bytes()[i])?;
            tx.link_array(city.name(), letters)?;
            tx.set(city.zip(), *b"00100")
        })?;
        heap.read(|tx, city| {
            let name = tx.array(city.name())?.unwrap();
            let letters: Vec<u8> = (0..name.len()).map(|i| tx.get(name.at(i))).collect::<Result<_>>()?;
            assert_eq!((letters.as_slice(), tx.get(city.zip())?), (&b"Nairobi"[..], *b"00100"));
            assert_eq!(tx.get(city.zip().at(2))?, b'1');
            Ok(())
        })
    });
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Persist, Plain)]
#[repr(u8)]
enum Work {
    #[default]
    Rest,
    Double = 7,
    Add(u64),
}

impl Work {
    fn run(self, number: u64) -> u64 {
        match self {
            Work::Rest => number,
            Work::Double => 2 * number,
            Work::Add(more) => number + more,
        }
    }
}

#[derive(Default, Persist)]
#[repr(C)]
struct Task {
    priority: u32,
    work: Work,
}

#[test]
fn what_to_do_is_an_enum() {
    with_heap::<Task>(|heap| {
        for (work, result) in [(Work::Rest, 5), (Work::Double, 10), (Work::Add(2), 7)] {
            heap.write(|tx, task| {
                tx.set(task.priority(), 1)?;
                tx.set(task.work(), work)
            })?;
            let read = heap.read(|tx, task| tx.get(task.work()))?;
            assert_eq!((read, read.run(5)), (work, result));
        }
        Ok(())
    });
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Persist, Plain)]
#[repr(C)]
struct Numbers {
    a: u8,
    b: u64,
    c: i16,
    d: u128,
    e: f32,
    f: [[i32; 3]; 2],
    g: (),
    h: bool,
    i: char,
    j: f64,
}

#[test]
fn numbers_of_every_width_are_there_again() {
    let numbers = Numbers {
        a: 1,
        b: u64::MAX,
        c: -3,
        d: u128::MAX / 3,
        e: 0.5,
        f: [[1, 2, 3], [-4, -5, -6]],
        g: (),
        h: true,
        i: 'ß',
        j: -1e300,
    };
    let file = File::new();
    Heap::<Scoped, Numbers>::with(&file.path, &file.options, |heap| {
        heap.write(|tx, root| tx.set(*root, numbers))
    })
    .unwrap();
    Heap::<Scoped, Numbers>::with(&file.path, &file.options, |heap| {
        assert_eq!(heap.read(|tx, root| tx.get(*root))?, numbers);
        let f = heap.read(|tx, root| tx.get(root.f().at(1).at(2)))?;
        let (g, i) = heap.read(|tx, root| Ok((tx.get(root.g())?, tx.get(root.i())?)))?;
        assert_eq!((f, g, i), (-6, (), 'ß'));
        Ok(())
    })
    .unwrap();
}

#[test]
fn padding_is_written_as_zeros() {
    let numbers = Numbers { a: 0xFF, b: 0, c: -1, ..Numbers::default() };
    let bytes = bytes_of(&numbers);
    assert_eq!(bytes.iter().filter(|byte| **byte != 0).count(), 3);
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Persist, Plain)]
#[repr(C)]
struct Small {
    port: Option<NonZero<u16>>,
    age: Option<u32>,
    is_new: Option<bool>,
    initial: Option<char>,
    took: Duration,
    left: Option<Duration>,
    place: (f64, f64, u8),
}

#[derive(Default, Persist)]
#[repr(C)]
struct Smalls {
    all: PVec<Small>,
    by_place: PMap<(u8, u64), NonZero<u64>>,
    by_age: PHashMap<Option<u32>, (Duration, Option<i64>)>,
}

#[test]
fn small_values_may_be_absent() {
    let some = Small {
        port: NonZero::new(80),
        age: Some(0),
        is_new: Some(false),
        initial: Some('Ω'),
        took: Duration::from_millis(1500),
        left: Some(Duration::ZERO),
        place: (1.5, -2.5, 7),
    };
    let wait = (Duration::MAX, Some(-1));
    let file = File::new();
    Heap::<Scoped, Smalls>::with(&file.path, &file.options, |heap| {
        heap.write(|tx, root| {
            root.all().push(tx, Small::default())?;
            root.all().push(tx, some)?;
            root.by_place().insert(tx, &(2, 1), NonZero::<u64>::MIN)?;
            root.by_place().insert(tx, &(1, u64::MAX), NonZero::<u64>::MAX)?;
            root.by_age().insert(tx, &None, wait)?;
            root.by_age().insert(tx, &Some(0), (Duration::ZERO, None)).map(drop)
        })
    })
    .unwrap();
    Heap::<Scoped, Smalls>::with(&file.path, &file.options, |heap| {
        heap.write(|tx, root| {
            let all = root.all().iter(tx)?.map(|small| tx.get(small)).collect::<Result<Vec<_>>>()?;
            assert_eq!(all, [Small::default(), some]);
            let keys = root.by_place().iter(tx)?.map(|entry| Ok(entry?.0)).collect::<Result<Vec<_>>>()?;
            assert_eq!(keys, [(1, u64::MAX), (2, 1)], "in the order of tuples");
            assert_eq!(root.by_age().value(tx, &None)?, Some(wait));
            assert_eq!(root.by_age().value(tx, &Some(0))?, Some((Duration::ZERO, None)));
            let first = root.all().at(tx, 0)?;
            tx.get_mut(first.age())?.get_or_insert(40);
            tx.get_mut(first.place())?.2 += 1;
            assert_eq!((tx.get(first.age())?, tx.get(first.place())?), (Some(40), (0.0, 0.0, 1)));
            Ok(())
        })
    })
    .unwrap();
}

/// Names that are methods of places only where somebody imports their traits, or not at all.
#[derive(Default, Persist)]
#[repr(C)]
struct Named {
    from: u64,
    into_: u64,
    hash: u64,
    fmt: u64,
    borrow: u64,
    at: u64,
    new: u64,
    part: u64,
    get: u64,
    r#type: u64,
}

#[test]
fn accessors_are_named_like_their_fields() {
    with_heap::<Named>(|heap| {
        heap.write(|tx, named| {
            let places = [named.from(), named.into_(), named.hash(), named.fmt(), named.borrow()];
            let more = [named.at(), named.new(), named.part(), named.get(), named.r#type()];
            for (number, place) in places.into_iter().chain(more).enumerate() {
                tx.set(place, number as u64)?;
            }
            assert_eq!((tx.get(named.from())?, tx.get(named.hash())?, tx.get(named.r#type())?), (0, 2, 9));
            Ok(())
        })
    });
}

/// Numbers that are the same if they are so without their last bit.
#[derive(Persist)]
#[repr(C)]
struct Even {
    number: u64,
}

impl MapKey for Even {
    type Query = u64;
    type Owned = u64;

    fn hash(query: &u64) -> u64 {
        <u64 as MapKey>::hash(&(query / 2))
    }

    fn hash_at<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, Self>) -> Result<u64> {
        Ok(Even::hash(&tx.get(place.number())?))
    }

    fn is<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, Self>, query: &u64) -> Result<bool> {
        Ok(tx.get(place.number())? / 2 == query / 2)
    }

    fn new(query: &u64) -> Even {
        Even { number: *query }
    }

    fn complete<'t, B: Brand>(_: &mut Tx<'t, B>, _: Ref<'t, B, Self>, _: &u64) -> Result<()> {
        Ok(())
    }

    fn get<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, Self>) -> Result<u64> {
        tx.get(place.number())
    }
}

#[test]
fn a_type_with_methods_of_its_own_is_a_key() {
    with_heap::<PHashMap<Even, u64>>(|heap| {
        heap.write(|tx, map| {
            map.insert(tx, &4, 1)?;
            map.insert(tx, &5, 2)?;
            map.insert(tx, &6, 3)?;
            assert_eq!((map.len(tx)?, map.value(tx, &4)?, map.value(tx, &7)?), (2, Some(2), Some(3)));
            Ok(())
        })
    });
}
