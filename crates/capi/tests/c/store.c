/* Arguments at their edges, and every failure of a store that can be had without a full or damaged pool. */
#include "check.h"

#include <pthread.h>
#include <string.h>

static tembo_store *store;
static tembo_keyspace *numbers;

static tembo_transaction *begin(void) {
    tembo_transaction *transaction;
    CHECK(tembo_transaction_begin(store, NULL, 0, &transaction) == TEMBO_OK);
    return transaction;
}

static void put(const char *key, const char *value) {
    tembo_transaction *transaction = begin();
    CHECK(tembo_transaction_put(transaction, numbers, key, strlen(key), value, strlen(value)) == TEMBO_OK);
    CHECK(tembo_transaction_commit(transaction, NULL) == TEMBO_OK);
}

static void names_and_flags(tembo_pool *pool) {
    tembo_store *other = NULL;
    tembo_keyspace *keyspace = NULL;
    tembo_transaction *transaction = NULL;
    tembo_map *map;
    char long_name[300];
    memset(long_name, 'x', sizeof long_name);
    long_name[257] = 0;
    CHECK(tembo_store_open(pool, "store", 0, &other) == TEMBO_NOT_FOUND && other == NULL);
    CHECK(tembo_store_open(pool, "store", 2, &other) == TEMBO_INVALID);
    CHECK(tembo_store_open(pool, NULL, TEMBO_CREATE, &other) == TEMBO_INVALID);
    CHECK(tembo_store_open(NULL, "store", TEMBO_CREATE, &other) == TEMBO_INVALID);
    CHECK(tembo_store_open(pool, "store", TEMBO_CREATE, NULL) == TEMBO_INVALID);
    CHECK(tembo_store_open(pool, "store", TEMBO_CREATE, &store) == TEMBO_OK);
    CHECK(tembo_map_open(pool, "map", TEMBO_CREATE, &map) == TEMBO_OK);
    tembo_map_close(map);
    CHECK(tembo_store_open(pool, "map", 0, &other) == TEMBO_WRONG_KIND);
    CHECK(tembo_map_open(pool, "store", 0, &map) == TEMBO_WRONG_KIND);
    CHECK(tembo_keyspace_open(store, "numbers", 0, &keyspace) == TEMBO_NOT_FOUND && keyspace == NULL);
    CHECK(tembo_keyspace_open(store, "", TEMBO_CREATE, &keyspace) == TEMBO_INVALID);
    CHECK(tembo_keyspace_open(store, long_name, TEMBO_CREATE, &keyspace) == TEMBO_INVALID);
    CHECK(tembo_keyspace_open(store, "numbers", TEMBO_CREATE, &numbers) == TEMBO_OK);
    CHECK(tembo_keyspace_drop(store, "none") == TEMBO_NOT_FOUND);
    CHECK(tembo_transaction_begin(store, NULL, 4, &transaction) == TEMBO_INVALID && transaction == NULL);
}

