/*
 * Objects in libpmemobj, programmed as its manual teaches: one transaction per change, every range
 * snapshotted before it is modified, objects allocated and freed inside the transaction.
 *
 * As fast as the library allows: addresses are offsets added to the pool's (pmemobj_direct would look the
 * pool up each time), one snapshot for each range, none for what the transaction allocated, allocation
 * classes without headers that fit the objects exactly, all pages touched in advance. There are no locks,
 * because there is one thread. Lookups need no transaction.
 */
#define _GNU_SOURCE
#include "engine.h"
#include "heap.h"

#include <dlfcn.h>
#include <libpmemobj.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PAGE ((size_t)4096)

enum { TYPE_TABLE = 1, TYPE_OTHER = 2 };

struct line {
	uint64_t words[8];
};

struct listed {
	uint64_t words[7];
	uint64_t next;
};

struct entry {
	uint64_t key;
	uint64_t value;
	PMEMoid next;
};

struct root {
	PMEMoid lines;    /* PMEMoid[objects], each of which leads to a struct line */
	PMEMoid elements; /* struct line[objects] */
	PMEMoid buckets;  /* PMEMoid[], each of which leads to a struct entry */
	uint64_t first;   /* offset of the list's first struct listed */
	uint64_t count;   /* entries of the hash table */
};

struct pmo_heap {
	PMEMobjpool *pool;
	struct root *root;
	PMEMoid *lines;
	struct line *elements;
	PMEMoid *buckets;
	uint64_t line_class;
	uint64_t entry_class;
};

static void *at(const struct pmo_heap *h, uint64_t offset)
{
	return (char *)h->pool + offset;
}

static int failed(const char *what)
{
	return peer_fail(what, pmemobj_errormsg());
}

/* --- opening --- */

static int define_class(struct pmo_heap *h, size_t bytes, size_t alignment, uint64_t *class)
{
	struct pobj_alloc_class_desc desc = {
		.unit_size = bytes,
		.alignment = alignment,
		.units_per_block = 4096,
		.header_type = POBJ_HEADER_NONE,
	};
	if (pmemobj_ctl_set(h->pool, "heap.alloc_class.new.desc", &desc) != 0)
		return failed("heap.alloc_class.new.desc");
	*class = desc.class_id;
	return 0;
}

static void touch(struct pmo_heap *h, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += PAGE) {
		volatile char *page = (char *)h->pool + i;
		*page = *page;
	}
}

static int make_tables(struct pmo_heap *h, uint64_t objects, uint64_t buckets)
{
	struct root *root = h->root;
	if (pmemobj_zalloc(h->pool, &root->lines, objects * sizeof(PMEMoid), TYPE_TABLE) != 0 ||
	    pmemobj_zalloc(h->pool, &root->elements, objects * sizeof(struct line), TYPE_TABLE) != 0 ||
	    pmemobj_zalloc(h->pool, &root->buckets, buckets * sizeof(PMEMoid), TYPE_TABLE) != 0)
		return failed("pmemobj_zalloc");
	PMEMoid *lines = at(h, root->lines.off);
	volatile int result = 0;
	for (uint64_t i = 0; i < objects && result == 0; i++) {
		TX_BEGIN(h->pool) {
			pmemobj_tx_add_range_direct(&lines[i], sizeof lines[i]);
			lines[i] = pmemobj_tx_xalloc(sizeof(struct line), TYPE_OTHER, POBJ_CLASS_ID(h->line_class));
			memset(at(h, lines[i].off), 0, sizeof(struct line));
		} TX_ONABORT {
			result = failed("making the objects");
		} TX_END
	}
	return result;
}

