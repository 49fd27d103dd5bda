#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Stacks in surroundings that make them hard: other threads, other tools, other files, other libcs.
# Programs are built here; each says by function names what its stacks are.

load helpers

CC=gcc
# Nothing is inlined, cloned or turned into a jump: a function is a frame.
FLAGS=(-O1 -std=gnu17 -fno-inline -fno-ipa-cp -fno-optimize-sibling-calls -pthread -D_GNU_SOURCE -Wall -Wextra -Werror)

# compile NAME [FLAG...]: from standard input. A program waits for a line before it works, and for
# another before it ends.
compile() {
	local name=$1
	shift
	{
		cat <<-'END'
			#include <dlfcn.h>
			#include <pthread.h>
			#include <sched.h>
			#include <stdio.h>
			#include <stdlib.h>
			#include <string.h>
			#include <sys/mman.h>
			#include <unistd.h>
			static inline void *opaque(void *p) { __asm__ volatile("" : "+r"(p) : : "memory"); return p; }
			static inline void step(const char *text)
			{
				char byte;
				printf("%s\n", text);
				fflush(stdout);
				while (read(0, &byte, 1) == 1 && byte != '\n')
					;
			}
		END
		cat
	} >"$name.c"
	$CC "${FLAGS[@]}" "$name.c" -o "$name" "$@"
}

# stacks_of PROGRAM [ARGUMENT...]: attaches to it as it waits, and lets it work; its stacks, root
# first, with how many allocations have each, are in `stacks`.
stacks_of() {
	spawn target "$@"
	wait_for_line target.out '^ready'
	attach heaptap "$PID" --sample-bytes 1 -o p
	let_work
}

let_work() {
	tell target go
	wait_for_line target.out '^done' 60
	tell target end
	poll "$PATIENCE" has_lines heaptap.err '^Dumping heap profile .*Exiting' 1
	wait_exit "$PID"
	"$HEAPTAP" report --folded --sample-index alloc_objects "$(last_snapshot p)" >stacks
}

# count PATTERN: allocations with such a stack.
count() {
	grep -E -- "$1" stacks | awk '{ sum += $NF } END { print sum + 0 }'
}

# exactly COUNT PATTERN
exactly() {
	local found
	found=$(count "$2")
	[ "$found" -eq "$1" ] || {
		echo "$found stacks, not $1, are $2:"
		cut -c1-400 stacks
		return 1
	}
}

# Offset of a function in a file; text segments begin where their addresses say.
offset_of() {
	nm "$1" | awk -v name="$2" '$3 == name { print "0x" $1 }'
}

