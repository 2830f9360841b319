//! SixDegs: looks for a path of at most six edges between two vertices of a scale-free graph; and changes the
//! graph.
//!
//! An operation is a search, and an edge that is inserted, or removed if it is there. Edges come from a list
//! that is twice as long as the graph, so that the graph stays what it is. In the heap a vertex is an object
//! with a chain of edges, each of which leads on by a weak pointer.

use super::{Fault, Program, Random, lock, not_there, rmat};
use foldhash::fast::FixedState;
use rand::{Rng, SeedableRng};
use std::collections::HashSet;
use std::hint::black_box;
use std::sync::Mutex;
use tembo_heap::{Brand, Heap, Obj, PArr, PRc, PWeak, Persist, ReadTx, Tx};

/// Edges of a path, at most.
const DEGREES: u32 = 6;

/// The edges that the graph may have, each once, the ends in order; the first half it has at the start.
#[derive(Debug)]
pub(super) struct Candidates {
    vertices: u32,
    edges: Vec<(u32, u32)>,
}

impl Candidates {
    pub(super) fn new(scale: u32, seed: u64) -> Candidates {
        let made = rmat::edges(scale, &mut Random::seed_from_u64(seed));
        let mut known = HashSet::new();
        let ends = made.iter().map(|edge| (edge.from.min(edge.to), edge.from.max(edge.to)));
        let edges = ends.filter(|(a, b)| a != b && known.insert((*a, *b))).collect();
        Candidates { vertices: 1 << scale, edges }
    }

    fn at_the_start(&self) -> &[(u32, u32)] {
        &self.edges[..self.edges.len() / 2]
    }

    /// Two vertices to look for a path between, and an edge to change.
    fn choose(&self, random: &mut Random) -> ((u32, u32), (u32, u32)) {
        let vertices = (random.random_range(0..self.vertices), random.random_range(0..self.vertices));
        (vertices, self.edges[random.random_range(0..self.edges.len())])
    }
}

/// The number of edges on a shortest path, if that is at most six. Searches from both ends, always on from
/// where there is less.
pub(super) fn distance<E>(
    from: u32,
    to: u32,
    neighbours: impl Fn(u32, &mut Vec<u32>) -> Result<(), E>,
) -> Result<Option<u32>, E> {
    if from == to {
        return Ok(Some(0));
    }
    let alone = |end| HashSet::<u32, FixedState>::from_iter([end]);
    let mut sides = [from, to].map(|end| (alone(end), vec![end]));
    let mut found = Vec::new();
    for length in 1..=DEGREES {
        let [(seen_a, front_a), (seen_b, front_b)] = &mut sides;
        let (seen, front, others) = if front_a.len() <= front_b.len() {
            (seen_a, front_a, seen_b)
        } else {
            (seen_b, front_b, seen_a)
        };
        let mut next = Vec::new();
        for vertex in front.drain(..) {
            found.clear();
            neighbours(vertex, &mut found)?;
            for other in &found {
                if others.contains(other) {
                    return Ok(Some(length));
                }
                if seen.insert(*other) {
                    next.push(*other);
                }
            }
        }
        *front = next;
    }
    Ok(None)
}

/// A vertex in the heap.
#[derive(Persist)]
#[repr(C)]
struct Vertex {
    number: u64,
    edges: PRc<Edge>,
}

/// One direction of an edge.
#[derive(Persist)]
#[repr(C)]
struct Edge {
    to: PWeak<Vertex>,
    next: PRc<Edge>,
}

/// The root object of the program's heap.
#[derive(Default, Persist)]
#[repr(C)]
pub(super) struct Root {
    vertices: PArr<PRc<Vertex>>,
}

type VertexObj<'t, B> = Obj<'t, B, Vertex>;

fn vertex<'t, B: Brand>(
    tx: &ReadTx<'t, B>,
    root: Obj<'t, B, Root>,
    number: u32,
) -> Result<VertexObj<'t, B>, Fault> {
    let vertices = tx.array(root.vertices())?.ok_or_else(not_there)?;
    tx.load(vertices.at(number as usize))?.ok_or_else(not_there)
}

