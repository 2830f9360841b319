//! Client-side caching: the keys that clients have read, and the clients to notify of a change.
//!
//! ```text
//!   a read ------> table: key -> clients -------\
//!   a change                                     >-- messages (crate::pubsub) --> `invalidate`
//!            ----> groups: prefix -> clients, changed keys --/
//! ```
//!
//! A client tracks the keys that it reads, or all keys with certain prefixes (BCAST). As in Redis, names of
//! keys are those of all databases, and a key is invalidated once for each time it was read.
//!
//! # After the commit
//!
//! A change takes the readers of its key off the table and posts a message for them, which leaves with the
//! commit; changes are gathered for each beginning until then. If the command is undone or the commit fails
//! the message leaves all the same: the readers are off the table, and a message too many costs one read.
//!
//! # Memory
//!
//! The table has at most `tracking-table-max-keys` keys and [`TABLE_BYTES_MAX`] bytes. Beyond that keys are
//! invalidated as if they had changed. Disconnected clients stay in the table until their keys change or the
//! list of a key is about to grow. Clients that change keys wait while messages are backlogged.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::rc::Rc;

use foldhash::fast::RandomState;

use crate::client_ref::ClientRef;

/// Most bytes of the table, whatever its number of keys.
pub(crate) const TABLE_BYTES_MAX: usize = 256 << 20;
/// Memory that a key of the table takes in addition to its name and its readers.
const KEY_OVERHEAD_BYTES: usize = 96;
/// Memory that a client's beginning of keys takes in addition to its bytes.
const PREFIX_OVERHEAD_BYTES: usize = 192;
/// The number that stands for the server itself in changes that it makes.
pub(crate) const NOBODY: u64 = 0;

/// Which keys a client tracks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// All that it reads.
    #[default]
    Reads,
    /// The keys that it reads after CLIENT CACHING YES.
    OptIn,
    /// The keys that it reads, but for those after CLIENT CACHING NO.
    OptOut,
    /// The keys with certain beginnings, read or not.
    Broadcast,
}

/// A client that tracks keys.
#[derive(Debug)]
pub(crate) struct Tracked {
    pub(crate) client: ClientRef,
    pub(crate) mode: Mode,
    /// The client is not told of its own changes.
    pub(crate) no_loop: bool,
    /// The client that gets its messages in its place.
    pub(crate) redirect: Option<ClientRef>,
    /// That other client is gone.
    pub(crate) is_gone: bool,
    /// The client was told so, or would have been.
    pub(crate) is_broken: bool,
    pub(crate) prefixes: BTreeSet<Rc<[u8]>>,
}

impl Tracked {
    /// The number of the client that gets its messages; 0 if this client gets them itself.
    pub(crate) fn redirect_id(&self) -> i64 {
        self.redirect.map_or(0, |redirect| redirect.id as i64)
    }
}

/// How CLIENT TRACKING ON is to be.
#[derive(Debug, Default)]
pub(crate) struct Wanted<'a> {
    pub(crate) mode: Mode,
    pub(crate) no_loop: bool,
    pub(crate) redirect: Option<ClientRef>,
    pub(crate) prefixes: Vec<&'a [u8]>,
}

/// The part of a client's session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnTracking {
    /// The keys that it reads are to be remembered.
    pub(crate) reads: bool,
    /// CLIENT CACHING was given for the next command.
    pub(crate) caching: bool,
    /// Memory of the beginnings.
    pub(crate) bytes: usize,
}

/// The clients that track one prefix.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) clients: BTreeSet<u64>,
    /// The keys changed in this batch, and who changed each first.
    pub(crate) changed: BTreeMap<Box<[u8]>, u64>,
}

/// The content of a message to those who track.
#[derive(Debug)]
pub(crate) struct Invalidation {
    /// The keys, and who changed each; `None` for all keys.
    pub(crate) keys: Option<Vec<(Box<[u8]>, u64)>>,
    /// The clients to notify, unless they track no longer.
    pub(crate) clients: Vec<u64>,
    pub(crate) is_broadcast: bool,
}

