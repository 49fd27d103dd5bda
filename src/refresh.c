/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "refresh.h"

#include <errno.h>
#include <stdlib.h>

/* By index of the input's processes. */
static uint8_t *rank_all(const struct snapshot_input *input)
{
	uint8_t *ranks = calloc(input->process_count + 1, sizeof(*ranks));
	const struct heap_site *site = heap_sites(input->heap);

	if (!ranks)
		return NULL;
	for (size_t i = 0; i < input->process_count; i++)
		ranks[i] = input->processes[i].left ? REFRESH_RANKS : REFRESH_SILENT;
	for (; site; site = site->hh.next) {
		const struct snapshot_process *process;

		if (!site->stack->serial)
			continue;
		process = snapshot_find_process(input, site->key.serial);
		if (process)
			ranks[process - input->processes] =
				process->left ? REFRESH_LEFT : REFRESH_RUNNING;
	}
	return ranks;
}

static bool has_pid(const pid_t *pids, size_t count, pid_t pid)
{
	for (size_t i = 0; i < count; i++)
		if (pids[i] == pid)
			return true;
	return false;
}

/* The index of the first process behind a serial. */
static size_t first_behind(const struct snapshot_input *input, uint32_t serial)
{
	size_t first = 0;

	while (first < input->process_count && input->processes[first].serial <= serial)
		first++;
	return first;
}

int refresh_choose(struct refresh *refresh, const struct snapshot_input *input,
		   pid_t pids[REFRESH_MAX])
{
	_cleanup_free_ uint8_t *ranks = rank_all(input);
	size_t count = 0;

	if (!ranks)
		return -ENOMEM;
	for (int rank = 0; rank < REFRESH_RANKS; rank++) {
		bool turns = rank < REFRESH_SILENT;
		size_t first = turns ? first_behind(input, refresh->last[rank]) : 0;

		for (size_t n = 0; n < input->process_count && count < REFRESH_MAX; n++) {
			size_t at = (first + n) % input->process_count;
			const struct snapshot_process *process = &input->processes[at];

			if (ranks[at] != rank || !process->pid)
				continue;
			if (turns)
				refresh->last[rank] = process->serial;
			/* It has executed another program. */
			if (!has_pid(pids, count, process->pid))
				pids[count++] = process->pid;
		}
	}
	return (int)count;
}
