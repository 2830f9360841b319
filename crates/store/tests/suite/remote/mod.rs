//! A store that several processes use through its owner's socket: transactions of several processes conflict
//! as those of threads do; a client that is killed leaves nothing behind; after the owner was killed, clients
//! know, and what they were told is there.
//!
//! Other processes are this program, with a role in the environment.
#![forbid(unsafe_code)]

mod streams;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};
use tembo_pool::{Options, Pool};
use tembo_store::remote::{RemoteStore, ServeOptions, serve, socket_of};
use tembo_store::{Error, Limits, Retention, Store};

const ROLE: &str = "TEMBO_REMOTE_ROLE";
const POOL: &str = "TEMBO_REMOTE_POOL";

/// The longest wait for another process; machines that test much are slow.
const PATIENCE: Duration = Duration::from_secs(60);

fn open(path: &Path) -> Store {
    let mut options = Options::new();
    (options.create, options.initial_bytes) = (true, 4 << 20);
    Store::open(&Pool::open(path, &options).unwrap(), "bank").unwrap()
}

fn prove(store: &Store) {
    let mut marks = store.pool().marks().unwrap();
    store.check(&mut marks).unwrap();
    marks.finish().unwrap();
}

/// A pool's path in a directory of its own.
fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.pool");
    (directory, path)
}

/// Another process, and the lines that it says.
struct Other {
    child: Child,
    said: BufReader<ChildStderr>,
}

impl Other {
    fn start(role: &str, pool: &Path) -> Other {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "remote::other_process", "--nocapture", "--test-threads", "1"])
            .env(ROLE, role)
            .env(POOL, pool)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        Other { child, said }
    }

    /// Waits for a line; `None` at the end of the process.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        (self.said.read_line(&mut line).unwrap() > 0).then(|| line.trim_end().to_owned())
    }

    fn wait_for(&mut self, word: &str) -> String {
        while let Some(line) = self.line() {
            if line.starts_with(word) {
                return line;
            }
        }
        panic!("the process ended before it said {word}");
    }

    /// Lets a process go on that waits.
    fn go(&mut self) {
        self.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }

    fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.said.lines().map_while(Result::ok).collect()
    }

    fn finish(mut self) {
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success(), "{rest}");
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Says a line as a whole, whoever else writes.
fn say(line: &str) {
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
}

fn number_in(value: Option<Vec<u8>>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()))
}

/// Runs in another process, as its role says.
#[test]
fn other_process() {
    let (Ok(role), Ok(pool)) = (std::env::var(ROLE), std::env::var(POOL)) else { return };
    let pool = PathBuf::from(pool);
    let connect = || RemoteStore::connect(socket_of(&pool), "bank").unwrap();
    match role.as_str() {
        "owner" => own_until_killed(&pool),
        "counter" => count(&connect()),
        "holder" => hold_until_killed(&connect()),
        "writer" => write_until_disconnected(&connect()),
        other => panic!("no role is {other}"),
    }
}

fn own_until_killed(pool: &Path) {
    let store = open(pool);
    let _serving = store.serve(socket_of(pool)).unwrap();
    say("serving");
    std::thread::sleep(PATIENCE);
}

