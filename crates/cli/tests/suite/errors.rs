//! The texts of errors, all in one place: each is provoked by its cause, and compared as a whole.
//!
//! The first table has the texts of the command, the second those of the library. A text says what happened,
//! where, and what to do; the command's speak of its own arguments, and no name or other text from outside is
//! repeated at length.

use crate::support::{Workspace, bytes, holder};
use std::process::{Command, Stdio};
use tembo::{Durability, IndexError, MapOptions, Options, Pool, PoolError, Records};

/// A command line with its standard input, what it says on standard error (a failing `check` says it on
/// standard output), and its exit code.
struct Case {
    arguments: String,
    input: Vec<u8>,
    text: String,
    code: i32,
}

fn case(arguments: &str, text: &str) -> Case {
    Case { arguments: arguments.to_owned(), input: Vec::new(), text: text.to_owned(), code: 1 }
}

/// Wrong usage, of which the first line counts.
fn usage(arguments: &str, text: &str) -> Case {
    Case { code: 2, ..case(arguments, text) }
}

fn check(arguments: &str, code: i32, text: &str) -> Case {
    Case { code, ..case(&format!("check {arguments}"), text) }
}

/// A dump that is loaded into a pool that is there: its lines behind the first.
fn merge(lines: &str, text: &str) -> Case {
    let input = format!("{{\"tembo_dump\":1}}\n{lines}\n").into_bytes();
    Case { input, ..case("load a.pool --merge", text) }
}

fn load(input: &[u8], text: &str) -> Case {
    Case { input: input.to_vec(), ..case("load new.pool", text) }
}

const DUMP: &str = "{\"tembo_dump\":1}\n{\"map\":\"m\"}\n{\"key\":\"a\",\"value\":\"1\"}\n{\"fixed_map\":\"f\"}\n\
                    {\"versioned_map\":\"v\"}\n{\"hash_table\":\"h\"}\n{\"end\":{\"maps\":4,\"entries\":1}}\n";

/// A text with `#` for each number where the expected one has that: numbers that follow from how media are
/// laid out.
fn with_numbers_of(found: &str, expected: &str) -> String {
    let (mut rest, mut text) = (found, String::new());
    for part in expected.split('#') {
        let Some((before, after)) = (if part.is_empty() { Some(("", rest)) } else { rest.split_once(part) })
        else {
            break;
        };
        if !before.is_empty() && before.bytes().all(|byte| byte.is_ascii_digit()) {
            text.push('#');
        } else {
            text.push_str(before);
        }
        text.push_str(part);
        rest = after;
    }
    if expected.ends_with('#') && !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()) {
        return text + "#";
    }
    text + rest
}

/// The files that the cases are about.
fn workspace() -> Workspace {
    let workspace = Workspace::new();
    let write = |name: &str, bytes: &[u8]| std::fs::write(workspace.path(name), bytes).unwrap();
    workspace.run_with("load a.pool", DUMP.as_bytes()).ok();
    workspace.pool("seeded.pool", 10);
    let pool = bytes(&workspace.path("seeded.pool"));
    write("empty", b"");
    write("zeros", &[0; 5000]);
    write("text", b"hello \"world\"");
    write("binary", b"\x7fELF\x02\x01\x01\x00");
    write("short", &pool[..100]);
    write("half", &pool[..pool.len() / 2]);
    let changed = |name: &str, change: fn(&mut Vec<u8>)| {
        let mut image = pool.clone();
        change(&mut image);
        let sum = xxhash_rust::xxh3::xxh3_64(&image[..120]);
        image[120..128].copy_from_slice(&sum.to_le_bytes());
        write(name, &image);
    };
    changed("newer", |image| image[8] = 9);
    changed("features", |image| image[17] = 1);
    changed("foreign", |image| image[12..16].reverse());
    changed("geometry", |image| image[48] = 1);
    let mut flipped = pool.clone();
    flipped[50] ^= 0x40;
    write("flipped", &flipped);
    std::os::unix::fs::symlink("nowhere", workspace.path("dangling")).unwrap();
    std::os::unix::fs::symlink("loop", workspace.path("loop")).unwrap();
    workspace
}

