/*
 * A B-tree in libpmemobj, programmed as its manual teaches: one transaction per change, every range
 * snapshotted before it is modified, nodes allocated and freed inside the transaction.
 *
 * Nodes have up to MAX_ITEMS items in order, and inner nodes one child more than that; each item is a key and
 * a value, in inner nodes too. Keys are words that compare as integers. A value of 8 bytes stands in the
 * item, a longer one is an object of its own whose offset stands there.
 *
 * As fast as the library allows: links are offsets that are added to the pool's address (pmemobj_direct would
 * look the pool up each time), a change takes one snapshot per node (each costs a log entry and a fence of
 * its own), nodes that the transaction allocated are not snapshotted, allocation classes without headers that
 * fit the nodes exactly, pages touched in advance. There are no locks, because there is one thread.
 */
#include "engine.h"

#include <libpmemobj.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_ITEMS 31 /* odd; with 7, as in the library's examples, everything takes 15 to 20% longer */
#define MIN_ITEMS (MAX_ITEMS / 2)
#define MAX_DEPTH 40
#define MAX_KEY_WORDS 3
#define INLINE static inline __attribute__((always_inline))

enum { TYPE_NODE = 1, TYPE_VALUE = 2 };

struct node {
	uint32_t count;
	uint32_t is_leaf;
	uint64_t words[]; /* MAX_ITEMS items of w key words and a value word; an inner node: then the children's offsets */
};

struct root {
	uint64_t top; /* offset of the uppermost node, 0 if the tree is empty */
};

struct tree {
	PMEMobjpool *pool;
	struct root *root;
	unsigned key_words;
	size_t key_bytes;
	size_t value_bytes;
	uint64_t leaf_class;
	uint64_t inner_class;
	char path[4096];
};

struct step {
	struct node *node;
	unsigned child;
};

/* --- where things are; w, the number of words of a key, is a constant wherever these are inlined --- */

INLINE struct node *node_at(const struct tree *t, uint64_t offset)
{
	return (struct node *)((char *)t->pool + offset);
}

INLINE uint64_t offset_of(const struct tree *t, const void *address)
{
	return (uint64_t)((const char *)address - (const char *)t->pool);
}

INLINE uint64_t *item(struct node *n, unsigned w, unsigned i)
{
	return n->words + i * (w + 1);
}

INLINE uint64_t *child(struct node *n, unsigned w, unsigned i)
{
	return n->words + MAX_ITEMS * (w + 1) + i;
}

INLINE size_t node_bytes(unsigned w, int is_leaf)
{
	size_t words = MAX_ITEMS * (w + 1) + (is_leaf ? 0 : MAX_ITEMS + 1);
	return (sizeof(struct node) + words * sizeof(uint64_t) + 63) / 64 * 64;
}

INLINE void load_key(const struct tree *t, unsigned w, const void *bytes, uint64_t *key)
{
	memset(key, 0, w * sizeof *key);
	memcpy(key, bytes, t->key_bytes);
	for (unsigned i = 0; i < w; i++)
		key[i] = __builtin_bswap64(key[i]);
}

INLINE int compare(const uint64_t *a, const uint64_t *b, unsigned w)
{
	for (unsigned i = 0; i < w; i++)
		if (a[i] != b[i])
			return a[i] < b[i] ? -1 : 1;
	return 0;
}

