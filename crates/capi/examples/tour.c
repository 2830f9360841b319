/*
 * Every function of tembo.h once: a pool, a map of 8-byte keys, a map of byte strings, a store, and all again
 * after closing.
 *
 *   cc -std=c11 tour.c -ltembo_capi -o tour && ./tour planets.pool
 *
 * The pool must not exist.
 */
#include "tembo.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program unless a call came to what was expected. */
static void expect(int status, int expected, const char *call) {
    if (status != expected) {
        fprintf(stderr, "%s: %s, not %s: %s\n", call, tembo_status_name(status), tembo_status_name(expected),
                tembo_last_error());
        exit(1);
    }
}

#define OK(call) expect((call), TEMBO_OK, #call)
#define ANSWERS(status, call) expect((call), (status), #call)

static void fixed_keys(tembo_pool *pool) {
    tembo_fixed *squares;
    ANSWERS(TEMBO_NOT_FOUND, tembo_fixed_open(pool, "squares", 0, &squares));
    OK(tembo_fixed_open(pool, "squares", TEMBO_CREATE, &squares));
    for (uint64_t i = 0; i < 100; i++)
        OK(tembo_fixed_insert(squares, i, i * i));
    ANSWERS(TEMBO_EXISTS, tembo_fixed_insert(squares, 0, 1));
    OK(tembo_fixed_update(squares, 0, 7));
    ANSWERS(TEMBO_NOT_FOUND, tembo_fixed_update(squares, 100, 7));
    OK(tembo_fixed_put(squares, 0, 0));
    OK(tembo_fixed_remove(squares, 12));
    ANSWERS(TEMBO_NOT_FOUND, tembo_fixed_remove(squares, 12));

    uint64_t value;
    OK(tembo_fixed_find(squares, 9, &value));
    printf("9 * 9 = %" PRIu64 "\n", value);
    ANSWERS(TEMBO_NOT_FOUND, tembo_fixed_find(squares, 12, &value));
    printf("12: %s\n", tembo_last_error());

    tembo_fixed_record records[3];
    size_t found;
    OK(tembo_fixed_scan(squares, 11, 3, records, &found));
    for (size_t i = 0; i < found; i++)
        printf("%" PRIu64 " -> %" PRIu64 "\n", records[i].key, records[i].value);
    uint64_t count;
    OK(tembo_fixed_count(squares, &count));
    printf("%" PRIu64 " squares\n", count);
    tembo_fixed_close(squares);
}

static void byte_strings(tembo_pool *pool) {
    tembo_map *planets;
    OK(tembo_map_open(pool, "planets", TEMBO_CREATE, &planets));
    OK(tembo_map_insert(planets, "mars", 4, "red", 3));
    ANSWERS(TEMBO_EXISTS, tembo_map_insert(planets, "mars", 4, "green", 5));
    OK(tembo_map_put(planets, "earth", 5, "green", 5));
    OK(tembo_map_update(planets, "earth", 5, "blue", 4));
    ANSWERS(TEMBO_NOT_FOUND, tembo_map_update(planets, "pluto", 5, "grey", 4));
    OK(tembo_map_put(planets, "", 0, "", 0));
    OK(tembo_map_remove(planets, "", 0));

    char value[16];
    size_t value_bytes;
    OK(tembo_map_find(planets, "mars", 4, value, sizeof value, &value_bytes));
    printf("mars is %.*s\n", (int)value_bytes, value);
    ANSWERS(TEMBO_TOO_SMALL, tembo_map_find(planets, "mars", 4, value, 2, &value_bytes));

    char buffer[64];
    tembo_record_size sizes[8];
    size_t found, at = 0;
    OK(tembo_map_scan(planets, "a", 1, 8, buffer, sizeof buffer, sizes, &found));
    for (size_t i = 0; i < found; i++) {
        const char *key = buffer + at, *text = key + sizes[i].key_bytes;
        printf("%.*s is %.*s\n", (int)sizes[i].key_bytes, key, (int)sizes[i].value_bytes, text);
        at += sizes[i].key_bytes + sizes[i].value_bytes;
    }
    uint64_t count;
    OK(tembo_map_count(planets, &count));
    printf("%" PRIu64 " planets\n", count);
    tembo_map_close(planets);
}

