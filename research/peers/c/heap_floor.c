/*
 * The floor: the least that a program has to do for the same promise, in plain C for one thread. A
 * transaction is one checksummed redo record; the record and new objects are flushed together, one fence
 * follows, and then the home words are stored. The home lines are flushed with the next record, under the
 * same fence.
 *
 * The log is a ring of whole lines, which are written past the caches where a processor does that faster. It
 * is no heap: there are no types, no counts, one thread writes, and objects are allocated one after another.
 *
 * A lookup is safe beside that thread, as little as that takes: it says that it reads, so that what is freed
 * waits for it, and looks at the writer's clock after each load, so that all that it has seen was there at
 * one moment. (The barrier that the writer needs before it frees something is the writer's: a system call
 * that is made rarely.)
 */
#define _GNU_SOURCE
#include "engine.h"
#include "heap.h"

#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <immintrin.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LOG_BYTES ((size_t)128 << 10)
#define BITMAP_BYTES ((size_t)1 << 20)
#define ENTRY_BITMAP_BYTES ((size_t)1 << 23)
#define LINE_WORDS 8
#define MAX_HOMES 16

struct floor_entry {
	uint64_t key;
	uint64_t value;
	uint64_t next;       /* offset, or 0 */
	uint64_t unused;
};

/* Shared by a lookup and the writer. */
struct floor_clock {
	_Atomic uint64_t time;    /* odd as long as home words are being stored */
	char other_line[56];
	_Atomic uint64_t reading; /* the time that the reader is at, plus 1; or 0 */
};

struct floor_heap {
	char *start;
	size_t bytes;
	uint64_t *log;
	uint64_t *bitmap;
	uint64_t *first;
	uint64_t *table;     /* offsets of the objects */
	uint64_t *buckets;   /* offsets of the first entries */
	struct floor_entry *entries;
	uint64_t *entry_bits;
	uint64_t entry_count; /* allocated so far */
	struct floor_clock clock;
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

int floor_open(const char *path, size_t bytes, uint64_t objects, uint64_t buckets, struct floor_heap **heap)
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
	/* Half of the rest is for entries. */
	h->buckets = (uint64_t *)(lines + 64 * objects);
	h->entry_bits = h->buckets + (buckets + LINE_WORDS - 1) / LINE_WORDS * LINE_WORDS;
	h->entries = (struct floor_entry *)(h->entry_bits + ENTRY_BITMAP_BYTES / sizeof *h->entry_bits);
	h->free = (char *)h->entries + ((size_t)(h->start + bytes - (char *)h->entries) / 2 & ~(size_t)63);
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
	/* The stored value does not change, but a line that nobody has stored to would not have to be written
	 * back. */
	volatile uint64_t *word = (volatile uint64_t *)(h->start + h->table[index]);

