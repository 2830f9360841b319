//! Backups of a running server, and pools that are made of them.

use crate::replica::{Client, Master, Random, command};
use crate::serve::Server;
use crate::support::{Run, Workspace, bytes};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use tembo_wire::Value;

const WRITERS: usize = 3;

/// All keys of a server, with their values in a form that can be compared.
pub(crate) fn contents(port: u16) -> BTreeMap<String, String> {
    let mut client = Client::connect(port).unwrap();
    let text = |value: &Value| String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into_owned();
    let list = |value: Value| match value {
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let mut all = BTreeMap::new();
    for key in list(client.line("KEYS *")) {
        let kind = text(&client.call(&["TYPE", &key]));
        let mut ask = |words: &[&str]| list(client.call(words));
        let mut value = match kind.as_str() {
            "string" => vec![text(&client.call(&["GET", &key]))],
            "list" => ask(&["LRANGE", &key, "0", "-1"]),
            "zset" => ask(&["ZRANGE", &key, "0", "-1", "WITHSCORES"]),
            "hash" => ask(&["HGETALL", &key]).chunks(2).map(|pair| pair.join("=")).collect(),
            _ => ask(&["SMEMBERS", &key]),
        };
        if kind == "hash" || kind == "set" {
            value.sort();
        }
        let deadline = client.call(&["PEXPIRETIME", &key]);
        all.insert(key, format!("{kind} {deadline:?} {value:?}"));
    }
    all
}

/// Clients that write numbered transactions: a list with all numbers, the last one, and a sum over all.
struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<[AtomicU64; WRITERS]>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(port: u16) -> Load {
        let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::<[AtomicU64; WRITERS]>::default());
        let write = |writer: usize| {
            let (stop, acknowledged) = (stop.clone(), acknowledged.clone());
            move || {
                let mut client = Client::connect(port).unwrap();
                for number in 0u64.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    client.line("MULTI");
                    client.line(&format!("RPUSH log:{writer} {number}"));
                    client.line(&format!("SET last:{writer} {number}"));
                    client.line("INCR count");
                    client.line(&format!("SELECT {writer}"));
                    client.line("INCR here");
                    client.line("SELECT 0");
                    client.line("EXEC");
                    acknowledged[writer].store(number + 1, Ordering::Release);
                }
            }
        };
        let threads = (0..WRITERS).map(|writer| std::thread::spawn(write(writer))).collect();
        Load { stop, acknowledged, threads }
    }

    fn acknowledged(&self) -> [u64; WRITERS] {
        std::array::from_fn(|writer| self.acknowledged[writer].load(Ordering::Acquire))
    }

    fn wait_for(&self, count: u64) {
        while self.acknowledged().iter().any(|acknowledged| *acknowledged < count) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    fn end(self) -> [u64; WRITERS] {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        std::array::from_fn(|writer| self.acknowledged[writer].load(Ordering::Acquire))
    }
}

/// The numbers that a pool has of each writer, which have to be all up to one, in all keys of one EXEC.
fn numbers(workspace: &Workspace, pool: &str) -> [u64; WRITERS] {
    workspace.run(&format!("check {pool}")).ok();
    let server = Server::start(workspace, &format!("--pool {pool}"));
    let mut client = Client::connect(server.port).unwrap();
    let mut text = |line: &str| match client.line(line) {
        Value::Array(items) => {
            items.iter().map(|item| String::from_utf8_lossy(item.as_bytes().unwrap()).into_owned()).collect()
        }
        other => vec![String::from_utf8_lossy(other.as_bytes().unwrap_or(b"0")).into_owned()],
    };
    let found: [u64; WRITERS] = std::array::from_fn(|writer| {
        let log = text(&format!("LRANGE log:{writer} 0 -1"));
        assert!(log.iter().enumerate().all(|(at, number)| *number == at.to_string()), "{writer}: {log:?}");
        let last = text(&format!("GET last:{writer}"))[0].clone();
        assert_eq!(last, (log.len().max(1) - 1).to_string());
        log.len() as u64
    });
    assert_eq!(text("GET count")[0], found.iter().sum::<u64>().to_string());
    for (writer, count) in found.iter().enumerate().skip(1) {
        let mut client = Client::connect(server.port).unwrap();
        client.line(&format!("SELECT {writer}"));
        assert_eq!(client.line("GET here").as_bytes(), Some(count.to_string().as_bytes()));
    }
    server.kill();
    found
}

