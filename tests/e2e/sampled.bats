#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Sampled mode is unbiased in bytes and objects, for every site and size.

load helpers

SEEDS=20

# The small blocks decide about objects: at this distance some hundred of them are picked.
SAMPLE_BYTES=16384

@test "estimates are unbiased over $SEEDS seeds" {
	runs=()
	for ((seed = 1; seed <= SEEDS; seed++)); do
		"$HEAPTAP" record --sample-bytes "$SAMPLE_BYTES" -o "p$seed" -- \
			"$WORKLOADS/sites" "$seed" >"run$seed.truth" 2>"run$seed.log"
		snapshot=$(last_snapshot "p$seed")
		for type in alloc_objects alloc_space inuse_objects inuse_space; do
			by_leaf "$snapshot" "$type" >"run$seed.$type"
		done
		runs+=("run$seed")
	done
	python3 "$E2E/sampling_check.py" "$SAMPLE_BYTES" "${runs[@]}"
}

@test "the period stands in the profile, and sampled blocks are not live after their free" {
	"$HEAPTAP" record --sample-bytes 65536 -o p -- "$WORKLOADS/threads" 100000 >truth 2>log
	pprof -raw "$(last_snapshot p)" | grep -qE '^Period: 65536$'
	[ "$(by_leaf "$(last_snapshot p)" inuse_objects |
		awk '/^(produce|consume)_/ { sum += $2 } END { print sum + 0 }')" -eq 0 ]
}

@test "a distance larger than all allocations picks little and does no harm" {
	"$HEAPTAP" record --sample-bytes 1G -o p -- "$WORKLOADS/churn" 20 >truth 2>log
	[ "$(count_snapshots p)" -eq 1 ]
	readable "$WORKLOADS/churn" p.0001.pb.gz
}

@test "a request for more than there can be leaves the sampler as it is" {
	# On one CPU, as each follows a stream of its own.
	spawn idle taskset -c 0 "$WORKLOADS/idle" 100
	idle=$PID
	wait_for_line idle.out '^idle'
	attach heaptap "$idle" -o p
	# 2^47, 2^63, 3 * 2^62 and 2^64 - 1.
	for size in 140737488355328 9223372036854775808 13835058055282163712 18446744073709551615; do
		tell idle "x $size"
	done
	# So large that it is picked with certainty.
	tell idle "a $((100 << 20))"
	wait_for_line idle.out '^done' "$PATIENCE" 5
	kill -INT "$PID"
	wait_exit "$PID"
	for type in alloc inuse; do
		[ "$(by_leaf p.0001.pb.gz "${type}_objects")" = 'idle_malloc 1' ]
		[ "$(by_leaf p.0001.pb.gz "${type}_space")" = "idle_malloc $((100 << 20))" ]
	done
	pprof -comments p.0001.pb.gz | grep -qx 'losses: none'
}
