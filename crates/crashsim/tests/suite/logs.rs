//! Logs: an undo log with recovery, and a redo record of one fence, right and wrong. Most of the wrong ways
//! need a second crash, inside recovery or in what is done after it, before anybody notices.

use tembo_crashsim::{Audit, Failure, FailureKind, Mutation, Report, Scenario, Simulation, Target};
use tembo_pmem::Region;

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// The cells of both toys, each on a line of its own.
fn cell(idx: u64) -> u64 {
    1024 + idx * 64
}

const CELLS: u64 = 4;

fn read_cells(region: &Region) -> Result<Vec<u64>, String> {
    (0..CELLS).map(|i| region.load_u64(cell(i)).map_err(|e| e.to_string())).collect()
}

/// Moves the value of one cell to another and leaves zero behind: never both, never neither.
#[derive(Debug, Clone, Copy)]
struct Move {
    from: u64,
    to: u64,
}

const MOVES: [Move; 4] =
    [Move { from: 0, to: 2 }, Move { from: 1, to: 3 }, Move { from: 2, to: 1 }, Move { from: 1, to: 0 }];

fn move_in_model(cells: &mut [u64], op: &Move) {
    cells[op.to as usize] = cells[op.from as usize];
    cells[op.from as usize] = 0;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UndoWay {
    Right,
    NoLog,
    CountWithEntries,
    HomeWithCount,
    NoHomeFence,
    CountNotCleared,
    RecoveryClearsFirst,
    RecoveryDoesNotFlush,
    RecoveryForgetsOne,
}

struct Undo {
    way: UndoWay,
}

/// Entries of the undo log, offset and old value, each on a line of its own; the count is elsewhere.
const COUNT: u64 = 0;

fn entry(idx: u64) -> u64 {
    64 + idx * 64
}

impl Undo {
    fn perform(&self, region: &Region, op: &Move) -> Outcome {
        let way = self.way;
        let value = region.load_u64(cell(op.from))?;
        if way != UndoWay::NoLog {
            for (i, off) in [cell(op.from), cell(op.to)].into_iter().enumerate() {
                region.store_u64(entry(i as u64), off)?;
                region.store_u64(entry(i as u64) + 8, region.load_u64(off)?)?;
                region.flush(entry(i as u64), 16);
            }
            if way != UndoWay::CountWithEntries {
                region.fence()?;
            }
            region.store_u64(COUNT, 2)?;
            region.flush(COUNT, 8);
            if way != UndoWay::HomeWithCount {
                region.fence()?;
            }
        }
        region.store_u64(cell(op.to), value)?;
        region.flush(cell(op.to), 8);
        region.store_u64(cell(op.from), 0)?;
        region.flush(cell(op.from), 8);
        if way != UndoWay::NoHomeFence {
            region.fence()?;
        }
        if way != UndoWay::CountNotCleared && way != UndoWay::NoLog {
            region.store_u64(COUNT, 0)?;
            region.persist(COUNT, 8)?;
        }
        Ok(())
    }

    fn roll_back(&self, region: &Region) -> Outcome {
        let count = region.load_u64(COUNT)?;
        if count == 0 {
            return Ok(());
        }
        if self.way == UndoWay::RecoveryClearsFirst {
            region.store_u64(COUNT, 0)?;
            region.persist(COUNT, 8)?;
        }
        let undone = if self.way == UndoWay::RecoveryForgetsOne { 1 } else { count };
        for i in (0..undone).rev() {
            let off = region.load_u64(entry(i))?;
            region.store_u64(off, region.load_u64(entry(i) + 8)?)?;
            if self.way != UndoWay::RecoveryDoesNotFlush {
                region.flush(off, 8);
            }
        }
        region.fence()?;
        region.store_u64(COUNT, 0)?;
        region.persist(COUNT, 8)?;
        Ok(())
    }
}

impl Scenario for Undo {
    type State = Region;
    type Op = Move;
    type Model = Vec<u64>;

    fn name(&self) -> String {
        format!("undo log, {:?}", self.way)
    }

    fn region_bytes(&self) -> u64 {
        4096
    }

    fn setup(&self, region: Region) -> Result<Region, String> {
        for i in 0..2 {
            region.store_u64(cell(i), 10 + i).map_err(|e| e.to_string())?;
            region.persist(cell(i), 8).map_err(|e| e.to_string())?;
        }
        Ok(region)
    }

    fn recover(&self, region: Region) -> Result<Region, String> {
        self.roll_back(&region).map_err(|e| e.to_string())?;
        Ok(region)
    }

    fn region<'s>(&self, state: &'s Region) -> &'s Region {
        state
    }

    fn ops(&self) -> &[Move] {
        &MOVES
    }

    fn apply(&self, region: &mut Region, op: &Move) -> Result<(), String> {
        self.perform(region, op).map_err(|e| e.to_string())
    }

    fn initial(&self) -> Vec<u64> {
        vec![10, 11, 0, 0]
    }

    fn apply_model(&self, cells: &mut Vec<u64>, op: &Move) {
        move_in_model(cells, op);
    }

    fn observe(&self, region: &Region) -> Result<Vec<u64>, String> {
        read_cells(region)
    }

    fn check(&self, _: &Region) -> Result<(), String> {
        Ok(())
    }
}