fn is_between(low: &[u64; WRITERS], found: &[u64; WRITERS], high: &[u64; WRITERS]) -> bool {
    (0..WRITERS).all(|writer| low[writer] <= found[writer] && found[writer] <= high[writer])
}

/// The most that may be there: each writer has one EXEC under way beyond those that are acknowledged.
fn bounds(acknowledged: [u64; WRITERS]) -> [u64; WRITERS] {
    acknowledged.map(|count| count + 1)
}

#[test]
fn a_backup_under_load_is_a_point_in_time_and_so_is_each_of_its_chain() {
    let workspace = Workspace::new();
    let server = Server::start(&workspace, "--pool a.pool");
    let load = Load::start(server.port);
    load.wait_for(50);
    let address = format!("127.0.0.1:{}", server.port);
    let (mut files, mut states) = (Vec::new(), Vec::new());
    for number in 0..4 {
        let since = if number > 0 { format!("--since {}.backup", number - 1) } else { String::new() };
        let low = load.acknowledged();
        workspace.run(&format!("backup {address} {since} --out {number}.backup")).ok();
        let high = bounds(load.acknowledged());
        files.push(format!("{number}.backup"));
        let chain = files.join(" ");
        workspace.run(&format!("verify {chain}")).ok();
        workspace.run(&format!("restore {chain} {number}.pool")).ok();
        let found = numbers(&workspace, &format!("{number}.pool"));
        assert!(is_between(&low, &found, &high), "{low:?} <= {found:?} <= {high:?}");
        states.push(found);
        load.wait_for(found.iter().max().unwrap() + 20);
    }
    assert!(states.is_sorted_by(|a, b| is_between(a, b, &[u64::MAX; WRITERS]) && a != b), "{states:?}");
    // Each offset of the stream is a point in time.
    let list = workspace.run("verify 0.backup 1.backup --json").ok().json();
    let (from, to) = (list[1]["from_offset"].as_u64().unwrap(), list[1]["offset"].as_u64().unwrap());
    for (number, offset) in [from, from + 1, (from + to) / 2, to - 1, to].into_iter().enumerate() {
        let pool = format!("at{number}.pool");
        workspace.run(&format!("restore 0.backup 1.backup {pool} --to-offset {offset}")).ok();
        let found = numbers(&workspace, &pool);
        assert!(is_between(&states[0], &found, &states[1]), "{states:?}, {found:?}");
        assert!(number > 1 || found == states[0]);
        assert!(number < 4 || found == states[1]);
    }
    // The history may begin with the first backup, at 0.
    for offset in from.checked_sub(1).into_iter().chain([to + 1]) {
        let run = workspace.run(&format!("restore 0.backup 1.backup none.pool --to-offset {offset}"));
        run.fails_with(&format!("not among the offsets of these backups, {from} to {to}"));
    }
    let acknowledged = load.end();
    assert!(acknowledged.iter().all(|count| *count > 100));
    // Nobody was a replica.
    let mut client = Client::connect(server.port).unwrap();
    assert_eq!((client.info("connected_slaves"), client.info("sync_full")), ("0".to_owned(), "1".to_owned()));
    server.kill();
}

/// A server with all kinds of values, and its address.
fn filled(workspace: &Workspace, arguments: &str) -> (Server, String) {
    let server = Server::start(workspace, arguments);
    write_some(server.port, 1, 3000);
    let address = format!("127.0.0.1:{}", server.port);
    (server, address)
}

pub(crate) fn write_some(port: u16, seed: u64, count: usize) {
    let (mut client, mut random) = (Client::connect(port).unwrap(), Random(seed));
    for _ in 0..count {
        client.call(&command(&mut random).split(' ').collect::<Vec<_>>());
    }
    // Keys that expire in a moment would differ.
    client.line("SET forever 1");
    let Value::Array(keys) = client.line("KEYS *") else { panic!("no keys") };
    for key in keys.iter().map(|key| key.as_bytes().unwrap()) {
        if matches!(client.call(&[b"PTTL", key]), Value::Integer(0..1_000_000)) {
            client.call(&[b"DEL", key]);
        }
    }
}

