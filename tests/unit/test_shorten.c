/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "output/shorten.h"

static void names_lose_what_nobody_reads(void **state)
{
	static const char *const pairs[][2] = {
		{"main", "main"},
		{"foo(int, char const*)", "foo"},
		{"void ns::Map<int, char>::insert(int const&, char) const", "ns::Map::insert"},
		{"std::unique_ptr<Foo, std::default_delete<Foo> > std::make_unique<Foo>()",
		 "std::make_unique"},
		{"operator new(unsigned long)", "operator new"},
		{"operator new[](unsigned long, std::nothrow_t const&)", "operator new[]"},
		{"Foo::operator()(int) const", "Foo::operator()"},
		{"Foo::operator<<(int)", "Foo::operator<<"},
		{"std::ostream& operator<< <char>(std::ostream&, char)", "operator<<"},
		{"std::string std::operator+<char, std::A<char> >(std::string&&)",
		 "std::operator+"},
		{"bool std::operator< <int>(int, int)", "std::operator<"},
		{"Foo::operator->() const", "Foo::operator->"},
		{"Foo::operator int() const", "Foo::operator int"},
		{"(anonymous namespace)::handle(Cache&)", "(anonymous)::handle"},
		{"void (anonymous namespace)::f<int>(int)", "(anonymous)::f"},
		{"main::{lambda(int)#1}::operator()(int) const", "main::{lambda#1}::operator()"},
		{"void f<void (*)(int)>(void (*)(int))", "f"},
		{"foo(int) [clone .cold]", "foo"},
		{"vtable_operatorx(int)", "vtable_operatorx"},
	};
	char out[256];

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		shorten_name(pairs[i][0], "_Zxyz", out);
		assert_string_equal(out, pairs[i][1]);
	}
}

static void other_languages_are_left_alone(void **state)
{
	static const char *const names[] = {"main.(*T).method", "LazyCompile:~f /a b.js:1",
					    "[cut: no unwind rows in x (y)]",
					    "runtime.mallocgc<x>"};
	char out[256];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		shorten_name(names[i], names[i], out);
		assert_string_equal(out, names[i]);
	}
	shorten_name("<alloc::vec::Vec<T> as core::ops::Drop>::drop", "_ZN5alloc3vec", out);
	assert_string_equal(out, "<alloc::vec::Vec<T> as core::ops::Drop>::drop");
}

static void unbalanced_names_stay_within_their_length(void **state)
{
	static const char *const names[] = {"<",     ">",    "(",	   ")",
					    "a<b(c", "a>>)", "operator",   "operator<",
					    " ",     "a b",  "(anonymous", "x [clone"};
	char out[32];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		shorten_name(names[i], "_Z", out);
		assert_true(strlen(out) <= strlen(names[i]));
		assert_true(out[0]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_lose_what_nobody_reads),
		cmocka_unit_test(other_languages_are_left_alone),
		cmocka_unit_test(unbalanced_names_stay_within_their_length),
	};

	return cmocka_run_group_tests_name("shorten", tests, NULL, NULL);
}
