//! Bytes on their way to a sink: buffered, summed, and written as lengths and strings.

use std::io::{self, Write};

use crate::checksum::{self, Checksum};
use crate::input::BUFFER_BYTES;
use crate::lzf;
use crate::number::parse_canonical;

/// Longest string that may be an integer.
const INTEGER_BYTES_MAX: usize = 11;
/// Strings up to this length are not compressed.
const UNCOMPRESSED_BYTES_MAX: usize = 20;
/// Bytes that a compressed string must save.
const SAVED_BYTES_MIN: usize = 4;

/// A sink.
pub(crate) struct Output<W> {
    sink: W,
    buffer: Vec<u8>,
    checksum: Checksum,
    written: u64,
    compress: bool,
    compressed: Vec<u8>,
}

impl<W: Write> Output<W> {
    pub(crate) fn new(sink: W, compress: bool) -> Self {
        let checksum = checksum::begin();
        Output { sink, buffer: Vec::new(), checksum, written: 0, compress, compressed: Vec::new() }
    }

    /// How many bytes were written, those of the buffer included.
    pub(crate) fn offset(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn flush(&mut self) -> io::Result<()> {
        self.checksum.update(&self.buffer);
        self.sink.write_all(&self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.flush()?;
        }
        if bytes.len() > BUFFER_BYTES {
            self.checksum.update(bytes);
            self.written += bytes.len() as u64;
            return self.sink.write_all(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    pub(crate) fn byte(&mut self, byte: u8) -> io::Result<()> {
        self.bytes(&[byte])
    }

    pub(crate) fn length(&mut self, length: u64) -> io::Result<()> {
        match length {
            0..0x40 => self.byte(length as u8),
            0x40..0x4000 => self.bytes(&(length as u16 | 0x4000).to_be_bytes()),
            0x4000..=0xffff_ffff => {
                self.byte(0x80)?;
                self.bytes(&(length as u32).to_be_bytes())
            }
            _ => {
                self.byte(0x81)?;
                self.bytes(&length.to_be_bytes())
            }
        }
    }

    /// A string: as an integer, compressed, or as it is.
    pub(crate) fn string(&mut self, string: &[u8]) -> io::Result<()> {
        if string.len() <= INTEGER_BYTES_MAX
            && let Some(integer) = parse_canonical(string)
            && let Ok(integer) = i32::try_from(integer)
        {
            return self.integer(integer);
        }
        if self.compress && string.len() > UNCOMPRESSED_BYTES_MAX {
            let mut compressed = std::mem::take(&mut self.compressed);
            let did = lzf::compress(string, string.len() - SAVED_BYTES_MIN, &mut compressed);
            let outcome = if did { self.compressed(string.len(), &compressed) } else { Ok(()) };
            if compressed.capacity() <= BUFFER_BYTES {
                self.compressed = compressed;
            }
            if did {
                return outcome;
            }
        }
        self.length(string.len() as u64)?;
        self.bytes(string)
    }

    fn integer(&mut self, integer: i32) -> io::Result<()> {
        let bytes = integer.to_le_bytes();
        let (tag, count) = match integer {
            -0x80..=0x7f => (0xc0, 1),
            -0x8000..=0x7fff => (0xc1, 2),
            _ => (0xc2, 4),
        };
        self.byte(tag)?;
        self.bytes(&bytes[..count])
    }

    fn compressed(&mut self, len: usize, compressed: &[u8]) -> io::Result<()> {
        self.byte(0xc3)?;
        self.length(compressed.len() as u64)?;
        self.length(len as u64)?;
        self.bytes(compressed)
    }

    /// Appends the checksum of all that was written; returns the sink, to which all of it has gone.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.flush()?;
        let sum = self.checksum.finalize();
        self.sink.write_all(&sum.to_le_bytes())?;
        self.sink.flush()?;
        Ok(self.sink)
    }
}