static void keys_and_values(void) {
    static char big[65537];
    char value[8] = "unread";
    size_t value_bytes = 99;
    uint64_t deleted = 99;
    tembo_transaction *transaction = begin();
    CHECK(tembo_transaction_put(transaction, numbers, NULL, 0, NULL, 0) == TEMBO_OK);
    CHECK(tembo_transaction_get(transaction, numbers, "", 0, NULL, 0, &value_bytes) == TEMBO_OK && value_bytes == 0);
    CHECK(tembo_transaction_put(transaction, numbers, big, sizeof big, "", 0) == TEMBO_INVALID);
    CHECK(tembo_transaction_put(transaction, numbers, big, 65536, "", 0) == TEMBO_OK);
    CHECK(tembo_transaction_put(transaction, numbers, NULL, 1, "", 0) == TEMBO_INVALID);
    CHECK(tembo_transaction_put(transaction, NULL, "a", 1, "", 0) == TEMBO_INVALID);
    CHECK(tembo_transaction_put(NULL, numbers, "a", 1, "", 0) == TEMBO_INVALID);
    CHECK(tembo_transaction_put(transaction, numbers, "a", (size_t)-1, "", 0) == TEMBO_INVALID);
    CHECK(tembo_transaction_put(transaction, numbers, "a", 1, "12345", 5) == TEMBO_OK);
    CHECK(tembo_transaction_get(transaction, numbers, "a", 1, value, 4, &value_bytes) == TEMBO_TOO_SMALL);
    CHECK(value_bytes == 5 && strcmp(value, "unread") == 0);
    CHECK(tembo_transaction_get(transaction, numbers, "b", 1, value, 8, &value_bytes) == TEMBO_NOT_FOUND);
    CHECK(tembo_transaction_get(transaction, numbers, "a", 1, value, 8, NULL) == TEMBO_INVALID);
    CHECK(tembo_transaction_delete(transaction, numbers, "b", 1) == TEMBO_OK);
    CHECK(tembo_transaction_delete_range(transaction, numbers, "z", 1, "a", 1, &deleted) == TEMBO_OK && deleted == 0);
    CHECK(tembo_transaction_delete_range(transaction, numbers, "", 0, "b", 1, NULL) == TEMBO_OK);
    CHECK(tembo_transaction_get(transaction, numbers, "a", 1, value, 8, &value_bytes) == TEMBO_NOT_FOUND);
    tembo_transaction_abort(transaction);
    tembo_transaction_abort(NULL);
    CHECK(tembo_transaction_commit(NULL, NULL) == TEMBO_INVALID);
    uint64_t number = 0;
    CHECK(tembo_transaction_commit(begin(), &number) == TEMBO_OK);
}

static void conflicts(void) {
    tembo_transaction *first = begin(), *second = begin(), *reader;
    char value[8];
    size_t value_bytes;
    put("a", "0");
    CHECK(tembo_transaction_put(first, numbers, "a", 1, "1", 1) == TEMBO_OK);
    CHECK(tembo_transaction_put(second, numbers, "a", 1, "2", 1) == TEMBO_OK);
    CHECK(tembo_transaction_commit(second, NULL) == TEMBO_OK);
    CHECK(tembo_transaction_commit(first, NULL) == TEMBO_CONFLICT);
    CHECK(strstr(tembo_last_error(), "run the transaction again") != NULL);
    /* A serializable transaction conflicts by what it has read, too. */
    CHECK(tembo_transaction_begin(store, NULL, TEMBO_SERIALIZABLE, &reader) == TEMBO_OK);
    CHECK(tembo_transaction_get(reader, numbers, "a", 1, value, 8, &value_bytes) == TEMBO_OK && value[0] == '2');
    CHECK(tembo_transaction_put(reader, numbers, "b", 1, value, 1) == TEMBO_OK);
    put("a", "3");
    CHECK(tembo_transaction_commit(reader, NULL) == TEMBO_CONFLICT);
}

static void snapshots(void) {
    tembo_snapshot *snapshot = NULL, *now;
    tembo_transaction *transaction = NULL;
    uint64_t number = 0;
    char buffer[4];
    tembo_record_size sizes[4];
    size_t count = 99;
    CHECK(tembo_snapshot_open(store, UINT64_MAX, &now) == TEMBO_OK);
    CHECK(tembo_snapshot_number(now, &number) == TEMBO_OK && number > 0);
    CHECK(tembo_snapshot_open(store, UINT64_MAX - 1, &snapshot) == TEMBO_GONE && snapshot == NULL);
    CHECK(tembo_snapshot_open_named(store, "none", &snapshot) == TEMBO_NOT_FOUND && snapshot == NULL);
    CHECK(tembo_snapshot_keep(store, now, "name") == TEMBO_OK);
    CHECK(tembo_snapshot_keep(store, now, "name") == TEMBO_EXISTS);
    CHECK(tembo_snapshot_keep(store, now, "") == TEMBO_INVALID);
    CHECK(tembo_transaction_begin(store, now, TEMBO_SERIALIZABLE, &transaction) == TEMBO_INVALID);
    put("b", "12");
    CHECK(tembo_snapshot_scan(now, numbers, "", 0, 4, buffer, sizeof buffer, sizes, &count) == TEMBO_OK && count == 1);
    tembo_snapshot_close(now);
    CHECK(tembo_snapshot_open_named(store, "name", &now) == TEMBO_OK);
    CHECK(tembo_snapshot_delete(store, "name") == TEMBO_OK);
    CHECK(tembo_snapshot_scan(now, numbers, "", 0, 4, buffer, sizeof buffer, NULL, &count) == TEMBO_OK && count == 1);
    tembo_snapshot_close(now);
    CHECK(tembo_snapshot_open(store, UINT64_MAX, &now) == TEMBO_OK);
    CHECK(tembo_snapshot_scan(now, numbers, "", 0, 4, buffer, sizeof buffer, sizes, &count) == TEMBO_TOO_SMALL);
    CHECK(count == 1 && sizes[0].key_bytes == 1 && sizes[0].value_bytes == 1 && buffer[1] == '3');
    CHECK(tembo_snapshot_scan(now, numbers, "", 0, 4, buffer, sizeof buffer, sizes, NULL) == TEMBO_INVALID);
    tembo_snapshot_close(now);
    tembo_snapshot_close(NULL);
}

