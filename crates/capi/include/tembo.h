/*
 * tembo.h: ordered maps whose only copy lies in persistent memory, or in a file mapped into memory.
 *
 * A pool is a file that holds named maps of two kinds, and stores:
 *
 *   tembo_fixed   8-byte keys and values (uint64_t), in the order of integers;
 *   tembo_map     keys of up to 64 KiB and values of up to 512 MiB, in the order of memcmp;
 *   tembo_store   transactions over many such keys, with snapshots and history.
 *
 * Durability. A call that changes a map returns TEMBO_OK when the change is durable; tembo_pool_survives
 * names the failures that it then survives. No close is needed for that: after kill -9 every acknowledged
 * change is there. But if the machine stops while a pool is open in the page cache of a disk, the pool is
 * TEMBO_UNCLEAN afterwards. A change is atomic: after a crash all of it is there or nothing. A change whose
 * call had not returned may be there or not. Readers see nothing that a crash could take back.
 *
 * Keys and values. All are allowed: 0, UINT64_MAX, and byte strings of length 0. A pointer may be null where
 * its length is 0.
 *
 * Threads. All functions may be called by any number of threads at once, on the same pool and map. Two
 * exceptions: a handle must not be used after or while it is closed, and buffers belong to the call that was
 * given them. A child process made by fork cannot use what its parent opened: its calls return TEMBO_FORKED.
 * Any number of threads may write to a map. Readers never wait, except that tembo_fixed_scan and
 * tembo_fixed_count, if writers keep disturbing them, wait after several attempts for changes under way. A
 * thread that synchronises with the thread that made a change, after the call, sees the change. But if two
 * threads each change one key of a tembo_fixed and then read the other's, both may find the old value, unless
 * a lock, a message, or a sequentially consistent fence in both orders them.
 *
 * Errors. Functions that return int return a tembo_status. TEMBO_OK, TEMBO_NOT_FOUND and TEMBO_EXISTS are
 * answers, the others failures. A call that failed has changed nothing, unless it returned TEMBO_IO, which
 * leaves the outcome unknown until the pool is opened again. tembo_last_error has the message of the thread's
 * last call that did not return TEMBO_OK. A required pointer that is null is TEMBO_INVALID. A call that does
 * not return TEMBO_OK leaves its results unchanged, unless its description says otherwise; only the buffers
 * of tembo_fixed_scan and tembo_map_scan may then hold anything. errno is not part of any result: a call may
 * leave any value in it.
 *
 * Names. A name has 1 to 40 bytes of UTF-8 and ends with the first zero, so a map whose name holds a zero,
 * which other programs can create, cannot be opened here. A name, a path or a key that is too long is refused
 * without being read to its end.
 *
 * Maps that keep versions, which the Rust library and `tembo load` create, are opened as tembo_map and have
 * all its functions; each change makes a version. Their snapshots are not part of this interface, and
 * TEMBO_CREATE creates maps without versions. An open map with versions takes a lane, as a fixed map does.
 * The name of a hash table or a heap is TEMBO_WRONG_KIND.
 *
 * Memory. Records are copied directly between the pool and the caller's buffers. But a long tembo_fixed_scan
 * needs about 50 bytes for each leaf of about 80 records while it runs, and a change needs 8 bytes for each
 * 64 of a value of a megabyte or more; without memory for these, or for mapping a pool, the call returns
 * TEMBO_NO_MEMORY. If a small allocation (of messages and handles) fails, the process ends. 256 KiB of stack
 * are enough for every call.
 *
 * Cancellation. A thread that is cancelled (pthread_cancel) does not end inside of a call, but at its next
 * cancellation point after it. Asynchronous cancellation (PTHREAD_CANCEL_ASYNCHRONOUS) must be off during a
 * call, as for all functions that are not async-cancel-safe. The functions may be called by destructors of
 * thread-specific data.
 *
 * Signals. No function may be called by a signal handler, and none may be left by longjmp. The library
 * installs no handlers and blocks no signals; calls go on where a handler interrupted them. SIGBUS comes from
 * the file: if another program makes the file shorter, or the device cannot read a page, the next access to
 * the missing bytes raises it, which ends the process if nothing catches it. Do not change the file of an
 * open pool; Tembo programs respect its lock (flock).
 */
