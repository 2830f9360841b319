//! The tutorial's programs run, again on what they left; and every piece of code in the tutorial is a piece
//! of them.

#[path = "../examples/heap_list.rs"]
mod heap_list;
#[path = "../examples/heap_migrate.rs"]
mod heap_migrate;
#[path = "../examples/heap_queue.rs"]
mod heap_queue;
#[path = "../examples/heap_tree.rs"]
mod heap_tree;

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
fn the_tutorial_shows_the_programs() {
    let tutorial = include_str!("../../../docs/heap.md");
    let programs = [
        include_str!("../examples/heap_list.rs"),
        include_str!("../examples/heap_tree.rs"),
        include_str!("../examples/heap_queue.rs"),
        include_str!("../examples/heap_migrate.rs"),
    ];
    let programs: Vec<Vec<&str>> = programs.into_iter().map(lines).collect();
    let pieces: Vec<Vec<&str>> = tutorial
        .split("```rust\n")
        .skip(1)
        .map(|rest| lines(rest.split("```").next().unwrap_or_default()))
        .collect();
    assert!(pieces.len() >= 10, "{} pieces", pieces.len());
    for piece in pieces {
        let is_there = programs
            .iter()
            .any(|program| program.windows(piece.len()).any(|window| window == piece.as_slice()));
        assert!(is_there, "in no program:\n{}", piece.join("\n"));
    }
}
