//! Compaction of the pool, a step at a time between the turns of clients.
//!
//! It begins when enough lies in holes between records, by the settings that Redis's directives
//! `activedefrag` and `active-defrag-*` have, or when a client asks for it. A step takes a millisecond or a
//! little more, and a pause follows, as long as the step was and the settings say, so that it takes the share
//! of time that they allow beside clients. While clients rest, steps take more of it, and all
//! of it after the pool has grown over its holes. A write that finds no space has all of it done at once.
//!
//! While clients rest, less space in holes is worth a compaction, less free space is worth emptying the end
//! of the pool, and less room for growth stays there.
//!
//! Growth beside a compaction that is under way counts from a sixteenth of the pool on: writes and moves
//! share the free space until the first slabs are empty.
//!
//! The space that a compaction frees goes to the file system in such steps, too, but with a journal at once.

use crate::config::CompactionSettings;
use std::time::{Duration, Instant};
use tembo::{Compaction, MissedRun, Pool, Trimming};

const STEP: Duration = Duration::from_millis(1);
/// The same when a pool has grown over its holes.
const OUTGROWN_STEP: Duration = Duration::from_millis(2);
/// The percentage of time that steps take while clients rest. Others may use the pool beside the server.
const IDLE_PERCENT: u64 = 60;
/// The holes are looked at this often, some at a time.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// Slabs that are looked at in a step after a start, until the holes of all are known.
const SLABS_PER_STEP: usize = 1024;
/// The percentage of time that this may take.
const LEARNING_PERCENT: u64 = 10;
/// After a compaction that has gained nothing, this many bytes more in holes make another one worth trying.
const WORTH_BYTES: u64 = 16 << 20;
/// From this much unused space on, if it is a quarter of the file, the end of the pool is emptied, and cut.
const UNUSED_BYTES: u64 = 64 << 20;
/// The same while clients rest, if it is a sixteenth.
const RESTING_UNUSED_BYTES: u64 = 4 << 20;
/// The least room for growth that stays at the end then; otherwise a 64th of the file stays.
const RESTING_ROOM_BYTES: u64 = 1 << 20;
/// The percentage of the settings' thresholds from which it begins then.
const RESTING_PERCENT: u64 = 40;
/// Clients rest that have at most this many commands run a second: as many as programs that watch the server.
const RESTING_COMMANDS: u128 = 100;
/// The share of the pool by which it may grow in spite of holes while a compaction yields to clients.
const GROWTH_SHARE: u64 = 16;
/// The file is cut by so much in a step: to free as much takes tmpfs a millisecond.
const CUT_STEP_BYTES: u64 = 4 << 20;
/// The percentage of time beside clients in which space may go to the file system.
const GIVING_PERCENT: u64 = 20;
/// As `WORTH_BYTES`, for a write that finds no space.
const WORTH_BYTES_IF_FULL: u64 = 1 << 20;

/// The compaction that is under way, and what the ones before it did.
#[derive(Debug)]
pub(crate) struct Compactor {
    running: Option<Compaction>,
    /// The unused bytes when the running one began.
    unused_before: u64,
    /// The pool's length then.
    length_before: u64,
    /// The percentage of time that steps may take beside clients.
    cycle: u64,
    /// The commands that clients had had run when it last did something, and when that was.
    commands: u64,
    looked: Instant,
    /// `rests`: clients rest. `is_eager`: and less is worth a compaction therefore.
    rests: bool,
    is_eager: bool,
    /// `is_wanted`: a client has asked for a compaction that has not begun. `is_asked`: a client has asked
    /// for the one that is running.
    is_wanted: bool,
    is_asked: bool,
    /// The file is being cut, but for so much of its free end; and the pool's length after the last step.
    cutting: Option<(u64, u64)>,
    /// Empty space is being given back to the file system.
    trimming: Option<Trimming>,
    next: Instant,
    /// After a compaction that gained nothing: it is not repeated before this much lies in holes.
    not_below: u64,
    not_below_if_full: u64,
    run: MissedRun,
    /// The end of the pool is not emptied before this much is unused: the last attempt has not made it
    /// shorter.
    unused_not_below: u64,
    /// All holes of the pool are known.
    knows_all: bool,
    /// Bytes that finished compactions have moved.
    moved_bytes: u64,
    cut_bytes: u64,
    /// How many have finished.
    finished: u64,
    /// The time of all steps.
    spent: Duration,
    /// When the running one began.
    since: Option<Instant>,
}

