//! The cursors of SCAN: positions between the keys, in 64 bits.
//!
//! A position in an ordered set of byte strings is a string, and may be long. A cursor is the last part of
//! it, and the name of the part before, which is remembered in the pool:
//!
//! ```text
//!   position = prefix part         the first key that is at least this is the next one of the scan
//!   prefix   = a multiple of 5 bytes; empty, or one that has a name
//!   part     = 1 to 5 bytes
//!   cursor   = name * 257^5 + digits        name: 0 for the empty prefix, else 1, 2, ...; below 2^21
//!   digits   = of base 257: a byte and 1, and 0 behind the end of the part
//! ```
//!
//! A scan stops between two keys that it has come to. The position is the shortest beginning of the second
//! key that the first one is below, lengthened to 5 bytes behind a prefix of a multiple of 5: what the two
//! keys have in common says which prefix that is. So a position tells the two apart exactly, whatever keys
//! come and go later: a scan returns every key that is there from its beginning to its end, and none twice
//! unless the client repeats a call. A cursor needs nothing of the server but the prefix. Any number of scans
//! can be open, for any time, and across restarts.
//!
//! # How many prefixes get names
//!
//! Few: a name stands for millions of positions if the keys are numbers or hashes behind its prefix. Beyond
//! [`NAMES_AT_ONCE`], a call that would need a new name looks at up to [`SLACK_KEYS`] more keys for a place
//! whose prefix is empty or has a name, and names the shortest prefix that it found otherwise. A prefix then
//! has at most one name for each `SLACK_KEYS` keys below it. Names are kept for ever: a client may come back
//! with a cursor at any time. A cursor whose name was dropped would be refused, or stand for another place
//! once the name is given again. All names together take two records each, of the prefix and some 60 bytes.
//! If there is no room in the pool or no number left, a call continues to a place that has a name already, or
//! to the end.
//!
//! # Media layout
//!
//! The map "db.cursors":
//!
//! ```text
//!   'p' prefix   -> name_be      4 bytes
//!   'n' name_be  -> prefix
//! ```
//!
//! # Invariants
//!
//! Those of [`format`](super::format): I9.
//!
//! # Commit point
//!
//! The commit of the batch that has both records; the reply with the cursor leaves after it.
//!
//! # Recovery
//!
//! None.

use tembo::{Map, Pool};

use super::Keyspace;
use super::batch::writer;
use super::check_report::CheckError;
use super::format::{CURSORS, Malformed};
use crate::fault::{Answer, Fault};

/// Bytes of a position that are in the cursor.
const PART_BYTES: usize = 5;
const BASE: u64 = 257;
/// The number of parts.
const PARTS: u64 = BASE.pow(PART_BYTES as u32);
/// Names are below this, so that cursors are positive in 64 bits, with sign or without.
const NAMES_MAX: u64 = 1 << 21;
/// Names that are given without looking for a place that needs none.
const NAMES_AT_ONCE: u64 = 4096;
/// Keys that a call looks at in addition, for a place that needs no name.
const SLACK_KEYS: usize = 256;
const PREFIX: u8 = b'p';
const NAME: u8 = b'n';

/// A place between two keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScanPlace {
    pub(crate) prefix: Vec<u8>,
    digits: u64,
}

impl ScanPlace {
    /// A place behind `before` that is not behind `key`. `key` is the greater of the two.
    pub(crate) fn between(before: &[u8], key: &[u8]) -> Self {
        let common = before.iter().zip(key).take_while(|(a, b)| a == b).count();
        let (prefix, rest) = key.split_at(common / PART_BYTES * PART_BYTES);
        ScanPlace { prefix: prefix.to_vec(), digits: encode(rest) }
    }
}

/// The digits of the first bytes of `rest`.
fn encode(rest: &[u8]) -> u64 {
    (0..PART_BYTES).fold(0, |digits, at| digits * BASE + rest.get(at).map_or(0, |byte| u64::from(*byte) + 1))
}

