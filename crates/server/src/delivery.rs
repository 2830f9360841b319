//! Delivering messages to those who have subscribed, in slices.
//!
//! A message for many costs a system call for each of them, so a turn does a part of that and then serves
//! others. A message that is long is in memory once for all of its receivers: their outputs share it.
//!
//! Messages are delivered between commits only, when no output has marks: they may then be sent at once.

use std::rc::Rc;

use tembo_wire::{Protocol, ReplyWriter};

use crate::executor::Executor;
use crate::pubsub::{Body, ClientRef, Kind, Message};
use crate::session::Session;
use crate::tracking::{Invalidation, Notice};

/// Receptions of one turn.
const RECEPTIONS_PER_TURN: usize = 128;
/// Bytes of one turn.
const BYTES_PER_TURN: usize = 16 << 20;

/// A message in the forms of both protocols, as they are needed.
#[derive(Debug, Default)]
struct Frames {
    pattern: Option<Rc<[u8]>>,
    /// For those who track keys.
    notice: Option<Notice>,
    encoded: [Option<Rc<[u8]>>; 2],
}

impl Frames {
    fn get(&mut self, protocol: Protocol, body: &Body) -> &Rc<[u8]> {
        let (pattern, notice) = (self.pattern.as_deref(), self.notice);
        let slot = usize::from(protocol == Protocol::Resp3);
        self.encoded[slot].get_or_insert_with(|| encode(protocol, body, pattern, notice).into())
    }

    /// Whether a client can take the message: RESP2 has no place for one that is not of a channel.
    fn are_for(&self, session: &Session) -> bool {
        match self.notice {
            Some(Notice::Keys { is_redirected, .. }) if session.protocol == Protocol::Resp2 => {
                is_redirected && session.is_subscriber()
            }
            Some(Notice::Broken(_)) => session.protocol == Protocol::Resp3,
            _ => true,
        }
    }
}

fn encode(protocol: Protocol, body: &Body, pattern: Option<&[u8]>, notice: Option<Notice>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut reply = ReplyWriter::new(&mut bytes, protocol);
    match body {
        Body::Monitored(line) => reply.simple(line),
        Body::Invalidated(message) => encode_invalidation(&mut reply, message, notice),
        Body::Published { kind, channel, payload } => {
            reply.push(3 + usize::from(pattern.is_some()));
            match (kind, pattern) {
                (Kind::Shard, _) => reply.bulk("smessage"),
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
    message: Message,
    frames: Vec<Frames>,
    /// Those who receive it, each with the place of its frames.
    targets: Vec<(ClientRef, usize)>,
    next: usize,
}

impl Executor<'_, '_> {
    /// Delivers a slice of the committed messages. The clients that got some are then in
    /// [`Clients::take_pushed`](crate::clients::Clients::take_pushed).
    pub(crate) fn deliver_slice(&mut self) {
        self.deliver(RECEPTIONS_PER_TURN, BYTES_PER_TURN, &mut |_, _, _, _| false);
    }

    /// Delivers all committed messages, also to a client that is being served: it gives a subscription up.
    #[cold]
    pub(crate) fn deliver_all(&mut self, session: &Session, output: &mut Vec<u8>) {
        let mut own = |client: ClientRef, frames: &mut [Frames], frame: usize, body: &Body| {
            let is_own = client.id == session.id;
            if is_own && frames[frame].are_for(session) {
                output.extend_from_slice(frames[frame].get(session.protocol, body));
            }
            is_own
        };
        self.deliver(usize::MAX, usize::MAX, &mut own);
    }

    fn deliver(
        &mut self,
        receptions_max: usize,
        bytes_max: usize,
        own: &mut dyn FnMut(ClientRef, &mut [Frames], usize, &Body) -> bool,
    ) {
        debug_assert!(self.marks.is_empty(), "outputs have replies that wait for the commit");
        let (mut receptions, mut bytes) = (0, 0);
        while receptions < receptions_max && bytes < bytes_max {
            let Some(mut delivery) = self.keys.pubsub.delivery.take().or_else(|| self.begin_delivery())
            else {
                return;
            };
            let Delivery { message, frames, targets, next } = &mut delivery;
            while *next < targets.len() && receptions < receptions_max && bytes < bytes_max {
                let (client, frame) = targets[*next];
                (*next, receptions) = (*next + 1, receptions + 1);
                if own(client, frames, frame, &message.body) {
                    continue;
                }
                let conn = self.clients.get_mut(client.slot).filter(|conn| conn.session.id == client.id);
                let conn = conn.filter(|conn| !conn.session.killed && !conn.session.quitting);
                if let Some(conn) = conn.filter(|conn| frames[frame].are_for(&conn.session)) {
                    let frame = frames[frame].get(conn.session.protocol, &message.body);
                    bytes += frame.len();
                    conn.output.append(frame);
                    self.clients.note_pushed(client.slot);
                }
            }
            if *next < targets.len() {
                self.keys.pubsub.delivery = Some(delivery);
            }
        }
    }

    fn begin_delivery(&mut self) -> Option<Delivery> {
        let message = self.keys.pubsub.take()?;
        let (mut frames, mut targets) = (Vec::<Frames>::new(), Vec::new());
        if let Body::Invalidated(invalidation) = &message.body {
            self.keys.pubsub.readers(invalidation, |client, notice| {
                let alike = frames.iter().position(|frames| frames.notice == Some(notice));
                let frame = alike.unwrap_or(frames.len());
                if frame == frames.len() {
                    frames.push(Frames { notice: Some(notice), ..Frames::default() });
                }
                targets.push((client, frame));
            });
        }
        self.keys.pubsub.recipients(&message, |client, pattern| {
            if frames.last().is_none_or(|last| last.pattern.as_ref() != pattern) {
                frames.push(Frames { pattern: pattern.cloned(), ..Frames::default() });
            }
            targets.push((client, frames.len() - 1));
        });
        Some(Delivery { message, frames, targets, next: 0 })
    }
}
