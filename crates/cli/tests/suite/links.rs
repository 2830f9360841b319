//! Links between a master and its replica that are disturbed under load, each time in one of four ways, and
//! come back: the stream goes on by partial resynchronisations, and the data are equal.
//!
//! The long form is `TEMBO_CUTS=100 cargo test -p tembo-cli --test suite -- links:: --nocapture`.

use std::path::Path;
use std::time::{Duration, Instant};

use tembo_wire::Value;

use crate::master::{Node, Writing, fill, wait_until_equal};
use crate::proxy::{Link, State, free_port};
use crate::replica::{Client, Master, PATIENCE, Random};
use crate::support::Workspace;

/// Faults of a link, in turn. Each ends the connection.
const FAULTS: [State; 4] = [State::Hole, State::Reset, State::Slow, State::Sliced];

/// A server of either make.
enum Server {
    Tembo(Node),
    Redis { redis: Master, _workspace: Workspace },
}

impl Server {
    fn tembo() -> Server {
        Server::Tembo(Node::start())
    }

    /// None if there is none.
    fn redis() -> Option<Server> {
        let workspace = Workspace::new();
        let redis = Master::start(Path::new("redis-server"), &workspace.path("redis"), &[])?;
        Some(Server::Redis { redis, _workspace: workspace })
    }

    fn port(&self) -> u16 {
        match self {
            Server::Tembo(node) => node.port,
            Server::Redis { redis, .. } => redis.port,
        }
    }

    fn client(&self) -> Client {
        Client::connect(self.port()).expect("it runs")
    }

    /// The number of a field of INFO.
    fn count(&self, field: &str) -> u64 {
        self.client().info(field).parse().unwrap()
    }

    /// The digest of its data by Redis.
    fn digest(&self, judge: &Master) -> Value {
        match self {
            Server::Tembo(node) => node.digest(judge),
            Server::Redis { .. } => self.client().line("DEBUG DIGEST"),
        }
    }

    fn end(self) {
        if let Server::Tembo(node) = self {
            node.end();
        }
    }
}

/// A master and a replica that reaches it by a link.
struct Pair {
    master: Server,
    replica: Server,
    link: Link,
}

impl Pair {
    /// With data, and a backlog of this size.
    fn start(master: Server, replica: Server, backlog: &str) -> Pair {
        let mut theirs = master.client();
        theirs.line(&format!("CONFIG SET repl-backlog-size {backlog}"));
        fill(&mut theirs);
        let link = Link::to(master.port(), free_port());
        replica.client().line(&format!("REPLICAOF 127.0.0.1 {}", link.port));
        replica.client().wait_for("master_link_status", "up");
        for server in [&master, &replica] {
            // An end that hears nothing for this long takes the link for broken.
            server.client().line("CONFIG SET repl-timeout 1");
            server.client().line("CONFIG SET repl-ping-replica-period 1");
        }
        Pair { master, replica, link }
    }

