/* Bytes that LMDB takes while read transactions are held. With locks: without them it would not know of
 * readers. */
#include "engine.h"

#include <lmdb.h>

static uint64_t used(MDB_env *env)
{
	MDB_envinfo info;
	MDB_stat stat;
	mdb_env_info(env, &info);
	mdb_env_stat(env, &stat);
	return ((uint64_t)info.me_last_pgno + 1) * stat.ms_psize;
}

/* Writes a record; the transaction is committed by the caller. */
static int put(MDB_txn *txn, MDB_dbi dbi, uint64_t index, uint64_t value)
{
	uint64_t key = index * UINT64_C(0x9e3779b97f4a7c15);
	MDB_val k = {sizeof key, &key}, v = {sizeof value, &value};
	return mdb_put(txn, dbi, &k, &v, 0);
}

static int overwrite(MDB_env *env, MDB_dbi dbi, const uint32_t *order, uint64_t count, uint64_t value)
{
	int code = 0;
	for (uint64_t i = 0; i < count && code == 0; i++) {
		MDB_txn *txn;
		if ((code = mdb_txn_begin(env, NULL, 0, &txn)) != 0)
			break;
		if ((code = put(txn, dbi, order[i], value)) != 0)
			mdb_txn_abort(txn);
		else
			code = mdb_txn_commit(txn);
	}
	return code;
}

static int run(MDB_env *env, uint64_t keys, const uint32_t *order, uint64_t count, uint64_t *bytes)
{
	MDB_txn *txn, *first, *second;
	MDB_dbi dbi;
	int code;
	if ((code = mdb_txn_begin(env, NULL, 0, &txn)) != 0)
		return code;
	code = mdb_dbi_open(txn, NULL, MDB_INTEGERKEY, &dbi);
	for (uint64_t i = 0; i < keys && code == 0; i++)
		code = put(txn, dbi, i, 0);
	if (code != 0) {
		mdb_txn_abort(txn);
		return code;
	}
	if ((code = mdb_txn_commit(txn)) != 0)
		return code;
	bytes[0] = used(env);
	if ((code = mdb_txn_begin(env, NULL, MDB_RDONLY, &first)) != 0)
		return code;
	if ((code = overwrite(env, dbi, order, count, 1)) != 0)
		return code;
	bytes[1] = used(env);
	if ((code = mdb_txn_begin(env, NULL, MDB_RDONLY, &second)) != 0)
		return code;
	if ((code = overwrite(env, dbi, order, count, 2)) != 0)
		return code;
	bytes[2] = used(env);
	if ((code = overwrite(env, dbi, order, count, 3)) != 0)
		return code;
	bytes[3] = used(env);
	mdb_txn_abort(first);
	mdb_txn_abort(second);
	code = overwrite(env, dbi, order, count, 4);
	bytes[4] = used(env);
	return code;
}

/* Fills a database, and notes its bytes at first and after each of four rounds that overwrite the records of
 * `order`: with one snapshot held, with a second one, with the same two, and with none. */
int peer_lmdb_held(const char *folder, uint64_t keys, const uint32_t *order, uint64_t count, uint64_t *bytes)
{
	MDB_env *env;
	int code;
	if ((code = mdb_env_create(&env)) != 0)
		return peer_fail("mdb_env_create", mdb_strerror(code));
	if ((code = mdb_env_set_mapsize(env, (size_t)64 << 30)) == 0 &&
	    (code = mdb_env_open(env, folder, MDB_WRITEMAP | MDB_NOTLS | MDB_NORDAHEAD | MDB_NOSYNC, 0644)) == 0)
		code = run(env, keys, order, count, bytes);
	mdb_env_close(env);
	return code == 0 ? 0 : peer_fail("lmdb", mdb_strerror(code));
}
