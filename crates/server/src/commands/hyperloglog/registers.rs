//! The registers of a sketch, dense and sparse, as bytes.
//!
//! ```text
//!   dense  = 16,384 registers of 6 bits, the first one in the lowest bits of the first byte
//!   sparse = { run }
//!   run    = 00nnnnnn             n + 1 registers of 0
//!          | 01nnnnnn nnnnnnnn    n + 1 registers of 0
//!          | 1vvvvvnn             n + 1 registers of v + 1
//! ```

use std::fmt;

/// Registers of a sketch.
pub(super) const REGISTERS: usize = 1 << 14;

const BITS: usize = 6;
const VALUE_MAX: u8 = (1 << BITS) - 1;
/// Bytes of dense registers.
pub(super) const DENSE_BYTES: usize = REGISTERS * BITS / 8;

/// The value of one of the dense registers.
pub(super) fn get(dense: &[u8], index: usize) -> u8 {
    let (at, shift) = (index * BITS / 8, index * BITS % 8);
    let byte = |at: usize| u16::from(dense.get(at).copied().unwrap_or(0));
    ((byte(at) | byte(at + 1) << 8) >> shift) as u8 & VALUE_MAX
}

/// Gives one of the dense registers a value.
pub(super) fn set(dense: &mut [u8], index: usize, value: u8) {
    let (at, shift) = (index * BITS / 8, index * BITS % 8);
    let mask = (u16::from(VALUE_MAX) << shift).to_le_bytes();
    let value = (u16::from(value & VALUE_MAX) << shift).to_le_bytes();
    for (byte, (mask, value)) in dense[at..].iter_mut().zip(mask.into_iter().zip(value)) {
        *byte = *byte & !mask | value;
    }
}

/// Registers in a row that have the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) value: u8,
    pub(super) len: usize,
    /// How many bytes the run takes, one or two.
    pub(super) bytes: usize,
}

/// The highest value that a run can have.
pub(super) const RUN_VALUE_MAX: u8 = 32;
/// The longest run of a value other than 0.
pub(super) const RUN_MAX: usize = 4;
/// The longest run of 0 in one byte.
const ZEROS_MAX: usize = 64;

impl Run {
    /// The run that begins at the beginning of these bytes; `None` if that is cut off.
    pub(super) fn read(sparse: &[u8]) -> Option<Self> {
        let (&first, rest) = sparse.split_first()?;
        let low = usize::from(first & 0x3F);
        Some(match first >> 6 {
            0 => Run { value: 0, len: low + 1, bytes: 1 },
            1 => Run { value: 0, len: (low << 8 | usize::from(*rest.first()?)) + 1, bytes: 2 },
            _ => Run { value: (first >> 2 & 0x1F) + 1, len: usize::from(first & 3) + 1, bytes: 1 },
        })
    }

    /// Appends a run, if it is not empty.
    pub(super) fn write(sparse: &mut Vec<u8>, value: u8, len: usize) {
        match (value, len) {
            (_, 0) => {}
            (0, 1..=ZEROS_MAX) => sparse.push(len as u8 - 1),
            (0, _) => sparse.extend_from_slice(&(0x4000 | (len - 1) as u16).to_be_bytes()),
            (value, len) => sparse.push(0x80 | (value - 1) << 2 | (len - 1) as u8),
        }
    }
}

/// A run as PFDEBUG DECODE shows it.
impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.value, self.bytes) {
            (0, 1) => write!(f, "z:{}", self.len),
            (0, _) => write!(f, "Z:{}", self.len),
            (value, _) => write!(f, "v:{value},{}", self.len),
        }
    }
}

/// The runs of sparse registers. A run that is cut off ends them.
pub(super) fn runs(mut sparse: &[u8]) -> impl Iterator<Item = Run> {
    std::iter::from_fn(move || {
        let run = Run::read(sparse)?;
        sparse = &sparse[run.bytes..];
        Some(run)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dense_register_has_bits_of_its_own() {
        let mut dense = vec![0; DENSE_BYTES];
        let value = |index: usize| (index * 37 % 64) as u8;
        (0..REGISTERS).rev().for_each(|index| set(&mut dense, index, value(index)));
        assert!((0..REGISTERS).all(|index| get(&dense, index) == value(index)));
        (0..REGISTERS).step_by(2).for_each(|index| set(&mut dense, index, 63));
        assert!((1..REGISTERS).step_by(2).all(|index| get(&dense, index) == value(index)));
    }

    #[test]
    fn runs_are_read_as_they_are_written() {
        let lens = |value| if value == 0 { vec![1, 64, 65, 256, 16_384] } else { vec![1, 2, 3, 4] };
        for (value, len) in
            (0..=RUN_VALUE_MAX).flat_map(|value| lens(value).into_iter().map(move |len| (value, len)))
        {
            let mut sparse = Vec::new();
            Run::write(&mut sparse, value, len);
            let bytes = if value == 0 && len > 64 { 2 } else { 1 };
            assert_eq!(Run::read(&sparse), Some(Run { value, len, bytes }));
            assert_eq!(sparse.len(), bytes);
        }
        assert_eq!(Run::read(&[0x7F]), None);
        assert_eq!(Run::read(&[]), None);
    }
}
