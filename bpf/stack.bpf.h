/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Walks the stack of a picked allocation and interns it as chunks.
 *
 * The walk starts at the allocator's return, where every register is the caller's. Each frame is
 * normalised at once to (image, file offset), so that equal stacks of different processes, or of
 * the same program run twice, have the same id.
 */
#ifndef HEAPTAP_STACK_BPF_H
#define HEAPTAP_STACK_BPF_H

#include "maps.bpf.h"
#include "rules.bpf.h"
#include "unwind.bpf.h"
#include "vma.bpf.h"

/* Mappings that a walk, and its CPU between walks, remembers. */
#define VMA_CACHE 8

/* Stack memory that a walk reads at once: some frames' worth. */
#define WINDOW_WORDS 64

/* What is known of an image's table, by image id: UNWIND_* flags. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, UNWIND_MAX_IMAGES);
	__type(key, __u32);
	__type(value, __u32);
} unwind_images SEC(".maps");

/* Too large for the stack below a walk. */
struct image_look {
	struct image_key key;
	struct image_sight sight;
};

struct walk {
	struct unwind_state state; /* first: see unwind_read_word() */
	__u64 window_start;
	__u64 window_bytes; /* that were readable */
	__u64 window[WINDOW_WORDS];
	__u64 mm;     /* struct mm_struct * of the target */
	__u32 stop;   /* enum stack_stop, STOP_COUNT while walking */
	__u32 count;  /* frames so far */
	__u32 serial; /* of the process if a frame is a raw address, else 0 */
	__u32 process_serial;
	__u32 tgid;
	__u32 vma_next; /* counts the mappings looked up */
	struct vma vmas[VMA_CACHE];
	struct unwind_rule rule;	/* of the frame in work */
	struct maple_pivots pivots;	/* of the tree of mappings */
	struct image_look look;		/* at the file in work */
	__u64 frames[STACK_MAX_FRAMES]; /* leaf first */
	struct stack_chunk chunk;	/* being built */
	__u64 parent;			/* id of the chunk interned last */
	__u32 interned;			/* frames interned so far, from the root */
	__u32 own_image; /* the leaf's, whose frames are left out there; 0: none is */
	__u32 slot;	 /* of `walks` that this is */
	__u32 busy;
};

/*
 * Uprobe programs stay on their CPU but can be preempted by another thread's: each takes one of
 * four slots of the CPU.
 */
#define WALK_SLOTS 4

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WALK_SLOTS);
	__type(key, __u32);
	__type(value, struct walk);
} walks SEC(".maps");

static int unwind_read(void *to, __u32 size, __u64 address)
{
	return bpf_probe_read_user(to, size, (const void *)address);
}

/* Moves the window to an address. Where its whole length is not readable, to one word. */
__noinline int walk_move_window(struct walk *walk, __u64 address)
{
	if (!walk)
		return -14; /* EFAULT */
	walk->window_start = address;
	walk->window_bytes = sizeof(walk->window);
	if (!bpf_probe_read_user(walk->window, sizeof(walk->window), (void *)address))
		return 0;
	walk->window_bytes = sizeof(walk->window[0]);
	if (!bpf_probe_read_user(walk->window, sizeof(walk->window[0]), (void *)address))
		return 0;
	walk->window_bytes = 0;
	return -14;
}

static __always_inline int unwind_read_word(struct unwind_state *state, __u64 *to, __u64 address)
{
	struct walk *walk = (struct walk *)state;
	__u64 at = address - walk->window_start;

	if (at & 7 || at >= walk->window_bytes) {
		if (walk_move_window(walk, address))
			return -14;
		at = 0;
	}
	*to = walk->window[at / 8 & (WINDOW_WORDS - 1)];
	return 0;
}

/* In walk->own_image, until the leaf is known. */
#define OWN_IMAGE_IS_LEAF (~0u)

#define PENDING_RETURN_PROBES 64

static __always_inline __u64 trampoline_address(struct task_struct *task)
{
	return BPF_CORE_READ(task, mm, uprobes_state.xol_area, vaddr);
}

