//! What is left when a command is interrupted, or when nobody takes what it prints.

use crate::support::{Run, Workspace, bytes};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SIGPIPE: i32 = 13;

const DUMP: &str = "{\"tembo_dump\":1}\n{\"map\":\"m\"}\n{\"key\":\"a\",\"value\":\"1\"}\n{\"end\":{\"maps\":1,\"entries\":1}}\n";

fn send(child: &Child, signal: &str) {
    let sent = std::process::Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

/// Waits until the process has read all of what was written to its standard input, and made what it makes of
/// that.
fn wait_until_read(child: &Child) {
    let state = || std::fs::read_to_string(format!("/proc/{}/wchan", child.id())).unwrap_or_default();
    let begun = Instant::now();
    while !state().contains("pipe") && begun.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether this process ignores SIGINT, as the system has it.
fn ignores_interrupts() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(ignored.trim(), 16).unwrap() & 1 << 1 != 0
}

/// A load that was interrupted left a file of full size beside the pool that it was to make.
#[test]
fn a_load_that_is_interrupted_leaves_nothing_behind() {
    let workspace = Workspace::new();
    // A program that a shell started in the background ignores SIGINT, and so do its children.
    let signals = if ignores_interrupts() { &["-TERM", "-KILL"][..] } else { &["-INT", "-TERM", "-KILL"] };
    for signal in signals {
        let mut child = workspace.command("load a.pool").stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(DUMP.lines().next().unwrap().as_bytes()).unwrap();
        let entries = (0..200_000).map(|i| format!("{{\"key\":\"{i}\",\"value\":\"{i}\"}}\n"));
        stdin.write_all(format!("\n{{\"map\":\"m\"}}\n{}", entries.collect::<String>()).as_bytes()).unwrap();
        wait_until_read(&child);
        send(&child, signal);
        assert!(!child.wait().unwrap().success());
        drop(stdin);
        assert_eq!(workspace.names(), [""; 0], "{signal}");
    }
    workspace.run_with("load a.pool", DUMP.as_bytes()).ok();
}

/// A dump of one entry made a pool of 64 MiB.
#[test]
fn a_small_dump_makes_a_small_pool() {
    let workspace = Workspace::new();
    workspace.run_with("load a.pool", DUMP.as_bytes()).ok();
    // The space set aside for a journal is not taken yet.
    let bytes = workspace.path("a.pool").metadata().unwrap().blocks() * 512;
    assert!(bytes < 28 << 20, "{bytes} bytes");
    workspace.run("check a.pool").ok();
}

/// A dump that could not be written as a whole ended with exit code 0 when its reader had gone away.
#[test]
fn a_dump_that_is_not_taken_as_a_whole_fails() {
    let workspace = Workspace::new();
    workspace.pool("a.pool", 400);
    let mut child =
        workspace.command("dump a.pool").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    // As of other programs: nothing is said, and the shell sees 141.
    assert_eq!((output.status.signal(), output.stderr), (Some(SIGPIPE), Vec::new()));
    for arguments in
        ["dump a.pool", "info a.pool", "info a.pool --json", "check a.pool", "snapshot list a.pool"]
    {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = workspace.command(arguments).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, "tembo: writing the output: No space left on device (os error 28)\n", "{arguments}");
    }
    workspace.run("dump a.pool --output a.jsonl").ok();
    assert_eq!(workspace.names(), ["a.jsonl", "a.pool"]);
}

/// A dump to a closed standard output went to the null device, which the runtime opens there, and exited with
/// 0.
#[test]
fn a_dump_to_a_closed_standard_output_fails() {
    let workspace = Workspace::new();
    workspace.pool("a.pool", 400);
    let run = |redirection: &str| -> Run {
        let script = format!("exec {} dump a.pool {redirection}", env!("CARGO_BIN_EXE_tembo"));
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).current_dir(workspace.path(""));
        shell.output().unwrap().into()
    };
    let text = "tembo: writing the output: standard output is closed, or a null device that is open for reading too; \
                --output writes to a file\n";
    for closed in [">&-", "<&- >&-"] {
        let run = run(closed).fails_with(text);
        assert_eq!(run.stderr, text, "{closed}");
    }
    assert_eq!(run(">&- 2>&-").code, Some(1));
    // The null device that a shell opens is a workspace like others, and so is a file that is open for
    // reading too.
    run(">/dev/null").ok();
    run("1<>both.jsonl").ok();
    run(">&- --output a.jsonl").ok();
    assert_eq!(bytes(&workspace.path("both.jsonl")), bytes(&workspace.path("a.jsonl")));
    assert_eq!(workspace.names(), ["a.jsonl", "a.pool", "both.jsonl"]);
}

#[test]
fn a_check_whose_verdict_is_not_read_keeps_its_exit_code() {
    let workspace = Workspace::new();
    std::fs::write(workspace.path("zeros"), [0; 5000]).unwrap();
    for (file, code) in [("zeros", 3), ("none", 3)] {
        let mut child = workspace.command(&format!("check {file}")).stdout(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(code), "{file}");
    }
}

/// A server whose port was in use had made its pool before it found that out.
#[test]
fn a_server_that_cannot_listen_makes_no_pool() {
    let workspace = Workspace::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let run = workspace.run(&format!("serve --listen {address} --pool a.pool"));
    let text = format!(
        "tembo: {address} is in use by another program; stop that, or choose another address with --listen\n"
    );
    assert_eq!((run.stderr, run.code), (text, Some(1)));
    assert_eq!(workspace.names(), [""; 0]);
}

/// `bench --resume` made its maps in any pool.
#[test]
fn the_seeded_workload_goes_on_in_its_own_pools_only() {
    let workspace = Workspace::new();
    workspace.run_with("load a.pool", DUMP.as_bytes()).ok();
    let before = workspace.run("dump a.pool").ok().stdout;
    workspace.run("bench --seeded --pool a.pool --resume --ops 3").fails_with("it holds \"m\"");
    assert_eq!(workspace.run("dump a.pool").ok().stdout, before);
    workspace.run("bench --seeded --pool b.pool --resume --ops 3").ok();
    workspace.run("bench --seeded --pool b.pool --resume --ops 5").ok();
}

/// A benchmark that was interrupted left its pools behind.
#[test]
fn a_benchmark_that_is_interrupted_leaves_nothing_behind() {
    let workspace = Workspace::new();
    for signal in ["-INT", "-TERM"] {
        let mut child =
            workspace.command("bench --entries 500000 --dir .").stdout(Stdio::piped()).spawn().unwrap();
        let begun = Instant::now();
        while workspace.names().is_empty() && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_millis(100));
        send(&child, signal);
        assert!(!child.wait().unwrap().success());
        assert_eq!(workspace.names(), [""; 0], "{signal}");
    }
}

/// What takes long shows its progress on standard error, and only to people.
#[test]
fn nothing_but_the_answer_is_on_standard_output() {
    let workspace = Workspace::new();
    workspace.pool("a.pool", 400);
    let run = workspace.run("dump a.pool").ok();
    assert!(run.text().lines().all(|line| line.starts_with('{')) && run.stderr.is_empty(), "{run:?}");
    let run = workspace.run_with("load b.pool", &run.stdout).ok();
    assert_eq!((run.stdout.len(), run.stderr.lines().count()), (0, 1), "{run:?}");
    let mut child =
        workspace.command("bench --seeded --pool c.pool --ops 3").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_to_string(&mut lines).unwrap();
    assert!(child.wait().unwrap().success() && lines.as_bytes().lines().count() == 3, "{lines}");
}