#ifndef TEMBO_H
#define TEMBO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The outcome of a call. */
typedef enum tembo_status {
    TEMBO_OK = 0,
    /* There is no such key, map or pool. */
    TEMBO_NOT_FOUND = 1,
    /* The key, or the pool, exists already. */
    TEMBO_EXISTS = 2,
    /* An argument is not allowed: a null pointer, a length, a name, a flag. */
    TEMBO_INVALID = 3,
    /* The caller's buffer is too small. */
    TEMBO_TOO_SMALL = 4,
    /* The pool has no room and could not grow. */
    TEMBO_FULL = 5,
    /* The pool was opened for reading only. */
    TEMBO_READ_ONLY = 6,
    /* The pool is open already, in another process or in this one; or the map to be dropped is open. */
    TEMBO_LOCKED = 7,
    /* The file is no pool that this version can read, or the name belongs to another kind of structure. */
    TEMBO_WRONG_KIND = 8,
    /* The pool is damaged. */
    TEMBO_DAMAGED = 9,
    /* The operating system or the device failed. */
    TEMBO_IO = 10,
    /* Too many fixed maps and maps that keep versions are open, or the pool has too many names. */
    TEMBO_NO_ROOM = 11,
    /* A defect of the library; the message says where. Close what you can, and report it. */
    TEMBO_BUG = 12,
    /*
     * The pool was open in the page cache when the machine stopped, or is a copy that was made while it was
     * open, and its pages may be of different ages. Restore it from a copy, or open it with
     * TEMBO_ACCEPT_UNCLEAN.
     */
    TEMBO_UNCLEAN = 13,
    /* The handle belongs to the process that this one was forked from. Open the pool in this process. */
    TEMBO_FORKED = 14,
    /* The process has no memory for the records that the call has to collect. Nothing was changed. */
    TEMBO_NO_MEMORY = 15,
    /* Another transaction wrote a key of this one first. Nothing was changed: run the transaction again. */
    TEMBO_CONFLICT = 16,
    /* The snapshot is not retained any more, or the keyspace was dropped. */
    TEMBO_GONE = 17
} tembo_status;

/* The failures that an acknowledged change has to survive. */
typedef enum tembo_durability {
    /*
     * Persistent memory where the file lies on it, TEMBO_RELAXED on a disk, TEMBO_PAGE_CACHE in a file system
     * in memory.
     */
    TEMBO_AUTO = 0,
    /* Persistent memory, or the pool is not opened: survives power failure. */
    TEMBO_DAX = 1,
    /* The page cache, even on persistent memory: survives kill -9. */
    TEMBO_PAGE_CACHE = 2,
    /* Synchronised to the device at every change: survives power failure. */
    TEMBO_SYNCED = 3,
    /* Flushes and fences as on persistent memory, on any file: for measuring. Survives kill -9. */
    TEMBO_EMULATED = 4,
    /*
     * A journal in the file, synchronised with the device each second: survives kill -9; after a power
     * failure the pool is as it was after some change, at most a second earlier.
     */
    TEMBO_RELAXED = 5,
    /* The same journal, synchronised with the device at every change: survives power failure. */
    TEMBO_JOURNALED = 6
} tembo_durability;

/* Flags of tembo_fixed_open, tembo_map_open, tembo_store_open and tembo_keyspace_open, and of
 * tembo_options. */
enum {
    /* A map that does not exist is created, durably. */
    TEMBO_CREATE = 1,
    /* The pool is opened for reading only; the file is not changed. */
    TEMBO_READ_ONLY_POOL = 2,
    /*
     * A pool that would be TEMBO_UNCLEAN is checked as a whole, and opened if that proves its structure; else
     * TEMBO_DAMAGED. Its values cannot be proved: any of them may be an older one, or partly so.
     */
    TEMBO_ACCEPT_UNCLEAN = 4
};

