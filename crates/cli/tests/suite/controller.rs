//! A controller of shards, by the script of kvrocks-controller in both of its generations: it probes the
//! nodes, pushes topologies, replaces masters that do not answer, and moves slots. It keeps in memory what
//! the real one has in etcd.

use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::cluster_moves::{PATIENCE, Talk, text};
use crate::serve::Server;
use crate::support::Workspace;
use tembo_wire::Value;

pub(crate) const SHARDS: usize = 3;
const NODES: usize = 6;
const SLOTS: usize = 16_384;
/// Probes in a row without an answer after which a master is replaced.
const FAILURES: u32 = 5;
const PROBE_EVERY: Duration = Duration::from_millis(30);
const LEASE: Duration = Duration::from_millis(1500);

/// The controllers of 2024, and later ones, which have leases as proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    First,
    Later,
}

/// Processes of three shards of two nodes each, which come back at their ports.
pub(crate) struct Shards {
    pub(crate) workspace: Workspace,
    pub(crate) ports: [u16; NODES],
    servers: [Option<Server>; NODES],
}

impl Shards {
    /// With these lines in the configuration.
    pub(crate) fn start(lines: &str) -> Self {
        let workspace = Workspace::new();
        std::fs::write(workspace.path("node.conf"), format!("cluster-enabled yes\n{lines}\n")).unwrap();
        let ports = [(); NODES].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = ports.map(|listener| listener.local_addr().unwrap().port());
        let mut shards = Shards { workspace, ports, servers: [const { None }; NODES] };
        (0..NODES).for_each(|node| shards.restart(node));
        shards
    }

    pub(crate) fn restart(&mut self, node: usize) {
        let port = self.ports[node];
        let line = format!("serve --listen 127.0.0.1:{port} --pool node{node}.pool --config node.conf");
        self.servers[node] = Some(Server::spawn(self.workspace.command(&line).stderr(Stdio::null())));
    }

    pub(crate) fn kill(&mut self, node: usize) {
        self.servers[node].take().expect("it runs").kill();
    }

    /// Kills all, and proves that their pools are sound.
    pub(crate) fn check(mut self) {
        for node in 0..NODES {
            if let Some(server) = self.servers[node].take() {
                server.kill();
            }
            self.workspace.run(&format!("check node{node}.pool")).ok();
        }
    }
}

pub(crate) fn id(node: usize) -> String {
    format!("{node:040x}")
}

pub(crate) struct Controller {
    generation: Generation,
    ports: [u16; NODES],
    talks: [Option<Talk>; NODES],
    failures: [u32; NODES],
    /// When a heartbeat was answered last.
    beaten: [Instant; NODES],
    /// The master of each shard, whose nodes are `shard` and `shard + SHARDS`.
    pub(crate) masters: [usize; SHARDS],
    /// The shard of each slot.
    owners: Vec<usize>,
    pub(crate) version: u64,
    election: u64,
    /// Slots on their way: the first, the last, and the shards.
    plan: Option<(u16, u16, usize, usize)>,
    pub(crate) pushes: u64,
    pub(crate) failovers: u64,
}

impl Controller {
    pub(crate) fn new(generation: Generation, ports: [u16; NODES]) -> Self {
        Controller {
            generation,
            ports,
            talks: [const { None }; NODES],
            failures: [0; NODES],
            beaten: [Instant::now(); NODES],
            masters: [0, 1, 2],
            owners: (0..SLOTS).map(|slot| slot * SHARDS / SLOTS).collect(),
            version: 1,
            election: 1,
            plan: None,
            pushes: 0,
            failovers: 0,
        }
    }

    /// The reply of a node; none if there is no answer.
    fn ask(&mut self, node: usize, words: &[&str]) -> Option<Value> {
        if self.talks[node].is_none() {
            self.talks[node] = Talk::connect(self.ports[node]);
        }
        let reply = self.talks[node].as_mut()?.ask(words);
        if reply.is_none() {
            self.talks[node] = None;
        }
        reply
    }

    /// A field of a reply of lines, which are split at one colon.
    fn field(&mut self, node: usize, words: &[&str], name: &str) -> Option<String> {
        let reply = text(&self.ask(node, words)?);
        let lines = reply.split("\r\n").filter_map(|line| line.split_once(':'));
        lines.filter(|(found, _)| *found == name).map(|(_, value)| value.to_owned()).next()
    }

