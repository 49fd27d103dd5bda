/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * `mappings [--wait] CALLS THREADS SEED`: random calls that change mappings, from several threads
 * that may be given each other's addresses. Says what anonymous address space it has at the
 * beginning and at the end, as /proc/self/smaps has it, in bytes. No thread calls malloc.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE	    4096ul
#define MAX_PAGES   64
#define MAX_SLOTS   256
#define MAX_THREADS 64
/* A reservation of its own for MAP_FIXED. */
#define FIXED_PAGES 512

#define SITE_FN __attribute__((noipa))

struct slot {
	char *start;
	size_t pages;
	bool writable;
};

struct thread {
	pthread_t id;
	unsigned int seed;
	unsigned long calls;
	struct slot slots[MAX_SLOTS];
	size_t count;
	char *fixed;
};

static struct thread threads[MAX_THREADS];
static pthread_mutex_t heap_lock = PTHREAD_MUTEX_INITIALIZER;
/*
 * Held by whoever leaves a hole that nobody else is to get: an mmap() of another thread that got
 * it, and has not returned, would lose it to a MAP_FIXED of which nobody could say that it came
 * second.
 */
static pthread_rwlock_t hole_lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t all_created;
static char text[1 << 20];

/* Of smaps' Size lines; the stack and what the kernel itself maps is left out. */
static unsigned long anonymous_bytes(void)
{
	int fd = open("/proc/self/smaps", O_RDONLY);
	unsigned long sum = 0;
	size_t size = 0;
	ssize_t got;
	bool counts = false;

	while ((got = read(fd, text + size, sizeof(text) - 1 - size)) > 0) {
		char *line = text, *end;

		size += got;
		text[size] = 0;
		for (; (end = strchr(line, '\n')); line = end + 1) {
			unsigned long start, limit, offset, inode, kb;
			char path[256] = "";

			*end = 0;
			if (sscanf(line, "%lx-%lx %*s %lx %*s %lu %255[^\n]", &start, &limit,
				   &offset, &inode, path) >= 4)
				counts = (!inode && !*path) || !strcmp(path, "[heap]") ||
					 !strncmp(path, "/dev/zero", 9);
			else if (counts && sscanf(line, "Size: %lu kB", &kb) == 1)
				sum += kb << 10;
		}
		size -= line - text;
		memmove(text, line, size);
	}
	close(fd);
	return sum;
}

static size_t pick(struct thread *self, size_t limit)
{
	return (size_t)rand_r(&self->seed) % limit;
}

SITE_FN static void *map_anonymous(void *where, size_t size, int flags)
{
	return mmap(where, size, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);
}

SITE_FN static void *map_file(void *where, size_t size, int flags)
{
	static int fd = -1;

	if (fd < 0)
		fd = open("/proc/self/exe", O_RDONLY);
	return mmap(where, size, PROT_READ, MAP_PRIVATE | flags, fd, 0);
}

static void add_slot(struct thread *self, void *start, size_t pages, bool writable)
{
	if (start != MAP_FAILED)
		self->slots[self->count++] = (struct slot){start, pages, writable};
}

static void drop_slot(struct thread *self, struct slot *slot)
{
	*slot = self->slots[--self->count];
}

static void map(struct thread *self)
{
	size_t pages = 1 + pick(self, MAX_PAGES);

	if (self->count == MAX_SLOTS)
		return;
	pthread_rwlock_rdlock(&hole_lock);
	switch (pick(self, 4)) {
	case 0:
		add_slot(self, map_file(NULL, pages * PAGE, 0), pages, false);
		break;
	case 1:
		add_slot(self, map_anonymous(NULL, pages * PAGE, MAP_SHARED), pages, true);
		break;
	default:
		add_slot(self, map_anonymous(NULL, pages * PAGE, MAP_PRIVATE), pages, true);
	}
	pthread_rwlock_unlock(&hole_lock);
}

/* Over a part of the reservation: what is there is replaced. */
static void map_fixed(struct thread *self)
{
	size_t at = pick(self, FIXED_PAGES), pages = 1 + pick(self, FIXED_PAGES - at);
	char *where = self->fixed + at * PAGE;

	switch (pick(self, 3)) {
	case 0:
		map_file(where, pages * PAGE, MAP_FIXED);
		break;
	case 1:
		pthread_rwlock_wrlock(&hole_lock);
		munmap(where, pages * PAGE);
		map_file(where, pages * PAGE, MAP_FIXED);
		pthread_rwlock_unlock(&hole_lock);
		break;
	default:
		map_anonymous(where, pages * PAGE, MAP_PRIVATE | MAP_FIXED);
	}
}

