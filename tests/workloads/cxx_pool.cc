// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// cxx.cc in a program whose operators are the allocator: its blocks come from an array and have
// nothing to do with malloc.
#include <cstddef>
#include <new>

namespace
{

using std::size_t;

constexpr size_t POOL_SIZE = size_t{16} << 20;

alignas(4096) char pool[POOL_SIZE];
size_t used;
size_t last; // where the latest block starts

__attribute__((noinline)) void *pool_take(size_t size, size_t align)
{
	size_t start = (used + align - 1) / align * align;

	// No two blocks at one place.
	size += size == 0;
	if (size > POOL_SIZE || start > POOL_SIZE - size)
		return nullptr;
	last = start;
	used = start + size;
	return &pool[start];
}

// Only the latest block's place is used again.
__attribute__((noinline)) void pool_give(void *ptr)
{
	if (ptr == &pool[last])
		used = last;
}

} // namespace

void *operator new(size_t size)
{
	void *ptr = pool_take(size, 16);

	if (!ptr)
		throw std::bad_alloc();
	return ptr;
}

void *operator new[](size_t size)
{
	return operator new(size);
}

void *operator new(size_t size, const std::nothrow_t &) noexcept
{
	return pool_take(size, 16);
}

void *operator new[](size_t size, const std::nothrow_t &) noexcept
{
	return operator new(size, std::nothrow);
}

void *operator new(size_t size, std::align_val_t align)
{
	void *ptr = pool_take(size, static_cast<size_t>(align));

	if (!ptr)
		throw std::bad_alloc();
	return ptr;
}

void *operator new[](size_t size, std::align_val_t align)
{
	return operator new(size, align);
}

void *operator new(size_t size, std::align_val_t align, const std::nothrow_t &) noexcept
{
	return pool_take(size, static_cast<size_t>(align));
}

void *operator new[](size_t size, std::align_val_t align, const std::nothrow_t &) noexcept
{
	return operator new(size, align, std::nothrow);
}

void operator delete(void *ptr) noexcept
{
	pool_give(ptr);
}

void operator delete[](void *ptr) noexcept
{
	operator delete(ptr);
}

void operator delete(void *ptr, size_t) noexcept
{
	operator delete(ptr);
}

void operator delete[](void *ptr, size_t) noexcept
{
	pool_give(ptr);
}

void operator delete(void *ptr, const std::nothrow_t &) noexcept
{
	operator delete(ptr);
}

void operator delete[](void *ptr, const std::nothrow_t &) noexcept
{
	operator delete[](ptr);
}

void operator delete(void *ptr, std::align_val_t) noexcept
{
	pool_give(ptr);
}

void operator delete[](void *ptr, std::align_val_t align) noexcept
{
	operator delete(ptr, align);
}

void operator delete(void *ptr, size_t, std::align_val_t align) noexcept
{
	operator delete(ptr, align);
}

void operator delete[](void *ptr, size_t, std::align_val_t) noexcept
{
	pool_give(ptr);
}

void operator delete(void *ptr, std::align_val_t align, const std::nothrow_t &) noexcept
{
	operator delete(ptr, align);
}

void operator delete[](void *ptr, std::align_val_t align, const std::nothrow_t &) noexcept
{
	operator delete[](ptr, align);
}

#include "cxx.cc"