fn opening() -> Vec<Case> {
    vec![
        case("info no.pool", "tembo: there is no pool at no.pool; `tembo serve` and `tembo load` make pools"),
        case("info no/such/a.pool", "tembo: no does not exist; make that directory, or name another path"),
        case("info text/a.pool", "tembo: text is not a directory; move it away, or name another path"),
        case(
            "dump dangling",
            "tembo: dangling is a symbolic link to nowhere, where there is nothing; remove the link, or name the path that it leads to",
        ),
        case(
            "serve --listen 127.0.0.1:0 --pool dangling",
            "tembo: dangling is a symbolic link to nowhere, where there is nothing; remove the link, or name the path that it leads to",
        ),
        case(
            "serve --listen 127.0.0.1:0 --pool no/such/a.pool",
            "tembo: no does not exist; make that directory, or name another path",
        ),
        case("info loop", "tembo: opening loop: Too many levels of symbolic links (os error 40)"),
        case("info .", "tembo: . is a directory, not a pool file; name another path"),
        case("info /dev/null", "tembo: /dev/null is a special file, not a pool file; name another path"),
        case(
            "info empty",
            "tembo: empty: the file is empty, so it is not a pool; remove it, and a pool can be created in its place",
        ),
        case("info zeros", "tembo: zeros: the file is not a Tembo pool: it begins with zeros"),
        case("info text", "tembo: text: the file is not a Tembo pool: it begins with \"hello \\\"w\""),
        case(
            "info binary",
            "tembo: binary: the file is not a Tembo pool: it begins with 7f 45 4c 46 02 01 01 00",
        ),
        case(
            "info half",
            "tembo: half: the pool file was cut short: it has 1048576 bytes and needs #; restore it from a copy",
        ),
        case(
            "info newer",
            "tembo: newer: the pool has format version 9, and this program knows versions up to 1; use a newer Tembo",
        ),
        case(
            "info features",
            "tembo: features: the pool has structures that this program does not know (feature bits 0x100); use a newer Tembo",
        ),
        case(
            "info foreign",
            "tembo: foreign: the pool was written on a machine of the other byte order; dump it there and load the dump here",
        ),
        case(
            "serve --listen 127.0.0.1:0 --pool new.pool --max-bytes 1000",
            "tembo: new.pool: a new pool needs # bytes, and --max-bytes allows 1000; allow more",
        ),
        case(
            "serve --listen 127.0.0.1:0 --pool new.pool --durability dax",
            "tembo: new.pool: the file does not lie on persistent memory (MAP_SYNC is refused); mount its file system with -o dax, \
             or choose another --durability: auto, page-cache, synced, journaled, relaxed or emulated",
        ),
    ]
}

fn checking() -> Vec<Case> {
    vec![
        check("no.pool", 3, "there is no pool at no.pool; `tembo serve` and `tembo load` make pools"),
        check("zeros", 3, "zeros: the file is not a Tembo pool: it begins with zeros"),
        check("loop", 5, "opening loop: Too many levels of symbolic links (os error 40)"),
        check(
            "newer",
            6,
            "newer: the pool has format version 9, and this program knows versions up to 1; use a newer Tembo",
        ),
        check(
            "short",
            1,
            "short: the pool file was cut short: it has 100 bytes and needs 4096; restore it from a copy",
        ),
        check(
            "seeded.pool --seed 7 --expect-seeded 20",
            1,
            "seeded.pool: the pool lost acknowledged operations: 20 were acknowledged, 10 are in it\n  maps     #\n  \
             entries  #\n  blocks   #\n  in use   #.# KiB of #.# MiB\n",
        ),
    ]
}

