//! A program whose threads transfer between accounts of two keyspaces and enter each transfer into a
//! journal, killed with SIGKILL at any moment: what was acknowledged is there, under the number that was
//! acknowledged; in the current snapshot and in every kept one the accounts have the whole money, and each
//! has what the journal says; nothing is leaked, and the next process goes on with the same file.
//!
//! `TEMBO_KILLS=200 cargo test --release -p tembo-store --test kill -- --nocapture` is the long campaign;
//! `TEMBO_KILL_SEED` repeats one.
#![forbid(unsafe_code)]

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tembo_pool::{ErrorKind, Options, Pool};
use tembo_store::{Error, Keyspace, Retention, Snapshot, Store, Transaction};

/// Where the child finds its pool; only a child has it.
const PATH: &str = "TEMBO_STORE_STRESS_PATH";
const SEED: &str = "TEMBO_STORE_STRESS_SEED";
const MUTANT: &str = "TEMBO_STORE_STRESS_MUTANT";

const THREADS: u64 = 4;
/// Accounts of each of the two keyspaces, and what each has at first.
const ACCOUNTS: u64 = 12;
const MONEY: i64 = 1000;
/// The journal is closed when it has so many entries.
const JOURNAL_MAX: usize = 3000;
/// How long the lock of a process that was killed may be there.
const LOCK_MAX: Duration = Duration::from_secs(5);
/// Commits that a thread asks for together.
const TOGETHER: u64 = 4;

/// How the program is broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    None,
    AcknowledgesTooEarly,
    TransfersInHalves,
    /// The entry in the journal is a transaction of its own.
    JournalApart,
}

impl Mutant {
    const ALL: [Mutant; 3] = [Mutant::AcknowledgesTooEarly, Mutant::TransfersInHalves, Mutant::JournalApart];
}

struct Bank {
    store: Store,
    /// Checking and savings.
    accounts: [Keyspace; 2],
    journal: Keyspace,
    /// The balances of the accounts when the journal was last closed.
    closed: Keyspace,
}

/// Both sides of a transfer: which keyspace, and which account.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    from: (u64, u64),
    to: (u64, u64),
    amount: i64,
}

fn as_i64(value: &[u8]) -> i64 {
    i64::from_le_bytes(value.try_into().expect("a balance has eight bytes"))
}

fn account((keyspace, account): (u64, u64)) -> Vec<u8> {
    format!("{keyspace}/{account:03}").into_bytes()
}

impl Bank {
    fn open(path: &Path) -> Result<Bank, Error> {
        let store = Store::open(&open_pool(path)?, "bank")?;
        let accounts = [store.keyspace("checking")?, store.keyspace("savings")?];
        let (journal, closed) = (store.keyspace("journal")?, store.keyspace("closed")?);
        let bank = Bank { store, accounts, journal, closed };
        bank.store.transact(|tx| {
            // The first process, or one that was killed before this was durable.
            if tx.get(&bank.closed, account((0, 0)))?.is_none() {
                for at in all_accounts() {
                    tx.put(&bank.accounts[at.0 as usize], account(at), MONEY.to_le_bytes())?;
                    tx.put(&bank.closed, account(at), MONEY.to_le_bytes())?;
                }
            }
            Ok(())
        })?;
        Ok(bank)
    }

    fn add(&self, tx: &mut Transaction, at: (u64, u64), amount: i64) -> Result<(), Error> {
        let keyspace = &self.accounts[at.0 as usize];
        let balance = as_i64(&tx.get(keyspace, account(at))?.expect("every account is there"));
        // Some values lie in their words, and some do not: what is not needed has no weight here.
        tx.put(keyspace, account(at), (balance + amount).to_le_bytes())
    }

    fn enter(&self, tx: &mut Transaction, key: &[u8], transfer: Transfer) -> Result<(), Error> {
        let Transfer { from, to, amount } = transfer;
        let mut entry = Vec::new();
        for number in [from.0, from.1, to.0, to.1, amount as u64] {
            entry.extend_from_slice(&number.to_le_bytes());
        }
        // Sometimes long, so that the record takes two fences.
        entry.resize(entry.len() + [0, 0, 0, 60, 3000][amount as usize % 5], 7);
        tx.put(&self.journal, key, entry)
    }

