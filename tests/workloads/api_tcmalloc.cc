// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// tcmalloc's own functions, ten times each: what they give is freed again by the one that belongs
// to it. Several of them are one function under two names.
#include <cerrno>
#include <new>

#include <gperftools/tcmalloc.h>

#include "truth.h"

#define TIMES 10

#define AL std::align_val_t(64)

namespace
{

struct Call {
	struct block (*allocate)(size_t size);
	void (*release)(void *ptr, size_t size);
};

} // namespace

#define CALL(fn, allocation, deletion)                                                             \
	SITE_BELOW(fn);                                                                            \
	SITE_FN static struct block fn(size_t size)                                                \
	{                                                                                          \
		void *ptr = opaque(allocation);                                                    \
                                                                                                   \
		require(ptr);                                                                      \
		return block_new(&fn##_site, ptr, size);                                           \
	}                                                                                          \
	SITE_FN static void release_##fn(void *ptr, size_t size)                                   \
	{                                                                                          \
		(void)size;                                                                        \
		deletion;                                                                          \
	}

extern "C" {

CALL(api_malloc, tc_malloc(size), tc_free(ptr))
CALL(api_malloc_sized, tc_malloc(size), tc_free_sized(ptr, size))
CALL(api_malloc_skip, tc_malloc_skip_new_handler(size), tc_cfree(ptr))
CALL(api_calloc, tc_calloc(size / 4, 4), tc_free(ptr))
CALL(api_realloc_null, tc_realloc(opaque(nullptr), size), tc_free(ptr))
CALL(api_memalign, tc_memalign(64, size), tc_free(ptr))
CALL(api_valloc, tc_valloc(size), tc_free(ptr))
CALL(api_new, tc_new(size), tc_delete(ptr))
CALL(api_new_sized, tc_new(size), tc_delete_sized(ptr, size))
CALL(api_new_nothrow, tc_new_nothrow(size, std::nothrow), tc_delete_nothrow(ptr, std::nothrow))
CALL(api_newarray, tc_newarray(size), tc_deletearray(ptr))
CALL(api_newarray_sized, tc_newarray(size), tc_deletearray_sized(ptr, size))
CALL(api_newarray_nothrow, tc_newarray_nothrow(size, std::nothrow),
     tc_deletearray_nothrow(ptr, std::nothrow))
CALL(api_new_aligned, tc_new_aligned(size, AL), tc_delete_aligned(ptr, AL))
CALL(api_new_aligned_sized, tc_new_aligned(size, AL), tc_delete_sized_aligned(ptr, size, AL))
CALL(api_new_aligned_nothrow, tc_new_aligned_nothrow(size, AL, std::nothrow),
     tc_delete_aligned_nothrow(ptr, AL, std::nothrow))
CALL(api_newarray_aligned, tc_newarray_aligned(size, AL), tc_deletearray_aligned(ptr, AL))
CALL(api_newarray_aligned_sized, tc_newarray_aligned(size, AL),
     tc_deletearray_sized_aligned(ptr, size, AL))
CALL(api_newarray_aligned_nothrow, tc_newarray_aligned_nothrow(size, AL, std::nothrow),
     tc_deletearray_aligned_nothrow(ptr, AL, std::nothrow))

SITE_BELOW(api_posix_memalign);
SITE_FN static struct block api_posix_memalign(size_t size)
{
	void *ptr = nullptr;

	require(tc_posix_memalign(&ptr, 128, size) == 0);
	return block_new(&api_posix_memalign_site, opaque(ptr), size);
}

// It passes on a size that is rounded up: whole pages are asked for.
SITE_BELOW(api_pvalloc);
SITE_FN static struct block api_pvalloc(size_t size)
{
	size = (size + 4095) / 4096 * 4096;
	return block_new(&api_pvalloc_site, opaque(tc_pvalloc(size)), size);
}

SITE_BELOW(api_realloc);
SITE_FN static struct block api_realloc(size_t size)
{
	struct block old = api_malloc(size);
	void *ptr = opaque(tc_realloc(old.ptr, 7 * size));

	require(ptr);
	return block_moved(&old, &api_realloc_site, ptr, 7 * size);
}

SITE_BELOW(api_fails);
SITE_FN static struct block api_fails(size_t size)
{
	struct block old = api_malloc(size);
	void *out = opaque(reinterpret_cast<void *>(0xdeadbeef0));

	require(!opaque(tc_malloc(opaque_size(SIZE_MAX))));
	require(!opaque(tc_calloc(opaque_size(SIZE_MAX / 2), opaque_size(3))));
	require(!opaque(tc_new_nothrow(opaque_size(SIZE_MAX), std::nothrow)));
	require(!opaque(tc_realloc(old.ptr, opaque_size(SIZE_MAX))));
	require(tc_posix_memalign(&out, opaque_size(3), size) == EINVAL);
	return old;
}

SITE_FN static void release_free(void *ptr, size_t)
{
	tc_free(ptr);
}
}

#define ENTRY(fn)                                                                                  \
	{                                                                                          \
		fn, release_##fn                                                                   \
	}

static const Call calls[] = {
	ENTRY(api_malloc),
	ENTRY(api_malloc_sized),
	ENTRY(api_malloc_skip),
	ENTRY(api_calloc),
	ENTRY(api_realloc_null),
	ENTRY(api_memalign),
	ENTRY(api_valloc),
	ENTRY(api_new),
	ENTRY(api_new_sized),
	ENTRY(api_new_nothrow),
	ENTRY(api_newarray),
	ENTRY(api_newarray_sized),
	ENTRY(api_newarray_nothrow),
	ENTRY(api_new_aligned),
	ENTRY(api_new_aligned_sized),
	ENTRY(api_new_aligned_nothrow),
	ENTRY(api_newarray_aligned),
	ENTRY(api_newarray_aligned_sized),
	ENTRY(api_newarray_aligned_nothrow),
	{api_posix_memalign, release_free},
	{api_pvalloc, release_free},
	{api_realloc, release_free},
	{api_fails, release_free},
};

int main(int argc, char **argv)
{
	size_t size = 40;

	truth_start(&argc, argv);
	for (const Call &call : calls) {
		struct block blocks[TIMES];

		for (struct block &block : blocks)
			block = call.allocate(size += 8);
		for (size_t n = 0; n < TIMES; n += 2) {
			size_t released = blocks[n].size;

			call.release(block_take(&blocks[n]), released);
		}
	}
	return truth_finish();
}
