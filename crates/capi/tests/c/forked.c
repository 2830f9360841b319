/*
 * A child that was forked with everything open: every call is refused, closing and returning from main do no
 * harm, and the parent goes on. (A child that returned unlocked its parent's pool.)
 */
#define _POSIX_C_SOURCE 200809L
#include "tembo.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPECT(expected, call)                                                                                         \
    do {                                                                                                               \
        int status_ = (call);                                                                                          \
        if (status_ != (expected)) {                                                                                   \
            fprintf(stderr, "line %d: %s, not %s: %s\n", __LINE__, tembo_status_name(status_),                         \
                    tembo_status_name(expected), tembo_last_error());                                                  \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static tembo_pool *pool;
static tembo_fixed *fixed;
static tembo_map *map;
static volatile int stop;

/* Writes all the time, so that locks are held when the process forks. */
static void *write_on(void *unused) {
    for (uint64_t i = 1000; !stop; i++) {
        EXPECT(TEMBO_OK, tembo_fixed_put(fixed, i % 5000 + 1000, i));
        EXPECT(TEMBO_OK, tembo_map_put(map, &i, sizeof i, &i, sizeof i));
    }
    return unused;
}

static void try_everything(const char *path) {
    tembo_pool *again = NULL;
    tembo_fixed *other_fixed = NULL;
    tembo_map *other_map = NULL;
    tembo_fixed_record records[4];
    uint64_t value;
    size_t count;
    EXPECT(TEMBO_FORKED, tembo_fixed_find(fixed, 1, &value));
    EXPECT(TEMBO_FORKED, tembo_fixed_insert(fixed, 2, 2));
    EXPECT(TEMBO_FORKED, tembo_fixed_update(fixed, 1, 2));
    EXPECT(TEMBO_FORKED, tembo_fixed_put(fixed, 1, 2));
    EXPECT(TEMBO_FORKED, tembo_fixed_remove(fixed, 1));
    EXPECT(TEMBO_FORKED, tembo_fixed_scan(fixed, 0, 4, records, &count));
    EXPECT(TEMBO_FORKED, tembo_fixed_count(fixed, &value));
    EXPECT(TEMBO_FORKED, tembo_map_insert(map, "b", 1, "c", 1));
    EXPECT(TEMBO_FORKED, tembo_map_update(map, "a", 1, "c", 1));
    EXPECT(TEMBO_FORKED, tembo_map_put(map, "a", 1, "c", 1));
    EXPECT(TEMBO_FORKED, tembo_map_remove(map, "a", 1));
    EXPECT(TEMBO_FORKED, tembo_map_count(map, &value));
    EXPECT(TEMBO_FORKED, tembo_fixed_open(pool, "fixed", 0, &other_fixed));
    EXPECT(TEMBO_FORKED, tembo_map_open(pool, "new", TEMBO_CREATE, &other_map));
    EXPECT(TEMBO_LOCKED, tembo_pool_open(path, NULL, &again));
    if (!strstr(tembo_last_error(), "in use by"))
        exit(2);
}

int main(int argc, char **argv) {
    pthread_t thread;
    if (argc != 2)
        return 1;
    EXPECT(TEMBO_OK, tembo_pool_create(argv[1], NULL, &pool));
    EXPECT(TEMBO_OK, tembo_fixed_open(pool, "fixed", TEMBO_CREATE, &fixed));
    EXPECT(TEMBO_OK, tembo_map_open(pool, "strings", TEMBO_CREATE, &map));
    EXPECT(TEMBO_OK, tembo_fixed_put(fixed, 1, 1));
    EXPECT(TEMBO_OK, tembo_map_put(map, "a", 1, "b", 1));
    if (pthread_create(&thread, NULL, write_on, NULL))
        return 1;
    for (int round = 0; round < 20; round++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            try_everything(argv[1]);
            if (round % 3 == 0) {
                tembo_fixed_close(fixed);
                tembo_map_close(map);
                tembo_pool_close(pool);
            } else if (round % 3 == 1) {
                execl("/bin/true", "true", (char *)NULL);
                return 3;
            }
            return 0;
        }
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
            fprintf(stderr, "round %d: the child ended with %d\n", round, status);
            return 1;
        }
        /* Nobody else has got in. */
        tembo_pool *again = NULL;
        EXPECT(TEMBO_LOCKED, tembo_pool_open(argv[1], NULL, &again));
    }
    stop = 1;
    pthread_join(thread, NULL);
    uint64_t value = 0;
    EXPECT(TEMBO_OK, tembo_fixed_find(fixed, 1, &value));
    EXPECT(TEMBO_EXISTS, tembo_map_insert(map, "a", 1, "c", 1));
    tembo_fixed_close(fixed);
    tembo_map_close(map);
    tembo_pool_close(pool);
    printf("%s\n", value == 1 ? "the parent alone" : "somebody else wrote");
    return 0;
}
