/* Berkeley DB under the programs of the NV-heaps paper: each operation a transaction that is durable when it
 * returns. */
#include "programs.h"

#include <db.h>
#include <stdlib.h>
#include <string.h>

struct bdb_program {
	DB_ENV *env;
	DB *db;
	int is_array;
};

static __thread char message[256];

static int failed(const char *what, int code)
{
	snprintf(message, sizeof message, "%s: %s", what, db_strerror(code));
	return -1;
}

const char *bdb_program_error(void)
{
	return message;
}

static DBT view(void *start, u_int32_t length)
{
	DBT item;
	memset(&item, 0, sizeof item);
	item.data = start;
	item.size = length;
	item.ulen = length;
	item.flags = DB_DBT_USERMEM;
	return item;
}

static int open_environment(struct bdb_program *p, const char *folder, int threads)
{
	int code = db_env_create(&p->env, 0);
	if (code != 0)
		return failed("db_env_create", code);
	u_int32_t flags = DB_CREATE | DB_PRIVATE | DB_INIT_MPOOL | DB_INIT_LOG | DB_INIT_TXN | DB_RECOVER;
	/* One thread has nothing to lock. */
	if (threads > 1)
		flags |= DB_INIT_LOCK | DB_THREAD;
	if ((code = p->env->set_cachesize(p->env, 2, 0, 1)) != 0)
		return failed("set_cachesize", code);
	if ((code = p->env->set_lg_bsize(p->env, 1 << 20)) != 0)
		return failed("set_lg_bsize", code);
	if ((code = p->env->set_lg_max(p->env, 256 << 20)) != 0)
		return failed("set_lg_max", code);
	if (threads > 1 && (code = p->env->set_lk_detect(p->env, DB_LOCK_DEFAULT)) != 0)
		return failed("set_lk_detect", code);
	if ((code = p->env->open(p->env, folder, flags, 0)) != 0)
		return failed("DB_ENV->open", code);
	if ((code = p->env->log_set_config(p->env, DB_LOG_AUTO_REMOVE, 1)) != 0)
		return failed("log_set_config", code);
	return 0;
}

int bdb_program_open(const char *folder, int kind, int threads, struct bdb_program **program)
{
	static const DBTYPE types[] = {DB_QUEUE, DB_BTREE, DB_HASH};
	struct bdb_program *p = calloc(1, sizeof *p);
	p->is_array = kind == BDB_ARRAY;
	if (open_environment(p, folder, threads) != 0)
		return -1;
	int code = db_create(&p->db, p->env, 0);
	if (code != 0)
		return failed("db_create", code);
	if (p->is_array && (code = p->db->set_re_len(p->db, 8)) != 0)
		return failed("set_re_len", code);
	u_int32_t flags = DB_CREATE | DB_AUTO_COMMIT | (threads > 1 ? DB_THREAD : 0);
	if ((code = p->db->open(p->db, NULL, "program.db", NULL, types[kind], flags, 0644)) != 0)
		return failed("DB->open", code);
	*program = p;
	return 0;
}

void bdb_program_close(struct bdb_program *p)
{
	p->db->close(p->db, 0);
	p->env->close(p->env, 0);
	free(p);
}

int bdb_program_settle(struct bdb_program *p)
{
	int code = p->env->txn_checkpoint(p->env, 0, 0, DB_FORCE);
	return code == 0 ? 0 : failed("txn_checkpoint", code);
}

/* Ends a transaction; 1 if it met another and is to be run again. */
static int end(DB_TXN *txn, int code, const char *what)
{
	if (code == 0) {
		code = txn->commit(txn, 0);
		return code == 0 ? 0 : failed("DB_TXN->commit", code);
	}
	txn->abort(txn);
	return code == DB_LOCK_DEADLOCK ? 1 : failed(what, code);
}

static int try_swap(struct bdb_program *p, u_int32_t a, u_int32_t b)
{
	DB_TXN *txn;
	int code = p->env->txn_begin(p->env, NULL, &txn, 0);
	if (code != 0)
		return failed("txn_begin", code);
	uint64_t in_a, in_b;
	DBT key_a = view(&a, sizeof a), key_b = view(&b, sizeof b);
	DBT value_a = view(&in_a, 8), value_b = view(&in_b, 8);
	if ((code = p->db->get(p->db, txn, &key_a, &value_a, 0)) == 0 &&
	    (code = p->db->get(p->db, txn, &key_b, &value_b, 0)) == 0 &&
	    (code = p->db->put(p->db, txn, &key_a, &value_b, 0)) == 0)
		code = p->db->put(p->db, txn, &key_b, &value_a, 0);
	return end(txn, code, "swap");
}

int bdb_program_swap(struct bdb_program *p, uint32_t a, uint32_t b)
{
	int outcome;
	/* Record numbers begin with 1. */
	while ((outcome = try_swap(p, a + 1, b + 1)) == 1)
		;
	return outcome;
}

static int try_toggle(struct bdb_program *p, const unsigned char key[8])
{
	DB_TXN *txn;
	int code = p->env->txn_begin(p->env, NULL, &txn, 0);
	if (code != 0)
		return failed("txn_begin", code);
	unsigned char bytes[8], none[1];
	memcpy(bytes, key, 8);
	DBT k = view(bytes, 8), v = view(none, 0);
	code = p->db->del(p->db, txn, &k, 0);
	if (code == DB_NOTFOUND)
		code = p->db->put(p->db, txn, &k, &v, 0);
	return end(txn, code, "toggle");
}

int bdb_program_toggle(struct bdb_program *p, const unsigned char key[8])
{
	int outcome;
	while ((outcome = try_toggle(p, key)) == 1)
		;
	return outcome;
}

/* Loads what a program begins with: `count` entries or keys, in transactions of many. */
int bdb_program_load(struct bdb_program *p, const uint64_t *items, size_t count)
{
	for (size_t at = 0; at < count;) {
		DB_TXN *txn;
		int code = p->env->txn_begin(p->env, NULL, &txn, 0);
		if (code != 0)
			return failed("txn_begin", code);
		for (size_t last = at + 1000; code == 0 && at < count && at < last; at++) {
			uint64_t item = items[at];
			u_int32_t number = (u_int32_t)at + 1;
			DBT k = p->is_array ? view(&number, sizeof number) : view(&item, 8);
			DBT v = p->is_array ? view(&item, 8) : view(&item, 0);
			code = p->db->put(p->db, txn, &k, &v, 0);
		}
		if (end(txn, code, "load") != 0)
			return -1;
	}
	return 0;
}

/* Whether a key is there; or the entry of an array. */
int bdb_program_get(struct bdb_program *p, uint64_t item, uint64_t *value)
{
	u_int32_t number = (u_int32_t)item + 1;
	DBT k = p->is_array ? view(&number, sizeof number) : view(&item, 8);
	DBT v = view(value, p->is_array ? 8 : 0);
	int code = p->db->get(p->db, NULL, &k, &v, 0);
	if (code == DB_NOTFOUND)
		return 0;
	return code == 0 ? 1 : failed("DB->get", code);
}
