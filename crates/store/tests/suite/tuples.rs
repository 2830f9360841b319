//! Keys from tuples: their order is that of the tuples, and the tuples come back.

use proptest::prelude::*;
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};
use tembo_store::tuple::{Bytes, Decode, Encode, decode, encode};
use tembo_store::{Error, Store, TypedKeyspace};

fn check<T: Encode + Decode + Ord + std::fmt::Debug>(a: &T, b: &T) -> Result<(), TestCaseError> {
    let (left, right) = (encode(a), encode(b));
    prop_assert_eq!(left.cmp(&right), a.cmp(b), "{:?} and {:?}", a, b);
    prop_assert!(left == right || !right.starts_with(&left), "{:?} begins {:?}", a, b);
    for (value, key) in [(a, left), (b, right)] {
        let back = decode::<T>(&key);
        prop_assert_eq!(back.as_ref(), Ok(value));
        for end in 0..key.len() {
            prop_assert!(decode::<T>(&key[..end]).is_err(), "{} bytes of {:?}", end, value);
        }
        let longer = [&key[..], &[0]].concat();
        prop_assert!(decode::<T>(&longer).is_err());
    }
    Ok(())
}

/// Bytes of which many are 0, 1 and 255, and which often share a beginning.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![Just(0), Just(1), Just(255), any::<u8>()], 0..6)
}

fn text() -> impl Strategy<Value = String> {
    "[a\\x00\\x01b\u{e9}\u{1f418}]{0,5}"
}

proptest! {
    #[test]
    fn numbers_are_in_their_order(
        a in any::<(u8, u16, u32, u64, i8, i16, i32, i64)>(),
        b in any::<(u8, u16, u32, u64, i8, i16, i32, i64)>(),
    ) {
        check(&a, &b)?;
        check(&(a.3, a.7), &(a.3, b.7))?;
        check(&i128::from(a.7), &(i128::from(b.7) << 60))?;
    }

    #[test]
    fn tuples_of_text_and_bytes_are_in_their_order(
        a in (bytes(), text(), any::<i8>(), any::<bool>()),
        b in (bytes(), text(), any::<i8>(), any::<bool>()),
    ) {
        let tuple = |(bytes, text, number, flag): (Vec<u8>, String, i8, bool)| (Bytes(bytes), text, number, flag);
        let (a, b) = (tuple(a), tuple(b));
        check(&a, &b)?;
        // The same first part, so that the second decides.
        check(&(a.0.clone(), b.1.clone()), &(a.0.clone(), a.1.clone()))?;
        check(&(a.0.clone(), 255_u8), &(b.0.clone(), 0_u8))?;
    }

    #[test]
    fn options_and_nested_tuples_are_in_their_order(
        a in (any::<Option<(bool, Option<u8>)>>(), (bytes(), any::<Option<i16>>()), any::<[u8; 3]>()),
        b in (any::<Option<(bool, Option<u8>)>>(), (bytes(), any::<Option<i16>>()), any::<[u8; 3]>()),
    ) {
        type Raw = (Option<(bool, Option<u8>)>, (Vec<u8>, Option<i16>), [u8; 3]);
        let tuple = |(option, (bytes, number), array): Raw| (option, (Bytes(bytes), number), array);
        check(&tuple(a), &tuple(b))?;
    }

    #[test]
    fn whatever_is_decoded_is_encoded_so(key in prop::collection::vec(0..4_u8, 0..12)) {
        if let Ok(value) = decode::<(Option<bool>, Bytes, (u8, String))>(&key) {
            prop_assert_eq!(encode(&value), key);
        }
    }
}

#[test]
fn the_format_stays_as_it_is() {
    let value = (-2_i16, "a\0b", Some(7_u32), None::<u8>, (true, Bytes(vec![0, 255])));
    let expected = [&[0x7F, 0xFE][..], b"a\0\x01b\0\0", &[1, 0, 0, 0, 7], &[0], &[1, 0, 1, 255, 0, 0]];
    assert_eq!(encode(&value), expected.concat());
}

#[test]
fn other_bytes_are_refused_with_their_place() {
    let error = decode::<(u8, bool)>(&[1, 2]).unwrap_err();
    assert_eq!((error.at, error.to_string()), (1, "expected a bool, 0 or 1 at byte 1 of the key".to_owned()));
    assert_eq!(decode::<Bytes>(&[5, 0, 2]).unwrap_err().at, 2);
    assert_eq!(decode::<String>(&[0xFF, 0, 0]).unwrap_err().expected, "text in UTF-8");
}

fn store() -> Store {
    let region = Region::simulated(&vec![0; 2 << 20], 2 << 20, None).unwrap();
    Store::open(&Pool::create_in(region, &Geometry::tiny()).unwrap(), "store").unwrap()
}

#[test]
fn a_typed_keyspace_has_tuples_for_keys_and_values() {
    let store = store();
    let orders =
        TypedKeyspace::<(String, i32), (u64, Option<String>)>::new(store.keyspace("orders").unwrap());
    let key = |name: &str, number| (name.to_owned(), number);
    store
        .transact(|tx| {
            for number in [3, -1, 2] {
                orders.put(tx, &key("ann", number), &(10, None))?;
            }
            orders.put(tx, &key("bob", 1), &(20, Some("soon".to_owned())))?;
            assert_eq!(orders.get_in(tx, &key("bob", 1))?, Some((20, Some("soon".to_owned()))));
            orders.delete(tx, &key("ann", 2))
        })
        .unwrap();
    let snapshot = store.snapshot();
    assert_eq!(orders.get(&snapshot, &key("ann", 3)).unwrap(), Some((10, None)));
    assert_eq!(orders.get(&snapshot, &key("ann", 2)).unwrap(), None);
    let keys = |entries: tembo_store::Result<tembo_store::TypedEntries<_, _>>| -> Vec<(String, i32)> {
        entries.unwrap().map(|entry| entry.unwrap().0).collect()
    };
    let all = [key("ann", -1), key("ann", 3), key("bob", 1)];
    assert_eq!(keys(orders.range(&snapshot, ..)), all);
    assert_eq!(keys(orders.range(&snapshot, key("ann", 0)..key("bob", 1))), all[1..2]);
    assert_eq!(keys(orders.prefix(&snapshot, &("ann",))), all[..2]);
    let last = orders.range(&snapshot, ..).unwrap().next_back().unwrap().unwrap();
    assert_eq!(last.0, key("bob", 1));
    // A key that another program has put there.
    store.put(orders.keyspace(), [1, 2], "").unwrap();
    let error = orders.range(&store.snapshot(), ..).unwrap().next().unwrap().unwrap_err();
    assert!(matches!(error, Error::NotDecoded { what: "key", .. }), "{error}");
}
