#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Programs that people run: exact numbers for a load whose truth the program itself knows, and, where
# a runtime has a heap of its own, that heaptap says what it does not see.

load helpers

# by_site FILE TYPE: `FUNCTION VALUE` for functions named site_*, with what they call.
by_site() {
	"$HEAPTAP" report --folded --sample-index "$2" "$1" | awk '
		{
			value = $NF
			sub(/ [^ ]*$/, "")
			count = split($0, frame, ";")
			for (i = 1; i <= count; i++)
				if (frame[i] ~ /^site_/)
					sum[frame[i]] += value
		}
		END { for (site in sum) printf "%s %.0f\n", site, sum[site] }'
}

# through FUNCTION TYPE FILE: the sum of all stacks that pass through it; of all, if it is ''.
through() {
	"$HEAPTAP" report --folded --sample-index "$2" "$3" | awk -v name="$1" '
		{
			value = $NF
			sub(/ [^ ]*$/, "")
			if (name == "" || index(";" $0 ";", ";" name ";"))
				sum += value
		}
		END { printf "%.0f\n", sum }'
}

# live_sites FILE: `OBJECTS BYTES` in use for each stack, not merged by name.
live_sites() {
	pprof -raw "$1" | awk '
		/^Locations$/ { exit }
		$4 ~ /^[0-9]+:$/ && $3 > 0 { sub(/:$/, "", $4); print $3, $4 }'
}

# live_of_size SIZE FILE: objects in use of stacks that hold nothing but blocks of this size.
live_of_size() {
	live_sites "$2" | awk -v size="$1" '$2 == $1 * size { sum += $1 } END { printf "%.0f\n", sum }'
}

# record_load NAME COMMAND...: attaches to a program that has printed "ready", lets it do its load,
# and takes the last snapshot when it has printed its truth. TARGET is its PID.
record_load() {
	local name=$1
	shift
	spawn "$name" "$@"
	TARGET=$PID
	wait_for_line "$name.out" '^ready'
	attach heaptap "$TARGET" --sample-bytes 1 -o p
	tell "$name" go
	wait_for_line "$name.out" '^truth' 60
	kill -INT "$PID"
	wait_exit "$PID"
}

# truth NAME FIELD: a number of the program's line `truth NUMBER...`.
truth() {
	awk -v field="$2" '$1 == "truth" { print $(field + 1) }' "$1.out"
}

# names_runtime PATTERN: once in what heaptap said, and in the comments of the snapshot.
names_runtime() {
	[ "$(grep -cE "^$1" heaptap.err)" -eq 1 ] &&
		[ "$(pprof -comments "$(last_snapshot p)" | grep -cE "^runtime: $1")" -eq 1 ] || {
		cat heaptap.err >&2
		return 1
	}
}

names_no_runtime() {
	run ! grep -q 'malloc does not serve' heaptap.err
	run ! grep -q '^runtime: ' <(pprof -comments "$(last_snapshot p)")
}

# The interpreter itself: what is in PATH may be a script that starts it.
python() {
	python3 -c 'import sys; print(sys.executable)'
}

python_load() {
	cat >app.py <<-'END'
		import sys
		print("ready", flush=True)
		sys.stdin.readline()
		kept = [bytes(400) for i in range(100000)]
		array = bytearray(10000000)
		print("truth", sys.getsizeof(kept[0]), sys.getsizeof(array) - sys.getsizeof(bytearray()), flush=True)
		sys.stdin.readline()
	END
	record_load app "$@" "$(python)" app.py
}

@test "python3 with PYTHONMALLOC=malloc: every object" {
	python_load env PYTHONMALLOC=malloc
	names_runtime 'Python \(function Py_Initialize in .*malloc serves all of it, by PYTHONMALLOC=malloc'
	[ "$(live_of_size "$(truth app 1)" "$(last_snapshot p)")" -eq 100000 ]
	[ "$(live_of_size "$(truth app 2)" "$(last_snapshot p)")" -eq 1 ]
}