impl Invalidation {
    pub(crate) fn bytes(&self) -> usize {
        let keys = self.keys.iter().flatten().map(|(key, _)| key.len() + size_of::<(Box<[u8]>, u64)>());
        keys.sum::<usize>() + self.clients.len() * size_of::<u64>()
    }

    /// The keys for a client that changed some itself; `without` is [`NOBODY`] for all others.
    pub(crate) fn keys_without(&self, without: u64) -> Option<Vec<&[u8]>> {
        let is_told = |(_, changer): &&(Box<[u8]>, u64)| without == NOBODY || *changer != without;
        self.keys.as_ref().map(|keys| keys.iter().filter(is_told).map(|(key, _)| &**key).collect())
    }
}

/// How a client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Keys that this client did not change. In RESP2 it is a message of a channel, and goes only to a
    /// subscriber that gets the messages of another client.
    Keys { without: u64, is_redirected: bool },
    /// The client with this number, to which the messages were redirected, has disconnected.
    Broken(u64),
}

/// All clients that track keys.
#[derive(Debug)]
pub(crate) struct Tracking {
    pub(crate) clients: HashMap<u64, Tracked, RandomState>,
    /// The keys that were read, and who read each.
    pub(crate) table: BTreeMap<Rc<[u8]>, Vec<u64>>,
    /// Sums over the table.
    items: usize,
    pub(crate) bytes: usize,
    pub(crate) groups: BTreeMap<Rc<[u8]>, Group>,
    /// The beginnings of the groups that have changed keys.
    pub(crate) changed: BTreeSet<Rc<[u8]>>,
    /// Most keys of the table: `tracking-table-max-keys`, 0 for no limit.
    pub(crate) keys_max: u64,
    /// The position at which the search for a key to be given up continues.
    next_given_up: Vec<u8>,
    /// The client whose command runs.
    pub(crate) current: u64,
}

impl Default for Tracking {
    fn default() -> Self {
        Tracking {
            clients: HashMap::default(),
            table: BTreeMap::new(),
            items: 0,
            bytes: 0,
            groups: BTreeMap::new(),
            changed: BTreeSet::new(),
            keys_max: 0,
            next_given_up: Vec::new(),
            current: NOBODY,
        }
    }
}

fn row_bytes(key: &[u8], readers: &Vec<u64>) -> usize {
    key.len() + KEY_OVERHEAD_BYTES + readers.capacity() * size_of::<u64>()
}

