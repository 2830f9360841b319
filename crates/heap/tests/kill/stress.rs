//! The heap of the program that is killed, and what its threads do there.

use super::plot::{ACCOUNTS, FRIENDS, LOOKS, Op, SLOTS, THREADS, id_of, key_name, op, text_of};
use std::collections::VecDeque;
use std::io::Write;
use std::sync::Mutex;
use tembo_heap::collections::{PHashMap, PMap, PString, PVec};
use tembo_heap::{Error, Handle, Heap, Obj, PArr, PRc, PWeak, Persist, Ref, Tx, brand};
use tembo_pool::Pool;

brand!(pub(crate) Gardens);

/// Has a line for itself, and its head elsewhere.
#[derive(Default, Persist)]
#[repr(C)]
pub(crate) struct Node {
    pub id: u64,
    pub next: PRc<Node>,
    pub other: PRc<Node>,
    /// From a node of a list or tree to the one before it.
    pub back: PWeak<Node>,
    /// The number, wherever the others have no place.
    pub again: [u64; 4],
}

const _: () = assert!(size_of::<Node>() == 64);

impl Node {
    fn new(id: u64) -> Node {
        Node { id, again: [id; 4], ..Node::default() }
    }
}

/// The collections of one thread.
#[derive(Default, Persist)]
#[repr(C)]
pub(crate) struct Bed {
    /// Transactions that the thread has performed.
    pub done: u64,
    pub slots: [PRc<Node>; SLOTS],
    pub looks: [PWeak<Node>; LOOKS],
    pub chain: PRc<Node>,
    pub tree: PRc<Node>,
    pub array: PArr<PRc<Node>>,
    pub numbers: PVec<u64>,
    pub list: PVec<PRc<Node>>,
    pub text: PString,
    pub names: PHashMap<PString, PRc<Node>>,
    pub friend: PRc<Node>,
    /// The friend's number, as it was read when the pointer was set.
    pub friend_id: u64,
}

/// The collections that all threads change.
#[derive(Default, Persist)]
#[repr(C)]
pub(crate) struct Common {
    pub by_key: PHashMap<u64, u64>,
    pub in_order: PMap<u64, PRc<Node>>,
}

#[derive(Default, Persist)]
#[repr(C)]
pub(crate) struct Bank {
    pub accounts: [i64; ACCOUNTS],
    pub friends: [PRc<Node>; FRIENDS],
}

#[derive(Default, Persist)]
#[repr(C)]
pub(crate) struct Garden {
    pub beds: [PRc<Bed>; THREADS],
    pub common: PRc<Common>,
    pub bank: PRc<Bank>,
}

/// A bug of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    None,
    /// Acknowledges a transaction before it is durable.
    EarlyAcknowledgement,
    /// Makes two transactions of one.
    Halves,
    /// A handle counts in the file.
    DurableHandle,
    /// Allocates a block that nothing leads to.
    Leak,
}

impl Mutant {
    pub(crate) const ALL: [Mutant; 4] =
        [Mutant::EarlyAcknowledgement, Mutant::Halves, Mutant::DurableHandle, Mutant::Leak];

    pub(crate) fn name(self) -> String {
        format!("{self:?}")
    }

    pub(crate) fn named(name: &str) -> Mutant {
        Mutant::ALL.into_iter().find(|mutant| mutant.name() == name).unwrap_or(Mutant::None)
    }

    pub(crate) fn is_caught_by(self, e: &str) -> bool {
        let told: &[&str] = match self {
            Mutant::None => &[],
            Mutant::EarlyAcknowledgement => &["acknowledged"],
            Mutant::Halves => &["thread"],
            // An orphan with a count too many is not taken back.
            Mutant::DurableHandle => &["counts", "a leak"],
            Mutant::Leak => &["a leak"],
        };
        told.iter().any(|told| e.contains(told))
    }
}

pub(crate) type GardenHeap = Heap<Gardens, Garden>;
type Object<'t, T> = Obj<'t, Gardens, T>;

/// Works until somebody kills the process.
pub(crate) fn run(heap: &GardenHeap, pool: &Pool, seed: u64, mutant: Mutant) {
    prepare(heap).expect("the heap has room");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let mut worker = Worker { heap, pool, seed, thread, mutant, held: VecDeque::new() };
            scope.spawn(move || worker.run());
        }
    });
}

