//! `scripts/cluster`: three shards of two nodes, which Sentinel and etcd manage, by Debian's packages. A test
//! without them says so and passes.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::cluster_moves::{PATIENCE, Talk, text};
use crate::cluster_shards::Load;
use crate::support::Workspace;

/// Ports in a row that one cluster takes.
const PORTS: u16 = 20;

struct Cluster {
    folder: PathBuf,
    port: u16,
    _workspace: Workspace,
}

impl Cluster {
    /// None, with a word, if a program is missing.
    fn up() -> Option<Cluster> {
        for program in ["redis-sentinel", "etcd", "python3"] {
            let found =
                std::env::split_paths(&std::env::var_os("PATH")?).any(|at| at.join(program).is_file());
            if !found {
                eprintln!("skipped: there is no {program}; `.ci/run peers` installs it");
                return None;
            }
        }
        let workspace = Workspace::new();
        let folder = workspace.path("cluster");
        let cluster = Cluster { folder, port: free_ports(), _workspace: workspace };
        cluster.run(&["up"]);
        Some(cluster)
    }

    fn run(&self, words: &[&str]) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/cluster");
        let mut command = Command::new(script);
        command.args(words).env("TEMBO", env!("CARGO_BIN_EXE_tembo")).env("DIR", &self.folder);
        let run = command.env("PORT", self.port.to_string()).stdin(Stdio::null()).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        assert!(run.status.success(), "{words:?}: {out}\n{err}");
        out.into_owned()
    }

    /// The reply of a node, of which the first is 1.
    fn ask(&self, node: u16, words: &[&str]) -> String {
        let reply = Talk::connect(self.port + node - 1).and_then(|mut talk| talk.ask(words));
        reply.map_or_else(String::new, |reply| text(&reply))
    }

    #[track_caller]
    fn wait_for(&self, what: &str, is_so: impl Fn() -> bool) -> Duration {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < PATIENCE, "{what}: {}", self.run(&["status"]));
            std::thread::sleep(Duration::from_millis(20));
        }
        begun.elapsed()
    }

    fn processes(&self) -> Vec<u32> {
        let files = std::fs::read_dir(&self.folder).unwrap().map(|file| file.unwrap().path());
        let files = files.filter(|path| path.extension().is_some_and(|ending| ending == "pid"));
        files.map(|path| first_word(&path).parse().unwrap()).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for name in ["keeper.log", "reconfig.log", "sentinel1.log", "node1.log", "node4.log"] {
                let log = std::fs::read_to_string(self.folder.join(name)).unwrap_or_default();
                eprintln!("--- {name}\n{log}");
            }
        }
        self.run(&["down"]);
    }
}

fn first_word(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap().split(' ').next().unwrap().to_owned()
}

/// Ports that nobody listens on, and that the system gives to nobody.
fn free_ports() -> u16 {
    let first = 10_000 + (std::process::id() as u16 % 900) * PORTS;
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let mut starts = (0..900).map(|at| 10_000 + (first - 10_000 + at * PORTS) % 18_000);
    starts.find(|start| (*start..start + PORTS).all(|port| is_free(&port))).expect("some are free")
}

/// Under load a master dies; Sentinel promotes its replica, which serves the slots when etcd has the
/// topology and the lease of the old master has run out. The old master takes nothing when it returns, and
/// is a replica then. Slots move. What a replica had is there at the end.
#[test]
fn sentinel_and_etcd_manage_three_shards() {
    let Some(cluster) = Cluster::up() else { return };
    let ports: Vec<u16> = (0..6).map(|node| cluster.port + node).collect();
    let Some(load) = Load::start(&ports, 99, true, || ()) else { return };
    std::thread::sleep(Duration::from_millis(500));
    cluster.run(&["kill", "1"]);
    let moved = format!("MOVED 3300 127.0.0.1:{}", cluster.port + 3);
    let taken = cluster.wait_for("the replica serves", || cluster.ask(4, &["SET", "b", "new"]) == "OK");
    cluster.wait_for("the others know", || cluster.ask(2, &["GET", "b"]) == moved);
    cluster.run(&["start", "1"]);
    let refused = cluster.ask(1, &["SET", "b", "lost"]);
    assert!(refused.starts_with("CLUSTERDOWN ") || refused == moved, "{refused}");
    cluster.wait_for("the old master follows", || {
        let info = cluster.ask(1, &["INFO", "replication"]);
        info.contains("role:slave") && info.contains("master_link_status:up")
    });
    assert_eq!(cluster.ask(4, &["GET", "b"]), "new");
    cluster.run(&["move", "0-99", "1", "2"]);
    let version = cluster.ask(2, &["CLUSTERX", "VERSION"]);
    assert_eq!(version, "3");
    let shown = cluster.run(&["status"]);
    assert!(shown.contains("slots 0-99 5461-10922") && !shown.contains("does not run"), "{shown}");
    let copies = cluster.ask(4, &["INFO", "stats"]);
    let full = copies.lines().find(|line| line.starts_with("sync_full:")).unwrap_or_default();
    println!("a write was taken {taken:?} after the kill; the new master's {full}; {}", load.end());
    let processes = cluster.processes();
    assert_eq!(processes.len(), 9);
    cluster.run(&["down"]);
    for process in processes {
        let state = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "{process} runs: {state}");
    }
}
