//! The sides in C: the Rust side of `c/heap.h`.

use super::side::{HashTable, Side, bucket_of};
use crate::engines::Result;
use std::ffi::{CStr, CString, c_char, c_int};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// `struct pmo_heap`, `struct floor_heap`.
#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn pmo_heap_open(
        path: *const c_char,
        bytes: usize,
        objects: u64,
        buckets: u64,
        prepare: c_int,
        heap: *mut *mut Opaque,
    ) -> c_int;
    fn pmo_heap_close(heap: *mut Opaque);
    fn pmo_heap_empty(heap: *mut Opaque) -> c_int;
    fn pmo_heap_write(heap: *mut Opaque, indexes: *const u32, count: usize, word: u64) -> c_int;
    fn pmo_heap_write_element(heap: *mut Opaque, index: u32, word: u64) -> c_int;
    fn pmo_heap_swap_elements(heap: *mut Opaque, a: u32, b: u32) -> c_int;
    fn pmo_heap_read_object(heap: *mut Opaque, index: u32, word: *mut u64) -> c_int;
    fn pmo_heap_push(heap: *mut Opaque, word: u64) -> c_int;
    fn pmo_heap_replace(heap: *mut Opaque, index: u32, word: u64) -> c_int;
    fn pmo_heap_insert(heap: *mut Opaque, bucket: u64, key: u64, value: u64, counted: c_int) -> c_int;
    fn pmo_heap_update(heap: *mut Opaque, bucket: u64, key: u64, value: u64) -> c_int;
    fn pmo_heap_remove(heap: *mut Opaque, bucket: u64, key: u64, counted: c_int) -> c_int;
    fn pmo_heap_lookup(heap: *mut Opaque, bucket: u64, key: u64, value: *mut u64) -> c_int;
    fn pmo_heap_fill(heap: *mut Opaque, bytes: usize) -> c_int;
    fn pmo_heap_version() -> *const c_char;
    fn pmo_heap_fences() -> i64;
    fn floor_open(
        path: *const c_char,
        bytes: usize,
        objects: u64,
        buckets: u64,
        heap: *mut *mut Opaque,
    ) -> c_int;
    fn floor_close(heap: *mut Opaque);
    fn floor_persist(heap: *mut Opaque, index: u32) -> c_int;
    fn floor_write(heap: *mut Opaque, indexes: *const u32, count: usize, word: u64) -> c_int;
    fn floor_read(heap: *mut Opaque, index: u32, word: *mut u64) -> c_int;
    fn floor_push(heap: *mut Opaque, word: u64) -> c_int;
    fn floor_insert(heap: *mut Opaque, bucket: u64, key: u64, value: u64) -> c_int;
    fn floor_update(heap: *mut Opaque, bucket: u64, key: u64, value: u64) -> c_int;
    fn floor_remove(heap: *mut Opaque, bucket: u64, key: u64) -> c_int;
    fn floor_lookup(heap: *mut Opaque, bucket: u64, key: u64, value: *mut u64) -> c_int;
    fn floor_settings() -> *const c_char;
    fn peer_error() -> *const c_char;
}

/// An open pool of libpmemobj.
pub(super) struct Pmemobj {
    /// The result of `pmo_heap_open`, valid until it is closed.
    heap: *mut Opaque,
    objects: u64,
    buckets: u64,
    /// The library may be bound to the thread that opened it.
    _one_thread: PhantomData<*mut Opaque>,
}

