//! SSCA: the graph analysis of HPCS SSCA 2.2 on a graph in the heap.
//!
//! Four kernels: the graph is built from a list of edges; the edges with the largest weight are found; so is
//! what lies near each of them; and the betweenness centrality of vertices is added up, source by source
//! (Brandes), along edges whose weight is not a multiple of eight. An operation is a source of the last
//! kernel: it reads the graph in one transaction, and adds to the scores, and to the number of times that the
//! source was done, in another. Whatever happens in between, the scores are those of the sources that are
//! done.
//!
//! The specification's verification is a graph of which the centrality is known: [`rmat::torus`].

use super::{Fault, Program, Random, lock, not_there, rmat};
use rand::{Rng, SeedableRng};
use std::sync::Mutex;
use tembo_heap::{Arr, Brand, Heap, Obj, PArr, Persist, Plain, ReadTx, Ref};
use tembo_pool::Pool;

/// Edges from an edge with the largest weight that belong to what lies near it.
const NEAR: usize = 3;
/// Vertices that one transaction of the first kernel gives their edges.
const VERTICES_EACH: usize = 64;

/// An edge of a vertex, in the heap and elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Persist, Plain)]
#[repr(C)]
pub(super) struct Edge {
    to: u32,
    weight: u32,
}

/// An edge with the largest weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Persist, Plain)]
#[repr(C)]
pub(super) struct Heavy {
    from: u32,
    to: u32,
}

/// The root object of the program's heap.
#[derive(Debug, Default, Persist)]
#[repr(C)]
pub(super) struct Root {
    /// The edges of each vertex.
    edges: PArr<PArr<Edge>>,
    heavy: PArr<Heavy>,
    /// The vertices near each of the heavy edges.
    near: PArr<PArr<u32>>,
    scores: PArr<f64>,
    /// How often each source was done.
    done: PArr<u64>,
}

/// A graph to be analysed: the edges of each vertex.
type Graph = Vec<Vec<Edge>>;

/// The generator's graph.
fn scale_free(scale: u32, seed: u64) -> Graph {
    by_vertex(scale, &rmat::edges(scale, &mut Random::seed_from_u64(seed)))
}

fn by_vertex(scale: u32, edges: &[rmat::Edge]) -> Graph {
    let mut graph = vec![Vec::new(); 1 << scale];
    edges.iter().for_each(|e| graph[e.from as usize].push(Edge { to: e.to, weight: e.weight }));
    graph
}

/// Tells the edges of a vertex.
trait Edges: Fn(u32, &mut Vec<Edge>) -> Result<(), Fault> {}
impl<F: Fn(u32, &mut Vec<Edge>) -> Result<(), Fault>> Edges for F {}

/// The second kernel.
fn heaviest(vertices: usize, edges: impl Edges) -> Result<Vec<Heavy>, Fault> {
    let (mut heavy, mut most, mut found) = (Vec::new(), 0, Vec::new());
    for from in 0..vertices as u32 {
        found.clear();
        edges(from, &mut found)?;
        for edge in &found {
            if edge.weight > most {
                most = edge.weight;
                heavy.clear();
            }
            if edge.weight == most {
                heavy.push(Heavy { from, to: edge.to });
            }
        }
    }
    Ok(heavy)
}

/// The third kernel, for one edge: the vertices that lie near it, in the order in which they are found.
fn near(vertices: usize, heavy: Heavy, edges: impl Edges) -> Result<Vec<u32>, Fault> {
    let mut seen = vec![false; vertices];
    let mut order = vec![heavy.from];
    seen[heavy.from as usize] = true;
    if !std::mem::replace(&mut seen[heavy.to as usize], true) {
        order.push(heavy.to);
    }
    let mut found = Vec::new();
    let mut begin = order.len() - 1;
    for _ in 0..NEAR {
        let end = order.len();
        for at in begin..end {
            found.clear();
            edges(order[at], &mut found)?;
            for edge in &found {
                if !std::mem::replace(&mut seen[edge.to as usize], true) {
                    order.push(edge.to);
                }
            }
        }
        begin = end;
    }
    Ok(order)
}

