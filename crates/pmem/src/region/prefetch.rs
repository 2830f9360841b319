//! Prefetching lines, to load from or to store to.

use super::Region;
use crate::LINE_BYTES;

impl Region {
    /// Asks the processor to bring the line of `off` into its cache. Never faults.
    #[inline(always)]
    pub fn prefetch(&self, off: u64) {
        self.prefetch_lines::<1>(off);
    }

    /// As [`prefetch`](Self::prefetch), for `LINES` lines from the line of `off` on.
    #[inline(always)]
    pub fn prefetch_lines<const LINES: usize>(&self, off: u64) {
        if self.reports_loads {
            (0..LINES as u64).for_each(|line| self.report_prefetch(off.wrapping_add(line * LINE_BYTES)));
        }
        let first = self.range.base().wrapping_add(off as usize);
        for line in 0..LINES {
            prefetch_line(first.wrapping_add(line * LINE_BYTES as usize));
        }
    }

    /// As [`prefetch`](Self::prefetch), without the check whether the region [reports
    /// loads](Self::reports_loads): it must not.
    #[inline(always)]
    pub fn prefetch_quietly(&self, off: u64) {
        debug_assert!(!self.reports_loads, "a prefetch that is not reported");
        prefetch_line(self.range.base().wrapping_add(off as usize));
    }

    /// Asks the processor to bring the line of `off` into its cache, to be stored to. Never faults.
    #[inline(always)]
    pub fn prefetch_for_store(&self, off: u64) {
        if self.reports_loads {
            self.report_prefetch(off);
        }
        prefetch_line_for_store(self.range.base().wrapping_add(off as usize));
    }
}

/// Asks the processor to bring the first line of a value in ordinary memory into its cache, to be stored to.
#[inline(always)]
pub fn prefetch_for_store<T>(value: &T) {
    prefetch_line_for_store(std::ptr::from_ref(value).cast());
}

#[inline(always)]
fn prefetch_line(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is without effect on the program's state.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(line.cast::<i8>())
    };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{}]", in(reg) line, options(nostack, preserves_flags))
    };
}

/// Processors without the instruction ignore it. The compiler's intrinsic for it emits a prefetch for
/// loading.
#[inline(always)]
fn prefetch_line_for_store(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch of any address is without effect on the program's state.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags))
    };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("prfm pstl1keep, [{}]", in(reg) line, options(nostack, preserves_flags))
    };
    #[cfg(miri)]
    let _ = line;
}
