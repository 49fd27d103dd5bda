/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Readable names. */
#ifndef HEAPTAP_SYMBOLIZE_DEMANGLE_H
#define HEAPTAP_SYMBOLIZE_DEMANGLE_H

/*
 * The demangled form of a C++, Rust or D name, or a copy of the name where it is none. The caller
 * frees it. NULL if memory ran out.
 */
char *demangle(const char *name);

#endif
