#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Scopes of several processes: what each of them says about itself, in one profile.

load helpers
load processes

# record_family COMMAND ROLE [OPTION...]: of the workload; only the processes with this role have
# anything in use at the end, as they were the last.
record_family() {
	local command=$1 role=$2 last
	shift 2

	rm -f p.* truth.*
	# shellcheck disable=SC2086
	timeout 60 "$HEAPTAP" record --follow --sample-bytes 1 -o p "$@" -- "$WORKLOADS/procs" $command >out 2>log
	mapfile -t last < <(role_pids "$role")
	processes_match "$(last_snapshot p)" "${last[@]}" || {
		cat log >&2
		return 1
	}
	reasons log | tail -n 1 | grep -q '^Exiting, '
	pprof -comments "$(last_snapshot p)" | grep -qx 'losses: none'
}

# spawn_waiting NAME ARGUMENT...: of the workload; it waits for a line. Sets PID.
spawn_waiting() {
	local name=$1
	shift
	spawn "$name" "$WORKLOADS/procs" --wait "$@"
	wait_for_line "$name.out" '^ready'
}

# attach_list PIDS OPTION...: a heaptap in the background; sets profiler.
attach_list() {
	local list=$1
	shift
	spawn heaptap "$HEAPTAP" record --sample-bytes 1 -o p -p "$list" "$@"
	profiler=$PID
	wait_attached heaptap
}

snapshot_now() {
	kill -USR2 "$profiler"
	wait_for_line heaptap.err '\(signal\)$' "$PATIENCE" "$1"
}

end_session() {
	kill -INT "$profiler"
	wait_exit "$profiler"
}

@test "children that are forked with live blocks" {
	record_family "fork 8" parent
	[ "$(label_values p.0001.pb.gz pid | wc -l)" -eq 9 ]
	[ "$(label_values p.0001.pb.gz comm)" = procs ]
	# Its number is the same everywhere.
	[ "$(label_values p.0001.pb.gz nspid)" = - ]
	# The same by pprof's own reading, which takes a plain number for a range.
	for pid in $(role_pids child); do
		pprof -raw -tagfocus "pid=^$pid\$" p.0001.pb.gz | awk '
			/^Locations$/ { exit }
			$4 ~ /^[0-9]+:$/ { sum += $1 }
			END { print sum }' >measured
		awk -F'[ =]' '/^site/ { sum += $4 } END { print sum }' "truth.$pid" | cmp - measured
	done
}

@test "children that are forked and execute a program" {
	record_family "forkexec 4" parent
	[ "$(label_values p.0001.pb.gz pid | wc -l)" -eq 5 ]
}

@test "a process that executes program after program" {
	record_family "chain 5" chained
	[ "$(label_values p.0001.pb.gz pid | wc -l)" -eq 1 ]
	record_family "threadexec 3" child
	[ "$(label_values p.0001.pb.gz pid | wc -l)" -eq 1 ]
}

@test "vfork and posix_spawn" {
	record_family "vfork 4" parent
	record_family "spawn 4" parent
}

@test "what a child does in its parent's memory is the parent's" {
	record_family "share 8" parent
	[ "$(label_values p.0001.pb.gz pid | wc -l)" -eq 5 ]
}

@test "a daemon outlives the command" {
	record_family "daemon 3" daemon
	[ "$(label_values p.0001.pb.gz pid | wc -l)" -eq 3 ]
}

@test "200 short children" {
	record_family "storm 200" parent
}

@test "127 processes that fork all at once" {
	record_family "bomb 6" parent
	[ "$(label_values p.0001.pb.gz pid | wc -l)" -eq 127 ]
}

@test "one PID for ten processes" {
	record_family "reuse 10" parent
	[ "$(label_values p.0001.pb.gz pid | wc -l)" -eq 2 ]
}

@test "the first thread ends before the process" {
	record_family "leader 50" threads
}

@test "forks beside threads that allocate" {
	record_family "threads 10" parent
}

