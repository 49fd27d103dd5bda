/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a session sets for its process: how it uses memory, how many files it may hold, and that it
 * does not wait long for a CPU.
 */
#ifndef HEAPTAP_UTIL_LIMITS_H
#define HEAPTAP_UTIL_LIMITS_H

/* What a session of one small program holds open at least: BPF objects, links, images. */
#define FILES_NEEDED 96

void limits_set(void);
/*
 * Whether so many may be opened. 0, or -EMFILE and its like. To be asked first: where one is
 * refused that libbpf opens to learn what the kernel can do, it says that the kernel cannot.
 */
int limits_check_files(void);
/* In a child, for the program that it is about to execute. */
void limits_reset(void);
/* For the calling thread: it has time. */
void limits_background(void);

#endif
