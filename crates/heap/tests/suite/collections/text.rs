//! `PString` and `PBytes`.

use super::{Tested, compare, turn};
use rand::Rng;
use tembo_heap::collections::{PBytes, PString};
use tembo_heap::{Error, Heap, Obj, Persist, Tx};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    texts: [PString; 4],
    bytes: PBytes,
}

type Model = (Vec<String>, Vec<u8>);

fn change<'t>(
    tx: &mut Tx<'t, Tested>,
    root: Obj<'t, Tested, Root>,
    (at, text): &(usize, String),
) -> Result<bool, Error> {
    let place = root.texts().at(*at);
    let was = place.is(tx, text)?;
    place.set(tx, text)?;
    assert!(place.is(tx, text)?);
    root.bytes().set(tx, text.as_bytes())?;
    Ok(was)
}

fn same(heap: &Heap<Tested, Root>, (texts, bytes): &Model) {
    heap.read(|tx, root| {
        for (at, text) in texts.iter().enumerate() {
            let place = root.texts().at(at);
            assert_eq!(place.get(tx)?, *text);
            assert!(place.is(tx, text)?);
            assert!(!place.is(tx, &format!("{text}\0"))?);
            assert_eq!(place.is_empty(tx)?, text.is_empty());
            assert_eq!(place.len(tx)?, text.len());
        }
        assert_eq!(root.bytes().get(tx)?, *bytes);
        Ok(())
    })
    .unwrap();
}

#[test]
fn texts_of_all_lengths_are_what_was_set_last() {
    let _turn = turn();
    compare::<Tested, Root, Model, _, _>(
        "text",
        (1500, 4),
        (vec![String::new(); 4], Vec::new()),
        |random, (texts, _)| {
            let at = random.random_range(0..4);
            let len = match random.random_range(0..10) {
                0..6 => random.random_range(0..20),
                6..9 => random.random_range(0..200),
                _ => random.random_range(0..5000),
            };
            let text: String = match random.random_range(0..10) {
                0 => texts[at].clone(),
                _ => (0..len).map(|_| random.random_range('a'..='ü')).collect(),
            };
            (at, text)
        },
        |(texts, bytes), (at, text)| {
            *bytes = text.clone().into_bytes();
            let was = texts[*at] == *text;
            texts[*at] = text.clone();
            was
        },
        change,
        same,
    );
}

#[test]
fn short_texts_are_made_without_a_transaction() {
    let _turn = turn();
    let place = super::Place::new();
    let heap = place.open::<Tested, Root>();
    heap.write(|tx, root| {
        let text = root.texts().at(1);
        tx.put(text, PString::short("sixteen bytes ok").unwrap())?;
        assert_eq!(text.get(tx)?, "sixteen bytes ok");
        Ok(())
    })
    .unwrap();
    assert!(PString::short("seventeen bytes !").is_none());
    super::prove(&heap);
}