fn run<S: Scenario>(scenario: &S) -> Result<Report, Box<Failure>> {
    Simulation::new(scenario).audit(Audit::off()).nested_percent(200).run()
}

#[test]
fn the_right_undo_log_survives_crashes_in_its_recovery() {
    let undo = Undo { way: UndoWay::Right };
    let report = Simulation::new(&undo).nested_percent(200).run().unwrap();
    assert!(report.nested_images > 100, "{report}");
}

#[test]
fn every_wrong_undo_log_is_found() {
    for way in [
        UndoWay::NoLog,
        UndoWay::CountWithEntries,
        UndoWay::HomeWithCount,
        UndoWay::NoHomeFence,
        UndoWay::CountNotCleared,
        UndoWay::RecoveryForgetsOne,
    ] {
        let failure = run(&Undo { way }).expect_err(&format!("{way:?} was not noticed"));
        assert_eq!(failure.kind(), FailureKind::Crash, "{failure}");
    }
}

#[test]
fn a_wrong_recovery_is_found_by_a_second_crash() {
    for way in [UndoWay::RecoveryClearsFirst, UndoWay::RecoveryDoesNotFlush] {
        let failure = run(&Undo { way }).expect_err(&format!("{way:?} was not noticed"));
        assert_eq!(failure.crashes(), 2, "{failure}");
        let story = failure.to_string();
        assert!(story.contains("crash 2 of 2:\n  during recovery, crash just before"), "{story}");
    }
}

