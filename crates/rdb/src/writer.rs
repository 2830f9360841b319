//! Writes files and payloads.

use std::io::{self, Write};

use crate::encoder::Encoder;
use crate::encodings::Encodings;
use crate::output::Output;
use crate::reader::KeyMeta;
use crate::{Element, Kind, types};

/// The version that is written.
const VERSION: u16 = 10;

/// Writes a file of version 10 to a stream.
///
/// No value is ever whole in memory, but packed ones: those within [`Encodings`]. Writes are buffered, so a
/// file is whole only once [`finish`](Self::finish) has returned.
///
/// # Panics
/// The methods panic if elements do not follow [`begin`](Self::begin), or are not as many as it was told.
pub struct Writer<W: Write> {
    out: Output<W>,
    encodings: Encodings,
    value: Option<Encoder>,
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// The sink fails, here as in all other methods.
    pub fn new(sink: W, encodings: Encodings) -> io::Result<Self> {
        let mut out = Output::new(sink, encodings.compress);
        out.bytes(format!("REDIS{VERSION:04}").as_bytes())?;
        Ok(Writer { out, encodings, value: None })
    }

    /// How many bytes the file has so far.
    pub fn offset(&self) -> u64 {
        self.out.offset()
    }

    /// Writes a field about the file; programs ignore fields that they do not know.
    pub fn aux(&mut self, name: &[u8], value: &[u8]) -> io::Result<()> {
        self.out.byte(types::AUX)?;
        self.out.string(name)?;
        self.out.string(value)
    }

    /// The keys that follow are in this database, which has this many keys, and this many with a deadline.
    pub fn database(&mut self, number: u64, keys: u64, deadlines: u64) -> io::Result<()> {
        self.out.byte(types::DATABASE)?;
        self.out.length(number)?;
        self.out.byte(types::SIZES)?;
        self.out.length(keys)?;
        self.out.length(deadlines)
    }

    /// Begins a key whose value has `count` elements. A string counts as one element.
    pub fn begin(&mut self, key: &[u8], meta: KeyMeta, kind: Kind, count: u64) -> io::Result<()> {
        assert!(self.value.is_none(), "a value is not whole yet");
        if let Some(deadline_ms) = meta.deadline_ms {
            self.out.byte(types::DEADLINE_MS)?;
            self.out.bytes(&deadline_ms.to_le_bytes())?;
        }
        if let Some(idle_s) = meta.idle_s {
            self.out.byte(types::IDLE)?;
            self.out.length(idle_s)?;
        }
        if let Some(frequency) = meta.frequency {
            self.out.bytes(&[types::FREQUENCY, frequency])?;
        }
        self.value = Some(Encoder::begin(&mut self.out, &self.encodings, Some(key.to_vec()), kind, count)?);
        Ok(())
    }

    /// Appends an element to the value.
    pub fn element(&mut self, element: Element<'_>) -> io::Result<()> {
        let value = self.value.as_mut().expect("no value has begun");
        value.element(&mut self.out, &self.encodings, element)
    }

    /// Ends the value.
    pub fn end(&mut self) -> io::Result<()> {
        let value = self.value.take().expect("no value has begun");
        value.end(&mut self.out)
    }

    /// Ends the file; returns the sink.
    pub fn finish(mut self) -> io::Result<W> {
        assert!(self.value.is_none(), "a value is not whole yet");
        self.out.byte(types::END)?;
        self.out.finish()
    }
}

/// The payload of a DUMP: a value of `count` elements, which `elements` hands to its argument.
///
/// # Errors
/// Those of `elements`.
///
/// # Panics
/// If the elements are not as many as `count`.
pub fn dump_payload<E: From<io::Error>>(
    encodings: &Encodings,
    kind: Kind,
    count: u64,
    elements: impl FnOnce(&mut dyn FnMut(Element<'_>) -> io::Result<()>) -> Result<(), E>,
) -> Result<Vec<u8>, E> {
    let mut out = Output::new(Vec::new(), encodings.compress);
    let mut value = Encoder::begin(&mut out, encodings, None, kind, count)?;
    elements(&mut |element| value.element(&mut out, encodings, element))?;
    value.end(&mut out)?;
    out.bytes(&VERSION.to_le_bytes())?;
    Ok(out.finish()?)
}
