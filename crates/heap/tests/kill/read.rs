//! Reading what a killed process left, and comparing it with the models.

use super::plot::{ACCOUNTS, Id, LOOKS, NodeModel, Plot, SLOTS, THREADS};
use super::stress::{
    BankFields, Bed, BedFields, CommonFields, GardenFields, GardenHeap, Gardens, Node, NodeFields, shared_key,
};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use tembo_heap::{Error, Obj, ReadTx};

/// The state of the heap.
#[derive(Debug)]
pub(crate) struct Found {
    plots: Vec<Plot>,
    by_key: BTreeMap<u64, u64>,
    in_order: BTreeMap<u64, Id>,
    accounts: [i64; ACCOUNTS],
    /// A thread whose friend is not the one that it had made friends with.
    wrong_friend: Option<usize>,
}

impl Found {
    pub(crate) fn read(heap: &GardenHeap) -> Result<Found, String> {
        heap.read(|tx, garden| {
            let mut found = Found {
                plots: vec![Plot::default(); THREADS],
                by_key: BTreeMap::new(),
                in_order: BTreeMap::new(),
                accounts: [0; ACCOUNTS],
                wrong_friend: None,
            };
            for thread in 0..THREADS {
                if let Some(bed) = tx.load(garden.beds().at(thread))? {
                    found.plots[thread] = plot(tx, bed)?;
                    let friend = tx.load(bed.friend())?.map_or(Ok(0), |friend| number(tx, friend))?;
                    if friend != tx.get(bed.friend_id())? {
                        found.wrong_friend = Some(thread);
                    }
                }
            }
            if let Some(common) = tx.load(garden.common())? {
                for entry in common.by_key().iter(tx)? {
                    let (key, place) = entry?;
                    found.by_key.insert(key, tx.get(place)?);
                }
                for entry in common.in_order().iter(tx)? {
                    let (key, place) = entry?;
                    let node = tx.load(place)?.map_or(Ok(0), |node| number(tx, node))?;
                    found.in_order.insert(key, node);
                }
                assert_eq!(common.by_key().len(tx)?, found.by_key.len());
                assert_eq!(common.in_order().len(tx)?, found.in_order.len());
            }
            if let Some(bank) = tx.load(garden.bank())? {
                for account in 0..ACCOUNTS {
                    found.accounts[account] = tx.get(bank.accounts().at(account))?;
                }
            }
            Ok(found)
        })
        .map_err(|e: Error| e.to_string())
    }

    /// How many transactions a thread performed.
    pub(crate) fn done(&self, thread: usize) -> u64 {
        self.plots[thread].done
    }

    pub(crate) fn compare(&self, models: &[Plot]) -> Result<(), String> {
        let (mut by_key, mut in_order) = (BTreeMap::new(), BTreeMap::new());
        for (thread, model) in models.iter().enumerate() {
            by_key.extend(model.by_key.iter().map(|(key, value)| (shared_key(thread, *key), *value)));
            in_order.extend(model.in_order.iter().map(|(key, value)| (shared_key(thread, *key), *value)));
            let model = Plot { by_key: BTreeMap::new(), in_order: BTreeMap::new(), ..model.clone() };
            if self.plots[thread] != model {
                return Err(format!("thread {thread} left {}", difference(&self.plots[thread], &model)));
            }
        }
        if self.by_key != by_key {
            return Err(format!("the shared map is {:?}, which threads left as {by_key:?}", self.by_key));
        }
        if self.in_order != in_order {
            return Err(format!(
                "the ordered map is {:?}, which threads left as {in_order:?}",
                self.in_order
            ));
        }
        if self.accounts.iter().sum::<i64>() != 0 {
            return Err(format!("transfers by threads made something of nothing: {:?}", self.accounts));
        }
        match self.wrong_friend {
            Some(thread) => Err(format!("thread {thread} has another friend than it chose")),
            None => Ok(()),
        }
    }
}

/// The first field that differs.
fn difference(found: &Plot, expected: &Plot) -> String {
    let lines = |plot: &Plot| format!("{plot:#?}").lines().map(str::to_owned).collect::<Vec<_>>();
    let (found, expected) = (lines(found), lines(expected));
    let same = found.iter().zip(&expected).take_while(|(found, expected)| found == expected).count();
    let field =
        found[..same].iter().rev().find(|line| line.starts_with("    ") && !line.starts_with("     "));
    let shown = |lines: &[String]| lines[same..].iter().take(8).map(|line| line.trim()).collect::<String>();
    format!("`{}...` in or after {field:?}, expected `{}...`", shown(&found), shown(&expected))
}