/* A flag of tembo_transaction_begin. */
enum {
    /* The commit is refused also if a key, or a range, that the transaction has read was written
     * meanwhile. */
    TEMBO_SERIALIZABLE = 1
};

/* How a pool is opened. Set everything to zero, then struct_bytes, then what you want. */
typedef struct tembo_options {
    /* sizeof(tembo_options): tells later versions which members there are. */
    size_t struct_bytes;
    /* A tembo_durability. */
    uint32_t durability;
    /* 0, or TEMBO_READ_ONLY_POOL, TEMBO_ACCEPT_UNCLEAN, or both. */
    uint32_t flags;
    /* Length of a new pool; 0 is 64 MiB. A pool grows by itself. */
    uint64_t initial_bytes;
    /* The length up to which the pool may grow; 0 is the limit of the file system. */
    uint64_t max_bytes;
} tembo_options;

/* Handles. */
typedef struct tembo_pool tembo_pool;
typedef struct tembo_fixed tembo_fixed;
typedef struct tembo_map tembo_map;
typedef struct tembo_store tembo_store;
typedef struct tembo_keyspace tembo_keyspace;
typedef struct tembo_transaction tembo_transaction;
typedef struct tembo_snapshot tembo_snapshot;

/* The kinds of named structures in a pool. */
typedef enum tembo_kind {
    /* A structure that this version of the library cannot read. */
    TEMBO_KIND_UNKNOWN = 0,
    /* A map of byte strings. */
    TEMBO_KIND_MAP = 1,
    /* A map of byte strings that keeps versions. */
    TEMBO_KIND_VERSIONED_MAP = 2,
    /* A hash table, which this interface cannot open. */
    TEMBO_KIND_HASH_TABLE = 3,
    /* A fixed map. */
    TEMBO_KIND_FIXED = 4,
    /* A heap of objects, which this interface cannot open. */
    TEMBO_KIND_HEAP = 5,
    /* A store. */
    TEMBO_KIND_STORE = 6
} tembo_kind;

/* A name in a pool. */
typedef struct tembo_name {
    /* Up to 40 bytes of UTF-8, and zeros behind them. A name that was given in Rust may have zeros in it. */
    char name[48];
    uint32_t name_bytes;
    /* A tembo_kind. */
    uint32_t kind;
} tembo_name;

/* Which versions a keyspace retains, beside those of snapshots that are open or kept. */
typedef enum tembo_retention {
    /* No others. The amount is 0. */
    TEMBO_RETAIN_NONE = 0,
    /* The newest of each key; the amount says how many, 1 to UINT32_MAX. */
    TEMBO_RETAIN_VERSIONS = 1,
    /* Those that were current at any moment within the last so many microseconds, below 2^56. */
    TEMBO_RETAIN_TIME = 2,
    /* The newest that take at most so many bytes together, below 2^56, beside the last ones of their keys. */
    TEMBO_RETAIN_BYTES = 3,
    /* Every version. The amount is 0. */
    TEMBO_RETAIN_ALL = 4
} tembo_retention;

/* The length of the value of a version that has none, since the commit deleted the key. */
#define TEMBO_DELETED UINT64_MAX

/* A version of a key. */
typedef struct tembo_version_info {
    /* The number of the commit that wrote it, and of the first snapshot that has it. */
    uint64_t number;
    /* The length of its value, or TEMBO_DELETED. */
    uint64_t value_bytes;
} tembo_version_info;

/* A kept snapshot. */
typedef struct tembo_kept {
    uint64_t number;
    /* 0 if it is kept by its number alone. */
    uint32_t name_bytes;
    /* Up to 256 bytes of UTF-8, and zeros behind them. */
    char name[260];
} tembo_kept;

/* A record of a fixed map. */
typedef struct tembo_fixed_record {
    uint64_t key;
    uint64_t value;
} tembo_fixed_record;

