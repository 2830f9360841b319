//! Many rounds with new seeds, on a region of the size that pools are tested with. `CRASHSIM_IMAGES` makes
//! it a long one.

use tembo_crashsim::{Audit, Scenario, Simulation, campaign, wanted_images};
use tembo_pmem::Region;

/// A table of values of five words, each guarded by a sum, in two copies of which one counts.
struct Table {
    ops: Vec<Op>,
}

#[derive(Debug, Clone, Copy)]
struct Op {
    row: u64,
    value: u64,
}

const ROWS: u64 = 64;
const WORDS: u64 = 20;

impl Table {
    /// Rows and values that follow from the seed.
    fn new(seed: u64) -> Table {
        let step = |i: u64| seed.wrapping_add(i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        Table { ops: (0..6).map(|i| Op { row: step(2 * i) % ROWS, value: step(2 * i + 1) }).collect() }
    }
}

/// The word that says which copy of a row counts.
fn selector(row: u64) -> u64 {
    row * 8
}

fn copy(row: u64, which: u64) -> u64 {
    4096 + (2 * row + which) * 1024
}

impl Scenario for Table {
    type State = Region;
    type Op = Op;
    type Model = Vec<u64>;

    fn name(&self) -> String {
        "table".to_owned()
    }

    fn setup(&self, region: Region) -> Result<Region, String> {
        Ok(region)
    }

    fn recover(&self, region: Region) -> Result<Region, String> {
        Ok(region)
    }

    fn region<'s>(&self, state: &'s Region) -> &'s Region {
        state
    }

    fn ops(&self) -> &[Op] {
        &self.ops
    }

    fn apply(&self, region: &mut Region, op: &Op) -> Result<(), String> {
        let set = || -> Result<(), Box<dyn std::error::Error>> {
            let which = 1 - region.load_u64(selector(op.row))?;
            let at = copy(op.row, which);
            for i in 0..WORDS {
                region.store_u64(at + 8 * i, op.value ^ i)?;
            }
            region.persist(at, 8 * WORDS)?;
            region.store_u64(selector(op.row), which)?;
            Ok(region.persist(selector(op.row), 8)?)
        };
        set().map_err(|e| e.to_string())
    }

    fn initial(&self) -> Vec<u64> {
        vec![0; ROWS as usize]
    }

    fn apply_model(&self, rows: &mut Vec<u64>, op: &Op) {
        rows[op.row as usize] = op.value;
    }

    fn observe(&self, region: &Region) -> Result<Vec<u64>, String> {
        let value = |row| -> Result<u64, String> {
            let load = |off| region.load_u64(off).map_err(|e| e.to_string());
            let at = copy(row, load(selector(row))?);
            let first = load(at)?;
            for i in 0..WORDS {
                let word = load(at + 8 * i)?;
                if word != first ^ i && (first, word) != (0, 0) {
                    return Err(format!("word {i} of row {row} is {word:#x}, the first {first:#x}"));
                }
            }
            Ok(first)
        };
        (0..ROWS).map(value).collect()
    }

    fn check(&self, _: &Region) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn a_campaign_goes_on_until_it_has_its_images() {
    let wanted = wanted_images(10_000);
    let report = campaign(10_000, |seed| {
        let table = Table::new(seed);
        Simulation::new(&table).seed(seed).audit(Audit::strict()).run()
    })
    .unwrap();
    println!("{report}");
    assert!(report.images >= wanted && report.rounds > 1, "{report}");
    assert!(report.exhaustive_points < report.points, "{report}");
}