    pub(crate) fn topology(&self) -> String {
        let line = |node: usize| {
            let (id, port, shard) = (id(node), self.ports[node], node % SHARDS);
            let master = self.masters[shard];
            if node != master {
                return format!("{id} 127.0.0.1 {port} slave {}", self::id(master));
            }
            let mut line = format!("{id} 127.0.0.1 {port} master -");
            let slots: Vec<usize> = (0..SLOTS).filter(|slot| self.owners[*slot] == shard).collect();
            for run in slots.chunk_by(|one, next| one + 1 == *next) {
                line += &match run {
                    [one] => format!(" {one}"),
                    _ => format!(" {}-{}", run[0], run[run.len() - 1]),
                };
            }
            line
        };
        (0..NODES).map(line).collect::<Vec<_>>().join("\n")
    }

    /// Gives a node its id and the topology; whether it has them.
    fn push(&mut self, node: usize) -> bool {
        let [word, set_id, set_nodes] = match self.generation {
            Generation::First => ["clusterx", "setnodeid", "setnodes"],
            Generation::Later => ["CLUSTERX", "SETNODEID", "SETNODES"],
        };
        let (topology, version) = (self.topology(), self.version.to_string());
        let Some(named) = self.ask(node, &[word, set_id, &id(node)]) else { return false };
        let Some(told) = self.ask(node, &[word, set_nodes, &topology, &version]) else { return false };
        assert_eq!((text(&named), text(&told)), ("OK".to_owned(), "OK".to_owned()), "{topology}");
        self.pushes += 1;
        true
    }

    fn push_all(&mut self) {
        for node in 0..NODES {
            self.push(node);
        }
    }

    /// The version that a node has, 0 without one; none if there is no answer.
    fn probe(&mut self, node: usize) -> Option<u64> {
        let reply = self.ask(node, &["CLUSTER", "INFO"])?;
        let info = text(&reply);
        if reply.is_error() {
            assert!(info.contains("CLUSTERDOWN The cluster is not initialized"), "{info}");
            return Some(0);
        }
        let lines: Vec<_> = info.split("\r\n").filter(|line| !line.is_empty()).collect();
        assert!(lines.iter().all(|line| line.matches(':').count() == 1), "{info}");
        let epoch = |name: &str| lines.iter().find_map(|line| line.strip_prefix(name)?.parse().ok());
        if self.generation == Generation::First {
            assert_eq!(epoch("cluster_my_epoch:"), epoch("cluster_current_epoch:"));
        }
        epoch("cluster_current_epoch:")
    }

    /// Says that the master of a node's shard is its master. Whatever has decided that is this controller.
    fn beat(&mut self, node: usize) {
        let master = id(self.masters[node % SHARDS]);
        let (ms, election) = (LEASE.as_millis().to_string(), self.election.to_string());
        let Some(reply) = self.ask(node, &["CLUSTERX", "HEARTBEAT", &master, &ms, &election]) else { return };
        let said = text(&reply);
        assert!(said.starts_with("sequence:") && said.contains("\r\nrole:"), "{said}");
        self.beaten[node] = Instant::now();
    }

    /// One round of probes, and whatever follows from them.
    pub(crate) fn round(&mut self) {
        for node in 0..NODES {
            let found = self.probe(node);
            self.failures[node] = if found.is_some() { 0 } else { self.failures[node] + 1 };
            match found {
                Some(version) if version < self.version => {
                    self.push(node);
                }
                Some(version) => assert_eq!(version, self.version, "a node knows more than its controller"),
                None if self.failures[node] == FAILURES && self.masters.contains(&node) => {
                    self.replace(node);
                }
                None => {}
            }
            if found.is_some() && self.generation == Generation::Later {
                self.beat(node);
            }
        }
        self.poll_plan();
        std::thread::sleep(PROBE_EVERY);
    }

