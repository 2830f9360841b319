//! PSYNC, REPLCONF, WAIT and WAITAOF: see [`crate::master`].

use std::time::{Duration, Instant};

use tembo::Domain;
use tembo_wire::Request;
use tembo_wire::number::{parse_i64, parse_u64};

use super::args::{integer, is, quoting};
use super::context::{Context, Handler};
use crate::address::Address;
use crate::client_ref::ClientRef;
use crate::config::LogLevel;
use crate::conn::Conn;
use crate::fault::{Answer, Fault, SYNTAX};
use crate::keyspace::history::{Position, Second};
use crate::log::MessageKind;
use crate::master::feed::{acknowledged, answer, copies, progress_of_replicas};
use crate::master::{AwaitedDevice, Awaiting, Replica, ReplicaStage};
use crate::replica::Phase;

pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("psync", psync),
    ("sync", sync),
    ("replconf", replconf),
    ("wait", wait),
    ("waitaof", wait_for_devices),
];

const NO_LINK: Fault = Fault::Error("NOMASTERLINK Can't SYNC while not connected with my master");
/// Replicas of Redis take this word for a reason to ask again later.
const AHEAD: Fault = Fault::Error(
    "NOMASTERLINK the replica has more than this master, or this master has nothing: a copy would destroy data. \
     CONFIG SET repl-refuse-ahead no allows it",
);

const IN_DOUBT: Fault = Fault::Error(
    "UNBLOCKED this server was a replica since this connection wrote: what it wrote may be lost. The next WAIT is \
     about writes from now on",
);

/// The replicas that have asked for the stream, with their addresses.
pub(crate) fn replicas_of<'c>(conns: impl Iterator<Item = &'c Conn>) -> Vec<(String, Replica)> {
    let replicas = conns.filter_map(|conn| {
        let is_listed = |replica: &&Replica| replica.is_asking() && !replica.is_backup;
        let replica = conn.session.replica.as_deref().filter(is_listed)?;
        let ip = replica.ip.clone().unwrap_or_else(|| match &conn.session.peer {
            Address::Ip(address) => address.ip().to_string(),
            Address::Unix(_) => String::new(),
        });
        Some((ip, replica.clone()))
    });
    replicas.collect()
}

/// The facts that REPLCONF has told of a connection.
fn introduced<'c>(ctx: &'c mut Context<'_, '_>) -> &'c mut Replica {
    let now = ctx.state.now;
    ctx.session.replica.get_or_insert_with(|| Box::new(Replica::new(now)))
}

fn replconf(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    if request.arg_count().is_multiple_of(2) {
        return Err(SYNTAX);
    }
    for at in (1..request.arg_count()).step_by(2) {
        let (option, value) = (&request[at], &request[at + 1]);
        match option {
            _ if is(option, "ack") => {
                let is_told = request.arg_count() > at + 3 && is(&request[at + 2], "fack");
                return acknowledge(ctx, value, is_told.then(|| &request[at + 3]));
            }
            // A master asks this of its replicas; this connection is not the link to a master.
            _ if is(option, "getack") => return Ok(()),
            _ if is(option, "listening-port") => {
                let port = parse_u64(value).and_then(|port| u16::try_from(port).ok());
                introduced(ctx).port = port.ok_or(crate::fault::NOT_AN_INTEGER)?;
            }
            _ if is(option, "ip-address") => {
                let ip = str::from_utf8(value).ok().filter(|ip| ip.len() <= 255);
                let ip = ip.ok_or_else(|| {
                    quoting("ERR REPLCONF ip-address provided by replica instance is too long: ", value, "")
                })?;
                introduced(ctx).ip = (!ip.is_empty()).then(|| ip.to_owned());
            }
            _ if is(option, "capa") => introduced(ctx).takes_new_ids |= is(value, "psync2"),
            // A replica that has asked already wants the stream, and not only a copy.
            _ if is(option, "rdb-only") && introduced(ctx).is_asking() => {}
            _ if is(option, "rdb-only") => {
                let replica = introduced(ctx);
                replica.wants_only_copy = value == b"1";
                replica.is_backup |= replica.wants_only_copy;
            }
            // `tembo backup` says this: it takes the stream up to now.
            _ if is(option, "tembo-backup") => introduced(ctx).is_backup = true,
            _ if ["rdb-filter-only", "version"].iter().any(|known| is(option, known)) => {}
            _ => return Err(quoting("ERR Unrecognized REPLCONF option: ", option, "")),
        }
    }
    ctx.out.write().ok();
    Ok(())
}

/// A replica acknowledges its offset, and may acknowledge that of its device. There is no answer.
fn acknowledge(ctx: &mut Context<'_, '_>, value: &[u8], durable: Option<&[u8]>) -> Answer {
    let now = ctx.state.now;
    if let (Some(replica), Some(offset)) = (&mut ctx.session.replica, parse_u64(value)) {
        // No replica can have bytes that were not sent.
        replica.acknowledged = offset.min(replica.cursor).max(replica.acknowledged);
        replica.heard = now;
        let durable = durable.and_then(parse_u64).unwrap_or(0);
        replica.durable = durable.min(replica.cursor).max(replica.durable);
    }
    Ok(())
}