@test "python3 without it: a large array, and that small objects are not seen" {
	python_load env -u PYTHONMALLOC
	names_runtime 'Python \(function Py_Initialize in .*objects of up to 512 bytes.*PYTHONMALLOC=malloc'
	[ "$(live_of_size "$(truth app 2)" "$(last_snapshot p)")" -eq 1 ]
	# 43 MB of small objects are missing; the list that holds them is there.
	[ "$(through '' inuse_space "$(last_snapshot p)")" -lt 12000000 ]
}

@test "python3 as a command: by our own environment" {
	PYTHONMALLOC=malloc "$HEAPTAP" record --sample-bytes 1 -o p -- "$(python)" -c 'pass' 2>heaptap.err
	names_runtime 'Python .*malloc serves all of it'
	rm p.*
	env -u PYTHONMALLOC "$HEAPTAP" record --sample-bytes 1 -o p -- "$(python)" -c 'pass' 2>heaptap.err
	names_runtime 'Python .*malloc does not serve'
}

@test "node: buffers, and that JavaScript objects are not seen" {
	command -v node >/dev/null || skip "node is not installed"
	cat >app.js <<-'END'
		const kept = [];
		console.log("ready");
		process.stdin.once("data", () => {
			for (let i = 0; i < 1000; i++)
				kept.push(Buffer.allocUnsafeSlow(100003));
			for (let i = 0; i < 1000000; i++)
				kept.push({ number: i + 0.5 });
			console.log("truth " + process.memoryUsage().heapUsed);
		});
	END
	record_load app node app.js
	names_runtime 'V8 \(function .*JavaScript objects'
	[ "$(live_of_size 100003 "$(last_snapshot p)")" -eq 1000 ]
	[ "$(through '' inuse_space "$(last_snapshot p)")" -lt $((100003000 + $(truth app 1) / 2)) ]
}

# What one Deflater takes from malloc, by the library that it uses.
deflate_truth() {
	cat >deflate.c <<-'END'
		#include <stdio.h>
		#include <stdlib.h>
		#include <zlib.h>
		static unsigned long objects, bytes;
		static void *count(void *arg, unsigned int items, unsigned int size)
		{
			objects++;
			bytes += (unsigned long)items * size;
			return malloc((size_t)items * size);
		}
		static void ignore(void *arg, void *block)
		{
		}
		int main(void)
		{
			z_stream stream = {.zalloc = count, .zfree = ignore};
			deflateInit2(&stream, -1, Z_DEFLATED, 15, 8, 0);
			printf("%lu %lu\n", objects, bytes);
			return 0;
		}
	END
	gcc -o deflate deflate.c -lz
	./deflate
}

@test "java: direct buffers and zlib, and that Java objects are not seen" {
	command -v java >/dev/null || skip "java is not installed"
	java --list-modules | grep -q '^jdk.compiler' || skip "java cannot run source files"
	cat >App.java <<-'END'
		import java.nio.ByteBuffer;
		import java.util.ArrayList;
		import java.util.zip.Deflater;

		public class App {
			public static void main(String[] args) throws Exception {
				ArrayList<Object> kept = new ArrayList<>();
				new Deflater().end();
				ByteBuffer.allocateDirect(1);
				System.out.println("ready");
				System.in.read();
				for (int i = 0; i < 1000; i++)
					kept.add(ByteBuffer.allocateDirect(100008));
				for (int i = 0; i < 100; i++)
					kept.add(new Deflater());
				for (int i = 0; i < 1000; i++)
					kept.add(new byte[100000]);
				System.out.println("truth " + kept.size());
				for (;;)
					System.in.read();
			}
		}
	END
	record_load app java -Xmx512m App.java
	names_runtime 'Java \(function JNI_CreateJavaVM in .*libjvm.so\): malloc does not serve Java objects'
	[ "$(live_of_size 100008 "$(last_snapshot p)")" -eq 1000 ]
	read -r objects bytes <<<"$(deflate_truth)"
	if grep -q 'libz.so.1' "/proc/$TARGET/maps"; then
		[ "$(through deflateInit2_ inuse_objects "$(last_snapshot p)")" -eq $((100 * objects)) ]
		[ "$(through deflateInit2_ inuse_space "$(last_snapshot p)")" -eq $((100 * bytes)) ]
	fi
}

