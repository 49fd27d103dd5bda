#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# --fork-copy: a forked child has in use what its parent had, and has allocated none of it.

load helpers
load processes

# copy_family COMMAND BLOCKS [OPTION...]: while all of them live, each has in use what it says; at
# the end the parent alone.
copy_family() {
	local command=$1 blocks=$2 profiler living
	shift 2

	rm -f p.* truth.*
	spawn heaptap "$HEAPTAP" record --follow --fork-copy --sample-bytes 1 --alloc-interval 0 \
		--inuse-interval 0 -o p "$@" -- "$WORKLOADS/copies" --wait "$command" "$blocks"
	profiler=$PID
	wait_attached heaptap
	tell heaptap go
	wait_for_line heaptap.out '^done'
	mapfile -t living < <(sed -nE 's/^process=([0-9]+) .*/\1/p' truth.*)
	kill -USR2 "$profiler"
	wait_for_line heaptap.err '\(signal\)$'
	processes_match p.0001.pb.gz "${living[@]}"
	tell heaptap end
	wait_exit "$profiler"
	processes_match p.0002.pb.gz "$(role_pids parent)"
	[ "$(reasons heaptap.err | wc -l)" -eq 2 ]
	pprof -comments p.0002.pb.gz | grep -qx 'losses: none'
}

# last_of COMMAND BLOCKS ROLE [OPTION...]: at the end, that is what the last one has.
last_of() {
	local command=$1 blocks=$2 role=$3
	shift 3

	rm -f p.* truth.*
	timeout 60 "$HEAPTAP" record --follow --fork-copy --sample-bytes 1 -o p "$@" -- \
		"$WORKLOADS/copies" "$command" "$blocks" >out 2>log
	processes_match "$(last_snapshot p)" "$(role_pids "$role")"
	pprof -comments "$(last_snapshot p)" | grep -qx 'losses: none'
}

@test "a child has in use what its parent had at the fork" {
	copy_family one 1000
}

@test "eight children of a parent that goes on" {
	copy_family many 1000
}

@test "children of children" {
	copy_family nested 1000
}

@test "200,000 blocks that parent and child free while they are copied" {
	copy_family one 200000
}

@test "every way to attach" {
	for mode in perf multi session; do
		copy_family many 300 --attach "$mode"
		copy_family nested 300 --attach "$mode"
	done
}

@test "the last one has what its parents had that ended before" {
	last_of orphan 1000 last
	last_of orphan 20000 last
}

@test "children that execute a program or end" {
	last_of exec 1000 parent
	last_of short 300 parent
}
