//! Values that arrive element by element from another server, and are stored when they are whole. A large one
//! is built in parts, where its command may commit some.

use tembo_rdb::Element;

use super::{hash, set, sorted_set};
use crate::config::Encodings;
use crate::fault::{Answer, Fault};
use crate::keyspace::Keyspace;
use crate::keyspace::collection::ordered::Score;
use crate::keyspace::collection::value::Collection;
use crate::keyspace::format::{Kind, Meta};

/// Elements of a list that are added together, and their bytes.
const GATHERED_MAX: usize = 256;
const GATHERED_BYTES_MAX: usize = 64 << 10;

/// A value that is not whole yet.
pub(crate) struct Arrival {
    database: usize,
    body: ArrivingValue,
    /// Elements of a list that are still to be added.
    gathered: Vec<Vec<u8>>,
    gathered_bytes: usize,
    elements: u64,
}

enum ArrivingValue {
    Text(Vec<u8>),
    Collection(Collection),
}

/// Why an element is not taken.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The value has the element already, or is of another type.
    Unfit,
    /// A field of a hash has a deadline.
    FieldDeadline,
    Fault(Fault),
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Refusal::Fault(fault)
    }
}

/// The type by its name here.
pub(crate) fn kind_of(kind: tembo_rdb::Kind) -> Kind {
    match kind {
        tembo_rdb::Kind::String => Kind::String,
        tembo_rdb::Kind::List => Kind::List,
        tembo_rdb::Kind::Set => Kind::Set,
        tembo_rdb::Kind::Hash => Kind::Hash,
        tembo_rdb::Kind::SortedSet => Kind::SortedSet,
    }
}

impl Arrival {
    /// Begins a value that is to replace the present value of `key`, if there is one.
    pub(crate) fn begin(keys: &mut Keyspace<'_>, database: usize, key: &[u8], kind: Kind) -> Answer<Self> {
        let body = match kind {
            Kind::String => ArrivingValue::Text(Vec::new()),
            kind => ArrivingValue::Collection(keys.replacement(database, key, kind)?.in_parts()),
        };
        let (gathered, gathered_bytes, elements) = (Vec::new(), 0, 0);
        Ok(Arrival { database, body, gathered, gathered_bytes, elements })
    }

    /// Adds an element.
    pub(crate) fn add(
        &mut self,
        keys: &mut Keyspace<'_>,
        limits: &Encodings,
        element: Element<'_>,
    ) -> Result<(), Refusal> {
        self.elements += 1;
        let is_new = match (&mut self.body, element) {
            (ArrivingValue::Text(text), Element::Text(new)) if self.elements == 1 => {
                text.extend_from_slice(new);
                true
            }
            (ArrivingValue::Collection(list), Element::Item(item)) if list.kind() == Kind::List => {
                self.gathered.push(item.to_vec());
                self.gathered_bytes += item.len();
                if self.gathered.len() >= GATHERED_MAX || self.gathered_bytes >= GATHERED_BYTES_MAX {
                    self.flush(keys)?;
                }
                true
            }
            (ArrivingValue::Collection(set), Element::Item(member)) if set.kind() == Kind::Set => {
                set::add(keys, set, limits, member)?
            }
            (ArrivingValue::Collection(_), Element::Field { deadline_ms: Some(_), .. }) => {
                return Err(Refusal::FieldDeadline);
            }
            (ArrivingValue::Collection(hash), Element::Field { field, value, .. })
                if hash.kind() == Kind::Hash =>
            {
                !hash::put(keys, hash, limits, field, value)?
            }
            (ArrivingValue::Collection(sorted), Element::Scored { member, score })
                if sorted.kind() == Kind::SortedSet =>
            {
                let before = sorted.len();
                sorted_set::put(keys, sorted, limits, member, Score::new(score))?;
                sorted.len() > before
            }
            _ => false,
        };
        if is_new { Ok(()) } else { Err(Refusal::Unfit) }
    }

    /// Adds the elements of a list that were gathered.
    fn flush(&mut self, keys: &mut Keyspace<'_>) -> Answer {
        if let ArrivingValue::Collection(list) = &mut self.body
            && !self.gathered.is_empty()
        {
            keys.push(list, false, self.gathered.iter().map(Vec::as_slice))?;
            self.gathered.clear();
            self.gathered_bytes = 0;
        }
        Ok(())
    }

    /// Stores the value under its key, where it expires at `deadline`. An empty collection is not stored:
    /// tells whether there was something.
    pub(crate) fn store(
        mut self,
        keys: &mut Keyspace<'_>,
        key: &[u8],
        deadline: Option<u64>,
    ) -> Answer<bool> {
        if self.elements == 0 {
            return Ok(false);
        }
        self.flush(keys)?;
        match self.body {
            ArrivingValue::Text(text) => {
                let old = keys.find(self.database, key)?.old;
                let meta = Meta { deadline, ..Meta::default() };
                keys.put(self.database, key, meta, old, &[&text])?;
            }
            ArrivingValue::Collection(mut collection) => {
                collection.set_deadline(deadline);
                keys.store(key, collection)?;
            }
        }
        Ok(true)
    }
}