@test "every way to attach" {
	for mode in perf multi session; do
		record_family "fork 3" parent --attach "$mode"
		record_family "share 4" parent --attach "$mode"
	done
}

@test "a PID namespace, in which PIDs are given again" {
	spawn outer unshare --pid --fork --mount-proc "$WORKLOADS/procs" --wait reuse 10
	outer=$PID
	wait_for_line outer.out '^ready 1$'
	inner=$(pgrep -P "$outer")
	STARTED+=("$inner")
	attach_list "$inner" --follow
	tell outer go
	wait_for_line outer.out '^done'
	tell outer end
	wait_exit "$profiler"
	LABEL=nspid processes_match "$(last_snapshot p)" 1
	[ "$(role_pids reused)" = 2 ]
	# What shares the number inside has numbers of its own here.
	[ "$("$E2E/pprof_labels.py" "$(last_snapshot p)" alloc_objects nspid pid |
		awk '$1 == 2 { print $2 }' | sort -u | wc -l)" -eq 10 ]
	[ "$("$E2E/pprof_labels.py" "$(last_snapshot p)" alloc_objects nspid pid |
		awk '$1 == 1 { print $2 }' | sort -u)" = "$inner" ]
}

@test "two processes by PID, and nothing of a third" {
	spawn_waiting one child 1
	one=$PID
	spawn_waiting two fork 2
	two=$PID
	spawn_waiting three child 3
	three=$PID
	attach_list "$one,$two"
	for name in one two three; do
		tell "$name" go
	done
	wait_exit "$one"
	wait_exit "$three"
	wait_for_line two.out '^done'
	# Children are not followed here.
	for pid in "$three" $(role_pids child | grep -vx "$one"); do
		rm -f "truth.$pid"
	done
	snapshot_now 1
	processes_match p.0001.pb.gz "$two"
	tell two end
	wait_exit "$profiler"
	processes_match "$(last_snapshot p)" "$two"
	[ "$(label_values "$(last_snapshot p)" pid | sort -n)" = "$(printf '%s\n' "$one" "$two" | sort -n)" ]
	reasons heaptap.err | tail -n 1 | grep -q '^Exiting, '
}

@test "following children of a PID, or none of a command" {
	spawn_waiting one forkexec 3
	one=$PID
	attach_list "$one" --follow
	tell one go
	wait_for_line one.out '^done'
	end_session
	processes_match "$(last_snapshot p)" "$one"
	[ "$(label_values "$(last_snapshot p)" pid | wc -l)" -eq 4 ]

	rm -f p.* truth.*
	"$HEAPTAP" record --sample-bytes 1 --no-follow -o p -- "$WORKLOADS/procs" fork 3 >out 2>log
	role_pids child | sed 's/^/truth./' | xargs rm
	processes_match "$(last_snapshot p)" "$(role_pids parent)"
}

@test "in use while they live, not after they have ended" {
	spawn one "$WORKLOADS/idle" 100
	one=$PID
	spawn two "$WORKLOADS/idle" 100
	two=$PID
	wait_for_line one.out '^idle'
	wait_for_line two.out '^idle'
	attach_list "$one,$two"
	tell one "a 5000"
	tell two "a 6000"
	wait_for_line one.out '^done'
	wait_for_line two.out '^done'
	snapshot_now 1
	printf '%s idle_malloc %s\n' "$one" 5000 "$two" 6000 | sort >want
	by_pid_leaf p.0001.pb.gz inuse_space | sort | cmp - want
	kill -9 "$one"
	wait_exit "$one" || [ $? -eq 137 ]
	snapshot_now 2
	by_pid_leaf p.0002.pb.gz alloc_space | sort | cmp - want
	by_pid_leaf p.0002.pb.gz inuse_space | awk '$3 > 0' >measured
	echo "$two idle_malloc 6000" | cmp - measured
	kill -9 "$two"
	wait_exit "$profiler"
	by_pid_leaf p.0003.pb.gz alloc_space | sort | cmp - want
	by_pid_leaf p.0003.pb.gz inuse_space | awk '$3 > 0' | cmp - measured
	[ "$(count_snapshots p)" -eq 3 ]
}

