/*
 * `tembo_fixed_scan` gathered its whole result a second time and ended the process when there was no memory
 * for that. Here the process may have hardly more memory than it has: scans and changes of every size go on,
 * and what does need memory is refused.
 */
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <string.h>
#include <sys/resource.h>

enum { RECORDS = 200000, LARGE = 16 << 20 };

static tembo_fixed_record records[RECORDS];
static char large[LARGE];

static size_t mapped_bytes(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%lu", &pages) == 1);
    fclose(file);
    return pages * 4096;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    tembo_pool *pool, *other = NULL;
    tembo_fixed *fixed;
    tembo_map *map;
    /* A journal has buffers of a few MiB, which its threads allocate when they need them. */
    tembo_options options = {.struct_bytes = sizeof options, .initial_bytes = 128 << 20, .max_bytes = 128 << 20,
                             .durability = TEMBO_PAGE_CACHE};
    CHECK(tembo_pool_create(argv[1], &options, &pool) == TEMBO_OK);
    CHECK(tembo_fixed_open(pool, "fixed", TEMBO_CREATE, &fixed) == TEMBO_OK);
    CHECK(tembo_map_open(pool, "strings", TEMBO_CREATE, &map) == TEMBO_OK);
    for (int i = 0; i < RECORDS; i++)
        CHECK(tembo_fixed_insert(fixed, i, ~i) == TEMBO_OK);
    CHECK(tembo_map_put(map, "first", 5, large, 100) == TEMBO_OK);
    CHECK(tembo_map_put(map, "large", 5, large, LARGE) == TEMBO_OK);

    size_t count, limit = mapped_bytes() + (1 << 20);
    CHECK(setrlimit(RLIMIT_AS, &(struct rlimit){limit, limit}) == 0);
    /* One after another as long as the records in them: 3 MB here, and 3 MB there. */
    for (int round = 0; round < 3; round++) {
        memset(records, 0, sizeof records);
        CHECK(tembo_fixed_scan(fixed, 0, RECORDS, records, &count) == TEMBO_OK && count == RECORDS);
        CHECK(records[RECORDS - 1].key == RECORDS - 1);
    }
    /* The memory that a change needs for the lines of large values, there and gone. */
    CHECK(tembo_map_put(map, "second", 6, large, LARGE) == TEMBO_NO_MEMORY && tembo_last_error()[0] != 0);
    CHECK(tembo_map_find(map, "second", 6, large, LARGE, &count) == TEMBO_NOT_FOUND);
    CHECK(tembo_map_find(map, "large", 5, large, LARGE, &count) == TEMBO_OK && count == LARGE);
    CHECK(tembo_map_scan(map, "l", 1, 9, large, LARGE - 1, NULL, &count) == TEMBO_TOO_SMALL && count == 0);
    int status = tembo_map_remove(map, "large", 5);
    CHECK(status == TEMBO_OK || status == TEMBO_NO_MEMORY);
    CHECK(tembo_map_put(map, "first", 5, large, 1 << 16) == TEMBO_OK && tembo_map_remove(map, "first", 5) == TEMBO_OK);
    /* There is no room to map another pool. */
    char path[4096];
    CHECK(snprintf(path, sizeof path, "%s.2", argv[1]) > 0);
    CHECK(tembo_pool_create(path, &options, &other) == TEMBO_NO_MEMORY && other == NULL);
    remove(path);
    tembo_fixed_close(fixed);
    tembo_map_close(map);
    tembo_pool_close(pool);
    puts("memory for nothing is needed");
    return 0;
}
