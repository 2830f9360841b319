/*
 * A scan in the destructor of a key of thread-specific data came to TEMBO_BUG, because what the library kept
 * for the thread was gone already. Here every function is called by such destructors, in all rounds that the
 * system makes of them, and by threads with a small stack.
 */
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>

static tembo_pool *pool;
static tembo_fixed *fixed;
static tembo_map *map;
static pthread_key_t key;
static int rounds;

static void use(void) {
    uint64_t value;
    size_t count;
    char buffer[64];
    tembo_fixed_record records[8];
    CHECK(tembo_fixed_put(fixed, 1, 7) == TEMBO_OK && tembo_fixed_insert(fixed, 1, 7) == TEMBO_EXISTS);
    CHECK(tembo_fixed_update(fixed, 1, 8) == TEMBO_OK && tembo_fixed_find(fixed, 1, &value) == TEMBO_OK && value == 8);
    CHECK(tembo_fixed_scan(fixed, 0, 8, records, &count) == TEMBO_OK && count == 1 && records[0].value == 8);
    CHECK(tembo_fixed_count(fixed, &value) == TEMBO_OK && value == 1);
    CHECK(tembo_fixed_remove(fixed, 2) == TEMBO_NOT_FOUND && tembo_fixed_remove(fixed, 1) == TEMBO_OK);
    CHECK(tembo_map_put(map, "k", 1, "v", 1) == TEMBO_OK && tembo_map_update(map, "k", 1, "w", 1) == TEMBO_OK);
    CHECK(tembo_map_find(map, "k", 1, buffer, 64, &count) == TEMBO_OK && count == 1 && buffer[0] == 'w');
    CHECK(tembo_map_scan(map, "", 0, 8, buffer, 64, NULL, &count) == TEMBO_OK && count == 1);
    CHECK(tembo_map_remove(map, "k", 1) == TEMBO_OK && tembo_map_insert(map, "k", 1, "v", 1) == TEMBO_OK);
    CHECK(tembo_map_remove(map, "k", 1) == TEMBO_OK);
    tembo_map *again;
    CHECK(tembo_map_open(pool, "strings", 0, &again) == TEMBO_OK && tembo_map_open(pool, "none", 0, &again) != TEMBO_OK);
    tembo_map_close(again);
}

static void end(void *unused) {
    (void)unused;
    use();
    /* As long as this is set again, there is another round. */
    if (++rounds < 4)
        pthread_setspecific(key, &key);
}

static void *thread(void *is_new) {
    CHECK(pthread_setspecific(key, &key) == 0);
    if (is_new == NULL)
        use();
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    CHECK(tembo_pool_create(argv[1], NULL, &pool) == TEMBO_OK);
    CHECK(tembo_fixed_open(pool, "fixed", TEMBO_CREATE, &fixed) == TEMBO_OK);
    CHECK(tembo_map_open(pool, "strings", TEMBO_CREATE, &map) == TEMBO_OK);
    CHECK(pthread_key_create(&key, end) == 0);
    pthread_attr_t small;
    CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 256 << 10) == 0);
    for (int i = 0; i < 2; i++) {
        pthread_t id;
        rounds = 0;
        CHECK(pthread_create(&id, &small, thread, i == 0 ? NULL : &key) == 0 && pthread_join(id, NULL) == 0);
        CHECK(rounds == 4);
    }
    tembo_fixed_close(fixed);
    tembo_map_close(map);
    tembo_pool_close(pool);
    puts("threads end as they like");
    return 0;
}