__noinline __u64 unwind_recover(__u64 slot)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct return_instance *instance;
	__u64 address = 0;
	int i;

	instance = BPF_CORE_READ(task, utask, return_instances);
	for (i = 0; i < PENDING_RETURN_PROBES && instance; i++) {
		if (BPF_CORE_READ(instance, stack) == slot)
			address = BPF_CORE_READ(instance, orig_ret_vaddr);
		instance = BPF_CORE_READ(instance, next);
	}
	return address;
}

/* The id of the file behind a mapping, given at first sight; 0 if the table is full. */
static __always_inline __u32 image_id(struct image_look *look, __u32 tgid, struct file *file,
				      const struct vma *vma)
{
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	struct image_sight *sight = &look->sight, *known;
	struct image_key *key = &look->key;
	const unsigned char *name;
	__u32 id;

	key->inode = BPF_CORE_READ(inode, i_ino);
	key->size = BPF_CORE_READ(inode, i_size);
	key->device = BPF_CORE_READ(inode, i_sb, s_dev);
	key->generation = BPF_CORE_READ(inode, i_generation);
	known = bpf_map_lookup_elem(&images, key);
	if (known)
		return known->id;

	/* A race between two threads wastes an id, no more. */
	id = __sync_fetch_and_add(&image_count, 1) + 1;
	sight->id = id;
	sight->tgid = tgid;
	sight->start = vma->start;
	sight->end = vma->end;
	sight->offset = vma->offset;
	sight->file_size = key->size;
	name = BPF_CORE_READ(file, f_path.dentry, d_name.name);
	__builtin_memset(sight->name, 0, sizeof(sight->name));
	bpf_probe_read_kernel_str(sight->name, sizeof(sight->name), name);
	if (id < UNWIND_MAX_IMAGES && !bpf_map_update_elem(&images, key, sight, BPF_NOEXIST)) {
		event_send(EVENT_IMAGE_SEEN);
		return id;
	}
	known = bpf_map_lookup_elem(&images, key);
	if (known)
		return known->id;
	loss_add(LOSS_IMAGE_FULL, 0);
	return 0;
}

/*
 * Fills the next place of the cache of a slot's walk with the mapping of address; returns the
 * place, or VMA_CACHE if there is none. Global functions are verified once each, not per use and
 * turn. Takes the slot and not its address: 6.1 accepts no argument of a global function as a map's
 * key or value.
 */
__noinline int walk_find_vma(__u32 slot, __u64 address)
{
	struct walk *walk = bpf_map_lookup_elem(&walks, &slot);
	struct vm_area_struct *area;
	__u64 start, end;
	struct file *file;
	struct vma *vma;
	__u32 place;

	if (!walk)
		return VMA_CACHE;
	area = vma_find((struct mm_struct *)walk->mm, address, &walk->pivots, &start, &end);
	if (!area)
		return VMA_CACHE;
	place = walk->vma_next++ & (VMA_CACHE - 1);
	vma = &walk->vmas[place];
	vma->start = start;
	vma->end = end;
	vma->executable = !!(BPF_CORE_READ(area, vm_flags) & VM_EXEC);
	vma->offset = BPF_CORE_READ(area, vm_pgoff) << 12;
	file = BPF_CORE_READ(area, vm_file);
	vma->image = file && vma->executable ? image_id(&walk->look, walk->tgid, file, vma) : 0;
	return place;
}

/* Turns the state's pc into a frame word; 0 if no executable mapping holds it. */
static __always_inline __u64 walk_frame(struct walk *walk, __u64 pc)
{
	struct vma *vma;
	__u32 i;

	for (i = 0; i < VMA_CACHE; i++) {
		if (pc >= walk->vmas[i].start && pc < walk->vmas[i].end)
			break;
	}
	if (i == VMA_CACHE)
		i = walk_find_vma(walk->slot, pc);
	if (i >= VMA_CACHE)
		return 0;
	vma = &walk->vmas[i];
	if (!vma->executable)
		return 0;
	if (vma->image)
		return (__u64)vma->image << FRAME_OFFSET_BITS |
		       ((pc - vma->start + vma->offset) & FRAME_OFFSET_MASK);
	walk->serial = walk->process_serial;
	return FRAME_RAW | pc;
}

