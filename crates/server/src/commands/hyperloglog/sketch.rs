//! A sketch as it is stored in a string, byte for byte as in Redis.
//!
//! ```text
//!   sketch   = "HYLL" encoding 0 0 0 count_le registers
//!   encoding = 0: dense, 1: sparse
//!   count    = 8 bytes: the estimate, if the highest bit of the last one is clear
//! ```
//!
//! The registers are those of [`registers`](super::registers). A sketch begins sparse. It becomes dense when
//! a register is to have more than 32, or when it would become longer than `hll-sparse-max-bytes`, and stays
//! so. The bytes of a sparse one depend on the order in which its registers were raised.
//!
//! Clients can store any string, so that all that is read here may be wrong; what does not have exactly
//! 16,384 registers is corrupt.

use std::ops::Range;

use super::estimate::{Histogram, estimate};
use super::hash::hash;
use super::registers::{self, DENSE_BYTES, REGISTERS, RUN_MAX, RUN_VALUE_MAX, Run, runs};
use crate::fault::{Answer, Fault};

const MAGIC: &[u8] = b"HYLL";
const ENCODING_AT: usize = 4;
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
const COUNT_AT: Range<usize> = 8..16;
const HEADER_BYTES: usize = 16;
/// Bits of a hash that are the index of a register.
const INDEX_BITS: u32 = REGISTERS.trailing_zeros();
/// Runs that are looked at for two that can be one, after a change.
const RUNS_JOINED: usize = 5;

const CORRUPT: Fault = Fault::Error("INVALIDOBJ Corrupted HLL object detected");

/// The highest value of each register among several sketches.
pub(super) type Highest = [u8; REGISTERS];

/// See the head of this file.
#[derive(Clone, Debug)]
pub(super) struct Sketch {
    bytes: Vec<u8>,
}

/// The register of an element, and the value that it is to have at least.
fn register_of(element: &[u8]) -> (usize, u8) {
    let hash = hash(element);
    let rest = hash >> INDEX_BITS | 1 << (u64::BITS - INDEX_BITS);
    (hash as usize % REGISTERS, 1 + rest.trailing_zeros() as u8)
}

impl Sketch {
    /// An empty sketch.
    pub(super) fn new() -> Self {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        bytes[ENCODING_AT] = SPARSE;
        Run::write(&mut bytes, 0, REGISTERS);
        Sketch { bytes }
    }

    /// Takes the bytes of a string for a sketch.
    pub(super) fn read(bytes: &[u8]) -> Answer<Self> {
        let has_length = |encoding: u8| match encoding {
            DENSE => bytes.len() == HEADER_BYTES + DENSE_BYTES,
            encoding => encoding == SPARSE,
        };
        if bytes.len() < HEADER_BYTES || !bytes.starts_with(MAGIC) || !has_length(bytes[ENCODING_AT]) {
            return Err(Fault::Error("WRONGTYPE Key is not a valid HyperLogLog string value."));
        }
        Ok(Sketch { bytes: bytes.to_vec() })
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn is_dense(&self) -> bool {
        self.bytes[ENCODING_AT] == DENSE
    }

    fn registers(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES..]
    }

    /// The runs of a sparse sketch.
    pub(super) fn runs(&self) -> impl Iterator<Item = Run> {
        runs(self.registers())
    }

    /// The estimate, if it is known.
    pub(super) fn known_count(&self) -> Option<u64> {
        let count = u64::from_le_bytes(self.bytes[COUNT_AT].try_into().ok()?);
        (count >> 63 == 0).then_some(count)
    }

    pub(super) fn set_known_count(&mut self, count: u64) {
        self.bytes[COUNT_AT].copy_from_slice(&count.to_le_bytes());
    }

    /// Notes that the estimate is not known. The rest of its bytes stay.
    pub(super) fn forget_count(&mut self) {
        self.bytes[COUNT_AT.end - 1] |= 0x80;
    }

    /// Adds an element; tells whether that changed a register.
    pub(super) fn add(&mut self, element: &[u8], sparse_bytes_max: u64) -> Answer<bool> {
        let (index, value) = register_of(element);
        self.raise(index, value, sparse_bytes_max)
    }