#[test]
fn a_restored_server_has_a_history_of_its_own_and_old_replicas_take_a_whole_copy() {
    let workspace = Workspace::new();
    let (server, address) = filled(&workspace, "--pool a.pool");
    let replica = Server::start(&workspace, "--pool r.pool");
    let mut follower = Client::connect(replica.port).unwrap();
    follower.line(&format!("REPLICAOF 127.0.0.1 {}", server.port));
    follower.wait_for("master_link_status", "up");
    workspace.run(&format!("backup {address} --out full.backup")).ok();
    write_some(server.port, 2, 200);
    workspace.run(&format!("backup {address} --since full.backup --out next.backup")).ok();
    let expected = contents(server.port);
    // All that follows is in no backup.
    write_some(server.port, 3, 200);
    let mut client = Client::connect(server.port).unwrap();
    client.line("SET not-in-the-backup 1");
    assert_eq!(client.line("WAIT 1 20000"), Value::Integer(1));
    let (id, port) = (client.info("master_replid"), server.port);
    server.kill();
    workspace.run("restore full.backup next.backup b.pool").ok();
    let serve = format!("serve --listen 127.0.0.1:{port} --pool b.pool");
    let restored = Server::spawn(workspace.command(&serve).stderr(Stdio::piped()));
    let mut client = Client::connect(port).unwrap();
    assert_ne!(client.info("master_replid"), id);
    follower.wait_for("master_replid", &client.info("master_replid"));
    follower.wait_for("master_link_status", "up");
    assert_eq!((client.info("sync_full"), client.info("sync_partial_ok")), ("1".to_owned(), "0".to_owned()));
    assert_eq!(contents(port), expected);
    assert_eq!(contents(replica.port), expected);
    // The old chain ends here.
    let run = workspace.run(&format!("backup {address} --since next.backup --out wrong.backup"));
    run.fails_with("of another history");
    assert!(!workspace.names().contains(&"wrong.backup".to_owned()));
    restored.kill();
    replica.kill();
}

#[test]
fn a_replica_that_is_made_of_a_backup_goes_on_where_that_ends() {
    let workspace = Workspace::new();
    let (server, address) = filled(&workspace, "--pool a.pool");
    workspace.run(&format!("backup {address} --out full.backup")).ok();
    write_some(server.port, 2, 300);
    workspace.run(&format!("backup {address} --since full.backup --out next.backup")).ok();
    write_some(server.port, 3, 300);
    let mut client = Client::connect(server.port).unwrap();
    for (pool, files) in [("r.pool", "full.backup"), ("s.pool", "full.backup next.backup")] {
        let before = (client.info("sync_full"), client.info("sync_partial_ok"));
        workspace.run(&format!("restore {files} {pool} --replica-of {address}")).ok();
        let replica = Server::start(&workspace, &format!("--pool {pool}"));
        let mut follower = Client::connect(replica.port).unwrap();
        follower.wait_for("master_link_status", "up");
        follower.wait_for("master_repl_offset", &client.info("master_repl_offset"));
        let partial = before.1.parse::<u64>().unwrap() + 1;
        let after = (client.info("sync_full"), client.info("sync_partial_ok"));
        assert_eq!(after, (before.0, partial.to_string()), "{files}");
        assert_eq!(contents(replica.port), contents(server.port), "{files}");
        assert!(follower.call(&["SET", "a", "1"]).is_error());
        replica.kill();
        workspace.run(&format!("check {pool}")).ok();
    }
    server.kill();
}

#[test]
fn what_is_cut_changed_or_missing_is_refused_with_its_place() {
    let workspace = Workspace::new();
    let (server, address) = filled(&workspace, "--pool a.pool");
    for (number, since) in ["", "--since 0.backup", "--since 1.backup"].iter().enumerate() {
        write_some(server.port, number as u64, 300);
        workspace.run(&format!("backup {address} {since} --out {number}.backup")).ok();
    }
    server.kill();
    workspace.run("verify 0.backup 1.backup 2.backup").ok();
    for (files, code, message) in [
        ("0.backup 2.backup", 1, "2.backup: it begins at offset"),
        ("1.backup 2.backup", 1, "1.backup: it is an incremental backup"),
        ("0.backup 1.backup 0.backup", 1, "0.backup: it is a full backup"),
        ("a.pool", 3, "a.pool: this is no backup"),
        ("none", 3, "none"),
    ] {
        workspace.run(&format!("verify {files}")).ends_with(code, message);
        if files != "none" {
            workspace.run(&format!("restore {files} b.pool")).fails_with(message);
        }
    }
    let mut random = Random(7);
    for file in ["0.backup", "1.backup"] {
        let whole = bytes(&workspace.path(file));
        for round in 0..12 {
            let at = random.below(whole.len() as u64 - 8) as usize + 8;
            let (mut broken, expected) = (whole.clone(), format!("it ends at byte {at}"));
            let is_cut = round % 3 == 0;
            if is_cut {
                broken.truncate(at);
            } else {
                broken[at] ^= 1 << random.below(8);
            }
            std::fs::write(workspace.path("broken"), &broken).unwrap();
            let expected = if is_cut { expected.as_str() } else { "byte " };
            workspace.run("verify broken").ends_with(1, expected);
            let chain = if file == "0.backup" { "broken" } else { "0.backup broken" };
            workspace.run(&format!("restore {chain} b.pool")).fails_with("broken: ");
        }
    }
    assert!(!workspace.names().iter().any(|name| name.starts_with("b.pool")), "{:?}", workspace.names());
}

