//! How keys are kept: OBJECT and MEMORY.

use std::ops::ControlFlow;

use tembo_wire::Request;
use tembo_wire::number::parse_i64;

use super::args::{Options, integer, is};
use super::context::{Context, Handler, write_help};
use crate::eviction::access::Accesses;
use crate::eviction::policy::UseMeasure as Use;
use crate::fault::{Answer, Fault, SYNTAX};
use crate::keyspace::format::{DATABASES, Kind, Stored};

pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("object", object_help),
    ("object|encoding", encoding),
    ("object|freq", freq),
    ("object|idletime", idletime),
    ("object|refcount", refcount),
    ("object|help", object_help),
    ("memory", memory_help),
    ("memory|usage", usage),
    ("memory|stats", memory_stats),
    ("memory|doctor", memory_doctor),
    ("memory|malloc-stats", memory_malloc_stats),
    ("memory|purge", memory_purge),
    ("memory|help", memory_help),
];

/// Longest string that Redis keeps in one piece with its header.
const EMBEDDED_BYTES_MAX: usize = 44;
/// Bytes of the pool that a key takes beside its own and its value's: its entry in the tree and its share of
/// the space that the tree and the allocator leave free.
const KEY_OVERHEAD_BYTES: usize = 64;

const NO_FREQUENCY: &str = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note \
    that when switching between policies at runtime LRU and LFU data will take some time to adjust.";
const NO_IDLE_TIME: &str = "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when \
    switching between policies at runtime LRU and LFU data will take some time to adjust.";
const NOT_TIMED: &str = "ERR idle time is not tracked: no maxmemory-policy of the LRU kind is selected.";

/// Elements of a large collection that an estimate looks at.
const SAMPLES: u64 = 64;

fn encoding(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let stored = ctx.keys.find(ctx.session.database, &request[2])?.live;
    let name = stored.map(|stored| encoding_name(&stored).as_bytes());
    ctx.out.bulk_or_null(name)
}

