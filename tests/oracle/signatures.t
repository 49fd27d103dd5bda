#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# TAP: the allocation functions that signatures find in stripped static programs, against the
# symbols of the same programs before they were stripped: all of them, and no other.
set -u

here=$(cd "$(dirname "$0")/../.." && pwd)
driver=${BUILD:-$here/build}/oracle/signatures
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
debian=/usr/lib/x86_64-linux-gnu
musl=/usr/lib/x86_64-linux-musl
scudo=/usr/lib/llvm-14/lib/clang/14.0.6/lib/linux/libclang_rt.scudo_standalone

cat >"$work/all.c" <<'END'
#define _GNU_SOURCE
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
	void *p[8] = {malloc(argc), calloc(argc, 3), realloc(malloc(5), 100), aligned_alloc(64, 128),
		      memalign(64, 100), valloc(10)};
	if (posix_memalign(&p[6], 64, 100))
		return 1;
#ifdef __GLIBC__
	p[7] = pvalloc(5);
#endif
	for (int i = 0; i < 8; i++) {
		printf("%p\n", p[i]);
		free(p[i]);
	}
	return 0;
}
END
# Nothing but malloc: musl has another one for such programs.
cat >"$work/malloc.c" <<'END'
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	char *p = malloc(argc * 10);
	*p = 'x';
	return write(1, p, 1) != 1;
}
END
# free() is only jumped to.
cat >"$work/jump.c" <<'END'
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) void drop(void *p)
{
	free(p);
}
int main(int argc, char **argv)
{
	char *p = calloc(argc, 10);
	write(1, p, 1);
	drop(p);
	return 0;
}
END
cat >"$work/wrap.c" <<'END'
#include <stdlib.h>
void *__real_malloc(size_t), *__wrap_malloc(size_t);
void *__wrap_malloc(size_t size)
{
	return __real_malloc(size + 16);
}
int main(int argc, char **argv)
{
	/* The compiler must not leave them out. */
	void *volatile p = malloc(argc), *volatile q = calloc(argc, 3);
	free(p);
	free(q);
	return 0;
}
END
cat >"$work/all.cc" <<'END'
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>
struct alignas(64) wide {
	char bytes[64];
};
int main(int argc, char **argv)
{
	std::vector<std::string> v;
	for (int i = 0; i < argc * 10; i++)
		v.push_back(std::string(i * 10, 'x'));
	auto *w = new wide;
	auto *a = new wide[argc];
	auto *n = new (std::nothrow) int[argc];
	void *p = realloc(calloc(argc, 3), 100), *q = aligned_alloc(64, 128);
	printf("%p %p %p %p %p\n", p, q, w, a, n);
	free(p);
	free(q);
	delete w;
	delete[] a;
	delete[] n;
	return v.size() == 3;
}
END

number=0
status=0

result() { # NAME FAILED
	number=$((number + 1))
	if [ "$2" = 0 ]; then
		echo "ok $number - $1"
	else
		echo "not ok $number - $1"
		status=1
	fi
}

skip() { # NAME WHY
	number=$((number + 1))
	echo "ok $number - $1 # SKIP $2"
}

# What the driver looks for and the library defines, in the unstripped program.
truth() { # PROGRAM LIBRARY
	nm -g --defined-only "$2" 2>/dev/null | awk '$2 ~ /[TW]/ { print $3 }' | sort -u >"$work/defined"
	nm "$1" | awk 'NR == FNR { defined[$1]; next }
		$3 in defined && $2 ~ /[TtWw]/ && $3 ~ /^(malloc|free|calloc|realloc|memalign|aligned_alloc|posix_memalign|p?valloc|cfree|mallocx|_Z[nd].*|tc_.*|mi_.*)$/ {
			print $1, $3
		}' "$work/defined" - | sort -u
}

# judge NAME LIBRARY COMPILER...: builds $work/app and compares.
judge() {
	local name=$1 library=$2 failed=0
	shift 2
	if [ ! -e "$library" ]; then
		skip "$name" "no '$library'"
		return
	fi
	rm -f "$work/app"
	if ! "$@" -o "$work/app" 2>"$work/log" || [ ! -e "$work/app" ]; then
		skip "$name" "cannot be linked here: $(grep -v '^ *$' "$work/log" | tail -n 1 | tr -d '#')"
		return
	fi
	strip -o "$work/stripped" "$work/app"
	"$driver" "$work/stripped" "$library" 2>"$work/log" | sort -u >"$work/found"
	truth "$work/app" "$library" >"$work/truth"
	[ -s "$work/truth" ] || failed=1
	[ -z "${may_miss:-}" ] || sed -i "/ $may_miss\$/d" "$work/truth" "$work/found"
	diff "$work/truth" "$work/found" >"$work/diff" || failed=1
	result "$name: $(wc -l <"$work/found") of $(wc -l <"$work/truth")" $failed
	[ $failed = 0 ] || sed 's/^/# /' "$work/diff" "$work/log"
}

