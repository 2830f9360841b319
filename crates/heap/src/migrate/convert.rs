//! Conversions of single objects and arrays.

use crate::collections::MapKey;
use crate::collections::hash::node::{Bucket, Entry};
use crate::error::{Result, corrupt};
use crate::migrate::buckets::{convert_bucket, convert_entry};
use crate::migrate::version::Migrate;
use crate::objects::brand::Brand;
use crate::objects::persist::{Persist, TargetFn};
use crate::objects::place::Arr;
use crate::objects::value_buffer::ValueBuffer;
use crate::tx::Tx;

/// Makes a new object of an old one, or a new array of an old one with this many elements.
pub(super) type Convert = for<'t> fn(&mut Tx<'t, Moving>, u64, Option<u64>) -> Result<u64>;

pub(super) struct Step {
    /// Hashes of the layouts.
    pub old: u64,
    pub new: u64,
    pub describe: TargetFn,
    /// `None` for objects that die when the objects that lead to them are converted.
    pub convert: Option<Convert>,
}

/// The brand of heaps that are migrated.
#[derive(Debug)]
pub(super) enum Moving {}

impl Brand for Moving {}

pub(super) fn convert<'t, Old: Persist, New: Migrate<Old>>(
    tx: &mut Tx<'t, Moving>,
    object: u64,
    len: Option<u64>,
) -> Result<u64> {
    let Some(len) = len else {
        let old = tx.object::<Old>(object);
        let value = New::migrate(tx, *old)?;
        let new = tx.alloc(value)?;
        New::link(tx, *old, *new)?;
        return Ok(new.object_off());
    };
    let old = Arr::<Moving, Old>::new(object, len, false);
    let new = tx.alloc_blanks::<New>(old.len())?;
    for i in 0..old.len() {
        match New::migrate(tx, old.at(i)) {
            Ok(value) => {
                tx.put(new.at(i), value)?;
                New::link(tx, old.at(i), new.at(i))?;
            }
            // A vector has room for more values, which need not hold any.
            Err(e) if e.is_corrupt() => {}
            Err(e) => return Err(e),
        }
    }
    Ok(new.off)
}

pub(super) fn convert_buckets<'t, K: MapKey, Old: Persist, New: Migrate<Old>>(
    tx: &mut Tx<'t, Moving>,
    object: u64,
    len: Option<u64>,
) -> Result<u64> {
    let Some(len) = len else {
        let old = tx.object::<Bucket<K, Old>>(object);
        let new = tx.alloc_image::<Bucket<K, New>>(ValueBuffer::<Bucket<K, New>>::new().zeroed().words())?;
        convert_bucket(tx, *old, *new)?;
        return Ok(new.object_off());
    };
    let old = Arr::<Moving, Bucket<K, Old>>::new(object, len, false);
    let new = tx.alloc_blanks::<Bucket<K, New>>(old.len())?;
    (0..old.len()).try_for_each(|i| convert_bucket(tx, old.at(i), new.at(i)))?;
    Ok(new.off)
}

pub(super) fn convert_entries<'t, K: MapKey, Old: Persist, New: Migrate<Old>>(
    tx: &mut Tx<'t, Moving>,
    object: u64,
    len: Option<u64>,
) -> Result<u64> {
    if len.is_some() {
        return Err(corrupt("a hash map's entry", object, "an object", "an array"));
    }
    let old = tx.object::<Entry<K, Old>>(object);
    Ok(convert_entry::<Moving, K, Old, New>(tx, *old)?.object_off())
}
