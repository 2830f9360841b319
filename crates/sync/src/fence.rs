//! Fences that cost one side of a protocol nothing.
//!
//! Two threads that each store and then load need a full fence between the two on both sides. With the asymmetric
//! fence the frequent side uses a compiler fence only, and the rare side makes every thread of the process execute a
//! full fence ([`heavy_fence`], `membarrier` on Linux).

use rustix::thread::{MembarrierCommand, membarrier};
use std::sync::LazyLock;
use std::sync::atomic::{Ordering, compiler_fence, fence};

/// Miri has no such call.
static HAS_HEAVY_FENCE: LazyLock<bool> =
    LazyLock::new(|| !cfg!(miri) && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok());

/// Whether the system offers [`heavy_fence`].
#[inline]
pub fn has_heavy_fence() -> bool {
    *HAS_HEAVY_FENCE
}

/// Makes every thread of the process execute a full fence, and returns when all have. Takes a microsecond or more.
///
/// # Panics
///
/// Without [`has_heavy_fence`].
pub fn heavy_fence() {
    assert!(has_heavy_fence(), "the system has no membarrier call");
    membarrier(MembarrierCommand::PrivateExpedited).expect("the command was registered");
}

/// A full fence between a locked instruction that was just executed and any later load. On x86 the locked instruction
/// is one already, and the explicit one would cost as much again. (Miri follows the language, where it is none.)
#[inline(always)]
pub fn fence_after_exchange() {
    if cfg!(all(any(target_arch = "x86", target_arch = "x86_64"), not(miri))) {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}