@test "a file series for each process" {
	timeout 60 "$HEAPTAP" record --follow --sample-bytes 1 --split -o p -- "$WORKLOADS/procs" forkexec 3 >out 2>log
	cat truth.* >truths
	mapfile -t pids < <(sed -nE 's/^process=([0-9]+) .*/\1/p' truths | sort -u)
	for pid in "${pids[@]}"; do
		mkdir "only.$pid"
		cp "truth.$pid" "only.$pid"
		# Each has in use what it had at its own end.
		TRUTHS=only.$pid processes_match "$(last_snapshot "p.$pid")" "$pid"
		[ "$(label_values "$(last_snapshot "p.$pid")" pid)" = "$pid" ]
		rm "p.$pid".[0-9][0-9][0-9][0-9].pb.gz
	done
	# That was all.
	[ -z "$(find . -name 'p.*')" ]
}

@test "a file series for each process, by SIGUSR2" {
	spawn one "$WORKLOADS/idle" 100
	one=$PID
	spawn two "$WORKLOADS/idle" 100
	two=$PID
	wait_for_line one.out '^idle'
	wait_for_line two.out '^idle'
	attach_list "$one,$two" --split
	tell one "a 5000"
	tell two "a 6000"
	wait_for_line one.out '^done'
	wait_for_line two.out '^done'
	snapshot_now 1
	poll "$PATIENCE" test -s "p.$one.0001.pb.gz"
	poll "$PATIENCE" test -s "p.$two.0001.pb.gz"
	[ "$(by_pid_leaf "p.$one.0001.pb.gz" inuse_space)" = "$one idle_malloc 5000" ]
	[ "$(by_pid_leaf "p.$two.0001.pb.gz" inuse_space)" = "$two idle_malloc 6000" ]
	kill -9 "$one"
	poll "$PATIENCE" test -s "p.$one.0002.pb.gz"
	[ "$(by_pid_leaf "p.$one.0002.pb.gz" inuse_space)" = "$one idle_malloc 5000" ]
	end_session
	[ "$(by_pid_leaf "p.$two.0002.pb.gz" inuse_space)" = "$two idle_malloc 6000" ]
	[ "$(find . -name 'p.*' | wc -l)" -eq 4 ]
}

@test "a file series for each process: the program and the comments are its own" {
	for name in one two; do
		spawn "$name" "$WORKLOADS/idle" 100
		printf -v "$name" %d "$PID"
		wait_for_line "$name.out" '^idle'
	done
	spawn heaptap "$HEAPTAP" record --split -o p -p "$one,$two"
	profiler=$PID
	wait_attached heaptap
	# So large that they are picked with certainty.
	tell one "a $((100 << 20))"
	tell two "a $((200 << 20))"
	wait_for_line one.out '^done'
	wait_for_line two.out '^done'
	end_session
	pprof -comments "p.$one.0001.pb.gz" | grep -q "inuse_space $((100 << 20)),"
	pprof -comments "p.$two.0001.pb.gz" | grep -q "inuse_space $((200 << 20)),"

	# The first of them is the program of nobody else.
	rm -f p.* truth.*
	spawn_waiting two fork 1
	two=$PID
	spawn heaptap "$HEAPTAP" record --sample-bytes 1 --split -o p -p "$one,$two"
	profiler=$PID
	wait_attached heaptap
	tell one "a 5000"
	wait_for_line one.out '^done' "$PATIENCE" 2
	tell two go
	wait_for_line two.out '^done'
	snapshot_now 1
	poll "$PATIENCE" test -s "p.$one.0001.pb.gz"
	poll "$PATIENCE" test -s "p.$two.0001.pb.gz"
	end_session
	readable "$WORKLOADS/idle" "p.$one.0001.pb.gz"
	readable "$WORKLOADS/procs" "p.$two.0001.pb.gz"
	tell two end
	wait_exit "$two"
}

