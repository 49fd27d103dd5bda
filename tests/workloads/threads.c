/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * 16 threads allocate, 16 others free: `threads [BLOCKS]`, a million by default. Each consumer
 * takes from all producers in turn, every eighth block goes through realloc there, and at the end
 * nothing is live. Addresses are reused all the time across threads.
 */
#include <pthread.h>

#include "truth.h"

#define PAIRS	   16
#define QUEUE_SIZE 256

struct queue {
	pthread_mutex_t lock;
	pthread_cond_t not_empty, not_full;
	unsigned int head, tail;
	struct block blocks[QUEUE_SIZE];
};

static struct queue queues[PAIRS];
static unsigned long blocks_per_thread;

SITE(produce_malloc);
SITE_FN static struct block produce_malloc(size_t size)
{
	return block_new(&produce_malloc_site, opaque(malloc(size)), size);
}

SITE(produce_calloc);
SITE_FN static struct block produce_calloc(size_t size)
{
	return block_new(&produce_calloc_site, opaque(calloc(1, size)), size);
}

SITE(consume_realloc);
SITE_FN static struct block consume_realloc(struct block old, size_t size)
{
	void *ptr = opaque(realloc(opaque(old.ptr), size));

	require(ptr);
	return block_moved(&old, &consume_realloc_site, ptr, size);
}

static void queue_push(struct queue *queue, struct block block)
{
	pthread_mutex_lock(&queue->lock);
	while (queue->tail - queue->head == QUEUE_SIZE)
		pthread_cond_wait(&queue->not_full, &queue->lock);
	queue->blocks[queue->tail++ % QUEUE_SIZE] = block;
	pthread_cond_signal(&queue->not_empty);
	pthread_mutex_unlock(&queue->lock);
}

static struct block queue_pop(struct queue *queue)
{
	struct block block;

	pthread_mutex_lock(&queue->lock);
	while (queue->tail == queue->head)
		pthread_cond_wait(&queue->not_empty, &queue->lock);
	block = queue->blocks[queue->head++ % QUEUE_SIZE];
	pthread_cond_signal(&queue->not_full);
	pthread_mutex_unlock(&queue->lock);
	return block;
}

/* Both sides visit the queues in turns, so each queue gets as many as are taken. */
static void *producer(void *arg)
{
	unsigned long self = (uintptr_t)arg;
	unsigned int random = self * 2654435761u + 1;

	for (unsigned long i = 0; i < blocks_per_thread; i++) {
		size_t size;

		random = random * 1664525 + 1013904223;
		size = 1 + (random >> 16) % 1500;
		queue_push(&queues[(self + i) % PAIRS],
			   i % 4 ? produce_malloc(size) : produce_calloc(size));
	}
	return NULL;
}

static void *consumer(void *arg)
{
	unsigned long self = (uintptr_t)arg;

	for (unsigned long i = 0; i < blocks_per_thread; i++) {
		struct block block = queue_pop(&queues[(self + i) % PAIRS]);

		require(block.ptr);
		if (i % 8 == 0)
			block = consume_realloc(block, block.size * 2);
		block_free(&block);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[2 * PAIRS];

	truth_start(&argc, argv);
	blocks_per_thread = (argc > 1 ? strtoul(argv[1], NULL, 10) : 1000000) / PAIRS;
	for (int i = 0; i < PAIRS; i++) {
		pthread_mutex_init(&queues[i].lock, NULL);
		pthread_cond_init(&queues[i].not_empty, NULL);
		pthread_cond_init(&queues[i].not_full, NULL);
	}
	for (uintptr_t i = 0; i < PAIRS; i++) {
		require(pthread_create(&threads[2 * i], NULL, producer, (void *)i) == 0);
		require(pthread_create(&threads[2 * i + 1], NULL, consumer, (void *)i) == 0);
	}
	for (int i = 0; i < 2 * PAIRS; i++)
		require(pthread_join(threads[i], NULL) == 0);
	return truth_finish();
}
