//! memcached clients beside Redis's, on one pool.

use crate::serve::Server;
use crate::support::Workspace;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ARGUMENTS: &str = "--pool a.pool --memcached 127.0.0.1:0";

/// A memcached client.
pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) fn of(server: &Server) -> Client {
        let address = server.greeting.lines().find_map(|line| line.trim().strip_prefix("memcached")).unwrap();
        let stream = TcpStream::connect(address.trim()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client(BufReader::new(stream))
    }

    /// The first line of the reply; nothing if the server is gone.
    fn try_says(&mut self, request: &str) -> Option<String> {
        self.0.get_mut().write_all(format!("{}\r\n", request.replace('\n', "\r\n")).as_bytes()).ok()?;
        let mut line = String::new();
        self.0.read_line(&mut line).ok()?;
        line.ends_with("\r\n").then(|| line.trim_end().to_owned())
    }

    pub(crate) fn says(&mut self, request: &str) -> String {
        self.try_says(request).unwrap()
    }

    /// A figure of `stats`.
    pub(crate) fn stat(&mut self, name: &str) -> u64 {
        let mut line = self.says("stats");
        let mut found = None;
        while line.trim_end() != "END" {
            found = found.or_else(|| line.trim_end().strip_prefix(&format!("STAT {name} "))?.parse().ok());
            line.clear();
            self.0.read_line(&mut line).unwrap();
        }
        found.unwrap_or_else(|| panic!("no figure {name}"))
    }

    /// The value of a key, which has no line end; `None` if the key is not there.
    pub(crate) fn value(&mut self, key: &str) -> Option<String> {
        let head = self.says(&format!("mg {key} v"));
        if head == "EN" {
            return None;
        }
        assert!(head.starts_with("VA "), "{head}");
        let mut value = String::new();
        self.0.read_line(&mut value).unwrap();
        Some(value.trim_end().to_owned())
    }
}

#[test]
fn both_protocols_are_served_out_of_one_pool() {
    let workspace = Workspace::new();
    let server = Server::start(&workspace, ARGUMENTS);
    let mut client = Client::of(&server);
    assert_eq!(client.says("set a 5 0 5\nhello"), "STORED");
    server.ask("SET a redis", "+OK\r\n");
    server.ask("DBSIZE", ":1\r\n");
    assert!(server.stop().contains("every acknowledged write is in"));
    let server = Server::start(&workspace, ARGUMENTS);
    let mut client = Client::of(&server);
    assert_eq!(client.says("mg a f v"), "VA 5 f5");
    server.ask("GET a", "$5\r\nredis\r\n");
    server.stop();
    assert!(workspace.run("maps a.pool").ok().text().contains("memcached"));
    workspace.run("check a.pool").ok();
    let pool = tembo::Options::new().open(workspace.path("a.pool")).unwrap();
    pool.open_map("memcached").unwrap().put("a", "short").unwrap();
    drop(pool);
    workspace.run("check a.pool").fails_with("the item a of the map \"memcached\" is damaged");
}

