//! The guides' programs run, again on what they left. Every piece of code in a guide is a piece of its
//! programs.

#[path = "../../examples/bank_with_history.rs"]
mod bank_with_history;
#[path = "../../examples/heap_list.rs"]
mod heap_list;
#[path = "../../examples/heap_migrate.rs"]
mod heap_migrate;
#[path = "../../examples/heap_queue.rs"]
mod heap_queue;
#[path = "../../examples/heap_tree.rs"]
mod heap_tree;
#[path = "../../examples/maps.rs"]
mod maps;
#[path = "../../examples/store.rs"]
mod store;

use std::path::Path;
use tembo::Options;

/// Runs a program several times on one file, and checks what it left.
fn run_again(program: impl Fn(&Path) -> Result<(), tembo::heap::Error>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("example.heap");
    for _ in 0..3 {
        program(&path).unwrap();
        let report = Options::new().open(&path).unwrap().check().unwrap();
        assert!(report.heap.is_some());
    }
}

#[test]
fn the_list_grows_with_each_run() {
    run_again(heap_list::run);
}

#[test]
fn the_tree_dies_with_each_run() {
    run_again(heap_tree::run);
}

#[test]
fn the_queue_is_worked_off_in_each_run() {
    run_again(heap_queue::run);
}

#[test]
fn people_are_migrated_once() {
    run_again(heap_migrate::run);
}

/// Without indentation, which differs where a piece was taken out of a function.
fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

#[test]
fn the_guide_to_heaps_shows_the_programs() {
    let programs = [
        include_str!("../../examples/heap_list.rs"),
        include_str!("../../examples/heap_tree.rs"),
        include_str!("../../examples/heap_queue.rs"),
        include_str!("../../examples/heap_migrate.rs"),
    ];
    assert_shows(include_str!("../../../../docs/guide/heap.md"), &programs, 10);
}

#[test]
fn the_guide_to_maps_runs_and_shows_its_program() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.pool");
    for _ in 0..3 {
        maps::run(&path).unwrap();
        Options::new().open(&path).unwrap().check().unwrap();
    }
    assert_shows(
        include_str!("../../../../docs/guide/maps.md"),
        &[include_str!("../../examples/maps.rs")],
        5,
    );
}

#[test]
fn the_bank_keeps_its_money_and_its_yesterday_in_each_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bank.pool");
    for _ in 0..3 {
        bank_with_history::run(&path).unwrap();
        let report = Options::new().open(&path).unwrap().check().unwrap();
        assert_eq!(report.stores[0].1.keys, 3);
    }
}

#[test]
fn the_guide_to_the_store_runs_and_shows_its_program() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.pool");
    for _ in 0..3 {
        store::run(&path).unwrap();
        Options::new().open(&path).unwrap().check().unwrap();
    }
    assert_shows(
        include_str!("../../../../docs/guide/store.md"),
        &[include_str!("../../examples/store.rs")],
        15,
    );
}

/// Every piece of code in the guide, of which there are this many at least, is a piece of a program.
fn assert_shows(guide: &str, programs: &[&str], pieces_min: usize) {
    let programs: Vec<Vec<&str>> = programs.iter().map(|program| lines(program)).collect();
    let pieces: Vec<Vec<&str>> = guide
        .split("```rust\n")
        .skip(1)
        .map(|rest| lines(rest.split("```").next().unwrap_or_default()))
        .collect();
    assert!(pieces.len() >= pieces_min, "{} pieces", pieces.len());
    for piece in pieces {
        let is_there = programs
            .iter()
            .any(|program| program.windows(piece.len()).any(|window| window == piece.as_slice()));
        assert!(is_there, "in no program:\n{}", piece.join("\n"));
    }
}
