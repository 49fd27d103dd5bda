#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Real programs attached to while they work, and what remains after the end of either side.

load helpers

# What the kernel holds of BPF. Freed a moment after its owner is gone.
bpf_objects() {
	local kind
	for kind in link prog map; do
		bpftool -j "$kind" show | jq length
	done | paste -sd ' '
}

# bpf_objects_are BEFORE: no more of any kind. There may be less: maps are freed some time after their
# owner has ended.
bpf_objects_are() {
	bpf_objects | awk -v before="$1" '{
		split(before, had)
		for (i = 1; i <= 3; i++)
			more += $i > had[i]
	} END { exit more != 0 }'
}

has_no_breakpoint() {
	[ "$("$E2E/breakpoints.py" "$1")" -eq 0 ]
}

@test "redis-server under load" {
	# Debian's redis brings jemalloc; libc in front of it gives malloc back to libc.
	spawn redis env LD_PRELOAD=/lib/x86_64-linux-gnu/libc.so.6 redis-server --port 0 \
		--unixsocket "$PWD/redis.sock" --save '' --dir "$PWD"
	redis=$PID
	wait_for_line redis.out 'ready to accept connections'
	spawn load redis-benchmark -s "$PWD/redis.sock" -l -t set,lpush,lrange_100 -r 10000 -d 2000 -q
	load=$PID

	attach heaptap "$redis" --interval 1 --sample-bytes 65536 -o p
	profiler=$PID
	while ! has_lines heaptap.err 'sec since the last dump' 2; do
		[ "$(redis-cli -s "$PWD/redis.sock" ping)" = PONG ]
		! is_gone "$profiler" || return 1
	done
	kill -INT "$profiler"
	wait_exit "$profiler"
	reasons heaptap.err | tail -n 1 | grep -q '^Detaching, '
	[ "$(redis-cli -s "$PWD/redis.sock" ping)" = PONG ]
	! is_gone "$load" || return 1

	readable "$(readlink "/proc/$redis/exe")" p.*.pb.gz
	pprof -top -sample_index=alloc_space "$(last_snapshot p)" | grep -q zmalloc
	has_no_breakpoint "$redis"
}

@test "python3 under load" {
	spawn python /usr/bin/python3 -u -c '
import sys
kept = []
for line in sys.stdin:
    kept.append(bytearray(10000))
    text = "".join([str(n) * 100 for n in range(2000)])
    print("answer", line.strip(), len(text))
'
	python=$PID
	tell python 0
	wait_for_line python.out '^answer 0 '
	attach heaptap "$python" --interval 1 --sample-bytes 65536 -o p
	profiler=$PID
	n=1
	while ! has_lines heaptap.err 'sec since the last dump' 2; do
		tell python "$n"
		wait_for_line python.out "^answer $n "
		n=$((n + 1))
	done
	kill -TERM "$profiler"
	wait_exit "$profiler"
	tell python after
	wait_for_line python.out '^answer after '
	readable "$(readlink "/proc/$python/exe")" p.*.pb.gz
	[ "$(by_leaf "$(last_snapshot p)" alloc_space | wc -l)" -gt 0 ]
	has_no_breakpoint "$python"
}

@test "sqlite3 under load" {
	spawn sqlite sqlite3 "$PWD/test.db"
	sqlite=$PID
	tell sqlite 'create table t(a integer primary key, b text);'
	tell sqlite "select 'answer 0';"
	wait_for_line sqlite.out '^answer 0$'
	attach heaptap "$sqlite" --interval 1 --sample-bytes 65536 -o p
	profiler=$PID
	n=1
	while ! has_lines heaptap.err 'sec since the last dump' 2; do
		tell sqlite "with recursive c(x) as (select 1 union all select x + 1 from c where x < 2000)
			insert into t(b) select hex(randomblob(100)) from c;"
		tell sqlite "select length(group_concat(b)) > 0 from t;"
		tell sqlite "select 'answer $n';"
		wait_for_line sqlite.out "^answer $n\$"
		n=$((n + 1))
	done
	kill -INT "$profiler"
	wait_exit "$profiler"
	tell sqlite "select 'answer after';"
	wait_for_line sqlite.out '^answer after$'
	[ ! -s sqlite.err ]
	readable "$(readlink "/proc/$sqlite/exe")" p.*.pb.gz
	[ "$(by_leaf "$(last_snapshot p)" alloc_space | wc -l)" -gt 0 ]
	has_no_breakpoint "$sqlite"
}

@test "all threads are seen, not only the one with the PID" {
	spawn threads "$WORKLOADS/threads" --wait 20000
	wait_for_line threads.out '^ready'
	attach heaptap "$PID" --sample-bytes 1 -o p
	tell threads go
	wait_for_line threads.out '^site='
	kill -INT "$PID"
	wait_exit "$PID"
	matches_truth threads.out "$(last_snapshot p)"
}