#[test]
fn a_kill_in_the_middle_leaves_no_file_or_one_that_is_known_as_cut() {
    let workspace = Workspace::new();
    let server = Server::start(&workspace, "--pool a.pool");
    let mut client = Client::connect(server.port).unwrap();
    // More than sockets and pipes hold, and nothing that could be compressed.
    let mut random = Random(3);
    let value: Vec<u8> = (0..1 << 20).map(|_| random.below(256) as u8).collect();
    for key in 0..12 {
        client.call(&[&b"SET"[..], format!("big:{key}").as_bytes(), &value]);
    }
    let address = format!("127.0.0.1:{}", server.port);
    let begin = |arguments: &str| {
        let mut command = workspace.command(&format!("backup {address} {arguments}"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    // The command is killed: nothing is left, and the server goes on.
    for _ in 0..3 {
        let mut child = begin("");
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 1000]).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(client.line("PING"), Value::Simple("PONG".into()));
    }
    let mut child = begin("--out killed.backup");
    child.kill().unwrap();
    child.wait().unwrap();
    // The server is killed.
    let mut child = begin("");
    let mut out = vec![0; 1000];
    child.stdout.as_mut().unwrap().read_exact(&mut out).unwrap();
    server.kill();
    child.stdout.as_mut().unwrap().read_to_end(&mut out).unwrap();
    let run = Run::from(child.wait_with_output().unwrap());
    run.fails_with("the server closed the connection");
    std::fs::write(workspace.path("cut.backup"), &out).unwrap();
    workspace.run("verify cut.backup").ends_with(1, &format!("it ends at byte {}", out.len()));
    let run = workspace.run(&format!("backup {address} --out gone.backup"));
    run.fails_with("does not answer");
    workspace.run("check a.pool").ok();
    assert_eq!(workspace.names(), ["a.pool", "a.pool.backlog", "cut.backup"]);
    // A restore that is killed leaves nothing either.
    let server = Server::start(&workspace, "--pool a.pool");
    let address = format!("127.0.0.1:{}", server.port);
    workspace.run(&format!("backup {address} --out full.backup")).ok();
    for wait_ms in [5, 20, 60] {
        let mut child =
            workspace.command("restore full.backup b.pool").stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(wait_ms));
        if child.try_wait().unwrap().is_none() {
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(workspace.names(), ["a.pool", "a.pool.backlog", "cut.backup", "full.backup"]);
        } else {
            std::fs::remove_file(workspace.path("b.pool")).unwrap();
        }
    }
    server.kill();
}

