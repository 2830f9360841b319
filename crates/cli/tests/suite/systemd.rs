//! Messages to a service manager: a test plays systemd.

use crate::serve::Server;
use crate::support::Workspace;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The manager's socket, and a server that knows of it.
fn supervised(workspace: &Workspace, arguments: &str, watchdog_ms: u64) -> (UnixDatagram, Server) {
    let path = workspace.path("notify");
    let _ = std::fs::remove_file(&path);
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut command = workspace.command(&format!("serve --listen 127.0.0.1:0 --pool a.pool {arguments}"));
    command.env("NOTIFY_SOCKET", &path).env_remove("WATCHDOG_PID").stderr(Stdio::piped());
    command.env("WATCHDOG_USEC", (watchdog_ms * 1000).to_string());
    (socket, Server::spawn(&mut command))
}

/// The next message.
#[track_caller]
fn heard(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 256];
    let count = socket.recv(&mut buffer).expect("the server says something");
    String::from_utf8(buffer[..count].to_vec()).unwrap()
}

#[test]
fn systemd_is_told_of_the_beginning_of_life_and_of_the_end() {
    let workspace = Workspace::new();
    let (socket, server) = supervised(&workspace, "", 1000);
    assert!(heard(&socket).starts_with("READY=1\n"));
    server.ask("PING", "+PONG\r\n");
    for _ in 0..3 {
        assert_eq!(heard(&socket), "WATCHDOG=1\n");
    }
    server.ask("SHUTDOWN", "");
    let last = loop {
        let message = heard(&socket);
        if message != "WATCHDOG=1\n" {
            break message;
        }
    };
    assert_eq!(last, "STOPPING=1\n");
    assert_eq!(server.end().0, Some(0));
}

/// A thread of its own would have gone on saying so.
#[test]
fn a_stuck_event_loop_is_silent() {
    let workspace = Workspace::new();
    std::fs::write(workspace.path("conf"), "enable-debug-command local\nsupervised systemd\n").unwrap();
    let (socket, server) = supervised(&workspace, "--config conf", 600);
    assert!(heard(&socket).starts_with("READY=1\n"));
    assert_eq!(heard(&socket), "WATCHDOG=1\n");
    let began = Instant::now();
    server.ask("DEBUG SLEEP 3", "+OK\r\n");
    let slept = began.elapsed();
    socket.set_nonblocking(true).unwrap();
    let mut buffer = [0; 64];
    let said = std::iter::from_fn(|| socket.recv(&mut buffer).ok()).count();
    // One before the sleep began, and one after it.
    assert!(said <= 2, "{said} messages in {slept:?}");
    server.kill();
}

/// Long by design is not stuck: a manager that ends such a server begins a circle.
#[test]
fn a_long_turn_that_goes_forward_says_so() {
    let workspace = Workspace::new();
    std::fs::write(workspace.path("conf"), "busy-reply-threshold 20\n").unwrap();
    let (socket, server) = supervised(&workspace, "--config conf", 20);
    assert!(heard(&socket).starts_with("READY=1\n"));
    // The socket holds few messages, and its peer waits while it is full.
    let said = Arc::new(AtomicUsize::new(0));
    let count = said.clone();
    std::thread::spawn(move || {
        while socket.recv(&mut [0; 64]).is_ok_and(|len| len > 0) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    server.ask(
        "EVAL 'local v = string.rep(\"x\", 1000) for i = 1, 60000 do redis.call(\"set\", i, v) end' 0",
        "$-1\r\n",
    );
    said.store(0, Ordering::Relaxed);
    let began = Instant::now();
    server.ask("EVAL 'local t = os.clock() while os.clock() < t + 1 do end return 1' 0", ":1\r\n");
    // The cron says one before a long turn, and one behind it.
    let (said, took) = (said.load(Ordering::Relaxed), began.elapsed());
    assert!(said >= 4, "{said} messages in {took:?}");
    server.kill();
}

#[test]
fn a_manager_is_told_nothing_if_that_is_said() {
    let workspace = Workspace::new();
    for value in ["no", "upstart"] {
        std::fs::write(workspace.path("conf"), format!("supervised {value}\n")).unwrap();
        let (socket, server) = supervised(&workspace, "--config conf", 400);
        server.ask("PING", "+PONG\r\n");
        socket.set_read_timeout(Some(Duration::from_millis(700))).unwrap();
        assert!(socket.recv(&mut [0; 64]).is_err(), "supervised {value}");
        server.kill();
    }
    std::fs::write(workspace.path("conf"), "supervised perhaps\n").unwrap();
    workspace.run("serve --pool a.pool --config conf").ends_with(2, "upstart, systemd, auto, no");
}

/// The unit is what the guide says, and systemd takes it.
#[test]
fn the_unit_starts_the_server_as_one_that_notifies() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/systemd/tembo.service");
    let text = std::fs::read_to_string(unit).unwrap();
    for line in
        ["Type=notify", "WatchdogSec=", "NoNewPrivileges=yes", "ProtectSystem=strict", "StateDirectory=tembo"]
    {
        assert!(text.lines().any(|found| found.starts_with(line)), "{line}");
    }
    let start = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let arguments = start.strip_prefix("/usr/local/bin/tembo ").unwrap();
    let workspace = Workspace::new();
    // Its options are those of the command: the configuration that is absent here is the first mistake.
    let arguments = arguments.replace("/etc/tembo/tembo.conf", "absent.conf");
    workspace.run(&arguments).ends_with(2, "absent.conf");
    let tried = std::process::Command::new("systemd-analyze").args(["verify", unit]).output();
    match tried {
        Err(_) => eprintln!("skipped: no systemd-analyze here to verify the unit"),
        Ok(tried) => {
            let said = String::from_utf8_lossy(&tried.stderr);
            // The program itself need not be installed.
            let wrong = said
                .lines()
                .filter(|line| line.contains("tembo.service") && !line.contains("not executable"));
            assert_eq!(wrong.collect::<Vec<_>>(), Vec::<&str>::new());
        }
    }
}
