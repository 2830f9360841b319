//! The bytes of a file: counted, summed, and read as lengths and strings.

use std::io::{ErrorKind, Read};

use crate::checksum::{self, Checksum};
use crate::error::{Error, Problem};
use crate::lzf;

pub(crate) const BUFFER_BYTES: usize = 64 << 10;

/// A length, or in its place the encoding of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Plain(u64),
    Encoding(u8),
}

/// A source with a place.
pub(crate) struct Input<R> {
    source: R,
    buffer: Box<[u8]>,
    /// The bytes of the buffer that are still to be read.
    start: usize,
    end: usize,
    /// The bytes of the buffer that are in the checksum.
    summed: usize,
    /// The place of the buffer's first byte.
    offset: u64,
    checksum: Checksum,
    /// Longest string.
    pub(crate) string_bytes_max: u64,
    /// Holds a compressed string.
    compressed: Vec<u8>,
}

impl<R: Read> Input<R> {
    pub(crate) fn new(source: R, buffer_bytes: usize) -> Self {
        Input {
            source,
            buffer: vec![0; buffer_bytes.clamp(1, BUFFER_BYTES)].into_boxed_slice(),
            start: 0,
            end: 0,
            summed: 0,
            offset: 0,
            checksum: checksum::begin(),
            string_bytes_max: crate::STRING_BYTES_MAX,
            compressed: Vec::new(),
        }
    }

    /// The place of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.offset + self.start as u64
    }

    pub(crate) fn fail<T>(&self, problem: Problem) -> Result<T, Error> {
        Err(Error::new(self.offset(), problem))
    }

    /// The checksum of all that was read.
    pub(crate) fn checksum(&mut self) -> u64 {
        self.sum();
        self.checksum.clone().finalize()
    }

    fn sum(&mut self) {
        self.checksum.update(&self.buffer[self.summed..self.start]);
        self.summed = self.start;
    }

    /// Whether the source has no more bytes.
    pub(crate) fn is_at_end(&mut self) -> Result<bool, Error> {
        Ok(self.start == self.end && !self.fill()?)
    }

    /// Reads into the empty buffer; tells whether something came.
    fn fill(&mut self) -> Result<bool, Error> {
        self.sum();
        self.offset += self.start as u64;
        (self.start, self.end, self.summed) = (0, 0, 0);
        loop {
            match self.source.read(&mut self.buffer) {
                Ok(count) => {
                    self.end = count;
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.fail(Problem::Io(error)),
            }
        }
    }

    /// The next bytes, at least one and at most this many.
    fn some(&mut self, bytes_max: u64) -> Result<&[u8], Error> {
        if self.is_at_end()? {
            return self.fail(Problem::CutShort);
        }
        let count = bytes_max.min((self.end - self.start) as u64) as usize;
        self.start += count;
        Ok(&self.buffer[self.start - count..self.start])
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Error> {
        Ok(self.some(1)?[0])
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut array = [0; N];
        let mut have = 0;
        while have < N {
            let some = self.some((N - have) as u64)?;
            array[have..have + some.len()].copy_from_slice(some);
            have += some.len();
        }
        Ok(array)
    }

    /// Appends the next `count` bytes to `out`, which grows only as bytes arrive.
    fn append(&mut self, mut count: u64, out: &mut Vec<u8>) -> Result<(), Error> {
        while count > 0 {
            let some = self.some(count)?;
            out.extend_from_slice(some);
            count -= some.len() as u64;
        }
        Ok(())
    }

    pub(crate) fn skip(&mut self, mut count: u64) -> Result<(), Error> {
        while count > 0 {
            count -= self.some(count)?.len() as u64;
        }
        Ok(())
    }

    /// A length, or the encoding of a string in place of one.
    pub(crate) fn length_or_encoding(&mut self) -> Result<Length, Error> {
        let at = self.offset();
        let first = self.byte()?;
        let low = first & 0x3f;
        Ok(match first {
            0..0x40 => Length::Plain(u64::from(low)),
            0x40..0x80 => Length::Plain(u64::from(low) << 8 | u64::from(self.byte()?)),
            0x80 => Length::Plain(u64::from(u32::from_be_bytes(self.array()?))),
            0x81 => Length::Plain(u64::from_be_bytes(self.array()?)),
            0x82..0xc0 => return Err(Error::new(at, Problem::BadLength(first))),
            0xc0..=0xff => Length::Encoding(low),
        })
    }

    pub(crate) fn length(&mut self) -> Result<u64, Error> {
        let at = self.offset();
        match self.length_or_encoding()? {
            Length::Plain(length) => Ok(length),
            Length::Encoding(low) => Err(Error::new(at, Problem::BadLength(low | 0xc0))),
        }
    }

    /// A length that is the length of a string.
    fn string_length(&mut self, bytes: u64) -> Result<u64, Error> {
        match bytes <= self.string_bytes_max {
            true => Ok(bytes),
            false => self.fail(Problem::TooLong { bytes, max: self.string_bytes_max }),
        }
    }

    /// Reads a string into `out`, and replaces its contents.
    pub(crate) fn string(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        out.clear();
        let at = self.offset();
        let integer = match self.length_or_encoding()? {
            Length::Plain(length) => {
                let length = self.string_length(length)?;
                return self.append(length, out);
            }
            Length::Encoding(0) => i64::from(i8::from_le_bytes(self.array()?)),
            Length::Encoding(1) => i64::from(i16::from_le_bytes(self.array()?)),
            Length::Encoding(2) => i64::from(i32::from_le_bytes(self.array()?)),
            Length::Encoding(3) => return self.compressed(at, out),
            Length::Encoding(other) => {
                return Err(Error::new(at, Problem::UnknownStringEncoding(other)));
            }
        };
        out.extend_from_slice(itoa::Buffer::new().format(integer).as_bytes());
        Ok(())
    }

    fn compressed(&mut self, at: u64, out: &mut Vec<u8>) -> Result<(), Error> {
        let (from, to) = (self.length()?, self.length()?);
        let (from, to) = (self.string_length(from)?, self.string_length(to)?);
        let mut compressed = std::mem::take(&mut self.compressed);
        compressed.clear();
        let outcome = self.append(from, &mut compressed).and_then(|()| {
            lzf::decompress(&compressed, to as usize, out).map_err(|what| Error::new(at, Problem::Lzf(what)))
        });
        if compressed.capacity() <= BUFFER_BYTES {
            self.compressed = compressed;
        }
        outcome
    }

    /// Skips a string, whatever its length.
    pub(crate) fn skip_string(&mut self) -> Result<(), Error> {
        let at = self.offset();
        match self.length_or_encoding()? {
            Length::Plain(length) => self.skip(length),
            Length::Encoding(low @ 0..=2) => self.skip(1 << low),
            Length::Encoding(3) => {
                let length = self.length()?;
                self.length()?;
                self.skip(length)
            }
            Length::Encoding(other) => Err(Error::new(at, Problem::UnknownStringEncoding(other))),
        }
    }
}
