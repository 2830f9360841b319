/* Shared by the test programs. */
#ifndef CHECK_H
#define CHECK_H

#include "tembo.h"

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "line %d: %s; the last message: %s\n", __LINE__, #condition, tembo_last_error());          \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
