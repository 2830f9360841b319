//! Scale-free graphs, made as SSCA 2.2 makes them: by R-MAT, which chooses one quarter of the adjacency
//! matrix after the other.

use super::Random;
use rand::Rng;
use rand::seq::SliceRandom;

/// The chances of three of the quarters; the fourth has the rest.
const QUARTERS: [f64; 3] = [0.55, 0.1, 0.1];
/// Edges for each vertex.
pub(super) const EDGES_EACH: usize = 8;

/// An edge with a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Edge {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) weight: u32,
}

/// The edges of a graph of 2^`scale` vertices, eight for each, with weights from 1 to 2^`scale`; an edge may
/// be there more than once, and may lead to where it comes from. Vertices and edges are shuffled, so that
/// their numbers say nothing.
pub(super) fn edges(scale: u32, random: &mut Random) -> Vec<Edge> {
    let vertices = 1_u32 << scale;
    let mut names: Vec<u32> = (0..vertices).collect();
    names.shuffle(random);
    let mut edges: Vec<Edge> = (0..vertices as usize * EDGES_EACH)
        .map(|_| {
            let (from, to) = place(scale, random);
            let weight = random.random_range(1..=vertices);
            Edge { from: names[from as usize], to: names[to as usize], weight }
        })
        .collect();
    edges.shuffle(random);
    edges
}

fn place(scale: u32, random: &mut Random) -> (u32, u32) {
    let (mut from, mut to) = (0, 0);
    for _ in 0..scale {
        let mut chance: f64 = random.random();
        let mut quarter = 0;
        while quarter < 3 && chance >= QUARTERS[quarter] {
            chance -= QUARTERS[quarter];
            quarter += 1;
        }
        (from, to) = (from << 1 | quarter as u32 >> 1, to << 1 | quarter as u32 & 1);
    }
    (from, to)
}

/// The edges of a torus of 2^`scale` vertices, each with one to its four neighbours, of which the betweenness
/// centrality is known: what SSCA 2.2 verifies with.
pub(super) fn torus(scale: u32) -> Vec<Edge> {
    let (rows, columns) = (1_u32 << (scale / 2), 1_u32 << scale.div_ceil(2));
    let at = |row: u32, column: u32| row % rows * columns + column % columns;
    let neighbours = |row: u32, column: u32| {
        [at(row + 1, column), at(row + rows - 1, column), at(row, column + 1), at(row, column + columns - 1)]
    };
    // No weight is a multiple of eight: such edges do not count.
    let from_each = |row: u32, column: u32| {
        neighbours(row, column).map(|to| Edge { from: at(row, column), to, weight: 1 })
    };
    (0..rows).flat_map(|row| (0..columns).flat_map(move |column| from_each(row, column))).collect()
}

/// The betweenness centrality of every vertex of that torus: the sum of its distances to the others, less one
/// for each.
pub(super) fn torus_centrality(scale: u32) -> f64 {
    let (rows, columns) = (1_u64 << (scale / 2), 1_u64 << scale.div_ceil(2));
    let way = |at: u64, of: u64| at.min(of - at);
    let sum: u64 = (0..rows).flat_map(|r| (0..columns).map(move |c| way(r, rows) + way(c, columns))).sum();
    (sum - (rows * columns - 1)) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn few_vertices_have_many_edges() {
        let edges = edges(10, &mut Random::seed_from_u64(1));
        assert_eq!(edges.len(), 8 << 10);
        let mut degrees = vec![0; 1 << 10];
        edges.iter().for_each(|edge| degrees[edge.from as usize] += 1);
        degrees.sort_unstable();
        let most: usize = degrees[1000..].iter().sum();
        assert!(most * 8 > edges.len(), "a fortieth of the vertices have {most} of {} edges", edges.len());
        assert!(degrees[512] < 8 && degrees[1023] > 50);
        assert!(edges.iter().all(|edge| (1..=1 << 10).contains(&edge.weight)));
        assert_ne!(edges, super::edges(10, &mut Random::seed_from_u64(2)));
    }

    /// The closed forms of SSCA 2.2, for even and odd scales.
    #[test]
    fn the_centrality_of_a_torus_is_that_of_the_specification() {
        for scale in 4..12_u32 {
            let n = f64::from(1 << scale);
            let closed = match scale % 2 {
                0 => 0.5 * 2_f64.powf(1.5 * f64::from(scale)),
                _ => 0.75 * 2_f64.powf((3.0 * f64::from(scale) - 1.0) / 2.0),
            };
            assert_eq!(torus_centrality(scale), closed - n + 1.0, "scale {scale}");
        }
    }
}
