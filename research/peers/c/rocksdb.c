/* RocksDB: a log-structured merge tree whose log is synced at each write or, relaxed, by another thread. */
#include "engine.h"

#include <rocksdb/c.h>
#include <stdlib.h>
#include <string.h>

struct state {
	rocksdb_t *db;         /* shared by all handles, as what is next, up to `value` */
	rocksdb_options_t *options;
	rocksdb_writeoptions_t *write;
	rocksdb_readoptions_t *read;
	rocksdb_pinnableslice_t *value; /* what the last lookup returned */
	size_t key_bytes;
	size_t value_bytes;
};

static int failed(const char *what, char *why)
{
	peer_fail(what, why);
	rocksdb_free(why);
	return -1;
}

/* The tables are read in place, from their mapping: they lie in memory anyhow, so that a block cache is a
 * copy. A process in a small control group is told how much it may use, and has a block cache of that size. */
static void set_table_options(rocksdb_options_t *options)
{
	rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
	const char *cache_bytes = getenv("PEERS_CACHE_BYTES");
	if (cache_bytes)
		rocksdb_block_based_options_set_block_cache(
			table, rocksdb_cache_create_lru(strtoull(cache_bytes, NULL, 10)));
	rocksdb_block_based_options_set_no_block_cache(table, !cache_bytes);
	rocksdb_block_based_options_set_format_version(table, 5);
	rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom_full(10));
	rocksdb_block_based_options_set_data_block_index_type(
		table, rocksdb_block_based_table_data_block_index_type_binary_search_and_hash);
	rocksdb_block_based_options_set_data_block_hash_ratio(table, 0.75);
	rocksdb_options_set_block_based_table_factory(options, table);
	rocksdb_options_set_allow_mmap_reads(options, !cache_bytes);
	rocksdb_block_based_options_destroy(table);
}

static int open_with(const struct peer_setup *setup, unsigned char syncs, void **engine)
{
	struct state *s = calloc(1, sizeof *s);
	char *error = NULL;
	s->key_bytes = setup->key_bytes;
	s->value_bytes = setup->value_bytes;
	s->options = rocksdb_options_create();
	rocksdb_options_set_create_if_missing(s->options, 1);
	rocksdb_options_set_compression(s->options, rocksdb_no_compression);
	rocksdb_options_set_write_buffer_size(s->options, (size_t)64 << 20);
	rocksdb_options_set_max_background_jobs(s->options, 2);
	rocksdb_options_set_allow_concurrent_memtable_write(s->options, 0);
	rocksdb_options_set_enable_write_thread_adaptive_yield(s->options, 0);
	rocksdb_options_set_stats_dump_period_sec(s->options, 0);
	set_table_options(s->options);
	s->write = rocksdb_writeoptions_create();
	rocksdb_writeoptions_set_sync(s->write, syncs);
	s->read = rocksdb_readoptions_create();
	rocksdb_readoptions_set_verify_checksums(s->read, 0);
	s->db = rocksdb_open(s->options, setup->folder, &error);
	if (error)
		return failed("rocksdb_open", error);
	*engine = s;
	return 0;
}

static int rdb_open(const struct peer_setup *setup, void **engine)
{
	return open_with(setup, 1, engine);
}

static int rdb_open_relaxed(const struct peer_setup *setup, void **engine)
{
	return open_with(setup, 0, engine);
}

static void rdb_close(void *engine)
{
	struct state *s = engine;
	rocksdb_pinnableslice_destroy(s->value);
	rocksdb_close(s->db);
	rocksdb_readoptions_destroy(s->read);
	rocksdb_writeoptions_destroy(s->write);
	rocksdb_options_destroy(s->options);
	free(s);
}

static int rdb_insert(void *engine, const void *key, const void *value)
{
	struct state *s = engine;
	char *error = NULL;
	rocksdb_put(s->db, s->write, key, s->key_bytes, value, s->value_bytes, &error);
	return error ? failed("rocksdb_put", error) : 0;
}

