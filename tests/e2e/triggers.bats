#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# When a snapshot is written, how it is called, and what happens if it cannot be.

load helpers

# attach_idle OPTION...: to a target that allocates on demand; sets target and heaptap.
attach_idle() {
	spawn idle "$WORKLOADS/idle" 100
	target=$PID
	steps=0
	wait_for_line idle.out '^idle'
	attach_again "$@"
}

attach_again() {
	attach heaptap "$target" --sample-bytes 1 -o p "$@"
	profiler=$PID
}

# allocate BYTES / release: done in the target when it returns.
allocate() {
	tell idle "a $1"
	wait_for_line idle.out '^done' "$PATIENCE" $((++steps))
}

release() {
	tell idle f
	wait_for_line idle.out '^done' "$PATIENCE" $((++steps))
}

wait_for_reason() {
	wait_for_line heaptap.err "^Dumping heap profile to .* \\($1\\)\$" "$PATIENCE" "${2:-1}"
}

end_session() {
	kill -INT "$profiler"
	wait_exit "$profiler"
}

MIB=1048576

@test "bytes allocated" {
	attach_idle --alloc-interval 10M --inuse-interval 0
	allocate $((10 * MIB))
	wait_for_reason '10 MB allocated cumulatively, 10 MB currently in use'
	allocate $((9 * MIB))
	release
	allocate $((3 * MIB))
	wait_for_reason '22 MB allocated cumulatively, 13 MB currently in use'
	end_session
	[ "$(reasons heaptap.err | wc -l)" -eq 3 ]
}

@test "bytes freed" {
	attach_idle --alloc-interval 0 --inuse-interval 0 --free-interval 10M
	allocate $((10 * MIB))
	allocate $((9 * MIB))
	release
	release
	wait_for_reason '19 MB freed cumulatively, 0 MB currently in use'
	end_session
	[ "$(reasons heaptap.err | wc -l)" -eq 2 ]
}

@test "bytes in use above the high water" {
	attach_idle --alloc-interval 0 --inuse-interval 10M
	# Exactly the interval is not above it.
	allocate $((10 * MIB))
	allocate 1
	wait_for_reason '10 MB currently in use'
	release
	release
	# Up to the same mark again, and once across the next.
	allocate $((20 * MIB))
	allocate $((2 * MIB))
	wait_for_reason '22 MB currently in use'
	end_session
	[ "$(reasons heaptap.err | wc -l)" -eq 3 ]
}

@test "a snapshot holds exactly what there was at the crossing" {
	attach_idle --alloc-interval 10M --inuse-interval 0
	# The target does not wait for heaptap in between.
	for _ in 1 2 3 4 5; do
		tell idle "a $((10 * MIB))"
		tell idle "a $MIB"
		tell idle f
		tell idle f
	done
	wait_for_line idle.out '^done' "$PATIENCE" 20
	wait_for_reason '.* allocated cumulatively, .*' 5
	end_session
	for i in 1 2 3 4 5; do
		[ "$(by_leaf "p.000$i.pb.gz" alloc_space | awk '$1 == "idle_malloc" { print $2 }')" -eq $(((11 * i - 1) * MIB)) ]
		[ "$(by_leaf "p.000$i.pb.gz" inuse_space | awk '$1 == "idle_malloc" { print $2 }')" -eq $((10 * MIB)) ]
	done
}

# membarrier() waits for none if one CPU is online, and not at all on some machines.
@test "programs are waited for in a way that no machine refuses" {
	command -v strace >/dev/null || skip "strace is not installed"
	strace -f -o trace -e trace=bpf,membarrier "$HEAPTAP" record --sample-bytes 1 -o p -- "$WORKLOADS/calls" >truth 2>log
	matches_truth truth p.0001.pb.gz
	grep -q 'BPF_MAP_CREATE.*"heaptap_wait"' trace
	run ! grep -q 'membarrier(' trace
}

@test "time, on a target that does nothing" {
	attach_idle --interval 1
	wait_for_reason '1 sec since the last dump' 3
	end_session
	[ -s p.0003.pb.gz ]
}

