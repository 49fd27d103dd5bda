/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How much a foreign file may still cost. One unit is about 10 to 50 ns: a debugging entry, 16
 * bytes skipped, a row or an operation of a line program, a range.
 */
#ifndef HEAPTAP_SYMBOLIZE_WORK_H
#define HEAPTAP_SYMBOLIZE_WORK_H

#include <stdbool.h>
#include <stdint.h>

struct work {
	uint64_t left;
};

/* False once it is used up, from then on. */
static inline bool work_take(struct work *work, uint64_t amount)
{
	if (amount > work->left) {
		work->left = 0;
		return false;
	}
	work->left -= amount;
	return true;
}

#endif
