//! Maps of byte strings.

use super::args::{
    self, assert_shared, bytes, check_buffer, check_length, check_out, creates, give, map_name, put_out,
    required, take_back,
};
use super::cancel::call_uncancelled;
use super::pool::PoolHandle;
use crate::status::{Failure, Outcome, Status, call};
use std::ffi::{c_char, c_int, c_uint, c_void};
use tembo::{Error, MAX_KEY_BYTES, Map};

/// `tembo_map`
#[derive(Debug)]
pub struct MapHandle {
    map: Map,
}

const _: () = assert_shared::<MapHandle>();

/// `tembo_record_size`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct RecordSize {
    /// Length of the key.
    pub key_bytes: usize,
    /// Length of the value.
    pub value_bytes: usize,
}

/// `tembo_map_open`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_map_open(
    pool: *mut PoolHandle,
    name: *const c_char,
    flags: c_uint,
    map: *mut *mut MapHandle,
) -> c_int {
    call_uncancelled(|| {
        check_out(map, "map")?;
        // SAFETY: the caller's promise, for both.
        let (pool, name) = unsafe { (&required(pool, "pool")?.pool, map_name(name)?) };
        let opened = if creates(flags)? {
            pool.open_map(name)?
        } else {
            pool.find_map(name)?.ok_or(Failure::MAP_ABSENT)?
        };
        // SAFETY: checked above.
        unsafe { give(map, MapHandle { map: opened }) };
        Ok(())
    })
}

/// `tembo_map_close`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_map_close(map: *mut MapHandle) {
    call_uncancelled(|| {
        // SAFETY: the caller's promise.
        unsafe { take_back(map) };
        Ok(())
    });
}

/// Runs `body` with a map and a key. No map has a key that is longer than the maximum: such a key is not
/// read, and the call returns `too_long`.
///
/// # Safety
///
/// As for all functions of the module above.
#[inline]
unsafe fn with(
    map: *const MapHandle,
    (key, key_bytes): (*const c_void, usize),
    too_long: impl FnOnce() -> Failure,
    body: impl FnOnce(&MapHandle, &[u8]) -> Outcome,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let map = unsafe { required(map, "map") }?;
        check_length(key_bytes, 1, "key")?;
        if key_bytes as u64 > MAX_KEY_BYTES {
            return Err(too_long());
        }
        // SAFETY: the caller's promise.
        body(map, unsafe { bytes(key, key_bytes, "key") }?)
    })
}

fn absent() -> Failure {
    Failure::KEY_ABSENT
}

fn key_too_long(bytes: usize) -> impl FnOnce() -> Failure {
    move || Error::KeyTooLong { bytes: bytes as u64, max_bytes: MAX_KEY_BYTES }.into()
}

/// `tembo_map_find`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_map_find(
    map: *const MapHandle,
    key: *const c_void,
    key_bytes: usize,
    value: *mut c_void,
    capacity: usize,
    value_bytes: *mut usize,
) -> c_int {
    let body = |handle: &MapHandle, key: &[u8]| {
        check_out(value_bytes, "value_bytes")?;
        check_buffer(value, capacity, "value")?;
        let found = handle.map.get(key)?.ok_or(Failure::KEY_ABSENT)?;
        // SAFETY: checked above.
        unsafe { put_out(value_bytes, found.len()) };
        if found.len() > capacity {
            return Err(Failure::fixed(Status::TooSmall, c"the value is longer than the buffer"));
        }
        // SAFETY: there is room for `capacity` bytes.
        unsafe { copy_out(&found, value.cast()) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { with(map, (key, key_bytes), absent, body) }
}

/// Copies bytes to the caller's memory.
///
/// # Safety
///
/// There is room for them, outside of the pool.
pub(super) unsafe fn copy_out(from: &[u8], to: *mut u8) {
    if !from.is_empty() {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    }
}

/// Gives a key a value if it has one already, or has none, as `wanted` says.
///
/// # Safety
///
/// As for all functions of the module above.
unsafe fn put_if(
    map: *const MapHandle,
    key: (*const c_void, usize),
    value: (*const c_void, usize),
    wanted: bool,
) -> c_int {
    let body = |handle: &MapHandle, key: &[u8]| {
        // SAFETY: the caller's promise.
        let value = unsafe { args::value_bytes(value.0, value.1) }?;
        match wanted {
            true if !handle.map.update(key, value)? => Err(Failure::KEY_ABSENT),
            false if !handle.map.insert(key, value)? => Err(Failure::KEY_PRESENT),
            _ => Ok(()),
        }
    };
    let too_long = move || if wanted { Failure::KEY_ABSENT } else { key_too_long(key.1)() };
    // SAFETY: the caller's promise.
    unsafe { with(map, key, too_long, body) }
}

/// `tembo_map_insert`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_map_insert(
    map: *mut MapHandle,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { put_if(map, (key, key_bytes), (value, value_bytes), false) }
}

/// `tembo_map_update`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_map_update(
    map: *mut MapHandle,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { put_if(map, (key, key_bytes), (value, value_bytes), true) }
}