	*word = *word;
	flush((const void *)word);
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

/* --- the hash table: chained buckets --- */

static inline void store_home(struct floor_heap *h, uint64_t *home, uint64_t word)
{
	__atomic_store_n(home, word, __ATOMIC_RELAXED);
	h->homes[h->home_count++] = home;
}

/* Makes a record of one or two words durable, then stores them where a lookup may see them. */
static inline void change(struct floor_heap *h, uint64_t *const *homes, const uint64_t *words, size_t count, uint64_t sum)
{
	uint64_t record[LINE_WORDS] = {0};
	uint64_t time = atomic_load_explicit(&h->clock.time, memory_order_relaxed);
	for (size_t i = 0; i < count; i++) {
		record[2 + 2 * i] = (uint64_t)((char *)homes[i] - h->start);
		record[3 + 2 * i] = words[i];
	}
	commit(h, record, 2 + 2 * count, sum);
	atomic_store_explicit(&h->clock.time, time + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	for (size_t i = 0; i < count; i++)
		store_home(h, homes[i], words[i]);
	atomic_store_explicit(&h->clock.time, time + 2, memory_order_release);
}

static inline uint64_t *entry_bits(struct floor_heap *h, uint64_t number, uint64_t *bit)
{
	*bit = 1ull << number % 64;
	return h->entry_bits + number / 64;
}

/* Where the link to the entry of a key lies, or the last link of the chain, which is 0. */
static inline uint64_t *find(struct floor_heap *h, uint64_t bucket, uint64_t key)
{
	uint64_t *link = &h->buckets[bucket];
	while (*link != 0) {
		struct floor_entry *e = (struct floor_entry *)(h->start + *link);
		if (e->key == key)
			break;
		link = &e->next;
	}
	return link;
}

/* The record's checksum covers the new entry too. */
int floor_insert(struct floor_heap *h, uint64_t bucket, uint64_t key, uint64_t value)
{
	uint64_t *first = &h->buckets[bucket], bit;
	if (*find(h, bucket, key) != 0)
		return peer_fail("insert", "the key is there");
	struct floor_entry *e = &h->entries[h->entry_count];
	if ((char *)(e + 1) > h->free || h->entry_count >= 8 * ENTRY_BITMAP_BYTES)
		return peer_fail("insert", "the file is full");
	uint64_t *bits = entry_bits(h, h->entry_count++, &bit);
	*e = (struct floor_entry){.key = key, .value = value, .next = *first};
	flush(e);
	uint64_t *homes[] = {first, bits};
	uint64_t words[] = {(uint64_t)((char *)e - h->start), *bits | bit};
	change(h, homes, words, 2, mix(mix(mix(1, key), value), e->next));
	return 0;
}

int floor_update(struct floor_heap *h, uint64_t bucket, uint64_t key, uint64_t value)
{
	uint64_t *link = find(h, bucket, key);
	if (*link == 0)
		return peer_fail("update", "no such key");
	uint64_t *homes[] = {&((struct floor_entry *)(h->start + *link))->value};
	change(h, homes, &value, 1, 1);
	return 0;
}

int floor_remove(struct floor_heap *h, uint64_t bucket, uint64_t key)
{
	uint64_t *link = find(h, bucket, key), bit;
	if (*link == 0)
		return peer_fail("remove", "no such key");
	struct floor_entry *e = (struct floor_entry *)(h->start + *link);
	uint64_t *bits = entry_bits(h, (uint64_t)(e - h->entries), &bit);
	uint64_t *homes[] = {link, bits};
	uint64_t words[] = {e->next, *bits & ~bit};
	change(h, homes, words, 2, 1);
	return 0;
}

/* Loads a word; false if home words have been stored since `time`. */
static inline int load(struct floor_heap *h, const uint64_t *from, uint64_t time, uint64_t *word)
{
	*word = __atomic_load_n(from, __ATOMIC_ACQUIRE);
	return atomic_load_explicit(&h->clock.time, memory_order_relaxed) == time;
}

int floor_lookup(struct floor_heap *h, uint64_t bucket, uint64_t key, uint64_t *value)
{
	uint64_t time, offset, found_key;
	int found;
again:
	time = atomic_load_explicit(&h->clock.time, memory_order_acquire);
	atomic_store_explicit(&h->clock.reading, time + 1, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	if (time & 1)
		goto again;
	found = 0;
	if (!load(h, &h->buckets[bucket], time, &offset))
		goto again;
	while (offset != 0 && !found) {
		const struct floor_entry *e = (const struct floor_entry *)(h->start + offset);
		if (!load(h, &e->key, time, &found_key))
			goto again;
		found = found_key == key;
		if (!load(h, found ? &e->value : &e->next, time, found ? value : &offset))
			goto again;
	}
	atomic_store_explicit(&h->clock.reading, 0, memory_order_release);
	return found;
}

const char *floor_settings(void)
{
	return "one checksummed redo record of whole lines in a ring, one fence, home lines flushed with the next record; clwb, "
	       "sfence; the log written past the caches on AMD's processors";
}