impl Compactor {
    pub(crate) fn new() -> Compactor {
        Compactor {
            running: None,
            unused_before: 0,
            length_before: 0,
            cycle: 100,
            commands: 0,
            looked: Instant::now(),
            rests: false,
            is_eager: false,
            is_wanted: false,
            is_asked: false,
            cutting: None,
            trimming: None,
            next: Instant::now() + LOOK_PERIOD,
            not_below: 0,
            not_below_if_full: 0,
            run: MissedRun::default(),
            unused_not_below: 0,
            knows_all: false,
            moved_bytes: 0,
            cut_bytes: 0,
            finished: 0,
            spent: Duration::ZERO,
            since: None,
        }
    }

    /// Begins a compaction as soon as possible, even if there is little to gain.
    pub(crate) fn ask(&mut self, now: Instant) {
        (self.is_wanted, self.next) = (true, now);
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Bytes of records and nodes that were moved since the start.
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.moved_bytes + self.running.as_ref().map_or(0, Compaction::moved_bytes)
    }

    /// Bytes by which the pool's file was cut since the start.
    pub(crate) fn cut_bytes(&self) -> u64 {
        self.cut_bytes
    }

    pub(crate) fn finished(&self) -> u64 {
        self.finished
    }

    /// The time of all steps since the start.
    pub(crate) fn spent(&self) -> Duration {
        self.spent
    }

    /// How long the running one has been under way.
    pub(crate) fn running_for(&self, now: Instant) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// When [`run`](Self::run) has something to do.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// Does the work that is due, after this many commands of clients. No batch is open. If the pool refuses,
    /// it is tried again later.
    pub(crate) fn run(&mut self, pool: &Pool, settings: &CompactionSettings, now: Instant, commands: u64) {
        let may_outgrow = settings.is_on && self.knows_all && !self.has_slabs();
        let has_outgrown = may_outgrow && pool.take_outgrown_waste();
        if now < self.next && !has_outgrown {
            return;
        }
        self.next = now + LOOK_PERIOD;
        self.look_at_clients(now, commands, settings);
        if !settings.is_on && !self.is_asked {
            (self.running, self.since, self.cutting, self.trimming) = (None, None, None, None);
        }
        if settings.is_on && !self.knows_all && !self.learn(pool) {
            return;
        }
        let began = Instant::now();
        if !has_outgrown && self.give_back(pool) {
            self.rest_after(began, GIVING_PERCENT);
            return;
        }
        if self.running.is_none() && !has_outgrown && !self.is_wanted && !self.survey(pool) {
            return;
        }
        let has_begun = self.running.is_none();
        if has_begun && !self.begin(pool, settings, now, true) {
            return;
        }
        if has_outgrown && (has_begun || self.has_grown(pool)) {
            self.cycle = 100;
        }
        let began = Instant::now();
        // Clients that write make holes, too. A pool that has grown over its holes has longer steps.
        let budget = if self.cycle == 100 { OUTGROWN_STEP } else { STEP };
        if self.step(pool, budget) || self.cutting.is_some() || self.trimming.is_some() {
            self.rest_after(began, self.cycle);
        }
    }

    /// Does a little of the work that follows a compaction; returns whether there was any. Empty slabs become
    /// free space, which goes to the file system: first the end of the file, which costs less than holes.
    fn give_back(&mut self, pool: &Pool) -> bool {
        let has_slabs = self.has_slabs();
        // A pool that grows meanwhile needs what is left.
        if !has_slabs
            && let Some((slack_bytes, length)) = self.cutting.take()
            && pool.stats().pool_bytes <= length
        {
            self.cut_step(pool, 1, slack_bytes);
            return true;
        }
        let Some(trimming) = &mut self.trimming else { return false };
        let outcome = trimming.step();
        if !matches!(outcome, Ok(true)) {
            self.trimming = None;
        }
        if has_slabs && !self.has_slabs() {
            self.note_gain(pool, outcome.is_ok());
        }
        true
    }

    /// Whether a compaction has left empty slabs that are no free space yet.
    fn has_slabs(&self) -> bool {
        self.trimming.as_ref().is_some_and(Trimming::has_slabs)
    }

