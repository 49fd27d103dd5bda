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

# found PATH [COUNT]: until heaptap says so; without the time if the machine was so busy that the
# record of the mapping was lost.
found() {
	wait_for_line heaptap.err "^Allocator found in $1 \\(loaded later\\): [1-9][0-9]* probe points( after [0-9]+ ms)?; what was allocated in it before is not counted\$" \
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
	go tool pprof -comments "$(last_snapshot p)" >comments
	grep -qE '^late: 2 files with an allocator loaded while the program ran; .* \([0-9]+ ms at most\)' comments
}

@test "many copies of a library" {
	for ((i = 1; i <= 70; i++)); do
		library "$i.so"
	done
	start
	for ((i = 1; i < 70; i++)); do
		tell late "open 1 $PWD/$i.so"
	done
	ask "open 0 $PWD/70.so"
	found "$PWD/70.so"
	ask "use 0 10"
	tell late end
	# It takes longer to remove so many probes.
	wait_for_line heaptap.err '^1 snapshot written'
	matches_truth late.out "$(last_snapshot p)"
	pprof -comments "$(last_snapshot p)" | grep -qx 'losses: none'
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
	ask "close 0"
	library new.so
	mv new.so a.so
	ask "open 0 $PWD/a.so"
	found "$PWD/a.so" 2
	ask "use 0 20"
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

@test "a heaptap that is held up misses nothing" {
	library a.so
	library b.so
	start
	kill -STOP "$TAP"
	ask "flicker 0 $PWD/a.so 8000"
	ask "open 1 $PWD/b.so"
	kill -CONT "$TAP"
	wait_for_line heaptap.err "^Allocator found in $PWD/b.so \\(loaded later\\): [1-9][0-9]* probe points; "
	ask "use 1 10"
	finish
}

# start_many: a workload with 400 children, of which the last 20 will load an allocator.
start_many() {
	local i

	gcc -x c -shared -fPIC -o many - <<<'int plain(void) { return 0; }'
	for ((i = 380; i < 400; i++)); do
		library "many.$i"
	done
	start --follow
	ask "fork 0 $PWD/many 400"
	kill -STOP "$TAP"
}

# all_found: each of the 20; then it ends them.
all_found() {
	local i

	kill -CONT "$TAP"
	for ((i = 380; i < 400; i++)); do
		wait_for_line heaptap.err "^Allocator found in $PWD/many.$i "
	done
	tell late end
	wait_exit "$LATE"
	wait_exit "$TAP"
	pprof -comments "$(last_snapshot p)" | grep -qx 'losses: none'
}

@test "hundreds of processes that load libraries at the same time" {
	start_many
	ask "load 0 400"
	all_found
}

@test "the same when the kernel could not tell of all" {
	start_many
	library a.so
	ask "flicker 0 $PWD/a.so 8000"
	ask "load 0 400"
	all_found
}

@test "a program that has no allocator yet" {
	library a.so
	cat >bare.c <<-END
		static long call(long number, long a, long b, long c, long d, long e, long f)
		{
			register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;

			__asm__ volatile("syscall" : "+a"(number)
					 : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
					 : "rcx", "r11", "memory");
			return number;
		}

		void _start(void)
		{
			char byte;
			long fd;

			call(0, 0, (long)&byte, 1, 0, 0, 0);
			fd = call(2, (long)"a.so", 0, 0, 0, 0, 0);
			call(9, 0, 4096, 5, 2, fd, 4096);
			call(0, 0, (long)&byte, 1, 0, 0, 0);
			call(231, 0, 0, 0, 0, 0, 0);
		}
	END
	gcc -O1 -nostdlib -pie -fPIE -fno-stack-protector bare.c -o bare
	spawn bare ./bare
	bare=$PID
	poll "$PATIENCE" grep -q bare "/proc/$bare/comm"
	attach heaptap "$bare" -o p
	grep -q "^heaptap: warning: no allocator found in $bare (bare) yet: waiting for one to be loaded" heaptap.err
	tell bare
	found "$PWD/a.so"
	tell bare
	wait_exit "$bare"
	wait_exit "$PID"
}

@test "a library that cannot be opened is a loss" {
	library a.so
	# With such a lease on it, others must wait.
	cat >lease.py <<-END
		import fcntl, mmap, os, signal, sys
		signal.signal(signal.SIGIO, signal.SIG_IGN)
		sys.stdin.readline()
		file = os.open("a.so", os.O_RDWR)
		fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
		memory = mmap.mmap(file, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
		print("mapped", flush=True)
		sys.stdin.readline()
	END
	spawn python python3 lease.py
	python=$PID
	poll "$PATIENCE" grep -q python "/proc/$python/comm"
	attach heaptap "$python" -o p
	tell python go
	wait_for_line python.out mapped
	wait_for_line heaptap.err "^heaptap: warning: '$PWD/a.so' cannot be opened "
	tell python end
	wait_exit "$python"
	wait_exit "$PID"
	grep -q '^heaptap: warning: 1 times .* allocator_missed: ' heaptap.err
	pprof -comments "$(last_snapshot p)" | grep -q '^loss: allocator_missed 1 '
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