/* The sizes of a record of a map. */
typedef struct tembo_record_size {
    size_t key_bytes;
    size_t value_bytes;
} tembo_record_size;

/* ---- messages ---- */

/*
 * The message of this thread's last call that did not return TEMBO_OK, in UTF-8; empty if there was none.
 * Valid until the thread's next call that does not return TEMBO_OK. Never null.
 */
const char *tembo_last_error(void);

/* The name of a status, such as "TEMBO_FULL", for messages. Never null. */
const char *tembo_status_name(int status);

/* The version of the library, such as "0.1.0". Never null. */
const char *tembo_version(void);

/* ---- pools ---- */

/*
 * Creates a pool; TEMBO_EXISTS if there is something at the path. Creation is atomic: a crash leaves the
 * whole pool or none. `options` may be null.
 */
int tembo_pool_create(const char *path, const tembo_options *options, tembo_pool **pool);

/*
 * Opens a pool; TEMBO_NOT_FOUND if there is none. Takes milliseconds at any size, also after a crash.
 * `options` may be null.
 */
int tembo_pool_open(const char *path, const tembo_options *options, tembo_pool **pool);

/*
 * Gives the handle back; null is allowed. The pool itself is closed with the last handle of it or of one of
 * its maps.
 */
void tembo_pool_close(tembo_pool *pool);

/*
 * The failures that an acknowledged change survives, in words. Valid as long as the handle. Null if `pool` is
 * null.
 */
const char *tembo_pool_survives(const tembo_pool *pool);

/*
 * Moves blocks of maps and stores together, so that the holes between them become free space: until nothing
 * more can be gained, or for about so many microseconds if `budget_us` is not 0. `moved_bytes` and
 * `freed_bytes` may be null. Readers and writers go on. TEMBO_READ_ONLY; on TEMBO_OK there is nothing more to
 * gain for now, or the time is over, or another thread compacts the pool.
 */
int tembo_pool_compact(tembo_pool *pool, uint64_t budget_us, uint64_t *moved_bytes, uint64_t *freed_bytes);

/* ---- names ---- */

/*
 * Copies the names in the pool, in ascending order, into `names`, which has room for `limit` of them, and
 * their number into `count`; the first `skip` are left out. Fewer than `limit` if there are no more. A pool
 * has room for 128 names, or 64 if it was created with a `max_bytes` below 64 MiB.
 */
int tembo_pool_list(const tembo_pool *pool, size_t skip, size_t limit, tembo_name *names, size_t *count);

/*
 * Drops the map of this name, of any kind, durably, with its records; TEMBO_NOT_FOUND if there is none. The
 * name is free at once. tembo_pool_reclaim frees the space. TEMBO_LOCKED if the map has a handle, and
 * TEMBO_WRONG_KIND if the name belongs to a heap, or to a structure that this version cannot read. Takes
 * constant time and no space. Versions of this library older than this function refuse the pool afterwards.
 */
int tembo_pool_drop(tembo_pool *pool, const char *name);

/*
 * Frees up to `steps` nodes of dropped maps, and stores into `is_left` 1 if there are more, else 0. A crash
 * in the middle loses nothing: a later call continues.
 */
int tembo_pool_reclaim(tembo_pool *pool, size_t steps, int *is_left);

/* ---- maps of 8-byte keys and values ---- */

/*
 * Opens the map of this name, 1 to 40 bytes of UTF-8. If there is none: TEMBO_NOT_FOUND, or with the flag
 * TEMBO_CREATE it is created. Handles of the same name are the same map. All handles of an open map together
 * take one of the pool's lanes, usually 64; TEMBO_NO_ROOM if none is left.
 */
int tembo_fixed_open(tembo_pool *pool, const char *name, unsigned flags, tembo_fixed **map);

/* Gives the handle back; null is allowed. */
void tembo_fixed_close(tembo_fixed *map);

/* The value of a key; TEMBO_NOT_FOUND if it is absent. */
int tembo_fixed_find(const tembo_fixed *map, uint64_t key, uint64_t *value);

