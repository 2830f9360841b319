/*
 * The interface of an engine in C, for the comparison. Each file beside this one makes one such table from a
 * library's own header, so that the compiler checks every call; src/native.rs is the other side.
 *
 * All keys of a run have the same length, and so have all values. Keys are ordered as byte strings. An engine
 * is used by one thread. A write that returned is durable as far as the library can make it so.
 */
#ifndef PEERS_ENGINE_H
#define PEERS_ENGINE_H

#include <stddef.h>
#include <stdint.h>

struct peer_setup {
	const char *folder;      /* exists; empty unless the database is reopened */
	size_t key_bytes;        /* 8, 20 or 25 */
	size_t value_bytes;      /* at least 8 */
	size_t capacity_bytes;   /* more than the data will ever take, for engines that want to know it beforehand */
};

struct peer_bytes {
	const void *start;
	size_t length;
};

/* Called for each record of a scan. */
typedef void peer_visit(void *context, struct peer_bytes key, struct peer_bytes value);

/* Functions return a negative number after an error, which peer_error() then describes. */
struct peer_engine {
	const char *name;
	const char *version;
	const char *settings;
	/* Opens the database in the folder, or creates it. */
	int (*open)(const struct peer_setup *setup, void **engine);
	void (*close)(void *engine);
	int (*insert)(void *engine, const void *key, const void *value);
	int (*remove)(void *engine, const void *key);
	/* Returns 1, and the value in place, which is good until the next call; or 0 if there is no such key. */
	int (*get)(void *engine, const void *key, struct peer_bytes *value);
	/* Visits up to limit records in order, from the first whose key is at least `from`; returns how many. */
	int64_t (*scan)(void *engine, const void *from, size_t limit, peer_visit *visit, void *context);
	/* Does, outside the measured time, what a patient operator would let the engine do before reading. */
	int (*settle)(void *engine);
	/* Lets lookups share one snapshot from now on; returns 0 if the engine does nothing of the kind, else 1. */
	int (*share_snapshot)(void *engine);
	/* Makes all writes that returned durable; may run in any thread, beside any other function but close. Null
	 * if each write waits for that. */
	int (*sync)(void *engine);
};

/* For engines that have nothing to do. */
int peer_nothing(void *engine);

/* Notes what went wrong, for peer_error, and returns -1. */
int peer_fail(const char *what, const char *why);
const char *peer_error(void);

#endif
