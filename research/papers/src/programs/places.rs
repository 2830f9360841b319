//! Where a program's heap lies: in a file on this machine, or in the model of a memory.

use super::{Fault, Kind, Random, Size, on_heap, on_layer};
use crate::nvm::{Cost, Listener, Model, Params};
use rand::SeedableRng;
use std::path::PathBuf;
use std::sync::Arc;
use tembo_heap::Layer;
use tembo_pmem::{Durability, Region};
use tembo_pool::{Options, Pool};

/// The paper's memories: as figures and as parameters call them.
pub const MEDIA: [(&str, &str); 3] = [("DRAM", "dram"), ("STTM", "stt-mram"), ("PCM", "pcm")];

/// Room that a heap has to grow in the model.
const ROOM_BYTES: u64 = 64 << 20;

/// A folder in memory, where the system has such a place.
fn folder() -> Result<tempfile::TempDir, Fault> {
    let shared = std::path::Path::new("/dev/shm");
    Ok(if shared.is_dir() { tempfile::tempdir_in(shared)? } else { tempfile::tempdir()? })
}

fn create(path: PathBuf, durability: Durability) -> Result<Pool, Fault> {
    let mut options = Options::new().durability(durability);
    options.create_new = true;
    Ok(Pool::open(path, &options)?)
}

/// A new pool in memory that is gone when it is closed. [`Durability::Emulated`] has the flushes and fences
/// of persistent memory, [`Durability::PageCache`] has none.
///
/// # Errors
///
/// When there is no room, or no flush instruction.
pub fn temporary(durability: Durability) -> Result<Pool, Fault> {
    create(folder()?.path().join("program.pool"), durability)
}

/// A program that was made, as the bytes of its pool, for any number of runs in the model.
#[derive(Debug)]
pub struct Prepared {
    kind: Kind,
    size: Size,
    image: Vec<u8>,
}

/// A modelled memory, and what it is used for.
#[derive(Debug, Clone, Copy)]
pub struct Memory<'a> {
    /// The machine.
    pub params: &'a Params,
    /// The name of its memory.
    pub medium: &'a str,
    /// Which parts of the heap run.
    pub layer: Layer,
}

impl Prepared {
    /// Makes a program.
    ///
    /// # Errors
    ///
    /// The heap's.
    pub fn new(kind: Kind, size: &Size) -> Result<Prepared, Fault> {
        let folder = folder()?;
        let path = folder.path().join("program.pool");
        on_heap(kind, size, create(path.clone(), Durability::PageCache)?, |_| Ok(()))?;
        Ok(Prepared { kind, size: *size, image: std::fs::read(path)? })
    }

    /// Runs so many operations, after a quarter as many that only warm the caches, in the model of a memory.
    /// Nanoseconds that each has spent with the heap's memory, and what all have cost. Instructions and what
    /// the heap keeps in ordinary memory take no time.
    ///
    /// # Errors
    ///
    /// When the parameters have no such memory; the heap's.
    pub fn run(&self, memory: &Memory<'_>, operations: usize, seed: u64) -> Result<(f64, Cost), Fault> {
        let listener = Arc::new(Listener::new(Model::new(memory.params, memory.medium)?, &self.image));
        let max_bytes = self.image.len() as u64 + ROOM_BYTES;
        let region = Region::simulated(&self.image, max_bytes, Some(listener.clone()))?;
        let mut random = Random::seed_from_u64(seed);
        on_layer(self.kind, &self.size, Pool::open_in(region)?, memory.layer, |program| {
            listener.measure();
            program.run(operations.div_ceil(4), &mut random)?;
            listener.measure();
            program.run(operations, &mut random)?;
            // Before the pool is closed, which flushes.
            let (cost, _) = listener.finish();
            Ok((listener.ns(cost.cycles) / operations as f64, cost))
        })
    }

    /// Nanoseconds that durability and each of the [`MEDIA`] add to an operation, to one without durability
    /// in DRAM. `step` is told which is next.
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run).
    pub fn added_ns(
        &self,
        params: &Params,
        operations: usize,
        step: impl Fn(&str),
    ) -> Result<[f64; MEDIA.len()], Fault> {
        let run = |medium, layer| {
            self.run(&Memory { params, medium, layer }, operations, self.size.seed).map(|run| run.0)
        };
        let without = run("dram", Layer::NoDur)?;
        let mut added = [0.0; MEDIA.len()];
        for (added, (name, medium)) in added.iter_mut().zip(MEDIA) {
            step(name);
            *added = (run(medium, Layer::ConcurrentTx)? - without).max(0.0);
        }
        Ok(added)
    }
}

/// Operations in a second, if each takes so much longer than what was measured with so many threads.
pub fn slower(rate: f64, threads: usize, added_ns: f64) -> f64 {
    let threads = threads as f64;
    threads * 1e9 / (threads * 1e9 / rate + added_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A commit costs in the model a fence for each swap with two changed words, and none without durability;
    /// slower memory takes longer.
    #[test]
    fn the_model_sees_what_a_program_does() {
        let params = Params::nv_heaps();
        let prepared = Prepared::new(Kind::Sps, &Size { entries: 1 << 14, ..Size::quick(1) }).unwrap();
        let run = |medium, layer| prepared.run(&Memory { params: &params, medium, layer }, 400, 3).unwrap();
        let (volatile_ns, volatile) = run("dram", Layer::NoDur);
        assert_eq!((volatile.fences, volatile.flushes), (0, 0));
        assert!(volatile.loads >= 800, "a swap loads two words at least: {}", volatile.loads);
        let (dram_ns, dram) = run("dram", Layer::ConcurrentTx);
        assert!((395..=401).contains(&dram.fences), "{}", dram.fences);
        let (sttm_ns, pcm_ns) = (run("stt-mram", Layer::ConcurrentTx).0, run("pcm", Layer::ConcurrentTx).0);
        assert!(
            volatile_ns < dram_ns && dram_ns < sttm_ns && sttm_ns < pcm_ns,
            "{volatile_ns} {dram_ns} {pcm_ns}"
        );
    }
}
