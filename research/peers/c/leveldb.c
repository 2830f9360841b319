/* LevelDB: a log-structured merge tree whose log is synced at each write. */
#include "engine.h"

#include <leveldb/c.h>
#include <stdlib.h>
#include <string.h>

struct state {
	leveldb_t *db;         /* shared by all handles, as what is next, up to `value` */
	leveldb_options_t *options;
	leveldb_writeoptions_t *write;
	leveldb_readoptions_t *read;
	leveldb_cache_t *cache;
	leveldb_filterpolicy_t *filter;
	char *value; /* what the last lookup returned */
	size_t key_bytes;
	size_t value_bytes;
};

static int failed(const char *what, char *why)
{
	peer_fail(what, why);
	leveldb_free(why);
	return -1;
}

static int ldb_open(const struct peer_setup *setup, void **engine)
{
	struct state *s = calloc(1, sizeof *s);
	char *error = NULL;
	s->key_bytes = setup->key_bytes;
	s->value_bytes = setup->value_bytes;
	s->options = leveldb_options_create();
	s->cache = leveldb_cache_create_lru((size_t)2 << 30);
	s->filter = leveldb_filterpolicy_create_bloom(10);
	leveldb_options_set_create_if_missing(s->options, 1);
	leveldb_options_set_compression(s->options, leveldb_no_compression);
	leveldb_options_set_write_buffer_size(s->options, (size_t)8 << 20);
	leveldb_options_set_max_file_size(s->options, (size_t)64 << 20);
	leveldb_options_set_cache(s->options, s->cache);
	leveldb_options_set_filter_policy(s->options, s->filter);
	s->write = leveldb_writeoptions_create();
	leveldb_writeoptions_set_sync(s->write, 1);
	s->read = leveldb_readoptions_create();
	s->db = leveldb_open(s->options, setup->folder, &error);
	if (error)
		return failed("leveldb_open", error);
	*engine = s;
	return 0;
}

static void ldb_close(void *engine)
{
	struct state *s = engine;
	leveldb_free(s->value);
	leveldb_close(s->db);
	leveldb_readoptions_destroy(s->read);
	leveldb_writeoptions_destroy(s->write);
	leveldb_options_destroy(s->options);
	leveldb_filterpolicy_destroy(s->filter);
	leveldb_cache_destroy(s->cache);
	free(s);
}

static int ldb_insert(void *engine, const void *key, const void *value)
{
	struct state *s = engine;
	char *error = NULL;
	leveldb_put(s->db, s->write, key, s->key_bytes, value, s->value_bytes, &error);
	return error ? failed("leveldb_put", error) : 0;
}

static int ldb_remove(void *engine, const void *key)
{
	struct state *s = engine;
	char *error = NULL;
	leveldb_delete(s->db, s->write, key, s->key_bytes, &error);
	return error ? failed("leveldb_delete", error) : 0;
}

static int ldb_get(void *engine, const void *key, struct peer_bytes *value)
{
	struct state *s = engine;
	char *error = NULL;
	size_t length;
	leveldb_free(s->value);
	s->value = leveldb_get(s->db, s->read, key, s->key_bytes, &length, &error);
	if (error)
		return failed("leveldb_get", error);
	*value = (struct peer_bytes){s->value, length};
	return s->value != NULL;
}

static int64_t ldb_scan(void *engine, const void *from, size_t limit, peer_visit *visit, void *context)
{
	struct state *s = engine;
	char *error = NULL;
	size_t met = 0;
	leveldb_iterator_t *iterator = leveldb_create_iterator(s->db, s->read);
	leveldb_iter_seek(iterator, from, s->key_bytes);
	for (; met < limit && leveldb_iter_valid(iterator); met++) {
		struct peer_bytes key, value;
		key.start = leveldb_iter_key(iterator, &key.length);
		value.start = leveldb_iter_value(iterator, &value.length);
		visit(context, key, value);
		if (met + 1 < limit)
			leveldb_iter_next(iterator);
	}
	leveldb_iter_get_error(iterator, &error);
	leveldb_iter_destroy(iterator);
	return error ? failed("leveldb iterator", error) : (int64_t)met;
}

static int ldb_settle(void *engine)
{
	struct state *s = engine;
	leveldb_compact_range(s->db, NULL, 0, NULL, 0);
	return 0;
}

/* Another handle of an open database, for another thread, which closes it before the first is closed. */
void *peer_leveldb_another(const void *engine)
{
	struct state *s = malloc(sizeof *s);
	memcpy(s, engine, sizeof *s);
	s->value = NULL;
	return s;
}

static void ldb_close_another(void *engine)
{
	struct state *s = engine;
	leveldb_free(s->value);
	free(s);
}

const struct peer_engine peer_leveldb = {
	.name = "LevelDB",
	.version = PEER_VERSION,
	.settings = "log synced at each write; 8 MiB write buffer, 64 MiB files, 2 GiB cache, 10 filter bits, no compression; "
		    "compacted wholly between the inserts and the reads",
	.open = ldb_open,
	.close = ldb_close,
	.insert = ldb_insert,
	.remove = ldb_remove,
	.get = ldb_get,
	.scan = ldb_scan,
	.settle = ldb_settle,
	.share_snapshot = peer_nothing,
};

/* Of other handles; never opened. */
const struct peer_engine peer_leveldb_handle = {
	.name = "LevelDB",
	.version = PEER_VERSION,
	.settings = "another handle",
	.open = ldb_open,
	.close = ldb_close_another,
	.insert = ldb_insert,
	.remove = ldb_remove,
	.get = ldb_get,
	.scan = ldb_scan,
	.settle = ldb_settle,
	.share_snapshot = peer_nothing,
};
