//! The commands that [`Broken`] does wrong, and the data before them.

use super::commands::Command;
use super::{Op, fault, fields, run};
use crate::keyspace::Keyspace;
use crate::keyspace::collection::broken::Broken;

#[derive(Clone, Copy, Debug)]
pub(super) struct Fault(pub(super) Broken);

const FIELDS: usize = 10;

fn hash(key: &str, fields: Vec<String>) -> Command {
    Command::Hset(key.to_owned(), fields.into_iter().map(|field| (field, "value".to_owned())).collect())
}

fn sorted(fields: Vec<String>) -> Command {
    Command::Zadd("z0".to_owned(), fields.into_iter().zip(0..).collect())
}

impl Fault {
    /// A large collection of each type, or of the one that is concerned.
    pub(super) fn start(self) -> Vec<Op> {
        let start = match self.0 {
            Broken::DeadlineListedLate | Broken::PackedInHalves => vec![],
            Broken::TokenLate | Broken::TokenNotTimed => vec![],
            Broken::CursorInHalves => {
                let set = |key: &str| Command::Set(key.to_owned(), "value".to_owned());
                vec![set("scanned:0"), set("scanned:1")]
            }
            Broken::SwappedInSteps => {
                vec![hash("h0", fields(FIELDS)), Command::Move("h0".to_owned(), 1)]
            }
            Broken::MemberCountedLate => vec![Command::Sadd("s0".to_owned(), fields(FIELDS))],
            Broken::OneSideOfSortedSet => vec![sorted(fields(FIELDS))],
            Broken::ListEndNotMoved => vec![Command::Push("l0".to_owned(), false, fields(FIELDS))],
            _ => vec![hash("h0", fields(FIELDS))],
        };
        start.into_iter().map(run).collect()
    }

    /// The same commands, done right.
    pub(super) fn commands(self) -> Vec<Command> {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let name = |name: &str| name.to_owned();
        match self.0 {
            Broken::DeadlineListedLate => {
                vec![Command::Set(name("t0"), name("value")), Command::Expire(name("t0"), 1 << 40)]
            }
            Broken::PackedInHalves => vec![hash("h1", names(&["a", "b"]))],
            Broken::FieldCountedLate => vec![hash("h0", names(&["new"]))],
            Broken::MemberCountedLate => vec![Command::Srem(name("s0"), vec![fields(FIELDS)[3].clone()])],
            Broken::OneSideOfSortedSet => {
                vec![Command::Zadd(name("z0"), vec![(fields(FIELDS)[3].clone(), 99)])]
            }
            Broken::ListEndNotMoved => vec![Command::Push(name("l0"), false, names(&["new"]))],
            Broken::HomeNotRecorded | Broken::ConstructionNotListed | Broken::ConstructionNotEnded => {
                vec![hash("h1", fields(FIELDS))]
            }
            Broken::FreedBeforeKey | Broken::DoomedLate | Broken::DoomForgotten => {
                vec![Command::Del(name("h0"))]
            }
            Broken::TokenLate | Broken::TokenNotTimed => vec![Command::Once(name("7"), 1 << 40)],
            Broken::CursorInHalves => vec![Command::Scan(1)],
            Broken::SwappedInSteps => vec![Command::Swapdb(1, 2)],
            Broken::MovedInHalves => vec![Command::Move(name("h0"), 1)],
        }
    }

    pub(super) fn commit(self, keys: &mut Keyspace<'_>) -> Result<(), String> {
        self.0.run(keys, &fields(FIELDS)).map_err(fault)
    }
}
