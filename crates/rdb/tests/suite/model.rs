//! The contents of a file, in memory.

use std::collections::BTreeMap;
use std::io::Read;

use tembo_rdb::{Element, Encodings, Error, Event, KeyMeta, Kind, Reader, Unread, Writer, dump_payload};

/// An element that owns its bytes. A score is compared by its bits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owned {
    Text(Vec<u8>),
    Item(Vec<u8>),
    Field(Vec<u8>, Vec<u8>, Option<i64>),
    Scored(Vec<u8>, u64),
}

impl Owned {
    pub(crate) fn of(element: Element<'_>) -> Self {
        match element {
            Element::Text(text) => Owned::Text(text.to_vec()),
            Element::Item(item) => Owned::Item(item.to_vec()),
            Element::Field { field, value, deadline_ms } => {
                Owned::Field(field.to_vec(), value.to_vec(), deadline_ms)
            }
            Element::Scored { member, score } => Owned::Scored(member.to_vec(), score.to_bits()),
        }
    }

    pub(crate) fn borrow(&self) -> Element<'_> {
        match self {
            Owned::Text(text) => Element::Text(text),
            Owned::Item(item) => Element::Item(item),
            Owned::Field(field, value, deadline_ms) => {
                Element::Field { field, value, deadline_ms: *deadline_ms }
            }
            Owned::Scored(member, score) => Element::Scored { member, score: f64::from_bits(*score) },
        }
    }
}

/// A key's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) kind: Kind,
    pub(crate) meta: KeyMeta,
    pub(crate) elements: Vec<Owned>,
}

impl Value {
    pub(crate) fn new(kind: Kind, elements: Vec<Owned>) -> Self {
        Value { kind, meta: KeyMeta::default(), elements }
    }

    /// The elements of a value whose order means nothing, in order.
    pub(crate) fn sorted(&self) -> Vec<Owned> {
        let mut elements = self.elements.clone();
        if matches!(self.kind, Kind::Set | Kind::Hash | Kind::SortedSet) {
            elements.sort();
        }
        elements
    }
}

/// A file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) keys: Vec<(u64, Vec<u8>, Value)>,
    pub(crate) aux: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) functions: Vec<Vec<u8>>,
    pub(crate) skipped: Vec<(Vec<u8>, Unread)>,
    pub(crate) others: Vec<String>,
    pub(crate) is_checked: bool,
}

impl Contents {
    pub(crate) fn value(&self, key: &str) -> &Value {
        let found = self.keys.iter().find(|(_, name, _)| name == key.as_bytes());
        &found.unwrap_or_else(|| panic!("{key} was not read")).2
    }

    /// The only value.
    pub(crate) fn only(mut self) -> Value {
        assert_eq!(self.keys.len(), 1);
        self.keys.remove(0).2
    }

    pub(crate) fn write(&self, encodings: Encodings) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), encodings).unwrap();
        for (name, value) in &self.aux {
            writer.aux(name, value).unwrap();
        }
        let mut databases: Vec<u64> = self.keys.iter().map(|(database, ..)| *database).collect();
        databases.dedup();
        for database in databases {
            writer.database(database, 1, 0).unwrap();
            for (_, name, value) in self.keys.iter().filter(|(its, ..)| *its == database) {
                writer.begin(name, value.meta, value.kind, value.elements.len() as u64).unwrap();
                for element in &value.elements {
                    writer.element(element.borrow()).unwrap();
                }
                writer.end().unwrap();
            }
        }
        writer.finish().unwrap()
    }
}

/// Reads all that there is.
pub(crate) fn read<R: Read>(reader: Result<Reader<R>, Error>) -> Result<Contents, Error> {
    let (mut reader, mut contents) = (reader?, Contents::default());
    while let Some(event) = reader.next()? {
        match event {
            Event::Aux { name, value } => drop(contents.aux.insert(name.to_vec(), value.to_vec())),
            Event::Function(code) => contents.functions.push(code.to_vec()),
            Event::Key(key) => {
                let value = Value { kind: key.kind, meta: key.meta, elements: Vec::new() };
                contents.keys.push((key.database, key.name.to_vec(), value));
            }
            Event::Element(element) => {
                contents.keys.last_mut().unwrap().2.elements.push(Owned::of(element));
            }
            Event::KeyEnd => {}
            Event::Skipped(skipped) => contents.skipped.push((skipped.name.to_vec(), skipped.what)),
            Event::End { is_checked } => contents.is_checked = is_checked,
            other => contents.others.push(format!("{other:?}")),
        }
    }
    assert_eq!(reader.next().unwrap(), None, "nothing follows the end");
    Ok(contents)
}

pub(crate) fn read_file(file: &[u8]) -> Result<Contents, Error> {
    read(Reader::new(file))
}

pub(crate) fn read_payload(payload: &[u8]) -> Result<Value, Error> {
    read(Reader::payload(payload)).map(Contents::only)
}

pub(crate) fn payload(value: &Value, encodings: &Encodings) -> Vec<u8> {
    dump_payload::<std::io::Error>(encodings, value.kind, value.elements.len() as u64, |push| {
        value.elements.iter().try_for_each(|element| push(element.borrow()))
    })
    .unwrap()
}