int pmo_heap_open(const char *path, size_t bytes, uint64_t objects, uint64_t buckets, int prepare, struct pmo_heap **heap)
{
	struct pmo_heap *h = calloc(1, sizeof *h);
	struct stat status;
	int is_new = stat(path, &status) != 0;
	h->pool = is_new ? pmemobj_create(path, "heap", bytes, 0644) : pmemobj_open(path, "heap");
	if (!h->pool)
		return failed("opening the pool");
	if (is_new && prepare)
		touch(h, bytes);
	if (define_class(h, sizeof(struct line), 64, &h->line_class) != 0 ||
	    define_class(h, sizeof(struct entry), 0, &h->entry_class) != 0)
		return -1;
	PMEMoid root = pmemobj_root(h->pool, sizeof(struct root));
	if (OID_IS_NULL(root))
		return failed("pmemobj_root");
	h->root = at(h, root.off);
	if (is_new && objects > 0 && make_tables(h, objects, buckets) != 0)
		return -1;
	h->lines = at(h, h->root->lines.off);
	h->elements = at(h, h->root->elements.off);
	h->buckets = at(h, h->root->buckets.off);
	*heap = h;
	return 0;
}

void pmo_heap_close(struct pmo_heap *h)
{
	pmemobj_close(h->pool);
	free(h);
}

/* --- objects --- */

static void set_line(struct line *line, uint64_t word)
{
	for (int i = 0; i < 8; i++)
		line->words[i] = word;
}

int pmo_heap_empty(struct pmo_heap *h)
{
	volatile int result = 0;
	TX_BEGIN(h->pool) {
	} TX_ONABORT {
		result = failed("an empty transaction");
	} TX_END
	return result;
}

int pmo_heap_write(struct pmo_heap *h, const uint32_t *indexes, size_t count, uint64_t word)
{
	volatile int result = 0;
	TX_BEGIN(h->pool) {
		for (size_t i = 0; i < count; i++) {
			struct line *line = at(h, h->lines[indexes[i]].off);
			pmemobj_tx_add_range_direct(line, sizeof *line);
			set_line(line, word);
		}
	} TX_ONABORT {
		result = failed("write");
	} TX_END
	return result;
}

int pmo_heap_write_element(struct pmo_heap *h, uint32_t index, uint64_t word)
{
	volatile int result = 0;
	TX_BEGIN(h->pool) {
		struct line *line = &h->elements[index];
		pmemobj_tx_add_range_direct(line, sizeof *line);
		set_line(line, word);
	} TX_ONABORT {
		result = failed("write");
	} TX_END
	return result;
}

int pmo_heap_swap_elements(struct pmo_heap *h, uint32_t a, uint32_t b)
{
	volatile int result = 0;
	TX_BEGIN(h->pool) {
		uint64_t *in_a = &h->elements[a].words[0], *in_b = &h->elements[b].words[0];
		pmemobj_tx_add_range_direct(in_a, sizeof *in_a);
		pmemobj_tx_add_range_direct(in_b, sizeof *in_b);
		uint64_t word = *in_a;
		*in_a = *in_b;
		*in_b = word;
	} TX_ONABORT {
		result = failed("swap");
	} TX_END
	return result;
}

int pmo_heap_read_object(struct pmo_heap *h, uint32_t index, uint64_t *word)
{
	const struct line *line = at(h, h->lines[index].off);
	*word = line->words[7];
	return 0;
}

int pmo_heap_push(struct pmo_heap *h, uint64_t word)
{
	volatile int result = 0;
	TX_BEGIN(h->pool) {
		PMEMoid oid = pmemobj_tx_xalloc(sizeof(struct listed), TYPE_OTHER, POBJ_CLASS_ID(h->line_class));
		struct listed *listed = at(h, oid.off);
		for (int i = 0; i < 7; i++)
			listed->words[i] = word;
		listed->next = h->root->first;
		pmemobj_tx_add_range_direct(&h->root->first, sizeof h->root->first);
		h->root->first = oid.off;
	} TX_ONABORT {
		result = failed("push");
	} TX_END
	return result;
}

int pmo_heap_replace(struct pmo_heap *h, uint32_t index, uint64_t word)
{
	volatile int result = 0;
	TX_BEGIN(h->pool) {
		PMEMoid *slot = &h->lines[index];
		pmemobj_tx_add_range_direct(slot, sizeof *slot);
		PMEMoid oid = pmemobj_tx_xalloc(sizeof(struct line), TYPE_OTHER, POBJ_CLASS_ID(h->line_class));
		set_line(at(h, oid.off), word);
		pmemobj_tx_free(*slot);
		*slot = oid;
	} TX_ONABORT {
		result = failed("replace");
	} TX_END
	return result;
}