@test "SIGUSR2" {
	attach_idle
	allocate 5000
	kill -USR2 "$profiler"
	wait_for_reason signal
	allocate 6000
	kill -USR2 "$profiler"
	wait_for_reason signal 2
	end_session
	[ "$(by_leaf p.0001.pb.gz inuse_space | awk '$1 == "idle_malloc" { print $2 }')" -eq 5000 ]
	[ "$(by_leaf p.0002.pb.gz inuse_space | awk '$1 == "idle_malloc" { print $2 }')" -eq 11000 ]
}

@test "the end of the session, in its four ways" {
	attach_idle --duration 1
	allocate $((3 * MIB))
	wait_exit "$profiler"
	[ "$(reasons heaptap.err)" = 'Detaching, 3 MB in use' ]
	for signal in INT TERM; do
		rm -f p.*
		attach_again
		allocate 3000
		kill "-$signal" "$profiler"
		wait_exit "$profiler"
		reasons heaptap.err | grep -qE '^Detaching, [0-9]+ (kB|bytes) in use$'
		[ "$(count_snapshots p)" -eq 1 ]
	done
	rm -f p.*
	attach_again
	kill "$target"
	wait_exit "$profiler"
	reasons heaptap.err | grep -q '^Exiting, 0 bytes in use$'
}

@test "zero turns triggers off" {
	"$HEAPTAP" record --sample-bytes 1 --alloc-interval 0 --free-interval 0 --inuse-interval 0 --interval 0 \
		-o p -- "$WORKLOADS/nine" >truth 2>log
	[ "$(reasons log)" = 'Exiting, 4096 MB in use' ]
	[ "$(count_snapshots p)" -eq 1 ]
}

@test "environment variables, which options override" {
	HEAP_PROFILE_ALLOCATION_INTERVAL=0 HEAP_PROFILE_INUSE_INTERVAL=0 TCMALLOC_SAMPLE_PARAMETER=1 \
		"$HEAPTAP" record -o a -- "$WORKLOADS/nine" >truth 2>log
	[ "$(reasons log)" = 'Exiting, 4096 MB in use' ]
	pprof -raw a.0001.pb.gz | grep -qE '^Period: 1$'

	HEAP_PROFILE_ALLOCATION_INTERVAL=$((2048 * MIB)) HEAP_PROFILE_INUSE_INTERVAL=0 \
		"$HEAPTAP" record --sample-bytes 1 -o b -- "$WORKLOADS/nine" >truth 2>log
	[ "$(reasons log | head -n 1)" = '2048 MB allocated cumulatively, 2048 MB currently in use' ]

	HEAP_PROFILE_ALLOCATION_INTERVAL=0 HEAP_PROFILE_INUSE_INTERVAL=0 \
		HEAP_PROFILE_DEALLOCATION_INTERVAL=$((1024 * MIB)) \
		"$HEAPTAP" record --sample-bytes 1 -o c -- "$WORKLOADS/nine" >truth 2>log
	reasons log | head -n 1 | grep -qE '^1028 MB freed cumulatively, 7168 MB currently in use$'

	HEAP_PROFILE_ALLOCATION_INTERVAL=0 HEAP_PROFILE_INUSE_INTERVAL=0 TCMALLOC_SAMPLE_PARAMETER=4096 \
		"$HEAPTAP" record --sample-bytes 1 --alloc-interval 1G -o d -- "$WORKLOADS/nine" >truth 2>log
	[ "$(count_snapshots d)" -eq 9 ]
	pprof -raw d.0001.pb.gz | grep -qE '^Period: 1$'

	spawn idle "$WORKLOADS/idle"
	wait_for_line idle.out '^idle'
	HEAP_PROFILE_TIME_INTERVAL=1 attach heaptap "$PID" -o e
	wait_for_line heaptap.err 'sec since the last dump'
}

@test "sizes take units" {
	attach_idle --alloc-interval 1048576 --inuse-interval 0
	allocate $MIB
	wait_for_reason '1 MB allocated cumulatively, 1 MB currently in use'
	end_session
	rm -f p.*
	attach_again --alloc-interval 1024K --inuse-interval 0
	allocate $MIB
	wait_for_reason '1 MB allocated cumulatively, 1 MB currently in use'
	end_session
}

has_snapshots() {
	[ "$(count_snapshots "$1")" -ge "$2" ]
}

