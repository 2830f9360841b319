//! The records of a backup: see [`backup`](super) for the format.

use std::io::{self, Read, Seek, SeekFrom, Write};

use xxhash_rust::xxh3::Xxh3;

use super::{BackupError, BackupKind, StreamPlace, damaged};
use crate::keyspace::history::{ID_BYTES, is_id};

pub(crate) const MAGIC: &[u8; 8] = b"TEMBOBAK";
const VERSION: u16 = 1;
const HEAD: u8 = b'h';
const DATA: u8 = b'd';
const END: u8 = b'e';
/// The longest payload of a record of data.
pub(crate) const DATA_BYTES_MAX: usize = 64 << 10;
/// The head without the server's version.
const HEAD_BYTES_MIN: usize = 2 + 1 + 1 + ID_BYTES + 8 + 8;
/// The longest version of a server.
pub(crate) const SERVER_BYTES_MAX: usize = 64;
const END_BYTES: usize = 8 + ID_BYTES + 8 + 8;
/// Type and length; and the checksum.
const FRAME_BYTES: (usize, usize) = (5, 8);

/// The head of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: BackupKind,
    pub(crate) is_node: bool,
    pub(crate) from: StreamPlace,
    pub(crate) time_ms: u64,
    pub(crate) server: String,
}

/// The end of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) data_bytes: u64,
    pub(crate) to: StreamPlace,
    chain: u64,
}

fn checksum(seed: u64, head: &[u8], payload: &[u8]) -> u64 {
    let mut sum = Xxh3::with_seed(seed);
    sum.update(head);
    sum.update(payload);
    sum.digest()
}

/// The fields of a payload, one after the other.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn place(&mut self) -> Option<StreamPlace> {
        let place = StreamPlace { id: self.array()?, offset: self.u64()? };
        // An offset is small enough that sums with it do not overflow.
        (is_id(&place.id) && place.offset < 1 << 62).then_some(place)
    }
}

impl Head {
    fn encode(&self) -> Vec<u8> {
        let kind = match self.kind {
            BackupKind::Full => 1,
            BackupKind::Incremental => 2,
        };
        let server = &self.server.as_bytes()[..self.server.len().min(SERVER_BYTES_MAX)];
        let numbers = [self.from.offset.to_le_bytes(), self.time_ms.to_le_bytes()].concat();
        [&VERSION.to_le_bytes()[..], &[kind, u8::from(self.is_node)], &self.from.id, &numbers, server]
            .concat()
    }

    fn decode(payload: &[u8]) -> Result<Head, BackupError> {
        let wrong = || damaged(MAGIC.len() as u64, "the head does not say what it should");
        let mut fields = Fields(payload);
        match fields.array().map(u16::from_le_bytes).ok_or_else(wrong)? {
            VERSION => {}
            newer if newer > VERSION => return Err(BackupError::NewerVersion(newer)),
            _ => return Err(wrong()),
        }
        let kind = match fields.array().ok_or_else(wrong)? {
            [1] => BackupKind::Full,
            [2] => BackupKind::Incremental,
            _ => return Err(wrong()),
        };
        let [flags] = fields.array().filter(|[flags]| *flags < 2).ok_or_else(wrong)?;
        let from = fields.place().ok_or_else(wrong)?;
        let time_ms = fields.u64().ok_or_else(wrong)?;
        let server = String::from_utf8(fields.0.to_vec()).map_err(|_| wrong())?;
        Ok(Head { kind, is_node: flags == 1, from, time_ms, server })
    }
}

impl End {
    fn encode(&self) -> Vec<u8> {
        let numbers = [self.to.offset.to_le_bytes(), self.chain.to_le_bytes()].concat();
        [&self.data_bytes.to_le_bytes()[..], &self.to.id, &numbers].concat()
    }

    fn decode(payload: &[u8]) -> Option<End> {
        let mut fields = Fields(payload);
        let end = End { data_bytes: fields.u64()?, to: fields.place()?, chain: fields.u64()? };
        fields.0.is_empty().then_some(end)
    }
}

/// Writes a backup.
pub(crate) struct Writer<'w> {
    sink: &'w mut dyn Write,
    sum: u64,
    pending: Vec<u8>,
    data_bytes: u64,
}