@test "java as a command: named when its library has been met" {
	command -v java >/dev/null || skip "java is not installed"
	java --list-modules | grep -q '^jdk.compiler' || skip "java cannot run source files"
	echo 'class Wait { public static void main(String[] args) throws Exception { System.in.read(); } }' >Wait.java
	spawn heaptap "$HEAPTAP" record --sample-bytes 1 -o p -- java Wait.java
	wait_for_line heaptap.err '^Java \(' 60
	tell heaptap go
	wait_exit "$PID"
	names_runtime 'Java \(function JNI_CreateJavaVM'
}

go_build() {
	command -v go >/dev/null || skip "go is not installed"
	GOCACHE=$BATS_FILE_TMPDIR/go GO111MODULE=off GOFLAGS='' go build "$@"
}

@test "a Go program with C code: its malloc, and that the Go heap is not seen" {
	cat >app.go <<-'END'
		package main

		// #include <stdlib.h>
		import "C"
		import "fmt"
		import "unsafe"

		var blocks []unsafe.Pointer
		var kept [][]byte

		func main() {
			var line string
			fmt.Println("ready")
			fmt.Scanln(&line)
			for i := 0; i < 1000; i++ {
				blocks = append(blocks, C.malloc(3001))
				kept = append(kept, make([]byte, 50000))
			}
			fmt.Println("truth", len(blocks), len(kept))
			fmt.Scanln(&line)
		}
	END
	for flags in '' '-s -w'; do
		rm -f p.*
		CGO_ENABLED=1 go_build -ldflags "$flags" -o app app.go
		record_load app ./app
		names_runtime 'Go \(section .go.buildinfo in .*/app\): malloc does not serve the Go heap'
		[ "$(live_of_size 3001 "$(last_snapshot p)")" -eq 1000 ]
		[ "$(through '' inuse_space "$(last_snapshot p)")" -lt 4000000 ]
	done
}

@test "a static Go program: the error names the language" {
	cat >app.go <<-'END'
		package main

		import "fmt"

		func main() {
			var line string
			fmt.Println("ready")
			fmt.Scanln(&line)
		}
	END
	for flags in '' '-s -w'; do
		CGO_ENABLED=0 go_build -ldflags "$flags" -o app app.go
		spawn app ./app
		wait_for_line app.out '^ready'
		for target in "-p $PID" "-- ./app"; do
			# shellcheck disable=SC2086 # two words
			run -1 --separate-stderr "$HEAPTAP" record -o p $target
			# shellcheck disable=SC2154 # set by run
			[ "${#stderr_lines[@]}" -eq 1 ]
			[[ $stderr == "heaptap: no allocator found in "*"(app), but there is Go (section .go.buildinfo in "*"/app): malloc does not serve the Go heap. "* ]]
		done
	done
}

@test "a C program with a library written in Go" {
	cat >library.go <<-'END'
		package main

		import "C"

		//export Twice
		func Twice(n C.int) C.int { return 2 * n }

		func main() {}
	END
	cat >app.c <<-'END'
		#include <stdio.h>
		#include <stdlib.h>
		#include "libtwice.h"
		int main(void)
		{
			void *volatile block;
			printf("ready %d\n", Twice(2));
			fflush(stdout);
			getchar();
			block = malloc(54321);
			printf("truth %d\n", block != NULL);
			fflush(stdout);
			for (;;)
				getchar();
		}
	END
	CGO_ENABLED=1 go_build -buildmode=c-shared -ldflags '-s -w' -o libtwice.so library.go
	gcc -o app app.c -L. -ltwice -Wl,-rpath,"$PWD"
	record_load app ./app
	names_runtime 'Go \(section .go.buildinfo in .*/libtwice.so\)'
	[ "$(live_of_size 54321 "$(last_snapshot p)")" -eq 1 ]
}

