//! Messages and pools.

use super::args::{
    ACCEPT_UNCLEAN, PATH_BYTES, READ_ONLY_POOL, assert_shared, check_out, give, put_out, required, string,
    take_back,
};
use super::cancel::call_uncancelled;
use crate::status::{Failure, Outcome, last_message, name_of};
use std::ffi::{CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;
use tembo::{Durability, Options, Pool};

/// `tembo_pool`
#[derive(Debug)]
pub struct PoolHandle {
    pub(super) pool: Pool,
    survives: CString,
}

const _: () = assert_shared::<PoolHandle>();

/// `tembo_options`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct PoolOptions {
    /// The size of the structure as the caller knows it.
    pub struct_bytes: usize,
    /// One of `tembo_durability`.
    pub durability: u32,
    /// 0, `TEMBO_READ_ONLY_POOL`, `TEMBO_ACCEPT_UNCLEAN` or both.
    pub flags: u32,
    /// Length of a new pool, or 0.
    pub initial_bytes: u64,
    /// Limit of growth, or 0.
    pub max_bytes: u64,
}

impl PoolOptions {
    fn read(&self) -> Outcome<Options> {
        if self.struct_bytes != size_of::<PoolOptions>() {
            let (found, expected) = (self.struct_bytes, size_of::<PoolOptions>());
            return Err(Failure::invalid(&format!(
                "struct_bytes of the options is {found}, not {expected}; set it to sizeof(tembo_options)"
            )));
        }
        let durability = match self.durability {
            0 => Durability::Auto,
            1 => Durability::Dax,
            2 => Durability::PageCache,
            3 => Durability::Synced,
            4 => Durability::Emulated,
            5 => Durability::Relaxed { interval_ms: 1000 },
            6 => Durability::Journaled,
            other => return Err(Failure::invalid(&format!("{other} is no tembo_durability"))),
        };
        if self.flags & !(READ_ONLY_POOL | ACCEPT_UNCLEAN) != 0 {
            let flags = self.flags;
            return Err(Failure::invalid(&format!(
                "unknown flags {flags:#x}; there are TEMBO_READ_ONLY_POOL and TEMBO_ACCEPT_UNCLEAN"
            )));
        }
        let mut options = Options::new()
            .durability(durability)
            .read_only(self.flags & READ_ONLY_POOL != 0)
            .accept_unclean(self.flags & ACCEPT_UNCLEAN != 0);
        if self.initial_bytes != 0 {
            options = options.initial_bytes(self.initial_bytes);
        }
        if self.max_bytes != 0 {
            options = options.max_bytes(self.max_bytes);
        }
        Ok(options)
    }
}

/// `tembo_last_error`
#[unsafe(no_mangle)]
pub extern "C" fn tembo_last_error() -> *const c_char {
    last_message()
}

/// `tembo_status_name`
#[unsafe(no_mangle)]
pub extern "C" fn tembo_status_name(status: c_int) -> *const c_char {
    name_of(status).as_ptr()
}

/// `tembo_version`
#[unsafe(no_mangle)]
pub extern "C" fn tembo_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Opens a pool for one of the next two.
///
/// # Safety
///
/// As for all functions of the module above.
unsafe fn open(
    path: *const c_char,
    options: *const PoolOptions,
    pool: *mut *mut PoolHandle,
    adjust: impl FnOnce(Options) -> Options,
) -> Outcome {
    check_out(pool, "pool")?;
    // SAFETY: the caller's promise, for both.
    let (path, options) = unsafe { (string(path, PATH_BYTES, "path")?, options.as_ref()) };
    let options = options.map_or_else(|| Ok(Options::new()), PoolOptions::read)?;
    let opened = adjust(options).open(OsStr::from_bytes(path.to_bytes()))?;
    let survives = CString::new(opened.survives()).unwrap_or_default();
    // SAFETY: checked above.
    unsafe { give(pool, PoolHandle { pool: opened, survives }) };
    Ok(())
}

/// `tembo_pool_create`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_pool_create(
    path: *const c_char,
    options: *const PoolOptions,
    pool: *mut *mut PoolHandle,
) -> c_int {
    // SAFETY: the caller's promise.
    call_uncancelled(|| unsafe { open(path, options, pool, |options| options.create_new(true)) })
}

/// `tembo_pool_open`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_pool_open(
    path: *const c_char,
    options: *const PoolOptions,
    pool: *mut *mut PoolHandle,
) -> c_int {
    // SAFETY: the caller's promise.
    call_uncancelled(|| unsafe { open(path, options, pool, |options| options) })
}

/// `tembo_pool_close`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_pool_close(pool: *mut PoolHandle) {
    call_uncancelled(|| {
        // SAFETY: the caller's promise.
        unsafe { take_back(pool) };
        Ok(())
    });
}

/// `tembo_pool_compact`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_pool_compact(
    pool: *mut PoolHandle,
    budget_us: u64,
    moved_bytes: *mut u64,
    freed_bytes: *mut u64,
) -> c_int {
    call_uncancelled(|| {
        // SAFETY: the caller's promise.
        let PoolHandle { pool, .. } = unsafe { required(pool, "pool") }?;
        let budget = (budget_us != 0).then(|| Duration::from_micros(budget_us));
        let compacted = pool.compact_for(budget)?;
        for (out, bytes) in [(moved_bytes, compacted.moved_bytes), (freed_bytes, compacted.freed_bytes)] {
            if !out.is_null() {
                // SAFETY: the caller's promise.
                unsafe { put_out(out, bytes) };
            }
        }
        Ok(())
    })
}

/// `tembo_pool_survives`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_pool_survives(pool: *const PoolHandle) -> *const c_char {
    // SAFETY: the caller's promise.
    match unsafe { required(pool, "pool") } {
        Ok(pool) => pool.survives.as_ptr(),
        Err(_) => std::ptr::null(),
    }
}
