/* The promises of the header for arguments at and beyond the edge: null pointers, lengths, names, kinds,
 * small buffers. */
#include "check.h"

#include <string.h>

#define INVALID(call) CHECK((call) == TEMBO_INVALID && tembo_last_error()[0] != 0)

/* The structures as src/ffi has them. */
_Static_assert(sizeof(tembo_options) == 32, "tembo_options");
_Static_assert(offsetof(tembo_options, durability) == 8, "tembo_options");
_Static_assert(offsetof(tembo_options, flags) == 12, "tembo_options");
_Static_assert(offsetof(tembo_options, initial_bytes) == 16, "tembo_options");
_Static_assert(offsetof(tembo_options, max_bytes) == 24, "tembo_options");
_Static_assert(sizeof(tembo_fixed_record) == 16 && offsetof(tembo_fixed_record, value) == 8, "tembo_fixed_record");
_Static_assert(sizeof(tembo_record_size) == 16 && offsetof(tembo_record_size, value_bytes) == 8, "tembo_record_size");

static void pools(const char *path) {
    tembo_pool *pool = (tembo_pool *)path;
    tembo_options options = {.struct_bytes = sizeof options};
    INVALID(tembo_pool_create(NULL, &options, &pool));
    INVALID(tembo_pool_create(path, &options, NULL));
    INVALID(tembo_pool_open(NULL, NULL, &pool));
    INVALID(tembo_pool_open(path, NULL, NULL));
    options.struct_bytes = 8;
    INVALID(tembo_pool_create(path, &options, &pool));
    options = (tembo_options){.struct_bytes = sizeof options, .durability = 7};
    INVALID(tembo_pool_create(path, &options, &pool));
    options = (tembo_options){.struct_bytes = sizeof options, .flags = 1};
    INVALID(tembo_pool_create(path, &options, &pool));
    CHECK(tembo_pool_open(path, NULL, &pool) == TEMBO_NOT_FOUND);
    CHECK(tembo_pool_open("/dev/null", NULL, &pool) == TEMBO_WRONG_KIND);
    CHECK(tembo_pool_create("/dev/null", NULL, &pool) == TEMBO_EXISTS);
    CHECK(pool == (tembo_pool *)path); /* unchanged */

    options = (tembo_options){.struct_bytes = sizeof options, .initial_bytes = 1 << 20, .max_bytes = 2 << 20};
    CHECK(tembo_pool_create(path, &options, &pool) == TEMBO_OK);
    tembo_pool *second;
    CHECK(tembo_pool_create(path, NULL, &second) == TEMBO_EXISTS);
    CHECK(tembo_pool_open(path, NULL, &second) == TEMBO_LOCKED);
    CHECK(tembo_pool_survives(NULL) == NULL && strstr(tembo_pool_survives(pool), "kill -9") != NULL);

    /* A pool that is full says so, and goes on. */
    tembo_map *map;
    CHECK(tembo_map_open(pool, "m", TEMBO_CREATE, &map) == TEMBO_OK);
    char *large = calloc(1, 4 << 20);
    CHECK(tembo_map_put(map, "k", 1, large, 4 << 20) == TEMBO_FULL);
    CHECK(tembo_map_put(map, "k", 1, large, 4) == TEMBO_OK);
    free(large);

    /* Holes come back; either number may be left out. */
    char key[16];
    uint64_t freed = 0;
    for (int i = 0; i < 2000; i++) {
        int length = snprintf(key, sizeof key, "%d", i);
        CHECK(tembo_map_put(map, key, (size_t)length, "0123456789012345678901234567890123456789", 40) == TEMBO_OK);
    }
    for (int i = 0; i < 2000; i++) {
        int length = snprintf(key, sizeof key, "%d", i);
        if (i % 10 != 0) CHECK(tembo_map_remove(map, key, (size_t)length) == TEMBO_OK);
    }
    INVALID(tembo_pool_compact(NULL, 0, NULL, NULL));
    CHECK(tembo_pool_compact(pool, 0, NULL, &freed) == TEMBO_OK && freed >= 16 << 10);
    CHECK(tembo_pool_compact(pool, 1, NULL, NULL) == TEMBO_OK);
    tembo_map_close(map);

    /* More fixed maps than lanes: the first ones work on. */
    enum { MOST = 80 };
    tembo_fixed *maps[MOST];
    int status = TEMBO_OK, opened = 0;
    for (; opened < MOST && status == TEMBO_OK; opened++) {
        char name[16];
        sprintf(name, "fixed %d", opened);
        status = tembo_fixed_open(pool, name, TEMBO_CREATE, &maps[opened]);
    }
    CHECK(status == TEMBO_NO_ROOM);
    opened--;
    CHECK(opened > 3 && tembo_fixed_put(maps[0], 1, 1) == TEMBO_OK);
    while (opened > 0)
        tembo_fixed_close(maps[--opened]);
    CHECK(tembo_fixed_open(pool, "fixed 1", 0, &maps[0]) == TEMBO_OK);
    tembo_fixed_close(maps[0]);
    tembo_pool_close(pool);
    CHECK(remove(path) == 0);
}

