//! How a Redis key, its value and its expiry time lie in the pool's maps.
//!
//! # Media layout
//!
//! ```text
//!   map "dbN"             key                   -> value           N = 0..15, decimal; counts its records
//!                                                                  unless it is older than that
//!   map "dbN.expires"     deadline_be key       -> (empty)
//!   map "slotsN"          slot_be key           -> value           in cluster mode, in place of "dbN": the
//!   map "slotsN.expires"  deadline_be slot_be key -> (empty)       key's slot, two bytes, is before it
//!   map "db.cluster"      see cluster.rs                           the topology; a pool that has it is that
//!                                                                  of a cluster's node
//!   map "db.elements"     id_be element         -> content         of large collections, of all databases
//!   map "db.ordered"      id_be score member    -> rest            of large sorted sets; counts its records
//!   map "db.lists"        id_be place_be        -> chunk           of large lists, of all databases
//!   map "db.cursors"      see cursor.rs                            names for positions of scans
//!   map "db.once"         see once.rs                              tokens of commands that run once
//!   map "db.replication"  see replication.rs                       the master of a replica, and its position
//!   map "db.scripts"      see scripts.rs                         the scripts of SCRIPT LOAD
//!   map "db.old"          see point.rs                            old records, while a copy is under way
//!   map "db.collections"  'n'                   -> id_le           the next id
//!                         's'                   -> 16 bytes        the secret of the positions
//!                         'h' N                 -> home_be         the home of the maps "dbN", one byte
//!                         'o' home_be id_be     -> (empty)         the large collections of a home
//!                         'd' id_be             -> 0, 1 or 2       a doomed collection, a doomed home, or a
//!                                                                  collection under construction
//!                         'k'                   see kept.rs        states that were replaced and are kept
//!                         'p'                   -> 16 bytes        which maps each database has, if a
//!                                                                  database has those of another number
//!
//!   value    = header [ deadline_le ] payload
//!   header   = one byte
//!                bits 0..3  type: 0 string, 1 hash, 2 set, 3 list, 4 sorted set, 5 a large sorted set
//!                           without a count; others are reserved
//!                bit  4     LARGE: the elements are in "db.elements", those of a list in "db.lists"
//!                bit  6     MODIFIED: a string was edited in place (OBJECT ENCODING says raw);
//!                           of a collection: Redis would have given up its compact encoding (hashtable,
//!                           skiplist)
//!                bit  7     EXPIRES: a deadline follows
//!   deadline = 8 bytes: milliseconds since the Unix epoch, UTC
//!   payload  = the string
//!            | packed: { item }                 of a hash: field, value, field, value ...; of a set: members;
//!                                               of a sorted set: member, score, member, score ...;
//!                                               of a list: elements
//!            | large:  id_le count_le           8 bytes each
//!            | type 5: id_le                    always large
//!   item     = length (LEB128) bytes
//!   chunk    = weight_le { item }              4 bytes: the number of the items
//! ```
//!
//! The header is one byte because it is paid for every key; a deadline is paid only where there is one. In
//! the second map the deadline is big-endian so that the map's order is the order of expiry.
//!
//! A small collection is *packed*: it lies in the key's value, a sorted set in the order of its members and
//! the others in that of insertion, and is written anew by each change. A *large* one has a record for each
//! element; a change costs the element's record and, if the count changes, that of the key.
//! [`collection`](super::collection) has the threshold. A large collection stays large.
//!
//! The element's key and content are those of [`collection::element`](super::collection): the element's
//! *position*, a keyed hash of its field in 4 bytes, then the field. The elements of a collection are in the
//! order of their positions, so that a position is all that a cursor of HSCAN, SSCAN or ZSCAN has to be, and
//! a random position is a random element.
//!
//! A large sorted set has two records for each member: one in "db.elements", whose value is the score,
//! and one in "db.ordered", in the order of scores and members, with the layout of
//! [`collection::ordered`](super::collection::ordered). That map counts its records, so that ranks cost
//! O(log n), and so does the number of members: a value of type 5 leaves it out, and is not written again
//! when members come and go. Large values of type 4 are those of earlier versions; a change of their
//! members makes them values of type 5. The elements of a large list are in *chunks* of several, in the
//! order of their places: [`collection::list`](super::collection::list) has more.
//!
//! Only the key's own value has the id, so that DEL, RENAME, MOVE and EXPIRE of a large collection change
//! that value and a constant number of records. One map has the elements of all databases, and an id is never
//! used twice, so that a collection keeps its id in another database. The maps of each database have a
//! *home*, a number out of those of the ids; a record in "db.collections" lists each large collection under
//! its home. FLUSHDB dooms the home instead of all that it lists, and the maps get another one when they need
//! one.
//!
//! Database N has the maps of its number until SWAPDB gives it those of another one. A record says so, a byte
//! for each database: the number of its maps. Everything else on media has the numbers of maps.
//!
//! # Invariants
//!
//! [`check`](super::check) proves them.
//!
//! - **I1** A value is well formed: it decodes without error. A collection has at least one element.
//! - **I2** `deadline_be key` is in "dbN.expires" exactly if `key` is in "dbN" with that deadline. Both maps
//!   are only ever changed together, in one batch.
//! - **I3** An id is in at most one value, which is in a database whose home lists the id. That home is not
//!   doomed, and lists no other ids.
//! - **I4** A large collection has as many elements as its value counts, if it does, and at least one; each
//!   is well formed, and at the position of its field. Those of a list are in chunks, which weigh as much as
//!   they have elements: at least one; one of more than one element is no longer than a chunk may be.
//! - **I5** Elements of an id that is in no value belong to a doomed id, to one that a doomed home lists, or
//!   to one under construction. No value has such an id.
//! - **I6** All ids and homes are below the next id.
//! - **I7** "db.ordered" has a record for each element of each large sorted set, with its score, at its
//!   place, and none of other collections; but for the ids of I5, of which either map may have the records
//!   that are still to be removed. A packed sorted set is in order.
//! - **I8** No two databases have the same maps: the bytes of `'p'` are the numbers 0 to 15 in some order.
//! - **I9** "db.cursors" has pairs of records, `'p' prefix` and `'n' name`, each with the other's name or
//!   prefix. Names are 1, 2, ... without gaps; prefixes have a multiple of 5 bytes.
//! - **I10** "db.once" has for each `'t' token` the entry `'e' deadline token` with the deadline of its
//!   value, and no others.
//! - **I11** The records of "db.replication" are well formed: an id has 40 letters and digits, a database is
//!   below 16, a host has 1 to 255 bytes.
//! - **I12** The records of "db.backlog" are not empty and follow each other without gaps up to the offset of
//!   `'p'`. There are none if `'p'` has the extent of a file.
//! - **I13** In cluster mode each key lies behind its slot, and only database 0 has keys. There are no maps
//!   "dbN".
//! - **I14** The records of "db.cluster" are well formed: an id has 40 letters and digits, and a topology and
//!   an election can be read.
//! - **I15** The moves of "db.cluster" can be read.
//! - **I16** The record of kept states can be read; each number of maps is in it at most once, and is none in
//!   which a state arrives.
//! - **I17** The keys of "db.old" are the number of a map, or of the counts, and a key; its values begin with
//!   0 or 1.
//! - **I18** Each text of "db.scripts" has the digest that it lies under, and their lengths add up.
//!
//! # Commit point
//!
//! The commit of the batch. A command's changes of a value, of elements and of the lists are in one batch:
//! the value is removed, or gets another payload, together with the entry `'d' id`. The exception is a
//! collection that is built in parts under an id of its own:
//! [`collection::construction`](super::collection::construction) has its commits.
//!
//! # Recovery
//!
//! None. Doomed ids, and those that a crash left under construction, are found in the list, not by a scan of
//! the elements. The server removes their elements in bounded steps, each a commit of its own, and the entry
//! with the last of them; a step that was cut off is done again.

