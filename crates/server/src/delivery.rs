//! Delivers messages to subscribers, in slices.
//!
//! A message for many costs a system call for each of them, so a turn does a part of that and then serves
//! others. A message that is long is in memory once for all of its receivers: their outputs share it.
//!
//! Messages are delivered between commits only, when no output has marks: they may then be sent at once.

use std::rc::Rc;

use tembo_wire::{Protocol, ReplyWriter};

use crate::client_ref::ClientRef;
use crate::message::{Message, MessageBody};
use crate::session::Session;
use crate::subscriptions::SubscriptionKind;
use crate::tracking::{Invalidation, Notice};

/// A message in the forms of both protocols, as they are needed.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    pub(crate) pattern: Option<Rc<[u8]>>,
    /// The notice for clients that track keys.
    pub(crate) notice: Option<Notice>,
    pub(crate) encoded: [Option<Rc<[u8]>>; 2],
}

impl Frames {
    pub(crate) fn get(&mut self, protocol: Protocol, body: &MessageBody) -> &Rc<[u8]> {
        let (pattern, notice) = (self.pattern.as_deref(), self.notice);
        let slot = usize::from(protocol == Protocol::Resp3);
        self.encoded[slot].get_or_insert_with(|| encode(protocol, body, pattern, notice).into())
    }

    /// Whether a client can take the message: RESP2 has no place for one that is not of a channel.
    pub(crate) fn are_for(&self, session: &Session) -> bool {
        match self.notice {
            Some(Notice::Keys { is_redirected, .. }) if session.protocol == Protocol::Resp2 => {
                is_redirected && session.is_subscriber()
            }
            Some(Notice::Broken(_)) => session.protocol == Protocol::Resp3,
            _ => true,
        }
    }
}

fn encode(protocol: Protocol, body: &MessageBody, pattern: Option<&[u8]>, notice: Option<Notice>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut reply = ReplyWriter::new(&mut bytes, protocol);
    match body {
        MessageBody::Monitored(line) => reply.simple(line),
        MessageBody::Invalidated(message) => encode_invalidation(&mut reply, message, notice),
        MessageBody::Published { kind, channel, payload } => {
            reply.push(3 + usize::from(pattern.is_some()));
            match (kind, pattern) {
                (SubscriptionKind::Shard, _) => reply.bulk("smessage"),
                (_, None) => reply.bulk("message"),
                (_, Some(pattern)) => {
                    reply.bulk("pmessage");
                    reply.bulk(pattern);
                }
            }
            reply.bulk(channel);
            reply.bulk(payload);
        }
    }
    bytes
}

fn encode_invalidation(reply: &mut ReplyWriter<'_>, message: &Invalidation, notice: Option<Notice>) {
    let without = match notice {
        Some(Notice::Broken(client)) => {
            reply.push(2);
            reply.bulk("tracking-redir-broken");
            return reply.integer(client as i64);
        }
        Some(Notice::Keys { without, .. }) => without,
        None => return,
    };
    if reply.protocol() == Protocol::Resp3 {
        reply.push(2);
        reply.bulk("invalidate");
    } else {
        reply.array(3);
        reply.bulk("message");
        reply.bulk("__redis__:invalidate");
    }
    match message.keys_without(without) {
        Some(keys) => {
            reply.array(keys.len());
            keys.into_iter().for_each(|key| reply.bulk(key));
        }
        None => reply.null(),
    }
}

/// A message that is being delivered.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) message: Message,
    pub(crate) frames: Vec<Frames>,
    /// The receivers of the message, each with the place of its frames.
    pub(crate) targets: Vec<(ClientRef, usize)>,
    pub(crate) next: usize,
}