impl<'w> Writer<'w> {
    pub(crate) fn begin(sink: &'w mut dyn Write, head: &Head) -> io::Result<Writer<'w>> {
        sink.write_all(MAGIC)?;
        let mut writer = Writer { sink, sum: 0, pending: Vec::new(), data_bytes: 0 };
        writer.record(HEAD, &head.encode())?;
        Ok(writer)
    }

    fn record(&mut self, kind: u8, payload: &[u8]) -> io::Result<()> {
        let mut head = [kind; FRAME_BYTES.0];
        head[1..].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        self.sum = checksum(if kind == END { 0 } else { self.sum }, &head, payload);
        self.sink.write_all(&head)?;
        self.sink.write_all(payload)?;
        self.sink.write_all(&self.sum.to_le_bytes())
    }

    /// Adds data, which are written in records of full length.
    pub(crate) fn add(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.data_bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(DATA_BYTES_MAX - self.pending.len()));
            self.pending.extend_from_slice(now);
            bytes = later;
            if self.pending.len() == DATA_BYTES_MAX {
                self.write_pending()?;
            }
        }
        Ok(())
    }

    fn write_pending(&mut self) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        self.record(DATA, &pending)?;
        self.pending = pending;
        self.pending.clear();
        Ok(())
    }

    /// Ends the backup; returns how many bytes of data it has.
    pub(crate) fn end(mut self, to: StreamPlace) -> io::Result<u64> {
        if !self.pending.is_empty() {
            self.write_pending()?;
        }
        let end = End { data_bytes: self.data_bytes, to, chain: self.sum };
        self.record(END, &end.encode())?;
        self.sink.flush()?;
        Ok(end.data_bytes)
    }
}

/// Reads a backup, and proves each record before its bytes are given out.
pub(crate) struct Reader<R> {
    source: R,
    /// Where the next record begins.
    offset: u64,
    sum: u64,
    head: Head,
    payload: Vec<u8>,
    /// The bytes of the payload that were given out.
    used: usize,
    data_bytes: u64,
    end: Option<End>,
    /// Why [`Read`] failed.
    failure: Option<BackupError>,
}

impl<R: Read> Reader<R> {
    /// Reads the head.
    pub(crate) fn new(mut source: R) -> Result<Reader<R>, BackupError> {
        let mut magic = [0; MAGIC.len()];
        if read_up_to(&mut source, &mut magic)? < MAGIC.len() || magic != *MAGIC {
            return Err(BackupError::NotABackup);
        }
        let mut reader = Reader {
            source,
            offset: MAGIC.len() as u64,
            sum: 0,
            head: Head {
                kind: BackupKind::Full,
                is_node: false,
                from: StreamPlace { id: [b'0'; ID_BYTES], offset: 0 },
                time_ms: 0,
                server: String::new(),
            },
            payload: Vec::new(),
            used: 0,
            data_bytes: 0,
            end: None,
            failure: None,
        };
        let at = reader.offset;
        if reader.record()? != HEAD {
            return Err(damaged(at, "the head is not there"));
        }
        reader.head = Head::decode(&reader.payload)?;
        reader.used = reader.payload.len();
        Ok(reader)
    }

    pub(crate) fn head(&self) -> &Head {
        &self.head
    }

    /// The end, once all data were read.
    pub(crate) fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// How many bytes of the file were read.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The fault that ended the last read.
    pub(crate) fn take_failure(&mut self) -> Option<BackupError> {
        self.failure.take()
    }

    /// Fills a part of a record.
    fn fill(&mut self, room: &mut [u8], before: usize) -> Result<(), BackupError> {
        let count = read_up_to(&mut self.source, room)?;
        match count == room.len() {
            true => Ok(()),
            false => Err(BackupError::Cut { offset: self.offset + (before + count) as u64 }),
        }
    }