static void transactions(tembo_pool *pool) {
    tembo_store *bank;
    tembo_keyspace *accounts;
    OK(tembo_store_open(pool, "bank", TEMBO_CREATE, &bank));
    OK(tembo_keyspace_open(bank, "accounts", TEMBO_CREATE, &accounts));

    tembo_transaction *opening;
    uint64_t number;
    OK(tembo_transaction_begin(bank, NULL, 0, &opening));
    OK(tembo_transaction_put(opening, accounts, "ann", 3, "100", 3));
    OK(tembo_transaction_put(opening, accounts, "bob", 3, "20", 2));
    char value[16];
    size_t value_bytes;
    OK(tembo_transaction_get(opening, accounts, "bob", 3, value, sizeof value, &value_bytes));
    printf("bob has %.*s\n", (int)value_bytes, value);
    OK(tembo_transaction_commit(opening, &number));

    tembo_snapshot *morning;
    uint64_t same;
    OK(tembo_snapshot_open(bank, number, &morning));
    OK(tembo_snapshot_number(morning, &same));
    OK(tembo_snapshot_keep(bank, morning, "morning"));

    /* Two transactions write one key: the first to commit wins. */
    tembo_transaction *first, *second;
    OK(tembo_transaction_begin(bank, NULL, 0, &first));
    OK(tembo_transaction_begin(bank, morning, 0, &second));
    OK(tembo_transaction_put(first, accounts, "ann", 3, "70", 2));
    OK(tembo_transaction_put(first, accounts, "bob", 3, "50", 2));
    OK(tembo_transaction_delete(second, accounts, "ann", 3));
    OK(tembo_transaction_commit(first, NULL));
    ANSWERS(TEMBO_CONFLICT, tembo_transaction_commit(second, NULL));
    printf("%s\n", tembo_status_name(TEMBO_CONFLICT));

    /* All of a keyspace, in the transaction's own view. */
    size_t at;
    char buffer[64];
    tembo_record_size sizes[8];
    size_t found;
    uint64_t deleted;
    tembo_transaction *last;
    OK(tembo_transaction_begin(bank, NULL, TEMBO_SERIALIZABLE, &last));
    OK(tembo_transaction_delete_range(last, accounts, "b", 1, "c", 1, &deleted));
    OK(tembo_transaction_scan(last, accounts, "", 0, 8, buffer, sizeof buffer, sizes, &found));
    printf("%" PRIu64 " deleted, %zu left\n", deleted, found);
    tembo_transaction_abort(last);

    /* The morning is as it was. */
    tembo_snapshot *again;
    OK(tembo_snapshot_get(morning, accounts, "ann", 3, value, sizeof value, &value_bytes));
    printf("ann has %.*s\n", (int)value_bytes, value);
    tembo_snapshot_close(morning);
    OK(tembo_snapshot_open_named(bank, "morning", &again));
    OK(tembo_snapshot_scan(again, accounts, "a", 1, 8, buffer, sizeof buffer, sizes, &found));
    printf("%zu accounts\n", found);
    tembo_snapshot_close(again);
    OK(tembo_snapshot_delete(bank, "morning"));
    ANSWERS(TEMBO_NOT_FOUND, tembo_snapshot_delete(bank, "morning"));

    /* Every balance that ann has from now on stays. */
    tembo_transaction *evening;
    unsigned retention;
    uint64_t amount;
    OK(tembo_keyspace_retain(bank, accounts, TEMBO_RETAIN_ALL, 0));
    OK(tembo_keyspace_retention(accounts, &retention, &amount));
    OK(tembo_transaction_begin(bank, NULL, 0, &evening));
    OK(tembo_transaction_put(evening, accounts, "ann", 3, "60", 2));
    OK(tembo_transaction_commit(evening, &number));
    tembo_version_info versions[8];
    OK(tembo_key_versions(bank, accounts, "ann", 3, UINT64_MAX, 8, buffer, sizeof buffer, versions, &found));
    at = 0;
    for (size_t i = 0; i < found && versions[i].value_bytes != TEMBO_DELETED; i++) {
        printf("ann had %.*s\n", (int)versions[i].value_bytes, buffer + at);
        at += (size_t)versions[i].value_bytes;
    }
    OK(tembo_snapshot_keep_number(bank, number));
    tembo_kept kept[8];
    OK(tembo_snapshot_list(bank, 0, 8, kept, &found));
    printf("%zu kept, %s\n", found, kept[0].number == number ? "the evening" : "another");
    OK(tembo_snapshot_delete_number(bank, number));

    tembo_keyspace *scratch;
    OK(tembo_keyspace_open(bank, "scratch", TEMBO_CREATE, &scratch));
    OK(tembo_keyspace_drop(bank, "scratch"));
    tembo_keyspace_close(scratch);
    int is_left;
    do {
        OK(tembo_store_collect(bank, 16, &is_left));
    } while (is_left);
    tembo_keyspace_close(accounts);
    tembo_store_close(bank);
}

