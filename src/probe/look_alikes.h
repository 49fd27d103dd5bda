/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Code of a library that could be taken for other code of it. */
#ifndef HEAPTAP_PROBE_LOOK_ALIKES_H
#define HEAPTAP_PROBE_LOOK_ALIKES_H

#include "probe/match.h"

#define LOOK_ALIKES_MAX 32

struct look_alikes {
	/* The same code, the piece itself among them, in the library's order. */
	struct match_piece twins[LOOK_ALIKES_MAX];
	size_t twin_count;
	/* The same bytes, which refer to other things. */
	struct match_piece alikes[LOOK_ALIKES_MAX];
	size_t alike_count;
	/* There are more, which are not in the lists. */
	bool more_twins;
	bool more_alikes;
};

/* A whole section is compared with sections, a part of one with functions. */
void look_alikes_find(const struct archive *archive, const struct match_piece *piece,
		      struct look_alikes *ret);

/*
 * Which of as many places, ascending, is the piece's: the one that it has if all twins are in their
 * order, and not further from one another than in their object; closely: just as far. false if
 * they are not. Less far they are if the linker has dropped what was between them.
 */
bool look_alikes_order(const struct archive *archive, const struct look_alikes *look_alikes,
		       const struct match_piece *piece, const uint64_t *bases, size_t count,
		       bool closely, uint64_t *ret);

/* Whether a function at the start of the piece is for users of the library. */
bool look_alikes_is_public(const struct archive *archive, const struct match_piece *piece);

#endif