static void unmap(struct thread *self, struct slot *slot)
{
	size_t pages = 1 + pick(self, slot->pages);

	switch (pick(self, 3)) {
	case 0: /* the end */
		slot->pages -= pages;
		munmap(slot->start + slot->pages * PAGE, pages * PAGE);
		break;
	case 1: /* the beginning */
		munmap(slot->start, pages * PAGE);
		slot->start += pages * PAGE;
		slot->pages -= pages;
		break;
	default: /* fails */
		munmap(slot->start + 1, PAGE);
	}
	if (!slot->pages)
		drop_slot(self, slot);
}

SITE_FN static void *remap(void *start, size_t old_size, size_t size, int flags)
{
	return mremap(start, old_size, size, flags);
}

static void resize(struct thread *self, struct slot *slot)
{
	size_t pages = 1 + pick(self, MAX_PAGES);
	/* Without a leave to move it often fails. */
	int flags = pick(self, 4) ? MREMAP_MAYMOVE : 0;
	char *moved;

	pthread_rwlock_rdlock(&hole_lock);
	moved = remap(slot->start, slot->pages * PAGE, pages * PAGE, flags);
	pthread_rwlock_unlock(&hole_lock);
	if (moved == MAP_FAILED)
		return;
	slot->start = moved;
	slot->pages = pages;
}

static void advise(struct thread *self, struct slot *slot)
{
	size_t at = pick(self, slot->pages), pages = 1 + pick(self, slot->pages - at);

	if (slot->writable)
		madvise(slot->start + at * PAGE, pages * PAGE,
			pick(self, 2) ? MADV_DONTNEED : MADV_POPULATE_WRITE);
}

/* The program break is everybody's; the syscall itself, as glibc has its own idea of it. */
static void move_break(struct thread *self)
{
	unsigned long now;

	pthread_mutex_lock(&heap_lock);
	now = syscall(SYS_brk, 0);
	if (pick(self, 2))
		syscall(SYS_brk, now + pick(self, 100000));
	else if (now > (unsigned long)self->calls)
		syscall(SYS_brk, now - pick(self, 30000));
	pthread_mutex_unlock(&heap_lock);
}

static void step(struct thread *self)
{
	struct slot *slot = self->count ? &self->slots[pick(self, self->count)] : NULL;

	switch (slot ? pick(self, 12) : 0) {
	case 0:
	case 1:
	case 2:
	case 3:
		map(self);
		break;
	case 4:
	case 5:
		unmap(self, slot);
		break;
	case 6:
		munmap(slot->start, slot->pages * PAGE);
		drop_slot(self, slot);
		break;
	case 7:
	case 8:
		resize(self, slot);
		break;
	case 9:
		advise(self, slot);
		break;
	case 10:
		map_fixed(self);
		break;
	default:
		move_break(self);
	}
}

static void *run(void *arg)
{
	struct thread *self = arg;

	pthread_barrier_wait(&all_created);
	for (unsigned long i = 0; i < self->calls; i++)
		step(self);
	return NULL;
}

static void wait_line(void)
{
	char byte;

	while (read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n')
		;
}

static void say(const char *what, unsigned long number)
{
	char line[64];
	int length = snprintf(line, sizeof(line), "%s=%lu\n", what, number);

	if (write(STDOUT_FILENO, line, length) != length)
		_exit(1);
}

int main(int argc, char **argv)
{
	bool wait = argc > 1 && !strcmp(argv[1], "--wait");
	unsigned long calls, count;
	unsigned int seed;

	argc -= wait;
	argv += wait;
	if (argc < 4)
		return 2;
	calls = strtoul(argv[1], NULL, 10);
	count = strtoul(argv[2], NULL, 10);
	seed = strtoul(argv[3], NULL, 10);
	if (!count || count > MAX_THREADS)
		return 2;
	pthread_barrier_init(&all_created, NULL, count);
	/* pthread_create() allocates: glibc must not move the break once others do. */
	free(malloc(1));
	/* The heap's end is not to go below this. */
	syscall(SYS_brk, syscall(SYS_brk, 0) + (64ul << 20));
	if (wait) {
		say("ready", getpid());
		wait_line();
	}
	say("before", anonymous_bytes());
	for (unsigned long i = 0; i < count; i++) {
		threads[i].seed = seed * 1000 + i;
		threads[i].calls = calls / count;
		threads[i].fixed = map_file(NULL, FIXED_PAGES * PAGE, 0);
	}
	for (unsigned long i = 0; i < count; i++)
		if (pthread_create(&threads[i].id, NULL, run, &threads[i]))
			return 1;
	for (unsigned long i = 0; i < count; i++)
		pthread_join(threads[i].id, NULL);
	say("after", anonymous_bytes());
	if (wait)
		wait_line();
	_exit(0);
}
