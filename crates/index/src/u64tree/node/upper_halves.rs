//! The state of the upper halves of the vector registers, as the processor reports it.

use std::arch::x86_64::{__cpuid_count, _mm256_zeroupper, _xgetbv};

const AVX_STATE: u64 = 4;

/// Whether the processor reports that state.
pub(in crate::u64tree) fn are_known() -> bool {
    std::is_x86_feature_detected!("avx2")
        && std::is_x86_feature_detected!("xsave")
        && __cpuid_count(0xD, 1).eax & 4 != 0
}

/// Whether the upper halves are in use, if the processor reports that.
pub(in crate::u64tree) fn are_used() -> bool {
    assert!(are_known());
    // SAFETY: the processor has the instruction and supports this argument of it.
    unsafe { _xgetbv(1) & AVX_STATE != 0 }
}

/// Uses an upper half, if the processor reports that.
pub(in crate::u64tree) fn make_used() {
    assert!(are_known());
    // SAFETY: the processor has AVX2, and the register is declared as changed.
    unsafe { std::arch::asm!("vpcmpeqb ymm0, ymm0, ymm0", out("xmm0") _, options(nostack)) };
}

/// Clears the upper halves, if the processor reports that.
pub(in crate::u64tree) fn clear() {
    assert!(are_known());
    // SAFETY: the processor has AVX, because it has AVX2.
    unsafe { _mm256_zeroupper() };
}
