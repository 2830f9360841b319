//! A record of two fields in two slots, and a word that says which slot counts: right, and in every wrong
//! way that the field knows.

use tembo_crashsim::{Audit, Failure, FailureKind, Mutation, Report, Scenario, Simulation, Target};
use tembo_pmem::Region;

/// The word that says which slot counts, in its lowest bit, above it the number of the update.
const COMMIT: u64 = 0;
/// A word that only readers in memory care about.
const LOCK: u64 = 64;
/// Where the second field lies in a slot: on another line than the first.
const SECOND: u64 = 64;

fn slot(idx: u64) -> u64 {
    256 + idx * 256
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Right,
    FlagBeforeData,
    FlagWithData,
    DataNotFlushed,
    FlushOfWrongLine,
    FlushTooShort,
    FlushOfStack,
    FlushWithoutFence,
    AcknowledgedTooEarly,
    FencedByAnotherThread,
    TornCommit,
    InPlace,
    LockLeftHeld,
    SecondFlushOfACleanLine,
    FenceForNothing,
}

struct Record {
    way: Way,
    ops: Vec<(u64, u64)>,
}

impl Record {
    fn new(way: Way) -> Record {
        Record { way, ops: vec![(1, 1), (2, 2), (0, 0), (7, 8)] }
    }

    fn run(&self, audit: Audit) -> Result<Report, Box<Failure>> {
        Simulation::new(self).audit(audit).run()
    }
}

fn words(region: &Region, offs: [u64; 2]) -> Result<(u64, u64), String> {
    let load = |off| region.load_u64(off).map_err(|e| e.to_string());
    Ok((load(offs[0])?, load(offs[1])?))
}

impl Record {
    fn set(&self, region: &Region, first: u64, second: u64) -> Result<(), Box<dyn std::error::Error>> {
        let commit = region.load_u64(COMMIT)?;
        let target = slot(1 - (commit & 1));
        let next = (((commit >> 1) + 1) << 1 | (1 - (commit & 1))).wrapping_add(1 << 36);
        let data_off = if self.way == Way::InPlace { slot(commit & 1) } else { target };
        if self.way == Way::FlagBeforeData {
            region.store_u64(COMMIT, next)?;
            region.persist(COMMIT, 8)?;
        }
        region.store_u64(data_off, first)?;
        region.store_u64(data_off + SECOND, second)?;
        match self.way {
            Way::DataNotFlushed => {}
            Way::FlushOfWrongLine => region.flush(data_off + 64, 128),
            Way::FlushTooShort => region.flush(data_off, SECOND),
            Way::FlushOfStack => region.flush(4096, 72),
            _ => region.flush(data_off, SECOND + 8),
        }
        match self.way {
            Way::FlagWithData | Way::FlushWithoutFence => {}
            Way::FencedByAnotherThread => {
                std::thread::scope(|scope| scope.spawn(|| region.fence()).join())
                    .map_err(|_| "the fencing thread panicked")??;
            }
            _ => region.fence()?,
        }
        match self.way {
            Way::InPlace | Way::FlagBeforeData => return Ok(()),
            Way::TornCommit => region.store_u64(COMMIT, commit & !0xffff_ffff | next & 0xffff_ffff)?,
            Way::LockLeftHeld => region.store_u64(LOCK, 1)?,
            _ => {}
        }
        region.store_u64(COMMIT, next)?;
        region.flush(COMMIT, 8);
        if self.way == Way::LockLeftHeld {
            region.store_u64(LOCK, 0)?;
            region.flush(LOCK, 8);
        }
        if self.way == Way::SecondFlushOfACleanLine {
            region.flush(data_off, 8);
        }
        if self.way != Way::AcknowledgedTooEarly {
            region.fence()?;
        }
        if self.way == Way::FenceForNothing {
            region.fence()?;
        }
        Ok(())
    }
}

impl Scenario for Record {
    type State = Region;
    type Op = (u64, u64);
    type Model = (u64, u64);

