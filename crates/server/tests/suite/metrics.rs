//! Figures and health over HTTP.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use openmetrics_parser::openmetrics::parse_openmetrics;
use openmetrics_parser::prometheus::parse_prometheus;
use tembo_server::{Config, Error, Listener};

use crate::support::{Client, Fixture, PATIENCE};

fn fixture(change: impl FnOnce(&mut Config)) -> Fixture {
    Fixture::with_config(|config| {
        config.metrics = Some("127.0.0.1:0".parse().unwrap());
        change(config);
    })
}

/// Where the metrics of a server are.
fn address(client: &mut Client) -> SocketAddr {
    let reply = client.ask("CONFIG GET metrics");
    reply.trim_matches(['[', ']', '{', '}']).rsplit('$').next().unwrap().trim().parse().unwrap()
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends this and reads to the end; the head and the body.
#[track_caller]
fn exchange(address: SocketAddr, request: &str) -> (String, String) {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {text:?}"));
    (head.to_owned(), body.to_owned())
}

/// The status and the body of a path.
#[track_caller]
fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let (head, body) = exchange(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
    (status, body)
}

/// The samples of an exposition, by their names with labels.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        let before = samples.insert(name.to_owned(), value.parse().unwrap());
        assert!(before.is_none(), "{name} is there twice");
    }
    samples
}

/// The figures that there are: up to a second old.
fn latest(address: SocketAddr) -> BTreeMap<String, f64> {
    let (status, text) = get(address, "/metrics");
    assert_eq!(status, 200, "{text}");
    samples(&text)
}

/// Figures of a time after this call.
fn scrape(address: SocketAddr) -> BTreeMap<String, f64> {
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = latest(address);
        if found["tembo_figures_time_seconds"] > began {
            return found;
        }
        assert!(Instant::now() < deadline, "there are no new figures");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Each scrape made the event loop gather all figures anew.
#[test]
fn many_scrapes_have_the_figures_gathered_once_a_second() {
    let server = fixture(|_| {});
    let address = address(&mut server.client());
    let (began, mut times) = (Instant::now(), BTreeSet::new());
    for _ in 0..100 {
        times.insert(latest(address)["tembo_figures_time_seconds"].to_bits());
    }
    let most = 2 + began.elapsed().as_secs() as usize;
    assert!(times.len() <= most, "{} times in {:?}", times.len(), began.elapsed());
}

#[test]
fn figures_tell_what_happened() {
    let server = fixture(|_| {});
    let mut client = server.client();
    let address = address(&mut client);
    client.talk(
        "SET a 1 => +OK
         SET b 2 EX 1000 => +OK
         SELECT 3 => +OK
         SET c 3 => +OK
         GET c => $3
         GET missing => nil
         LPUSH c 4 => -WRONGTYPE Operation against a key holding the wrong kind of value
         CONFIG SET min-replicas-to-write 1 => +OK
         SET d 4 => -NOREPLICAS Not enough good replicas to write.
         CONFIG SET min-replicas-to-write 0 => +OK",
    );
    let found = scrape(address);
    for (name, expected) in [
        ("tembo_commands_total{command=\"set\"}", 3.0),
        ("tembo_commands_total{command=\"get\"}", 2.0),
        ("tembo_failed_commands_total{command=\"lpush\"}", 1.0),
        ("tembo_rejected_commands_total{command=\"set\"}", 1.0),
        ("tembo_command_duration_seconds_count{command=\"set\"}", 3.0),
        ("tembo_command_duration_seconds_bucket{command=\"set\",le=\"+Inf\"}", 3.0),
        ("tembo_errors_total{error=\"WRONGTYPE\"}", 1.0),
        ("tembo_keys{database=\"0\"}", 2.0),
        ("tembo_keys{database=\"3\"}", 1.0),
        ("tembo_keys_with_deadline{database=\"0\"}", 1.0),
        ("tembo_keyspace_hits_total", 1.0),
        ("tembo_keyspace_misses_total", 1.0),
        ("tembo_commits_total", 3.0),
        ("tembo_failed_commits_total", 0.0),
        ("tembo_committed_commands_total", 3.0),
        ("tembo_clients", 1.0),
        ("tembo_connections_total", 1.0),
        ("tembo_replica", 0.0),
    ] {
        assert_eq!(found.get(name), Some(&expected), "{name} in {found:#?}");
    }
    let durability = found.keys().find(|name| name.starts_with("tembo_durability_info")).unwrap();
    assert!(durability.contains("mode=\"page-cache\""), "{durability}");
    assert!(!found.keys().any(|name| name.contains("journal_")), "there is none");
    let space: f64 =
        found.iter().filter(|(name, _)| name.starts_with("tembo_pool_space_bytes")).map(|(_, v)| v).sum();
    assert_eq!(space, found["tembo_pool_bytes"]);
    client.ask("CONFIG RESETSTAT");
    assert!(!scrape(address).contains_key("tembo_commands_total{command=\"set\"}"));
    server.check();
}

/// A parser that is not ours takes both formats, with journal and without.
#[test]
fn the_expositions_are_of_their_formats() {
    for (server, has_journal) in [(fixture(|_| {}), false), (journaled(), true)] {
        let mut client = server.client();
        let address = address(&mut client);
        client.talk("SET a 1 => +OK");
        // Its first word is a label that must be escaped.
        assert!(client.ask("EVAL 'return redis.error_reply([[A\"\\B x]])' 0").starts_with("-A\""));
        let accept = "Accept: application/openmetrics-text;version=1.0.0\r\n";
        let (head, open) = exchange(address, &format!("GET /metrics HTTP/1.1\r\n{accept}\r\n"));
        assert!(head.contains("\r\nContent-Type: application/openmetrics-text; version=1.0.0;"), "{head}");
        let parsed = parse_openmetrics(&open).unwrap_or_else(|error| panic!("{error:?}\n{open}"));
        assert!(parsed.families.len() > 50 && open.ends_with("# EOF\n"));
        let (head, plain) = exchange(address, "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4;"), "{head}");
        let parsed = parse_prometheus(&plain).unwrap_or_else(|error| panic!("{error:?}\n{plain}"));
        assert!(parsed.families.len() > 50);
        assert_eq!(plain.contains("tembo_synchronisation_seconds_bucket"), has_journal);
        lint(&plain);
        let fences = samples(&plain)["tembo_fences_total"];
        assert_eq!(fences > 0.0, has_journal, "{fences} fences");
        assert!(parse_openmetrics(&plain).is_err(), "the parser takes anything");
        server.check();
    }
}

