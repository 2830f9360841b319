//! Objects, arrays, texts and vectors of every length, so that some fill their blocks to the last byte and
//! end with something empty.

use super::{Place, Tested, prove, turn};
use tembo_heap::collections::{PBox, PBytes, PString, PVec};
use tembo_heap::{Error, PRc, Persist};

/// Ends with something that has no bytes.
#[derive(Default, Persist)]
#[repr(C)]
struct Ending {
    words: PVec<u64>,
    next: PRc<u64>,
    end: [u64; 0],
}

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    bytes: PBytes,
    text: PString,
    vec: PVec<u8>,
    words: PVec<u64>,
    none: PVec<[u64; 0]>,
    boxed: PBox<[u64; 0]>,
    ending: PBox<Ending>,
}

/// Every length up to 600, and those around where blocks end up to 9000.
fn lengths() -> impl Iterator<Item = usize> {
    (0..=9000).filter(|len| *len <= 600 || (len + 4) % 16 < 9 && len % 64 > 40 || len % 997 == 0)
}

#[test]
fn texts_and_vectors_of_every_length_are_written() {
    let _turn = turn();
    // An empty last part at the end of a block was refused as damage of the pool.
    let heap = Place::new().open::<Tested, Root>();
    for len in lengths() {
        let content: Vec<u8> = (0..len).map(|i| b'a' + (i % 26) as u8).collect();
        let text = std::str::from_utf8(&content).unwrap();
        heap.write(|tx, root| {
            root.bytes().set(tx, &content)?;
            root.text().set(tx, text)?;
            root.vec().clear(tx)?;
            root.vec().shrink(tx)?;
            root.vec().extend_from_slice(tx, &content)?;
            root.vec().extend_from_slice(tx, &[])?;
            root.vec().shrink(tx)?;
            root.vec().extend_from_slice(tx, &[])?;
            Ok::<_, Error>(())
        })
        .unwrap_or_else(|e| panic!("{len} bytes: {e}"));
        // Once more, of what is there.
        heap.write(|tx, root| {
            root.vec().extend_from_slice(tx, &[])?;
            root.vec().push(tx, 1)?;
            assert!(root.vec().pop(tx)?);
            root.bytes().set(tx, &content)?;
            assert_eq!(root.vec().to_vec(tx)?, content);
            assert!(root.bytes().is(tx, &content)? && root.text().is(tx, text)?);
            if len % 8 == 0 {
                root.words().clear(tx)?;
                root.words().shrink(tx)?;
                root.words().extend_from_slice(tx, &vec![7; len / 8])?;
                root.words().extend_from_slice(tx, &[])?;
            }
            Ok::<_, Error>(())
        })
        .unwrap_or_else(|e| panic!("{len} bytes: {e}"));
    }
    prove(&heap);
}

#[test]
fn what_ends_with_nothing_is_written() {
    let _turn = turn();
    let heap = Place::new().open::<Tested, Root>();
    heap.write(|tx, root| {
        for _ in 0..3 {
            let made = root.boxed().fill(tx, [])?;
            tx.set(made, [])?;
            let ending = root.ending().fill(tx, Ending::default())?;
            tx.set(ending.end(), [])?;
            let item = root.none().push(tx, [])?;
            tx.set(item, [])?;
            root.none().extend_from_slice(tx, &[[], [], []])?;
            let empty = tx.alloc_array(0, |_| [0u64; 0])?;
            assert_eq!(empty.len(), 0);
            let many = tx.alloc_array(100, |_| [0u64; 0])?;
            tx.set(many.at(99), [])?;
        }
        assert_eq!(root.none().len(tx)?, 12);
        Ok::<_, Error>(())
    })
    .unwrap();
    heap.write(|tx, root| {
        let ending = root.ending().open(tx)?.unwrap();
        tx.set(ending.end(), [])?;
        tx.set(root.none().at(tx, 11)?, [])
    })
    .unwrap();
    prove(&heap);
}
