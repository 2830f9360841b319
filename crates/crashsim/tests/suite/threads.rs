//! Several threads: a fence covers only its own thread's flushes, and what was read must be durable.

use std::sync::{Mutex, PoisonError};
use tembo_crashsim::{Audit, Failure, FailureKind, Mutation, Report, Scenario, SharedScenario, Simulation};
use tembo_pmem::Region;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Right,
    /// Readers need not wait for the writer's fence.
    VisibleBeforeDurable,
    /// Every other writer leaves the fence to whoever comes next.
    FenceLeftToOthers,
    /// A writer changes two cells and does not lock out the others' fences; only the second is a commit.
    TwoCellsWithoutOrder,
}

/// Cells, each written by one thread and read by any. Neighbours share lines.
struct Cells {
    way: Way,
    ops: Vec<Op>,
}

#[derive(Debug, Clone, Copy)]
enum Op {
    /// Writes the operation's own number, plus one, to a cell of the thread.
    Put {
        thread: usize,
        cell: usize,
    },
    Get {
        thread: usize,
        cell: usize,
    },
}

const CELLS: usize = 4;

struct Open {
    region: Region,
    lock: Mutex<u64>,
}

impl Cells {
    fn new(way: Way) -> Cells {
        let mut ops = Vec::new();
        for round in 0..3 {
            for thread in 0..2 {
                ops.push(Op::Put { thread, cell: thread + 2 * (round % 2) });
            }
            ops.extend((0..CELLS).map(|cell| Op::Get { thread: 2, cell }));
        }
        Cells { way, ops }
    }

    fn put(&self, open: &Open, cell: usize, value: u64) -> Result<(), Box<dyn std::error::Error>> {
        let off = 8 * cell as u64;
        let mut puts = open.lock.lock().unwrap_or_else(PoisonError::into_inner);
        *puts += 1;
        if self.way == Way::TwoCellsWithoutOrder {
            open.region.store_u64(256 + 64 * cell as u64, value)?;
            open.region.flush(256 + 64 * cell as u64, 8);
        }
        open.region.store_u64(off, value)?;
        open.region.flush(off, 8);
        let fences = self.way != Way::FenceLeftToOthers || puts.is_multiple_of(2);
        if self.way == Way::VisibleBeforeDurable {
            drop(puts);
        }
        if fences {
            open.region.fence()?;
        }
        Ok(())
    }
}

impl Scenario for Cells {
    type State = Open;
    type Op = Op;
    type Model = Vec<u64>;

    fn name(&self) -> String {
        format!("cells, {:?}", self.way)
    }

    fn region_bytes(&self) -> u64 {
        4096
    }

    fn setup(&self, region: Region) -> Result<Open, String> {
        Ok(Open { region, lock: Mutex::new(0) })
    }

    fn recover(&self, region: Region) -> Result<Open, String> {
        self.setup(region)
    }

    fn region<'s>(&self, open: &'s Open) -> &'s Region {
        &open.region
    }

    fn ops(&self) -> &[Op] {
        &self.ops
    }

    fn apply(&self, open: &mut Open, op: &Op) -> Result<(), String> {
        self.apply_shared(open, op).map(drop)
    }

    fn initial(&self) -> Vec<u64> {
        vec![0; CELLS]
    }

    fn apply_model(&self, cells: &mut Vec<u64>, op: &Op) {
        if let Op::Put { cell, .. } = *op {
            cells[cell] = self.number(op);
        }
    }

    fn observe(&self, open: &Open) -> Result<Vec<u64>, String> {
        (0..CELLS as u64).map(|i| open.region.load_u64(8 * i).map_err(|e| e.to_string())).collect()
    }

    fn check(&self, open: &Open) -> Result<(), String> {
        for cell in 0..CELLS as u64 {
            let load = |off| open.region.load_u64(off).map_err(|e| e.to_string());
            let (data, commit) = (load(256 + 64 * cell)?, load(8 * cell)?);
            if self.way == Way::TwoCellsWithoutOrder && data < commit {
                return Err(format!("cell {cell} has {commit} without its data"));
            }
        }
        Ok(())
    }
}

impl Cells {
    /// The place of an operation in the list, from 1.
    fn number(&self, op: &Op) -> u64 {
        self.ops.iter().position(|o| std::ptr::eq(o, op)).map_or(0, |i| i as u64 + 1)
    }
}

impl SharedScenario for Cells {
    fn thread_of(&self, op: &Op) -> usize {
        match *op {
            Op::Put { thread, .. } | Op::Get { thread, .. } => thread,
        }
    }

