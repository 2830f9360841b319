//! The solutions by name, and how to get from a name to a type.

use super::{
    BitmapLog, BitmapShadow, BtreeLog, BtreeShadow, Named, Scheme, UnsortedLog, UnsortedShadow, Volatile,
    WbTree, WbTreeBitmapLeaf, WbTreeSlotOnly,
};

/// How a solution keeps its tree through a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// It does not.
    Volatile,
    /// By undo-redo logging.
    Logging,
    /// By shadowing.
    Shadowing,
    /// By atomic writes: the wB+-Trees.
    Atomic,
}

/// One of the paper's trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Solution {
    /// Its name, as in the paper's figures.
    pub name: &'static str,
    /// How it keeps its tree.
    pub family: Family,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Volatile,
    BtreeLog,
    UnsortedLog,
    BitmapLog,
    BtreeShadow,
    UnsortedShadow,
    BitmapShadow,
    WbTree,
    WbTreeBitmapLeaf,
    WbTreeSlotOnly,
}

/// A function of a scheme that is named at run time.
///
/// ```
/// use tembo_bench::mem::RealMem;
/// use tembo_bench::trees::{Config, Fixed, Scheme, Tree, Visitor, all};
///
/// struct Fill;
/// impl Visitor for Fill {
///     type Output = usize;
///     fn visit<S: Scheme>(self) -> usize {
///         let memory = tembo_pmem::Region::simulated(&[0; 1 << 20], 1 << 20, None).map(RealMem::new);
///         let sorted = (0..1000).map(|key| (key, key));
///         let tree = Tree::<_, Fixed<u64>, S>::bulk_load(memory.unwrap(), Config::lines(4), 0.7, sorted);
///         tree.unwrap().entries().len()
///     }
/// }
/// for solution in all().iter().filter(|s| s.supports(4)) {
///     assert_eq!(solution.visit(Fill), 1000, "{}", solution.name);
/// }
/// ```
pub trait Visitor {
    /// The result.
    type Output;
    /// Does it with the scheme `S`.
    fn visit<S: Scheme>(self) -> Self::Output;
}

const fn solution(family: Family, kind: Kind) -> Solution {
    let name = match kind {
        Kind::Volatile => Volatile::NAME,
        Kind::BtreeLog => BtreeLog::NAME,
        Kind::UnsortedLog => UnsortedLog::NAME,
        Kind::BitmapLog => BitmapLog::NAME,
        Kind::BtreeShadow => BtreeShadow::NAME,
        Kind::UnsortedShadow => UnsortedShadow::NAME,
        Kind::BitmapShadow => BitmapShadow::NAME,
        Kind::WbTree => WbTree::NAME,
        Kind::WbTreeBitmapLeaf => WbTreeBitmapLeaf::NAME,
        Kind::WbTreeSlotOnly => WbTreeSlotOnly::NAME,
    };
    Solution { name, family, kind }
}

const ALL: [Solution; 10] = [
    solution(Family::Volatile, Kind::Volatile),
    solution(Family::Logging, Kind::BtreeLog),
    solution(Family::Logging, Kind::UnsortedLog),
    solution(Family::Logging, Kind::BitmapLog),
    solution(Family::Shadowing, Kind::BtreeShadow),
    solution(Family::Shadowing, Kind::UnsortedShadow),
    solution(Family::Shadowing, Kind::BitmapShadow),
    solution(Family::Atomic, Kind::WbTree),
    solution(Family::Atomic, Kind::WbTreeBitmapLeaf),
    solution(Family::Atomic, Kind::WbTreeSlotOnly),
];

/// The volatile tree and the nine persistent ones of the paper's Table 3, in its order.
pub fn all() -> &'static [Solution] {
    &ALL
}

/// The solution with a name.
pub fn named(name: &str) -> Option<&'static Solution> {
    all().iter().find(|solution| solution.name == name)
}

impl Solution {
    /// Whether anything is kept through a crash.
    pub fn is_persistent(&self) -> bool {
        self.family != Family::Volatile
    }

    /// Whether the paper has it with nodes of this size: slot-only nodes have no use for more than two lines,
    /// and with that size the paper uses no other wB+-Tree.
    pub fn supports(&self, node_lines: u64) -> bool {
        match self.kind {
            Kind::WbTreeSlotOnly => node_lines == 2,
            Kind::WbTree | Kind::WbTreeBitmapLeaf => (3..=16).contains(&node_lines),
            _ => (2..=16).contains(&node_lines),
        }
    }

    /// Calls the visitor with the scheme.
    pub fn visit<V: Visitor>(&self, visitor: V) -> V::Output {
        match self.kind {
            Kind::Volatile => visitor.visit::<Volatile>(),
            Kind::BtreeLog => visitor.visit::<BtreeLog>(),
            Kind::UnsortedLog => visitor.visit::<UnsortedLog>(),
            Kind::BitmapLog => visitor.visit::<BitmapLog>(),
            Kind::BtreeShadow => visitor.visit::<BtreeShadow>(),
            Kind::UnsortedShadow => visitor.visit::<UnsortedShadow>(),
            Kind::BitmapShadow => visitor.visit::<BitmapShadow>(),
            Kind::WbTree => visitor.visit::<WbTree>(),
            Kind::WbTreeBitmapLeaf => visitor.visit::<WbTreeBitmapLeaf>(),
            Kind::WbTreeSlotOnly => visitor.visit::<WbTreeSlotOnly>(),
        }
    }
}
