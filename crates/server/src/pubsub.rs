//! Publish and subscribe: who has subscribed to what, and the messages that are to be delivered.
//!
//! ```text
//!   PUBLISH, notifications ---> outbox: committed, committed, ... | pending, pending, ...
//!                                       |                           become committed with the batch, or
//!                                       v                           are dropped with it
//!                               deliveries (crate::delivery), a slice of them in each turn
//! ```
//!
//! # After the commit
//!
//! A message that is published while the batch has writes is *pending*: a receiver may act on the effects of
//! those writes. The commit makes it *committed*, and a failed commit drops it. Messages are delivered in the
//! order in which they were published.
//!
//! # Who receives a message
//!
//! Clients that were subscribed when it was published, and still are when it is delivered. Subscriptions and
//! messages are numbered in one sequence; a message is delivered to subscriptions with smaller numbers. A
//! client that unsubscribes first gets the messages that are under way.
//!
//! # Memory
//!
//! The outbox has each message once, however many receive it. While it is *backlogged*, clients that publish
//! are not served.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;

use foldhash::fast::RandomState;

use crate::client_ref::ClientRef;
use crate::delivery::Delivery;
use crate::message::{Message, MessageBody};
use crate::session::Session;
use crate::subscriptions::{Subscribers, SubscriptionKind};
use crate::tracking::Tracking;

/// Receptions that may wait before publishers wait.
const RECEPTIONS_MAX: u64 = 4096;
/// Bytes of messages that may.
const OUTBOX_BYTES_MAX: usize = 16 << 20;
/// Memory that a subscription takes in addition to its name.
const SUBSCRIPTION_BYTES: usize = 160;

/// All subscriptions, and the messages on their way.
#[derive(Debug, Default)]
pub(crate) struct PubSub {
    channels: HashMap<Rc<[u8]>, Subscribers, RandomState>,
    patterns: BTreeMap<Rc<[u8]>, Subscribers>,
    shards: HashMap<Rc<[u8]>, Subscribers, RandomState>,
    /// Clients that see all commands.
    pub(crate) monitors: Subscribers,
    /// The number given last, to a subscription or a message.
    last: u64,
    outbox: VecDeque<Message>,
    /// How many messages at the front of the outbox are committed.
    committed: usize,
    /// Sums over all messages in the outbox.
    receptions: u64,
    bytes: usize,
    /// The message that is being delivered.
    pub(crate) delivery: Option<Delivery>,
    /// The classes of changes of keys that are published.
    pub(crate) notified: u32,
    /// Messages that were put into the outbox, ever, and changes that will be part of one.
    pub(crate) posted: u64,
    pub(crate) tracking: Tracking,
}

impl PubSub {
    /// Subscribes a client, unless it is subscribed already.
    pub(crate) fn subscribe(&mut self, session: &mut Session, kind: SubscriptionKind, name: &[u8]) {
        if session.subscriptions.of(kind).contains_key(name) {
            return;
        }
        self.last += 1;
        let client = ClientRef { slot: session.slot, id: session.id };
        let shared = self.shared_name(kind, name);
        let subscribers = match kind {
            SubscriptionKind::Channel => self.channels.entry(shared.clone()).or_default(),
            SubscriptionKind::Pattern => self.patterns.entry(shared.clone()).or_default(),
            SubscriptionKind::Shard => self.shards.entry(shared.clone()).or_default(),
        };
        subscribers.insert(self.last, client);
        session.subscriptions.bytes += name.len() + SUBSCRIPTION_BYTES;
        session.subscriptions.of(kind).insert(shared, self.last);
    }

    /// The name as other subscriptions have it, so that it is in memory once.
    fn shared_name(&self, kind: SubscriptionKind, name: &[u8]) -> Rc<[u8]> {
        let held = match kind {
            SubscriptionKind::Channel => self.channels.get_key_value(name).map(|(name, _)| name),
            SubscriptionKind::Pattern => self.patterns.get_key_value(name).map(|(name, _)| name),
            SubscriptionKind::Shard => self.shards.get_key_value(name).map(|(name, _)| name),
        };
        held.cloned().unwrap_or_else(|| name.into())
    }

    /// Ends a subscription, if the client has it.
    pub(crate) fn unsubscribe(&mut self, session: &mut Session, kind: SubscriptionKind, name: &[u8]) {
        let Some(number) = session.subscriptions.of(kind).remove(name) else {
            return;
        };
        session.subscriptions.bytes -= name.len() + SUBSCRIPTION_BYTES;
        let take_off = |subscribers: &mut Subscribers| {
            subscribers.remove(&number);
            subscribers.is_empty()
        };
        match kind {
            SubscriptionKind::Channel => {
                if self.channels.get_mut(name).is_some_and(take_off) {
                    self.channels.remove(name);
                }
            }
            SubscriptionKind::Pattern => {
                if self.patterns.get_mut(name).is_some_and(take_off) {
                    self.patterns.remove(name);
                }
            }
            SubscriptionKind::Shard => {
                if self.shards.get_mut(name).is_some_and(take_off) {
                    self.shards.remove(name);
                }
            }
        }
    }