fn prepare(heap: &GardenHeap) -> Result<(), Error> {
    heap.write(|tx, garden| {
        if tx.load(garden.bank())?.is_some() {
            return Ok(());
        }
        for thread in 0..THREADS {
            let bed = tx.alloc(Bed::default())?;
            tx.link(garden.beds().at(thread), bed)?;
        }
        let (common, bank) = (tx.alloc(Common::default())?, tx.alloc(Bank::default())?);
        tx.link(garden.common(), common)?;
        tx.link(garden.bank(), bank)
    })
}

struct Worker<'h> {
    heap: &'h GardenHeap,
    /// For what mutants do past the heap.
    pool: &'h Pool,
    seed: u64,
    thread: usize,
    mutant: Mutant,
    held: VecDeque<Handle<Gardens, Node>>,
}

/// The changes of the handles by a transaction, once it is durable.
enum Handles {
    Same,
    Keep(Handle<Gardens, Node>),
    LoseOldest,
}

impl Worker<'_> {
    fn run(&mut self) {
        let thread = self.thread;
        let done = self
            .heap
            .read(|tx, garden| tx.load(garden.beds().at(thread))?.map_or(Ok(0), |bed| tx.get(bed.done())));
        let mut number = done.map_err(|e: Error| e).expect("the heap can be read");
        loop {
            number += 1;
            if self.mutant == Mutant::EarlyAcknowledgement {
                self.acknowledge(number);
            }
            self.perform(number).expect("the heap has room");
            if self.mutant != Mutant::EarlyAcknowledgement {
                self.acknowledge(number);
            }
            if number.is_multiple_of(89) {
                self.heap.collect().expect("the heap has room");
            }
        }
    }

    /// One call of the system, so that a kill leaves a whole line or none.
    fn acknowledge(&self, number: u64) {
        let line = format!("done {} {number}\n", self.thread);
        std::io::stderr().write_all(line.as_bytes()).expect("the parent listens");
    }

    fn perform(&mut self, number: u64) -> Result<(), Error> {
        let (thread, mutant, held) = (self.thread, self.mutant, &self.held);
        let op = op(self.seed, thread, number);
        let handles = self.heap.write(|tx, garden| {
            let Some(bed) = tx.load(garden.beds().at(thread))? else { return Err(tx.cancel()) };
            if mutant != Mutant::Halves {
                tx.set(bed.done(), number)?;
            }
            let id = |which| id_of(thread, number, which);
            let handles = on_handles(tx, bed, &op, held)?;
            if let Some(handles) = handles {
                return Ok(handles);
            }
            on_nodes(tx, bed, &op, &id)?;
            on_collections(tx, bed, &op, number, &id)?;
            on_common(tx, garden, bed, &op, thread, &id)?;
            Ok(Handles::Same)
        })?;
        if mutant == Mutant::Halves {
            self.heap.write(|tx, garden| {
                let Some(bed) = tx.load(garden.beds().at(thread))? else { return Err(tx.cancel()) };
                tx.set(bed.done(), number)
            })?;
        }
        match handles {
            Handles::Same => {}
            Handles::Keep(handle) => {
                if mutant == Mutant::DurableHandle {
                    change_count(self.pool, &handle, 1);
                }
                self.held.push_back(handle);
            }
            Handles::LoseOldest => {
                let handle = self.held.pop_front();
                if let (Mutant::DurableHandle, Some(handle)) = (mutant, handle) {
                    change_count(self.pool, &handle, u64::MAX);
                }
            }
        }
        if mutant == Mutant::Leak && number.is_multiple_of(10) {
            leak(self.pool);
        }
        Ok(())
    }
}

/// Changes an object's count as if the heap counted handles on media.
fn change_count(pool: &Pool, handle: &Handle<Gardens, Node>, by: u64) {
    let shown = format!("{handle:?}");
    let off =
        shown.split("0x").nth(1).and_then(|off| u64::from_str_radix(off.trim_end_matches(')'), 16).ok());
    // A word in front of the node's line, of which the counts are the second word of the tag.
    let off = tembo_pool::tag_off(off.expect("a handle shows where its object lies") + 8) + 8;
    let region = pool.region();
    let count = region.load_u64(off).expect("the object's counts");
    region.store_u64(off, count.wrapping_add(by)).expect("the object's counts");
}

