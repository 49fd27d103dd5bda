#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# What `heaptap doctor` says of the machine and of processes, and that they go on.

load helpers

# doctor STATUS OPTION...: with its answer in doctor.out.
doctor() {
	local status=$1
	shift
	run "-$status" --separate-stderr timeout "$PATIENCE" "$HEAPTAP" doctor "$@"
	printf '%s\n' "$output" | tee doctor.out
	# shellcheck disable=SC2154 # set by run
	[ -z "$stderr" ]
}

# says PATTERN...: each in a line of its own.
says() {
	local pattern

	for pattern in "$@"; do
		grep -qE -- "$pattern" doctor.out || {
			echo "no line like: $pattern" >&2
			return 1
		}
	done
}

# number LABEL N: the Nth number in the line of that label.
number() {
	sed -n "s/^  $1 //p" doctor.out | head -n 1 | grep -oE '[0-9]+(\.[0-9]+)?' | sed -n "$2p"
}

# within A B PERCENT
within() {
	awk -v a="$1" -v b="$2" -v p="$3" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(d <= b * p / 100) }' || {
		echo "$1 is not within $3 % of $2" >&2
		return 1
	}
}

is_alive() {
	kill -0 "$1" && ! is_gone "$1"
}

@test "the machine" {
	doctor 0
	says '^Machine: Linux [0-9.]+.*, x86_64, [0-9]+ CPUs' 'kernel types +yes' 'attach mode +(session|multi|perf)$' \
		'BPF programs +load in' 'capabilities +all' 'cost of a trap +[0-9]+ ns, .* [0-9]+ ns'
	# A trap is no function call, and no system's is slower than 100 microseconds.
	[ "$(number 'cost of a trap' 1)" -ge 50 ]
	[ "$(number 'cost of a trap' 1)" -lt 100000 ]
}

@test "an idle process" {
	spawn idle "$WORKLOADS/idle"
	wait_for_line idle.out '^idle'
	doctor 0 -p "$PID"
	says "^Process $PID \\(idle\\)" "program +.*/workloads/idle" 'threads +1$' 'seccomp +none' \
		'allocator +.*/libc.so.6 \(build-id [0-9a-f]{16}\): [0-9]+ probe points' '^    malloc\+[0-9]+: ' \
		'^    free\+[0-9]+: ' 'stacks +[0-9.]+ % of [0-9.]+ MB' 'exports only|\.symtab|debug file' \
		'calls +0 allocations' 'verdict +fine'
	tell idle 'a 100'
	wait_for_line idle.out '^done'
}

# counts_threads MODE: what is known of a program's two threads.
counts_threads() {
	spawn paced "$WORKLOADS/paced" 20000 100
	wait_for_line paced.out '^paced'
	doctor 0 --attach "$1" -p "$PID"
	tell paced ''
	tell paced ''
	wait_for_line paced.out '^pairs' "$PATIENCE" 2
	is_alive "$PID"
	says "attach mode +$1" 'threads +3$'
	within "$(number calls 1)" 20000 20
	within "$(number calls 3)" 20000 20
	# 100 bytes each: 1.9 MB.
	within "$(number calls 2)" 1.9 21
}

@test "the rate of a process, all threads together" {
	counts_threads session
	within "$(number 'default, 512K' 2)" 40000 20
}

@test "the same without sessions: a trap at each return" {
	counts_threads multi
	within "$(number 'default, 512K' 2)" 60000 20
}

@test "the same with perf events" {
	counts_threads perf
	within "$(number 'default, 512K' 2)" 60000 20
}

@test "several processes, of which one is not there" {
	spawn idle "$WORKLOADS/idle"
	wait_for_line idle.out '^idle'
	doctor 1 -p "4194305,$PID"
	says '^Process 4194305' 'NOT POSSIBLE +no process with PID 4194305' "^Process $PID" 'verdict +fine'
}

@test "wrong usage" {
	run -1 --separate-stderr "$HEAPTAP" doctor -p abc
	[[ $stderr == "heaptap: --pid 'abc' is no PID"* ]]
	run -1 --separate-stderr "$HEAPTAP" doctor -p 1,,2
	run -2 --separate-stderr "$HEAPTAP" doctor 1
	run -2 --separate-stderr "$HEAPTAP" doctor --nonsense
}

@test "what has no heap" {
	doctor 1 -p 2
	says 'NOT POSSIBLE +a kernel thread has no heap'
	spawn parent python3 -u -c '
import os, sys
pid = os.fork()
if pid == 0:
    os._exit(0)
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
print("zombie", pid)
sys.stdin.readline()
'
	wait_for_line parent.out '^zombie'
	doctor 1 -p "$(awk '{ print $2 }' parent.out)"
	says 'NOT POSSIBLE +it has exited'
}