@test "ruby: long strings, and that slots of objects are not seen" {
	command -v ruby >/dev/null || skip "ruby is not installed"
	cat >app.rb <<-'END'
		$stdout.sync = true
		puts "ready"
		STDIN.gets
		$objects = Array.new(200000) { Object.new }
		$strings = Array.new(1000) { "x" * 5003 }
		puts "truth"
		STDIN.gets
	END
	record_load app ruby app.rb
	names_runtime 'Ruby \(function ruby_init in .*malloc does not serve the slots'
	# A string ends in a zero. 200000 slots take 8 MB.
	[ "$(live_of_size 5004 "$(last_snapshot p)")" -eq 1000 ]
	[ "$(through '' inuse_objects "$(last_snapshot p)")" -lt 10000 ]
}

php_load() {
	command -v php >/dev/null || skip "php is not installed"
	cat >app.php <<-'END'
		<?php
		echo "ready\n";
		fgets(STDIN);
		$kept = [];
		for ($i = 1000; $i < 2000; $i++)
			$kept[] = str_repeat("x", 5003) . $i;
		echo "truth\n";
		fgets(STDIN);
	END
	record_load app "$@" php -d opcache.enable_cli=0 app.php
}

@test "php: nothing of its values, or all with USE_ZEND_ALLOC=0" {
	php_load env -u USE_ZEND_ALLOC
	names_runtime 'PHP \(function _emalloc in .*malloc does not serve PHP.s values.*USE_ZEND_ALLOC=0'
	# 5007 characters, a zero, and 24 bytes before them.
	[ "$(live_of_size 5032 "$(last_snapshot p)")" -eq 0 ]
	rm p.*
	php_load env USE_ZEND_ALLOC=0
	names_runtime 'PHP .*malloc serves all of it, by USE_ZEND_ALLOC=0'
	[ "$(live_of_size 5032 "$(last_snapshot p)")" -eq 1000 ]
}

@test "luajit: that Lua's values are not seen" {
	command -v luajit >/dev/null || skip "luajit is not installed"
	cat >app.lua <<-'END'
		io.stdout:setvbuf("no")
		print("ready")
		io.read()
		kept = {}
		for i = 1, 1000 do kept[i] = string.rep("x", 5003) .. i end
		print("truth")
		io.read()
	END
	record_load app luajit app.lua
	names_runtime 'LuaJIT \(function luaJIT_setmode in .*malloc does not serve Lua.s values'
	[ "$(through '' inuse_space "$(last_snapshot p)")" -lt 100000 ]
}

@test "perl: the buffers of strings" {
	cat >app.pl <<-'END'
		use B;
		$| = 1;
		print "ready\n";
		<STDIN>;
		push @kept, ("x" x 3000) . $_ for 100000 .. 119999;
		$sizes{B::svref_2object(\$_)->LEN}++ for @kept;
		print "truth ", join(" ", %sizes), "\n";
		<STDIN>;
	END
	record_load app perl app.pl
	names_no_runtime
	[ "$(truth app 2)" -eq 20000 ]
	[ "$(live_of_size "$(truth app 1)" "$(last_snapshot p)")" -eq 20000 ]
}

@test "sqlite3: what it says of its own memory" {
	command -v sqlite3 >/dev/null || skip "sqlite3 is not installed"
	spawn heaptap "$HEAPTAP" record --sample-bytes 1 -o p -- sqlite3 :memory:
	tell heaptap 'CREATE TABLE t (id INTEGER PRIMARY KEY, body BLOB);'
	tell heaptap 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)'
	tell heaptap 'INSERT INTO t SELECT i, zeroblob(1000) FROM n;'
	tell heaptap .stats
	wait_for_line heaptap.out '^Number of Outstanding Allocations'
	kill -USR2 "$PID"
	poll "$PATIENCE" test -e p.0001.pb.gz
	bytes=$(awk '/^Memory Used:/ { print $3 }' heaptap.out)
	objects=$(awk '/^Number of Outstanding/ { print $5 }' heaptap.out)
	[ "$bytes" -gt 20000000 ]
	by_leaf p.0001.pb.gz inuse_space | awk '$1 ~ /^libsqlite3|^sqlite3[A-Z]/ { sum += $2 } END { printf "%.0f\n", sum }' >measured
	by_leaf p.0001.pb.gz inuse_objects | awk '$1 ~ /^libsqlite3|^sqlite3[A-Z]/ { sum += $2 } END { printf "%.0f\n", sum }' >>measured
	# Its allocator notes the size of each block in 8 bytes before it.
	printf '%s\n' $((bytes + 8 * objects)) "$objects" | diff measured -
	tell heaptap .quit
	wait_exit "$PID"
	names_no_runtime
}

