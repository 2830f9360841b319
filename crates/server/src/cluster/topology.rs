//! The nodes of a cluster and their slots: data without I/O.
//!
//! # Text
//!
//! A topology is a line for each node, as `CLUSTERX SETNODES` takes it and as the pool keeps it:
//!
//! ```text
//!   id host port master - 0-5460 6000      a master, with the slots that it serves
//!   id host port slave master_id           a replica, with the id of its master; or `replica`
//! ```
//!
//! An id has 40 letters and digits. A role may have flags behind commas (`slave,fail`), which CLUSTER NODES
//! shows again.
//!
//! # Invariants
//!
//! - T1: no two nodes have the same id, or the same host and port.
//! - T2: a slot has one owner at most, which is a master.
//! - T3: a replica's master is a node, and is a master.
//! - T4: there are at most [`NODES_MAX`] nodes.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Write as _};
use std::ops::RangeInclusive;

use super::slot::{SLOTS, parse_slot};

/// The length of a node's id.
pub(crate) const ID_BYTES: usize = 40;
/// The most nodes of a topology: one for each slot.
pub(crate) const NODES_MAX: usize = SLOTS as usize;
/// The longest name of a host.
const HOST_BYTES_MAX: usize = 255;
/// The longest role with its flags.
const ROLE_BYTES_MAX: usize = 64;
/// The longest part of a text that an error quotes.
const QUOTED_BYTES_MAX: usize = 64;
/// A slot that nobody owns.
const NOBODY: u16 = u16::MAX;

/// The name of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeId([u8; ID_BYTES]);

impl NodeId {
    /// Reads an id.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let is_sound = text.iter().all(u8::is_ascii_alphanumeric);
        text.try_into().ok().map(NodeId).filter(|_| is_sound)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Flags behind the role, without the comma between.
    pub(crate) flags: String,
    /// The master's place among the nodes, if this is a replica.
    pub(crate) master: Option<usize>,
}

impl Node {
    /// Whether the node's line says that it failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.flags.split(',').any(|flag| flag == "fail")
    }
}

/// Why a topology was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("Invalid cluster nodes info: there are no nodes")]
    Empty,
    #[error("Invalid cluster nodes info: there are more than {NODES_MAX} nodes")]
    TooMany,
    #[error("Invalid cluster nodes info: it is not text")]
    NotText,
    #[error("Invalid cluster nodes info: line {0}: {1}")]
    Line(usize, String),
    #[error("Slot is overlapped: line {line}: slot {slot} has an owner already")]
    Overlap { line: usize, slot: u16 },
    #[error("Slot is out of range: \"{0}\" is not a slot, or not a first and a greater last slot")]
    Slots(String),
    #[error("Invalid cluster node id")]
    Id,
    #[error("No this node in the cluster")]
    UnknownNode,
    #[error("The node isn't a master")]
    NotMaster,
    #[error("Invalid cluster version")]
    Version,
}

/// The nodes and who owns which slot, under a version.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Topology {
    /// At most `i64::MAX`, as controllers count.
    pub(crate) version: u64,
    pub(crate) nodes: Vec<Node>,
    /// The place of the owner among the nodes, for each slot.
    owners: Box<[u16]>,
}

impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "version {}: {}", self.version, self.to_text())
    }
}

fn clipped(text: &str) -> String {
    text.bytes().take(QUOTED_BYTES_MAX).flat_map(std::ascii::escape_default).map(char::from).collect()
}

/// Reads `n` or `a-b`, where a is less than b.
pub(crate) fn parse_range(text: &str) -> Result<RangeInclusive<u16>, Error> {
    let wrong = || Error::Slots(clipped(text));
    match text.split_once('-') {
        None => parse_slot(text).map(|slot| slot..=slot).ok_or_else(wrong),
        Some((first, last)) => {
            let (first, last) = (parse_slot(first).ok_or_else(wrong)?, parse_slot(last).ok_or_else(wrong)?);
            if first < last { Ok(first..=last) } else { Err(wrong()) }
        }
    }
}

/// The parts of a line.
struct Line<'t> {
    node: Node,
    /// The master's id, of a replica.
    master: Option<NodeId>,
    slots: Vec<&'t str>,
}