/* --- the hash table: chained buckets --- */

static void add_to_count(struct pmo_heap *h, uint64_t by)
{
	pmemobj_tx_add_range_direct(&h->root->count, sizeof h->root->count);
	h->root->count += by;
}

int pmo_heap_insert(struct pmo_heap *h, uint64_t bucket, uint64_t key, uint64_t value, int counted)
{
	volatile int result = 0;
	PMEMoid *slot = &h->buckets[bucket];
	for (PMEMoid oid = *slot; oid.off != 0;) {
		const struct entry *e = at(h, oid.off);
		if (e->key == key)
			return peer_fail("insert", "the key is there");
		oid = e->next;
	}
	TX_BEGIN(h->pool) {
		PMEMoid oid = pmemobj_tx_xalloc(sizeof(struct entry), TYPE_OTHER, POBJ_CLASS_ID(h->entry_class));
		struct entry *e = at(h, oid.off);
		e->key = key;
		e->value = value;
		e->next = *slot;
		pmemobj_tx_add_range_direct(slot, sizeof *slot);
		*slot = oid;
		if (counted)
			add_to_count(h, 1);
	} TX_ONABORT {
		result = failed("insert");
	} TX_END
	return result;
}

int pmo_heap_update(struct pmo_heap *h, uint64_t bucket, uint64_t key, uint64_t value)
{
	volatile int result = 0;
	PMEMoid oid = h->buckets[bucket];
	struct entry *e = NULL;
	while (oid.off != 0) {
		e = at(h, oid.off);
		if (e->key == key)
			break;
		oid = e->next;
	}
	if (oid.off == 0)
		return peer_fail("update", "no such key");
	TX_BEGIN(h->pool) {
		pmemobj_tx_add_range_direct(&e->value, sizeof e->value);
		e->value = value;
	} TX_ONABORT {
		result = failed("update");
	} TX_END
	return result;
}

int pmo_heap_remove(struct pmo_heap *h, uint64_t bucket, uint64_t key, int counted)
{
	volatile int result = 0;
	PMEMoid *slot = &h->buckets[bucket];
	struct entry *e = NULL;
	while (slot->off != 0) {
		e = at(h, slot->off);
		if (e->key == key)
			break;
		slot = &e->next;
	}
	if (slot->off == 0)
		return peer_fail("remove", "no such key");
	TX_BEGIN(h->pool) {
		PMEMoid oid = *slot;
		pmemobj_tx_add_range_direct(slot, sizeof *slot);
		*slot = e->next;
		pmemobj_tx_free(oid);
		if (counted)
			add_to_count(h, (uint64_t)-1);
	} TX_ONABORT {
		result = failed("remove");
	} TX_END
	return result;
}

int pmo_heap_lookup(struct pmo_heap *h, uint64_t bucket, uint64_t key, uint64_t *value)
{
	for (uint64_t offset = h->buckets[bucket].off; offset != 0;) {
		const struct entry *e = at(h, offset);
		if (e->key == key) {
			*value = e->value;
			return 1;
		}
		offset = e->next.off;
	}
	return 0;
}

/* --- the rest --- */

int pmo_heap_fill(struct pmo_heap *h, size_t bytes)
{
	volatile int result = 0;
	volatile size_t allocated = 0;
	while (result == 0 && allocated < bytes) {
		TX_BEGIN(h->pool) {
			for (int i = 0; i < 16; i++) {
				PMEMoid oid = pmemobj_tx_alloc(1008, TYPE_OTHER);
				uint64_t *words = at(h, oid.off);
				words[0] = h->root->first;
				pmemobj_tx_add_range_direct(&h->root->first, sizeof h->root->first);
				h->root->first = oid.off;
			}
			allocated += 16 * 1024;
		} TX_ONABORT {
			result = failed("filling the pool");
		} TX_END
	}
	return result;
}

const char *pmo_heap_version(void)
{
	return PEER_VERSION;
}

int64_t pmo_heap_fences(void)
{
	int64_t (*count)(void) = (int64_t (*)(void))dlsym(RTLD_DEFAULT, "peer_counted_fences");
	return count ? count() : -1;
}
