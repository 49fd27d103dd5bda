// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// cxx.cc in a program with operators of its own, the least that one replaces: the others are the
// library's, which call these, except for the aligned ones.
#include <cstdlib>
#include <new>

void *operator new(size_t size)
{
	void *ptr = malloc(size);

	if (!ptr)
		throw std::bad_alloc();
	return ptr;
}

void operator delete(void *ptr) noexcept
{
	free(ptr);
}

void operator delete(void *ptr, size_t) noexcept
{
	operator delete(ptr);
}

#include "cxx.cc"