#[test]
fn bugs_seeded_into_recovery_are_caught() {
    let undo = Undo { way: UndoWay::Right };
    let simulation = Simulation::new(&undo).audit(Audit::off()).nested_percent(400);
    let report = simulation.mutants(Target::Recovery, &Mutation::ALWAYS_HARMFUL[..1]).unwrap();
    report.assert_all_caught_but(&[Mutation::DropFlush], |survivor| {
        // The count's flush: recovery that is repeated undoes the same again.
        (survivor.place == 2).then_some("undoing twice is the same as undoing once")
    });
    let report =
        simulation.mutants(Target::Recovery, &[Mutation::DropFence, Mutation::ForeignFence]).unwrap();
    report.assert_some_caught(&[Mutation::DropFence, Mutation::ForeignFence]);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RedoWay {
    Right,
    NoChecksum,
    RecordReusedTooEarly,
    StaleRecordReplayed,
    DeltasInsteadOfValues,
    VisibleBeforeDurable,
}

/// A redo record of one fence in each of two lanes, used in turns. The stores to their homes ride on the
/// next fence.
///
/// A record: number, checksum, two cells with their new values, on two lines.
struct Redo {
    way: RedoWay,
}

/// An open redo toy: the number of the last record.
struct Lanes {
    region: Region,
    last: u64,
}

fn record(lane: u64) -> u64 {
    lane * 128
}

fn checksum(words: &[u64]) -> u64 {
    words.iter().fold(0x1234_5678, |sum, w| (sum ^ w).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
}

impl Redo {
    fn perform(&self, lanes: &mut Lanes, op: &Move) -> Outcome {
        let region = &lanes.region;
        let value = region.load_u64(cell(op.from))?;
        lanes.last += 1;
        let at = record(if self.way == RedoWay::StaleRecordReplayed {
            (op.from == 0).into()
        } else {
            lanes.last % 2
        });
        let new = if self.way == RedoWay::DeltasInsteadOfValues {
            [value.wrapping_sub(region.load_u64(cell(op.to))?), value.wrapping_neg()]
        } else {
            [value, 0]
        };
        let words = [lanes.last, cell(op.to), new[0], cell(op.from), new[1]];
        if self.way == RedoWay::VisibleBeforeDurable {
            self.home(region, &words)?;
        }
        for (i, word) in words.iter().enumerate() {
            // The second line of the record begins with its fourth word.
            let line = if i < 3 { 8 * i as u64 } else { 64 + 8 * i as u64 };
            region.store_u64(at + line, *word)?;
        }
        region.store_u64(at + 24, checksum(&words))?;
        region.flush(at, 128);
        region.fence()?;
        if self.way != RedoWay::VisibleBeforeDurable {
            self.home(region, &words)?;
        }
        Ok(())
    }

    /// Stores a record's values and starts their write-back, for which the next fence waits.
    fn home(&self, region: &Region, words: &[u64; 5]) -> Outcome {
        for (off, new) in [(words[1], words[2]), (words[3], words[4])] {
            let old = if self.way == RedoWay::DeltasInsteadOfValues { region.load_u64(off)? } else { 0 };
            region.store_u64(off, old.wrapping_add(new))?;
            if self.way != RedoWay::RecordReusedTooEarly {
                region.flush(off, 8);
            }
        }
        Ok(())
    }

    fn load(&self, region: &Region, lane: u64) -> Result<Option<[u64; 5]>, Box<dyn std::error::Error>> {
        let mut words = [0; 5];
        for (i, word) in words.iter_mut().enumerate() {
            let line = if i < 3 { 8 * i as u64 } else { 64 + 8 * i as u64 };
            *word = region.load_u64(record(lane) + line)?;
        }
        let whole = words[0] != 0
            && (self.way == RedoWay::NoChecksum || region.load_u64(record(lane) + 24)? == checksum(&words));
        Ok(whole.then_some(words))
    }

    fn replay(&self, region: Region) -> Result<Lanes, Box<dyn std::error::Error>> {
        let mut found: Vec<[u64; 5]> = Vec::new();
        for lane in 0..2 {
            found.extend(self.load(&region, lane)?);
        }
        found.sort_unstable();
        if self.way == RedoWay::StaleRecordReplayed {
            found.reverse();
        }
        for words in &found {
            self.home(&region, words)?;
        }
        region.fence()?;
        let last = found.iter().map(|words| words[0]).max().unwrap_or(0);
        Ok(Lanes { region, last })
    }
}

impl Scenario for Redo {
    type State = Lanes;
    type Op = Move;
    type Model = Vec<u64>;

    fn name(&self) -> String {
        format!("redo record, {:?}", self.way)
    }

    fn region_bytes(&self) -> u64 {
        4096
    }

    fn setup(&self, region: Region) -> Result<Lanes, String> {
        for i in 0..2 {
            region.store_u64(cell(i), 10 + i).map_err(|e| e.to_string())?;
            region.persist(cell(i), 8).map_err(|e| e.to_string())?;
        }
        Ok(Lanes { region, last: 0 })
    }

    fn recover(&self, region: Region) -> Result<Lanes, String> {
        self.replay(region).map_err(|e| e.to_string())
    }

    fn region<'s>(&self, state: &'s Lanes) -> &'s Region {
        &state.region
    }

    fn ops(&self) -> &[Move] {
        &MOVES
    }

    fn apply(&self, lanes: &mut Lanes, op: &Move) -> Result<(), String> {
        self.perform(lanes, op).map_err(|e| e.to_string())
    }

    fn initial(&self) -> Vec<u64> {
        vec![10, 11, 0, 0]
    }

    fn apply_model(&self, cells: &mut Vec<u64>, op: &Move) {
        move_in_model(cells, op);
    }

    fn observe(&self, lanes: &Lanes) -> Result<Vec<u64>, String> {
        read_cells(&lanes.region)
    }

    fn check(&self, _: &Lanes) -> Result<(), String> {
        Ok(())
    }
}

/// The promise of the redo toy at the end of an operation: homes flushed, durable one operation later.
fn lazy() -> Audit {
    Audit::strict().fenced_within(Some(1))
}

#[test]
fn the_right_redo_record_survives_with_one_fence() {
    let redo = Redo { way: RedoWay::Right };
    Simulation::new(&redo).audit(lazy()).nested_percent(200).run().unwrap();
    let strict = Simulation::new(&redo).run().unwrap_err();
    assert!(strict.verdict().contains("no fence made durable"), "{strict}");
}

#[test]
fn every_wrong_redo_record_is_found() {
    for way in [
        RedoWay::NoChecksum,
        RedoWay::RecordReusedTooEarly,
        RedoWay::StaleRecordReplayed,
        RedoWay::DeltasInsteadOfValues,
        RedoWay::VisibleBeforeDurable,
    ] {
        let failure = run(&Redo { way }).expect_err(&format!("{way:?} was not noticed"));
        assert_eq!(failure.kind(), FailureKind::Crash, "{failure}");
    }
}

#[test]
fn bugs_seeded_into_the_redo_record_are_caught() {
    let redo = Redo { way: RedoWay::Right };
    let report = Simulation::new(&redo).audit(lazy()).mutants(Target::Operations, &Mutation::ALL).unwrap();
    println!("{report}");
    report.assert_all_caught(&Mutation::ALWAYS_HARMFUL);
}