/* The first item whose key is at least `key`. */
INLINE unsigned search(struct node *n, unsigned w, const uint64_t *key, int *equal)
{
	unsigned low = 0, high = n->count;
	*equal = 0;
	while (low < high) {
		unsigned middle = (low + high) / 2;
		int order = compare(item(n, w, middle), key, w);
		if (order == 0)
			*equal = 1;
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

INLINE void copy_items(struct node *to, unsigned i, struct node *from, unsigned j, unsigned count, unsigned w)
{
	memmove(item(to, w, i), item(from, w, j), count * (w + 1) * sizeof(uint64_t));
}

INLINE void copy_children(struct node *to, unsigned i, struct node *from, unsigned j, unsigned count, unsigned w)
{
	memmove(child(to, w, i), child(from, w, j), count * sizeof(uint64_t));
}

/* --- steps inside a transaction; an error aborts it and jumps to TX_ONABORT --- */

INLINE void snapshot(const void *start, const void *end)
{
	pmemobj_tx_add_range_direct(start, (size_t)((const char *)end - (const char *)start));
}

INLINE void snapshot_node(struct node *n, unsigned w)
{
	pmemobj_tx_add_range_direct(n, node_bytes(w, (int)n->is_leaf));
}

INLINE struct node *new_node(struct tree *t, unsigned w, int is_leaf)
{
	uint64_t class = is_leaf ? t->leaf_class : t->inner_class;
	PMEMoid oid = pmemobj_tx_xalloc(node_bytes(w, is_leaf), TYPE_NODE, POBJ_CLASS_ID(class));
	struct node *n = node_at(t, oid.off);
	n->count = 0;
	n->is_leaf = (uint32_t)is_leaf;
	return n;
}

INLINE void free_at(struct tree *t, uint64_t offset)
{
	PMEMoid oid = pmemobj_oid(t->root);
	oid.off = offset;
	pmemobj_tx_free(oid);
}

INLINE uint64_t new_value(struct tree *t, const void *value)
{
	uint64_t word;
	if (t->value_bytes == sizeof word) {
		memcpy(&word, value, sizeof word);
		return word;
	}
	PMEMoid oid = pmemobj_tx_alloc(t->value_bytes, TYPE_VALUE);
	memcpy(node_at(t, oid.off), value, t->value_bytes);
	return oid.off;
}

INLINE void free_value(struct tree *t, uint64_t word)
{
	if (t->value_bytes != sizeof word)
		free_at(t, word);
}

INLINE void replace_value(struct tree *t, uint64_t *word, const void *value)
{
	snapshot(word, word + 1);
	free_value(t, *word);
	*word = new_value(t, value);
}

/* Moves the upper half of the full i-th child of `parent`, which has room, into a new right sibling. */
INLINE void split_child(struct tree *t, unsigned w, struct node *parent, unsigned i)
{
	struct node *left = node_at(t, *child(parent, w, i));
	struct node *right = new_node(t, w, (int)left->is_leaf);
	snapshot(left, left->words);
	snapshot_node(parent, w);
	copy_items(right, 0, left, MIN_ITEMS + 1, MIN_ITEMS, w);
	if (!left->is_leaf)
		copy_children(right, 0, left, MIN_ITEMS + 1, MIN_ITEMS + 1, w);
	copy_items(parent, i + 1, parent, i, parent->count - i, w);
	copy_children(parent, i + 2, parent, i + 1, parent->count - i, w);
	copy_items(parent, i, left, MIN_ITEMS, 1, w);
	*child(parent, w, i + 1) = offset_of(t, right);
	left->count = right->count = MIN_ITEMS;
	parent->count++;
}

INLINE void set_top(struct tree *t, uint64_t offset)
{
	snapshot(&t->root->top, &t->root->top + 1);
	t->root->top = offset;
}

INLINE struct node *top_with_room(struct tree *t, unsigned w)
{
	if (t->root->top == 0) {
		struct node *leaf = new_node(t, w, 1);
		set_top(t, offset_of(t, leaf));
		return leaf;
	}
	struct node *top = node_at(t, t->root->top);
	if (top->count < MAX_ITEMS)
		return top;
	struct node *above = new_node(t, w, 0);
	*child(above, w, 0) = t->root->top;
	split_child(t, w, above, 0);
	set_top(t, offset_of(t, above));
	return above;
}

/* Full nodes on the way down are split, so that there is always room above. */
INLINE void insert(struct tree *t, unsigned w, const void *key_bytes, const void *value)
{
	uint64_t key[MAX_KEY_WORDS];
	int equal;
	load_key(t, w, key_bytes, key);
	struct node *n = top_with_room(t, w);
	for (;;) {
		unsigned i = search(n, w, key, &equal);
		if (!equal && !n->is_leaf && node_at(t, *child(n, w, i))->count == MAX_ITEMS) {
			split_child(t, w, n, i);
			int order = compare(item(n, w, i), key, w);
			equal = order == 0;
			i += order < 0;
		}
		if (equal) {
			replace_value(t, item(n, w, i) + w, value);
			return;
		}
		if (n->is_leaf) {
			snapshot(n, item(n, w, n->count + 1));
			copy_items(n, i + 1, n, i, n->count - i, w);
			memcpy(item(n, w, i), key, w * sizeof *key);
			item(n, w, i)[w] = new_value(t, value);
			n->count++;
			return;
		}
		n = node_at(t, *child(n, w, i));
	}
}

INLINE void borrow_from_left(struct node *parent, unsigned w, unsigned i, struct node *left, struct node *n)
{
	snapshot_node(n, w);
	snapshot(left, left->words);
	snapshot(item(parent, w, i - 1), item(parent, w, i));
	copy_items(n, 1, n, 0, n->count, w);
	copy_items(n, 0, parent, i - 1, 1, w);
	copy_items(parent, i - 1, left, left->count - 1, 1, w);
	if (!n->is_leaf) {
		copy_children(n, 1, n, 0, n->count + 1, w);
		copy_children(n, 0, left, left->count, 1, w);
	}
	left->count--;
	n->count++;
}

INLINE void borrow_from_right(struct node *parent, unsigned w, unsigned i, struct node *n, struct node *right)
{
	snapshot_node(n, w);
	snapshot_node(right, w);
	snapshot(item(parent, w, i), item(parent, w, i + 1));
	copy_items(n, n->count, parent, i, 1, w);
	copy_items(parent, i, right, 0, 1, w);
	copy_items(right, 0, right, 1, right->count - 1, w);
	if (!n->is_leaf) {
		copy_children(n, n->count + 1, right, 0, 1, w);
		copy_children(right, 0, right, 1, right->count, w);
	}
	right->count--;
	n->count++;
}

/* Appends the item between them and the right node's contents to the left one, and frees the right one. */
INLINE void merge(struct tree *t, unsigned w, struct node *parent, unsigned i)
{
	struct node *left = node_at(t, *child(parent, w, i)), *right = node_at(t, *child(parent, w, i + 1));
	snapshot_node(left, w);
	snapshot_node(parent, w);
	copy_items(left, left->count, parent, i, 1, w);
	copy_items(left, left->count + 1, right, 0, right->count, w);
	if (!left->is_leaf)
		copy_children(left, left->count + 1, right, 0, right->count + 1, w);
	left->count += right->count + 1;
	free_at(t, offset_of(t, right));
	copy_items(parent, i, parent, i + 1, parent->count - i - 1, w);
	copy_children(parent, i + 1, parent, i + 2, parent->count - i - 1, w);
	parent->count--;
}

/* The i-th child of `parent` has one item too few. */
INLINE void refill(struct tree *t, unsigned w, struct node *parent, unsigned i)
{
	struct node *n = node_at(t, *child(parent, w, i));
	struct node *left = i > 0 ? node_at(t, *child(parent, w, i - 1)) : NULL;
	struct node *right = i < parent->count ? node_at(t, *child(parent, w, i + 1)) : NULL;
	if (left && left->count > MIN_ITEMS)
		borrow_from_left(parent, w, i, left, n);
	else if (right && right->count > MIN_ITEMS)
		borrow_from_right(parent, w, i, n, right);
	else
		merge(t, w, parent, left ? i - 1 : i);
}

INLINE void drop_empty_top(struct tree *t, unsigned w)
{
	struct node *top = node_at(t, t->root->top);
	if (top->count > 0)
		return;
	uint64_t old = t->root->top;
	set_top(t, top->is_leaf ? 0 : *child(top, w, 0));
	free_at(t, old);
}

/* An item of an inner node gives its place to its predecessor, which is in a leaf. */
INLINE int remove_key(struct tree *t, unsigned w, const void *key_bytes)
{
	uint64_t key[MAX_KEY_WORDS];
	struct step way[MAX_DEPTH];
	unsigned depth = 0, i;
	int equal;
	if (t->root->top == 0)
		return 0;
	load_key(t, w, key_bytes, key);
	struct node *n = node_at(t, t->root->top);
	for (; i = search(n, w, key, &equal), !equal; n = node_at(t, *child(n, w, i))) {
		if (n->is_leaf)
			return 0;
		way[depth++] = (struct step){n, i};
	}
	free_value(t, item(n, w, i)[w]);
	if (!n->is_leaf) {
		struct node *found = n;
		unsigned place = i;
		for (; !n->is_leaf; i = n->count) {
			way[depth++] = (struct step){n, i};
			n = node_at(t, *child(n, w, i));
		}
		snapshot(item(found, w, place), item(found, w, place + 1));
		copy_items(found, place, n, --i, 1, w);
	}
	snapshot(n, item(n, w, n->count));
	copy_items(n, i, n, i + 1, n->count - i - 1, w);
	n->count--;
	for (; n->count < MIN_ITEMS && depth > 0; n = way[depth].node) {
		depth--;
		refill(t, w, way[depth].node, way[depth].child);
	}
	drop_empty_top(t, w);
	return 1;
}

INLINE int get(struct tree *t, unsigned w, const void *key_bytes, struct peer_bytes *value)
{
	uint64_t key[MAX_KEY_WORDS];
	int equal;
	load_key(t, w, key_bytes, key);
	for (uint64_t offset = t->root->top; offset != 0;) {
		struct node *n = node_at(t, offset);
		unsigned i = search(n, w, key, &equal);
		if (equal) {
			uint64_t *word = item(n, w, i) + w;
			value->start = t->value_bytes == sizeof *word ? (void *)word : (void *)node_at(t, *word);
			value->length = t->value_bytes;
			return 1;
		}
		offset = n->is_leaf ? 0 : *child(n, w, i);
	}
	return 0;
}

INLINE void visit_item(struct tree *t, unsigned w, uint64_t *at, peer_visit *visit, void *context)
{
	uint64_t key[MAX_KEY_WORDS];
	for (unsigned i = 0; i < w; i++)
		key[i] = __builtin_bswap64(at[i]);
	const void *value = t->value_bytes == sizeof *at ? (void *)(at + w) : (void *)node_at(t, at[w]);
	visit(context, (struct peer_bytes){key, t->key_bytes}, (struct peer_bytes){value, t->value_bytes});
}

INLINE int64_t scan(struct tree *t, unsigned w, const void *from, size_t limit, peer_visit *visit, void *context)
{
	uint64_t key[MAX_KEY_WORDS];
	struct step way[MAX_DEPTH];
	unsigned depth = 0;
	size_t met = 0;
	int equal;
	load_key(t, w, from, key);
	for (uint64_t offset = t->root->top; offset != 0;) {
		struct node *n = node_at(t, offset);
		unsigned i = search(n, w, key, &equal);
		way[depth++] = (struct step){n, i};
		offset = equal || n->is_leaf ? 0 : *child(n, w, i);
	}
	/* The last step points to the next item; the steps above it, to the items that follow its whole subtree. */
	while (depth > 0 && met < limit) {
		struct step *last = &way[depth - 1];
		if (last->child == last->node->count) {
			depth--;
			continue;
		}
		visit_item(t, w, item(last->node, w, last->child), visit, context);
		met++;
		last->child++;
		for (struct node *n = last->node; !n->is_leaf;) {
			n = node_at(t, *child(n, w, way[depth - 1].child));
			way[depth++] = (struct step){n, 0};
		}
	}
	return (int64_t)met;
}

/* --- the table --- */

static int failed(const char *what)
{
	return peer_fail(what, pmemobj_errormsg());
}

static int define_class(struct tree *t, size_t bytes, uint64_t *class)
{
	struct pobj_alloc_class_desc desc = {
		.unit_size = bytes,
		.alignment = 64,
		.units_per_block = 1024,
		.header_type = POBJ_HEADER_NONE,
	};
	if (pmemobj_ctl_set(t->pool, "heap.alloc_class.new.desc", &desc) != 0)
		return failed("heap.alloc_class.new.desc");
	*class = desc.class_id;
	return 0;
}

static int pmo_open(const struct peer_setup *setup, void **engine)
{
	struct tree *t = calloc(1, sizeof *t);
	struct stat status;
	int touch = 1;
	t->key_bytes = setup->key_bytes;
	t->key_words = (unsigned)((setup->key_bytes + 7) / 8);
	t->value_bytes = setup->value_bytes;
	if (t->key_words != 1 && t->key_words != MAX_KEY_WORDS)
		return peer_fail("pmemobj", "keys of this length are not provided for");
	snprintf(t->path, sizeof t->path, "%s/peers.pool", setup->folder);
	if (pmemobj_ctl_set(NULL, "prefault.at_create", &touch) != 0 || pmemobj_ctl_set(NULL, "prefault.at_open", &touch) != 0)
		return failed("prefault");
	t->pool = stat(t->path, &status) == 0 ? pmemobj_open(t->path, "peers")
					      : pmemobj_create(t->path, "peers", setup->capacity_bytes, 0644);
	if (!t->pool)
		return failed("opening the pool");
	PMEMoid root = pmemobj_root(t->pool, sizeof(struct root));
	if (OID_IS_NULL(root))
		return failed("pmemobj_root");
	t->root = pmemobj_direct(root);
	if (define_class(t, node_bytes(t->key_words, 1), &t->leaf_class) != 0 ||
	    define_class(t, node_bytes(t->key_words, 0), &t->inner_class) != 0)
		return -1;
	*engine = t;
	return 0;
}

static void pmo_close(void *engine)
{
	struct tree *t = engine;
	pmemobj_close(t->pool);
	free(t);
}

static int pmo_insert(void *engine, const void *key, const void *value)
{
	struct tree *t = engine;
	volatile int result = 0;
	TX_BEGIN(t->pool) {
		if (t->key_words == 1)
			insert(t, 1, key, value);
		else
			insert(t, MAX_KEY_WORDS, key, value);
	} TX_ONABORT {
		result = failed("insert");
	} TX_END
	return result;
}

static int pmo_remove(void *engine, const void *key)
{
	struct tree *t = engine;
	volatile int result = 0;
	TX_BEGIN(t->pool) {
		result = t->key_words == 1 ? remove_key(t, 1, key) : remove_key(t, MAX_KEY_WORDS, key);
	} TX_ONABORT {
		result = -1;
	} TX_END
	if (result == 1)
		return 0;
	return result == 0 ? peer_fail("remove", "no such key") : failed("remove");
}

static int pmo_get(void *engine, const void *key, struct peer_bytes *value)
{
	struct tree *t = engine;
	return t->key_words == 1 ? get(t, 1, key, value) : get(t, MAX_KEY_WORDS, key, value);
}

static int64_t pmo_scan(void *engine, const void *from, size_t limit, peer_visit *visit, void *context)
{
	struct tree *t = engine;
	return t->key_words == 1 ? scan(t, 1, from, limit, visit, context)
				 : scan(t, MAX_KEY_WORDS, from, limit, visit, context);
}

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

const struct peer_engine peer_pmemobj = {
	.name = "libpmemobj",
	.version = PEER_VERSION,
	.settings = "B-tree with up to " TEXT(MAX_ITEMS) " items to a node, one transaction per change, one snapshot per changed "
		    "node; PMEM_IS_PMEM_FORCE=1, so that lines are flushed and not pages synced; allocation classes without headers, "
		    "pages touched in advance",
	.open = pmo_open,
	.close = pmo_close,
	.insert = pmo_insert,
	.remove = pmo_remove,
	.get = pmo_get,
	.scan = pmo_scan,
	.settle = peer_nothing,
	.share_snapshot = peer_nothing,
};