/// The part that digits stand for, if it is not empty.
fn decode(mut digits: u64) -> Option<Vec<u8>> {
    let mut part = Vec::with_capacity(PART_BYTES);
    for _ in 0..PART_BYTES {
        let digit = digits % BASE;
        digits /= BASE;
        match digit.checked_sub(1) {
            Some(byte) => part.push(byte as u8),
            // Nothing comes behind the end.
            None if part.is_empty() => {}
            None => return None,
        }
    }
    part.reverse();
    (!part.is_empty()).then_some(part)
}

fn prefix_key(prefix: &[u8]) -> Vec<u8> {
    [&[PREFIX], prefix].concat()
}

fn name_key(name: u64) -> Vec<u8> {
    [&[NAME][..], &(name as u32).to_be_bytes()].concat()
}

fn read_name(value: &[u8]) -> Result<u64, Malformed> {
    Ok(u32::from_be_bytes(value.try_into().map_err(|_| Malformed)?).into())
}

impl Keyspace<'_> {
    /// The position at which the scan of this cursor continues: the first key that is not less. `None` if no
    /// scan has this cursor.
    pub(crate) fn position(&self, cursor: u64) -> Answer<Option<Vec<u8>>> {
        let (name, Some(part)) = (cursor / PARTS, decode(cursor % PARTS)) else {
            return Ok((cursor == 0).then(Vec::new));
        };
        if name == 0 {
            return Ok(Some(part));
        }
        let prefix = if name < NAMES_MAX { self.cursor_record(&name_key(name))? } else { None };
        Ok(prefix.map(|prefix| [prefix, part].concat()))
    }

    fn cursor_record(&self, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        let Some(collections) = &self.collections else {
            return Ok(None);
        };
        match self.batch.as_ref() {
            Some(batch) => Ok(batch.get(&collections.cursors, key)?.map(<[u8]>::to_vec)),
            None => Ok(collections.cursors.get(key)?.map(|value| value.to_vec())),
        }
    }

    /// Keys that a call of SCAN looks at beyond those that were asked for, for a place that needs no name.
    pub(crate) fn scan_slack(&self) -> Answer<usize> {
        match &self.collections {
            Some(collections) if collections.cursors.len()? / 2 >= NAMES_AT_ONCE => Ok(SLACK_KEYS),
            _ => Ok(0),
        }
    }

    /// The cursor of a place, if it needs no new name.
    pub(crate) fn cursor(&self, place: &ScanPlace) -> Answer<Option<u64>> {
        if place.prefix.is_empty() {
            return Ok(Some(place.digits));
        }
        let name = self.cursor_record(&prefix_key(&place.prefix))?;
        Ok(match name {
            Some(name) => Some(read_name(&name)? * PARTS + place.digits),
            None => None,
        })
    }

    /// The cursor of a place whose prefix gets a name; `None` if there is no room for one, or no number.
    pub(crate) fn new_cursor(&mut self, place: &ScanPlace) -> Answer<Option<u64>> {
        let Keyspace { pool, batch, collections, dirty, .. } = self;
        let Some(collections) = collections else {
            return Ok(None);
        };
        let (batch, map) = (writer(pool, batch)?, &collections.cursors);
        let name = batch.len(map)? / 2 + 1;
        if name >= NAMES_MAX {
            return Ok(None);
        }
        let savepoint = batch.savepoint();
        let put = batch
            .put(map, &prefix_key(&place.prefix), &(name as u32).to_be_bytes())
            .and_then(|_| batch.put(map, &name_key(name), &place.prefix));
        match put {
            Ok(_) => {
                *dirty = true;
                Ok(Some(name * PARTS + place.digits))
            }
            Err(tembo::Error::Full { .. }) => {
                batch.rollback_to(savepoint);
                Ok(None)
            }
            Err(error) => Err(Fault::Engine(error)),
        }
    }
}