fn parse_line(text: &str) -> Result<Line<'_>, String> {
    let mut fields = text.split_ascii_whitespace();
    let mut next = |what: &str| fields.next().ok_or_else(|| format!("the {what} is missing"));
    let id = next("id")?;
    let id = NodeId::parse(id.as_bytes()).ok_or_else(|| format!("\"{}\" is no id", clipped(id)))?;
    let host = next("host")?;
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"@,".contains(&byte);
    if host.len() > HOST_BYTES_MAX || !host.bytes().all(is_plain) {
        return Err(format!("\"{}\" is no host", clipped(host)));
    }
    let port = next("port")?;
    let number = port.parse::<u16>().ok().filter(|&number| number > 0 && !port.starts_with('+'));
    let port = number.ok_or_else(|| format!("\"{}\" is no port", clipped(port)))?;
    let role = next("role")?;
    let (role, flags) = role.split_once(',').unwrap_or((role, ""));
    let is_flag = |byte: u8| byte.is_ascii_lowercase() || b",?_".contains(&byte);
    if flags.len() > ROLE_BYTES_MAX || !flags.bytes().all(is_flag) {
        return Err(format!("\"{}\" are no flags of a role", clipped(flags)));
    }
    let is_master = match role.to_ascii_lowercase().as_str() {
        "master" => true,
        "slave" | "replica" => false,
        _ => return Err(format!("\"{}\" is no role", clipped(role))),
    };
    let master = next("id of a master")?;
    let master = match NodeId::parse(master.as_bytes()) {
        None if is_master && master == "-" => None,
        Some(id) if !is_master => Some(id),
        _ if is_master => return Err("a master has the id of one".to_owned()),
        _ => return Err(format!("\"{}\" is no id of a master", clipped(master))),
    };
    let slots: Vec<_> = fields.collect();
    if !is_master && !slots.is_empty() {
        return Err("a replica has slots".to_owned());
    }
    let node = Node { id, host: host.to_owned(), port, flags: flags.to_owned(), master: None };
    Ok(Line { node, master, slots })
}

impl Topology {
    /// Reads a topology. Takes time and memory proportional to the text; ends at the first mistake.
    ///
    /// # Errors
    /// The first mistake.
    pub(crate) fn parse(text: &[u8], version: u64) -> Result<Self, Error> {
        let text = str::from_utf8(text).map_err(|_| Error::NotText)?;
        let (mut nodes, mut masters) = (Vec::new(), Vec::new());
        let mut owners = vec![NOBODY; SLOTS.into()].into_boxed_slice();
        let (mut places, mut addresses) = (HashMap::new(), HashSet::new());
        for (index, line) in text.split('\n').enumerate() {
            if line.trim_ascii().is_empty() {
                continue;
            }
            let number = index + 1;
            if nodes.len() == NODES_MAX {
                return Err(Error::TooMany);
            }
            let Line { node, master, slots } = parse_line(line).map_err(|why| Error::Line(number, why))?;
            for range in slots {
                for slot in parse_range(range)? {
                    let owner = &mut owners[usize::from(slot)];
                    if std::mem::replace(owner, nodes.len() as u16) != NOBODY {
                        return Err(Error::Overlap { line: number, slot });
                    }
                }
            }
            if places.insert(node.id, nodes.len()).is_some() {
                return Err(Error::Line(number, "the id is there twice".to_owned()));
            }
            if !addresses.insert((node.host.clone(), node.port)) {
                return Err(Error::Line(number, "the host and port are there twice".to_owned()));
            }
            masters.extend(master.map(|master| (number, nodes.len(), master)));
            nodes.push(node);
        }
        if nodes.is_empty() {
            return Err(Error::Empty);
        }
        let replicas: HashSet<usize> = masters.iter().map(|(_, place, _)| *place).collect();
        for (number, place, master) in masters {
            let unknown = || Error::Line(number, format!("no node has the id {master} of the master"));
            let of = *places.get(&master).ok_or_else(unknown)?;
            if replicas.contains(&of) {
                return Err(Error::Line(number, format!("the node {master} is no master")));
            }
            nodes[place].master = Some(of);
        }
        Ok(Topology { version, nodes, owners })
    }