fn dumps() -> Vec<Case> {
    vec![
        load(
            b"",
            "tembo: this is not a dump: there is nothing in it; the first line of a dump is {\"tembo_dump\":1}",
        ),
        load(
            b"key,value\n",
            "tembo: this is not a dump: it begins with \"key,value\"; the first line of a dump is {\"tembo_dump\":1}",
        ),
        load(
            b"\xff\xfe{\0",
            "tembo: this is not a dump: it is text in UTF-16, to be saved as UTF-8; the first line of a dump is {\"tembo_dump\":1}",
        ),
        load(
            b"{\"tembo_dump\":2}\n",
            "tembo: the dump has format version 2; this program knows versions up to 1, use a newer one",
        ),
        load(
            b"{\"tembo_dump\":1}\n",
            "tembo: the dump is cut short: it ends after line 1 without a last line {\"end\":...}",
        ),
        load(
            b"{\"tembo_dump\":1}\n{\"end\":{\"maps\":1,\"entries\":0}}\n",
            "tembo: the dump was changed or damaged: it has 0 maps and 0 entries, its last line says 1 and 0",
        ),
    ]
}

/// Dumps whose maps do not go with the pool that they are loaded into.
fn merging() -> Vec<Case> {
    let long = "x".repeat(300);
    let shown = format!("\"{}\"...", "x".repeat(40));
    vec![
        merge(
            "{\"fixed_map\":\"m\"}",
            "tembo: a.pool: line 2 of the dump: \"m\" is a map, not a fixed map; use another name for what is to be a fixed map, \
             or another pool",
        ),
        merge(
            "{\"map\":\"f\"}",
            "tembo: a.pool: line 2 of the dump: \"f\" is a fixed map, not a map; use another name for what is to be a map, \
             or another pool",
        ),
        merge(
            "{\"hash_table\":\"v\"}",
            "tembo: a.pool: line 2 of the dump: \"v\" is a map that keeps versions, not a hash table; use another name for what is \
             to be a hash table, or another pool",
        ),
        merge(
            "{\"versioned_map\":\"m\"}",
            "tembo: a.pool: line 2 of the dump: the map \"m\" keeps no versions; say map in the dump's line that names it, or load \
             into another pool",
        ),
        merge(
            &format!("{{\"map\":\"{long}\"}}"),
            &format!(
                "tembo: a.pool: line 2 of the dump: a name in a pool has 1 to 40 bytes; {shown} has 300"
            ),
        ),
        merge(
            "{\"map\":\"\"}",
            "tembo: a.pool: line 2 of the dump: a name in a pool has 1 to 40 bytes; \"\" has 0",
        ),
    ]
}

/// Files that are there already, or not.
fn files_of_dumps() -> Vec<Case> {
    vec![
        case(
            "load a.pool",
            "tembo: a.pool exists already; add --merge to load into it, or choose another path",
        ),
        case("load b.pool --input none", "tembo: there is no file none"),
        Case {
            input: DUMP.into(),
            ..case("load no/b.pool", "tembo: no does not exist; make that directory, or name another path")
        },
        case("dump a.pool --output text", "tembo: text exists already; choose another path, or move it away"),
        case(
            "dump a.pool --output no/x",
            "tembo: no does not exist; make that directory, or name another path",
        ),
    ]
}

fn snapshots() -> Vec<Case> {
    let long = "x".repeat(300);
    let shown = format!("\"{}\"...", "x".repeat(40));
    vec![
        case(
            &format!("snapshot keep a.pool {long} monday"),
            &format!("tembo: a.pool: there is no map {shown}; there is m, v, h"),
        ),
        case(
            "snapshot keep a.pool m monday",
            "tembo: a.pool: the map \"m\" keeps no versions, so it has no snapshots; load a dump of it, with versioned_map instead \
             of map in the line that names it, into another pool",
        ),
        case(
            "snapshot keep a.pool f monday",
            "tembo: a.pool: \"f\" is a fixed map, which keeps no versions and has no snapshots",
        ),
        case(
            "snapshot drop a.pool v monday",
            "tembo: a.pool: there is no snapshot named \"monday\"; `tembo snapshot list` names those there are",
        ),
        case(
            "snapshot rollback a.pool h monday",
            "tembo: a.pool: there is no snapshot named \"monday\"; `tembo snapshot list` names those there are",
        ),
    ]
}