fn leak(pool: &Pool) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock();
    let Ok(mut lane) = pool.lane() else { return };
    let mut tx = lane.begin();
    tx.alloc_zeroed(64).expect("the pool has room");
    tx.commit().expect("the pool has room");
}

fn on_handles<'t>(
    tx: &mut Tx<'t, Gardens>,
    bed: Object<'t, Bed>,
    op: &Op,
    held: &VecDeque<Handle<Gardens, Node>>,
) -> Result<Option<Handles>, Error> {
    Ok(match *op {
        Op::Keep { slot } => {
            let slot = bed.slots().at(slot);
            let Some(node) = tx.load(slot)? else { return Ok(Some(Handles::Same)) };
            let handle = tx.hold(node)?;
            tx.link(slot, None)?;
            Some(Handles::Keep(handle))
        }
        Op::Restore { slot } => match held.front() {
            Some(oldest) => {
                let node = tx.enter(oldest)?;
                tx.link(bed.slots().at(slot), node)?;
                Some(Handles::LoseOldest)
            }
            None => Some(Handles::Same),
        },
        Op::DropHandle => Some(Handles::LoseOldest),
        _ => None,
    })
}

fn on_nodes<'t>(
    tx: &mut Tx<'t, Gardens>,
    bed: Object<'t, Bed>,
    op: &Op,
    id: &impl Fn(u64) -> u64,
) -> Result<(), Error> {
    let slot = |slot| bed.slots().at(slot);
    match *op {
        Op::New { slot: at, push } => {
            let node = tx.alloc(Node::new(id(0)))?;
            if push {
                let old = tx.load(slot(at))?;
                tx.link(node.next(), old)?;
            }
            tx.link(slot(at), node)
        }
        Op::Link { slot: at, from } => {
            let to = tx.load(slot(from))?;
            tx.link(slot(at), to)
        }
        Op::Unlink { slot: at } => tx.link(slot(at), None),
        Op::Other { of, to } => {
            if let (Some(of), Some(to)) = (tx.load(slot(of))?, tx.load(slot(to))?)
                && tx.get(to.id())? < tx.get(of.id())?
            {
                tx.link(of.other(), to)?;
            }
            Ok(())
        }
        Op::Look { look, slot: at } => {
            let to = tx.load(slot(at))?;
            tx.link_weak(bed.looks().at(look), to)
        }
        Op::Follow { look, slot: at } => {
            let to = known_target(tx, bed, look)?;
            tx.link(slot(at), to)
        }
        Op::Chain { len } => make_chain(tx, bed, len, id),
        Op::Tree { levels } => {
            tx.link(bed.tree(), None)?;
            grow(tx, bed.tree(), None, 1, levels, id)
        }
        Op::Array { len } => {
            let array = tx.alloc_array(len as usize, |_| PRc::null())?;
            for which in 0..len {
                let node = tx.alloc(Node::new(id(which)))?;
                tx.link(array.at(which as usize), node)?;
            }
            tx.link_array(bed.array(), array)
        }
        _ => Ok(()),
    }
}

/// The node that a weak pointer sees, if it is in one of the slots.
fn known_target<'t>(
    tx: &Tx<'t, Gardens>,
    bed: Object<'t, Bed>,
    look: usize,
) -> Result<Option<Object<'t, Node>>, Error> {
    let Some(node) = tx.upgrade(bed.looks().at(look))? else { return Ok(None) };
    let id = tx.get(node.id())?;
    let mut to = None;
    for other in 0..SLOTS {
        if let Some(known) = tx.load(bed.slots().at(other))?
            && tx.get(known.id())? == id
        {
            to = Some(node);
        }
    }
    Ok(to)
}

/// A list whose nodes have weak pointers to the ones before them.
fn make_chain<'t>(
    tx: &mut Tx<'t, Gardens>,
    bed: Object<'t, Bed>,
    len: u64,
    id: &impl Fn(u64) -> u64,
) -> Result<(), Error> {
    tx.link(bed.chain(), None)?;
    for which in (0..len).rev() {
        let node = tx.alloc(Node::new(id(which)))?;
        let next = tx.load(bed.chain())?;
        if let Some(next) = next {
            tx.link_weak(next.back(), node)?;
        }
        tx.link(node.next(), next)?;
        tx.link(bed.chain(), node)?;
    }
    Ok(())
}

