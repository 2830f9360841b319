//! A shard of real processes, and the links between everybody.

use std::process::{Command, Stdio};

use crate::cluster_moves::Talk;
use crate::controller::id;
use crate::proxy::{Link, State, free_port};
use crate::serve::Server;
use crate::support::Workspace;

pub(crate) const CLIENTS: usize = 3;

/// The end of a link that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    Node(usize),
    /// A master that was started anew, and asks its former replicas: they have one address for all.
    Recall,
    Keeper,
    Client(usize),
}

/// The links to each node.
pub(crate) struct Links {
    nodes: usize,
    /// By the node that is reached, and who reaches it.
    links: Vec<Vec<Link>>,
}

impl Links {
    fn to(ports: &[u16]) -> Links {
        let nodes = ports.len();
        let all = |port: &u16| (0..nodes + 2 + CLIENTS).map(|_| Link::to(*port, free_port())).collect();
        Links { nodes, links: ports.iter().map(all).collect() }
    }

    pub(crate) fn link(&self, from: From, to: usize) -> &Link {
        let at = match from {
            From::Node(node) => node,
            From::Recall => self.nodes,
            From::Keeper => self.nodes + 1,
            From::Client(client) => self.nodes + 2 + client,
        };
        &self.links[to][at]
    }

    /// Parts a node from all, but for one client, which is parted from the others.
    pub(crate) fn isolate(&self, node: usize, with: usize, state: State) {
        for other in (0..self.nodes).filter(|other| *other != node) {
            self.part([node, other], state);
            self.link(From::Client(with), other).set(state);
        }
        self.link(From::Keeper, node).set(state);
        for client in (0..CLIENTS).filter(|client| *client != with) {
            self.link(From::Client(client), node).set(state);
        }
    }

    /// Parts two nodes.
    pub(crate) fn part(&self, nodes: [usize; 2], state: State) {
        for [one, other] in [nodes, [nodes[1], nodes[0]]] {
            self.link(From::Node(one), other).set(state);
            self.link(From::Recall, other).set(state);
        }
    }

    pub(crate) fn heal(&self) {
        self.links.iter().flatten().for_each(|link| link.set(State::Open));
    }
}

/// Processes of one shard, which come back at their ports.
pub(crate) struct Shard {
    pub(crate) workspace: Workspace,
    pub(crate) ports: Vec<u16>,
    servers: Vec<Option<Server>>,
}

impl Shard {
    /// With these lines in the configuration, and the links to its nodes.
    pub(crate) fn start(nodes: usize, lines: &str) -> (Shard, Links) {
        let workspace = Workspace::new();
        let listeners: Vec<_> = (0..nodes).map(|_| free_port()).collect();
        let ports: Vec<u16> =
            listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
        let links = Links::to(&ports);
        drop(listeners);
        for node in 0..nodes {
            let announced = links.link(From::Recall, node).port;
            let lines = format!("cluster-enabled yes\nreplica-announce-port {announced}\n{lines}\n");
            std::fs::write(workspace.path(&format!("node{node}.conf")), lines).unwrap();
        }
        let mut shard = Shard { workspace, ports, servers: (0..nodes).map(|_| None).collect() };
        (0..nodes).for_each(|node| shard.restart(node));
        (shard, links)
    }

    pub(crate) fn restart(&mut self, node: usize) {
        let port = self.ports[node];
        let line = format!("serve --listen 127.0.0.1:{port} --pool node{node}.pool --config node{node}.conf");
        self.servers[node] = Some(Server::spawn(self.workspace.command(&line).stderr(Stdio::null())));
    }

    pub(crate) fn kill(&mut self, node: usize) {
        self.servers[node].take().expect("it runs").kill();
    }

    pub(crate) fn runs(&self, node: usize) -> bool {
        self.servers[node].is_some()
    }

    /// Starts those that are not there.
    pub(crate) fn restart_all(&mut self) {
        let dead: Vec<usize> = (0..self.ports.len()).filter(|node| !self.runs(*node)).collect();
        dead.into_iter().for_each(|node| self.restart(node));
    }

    /// Sends a process a signal.
    pub(crate) fn signal(&self, node: usize, name: &str) {
        let process = self.servers[node].as_ref().expect("it runs").child.id().to_string();
        assert!(Command::new("kill").args([name, &process]).status().unwrap().success());
    }

    /// A connection past the links.
    pub(crate) fn talk(&self, node: usize) -> Talk {
        Talk::connect(self.ports[node]).expect("it runs")
    }

    /// Kills all, and proves that their pools are sound.
    pub(crate) fn check(mut self) {
        for node in 0..self.ports.len() {
            if self.runs(node) {
                self.kill(node);
            }
            self.workspace.run(&format!("check node{node}.pool")).ok();
        }
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        // A test has failed.
        self.servers.drain(..).flatten().for_each(Server::kill);
    }
}

/// The topology as one node sees it: the others are behind its links.
pub(crate) fn topology(links: &Links, own_port: u16, node: usize, master: usize) -> String {
    let line = |other: usize| {
        let port = if other == node { own_port } else { links.link(From::Node(node), other).port };
        match other == master {
            true => format!("{} 127.0.0.1 {port} master - 0-16383", id(other)),
            false => format!("{} 127.0.0.1 {port} slave {}", id(other), id(master)),
        }
    };
    (0..links.nodes).map(line).collect::<Vec<_>>().join("\n")
}