/// Adds one to a counter, many times, and to one of its own in another keyspace.
fn count(store: &RemoteStore) {
    let (shared, own) = (store.keyspace("shared").unwrap(), store.keyspace("own").unwrap());
    say("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let mut conflicts = 0;
    for _ in 0..300 {
        let mut tries = 0;
        store
            .transact(|tx| {
                tries += 1;
                let count = number_in(tx.get(&shared, "count")?) + 1;
                // Another process comes in between now and then.
                std::thread::yield_now();
                tx.put(&shared, "count", count.to_le_bytes())?;
                tx.put(&own, format!("{}/{count}", std::process::id()), "")
            })
            .unwrap();
        conflicts += tries - 1;
    }
    say(&format!("conflicts {conflicts}"));
}

/// Holds a snapshot and a transaction.
fn hold_until_killed(store: &RemoteStore) {
    let keyspace = store.keyspace("k").unwrap();
    let snapshot = store.snapshot().unwrap();
    let mut tx = store.begin();
    tx.put(&keyspace, "of a holder", "1").unwrap();
    say(&format!("holding {}", snapshot.number()));
    std::thread::sleep(PATIENCE);
}

/// Says what it has committed, until the owner is gone; then how it found out.
fn write_until_disconnected(store: &RemoteStore) {
    let keyspace = store.keyspace("k").unwrap();
    for i in 0u64.. {
        let mut tx = store.begin();
        let outcome = tx
            .put(&keyspace, i.to_be_bytes(), i.to_le_bytes())
            .and_then(|()| tx.put(&keyspace, [&[1], &i.to_be_bytes()[..]].concat(), "the same"))
            .and_then(|()| tx.commit());
        match outcome {
            Ok(number) => say(&format!("committed {i} {number}")),
            Err(Error::Disconnected { .. }) => break,
            Err(e) => panic!("another error: {e}"),
        }
    }
    assert!(matches!(store.get(&keyspace, "x"), Err(Error::Disconnected { .. })));
    assert!(matches!(store.snapshot(), Err(Error::Disconnected { .. })));
    say("disconnected");
}

#[test]
fn all_calls_work_through_the_socket_as_they_do_at_the_owners() {
    let (_directory, path) = place();
    let store = open(&path);
    let serving = store.serve(socket_of(&path)).unwrap();
    assert_eq!(RemoteStore::names(serving.path()).unwrap(), ["bank"]);
    assert!(matches!(RemoteStore::connect(serving.path(), "other"), Err(Error::NoSuchStore { .. })));
    let remote = Store::connect(serving.path(), "bank").unwrap();
    assert_eq!((remote.name(), remote.owner()), ("bank", std::process::id()));
    assert!(remote.find_keyspace("k").unwrap().is_none());
    let keyspace = remote.keyspace_with("k", Retention::Versions(3)).unwrap();
    assert_eq!(
        (keyspace.retention(), remote.keyspaces().unwrap()),
        (Retention::Versions(3), vec!["k".into()])
    );
    assert!(matches!(remote.keyspace(""), Err(Error::Name { what: "keyspace", bytes: 0, .. })));

    let first = remote.put(&keyspace, "a", "1").unwrap();
    remote.keep(first, "first").unwrap();
    assert!(matches!(remote.keep(first, "first"), Err(Error::SnapshotExists { .. })));
    assert!(remote.keep_number(first).unwrap() && !remote.keep_number(first).unwrap());
    let old = remote.snapshot().unwrap();
    remote.put(&keyspace, "a", "2").unwrap();
    remote.delete(&keyspace, "none").unwrap();
    assert_eq!(remote.get(&keyspace, "a").unwrap().unwrap(), b"2");
    assert_eq!((old.number(), old.get(&keyspace, "a").unwrap().unwrap()), (first, b"1".to_vec()));
    assert_eq!(remote.at_name("first").unwrap().get(&keyspace, "a").unwrap().unwrap(), b"1");
    assert_eq!(remote.at(first).unwrap().get(&keyspace, "a").unwrap().unwrap(), b"1");
    let now = remote.at_time(std::time::SystemTime::now()).unwrap();
    assert_eq!(now.get(&keyspace, "a").unwrap().unwrap(), b"2");
    assert!(matches!(remote.at(u64::MAX >> 1), Err(Error::SnapshotGone { .. })));
    assert!(matches!(remote.at_name("none"), Err(Error::NoSuchSnapshot { .. })));
    let versions = remote.versions(&keyspace, "a").unwrap();
    assert_eq!(versions, store.versions(&store.keyspace("k").unwrap(), "a").unwrap());
    assert_eq!((versions.len(), remote.kept().unwrap()), (2, store.kept().unwrap()));

    // A transaction at an old snapshot conflicts with what was committed since.
    let mut tx = remote.begin_at(&old).unwrap();
    assert_eq!(tx.number().unwrap(), first);
    tx.put(&keyspace, "a", "3").unwrap();
    let Err(Error::Conflict { keyspace: named, key, snapshot, .. }) = tx.commit() else { panic!("none") };
    assert_eq!((named.as_str(), key.as_slice(), snapshot), ("k", b"a".as_slice(), first));

    remote.delete_kept("first").unwrap();
    assert!(matches!(remote.delete_kept("first"), Err(Error::NoSuchSnapshot { .. })));
    assert!(remote.delete_number(first).unwrap() && !remote.delete_number(first).unwrap());
    remote.set_retention(&keyspace, Retention::None).unwrap();
    drop(old);
    while remote.collect(100).unwrap() {}
    let long = vec![0; 65_537];
    assert!(matches!(
        remote.put(&keyspace, &long, "v"),
        Err(Error::Index(tembo_index::Error::KeyTooLong { .. }))
    ));
    assert!(remote.drop_keyspace("k").unwrap() && !remote.drop_keyspace("k").unwrap());
    assert!(matches!(remote.get(&keyspace, "a"), Err(Error::KeyspaceDropped { .. })));
    drop((remote, keyspace, now));
    wait_until("the client is gone", || serving.clients() == 0);
    prove(&store);
}

#[test]
fn ranges_are_fetched_page_by_page_from_both_ends_with_the_transactions_own_writes() {
    let (_directory, path) = place();
    let store = open(&path);
    let serving = store.serve(socket_of(&path)).unwrap();
    let remote = RemoteStore::connect(serving.path(), "bank").unwrap();
    let (here, there) = (store.keyspace("k").unwrap(), remote.keyspace("k").unwrap());
    // Several pages by the count of entries, and some by their bytes.
    store
        .transact(|tx| {
            (0..3000u32).try_for_each(|i| {
                let value = vec![i as u8; if i % 500 == 0 { 100_000 } else { 10 }];
                tx.put(&here, i.to_be_bytes(), value)
            })
        })
        .unwrap();
    let (local, snapshot) = (store.snapshot(), remote.snapshot().unwrap());
    remote.put(&there, 7u32.to_be_bytes(), "later").unwrap();
    let collect = |walk: tembo_store::remote::RemoteEntries| walk.collect::<Result<Vec<_>, _>>().unwrap();
    let all: Vec<_> = local.iter(&here).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(collect(snapshot.iter(&there).unwrap()), all);
    let back: Vec<_> = snapshot.iter(&there).unwrap().rev().collect::<Result<_, _>>().unwrap();
    assert!(back.iter().eq(all.iter().rev()));
    let bounds = 100u32.to_be_bytes()..=1900u32.to_be_bytes();
    assert_eq!(collect(snapshot.range(&there, bounds).unwrap()), all[100..=1900]);
    assert_eq!(collect(snapshot.range(&there, 5u32.to_be_bytes()..5u32.to_be_bytes()).unwrap()), []);

    // Steps from both ends meet, and see what the transaction wrote before.
    let mut tx = remote.begin_at(&snapshot).unwrap();
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = all.into_iter().collect();
    for i in (0..3200u32).step_by(7) {
        let key = i.to_be_bytes().to_vec();
        if i % 2 == 0 {
            tx.delete(&there, key.clone()).unwrap();
            model.remove(&key);
        } else {
            tx.put(&there, key.clone(), "own").unwrap();
            model.insert(key, b"own".to_vec());
        }
    }
    let mut walk = tx.range::<Vec<u8>>(&there, ..).unwrap();
    let mut expected = model.clone().into_iter();
    for step in 0.. {
        let (found, wanted) = if step % 3 == 0 {
            (walk.next_back(), expected.next_back())
        } else {
            (walk.next(), expected.next())
        };
        assert_eq!(found.transpose().unwrap(), wanted, "step {step}");
        if wanted.is_none() {
            break;
        }
    }
    assert_eq!(tx.get(&there, 7u32.to_be_bytes()).unwrap().unwrap(), b"own");
    assert!(tx.insert(&there, "new", "1").unwrap() && !tx.insert(&there, "new", "2").unwrap());
    assert!(tx.compare_and_swap(&there, "new", Some(b"1"), None).unwrap());
    assert_eq!(tx.delete_range(&there, ..100u32.to_be_bytes()).unwrap(), 92);
    assert!(matches!(tx.commit(), Err(Error::Conflict { .. })), "key 7 was written since");
}

#[test]
fn transactions_of_several_processes_conflict_as_those_of_threads() {
    let (_directory, path) = place();
    let store = open(&path);
    let serving = store.serve(socket_of(&path)).unwrap();
    let mut others: Vec<Other> = (0..3).map(|_| Other::start("counter", &path)).collect();
    others.iter_mut().for_each(|other| _ = other.wait_for("ready"));
    others.iter_mut().for_each(Other::go);
    let mut conflicts = 0;
    for other in &mut others {
        let line = other.wait_for("conflicts");
        conflicts += line["conflicts ".len()..].parse::<u64>().unwrap();
    }
    others.into_iter().for_each(Other::finish);
    println!("{conflicts} conflicts");
    let (shared, own) = (store.keyspace("shared").unwrap(), store.keyspace("own").unwrap());
    assert_eq!(number_in(store.get(&shared, "count").unwrap()), 900, "no update was lost");
    assert_eq!(store.snapshot().iter(&own).unwrap().count(), 900);
    assert!(conflicts > 0, "three processes that count together conflict");
    drop(serving);
    prove(&store);
}

#[test]
fn serializable_transactions_see_what_was_read_of_keys_and_ranges() {
    let (_directory, path) = place();
    let store = open(&path);
    let serving = store.serve(socket_of(&path)).unwrap();
    let connect = || RemoteStore::connect(serving.path(), "bank").unwrap();
    let (ann, bob) = (connect(), connect());
    let (of_ann, of_bob) = (ann.keyspace("k").unwrap(), bob.keyspace("k").unwrap());
    for (is_range, is_serializable) in [(false, true), (true, true), (false, false), (true, false)] {
        ann.transact(|tx| tx.delete_range::<Vec<u8>>(&of_ann, ..)).unwrap();
        let begin = |store: &RemoteStore| {
            if is_serializable { store.begin_serializable() } else { store.begin() }
        };
        let (mut first, mut second) = (begin(&ann), begin(&bob));
        // Each reads what the other writes.
        if is_range {
            assert_eq!(first.range(&of_ann, "b".."c").unwrap().count(), 0);
            assert_eq!(second.range(&of_bob, "a".."b").unwrap().count(), 0);
        } else {
            assert_eq!(first.get(&of_ann, "b1").unwrap(), None);
            assert_eq!(second.get(&of_bob, "a1").unwrap(), None);
        }
        first.put(&of_ann, "a1", "1").unwrap();
        second.put(&of_bob, "b1", "1").unwrap();
        first.commit().unwrap();
        let outcome = second.commit();
        assert_eq!(
            matches!(outcome, Err(Error::Conflict { .. })),
            is_serializable,
            "range {is_range}: {outcome:?}"
        );
    }
}

#[test]
fn a_client_that_is_killed_frees_its_snapshots_and_their_space() {
    let (_directory, path) = place();
    let store = open(&path);
    let serving = store.serve(socket_of(&path)).unwrap();
    let keyspace = store.keyspace("k").unwrap();
    let fill = |byte: u8| {
        store
            .transact(|tx| (0..200u32).try_for_each(|i| tx.put(&keyspace, i.to_be_bytes(), vec![byte; 1000])))
    };
    fill(1).unwrap();
    let mut holder = Other::start("holder", &path);
    let held: u64 = holder.wait_for("holding")["holding ".len()..].parse().unwrap();
    fill(2).unwrap();
    while store.collect(1000).unwrap() {}
    let old_bytes = || {
        while store.collect(1000).unwrap() || !store.space().unwrap().is_counted {}
        store.space().unwrap().old_bytes
    };
    let while_held = old_bytes();
    assert!(while_held >= 200 * 1000, "the holder's versions stay: {while_held}");
    assert_eq!(store.at(held).unwrap().get(&keyspace, 5u32.to_be_bytes()).unwrap().unwrap(), vec![1; 1000]);
    holder.kill();
    wait_until("the client is gone", || serving.clients() == 0);
    let after = old_bytes();
    assert!(after < 1000, "they are collected after its death: {after}");
    assert!(store.get(&keyspace, "of a holder").unwrap().is_none(), "its transaction is forgotten");
    prove(&store);
}

#[test]
fn after_the_owner_was_killed_clients_know_and_what_was_acknowledged_is_there() {
    let (_directory, path) = place();
    for round in 0..3 {
        // The socket of the owner that was killed is there, and is replaced.
        assert_eq!(socket_of(&path).exists(), round > 0);
        let mut owner = Other::start("owner", &path);
        owner.wait_for("serving");
        let mut writer = Other::start("writer", &path);
        let mut acknowledged = vec![writer.wait_for("committed")];
        std::thread::sleep(Duration::from_millis(30));
        owner.kill();
        while let Some(line) = writer.line() {
            if line == "disconnected" {
                break;
            }
            acknowledged.push(line);
        }
        writer.finish();
        let store = open(&path);
        prove(&store);
        let keyspace = store.find_keyspace("k").unwrap().unwrap();
        for line in acknowledged.iter().filter_map(|line| line.strip_prefix("committed ")) {
            let i: u64 = line.split(' ').next().unwrap().parse().unwrap();
            let value = store.get(&keyspace, i.to_be_bytes()).unwrap();
            assert_eq!(number_in(value), i, "round {round}: commit {line} was acknowledged");
        }
        // Each transaction is there as a whole.
        let snapshot = store.snapshot();
        let count = |first: &[u8], end: &[u8]| snapshot.range(&keyspace, first..end).unwrap().count();
        assert_eq!(count(&[0], &[1]), count(&[1], &[2]));
        println!("{} commits were acknowledged", acknowledged.len());
    }
}

#[test]
fn the_socket_is_the_owners_alone_and_goes_with_the_guard() {
    let (_directory, path) = place();
    let store = open(&path);
    let socket = socket_of(&path);
    let serving = store.serve(&socket).unwrap();
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    // Somebody listens there: the place is taken.
    assert!(matches!(store.serve(&socket), Err(Error::Io { .. })));
    let remote = RemoteStore::connect(&socket, "bank").unwrap();
    let keyspace = remote.keyspace("k").unwrap();
    drop(serving);
    assert!(!socket.exists());
    assert!(matches!(remote.put(&keyspace, "a", "1"), Err(Error::Disconnected { .. })));
    assert!(matches!(RemoteStore::connect(&socket, "bank"), Err(Error::Disconnected { .. })));
    // A file that is no socket is not touched.
    std::fs::write(&socket, "notes").unwrap();
    assert!(matches!(store.serve(&socket), Err(Error::Io { .. })));
    assert_eq!(std::fs::read(&socket).unwrap(), b"notes");
    let long = path.with_file_name("x".repeat(200));
    assert!(matches!(store.serve(long), Err(Error::Io { .. })));
}

#[test]
fn another_user_is_turned_away_even_if_the_socket_lets_everybody_in() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can act as another user");
        return;
    }
    let (directory, path) = place();
    let store = open(&path);
    let serving = store.serve(socket_of(&path)).unwrap();
    let socket = serving.path().to_owned();
    let everybody =
        |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    everybody(directory.path(), 0o755);
    let as_nobody = |socket: PathBuf| {
        std::thread::spawn(move || {
            // This thread's alone.
            let nobody = rustix::thread::Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            RemoteStore::connect(socket, "bank").map(drop)
        })
        .join()
        .unwrap()
    };
    let outcome = as_nobody(socket.clone());
    assert!(matches!(outcome, Err(Error::Disconnected { .. })), "the mode: {outcome:?}");
    everybody(&socket, 0o666);
    let outcome = as_nobody(socket.clone());
    assert!(matches!(outcome, Err(Error::Refused { .. })), "the user: {outcome:?}");
    RemoteStore::connect(&socket, "bank").unwrap();
}