    fn name(&self) -> String {
        format!("record, {:?}", self.way)
    }

    fn region_bytes(&self) -> u64 {
        8192
    }

    fn setup(&self, region: Region) -> Result<Region, String> {
        Ok(region)
    }

    fn recover(&self, region: Region) -> Result<Region, String> {
        match region.load_u64(LOCK) {
            Ok(0) => Ok(region),
            _ => Err("the lock is held, and nobody is there to release it".to_owned()),
        }
    }

    fn region<'s>(&self, state: &'s Region) -> &'s Region {
        state
    }

    fn ops(&self) -> &[(u64, u64)] {
        &self.ops
    }

    fn apply(&self, region: &mut Region, op: &(u64, u64)) -> Result<(), String> {
        self.set(region, op.0, op.1).map_err(|e| e.to_string())
    }

    fn initial(&self) -> (u64, u64) {
        (0, 0)
    }

    fn apply_model(&self, model: &mut (u64, u64), op: &(u64, u64)) {
        *model = *op;
    }

    fn observe(&self, region: &Region) -> Result<(u64, u64), String> {
        let current = slot(region.load_u64(COMMIT).map_err(|e| e.to_string())? & 1);
        words(region, [current, current + SECOND])
    }

    fn check(&self, region: &Region) -> Result<(), String> {
        // The number of the update and the part above it advance together.
        let commit = region.load_u64(COMMIT).map_err(|e| e.to_string())?;
        let (low, high) = (commit >> 1 & 0x7fff_ffff, commit >> 36);
        if low == high { Ok(()) } else { Err(format!("commit word {commit:#x} is torn")) }
    }
}

#[test]
fn the_right_way_survives_every_crash() {
    let report = Record::new(Way::Right).run(Audit::strict()).unwrap();
    assert_eq!(report.points, report.exhaustive_points);
    assert!(report.images > 24 && report.nested_images > 4, "{report}");
}

#[test]
fn a_crash_shows_every_wrong_way_without_the_audit() {
    let wrong = [
        Way::FlagBeforeData,
        Way::FlagWithData,
        Way::DataNotFlushed,
        Way::FlushOfWrongLine,
        Way::FlushTooShort,
        Way::FlushOfStack,
        Way::FlushWithoutFence,
        Way::AcknowledgedTooEarly,
        Way::FencedByAnotherThread,
        Way::TornCommit,
        Way::InPlace,
        Way::LockLeftHeld,
    ];
    for way in wrong {
        let failure = Record::new(way).run(Audit::off()).expect_err(&format!("{way:?} was not noticed"));
        assert_eq!(failure.kind(), FailureKind::Crash, "{failure}");
    }
}

#[test]
fn the_audit_shows_what_was_left_undone_or_done_for_nothing() {
    let wrong = [
        (Way::DataNotFlushed, "that nobody flushed"),
        (Way::FlushTooShort, "that nobody flushed"),
        (Way::FlushOfWrongLine, "in vain"),
        (Way::FlushOfStack, "in vain"),
        (Way::AcknowledgedTooEarly, "that no fence made durable"),
        (Way::SecondFlushOfACleanLine, "in vain"),
        (Way::FenceForNothing, "flushed nothing"),
    ];
    for (way, message) in wrong {
        let failure = Record::new(way).run(Audit::strict()).expect_err(&format!("{way:?} was not noticed"));
        assert_eq!(failure.kind(), FailureKind::Audit, "{failure}");
        assert!(failure.verdict().contains(message), "{failure}");
        assert!(failure.verdict().contains("operation 1 of 4, (1, 1)"), "{failure}");
    }
}

