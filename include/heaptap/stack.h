/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Stacks as the kernel side stores them.
 *
 * A frame is one 64-bit word: (image id, file offset) of the call instruction's last byte, or a
 * raw address where no file backs the code. A stack is a chain of chunks, interned from its root,
 * so that stacks with a common root share their chunks; its id is the id of its leaf chunk.
 */
#ifndef HEAPTAP_STACK_H
#define HEAPTAP_STACK_H

#include "heaptap/types.h"

#define STACK_MAX_FRAMES   512
#define STACK_CHUNK_FRAMES 32

/* Bit 63 clear: image id in bits 40-62, file offset in bits 0-39. Bit 63 set: a raw address. */
#define FRAME_RAW	  (1ull << 63)
#define FRAME_OFFSET_BITS 40
#define FRAME_OFFSET_MASK ((1ull << FRAME_OFFSET_BITS) - 1)
#define FRAME_IMAGE_MAX	  ((1u << 23) - 1)

/* The stack id of allocations whose stack could not be stored. */
#define STACK_ID_LOST 0

/*
 * Why a walk ended. Everything but END is a cut stack; the text completes "[cut: ...]".
 * A single %s stands for the image of the last frame.
 */
#define STACK_STOPS(X)                                                                             \
	X(END, "the root was reached")                                                             \
	X(NO_ROWS, "no unwind rows in %s")                                                         \
	X(NOT_BUILT, "unwind rows not built yet for %s")                                           \
	X(UNSUPPORTED, "unsupported unwind rule in %s")                                            \
	X(INTERRUPTED, "interrupted between calls in %s")                                          \
	X(BAD_FRAME, "stack not as the unwind rows say in %s")                                     \
	X(FAULT, "unreadable stack memory in %s")                                                  \
	X(NO_MAPPING, "return address outside every mapping in %s")                                \
	X(DEPTH, "more than 512 frames")

enum stack_stop {
#define X(id, text) STOP_##id,
	STACK_STOPS(X)
#undef X
		STOP_COUNT
};

/* A step went by frame pointer through code without rows: plausible, checked, not proven. */
#define STACK_GUESSED 1

struct stack_chunk {
	__u64 parent; /* id of the chunk nearer to the root, 0 for the root chunk */
	__u16 count;  /* frames used */
	__u8 stop;    /* enum stack_stop, in the root chunk */
	__u8 flags;   /* STACK_*, in the root chunk */
	__u32 serial; /* process serial if the chunk holds raw addresses, else 0 */
	__u64 frames[STACK_CHUNK_FRAMES]; /* leaf first */
};

_Static_assert(sizeof(struct stack_chunk) == 16 + 8 * STACK_CHUNK_FRAMES, "chunk layout");
_Static_assert(STACK_MAX_FRAMES % STACK_CHUNK_FRAMES == 0, "a full stack fills its chunks");

/* What identifies the file behind a mapping in the kernel: the inode it really maps. */
struct image_key {
	__u64 inode;
	__u64 size;
	__u32 device;
	__u32 generation;
};

#define IMAGE_NAME_SIZE 40

/* First sight of an image: enough for the loader to open the file through the process. */
struct image_sight {
	__u32 id; /* from 1 */
	__u32 tgid;
	__u64 start; /* of the mapping, in the target */
	__u64 end;
	__u64 offset; /* in the file, of start */
	__u64 file_size;
	char name[IMAGE_NAME_SIZE]; /* last part of the path, cut if longer */
};

/* What the identify_image iterator writes for each mapping it is asked about. */
struct image_identity {
	__u64 start;
	__u32 id; /* 0: the image table is full */
	__u32 pad;
};

#endif
