//! A program whose threads work on a heap, killed with SIGKILL at any moment: every count is exact, nothing
//! is leaked, what was acknowledged is there, and the next process goes on with the same file.
//!
//! `TEMBO_KILLS=2000 cargo test --release -p tembo-heap --test kill -- --nocapture` is the long campaign;
//! `TEMBO_KILL_SEED` repeats one.
//!
//! Each thread performs operations that depend on the seed, the thread and their number alone, on objects of
//! its own and on some that all share; each says on standard error that a transaction is durable. The parent
//! performs the same on a model ([`plot`]), as far as the heap says that each thread came, and compares.

mod plot;
mod read;
mod stress;

use plot::{Plot, THREADS};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use read::Found;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;
use stress::{Garden, Gardens, Mutant};
use tembo_heap::{Heap, Options, Summary, check};
use tembo_pool::Pool;

/// Where the child finds its heap; only a child has it.
const PATH: &str = "TEMBO_HEAP_STRESS_PATH";
const SEED: &str = "TEMBO_HEAP_STRESS_SEED";
const MUTANT: &str = "TEMBO_HEAP_STRESS_MUTANT";

fn options(create: bool, read_only: bool) -> Options {
    Options::new().create(create).read_only(read_only).initial_bytes(4 << 20).max_bytes(256 << 20)
}

/// The program of the child, until it is killed.
#[test]
fn stress_program() {
    let Ok(path) = std::env::var(PATH) else { return };
    let seed = env_number(SEED).expect("the parent gives a seed");
    let mutant = Mutant::named(&std::env::var(MUTANT).unwrap_or_default());
    let pool = Pool::open(path, &options(true, false)).expect("the pool opens");
    let heap = Heap::<Gardens, Garden>::open_pool(pool.clone()).expect("the heap opens");
    stress::run(&heap, &pool, seed, mutant);
}

struct Campaign<'c> {
    path: &'c Path,
    seed: u64,
    mutant: Mutant,
    rng: Xoshiro256PlusPlus,
    models: Vec<Plot>,
    /// Transactions that were acknowledged, orphans, dying objects and shells that processes left.
    acknowledged: u64,
    left: [u64; 3],
}

impl Campaign<'_> {
    fn start(&self) -> Child {
        Command::new(std::env::current_exe().expect("a test knows its program"))
            .args(["--exact", "stress_program", "--nocapture", "--test-threads", "1"])
            .env(PATH, self.path)
            .env(SEED, self.seed.to_string())
            .env(MUTANT, self.mutant.name())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the child starts")
    }

    /// Runs the program for a while, kills it, and proves what it left.
    fn kill_once(&mut self) -> Result<(), String> {
        let patience = Duration::from_millis(self.rng.random_range(0..60));
        let mut child = self.start();
        let said = BufReader::new(child.stderr.take().expect("it is piped"));
        let reader = std::thread::spawn(move || said.lines().map_while(Result::ok).collect::<Vec<_>>());
        std::thread::sleep(patience);
        child.kill().expect("SIGKILL is delivered");
        child.wait().expect("the child is gone");
        let mut acknowledged = [0; THREADS];
        let lines = reader.join().expect("lines are read");
        for line in &lines {
            let mut words = line.split(' ');
            let (Some("done"), Some(thread), Some(number)) = (words.next(), words.next(), words.next())
            else {
                let said: Vec<&String> = lines.iter().filter(|line| !line.starts_with("done")).collect();
                return Err(format!("the program says: {said:?}"));
            };
            let thread: usize = thread.parse().map_err(|_| line.clone())?;
            acknowledged[thread] = number.parse().map_err(|_| line.clone())?;
            self.acknowledged += 1;
        }
        self.prove(acknowledged)
    }

    /// Reads the file as the kill has left it; sometimes opens it for writing too, so that the next process
    /// finds it in different states.
    fn prove(&mut self, acknowledged: [u64; THREADS]) -> Result<(), String> {
        if !self.path.exists() {
            return Ok(());
        }
        let Some(left) = self.look()? else { return Ok(()) };
        self.left = [
            self.left[0] + left.summary.orphans,
            self.left[1] + left.summary.dying,
            self.left[2] + left.summary.shells,
        ];
        for (thread, model) in self.models.iter_mut().enumerate() {
            let done = left.found.done(thread);
            let least = acknowledged[thread].max(model.done);
            if !(least..=least + 1).contains(&done) {
                return Err(format!("thread {thread} did {done} transactions and acknowledged {least}"));
            }
            while model.done < done {
                model.perform(self.seed, thread);
            }
            model.lose_handles();
        }
        left.found.compare(&self.models)?;
        match self.rng.random_range(0..3) {
            0 => Ok(()),
            collects => self.open_for_writing(collects == 2),
        }
    }

    /// A heap that was killed while it was created is none yet.
    fn look(&self) -> Result<Option<Left>, String> {
        let pool = match Pool::open(self.path, &options(false, true)) {
            Ok(pool) => pool,
            Err(_) if self.models.iter().all(|model| model.done == 0) => return Ok(None),
            Err(e) => return Err(e.to_string()),
        };
        if pool.roots().map_err(text)?.is_empty() {
            return Ok(None);
        }
        let summary = prove(&pool)?;
        let heap = Heap::<Gardens, Garden>::open_pool(pool).map_err(text)?;
        Ok(Some(Left { summary, found: Found::read(&heap)? }))
    }

    fn open_for_writing(&self, collects: bool) -> Result<(), String> {
        let heap = Heap::<Gardens, Garden>::open(self.path, options(false, false)).map_err(text)?;
        if collects {
            heap.collect().map_err(text)?;
            let summary = heap.check().map_err(text)?;
            if summary.orphans != 0 || summary.dying != 0 {
                return Err(format!("left after `collect`: {summary:?}"));
            }
        }
        Found::read(&heap)?.compare(&self.models)
    }
}