static void names(tembo_pool *pool) {
    tembo_map *scratch;
    OK(tembo_map_open(pool, "scratch", TEMBO_CREATE, &scratch));
    OK(tembo_map_put(scratch, "key", 3, "value", 5));
    /* A map that has a handle is not dropped. */
    ANSWERS(TEMBO_LOCKED, tembo_pool_drop(pool, "scratch"));
    tembo_map_close(scratch);

    tembo_name names[8];
    size_t found;
    OK(tembo_pool_list(pool, 0, 8, names, &found));
    for (size_t i = 0; i < found; i++) {
        const char *kind = names[i].kind == TEMBO_KIND_STORE ? "store" : "map";
        printf("%s: a %s%s\n", names[i].name, names[i].kind == TEMBO_KIND_FIXED ? "fixed " : "", kind);
    }
    OK(tembo_pool_drop(pool, "scratch"));
    ANSWERS(TEMBO_NOT_FOUND, tembo_pool_drop(pool, "scratch"));
    /* Its space comes back now, a few nodes at a time, or later. */
    int is_left;
    do {
        OK(tembo_pool_reclaim(pool, 16, &is_left));
    } while (is_left);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s NEW-POOL\n", argv[0]);
        return 2;
    }
    printf("tembo %s\n", tembo_version());

    tembo_options options;
    memset(&options, 0, sizeof options);
    options.struct_bytes = sizeof options;
    options.durability = TEMBO_AUTO;
    options.initial_bytes = 4 << 20;

    tembo_pool *pool;
    ANSWERS(TEMBO_NOT_FOUND, tembo_pool_open(argv[1], &options, &pool));
    OK(tembo_pool_create(argv[1], &options, &pool));
    printf("a change that was acknowledged survives %s\n", tembo_pool_survives(pool));
    fixed_keys(pool);
    byte_strings(pool);
    transactions(pool);
    names(pool);
    uint64_t moved, freed;
    OK(tembo_pool_compact(pool, 0, &moved, &freed));
    tembo_pool_close(pool);

    /* Everything is there again; a map keeps its pool open. */
    options.flags = TEMBO_READ_ONLY_POOL;
    OK(tembo_pool_open(argv[1], &options, &pool));
    tembo_fixed *squares;
    OK(tembo_fixed_open(pool, "squares", 0, &squares));
    tembo_pool_close(pool);
    uint64_t value;
    OK(tembo_fixed_find(squares, 99, &value));
    printf("99 * 99 = %" PRIu64 "\n", value);
    ANSWERS(TEMBO_READ_ONLY, tembo_fixed_remove(squares, 99));
    tembo_fixed_close(squares);
    return 0;
}