    /// Every balance as the journal has it, and as the account has it.
    fn prove(&self, snapshot: &Snapshot) -> Result<BTreeMap<Vec<u8>, Transfer>, String> {
        let mut balances = BTreeMap::new();
        for entry in snapshot.iter(&self.closed).map_err(text)? {
            let (key, value) = entry.map_err(text)?;
            balances.insert(key, as_i64(&value));
        }
        let mut journal = BTreeMap::new();
        for entry in snapshot.iter(&self.journal).map_err(text)? {
            let (key, entry) = entry.map_err(text)?;
            let number = |i: usize| u64::from_le_bytes(entry[8 * i..8 * i + 8].try_into().expect("a word"));
            let (from, to) = ((number(0), number(1)), (number(2), number(3)));
            let transfer = Transfer { from, to, amount: number(4) as i64 };
            *balances.entry(account(transfer.from)).or_insert(0) -= transfer.amount;
            *balances.entry(account(transfer.to)).or_insert(0) += transfer.amount;
            journal.insert(key, transfer);
        }
        let mut found = BTreeMap::new();
        for keyspace in &self.accounts {
            for entry in snapshot.iter(keyspace).map_err(text)? {
                let (key, value) = entry.map_err(text)?;
                found.insert(key, as_i64(&value));
            }
        }
        let sum: i64 = found.values().sum();
        let expected = if found.is_empty() { 0 } else { 2 * ACCOUNTS as i64 * MONEY };
        if sum != expected {
            return Err(format!("the sum is {sum} in snapshot {}", snapshot.number()));
        }
        if found != balances {
            return Err(format!("accounts and journal differ in snapshot {}", snapshot.number()));
        }
        Ok(journal)
    }

    /// Moves the journal into the balances from which it counts.
    fn close_journal(&self) -> Result<(), Error> {
        self.store.transact(|tx| {
            for at in all_accounts() {
                let balance = tx.get(&self.accounts[at.0 as usize], account(at))?.expect("it is there");
                tx.put(&self.closed, account(at), balance)?;
            }
            tx.delete_range::<Vec<u8>>(&self.journal, ..).map(drop)
        })?;
        Ok(())
    }
}

/// Opens the pool, which the process before had open that was killed.
///
/// That process is gone: its parent has waited for it. Its lock may be there nevertheless for some
/// milliseconds. The lock goes with the last reference to the open file; the memory map has one, and whoever
/// reads the map of a process (`/proc/<pid>/smaps`, `statm`, `cmdline`, as monitors do) has the map until it
/// is done.
fn open_pool(path: &Path) -> Result<Pool, Error> {
    let mut options = Options::new();
    (options.create, options.initial_bytes) = (true, 4 << 20);
    let start = Instant::now();
    loop {
        match Pool::open(path, &options) {
            Err(e) if matches!(e.kind(), ErrorKind::Locked { .. }) && start.elapsed() < LOCK_MAX => {
                std::thread::sleep(Duration::from_millis(1));
            }
            outcome => return Ok(outcome?),
        }
    }
}

fn all_accounts() -> impl Iterator<Item = (u64, u64)> {
    (0..2).flat_map(|keyspace| (0..ACCOUNTS).map(move |account| (keyspace, account)))
}

fn text(e: impl ToString) -> String {
    e.to_string()
}

/// Says on standard error that something is durable, or will be.
fn say(line: String) {
    // One write for each line, so that lines of different threads do not mix. Nobody listens any more when
    // the parent is gone.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

fn journal_key(thread: u64, process: u64, i: u64) -> Vec<u8> {
    [thread, process, i].iter().flat_map(|number| number.to_be_bytes()).collect()
}

/// Transfers of one thread.
fn transfer(bank: &Bank, (thread, process): (u64, u64), mutant: Mutant) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(process * THREADS + thread);
    let mut next = 0;
    loop {
        let count = if rng.random_ratio(1, 4) { TOGETHER } else { 1 };
        let mut commits = Vec::new();
        for _ in 0..count {
            let side = |rng: &mut Xoshiro256PlusPlus| (rng.random_range(0..2), rng.random_range(0..ACCOUNTS));
            let transfer =
                Transfer { from: side(&mut rng), to: side(&mut rng), amount: rng.random_range(1..50) };
            let key = journal_key(thread, process, next);
            let said = format!("{thread} {process} {next}");
            next += 1;
            let mut tx = bank.store.begin();
            bank.add(&mut tx, transfer.from, -transfer.amount).expect("it can be read");
            if mutant == Mutant::TransfersInHalves {
                if tx.commit().is_err() {
                    continue;
                }
                tx = bank.store.begin();
            }
            bank.add(&mut tx, transfer.to, transfer.amount).expect("it can be read");
            if mutant == Mutant::JournalApart {
                if tx.commit().is_err() {
                    continue;
                }
                tx = bank.store.begin();
            }
            bank.enter(&mut tx, &key, transfer).expect("it can be written");
            if mutant == Mutant::AcknowledgesTooEarly {
                say(format!("done {said} 0\n"));
            }
            commits.push((said, tx.commit_async()));
        }
        for (said, commit) in commits {
            match commit.wait() {
                Ok(number) if mutant != Mutant::AcknowledgesTooEarly => {
                    say(format!("done {said} {number}\n"))
                }
                Ok(_) => {}
                Err(e) if e.is_conflict() => {}
                Err(e) => panic!("{e}"),
            }
        }
    }
}

