//! A value on its way to a file, in the form that Redis 7.0 would choose.
//!
//! The form stands before the elements. A small value waits as a packed one until it is whole, or until an
//! element comes that does not fit; then the elements so far are unpacked.

use std::io::{self, Write};

use crate::encodings::{Encodings, NodeSize};
use crate::listpack::{self, Builder};
use crate::number::{parse_canonical, parse_score, write_score};
use crate::output::Output;
use crate::{Element, Kind, intset, types};

/// A node of a list that has this many bytes is large enough, whatever its number of elements.
const NODE_BYTES_SAFE: usize = 8192;
/// The bytes that an element may take in a node beside its own.
const ELEMENT_OVERHEAD: usize = 8;
/// The container of a node that is packed.
const NODE_PACKED: u64 = 2;

/// A value that is being written.
pub(crate) struct Encoder {
    kind: Kind,
    /// Its key, in a file.
    key: Option<Vec<u8>>,
    count: u64,
    written: u64,
    form: Form,
}

enum Form {
    /// The elements so far wait in a listpack.
    Packed(Builder),
    /// The members so far are integers, and wait.
    Integers(Vec<i64>),
    /// The nodes of a list so far wait.
    Nodes { done: Vec<Vec<u8>>, done_bytes: usize, last: Builder },
    /// Elements are written as they come.
    Plain,
}

impl Encoder {
    /// Begins a value of `count` elements.
    pub(crate) fn begin<W: Write>(
        out: &mut Output<W>,
        encodings: &Encodings,
        key: Option<Vec<u8>>,
        kind: Kind,
        count: u64,
    ) -> io::Result<Self> {
        let form = match kind {
            Kind::Hash if count <= encodings.hash_entries => Form::Packed(Builder::new()),
            Kind::SortedSet if count <= encodings.sorted_set_entries => Form::Packed(Builder::new()),
            Kind::Set if count <= encodings.set_integers => Form::Integers(Vec::new()),
            Kind::List => Form::Nodes { done: Vec::new(), done_bytes: 0, last: Builder::new() },
            _ => Form::Plain,
        };
        let mut encoder = Encoder { kind, key, count, written: 0, form };
        if let Form::Plain = encoder.form {
            encoder.head(out)?;
        }
        Ok(encoder)
    }

    /// Writes type and key of a value that is not packed, and its count.
    fn head<W: Write>(&mut self, out: &mut Output<W>) -> io::Result<()> {
        let type_byte = match self.kind {
            Kind::String => types::STRING,
            Kind::List => types::LIST,
            Kind::Set => types::SET,
            Kind::Hash => types::HASH,
            Kind::SortedSet => types::ZSET_2,
        };
        self.type_and_key(out, type_byte)?;
        if self.kind == Kind::String { Ok(()) } else { out.length(self.count) }
    }

    fn type_and_key<W: Write>(&mut self, out: &mut Output<W>, type_byte: u8) -> io::Result<()> {
        out.byte(type_byte)?;
        self.key.take().map_or(Ok(()), |key| out.string(&key))
    }

    /// Appends an element.
    pub(crate) fn element<W: Write>(
        &mut self,
        out: &mut Output<W>,
        encodings: &Encodings,
        element: Element<'_>,
    ) -> io::Result<()> {
        assert!(self.written < self.count, "a value has more elements than it was begun with");
        self.written += 1;
        let fits = match &mut self.form {
            Form::Plain => return plain(out, element),
            Form::Packed(packed) => pack(packed, encodings, element),
            Form::Integers(integers) => match element {
                Element::Item(member) => parse_canonical(member).map(|n| integers.push(n)).is_some(),
                _ => false,
            },
            Form::Nodes { done, done_bytes, last } => match element {
                Element::Item(item) if *done_bytes + last.len() + item.len() <= encodings.list_bytes => {
                    if last.count() > 0 && !encodings.list_node.allows(last, item) {
                        let node = std::mem::replace(last, Builder::new()).finish();
                        *done_bytes += node.len();
                        done.push(node);
                    }
                    last.push(item);
                    true
                }
                _ => false,
            },
        };
        if fits {
            return Ok(());
        }
        self.unpack(out)?;
        plain(out, element)
    }