/// The rules of `promtool check metrics`: names, help and type before samples, and buckets that rise.
fn lint(text: &str) {
    let mut types = BTreeMap::new();
    let mut helped = "";
    let mut below: BTreeMap<String, f64> = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            helped = rest.split_once(' ').unwrap_or_else(|| panic!("no help: {line}")).0;
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, helped, "help and type are apart");
            assert!(types.insert(name, kind).is_none(), "{name} is there twice");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            let strange = ["ms", "us", "milliseconds", "kb", "percent"];
            let is_based = !name.split('_').any(|word| strange.contains(&word));
            assert!(is_based && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let name = series.split('{').next().unwrap();
        let parts = ["_bucket", "_sum", "_count"];
        let base =
            parts.iter().find_map(|part| name.strip_suffix(part)).filter(|base| types.contains_key(base));
        assert!(types.contains_key(base.unwrap_or(name)), "{line} has no type");
        if name.ends_with("_bucket") {
            let of = series.split(',').filter(|label| !label.contains("le=")).collect::<String>();
            let value: f64 = value.parse().unwrap();
            let before = below.insert(of, value).unwrap_or(0.0);
            assert!(value >= before, "{line}");
        }
    }
}

#[test]
fn health_says_whether_clients_are_served() {
    let server = fixture(|_| {});
    let mut client = server.client();
    let address = address(&mut client);
    let eventually = |expected: u16| {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (status, text) = get(address, "/health/ready");
            if status == expected {
                return text;
            }
            assert!(Instant::now() < deadline, "{status}: {text}");
        }
    };
    assert_eq!(eventually(200), "ready\n");
    assert_eq!(get(address, "/health/live"), (200, "alive\n".to_owned()));
    assert!(get(address, "/").1.contains("/health/ready"));
    // Nobody listens there.
    client.talk("CONFIG SET replica-serve-stale-data no => +OK\nREPLICAOF 127.0.0.1 1 => +OK");
    assert!(eventually(503).contains("the link with the master is down"));
    assert_eq!(get(address, "/health/live").0, 200);
    assert_eq!(scrape(address)["tembo_master_link_up"], 0.0);
    client.talk("CONFIG SET replica-serve-stale-data yes => +OK");
    eventually(200);
}