fn grow<'t>(
    tx: &mut Tx<'t, Gardens>,
    at: Ref<'t, Gardens, PRc<Node>>,
    parent: Option<Object<'t, Node>>,
    which: u64,
    levels: u32,
    id: &impl Fn(u64) -> u64,
) -> Result<(), Error> {
    if levels == 0 {
        return Ok(());
    }
    let node = tx.alloc(Node::new(id(which - 1)))?;
    tx.link(at, node)?;
    tx.link_weak(node.back(), parent)?;
    grow(tx, node.next(), Some(node), 2 * which, levels - 1, id)?;
    grow(tx, node.other(), Some(node), 2 * which + 1, levels - 1, id)
}

fn on_collections<'t>(
    tx: &mut Tx<'t, Gardens>,
    bed: Object<'t, Bed>,
    op: &Op,
    number: u64,
    id: &impl Fn(u64) -> u64,
) -> Result<(), Error> {
    match *op {
        Op::PushNumbers { count } => {
            bed.numbers().extend_from_slice(tx, &(0..count).map(id).collect::<Vec<_>>())?;
        }
        Op::PopNumbers { count } => {
            let len = bed.numbers().len(tx)?;
            bed.numbers().truncate(tx, len.saturating_sub(count as usize))?;
            if count.is_multiple_of(5) {
                bed.numbers().shrink(tx)?;
            }
        }
        Op::PushNode { slot } => {
            let node = tx.load(bed.slots().at(slot))?;
            let place = bed.list().push(tx, PRc::null())?;
            tx.link(place, node)?;
        }
        Op::RemoveNode { at } => {
            let len = bed.list().len(tx)? as u64;
            if len > 0 {
                bed.list().remove(tx, (at % len) as usize)?;
            }
        }
        Op::ClearNodes => bed.list().clear(tx)?,
        Op::Text { len } => bed.text().set(tx, &text_of(number, len))?,
        Op::Name { key, slot } => {
            let node = tx.load(bed.slots().at(slot))?;
            let place = bed.names().insert(tx, &key_name(key), PRc::null())?;
            tx.link(place, node)?;
        }
        Op::Unname { key } => drop(bed.names().remove(tx, &key_name(key))?),
        _ => {}
    }
    Ok(())
}

/// A thread's key in what all share.
pub(crate) fn shared_key(thread: usize, key: u64) -> u64 {
    key * THREADS as u64 + thread as u64
}

fn on_common<'t>(
    tx: &mut Tx<'t, Gardens>,
    garden: Object<'t, Garden>,
    bed: Object<'t, Bed>,
    op: &Op,
    thread: usize,
    id: &impl Fn(u64) -> u64,
) -> Result<(), Error> {
    let Some(common) = tx.load(garden.common())? else { return Err(tx.cancel()) };
    let Some(bank) = tx.load(garden.bank())? else { return Err(tx.cancel()) };
    match *op {
        Op::Insert { from, count } => {
            for key in from..from + count {
                common.by_key().insert(tx, &shared_key(thread, key), id(key))?;
            }
        }
        Op::Remove { from, count } => {
            for key in from..from + count {
                common.by_key().remove(tx, &shared_key(thread, key))?;
            }
        }
        Op::InOrder { from, count } => {
            for key in from..from + count {
                let node = tx.alloc(Node::new(id(key)))?;
                let place = common.in_order().insert(tx, &shared_key(thread, key), PRc::null())?;
                tx.link(place, node)?;
            }
        }
        Op::OutOfOrder { from, count } => {
            for key in from..from + count {
                common.in_order().remove(tx, &shared_key(thread, key))?;
            }
        }
        Op::Transfer { from, to, amount } => {
            *tx.get_mut(bank.accounts().at(from))? -= amount;
            *tx.get_mut(bank.accounts().at(to))? += amount;
        }
        Op::Befriend { friend } => {
            let friend = tx.load(bank.friends().at(friend))?;
            let id = friend.map_or(Ok(0), |friend| tx.get(friend.id()))?;
            tx.link(bed.friend(), friend)?;
            tx.set(bed.friend_id(), id)?;
        }
        Op::ReplaceFriend { friend } => {
            let node = tx.alloc(Node::new(id(0)))?;
            tx.link(bank.friends().at(friend), node)?;
        }
        _ => {}
    }
    Ok(())
}
