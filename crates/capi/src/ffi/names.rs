//! The names in a pool: listing and dropping.

use super::args::{check_buffer, check_out, map_name, put_out, required};
use super::pool::PoolHandle;
use crate::status::{Failure, call};
use std::ffi::{c_char, c_int};
use tembo::Kind;

/// Room for a name and a zero behind it.
pub const NAME_ROOM: usize = 48;

/// `tembo_name`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Name {
    /// The name, with zeros behind it.
    pub name: [u8; NAME_ROOM],
    /// Its length.
    pub name_bytes: u32,
    /// One of `tembo_kind`.
    pub kind: u32,
}

fn number_of(kind: &Kind) -> u32 {
    match kind {
        Kind::Map => 1,
        Kind::VersionedMap => 2,
        Kind::HashTable => 3,
        Kind::FixedMap => 4,
        Kind::Heap => 5,
        Kind::Store => 6,
        _ => 0,
    }
}

/// `tembo_pool_list`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_pool_list(
    pool: *const PoolHandle,
    skip: usize,
    limit: usize,
    names: *mut Name,
    count: *mut usize,
) -> c_int {
    call(|| {
        check_out(count, "count")?;
        check_buffer(names, limit, "names")?;
        // SAFETY: the caller's promise.
        let listed = unsafe { required(pool, "pool") }?.pool.list()?;
        let mut copied = 0;
        for listed in listed.iter().skip(skip).take(limit) {
            let mut name = Name { name: [0; NAME_ROOM], name_bytes: 0, kind: number_of(&listed.kind) };
            let bytes = listed.name.as_bytes();
            name.name[..bytes.len()].copy_from_slice(bytes);
            name.name_bytes = bytes.len() as u32;
            // SAFETY: there is room for `limit` of them.
            unsafe { put_out(names.add(copied), name) };
            copied += 1;
        }
        // SAFETY: checked above.
        unsafe { put_out(count, copied) };
        Ok(())
    })
}

/// `tembo_pool_drop`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_pool_drop(pool: *mut PoolHandle, name: *const c_char) -> c_int {
    call(|| {
        // SAFETY: the caller's promise, for both.
        let (pool, name) = unsafe { (&required(pool, "pool")?.pool, map_name(name)?) };
        if pool.drop_map(name)? { Ok(()) } else { Err(Failure::NAME_ABSENT) }
    })
}

/// `tembo_pool_reclaim`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_pool_reclaim(
    pool: *mut PoolHandle,
    steps: usize,
    is_left: *mut c_int,
) -> c_int {
    call(|| {
        check_out(is_left, "is_left")?;
        // SAFETY: the caller's promise.
        let left = unsafe { required(pool, "pool") }?.pool.reclaim_dropped(steps)?;
        // SAFETY: checked above.
        unsafe { put_out(is_left, c_int::from(left)) };
        Ok(())
    })
}
