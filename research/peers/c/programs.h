/*
 * The interface of Berkeley DB (programs_bdb.c) for the comparison of programs;
 * src/programs/native.rs is the other side.
 *
 * Functions return a negative number after an error, which bdb_program_error() then describes to the same
 * thread. Several threads may use one program, if it was opened for that.
 */
#ifndef PEERS_PROGRAMS_H
#define PEERS_PROGRAMS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { BDB_ARRAY, BDB_BTREE, BDB_HASH };

struct bdb_program;

int bdb_program_open(const char *folder, int kind, int threads, struct bdb_program **program);
void bdb_program_close(struct bdb_program *program);
/* Loads entries of an array in their order, or keys as big-endian words. */
int bdb_program_load(struct bdb_program *program, const uint64_t *items, size_t count);
int bdb_program_settle(struct bdb_program *program);
int bdb_program_swap(struct bdb_program *program, uint32_t a, uint32_t b);
int bdb_program_toggle(struct bdb_program *program, const unsigned char key[8]);
/* Returns 1 and the entry of an array; or 1 if the key, a big-endian word, is there; or 0. */
int bdb_program_get(struct bdb_program *program, uint64_t item, uint64_t *value);
const char *bdb_program_error(void);

#endif
