//! The values of a file, element by element.

use std::io::Read;

use crate::error::{Error, Malformed, Problem};
use crate::input::{BUFFER_BYTES, Input};
use crate::number::parse_score;
use crate::packed::{Format, PackedCursor};
use crate::{Kind, types};

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    /// A count, then this many elements.
    Plain(Shape),
    /// A count, then this many packed values; with `plain`, each says whether it is a single element.
    Nodes {
        format: Format,
        plain: bool,
    },
    Packed(Format, Shape),
}

/// How an element is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Item,
    Pair,
    /// A member, then its score as text behind a byte of length.
    TextScore,
    /// A member, then its score in 8 bytes; in a packed value, as text.
    Score,
    /// A deadline relative to the first one, a field, a value; before all of them the first deadline.
    /// In a packed value, a field, a value, a deadline.
    RelativeDeadline,
    /// A field, a value, a deadline of 8 bytes.
    Deadline,
}

/// The type and the form behind the first byte of a value.
pub(crate) fn form_of(type_byte: u8, is_valkey: bool) -> Option<(Kind, Form)> {
    use Format::{Intset, Listpack, Ziplist, Zipmap};
    Some(match type_byte {
        types::STRING => (Kind::String, Form::Text),
        types::LIST => (Kind::List, Form::Plain(Shape::Item)),
        types::SET => (Kind::Set, Form::Plain(Shape::Item)),
        types::ZSET => (Kind::SortedSet, Form::Plain(Shape::TextScore)),
        types::HASH => (Kind::Hash, Form::Plain(Shape::Pair)),
        types::ZSET_2 => (Kind::SortedSet, Form::Plain(Shape::Score)),
        types::HASH_ZIPMAP => (Kind::Hash, Form::Packed(Zipmap, Shape::Pair)),
        types::LIST_ZIPLIST => (Kind::List, Form::Packed(Ziplist, Shape::Item)),
        types::SET_INTSET => (Kind::Set, Form::Packed(Intset, Shape::Item)),
        types::ZSET_ZIPLIST => (Kind::SortedSet, Form::Packed(Ziplist, Shape::Score)),
        types::HASH_ZIPLIST => (Kind::Hash, Form::Packed(Ziplist, Shape::Pair)),
        types::LIST_QUICKLIST => (Kind::List, Form::Nodes { format: Ziplist, plain: false }),
        types::HASH_LISTPACK => (Kind::Hash, Form::Packed(Listpack, Shape::Pair)),
        types::ZSET_LISTPACK => (Kind::SortedSet, Form::Packed(Listpack, Shape::Score)),
        types::LIST_QUICKLIST_2 => (Kind::List, Form::Nodes { format: Listpack, plain: true }),
        types::SET_LISTPACK => (Kind::Set, Form::Packed(Listpack, Shape::Item)),
        types::VALKEY_HASH_2 if is_valkey => (Kind::Hash, Form::Plain(Shape::Deadline)),
        types::HASH_METADATA if !is_valkey => (Kind::Hash, Form::Plain(Shape::RelativeDeadline)),
        types::HASH_LISTPACK_EX if !is_valkey => {
            (Kind::Hash, Form::Packed(Listpack, Shape::RelativeDeadline))
        }
        _ => return None,
    })
}

/// The strings of an element, in the reader's two buffers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    Item,
    Pair { deadline_ms: Option<i64> },
    Scored(f64),
}

/// The buffers that an element is read into.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    pub(crate) first: Vec<u8>,
    pub(crate) second: Vec<u8>,
}

impl Buffers {
    /// Gives back the memory that a large element took.
    pub(crate) fn trim(&mut self) {
        for buffer in [&mut self.first, &mut self.second] {
            if buffer.capacity() > BUFFER_BYTES {
                *buffer = Vec::new();
            }
        }
    }
}

/// A value that is being read.
#[derive(Debug)]
pub(crate) struct Decoder {
    form: Form,
    /// Elements or packed values that are still to come, as the file says.
    left: u64,
    /// The packed value at hand, its place, and the walk over it.
    blob: Vec<u8>,
    blob_at: u64,
    cursor: Option<PackedCursor>,
    first_deadline_ms: i64,
}

impl Decoder {
    /// Reads the beginning of a value.
    pub(crate) fn begin<R: Read>(form: Form, input: &mut Input<R>) -> Result<Self, Error> {
        let mut decoder =
            Decoder { form, left: 1, blob: Vec::new(), blob_at: 0, cursor: None, first_deadline_ms: 0 };
        if let Form::Plain(Shape::RelativeDeadline) | Form::Packed(_, Shape::RelativeDeadline) = form {
            decoder.first_deadline_ms = i64::from_le_bytes(input.array()?);
        }
        match form {
            Form::Plain(_) | Form::Nodes { .. } => decoder.left = input.length()?,
            Form::Text | Form::Packed(..) => {}
        }
        Ok(decoder)
    }

    /// The number of elements, where the file says it.
    pub(crate) fn announced(&self) -> Option<u64> {
        matches!(self.form, Form::Plain(_) | Form::Text).then_some(self.left)
    }

