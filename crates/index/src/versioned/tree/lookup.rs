//! Lookups in one version (algorithm 1 of the paper).

use super::super::bytes::VersionedBytes;
use super::super::layout::Form;
use super::super::node::Record;
use super::super::view::View;
use super::draft::bits;
use super::layout::{Field, MAX_HEIGHT, SLOTS};
use super::node::Node;
use crate::error::{Result, corrupt};
use crate::key_prefix::fingerprint;
use crate::wbtree::node::matches;

/// The leaf that a search looks for.
#[derive(Clone, Copy)]
pub(crate) enum Goal<'k> {
    /// The leaf with the least keys.
    First,
    /// The leaf to which a key belongs.
    At(&'k [u8]),
    /// The leaf to which the keys just below a key belong.
    Before(&'k [u8]),
    /// The leaf with the greatest keys.
    Last,
}

/// The value of a key.
#[inline]
pub(crate) fn get<'m>(view: View<'m>, key: &[u8]) -> Result<Option<VersionedBytes<'m>>> {
    let Some(leaf) = view.leaf(Goal::At(key))? else { return Ok(None) };
    for slot in hits(&view, &leaf, key)? {
        if let Some(value) = value_if(&view, &leaf, slot, key)? {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

/// The places of a leaf whose entries are in the version and have the hash byte and the 8 bytes of a key.
#[inline(always)]
pub(super) fn hits(view: &View<'_>, leaf: &Node<'_>, key: &[u8]) -> Result<impl Iterator<Item = usize>> {
    let hits = matches(leaf.fingerprints(), fingerprint(key)) & ((1 << SLOTS) - 1);
    let prefix = if hits == 0 { 0 } else { leaf.prefix_of(key)? };
    let version = view.version;
    Ok(bits(hits)
        .filter(move |slot| leaf.is_in(*slot, version) && leaf.leaf_field(*slot, Field::Key) == prefix))
}

impl<'m> View<'m> {
    /// The leaf that is looked for; `None` in a tree that never had any.
    #[inline]
    pub(crate) fn leaf(&self, goal: Goal<'_>) -> Result<Option<Node<'m>>> {
        if self.root.is_empty() {
            return Ok(None);
        }
        let mut level = self.root_level()?;
        let mut node = Node::open(self.region, self.root.node(), level)?;
        while level > 0 {
            let child = choose(&node, self.version, goal)?;
            level -= 1;
            let off = node.field(child, Field::Value);
            Node::prefetch(self.region, off);
            node = Node::open(self.region, off, level)?;
        }
        Ok(Some(node))
    }

    pub(crate) fn root_level(&self) -> Result<usize> {
        let level = self.root.level();
        if level > MAX_HEIGHT {
            return Err(corrupt("the root of a tree", self.root.node(), "a level up to 32", level));
        }
        Ok(level)
    }
}

/// The value of a slot whose 8 bytes are those of the key, if the whole key is.
#[inline]
fn value_if<'m>(
    view: &View<'m>,
    leaf: &Node<'m>,
    slot: usize,
    key: &[u8],
) -> Result<Option<VersionedBytes<'m>>> {
    Ok(match leaf.form(slot)? {
        Form::Block => {
            let record = Record::read_with_hint(view, leaf.field(slot, Field::Value))?;
            (record.key == key).then(|| VersionedBytes::media(record.value))
        }
        Form::Inline { key_bytes, value_bytes } => {
            // The padding is equal too, so the lengths decide.
            if key.len() != leaf.shared() + usize::from(key_bytes) {
                return Ok(None);
            }
            Some(VersionedBytes::media(leaf.inline_value(slot, value_bytes)?))
        }
    })
}

/// The entry of an inner node that leads on: of those in the version, the one with the greatest lower fence
/// not past the goal.
#[inline]
pub(crate) fn choose(node: &Node<'_>, version: u64, goal: Goal<'_>) -> Result<usize> {
    let wanted = match goal {
        Goal::At(key) | Goal::Before(key) => node.prefix_of(key)?,
        Goal::First | Goal::Last => u64::MAX,
    };
    if let (Goal::At(_), Some((key, slot))) = (goal, node.greatest_up_to(wanted, version))
        && key < wanted
    {
        return Ok(slot);
    }
    choose_exactly(node, version, goal, wanted)
}

/// As [`choose`], if whole keys may have to be compared.
#[inline(never)]
fn choose_exactly(node: &Node<'_>, version: u64, goal: Goal<'_>, wanted: u64) -> Result<usize> {
    let is_first = matches!(goal, Goal::First);
    let mut best: Option<(u64, usize)> = None;
    for slot in 0..SLOTS {
        let key = node.field(slot, Field::Key);
        let is_worse = best.is_some_and(|(best, _)| if is_first { key > best } else { key < best });
        if key > wanted || is_worse || !node.is_in(slot, version) {
            continue;
        }
        if key == wanted && is_past(node, slot, goal)? {
            continue;
        }
        if let Some((best_key, best_slot)) = best
            && best_key == key
            && (node.child_low(slot)? < node.child_low(best_slot)?) != is_first
        {
            continue;
        }
        best = Some((key, slot));
    }
    let (_, slot) = best.ok_or_else(|| {
        corrupt("an inner node", node.off, "a child for each of its keys", "none for one that is looked for")
    })?;
    Ok(slot)
}

/// Whether a child whose 8 bytes are those of the goal lies past it.
#[cold]
fn is_past(node: &Node<'_>, slot: usize, goal: Goal<'_>) -> Result<bool> {
    Ok(match goal {
        Goal::At(key) => node.child_low(slot)? > key,
        Goal::Before(key) => node.child_low(slot)? >= key,
        Goal::First | Goal::Last => false,
    })
}
