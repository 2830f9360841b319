//! Running out of space while the pool grows: a clear error, nothing lost, and work that goes on.
//!
//! The limits are those of a child process: this test program again, with a file-size limit, or with a small
//! file system of its own.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tembo::{Error, Options, Pool};

/// Where a child works, and what the error that it expects says.
const CHILD_DIR: &str = "TEMBO_SPACE_DIR";
const CHILD_EXPECTS: &str = "TEMBO_SPACE_EXPECTS";
/// The file whose removal frees space, where that helps.
const BALLAST: &str = "ballast";

fn value_of(key: u64) -> Vec<u8> {
    vec![key as u8; 3000 + (key % 7) as usize * 5000]
}

/// Puts records until the pool is full; returns the error.
fn fill(pool: &Pool, model: &mut BTreeMap<u64, Vec<u8>>) -> Error {
    let map = pool.open_map("m").unwrap();
    for key in model.last_key_value().map_or(0, |(last, _)| last + 1).. {
        match map.put(key.to_be_bytes(), value_of(key)) {
            Ok(_) => _ = model.insert(key, value_of(key)),
            Err(e) => return e,
        }
    }
    unreachable!("an endless loop")
}

fn assert_holds(pool: &Pool, model: &BTreeMap<u64, Vec<u8>>) {
    let map = pool.open_map("m").unwrap();
    assert_eq!(map.len().unwrap(), model.len() as u64);
    for (key, value) in model {
        assert_eq!(map.get(key.to_be_bytes()).unwrap().as_deref(), Some(value.as_slice()));
    }
    pool.check().unwrap();
}

/// Runs in the child. Does nothing when it is run with the other tests.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(CHILD_DIR).map(PathBuf::from) else { return };
    let expected = std::env::var(CHILD_EXPECTS).unwrap();
    let path = dir.join("full.pool");
    let ballast = dir.join(BALLAST);
    std::fs::write(&ballast, vec![1; 4 << 20]).unwrap();
    let options = Options::new().create(true).initial_bytes(1 << 20);
    let pool = options.open(&path).unwrap();
    let mut model = BTreeMap::new();
    for _ in 0..3 {
        let error = fill(&pool, &mut model);
        assert!(matches!(error, Error::Full { .. }) && error.to_string().contains(&expected), "{error}");
    }
    assert_holds(&pool, &model);
    let length = std::fs::metadata(&path).unwrap().len();
    let committed = pool.stats().pool_bytes;
    assert_eq!(length, committed, "a growth that failed left the file longer");
    // Reads, removals and writes into the freed room go on. Of that room the pool first takes back what
    // removals have used of the space that is kept for them.
    let map = pool.open_map("m").unwrap();
    for key in 0..20u64 {
        assert!(map.remove(key.to_be_bytes()).unwrap());
    }
    model.retain(|key, _| !(10..20).contains(key));
    for key in 0..10u64 {
        map.put(key.to_be_bytes(), value_of(key)).unwrap();
    }
    assert_holds(&pool, &model);
    // A batch that does not fit is refused as a whole.
    let mut batch = pool.batch().unwrap();
    batch.put(&map, b"x", b"small").unwrap();
    assert!(matches!(batch.put(&map, b"y", &vec![0; 32 << 20]), Err(Error::Full { .. })));
    drop(batch);
    assert_holds(&pool, &model);
    if expected.contains("device") {
        std::fs::remove_file(&ballast).unwrap();
        let before = model.len();
        fill(&pool, &mut model);
        assert!(model.len() > before, "the freed space was not used");
        assert_holds(&pool, &model);
    }
    drop((map, pool));
    assert_holds(&options.open(&path).unwrap(), &model);
}

fn run_child(shell: &str, dir: &Path, expected: &str) -> Output {
    let program = std::env::current_exe().unwrap();
    let script = format!("{shell} exec {} --exact child --nocapture", program.display());
    let mut command = Command::new("bash");
    command.args(["-c", &script]).env(CHILD_DIR, dir).env(CHILD_EXPECTS, expected);
    command.output().unwrap()
}

fn assert_passed(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_file_size_limit_stops_growth_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    assert_passed(&run_child("ulimit -f 24576;", dir.path(), "file-size limit"));
}

