//! The invalidations of client-side caching, as messages: see [`crate::tracking`].

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::client_ref::ClientRef;
use crate::message::MessageBody;
use crate::pubsub::PubSub;
use crate::tracking::{Invalidation, Mode, NOBODY, Notice};

impl PubSub {
    /// Notes which keys a client has read. May invalidate others, for which there is no room.
    #[cold]
    pub(crate) fn remember<'k>(&mut self, client: u64, keys: impl Iterator<Item = &'k [u8]>) {
        keys.for_each(|key| self.tracking.remember(client, key));
        self.shrink_tracking();
    }

    /// Invalidates keys for which there is no room.
    pub(crate) fn shrink_tracking(&mut self) {
        while let Some(key) = self.tracking.excess() {
            let readers = self.tracking.forget(&key).unwrap_or_default();
            self.post_invalidation(Some(vec![((&*key).into(), NOBODY)]), readers, false);
        }
    }

    /// Notifies the clients that track a key of its change.
    #[inline(always)]
    pub(crate) fn invalidate(&mut self, key: &[u8]) {
        if !self.tracking.clients.is_empty() {
            self.invalidate_tracked(key);
        }
    }

    #[cold]
    fn invalidate_tracked(&mut self, key: &[u8]) {
        if !self.tracking.groups.is_empty() && self.tracking.gather(key) {
            // The client that changed it waits while messages are backlogged.
            self.posted += 1;
        }
        if let Some(readers) = self.tracking.forget(key) {
            let changer = self.tracking.current;
            self.post_invalidation(Some(vec![(key.into(), changer)]), readers, true);
        }
    }

    /// Notifies the clients that track keys with `prefix` of their change; `named` are the keys that existed,
    /// if [`Tracking::is_broadcasting`].
    pub(crate) fn invalidate_prefix<'k>(&mut self, prefix: &[u8], named: impl Iterator<Item = &'k [u8]>) {
        if self.tracking.clients.is_empty() {
            return;
        }
        named.for_each(|key| self.invalidate_tracked(key));
        let behind = (Bound::Included(prefix), Bound::Unbounded);
        let tracked = self.tracking.table.range::<[u8], _>(behind).map(|(key, _)| key.clone());
        let tracked: Vec<_> = tracked.take_while(|key| key.starts_with(prefix)).collect();
        tracked.iter().for_each(|key| self.invalidate_tracked(key));
    }

    /// Tells all who track keys that all may have changed.
    pub(crate) fn invalidate_all(&mut self) {
        if !self.tracking.clients.is_empty() {
            self.tracking.forget_table();
            let clients = self.tracking.clients.keys().copied().collect();
            self.post_invalidation(None, clients, true);
        }
    }

    fn post_invalidation(&mut self, keys: Option<Vec<(Box<[u8]>, u64)>>, clients: Vec<u64>, depends: bool) {
        let receptions = clients.len() as u64;
        self.post(
            MessageBody::Invalidated(Invalidation { keys, clients, is_broadcast: false }),
            receptions,
            depends,
        );
    }

    /// Posts the messages that were gathered for groups, as the batch ends.
    pub(crate) fn post_gathered(&mut self) {
        while let Some(prefix) = self.tracking.changed.pop_first() {
            let Some(group) = self.tracking.groups.get_mut(&prefix) else {
                continue;
            };
            let keys = Some(std::mem::take(&mut group.changed).into_iter().collect());
            let clients: Vec<u64> = group.clients.iter().copied().collect();
            let receptions = clients.len() as u64;
            self.post(
                MessageBody::Invalidated(Invalidation { keys, clients, is_broadcast: true }),
                receptions,
                true,
            );
        }
    }

    /// Calls `visit` with each client that gets a message, and its form.
    pub(crate) fn readers(&mut self, message: &Invalidation, mut visit: impl FnMut(ClientRef, Notice)) {
        let changers: BTreeSet<u64> = message.keys.iter().flatten().map(|(_, changer)| *changer).collect();
        for id in &message.clients {
            let Some(tracked) = self.tracking.clients.get_mut(id) else {
                continue;
            };
            // A client that tracks in another way now is not concerned.
            let is_broadcast = tracked.mode == Mode::Broadcast;
            if message.keys.is_some() && is_broadcast != message.is_broadcast {
                continue;
            }
            let without = if tracked.no_loop && changers.contains(id) { *id } else { NOBODY };
            if message.keys_without(without).is_some_and(|keys| keys.is_empty()) {
                continue;
            }
            match tracked.redirect {
                Some(redirect) if tracked.is_gone => {
                    tracked.is_broken = true;
                    visit(tracked.client, Notice::Broken(redirect.id));
                }
                Some(redirect) => visit(redirect, Notice::Keys { without, is_redirected: true }),
                None => visit(tracked.client, Notice::Keys { without, is_redirected: false }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    use crate::tracking::{OwnTracking, TABLE_BYTES_MAX, Wanted};

    fn client(id: u64) -> ClientRef {
        ClientRef { slot: id as usize, id }
    }

    fn with_readers(ids: &[u64], mode: Mode, prefixes: &[&[u8]]) -> PubSub {
        let mut pubsub = PubSub::default();
        for id in ids {
            let wanted = Wanted { mode, prefixes: prefixes.to_vec(), ..Wanted::default() };
            pubsub.tracking.enable(client(*id), &mut OwnTracking::default(), wanted);
        }
        pubsub
    }

    /// The keys and the receivers of each message that may go.
    fn taken(pubsub: &mut PubSub) -> Vec<(String, Vec<u64>)> {
        let mut taken = Vec::new();
        while let Some(message) = pubsub.take() {
            let MessageBody::Invalidated(message) = message.body else { continue };
            let mut ids = Vec::new();
            pubsub.readers(&message, |client, _| ids.push(client.id));
            let keys = message.keys.map_or("all".to_owned(), |keys| {
                let keys: Vec<_> = keys.iter().map(|(key, _)| String::from_utf8_lossy(key)).collect();
                keys.join(" ")
            });
            taken.push((keys, ids));
        }
        taken
    }

    #[test]
    fn a_change_that_is_undone_invalidates_all_the_same_since_nobody_would_be_told_of_the_next_one() {
        let mut pubsub = with_readers(&[1, 2], Mode::Reads, &[]);
        pubsub.remember(1, [&b"k"[..]].into_iter());
        pubsub.remember(2, [&b"k"[..], b"other"].into_iter());
        let mark = pubsub.mark();
        pubsub.invalidate(b"k");
        assert_eq!(taken(&mut pubsub), [], "not before the commit");
        pubsub.drop_since(mark);
        assert_eq!(taken(&mut pubsub), [], "the batch goes on");
        pubsub.note_committed();
        assert_eq!(taken(&mut pubsub), [("k".to_owned(), vec![1, 2])]);
        pubsub.invalidate(b"other");
        pubsub.note_failed();
        assert_eq!(taken(&mut pubsub), [("other".to_owned(), vec![2])]);
        assert_eq!(pubsub.tracking.counts(), [2, 0, 0, 0]);
        assert_eq!(pubsub.tracking.bytes, 0);
    }

    #[test]
    fn keys_are_given_up_in_turn_if_there_are_too_many() {
        let mut pubsub = with_readers(&[1], Mode::Reads, &[]);
        pubsub.tracking.keys_max = 2;
        for key in [&b"a"[..], b"b", b"c", b"a", b"d"] {
            pubsub.remember(1, [key].into_iter());
        }
        let keys: Vec<_> = taken(&mut pubsub).into_iter().map(|(keys, _)| keys).collect();
        assert_eq!(keys, ["a", "b", "c"]);
        assert_eq!(pubsub.tracking.counts(), [1, 2, 2, 0]);
        pubsub.tracking.keys_max = 1;
        pubsub.shrink_tracking();
        assert_eq!(pubsub.tracking.counts(), [1, 1, 1, 0]);
    }

    #[test]
    fn the_table_has_a_limit_in_bytes_too() {
        let mut pubsub = with_readers(&[1], Mode::Reads, &[]);
        let key = vec![b'k'; 1 << 20];
        for number in 0..300_u32 {
            let key = [&number.to_be_bytes()[..], &key].concat();
            pubsub.remember(1, [&key[..]].into_iter());
            assert!(pubsub.tracking.bytes <= TABLE_BYTES_MAX);
        }
        assert!(pubsub.tracking.table.len() > 200);
    }

    #[test]
    fn clients_that_are_gone_do_not_make_the_list_of_a_key_grow() {
        let mut pubsub = with_readers(&[1], Mode::Reads, &[]);
        for id in 2..10_000 {
            let mut own = OwnTracking::default();
            pubsub.tracking.enable(client(id), &mut own, Wanted::default());
            pubsub.remember(id, [&b"k"[..]].into_iter());
            pubsub.tracking.part_with(id, &mut own);
        }
        assert!(pubsub.tracking.counts()[2] < 10, "{:?}", pubsub.tracking.counts());
    }

    #[test]
    fn a_key_belongs_to_each_group_whose_beginning_it_has() {
        let prefixes: [&[u8]; 6] = [b"user:1", b"user:", b"user:12", b"", b"user:2", b"v"];
        let mut pubsub = with_readers(&[1], Mode::Broadcast, &prefixes);
        for (key, expected) in [
            (&b"user:1"[..], vec![&b""[..], b"user:", b"user:1"]),
            (b"user:123", vec![b"", b"user:", b"user:1", b"user:12"]),
            (b"use", vec![b""]),
            (b"", vec![b""]),
            (b"user:19", vec![b"", b"user:", b"user:1"]),
            (b"w", vec![b""]),
        ] {
            assert!(pubsub.tracking.gather(key));
            let groups: Vec<Rc<[u8]>> = std::mem::take(&mut pubsub.tracking.changed).into_iter().collect();
            assert_eq!(groups.iter().map(|prefix| &**prefix).collect::<Vec<_>>(), expected, "{key:?}");
            pubsub.tracking.groups.values_mut().for_each(|group| group.changed.clear());
        }
        let mut own = OwnTracking::default();
        pubsub.tracking.disable(1, &mut own);
        assert!(!pubsub.tracking.is_broadcasting());
    }

    #[test]
    fn changes_of_a_batch_reach_a_group_as_one_message() {
        let mut pubsub = with_readers(&[1, 2], Mode::Broadcast, &[b"a"]);
        pubsub.tracking.current = 9;
        for key in [&b"a2"[..], b"b", b"a1", b"a2"] {
            pubsub.invalidate(key);
        }
        assert_eq!(taken(&mut pubsub), []);
        pubsub.note_committed();
        assert_eq!(taken(&mut pubsub), [("a1 a2".to_owned(), vec![1, 2])]);
        pubsub.invalidate_prefix(b"a", [&b"a7"[..]].into_iter());
        pubsub.invalidate_all();
        pubsub.note_committed();
        let all = ("all".to_owned(), vec![1, 2]);
        let mut last = taken(&mut pubsub);
        last.iter_mut().for_each(|(_, ids)| ids.sort_unstable());
        assert_eq!(last, [all, ("a7".to_owned(), vec![1, 2])]);
    }
}
