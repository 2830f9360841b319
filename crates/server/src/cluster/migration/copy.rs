//! The keys of slots as commands, some in each turn.
//!
//! Keys are sent in the order of their places. A large collection is sent in pieces. If it changes meanwhile,
//! the copy of it begins anew, and it takes no writes until that copy is done ([`Copy::guarded`]).
//!
//! # Invariant
//!
//! All bytes of the stream up to the present commit were given to [`Copy::note`] before
//! [`Copy::step`]. Then a key that is *sent* is at the target as it is here, behind the commands that were
//! made; one that is not sent will come whole.

use std::collections::BTreeSet;
use std::ops::Bound;

use tembo::Map;
use tembo_wire::number::write_f64;
use tembo_wire::write_request;

use crate::cluster::ranges::Ranges;
use crate::fault::{Answer, Fault};
use crate::keyspace::Keyspace;
use crate::keyspace::collection::list::StoredChunk;
use crate::keyspace::collection::ordered::Score;
use crate::keyspace::collection::packed::Packed;
use crate::keyspace::collection::{element, ordered};
use crate::keyspace::format::{ELEMENTS, Kind, LISTS, ORDERED, Stored};

/// Bytes of elements that one command has, about.
const PIECE_BYTES: usize = if cfg!(test) { 64 } else { 64 << 10 };

/// Commands for the target.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    pub(crate) bytes: Vec<u8>,
    pub(crate) count: usize,
    /// The number of commands that are not removals.
    pub(crate) writes: usize,
}

impl Commands {
    pub(crate) fn add<I>(&mut self, words: I)
    where
        I: IntoIterator<Item: AsRef<[u8]>, IntoIter: ExactSizeIterator>,
    {
        write_request(&mut self.bytes, words);
        self.count += 1;
        self.writes += 1;
    }

    /// Removes a key.
    pub(crate) fn remove(&mut self, key: &[u8]) {
        write_request(&mut self.bytes, [&b"DEL"[..], key]);
        self.count += 1;
    }
}

/// A large collection that is under way.
#[derive(Debug)]
struct Piece {
    place: Vec<u8>,
    kind: Kind,
    id: u64,
    /// The last record that was sent.
    after: Vec<u8>,
    deadline: Option<u64>,
}

/// How far a copy is.
#[derive(Debug)]
pub(crate) struct Copy {
    slots: Ranges,
    /// The range of the slots that is under way.
    at: usize,
    /// The last place that was sent, or is under way.
    after: Vec<u8>,
    piece: Option<Piece>,
    /// Places that were sent, and are to be sent again.
    again: BTreeSet<Vec<u8>>,
    /// How often the collection that is under way changed meanwhile.
    restarts: u32,
    /// Keys that were sent, for the log.
    pub(crate) keys: u64,
}

impl Copy {
    pub(crate) fn new(slots: Ranges) -> Self {
        let again = BTreeSet::new();
        Copy { slots, at: 0, after: Vec::new(), piece: None, again, restarts: 0, keys: 0 }
    }

    /// Whether everything was sent.
    pub(crate) fn is_done(&self) -> bool {
        self.at == self.slots.as_slice().len() && self.piece.is_none() && self.again.is_empty()
    }

    /// The key that is to take no writes until it was sent.
    pub(crate) fn guarded(&self) -> Option<&[u8]> {
        let piece = self.piece.as_ref().filter(|_| self.restarts > 0)?;
        piece.place.get(2..)
    }

    /// Whether the target has the key at a place.
    fn is_sent(&self, place: &[u8]) -> bool {
        let ranges = self.slots.as_slice();
        let slot = place.first_chunk().map_or(0, |slot| u16::from_be_bytes(*slot));
        // An exhausted range also has the keys that were made behind the last place that was sent.
        let is_exhausted =
            self.at == ranges.len() || ranges[..self.at].last().is_some_and(|it| slot <= *it.end());
        let is_behind = is_exhausted || place <= &self.after[..];
        is_behind && !self.again.contains(place) && !self.is_under_way(place)
    }

    fn is_under_way(&self, place: &[u8]) -> bool {
        self.piece.as_ref().is_some_and(|piece| piece.place == place)
    }

    /// Notes that keys, at these places, were changed by one command; tells whether the target is to run it,
    /// too.
    pub(crate) fn note(&mut self, places: &[Vec<u8>]) -> bool {
        if places.iter().all(|place| self.is_sent(place)) {
            return true;
        }
        for place in places {
            if self.is_under_way(place) {
                self.piece = None;
                self.restarts += 1;
                self.again.insert(place.clone());
            } else if self.is_sent(place) {
                // The command needs keys that the target has not got.
                self.again.insert(place.clone());
            }
        }
        false
    }

    /// Sends the next key, or a piece of one; tells whether there was one. There must be no batch.
    pub(crate) fn step(&mut self, keys: &Keyspace<'_>, out: &mut Commands) -> Answer<bool> {
        if self.piece.is_some() {
            self.go_on(keys, out)?;
            return Ok(true);
        }
        if let Some(place) = self.again.pop_first() {
            out.remove(keys.layout().key(&place));
            if let Some(value) = keys.committed_at(&place)? {
                self.begin(keys, &place, &Stored::decode(&value)?, out)?;
            }
            return Ok(true);
        }
        let Some(range) = self.slots.as_slice().get(self.at) else { return Ok(false) };
        let (range, after, mut begun) = (range.clone(), std::mem::take(&mut self.after), None);
        keys.visit_slots(&range, &after, |place, stored| {
            begun = Some((place.to_vec(), self.begin(keys, place, &stored, out)));
            false
        })?;
        match begun {
            Some((place, begun)) => {
                self.after = place;
                begun?;
            }
            None => (self.at, self.after) = (self.at + 1, after),
        }
        Ok(true)
    }