/// The fourth kernel, for one source: what it adds to the score of each vertex.
fn dependencies(vertices: usize, source: u32, edges: impl Edges) -> Result<Vec<f64>, Fault> {
    const FAR: u32 = u32::MAX;
    let mut depth = vec![FAR; vertices];
    let mut paths = vec![0.0; vertices];
    let mut order = vec![source];
    // Edges of shortest paths, in the order of their beginnings.
    let mut ways: Vec<(u32, u32)> = Vec::new();
    (depth[source as usize], paths[source as usize]) = (0, 1.0);
    let (mut at, mut found) = (0, Vec::new());
    while let Some(from) = order.get(at).copied() {
        at += 1;
        found.clear();
        edges(from, &mut found)?;
        let next = depth[from as usize] + 1;
        for edge in found.iter().filter(|edge| !edge.weight.is_multiple_of(8)) {
            let to = edge.to as usize;
            if depth[to] == FAR {
                depth[to] = next;
                order.push(edge.to);
            }
            if depth[to] == next {
                paths[to] += paths[from as usize];
                ways.push((from, edge.to));
            }
        }
    }
    let mut sums = vec![0.0; vertices];
    for (from, to) in ways.into_iter().rev() {
        let (from, to) = (from as usize, to as usize);
        sums[from] += paths[from] / paths[to] * (1.0 + sums[to]);
    }
    sums[source as usize] = 0.0;
    Ok(sums)
}

/// Whether scores are what the sources that were done add up to.
fn verify(scores: &[f64], done: &[u64], edges: impl Edges) -> Result<(), Fault> {
    let mut expected = vec![0.0; scores.len()];
    for (source, times) in done.iter().enumerate().filter(|(_, times)| **times > 0) {
        let sums = dependencies(scores.len(), source as u32, &edges)?;
        expected.iter_mut().zip(sums).for_each(|(score, sum)| *score += sum * *times as f64);
    }
    for (vertex, (score, expected)) in scores.iter().zip(expected).enumerate() {
        if (score - expected).abs() > 1e-9 * (1.0 + expected) {
            return Err(format!("vertex {vertex} scores {score}; its sources give it {expected}").into());
        }
    }
    Ok(())
}

/// The findings of the analysis of a graph, as a program's state.
fn state(
    heavy: &[Heavy],
    near: &[Vec<u32>],
    scores: &[f64],
    done: &[u64],
    edges: impl Edges,
) -> Result<Vec<u64>, Fault> {
    verify(scores, done, edges)?;
    let mut state: Vec<u64> = heavy.iter().map(|e| u64::from(e.from) << 32 | u64::from(e.to)).collect();
    state.extend(near.iter().flatten().map(|vertex| u64::from(*vertex)));
    state.extend(done);
    Ok(state)
}

type RootObj<'t, B> = Obj<'t, B, Root>;

/// An array of the root.
fn array<'t, B: Brand, T: Persist>(
    tx: &ReadTx<'t, B>,
    slot: Ref<'t, B, PArr<T>>,
) -> Result<Arr<'t, B, T>, Fault> {
    tx.array(slot)?.ok_or_else(not_there)
}

fn edges_of<'t, B: Brand>(
    tx: &ReadTx<'t, B>,
    root: RootObj<'t, B>,
    vertex: u32,
    found: &mut Vec<Edge>,
) -> Result<(), Fault> {
    if let Some(edges) = tx.array(array(tx, root.edges())?.at(vertex as usize))? {
        for at in 0..edges.len() {
            found.push(tx.get(edges.at(at))?);
        }
    }
    Ok(())
}

fn values<'t, B: Brand, T: Plain>(tx: &ReadTx<'t, B>, array: Arr<'t, B, T>) -> Result<Vec<T>, Fault> {
    (0..array.len()).map(|at| Ok(tx.get(array.at(at))?)).collect()
}

/// The program on a heap.
pub(super) struct Ssca<B: Brand> {
    heap: Heap<B, Root>,
    vertices: usize,
}

impl<B: Brand> Ssca<B> {
    /// Opens the analysis, or makes the graph and runs the first three kernels on it.
    pub(super) fn open(heap: Heap<B, Root>, scale: u32, seed: u64) -> Result<Self, Fault> {
        Self::open_with(heap, 1 << scale, || scale_free(scale, seed))
    }

    fn open_with(heap: Heap<B, Root>, vertices: usize, make: impl Fn() -> Graph) -> Result<Self, Fault> {
        let program = Ssca { heap, vertices };
        if program.heap.read(|tx, root| Ok(tx.array(root.near())?.is_none()))? {
            program.build(&make())?;
            program.find_heavy()?;
            program.find_near()?;
        }
        Ok(program)
    }