/* Gives an absent key a value, durably; TEMBO_EXISTS, and nothing is changed, if it is present. */
int tembo_fixed_insert(tembo_fixed *map, uint64_t key, uint64_t value);

/* Gives a present key another value, durably; TEMBO_NOT_FOUND, and nothing is changed, if it is absent. */
int tembo_fixed_update(tembo_fixed *map, uint64_t key, uint64_t value);

/* Gives a key a value, durably, whether or not it had one. */
int tembo_fixed_put(tembo_fixed *map, uint64_t key, uint64_t value);

/* Removes a key, durably; TEMBO_NOT_FOUND if it is absent. */
int tembo_fixed_remove(tembo_fixed *map, uint64_t key);

/*
 * Copies the first `limit` records from the key `from` on into `records`, in ascending order, all as they
 * were at one moment, and their number into `count`. Fewer than `limit`, none even, if the map ends there;
 * that is no failure. `records` has room for `limit` records and needs no alignment; it may be null if
 * `limit` is 0. All of it may have been written to, also beyond `count`, when the call returns.
 */
int tembo_fixed_scan(const tembo_fixed *map, uint64_t from, size_t limit, tembo_fixed_record *records, size_t *count);

/* The number of records. Reads the whole map. */
int tembo_fixed_count(const tembo_fixed *map, uint64_t *count);

/* ---- maps of byte strings ---- */

/* As tembo_fixed_open. Takes no lane, unless the map keeps versions. */
int tembo_map_open(tembo_pool *pool, const char *name, unsigned flags, tembo_map **map);

/* Gives the handle back; null is allowed. */
void tembo_map_close(tembo_map *map);

/*
 * Copies the value of a key into `value`, which has room for `capacity` bytes, and its length into
 * `value_bytes`. TEMBO_NOT_FOUND if the key is absent. TEMBO_TOO_SMALL if there is no room: `value_bytes` has
 * the length then, and nothing is copied. `value` may be null if `capacity` is 0.
 */
int tembo_map_find(const tembo_map *map, const void *key, size_t key_bytes, void *value, size_t capacity,
                   size_t *value_bytes);

/* Gives an absent key a value, durably; TEMBO_EXISTS, and nothing is changed, if it is present. */
int tembo_map_insert(tembo_map *map, const void *key, size_t key_bytes, const void *value, size_t value_bytes);

/* Gives a present key another value, durably; TEMBO_NOT_FOUND, and nothing is changed, if it is absent. */
int tembo_map_update(tembo_map *map, const void *key, size_t key_bytes, const void *value, size_t value_bytes);

/* Gives a key a value, durably, whether or not it had one. */
int tembo_map_put(tembo_map *map, const void *key, size_t key_bytes, const void *value, size_t value_bytes);

/* Removes a key, durably; TEMBO_NOT_FOUND if it is absent. */
int tembo_map_remove(tembo_map *map, const void *key, size_t key_bytes);

/*
 * Copies up to `limit` records from the key `from` on into `buffer`, in ascending order: key, value, key,
 * value, with nothing in between. Their number goes into `count`, and their sizes into `sizes`, which has
 * room for `limit` of them or is null. A record that exists during the whole scan is met exactly once; one
 * that is added or removed meanwhile is met or not.
 *
 * TEMBO_TOO_SMALL if the next record does not fit into the `capacity` bytes: the `count` records before it
 * were copied. `count` may be 0 then; tembo_map_find says how long the value is. To go on after a scan, scan
 * from the last key with one byte 0 behind it.
 */
int tembo_map_scan(const tembo_map *map, const void *from, size_t from_bytes, size_t limit, void *buffer,
                   size_t capacity, tembo_record_size *sizes, size_t *count);

/* The number of records. */
int tembo_map_count(const tembo_map *map, uint64_t *count);

/* ---- stores: transactions over many keys, and their history ---- */

