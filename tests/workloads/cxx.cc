// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Every form of operator new and delete, called by name and by expressions: ten times each from a
// function of its own, half of the blocks deleted again by the form that belongs to it. Sizes are
// those that the operator gets: an array whose elements have a destructor asks for its cookie too.
//
// Aligned sizes are multiples of the alignment, as the compiler's are: libstdc++ rounds others up.
// What fails counts nothing, but a function of the failing ones is shown as the owner of what
// throwing allocated: these exceptions are told in lines of their own, by number.
#include <exception>
#include <new>

#include "truth.h"

#define TIMES 10

// The requests that no allocator grants.
#define TOO_BIG opaque_size(size_t{1} << 62)

namespace
{

struct Plain {
	char bytes[40];
};

struct Destroyed {
	~Destroyed()
	{
		opaque(this);
	}
	char bytes[24];
};

struct alignas(64) Aligned {
	char bytes[192];
};

struct alignas(64) AlignedDestroyed {
	~AlignedDestroyed()
	{
		opaque(this);
	}
	char bytes[128];
};

struct alignas(4096) Page {
	char bytes[4096];
};

struct alignas(4096) PageDestroyed {
	~PageDestroyed()
	{
		opaque(this);
	}
	char bytes[4096];
};

struct Base {
	virtual ~Base() = default;
	char bytes[16];
};

struct Derived final : Base {
	char more[100];
};

// The Itanium ABI's: a word, on top of which the elements stay aligned.
template <typename T> constexpr size_t cookie()
{
	return alignof(T) > sizeof(size_t) ? alignof(T) : sizeof(size_t);
}

struct Refusal {
	const char *name;
	void (*refuse)();
};

struct Form {
	struct block (*allocate)(size_t n);
	void (*release)(void *ptr, size_t size);
};

unsigned long exceptions;

} // namespace

extern "C" {

// What a class of its own operators calls.
SITE(class_malloc);
SITE_FN static void *class_malloc(size_t size)
{
	void *ptr = opaque(malloc(size));

	require(block_new(&class_malloc_site, ptr, size).ptr);
	return ptr;
}
}

struct Own {
	static void *operator new(size_t size)
	{
		return class_malloc(size);
	}
	static void *operator new[](size_t size)
	{
		return class_malloc(size);
	}
	static void operator delete(void *ptr, size_t size)
	{
		site_remove(&class_malloc_site, size);
		free(ptr);
	}
	static void operator delete[](void *ptr, size_t size)
	{
		site_remove(&class_malloc_site, size);
		free(ptr);
	}
	~Own()
	{
		opaque(this);
	}
	char bytes[56];
};