/// How many bytes two strings have in common at their beginnings.
fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Tracking {
    pub(crate) fn get(&self, client: u64) -> Option<&Tracked> {
        self.clients.get(&client)
    }

    /// How many clients track keys; how many keys, readers of keys, and beginnings there are.
    pub(crate) fn counts(&self) -> [usize; 4] {
        [self.clients.len(), self.table.len(), self.items, self.groups.len()]
    }

    /// Whether there are clients that track all keys with some beginning.
    pub(crate) fn is_broadcasting(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Lets a client track keys, or changes the way in which it does.
    pub(crate) fn enable(&mut self, client: ClientRef, own: &mut OwnTracking, wanted: Wanted<'_>) {
        let Wanted { mode, no_loop, redirect, prefixes } = wanted;
        let old = self.clients.remove(&client.id).map(|old| old.prefixes).unwrap_or_default();
        let mut tracked =
            Tracked { client, mode, no_loop, redirect, is_gone: false, is_broken: false, prefixes: old };
        let all = (mode == Mode::Broadcast && prefixes.is_empty()).then_some(&b""[..]);
        for prefix in prefixes.into_iter().chain(all) {
            let held = self.groups.get_key_value(prefix).map(|(prefix, _)| prefix.clone());
            let shared = held.unwrap_or_else(|| prefix.into());
            self.groups.entry(shared.clone()).or_default().clients.insert(client.id);
            if tracked.prefixes.insert(shared) {
                own.bytes += prefix.len() + PREFIX_OVERHEAD_BYTES;
            }
        }
        own.reads = mode != Mode::Broadcast;
        self.clients.insert(client.id, tracked);
    }

    /// Lets a client track no keys any more.
    pub(crate) fn disable(&mut self, client: u64, own: &mut OwnTracking) {
        *own = OwnTracking::default();
        for prefix in self.clients.remove(&client).into_iter().flat_map(|tracked| tracked.prefixes) {
            if let Some(group) = self.groups.get_mut(&prefix) {
                group.clients.remove(&client);
                if group.clients.is_empty() {
                    self.groups.remove(&prefix);
                    self.changed.remove(&prefix);
                }
            }
        }
        if self.clients.is_empty() {
            self.forget_table();
        }
    }

    /// Notes that a client has disconnected: it tracks nothing, and receives no messages of others.
    pub(crate) fn part_with(&mut self, client: u64, own: &mut OwnTracking) {
        self.disable(client, own);
        for tracked in self.clients.values_mut() {
            tracked.is_gone |= tracked.redirect.is_some_and(|redirect| redirect.id == client);
        }
    }

    pub(crate) fn forget_table(&mut self) {
        self.table.clear();
        (self.items, self.bytes) = (0, 0);
    }

    /// Notes that a client has read a key.
    pub(crate) fn remember(&mut self, client: u64, key: &[u8]) {
        let Tracking { clients, table, items, bytes, .. } = self;
        let Some(readers) = table.get_mut(key) else {
            let readers = vec![client];
            (*items, *bytes) = (*items + 1, *bytes + row_bytes(key, &readers));
            table.insert(key.into(), readers);
            return;
        };
        if readers.contains(&client) {
            return;
        }
        (*items, *bytes) = (*items - readers.len(), *bytes - row_bytes(key, readers));
        if readers.len() == readers.capacity() {
            readers.retain(|reader| clients.get(reader).is_some_and(|its| its.mode != Mode::Broadcast));
        }
        readers.push(client);
        (*items, *bytes) = (*items + readers.len(), *bytes + row_bytes(key, readers));
    }

    /// Removes a key from the table, and returns the clients that have read it.
    pub(crate) fn forget(&mut self, key: &[u8]) -> Option<Vec<u64>> {
        let (key, readers) = self.table.remove_entry(key)?;
        (self.items, self.bytes) = (self.items - readers.len(), self.bytes - row_bytes(&key, &readers));
        Some(readers)
    }

    /// A key that is to be given up, if there are too many.
    pub(crate) fn excess(&mut self) -> Option<Rc<[u8]>> {
        let too_many = self.keys_max > 0 && self.table.len() as u64 > self.keys_max;
        if !too_many && self.bytes <= TABLE_BYTES_MAX {
            return None;
        }
        let behind = (Bound::Excluded(&self.next_given_up[..]), Bound::Unbounded);
        let mut keys = self.table.range::<[u8], _>(behind).chain(self.table.iter());
        let key = keys.next().map(|(key, _)| key.clone())?;
        self.next_given_up = key.to_vec();
        Some(key)
    }

    /// Gathers a changed key for each group whose beginning it has; tells whether there is one.
    pub(crate) fn gather(&mut self, key: &[u8]) -> bool {
        let Tracking { groups, changed, current, .. } = self;
        let (mut rest, mut found) = (Some(key), false);
        while let Some(end) = rest {
            // The greatest that is not behind `end`: those that `end` begins with are not behind it.
            let Some((prefix, group)) =
                groups.range_mut::<[u8], _>((Bound::Unbounded, Bound::Included(end))).next_back()
            else {
                break;
            };
            let length = common(prefix, end);
            if length < prefix.len() {
                rest = Some(&end[..length]);
                continue;
            }
            found = true;
            if !group.changed.contains_key(key) {
                group.changed.insert(key.into(), *current);
                changed.insert(prefix.clone());
            }
            rest = length.checked_sub(1).map(|shorter| &end[..shorter]);
        }
        found
    }
}