/// Keeps and deletes snapshots, collects, and changes what is retained.
fn tend(bank: &Bank, process: u64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(!process);
    let mut names: Vec<String> =
        bank.store.kept().expect("it can be read").into_iter().filter_map(|kept| kept.name).collect();
    for i in 0.. {
        match rng.random_range(0..8) {
            0..3 if names.len() < 5 => {
                let (name, snapshot) = (format!("{process}-{i}"), bank.store.snapshot());
                let number = snapshot.number();
                say(format!("keeping {name} {number}\n"));
                bank.store.keep(number, &name).expect("somebody has it open");
                say(format!("kept {name} {number}\n"));
                names.push(name);
            }
            0..5 if !names.is_empty() => {
                let name = names.swap_remove(rng.random_range(0..names.len()));
                say(format!("deleting {name} 0\n"));
                bank.store.delete_kept(&name).expect("it is kept");
                say(format!("deleted {name} 0\n"));
            }
            5 => {
                let kinds =
                    [Retention::None, Retention::Versions(2), Retention::For(Duration::from_millis(1))];
                bank.store
                    .set_retention(&bank.accounts[0], kinds[rng.random_range(0..3)])
                    .expect("the pool is sound");
            }
            _ => _ = bank.store.collect(rng.random_range(1..100)).expect("the pool is sound"),
        }
        std::thread::sleep(Duration::from_micros(rng.random_range(0..300)));
    }
}

/// Runs in the child, until it is killed.
#[test]
fn stress_program() {
    let Ok(path) = std::env::var(PATH) else { return };
    let process = env_number(SEED).expect("the parent gives a number");
    let mutant =
        env_number(MUTANT).and_then(|i| Mutant::ALL.get(i as usize).copied()).unwrap_or(Mutant::None);
    let bank = Bank::open(Path::new(&path)).expect("the pool opens");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let bank = &bank;
            scope.spawn(move || transfer(bank, (thread, process), mutant));
        }
        scope.spawn(|| tend(&bank, process));
        // A reader looks while the others write; of a broken program, it is the parent that has to notice.
        if mutant != Mutant::None {
            return;
        }
        loop {
            bank.prove(&bank.store.snapshot()).unwrap_or_else(|e| panic!("{e}"));
            std::thread::sleep(Duration::from_millis(3));
        }
    });
}

/// The state of a kept snapshot, as far as it was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// It is being kept, or deleted.
    Maybe,
    Yes(u64),
}

struct Campaign<'c> {
    path: &'c Path,
    mutant: Mutant,
    rng: Xoshiro256PlusPlus,
    process: u64,
    /// The entries that were acknowledged since the journal was closed: key and number.
    entered: BTreeMap<Vec<u8>, u64>,
    kept: BTreeMap<String, Kept>,
    acknowledged: u64,
    snapshots: u64,
}