/* Tells the loader, once, what an image lacks. */
static __always_inline void walk_ask(__u32 *flags, __u32 want)
{
	if (!(__sync_fetch_and_or(flags, want) & want))
		event_send(EVENT_IMAGE_SEEN);
}

/* Finds the rule for a place in an image. Returns STOP_COUNT if walk->rule has it. */
__noinline int walk_rows(struct walk *walk, __u32 image, __u64 offset)
{
	__u32 *flags = bpf_map_lookup_elem(&unwind_images, &image);
	const struct unwind_rule *rule;

	if (!walk || !flags)
		return STOP_NOT_BUILT;
	if (!(*flags & UNWIND_BUILT)) {
		walk_ask(flags, UNWIND_WANTED);
		return STOP_NOT_BUILT;
	}
	rule = find_rule(image, offset);
	if (!rule)
		return STOP_NO_ROWS;
	/* The rows between call sites are built once they are wanted. */
	if (walk->state.interrupted && !(*flags & UNWIND_ALL_ROWS)) {
		walk_ask(flags, UNWIND_WANT_ALL);
		return STOP_INTERRUPTED;
	}
	if (!walk->state.interrupted)
		rule_cache_write((__u64)image << FRAME_OFFSET_BITS | offset, rule);
	walk->rule = *rule;
	return STOP_COUNT;
}

#define ENTRY_FRAME 64

/*
 * A program begins with argc where a return address would be: nobody has called it. Not every entry
 * point has a rule that says so, and Go's takes some room without one.
 */
static __always_inline __u32 walk_stop_without_mapping(const struct walk *walk)
{
	struct mm_struct *mm = (struct mm_struct *)walk->mm;
	__u64 entry = BPF_CORE_READ(mm, start_stack);

	return walk->state.sp >= entry - ENTRY_FRAME && walk->state.sp <= entry + 16
		       ? STOP_END
		       : STOP_NO_MAPPING;
}

__noinline int walk_guess(struct walk *walk)
{
	return walk ? unwind_frame_pointer(&walk->state) : STOP_NO_ROWS;
}

/* One frame: stores it and steps to its caller. A global function is verified once, not per turn.
 */
__noinline int walk_step(struct walk *walk)
{
	struct unwind_rule rule;
	__u32 count, stop;
	__u64 frame;

	if (!walk)
		return 1;
	frame = walk_frame(walk, walk->state.pc);
	count = walk->count;
	if (count >= STACK_MAX_FRAMES) {
		walk->stop = STOP_DEPTH;
		return 1;
	}
	if (!frame) {
		walk->stop = walk_stop_without_mapping(walk);
		if (count)
			return 1;
		/* Never an empty stack. */
		frame = FRAME_RAW | walk->state.pc;
		walk->serial = walk->process_serial;
	}
	/* A leaf that is left out gives its place to the next frame. */
	if (walk->own_image == OWN_IMAGE_IS_LEAF)
		walk->own_image = frame >> FRAME_OFFSET_BITS & FRAME_IMAGE_MAX;
	else if (walk->own_image && count == 1 &&
		 walk->frames[0] >> FRAME_OFFSET_BITS == walk->own_image)
		count = 0;
	walk->frames[count] = frame;
	walk->count = count + 1;
	if (walk->stop != STOP_COUNT)
		return 1;
	stop = STOP_NO_ROWS;
	if (!walk->state.interrupted && rule_cache_read(frame, &rule)) {
		stop = STOP_COUNT;
	} else if (!(frame & FRAME_RAW)) {
		stop = walk_rows(walk, frame >> FRAME_OFFSET_BITS, frame & FRAME_OFFSET_MASK);
		rule = walk->rule;
	}
	if (stop == STOP_COUNT)
		stop = unwind_rule_step(&walk->state, &rule);
	if (stop == STOP_NO_ROWS)
		stop = walk_guess(walk);
	if (stop == STOP_NO_MAPPING)
		stop = walk_stop_without_mapping(walk);
	walk->stop = stop;
	return stop != STOP_COUNT;
}

static __always_inline __u64 hash_step(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 29;
}

