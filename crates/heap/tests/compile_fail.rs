//! Programs that misuse a heap do not compile, and are told why in words that are pinned here.
//!
//! Each file in `compile_fail/` is such a program; the text beside it is what the compiler says. Its first
//! line names the *twin*: a test in `types/` that does the same rightly, and runs. After a change of the
//! messages, look at what `TEMBO_BLESS=1 cargo test -p tembo-heap --test compile_fail` has written, and
//! commit it.
//!
//! The texts are those of one version of the compiler. Others are held to the codes of the errors, and say
//! so.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, thread};

/// The compiler whose messages are pinned.
const PINNED_FOR: &str = "rustc 1.95.";
/// The programs, from the directory of this package.
const CASES: &str = "tests/compile_fail";
/// The twins, in modules of one test executable.
const TWINS: &str = "tests/types";

#[test]
fn every_misuse_is_refused_with_the_words_that_are_pinned() {
    let compiler = Compiler::find();
    if !compiler.is_pinned {
        println!(
            "SKIPPED: the comparison of texts, which are those of {PINNED_FOR}x and not of {}; only the codes of the errors are compared",
            compiler.version
        );
    }
    let cases = cases();
    let failures = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from).min(8) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(failure) = compiler.judge(case) {
                        failures.lock().unwrap().push(format!("{}: {failure}", case.display()));
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap();
    failures.sort();
    assert!(failures.is_empty(), "{} of {} cases:\n\n{}", failures.len(), cases.len(), failures.join("\n\n"));
}

#[test]
fn every_misuse_has_a_twin_that_compiles_and_runs() {
    let twins: String = files_in(TWINS, "rs").iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    for case in cases() {
        let text = fs::read_to_string(&case).unwrap();
        let head: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("//! ")).collect();
        let head = head.join(" ");
        let named = head.split("Twin: `").nth(1).and_then(|named| named.strip_suffix("`."));
        let named = named.unwrap_or_else(|| panic!("{}: the head names no twin: {head}", case.display()));
        let is_test = twins.contains(&format!("#[test]\nfn {named}() {{"));
        assert!(is_test, "{}: there is no test `{named}` in types/", case.display());
    }
}

#[test]
fn no_text_is_left_of_a_case_that_is_gone() {
    if is_blessing() {
        return;
    }
    let texts = files_in(CASES, "stderr").into_iter().map(|text| text.with_extension("rs"));
    assert_eq!(texts.collect::<Vec<_>>(), cases());
}

fn cases() -> Vec<PathBuf> {
    let cases = files_in(CASES, "rs");
    assert!(cases.len() > 20, "only {} cases", cases.len());
    cases
}

fn files_in(folder: &str, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.extension() == Some(OsStr::new(extension))).collect();
    files.sort();
    files
}

/// The compiler, and the library as it was built for this test.
struct Compiler {
    version: String,
    is_pinned: bool,
    library: PathBuf,
    dependencies: PathBuf,
    scratch: tempfile::TempDir,
}

impl Compiler {
    fn find() -> Compiler {
        let version =
            text_of(&Command::new(rustc()).arg("--version").output().unwrap().stdout).trim().to_owned();
        let dependencies = env::current_exe().unwrap().parent().unwrap().to_owned();
        // There may be others, of builds before changes of the source.
        let libraries = fs::read_dir(&dependencies).unwrap().map(|entry| entry.unwrap());
        let libraries = libraries.filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with("libtembo_heap-") && name.ends_with(".rlib")
        });
        let newest = libraries.max_by_key(|entry| entry.metadata().unwrap().modified().unwrap());
        Compiler {
            is_pinned: version.starts_with(PINNED_FOR),
            version,
            library: newest.expect("this test is linked with it").path(),
            dependencies,
            scratch: tempfile::tempdir().unwrap(),
        }
    }

    fn judge(&self, case: &Path) -> Result<(), String> {
        let output = self.compile(case);
        if output.status.success() {
            return Err("it compiles".to_owned());
        }
        let raw = text_of(&output.stderr);
        let found = normalized(&raw, case);
        if found.contains("[E0514]") || found.contains("[E0463]") || found.contains("[E0460]") {
            return Err(format!("the library in {} cannot be used:\n{raw}", self.library.display()));
        }
        let pinned = case.with_extension("stderr");
        if self.is_pinned && is_blessing() {
            return fs::write(&pinned, &found).map_err(|e| e.to_string());
        }
        let expected = fs::read_to_string(&pinned).unwrap_or_default();
        let (expected_codes, found_codes) = (codes(&expected), codes(&found));
        if expected_codes != found_codes {
            return Err(format!("expected the errors {expected_codes:?}, found {found_codes:?}:\n{found}"));
        }
        if self.is_pinned && expected != found {
            return Err(format!("expected\n{expected}\nfound\n{found}"));
        }
        Ok(())
    }

    fn compile(&self, case: &Path) -> Output {
        let mut library = std::ffi::OsString::from("tembo_heap=");
        library.push(&self.library);
        let mut search = std::ffi::OsString::from("dependency=");
        search.push(&self.dependencies);
        let mut command = Command::new(rustc());
        command.args(["--edition=2024", "--crate-type=bin", "--emit=metadata", "--color=never"]);
        command.args(["--diagnostic-width=120", "-Awarnings", "--out-dir"]).arg(self.scratch.path());
        command.arg("--extern").arg(library).arg("-L").arg(search).arg(case);
        command.env_remove("RUSTC_LOG").env_remove("RUST_BACKTRACE").output().unwrap()
    }
}