    #[track_caller]
    pub(crate) fn run_until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            assert!(begun.elapsed() < PATIENCE, "{what}");
            self.round();
        }
    }

    /// A master does not answer: its replica takes its place.
    fn replace(&mut self, old: usize) {
        let shard = old % SHARDS;
        let heir = (old + SHARDS) % NODES;
        match self.generation {
            Generation::First => {
                // The last word that it is asked for.
                if self.ask(old, &["PING"]).is_some() || self.probe(heir).is_none() {
                    return;
                }
                let offset = self.field(heir, &["INFO"], "slave_repl_offset").unwrap();
                assert!(offset.parse::<u64>().is_ok(), "{offset}");
            }
            Generation::Later => {
                let role = self.field(heir, &["INFO"], "role");
                let sequence = self.field(heir, &["INFO"], "sequence");
                assert!(role.is_some_and(|role| role == "slave"));
                assert!(sequence.is_some_and(|sequence| sequence != "0"), "it has nothing");
                // The lease of the old one runs out before anybody is told.
                let rest = LEASE.saturating_sub(self.beaten[old].elapsed());
                std::thread::sleep(rest);
            }
        }
        self.failovers += 1;
        self.masters[shard] = heir;
        (self.version, self.election) = (self.version + 1, self.election + 1);
        self.push_all();
    }

    /// The master of a shard changes while it is there.
    pub(crate) fn change_master(&mut self, shard: usize) {
        let old = self.masters[shard];
        let heir = (old + SHARDS) % NODES;
        if self.generation == Generation::Later {
            assert_eq!(text(&self.ask(old, &["CLIENT", "PAUSE", "500", "WRITE"]).unwrap()), "OK");
            let goal = self.field(old, &["INFO", "replication"], "master_repl_offset");
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(400) {
                let link = self.field(heir, &["INFO", "replication"], "master_link_status");
                let offset = self.field(heir, &["INFO", "replication"], "slave_repl_offset");
                if link.is_some_and(|link| link == "up") && offset == goal {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        self.masters[shard] = heir;
        (self.version, self.election) = (self.version + 1, self.election + 1);
        // The old one is told first: it is asked to stop, and its lease is nobody's then.
        self.push(old);
        self.push_all();
        if self.generation == Generation::Later {
            assert_eq!(text(&self.ask(old, &["CLIENT", "UNPAUSE"]).unwrap()), "OK");
        }
    }

    fn range(first: u16, last: u16) -> String {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    }

    /// Begins to move slots; whether the source took the order.
    pub(crate) fn migrate(&mut self, (first, last): (u16, u16), to: usize) -> bool {
        let from = self.owners[usize::from(first)];
        let (source, target) = (self.masters[from], id(self.masters[to]));
        let words = match self.generation {
            Generation::First => ["CLUSTERX", "migrate"],
            Generation::Later => ["CLUSTERX", "MIGRATE"],
        };
        let Some(reply) = self.ask(source, &[words[0], words[1], &Self::range(first, last), &target]) else {
            return false;
        };
        match text(&reply).as_str() {
            "OK" => self.plan = Some((first, last, from, to)),
            // Without a lease, or with keys of a move before that are still removed.
            said if said.starts_with("TRYAGAIN") || said.starts_with("CLUSTERDOWN master") => return false,
            said => panic!("{said}"),
        }
        true
    }

    pub(crate) fn is_moving(&self) -> bool {
        self.plan.is_some()
    }

    pub(crate) fn owner(&self, slot: u16) -> usize {
        self.owners[usize::from(slot)]
    }

    /// Asks the source how the move goes; at its end the topology follows.
    fn poll_plan(&mut self) {
        let Some((first, last, from, to)) = self.plan else { return };
        let source = self.masters[from];
        let info = &["CLUSTER", "INFO"];
        let name = match self.generation {
            Generation::First => "migrating_slot",
            Generation::Later => "migrating_slot(s)",
        };
        let Some(state) = self.field(source, info, "migrating_state") else { return };
        // A source that forgot the move would be given up.
        let Some(range) = self.field(source, info, name) else { return };
        assert_eq!(range, Self::range(first, last), "the source names another move");
        match state.as_str() {
            "start" => {}
            "fail" => self.plan = None,
            "success" => {
                self.plan = None;
                self.owners[usize::from(first)..=usize::from(last)].fill(to);
                self.version += 1;
                match self.generation {
                    Generation::First => self.set_slots((first, last), to),
                    Generation::Later => self.push_all(),
                }
            }
            other => panic!("{other}"),
        }
    }

    /// The increment instead of the whole; nodes that are away get the whole at their next probe.
    fn set_slots(&mut self, (first, last): (u16, u16), to: usize) {
        let (range, target, version) =
            (Self::range(first, last), id(self.masters[to]), self.version.to_string());
        for node in 0..NODES {
            if let Some(reply) = self.ask(node, &["CLUSTERX", "SETSLOT", &range, "NODE", &target, &version]) {
                assert_eq!(text(&reply), "OK");
            }
        }
    }
}
