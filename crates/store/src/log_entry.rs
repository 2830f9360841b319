//! The entries of the log of commits: their bytes, and reading them. `log.rs` has the layout.

use crate::error::{Error, Result, corrupt};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A key that a commit changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedKey {
    /// The id of its keyspace ([`Keyspace::id`](crate::Keyspace::id)), which no other keyspace of the store
    /// has or had.
    pub keyspace: u64,
    /// The key.
    pub key: Vec<u8>,
    /// Whether the commit deleted it.
    pub is_deleted: bool,
}

/// A commit, as the log has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedCommit {
    /// Its number.
    pub number: u64,
    /// The snapshot that its transaction read.
    pub begin: u64,
    /// When it was made, in nanoseconds since 1970, by the clock of the system.
    pub time_unix_ns: u64,
    /// The keys that it changed, by their keyspaces, in their order.
    pub keys: Vec<ChangedKey>,
}

impl LoggedCommit {
    /// When it was made.
    pub fn time(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.time_unix_ns)
    }
}

/// The bytes of an entry, as a transaction makes them.
#[derive(Default)]
pub(crate) struct EntryDraft {
    keys: Vec<u8>,
}

impl EntryDraft {
    pub(crate) fn add(&mut self, keyspace: u64, key: &[u8], is_deleted: bool) {
        put_varint(&mut self.keys, keyspace << 1 | u64::from(is_deleted));
        put_varint(&mut self.keys, key.len() as u64);
        self.keys.extend_from_slice(key);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The entry of the commit with this number.
    pub(crate) fn finish(&self, number: u64, begin: u64, time_unix_ns: u64) -> Vec<u8> {
        let mut entry = Vec::with_capacity(16 + self.keys.len());
        put_varint(&mut entry, number.wrapping_sub(begin));
        let ahead = time_unix_ns.wrapping_sub(number) as i64;
        put_varint(&mut entry, (ahead << 1 ^ ahead >> 63) as u64);
        entry.extend_from_slice(&self.keys);
        entry
    }
}

fn put_varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// The number that a key of the log's tree is.
pub(crate) fn number_of(key: &[u8]) -> Result<u64> {
    let bytes = <[u8; 8]>::try_from(key);
    bytes.map(u64::from_be_bytes).map_err(|_| corrupt("the number of an entry", 0, "8 bytes", key.len()))
}

/// Reads an entry from its beginning.
pub(crate) struct Reader<'e> {
    rest: &'e [u8],
    head: u64,
}

impl<'e> Reader<'e> {
    pub(crate) fn new(entry: &'e [u8], head: u64) -> Reader<'e> {
        Reader { rest: entry, head }
    }

    #[cold]
    fn damage(&self) -> Error {
        corrupt("an entry of the log", self.head, "numbers and keys", self.rest.escape_ascii())
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first().ok_or_else(|| self.damage())?;
            self.rest = rest;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.damage())
    }

    /// The begin and the time, from the beginning of the entry.
    fn numbers(&mut self, number: u64) -> Result<(u64, u64)> {
        let begin = number.wrapping_sub(self.varint()?);
        let ahead = self.varint()?;
        let ahead = (ahead >> 1) as i64 ^ -((ahead & 1) as i64);
        Ok((begin, number.wrapping_add_signed(ahead)))
    }

    /// The time alone.
    pub(crate) fn time(mut self, number: u64) -> Result<u64> {
        Ok(self.numbers(number)?.1)
    }

    fn key(&mut self) -> Result<Option<(u64, bool, &'e [u8])>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let word = self.varint()?;
        let bytes = self.varint()?;
        let split = usize::try_from(bytes).ok().and_then(|bytes| self.rest.split_at_checked(bytes));
        let (key, rest) = split.ok_or_else(|| self.damage())?;
        self.rest = rest;
        Ok(Some((word >> 1, word & 1 == 1, key)))
    }
}

/// The commit that an entry tells of.
pub(crate) fn read_commit(number: u64, entry: &[u8], head: u64) -> Result<LoggedCommit> {
    let mut reader = Reader::new(entry, head);
    let (begin, time_unix_ns) = reader.numbers(number)?;
    let mut keys = Vec::new();
    while let Some((keyspace, is_deleted, key)) = reader.key()? {
        keys.push(ChangedKey { keyspace, key: key.to_vec(), is_deleted });
    }
    Ok(LoggedCommit { number, begin, time_unix_ns, keys })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_read_as_it_was_written() {
        for (number, begin, time) in [(10, 3, 11), (u64::MAX, 0, 5), (1 << 60, (1 << 60) - 1, 1 << 60)] {
            let mut draft = EntryDraft::default();
            draft.add(7, b"key", false);
            draft.add(u64::MAX >> 1, b"", true);
            let entry = draft.finish(number, begin, time);
            let commit = read_commit(number, &entry, 0).unwrap();
            assert_eq!((commit.begin, commit.time_unix_ns), (begin, time));
            let keys = [(7, b"key".to_vec(), false), (u64::MAX >> 1, vec![], true)];
            let keys = keys.map(|(keyspace, key, is_deleted)| ChangedKey { keyspace, key, is_deleted });
            assert_eq!(commit.keys, keys);
            // Every shorter entry is damage, or has fewer keys.
            for len in 0..entry.len() {
                assert_ne!(read_commit(number, &entry[..len], 0).ok().as_ref(), Some(&commit));
            }
        }
        assert!(read_commit(1, &[0x80; 12], 0).is_err());
    }
}
