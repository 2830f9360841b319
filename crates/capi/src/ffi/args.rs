//! From C's arguments to Rust's, and results back.
//!
//! The functions have the safety contract of the module above; each names the part that it relies on.

use crate::status::{Failure, Outcome};
use std::ffi::{CStr, c_char, c_void};
use tembo::{Error, MAX_VALUE_BYTES};

/// A flag of opening functions.
pub(super) const CREATE: u32 = 1;
/// A flag of the options of a pool.
pub(super) const READ_ONLY_POOL: u32 = 2;
/// A flag of the options of a pool.
pub(super) const ACCEPT_UNCLEAN: u32 = 4;

/// The longest name of a map.
const NAME_BYTES: usize = 40;
/// The longest path that the system takes.
pub(super) const PATH_BYTES: usize = 4095;

fn null(what: &str) -> Failure {
    Failure::invalid(&format!("{what} is a null pointer"))
}

/// The target of a pointer that must not be null.
///
/// # Safety
///
/// The pointer is null or valid for reading as long as the call lasts.
pub(super) unsafe fn required<'a, T>(pointer: *const T, what: &str) -> Outcome<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(what))
}

/// Refuses a null pointer for a result, before any work is done.
pub(super) fn check_out<T>(pointer: *mut T, what: &str) -> Outcome {
    if pointer.is_null() { Err(null(what)) } else { Ok(()) }
}

/// Writes a result.
///
/// # Safety
///
/// The pointer, which was checked, is valid for writing.
pub(super) unsafe fn put_out<T>(pointer: *mut T, value: T) {
    // SAFETY: the caller's promise; alignment is not required.
    unsafe { pointer.write_unaligned(value) }
}

/// The bytes of a value.
///
/// # Safety
///
/// As for [`bytes`].
pub(super) unsafe fn value_bytes<'a>(pointer: *const c_void, length: usize) -> Outcome<&'a [u8]> {
    check_length(length, 1, "value")?;
    if length as u64 > MAX_VALUE_BYTES {
        return Err(Error::ValueTooLong { bytes: length as u64, max_bytes: MAX_VALUE_BYTES }.into());
    }
    // SAFETY: the caller's promise.
    unsafe { bytes(pointer, length, "value") }
}

/// The bytes of a key or a value.
///
/// # Safety
///
/// The pointer is null or valid for reading `bytes` bytes as long as the call lasts.
pub(super) unsafe fn bytes<'a>(pointer: *const c_void, bytes: usize, what: &str) -> Outcome<&'a [u8]> {
    if bytes == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(null(what));
    }
    check_length(bytes, 1, what)?;
    // SAFETY: not null, the length is possible, and the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), bytes) })
}

/// Refuses lengths that no object in memory can have, such as a negative number that was converted.
pub(super) fn check_length(count: usize, item_bytes: usize, what: &str) -> Outcome {
    match count.checked_mul(item_bytes) {
        Some(total) if isize::try_from(total).is_ok() => Ok(()),
        _ => Err(Failure::invalid(&format!("the length of {what}, {count}, is not possible"))),
    }
}

/// Refuses a null buffer whose stated capacity is not 0.
pub(super) fn check_buffer<T>(pointer: *mut T, count: usize, what: &str) -> Outcome {
    if count != 0 && pointer.is_null() {
        return Err(null(what));
    }
    check_length(count, size_of::<T>().max(1), what)
}

/// A string of C of at most `max_bytes` bytes. One that is longer is refused without being read to its end.
///
/// # Safety
///
/// The pointer is null or leads to a string that ends with a zero and is not changed as long as the call
/// lasts.
pub(super) unsafe fn string<'a>(pointer: *const c_char, max_bytes: usize, what: &str) -> Outcome<&'a CStr> {
    if pointer.is_null() {
        return Err(null(what));
    }
    // SAFETY: not null; each byte before the zero is the string's, as the caller promises, and no byte behind
    // it is read.
    let Some(bytes) = (0..=max_bytes).find(|at| unsafe { *pointer.add(*at) } == 0) else {
        return Err(Failure::invalid(&format!("{what} has more than {max_bytes} bytes")));
    };
    // SAFETY: these bytes were read above, and the last one is a zero.
    let bytes = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), bytes + 1) };
    CStr::from_bytes_with_nul(bytes).map_err(|_| Failure::invalid(&format!("{what} has no end")))
}

/// The name of a map.
///
/// # Safety
///
/// As for [`string`].
pub(super) unsafe fn map_name<'a>(pointer: *const c_char) -> Outcome<&'a str> {
    // SAFETY: the caller's promise.
    let name = unsafe { string(pointer, NAME_BYTES, "name") }?;
    name.to_str().map_err(|e| Failure::invalid(&format!("name is not UTF-8: {e}")))
}

/// Whether a map is to be created, as the flags say.
pub(super) fn creates(flags: u32) -> Outcome<bool> {
    if flags & !CREATE != 0 {
        return Err(Failure::invalid(&format!("unknown flags {flags:#x}; there is TEMBO_CREATE")));
    }
    Ok(flags == CREATE)
}

/// Gives an object to the caller.
///
/// # Safety
///
/// As for [`put_out`].
pub(super) unsafe fn give<T>(pointer: *mut *mut T, object: T) {
    // SAFETY: the caller's promise.
    unsafe { put_out(pointer, Box::into_raw(Box::new(object))) }
}

/// Takes an object back from the caller and drops it; null is nothing.
///
/// # Safety
///
/// The pointer is null or came from [`give`], and is not used again.
pub(super) unsafe fn take_back<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: made by `give`, and not used again.
        drop(unsafe { Box::from_raw(pointer) });
    }
}

/// Makes sure that handles of a type may be used by several threads at once.
pub(super) const fn assert_shared<T: Send + Sync>() {}
