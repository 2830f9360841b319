//! The library as C sees it: the header against the code, and programs in C that are compiled and run.
#![forbid(unsafe_code)]

#[path = "c/header.rs"]
mod header;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tembo::{CheckReport, Options};

const STRICT: &[&str] = &["-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O1"];
/// The system libraries that Rust's standard library needs when it is linked statically.
const SYSTEM: &[&str] = &["-lpthread", "-ldl", "-lm", "-lrt", "-lutil"];

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A compiler, if the machine has it; says so where it has none.
fn compiler(variable: &str, usual: &str) -> Option<String> {
    let program = std::env::var(variable).unwrap_or_else(|_| usual.to_owned());
    if Command::new(&program).arg("--version").output().is_ok_and(|output| output.status.success()) {
        return Some(program);
    }
    println!("skipped: there is no {program} (set {variable} to name a compiler)");
    None
}

/// The library that was built with this test: cargo leaves it beside the test's program.
fn library(name: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let beside = program.parent().unwrap();
    let candidates = [beside.join(name), beside.with_file_name(name)];
    let newest = candidates
        .iter()
        .filter(|path| path.exists())
        .max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    newest.unwrap_or_else(|| panic!("neither of {candidates:?} was built")).clone()
}

fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    output
}

/// Compiles a program in C; returns its path.
fn compile(compiler: &str, source: &Path, dir: &Path, linking: &[&str]) -> PathBuf {
    let program = dir.join(source.file_stem().unwrap());
    let mut command = Command::new(compiler);
    command.args(STRICT).arg("-I").arg(here().join("include")).arg(source).arg("-o").arg(&program);
    succeeds(command.args(linking));
    program
}

/// Arguments that link the shared library from where it is.
fn shared() -> Vec<String> {
    let library = library("libtembo_capi.so");
    vec![
        library.display().to_string(),
        format!("-Wl,-rpath,{}", library.parent().unwrap().display()),
        "-lpthread".to_owned(),
    ]
}

/// Compiles, runs and checks the pool that is left; returns what was printed, and the report.
fn run(source: &str, arguments: &[&str], linking: &[String]) -> Option<(String, CheckReport)> {
    let compiler = compiler("CC", "cc")?;
    let dir = tempfile::tempdir().unwrap();
    let linking: Vec<&str> = linking.iter().map(String::as_str).collect();
    let program = compile(&compiler, &here().join(source), dir.path(), &linking);
    let pool = dir.path().join("example.pool");
    let output = succeeds(Command::new(program).arg(&pool).args(arguments));
    let report = Options::new().read_only(true).open(&pool).unwrap().check().unwrap();
    Some((String::from_utf8(output.stdout).unwrap(), report))
}

#[test]
fn the_tour_goes_through() {
    let Some((text, report)) = run("examples/tour.c", &[], &shared()) else { return };
    for line in [
        "9 * 9 = 81",
        "12: the key is not in the map",
        "11 -> 121",
        "13 -> 169",
        "14 -> 196",
        "99 squares",
        "mars is red",
        "earth is blue",
        "2 planets",
        "bob has 20",
        "TEMBO_CONFLICT",
        "1 deleted, 1 left",
        "ann has 100",
        "2 accounts",
        "ann had 60",
        "ann had 70",
        "1 kept, the evening",
        "bank: a store",
        "planets: a map",
        "scratch: a map",
        "squares: a fixed map",
        "99 * 99 = 9801",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is not in {text}");
    }
    assert_eq!(report.fixed_maps, [("squares".to_owned(), 99)]);
    assert_eq!(report.maps, [("planets".to_owned(), 2)]);
}

#[test]
fn the_tour_goes_through_with_the_static_library() {
    let library = library("libtembo_capi.a").display().to_string();
    let linking: Vec<String> = [library].into_iter().chain(SYSTEM.iter().map(|s| s.to_string())).collect();
    let Some((text, _)) = run("examples/tour.c", &[], &linking) else { return };
    assert!(text.contains("99 * 99 = 9801"), "{text}");
}

#[test]
fn threads_share_maps() {
    let Some((text, report)) = run("examples/threads.c", &["4", "5000"], &shared()) else { return };
    assert_eq!(text, "20000 and 15000 records\n");
    assert_eq!(report.fixed_maps, [("fixed".to_owned(), 20_000)]);
    assert_eq!(report.maps, [("strings".to_owned(), 15_000)]);
}

#[test]
fn edges_are_as_the_header_says() {
    let Some((text, report)) = run("tests/c/edges.c", &[], &shared()) else { return };
    assert_eq!(text, "all edges hold\n");
    assert_eq!(report.fixed_maps, [("fixed".to_owned(), 0)]);
    assert_eq!(report.maps, [("strings".to_owned(), 2)]);
}

#[test]
fn edges_of_stores_are_as_the_header_says() {
    let Some((text, _)) = run("tests/c/store.c", &[], &shared()) else { return };
    assert_eq!(text, "all edges of stores hold\n");
}

