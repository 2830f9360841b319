//! The shared parts of all trees' crash tests: trees in a pool, and the script of a scenario.

pub(crate) mod nodes;

use tembo_crashsim::{Failure, Report};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Marks, Pool};

/// The message of an error.
pub(crate) fn text(e: impl ToString) -> String {
    e.to_string()
}

/// Prints what a simulation did, or fails with its story.
pub(crate) fn survived(outcome: Result<Report, Box<Failure>>) {
    println!("{}", outcome.unwrap_or_else(|failure| panic!("{failure}")));
}

/// Open trees, alone in a pool.
pub(crate) trait InPool: Sized {
    /// Opens the trees of a pool, or makes them.
    fn open(pool: Pool) -> Result<Self, String>;

    fn pool(&self) -> &Pool;

    /// Proves what the trees promise, and marks their blocks.
    fn check(&self, marks: &mut Marks) -> Result<(), String>;

    /// In a new pool.
    fn create_in(region: Region) -> Result<Self, String> {
        Self::open(Pool::create_in(region, &Geometry::tiny()).map_err(text)?)
    }

    /// After a crash.
    fn recover_in(region: Region) -> Result<Self, String> {
        Self::open(Pool::open_in(region).map_err(text)?)
    }

    /// Every promise, and that no block is lost.
    fn check_all(&self) -> Result<(), String> {
        let mut marks = self.pool().marks().map_err(text)?;
        self.check(&mut marks)?;
        marks.finish().map(drop).map_err(text)
    }
}

/// The operations of a scenario.
pub(crate) struct Script<Op> {
    pub(crate) name: String,
    pub(crate) ops: Vec<Op>,
    /// The operations on a recovered tree.
    pub(crate) continuation: Vec<Op>,
    /// The size of the region.
    pub(crate) bytes: u64,
}

impl<Op> Script<Op> {
    /// In a region of the usual size.
    pub(crate) fn new(name: impl Into<String>, ops: Vec<Op>, continuation: Vec<Op>) -> Script<Op> {
        Script { name: name.into(), ops, continuation, bytes: 256 << 10 }
    }
}

/// The methods that are the same in every `Scenario` whose state is [`InPool`], and which has a field
/// `script`.
macro_rules! scripted_in_a_pool {
    () => {
        fn name(&self) -> String {
            self.script.name.clone()
        }

        fn region_bytes(&self) -> u64 {
            self.script.bytes
        }

        fn is_uncreated(&self, region: &Region) -> bool {
            region.load_u64(0) == Ok(0)
        }

        fn recover(&self, region: Region) -> Result<Self::State, String> {
            Self::State::recover_in(region)
        }

        fn region<'s>(&self, state: &'s Self::State) -> &'s Region {
            state.pool().region()
        }

        fn ops(&self) -> &[Self::Op] {
            &self.script.ops
        }

        fn continuation(&self) -> &[Self::Op] {
            &self.script.continuation
        }

        fn check(&self, state: &Self::State) -> Result<(), String> {
            state.check_all()
        }
    };
}
pub(crate) use scripted_in_a_pool;