#[test]
fn a_pool_that_exists_stays_unless_it_is_to_be_replaced() {
    let workspace = Workspace::new();
    let (server, address) = filled(&workspace, "--pool a.pool");
    workspace.run(&format!("backup {address} --out full.backup")).ok();
    workspace.run(&format!("backup {address} --out full.backup")).fails_with("full.backup");
    let expected = contents(server.port);
    let before = bytes(&workspace.path("a.pool"));
    workspace.run("restore full.backup a.pool").fails_with("a.pool exists; --replace");
    workspace.run("restore full.backup a.pool --replace").fails_with("is in use by");
    assert!(bytes(&workspace.path("a.pool")).len() >= before.len());
    server.kill();
    // A damaged pool is replaced, through a symbolic link too, and nothing but a pool is.
    let mut damaged = bytes(&workspace.path("a.pool"));
    damaged[100..4096].fill(0xEE);
    std::fs::write(workspace.path("old.pool"), damaged).unwrap();
    let mode = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(workspace.path("old.pool"), mode).unwrap();
    std::os::unix::fs::symlink("old.pool", workspace.path("b.pool")).unwrap();
    workspace.run("restore full.backup b.pool --replace").ok();
    assert!(workspace.path("b.pool").is_symlink());
    assert_eq!(std::fs::metadata(workspace.path("old.pool")).unwrap().mode() & 0o777, 0o640);
    let backup = bytes(&workspace.path("full.backup"));
    std::fs::write(workspace.path("other.backup"), &backup).unwrap();
    std::fs::write(workspace.path("letter"), b"Dear").unwrap();
    std::fs::create_dir(workspace.path("folder")).unwrap();
    for (target, why) in [
        ("full.backup", "is no pool"),
        ("other.backup", "is no pool"),
        ("letter", "is no pool"),
        ("folder", "is no file"),
    ] {
        workspace.run(&format!("restore full.backup {target} --replace")).fails_with(why);
    }
    workspace.run("restore a.pool a.pool --replace").fails_with("is one of the files");
    assert_eq!(bytes(&workspace.path("other.backup")), backup);
    assert_eq!(bytes(&workspace.path("letter")), b"Dear");
    assert!(!workspace.names().iter().any(|name| name.ends_with(".unfinished")));
    assert_eq!(std::fs::metadata(workspace.path("full.backup")).unwrap().mode() & 0o777, 0o600);
    workspace.run("restore - - d.pool").ends_with(2, "twice");
    let piped = workspace.run_with("restore - c.pool", &bytes(&workspace.path("full.backup")));
    piped.ok();
    for pool in ["b.pool", "c.pool"] {
        let server = Server::start(&workspace, &format!("--pool {pool}"));
        assert_eq!(contents(server.port), expected);
        server.kill();
    }
}

#[test]
fn a_server_that_lost_what_is_needed_says_so() {
    let workspace = Workspace::new();
    let (server, address) = filled(&workspace, "--pool a.pool");
    // Without a history there is nothing that could be taken since.
    workspace.run(&format!("backup {address} --out full.backup")).ok();
    let mut client = Client::connect(server.port).unwrap();
    client.line("CONFIG SET repl-backlog-size 16384");
    std::thread::sleep(std::time::Duration::from_millis(500));
    for key in 0..400 {
        client.line(&format!("SET key:{key} {}", "v".repeat(400)));
    }
    let run = workspace.run(&format!("backup {address} --since full.backup --out next.backup"));
    run.fails_with("repl-backlog-size); take a full backup");
    assert_eq!(client.info("sync_full"), "1", "no copy was made in vain");
    server.kill();
}

#[test]
fn users_need_their_password_and_three_commands() {
    let workspace = Workspace::new();
    let server = Server::start(&workspace, "--pool a.pool --requirepass secret --unixsocket s");
    let mut client = Client::connect(server.port).unwrap();
    client.line("AUTH secret");
    client.line("SET a 1");
    client.line("ACL SETUSER keeper on >pass +psync +replconf +info");
    client.line("ACL SETUSER weak on >pass +info");
    let address = format!("127.0.0.1:{}", server.port);
    std::fs::write(workspace.path("pass"), b"pass\n").unwrap();
    std::fs::write(workspace.path("wrong"), b"wrong\n").unwrap();
    let backup = |arguments: &str| workspace.run(&format!("backup {address} {arguments} --out a.backup"));
    backup("").fails_with("asks for a password");
    backup("--password-file wrong").fails_with("refused AUTH: WRONGPASS");
    backup("--user weak --password-file pass").fails_with("NOPERM");
    backup("--user keeper").ends_with(2, "--user needs a password");
    backup("--user keeper --password-file pass").ok();
    let mut command = workspace.command("backup --unixsocket s --out b.backup");
    Run::from(command.env("TEMBO_PASSWORD", "secret").output().unwrap()).ok();
    workspace.run("verify a.backup b.backup").fails_with("b.backup: it is a full backup");
    server.kill();
}

