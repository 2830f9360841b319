//! The elements of large collections: records of "db.elements".
//!
//! # Media layout
//!
//! ```text
//!   key      = id_be position_be field                    a field of up to FIELD_BYTES_MAX bytes
//!            | id_be position_be head digest number       a longer one: its first FIELD_BYTES_MAX bytes, 16 bytes
//!                                                         of a hash of all of it, one byte
//!   content  = value
//!            | length_le rest value                       of a long field: its bytes after the head, before
//!                                                         them their number, in 4 bytes
//! ```
//!
//! The position has 4 bytes, the id 8. A key tells by its length which of the two it is. Long fields with the
//! same head and the same digest are told apart by their rests: they have the numbers from 0 on without a
//! gap, so that a search ends at the first number that is absent. A removal moves the last of them into its
//! place.

use std::ops::ControlFlow;

use tembo::Map;

use super::keys::Keys;
use super::ordered::{self, Score};
use super::position::{FIELD_BYTES_MAX, Secret};
use super::sample::Element;
use crate::fault::{Answer, Fault};
use crate::keyspace::batch::Batch;
use crate::keyspace::format::Malformed;

const ID_BYTES: usize = 8;
const PLACE_BYTES: usize = ID_BYTES + 4;
const DIGEST_BYTES: usize = 16;
const LONG_KEY_BYTES: usize = PLACE_BYTES + FIELD_BYTES_MAX + DIGEST_BYTES + 1;
const LENGTH_BYTES: usize = 4;

/// Keys that are put together: as many as stay in the processor's cache from when they are made, with the
/// arguments that they are made of.
const KEYS_TOGETHER: usize = if cfg!(test) { 16 } else { 1024 };

/// No two fields are known whose digests are equal.
const TOO_MANY_ALIKE: Fault = Fault::Error("ERR too many long fields have the same digest");

/// Begins a key.
fn begin(id: u64, position: u32, field: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(PLACE_BYTES + field.len());
    key.extend_from_slice(&id.to_be_bytes());
    key.extend_from_slice(&position.to_be_bytes());
    key.extend_from_slice(field);
    key
}

/// The bounds of the elements of a collection from a position on.
fn bounds(id: u64, from: u32) -> std::ops::Range<Vec<u8>> {
    begin(id, from, &[])..(id + 1).to_be_bytes().to_vec()
}

/// An element as it is read back.
pub(crate) struct Decoded<'a> {
    pub(crate) id: u64,
    pub(crate) position: u32,
    head: &'a [u8],
    rest: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl<'a> Decoded<'a> {
    pub(crate) fn read(key: &'a [u8], content: &'a [u8]) -> Result<Self, Malformed> {
        let (id, tail) = key.split_first_chunk().ok_or(Malformed)?;
        let (position, tail) = tail.split_first_chunk().ok_or(Malformed)?;
        let (id, position) = (u64::from_be_bytes(*id), u32::from_be_bytes(*position));
        if tail.len() <= FIELD_BYTES_MAX {
            return Ok(Decoded { id, position, head: tail, rest: &[], value: content });
        }
        if key.len() != LONG_KEY_BYTES {
            return Err(Malformed);
        }
        let (rest, value) = split_content(content)?;
        Ok(Decoded { id, position, head: &tail[..FIELD_BYTES_MAX], rest, value })
    }

    /// Whether this is the place of a field, its own.
    pub(crate) fn is_placed(&self, key: &[u8], field: &[u8], secret: Secret) -> bool {
        let is_long = key.len() == LONG_KEY_BYTES;
        let tail = &key[PLACE_BYTES + self.head.len()..];
        self.position == secret.position(field)
            && (!is_long || !self.rest.is_empty() && tail[..DIGEST_BYTES] == secret.digest(field))
    }

    /// Gives the whole field to `visit`.
    pub(crate) fn with_field<T>(&self, visit: impl FnOnce(&[u8]) -> T) -> T {
        if self.rest.is_empty() { visit(self.head) } else { visit(&[self.head, self.rest].concat()) }
    }
}