    /// Raises a register to a value, if it is lower; tells whether it was.
    pub(super) fn raise(&mut self, index: usize, value: u8, sparse_bytes_max: u64) -> Answer<bool> {
        if !self.is_dense() {
            match self.raise_sparse(index, value, sparse_bytes_max)? {
                Some(raised) => return Ok(raised),
                None => self.make_dense()?,
            }
        }
        let dense = &mut self.bytes[HEADER_BYTES..];
        let is_lower = registers::get(dense, index) < value;
        if is_lower {
            registers::set(dense, index, value);
        }
        Ok(is_lower)
    }

    /// [`raise`](Self::raise), while the sketch is sparse; `None` if it cannot stay so.
    fn raise_sparse(&mut self, index: usize, value: u8, sparse_bytes_max: u64) -> Answer<Option<bool>> {
        if value > RUN_VALUE_MAX {
            return Ok(None);
        }
        let (mut at, mut first, mut before) = (HEADER_BYTES, 0, HEADER_BYTES);
        let run = loop {
            let run = Run::read(&self.bytes[at..]).ok_or(CORRUPT)?;
            if index < first + run.len {
                break run;
            }
            (before, at, first) = (at, at + run.bytes, first + run.len);
        };
        if run.value >= value {
            return Ok(Some(false));
        }
        let mut parts = Vec::with_capacity(5);
        Run::write(&mut parts, run.value, index - first);
        Run::write(&mut parts, value, 1);
        Run::write(&mut parts, run.value, first + run.len - index - 1);
        let len = self.bytes.len() + parts.len() - run.bytes;
        if parts.len() > run.bytes && len as u64 > sparse_bytes_max {
            return Ok(None);
        }
        self.bytes.splice(at..at + run.bytes, parts);
        self.join_runs(before);
        self.forget_count();
        Ok(Some(true))
    }

    /// Makes one run of two with the same value, among the first few from a place on.
    fn join_runs(&mut self, mut at: usize) {
        for _ in 0..RUNS_JOINED {
            let Some(run) = Run::read(&self.bytes[at..]) else {
                return;
            };
            match Run::read(&self.bytes[at + run.bytes..]) {
                Some(next) if run.value != 0 && next.value == run.value && run.len + next.len <= RUN_MAX => {
                    let mut joined = Vec::with_capacity(1);
                    Run::write(&mut joined, run.value, run.len + next.len);
                    self.bytes.splice(at..at + run.bytes + next.bytes, joined);
                }
                _ => at += run.bytes,
            }
        }
    }

    /// Gives the registers of a sparse sketch to `visit`, all of which must be there.
    fn visit_runs(&self, mut visit: impl FnMut(Range<usize>, u8)) -> Answer {
        let (mut first, mut bytes) = (0, 0);
        for run in self.runs() {
            let registers = first..first + run.len;
            if registers.end > REGISTERS {
                return Err(CORRUPT);
            }
            (first, bytes) = (registers.end, bytes + run.bytes);
            visit(registers, run.value);
        }
        if first == REGISTERS && bytes == self.registers().len() { Ok(()) } else { Err(CORRUPT) }
    }

    /// Gives a sparse sketch dense registers.
    pub(super) fn make_dense(&mut self) -> Answer {
        if self.is_dense() {
            return Ok(());
        }
        let mut bytes = vec![0; HEADER_BYTES + DENSE_BYTES];
        bytes[..HEADER_BYTES].copy_from_slice(&self.bytes[..HEADER_BYTES]);
        bytes[ENCODING_AT] = DENSE;
        let dense = &mut bytes[HEADER_BYTES..];
        self.visit_runs(|indexes, value| {
            if value != 0 {
                indexes.for_each(|index| registers::set(dense, index, value));
            }
        })?;
        self.bytes = bytes;
        Ok(())
    }

    /// The value of a register of a dense sketch.
    pub(super) fn register(&self, index: usize) -> u8 {
        registers::get(self.registers(), index)
    }

    /// Raises the registers to those of this sketch.
    pub(super) fn merge_into(&self, highest: &mut Highest) -> Answer {
        if self.is_dense() {
            for (index, register) in highest.iter_mut().enumerate() {
                *register = (*register).max(self.register(index));
            }
            return Ok(());
        }
        self.visit_runs(|indexes, value| {
            if value != 0 {
                highest[indexes].iter_mut().for_each(|register| *register = (*register).max(value));
            }
        })
    }