/*
 * Opens the store of this name, 1 to 40 bytes of UTF-8. If there is none: TEMBO_NOT_FOUND, or with the flag
 * TEMBO_CREATE it is created. Handles of the same name are the same store. All handles of an open store
 * together take lanes of the pool; TEMBO_NO_ROOM if none is left.
 */
int tembo_store_open(tembo_pool *pool, const char *name, unsigned flags, tembo_store **store);

/* Gives the handle back; null is allowed. Keyspaces, transactions and snapshots of the store stay valid. */
void tembo_store_close(tembo_store *store);

/*
 * Frees versions that no snapshot needs any more, and dropped keyspaces, in up to `tables` keys, and stores
 * into `is_left` 1 if there may be more, else 0. Commits collect some on their way; this is for the rest.
 */
int tembo_store_collect(tembo_store *store, size_t tables, int *is_left);

/*
 * Opens the keyspace of this name, 1 to 256 bytes of UTF-8. If there is none: TEMBO_NOT_FOUND, or with the
 * flag TEMBO_CREATE it is created, durably.
 */
int tembo_keyspace_open(tembo_store *store, const char *name, unsigned flags, tembo_keyspace **keyspace);

/* Gives the handle back; null is allowed. */
void tembo_keyspace_close(tembo_keyspace *keyspace);

/*
 * Drops the keyspace of this name, durably, from all snapshots; TEMBO_NOT_FOUND if there is none. Its handles
 * get TEMBO_GONE from then on. tembo_store_collect frees the space.
 */
int tembo_keyspace_drop(tembo_store *store, const char *name);

/*
 * Begins a transaction: at the snapshot that is current at its first use, or at `snapshot` if that is not
 * null. `flags` is 0 or TEMBO_SERIALIZABLE. Nothing that it writes is seen by others before its commit.
 *
 * A transaction is used by one thread at a time. tembo_transaction_commit or tembo_transaction_abort ends it.
 */
int tembo_transaction_begin(const tembo_store *store, const tembo_snapshot *snapshot, unsigned flags,
                            tembo_transaction **transaction);

/* As tembo_map_find, in the transaction's own view: its snapshot, and what it has written. */
int tembo_transaction_get(tembo_transaction *transaction, const tembo_keyspace *keyspace, const void *key,
                          size_t key_bytes, void *value, size_t capacity, size_t *value_bytes);

/* Gives a key a value. */
int tembo_transaction_put(tembo_transaction *transaction, const tembo_keyspace *keyspace, const void *key,
                          size_t key_bytes, const void *value, size_t value_bytes);

/* Takes the value off a key, if it has one. */
int tembo_transaction_delete(tembo_transaction *transaction, const tembo_keyspace *keyspace, const void *key,
                             size_t key_bytes);

/*
 * Takes the values off all keys from `from` on and below `to`, as far as the transaction sees them; stores
 * their number into `deleted`, unless that is null.
 */
int tembo_transaction_delete_range(tembo_transaction *transaction, const tembo_keyspace *keyspace,
                                   const void *from, size_t from_bytes, const void *to, size_t to_bytes,
                                   uint64_t *deleted);

/* As tembo_map_scan, in the transaction's own view. */
int tembo_transaction_scan(tembo_transaction *transaction, const tembo_keyspace *keyspace, const void *from,
                           size_t from_bytes, size_t limit, void *buffer, size_t capacity,
                           tembo_record_size *sizes, size_t *count);

/*
 * Makes all that the transaction has written durable, then visible, or nothing of it, and ends the
 * transaction in either case. Stores the number of the new snapshot into `number`, unless that is null.
 * TEMBO_CONFLICT if another transaction wrote one of its keys after its snapshot: run it again.
 */
int tembo_transaction_commit(tembo_transaction *transaction, uint64_t *number);

/* Ends a transaction, and takes back all that it has written; null is allowed. */
void tembo_transaction_abort(tembo_transaction *transaction);

/*
 * Opens the store as it was after the commit with this number, or after the last one before it: the number of
 * a commit is its time in nanoseconds since 1970, or one more than the number before. UINT64_MAX is the
 * current one. TEMBO_GONE if there is no such commit yet; a keyspace that does not retain the snapshot says
 * TEMBO_GONE when it is read. The contents never change, and their space is held as long as the handle.
 */