/// A page of the server's endpoint of metrics.
fn metrics(server: &Server) -> String {
    let address = server.greeting.lines().find_map(|line| line.trim().strip_prefix("metrics ")).unwrap();
    let address = address.trim().trim_start_matches("http://").split('/').next().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

/// The guide has a row for each metric of memcached clients; they follow within a second.
#[test]
fn memcached_clients_are_seen_in_the_metrics() {
    let workspace = Workspace::new();
    let server = Server::start(&workspace, &format!("{ARGUMENTS} --metrics 127.0.0.1:0"));
    let mut client = Client::of(&server);
    assert_eq!(client.says("set a 0 0 1\n1"), "STORED");
    assert_eq!(client.says("mg a"), "HD");
    assert_eq!(client.says("get b"), "END");
    let expected = [
        ("items", 1),
        ("clients", 1),
        ("commands_total", 3),
        ("hits_total", 1),
        ("misses_total", 1),
        ("stored_items_total", 1),
        ("evicted_items_total", 0),
    ];
    let lines = expected.map(|(name, value)| format!("\ntembo_memcached_{name} {value}\n"));
    let deadline = Instant::now() + Duration::from_secs(20);
    let page = loop {
        let page = metrics(&server);
        if lines.iter().all(|line| page.contains(line.as_str())) {
            break page;
        }
        assert!(Instant::now() < deadline, "{page}");
        std::thread::sleep(Duration::from_millis(100));
    };
    let guide = include_str!("../../../../docs/guide/memcached.md");
    let mut shown = 0;
    for line in page.lines().filter_map(|line| line.strip_prefix("# HELP tembo_memcached_")) {
        let (name, help) = line.split_once(' ').unwrap();
        let row = |kind| format!("| `tembo_memcached_{name}` | {kind} | {} |\n", help.trim_end_matches('.'));
        assert!(guide.contains(&row("counter")) || guide.contains(&row("gauge")), "{line}");
        shown += 1;
    }
    assert_eq!(guide.matches("| `tembo_memcached_").count(), shown);
    server.stop();
}

/// Datagrams are not listened to: memcached's UDP port made floods larger by spoofed addresses.
#[test]
fn datagrams_are_refused() {
    let workspace = Workspace::new();
    let server = Server::start(&workspace, ARGUMENTS);
    let address = server.greeting.lines().find_map(|line| line.trim().strip_prefix("memcached")).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(address.trim()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket.send(b"\0\0\0\0\0\x01\0\0stats\r\n").unwrap();
    let outcome = socket.recv(&mut [0; 64]).map_err(|error| error.kind());
    assert_eq!(outcome, Err(std::io::ErrorKind::ConnectionRefused));
    server.stop();
}

#[test]
fn wrong_options_and_addresses_in_use_are_told() {
    let workspace = Workspace::new();
    let serve = |options: &str| workspace.run(&format!("serve --listen 127.0.0.1:0 --pool a.pool {options}"));
    serve("--memcached 0.0.0.0:0").ends_with(2, "--memcached-accounts");
    serve("--memcached-accounts x").ends_with(2, "--memcached");
    serve("--memcached nonsense").ends_with(2, "127.0.0.1");
    serve("--memcached 127.0.0.1:0 --memcached-max-value 1G").ends_with(2, "at most");
    std::fs::write(workspace.path("accounts"), "nonsense\n").unwrap();
    serve("--memcached 0.0.0.0:0 --memcached-accounts accounts").ends_with(2, "line 1 is not name:password");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let _listener = TcpListener::bind(taken).unwrap();
    serve(&format!("--memcached {taken}")).fails_with("in use by another program");
    assert!(!workspace.path("a.pool").exists(), "a pool was made for nothing");
}

/// After SIGKILL each acknowledged change is there, none is there twice, and numbers were not given again.
#[test]
fn acknowledged_items_survive_kills() {
    let kills =
        std::env::var("TEMBO_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(10_u64).min(200);
    let workspace = Workspace::new();
    let (mut count, mut unique) = (0, 0_u64);
    for turn in 0..kills {
        let server = Server::start(&workspace, ARGUMENTS);
        let mut client = Client::of(&server);
        if turn == 0 {
            assert_eq!(client.says("set count 0 0 1\n0"), "STORED");
        }
        let found: u64 = client.says("incr count 1").parse().unwrap();
        // The last one of the turn before was sent, and perhaps made.
        assert!(found == count + 1 || found == count + 2, "turn {turn}: {found} after {count}");
        count = found;
        let acknowledged = AtomicU64::new(count);
        let last_unique = AtomicU64::new(unique);
        std::thread::scope(|scope| {
            let work = scope.spawn(|| {
                for number in count + 1.. {
                    let Some(reply) = client.try_says("incr count 1") else { return };
                    assert_eq!(reply, number.to_string());
                    acknowledged.store(number, Ordering::Relaxed);
                    let Some(reply) = client.try_says(&format!("ms item 1000 c T100\n{}", "v".repeat(1000)))
                    else {
                        return;
                    };
                    let given: u64 = reply.strip_prefix("HD c").unwrap().parse().unwrap();
                    assert!(given > last_unique.swap(given, Ordering::Relaxed), "a number was given again");
                }
            });
            std::thread::sleep(Duration::from_millis(5 + turn * 7 % 60));
            server.kill();
            work.join().unwrap();
        });
        (count, unique) = (acknowledged.into_inner(), last_unique.into_inner());
    }
    assert!(count > kills, "nothing was done");
    let server = Server::start(&workspace, ARGUMENTS);
    let mut client = Client::of(&server);
    assert_eq!(client.says("mg item s v"), "VA 1000 s1000");
    let mut value = vec![0; 1002];
    client.0.read_exact(&mut value).unwrap();
    assert_eq!(value, ["v".repeat(1000).as_bytes(), b"\r\n"].concat());
    server.stop();
    workspace.run("check a.pool").ok();
}