#[test]
fn a_full_disk_stops_growth_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let may_mount = Command::new("unshare").args(["-rm", "true"]).output().is_ok_and(|o| o.status.success());
    if !may_mount {
        println!("skipped: `unshare -rm` is not allowed here, so that there is no small file system to fill");
        return;
    }
    let mount = format!("mount -t tmpfs -o size=24m tmpfs {} &&", dir.path().display());
    let program = std::env::current_exe().unwrap();
    let script = format!("{mount} exec {} --exact child --nocapture", program.display());
    let mut command = Command::new("unshare");
    command.args(["-rm", "bash", "-c", &script]).env(CHILD_DIR, dir.path()).env(CHILD_EXPECTS, "device");
    assert_passed(&command.output().unwrap());
}

/// Page faults of this thread so far that needed no device.
fn minor_faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let after_name = stat.rsplit_once(") ").unwrap().1;
    after_name.split(' ').nth(7).unwrap().parse().unwrap()
}

#[test]
fn pages_that_are_mapped_in_advance_have_no_faults() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let faults = |prefault: bool| {
        let path = dir.path().join(format!("{prefault}.pool"));
        let options = Options::new().create_new(true).initial_bytes(32 << 20).prefault(prefault);
        let map = options.open(path).unwrap().open_map("map").unwrap();
        let before = minor_faults();
        for i in 0..5000_u64 {
            map.put(i.to_be_bytes(), [7; 4000]).unwrap();
        }
        assert_eq!(map.len().unwrap(), 5000);
        minor_faults() - before
    };
    let (with, without) = (faults(true), faults(false));
    println!("{with} faults with, {without} without");
    // 20 MB are 5000 pages.
    assert!(with < 500 && without > 4000, "{with} faults with, {without} without");
}

/// Bytes of a file that this process has mapped in huge pages.
fn bytes_in_huge_pages(path: &Path) -> u64 {
    let inode = std::fs::metadata(path).unwrap().ino().to_string();
    let (mut is_of_file, mut kib) = (false, 0);
    for line in std::fs::read_to_string("/proc/self/smaps").unwrap().lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("ShmemPmdMapped:") if is_of_file => kib += words.next().unwrap().parse::<u64>().unwrap(),
            // The fields of a mapping: addresses, permissions, offset in the file, device, inode.
            Some(word) if !word.ends_with(':') => is_of_file = words.nth(3) == Some(&inode),
            _ => {}
        }
    }
    kib << 10
}

#[test]
fn a_pool_on_tmpfs_lies_in_huge_pages_if_that_is_asked_for() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (small, huge) = (dir.path().join("small.pool"), dir.path().join("huge.pool"));
    let open = |path: &Path, huge_pages: bool| {
        Options::new().create(true).initial_bytes(16 << 20).huge_pages(huge_pages).open(path).unwrap()
    };
    let fill = |pool: &Pool, keys: std::ops::Range<u64>| {
        let map = pool.open_map("map").unwrap();
        keys.for_each(|i| _ = map.put(i.to_be_bytes(), [i as u8; 4000]).unwrap());
    };
    let check = |pool: &Pool, count: u64| {
        let map = pool.open_map("map").unwrap();
        (0..count).for_each(|i| assert_eq!(map.get(i.to_be_bytes()).unwrap().unwrap()[..], [i as u8; 4000]));
    };
    let pool = open(&small, false);
    fill(&pool, 0..2000);
    let unasked = bytes_in_huge_pages(&small);
    drop(pool);
    // One that is there already.
    let pool = open(&small, true);
    let gathered = bytes_in_huge_pages(&small);
    check(&pool, 2000);
    // And one that is new, and grows.
    let pool = open(&huge, true);
    fill(&pool, 0..8000);
    check(&pool, 8000);
    let len = std::fs::metadata(&huge).unwrap().len();
    let grown = bytes_in_huge_pages(&huge);
    println!("{gathered} bytes in huge pages, {grown} of {len} in a pool that grew");
    if unasked > 0 || gathered < 12 << 20 {
        println!("this system has huge pages for files on tmpfs always, or never, or not enough of them");
        return;
    }
    assert!(grown > 0 && len > 32 << 20, "{grown} of {len}");
}