    /// Ends all that a client has subscribed to, monitors or tracks.
    pub(crate) fn part_with(&mut self, session: &mut Session) {
        for kind in [SubscriptionKind::Channel, SubscriptionKind::Pattern, SubscriptionKind::Shard] {
            session.subscriptions.names(kind).iter().for_each(|name| self.unsubscribe(session, kind, name));
        }
        if let Some(number) = session.monitors.take() {
            self.monitors.remove(&number);
        }
        self.tracking.part_with(session.id, &mut session.tracking);
    }

    /// Lets a client see all commands.
    pub(crate) fn monitor(&mut self, session: &mut Session) {
        if session.monitors.is_none() {
            self.last += 1;
            self.monitors.insert(self.last, ClientRef { slot: session.slot, id: session.id });
            session.monitors = Some(self.last);
        }
    }

    /// The channels that have subscribers.
    pub(crate) fn channels(&self, kind: SubscriptionKind) -> impl Iterator<Item = &[u8]> {
        let channels = if kind == SubscriptionKind::Shard { &self.shards } else { &self.channels };
        channels.keys().map(|name| &**name)
    }

    /// How many have subscribed to a channel, without those of patterns.
    pub(crate) fn subscribers(&self, kind: SubscriptionKind, name: &[u8]) -> usize {
        let channels = if kind == SubscriptionKind::Shard { &self.shards } else { &self.channels };
        channels.get(name).map_or(0, Subscribers::len)
    }

    /// How many patterns there are.
    pub(crate) fn patterns_len(&self) -> usize {
        self.patterns.len()
    }

    pub(crate) fn channels_len(&self, kind: SubscriptionKind) -> usize {
        if kind == SubscriptionKind::Shard { self.shards.len() } else { self.channels.len() }
    }