redis() {
	redis-cli -s "$PWD/redis.sock" "$@"
}

redis_info() {
	redis INFO memory | tr -d '\r' | sed -n "s/^$1://p"
}

redis_is_rehashing() {
	redis DEBUG HTSTATS 0 | grep -q 'rehashing target'
}

# usable FILE: `BYTES USABLE` in use. jemalloc has four sizes between two powers of two, and 16
# bytes between the small ones; a stack of redis asks for one size only here.
usable() {
	live_sites "$1" | awk '
		{
			size = $2 / $1
			step = 16
			for (power = 128; power < size; power *= 2)
				step = power / 4
			bytes += $2
			sum += $1 * (size <= 8 ? 8 : int((size + step - 1) / step) * step)
		}
		END { printf "%.0f %.0f\n", bytes, sum }'
}

@test "redis-server: its used_memory grows as its allocations do" {
	command -v redis-server >/dev/null || skip "redis-server is not installed"
	# From its start, so that no block is unknown that is freed or replaced in between.
	spawn heaptap "$HEAPTAP" record --sample-bytes 1 -o p -- redis-server --port 0 \
		--unixsocket "$PWD/redis.sock" --save '' --appendonly no --enable-debug-command yes
	poll "$PATIENCE" redis PING 2>/dev/null
	# What a command takes when it is used for the first time.
	redis SET key:before value
	redis_info used_memory
	redis_is_rehashing || true
	before=$(redis_info used_memory)
	kill -USR2 "$PID"
	poll "$PATIENCE" test -e p.0001.pb.gz
	awk 'BEGIN { value = sprintf("%1000s", ""); gsub(/ /, "x", value)
		for (i = 0; i < 50000; i++) printf "SET key:%08d %s\n", i, value }' >commands
	[ "$(redis <commands | grep -c '^OK')" -eq 50000 ]
	poll "$PATIENCE" eval '! redis_is_rehashing'
	after=$(redis_info used_memory)
	kill -USR2 "$PID"
	poll "$PATIENCE" test -e p.0002.pb.gz
	allocator=$(redis_info mem_allocator)
	redis SHUTDOWN NOSAVE
	wait_exit "$PID"
	names_no_runtime
	read -r bytes_before usable_before <<<"$(usable p.0001.pb.gz)"
	read -r bytes_after usable_after <<<"$(usable p.0002.pb.gz)"
	grew=$((after - before))
	requested=$((bytes_after - bytes_before))
	echo "used_memory grew by $grew; requested $requested, usable $((usable_after - usable_before))"
	# redis counts what malloc_usable_size() tells: up to a quarter more than was asked for.
	[ "$requested" -le "$grew" ]
	[ "$grew" -le $((requested * 5 / 4)) ]
	[[ $allocator == jemalloc-* ]] || skip "redis does not use jemalloc: sizes are compared with a bound only"
	[ "$grew" -eq $((usable_after - usable_before)) ]
}

@test "Rust: every way to the system allocator" {
	PATH=$PATH:$HOME/.cargo/bin
	command -v rustc >/dev/null || skip "rustc is not installed"
	rustc -g -O -o sites "$E2E/../fixtures/sites.rs"
	for mode in perf multi session; do
		rm -f p.*
		printf '\n\n' | "$HEAPTAP" record --attach "$mode" --sample-bytes 1 -o p -- ./sites >truth 2>heaptap.err
		MEASURE=by_site matches_truth truth "$(last_snapshot p)"
		names_no_runtime
	done
}
