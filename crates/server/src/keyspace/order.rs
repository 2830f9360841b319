//! The order of the databases: which maps each has.

use super::format::{Malformed, Order};

/// Which maps the databases have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Places {
    /// The maps as the batch sees them.
    pub(super) now: Order,
    /// The maps as they are committed.
    pub(super) committed: Order,
    /// Whether the batch has changed the order.
    pub(super) is_changed: bool,
}

impl Places {
    pub(super) fn new(order: Order) -> Self {
        Places { now: order, committed: order, is_changed: false }
    }

    /// Exchanges the maps of two databases.
    pub(super) fn exchange(&mut self, a: usize, b: usize) {
        self.now.swap(a, b);
        self.is_changed = true;
    }

    /// Notes that the purposes of the maps change with the batch.
    pub(super) fn note_changed(&mut self) {
        self.is_changed = true;
    }

    pub(super) fn note_committed(&mut self) {
        (self.committed, self.is_changed) = (self.now, false);
    }
}

/// Reads the record of the order; without one, each database has the maps of its number.
pub(crate) fn read_order(value: Option<&[u8]>) -> Result<Order, Malformed> {
    value.map_or(Ok(Order::default()), Order::decode)
}