fn is_blessing() -> bool {
    env::var_os("TEMBO_BLESS").is_some()
}

fn rustc() -> std::ffi::OsString {
    env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The errors in a text by their codes; those that have none by what they say.
fn codes(text: &str) -> BTreeSet<String> {
    let code = |line: &str| match line {
        // Which of the two it says of a borrow that escapes differs from compiler to compiler.
        "error: lifetime may not live long enough" => "error[E0521]".to_owned(),
        _ if line.starts_with("error[") => line[..12].to_owned(),
        _ => line.to_owned(),
    };
    text.lines().filter(|line| line.starts_with("error")).map(code).collect()
}

/// The compiler's message about the case, without lines of other files, lists of types, and the summary.
fn normalized(raw: &str, case: &Path) -> String {
    let mut errors: Vec<String> = Vec::new();
    for error in raw.split("\n\n").filter(|error| error.starts_with("error")) {
        let is_summary = ["error: aborting", "Some errors have", "For more information"];
        if is_summary.iter().any(|summary| error.starts_with(summary)) {
            continue;
        }
        let error = normalized_error(error, case);
        // Something that may not be sent, say, is one error for each of its parts. The last speaks for all.
        let place = |error: &str| error.lines().nth(1).map(str::to_owned);
        errors.retain(|other| {
            other[..12.min(other.len())] != error[..12.min(error.len())] || place(other) != place(&error)
        });
        errors.push(error);
    }
    errors.join("\n")
}

fn normalized_error(raw: &str, case: &Path) -> String {
    let here = case.display().to_string();
    let (mut text, mut is_elsewhere, mut is_in_list) = (String::new(), false, false);
    for line in raw.lines() {
        match Line::of(line) {
            Line::Place { arrow, place } => {
                is_in_list = false;
                is_elsewhere = !place.starts_with(&here);
                match is_elsewhere.then(|| place_elsewhere(place)) {
                    None => text += &format!("   {arrow}{place}\n"),
                    Some(place) if place.starts_with("library/") => {}
                    Some(place) => text += &format!("   {arrow}{place}\n"),
                }
            }
            Line::Source { .. } if is_elsewhere => {}
            Line::Source { number, rest } => text += &format!("{number:>3} {rest}\n"),
            Line::Gap if is_elsewhere => {}
            Line::Gap => text += "...\n",
            Line::Note(note) => {
                is_in_list = note.contains("the following other types implement trait");
                let is_noise = is_in_list
                    || note.contains("the full name for the type has been")
                    || note.contains("consider using `--verbose`")
                    || is_elsewhere && note.contains("` implements `");
                if !is_noise {
                    text += &format!("    {note}\n");
                }
            }
            Line::Head(head) => {
                (is_in_list, is_elsewhere) = (false, false);
                text += &format!("{head}\n");
            }
            Line::More(_) if is_in_list => {}
            Line::More(more) => text += &format!("            {more}\n"),
        }
    }
    text
}

/// A line of a message. Margins are as wide as the longest line number, so they are left out.
enum Line<'a> {
    /// `error: ...`, `note: ...`
    Head(&'a str),
    /// `--> file.rs:1:2`
    Place { arrow: &'a str, place: &'a str },
    /// `12 | source`, `12 + source`, `| marks`
    Source { number: &'a str, rest: &'a str },
    /// `...`
    Gap,
    /// `= note: ...`
    Note(&'a str),
    /// A line that continues the one before.
    More(&'a str),
}

impl Line<'_> {
    fn of(line: &str) -> Line<'_> {
        let bare = line.trim_start();
        let (number, rest) = bare.split_at(bare.find(|c: char| !c.is_ascii_digit()).unwrap_or(bare.len()));
        let rest = rest.trim_start();
        if rest.starts_with('|')
            || !number.is_empty() && ["+ ", "- ", "~ "].iter().any(|mark| rest.starts_with(mark))
        {
            return Line::Source { number, rest };
        }
        match bare.get(..4) {
            Some(arrow @ ("--> " | "::: ")) => Line::Place { arrow, place: &bare[4..] },
            _ if bare == "..." => Line::Gap,
            _ if bare.starts_with("= ") => Line::Note(bare),
            _ if bare == line => Line::Head(line),
            _ => Line::More(bare),
        }
    }
}

/// A place in another file, without what differs from machine to machine and from change to change:
/// directories above the library, and the line.
fn place_elsewhere(place: &str) -> String {
    let path = place.split(".rs:").next().unwrap_or(place);
    let root = ["crates/", "library/"].iter().filter_map(|root| path.find(root)).min().unwrap_or(0);
    format!("{}.rs", &path[root..])
}