    /// The topology in words that [`parse`](Self::parse) reads.
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        let ranges = self.ranges_by_node();
        for (node, ranges) in self.nodes.iter().zip(ranges) {
            let (role, comma) = (node.role(), if node.flags.is_empty() { "" } else { "," });
            let master = node.master.map_or("-".to_owned(), |master| self.nodes[master].id.to_string());
            let Node { id, host, port, flags, .. } = node;
            // Writing to a string cannot fail.
            let _ = write!(text, "{id} {host} {port} {role}{comma}{flags} {master}");
            ranges.iter().for_each(|range| {
                let _ = write!(text, " {}", shown_range(range));
            });
            text.push('\n');
        }
        text
    }

    /// The node with this id, and its place.
    pub(crate) fn find(&self, id: &NodeId) -> Option<usize> {
        self.nodes.iter().position(|node| node.id == *id)
    }

    /// The place of the node that owns a slot.
    pub(crate) fn owner(&self, slot: u16) -> Option<usize> {
        self.owners.get(usize::from(slot)).filter(|&&owner| owner != NOBODY).map(|&owner| owner.into())
    }

    /// Gives slots to a master, as the next version.
    ///
    /// # Errors
    /// The version is not the next one, or the node is not one that may have slots.
    pub(crate) fn assign(
        &mut self,
        ranges: &[RangeInclusive<u16>],
        id: &NodeId,
        version: u64,
    ) -> Result<(), Error> {
        if Some(version) != self.version.checked_add(1) {
            return Err(Error::Version);
        }
        let node = self.find(id).ok_or(Error::UnknownNode)?;
        if self.nodes[node].master.is_some() {
            return Err(Error::NotMaster);
        }
        for slot in ranges.iter().cloned().flatten() {
            self.owners[usize::from(slot)] = node as u16;
        }
        self.version = version;
        Ok(())
    }

    /// The same nodes with other owners.
    pub(crate) fn with_owners(&self, owner: impl Fn(u16) -> Option<usize>) -> Self {
        let owners = (0..SLOTS).map(|slot| owner(slot).map_or(NOBODY, |owner| owner as u16)).collect();
        Topology { version: self.version, nodes: self.nodes.clone(), owners }
    }

    /// The slots that have owners, as ranges of one owner, in order.
    pub(crate) fn ranges(&self) -> Vec<(usize, RangeInclusive<u16>)> {
        let mut ranges: Vec<(usize, RangeInclusive<u16>)> = Vec::new();
        for slot in 0..SLOTS {
            let Some(owner) = self.owner(slot) else { continue };
            match ranges.last_mut() {
                Some((last, range)) if *last == owner && range.end() + 1 == slot => {
                    *range = *range.start()..=slot;
                }
                _ => ranges.push((owner, slot..=slot)),
            }
        }
        ranges
    }

    /// The ranges of each node, in the order of the nodes.
    pub(crate) fn ranges_by_node(&self) -> Vec<Vec<RangeInclusive<u16>>> {
        let mut by_node = vec![Vec::new(); self.nodes.len()];
        self.ranges().into_iter().for_each(|(node, range)| by_node[node].push(range));
        by_node
    }

    /// The places of the replicas of each node, in the order of the nodes.
    pub(crate) fn replicas_by_node(&self) -> Vec<Vec<usize>> {
        let mut by_node = vec![Vec::new(); self.nodes.len()];
        for (place, node) in self.nodes.iter().enumerate() {
            if let Some(master) = node.master {
                by_node[master].push(place);
            }
        }
        by_node
    }

    /// Whether, in the next topology, a replica of this one has slots of its master.
    pub(crate) fn is_succeeded_by(&self, next: &Topology, id: &NodeId) -> bool {
        let master = self.find(id).and_then(|place| self.nodes[place].master);
        let (Some(master), Some(heir)) = (master, next.find(id)) else { return false };
        (0..SLOTS).any(|slot| self.owner(slot) == Some(master) && next.owner(slot) == Some(heir))
    }

    /// How many slots have owners.
    pub(crate) fn assigned(&self) -> usize {
        self.owners.iter().filter(|&&owner| owner != NOBODY).count()
    }

    /// How many masters have slots.
    pub(crate) fn size(&self) -> usize {
        self.ranges().iter().map(|(node, _)| node).collect::<HashSet<_>>().len()
    }
}

impl Node {
    /// The name of the role.
    pub(crate) fn role(&self) -> &'static str {
        if self.master.is_some() { "slave" } else { "master" }
    }
}

/// A range as a topology and CLUSTER NODES have it.
pub(crate) fn shown_range(range: &RangeInclusive<u16>) -> String {
    match (range.start(), range.end()) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}-{last}"),
    }
}
