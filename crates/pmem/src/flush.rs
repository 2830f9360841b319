//! Cache-line write-back and fence instructions, chosen at run time.
//!
//! `clwb` keeps the line in the cache and is weakly ordered; `clflushopt` evicts it; `clflush`
//! evicts it and is ordered with other flushes. The fence is `sfence` (never the full fence, which
//! also stops the next loads), on AArch64 `dsb`.

use crate::LINE_BYTES;
use std::fmt;
use std::str::FromStr;

/// An instruction that writes a cache line back to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FlushInstruction {
    /// x86: write back, keep the line.
    Clwb,
    /// x86: write back and evict, weakly ordered.
    ClflushOpt,
    /// x86: write back and evict, ordered.
    Clflush,
    /// AArch64: clean to the point of persistence.
    DcCvap,
}

impl FlushInstruction {
    const ALL: [(FlushInstruction, &'static str); 4] = [
        (FlushInstruction::Clwb, "clwb"),
        (FlushInstruction::ClflushOpt, "clflushopt"),
        (FlushInstruction::Clflush, "clflush"),
        (FlushInstruction::DcCvap, "dc-cvap"),
    ];

    /// The best instruction that the processor reports, if any.
    #[cfg(target_arch = "x86_64")]
    pub fn detect() -> Option<FlushInstruction> {
        use core::arch::x86_64::{__cpuid, __cpuid_count};
        let (has_clwb, has_clflushopt) = if __cpuid(0).eax >= 7 {
            let ebx = __cpuid_count(7, 0).ebx;
            (ebx & (1 << 24) != 0, ebx & (1 << 23) != 0)
        } else {
            (false, false)
        };
        let has_clflush = __cpuid(1).edx & (1 << 19) != 0;
        match (has_clwb, has_clflushopt, has_clflush) {
            (true, _, _) => Some(FlushInstruction::Clwb),
            (_, true, _) => Some(FlushInstruction::ClflushOpt),
            (_, _, true) => Some(FlushInstruction::Clflush),
            _ => None,
        }
    }

    /// The best instruction that the processor reports, if any.
    #[cfg(target_arch = "aarch64")]
    pub fn detect() -> Option<FlushInstruction> {
        const HWCAP_DCPOP: usize = 1 << 16;
        let (hwcap, _) = rustix::param::linux_hwcap();
        (hwcap & HWCAP_DCPOP != 0).then_some(FlushInstruction::DcCvap)
    }

    /// Whether this build can issue the instruction at all.
    pub fn belongs_to_this_architecture(self) -> bool {
        (self == FlushInstruction::DcCvap) == cfg!(target_arch = "aarch64")
    }

    /// Starts the write-back of every line of `[start, start + bytes)`.
    ///
    /// # Safety
    ///
    /// The lines are mapped, and the processor has the instruction.
    #[inline]
    pub(crate) unsafe fn flush_range(self, start: *const u8, bytes: usize) {
        let mut line = start.map_addr(|a| a & !(LINE_BYTES as usize - 1));
        let end = start.wrapping_add(bytes);
        while line < end {
            // SAFETY: `line` lies in a line that the caller promises is mapped; a write-back changes no
            // value, hence breaks no aliasing rule.
            unsafe { self.flush_line(line) };
            line = line.wrapping_add(LINE_BYTES as usize);
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) unsafe fn flush_line(self, line: *const u8) {
        use core::arch::asm;
        // SAFETY: the caller promises a mapped line and the instruction's presence. The compiler must not
        // move stores below the write-back, so the `nomem` option is absent on purpose.
        unsafe {
            match self {
                FlushInstruction::Clwb => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                FlushInstruction::ClflushOpt => {
                    asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags))
                }
                FlushInstruction::Clflush | FlushInstruction::DcCvap => {
                    asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags))
                }
            }
        }
    }

    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub(crate) unsafe fn flush_line(self, line: *const u8) {
        // SAFETY: the caller promises a mapped line. This is `dc cvap`, spelt as its system-instruction
        // encoding so that assemblers without the extension accept it.
        unsafe {
            core::arch::asm!("sys #3, c7, c12, #1, {}", in(reg) line, options(nostack, preserves_flags))
        };
    }
}

impl fmt::Display for FlushInstruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = FlushInstruction::ALL.iter().find(|(i, _)| i == self).map_or("", |(_, n)| n);
        f.write_str(name)
    }
}