    /// Waits until the replica has the stream again, by a copy or a partial resynchronisation.
    #[track_caller]
    fn wait_for_another(&self, before: u64, fault: State) {
        let begun = Instant::now();
        while self.synchronisations() == before {
            assert!(begun.elapsed() < PATIENCE, "the replica does not return after {fault:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.replica.client().wait_for("master_link_status", "up");
    }

    fn synchronisations(&self) -> u64 {
        self.master.count("sync_full") + self.master.count("sync_partial_ok")
    }

    /// Disturbs the link for a while, and has it whole again.
    fn disturb(&self, fault: State, ms: u64) {
        let before = self.synchronisations();
        self.link.set(fault);
        std::thread::sleep(Duration::from_millis(ms));
        if matches!(fault, State::Slow | State::Sliced) {
            self.link.set(State::Reset);
        }
        self.link.set(State::Open);
        self.wait_for_another(before, fault);
    }

    /// Whether the data are equal, and each of the cuts led to a partial resynchronisation and to no copy.
    fn judge(&self, cuts: u64, judge: &Master) -> Result<String, String> {
        // Keys of a short life end, by the word of the master.
        std::thread::sleep(Duration::from_millis(1500));
        self.master.client().line("SET last v");
        wait_until_equal(&mut self.master.client(), &mut self.replica.client());
        if self.master.digest(judge) != self.replica.digest(judge) {
            return Err("the data differ".to_owned());
        }
        let (full, partial) = (self.master.count("sync_full"), self.master.count("sync_partial_ok"));
        let counts = format!("{full} whole copies and {partial} partial resynchronisations for {cuts} cuts");
        match full == 1 && partial >= cuts {
            true => Ok(counts),
            false => Err(counts),
        }
    }
}

fn judge(workspace: &Workspace) -> Option<Master> {
    Master::start(Path::new("redis-server"), &workspace.path("judge"), &[])
}

/// A replica loses its link again and again while its master takes writes of all types.
fn survive(name: &str, make: impl FnOnce() -> Option<[Server; 2]>) {
    let workspace = Workspace::new();
    let Some(judge) = judge(&workspace) else { return };
    let Some([master, replica]) = make() else { return };
    let wanted = std::env::var("TEMBO_CUTS").ok().and_then(|count| count.parse().ok());
    let cuts: u64 = wanted.unwrap_or(8);
    let pair = Pair::start(master, replica, "64mb");
    let writing = Writing::start(pair.master.port(), 17);
    let mut random = Random(19);
    let begun = Instant::now();
    for cut in 0..cuts {
        std::thread::sleep(Duration::from_millis(random.below(200)));
        let fault = FAULTS[cut as usize % FAULTS.len()];
        let ms = match fault {
            // In half of the later holes the first questions of the next link vanish, too.
            State::Hole => 100 + 2500 * random.below(2) * u64::from(cut >= 8),
            State::Reset => random.below(200),
            _ => 200 + random.below(400),
        };
        pair.disturb(fault, ms);
    }
    let count = writing.end();
    let elapsed = begun.elapsed();
    let counts = pair.judge(cuts, &judge).unwrap_or_else(|why| panic!("{name}: {why}"));
    assert_eq!(pair.replica.count("sync_full"), 0, "{name}: the replica sent a copy");
    let offset = pair.master.count("master_repl_offset");
    println!("{name}: {counts}, {count} commands, offset {offset}, {elapsed:.1?}");
    pair.master.end();
    pair.replica.end();
}

#[test]
fn tembo_follows_tembo_over_broken_links() {
    survive("Tembo follows Tembo", || Some([Server::tembo(), Server::tembo()]));
}

#[test]
fn redis_follows_tembo_over_broken_links() {
    survive("Redis follows Tembo", || Some([Server::tembo(), Server::redis()?]));
}

#[test]
fn tembo_follows_redis_over_broken_links() {
    survive("Tembo follows Redis", || Some([Server::redis()?, Server::tembo()]));
}

/// The tests above can fail: a copy that a link costs is noticed, though the data are equal.
#[test]
fn a_copy_because_of_a_small_backlog_is_noticed() {
    let workspace = Workspace::new();
    let Some(judge) = judge(&workspace) else { return };
    let makes: [fn() -> Option<[Server; 2]>; 2] =
        [|| Some([Server::tembo(), Server::redis()?]), || Some([Server::redis()?, Server::tembo()])];
    for make in makes {
        let Some([master, replica]) = make() else { return };
        let pair = Pair::start(master, replica, "16kb");
        let before = pair.synchronisations();
        pair.link.set(State::Reset);
        let mut theirs = pair.master.client();
        // The master has seen the end, and keeps nothing for a replica that it takes for connected.
        theirs.wait_for("connected_slaves", "0");
        for number in 0..200 {
            theirs.line(&format!("SET missed:{number} {}", "x".repeat(1000)));
        }
        pair.link.set(State::Open);
        pair.wait_for_another(before, State::Reset);
        let why = pair.judge(1, &judge).expect_err("the copy was not noticed");
        assert!(why.starts_with("2 whole copies"), "{why}");
        pair.master.end();
        pair.replica.end();
    }
}