@test "processes that have ended leave nothing in the kernel's maps" {
	spawn_waiting one storm 100
	one=$PID
	attach_list "$one" --follow
	tell one go
	wait_for_line one.out '^done'
	# One more drains what was there.
	snapshot_now 1
	snapshot_now 2
	poll 5 map_has processes 1
	poll 5 map_has process_infos 1
	objects=$(by_pid_leaf p.0002.pb.gz inuse_objects | awk '{ sum += $3 } END { print sum }')
	[ "$objects" -eq 60 ]
	poll 5 map_has live "$objects"
	end_session
	processes_match "$(last_snapshot p)" "$one"
}

# raw_chunks: how many parts of stacks are one process's own.
raw_chunks() {
	bpftool map dump id "$(map_id chunks)" -j |
		jq '[.[].formatted.value | select(.serial != 0)] | length'
}

has_raw_chunks() {
	[ "$(raw_chunks)" -eq "$1" ]
}

# compile: one more function, in a stack of its own. Until the unwind tables are there stacks are cut.
compile() {
	compiled=$((compiled + 1))
	tell heaptap "f$compiled"
	wait_for_line heaptap.out "^done f$compiled\$"
	[ "$(raw_chunks)" -gt 0 ]
}

@test "stacks with JIT code leave the table with their process" {
	spawn heaptap "$HEAPTAP" record --sample-bytes 1 -o p -- \
		sh -c "'$WORKLOADS/jit'; '$WORKLOADS/jit'"
	profiler=$PID
	compiled=0
	for run in 1 2; do
		wait_for_line heaptap.out '^jit' "$PATIENCE" "$run"
		pid=$(sed -n 's/^jit //p' heaptap.out | tail -n 1)
		poll "$PATIENCE" compile
		chunks=$(raw_chunks)
		[ "$chunks" -gt 0 ]
		# They stay while it lives.
		snapshot_now $((2 * run - 1))
		has_raw_chunks "$chunks"
		kill "$pid"
		rm -f "/tmp/perf-$pid.map"
		[ "$run" -eq 2 ] || {
			wait_for_line heaptap.out '^jit' "$PATIENCE" 2
			snapshot_now 2
			poll 5 has_raw_chunks 0
		}
	done
	wait_exit "$profiler"
	# Nothing was lost with them.
	by_leaf "$(last_snapshot p)" alloc_space >measured
	[ "$(awk '$1 ~ /^jit_malloc/ { sum += $2 } END { print sum }' measured)" = $((1000 * compiled)) ]
	pprof -comments "$(last_snapshot p)" | grep -qx 'losses: none'
}

# The live table and its filter know what is in use, and no more.
nothing_stale() {
	local objects

	objects=$(by_leaf "$(last_snapshot p)" inuse_objects | awk '{ sum += $2 } END { print sum + 0 }')
	[ "$objects" -ge 100 ]
	poll 5 map_has live "$objects"
	[ "$(bss_sum live_filter)" -eq "$objects" ]
}

@test "a program that is executed inside realloc has nothing of the one before" {
	# The second one's stack where the first one's was.
	spawn one setarch -R "$WORKLOADS/interrupted" --wait execute
	one=$PID
	wait_for_line one.out '^ready'
	attach_list "$one" --follow
	tell one go
	wait_for_line one.out '^ready' "$PATIENCE" 2
	tell one go
	wait_for_line one.out '^site='
	snapshot_now 1
	nothing_stale
	end_session
}

@test "processes that end inside realloc leave nothing in the kernel's maps" {
	spawn one "$WORKLOADS/interrupted" --wait end 10
	wait_for_line one.out '^ready'
	attach_list "$PID" --follow
	tell one go
	wait_for_line one.out '^site='
	snapshot_now 1
	snapshot_now 2
	poll 5 map_has processes 1
	nothing_stale
	end_session
}

