//! Maps of 8-byte keys and values.

use super::args::{
    assert_shared, check_buffer, check_out, creates, give, map_name, put_out, required, take_back,
};
use super::pool::PoolHandle;
use crate::status::{Failure, Outcome, call};
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint};
use tembo::FixedMap;

/// `tembo_fixed`
#[derive(Debug)]
pub struct FixedHandle {
    map: FixedMap,
}

const _: () = assert_shared::<FixedHandle>();

/// `tembo_fixed_record`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FixedRecord {
    /// The key.
    pub key: u64,
    /// Its value.
    pub value: u64,
}

thread_local! {
    /// What the thread's last scan gathered its records in.
    static SCANNED: Cell<Vec<(u64, u64)>> = const { Cell::new(Vec::new()) };
}

/// `tembo_fixed_open`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_fixed_open(
    pool: *mut PoolHandle,
    name: *const c_char,
    flags: c_uint,
    map: *mut *mut FixedHandle,
) -> c_int {
    call(|| {
        check_out(map, "map")?;
        // SAFETY: the caller's promise, for both.
        let (pool, name) = unsafe { (&required(pool, "pool")?.pool, map_name(name)?) };
        let opened = if creates(flags)? {
            pool.open_fixed_map(name)?
        } else {
            pool.find_fixed_map(name)?.ok_or(Failure::MAP_ABSENT)?
        };
        // SAFETY: checked above.
        unsafe { give(map, FixedHandle { map: opened }) };
        Ok(())
    })
}

/// `tembo_fixed_close`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_fixed_close(map: *mut FixedHandle) {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe { take_back(map) };
        Ok(())
    });
}

/// Does something with a map.
///
/// # Safety
///
/// As for all functions of the module above.
#[inline]
unsafe fn with(map: *const FixedHandle, body: impl FnOnce(&FixedMap) -> Outcome) -> c_int {
    // SAFETY: the caller's promise.
    call(|| body(&unsafe { required(map, "map") }?.map))
}

/// `tembo_fixed_find`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_fixed_find(map: *const FixedHandle, key: u64, value: *mut u64) -> c_int {
    let body = |map: &FixedMap| {
        check_out(value, "value")?;
        let found = map.get(key)?.ok_or(Failure::KEY_ABSENT)?;
        // SAFETY: checked above.
        unsafe { put_out(value, found) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { with(map, body) }
}

/// `tembo_fixed_insert`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_fixed_insert(map: *mut FixedHandle, key: u64, value: u64) -> c_int {
    let body = |map: &FixedMap| if map.insert(key, value)? { Ok(()) } else { Err(Failure::KEY_PRESENT) };
    // SAFETY: the caller's promise.
    unsafe { with(map, body) }
}

/// `tembo_fixed_update`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_fixed_update(map: *mut FixedHandle, key: u64, value: u64) -> c_int {
    let body = |map: &FixedMap| map.update(key, value)?.map(drop).ok_or(Failure::KEY_ABSENT);
    // SAFETY: the caller's promise.
    unsafe { with(map, body) }
}

/// `tembo_fixed_put`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_fixed_put(map: *mut FixedHandle, key: u64, value: u64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { with(map, |map| Ok(map.put(key, value).map(drop)?)) }
}

/// `tembo_fixed_remove`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_fixed_remove(map: *mut FixedHandle, key: u64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { with(map, |map| map.remove(key)?.map(drop).ok_or(Failure::KEY_ABSENT)) }
}

/// `tembo_fixed_scan`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_fixed_scan(
    map: *const FixedHandle,
    from: u64,
    limit: usize,
    records: *mut FixedRecord,
    count: *mut usize,
) -> c_int {
    let body = |map: &FixedMap| {
        check_out(count, "count")?;
        check_buffer(records, limit, "records")?;
        let mut scanned = SCANNED.take();
        scanned.clear();
        let outcome = map.scan(from, limit, &mut scanned);
        if outcome.is_ok() {
            for (i, (key, value)) in scanned.iter().take(limit).enumerate() {
                // SAFETY: there is room for `limit` records.
                unsafe { put_out(records.add(i), FixedRecord { key: *key, value: *value }) };
            }
            // SAFETY: checked above.
            unsafe { put_out(count, scanned.len().min(limit)) };
        }
        SCANNED.set(scanned);
        Ok(outcome?)
    };
    // SAFETY: the caller's promise.
    unsafe { with(map, body) }
}

/// `tembo_fixed_count`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_fixed_count(map: *const FixedHandle, count: *mut u64) -> c_int {
    let body = |map: &FixedMap| {
        check_out(count, "count")?;
        let records = map.count()?;
        // SAFETY: checked above.
        unsafe { put_out(count, records) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { with(map, body) }
}