    /// The next step comes after a pause, so that steps take this percentage of time beside clients.
    fn rest_after(&mut self, began: Instant, cycle: u64) {
        let ended = Instant::now();
        let cycle = if self.rests { cycle.max(IDLE_PERCENT) } else { cycle };
        self.next = ended + pause(ended - began, cycle);
    }

    /// Learns whether clients rest, from the number of their commands. Settings that are above their defaults
    /// mean what they say in any case.
    fn look_at_clients(&mut self, now: Instant, commands: u64, settings: &CompactionSettings) {
        let count = commands.saturating_sub(self.commands);
        let time = now.saturating_duration_since(self.looked);
        if time < LOOK_PERIOD / 2 {
            // So short a time shows only that clients do not rest.
            let is_few = u128::from(count) * 2 <= RESTING_COMMANDS;
            (self.rests, self.is_eager) = (self.rests && is_few, self.is_eager && is_few);
            return;
        }
        (self.commands, self.looked) = (commands, now);
        self.rests = u128::from(count) * 1000 <= time.as_millis() * RESTING_COMMANDS;
        let most = CompactionSettings::default();
        self.is_eager = self.rests
            && settings.least_bytes <= most.least_bytes
            && settings.lower_percent <= most.lower_percent;
    }

    /// The share in hundredths of the settings' thresholds that counts.
    fn percent_of_thresholds(&self) -> u64 {
        if self.is_eager { RESTING_PERCENT } else { 100 }
    }

    /// From so much unused space on, the end of the pool is emptied.
    fn worth_of_end(&self, pool_bytes: u64) -> u64 {
        if self.is_eager {
            (pool_bytes / 16).max(RESTING_UNUSED_BYTES)
        } else {
            (pool_bytes / 4).max(UNUSED_BYTES)
        }
    }

    /// Whether the pool has become much longer since the running one began.
    fn has_grown(&self, pool: &Pool) -> bool {
        pool.stats().pool_bytes > self.length_before + self.length_before / GROWTH_SHARE
    }

    /// Compacts at once, for a write that found no space; returns whether that made room. A compaction under
    /// way ends first. Its slabs were chosen earlier, and clients may have taken the room that it needs: if
    /// it makes no room, another compaction follows.
    pub(crate) fn make_room(&mut self, pool: &Pool, settings: &CompactionSettings, now: Instant) -> bool {
        let is_futile = !self.run.may_be_made(pool) && pool.spare_bytes() < self.not_below_if_full;
        if !settings.is_on || self.running.is_none() && is_futile {
            return false;
        }
        let mut has_room = self.running.is_some() && self.make_room_by_running(pool);
        // The first one may empty sparse slabs, and the second one a run for a large block.
        for _ in 0..2 {
            if has_room {
                break;
            }
            self.is_wanted = true;
            self.begin(pool, settings, now, false);
            has_room = self.make_room_by_running(pool);
            if pool.missed_run_bytes() == 0 {
                break;
            }
        }
        self.not_below_if_full = pool.spare_bytes() + WORTH_BYTES_IF_FULL;
        has_room
    }

    /// Ends the compaction that is under way; returns whether that has made room.
    fn make_room_by_running(&mut self, pool: &Pool) -> bool {
        let missed_bytes = pool.missed_run_bytes();
        self.unused_before = pool.stats().unused_bytes;
        let before = (self.finished, self.unused_before);
        while self.step(pool, Duration::MAX) {}
        while self.has_slabs() {
            self.give_back(pool);
        }
        // A run of free chunks for a large value may have been made of as many pieces.
        let has_made_run = pool.has_made_run();
        self.run.note_compaction(pool, missed_bytes);
        self.finished > before.0 && (has_made_run || pool.stats().unused_bytes > before.1)
    }

    /// Looks at some slabs; returns whether all are known. A step every now and then suffices.
    fn learn(&mut self, pool: &Pool) -> bool {
        let began = Instant::now();
        let learned = pool.learn_spare(SLABS_PER_STEP);
        self.knows_all = matches!(learned, Ok(false));
        // A pool that refuses is asked again later.
        if learned.is_ok_and(|more| more) {
            let ended = Instant::now();
            self.next = ended + pause(ended - began, LEARNING_PERCENT);
        }
        self.knows_all
    }

    /// Looks at some holes; returns whether all were looked at. A step every now and then suffices.
    fn survey(&mut self, pool: &Pool) -> bool {
        let began = Instant::now();
        let (_, has_ended) = pool.survey_spare();
        if !has_ended {
            let ended = Instant::now();
            self.next = ended + pause(ended - began, LEARNING_PERCENT);
        }
        has_ended
    }