// FORM: a function that allocates `size` bytes for n from 1 to TIMES, and how they are deleted.
#define FORM(fn, bytes, allocation, deletion)                                                      \
	SITE(fn);                                                                                  \
	SITE_FN static struct block fn(size_t n)                                                   \
	{                                                                                          \
		size_t size = bytes;                                                               \
		void *ptr = opaque(allocation);                                                    \
                                                                                                   \
		require(ptr);                                                                      \
		return block_new(&fn##_site, ptr, size);                                           \
	}                                                                                          \
	SITE_FN static void release_##fn(void *ptr, size_t size)                                   \
	{                                                                                          \
		(void)size;                                                                        \
		deletion;                                                                          \
	}

// REFUSED: allocations that fail, by an exception or by NULL.
#define REFUSED(fn, allocation)                                                                    \
	SITE_FN static void fn()                                                                   \
	{                                                                                          \
		void *ptr = nullptr;                                                               \
                                                                                                   \
		try {                                                                              \
			ptr = opaque(allocation);                                                  \
		} catch (const std::bad_alloc &) {                                                 \
			exceptions++;                                                              \
		}                                                                                  \
		require(!ptr);                                                                     \
	}

namespace
{

// libstdc++'s nothrow operators call the others and catch.
bool nothrow_throws()
{
	void *(*operator_new)(size_t, const std::nothrow_t &) = ::operator new;
	void (*terminate)() = std::terminate;

	return same_image(reinterpret_cast<void *>(operator_new),
			  reinterpret_cast<void *>(terminate));
}

// Of 0 bytes libstdc++'s makes 1: malloc(0) may give no block.
size_t least_size()
{
	void *(*operator_new)(size_t) = ::operator new;
	void (*terminate)() = std::terminate;

	return same_image(reinterpret_cast<void *>(operator_new),
			  reinterpret_cast<void *>(terminate));
}

} // namespace

#define AL(n) std::align_val_t(n)

extern "C" {

FORM(op_new, 100 * n, ::operator new(size), ::operator delete(ptr))
FORM(op_new_sized, 101 * n, ::operator new(size), ::operator delete(ptr, size))
FORM(op_new_nothrow, 102 * n, ::operator new(size, std::nothrow),
     ::operator delete(ptr, std::nothrow))
FORM(op_new_nothrow_sized, 103 * n, ::operator new(size, std::nothrow),
     ::operator delete(ptr, size))
FORM(op_new_64, 64 * n, ::operator new(size, AL(64)), ::operator delete(ptr, AL(64)))
FORM(op_new_64_sized, 64 * n, ::operator new(size, AL(64)), ::operator delete(ptr, size, AL(64)))
FORM(op_new_64_nothrow, 64 * n, ::operator new(size, AL(64), std::nothrow),
     ::operator delete(ptr, AL(64), std::nothrow))
FORM(op_new_4096, 4096 * n, ::operator new(size, AL(4096)), ::operator delete(ptr, AL(4096)))
FORM(op_new_4096_sized, 4096 * n, ::operator new(size, AL(4096)),
     ::operator delete(ptr, size, AL(4096)))
FORM(op_new_4096_nothrow, 4096 * n, ::operator new(size, AL(4096), std::nothrow),
     ::operator delete(ptr, AL(4096), std::nothrow))
FORM(op_new_array, 104 * n, ::operator new[](size), ::operator delete[](ptr))
FORM(op_new_array_sized, 105 * n, ::operator new[](size), ::operator delete[](ptr, size))
FORM(op_new_array_nothrow, 106 * n, ::operator new[](size, std::nothrow),
     ::operator delete[](ptr, std::nothrow))
FORM(op_new_array_64, 64 * n, ::operator new[](size, AL(64)), ::operator delete[](ptr, AL(64)))
FORM(op_new_array_64_sized, 64 * n, ::operator new[](size, AL(64)),
     ::operator delete[](ptr, size, AL(64)))
FORM(op_new_array_64_nothrow, 64 * n, ::operator new[](size, AL(64), std::nothrow),
     ::operator delete[](ptr, AL(64), std::nothrow))
FORM(op_new_array_4096, 4096 * n, ::operator new[](size, AL(4096)),
     ::operator delete[](ptr, AL(4096)))
FORM(op_new_array_4096_sized, 4096 * n, ::operator new[](size, AL(4096)),
     ::operator delete[](ptr, size, AL(4096)))
FORM(op_new_zero, (void(n), least_size()), ::operator new(opaque_size(size_t{0})),
     ::operator delete(ptr))

FORM(expr_new, (void(n), sizeof(Plain)), new Plain, delete static_cast<Plain *>(ptr))
FORM(expr_new_nothrow, (void(n), sizeof(Plain)), new (std::nothrow) Plain,
     delete static_cast<Plain *>(ptr))
FORM(expr_new_int, (void(n), sizeof(int)), new int, delete static_cast<int *>(ptr))
FORM(expr_new_destroyed, (void(n), sizeof(Destroyed)), new Destroyed,
     delete static_cast<Destroyed *>(ptr))
FORM(expr_new_virtual, (void(n), sizeof(Derived)), static_cast<Base *>(new Derived),
     delete static_cast<Base *>(ptr))
FORM(expr_new_64, (void(n), sizeof(Aligned)), new Aligned, delete static_cast<Aligned *>(ptr))
FORM(expr_new_64_nothrow, (void(n), sizeof(Aligned)), new (std::nothrow) Aligned,
     delete static_cast<Aligned *>(ptr))
FORM(expr_new_4096, (void(n), sizeof(Page)), new Page, delete static_cast<Page *>(ptr))
FORM(expr_array, n * sizeof(Plain), new Plain[n], delete[] static_cast<Plain *>(ptr))
FORM(expr_array_nothrow, n * sizeof(Plain), new (std::nothrow) Plain[n],
     delete[] static_cast<Plain *>(ptr))
FORM(expr_array_64, n * sizeof(Aligned), new Aligned[n], delete[] static_cast<Aligned *>(ptr))
FORM(expr_array_4096, n * sizeof(Page), new Page[n], delete[] static_cast<Page *>(ptr))
}

// An array with a cookie is not where its block is: the block is what is kept.
#define COOKIE_FORM(fn, type, allocation)                                                          \
	FORM(fn, n * sizeof(type) + cookie<type>(),                                                \
	     reinterpret_cast<char *>(allocation) - cookie<type>(),                                \
	     delete[] reinterpret_cast<type *>(static_cast<char *>(ptr) + cookie<type>()))

extern "C" {

COOKIE_FORM(expr_array_cookie, Destroyed, new Destroyed[n])
COOKIE_FORM(expr_array_cookie_nothrow, Destroyed, new (std::nothrow) Destroyed[n])
COOKIE_FORM(expr_array_cookie_64, AlignedDestroyed, new AlignedDestroyed[n])
COOKIE_FORM(expr_array_cookie_4096, PageDestroyed, new PageDestroyed[n])

REFUSED(throw_new, ::operator new(TOO_BIG))
REFUSED(throw_new_array, ::operator new[](TOO_BIG))
REFUSED(throw_new_64, ::operator new(TOO_BIG, AL(64)))
REFUSED(throw_new_array_64, ::operator new[](TOO_BIG, AL(64)))
REFUSED(throw_expr_array, new char[TOO_BIG])
REFUSED(null_new, ::operator new(TOO_BIG, std::nothrow))
REFUSED(null_new_array, ::operator new[](TOO_BIG, std::nothrow))
REFUSED(null_new_64, ::operator new(TOO_BIG, AL(64), std::nothrow))
REFUSED(null_new_array_64, ::operator new[](TOO_BIG, AL(64), std::nothrow))
REFUSED(null_expr_array, new (std::nothrow) char[TOO_BIG])

SITE_FN static void delete_nothing()
{
	delete static_cast<Plain *>(opaque(nullptr));
	delete static_cast<Destroyed *>(opaque(nullptr));
	delete[] static_cast<Plain *>(opaque(nullptr));
	::operator delete(opaque(nullptr));
	::operator delete[](opaque(nullptr));
	::operator delete(opaque(nullptr), AL(64));
	::operator delete(opaque(nullptr), std::nothrow);
}

// The operators of the class itself, which see the cookie too.
SITE_FN static void class_new(size_t n)
{
	unsigned long before = class_malloc_site.alloc_space;
	auto *one = static_cast<Own *>(opaque(new Own));
	auto *many = static_cast<Own *>(opaque(new Own[n]));

	require(class_malloc_site.alloc_space - before ==
		sizeof(Own) + n * sizeof(Own) + cookie<Own>());
	if (n % 2) {
		delete one;
		delete[] many;
	}
}
}

// In C, mimalloc cannot throw and ends the program.
static const Refusal throwing[] = {
	{"throw_new", throw_new},
	{"throw_new_array", throw_new_array},
	{"throw_new_64", throw_new_64},
	{"throw_new_array_64", throw_new_array_64},
	{"throw_expr_array", throw_expr_array},
};

static const Refusal quiet[] = {
	{"null_new", null_new},
	{"null_new_array", null_new_array},
	{"null_new_64", null_new_64},
	{"null_new_array_64", null_new_array_64},
	{"null_expr_array", null_expr_array},
};

// All that these functions allocate are exceptions, which are gone again at the end.
static void run_refusal(const Refusal &refusal, bool hidden)
{
	exceptions = 0;
	for (int i = 0; i < TIMES; i++)
		refusal.refuse();
	printf("below=%s alloc_objects=%lu inuse_objects=0 inuse_space=0\n", refusal.name,
	       hidden ? TIMES : exceptions);
}

#define ENTRY(fn)                                                                                  \
	{                                                                                          \
		fn, release_##fn                                                                   \
	}

static const Form forms[] = {
	ENTRY(op_new),
	ENTRY(op_new_sized),
	ENTRY(op_new_nothrow),
	ENTRY(op_new_nothrow_sized),
	ENTRY(op_new_64),
	ENTRY(op_new_64_sized),
	ENTRY(op_new_64_nothrow),
	ENTRY(op_new_4096),
	ENTRY(op_new_4096_sized),
	ENTRY(op_new_4096_nothrow),
	ENTRY(op_new_array),
	ENTRY(op_new_array_sized),
	ENTRY(op_new_array_nothrow),
	ENTRY(op_new_array_64),
	ENTRY(op_new_array_64_sized),
	ENTRY(op_new_array_64_nothrow),
	ENTRY(op_new_array_4096),
	ENTRY(op_new_array_4096_sized),
	ENTRY(op_new_zero),
	ENTRY(expr_new),
	ENTRY(expr_new_nothrow),
	ENTRY(expr_new_int),
	ENTRY(expr_new_destroyed),
	ENTRY(expr_new_virtual),
	ENTRY(expr_new_64),
	ENTRY(expr_new_64_nothrow),
	ENTRY(expr_new_4096),
	ENTRY(expr_array),
	ENTRY(expr_array_nothrow),
	ENTRY(expr_array_64),
	ENTRY(expr_array_4096),
	ENTRY(expr_array_cookie),
	ENTRY(expr_array_cookie_nothrow),
	ENTRY(expr_array_cookie_64),
	ENTRY(expr_array_cookie_4096),
};

int main(int argc, char **argv)
{
	// The first exception of a program that is linked statically sorts its unwind tables.
	try {
		throw argc;
	} catch (int) {
	}
	truth_start(&argc, argv);
	for (const Form &form : forms) {
		struct block blocks[TIMES];

		for (size_t n = 0; n < TIMES; n++)
			blocks[n] = form.allocate(n + 1);
		for (size_t n = 0; n < TIMES; n += 2) {
			size_t size = blocks[n].size;

			form.release(block_take(&blocks[n]), size);
		}
		delete_nothing();
	}
	for (size_t n = 1; n <= TIMES; n++)
		class_new(n);
	if (!dlsym(RTLD_DEFAULT, "mi_version"))
		for (const Refusal &refusal : throwing)
			run_refusal(refusal, false);
	for (const Refusal &refusal : quiet)
		run_refusal(refusal, nothrow_throws());
	return truth_finish();
}
