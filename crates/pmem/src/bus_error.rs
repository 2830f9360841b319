//! A message when a page of a pool's file cannot be had.
//!
//! Loads and stores have no error to return. If the device fails to read a page, if the file was made
//! shorter, or if a store needs space and the file system has none, the kernel sends `SIGBUS`, by which the
//! process ends without a word. A handler says which file it was, and then lets the process end by the same
//! signal.
//!
//! The handler allocates nothing and takes no lock. It finds the file's name through the entries that keep
//! children away (`fork.rs`).

use crate::fork::file_at;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;

const BEFORE: &[u8] = b"tembo: a page of ";
const AFTER: &[u8] = b" cannot be read or written: its device failed, its file system has no space left, or \
another program made the file shorter; the kernel's log may say which. The process ends here, as by kill -9: \
what the durability mode promises for that case is so.\n";

/// The action that was there before, for signals that have another cause.
static BEFORE_OURS: OnceLock<libc::sigaction> = OnceLock::new();

/// Has this process say on standard error which pool file it was, when it ends because a page of a pool's
/// mapping cannot be read or written (`SIGBUS`): after an error of the device, on a full file system, or
/// after another program made the file shorter. It ends by the same signal, as it does without this.
///
/// For programs, which may have a handler of their own: libraries leave this to them. Signals with other
/// causes go to the handler that was there before. Repeated calls do nothing.
pub fn report_bus_errors() {
    BEFORE_OURS.get_or_init(|| {
        // SAFETY: all zeros are a valid value of this plain structure.
        let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
        ours.sa_sigaction = on_bus_error as *const () as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        let mut before = MaybeUninit::zeroed();
        // SAFETY: both point to structures of this type, and the handler calls only what handlers may call.
        unsafe {
            libc::sigaction(libc::SIGBUS, &raw const ours, before.as_mut_ptr());
            before.assume_init()
        }
    });
}

extern "C" fn on_bus_error(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel gives a handler with `SA_SIGINFO` a valid one.
    let info = unsafe { &*info };
    // Others are sent by a process, and have no address.
    let is_fault = info.si_code > 0;
    // SAFETY: the signal has an address if it is a fault's.
    let address = is_fault.then(|| unsafe { info.si_addr() }.addr());
    if let Some(file) = address.and_then(file_at) {
        say(file.split(|byte| *byte == 0).next().unwrap_or_default());
        set_default();
        // SAFETY: a system call without memory. The signal is blocked here, and ends the process on return.
        unsafe { libc::raise(libc::SIGBUS) };
        return;
    }
    match BEFORE_OURS.get() {
        // SAFETY: the action was valid before, and no new one is asked for.
        Some(before) => _ = unsafe { libc::sigaction(libc::SIGBUS, before, std::ptr::null_mut()) },
        None => set_default(),
    }
    // After a fault the instruction is executed anew, and the signal comes again.
    if !is_fault {
        // SAFETY: a system call without memory.
        unsafe { libc::raise(libc::SIGBUS) };
    }
}

fn set_default() {
    // SAFETY: no memory is involved.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
}

fn say(name: &[u8]) {
    for part in [BEFORE, if name.is_empty() { b"a pool" } else { name }, AFTER] {
        // SAFETY: the bytes are readable. Nobody is left to tell of a failure.
        unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
    }
}