#[test]
fn clients_and_what_they_have_open_are_bounded() {
    let (_directory, path) = place();
    let store = open(&path);
    let mut options = ServeOptions::default();
    (options.clients_max, options.open_max) = (2, 3);
    let serving = serve(socket_of(&path), store, options).unwrap();
    let connect = || RemoteStore::connect(serving.path(), "bank");
    let (first, _second) = (connect().unwrap(), connect().unwrap());
    assert!(matches!(connect(), Err(Error::Refused { .. })));
    let open: Vec<_> = (0..3).map(|_| first.snapshot().unwrap()).collect();
    assert!(matches!(first.snapshot(), Err(Error::Refused { .. })));
    let keyspace = first.keyspace("k").unwrap();
    assert!(matches!(first.begin().put(&keyspace, "a", "1"), Err(Error::Refused { .. })));
    drop(open);
    first.transact(|tx| tx.put(&keyspace, "a", "1")).unwrap();
    first.snapshot().unwrap();
    drop((first, keyspace));
    wait_until("a place is free", || serving.clients() < 2);
    connect().unwrap();
}

#[test]
fn what_does_not_fit_a_message_is_refused_and_the_connection_goes_on() {
    let (_directory, path) = place();
    let store = open(&path);
    let serving = store.serve(socket_of(&path)).unwrap();
    let remote = RemoteStore::connect(serving.path(), "bank").unwrap();
    let (here, there) = (store.keyspace("k").unwrap(), remote.keyspace("k").unwrap());
    let large = vec![7; 65 << 20];
    store.put(&here, "large", &large).unwrap();
    assert!(matches!(remote.get(&there, "large"), Err(Error::FrameTooLarge { .. })));
    assert!(matches!(remote.put(&there, "large", &large), Err(Error::FrameTooLarge { .. })));
    let mut tx = remote.begin();
    assert!(matches!(tx.put(&there, "large", large), Err(Error::TransactionTooLarge { .. })));
    tx.put(&there, "small", vec![1; 5 << 20]).unwrap();
    tx.commit().unwrap();
    assert_eq!(remote.get(&there, "small").unwrap().unwrap(), vec![1; 5 << 20]);
    // The owner's limits hold for clients.
    let mut limits = Limits::default();
    limits.transaction_bytes = Some(100);
    store.set_limits(limits);
    let mut tx = remote.begin();
    tx.put(&there, "small", vec![1; 200]).unwrap();
    assert!(matches!(tx.commit(), Err(Error::TransactionTooLarge { max_bytes: 100, .. })));
}