/// The copy and the stream of a Redis, which has other words than Tembo.
#[test]
fn a_redis_is_backed_up_like_a_tembo() {
    let workspace = Workspace::new();
    for diskless in ["no", "yes"] {
        let directory = workspace.path(&format!("redis-{diskless}"));
        let options = ["--repl-diskless-sync", diskless];
        let Some(redis) = Master::start(Path::new("redis-server"), &directory, &options) else { return };
        write_some(redis.port, 5, 2000);
        let address = format!("127.0.0.1:{}", redis.port);
        let names = |what: &str| format!("{what}-{diskless}");
        let (full, next, pool) = (names("full"), names("next"), names("pool"));
        workspace.run(&format!("backup {address} --out {full}")).ok();
        write_some(redis.port, 6, 500);
        workspace.run(&format!("backup {address} --since {full} --out {next}")).ok();
        workspace.run(&format!("restore {full} {next} {pool}")).ok();
        let server = Server::start(&workspace, &format!("--pool {pool}"));
        assert_eq!(contents(server.port), contents(redis.port));
        server.kill();
    }
}

#[test]
fn standard_output_has_the_same_backup_and_stops_with_its_reader() {
    let workspace = Workspace::new();
    let (server, address) = filled(&workspace, "--pool a.pool");
    let run = workspace.run(&format!("backup {address}")).ok();
    std::fs::File::create(workspace.path("a.backup")).unwrap().write_all(&run.stdout).unwrap();
    workspace.run("verify a.backup").ok();
    workspace.run_with("verify -", &run.stdout).ok();
    server.kill();
}

#[test]
fn a_backup_over_tls_believes_one_authority_only() {
    let workspace = Workspace::new();
    let mut authorities = Vec::new();
    for name in ["ours", "theirs"] {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = rcgen::KeyPair::generate().unwrap();
        let issuer = rcgen::CertifiedIssuer::self_signed(params, key).unwrap();
        std::fs::write(workspace.path(&format!("{name}.pem")), issuer.as_ref().pem()).unwrap();
        authorities.push(issuer);
    }
    for name in ["server", "client"] {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        let cert = params.signed_by(&key, &authorities[0]).unwrap();
        std::fs::write(workspace.path(&format!("{name}.pem")), cert.pem()).unwrap();
        std::fs::write(workspace.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let files = "--tls-cert-file server.pem --tls-key-file server.key --tls-ca-cert-file ours.pem";
    let server = Server::start(&workspace, &format!("--pool a.pool --tls-port {port} {files}"));
    write_some(server.port, 9, 500);
    let backup = |arguments: &str, out: &str| {
        workspace.run(&format!("backup 127.0.0.1:{port} {arguments} --out {out}"))
    };
    let own = "--tls-cert-file client.pem --tls-key-file client.key";
    backup(&format!("--tls-ca-cert-file ours.pem {own}"), "full").ok();
    write_some(server.port, 10, 100);
    backup(&format!("--tls-ca-cert-file ours.pem {own} --since full"), "next").ok();
    workspace.run("verify full next").ok();
    backup(&format!("--tls-ca-cert-file theirs.pem {own}"), "none").fails_with("certificate");
    assert_eq!(backup("--tls-ca-cert-file ours.pem", "none").code, Some(1));
    assert_eq!(backup("", "none").code, Some(1));
    assert!(!workspace.path("none").exists());
    server.kill();
}

#[test]
fn the_backup_of_a_node_of_a_cluster_makes_the_pool_of_one() {
    let workspace = Workspace::new();
    std::fs::write(workspace.path("node.conf"), "cluster-enabled yes\n").unwrap();
    let start = |pool: &str| {
        let server = Server::start(&workspace, &format!("--pool {pool} --config node.conf"));
        let topology = format!("{:040} 127.0.0.1 {} master - 0-16383\n", 7, server.port);
        let mut client = Client::connect(server.port).unwrap();
        assert!(!client.call(&["CLUSTERX", "SETNODES", &topology, "1"]).is_error());
        (server, client)
    };
    let (server, mut client) = start("a.pool");
    let address = format!("127.0.0.1:{}", server.port);
    for (part, since) in [("full", ""), ("next", "--since full")] {
        for key in 0..300 {
            client.line(&format!("SET {part}:{key} {key}"));
            client.line(&format!("RPUSH list:{key} {part} {}", "x".repeat(key)));
        }
        workspace.run(&format!("backup {address} {since} --out {part}")).ok();
    }
    let expected = contents(server.port);
    server.kill();
    workspace.run("restore full next b.pool").ok();
    workspace.run("check b.pool").ok();
    let run = workspace.run("serve --listen 127.0.0.1:0 --pool b.pool");
    run.fails_with("cluster-enabled yes");
    let (server, _) = start("b.pool");
    assert_eq!(contents(server.port), expected);
    server.kill();
}
