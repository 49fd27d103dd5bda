#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Whom the links reach: what that costs others, and what is seen of processes that start later.

load helpers
load processes

# sum PID FUNCTION TYPE: in the last snapshot.
sum() {
	by_pid_leaf "$(last_snapshot p)" "$3" |
		awk -v pid="$1" -v name="$2" '$1 == pid && $2 == name { sum += $3 } END { print sum + 0 }'
}

truth_of() {
	sed -nE "s/^site=$2 .*\\b$3=([0-9]+).*/\\1/p" "truth.$1" | awk '{ sum += $1 } END { print sum + 0 }'
}

pairs() {
	local lines
	lines=$(wc -l <outsider.out)
	tell outsider x
	wait_for_line outsider.out '^pairs' "$PATIENCE" "$lines"
	awk '/^pairs/ { sum += $2 } END { print sum }' outsider.out
}

more_pairs() {
	[ "$(pairs)" -gt "$1" ]
}

# others_are_left_alone OPTION...: a family whose second child starts when they are.
others_are_left_alone() {
	rm -f p.* truth.* again.*
	spawn outsider "$WORKLOADS/paced" 100000
	outsider=$PID
	wait_for_line outsider.out '^paced'
	spawn heaptap "$HEAPTAP" record -v --sample-bytes 1 -o p "$@" -- "$WORKLOADS/procs" --wait steps 2
	profiler=$PID
	wait_for_line heaptap.out '^ready'
	tell heaptap go
	tell heaptap child
	wait_for_line heaptap.out '^child'
	wait_for_line heaptap.err 'they are left alone'
	before=$(pairs)
	tell heaptap child
	wait_for_line heaptap.out '^child' "$PATIENCE" 2
	mapfile -t children < <(sed -n 's/^child //p' heaptap.out)
	wait_for_line heaptap.err "PID ${children[1]} is reached"
	poll "$PATIENCE" more_pairs $((before + 300000))
	touch again."${children[0]}" again."${children[1]}"
	wait_for_line heaptap.out '^done'
	tell heaptap end
	wait_exit "$profiler"
	after=$(pairs)
	kill "$outsider"

	# All that was there already is exact, through the change.
	parent=$(role_pids parent)
	for pid in "$parent" "${children[0]}"; do
		for function in held_block own_block shared_block moved_block; do
			for type in alloc_objects alloc_space; do
				[ "$(sum "$pid" $function $type)" = "$(truth_of "$pid" $function $type)" ]
			done
		done
	done
	[ "$(sum "$parent" held_block inuse_space)" = "$(truth_of "$parent" held_block inuse_space)" ]
	# The other from when it was reached, and that is said.
	for type in alloc_objects alloc_space; do
		[ "$(sum "${children[1]}" shared_block $type)" = "$(truth_of "${children[1]}" shared_block $type)" ]
		[ "$(sum "${children[1]}" own_block $type)" -le "$(truth_of "${children[1]}" own_block $type)" ]
	done
	pprof -comments "$(last_snapshot p)" | grep -q '^late: 1 process that started in the scope'
	# The others' calls are not met any more.
	met=$(sed -nE 's/^Allocations: [0-9]+ in the scope, ([0-9]+) in other.*/\1/p' heaptap.err)
	then=$(sed -nE 's/^Allocations so far: [0-9]+ in the scope, ([0-9]+) in other.*/\1/p' heaptap.err)
	[ "$then" -gt 10000 ]
	[ "$((met - then))" -lt $(((after - before) / 2)) ]
}

@test "others are left alone when they make more calls" {
	others_are_left_alone
}

@test "the same without sessions" {
	others_are_left_alone --attach multi
}

@test "the same with perf events" {
	others_are_left_alone --attach perf
}

@test "children are reached when a thousand have ended before" {
	# More than are kept apart by PID.
	cat >command <<-'END'
		i=0
		while [ $i -lt 1100 ]; do (:); i=$((i + 1)); done
		echo forked
		read -r line
		"$WORKLOADS/idle" 100
	END
	spawn heaptap "$HEAPTAP" record -v --sample-bytes 1 -o p -- sh ./command
	profiler=$PID
	wait_for_line heaptap.out '^forked'
	kill -USR2 "$profiler"
	wait_for_line heaptap.err '\(signal\)$'
	spawn outsider "$WORKLOADS/paced" 100000
	wait_for_line heaptap.err 'they are left alone'
	tell heaptap go
	wait_for_line heaptap.out '^idle'
	wait_for_line heaptap.err "PID $(sed -n 's/^idle //p' heaptap.out) is reached"
	tell heaptap "a 5000"
	wait_for_line heaptap.out '^done'
	kill -INT "$profiler"
	wait_exit "$profiler"
	pid=$(sed -n 's/^idle //p' heaptap.out)
	STARTED+=("$pid")
	[ "$(sum "$pid" idle_malloc alloc_space)" = 5000 ]
}