#[test]
fn hostile_bytes_end_their_connection_and_nothing_else() {
    let (_directory, path) = place();
    let store = open(&path);
    let mut options = ServeOptions::default();
    options.hello_timeout = Duration::from_millis(300);
    let serving = serve(socket_of(&path), store.clone(), options).unwrap();
    let good = RemoteStore::connect(serving.path(), "bank").unwrap();
    let keyspace = good.keyspace("k").unwrap();
    let number = good.put(&keyspace, "a", "1").unwrap();
    let greeting = {
        let name = [&4u32.to_le_bytes()[..], b"bank"].concat();
        let magic = [&11u32.to_le_bytes()[..], b"TEMBO store"].concat();
        let body = [&[1][..], &magic, &2u16.to_le_bytes(), &name].concat();
        [&(body.len() as u32).to_le_bytes()[..], &body].concat()
    };
    let mut word = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = move |count: usize| -> Vec<u8> {
        (0..count)
            .map(|_| {
                word ^= word << 13;
                word ^= word >> 7;
                word ^= word << 17;
                word as u8
            })
            .collect()
    };
    for round in 0..400 {
        let mut stream = UnixStream::connect(serving.path()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let bytes = match round % 4 {
            0 => random(round % 50),
            // A length that is too long, and one that is not true.
            1 => [&u32::MAX.to_le_bytes()[..], &random(40)].concat(),
            2 => [greeting.as_slice(), &(60u32 << 20).to_le_bytes(), &random(40)].concat(),
            _ => {
                let mut body = random(round % 60 + 1);
                if round % 8 == 7 {
                    // A kind that there is, with what it does not know.
                    body[0] = (round / 8 % 23) as u8;
                }
                [greeting.as_slice(), &(body.len() as u32).to_le_bytes(), &body].concat()
            }
        };
        // The other side may have closed it already.
        _ = stream.write_all(&bytes);
        _ = stream.shutdown(std::net::Shutdown::Write);
        _ = stream.read_to_end(&mut Vec::new());
    }
    // One that says nothing does not keep its place.
    let silent = UnixStream::connect(serving.path()).unwrap();
    wait_until("all but one are gone", || serving.clients() == 1);
    drop(silent);
    assert_eq!(good.get(&keyspace, "a").unwrap().unwrap(), b"1");
    assert_eq!(good.snapshot().unwrap().number(), number, "random bytes committed nothing");
    drop(good);
    drop(serving);
    prove(&store);
}

#[test]
fn a_closed_socket_stops_clients_that_wait_and_threads_of_one_client_take_turns() {
    let (_directory, path) = place();
    let store = open(&path);
    let serving = store.serve(socket_of(&path)).unwrap();
    let remote = RemoteStore::connect(serving.path(), "bank").unwrap();
    let keyspace = remote.keyspace("k").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let (remote, keyspace) = (&remote, &keyspace);
            scope.spawn(move || {
                for i in 0..50u32 {
                    let key = [thread.to_be_bytes(), i.to_be_bytes()].concat();
                    remote.transact(|tx| tx.put(keyspace, key.clone(), "1")).unwrap();
                    assert!(remote.get(keyspace, key).unwrap().is_some());
                }
            });
        }
    });
    assert_eq!(remote.snapshot().unwrap().iter(&keyspace).unwrap().count(), 200);
    drop(serving);
    assert!(matches!(remote.begin().get(&keyspace, "a"), Err(Error::Disconnected { .. })));
}
