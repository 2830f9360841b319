//! Scenarios on a disk whose power fails: every component that has a [`Scenario`] in the failure model of
//! [`SectorDisk`].
//!
//! The component lives in a region with a [journal](tembo_pmem::journal), whose ring lies behind the region
//! in the same file. Its operations are performed once. Between two of them everything may be written home,
//! made durable or given back, or the process is killed, and another one goes on in the ring that it leaves.
//!
//! Then images of the device are taken all along the history of the disk, those of its closing too. Each is
//! recovered, at times with a power failure in the recovery of the ring. It is checked, and compared with the
//! model. Then it is written to again; or it is put on a disk of its own, where it is written to until the
//! power fails a second time.
//!
//! # Oracle
//!
//! An image has the contents after some operation, no earlier one than was promised. In the domain
//! `journaled` an operation that has returned is promised; with an interval it is when the process has made
//! it durable. After a kill everything is there. The contents that recovery has shown are promised too.

use crate::config::{first_seed, set_images};
use crate::record::{expect, guarded};
use crate::rng::{Rng, combine};
use crate::scenario::{Scenario, op_at};
use crate::sectors::{DiskEvent, History, PowerCuts, SectorDisk};
use crate::story::{compare, short_debug};
use crate::trial::Quiet;
use std::ops::AddAssign;
use std::time::Duration;
use tembo_pmem::Region;
use tembo_pmem::journal::{Journal, JournalPlace, RING_MIN_BYTES, Records, recover};

/// The ring is as short as it can be, so that it wraps around often.
const RING_BYTES: u64 = RING_MIN_BYTES;
/// The ring's two heads.
const HEADS_BYTES: u64 = 8192;
/// An interval that does not end.
const LONG: Duration = Duration::from_secs(3600);
/// One operation of this many is followed by a kill, and one by a request to the journal (write home, make
/// durable, give back).
const PART: usize = 12;
/// A campaign has at least this many rounds, and more if a round would otherwise have more images than the
/// next constant says.
const ROUNDS: u64 = 4;
const MOST_IMAGES: u64 = 5_000;
/// Images of a round with a flaw.
const MUTANT_IMAGES: u64 = 400;
/// Operations after a recovery.
const AFTERWARDS: usize = 3;

/// A rule that a history breaks, to see that the scenario shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Records are not synchronised.
    Records,
    /// Lines at home are not synchronised before a head says that they are there.
    Lines,
    /// Promises come before the synchronisation that they wait for.
    EarlyPromises,
}

impl Flaw {
    /// All of them.
    pub const ALL: [Flaw; 3] = [Flaw::Records, Flaw::Lines, Flaw::EarlyPromises];
}

/// Counts of finished simulations of power failures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PowerReport {
    /// Images that were recovered and judged.
    pub images: u64,
    /// The number of those that come from a second failure, in recovery or behind it.
    pub nested_images: u64,
    /// Recoveries of a ring that were cut.
    pub cut_recoveries: u64,
    /// Kills whose ring was resumed.
    pub kills: u64,
    /// Scenarios run.
    pub rounds: u64,
}

impl AddAssign for PowerReport {
    fn add_assign(&mut self, other: PowerReport) {
        self.images += other.images;
        self.nested_images += other.nested_images;
        self.cut_recoveries += other.cut_recoveries;
        self.kills += other.kills;
        self.rounds += other.rounds;
    }
}

impl std::fmt::Display for PowerReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PowerReport { images, nested_images, cut_recoveries, kills, rounds } = self;
        write!(
            f,
            "{images} images of sectors ({nested_images} after a second failure), {cut_recoveries} cuts in \
             recovery, {kills} kills, {rounds} runs"
        )
    }
}

/// The settings of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PowerRound {
    /// The seed of images and of everything between operations.
    pub seed: u64,
    /// How many images are tried.
    pub images: u64,
    /// How old a record may become before it is on the device, if fences do not wait for that.
    pub interval: Option<Duration>,
    /// The rule that the history breaks.
    pub flaw: Option<Flaw>,
}

/// A scenario whose power fails.
#[derive(Debug, Clone, Copy)]
#[must_use = "nothing is simulated before `run`"]
pub struct PowerFailures<'a, S> {
    scenario: &'a S,
    round: PowerRound,
    /// The length of the region.
    bytes: u64,
}

/// A moment between two operations.
#[derive(Clone)]
struct Stage<M> {
    model: M,
    /// The index of the operation that comes next.
    next: usize,
}