    fn apply_shared(&self, open: &Open, op: &Op) -> Result<Vec<usize>, String> {
        match *op {
            Op::Put { cell, .. } => {
                self.put(open, cell, self.number(op)).map_err(|e| e.to_string())?;
                Ok(Vec::new())
            }
            Op::Get { cell, .. } => {
                let _writers_are_out = open.lock.lock().unwrap_or_else(PoisonError::into_inner);
                let found = open.region.load_u64(8 * cell as u64).map_err(|e| e.to_string())?;
                Ok(found.checked_sub(1).map(|i| i as usize).into_iter().collect())
            }
        }
    }
}

/// Runs seeds until one fails.
fn first_failure(way: Way) -> Option<Box<Failure>> {
    (0..20).find_map(|seed| run(way, seed).err())
}

fn run(way: Way, seed: u64) -> Result<Report, Box<Failure>> {
    Simulation::new(&Cells::new(way)).audit(Audit::off()).seed(seed).run_shared()
}

#[test]
fn the_right_way_survives_interleavings() {
    for seed in 0..5 {
        let cells = Cells::new(Way::Right);
        let audit = Audit::strict().allow_idle_flush(true);
        let report = Simulation::new(&cells).audit(audit).seed(seed).run_shared().unwrap();
        assert!(report.images > 20, "{report}");
    }
}

#[test]
fn what_was_read_must_be_durable() {
    let failure = first_failure(Way::VisibleBeforeDurable).expect("not noticed");
    assert_eq!(failure.kind(), FailureKind::Crash, "{failure}");
}

#[test]
fn a_fence_by_another_thread_covers_nothing() {
    let failure = first_failure(Way::FenceLeftToOthers).expect("not noticed");
    assert_eq!(failure.kind(), FailureKind::Crash, "{failure}");
}

#[test]
fn data_and_commit_of_one_fence_are_torn_apart() {
    let failure = first_failure(Way::TwoCellsWithoutOrder).expect("not noticed");
    assert!(failure.verdict().contains("without its data"), "{failure}");
}

#[test]
fn bugs_seeded_into_an_interleaving_are_caught() {
    let cells = Cells::new(Way::Right);
    let wanted = [Mutation::DropFlush, Mutation::ShiftFlush, Mutation::DropFence, Mutation::ForeignFence];
    let report = Simulation::new(&cells).audit(Audit::off()).mutants_shared(&wanted).unwrap();
    report.assert_all_caught(&wanted);
}

/// Threads that set their own bits of one word, without a lock.
struct Bits {
    ops: Vec<u64>,
}

impl Scenario for Bits {
    type State = Region;
    type Op = u64;
    type Model = u64;

    fn name(&self) -> String {
        "bits".to_owned()
    }

    fn region_bytes(&self) -> u64 {
        4096
    }

    fn setup(&self, region: Region) -> Result<Region, String> {
        Ok(region)
    }

    fn recover(&self, region: Region) -> Result<Region, String> {
        Ok(region)
    }

    fn region<'s>(&self, region: &'s Region) -> &'s Region {
        region
    }

    fn ops(&self) -> &[u64] {
        &self.ops
    }

    fn apply(&self, region: &mut Region, op: &u64) -> Result<(), String> {
        self.apply_shared(region, op).map(drop)
    }

    fn initial(&self) -> u64 {
        0
    }

    fn apply_model(&self, bits: &mut u64, op: &u64) {
        *bits |= 1 << op;
    }

    fn observe(&self, region: &Region) -> Result<u64, String> {
        region.load_u64(0).map_err(|e| e.to_string())
    }

    fn check(&self, _: &Region) -> Result<(), String> {
        Ok(())
    }
}

impl SharedScenario for Bits {
    fn thread_of(&self, op: &u64) -> usize {
        (op % 3) as usize
    }

    fn apply_shared(&self, region: &Region, op: &u64) -> Result<Vec<usize>, String> {
        region.change_bits(0, 1 << op, true, false).map_err(|e| e.to_string())?;
        region.persist(0, 8).map_err(|e| e.to_string())?;
        Ok(Vec::new())
    }
}

#[test]
fn updates_of_a_word_that_threads_share_are_recorded_as_they_happen() {
    let bits = Bits { ops: (0..24).collect() };
    for seed in 0..20 {
        Simulation::new(&bits).audit(Audit::off()).seed(seed).run_shared().unwrap();
    }
}