    /// Writes the elements that wait, and lets none wait any more.
    fn unpack<W: Write>(&mut self, out: &mut Output<W>) -> io::Result<()> {
        let form = std::mem::replace(&mut self.form, Form::Plain);
        self.head(out)?;
        match form {
            Form::Plain => Ok(()),
            Form::Packed(packed) => self.unpack_listpack(out, &packed.finish()),
            Form::Integers(integers) => integers
                .iter()
                .try_for_each(|&integer| out.string(itoa::Buffer::new().format(integer).as_bytes())),
            Form::Nodes { done, last, .. } => {
                let nodes = done.into_iter().chain([last.finish()]);
                nodes.into_iter().try_for_each(|node| self.unpack_listpack(out, &node))
            }
        }
    }

    fn unpack_listpack<W: Write>(&self, out: &mut Output<W>, blob: &[u8]) -> io::Result<()> {
        let malformed = |_| io::Error::other("a listpack of our own is malformed");
        let mut cursor = listpack::ListpackCursor::begin(blob).map_err(malformed)?;
        let (mut text, mut is_score) = (Vec::new(), false);
        while let Some(entry) = cursor.next(blob).map_err(malformed)? {
            entry.write(&mut text);
            match parse_score(&text) {
                Some(score) if is_score => out.bytes(&score.to_le_bytes())?,
                _ => out.string(&text)?,
            }
            is_score = self.kind == Kind::SortedSet && !is_score;
        }
        Ok(())
    }

    /// Ends the value.
    pub(crate) fn end<W: Write>(mut self, out: &mut Output<W>) -> io::Result<()> {
        assert_eq!(self.written, self.count, "a value has fewer elements than it was begun with");
        match std::mem::replace(&mut self.form, Form::Plain) {
            Form::Plain => Ok(()),
            Form::Packed(packed) => {
                let is_hash = self.kind == Kind::Hash;
                let type_byte = if is_hash { types::HASH_LISTPACK } else { types::ZSET_LISTPACK };
                self.type_and_key(out, type_byte)?;
                out.string(&packed.finish())
            }
            Form::Integers(mut integers) => {
                integers.sort_unstable();
                self.type_and_key(out, types::SET_INTSET)?;
                out.string(&intset::build(&integers))
            }
            Form::Nodes { mut done, last, .. } => {
                if last.count() > 0 {
                    done.push(last.finish());
                }
                self.type_and_key(out, types::LIST_QUICKLIST_2)?;
                out.length(done.len() as u64)?;
                done.iter().try_for_each(|node| {
                    out.length(NODE_PACKED)?;
                    out.string(node)
                })
            }
        }
    }
}

impl NodeSize {
    /// Whether a node takes another element.
    fn allows(self, node: &Builder, item: &[u8]) -> bool {
        let bytes = node.len() + item.len() + ELEMENT_OVERHEAD;
        match self {
            NodeSize::Bytes(max) => bytes <= max,
            NodeSize::Elements(max) => bytes <= NODE_BYTES_SAFE && node.count() < max,
        }
    }
}

/// Appends an element to a listpack, unless it is too long for one.
fn pack(packed: &mut Builder, encodings: &Encodings, element: Element<'_>) -> bool {
    match element {
        Element::Field { field, value, .. } if field.len().max(value.len()) <= encodings.hash_bytes => {
            packed.push(field);
            packed.push(value);
        }
        Element::Scored { member, score } if member.len() <= encodings.sorted_set_bytes => {
            let mut text = Vec::new();
            write_score(score, &mut text);
            packed.push(member);
            packed.push(&text);
        }
        _ => return false,
    }
    true
}

fn plain<W: Write>(out: &mut Output<W>, element: Element<'_>) -> io::Result<()> {
    match element {
        Element::Text(string) | Element::Item(string) => out.string(string),
        Element::Field { field, value, .. } => {
            out.string(field)?;
            out.string(value)
        }
        Element::Scored { member, score } => {
            out.string(member)?;
            out.bytes(&score.to_le_bytes())
        }
    }
}