/*
 * Interns the next chunk, from the root. Returns 0 to go on, 1 when done or failed (parent is 0).
 * Takes the slot for the same reason as walk_find_vma().
 */
__noinline int walk_intern(__u32 slot)
{
	struct walk *walk = bpf_map_lookup_elem(&walks, &slot);
	struct stack_chunk *chunk;
	__u32 count, first, i;
	__u64 id;

	if (!walk || walk->interned >= walk->count)
		return 1;
	chunk = &walk->chunk;
	count = walk->count - walk->interned;
	first = 0;
	if (count > STACK_CHUNK_FRAMES) {
		first = count - STACK_CHUNK_FRAMES;
		count = STACK_CHUNK_FRAMES;
	}
	chunk->parent = walk->parent;
	chunk->count = count;
	chunk->stop = walk->parent ? 0 : walk->stop;
	chunk->flags = walk->parent || !walk->state.guessed ? 0 : STACK_GUESSED;
	chunk->serial = walk->serial;
	id = hash_step(walk->parent,
		       chunk->stop | (__u64)chunk->flags << 8 | (__u64)chunk->serial << 32);
	for (i = 0; i < STACK_CHUNK_FRAMES; i++) {
		chunk->frames[i] = 0;
		if (i < count)
			chunk->frames[i] = walk->frames[(first + i) & (STACK_MAX_FRAMES - 1)];
		id = hash_step(id, chunk->frames[i]);
	}
	id = hash_step(id, count);
	if (id == STACK_ID_LOST)
		id = 1;
	if (!bpf_map_lookup_elem(&chunks, &id) &&
	    bpf_map_update_elem(&chunks, &id, chunk, BPF_NOEXIST) &&
	    !bpf_map_lookup_elem(&chunks, &id)) {
		walk->parent = STACK_ID_LOST;
		return 1;
	}
	walk->parent = id;
	walk->interned += count;
	return walk->interned >= walk->count;
}

/*
 * Mappings found by the last walk on this CPU, good for the same process while its mappings stay as
 * they are: mm_lock_seq, which kernels have from 6.4, counts their changes. Written and read with
 * the same care as rules; but another walk may write other mappings under the same key, so that a
 * reader looks at the number of writes, too.
 */
struct vma_cache {
	__u64 key; /* process serial and count of changes; 0: empty */
	__u64 writes;
	struct vma vmas[VMA_CACHE];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct vma_cache);
} vma_caches SEC(".maps");

/* 0 if the kernel does not tell, or if they are being changed. */
static __always_inline __u64 vma_cache_key(struct mm_struct *mm, __u32 serial)
{
	struct mm_struct___before_6_13 *older = (void *)mm;
	__u32 changes;

	if (bpf_core_field_exists(mm->mm_lock_seq.sequence)) {
		changes = BPF_CORE_READ(mm, mm_lock_seq.sequence);
		/* Odd while a writer is at it. */
		return changes & 1 ? 0 : (__u64)serial << 32 | changes;
	}
	if (bpf_core_field_exists(older->mm_lock_seq)) {
		changes = BPF_CORE_READ(older, mm_lock_seq);
		return (__u64)serial << 32 | changes;
	}
	return 0;
}

static __always_inline void vma_cache_read(struct walk *walk, __u64 vma_key)
{
	__u32 key = 0, i;
	volatile struct vma_cache *cache = bpf_map_lookup_elem(&vma_caches, &key);
	__u64 writes;

	if (vma_key && cache && cache->key == vma_key) {
		writes = cache->writes;
		barrier();
		for (i = 0; i < VMA_CACHE; i++)
			walk->vmas[i] = *(struct vma *)&cache->vmas[i];
		barrier();
		if (cache->key == vma_key && cache->writes == writes)
			return;
	}
	for (i = 0; i < VMA_CACHE; i++)
		walk->vmas[i].start = walk->vmas[i].end = 0;
}

