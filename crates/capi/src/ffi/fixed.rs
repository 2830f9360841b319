//! Maps of 8-byte keys and values.

use super::args::{
    assert_shared, check_buffer, check_out, creates, give, map_name, put_out, required, take_back,
};
use super::cancel::call_uncancelled;
use super::pool::PoolHandle;
use crate::status::{Failure, Outcome, call};
use std::ffi::{c_char, c_int, c_uint};
use tembo::{FixedMap, Records};

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

/// The caller's buffer, filled by a scan, which so needs no memory of its own.
struct Buffer {
    records: *mut FixedRecord,
    count: usize,
}

impl Records for Buffer {
    #[inline]
    fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn truncate(&mut self, count: usize) {
        self.count = count;
    }

    #[inline]
    fn reserve(&mut self, _more: usize) -> tembo::Result<(), tembo::IndexError> {
        Ok(())
    }

    #[inline]
    fn push(&mut self, key: u64, value: u64) {
        // SAFETY: a scan pushes no more than its limit, and the caller has room for that many records.
        unsafe { put_out(self.records.add(self.count), FixedRecord { key, value }) };
        self.count += 1;
    }
}

/// `tembo_fixed_open`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_fixed_open(
    pool: *mut PoolHandle,
    name: *const c_char,
    flags: c_uint,
    map: *mut *mut FixedHandle,
) -> c_int {
    call_uncancelled(|| {
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
    call_uncancelled(|| {
        // SAFETY: the caller's promise.
        unsafe { take_back(map) };
        Ok(())
    });
}

/// Runs `body` with a map.
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
        let mut buffer = Buffer { records, count: 0 };
        map.scan(from, limit, &mut buffer)?;
        // SAFETY: checked above.
        unsafe { put_out(count, buffer.count) };
        Ok(())
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
