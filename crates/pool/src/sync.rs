//! What epochs and biases are made of. `tests/epochs.rs` and `tests/bias.rs` run `epoch.rs` and `bias.rs` with a model checker's in its place.

pub(crate) use parking_lot::Mutex;
use rustix::thread::{MembarrierCommand, membarrier};
use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::sync::atomic::AtomicUsize;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence, fence};
use std::time::Duration;

/// Slots of pins that may be sent to other threads.
pub(crate) const SLOTS: usize = 64;
/// Threads with a slot of their own. Brief pins of more threads are pins like others.
pub(crate) const THREADS: usize = 256;

/// A number that no other living thread has.
struct ThreadNumber(usize);

/// Numbers of threads that ended, and the lowest that was never given.
static NUMBERS: Mutex<(BTreeSet<usize>, usize)> = Mutex::new((BTreeSet::new(), 0));

impl ThreadNumber {
    fn take() -> ThreadNumber {
        let (ended, next) = &mut *NUMBERS.lock();
        ThreadNumber(ended.pop_first().unwrap_or_else(|| {
            *next += 1;
            *next - 1
        }))
    }
}

impl Drop for ThreadNumber {
    fn drop(&mut self) {
        NUMBERS.lock().0.insert(self.0);
    }
}

static NEXT_START: AtomicUsize = AtomicUsize::new(0);
thread_local! {
    static START: usize = NEXT_START.fetch_add(1, Ordering::Relaxed) % SLOTS;
    static NUMBER: ThreadNumber = ThreadNumber::take();
}

/// Where this thread starts to look for a slot, so that threads do not share lines.
#[inline]
pub(crate) fn first_slot() -> usize {
    START.with(|start| *start)
}

/// The number of this thread, or [`THREADS`] when it is ending and has none any more.
#[inline]
pub(crate) fn thread_number() -> usize {
    NUMBER.try_with(|number| number.0).unwrap_or(THREADS)
}

/// A barrier between a locked instruction that was just made and any later load. On x86 every locked instruction is such
/// a barrier, and the explicit one would cost as much again. (Miri goes by the language, in which it is none.)
#[inline]
pub(crate) fn fence_after_exchange() {
    if cfg!(all(any(target_arch = "x86", target_arch = "x86_64"), not(miri))) {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// Miri has no such call.
static REMOTE_BARRIERS: LazyLock<bool> =
    LazyLock::new(|| !cfg!(miri) && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok());

/// Whether the system makes other threads pass a barrier when asked to.
#[inline]
pub(crate) fn has_remote_barriers() -> bool {
    *REMOTE_BARRIERS
}

/// Makes every other thread of the process pass a barrier.
pub(crate) fn remote_barrier() {
    membarrier(MembarrierCommand::PrivateExpedited).expect("a command that was registered");
}

/// Waits a little for another thread, which may have been stopped.
#[cold]
pub(crate) fn pause(rounds: u32) {
    match rounds {
        0..64 => std::hint::spin_loop(),
        64..96 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(20)),
    }
}
