/*
 * The interface of the two sides in C of the comparison of heaps: libpmemobj (heap_pmemobj.c), and the floor,
 * which is the least that a program can do that keeps the same promise (heap_floor.c).
 * src/heap/native.rs is the other side.
 *
 * Functions return a negative number after an error, which peer_error() then describes. One thread uses them.
 */
#ifndef PEERS_HEAP_H
#define PEERS_HEAP_H

#include <stddef.h>
#include <stdint.h>

struct pmo_heap;

int pmo_heap_open(const char *path, size_t bytes, uint64_t objects, uint64_t buckets, int prepare, struct pmo_heap **heap);
void pmo_heap_close(struct pmo_heap *heap);
int pmo_heap_empty(struct pmo_heap *heap);
/* Writes 8 words, all `word`, to each of the objects that the table leads to at these indexes. */
int pmo_heap_write(struct pmo_heap *heap, const uint32_t *indexes, size_t count, uint64_t word);
/* Writes 8 words to an element of an array of 64-byte elements. */
int pmo_heap_write_element(struct pmo_heap *heap, uint32_t index, uint64_t word);
/* Exchanges the first words of two elements. */
int pmo_heap_swap_elements(struct pmo_heap *heap, uint32_t a, uint32_t b);
int pmo_heap_read_object(struct pmo_heap *heap, uint32_t index, uint64_t *word);
/* Allocates an object of 64 bytes and links it in front of a list. */
int pmo_heap_push(struct pmo_heap *heap, uint64_t word);
/* Allocates an object of 64 bytes, links it in the table, and frees the one that was there. */
int pmo_heap_replace(struct pmo_heap *heap, uint32_t index, uint64_t word);
/* The hash table; with `counted` it also keeps the number of its entries. */
int pmo_heap_insert(struct pmo_heap *heap, uint64_t bucket, uint64_t key, uint64_t value, int counted);
int pmo_heap_update(struct pmo_heap *heap, uint64_t bucket, uint64_t key, uint64_t value);
int pmo_heap_remove(struct pmo_heap *heap, uint64_t bucket, uint64_t key, int counted);
int pmo_heap_lookup(struct pmo_heap *heap, uint64_t bucket, uint64_t key, uint64_t *value);
/* Allocates `bytes` bytes in objects of 1 KiB, 16 in each transaction. */
int pmo_heap_fill(struct pmo_heap *heap, size_t bytes);
const char *pmo_heap_version(void);
/* Fences so far, if the counting library was loaded in advance; else -1. */
int64_t pmo_heap_fences(void);

struct floor_heap;

int floor_open(const char *path, size_t bytes, uint64_t objects, uint64_t buckets, struct floor_heap **heap);
void floor_close(struct floor_heap *heap);
/* Flushes a random line, and waits. */
int floor_persist(struct floor_heap *heap, uint32_t index);
int floor_write(struct floor_heap *heap, const uint32_t *indexes, size_t count, uint64_t word);
int floor_read(struct floor_heap *heap, uint32_t index, uint64_t *word);
int floor_push(struct floor_heap *heap, uint64_t word);
/* A hash table as above. Lookups may run beside a writer. */
int floor_insert(struct floor_heap *heap, uint64_t bucket, uint64_t key, uint64_t value);
int floor_update(struct floor_heap *heap, uint64_t bucket, uint64_t key, uint64_t value);
int floor_remove(struct floor_heap *heap, uint64_t bucket, uint64_t key);
int floor_lookup(struct floor_heap *heap, uint64_t bucket, uint64_t key, uint64_t *value);
const char *floor_settings(void);

#endif