pub(super) fn encoding_name(stored: &Stored<'_>) -> &'static str {
    match stored.payload {
        _ if stored.meta.kind == Kind::SortedSet && stored.meta.modified => "skiplist",
        _ if stored.meta.kind == Kind::List => "quicklist",
        _ if stored.meta.kind != Kind::String && stored.meta.modified => "hashtable",
        _ if matches!(stored.meta.kind, Kind::Hash | Kind::SortedSet) => "listpack",
        _ if stored.meta.kind == Kind::Set => "intset",
        _ if stored.meta.modified => "raw",
        payload if parse_i64(payload).is_some() => "int",
        payload if payload.len() <= EMBEDDED_BYTES_MAX => "embstr",
        _ => "raw",
    }
}

fn refcount(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    match ctx.keys.find(ctx.session.database, &request[2])?.live {
        Some(_) => ctx.out.write().integer(1),
        None => ctx.out.write().null(),
    }
    Ok(())
}

fn freq(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    use_of(ctx, &request[2], Use::Frequency, NO_FREQUENCY, |accesses, database, key| {
        accesses.count(database, key).into()
    })
}

fn idletime(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let is_frequency = ctx.keys.accesses.as_ref().is_some_and(|accesses| accesses.kind() == Use::Frequency);
    let why = if is_frequency { NO_IDLE_TIME } else { NOT_TIMED };
    use_of(ctx, &request[2], Use::Recency, why, |accesses, database, key| {
        (accesses.idle_ms(database, key) / 1000) as i64
    })
}

/// Replies with a figure about the uses of a key, if the policy keeps this kind of figure.
fn use_of(
    ctx: &mut Context<'_, '_>,
    key: &[u8],
    kind: Use,
    why_not: &'static str,
    read: impl Fn(&Accesses, usize, &[u8]) -> i64,
) -> Answer {
    let database = ctx.session.database;
    if ctx.keys.find(database, key)?.live.is_none() {
        ctx.out.write().null();
        return Ok(());
    }
    let accesses = ctx.keys.accesses.as_ref().filter(|accesses| accesses.kind() == kind);
    let number = read(accesses.ok_or(Fault::Error(why_not))?, database, key);
    ctx.out.write().integer(number);
    Ok(())
}

fn usage(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let mut options = Options::after(request, 3);
    while let Some(word) = options.next() {
        if !is(word, "SAMPLES") || integer(options.value()?)? < 0 {
            return Err(SYNTAX);
        }
    }
    let key = &request[2];
    match ctx.keys.find(ctx.session.database, key)?.live {
        None => ctx.out.write().null(),
        Some(stored) if stored.meta.large => {
            let kind = stored.meta.kind;
            let bytes = large_bytes(ctx, key, kind)?;
            ctx.out.write().integer(bytes as i64);
        }
        Some(stored) => {
            let expiry_bytes = stored.meta.deadline.map_or(0, |_| key.len() + 8 + KEY_OVERHEAD_BYTES);
            let bytes = key.len() + stored.payload.len() + KEY_OVERHEAD_BYTES + expiry_bytes;
            ctx.out.write().integer(bytes as i64);
        }
    }
    Ok(())
}

/// The bytes that a large collection takes, by the average of its first elements.
pub(super) fn large_bytes(ctx: &mut Context<'_, '_>, key: &[u8], kind: Kind) -> Answer<u64> {
    let collection = ctx.keys.collection(ctx.session.database, key, kind)?;
    let (mut looked_at, mut bytes) = (0, 0);
    ctx.keys.walk_elements(&collection, 0, |_, field, value| {
        looked_at += 1;
        bytes += (field.len() + value.len() + KEY_OVERHEAD_BYTES) as u64;
        if looked_at == SAMPLES { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    // A member of a sorted set has two records of about this length.
    let records = if kind == Kind::SortedSet { 2 } else { 1 };
    let average = records * bytes / looked_at.max(1);
    Ok((key.len() + KEY_OVERHEAD_BYTES) as u64 + average * collection.len())
}

/// The fields of Redis that can be answered here. `peak` and `total` are the pool's.
fn memory_stats(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let pool = ctx.keys.pool().stats();
    let used = pool.used_bytes();
    ctx.state.note_used(used);
    let keys = (0..DATABASES).map(|database| ctx.keys.len(database)).sum::<Answer<u64>>()?;
    let peak = ctx.state.used_bytes_peak;
    let mut reply = ctx.out.write();
    reply.map(6);
    for (name, number) in [
        ("peak.allocated", peak),
        ("total.allocated", used),
        ("clients.normal", ctx.clients.memory_bytes() as u64),
        ("keys.count", keys),
        ("keys.bytes-per-key", used.checked_div(keys).unwrap_or(0)),
    ] {
        reply.bulk(name);
        reply.integer(number as i64);
    }
    reply.bulk("peak.percentage");
    reply.double(used as f64 * 100.0 / peak.max(1) as f64);
    Ok(())
}

fn memory_doctor(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let pool = ctx.keys.pool().stats();
    let used = pool.used_bytes();
    let full =
        if ctx.state.is_full() { "It found no space for the last write that needed some. " } else { "" };
    let share = used as f64 * 100.0 / pool.max_bytes.max(1) as f64;
    let clients = ctx.clients.memory_bytes();
    let text = format!(
        "{full}The pool uses {used} of the {} bytes that it may have ({share:.1}%). Clients have {clients} bytes of memory.\n",
        pool.max_bytes
    );
    ctx.out.write().verbatim(*b"txt", text);
    Ok(())
}

fn memory_malloc_stats(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    ctx.out.bulk(b"Stats not supported for the current allocator")
}

fn memory_purge(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    ctx.state.compactor.ask(ctx.state.now);
    ctx.out.write().ok();
    Ok(())
}

fn object_help(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let lines = [
        "ENCODING <key>",
        "    What Redis would call the encoding of the value.",
        "FREQ <key>",
        "    Not tracked.",
        "IDLETIME <key>",
        "    Not tracked.",
        "REFCOUNT <key>",
        "    Always 1.",
    ];
    write_help(&mut ctx.out, "object", &lines);
    Ok(())
}

fn memory_help(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let lines = [
        "DOCTOR",
        "    How full the pool is, in words.",
        "MALLOC-STATS",
        "    Not supported.",
        "PURGE",
        "    Begin to give space between records back, which the server also does by itself.",
        "STATS",
        "    What memory is used for.",
        "USAGE <key> [SAMPLES <count>]",
        "    An estimate of the bytes that the key takes in the pool.",
    ];
    write_help(&mut ctx.out, "memory", &lines);
    Ok(())
}