impl Pmemobj {
    /// Opens the pool, or makes it: with its tables if there are to be objects, and with all pages touched if
    /// it is to be prepared.
    pub(super) fn open(
        path: &Path,
        bytes: usize,
        objects: u64,
        buckets: u64,
        is_prepared: bool,
    ) -> Result<Pmemobj> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let mut heap = ptr::null_mut();
        // SAFETY: the path ends in a zero byte, and `heap` can be written.
        succeeded(unsafe {
            pmo_heap_open(path.as_ptr(), bytes, objects, buckets, is_prepared.into(), &mut heap)
        })?;
        Ok(Pmemobj { heap, objects, buckets, _one_thread: PhantomData })
    }

    /// Allocates `bytes` bytes in objects of 1 KiB.
    pub(super) fn fill(&mut self, bytes: u64) -> Result<()> {
        // SAFETY: `heap` is open.
        succeeded(unsafe { pmo_heap_fill(self.heap, usize::try_from(bytes)?) })
    }

    /// Exchanges a word of two elements of the array.
    pub(super) fn swap_elements(&mut self, a: u32, b: u32) -> Result<()> {
        assert!(u64::from(a.max(b)) < self.objects, "an element beyond the array");
        // SAFETY: `heap` is open; it has as many elements as objects.
        succeeded(unsafe { pmo_heap_swap_elements(self.heap, a, b) })
    }

    /// The library's version.
    pub(super) fn version() -> &'static str {
        // SAFETY: a literal that ends in a zero byte.
        unsafe { text(pmo_heap_version()) }
    }

    /// Fences so far, if the library that counts them was loaded in advance.
    pub(super) fn fences() -> Option<u64> {
        // SAFETY: has no conditions.
        u64::try_from(unsafe { pmo_heap_fences() }).ok()
    }
}

impl Drop for Pmemobj {
    fn drop(&mut self) {
        // SAFETY: `heap` is open, and nothing uses it after this.
        unsafe { pmo_heap_close(self.heap) };
    }
}

impl HashTable for Pmemobj {
    const NAME: &'static str = "libpmemobj";

    #[inline]
    fn insert(&mut self, key: u64, value: u64) -> Result<()> {
        // SAFETY: `heap` is open; the bucket is one of those that it was opened with.
        succeeded(unsafe { pmo_heap_insert(self.heap, bucket_of(key, self.buckets), key, value, 0) })
    }

    #[inline]
    fn update(&mut self, key: u64, value: u64) -> Result<()> {
        // SAFETY: as for `insert`.
        succeeded(unsafe { pmo_heap_update(self.heap, bucket_of(key, self.buckets), key, value) })
    }

    #[inline]
    fn remove(&mut self, key: u64) -> Result<()> {
        // SAFETY: as for `insert`.
        succeeded(unsafe { pmo_heap_remove(self.heap, bucket_of(key, self.buckets), key, 0) })
    }

    #[inline]
    fn lookup(&mut self, key: u64) -> Result<Option<u64>> {
        let mut value = 0;
        // SAFETY: as for `insert`, and `value` can be written.
        let found = unsafe { pmo_heap_lookup(self.heap, bucket_of(key, self.buckets), key, &mut value) };
        Ok((found == 1).then_some(value))
    }
}

impl Side for Pmemobj {
    #[inline]
    fn empty(&mut self) -> Result<()> {
        // SAFETY: `heap` is open.
        succeeded(unsafe { pmo_heap_empty(self.heap) })
    }

    #[inline]
    fn write(&mut self, indexes: &[u32], word: u64) -> Result<()> {
        debug_assert!(indexes.iter().all(|index| u64::from(*index) < self.objects));
        // SAFETY: `heap` is open; the workload's indexes are less than the number of objects.
        succeeded(unsafe { pmo_heap_write(self.heap, indexes.as_ptr(), indexes.len(), word) })
    }

    #[inline]
    fn write_element(&mut self, index: u32, word: u64) -> Result<()> {
        // SAFETY: as for `write`.
        succeeded(unsafe { pmo_heap_write_element(self.heap, index, word) })
    }

    fn read(&mut self, index: u32) -> Result<u64> {
        let mut word = 0;
        // SAFETY: as for `write`, and `word` can be written.
        succeeded(unsafe { pmo_heap_read_object(self.heap, index, &mut word) })?;
        Ok(word)
    }

    #[inline]
    fn push(&mut self, word: u64) -> Result<()> {
        // SAFETY: `heap` is open.
        succeeded(unsafe { pmo_heap_push(self.heap, word) })
    }

    #[inline]
    fn replace(&mut self, index: u32, word: u64) -> Result<()> {
        // SAFETY: as for `write`.
        succeeded(unsafe { pmo_heap_replace(self.heap, index, word) })
    }

    #[inline]
    fn map_insert(&mut self, key: u64, value: u64) -> Result<()> {
        // SAFETY: as for `insert`.
        succeeded(unsafe { pmo_heap_insert(self.heap, bucket_of(key, self.buckets), key, value, 1) })
    }