static void kept_snapshots(void) {
    tembo_kept kept[4];
    tembo_snapshot *now, *again;
    uint64_t first = 0, last = 0;
    size_t count = 99;
    char name[257];
    memset(name, 'n', sizeof name);
    name[256] = 0;
    CHECK(tembo_snapshot_list(store, 0, 4, kept, &count) == TEMBO_OK && count == 0);
    CHECK(tembo_snapshot_open(store, UINT64_MAX, &now) == TEMBO_OK);
    CHECK(tembo_snapshot_number(now, &first) == TEMBO_OK);
    CHECK(tembo_snapshot_keep(store, now, name) == TEMBO_OK);
    CHECK(tembo_snapshot_keep_number(store, first) == TEMBO_OK);
    CHECK(tembo_snapshot_keep_number(store, first) == TEMBO_EXISTS);
    tembo_snapshot_close(now);
    put("a", "later");
    CHECK(tembo_snapshot_keep_number(store, first - 1) == TEMBO_GONE);
    CHECK(tembo_snapshot_keep_number(store, UINT64_MAX - 1) == TEMBO_GONE);
    CHECK(tembo_snapshot_keep_number(NULL, first) == TEMBO_INVALID);
    CHECK(tembo_snapshot_open(store, UINT64_MAX, &now) == TEMBO_OK);
    CHECK(tembo_snapshot_number(now, &last) == TEMBO_OK && last > first);
    CHECK(tembo_snapshot_keep(store, now, "a") == TEMBO_OK);
    tembo_snapshot_close(now);
    /* By number first, then by name. */
    CHECK(tembo_snapshot_list(store, 0, 4, kept, &count) == TEMBO_OK && count == 3);
    CHECK(kept[0].number == first && kept[0].name_bytes == 0 && kept[0].name[0] == 0);
    CHECK(kept[1].number == last && kept[1].name_bytes == 1 && strcmp(kept[1].name, "a") == 0);
    CHECK(kept[2].number == first && kept[2].name_bytes == 256 && strcmp(kept[2].name, name) == 0);
    CHECK(tembo_snapshot_list(store, 2, 4, kept, &count) == TEMBO_OK && count == 1 && kept[0].name_bytes == 256);
    CHECK(tembo_snapshot_list(store, 3, 4, kept, &count) == TEMBO_OK && count == 0);
    CHECK(tembo_snapshot_list(store, 0, 1, kept, &count) == TEMBO_OK && count == 1);
    CHECK(tembo_snapshot_list(store, 0, 0, NULL, &count) == TEMBO_OK && count == 0);
    CHECK(tembo_snapshot_list(store, 0, 1, NULL, &count) == TEMBO_INVALID);
    CHECK(tembo_snapshot_list(store, 0, 1, kept, NULL) == TEMBO_INVALID);
    CHECK(tembo_snapshot_list(NULL, 0, 1, kept, &count) == TEMBO_INVALID);
    /* What is kept by its number is opened by it. */
    CHECK(tembo_snapshot_delete(store, name) == TEMBO_OK);
    CHECK(tembo_snapshot_open(store, first, &again) == TEMBO_OK);
    char value[8];
    size_t value_bytes;
    CHECK(tembo_snapshot_get(again, numbers, "a", 1, value, 8, &value_bytes) == TEMBO_OK && value_bytes == 1);
    tembo_snapshot_close(again);
    CHECK(tembo_snapshot_delete_number(store, first) == TEMBO_OK);
    CHECK(tembo_snapshot_delete_number(store, first) == TEMBO_NOT_FOUND);
    CHECK(tembo_snapshot_delete_number(store, last) == TEMBO_NOT_FOUND);
    CHECK(tembo_snapshot_delete(store, "a") == TEMBO_OK);
}

