/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Function names for people: C++ without parameters, template arguments and return types. */
#ifndef HEAPTAP_OUTPUT_SHORTEN_H
#define HEAPTAP_OUTPUT_SHORTEN_H

/*
 * Writes the short form of a demangled name to out, which has room for strlen(name) + 1 bytes.
 * system_name tells the language: only C++ names (_Z...) are shortened, others are copied.
 *
 *   void ns::Map<int, char>::insert(int const&, char) const   ->   ns::Map::insert
 */
void shorten_name(const char *name, const char *system_name, char *out);

#endif
