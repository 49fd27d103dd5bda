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

# stacks FILE: functions, files and lines of all samples, with what they hold; a line for each.
stacks() {
	pprof -traces -lines "$1" 2>/dev/null | sed -n '/^-/,$p' | grep -v ' pid: ' |
		awk '/^-/ { print stack; stack = ""; next } { stack = stack " | " $0 } END { print stack }' |
		sort
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
	grep -qE '100000B +13:.*make_block\(1000\);' list
	grep -qE '300000B +14:.*make_block\(3000\);' list
}

@test "pprof names what has no names, and nothing else" {
	copy_recordings
	# Where it tries to, it complains of the program that is gone. The recordings name it by its path.
	mv "$BATS_FILE_TMPDIR/prog" "$BATS_FILE_TMPDIR/away"
	pprof -symbolize=local -top lined.0001.pb.gz >top 2>err
	run ! grep -i 'symboliz' err
	grep -q ' fill$' top
	pprof -symbolize=local -top bare.0001.pb.gz >top 2>err
	mv "$BATS_FILE_TMPDIR/away" "$BATS_FILE_TMPDIR/prog"
	grep -q 'Local symbolization failed for prog (build ID' err
	run ! grep 'failed for libc' err
	run ! grep -qE ' (fill|main)$' top
}

@test "symbolize: names and lines from debug files by build-id" {
	copy_recordings
	"$HEAPTAP" symbolize --debug-dir debug -o named.pb.gz bare.0001.pb.gz >out
	grep -qE '/prog: ([0-9]+) of \1 locations named \(before: 0\), [1-9][0-9]* with lines \(before: 0\)' out
	diff <(stacks lined.0001.pb.gz) <(stacks named.pb.gz)
	# In place, it is the same.
	"$HEAPTAP" symbolize -q --debug-dir debug bare.0001.pb.gz >out
	[ ! -s out ]
	cmp <(gunzip <named.pb.gz) <(gunzip <bare.0001.pb.gz)
	# And again, nothing is left to do.
	"$HEAPTAP" symbolize --debug-dir debug bare.0001.pb.gz >out
	run ! grep before: out
	cmp <(gunzip <named.pb.gz) <(gunzip <bare.0001.pb.gz)
}

@test "symbolize: on another machine, with the debug file alone or the whole program" {
	copy_recordings
	"$HEAPTAP" symbolize --debug-dir debug -o named.pb.gz bare.0001.pb.gz >out
	mv "$BATS_FILE_TMPDIR/prog" "$BATS_FILE_TMPDIR/away"
	"$HEAPTAP" symbolize --debug-dir debug -o alone.pb.gz bare.0001.pb.gz >out
	mkdir -p "root$BATS_FILE_TMPDIR"
	cp full/prog "root$BATS_FILE_TMPDIR/prog"
	"$HEAPTAP" symbolize --debug-dir "$PWD/root" -o whole.pb.gz bare.0001.pb.gz >out2
	mv "$BATS_FILE_TMPDIR/away" "$BATS_FILE_TMPDIR/prog"
	grep -q 'from debug/.build-id/.*\.debug' out
	diff <(stacks named.pb.gz) <(stacks alone.pb.gz)
	grep -q "from $PWD/root" out2
	diff <(stacks named.pb.gz) <(stacks whole.pb.gz)
}

@test "symbolize: says why a mapping has no names" {
	copy_recordings
	# Not there, then there with another build-id.
	mv "$BATS_FILE_TMPDIR/prog" "$BATS_FILE_TMPDIR/away"
	"$HEAPTAP" symbolize -o out.pb.gz bare.0001.pb.gz >out
	cp "$HEAPTAP" "$BATS_FILE_TMPDIR/prog"
	"$HEAPTAP" symbolize -o out.pb.gz bare.0001.pb.gz >out2
	mv "$BATS_FILE_TMPDIR/away" "$BATS_FILE_TMPDIR/prog"
	grep -qE "/prog: 0 of [0-9]+ .*; left as it was: '.*/prog': No such file" out
	grep -qE "/prog: 0 of [0-9]+ .*; left as it was: '.*/prog' is another version" out2
	# What was known is kept.
	diff <(stacks bare.0001.pb.gz) <(stacks out.pb.gz)
}

@test "symbolize: adds lines to a profile that has names" {
	copy_recordings
	"$HEAPTAP" record --no-lines --sample-bytes 1 -o names -- full/prog >log 2>&1
	run ! grep -q 'prog.c' <(stacks names.0001.pb.gz)
	"$HEAPTAP" symbolize -q names.0001.pb.gz
	diff <(stacks lined.0001.pb.gz) <(stacks names.0001.pb.gz)
}

@test "symbolize: wrong usage and files that are no profiles" {
	copy_recordings
	run -2 "$HEAPTAP" symbolize
	run -2 "$HEAPTAP" symbolize a b
	run -1 "$HEAPTAP" symbolize prog.c
	[[ $output == *"no valid pprof profile"* ]]
	run -1 "$HEAPTAP" symbolize missing
	run -1 "$HEAPTAP" symbolize -o /no/such/folder/out bare.0001.pb.gz
	[[ $output == *"cannot write '/no/such/folder/out'"* ]]
}