#[cfg(test)]
impl Keyspace<'_> {
    /// The beginnings of keys that have names, for tests.
    pub(crate) fn named_prefixes(&self) -> Answer<Vec<(Vec<u8>, u64)>> {
        let mut names = Vec::new();
        for entry in self.collections.iter().flat_map(|collections| collections.cursors.iter()) {
            let entry = entry?;
            if let [PREFIX, prefix @ ..] = entry.key() {
                names.push((prefix.to_vec(), read_name(entry.value())?));
            }
        }
        Ok(names)
    }

    /// Names the place between two keys with two commits, for the crash simulator to find.
    pub(crate) fn name_in_halves(&mut self, before: &[u8], key: &[u8]) -> Answer {
        let prefix = ScanPlace::between(before, key).prefix;
        let Keyspace { pool, batch, collections, dirty, .. } = self;
        let map = &collections.as_ref().ok_or(Fault::Malformed)?.cursors;
        writer(pool, batch)?.put(map, &prefix_key(&prefix), &1_u32.to_be_bytes())?;
        *dirty = true;
        self.commit()?;
        let Keyspace { pool, batch, collections, dirty, .. } = self;
        let map = &collections.as_ref().ok_or(Fault::Malformed)?.cursors;
        writer(pool, batch)?.put(map, &name_key(1), &prefix)?;
        *dirty = true;
        Ok(())
    }
}

/// Proves I9; returns how many prefixes have names.
pub(crate) fn check_cursors(pool: &Pool) -> Result<u64, CheckError> {
    let Some(map) = pool.find_map(CURSORS)? else {
        return Ok(0);
    };
    let names = map.len()? / 2;
    for entry in map.iter() {
        let entry = entry?;
        if !is_sound(&map, entry.key(), entry.value(), names)? {
            return Err(CheckError::Collection {
                place: format!("the cursors, entry \"{}\"", entry.key().escape_ascii()),
                what: "not one of a pair of a prefix and its name".to_owned(),
            });
        }
    }
    Ok(names)
}

fn is_sound(map: &Map, key: &[u8], value: &[u8], names: u64) -> Result<bool, tembo::Error> {
    let is_prefix = |prefix: &[u8]| !prefix.is_empty() && prefix.len().is_multiple_of(PART_BYTES);
    let is_name = |name: &[u8]| read_name(name).is_ok_and(|name| (1..=names).contains(&name));
    let (partner, expected, is_well_formed) = match key {
        [PREFIX, prefix @ ..] => ([&[NAME], value].concat(), prefix, is_prefix(prefix) && is_name(value)),
        [NAME, name @ ..] => (prefix_key(value), name, is_prefix(value) && is_name(name)),
        _ => return Ok(false),
    };
    Ok(is_well_formed && map.get(&partner)?.as_deref() == Some(expected))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn a_place_is_between_its_keys_and_comes_back_from_its_digits() {
        let mut random = Random::seeded(5);
        let mut draw = |most: u64| -> Vec<u8> {
            (0..random.below(most)).map(|_| [0, 0, 1, 7, 255][random.below(5) as usize]).collect()
        };
        for _ in 0..100_000 {
            let (a, b) = (draw(14), draw(14));
            if a == b {
                continue;
            }
            let (before, key) = if a < b { (a, b) } else { (b, a) };
            let place = ScanPlace::between(&before, &key);
            let position = [place.prefix.clone(), decode(place.digits).unwrap()].concat();
            assert!(before < position && position <= key, "{before:?} {key:?} {place:?}");
            assert!(place.digits < PARTS && key.starts_with(&place.prefix));
        }
    }

    #[test]
    fn numbers_that_no_place_has_are_refused() {
        assert_eq!(decode(0), None);
        assert_eq!(decode(12_345), None, "its part would begin behind its end");
        assert_eq!(decode(encode(b"abc")), Some(b"abc".to_vec()));
        assert_eq!(decode(encode(b"\0\0")), Some(b"\0\0".to_vec()));
        const { assert!(NAMES_MAX * PARTS < 1 << 62) };
    }
}
