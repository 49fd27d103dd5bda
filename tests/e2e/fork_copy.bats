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
	copy_family one 200000 --max-live 1000000
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

@test "a file series for each process: what it had at its end" {
	timeout 60 "$HEAPTAP" record --follow --fork-copy --sample-bytes 1 --split -o p -- \
		"$WORKLOADS/copies" orphan 1000 >out 2>log
	cat truth.* >truths
	mapfile -t pids < <(sed -nE 's/^process=([0-9]+) .*/\1/p' truths | sort -u)
	[ "${#pids[@]}" -eq 3 ]
	for pid in "${pids[@]}"; do
		mkdir "only.$pid"
		cp "truth.$pid" "only.$pid"
		TRUTHS=only.$pid processes_match "$(last_snapshot "p.$pid")" "$pid"
	done
}

# Who shares memory has the same blocks, and no copies of them.
@test "children in their parent's memory, or that are soon another program" {
	for command in "vfork 4" "spawn 4" "share 8" "forkexec 4" "storm 100"; do
		rm -f p.* truth.*
		# shellcheck disable=SC2086
		timeout 60 "$HEAPTAP" record --follow --fork-copy --sample-bytes 1 -o p -- \
			"$WORKLOADS/procs" $command >out 2>log
		processes_match "$(last_snapshot p)" "$(role_pids parent)"
		pprof -comments "$(last_snapshot p)" | grep -qx 'losses: none'
	done
}

@test "copies leave nothing in the kernel's maps" {
	spawn copies "$WORKLOADS/copies" --wait nested 2000
	wait_for_line copies.out '^ready'
	attach heaptap "$PID" --follow --fork-copy --sample-bytes 1 -o p
	profiler=$PID
	tell copies go
	wait_for_line copies.out '^done'
	kill -USR2 "$profiler"
	wait_for_line heaptap.err '\(signal\)$'
	poll 5 map_has fork_kept 0
	poll 5 map_has fork_frees 0
	mapfile -t living < <(sed -nE 's/^process=([0-9]+) .*/\1/p' truth.*)
	[ "${#living[@]}" -eq 6 ]
	processes_match p.0001.pb.gz "${living[@]}"
	objects=$(by_pid_leaf p.0001.pb.gz inuse_objects | awk '{ sum += $3 } END { print sum }')
	map_has live "$objects"
	[ "$(bss_sum live_filter)" -eq "$objects" ]
	for pid in $(role_pids child); do
		kill -9 "$pid"
	done
	kill -USR2 "$profiler"
	poll 5 map_has processes 1
	objects=$(awk '/role=parent/ { found = 1 } /role=child/ { found = 0 }
		found && /^site/ { sub(/.*inuse_objects=/, ""); sum += $1 } END { print sum }' truth.*)
	poll 5 map_has live "$objects"
	[ "$(bss_sum live_filter)" -eq "$objects" ]
	kill -INT "$profiler"
	wait_exit "$profiler"
}

@test "copies for which there is no room are in nobody's use" {
	# The share of one process is three quarters.
	spawn heaptap "$HEAPTAP" record --follow --fork-copy --sample-bytes 1 --max-live 1600 -o p -- \
		"$WORKLOADS/copies" --wait idle 1000
	profiler=$PID
	wait_attached heaptap
	tell heaptap go
	wait_for_line heaptap.out '^done'
	kill -USR2 "$profiler"
	wait_for_line heaptap.err '\(signal\)$'
	by_label_leaf p.0001.pb.gz alloc_objects,inuse_objects,inuse_space pid |
		awk -v parent="$(role_pids parent)" '
			$1 == parent { allocated += $3; held += $4; space += $5 }
			$1 != parent { copied += $4; copied_space += $5; wrong += $3 }
			END {
				print held, copied, space - copied_space
				exit allocated != 1000 || held != 1000 || wrong
			}' >measured
	read -r _ copied missing <measured
	# The map keeps some of its room for other CPUs.
	[ "$copied" -ge 500 ]
	[ "$copied" -le 1000 ]
	losses p.0001.pb.gz | grep -qE "^loss: live_full $((1000 - copied)) \($missing bytes\)"
	tell heaptap end
	wait_exit "$profiler"
}

@test "--fork-copy needs children" {
	for options in "-p $$" "--no-follow -- true"; do
		status=0
		# shellcheck disable=SC2086
		"$HEAPTAP" record --fork-copy $options 2>err || status=$?
		[ "$status" -eq 2 ]
		grep -q '^heaptap: --fork-copy .*follow' err
	done
}

@test "what is inherited counts for --inuse-interval" {
	spawn heaptap "$HEAPTAP" record --follow --fork-copy --sample-bytes 1 --inuse-interval 5M -o p -- \
		"$WORKLOADS/copies" --wait idle 20000
	profiler=$PID
	wait_attached heaptap
	tell heaptap go
	# 3 MB of the parent's alone do not get there.
	wait_for_line heaptap.err '^Dumping heap profile .* \(6 MB currently in use\)$'
	wait_for_line heaptap.out '^done'
	tell heaptap end
	wait_exit "$profiler"
	processes_match p.0001.pb.gz "$(role_pids parent)" "$(role_pids child)"
}