    /// The first kernel.
    fn build(&self, graph: &Graph) -> Result<(), Fault> {
        self.heap.write(|tx, root| {
            let edges = tx.alloc_array(graph.len(), |_| PArr::null())?;
            tx.link_array(root.edges(), edges)?;
            let scores = tx.alloc_array(graph.len(), |_| 0.0)?;
            tx.link_array(root.scores(), scores)?;
            let done = tx.alloc_array(graph.len(), |_| 0)?;
            tx.link_array(root.done(), done)
        })?;
        for (number, some) in graph.chunks(VERTICES_EACH).enumerate() {
            self.heap.write(|tx, root| {
                let all = array(tx, root.edges())?;
                for (at, edges) in some.iter().enumerate().filter(|(_, edges)| !edges.is_empty()) {
                    let stored = tx.alloc_array(edges.len(), |i| edges[i])?;
                    tx.link_array(all.at(number * VERTICES_EACH + at), stored)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn find_heavy(&self) -> Result<(), Fault> {
        let heavy = self.heap.try_read::<_, Fault>(|tx, root| {
            heaviest(self.vertices, |v, found| edges_of(tx, root, v, found))
        })?;
        self.heap.try_write(|tx, root| {
            let stored = tx.alloc_array(heavy.len(), |i| heavy[i])?;
            Ok(tx.link_array(root.heavy(), stored)?)
        })
    }

    fn find_near(&self) -> Result<(), Fault> {
        self.heap.try_write(|tx, root| {
            let heavy = array(tx, root.heavy())?;
            let all = tx.alloc_array(heavy.len(), |_| PArr::null())?;
            for at in 0..heavy.len() {
                let edge = tx.get(heavy.at(at))?;
                let near = near(self.vertices, edge, |v, found| edges_of(tx, root, v, found))?;
                let stored = tx.alloc_array(near.len(), |i| near[i])?;
                tx.link_array(all.at(at), stored)?;
            }
            Ok(tx.link_array(root.near(), all)?)
        })
    }

    /// The fourth kernel, for one source.
    fn score(&self, source: u32) -> Result<(), Fault> {
        let sums = self.heap.try_read::<_, Fault>(|tx, root| {
            dependencies(self.vertices, source, |v, found| edges_of(tx, root, v, found))
        })?;
        let sums = &sums;
        self.heap.try_write(|tx, root| {
            let (scores, done) = (array(tx, root.scores())?, array(tx, root.done())?);
            for (vertex, sum) in sums.iter().enumerate().filter(|(_, sum)| **sum > 0.0) {
                *tx.get_mut(scores.at(vertex))? += sum;
            }
            *tx.get_mut(done.at(source as usize))? += 1;
            Ok(())
        })
    }
}

impl<B: Brand> Program for Ssca<B> {
    fn run(&self, operations: usize, random: &mut Random) -> Result<(), Fault> {
        (0..operations).try_for_each(|_| self.score(random.random_range(0..self.vertices as u32)))
    }

    fn state(&self) -> Result<Vec<u64>, Fault> {
        self.heap.try_read(|tx, root| {
            let heavy = values(tx, array(tx, root.heavy())?)?;
            let near_each = array(tx, root.near())?;
            let near = (0..near_each.len()).map(|at| values(tx, array(tx, near_each.at(at))?));
            let near = near.collect::<Result<Vec<_>, Fault>>()?;
            let (scores, done) =
                (values(tx, array(tx, root.scores())?)?, values(tx, array(tx, root.done())?)?);
            state(&heavy, &near, &scores, &done, |v, found| edges_of(tx, root, v, found))
        })
    }
}

/// The specification's verification: on a torus of 2^`scale` vertices in the heap of an empty pool, the
/// fourth kernel with every source once must give the centrality that is known.
///
/// # Errors
///
/// When it gives another, with the vertex; the heap's.
pub fn verify_torus(pool: Pool, scale: u32) -> Result<(), Fault> {
    Heap::try_with_pool(pool, |heap| {
        let torus = || by_vertex(scale, &rmat::torus(scale));
        let program = Ssca::open_with(heap, 1 << scale, torus)?;
        (0..1 << scale).try_for_each(|source| program.score(source))?;
        let scores = program.heap.try_read::<_, Fault>(|tx, root| values(tx, array(tx, root.scores())?))?;
        let expected = rmat::torus_centrality(scale);
        match scores.iter().position(|score: &f64| (score - expected).abs() > 1e-9 * expected) {
            Some(vertex) => {
                Err(format!("vertex {vertex} of the torus scores {}, not {expected}", scores[vertex]).into())
            }
            None => program.state().map(drop),
        }
    })
}

/// The program in ordinary memory.
pub(super) struct InDram {
    graph: Graph,
    heavy: Vec<Heavy>,
    near: Vec<Vec<u32>>,
    /// Scores, and how often each source was done.
    scores: Mutex<(Vec<f64>, Vec<u64>)>,
}

impl InDram {
    pub(super) fn new(scale: u32, seed: u64) -> Result<InDram, Fault> {
        let graph = scale_free(scale, seed);
        let heavy = heaviest(graph.len(), edges_in(&graph))?;
        let each = |edge: &Heavy| near(graph.len(), *edge, edges_in(&graph));
        let near = heavy.iter().map(each).collect::<Result<_, Fault>>()?;
        let scores = Mutex::new((vec![0.0; graph.len()], vec![0; graph.len()]));
        Ok(InDram { graph, heavy, near, scores })
    }
}

fn edges_in(graph: &Graph) -> impl Edges {
    |vertex, found: &mut Vec<Edge>| {
        found.extend(&graph[vertex as usize]);
        Ok(())
    }
}

impl Program for InDram {
    fn run(&self, operations: usize, random: &mut Random) -> Result<(), Fault> {
        let mut held = lock(&self.scores);
        let (scores, done) = &mut *held;
        for _ in 0..operations {
            let source = random.random_range(0..self.graph.len() as u32);
            let sums = dependencies(self.graph.len(), source, edges_in(&self.graph))?;
            scores.iter_mut().zip(sums).for_each(|(score, sum)| *score += sum);
            done[source as usize] += 1;
        }
        Ok(())
    }

    fn state(&self) -> Result<Vec<u64>, Fault> {
        let held = lock(&self.scores);
        state(&self.heavy, &self.near, &held.0, &held.1, edges_in(&self.graph))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::tests::pool;

    #[test]
    fn the_centrality_of_a_torus_is_the_known_one() {
        for scale in [4, 5, 8] {
            verify_torus(pool(), scale).unwrap();
        }
    }

    /// The second and the third kernel, on a graph that one can look at: 0 to 1 is heaviest, and the ring
    /// goes on from there.
    #[test]
    fn what_is_heaviest_and_what_lies_near_it_is_found() {
        let mut graph: Graph = (0..8).map(|at| vec![Edge { to: (at + 1) % 8, weight: at + 1 }]).collect();
        graph[0][0].weight = 9;
        let heavy = heaviest(8, edges_in(&graph)).unwrap();
        assert_eq!(heavy, [Heavy { from: 0, to: 1 }]);
        assert_eq!(near(8, heavy[0], edges_in(&graph)).unwrap(), [0, 1, 2, 3, 4]);
        graph[3].push(Edge { to: 3, weight: 9 });
        let heavy = heaviest(8, edges_in(&graph)).unwrap();
        assert_eq!(heavy, [Heavy { from: 0, to: 1 }, Heavy { from: 3, to: 3 }]);
        assert_eq!(near(8, heavy[1], edges_in(&graph)).unwrap(), [3, 4, 5, 6]);
    }

    /// Edges whose weight is a multiple of eight do not count, and two edges side by side are two ways.
    #[test]
    fn dependencies_are_those_of_shortest_paths() {
        let edge = |to, weight| Edge { to, weight };
        // From 0 to 3 by 1, twice, and by 2; 4 only by an edge that does not count.
        let graph = vec![
            vec![edge(1, 1), edge(1, 2), edge(2, 1)],
            vec![edge(3, 1)],
            vec![edge(3, 1), edge(4, 8)],
            vec![],
            vec![],
        ];
        let sums = dependencies(5, 0, edges_in(&graph)).unwrap();
        let expected = [0.0, 2.0 / 3.0, 1.0 / 3.0, 0.0, 0.0];
        assert!(sums.iter().zip(expected).all(|(sum, expected)| (sum - expected).abs() < 1e-12), "{sums:?}");
        assert!(verify(&sums, &[1, 0, 0, 0, 0], edges_in(&graph)).is_ok());
        assert!(verify(&sums, &[2, 0, 0, 0, 0], edges_in(&graph)).is_err());
    }
}