@test "kill -9 of heaptap leaves no probe and a running target" {
	spawn idle "$WORKLOADS/idle"
	target=$PID
	wait_for_line idle.out '^idle'
	before=$(bpf_objects)
	has_no_breakpoint "$target"
	attach heaptap "$target" --sample-bytes 1 -o p
	run ! has_no_breakpoint "$target"
	tell idle 'a 1000'
	wait_for_line idle.out '^done'
	kill -9 "$PID"
	wait_exit "$PID" || [ $? -eq 137 ]
	poll "$PATIENCE" has_no_breakpoint "$target"
	poll "$PATIENCE" bpf_objects_are "$before"
	tell idle 'a 1000'
	wait_for_line idle.out '^done' "$PATIENCE" 2
}

@test "kill -9 of heaptap with a command: no orphan is left held" {
	spawn heaptap "$HEAPTAP" record -o p -- "$WORKLOADS/idle"
	profiler=$PID
	wait_for_line heaptap.out '^idle'
	target=$(awk '/^idle/ { print $2 }' heaptap.out)
	STARTED+=("$target")
	kill -9 "$profiler"
	wait_exit "$profiler" || [ $? -eq 137 ]
	if [ -e "/proc/$target" ]; then
		poll "$PATIENCE" has_no_breakpoint "$target"
	fi
}

@test "the target's exit ends the session with a last snapshot" {
	spawn idle "$WORKLOADS/idle"
	target=$PID
	wait_for_line idle.out '^idle'
	attach heaptap "$target" --sample-bytes 1 -o p
	profiler=$PID
	tell idle 'a 3000000'
	wait_for_line idle.out '^done'
	kill -TERM "$target"
	wait_exit "$profiler"
	[ "$(reasons heaptap.err)" = 'Exiting, 2 MB in use' ]
	[ "$(by_leaf p.0001.pb.gz inuse_space | awk '$1 == "idle_malloc" { print $2 }')" = 3000000 ]
}

@test "kill -9 of the target ends the session with a last snapshot" {
	spawn idle "$WORKLOADS/idle"
	target=$PID
	wait_for_line idle.out '^idle'
	attach heaptap "$target" --sample-bytes 1 -o p
	profiler=$PID
	tell idle 'a 3000'
	wait_for_line idle.out '^done'
	kill -9 "$target"
	wait_exit "$profiler"
	reasons heaptap.err | grep -qE '^Exiting, [0-9]+ (kB|bytes) in use$'
	[ "$(by_leaf p.0001.pb.gz inuse_space | awk '$1 == "idle_malloc" { print $2 }')" = 3000 ]
}

@test "the target's exec is followed, and nothing of the old program is in use" {
	spawn exec "$WORKLOADS/exec" --wait "$WORKLOADS/idle" 7000000
	target=$PID
	wait_for_line exec.out '^ready'
	attach heaptap "$target" --sample-bytes 1 -o p
	profiler=$PID
	tell exec go
	wait_for_line exec.out '^site='
	tell exec end
	wait_for_line exec.out '^idle'
	tell exec 'a 10'
	wait_for_line exec.out '^done'
	kill "$target"
	wait_exit "$profiler"
	sum() {
		by_leaf "$(last_snapshot p)" "$1" | awk -v name="$2" '$1 == name { print $2 }'
	}
	[ "$(sum alloc_space before_exec)" = "$(sed -nE 's/.*before_exec .*alloc_space=([0-9]+).*/\1/p' exec.out)" ]
	[ -z "$(sum inuse_space before_exec)" ]
	[ "$(sum inuse_space idle_malloc)" = 7000010 ]
}

@test "a command's exit status is reported, not returned" {
	"$HEAPTAP" record -o p -- sh -c 'exit 7' 2>log
	grep -q 7 log
}

@test "a command sees its own arguments, input and output" {
	echo input | "$HEAPTAP" record -o p -- sh -c 'cat; printf "%s|" "$@"' sh -o 'a b' -- '' >out 2>log
	[ "$(cat out)" = "input
-o|a b|--||" ]
}

@test "100 rounds of attach and detach leave nothing behind" {
	spawn idle "$WORKLOADS/idle"
	target=$PID
	wait_for_line idle.out '^idle'
	before=$(bpf_objects)
	files=$(find "/proc/$target/fd" | wc -l)
	for ((round = 1; round <= 100; round++)); do
		attach heaptap "$target" -o p
		kill -INT "$PID"
		wait_exit "$PID"
		rm -f p.*
	done
	poll "$PATIENCE" bpf_objects_are "$before"
	has_no_breakpoint "$target"
	[ "$(find "/proc/$target/fd" | wc -l)" -eq "$files" ]
	tell idle 'a 1000'
	wait_for_line idle.out '^done'
}
