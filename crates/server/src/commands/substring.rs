//! Parts of strings: APPEND and the RANGE commands.

use tembo_wire::Request;

use super::args::integer;
use super::context::{Context, Handler};
use crate::fault::{Answer, Fault, STRING_TOO_LONG};
use crate::keyspace::events::class;
use crate::keyspace::format::{Meta, Stored};

pub(super) const HANDLERS: &[(&str, Handler)] =
    &[("append", append), ("getrange", getrange), ("substr", getrange), ("setrange", setrange)];

fn append(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (database, key, tail) = (ctx.database(), &request[1], &request[2]);
    let found = ctx.keys.find(database, key)?;
    let replaced = found.old;
    let Some(stored) = found.live.map(Stored::string).transpose()? else {
        ctx.keys.put(database, key, Meta::default(), replaced, &[tail])?;
        ctx.keys.notify(class::STRING, "append", database, key);
        ctx.out.write().integer(tail.len() as i64);
        return Ok(());
    };
    let len = stored.payload.len() + tail.len();
    if len > ctx.state.config.limits.max_bulk_bytes {
        return Err(STRING_TOO_LONG);
    }
    let meta = Meta { modified: true, ..stored.meta };
    let head = stored.payload.to_vec();
    ctx.keys.put(database, key, meta, replaced, &[&head, tail])?;
    ctx.keys.notify(class::STRING, "append", database, key);
    ctx.out.write().integer(len as i64);
    Ok(())
}

fn getrange(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (start, end) = (integer(&request[2])?, integer(&request[3])?);
    let stored = ctx.keys.read_string(ctx.session.database, &request[1])?;
    let payload = stored.map_or(&[][..], |stored| stored.payload);
    ctx.out.bulk(part(payload, start, end))
}

/// The bytes from `start` to `end`, both included, counted from the end if negative.
fn part(bytes: &[u8], start: i64, end: i64) -> &[u8] {
    let len = bytes.len() as i64;
    if start < 0 && end < 0 && start > end {
        return &[];
    }
    let from_front = |at: i64| if at < 0 { (len.saturating_add(at)).max(0) } else { at };
    let (start, end) = (from_front(start), from_front(end).min(len - 1));
    if start > end { &[] } else { &bytes[start as usize..=end as usize] }
}

fn setrange(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (database, key, value) = (ctx.database(), &request[1], &request[3]);
    let offset = integer(&request[2])?;
    let offset = usize::try_from(offset).map_err(|_| Fault::Error("ERR offset is out of range"))?;
    let found = ctx.keys.find(database, key)?;
    let replaced = found.old;
    let stored = found.live.map(Stored::string).transpose()?;
    let old = stored.map_or(&[][..], |stored| stored.payload);
    if value.is_empty() {
        ctx.out.write().integer(old.len() as i64);
        return Ok(());
    }
    let end = offset.checked_add(value.len()).filter(|&end| end <= ctx.state.config.limits.max_bulk_bytes);
    let end = end.ok_or(STRING_TOO_LONG)?;
    let meta = Meta { modified: true, ..stored.map(|stored| stored.meta).unwrap_or_default() };
    let old = old.to_vec();
    let head = &old[..offset.min(old.len())];
    let gap = vec![0; offset - head.len()];
    let tail = old.get(end..).unwrap_or_default();
    ctx.keys.put(database, key, meta, replaced, &[head, &gap, value, tail])?;
    ctx.keys.notify(class::STRING, "setrange", database, key);
    ctx.out.write().integer(end.max(old.len()) as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn ranges_count_from_either_end_and_are_clipped() {
        let bytes = b"This is a string";
        for (start, end, expected) in [
            (0, 3, &b"This"[..]),
            (-3, -1, b"ing"),
            (0, -1, b"This is a string"),
            (10, 100, b"string"),
            (5, 3, b""),
            (-1, -5, b""),
            (-100, 3, b"This"),
            (-100, -100, b"T"),
            (16, 20, b""),
            (i64::MIN, i64::MAX, b"This is a string"),
        ] {
            assert_eq!(part(bytes, start, end), expected, "{start} {end}");
        }
        assert_eq!(part(b"", 0, -1), b"");
    }
}
