//! The walk over all objects of a heap.

use crate::check::format::{find, is_migrating};
use crate::check::summary::{Circle, Summary, TypeUsage};
use crate::counts::resolve::is_unique;
use crate::error::{Error, ErrorKind, Result, corrupt};
use crate::handles::for_each_slot;
use crate::layout::{
    Counts, Kind, LINE, OBJECT_HEAD_BYTES, PmDying, PmHeap, PmOrphans, array_head_bytes, block_of,
    counts_off, is_tagged, kind_off, tagged_object, value_off,
};
use crate::objects::type_info::{PointerKind, TypeInfo};
use crate::objects::types::{Types, for_each_pointer};
use std::collections::HashMap;
use tembo_pmem::{Region, offset_of};
use tembo_pool::{Marks, Pool};

/// The findings about an object so far.
#[derive(Debug, Default)]
struct Seen {
    strong: u64,
    weak: u64,
    /// Whether its pointers were followed.
    is_walked: bool,
    is_orphan: bool,
    is_listed: bool,
    /// Whether it is *apart*: neither the root nor an orphan nor a dying object leads to it.
    is_apart: bool,
}

struct Walk<'w> {
    /// For each object apart, another one with a strong pointer to it.
    before: HashMap<u64, u64, foldhash::fast::FixedState>,
    region: &'w Region,
    types: Types,
    seen: HashMap<u64, Seen, foldhash::fast::FixedState>,
    next: Vec<u64>,
    root: u64,
    /// Whether a migration is unfinished.
    is_migrating: bool,
    /// Whether the pool has blocks of unknown structures.
    beside_unknown: bool,
}

/// Checks the heap of a pool: every pointer leads to an object of its type, every count is exact, and every
/// object is reached. It marks each block of the heap in `marks`. The memory grows with the number of
/// objects.
///
/// # Errors
///
/// [`ErrorKind::NotAHeap`], and corruption with the first violation found.
pub fn check(pool: &Pool, marks: &mut Marks) -> Result<Summary> {
    walk(pool, marks, false).map(|(_, summary)| summary)
}

/// As [`check`], in a pool with other structures whose blocks are unknown. It cannot distinguish objects in
/// circles from those blocks, so it does not look for them, and accepts counts that are higher than the
/// number of pointers found.
///
/// # Errors
///
/// As for [`check`].
pub fn check_beside_unknown(pool: &Pool, marks: &mut Marks) -> Result<Summary> {
    walk(pool, marks, true).map(|(_, summary)| summary)
}

/// The objects of a heap that is alone in its pool, after a full check: alive, dying, shells and moved ones.
pub(crate) fn objects(pool: &Pool) -> Result<Vec<u64>> {
    let mut marks = pool.marks()?;
    let (walk, _) = walk(pool, &mut marks, false)?;
    marks.finish()?;
    Ok(walk.seen.into_keys().collect())
}

fn walk<'w>(pool: &'w Pool, marks: &mut Marks, beside_unknown: bool) -> Result<(Walk<'w>, Summary)> {
    let Some(heap) = find(pool)? else {
        return Err(ErrorKind::NotAHeap { found: "it has no root `heap` of the kind of heaps".into() }.into());
    };
    let region = pool.region();
    let field = |off: usize| region.load_u64(heap + off as u64);
    marks.reach(heap, size_of::<PmHeap>() as u64)?;
    let is_migrating = is_migrating(region, heap)?;
    expect_zero(region, heap + offset_of!(PmHeap, reserved) as u64, 8)?;
    let types = Types::read(region, heap, |off, bytes| Ok(marks.reach(off, bytes)?))?;
    let (seen, next, before) = Default::default();
    let root = field(offset_of!(PmHeap, root))?;
    let mut walk = Walk { before, region, types, seen, next, root, is_migrating, beside_unknown };
    walk.seen.entry(root).or_default().strong = 1;
    walk.next.push(root);

    let orphans = walk.reach_orphans(heap, marks)?;
    let dying = walk.reach_dying(heap, marks)?;
    while let Some(object) = walk.next.pop() {
        walk.follow(object)?;
    }
    let apart = if beside_unknown { Vec::new() } else { walk.find_apart(marks)? };
    let mut summary = Summary {
        generation: field(offset_of!(PmHeap, generation))?,
        types: Vec::new(),
        orphans,
        dying,
        shells: 0,
        moved: 0,
        fixed_bytes: 0,
        circles: Vec::new(),
    };
    let mut usage: Usage = walk.types.iter().map(|info| (info.hash, usage_of(info))).collect();
    for (object, seen) in &walk.seen {
        walk.judge(*object, seen, marks, &mut summary, &mut usage)?;
    }
    summary.types = walk.types.iter().filter_map(|info| usage.remove(&info.hash)).collect();
    if !is_migrating {
        summary.circles = walk.circles(&apart)?;
    }
    Ok((walk, summary))
}