use crate::fault::{Answer, Fault, WRONG_TYPE};

/// Databases that SELECT can choose from.
pub(crate) const DATABASES: usize = 16;

/// Longest key in bytes: what the pool's maps take, less the deadline in front of it in "dbN.expires".
pub(crate) const KEY_BYTES_MAX: usize = 65536 - DEADLINE_BYTES;

const DEADLINE_BYTES: usize = 8;
/// Header and deadline.
pub(crate) const PREFIX_BYTES_MAX: usize = 1 + DEADLINE_BYTES;

const KIND: u8 = 0x0F;
const LARGE: u8 = 0x10;
const MODIFIED: u8 = 0x40;
const EXPIRES: u8 = 0x80;
/// The type of a large sorted set without a count.
const UNCOUNTED: u8 = 5;
const ID_BYTES: usize = 8;
/// The payload of a large collection: its id and its count.
const LARGE_PAYLOAD_BYTES: usize = 2 * ID_BYTES;

/// Which maps each database has: a permutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order([u8; DATABASES]);

impl Default for Order {
    fn default() -> Self {
        Order(std::array::from_fn(|number| number as u8))
    }
}

impl Order {
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let order: [u8; DATABASES] = bytes.try_into().map_err(|_| Malformed)?;
        let is_whole = (0..DATABASES as u8).all(|number| order.contains(&number));
        is_whole.then_some(Order(order)).ok_or(Malformed)
    }

    /// The order that gives the databases the maps of these numbers, which are all different.
    pub(super) fn of(numbers: [u8; DATABASES]) -> Self {
        debug_assert!(Order::decode(&numbers).is_ok());
        Order(numbers)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn swap(&mut self, a: usize, b: usize) {
        self.0.swap(a, b);
    }

    /// The number of a database's maps.
    pub(crate) fn maps(&self, database: usize) -> usize {
        self.0[database].into()
    }

    /// Each database with the number of its maps.
    pub(crate) fn iter(self) -> impl Iterator<Item = (usize, usize)> {
        self.0.into_iter().map(usize::from).enumerate()
    }
}