@test "an allocator that is found when the only process that is reached has ended" {
	cp "$WORKLOADS/arena.so" a.so
	cat >command <<-'END'
		read -r line
		exec 3<&0
		"$WORKLOADS/late" <&3 &
	END
	spawn outsider "$WORKLOADS/paced" 100000
	wait_for_line outsider.out '^paced'
	spawn heaptap "$HEAPTAP" record -v --attach perf --sample-bytes 1 -o p -- sh ./command
	profiler=$PID
	wait_for_line heaptap.err 'they are left alone'
	command=$(sed -nE 's/^Attached to ([0-9]+) .*/\1/p' heaptap.err)
	kill -STOP "$profiler"
	tell heaptap go
	wait_for_line heaptap.out '^late'
	child=$(sed -n 's/^late //p' heaptap.out)
	STARTED+=("$child")
	tell heaptap "open 0 $PWD/a.so"
	wait_for_line heaptap.out '^open'
	poll "$PATIENCE" is_gone "$command"
	kill -CONT "$profiler"
	wait_for_line heaptap.err "^Allocator found in $PWD/a.so "
	wait_for_line heaptap.err "PID $child is reached"
	tell heaptap "use 0 10"
	wait_for_line heaptap.out '^use'
	tell heaptap end
	wait_exit "$profiler"
	matches_truth heaptap.out "$(last_snapshot p)"
}

# What cannot be reached in time is told, and holds up nothing.
@test "processes that come faster than they can be reached" {
	spawn outsider "$WORKLOADS/paced" 100000
	wait_for_line outsider.out '^paced'
	cat >command <<-'END'
		while :; do
			sleep 0.1 &
			sleep 0.05
		done
	END
	for mode in perf session; do
		rm -f p.*
		spawn heaptap "$HEAPTAP" record --attach "$mode" --sample-bytes 1 --duration 10 -o p -- sh ./command
		profiler=$PID
		wait_attached heaptap
		command=$(sed -nE 's/^Attached to ([0-9]+) .*/\1/p' heaptap.err)
		STARTED+=("$command")
		poll 20 is_gone "$profiler"
		wait "$profiler"
		kill "$command"
		grep -q 'they are left alone' heaptap.err
		pprof -comments "$(last_snapshot p)" |
			grep -qE '^late: [0-9]+ processes .* is not counted; [0-9]+ ended before'
	done
}

@test "--follow counts children from their first instruction, whatever others do" {
	spawn outsider "$WORKLOADS/paced" 100000
	wait_for_line outsider.out '^paced'
	spawn heaptap "$HEAPTAP" record --follow --sample-bytes 1 -o p -- "$WORKLOADS/procs" --wait steps 1
	profiler=$PID
	wait_for_line heaptap.out '^ready'
	tell heaptap go
	sleep 5
	tell heaptap child
	wait_for_line heaptap.out '^child'
	touch again."$(sed -n 's/^child //p' heaptap.out)"
	wait_for_line heaptap.out '^done'
	tell heaptap end
	wait_exit "$profiler"
	run ! grep -q 'left alone' heaptap.err
	processes_match "$(last_snapshot p)" "$(role_pids parent)"
	pprof -comments "$(last_snapshot p)" | grep -qx 'losses: none'
}

@test "processes by PID cost others nothing" {
	spawn outsider "$WORKLOADS/paced" 100000
	wait_for_line outsider.out '^paced'
	for name in one two; do
		spawn "$name" "$WORKLOADS/procs" --wait child 3
		wait_for_line "$name.out" '^ready'
		printf -v "$name" %d "$PID"
	done
	spawn heaptap "$HEAPTAP" record -v --sample-bytes 1 -o p -p "$one,$two"
	profiler=$PID
	wait_attached heaptap
	for name in one two; do
		tell "$name" go
		wait_for_line "$name.out" '^done' || wait_exit "${!name}"
	done
	wait_exit "$profiler"
	for pid in "$one" "$two"; do
		[ "$(sum "$pid" own_block alloc_objects)" = 20 ]
		[ "$(sum "$pid" own_block alloc_space)" = "$(truth_of "$pid" own_block alloc_space)" ]
	done
	grep -q 'Allocations: 40 in the scope, 0 in other processes' heaptap.err
}
