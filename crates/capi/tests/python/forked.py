"""A pool that is open when multiprocessing forks its workers: they are refused, and the parent goes on."""

import ctypes
import multiprocessing
import sys

library = ctypes.CDLL(sys.argv[1])
library.tembo_last_error.restype = ctypes.c_char_p
OK, LOCKED, FORKED = 0, 7, 14
path = sys.argv[2].encode()
pool, fixed, map_ = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()


def expect(expected, found):
    assert found == expected, (expected, found, library.tembo_last_error())


def put(key, value):
    return library.tembo_fixed_put(fixed, ctypes.c_uint64(key), ctypes.c_uint64(value))


def work(key):
    """Runs in a worker, which returns through the interpreter's own end."""
    found = ctypes.c_uint64()
    size = ctypes.c_size_t(len(b"key"))
    expect(FORKED, put(key, key))
    expect(FORKED, library.tembo_fixed_find(fixed, ctypes.c_uint64(1), ctypes.byref(found)))
    expect(FORKED, library.tembo_map_put(map_, b"key", size, b"key", size))
    assert b"forked" in library.tembo_last_error(), library.tembo_last_error()
    again = ctypes.c_void_p()
    expect(LOCKED, library.tembo_pool_open(path, None, ctypes.byref(again)))
    return key


expect(OK, library.tembo_pool_create(path, None, ctypes.byref(pool)))
expect(OK, library.tembo_fixed_open(pool, b"fixed", 1, ctypes.byref(fixed)))
expect(OK, library.tembo_map_open(pool, b"strings", 1, ctypes.byref(map_)))
expect(OK, put(1, 1))
with multiprocessing.get_context("fork").Pool(3) as workers:
    answer = workers.map_async(work, range(100, 130))
    for key in range(1000):
        expect(OK, put(key, key))
    assert answer.get(timeout=60) == list(range(100, 130))
expect(OK, put(1000, 1000))
library.tembo_fixed_close(fixed)
library.tembo_map_close(map_)
library.tembo_pool_close(pool)
print("the parent alone")
