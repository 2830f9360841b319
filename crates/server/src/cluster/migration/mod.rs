//! Slots move from this node to another one, with their keys, while clients go on.
//!
//! ```text
//!   mod       the records of both nodes and what changes them: no I/O, so that a model can exhaust them
//!   text      the records as text, for the pool and for replicas (media: keyspace/moves)
//!   copy      the keys of the slots as commands, some in each turn
//!   filter    the stream of effects, as far as it is about keys that were copied
//!   link      the connection of the source to the target, a thread
//!   mover     the source's part of a turn
//!   receiver  the target's part, and what both have in common: removal of keys, SYNC, restarts
//! ```
//!
//! # The way of a move
//!
//! ```text
//!   source                                    target
//!   COPYING   serves the slots                -          answers MOVED to the source
//!     IMPORT BEGIN id slots  ------------>    IMPORTING  has no keys of the slots before it says OK
//!     commands               ------------>               keys that nobody sees
//!   (draining) refuses writes: TRYAGAIN
//!     the rest, IMPORT READY ------------>               a replica has them too
//!   DOUBT     record; serves nothing: TRYAGAIN
//!   (a replica has the record, too)
//!     IMPORT COMMIT id       ------------>    DONE       record: serves the slots. **The commit point.**
//!   DONE      record: MOVED  <------------    (a replica has the record, too)
//!   removes its keys, in steps
//! ```
//!
//! The commands are the keys as they are, in the order of their places, and between them the effects of
//! clients' commands on keys that have been sent. Both are made at the end of a turn, between two commits, so
//! that they fit together without a point in time that is kept. Draining lasts 100 ms at most; then the
//! source returns to COPYING, and tries again.
//!
//! # Invariants
//!
//! - One of the two serves a slot, or neither: the source until its record says DOUBT, the target from the
//!   moment when its record says DONE. It can say that only after an IMPORT COMMIT, which the source sends
//!   after its own record is durable.
//! - A source in DOUBT decides nothing. It asks (IMPORT ASK), on a connection of its own, until the target
//!   answers. A target that answers "never" has given the import up, durably, and takes no COMMIT of that id
//!   any more.
//! - Keys are removed by the side that knows that the other one has all of them: by the source in DONE, by
//!   the target when it gives an import up.
//! - A slot is served only when no keys of another time are left in it: TRYAGAIN meanwhile.
//!
//! # Who owns what until the topology says it
//!
//! In DONE both nodes, and their replicas, keep the move in the list `handed`. It outranks the topology: the
//! source answers MOVED by itself, the target serves. A newer topology that gives the slots to the target's
//! shard ends that, and so does one that gives them to a third. One that still gives them to the source's
//! shard does not know of the move yet, and changes nothing. `SETNODES .. FORCE`, and `SETSLOT` of these
//! slots, are decisions and end it in any case.
//!
//! A source in DOUBT takes a newer topology for the answer if it gives the slots to the target's shard or to
//! a third, if the target is of the source's shard in it, or if it is a decision as above. Where the topology
//! decided, and not the target, no keys are removed: they may be the only ones. A topology that lacks the
//! target, or in which it has failed, decides nothing: it may have said DONE, and come back. While a topology
//! lacks a target that has the slots, no node serves them.
//!
//! # Recovery
//!
//! A source that restarts in COPYING has failed, one in DOUBT asks. A target that restarts in IMPORTING gives
//! up: it removes the keys that came, before it takes part in anything with these slots. A replica has the
//! records of its master, by the stream and by the file of a whole copy, and when it becomes a master it
//! does the same, but that it asks in COPYING, too: the source may have come further than it was told. The
//! target then knows the id of what it denied, and begins no import of it.
//!
//! A target to which a topology gives the slots while they come has them, with the keys that are there.
//!
//! The records are one entry of "db.cluster", which is written as a whole: see `keyspace/moves`.

pub(crate) mod copy;
#[cfg(test)]
mod copy_tests;
pub(crate) mod filter;
pub(crate) mod link;
#[cfg(test)]
mod model_tests;
pub(crate) mod mover;
pub(crate) mod moving;
pub(crate) mod receiver;
#[cfg(test)]
mod tests;
pub(crate) mod text;

use super::ranges::Ranges;
use super::topology::{NodeId, Topology};
use crate::fault::Fault;
use crate::keyspace::history::Id;

const TRY_AGAIN_LINE: &str = "TRYAGAIN The slot is being moved to another node; try again";
pub(crate) const TRY_AGAIN: Fault = Fault::Error(TRY_AGAIN_LINE);
/// The most moves that the topology does not know yet.
const HANDED_MAX: usize = 256;

