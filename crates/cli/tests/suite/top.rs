//! `tembo top` as text, which scripts use.

use crate::serve::Server;
use crate::support::{Run, Workspace};
use std::io::Write;
use std::net::{TcpListener, TcpStream};

fn top(workspace: &Workspace, server: &Server, options: &str) -> Run {
    workspace.run(&format!("top 127.0.0.1:{} --interval 0.3 {options}", server.port))
}

#[test]
fn a_report_has_what_happened_in_its_interval() {
    let workspace = Workspace::new();
    std::fs::write(workspace.path("conf"), "slowlog-log-slower-than 0\n").unwrap();
    let server = Server::start(&workspace, "--pool a.pool --durability journaled --config conf");
    server.ask("SET hunter2 hunter2", "+OK\r\n");
    let text = std::thread::scope(|scope| {
        let watching = scope.spawn(|| top(&workspace, &server, "--once").ok().text());
        while !watching.is_finished() {
            server.ask("SET key 1", "+OK\r\n");
        }
        watching.join().unwrap()
    });
    for part in [
        "tembo ",
        "journaled, master with 0 replicas",
        "\nkeys         2, 0 expire",
        "space ",
        "journal ",
        "behind ",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let row =
        text.lines().find(|line| line.starts_with("set  ")).unwrap_or_else(|| panic!("no set in\n{text}"));
    let rate: f64 = row.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(rate > 1.0 && !row.contains(" - "), "{row}");
    let commits = text.lines().find(|line| line.starts_with("commits ")).unwrap();
    // A commit of one command has one fence, or two where the next one's lane is made ready.
    let fences: f64 = commits.split("with ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((0.9..3.0).contains(&fences), "{commits}");
    assert!(text.contains("slow         set took "), "{text}");
    assert!(!text.contains("hunter2"), "a user's data is shown:\n{text}");
    server.stop();
}

#[test]
fn a_server_that_went_away_is_asked_again() {
    let workspace = Workspace::new();
    let server = Server::start(&workspace, "--pool a.pool");
    let port = server.port;
    let line = format!("top 127.0.0.1:{port} --interval 0.3 --batch 12");
    let text = std::thread::scope(|scope| {
        let watching = scope.spawn(|| workspace.run(&line));
        std::thread::sleep(std::time::Duration::from_millis(700));
        server.kill();
        std::thread::sleep(std::time::Duration::from_millis(700));
        let server = workspace.command(&format!("serve --listen 127.0.0.1:{port} --pool a.pool"));
        let server = Server::spawn(&mut { server });
        let text = watching.join().unwrap().ok().text();
        server.kill();
        text
    });
    let gone = text.find("does not answer: ").unwrap_or_else(|| panic!("it was there all the time:\n{text}"));
    assert!(text[gone..].contains("connected again\n") && text[gone..].contains("master with"), "{text}");
}

#[test]
fn who_may_not_look_is_told_what_to_do() {
    let workspace = Workspace::new();
    let server = Server::start(&workspace, "--pool a.pool --requirepass hunter2 --unixsocket s");
    top(&workspace, &server, "--once")
        .fails_with("asks for a password; set TEMBO_PASSWORD, or use --askpass");
    let with = |password: &str, options: &str| -> Run {
        let mut command = workspace.command(&format!("top --interval 0.1 {options}"));
        command.env("TEMBO_PASSWORD", password).output().unwrap().into()
    };
    let address = format!("127.0.0.1:{} --once", server.port);
    assert!(with("hunter2", &address).ok().text().starts_with("tembo "));
    assert!(with("hunter2", "--unixsocket s --once").ok().text().contains(" at s, up "));
    with("wrong", &address).fails_with("WRONGPASS");
    // Standard input is no terminal: a line of it.
    let asked = workspace.run_with(&format!("top {address} --interval 0.1 --askpass"), b"hunter2\n");
    assert!(asked.ok().text().contains("commands "));
    // Without LATENCY and SLOWLOG there are no percentiles, and the rest is there.
    let mut admin = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    admin.write_all(b"AUTH hunter2\r\nACL SETUSER eye on >seen +info\r\n").unwrap();
    let mut replies = [0; 10];
    std::io::Read::read_exact(&mut admin, &mut replies).unwrap();
    let text = with("seen", &format!("{address} --user eye")).ok().text();
    assert!(text.contains("commits ") && !text.contains("\nslow "), "{text}");
    server.kill();
}

#[test]
fn wrong_usage_and_absent_servers_are_told() {
    let workspace = Workspace::new();
    workspace.run("top").ends_with(2, "standard output is no terminal; --once and --batch N print text");
    workspace.run("top --once --batch 3").ends_with(2, "cannot be used with");
    workspace.run("top --batch 0").ends_with(2, "--batch");
    workspace.run("top --interval 0 --once").ends_with(2, "0.1 to 3600");
    workspace.run("top --user eye --once").ends_with(2, "TEMBO_PASSWORD or --askpass");
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    workspace.run(&format!("top {free} --once")).fails_with(&format!("{free} does not answer: "));
    // Something else listens there.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 mail.example\r\n").unwrap();
        // Until the other side has read it.
        let _ = std::io::Read::read(&mut stream, &mut [0; 64]);
    });
    workspace.run(&format!("top {address} --once")).fails_with("it is no Redis server");
    other.join().unwrap();
}

/// On a terminal of its own, which `script` makes.
#[test]
fn a_terminal_shows_it_and_q_ends_it() {
    let workspace = Workspace::new();
    let server = Server::start(&workspace, "--pool a.pool");
    let show =
        format!("stty rows 30 cols 100; '{}' top 127.0.0.1:{}", env!("CARGO_BIN_EXE_tembo"), server.port);
    let mut command = std::process::Command::new("script");
    command.args(["-qec", &show, "/dev/null"]).env("TERM", "xterm");
    let piped = command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let Ok(mut child) = piped.spawn() else {
        eprintln!("skipped: no `script` here, which makes a terminal");
        return;
    };
    let mut keys = child.stdin.take().unwrap();
    // After the first interval.
    std::thread::sleep(std::time::Duration::from_millis(2500));
    keys.write_all(b"q").unwrap();
    let out = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{text}");
    // Blanks are moves of the cursor.
    for part in ["interval", "space:", "alive", "clients ", "q:"] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    // The other screen is left again, and the cursor is shown.
    assert!(
        text.contains("\x1b[?1049h") && text.contains("\x1b[?1049l") && text.contains("\x1b[?25h"),
        "{text}"
    );
    server.kill();
}