struct Left {
    summary: Summary,
    found: Found,
}

fn prove(pool: &Pool) -> Result<Summary, String> {
    let mut marks = pool.marks().map_err(text)?;
    let summary = check(pool, &mut marks).map_err(text)?;
    marks.finish().map_err(text)?;
    match summary.circles.first() {
        Some(circle) => Err(circle.to_string()),
        None => Ok(summary),
    }
}

fn text(e: impl ToString) -> String {
    e.to_string()
}

fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Kills the program so often; returns what was found wrong, and after how many kills.
fn campaign(kills: u64, seed: u64, mutant: Mutant) -> Result<(), (u64, String)> {
    // Tests run beside each other, and a heap with the brand is open once in a process.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let path = directory.path().join("kill.heap");
    let models = (0..THREADS).map(|_| Plot::default()).collect();
    let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut campaign = Campaign { path: &path, seed, mutant, rng, models, acknowledged: 0, left: [0; 3] };
    for kill in 0..kills {
        campaign.kill_once().map_err(|e| (kill, e))?;
    }
    let Campaign { acknowledged, left: [orphans, dying, shells], .. } = campaign;
    let bytes = path.metadata().expect("the heap's file").len();
    println!(
        "{kills} kills (seed {seed}): {acknowledged} acknowledged transactions, none lost; the dead processes left {orphans} orphans, \
         {dying} dying objects and {shells} shells; {bytes} bytes"
    );
    assert!(acknowledged > 20 * kills, "the load was too light to mean anything: {acknowledged}");
    assert!(kills < 50 || orphans.min(dying).min(shells) > 0, "too little was left to mean anything");
    Ok(())
}

#[test]
fn heaps_survive_kill_9() {
    let kills = env_number("TEMBO_KILLS").unwrap_or(100);
    let seed = env_number("TEMBO_KILL_SEED").unwrap_or(0x4EA9);
    if let Err((kill, e)) = campaign(kills, seed, Mutant::None) {
        panic!("kill {kill}, TEMBO_KILL_SEED={seed}: {e}");
    }
}

/// Programs with a bug each, which the campaign must notice.
#[test]
fn broken_programs_are_caught() {
    for mutant in Mutant::ALL {
        let outcome = campaign(60, 7, mutant);
        let Err((kill, e)) = outcome else { panic!("{} was not noticed", mutant.name()) };
        println!("{}: caught by kill {kill}: {e}", mutant.name());
        assert!(mutant.is_caught_by(&e), "{}: {e}", mutant.name());
    }
}