/// The operations of a scenario, performed.
struct Life<M> {
    /// Its marks are the numbers of moments that are promised.
    history: History,
    moments: Vec<Stage<M>>,
    kills: u64,
}

impl<'a, S: Scenario> PowerFailures<'a, S> {
    /// The scenario with the settings of a round.
    pub fn new(scenario: &'a S, round: PowerRound) -> PowerFailures<'a, S> {
        PowerFailures { scenario, round, bytes: scenario.region_bytes() }
    }

    /// The length of the region, which does not grow. Whole pages.
    pub fn bytes(self, bytes: u64) -> Self {
        PowerFailures { bytes, ..self }
    }

    /// Performs the operations, and tries the images.
    ///
    /// # Errors
    ///
    /// The first failure, as a story.
    pub fn run(&self) -> Result<PowerReport, String> {
        let _quiet = Quiet::begin();
        let told = |e: String| format!("{}, seed {}: {e}", self.scenario.name(), self.round.seed);
        let life = self.live().map_err(told)?;
        self.try_images(&life).map_err(told)
    }

    fn place(&self) -> JournalPlace {
        JournalPlace { off: self.bytes, seed: 5 }
    }

    fn empty_disk(&self) -> Result<SectorDisk, String> {
        let disk = SectorDisk::new(vec![0; (self.bytes + RING_BYTES) as usize]);
        Journal::format(&disk, self.place(), RING_BYTES, RING_BYTES).map_err(text)?;
        Ok(SectorDisk::new(disk.contents()))
    }

    /// The region of a disk, with the ring recovered.
    fn open(&self, disk: &SectorDisk) -> Result<Region, String> {
        let journal =
            Journal::open(Box::new(disk.clone()), self.place(), self.round.interval).map_err(text)?;
        self.region(disk, journal)
    }

    fn region(&self, disk: &SectorDisk, journal: Journal) -> Result<Region, String> {
        Region::journaled(&disk.contents()[..self.bytes as usize], self.bytes, journal).map_err(text)
    }

    /// Performs all operations.
    fn live(&self) -> Result<Life<S::Model>, String> {
        let (scenario, mut rng, mut kills) = (self.scenario, Rng::new(combine(self.round.seed, 1)), 0);
        let disk = self.empty_disk()?;
        let region = self.open(&disk)?;
        let mut state = guarded(|| scenario.setup(region)).map_err(|e| format!("creation: {e}"))?;
        self.journal(&state).write_all_back().map_err(text)?;
        disk.mark(0);
        let mut moments = vec![Stage { model: scenario.initial(), next: 0 }];
        for idx in 0..scenario.ops().len() {
            self.perform(&mut state, idx, &mut moments)?;
            if rng.below(PART) == 0 {
                state = self.kill(state, &disk)?;
                self.expect(&state, &moments).map_err(|e| format!("after a kill: {e}"))?;
                kills += 1;
            }
            self.promise(&state, &disk, &moments, &mut rng);
        }
        self.expect(&state, &moments)?;
        self.close(state)?;
        Ok(Life { history: disk.history(), moments, kills })
    }

    fn journal<'s>(&self, state: &'s S::State) -> &'s Journal {
        self.scenario.region(state).journal().expect("it has a journal")
    }

    /// Performs the operation with this index, if there is one, and adds the moments that a failure may
    /// leave.
    fn perform(
        &self,
        state: &mut S::State,
        idx: usize,
        moments: &mut Vec<Stage<S::Model>>,
    ) -> Result<(), String> {
        let Some(op) = op_at(self.scenario, idx) else { return Ok(()) };
        let before = moments[moments.len() - 1].model.clone();
        let between = self.scenario.between(&before, op).into_iter();
        moments.extend(between.map(|model| Stage { model, next: idx }));
        let mut model = before;
        self.scenario.apply_model(&mut model, op);
        moments.push(Stage { model, next: idx + 1 });
        guarded(|| self.scenario.apply(state, op))
            .map_err(|e| format!("operation {}, {}: {e}", idx + 1, short_debug(op)))
    }

    /// Asks the journal for something, or not, and notes which operations are promised from then on.
    fn promise(&self, state: &S::State, disk: &SectorDisk, moments: &[Stage<S::Model>], rng: &mut Rng) {
        let journal = self.journal(state);
        let is_promised = match rng.below(3 * PART) {
            0 => journal.make_durable().is_ok(),
            1 => journal.write_all_back().is_ok(),
            2 => journal.write_all_back().and_then(|()| journal.give_back(0)).is_ok(),
            3 => journal.give_back(0).is_err(),
            _ => self.round.interval.is_none(),
        };
        if is_promised {
            disk.mark(moments.len() as u64 - 1);
        }
    }

    /// Ends the process, and opens the region again with the ring of records that the process left.
    fn kill(&self, state: S::State, disk: &SectorDisk) -> Result<S::State, String> {
        disk.cut_after(0);
        self.close(state)?;
        disk.mend();
        let records = Records::find(disk, self.place()).map_err(text)?;
        let journal = Journal::resume(Box::new(disk.clone()), &records, self.round.interval).map_err(text)?;
        let region = self.region(disk, journal)?;
        guarded(|| self.scenario.recover(region)).map_err(|e| format!("opening after a kill: {e}"))
    }

    fn close(&self, state: S::State) -> Result<(), String> {
        guarded(|| {
            drop(state);
            Ok(())
        })
        .map_err(|e| format!("closing: {e}"))
    }

    /// Compares with the last moment.
    fn expect(&self, state: &S::State, moments: &[Stage<S::Model>]) -> Result<(), String> {
        expect(self.scenario, state, &moments[moments.len() - 1].model)
    }

    fn flawed(&self, history: &History) -> History {
        let records = self.bytes + HEADS_BYTES..self.bytes + RING_BYTES;
        match self.round.flaw {
            None => history.clone(),
            Some(Flaw::Records) => history.without_synchronisations_of(records),
            Some(Flaw::Lines) => history.without_synchronisations_of(0..self.bytes),
            Some(Flaw::EarlyPromises) => history.with_early_marks(),
        }
    }

    /// Tries images all along the history.
    fn try_images(&self, life: &Life<S::Model>) -> Result<PowerReport, String> {
        let history = self.flawed(&life.history);
        let mut cuts = PowerCuts::new(&history, combine(self.round.seed, 2));
        let mut report = PowerReport { rounds: 1, kills: life.kills, ..PowerReport::default() };
        let is_mark = |event: &DiskEvent| matches!(event, DiskEvent::Mark(_));
        let events = history.events.iter().skip_while(|event| !is_mark(event)).count().max(1);
        let (each, rest) = (self.round.images / events as u64, (self.round.images % events as u64) as usize);
        let mut promised = None;
        while let Some(event) = cuts.step() {
            if let DiskEvent::Mark(moment) = event {
                promised = Some(*moment as usize);
            }
            let Some(promised) = promised else { continue };
            for _ in 0..each + u64::from(cuts.chance(events) < rest) {
                let image = cuts.image();
                self.try_image(&mut cuts, image, &life.moments[promised..], &mut report)
                    .map_err(|e| format!("moment {promised} of {} was promised: {e}", life.moments.len()))?;
            }
        }
        Ok(report)
    }

    /// Recovers an image, compares it with these moments, and goes on.
    fn try_image(
        &self,
        cuts: &mut PowerCuts<'_>,
        image: Vec<u8>,
        moments: &[Stage<S::Model>],
        report: &mut PowerReport,
    ) -> Result<(), String> {
        report.images += 1;
        if cuts.chance(4) == 0 {
            return self.fail_again(cuts, image, moments, report);
        }
        let region = self.recover_ring(cuts, image, report)?;
        let (mut state, moment) = self.judge(region, moments)?;
        let mut later = vec![moment];
        for _ in 0..AFTERWARDS {
            let next = later[later.len() - 1].next;
            self.perform(&mut state, next, &mut later).map_err(|e| format!("after recovery: {e}"))?;
        }
        self.expect(&state, &later).map_err(|e| format!("going on after recovery: {e}"))?;
        self.close(state)
    }

    /// Recovers an image on a disk of its own, goes on there, and lets the power fail again.
    fn fail_again(
        &self,
        cuts: &mut PowerCuts<'_>,
        image: Vec<u8>,
        moments: &[Stage<S::Model>],
        report: &mut PowerReport,
    ) -> Result<(), String> {
        let mut rng = Rng::new(cuts.chance(1 << 30) as u64);
        let disk = SectorDisk::new(image);
        let (mut state, moment) = self.judge(self.open(&disk)?, moments)?;
        disk.mark(0);
        let mut later = vec![moment];
        for _ in 0..AFTERWARDS {
            let next = later[later.len() - 1].next;
            self.perform(&mut state, next, &mut later).map_err(|e| format!("after recovery: {e}"))?;
            self.promise(&state, &disk, &later, &mut rng);
        }
        self.close(state)?;
        let history = disk.history();
        let last = cuts.chance(history.events.len() + 1);
        let (mut again, mut allowed) = (PowerCuts::new(&history, rng.next()), moments);
        for _ in 0..last {
            if let Some(DiskEvent::Mark(moment)) = again.step() {
                allowed = &later[*moment as usize..];
            }
        }
        let image = again.image();
        report.images += 1;
        report.nested_images += 1;
        let told = |e| format!("a second failure, after {last} events of the disk: {e}");
        let region = self.recover_ring(&mut again, image, report).map_err(told)?;
        let (state, _) = self.judge(region, allowed).map_err(told)?;
        self.close(state)
    }

    /// The memory of an image, after a recovery of its ring that may have been cut before.
    fn recover_ring(
        &self,
        cuts: &mut PowerCuts<'_>,
        mut image: Vec<u8>,
        report: &mut PowerReport,
    ) -> Result<Region, String> {
        for _ in 0..2 {
            if cuts.chance(3) > 0 {
                break;
            }
            if let Some(cut) = cuts.cut_recovery(&image, |disk| recover(disk, self.place()).is_ok()) {
                image = cut;
                report.cut_recoveries += 1;
            }
        }
        let disk = SectorDisk::new(image);
        recover(&disk, self.place()).map_err(|e| format!("recovery of the ring: {e}"))?;
        Region::simulated(&disk.contents()[..self.bytes as usize], self.bytes, None).map_err(text)
    }

    /// Opens the component, and finds which of the moments it shows.
    fn judge(
        &self,
        region: Region,
        moments: &[Stage<S::Model>],
    ) -> Result<(S::State, Stage<S::Model>), String> {
        let state = guarded(|| self.scenario.recover(region)).map_err(|e| format!("recovery: {e}"))?;
        guarded(|| self.scenario.check(&state)).map_err(|e| format!("check after recovery: {e}"))?;
        let found =
            guarded(|| self.scenario.observe(&state)).map_err(|e| format!("reading after recovery: {e}"))?;
        match moments.iter().find(|moment| moment.model == found) {
            Some(moment) => Ok((state, moment.clone())),
            None => Err(compare(
                &found,
                &[("the promise", &moments[0].model), ("the last", &moments[moments.len() - 1].model)],
            )),
        }
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Calls `fails` with one seed after the other, in the domain `journaled` and then with an interval that does
/// not end, until `images` images of each have been tried, or as many as `CRASHSIM_IMAGES` says. The first
/// seed is `CRASHSIM_SEED`.
///
/// # Errors
///
/// The first failure of a round.
///
/// # Panics
///
/// If a round tries no image, since the campaign would not end.
pub fn power_campaign(
    images: u64,
    mut fails: impl FnMut(PowerRound) -> Result<PowerReport, String>,
) -> Result<PowerReport, String> {
    // A share of these would leave a round without an image.
    let wanted = set_images().unwrap_or(images);
    let a_round = wanted.div_ceil(ROUNDS).min(MOST_IMAGES);
    let mut total = PowerReport::default();
    for interval in [None, Some(LONG)] {
        let (mut tried, mut seed) = (0, first_seed());
        while tried < wanted {
            let round = PowerRound { seed, images: a_round, interval, flaw: None };
            let report =
                fails(round).map_err(|e| format!("CRASHSIM_SEED={seed}, interval {interval:?}: {e}"))?;
            assert!(report.images > 0, "a round of the campaign tried no image");
            tried += report.images;
            total += report;
            seed = combine(seed, 1);
        }
    }
    Ok(total)
}

/// Calls `fails` with each flaw and one seed after the other, until it does.
///
/// # Errors
///
/// The flaws that this many rounds have not shown.
pub fn notice_flaws(
    rounds: u64,
    mut fails: impl FnMut(PowerRound) -> Result<PowerReport, String>,
) -> Result<(), Vec<Flaw>> {
    let mut missed = Flaw::ALL.to_vec();
    missed.retain(|flaw| {
        let noticed = (first_seed()..).take(rounds as usize).find_map(|seed| {
            fails(PowerRound { seed, images: MUTANT_IMAGES, interval: None, flaw: Some(*flaw) }).err()
        });
        println!("{flaw:?}: {}", noticed.as_deref().unwrap_or("not noticed"));
        noticed.is_none()
    });
    if missed.is_empty() { Ok(()) } else { Err(missed) }
}
