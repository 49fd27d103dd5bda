#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Where names come from: one program whose allocating function is static, in every state that
# production leaves it in.

load helpers

# build NAME OPTION...: a program that allocates in a static function when it reads a line.
build() {
	local name=$1
	shift
	cat >app.c <<-'END'
		#include <stdio.h>
		#include <stdlib.h>
		static __attribute__((noinline)) void *hidden_site(int n)
		{
			void *volatile p = malloc(n);
			return p;
		}
		__attribute__((noinline)) void *visible_site(int n)
		{
			void *volatile p = malloc(n);
			return p;
		}
		int main(void)
		{
			puts("ready");
			fflush(stdout);
			while (getchar() == '\n')
				printf("%d\n", hidden_site(1000) && visible_site(2000)), fflush(stdout);
			return 0;
		}
	END
	gcc -O1 -g -Wl,--build-id -o "$name" "$@" app.c
}

# record_app OPTION... PROGRAM: a snapshot of it.
record_app() {
	echo | "$HEAPTAP" record -v --sample-bytes 1 -o p "${@:1:$#-1}" -- "${!#}" >out 2>log || {
		cat log >&2
		return 1
	}
}

# has_site NAME BYTES: among the functions that call the allocator.
has_site() {
	by_leaf "$(last_snapshot p)" alloc_space | grep -qx "$1 $2" || {
		by_leaf "$(last_snapshot p)" alloc_space >&2
		return 1
	}
}

has_no_site() {
	run has_site "$1" "$2"
	[ "$status" -ne 0 ]
}

# has_line LINE: of the call in hidden_site.
has_line() {
	pprof -lines -top -sample_index=alloc_space "$(last_snapshot p)" >lines
	grep -qE " hidden_site .*/app\\.c:$1\$" lines
}

build_id_of() {
	readelf -n "$1" | sed -n 's/.*Build ID: //p'
}

# debug_folder PROGRAM FOLDER: puts its debug file there by build-id, and strips the program.
debug_folder() {
	local id
	id=$(build_id_of "$1")
	mkdir -p "$2/.build-id/${id:0:2}"
	objcopy --only-keep-debug "$1" "$2/.build-id/${id:0:2}/${id:2}.debug"
	strip "$1"
}

@test "symbols of the program itself, with lines" {
	build app
	record_app ./app
	has_site hidden_site 1000
	has_site visible_site 2000
	has_line 5
	readable ./app "$(last_snapshot p)"
}

@test "--no-lines leaves the names" {
	build app
	record_app --no-lines ./app
	has_site hidden_site 1000
	run ! grep -q 'app\.c' <(pprof -lines -top "$(last_snapshot p)")
	grep -qE '^Names: .* 0 with lines' log
}

@test "only .dynsym: exported functions have names, others do not" {
	build app -rdynamic
	strip app
	record_app ./app
	has_site visible_site 2000
	has_no_site hidden_site 1000
}

@test "stripped, with a .gnu_debuglink" {
	build app
	objcopy --only-keep-debug app app.debug
	strip app
	objcopy --add-gnu-debuglink=app.debug app
	record_app ./app
	has_site hidden_site 1000
	has_line 5
	# Another file under the name.
	echo >>app.debug
	record_app ./app
	has_no_site hidden_site 1000
	grep -qE 'separate debug files: .* [1-9][0-9]* refused' log
}

@test "stripped, with a build-id folder given by --debug-dir" {
	build app
	debug_folder app debug
	record_app ./app
	has_no_site hidden_site 1000
	record_app --debug-dir /nonexistent --debug-dir "$PWD/debug" ./app
	has_site hidden_site 1000
	record_app --debug-dir debug --no-lines ./app
	has_site hidden_site 1000
}

