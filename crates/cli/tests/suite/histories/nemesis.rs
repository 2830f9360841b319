//! Steps that disturb a shard: kills, restarts, pauses, partitions and elections, at random.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::keeper::Keeper;
use super::shard::{Links, Shard};
use crate::cluster_moves::PATIENCE;
use crate::proxy::State;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The master is killed, and a replica takes its place.
    Replace,
    /// The master is killed and comes back, so often in a row.
    KillMaster(usize),
    KillReplica,
    KillAll,
    /// The master is parted from all but one client, and a replica takes its place.
    Isolate(State),
    /// The master and a replica are parted; the replica takes its place, or not.
    Part(State, bool),
    /// The process of the master stands still while a replica takes its place.
    Pause,
    /// A replica takes the place of a master that is well.
    Switch,
}

pub(crate) struct Nemesis {
    random: Xoshiro256PlusPlus,
    pub(crate) shard: Shard,
    pub(crate) links: Arc<Links>,
    pub(crate) keeper: Keeper,
    /// The steps that were taken, in order.
    pub(crate) steps: Vec<Step>,
    pub(crate) kills: usize,
}

impl Nemesis {
    pub(crate) fn new(seed: u64, shard: Shard, links: Arc<Links>, keeper: Keeper) -> Nemesis {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Nemesis { random, shard, links, keeper, steps: Vec::new(), kills: 0 }
    }

    fn choose(&mut self) -> Step {
        let state = [State::Stalled, State::Closed][self.random.random_range(0..2)];
        match self.random.random_range(0..11) {
            0..2 => Step::Replace,
            2 => Step::KillMaster(1),
            3 => Step::KillMaster(2),
            4 => Step::KillReplica,
            5 => Step::KillAll,
            6..8 => Step::Isolate(state),
            8 => Step::Part(state, self.random.random()),
            9 => Step::Pause,
            _ => Step::Switch,
        }
    }

    fn dwell(&mut self, ms: u64) {
        std::thread::sleep(Duration::from_micros(self.random.random_range(0..ms * 1000)));
    }

    /// A node that is not the master.
    fn other(&mut self) -> usize {
        let nodes = self.shard.ports.len();
        (self.keeper.master() + self.random.random_range(1..nodes)) % nodes
    }

    fn kill(&mut self, node: usize) {
        self.shard.kill(node);
        self.kills += 1;
    }

    /// Does one step, and undoes what can be undone: all run then, and reach each other.
    pub(crate) fn step(&mut self) {
        let step = self.choose();
        self.steps.push(step);
        let (master, other) = (self.keeper.master(), self.other());
        match step {
            Step::Replace => {
                self.kill(master);
                self.dwell(200);
                self.keeper.elect(other);
                self.dwell(300);
            }
            Step::KillMaster(times) => {
                for _ in 0..times {
                    self.kill(master);
                    self.shard.restart(master);
                    self.dwell(60);
                }
            }
            Step::KillReplica => {
                self.kill(other);
                self.dwell(300);
            }
            Step::KillAll => (0..self.shard.ports.len()).for_each(|node| self.kill(node)),
            Step::Isolate(state) => {
                self.links.isolate(master, 0, state);
                self.dwell(300);
                self.keeper.elect(other);
                self.dwell(600);
            }
            Step::Part(state, elects) => {
                self.links.part([master, other], state);
                self.dwell(400);
                if elects {
                    self.keeper.elect(other);
                }
                self.dwell(200);
            }
            Step::Pause => {
                self.shard.signal(master, "-STOP");
                self.dwell(200);
                self.keeper.elect(other);
                self.dwell(200);
                self.shard.signal(master, "-CONT");
            }
            Step::Switch => self.keeper.elect(other),
        }
        self.links.heal();
        self.shard.restart_all();
    }

    /// Waits until something is so, which a shard that is well comes to.
    #[track_caller]
    pub(crate) fn wait_for(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < PATIENCE, "{what}, after {:?}", self.steps);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