static void versions(void) {
    tembo_keyspace *past;
    tembo_transaction *transaction;
    tembo_version_info all[8];
    unsigned retention = 99;
    uint64_t amount = 99, numbers_of[4];
    char buffer[16];
    size_t count = 99;
    CHECK(tembo_keyspace_open(store, "past", TEMBO_CREATE, &past) == TEMBO_OK);
    CHECK(tembo_keyspace_retention(past, &retention, &amount) == TEMBO_OK);
    CHECK(retention == TEMBO_RETAIN_NONE && amount == 0);
    const struct {
        unsigned retention;
        uint64_t amount;
        int status;
    } choices[] = {
        {TEMBO_RETAIN_NONE, 1, TEMBO_INVALID},
        {TEMBO_RETAIN_VERSIONS, 0, TEMBO_INVALID},
        {TEMBO_RETAIN_VERSIONS, (uint64_t)UINT32_MAX + 1, TEMBO_INVALID},
        {TEMBO_RETAIN_TIME, (uint64_t)1 << 56, TEMBO_INVALID},
        {TEMBO_RETAIN_BYTES, UINT64_MAX, TEMBO_INVALID},
        {TEMBO_RETAIN_ALL, 1, TEMBO_INVALID},
        {5, 0, TEMBO_INVALID},
        {TEMBO_RETAIN_VERSIONS, UINT32_MAX, TEMBO_OK},
        {TEMBO_RETAIN_TIME, ((uint64_t)1 << 56) - 1, TEMBO_OK},
        {TEMBO_RETAIN_BYTES, 5, TEMBO_OK},
        {TEMBO_RETAIN_NONE, 0, TEMBO_OK},
        {TEMBO_RETAIN_ALL, 0, TEMBO_OK},
    };
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        CHECK(tembo_keyspace_retain(store, past, choices[i].retention, choices[i].amount) == choices[i].status);
        if (choices[i].status != TEMBO_OK)
            continue;
        CHECK(tembo_keyspace_retention(past, &retention, &amount) == TEMBO_OK);
        CHECK(retention == choices[i].retention && amount == choices[i].amount);
    }
    CHECK(tembo_keyspace_retain(store, NULL, 0, 0) == TEMBO_INVALID);
    CHECK(tembo_keyspace_retention(past, NULL, &amount) == TEMBO_INVALID);
    CHECK(tembo_keyspace_retention(past, &retention, NULL) == TEMBO_INVALID);

    CHECK(tembo_key_versions(store, past, "k", 1, UINT64_MAX, 8, buffer, 16, all, &count) == TEMBO_OK && count == 0);
    const char *values[] = {"one", NULL, "three", ""};
    for (int i = 0; i < 4; i++) {
        transaction = begin();
        if (values[i] == NULL)
            CHECK(tembo_transaction_delete(transaction, past, "k", 1) == TEMBO_OK);
        else
            CHECK(tembo_transaction_put(transaction, past, "k", 1, values[i], strlen(values[i])) == TEMBO_OK);
        CHECK(tembo_transaction_commit(transaction, &numbers_of[i]) == TEMBO_OK);
    }
    CHECK(tembo_key_versions(store, past, "k", 1, UINT64_MAX, 8, buffer, 16, all, &count) == TEMBO_OK && count == 4);
    for (int i = 0; i < 4; i++) {
        uint64_t bytes = values[3 - i] == NULL ? TEMBO_DELETED : strlen(values[3 - i]);
        CHECK(all[i].number == numbers_of[3 - i] && all[i].value_bytes == bytes);
    }
    CHECK(memcmp(buffer, "threeone", 8) == 0);
    /* Up to a number, and by parts. */
    CHECK(tembo_key_versions(store, past, "k", 1, numbers_of[2], 1, buffer, 16, all, &count) == TEMBO_OK && count == 1);
    CHECK(all[0].number == numbers_of[2] && memcmp(buffer, "three", 5) == 0);
    CHECK(tembo_key_versions(store, past, "k", 1, numbers_of[2] - 1, 8, buffer, 16, all, &count) == TEMBO_OK);
    CHECK(count == 2 && all[0].value_bytes == TEMBO_DELETED && memcmp(buffer, "one", 3) == 0);
    CHECK(tembo_key_versions(store, past, "k", 1, numbers_of[0] - 1, 8, buffer, 16, all, &count) == TEMBO_OK);
    CHECK(count == 0);
    /* One that does not fit says how long it is. */
    CHECK(tembo_key_versions(store, past, "k", 1, UINT64_MAX, 8, buffer, 4, all, &count) == TEMBO_TOO_SMALL);
    CHECK(count == 1 && all[0].value_bytes == 0 && all[1].number == numbers_of[2] && all[1].value_bytes == 5);
    CHECK(tembo_key_versions(store, past, "k", 1, UINT64_MAX, 8, NULL, 4, all, &count) == TEMBO_INVALID);
    CHECK(tembo_key_versions(store, past, "k", 1, UINT64_MAX, 8, buffer, 4, NULL, &count) == TEMBO_INVALID);
    CHECK(tembo_key_versions(store, past, "k", 1, UINT64_MAX, 8, buffer, 4, all, NULL) == TEMBO_INVALID);
    CHECK(tembo_key_versions(store, past, NULL, 1, UINT64_MAX, 8, buffer, 4, all, &count) == TEMBO_INVALID);
    CHECK(tembo_keyspace_drop(store, "past") == TEMBO_OK);
    CHECK(tembo_key_versions(store, past, "k", 1, UINT64_MAX, 8, buffer, 16, all, &count) == TEMBO_GONE);
    CHECK(tembo_keyspace_retain(store, past, TEMBO_RETAIN_ALL, 0) == TEMBO_GONE);
    tembo_keyspace_close(past);
}

