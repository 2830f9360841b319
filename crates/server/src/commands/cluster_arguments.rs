//! The common parts of commands about a cluster: this node, and their arguments.

use std::ops::RangeInclusive;

use super::context::Context;
use crate::cluster::Cluster;
use crate::cluster::slot::SLOTS;
use crate::cluster::topology::{Error, NodeId, parse_range};
use crate::fault::{Answer, Fault, SYNTAX};

pub(super) const DISABLED: Fault = Fault::Error("ERR This instance has cluster support disabled");

/// The node, if this server is one.
pub(super) fn node<'c>(ctx: &'c Context<'_, '_>) -> Answer<&'c Cluster> {
    ctx.state.cluster.as_deref().ok_or(DISABLED)
}

pub(super) fn refused(error: Error) -> Fault {
    Fault::Quoting(format!("ERR {error}").into_bytes())
}

pub(super) fn id(arg: &[u8]) -> Answer<NodeId> {
    NodeId::parse(arg).ok_or_else(|| refused(Error::Id))
}

/// Ranges of slots, with blanks between them.
pub(super) fn ranges_of(text: &[u8]) -> Answer<Vec<RangeInclusive<u16>>> {
    let text = str::from_utf8(text).map_err(|_| refused(Error::NotText))?;
    let ranges: Result<Vec<_>, _> = text.split_ascii_whitespace().map(parse_range).collect();
    let ranges = ranges.map_err(refused)?;
    if ranges.is_empty() || ranges.len() > SLOTS.into() { Err(SYNTAX) } else { Ok(ranges) }
}
