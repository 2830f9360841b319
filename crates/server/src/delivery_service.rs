//! The delivery of messages, a slice in each turn: see [`crate::delivery`].

use crate::client_ref::ClientRef;
use crate::delivery::{Delivery, Frames};
use crate::executor::Executor;
use crate::message::MessageBody;
use crate::session::Session;

/// Bytes of a slice: sending them takes some hundred microseconds. Short messages to the same clients still
/// share system calls.
const SLICE_BYTES: usize = 128 << 10;

impl Executor<'_, '_> {
    /// Delivers a slice of the committed messages, to at most this many receivers; returns to how many. The
    /// clients that got some are then in [`Clients::take_pushed`](crate::clients::Clients::take_pushed).
    pub(crate) fn deliver_slice(&mut self, receptions_max: usize) -> usize {
        self.deliver(receptions_max, SLICE_BYTES, &mut |_, _, _, _| false)
    }

    /// Delivers all committed messages, also to a client that is being served: it gives a subscription up.
    #[cold]
    pub(crate) fn deliver_all(&mut self, session: &Session, output: &mut Vec<u8>) {
        let mut own = |client: ClientRef, frames: &mut [Frames], frame: usize, body: &MessageBody| {
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
        own: &mut dyn FnMut(ClientRef, &mut [Frames], usize, &MessageBody) -> bool,
    ) -> usize {
        debug_assert!(self.marks.is_empty(), "outputs have replies that wait for the commit");
        let (mut receptions, mut bytes) = (0, 0);
        while receptions < receptions_max && bytes < bytes_max {
            let Some(mut delivery) = self.keys.pubsub.delivery.take().or_else(|| self.begin_delivery())
            else {
                break;
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
        receptions
    }

    fn begin_delivery(&mut self) -> Option<Delivery> {
        let message = self.keys.pubsub.take()?;
        let (mut frames, mut targets) = (Vec::<Frames>::new(), Vec::new());
        if let MessageBody::Invalidated(invalidation) = &message.body {
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
