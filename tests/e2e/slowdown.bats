#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# The warning about a recording that slows its target down, and --max-slowdown.

load helpers

is_alive() {
	kill -0 "$1" && ! is_gone "$1"
}

# busy NAME: allocates all the time; sets PID.
busy() {
	spawn "$1" "$WORKLOADS/paced" 20000000
	wait_for_line "$1.out" '^paced'
}

# refuses PATTERN OPTION...: nothing is recorded, and the line says why.
refuses() {
	local pattern=$1
	shift
	run -1 --separate-stderr timeout "$PATIENCE" "$HEAPTAP" record -q "$@"
	# shellcheck disable=SC2154 # set by run
	[[ $stderr =~ $pattern ]]
	[ "$(count_snapshots ./heaptap)" -eq 0 ]
}

@test "a process that allocates all the time: a warning" {
	busy paced
	target=$PID
	attach tap "$target"
	wait_for_line tap.err "warning: the recording slows $target \\(paced\\) down by .* %.*--duration 10" 120
	kill -INT "$PID"
	wait_exit "$PID"
	[ "$(grep -c warning tap.err)" -eq 1 ]
	is_alive "$target"
}

@test "one that idles: none, and no limit is too low" {
	spawn idle "$WORKLOADS/idle"
	wait_for_line idle.out '^idle'
	target=$PID
	attach tap "$target" --max-slowdown 1 --duration 3
	wait_exit "$PID"
	! grep -qE 'warning|slow' tap.err
	[ "$(count_snapshots ./heaptap)" -eq 1 ]
	is_alive "$target"
}

@test "a busy process is refused before the recording, and named" {
	busy paced
	refuses "PID $PID \\(paced\\) down by .* %( or more)?, and --max-slowdown allows 10 %.*--max-slowdown [0-9]+ --duration 10.*doctor -p $PID" \
		--max-slowdown 10 -p "$PID"
	is_alive "$PID"
}

@test "a high limit" {
	busy paced
	target=$PID
	attach tap "$target" --max-slowdown 1000000 --duration 2
	wait_exit "$PID"
	[ "$(count_snapshots ./heaptap)" -eq 1 ]
	is_alive "$target"
}

@test "several: the busy one is named" {
	spawn idle "$WORKLOADS/idle"
	wait_for_line idle.out '^idle'
	idle=$PID
	busy paced
	refuses "PID $PID \\(paced\\).*leave this process out" --max-slowdown 10 -p "$idle,$PID"
	is_alive "$idle"
	is_alive "$PID"
}

@test "a command: the recording ends with a snapshot, the command goes on" {
	spawn tap "$HEAPTAP" record --max-slowdown 10 -- "$WORKLOADS/paced" 20000000
	tap=$PID
	wait_for_line tap.out '^paced'
	target=$(awk '/^paced/ { print $2 }' tap.out)
	STARTED+=("$target")
	poll 120 is_gone "$tap"
	run -1 wait "$tap"
	grep -qE 'the recording ends, as it slows .* down by .* %( or more)? and --max-slowdown allows 10 %' tap.err
	grep -q "(PID $target) goes on running" tap.err
	readable "$WORKLOADS/paced" "$(last_snapshot ./heaptap)"
	is_alive "$target"
	tell tap ''
	wait_for_line tap.out '^pairs'
}

@test "processes that exit while their calls are counted" {
	spawn idle "$WORKLOADS/idle"
	wait_for_line idle.out '^idle'
	idle=$PID
	busy paced
	busy=$PID
	spawn tap "$HEAPTAP" record -v --max-slowdown 1000000 --duration 1 -p "$idle,$busy"
	tap=$PID
	wait_for_line tap.err '^Attach mode'
	kill -9 "$busy"
	wait_exit "$tap"
	is_alive "$idle"
	busy paced2
	busy=$PID
	spawn tap "$HEAPTAP" record -v --max-slowdown 1000000 --duration 1 -p "$busy"
	tap=$PID
	wait_for_line tap.err '^Attach mode'
	kill -9 "$busy"
	# It may have been recorded already.
	wait_exit "$tap" || [ $? -eq 1 ]
	! grep -qE 'cannot be counted' tap.err
}

has_items() {
	[ "$(redis-cli -s "$1" llen mylist)" -gt 0 ]
}

@test "redis: idle, and under load" {
	command -v redis-server >/dev/null || skip "redis is not installed"
	spawn redis redis-server --port 0 --unixsocket "$PWD/redis.sock" --save ''
	server=$PID
	poll "$PATIENCE" test -S redis.sock
	attach tap "$server" --max-slowdown 10 --duration 1
	wait_exit "$PID"
	rm heaptap.*
	spawn load redis-benchmark -s "$PWD/redis.sock" -t lpush -n 100000000 -r 100000 -P 32 -q
	poll "$PATIENCE" has_items "$PWD/redis.sock"
	refuses "PID $server \\(redis-server\\)" --max-slowdown 1 -p "$server"
	redis-cli -s "$PWD/redis.sock" ping | grep -q PONG
	is_alive "$server"
}

@test "wrong limits" {
	run -1 --separate-stderr "$HEAPTAP" record --max-slowdown 0 -p 1
	[[ $stderr == *'--max-slowdown must be at least 1' ]]
	run -1 --separate-stderr "$HEAPTAP" record --max-slowdown x -p 1
	[[ $stderr == *"--max-slowdown 'x' is no number"* ]]
}
