//! All connections, by slot. A connection that is being served is out of its slot, so that commands can look at
//! the others.

use crate::conn::Conn;

#[derive(Debug, Default)]
pub(crate) struct Clients {
    slots: Vec<Option<Box<Conn>>>,
    vacant: Vec<usize>,
    /// Slots of connections to be closed.
    killed: Vec<usize>,
}

impl Clients {
    /// Takes in a connection and returns its slot.
    pub(crate) fn insert(&mut self, conn: Conn) -> usize {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
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

    /// Makes a slot vacant that its connection was taken out of.
    pub(crate) fn vacate(&mut self, slot: usize) {
        debug_assert!(self.slots[slot].is_none());
        self.vacant.push(slot);
    }

    pub(crate) fn get_mut(&mut self, slot: usize) -> Option<&mut Conn> {
        self.slots.get_mut(slot)?.as_deref_mut()
    }

    /// The connections that are in their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Conn> {
        self.slots.iter().flatten().map(|conn| &**conn)
    }

    /// How many connections there are, those that are being served included.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// Marks the connections that `wanted` picks to be closed, and returns their number.
    pub(crate) fn kill(&mut self, wanted: impl Fn(&Conn) -> bool) -> i64 {
        let before = self.killed.len();
        for (slot, conn) in self.slots.iter_mut().enumerate() {
            if let Some(conn) = conn.as_mut().filter(|conn| !conn.session.killed && wanted(conn)) {
                conn.session.killed = true;
                self.killed.push(slot);
            }
        }
        (self.killed.len() - before) as i64
    }

    /// The connections that were killed since the last call.
    pub(crate) fn take_killed(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.killed)
    }
}
