//! The table and the figures of the NV-heaps paper: what its programs ([`programs`](crate::programs)) do on
//! this machine, and in the model of its memories.

pub(super) mod figure4;
pub(super) mod figure5;
pub(super) mod figure6;
pub(super) mod table1;

use super::Setup;
use crate::programs::{Kind, Load, Size};

/// Numbers of threads: powers of two, as far as this machine has cores.
fn thread_counts() -> Vec<usize> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    [1, 2, 4, 8].into_iter().filter(|threads| *threads <= cores.max(2)).collect()
}

fn threads_name(threads: usize) -> String {
    if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") }
}

fn size(setup: &Setup) -> Size {
    if setup.quick { Size::quick(setup.seed) } else { Size::full(setup.seed) }
}

/// How long a program is run: some tenths of a second for each round.
fn load(setup: &Setup, kind: Kind) -> Load {
    let operations = match kind {
        Kind::Sps | Kind::HashTable => 200_000,
        Kind::BTree | Kind::RbTree => 100_000,
        Kind::SixDegs => 2_000,
        Kind::Ssca => 400,
    };
    match setup.quick {
        true => Load { operations: operations / 200, rounds: 1, seed: setup.seed },
        false => Load { operations, rounds: 5, seed: setup.seed },
    }
}
