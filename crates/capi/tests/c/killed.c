/* Inserts until it is killed, and says after each insertion that it was acknowledged. */
#define _POSIX_C_SOURCE 200809L
#include "tembo.h"

#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    tembo_pool *pool;
    tembo_fixed *fixed;
    tembo_map *map;
    if (argc != 2 || tembo_pool_create(argv[1], NULL, &pool) || tembo_fixed_open(pool, "fixed", TEMBO_CREATE, &fixed)
        || tembo_map_open(pool, "strings", TEMBO_CREATE, &map))
        return 1;
    for (uint64_t i = 0;; i++) {
        if (tembo_fixed_insert(fixed, i, ~i) || tembo_map_insert(map, &i, sizeof i, &i, sizeof i)) {
            fprintf(stderr, "%s\n", tembo_last_error());
            return 1;
        }
        if (write(STDOUT_FILENO, &i, sizeof i) != (ssize_t)sizeof i)
            return 1;
    }
}
