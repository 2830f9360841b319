//! Ranges of the tree, and paths through it.

use super::{DEPTH, EntryPrivateFields, Node, PMap, Path};
use crate::Persist;
use crate::collections::keys::OrdKey;
use crate::error::Result;
use crate::objects::brand::Brand;
use crate::objects::place::Ref;
use crate::tx::{MapWatch, ReadTx};
use std::cmp::Ordering;
use std::ops::{Bound, RangeBounds};

/// A double-ended iterator over the entries of a [`PMap`] in a range, in order.
pub struct Range<'x, 't, B: Brand, K: OrdKey, V: Persist> {
    tx: &'x ReadTx<'t, B>,
    /// The offset of the map's root.
    root: u64,
    watch: MapWatch,
    /// The paths to the first entry and to the last, unless none is left.
    ends: Option<(Path<'t, B, K, V>, Path<'t, B, K, V>)>,
}

impl<B: Brand, K: OrdKey, V: Persist> std::fmt::Debug for Range<'_, '_, B, K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Range").field("is_empty", &self.ends.is_none()).finish_non_exhaustive()
    }
}

type Item<'t, B, K, V> = (<K as super::super::MapKey>::Owned, Ref<'t, B, V>);

impl<'x, 't, B: Brand, K: OrdKey, V: Persist> Range<'x, 't, B, K, V> {
    fn new(
        map: Ref<'t, B, PMap<K, V>>,
        tx: &'x ReadTx<'t, B>,
        start: Bound<&K::Query>,
        end: Bound<&K::Query>,
    ) -> Result<Self> {
        let watch = MapWatch::begin(tx);
        let Some(root) = map.root(tx)? else { return Ok(Range { tx, root: 0, watch, ends: None }) };
        let first = match start {
            Bound::Unbounded => down_first(tx, Path::new(), root)?,
            Bound::Included(key) | Bound::Excluded(key) => {
                let (mut path, is_there) = map.path(tx, root, key)?;
                if !is_there {
                    skip_ends(tx, &mut path)?;
                } else if matches!(start, Bound::Excluded(_)) {
                    forward(tx, &mut path)?;
                }
                path
            }
        };
        let last = match end {
            Bound::Unbounded => down_last(tx, Path::new(), root)?,
            Bound::Included(key) | Bound::Excluded(key) => {
                let (mut path, is_there) = map.path(tx, root, key)?;
                if !is_there || matches!(end, Bound::Excluded(_)) {
                    back(tx, &mut path)?;
                }
                path
            }
        };
        let has_any = !first.is_empty() && !last.is_empty() && order(&first, &last) != Ordering::Greater;
        Ok(Range { tx, root: root.own.off, watch, ends: has_any.then_some((first, last)) })
    }

    fn step(&mut self, is_forward: bool) -> Result<Option<Item<'t, B, K, V>>> {
        // An error ends the range.
        let Some((mut first, mut last)) = self.ends.take() else { return Ok(None) };
        self.watch.check(self.tx, self.root)?;
        let end = if is_forward { &first } else { &last };
        let Some(&(node, at)) = end.last() else { return Ok(None) };
        let entry = node.entry_at(self.tx, at)?;
        let item = (K::get(self.tx, entry.key())?, entry.value());
        if order(&first, &last) != Ordering::Equal {
            if is_forward {
                forward(self.tx, &mut first)?;
            } else {
                back(self.tx, &mut last)?;
            }
            self.ends = Some((first, last));
        }
        Ok(Some(item))
    }
}

impl<'t, B: Brand, K: OrdKey, V: Persist> Iterator for Range<'_, 't, B, K, V> {
    type Item = Result<Item<'t, B, K, V>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(true).transpose()
    }
}

impl<B: Brand, K: OrdKey, V: Persist> DoubleEndedIterator for Range<'_, '_, B, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(false).transpose()
    }
}

/// The order of two entries. A child precedes the entry with its number.
fn order<B: Brand, K: OrdKey, V: Persist>(a: &Path<'_, B, K, V>, b: &Path<'_, B, K, V>) -> Ordering {
    let steps = a.iter().zip(b).map(|((_, a), (_, b))| a.cmp(b));
    steps.into_iter().find(|order| order.is_ne()).unwrap_or_else(|| b.len().cmp(&a.len()))
}

