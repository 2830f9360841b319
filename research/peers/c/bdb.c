/*
 * Berkeley DB: a transactional B-tree with a write-ahead log that is synced at each commit; and, as another
 * engine, a B-tree in its cache alone, without transactions, log and file.
 */
#include "engine.h"

#include <db.h>
#include <stdlib.h>
#include <string.h>

#if DB_VERSION_MAJOR != 5 || DB_VERSION_MINOR != 3
#error "Berkeley DB 5.3 is wanted"
#endif

struct state {
	DB_ENV *env;
	DB *db;
	u_int32_t key_bytes;
	u_int32_t value_bytes;
};

static int failed(const char *what, int code)
{
	return peer_fail(what, db_strerror(code));
}

static DBT view(const void *start, u_int32_t length)
{
	DBT item;
	memset(&item, 0, sizeof item);
	item.data = (void *)start;
	item.size = length;
	return item;
}

/* Room for everything, so that no page is read again. */
static u_int32_t cache_gib(const struct peer_setup *setup)
{
	size_t gib = (setup->capacity_bytes >> 30) + 1;
	return gib < 2 ? 2 : gib > 8 ? 8 : (u_int32_t)gib;
}

static int open_environment(struct state *s, const struct peer_setup *setup)
{
	int code = db_env_create(&s->env, 0);
	if (code != 0)
		return failed("db_env_create", code);
	/* One thread and one process: nothing to lock, and the cache is private memory. */
	u_int32_t flags = DB_CREATE | DB_PRIVATE | DB_INIT_MPOOL | DB_INIT_LOG | DB_INIT_TXN | DB_RECOVER;
	if ((code = s->env->set_cachesize(s->env, cache_gib(setup), 0, 1)) != 0)
		return failed("set_cachesize", code);
	if ((code = s->env->set_lg_bsize(s->env, 1 << 20)) != 0)
		return failed("set_lg_bsize", code);
	if ((code = s->env->set_lg_max(s->env, 256 << 20)) != 0)
		return failed("set_lg_max", code);
	if ((code = s->env->open(s->env, setup->folder, flags, 0)) != 0)
		return failed("DB_ENV->open", code);
	if ((code = s->env->log_set_config(s->env, DB_LOG_AUTO_REMOVE, 1)) != 0)
		return failed("log_set_config", code);
	return 0;
}

/* An environment that has only a cache. */
static int open_cache(struct state *s, const struct peer_setup *setup)
{
	int code = db_env_create(&s->env, 0);
	if (code != 0)
		return failed("db_env_create", code);
	if ((code = s->env->set_cachesize(s->env, cache_gib(setup), 0, 1)) != 0)
		return failed("set_cachesize", code);
	if ((code = s->env->open(s->env, setup->folder, DB_CREATE | DB_PRIVATE | DB_INIT_MPOOL, 0)) != 0)
		return failed("DB_ENV->open", code);
	return 0;
}

static int open_tree(const struct peer_setup *setup, int is_durable, u_int32_t page_bytes, void **engine)
{
	struct state *s = calloc(1, sizeof *s);
	s->key_bytes = (u_int32_t)setup->key_bytes;
	s->value_bytes = (u_int32_t)setup->value_bytes;
	if ((is_durable ? open_environment(s, setup) : open_cache(s, setup)) != 0)
		return -1;
	int code = db_create(&s->db, s->env, 0);
	if (code != 0)
		return failed("db_create", code);
	if ((code = s->db->set_pagesize(s->db, page_bytes)) != 0)
		return failed("set_pagesize", code);
	const char *file = is_durable ? "peers.db" : NULL;
	u_int32_t flags = is_durable ? DB_CREATE | DB_AUTO_COMMIT : DB_CREATE;
	if ((code = s->db->open(s->db, NULL, file, NULL, DB_BTREE, flags, 0644)) != 0)
		return failed("DB->open", code);
	*engine = s;
	return 0;
}

static int bdb_open(const struct peer_setup *setup, void **engine)
{
	return open_tree(setup, 1, 4096, engine);
}

/* A value of more than a quarter of a page lies on pages of its own; with larger pages it does not. */
static int bdb_open_large(const struct peer_setup *setup, void **engine)
{
	return open_tree(setup, 1, 16384, engine);
}

static int bdb_open_volatile(const struct peer_setup *setup, void **engine)
{
	return open_tree(setup, 0, 4096, engine);
}