/// The usage by the hash of a type.
type Usage = HashMap<u64, TypeUsage, foldhash::fast::FixedState>;

fn leaked(object: u64, type_name: &str) -> Error {
    corrupt(
        "an object",
        object,
        "reachable, or in a circle",
        format!("a {type_name} that nothing leads to, a leak"),
    )
}

/// Refuses a reserved word that is not zero.
fn expect_zero(region: &Region, off: u64, bytes: u64) -> Result<()> {
    for off in (off..off + bytes).step_by(8) {
        let found = region.load_u64(off)?;
        if found != 0 {
            return Err(corrupt("a reserved word", off, 0, found));
        }
    }
    Ok(())
}

fn usage_of(info: &TypeInfo) -> TypeUsage {
    TypeUsage { name: info.name.clone(), layout: info.text.clone(), ..TypeUsage::default() }
}

impl Walk<'_> {
    /// Notes every object in an orphan slot, and returns how many there are.
    fn reach_orphans(&mut self, heap: u64, marks: &mut Marks) -> Result<u64> {
        let mut orphans = Vec::new();
        for_each_slot(
            self.region,
            heap,
            |block| Ok(marks.reach(block, size_of::<PmOrphans>() as u64)?),
            |_, object| {
                orphans.extend((object != 0).then_some(object));
                Ok(())
            },
        )?;
        for orphan in &orphans {
            let seen = self.seen.entry(*orphan).or_default();
            if std::mem::replace(&mut seen.is_orphan, true) {
                return Err(corrupt("an orphan", *orphan, "one slot", "two"));
            }
            self.next.push(*orphan);
        }
        Ok(orphans.len() as u64)
    }

    /// Notes every object in the lists of dying ones, and returns how many there are.
    fn reach_dying(&mut self, heap: u64, marks: &mut Marks) -> Result<u64> {
        let field = |off: usize| self.region.load_u64(heap + off as u64);
        let (dying, lists) = (field(offset_of!(PmHeap, dying))?, field(offset_of!(PmHeap, dying_count))?);
        marks.reach(dying, lists.saturating_mul(LINE))?;
        let mut listed = 0;
        for list in 0..lists {
            expect_zero(self.region, dying + list * LINE + offset_of!(PmDying, reserved) as u64, LINE - 8)?;
            let mut object = self.region.load_u64(dying + list * LINE)?;
            while object != 0 {
                let seen = self.seen.entry(object).or_default();
                if std::mem::replace(&mut seen.is_listed, true) {
                    return Err(corrupt("a dying object", object, "to be in one list, once", "there twice"));
                }
                listed += 1;
                self.next.push(object);
                object = Kind(self.region.load_u64(kind_off(object))?).next_dying();
            }
        }
        Ok(listed)
    }

    /// Unreachable objects. Their counts show whether they are in circles or leaked.
    fn find_apart(&mut self, marks: &Marks) -> Result<Vec<u64>> {
        let mut apart = Vec::new();
        for block in marks.unreached() {
            let object = if block.is_tagged { tagged_object(block.off) } else { block.off };
            if !self.seen.contains_key(&object) && self.may_be_alive(object, block.bytes)? {
                apart.push(object);
            }
        }
        for object in &apart {
            self.seen.insert(*object, Seen { is_apart: true, ..Seen::default() });
        }
        for object in &apart {
            self.follow(*object)?;
        }
        self.next.clear();
        Ok(apart)
    }

    /// Whether a block looks like an object that pointers lead to.
    fn may_be_alive(&self, object: u64, block_bytes: u64) -> Result<bool> {
        let Ok((kind, info)) = self.type_of(object) else { return Ok(false) };
        let counts = Counts::decode(self.region.load_u64(counts_off(object))?);
        let bytes = match kind.is_array() {
            _ if is_tagged(object) => Some(info.bytes),
            false => Some(OBJECT_HEAD_BYTES + info.bytes),
            true => {
                let len = self.region.load_u64(object + OBJECT_HEAD_BYTES)?;
                len.checked_mul(info.bytes).and_then(|bytes| bytes.checked_add(array_head_bytes(info.bytes)))
            }
        };
        let fits = bytes.is_some_and(|bytes| bytes <= block_bytes);
        let is_held = counts.strong > 0 || self.is_migrating && kind.successor().is_some();
        Ok(fits && is_held && !kind.is_dying() && !kind.is_shell())
    }

    /// The circles among the unreachable objects `apart`. Their counts are exact, so each has a predecessor,
    /// and a walk along predecessors ends in a circle.
    fn circles(&self, apart: &[u64]) -> Result<Vec<Circle>> {
        const SHOWN_MAX: usize = 8;
        // For each object, the number of the circle to which its predecessors lead.
        let mut circle_of: HashMap<u64, usize, foldhash::fast::FixedState> = HashMap::default();
        let mut circles: Vec<Circle> = Vec::new();
        for object in apart {
            let mut way = Vec::new();
            let mut on_way = HashMap::new();
            let mut at = *object;
            while !circle_of.contains_key(&at) && !on_way.contains_key(&at) {
                on_way.insert(at, way.len());
                way.push(at);
                at = self.before.get(&at).copied().ok_or_else(|| leaked(at, "an object"))?;
            }
            let number = match on_way.get(&at) {
                None => circle_of[&at],
                Some(start) => {
                    let circle: Vec<u64> = way[*start..].iter().rev().copied().collect();
                    let names =
                        circle.iter().take(SHOWN_MAX).map(|object| Ok(&*self.type_of(*object)?.1.name));
                    let mut path = names.collect::<Result<Vec<_>>>()?.join(" -> ");
                    path.push_str(if circle.len() > SHOWN_MAX { " -> ..." } else { " -> the first" });
                    circles.push(Circle { off: circle[0], path, objects: 0 });
                    circles.len() - 1
                }
            };
            circles[number].objects += way.len() as u64;
            circle_of.extend(way.into_iter().map(|object| (object, number)));
        }
        Ok(circles)
    }

    fn type_of(&self, object: u64) -> Result<(Kind, &TypeInfo)> {
        if is_tagged(object) && !block_of(object).is_multiple_of(LINE) {
            return Err(corrupt("a pointer", object, "the start of an object", "another offset"));
        }
        let kind = Kind(self.region.load_u64(kind_off(object))?);
        if !kind.is_sane() {
            return Err(corrupt(
                "an object's first word",
                object,
                "a type and flags",
                format!("{:#x}", kind.0),
            ));
        }
        match self.types.get(kind.type_number()) {
            // A migration may have given a shell another type.
            Some(info)
                if !kind.is_shell() && is_tagged(object) != (info.bytes == LINE && !kind.is_array()) =>
            {
                let found = format!("a {}, of which none can be here", info.name);
                Err(corrupt("a pointer", object, "an object of its type", found))
            }
            Some(info) => Ok((kind, info)),
            None => Err(corrupt("an object's type", object, "a type of the heap", kind.type_number())),
        }
    }

    /// Counts the pointers of an object, and queues their targets.
    fn follow(&mut self, object: u64) -> Result<()> {
        if std::mem::replace(&mut self.seen.entry(object).or_default().is_walked, true) {
            return Ok(());
        }
        let (kind, info) = self.type_of(object)?;
        let mut found = Vec::new();
        if let Some(successor) = kind.successor() {
            let pointer = if kind.is_array() { PointerKind::Array } else { PointerKind::Strong };
            found.push((object, successor, pointer, info.name_hash));
        }
        let (mut at, count) = match kind.is_array() {
            _ if info.pointers.is_empty() => (object, 0),
            false => (value_off(object), 1),
            true => {
                let word = self.region.load_u64(object + OBJECT_HEAD_BYTES)?;
                let (len, released) = (word & 0xFFFF_FFFF, word >> 32);
                if released > len || (released > 0 && !kind.is_dying()) {
                    return Err(corrupt(
                        "a dying array",
                        object,
                        format!("at most {len} released"),
                        released,
                    ));
                }
                (object + array_head_bytes(info.bytes) + released * info.bytes, len - released)
            }
        };
        for _ in 0..count {
            let word = |off| Ok(self.region.load_u64(at + off)?);
            for_each_pointer(info, &word, |off, pointer| {
                let target = self.region.load_u64(at + off)?;
                if target != 0 {
                    found.push((at + off, target, pointer.kind, pointer.target));
                }
                Ok(())
            })?;
            at += info.bytes;
        }
        for (slot, target, kind, name_hash) in found {
            let (target_kind, target_info) = self.type_of(target)?;
            if target_info.name_hash != name_hash || target_kind.is_array() != (kind == PointerKind::Array) {
                return Err(corrupt("a pointer", slot, "an object of its type", &target_info.name));
            }
            let is_apart = self.seen[&object].is_apart;
            let seen = self.seen.entry(target).or_default();
            if is_apart && seen.is_apart && kind != PointerKind::Weak {
                self.before.entry(target).or_insert(object);
            }
            if kind == PointerKind::Weak {
                seen.weak += 1;
            } else {
                seen.strong += 1;
                if !seen.is_walked {
                    self.next.push(target);
                }
            }
        }
        Ok(())
    }

    /// The state of an object, if it contradicts the pointers and lists that lead to it.
    fn wrong_state(&self, kind: Kind, seen: &Seen) -> Option<&'static str> {
        match (kind.is_dying(), kind.is_shell()) {
            _ if kind.successor().is_some() && !self.is_migrating => {
                Some("an object of a migration that is over")
            }
            _ if kind.successor().is_some() => {
                (seen.is_listed || seen.is_orphan).then_some("one that migrated, and died")
            }
            (true, _) if seen.is_listed && seen.strong == 0 && !seen.is_orphan => None,
            (true, _) => Some("a dying object that is in no list, or alive"),
            (_, true) if seen.strong == 0 && !seen.is_walked && seen.weak > 0 => None,
            (_, true) => Some("a shell that something but weak pointers leads to"),
            _ if seen.is_listed => Some("an object in a list of dying ones that is not dying"),
            _ if seen.strong > 0 && seen.is_orphan => Some("an orphan with strong pointers"),
            _ if seen.strong == 0 && !seen.is_orphan => Some("an object that only weak pointers lead to"),
            _ => None,
        }
    }

    /// Compares the head of an object with the findings.
    fn judge(
        &self,
        object: u64,
        seen: &Seen,
        marks: &mut Marks,
        summary: &mut Summary,
        usage: &mut Usage,
    ) -> Result<()> {
        let (kind, info) = self.type_of(object)?;
        let counts = Counts::decode(self.region.load_u64(counts_off(object))?);
        if seen.is_apart && seen.strong == 0 && kind.successor().is_none() {
            return Err(leaked(object, &info.name));
        }
        let (strong, weak) = (u64::from(counts.strong), u64::from(counts.weak));
        let may_be = self.beside_unknown && strong >= seen.strong && weak >= seen.weak;
        if (strong, weak) != (seen.strong, seen.weak) && !may_be {
            let expected = format!("{} strong and {} weak pointers", seen.strong, seen.weak);
            return Err(corrupt("an object's counts", object, expected, format!("{counts:?}")));
        }
        if let Some(found) = self.wrong_state(kind, seen) {
            return Err(corrupt("an object", object, "alive, dying or a shell", found));
        }
        let bytes = match kind.is_array() {
            // A migration may have given the shell a type with a larger value; the shell never has such a
            // value.
            _ if kind.is_shell() => OBJECT_HEAD_BYTES,
            false => OBJECT_HEAD_BYTES + info.bytes,
            true => {
                let len = self.region.load_u64(object + OBJECT_HEAD_BYTES)? & 0xFFFF_FFFF;
                array_head_bytes(info.bytes) + len * info.bytes
            }
        };
        match is_tagged(object) {
            true => marks.reach_tagged(block_of(object))?,
            false => marks.reach(object, bytes)?,
        }
        if object == self.root || seen.is_orphan || !is_unique(kind, counts) {
            summary.fixed_bytes += bytes;
        }
        summary.shells += u64::from(kind.is_shell());
        summary.moved += u64::from(kind.successor().is_some());
        let Some(usage) = usage.get_mut(&info.hash) else { return Ok(()) };
        usage.bytes += bytes;
        if kind.is_array() {
            usage.arrays += 1;
            usage.elements +=
                bytes.saturating_sub(array_head_bytes(info.bytes)).checked_div(info.bytes).unwrap_or(0);
        } else {
            usage.objects += 1;
        }
        Ok(())
    }
}
