//! Random elements in replies: what HRANDFIELD, SRANDMEMBER and ZRANDMEMBER have in common.

use super::args::integer;
use super::context::{Context, Out};
use crate::fault::{Answer, Fault};
use crate::keyspace::collection::value::Collection;

/// Elements of a collection that are copied once, so that each draw is one step.
const COPIED_MAX: u64 = 128;

/// Reads the number of elements that are wanted; a negative one is of draws that may repeat.
pub(super) fn signed_count(arg: &[u8]) -> Answer<i64> {
    let text = "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";
    Some(integer(arg)?).filter(|&count| count != i64::MIN).ok_or(Fault::Error(text))
}

/// Writes this many random elements, or draws.
pub(super) fn answer(
    ctx: &mut Context<'_, '_>,
    collection: Option<&Collection>,
    count: i64,
    begin: impl Fn(&mut Out<'_>, usize),
    write: impl Fn(&mut Out<'_>, (&[u8], &[u8])) -> Answer,
) -> Answer {
    let Some(collection) = collection.filter(|_| count != 0) else {
        begin(&mut ctx.out, 0);
        return Ok(());
    };
    let random = &mut ctx.state.random;
    let draws = count.unsigned_abs();
    if count > 0 {
        let sample = ctx.keys.sample(collection, draws, random)?;
        begin(&mut ctx.out, sample.len());
        return sample.iter().try_for_each(|(field, value)| write(&mut ctx.out, (field, value)));
    }
    begin(&mut ctx.out, draws as usize);
    if collection.len() <= COPIED_MAX {
        let all = ctx.keys.sample(collection, u64::MAX, random)?;
        for _ in 0..draws {
            let (field, value) = &all[random.below(all.len().max(1) as u64) as usize];
            write(&mut ctx.out, (field, value))?;
        }
        return Ok(());
    }
    for _ in 0..draws {
        if let Some((field, value)) = ctx.keys.draw_element(collection, random)? {
            write(&mut ctx.out, (&field, &value))?;
        }
    }
    Ok(())
}
