//! The subscriptions of one client: see [`crate::pubsub`].

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::client_ref::ClientRef;

/// The kinds of subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubscriptionKind {
    Channel,
    Pattern,
    /// A channel of a cluster's shard, which has a namespace of its own.
    Shard,
}

/// The subscribers of one name, by the numbers of their subscriptions.
pub(crate) type Subscribers = BTreeMap<u64, ClientRef>;

/// The names that one client has subscribed to, with the numbers of its subscriptions.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    channels: BTreeMap<Rc<[u8]>, u64>,
    patterns: BTreeMap<Rc<[u8]>, u64>,
    shards: BTreeMap<Rc<[u8]>, u64>,
    /// The memory they take.
    pub(crate) bytes: usize,
}

impl Subscriptions {
    pub(crate) fn of(&mut self, kind: SubscriptionKind) -> &mut BTreeMap<Rc<[u8]>, u64> {
        match kind {
            SubscriptionKind::Channel => &mut self.channels,
            SubscriptionKind::Pattern => &mut self.patterns,
            SubscriptionKind::Shard => &mut self.shards,
        }
    }

    pub(crate) fn len(&self, kind: SubscriptionKind) -> usize {
        match kind {
            SubscriptionKind::Channel => self.channels.len(),
            SubscriptionKind::Pattern => self.patterns.len(),
            SubscriptionKind::Shard => self.shards.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.channels.is_empty() && self.patterns.is_empty() && self.shards.is_empty()
    }

    /// The count that replies to subscribers name: shards are counted by themselves.
    pub(crate) fn count(&self, kind: SubscriptionKind) -> usize {
        match kind {
            SubscriptionKind::Shard => self.shards.len(),
            _ => self.channels.len() + self.patterns.len(),
        }
    }

    /// All names, and whether each is a pattern.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&[u8], bool)> {
        let names = self.channels.keys().chain(self.shards.keys()).map(|name| (&**name, false));
        names.chain(self.patterns.keys().map(|name| (&**name, true)))
    }

    /// The names of a kind.
    pub(crate) fn names(&mut self, kind: SubscriptionKind) -> Vec<Rc<[u8]>> {
        self.of(kind).keys().cloned().collect()
    }
}
