#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Allocators in libraries that a target loads after the attach: exact, once heaptap says that it has
# found them.

load helpers

# Starts the workload and a heaptap on it.
start() {
	spawn late "$WORKLOADS/late"
	LATE=$PID
	wait_for_line late.out '^late'
	attach heaptap "$LATE" --sample-bytes 1 -o p "$@"
	TAP=$PID
}

# ask COMMAND ...: to the workload; waits for its answer.
ask() {
	local word=${1%% *} before

	before=$(grep -c "^$word " late.out) || true
	tell late "$1"
	wait_for_line late.out "^$word " "$PATIENCE" $((before + 1))
}

# found PATH [COUNT]: until heaptap says so.
found() {
	wait_for_line heaptap.err "^Allocator found in $1 \\(loaded later\\): [1-9][0-9]* probe points after [0-9]+ ms; what was allocated in it before is not counted\$" \
		"$PATIENCE" "${2:-1}"
}

library() {
	cp "$WORKLOADS/arena.so" "$1"
}

# Ends both; the last snapshot has the workload's truth.
finish() {
	tell late end
	wait_exit "$LATE"
	wait_exit "$TAP"
	run ! grep -E '^heaptap: [^w]' heaptap.err
	matches_truth late.out "$(last_snapshot p)"
}


@test "a library that is loaded later" {
	library a.so
	start
	ask "open 0 $PWD/a.so"
	found "$PWD/a.so"
	ask "use 0 100"
	finish
}

@test "the same with every way to attach" {
	for mode in perf multi session; do
		library "$mode.so"
		start --attach "$mode"
		ask "open 0 $PWD/$mode.so"
		found "$PWD/$mode.so"
		ask "use 0 50"
		finish
	done
}

@test "in a command" {
	library a.so
	spawn heaptap "$HEAPTAP" record --sample-bytes 1 -o p -- "$WORKLOADS/late"
	wait_for_line heaptap.out '^late'
	tell heaptap "open 0 $PWD/a.so"
	found "$PWD/a.so"
	tell heaptap "use 0 100"
	tell heaptap end
	wait_exit "$PID"
	matches_truth heaptap.out "$(last_snapshot p)"
}

@test "two libraries, equal but for their files" {
	library a.so
	library b.so
	start
	ask "open 0 $PWD/a.so"
	found "$PWD/a.so"
	ask "use 0 10"
	ask "open 1 $PWD/b.so"
	found "$PWD/b.so"
	ask "use 1 20"
	ask "use 0 30"
	finish
}

@test "a library that is unloaded and loaded again is counted again" {
	library a.so
	start
	ask "open 0 $PWD/a.so"
	found "$PWD/a.so"
	ask "use 0 10"
	ask "close 0"
	# No waiting: its probes have stayed.
	ask "open 0 $PWD/a.so"
	ask "use 0 20"
	finish
	[ "$(grep -c '^Allocator found' heaptap.err)" -eq 1 ]
}

@test "another file at the same path" {
	library a.so
	start
	ask "open 0 $PWD/a.so"
	found "$PWD/a.so"
	ask "use 0 10"
	library new.so
	mv new.so a.so
	ask "open 1 $PWD/a.so"
	found "$PWD/a.so" 2
	ask "use 1 20"
	ask "use 0 30"
	finish
}

@test "a library without a path" {
	start
	ask "memfd 0 $WORKLOADS/arena.so"
	found /memfd:late
	ask "use 0 10"
	finish
}

@test "a library that is loaded and unloaded all the time" {
	library a.so
	start
	ask "flicker 0 $PWD/a.so 3000"
	ask "open 0 $PWD/a.so"
	wait_for_line heaptap.err "^Allocator found in $PWD/a.so "
	ask "use 0 10"
	finish
}

@test "a target that exits as soon as it has loaded one" {
	for try in 1 2 3 4 5; do
		library "$try.so"
		start
		tell late "leave 0 $PWD/$try.so"
		wait_exit "$LATE"
		wait_exit "$TAP"
		run ! grep -E '^heaptap: ' heaptap.err
	done
}

@test "files that are no libraries" {
	head -c 20000 /dev/urandom >noise
	cat >maps.py <<-END
		import ctypes, mmap, os, sys
		sys.stdin.readline()
		keep = []
		for path in ["noise"] * 3:
		    with open(path, "r+b") as file:
		        keep.append(mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC))
		for i in range(2000):
		    keep.append(mmap.mmap(-1, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC))
		    memory = os.memfd_create("code")
		    os.ftruncate(memory, 4096)
		    keep.append(mmap.mmap(memory, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_EXEC))
		    os.close(memory)
		ctypes.CDLL(sys.argv[1])
		print("mapped", flush=True)
		sys.stdin.readline()
	END
	library a.so
	spawn python python3 maps.py "$PWD/a.so"
	python=$PID
	poll "$PATIENCE" grep -q python "/proc/$python/comm"
	attach heaptap "$python" --sample-bytes 1 -o p
	tell python go
	wait_for_line python.out mapped
	found "$PWD/a.so"
	tell python end
	wait_exit "$python"
	wait_exit "$PID"
}