static int rdb_remove(void *engine, const void *key)
{
	struct state *s = engine;
	char *error = NULL;
	rocksdb_delete(s->db, s->write, key, s->key_bytes, &error);
	return error ? failed("rocksdb_delete", error) : 0;
}

static int rdb_get(void *engine, const void *key, struct peer_bytes *value)
{
	struct state *s = engine;
	char *error = NULL;
	rocksdb_pinnableslice_destroy(s->value);
	s->value = rocksdb_get_pinned(s->db, s->read, key, s->key_bytes, &error);
	if (error)
		return failed("rocksdb_get_pinned", error);
	if (!s->value)
		return 0;
	value->start = rocksdb_pinnableslice_value(s->value, &value->length);
	return 1;
}

static int64_t rdb_scan(void *engine, const void *from, size_t limit, peer_visit *visit, void *context)
{
	struct state *s = engine;
	char *error = NULL;
	size_t met = 0;
	rocksdb_iterator_t *iterator = rocksdb_create_iterator(s->db, s->read);
	rocksdb_iter_seek(iterator, from, s->key_bytes);
	for (; met < limit && rocksdb_iter_valid(iterator); met++) {
		struct peer_bytes key, value;
		key.start = rocksdb_iter_key(iterator, &key.length);
		value.start = rocksdb_iter_value(iterator, &value.length);
		visit(context, key, value);
		if (met + 1 < limit)
			rocksdb_iter_next(iterator);
	}
	rocksdb_iter_get_error(iterator, &error);
	rocksdb_iter_destroy(iterator);
	return error ? failed("rocksdb iterator", error) : (int64_t)met;
}

/* Reads what never changes after the opening: the database. */
static int rdb_sync(void *engine)
{
	struct state *s = engine;
	char *error = NULL;
	rocksdb_flush_wal(s->db, 1, &error);
	return error ? failed("rocksdb_flush_wal", error) : 0;
}

static int rdb_settle(void *engine)
{
	struct state *s = engine;
	rocksdb_compact_range(s->db, NULL, 0, NULL, 0);
	return 0;
}

/* Another handle of an open database, for another thread, which closes it before the first is closed. */
void *peer_rocksdb_another(const void *engine)
{
	struct state *s = malloc(sizeof *s);
	memcpy(s, engine, sizeof *s);
	s->value = NULL;
	return s;
}

static void rdb_close_another(void *engine)
{
	struct state *s = engine;
	rocksdb_pinnableslice_destroy(s->value);
	free(s);
}

#define TABLE(table, settings_text, open_function, close_function, sync_function)                   \
	const struct peer_engine table = {                                                          \
		.name = "RocksDB",                                                                  \
		.version = PEER_VERSION,                                                            \
		.settings = settings_text,                                                          \
		.open = open_function,                                                              \
		.close = close_function,                                                            \
		.insert = rdb_insert,                                                               \
		.remove = rdb_remove,                                                               \
		.get = rdb_get,                                                                     \
		.scan = rdb_scan,                                                                   \
		.settle = rdb_settle,                                                               \
		.share_snapshot = peer_nothing,                                                     \
		.sync = sync_function,                                                              \
	}

TABLE(peer_rocksdb,
      "log synced at each write; 64 MiB write buffer, tables read by mmap without a block cache and without verifying "
      "checksums, 10 filter bits, hash index in blocks, no compression, serial memtable; compacted wholly between the "
      "inserts and the reads",
      rdb_open, rdb_close, NULL);
TABLE(peer_rocksdb_relaxed,
      "log written at each write, FlushWAL(true) by a thread in each interval; 64 MiB write buffer, 2 background jobs, "
      "leveled compaction by default options, 10 filter bits, no compression, serial memtable",
      rdb_open_relaxed, rdb_close, rdb_sync);
/* Other handles have this table; it is never opened. */
TABLE(peer_rocksdb_handle, "another handle", rdb_open, rdb_close_another, NULL);