int tembo_snapshot_open(const tembo_store *store, uint64_t number, tembo_snapshot **snapshot);

/* Opens the snapshot that is kept under this name; TEMBO_NOT_FOUND if there is none. */
int tembo_snapshot_open_named(const tembo_store *store, const char *name, tembo_snapshot **snapshot);

/* Gives the handle back; null is allowed. */
void tembo_snapshot_close(tembo_snapshot *snapshot);

/* The snapshot's number. */
int tembo_snapshot_number(const tembo_snapshot *snapshot, uint64_t *number);

/* As tembo_map_find, in a snapshot. Never waits. */
int tembo_snapshot_get(const tembo_snapshot *snapshot, const tembo_keyspace *keyspace, const void *key,
                       size_t key_bytes, void *value, size_t capacity, size_t *value_bytes);

/* As tembo_map_scan, in a snapshot. */
int tembo_snapshot_scan(const tembo_snapshot *snapshot, const tembo_keyspace *keyspace, const void *from,
                        size_t from_bytes, size_t limit, void *buffer, size_t capacity,
                        tembo_record_size *sizes, size_t *count);

/*
 * Keeps a snapshot in the pool under a name of 1 to 256 bytes of UTF-8, durably, until it is deleted;
 * TEMBO_EXISTS if another has the name.
 */
int tembo_snapshot_keep(tembo_store *store, const tembo_snapshot *snapshot, const char *name);

/*
 * Keeps a snapshot by its number alone, durably; TEMBO_EXISTS if it is kept so already, TEMBO_GONE if its
 * versions are not all there any more: it has to be the current one, open, kept, or retained by all
 * keyspaces.
 */
int tembo_snapshot_keep_number(tembo_store *store, uint64_t number);

/* Deletes a kept snapshot; TEMBO_NOT_FOUND if there is none of this name. Open handles of it stay valid. */
int tembo_snapshot_delete(tembo_store *store, const char *name);

/* As tembo_snapshot_delete, for one that is kept by its number alone. */
int tembo_snapshot_delete_number(tembo_store *store, uint64_t number);

/*
 * Lists the kept snapshots, those without a name first, from number `skip` on, counted from 0: up to `limit`
 * of them into `kept`, and how many into `count`. There are no more if `count` is less than `limit`.
 */
int tembo_snapshot_list(const tembo_store *store, size_t skip, size_t limit, tembo_kept *kept, size_t *count);

/*
 * Copies versions of a key that are still there, from the newest to the oldest, beginning with the first one
 * whose number is at most `newest` (UINT64_MAX for all): up to `limit` of them into `versions`, their number
 * into `count`, and their values into `buffer`, with nothing in between. Which are there depends on what the
 * keyspace retains and on the snapshots that are open or kept. To go on, ask for those up to the last number
 * less 1. A key that was never written has none.
 *
 * TEMBO_TOO_SMALL if the next value does not fit into the `capacity` bytes: the `count` versions before it
 * were copied, and versions[count] says how long it is. Needs memory for all values of the key.
 */
int tembo_key_versions(const tembo_store *store, const tembo_keyspace *keyspace, const void *key,
                       size_t key_bytes, uint64_t newest, size_t limit, void *buffer, size_t capacity,
                       tembo_version_info *versions, size_t *count);

/*
 * Chooses which versions a keyspace retains from now on, durably: a tembo_retention, and its amount. Others
 * are collected step by step.
 */
int tembo_keyspace_retain(tembo_store *store, const tembo_keyspace *keyspace, unsigned retention,
                          uint64_t amount);

/* The tembo_retention of a keyspace, and its amount. A new keyspace has TEMBO_RETAIN_NONE. */
int tembo_keyspace_retention(const tembo_keyspace *keyspace, unsigned *retention, uint64_t *amount);

#ifdef __cplusplus
}
#endif

#endif