/// Cancellation unwound through the library, and ended the process.
#[test]
fn no_call_is_cancelled() {
    let Some((text, _)) = run("tests/c/cancelled.c", &[], &shared()) else { return };
    assert_eq!(text, "no call was cancelled\n");
}

/// A scan took as much memory as its result, and without it the process ended.
#[test]
fn no_call_needs_memory_in_proportion_to_what_it_is_asked_for() {
    let Some((text, report)) = run("tests/c/out_of_memory.c", &[], &shared()) else { return };
    assert_eq!(text, "memory for nothing is needed\n");
    assert_eq!(report.fixed_maps, [("fixed".to_owned(), 200_000)]);
}

/// A scan in the destructor of a key was a defect of the library.
#[test]
fn threads_that_end_use_the_library_in_a_small_stack() {
    let Some((text, _)) = run("tests/c/thread_ends.c", &[], &shared()) else { return };
    assert_eq!(text, "threads end as they like\n");
}

/// A key that was too long was read to its end before it was refused.
#[test]
fn what_is_too_long_is_refused_unread() {
    let Some((text, report)) = run("tests/c/too_long.c", &[], &shared()) else { return };
    assert_eq!(text, "what is too long is not read\n");
    assert_eq!(report.maps, [("strings".to_owned(), 1)]);
}

#[test]
fn what_was_acknowledged_is_there_after_kill_9() {
    let Some(compiler) = compiler("CC", "cc") else { return };
    let dir = tempfile::tempdir().unwrap();
    let linking = shared();
    let linking: Vec<&str> = linking.iter().map(String::as_str).collect();
    let program = compile(&compiler, &here().join("tests/c/killed.c"), dir.path(), &linking);
    for round in 1..=5 {
        let path = dir.path().join(format!("{round}.pool"));
        let mut child = Command::new(&program).arg(&path).stdout(Stdio::piped()).spawn().unwrap();
        let mut acknowledged = vec![0; round * 8 * 3000];
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut acknowledged).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        stdout.read_to_end(&mut acknowledged).unwrap();

        let count = (acknowledged.len() / 8) as u64;
        let pool = Options::new().open(&path).unwrap();
        pool.check().unwrap();
        let (fixed, strings) = (pool.open_fixed_map("fixed").unwrap(), pool.open_map("strings").unwrap());
        for key in 0..count {
            assert_eq!(fixed.get(key).unwrap(), Some(!key), "round {round}");
            let bytes = key.to_ne_bytes();
            assert_eq!(strings.get(bytes).unwrap().as_deref(), Some(&bytes[..]), "round {round}");
        }
        // The insertion that was under way may be there.
        assert!((count..=count + 1).contains(&fixed.count().unwrap()), "round {round}");
        assert!((count..=count + 1).contains(&strings.len().unwrap()), "round {round}");
    }
}

/// The wrapper for PiBench, driven through the interface that PiBench loads it by.
#[test]
fn the_pibench_wrapper_does_what_pibench_asks() {
    let Some(compiler) = compiler("CXX", "c++") else { return };
    let dir = tempfile::tempdir().unwrap();
    let driver = dir.path().join("driver");
    let mut command = Command::new(compiler);
    command.args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-O1", "-I"]).arg(here().join("include"));
    command.arg("-I").arg(here().join("tests/pibench")).arg(here().join("examples/pibench_wrapper.cpp"));
    command.arg(here().join("tests/pibench/driver.cpp")).arg("-o").arg(&driver).args(shared());
    succeeds(&mut command);
    for (key_bytes, value_bytes) in [("8", "8"), ("20", "100"), ("8", "16")] {
        let pool = dir.path().join(format!("{key_bytes}-{value_bytes}.pool"));
        let output = succeeds(Command::new(&driver).arg(&pool).args([key_bytes, value_bytes]));
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "as asked\n");
        Options::new().read_only(true).open(&pool).unwrap().check().unwrap();
    }
}

#[test]
fn a_child_reaches_nothing_of_what_its_parent_has_open() {
    let Some((text, report)) = run("tests/c/forked.c", &[], &shared()) else { return };
    assert_eq!(text, "the parent alone\n");
    assert!(report.fixed_maps[0].1 > 1);
}

#[test]
fn workers_of_pythons_multiprocessing_are_refused() {
    if !Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
        println!("skipped: there is no python3");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let pool = dir.path().join("a.pool");
    let mut command = Command::new("python3");
    command.arg(here().join("tests/python/forked.py")).arg(library("libtembo_capi.so")).arg(&pool);
    let output = succeeds(&mut command);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "the parent alone\n");
    let report = Options::new().read_only(true).open(&pool).unwrap().check().unwrap();
    assert_eq!(report.fixed_maps, [("fixed".to_owned(), 1001)]);
}
