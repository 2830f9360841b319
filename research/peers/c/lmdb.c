/* LMDB: a copy-on-write B+-tree in a writable shared mapping, one write transaction and one msync per
 * write; or, relaxed, written by pwrite and synced by another thread. */
#include "engine.h"

#include <lmdb.h>
#include <stdlib.h>
#include <string.h>

struct state {
	MDB_env *env;
	MDB_dbi dbi;
	MDB_txn *read;      /* renewed for each read, reset before each write: no page is kept from reuse */
	MDB_cursor *cursor;
	int reading;
	int shares;         /* lookups go on in the transaction that is open */
	int is_first;       /* has opened the environment */
	size_t key_bytes;
	size_t value_bytes;
	uint64_t integer;   /* the key in hand as LMDB wants it with MDB_INTEGERKEY */
};

static int failed(const char *what, int code)
{
	return peer_fail(what, mdb_strerror(code));
}

/* Keys of 8 bytes are compared as integers, which is LMDB's fastest form. */
static MDB_val key_of(struct state *s, const void *key)
{
	if (s->key_bytes != sizeof s->integer)
		return (MDB_val){s->key_bytes, (void *)key};
	memcpy(&s->integer, key, sizeof s->integer);
	s->integer = __builtin_bswap64(s->integer);
	return (MDB_val){sizeof s->integer, &s->integer};
}

/* The state of a thread: its read transaction. */
static int begin_reading(struct state *s)
{
	int code;
	if ((code = mdb_txn_begin(s->env, NULL, MDB_RDONLY, &s->read)) != 0)
		return failed("mdb_txn_begin", code);
	if ((code = mdb_cursor_open(s->read, s->dbi, &s->cursor)) != 0)
		return failed("mdb_cursor_open", code);
	s->reading = 1;
	return 0;
}

static int open_with(const struct peer_setup *setup, unsigned way, void **engine)
{
	struct state *s = calloc(1, sizeof *s);
	int code;
	MDB_txn *txn;
	s->is_first = 1;
	s->key_bytes = setup->key_bytes;
	s->value_bytes = setup->value_bytes;
	if ((code = mdb_env_create(&s->env)) != 0)
		return failed("mdb_env_create", code);
	if ((code = mdb_env_set_mapsize(s->env, setup->capacity_bytes)) != 0)
		return failed("mdb_env_set_mapsize", code);
	if ((code = mdb_env_open(s->env, setup->folder, MDB_NOTLS | MDB_NORDAHEAD | way, 0644)) != 0)
		return failed("mdb_env_open", code);
	if ((code = mdb_txn_begin(s->env, NULL, 0, &txn)) != 0)
		return failed("mdb_txn_begin", code);
	unsigned flags = setup->key_bytes == sizeof s->integer ? MDB_INTEGERKEY : 0;
	if ((code = mdb_dbi_open(txn, NULL, flags, &s->dbi)) != 0)
		return failed("mdb_dbi_open", code);
	if ((code = mdb_txn_commit(txn)) != 0)
		return failed("mdb_txn_commit", code);
	*engine = s;
	return begin_reading(s);
}

static int lmdb_open(const struct peer_setup *setup, void **engine)
{
	return open_with(setup, MDB_WRITEMAP | MDB_NOLOCK, engine);
}

static int lmdb_open_relaxed(const struct peer_setup *setup, void **engine)
{
	return open_with(setup, MDB_NOSYNC | MDB_NOLOCK, engine);
}

/* For several threads, each with a state of its own. */
static int lmdb_open_shared(const struct peer_setup *setup, void **engine)
{
	int outcome = open_with(setup, MDB_WRITEMAP, engine);
	if (outcome == 0) {
		struct state *s = *engine;
		mdb_txn_reset(s->read);
		s->reading = 0;
	}
	return outcome;
}

/* The state of another thread, which closes it before the first is closed; null after an error. */
void *peer_lmdb_another(const void *engine)
{
	struct state *s = malloc(sizeof *s);
	memcpy(s, engine, sizeof *s);
	s->is_first = s->shares = 0;
	if (begin_reading(s) != 0) {
		free(s);
		return NULL;
	}
	return s;
}

static void stop_reading(struct state *s)
{
	if (s->reading)
		mdb_txn_reset(s->read);
	s->reading = 0;
}

static int start_reading(struct state *s)
{
	stop_reading(s);
	int code = mdb_txn_renew(s->read);
	if (code != 0)
		return failed("mdb_txn_renew", code);
	s->reading = 1;
	return 0;
}

static void lmdb_close(void *engine)
{
	struct state *s = engine;
	mdb_cursor_close(s->cursor);
	mdb_txn_abort(s->read);
	if (s->is_first)
		mdb_env_close(s->env);
	free(s);
}