static __always_inline void vma_cache_write(const struct walk *walk, __u64 vma_key)
{
	__u32 key = 0, i;
	struct vma_cache *cache = bpf_map_lookup_elem(&vma_caches, &key);
	__u64 before;

	if (!vma_key || !cache)
		return;
	before = *(volatile __u64 *)&cache->key;
	if (before == FRAME_BUSY ||
	    __sync_val_compare_and_swap(&cache->key, before, FRAME_BUSY) != before)
		return;
	cache->writes++;
	for (i = 0; i < VMA_CACHE; i++)
		cache->vmas[i] = walk->vmas[i];
	__sync_lock_test_and_set(&cache->key, vma_key);
}

static __always_inline struct walk *walk_take(void)
{
	struct walk *walk;
	__u32 slot;

	for (slot = 0; slot < WALK_SLOTS; slot++) {
		__u32 key = slot;

		walk = bpf_map_lookup_elem(&walks, &key);
		if (walk && !__sync_val_compare_and_swap(&walk->busy, 0, 1)) {
			walk->slot = slot;
			return walk;
		}
	}
	return NULL;
}

/*
 * The frame word of an address in the current process; 0 if it is in no executable mapping, or
 * could not be looked up.
 */
__noinline __u64 frame_of(__u64 address, __u32 serial)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct walk *walk = walk_take();
	__u64 frame;

	if (!walk)
		return 0;
	walk->mm = (__u64)BPF_CORE_READ(task, mm);
	walk->tgid = bpf_get_current_pid_tgid() >> 32;
	walk->vma_next = 0;
	vma_cache_read(walk, vma_cache_key((struct mm_struct *)walk->mm, serial));
	frame = walk_frame(walk, address);
	__sync_lock_test_and_set(&walk->busy, 0);
	return frame;
}

/* Beside the serial in an argument: a function has five at most. */
#define STACK_INTERRUPTED (1u << 31)
#define STACK_OWN_IMAGE	  (1u << 30)

/*
 * The id of the stack that starts at a call's or a syscall's return: pc is the return address, sp
 * and bp are the caller's. With STACK_INTERRUPTED it starts at any instruction, pc, that has not
 * been executed. With STACK_OWN_IMAGE it has no frames at its leaf that are in one image with the
 * first. STACK_ID_LOST, counted, if it could not be walked or stored.
 */
__noinline __u64 stack_capture(__u64 pc, __u64 sp, __u64 bp, __u32 serial_flags, __u64 bytes)
{
	__u32 serial = serial_flags & ~(STACK_INTERRUPTED | STACK_OWN_IMAGE);
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct walk *walk = walk_take();
	__u64 vma_key, id;
	int i;

	if (!walk) {
		loss_add(LOSS_SCRATCH_BUSY, bytes);
		return STACK_ID_LOST;
	}
	walk->state.interrupted = serial_flags >> 31;
	walk->state.pc = pc - !walk->state.interrupted;
	walk->state.sp = sp;
	walk->state.bp = bp;
	walk->state.trampoline = trampoline_address(task);
	walk->state.guessed = 0;
	walk->mm = (__u64)BPF_CORE_READ(task, mm);
	walk->stop = STOP_COUNT;
	walk->count = 0;
	walk->own_image = serial_flags & STACK_OWN_IMAGE ? OWN_IMAGE_IS_LEAF : 0;
	walk->serial = 0;
	walk->process_serial = serial;
	walk->tgid = bpf_get_current_pid_tgid() >> 32;
	walk->window_bytes = 0;
	walk->vma_next = 0;
	vma_key = vma_cache_key((struct mm_struct *)walk->mm, serial);
	vma_cache_read(walk, vma_key);
	for (i = 0; i <= STACK_MAX_FRAMES; i++) {
		if (walk_step(walk))
			break;
	}
	if (walk->vma_next)
		vma_cache_write(walk, vma_key);
	walk->parent = 0;
	walk->interned = 0;
	for (i = 0; i < STACK_MAX_FRAMES / STACK_CHUNK_FRAMES; i++) {
		if (walk_intern(walk->slot))
			break;
	}
	id = walk->parent;
	__sync_lock_test_and_set(&walk->busy, 0);
	if (id == STACK_ID_LOST)
		loss_add(LOSS_STACK_FULL, bytes);
	return id;
}

#endif
