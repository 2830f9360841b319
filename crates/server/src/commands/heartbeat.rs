//! CLUSTERX HEARTBEAT and the settings of fencing. The words are those that were proposed for Kvrocks and
//! its controller, and may change there: all of them are in this file. The rules are in
//! [`crate::cluster::lease`].
//!
//! ```text
//!   CLUSTERX HEARTBEAT <id of the shard's master> <length of the lease in ms> <version of the election>
//!   => sequence:<offset>  role:<master or slave>
//! ```

use std::fmt::Write as _;
use std::time::Duration;

use tembo_wire::Request;

use super::args::integer;
use super::cluster_arguments::{id, node};
use super::context::{Context, Handler};
use super::parameter::{Parameter, read_yes_or_no, yes_or_no};
use crate::clock;
use crate::cluster::lease::{Election, Refusal};
use crate::cluster::topology::Topology;
use crate::cluster::{Cluster, NOT_INITIALISED};
use crate::fault::{Answer, Fault};
use crate::state::State;

/// The longest lease: a day.
const LEASE_MS_MAX: u64 = 86_400_000;

/// Clients of clusters ask for the slots anew when they read the first word.
pub(crate) const LEASE_EXPIRED: &str = "CLUSTERDOWN master lease expired: this node takes no writes until its \
     controller renews the lease (master-lease-mode)";
const UNFENCED: Fault = Fault::Error(
    "ERR failover without fencing: this topology puts a replica in its master's place, and that master may still \
     take writes. Set master-lease-mode block-write or min-replicas-to-write on the nodes of the shard, or \
     cluster-allow-unfenced-failover yes; FORCE takes this topology as it is",
);

pub(super) const HANDLERS: &[(&str, Handler)] = &[("clusterx|heartbeat", heartbeat)];

pub(super) const HELP: [&str; 3] = [
    "HEARTBEAT <master-id> <lease-ms> <election-version>",
    "    Lets the master take writes for so long, counted from the heartbeat before on this connection. With",
    "    master-lease-mode block-write it takes none without.",
];

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter::settable(
        "cluster-allow-unfenced-failover",
        |state| yes_or_no(state.config.unfenced_failover),
        |config, value| read_yes_or_no(value).map(|is_on| config.unfenced_failover = is_on),
    ),
    Parameter::settable(
        "master-lease-mode",
        |state| if state.config.needs_lease { "block-write" } else { "disabled" }.to_owned(),
        |config, value| {
            config.needs_lease = match value.to_ascii_lowercase().as_slice() {
                b"disabled" => false,
                b"block-write" => true,
                _ => return Err("argument must be 'disabled' or 'block-write'".to_owned()),
            };
            Ok(())
        },
    ),
];

fn heartbeat(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (master, length) = (id(&request[2])?, integer(&request[3])?);
    let length = u64::try_from(length).ok().filter(|ms| (1..=LEASE_MS_MAX).contains(ms));
    let length = length.ok_or(Fault::Error("ERR a lease has from 1 ms to a day"))?;
    let version = u64::try_from(integer(&request[4])?);
    let version = version.map_err(|_| Fault::Error("ERR Invalid election version"))?;
    let myself = node(ctx)?.id.ok_or(NOT_INITIALISED)?;
    let said = Election { version, master };
    match ctx.state.lease.expect(&said) {
        Err(Refusal::Older(known)) => {
            let text = format!("ERR election version mismatch: {version} is older than {known}");
            return Err(Fault::Quoting(text.into_bytes()));
        }
        Err(Refusal::Contradiction) => {
            return Err(Fault::Error("ERR election version mismatch: it chose another master"));
        }
        Ok(true) => {
            if ctx.keys.has_batch() {
                return Err(Fault::NeedsCommit);
            }
            ctx.keys.store_election(&said)?;
            // The reply waits for the device.
            ctx.session.is_plain = false;
        }
        Ok(false) => {}
    }
    let before = ctx.session.heartbeat.replace(clock::since_boot());
    ctx.state.lease.take(said, myself, Duration::from_millis(length), before);
    let offset = ctx.keys.replication.position.map_or(0, |position| position.offset);
    let role = if ctx.state.role.master.is_some() { "slave" } else { "master" };
    ctx.out.write().bulk(format!("sequence:{offset}\r\nrole:{role}\r\n"));
    Ok(())
}

/// Refuses a topology that puts this node in the place of its master, unless that one is known to stop.
pub(super) fn expect_fencing(state: &State, cluster: &Cluster, next: &Topology) -> Answer {
    let config = &state.config;
    let is_fenced = config.needs_lease || config.replica.min_replicas > 0 || config.unfenced_failover;
    let now = cluster.id.zip(cluster.topology.as_ref());
    match now.filter(|_| !is_fenced) {
        Some((id, now)) if now.is_succeeded_by(next, &id) => Err(UNFENCED),
        _ => Ok(()),
    }
}

/// The lines of CLUSTER INFO about the lease, if there are some.
pub(super) fn lease_info(state: &State) -> String {
    let mut text = String::new();
    if state.config.needs_lease {
        let (version, ms) = (
            state.lease.election().map_or(-1, |election| election.version as i64),
            state.lease.rest(clock::since_boot()).as_millis(),
        );
        // Writing to a string cannot fail.
        let _ = write!(text, "election_version:{version}\r\nmaster_lease_ms:{ms}\r\n");
    }
    text
}
