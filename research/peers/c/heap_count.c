/*
 * A library to be loaded in advance (LD_PRELOAD) that counts the fences that libpmemobj asks of libpmem: the
 * calls that end with one, each counted and passed on. Calls that such a call makes itself are not counted
 * again.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#define NO_DRAIN 1u /* PMEM_F_MEM_NODRAIN */
#define NO_FLUSH 32u /* PMEM_F_MEM_NOFLUSH, which implies it */

static int64_t fences;
static int depth;

static void leave(const int *outer)
{
	depth = *outer;
}

int64_t peer_counted_fences(void)
{
	return fences;
}

#define PASS_ON(result, name, parameters, arguments, counted)                  \
	result name parameters                                                 \
	{                                                                      \
		static result(*next) parameters;                               \
		if (!next)                                                     \
			next = (result(*) parameters)dlsym(RTLD_NEXT, #name);  \
		fences += depth == 0 && (counted) ? 1 : 0;                     \
		__attribute__((cleanup(leave))) int outer = depth++;           \
		return next arguments;                                         \
	}

PASS_ON(void, pmem_drain, (void), (), 1)
PASS_ON(void, pmem_persist, (const void *start, size_t bytes), (start, bytes), 1)
PASS_ON(int, pmem_msync, (const void *start, size_t bytes), (start, bytes), 1)
PASS_ON(void *, pmem_memcpy_persist, (void *to, const void *from, size_t bytes), (to, from, bytes), 1)
PASS_ON(void *, pmem_memmove_persist, (void *to, const void *from, size_t bytes), (to, from, bytes), 1)
PASS_ON(void *, pmem_memset_persist, (void *to, int byte, size_t bytes), (to, byte, bytes), 1)
PASS_ON(void *, pmem_memcpy, (void *to, const void *from, size_t bytes, unsigned flags), (to, from, bytes, flags),
	!(flags & (NO_DRAIN | NO_FLUSH)))
PASS_ON(void *, pmem_memmove, (void *to, const void *from, size_t bytes, unsigned flags), (to, from, bytes, flags),
	!(flags & (NO_DRAIN | NO_FLUSH)))
PASS_ON(void *, pmem_memset, (void *to, int byte, size_t bytes, unsigned flags), (to, byte, bytes, flags),
	!(flags & (NO_DRAIN | NO_FLUSH)))
