//! The rows of the table, and how they are measured: in parts, the sides by turns.

use super::native::{Floor, Pmemobj};
use super::side::{HashTable, Side};
use super::tembo::Tembo;
use crate::engines::{self, Engine, Result, Setup};
use crate::workload::{mix, shuffled};
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;
use tembo_pmem::Durability;

/// Objects in the table, and elements of the array.
pub(super) const OBJECTS: u64 = 1 << 16;
/// Parts of a row in a round; between them the sides change.
const PARTS: u64 = 16;
/// Transactions of a part, in rows that do not depend on keys.
const PART: u64 = 20_000;
/// Transactions of which fences are counted.
const COUNTED: u64 = 4096;
/// Where the order of lookups differs from that of insertions.
const ORDER: u64 = 1;
/// Bytes for each key, generously, and what a heap has besides.
const KEY_BYTES: u64 = 512;
const OTHER_BYTES: u64 = 512 << 20;

/// The plan of a run.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) keys: u64,
    pub(super) rounds: usize,
    pub(super) only: String,
    pub(super) seed: u64,
    pub(super) side: Option<String>,
}

impl Plan {
    /// One bucket for each key.
    pub(super) fn buckets(&self) -> u64 {
        self.keys.next_power_of_two()
    }

    fn bytes(&self) -> usize {
        (OTHER_BYTES + self.keys * KEY_BYTES).next_multiple_of(2 << 20) as usize
    }
}

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Row {
    Empty,
    WriteOne,
    WriteElement,
    WriteTen,
    Push,
    Replace,
    Insert,
    LookupInOrder,
    Lookup,
    LookupChained,
    Update,
    Remove,
    MapInsert,
    MapLookup,
    MapUpdate,
    MapRemove,
    TreeInsert,
    TreeLookup,
}

/// The facts about a row that are known beforehand.
pub(super) struct About {
    pub(super) row: Row,
    pub(super) name: &'static str,
    /// Nanoseconds that we want, and those that the peer was measured to take when that was decided.
    pub(super) goal: Option<(f64, f64)>,
}

/// In the order in which they are run: the hash table is filled before it is used.
pub(super) const ROWS: &[About] = &[
    About { row: Row::Empty, name: "empty transaction", goal: Some((20.0, 110.0)) },
    About { row: Row::WriteOne, name: "write one random 64-byte object", goal: Some((250.0, 839.0)) },
    About { row: Row::WriteElement, name: "write one random 64-byte element of an array", goal: None },
    About { row: Row::WriteTen, name: "write ten random 64-byte objects", goal: Some((600.0, 4401.0)) },
    About { row: Row::Push, name: "allocate and link a 64-byte object", goal: Some((300.0, 928.0)) },
    About { row: Row::Replace, name: "allocate, link, and free the one that was there", goal: None },
    About { row: Row::Insert, name: "hash table: insert", goal: Some((600.0, 2076.0)) },
    About { row: Row::Update, name: "hash table: update", goal: Some((300.0, 1181.0)) },
    About {
        row: Row::LookupInOrder,
        name: "hash table: lookup, in the order of insertion",
        goal: Some((40.0, 36.0)),
    },
    About { row: Row::Lookup, name: "hash table: lookup, in a random order", goal: Some((40.0, 36.0)) },
    About {
        row: Row::LookupChained,
        name: "hash table: lookup, of a key that the answer before decides",
        goal: None,
    },
    About { row: Row::Remove, name: "hash table: remove", goal: Some((500.0, 1790.0)) },
    // The goals are those of the other table: a hash table is what is wanted, whatever lies in it.
    About { row: Row::MapInsert, name: "hash table that counts: insert", goal: Some((600.0, 2076.0)) },
    About { row: Row::MapUpdate, name: "hash table that counts: update", goal: Some((300.0, 1181.0)) },
    About {
        row: Row::MapLookup,
        name: "hash table that counts: lookup, in a random order",
        goal: Some((40.0, 36.0)),
    },
    About { row: Row::MapRemove, name: "hash table that counts: remove", goal: Some((500.0, 1790.0)) },
    About { row: Row::TreeInsert, name: "B-tree: insert", goal: Some((900.0, 1821.0)) },
    About { row: Row::TreeLookup, name: "B-tree: lookup, in a random order", goal: None },
];

impl Row {
    /// Transactions of a part.
    fn part(self, keys: u64) -> u64 {
        if self.has_keys() { keys / PARTS } else { PART }
    }

    fn has_keys(self) -> bool {
        (self as u8) >= (Row::Insert as u8)
    }
}

/// Nanoseconds of a transaction, in every part of every round.
#[derive(Debug, Default)]
pub(super) struct Times {
    pub(super) tembo: Vec<f64>,
    pub(super) pmemobj: Vec<f64>,
    pub(super) floor: Vec<f64>,
}