@test "six threads that map and unmap without pause" {
	compile storm <<-'END'
		static volatile int stop;
		static void *storm(void *arg)
		{
			size_t pages = 1;
			while (!stop) {
				char *p[8];
				for (int i = 0; i < 8; i++) {
					p[i] = mmap(NULL, 4096 * (pages + i), PROT_READ | PROT_WRITE,
						    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
					if (p[i] == MAP_FAILED)
						abort();
					p[i][0] = 1;
				}
				for (int i = 0; i < 8; i++)
					munmap(p[i], 4096 * (pages + i));
				pages = pages % 13 + 1;
			}
			return arg;
		}
		static void leaf(void) { free(opaque(malloc(777))); }
		static void descend(int n) { if (n) descend(n - 1); else leaf(); __asm__ volatile(""); }
		int main(void)
		{
			pthread_t threads[6];
			for (int i = 0; i < 6; i++)
				pthread_create(&threads[i], NULL, storm, NULL);
			step("ready");
			for (int i = 0; i < 20000; i++)
				descend(9);
			stop = 1;
			for (int i = 0; i < 6; i++)
				pthread_join(threads[i], NULL);
			step("done");
			return 0;
		}
	END
	stacks_of ./storm
	exactly 20000 '^_start;.*;main(;descend){10};leaf '
	exactly 20000 'leaf'
	exactly 0 'cut:|stack lost'
}

@test "a return probe of another tool on every caller" {
	# The kernel allows 64 return probes at a time in one thread, malloc's own among them.
	for levels in 30 60; do
		rm -f p.*
		"$HEAPTAP" record --sample-bytes 1 -o p -- "$WORKLOADS/deep" $levels >truth
		"$HEAPTAP" report --folded --sample-index alloc_objects "$(last_snapshot p)" | grep descend >alone
		[ "$(grep -o descend alone | wc -l)" -eq $levels ]

		rm -f p.*
		spawn target "$WORKLOADS/deep" --wait $levels
		target=$PID
		wait_for_line target.out '^ready'
		spawn uret "$BUILD/oracle/uret" "$target" "$WORKLOADS/deep" "$(offset_of "$WORKLOADS/deep" descend)"
		uret=$PID
		wait_for_line uret.out attached
		spawn main "$BUILD/oracle/uret" "$target" "$WORKLOADS/deep" "$(offset_of "$WORKLOADS/deep" main)"
		wait_for_line main.out attached
		attach heaptap "$target" --sample-bytes 1 -o p
		tell target go
		wait_for_line target.out '^site='
		tell target end
		wait_for_line heaptap.err 'Exiting'
		wait_exit "$PID"
		"$HEAPTAP" report --folded --sample-index alloc_objects "$(last_snapshot p)" | grep descend >together
		diff alone together
		kill "$uret"
	done
}

@test "two threads on one CPU" {
	compile pinned <<-'END'
		#define CHAIN(n)                                                                           \
			static void n##_4(int i) { free(opaque(malloc(500 + i % 2))); __asm__ volatile(""); }  \
			static void n##_3(int i) { n##_4(i); __asm__ volatile(""); }                            \
			static void n##_2(int i) { n##_3(i); __asm__ volatile(""); }                            \
			static void n##_1(int i) { n##_2(i); __asm__ volatile(""); }                            \
			static void *n##_0(void *arg)                                                           \
			{                                                                                       \
				pthread_barrier_wait(arg);                                                      \
				for (int i = 0; i < 40000; i++)                                                 \
					n##_1(i);                                                               \
				return NULL;                                                                    \
			}
		CHAIN(red)
		CHAIN(blue)
		CHAIN(green)
		int main(void)
		{
			void *(*const functions[])(void *) = {red_0, blue_0, green_0};
			pthread_barrier_t barrier;
			pthread_t threads[3];
			cpu_set_t cpu;
			CPU_ZERO(&cpu);
			CPU_SET(0, &cpu);
			sched_setaffinity(0, sizeof(cpu), &cpu);
			pthread_barrier_init(&barrier, NULL, 3);
			step("ready");
			for (int i = 0; i < 3; i++)
				pthread_create(&threads[i], NULL, functions[i], &barrier);
			for (int i = 0; i < 3; i++)
				pthread_join(threads[i], NULL);
			step("done");
			return 0;
		}
	END
	stacks_of ./pinned
	for color in red blue green; do
		exactly 40000 "^[^;]*;[^;]*;${color}_0;${color}_1;${color}_2;${color}_3;${color}_4 "
	done
	exactly 120000 '_4|red|blue|green|stack lost'
}

@test "libraries that take turns at one address" {
	for name in first second; do
		compile lib$name.so -shared -fPIC <<-END
			static void *${name}_inner(size_t size) { void *p = opaque(malloc(size)); __asm__ volatile(""); return p; }
			void *get(size_t size);
			$([ $name = first ] || echo 'static volatile int padding[4]; static void moved(void) { padding[0]++; }')
			void *get(size_t size)
			{
				$([ $name = first ] || echo 'char more[900]; opaque(more); moved();')
				void *p = ${name}_inner(size);
				__asm__ volatile("");
				return p;
			}
		END
	done
	compile turns <<-'END'
		static unsigned long turn(const char *path, size_t size)
		{
			void *library = dlopen(path, RTLD_NOW);
			void *(*get)(size_t) = library ? (void *(*)(size_t))dlsym(library, "get") : NULL;
			unsigned long base = 0;
			Dl_info info;
			if (!get || !dladdr((void *)get, &info))
				abort();
			base = (unsigned long)info.dli_fbase;
			free(get(size));
			dlclose(library);
			return base;
		}
		int main(void)
		{
			int same = 0;
			step("ready");
			for (int i = 0; i < 3000; i++)
				same += turn("./libfirst.so", 50001 + (i >= 1500)) == turn("./libsecond.so", 60001 + (i >= 1500));
			printf("same=%d\n", same);
			step("done");
			return 0;
		}
	END
	stacks_of ./turns
	# Else this tests nothing.
	[ "$(sed -n 's/^same=//p' target.out)" -ge 2900 ]
	exactly 6000 'first_inner|second_inner|libfirst|libsecond'
	# Each with its own library's sizes, and right, or cut before the table was there. In the second
	# half it is there, sooner or later.
	python3 "$E2E/pprof_stacks.py" "$(last_snapshot p)" >addresses
	awk '
		$1 ~ /^5000[12]$/ && $2 !~ /^libfirst\.so\+0x[0-9a-f]+;(libfirst\.so|\[cut:)/ ||
		$1 ~ /^6000[12]$/ && $2 !~ /^libsecond\.so\+0x[0-9a-f]+;(libsecond\.so|\[cut:)/ ||
		$1 ~ /^[56]000[12]$/ && /cut:/ && !/not_built_yet/ {
			print
			bad = 1
		}
		!/cut:/ { complete[$1]++ }
		END {
			if (!complete[50002] || !complete[60002]) {
				print "no stack was ever complete"
				bad = 1
			}
			exit bad
		}' addresses
}

@test "a library that was deleted, and one that was replaced" {
	for name in deleted replaced; do
		compile lib$name.so -shared -fPIC <<-END
			static void *${name}_inner(size_t size) { void *p = opaque(malloc(size)); __asm__ volatile(""); return p; }
			void *get(size_t size);
			void *get(size_t size) { char frame[400]; opaque(frame); void *p = ${name}_inner(size); __asm__ volatile(""); return p; }
		END
	done
	compile libother.so -shared -fPIC <<-'END'
		void *get(size_t size);
		static void *wrong(size_t size) { return malloc(size); }
		void *get(size_t size) { void *p = wrong(size); __asm__ volatile(""); return p; }
	END
	compile uses <<-'END'
		int main(void)
		{
			void *(*get[2])(size_t) = {
				(void *(*)(size_t))dlsym(dlopen("./libdeleted.so", RTLD_NOW), "get"),
				(void *(*)(size_t))dlsym(dlopen("./libreplaced.so", RTLD_NOW), "get"),
			};
			step("loaded");
			step("ready");
			for (int i = 0; i < 100; i++)
				free(get[i % 2](100));
			step("done");
			return 0;
		}
	END
	spawn target ./uses
	target=$PID
	wait_for_line target.out '^loaded'
	rm libdeleted.so
	mv libother.so libreplaced.so
	tell target go
	wait_for_line target.out '^ready'
	attach heaptap "$target" --sample-bytes 1 -o p
	let_work
	exactly 50 '^_start;.*;main;get;deleted_inner '
	exactly 50 '^_start;.*;main;get;replaced_inner '
	exactly 0 'wrong'
}

@test "a chroot with a libc of its own" {
	compile inside <<-'END'
		static void leaf(void) { free(strdup(opaque("some text"))); __asm__ volatile(""); }
		static int compare(const void *a, const void *b) { leaf(); return *(const int *)a - *(const int *)b; }
		int main(void)
		{
			int values[] = {2, 1};
			step("ready");
			for (int i = 0; i < 100; i++)
				qsort(values, 2, sizeof(int), compare);
			step("done");
			return 0;
		}
	END
	mkdir -p root/lib64 root/lib/x86_64-linux-gnu
	cp inside root/
	cp /lib64/ld-linux-x86-64.so.2 root/lib64/
	cp /lib/x86_64-linux-gnu/libc.so.6 root/lib/x86_64-linux-gnu/
	# Another file and another build, as far as anyone can tell.
	printf 'x' >>root/lib/x86_64-linux-gnu/libc.so.6
	stacks_of chroot root /inside
	exactly 100 '^_start;.*;main;[^[]*;compare;leaf;(__GI_)?(__)?strdup '
}

@test "another program by exec" {
	compile after <<-'END'
		static void leaf(void) { free(opaque(malloc(99))); __asm__ volatile(""); }
		static void descend(int n) { if (n) descend(n - 1); else leaf(); __asm__ volatile(""); }
		int main(void)
		{
			step("ready");
			descend(5);
			step("done");
			return 0;
		}
	END
	spawn target "$WORKLOADS/exec" --wait ./after
	target=$PID
	wait_for_line target.out '^ready'
	attach first "$target" --sample-bytes 1 -o first
	tell target go
	wait_for_line target.out '^site='
	tell target end
	wait_for_line target.out '^ready' "$PATIENCE" 2
	kill -INT "$PID"
	wait_exit "$PID"
	"$HEAPTAP" report --folded --sample-index alloc_objects "$(last_snapshot first)" >stacks
	exactly 1 '^_start;.*;main;before_exec '
	attach heaptap "$target" --sample-bytes 1 -o p
	let_work
	exactly 1 '^_start;.*;main(;descend){6};leaf '
	exactly 0 'before_exec|cut:'
}

# What a libc without unwind tables does on a program's behalf: musl's own functions are frames.
musl() {
	command -v musl-gcc >program || skip "needs musl-gcc"
	CC=musl-gcc compile musl "$@" <<-'END'
		#include <dirent.h>
		#include <locale.h>
		#include <netdb.h>
		#include <regex.h>
		#include <search.h>
		#include <wchar.h>
		static int compare(const void *a, const void *b) { free(opaque(malloc(11))); return *(const int *)a - *(const int *)b; }
		static void sorts(void)
		{
			int values[40];
			for (int i = 0; i < 40; i++)
				values[i] = i * 7 % 40;
			qsort(values, 40, sizeof(int), compare);
		}
		static void strings(void)
		{
			char *text = strdup(opaque("some text")), *more;
			if (asprintf(&more, "%s %d %f", text, 7, 0.5) < 0)
				abort();
			free(text);
			free(more);
		}
		static void files(void)
		{
			FILE *file = fopen("/etc/passwd", "re");
			char *line = NULL;
			size_t size = 0;
			while (file && getline(&line, &size, file) > 0)
				;
			free(line);
			fclose(file);
			file = open_memstream(&line, &size);
			for (int i = 0; i < 300; i++)
				fprintf(file, "%d %ls\n", i, L"wide");
			fclose(file);
			free(line);
			closedir(opendir("/"));
		}
		static void patterns(void)
		{
			regmatch_t match[2];
			regex_t regex;
			if (regcomp(&regex, "(a|b)*c[0-9]{2,4}", REG_EXTENDED))
				abort();
			regexec(&regex, "ababc1234", 2, match, 0);
			regfree(&regex);
		}
		static int by_text(const void *a, const void *b) { return strcmp(a, b); }
		static void trees(void)
		{
			void *root = NULL;
			char keys[50][4];
			for (int i = 0; i < 50; i++) {
				snprintf(keys[i], 4, "%d", i * 13 % 50);
				tsearch(keys[i], &root, by_text);
			}
			for (int i = 0; i < 50; i++)
				tdelete(keys[i], &root, by_text);
		}
		static void *in_thread(void *arg) { strings(); patterns(); return arg; }
		static void others(void)
		{
			pthread_t thread;
			pthread_create(&thread, NULL, in_thread, NULL);
			pthread_join(thread, NULL);
			free(realpath("/usr/bin/../lib", NULL));
			free(getcwd(NULL, 0));
			setenv("NAME", "value", 1);
			unsetenv("NAME");
		}
		int main(void)
		{
			step("ready");
			for (int i = 0; i < 50; i++) {
				sorts();
				strings();
				files();
				patterns();
				trees();
				others();
			}
			step("done");
			return 0;
		}
	END
	stacks_of ./musl
	all=$(count .)
	echo "# $BATS_TEST_DESCRIPTION: $((all - $(count '\[cut:|stack lost'))) of $all stacks complete" >&3
	# A stack that ends too early would be complete too: it must pass through what has called.
	cut -c1-200 stacks
	[ "$all" -ge 10000 ]
	[ $((100 * $(count '^[^[].*;main;(sorts|strings|files|patterns|trees|others)[; ]|^[^[].*;in_thread;(strings|patterns)[; ]'))) -ge $((95 * all)) ]
}

@test "musl, dynamic" {
	musl
}

@test "musl, static" {
	musl -static
}

@test "a low soft limit of open files is raised, but not the command's" {
	(
		ulimit -Sn 24
		"$HEAPTAP" record --sample-bytes 1 -o p -- sh -c 'ulimit -Sn' >out 2>log
	)
	[ "$(cat out)" = 24 ]
	[ "$(count_snapshots p)" -eq 1 ]
	# However little room there is. Much less, and the program could not be loaded itself.
	for limit in {24..90}; do
		(ulimit -n "$limit" && "$HEAPTAP" record -o q -- sleep 0) 2>log >out && status=0 || status=$?
		[ "$status" -eq 1 ]
		[ "$(cat log)" = 'heaptap: cannot open the 96 files that a session needs at least: Too many open files (raise the limit with `ulimit -n`)' ]
	done
	(ulimit -n 140 && "$HEAPTAP" record -o q -- sleep 0) 2>log
	[ "$(count_snapshots q)" -eq 1 ]
}
