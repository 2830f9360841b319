//! Frames of a backup, written and read.

use super::{MAGIC, VERSION};
use crate::error::{Error, Result};
use std::io::{self, ErrorKind, Read, Write};
use xxhash_rust::xxh3::Xxh3;

/// Bytes of a frame's contents, at most: one change with the longest key and value, and then some.
const CONTENTS_MAX: u64 = tembo_index::MAX_VALUE_BYTES + tembo_index::MAX_KEY_BYTES + (1 << 20);

fn checksum(position: u64, kind: u8, contents: &[u8]) -> u64 {
    let mut sum = Xxh3::with_seed(position);
    sum.update(&[kind]);
    sum.update(&(contents.len() as u32).to_le_bytes());
    sum.update(contents);
    sum.digest()
}

/// Writes frames.
pub(super) struct Frames<W> {
    out: W,
    position: u64,
}

impl<W: Write> Frames<W> {
    pub(super) fn new(mut out: W) -> Result<Frames<W>> {
        out.write_all(&MAGIC).map_err(writing)?;
        Ok(Frames { out, position: 0 })
    }

    pub(super) fn write(&mut self, kind: u8, contents: &[u8]) -> Result<()> {
        let sum = checksum(self.position, kind, contents);
        self.position += 1;
        let mut write = |bytes: &[u8]| self.out.write_all(bytes).map_err(writing);
        write(&[kind])?;
        write(&(contents.len() as u32).to_le_bytes())?;
        write(contents)?;
        write(&sum.to_le_bytes())
    }

    pub(super) fn finish(mut self) -> Result<()> {
        self.out.flush().map_err(writing)
    }
}

fn writing(source: io::Error) -> Error {
    Error::Io { doing: "writing the backup", source }
}

/// Reads frames.
pub(super) struct FrameReader<R> {
    input: R,
    position: u64,
    /// Bytes that were read, and where the frame began that was read last.
    off: u64,
    frame_off: u64,
    contents: Vec<u8>,
}

impl<R: Read> FrameReader<R> {
    pub(super) fn new(input: R) -> Result<FrameReader<R>> {
        let mut reader = FrameReader { input, position: 0, off: 0, frame_off: 0, contents: Vec::new() };
        let magic: [u8; MAGIC.len()] = reader.array("the mark of a backup")?;
        if magic[..7] != MAGIC[..7] {
            return Err(reader.damaged("this is no backup of a store"));
        }
        if magic[7] != VERSION {
            return Err(Error::BackupVersion { found: magic[7], supported: VERSION });
        }
        Ok(reader)
    }

    /// The next frame: its kind and contents.
    pub(super) fn read(&mut self) -> Result<(u8, &[u8])> {
        self.frame_off = self.off;
        let [kind] = self.array("a frame")?;
        let bytes = u64::from(u32::from_le_bytes(self.array("the length of a frame")?));
        if bytes > CONTENTS_MAX {
            return Err(self.damaged(format!("a frame of {bytes} bytes, where {CONTENTS_MAX} are allowed")));
        }
        let mut contents = std::mem::take(&mut self.contents);
        contents.clear();
        // Grows with what is there, not by what the length says.
        let count = (&mut self.input).take(bytes).read_to_end(&mut contents).map_err(reading)?;
        self.contents = contents;
        self.off += count as u64;
        if (count as u64) < bytes {
            return Err(self.damaged("it ends inside a frame"));
        }
        let sum = u64::from_le_bytes(self.array("the checksum of a frame")?);
        if sum != checksum(self.position, kind, &self.contents) {
            return Err(self.damaged("the checksum of a frame does not match"));
        }
        self.position += 1;
        Ok((kind, &self.contents))
    }

    /// Requires the end of the input.
    pub(super) fn finish(mut self) -> Result<()> {
        self.frame_off = self.off;
        let mut byte = [0];
        loop {
            match self.input.read(&mut byte) {
                Ok(0) => return Ok(()),
                Ok(_) => return Err(self.damaged("more bytes follow the end")),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(reading(e)),
            }
        }
    }

    /// The error that the frame that was read last is damaged.
    pub(super) fn damaged(&self, why: impl Into<String>) -> Error {
        Error::DamagedBackup { off: self.frame_off, why: why.into() }
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        match self.input.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
                return Err(self.damaged(format!("it ends where {what} should be")));
            }
            Err(e) => return Err(reading(e)),
        }
        self.off += N as u64;
        Ok(bytes)
    }
}

fn reading(source: io::Error) -> Error {
    Error::Io { doing: "reading the backup", source }
}

/// The parts of a frame's contents, one after the other.
pub(super) struct Parts<'c>(pub(super) &'c [u8]);

impl<'c> Parts<'c> {
    pub(super) fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    pub(super) fn length(&mut self) -> Option<u32> {
        let (length, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*length))
    }

    pub(super) fn bytes(&mut self, count: usize) -> Option<&'c [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    /// The rest as text.
    pub(super) fn text(self) -> Option<String> {
        std::str::from_utf8(self.0).ok().map(str::to_owned)
    }
}
