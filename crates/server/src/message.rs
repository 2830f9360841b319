//! The messages of publish and subscribe: see [`crate::pubsub`].

use crate::subscriptions::SubscriptionKind;
use crate::tracking::Invalidation;

/// The content of a message.
#[derive(Debug)]
pub(crate) enum MessageBody {
    /// To a channel, or a channel of a shard.
    Published { kind: SubscriptionKind, channel: Box<[u8]>, payload: Box<[u8]> },
    /// A line for clients that monitor.
    Monitored(Box<[u8]>),
    /// To clients that track keys.
    Invalidated(Invalidation),
}

#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) number: u64,
    pub(crate) body: MessageBody,
    pub(crate) receptions: u64,
}

impl Message {
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.body {
                MessageBody::Published { channel, payload, .. } => channel.len() + payload.len(),
                MessageBody::Monitored(line) => line.len(),
                MessageBody::Invalidated(invalidation) => invalidation.bytes(),
            }
    }
}
