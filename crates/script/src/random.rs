//! The random numbers of C, which scripts get.

/// The generator of 48 bits that C calls `lrand48`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The state before any seed.
    pub(crate) const FIRST: Random = Random(0x1234_abcd_330e);

    pub(crate) fn new(seed: i32) -> Self {
        Random(u64::from(seed as u32) << 16 | 0x330e)
    }

    /// The next number of 31 bits.
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(0x5_deec_e66d).wrapping_add(0xb) & 0xffff_ffff_ffff;
        (self.0 >> 17) as u32
    }

    /// The next number from 0 to 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        const MAX: u32 = i32::MAX as u32;
        f64::from(self.next() % MAX) / f64::from(MAX)
    }
}