    /// Reads the next element; `None` at the end.
    pub(crate) fn next<R: Read>(
        &mut self,
        input: &mut Input<R>,
        buffers: &mut Buffers,
    ) -> Result<Option<Step>, Error> {
        loop {
            if let Some(cursor) = &mut self.cursor {
                let shape = match self.form {
                    Form::Packed(_, shape) => shape,
                    _ => Shape::Item,
                };
                match packed_element(cursor, &self.blob, shape, buffers) {
                    Ok(Some(step)) => return Ok(Some(step)),
                    Ok(None) => self.cursor = None,
                    Err(problem) => return Err(Error::new(self.blob_at, problem)),
                }
            }
            if self.left == 0 {
                return Ok(None);
            }
            self.left -= 1;
            match self.form {
                Form::Text => {
                    input.string(&mut buffers.first)?;
                    return Ok(Some(Step::Item));
                }
                Form::Plain(shape) => return self.plain_element(input, shape, buffers).map(Some),
                Form::Packed(format, _) => self.open(input, format)?,
                Form::Nodes { format, plain } => {
                    let at = input.offset();
                    match if plain { input.length()? } else { NODE_PACKED } {
                        NODE_PACKED => self.open(input, format)?,
                        NODE_PLAIN => {
                            input.string(&mut buffers.first)?;
                            return Ok(Some(Step::Item));
                        }
                        _ => {
                            let problem = Problem::Malformed {
                                format: "quicklist",
                                at: 0,
                                what: "a node is neither plain nor packed",
                            };
                            return Err(Error::new(at, problem));
                        }
                    }
                }
            }
        }
    }

    /// Reads a packed value.
    fn open<R: Read>(&mut self, input: &mut Input<R>, format: Format) -> Result<(), Error> {
        self.blob_at = input.offset();
        input.string(&mut self.blob)?;
        let cursor =
            PackedCursor::begin(format, &self.blob).map_err(|problem| Error::new(self.blob_at, problem));
        self.cursor = Some(cursor?);
        Ok(())
    }

    fn plain_element<R: Read>(
        &mut self,
        input: &mut Input<R>,
        shape: Shape,
        Buffers { first, second }: &mut Buffers,
    ) -> Result<Step, Error> {
        let mut deadline_ms = None;
        if shape == Shape::RelativeDeadline {
            deadline_ms = match input.length()? {
                0 => None,
                after => Some(self.first_deadline_ms.saturating_add_unsigned(after - 1)),
            };
        }
        input.string(first)?;
        match shape {
            Shape::Item => Ok(Step::Item),
            Shape::Score => {
                let at = input.offset();
                scored(at, Some(f64::from_le_bytes(input.array()?)))
            }
            Shape::TextScore => text_score(input, second),
            Shape::Pair | Shape::RelativeDeadline => {
                input.string(second)?;
                Ok(Step::Pair { deadline_ms })
            }
            Shape::Deadline => {
                input.string(second)?;
                let deadline = i64::from_le_bytes(input.array()?);
                Ok(Step::Pair { deadline_ms: (deadline >= 0).then_some(deadline) })
            }
        }
    }
}

/// The containers of a node of a quicklist.
const NODE_PLAIN: u64 = 1;
const NODE_PACKED: u64 = 2;

fn packed_element(
    cursor: &mut PackedCursor,
    blob: &[u8],
    shape: Shape,
    Buffers { first, second }: &mut Buffers,
) -> Result<Option<Step>, Problem> {
    if !cursor.next(blob, first)? {
        return Ok(None);
    }
    Ok(Some(match shape {
        Shape::Item => Step::Item,
        Shape::Pair => {
            cursor.partner(blob, second)?;
            Step::Pair { deadline_ms: None }
        }
        Shape::Score | Shape::TextScore => {
            cursor.partner(blob, second)?;
            Step::Scored(parse_score(second).ok_or(Problem::BadScore)?)
        }
        Shape::RelativeDeadline | Shape::Deadline => {
            let mut deadline = Vec::new();
            cursor.partner(blob, second)?;
            cursor.partner(blob, &mut deadline)?;
            let no_number = Malformed { at: 0, what: "a deadline is no number" };
            let deadline: i64 = std::str::from_utf8(&deadline)
                .ok()
                .and_then(|text| text.parse().ok())
                .ok_or(Format::Listpack.problem(no_number))?;
            Step::Pair { deadline_ms: (deadline > 0).then_some(deadline) }
        }
    }))
}

fn scored(at: u64, score: Option<f64>) -> Result<Step, Error> {
    match score.filter(|score| !score.is_nan()) {
        Some(score) => Ok(Step::Scored(score)),
        None => Err(Error::new(at, Problem::BadScore)),
    }
}

/// A score as text, or one of the bytes that stand for scores without digits.
fn text_score<R: Read>(input: &mut Input<R>, text: &mut Vec<u8>) -> Result<Step, Error> {
    let at = input.offset();
    let score = match input.byte()? {
        253 => None,
        254 => Some(f64::INFINITY),
        255 => Some(f64::NEG_INFINITY),
        len => {
            text.clear();
            for _ in 0..len {
                text.push(input.byte()?);
            }
            parse_score(text)
        }
    };
    scored(at, score)
}