/// The type of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    String,
    Hash,
    Set,
    List,
    SortedSet,
}

impl Kind {
    const ALL: [Kind; 5] = [Kind::String, Kind::Hash, Kind::Set, Kind::List, Kind::SortedSet];

    /// Redis's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::Hash => "hash",
            Kind::Set => "set",
            Kind::SortedSet => "zset",
            Kind::List => "list",
        }
    }
}

/// The contents of a value's prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    /// When the key expires, in milliseconds since the Unix epoch.
    pub(crate) deadline: Option<u64>,
    /// The string was edited in place. Of a collection: Redis would have given up its compact encoding.
    pub(crate) modified: bool,
    pub(crate) kind: Kind,
    /// The elements are in "db.elements".
    pub(crate) large: bool,
    /// Its payload has no count: "db.ordered" counts the members.
    pub(crate) uncounted: bool,
}

/// A value as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored<'a> {
    pub(crate) meta: Meta,
    pub(crate) payload: &'a [u8],
}

/// A value that breaks I1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl From<Malformed> for Fault {
    fn from(_: Malformed) -> Self {
        Fault::Malformed
    }
}

impl<'a> Stored<'a> {
    pub(crate) fn decode(value: &'a [u8]) -> Result<Self, Malformed> {
        let (&header, rest) = value.split_first().ok_or(Malformed)?;
        let (large, modified) = (header & LARGE != 0, header & MODIFIED != 0);
        let (kind, uncounted) = match header & KIND {
            UNCOUNTED if large => (Kind::SortedSet, true),
            number => {
                let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == number);
                (kind.ok_or(Malformed)?, false)
            }
        };
        if header & !(KIND | LARGE | MODIFIED | EXPIRES) != 0 || large && kind == Kind::String {
            return Err(Malformed);
        }
        let (deadline, payload) = match header & EXPIRES {
            0 => (None, rest),
            _ => {
                let (deadline, payload) = rest.split_first_chunk().ok_or(Malformed)?;
                (Some(u64::from_le_bytes(*deadline)), payload)
            }
        };
        if large && payload.len() != if uncounted { ID_BYTES } else { LARGE_PAYLOAD_BYTES } {
            return Err(Malformed);
        }
        Ok(Stored { meta: Meta { deadline, modified, kind, large, uncounted }, payload })
    }

    /// The value, if it is a string.
    #[inline(always)]
    pub(crate) fn string(self) -> Answer<Self> {
        self.of(Kind::String)
    }

    /// The value, if it is of this type.
    #[inline(always)]
    pub(crate) fn of(self, kind: Kind) -> Answer<Self> {
        if self.meta.kind == kind { Ok(self) } else { Err(WRONG_TYPE) }
    }

    /// The id and the count of a large collection, if it has one.
    pub(crate) fn large(&self) -> Option<(u64, Option<u64>)> {
        let (id, count) = self.payload.split_first_chunk().filter(|_| self.meta.large)?;
        Some((u64::from_le_bytes(*id), count.first_chunk().map(|count| u64::from_le_bytes(*count))))
    }
}

/// The bytes in front of a payload.
pub(crate) struct Prefix {
    bytes: [u8; PREFIX_BYTES_MAX],
    len: usize,
}