/// `tembo_map_put`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_map_put(
    map: *mut MapHandle,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
) -> c_int {
    let body = |handle: &MapHandle, key: &[u8]| {
        // SAFETY: the caller's promise.
        let value = unsafe { args::value_bytes(value, value_bytes) }?;
        Ok(handle.map.put(key, value).map(drop)?)
    };
    // SAFETY: the caller's promise.
    unsafe { with(map, (key, key_bytes), key_too_long(key_bytes), body) }
}

/// `tembo_map_remove`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_map_remove(
    map: *mut MapHandle,
    key: *const c_void,
    key_bytes: usize,
) -> c_int {
    let body = |handle: &MapHandle, key: &[u8]| {
        if handle.map.remove(key)? { Ok(()) } else { Err(Failure::KEY_ABSENT) }
    };
    // SAFETY: the caller's promise.
    unsafe { with(map, (key, key_bytes), absent, body) }
}

/// `tembo_map_scan`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_map_scan(
    map: *const MapHandle,
    from: *const c_void,
    from_bytes: usize,
    limit: usize,
    buffer: *mut c_void,
    capacity: usize,
    sizes: *mut RecordSize,
    count: *mut usize,
) -> c_int {
    let body = |handle: &MapHandle, from: &[u8]| {
        check_out(count, "count")?;
        check_buffer(buffer, capacity, "buffer")?;
        let (mut used, mut copied, mut fits) = (0, 0, true);
        for entry in handle.map.range(from..).take(limit) {
            let entry = entry?;
            let (key, value) = (entry.key(), entry.value());
            fits = key.len() + value.len() <= capacity - used;
            if !fits {
                break;
            }
            // SAFETY: both fit into what is left of the buffer.
            unsafe {
                copy_out(key, buffer.cast::<u8>().wrapping_add(used));
                copy_out(value, buffer.cast::<u8>().wrapping_add(used + key.len()));
            }
            if !sizes.is_null() {
                let size = RecordSize { key_bytes: key.len(), value_bytes: value.len() };
                // SAFETY: there is room for `limit` of them.
                unsafe { put_out(sizes.add(copied), size) };
            }
            used += key.len() + value.len();
            copied += 1;
        }
        // SAFETY: checked above.
        unsafe { put_out(count, copied) };
        if fits {
            return Ok(());
        }
        Err(Failure::fixed(Status::TooSmall, c"the next record does not fit into the buffer"))
    };
    // No key is longer than the maximum, so the first bytes of a bound decide, up to the maximum and one
    // more.
    let from_bytes = if check_length(from_bytes, 1, "from").is_ok() {
        from_bytes.min(MAX_KEY_BYTES as usize + 1)
    } else {
        from_bytes
    };
    call(|| {
        // SAFETY: the caller's promise, for both.
        unsafe { body(required(map, "map")?, bytes(from, from_bytes, "from")?) }
    })
}

/// `tembo_map_count`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_map_count(map: *const MapHandle, count: *mut u64) -> c_int {
    call(|| {
        check_out(count, "count")?;
        // SAFETY: the caller's promise.
        let records = unsafe { required(map, "map") }?.map.len()?;
        // SAFETY: checked above.
        unsafe { put_out(count, records) };
        Ok(())
    })
}