/// The measured values.
pub(super) struct Measured {
    pub(super) rows: Vec<(Row, Times)>,
    /// Flushing a random line and waiting for it.
    pub(super) persist: Vec<f64>,
    pub(super) settings: Vec<(String, String)>,
    pub(super) huge: String,
}

/// The keys, and the order in which they are looked up.
struct Keys {
    seed: u64,
    order: Vec<u32>,
}

impl Keys {
    fn new(seed: u64, count: u64) -> Keys {
        Keys { seed: mix(seed), order: shuffled(count, seed ^ ORDER) }
    }

    /// The index of the key that is looked up as number `at`.
    #[inline]
    fn shuffled(&self, at: u64) -> u64 {
        self.order[at as usize].into()
    }

    #[inline]
    fn key(&self, index: u64) -> u64 {
        // One to one, so that all keys are different.
        mix(self.seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }
}

/// Random indexes of objects for the transaction `at`.
#[inline]
fn indexes<const N: usize>(at: u64) -> [u32; N] {
    let mut out = [0; N];
    for (i, out) in out.iter_mut().enumerate() {
        *out = (mix(at * N as u64 + i as u64) % OBJECTS) as u32;
    }
    out
}

/// Calls `operation` with each number of a range, and returns the nanoseconds of a call.
#[inline]
fn timed(first: u64, count: u64, mut operation: impl FnMut(u64) -> Result<()>) -> Result<f64> {
    let begun = Instant::now();
    for i in first..first + count {
        operation(i)?;
    }
    Ok(begun.elapsed().as_nanos() as f64 / count.max(1) as f64)
}

fn required(found: Option<u64>, value: u64) -> Result<()> {
    if black_box(found) == Some(value) {
        Ok(())
    } else {
        Err("a key has not the value that it was given".into())
    }
}

/// Transactions `first` to `first + count` of a row.
fn part<S: Side>(side: &mut S, row: Row, keys: &Keys, first: u64, count: u64) -> Result<f64> {
    match row {
        Row::Empty => timed(first, count, |_| side.empty()),
        Row::WriteOne => timed(first, count, |i| side.write(&indexes::<1>(i), i)),
        Row::WriteElement => timed(first, count, |i| side.write_element(indexes::<1>(i)[0], i)),
        Row::WriteTen => timed(first, count, |i| side.write(&indexes::<10>(i), i)),
        Row::Push => timed(first, count, |i| side.push(i)),
        Row::Replace => timed(first, count, |i| side.replace(indexes::<1>(i)[0], i)),
        Row::MapInsert => timed(first, count, |i| side.map_insert(keys.key(i), i)),
        Row::MapLookup => timed(first, count, |i| {
            let index = keys.shuffled(i);
            required(side.map_lookup(keys.key(index))?, !index)
        }),
        Row::MapUpdate => timed(first, count, |i| side.map_update(keys.key(i), !i)),
        Row::MapRemove => timed(first, count, |i| side.map_remove(keys.key(i))),
        Row::TreeInsert | Row::TreeLookup => unreachable!("trees have parts of their own"),
        _ => table_part(side, row, keys, first, count),
    }
}

/// The same of the rows of the hash table.
fn table_part<T: HashTable>(table: &mut T, row: Row, keys: &Keys, first: u64, count: u64) -> Result<f64> {
    match row {
        Row::Insert => timed(first, count, |i| table.insert(keys.key(i), i)),
        Row::LookupInOrder => timed(first, count, |i| required(table.lookup(keys.key(i))?, !i)),
        Row::Lookup => timed(first, count, |i| {
            let index = keys.shuffled(i);
            required(table.lookup(keys.key(index))?, !index)
        }),
        Row::LookupChained => {
            // The value found is the complement of the index, so this adds nothing, and the processor cannot
            // know.
            let mut last = Some(!0);
            timed(first, count, |i| {
                let index = keys.shuffled(i) + (last.unwrap_or(0) >> 63 ^ 1);
                last = table.lookup(keys.key(index))?;
                required(last, !index)
            })
        }
        Row::Update => timed(first, count, |i| table.update(keys.key(i), !i)),
        Row::Remove => timed(first, count, |i| table.remove(keys.key(i))),
        _ => unreachable!("not a row of the hash table"),
    }
}

fn tembo_tree(side: &mut Tembo, row: Row, keys: &Keys, first: u64, count: u64) -> Result<f64> {
    if row == Row::TreeInsert {
        return timed(first, count, |i| side.tree_insert(keys.key(i), i));
    }
    timed(first, count, |i| {
        let index = u64::from(keys.order[i as usize]);
        required(side.tree_lookup(keys.key(index))?, index)
    })
}

fn engine_tree(engine: &mut dyn Engine, row: Row, keys: &Keys, first: u64, count: u64) -> Result<f64> {
    if row == Row::TreeInsert {
        return timed(first, count, |i| engine.insert(&keys.key(i).to_be_bytes(), &i.to_ne_bytes()));
    }
    timed(first, count, |i| {
        let index = u64::from(keys.order[i as usize]);
        let mut found = None;
        engine.get(&keys.key(index).to_be_bytes(), &mut |value| {
            found = value.try_into().ok().map(u64::from_ne_bytes);
        })?;
        required(found, index)
    })
}

/// The floor's transactions of part `index` of a row, if it has such ones.
fn floor_part(floor: &mut Floor, row: Row, keys: &Keys, index: u64) -> Option<Result<f64>> {
    let count = row.part(keys.order.len() as u64);
    let first = index * count;
    Some(match row {
        Row::WriteOne => timed(first, count, |i| floor.write(&indexes::<1>(i), i)),
        Row::WriteTen => timed(first, count, |i| floor.write(&indexes::<10>(i), i)),
        Row::Push => timed(first, count, |i| floor.push(i)),
        Row::Insert | Row::Update | Row::LookupInOrder | Row::Lookup | Row::LookupChained | Row::Remove => {
            table_part(floor, row, keys, first, count)
        }
        _ => return None,
    })
}

struct Sides {
    tembo: Tembo,
    pmemobj: Pmemobj,
    tree: Box<dyn Engine>,
    floor: Floor,
}

impl Sides {
    fn open(folder: &Path, plan: &Plan) -> Result<Sides> {
        let (bytes, buckets) = (plan.bytes(), plan.buckets());
        let setup = Setup {
            folder,
            key_bytes: 8,
            value_bytes: 8,
            capacity_bytes: (64 << 20) + plan.keys.next_multiple_of(1 << 20) * 128,
            durability: Durability::Emulated,
        };
        let tree = engines::all().into_iter().find(|kind| kind.id == "libpmemobj");
        let tree = tree.ok_or("libpmemobj was not installed when this program was built")?;
        Ok(Sides {
            tembo: Tembo::open(&folder.join("tembo"), bytes, OBJECTS, buckets, true, false)?,
            pmemobj: Pmemobj::open(&folder.join("pmemobj"), bytes, OBJECTS, buckets, true)?,
            tree: (tree.open)(&setup)?,
            floor: Floor::open(&folder.join("floor"), bytes, OBJECTS, buckets)?,
        })
    }
}

/// Runs all rows in all rounds.
pub(super) fn measure(folder: &Path, plan: &Plan) -> Result<Measured> {
    let mut rows: Vec<(Row, Times)> = chosen(plan).map(|about| (about.row, Times::default())).collect();
    let keys = Keys::new(plan.seed, plan.keys);
    let (mut persist, mut settings, mut huge) = (Vec::new(), Vec::new(), String::new());
    for round in 0..plan.rounds {
        let data = tempfile::tempdir_in(folder)?;
        let mut sides = Sides::open(data.path(), plan)?;
        for (row, times) in &mut rows {
            eprintln!("round {} of {}: {}", round + 1, plan.rounds, row.name());
            for index in 0..PARTS {
                let wants = |name: &str| plan.side.as_ref().is_none_or(|side| side == name);
                // The first to go changes, so that none always follows the same one.
                for turn in 0..2 {
                    if (turn + index) % 2 == 0 && wants(Tembo::NAME) {
                        times.tembo.push(tembo_part(&mut sides, *row, &keys, index)?);
                    } else if (turn + index) % 2 == 1 && wants(Pmemobj::NAME) {
                        times.pmemobj.push(pmemobj_part(&mut sides, *row, &keys, index)?);
                    }
                }
                if wants("floor") {
                    let time = floor_part(&mut sides.floor, *row, &keys, index);
                    times.floor.extend(time.transpose()?);
                }
                if *row == Row::WriteOne && wants("floor") {
                    persist.push(timed(0, PART, |i| sides.floor.persist(indexes::<1>(i)[0]))?);
                }
            }
            if plan.side.is_none() && *row == Row::WriteTen {
                same_objects(&mut sides)?;
            }
        }
        if round == 0 {
            huge = huge_pages(data.path());
            settings = vec![
                (format!("{} {}", Tembo::NAME, env!("CARGO_PKG_VERSION")), sides.tembo.settings()),
                (format!("{} {}", Pmemobj::NAME, Pmemobj::version()), pmemobj_settings()),
                (format!("{} {}, B-tree", Pmemobj::NAME, Pmemobj::version()), sides.tree.settings()),
                ("floor, plain C".to_owned(), Floor::settings().to_owned()),
            ];
        }
    }
    Ok(Measured { rows, persist, settings, huge })
}

fn chosen(plan: &Plan) -> impl Iterator<Item = &'static About> {
    let only = plan.only.clone();
    ROWS.iter().filter(move |about| about.name.contains(&only))
}