#[test]
fn the_audit_can_be_told_what_a_component_allows() {
    let relaxed = Audit::strict().fenced_within(None).allow_idle_flush(true).allow_idle_fence(true);
    for way in [Way::SecondFlushOfACleanLine, Way::FenceForNothing] {
        Record::new(way).run(relaxed.clone()).unwrap();
    }
    let unflushed = Record::new(Way::DataNotFlushed).run(relaxed.clone()).unwrap_err();
    assert_eq!(unflushed.kind(), FailureKind::Audit);
    let exempt = relaxed.exempt(256..1024);
    let crashed = Record::new(Way::DataNotFlushed).run(exempt).unwrap_err();
    assert_eq!(crashed.kind(), FailureKind::Crash);
}

#[test]
fn the_story_names_the_operation_the_point_and_the_one_store_that_matters() {
    let failure = Record::new(Way::FlagWithData).run(Audit::off()).unwrap_err();
    let story = failure.to_string();
    assert_eq!(failure.lost_stores(), 1, "{story}");
    assert_eq!((failure.image()[0x200], failure.image()[0x240]), (1, 0), "{story}");
    for part in [
        "record, FlagWithData: does not survive a crash",
        "during operation 1 of 4, (1, 1), crash just before event",
        "lost:\n    t0 stored to 0x240 (line 0x9) in event 4: 0x0000000000000000 -> 0x0000000000000001",
        "(flushed by t0 in event 6, not fenced)",
        "arrived, though no fence had waited for it:",
        "t0 stored to 0x0 (line 0x0)",
        "the contents are\n    (1, 0)",
        "expected (before)\n    (0, 0)",
        "or (after)\n    (1, 1)",
        "CRASHSIM_SEED=",
    ] {
        assert!(story.contains(part), "no {part:?} in:\n{story}");
    }
}

#[test]
fn every_seeded_bug_is_caught_by_crashes_alone_and_with_the_audit() {
    let record = Record::new(Way::Right);
    for audit in [Audit::off(), Audit::strict()] {
        let simulation = Simulation::new(&record).audit(audit);
        let report = simulation.mutants(Target::Operations, &Mutation::ALL).unwrap();
        report.assert_all_caught(&[
            Mutation::DropFlush,
            Mutation::ShiftFlush,
            Mutation::ShortenFlush,
            Mutation::DelayFlush,
            Mutation::DropFence,
            Mutation::ForeignFence,
            Mutation::HoistStore,
        ]);
        report.assert_some_caught(&[Mutation::TearStore]);
    }
}

#[test]
fn several_workers_try_what_one_tries() {
    let record = Record::new(Way::Right);
    let depth_1 = |workers| Simulation::new(&record).depth(0).workers(workers).run().unwrap();
    assert_eq!(depth_1(1), depth_1(3));
}

/// A component that shows another region than the one it writes to.
struct Elsewhere(Region);

impl Scenario for Elsewhere {
    type State = Region;
    type Op = ();
    type Model = ();

    fn name(&self) -> String {
        "elsewhere".to_owned()
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

    fn region<'s>(&self, _: &'s Region) -> &'s Region {
        // The lifetime of the scenario's own region is not that of the state, hence the leak.
        let other = Region::simulated(&[0; 4096], 4096, None).unwrap();
        let found = self.0.load_u64(8).unwrap();
        other.store_u64(8, found).unwrap();
        Box::leak(Box::new(other))
    }

    fn ops(&self) -> &[()] {
        &[()]
    }

    fn apply(&self, _: &mut Region, (): &()) -> Result<(), String> {
        self.0.store_u64(8, 5).map_err(|e| e.to_string())
    }

    fn initial(&self) {}

    fn apply_model(&self, (): &mut (), (): &()) {}

    fn observe(&self, _: &Region) -> Result<(), String> {
        Ok(())
    }

    fn check(&self, _: &Region) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn a_change_that_the_region_does_not_know_of_is_reported() {
    let elsewhere = Elsewhere(Region::simulated(&[0; 4096], 4096, None).unwrap());
    let failure = Simulation::new(&elsewhere).run().unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Unrecorded);
    assert!(failure.verdict().contains("the word at 0x8 is 0x5"), "{failure}");
}
