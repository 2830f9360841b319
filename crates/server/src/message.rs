//! The messages of publish and subscribe: see [`crate::pubsub`].

use crate::subscriptions::Kind;
use crate::tracking::Invalidation;

/// The content of a message.
#[derive(Debug)]
pub(crate) enum Body {
    /// To a channel, or a channel of a shard.
    Published { kind: Kind, channel: Box<[u8]>, payload: Box<[u8]> },
    /// A line for clients that monitor.
    Monitored(Box<[u8]>),
    /// To clients that track keys.
    Invalidated(Invalidation),
}

#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) number: u64,
    pub(crate) body: Body,
    pub(crate) receptions: u64,
}

impl Message {
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.body {
                Body::Published { channel, payload, .. } => channel.len() + payload.len(),
                Body::Monitored(line) => line.len(),
                Body::Invalidated(invalidation) => invalidation.bytes(),
            }
    }
}
