//! All connections, by slot. A connection that is being served is out of its slot, so that commands can look
//! at the others.

use crate::conn::Conn;
use crate::session::Session;

#[derive(Debug, Default)]
pub(crate) struct Clients {
    slots: Vec<Option<Box<Conn>>>,
    vacant: Vec<usize>,
    /// Slots of connections to be closed.
    killed: Vec<usize>,
    /// Slots of connections that got messages.
    pushed: Vec<usize>,
    /// Slots of connections whose waits have ended.
    unblocked: Vec<usize>,
    /// Memory of all connections, as of the end of their last rounds.
    memory_bytes: usize,
}

impl Clients {
    /// Takes in a connection and returns its slot.
    pub(crate) fn insert(&mut self, mut conn: Conn) -> usize {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        conn.session.slot = slot;
        self.slots[slot] = Some(Box::new(conn));
        slot
    }

    /// Takes a connection out, to be put back or removed.
    pub(crate) fn take(&mut self, slot: usize) -> Option<Box<Conn>> {
        self.slots.get_mut(slot)?.take()
    }

    pub(crate) fn put_back(&mut self, slot: usize, conn: Box<Conn>) {
        self.slots[slot] = Some(conn);
    }

    /// [`Clients::put_back`] at the end of a round, when the connection's memory may be another.
    pub(crate) fn put_back_and_count(&mut self, slot: usize, mut conn: Box<Conn>) {
        let memory = conn.memory_bytes();
        self.memory_bytes = self.memory_bytes + memory - std::mem::replace(&mut conn.counted_bytes, memory);
        self.put_back(slot, conn);
    }

    /// Drops a connection, which closes it, and makes the slot vacant that it was taken out of.
    pub(crate) fn vacate(&mut self, slot: usize, conn: Box<Conn>) {
        debug_assert!(self.slots[slot].is_none());
        self.memory_bytes -= conn.counted_bytes;
        self.vacant.push(slot);
    }

    /// How many slots there are, vacant ones included.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn get_mut(&mut self, slot: usize) -> Option<&mut Conn> {
        self.slots.get_mut(slot)?.as_deref_mut()
    }

    /// The connections that are in their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Conn> {
        self.slots.iter().flatten().map(|conn| &**conn)
    }

    /// The sessions of the connections that are in their slots.
    pub(crate) fn sessions_mut(&mut self) -> impl Iterator<Item = &mut Session> {
        self.slots.iter_mut().flatten().map(|conn| &mut conn.session)
    }

    /// Returns the slots of the connections that a pause keeps waiting, and lets them wait no longer.
    pub(crate) fn take_paused(&mut self) -> Vec<usize> {
        let conns = self.slots.iter_mut().enumerate().filter_map(|(slot, conn)| Some((slot, conn.as_mut()?)));
        conns.filter_map(|(slot, conn)| std::mem::take(&mut conn.paused).then_some(slot)).collect()
    }

    /// Memory of all connections, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// The slots of the connections that have the most memory, largest first: as few as leave the others at
    /// most `limit_bytes` together. Exempt connections are not among them.
    pub(crate) fn largest(&self, limit_bytes: u64) -> Vec<usize> {
        let mut sizes: Vec<_> = (0..self.slots.len())
            .filter_map(|slot| self.slots[slot].as_ref().map(|conn| (conn, slot)))
            .filter(|(conn, _)| !conn.session.no_evict && !conn.session.killed)
            .filter(|(conn, _)| conn.session.replica.is_none())
            .map(|(conn, slot)| (conn.counted_bytes as u64, slot))
            .collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let mut left = self.memory_bytes as u64;
        let needed = sizes.iter().take_while(|(bytes, _)| {
            let is_too_much = left > limit_bytes;
            left = left.saturating_sub(*bytes);
            is_too_much
        });
        needed.map(|(_, slot)| *slot).collect()
    }

    /// How many connections there are, those that are being served included.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// Marks the connections that `wanted` picks to be closed, and returns their number.
    pub(crate) fn kill(&mut self, mut wanted: impl FnMut(&Conn) -> bool) -> i64 {
        let before = self.killed.len();
        for (slot, conn) in self.slots.iter_mut().enumerate() {
            if let Some(conn) = conn.as_mut().filter(|conn| !conn.session.killed && wanted(conn)) {
                conn.session.killed = true;
                self.killed.push(slot);
            }
        }
        (self.killed.len() - before) as i64
    }

    /// Notes that a connection got a message, which is to be sent.
    pub(crate) fn note_pushed(&mut self, slot: usize) {
        if self.pushed.last() != Some(&slot) {
            self.pushed.push(slot);
        }
    }

    /// The connections that got messages since the last call, some of them several times.
    pub(crate) fn take_pushed(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.pushed)
    }

    /// Notes that a connection waits no longer for a key.
    pub(crate) fn note_unblocked(&mut self, slot: usize) {
        self.unblocked.push(slot);
    }

    /// The connections whose waits have ended since the last call.
    pub(crate) fn take_unblocked(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.unblocked)
    }

    /// The connections that were killed since the last call.
    pub(crate) fn take_killed(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.killed)
    }
}
