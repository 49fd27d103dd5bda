#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Source lines and inlined calls in snapshots, as pprof shows them, and `heaptap symbolize`, which
# adds them later.

load helpers

setup_file() {
	cd "$BATS_FILE_TMPDIR" || return 1
	cat >prog.c <<-'END'
		#include <stdlib.h>

		static void *volatile kept[300];

		static inline __attribute__((always_inline)) void *make_block(int size)
		{
			return malloc(size);
		}

		__attribute__((noinline)) void fill(int from, int count)
		{
			for (int i = 0; i < count; i++) {
				kept[from + i] = make_block(1000);
				kept[from + count + i] = make_block(3000);
			}
		}

		int main(void)
		{
			fill(0, 100);
			return 0;
		}
	END
	gcc -g -O2 -Wl,--build-id prog.c -o prog
	"$HEAPTAP" record --sample-bytes 1 -o lined -- ./prog >record.log 2>&1
	# Nothing of the program's own is known to this recording.
	mkdir -p debug full
	BUILD_ID=$(build_id prog)
	mkdir -p "debug/.build-id/${BUILD_ID:0:2}"
	objcopy --only-keep-debug prog "debug/.build-id/${BUILD_ID:0:2}/${BUILD_ID:2}.debug"
	mv prog full/prog
	strip full/prog -o prog
	"$HEAPTAP" record --sample-bytes 1 -o bare -- ./prog >>record.log 2>&1
}

build_id() {
	readelf -n "$1" | sed -n 's/.*Build ID: //p'
}

# The recordings, in a folder that a test may change.
copy_recordings() {
	cp -r "$BATS_FILE_TMPDIR"/{lined.0001.pb.gz,bare.0001.pb.gz,debug,full,prog,prog.c} .
}

pprof() {
	go tool pprof -sample_index=inuse_space -unit=B "$@"
}

# stacks FILE: functions, files and lines of all samples, with what they hold.
stacks() {
	pprof -traces -lines "$1" 2>/dev/null | sed -n '/^-/,$p'
}

@test "pprof shows inlined calls with their lines" {
	copy_recordings
	pprof -top -lines lined.0001.pb.gz >top 2>err
	grep -qE ' 100000B .* make_block .*/prog.c:7 \(inline\)$|make_block .*/prog.c:7 \(inline\)$' top
	grep -qE ' 100000B .* fill .*/prog.c:13$' top
	grep -qE ' 300000B .* fill .*/prog.c:14$' top
	grep -qE ' 400000B .* main .*/prog.c:20$' top
}

@test "pprof lists the source" {
	copy_recordings
	pprof -list '^fill$' lined.0001.pb.gz >list 2>err
	grep -qE '100000B +13: +kept\[from \+ i\] = make_block\(1000\);' list
	grep -qE '300000B +14: +kept\[from \+ count \+ i\] = make_block\(3000\);' list
}

@test "pprof does not name again what has names" {
	copy_recordings
	# Were it to, it would complain of the program that is gone.
	rm prog full/prog
	pprof -symbolize=local -top lined.0001.pb.gz >top 2>err
	run ! grep -i symbolization err
	grep -q ' fill$' top
}

@test "pprof does name mappings that have none" {
	copy_recordings
	pprof -symbolize=none -top bare.0001.pb.gz >top 2>err
	run ! grep -qE ' (fill|main)$' top
	rm prog
	PPROF_BINARY_PATH=$PWD/full pprof -symbolize=local -top bare.0001.pb.gz >top 2>err
	grep -qE ' fill$' top
}

@test "symbolize: names and lines from debug files by build-id" {
	copy_recordings
	"$HEAPTAP" symbolize --debug-dir debug -o named.pb.gz bare.0001.pb.gz >out
	cat out >&3
	grep -qE '/prog: 4 of 4 locations named .*, 3 with lines \(before: 0\)' out
	diff <(stacks lined.0001.pb.gz) <(stacks named.pb.gz)
	# In place, it is the same.
	"$HEAPTAP" symbolize -q --debug-dir debug bare.0001.pb.gz >out
	[ ! -s out ]
	diff <(stacks named.pb.gz) <(stacks bare.0001.pb.gz)
	# And again, nothing is left to do.
	"$HEAPTAP" symbolize --debug-dir debug bare.0001.pb.gz >out
	run ! grep before: out
}