@test "a debug file of another build is not used" {
	build app
	cp app first
	debug_folder first debug
	build app -DOTHER -O0
	mkdir -p "debug/.build-id/$(build_id_of app | cut -c1-2)"
	cp debug/.build-id/*/*.debug "debug/.build-id/$(build_id_of app | cut -c1-2)/$(build_id_of app | cut -c3-).debug"
	strip app
	record_app --debug-dir debug ./app
	has_no_site hidden_site 1000
	grep -qE 'separate debug files: .* [1-9][0-9]* refused' log
}

@test "MiniDebugInfo" {
	build app
	objcopy --only-keep-debug app debug
	strip --strip-debug -o mini debug
	xz mini
	strip app
	objcopy --add-section .gnu_debugdata=mini.xz app
	record_app ./app
	has_site hidden_site 1000
	has_site visible_site 2000
}

@test "a chroot with a libc of its own: names of its own files" {
	build app
	mkdir -p root/usr/lib/debug root/dev
	copy_libraries app root
	debug_folder app root/usr/lib/debug
	cp app root/app
	# Another libc than the host's, as far as anyone can tell.
	libc=root/lib/x86_64-linux-gnu/libc.so.6
	printf 'other' >note
	objcopy --add-section .other=note "$libc"
	spawn app chroot root /app
	wait_for_line app.out '^ready'
	attach heaptap "$PID" --sample-bytes 1 -o p
	tell app ''
	wait_for_line app.out '^1$'
	kill -INT "$PID"
	wait_exit "$PID"
	has_site hidden_site 1000
	pprof -raw "$(last_snapshot p)" | grep -qE '/root/lib/x86_64-linux-gnu/libc\.so\.6 '
	has_line 5
}

copy_libraries() {
	local library
	for library in $(ldd "$1" | grep -oE '/[^ ]+'); do
		mkdir -p "$2$(dirname "$library")"
		cp -L "$library" "$2$library"
	done
}

@test "a library replaced on disk after the start: names of the old file" {
	cat >library.c <<-'END'
		#include <stdlib.h>
		void *NAME(int n)
		{
			void *volatile p = malloc(n);
			return p;
		}
		void *entry(int n)
		{
			return (char *)NAME(n) + 0 * n;
		}
	END
	cat >main.c <<-'END'
		#include <stdio.h>
		void *entry(int n);
		int main(void)
		{
			puts("ready");
			fflush(stdout);
			while (getchar() == '\n')
				printf("%d\n", entry(1000) != NULL), fflush(stdout);
			return 0;
		}
	END
	gcc -g -O1 -fno-inline -shared -fPIC -DNAME=old_name -o libapp.so library.c
	gcc -g -O1 -fno-inline -shared -fPIC -DNAME=new_name_that_is_longer -o new.so library.c
	gcc -g -O1 -o app main.c -L. -lapp -Wl,-rpath,"$PWD"
	spawn app ./app
	target=$PID
	wait_for_line app.out '^ready'
	mv new.so libapp.so
	attach heaptap "$target" --sample-bytes 1 -o p
	tell app ''
	wait_for_line app.out '^1$'
	kill -INT "$PID"
	wait_exit "$PID"
	has_site old_name 1000
}

@test "node --perf-basic-prof: names of JavaScript functions" {
	command -v node >/dev/null || skip "node is not installed"
	cat >app.js <<-'END'
		function leafOfScript() {
			const kept = [];
			for (let i = 0; i < 2000; i++)
				kept.push(Buffer.allocUnsafeSlow(20000));
			return kept;
		}
		function callerOfScript() {
			return leafOfScript().length;
		}
		console.log("ready");
		process.stdin.on("data", () => console.log("done " + callerOfScript()));
	END
	spawn node node --perf-basic-prof --interpreted-frames-native-stack app.js
	target=$PID
	wait_for_line node.out '^ready'
	attach heaptap "$target" --sample-bytes 64K -o p
	tell node go
	wait_for_line node.out '^done'
	kill -INT "$PID"
	wait_exit "$PID"
	rm -f "/tmp/perf-$target.map"
	"$HEAPTAP" report --folded --sample-index alloc_space "$(last_snapshot p)" >folded
	grep -q 'callerOfScript.*leafOfScript' folded
}

@test "names of JIT code that the last of many processes has made since the last snapshot" {
	spawn heaptap "$HEAPTAP" record --sample-bytes 1 -o p -- "$WORKLOADS/jit" 70
	profiler=$PID
	wait_for_line heaptap.out '^jit'
	count=0
	for name in compiled_first compiled_later; do
		tell heaptap "$name"
		wait_for_line heaptap.out "^done $name"
		kill -USR2 "$profiler"
		wait_for_line heaptap.err '\(signal\)$' "$PATIENCE" $((++count))
	done
	kill "$(sed -n 's/^jit //p' heaptap.out)"
	wait_exit "$profiler"
	rm -f "/tmp/perf-$(sed -n 's/^jit //p' heaptap.out).map"
	for name in compiled_first compiled_later; do
		"$HEAPTAP" report --folded --sample-index alloc_space p.0002.pb.gz |
			grep -qE "$name;jit_malloc 1000$"
	done
}

# free_port: one that nobody listens on now.
free_port() {
	python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# is_served URL: debuginfod-find would remember that it was not.
is_served() {
	python3 -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1])' "$1" 2>/dev/null
}

@test "debuginfod on loopback serves the debug file, and only where the variable is set" {
	command -v debuginfod >/dev/null || skip "debuginfod is not installed"
	build app
	debug_folder app served
	cache=$PWD/cache
	port=$(free_port)
	spawn server debuginfod -F -p "$port" -d "$PWD/index.sqlite" "$PWD/served"
	poll "$PATIENCE" is_served "http://127.0.0.1:$port/buildid/$(build_id_of app)/debuginfo"

	DEBUGINFOD_CACHE_PATH=$cache strace -f -e trace=network -o calls "$HEAPTAP" record -v --sample-bytes 1 -o p -- ./app <<<'' >out 2>log
	has_no_site hidden_site 1000
	run ! grep -q AF_INET calls
	[ ! -e "$cache" ]

	DEBUGINFOD_CACHE_PATH=$cache DEBUGINFOD_URLS="http://127.0.0.1:$port" record_app ./app
	has_site hidden_site 1000
	has_line 5
	grep -qE '[1-9][0-9]* asked of servers' log
}

@test "a server that does not answer costs little, and once" {
	build app
	strip app
	port=$(free_port)
	DEBUGINFOD_CACHE_PATH=$PWD/cache DEBUGINFOD_URLS="http://127.0.0.1:$port" record_app ./app
	has_no_site hidden_site 1000
	grep -q '1 asked of servers in [0-9]* ms, then given up' log
}

@test "a chroot whose libc is musl: its names, not the host's" {
	command -v musl-gcc >/dev/null || skip "musl-tools is not installed"
	build app
	musl-gcc -O1 -g -Wl,--build-id -o app app.c
	mkdir -p root/lib
	cp app root/app
	cp -L /lib/ld-musl-x86_64.so.1 root/lib/
	spawn app chroot root /app
	wait_for_line app.out '^ready'
	attach heaptap "$PID" --sample-bytes 1 -o p
	tell app ''
	wait_for_line app.out '^1$'
	kill -INT "$PID"
	wait_exit "$PID"
	has_site hidden_site 1000
	"$HEAPTAP" report --folded --sample-index alloc_space "$(last_snapshot p)" >folded
	grep -q 'main;hidden_site' folded
	run ! grep -qE '__libc_start_call_main' folded
}