/// Whether a command is to be tried again.
pub(crate) fn is_try_again(fault: &Fault) -> bool {
    matches!(fault, Fault::Error(line) if *line == TRY_AGAIN_LINE)
}

/// Slots on their way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Move {
    pub(crate) id: Id,
    pub(crate) slots: Ranges,
    pub(crate) source: NodeId,
    pub(crate) target: NodeId,
}

/// How far the source is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sending {
    Copying,
    Doubt,
    /// The slots stayed here, for a reason.
    Failed(String),
    Done,
}

/// How far the target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Importing {
    Receiving,
    Failed,
    Done,
}

/// The answer of a target to a source in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Verdict {
    /// The target has the slots.
    Handed,
    /// The target does not have the slots, and will never get them by this move.
    Never,
    /// The target knows a newer topology, and does not have the slots: that topology decides.
    Newer,
}

/// The slots about which a new topology decides, whatever move was under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decided {
    Nothing,
    Slots(Ranges),
    Everything,
}

impl Decided {
    fn has(&self, slot: u16) -> bool {
        match self {
            Decided::Nothing => false,
            Decided::Slots(slots) => slots.contains(slot),
            Decided::Everything => true,
        }
    }
}

/// The records of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Moves {
    /// The latest move from here.
    pub(crate) outgoing: Option<(Move, Sending)>,
    /// The latest move to here.
    pub(crate) incoming: Option<(Move, Importing)>,
    /// Moves that are done, and that the topology does not know.
    pub(crate) handed: Vec<Move>,
    /// Slots whose keys are to be removed here.
    pub(crate) removing: Ranges,
}

/// The place of the master of a node's shard, if the topology has the node.
fn shard(topology: &Topology, id: &NodeId) -> Option<usize> {
    let place = topology.find(id)?;
    Some(topology.nodes[place].master.unwrap_or(place))
}

impl Moves {
    /// The move from here that is under way.
    pub(crate) fn sending(&self) -> Option<(&Move, bool)> {
        match &self.outgoing {
            Some((moving, Sending::Copying)) => Some((moving, false)),
            Some((moving, Sending::Doubt)) => Some((moving, true)),
            _ => None,
        }
    }

    /// The move to here that is under way.
    pub(crate) fn importing(&self) -> Option<&Move> {
        let incoming = self.incoming.as_ref();
        incoming.filter(|(_, stage)| *stage == Importing::Receiving).map(|(moving, _)| moving)
    }

    /// Whether one more move can be remembered, when those under way are done.
    pub(crate) fn has_room(&self) -> bool {
        let under_way = usize::from(self.sending().is_some()) + usize::from(self.importing().is_some());
        self.handed.len() + under_way < HANDED_MAX
    }

    /// Whether this node said that it will never have the slots by a move.
    pub(crate) fn has_denied(&self, id: &Id) -> bool {
        matches!(&self.incoming, Some((moving, Importing::Failed)) if moving.id == *id)
    }

    /// The owner of a slot, of which the topology may not know yet; none if the topology lacks it.
    pub(crate) fn owner(&self, topology: &Topology, slot: u16) -> Option<usize> {
        match self.handed.iter().rev().find(|moving| moving.slots.contains(slot)) {
            Some(moving) => shard(topology, &moving.target),
            None => topology.owner(slot),
        }
    }

    /// The source begins a move. No other move from this node is under way.
    pub(crate) fn begin(&mut self, moving: Move) {
        self.outgoing = Some((moving, Sending::Copying));
    }

    /// The source lets the target decide. Serves nothing from now on.
    pub(crate) fn prepare(&mut self) {
        if let Some((_, stage @ Sending::Copying)) = &mut self.outgoing {
            *stage = Sending::Doubt;
        }
    }

    /// The source gives up; only before the target may decide.
    pub(crate) fn fail(&mut self, why: &str) {
        if let Some((_, stage @ Sending::Copying)) = &mut self.outgoing {
            *stage = Sending::Failed(why.to_owned());
        }
    }

    /// The source, in doubt, knows from the target what became of the slots.
    pub(crate) fn decide(&mut self, is_handed: bool) {
        let Some((moving, stage @ Sending::Doubt)) = &mut self.outgoing else { return };
        if is_handed {
            *stage = Sending::Done;
            let moving = moving.clone();
            self.removing.add(&moving.slots);
            self.hand(moving);
        } else {
            *stage = Sending::Failed("the target gave up".to_owned());
        }
    }

    fn hand(&mut self, moving: Move) {
        // A move back ends the earlier move.
        self.handed.iter_mut().for_each(|before| before.slots.subtract(&moving.slots));
        self.handed.retain(|before| !before.slots.is_empty());
        self.handed.push(moving);
    }

