//! Three servers as the shards of a cluster: clients of Redis Cluster, and kill -9 in the middle of a new
//! topology.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::redis_py::python;
use crate::serve::Server;
use crate::support::Workspace;

const RANGES: [&str; 3] = ["0-5460", "5461-10922", "10923-16383"];

fn id(number: usize) -> String {
    format!("{number:040}")
}

/// A server that is a node of a cluster, on the pool `nodeN.pool`.
fn node(workspace: &Workspace, number: usize) -> Server {
    // Topologies change roles here, and there is nobody to fence.
    let lines = "cluster-enabled yes\ncluster-allow-unfenced-failover yes\n";
    std::fs::write(workspace.path("node.conf"), lines).unwrap();
    Server::start(workspace, &format!("--pool node{number}.pool --config node.conf"))
}

/// The topology of masters at these ports.
fn topology(ports: &[u16]) -> String {
    let line = |(number, port): (usize, &u16)| {
        format!("{} 127.0.0.1 {port} master - {}\n", id(number), RANGES[number])
    };
    ports.iter().enumerate().map(line).collect()
}

fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| bytes += &format!("${}\r\n{word}\r\n", word.len()));
    bytes.into_bytes()
}

/// The reply of a server that stays; empty if it was killed.
fn ask(port: u16, words: &[&str]) -> String {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return String::new() };
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut reply = Vec::new();
    if stream.write_all(&request(words)).and_then(|()| stream.write_all(&request(&["QUIT"]))).is_ok() {
        // One that is killed answers with the end of the connection, or less.
        let _ = stream.read_to_end(&mut reply);
    }
    String::from_utf8_lossy(&reply).into_owned()
}

/// Three shards that know of each other.
fn shards(workspace: &Workspace) -> Vec<Server> {
    let servers: Vec<_> = (0..3).map(|number| node(workspace, number)).collect();
    let ports: Vec<_> = servers.iter().map(|server| server.port).collect();
    for port in &ports {
        assert!(ask(*port, &["CLUSTERX", "SETNODES", &topology(&ports), "1"]).starts_with("+OK"));
    }
    servers
}

fn kill_and_check(workspace: &Workspace, servers: Vec<Server>) {
    servers.into_iter().for_each(Server::kill);
    for number in 0..3 {
        workspace.run(&format!("check node{number}.pool")).ok();
    }
}

/// Runs a client of Redis to its end; its output. None if it is not here.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let run = match Command::new(program).args(arguments).stdin(Stdio::null()).output() {
        Ok(run) => run,
        Err(error) => {
            eprintln!("skipped: {program} cannot be run here ({error})");
            return None;
        }
    };
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{program} {arguments:?}: {out}\n{err}");
    Some(out.into_owned() + &err)
}

#[test]
fn the_cluster_of_redis_py_is_served() {
    let Some(python) = python() else { return };
    let workspace = Workspace::new();
    let servers = shards(&workspace);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/clients/redis-py/cluster.py");
    let port = servers[1].port.to_string();
    let python = python.to_str().expect("a path");
    let out = run(python, &[script.to_str().expect("a path"), &port]).expect("it is here");
    assert!(out.contains("is served by 3 shards"), "{out}");
    kill_and_check(&workspace, servers);
}

#[test]
fn redis_cli_follows_redirections_and_finds_all_slots_covered() {
    let workspace = Workspace::new();
    let servers = shards(&workspace);
    let port = servers[0].port.to_string();
    for number in 0..20 {
        let (key, value) = (format!("key:{number}"), number.to_string());
        let Some(out) = run("redis-cli", &["-c", "-p", &port, "SET", &key, &value]) else { break };
        assert_eq!(out, "OK\n");
        assert_eq!(run("redis-cli", &["-c", "-p", &port, "GET", &key]), Some(value + "\n"));
    }
    if let Some(out) = run("redis-cli", &["--cluster", "check", &format!("127.0.0.1:{port}")]) {
        assert!(out.contains("All 16384 slots covered") && out.contains("All nodes agree"), "{out}");
    }
    kill_and_check(&workspace, servers);
}