fn neighbours<'t, B: Brand>(
    tx: &ReadTx<'t, B>,
    root: Obj<'t, B, Root>,
    number: u32,
    found: &mut Vec<u32>,
) -> Result<(), Fault> {
    let mut next = tx.load(vertex(tx, root, number)?.edges())?;
    while let Some(edge) = next {
        let to = tx.upgrade(edge.to())?.ok_or_else(not_there)?;
        found.push(tx.get(to.number())? as u32);
        next = tx.load(edge.next())?;
    }
    Ok(())
}

/// Takes the edge out of a vertex's chain; or adds it.
fn toggle_one<'t, B: Brand>(
    tx: &mut Tx<'t, B>,
    from: VertexObj<'t, B>,
    to: VertexObj<'t, B>,
) -> Result<(), Fault> {
    let mut slot = from.edges();
    while let Some(edge) = tx.load(slot)? {
        if tx.upgrade(edge.to())? == Some(to) {
            let rest = tx.load(edge.next())?;
            tx.link(slot, rest)?;
            return Ok(tx.delete_by_hand(edge)?);
        }
        slot = edge.next();
    }
    let edge = tx.alloc(Edge { to: PWeak::null(), next: PRc::null() })?;
    tx.link_weak(edge.to(), to)?;
    Ok(tx.link(slot, edge)?)
}

/// The program on a heap.
pub(super) struct SixDegs<B: Brand> {
    heap: Heap<B, Root>,
    candidates: Candidates,
}

impl<B: Brand> SixDegs<B> {
    pub(super) fn open(heap: Heap<B, Root>, scale: u32, seed: u64) -> Result<Self, Fault> {
        let candidates = Candidates::new(scale, seed);
        let program = SixDegs { heap, candidates };
        let is_new = program.heap.write(|tx, root| {
            if tx.array(root.vertices())?.is_some() {
                return Ok(false);
            }
            let vertices = tx.alloc_array(program.candidates.vertices as usize, |_| PRc::null())?;
            tx.link_array(root.vertices(), vertices)?;
            for number in 0..vertices.len() {
                let vertex = tx.alloc(Vertex { number: number as u64, edges: PRc::null() })?;
                tx.link(vertices.at(number), vertex)?;
            }
            Ok(true)
        })?;
        if is_new {
            program.candidates.at_the_start().iter().try_for_each(|edge| program.toggle(*edge))?;
        }
        Ok(program)
    }

    fn toggle(&self, (a, b): (u32, u32)) -> Result<(), Fault> {
        self.heap.try_write(|tx, root| {
            let (a, b) = (vertex(tx, root, a)?, vertex(tx, root, b)?);
            toggle_one(tx, a, b)?;
            toggle_one(tx, b, a)
        })
    }

    fn distance(&self, from: u32, to: u32) -> Result<Option<u32>, Fault> {
        self.heap.try_read(|tx, root| {
            distance(from, to, |vertex, found: &mut Vec<u32>| neighbours(tx, root, vertex, found))
        })
    }
}

impl<B: Brand> Program for SixDegs<B> {
    fn run(&self, operations: usize, random: &mut Random) -> Result<(), Fault> {
        for _ in 0..operations {
            let ((from, to), edge) = self.candidates.choose(random);
            black_box(self.distance(from, to)?);
            self.toggle(edge)?;
        }
        Ok(())
    }

    fn state(&self) -> Result<Vec<u64>, Fault> {
        let count = self.candidates.vertices;
        let ends = self.heap.try_read::<_, Fault>(|tx, root| {
            ends_of(count, |vertex, found| neighbours(tx, root, vertex, found))
        })?;
        edges_of(ends)
    }
}

/// Both ends of every edge, as its vertices know them.
fn ends_of(
    vertices: u32,
    neighbours: impl Fn(u32, &mut Vec<u32>) -> Result<(), Fault>,
) -> Result<Vec<(u32, u32)>, Fault> {
    let (mut ends, mut found) = (Vec::new(), Vec::new());
    for vertex in 0..vertices {
        found.clear();
        neighbours(vertex, &mut found)?;
        ends.extend(found.iter().map(|to| (vertex, *to)));
    }
    Ok(ends)
}