static void messages(void) {
    CHECK(tembo_version()[0] != 0);
    CHECK(strcmp(tembo_status_name(TEMBO_BUG), "TEMBO_BUG") == 0);
    CHECK(tembo_status_name(-1)[0] != 0 && tembo_status_name(1000)[0] != 0);
    tembo_pool_close(NULL);
    tembo_fixed_close(NULL);
    tembo_map_close(NULL);
}

static void names(tembo_pool *pool) {
    tembo_fixed *fixed = NULL;
    tembo_map *map = NULL;
    INVALID(tembo_fixed_open(NULL, "n", TEMBO_CREATE, &fixed));
    INVALID(tembo_fixed_open(pool, NULL, TEMBO_CREATE, &fixed));
    INVALID(tembo_fixed_open(pool, "n", TEMBO_CREATE, NULL));
    INVALID(tembo_fixed_open(pool, "n", 2, &fixed));
    INVALID(tembo_fixed_open(pool, "", TEMBO_CREATE, &fixed));
    INVALID(tembo_fixed_open(pool, "12345678901234567890123456789012345678901", TEMBO_CREATE, &fixed));
    INVALID(tembo_fixed_open(pool, "\xff", TEMBO_CREATE, &fixed));
    INVALID(tembo_map_open(NULL, "n", TEMBO_CREATE, &map));
    INVALID(tembo_map_open(pool, NULL, TEMBO_CREATE, &map));
    INVALID(tembo_map_open(pool, "n", TEMBO_CREATE, NULL));
    INVALID(tembo_map_open(pool, "", TEMBO_CREATE, &map));
    CHECK(tembo_fixed_open(pool, "n", 0, &fixed) == TEMBO_NOT_FOUND);
    CHECK(tembo_map_open(pool, "n", 0, &map) == TEMBO_NOT_FOUND);
    CHECK(tembo_fixed_open(pool, "fixed", 0, &fixed) == TEMBO_OK);
    CHECK(tembo_map_open(pool, "fixed", TEMBO_CREATE, &map) == TEMBO_WRONG_KIND && map == NULL);
    tembo_fixed_close(fixed);
    /* Listing and dropping. */
    tembo_name found[4];
    size_t count = 77;
    int is_left = 77;
    INVALID(tembo_pool_list(NULL, 0, 4, found, &count));
    INVALID(tembo_pool_list(pool, 0, 4, NULL, &count));
    INVALID(tembo_pool_list(pool, 0, 4, found, NULL));
    CHECK(tembo_pool_list(pool, 0, 0, NULL, &count) == TEMBO_OK && count == 0);
    CHECK(tembo_pool_list(pool, 0, 4, found, &count) == TEMBO_OK && count == 2);
    CHECK(strcmp(found[0].name, "fixed") == 0 && found[0].name_bytes == 5 && found[0].kind == TEMBO_KIND_FIXED);
    CHECK(strcmp(found[1].name, "strings") == 0 && found[1].kind == TEMBO_KIND_MAP);
    CHECK(tembo_pool_list(pool, 1, 4, found, &count) == TEMBO_OK && count == 1 && found[0].name[0] == 's');
    CHECK(tembo_pool_list(pool, 9, 4, found, &count) == TEMBO_OK && count == 0);
    INVALID(tembo_pool_drop(pool, NULL));
    INVALID(tembo_pool_drop(NULL, "strings"));
    CHECK(tembo_pool_drop(pool, "none") == TEMBO_NOT_FOUND);
    INVALID(tembo_pool_reclaim(pool, 1, NULL));
    INVALID(tembo_pool_reclaim(NULL, 1, &is_left));
    CHECK(is_left == 77 && tembo_pool_reclaim(pool, 1, &is_left) == TEMBO_OK && is_left == 0);
}