impl Row {
    pub(super) fn name(self) -> &'static str {
        ROWS.iter().find(|about| about.row == self).map_or("", |about| about.name)
    }
}

fn tembo_part(sides: &mut Sides, row: Row, keys: &Keys, index: u64) -> Result<f64> {
    let count = row.part(keys.order.len() as u64);
    match row {
        Row::TreeInsert | Row::TreeLookup => tembo_tree(&mut sides.tembo, row, keys, index * count, count),
        _ => part(&mut sides.tembo, row, keys, index * count, count),
    }
}

fn pmemobj_part(sides: &mut Sides, row: Row, keys: &Keys, index: u64) -> Result<f64> {
    let count = row.part(keys.order.len() as u64);
    match row {
        Row::TreeInsert | Row::TreeLookup => {
            engine_tree(sides.tree.as_mut(), row, keys, index * count, count)
        }
        // One table, which has other entries by then.
        _ => part(&mut sides.pmemobj, row, keys, index * count, count),
    }
}

/// Requires that all sides have the same objects after the same writes.
fn same_objects(sides: &mut Sides) -> Result<()> {
    for index in 0..OBJECTS as u32 {
        let (ours, theirs) = (sides.tembo.read(index)?, sides.pmemobj.read(index)?);
        if ours != theirs || ours != sides.floor.read(index)? {
            return Err(format!("object {index} is {ours} here and {theirs} there").into());
        }
    }
    Ok(())
}