    #[inline]
    fn map_update(&mut self, key: u64, value: u64) -> Result<()> {
        self.update(key, value)
    }

    #[inline]
    fn map_remove(&mut self, key: u64) -> Result<()> {
        // SAFETY: as for `insert`.
        succeeded(unsafe { pmo_heap_remove(self.heap, bucket_of(key, self.buckets), key, 1) })
    }

    #[inline]
    fn map_lookup(&mut self, key: u64) -> Result<Option<u64>> {
        self.lookup(key)
    }
}

/// The floor's file.
pub(super) struct Floor {
    /// The result of `floor_open`, valid until it is closed.
    heap: *mut Opaque,
    buckets: u64,
}

impl Floor {
    pub(super) fn open(path: &Path, bytes: usize, objects: u64, buckets: u64) -> Result<Floor> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let mut heap = ptr::null_mut();
        // SAFETY: the path ends in a zero byte, and `heap` can be written.
        succeeded(unsafe { floor_open(path.as_ptr(), bytes, objects, buckets, &mut heap) })?;
        Ok(Floor { heap, buckets })
    }

    /// Flushes a line and waits for it.
    #[inline]
    pub(super) fn persist(&mut self, index: u32) -> Result<()> {
        // SAFETY: `heap` is open; the workload's indexes are less than the number of objects.
        succeeded(unsafe { floor_persist(self.heap, index) })
    }

    #[inline]
    pub(super) fn write(&mut self, indexes: &[u32], word: u64) -> Result<()> {
        // SAFETY: as for `persist`.
        succeeded(unsafe { floor_write(self.heap, indexes.as_ptr(), indexes.len(), word) })
    }

    pub(super) fn read(&mut self, index: u32) -> Result<u64> {
        let mut word = 0;
        // SAFETY: as for `persist`, and `word` can be written.
        succeeded(unsafe { floor_read(self.heap, index, &mut word) })?;
        Ok(word)
    }

    #[inline]
    pub(super) fn push(&mut self, word: u64) -> Result<()> {
        // SAFETY: `heap` is open.
        succeeded(unsafe { floor_push(self.heap, word) })
    }

    pub(super) fn settings() -> &'static str {
        // SAFETY: a literal that ends in a zero byte.
        unsafe { text(floor_settings()) }
    }
}

impl HashTable for Floor {
    const NAME: &'static str = "floor";

    #[inline]
    fn insert(&mut self, key: u64, value: u64) -> Result<()> {
        // SAFETY: `heap` is open; the bucket is one of those that it was opened with.
        succeeded(unsafe { floor_insert(self.heap, bucket_of(key, self.buckets), key, value) })
    }

    #[inline]
    fn update(&mut self, key: u64, value: u64) -> Result<()> {
        // SAFETY: as for `insert`.
        succeeded(unsafe { floor_update(self.heap, bucket_of(key, self.buckets), key, value) })
    }

    #[inline]
    fn remove(&mut self, key: u64) -> Result<()> {
        // SAFETY: as for `insert`.
        succeeded(unsafe { floor_remove(self.heap, bucket_of(key, self.buckets), key) })
    }

    #[inline]
    fn lookup(&mut self, key: u64) -> Result<Option<u64>> {
        let mut value = 0;
        // SAFETY: as for `insert`, and `value` can be written.
        let found = unsafe { floor_lookup(self.heap, bucket_of(key, self.buckets), key, &mut value) };
        Ok((found == 1).then_some(value))
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        // SAFETY: `heap` is open, and nothing uses it after this.
        unsafe { floor_close(self.heap) };
    }
}

#[inline]
fn succeeded(code: c_int) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(last_error()) }
}

#[cold]
fn last_error() -> Box<dyn std::error::Error + Send + Sync> {
    // SAFETY: the message is a string, and stays as it is until the next error of this thread.
    unsafe { text(peer_error()) }.to_owned().into()
}

/// # Safety
///
/// `string` ends in a zero byte and stays as it is until the result is dropped.
unsafe fn text(string: *const c_char) -> &'static str {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(string) }.to_str().unwrap_or("(not UTF-8)")
}