static void fixed_map(tembo_fixed *map) {
    uint64_t value = 77, count = 77;
    size_t found = 77;
    tembo_fixed_record records[4];
    INVALID(tembo_fixed_find(NULL, 1, &value));
    INVALID(tembo_fixed_find(map, 1, NULL));
    INVALID(tembo_fixed_insert(NULL, 1, 1));
    INVALID(tembo_fixed_update(NULL, 1, 1));
    INVALID(tembo_fixed_put(NULL, 1, 1));
    INVALID(tembo_fixed_remove(NULL, 1));
    INVALID(tembo_fixed_count(NULL, &count));
    INVALID(tembo_fixed_count(map, NULL));
    INVALID(tembo_fixed_scan(NULL, 0, 4, records, &found));
    INVALID(tembo_fixed_scan(map, 0, 4, NULL, &found));
    INVALID(tembo_fixed_scan(map, 0, 4, records, NULL));
    INVALID(tembo_fixed_scan(map, 0, (size_t)-1, records, &found));
    INVALID(tembo_fixed_scan(map, 0, (size_t)1 << 59, records, &found));
    CHECK(value == 77 && found == 77 && count == 77);

    CHECK(tembo_fixed_scan(map, 0, 4, records, &found) == TEMBO_OK && found == 0);
    const uint64_t keys[] = {0, 1, UINT64_MAX - 1, UINT64_MAX};
    for (int i = 0; i < 4; i++) {
        CHECK(tembo_fixed_find(map, keys[i], &value) == TEMBO_NOT_FOUND && value == 77);
        CHECK(tembo_fixed_update(map, keys[i], 0) == TEMBO_NOT_FOUND);
        CHECK(tembo_fixed_insert(map, keys[i], 0) == TEMBO_OK);
        CHECK(tembo_fixed_insert(map, keys[i], 1) == TEMBO_EXISTS);
    }
    for (int i = 0; i < 4; i++) {
        CHECK(tembo_fixed_find(map, keys[i], &value) == TEMBO_OK && value == 0);
        CHECK(tembo_fixed_update(map, keys[i], keys[3 - i]) == TEMBO_OK);
        value = 77;
    }
    CHECK(tembo_fixed_scan(map, 0, 0, NULL, &found) == TEMBO_OK && found == 0);
    CHECK(tembo_fixed_scan(map, 1, 2, records, &found) == TEMBO_OK && found == 2);
    CHECK(records[0].key == 1 && records[0].value == UINT64_MAX - 1 && records[1].key == UINT64_MAX - 1);
    CHECK(tembo_fixed_scan(map, 2, 4, records, &found) == TEMBO_OK && found == 2);
    CHECK(records[1].key == UINT64_MAX && records[1].value == 0);

    /* Results need no alignment. */
    char bytes[sizeof records + 1];
    CHECK(tembo_fixed_scan(map, 0, 4, (void *)(bytes + 1), &found) == TEMBO_OK && found == 4);
    memcpy(records, bytes + 1, sizeof records);
    CHECK(records[0].key == 0 && records[3].key == UINT64_MAX);
    CHECK(tembo_fixed_count(map, &count) == TEMBO_OK && count == 4);
    for (int i = 0; i < 4; i++)
        CHECK(tembo_fixed_remove(map, keys[i]) == TEMBO_OK && tembo_fixed_remove(map, keys[i]) == TEMBO_NOT_FOUND);
}

static void null_pointers(tembo_map *map) {
    char buffer[8];
    size_t found = 77;
    uint64_t count;
    INVALID(tembo_map_find(NULL, "k", 1, buffer, 8, &found));
    INVALID(tembo_map_find(map, NULL, 1, buffer, 8, &found));
    INVALID(tembo_map_find(map, "k", 1, NULL, 8, &found));
    INVALID(tembo_map_find(map, "k", 1, buffer, 8, NULL));
    INVALID(tembo_map_find(map, "k", (size_t)-1, buffer, 8, &found));
    INVALID(tembo_map_find(map, "k", 1, buffer, (size_t)-1, &found));
    INVALID(tembo_map_insert(NULL, "k", 1, "v", 1));
    INVALID(tembo_map_insert(map, NULL, 1, "v", 1));
    INVALID(tembo_map_insert(map, "k", 1, NULL, 1));
    INVALID(tembo_map_insert(map, "k", 1, "v", (size_t)-1));
    INVALID(tembo_map_update(NULL, "k", 1, "v", 1));
    INVALID(tembo_map_update(map, "k", 1, NULL, 1));
    INVALID(tembo_map_put(NULL, "k", 1, "v", 1));
    INVALID(tembo_map_put(map, "k", 1, NULL, 1));
    INVALID(tembo_map_remove(NULL, "k", 1));
    INVALID(tembo_map_remove(map, NULL, 1));
    INVALID(tembo_map_count(NULL, &count));
    INVALID(tembo_map_count(map, NULL));
    INVALID(tembo_map_scan(NULL, "", 0, 8, buffer, 8, NULL, &found));
    INVALID(tembo_map_scan(map, NULL, 1, 8, buffer, 8, NULL, &found));
    INVALID(tembo_map_scan(map, "", 0, 8, NULL, 8, NULL, &found));
    INVALID(tembo_map_scan(map, "", 0, 8, buffer, 8, NULL, NULL));
    CHECK(found == 77);
    char *long_key = calloc(1, 70000);
    INVALID(tembo_map_put(map, long_key, 70000, "v", 1));
    CHECK(strstr(tembo_last_error(), "keys have at most") != NULL);
    CHECK(tembo_map_find(map, long_key, 70000, buffer, 8, &found) == TEMBO_NOT_FOUND && found == 77);
    free(long_key);
    CHECK(tembo_map_count(map, &count) == TEMBO_OK && count == 0);
}