for linker in bfd gold lld; do
	for flags in "" -Wl,--gc-sections -Wl,--no-relax; do
		[ "$linker$flags" != gold-Wl,--no-relax ] || continue
		for source in all malloc jump; do
			judge "glibc, $source, $linker $flags" $debian/libc.a \
				gcc -O2 -w -static -fuse-ld=$linker $flags "$work/$source.c"
			judge "musl, $source, $linker $flags" $musl/libc.a \
				musl-gcc -O2 -w -static -fuse-ld=$linker $flags "$work/$source.c"
		done
	done
	[ $linker = gold ] ||
		judge "glibc, static-pie, $linker" $debian/libc.a \
			gcc -O2 -w -static-pie -fuse-ld=$linker "$work/all.c"
	if [ $linker != bfd ]; then
		judge "glibc, identical code folded, $linker" $debian/libc.a \
			gcc -O2 -w -static -fuse-ld=$linker -Wl,--gc-sections,--icf=all "$work/all.c"
		judge "musl, identical code folded, $linker" $musl/libc.a \
			musl-gcc -O2 -w -static -fuse-ld=$linker -Wl,--gc-sections,--icf=all "$work/all.c"
	fi
	judge "jemalloc, $linker" $debian/libjemalloc.a \
		g++ -std=gnu++17 -O2 -static -fuse-ld=$linker "$work/all.cc" $debian/libjemalloc.a -ldl -lm
	judge "tcmalloc_minimal, $linker" $debian/libtcmalloc_minimal.a \
		g++ -std=gnu++17 -O2 -static -fuse-ld=$linker "$work/all.cc" $debian/libtcmalloc_minimal.a
	# operator new and delete are a library of their own.
	for cxx in "" _cxx; do
		judge "scudo$cxx, $linker" $scudo$cxx-x86_64.a \
			g++ -std=gnu++17 -O2 -static -fuse-ld=$linker "$work/all.cc" \
			-Wl,--whole-archive $scudo-x86_64.a ${scudo}_cxx-x86_64.a -Wl,--no-whole-archive
	done
	# Its libunwind is also in libgcc_eh.
	judge "tcmalloc, $linker" $debian/libtcmalloc.a \
		g++ -std=gnu++17 -O2 -static -fuse-ld=$linker -Wl,--allow-multiple-definition "$work/all.cc" \
		$debian/libtcmalloc.a -lunwind -llzma
	mimalloc=/usr/local/lib/libmimalloc.a
	[ -e $mimalloc ] || mimalloc=$debian/libmimalloc.a
	judge "mimalloc, $linker" $mimalloc \
		g++ -std=gnu++17 -O2 -static -fuse-ld=$linker "$work/all.cc" \
		-Wl,--whole-archive $mimalloc -Wl,--no-whole-archive
done
judge "glibc, malloc wrapped" $debian/libc.a gcc -O2 -w -static -Wl,--wrap=malloc "$work/wrap.c"
# musl's calloc is told from __libc_calloc by the malloc that it calls: not here.
may_miss=calloc judge "musl, malloc wrapped, but for calloc" $musl/libc.a musl-gcc -O2 -w -static -Wl,--wrap=malloc "$work/wrap.c"

# musl-gcc makes no static program of this kind.
cat >"$work/musl-pie" <<END
musl-gcc -O2 -w -fPIE -c "\$1" -o "$work/pie.o" &&
	ld -static -pie --no-dynamic-linker -z text $musl/rcrt1.o $musl/crti.o "$work/pie.o" \
		$musl/libc.a "\$(gcc -print-libgcc-file-name)" $musl/crtn.o -o "\$3"
END
judge "musl, static-pie" $musl/libc.a sh "$work/musl-pie" "$work/all.c"

# Libraries that a program was not linked with are not found in it.
gcc -O2 -w -static "$work/all.c" -o "$work/glibc"
musl-gcc -O2 -w -static "$work/all.c" -o "$work/musl"
for other in "glibc $musl/libc.a" "musl $debian/libc.a" "glibc $debian/libjemalloc.a" \
	"musl $debian/libtcmalloc.a" "glibc $debian/libtcmalloc_minimal.a"; do
	read -r program library <<<"$other"
	if [ -e "$library" ] && [ -e "$work/$program" ]; then
		"$driver" "$work/$program" "$library" >"$work/found" 2>"$work/log"
		[ ! -s "$work/found" ] && [ ! -s "$work/log" ]
		result "nothing of ${library#/usr/lib/} in a program with $program" $?
	else
		skip "nothing of $library in a program with $program" "no '$library'"
	fi
done

# All functions of the C library, not only its allocator: what is found is where the symbols say.
for program in glibc musl; do
	library=$debian/libc.a
	[ $program = glibc ] || library=$musl/libc.a
	strip -o "$work/stripped" "$work/$program"
	"$driver" -a "$work/stripped" "$library" 2>/dev/null | sort -u >"$work/found"
	nm "$work/$program" | awk '{ print $1, $3 }' | sort -u >"$work/truth"
	wrong=$(comm -23 "$work/found" "$work/truth" | wc -l)
	[ "$wrong" = 0 ] && [ "$(wc -l <"$work/found")" -gt 50 ]
	result "any function of $program: $(wc -l <"$work/found") found, $wrong wrong" $?
done
echo "1..$number"
exit $status
