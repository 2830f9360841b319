//! Any contents are read as they were written.

use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use tembo_rdb::{Encodings, KeyMeta, Kind, NodeSize};

use crate::model::{Contents, Owned, Value, payload, read_file, read_payload};
use crate::properties;

/// Strings of all the forms that strings take.
fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..30),
        any::<i64>().prop_map(|n| n.to_string().into_bytes()),
        (-200i64..5000).prop_map(|n| n.to_string().into_bytes()),
        vec(b'a'..b'd', 20..400),
        (1usize..6000).prop_map(|len| vec![b'x'; len]),
    ]
}

fn score() -> impl Strategy<Value = f64> {
    prop_oneof![
        // A packed sorted set, as one of Redis, has no negative zero.
        any::<f64>()
            .prop_filter("a score is a number", |score| !score.is_nan() && score.to_bits() != 1 << 63),
        (-1000i32..1000).prop_map(f64::from),
        Just(f64::INFINITY),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let many = 0..150;
    prop_oneof![
        text().prop_map(|text| Value::new(Kind::String, vec![Owned::Text(text)])),
        vec(text(), many.clone())
            .prop_map(|items| Value::new(Kind::List, items.into_iter().map(Owned::Item).collect())),
        btree_set(text(), many.clone())
            .prop_map(|items| Value::new(Kind::Set, items.into_iter().map(Owned::Item).collect())),
        btree_set(any::<i16>(), 1..600).prop_map(|items| {
            let items = items.into_iter().map(|n| Owned::Item(n.to_string().into_bytes()));
            Value::new(Kind::Set, items.collect())
        }),
        btree_map(text(), text(), many.clone()).prop_map(|fields| {
            let fields = fields.into_iter().map(|(field, value)| Owned::Field(field, value, None));
            Value::new(Kind::Hash, fields.collect())
        }),
        btree_map(text(), score(), many).prop_map(|members| {
            let members = members.into_iter().map(|(member, score)| Owned::Scored(member, score.to_bits()));
            Value::new(Kind::SortedSet, members.collect())
        }),
    ]
}

fn encodings() -> impl Strategy<Value = Encodings> {
    (any::<bool>(), 0u64..200, 1usize..200, 0usize..100_000, 1u64..50).prop_map(
        |(compress, entries, bytes, list_bytes, node)| Encodings {
            compress,
            hash_entries: entries,
            sorted_set_entries: entries,
            hash_bytes: bytes,
            sorted_set_bytes: bytes,
            list_bytes,
            list_node: if node % 2 == 0 { NodeSize::Elements(node) } else { NodeSize::Bytes(bytes * 20) },
            set_integers: entries * 2,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn files_are_read_as_they_were_written(
        values in vec((0u64..3, text(), value(), any::<Option<i64>>()), 0..8),
        encodings in encodings(),
    ) {
        let mut contents = Contents::default();
        for (database, key, mut value, deadline_ms) in values {
            value.meta = KeyMeta { deadline_ms, ..KeyMeta::default() };
            contents.keys.push((database, key, value));
        }
        contents.keys.sort_by_key(|(database, ..)| *database);
        let file = contents.write(encodings);
        let read = read_file(&file).unwrap();
        prop_assert!(read.is_checked);
        prop_assert_eq!(read.keys.len(), contents.keys.len());
        for (read, written) in read.keys.iter().zip(&contents.keys) {
            prop_assert_eq!((read.0, &read.1, read.2.meta), (written.0, &written.1, written.2.meta));
            prop_assert_eq!(read.2.sorted(), written.2.sorted());
        }
        properties::files(&file);
        properties::rewritten(&file);
    }

    #[test]
    fn payloads_are_read_as_they_were_written(value in value(), encodings in encodings()) {
        let payload = payload(&value, &encodings);
        let read = read_payload(&payload).unwrap();
        prop_assert_eq!(read.kind, value.kind);
        prop_assert_eq!(read.sorted(), value.sorted());
    }

    #[test]
    fn any_bytes_are_read_or_refused(data in vec(any::<u8>(), 0..400)) {
        properties::files(&data);
        properties::payloads(&data);
        // Behind a valid beginning, much more of them is read.
        let file = [&b"REDIS0010"[..], &data].concat();
        properties::files(&file);
        properties::rewritten(&file);
    }
}
