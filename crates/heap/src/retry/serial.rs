//! Serial runs: a transaction that has conflicted too often runs while no other begins.

use crate::stm::running;
use crate::stm::shared::HeapShared;
use parking_lot::MutexGuard;
use std::sync::atomic::Ordering;

/// Keeps new transactions of other threads waiting.
pub(super) struct SerialTurn<'c> {
    shared: &'c HeapShared,
    _turn: MutexGuard<'c, ()>,
}

impl<'c> SerialTurn<'c> {
    pub(super) fn begin(shared: &'c HeapShared) -> SerialTurn<'c> {
        let turn = shared.serial_turn.lock();
        shared.is_serial.store(true, Ordering::Release);
        SerialTurn { shared, _turn: turn }
    }
}

impl Drop for SerialTurn<'_> {
    fn drop(&mut self) {
        self.shared.is_serial.store(false, Ordering::Release);
    }
}

/// Waits while another thread runs serially. A thread inside a transaction of another heap does not wait: it
/// may run serially there, and the thread that runs serially here may wait for it.
#[inline(always)]
pub(super) fn wait_for_turn(shared: &HeapShared) {
    if shared.is_serial.load(Ordering::Acquire) {
        wait_for_serial_turn(shared);
    }
}

#[cold]
fn wait_for_serial_turn(shared: &HeapShared) {
    if !running::is_any() {
        drop(shared.serial_turn.lock());
    }
}
