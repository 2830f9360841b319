//! Tallies: the number of a map's entries, counted in several lines, so that insertions rarely conflict.

use crate::error::{Result, corrupt};
use crate::objects::brand::Brand;
use crate::objects::place::{Arr, Ref};
use crate::objects::slots::PArr;
use crate::tx::{ReadTx, Tx};
use crate::{Persist, Plain};

/// A part of the number, in a line of its own.
#[derive(Debug, Clone, Copy, Default, Persist, Plain)]
#[persist(crate = crate)]
#[repr(C)]
pub(super) struct Tally {
    /// Insertions minus removals that were counted here.
    pub count: i64,
    /// The progress of growth in this part of a hash map.
    pub grown: u64,
    rest: [u64; 6],
}

impl Tally {
    pub(super) fn new(count: i64) -> Tally {
        Tally { count, grown: 0, rest: [0; 6] }
    }
}

/// The tallies of a map, if it already has tallies.
pub(super) fn tallies<'t, B: Brand>(
    tx: &ReadTx<'t, B>,
    slot: Ref<'t, B, PArr<Tally>>,
) -> Result<Arr<'t, B, Tally>> {
    match tx.array(slot)?.filter(|tallies| tallies.len().is_power_of_two()) {
        Some(tallies) => Ok(tallies),
        None => Err(corrupt("a map", slot.off, "tallies of its entries", "none")),
    }
}

/// The sum of all.
pub(super) fn sum<'t, B: Brand>(tx: &ReadTx<'t, B>, tallies: Arr<'t, B, Tally>) -> Result<i64> {
    (0..tallies.len()).try_fold(0_i64, |sum, i| Ok(sum.wrapping_add(tx.get(tallies.at(i).count())?)))
}

/// Makes `parts` tallies that count `count` together.
pub(super) fn spread<'t, B: Brand>(
    tx: &mut Tx<'t, B>,
    slot: Ref<'t, B, PArr<Tally>>,
    parts: usize,
    count: i64,
) -> Result<Arr<'t, B, Tally>> {
    let each = count / parts as i64;
    let first = count - each * (parts as i64 - 1);
    let tallies = tx.alloc_array(parts, |i| Tally::new(if i == 0 { first } else { each }))?;
    tx.link_array(slot, tallies)?;
    Ok(tallies)
}
