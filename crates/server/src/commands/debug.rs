//! The subcommands of DEBUG that test suites use, but for SLEEP.

use std::ops::{Bound, ControlFlow};

use tembo_wire::Request;

use super::args::is;
use super::context::Context;
use super::object::{encoding_name, large_bytes};
use crate::fault::{Answer, NO_SUCH_KEY};
use crate::keyspace::Keyspace;
use crate::keyspace::collection::ordered::Score;
use crate::keyspace::format::{DATABASES, Kind, Meta};

pub(super) const HELP: &[&str] = &[
    "CHANGE-REPL-ID",
    "    Accepted, without effect: the replication id stays.",
    "DIGEST",
    "    A digest of all databases, which is the same for the same keys, values and deadlines.",
    "DIGEST-VALUE <key> [<key> ...]",
    "    A digest of each value.",
    "OBJECT <key>",
    "    How the value is kept.",
    "RELOAD [option ...]",
    "    Accepted; every write is in the pool.",
    "SET-ACTIVE-EXPIRE <0|1>",
    "    Whether expired keys are removed without being asked for.",
    "SLEEP <seconds>",
    "    Stop the server for this time. Decimals allowed.",
];

/// Runs the request if it is one of these subcommands. Returns whether it was.
pub(super) fn run(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer<bool> {
    let (word, count) = (&request[1], request.arg_count());
    match word {
        _ if is(word, "CHANGE-REPL-ID") && count == 2 => ctx.out.write().ok(),
        _ if is(word, "RELOAD") => ctx.out.write().ok(),
        _ if is(word, "SET-ACTIVE-EXPIRE") && count == 3 => {
            ctx.state.keeps_expired = &request[2] == b"0";
            ctx.out.write().ok();
        }
        _ if is(word, "OBJECT") && count == 3 => object(ctx, &request[2])?,
        _ if is(word, "DIGEST") && count == 2 => digest(ctx)?,
        _ if is(word, "DIGEST-VALUE") && count > 2 => {
            ctx.out.write().array(count - 2);
            for key in request.args().skip(2) {
                let value = value_digest(ctx.keys, ctx.session.database, key)?;
                ctx.out.write().simple(shown(value.map_or(0, |value| value.digest)));
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn object(ctx: &mut Context<'_, '_>, key: &[u8]) -> Answer {
    let stored = ctx.keys.find(ctx.session.database, key)?.live.ok_or(NO_SUCH_KEY)?;
    let (encoding, Meta { kind, large, .. }) = (encoding_name(&stored), stored.meta);
    let bytes = match large {
        true => large_bytes(ctx, key, kind)?,
        false => stored.payload.len() as u64,
    };
    let text = format!(
        "Value at:0x0 refcount:1 encoding:{encoding} serializedlength:{bytes} lru:0 lru_seconds_idle:0"
    );
    ctx.out.write().simple(text);
    Ok(())
}

/// FNV-1a with 128 bits. It is for comparing, not for secrets.
fn mix(digest: u128, bytes: &[u8]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(digest ^ OFFSET, |digest, byte| (digest ^ u128::from(*byte)).wrapping_mul(PRIME))
}

fn shown(digest: u128) -> String {
    format!("{digest:040x}")
}

struct ValueDigest {
    deadline: Option<u64>,
    digest: u128,
}

/// The digest of an existing value. The way in which the elements are kept does not matter; their order
/// matters in lists only.
fn value_digest(keys: &mut Keyspace<'_>, database: usize, key: &[u8]) -> Answer<Option<ValueDigest>> {
    let Some(stored) = keys.find(database, key)?.live else {
        return Ok(None);
    };
    let Meta { deadline, kind, .. } = stored.meta;
    if kind == Kind::String {
        return Ok(Some(ValueDigest { deadline, digest: mix(0, stored.payload) }));
    }
    let collection = keys.collection(database, key, kind)?;
    let (mut elements, mut outcome) = (0, Ok(()));
    keys.walk_elements(&collection, 0, |_, field, value| {
        // A score has more than one form.
        let score = (kind == Kind::SortedSet).then(|| Score::read(value)).transpose();
        let score = match score {
            Ok(score) => score.map(Score::to_bytes),
            Err(malformed) => {
                outcome = Err(malformed);
                return ControlFlow::Break(());
            }
        };
        let value = score.as_ref().map_or(value, |score| &score[..]);
        let parts = [&(field.len() as u64).to_le_bytes()[..], field, value];
        let seed = if kind == Kind::List { elements } else { 0 };
        let element = parts.into_iter().fold(seed, mix);
        elements = if kind == Kind::List { element } else { elements ^ element };
        ControlFlow::Continue(())
    })?;
    outcome?;
    let digest = mix(mix(0, kind.name().as_bytes()), &elements.to_le_bytes());
    Ok(Some(ValueDigest { deadline, digest }))
}

/// The exclusive or over all keys, so that their order does not matter, as in Redis.
fn digest(ctx: &mut Context<'_, '_>) -> Answer {
    // All walks come before the first look-up, which begins a batch.
    let mut keys = Vec::new();
    for database in 0..DATABASES {
        ctx.keys.walk(database, Bound::Unbounded, |place, kind| {
            if kind.is_some() {
                keys.push((database, ctx.keys.layout().key(place).to_vec()));
            }
            ControlFlow::Continue(())
        })?;
    }
    let mut all = 0;
    for (database, key) in keys {
        if let Some(value) = value_digest(ctx.keys, database, &key)? {
            let deadline = value.deadline.unwrap_or(0).to_le_bytes();
            let prefix = [&(database as u32).to_le_bytes()[..], &(key.len() as u64).to_le_bytes()].concat();
            let parts = [&prefix, &key, &deadline[..], &value.digest.to_le_bytes()];
            all ^= parts.into_iter().fold(0, mix);
        }
    }
    ctx.out.write().simple(shown(all));
    Ok(())
}