/// The edges, if both ends know of each, and know of it once.
fn edges_of(mut ends: Vec<(u32, u32)>) -> Result<Vec<u64>, Fault> {
    ends.sort_unstable();
    let all = ends.len();
    ends.dedup();
    if ends.len() != all {
        return Err("an edge is there twice".into());
    }
    if let Some((from, to)) = ends.iter().find(|(from, to)| ends.binary_search(&(*to, *from)).is_err()) {
        return Err(format!("the edge from {from} to {to} has one direction").into());
    }
    Ok(ends.iter().map(|(from, to)| u64::from(*from) << 32 | u64::from(*to)).collect())
}

/// The program in ordinary memory: the edges of each vertex in a vector.
pub(super) struct InDram {
    edges: Mutex<Vec<Vec<u32>>>,
    candidates: Candidates,
}

fn toggle_in(edges: &mut [Vec<u32>], (a, b): (u32, u32)) {
    for (from, to) in [(a, b), (b, a)] {
        let edges = &mut edges[from as usize];
        match edges.iter().position(|other| *other == to) {
            Some(at) => _ = edges.remove(at),
            None => edges.push(to),
        }
    }
}

fn neighbours_in(edges: &[Vec<u32>], vertex: u32, found: &mut Vec<u32>) {
    found.extend(&edges[vertex as usize]);
}

impl InDram {
    pub(super) fn new(scale: u32, seed: u64) -> InDram {
        let candidates = Candidates::new(scale, seed);
        let mut edges = vec![Vec::new(); candidates.vertices as usize];
        candidates.at_the_start().iter().for_each(|edge| toggle_in(&mut edges, *edge));
        InDram { edges: Mutex::new(edges), candidates }
    }
}

impl Program for InDram {
    fn run(&self, operations: usize, random: &mut Random) -> Result<(), Fault> {
        let mut edges = lock(&self.edges);
        for _ in 0..operations {
            let ((from, to), edge) = self.candidates.choose(random);
            let neighbours = |vertex, found: &mut Vec<u32>| -> Result<(), Fault> {
                neighbours_in(&edges, vertex, found);
                Ok(())
            };
            black_box(distance(from, to, neighbours)?);
            toggle_in(&mut edges, edge);
        }
        Ok(())
    }

    fn state(&self) -> Result<Vec<u64>, Fault> {
        let edges = lock(&self.edges);
        let ends = ends_of(self.candidates.vertices, |vertex, found| {
            neighbours_in(&edges, vertex, found);
            Ok(())
        })?;
        edges_of(ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distances by Floyd and Warshall's algorithm, which has nothing in common with a search.
    #[test]
    fn distances_are_those_of_shortest_paths() {
        for seed in 0..4 {
            let candidates = Candidates::new(6, seed);
            let count = candidates.vertices as usize;
            let mut edges = vec![Vec::new(); count];
            // Few enough that some vertices are far from each other.
            candidates.edges.iter().take(55).for_each(|edge| toggle_in(&mut edges, *edge));
            let mut expected = vec![vec![99; count]; count];
            for (from, row) in expected.iter_mut().enumerate() {
                row[from] = 0;
                edges[from].iter().for_each(|to| row[*to as usize] = 1);
            }
            for middle in 0..count {
                for from in 0..count {
                    for to in 0..count {
                        expected[from][to] =
                            expected[from][to].min(expected[from][middle] + expected[middle][to]);
                    }
                }
            }
            assert!(expected.iter().flatten().any(|distance| (7..99).contains(distance)) || seed > 0);
            for (from, row) in expected.iter().enumerate() {
                for (to, distance) in row.iter().enumerate() {
                    let found = super::distance(from as u32, to as u32, |vertex, found| {
                        neighbours_in(&edges, vertex, found);
                        Ok::<_, Fault>(())
                    });
                    let expected = Some(*distance).filter(|distance| *distance <= DEGREES);
                    assert_eq!(found.unwrap(), expected, "from {from} to {to}, seed {seed}");
                }
            }
        }
    }
}
