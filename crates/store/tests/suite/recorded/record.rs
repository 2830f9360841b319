//! Recorded transactions: what each did, what it was answered, and when.

use std::collections::BTreeMap;

/// Which keyspace: the position of its name in [`SPACES`].
pub(crate) type Space = u8;
/// Names a written value; no two writes have the same.
pub(crate) type Id = u64;
/// Keys are numbers; see [`key_bytes`].
pub(crate) type Key = u32;

/// Few keys that everybody wants; many keys; a key for each thread, in which it counts its commits; keys of
/// which every version is retained.
pub(crate) const SPACES: [&str; 4] = ["hot", "wide", "tails", "audited"];
pub(crate) const HOT: Space = 0;
pub(crate) const WIDE: Space = 1;
pub(crate) const TAILS: Space = 2;
pub(crate) const AUDITED: Space = 3;
/// How many keys each has.
pub(crate) const KEYS: [Key; 4] = [16, 1500, 8, 64];

/// The bytes of a key; their order is that of the numbers.
pub(crate) fn key_bytes(key: Key) -> Vec<u8> {
    format!("an account, or so/{key:06}").into_bytes()
}

pub(crate) fn key_of(bytes: &[u8]) -> Key {
    let text = std::str::from_utf8(bytes).expect("keys are text");
    text.rsplit('/').next().and_then(|number| number.parse().ok()).expect("keys end in a number")
}

fn mix(id: Id) -> u64 {
    let x = (id ^ id >> 31).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x ^ x >> 29
}

/// The bytes of a value: some lie in the word of their version, most are short, a few take a record with two
/// fences.
pub(crate) fn value_bytes(id: Id) -> Vec<u8> {
    let mixed = mix(id);
    let bytes = match mixed % 128 {
        0..20 => 6,
        20..100 => 8 + (mixed >> 8) % 40,
        100..125 => 8 + (mixed >> 8) % 400,
        125..127 => 3000,
        _ => 12_000,
    };
    let mut value = vec![id as u8 ^ 0x5A; bytes as usize];
    let head = value.len().min(8);
    value[..head].copy_from_slice(&id.to_le_bytes()[..head]);
    value
}

/// The id in a value.
///
/// # Panics
///
/// If nobody wrote such a value.
pub(crate) fn id_of(value: &[u8]) -> Id {
    let mut bytes = [0; 8];
    let head = value.len().min(8);
    bytes[..head].copy_from_slice(&value[..head]);
    let id = Id::from_le_bytes(bytes);
    assert!(value_bytes(id) == value, "a value of {} bytes, mixed of several, or damaged", value.len());
    id
}

/// From which end a range is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Walk {
    Forwards,
    Backwards,
    /// A step from each end by turns, until they meet.
    Both,
}

/// An operation of a transaction, with its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Op {
    Get {
        space: Space,
        key: Key,
        found: Option<Id>,
    },
    /// Up to so many entries from `low` on and below `high`, in the order of their keys.
    Range {
        space: Space,
        low: Key,
        high: Key,
        walk: Walk,
        limit: usize,
        found: Vec<(Key, Id)>,
    },
    Put {
        space: Space,
        key: Key,
        id: Id,
    },
    Delete {
        space: Space,
        key: Key,
    },
    DeleteRange {
        space: Space,
        low: Key,
        high: Key,
        count: u64,
    },
    Savepoint,
    /// To the last savepoint.
    Rollback,
}

/// The promises of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Snapshot,
    Serializable,
    /// At a snapshot that was not the current one.
    Old,
    /// One get outside a transaction: no one snapshot is promised to it.
    Get,
    /// One write, repeated until it is committed: it has no snapshot that anybody knows.
    Blind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Committed(u64),
    Conflict { space: Space, key: Key, by: u64 },
    Aborted,
}

/// A transaction.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Record {
    pub(crate) thread: usize,
    pub(crate) mode: Mode,
    pub(crate) snapshot: u64,
    pub(crate) ops: Vec<Op>,
    pub(crate) outcome: Outcome,
    /// On the clock that all threads share: before it was begun, after its snapshot was fixed, before the
    /// commit was asked for, after its outcome was known.
    pub(crate) begun: u64,
    pub(crate) seen: u64,
    pub(crate) asked: u64,
    pub(crate) done: u64,
}

impl Record {
    /// The number of the commit, of one that was committed and wrote something.
    pub(crate) fn number(&self) -> Option<u64> {
        match self.outcome {
            Outcome::Committed(number) if self.writes() => Some(number),
            _ => None,
        }
    }

    /// Whether it is more than reads, rolled back or not: a transaction all of whose writes were rolled back
    /// has none.
    pub(crate) fn writes(&self) -> bool {
        // As the store counts: a deletion of what is not there is a write; a deleted range of nothing is
        // none.
        let mut depth = 0u64;
        let mut marks = Vec::new();
        for op in &self.ops {
            match op {
                Op::Put { .. } | Op::Delete { .. } => depth += 1,
                Op::DeleteRange { count, .. } => depth += count,
                Op::Savepoint => marks.push(depth),
                Op::Rollback => depth = marks.last().copied().unwrap_or(0),
                Op::Get { .. } | Op::Range { .. } => {}
            }
        }
        depth > 0
    }
}

/// The last write of a transaction to each key.
pub(crate) type Writes = BTreeMap<(Space, Key), Option<Id>>;