/// Descends to the first entry below a node.
fn down_first<'t, B: Brand, K: OrdKey, V: Persist>(
    tx: &ReadTx<'t, B>,
    mut path: Path<'t, B, K, V>,
    node: Node<'t, B, K, V>,
) -> Result<Path<'t, B, K, V>> {
    let mut next = Some(node);
    while let Some(node) = next.filter(|_| path.len() < DEPTH) {
        path.push((node, 0));
        next = node.child(tx, 0)?;
    }
    Ok(path)
}

/// Descends to the last entry below a node.
fn down_last<'t, B: Brand, K: OrdKey, V: Persist>(
    tx: &ReadTx<'t, B>,
    mut path: Path<'t, B, K, V>,
    node: Node<'t, B, K, V>,
) -> Result<Path<'t, B, K, V>> {
    let mut next = Some(node);
    while let Some(node) = next.filter(|_| path.len() < DEPTH) {
        let entries = node.order(tx)?.len();
        path.push((node, entries));
        next = node.child(tx, entries)?;
    }
    step_back(&mut path);
    Ok(path)
}

/// Goes from a gap between two entries to the next entry: upwards, until a child has an entry after it.
fn skip_ends<'t, B: Brand, K: OrdKey, V: Persist>(
    tx: &ReadTx<'t, B>,
    path: &mut Path<'t, B, K, V>,
) -> Result<()> {
    while let Some(&(node, at)) = path.last() {
        if at < node.order(tx)?.len() {
            break;
        }
        path.pop();
    }
    Ok(())
}

/// Goes from a gap between two entries to the previous entry.
fn step_back<B: Brand, K: OrdKey, V: Persist>(path: &mut Path<'_, B, K, V>) {
    while let Some((_, at)) = path.last_mut() {
        if *at > 0 {
            *at -= 1;
            break;
        }
        path.pop();
    }
}

/// Goes from an entry to the next.
fn forward<'t, B: Brand, K: OrdKey, V: Persist>(
    tx: &ReadTx<'t, B>,
    path: &mut Path<'t, B, K, V>,
) -> Result<()> {
    let Some((node, at)) = path.last_mut() else { return Ok(()) };
    *at += 1;
    match node.child(tx, *at)? {
        Some(below) => *path = down_first(tx, std::mem::take(path), below)?,
        None => skip_ends(tx, path)?,
    }
    Ok(())
}

/// Goes from an entry, or from a gap in a leaf, to the previous entry.
fn back<'t, B: Brand, K: OrdKey, V: Persist>(tx: &ReadTx<'t, B>, path: &mut Path<'t, B, K, V>) -> Result<()> {
    let Some(&(node, at)) = path.last() else { return Ok(()) };
    match node.child(tx, at)? {
        Some(below) => *path = down_last(tx, std::mem::take(path), below)?,
        None => step_back(path),
    }
    Ok(())
}

impl<'t, B: Brand, K: OrdKey, V: Persist> Ref<'t, B, PMap<K, V>> {
    /// All entries in order: copies of the keys, and the places of the values.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len), also for each step.
    pub fn iter<'x>(self, tx: &'x ReadTx<'t, B>) -> Result<Range<'x, 't, B, K, V>> {
        self.range::<(Bound<&K::Query>, Bound<&K::Query>)>(tx, (Bound::Unbounded, Bound::Unbounded))
    }

    /// The entries whose keys are in a range, in order, from both ends. For keys without a size, such as
    /// `str`, the range is a pair of [`Bound`]s.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len). Each step may fail in the same way, and also with
    /// [`ErrorKind::MapChanged`](crate::ErrorKind::MapChanged) if a nested transaction has inserted into this
    /// map or removed from it since the last step.
    pub fn range<'x, R: RangeBounds<K::Query>>(
        self,
        tx: &'x ReadTx<'t, B>,
        range: R,
    ) -> Result<Range<'x, 't, B, K, V>> {
        Range::new(self, tx, range.start_bound(), range.end_bound())
    }
}