fn seeded_workloads() -> Vec<Case> {
    vec![
        case(
            "bench --seeded --pool a.pool",
            "tembo: a.pool exists already; choose another path, or add --resume to go on with the workload in it",
        ),
        case(
            "bench --seeded --pool a.pool --resume",
            "tembo: a.pool is not a pool of `tembo bench --seeded`: it holds \"f\"; choose another path",
        ),
        case(
            "bench --seeded --pool seeded.pool --resume --seed 8",
            "tembo: seeded.pool: the pool holds the workload of seed 7, not of seed 8",
        ),
    ]
}

fn arguments() -> Vec<Case> {
    let (long, shown) = ("x".repeat(300), "x".repeat(60));
    vec![
        usage(
            "serve --max-bytes lots",
            "error: invalid value 'lots' for '--max-bytes <SIZE>': expected a number with an optional K, M, G or T (times 1024; KB, \
             MB, ... times 1000)",
        ),
        usage(
            "serve --max-bytes 99999E",
            "error: invalid value '99999E' for '--max-bytes <SIZE>': that is more than 2^64 bytes",
        ),
        usage(
            &format!("snapshot keep a.pool v {long}"),
            &format!(
                "error: invalid value '{shown}...' for '<NAME>': a snapshot's name has 1 to 255 bytes, and this has 300"
            ),
        ),
        usage(&format!("{long} a.pool"), &format!("error: unrecognized subcommand '{shown}...'")),
        usage("bench --seeded", "error: the following required arguments were not provided:"),
    ]
}