#[test]
fn redis_benchmark_runs_on_a_cluster() {
    let workspace = Workspace::new();
    let servers = shards(&workspace);
    let port = servers[2].port.to_string();
    let tests =
        ["--cluster", "-p", &port, "-n", "3000", "-c", "10", "-r", "1000", "-q", "-t", "set,get,lpush,mset"];
    if let Some(out) = run("redis-benchmark", &tests) {
        assert!(out.contains("Cluster has 3 master nodes") && out.contains("requests per second"), "{out}");
        assert!(!out.contains("rror"), "{out}");
        for server in &servers {
            assert_ne!(ask(server.port, &["DBSIZE"]), ":0\r\n+OK\r\n");
        }
    }
    kill_and_check(&workspace, servers);
}

/// A topology of hundreds of nodes. Odd versions make the first a master, even ones a replica of one that
/// is not there.
fn lines(number: u64, port: u16) -> String {
    let (one, two) = (id(0), id(1));
    let many: String =
        (10..400).map(|n| format!("{} 10.0.{}.{} 7 master - {n}\n", id(n), n / 200, n % 200)).collect();
    match number % 2 {
        1 => format!("{one} h{number} {port} master - 1\n{two} h{number} 9 slave {one}\n{many}"),
        _ => format!("{one} h{number} {port} slave {two}\n{two} 127.0.0.1 9 master - 1\n{many}"),
    }
}

/// A topology that is pushed while the server is killed is there with its role, or not at all.
#[test]
fn kill_9_in_the_middle_of_a_topology_leaves_the_old_or_the_new_one() {
    let workspace = Workspace::new();
    let (mut old, mut new) = (0, 0);
    let mut version = 0u64;
    for round in 0..30 {
        let server = node(&workspace, 0);
        let port = server.port;
        if round == 0 {
            assert!(ask(port, &["CLUSTERX", "SETNODEID", &id(0)]).starts_with("+OK"));
        }
        let pusher = std::thread::spawn(move || {
            let mut acknowledged = version;
            for number in version + 1..version + 10_000 {
                let reply = ask(port, &["CLUSTERX", "SETNODES", &lines(number, port), &number.to_string()]);
                if !reply.starts_with("+OK") {
                    break;
                }
                acknowledged = number;
            }
            acknowledged
        });
        std::thread::sleep(Duration::from_millis(30 + round * 7));
        server.kill();
        let acknowledged = pusher.join().unwrap();
        let server = node(&workspace, 0);
        let found = ask(server.port, &["CLUSTERX", "VERSION"]);
        let found: u64 = found.lines().nth(1).and_then(|line| line.parse().ok()).unwrap_or(0);
        assert!(
            (acknowledged..=acknowledged + 1).contains(&found),
            "{found}, and {acknowledged} were acknowledged"
        );
        (old, new) = (old + u64::from(found == acknowledged), new + u64::from(found > acknowledged));
        if found > 0 {
            let (role, nodes) = (ask(server.port, &["ROLE"]), ask(server.port, &["CLUSTER", "NODES"]));
            assert_eq!(role.contains("master"), found % 2 == 1, "version {found}: {role}");
            assert!(nodes.contains(&format!(" h{found}:")), "version {found}");
            assert!(nodes.contains(if found % 2 == 1 { "myself,master" } else { "myself,slave" }), "{found}");
        }
        version = found;
        server.kill();
        workspace.run("check node0.pool").ok();
    }
    assert!(version > 30, "{version} topologies");
    println!("{version} topologies: {old} times the acknowledged one, {new} times the next one");
}

#[test]
fn a_pool_with_keys_is_not_made_one_of_a_cluster() {
    let workspace = Workspace::new();
    let server = Server::start(&workspace, "--pool node0.pool");
    server.ask("SET a 1", "+OK\r\n");
    server.stop();
    std::fs::write(workspace.path("node.conf"), "cluster-enabled yes\n").unwrap();
    let served = workspace.run("serve --listen 127.0.0.1:0 --pool node0.pool --config node.conf");
    served.fails_with("the pool has keys and is not that of a cluster's node");
    let server = Server::start(&workspace, "--pool node0.pool");
    server.ask("GET a", "$1\r\n1\r\n");
    server.kill();
}
