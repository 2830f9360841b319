//! Operations by chance, such that no strong pointers make a circle, unless that is asked for.

use super::ops::{Base, Look, NewShape, Op, Place};
use super::{Id, LOOKS, Model, SLOTS};
use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

pub(crate) struct Random {
    pub rng: Xoshiro256PlusPlus,
    pub model: Model,
    pub next_id: Id,
    /// Whether strong pointers may make circles.
    pub circles: bool,
    /// Whether there are handles that a crash would take away.
    pub handles: bool,
    /// How long chains and arrays become.
    pub longest: usize,
}

impl Random {
    fn base(&mut self) -> Base {
        match self.rng.random_range(0..5) {
            0 => Base::Root,
            _ => Base::Nth { slot: self.rng.random_range(0..SLOTS), depth: self.rng.random_range(0..4) },
        }
    }

    fn place(&mut self) -> Place {
        match self.rng.random_range(0..8) {
            0..3 => Place::Slot(self.rng.random_range(0..SLOTS)),
            3 => Place::Next(self.base()),
            4 | 5 => Place::Other(self.base()),
            6 => Place::Element(self.base(), self.rng.random_range(0..4)),
            _ => Place::InShape(self.base()),
        }
    }

    fn look(&mut self) -> Look {
        match self.rng.random_range(0..5) {
            0 | 1 => Look::Root(self.rng.random_range(0..LOOKS)),
            2 => Look::Back(self.base()),
            3 => Look::Element(self.base(), self.rng.random_range(0..4)),
            _ => Look::InShape(self.base()),
        }
    }

    fn ids(&mut self, count: u64) -> Id {
        self.next_id += count;
        self.next_id - count
    }

    fn len(&mut self) -> usize {
        match self.rng.random_range(0..6) {
            0 => self.rng.random_range(1..=self.longest),
            _ => self.rng.random_range(1..6),
        }
    }

    /// An operation that can be part of a transaction.
    fn part(&mut self) -> Op {
        match self.rng.random_range(0..20) {
            0..3 => Op::New { at: self.place(), id: self.ids(1), push: self.rng.random() },
            3 | 4 => {
                let count = self.len() as u64;
                let at = Place::Slot(self.rng.random_range(0..SLOTS));
                Op::Chain { at, id: self.ids(count), count }
            }
            5 | 6 => Op::Link { at: self.place(), to: self.place() },
            7..9 => Op::Unlink { at: self.place() },
            9 | 10 => Op::Look { at: self.look(), to: self.place() },
            11 => Op::Unlook { at: self.look() },
            12 => Op::Follow { at: self.place(), look: self.look() },
            13 => {
                let len = self.len();
                Op::List { base: self.base(), id: self.ids(len as u64), len, fill: self.rng.random() }
            }
            14 => Op::ShareList { base: self.base(), from: self.base() },
            15 => Op::DropList { base: self.base() },
            16 => Op::Numbers { len: self.len() * 8, seed: self.rng.random() },
            17 | 18 => {
                let shape = match self.rng.random_range(0..5) {
                    0 => NewShape::Dot,
                    1 => NewShape::Link,
                    2 => NewShape::Look(self.rng.random()),
                    _ => {
                        let len = self.len();
                        NewShape::Both(len, self.ids(len as u64))
                    }
                };
                Op::Shape { base: self.base(), shape, to: self.place() }
            }
            _ => Op::Value { base: self.base(), value: self.rng.random() },
        }
    }

    fn parts(&mut self) -> Vec<Op> {
        (0..self.rng.random_range(1..5)).map(|_| self.part()).collect()
    }

    fn any(&mut self) -> Op {
        match self.rng.random_range(0..30) {
            0..4 => Op::Together(self.parts()),
            4 => Op::Aborted(self.parts(), self.rng.random()),
            5..8 => Op::Second(Box::new(self.part())),
            8 | 9 => Op::Detour { at: self.place(), to: self.place() },
            10 if self.rng.random_bool(0.3) => Op::Reopen,
            11 => Op::Collect,
            12..18 => self.with_handles(),
            _ => self.part(),
        }
    }

    fn with_handles(&mut self) -> Op {
        if self.handles {
            return match self.rng.random_range(0..6) {
                0..3 => Op::Hold { at: self.place() },
                3 | 4 => Op::LinkHeld { at: self.place(), handle: self.rng.random_range(0..4) },
                _ => Op::Release { handle: self.rng.random_range(0..4) },
            };
        }
        match self.rng.random_range(0..6) {
            0..3 => Op::Keep { at: self.place() },
            3 => Op::DropHandles,
            4 => Op::Bounce { id: self.ids(2) },
            _ => {
                let count = self.len() as u64;
                Op::Orphans { id: self.ids(2 * count), count }
            }
        }
    }

    /// The next operation.
    pub(crate) fn op(&mut self) -> Op {
        loop {
            let op = self.any();
            if self.circles || !makes_circle(self.model.clone(), &op) {
                self.model.apply(&op);
                return op;
            }
        }
    }
}

/// Whether strong pointers make a circle after an operation, or inside it: then they may have been all that
/// kept it.
fn makes_circle(mut model: Model, op: &Op) -> bool {
    if let Op::Together(parts) = op {
        return parts.iter().any(|part| {
            model.apply_part(part);
            model.has_circle()
        });
    }
    model.apply(op);
    model.has_circle()
}
