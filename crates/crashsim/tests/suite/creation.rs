//! Creation, allocation and recovery that frees: the classic leaks and double frees, and creation cut short.

use tembo_crashsim::{Audit, Failure, FailureKind, Report, Scenario, Simulation};
use tembo_pmem::Region;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Right,
    MagicFirst,
    MagicWithContents,
    LeaksOnACrash,
    LinksBeforeAllocated,
    FreesTwiceInRecovery,
}

/// A stack of blocks: a bitmap of allocated blocks, a head, and an intent that recovery finishes.
struct Stack {
    way: Way,
}

#[derive(Debug, Clone, Copy)]
enum Op {
    Push(u64),
    Pop,
}

const OPS: [Op; 6] = [Op::Push(5), Op::Push(0), Op::Pop, Op::Push(9), Op::Pop, Op::Pop];

const MAGIC_VALUE: u64 = 0x7374_6163_6b00_0001;
const MAGIC: u64 = 0;
const HEAD: u64 = 64;
const USED: u64 = 128;
/// The change under way: 0 for none, else the block whose bit has to agree with whether it is linked.
const INTENT: u64 = 192;
/// How many blocks are in use, which recovery keeps.
const USED_COUNT: u64 = 256;
const BLOCKS: u64 = 8;

fn block(idx: u64) -> u64 {
    1024 + idx * 64
}

impl Stack {
    fn create(&self, region: &Region) -> Outcome<()> {
        let store_magic = || region.store_u64(MAGIC, MAGIC_VALUE);
        if self.way == Way::MagicFirst {
            store_magic()?;
            region.persist(MAGIC, 8)?;
        }
        // The first block is the bottom of the stack, so that contents of zeros are no stack.
        region.store_u64(USED, 1)?;
        region.flush(USED, 8);
        region.store_u64(USED_COUNT, 1)?;
        region.flush(USED_COUNT, 8);
        region.store_u64(HEAD, block(0))?;
        region.flush(HEAD, 8);
        if self.way == Way::MagicWithContents {
            store_magic()?;
            region.persist(MAGIC, 8)?;
            return Ok(());
        }
        region.fence()?;
        if self.way != Way::MagicFirst {
            store_magic()?;
            region.persist(MAGIC, 8)?;
        }
        Ok(())
    }

    fn set_used(&self, region: &Region, idx: u64, used: bool) -> Outcome<()> {
        let old = region.load_u64(USED)?;
        let now = if used { old | 1 << idx } else { old & !(1 << idx) };
        region.store_u64(USED, now)?;
        let count = region.load_u64(USED_COUNT)?;
        if self.way == Way::FreesTwiceInRecovery {
            // As a free does that trusts its caller: the count goes down whatever the bit was.
            region.store_u64(USED_COUNT, if used { count + 1 } else { count - 1 })?;
        } else {
            region.store_u64(USED_COUNT, u64::from(now.count_ones()))?;
        }
        region.flush(USED, 8);
        region.flush(USED_COUNT, 8);
        Ok(())
    }

    fn persist_word(&self, region: &Region, off: u64, value: u64) -> Outcome<()> {
        region.store_u64(off, value)?;
        Ok(region.persist(off, 8)?)
    }

    fn perform(&self, region: &Region, op: Op) -> Outcome<()> {
        let head = region.load_u64(HEAD)?;
        match op {
            Op::Push(value) => {
                let free = u64::from(region.load_u64(USED)?.trailing_ones());
                region.store_u64(block(free), value)?;
                region.store_u64(block(free) + 8, head)?;
                region.flush(block(free), 16);
                if self.way != Way::LeaksOnACrash {
                    region.store_u64(INTENT, free)?;
                    region.flush(INTENT, 8);
                }
                region.fence()?;
                if self.way == Way::LinksBeforeAllocated {
                    self.persist_word(region, HEAD, block(free))?;
                    self.persist_word(region, INTENT, 0)?;
                    self.set_used(region, free, true)?;
                    region.fence()?;
                    return Ok(());
                }
                self.set_used(region, free, true)?;
                region.fence()?;
                self.persist_word(region, HEAD, block(free))?;
            }
            Op::Pop => {
                let idx = (head - block(0)) / 64;
                if self.way != Way::LeaksOnACrash {
                    self.persist_word(region, INTENT, idx)?;
                }
                self.persist_word(region, HEAD, region.load_u64(head + 8)?)?;
                self.set_used(region, idx, false)?;
                region.fence()?;
            }
        }
        if self.way != Way::LeaksOnACrash {
            self.persist_word(region, INTENT, 0)?;
        }
        Ok(())
    }