@test "the whole machine" {
	for name in one two; do
		spawn "$name" "$WORKLOADS/idle" 100
		printf -v "$name" %d "$PID"
		wait_for_line "$name.out" '^idle'
	done
	spawn heaptap "$HEAPTAP" record -a -o p
	profiler=$PID
	wait_attached heaptap
	# So large that they are picked with certainty.
	tell one "a $((100 << 20))"
	tell two "a $((200 << 20))"
	spawn three "$WORKLOADS/idle" $((300 << 20))
	three=$PID
	for name in one two; do
		wait_for_line "$name.out" '^done'
	done
	wait_for_line three.out '^idle'
	end_session
	by_pid_leaf "$(last_snapshot p)" inuse_space | grep ' idle_malloc ' | sort >measured
	printf '%s idle_malloc %s\n' "$one" $((100 << 20)) "$two" $((200 << 20)) "$three" $((300 << 20)) |
		sort | cmp - measured
	run ! grep -qx "$profiler" <(label_values "$(last_snapshot p)" pid)
}

# named_stack: one of 10 MB more is whole and has names.
named_stack() {
	tell again "a $((10 << 20))"
	kill -USR2 "$profiler"
	snapshots=$((snapshots + 1))
	wait_for_line heaptap.err '\(signal\)$' "$PATIENCE" "$snapshots"
	"$HEAPTAP" report --folded --sample-index alloc_space "$(last_snapshot p)" |
		grep -qE '^_start;.*;main;idle_malloc [0-9]+$'
}

@test "a file that only a process goes through first that is gone when it is looked at" {
	cp "$WORKLOADS/idle" again
	spawn heaptap "$HEAPTAP" record -a -o p
	profiler=$PID
	wait_attached heaptap
	kill -STOP "$profiler"
	# So large that it is picked with certainty.
	./again $((100 << 20)) </dev/null >first.out
	kill -CONT "$profiler"
	snapshot_now 1
	run ! grep -q idle_malloc <(by_leaf p.0001.pb.gz alloc_space)
	# The next one can be looked at: from then on there are names and a table.
	spawn again "$PWD/again" 100
	wait_for_line again.out '^idle'
	snapshots=1
	poll "$PATIENCE" named_stack
	end_session
}

# alloc_matches: what was allocated by each process that was counted, by whatever stack.
alloc_matches() {
	local type

	for type in alloc_objects alloc_space; do
		by_pid_leaf "$(last_snapshot p)" "$type" | awk '{ sum[$1] += $3 }
			END { for (pid in sum) printf "%s %.0f\n", pid, sum[pid] }' | sort >measured
		awk -v type="$type" '
			/^process=/ { pid = substr($1, 9) }
			/^site=/ {
				for (i = 2; i <= NF; i++)
					if (index($i, type "=") == 1)
						sum[pid] += substr($i, length(type) + 2)
			}
			END { for (pid in sum) if (sum[pid]) printf "%s %.0f\n", pid, sum[pid] }' truth.* | sort >want
		"$@" || return 1
	done
}

@test "programs that are not known before they run: exact for each process, by whatever name" {
	"$HEAPTAP" record --follow --sample-bytes 1 -o p -- \
		sh -c "'$WORKLOADS/procs' child 5; '$WORKLOADS/procs' fork 4; '$WORKLOADS/procs' storm 50" >out 2>log
	alloc_matches measured_has_all
}

# measured_has_all: also what has no truth, as the shell.
measured_has_all() {
	[ -z "$(comm -23 want measured)" ]
}

has_loss() {
	grep -qE "^heaptap: warning: [0-9]+ times.* $1: " log
	losses "$(last_snapshot p)" | grep -qE "^loss: $1 [1-9]"
}

@test "a full live table: alloc_* stays exact for each process" {
	"$HEAPTAP" record --follow --sample-bytes 1 --max-live 16 -o p -- "$WORKLOADS/procs" fork 8 >out 2>log
	has_loss live_full
	alloc_matches cmp want measured
}

@test "a process has its share of the live table back when its blocks are freed" {
	"$HEAPTAP" record --follow --sample-bytes 1 --max-live 1000 -o p -- "$WORKLOADS/interrupted" others 2000 >truth 2>log
	has_loss live_full
	[ "$(by_leaf "$(last_snapshot p)" inuse_objects | awk '/_block / && $2 > 0')" = 'rest_block 100' ]
	grep -qE '^site=rest_block .* inuse_objects=100 ' truth
}

