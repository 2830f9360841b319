//! The papers' trees under load: in the model, and on this machine.

use crate::mem::{Mem, RealMem};
use crate::nvm::{Cost, Model, ModelMem, Params, WearSummary};
use crate::trees::{Config, Fixed, KeyKind, Scheme, Solution, Text, Tree, Visitor};
use std::hint::black_box;
use tembo_goals::Error;
use tembo_goals::clock::ThreadTime;
use tembo_goals::workload::{Case, Keys, Operation, RandomKey};
use tembo_pmem::Durability;

/// Operations that are timed together on this machine; the median of such groups counts, so that a pause of
/// the machine does not.
pub(crate) const GROUPS: usize = 20;

/// Keys that a tree can be loaded with at random.
pub trait TreeKey: RandomKey + Send + Sync + std::fmt::Debug {
    /// How a tree keeps them.
    type Kind: KeyKind<Owned = Self>;
    /// Bytes that a key takes outside the nodes, at most.
    const BLOCK_BYTES: u64;
}

impl TreeKey for u64 {
    type Kind = Fixed<u64>;
    const BLOCK_BYTES: u64 = 0;
}

impl TreeKey for Vec<u8> {
    type Kind = Text;
    const BLOCK_BYTES: u64 = 40;
}

/// The cost of operations in the model.
#[derive(Debug, Clone, Copy)]
pub struct ModelRun {
    /// Time of an operation.
    pub ns: f64,
    /// The cost of all of them.
    pub cost: Cost,
    /// How they wore the memory.
    pub wear: WearSummary,
    /// How many they were.
    pub operations: usize,
}

impl ModelRun {
    /// A sum over all operations, for one.
    pub fn each(&self, sum: u64) -> f64 {
        sum as f64 / self.operations as f64
    }
}

/// Runs a case in the model.
///
/// # Errors
///
/// When the solution has no such nodes, or the parameters no such memory.
pub fn in_model<K: TreeKey>(
    solution: &Solution,
    node_lines: u64,
    case: Case,
    keys: &Keys<K>,
    params: &Params,
    medium: &str,
) -> Result<ModelRun, Error> {
    let mem = ModelMem::new(Model::new(params, medium)?, room(node_lines, keys));
    solution.visit(InModel { mem, node_lines, case, keys })
}

struct InModel<'a, K> {
    mem: ModelMem,
    node_lines: u64,
    case: Case,
    keys: &'a Keys<K>,
}

impl<K: TreeKey> Visitor for InModel<'_, K> {
    type Output = Result<ModelRun, Error>;

    fn visit<S: Scheme>(self) -> Self::Output {
        let mut tree = load::<K, S, _>(self.mem, self.node_lines, self.case, self.keys)?;
        let keys = self.keys.of(self.case.operation);
        tree.mem().measure();
        operate(&mut tree, self.case.operation, keys)?;
        let (cost, wear) = tree.mem().finish();
        let ns = tree.mem().ns(cost.cycles) / keys.len() as f64;
        Ok(ModelRun { ns, cost, wear, operations: keys.len() })
    }
}

/// Nanoseconds of an operation on this machine, with the flushes and fences of persistent memory.
///
/// # Errors
///
/// When there is no room, or the solution has no such nodes.
pub fn on_this_machine<K: TreeKey>(
    solution: &Solution,
    node_lines: u64,
    case: Case,
    keys: &Keys<K>,
) -> Result<f64, Error> {
    let mem = RealMem::anonymous(room(node_lines, keys), Durability::Emulated, false)?;
    solution.visit(OnThisMachine { mem, node_lines, case, keys })
}

struct OnThisMachine<'a, K> {
    mem: RealMem,
    node_lines: u64,
    case: Case,
    keys: &'a Keys<K>,
}

impl<K: TreeKey> Visitor for OnThisMachine<'_, K> {
    type Output = Result<f64, Error>;

    fn visit<S: Scheme>(self) -> Self::Output {
        let mut tree = load::<K, S, _>(self.mem, self.node_lines, self.case, self.keys)?;
        let keys = self.keys.of(self.case.operation);
        let mut times = Vec::new();
        for group in keys.chunks(keys.len().div_ceil(GROUPS)) {
            let start = ThreadTime::now();
            operate(&mut tree, self.case.operation, group)?;
            times.push(start.elapsed_ns() as f64 / group.len() as f64);
        }
        Ok(tembo_goals::stats::median(times.into_iter()))
    }
}

/// Bytes of memory for the tree of a run, with all its splits.
fn room<K: TreeKey>(node_lines: u64, keys: &Keys<K>) -> u64 {
    let operations = keys.of(Operation::Insert).len() as u64;
    let loaded = keys.loaded.len() as u64 * (40 + 2 * K::BLOCK_BYTES);
    (loaded + operations * (2 * node_lines * 64 + 2 * K::BLOCK_BYTES) + (64 << 20)).next_multiple_of(1 << 20)
}

fn load<K: TreeKey, S: Scheme, M: Mem>(
    mem: M,
    node_lines: u64,
    case: Case,
    keys: &Keys<K>,
) -> Result<Tree<M, K::Kind, S>, Error> {
    let entries = keys.loaded.iter().cloned().zip(0..);
    Ok(Tree::bulk_load(mem, Config::lines(node_lines), case.fill(), entries)?)
}

/// Does an operation with each key.
#[inline(never)]
fn operate<M: Mem, K: KeyKind, S: Scheme>(
    tree: &mut Tree<M, K, S>,
    operation: Operation,
    keys: &[K::Owned],
) -> Result<(), Error> {
    for key in keys {
        let as_expected = match operation {
            Operation::Search => black_box(tree.get(K::key(key))).is_some(),
            Operation::Insert => tree.insert(K::key(key), 1)?,
            Operation::Delete => tree.remove(K::key(key))?.is_some(),
        };
        assert!(as_expected, "{} {} of {key:?} went wrong", S::NAME, operation.name());
    }
    Ok(())
}