    /// Begins a compaction, if one is due; returns whether it has. `may_cut`: the file may become shorter
    /// first.
    fn begin(&mut self, pool: &Pool, settings: &CompactionSettings, now: Instant, may_cut: bool) -> bool {
        let (stats, (spare, _)) = (pool.stats(), pool.survey_spare());
        let (percent, worth_of_end) = (self.percent_of_thresholds(), self.worth_of_end(stats.pool_bytes));
        let live = stats.used_bytes().saturating_sub(spare).max(1);
        let waste_percent = (u128::from(spare) * 100 / u128::from(live)) as u64;
        let is_due = settings.is_on
            && spare >= (settings.least_bytes / 100 * percent).max(self.not_below)
            && waste_percent * 100 >= settings.lower_percent * percent;
        self.is_asked = std::mem::take(&mut self.is_wanted);
        // Much of the file is free, but not its end.
        let is_long = settings.is_on
            && stats.pool_bytes > pool.min_bytes()
            && stats.unused_bytes >= worth_of_end.max(self.unused_not_below);
        let may_cut = may_cut && (is_long || self.is_asked);
        if may_cut && self.cut(pool) && !self.is_asked {
            // A compaction, if one is still worth it, begins when the file is as short as it can be.
            self.next = now;
            return false;
        }
        if !is_due && !self.is_asked && !is_long {
            return false;
        }
        self.cycle = cycle(settings, waste_percent);
        let begun = if is_due || self.is_asked { pool.compaction() } else { pool.tail_compaction() };
        self.running = begun.ok().flatten();
        if self.running.is_none() && is_long {
            self.unused_not_below = pool.stats().unused_bytes + worth_of_end;
        }
        (self.unused_before, self.length_before) = (pool.stats().unused_bytes, pool.stats().pool_bytes);
        self.since = self.running.is_some().then_some(now);
        if self.running.is_none() && (is_due || self.is_asked) {
            self.not_below = spare + WORTH_BYTES;
        }
        self.running.is_some()
    }

    /// Makes a step of the running one; returns whether there is more to do.
    fn step(&mut self, pool: &Pool, budget: Duration) -> bool {
        let Some(running) = &mut self.running else { return false };
        let started = Instant::now();
        let outcome = running.step(budget);
        self.spent += started.elapsed();
        match outcome {
            Ok(true) => return true,
            Ok(false) => self.finish(pool),
            Err(_) => self.running = None,
        }
        self.since = None;
        false
    }

    fn finish(&mut self, pool: &Pool) {
        let Some(running) = self.running.take() else { return };
        self.moved_bytes += running.moved_bytes();
        self.trimming = running.begin_finish().ok();
        if self.trimming.is_none() {
            self.note_gain(pool, false);
        }
    }

    /// Decides from the space that a compaction has freed when another one is worth it, and begins to cut the
    /// file.
    fn note_gain(&mut self, pool: &Pool, is_done: bool) {
        self.finished += 1;
        let unused = pool.stats().unused_bytes;
        let gained = is_done && (unused > self.unused_before) | self.cut(pool);
        self.not_below = if gained { 0 } else { pool.survey_spare().0 + WORTH_BYTES };
        self.unused_not_below = if gained { 0 } else { unused + self.worth_of_end(pool.stats().pool_bytes) };
    }

    /// Begins to cut the file, if its end is free; returns whether it became shorter. On request, to the last
    /// block in use; otherwise some room for growth is left. Further steps follow.
    fn cut(&mut self, pool: &Pool) -> bool {
        let (least, slack) = match (self.is_asked, self.is_eager) {
            (true, _) => (1 << 20, 0),
            (false, true) => {
                let room = (pool.stats().pool_bytes / 64).max(RESTING_ROOM_BYTES);
                (room, room)
            }
            (false, false) => (pool.room_for_growth(), pool.room_for_growth()),
        };
        self.cut_step(pool, least, slack)
    }

    fn cut_step(&mut self, pool: &Pool, least_bytes: u64, slack_bytes: u64) -> bool {
        let bytes = pool.cut_by(least_bytes, slack_bytes, CUT_STEP_BYTES).unwrap_or(0);
        self.cut_bytes += bytes;
        self.cutting = (bytes > 0).then_some((slack_bytes, pool.stats().pool_bytes));
        bytes > 0
    }
}

