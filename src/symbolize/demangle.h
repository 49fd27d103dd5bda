/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Readable names. */
#ifndef HEAPTAP_SYMBOLIZE_DEMANGLE_H
#define HEAPTAP_SYMBOLIZE_DEMANGLE_H

/*
 * The demangled form of a C++, Rust or D name, or a copy of the name where it is none. The caller
 * frees it. NULL if memory ran out.
 */
char *demangle(const char *name);

/*
 * What people call the function that a symbol names: demangled, and the parts and copies that a
 * compiler makes of a function (foo.cold, foo.part.0, foo.constprop.0) by the function's own name.
 * "foo@plt" keeps its "@plt". The caller frees it. NULL if memory ran out.
 */
char *demangle_function(const char *name);

#endif