impl Prefix {
    pub(crate) fn encode(meta: Meta) -> Self {
        let mut bytes = [0; PREFIX_BYTES_MAX];
        debug_assert!(!meta.uncounted || meta.large && meta.kind == Kind::SortedSet);
        bytes[0] = if meta.uncounted { UNCOUNTED } else { meta.kind as u8 }
            | if meta.modified { MODIFIED } else { 0 }
            | if meta.large { LARGE } else { 0 };
        let mut len = 1;
        if let Some(deadline) = meta.deadline {
            bytes[0] |= EXPIRES;
            bytes[1..].copy_from_slice(&deadline.to_le_bytes());
            len = PREFIX_BYTES_MAX;
        }
        Prefix { bytes, len }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Writes the key under which "dbN.expires" holds `key`.
pub(crate) fn encode_expiry(out: &mut Vec<u8>, deadline: u64, key: &[u8]) {
    out.clear();
    out.extend_from_slice(&deadline.to_be_bytes());
    out.extend_from_slice(key);
}

/// The deadline and the key that an entry of "dbN.expires" stands for.
pub(crate) fn decode_expiry(entry: &[u8]) -> Result<(u64, &[u8]), Malformed> {
    let (deadline, key) = entry.split_first_chunk().ok_or(Malformed)?;
    Ok((u64::from_be_bytes(*deadline), key))
}

/// The payload of a large collection.
pub(crate) struct LargePayload {
    bytes: [u8; LARGE_PAYLOAD_BYTES],
    len: usize,
}

impl LargePayload {
    pub(crate) fn encode(meta: Meta, id: u64, count: u64) -> Self {
        let mut bytes = [0; LARGE_PAYLOAD_BYTES];
        bytes[..ID_BYTES].copy_from_slice(&id.to_le_bytes());
        bytes[ID_BYTES..].copy_from_slice(&count.to_le_bytes());
        LargePayload { bytes, len: if meta.uncounted { ID_BYTES } else { LARGE_PAYLOAD_BYTES } }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The map of the elements of large collections.
pub(crate) const ELEMENTS: &str = "db.elements";
/// The map of the members of large sorted sets in order.
pub(crate) const ORDERED: &str = "db.ordered";
/// The map of the chunks of large lists.
pub(crate) const LISTS: &str = "db.lists";
/// The map of the beginnings of positions of scans.
pub(crate) const CURSORS: &str = "db.cursors";
/// The map of tokens and replies.
pub(crate) const ONCE: &str = "db.once";
/// The map of a replica's master and of the position in the stream.
pub const REPLICATION: &str = "db.replication";
/// The map of the last bytes of the stream.
pub(crate) const BACKLOG: &str = "db.backlog";
/// The map of the scripts of SCRIPT LOAD.
pub(crate) const SCRIPTS: &str = "db.scripts";
/// The map of old records, while a point in time is copied.
pub(crate) const OLD_RECORDS: &str = "db.old";
/// The map of the topology of a cluster. A pool that has it is that of a cluster's node.
pub const CLUSTER: &str = "db.cluster";
/// The name of the map that lists large collections. A pool that has a map of this name has databases of this
/// server.
pub const COLLECTIONS: &str = "db.collections";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_value_costs_one_byte() {
        assert_eq!(Prefix::encode(Meta::default()).as_bytes(), [0]);
    }

    #[test]
    fn values_decode_to_what_was_encoded() {
        for deadline in [None, Some(0), Some(1_700_000_000_123), Some(u64::MAX)] {
            for (modified, kind) in [false, true].into_iter().flat_map(|m| Kind::ALL.map(|kind| (m, kind))) {
                let meta = Meta { deadline, modified, kind, ..Meta::default() };
                let mut value = Prefix::encode(meta).as_bytes().to_vec();
                value.extend_from_slice(b"payload");
                assert_eq!(Stored::decode(&value), Ok(Stored { meta, payload: b"payload" }));
            }
        }
        for (kind, uncounted) in [(Kind::Set, false), (Kind::SortedSet, false), (Kind::SortedSet, true)] {
            let meta = Meta { kind, large: true, uncounted, ..Meta::default() };
            let payload = LargePayload::encode(meta, 7, 1 << 40);
            let value = [Prefix::encode(meta).as_bytes(), payload.as_bytes()].concat();
            let stored = Stored::decode(&value).unwrap();
            assert_eq!((stored.meta, stored.large()), (meta, Some((7, (!uncounted).then_some(1 << 40)))));
        }
    }

    #[test]
    fn malformed_values_are_refused() {
        for value in [
            &b""[..],
            b"\x05abc",
            b"\x15abc",
            b"\x15\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0",
            b"\x06abc",
            b"\x0f",
            b"\x10abc",
            b"\x11abc",
            b"\x20abc",
            b"\x80",
            b"\x80\0\0\0\0\0\0\0",
        ] {
            assert_eq!(Stored::decode(value), Err(Malformed), "{value:?}");
        }
        assert_eq!(decode_expiry(b"1234567"), Err(Malformed));
    }

    #[test]
    fn expiry_entries_sort_by_deadline() {
        let entry = |deadline, key: &[u8]| {
            let mut out = b"left over".to_vec();
            encode_expiry(&mut out, deadline, key);
            assert_eq!(decode_expiry(&out), Ok((deadline, key)));
            out
        };
        assert!(entry(255, b"z") < entry(256, b"a"));
        assert!(entry(256, b"a") < entry(256, b"b"));
    }
}