impl Campaign<'_> {
    fn start(&self) -> Child {
        let mutant =
            Mutant::ALL.iter().position(|mutant| *mutant == self.mutant).unwrap_or(Mutant::ALL.len());
        Command::new(std::env::current_exe().expect("a test knows its program"))
            .args(["--exact", "stress_program", "--nocapture", "--test-threads", "1"])
            .env(PATH, self.path)
            .env(SEED, self.process.to_string())
            .env(MUTANT, mutant.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the child starts")
    }

    /// Runs the program for a while, kills it, and proves what it left.
    fn kill_once(&mut self) -> Result<(), String> {
        self.process += 1;
        let mut child = self.start();
        let said = BufReader::new(child.stderr.take().expect("it is piped"));
        let (has_begun, begun) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            let note = |line: &String| _ = has_begun.send(line.len());
            said.lines().map_while(Result::ok).inspect(note).collect::<Vec<_>>()
        });
        // Some are killed while they open the pool, or recover it; most are killed at work.
        if self.rng.random_ratio(3, 4) {
            let _ = begun.recv_timeout(Duration::from_secs(5));
        }
        std::thread::sleep(Duration::from_millis(self.rng.random_range(0..60)));
        child.kill().expect("SIGKILL is delivered");
        child.wait().expect("the child is gone");
        let said = reader.join().expect("lines are text");
        for line in &said {
            self.note(line).ok_or_else(|| format!("the program says: {said:?}"))?;
        }
        // Sometimes another process comes, and is killed, before anybody looks.
        if !self.path.exists() || self.rng.random_ratio(1, 4) {
            return Ok(());
        }
        self.prove()
    }

    fn note(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |i: usize| words.get(i)?.parse::<u64>().ok();
        match words.first().copied()? {
            "done" => {
                let key = journal_key(number(1)?, number(2)?, number(3)?);
                self.entered.insert(key, number(4)?);
                self.acknowledged += 1;
            }
            "kept" => _ = self.kept.insert(words[1].to_owned(), Kept::Yes(number(2)?)),
            "keeping" | "deleting" => _ = self.kept.insert(words[1].to_owned(), Kept::Maybe),
            "deleted" => _ = self.kept.remove(words[1]),
            _ => return None,
        }
        Some(())
    }

    fn prove(&mut self) -> Result<(), String> {
        let bank = Bank::open(self.path).map_err(text)?;
        let store = &bank.store;
        let mut marks = store.pool().marks().map_err(text)?;
        store.check(&mut marks).map_err(text)?;
        marks.finish().map_err(text)?;
        let journal = bank.prove(&store.snapshot())?;
        for (key, number) in &self.entered {
            if !journal.contains_key(key) {
                return Err(format!("lost, though acknowledged as {number}: {key:?}"));
            }
            let versions = store.versions(&bank.journal, key).map_err(text)?;
            if self.mutant == Mutant::None && versions.first().map(|version| version.number) != Some(*number)
            {
                return Err(format!("acknowledged as {number}, and found as {versions:?}: {key:?}"));
            }
        }
        let found: BTreeMap<String, u64> = store
            .kept()
            .map_err(text)?
            .into_iter()
            .filter_map(|kept| Some((kept.name?, kept.number)))
            .collect();
        for (name, kept) in &self.kept {
            match (found.get(name), kept) {
                (Some(found), Kept::Yes(number)) if found == number => {}
                (_, Kept::Maybe) => {}
                (found, kept) => return Err(format!("the snapshot {name}: {kept:?}, and found {found:?}")),
            }
        }
        if let Some(name) = found.keys().find(|name| !self.kept.contains_key(*name)) {
            return Err(format!("the snapshot {name} was deleted, or nobody kept it"));
        }
        for name in found.keys() {
            bank.prove(&store.at_name(name).map_err(text)?)?;
            self.snapshots += 1;
        }
        self.kept = found.into_iter().map(|(name, number)| (name, Kept::Yes(number))).collect();
        if journal.len() > JOURNAL_MAX {
            bank.close_journal().map_err(text)?;
            bank.prove(&store.snapshot())?;
            self.entered.clear();
        }
        Ok(())
    }
}

fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Kills until something is wrong; returns how much was acknowledged, and how many kept snapshots were read.
fn campaign(kills: u64, seed: u64, mutant: Mutant) -> Result<(u64, u64), String> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("kill.pool");
    let mut campaign = Campaign {
        path: &path,
        mutant,
        rng: Xoshiro256PlusPlus::seed_from_u64(seed),
        process: seed << 16,
        entered: BTreeMap::new(),
        kept: BTreeMap::new(),
        acknowledged: 0,
        snapshots: 0,
    };
    for kill in 0..kills {
        campaign.kill_once().map_err(|e| format!("kill {kill} of seed {seed}: {e}"))?;
    }
    campaign.prove().map_err(|e| format!("at the end of seed {seed}: {e}"))?;
    Ok((campaign.acknowledged, campaign.snapshots))
}

#[test]
fn acknowledged_transfers_and_kept_snapshots_survive_kill_9() {
    let kills = env_number("TEMBO_KILLS").unwrap_or(20);
    let seed = env_number("TEMBO_KILL_SEED").unwrap_or(0xEC40);
    let (acknowledged, snapshots) =
        campaign(kills, seed, Mutant::None).unwrap_or_else(|e| panic!("TEMBO_KILL_SEED={seed}: {e}"));
    println!(
        "{kills} kills (seed {seed}): {acknowledged} acknowledged transfers, none lost; {snapshots} kept snapshots read, all whole"
    );
    assert!(acknowledged > 20 * kills, "the load was too light to mean anything: {acknowledged}");
    assert!(snapshots > 0, "no snapshot was kept");
}

#[test]
fn broken_programs_are_caught() {
    for mutant in Mutant::ALL {
        let caught = (0..5).find_map(|seed| campaign(40, seed, mutant).err());
        println!("{mutant:?}: {}", caught.unwrap_or_else(|| panic!("{mutant:?} was not caught")));
    }
}