/// Elements that are looked at together.
const PART_ELEMENTS: usize = if cfg!(test) { 8 } else { 256 };

/// Some elements, with their values, and where the next ones are.
#[derive(Default)]
pub(super) struct Part {
    pub(super) elements: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) next: Option<u32>,
}

/// The rest of a long field, and the value.
fn split_content(content: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let (len, tail) = content.split_first_chunk::<LENGTH_BYTES>().ok_or(Malformed)?;
    tail.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or(Malformed)
}

/// The elements as a batch sees them.
pub(crate) struct Elements<'a, 'p> {
    pub(crate) batch: &'a mut Batch<'p>,
    pub(crate) map: &'a Map,
    /// The map of a sorted set's members in order, which follows each change.
    pub(crate) ordered: Option<&'a Map>,
    pub(crate) secret: Secret,
}

impl<'a> Elements<'a, '_> {
    fn short_key(&self, id: u64, field: &[u8]) -> Vec<u8> {
        begin(id, self.secret.position(field), field)
    }

    /// The key of a long field but for its number, which is 0.
    fn long_key(&self, id: u64, field: &[u8]) -> Vec<u8> {
        let mut key = begin(id, self.secret.position(field), &field[..FIELD_BYTES_MAX]);
        key.extend_from_slice(&self.secret.digest(field));
        key.push(0);
        key
    }

    /// Lets `key`, which is of a long field, be the one that has the field's rest, or else the first absent
    /// one; returns whether it is there.
    fn find_long(&self, key: &mut [u8], rest: &[u8]) -> Answer<bool> {
        for number in 0..=u8::MAX {
            key[LONG_KEY_BYTES - 1] = number;
            match self.batch.get(self.map, key)? {
                None => return Ok(false),
                Some(content) if split_content(content)?.0 == rest => return Ok(true),
                Some(_) => {}
            }
        }
        Err(TOO_MANY_ALIKE)
    }

    /// The value of a field; the empty one of a member.
    pub(crate) fn get(self, id: u64, field: &[u8]) -> Answer<Option<&'a [u8]>> {
        let (key, is_long) = if field.len() <= FIELD_BYTES_MAX {
            (self.short_key(id, field), false)
        } else {
            let mut key = self.long_key(id, field);
            if !self.find_long(&mut key, &field[FIELD_BYTES_MAX..])? {
                return Ok(None);
            }
            (key, true)
        };
        let Elements { batch, map, .. } = self;
        let batch: &'a Batch<'_> = batch;
        let Some(content) = batch.get(map, &key)? else {
            return Ok(None);
        };
        Ok(Some(if is_long { split_content(content)?.1 } else { content }))
    }

    /// Puts an element; returns whether it was there.
    pub(crate) fn put(&mut self, id: u64, field: &[u8], value: &[u8]) -> Answer<bool> {
        if let Some(ordered) = self.ordered {
            let (old, new) = (self.score(id, field)?, Score::read(value)?);
            if old == Some(new) {
                return Ok(true);
            }
            if let Some(old) = old {
                ordered::remove(self.batch, ordered, self.secret, (id, old, field))?;
            }
            ordered::put(self.batch, ordered, self.secret, (id, new, field))?;
            return self.put_value(id, field, new.to_value().as_bytes());
        }
        self.put_value(id, field, value)
    }

    fn put_value(&mut self, id: u64, field: &[u8], value: &[u8]) -> Answer<bool> {
        if field.len() <= FIELD_BYTES_MAX {
            let key = self.short_key(id, field);
            return Ok(self.batch.put(self.map, &key, value)?);
        }
        let rest = &field[FIELD_BYTES_MAX..];
        let mut key = self.long_key(id, field);
        self.find_long(&mut key, rest)?;
        let len = (rest.len() as u32).to_le_bytes();
        Ok(self.batch.put_parts(self.map, &key, &[&len, rest, value])?)
    }

    /// Gives new values to elements of short fields, as [`tembo::Batch::put_many`]; none of a sorted set.
    pub(super) fn put_many<'e, V: AsRef<[u8]>>(
        &mut self,
        id: u64,
        fields: impl Iterator<Item = (u32, &'e [u8])>,
        mut decide: impl FnMut(usize, Option<&[u8]>) -> Option<V>,
    ) -> Answer {
        let (mut fields, mut keys, mut before) = (fields.peekable(), Keys::default(), 0);
        while fields.peek().is_some() {
            keys.clear();
            for (position, field) in fields.by_ref().take(KEYS_TOGETHER) {
                keys.push([&id.to_be_bytes()[..], &position.to_be_bytes(), field]);
            }
            self.batch.put_many(self.map, keys.iter(), |number, old| decide(before + number, old))?;
            before += KEYS_TOGETHER;
        }
        Ok(())
    }

    fn score(&mut self, id: u64, member: &[u8]) -> Answer<Option<Score>> {
        let Elements { batch, map, ordered, secret } = self;
        let score = Elements { batch, map, ordered: *ordered, secret: *secret }.get(id, member)?;
        Ok(score.map(Score::read).transpose()?)
    }

    /// Removes an element; returns whether it was there.
    pub(crate) fn remove(&mut self, id: u64, field: &[u8]) -> Answer<bool> {
        if let Some(ordered) = self.ordered {
            let Some(old) = self.score(id, field)? else {
                return Ok(false);
            };
            ordered::remove(self.batch, ordered, self.secret, (id, old, field))?;
        }
        self.remove_unordered(id, field)
    }

    /// Removes a member with this score, which was found in the order of scores.
    pub(crate) fn remove_scored(&mut self, id: u64, field: &[u8], score: Score) -> Answer<bool> {
        if let Some(ordered) = self.ordered {
            ordered::remove(self.batch, ordered, self.secret, (id, score, field))?;
        }
        self.remove_unordered(id, field)
    }

    fn remove_unordered(&mut self, id: u64, field: &[u8]) -> Answer<bool> {
        if field.len() <= FIELD_BYTES_MAX {
            let key = self.short_key(id, field);
            return Ok(self.batch.remove(self.map, &key)?);
        }
        let mut key = self.long_key(id, field);
        if !self.find_long(&mut key, &field[FIELD_BYTES_MAX..])? {
            return Ok(false);
        }
        self.remove_numbered(&key)?;
        Ok(true)
    }

    /// Removes the element of a long field, and closes the gap in the numbers.
    fn remove_numbered(&mut self, key: &[u8]) -> Answer {
        let mut last = key.to_vec();
        while let Some(next) = last[LONG_KEY_BYTES - 1].checked_add(1) {
            last[LONG_KEY_BYTES - 1] = next;
            if self.batch.get(self.map, &last)?.is_none() {
                last[LONG_KEY_BYTES - 1] -= 1;
                break;
            }
        }
        if last != key
            && let Some(content) = self.batch.get(self.map, &last)?.map(<[u8]>::to_vec)
        {
            self.batch.put(self.map, key, &content)?;
        }
        self.batch.remove(self.map, &last)?;
        Ok(())
    }

    /// Some elements of a collection from a position on, as the batch cannot be walked and changed at once.
    pub(super) fn part(&self, id: u64, from: u32) -> Answer<Part> {
        let (mut part, mut last) = (Part::default(), from);
        self.walk(id, from, |element| {
            if part.elements.len() >= PART_ELEMENTS && element.position != last {
                part.next = Some(element.position);
                return ControlFlow::Break(());
            }
            last = element.position;
            part.elements.push((element.with_field(<[u8]>::to_vec), element.value.to_vec()));
            ControlFlow::Continue(())
        })?;
        Ok(part)
    }

    /// An element near a position, and how many elements its leaf has; `None` if another collection's lies
    /// there.
    pub(super) fn near(&self, id: u64, position: u32, choice: u64) -> Answer<Option<(Element, u32)>> {
        let found = self.batch.neighbour(self.map, &begin(id, position, &[]), choice)?;
        let Some(found) = found.filter(|found| found.key.starts_with(&id.to_be_bytes())) else {
            return Ok(None);
        };
        let element = Decoded::read(found.key, found.value)?;
        Ok(Some(((element.with_field(<[u8]>::to_vec), element.value.to_vec()), found.leaf_count)))
    }

    /// Gives the elements of a collection from a position on to `visit`, in order, until it breaks.
    pub(crate) fn walk(
        &self,
        id: u64,
        from: u32,
        mut visit: impl FnMut(&Decoded<'_>) -> ControlFlow<()>,
    ) -> Answer {
        let mut malformed = false;
        self.batch.walk(self.map, bounds(id, from), |key, content| match Decoded::read(key, content) {
            Ok(element) => visit(&element),
            Err(Malformed) => {
                malformed = true;
                ControlFlow::Break(())
            }
        })?;
        if malformed { Err(Fault::Malformed) } else { Ok(()) }
    }
}