    fn finish_intent(&self, region: &Region) -> Outcome<()> {
        if region.load_u64(MAGIC)? != MAGIC_VALUE {
            return Err("no stack".into());
        }
        let idx = region.load_u64(INTENT)?;
        if idx != 0 {
            let linked = self.blocks(region)?.contains(&block(idx));
            let used = region.load_u64(USED)? >> idx & 1 == 1;
            if self.way != Way::FreesTwiceInRecovery || !linked || !used {
                self.set_used(region, idx, linked)?;
            }
            region.fence()?;
            self.persist_word(region, INTENT, 0)?;
        }
        Ok(())
    }

    /// The linked blocks from the top, with the bottom.
    fn blocks(&self, region: &Region) -> Outcome<Vec<u64>> {
        let mut blocks = vec![region.load_u64(HEAD)?];
        while let Some(&last) = blocks.last().filter(|b| **b != block(0)) {
            if blocks.len() as u64 > BLOCKS {
                return Err("the stack is a ring".into());
            }
            blocks.push(region.load_u64(last + 8)?);
        }
        Ok(blocks)
    }
}

impl Scenario for Stack {
    type State = Region;
    type Op = Op;
    type Model = Vec<u64>;

    fn name(&self) -> String {
        format!("stack, {:?}", self.way)
    }

    fn region_bytes(&self) -> u64 {
        4096
    }

    fn setup(&self, region: Region) -> Result<Region, String> {
        self.create(&region).map_err(|e| e.to_string())?;
        Ok(region)
    }

    fn is_uncreated(&self, region: &Region) -> bool {
        region.load_u64(MAGIC) != Ok(MAGIC_VALUE)
    }

    fn recover(&self, region: Region) -> Result<Region, String> {
        self.finish_intent(&region).map_err(|e| e.to_string())?;
        Ok(region)
    }

    fn region<'s>(&self, state: &'s Region) -> &'s Region {
        state
    }

    fn ops(&self) -> &[Op] {
        &OPS
    }

    fn continuation(&self) -> &[Op] {
        &[Op::Push(77), Op::Pop]
    }

    fn apply(&self, region: &mut Region, op: &Op) -> Result<(), String> {
        self.perform(region, *op).map_err(|e| e.to_string())
    }

    fn initial(&self) -> Vec<u64> {
        Vec::new()
    }

    fn apply_model(&self, stack: &mut Vec<u64>, op: &Op) {
        match op {
            Op::Push(value) => stack.push(*value),
            Op::Pop => drop(stack.pop()),
        }
    }

    fn observe(&self, region: &Region) -> Result<Vec<u64>, String> {
        let blocks = self.blocks(region).map_err(|e| e.to_string())?;
        let values = blocks.iter().rev().skip(1);
        values.map(|b| region.load_u64(*b).map_err(|e| e.to_string())).collect()
    }

    fn check(&self, region: &Region) -> Result<(), String> {
        let linked = self.blocks(region).map_err(|e| e.to_string())?;
        let reachable = linked.iter().fold(0, |bits, b| bits | 1_u64 << ((b - block(0)) / 64));
        let used = region.load_u64(USED).map_err(|e| e.to_string())?;
        let count = region.load_u64(USED_COUNT).map_err(|e| e.to_string())?;
        if used != reachable {
            return Err(format!("allocated {used:#b}, reachable {reachable:#b}"));
        }
        if count != u64::from(used.count_ones()) {
            return Err(format!("{count} blocks counted, {used:#b} allocated"));
        }
        Ok(())
    }
}

fn run(way: Way) -> Result<Report, Box<Failure>> {
    Simulation::new(&Stack { way }).audit(Audit::off()).crash_setup(true).nested_percent(100).run()
}

#[test]
fn the_right_stack_survives_crashes_in_creation_too() {
    let report = run(Way::Right).unwrap();
    assert!(report.images > 100, "{report}");
    let after_a_second = report.nested_images;
    assert!(after_a_second > 40, "{report}");
}

#[test]
fn every_wrong_stack_is_found() {
    for way in [
        Way::MagicFirst,
        Way::MagicWithContents,
        Way::LeaksOnACrash,
        Way::LinksBeforeAllocated,
        Way::FreesTwiceInRecovery,
    ] {
        let failure = run(way).expect_err(&format!("{way:?} was not noticed"));
        assert_eq!(failure.kind(), FailureKind::Crash, "{failure}");
        let in_creation = matches!(way, Way::MagicFirst | Way::MagicWithContents);
        assert_eq!(failure.to_string().contains("during creation"), in_creation, "{failure}");
    }
}

#[test]
fn creation_is_not_crashed_unless_asked() {
    Simulation::new(&Stack { way: Way::MagicFirst }).audit(Audit::off()).run().unwrap();
}
