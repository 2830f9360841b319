//! Conversion of the buckets and entries of hash maps.

use crate::Persist;
use crate::collections::MapKey;
use crate::collections::hash::node::{
    Bucket, BucketFields, Entry, EntryFields, Slots, first_slot, present, with_tag,
};
use crate::error::Result;
use crate::migrate::version::Migrate;
use crate::objects::brand::Brand;
use crate::objects::place::{Obj, Ref};
use crate::objects::slots::PRc;
use crate::objects::value_buffer::ValueBuffer;
use crate::tx::Tx;

/// Gives a blank entry a key and a value.
fn convert<'t, B: Brand, K: MapKey, Old: Persist, New: Migrate<Old>>(
    tx: &mut Tx<'t, B>,
    old: Ref<'t, B, Entry<K, Old>>,
    new: Ref<'t, B, Entry<K, New>>,
) -> Result<()> {
    let value = New::migrate(tx, old.value())?;
    tx.carry(old.key(), new.key())?;
    tx.put(new.value(), value)?;
    New::link(tx, old.value(), new.value())
}

/// The new version of an entry that is an object.
pub(crate) fn convert_entry<'t, B: Brand, K: MapKey, Old: Persist, New: Migrate<Old>>(
    tx: &mut Tx<'t, B>,
    old: Ref<'t, B, Entry<K, Old>>,
) -> Result<Obj<'t, B, Entry<K, New>>> {
    let new = tx.alloc_image::<Entry<K, New>>(ValueBuffer::<Entry<K, New>>::new().zeroed().words())?;
    convert(tx, old, *new)?;
    Ok(new)
}

/// Fills a new bucket with the new versions of the entries in an old one. If fewer of them fit, further new
/// buckets follow it. The rest of the old list follows these.
pub(crate) fn convert_bucket<'t, B: Brand, K: MapKey, Old: Persist, New: Migrate<Old>>(
    tx: &mut Tx<'t, B>,
    old: Ref<'t, B, Bucket<K, Old>>,
    new: Ref<'t, B, Bucket<K, New>>,
) -> Result<()> {
    tx.carry::<PRc<Bucket<K, Old>>, PRc<Bucket<K, New>>>(old.next(), new.next())?;
    let tags = tx.get(old.tags())?;
    let (mut to, mut free, mut new_tags) = (new, 0, 0);
    let mut left = present::<K, Old>(tags);
    while left != 0 {
        let slot = first_slot(left);
        left &= left - 1;
        if free == Slots::<K, New>::COUNT {
            let more: Obj<'t, B, Bucket<K, New>> = tx.alloc(Bucket::empty())?;
            tx.link_before(new.next(), more, more.next())?;
            (to, free, new_tags) = (*more, 0, 0);
        }
        match (Slots::<K, Old>::ARE_INLINE, Slots::<K, New>::ARE_INLINE) {
            // The entry has a new version of its own.
            (false, false) => tx.carry(old.lead(slot), to.lead(free))?,
            (_, true) => convert(tx, old.entry(tx, slot)?, to.inline_entry(free))?,
            (true, false) => {
                let entry = convert_entry(tx, old.inline_entry(slot))?;
                tx.link(to.lead(free), entry)?;
            }
        }
        new_tags = with_tag(new_tags, free, tags >> (8 * slot) & 0xFF);
        tx.set(to.tags(), new_tags)?;
        free += 1;
    }
    Ok(())
}