impl FromStr for FlushInstruction {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let found = FlushInstruction::ALL.iter().find(|(_, name)| *name == s).map(|(i, _)| *i);
        let known = "clwb, clflushopt or clflush (x86-64), dc-cvap (AArch64)";
        match found {
            Some(i) if i.belongs_to_this_architecture() => Ok(i),
            Some(i) => {
                Err(format!("flush instruction {i} does not exist on this architecture; expected {known}"))
            }
            None => Err(format!("unknown flush instruction {s:?}; expected {known}")),
        }
    }
}

/// Waits until the write-backs and non-temporal stores of this thread are done.
#[inline(always)]
pub(crate) fn fence_stores() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `sfence` has no operands and is part of the x86-64 baseline.
    unsafe {
        core::arch::asm!("sfence", options(nostack, preserves_flags))
    };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier has no operands.
    unsafe {
        core::arch::asm!("dsb sy", options(nostack, preserves_flags))
    };
}

/// Copies words past the caches: a line, or 16 bytes, at a time where the address allows it.
///
/// # Safety
///
/// `dst` is a multiple of 8 and valid for writes of `src.len()` bytes, which is a multiple of 8, and no
/// other thread reads or writes the range meanwhile.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn copy_non_temporal(dst: *mut u8, src: &[u8]) {
    use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si64, _mm_stream_si128};
    debug_assert!((dst as usize).is_multiple_of(8) && src.len().is_multiple_of(8));
    let mut at = 0;
    let is_aligned = (dst as usize).is_multiple_of(16);
    // SAFETY: the source has as many readable bytes as are read from `at` on, and the destination as many
    // writable ones by the caller's promise; its alignment is that of the instruction.
    unsafe {
        let step = |at: usize| {
            let (from, to) = (src.as_ptr().add(at).cast::<__m128i>(), dst.add(at).cast::<__m128i>());
            _mm_stream_si128(to, _mm_loadu_si128(from));
        };
        while is_aligned && src.len() - at >= 64 {
            (0..4).for_each(|part| step(at + 16 * part));
            at += 64;
        }
        while is_aligned && src.len() - at >= 16 {
            step(at);
            at += 16;
        }
        while at < src.len() {
            let (from, to) = (src.as_ptr().add(at), dst.add(at));
            _mm_stream_si64(to.cast::<i64>(), from.cast::<i64>().read_unaligned());
            at += 8;
        }
    }
}

/// Whether a line that is written past the caches is durable sooner than one that is stored and written back:
/// on AMD's processors, where it takes two thirds of the time. `TEMBO_NON_TEMPORAL=1` selects it on other
/// processors.
#[cfg(target_arch = "x86_64")]
pub(crate) fn streams_single_lines() -> bool {
    let vendor = core::arch::x86_64::__cpuid(0);
    [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).as_flattened() == b"AuthenticAMD"
}

/// Whether a line that is written past the caches is durable sooner than one that is stored and written back.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn streams_single_lines() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_and_foreign_instructions_are_refused() {
        let foreign = if cfg!(target_arch = "x86_64") { "dc-cvap" } else { "clwb" };
        assert!(foreign.parse::<FlushInstruction>().unwrap_err().contains("architecture"));
        assert!("clzero".parse::<FlushInstruction>().is_err());
        if cfg!(target_arch = "x86_64") {
            assert_eq!("clflushopt".parse::<FlushInstruction>().unwrap(), FlushInstruction::ClflushOpt);
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn copies_past_the_caches_write_their_words_and_no_others() {
        let src: Vec<u8> = (1..=255).collect();
        for (start, words) in (0..16).flat_map(|start| (0..20).map(move |words| (8 * start, words))) {
            let mut dst = vec![0u64; 64];
            // SAFETY: the range lies in the vector, which is aligned to words.
            unsafe { copy_non_temporal(dst.as_mut_ptr().cast::<u8>().add(start), &src[..8 * words]) };
            fence_stores();
            let bytes: Vec<u8> = dst.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let end = start + 8 * words;
            assert_eq!(bytes[start..end], src[..8 * words]);
            assert!(bytes[..start].iter().chain(&bytes[end..]).all(|byte| *byte == 0));
        }
    }

    #[test]
    fn every_detected_instruction_leaves_the_data_alone() {
        let Some(best) = FlushInstruction::detect() else { return };
        let data: Vec<u8> = (0..=255).collect();
        // SAFETY: the range is the vector's own memory, and the instruction was detected.
        unsafe { best.flush_range(data.as_ptr().wrapping_add(3), 200) };
        fence_stores();
        assert!(data.iter().enumerate().all(|(i, b)| i == usize::from(*b)));
    }
}
