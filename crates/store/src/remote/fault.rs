//! Errors on their way from the owner to a client: those that a program acts upon keep their types.

use super::wire::{Decoded, Malformed, Reader, Writer};
use crate::error::Error;
use std::time::Duration;

pub(super) fn encode(out: &mut Writer, error: &Error) {
    match error {
        Error::Conflict { keyspace, key, by, snapshot } => {
            out.u8(1);
            out.bytes(keyspace.as_bytes());
            out.bytes(key);
            numbers(out, [*by, *snapshot]);
        }
        Error::SnapshotGone { number, current } => tagged(out, 2, [*number, *current]),
        Error::NotRetained { number, keyspace } => {
            tagged(out, 3, [*number]);
            out.bytes(keyspace.as_bytes());
        }
        Error::HistoryFull { kept_bytes, max_bytes } => tagged(out, 4, [*kept_bytes, *max_bytes]),
        Error::TransactionTooLarge { bytes, max_bytes } => tagged(out, 5, [*bytes, *max_bytes]),
        Error::TransactionTooOld { age, max_age } => tagged(out, 6, [nanos(*age), nanos(*max_age)]),
        Error::NoSuchSnapshot { name } => named(out, 7, name),
        Error::SnapshotExists { name } => named(out, 8, name),
        Error::Name { what: "keyspace", bytes, max_bytes } => {
            tagged(out, 9, [*bytes as u64, *max_bytes as u64]);
        }
        Error::Name { what: "snapshot", bytes, max_bytes } => {
            tagged(out, 10, [*bytes as u64, *max_bytes as u64]);
        }
        Error::KeyspaceDropped { name } => named(out, 11, name),
        Error::Index(tembo_index::Error::KeyTooLong { bytes, max_bytes }) => {
            tagged(out, 12, [*bytes, *max_bytes]);
        }
        Error::Index(tembo_index::Error::ValueTooLong { bytes, max_bytes }) => {
            tagged(out, 13, [*bytes, *max_bytes]);
        }
        Error::Refused { why } => named(out, 14, why),
        Error::FrameTooLarge { bytes, max_bytes } => tagged(out, 15, [*bytes, *max_bytes]),
        Error::NoSuchStore { name } => named(out, 16, name),
        Error::BackupOrder { why } => named(out, 17, why),
        Error::Remote { message, is_full } => {
            named(out, 0, message);
            out.flag(*is_full);
        }
        other => {
            named(out, 0, &other.to_string());
            out.flag(other.is_full());
        }
    }
}

pub(super) fn decode(from: &mut Reader<'_>) -> Decoded<Error> {
    let text = |from: &mut Reader<'_>| from.text().map(str::to_owned);
    let length = |from: &mut Reader<'_>| Ok(usize::try_from(from.u64()?).unwrap_or(usize::MAX));
    Ok(match from.u8()? {
        0 => Error::Remote { message: text(from)?, is_full: from.flag()? },
        1 => Error::Conflict {
            keyspace: text(from)?,
            key: from.bytes()?.to_vec(),
            by: from.u64()?,
            snapshot: from.u64()?,
        },
        2 => Error::SnapshotGone { number: from.u64()?, current: from.u64()? },
        3 => Error::NotRetained { number: from.u64()?, keyspace: text(from)? },
        4 => Error::HistoryFull { kept_bytes: from.u64()?, max_bytes: from.u64()? },
        5 => Error::TransactionTooLarge { bytes: from.u64()?, max_bytes: from.u64()? },
        6 => Error::TransactionTooOld {
            age: Duration::from_nanos(from.u64()?),
            max_age: Duration::from_nanos(from.u64()?),
        },
        7 => Error::NoSuchSnapshot { name: text(from)? },
        8 => Error::SnapshotExists { name: text(from)? },
        9 => Error::Name { what: "keyspace", bytes: length(from)?, max_bytes: length(from)? },
        10 => Error::Name { what: "snapshot", bytes: length(from)?, max_bytes: length(from)? },
        11 => Error::KeyspaceDropped { name: text(from)? },
        12 => {
            let (bytes, max_bytes) = (from.u64()?, from.u64()?);
            tembo_index::Error::KeyTooLong { bytes, max_bytes }.into()
        }
        13 => {
            let (bytes, max_bytes) = (from.u64()?, from.u64()?);
            tembo_index::Error::ValueTooLong { bytes, max_bytes }.into()
        }
        14 => Error::Refused { why: text(from)? },
        15 => Error::FrameTooLarge { bytes: from.u64()?, max_bytes: from.u64()? },
        16 => Error::NoSuchStore { name: text(from)? },
        17 => Error::BackupOrder { why: text(from)? },
        _ => return Err(Malformed("an error of an unknown kind")),
    })
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn numbers<const N: usize>(out: &mut Writer, numbers: [u64; N]) {
    numbers.into_iter().for_each(|number| out.u64(number));
}

fn tagged<const N: usize>(out: &mut Writer, tag: u8, values: [u64; N]) {
    out.u8(tag);
    numbers(out, values);
}

fn named(out: &mut Writer, tag: u8, name: &str) {
    out.u8(tag);
    out.bytes(name.as_bytes());
}