@test "redis: jemalloc, and under load" {
	command -v redis-server >/dev/null || skip "redis is not installed"
	spawn redis redis-server --port 0 --unixsocket "$PWD/redis.sock" --save ''
	server=$PID
	poll "$PATIENCE" test -S redis.sock
	spawn load redis-benchmark -s "$PWD/redis.sock" -t set -n 100000000 -r 100000 -q
	doctor 0 -p "$server"
	says 'allocator +.*/libjemalloc.so.2' '^    malloc\+[0-9]+: .*, [0-9]+ calls' 'verdict +.+'
	[ "$(number calls 1)" -gt 1000 ]
	redis-cli -s "$PWD/redis.sock" ping | grep -q PONG
	is_alive "$server"
}

@test "node: JIT code is told of" {
	command -v node >/dev/null || skip "node is not installed"
	spawn node node -e 'console.log("ready"); process.stdin.once("data", () => process.exit(7))'
	wait_for_line node.out '^ready'
	doctor 0 -p "$PID"
	says 'JIT code +[0-9]+ mappings' 'runtime +V8' 'stacks +[0-9.]+ %'
	tell node go
	wait_exit "$PID" || [ $? -eq 7 ]
}

@test "python3: a runtime whose objects malloc does not see" {
	spawn python env -u PYTHONMALLOC python3 -u -c 'import sys; print("ready"); sys.stdin.readline(); print("done")'
	wait_for_line python.out '^ready'
	doctor 0 -p "$PID"
	says 'runtime +Python .*malloc does not serve' 'allocator +.*/libc.so.6'
	tell python go
	wait_for_line python.out '^done'
}

@test "forks and new threads while calls are counted" {
	cat >forks.py <<-'END'
		import os, sys, threading, time
		print("ready", flush=True)
		end = time.monotonic() + 3
		count = 0
		while time.monotonic() < end:
		    pid = os.fork()
		    if pid == 0:
		        bytearray(100000)
		        os._exit(0)
		    assert os.waitpid(pid, 0)[1] == 0
		    thread = threading.Thread(target=bytearray, args=(100000,))
		    thread.start()
		    thread.join()
		    count += 1
		print("done", count, flush=True)
	END
	spawn forks python3 forks.py
	wait_for_line forks.out '^ready'
	doctor 0 -p "$PID"
	wait_exit "$PID"
	grep -qE '^done [0-9]+' forks.out
}

@test "a static Go program: no malloc, and why" {
	command -v go >/dev/null || skip "go is not installed"
	cat >app.go <<-'END'
		package main

		import "fmt"

		func main() {
			var line string
			fmt.Println("ready")
			fmt.Scanln(&line)
		}
	END
	GOCACHE=$BATS_FILE_TMPDIR/go GO111MODULE=off GOFLAGS='' CGO_ENABLED=0 go build -o app app.go
	spawn app ./app
	wait_for_line app.out '^ready'
	doctor 1 -p "$PID"
	says 'NOT POSSIBLE +no allocator found, but there is Go' 'stacks +[0-9.]+ %'
	is_alive "$PID"
}

@test "a static and stripped program: what to give, and then it is found" {
	local libc=/usr/lib/x86_64-linux-gnu/libc.a

	[ -e "$libc" ] || skip "needs $libc"
	cc -static -O1 -D_GNU_SOURCE -o paced "$E2E/../workloads/paced.c" -pthread
	strip paced
	spawn paced ./paced 20000
	wait_for_line paced.out '^paced'
	DEBUGINFOD_URLS='' doctor 1 -p "$PID"
	says 'NOT POSSIBLE +no allocator found: .*signatures-from'
	doctor 0 -p "$PID" --signatures-from "$libc"
	says 'allocator +.*/paced' 'names +no names 1'
	within "$(number calls 1)" 20000 20
	is_alive "$PID"
}

@test "without root: what can be said" {
	local folder

	folder=$(mktemp -d)
	chmod 755 "$folder"
	cp "$HEAPTAP" "$WORKLOADS/idle" "$folder"
	as_nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all)
	spawn mine "${as_nobody[@]}" "$folder/idle"
	mine=$PID
	wait_for_line mine.out '^idle'
	spawn other "$WORKLOADS/idle"
	wait_for_line other.out '^idle'
	run -1 --separate-stderr "${as_nobody[@]}" "$folder/heaptap" doctor -p "$mine,$PID"
	printf '%s\n' "$output" | tee doctor.out
	rm -r "$folder"
	[ -z "$stderr" ]
	says 'NOT POSSIBLE +heaptap needs root.*sudo' 'missing +CAP_BPF' 'missing +CAP_PERFMON' \
		"^Process $mine" 'allocator +.*/libc.so.6' 'calls +not counted' \
		"^Process $PID" 'NOT POSSIBLE +its files may not be looked into'
}

@test "a capability that is missing" {
	run -1 --separate-stderr setpriv --bounding-set=-sys_admin,-bpf "$HEAPTAP" doctor
	printf '%s\n' "$output" | tee doctor.out
	says 'NOT POSSIBLE +CAP_BPF is missing, to load BPF programs'
	# What CAP_BPF and CAP_PERFMON are for needs no more than these.
	run -0 --separate-stderr setpriv --bounding-set=-sys_admin,-sys_resource "$HEAPTAP" doctor
}