/// The event loop does not go round while a script runs, and the script is no fault of its.
#[test]
fn a_script_without_end_leaves_the_server_alive() {
    let limit = Duration::from_secs(2);
    let server = fixture(|config| {
        config.stuck_after = limit;
        config.script_time = Some(Duration::from_millis(50));
    });
    let mut client = server.client();
    let address = address(&mut client);
    let mut runner = server.client();
    runner.send(&[b"EVAL", b"while true do end", b"0"]);
    // A client of the same turn would wait for its end.
    std::thread::sleep(Duration::from_millis(500));
    assert!(client.ask("PING").starts_with("-BUSY"));
    let began = Instant::now();
    while began.elapsed() < limit * 2 {
        for path in ["/health/live", "/health/ready"] {
            assert_eq!(get(address, path).0, 200, "{path} after {:?}", began.elapsed());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    client.talk("SCRIPT KILL => +OK");
    runner.receive();
    // A loop that is stuck in the device's driver, say.
    runner.send(&[b"DEBUG", b"SLEEP", b"6"]);
    let deadline = Instant::now() + PATIENCE;
    while get(address, "/health/live").0 == 200 {
        assert!(Instant::now() < deadline, "it is stuck, and alive");
    }
    runner.receive();
}

/// A scrape waited for the event loop.
#[test]
fn a_stuck_event_loop_keeps_nobody_from_the_figures_before() {
    let server = fixture(|_| {});
    let mut client = server.client();
    let address = address(&mut client);
    let before = scrape(address)["tembo_figures_time_seconds"];
    let mut sleeper = server.client();
    sleeper.send(&[b"DEBUG", b"SLEEP", b"6"]);
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    assert_eq!(latest(address)["tembo_figures_time_seconds"], before);
    assert!(began.elapsed() < Duration::from_secs(5), "it waited for the end of the sleep");
    sleeper.receive();
    assert!(scrape(address)["tembo_figures_time_seconds"] > before);
}

#[test]
fn wrong_requests_are_refused_and_silent_peers_keep_nobody_out() {
    let server = fixture(|_| {});
    let mut client = server.client();
    let address = address(&mut client);
    let status = |request: &str| exchange(address, request).0;
    assert!(status("GET /other HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    let head = status("DELETE /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 405 ") && head.contains("Allow: GET, HEAD"), "{head}");
    assert!(status("*1\r\n$4\r\nPING\r\n").starts_with("HTTP/1.1 400 "));
    let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(20_000));
    assert!(status(&long).starts_with("HTTP/1.1 431 "));
    let (head, body) = exchange(address, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && body.is_empty(), "{head}");
    // By bytes, too.
    let mut slow = connect(address);
    for byte in b"GET /health/live HTTP/1.1\r\n\r\n" {
        slow.write_all(&[*byte]).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut text = String::new();
    slow.read_to_string(&mut text).unwrap();
    assert!(text.ends_with("alive\n"), "{text}");
    let silent: Vec<_> = (0..200).map(|_| connect(address)).collect();
    for mut stream in &silent {
        // The oldest ones are closed already.
        let _ = stream.write_all(b"GET /met");
    }
    assert_eq!(get(address, "/health/live").0, 200);
    let closed = silent.iter().filter(|stream| is_closed(stream)).count();
    assert!((160..200).contains(&closed), "{closed} of 200 made room");
    client.talk("PING => +PONG");
}

/// Whether the other side has closed the connection.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match stream.read(&mut [0; 1]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

#[test]
fn other_machines_are_told_nothing_unless_that_is_said() {
    let mut config = Config::default();
    config.listen = "127.0.0.1:0".parse().unwrap();
    for (text, is_taken) in [("0.0.0.0:0", false), ("[::]:0", false), ("127.0.0.2:0", true)] {
        config.metrics = Some(text.parse().unwrap());
        match Listener::of(&config) {
            Ok(_) => assert!(is_taken, "{text}"),
            Err(error) => {
                assert!(!is_taken && matches!(error, Error::MetricsPublic { .. }), "{text}: {error}")
            }
        }
    }
    config.take_directive("metrics", b"0.0.0.0:0").unwrap();
    config.take_directive("metrics-public", b"yes").unwrap();
    assert!(Listener::of(&config).is_ok());
    let why = config.take_directive("metrics", b"nowhere").unwrap_err();
    assert!(why.contains("an address and a port"), "{why}");
}

/// Before the pool is open.
#[test]
fn probes_are_answered_from_the_first_moment() {
    let mut config = Config::default();
    config.listen = "127.0.0.1:0".parse().unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    config.metrics = Some(free);
    let listener = Listener::of(&config).unwrap();
    let (status, text) = get(free, "/health/ready");
    assert!(status == 503 && text.contains("the pool is being opened"), "{text}");
    assert_eq!(get(free, "/health/live").0, 200);
    assert_eq!(get(free, "/metrics"), (503, "the server has no figures yet\n".to_owned()));
    drop(listener);
    assert!(TcpStream::connect(free).is_err(), "its thread goes on");
}

/// The table of the guide is what a master and its replica show.
#[test]
fn the_guide_has_each_metric_with_its_meaning() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/observation.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let (master, replica) = (journaled(), journaled());
    let (mut client, mut other) = (master.client(), replica.client());
    client.talk("SET a 1 EX 1000 => +OK");
    client.ask("LPUSH a 1");
    client.ask("CONFIG SET min-replicas-to-write 2");
    client.ask("SET a 1");
    client.ask("CONFIG SET min-replicas-to-write 0");
    other.ask(&format!("REPLICAOF {} {}", master.address.ip(), master.address.port()));
    let deadline = Instant::now() + PATIENCE;
    let (ours, theirs) = (address(&mut client), address(&mut other));
    while !scrape(ours).keys().any(|name| name.starts_with("tembo_replica_behind"))
        || scrape(theirs).get("tembo_master_link_up") != Some(&1.0)
    {
        assert!(Instant::now() < deadline, "no replica came");
    }
    assert_dashboard(&[scrape(ours), scrape(theirs)]);
    let mut rows = rows(&get(ours, "/metrics").1);
    rows.extend(self::rows(&get(theirs, "/metrics").1));
    let mut table = "| metric | kind | unit | labels | meaning |\n|---|---|---|---|---|\n".to_owned();
    rows.values().for_each(|row| table += row);
    let (begin, end) = ("<!-- metrics -->\n", "<!-- end of metrics -->");
    let at = text.find(begin).expect("the page has a mark") + begin.len();
    let until = text.find(end).expect("the page has a mark");
    if std::env::var_os("TEMBO_BLESS").is_some() {
        std::fs::write(&page, [&text[..at], &table, &text[until..]].concat()).unwrap();
        return;
    }
    assert_eq!(&text[at..until], table, "TEMBO_BLESS=1 writes the table anew");
}

fn journaled() -> Fixture {
    Fixture::with(
        |config| config.metrics = Some("127.0.0.1:0".parse().unwrap()),
        |options| options.durability(tembo::Durability::Journaled).journal_bytes(1 << 20),
    )
}

/// A row of the guide's table for each family of an exposition.
fn rows(text: &str) -> BTreeMap<String, String> {
    let mut rows = BTreeMap::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        let kind = lines.next().unwrap().rsplit(' ').next().unwrap();
        let sample = lines.peek().unwrap();
        let inner = sample.split_once('{').map_or("", |(_, rest)| rest.rsplit_once('}').unwrap().0);
        // No value of these labels has an equals sign.
        let labels: Vec<_> = inner.split("\",").filter_map(|label| Some(label.split_once('=')?.0)).collect();
        let labels = labels.into_iter().filter(|label| *label != "le").collect::<Vec<_>>().join(", ");
        let base = name.trim_end_matches("_total");
        let unit = ["seconds", "bytes"].into_iter().find(|unit| base.ends_with(unit)).unwrap_or("");
        let row = format!("| `{name}` | {kind} | {unit} | {labels} | {} |\n", help.trim_end_matches('.'));
        rows.insert(name.to_owned(), row);
    }
    rows
}

/// Each metric that the dashboard asks for is one that a master or its replica shows.
fn assert_dashboard(shown: &[BTreeMap<String, f64>]) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/grafana/tembo.json");
    let text = std::fs::read_to_string(page).unwrap();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let asked = text.lines().filter(|line| line.contains("\"expr\": ") || line.contains("\"query\": "));
    let words = asked.flat_map(|line| line.split(|c| !is_part(c)));
    let named: BTreeSet<_> =
        words.filter(|word| word.starts_with("tembo_") || word.starts_with("process_")).collect();
    assert!(named.len() > 50, "{named:?}");
    for name in named {
        let is_it = |series: &String| series.split('{').next() == Some(name);
        assert!(shown.iter().any(|shown| shown.keys().any(is_it)), "the dashboard asks for {name}");
    }
}