static void byte_map(tembo_map *map) {
    char buffer[8];
    size_t found = 77;
    tembo_record_size sizes[4];
    CHECK(tembo_map_scan(map, NULL, 0, 8, buffer, 8, sizes, &found) == TEMBO_OK && found == 0);
    /* The empty key and the empty value. */
    CHECK(tembo_map_update(map, NULL, 0, NULL, 0) == TEMBO_NOT_FOUND);
    CHECK(tembo_map_insert(map, NULL, 0, NULL, 0) == TEMBO_OK);
    CHECK(tembo_map_insert(map, "", 0, "x", 1) == TEMBO_EXISTS);
    CHECK(tembo_map_find(map, NULL, 0, NULL, 0, &found) == TEMBO_OK && found == 0);
    CHECK(tembo_map_insert(map, "\0a", 2, "123", 3) == TEMBO_OK);
    CHECK(tembo_map_insert(map, "b", 1, "4567", 4) == TEMBO_OK);

    memset(buffer, '-', 8);
    CHECK(tembo_map_find(map, "b", 1, buffer, 3, &found) == TEMBO_TOO_SMALL && found == 4 && buffer[0] == '-');
    CHECK(tembo_map_find(map, "b", 1, buffer, 4, &found) == TEMBO_OK && memcmp(buffer, "4567----", 8) == 0);
    CHECK(tembo_map_find(map, "c", 1, buffer, 4, &found) == TEMBO_NOT_FOUND && found == 4);

    /* The third record would need ten bytes. */
    CHECK(tembo_map_scan(map, "", 0, 8, buffer, 8, sizes, &found) == TEMBO_TOO_SMALL && found == 2);
    CHECK(memcmp(buffer, "\0a123", 5) == 0 && sizes[0].key_bytes == 0 && sizes[1].value_bytes == 3);
    /* Going on after the last one; sizes are not asked for. */
    CHECK(tembo_map_scan(map, "\0a\0", 3, 8, buffer, 5, NULL, &found) == TEMBO_OK && found == 1);
    CHECK(memcmp(buffer, "b4567", 5) == 0);
    CHECK(tembo_map_scan(map, "b", 1, 8, NULL, 0, NULL, &found) == TEMBO_TOO_SMALL && found == 0);
    CHECK(tembo_map_scan(map, "", 0, 1, NULL, 0, sizes, &found) == TEMBO_OK && found == 1);
    CHECK(tembo_map_scan(map, "", 0, 0, NULL, 0, NULL, &found) == TEMBO_OK && found == 0);
    CHECK(tembo_map_remove(map, "\0a", 2) == TEMBO_OK && tembo_map_remove(map, "\0a", 2) == TEMBO_NOT_FOUND);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    messages();
    pools(argv[1]);
    tembo_pool *pool;
    tembo_fixed *fixed;
    tembo_map *map;
    CHECK(tembo_pool_create(argv[1], NULL, &pool) == TEMBO_OK);
    CHECK(tembo_fixed_open(pool, "fixed", TEMBO_CREATE, &fixed) == TEMBO_OK);
    CHECK(tembo_map_open(pool, "strings", TEMBO_CREATE, &map) == TEMBO_OK);
    tembo_pool_close(pool); /* the maps keep it open */
    fixed_map(fixed);
    null_pointers(map);
    byte_map(map);
    tembo_map_close(map);
    tembo_fixed_close(fixed);
    CHECK(tembo_pool_open(argv[1], NULL, &pool) == TEMBO_OK);
    names(pool);
    tembo_pool_close(pool);
    puts("all edges hold");
    return 0;
}