type Object<'t, T> = Obj<'t, Gardens, T>;

/// A node's number, which it has in all its places.
fn number<'t>(tx: &ReadTx<'t, Gardens>, node: Object<'t, Node>) -> Result<Id, Error> {
    let id = tx.get(node.id())?;
    assert_eq!(tx.get(node.again())?, [id; 4], "a node's number");
    Ok(id)
}

fn plot<'t>(tx: &ReadTx<'t, Gardens>, bed: Object<'t, Bed>) -> Result<Plot, Error> {
    let mut plot = Plot { done: tx.get(bed.done())?, text: bed.text().get(tx)?, ..Plot::default() };
    let mut next = Vec::new();
    let mut id = |node: Option<Object<'t, Node>>| -> Result<Option<Id>, Error> {
        let Some(node) = node else { return Ok(None) };
        next.push(node);
        number(tx, node).map(Some)
    };
    for slot in 0..SLOTS {
        plot.slots[slot] = id(tx.load(bed.slots().at(slot))?)?;
    }
    plot.numbers = bed.numbers().to_vec(tx)?;
    for place in bed.list().iter(tx)? {
        plot.list.push(id(tx.load(place)?)?);
    }
    for entry in bed.names().iter(tx)? {
        let (key, place) = entry?;
        plot.names.insert(key, id(tx.load(place)?)?);
    }
    while let Some(node) = next.pop() {
        let (here, to, other) = (number(tx, node)?, tx.load(node.next())?, tx.load(node.other())?);
        if let Entry::Vacant(entry) = plot.nodes.entry(here) {
            next.extend(to.into_iter().chain(other));
            let of = |to: Option<Object<'t, Node>>| to.map(|to| number(tx, to)).transpose();
            entry.insert(NodeModel { next: of(to)?, other: of(other)? });
        }
    }
    for look in 0..LOOKS {
        // Objects that only a handle of the dead process kept alive may still exist.
        let node = tx.upgrade(bed.looks().at(look))?.map(|node| number(tx, node)).transpose()?;
        plot.looks[look] = node.filter(|id| plot.nodes.contains_key(id));
    }
    plot.chain = chain(tx, bed)?;
    if let Some(array) = tx.array(bed.array())?
        && array.len() > 0
    {
        for i in 0..array.len() {
            let id = tx.load(array.at(i))?.map_or(Ok(0), |node| number(tx, node))?;
            let (first, _) = *plot.array.get_or_insert((id, array.len() as u64));
            assert_eq!(id, first + i as u64, "an array's node");
        }
    }
    plot.tree = match tx.load(bed.tree())? {
        Some(top) => Some((number(tx, top)?, levels(tx, top, number(tx, top)?, 1)?)),
        None => None,
    };
    Ok(plot)
}

fn chain<'t>(tx: &ReadTx<'t, Gardens>, bed: Object<'t, Bed>) -> Result<Option<(Id, u64)>, Error> {
    let Some(first) = tx.load(bed.chain())? else { return Ok(None) };
    let first_id = number(tx, first)?;
    let (mut len, mut last, mut next) = (1, first, tx.load(first.next())?);
    while let Some(node) = next {
        assert_eq!(number(tx, node)?, first_id + len, "a list's node");
        let back = tx.upgrade(node.back())?.map(|back| number(tx, back)).transpose()?;
        assert_eq!(back, Some(number(tx, last)?), "a list's pointer back");
        (len, last, next) = (len + 1, node, tx.load(node.next())?);
    }
    Ok(Some((first_id, len)))
}

/// The levels of a tree all of whose nodes are as they were made.
fn levels<'t>(tx: &ReadTx<'t, Gardens>, node: Object<'t, Node>, top: Id, which: u64) -> Result<u32, Error> {
    assert_eq!(number(tx, node)?, top + which - 1, "a tree's node");
    let mut below = [0; 2];
    for (side, at) in [node.next(), node.other()].into_iter().enumerate() {
        if let Some(child) = tx.load(at)? {
            let back = tx.upgrade(child.back())?.map(|back| number(tx, back)).transpose()?;
            assert_eq!(back, Some(number(tx, node)?), "a tree's pointer back");
            below[side] = levels(tx, child, top, 2 * which + side as u64)?;
        }
    }
    assert_eq!(below[0], below[1], "a tree is full");
    Ok(below[0] + 1)
}