    /// Sends a key, or the beginning of a large collection.
    fn begin(
        &mut self,
        keys: &Keyspace<'_>,
        place: &[u8],
        stored: &Stored<'_>,
        out: &mut Commands,
    ) -> Answer {
        let (key, meta) = (keys.layout().key(place), stored.meta);
        if meta.deadline.is_some_and(|deadline| deadline <= keys.now_ms) {
            // The key is absent, and its removal is sent before any command that uses it.
            return Ok(());
        }
        self.keys += 1;
        let deadline = meta.deadline.map(|deadline| deadline.to_string());
        if meta.kind == Kind::String {
            match &deadline {
                None => out.add([&b"SET"[..], key, stored.payload]),
                Some(deadline) => {
                    out.add([&b"SET"[..], key, stored.payload, b"PXAT", deadline.as_bytes()]);
                }
            }
            return Ok(());
        }
        if let Some((id, _)) = stored.large() {
            let (place, after) = (place.to_vec(), id.to_be_bytes().to_vec());
            self.piece = Some(Piece { place, kind: meta.kind, id, after, deadline: meta.deadline });
            return Ok(());
        }
        let mut elements = Elements::new(meta.kind, key);
        for (field, value) in Packed::decode(meta.kind, stored.payload)?.iter() {
            elements.add(
                field,
                value,
                (meta.kind == Kind::SortedSet).then(|| Score::read(value)).transpose()?,
            );
        }
        elements.write(out);
        if let Some(deadline) = deadline {
            out.add([&b"PEXPIREAT"[..], key, deadline.as_bytes()]);
        }
        Ok(())
    }

    /// Sends the next elements of the collection that is under way.
    fn go_on(&mut self, keys: &Keyspace<'_>, out: &mut Commands) -> Answer {
        let Some(mut piece) = self.piece.take() else { return Ok(()) };
        let key = keys.layout().key(&piece.place).to_vec();
        let mut elements = Elements::new(piece.kind, &key);
        let is_whole = piece.read(keys, &mut elements)?;
        elements.write(out);
        if !is_whole {
            self.piece = Some(piece);
            return Ok(());
        }
        self.restarts = 0;
        if let Some(deadline) = piece.deadline.map(|deadline| deadline.to_string()) {
            out.add([&b"PEXPIREAT"[..], &key, deadline.as_bytes()]);
        }
        Ok(())
    }
}

impl Piece {
    /// Reads the next elements; tells whether these were the last.
    fn read(&mut self, keys: &Keyspace<'_>, elements: &mut Elements<'_>) -> Answer<bool> {
        let map = self.map(keys)?;
        let prefix = self.id.to_be_bytes();
        for entry in map.range::<&[u8]>((Bound::Excluded(&self.after[..]), Bound::Unbounded)) {
            let entry = entry?;
            let (key, value) = (entry.key(), entry.value());
            if !key.starts_with(&prefix) {
                return Ok(true);
            }
            if elements.bytes >= PIECE_BYTES {
                return Ok(false);
            }
            match self.kind {
                Kind::List => {
                    StoredChunk::read(key, value)?.elements().for_each(|item| elements.add(item, &[], None));
                }
                Kind::SortedSet => {
                    let record = ordered::Decoded::read(key, value)?;
                    record.with_member(|member| elements.add(member, &[], Some(record.score)));
                }
                _ => {
                    let record = element::Decoded::read(key, value)?;
                    record.with_field(|field| elements.add(field, record.value, None));
                }
            }
            self.after = key.to_vec();
        }
        Ok(true)
    }

    fn map(&self, keys: &Keyspace<'_>) -> Answer<Map> {
        let name = match self.kind {
            Kind::List => LISTS,
            Kind::SortedSet => ORDERED,
            _ => ELEMENTS,
        };
        keys.pool().find_map(name)?.ok_or(Fault::Malformed)
    }
}

/// The command that adds elements to a collection.
struct Elements<'k> {
    kind: Kind,
    key: &'k [u8],
    words: Vec<Vec<u8>>,
    bytes: usize,
}

impl<'k> Elements<'k> {
    fn new(kind: Kind, key: &'k [u8]) -> Self {
        Elements { kind, key, words: Vec::new(), bytes: 0 }
    }

    fn add(&mut self, field: &[u8], value: &[u8], score: Option<Score>) {
        self.bytes += field.len() + value.len() + 8;
        if let Some(score) = score {
            let mut text = Vec::new();
            write_f64(&mut text, score.number());
            self.words.push(text);
        }
        self.words.push(field.to_vec());
        if self.kind == Kind::Hash {
            self.words.push(value.to_vec());
        }
    }

    fn write(self, out: &mut Commands) {
        let name = match self.kind {
            Kind::List => &b"RPUSH"[..],
            Kind::Set => b"SADD",
            Kind::Hash => b"HSET",
            Kind::SortedSet => b"ZADD",
            Kind::String => return,
        };
        if !self.words.is_empty() {
            let words = [name, self.key].into_iter().chain(self.words.iter().map(|word| &word[..]));
            out.add(words.collect::<Vec<_>>());
        }
    }
}
