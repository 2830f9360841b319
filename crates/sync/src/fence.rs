//! Fences that cost one side of a protocol nothing.
//!
//! Two threads that each store and then load need a full fence between the two on both sides. With the
//! asymmetric fence the frequent side uses a compiler fence only, and the rare side makes every thread of the
//! process execute a full fence ([`heavy_fence`], `membarrier` on Linux).

use rustix::thread::{MembarrierCommand, membarrier};
use std::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};

/// [`YES`], [`NO`], or 0 as long as no thread has asked. Threads that ask at once get the same answer, so no
/// thread waits for another, which may be missing in a child of `fork`.
static HEAVY_FENCE: AtomicU8 = AtomicU8::new(0);
const NO: u8 = 1;
const YES: u8 = 2;

/// Whether the system offers [`heavy_fence`].
#[inline]
pub fn has_heavy_fence() -> bool {
    match HEAVY_FENCE.load(Ordering::Relaxed) {
        0 => register_heavy_fence(),
        known => known == YES,
    }
}

/// Asks the system for [`heavy_fence`] on behalf of this process; a child of `fork` has to ask again. Returns
/// whether the system offers it. Takes long the first time if other threads exist.
#[cold]
pub fn register_heavy_fence() -> bool {
    // Miri has no such call.
    let has = !cfg!(miri) && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
    HEAVY_FENCE.store(if has { YES } else { NO }, Ordering::Relaxed);
    has
}

/// Makes every thread of the process execute a full fence, and returns when all have. Takes a microsecond or
/// more.
///
/// # Panics
///
/// Without [`has_heavy_fence`].
pub fn heavy_fence() {
    assert!(has_heavy_fence(), "the system has no membarrier call");
    membarrier(MembarrierCommand::PrivateExpedited).expect("the command was registered");
}

/// A full fence between a locked instruction that was just executed and any later load. On x86 the locked
/// instruction is one already, and the explicit one would cost as much again. (Miri follows the language,
/// where it is none.)
#[inline(always)]
pub fn fence_after_exchange() {
    if cfg!(all(any(target_arch = "x86", target_arch = "x86_64"), not(miri))) {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}
