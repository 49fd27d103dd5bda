/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "probe/sampler_attach.h"

#include <errno.h>

static bool is_free(const struct sampler_probe *probe)
{
	return probe->point.kind == PROBE_TOLD_FREE || probe->point.kind == PROBE_SPAN_FREE ||
	       probe->point.kind == PROBE_OBJECT_FREED || probe->point.kind == PROBE_EXTENT_LEAVES;
}

static bool is_marked_alloc(const struct sampler_probe *probe)
{
	return probe->point.kind == PROBE_TOLD_ALLOC || probe->point.kind == PROBE_OBJECT_SAMPLED ||
	       probe->point.kind == PROBE_EXTENT_SAMPLED;
}

static bool is_returning(const struct sampler_probe *probe)
{
	return probe->point.kind == PROBE_COUNTDOWN || probe->point.kind == PROBE_SAMPLED;
}

/* Attaches one program to all places for which it is meant. */
static int attach_program(struct attach *attach, struct attach_places places,
			  const struct sampler_probes *probes, uint32_t first,
			  bool (*wanted)(const struct sampler_probe *probe))
{
	_cleanup_free_ uint64_t *offsets = calloc(probes->count + 1, sizeof(*offsets));
	_cleanup_free_ uint64_t *cookies = calloc(probes->count + 1, sizeof(*cookies));
	_cleanup_free_ uint64_t *semaphores = calloc(probes->count + 1, sizeof(*semaphores));
	bool any_semaphore = false;

	if (!offsets || !cookies || !semaphores)
		return -ENOMEM;
	for (size_t i = 0; i < probes->count; i++) {
		const struct sampler_probe *probe = &probes->entries[i];
		const struct probe_spec spec = {
			.offset = first + (uint32_t)i,
		};

		if (!wanted(probe))
			continue;
		offsets[places.count] = probe->offset;
		semaphores[places.count] = probe->semaphore;
		any_semaphore |= probe->semaphore != 0;
		cookies[places.count++] = probe_cookie(&spec);
	}
	places.offsets = offsets;
	places.cookies = cookies;
	places.semaphores = any_semaphore ? semaphores : NULL;
	return attach_places(attach, &places);
}

int sampler_attach(struct attach *attach, const struct attach_programs *programs, bool session,
		   int fd, const struct sampler_probes *probes, uint32_t first)
{
	struct attach_places mark = {.fd = fd, .program = programs->sampled_mark};
	struct attach_places both = {
		.fd = fd, .program = programs->sampled_session, .session = true};
	struct attach_places enter = {.fd = fd, .program = programs->sampled_enter};
	struct attach_places leave = {
		.fd = fd, .program = programs->sampled_return, .at_return = true};
	int err;

	err = attach_program(attach, mark, probes, first, is_free);
	if (!err)
		err = attach_program(attach, mark, probes, first, is_marked_alloc);
	if (session)
		return err ? err : attach_program(attach, both, probes, first, is_returning);
	/* Returns before entries: an entry that is seen has its return seen too. */
	if (!err)
		err = attach_program(attach, leave, probes, first, is_returning);
	return err ? err : attach_program(attach, enter, probes, first, is_returning);
}
