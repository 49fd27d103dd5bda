#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Exact mode: per site, in objects and bytes, what workloads say about themselves.

load helpers

record_exact() {
	local workload=$1
	shift
	"$HEAPTAP" record --sample-bytes 1 -o p "$@" >truth 2>log || {
		cat log >&2
		return 1
	}
	matches_truth truth "$(last_snapshot p)" || {
		cat log >&2
		return 1
	}
}

exact() {
	record_exact "$1" -- "$WORKLOADS/$1" "${@:2}"
}

@test "every allocation function" {
	exact calls
}

@test "every case of realloc" {
	exact realloc
}

@test "failed calls count nothing" {
	exact failures
}

@test "16 producers and 16 consumers, a million blocks, none live at the end" {
	exact threads 1000000
	run ! grep -E '^site=.* inuse_objects=[1-9]' truth
	[ "$(by_leaf "$(last_snapshot p)" inuse_space | awk '/^(produce|consume)_/ { sum += $2 } END { print sum + 0 }')" -eq 0 ]
}

@test "a thousand threads come and go" {
	exact churn 1000
}

@test "forks with live blocks" {
	# The parent alone.
	record_exact forks --no-follow -- "$WORKLOADS/forks"
}

@test "jumps, cancels and deaths in realloc" {
	exact jumps
}

@test "the same with every way to attach" {
	for mode in perf multi session; do
		for workload in calls realloc failures jumps; do
			rm -f p.*
			record_exact "$workload" --attach "$mode" -- "$WORKLOADS/$workload"
		done
	done
}

@test "the same when attached by PID" {
	for workload in calls realloc churn jumps; do
		rm -f p.*
		spawn "$workload" "$WORKLOADS/$workload" --wait
		wait_for_line "$workload.out" '^ready'
		attach "heaptap_$workload" "$PID" --sample-bytes 1 -o p
		tell "$workload" go
		wait_for_line "$workload.out" '^site=' 60
		tell "$workload" end
		wait_exit "$PID"
		matches_truth "$workload.out" "$(last_snapshot p)"
	done
}

@test "frees of blocks from before the attach are ignored" {
	spawn idle "$WORKLOADS/idle" 1000000
	wait_for_line idle.out '^idle'
	attach heaptap "$PID" --sample-bytes 1 -o p
	tell idle f
	wait_for_line idle.out '^done'
	tell idle "a 5000"
	wait_for_line idle.out '^done' "$PATIENCE" 2
	kill -INT "$PID"
	wait_exit "$PID"
	[ "$(by_leaf "$(last_snapshot p)" inuse_space | awk '$1 == "idle_malloc" { print $2 }')" = 5000 ]
	[ "$(by_leaf "$(last_snapshot p)" alloc_objects | awk '$1 == "idle_malloc" { print $2 }')" = 1 ]
}

@test "a deep stack is whole up to main, a deeper one says that it is cut" {
	"$HEAPTAP" record --sample-bytes 1 -o deep -- "$WORKLOADS/deep" 400 2>log
	"$HEAPTAP" report --folded --sample-index alloc_objects deep.0001.pb.gz |
		grep ';leaf_malloc 1$' >stack
	[ "$(tr ';' '\n' <stack | grep -cx descend)" -eq 400 ]
	grep -qE '(^|;)main;descend;' stack
	run ! grep -qF '[cut: more' stack

	"$HEAPTAP" record --sample-bytes 1 -o deeper -- "$WORKLOADS/deep" 1000 2>log
	"$HEAPTAP" report --folded --sample-index alloc_objects deeper.0001.pb.gz |
		grep ';leaf_malloc 1$' >stack
	grep -qF '[cut: more than 512 frames]' stack
	[ "$(tr ';' '\n' <stack | grep -cx descend)" -ge 500 ]
}

@test "a full live table makes inuse a lower bound, alloc stays exact" {
	run "$HEAPTAP" record --sample-bytes 1 --max-live 10 -o p -- "$WORKLOADS/calls"
	[ "$status" -eq 0 ]
	[[ $output == *"live_full: allocations counted in alloc_* but not in inuse_*"* ]]
	[ "$("$HEAPTAP" report --folded --sample-index inuse_objects "$(last_snapshot p)" |
		awk '{ sum += $NF } END { print sum + 0 }')" -le 10 ]
	"$WORKLOADS/calls" >truth
	awk -F'[ =]' '{ sum += $4 } END { print sum }' truth >want
	"$HEAPTAP" report --folded --sample-index alloc_objects "$(last_snapshot p)" >folded
	# The workload's own sites, whatever else the program allocates.
	awk -F'[ =]' 'NR == FNR { site[$2]; next }
		{ n = split($1, frame, ";"); if (frame[n] in site) sum += $NF } END { print sum }' truth folded |
		cmp - want
}