static void dropped_keyspaces(void) {
    tembo_keyspace *keyspace;
    tembo_transaction *transaction = begin();
    CHECK(tembo_keyspace_open(store, "short", TEMBO_CREATE, &keyspace) == TEMBO_OK);
    CHECK(tembo_transaction_put(transaction, keyspace, "a", 1, "b", 1) == TEMBO_OK);
    CHECK(tembo_keyspace_drop(store, "short") == TEMBO_OK);
    CHECK(tembo_transaction_commit(transaction, NULL) == TEMBO_GONE);
    tembo_keyspace_close(keyspace);
    tembo_keyspace_close(NULL);
}

/* Each of the threads adds to one number, again while it conflicts. */
static void *add(void *unused) {
    (void)unused;
    for (int i = 0; i < 300; i++) {
        int status;
        do {
            tembo_transaction *transaction = begin();
            uint32_t sum = 0;
            size_t bytes;
            int found = tembo_transaction_get(transaction, numbers, "sum", 3, &sum, sizeof sum, &bytes);
            CHECK(found == TEMBO_OK || found == TEMBO_NOT_FOUND);
            sum++;
            CHECK(tembo_transaction_put(transaction, numbers, "sum", 3, &sum, sizeof sum) == TEMBO_OK);
            status = tembo_transaction_commit(transaction, NULL);
            CHECK(status == TEMBO_OK || status == TEMBO_CONFLICT);
        } while (status != TEMBO_OK);
    }
    return NULL;
}

static void threads(void) {
    pthread_t others[3];
    tembo_transaction *transaction;
    uint32_t sum;
    size_t bytes;
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&others[i], NULL, add, NULL) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(others[i], NULL) == 0);
    transaction = begin();
    CHECK(tembo_transaction_get(transaction, numbers, "sum", 3, &sum, sizeof sum, &bytes) == TEMBO_OK && sum == 900);
    tembo_transaction_abort(transaction);
}

int main(int argc, char **argv) {
    tembo_pool *pool;
    CHECK(argc == 2);
    CHECK(tembo_pool_create(argv[1], NULL, &pool) == TEMBO_OK);
    names_and_flags(pool);
    keys_and_values();
    conflicts();
    snapshots();
    kept_snapshots();
    versions();
    dropped_keyspaces();
    threads();
    tembo_keyspace_close(numbers);
    tembo_store_close(store);
    tembo_store_close(NULL);
    tembo_pool_close(pool);
    printf("all edges of stores hold\n");
    return 0;
}