# A snapshot that could not be written shows in the exit status.
end_failed_session() {
	kill -INT "$profiler"
	wait_exit "$profiler" || [ $? -eq 1 ]
}

@test "the session outlives a folder that cannot be written" {
	mount_small small 1m
	attach_idle -o small/p
	kill -USR2 "$profiler"
	poll "$PATIENCE" has_snapshots small/p 1
	mount -o remount,ro small
	kill -USR2 "$profiler"
	wait_for_line heaptap.err '^heaptap: .*small/p\.[0-9]{4}'
	allocate 1000
	mount -o remount,rw small
	kill -USR2 "$profiler"
	poll "$PATIENCE" has_snapshots small/p 2
	end_failed_session
	[ "$(by_leaf "$(last_snapshot small/p)" inuse_space | awk '$1 == "idle_malloc" { print $2 }')" -eq 1000 ]
}

@test "the session outlives a full disk, and half files do not" {
	mount_small small 256k
	attach_idle -o small/p
	allocate 1000
	dd if=/dev/zero of=small/filler bs=4k 2>/dev/null || true
	kill -USR2 "$profiler"
	wait_for_line heaptap.err '^heaptap: .*small/p\.[0-9]{4}'
	[ "$(find small -type f)" = small/filler ]
	rm small/filler
	kill -USR2 "$profiler"
	poll "$PATIENCE" has_snapshots small/p 1
	end_failed_session
	readable "$WORKLOADS/idle" small/p.*.pb.gz
	[ -z "$(find small -type f ! -name 'p.[0-9][0-9][0-9][0-9].pb.gz')" ]
}

late_snapshots() {
	pprof -comments "$(last_snapshot p)" | sed -nE 's/^loss: epoch_late ([0-9]+).*/\1/p'
}

# allocate_in_turn COUNT: and free, so many times the interval.
allocate_in_turn() {
	printf 'a 65536\nf\n%.0s' $(seq "$1") >idle.in
	wait_for_line idle.out '^done' "$PATIENCE" $((2 * $1))
}

# all_are_told COUNT: so many snapshots were due before the last one, and are there or counted.
all_are_told() {
	[ "$(late_snapshots)" -gt 0 ]
	[ $(($(late_snapshots) + $(count_snapshots p) - 1)) -eq "$1" ]
	[ "$(by_leaf "$(last_snapshot p)" alloc_space | awk '$1 == "idle_malloc" { print $2 }')" -eq $(($1 * 65536)) ]
	[ -z "$(by_leaf "$(last_snapshot p)" inuse_space | awk '$1 == "idle_malloc"')" ]
}

@test "snapshots that are due faster than they are written: all are there or counted" {
	attach_idle --alloc-interval 64K --inuse-interval 0
	allocate_in_turn 3000
	end_session
	all_are_told 3000
}

@test "snapshots that are due all the time hold up no signal and no timer" {
	spawn busy "$WORKLOADS/paced" 20000
	target=$PID
	wait_for_line busy.out '^paced'
	attach_again --alloc-interval 200 --inuse-interval 0
	wait_for_reason '.* allocated cumulatively, .*' 33
	kill -USR2 "$profiler"
	wait_for_reason signal
	end_session
	[ "$(late_snapshots)" -gt 0 ]
	rm -f p.*
	attach_again --alloc-interval 200 --inuse-interval 0 --duration 1
	wait_exit "$profiler"
	reasons heaptap.err | tail -n 1 | grep -q '^Detaching, '
}

@test "the end of the last process has its snapshot, however many wait" {
	attach_idle --follow --alloc-interval 64K --inuse-interval 0
	kill -STOP "$profiler"
	allocate_in_turn 400
	kill "$target"
	poll "$PATIENCE" is_gone "$target"
	kill -CONT "$profiler"
	wait_exit "$profiler"
	reasons heaptap.err | tail -n 1 | grep -q '^Exiting, 0 bytes in use$'
	all_are_told 400
}

@test "quiet is quiet, and the files are the same" {
	"$HEAPTAP" record -q --sample-bytes 1 -o p -- "$WORKLOADS/nine" >truth 2>log
	[ ! -s log ]
	[ "$(count_snapshots p)" -eq 9 ]
}
