//! Programs that the type system of heaps allows: for each that does not compile (`compile_fail/`), one that
//! does the same rightly, and runs.

#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, unreachable_pub)]

use std::marker::PhantomData;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tembo_heap::collections::{MapKey, PHashMap, PMap, PVec};
use tembo_heap::{
    Brand, Error, ErrorKind, Handle, Heap, Obj, Options, PArr, PRc, PWeak, Persist, Plain, ReadTx, Ref,
    Result, Scoped, Tx, brand,
};

brand!(
    /// The only brand that is seen outside of this crate, so that it has to say what it is.
    pub Public
);

/// Runs with a heap that is gone afterwards.
fn with_heap<R: Persist + Default>(body: impl for<'h> FnOnce(Heap<Scoped<'h>, R>) -> Result<()>) {
    let file = File::new();
    Heap::<Scoped, R>::with(&file.path, &file.options, body).unwrap();
}

/// A file that is gone when this is.
struct File {
    path: PathBuf,
    options: Options,
    _directory: tempfile::TempDir,
}

impl File {
    fn new() -> File {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::new().create(true).initial_bytes(4 << 20).max_bytes(16 << 20);
        File { path: directory.path().join("heap.pool"), options, _directory: directory }
    }
}

/// A node of a tree.
#[derive(Debug, Default, Persist)]
#[repr(C)]
pub struct Node {
    /// The sort key.
    pub key: u64,
    /// Smaller keys.
    pub left: PRc<Node>,
    /// Greater keys.
    pub right: PRc<Self>,
    parent: PWeak<Node>,
}

impl Node {
    fn new(key: u64) -> Node {
        Node { key, ..Node::default() }
    }
}

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    count: u64,
    first: PRc<Node>,
    second: PRc<Node>,
}

#[test]
fn an_object_leads_to_another() {
    with_heap::<Root>(|heap| {
        heap.write(|tx, root| {
            let (top, left) = (tx.alloc(Node::new(5))?, tx.alloc(Node::new(3))?);
            tx.link(top.left(), left)?;
            tx.link_weak(left.parent(), top)?;
            tx.link(root.first(), top)
        })?;
        heap.read(|tx, root| {
            let top = tx.load(root.first())?.unwrap();
            let left = tx.load(top.left())?.unwrap();
            assert_eq!((tx.get(top.key())?, tx.get(left.key())?), (5, 3));
            assert_eq!(tx.upgrade(left.parent())?, Some(top));
            assert_eq!(tx.load(left.left())?, None);
            Ok(())
        })
    });
}

