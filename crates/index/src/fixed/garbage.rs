//! What left the tree's volatile side and waits for the readers that may still look at it.

use super::node::{Node, Order};
use parking_lot::Mutex;
use tembo_pool::OpenGuard;

/// Things to drop later.
#[expect(dead_code, reason = "held until they can be dropped")]
pub(super) enum Waste {
    Node(Node),
    Order(Box<Order>),
    Last(Box<Option<u64>>),
}

impl From<Box<Order>> for Waste {
    fn from(order: Box<Order>) -> Waste {
        Waste::Order(order)
    }
}

impl From<Box<Option<u64>>> for Waste {
    fn from(last: Box<Option<u64>>) -> Waste {
        Waste::Last(last)
    }
}

/// This many are kept before the oldest are looked at.
const BATCH: usize = 64;

#[derive(Default)]
pub(super) struct Garbage {
    waste: Mutex<Vec<(u64, Waste)>>,
}

impl Garbage {
    /// Drops `waste`, which nobody can reach any more, as soon as no pin from before is left.
    pub(super) fn add(&self, claim: &OpenGuard, waste: Waste) {
        let epoch = claim.end_epoch();
        let mut list = self.waste.lock();
        list.push((epoch, waste));
        if list.len() >= BATCH {
            let oldest = claim.oldest_pin();
            list.retain(|(epoch, _)| *epoch >= oldest);
        }
    }
}
