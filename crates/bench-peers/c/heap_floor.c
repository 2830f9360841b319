/*
 * The floor: the least that a program has to do for the same promise, in plain C for one thread. A transaction is one
 * checksummed redo record; the record and new objects are flushed together, one fence follows, and then the home words
 * are stored. The home lines are flushed with the next record, under the same fence.
 *
 * The log is a ring of whole lines, which are written past the caches where a processor does that faster. It is no heap:
 * there are no types, no counts, no other threads, and objects are allocated one after another.
 */
#define _GNU_SOURCE
#include "engine.h"
#include "heap.h"

#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <immintrin.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LOG_BYTES ((size_t)128 << 10)
#define BITMAP_BYTES ((size_t)1 << 20)
#define LINE_WORDS 8
#define MAX_HOMES 16

struct floor_heap {
	char *start;
	size_t bytes;
	uint64_t *log;
	uint64_t *bitmap;
	uint64_t *first;
	uint64_t *table;     /* offsets of the objects */
	char *free;          /* where new objects are taken */
	size_t log_at;       /* in bytes */
	uint64_t sequence;
	uint64_t allocated;
	void *homes[MAX_HOMES]; /* lines that the transaction before has stored to */
	unsigned home_count;
	int streams;
};

static inline void flush(const void *line)
{
	__asm__ volatile("clwb (%0)" : : "r"(line) : "memory");
}

static inline void fence(void)
{
	__asm__ volatile("sfence" : : : "memory");
}

static inline uint64_t mix(uint64_t sum, uint64_t word)
{
	__uint128_t product = (__uint128_t)(sum ^ word) * 0x9e3779b97f4a7c15u;
	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Writes lines of the log. */
static inline void write_lines(struct floor_heap *h, const uint64_t *words, size_t count)
{
	size_t bytes = count * sizeof *words;
	if (h->log_at + bytes > LOG_BYTES)
		h->log_at = 0;
	char *to = (char *)h->log + h->log_at;
	h->log_at += bytes;
	if (h->streams) {
		for (size_t i = 0; i < bytes; i += 16)
			_mm_stream_si128((__m128i *)(to + i), _mm_loadu_si128((const __m128i *)((const char *)words + i)));
		return;
	}
	memcpy(to, words, bytes);
	for (size_t i = 0; i < bytes; i += 64)
		flush(to + i);
}

static inline void flush_homes(struct floor_heap *h)
{
	for (unsigned i = 0; i < h->home_count; i++)
		flush(h->homes[i]);
	h->home_count = 0;
}

/* Completes a record of `count` words, of which the first two are still to be set, and makes it durable. */
static inline void commit(struct floor_heap *h, uint64_t *record, size_t count, uint64_t sum)
{
	size_t padded = (count + LINE_WORDS - 1) / LINE_WORDS * LINE_WORDS;
	record[1] = ++h->sequence << 16 | count;
	for (size_t i = 1; i < count; i++)
		sum = mix(sum, record[i]);
	record[0] = sum;
	flush_homes(h);
	write_lines(h, record, padded);
	fence();
}

int floor_open(const char *path, size_t bytes, uint64_t objects, struct floor_heap **heap)
{
	struct floor_heap *h = calloc(1, sizeof *h);
	unsigned a, b, c, d;
	int file = open(path, O_CREAT | O_EXCL | O_RDWR, 0644);
	if (file < 0 || ftruncate(file, (off_t)bytes) != 0)
		return peer_fail(path, strerror(errno));
	h->start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (h->start == MAP_FAILED)
		return peer_fail("mmap", strerror(errno));
	memset(h->start, 0, bytes);
	close(file);
	__cpuid(0, a, b, c, d);
	h->streams = b == 0x68747541; /* AMD */
	h->bytes = bytes;
	h->log = (uint64_t *)h->start;
	h->first = (uint64_t *)(h->start + LOG_BYTES);
	h->bitmap = h->first + LINE_WORDS;
	h->table = h->bitmap + BITMAP_BYTES / sizeof *h->bitmap;
	char *lines = (char *)(h->table + objects);
	for (uint64_t i = 0; i < objects; i++)
		h->table[i] = (uint64_t)(lines - h->start) + 64 * i;
	h->free = lines + 64 * objects;
	*heap = h;
	return 0;
}

void floor_close(struct floor_heap *h)
{
	munmap(h->start, h->bytes);
	free(h);
}

int floor_persist(struct floor_heap *h, uint32_t index)
{
	flush(h->start + h->table[index]);
	fence();
	return 0;
}

int floor_write(struct floor_heap *h, const uint32_t *indexes, size_t count, uint64_t word)
{
	uint64_t record[2 + 9 * MAX_HOMES + LINE_WORDS] = {0};
	size_t at = 2;
	if (count > MAX_HOMES)
		return peer_fail("write", "too many objects");
	for (size_t i = 0; i < count; i++) {
		record[at++] = h->table[indexes[i]];
		_mm_prefetch(h->start + record[at - 1], _MM_HINT_T0);
		for (int j = 0; j < LINE_WORDS; j++)
			record[at++] = word;
	}
	commit(h, record, at, 1);
	for (size_t i = 0; i < count; i++) {
		uint64_t *home = (uint64_t *)(h->start + record[2 + 9 * i]);
		memcpy(home, &record[3 + 9 * i], 64);
		h->homes[h->home_count++] = home;
	}
	return 0;
}

int floor_read(struct floor_heap *h, uint32_t index, uint64_t *word)
{
	*word = ((uint64_t *)(h->start + h->table[index]))[7];
	return 0;
}

/* The record has the head of the list and the word of the bitmap; its checksum covers the new object too. */
int floor_push(struct floor_heap *h, uint64_t word)
{
	uint64_t record[LINE_WORDS] = {0};
	uint64_t *object = (uint64_t *)h->free;
	uint64_t *bits = h->bitmap + h->allocated / 64 % (BITMAP_BYTES / sizeof *h->bitmap);
	uint64_t sum = 1;
	if (h->free + 64 > h->start + h->bytes)
		return peer_fail("push", "the file is full");
	uint64_t image[LINE_WORDS] = {word, word, word, word, word, word, word, *h->first};
	for (int i = 0; i < LINE_WORDS; i++)
		sum = mix(sum, image[i]);
	if (h->streams) {
		for (int i = 0; i < 4; i++)
			_mm_stream_si128((__m128i *)object + i, _mm_loadu_si128((const __m128i *)image + i));
	} else {
		memcpy(object, image, 64);
		flush(object);
	}
	record[2] = (uint64_t)((char *)h->first - h->start);
	record[3] = (uint64_t)((char *)object - h->start);
	record[4] = (uint64_t)((char *)bits - h->start);
	record[5] = *bits | 1ull << h->allocated % 64;
	commit(h, record, 6, sum);
	*h->first = record[3];
	*bits = record[5];
	h->homes[h->home_count++] = h->first;
	h->homes[h->home_count++] = bits;
	h->free += 64;
	h->allocated++;
	return 0;
}

const char *floor_settings(void)
{
	return "one checksummed redo record of whole lines in a ring, one fence, home lines flushed with the next record; clwb, "
	       "sfence; the log written past the caches on AMD's processors";
}