#[derive(Default, Persist)]
#[repr(C)]
struct City {
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

#[test]
fn a_field_is_read_set_and_borrowed() {
    with_heap::<Root>(|heap| {
        heap.write(|tx, root| {
            tx.set(root.count(), 1)?;
            *tx.get_mut(root.count())? += 1;
            let mut count = tx.get_mut(root.count())?;
            *count += 1;
            assert_eq!(*count, 3);
            drop(count);
            assert_eq!(tx.get(root.count())?, 3);
            Ok(())
        })
    });
}

#[derive(Default, Persist)]
#[repr(C)]
struct Forest {
    tallest: PRc<Node>,
    seen: PWeak<Node>,
}

#[test]
fn dead_objects_take_what_they_own_along() {
    with_heap::<Forest>(|heap| {
        heap.write(|tx, root| {
            let (top, left) = (tx.alloc(Node::new(5))?, tx.alloc(Node::new(3))?);
            tx.link(top.left(), left)?;
            tx.link(root.tallest(), top)?;
            tx.link_weak(root.seen(), left)
        })?;
        let is_seen = || heap.read(|tx, root| Ok(tx.upgrade(root.seen())?.is_some()));
        assert!(is_seen()?);
        heap.write(|tx, root| tx.link(root.tallest(), None))?;
        heap.collect()?;
        assert!(!is_seen()?, "only the top kept it alive");
        Ok(())
    });
}

/// Generic, with a parameter that is only named and a number.
#[derive(Debug, Persist)]
#[repr(C)]
pub struct Pair<T: Persist, Unit: Persist, const N: usize = 2> {
    /// Both.
    pub values: [T; N],
    /// Another one.
    pub next: PRc<Pair<T, Unit, N>>,
    unit: PhantomData<Unit>,
}

impl<T: Persist + Default + Copy, Unit: Persist, const N: usize> Default for Pair<T, Unit, N> {
    fn default() -> Self {
        Pair { values: [T::default(); N], next: PRc::null(), unit: PhantomData }
    }
}

#[derive(Debug, Clone, Copy, Persist, Plain)]
#[repr(C)]
struct Metres;

#[test]
fn generic_types_lie_in_heaps() {
    with_heap::<Pair<f64, Metres>>(|heap| {
        heap.write(|tx, root| {
            let next = tx.alloc(Pair { values: [1.5, 2.5], ..Pair::default() })?;
            tx.link(root.next(), next)?;
            let next = tx.load(root.next())?.unwrap();
            assert_eq!((tx.get(next.values())?, tx.get(root.values())?), ([1.5, 2.5], [0.0; 2]));
            Ok(())
        })
    });
    assert_eq!(<Pair<f64, Metres>>::name(), "Pair<f64, Metres, 2>");
    let hashes = [
        <Pair<f64, Metres>>::NAME_HASH,
        <Pair<f64, f64>>::NAME_HASH,
        <Pair<f32, Metres>>::NAME_HASH,
        <Pair<f64, Metres, 3>>::NAME_HASH,
    ];
    for (at, hash) in hashes.iter().enumerate() {
        assert!(!hashes[..at].contains(hash), "{at}");
    }
}

/// With pointers in some variants.
#[derive(Debug, Default, Persist)]
#[repr(u32)]
pub enum Shape {
    /// Nothing.
    #[default]
    Dot,
    /// One node.
    Link(PRc<Node>) = 40,
    /// Two of them.
    Pair {
        /// The first.
        a: PRc<Node>,
        /// A number.
        r#type: u16,
        /// The second.
        b: PRc<Node>,
    },
}

#[derive(Default, Persist)]
#[repr(C)]
struct Drawing {
    before: u8,
    shape: Shape,
}

#[test]
fn enums_tell_their_variants() {
    with_heap::<Drawing>(|heap| {
        heap.write(|tx, root| {
            tx.set(root.before(), 0xEE)?;
            assert!(matches!(root.shape().variant(tx)?, ShapeRef::Dot));
            tx.put(root.shape(), Shape::Link(PRc::null()))?;
            let ShapeRef::Link(link) = root.shape().variant(tx)? else { panic!("it was put there") };
            let node = tx.alloc(Node::new(1))?;
            tx.link(link, node)?;
            Ok(())
        })?;
        heap.write(|tx, root| {
            let ShapeRef::Link(link) = root.shape().variant(tx)? else { panic!("it was committed") };
            assert_eq!(tx.get(tx.load(link)?.unwrap().key())?, 1);
            tx.put(root.shape(), Shape::Pair { a: PRc::null(), r#type: 9, b: PRc::null() })?;
            let ShapeRef::Pair { a, r#type, b } = root.shape().variant(tx)? else {
                panic!("it was put there")
            };
            let node = tx.alloc(Node::new(2))?;
            tx.link(b, node)?;
            assert_eq!((tx.load(a)?, tx.get(r#type)?, tx.load(b)?), (None, 9, Some(node)));
            Ok(())
        })?;
        heap.read(|tx, root| {
            let ShapeRef::Pair { b, .. } = root.shape().variant(tx)? else { panic!("it was committed") };
            assert_eq!(tx.get(tx.load(b)?.unwrap().key())?, 2);
            assert_eq!(tx.get(root.before())?, 0xEE);
            Ok(())
        })
    });
}

#[test]
fn fields_of_a_type_with_pointers_are_reached_one_by_one() {
    with_heap::<Root>(|heap| {
        heap.write(|tx, root| {
            let node = tx.alloc(Node::new(4))?;
            tx.link(root.first(), node)?;
            let first = tx.load(root.first())?;
            tx.link(root.second(), first)?;
            tx.put(*root, Root { count: 9, ..Root::default() })?;
            assert_eq!((tx.get(root.count())?, tx.load(root.second())?), (9, None));
            Ok(())
        })
    });
}

#[test]
fn two_heaps_are_open_at_once() {
    let (a, b) = (File::new(), File::new());
    Heap::<Scoped, Root>::with(&a.path, &a.options, |a| {
        Heap::<Scoped, Root>::with(&b.path, &b.options, |b| {
            let key = a.write(|tx_a, root_a| {
                tx_a.set(root_a.count(), 7)?;
                let count = tx_a.get(root_a.count())?;
                let key = b.write(|tx_b, root_b| {
                    let node = tx_b.alloc(Node::new(count))?;
                    tx_b.link(root_b.first(), node)?;
                    tx_b.get(node.key())
                })?;
                let node = tx_a.alloc(Node::new(key))?;
                tx_a.link(root_a.first(), node)?;
                tx_a.get(node.key())
            })?;
            assert_eq!(key, 7);
            Ok(())
        })
    })
    .unwrap();
}

brand!(Books);
brand!(Readers);

/// Heaps in a struct without lifetimes.
struct Library {
    books: Heap<Books, Root>,
    readers: Heap<Readers, Root>,
}

#[test]
fn heaps_with_names_are_open_at_once() {
    let (books, readers) = (File::new(), File::new());
    let library = Library {
        books: Heap::open(&books.path, &books.options).unwrap(),
        readers: Heap::open(&readers.path, &readers.options).unwrap(),
    };
    let other = Heap::<Books, Root>::open(&readers.path, &readers.options);
    assert!(matches!(&other, Err(e) if matches!(e.kind(), ErrorKind::BrandInUse { .. })));
    library.books.write(|tx, root| tx.set(root.count(), 3)).unwrap();
    let books = library.books.read(|tx, root| tx.get(root.count())).unwrap();
    library.readers.write(|tx, root| tx.set(root.count(), books)).unwrap();
    assert_eq!(library.readers.read(|tx, root| tx.get(root.count())).unwrap(), 3);
}

brand!(Held);

#[test]
fn handles_keep_objects_for_later_transactions() {
    let file = File::new();
    let heap = Heap::<Held, Root>::open(&file.path, &file.options).unwrap();
    let kept: Handle<Held, Node> = heap
        .write(|tx, _| {
            let node = tx.alloc(Node::new(8))?;
            tx.hold(node)
        })
        .unwrap();
    heap.write(|tx, root| {
        let node = tx.enter(&kept)?;
        assert_eq!(tx.get(node.key())?, 8);
        tx.link(root.first(), node)
    })
    .unwrap();
}

brand!(Sent);

#[test]
fn handles_are_sent_to_other_threads() {
    let file = File::new();
    let heap = Heap::<Sent, Root>::open(&file.path, &file.options).unwrap();
    let kept = heap.write(|tx, _| {
        let node = tx.alloc(Node::new(8))?;
        tx.hold(node)
    });
    let kept = kept.unwrap();
    let key = std::thread::scope(|scope| {
        let heap = &heap;
        let key = scope.spawn(move || {
            heap.write(|tx, _| {
                let node = tx.enter(&kept)?;
                tx.get(node.key())
            })
        });
        key.join().unwrap()
    });
    assert_eq!(key.unwrap(), 8);
}

#[test]
fn a_token_is_lent_to_functions() {
    with_heap::<Root>(|heap| {
        fn add<'t, B: tembo_heap::Brand>(tx: &mut Tx<'t, B>, place: Ref<'t, B, u64>) -> Result<()> {
            *tx.get_mut(place)? += 1;
            Ok(())
        }
        fn look<'t, B: tembo_heap::Brand>(tx: &ReadTx<'t, B>, root: Obj<'t, B, Root>) -> Result<u64> {
            tx.get(root.count())
        }
        heap.write(|tx, root| {
            add(tx, root.count())?;
            add(tx, root.count())?;
            assert_eq!(look(tx, root)?, 2);
            Ok(())
        })
    });
}

#[test]
fn a_transaction_in_a_transaction_is_part_of_it() {
    with_heap::<Root>(|heap| {
        let outer = heap.write(|tx, root| {
            heap.write(|tx, root| tx.set(root.count(), 5))?;
            assert_eq!(tx.get(root.count())?, 5);
            Err::<(), _>(tx.cancel())
        });
        assert!(matches!(&outer, Err(e) if e.is_cancelled()));
        assert_eq!(heap.read(|tx, root| tx.get(root.count()))?, 0);
        Ok(())
    });
}

#[test]
fn a_transaction_that_reads_sees_what_was_written() {
    with_heap::<Root>(|heap| {
        heap.write(|tx, root| tx.set(root.count(), 1))?;
        assert_eq!(heap.read(|tx, root| tx.get(root.count()))?, 1);
        Ok(())
    });
}

#[test]
fn pointers_are_exchanged_by_linking() {
    with_heap::<Root>(|heap| {
        heap.write(|tx, root| {
            let (one, two) = (tx.alloc(Node::new(1))?, tx.alloc(Node::new(2))?);
            tx.link(root.first(), one)?;
            tx.link(root.second(), two)?;
            Ok(())
        })?;
        heap.write(|tx, root| {
            let (first, second) = (tx.load(root.first())?, tx.load(root.second())?);
            tx.link(root.first(), second)?;
            tx.link(root.second(), first)
        })?;
        heap.read(|tx, root| {
            let (first, second) = (tx.load(root.first())?.unwrap(), tx.load(root.second())?.unwrap());
            assert_eq!((tx.get(first.key())?, tx.get(second.key())?), (2, 1));
            Ok(())
        })
    });
}

#[test]
fn results_leave_a_transaction_by_value() {
    with_heap::<Root>(|heap| {
        let attempts = AtomicU64::new(0);
        let seen = heap.write(|tx, root| {
            attempts.fetch_add(1, Ordering::Relaxed);
            let mut seen = Vec::new();
            for key in 0..3 {
                *tx.get_mut(root.count())? += key;
                seen.push(tx.get(root.count())?);
            }
            Ok(seen)
        })?;
        assert_eq!((seen, attempts.into_inner()), (vec![0, 1, 3], 1));
        Ok(())
    });
}

mod account {
    use tembo_heap::{Brand, Obj, Persist, Result, Tx};

    /// Its owner is known to all, its balance changes here only.
    #[derive(Default, Persist)]
    #[repr(C)]
    pub(crate) struct Account {
        pub owner: u64,
        pub(crate) branch: u16,
        pub(super) limit: i64,
        pub(in crate::account) notes: u8,
        balance: i64,
    }

    pub(crate) fn pay<'t, B: Brand>(
        tx: &mut Tx<'t, B>,
        account: Obj<'t, B, Account>,
        sum: i64,
    ) -> Result<i64> {
        *tx.get_mut(account.balance())? -= sum;
        *tx.get_mut(account.notes())? += 1;
        tx.get(account.balance())
    }
}

#[test]
fn fields_are_reached_by_those_who_see_them() {
    use account::{Account, AccountCrateFields, AccountFields, AccountSuperFields};
    with_heap::<Account>(|heap| {
        heap.write(|tx, account| {
            tx.set(account.owner(), 7)?;
            tx.set(account.branch(), 1)?;
            tx.set(account.limit(), -100)?;
            assert_eq!(account::pay(tx, account, 30)?, -30);
            Ok(())
        })
    });
}

/// As it was in the first version of the program.
#[derive(Debug, Persist)]
#[repr(C)]
#[persist(name = "Node")]
struct OldNode {
    key: u64,
    left: PRc<OldNode>,
    right: PRc<OldNode>,
}

/// A name that the derive would give the brand, and one that is a word of the language.
#[derive(Debug, Default, Persist)]
#[repr(C)]
#[allow(non_camel_case_types)]
struct B {
    r#type: PRc<r#match>,
    next: PRc<B>,
}

#[derive(Debug, Default, Persist)]
#[repr(C)]
#[allow(non_camel_case_types)]
struct r#match(u32, pub(crate) [u8; 4]);

#[test]
fn names_are_those_of_the_source_unless_another_is_given() {
    assert_eq!((OldNode::name(), OldNode::NAME_HASH), (Node::name(), Node::NAME_HASH));
    assert_ne!(OldNode::HASH, Node::HASH);
    assert_eq!(r#match::name(), "match");
    with_heap::<B>(|heap| {
        heap.write(|tx, root| {
            let other = tx.alloc(r#match(3, [1, 2, 3, 4]))?;
            tx.link(root.r#type(), other)?;
            assert_eq!(
                (tx.get(other.f0())?, tx.get(other.f1())?, tx.load(root.next())?),
                (3, [1, 2, 3, 4], None)
            );
            Ok(())
        })
    });
}

mod elsewhere {
    pub(super) mod nvm {
        pub(in super::super) use tembo_heap::*;
    }
}

/// Where the library is known by another name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Persist, Plain)]
#[persist(crate = elsewhere::nvm)]
#[repr(C, align(32))]
struct Aligned {
    bits: u8,
}

#[test]
fn the_library_may_have_another_name() {
    with_heap::<Aligned>(|heap| {
        heap.write(|tx, root| tx.set(root.bits(), 3))?;
        assert_eq!(heap.read(|tx, root| tx.get(*root))?, Aligned { bits: 3 });
        Ok(())
    });
}

#[derive(Debug, Clone, Copy, PartialEq, Persist, Plain)]
#[repr(u16)]
enum Colour {
    Red = 3,
    Green,
    Blue = 0x1234,
}

#[derive(Debug, Clone, Copy, PartialEq, Persist, Plain)]
#[repr(u64)]
enum Value {
    None,
    Number(u32, u16) = 2 + 3,
    Real { x: f64, exact: bool },
}

fn bytes_of<T: Persist>(value: &T) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<T>()];
    value.encode(&mut bytes);
    bytes
}

#[test]
fn enums_lie_as_the_compiler_numbers_and_places_them() {
    for colour in [Colour::Red, Colour::Green, Colour::Blue] {
        assert_eq!(bytes_of(&colour), (colour as u16).to_ne_bytes());
        assert_eq!(Colour::decode(&bytes_of(&colour)), Some(colour));
    }
    assert_eq!(Colour::decode(&[5, 0]), None);
    for (value, tag) in
        [(Value::None, 0_u64), (Value::Number(1, 2), 5), (Value::Real { x: 0.5, exact: true }, 6)]
    {
        let mut bytes = bytes_of(&value);
        assert_eq!((&bytes[..8], bytes.len()), (&tag.to_ne_bytes()[..], size_of::<Value>()));
        assert_eq!(Value::decode(&bytes), Some(value));
        bytes[0] = 9;
        assert_eq!(Value::decode(&bytes), None);
    }
    let mut bytes = bytes_of(&Value::Real { x: 0.5, exact: true });
    bytes[16] = 2;
    assert_eq!(Value::decode(&bytes), None, "2 is no bool");
    assert_eq!(Value::decode(&bytes[..8]), None, "bytes are missing");
}

#[test]
fn padding_is_written_as_zeros() {
    let numbers = Numbers { a: 0xFF, b: 0, c: -1, ..Numbers::default() };
    let bytes = bytes_of(&numbers);
    assert_eq!(bytes.iter().filter(|byte| **byte != 0).count(), 3);
}

/// The same fields as in [`City`], in other places, of other types, and with other names.
mod changed {
    use tembo_heap::{PArr, PRc, Persist};

    macro_rules! city {
        ($($module:ident { $($field:ident: $of:ty),* })*) => {$(
            pub(super) mod $module {
                use super::*;
                #[derive(Persist)]
                #[repr(C)]
                pub(in super::super) struct City { $($field: $of),* }
            }
        )*};
    }
    city! {
        same { name: PArr<u8>, zip: [u8; 5] }
        order { zip: [u8; 5], name: PArr<u8> }
        names { title: PArr<u8>, zip: [u8; 5] }
        width { name: PArr<u8>, zip: [u8; 6] }
        elements { name: PArr<i8>, zip: [u8; 5] }
        pointer { name: PRc<u8>, zip: [u8; 5] }
    }
}

#[test]
fn the_hash_tells_every_change_of_a_layout() {
    use changed::*;
    assert_eq!(same::City::HASH, City::HASH);
    let others =
        [order::City::HASH, names::City::HASH, width::City::HASH, elements::City::HASH, pointer::City::HASH];
    for (at, hash) in others.iter().enumerate() {
        assert!(*hash != City::HASH && !others[..at].contains(hash), "{at}");
    }
    assert_ne!(Value::HASH, Colour::HASH);
}

/// A place in a variant could be kept while another variant was put there: a number written to it became a
/// pointer.
#[test]
fn a_place_in_a_variant_ends_with_the_variant() -> Result<(), Error> {
    #[derive(Persist)]
    #[repr(u32)]
    enum Shape {
        Number(u64),
        Link(PRc<u64>),
    }
    #[derive(Persist)]
    #[repr(C)]
    struct Holder {
        shape: Shape,
    }
    #[derive(Default, Persist)]
    #[repr(C)]
    struct Root {
        holder: PRc<Holder>,
    }
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().create(true);
    Heap::<_, Root>::with(dir.path().join("shape.heap"), &options, |heap| {
        heap.write(|tx, root| {
            let holder = tx.alloc(Holder { shape: Shape::Number(1) })?;
            tx.link(root.holder(), holder)
        })?;
        heap.write(|tx, root| {
            let holder = tx.load(root.holder())?.expect("linked above");
            let ShapeRef::Number(number) = holder.shape().variant(tx)? else { panic!("a number") };
            tx.set(number, 2)?;
            tx.put(holder.shape(), Shape::Link(PRc::null()))?;
            assert!(matches!(&tx.set(number, 0x1230), Err(e) if matches!(e.kind(), ErrorKind::StaleVariant)));
            assert!(matches!(&tx.get(number), Err(e) if matches!(e.kind(), ErrorKind::StaleVariant)));
            let ShapeRef::Link(link) = holder.shape().variant(tx)? else { panic!("a link") };
            assert!(tx.load(link)?.is_none());
            let target = tx.alloc(7)?;
            tx.link(link, target)?;
            // As a part of the whole, too.
            tx.put(*holder, Holder { shape: Shape::Number(3) })?;
            assert!(matches!(&tx.load(link), Err(e) if matches!(e.kind(), ErrorKind::StaleVariant)));
            assert!(matches!(&tx.link(link, target), Err(e) if matches!(e.kind(), ErrorKind::StaleVariant)));
            Ok(())
        })
    })
}

#[test]
fn a_heap_says_how_large_and_how_sound_it_is() {
    with_heap::<u64>(|heap| {
        heap.write(|tx, root| tx.set(*root, 5))?;
        let (summary, stats) = (heap.check()?, heap.stats());
        assert_eq!((summary.types[0].objects, summary.dying), (1, 0));
        assert!(stats.pool_bytes <= stats.max_bytes && stats.unused_bytes < stats.pool_bytes, "{stats:?}");
        assert!(heap.left_behind().is_none());
        Ok(())
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