    /// Reads the next record into the payload; returns its type.
    fn record(&mut self) -> Result<u8, BackupError> {
        let mut head = [0; FRAME_BYTES.0];
        self.fill(&mut head, 0)?;
        let (kind, length) = (head[0], u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize);
        let is_sound = match kind {
            HEAD => self.sum == 0 && (HEAD_BYTES_MIN..=HEAD_BYTES_MIN + SERVER_BYTES_MAX).contains(&length),
            DATA => (1..=DATA_BYTES_MAX).contains(&length),
            END => length == END_BYTES,
            _ => false,
        };
        if !is_sound {
            return Err(damaged(self.offset, "no record begins here"));
        }
        let mut payload = std::mem::take(&mut self.payload);
        payload.resize(length, 0);
        let mut stored = [0; FRAME_BYTES.1];
        let filled = self.fill(&mut payload, head.len());
        let filled = filled.and_then(|()| self.fill(&mut stored, head.len() + length));
        (self.payload, self.used) = (payload, 0);
        filled?;
        let sum = checksum(if kind == END { 0 } else { self.sum }, &head, &self.payload);
        if sum != u64::from_le_bytes(stored) {
            return Err(damaged(
                self.offset,
                "the record is not as it was written: its checksum does not match",
            ));
        }
        if kind != END {
            self.sum = sum;
        }
        self.offset += (head.len() + length + stored.len()) as u64;
        Ok(kind)
    }

    /// The next data; `None` once the end is reached and proved.
    pub(crate) fn data(&mut self) -> Result<Option<&[u8]>, BackupError> {
        if self.used == self.payload.len() && !self.advance()? {
            return Ok(None);
        }
        let from = std::mem::replace(&mut self.used, self.payload.len());
        Ok(Some(&self.payload[from..]))
    }

    /// Reads the next record of data; false at the end.
    fn advance(&mut self) -> Result<bool, BackupError> {
        if self.end.is_some() {
            return Ok(false);
        }
        let at = self.offset;
        match self.record()? {
            DATA => {
                self.data_bytes += self.payload.len() as u64;
                Ok(true)
            }
            END => {
                let wrong = || damaged(at, "the end does not fit what is before it");
                let end = End::decode(&self.payload).ok_or_else(wrong)?;
                self.used = self.payload.len();
                if end.chain != self.sum || end.data_bytes != self.data_bytes || !self.fits(&end) {
                    return Err(wrong());
                }
                let mut more = [0];
                if read_up_to(&mut self.source, &mut more)? > 0 {
                    return Err(damaged(self.offset, "bytes follow the end of the backup"));
                }
                self.end = Some(end);
                Ok(false)
            }
            _ => Err(damaged(at, "a second head")),
        }
    }

    fn fits(&self, end: &End) -> bool {
        match self.head.kind {
            BackupKind::Full => end.to == self.head.from,
            BackupKind::Incremental => {
                end.to.offset.checked_sub(self.head.from.offset) == Some(end.data_bytes)
            }
        }
    }
}

impl<R: Read + Seek> Reader<R> {
    /// Reads the end alone, without the records before it.
    pub(crate) fn skip_to_end(mut self) -> Result<End, BackupError> {
        let length = FRAME_BYTES.0 + END_BYTES + FRAME_BYTES.1;
        let whole = self.source.seek(SeekFrom::End(0)).map_err(BackupError::Read)?;
        let at = whole.saturating_sub(length as u64).max(self.offset);
        self.source.seek(SeekFrom::Start(at)).map_err(BackupError::Read)?;
        self.offset = at;
        let cut = |_| BackupError::Cut { offset: whole };
        if self.record().map_err(cut)? != END {
            return Err(BackupError::Cut { offset: whole });
        }
        let end = End::decode(&self.payload).filter(|end| self.fits(end));
        end.ok_or_else(|| damaged(at, "the end does not say what it should"))
    }
}

impl<R: Read> Read for Reader<R> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.used == self.payload.len() {
            match self.advance() {
                Ok(true) => {}
                Ok(false) => return Ok(0),
                Err(error) => {
                    let said = io::Error::other(error.to_string());
                    self.failure = Some(error);
                    return Err(said);
                }
            }
        }
        let count = room.len().min(self.payload.len() - self.used);
        room[..count].copy_from_slice(&self.payload[self.used..self.used + count]);
        self.used += count;
        Ok(count)
    }
}

/// Reads until the room is full or the source at its end; returns how much there was.
fn read_up_to(source: &mut impl Read, room: &mut [u8]) -> Result<usize, BackupError> {
    let mut have = 0;
    while have < room.len() {
        match source.read(&mut room[have..]) {
            Ok(0) => break,
            Ok(count) => have += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(BackupError::Read(error)),
        }
    }
    Ok(have)
}