/// The pause after a step that took this long, so that steps take this percentage of time.
fn pause(took: Duration, cycle: u64) -> Duration {
    took * (100 - cycle) as u32 / cycle as u32
}

/// The percentage of time that steps may take with this waste.
fn cycle(settings: &CompactionSettings, waste_percent: u64) -> u64 {
    let CompactionSettings { lower_percent, upper_percent, cycle_min_percent, cycle_max_percent, .. } =
        settings;
    let (least, most) = (*cycle_min_percent, (*cycle_max_percent).max(*cycle_min_percent));
    let span = upper_percent.saturating_sub(*lower_percent).max(1);
    let above = waste_percent.saturating_sub(*lower_percent).min(span);
    (least + (most - least) * above / span).clamp(1, 99)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_pool(bytes: u64, most_bytes: Option<u64>) -> (tempfile::TempDir, Pool) {
        let directory = tempfile::tempdir().unwrap();
        let options = tembo::Options::new().durability(tembo::Durability::PageCache).create(true);
        let options = options.initial_bytes(bytes).compact_unasked(false);
        let options = most_bytes.map_or(options.clone(), |most_bytes| options.max_bytes(most_bytes));
        let pool = options.open(directory.path().join("pool")).unwrap();
        (directory, pool)
    }

    #[test]
    fn the_share_of_time_rises_with_the_waste() {
        let settings = CompactionSettings::default();
        for (waste, expected) in [(0, 5), (25, 5), (60, 7), (100, 10), (900, 10)] {
            assert_eq!(cycle(&settings, waste), expected, "{waste}");
        }
        let same = CompactionSettings { upper_percent: 10, cycle_max_percent: 1, ..settings };
        assert_eq!(cycle(&same, 30), 5);
        let pauses = [1, 25, 50, 100].map(|cycle| pause(STEP, cycle).as_millis());
        assert_eq!(pauses, [99, 3, 1, 0]);
    }

    /// A pool grows a little beside most compactions. If that gave them all of the time, clients would wait
    /// for each.
    #[test]
    fn a_little_growth_beside_a_compaction_does_not_give_it_all_of_the_time() {
        let (_directory, pool) = new_pool(500 << 20, None);
        let map = pool.open_map("map").unwrap();
        let key = |i: u32| i.to_be_bytes();
        (0..400_000).for_each(|i| _ = map.put(key(i), [1; 1000]).unwrap());
        (0..400_000).filter(|i| i % 10 > 0).for_each(|i| _ = map.remove(key(i)).unwrap());
        let (settings, mut compactor) = (CompactionSettings::default(), Compactor::new());
        let mut now = Instant::now() + LOOK_PERIOD;
        while !compactor.is_running() {
            compactor.run(&pool, &settings, now, 1);
            now += LOOK_PERIOD;
        }
        // The lengths at which it made way for clients, and the first at which it did not.
        let mut lengths = vec![pool.stats().pool_bytes];
        for i in 400_000.. {
            map.put(key(i), [2; 10_000]).unwrap();
            compactor.run(&pool, &settings, Instant::now(), i.into());
            assert!(compactor.is_running(), "it has ended too early for the test: {lengths:?}");
            lengths.push(pool.stats().pool_bytes);
            lengths.dedup();
            if compactor.cycle == 100 {
                break;
            }
        }
        println!("{lengths:?}");
        let (first, last) = (lengths[0], lengths[lengths.len() - 1]);
        assert!(lengths.len() > 2 && last > first + first / GROWTH_SHARE, "{lengths:?}");
    }

    /// Holes of a sixth of the space in use wait for clients to rest; then the file becomes nearly as short
    /// as its contents.
    #[test]
    fn a_pool_becomes_denser_while_clients_rest() {
        let (_directory, pool) = new_pool(1 << 20, None);
        let map = pool.open_map("map").unwrap();
        let key = |i: u32| i.to_be_bytes();
        (0..100_000).for_each(|i| _ = map.put(key(i), [1; 1000]).unwrap());
        (0..30_000).filter(|i| i % 2 == 0).for_each(|i| _ = map.remove(key(i)).unwrap());
        let (settings, mut compactor) = (CompactionSettings::default(), Compactor::new());
        let (mut now, mut commands) = (Instant::now(), 0);
        let mut look = |compactor: &mut Compactor, more| {
            now += LOOK_PERIOD;
            commands += more;
            compactor.run(&pool, &settings, now, commands);
        };
        // The first looks learn the holes.
        for _ in 0..100 {
            look(&mut compactor, 1000);
            assert!(!compactor.is_running(), "it begins beside clients");
        }
        let before = pool.stats().pool_bytes;
        for _ in 0..10_000 {
            look(&mut compactor, 50);
        }
        let (stats, spare) = (pool.stats(), pool.spare_bytes());
        assert!(compactor.finished() > 0 && stats.pool_bytes < before, "{before}, {stats:?}");
        let unused = stats.unused_bytes + spare;
        println!("{before} bytes before, {} after, {unused} of them unused", stats.pool_bytes);
        assert!(unused < stats.pool_bytes / 8, "{unused} unused of {}", stats.pool_bytes);
    }

    /// To free a gibibyte takes tmpfs a third of a second, in which no client would be served: no call frees
    /// more than a millisecond's worth.
    #[test]
    fn the_file_becomes_shorter_in_short_steps() {
        let (_directory, pool) = new_pool(1 << 20, None);
        let map = pool.open_map("map").unwrap();
        let key = |i: u32| i.to_be_bytes();
        (0..200_000).for_each(|i| _ = map.put(key(i), [1; 1000]).unwrap());
        (1000..200_000).for_each(|i| _ = map.remove(key(i)).unwrap());
        let blocks = || std::os::unix::fs::MetadataExt::blocks(&pool.path().unwrap().metadata().unwrap());
        let (settings, mut compactor) = (CompactionSettings::default(), Compactor::new());
        let (mut now, mut most) = (Instant::now(), 0);
        let before = blocks() * 512;
        for _ in 0..1000 {
            now += LOOK_PERIOD;
            let was = blocks();
            compactor.run(&pool, &settings, now, 1);
            most = most.max(was.saturating_sub(blocks()) * 512);
        }
        println!("{before} bytes before, {} after, {most} in a step at most", blocks() * 512);
        assert!(before > 200 << 20 && blocks() * 512 < before / 8, "{before}, {}", blocks() * 512);
        assert!(most > 0 && most <= CUT_STEP_BYTES + (1 << 20), "{most} bytes in a step");
    }

    /// A compaction that is under way when the pool becomes full has slabs that were chosen long ago, and
    /// clients have taken the space that it freed or needs. Writes are not refused for that.
    #[test]
    fn a_full_pool_is_compacted_anew_if_the_compaction_under_way_makes_no_room() {
        let (_directory, pool) = new_pool(64 << 20, Some(64 << 20));
        let map = pool.open_map("map").unwrap();
        let settings = CompactionSettings { least_bytes: 4 << 20, ..CompactionSettings::default() };
        let (mut compactor, mut now) = (Compactor::new(), Instant::now());
        let mut run = |compactor: &mut Compactor| {
            now += LOOK_PERIOD;
            compactor.run(&pool, &settings, now, 1);
        };
        let put = |i: u32, bytes| map.put(i.to_be_bytes(), vec![1; bytes]);
        let count = (0..).take_while(|&i| put(i, 100).is_ok()).count() as u32;
        let remove = |i: u32| assert!(map.remove(i.to_be_bytes()).unwrap());
        // Half of the keys go: a third of the pool becomes free. Then a fifth goes.
        (0..count).filter(|i| i % 2 > 0).for_each(remove);
        while compactor.finished() == 0 {
            run(&mut compactor);
        }
        let mut gone = (0..count).filter(|i| i % 10 < 4 && i % 2 == 0);
        while !compactor.is_running() {
            gone.by_ref().take(1000).for_each(remove);
            run(&mut compactor);
        }
        gone.for_each(remove);
        let (mut long, mut compactions) = (0, 0);
        loop {
            match put(count + long, 1000) {
                Ok(_) => long += 1,
                Err(_) if compactor.make_room(&pool, &settings, Instant::now()) => compactions += 1,
                Err(_) => break,
            }
        }
        // A pool of which less than an eighth is free, in pieces, counts as full.
        let free = pool.stats().unused_bytes + pool.spare_bytes();
        println!("{free} bytes free after {compactions} compactions, with {long} long values");
        assert!(free <= (64 << 20) / 8 + WORTH_BYTES_IF_FULL, "{free} bytes free when a write is refused");
    }
}
