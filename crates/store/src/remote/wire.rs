//! Values in the bytes of a frame: integers are little-endian, strings begin with their length in 4 bytes.

use super::FRAME_BYTES_MAX;
use crate::error::{Error, Result};
use std::io::{ErrorKind, Read, Write};
use std::ops::Bound;

/// Memory for a frame grows by this while its bytes arrive, so that a length that is not true costs nothing.
const STEP_BYTES: u64 = 64 << 10;

/// The bytes are not those of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

impl From<Malformed> for Error {
    fn from(Malformed(what): Malformed) -> Error {
        Error::Refused { why: format!("a message is malformed: {what}") }
    }
}

pub(super) type Decoded<T> = std::result::Result<T, Malformed>;

/// Reads values from the bytes of a frame.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    fn take(&mut self, count: usize) -> Decoded<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| Malformed("it ends too early"))
    }

    pub(super) fn u8(&mut self) -> Decoded<u8> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(super) fn u16(&mut self) -> Decoded<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Decoded<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Decoded<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn flag(&mut self) -> Decoded<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a flag is neither 0 nor 1")),
        }
    }

    pub(super) fn bytes(&mut self) -> Decoded<&'a [u8]> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    pub(super) fn text(&mut self) -> Decoded<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed("a name is not UTF-8"))
    }

    pub(super) fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Decoded<T>) -> Decoded<Option<T>> {
        if self.flag()? { read(self).map(Some) } else { Ok(None) }
    }

    /// A list. Memory grows with what is there, not with the count that the bytes claim.
    pub(super) fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Decoded<T>) -> Decoded<Vec<T>> {
        let count = self.u32()?;
        let mut all = Vec::new();
        for _ in 0..count {
            // Every value has a byte at least, so that a count costs no more than the frame has.
            if self.0.is_empty() {
                return Err(Malformed("it ends too early"));
            }
            all.push(read(self)?);
        }
        Ok(all)
    }

    pub(super) fn bound(&mut self) -> Decoded<Bound<&'a [u8]>> {
        match self.u8()? {
            0 => Ok(Bound::Unbounded),
            1 => Ok(Bound::Included(self.bytes()?)),
            2 => Ok(Bound::Excluded(self.bytes()?)),
            _ => Err(Malformed("a bound of an unknown kind")),
        }
    }

    pub(super) fn end(&self) -> Decoded<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("bytes follow its end")) }
    }
}

/// The bytes of a frame that is being written.
#[derive(Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn flag(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    /// A string; one of 4 GiB makes a frame that is refused by its length.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    pub(super) fn list<T>(&mut self, values: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.u32(u32::try_from(values.len()).unwrap_or(u32::MAX));
        values.iter().for_each(|value| write(self, value));
    }

    pub(super) fn bound(&mut self, bound: Bound<&[u8]>) {
        match bound {
            Bound::Unbounded => self.u8(0),
            Bound::Included(key) => {
                self.u8(1);
                self.bytes(key);
            }
            Bound::Excluded(key) => {
                self.u8(2);
                self.bytes(key);
            }
        }
    }
}

/// Refuses a frame that is too long.
pub(super) fn check_frame(bytes: usize) -> Result<()> {
    let (bytes, max_bytes) = (bytes as u64, FRAME_BYTES_MAX);
    if bytes > max_bytes { Err(Error::FrameTooLarge { bytes, max_bytes }) } else { Ok(()) }
}

/// Writes a frame; nothing of it if it is too long.
pub(super) fn send(to: &mut impl Write, frame: &Writer) -> Result<()> {
    check_frame(frame.0.len())?;
    let length = (frame.0.len() as u32).to_le_bytes();
    let failed = |source| Error::Disconnected { doing: "sending a message", source };
    // Short frames leave with their lengths, in one call.
    if frame.0.len() <= 4096 {
        return to.write_all(&[&length, frame.0.as_slice()].concat()).map_err(failed);
    }
    to.write_all(&length).and_then(|()| to.write_all(&frame.0)).map_err(failed)
}

/// Reads a frame of up to `max_bytes`; `None` at the end of the connection between two frames.
pub(super) fn receive(from: &mut impl Read, max_bytes: u64) -> Result<Option<Vec<u8>>> {
    let failed = |source| Error::Disconnected { doing: "waiting for a message", source };
    let mut length = [0; 4];
    let mut got = 0;
    while got < length.len() {
        match from.read(&mut length[got..]) {
            Ok(0) if got == 0 => return Ok(None),
            Ok(0) => return Err(failed(ErrorKind::UnexpectedEof.into())),
            Ok(count) => got += count,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(failed(e)),
        }
    }
    let bytes = u64::from(u32::from_le_bytes(length));
    if bytes > max_bytes {
        return Err(Error::FrameTooLarge { bytes, max_bytes });
    }
    let mut frame = Vec::with_capacity(bytes.min(STEP_BYTES) as usize);
    from.take(bytes).read_to_end(&mut frame).map_err(failed)?;
    if frame.len() as u64 != bytes {
        return Err(failed(ErrorKind::UnexpectedEof.into()));
    }
    Ok(Some(frame))
}
