/*
 * A key that was longer than keys may be was read to its end before it was refused. Here nothing lies behind
 * the first bytes that may be read: keys, values, names and paths that are too long are refused by their
 * lengths.
 */
#define _GNU_SOURCE
#include "check.h"

#include <string.h>
#include <sys/mman.h>

enum { MOST = 65536, PAGE = 4096 };

/* `bytes` that can be read, and nothing behind them. */
static char *at_the_edge(size_t bytes) {
    size_t pages = (bytes + PAGE - 1) / PAGE * PAGE;
    char *map = mmap(NULL, pages + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(map != MAP_FAILED && mprotect(map + pages, PAGE, PROT_NONE) == 0);
    memset(map, 'k', pages);
    return map + pages - bytes;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    tembo_pool *pool = NULL;
    tembo_fixed *fixed = NULL;
    tembo_map *map, *none = NULL;
    size_t count = 77;
    char value[8], *key = at_the_edge(1);
    static char scanned[MOST + 8];
    CHECK(tembo_pool_create(argv[1], NULL, &pool) == TEMBO_OK);
    CHECK(tembo_map_open(pool, "strings", TEMBO_CREATE, &map) == TEMBO_OK);
    const size_t lengths[] = {MOST + 1, 10 * MOST, PTRDIFF_MAX};
    for (int i = 0; i < 3; i++) {
        size_t length = lengths[i];
        CHECK(tembo_map_put(map, key, length, "v", 1) == TEMBO_INVALID && strstr(tembo_last_error(), "at most 65536"));
        CHECK(tembo_map_insert(map, key, length, "v", 1) == TEMBO_INVALID);
        CHECK(tembo_map_update(map, key, length, "v", 1) == TEMBO_NOT_FOUND);
        CHECK(tembo_map_remove(map, key, length) == TEMBO_NOT_FOUND);
        CHECK(tembo_map_find(map, key, length, value, 8, &count) == TEMBO_NOT_FOUND && count == 77);
        size_t long_value = (512u << 20) + length;
        if (long_value <= PTRDIFF_MAX)
            CHECK(tembo_map_put(map, "k", 1, key, long_value) == TEMBO_INVALID);
    }
    /* The last key of all, and the walk that goes on behind it: from one byte more than keys may have. */
    char *longest = at_the_edge(MOST + 1);
    memset(longest, 0xff, MOST);
    longest[MOST] = 0;
    CHECK(tembo_map_put(map, longest, MOST, "v", 1) == TEMBO_OK);
    CHECK(tembo_map_scan(map, longest, MOST, 8, scanned, sizeof scanned, NULL, &count) == TEMBO_OK && count == 1);
    CHECK(tembo_map_scan(map, longest, MOST + 1, 8, scanned, sizeof scanned, NULL, &count) == TEMBO_OK && count == 0);
    CHECK(tembo_map_scan(map, longest, PTRDIFF_MAX, 8, scanned, sizeof scanned, NULL, &count) == TEMBO_OK && count == 0);
    longest[MOST - 1] = 'k';
    CHECK(tembo_map_scan(map, longest, PTRDIFF_MAX, 8, scanned, sizeof scanned, NULL, &count) == TEMBO_OK && count == 1);

    char *name = at_the_edge(41), *path = at_the_edge(4096);
    CHECK(tembo_map_open(pool, name, TEMBO_CREATE, &none) == TEMBO_INVALID && none == NULL);
    CHECK(tembo_fixed_open(pool, name, TEMBO_CREATE, &fixed) == TEMBO_INVALID && fixed == NULL);
    CHECK(tembo_pool_open(path, NULL, &pool) == TEMBO_INVALID);
    CHECK(tembo_pool_create(path, NULL, &pool) == TEMBO_INVALID);
    CHECK(tembo_map_remove(map, longest, 1) == TEMBO_NOT_FOUND);
    tembo_map_close(map);
    tembo_pool_close(pool);
    puts("what is too long is not read");
    return 0;
}
