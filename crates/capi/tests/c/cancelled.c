/*
 * A thread that was cancelled while it was in `tembo_pool_open` ended the process: cancellation unwinds, and
 * that must not go through the library. Here a thread has a cancellation pending during every call there is:
 * each returns, and the thread ends afterwards, at a cancellation point of its own.
 */
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <string.h>

enum { RECORDS = 40000, LARGE = 3 << 20 };

static const char *path;
static uint32_t durability;
static int has_returned;
static char large[LARGE];

/* Changes and reads, with growth: the pool begins with a megabyte. */
static void use(tembo_pool *pool) {
    tembo_fixed *fixed;
    tembo_map *map;
    CHECK(tembo_fixed_open(pool, "fixed", TEMBO_CREATE, &fixed) == TEMBO_OK);
    CHECK(tembo_map_open(pool, "strings", TEMBO_CREATE, &map) == TEMBO_OK);
    int is_slow = durability == TEMBO_SYNCED || durability == TEMBO_JOURNALED;
    int records = is_slow ? 50 : RECORDS;
    for (int i = 0; i < records; i++)
        CHECK(tembo_fixed_insert(fixed, i, i) == TEMBO_OK);
    uint64_t value;
    size_t count;
    static tembo_fixed_record found[RECORDS];
    CHECK(tembo_fixed_put(fixed, 1, 2) == TEMBO_OK && tembo_fixed_update(fixed, 1, 3) == TEMBO_OK);
    CHECK(tembo_fixed_find(fixed, 1, &value) == TEMBO_OK && value == 3);
    CHECK(tembo_fixed_find(fixed, UINT64_MAX, &value) == TEMBO_NOT_FOUND);
    CHECK(tembo_fixed_scan(fixed, 0, records, found, &count) == TEMBO_OK && (int)count == records);
    CHECK(tembo_fixed_count(fixed, &value) == TEMBO_OK && tembo_fixed_remove(fixed, 1) == TEMBO_OK);
    CHECK(tembo_map_put(map, "large", 5, large, LARGE) == TEMBO_OK);
    CHECK(tembo_map_insert(map, "k", 1, "v", 1) == TEMBO_OK && tembo_map_update(map, "k", 1, "w", 1) == TEMBO_OK);
    CHECK(tembo_map_find(map, "large", 5, large, LARGE, &count) == TEMBO_OK && count == LARGE);
    CHECK(tembo_map_scan(map, "", 0, 2, large, LARGE, NULL, &count) == TEMBO_OK || count == 1);
    CHECK(tembo_map_count(map, &value) == TEMBO_OK && value == 2);
    CHECK(tembo_map_remove(map, "large", 5) == TEMBO_OK && tembo_map_remove(map, "k", 1) == TEMBO_OK);
    tembo_fixed_close(fixed);
    tembo_map_close(map);
}

static void *cancelled(void *unused) {
    tembo_pool *pool, *second;
    tembo_options options = {.struct_bytes = sizeof options, .durability = durability, .initial_bytes = 1 << 20};
    CHECK(pthread_cancel(pthread_self()) == 0); /* It is pending from here on. */
    CHECK(tembo_pool_open(path, &options, &pool) == TEMBO_NOT_FOUND);
    CHECK(tembo_pool_create(path, &options, &pool) == TEMBO_OK);
    CHECK(tembo_pool_open(path, &options, &second) == TEMBO_LOCKED && tembo_last_error()[0] != 0);
    use(pool);
    tembo_pool_close(pool);
    CHECK(tembo_pool_open(path, &options, &pool) == TEMBO_OK);
    tembo_pool_close(pool);
    has_returned = 1;
    pthread_testcancel();
    return unused;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    path = argv[1];
    const uint32_t all[] = {TEMBO_SYNCED, TEMBO_EMULATED, TEMBO_RELAXED, TEMBO_JOURNALED, TEMBO_AUTO};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        remove(path);
        durability = all[i];
        has_returned = 0;
        pthread_t thread;
        void *result;
        CHECK(pthread_create(&thread, NULL, cancelled, NULL) == 0 && pthread_join(thread, &result) == 0);
        CHECK(has_returned && result == PTHREAD_CANCELED);
    }
    puts("no call was cancelled");
    return 0;
}