    /// The subscribers of a channel: first its own, with no pattern, then those of each pattern.
    fn matching<'s>(
        &'s self,
        kind: SubscriptionKind,
        channel: &'s [u8],
    ) -> impl Iterator<Item = (Option<&'s Rc<[u8]>>, &'s Subscribers)> {
        let channels = if kind == SubscriptionKind::Shard { &self.shards } else { &self.channels };
        let own = channels.get(channel).map(|subscribers| (None, subscribers));
        let patterns = (kind != SubscriptionKind::Shard).then_some(&self.patterns).into_iter().flatten();
        let patterns = patterns.filter(|(pattern, _)| crate::glob::matches(pattern, channel, false));
        own.into_iter().chain(patterns.map(|(pattern, subscribers)| (Some(pattern), subscribers)))
    }

    /// Publishes a message, and returns how many will receive it. It `depends` on the batch if that has
    /// writes.
    pub(crate) fn publish(
        &mut self,
        kind: SubscriptionKind,
        channel: &[u8],
        payload: &[u8],
        depends: bool,
    ) -> u64 {
        let receptions = self.matching(kind, channel).map(|(_, subscribers)| subscribers.len() as u64).sum();
        if receptions > 0 {
            let body = MessageBody::Published { kind, channel: channel.into(), payload: payload.into() };
            self.post(body, receptions, depends);
        }
        receptions
    }

    /// Shows a command to clients that monitor.
    pub(crate) fn show_command(&mut self, line: Vec<u8>) {
        let receptions = self.monitors.len() as u64;
        self.post(MessageBody::Monitored(line.into()), receptions, false);
    }

    pub(crate) fn post(&mut self, body: MessageBody, receptions: u64, depends: bool) {
        self.last += 1;
        self.posted += 1;
        if self.committed == self.outbox.len() && !depends {
            self.committed += 1;
        }
        let message = Message { number: self.last, body, receptions };
        (self.receptions, self.bytes) = (self.receptions + receptions, self.bytes + message.bytes());
        self.outbox.push_back(message);
    }

    /// How many messages wait, for [`PubSub::drop_since`].
    pub(crate) fn mark(&self) -> usize {
        self.outbox.len()
    }

    /// Drops the messages of a command that is undone, but for those to clients that track keys.
    pub(crate) fn drop_since(&mut self, mark: usize) {
        if self.outbox.len() <= mark {
            return;
        }
        self.committed = self.committed.min(mark);
        for message in self.outbox.split_off(mark) {
            if matches!(message.body, MessageBody::Invalidated(_)) {
                self.outbox.push_back(message);
            } else {
                self.forget(&message);
            }
        }
    }

    /// The batch is committed, so that the messages that depended on it may be sent.
    pub(crate) fn note_committed(&mut self) {
        self.post_gathered();
        self.committed = self.outbox.len();
    }

    /// The batch failed, so that the messages that depended on it are dropped.
    pub(crate) fn note_failed(&mut self) {
        self.drop_since(self.committed);
        self.note_committed();
    }

    fn forget(&mut self, message: &Message) {
        self.receptions -= message.receptions;
        self.bytes -= message.bytes();
    }

    /// Whether messages may be delivered.
    pub(crate) fn has_deliveries(&self) -> bool {
        self.committed > 0 || self.delivery.is_some()
    }

    /// Whether messages are on their way, committed or not.
    pub(crate) fn has_messages(&self) -> bool {
        !self.outbox.is_empty() || self.delivery.is_some()
    }

    /// Whether publishers should wait.
    pub(crate) fn is_backlogged(&self) -> bool {
        self.receptions > RECEPTIONS_MAX || self.bytes > OUTBOX_BYTES_MAX
    }

    /// Takes the next message that may be delivered.
    pub(crate) fn take(&mut self) -> Option<Message> {
        self.committed = self.committed.checked_sub(1)?;
        let message = self.outbox.pop_front()?;
        self.forget(&message);
        Some(message)
    }

    /// Calls `visit` with each receiver of a message, and the pattern through which it receives it, if any.
    pub(crate) fn recipients(&self, message: &Message, mut visit: impl FnMut(ClientRef, Option<&Rc<[u8]>>)) {
        let before =
            |subscribers: &Subscribers, pattern, visit: &mut dyn FnMut(ClientRef, Option<&Rc<[u8]>>)| {
                subscribers.range(..message.number).for_each(|(_, client)| visit(*client, pattern));
            };
        match &message.body {
            // Its receivers are known to the tracking.
            MessageBody::Invalidated(_) => {}
            MessageBody::Monitored(_) => before(&self.monitors, None, &mut visit),
            MessageBody::Published { kind, channel, .. } => {
                for (pattern, subscribers) in self.matching(*kind, channel) {
                    before(subscribers, pattern, &mut visit);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(pubsub: &mut PubSub) -> Vec<Vec<u8>> {
        let payload = |message: Message| match message.body {
            MessageBody::Published { payload, .. } => payload.to_vec(),
            MessageBody::Monitored(line) => line.to_vec(),
            MessageBody::Invalidated(_) => Vec::new(),
        };
        std::iter::from_fn(|| pubsub.take()).map(payload).collect()
    }

    fn with_subscriber() -> PubSub {
        let mut pubsub = PubSub::default();
        pubsub.channels.entry(b"c"[..].into()).or_default().insert(0, ClientRef { slot: 0, id: 1 });
        pubsub
    }

    #[test]
    fn a_message_waits_for_the_batch_that_it_depends_on_and_those_behind_it_too() {
        let mut pubsub = with_subscriber();
        assert_eq!(pubsub.publish(SubscriptionKind::Channel, b"c", b"1", false), 1);
        pubsub.publish(SubscriptionKind::Channel, b"c", b"2", true);
        pubsub.publish(SubscriptionKind::Channel, b"c", b"3", false);
        assert_eq!(taken(&mut pubsub), [b"1"]);
        pubsub.note_committed();
        assert_eq!(taken(&mut pubsub), [b"2", b"3"]);
        assert_eq!((pubsub.receptions, pubsub.bytes), (0, 0));
    }

    #[test]
    fn a_failed_batch_drops_what_depended_on_it() {
        let mut pubsub = with_subscriber();
        pubsub.publish(SubscriptionKind::Channel, b"c", b"1", false);
        pubsub.publish(SubscriptionKind::Channel, b"c", b"2", true);
        pubsub.note_failed();
        pubsub.publish(SubscriptionKind::Channel, b"c", b"3", false);
        assert_eq!(taken(&mut pubsub), [b"1", b"3"]);
    }

    #[test]
    fn an_undone_command_takes_its_messages_along() {
        let mut pubsub = with_subscriber();
        pubsub.publish(SubscriptionKind::Channel, b"c", b"1", true);
        let mark = pubsub.mark();
        pubsub.publish(SubscriptionKind::Channel, b"c", b"2", true);
        pubsub.drop_since(mark);
        pubsub.note_committed();
        assert_eq!(taken(&mut pubsub), [b"1"]);
        assert_eq!(
            pubsub.publish(SubscriptionKind::Shard, b"c", b"4", true),
            0,
            "shards have names of their own"
        );
        assert!(!pubsub.has_messages());
    }

    #[test]
    fn a_message_does_not_reach_those_who_subscribe_later() {
        let mut pubsub = with_subscriber();
        pubsub.publish(SubscriptionKind::Channel, b"c", b"1", false);
        pubsub.channels.get_mut(&b"c"[..]).unwrap().insert(100, ClientRef { slot: 1, id: 2 });
        let message = pubsub.take().unwrap();
        let mut clients = Vec::new();
        pubsub.recipients(&message, |client, _| clients.push(client.id));
        assert_eq!(clients, [1]);
    }
}