fn pmemobj_settings() -> String {
    "PMEM_IS_PMEM_FORCE=1, so that lines are flushed (by the best instruction that it finds, as on the other side) and not pages \
     synced; one transaction per change, one snapshot per range; allocation classes without headers, links as offsets in the \
     pool, all pages touched in advance, no locks"
        .to_owned()
}

/// How much of the files in the folder is mapped by huge pages.
fn huge_pages(folder: &Path) -> String {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let (mut name, mut sums) = (None, std::collections::BTreeMap::<String, u64>::new());
    let prefix = format!("{}/", folder.display());
    for line in text.lines() {
        if let Some((_, file)) = line.split_once(&prefix) {
            name = Some(file.to_owned());
        } else if line.contains('-') && line.split(' ').next().is_some_and(|first| !first.ends_with(':')) {
            name = None;
        } else if let (Some(name), Some(kib)) = (&name, line.strip_prefix("ShmemPmdMapped:")) {
            let kib: u64 = kib.trim().trim_end_matches(" kB").parse().unwrap_or(0);
            *sums.entry(name.clone()).or_default() += kib;
        }
    }
    sums.iter().map(|(name, kib)| format!("{name} {} MiB", kib / 1024)).collect::<Vec<_>>().join(", ")
}

/// The average cost of a transaction of a row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) row: Row,
    pub(super) tembo_fences: f64,
    pub(super) tembo_lines: f64,
    /// None if nobody counted.
    pub(super) pmemobj_fences: Option<f64>,
}

/// Counts the fences of all rows, in heaps of their own.
pub(super) fn counts(folder: &Path) -> Result<Vec<Counts>> {
    let plan = Plan { keys: 16 * COUNTED, rounds: 1, only: String::new(), seed: 1, side: None };
    let data = tempfile::tempdir_in(folder)?;
    let mut sides = Sides::open(data.path(), &plan)?;
    drop(sides.tembo);
    std::fs::remove_file(data.path().join("tembo"))?;
    sides.tembo = Tembo::open(&data.path().join("tembo"), plan.bytes(), OBJECTS, plan.buckets(), true, true)?;
    let keys = Keys::new(plan.seed, plan.keys);
    let mut counts = Vec::new();
    for About { row, .. } in ROWS {
        let before = tembo_pmem::snapshot();
        let mut done = 0;
        for index in 0..PARTS {
            tembo_part(&mut sides, *row, &keys, index)?;
            done += row.part(plan.keys);
        }
        let spent = tembo_pmem::snapshot() - before;
        let fences_before = Pmemobj::fences();
        for index in 0..PARTS {
            pmemobj_part(&mut sides, *row, &keys, index)?;
        }
        let pmemobj_fences = Pmemobj::fences().zip(fences_before).map(|(after, before)| after - before);
        let each = |count: u64| count as f64 / done as f64;
        counts.push(Counts {
            row: *row,
            tembo_fences: each(spent.fences),
            tembo_lines: each(spent.lines),
            pmemobj_fences: pmemobj_fences.map(each),
        });
    }
    Ok(counts)
}