@test "the site table is known by what it has, also where an older epoch has been drained" {
	spawn paths "$WORKLOADS/paths" --wait 1000
	wait_for_line paths.out '^ready'
	# Closed after 600 of 1000 blocks, and drained after all.
	attach_list "$PID" --alloc-interval 9600
	kill -STOP "$profiler"
	tell paths go
	wait_for_line paths.out '^site='
	[ "$(bss_sum site_count)" -eq 1000 ]
	kill -CONT "$profiler"
	wait_for_line heaptap.err '^Dumping '
	[ "$(bss_sum site_count)" -eq 400 ]
	map_has sites 400
	end_session
	matches_truth paths.out "$(last_snapshot p)"
}

@test "a full stack table: alloc_* stays exact for each process" {
	"$HEAPTAP" record --follow --sample-bytes 1 --max-stacks 2 -o p -- "$WORKLOADS/procs" fork 8 >out 2>log
	has_loss stack_full
	alloc_matches cmp want measured
}

# measured_part: what was counted is right.
measured_part() {
	[ -s measured ] && [ -z "$(comm -13 want measured)" ]
}

@test "more processes than --max-processes: those that are counted are exact" {
	"$HEAPTAP" record --follow --sample-bytes 1 --max-processes 4 -o p -- "$WORKLOADS/procs" fork 8 >out 2>log
	has_loss process_full
	alloc_matches measured_part
	[ "$(label_values "$(last_snapshot p)" pid | wc -l)" -le 4 ]
	grep -q "^$(role_pids parent) " measured
}

@test "names of processes and cgroups that would break a line, a terminal or a reader" {
	python=$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')
	spawn odd "$python" -c '
import ctypes, sys
ctypes.CDLL(None).prctl(15, b"a\n\x1b[31m\xff", 0, 0, 0)
print("ready", flush=True)
blocks = []
for line in sys.stdin:
    blocks.append(bytearray(100000))
    print("done", flush=True)'
	odd=$PID
	wait_for_line odd.out '^ready'
	spawn heaptap "$HEAPTAP" record --sample-bytes 1 -o p -p "$odd"
	profiler=$PID
	wait_attached heaptap
	tell odd x
	wait_for_line odd.out '^done'
	end_session
	grep -qxF "Attached to $odd (a??[31m?)" heaptap.err
	[ "$(label_values p.0001.pb.gz comm)" = 'a??[31m?' ]
}

has_a_map() {
	grep -qs '^map_id' "/proc/$profiler"/fdinfo/*
}

@test "processes that all exit while probes are placed" {
	for name in one two; do
		spawn "$name" "$WORKLOADS/idle" 100
		wait_for_line "$name.out" '^idle'
		printf -v "$name" %d "$PID"
	done
	spawn heaptap "$HEAPTAP" record --follow -o p -p "$one,$two"
	profiler=$PID
	poll "$PATIENCE" has_a_map
	# Nobody waits for them until the session has ended.
	kill -9 "$one" "$two"
	wait_exit "$profiler" || [ $? -eq 1 ]
	grep -qE '^heaptap: 2 processes exited before the probes were placed|\(Exiting, ' heaptap.err
}

# Its target is opened: who is forked from now on is to be counted.
has_opened() {
	find "/proc/$profiler/fd" -lname '*pidfd*' 2>/dev/null | grep -q .
}

@test "children that are forked while probes are placed" {
	spawn_waiting brood brood
	one=$PID
	spawn heaptap "$HEAPTAP" record --follow --sample-bytes 1 -o p -p "$one"
	profiler=$PID
	poll "$PATIENCE" has_opened
	tell brood go
	wait_attached heaptap
	tell brood go
	wait_for_line brood.out '^done'
	tell brood end
	wait_exit "$profiler"
	[ "$(role_pids child | wc -l)" -gt 1 ]
	processes_match "$(last_snapshot p)"
}