fn sync(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    expect_link(ctx)?;
    introduced(ctx).is_plain = true;
    ask(ctx, ReplicaStage::WantsCopy);
    Ok(())
}

fn expect_link(ctx: &Context<'_, '_>) -> Answer {
    let has_stream = ctx.state.role.phase == Phase::Up && !ctx.keys.replication.is_arriving;
    if ctx.state.role.master.is_some() && !has_stream {
        return Err(NO_LINK);
    }
    Ok(())
}

/// Makes this connection that of a replica.
fn ask(ctx: &mut Context<'_, '_>, stage: ReplicaStage) {
    introduced(ctx).stage = stage;
    let client = ClientRef { slot: ctx.session.slot, id: ctx.session.id };
    if ctx.state.replicas.list.is_empty() {
        // Replicas of other ids are disconnected.
        ctx.state.replicas.epoch = ctx.keys.replication.epoch;
    }
    if !ctx.state.replicas.list.contains(&client) {
        ctx.state.replicas.list.push(client);
    }
}

fn psync(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    if ctx.session.replica.as_ref().is_some_and(|replica| replica.is_asking()) {
        return Ok(());
    }
    let (id, wanted) = (&request[1], integer(&request[2])?);
    if request.get(3).is_some_and(|word| is(word, "FAILOVER")) {
        take_over(ctx, id, wanted, request.get(4).is_some_and(|word| is(word, "FORCE")))?;
    }
    expect_link(ctx)?;
    let replication = &ctx.keys.replication;
    let history = replication.committed();
    // The first byte that the replica lacks, counted from 1.
    let from = u64::try_from(wanted).ok().and_then(|wanted| wanted.checked_sub(1));
    let goes_on = match (history, from) {
        (Some(position), Some(from)) => {
            let is_ours = is_of(&position, replication.second, id, from);
            is_ours && (replication.backlog.first()..=position.offset).contains(&from)
        }
        _ => false,
    };
    // A client that wants a copy and no stream gets a copy.
    let wants_copy = ctx.session.replica.as_ref().is_some_and(|replica| replica.wants_only_copy);
    if goes_on
        && !wants_copy
        && let (Some(position), Some(from)) = (history, from)
    {
        let now = ctx.state.now;
        let replica = introduced(ctx);
        (replica.cursor, replica.acknowledged, replica.heard) = (from, from, now);
        let takes_new_ids = replica.takes_new_ids;
        ask(ctx, ReplicaStage::Online);
        ctx.state.replicas.partial += 1;
        let line = match takes_new_ids {
            true => format!("CONTINUE {}", String::from_utf8_lossy(&position.id)),
            false => "CONTINUE".to_owned(),
        };
        ctx.out.write().simple(line);
        return Ok(());
    }
    if id != b"?" {
        expect_not_ahead(ctx, id, from)?;
        ctx.state.replicas.partial_refused += 1;
    }
    ask(ctx, ReplicaStage::WantsCopy);
    Ok(())
}

/// The master of this replica asks it to change places: it is the master from now on, durably. Unless that is
/// forced, it has all that the master has. It may have had that and lost it since, with the system.
fn take_over(ctx: &mut Context<'_, '_>, id: &[u8], wanted: i64, is_forced: bool) -> Answer {
    if ctx.state.role.master.is_none() {
        // This server has taken over already, and the old master was not told.
        if ctx.keys.replication.second.is_some_and(|second| second.id == id) {
            return Ok(());
        }
        return Err(Fault::Error("ERR PSYNC FAILOVER can't be sent to a master."));
    }
    let position = ctx.keys.replication.position.filter(|position| position.id == id);
    let Some(position) = position else {
        return Err(Fault::Error("ERR PSYNC FAILOVER replid must match my replid."));
    };
    let has_all = u64::try_from(wanted).is_ok_and(|wanted| wanted <= position.offset.saturating_add(1));
    if !has_all && !is_forced {
        return Err(Fault::Error("ERR PSYNC FAILOVER offset must not be beyond mine."));
    }
    if ctx.keys.has_batch() {
        return Err(Fault::NeedsCommit);
    }
    let new_id = ctx.state.random_id();
    ctx.keys.store_master(None, new_id)?;
    ctx.state.role.choose(None);
    ctx.state.role.is_changed = false;
    let text = "FAILOVER: this is the master from now on, by the word of the old one";
    ctx.state.log(LogLevel::Notice, MessageKind::Replication, format_args!("{text}"));
    Ok(())
}

/// Whether a history has the byte at an offset under this id.
fn is_of(position: &Position, second: Option<Second>, id: &[u8], from: u64) -> bool {
    position.id == id || second.is_some_and(|second| second.id == id && from <= second.offset)
}

