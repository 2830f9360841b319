//! Names, hashes and bytes of types.

use crate::values::City;
use crate::{Node, bytes_of, with_heap};
use tembo_heap::{PRc, Persist, Plain};

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