    /// Estimates how many elements were added.
    pub(super) fn count(&self) -> Answer<u64> {
        let mut histogram: Histogram = [0; 64];
        if self.is_dense() {
            (0..REGISTERS).for_each(|index| histogram[usize::from(self.register(index))] += 1);
        } else {
            self.visit_runs(|indexes, value| histogram[usize::from(value)] += indexes.len() as u32)?;
        }
        Ok(estimate(&histogram))
    }
}

/// Estimates how many elements were added to any of the sketches with these highest registers.
pub(super) fn count_of(highest: &Highest) -> u64 {
    let mut histogram: Histogram = [0; 64];
    highest.iter().for_each(|value| histogram[usize::from(*value)] += 1);
    estimate(&histogram)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const NEVER_LONGER: u64 = 1 << 20;

    #[test]
    fn sparse_and_dense_sketches_have_the_same_registers() {
        let mut random = Random::seeded(7);
        let (mut sparse, mut dense) = (Sketch::new(), Sketch::new());
        dense.make_dense().unwrap();
        for round in 0..20_000 {
            let (index, value) = (random.below(REGISTERS as u64) as usize, 1 + random.below(32) as u8);
            let raised = dense.raise(index, value, 0).unwrap();
            assert_eq!(sparse.raise(index, value, NEVER_LONGER).unwrap(), raised, "round {round}");
            if round % 1000 == 0 {
                assert_eq!(sparse.count().unwrap(), dense.count().unwrap());
            }
        }
        assert!(!sparse.is_dense());
        let [mut a, mut b] = [[0; REGISTERS]; 2];
        sparse.merge_into(&mut a).unwrap();
        dense.merge_into(&mut b).unwrap();
        assert!(a == b);
        sparse.make_dense().unwrap();
        assert_eq!(sparse.registers(), dense.registers());
    }

    #[test]
    fn a_sketch_becomes_dense_at_the_limit_and_not_before() {
        let mut sketch = Sketch::new();
        let limit = 3000;
        let mut longest = 0;
        for element in 0_u32.. {
            sketch.add(&element.to_le_bytes(), limit).unwrap();
            if sketch.is_dense() {
                break;
            }
            longest = sketch.as_bytes().len();
        }
        assert!((2996..=3000).contains(&longest), "{longest}");
        let mut sketch = Sketch::new();
        sketch.raise(5, RUN_VALUE_MAX, limit).unwrap();
        assert!(!sketch.is_dense());
        sketch.raise(6, RUN_VALUE_MAX + 1, limit).unwrap();
        assert!(sketch.is_dense());
        assert_eq!([5, 6, 7].map(|index| sketch.register(index)), [32, 33, 0]);
    }

    #[test]
    fn estimates_are_near() {
        let mut sketch = Sketch::new();
        let mut next = 1;
        for element in 1_u64..=100_000 {
            sketch.add(&element.to_le_bytes(), 3000).unwrap();
            if element == next {
                let count = sketch.count().unwrap();
                assert!(count.abs_diff(element) * 20 <= element, "{count} for {element}");
                next *= 10;
            }
        }
    }

    #[test]
    fn corrupt_sketches_are_refused() {
        let mut random = Random::seeded(11);
        for _ in 0..20_000 {
            let mut bytes = Sketch::new().bytes[..HEADER_BYTES].to_vec();
            (0..random.below(40)).for_each(|_| bytes.push(random.next() as u8));
            let mut sketch = Sketch::read(&bytes).unwrap();
            let whole = sketch.runs().map(|run| run.len).sum::<usize>() == REGISTERS;
            assert!(whole || sketch.count().is_err());
            _ = sketch.merge_into(&mut [0; REGISTERS]);
            _ = sketch.add(&bytes, 40);
            _ = sketch.make_dense();
        }
        for bytes in
            [&b""[..], b"HYLL", b"HYLL\x01\0\0\0\0\0\0\0\0\0\0", b"HYLL\x02\0\0\0\0\0\0\0\0\0\0\0\x7f\xff"]
        {
            assert!(Sketch::read(bytes).is_err());
        }
        assert!(Sketch::read(b"HYLL\x00\0\0\0\0\0\0\0\0\0\0\0\x7f\xff").is_err());
    }
}