    /// The target begins. It has no keys of the slots, and no other move to here is under way.
    pub(crate) fn import(&mut self, moving: Move) {
        self.incoming = Some((moving, Importing::Receiving));
    }

    /// The target takes the slots. Returns whether this move has brought them here.
    pub(crate) fn accept(&mut self, id: &Id) -> bool {
        match &mut self.incoming {
            Some((moving, stage @ Importing::Receiving)) if moving.id == *id => {
                *stage = Importing::Done;
                let moving = moving.clone();
                self.hand(moving);
                true
            }
            Some((moving, Importing::Done)) => moving.id == *id,
            _ => false,
        }
    }

    /// The target gives up: the keys that came are removed.
    pub(crate) fn give_up(&mut self) {
        if let Some((moving, stage @ Importing::Receiving)) = &mut self.incoming {
            *stage = Importing::Failed;
            let slots = moving.slots.clone();
            self.removing.add(&slots);
        }
    }

    /// The target answers a source in doubt, whose topology has a version. The records are durable before the
    /// answer is sent.
    pub(crate) fn answer(&mut self, asked: &Move, version: u64, own: (&Topology, NodeId)) -> Verdict {
        if self.importing().is_some_and(|moving| moving.id == asked.id) {
            self.give_up();
        }
        let (topology, myself) = own;
        let is_handed = self.handed.iter().any(|moving| moving.id == asked.id)
            || matches!(&self.incoming, Some((moving, Importing::Done)) if moving.id == asked.id
                && asked.slots.slots().all(|slot| self.owner(topology, slot) == shard(topology, &myself)));
        match is_handed {
            true => Verdict::Handed,
            false if topology.version > version => Verdict::Newer,
            false => {
                // The import does not begin after this answer.
                if self.incoming.as_ref().is_none_or(|(_, stage)| *stage == Importing::Failed) {
                    self.incoming = Some((asked.clone(), Importing::Failed));
                }
                Verdict::Never
            }
        }
    }

    /// A node begins as a master, with the records of a run before, or of its master.
    ///
    /// Only the source itself knows that it sent no COMMIT when its record says COPYING. A replica that takes
    /// its place may have an older record than it had, and asks.
    pub(crate) fn restart(&mut self, myself: Option<NodeId>) {
        match &self.outgoing {
            Some((moving, _)) if myself == Some(moving.source) => self.fail("the source was restarted"),
            _ => self.prepare(),
        }
        self.give_up();
    }

    /// The keys of these slots are removed.
    pub(crate) fn note_removed(&mut self, slots: &Ranges) {
        self.removing.subtract(slots);
    }

    /// A new topology.
    pub(crate) fn adopt(&mut self, topology: &Topology, decided: &Decided) {
        self.handed.iter_mut().for_each(|moving| {
            let (from, to) = (shard(topology, &moving.source), shard(topology, &moving.target));
            let is_unknown = |slot| {
                let owner = topology.owner(slot);
                !decided.has(slot) && owner != to && owner.is_some() && owner == from
            };
            moving.slots.retain(is_unknown);
        });
        self.handed.retain(|moving| !moving.slots.is_empty());
        self.adopt_outgoing(topology, decided);
        if let Some(moving) = self.importing() {
            let to = shard(topology, &moving.target);
            if to.is_some() && moving.slots.slots().all(|slot| topology.owner(slot) == to) {
                // No more keys will come.
                if let Some((_, stage)) = &mut self.incoming {
                    *stage = Importing::Done;
                }
                return;
            }
        }
        if let Some(moving) = self.importing() {
            let from = shard(topology, &moving.source);
            let stays = |slot| from.is_some() && topology.owner(slot) == from && !decided.has(slot);
            if !moving.slots.slots().all(stays) {
                self.give_up();
            }
        }
    }

    fn adopt_outgoing(&mut self, topology: &Topology, decided: &Decided) {
        let Some((moving, is_doubtful)) = self.sending() else { return };
        let (from, to) = (shard(topology, &moving.source), shard(topology, &moving.target));
        let is_here = |slot| from.is_some() && topology.owner(slot) == from;
        let stays = moving.slots.slots().all(|slot| is_here(slot) && !decided.has(slot));
        let has_failed = to.is_none_or(|to| topology.nodes[to].has_failed());
        let is_handed = to.is_some() && moving.slots.slots().all(|slot| topology.owner(slot) == to);
        // A target in doubt may come back, with the slots, however long it was away.
        if stays && (is_doubtful || !has_failed) && to != from {
            return;
        }
        let Some((_, stage)) = &mut self.outgoing else { return };
        *stage = match is_doubtful && is_handed {
            true => Sending::Done,
            false => Sending::Failed("a new topology decided".to_owned()),
        };
    }
}
