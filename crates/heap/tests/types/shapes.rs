//! Generic types, and enums with pointers in their variants.

use crate::{Node, NodeFields, with_heap};
use std::marker::PhantomData;
use tembo_heap::{Error, ErrorKind, Heap, Options, PRc, Persist, Plain, Result};

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
