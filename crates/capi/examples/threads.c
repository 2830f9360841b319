/*
 * Several threads on the same two maps: each inserts its own keys, all race for common ones, and readers scan
 * meanwhile.
 *
 *   cc -std=c11 threads.c -ltembo_capi -lpthread -o threads && ./threads new.pool 4 10000
 */
#include "tembo.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static tembo_fixed *fixed;
static tembo_map *map;
static uint64_t keys_per_thread;
/* How many insertions of common keys succeeded: one for each key. */
static atomic_uint_fast64_t won;
static atomic_int writers;

static void check(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "%s; the last message: %s\n", what, tembo_last_error());
        exit(1);
    }
}

/* Most significant byte first, so that byte strings are in the order of numbers. */
static void to_bytes(uint64_t key, unsigned char bytes[8]) {
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(key >> (56 - 8 * i));
}

static void *write_keys(void *argument) {
    uint64_t thread = (uint64_t)(uintptr_t)argument;
    for (uint64_t i = 0; i < keys_per_thread; i++) {
        /* Common keys are even, a thread's own ones odd. */
        int status = tembo_fixed_insert(fixed, 2 * i, i);
        check(status == TEMBO_OK || status == TEMBO_EXISTS, "inserting a common key");
        won += status == TEMBO_OK;

        uint64_t own = 2 * (thread * keys_per_thread + i) + 1, found;
        check(tembo_fixed_insert(fixed, own, i) == TEMBO_OK, "inserting an own key");
        check(tembo_fixed_update(fixed, own, i + 1) == TEMBO_OK, "updating an own key");
        check(tembo_fixed_find(fixed, own, &found) == TEMBO_OK && found == i + 1, "finding an own key");

        unsigned char bytes[8];
        size_t length;
        to_bytes(own, bytes);
        check(tembo_map_insert(map, bytes, 8, &i, 8) == TEMBO_OK, "inserting an own string");
        check(tembo_map_find(map, bytes, 8, &found, 8, &length) == TEMBO_OK && found == i, "finding an own string");
        if (i % 4 == 0) {
            check(tembo_fixed_remove(fixed, own) == TEMBO_OK, "removing an own key");
            check(tembo_fixed_find(fixed, own, &found) == TEMBO_NOT_FOUND, "an own key that was removed");
            check(tembo_map_remove(map, bytes, 8) == TEMBO_OK, "removing an own string");
        }
    }
    writers--;
    return NULL;
}

static void *scan(void *argument) {
    (void)argument;
    tembo_fixed_record records[100];
    size_t found;
    do {
        for (uint64_t from = 0;; from = records[found - 1].key + 1) {
            check(tembo_fixed_scan(fixed, from, 100, records, &found) == TEMBO_OK, "scanning");
            for (size_t i = 0; i < found; i++)
                check(records[i].key >= from && (i == 0 || records[i].key > records[i - 1].key), "the order of keys");
            if (found < 100)
                break;
        }
    } while (writers > 0);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: %s NEW-POOL THREADS KEYS\n", argv[0]);
        return 2;
    }
    uint64_t threads = strtoull(argv[2], NULL, 10);
    keys_per_thread = strtoull(argv[3], NULL, 10);
    check(threads > 0 && threads < 64, "1 to 63 threads");

    tembo_pool *pool;
    check(tembo_pool_create(argv[1], NULL, &pool) == TEMBO_OK, "creating the pool");
    check(tembo_fixed_open(pool, "fixed", TEMBO_CREATE, &fixed) == TEMBO_OK, "creating a map");
    check(tembo_map_open(pool, "strings", TEMBO_CREATE, &map) == TEMBO_OK, "creating a map");

    pthread_t running[64];
    writers = (int)threads;
    for (uint64_t i = 0; i < threads; i++)
        check(pthread_create(&running[i], NULL, write_keys, (void *)(uintptr_t)i) == 0, "starting a thread");
    check(pthread_create(&running[threads], NULL, scan, NULL) == 0, "starting a thread");
    for (uint64_t i = 0; i <= threads; i++)
        check(pthread_join(running[i], NULL) == 0, "waiting for a thread");

    uint64_t fixed_count, map_count, own = threads * (keys_per_thread - (keys_per_thread + 3) / 4);
    check(tembo_fixed_count(fixed, &fixed_count) == TEMBO_OK, "counting");
    check(tembo_map_count(map, &map_count) == TEMBO_OK, "counting");
    check(won == keys_per_thread, "each common key was inserted by one thread");
    check(fixed_count == keys_per_thread + own && map_count == own, "the numbers of records");
    printf("%" PRIu64 " and %" PRIu64 " records\n", fixed_count, map_count);
    tembo_map_close(map);
    tembo_fixed_close(fixed);
    tembo_pool_close(pool);
    return 0;
}