/// The committed value of a field, for a check.
pub(crate) fn find_value(
    map: &Map,
    secret: Secret,
    id: u64,
    field: &[u8],
) -> Result<Option<Vec<u8>>, tembo::Error> {
    let key = begin(id, secret.position(field), &field[..field.len().min(FIELD_BYTES_MAX)]);
    if field.len() <= FIELD_BYTES_MAX {
        return Ok(map.get(&key)?.map(|value| value.to_vec()));
    }
    for entry in map.prefix(&key) {
        let entry = entry?;
        if let Ok(element) = Decoded::read(entry.key(), entry.value())
            && element.with_field(|its| its == field)
        {
            return Ok(Some(element.value.to_vec()));
        }
    }
    Ok(None)
}

/// Removes up to `limit` elements of a collection whose committed elements are all that there are; returns
/// whether these were the last.
pub(crate) fn remove_some(batch: &mut Batch<'_>, map: &Map, id: u64, limit: usize) -> Answer<bool> {
    let mut last = None;
    let mut count = 0;
    for entry in map.prefix(id.to_be_bytes()).take(limit) {
        last = Some(entry?.key().to_vec());
        count += 1;
    }
    if let Some(last) = last {
        batch.remove_range(map, id.to_be_bytes().to_vec()..=last)?;
    }
    Ok(count < limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_fields_with_one_digest_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let pool = tembo::Options::new().create(true).open(dir.path().join("long.pool")).unwrap();
        let map = pool.open_map("elements").unwrap();
        let mut batches = crate::keyspace::batch::Batches::default();
        let batch = batches.open(&pool).unwrap();
        let secret = Secret::from_bytes([7; 16]);
        let elements = Elements { batch, map: &map, ordered: None, secret };
        let key = elements.long_key(1, &[b'x'; 600]);
        let content = |rest: &[u8]| [&(rest.len() as u32).to_le_bytes(), rest, b"value"].concat();
        for rest in [b"a", b"b", b"c"] {
            let mut key = key.clone();
            assert!(!elements.find_long(&mut key, rest).unwrap());
            elements.batch.put(&map, &key, &content(rest)).unwrap();
        }
        let find = |elements: &Elements<'_, '_>, rest: &[u8]| {
            let mut key = key.clone();
            elements.find_long(&mut key, rest).unwrap().then_some(key)
        };
        let mut elements = elements;
        let gone = find(&elements, b"a").unwrap();
        elements.remove_numbered(&gone).unwrap();
        assert_eq!(find(&elements, b"a"), None);
        assert_eq!(find(&elements, b"c").map(|key| key[LONG_KEY_BYTES - 1]), Some(0));
        assert_eq!(find(&elements, b"b").map(|key| key[LONG_KEY_BYTES - 1]), Some(1));
        for rest in [b"b", b"c"] {
            let key = find(&elements, rest).unwrap();
            elements.remove_numbered(&key).unwrap();
        }
        assert_eq!(elements.batch.len(&map).unwrap(), 0);
    }
}