static void bdb_close(void *engine)
{
	struct state *s = engine;
	s->db->close(s->db, 0);
	s->env->close(s->env, 0);
	free(s);
}

static int bdb_insert(void *engine, const void *key, const void *value)
{
	struct state *s = engine;
	DBT k = view(key, s->key_bytes), v = view(value, s->value_bytes);
	int code = s->db->put(s->db, NULL, &k, &v, 0);
	return code == 0 ? 0 : failed("DB->put", code);
}

static int bdb_remove(void *engine, const void *key)
{
	struct state *s = engine;
	DBT k = view(key, s->key_bytes);
	int code = s->db->del(s->db, NULL, &k, 0);
	return code == 0 ? 0 : failed("DB->del", code);
}

static int bdb_get(void *engine, const void *key, struct peer_bytes *value)
{
	struct state *s = engine;
	DBT k = view(key, s->key_bytes), v = view(NULL, 0);
	int code = s->db->get(s->db, NULL, &k, &v, 0);
	if (code == DB_NOTFOUND)
		return 0;
	if (code != 0)
		return failed("DB->get", code);
	*value = (struct peer_bytes){v.data, v.size};
	return 1;
}

static int64_t bdb_scan(void *engine, const void *from, size_t limit, peer_visit *visit, void *context)
{
	struct state *s = engine;
	DBC *cursor;
	DBT k = view(from, s->key_bytes), v = view(NULL, 0);
	size_t met = 0;
	int code = s->db->cursor(s->db, NULL, &cursor, 0);
	if (code != 0)
		return failed("DB->cursor", code);
	code = cursor->get(cursor, &k, &v, DB_SET_RANGE);
	for (; code == 0 && met < limit; met++) {
		visit(context, (struct peer_bytes){k.data, k.size}, (struct peer_bytes){v.data, v.size});
		if (met + 1 < limit)
			code = cursor->get(cursor, &k, &v, DB_NEXT);
	}
	cursor->close(cursor);
	if (code != 0 && code != DB_NOTFOUND)
		return failed("DBC->get", code);
	return (int64_t)met;
}

/* Without a checkpoint now and then, opening after a crash replays the whole log. */
static int bdb_settle(void *engine)
{
	struct state *s = engine;
	int code = s->env->txn_checkpoint(s->env, 0, 0, DB_FORCE);
	return code == 0 ? 0 : failed("txn_checkpoint", code);
}

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

const struct peer_engine peer_bdb = {
	.name = "Berkeley DB",
	.version = TEXT(DB_VERSION_MAJOR) "." TEXT(DB_VERSION_MINOR) "." TEXT(DB_VERSION_PATCH),
	.settings = "transactional B-tree, log synced at each commit; DB_PRIVATE, no locking, a cache of 2 to 8 GiB that holds "
		    "everything, 1 MiB log buffer, pages of 4 KiB; checkpoint between the inserts and the reads",
	.open = bdb_open,
	.close = bdb_close,
	.insert = bdb_insert,
	.remove = bdb_remove,
	.get = bdb_get,
	.scan = bdb_scan,
	.settle = bdb_settle,
	.share_snapshot = peer_nothing,
};

const struct peer_engine peer_bdb_large = {
	.name = "Berkeley DB, 16 KiB pages",
	.version = TEXT(DB_VERSION_MAJOR) "." TEXT(DB_VERSION_MINOR) "." TEXT(DB_VERSION_PATCH),
	.settings = "as the other one, with pages of 16 KiB",
	.open = bdb_open_large,
	.close = bdb_close,
	.insert = bdb_insert,
	.remove = bdb_remove,
	.get = bdb_get,
	.scan = bdb_scan,
	.settle = bdb_settle,
	.share_snapshot = peer_nothing,
};

const struct peer_engine peer_bdb_volatile = {
	.name = "Berkeley DB, volatile",
	.version = TEXT(DB_VERSION_MAJOR) "." TEXT(DB_VERSION_MINOR) "." TEXT(DB_VERSION_PATCH),
	.settings = "B-tree in memory: no transactions, log or file; DB_PRIVATE, cache and pages as the durable one",
	.open = bdb_open_volatile,
	.close = bdb_close,
	.insert = bdb_insert,
	.remove = bdb_remove,
	.get = bdb_get,
	.scan = bdb_scan,
	.settle = peer_nothing,
	.share_snapshot = peer_nothing,
};
