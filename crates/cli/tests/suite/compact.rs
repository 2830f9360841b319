//! `tembo compact`: space between records comes back, and nothing is lost whenever it is interrupted.

use crate::support::Workspace;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tembo::{Durability, Options};

fn kills() -> u64 {
    let chosen = std::env::var("TEMBO_KILLS").ok();
    chosen.map_or(12, |text| text.parse().expect("TEMBO_KILLS is a number"))
}

fn value(number: u32) -> Vec<u8> {
    vec![number as u8; 20 + number as usize % 7 * 40]
}

fn is_kept(number: u32) -> bool {
    number.is_multiple_of(8)
}

fn options() -> Options {
    Options::new().create(true).initial_bytes(1 << 20).durability(Durability::PageCache)
}

/// Puts records of mixed lengths that a round before has removed, and removes seven of eight.
fn thin(path: &Path, count: u32) {
    let pool = options().open(path).unwrap();
    let map = pool.open_map("map").unwrap();
    (0..count).for_each(|number| _ = map.put(number.to_be_bytes(), value(number)).unwrap());
    let dead = (0..count).filter(|number| !is_kept(*number));
    dead.for_each(|number| assert!(map.remove(number.to_be_bytes()).unwrap()));
}

fn assert_whole(path: &Path, count: u32) {
    let pool = Options::new().open(path).unwrap();
    let map = pool.find_map("map").unwrap().unwrap();
    let kept = (0..count).filter(|number| is_kept(*number));
    let found = map.iter().map(|entry| entry.map(|entry| (entry.key().to_vec(), entry.value().to_vec())));
    let expected = kept.map(|number| (number.to_be_bytes().to_vec(), value(number)));
    assert!(found.map(Result::unwrap).eq(expected));
}

#[test]
fn holes_become_free_space() {
    let workspace = Workspace::new();
    let path = workspace.path("a.pool");
    thin(&path, 40_000);
    let report = workspace.run("compact a.pool --durability page-cache --json").ok().json();
    let number = |name: &str| report[name].as_u64().unwrap();
    assert!(number("freed_bytes") > 4 << 20 && number("moved_bytes") > 100_000, "{report}");
    let length = || path.metadata().unwrap().len();
    assert!(number("cut_bytes") > 4 << 20 && number("pool_bytes") == length(), "{report}");
    // Twice what is alive, at most, besides the pool's own head.
    let alive: usize =
        (0..40_000).filter(|number| is_kept(*number)).map(|number| value(number).len() + 8).sum();
    assert!(number("pool_bytes") < (2 << 20) + 2 * alive as u64, "{report}");
    assert_whole(&path, 40_000);
    workspace.run("check a.pool").ok();
    let again = workspace.run("compact a.pool --durability page-cache --json").ok().json();
    let of_again = |name: &str| again[name].as_u64().unwrap();
    assert!(of_again("moved_bytes") < 100_000 && of_again("freed_bytes") < 256 << 10, "{again}");
    assert!(workspace.run("compact a.pool --durability page-cache").ok().text().contains("are unused now"));
    // A pool of another length than it says is refused by name, so this opens it.
    workspace.run("info a.pool").ok();
}

#[test]
fn the_file_keeps_a_length_that_was_asked_for() {
    let workspace = Workspace::new();
    let path = workspace.path("a.pool");
    thin(&path, 40_000);
    let before = path.metadata().unwrap().len();
    let report = workspace.run("compact a.pool --durability page-cache --min-bytes 6MiB --json").ok().json();
    let after = path.metadata().unwrap().len();
    assert_eq!(report["cut_bytes"].as_u64(), Some(before - after), "{report}");
    assert!((6 << 20..7 << 20).contains(&after), "{after}");
    assert_whole(&path, 40_000);
}

#[test]
fn a_compaction_that_is_killed_loses_nothing() {
    let workspace = Workspace::new();
    let path = workspace.path("a.pool");
    for round in 0..kills() {
        thin(&path, 20_000);
        let mut command = workspace.command("compact a.pool --durability page-cache");
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(2000 + round * 7919 % 30_000));
        child.kill().unwrap();
        child.wait().unwrap();
        workspace.run("check a.pool").ok();
        assert_whole(&path, 20_000);
    }
    workspace.run("compact a.pool").ok();
    assert_whole(&path, 20_000);
}

#[test]
fn a_pool_that_cannot_be_compacted_is_named() {
    let workspace = Workspace::new();
    workspace.run("compact none.pool").ends_with(1, "none.pool");
    workspace.run("compact").ends_with(2, "<POOL>");
    std::fs::write(workspace.path("text"), "not a pool").unwrap();
    workspace.run("compact text").ends_with(1, "text");
}
