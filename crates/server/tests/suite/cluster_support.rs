//! Clusters for tests.

use tembo_wire::Value;

use crate::support::{Client, Fixture, eventually, show};

/// Three masters, and a replica for each.
pub(crate) struct Shards {
    pub(crate) servers: Vec<Fixture>,
}

pub(crate) fn node_id(number: usize) -> String {
    format!("{number:040x}")
}

pub(crate) const RANGES: [&str; 3] = ["0-5460", "5461-10922", "10923-16383"];

impl Shards {
    pub(crate) fn start(masters: usize, replicas: usize) -> Self {
        let servers = (0..masters + replicas).map(|_| node()).collect();
        Shards { servers }
    }

    /// The line of a node, which is a replica if `master` is another one.
    pub(crate) fn line(&self, number: usize, master: Option<usize>, slots: &str) -> String {
        let (id, port) = (node_id(number), self.servers[number].address.port());
        match master {
            None => format!("{id} 127.0.0.1 {port} master - {slots}\n"),
            Some(master) => format!("{id} 127.0.0.1 {port} slave {}\n", node_id(master)),
        }
    }

    /// The topology in which the first three are masters, and the others their replicas.
    pub(crate) fn topology(&self) -> String {
        (0..self.servers.len())
            .map(|number| match number {
                0..3 => self.line(number, None, RANGES[number]),
                _ => self.line(number, Some(number - 3), ""),
            })
            .collect()
    }

    pub(crate) fn push(&self, topology: &str, version: u64) {
        for server in &self.servers {
            assert_eq!(set_nodes(&mut server.client(), topology, version), "+OK");
        }
    }

    /// With the topology of three masters and their replicas, which are up.
    pub(crate) fn ready(replicas: usize) -> Self {
        let shards = Shards::start(3, replicas);
        shards.push(&shards.topology(), 1);
        for replica in 3..3 + replicas {
            let mut client = shards.servers[replica].client();
            eventually(|| client.info("master_link_status") == "up");
        }
        shards
    }

    pub(crate) fn client(&self, number: usize) -> Client {
        self.servers[number].client()
    }

    pub(crate) fn port(&self, number: usize) -> u16 {
        self.servers[number].address.port()
    }
}

/// A node whose masters are not fenced, as in clusters without a controller of leases.
pub(crate) fn node() -> Fixture {
    Fixture::with_config(|config| (config.cluster, config.unfenced_failover) = (true, true))
}

pub(crate) fn set_nodes(client: &mut Client, topology: &str, version: u64) -> String {
    let version = version.to_string();
    show(&client.run(&[b"CLUSTERX", b"SETNODES", topology.as_bytes(), version.as_bytes()]))
}

/// A node that serves all slots.
pub(crate) fn alone() -> Fixture {
    let server = node();
    let line = format!("{} 127.0.0.1 {} master - 0-16383", node_id(0), server.address.port());
    assert_eq!(set_nodes(&mut server.client(), &line, 1), "+OK");
    server
}

pub(crate) fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.as_bytes().unwrap()).into_owned()
}