/// Refuses a replica that has more of this history than this server, and one that has something where this
/// server never had anything.
fn expect_not_ahead(ctx: &mut Context<'_, '_>, id: &[u8], from: Option<u64>) -> Answer {
    let is_empty = ctx.keys.replication.committed().is_none() && {
        let mut lens = (0..crate::keyspace::format::DATABASES).map(|database| ctx.keys.len(database));
        lens.try_fold(true, |empty, len| Ok::<_, Fault>(empty && len? == 0))?
    };
    let is_ahead = ctx
        .keys
        .replication
        .committed()
        .is_some_and(|position| position.id == id && from.is_some_and(|from| from > position.offset));
    if ctx.state.config.replica.refuses_ahead && (is_empty || is_ahead) {
        return Err(AHEAD);
    }
    Ok(())
}

fn wait(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    if ctx.state.role.master.is_some() {
        let text = "ERR WAIT cannot be used with replica instances. Please also note that writes to replicas are \
            just local and are not propagated.";
        return Err(Fault::Error(text));
    }
    let count = u64::try_from(integer(&request[1])?).unwrap_or(0);
    let deadline = deadline(ctx, &request[2])?;
    expect_no_doubt(ctx)?;
    let offset = ctx.keys.replication.position.map_or(0, |position| position.offset);
    let awaiting = Awaiting { offset, count, device: None, deadline };
    if acknowledged(&progress_of_replicas(ctx.clients.iter()), offset) >= count {
        return answer_now(ctx, &awaiting);
    }
    wait_for_copies(ctx, awaiting)
}

fn wait_for_devices(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let out_of_range = "ERR value is out of range, must be between 0 and 1";
    let is_wanted = match integer(&request[1])? {
        local @ (0 | 1) => local == 1,
        _ => return Err(Fault::Error(out_of_range)),
    };
    let out_of_range = "ERR value is out of range, must be positive";
    let count = u64::try_from(integer(&request[2])?).map_err(|_| Fault::Error(out_of_range))?;
    let deadline = deadline(ctx, &request[3])?;
    if ctx.state.role.master.is_some() {
        let text = "ERR WAITAOF cannot be used with replica instances. Please also note that writes to replicas \
            are just local and are not propagated.";
        return Err(Fault::Error(text));
    }
    if is_wanted && ctx.keys.pool().domain() == Domain::PageCache {
        let text = "ERR WAITAOF cannot be used when numlocal is set but the durability is page-cache: nothing is \
            ever synchronised with a device";
        return Err(Fault::Error(text));
    }
    expect_no_doubt(ctx)?;
    let offset = ctx.keys.replication.position.map_or(0, |position| position.offset);
    let device = Some(AwaitedDevice { is_wanted, position: None });
    wait_for_copies(ctx, Awaiting { offset, count, device, deadline })
}

/// Fails, once, if the connection wrote before this server was a replica, whose master's data may have taken
/// that back: replicas that have all of the present data need not have it.
fn expect_no_doubt(ctx: &mut Context<'_, '_>) -> Answer {
    match std::mem::take(&mut ctx.session.in_doubt) {
        true => Err(IN_DOUBT),
        false => Ok(()),
    }
}

/// Reads a timeout in milliseconds, of which 0 is none.
fn deadline(ctx: &Context<'_, '_>, word: &[u8]) -> Answer<Option<Instant>> {
    let not_integer = Fault::Error("ERR timeout is not an integer or out of range");
    let ms = parse_i64(word).ok_or(not_integer)?;
    let ms = u64::try_from(ms).map_err(|_| Fault::Error("ERR timeout is negative"))?;
    Ok((ms > 0).then(|| ctx.state.now.checked_add(Duration::from_millis(ms))).flatten())
}

/// Blocks the client until others have copies of its writes; within EXEC says who has them.
pub(super) fn wait_for_copies(ctx: &mut Context<'_, '_>, awaiting: Awaiting) -> Answer {
    if ctx.session.queue.is_some() {
        return answer_now(ctx, &awaiting);
    }
    ctx.session.awaiting = Some(Box::new(awaiting));
    ctx.state.replicas.wants_acks = true;
    ctx.state.replicas.awaiting.push(ClientRef { slot: ctx.session.slot, id: ctx.session.id });
    Ok(())
}

fn answer_now(ctx: &mut Context<'_, '_>, awaiting: &Awaiting) -> Answer {
    let pool = ctx.keys.pool();
    // The open batch is on no device yet: this transaction's own writes, and those in front of it in this
    // turn.
    let is_open = ctx.keys.is_dirty() || ctx.keys.pending_words() > 0;
    let position = (!is_open).then(|| pool.commit_position());
    let device = awaiting.device.map(|device| AwaitedDevice { position, ..device });
    let awaiting = Awaiting { device, ..*awaiting };
    let copies = copies(pool, &progress_of_replicas(ctx.clients.iter()), &awaiting);
    answer(&mut ctx.out.write(), &awaiting, copies);
    Ok(())
}