static int lmdb_insert(void *engine, const void *key, const void *value)
{
	struct state *s = engine;
	MDB_txn *txn;
	MDB_val k = key_of(s, key), v = {s->value_bytes, (void *)value};
	stop_reading(s);
	int code = mdb_txn_begin(s->env, NULL, 0, &txn);
	if (code != 0)
		return failed("mdb_txn_begin", code);
	if ((code = mdb_put(txn, s->dbi, &k, &v, 0)) != 0) {
		mdb_txn_abort(txn);
		return failed("mdb_put", code);
	}
	if ((code = mdb_txn_commit(txn)) != 0)
		return failed("mdb_txn_commit", code);
	return 0;
}

static int lmdb_remove(void *engine, const void *key)
{
	struct state *s = engine;
	MDB_txn *txn;
	MDB_val k = key_of(s, key);
	stop_reading(s);
	int code = mdb_txn_begin(s->env, NULL, 0, &txn);
	if (code != 0)
		return failed("mdb_txn_begin", code);
	if ((code = mdb_del(txn, s->dbi, &k, NULL)) != 0) {
		mdb_txn_abort(txn);
		return failed("mdb_del", code);
	}
	if ((code = mdb_txn_commit(txn)) != 0)
		return failed("mdb_txn_commit", code);
	return 0;
}

static int lmdb_get(void *engine, const void *key, struct peer_bytes *value)
{
	struct state *s = engine;
	MDB_val k = key_of(s, key), v;
	if (!(s->shares && s->reading) && start_reading(s) != 0)
		return -1;
	int code = mdb_get(s->read, s->dbi, &k, &v);
	if (code == MDB_NOTFOUND)
		return 0;
	if (code != 0)
		return failed("mdb_get", code);
	*value = (struct peer_bytes){v.mv_data, v.mv_size};
	return 1;
}

static int64_t lmdb_scan(void *engine, const void *from, size_t limit, peer_visit *visit, void *context)
{
	struct state *s = engine;
	MDB_val k = key_of(s, from), v;
	size_t met = 0;
	if (start_reading(s) != 0)
		return -1;
	int code = mdb_cursor_renew(s->read, s->cursor);
	if (code != 0)
		return failed("mdb_cursor_renew", code);
	code = mdb_cursor_get(s->cursor, &k, &v, MDB_SET_RANGE);
	for (; code == 0 && met < limit; met++) {
		struct peer_bytes key = {k.mv_data, k.mv_size};
		uint64_t integer;
		if (s->key_bytes == sizeof integer) {
			memcpy(&integer, k.mv_data, sizeof integer);
			integer = __builtin_bswap64(integer);
			key.start = &integer;
		}
		visit(context, key, (struct peer_bytes){v.mv_data, v.mv_size});
		if (met + 1 < limit)
			code = mdb_cursor_get(s->cursor, &k, &v, MDB_NEXT);
	}
	if (code != 0 && code != MDB_NOTFOUND)
		return failed("mdb_cursor_get", code);
	return (int64_t)met;
}

/* Reads what never changes after the opening: the environment. */
static int lmdb_sync(void *engine)
{
	struct state *s = engine;
	int code = mdb_env_sync(s->env, 1);
	return code ? failed("mdb_env_sync", code) : 0;
}

static int lmdb_share_snapshot(void *engine)
{
	struct state *s = engine;
	s->shares = 1;
	return 1;
}

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

#define TABLE(table, settings_text, open_function, sync_function)                                                    \
	const struct peer_engine table = {                                                                           \
		.name = "LMDB",                                                                                      \
		.version = TEXT(MDB_VERSION_MAJOR) "." TEXT(MDB_VERSION_MINOR) "." TEXT(MDB_VERSION_PATCH),          \
		.settings = settings_text,                                                                           \
		.open = open_function,                                                                               \
		.close = lmdb_close,                                                                                 \
		.insert = lmdb_insert,                                                                               \
		.remove = lmdb_remove,                                                                               \
		.get = lmdb_get,                                                                                     \
		.scan = lmdb_scan,                                                                                   \
		.settle = peer_nothing,                                                                              \
		.share_snapshot = lmdb_share_snapshot,                                                               \
		.sync = sync_function,                                                                               \
	}

TABLE(peer_lmdb,
      "MDB_WRITEMAP, synced at each commit; MDB_NOLOCK, MDB_NOTLS, MDB_NORDAHEAD; MDB_INTEGERKEY for 8-byte keys; read "
      "transaction renewed for each lookup",
      lmdb_open, NULL);
TABLE(peer_lmdb_shared, "as LMDB, with its locks", lmdb_open_shared, NULL);
TABLE(peer_lmdb_relaxed,
      "MDB_NOSYNC without MDB_WRITEMAP, mdb_env_sync by a thread in each interval (LMDB keeps no order between its pages "
      "then: a power failure may cost more than the interval); MDB_NOLOCK, MDB_NOTLS, MDB_NORDAHEAD; MDB_INTEGERKEY for "
      "8-byte keys",
      lmdb_open_relaxed, lmdb_sync);