#[test]
fn the_command_says_what_happened_and_what_to_do() {
    let (workspace, mut wrong) = (workspace(), Vec::new());
    let tables = [
        opening(),
        checking(),
        dumps(),
        merging(),
        files_of_dumps(),
        snapshots(),
        seeded_workloads(),
        arguments(),
    ];
    for Case { arguments, input, text, code } in tables.into_iter().flatten() {
        let run = workspace.run_with(&arguments, &input);
        let said = if arguments.starts_with("check") { run.text() } else { run.stderr.clone() };
        let found = match (code, text.contains('\n')) {
            (_, true) => said,
            (2, _) => said.lines().next().unwrap_or_default().to_owned(),
            _ => said.strip_suffix('\n').unwrap_or(&said).to_owned(),
        };
        if (with_numbers_of(&found, &text), run.code) != (text.clone(), Some(code)) {
            wrong.push(format!("{arguments} ({:?})\n  says     {found}\n  expected {text}", run.code));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(
        !workspace.names().iter().any(|name| name.starts_with("new") && name != "newer"),
        "{:?}",
        workspace.names()
    );
}

#[test]
fn the_command_names_what_is_damaged() {
    let workspace = workspace();
    for (file, text) in [
        ("flipped", "flipped: the pool's header is damaged (its checksum is "),
        ("geometry", "geometry: the pool's header is damaged ("),
    ] {
        let run = workspace.run(&format!("check {file}"));
        assert_eq!(run.code, Some(1), "{run:?}");
        assert!(
            run.text().starts_with(text) && run.text().ends_with("; restore the file from a copy\n"),
            "{run:?}"
        );
    }
}

#[test]
fn the_command_names_who_has_a_pool_and_what_limits_it() {
    let workspace = workspace();
    let pool = Options::new().open(workspace.path("a.pool")).unwrap();
    let text = format!(
        "the pool a.pool is in use by {}; stop that process, or work on a copy of the file\n",
        holder()
    );
    let run = workspace.run("check a.pool");
    assert_eq!((run.text(), run.code), (text.clone(), Some(4)));
    let advice = "; if it served its stores (`tembo serve --stores`, or Pool::serve_stores in a program), this command \
         would work beside it";
    assert_eq!(workspace.run("info a.pool").stderr, format!("tembo: {}{advice}\n", text.trim_end()));
    drop(pool);
    let limited = |shell: &str, arguments: &str| {
        let shell = format!("{shell}; exec {} {arguments}", env!("CARGO_BIN_EXE_tembo"));
        let mut command = Command::new("bash");
        command.args(["-c", &shell]).current_dir(workspace.path("")).stdin(Stdio::null());
        String::from_utf8(command.output().unwrap().stderr).unwrap()
    };
    assert_eq!(
        limited("ulimit -f 100", "bench --seeded --pool new.pool"),
        "tembo: new.pool: the file-size limit of this process is 102400 bytes, see `ulimit -f`, and 2097152 bytes are needed; raise the limit\n"
    );
    assert_eq!(
        limited("export TEMBO_FLUSH=x", "info a.pool"),
        "tembo: environment variable TEMBO_FLUSH=\"x\" is not understood; expected clwb, clflushopt or clflush on x86-64, dc-cvap on AArch64\n"
    );
    assert_eq!(
        limited("exec >/dev/full", "dump a.pool"),
        "tembo: writing the output: No space left on device (os error 28)\n"
    );
}

/// A program that was asked for JSON got none when the command failed.
#[test]
fn a_failure_is_json_too_where_that_was_asked_for() {
    let workspace = Workspace::new();
    let text = "there is no pool at no.pool; `tembo serve` and `tembo load` make pools";
    for arguments in ["info no.pool --json", "snapshot list no.pool --json"] {
        let run = workspace.run(arguments).fails_with(text);
        assert_eq!(run.json(), serde_json::json!({"error": text, "kind": "absent"}), "{arguments}");
    }
    let verdict = workspace.run("check no.pool --json");
    assert_eq!(
        (verdict.code, verdict.json()),
        (Some(3), serde_json::json!({"path": "no.pool", "ok": false, "error": text, "kind": "absent"}))
    );
}

/// No memory for anything.
struct Nowhere;

impl Records for Nowhere {
    fn count(&self) -> usize {
        0
    }

    fn truncate(&mut self, _count: usize) {}

    fn reserve(&mut self, more: usize) -> Result<(), IndexError> {
        Err(IndexError::OutOfMemory { bytes: 16 * more as u64 })
    }

    fn push(&mut self, _key: u64, _value: u64) {
        unreachable!("there is no room")
    }
}

fn refusal<T>(outcome: tembo::Result<T>) -> String {
    match outcome {
        Ok(_) => "nothing was refused".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// The library's texts about an open pool.
fn in_a_pool(pool: &Pool) -> Vec<(String, &'static str)> {
    let long = "n".repeat(300);
    let (map, versioned) = (pool.open_map("m").unwrap(), pool.open_map("v").unwrap());
    let fixed = pool.open_fixed_map("f").unwrap();
    fixed.put(1, 1).unwrap();
    let versions = MapOptions::new().versioned(true);
    let other = pool.open_map_with("other", versions).unwrap().snapshot().unwrap();
    vec![
        (
            refusal(pool.open_map("f")),
            "\"f\" is a fixed map, not a map; open it as what it is, or choose another name",
        ),
        (
            refusal(pool.open_hash_table("m")),
            "\"m\" is a map, not a hash table; open it as what it is, or choose another name",
        ),
        (
            refusal(pool.open_map_with("m", versions)),
            "the map \"m\" keeps no versions; open it without asking for a kind, or write versioned_map in place of map in the line \
             of a dump that names it, and load that into another pool",
        ),
        (refusal(pool.open_map("")), "a name in a pool has 1 to 40 bytes; \"\" has 0"),
        (
            refusal(pool.open_map(&long)),
            "a name in a pool has 1 to 40 bytes; \"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\"... has 300",
        ),
        (refusal(map.put([0; 70_000], "")), "the key has 70000 bytes; keys have at most 65536"),
        (
            refusal(map.put("k", vec![0; (512 << 20) + 1])),
            "the value has 536870913 bytes; values have at most 536870912",
        ),
        (
            refusal(map.snapshot()),
            "the map keeps no versions; snapshots need one that was created with MapOptions::new().versioned(true)",
        ),
        (
            refusal(versioned.open_snapshot("none")),
            "there is no snapshot named \"none\"; keep one by that name, or list those that there are",
        ),
        (refusal(versioned.rollback_to(&other)), "the snapshot is of another map; take one of this map"),
        (
            refusal(other.keep(&long)),
            "a snapshot's name has 1 to 255 bytes; \"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\"... has 300",
        ),
        (
            refusal(fixed.scan(0, 5, &mut Nowhere)),
            "there is no memory for 16 bytes; ask for less at a time, or let the process have more",
        ),
    ]
}

/// The library's texts about pools that are not opened.
fn opening_a_pool(workspace: &Workspace) -> Vec<(String, String)> {
    let at = |name: &str| workspace.path(name);
    let shown = |name: &str| workspace.path(name).display().to_string();
    let plain = Options::new;
    vec![
        (
            refusal(plain().open(at("no.pool"))),
            format!("there is no pool at {}; create one there, or name another path", shown("no.pool")),
        ),
        (
            refusal(plain().create(true).open(at("no/a.pool"))),
            format!("{} does not exist; make that directory, or name another path", shown("no")),
        ),
        (
            refusal(plain().create_new(true).open(at("dangling"))),
            format!(
                "{} is a symbolic link to nowhere, where there is nothing; remove the link, or name the path that it leads to",
                shown("dangling")
            ),
        ),
        (
            refusal(plain().create_new(true).open(at("a.pool"))),
            format!("{} exists already; choose another path, or open it", shown("a.pool")),
        ),
        (
            refusal(plain().create(true).read_only(true).open(at("a.pool"))),
            "a pool cannot be created for reading only".to_owned(),
        ),
        (
            refusal(plain().create(true).max_bytes(1 << 20).open(at("new.pool"))),
            "a new pool would have 67108864 bytes, more than its maximum of 1048576; allow it more".to_owned(),
        ),
        (
            refusal(plain().durability(Durability::Dax).open(at("a.pool"))),
            "the file is not on a DAX file system (MAP_SYNC is refused), so durability `dax` cannot be had; mount with -o dax, or use \
             `auto`, `synced` or `emulated`"
                .to_owned(),
        ),
    ]
}

/// The library's texts about a pool with no more memory, and no more lanes.
fn in_a_full_pool(workspace: &Workspace) -> Vec<(String, String)> {
    let options = Options::new().create(true).initial_bytes(1 << 20).max_bytes(1 << 20);
    let full = options.open(workspace.path("full.pool")).unwrap();
    let no_memory = refusal(full.open_map("m").unwrap().put("k", vec![0; 2 << 20]));
    let versions = MapOptions::new().versioned(true);
    let mut open = Vec::new();
    let no_lanes = loop {
        match full.open_map_with(&format!("v{}", open.len()), versions) {
            Ok(map) => open.push(map),
            Err(error) => break error.to_string(),
        }
    };
    vec![
        (
            no_memory,
            "the pool is full: # more bytes are needed (its maximum is 1048576 bytes); remove something, or let it grow"
                .to_owned(),
        ),
        (
            no_lanes,
            "all 16 lanes of the pool are in use: 15 of its maps with versions, fixed maps, hash tables and stores are open, and each holds one \
             or more; close some first"
                .to_owned(),
        ),
    ]
}

#[test]
fn the_library_says_what_happened_and_what_to_do() {
    let workspace = workspace();
    let path = workspace.path("a.pool");
    let mut cases = opening_a_pool(&workspace);
    cases.extend(in_a_full_pool(&workspace));
    {
        let reader = Options::new().read_only(true).open(&path).unwrap();
        cases.push((refusal(reader.open_map("new")), "the pool was opened for reading only".to_owned()));
    }
    let pool = Options::new().open(&path).unwrap();
    let second = refusal(Options::new().open(&path));
    let text = format!("in use by {}; stop that process, or work on a copy of the file", holder());
    cases.push((second, format!("the pool {} is {text}", path.display())));
    cases.extend(in_a_pool(&pool).into_iter().map(|(found, expected)| (found, expected.to_owned())));
    let differs = |(found, expected): &(String, String)| with_numbers_of(found, expected) != *expected;
    let wrong: Vec<String> =
        cases.into_iter().filter(differs).map(|(found, expected)| format!("{found}\n{expected}")).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn damage_is_told_with_its_place() {
    let error = PoolError::corrupt("a root's name", 4096, "1 to 40 bytes", 300);
    assert_eq!(
        error.to_string(),
        "the pool is damaged: a root's name at offset 0x1000: expected 1 to 40 bytes, found 300; restore it from a copy, or dump what can still be read"
    );
}
